"""How records are counted: each attribute as one of finitely many codes, all of them public.

A `Schema` says what the cells of a file may hold and makes numbers of them (`helpers.data.schema`); a `Domain` turns
such numbers into codes and codes back into records: intervals are cut into bins, categories are numbered, and the
columns of a one-hot block are one attribute again. It never looks at records itself; building one from private records,
with noise, is left to `helpers.synthesis`.
"""

import io
import pickle
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from helpers.data.dataset import Dataset
from helpers.validation import check_choice, check_classes, check_integer, check_real, label_codes

_MOST_BINS = 10**6
_MOST_CELLS = 10**8


@dataclass(frozen=True)
class _PickledByContent:
    """Equal objects have equal pickles, which the noise of a seeded fit is keyed by.

    An ordinary pickle tells two fields that hold one object from two that hold equal ones; with its option `fast` the
    pickler leaves that out. The types of levels and labels count: they are those of the samples.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        content = io.BytesIO()
        pickler = pickle.Pickler(content, protocol=4)
        pickler.fast = True
        pickler.dump([getattr(self, entry.name) for entry in fields(self) if entry.init])
        return _restored, (type(self), content.getvalue())


def _restored(kind: type, content: bytes) -> Any:
    return kind(*pickle.loads(content))


@dataclass(frozen=True)
class Attribute(_PickledByContent):
    """One attribute of the records; made by `real`, `integer`, `categorical` or `one_hot`.

    Parameters
    ----------
    name : str
    kind : {"real", "integer", "categorical", "one-hot"}
    columns : tuple of int
        Its columns in X: one, or those of the one-hot block.
    edges : tuple of float
        Ends of the bins of a real or integer attribute, increasing; a bin holds its lower end.
    levels : tuple
        Values of a categorical attribute, or names of the columns of a one-hot block.

    Attributes
    ----------
    size : int
        Number of codes.

    Raises
    ------
    ValueError
        Edges that do not increase, fewer than one level, or levels that repeat.

    >>> age = Attribute.integer("age", 0, 18, 20, n_bins=8)
    >>> age.size, age.encode(np.array([[17], [19], [99]])).tolist()
    (3, [0, 1, 2])
    """

    name: str
    kind: str
    columns: tuple[int, ...]
    edges: tuple[float, ...] = ()
    levels: tuple[Hashable, ...] = ()
    size: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("real", "integer", "categorical", "one-hot"))
        object.__setattr__(self, "columns", tuple(check_integer("columns", column, low=0) for column in self.columns))
        object.__setattr__(self, "edges", tuple(float(edge) + 0.0 for edge in self.edges))  # -0.0 becomes 0.0
        # Python's own values for NumPy's numbers and texts, so that equal levels have equal pickles.
        plain = (level.item() if isinstance(level, np.generic) else level for level in self.levels)
        object.__setattr__(self, "levels", tuple(plain))
        if self.kind in ("real", "integer"):
            edges = np.asarray(self.edges, dtype=float)
            if edges.size < 2 or not np.isfinite(edges).all() or (edges.size > 2 and not (np.diff(edges) > 0).all()):
                raise ValueError(f"edges of {self.name!r} must be two or more increasing numbers, got {self.edges!r}")
        elif not self.levels or len(set(self.levels)) < len(self.levels):
            raise ValueError(f"levels of {self.name!r} must be one or more different values, got {self.levels!r}")
        object.__setattr__(self, "size", len(self.levels) or len(self.edges) - 1)

    @classmethod
    def real(cls, name: str, column: int, low: float, high: float, *, n_bins: int = 16) -> "Attribute":
        """Numbers in [low, high], in bins of one width; what is outside counts as the nearest end."""
        low, high = check_real("low", low), check_real("high", high, low=low)
        n_bins = check_integer("n_bins", n_bins, low=1, high=_MOST_BINS) if low < high else 1
        return cls(name, "real", (column,), tuple(np.linspace(low, high, n_bins + 1).tolist()))

    @classmethod
    def integer(cls, name: str, column: int, low: int, high: int, *, n_bins: int = 16) -> "Attribute":
        """Whole numbers from low to high, each in a bin of its own, or several in one where there are too many."""
        low, high = check_integer("low", low), check_integer("high", high, low=low)
        n_bins = min(check_integer("n_bins", n_bins, low=1, high=_MOST_BINS), high - low + 1)
        # Edges lie halfway between whole numbers, so that no value of the attribute lies on one.
        edges = np.round(np.linspace(low, high + 1, n_bins + 1)) - 0.5
        return cls(name, "integer", (column,), tuple(edges.tolist()))

    @classmethod
    def categorical(cls, name: str, column: int, levels: Sequence[Hashable]) -> "Attribute":
        """One of the values `levels`, as they stand in the column."""
        return cls(name, "categorical", (column,), levels=tuple(levels))

    @classmethod
    def one_hot(cls, name: str, columns: Sequence[int], levels: Sequence[str]) -> "Attribute":
        """A block of columns of which one is 1 and the others are 0; `levels` names them."""
        if len(columns) != len(levels):
            raise ValueError(f"levels of {name!r} must be {len(columns)} names, one a column, got {len(levels)}")
        return cls(name, "one-hot", tuple(columns), levels=tuple(levels))

    def encode(self, X: NDArray) -> NDArray[np.intp]:
        """Codes (n,) of the attribute's columns in X (n, d).

        Raises
        ------
        ValueError
            A number that is not finite, a value outside a public list of categories, or a one-hot block without exactly
            one 1: no guarantee is about such a record.
        """
        if self.kind == "categorical":
            codes = pd.Index(self.levels).get_indexer(pd.Index(X[:, self.columns[0]]))
            if (codes < 0).any():
                raise ValueError(f"X must hold categories of {self.name!r} among {self.levels!r}, found others")
            return codes
        try:
            block = X[:, list(self.columns)].astype(float)
        except (TypeError, ValueError, OverflowError):  # NumPy's own error would repeat a cell, which is private
            raise ValueError("X must hold numbers in real, integer and one-hot attributes, found others") from None
        if self.kind == "one-hot":
            if not (np.isin(block, (0, 1)) & (block.sum(axis=1, keepdims=True) == 1)).all():
                raise ValueError(f"X must have one 1 and else 0 in the columns of {self.name!r}, found other rows")
            return block.argmax(axis=1)
        if not np.isfinite(block).all():
            raise ValueError("X must be finite in real and integer attributes, got NaN or infinite values")
        # Inner edges only: whatever lies beyond the ends falls into the first or the last bin.
        return np.searchsorted(self.edges[1:-1], block[:, 0], side="right")

    def decode(self, codes: NDArray, rng: np.random.Generator) -> NDArray:
        """Values (n, number of columns) for codes (n,), uniform inside a bin."""
        if self.kind == "one-hot":
            return np.eye(self.size)[codes]
        if self.levels:
            # An array of several types would turn numbers into texts.
            are_numbers = np.asarray(self.levels).dtype.kind in "biuf"
            return np.array(self.levels, dtype=None if are_numbers else object)[codes][:, None]
        low, high = np.array(self.edges)[codes], np.array(self.edges)[codes + 1]
        values = low + rng.uniform(size=len(codes)) * (high - low)
        if self.kind == "integer":
            # A draw at an end of its bin could round to a whole number of the next one.
            values = np.clip(np.rint(values), low + 0.5, high - 0.5)
        return values[:, None]


@dataclass(frozen=True)
class Domain(_PickledByContent):
    """What records may look like: their attributes and the set of labels, all of it public.

    Parameters
    ----------
    attributes : sequence of Attribute
        Their columns are 0, ..., d - 1, each once.
    classes : sequence of labels
        Two or more, all numbers or all texts; sorted.
    basis : str
        Why all this may be called public. A guarantee repeats it.

    Attributes
    ----------
    sizes : tuple of int
        Number of codes of each attribute, and of the label, which is last.
    n_features : int
        Number of columns of X.

    Raises
    ------
    ValueError
        Columns that are missing or named twice, labels that are fewer than two, equal or of different types, or more
        cells than could be counted in memory.

    >>> domain = Domain([Attribute.real("mass", 0, 0.0, 4.0, n_bins=2)], classes=("no", "yes"))
    >>> codes = domain.encode([[3.5], [0.5]], ["yes", "no"])
    >>> codes.tolist(), domain.sizes
    ([[1, 1], [0, 0]], (2, 2))
    >>> X, y = domain.decode(codes, np.random.default_rng(0))
    >>> X.round(1).ravel().tolist(), y.tolist()
    ([3.3, 0.5], ['yes', 'no'])
    """

    attributes: Sequence[Attribute]
    classes: Sequence[Hashable] = (0, 1)
    basis: str = "none declared"
    sizes: tuple[int, ...] = field(init=False, repr=False)
    n_features: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        object.__setattr__(self, "classes", check_labels(self.classes))
        columns = sorted(column for attribute in self.attributes for column in attribute.columns)
        if not columns or columns != list(range(len(columns))):
            raise ValueError(f"attributes must have the columns 0, ..., d - 1, each once, got {columns}")
        object.__setattr__(self, "n_features", len(columns))
        sizes = [attribute.size for attribute in self.attributes]
        object.__setattr__(self, "sizes", (*sizes, len(self.classes)))
        cells = sum(sizes) * len(self.classes)
        if cells > _MOST_CELLS:  # what a method counts records in; more would not fit into memory
            raise ValueError(
                f"attributes must have at most {_MOST_CELLS:,} codes in all, times the number of classes, got {cells:,}"
            )

    @classmethod
    def from_bounds(
        cls, bounds: ArrayLike, *, classes: Sequence[Hashable] = (0, 1), n_bins: int = 16, basis: str = "none declared"
    ) -> "Domain":
        """Real attributes x1, ..., xd in bins of one width between public bounds (d, 2).

        >>> Domain.from_bounds([[0, 1], [-1, 1]], n_bins=4).sizes
        (4, 4, 2)
        """
        bounds = np.asarray(bounds, dtype=float)
        if bounds.ndim != 2 or bounds.shape[1] != 2:
            raise ValueError(f"bounds must be an array of shape (d, 2), got shape {bounds.shape}")
        attributes = [Attribute.real(f"x{j + 1}", j, *pair, n_bins=n_bins) for j, pair in enumerate(bounds.tolist())]
        return cls(attributes, classes, basis)

    @classmethod
    def from_dataset(cls, dataset: Dataset, *, n_bins: int = 16) -> "Domain":
        """The domain of a data set of this package, from its declared bounds and names alone.

        Columns called `attribute=level` become one attribute; one that is alone is 0 or 1.

        Parameters
        ----------
        dataset : Dataset
            With bounds; its records are not looked at.
        n_bins : int
            Bins of a real attribute.

        Raises
        ------
        ValueError
            No bounds.
        """
        if dataset.bounds is None:
            raise ValueError(f"dataset must declare public bounds, got none in {dataset.name!r}")
        blocks: dict[str, dict[int, str]] = {}  # columns called `attribute=level` together, all others alone
        for column, feature in enumerate(dataset.feature_names):
            name, _, level = feature.partition("=")
            blocks.setdefault(name, {})[column] = level
        attributes = []
        for name, levels in blocks.items():
            column, level = next(iter(levels.items()))
            if len(levels) > 1:
                attributes.append(Attribute.one_hot(name, tuple(levels), tuple(levels.values())))
            elif level:  # one of two
                attributes.append(Attribute.integer(f"{name}={level}", column, 0, 1))
            else:
                attributes.append(Attribute.real(name, column, *dataset.bounds[column].tolist(), n_bins=n_bins))
        return cls(attributes, tuple(range(len(dataset.class_names))), dataset.bounds_basis)

    def encode(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.intp]:
        """Codes (n, number of attributes + 1) of records X (n, d) with labels y (n,); the label comes last.

        Numbers outside the bounds are clipped. Raises ValueError for another number of columns, numbers that are not
        finite, a category or a label that the domain does not have.
        """
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have {self.n_features} columns, as the domain, got shape {X.shape}")
        label = label_codes(np.asarray(y), np.array(self.classes))
        return np.column_stack([*(attribute.encode(X) for attribute in self.attributes), label])

    def decode(self, codes: ArrayLike, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
        """Records X (n, d) and labels y (n,) with these codes (n, number of attributes + 1).

        Parameters
        ----------
        codes : array of int
        rng : numpy.random.Generator
            Draws the place inside a bin, uniformly; need not be secret.

        Returns
        -------
        (X, y)
            X is float64 where all categories are numbers, else of dtype object.
        """
        codes = np.asarray(codes)
        parts = [attribute.decode(codes[:, j], rng) for j, attribute in enumerate(self.attributes)]
        X = np.empty((len(codes), self.n_features), dtype=np.result_type(np.float64, *(part.dtype for part in parts)))
        for attribute, part in zip(self.attributes, parts, strict=True):
            X[:, list(attribute.columns)] = part
        return X, np.array(self.classes)[codes[:, -1]]


def check_labels(classes: Any) -> tuple[Hashable, ...]:
    """Sorted labels of a public set of classes, as Python's own values.

    Raises
    ------
    ValueError
        Fewer than two, equal ones, or labels of different types, which have no order.

    >>> check_labels(["yes", "no"])
    ('no', 'yes')
    """
    kinds = {np.asarray(label).dtype.kind for label in np.asarray(classes, dtype=object).flat}
    if len(kinds) > 1 and not kinds <= set("biuf"):
        raise ValueError(f"classes must be all numbers or all texts, got {classes!r}")
    return tuple(check_classes("classes", classes).tolist())
