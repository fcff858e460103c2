"""Statistical lower bounds on the privacy loss of whatever can be run many times: mechanisms and fitted estimators.

Counts of one event on two neighbouring data sets, or samples of a real-valued score, give an epsilon that the
mechanism exceeds with the stated confidence, by exact binomial intervals. `audit_estimator` fits any private estimator
again and again, looks at all that the fitted object shows, and also asks whether noise is shared that should not be. A
bound above the claimed epsilon refutes the claim; a small bound proves nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv
from scipy.stats import kstest, norm, rankdata
from sklearn.base import BaseEstimator, clone

from helpers.privacy.accounting import ADD_REMOVE, REPLACE_ONE
from helpers.privacy.guarantees import Guarantee
from helpers.validation import check_choice, check_integer, check_real

# Thresholds that are tried from either end of the sample, at most.
_TAIL_THRESHOLDS = 256
# Thresholds are compared by bounds whose error is 1 % of the audit's: at the error itself, an event with few hits in a
# tail, whose ratio is large by chance, would often be chosen.
_CHOOSING = 0.01
_PROBES = 4  # rows of either data set, the last ones, that a fitted object is asked to classify


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
    _, threshold = best_threshold(choose, choose_neighbour, delta, confidence)
    return _judge(evaluate, evaluate_neighbour, threshold, delta, confidence)


def _judge(sample, neighbour_sample, threshold, delta, confidence) -> Audit:
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
    strict = 1 - _CHOOSING * (1 - confidence)
    bounds = lower_bound(hits, len(sample), neighbour_hits, len(neighbour_sample), delta, strict)
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


# Fitted estimators

Records = tuple[ArrayLike, ArrayLike]
"""X (n, d) and y (n,)."""


@dataclass(frozen=True)
class EstimatorAudit:
    """Outcome of `audit_estimator`.

    Attributes
    ----------
    claimed : Guarantee
        What the fitted objects say.
    epsilon : float
        Lower confidence bound on the true epsilon at `claimed.delta`.
    event : str
        What the bound rests on: the part of the fitted object, and the threshold.
    p_fits : float
        p-value of "two fits have independent noise". 0 if nothing varies between fits.
    p_seeds : float
        p-value of "one integer as seed gives independent noise on the two data sets".
    p_learners : float or None
        p-value of "sub-learners have no noise in common"; None if there are none.
    p_law : float or None
        p-value of "the recovered noise has the law that the guarantee needs"; None if there was no law to compare with.
    constant_guarantee : bool
        Whether all fits, on both data sets, had the same epsilon, delta and relation. If not, the guarantee is a leak.
    n_runs : int
        Fits on each data set; the bound rests on the second half of them.
    confidence : float
        Of the bound.
    """

    claimed: Guarantee
    epsilon: float
    event: str
    p_fits: float
    p_seeds: float
    p_learners: float | None
    p_law: float | None
    constant_guarantee: bool
    n_runs: int
    confidence: float

    def refuted(self, level: float = 1e-4) -> tuple[str, ...]:
        """What the audit refutes, one sentence each; empty if nothing.

        Parameters
        ----------
        level : float
            p-values below it count.
        """
        tests = {
            "noise of different fits is not independent": self.p_fits,
            "noise is shared by fits with one seed on neighbouring data": self.p_seeds,
            "noise is shared by sub-learners": self.p_learners,
            "noise does not have the law that the guarantee needs": self.p_law,
        }
        found = [f"{text} (p = {p:.1e})" for text, p in tests.items() if p is not None and p < level]
        if not self.constant_guarantee:
            found.append("guarantee_ depends on the data or on chance")
        if self.epsilon > self.claimed.epsilon:
            found.append(f"epsilon is at least {self.epsilon:.3g}, claimed {self.claimed.epsilon:.3g} ({self.event})")
        return tuple(found)

    def __str__(self):
        verdict = "; ".join(self.refuted()) or "nothing refuted"
        return f"claimed {self.claimed}; at least {self.epsilon:.3g} with {self.n_runs} runs each; {verdict}"


def audit_estimator(
    estimator: BaseEstimator,
    data: Records,
    neighbour: Records,
    *,
    n_runs: int = 200,
    n_seeds: int = 50,
    confidence: float = 0.95,
    noise: Callable[[Any, NDArray, NDArray], ArrayLike] | None = None,
    law: Any = None,
) -> EstimatorAudit:
    """Test a private estimator by what its fitted objects show on two neighbouring, *public* data sets.

    Four questions, none of which reads the estimator's code. (1) Can the data sets be told apart better than epsilon
    allows? `n_runs` fresh fits (`random_state=None`) on each; everything numeric that a fitted object holds or predicts
    (`released`) is a coordinate. Directions (single coordinates, linear discriminants, the distance from the mean) are
    fitted on the first quarter of the runs, the best with its threshold is chosen on the second, and the rest, not seen
    until then, gives the bound. (2) Is the noise of consecutive fits independent, and (3) do sub-learners
    (`estimators_`) share some? (4) Do `n_seeds` fits with equal integer seeds on the two data sets have unrelated
    noise? Each by the sum of rank correlations over coordinates, against its normal approximation under permuted runs.

    Parameters
    ----------
    estimator : scikit-learn classifier
        With parameter `random_state` and, after `fit`, `guarantee_`. It is cloned, not touched.
    data, neighbour : pairs X (n, d), y (n,)
        Neighbours under the relation of the guarantee, such as `neighbouring_data` gives. The further apart the results
        on them, the sharper the audit.
    n_runs : int
        At least 8. The largest epsilon that can be shown grows like log(n_runs / 8).
    n_seeds : int
        At least 8.
    confidence : float
        Of the bound on epsilon, in (0, 1).
    noise : callable (model, X, y) -> numbers, optional
        Recovers the noise of a fit, or independent numbers made of it, from the fitted object and the data. Questions 2
        and 4 then look at it instead of the released values.
    law : scipy distribution or callable, optional
        What each number of `noise` should be distributed as (anything with `cdf`, or the cdf). Tested by Kolmogorov and
        Smirnov over all fits with fresh noise.

    Returns
    -------
    EstimatorAudit

    Raises
    ------
    ValueError
        A number out of range, an estimator without `random_state` or whose fitted objects have no `guarantee_`, or a
        `law` without `noise`.

    Source: `epsilon_lower_bound`; permuted rank sums: Hoeffding 1951.

    >>> from helpers.erm import OutputPerturbationClassifier
    >>> pair = neighbouring_data(REPLACE_ONE)
    >>> audit = audit_estimator(OutputPerturbationClassifier(1.0, 0.1), *pair, n_runs=100, confidence=1 - 1e-7)
    >>> audit.epsilon < 1.0, audit.refuted(1e-7)
    (True, ())
    """
    check_integer("n_runs", n_runs, low=8)
    check_integer("n_seeds", n_seeds, low=8)
    check_real("confidence", confidence, low=0, high=1, inclusive="neither")
    if "random_state" not in estimator.get_params(deep=False):
        raise ValueError(f"estimator must have a parameter random_state, got {estimator!r}")
    if law is not None and noise is None:
        raise ValueError("law must be None without noise")
    pair = [(np.asarray(X), np.asarray(y)) for X, y in (data, neighbour)]
    # The last rows, because the record in which the data sets differ is last in `neighbouring_data`.
    probes = np.vstack([X[-_PROBES:] for X, _ in pair])

    def look(records, seed):
        # A fresh clone each time: nothing that a fit leaves on the estimator can make the next fit depend on it.
        model = clone(estimator).set_params(random_state=seed).fit(*records)
        guarantee, shown = _stated(model), released(model, probes)
        hidden = shown if noise is None else {"noise": np.ravel(noise(model, *records)).astype(float)}
        return _Fit(guarantee, shown, hidden, [released(learner) for learner in _learners(model)])

    fresh = [[look(records, None) for _ in range(n_runs)] for records in pair]
    seeded = [[look(records, seed) for seed in range(n_seeds)] for records in pair]
    guarantees = [fit.guarantee for side in (*fresh, *seeded) for fit in side]
    promises = {(promise.epsilon, promise.delta, promise.neighbouring) for promise in guarantees}
    # If claims differ between fits, the weakest one is tested; that they differ is reported by itself.
    claimed = max(fresh[0] + fresh[1], key=lambda fit: fit.guarantee.epsilon).guarantee
    epsilon, event = _bound(*_aligned(*([fit.shown for fit in side] for side in fresh)), claimed.delta, confidence)
    hidden = [fit.hidden for fit in fresh[0]]
    return EstimatorAudit(
        claimed=claimed,
        epsilon=epsilon,
        event=event,
        p_fits=_independence(hidden[:-1], hidden[1:]),
        p_seeds=_independence(*([fit.hidden for fit in side] for side in seeded)),
        p_learners=_learners_independence([fit.learners for fit in fresh[0]]),
        p_law=None if law is None else _law_test([fit.hidden["noise"] for side in fresh for fit in side], law),
        constant_guarantee=len(promises) == 1,
        n_runs=n_runs,
        confidence=confidence,
    )


def neighbouring_data(neighbouring: NeighboringRelation, *, n_features: int = 2) -> tuple[Records, Records]:
    """Two public data sets that differ in one record, the last, as far as a record in the unit ball can.

    The first one has 40 records, half of them in class 0 and half in class 1.

    Parameters
    ----------
    neighbouring : NeighboringRelation
        `REPLACE_ONE`: the last record's label differs. `ADD_REMOVE`: the second data set lacks it.
    n_features : int
        At least 1.

    Raises
    ------
    ValueError
        A parameter out of range.

    >>> (X, y), (_, other) = neighbouring_data(REPLACE_ONE)
    >>> len(X), int(np.sum(y != other))
    (40, 1)
    """
    check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (40, check_integer("n_features", n_features, low=1)))
    # All other records are short, and the last one has length 1, so that its change moves the result as far as
    # possible.
    X /= np.sqrt(n_features)
    y = np.arange(1, 41) % 2
    y[-1], X[-1] = 1, np.eye(n_features)[0]
    if neighbouring is ADD_REMOVE:
        return (X, y), (X[:-1], y[:-1])
    return (X, y), (X, np.append(y[:-1], 0))


def released(model: BaseEstimator, X: ArrayLike | None = None) -> dict[str, NDArray[np.float64]]:
    """Everything numeric that a fitted object shows: its public attributes that end in "_", and what it says about X.

    Parameters
    ----------
    model : estimator
        Fitted. Estimators that it holds are searched too, in lists and dicts as well.
    X : array (m, d), optional
        Public rows to classify.

    Returns
    -------
    dict
        From names such as "estimators_.0.coef_" to vectors; "decision_function", "predict_proba" and "predict" (as
        positions in `classes_`) where the model has them.

    >>> from sklearn.linear_model import LogisticRegression
    >>> model = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    >>> sorted(released(model, [[0.5]]))[:4]
    ['classes_', 'coef_', 'decision_function', 'intercept_']
    """
    found = dict(_numbers(model, ""))
    if X is None:
        return found
    for method in ("decision_function", "predict_proba"):
        if hasattr(model, method):
            found[method] = np.ravel(getattr(model, method)(X)).astype(float)
    if hasattr(model, "predict"):
        found["predict"] = np.searchsorted(model.classes_, model.predict(X)).astype(float)
    return found


class _Fit(NamedTuple):
    """Guarantee, released values, values whose noise is compared, and the released values of each sub-learner."""

    guarantee: Guarantee
    shown: dict[str, NDArray]
    hidden: dict[str, NDArray]
    learners: list[dict[str, NDArray]]


def _stated(model) -> Guarantee:
    """The `guarantee_` of a fitted object; a ValueError without one."""
    guarantee = getattr(model, "guarantee_", None)
    if not isinstance(guarantee, Guarantee):
        raise ValueError(f"estimator must have a Guarantee as guarantee_ after fit, got {guarantee!r}")
    return guarantee


def _learners(model) -> list:
    """The fitted sub-learners of an ensemble; none of anything else."""
    return list(getattr(model, "estimators_", ()))


def _numbers(item: Any, name: str) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Pairs of a dotted name and a vector, of every number or numeric array that `item` holds at any depth."""
    match item:
        case BaseEstimator():
            inside = {key: value for key, value in vars(item).items() if key.endswith("_") and key[0] != "_"}
        case dict():
            inside = item
        case list() | tuple():
            inside = dict(enumerate(item))
        case Real():
            inside, item = {}, np.asarray(item)
        case _:
            inside = {}
    for key, value in inside.items():
        yield from _numbers(value, f"{name}.{key}" if name else str(key))
    if isinstance(item, np.ndarray) and item.dtype.kind in "biuf":
        yield name, np.nan_to_num(item.ravel().astype(float))


def _aligned(*sides: list[dict[str, NDArray]]) -> tuple[list[str], list[NDArray]]:
    """Names of the coordinates that every fit has, and for each side a table (fits, coordinates)."""
    fits = [fit for side in sides for fit in side]
    sizes = [{name: len(values) for name, values in fit.items()} for fit in fits]
    common = [name for name in sizes[0] if all(size.get(name) == sizes[0][name] for size in sizes)]
    names = [f"{name}[{i}]" for name in common for i in range(len(fits[0][name]))]
    return names, [np.array([[value for name in common for value in fit[name]] for fit in side]) for side in sides]


def _bound(names, tables, delta, confidence) -> tuple[float, str]:
    """Lower bound on epsilon, and the event it rests on."""
    here, there = tables
    # Three disjoint sets of runs: the first quarter fits the directions, the second chooses one and its threshold, and
    # the other half, looked at once, gives the bound.
    quarter, half = (min(len(here), len(there)) // parts for parts in (4, 2))
    candidates = []
    for name, score in _directions(names, here[:quarter], there[:quarter]):
        shown, threshold = best_threshold(score(here[quarter:half]), score(there[quarter:half]), delta, confidence)
        candidates.append((shown, name, score, threshold))
    if not candidates:
        return 0.0, "nothing numeric is released"
    _, name, score, threshold = max(candidates, key=lambda candidate: candidate[0])
    audit = _judge(score(here[half:]), score(there[half:]), threshold, delta, confidence)
    return audit.epsilon, f"{name} >= {threshold:.4g}"


def _directions(names, here, there) -> Iterator[tuple[str, Callable[[NDArray], NDArray]]]:
    """Scores that may tell two sides apart: each coordinate, linear discriminants, the distance from the middle."""
    for column, name in enumerate(names):
        yield name, partial(np.take, indices=column, axis=1)
    spread = np.sqrt((here.var(axis=0) + there.var(axis=0)) / 2)
    # Coordinates that never vary within a side have no scale. As single coordinates they were tried above.
    use = spread > 0
    if not use.any():
        return

    def standardised(table):
        return (table[:, use] - there[:, use].mean(axis=0)) / spread[use]

    def projected(weights, table):
        return standardised(table) @ weights

    gap = standardised(here).mean(axis=0)
    covariance = (np.cov(standardised(here).T) + np.cov(standardised(there).T)) / 2
    # A quarter of the runs may be fewer than the coordinates, so the covariance needs a ridge, and no single one is
    # best everywhere.
    for shrinkage in (0.1, 1.0, 10.0):
        weights = np.linalg.solve(np.atleast_2d(covariance) + shrinkage * np.eye(len(gap)), gap)
        yield f"discriminant (ridge {shrinkage:g})", partial(projected, weights)
    yield "distance from the mean", lambda table: np.linalg.norm(standardised(table), axis=1)


def _independence(ones: list[dict], others: list[dict], *, ignore_negative: bool = False) -> float:
    """p-value that fits in the same place of two lists have nothing in common; 0 where nothing varies at all.

    The sum over coordinates of Spearman's correlation; under permutations of one list its mean is 0 and its variance
    the squared norm of the matrix of all pairs over m - 1, and its law nearly normal.
    """
    _, tables = _aligned(ones, others)
    varies = np.logical_and(*(np.ptp(table, axis=0) > 0 for table in tables))
    if not varies.any():
        return 0.0
    # A rare event that happens twice in a row is no evidence, and its rank correlation is far from normal.
    varies &= np.logical_and(*(_commonest(table) <= 0.5 for table in tables))
    if not varies.any():
        return 1.0
    ranks = [rankdata(table[:, varies], axis=0) for table in tables]
    one, other = ((rank - rank.mean(axis=0)) / rank.std(axis=0) for rank in ranks)
    # Entry (i, j): the correlation, summed over coordinates, of run i of one list with run j of the other. Its trace
    # pairs equal places.
    pairs = one @ other.T
    excess = np.trace(pairs) / np.linalg.norm(pairs) * np.sqrt(len(pairs) - 1)
    return float(norm.sf(excess) if ignore_negative else 2 * norm.sf(abs(excess)))


def _commonest(table: NDArray) -> NDArray:
    """Share of the most frequent value in each column."""
    return np.array([np.unique(column, return_counts=True)[1].max() for column in table.T]) / len(table)


def _learners_independence(runs: list[list[dict]]) -> float | None:
    """`_independence` of each sub-learner and the next one of the same fit; None without two sub-learners.

    Bags without a common record make their learners opposites, so a negative correlation is no fault.
    """
    if min(map(len, runs)) < 2:
        return None

    def merged(learners):
        return {f"{place}.{name}": values for place, fit in enumerate(learners) for name, values in fit.items()}

    return _independence([merged(run[:-1]) for run in runs], [merged(run[1:]) for run in runs], ignore_negative=True)


def _law_test(noise: list[NDArray], law) -> float:
    return float(kstest(np.concatenate(noise), getattr(law, "cdf", law)).pvalue)
