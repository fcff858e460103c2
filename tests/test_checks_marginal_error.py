"""The distance of synthetic records from real ones, against its definition and what it has to notice."""

from itertools import combinations

import numpy as np
import pytest

from checks.synthetic_data import marginal_error
from helpers.data.domain import Attribute, Domain

DOMAIN = Domain([Attribute.categorical(name, j, (0, 1, 2)) for j, name in enumerate("abc")])


def records(n, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, (n, 3)), np.r_[0, 1, rng.integers(0, 2, n - 2)]


def by_definition(here, there, attributes):
    def shares(table):
        cells, counts = np.unique(table[:, list(attributes)], axis=0, return_counts=True)
        return dict(zip(map(tuple, cells), counts / len(table), strict=True))

    one, other = shares(here), shares(there)
    return sum(abs(one.get(cell, 0) - other.get(cell, 0)) for cell in one.keys() | other.keys()) / 2


@pytest.mark.parametrize("order", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("given", [None, 0, 1])
def test_it_is_the_mean_total_variation_distance_over_marginals(order, given):
    (X, y), (Z, t) = records(40, 0), records(25, 1)
    tables = [np.column_stack([X, y]), np.column_stack([Z, t])]
    if given is not None:
        tables = [table[table[:, -1] == given, :-1] for table in tables]
    m = tables[0].shape[1]
    expected = np.mean([by_definition(*tables, chosen) for chosen in combinations(range(m), min(order, m))])
    assert marginal_error(DOMAIN, (X, y), (Z, t), order=order, given=given) == pytest.approx(expected, abs=1e-12)


def test_nothing_is_apart_from_itself_and_disjoint_records_are_all_apart():
    X, y = records(30, 2)
    assert marginal_error(DOMAIN, (X, y), (X[::-1], y[::-1])) == 0
    low, high = np.zeros((5, 3)), np.full((5, 3), 2)
    assert marginal_error(DOMAIN, (low, np.ones(5)), (high, np.ones(5)), given=1) == 1
    # with the label among the attributes, pairs of it and another attribute are apart too
    assert marginal_error(DOMAIN, (low, np.ones(5)), (high, np.ones(5)), order=1) == pytest.approx(3 / 4)
