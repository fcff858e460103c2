"""What counts of an event on two neighbouring data sets, or samples of a score, prove about the privacy loss.

A mechanism exceeds each bound with the stated confidence, by exact binomial intervals. A bound above the claimed
epsilon refutes the claim; a small bound proves nothing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv
from scipy.stats import norm

from helpers.validation import check_integer, check_real

# Thresholds that are tried from either end of the sample, at most.
_TAIL_THRESHOLDS = 256
# Thresholds are compared by bounds whose error is 1 % of the audit's: at the error itself, an event with few hits in a
# tail, whose ratio is large by chance, would often be chosen.
CHOOSING = 0.01


def epsilon_lower_bound(
    hits: int,
    trials: int,
    neighbour_hits: int,
    neighbour_trials: int,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> float:
    """Lower confidence bound on epsilon from counts of one event that was fixed beforehand.

    Four one-sided Clopper-Pearson bounds at level (1 - confidence)/4, one above and one below for either data
    set, hold jointly with probability at least `confidence`. Then so do all four inequalities P(S) <= e^eps P'(S)
    + delta of the definition: the event and its complement, in both directions. The largest epsilon that they
    force is returned.

    The event must not be chosen from these counts: the best of many events on the same sample is no confidence
    bound. Choose on other runs, as `audit_mechanism` does.

    Parameters
    ----------
    hits, trials : int
        Occurrences of the event in independent runs on one data set.
    neighbour_hits, neighbour_trials : int
        The same on a neighbour (the relation is the one under which the two data sets are neighbours).
    delta : float
        The claim's delta, in [0, 1).
    confidence : float
        In (0, 1).

    Returns
    -------
    float
        0 if nothing is shown.

    Raises
    ------
    ValueError
        A number out of range.

    Source: Clopper and Pearson 1934, applied to the definition of (epsilon, delta)-DP.

    >>> round(epsilon_lower_bound(7300, 10_000, 2700, 10_000), 2)
    0.94
    """
    trials = check_integer("trials", trials, low=1)
    neighbour_trials = check_integer("neighbour_trials", neighbour_trials, low=1)
    hits = check_integer("hits", hits, low=0, high=trials)
    neighbour_hits = check_integer("neighbour_hits", neighbour_hits, low=0, high=neighbour_trials)
    delta = check_real("delta", delta, low=0, high=1, inclusive="low")
    confidence = check_real("confidence", confidence, low=0, high=1, inclusive="neither")
    return float(lower_bound(hits, trials, neighbour_hits, neighbour_trials, delta, confidence))


class Audit(NamedTuple):
    """Outcome of `audit_mechanism`.

    Attributes
    ----------
    epsilon : float
        Lower confidence bound.
    threshold : float
        The event was "score >= threshold".
    hits, trials, neighbour_hits, neighbour_trials : int
        Counts on the evaluation halves.
    """

    epsilon: float
    threshold: float
    hits: int
    trials: int
    neighbour_hits: int
    neighbour_trials: int


def audit_mechanism(
    sample: ArrayLike, neighbour_sample: ArrayLike, *, delta: float = 0.0, confidence: float = 0.95
) -> Audit:
    """Lower confidence bound on epsilon from scores of independent runs on two neighbouring data sets.

    The first half of each sample chooses the event "score >= threshold"; the second half, not seen until then,
    gives the bound.

    Parameters
    ----------
    sample, neighbour_sample : array (n,), (m,)
        One finite real score a run, in order of the runs (not sorted), at least two each.
    delta, confidence : float
        As in `epsilon_lower_bound`.

    Raises
    ------
    ValueError
        A sample is not a vector of at least two finite numbers; a number out of range.

    Source: sample splitting before `epsilon_lower_bound`.

    >>> rng = np.random.default_rng(0)
    >>> audit = audit_mechanism(rng.laplace(1, 1, 20_000), rng.laplace(0, 1, 20_000))  # true epsilon: 1
    >>> round(audit.epsilon, 2)
    0.96
    """
    delta = check_real("delta", delta, low=0, high=1, inclusive="low")
    confidence = check_real("confidence", confidence, low=0, high=1, inclusive="neither")
    choose, evaluate = _halves("sample", sample)
    choose_neighbour, evaluate_neighbour = _halves("neighbour_sample", neighbour_sample)
    # The first halves choose the event. Their own bound is thrown away: it is the best of many and too large.
    _, threshold = best_threshold(choose, choose_neighbour, delta, 1 - CHOOSING * (1 - confidence))
    return judged(evaluate, evaluate_neighbour, threshold, delta, confidence)


def judged(sample, neighbour_sample, threshold, delta, confidence) -> Audit:
    """The bound from an event that was fixed on other runs."""
    counts = (
        int(np.sum(sample >= threshold)),
        len(sample),
        int(np.sum(neighbour_sample >= threshold)),
        len(neighbour_sample),
    )
    return Audit(epsilon_lower_bound(*counts, delta=delta, confidence=confidence), threshold, *counts)


def best_threshold(sample, neighbour_sample, delta, confidence) -> tuple[float, float]:
    """The largest bound on these samples, which is no confidence bound, and the threshold that gives it."""
    sample, neighbour_sample = np.sort(sample), np.sort(neighbour_sample)
    values = np.unique(np.concatenate([sample, neighbour_sample]))
    # Ranks at geometric distance from both ends: the best event may lie in a tail or in the middle.
    ranks = np.unique(np.geomspace(1, len(values), _TAIL_THRESHOLDS).astype(int)) - 1
    thresholds = values[np.union1d(ranks, len(values) - 1 - ranks)]
    # Number of scores at or above each threshold; the samples are sorted.
    hits, neighbour_hits = (len(s) - np.searchsorted(s, thresholds) for s in (sample, neighbour_sample))
    bounds = lower_bound(hits, len(sample), neighbour_hits, len(neighbour_sample), delta, confidence)
    best = np.argmax(bounds)
    return float(bounds[best]), float(thresholds[best])


def _halves(name, sample):
    """First and second half of a vector of scores, in the order of the runs."""
    sample = np.asarray(sample, dtype=float)
    if sample.ndim != 1 or len(sample) < 2 or not np.isfinite(sample).all():
        raise ValueError(f"{name} must be a vector of at least two finite numbers, got shape {sample.shape}")
    return sample[: len(sample) // 2], sample[len(sample) // 2 :]


def lower_bound(hits, trials, neighbour_hits, neighbour_trials, delta, confidence):
    """`epsilon_lower_bound` without checks; the hits may be arrays, of one event an entry."""
    low, high = _clopper_pearson(hits, trials, (1 - confidence) / 4)
    neighbour_low, neighbour_high = _clopper_pearson(neighbour_hits, neighbour_trials, (1 - confidence) / 4)
    # e^epsilon is at least (P(S) - delta) / P'(S): the event and its complement, in both directions.
    ratios = [
        (low - delta) / neighbour_high,
        (neighbour_low - delta) / high,
        (1 - high - delta) / (1 - neighbour_low),
        (1 - neighbour_high - delta) / (1 - low),
    ]
    # A ratio below 1, or below 0, shows nothing: epsilon is at least 0 anyway.
    return np.log(np.maximum(np.max(ratios, axis=0), 1.0))


def gaussian_lower_bound(
    hits: int, trials: int, neighbour_hits: int, neighbour_trials: int, confidence: float
) -> float:
    """Lower confidence bound on mu of Gaussian differential privacy, from counts of one event as `epsilon_lower_bound`.

    A test of size a has power at most Phi(Phi^-1(a) + mu), in either direction. 0 if nothing is shown.

    Source: Dong, Roth and Su 2022, Definition 4; Nasr et al. 2023, Section 4.
    """
    low, high = _clopper_pearson(hits, trials, (1 - confidence) / 4)
    neighbour_low, neighbour_high = _clopper_pearson(neighbour_hits, neighbour_trials, (1 - confidence) / 4)
    with np.errstate(invalid="ignore"):
        apart = [norm.ppf(low) - norm.ppf(neighbour_high), norm.ppf(neighbour_low) - norm.ppf(high)]
    return float(np.nanmax([0.0, *apart]))


def _clopper_pearson(hits, trials, level):
    """One-sided lower and upper bounds, each wrong with probability at most `level`."""
    hits = np.asarray(hits)
    misses = trials - hits
    # The bounds are Beta quantiles. Without hits (or misses) a parameter would be 0; the bound is then 0 (or 1).
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), misses + 1, level), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, np.maximum(misses, 1), 1 - level), 1.0)
    return low, high
