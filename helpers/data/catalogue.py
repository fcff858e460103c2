"""Named data sets and tables of the reader's own: `load` gives the records, `available` says what there is.

`load` gives the same records for the same name and options on every machine. What is known of a set without loading it
stands on its card (`helpers.data.sets`); reading, checking and downloading are left to the modules beside it.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import paths
from helpers.data import files, loaders, sets, tables
from helpers.data.dataset import Dataset

_LOADERS: dict[str, Callable[..., Dataset]] = {
    "gaussian_mixture": loaders.gaussian_mixture,
    **{name: partial(loaders.bundled, name) for name in ("breast_cancer", "digits", "wine")},
    **{name: partial(loaders.benchmark, name) for name in sets.BENCHMARK},
    "adult": loaders.adult,
    "kddcup99": loaders.kddcup99,
    "electricity": loaders.electricity,
    "madelon": loaders.madelon,
    "ham10000": loaders.ham10000,
}


def load(name: str | Path, **options: Any) -> Dataset:
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
        What the set offers: `incomplete` for adult, `n` and `seed` for gaussian_mixture.

    Raises
    ------
    ValueError
        Unknown name (the message lists the names and the closest one) or an option out of range; of a file, that it or
        its schema cannot be used.
    TypeError
        An option that the set does not have.
    DatasetUnavailable
        No folder has the files and they cannot be fetched; raised within a few seconds when there is no network.
    ChecksumMismatch
        A file is there, or is served, but is not the expected one.
    UnexpectedData
        Its base class: data without a known SHA-256 have another size or other labels than published.

    >>> load("gaussian_mixture", n=200, seed=3).X.shape
    (200, 2)
    """
    if tables.is_table(name):
        return tables.load(name, **options)
    return _LOADERS[sets.file(name).stem](**options)  # a name that is unknown is refused with the closest one


def is_available(name: str | Path) -> bool:
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
    wanted = sets.card(name).files
    return not wanted or files.find(wanted) is not None or (paths.data_cache() / name / "openml").is_dir()


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
    rows = []
    for card in map(sets.card, sets.NAMES):
        folder = files.find(card.files) if card.files else None
        rows.append(
            {
                "name": card.name,
                "n": card.n,
                "features": card.n_features,
                "classes": len(card.schema.class_names),
                "imbalance_ratio": round(card.ratio, 1),
                "where": card.where if folder is None else files.label(folder),
                "licence": card.schema.licence,
            }
        )
    return pd.DataFrame(rows)
