"""Records that are not one array: read from files that memory does not hold, or on the workers of a cluster.

The risk of a linear classifier is a sum over records, and everything that a solver wants to know about them is one: so
a table of such records has one job, to add up a function over its blocks (`helpers.erm.risk.Table`), and the
mathematics is the same for all. `fit`
of `ERMClassifier`, `ObjectivePerturbationClassifier`, `OutputPerturbationClassifier` and, around the second of them,
`helpers.meta.PrivateLogisticRegression` takes

* arrays; a large one is never copied, unless bounds or a centre map it;
* memory maps (`numpy.load(file, mmap_mode="r")`) and `Chunks`, which are read again for every pass, with labels in
  memory: `read_parquet` makes both from a file;
* Dask arrays and data frames, with labels cut in the same way: the blocks stay on the workers. What comes back is sums
  of gradients, Hessians and class sizes, and at most an eighth of the records (64 MB) for a first approximation.

A minimiser needs several passes over the same records, so there is no `partial_fit`.

What privacy assumes here: the sums arrive without noise, which is added to the result once. Whoever runs the program,
the scheduler and the workers are trusted with the records, as is the network between them (encrypt it: Dask's
`Security`), and they alone may see what is summed; `Guarantee.assumes` says so. Errors say what is wrong with records
and no value of one, and nothing about records raises on a worker, whose log would print its arguments.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from helpers.checks import check_integer, label_codes
from helpers.erm.risk import Block, LocalTable, Table, block_rows, hashed, joined

CURATOR = "Dask's scheduler, workers and network trusted: sums and samples of records reach the curator without noise"
FEW = 1 << 18  # entries of a table that is written out as rows
_BLOCKS = 32  # read from a file at a time
_LABELS = 1 << 18  # turned into codes at a time
_NARROW = 32  # width from which on one number a record is little beside the record
_NUMBERS = "biuf"


class _DaskTable(Table):
    """Lists of blocks that stay where Dask has put them; what is summed is summed there, two and two."""

    assumes = (CURATOR,)

    def __init__(self, parts, n_rows, width, sizes):
        self._parts, self._n_rows, self.width, self.sizes = parts, n_rows, width, sizes

    def __len__(self):
        return self._n_rows

    def total(self, function, *arguments, beside=None, kept=None):
        import dask

        def of_part(part):
            """Sum over a partition; None of one without records. What is not summed is not sent."""
            found = LocalTable(part.blocks, part.n_rows, 0, keeps=False)
            return found.total(function, *arguments, kept=kept) if part.blocks else None

        def added(one, other):
            return other if one is None else one if other is None else one + other

        found = self._each(of_part)
        add = dask.delayed(added, pure=False)
        while len(found) > 1:
            found = [add(*found[i : i + 2]) if i + 1 < len(found) else found[i] for i in range(0, len(found), 2)]
        total = dask.compute(*found)[0]
        return 0 if total is None else total

    def sample(self, stride):
        import dask

        parts = dask.compute(*self._each(lambda part: [block.every(stride) for block in part.blocks]))
        return joined([block for part in parts for block in part], self.width)

    def fingerprint(self):
        import dask

        return tuple(dask.compute(*self._each(lambda part: b"".join(map(hashed, part.blocks)))))

    def _each(self, function):
        import dask

        far = dask.delayed(function, pure=False)
        return [far(part) for part in self._parts]


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
        No such column, or pyarrow, which reads Parquet files, is not installed.
    """
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ValueError("file needs the package pyarrow, which reads Parquet files (extra `parquet`)") from None
    with ParquetFile(file) as opened:
        names, n_rows = opened.schema_arrow.names, opened.metadata.num_rows
        if label not in names:
            raise ValueError(f"label must be one of the file's columns, got {label!r}")
        y = opened.read(columns=[label]).column(0).to_numpy()
    features = [name for name in names if name != label]
    block = block_rows(len(features))

    def read() -> Iterator[NDArray]:
        with ParquetFile(file) as opened:
            for batch in opened.iter_batches(block * _BLOCKS, columns=features):
                yield np.column_stack([column.to_numpy(zero_copy_only=False) for column in batch.columns])

    return Chunks(read, n_rows, len(features)), y


def is_partitioned(X: Any) -> bool:
    """Whether X comes in parts that this process should not put together.

    >>> is_partitioned(np.zeros((2, 1))), is_partitioned(Chunks(list, 0, 1))
    (False, True)
    """
    return isinstance(X, Chunks | np.memmap) or is_dask(X)


def count_records(X: Any) -> int:
    """Number of records of an array or of parts; that of Dask's is counted where no shape tells it.

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
        A chunk does not hold numbers.
    """
    if not isinstance(X, Chunks | np.memmap) or math.prod(X.shape) > FEW:
        return X
    chunks = _chunks(X)
    _refuse(_flaw(chunks, finite=False))
    return np.concatenate([np.empty((0, X.shape[1])), *map(_numbers, chunks.read())])


def table(X: Any, y: Any, multiplicity: Any, classes: NDArray, make: Callable) -> Table:
    """The table of records (X, y) whose rows are made from some of X at a time.

    Parameters
    ----------
    X : ndarray (n, d), Chunks, memory map, or Dask array or data frame
        An array has been checked already.
    y : array (n,), or Dask array or series that is cut like X
    multiplicity : as y, of int64, or None
    classes : ndarray (K,)
        Public and sorted.
    make : callable
        Of an array (m, d) of finite floats, to its `Rows`; with Dask it has to be pickled.

    Raises
    ------
    ValueError
        X, y or multiplicity is not what is allowed; no message holds a value of a record.
    """
    if is_dask(X):
        return _dask_table(X, y, multiplicity, classes, make)
    codes = _codes(y, classes)
    if len(codes) != X.shape[0]:
        raise ValueError(f"y must hold {X.shape[0]} labels, as many as X has records, got {len(codes)}")
    weights = None if multiplicity is None else multiplicity.astype(float)
    sizes, width = _sizes(codes, multiplicity, len(classes)), make(np.zeros((1, X.shape[1]))).width
    if isinstance(X, np.ndarray) and not isinstance(X, np.memmap):
        return LocalTable(list(_made([X], codes, weights, make)), len(X), width, sizes, width >= _NARROW)
    chunks = _chunks(X)
    _refuse(_flaw(chunks))
    return LocalTable(_Stream(chunks, codes, weights, make), len(codes), width, sizes, keeps=False)


# Records in this process


class _Stream:
    """Blocks that are made anew on every pass."""

    def __init__(self, chunks, codes, weights, make):
        self._chunks, self._codes, self._weights, self._make = chunks, codes, weights, make

    def __iter__(self):
        return _made(map(_numbers, self._chunks.read()), self._codes, self._weights, self._make)


def _made(parts, codes, weights, make) -> Iterator[Block]:
    """Blocks of records that come in parts, in their order."""
    seen = 0
    for X in parts:
        size = block_rows(X.shape[1])
        for a in range(0, len(X), size):
            rows = make(X[a : a + size])
            here = slice(seen, seen + len(rows.base))
            yield Block(rows, codes[here], None if weights is None else weights[here])
            seen = here.stop


def _chunks(X) -> Chunks:
    if isinstance(X, Chunks):
        return X
    size = block_rows(X.shape[1]) * _BLOCKS
    return Chunks(lambda: (X[a : a + size] for a in range(0, len(X), size)), *X.shape)


def _flaw(chunks, finite=True) -> str:
    """What is wrong with the features, in words that do not depend on their values; empty if nothing is."""
    n_rows = 0
    for chunk in chunks.read():
        flaw = _flaw_of(_numbers(chunk), chunks.shape[1], finite)
        if flaw:
            return flaw
        n_rows += len(chunk)
    return "" if n_rows == chunks.shape[0] else f"X must have {chunks.shape[0]} records in its chunks, got {n_rows}"


def _flaw_of(X, width, finite=True) -> str:
    if X is None or X.ndim != 2:
        return "X must hold numbers, a row a record, found entries of another kind"
    if X.shape[1] != width:
        return f"X must have {width} columns in every part, got {X.shape[1]}"
    return "X must hold finite numbers, found NaN or infinity" if finite and not np.isfinite(X).all() else ""


def _refuse(flaw) -> None:
    if flaw:
        raise ValueError(flaw)


def _numbers(part) -> NDArray[np.float64] | None:
    """A part of X or of a data frame as floats; None where it holds anything else, which no error shall print."""
    part = np.asarray(part)
    return part.astype(np.float64, copy=False) if part.dtype.kind in _NUMBERS else None


def _codes(y, classes) -> NDArray:
    y = column_or_1d(y, warn=True)
    kind = np.uint8 if len(classes) <= 256 else np.intp
    parts = (label_codes(y[a : a + _LABELS], classes).astype(kind) for a in range(0, len(y), _LABELS))
    return np.concatenate([np.empty(0, kind), *parts])


def _sizes(codes, multiplicity, n_classes) -> NDArray[np.int64]:
    sizes = np.zeros(n_classes, np.int64)
    for k in range(n_classes):
        of_class = codes == k
        sizes[k] = np.count_nonzero(of_class) if multiplicity is None else multiplicity[of_class].sum()
    return sizes


# Records on a cluster


class _Part(NamedTuple):
    """Records of one partition, on their worker."""

    blocks: list[Block]
    n_rows: int
    sizes: NDArray[np.int64]
    flaw: str


def is_dask(X: Any) -> bool:
    """Whether Dask has it."""
    return hasattr(X, "__dask_graph__")


def _dask_table(X, y, multiplicity, classes, make) -> Table:
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
    parts = dask.persist(*(far(*each, width, classes, make) for each in zip(cut["X"], cut["y"], rest, strict=True)))
    facts = dask.compute(*(dask.delayed(lambda part: part[1:], pure=False)(part) for part in parts))
    _refuse(next((flaw for *_, flaw in facts if flaw), ""))
    sizes = sum((sizes for _, sizes, _ in facts), np.zeros(len(classes), np.int64))
    return _DaskTable(parts, sum(n_rows for n_rows, *_ in facts), make(np.zeros((1, width))).width, sizes)


def _part(X, y, multiplicity, width, classes, make) -> _Part:
    """Blocks of a partition; what is wrong with it is said, not raised."""
    X, y, none = _numbers(X), np.asarray(y), np.zeros(len(classes), np.int64)
    flaw = _flaw_of(X, width)
    numbers = None if multiplicity is None else np.asarray(multiplicity)
    if not flaw and (y.shape != (len(X),) or (numbers is not None and numbers.shape != (len(X),))):
        flaw = "X, y and multiplicity must be cut alike, found partitions of different lengths"
    elif not flaw and not np.isin(y, classes).all():
        flaw = f"y must hold labels among classes={tuple(classes.tolist())!r}, found others"
    elif not flaw and numbers is not None and (numbers.dtype.kind not in "iu" or (numbers < 1).any()):
        flaw = "multiplicity must be integers of at least 1, found others"
    if flaw:
        return _Part([], 0, none, flaw)
    codes = np.searchsorted(classes, y)
    weights = None if numbers is None else numbers.astype(float)
    return _Part(list(_made([X], codes, weights, make)), len(X), _sizes(codes, numbers, len(classes)), "")
