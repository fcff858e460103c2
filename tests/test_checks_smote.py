"""SMOTE's guarantees as printed: Table 2, their inverse, and where they are false."""

import math

import numpy as np
import pytest

from checks.smote import printed_amplification, printed_inner_epsilon, printed_pair
from helpers.privacy import ADD_REMOVE
from helpers.resampling.smote import amplification


def solved_gamma(epsilon, delta, trials, k):
    """Root of gamma^2 - v gamma - 2 v, by numpy."""
    v = k * (epsilon - math.log(delta) / trials)
    return max(np.roots([1.0, -v, -2 * v]).real)


def test_gamma_of_the_notes():
    assert 0.1 * 3333 * 0.2 * (1 + solved_gamma(0.1, 1e-8, 3333, 5)) == pytest.approx(154.9, abs=0.1)
    sizes = {"d": 25, "k": 5, "n_minority": 5000, "n_new": 5000}
    gamma = solved_gamma(1.0, 1e-8, 5 * 2 ** (0.4042 * 25), 5)
    assert printed_pair(1.0, gamma, **sizes).delta == pytest.approx(1e-8, rel=1e-6)
    at = printed_pair(1.0, gamma, **sizes).epsilon
    assert printed_inner_epsilon(at, delta=1e-8, **sizes) == pytest.approx(1.0, rel=1e-6)


def test_table_2_and_the_printed_pairs():
    sizes = {"d": 25, "k": 5, "n_minority": 5000, "n_new": 5000}
    assert printed_pair(1.0, 0.0, **sizes).epsilon == pytest.approx(220.26, abs=5e-3)
    assert printed_pair(1.0, 0.0, **sizes).delta > 1
    assert printed_pair(1.0, 6.549, **sizes).delta == pytest.approx(1e-8, rel=0.5)
    printed = printed_amplification(1.0, neighbouring=ADD_REMOVE, **sizes)
    assert printed.epsilon == pytest.approx(1102.3, abs=0.05)
    assert "false" in printed.assumes[0]


def test_printed_pure_guarantee_is_violated():
    """In low dimension the printed epsilon is below that of a real pair of data sets and a real learner."""
    sizes = {"d": 1, "k": 3, "n_minority": 20, "n_new": 40, "neighbouring": ADD_REMOVE}
    printed = printed_amplification(0.1, **sizes).epsilon
    assert printed < amplification(0.1, **sizes).epsilon  # which the tests of SMOTE attain
