"""What private synthesisers refuse, before the records are counted once; and what they must not refuse."""

import numpy as np
import pytest

from helpers.synthesis import AIM, GEM, MST, Attribute, BalancedSynthesizer, Domain, PrivBayes
from helpers.synthesis.curator import Curator

SMALL = {"n_components": 4, "max_iters": 2}
DOMAIN = Domain(
    [Attribute.real("mass", 0, 0.0, 1.0, n_bins=3), Attribute.categorical("kind", 1, (1, 2, 3))], basis="a test"
)
rng = np.random.default_rng(0)
X = np.column_stack([rng.uniform(size=60), rng.integers(1, 4, 60)])
y = (rng.uniform(size=60) < 0.3).astype(int)


def gem(**parameters):
    return GEM(**{"domain": DOMAIN, "T": 2} | SMALL | parameters)


def aim(**parameters):
    return AIM(**{"domain": DOMAIN} | SMALL | parameters)


def priv_bayes(**parameters):
    return PrivBayes(**{"domain": DOMAIN} | parameters)


def mst(**parameters):
    return MST(**{"domain": DOMAIN} | parameters)


def balanced(**parameters):
    return BalancedSynthesizer(gem(**parameters), n_samples=20)


EVERYONE = pytest.mark.parametrize("make", [gem, aim, mst, priv_bayes, balanced])


@pytest.fixture
def asked(monkeypatch):
    """How often a curator was made: nothing is counted and nothing spent without one."""
    made, original = [], Curator.__init__
    monkeypatch.setattr(Curator, "__init__", lambda self, *args: (made.append(1), original(self, *args))[1])
    return made


def with_one(values, row, column, value):
    changed = values.copy()
    changed[row, column] = value
    return changed


@EVERYONE
@pytest.mark.parametrize(
    ("parameters", "records", "labels", "message"),
    [
        ({"epsilon": 0}, X, y, r"epsilon must be a finite number in \(0, inf\), got 0"),
        ({"epsilon": -1.0}, X, y, r"epsilon must be a finite number in \(0, inf\), got -1\.0"),
        ({"epsilon": float("nan")}, X, y, "epsilon must be a finite number"),
        ({}, with_one(X, 5, 1, 7.0), y, r"X must hold categories of 'kind' among \(1, 2, 3\), found others"),
        ({}, with_one(X, 5, 0, np.nan), y, "X contains NaN"),
        ({"domain": None}, with_one(X, 5, 0, np.nan), y, "X contains NaN"),
        ({}, with_one(X, 5, 0, np.inf), y, "X contains infinity"),
        ({}, X, np.where(y == 1, 2, 0), r"y must hold labels among classes=\(0, 1\), found others"),
        ({}, X[:, :1], y, "X must have 2 columns, as the domain"),
        ({}, X[:0], y[:0], "minimum of 1 is required"),
    ],
)
def test_bad_input_is_refused_before_anything_is_spent(asked, make, parameters, records, labels, message):
    model = make(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(records, labels)
    assert not asked
    assert not hasattr(model, "guarantee_")


@pytest.mark.parametrize("make", [gem, aim, balanced])
def test_more_cells_than_memory_allows_are_refused_with_their_number(asked, make):
    wide = Domain.from_bounds([[0, 1]] * 3, n_bins=2000, basis="a test")
    with pytest.raises(ValueError, match=r"k must leave marginals of at most 4,194,304 cells, got one of 8,000,000"):
        make(domain=wide, k=3).fit(np.zeros((4, 3)), [0, 1, 0, 1])
    assert not asked


@EVERYONE
@pytest.mark.parametrize("label", [0, 1])
def test_records_of_one_class_are_no_error_because_that_would_tell(make, label):
    """Which labels occur is private; both are drawn, as the public set of labels says."""
    model = make(random_state=0).fit(X, np.full(60, label))
    if isinstance(model, BalancedSynthesizer):
        assert np.bincount(model.sample(random_state=0)[1]).tolist() == [10, 10]
    else:
        assert (model.sample(5, label=1 - label, random_state=0)[1] == 1 - label).all()
    assert model.guarantee_.epsilon <= 1.0
