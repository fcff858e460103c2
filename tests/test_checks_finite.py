"""Brute force over finite mechanisms agrees with what is known in closed form."""

import itertools
import math

import numpy as np
import pytest

from checks.finite import hockey_stick, neighbouring_histograms, renyi_divergence
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, optimal_delta


def test_the_worst_event_is_the_hockey_stick():
    p, q = np.random.default_rng(0).dirichlet([0.5] * 4, size=(2, 50))
    events = np.array(list(itertools.product([0, 1], repeat=4)))
    for epsilon in (0.0, 0.7):
        worst = ((p - math.exp(epsilon) * q) @ events.T).max(axis=1)
        assert hockey_stick(p, q, epsilon) == pytest.approx(worst, abs=1e-12)


def test_randomised_response_has_its_known_curve():
    grid = np.array([0.2, 0.6, math.log(3)])
    found = hockey_stick([0.75, 0.25], [0.25, 0.75], grid)
    assert found == pytest.approx([optimal_delta(e, math.log(3), 1) for e in grid], abs=1e-12)


def test_renyi_divergence_by_direct_sums():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    for order in (1.5, 2.0, 7.0):
        direct = math.log(np.sum(p**order * q ** (1 - order))) / (order - 1)
        assert renyi_divergence(np.log(p), np.log(q), order) == pytest.approx(direct, rel=1e-12)


@pytest.mark.parametrize(("n", "k"), [(1, 2), (3, 3), (4, 2)])
def test_every_neighbour_occurs(n, k):
    """Counted by hand: binom(n + k - 1, k - 1) data sets; k ways to add; k for each value that occurs to replace."""
    here, there = neighbouring_histograms(n, k, ADD_REMOVE)
    assert len(here) == k * math.comb(n + k - 1, k - 1)
    assert (np.abs(there - here).sum(axis=1) == 1).all()
    assert (there.sum(axis=1) == n + 1).all()
    here, there = neighbouring_histograms(n, k, REPLACE_ONE)
    assert len(here) == k * k * math.comb(n + k - 2, k - 1)
    assert (there >= 0).all()
    assert (there.sum(axis=1) == n).all()
    assert set(np.abs(there - here).sum(axis=1)) == {0, 2}
