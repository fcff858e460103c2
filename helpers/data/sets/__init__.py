"""What is known of the data sets of the book without opening their files: NAME.yaml is the card of the set NAME.

Each file is a schema (`helpers.data.schema`) with source, licence, what a record is, and `basis`, which says of every
bound where it comes from; its `facts` are sizes, files with their SHA-256, and where these are to be had. All of it is
written down, never computed from records, and tests hold it against the files at hand. Asking for one card reads its
file and no other. How records are read is left to the loaders beside this package (`helpers.data.catalogue`).
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from helpers.data.dataset import imbalance_ratio
from helpers.data.schema import Schema

# Of imbalanced-learn's benchmark, those whose bounds are known, in the order of the publisher's numbers.
BENCHMARK = (
    *("ecoli", "satimage", "pen_digits", "abalone", "spectrometer", "car_eval_34", "yeast_ml8", "scene", "coil_2000"),
    *("arrhythmia", "solar_flare_m0", "car_eval_4", "letter_img", "yeast_me2", "mammography", "abalone_19"),
)
NAMES = (
    *("gaussian_mixture", "breast_cancer", "digits", "wine"),
    *BENCHMARK,
    *("adult", "kddcup99", "electricity", "madelon", "ham10000"),
)


@dataclass(frozen=True)
class Card:
    """The card of a data set: what a record is, what the minority is, how many there are, where the files are.

    Attributes
    ----------
    name, minority : str
        `minority` says what a record of the minority is; what any record is stands in `schema.record`.
    schema : Schema
        With default options.
    counts : tuple of int
        Records of each class.
    n_repeated : int
        Records whose features are those of an earlier one.
    where : str
        How to come by the records where no folder has the files: "simulated", "bundled", "download" or "by hand".
    files : dict
        Path in a data folder -> SHA-256.
    """

    name: str
    minority: str
    schema: Schema
    counts: tuple[int, ...]
    n_repeated: int
    where: str
    files: Mapping[str, str]

    @property
    def n(self) -> int:
        """Number of records."""
        return sum(self.counts)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.schema.feature_names)

    @property
    def ratio(self) -> float:
        """n0/n1 for two classes, else largest over smallest class (`Dataset.imbalance_ratio`)."""
        return imbalance_ratio(self.counts)


def file(name: Any) -> Path:
    """The file of a card, and all that the card depends on.

    Raises
    ------
    ValueError
        Unknown name; the message lists the names and the closest one.
    """
    if isinstance(name, str) and name in NAMES:
        return Path(__file__).with_name(f"{name}.yaml")
    close = difflib.get_close_matches(name, NAMES, n=1) if isinstance(name, str) else []
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}{hint}")


@cache
def card(name: str | Path) -> Card:
    """The card of a named data set.

    Raises
    ------
    ValueError
        Unknown name.

    >>> mammography = card("mammography")
    >>> mammography.counts, mammography.n_repeated, mammography.schema.columns[0].rule
    ((10923, 260), 3335, 'a number')
    """
    schema = Schema.read(file(name))
    facts = schema.facts
    counts = tuple(map(int, facts["counts"]))
    return Card(
        str(name), facts["minority"], schema, counts, int(facts["repeated"]), facts["where"], facts.get("files", {})
    )
