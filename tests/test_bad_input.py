"""Bad input to the private classifiers of a practitioner: an error from public numbers, or defined behaviour.

What depends on the records' values is never an error that another value of a record would not raise: see the tests of
`dpbook fit` (tests/test_published.py) for cells that no schema foresees.
"""

import warnings

import numpy as np
import pytest

from helpers.data import Attribute, Domain
from helpers.erm import ObjectivePerturbationClassifier, OutputPerturbationClassifier
from helpers.erm.moments import PrivateMomentClassifier

MODELS = {
    "moments": PrivateMomentClassifier,
    "objective": ObjectivePerturbationClassifier,
    "output": OutputPerturbationClassifier,
}
N = 400
X = np.random.default_rng(0).uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0.5).astype(int)


@pytest.fixture(params=MODELS)
def make(request):
    return lambda **options: MODELS[request.param](epsilon=1.0, **options)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_refused_without_a_level_for_it(make, value):
    broken = X.copy()
    broken[3, 1] = value
    with pytest.raises(ValueError, match="Input X contains"):
        make().fit(broken, Y)


@pytest.mark.parametrize("value", ["secret", 12345 + 1j])
def test_a_cell_that_holds_no_number_is_refused_and_not_repeated(make, value):
    broken = X.astype(complex if isinstance(value, complex) else object)
    broken[3, 1] = value
    with pytest.raises(ValueError, match=r"must hold (real )?numbers") as refused:
        make().fit(broken, Y)
    assert not any(part in str(refused.value) for part in ("secret", "12345"))
    assert refused.value.__context__ is None


def test_a_label_that_is_not_public_is_refused_and_not_repeated(make):
    with pytest.raises(ValueError, match="y must hold labels among classes") as refused:
        make(classes=("no", "yes")).fit(X, np.where(Y, "secret", "no"))
    assert "secret" not in str(refused.value)


def test_a_level_outside_the_schema_is_refused_and_not_repeated():
    domain = Domain([Attribute.real("a", 0, -1, 1), Attribute.categorical("b", 1, [0, 1, 2])])
    broken = np.column_stack([X[:, 0], np.full(N, 7)])
    with pytest.raises(ValueError, match="X must hold categories of 'b' among") as refused:
        PrivateMomentClassifier(domain=domain).fit(broken, Y)
    assert "7" not in str(refused.value)


def test_a_constant_column_is_learned_from_like_any_other(make):
    constant = X.copy()
    constant[:, 1] = 0.3
    model = make().fit(constant, Y)
    assert np.isfinite(model.predict_proba(constant)).all()
    assert model.guarantee_.epsilon == 1.0
    bounds = [[-1, 1], [0.3, 0.3], [-1, 1]]  # constant by its public bounds as well
    same = make(**({"domain": bounds} if isinstance(model, PrivateMomentClassifier) else {"bounds": bounds}))
    assert np.isfinite(same.fit(constant, Y).predict_proba(constant)).all()


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_only_is_fitted_as_a_data_set_like_others(make, label):
    model = make().fit(X, np.full(N, label))
    assert model.classes_.tolist() == [0, 1]
    assert np.isfinite(model.predict_proba(X)).all()
    assert set(model.predict(X)) <= {0, 1}


@pytest.mark.parametrize(("shape", "words"), [((N, 0), r"0 feature\(s\)"), ((0, 3), r"0 sample\(s\)")])
def test_no_features_or_no_records_are_refused(make, shape, words):
    with pytest.raises(ValueError, match=words):
        make().fit(np.zeros(shape), np.zeros(shape[0]))


@pytest.mark.parametrize("share", [0, 1, -0.1, np.nan, "half"])
def test_a_share_that_leaves_nothing_is_refused(make, share):
    name = "recall" if isinstance(make(), PrivateMomentClassifier) else "counts_share"
    with pytest.raises(ValueError, match=rf"{name} must be a finite number in \(0, 1\)"):
        make(**{name: share}).fit(X, Y)


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        (lambda: Attribute.real("a", 0, 0, 1, n_bins=10**9), r"n_bins must be an integer in \[1, 1000000\]"),
        (lambda: Attribute.integer("a", 0, 0, 10**12, n_bins=10**9), r"n_bins must be an integer in \[1, 1000000\]"),
        (
            lambda: Domain([Attribute.one_hot("a", range(10**5), list(map(str, range(10**5))))], classes=range(1001)),
            "attributes must have at most 100,000,000 codes in all, times the number of classes, got 100,100,000",
        ),
        (
            lambda: PrivateMomentClassifier(domain=Domain.from_bounds([[0, 1]] * 1334)).fit(np.zeros((9, 1334)), Y[:9]),
            "domain must give 1 to 4000 features .*, got 4002",
        ),
    ],
)
def test_more_cells_than_memory_holds_are_refused_by_their_public_number(domain, words):
    with pytest.raises(ValueError, match=words):
        domain()


def test_no_warning_speaks_of_the_records(make):
    constant = np.zeros((N, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().fit(constant, np.zeros(N, dtype=int))
