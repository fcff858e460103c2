"""SMOTE, and what it does to a private learner's guarantee.

`StableSMOTE` interpolates between minority records and reports its stability: the law of the number of the learner's
rows that one changed record changes, as `changed_rows` proves it; `amplification` and `inner_epsilon` turn it into
guarantees. It guarantees stability only, never privacy: the resampled data may be read by a private learner and by
nobody else. Kissing numbers, on which the worst case rests, belong to `helpers.resampling.kissing`.
"""

import warnings
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import Tags, check_array, gen_batches

from helpers.privacy import (
    ADD_REMOVE,
    EXACT_REALS,
    REPLACE_ONE,
    ChangedRows,
    Guarantee,
    PrivacyLeakWarning,
    PrivateMixin,
    noise_assumptions,
)
from helpers.resampling import kissing
from helpers.resampling.base import StableSampler
from helpers.validation import (
    any_value,
    check_boolean,
    check_choice,
    check_integer,
    check_real,
    choice,
    integer,
)

_SPARE_NEIGHBOURS = 2  # candidates fetched beyond the k that are needed, so that most ties end among them
_BLOCK = 256  # points whose distances are recomputed at a time, to stay in the processor's cache
_LARGEST = 2.0**500  # of a coordinate, and one over the smallest difference of two
_WHOLE_ABOVE = 2.0**-448  # floating-point numbers above are multiples of 2^-500

BASES = ("cyclic", "random")
_SOURCE = "SMOTE: Rosenblatt et al. 2025, Theorem 3, corrected"
_ASSUMES = (
    "records that both data sets have are in the same order",
    "tie-breaking jitter independent of the data",
    "secret choice of neighbours",
    "learner blind to the order of records",
    EXACT_REALS,
)


# --- nearest neighbours ---------------------------------------------------------------------------


def neighbour_lists(X: ArrayLike, k: int, *, jitter: ArrayLike | None = None) -> NDArray[np.int64]:
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
    ties = None if jitter is None else check_array(jitter, ensure_2d=False, dtype=np.float64)
    if ties is not None and (ties.shape != (n,) or len(np.unique(ties)) < n):
        raise ValueError(f"jitter must hold {n} distinct numbers, got an array of shape {ties.shape}")
    candidates = min(n, k + 1 + _SPARE_NEIGHBOURS)
    reach, rows = NearestNeighbors(n_neighbors=candidates).fit(X).kneighbors(X)
    distances = np.empty(rows.shape)
    for block in gen_batches(n, _BLOCK):
        own = np.repeat(X[block], candidates, axis=0)
        # The search's own distances may be rounded in a way that depends on the other rows; these are not.
        distances[block] = _squared_distances(own, X[rows[block].ravel()]).reshape(-1, candidates)
    # A point is no neighbour of itself.
    distances[rows == np.arange(n)[:, np.newaxis]] = np.inf
    complete = np.full(n, candidates == n)
    if candidates < n:
        # The search may round inner products: a point that it left out can be this much nearer than it says.
        rounding = 16 * (X.shape[1] + 8) * np.finfo(float).eps * np.max(np.sum(X**2, axis=1))
        complete = reach[:, -1] ** 2 - rounding > np.partition(distances, k - 1, axis=1)[:, k - 1]
    order = _tie_order(X, ties, np.arange(n)[:, np.newaxis], rows, distances)
    lists = np.take_along_axis(rows, order[:, :k], axis=1)
    # Ties, or rounding, may reach beyond the candidates that were fetched: these few points look at all others.
    for i in np.flatnonzero(~complete):
        lists[i] = _neighbours_of(int(i), X, k, ties)
    return lists


def in_degrees(X: ArrayLike, k: int, *, jitter: ArrayLike | None = None) -> NDArray[np.int64]:
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


def in_degree_bound(d: int, k: int, n_minority: int) -> int:
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


def _squarable(X: NDArray) -> NDArray:
    """X with magnitudes above 2^500 cut off and fractions of 2^-500 rounded away, a rule that no record can change.

    Squares of differences then neither overflow nor vanish. Otherwise distinct points far from or close to all others
    would count as coincident, and one record could enter every list.
    """
    X = np.clip(X, -_LARGEST, _LARGEST)
    return np.where(np.abs(X) < _WHOLE_ABOVE, np.rint(X * _LARGEST) / _LARGEST, X)


def _squared_distances(a: NDArray, b: NDArray) -> NDArray:
    """Row by row, from differences: exactly 0 for coincident points, and the same whatever the other rows are."""
    return np.sum(np.square(a - b), axis=1)


def _tie_order(X: NDArray, jitter: NDArray | None, point: Any, neighbours: NDArray, distances: NDArray) -> NDArray:
    """Positions that sort each row of `neighbours` by distance from `point`, ties as in `neighbour_lists`."""
    if jitter is None:
        return np.lexsort((neighbours, distances))
    apart = jitter[point] - jitter[neighbours]
    return np.lexsort((neighbours, np.square(apart), (X[point, 0] - X[neighbours, 0]) * apart, distances))


def _neighbours_of(i: int, X: NDArray, k: int, jitter: NDArray | None) -> NDArray:
    """List of one point whose ties may reach beyond the candidates: among all points."""
    distances = _squared_distances(X, X[i])
    distances[i] = np.inf
    near = np.flatnonzero(distances <= np.partition(distances, k - 1)[k - 1])
    return near[_tie_order(X, jitter, i, near, distances[near])[:k]]


# --- stability ------------------------------------------------------------------------------------


def changed_rows(
    *, d: int, k: int, n_minority: int, n_new: int, neighbouring: NeighboringRelation, bases: str = "cyclic"
) -> ChangedRows:
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
    # Under add/remove the law is about the larger of the two data sets, which has one minority record more than the
    # floor.
    n = n_minority + 1 - replaced
    law: dict[str, Any] = {"inserted": 1 - replaced, "source": _SOURCE}
    degree = in_degree_bound(d, k, n)
    lists = min(2 * degree, n - 1) if replaced else degree
    assumes = (
        f"at least {n_minority} minority records, a public floor",
        f"public: {d} features, {k} neighbours, {n_new} new records",
        *_ASSUMES,
    )
    if check_choice("bases", bases, BASES) == "random":
        return ChangedRows(neighbouring, replaced, n_new, (1 + lists / k) / n, assumes=assumes, **law)
    # Rounded up: the record may be among those that are the base once more.
    own = -(-n_new // n)
    # Rows with the record, or with one of the lists' owners, as base.
    used = (lists + 1) * (n_new // n) + min(lists + 1, n_new % n)
    return ChangedRows(neighbouring, replaced + own, used - own, 1 / k, assumes=assumes, **law)


# --- guarantees -----------------------------------------------------------------------------------


def amplification(epsilon: float | Guarantee, *, delta: float | None = None, **law: Any) -> Guarantee:
    """Guarantee of a private learner on the records and SMOTE's new ones.

    Parameters
    ----------
    epsilon : float or Guarantee
        The learner's, >= 0, under `neighbouring`. A `Guarantee` brings its own delta and event: Gaussian learners are
        accounted for by exact shifts.
    delta : float, optional
        In (0, 1): the epsilon there. Without it, the pure guarantee (of a pure learner).
    law
        d, k, n_minority, n_new, neighbouring and bases, as in `changed_rows`.

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: corrects Rosenblatt et al. 2025, Theorem 3; see `changed_rows` and `ChangedRows.amplify`.

    >>> print(amplification(0.1, d=3, k=5, n_minority=200, n_new=200, neighbouring=REPLACE_ONE))
    (2.698, 0)-DP, replace-one
    """
    rows = changed_rows(**law)
    if not isinstance(epsilon, Guarantee):
        epsilon = Guarantee(check_real("epsilon", epsilon, low=0), 0.0, rows.neighbouring)
    return rows.amplify(epsilon, delta)


def inner_epsilon(epsilon: float, *, delta: float | None = None, **law: Any) -> float:
    """Epsilon to give a pure learner so that the pipeline has `epsilon`: the inverse of `amplification`.

    Parameters
    ----------
    epsilon : float
        Target, > 0.
    delta, law
        As in `amplification`.

    Returns
    -------
    float
        As `ChangedRows.inner_epsilon`.

    Raises
    ------
    ValueError
        A parameter out of range, or no epsilon reaches the target.

    >>> round(inner_epsilon(1.0, d=3, k=5, n_minority=200, n_new=200, neighbouring=REPLACE_ONE), 4)
    0.0379
    """
    return changed_rows(**law).inner_epsilon(epsilon, delta=delta)


# --- the resampler --------------------------------------------------------------------------------


class StableSMOTE(PrivateMixin, StableSampler):
    """SMOTE with a fixed number of new records, distinct points, and a stability that holds.

    Each new record lies between a minority record and one of its k nearest in the minority, chosen uniformly: in the
    box of the two, with a weight for each coordinate, as the paper prints it, and not on their segment. Ties are
    broken by an infinitesimal jitter, drawn for every record and independent of its values (`neighbour_lists`), without
    which the worst case is every list. The output holds the rows of X in their order, then the new ones.

    Parameters
    ----------
    n_new : int
        N >= 0, public. A number computed from the class counts would be a release of its own.
    k : int
        Neighbours, at least 1.
    n_minority : int
        Public floor on the number of minority records, above `k`.
    bases : {"cyclic", "random"}
        Minority record t mod n1 in row order, as in the paper, or uniform, as in imbalanced-learn.
    neighbouring : NeighboringRelation
        Of `stability_`; nothing else depends on it.
    minority : label
        Public. Every other label counts as majority.
    diagnostics : bool
        Whether `diagnostics_` is kept. No guarantee covers it.
    random_state : None or int
        Whoever knows the seed knows the neighbours, and the guarantee is void: see `PrivateMixin`.

    Attributes
    ----------
    stability_ : ChangedRows
        `stability_.amplify(learner.guarantee_)` is the guarantee of the pipeline.
    diagnostics_ : dict
        Only with `diagnostics`, from `fit_resample`: base_indices and neighbour_indices (n_new,), the rows of X behind
        each new row. They are private, and so is every object that has them.
    n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit` and `fit_resample`: a parameter out of range; X not numeric or not finite; X and y of different
        lengths.

    Warns
    -----
    PrivacyLeakWarning
        With `diagnostics`.

    Notes
    -----
    Too few minority records are no error, which would tell their number: with at most k of them all others are
    neighbours, a single one is its own neighbour, and without any no row is added. `stability_` does not cover this.

    Proof: here and enumerated (`helpers.privacy.stability`): how many rows one record changes; nothing is released.

    Source: Rosenblatt et al. 2025, Algorithm 2; Chawla, Bowyer, Hall and Kegelmeyer 2002.

    >>> sampler = StableSMOTE(3, k=1, n_minority=2, random_state=0)
    >>> X_new, y_new = sampler.fit_resample([[0.0], [1.0], [2.0]], [0, 1, 1])
    >>> y_new, all(1 <= x <= 2 for (x,) in X_new[3:]), sampler.stability_.maximum
    ([0, 1, 1, 1, 1, 1], True, 4)
    """

    _accepts: ClassVar[dict] = {"dtype": (np.float64, np.float32)}
    _allowed: ClassVar[dict] = {
        "n_new": integer(low=0, high=None),
        "k": integer(low=1),
        "n_minority": integer(low=2, high=None),
        "bases": choice(*BASES),
        "neighbouring": choice(ADD_REMOVE, REPLACE_ONE),
        "minority": any_value,
        "diagnostics": check_boolean,
    }

    def __init__(
        self,
        n_new,
        k=5,
        *,
        n_minority,
        bases="cyclic",
        neighbouring=REPLACE_ONE,
        minority=1,
        diagnostics=False,
        random_state=None,
    ):
        self.n_new = n_new
        self.k = k
        self.n_minority = n_minority
        self.bases = bases
        self.neighbouring = neighbouring
        self.minority = minority
        self.diagnostics = diagnostics
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def _fit_resample(self, X: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
        rng = self._noise_generator(X, y)
        self._assume(*noise_assumptions(rng))
        points = X.astype(np.float64)
        members = np.flatnonzero(y == self.minority)
        # One draw for each record of the table, so that a record's jitter does not depend on the labels of others.
        jitter = rng.random(len(X))[members]
        bases, neighbours = self._pairs(points, members, jitter, rng)
        self.__dict__.pop("diagnostics_", None)  # of an earlier call
        if self.diagnostics:
            self.diagnostics_ = {"base_indices": bases, "neighbour_indices": neighbours}
            self._assume("diagnostics_ not published")
            warnings.warn(
                "diagnostics_ holds private choices, which no guarantee covers", PrivacyLeakWarning, stacklevel=3
            )
        # A weight for each coordinate: a point of the box between the two records, not of their segment.
        weights = rng.random((len(bases), X.shape[1]))
        new = (1 - weights) * points[neighbours] + weights * points[bases]
        return np.vstack([X, new.astype(X.dtype)]), np.concatenate([y, np.full(len(new), self.minority, dtype=y.dtype)])

    def _assume(self, *assumes: str) -> None:
        """Add to what `stability_` assumes."""
        self.stability_ = replace(self.stability_, assumes=(*self.stability_.assumes, *assumes))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer("k", self.k, low=1, high=self.n_minority - 1)

    def _stability(self, y: NDArray) -> ChangedRows:
        law = {name: getattr(self, name) for name in ("k", "n_minority", "n_new", "neighbouring", "bases")}
        return changed_rows(d=self.n_features_in_, **law)

    def _pairs(
        self, X: NDArray, members: NDArray, jitter: NDArray, rng: np.random.Generator
    ) -> tuple[NDArray, NDArray]:
        """Row numbers (n_new,) of the bases and of the neighbours of the new records; empty without a member."""
        n = len(members)
        if n == 0:
            return members, members
        turns = np.arange(self.n_new) % n if self.bases == "cyclic" else rng.integers(n, size=self.n_new)
        if n == 1:
            return members[turns], members[turns]
        k = min(self.k, n - 1)
        lists = neighbour_lists(X[members], k, jitter=jitter)
        return members[turns], members[lists[turns, rng.integers(k, size=self.n_new)]]
