"""The larger public sets: Adult, KDD Cup 1999, electricity, Madelon and HAM10000.

Category lists, bounds and checksums stand on the cards (`helpers.data.sets`), so that the encoding of a record never
depends on other records. Rows keep the publisher's order and the publisher's split is kept beside them. KDD Cup 1999 is
downloaded as the very file that is checked; tables of OpenML come through scikit-learn's fetcher and are held against
their published size and labels; HAM10000 has no client and has to be placed by hand.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd

from helpers import paths
from helpers.checks import check_choice
from helpers.data import files
from helpers.data.dataset import Dataset
from helpers.data.sets import card

OPENML = "https://www.openml.org"
FIGSHARE = "https://ndownloader.figshare.com"
KDD_URL = f"{FIGSHARE}/files/5976042"  # where scikit-learn takes it from
MAX_KDD_BYTES = 4 * 2**20
KDD_CATEGORIES = {
    "normal": ("normal",),
    "dos": ("back", "land", "neptune", "pod", "smurf", "teardrop"),
    "probe": ("ipsweep", "nmap", "portsweep", "satan"),
    "r2l": ("ftp_write", "guess_passwd", "imap", "multihop", "phf", "spy", "warezclient", "warezmaster"),
    "u2r": ("buffer_overflow", "loadmodule", "perl", "rootkit"),
}
_MISSING = "?"  # a level of its own in Adult
_HAM10000_PARTS = ("train", "val", "test")


def _openml(name: str, *, data_id: int, target: str, labels: Sequence[str]) -> pd.DataFrame:
    """A table of OpenML, refused unless it has the published number of rows and the published labels."""
    from sklearn.datasets import fetch_openml

    known, home = card(name), paths.data_cache() / name

    def download():
        return fetch_openml(data_id=data_id, data_home=str(home), as_frame=True, parser="auto", n_retries=1).frame

    frame = None
    if (home / "openml").is_dir():
        with suppress(OSError):  # scikit-learn's own cache answers without a network, unless it is incomplete
            frame = download()
    if frame is None:
        frame = files.fetch(name, known.files, OPENML, "scikit-learn's fetch_openml", download)
    if target not in frame:
        raise files.UnexpectedData(f"data set {name!r} must have a column {target!r}, got {list(frame)[:20]}")
    files.expect(name, rows=(len(frame), known.n), labels=(frame[target].astype(str).unique(), labels))
    return frame


def _adult_frame() -> tuple[pd.DataFrame, np.ndarray | None]:
    """Raw columns and "income", with the publisher's split when it is known."""
    known = card("adult")
    folder = files.find_verified(known.files)
    if folder is None:
        frame = _openml("adult", data_id=1590, target="class", labels=known.schema.class_names)
        frame = frame.rename(columns={"class": "income"})
        for column in known.schema.columns:
            if _MISSING in column.levels:
                cells = frame[column.name]
                frame[column.name] = cells.astype(object).where(cells.notna(), _MISSING)
        return frame, None
    parts = [
        pd.read_csv(
            folder / relative,
            names=known.schema.facts["header"],
            skipinitialspace=True,
            skiprows=skip,
            na_filter=False,
        )
        for relative, skip in zip(known.files, (0, 1), strict=True)
    ]
    partition = np.repeat(["train", "test"], [len(part) for part in parts])
    return pd.concat(parts, ignore_index=True), partition


def adult(*, incomplete: str = "category") -> Dataset:
    """Adult (census income): 1 = income above 50,000 dollars.

    Six numbers and eight one-hot attributes with the levels of adult.names.

    Parameters
    ----------
    incomplete : {"category", "drop"}
        Records with a missing attribute keep "?" as a level of its own (48,842 x 108), or are dropped
        (45,222 x 105; Chaudhuri, Monteleoni and Sarwate 2011 report 45,220 x 105).
    """
    check_choice("incomplete", incomplete, ("category", "drop"))
    schema, (frame, partition) = card("adult").schema, _adult_frame()
    if incomplete == "drop":
        complete = ~frame.eq(_MISSING).any(axis=1).to_numpy()
        frame, partition = frame[complete], None if partition is None else partition[complete]
        columns = [replace(c, levels=tuple(level for level in c.levels if level != _MISSING)) for c in schema.columns]
        schema = replace(schema, columns=tuple(columns))
    # The file of the test part has a point after its labels.
    frame = frame.assign(income=frame["income"].astype(str).str.removesuffix("."))
    return replace(schema.dataset(frame, "adult"), partition=partition)


def kddcup99(*, target: str = "dos") -> Dataset:
    """KDD Cup 1999, 10 % part: 494,021 connections, 122 features, one category against the rest.

    1 is always the smaller side, so for the default it means "not a denial-of-service attack" (20.8 %), which is the
    task of Chaudhuri, Monteleoni and Sarwate 2011 (positive fraction 0.20 there). Two records in three repeat an
    earlier one.

    Parameters
    ----------
    target : {"dos", "normal", "probe", "r2l", "u2r"}
        The category set against all others: 391,458, 97,278, 4,107, 1,126 and 52 records.
    """
    check_choice("target", target, tuple(KDD_CATEGORIES))
    schema = card("kddcup99").schema
    if target != "dos":
        schema = replace(schema, class_names=("rest", target))
    frame = _kdd_frame()
    inside = frame["label"].isin([f"{attack}." for attack in KDD_CATEGORIES[target]])
    others = schema.class_names[1 if target == "dos" else 0]
    return schema.dataset(frame.assign(label=np.where(inside, target, others)), "kddcup99")


def _kdd_frame() -> pd.DataFrame:
    known = card("kddcup99")
    [(relative, sha256)] = known.files.items()
    folder = files.find_verified(known.files)
    if folder is None:

        def download():
            files.retrieve(KDD_URL, relative, sha256=sha256, max_bytes=MAX_KDD_BYTES)

        files.fetch("kddcup99", known.files, FIGSHARE, "pooch", download)
        folder = paths.data_cache()
    return pd.read_csv(folder / relative, names=known.schema.facts["header"], na_filter=False)


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
        y = (frame.iloc[:, -1].astype(str) == "2").to_numpy(np.int64)
        return known.schema.records(frame.iloc[:, :-1].to_numpy(np.float64), y, "madelon")
    X, y = (
        [
            pd.read_csv(folder / f"madelon/madelon_{part}.{kind}", sep=r"\s+", header=None).to_numpy(np.float64)
            for part in ("train", "valid")
        ]
        for kind in ("data.gz", "labels")
    )
    partition = np.repeat(["train", "val"], [len(part) for part in X])
    return known.schema.records(np.vstack(X), np.vstack(y)[:, 0] == 1, "madelon", partition=partition)


def ham10000(*, positive: Sequence[str] | None = None) -> Dataset:
    """HAM10000 dermatoscopic images at DermaMNIST's size: 10,015 x 2,352 pixel values in [0, 1].

    A row is an image 28 x 28 x 3 in C order (`X.reshape(-1, 28, 28, 3)`). `groups` are the 7,470 lesions: one lesion
    has up to six images, so a record of a privacy claim may be an image or a lesion. `partition` is DermaMNIST's own
    split, which shares lesions between its parts; `helpers.data.split` does not.

    Parameters
    ----------
    positive : sequence of str or None
        None: the seven classes. Otherwise a binary task with these classes as 1; they must be the smaller side.
    """
    if positive is not None:
        positive = [positive] if isinstance(positive, str) else list(positive)
        for name in positive:
            check_choice("positive", name, card("ham10000").schema.class_names)
    folder = _ham10000_folder()
    with np.load(folder / "ham10000/dermamnist.npz") as archive:
        images, labels, ids = (
            [archive[f"{part}_{kind}"] for part in _HAM10000_PARTS] for kind in ("images", "labels", "ids")
        )
    X = np.concatenate(images).reshape(-1, 28 * 28 * 3) / 255.0
    X.flags.writeable = False
    lesion_of = pd.read_csv(folder / "ham10000/dermamnist_split.csv", index_col="image_id")["lesion_id"]
    y, class_names = _ham10000_labels(np.concatenate(labels)[:, 0].astype(np.int64), positive)
    return card("ham10000").schema.records(
        X,
        y,
        "ham10000",
        class_names=class_names,
        groups=lesion_of.loc[np.concatenate(ids)].to_numpy(dtype=str),
        partition=np.repeat(_HAM10000_PARTS, [len(part) for part in ids]),
    )


def _ham10000_labels(y: np.ndarray, positive: list[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    names = card("ham10000").schema.class_names
    if positive is None:
        return y, names
    inside = np.isin(y, [names.index(name) for name in positive])
    if not 0 < inside.sum() <= y.size / 2:
        raise ValueError(f"positive must be the smaller side, got {positive!r} with {inside.sum()} of {y.size} images")
    return inside.astype(np.int64), ("rest", "+".join(positive))


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
    folder = _ham10000_folder()
    with np.load(folder / "ham10000/dermamnist.npz") as archive:
        ids = np.concatenate([archive[f"{part}_ids"] for part in _HAM10000_PARTS])
    table = pd.read_csv(folder / "ham10000/HAM10000_metadata.csv").set_index("image_id")
    return table.loc[ids].rename_axis("image_id").reset_index()


def _ham10000_folder():
    wanted = card("ham10000").files
    folder = files.find_verified(wanted)
    if folder is None:
        advice = (
            "get online and make the files, which no client fetches in this form: images and lesion ids from Harvard "
            "Dataverse doi:10.7910/DVN/DBW86T, central square, bicubic to 28 x 28, split as in DermaMNIST"
        )
        raise files.DatasetUnavailable("ham10000", wanted, advice, "no folder holds its files")
    return folder
