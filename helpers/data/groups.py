"""Who belongs to which group, for the data sets that say so: sex and race in Adult, sex and age in HAM10000.

Groups are attributes of persons, as private as the labels; here they serve to measure what a classifier does to whom.
Rows are aligned with `helpers.data.load`; what is measured by group is left to `helpers.evidence.fairness`.
"""

import numpy as np
import pandas as pd

from helpers.checks import check_choice
from helpers.data.catalogue import load
from helpers.data.dataset import Dataset
from helpers.data.public import ham10000_metadata

_AGE_BANDS = {"under 45": 45.0, "45 to 64": 65.0, "65 and over": np.inf}


def load_groups(name: str) -> pd.DataFrame:
    """Groups of the records of `load(name)`, one row a record and in the same order.

    Parameters
    ----------
    name : {"adult", "ham10000"}

    Returns
    -------
    DataFrame
        Texts. adult: sex ("Female", "Male") and race (five levels of the census form). ham10000, one row an image: sex
        ("female", "male", "unknown") and age ("under 45", "45 to 64", "65 and over", "unknown").

    Raises
    ------
    ValueError
        Another name.
    DatasetUnavailable
        As `load` does.

    >>> load_groups("adult").sex.value_counts().tolist()
    [32650, 16192]
    """
    if check_choice("name", name, ("adult", "ham10000")) == "adult":
        dataset = load("adult")
        return pd.DataFrame({attribute: _levels(dataset, attribute) for attribute in ("sex", "race")})
    known = ham10000_metadata()
    return pd.DataFrame({"sex": known["sex"].to_numpy(str), "age": _bands(known["age"].to_numpy(float))})


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
