"""Records in parts: the same releases as from one array, whatever the parts are, and errors that say no value."""

import logging
import pickle
import tracemalloc
import types
from contextlib import ExitStack

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from sklearn.base import clone
from test_experiments_cluster import Cluster  # a scheduler and two workers on this machine
from test_replay import Tape

from helpers import erm
from helpers.data.domain import Attribute, Domain
from helpers.erm import partitions, risk
from helpers.erm.losses import LOGISTIC
from helpers.privacy import ADD_REMOVE, randomness

BOX = [[-2.0, 2.0]] * 4
FITS = {
    "clipped": (erm.ObjectivePerturbationClassifier, {"radius": 1.5}),
    "gaussian": (erm.ObjectivePerturbationClassifier, {"delta": 1e-5, "rows": "unit", "fit_intercept": False}),
    "bounds and counts": (erm.ObjectivePerturbationClassifier, {"bounds": BOX, "class_weight": "private"}),
    "cube": (erm.ObjectivePerturbationClassifier, {"bounds": BOX, "noise": "cube", "rows": "unit"}),
    "offset": (erm.OutputPerturbationClassifier, {"prior": "offset"}),
    "balanced": (erm.OutputPerturbationClassifier, {"class_weight": "balanced", "loss": "huber"}),
    "public weights": (erm.OutputPerturbationClassifier, {"class_weight": {0: 0.2, 1: 1.0}}),
    "add/remove": (
        erm.ObjectivePerturbationClassifier,
        {"neighbouring": ADD_REMOVE, "n_records": 700, "regularization": 0.1},
    ),
    "gradient descent": (erm.DPGradientDescentClassifier, {"n_steps": 4, "class_weight": "balanced"}),
    "private scale": (
        erm.DPGradientDescentClassifier,
        {"n_steps": 4, "bounds": BOX, "scale": "private", "prior": "offset"},
    ),
    "moments": (erm.PrivateMomentClassifier, {"domain": BOX, "neighbouring": ADD_REMOVE}),
    "moments of three classes": (erm.PrivateMomentClassifier, {"classes": (0, 1, 2)}),
    "three classes": (erm.ObjectivePerturbationClassifier, {"classes": (0, 1, 2), "class_weight": "private"}),
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 16 records, and no table is small enough to be written out."""
    monkeypatch.setattr(partitions, "FEW", 0)
    monkeypatch.setattr(risk, "_ENTRIES", 64)


def same_noise(monkeypatch):
    keys = iter(range(1, 100))
    monkeypatch.setattr(randomness, "secrets", types.SimpleNamespace(randbits=lambda bits: next(keys)))


def records(n=700, d=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.arange(1, d + 1)[::-1] / d
    scores = X[:, 0] + rng.standard_normal(n)
    return X, np.digitize(scores, [0.8, 1.5][: n_classes - 1])


def in_parts(X, y, source, folder):
    """The same records from elsewhere."""
    if source == "memory map":
        np.save(folder / "X.npy", X)
        return np.load(folder / "X.npy", mmap_mode="r"), y
    if source == "chunks":
        return erm.Chunks(lambda: iter(np.split(X, [1, 1, 300])), *X.shape), y
    if source == "data frames":
        return erm.Chunks(lambda: (pd.DataFrame(part) for part in np.array_split(X, 3)), *X.shape), pd.Series(y)
    if source == "dask":
        return da.from_array(X, chunks=(250, 3)), da.from_array(y, chunks=250)
    return X, y


@pytest.mark.parametrize("source", ["array", "memory map", "chunks", "data frames", "dask"])
@pytest.mark.parametrize("fit", FITS)
def test_parts_release_what_one_array_does(fit, source, tmp_path, monkeypatch):
    estimator, changes = FITS[fit]
    # What is proved about rounding depends on the size of a block, and the noise that hides the solver on what is
    # proved: let it be the same for both.
    monkeypatch.setattr(risk, "_ENTRIES", 64)
    X, y = records(n_classes=len(changes.get("classes", (0, 1))))
    same_noise(monkeypatch)
    whole = estimator(**changes).fit(X, y)
    monkeypatch.setattr(partitions, "FEW", 0)
    same_noise(monkeypatch)
    with dask.config.set(scheduler="synchronous"):
        parts = estimator(**changes).fit(*in_parts(X, y, source, tmp_path))
    assert np.abs(parts.coef_ - whole.coef_).max() < 1e-11
    if estimator is not erm.ObjectivePerturbationClassifier:  # the grids of the others are coarse enough for equal bits
        assert np.array_equal(parts.coef_, whole.coef_)
    assert np.abs(parts.intercept_ - whole.intercept_).max() < 1e-11
    assert parts.n_features_in_ == 4
    more = (partitions.CURATOR,) if source == "dask" else ()
    assert set(parts.guarantee_.assumes) == {*whole.guarantee_.assumes, *more}
    assert parts.guarantee_.epsilon == whole.guarantee_.epsilon
    assert getattr(parts, "class_weight_", 0) == pytest.approx(getattr(whole, "class_weight_", 0))


@pytest.mark.parametrize("source", ["array", "memory map", "chunks", "dask"])
def test_multiplicities_count_in_parts_too(source, tmp_path, small_blocks):
    X, y = records(120)
    numbers = np.random.default_rng(1).integers(1, 4, 120)
    longhand = erm.ERMClassifier(class_weight="balanced").fit(np.repeat(X, numbers, axis=0), np.repeat(y, numbers))
    data = in_parts(X, y, source, tmp_path)
    if source == "dask":
        numbers = da.from_array(numbers, chunks=250)
    with dask.config.set(scheduler="synchronous"):
        short = erm.ERMClassifier(class_weight="balanced").fit(*data, numbers)
    assert np.abs(short.coef_ - longhand.coef_).max() < 1e-9


def test_an_integer_keys_noise_by_the_records_in_their_blocks(tmp_path, small_blocks):
    """What changes a record changes the noise, which is far larger than what the record does to the minimiser."""
    X, y = records()
    model = erm.ObjectivePerturbationClassifier(0.01, regularization=1.0, random_state=7)
    moved = 2 / len(X)
    first = model.fit(X, y).coef_
    assert np.array_equal(first, model.fit(*in_parts(X, y, "memory map", tmp_path)).coef_)
    X[-1, 0] += 0.5
    assert np.abs(first - model.fit(*in_parts(X, y, "memory map", tmp_path)).coef_).max() > 5 * moved
    X[-1, 0] -= 0.5
    y[-1] = 1 - y[-1]
    assert np.abs(first - model.fit(X, y).coef_).max() > 5 * moved


def test_few_chunks_are_put_together():
    """So that the same integer gives the same noise as one array."""
    X, y = records()
    model = erm.ObjectivePerturbationClassifier(random_state=7)
    assert np.array_equal(model.fit(X, y).coef_, model.fit(*in_parts(X, y, "chunks", None)).coef_)


KINDS = [erm.ObjectivePerturbationClassifier, erm.DPGradientDescentClassifier, erm.PrivateMomentClassifier]


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_learns_no_seed(kind, monkeypatch):
    made, asked, part, each = [], [], partitions._part, partitions._DaskTable._each
    monkeypatch.setattr(partitions, "_part", lambda *arguments: made.append(arguments[-1]) or part(*arguments))
    monkeypatch.setattr(partitions._DaskTable, "_each", lambda t, function: asked.append(function) or each(t, function))
    model = kind(random_state=987654321)
    with dask.config.set(scheduler="synchronous"):
        model.fit(*in_parts(*records(), "dask", None))
    assert made
    assert len(asked) > 2
    assert (987654321).to_bytes(4, "little") in pickle.dumps(kind(random_state=987654321))
    for sent in (*made, *asked):
        assert (987654321).to_bytes(4, "little") not in cloudpickle.dumps(sent)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_an_integer_keys_noise_by_the_parts(kind, small_blocks):
    X, y = records()
    model = kind(0.01, random_state=7)
    first, again = (model.fit(*in_parts(X, y, "chunks", None)).coef_ for _ in range(2))
    assert np.array_equal(first, again)
    X[-1, 0] += 1e-6
    assert np.abs(first - model.fit(*in_parts(X, y, "chunks", None)).coef_).max() > 1e-4


@pytest.mark.parametrize("source", ["memory map", "chunks"])
def test_samples_of_parts_are_those_of_one_array(source, tmp_path, small_blocks, monkeypatch):
    X, y = records()
    model = erm.DPGradientDescentClassifier(n_steps=5, sample_rate=0.2, neighbouring=ADD_REMOVE, n_records=700)
    same_noise(monkeypatch)
    whole = model.fit(X, y).coef_
    same_noise(monkeypatch)
    assert np.array_equal(whole, model.fit(*in_parts(X, y, source, tmp_path)).coef_)


def test_no_worker_draws_a_sample():
    """Refused before a partition is read."""
    X = da.from_delayed(dask.delayed(lambda: 1 / 0)(), (60, 4), float)
    model = erm.DPGradientDescentClassifier(sample_rate=0.2, neighbouring=ADD_REMOVE, n_records=60)
    with pytest.raises(ValueError, match="sample_rate must be None with Dask's records"):
        model.fit(X, da.zeros(60, int))


@pytest.mark.parametrize("source", ["chunks", "dask"])
@pytest.mark.parametrize("fit", ["gradient descent", "private scale", "moments", "moments of three classes"])
def test_other_records_in_parts_give_the_same_model_from_the_same_answers(fit, source, small_blocks):
    """Replay, as in test_replay: the terms of each release are public, and all else is made of its answer."""
    estimator, changes = FITS[fit]
    tape, n_classes = Tape(), len(changes.get("classes", (0, 1)))
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="synchronous"):
        tape.install(patch)
        first = estimator(**changes).fit(*records(n_classes=n_classes))
        tape.replaying = True
        n = 650 if changes.get("neighbouring") is ADD_REMOVE else 700
        second = estimator(**changes).fit(*in_parts(*records(n, n_classes=n_classes, seed=1), source, None))
    assert len(tape.exact) == len(tape.entries)
    assert np.array_equal(first.coef_, second.coef_)
    assert np.array_equal(first.intercept_, second.intercept_)
    assert first.guarantee_.event == second.guarantee_.event


# --- bad input ---

SECRET = 123456.789


def bad(flaw, source):
    X, y = records(60)
    wrong_y = y.copy()
    if flaw == "NaN":
        X[41, 2] = np.nan
    elif flaw == "infinity":
        X[41, 2] = np.inf
    elif flaw == "text":
        X = X.astype(object)
        X[41, 2] = str(SECRET)
    elif flaw == "label":
        wrong_y = y.astype(float)
        wrong_y[41] = SECRET
    elif flaw == "length":
        wrong_y = y[:-1]
    if source == "chunks":
        return erm.Chunks(lambda: [X[:40], X[40:]], 60, 4), wrong_y
    cut = (40, len(wrong_y) - 40)
    return da.from_array(X, chunks=((40, 20), 4)), da.from_array(wrong_y, chunks=(cut,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["chunks", "dask"])
@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        ("NaN", "X must hold finite numbers"),
        ("infinity", "X must hold finite numbers"),
        ("text", "X must hold numbers, a row a record"),
        ("label", r"y must hold labels among classes=\(0, 1\)|Only binary|Unknown label type"),
        ("length", "as many as X has records|cut alike"),
    ],
)
def test_what_is_wrong_is_said_without_a_value(flaw, said, source, kind, small_blocks, caplog):
    with (
        caplog.at_level(logging.DEBUG),
        dask.config.set(scheduler="synchronous"),
        pytest.raises(ValueError, match=said) as error,
    ):
        kind(classes=(0, 1)).fit(*bad(flaw, source))
    assert "123456" not in str(error.value) + caplog.text
    assert error.value.__cause__ is None


def test_a_record_that_the_domain_has_not_is_no_error_of_a_worker(small_blocks, caplog):
    """Its partition says so, in the words of the array's error."""
    domain = Domain([Attribute.real("a", 0, -1, 1), Attribute.one_hot("b", (1, 2), ("left", "right"))])
    X, y = np.tile([0.5, 0.0, 1.0], (60, 1)), np.arange(60) % 2
    model, said = erm.PrivateMomentClassifier(domain=domain), "X must have one 1 and else 0 in the columns of 'b'"
    with caplog.at_level(logging.DEBUG), dask.config.set(scheduler="synchronous"):
        for source in ("array", "chunks", "dask"):
            cut = in_parts(X, y, source, None)
            assert np.isfinite(model.fit(*cut).coef_).all()
        X[41, 1] = SECRET
        for source in ("array", "chunks", "dask"):
            with pytest.raises(ValueError, match=said) as error:
                model.fit(*in_parts(X, y, source, None))
            assert "123456" not in str(error.value) + caplog.text


def test_parts_that_do_not_fit_together_are_refused(small_blocks):
    X, y = records(60)
    fit = erm.ERMClassifier().fit
    with pytest.raises(ValueError, match="must have 61 records in its chunks, got 60"):
        fit(erm.Chunks(lambda: [X], 61, 4), np.r_[y, 0])
    with pytest.raises(ValueError, match="must have 5 columns in every part, got 4"):
        fit(erm.Chunks(lambda: [X], 60, 5), y)
    with pytest.raises(ValueError, match="y must be a Dask array or series"):
        fit(da.from_array(X), y)
    with pytest.raises(ValueError, match="numbers of partitions: X 2, y 1"):
        fit(da.from_array(X, chunks=(30, 4)), da.from_array(y, chunks=60))
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(ValueError, match="multiplicity must be integers of at least 1"),
    ):
        fit(da.from_array(X), da.from_array(y), da.from_array(np.zeros(60, int)))
    with pytest.raises(ValueError, match=r"X must have one or more records|0 sample"):
        fit(erm.Chunks(lambda: [X[:0]], 0, 4), y[:0])
    with pytest.raises(ValueError, match=r"X must have one or more records|0 sample"):
        erm.PrivateMomentClassifier().fit(erm.Chunks(lambda: [X[:0]], 0, 4), y[:0])
    with pytest.raises(ValueError, match="n_features must be an integer"):
        erm.Chunks(list, 3, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_in_a_partition_or_at_all_is_no_error_under_add_remove(kind, small_blocks):
    X, y = records(50)
    model = kind(neighbouring=ADD_REMOVE)
    if hasattr(model, "n_records"):
        model.n_records = 50
    assert np.isfinite(model.fit(erm.Chunks(lambda: [X[:0]], 0, 4), y[:0]).coef_).all()
    with dask.config.set(scheduler="synchronous"):
        for cut in ((50, 0), (0, 50), (0, 0)):
            some = sum(cut)
            chunks = da.from_array(X[:some], chunks=(cut, 4)), da.from_array(y[:some], chunks=(cut,))
            assert np.isfinite(model.fit(*chunks).coef_).all()


def test_bounds_are_refused_before_a_chunk_is_read():
    def read():
        raise AssertionError("read")

    with pytest.raises(ValueError, match="bounds"):
        erm.ObjectivePerturbationClassifier(bounds=[[0.0, 1.0]]).fit(erm.Chunks(read, 10**7, 4), np.zeros(10**7, int))
    with pytest.raises(ValueError, match="domain must have the 4 features of X, got 1"):
        erm.PrivateMomentClassifier(domain=[[0.0, 1.0]]).fit(erm.Chunks(read, 10**7, 4), np.zeros(10**7, int))


# --- sums ---


@pytest.mark.parametrize("factors", [None, np.array([0.5, 2.0, 1.0])])
@pytest.mark.parametrize("constant", [None, 0.7])
def test_rows_that_are_not_written_down_are_those_that_are(factors, constant):
    rng = np.random.default_rng(0)
    rows = risk.Rows(rng.standard_normal((3, 2)), factors, constant)
    Z, beta, weights = rows.written(), rng.standard_normal((rows.width, 2)), rng.random(3)
    assert np.allclose(rows.scores(beta), Z @ beta)
    assert np.allclose(rows.scores(beta[:, 0]), Z @ beta[:, 0])
    assert np.allclose(rows.sums(weights), weights @ Z)
    assert np.allclose(rows.sums(np.stack([weights, -weights])), np.stack([weights, -weights]) @ Z)
    for signs in (1, np.array([1, -1, 1])):
        assert np.allclose(rows.gram(signs * weights), (Z * (signs * weights)[:, None]).T @ Z)


def test_rows_of_extreme_length_are_written_down():
    """Their squares, or those of their factors, are not among the numbers that a computer has."""
    for X, radius in (([[1e200, 1e200], [1.0, 0.0]], 1.0), ([[1e-20, 0.0], [1.0, 0.0]], 1e100)):
        rows = risk.factored_rows(np.array(X), radius=radius, rows="unit")
        assert rows.factors is None
        assert np.linalg.norm(rows.written(), axis=1).max() <= radius * (1 + 1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_products_are_those_with_the_hessian(n_classes, weighted):
    rng = np.random.default_rng(0)
    class_weights = rng.random(n_classes) if weighted else None
    kind, loss = (risk.MarginSums, LOGISTIC) if n_classes == 2 else (risk.SoftmaxSums, erm.Softmax(3))
    sums = kind(loss, class_weights)
    codes, each = rng.integers(0, n_classes, 30), rng.random(30) if weighted else None
    block = risk.Block(risk.Rows(rng.standard_normal((30, 4)), None, 0.5), codes, each)
    beta, vector = rng.standard_normal((2, 5 * (n_classes - 1)))
    _, bends = sums.pull(beta, block)
    hessian = sums.hessian(beta, block)
    assert np.allclose(hessian, sums.hessian(beta, block, bends))
    assert np.allclose(sums.product(beta, vector, block), hessian @ vector)
    assert np.allclose(sums.product(beta, vector, block, bends), hessian @ vector)


def test_a_large_array_is_not_copied():
    """What a fit of 80 MB takes beside X stays below 0.3 times X."""
    X, y = records(200_000, 50)
    y = (y > 0).astype(int)
    erm.ObjectivePerturbationClassifier(radius=4.0).fit(X[:1000], y[:1000])  # imports
    tracemalloc.start()
    erm.ObjectivePerturbationClassifier(radius=4.0).fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.3 * X.nbytes


# --- sources ---


def test_a_parquet_file_is_read_in_chunks(tmp_path, small_blocks, monkeypatch):
    pytest.importorskip("pyarrow")
    X, y = records(500)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(outcome=y)[["a", "outcome", "b", "c", "d"]]
    frame.to_parquet(tmp_path / "records.parquet", row_group_size=90)
    same_noise(monkeypatch)
    whole = erm.ObjectivePerturbationClassifier().fit(X, y)
    same_noise(monkeypatch)
    features, labels = erm.read_parquet(tmp_path / "records.parquet", label="outcome")
    assert features.shape == (500, 4)
    parts = erm.ObjectivePerturbationClassifier().fit(features, labels)
    assert np.abs(parts.coef_ - whole.coef_).max() < 1e-11
    with pytest.raises(ValueError, match="label must be one of the file's columns, got 'y'"):
        erm.read_parquet(tmp_path / "records.parquet", label="y")


def test_data_frames_of_dask_are_read_partition_by_partition(monkeypatch):
    pytest.importorskip("pyarrow")
    import dask.dataframe as dd

    X, y = records(500)
    table = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")).assign(outcome=y), npartitions=3)
    same_noise(monkeypatch)
    whole = erm.ObjectivePerturbationClassifier().fit(X, y)
    same_noise(monkeypatch)
    with dask.config.set(scheduler="synchronous"):
        parts = erm.ObjectivePerturbationClassifier().fit(table.drop(columns="outcome"), table["outcome"])
    assert np.abs(parts.coef_ - whole.coef_).max() < 1e-11
    assert partitions.CURATOR in parts.guarantee_.assumes


def test_two_workers_add_up_gradients_and_hessians(tmp_path, monkeypatch):
    """Records stay on both workers, each adds up what it has, and the release is that of one array."""
    narrow, y = records(5000)  # so many that a sample comes first
    wide = np.random.default_rng(1).standard_normal((5000, 130))  # so wide that no Hessian is computed
    with ExitStack() as stack:
        client = stack.enter_context(Client(Cluster(tmp_path, stack).address))
        client.wait_for_workers(2, timeout=60)
        for X, model in (
            # The first approximations are of other rows, so both have to end close to the minimiser.
            (narrow, erm.ObjectivePerturbationClassifier(class_weight="private", tol=1e-7)),
            (wide, erm.ObjectivePerturbationClassifier(radius=8.0, tol=1e-7)),
            (narrow, erm.DPGradientDescentClassifier(n_steps=3, bounds=BOX, scale="private")),
            (narrow, erm.PrivateMomentClassifier()),
        ):
            same_noise(monkeypatch)
            whole = clone(model).fit(X, y)
            same_noise(monkeypatch)
            cut = da.from_array(X, chunks=(700, -1)), da.from_array(y, chunks=700)
            parts = clone(model).fit(*cut)
            assert np.abs(parts.coef_ - whole.coef_).max() < 1e-11
            assert partitions.CURATOR in parts.guarantee_.assumes
        tasks = client.run(lambda dask_worker: dask_worker.state.executed_count)
    assert len(tasks) == 2
    assert min(tasks.values()) > 50
