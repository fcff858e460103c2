"""Equal rows of a table, kept together.

In mammography 3,335 rows repeat an earlier one. A random split puts such rows on both sides, and a model is then tested
on records that it has learnt from.
"""

from dataclasses import replace

import numpy as np

from helpers.data.dataset import Dataset


def group_repeats(dataset: Dataset) -> Dataset:
    """The same records with equal rows as groups, so that `split` has them all on one side.

    Parameters
    ----------
    dataset : Dataset
        Without groups of its own. Rows are equal if all features are; labels may differ.

    Raises
    ------
    ValueError
        The data set has groups.

    >>> from helpers.data import split
    >>> toy = Dataset("toy", np.repeat(np.arange(8.0), 3)[:, None], np.repeat([0, 1], 12), ("x",))
    >>> train, test = split(group_repeats(toy), test_size=0.5, seed=0)
    >>> set(train.X[:, 0]) & set(test.X[:, 0])
    set()
    """
    if dataset.groups is not None:
        raise ValueError(f"dataset must have no groups yet, got {dataset.name!r} with {len(set(dataset.groups))}")
    return replace(dataset, groups=np.unique(dataset.X, axis=0, return_inverse=True)[1])
