"""Sources of noise: what keys them, what they refuse, and what a fitted object forgets."""

import copy
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
from distributed import Client
from scipy.sparse import coo_array, csr_array
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from helpers import paths
from helpers.erm import OutputPerturbationClassifier
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    SEED_SECRET,
    PrivateMixin,
    check_random_state,
    child_state,
    noise_assumptions,
    noise_generator,
    secure_generator,
)


def draws(*context, seed=7):
    return noise_generator(seed, *context).integers(2**63, size=4).tolist()


class Mean(PrivateMixin, BaseEstimator):
    """The smallest private estimator there is."""

    def __init__(self, scale=1.0, inner=None, random_state=None):
        self.scale = scale
        self.inner = inner
        self.random_state = random_state

    def fit(self, X, y=None):
        rng = self._noise_generator(np.asarray(X, dtype=float))
        self.mean_ = float(np.mean(X)) + self.scale * rng.normal()
        return self


DATA = np.random.default_rng(0).normal(size=(50, 3))
NEIGHBOUR = np.vstack([DATA[:-1], 5 * np.ones((1, 3))])


# The system's generator


@pytest.mark.entropy
def test_without_a_seed_nothing_repeats():
    assert len({secure_generator().integers(2**63) for _ in range(100)}) == 100
    assert draws(DATA, seed=None) != draws(DATA, seed=None)
    assert Mean().fit(DATA).mean_ != Mean().fit(DATA).mean_


@pytest.mark.entropy
def test_the_systems_generator_has_a_key_of_256_bits_and_20_rounds():
    state = secure_generator().bit_generator.state["state"]
    assert state["rounds"] == 20
    keys = np.array([secure_generator().bit_generator.state["state"]["keysetup"] for _ in range(200)])
    assert keys.dtype == np.uint32
    assert keys.shape[1] == 8
    assert keys.min() < 2**32 / 20
    assert keys.max() > 2**32 * 0.95
    assert len(np.unique(keys)) >= keys.size - 2  # two of 1,600 words agree in 3 of 10,000 runs, three pairs never


@pytest.mark.parametrize("copying", [pickle.dumps, copy.deepcopy, joblib.hash])
def test_the_systems_generator_cannot_be_stored(copying):
    for source in (secure_generator(), secure_generator().bit_generator, secure_generator().spawn(1)[0]):
        with pytest.raises((TypeError, pickle.PicklingError), match="cannot be pickled or copied"):
            copying({"forgotten on an object": source})


def test_only_the_systems_generator_needs_no_assumption():
    """Not even ChaCha with a key of the caller's."""
    assert noise_assumptions(secure_generator()) == ()
    assert noise_assumptions(noise_generator(None, DATA)) == ()
    for source in (np.random.default_rng(), noise_generator(7), np.random.Generator(np.random.MT19937())):
        assert noise_assumptions(source) == (SEED_SECRET,)
    plain = type(secure_generator().bit_generator).__mro__[1]
    assert noise_assumptions(np.random.Generator(plain(key=1))) == (SEED_SECRET,)


# Keys


def test_the_same_question_has_the_same_noise():
    assert draws("mean", DATA) == draws("mean", DATA.copy())
    assert Mean(random_state=3).fit(DATA).mean_ == Mean(random_state=np.int64(3)).fit(DATA).mean_


def test_any_other_question_has_unrelated_noise():
    """Seed, class, a parameter, one record, the shape, the order: each changes all of it."""
    records = [DATA, NEIGHBOUR, DATA[:-1], DATA[::-1], DATA.reshape(-1), DATA.T, np.zeros((0, 3)), np.zeros((3, 0))]
    asked = [draws("mean", X) for X in records] + [draws("mean", DATA, seed=8), draws("median", DATA), draws(DATA)]
    assert len(np.unique(asked)) == 4 * len(asked)
    fits = [Mean(1.0, random_state=7), Mean(1.0 + 2e-16, random_state=7), type("Other", (Mean,), {})(random_state=7)]
    assert len({round(model.fit(DATA).mean_, 6) for model in fits}) == 3


def test_noise_on_neighbours_is_uncorrelated():
    """The old leak: one seed, two neighbours, and the difference of two releases is that of the means, exactly."""
    pairs = np.array([[Mean(random_state=s).fit(X).mean_ - X.mean() for X in (DATA, NEIGHBOUR)] for s in range(300)])
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.25
    assert np.std(pairs) == pytest.approx(1.0, abs=0.15)


def closure(number, default=2):
    def inner(x, base=default):
        return base * x + number

    return inner


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["ab", "c"], ["a", "bc"]),
        ([1, 2], [[1, 2]]),
        ((1, 2), [1, 2]),
        (1, 1.0),
        (1, True),
        (None, "None"),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        (ADD_REMOVE, REPLACE_ONE),
        (0.1, 0.1 + 1e-17 + 1e-16),
        (lambda x: x + 1, lambda x: x + 2),
        (closure(3), closure(4)),
        (closure(3), closure(3, default=4)),
        (np.array(["ab", "c"]), np.array(["a", "bc"])),
        (np.array([2**64 - 1], dtype=np.uint64), np.array([-1])),
        (np.array([0, 1]), np.array([False, True])),
        (Mean(2.0), Mean(3.0)),
        (Mean(inner=Mean(2.0)), Mean(inner=Mean(3.0))),
        (Mean(), Mean().fit(DATA)),
        (csr_array(np.eye(2)), csr_array(np.ones((2, 2)))),
        ([np.array([1.0])], [np.array([1.0 + 1e-12])]),
    ],
)
def test_different_values_never_read_the_same(one, other):
    assert draws(one) != draws(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({3, 1, 2}, {2, 3, 1}),
        (np.array([1, 2], dtype=np.int32), np.array([1, 2], dtype=">i8")),
        (np.array(["a", "b"]), np.array(["a", "b"], dtype=object)),
        (np.asfortranarray(DATA), DATA),
        (DATA[::2], DATA[::2].copy()),
        (DATA.astype(">f8"), DATA),
        (np.array([-0.0]), np.array([0.0])),
        (np.float64(0.1), 0.1),
        (np.array(1.0), np.array(1.0)),
        (csr_array(DATA), coo_array(DATA)),
        (csr_array(([1.0, 1.0], [0, 0], [0, 2]), shape=(1, 1)), csr_array([[2.0]])),
        (closure(3), closure(3)),
        (["aa", "aa"], ["aa", "".join(["a", "a"])]),
        ([(0, 1), (0, 1)], [(0, 1), tuple([0, 1])]),
        (Mean(inner=Mean(2.0)), clone(Mean(inner=Mean(2.0)))),
    ],
)
def test_what_is_equal_reads_the_same(one, other):
    """Whatever the memory layout, and whether two equal objects are one."""
    assert draws(one) == draws(other)


def test_reading_leaves_the_data_as_they_are():
    twice = csr_array(([1.0, 1.0], [0, 0], [0, 2]), shape=(1, 1))
    draws(twice)
    assert twice.nnz == 2


def test_memory_maps_and_worker_processes_read_the_same(tmp_path):
    np.save(tmp_path / "data.npy", DATA)
    assert draws(np.load(tmp_path / "data.npy", mmap_mode="r")) == draws(DATA)
    code = (
        "import numpy as np; from helpers.privacy import REPLACE_ONE, noise_generator;"
        "context = ['mean', (0, 1), {'b': REPLACE_ONE, 'a': 0.1}, np.array(['x', 'y'], dtype=object), np.arange(6.0)];"
        "found = noise_generator(7, *context).integers(2**63)"
    )
    here = {}
    exec(code, here)
    there = subprocess.run(
        [sys.executable, "-c", f"{code}; print(found)"],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": str(paths.ROOT)},
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(there.stdout) == here["found"]


def test_floats_count_to_the_stated_precision_at_every_magnitude():
    """2^-24, relative: not the last bits of a processor, and no collapse of tiny or huge numbers."""
    for size in (1e-300, 1e-45, 1.0, 3e38, 1e300):
        X = size * DATA
        assert draws(X * (1 + 4e-16)) == draws(X)
        changed = X.copy()
        changed[3, 1] *= 1 + 2.0**-22
        assert draws(changed) != draws(X)
    assert draws(DATA.astype(np.float32)) == draws(DATA.astype(np.float32).astype(float))


def test_floats_are_rounded_to_the_nearest_and_not_cut_off():
    """Numbers that a float32 holds are the middle of what reads like them."""
    ulp = 2.0**-53  # below 1
    assert draws(np.array([1 - 2**28 * ulp])) == draws(np.array([1.0]))
    assert draws(np.array([1 - (2**28 + 1) * ulp])) != draws(np.array([1.0]))
    assert draws(np.array([1 + (2**28 - 1) * 2 * ulp])) == draws(np.array([1.0]))
    assert draws(np.array([1 + 2**28 * 2 * ulp])) != draws(np.array([1.0]))


def test_large_arrays_are_read_to_the_end():
    X = np.zeros(200_001)
    for where in (0, 65_535, 65_536, 200_000):
        changed = X.copy()
        changed[where] = 1e-3
        assert draws(changed) != draws(X)
        assert draws(changed.astype(bool)) != draws(X.astype(bool))


# random_state


@pytest.mark.parametrize(
    "bad",
    [
        *(source for source in (np.random.default_rng(0), np.random.RandomState(0), np.random.PCG64(0))),
        np.random.SeedSequence(0),
        True,
        -1,
        1.0,
        "7",
        [7],
    ],
)
def test_only_none_and_integers_are_seeds(bad):
    for refuse in (noise_generator, lambda seed: Mean(random_state=seed).fit(DATA)):
        with pytest.raises(ValueError, match=r"^random_state must be"):
            refuse(bad)
    with pytest.raises(ValueError, match=r"^seed must be"):
        check_random_state("seed", bad)


def test_large_integers_are_seeds_and_all_of_their_bits_count():
    assert draws(DATA, seed=2**200) != draws(DATA, seed=2**200 + 1)
    assert draws(DATA, seed=2**200) != draws(DATA, seed=0)


def test_parts_have_seeds_of_their_own():
    rng = noise_generator(7, DATA)
    seeds = [child_state(7, rng) for _ in range(50)]
    assert len(set(seeds)) == 50
    assert all(type(seed) is int for seed in seeds)
    assert child_state(None, rng) is None


# What a fitted object forgets


def nested(seed):
    return Mean(2.0, Mean(inner=Mean(random_state=seed), random_state=seed), random_state=seed)


@pytest.mark.parametrize("copying", [lambda m: pickle.loads(pickle.dumps(m)), copy.copy, copy.deepcopy])
def test_a_copy_of_a_fitted_object_has_no_seed_anywhere(copying):
    secret = 918273645
    model = nested(secret).fit(DATA)
    copied = copying(model)
    assert copied.mean_ == model.mean_
    assert {name for name, value in copied.get_params().items() if value == secret} == set()
    assert str(secret).encode() not in pickle.dumps(model)
    assert secret.to_bytes(4, "little") not in pickle.dumps(model)
    # The object in memory is as scikit-learn wants it, and its parts are untouched.
    assert {model.random_state, model.inner.random_state, model.inner.inner.random_state} == {secret}


def test_unfitted_objects_keep_their_seed_for_worker_processes():
    model = pickle.loads(pickle.dumps(nested(5)))
    assert {model.random_state, model.inner.random_state, model.inner.inner.random_state} == {5}
    assert model.fit(DATA).mean_ == nested(5).fit(DATA).mean_


def test_clones_refit_with_fresh_noise_and_a_changed_seed_is_forgotten_too():
    model = Mean().fit(DATA)
    assert clone(model).fit(DATA).mean_ != model.mean_
    model.set_params(random_state=8)
    assert pickle.loads(pickle.dumps(model)).random_state is None
    # A fitted copy has no seed to repeat its noise with.
    seeded = Mean(random_state=8).fit(DATA)
    assert copy.deepcopy(seeded).fit(DATA).mean_ != seeded.mean_


def test_a_prefitted_part_keeps_what_it_has_learned():
    part = Mean(random_state=8).fit(DATA)
    copied = pickle.loads(pickle.dumps(Mean(inner=part, random_state=9).fit(DATA)))
    assert copied.inner.mean_ == part.mean_
    assert copied.inner.random_state is None


def test_bases_in_the_wrong_order_are_refused():
    """With BaseEstimator's `__getstate__` first, pickles would hold the seed."""
    with pytest.raises(TypeError, match="Wrong must have PrivateMixin left of BaseEstimator"):
        type("Wrong", (BaseEstimator, PrivateMixin), {})
    with pytest.raises(TypeError, match="Wrong must have PrivateMixin left of BaseEstimator"):
        type("Wrong", (ClassifierMixin, BaseEstimator, PrivateMixin), {})


def test_a_seed_means_the_same_in_every_version():
    """Recorded results are repeated by their seeds; what is hashed, and how, may not change unnoticed."""
    assert noise_generator(7, "a", 3, np.arange(5)).integers(1000, size=4).tolist() == [558, 360, 905, 55]
    assert noise_generator(7, np.arange(200_000) / 7).integers(1000, size=4).tolist() == [850, 481, 83, 678]
    assert child_state(0, noise_generator(7, "a")) == 6096681704737093258


def test_a_task_that_may_run_again_needs_a_seed():
    """On a worker of Dask, where a lost result is computed once more; beside a worker nothing is asked for."""
    X, y = np.array([[-0.5], [0.5]] * 20), np.array([0, 1] * 20)

    def fitted(seed):
        return OutputPerturbationClassifier(random_state=seed).fit(X, y).coef_

    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        with pytest.raises(ValueError, match="random_state must be an integer inside a Dask task, got None"):
            client.submit(fitted, None, pure=False).result()
        assert np.array_equal(*(client.submit(fitted, 7, pure=False).result() for _ in range(2)))
        assert fitted(None).shape == (1, 1)


def test_what_an_earlier_fit_has_set_is_forgotten():
    """Whatever ends in an underscore is of a fit; parameters, private attributes and dunders are not."""

    class Fits(PrivateMixin, BaseEstimator):
        def __init__(self, random_state=None):
            self.random_state = random_state

    model = Fits(3)
    model.coef_, model._kept = 1.0, 2.0
    model._forget()
    assert vars(model) == {"random_state": 3, "_kept": 2.0}
