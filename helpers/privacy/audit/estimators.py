"""Is the noise of a private estimator what its guarantee needs, and is it fresh where it has to be?

`audit_estimator` fits an estimator of scikit-learn's kind again and again on one pair of data sets. Beside a bound on
epsilon it asks what no single fit shows: whether noise is shared by fits, by sub-learners or by fits with one seed, and
whether noise that the caller can recover follows its law.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from scipy.stats import kstest, norm, rankdata
from sklearn.base import BaseEstimator, clone

from helpers.privacy.accounting import ADD_REMOVE, REPLACE_ONE
from helpers.privacy.audit.bounds import CHOOSING, best_threshold, judged
from helpers.privacy.audit.objects import candidates
from helpers.privacy.guarantees import Guarantee
from helpers.validation import check_choice, check_integer, check_real

_PROBES = 4  # rows of either data set, the last ones, that a fitted object is asked to classify

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
    (`released`) is a coordinate. Events (`objects.candidates`) are learned on the first quarter of the runs, the best
    with its threshold is chosen on the second, and the rest, not seen until then, gives the bound. (2) Is the noise of
    consecutive fits independent, and (3) do sub-learners (`estimators_`) share some? (4) Do `n_seeds` fits with equal
    integer seeds on the two data sets have unrelated noise? Each by the sum of rank correlations over coordinates,
    against its normal approximation under permuted runs.

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
    sides = [[dict(zip(names, row, strict=True)) for row in table.tolist()] for table in tables]
    # Three disjoint sets of runs: the first quarter finds candidates, the second chooses one and its threshold, and the
    # other half, looked at once, gives the bound.
    quarter, half = (min(map(len, sides)) // parts for parts in (4, 2))
    best: tuple = (-1.0, None, 0.0)
    for event in candidates(*(side[:quarter] for side in sides)):
        here, there = (np.array([event.score(run) for run in side[quarter:half]]) for side in sides)
        shown, threshold = best_threshold(here, there, delta, 1 - CHOOSING * (1 - confidence))
        if shown > best[0]:
            best = (shown, event, threshold)
    _, event, threshold = best
    here, there = (np.array([event.score(run) for run in side[half:]]) for side in sides)
    return judged(here, there, threshold, delta, confidence).epsilon, str(replace(event, threshold=threshold))


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
