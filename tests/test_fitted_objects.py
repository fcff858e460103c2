"""What a fitted object keeps and shows, over every estimator and sampler of the package, found by walking it.

The rewind attack looks for a source of noise in all that can be reached from a fitted object and in its pickle, and
uses what it finds; it is tried on estimators that leak before it is believed about those that should not. The other
tests ask for fresh noise, for parameters that are checked before data are read, for statistics without noise, and
`audit_estimator` asks for epsilon.
"""

import ast
import copy
import functools
import gc
import inspect
import pickle
import pickletools
import types
import warnings

import inventory
import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from helpers import paths
from helpers.erm import ERMClassifier, OutputPerturbationClassifier
from helpers.privacy import REPLACE_ONE, SEED_SECRET, Guarantee, PrivateMixin
from helpers.privacy.audit import audit_estimator, audit_object, neighbouring_data, rare_class_pairs, released

SEED = 918_273_645
SOURCES = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, np.random.SeedSequence)

each = pytest.mark.parametrize("cls", inventory.estimators(), ids=lambda cls: cls.__name__)
each_private = pytest.mark.parametrize("cls", inventory.private(), ids=lambda cls: cls.__name__)
each_classifier = pytest.mark.parametrize("cls", inventory.private_classifiers(), ids=lambda cls: cls.__name__)


def fitted(cls, random_state=None, records=None, **parameters):
    model = inventory.build(cls, random_state=random_state, **parameters)
    return inventory.fit(model, *(records or inventory.data(cls)))


@functools.cache
def variants_fitted(cls, random_state) -> list:
    """Each variant's parameters, its fitted object, and the seeds that its sources of noise were made from."""
    found, make = [], PrivateMixin._noise_generator
    with pytest.MonkeyPatch.context() as patch:
        seeds = []
        patch.setattr(
            PrivateMixin,
            "_noise_generator",
            lambda self, *data: (seeds.append(self.random_state), make(self, *data))[1],
        )
        for parameters in inventory.variants(cls):
            model = fitted(cls, random_state, **parameters)
            found.append((parameters, model, seeds.copy()))
            seeds.clear()
    return found


def output(model, X, y) -> np.ndarray:
    """All numbers that a fitted classifier shows, or what a sampler returns, in one vector."""
    if hasattr(model, "fit_resample"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            resampled, labels = model.fit_resample(X, y)
        return np.r_[np.ravel(resampled), np.ravel(labels)]
    shown = released(model, X[:4])
    return np.concatenate([shown[name] for name in sorted(shown)])


# The inventory itself


def test_the_inventory_finds_what_is_there():
    names = {cls.__name__ for cls in inventory.estimators()}
    assert {"ObjectivePerturbationClassifier", "PrivateBaggingClassifier", "StableSMOTE", "ERMClassifier"} <= names
    assert not {"PrivateLinearClassifier", "StableSampler", "PrivateMixin", "BaseEstimator"} & names
    assert {cls.__name__ for cls in inventory.samplers()} >= {"DeterministicOversampler", "StableSMOTE"}
    assert inventory.ADD_REMOVE in [v.get("neighbouring") for v in inventory.variants(OutputPerturbationClassifier)]


@each
def test_whoever_has_a_random_state_keeps_the_rules_for_it(cls):
    """A class that draws is a PrivateMixin, or its draws may be public and its docstring says so."""
    if "random_state" in inventory.parameter_names(cls):
        assert issubclass(cls, PrivateMixin) or "need not be secret" in inspect.getdoc(cls)


# The rewind attack


def reachable(root):
    """Every object that can be reached from `root`: attributes, items, closures, bound methods, object arrays."""
    seen, waiting = set(), [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, type | types.ModuleType):
            continue
        seen.add(id(item))
        yield item
        if isinstance(item, types.FunctionType):  # not its globals, which are the module's
            waiting += [item.__closure__, item.__defaults__, item.__kwdefaults__]
        elif isinstance(item, types.CellType):
            waiting.append(item.cell_contents)
        elif isinstance(item, np.ndarray) and item.dtype.hasobject:
            waiting += item.ravel().tolist()
        elif isinstance(item, SOURCES):
            continue
        else:
            waiting += gc.get_referents(item)


def sources(model) -> list:
    """Generators that can be reached, and seeds in the pickle: anything that gives the noise again."""
    found = [item for item in reachable(model) if isinstance(item, SOURCES)]
    try:
        opcodes = pickletools.genops(pickle.dumps(model))
    except (AttributeError, TypeError, pickle.PicklingError):
        opcodes = ()  # what cannot be pickled is published by other means
    found += [argument for _, argument, _ in opcodes if isinstance(argument, int) and argument == SEED]
    for held in reachable(model):  # seeds of parts; the model's own stays in memory and leaves with the pickle
        if isinstance(held, PrivateMixin) and held is not model and getattr(held, "random_state", None) is not None:
            found.append(held.random_state)
    return found


def rewound(source, steps):
    """The generator `steps` draws of 64 bits earlier."""
    generator = copy.deepcopy(source)
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    bits.advance(2**128 - steps)
    return generator if isinstance(generator, np.random.Generator) else np.random.Generator(generator)


def told_apart(model, candidates) -> int | None:
    """Which of the candidate data sets the fitted model was made from, by what it has kept; None if nothing helps."""

    def again(records, **seed):
        other = clone(model).set_params(random_state=None)
        for name, value in seed.items():
            setattr(other, name, value)
        return released(other.fit(*records))["coef_"]

    for source in sources(model):
        for place, records in enumerate(candidates):
            if isinstance(source, int):
                attempts = [again(records, random_state=source)]
            else:
                past = (functools.partial(rewound, source, steps) for steps in range(1, 12))
                attempts = (again(records, _noise_generator=lambda *_, back=back: back()) for back in past)
            if any(np.allclose(attempt, model.coef_, rtol=1e-12) for attempt in attempts):
                return place
    return None


class Leaky(PrivateMixin, ClassifierMixin, BaseEstimator):
    """A noisy sum that keeps its source of noise in the place that `_keep` chooses."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def _keep(self, rng, seed):
        """Nothing, here."""

    def fit(self, X, y):
        rng = np.random.default_rng(SEED) if self.random_state is None else self._noise_generator(X, y)
        self.coef_ = (2 * y - 1) @ X + rng.laplace(scale=20.0, size=X.shape[1])
        self.guarantee_ = Guarantee(0.1, 0.0, REPLACE_ONE)
        self._keep(rng, self.random_state)
        return self


class KeepsGenerator(Leaky):
    def _keep(self, rng, seed):
        self._parts = [{"noise": rng}]


class KeepsClosure(Leaky):
    def _keep(self, rng, seed):
        self.draw_ = (lambda: rng.normal(),)


class KeepsBits(Leaky):
    def _keep(self, rng, seed):
        self.bits_ = np.array([rng.bit_generator], dtype=object)


class KeepsSeed(Leaky):
    def _keep(self, rng, seed):
        self.details_ = {"seed": seed}

    def __getstate__(self):
        return super().__getstate__() | {"random_state": None}


class KeepsParts(Leaky):
    def _keep(self, rng, seed):
        self.estimators_ = [Leaky(random_state=17)]


@pytest.mark.parametrize("leak", [KeepsGenerator, KeepsBits, KeepsClosure])
def test_the_attack_tells_neighbours_apart_by_a_kept_generator(leak):
    """At epsilon .1, by twelve refits, without an error."""
    X, y = inventory.data(OutputPerturbationClassifier)
    candidates = [(X, y), inventory.neighbour(X, y)]
    for place, records in enumerate(candidates):
        assert told_apart(leak().fit(*records), candidates) == place


def test_the_attack_tells_neighbours_apart_by_a_kept_seed(monkeypatch):
    X, y = inventory.data(OutputPerturbationClassifier)
    candidates = [(X, y), inventory.neighbour(X, y)]
    for place, records in enumerate(candidates):
        assert told_apart(KeepsSeed(SEED).fit(*records), candidates) == place
        assert sources(Leaky(SEED).fit(*records)) == []
    assert sources(KeepsParts().fit(X, y)) == [17]
    # Without PrivateMixin's pickle, the parameter itself is the leak.
    monkeypatch.delattr(PrivateMixin, "__getstate__")
    assert sources(Leaky(SEED).fit(X, y)) == [SEED]


@pytest.mark.parametrize("random_state", [None, SEED])
@each_private
def test_no_source_of_noise_can_be_reached(cls, random_state):
    for parameters, model, _ in variants_fitted(cls, random_state):
        assert sources(model) == [], parameters
        assert sources(pickle.loads(pickle.dumps(model))) == [], parameters


@each_private
def test_a_seed_given_to_the_estimator_inside_is_not_in_the_pickle(cls):
    if "estimator" in inventory.parameter_names(cls):
        inside = inventory.build(OutputPerturbationClassifier, random_state=SEED, regularization=0.1)
        assert sources(pickle.loads(pickle.dumps(fitted(cls, estimator=inside)))) == []


# Fresh noise


@each_private
def test_without_a_seed_every_fit_and_every_clone_has_noise_of_its_own(cls):
    X, y = inventory.data(cls)
    model = fitted(cls)
    shown = output(model, X, y)
    for other in (fitted(cls), inventory.fit(clone(model), X, y), inventory.fit(copy.deepcopy(model), X, y)):
        assert not np.array_equal(output(other, X, y), shown)


@each_private
def test_with_a_seed_the_same_question_has_the_same_answer_and_a_copy_has_not(cls):
    X, y = inventory.data(cls)
    model = fitted(cls, SEED)
    shown = output(model, X, y)
    assert np.array_equal(output(fitted(cls, SEED), X, y), shown)
    unseeded = inventory.fit(pickle.loads(pickle.dumps(model)), X, y)
    assert not np.array_equal(output(unseeded, X, y), shown)


@each_private
def test_all_parts_draw_without_a_seed_or_each_with_its_own(cls):
    """Seen where noise is made: one seed for all bagged learners, or a constant one, would be a shared noise."""
    for parameters, _, seeds in variants_fitted(cls, None):
        assert set(seeds) == {None}, parameters
    for parameters, _, seeds in variants_fitted(cls, SEED):
        given = [seed for seed in seeds if seed is not None]  # dry runs on made-up records have none
        assert SEED in given
        assert len(set(given)) == len(given), parameters


def test_methods_draw_from_no_other_source():
    """`numpy.random` is used for the public frequencies of kernels, and its global state is seeded and restored around
    learners that may draw from it; nowhere else in the rooms of methods."""
    used = set()
    for room in ("erm", "meta", "resampling"):
        for file in sorted((paths.ROOT / "helpers" / room).rglob("*.py")):
            calls = (node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
            used |= {(file.name, ast.unparse(call)) for call in calls if "random." in ast.unparse(call)}
    assert {(name, call) for name, call in used if not call.startswith("rng.")} == {
        ("kernels.py", "np.random.default_rng"),
        ("quality.py", "np.random.default_rng"),  # simulates noise to read noisy counts by, and releases none
        *(("aggregation.py", f"np.random.{name}") for name in ("get_state", "seed", "set_state")),
    }


@each_classifier
def test_pickles_predict_the_same(cls):
    X, y = inventory.data(cls)
    model = fitted(cls)
    copied = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copied.predict(X), model.predict(X))
    assert np.array_equal(output(copied, X, y), output(model, X, y))
    assert copied.guarantee_ == model.guarantee_


@each_classifier
def test_one_seed_on_neighbours_does_not_show_the_difference_without_noise(cls):
    """The old leak: equal noise on both, so that the difference of the releases is the same whatever the seed."""
    records = inventory.data(cls)
    other = inventory.neighbour(*records)

    def difference(seed):
        shown, changed = (released(fitted(cls, seed, r), records[0][:4]) for r in (records, other))
        common = sorted(name for name in shown if name in changed and shown[name].shape == changed[name].shape)
        return {name: shown[name] - changed[name] for name in common}

    first, second = difference(SEED), difference(SEED + 1)
    noisy = [name for name in first if name in second and not np.allclose(first[name], second[name], rtol=1e-6)]
    assert noisy


# Parameters before data


class Touched(Exception):
    """Private data were looked at."""


class Private:
    """Records that must not be looked at yet."""

    def _refuse(self, *arguments, **options):
        raise Touched

    __array__ = __len__ = __iter__ = __getitem__ = __bool__ = __eq__ = __hash__ = _refuse

    def __getattr__(self, name):
        raise Touched


class Nonsense:
    """A value that no parameter can have."""


# (class or None for all, parameter): why it may be anything, or be found wrong only with the data.
_NOT_BEFORE_DATA = {
    (None, "bounds"): "its shape has to agree with the number of features",
    (None, "minority"): "any object can be a label",
}


def refused_before_data(cls, name, value):
    model = inventory.build(cls).set_params(**{name: value})
    with pytest.raises(ValueError, match=name):
        inventory.fit(model, Private(), Private())


@each
def test_every_switch_is_a_real_boolean(cls):
    for name, parameter in inspect.signature(cls).parameters.items():
        if isinstance(parameter.default, bool):
            for value in ("no", 0, 1, None):
                refused_before_data(cls, name, value)


@each
def test_every_parameter_is_checked_before_data_are_read(cls):
    with pytest.raises(Touched):
        inventory.fit(inventory.build(cls), Private(), Private())
    for name in inventory.parameter_names(cls):
        if not {(None, name), (cls.__name__, name)} & set(_NOT_BEFORE_DATA):
            refused_before_data(cls, name, Nonsense())


@each_private
def test_generators_are_refused_by_name(cls):
    for source in (np.random.default_rng(0), np.random.RandomState(0), np.random.PCG64(0), np.random.SeedSequence(0)):
        refused_before_data(cls, "random_state", source)


# What is shown


@each_classifier
def test_the_guarantee_is_complete_and_knows_about_the_seed(cls):
    for seed in (None, SEED):
        for parameters in inventory.variants(cls):
            guarantee = fitted(cls, seed, **parameters).guarantee_
            assert guarantee.neighbouring is parameters.get("neighbouring", guarantee.neighbouring)
            assert len(guarantee.assumes) >= 1
            assert guarantee.source
            assert (SEED_SECRET in guarantee.assumes) == (seed is not None)


@pytest.mark.parametrize("cls", inventory.samplers(), ids=lambda cls: cls.__name__)
def test_samplers_state_their_stability_and_know_about_the_seed(cls):
    if "random_state" in inventory.parameter_names(cls):
        assert SEED_SECRET in fitted(cls, SEED).stability_.assumes
        assert SEED_SECRET not in fitted(cls).stability_.assumes
    assert inventory.fit(inventory.build(cls), *inventory.data(cls)).stability_.neighbouring


@each_private
def test_no_diagnostics_unless_asked_for(cls):
    shown = [name for name in vars(fitted(cls)) if not name.startswith("_")]
    assert [n for n in shown if n in ("n_iter_", "gradient_norm_", "diagnostics_") or n.endswith("indices_")] == []


def exact_statistics(make, records, others, n_fits=30) -> set[str]:
    """Attributes that noise does not touch, and that tell a neighbour apart: `n_fits` fits agree on either side.

    A value drawn with epsilon 1 has at most e / (1 + e) for either of two different answers, so that it is taken for
    exact with probability (e / (1 + e))^60 < 1e-8. Without the second side a likely answer would be found guilty.
    """

    def shown(data):
        model = make(data)
        inside = {name: repr(value) for name, value in vars(model).items() if name.endswith("_") and name[0] != "_"}
        values = {name: repr(value.tolist()) for name, value in released(model).items()}
        return {name: text for name, text in (inside | values).items() if "random_state" not in name}

    def same(fits):
        return {name for name, text in fits[0].items() if all(fit.get(name) == text for fit in fits)}

    here, found = [shown(records)], set()
    for other in others:
        there = [shown(other)]
        suspects = {name for name, text in there[0].items() if here[0].get(name, text) != text}
        for side, data in ((here, records), (there, other)):
            while suspects and len(side) < n_fits:
                side.append(shown(data))
                suspects &= same(side)
            suspects &= same(side)
        found |= suspects
    return found


def test_exact_statistics_are_found():
    class Tell(Leaky):
        def fit(self, X, y):
            super().fit(X, y)
            self.coef_ = self.coef_ + np.random.default_rng().laplace(size=2)
            self.summary_ = {"n_minority": int(y.sum())}
            self.largest_ = float(np.abs(X).max())
            self.n_features_in_ = X.shape[1]
            return self

    records = inventory.data(OutputPerturbationClassifier)
    others = [inventory.neighbour(*records)]
    found = exact_statistics(lambda data: Tell().fit(*data), records, others)
    assert found == {"summary_", "summary_.n_minority", "largest_"}


# (class, attribute): why it may be exact.
_PUBLIC = {("MidpointClassifier", "counts_"): "with counts='public', which all neighbours share"}


@each_private
def test_no_exact_statistic_of_the_data_is_shown(cls):
    """Neighbours: another last record, another label, another largest record."""
    X, y = inventory.data(cls)
    flipped, moved = y.copy(), X.copy()
    flipped[-1] = 1 - flipped[-1]
    moved[0] = 0.9 / np.sqrt(X.shape[1])
    others = [inventory.neighbour(X, y), (X, flipped), (moved, y)]
    for parameters in inventory.variants(cls):
        if parameters.get("diagnostics"):
            continue  # asked for, and flagged as not private
        found = exact_statistics(lambda data, p=parameters: fitted(cls, None, data, **p), (X, y), others)
        assert {name for name in found if (cls.__name__, name) not in _PUBLIC} == set(), parameters


# Epsilon


def honest(cls) -> bool:
    """A check may run a printed mechanism whose claim is false; that is its purpose."""
    return not cls.__module__.startswith("checks.")


# Each fits as another class does that is audited in every run, RepeatedSearch and PATEClassifier, and every run replays
# its releases (test_replay).
AUDITED_WEEKLY = ("PartitionedSearch", "SubsampleAndAggregateClassifier")


def audited():
    for cls in filter(honest, inventory.private_classifiers()):
        marks = pytest.mark.weekly if cls.__name__ in AUDITED_WEEKLY else ()
        yield pytest.param(cls, id=cls.__name__, marks=marks)


@pytest.mark.parametrize("cls", list(audited()))
def test_the_audit_refutes_nothing(cls):
    """Bound on epsilon, independence of fits and sub-learners, and unrelated noise under equal seeds."""
    pair = neighbouring_data(REPLACE_ONE, n_features=inventory.n_features(cls))
    audit = audit_estimator(inventory.build(cls), *pair, n_runs=64, n_seeds=24, confidence=0.99999)
    assert audit.refuted(1e-6) == ()
    assert audit.epsilon < audit.claimed.epsilon


@pytest.mark.parametrize(
    "cls", [cls for cls in inventory.private() if honest(cls) and not hasattr(cls, "fit_resample")]
)
def test_nothing_that_a_fit_shows_tells_two_tables_apart_without_noise(cls):
    """All that leaves a fit, on pairs of tables for rare classes; `audit_object` says what that is."""
    model = inventory.build(cls)
    guarantee = fitted(cls).guarantee_
    pairs = rare_class_pairs(guarantee.neighbouring, n_features=inventory.n_features(cls))
    chosen = [pair for pair in pairs if pair.name in ("first of its class", "beyond the bound", "twin", "order")]
    found = audit_object(model, guarantee, chosen)
    assert found.refuted == (), str(found)
    assert not [note for note in found.notes if "Kept in the fitted object" in note]


def test_the_audit_recovers_the_noise_of_output_perturbation():
    """The distance from the exact minimiser has the Gamma law that epsilon needs, and not that of half the noise."""
    problem = {"regularization": 0.1, "fit_intercept": False}
    estimator = OutputPerturbationClassifier(1.0, **problem)
    pair = neighbouring_data(REPLACE_ONE)
    rate = len(pair[0][0]) * 0.1 / 2  # epsilon n lambda / 2: another record's gradient differs by 2 at most

    def length(model, X, y):
        return np.linalg.norm(model.coef_ - ERMClassifier(**problem).fit(X, y).coef_)

    for scale, right in ((1 / rate, True), (0.5 / rate, False)):
        audit = audit_estimator(estimator, *pair, n_runs=100, noise=length, law=stats.gamma(2, scale=scale))
        assert (audit.p_law > 1e-4) == right
