"""Names under which the book's data sets are loaded, and what is known of them without loading.

The table of sizes is part of the code, so that asking what there is reads no data file. `load` gives the same records
for the same name and options on every machine. Reading, checking and downloading are left to the modules beside it.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from helpers import paths
from helpers.checks import check_choice
from helpers.data import benchmark, builtin, files, public, tables
from helpers.data.dataset import Dataset


@dataclass(frozen=True)
class Entry:
    """What is known of a data set without loading it."""

    loader: Callable[..., Dataset]
    n: int
    n_features: int
    ratio: float
    licence: str
    where: str  # when no folder has the files
    classes: int = 2
    files: Mapping[str, str | None] = field(default_factory=dict)


def _benchmark_entry(name: str, spec: benchmark.Benchmark) -> Entry:
    ratio = spec.ratio if spec.n_minority is None else spec.n / spec.n_minority - 1
    loader = partial(benchmark.load_benchmark, name)
    wanted = {spec.relative: spec.sha256}
    return Entry(loader, spec.n, spec.n_features, ratio, benchmark.licence(name), "download", files=wanted)


_CATALOGUE: dict[str, Entry] = {
    "gaussian_mixture": Entry(builtin.gaussian_mixture, 1000, 2, 9.0, "none needed", "simulated"),
    "breast_cancer": Entry(builtin.breast_cancer, 393, 30, 357 / 36, builtin.LICENCE, "bundled"),
    "digits": Entry(builtin.digits, 1797, 64, 1623 / 174, builtin.LICENCE, "bundled"),
    "wine": Entry(builtin.wine, 143, 13, 10.0, builtin.LICENCE, "bundled"),
    **{name: _benchmark_entry(name, spec) for name, spec in benchmark.BENCHMARKS.items()},
    "adult": Entry(
        *(public.adult, 48842, 108, 37155 / 11687, public.UCI_LICENCE, "download"), files=public.ADULT_FILES
    ),
    "kddcup99": Entry(
        *(public.kddcup99, 494021, 122, 391458 / 102563, public.UCI_LICENCE, "download"), files=public.KDD_FILES
    ),
    "electricity": Entry(
        *(public.electricity, 45312, 8, 26075 / 19237, "listed as public", "download"),
        files=public.ELECTRICITY_FILES,
    ),
    "madelon": Entry(*(public.madelon, 2600, 500, 1.0, public.UCI_LICENCE, "download"), files=public.MADELON_FILES),
    "ham10000": Entry(
        *(public.ham10000, 10015, 2352, 6705 / 115, "CC BY-NC 4.0", "by hand", 7), files=public.HAM10000_FILES
    ),
}


def entry(name: Any) -> Entry:
    """What is known of a named set without loading it.

    Raises
    ------
    ValueError
        Unknown name; the message lists the names and the closest one.
    """
    if isinstance(name, str) and name in _CATALOGUE:
        return _CATALOGUE[name]
    close = difflib.get_close_matches(name, _CATALOGUE, n=1) if isinstance(name, str) else []
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ValueError(f"name must be one of {', '.join(_CATALOGUE)}, got {name!r}{hint}")


def load(name: str, **options: Any) -> Dataset:
    """Load a data set by name.

    The files are taken from `$DPBOOK_DATA`, from `../shared/data` beside the project or from the user's cache,
    whichever has them first, and otherwise fetched by the publisher's usual client into the cache. A file whose
    SHA-256 is known is checked. The answer is new on every call and its arrays are read-only.

    Parameters
    ----------
    name : str
        A name of `available()`, or the path of a CSV or Parquet file of your own (`helpers.data.tables`), which is
        also looked for in `$DPBOOK_DATA`.
    **options
        `schema` for a file, the path of its public schema (left out, `my.schema.yaml` beside `my.csv`). Otherwise
        what the set offers: `incomplete` for adult, `target` for kddcup99, `positive` for ham10000, `ratio` and `seed`
        (and `digit`) for the bundled sets, `n`, `d`, `minority`, `distance`, `sd` and `seed` for gaussian_mixture.

    Raises
    ------
    ValueError
        Unknown name (the message lists the names and the closest one), unknown option or a value out of range; of a
        file, that it or its schema cannot be used.
    DatasetUnavailable
        No folder has the files and they cannot be fetched; raised within a few seconds when there is no network.
    ChecksumMismatch
        A file is there, or is served, but is not the expected one.
    UnexpectedData
        Its base class: data without a known SHA-256 have another size or other labels than published.

    >>> load("gaussian_mixture", n=200, seed=3).X.shape
    (200, 2)
    """
    loader = partial(tables.load, name) if tables.is_table(name) else entry(name).loader
    allowed = [p.name for p in inspect.signature(loader).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        check_choice(f"option of {name!r}", option, allowed or ("(none)",))
    return loader(**options)


def outline(name: str) -> Dataset:
    """What is public about a named data set: the data set without its records, for which no data file is opened.

    Raises
    ------
    ValueError
        Unknown name.

    >>> found = outline("mammography")
    >>> found.n, found.n_features, found.class_names
    (0, 6, ('rest', 'calcification'))
    """
    known = entry(name)
    if name in benchmark.BENCHMARKS:
        return benchmark.outline(name)
    return public.outline(name) if known.files else known.loader().take([])


def is_available(name: str) -> bool:
    """Whether a data set can be loaded without a network; no data file is opened.

    Files count where `load` looks for them. A table that scikit-learn's fetcher keeps in the user's cache counts too.

    Raises
    ------
    ValueError
        Unknown name.

    >>> is_available("wine")
    True
    """
    if tables.is_table(name):
        return tables.find(name) is not None
    known = entry(name)
    return not known.files or files.find(known.files) is not None or (paths.data_cache() / name / "openml").is_dir()


def available() -> pd.DataFrame:
    """What can be loaded, with default options; no data file is opened.

    Returns
    -------
    DataFrame
        `name`, `n` records, number of `features` and `classes`, `imbalance_ratio` (n0/n1, or largest over smallest
        class; rounded to one decimal), `where` and `licence`. `where` is "DPBOOK_DATA", "shared" or "cache" for files
        on this machine, "simulated" or "bundled" for what is always there, "download" or "by hand" for what is not.

    >>> available().set_index("name").loc["mammography", ["n", "features", "imbalance_ratio"]].astype(float).tolist()
    [11183.0, 6.0, 42.0]
    """
    rows = [
        {
            "name": name,
            "n": known.n,
            "features": known.n_features,
            "classes": known.classes,
            "imbalance_ratio": round(known.ratio, 1),
            "where": (known.files and files.label(files.find(known.files))) or known.where,
            "licence": known.licence,
        }
        for name, known in _CATALOGUE.items()
    ]
    return pd.DataFrame(rows)
