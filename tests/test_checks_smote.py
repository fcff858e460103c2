"""SMOTE's guarantees as printed: Table 2, their inverse, and where they are false."""

import math

import numpy as np
import pytest

from checks.smote import VERSIONS, printed_amplification, printed_inner_epsilon, printed_pair
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
    at = printed_amplification(1.0, delta=1e-8, neighbouring=ADD_REMOVE, **sizes)
    assert at.epsilon == pytest.approx(printed_pair(1.0, gamma, **sizes).epsilon)


def test_table_2_and_the_printed_pairs():
    sizes = {"d": 25, "k": 5, "n_minority": 5000, "n_new": 5000}
    assert printed_pair(1.0, 0.0, **sizes).epsilon == pytest.approx(220.26, abs=5e-3)
    assert printed_pair(1.0, 0.0, **sizes).delta > 1
    assert printed_pair(1.0, 0.0, version="printed-proof", **sizes).epsilon == pytest.approx(1101.31, abs=5e-3)
    assert printed_pair(1.0, 6.549, **sizes).delta == pytest.approx(1e-8, rel=0.5)
    claimed = sizes | {"neighbouring": ADD_REMOVE}
    printed = {version: printed_amplification(1.0, version=version, delta=1e-8, **claimed) for version in VERSIONS}
    assert printed["printed-icml"].epsilon == printed["printed-arxiv"].epsilon == pytest.approx(1662.7, abs=0.05)
    assert printed["printed-proof"].epsilon == pytest.approx(8313.6, abs=0.05)
    assert printed_amplification(1.0, version="printed-icml", **claimed).epsilon == pytest.approx(1102.3, abs=0.05)
    assert printed_amplification(1.0, version="printed-proof", **claimed).epsilon == pytest.approx(5507.5, abs=0.05)
    assert "false" in printed["printed-proof"].assumes[0]
    for version in VERSIONS:
        at = printed_amplification(0.3, version=version, delta=1e-6, **claimed)
        assert printed_inner_epsilon(at.epsilon, version=version, delta=1e-6, **sizes) == pytest.approx(0.3, rel=1e-6)


def test_printed_pure_guarantee_is_violated():
    """In low dimension the printed epsilon is below that of a real pair of data sets and a real learner."""
    sizes = {"d": 1, "k": 3, "n_minority": 20, "n_new": 40, "neighbouring": ADD_REMOVE}
    printed = printed_amplification(0.1, **sizes).epsilon
    assert printed < amplification(0.1, **sizes).epsilon  # which the tests of SMOTE attain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "corrected"}, "version must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"n_new": 0, "delta": 1e-6}, "n_new must be positive"),
        ({"k": 20}, r"k must be an integer in \[1, 19\], got 20"),
        ({"d": 0}, "dimension must be"),
    ],
)
def test_bad_parameters(change, message):
    good = {"d": 2, "k": 5, "n_minority": 20, "n_new": 10}
    with pytest.raises(ValueError, match=message):
        printed_amplification(1.0, neighbouring=ADD_REMOVE, **(good | change))
    with pytest.raises(ValueError, match=message):
        printed_inner_epsilon(1.0, **(good | change))
    with pytest.raises(ValueError, match="gamma must be"):
        printed_pair(1.0, -0.1, **good)
