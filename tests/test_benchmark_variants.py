"""What was tried beside the moment classifier: budgets that are kept, and scores that are numbers."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, ZCDpEvent

from benchmarks import accounts, classifiers, literature, trees, variants
from helpers import data
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, event_delta, event_epsilon

RELATIONS = [ADD_REMOVE, REPLACE_ONE]


@pytest.fixture(scope="module")
def split():
    return next(classifiers.splits(data.load("gaussian_mixture"), 1))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", variants.VARIANTS)
def test_every_variant_scores_the_test_records(name, relation, split):
    found = classifiers.measured(variants.VARIANTS[name](split, 1.0, relation), split.y_test)
    assert all(math.isfinite(value) for value in found.values())


@pytest.mark.parametrize("none_rare", [True, False])
def test_no_pair_of_records_moves_an_account_further_than_it_may(none_rare):
    """The five cases of replace-one and the two of add/remove, for rows of any length and angle."""
    p, m, r, a, b = accounts.precisions(none_rare, REPLACE_ONE)
    s, t, cosine = np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 6), np.linspace(-1, 1, 401))
    u = s * t * cosine
    second, same = b * (s**4 + t**4 - 2 * u**2), s**2 + t**2 - 2 * u
    moved = [
        r * same + second,
        2 * p + r * (s**2 + t**2) + second,
        2 * p + r * s**2 + a * t**2 + m / 2 + second,
        2 * p + m + a * (s**2 + t**2) + second,
        m + a * same + second,
    ]
    assert max(case.max() for case in moved) == pytest.approx(1)
    added = accounts.precisions(none_rare, ADD_REMOVE)
    assert added.size + added.rare + added.second == pytest.approx(1)
    assert added.size + added.marginals + added.common + added.second == pytest.approx(1)


@pytest.mark.parametrize("relation", RELATIONS)
def test_an_account_for_each_class_is_within_the_budget(relation, split):
    model, _ = variants.fitted(split, 1.0, relation, accounts.AccountsByClass)
    assert event_delta(model.guarantee_.event, 1.0, relation) <= split.delta * 1.01


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_tree_of_prefix_sums_counts_a_record_once_a_level(relation, split, monkeypatch):
    """All that is drawn for the sums has the standard deviation of a record's path from the root."""
    drawn = []

    class Kept:
        def __init__(self, rng):
            self.rng = rng

        def normal(self, loc, scale, size):
            drawn.append(scale)
            return np.zeros(size)

        def __getattr__(self, name):
            return getattr(self.rng, name)

    real = literature.first_release
    monkeypatch.setattr(literature, "first_release", lambda *args: (r := real(*args))._replace(rng=Kept(r.rng)))
    literature.following_the_leader(16, 2.0)(split, 1.0, relation)
    moved = 2 if relation is REPLACE_ONE else 1
    mu = real(split, 1.0, relation, "leader").mu
    assert set(drawn) == {moved * math.sqrt(5) / mu}
    assert len(drawn) == 16  # one a node that a prefix uses


@pytest.mark.parametrize(("count", "depth"), [(1, 1), (4, 2), (16, 4)])
def test_learnt_trees_spend_their_budget_and_no_more(count, depth):
    """By the accountant of Rényi privacy, which knows nothing of the shares."""
    mu = trees.concentrated_mu(1.0, 1e-6)
    choice, leaf = trees.shared_out(mu * math.sqrt(0.85), count, depth)
    releases = [GaussianDpEvent(1 / (mu * math.sqrt(0.15)))]
    releases += count * [GaussianDpEvent(1 / leaf), *depth * [ZCDpEvent(choice**2 / 8)]]
    spent = event_epsilon(ComposedDpEvent(releases), 1e-6, ADD_REMOVE, method="rdp")
    assert 0.8 < spent < 1.0


def test_no_record_changes_the_gain_of_a_split_further_than_it_may():
    """One more in any node and bin, in all directions that its residual can have."""
    rng, moved = np.random.default_rng(0), []
    for _ in range(100):
        n = int(rng.integers(0, 60))
        codes, nodes, residuals = rng.integers(0, 3, n), rng.integers(0, 2, n), rng.choice([-1.0, 1.0], n) ** (n % 2)
        before = trees.gains_of_splits(codes, 3, residuals, nodes, 2)
        for code, node, residual in itertools.product(range(3), range(2), (-1.0, 1.0)):
            more = np.append(codes, code), 3, np.append(residuals, residual), np.append(nodes, node), 2
            moved.append(abs(trees.gains_of_splits(*more) - before))
            assert (moved[-1] > 0).any(axis=1).sum() <= 1
    assert 2.5 < np.max(moved) <= trees.GAIN
