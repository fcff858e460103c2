"""Who belongs to which group, for the data sets that say so: sex and race in Adult, sex and age in HAM10000.

Groups are attributes of persons, as private as the labels; here they serve to measure what a classifier does to whom.
Rows are aligned with `helpers.data.load`; what is measured by group is left to `checks.fairness`.
"""

import numpy as np

from helpers.checks import check_choice
from helpers.data.catalogue import load
from helpers.data.public import ham10000_metadata

_AGES = {"under 45": (0.0, 45.0), "45 to 64": (45.0, 65.0), "65 and over": (65.0, np.inf)}  # from, and below
# Data set -> attribute -> its levels, public: a level is known whether or not a record has it.
LEVELS = {
    "adult": {
        "sex": ("Female", "Male"),
        "race": ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"),
    },
    "ham10000": {"sex": ("female", "male", "unknown"), "age": (*_AGES, "unknown")},
}


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
    if name == "adult":
        adult = load("adult")
        return adult.X[:, adult.feature_names.index(f"{attribute}={level}")] == 1
    known = ham10000_metadata()[attribute]
    if attribute == "age" and level in _AGES:
        youngest, beyond = _AGES[level]
        return ((known >= youngest) & (known < beyond)).to_numpy()
    return (known.isna() if attribute == "age" else known == level).to_numpy()
