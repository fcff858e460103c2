"""SMOTE, and what it does to a private learner's guarantee.

`StableSMOTE` interpolates between minority records and reports its stability: the law of the number of the learner's
rows that one changed record changes; `amplification` and `inner_epsilon` turn it into guarantees, as printed and as
corrected. It guarantees stability only, never privacy: the resampled data may be read by a private learner and by
nobody else. Kissing numbers, on which the worst case rests, belong to `helpers.kissing`.
"""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from dp_accounting import GaussianDpEvent
from scipy.special import expit, log_ndtr
from scipy.stats import binom
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array, gen_batches
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_X_y

from helpers.checks import check_choice, check_integer, check_real
from helpers.privacy import (
    ADD_REMOVE,
    EXACT_REALS,
    REPLACE_ONE,
    Guarantee,
    NeighboringRelation,
    PrivacyLeakWarning,
    gaussian_epsilon,
)
from helpers.resampling import kissing

_NEGLIGIBLE = 1e-20  # tail probability left out of a sum, and added to the result
_SPARE_NEIGHBOURS = 2  # candidates fetched beyond the k that are needed, so that most ties end among them
_BLOCK = 256  # points whose distances are recomputed at a time, to stay in the processor's cache
_LARGEST = 2.0**500  # of a coordinate, and one over the smallest difference of two
_WHOLE_ABOVE = 2.0**-448  # floating-point numbers above are multiples of 2^-500
_LARGEST_EPSILON = 700.0  # e^epsilon overflows a little above this, and nothing is promised there anyway

# Where each printed pair stands, and whether it keeps the factor k that its proof has and its statement lost.
_PRINTED = {
    "printed-icml": ("Rosenblatt et al. 2025, Theorem 3", False),
    "printed-arxiv": ("Rosenblatt et al. 2024 (arXiv), Theorem 5", False),
    "printed-proof": ("Rosenblatt et al. 2025, proof of Theorem 3", True),
}
_SOURCE = "SMOTE: Rosenblatt et al. 2025, Theorem 3, corrected"
VERSIONS = ("corrected", *_PRINTED)
BASES = ("cyclic", "random")
_ASSUMES = (
    "records that both data sets have are in the same order",
    "tie-breaking jitter independent of the data",
    "secret choice of neighbours",
    "learner blind to the order of records",
    EXACT_REALS,
)


# --- nearest neighbours ---------------------------------------------------------------------------


def neighbour_lists(X, k, *, jitter=None) -> np.ndarray:
    """Exact k nearest neighbours of every point among the others, with a stated rule for ties.

    With `jitter`, ties are broken as if point i were moved by t jitter[i] along the first coordinate, t > 0 tending
    to 0. The squared distance of i and j is then D + 2 t (x_i1 - x_j1)(p_i - p_j) + t^2 (p_i - p_j)^2, so that for all
    small enough t it orders as the triple (D, middle factor, last factor) does lexicographically. No t is chosen and
    the lists are valid for points that are distinct, which is what `in_degree_bound` asks for. (Distances D themselves
    are floating-point numbers, of coordinates cut off at 2^500 and rounded to multiples of 2^-500.)
    A priority for each *neighbour* would not do: 500 coincident points would all choose the same one.

    Parameters
    ----------
    X : array-like (n, d)
        Finite numbers.
    k : int
        1 <= k < n.
    jitter : array (n,), optional
        Distinct numbers. Without it, ties go to the lower row number, as in the usual libraries.

    Returns
    -------
    ndarray (n, k) of row numbers, nearest first

    Raises
    ------
    ValueError
        `k` out of range, `jitter` of another length or with repeats, X not numeric or not finite.

    >>> neighbour_lists([[0.0], [1.0], [3.0]], 1).ravel().tolist()
    [1, 0, 1]
    """
    X = _squarable(check_array(X, dtype=np.float64, ensure_min_samples=2))
    n = len(X)
    k = check_integer("k", k, low=1, high=n - 1)
    jitter = None if jitter is None else _check_jitter(jitter, n)
    candidates = min(n, k + 1 + _SPARE_NEIGHBOURS)
    reach, rows = NearestNeighbors(n_neighbors=candidates).fit(X).kneighbors(X)
    distances = np.empty(rows.shape)
    for block in gen_batches(n, _BLOCK):
        own = np.repeat(X[block], candidates, axis=0)
        distances[block] = _squared_distances(own, X[rows[block].ravel()]).reshape(-1, candidates)
    distances[rows == np.arange(n)[:, np.newaxis]] = np.inf
    complete = np.full(n, candidates == n)
    if candidates < n:
        # The search may round inner products: a point that it left out can be this much nearer than it says.
        rounding = 16 * (X.shape[1] + 8) * np.finfo(float).eps * np.max(np.sum(X**2, axis=1))
        complete = reach[:, -1] ** 2 - rounding > np.partition(distances, k - 1, axis=1)[:, k - 1]
    order = _tie_order(X, jitter, np.arange(n)[:, np.newaxis], rows, distances)
    lists = np.take_along_axis(rows, order[:, :k], axis=1)
    for i in np.flatnonzero(~complete):
        lists[i] = _neighbours_of(i, X, k, jitter)
    return lists


def in_degrees(X, k, *, jitter=None) -> np.ndarray:
    """How many of the other points have each point among their k nearest (its k-occurrence).

    Parameters, errors and ties as in `neighbour_lists`. It depends on the data: in a privacy proof only
    `in_degree_bound` may be used.

    Returns
    -------
    ndarray (n,) of int64

    >>> in_degrees([[0.0], [0.0], [0.0], [0.0]], 1).tolist()  # coincident points, ties to the lower row number
    [3, 1, 0, 0]
    >>> in_degrees([[0.0], [0.0], [0.0], [0.0]], 1, jitter=[0.1, 0.5, 0.6, 0.8]).tolist()
    [0, 2, 2, 0]
    """
    lists = neighbour_lists(X, k, jitter=jitter)
    return np.bincount(lists.ravel(), minlength=len(lists))


def in_degree_bound(d, k, n_minority) -> int:
    """min(k K(d), n1 - 1): in how many of n1 points' lists of k nearest neighbours a point can be.

    K(d) is the kissing number, here its best rigorous upper bound. Let S be the points, none coincident with x, that
    have x in their list, p the farthest of them from x, and q in S at less than 60 degrees from p as seen from x.
    Then |pq|^2 < |px|^2 + |qx|^2 - |px||qx| <= |px|^2: q is nearer to p than x is, and there are at most k - 1 such q
    because x is in p's list. Remove p and them, and repeat; the chosen points are pairwise at least 60 degrees apart,
    so this ends after at most K(d) rounds. The tie rule does not matter. Points that coincide with x escape the
    argument: with free ties each of n1 coincident points can have x in its list. The jitter of `neighbour_lists`
    makes all points distinct.

    Attained for points distinct from x, with ties in favour of x, by k copies of an optimal kissing configuration.

    Parameters
    ----------
    d, k : int
        Dimension and neighbours, at least 1.
    n_minority : int
        n1 > k, the number of points.

    Raises
    ------
    ValueError
        A number out of range.

    Source: corrects Rosenblatt et al. 2025, Lemma 9, which allows coincident points and caps at n1.

    >>> in_degree_bound(3, 5, 1000), in_degree_bound(25, 5, 1000)
    (60, 999)
    """
    n_minority = check_integer("n_minority", n_minority, low=2)
    k = check_integer("k", k, low=1, high=n_minority - 1)
    return min(k * kissing.bounds(check_integer("d", d, low=1)).upper, n_minority - 1)


def _check_jitter(jitter, n) -> np.ndarray:
    jitter = check_array(jitter, ensure_2d=False, dtype=np.float64)
    if jitter.shape != (n,) or len(np.unique(jitter)) < n:
        raise ValueError(f"jitter must hold {n} distinct numbers, got an array of shape {jitter.shape}")
    return jitter


def _squarable(X) -> np.ndarray:
    """X with magnitudes above 2^500 cut off and fractions of 2^-500 rounded away, a rule that no record can change.

    Squares of differences then neither overflow nor vanish. Otherwise distinct points far from or close to all others
    would count as coincident, and one record could enter every list.
    """
    X = np.clip(X, -_LARGEST, _LARGEST)
    return np.where(np.abs(X) < _WHOLE_ABOVE, np.rint(X * _LARGEST) / _LARGEST, X)


def _squared_distances(a, b) -> np.ndarray:
    """Row by row, from differences: exactly 0 for coincident points, and the same whatever the other rows are."""
    return np.sum(np.square(a - b), axis=1)


def _tie_order(X, jitter, point, neighbours, distances) -> np.ndarray:
    """Positions that sort each row of `neighbours` by distance from `point`, ties as in `neighbour_lists`."""
    if jitter is None:
        return np.lexsort((neighbours, distances))
    apart = jitter[point] - jitter[neighbours]
    return np.lexsort((neighbours, np.square(apart), (X[point, 0] - X[neighbours, 0]) * apart, distances))


def _neighbours_of(i, X, k, jitter) -> np.ndarray:
    """List of one point whose ties may reach beyond the candidates: among all points."""
    distances = _squared_distances(X, X[i])
    distances[i] = np.inf
    near = np.flatnonzero(distances <= np.partition(distances, k - 1)[k - 1])
    return near[_tie_order(X, jitter, i, near, distances[near])[:k]]


# --- stability ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChangedRows:
    """Law of the number of the learner's rows that one changed record changes: certain + Bin(trials, probability).

    Neighbours differ in one record and keep the order of the others. With coupled randomness they give inputs of the
    learner that differ in that many substituted rows and, under add/remove, one row inserted; each row is changed
    independently of the others. The law is a stochastic upper bound over all pairs of neighbours.

    Attributes
    ----------
    neighbouring : NeighboringRelation
        Of the raw data, and of the learner. Under add/remove a substitution is two of its steps.
    certain : int
        Rows that may change always; under replace-one at least 1, the record's own.
    trials : int
    probability : float
        Rows that change with this probability, > 0.
    assumes : tuple of str

    >>> rows = ChangedRows(REPLACE_ONE, certain=2, trials=3333, probability=0.2)
    >>> rows.maximum, rows.quantile(1e-8), round(rows.log_mean(0.1), 2)
    (3335, 801, 69.58)
    """

    neighbouring: NeighboringRelation
    certain: int
    trials: int
    probability: float
    assumes: tuple[str, ...] = ()

    def __post_init__(self):
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        check_integer("certain", self.certain, low=int(self.neighbouring == REPLACE_ONE))
        check_integer("trials", self.trials, low=0)
        check_real("probability", self.probability, low=0, high=1, inclusive="high")

    @property
    def maximum(self) -> int:
        """Most rows that can change."""
        return self.certain + self.trials

    @property
    def mean(self) -> float:
        """Expected number of changed rows."""
        return self.certain + self.trials * self.probability

    def steps(self, rows):
        """Steps of the learner's own relation between inputs that differ in `rows` rows.

        >>> ChangedRows(ADD_REMOVE, 2, 10, 0.2).steps(3)
        7
        """
        return 1 + 2 * rows if self.neighbouring == ADD_REMOVE else rows

    def quantile(self, tail) -> int:
        """Smallest number of rows that is exceeded with probability at most `tail`, exactly binomial.

        Raises
        ------
        ValueError
            `tail` is not in (0, 1).
        """
        tail = check_real("tail", tail, low=0, high=1, inclusive="neither")
        rows, _ = self._law
        exceeded = binom.sf(rows - self.certain, self.trials, self.probability)
        return int(rows[np.argmax(exceeded <= tail)]) if exceeded[-1] <= tail else self.maximum

    def log_mean(self, epsilon) -> float:
        """log E e^{epsilon steps}: the pure guarantee of an `epsilon`-DP learner, and attained.

        Replace the law P of one row by its law P' in the other data set, all other rows drawn independently. The two
        laws share mass 1 - p and differ in the rest: P = (1 - p) C + p O, P' = (1 - p) C + p X. Averaged over the other
        rows, the learner's probability F of an event is within a factor e^a for any two values of this row (a = 2
        epsilon under add/remove, else epsilon). So E_O F <= e^a min(E_C F, E_X F), and hence E_P F <= (1 + p (e^a - 1))
        E_P' F. Replacing one row after the other multiplies these factors, whatever the output tells about the
        neighbours that were drawn: independence of the rows is all that is needed. If several rows shared one draw and
        the output showed it, only `maximum` would count.

        Parameters
        ----------
        epsilon : float
            Of the learner, >= 0.

        Raises
        ------
        ValueError
            `epsilon` out of range.

        Source: each step is advanced joint convexity (Balle, Barthe and Gaboardi 2018, Theorem 2).

        >>> round(ChangedRows(REPLACE_ONE, 1, 0, 0.5).log_mean(0.3), 4)
        0.3
        """
        epsilon = check_real("epsilon", epsilon, low=0)
        row = 2 * epsilon if self.neighbouring == ADD_REMOVE else epsilon
        # log(1 + p (e^a - 1)) = a + log(p + (1 - p) e^{-a}), which does not overflow
        uncertain = row + math.log1p((1 - self.probability) * math.expm1(-row))
        return epsilon * self.steps(0) + self.certain * row + self.trials * uncertain

    def mixture_delta(self, epsilon, inner: Guarantee) -> float:
        """delta of the pipeline at `epsilon`, averaging what the learner promises to groups.

        The hockey-stick divergence is jointly convex, so the coupling gives delta <= sum_j P(steps = j) delta_j, where
        delta_j is the learner's for groups of j: exact for a `GaussianDpEvent`, which is then a shift by j
        sensitivities, (e^{j e} - e^epsilon)_+ / (1 + e^{j e}) for a pure e-DP learner, and with the learner's delta
        carried through group privacy otherwise. For a pure learner it is at most P(steps > J) at epsilon = J e, for
        every cut-off J.

        Parameters
        ----------
        epsilon : float
            >= 0.
        inner : Guarantee
            The learner's, under `neighbouring`.

        Returns
        -------
        float
            In [0, 1].

        Raises
        ------
        ValueError
            `inner` is for another relation or promises nothing; `epsilon` out of range.

        >>> round(ChangedRows(REPLACE_ONE, 2, 3333, 0.2).mixture_delta(69.0, Guarantee(0.1, 0.0, REPLACE_ONE)), 3)
        0.103
        """
        epsilon = check_real("epsilon", epsilon, low=0)
        self._check_inner(inner)
        rows, probabilities = self._law
        sizes = self.steps(rows)
        losses = sizes * inner.epsilon
        pure = expit(losses) * -np.expm1(np.minimum(epsilon - losses, 0.0))
        deltas = pure + (1 - pure) * _group_deltas(inner, losses, sizes)
        if (noise := _gaussian_noise(inner)) is not None:
            deltas = np.minimum(deltas, _gaussian_deltas(epsilon, sizes / noise))
        return min(1.0, float(probabilities @ deltas) + _NEGLIGIBLE)

    def delta_at(self, epsilon, inner: Guarantee) -> float:
        """Smallest delta known for the pipeline at `epsilon`: from `mixture_delta` or `amplify`, whichever is less.

        Parameters, result and errors as in `mixture_delta`.

        >>> rows, learner = ChangedRows(REPLACE_ONE, 2, 3333, 0.2), Guarantee(0.1, 0.0, REPLACE_ONE)
        >>> [round(rows.delta_at(epsilon, learner), 3) for epsilon in (69.0, 69.57, 69.58)]
        [0.103, 0.01, 0.0]
        """
        return min(self.mixture_delta(epsilon, inner), self.amplify(inner).delta_at(epsilon))

    def amplify(self, inner: Guarantee, delta=None) -> Guarantee:
        """Guarantee of "SMOTE, then learn", from the learner's own.

        Without `delta`: epsilon = `log_mean`(e) and delta = d (e^epsilon - 1)/(e^e - 1) for an (e, d)-DP learner, which
        is group privacy with e^{size e} replaced by its mean: replacing one row's law is then a step of (log(1 + p (e^e
        - 1)), p d), and the steps add up as they do for groups. With `delta`: the smallest epsilon known to hold there,
        from this pair and from `delta_at`; infinite if there is none.

        Parameters
        ----------
        inner : Guarantee
            The learner's, under `neighbouring`.
        delta : float, optional
            In (0, 1).

        Raises
        ------
        ValueError
            As in `delta_at`; `delta` out of range.

        >>> rows = ChangedRows(REPLACE_ONE, 2, 10, 0.2)
        >>> print(rows.amplify(Guarantee(0.1, 0.0, REPLACE_ONE)))
        (0.4082, 0)-DP, replace-one
        >>> print(rows.amplify(Guarantee(0.1, 0.0, REPLACE_ONE), delta=0.1))
        (0.2176, 0.1)-DP, replace-one
        """
        total = self.log_mean(self._check_inner(inner).epsilon)
        known = Guarantee(
            total,
            float(_group_deltas(inner, total, self.steps(self.mean))),
            self.neighbouring,
            assumes=tuple(dict.fromkeys(inner.assumes + self.assumes)),
            source="; ".join(filter(None, [inner.source, _SOURCE])),
        )
        if delta is None:
            return known
        delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
        return dataclasses.replace(known, epsilon=self._epsilon_at(delta, inner, known.epsilon_at(delta)), delta=delta)

    def _check_inner(self, inner) -> Guarantee:
        check_choice("inner.neighbouring", inner.neighbouring, (self.neighbouring,))
        check_real("inner.epsilon", inner.epsilon, low=0)
        return inner

    @cached_property
    def _law(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of rows but for a negligible upper tail, and their probabilities; the lower tail is rounded up."""
        draws = binom(self.trials, self.probability)
        # Bernstein's inequality: quantiles this far out are not reliable in scipy.
        third = -math.log(_NEGLIGIBLE) / 3
        width = third + math.sqrt(third**2 + 6 * third * draws.var())
        low, high = math.floor(draws.mean() - width), math.ceil(draws.mean() + width)
        extra = np.arange(max(low, 0), min(high, self.trials) + 1)
        probabilities = draws.pmf(extra)
        probabilities[0] = draws.cdf(extra[0])
        return self.certain + extra, probabilities

    def _epsilon_at(self, delta, inner, known) -> float:
        """Smallest epsilon with mixture_delta <= `delta`, or `known` if that is smaller."""
        most = float(self.steps(self._law[0][-1]))
        high = most * inner.epsilon
        if (noise := _gaussian_noise(inner)) is not None:
            high = max(high, gaussian_epsilon(delta / 2, most / noise))
        high = min(high, known)
        if self.mixture_delta(high, inner) > delta:
            return known
        return _smallest(lambda epsilon: self.mixture_delta(epsilon, inner) <= delta, high)


def changed_rows(*, d, k, n_minority, n_new, neighbouring, bases="cyclic") -> ChangedRows:
    """How many of the learner's rows one changed record changes, in the worst case over the data.

    The learner's rows are the records and N new ones. New row t has a base record and one of the base's k neighbours;
    match the rows of two neighbouring data sets by (base, how often it was used before), not by t. A base's list
    changes in one place at most: what leaves it makes room for the next nearest. So a matched row changes with
    probability at most 1/k, independently of the others, and only if its list holds the changed record, which l =
    `in_degree_bound` lists do. What is left are the rows that have the changed record as their base and, in the other
    data set, those of other bases that take their place.

    * add/remove, n the larger number of minority records, cyclic bases: the record is the base of at most ceil(N/n)
      rows, and every other base is used no more often in the larger set than in the smaller. The record and l bases
      more have at most the (l + 1) floor(N/n) + min(l + 1, N mod n) rows of the l + 1 most used.
    * add/remove, random bases: a row's base is the record with probability 1/n and one of l others with probability
      l/n. Hence Bin(N, (1 + l/k)/n).
    * replace-one within the minority: one record leaves lists and one enters, hence up to min(2 l, n - 1) lists, and
      the record's own row is changed too. A flipped label is an insertion into the minority, whose n is then larger by
      one: no worse. A record of the majority changes one row.

    All laws decrease stochastically in n, so a public floor on n will do.

    Parameters
    ----------
    d : int
        Features.
    k : int
        Neighbours, 1 <= k < `n_minority`.
    n_minority : int
        Public floor on the number of minority records in either data set.
    n_new : int
        N >= 0, fixed and public.
    neighbouring : NeighboringRelation
    bases : {"cyclic", "random"}
        Base of row t: record t mod n1, as in the paper, or uniform, as in imbalanced-learn.

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: corrects Rosenblatt et al. 2025, proof of Theorem 3, where rows with the record as base are not counted, a
    substitution costs as much as an insertion, and both relations appear.

    >>> rows = changed_rows(d=2, k=5, n_minority=100, n_new=200, neighbouring=REPLACE_ONE)
    >>> rows.certain, rows.trials, rows.probability
    (3, 120, 0.2)
    """
    n_minority = check_integer("n_minority", n_minority, low=2)
    n_new = check_integer("n_new", n_new, low=0)
    check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
    k = check_integer("k", k, low=1, high=n_minority - 1)
    replaced = int(neighbouring == REPLACE_ONE)
    n = n_minority + 1 - replaced
    degree = in_degree_bound(d, k, n)
    lists = min(2 * degree, n - 1) if replaced else degree
    assumes = (
        f"at least {n_minority} minority records, a public floor",
        f"public: {d} features, {k} neighbours, {n_new} new records",
        *_ASSUMES,
    )
    if check_choice("bases", bases, BASES) == "random":
        return ChangedRows(neighbouring, replaced, n_new, (1 + lists / k) / n, assumes)
    own = -(-n_new // n)
    used = (lists + 1) * (n_new // n) + min(lists + 1, n_new % n)
    return ChangedRows(neighbouring, replaced + own, used - own, 1 / k, assumes)


def multiclass_changed_rows(*, d, k, n_records, n_new, neighbouring) -> ChangedRows:
    """`changed_rows` with several classes resampled, each by a SMOTE of its own with cyclic bases.

    A record that comes or goes concerns one class. A replacement within a class is that of `changed_rows`; one that
    moves a record from one class to another leaves the lists of the first *and* enters those of the second, so the rows
    of both add up. The law takes the largest number of certain rows and of trials over these cases.

    Parameters
    ----------
    d, k, neighbouring
        As in `changed_rows`.
    n_records : sequence of int
        Public floor on the number of records of each class, all above `k`.
    n_new : sequence of int
        New rows of each class, fixed and public; 0 for a class that is left alone.

    Raises
    ------
    ValueError
        A parameter out of range, or sequences of different lengths or with fewer than two classes.

    Source: corrects Rosenblatt et al. 2025, Section 6, which takes the largest ratio of a single class.

    >>> rows = multiclass_changed_rows(d=1, k=1, n_records=[9, 9, 50], n_new=[9, 9, 0], neighbouring=REPLACE_ONE)
    >>> rows.certain, rows.trials
    (3, 4)
    """
    if len(n_records) < 2 or len(n_records) != len(n_new):
        raise ValueError(f"n_records and n_new must name the same two or more classes, got {n_records!r} and {n_new!r}")

    def laws(relation):
        return [
            changed_rows(d=d, k=k, n_minority=own, n_new=new, neighbouring=relation)
            for own, new in zip(n_records, n_new, strict=True)
        ]

    cases = [(law.certain, law.trials) for law in laws(neighbouring)]
    if neighbouring == REPLACE_ONE:
        # The record's own row, and what coming or going does to two classes.
        cases += [
            (1 + left.certain + entered.certain, left.trials + entered.trials)
            for left, entered in itertools.combinations(laws(ADD_REMOVE), 2)
        ]
    certain, trials = (max(column) for column in zip(*cases, strict=True))
    sizes = f"at least {tuple(n_records)!r} records of each class, public floors"
    public = f"public: {d} features, {k} neighbours, {tuple(n_new)!r} new records of each class"
    return ChangedRows(neighbouring, certain, trials, 1 / k, (sizes, public, *_ASSUMES))


def _group_deltas(inner, losses, sizes):
    """inner.delta (e^loss - 1)/(e^epsilon - 1), at most 1; its limit, sizes inner.delta, at epsilon = 0."""
    if inner.delta == 0 or inner.epsilon == 0:
        return np.minimum(sizes * inner.delta, 1.0)
    with np.errstate(divide="ignore"):  # no loss, no delta
        log_sum = losses - inner.epsilon + np.log(np.expm1(-losses) / np.expm1(-inner.epsilon))
    return np.exp(np.minimum(math.log(inner.delta) + log_sum, 0.0))


def _gaussian_noise(inner) -> float | None:
    """Noise multiplier of a Gaussian learner, None for any other."""
    match inner.event:
        case GaussianDpEvent(noise_multiplier=noise) if noise > 0:
            return float(noise)
    return None


def _gaussian_deltas(epsilon, mu):
    """`helpers.privacy.gaussian_delta` for an array of positive mu, of which a law has thousands."""
    log_upper = log_ndtr(mu / 2 - epsilon / mu)
    log_lower = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return np.exp(log_upper) * -np.expm1(np.minimum(log_lower - log_upper, 0.0))


def _smallest(holds: Callable[[float], bool], high) -> float:
    """Smallest number in [0, high] where `holds`, which holds from there on; rounded up."""
    low = 0.0
    if holds(low):
        return low
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


# --- guarantees -----------------------------------------------------------------------------------


def amplification(
    epsilon,
    *,
    d,
    k,
    n_minority,
    n_new,
    neighbouring,
    delta=None,
    version="corrected",
    inner_delta=0.0,
    bases="cyclic",
) -> Guarantee:
    """Guarantee of a private learner on the records and SMOTE's new ones.

    Parameters
    ----------
    epsilon : float or Guarantee
        The learner's, >= 0, under `neighbouring`. A `Guarantee` brings its own delta and event: Gaussian learners are
        accounted for by exact shifts.
    d, k, n_minority, n_new, neighbouring, bases
        As in `changed_rows`.
    delta : float, optional
        In (0, 1): the epsilon there. Without it, the pure guarantee (of a pure learner).
    version : {"corrected", "printed-icml", "printed-arxiv", "printed-proof"}
        "corrected" is a guarantee. The printed pairs are not: they take 2^(0.4042 d) for a bound on the kissing number.
        With `delta`, gamma is solved from it. The two editions print the same pair; its proof supports a larger one.
    inner_delta : float
        The learner's delta; 0 for a printed pair and with a `Guarantee`.

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: corrects Rosenblatt et al. 2025, Theorem 3; see `changed_rows` and `ChangedRows.amplify`.

    >>> setting = dict(d=3, k=5, n_minority=200, n_new=200, neighbouring=REPLACE_ONE)
    >>> print(amplification(0.1, **setting), "|", amplification(0.1, version="printed-icml", **setting))
    (2.698, 0)-DP, replace-one | (0.3318, 0)-DP, replace-one
    """
    inner = _inner_guarantee(epsilon, inner_delta, neighbouring)
    rows = changed_rows(d=d, k=k, n_minority=n_minority, n_new=n_new, neighbouring=neighbouring, bases=bases)
    if check_choice("version", version, VERSIONS) == "corrected":
        return rows.amplify(inner, delta)
    if not inner.is_pure:
        raise ValueError(f"inner_delta must be 0 for version {version!r}, got {inner.delta!r}")
    sizes = {"d": d, "k": k, "n_minority": n_minority, "n_new": n_new, "version": version}
    if delta is None:
        pair = PrintedPair(inner.epsilon * (1 + _printed_trials(**sizes)), 0.0)
    else:
        delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
        pair = printed_pair(inner.epsilon, _printed_gamma(inner.epsilon, delta, d, k, n_minority, n_new), **sizes)
    false = "K(d) <= 2^(0.4042 d), which is false in every dimension where K(d) is known"
    return Guarantee(
        pair.epsilon, 0.0 if delta is None else delta, neighbouring, assumes=(false,), source=_PRINTED[version][0]
    )


def inner_epsilon(
    epsilon,
    *,
    d,
    k,
    n_minority,
    n_new,
    neighbouring,
    delta=None,
    version="corrected",
    inner_delta=0.0,
    bases="cyclic",
) -> float:
    """Epsilon to give the learner so that the pipeline has `epsilon`: the inverse of `amplification`.

    Parameters
    ----------
    epsilon : float
        Target, > 0.
    others
        As in `amplification`; `delta` is required if `inner_delta` is not 0.

    Returns
    -------
    float
        The largest there is, rounded down (at most 700: beyond, nothing is promised).

    Raises
    ------
    ValueError
        A parameter out of range, or no epsilon > 0 reaches the target: the learner's delta alone, over the rows that
        change, exceeds `delta`.

    >>> round(inner_epsilon(1.0, d=3, k=5, n_minority=200, n_new=200, neighbouring=REPLACE_ONE), 4)
    0.0379
    """
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
    inner_delta = check_real("inner_delta", inner_delta, low=0, high=1)
    if delta is None and inner_delta > 0:
        raise ValueError(f"delta must be given if inner_delta is not 0, got {delta!r} and inner_delta={inner_delta!r}")
    check_choice("version", version, VERSIONS)
    sizes = {"d": d, "k": k, "n_minority": n_minority, "n_new": n_new, "neighbouring": neighbouring}
    rows = changed_rows(bases=bases, **sizes)

    def exceeds(inner):
        if version == "corrected":
            return rows.amplify(Guarantee(inner, inner_delta, neighbouring), delta).epsilon > epsilon
        printed = amplification(inner, delta=delta, version=version, inner_delta=inner_delta, **sizes)
        return printed.epsilon > epsilon

    if exceeds(0.0):
        raise ValueError(
            f"no inner epsilon gives delta={delta!r}: the {rows.steps(rows.mean):.4g} changed records expected, each "
            f"with inner_delta={inner_delta!r}, take more"
        )
    high = epsilon
    while not exceeds(high):
        if high == _LARGEST_EPSILON:
            return high
        high = min(2 * high, _LARGEST_EPSILON)
    found = _smallest(exceeds, high)
    return found * (1 - 1e-9)  # `found` just exceeds the target


class PrintedPair(NamedTuple):
    """(epsilon', delta) as a formula gives it; delta may exceed 1."""

    epsilon: float
    delta: float


def printed_pair(epsilon, gamma, *, d, k, n_minority, n_new, version="printed-icml") -> PrintedPair:
    """The paper's (epsilon', delta) for its free parameter gamma, to be compared and not to be relied on.

    The statement has epsilon' = epsilon (1 + gamma) 2^(0.4042 d) ceil(N/n1)/k; its proof, with l = k 2^(0.4042 d), has
    no 1/k. Both have delta = exp(k 2^(0.4042 d) ceil(N/n1) (epsilon - gamma^2/(k (2 + gamma)))).

    Parameters
    ----------
    epsilon : float
        Of the learner, >= 0.
    gamma : float
        >= 0.
    d, k, n_minority, n_new
        As in `changed_rows`.
    version : {"printed-icml", "printed-arxiv", "printed-proof"}

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: Rosenblatt et al. 2025, Theorem 3 and its proof.

    >>> pair = printed_pair(1.0, 0.0, d=25, k=5, n_minority=1000, n_new=1000)
    >>> round(pair.epsilon, 2), pair.delta > 1
    (220.26, True)
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    gamma = check_real("gamma", gamma, low=0)
    trials = _printed_trials(d, k, n_minority, n_new, "printed-proof")
    exponent = trials * (epsilon - gamma**2 / (k * (2 + gamma)))
    delta = math.exp(exponent) if exponent < _LARGEST_EPSILON else math.inf
    return PrintedPair(epsilon * (1 + gamma) * _printed_trials(d, k, n_minority, n_new, version) / k, delta)


def _printed_trials(d, k, n_minority, n_new, version) -> float:
    """l ceil(N/n1) with the printed l: k 2^(0.4042 d) in the proof, 2^(0.4042 d) in the statements."""
    _, keeps_k = _PRINTED[check_choice("version", version, tuple(_PRINTED))]
    n_minority = check_integer("n_minority", n_minority, low=2)
    k = check_integer("k", k, low=1, high=n_minority - 1)
    ratio = -(-check_integer("n_new", n_new, low=0) // n_minority)
    return (k if keeps_k else 1) * kissing.printed_upper(d) * ratio


def _printed_gamma(epsilon, delta, d, k, n_minority, n_new) -> float:
    """gamma for which the printed delta is `delta`: gamma^2 = v (2 + gamma)."""
    trials = _printed_trials(d, k, n_minority, n_new, "printed-proof")
    if trials == 0:
        raise ValueError(f"n_new must be positive for a printed pair at delta, got {n_new!r}")
    v = k * (epsilon - math.log(delta) / trials)
    return (v + math.sqrt(v**2 + 8 * v)) / 2


def _inner_guarantee(epsilon, inner_delta, neighbouring) -> Guarantee:
    inner_delta = check_real("inner_delta", inner_delta, low=0, high=1)
    if not isinstance(epsilon, Guarantee):
        epsilon = check_real("epsilon", epsilon, low=0)
        return Guarantee(epsilon, inner_delta, check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE)))
    if inner_delta:
        raise ValueError(f"inner_delta must be 0 with a Guarantee, which has its own delta, got {inner_delta!r}")
    check_choice("neighbouring", neighbouring, (epsilon.neighbouring,))
    return epsilon


# --- the resampler --------------------------------------------------------------------------------


class StableSMOTE(BaseEstimator):
    """SMOTE with a fixed number of new records, distinct points, and a stability that holds.

    Each new record lies between a minority record and one of its k nearest in the minority, chosen uniformly. Ties are
    broken by an infinitesimal jitter, drawn for every record and independent of its values (`neighbour_lists`), without
    which the worst case is every list. The output holds the rows of X in their order, then the new ones.

    Parameters
    ----------
    n_new : int
        N >= 0, public. A number computed from the class counts would be a release of its own.
    k : int
        Neighbours, at least 1.
    n_minority : int, optional
        Public floor on the number of minority records, above `k`. Without it the stability is computed from their
        private number, less one.
    bases : {"cyclic", "random"}
        Minority record t mod n1 in row order, as in the paper, or uniform, as in imbalanced-learn.
    interpolation : {"coordinate", "sample"}
        One weight a coordinate, as the paper prints (a point of the box), or one for the whole record (of the segment).
    neighbouring : NeighboringRelation
        Of `stability_`; nothing else depends on it.
    minority : label
        Public. Every other label counts as majority.
    random_state : None, int or numpy.random.Generator
        Whoever knows the seed knows the neighbours, and the guarantee is void.

    Attributes
    ----------
    stability_ : ChangedRows
        `stability_.amplify(learner.guarantee_)` is the guarantee of the pipeline.
    base_indices_, neighbour_indices_ : ndarray (n_new,)
        Rows of X behind each new row.

    Raises
    ------
    ValueError
        From `fit_resample`: a parameter out of range; X not numeric or not finite; X and y of different lengths.

    Warns
    -----
    PrivacyLeakWarning
        Without `n_minority`.

    Notes
    -----
    Too few minority records are no error, which would tell their number: with at most k of them all others are
    neighbours, a single one is its own neighbour, and without any no row is added. `stability_` does not cover this.

    Source: Rosenblatt et al. 2025, Algorithm 2; Chawla, Bowyer, Hall and Kegelmeyer 2002.

    >>> sampler = StableSMOTE(3, k=1, n_minority=2, random_state=0)
    >>> X_new, y_new = sampler.fit_resample([[0.0], [1.0], [2.0]], [0, 1, 1])
    >>> y_new.tolist(), sampler.base_indices_.tolist(), sampler.stability_.maximum
    ([0, 1, 1, 1, 1, 1], [1, 2, 1], 4)
    """

    def __init__(
        self,
        n_new,
        k=5,
        *,
        n_minority=None,
        bases="cyclic",
        interpolation="coordinate",
        neighbouring=REPLACE_ONE,
        minority=1,
        random_state=None,
    ):
        self.n_new = n_new
        self.k = k
        self.n_minority = n_minority
        self.bases = bases
        self.interpolation = interpolation
        self.neighbouring = neighbouring
        self.minority = minority
        self.random_state = random_state

    def fit_resample(self, X, y):
        """Resampled X (n + n_new, d) and y (n + n_new,).

        Parameters
        ----------
        X : array-like (n, d)
        y : array-like (n,)
        """
        self._check_parameters()
        check_classification_targets(y)
        X, y = check_X_y(X, y, dtype=np.float64)
        self.n_features_in_ = X.shape[1]
        members = np.flatnonzero(y == self.minority)
        self.stability_ = self._stability(len(members))
        rng = np.random.default_rng(self.random_state)
        jitter = rng.random(len(X))[members]
        self.base_indices_, self.neighbour_indices_ = self._pairs(X, members, jitter, rng)
        weights = rng.random((len(self.base_indices_), X.shape[1] if self.interpolation == "coordinate" else 1))
        base, neighbour = X[self.base_indices_], X[self.neighbour_indices_]
        new = (1 - weights) * neighbour + weights * base
        return np.vstack([X, new]), np.concatenate([y, np.full(len(new), self.minority, dtype=y.dtype)])

    def _check_parameters(self):
        floor = None if self.n_minority is None else check_integer("n_minority", self.n_minority, low=2)
        check_integer("n_new", self.n_new, low=0)
        check_integer("k", self.k, low=1, high=None if floor is None else floor - 1)
        check_choice("bases", self.bases, BASES)
        check_choice("interpolation", self.interpolation, ("coordinate", "sample"))
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))

    def _stability(self, n_members) -> ChangedRows:
        sizes = {"d": self.n_features_in_, "k": self.k, "n_new": self.n_new}
        laws = {"neighbouring": self.neighbouring, "bases": self.bases}
        if self.n_minority is not None:
            return changed_rows(n_minority=self.n_minority, **sizes, **laws)
        warnings.warn(
            "the stability depends on the private number of minority records", PrivacyLeakWarning, stacklevel=3
        )
        assumed = "number of minority records public (the stability was computed from it)"
        if n_members - 1 <= self.k:  # too few for `changed_rows`: every new row may change
            certain = self.n_new + int(self.neighbouring == REPLACE_ONE)
            return ChangedRows(self.neighbouring, certain, 0, 1.0, (assumed, *_ASSUMES))
        rows = changed_rows(n_minority=n_members - 1, **sizes, **laws)
        return dataclasses.replace(rows, assumes=(*rows.assumes, assumed))

    def _pairs(self, X, members, jitter, rng) -> tuple[np.ndarray, np.ndarray]:
        n = len(members)
        if n == 0:
            return members, members
        turns = np.arange(self.n_new) % n if self.bases == "cyclic" else rng.integers(n, size=self.n_new)
        if n == 1:
            return members[turns], members[turns]
        k = min(self.k, n - 1)
        lists = neighbour_lists(X[members], k, jitter=jitter)
        return members[turns], members[lists[turns, rng.integers(k, size=self.n_new)]]
