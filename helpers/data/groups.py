"""Who belongs to which group, for the data sets that say so: sex and race in Adult, sex and age in HAM10000.

Groups are attributes of persons, as private as the labels; here they serve to measure what a classifier does to whom.
Rows are aligned with `helpers.data.load`; what is measured by group is left to `checks.fairness`.
"""

import numpy as np
import pandas as pd

from helpers.checks import check_choice
from helpers.data.catalogue import load
from helpers.data.dataset import Dataset
from helpers.data.public import ham10000_metadata

_AGE_BANDS = {"under 45": 45.0, "45 to 64": 65.0, "65 and over": np.inf}
# Data set -> attribute -> its levels, public: a level is known whether or not a record has it.
LEVELS = {
    "adult": {
        "sex": ("Female", "Male"),
        "race": ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"),
    },
    "ham10000": {"sex": ("female", "male", "unknown"), "age": (*_AGE_BANDS, "unknown")},
}


def load_groups(name: str) -> pd.DataFrame:
    """Groups of the records of `load(name)`, one row a record and in the same order.

    Parameters
    ----------
    name : {"adult", "ham10000"}

    Returns
    -------
    DataFrame
        Texts, a column for each attribute of `LEVELS`; of ham10000 one row an image.

    Raises
    ------
    ValueError
        Another name.
    DatasetUnavailable
        As `load` does.

    >>> load_groups("adult").sex.value_counts().tolist()
    [32650, 16192]
    """
    if check_choice("name", name, tuple(LEVELS)) == "adult":
        dataset = load("adult")
        return pd.DataFrame({attribute: _levels(dataset, attribute) for attribute in LEVELS["adult"]})
    known = ham10000_metadata()
    return pd.DataFrame({"sex": known["sex"].to_numpy(str), "age": _bands(known["age"].to_numpy(float))})


def load_members(name: str, attribute: str, level: str) -> np.ndarray:
    """Which records of `load(name)` are in one group (n,), of bool.

    Parameters
    ----------
    name, attribute, level
        As in `LEVELS`. Nobody has to be in the group.

    Raises
    ------
    ValueError
        A data set, an attribute or a level that `LEVELS` does not have, before anything is loaded.
    DatasetUnavailable
        As `load` does.

    >>> int(load_members("adult", "race", "Black").sum())
    4685
    """
    levels = LEVELS[check_choice("name", name, tuple(LEVELS))]
    check_choice("level", level, levels[check_choice("attribute", attribute, tuple(levels))])
    return (load_groups(name)[attribute] == level).to_numpy()


def _levels(dataset: Dataset, attribute: str) -> np.ndarray:
    """The level of a one-hot attribute, for every record."""
    prefix = f"{attribute}="
    columns = [place for place, name in enumerate(dataset.feature_names) if name.startswith(prefix)]
    levels = np.array([dataset.feature_names[place].removeprefix(prefix) for place in columns])
    return levels[dataset.X[:, columns].argmax(axis=1)]


def _bands(age: np.ndarray) -> np.ndarray:
    """Names of the age bands; an age that is not known is a band of its own."""
    names = np.array([*_AGE_BANDS, "unknown"])
    place = np.searchsorted(list(_AGE_BANDS.values()), age, side="right")
    return names[np.where(np.isnan(age), len(_AGE_BANDS), place)]
