"""Named data sets and tables of the reader's own: `load` gives the records, `available` says what there is.

`load` gives the same records for the same name and options on every machine. Named sets are simulated, bundled with
scikit-learn, or read from files that are found or fetched. What is known of a set without loading it stands on its card
(`helpers.data.sets`): category lists, bounds and checksums, so that the encoding of a record never depends on other
records. Rows keep the publisher's order, and label 1 is the minority; shuffling and splitting are left to
`helpers.data.split`.

KDD Cup 1999 and the sets of imbalanced-learn's benchmark (Ding 2011; Zenodo record 61452) are downloaded as the very
files that are checked. Of two kinds no SHA-256 is known, so they are held against their published size: the publisher's
file of `scene`, of which the project knows a rebuilt one, and the tables that come from OpenML through scikit-learn's
fetcher, which must have the published labels too.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets as bundled_sets

from helpers import paths
from helpers.data import files, sets, tables
from helpers.data.dataset import Dataset
from helpers.data.schema import Schema
from helpers.data.sets import card
from helpers.validation import check_choice, check_integer

ZENODO = "https://zenodo.org"
ARCHIVE_URL = f"{ZENODO}/record/61452/files/benchmark-imbalanced-learn.tar.gz"
ARCHIVE = "imblearn/benchmark-imbalanced-learn.tar.gz"
OPENML = "https://www.openml.org"
FIGSHARE = "https://ndownloader.figshare.com"
KDD_URL = f"{FIGSHARE}/files/5976042"  # where scikit-learn takes it from
HAM10000_PICTURES = "ham10000/dermamnist.npz"
HAM10000_PARTS = {"train": 7007, "val": 1003, "test": 2005}
"""Images in each part of the publisher's split, in the order of the rows."""
DENIALS_OF_SERVICE = ("back", "land", "neptune", "pod", "smurf", "teardrop")
_MISSING = "?"  # a level of its own in Adult
# Which class of scikit-learn's bundled sets is told from the rest, and n0/n1 after thinning it (None: as it is).
_BUNDLED = {"breast_cancer": (0, 10), "wine": (2, 10), "digits": (8, None)}


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
        What the set offers: `incomplete` for adult, `n` and `seed` for gaussian_mixture, and for a file of your own
        `schema`, a `Schema` or the path of one (that beside the file if left out).

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
        return _table(name, **options)
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
    wanted = card(name).files
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
    for known in map(card, sets.NAMES):
        folder = files.find(known.files) if known.files else None
        rows.append(
            {
                "name": known.name,
                "n": known.n,
                "features": known.n_features,
                "classes": len(known.schema.class_names),
                "imbalance_ratio": round(known.ratio, 1),
                "where": known.where if folder is None else files.label(folder),
                "licence": known.schema.licence,
            }
        )
    return pd.DataFrame(rows)


# -------------------------------------------------------------------------------------- how each named set is read


def _table(name: str | Path, *, schema: Schema | str | Path | None = None) -> Dataset:
    """A table as a data set, by its schema; see `Schema.dataset`. For experiments: its errors, and all that
    is computed from it, are for those who hold the data.
    """
    file = tables.found(name)
    schema = schema if isinstance(schema, Schema) else tables.schema_of(file, schema)
    return schema.dataset(tables.read(file, quoted_newlines=schema.quoted_newlines), file.name)


def gaussian_mixture(*, n: int = 1000, seed: int = 0) -> Dataset:
    """Two spherical Gaussians in the plane: means (0, 0) and (4, 4), covariance 4 I, minority probability 0.1.

    The mixture of the paper's decision-boundary figure; the AUC of the best classifier is Phi(2). Class counts are
    random, and equal seeds give equal records.

    Parameters
    ----------
    n : int
        Records.
    seed : int

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: Differential Privacy Under Class Imbalance (ICML version), Figure 4 and the paragraph before it.

    >>> gaussian_mixture(seed=0).counts.sum()
    np.int64(1000)
    """
    n = check_integer("n", n, low=1)
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    y = (rng.random(n) < 0.1).astype(np.int64)
    # Standard deviation 2 in each coordinate; the minority's mean is shifted by 4 in both.
    X = 2 * rng.standard_normal((n, 2)) + 4 * y[:, None]
    return card("gaussian_mixture").schema.records(X, y, "gaussian_mixture")


def bundled(name: str) -> Dataset:
    """A set that comes with scikit-learn: one class against the rest, thinned where it would not be rare.

    >>> [bundled(name).counts.tolist() for name in ("breast_cancer", "wine", "digits")]
    [[357, 36], [130, 13], [1623, 174]]
    """
    bunch, (positive, ratio) = getattr(bundled_sets, f"load_{name}")(), _BUNDLED[name]
    rare, others = np.flatnonzero(bunch.target == positive), np.flatnonzero(bunch.target != positive)
    if ratio is not None:  # n1 = n0/ratio, halves up
        rare = np.random.default_rng(0).choice(rare, int(others.size / ratio + 0.5), replace=False)
    rows = np.sort(np.concatenate([others, rare]))
    return card(name).schema.records(bunch.data[rows], bunch.target[rows] == positive, name)


def benchmark(name: str) -> Dataset:
    """A set of imbalanced-learn's benchmark."""
    known = card(name)
    # imbalanced-learn's own client keeps the file there too, so that its cache serves.
    [relative], wanted = known.files, dict[str, str | None](known.files)
    if "rebuilt" in known.schema.facts and files.find(known.files) in (None, paths.data_cache()):
        wanted[relative] = None  # the publisher's file differs from the rebuilt one; its digest is not known

    def download() -> Path:
        folder = files.retrieve(ARCHIVE_URL, ARCHIVE, sha256=None)
        (folder / relative).parent.mkdir(parents=True, exist_ok=True)
        files.extract_member(folder / ARCHIVE, folder / relative)
        if (sha256 := wanted[relative]) is not None:
            files.verify(folder / relative, sha256)
        return folder

    folder = files.find_verified(wanted) or files.fetch(name, wanted, ZENODO, "pooch", download)
    arrays = files.read_npz(folder / relative, {"data": (known.n, known.n_features), "label": (known.n,)})
    return known.schema.records(arrays["data"], arrays["label"] == 1, name)


def _openml(name: str, *, data_id: int, target: str, labels: Sequence[str]) -> pd.DataFrame:
    """A table of OpenML, refused unless it has the published number of rows and the published labels."""
    known, home = card(name), paths.data_cache() / name

    def download() -> pd.DataFrame:
        return bundled_sets.fetch_openml(data_id=data_id, data_home=str(home), n_retries=1).frame

    frame = None
    if (home / "openml").is_dir():
        with suppress(OSError):  # scikit-learn's own cache answers without a network, unless it is incomplete
            frame = download()
    if frame is None:
        frame = files.fetch(name, known.files, OPENML, "scikit-learn's fetch_openml", download)
    if len(frame) != known.n:
        raise files.UnexpectedData(f"data set {name!r} must have {known.n:,} records, got {len(frame):,}")
    if set(frame[target].astype(str)) != set(labels):
        raise files.UnexpectedData(f"labels of {name!r} must be {sorted(labels)}, found others")
    return frame


def adult(*, incomplete: str = "category") -> Dataset:
    """Adult (census income), training and test part joined: 1 = income above 50,000 dollars.

    Six numbers and eight one-hot attributes with the levels of adult.names.

    Parameters
    ----------
    incomplete : {"category", "drop"}
        Records with a missing attribute keep "?" as a level of its own (48,842 x 108), or are dropped
        (45,222 x 105; Chaudhuri, Monteleoni and Sarwate 2011 report 45,220 x 105).
    """
    check_choice("incomplete", incomplete, ("category", "drop"))
    schema, frame = card("adult").schema, _adult_frame()
    if incomplete == "drop":
        frame = frame[~frame.eq(_MISSING).any(axis=1)]
        columns = [replace(c, levels=tuple(level for level in c.levels if level != _MISSING)) for c in schema.columns]
        schema = replace(schema, columns=tuple(columns))
    # The file of the test part has a point after its labels.
    return schema.dataset(frame.assign(income=frame["income"].astype(str).str.removesuffix(".")), "adult")


def _adult_frame() -> pd.DataFrame:
    """The columns of the files and "income", with "?" for what is missing."""
    known = card("adult")
    folder = files.find_verified(known.files)
    if folder is None:
        frame = _openml("adult", data_id=1590, target="class", labels=known.schema.class_names)
        incomplete = [column.name for column in known.schema.columns if _MISSING in column.levels]
        return frame.rename(columns={"class": "income"}).assign(
            **frame[incomplete].astype(object).fillna(_MISSING)  # OpenML has no "?"
        )
    header = known.schema.facts["header"]
    return pd.concat(
        [
            pd.read_csv(folder / relative, names=header, skipinitialspace=True, skiprows=skip, na_filter=False)
            for relative, skip in zip(known.files, (0, 1), strict=True)
        ],
        ignore_index=True,
    )


def kddcup99() -> Dataset:
    """KDD Cup 1999, 10 % part: 494,021 connections, 122 features; 1 = not a denial-of-service attack (20.8 %).

    The task of Chaudhuri, Monteleoni and Sarwate 2011 (positive fraction 0.20 there). Two records in three repeat an
    earlier one.
    """
    known = card("kddcup99")
    [(relative, sha256)] = known.files.items()
    folder = files.find_verified(known.files) or files.fetch(
        "kddcup99", known.files, FIGSHARE, "pooch", lambda: files.retrieve(KDD_URL, relative, sha256=sha256)
    )
    # The file has no header. With the filter off, texts such as "NA" stay as they are.
    frame = pd.read_csv(folder / relative, names=known.schema.facts["header"], na_filter=False)
    denied = frame["label"].str.removesuffix(".").isin(DENIALS_OF_SERVICE)
    return known.schema.dataset(frame.assign(label=np.where(denied, *known.schema.class_names)), "kddcup99")


def electricity() -> Dataset:
    """Electricity prices of New South Wales, 45,312 half hours in order of time: 1 = price goes up (42 %)."""
    known = card("electricity")
    folder = files.find_verified(known.files)
    if folder is None:
        frame = _openml("electricity", data_id=151, target="class", labels=known.schema.class_names)
    else:
        frame = pd.read_csv(folder / next(iter(known.files)))
    return known.schema.dataset(frame, "electricity")


def madelon() -> Dataset:
    """Madelon: 2,600 x 500, artificial, balanced (1 = the publisher's +1); training part first, then validation."""
    known = card("madelon")
    folder = files.find_verified(known.files)
    if folder is None:
        frame = _openml("madelon", data_id=1485, target="Class", labels=("1", "2"))
        return known.schema.records(frame.iloc[:, :-1], frame.iloc[:, -1].astype(str) == "2", "madelon")
    # Records and labels of the training part, then of the validation part.
    parts = [pd.read_csv(folder / relative, sep=r"\s+", header=None) for relative in known.files]
    # Even places hold records, odd ones labels.
    return known.schema.records(pd.concat(parts[::2]), pd.concat(parts[1::2])[0] == 1, "madelon")


def ham10000() -> Dataset:
    """HAM10000 dermatoscopic images at DermaMNIST's size: 10,015 x 2,352 pixel values in [0, 1].

    A row is an image 28 x 28 x 3 in C order (`X.reshape(-1, 28, 28, 3)`). `groups` are the 7,470 lesions: one lesion
    has up to six images, so a record of a privacy claim may be an image or a lesion.
    """
    known, told = card("ham10000"), ham10000_metadata()
    shapes = {f"{part}_images": (n, 28, 28, 3) for part, n in HAM10000_PARTS.items()}
    arrays = files.read_npz(ham10000_folder(known.files) / HAM10000_PICTURES, shapes)
    X = np.concatenate(list(arrays.values())).reshape(known.n, -1) / 255.0
    lesions = np.unique(told["lesion_id"].to_numpy(str), return_inverse=True)[1]
    return known.schema.records(X, told["dx"].map(known.schema.class_names.index), "ham10000", groups=lesions)


def ham10000_metadata() -> pd.DataFrame:
    """What is known of each image, in the row order of `load("ham10000")`: 10,015 rows.

    Returns
    -------
    DataFrame
        Columns image_id, lesion_id, dx, dx_type, age (years, NaN where missing), sex and localization ("unknown" where
        missing). Age and sex belong to a person: not public.

    Raises
    ------
    DatasetUnavailable
        The files are not to be found.

    Source: Tschandl, Rosendahl and Kittler 2018.
    """
    folder = ham10000_folder(card("ham10000").files)
    with np.load(folder / HAM10000_PICTURES) as archive:
        ids = np.concatenate([archive[f"{part}_ids"] for part in HAM10000_PARTS])
    table = pd.read_csv(folder / "ham10000/HAM10000_metadata.csv").set_index("image_id")
    return table.loc[ids].rename_axis("image_id").reset_index()


def ham10000_folder(wanted: Mapping[str, str | None]) -> Path:
    """The folder that holds these files of HAM10000 (relative path -> SHA-256), which have been checked."""
    folder = files.find_verified(wanted)
    if folder is None:
        advice = (
            "get online and make the files, which no client fetches in this form, from the images and the table of "
            "Harvard Dataverse doi:10.7910/DVN/DBW86T: pictures of 200 x 150 pixels, and their central squares, "
            "bicubic to 28 x 28, split as in DermaMNIST"
        )
        raise files.DatasetUnavailable("ham10000", wanted, advice, "no folder holds its files")
    return folder


_LOADERS: dict[str, Callable[..., Dataset]] = {
    "gaussian_mixture": gaussian_mixture,
    **{name: partial(bundled, name) for name in ("breast_cancer", "digits", "wine")},
    **{name: partial(benchmark, name) for name in sets.BENCHMARK},
    "adult": adult,
    "kddcup99": kddcup99,
    "electricity": electricity,
    "madelon": madelon,
    "ham10000": ham10000,
}
