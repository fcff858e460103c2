"""Records that are not one array: read from files that memory does not hold, or on the workers of a cluster.

The risk of a linear classifier is a sum over records, and so is everything that a solver, a step of gradient descent or
a query for marginals and moments wants to know about them: a table of such records has one job, to add up a function
over its blocks (`helpers.erm.risk.Table`), and the mathematics is the same for all. `fit` of `ERMClassifier`,
`ObjectivePerturbationClassifier`, `OutputPerturbationClassifier` and, around the second of them,
`helpers.meta.PrivateLogisticRegression`, of `DPGradientDescentClassifier` and of `PrivateMomentClassifier` takes

* arrays; a large one is never copied, unless bounds or a centre map it, or gradient descent scales it;
* memory maps (`numpy.load(file, mmap_mode="r")`) and `Chunks`, which are read again for every pass, with labels in
  memory: `read_parquet` makes both from a file;
* Dask arrays and data frames, with labels cut in the same way: the blocks stay on the workers. What comes back is sums,
  of gradients, Hessians, moments, and class sizes, and to a minimiser at most an eighth of the records (64 MB) for a
  first approximation.

Minimisers and steps need several passes over the same records, and moments up to five for each class,
so there is no `partial_fit`.

What privacy assumes here: the sums arrive without noise, which the process that called `fit` adds to what is released.
Whoever runs the program, the scheduler and the workers are trusted with the records, as is the network between them
(encrypt it: Dask's `Security`), and they alone may see what is summed; `Guarantee.assumes` says so. Errors say what is
wrong with records and no value of one, and nothing about records raises on a worker, whose log would print its
arguments.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from helpers.erm.risk import Block, Rows, Table, blocks_of, joined
from helpers.validation import check_integer, label_codes

CURATOR = "Dask's scheduler, workers and network trusted: sums and samples of records reach the curator without noise"
FEW = 1 << 18  # entries of a table that is written out as rows
_READ = 1 << 23  # entries read from a file at a time
_LABELS = 1 << 18  # turned into codes at a time
_NUMBERS = "biuf"


class _DaskTable(Table):
    """A `Table` whose blocks are tables on Dask's workers: sums are made there, and added up there in pairs."""

    assumes = (CURATOR,)

    def total(self, function, *arguments, beside=None, kept=None):
        import dask

        found = self._each(lambda part: part.total(function, *arguments, kept=kept))  # what is not summed stays there
        add = dask.delayed(operator.add, pure=False)
        while len(found) > 1:
            found = [add(*found[i : i + 2]) if i + 1 < len(found) else found[i] for i in range(0, len(found), 2)]
        return dask.compute(*found)[0]

    def sample(self, stride):
        import dask

        samples = dask.compute(*self._each(lambda part: part.sample(stride)))
        return joined([block for sample in samples for block in sample.blocks], self.shape[1])

    def fingerprint(self):
        import dask

        return tuple(dask.compute(*self._each(lambda part: b"".join(part.fingerprint()))))

    def _each(self, function):
        import dask

        far = dask.delayed(function, pure=False)
        return [far(part) for part in self.blocks]


class Chunks:
    """Features of records that are read a chunk at a time, and again for every pass: in place of X in `fit`.

    Parameters
    ----------
    read : callable
        Without arguments, to an iterable of arrays or data frames (m, d) of numbers: the same records in the same order
        whenever it is called.
    n_rows, n_features : int
        Of all chunks together. The sizes of chunks do not matter, but for noise that is keyed by an integer.

    >>> from helpers.erm import ERMClassifier
    >>> halves = [np.array([[-1.0], [-0.5]]), np.array([[0.5], [1.0]])]
    >>> X, y = Chunks(lambda: halves, 4, 1), np.array([0, 0, 1, 1])
    >>> ERMClassifier(regularization=0.1).fit(X, y).predict_proba([[1.0]]).round(3)
    array([[0.252, 0.748]])
    """

    def __init__(self, read: Callable[[], Iterable[Any]], n_rows: int, n_features: int):
        self.read = read
        self.shape = (check_integer("n_rows", n_rows, low=0), check_integer("n_features", n_features, low=1))


def read_parquet(file: str | Path, label: str) -> tuple[Chunks, NDArray]:
    """Features of a Parquet file as `Chunks`, and its labels (n,) in memory: what `fit` takes as X and y.

    Parameters
    ----------
    file : path
    label : str
        Name of the column of labels; all others are features, in their order.

    Raises
    ------
    ValueError
        No such column.
    ImportError
        pyarrow, which reads Parquet files (extra `parquet`), is not installed.
    """
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as opened:
        names, n_rows = opened.schema_arrow.names, opened.metadata.num_rows
        if label not in names:
            raise ValueError(f"label must be one of the file's columns, got {label!r}")
        y = opened.read(columns=[label]).column(0).to_numpy()
    features = [name for name in names if name != label]

    def read() -> Iterator[NDArray]:
        with ParquetFile(file) as opened:
            for batch in opened.iter_batches(max(_READ // len(features), 1), columns=features):
                yield np.column_stack([column.to_numpy(zero_copy_only=False) for column in batch.columns])

    return Chunks(read, n_rows, len(features)), y


def is_partitioned(X: Any) -> bool:
    """Whether X comes in parts that this process should not put together.

    >>> is_partitioned(np.zeros((2, 1))), is_partitioned(Chunks(list, 0, 1))
    (False, True)
    """
    return isinstance(X, Chunks | np.memmap) or is_dask(X)


def count_records(X: Any) -> int:
    """Number of records of an array or of parts; those of a Dask collection are counted, as its shape may be unknown.

    >>> count_records(Chunks(list, 7, 1))
    7
    """
    if not is_dask(X):
        return int(X.shape[0])
    import dask

    parts = X[:, 0] if hasattr(X, "rechunk") else X
    return sum(dask.compute(*(dask.delayed(len, pure=False)(part) for part in np.ravel(parts.to_delayed()).tolist())))


def gathered(X: Any) -> Any:
    """`Chunks` or a memory map of few entries as an array, which is quicker; anything else as it is.

    Raises
    ------
    ValueError
        A chunk does not hold finite numbers.
    """
    if not isinstance(X, Chunks | np.memmap) or math.prod(X.shape) > FEW:
        return X
    return np.concatenate([np.empty((0, X.shape[1])), *map(_numbers, _checked_chunks(X).read())])


def table(
    X: Any,
    y: Any,
    classes: Any,
    multiplicity: Any = None,
    make: Callable[[NDArray], Rows] = Rows,
    *,
    fewest: int = 0,
) -> Table:
    """The table of records (X, y) whose rows are made from some of X at a time.

    Parameters
    ----------
    X : ndarray (n, d), Chunks, memory map, or Dask array or data frame
        An array has been checked already.
    y : array (n,), or Dask array or series that is cut like X
    classes : array (K,)
        Public and sorted.
    multiplicity : as y, of int64, or None
    make : callable
        Of an array (m, d) of finite floats, to its `Rows`: the records themselves if left out. With Dask it has to be
        pickled; a ValueError of its own must hold no value of a record.
    fewest : int
        Number of records that parts must have at least.

    Raises
    ------
    ValueError
        X, y or multiplicity is not what is allowed; no message holds a value of a record.
    """
    found = (_dask_table if is_dask(X) else _table_here)(X, y, np.asarray(classes), multiplicity, make)
    if len(found) < fewest:
        raise ValueError("X must have one or more records, got 0 sample(s)")
    return found


# Records in this process


def _table_here(X, y, classes, multiplicity, make) -> Table:
    y = column_or_1d(y, warn=True)
    kind = np.uint8 if len(classes) <= 256 else np.intp
    codes = np.concatenate(
        [np.empty(0, kind)] + [label_codes(y[a : a + _LABELS], classes).astype(kind) for a in range(0, len(y), _LABELS)]
    )
    if len(codes) != X.shape[0]:
        raise ValueError(f"y must hold {X.shape[0]} labels, as many as X has records, got {len(codes)}")
    weights = None if multiplicity is None else multiplicity.astype(float)
    shape = (len(codes), make(np.empty((0, X.shape[1]))).width)
    sizes = _sizes(codes, multiplicity, len(classes))
    if isinstance(X, np.ndarray) and not isinstance(X, np.memmap):
        return Table(list(blocks_of([X], codes, weights, make)), shape, sizes)
    return Table(_Stream(_checked_chunks(X), codes, weights, make), shape, sizes, keeps=False)


@dataclass
class _Stream:
    """Blocks that are made anew on every pass."""

    chunks: Chunks
    codes: NDArray
    weights: NDArray | None
    make: Callable[[NDArray], Rows]

    def __iter__(self) -> Iterator[Block]:
        return blocks_of(map(_numbers, self.chunks.read()), self.codes, self.weights, self.make)


def _checked_chunks(X: Any) -> Chunks:
    """`Chunks`, or a memory map as such, read once to see that they hold what they should."""
    if not isinstance(X, Chunks):
        array, size = X, max(_READ // X.shape[1], 1)
        X = Chunks(lambda: (array[a : a + size] for a in range(0, len(array), size)), *array.shape)
    n_rows = 0
    for chunk in X.read():
        if flaw := _flaw(_numbers(chunk), X.shape[1]):
            raise ValueError(flaw)
        n_rows += len(chunk)
    if n_rows != X.shape[0]:
        raise ValueError(f"X must have {X.shape[0]} records in its chunks, got {n_rows}")
    return X


def _flaw(X: NDArray | None, width: int) -> str:
    """What is wrong with some of the features, in words that do not depend on their values; empty if nothing is."""
    if X is None or X.ndim != 2:
        return "X must hold numbers, a row a record, found entries of another kind"
    if X.shape[1] != width:
        return f"X must have {width} columns in every part, got {X.shape[1]}"
    return "" if np.isfinite(X).all() else "X must hold finite numbers, found NaN or infinity"


def _numbers(part) -> Any:
    """A part of X or of a data frame as floats; None where it holds anything else, which no error shall print."""
    part = np.asarray(part)
    return part.astype(np.float64, copy=False) if part.dtype.kind in _NUMBERS else None


def _sizes(codes, multiplicity, n_classes) -> NDArray[np.int64]:
    """Number of records (K,) of each class, without a copy of the codes in a wider type."""
    numbers = np.broadcast_to(np.int64(1) if multiplicity is None else multiplicity, len(codes))
    return np.array([numbers.sum(where=codes == k) for k in range(n_classes)], dtype=np.int64)


# Records on a cluster


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection."""
    return hasattr(X, "__dask_graph__")


def _dask_table(X, y, classes, multiplicity, make) -> Table:
    import dask

    columns = {"X": X, "y": y} | ({} if multiplicity is None else {"multiplicity": multiplicity})
    for name, column in columns.items():
        if not is_dask(column):
            raise ValueError(f"{name} must be a Dask array or series where X is Dask's, got {type(column).__name__}")
    X = X.rechunk({1: -1}) if hasattr(X, "rechunk") else X
    cut = {name: np.ravel(column.to_delayed()).tolist() for name, column in (columns | {"X": X}).items()}
    if len({len(parts) for parts in cut.values()}) > 1:
        numbers = ", ".join(f"{name} {len(parts)}" for name, parts in cut.items())
        raise ValueError(f"X and y must be cut alike, got these numbers of partitions: {numbers}")
    width, far = X.shape[1], dask.delayed(_part, pure=False)
    rest = cut.get("multiplicity", [None] * len(cut["X"]))
    pairs = dask.persist(*(far(*each, width, classes, make) for each in zip(cut["X"], cut["y"], rest, strict=True)))
    told = dask.delayed(lambda pair: (pair[0], *pair[1].shape, pair[1].sizes), pure=False)
    flaws, numbers_of_rows, widths, sizes = zip(*dask.compute(*map(told, pairs)), strict=True)
    if any(flaws):
        raise ValueError(next(filter(None, flaws)))
    return _DaskTable([pair[1] for pair in pairs], (sum(numbers_of_rows), widths[0]), sum(sizes))


def _part(X, y, multiplicity, width, classes, make) -> tuple[str, Table]:
    """A message about a flawed partition, empty if there is no flaw, and the partition's `Table`; runs on its worker.

    The message is returned, because the worker's log would print the arguments of a function that raises.
    """
    X, y = _numbers(X), np.asarray(y)
    flaw = _flaw(X, width)
    numbers = None if multiplicity is None else np.asarray(multiplicity)
    if not flaw and (y.shape != (len(X),) or (numbers is not None and numbers.shape != (len(X),))):
        flaw = "X, y and multiplicity must be cut alike, found partitions of different lengths"
    elif not flaw and not np.isin(y, classes).all():
        flaw = f"y must hold labels among classes={tuple(classes.tolist())!r}, found others"
    elif not flaw and numbers is not None and (numbers.dtype.kind not in "iu" or (numbers < 1).any()):
        flaw = "multiplicity must be integers of at least 1, found others"
    if not flaw:
        codes = np.searchsorted(classes, y)
        try:
            blocks = list(blocks_of([X], codes, None if numbers is None else numbers.astype(float), make))
        except ValueError as error:
            flaw = str(error)
    if flaw:
        return flaw, Table([], (0, 0), np.zeros(len(classes), np.int64))
    shape = (len(X), make(np.empty((0, width))).width)
    # Nothing is kept between two sums: it would have to travel.
    return "", Table(blocks, shape, _sizes(codes, numbers, len(classes)), keeps=False)
