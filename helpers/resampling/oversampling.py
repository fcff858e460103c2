"""Oversampling the minority class by copying, and what it does to a private learner's guarantee.

`DeterministicOversampler` copies records and reports its stability: how many records of the learner's input one
changed record can change; the functions below it measure that distance on small data sets exhaustively. It
guarantees stability only, never privacy: the resampled data are as private as the originals, and only a private
learner's output on them may be released.
"""

import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import binom
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_X_y

from helpers.checks import check_choice, check_integer, check_real
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Guarantee, NeighboringRelation, PrivacyLeakWarning

_NEGLIGIBLE = 1e-15  # tail probability left out of a sum, and added to the result

NewRecords = Callable[[np.ndarray], Mapping[Hashable, int]]
"""From labels (n,) to the number of copies to make in each class."""


# --- copying --------------------------------------------------------------------------------------


def fixed_total(n_new, minority=1) -> NewRecords:
    """Always `n_new` copies of minority records.

    >>> fixed_total(5)(np.array([0, 0, 1]))
    {1: 5}
    """
    n_new = check_integer("n_new", n_new, low=0)
    return lambda y: {minority: n_new}


def balance(minority=1) -> NewRecords:
    """n0 - n1 copies (none if that is negative): as many minority records as others.

    >>> balance()(np.array([0, 0, 0, 1]))
    {1: 2}
    """

    def new_records(y):
        n_minority = int(np.sum(y == minority))
        return {minority: max(len(y) - 2 * n_minority, 0)}

    return new_records


def public_multiplicity(multiplicity, minority=1) -> NewRecords:
    """`multiplicity` copies of every minority record.

    >>> public_multiplicity(3)(np.array([0, 1, 1]))
    {1: 6}
    """
    multiplicity = check_integer("multiplicity", multiplicity, low=0)
    return lambda y: {minority: multiplicity * int(np.sum(y == minority))}


def copies_per_record(y, new_records: Mapping[Hashable, int]) -> np.ndarray:
    """Number of copies made of each record, nested.

    In a class with n_k records and N_k copies to make, each record gets floor(N_k/n_k) copies and the first N_k
    mod n_k in row order one more. Row order is public, and this rule never gives a remaining record fewer copies
    when another leaves its class: that is what bounds the stability. A class without records has nothing to copy.

    Parameters
    ----------
    y : array (n,)
        Labels.
    new_records : mapping from label to N_k

    Returns
    -------
    ndarray (n,) of int64

    >>> copies_per_record([1, 0, 1, 1], {1: 5})
    array([2, 0, 2, 1])
    """
    y = np.asarray(y)
    copies = np.zeros(len(y), dtype=np.int64)
    for label, n_new in new_records.items():
        members = np.flatnonzero(y == label)
        if len(members):
            copies[members] = n_new // len(members)
            copies[members[: n_new % len(members)]] += 1
    return copies


# --- stability ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stability:
    """How far one record of the raw data can move the learner's input.

    Neighbours under `neighbouring` give resampled data that are joined by a chain of at most `factor` steps, each
    a pair of neighbours under `learner_neighbouring`.

    Attributes
    ----------
    factor : int
        Length of the chain.
    neighbouring : NeighboringRelation
        Of the raw data, hence of the whole pipeline.
    learner_neighbouring : NeighboringRelation
        The relation under which the learner must be private.
    data_dependent : bool
        True if `factor` was computed from private counts.
    reason : str
        One sentence: where the factor comes from.

    >>> Stability(3, ADD_REMOVE, ADD_REMOVE, False, "two copies of each").inner_epsilon(1.5)
    0.5
    """

    factor: int
    neighbouring: NeighboringRelation
    learner_neighbouring: NeighboringRelation
    data_dependent: bool
    reason: str

    def amplify(self, guarantee: Guarantee) -> Guarantee:
        """Guarantee of "resample, then learn", from the learner's guarantee on its own input.

        Group privacy for `factor` records. If the factor depends on the data, the result holds only where the
        counts are public, and its `assumes` says so.

        Raises
        ------
        ValueError
            The learner's guarantee is for another relation than `learner_neighbouring`.

        >>> stability = Stability(3, ADD_REMOVE, ADD_REMOVE, False, "two copies of each")
        >>> stability.amplify(Guarantee(0.5, 0.0, ADD_REMOVE)).epsilon
        1.5
        """
        check_choice("guarantee.neighbouring", guarantee.neighbouring, (self.learner_neighbouring,))
        assumed = ("class counts public (they set the number of copies)",) if self.data_dependent else ()
        return dataclasses.replace(
            guarantee.group(self.factor),
            neighbouring=self.neighbouring,
            assumes=guarantee.assumes + assumed,
        )

    def inner_epsilon(self, epsilon) -> float:
        """Budget to give a pure-DP learner so that the pipeline is `epsilon`-DP.

        Raises
        ------
        ValueError
            `epsilon` is not a positive number.

        Source: group privacy for pure differential privacy (Dwork and Roth 2014, Theorem 2.2).
        """
        return check_real("epsilon", epsilon, low=0, inclusive="neither") / self.factor


def substitution_bound(n_new, n_minority) -> int:
    """g = ceil(N/n1) + 1: substitutions that one replaced record causes, N fixed, two classes.

    Sound over all data sets with at least `n_minority` minority records, so a public floor will do. Attained.

    Raises
    ------
    ValueError
        `n_new` negative or `n_minority` below 1.

    Source: Rosenblatt et al. 2025, Proposition 2 (the factor).

    >>> substitution_bound(10, 4)
    4
    """
    n_new = check_integer("n_new", n_new, low=0)
    return -(-n_new // check_integer("n_minority", n_minority, low=1)) + 1


def multiclass_substitution_bound(n_new: Sequence[int], counts: Sequence[int]) -> int:
    """Substitutions that one replaced record causes when N_k copies are made in class k.

    A record that moves from class a to class b takes its own ceil(N_a/n_a) copies out of class a, whose other
    members fill the gap, and in class b, of n_b + 1 records then, ceil(N_b/(n_b + 1)) copies of others make room
    for its own. Hence 1 plus the *sum* over the two classes; the larger of the two alone is exceeded as soon as
    two classes are oversampled.

    Parameters
    ----------
    n_new : sequence of K int
        N_k >= 0, fixed and public.
    counts : sequence of K int
        n_k >= 1 in one of the two data sets.

    Raises
    ------
    ValueError
        Lengths differ, or an entry is out of range.

    Source: corrects the extension in Rosenblatt et al. 2025, Section 6.

    >>> multiclass_substitution_bound([0, 1000, 1000], [5000, 100, 100])
    21
    """
    if len(n_new) != len(counts):
        raise ValueError(f"n_new and counts must have the same length, got {len(n_new)} and {len(counts)}")
    loss = [substitution_bound(n, count) - 1 for n, count in zip(n_new, counts, strict=True)]
    gain = [substitution_bound(n, count + 1) - 1 for n, count in zip(n_new, counts, strict=True)]
    moves = [loss[a] + gain[b] for a in range(len(loss)) for b in range(len(gain)) if a != b]
    return 1 + max([*loss, *moves])


class DeterministicOversampler(BaseEstimator):
    """Copy minority records in a fixed order, and say what that does to privacy.

    Exactly one of `multiplicity` and `n_new` is given. The output holds the rows of X in their order, then the
    copies.

    Parameters
    ----------
    multiplicity : int, optional
        Copies made of each minority record, >= 0. Stability `multiplicity` + 1 under add/remove, whatever the
        data: the sound mode.
    n_new : int or "balance", optional
        Copies made in total: N, or n0 - n1 from the data. The stability then depends on the private n1:
        ceil(N/n1) + 1 substitutions for fixed N; 2 (ceil(N/n1) + 1) + 2 insertions and deletions for "balance",
        since a flipped label also changes N by 2.
    minority : label
        Public. Every other label counts as majority.

    Attributes
    ----------
    stability_ : Stability
    sample_indices_ : ndarray (n_resampled,)
        Row of X behind each row of the output.

    Raises
    ------
    ValueError
        From `fit_resample`: not exactly one of `multiplicity` and `n_new`; out of range; X and y of different
        lengths.

    Warns
    -----
    PrivacyLeakWarning
        With `n_new`: a guarantee computed from `stability_` assumes public class counts. The case n1 = 0 (nothing
        to copy, n records instead of n + N) is outside the fixed-N claim; `stability_` is then that of n1 = 1.

    Source: Rosenblatt et al. 2025, Section 3.1 and Proposition 2.

    >>> sampler = DeterministicOversampler(multiplicity=2)
    >>> X_new, y_new = sampler.fit_resample([[0.0], [1.0]], [0, 1])
    >>> y_new.tolist(), sampler.stability_.factor
    ([0, 1, 1, 1], 3)
    """

    def __init__(self, multiplicity=None, n_new=None, minority=1):
        self.multiplicity = multiplicity
        self.n_new = n_new
        self.minority = minority

    def fit_resample(self, X, y):
        """Resampled X (n_resampled, d) and y (n_resampled,), of the containers' own types.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame (n, d)
        y : array-like (n,)
        """
        rule = self._rule()
        check_classification_targets(y)
        checked, labels = check_X_y(X, y, accept_sparse=["csr", "csc"], dtype=None, ensure_all_finite="allow-nan")
        self.n_features_in_ = checked.shape[1]
        new_records = rule(labels)
        copies = copies_per_record(labels, new_records)
        self.stability_ = self._stability(new_records[self.minority], int(np.sum(labels == self.minority)))
        if self.stability_.data_dependent:
            warnings.warn(self.stability_.reason, PrivacyLeakWarning, stacklevel=2)
        order = np.arange(len(labels))
        self.sample_indices_ = np.concatenate([order, np.repeat(order, copies)])
        X, y = (data if hasattr(data, "shape") else np.asarray(data) for data in (X, y))
        return _safe_indexing(X, self.sample_indices_), _safe_indexing(y, self.sample_indices_)

    def _rule(self) -> NewRecords:
        if (self.multiplicity is None) == (self.n_new is None):
            raise ValueError(
                f"exactly one of multiplicity and n_new must be given, got {self.multiplicity!r} and {self.n_new!r}"
            )
        if self.multiplicity is not None:
            return public_multiplicity(self.multiplicity, self.minority)
        if self.n_new == "balance":
            return balance(self.minority)
        return fixed_total(self.n_new, self.minority)

    def _stability(self, n_new, n_minority) -> Stability:
        if self.multiplicity is not None:
            return Stability(
                self.multiplicity + 1,
                ADD_REMOVE,
                ADD_REMOVE,
                False,
                f"every minority record has {self.multiplicity} copies, a public number",
            )
        bound = substitution_bound(n_new, max(n_minority, 1))
        if self.n_new == "balance":
            return Stability(
                2 * bound + 2,
                REPLACE_ONE,
                ADD_REMOVE,
                True,
                "the number of copies, n0 - n1, and their stability depend on the private class counts",
            )
        return Stability(
            bound,
            REPLACE_ONE,
            REPLACE_ONE,
            True,
            "the stability ceil(N/n1) + 1 depends on the private number n1 of minority records",
        )


def random_oversampling_epsilon(inner_epsilon, *, n_new, n_minority) -> float:
    """Pure epsilon of an `inner_epsilon`-DP learner after *random* oversampling with replacement, exactly.

    N copies are drawn independently and uniformly from the minority records (imbalanced-learn's RandomOverSampler).
    A record is drawn C ~ Bin(N, 1/n1) times, and the pipeline is epsilon-DP for epsilon = log E e^{(1 + C) eps0} =
    eps0 + N log(1 + (e^eps0 - 1)/n1), attained by a learner whose answer is e^eps0 times as likely with every copy.

    Why an average is enough. Pass from one data set to the other row by row: the changed record's own row costs
    eps0. Each of the N drawn rows is the changed record with probability p = 1/n1, and given the other rows the
    learner's event probability varies by at most e^eps0 over the values of this one. With c its mean over the other
    records and f, f' its values at the record and its replacement, ((1 - p) c + p f)/((1 - p) c + p f') <= 1 + p
    (e^eps0 - 1), since c and f' are at least f e^-eps0. If the label changes, the drawn row's law in the other data
    set is that of c alone, and both directions obey the same bound.

    Parameters
    ----------
    inner_epsilon : float
        eps0 >= 0 of the learner, under replace-one.
    n_new : int
        N, fixed and public.
    n_minority : int
        Public lower bound, >= 1, on the number of minority records.

    Raises
    ------
    ValueError
        A number out of range.

    >>> round(random_oversampling_epsilon(0.1, n_new=400, n_minority=40), 4)
    1.1503
    """
    inner_epsilon = check_real("inner_epsilon", inner_epsilon, low=0)
    n_new = check_integer("n_new", n_new, low=0)
    n_minority = check_integer("n_minority", n_minority, low=1)
    return inner_epsilon + n_new * math.log1p(math.expm1(inner_epsilon) / n_minority)


def random_oversampling_delta(epsilon, inner: Guarantee, *, n_new, n_minority) -> float:
    """delta at `epsilon` of a private learner after *random* oversampling with replacement.

    An upper bound for any learner. Take replace-one neighbours with n1 >= n1' minority records. Draw N members of the
    first data set; in the second take the same records, except that a draw of the replaced record j becomes a draw of
    its replacement (same class) or a fresh uniform draw from the others (label flipped, n1' = n1 - 1). Both samples
    then have their own law, and they differ in 1 + C records, C ~ Bin(N, 1/n1) being the number of draws of j. The
    hockey-stick divergence is jointly convex, so delta(epsilon) <= sum_j P(1 + C = j) delta_j(epsilon), where delta_j
    is what the learner promises to groups of j. A pure learner has delta 0 from `random_oversampling_epsilon` on,
    which this mixture does not see.

    Parameters
    ----------
    epsilon : float
        Of the pipeline, >= 0.
    inner : Guarantee
        The learner's, under replace-one.
    n_new : int
        N, fixed and public.
    n_minority : int
        Public lower bound, >= 1, on the number of minority records.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        `inner` is for another relation; a number out of range.

    >>> round(random_oversampling_delta(1.0, Guarantee(0.1, 0.0, REPLACE_ONE), n_new=100, n_minority=10), 4)
    0.1133
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    n_new = check_integer("n_new", n_new, low=0)
    n_minority = check_integer("n_minority", n_minority, low=1)
    check_choice("inner.neighbouring", inner.neighbouring, (REPLACE_ONE,))
    pure = inner.is_pure and math.isfinite(inner.epsilon)
    if pure and epsilon >= random_oversampling_epsilon(inner.epsilon, n_new=n_new, n_minority=n_minority):
        return 0.0
    draws = binom(n_new, 1 / n_minority)
    most = int(draws.isf(_NEGLIGIBLE))  # beyond it, the learner is taken to promise nothing
    changed = range(1, most + 2)
    deltas = np.array([inner.group(size).delta_at(epsilon) for size in changed])
    return float(min(1.0, draws.pmf(np.arange(most + 1)) @ deltas + draws.sf(most)))


# --- distances and exhaustive search --------------------------------------------------------------


def substitution_distance(a: Iterable[Hashable], b: Iterable[Hashable]) -> int:
    """Fewest records to substitute to turn one multiset of rows into another of the same size.

    Raises
    ------
    ValueError
        The sizes differ.

    >>> substitution_distance("aab", "abc")
    1
    """
    a, b = Counter(a), Counter(b)
    if a.total() != b.total():
        raise ValueError(f"the two data sets must have the same size, got {a.total()} and {b.total()}")
    return (a - b).total()


def insertion_deletion_distance(a: Iterable[Hashable], b: Iterable[Hashable]) -> int:
    """Fewest insertions and deletions to turn one multiset of rows into another.

    >>> insertion_deletion_distance("aab", "bc")
    3
    """
    a, b = Counter(a), Counter(b)
    return (a - b).total() + (b - a).total()


class Records(NamedTuple):
    """A data set reduced to what oversampling sees: labels (n,), and a distinct identity for each record's values."""

    labels: np.ndarray
    ids: np.ndarray


def neighbours(labels, neighbouring, classes=(0, 1)) -> Iterator[Records]:
    """All neighbours of the data set with these labels and ids 0, ..., n - 1, up to renaming of records.

    Replace-one puts a new record (id n) of any class in any place; add/remove deletes any record, or inserts a
    new one of any class in any place.

    >>> [r.labels.tolist() for r in neighbours([0, 1], REPLACE_ONE)]
    [[0, 1], [1, 1], [0, 0], [0, 1]]
    """
    labels = np.asarray(labels)
    n = len(labels)
    ids = np.arange(n)
    if neighbouring == REPLACE_ONE:
        for place in range(n):
            for label in classes:
                yield Records(_put(labels, place, label), _put(ids, place, n))
        return
    for place in range(n):
        yield Records(np.delete(labels, place), np.delete(ids, place))
    for place in range(n + 1):
        for label in classes:
            yield Records(np.insert(labels, place, label), np.insert(ids, place, n))


def worst_case(
    labels,
    new_records: NewRecords,
    *,
    neighbouring=REPLACE_ONE,
    distance=substitution_distance,
    extras="nested",
    classes=(0, 1),
) -> int:
    """Largest distance of the oversampled data sets over all neighbours of a small one.

    Neighbours that leave an oversampled class without records are passed over: there is nothing to copy, and the
    sizes differ.

    Parameters
    ----------
    labels : array (n,)
        At least one record in each oversampled class.
    new_records : callable
        `fixed_total(N)`, `balance()`, `public_multiplicity(m)`, or any other function from labels to copies per
        class.
    neighbouring : NeighboringRelation
        Of the raw data.
    distance : callable
        `substitution_distance` or `insertion_deletion_distance`.
    extras : {"nested", "independent"}
        Who gets the N mod n1 extra copies: the first in row order, or any, chosen without regard to the other
        data set. The worst choice for the latter is the first records in one data set and the last in the other.

    Raises
    ------
    ValueError
        Unknown `extras`.

    >>> worst_case([0, 1, 1, 1], fixed_total(4)), substitution_bound(4, 3)
    (3, 3)
    >>> worst_case([0, 1, 1, 1, 1], fixed_total(2), extras="independent"), substitution_bound(2, 4)
    (3, 2)
    """
    check_choice("extras", extras, ("nested", "independent"))
    labels = np.asarray(labels)
    here = _oversampled(Records(labels, np.arange(len(labels))), new_records)
    worst = 0
    for neighbour in neighbours(labels, neighbouring, classes):
        oversampled_classes = [label for label, n_new in new_records(neighbour.labels).items() if n_new]
        if not np.isin(oversampled_classes, neighbour.labels).all():
            continue
        there = _oversampled(neighbour, new_records, last_first=extras == "independent")
        worst = max(worst, distance(here, there))
    return worst


def _oversampled(records, new_records, *, last_first=False) -> list[int]:
    labels = records.labels[::-1] if last_first else records.labels
    copies = copies_per_record(labels, new_records(labels))
    return np.repeat(records.ids, 1 + (copies[::-1] if last_first else copies)).tolist()


def _put(values, place, value) -> np.ndarray:
    changed = values.copy()
    changed[place] = value
    return changed
