"""Oversampling the minority class by copying, and what it does to a private learner's guarantee.

`DeterministicOversampler` copies records and reports its stability: how many records of the learner's input one
changed record can change. It guarantees stability only, never privacy: the resampled data are as private as the
originals, and only a private learner's output on them may be released.
"""

import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from helpers.privacy import ADD_REMOVE, REPLACE_ONE, ChangedRows, PrivacyLeakWarning
from helpers.resampling.base import StableSampler
from helpers.validation import any_value, check_integer

NewRecords = Callable[[NDArray], Mapping[Hashable, int]]
"""From labels (n,) to the number of copies to make in each class."""


# --- copying --------------------------------------------------------------------------------------


def fixed_total(n_new: int, minority: Hashable = 1) -> NewRecords:
    """Always `n_new` copies of minority records.

    >>> fixed_total(5)(np.array([0, 0, 1]))
    {1: 5}
    """
    n_new = check_integer("n_new", n_new, low=0)
    return lambda y: {minority: n_new}


def balance(minority: Hashable = 1) -> NewRecords:
    """n0 - n1 copies (none if that is negative): as many minority records as others.

    >>> balance()(np.array([0, 0, 0, 1]))
    {1: 2}
    """
    return lambda y: {minority: max(len(y) - 2 * int(np.sum(y == minority)), 0)}


def public_multiplicity(multiplicity: int, minority: Hashable = 1) -> NewRecords:
    """`multiplicity` copies of every minority record.

    >>> public_multiplicity(3)(np.array([0, 1, 1]))
    {1: 6}
    """
    multiplicity = check_integer("multiplicity", multiplicity, low=0)
    return lambda y: {minority: multiplicity * int(np.sum(y == minority))}


def copies_per_record(y: ArrayLike, new_records: Mapping[Hashable, int]) -> NDArray[np.int64]:
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
            # Nested: with one member fewer nobody gets fewer copies, and with one more nobody gets more.
            copies[members] = n_new // len(members)
            copies[members[: n_new % len(members)]] += 1
    return copies


# --- stability --------------------------------------------------------------------------------------


def substitution_bound(n_new: int, n_minority: int) -> int:
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


class DeterministicOversampler(StableSampler):
    """Copy minority records in a fixed order, and say what that does to privacy.

    Exactly one of `multiplicity` and `n_new` is given. The output holds the rows of X in their order, then the
    copies, as `copies_per_record` counts them. Sparse matrices, texts and missing values are copied as they are.

    Parameters
    ----------
    multiplicity : int, optional
        Copies made of each minority record, >= 0. One record inserts or deletes `multiplicity` + 1 rows under
        add/remove, whatever the data: the sound mode.
    n_new : int or "balance", optional
        Copies made in total: N, or n0 - n1 from the data. The stability then depends on the private n1:
        ceil(N/n1) + 1 substitutions for fixed N; 2 (ceil(N/n1) + 1) + 2 insertions and deletions for "balance",
        since a flipped label also changes N by 2.
    minority : label
        Public. Every other label counts as majority.

    Attributes
    ----------
    stability_ : ChangedRows
        `stability_.amplify(learner.guarantee_)` is the guarantee of the pipeline, `stability_.group_size` its factor.
    n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit` and `fit_resample`: not exactly one of `multiplicity` and `n_new`; out of range; X and y of
        different lengths.

    Warns
    -----
    PrivacyLeakWarning
        With `n_new`: a guarantee computed from `stability_` assumes public class counts. The case n1 = 0 (nothing
        to copy, n records instead of n + N) is outside the fixed-N claim; `stability_` is then that of n1 = 1.

    Source: Rosenblatt et al. 2025, Section 3.1 and Proposition 2.

    >>> sampler = DeterministicOversampler(multiplicity=2)
    >>> X_new, y_new = sampler.fit_resample(np.array([[0.0], [1.0]]), np.array([0, 1]))
    >>> y_new.tolist(), sampler.stability_.group_size
    ([0, 1, 1, 1], 3)
    """

    _accepts: ClassVar[dict] = {"accept_sparse": ["csr", "csc"], "dtype": None, "ensure_all_finite": "allow-nan"}
    _allowed: ClassVar[dict] = dict.fromkeys(["multiplicity", "n_new", "minority"], any_value)

    def __init__(self, multiplicity=None, n_new=None, minority=1):
        self.multiplicity = multiplicity
        self.n_new = n_new
        self.minority = minority

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags

    def _fit_resample(self, X: Any, y: NDArray) -> tuple[Any, NDArray]:
        copies = copies_per_record(y, self._rule()(y))
        rows = np.concatenate([np.arange(len(y)), np.repeat(np.arange(len(y)), copies)])
        return X[rows], y[rows]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._rule()

    def _rule(self) -> NewRecords:
        """The rule that the parameters name; refuses values that name none."""
        if (self.multiplicity is None) == (self.n_new is None):
            raise ValueError(
                f"exactly one of multiplicity and n_new must be given, got {self.multiplicity!r} and {self.n_new!r}"
            )
        if self.multiplicity is not None:
            return public_multiplicity(self.multiplicity, self.minority)
        if isinstance(self.n_new, str) and self.n_new == "balance":
            return balance(self.minority)
        return fixed_total(self.n_new, self.minority)

    def _stability(self, y: NDArray) -> ChangedRows:
        if self.multiplicity is not None:
            return ChangedRows(ADD_REMOVE, inserted=self.multiplicity + 1)
        # Without a minority record the bound would divide by 0; nothing is copied then.
        bound = substitution_bound(self._rule()(y)[self.minority], max(int(np.sum(y == self.minority)), 1))
        assumes = ("class counts public (they set the number of copies)",)
        if self.n_new == "balance":
            leak = "the number of copies, n0 - n1, and their stability depend on the private class counts"
            law = ChangedRows(REPLACE_ONE, inserted=2 * bound + 2, learner_neighbouring=ADD_REMOVE, assumes=assumes)
        else:
            leak = "the stability ceil(N/n1) + 1 depends on the private number n1 of minority records"
            law = ChangedRows(REPLACE_ONE, certain=bound, assumes=assumes)
        warnings.warn(leak, PrivacyLeakWarning, stacklevel=4)
        return law
