"""The one shape in which every data set of the book arrives, and what is done to it before a method sees it.

A `Dataset` holds read-only arrays together with the bounds that may be called public and the reason why. Taking rows,
splitting, keeping equal rows together and mapping into the unit ball return new objects that share no writable memory
with the old one. Where the records come from is left to the other modules of this package; what is private about them
is left to `helpers.privacy`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.model_selection import StratifiedGroupKFold, train_test_split

from helpers.validation import check_bounds, check_integer, check_real

# Rows whose coordinates are all -1 or 1 would have norm 1 up to rounding, on either side; this keeps them inside.
_SHRINK = 1 - 1e-12
_MAX_FOLDS = 20


def read_only(values: ArrayLike, dtype: DTypeLike | None = None) -> NDArray:
    """The array itself when nobody can write to it, otherwise a read-only copy."""
    array = np.asarray(values, dtype=dtype)
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
    class_names : tuple of str
        Names of the codes 0, 1, ...
    groups : array of shape (n,) or None
        Records that belong to one person or lesion share a group.

    Raises
    ------
    ValueError
        Shapes that do not fit, values that are not finite, labels that are not codes of `class_names`.

    >>> Dataset("toy", [[0.0], [1.0], [1.0]], [0, 0, 1], ("x",))
    Dataset('toy', n=3, features=1, counts=(2, 1))
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    feature_names: tuple[str, ...]
    bounds: NDArray[np.float64] | None = None
    bounds_basis: str = "none declared"
    class_names: tuple[str, ...] = ("majority", "minority")
    groups: NDArray | None = None

    def __post_init__(self) -> None:
        for field, dtype in (("X", np.float64), ("y", np.int64), ("bounds", np.float64), ("groups", None)):
            value = getattr(self, field)
            object.__setattr__(self, field, None if value is None else read_only(value, dtype))
        for field in ("feature_names", "class_names"):
            object.__setattr__(self, field, tuple(map(str, getattr(self, field))))
        if self.X.ndim != 2:
            raise ValueError(f"X must be an array of shape (n, d), got shape {self.X.shape}")
        for field in ("y", "groups"):
            value = getattr(self, field)
            if value is not None and value.shape != (self.n,):
                raise ValueError(f"{field} must be an array of shape {(self.n,)}, got shape {value.shape}")
        if len(self.feature_names) != self.n_features:
            raise ValueError(f"feature_names must be {self.n_features} names, got {len(self.feature_names)}")
        if not np.isfinite(self.X).all():
            raise ValueError(f"X must be finite, got NaN or infinite values in {self.name!r}")
        if not np.isin(self.y, range(len(self.class_names))).all():
            raise ValueError(f"y must be codes of {self.class_names}, got codes {np.unique(self.y).tolist()}")
        if self.bounds is not None:
            check_bounds("bounds", self.bounds, self.n_features)

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
    def counts(self) -> NDArray[np.intp]:
        """Records per class, shape (number of classes,)."""
        return np.bincount(self.y, minlength=len(self.class_names))

    @property
    def imbalance_ratio(self) -> float:
        """n0/n1 for two classes, largest over smallest class otherwise; infinite when the denominator is empty."""
        return imbalance_ratio(self.counts.tolist())

    @cached_property
    def n_repeated(self) -> int:
        """Records whose X occurred in an earlier row."""
        return int(pd.DataFrame(self.X).duplicated().sum())

    def take(self, rows: Sequence[int] | NDArray) -> "Dataset":
        """The records at `rows` (positions, repeats allowed, or a mask), in that order.

        >>> Dataset("toy", [[0.0], [1.0], [2.0]], [0, 0, 1], ("x",)).take([2, 0]).X.ravel().tolist()
        [2.0, 0.0]
        """
        X = self.X[rows]
        X.flags.writeable = False  # nobody else holds it, so that it need not be copied once more
        return replace(self, X=X, y=self.y[rows], groups=None if self.groups is None else self.groups[rows])


def imbalance_ratio(counts: Sequence[int]) -> float:
    """n0/n1 for two classes, largest over smallest class otherwise; infinite when the denominator is empty."""
    # Of two classes the second is the minority, even in sets that are balanced.
    above, below = counts if len(counts) == 2 else (max(counts), min(counts))
    return above / below if below else math.inf


def into_ball(X: NDArray, bounds: NDArray, *, radius: float = 1.0) -> NDArray[np.float64]:
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
        message then says how many are needed and how many there are.

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
    # Halves up: Python's `round` would take them to the even number.
    n_minority = math.floor(n / (1 + ratio) + 0.5)
    needed = (n - n_minority, n_minority)
    if min(needed) < 1:
        raise ValueError(f"ratio must leave both classes a record, got ratio {ratio:g} with n = {n}")
    for role, wanted, present in zip(("majority", "minority"), needed, dataset.counts, strict=True):
        if wanted > present:
            raise ValueError(
                f"n = {n} at ratio {ratio:g} needs {wanted} {role} records and {dataset.name!r} has {present}"
            )
    drawn = [rng.choice(np.flatnonzero(dataset.y == label), needed[label], replace=False) for label in (0, 1)]
    return dataset.take(rng.permutation(np.concatenate(drawn)))


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
    # scikit-learn stratifies groups into folds only, so the test part is made of a of b folds, a/b being near the
    # share.
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


def group_repeats(dataset: Dataset) -> Dataset:
    """The same records with equal rows as groups, so that `split` has them all on one side.

    In mammography 3,335 rows repeat an earlier one. A random split puts such rows on both sides, and a model is then
    tested on records that it has learnt from.

    Parameters
    ----------
    dataset : Dataset
        Without groups of its own. Rows are equal if all features are; labels may differ.

    Raises
    ------
    ValueError
        The data set has groups.

    >>> toy = Dataset("toy", np.repeat(np.arange(8.0), 3)[:, None], np.repeat([0, 1], 12), ("x",))
    >>> train, test = split(group_repeats(toy), test_size=0.5, seed=0)
    >>> set(train.X[:, 0]) & set(test.X[:, 0])
    set()
    """
    if dataset.groups is not None:
        raise ValueError(f"dataset must have no groups yet, got {dataset.name!r} with {len(set(dataset.groups))}")
    return replace(dataset, groups=np.unique(dataset.X, axis=0, return_inverse=True)[1])
