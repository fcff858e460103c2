"""The one shape in which every data set of the book arrives, and what is done to it before a method sees it.

A `Dataset` holds read-only arrays together with the bounds that may be called public and the reason why. Taking rows,
splitting and mapping into the unit ball return new objects that share no writable memory with the old one. Where the
records come from is left to the other modules of this package; what is private about them is left to `helpers.privacy`.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedGroupKFold, train_test_split

from helpers.checks import check_integer, check_real

# Rows whose coordinates are all -1 or 1 would have norm 1 up to rounding, on either side; this keeps them inside.
_SHRINK = 1 - 1e-12
_MAX_FOLDS = 20


def _read_only(array: Any, dtype: Any = None) -> np.ndarray:
    """The array itself when nobody can write to it, otherwise a read-only copy."""
    array = np.asarray(array, dtype=dtype)
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Records with labels and what is public about them.

    All arrays are read-only: copy them before changing anything (`torch.tensor(data.X)` copies, `from_numpy` warns).

    Parameters
    ----------
    name : str
    X : array of shape (n, d), float64
    y : array of shape (n,), int64
        Binary: 1 is the minority. Multi-class: codes into `class_names`.
    feature_names : tuple of d str
        `attribute=level` for a one-hot column.
    bounds : array of shape (d, 2) or None
        Lower and upper bound of every feature, written down in the code and never computed from the records.
    bounds_basis : str
        Why the bounds may be called public, or that they are an assumption.
    source, licence : str
    class_names : tuple of str
        Names of the codes 0, 1, ...
    groups : array of shape (n,) or None
        Records that belong to one person or lesion share a group.
    partition : array of shape (n,) or None
        The publisher's own split ("train", "val", "test") where there is one.

    Raises
    ------
    ValueError
        Shapes that do not fit, values that are not finite, labels that are not codes of `class_names`.

    >>> Dataset("toy", [[0.0], [1.0], [1.0]], [0, 0, 1], ("x",))
    Dataset('toy', n=3, features=1, counts=(2, 1))
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    bounds: np.ndarray | None = None
    bounds_basis: str = "none declared"
    source: str = ""
    licence: str = ""
    class_names: tuple[str, ...] = ("majority", "minority")
    groups: np.ndarray | None = None
    partition: np.ndarray | None = None

    def __post_init__(self) -> None:
        fields = {"X": _read_only(self.X, np.float64), "y": _read_only(self.y, np.int64)}
        for optional, dtype in (("bounds", np.float64), ("groups", None), ("partition", None)):
            value = getattr(self, optional)
            fields[optional] = None if value is None else _read_only(value, dtype)
        fields["feature_names"] = tuple(map(str, self.feature_names))
        fields["class_names"] = tuple(map(str, self.class_names))
        for field, value in fields.items():
            object.__setattr__(self, field, value)
        self._check()

    def _check(self) -> None:
        if self.X.ndim != 2:
            raise ValueError(f"X must be an array of shape (n, d), got shape {self.X.shape}")
        for field in ("y", "groups", "partition"):
            value = getattr(self, field)
            if value is not None and value.shape != (self.n,):
                raise ValueError(f"{field} must be an array of shape ({self.n},), got shape {value.shape}")
        if len(self.feature_names) != self.n_features:
            raise ValueError(f"feature_names must be {self.n_features} names, got {len(self.feature_names)}")
        if not np.isfinite(self.X).all():
            raise ValueError(f"X must be finite, got NaN or infinite values in {self.name!r}")
        if self.n and not (self.y.min() >= 0 and self.y.max() < len(self.class_names)):
            raise ValueError(f"y must be codes of {self.class_names}, got codes {np.unique(self.y).tolist()}")
        if self.bounds is not None:
            if self.bounds.shape != (self.n_features, 2):
                raise ValueError(
                    f"bounds must be an array of shape ({self.n_features}, 2), got shape {self.bounds.shape}"
                )
            if not (np.isfinite(self.bounds).all() and (self.bounds[:, 0] <= self.bounds[:, 1]).all()):
                raise ValueError("bounds must be finite with lower <= upper in every row")

    def __repr__(self) -> str:
        counts = tuple(self.counts.tolist())
        return f"Dataset({self.name!r}, n={self.n}, features={self.n_features}, counts={counts})"

    @property
    def n(self) -> int:
        """Number of records."""
        return self.X.shape[0]

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return self.X.shape[1]

    @property
    def counts(self) -> np.ndarray:
        """Records per class, shape (number of classes,)."""
        return np.bincount(self.y, minlength=len(self.class_names))

    @property
    def imbalance_ratio(self) -> float:
        """n0/n1 for two classes, largest over smallest class otherwise; infinite when the denominator is empty."""
        counts = self.counts
        above, below = (counts[0], counts[1]) if counts.size == 2 else (counts.max(), counts.min())
        return float(above / below) if below else math.inf

    @cached_property
    def n_repeated(self) -> int:
        """Records whose X occurred in an earlier row."""
        return int(pd.DataFrame(self.X).duplicated().sum())

    def take(self, rows: Sequence[int] | np.ndarray) -> "Dataset":
        """The records at `rows` (integer positions, repeats allowed), in that order.

        >>> Dataset("toy", [[0.0], [1.0], [2.0]], [0, 0, 1], ("x",)).take([2, 0]).X.ravel().tolist()
        [2.0, 0.0]
        """
        rows = np.asarray(rows)
        if rows.ndim != 1 or (rows.size and not np.issubdtype(rows.dtype, np.integer)):
            raise ValueError(f"rows must be a one-dimensional array of integers, got {rows.dtype} {rows.shape}")
        rows = rows.astype(np.intp)
        per_record = {
            field: value[rows]
            for field in ("X", "y", "groups", "partition")
            if (value := getattr(self, field)) is not None
        }
        for array in per_record.values():
            array.flags.writeable = False
        return replace(self, **per_record)


def into_ball(X: np.ndarray, bounds: np.ndarray, *, radius: float = 1.0) -> np.ndarray:
    """The box of public bounds mapped onto [-1, 1]^d radius / sqrt(d): every row has Euclidean norm at most `radius`.

    Values outside the box are clipped to it first. The map looks at one record at a time and at nothing but the
    bounds, so neighbouring data sets stay neighbouring, under add/remove-one and under replace-one alike. A feature
    whose two bounds coincide becomes 0. The image is shrunk by a relative 1e-12, so that norms stay below `radius` in
    floating point too.

    Parameters
    ----------
    X : array of shape (n, d)
    bounds : array of shape (d, 2)
        Lower and upper bound of each feature, public.
    radius : float

    >>> into_ball(np.array([[5.0], [12.0]]), np.array([[0.0, 10.0]]), radius=2.0).round(6).tolist()
    [[0.0], [2.0]]
    """
    low, high = bounds.T
    # Halves first: the width of a box may overflow where its ends do not.
    half, middle = high / 2 - low / 2, low / 2 + high / 2
    scale = np.divide(1.0, half, out=np.zeros_like(half), where=half > 0)
    return np.clip((np.clip(X, low, high) - middle) * scale, -1, 1) * (_SHRINK * radius / math.sqrt(X.shape[1]))


def unit_ball(dataset: Dataset) -> Dataset:
    """The data set with its rows mapped into the unit ball by its declared bounds; see `into_ball`.

    Raises
    ------
    ValueError
        The data set declares no bounds.

    >>> toy = Dataset("toy", [[0.0, 5.0], [10.0, 99.0]], [0, 1], ("a", "b"), bounds=[[0, 10], [0, 10]])
    >>> unit_ball(toy).X.round(4).tolist()
    [[-0.7071, 0.0], [0.7071, 0.7071]]
    """
    if dataset.bounds is None:
        raise ValueError(
            f"bounds must be declared to map {dataset.name!r} into the unit ball, got None: set public bounds with "
            "dataclasses.replace(dataset, bounds=..., bounds_basis=...)"
        )
    X = into_ball(dataset.X, dataset.bounds)
    X.flags.writeable = False
    return replace(
        dataset,
        X=X,
        bounds=into_ball(dataset.bounds.T, dataset.bounds).T,
        bounds_basis=f"the cube inscribed in the unit ball, image of the declared bounds ({dataset.bounds_basis})",
    )


def _minority_size(n: int, ratio: float) -> int:
    return math.floor(n / (1 + ratio) + 0.5)


def subsample(dataset: Dataset, n: int, ratio: float, rng: np.random.Generator) -> Dataset:
    """Draw `n` records without replacement with imbalance ratio n0/n1 = `ratio`, in random order.

    The minority gets n1 = n/(1 + ratio) records, rounded to the nearest integer (halves up), the majority the rest.
    The result is a function of the class labels of all records: it is part of preparing an experiment, not of a
    private method.

    Parameters
    ----------
    n : int
        Records to draw, at least 2.
    ratio : float
        Wanted n0/n1, positive.

    Raises
    ------
    ValueError
        Bad arguments, more than two classes, a class that would get no record, or a class with too few records; the
        message then says how many are needed, how many there are, and the largest feasible n at this ratio.

    >>> toy = Dataset("toy", np.arange(10.0)[:, None], [0] * 8 + [1] * 2, ("x",))
    >>> subsample(toy, n=5, ratio=4, rng=np.random.default_rng(0)).counts.tolist()
    [4, 1]
    """
    n = check_integer("n", n, low=2)
    ratio = check_real("ratio", ratio, low=0, inclusive="neither")
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng must be a numpy.random.Generator, got {rng!r}")
    if len(dataset.class_names) != 2:
        raise ValueError(f"dataset must have two classes, got {len(dataset.class_names)} in {dataset.name!r}")
    needed = {1: _minority_size(n, ratio)}
    needed[0] = n - needed[1]
    if min(needed.values()) < 1:
        raise ValueError(f"ratio must leave both classes a record, got ratio {ratio:g} with n = {n}")
    for label, role in ((1, "minority"), (0, "majority")):
        if needed[label] > dataset.counts[label]:
            raise ValueError(
                f"n = {n} at ratio {ratio:g} needs {needed[label]} {role} records and {dataset.name!r} has "
                f"{dataset.counts[label]}; the largest feasible n at this ratio is {_largest_n(dataset, ratio)}"
            )
    drawn = [rng.choice(np.flatnonzero(dataset.y == label), needed[label], replace=False) for label in (0, 1)]
    return dataset.take(rng.permutation(np.concatenate(drawn)))


def _largest_n(dataset: Dataset, ratio: float) -> int:
    n0, n1 = dataset.counts.tolist()

    def too_large(n: int) -> bool:
        minority = _minority_size(n, ratio)
        return minority > n1 or n - minority > n0

    # Both class sizes grow with n, so the sizes that are too large form an upper tail.
    return bisect_right(range(n0 + n1 + 1), False, key=too_large) - 1


def split(dataset: Dataset, test_size: float, seed: int) -> tuple[Dataset, Dataset]:
    """Training and test part, stratified by class; records of one group are never on both sides.

    Without groups the test part has ceil(n * test_size) records. With groups, `test_size` is replaced by the nearest
    fraction a/b with b <= 20, the groups are dealt to b stratified folds and a of them form the test part, so its
    share of records and of each class is approximate.

    Parameters
    ----------
    test_size : float
        Share of the records in the test part, in (0, 1).
    seed : int
        Seed of the shuffle; the same seed gives the same split.

    Returns
    -------
    (train, test) : pair of Dataset

    Raises
    ------
    ValueError
        Bad arguments, or a class too small to be on both sides.

    >>> toy = Dataset("toy", np.arange(20.0)[:, None], [0] * 16 + [1] * 4, ("x",))
    >>> [part.counts.tolist() for part in split(toy, test_size=0.25, seed=0)]
    [[12, 3], [4, 1]]
    """
    test_size = check_real("test_size", test_size, low=0, high=1, inclusive="neither")
    seed = check_integer("seed", seed, low=0, high=2**32 - 1)
    if dataset.groups is None:
        train, test = train_test_split(np.arange(dataset.n), test_size=test_size, random_state=seed, stratify=dataset.y)
        return dataset.take(train), dataset.take(test)
    share = Fraction(test_size).limit_denominator(_MAX_FOLDS)
    if not 0 < share < 1:
        raise ValueError(
            f"test_size must be a number in [{1 / _MAX_FOLDS}, {1 - 1 / _MAX_FOLDS}] for grouped records, "
            f"got {test_size!r}"
        )
    folds = StratifiedGroupKFold(n_splits=share.denominator, shuffle=True, random_state=seed)
    parts = [test for _, test in folds.split(dataset.X, dataset.y, dataset.groups)]
    return (
        dataset.take(np.sort(np.concatenate(parts[share.numerator :]))),
        dataset.take(np.sort(np.concatenate(parts[: share.numerator]))),
    )
