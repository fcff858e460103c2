"""How far synthetic records are from real ones, in their marginals: what a synthesiser was asked to keep.

Measured on coded records, so bins are the finest thing that is seen. The real records enter without noise: the number
is about an experiment and no release; a private synthesiser never needs it.
"""

from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from helpers.checks import check_integer
from helpers.data.domain import Domain

Records = tuple[ArrayLike, ArrayLike]


def marginal_error(domain: Domain, here: Records, there: Records, *, order: int = 2, given=None) -> float:
    """Mean total variation distance, over all marginals of some attributes, of two sets of records.

    Parameters
    ----------
    domain : Domain
    here, there : pairs (X (n, d), y (n,))
        At least one record each (of the label that is given); 0 where all shares agree, 1 where no cell is shared.
    order : int
        Attributes of a marginal, at least 1; all of them where the domain has fewer.
    given : label, optional
        Only records with this label, and marginals of the other attributes. None: all records, and the label is an
        attribute.

    Raises
    ------
    ValueError
        `order` is out of range, nothing is left on one side, or records that the domain refuses.

    >>> domain = Domain.from_bounds([[0, 1]], n_bins=2)
    >>> marginal_error(domain, ([[0.1], [0.9]], [0, 1]), ([[0.1], [0.1]], [0, 1]), order=1)
    0.25
    >>> marginal_error(domain, ([[0.1], [0.9]], [0, 1]), ([[0.1], [0.1]], [0, 1]), given=1)
    1.0
    """
    check_integer("order", order, low=1)
    codes = [domain.encode(*records) for records in (here, there)]
    attributes = range(len(domain.sizes))
    if given is not None:
        if given not in domain.classes:
            raise ValueError(f"given must be one of the domain's labels {domain.classes!r}, got {given!r}")
        codes = [part[part[:, -1] == domain.classes.index(given)] for part in codes]
        attributes = attributes[:-1]
    if not all(len(part) for part in codes):
        raise ValueError("here and there must hold records to compare, got none on one side")
    distances = []
    for chosen in combinations(attributes, min(order, len(attributes))):
        shape = [domain.sizes[j] for j in chosen]
        cells = [np.ravel_multi_index(part[:, list(chosen)].T, shape) for part in codes]
        shares = [np.bincount(cell, minlength=int(np.prod(shape))) / len(cell) for cell in cells]
        distances.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(distances))
