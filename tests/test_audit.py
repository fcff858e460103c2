"""Audits: exact coverage by enumeration, power at large samples, and the hold-out of the event."""

import math

import numpy as np
import pytest
from scipy.stats import beta, binom

from helpers.privacy import gaussian_delta
from helpers.privacy.audit import _clopper_pearson, audit_mechanism, epsilon_lower_bound


def miss_probability(p, q, trials, truth, *, delta=0.0, confidence=0.9):
    """P(bound > truth) for independent Bin(trials, p) and Bin(trials, q) hits, by summing over all outcomes."""
    counts = np.arange(trials + 1)
    outcome = np.outer(binom.pmf(counts, trials, p), binom.pmf(counts, trials, q))
    wrong = [
        [
            epsilon_lower_bound(int(a), trials, int(b), trials, delta=delta, confidence=confidence) > truth
            for b in counts
        ]
        for a in counts
    ]
    return float(outcome[np.array(wrong)].sum())


def test_clopper_pearson_against_the_beta_quantiles_and_the_binomial_tail():
    hits = np.array([0, 1, 7, 19, 20])
    low, high = _clopper_pearson(hits, 20, 0.025)
    assert (low[0], high[-1]) == (0.0, 1.0)
    assert np.allclose(low[1:], beta.ppf(0.025, hits[1:], 21 - hits[1:]))
    assert np.allclose(high[:-1], beta.ppf(0.975, hits[:-1] + 1, 20 - hits[:-1]))
    assert np.allclose(binom.sf(hits[1:] - 1, 20, low[1:]), 0.025)
    assert np.allclose(binom.cdf(hits[:-1], 20, high[:-1]), 0.025)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 3.0])
def test_exact_coverage_on_randomised_response(epsilon):
    p = 1 / (1 + math.exp(-epsilon))
    assert miss_probability(p, 1 - p, 40, epsilon) <= 0.1


@pytest.mark.parametrize(("p", "q"), [(0.02, 0.01), (0.5, 0.25), (0.99, 0.97), (0.3, 0.9), (1.0, 0.2)])
def test_exact_coverage_on_events_of_any_kind(p, q):
    """The true epsilon of a one-bit mechanism is the largest of the four log ratios."""
    with np.errstate(divide="ignore"):
        truth = float(np.max(np.abs(np.log([p / q, (1 - p) / (1 - q)]))))
    assert miss_probability(p, q, 40, truth) <= 0.1


def test_exact_coverage_with_delta():
    """Tells with probability 0.3 on which data set it ran, otherwise nothing: (0, 0.3)-DP."""
    assert miss_probability(0.3, 0.0, 40, 0.0, delta=0.3) <= 0.1
    assert miss_probability(0.3, 0.0, 40, 0.0, delta=0.0) > 0.9


def test_the_bound_is_not_vacuous():
    """Without the correction for four bounds it would be wrong too often: the coverage tests can fail."""
    p = 1 / (1 + math.exp(-1.0))
    counts = np.arange(41)
    outcome = np.outer(binom.pmf(counts, 40, p), binom.pmf(counts, 40, 1 - p))
    with np.errstate(divide="ignore", invalid="ignore"):
        naive = np.log(counts[:, None] / 40) - np.log(counts[None, :] / 40)
    assert outcome[naive > 1.0].sum() > 0.1


def test_bound_by_hand():
    """Four bounds share the error of 0.1."""
    p_low, q_high = beta.ppf(0.025, 90, 11), beta.ppf(0.975, 21, 100)
    assert epsilon_lower_bound(90, 100, 20, 120, confidence=0.9) == pytest.approx(
        max(math.log(p_low / q_high), math.log((1 - q_high) / (1 - p_low)))
    )


def test_direction_and_complement_do_not_matter():
    bound = epsilon_lower_bound(90, 100, 20, 120)
    assert bound > 0
    assert epsilon_lower_bound(20, 120, 90, 100) == pytest.approx(bound)
    assert epsilon_lower_bound(10, 100, 100, 120) == pytest.approx(bound)
    assert epsilon_lower_bound(100, 120, 10, 100) == pytest.approx(bound)


def test_the_complement_can_be_what_shows_it():
    """0.999 against 0.9: the ratio of the complements, 100, is the larger one."""
    assert epsilon_lower_bound(99_900, 100_000, 90_000, 100_000) == pytest.approx(math.log(100), abs=0.3)


def test_nothing_shown_is_zero():
    assert epsilon_lower_bound(50, 100, 50, 100) == 0.0
    assert epsilon_lower_bound(0, 10, 0, 10) == 0.0
    assert epsilon_lower_bound(10_000, 10_000, 0, 10_000, delta=0.9999) == 0.0


def test_more_trials_and_less_confidence_raise_the_bound():
    bounds = [epsilon_lower_bound(73 * k, 100 * k, 27 * k, 100 * k) for k in (1, 10, 100, 10_000)]
    assert bounds == sorted(bounds)
    assert math.log(73 / 27) - 0.01 < bounds[-1] < math.log(73 / 27)
    assert epsilon_lower_bound(73, 100, 27, 100, confidence=0.5) > bounds[0]


def test_delta_lowers_the_bound_by_what_the_definition_says():
    found = epsilon_lower_bound(600_000, 1_000_000, 200_000, 1_000_000, delta=0.1)
    assert found == pytest.approx(math.log((0.6 - 0.1) / 0.2), abs=0.01)
    assert found < math.log(0.5 / 0.2)


def test_laplace_audit_is_close_and_covers():
    """150 audits at 90 % confidence: at most Bin(150, 0.1) of them may exceed the truth."""
    rng = np.random.default_rng(7)
    wrong = sum(
        audit_mechanism(rng.laplace(1, 1, 400), rng.laplace(0, 1, 400), confidence=0.9).epsilon > 1.0
        for _ in range(150)
    )
    assert wrong <= binom.isf(1e-6, 150, 0.1)
    audit = audit_mechanism(rng.laplace(1, 1, 400_000), rng.laplace(0, 1, 400_000))
    assert 0.96 < audit.epsilon < 1.0
    assert (audit.trials, audit.neighbour_trials) == (200_000, 200_000)


def test_gaussian_audit_with_delta():
    """mu = 1: at delta = gaussian_delta(1, 1) the truth is 1; without delta the same samples show more."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(1, 1, 400_000), rng.normal(0, 1, 400_000)
    delta = gaussian_delta(1.0, 1.0)
    assert 0.8 < audit_mechanism(a, b, delta=delta).epsilon < 1.0
    assert audit_mechanism(a, b).epsilon > 2.0


def test_audit_refutes_a_false_claim():
    """Noise of half the claimed scale: claimed 1, true 2."""
    rng = np.random.default_rng(5)
    audit = audit_mechanism(rng.laplace(1, 0.5, 20_000), rng.laplace(0, 0.5, 20_000), confidence=0.999)
    assert 1.0 < audit.epsilon <= 2.0


def test_event_is_chosen_on_the_first_half_only():
    rng = np.random.default_rng(0)
    a, b = rng.laplace(1, 1, 1000), rng.laplace(0, 1, 1000)
    audit = audit_mechanism(a, b)
    swapped = audit_mechanism(np.concatenate([a[:500], b[500:]]), np.concatenate([b[:500], a[500:]]))
    assert swapped.threshold == audit.threshold
    assert (swapped.hits, swapped.neighbour_hits) == (audit.neighbour_hits, audit.hits)
    assert audit.hits == np.sum(a[500:] >= audit.threshold)


def test_identical_and_discrete_scores():
    assert audit_mechanism(np.zeros(10), np.zeros(10)).epsilon == 0.0
    rng = np.random.default_rng(0)
    bits = audit_mechanism(rng.random(100_000) < 0.75, rng.random(100_000) < 0.25)
    assert bits.threshold == 1.0
    assert 1.05 < bits.epsilon < math.log(3)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((11, 10, 1, 10), {}, "hits must be an integer"),
        ((1, 10, -1, 10), {}, "neighbour_hits must be an integer"),
        ((0, 0, 0, 10), {}, "trials must be an integer"),
        ((1.5, 10, 1, 10), {}, "hits must be an integer"),
        ((1, 10, 1, 10), {"delta": 1.0}, "delta must be a finite number"),
        ((1, 10, 1, 10), {"confidence": 1.0}, "confidence must be a finite number"),
    ],
)
def test_bad_counts_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        epsilon_lower_bound(*arguments, **options)


@pytest.mark.parametrize("sample", [[1.0], [[1.0, 2.0]], [1.0, math.nan, 2.0]])
def test_bad_samples_are_refused(sample):
    with pytest.raises(ValueError, match="neighbour_sample must be a vector"):
        audit_mechanism([1.0, 2.0], sample)
