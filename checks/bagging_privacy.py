"""What bagging does to privacy, by going through everything that can happen, and what is printed of it.

The exact law of the bags, the worst learner of all by linear programming, and the bags that one flipped label changes:
no theorem is used, so that theorems can be held against the results; the size of the data is the limit. Beside them
the printed guarantee of bagging learners that are not private.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from helpers.validation import check_integer, label_codes


def bagging_distribution(records: Sequence[Any], n_estimators: int, sample_size: int) -> dict[tuple, Fraction]:
    """Exact law of the m bags that are drawn with replacement, by going through all n^(m k) outcomes.

    Every learner, randomised or not, is a post-processing of the bags.

    Parameters
    ----------
    records : sequence of hashable
    n_estimators, sample_size : int
        m and k.

    >>> bagging_distribution("ab", 1, 1)
    {(('a',),): Fraction(1, 2), (('b',),): Fraction(1, 2)}
    """
    weight = Fraction(1, len(records) ** sample_size)
    bag: defaultdict[tuple, Fraction] = defaultdict(Fraction)
    for draws in itertools.product(records, repeat=sample_size):
        bag[tuple(sorted(draws))] += weight
    return {
        tuple(one for one, _ in bags): math.prod((share for _, share in bags), start=Fraction(1))
        for bags in itertools.product(bag.items(), repeat=n_estimators)
    }


def hockey_stick(law: Mapping, other: Mapping, factor: Fraction | int) -> Fraction:
    """Sum of the positive parts of law - factor * other: the smallest delta for e^epsilon = `factor`, exactly.

    >>> hockey_stick({"a": Fraction(3, 4), "b": Fraction(1, 4)}, {"b": Fraction(1)}, 1)
    Fraction(3, 4)
    """
    return sum((max(p - factor * other.get(outcome, 0), 0) for outcome, p in law.items()), Fraction(0))


def worst_learner_delta(
    epsilon: float,
    inner_epsilon: float,
    *,
    n_records: int,
    sample_size: int,
    inner_delta: float = 0.0,
    replacement: bool = True,
) -> float:
    """Largest delta at `epsilon` that any (inner_epsilon, inner_delta)-DP learner has on one bag: a linear programme.

    The unknowns are the probabilities of one event for all bags over the n + 1 records of two replace-one neighbours
    (multisets: a learner may be averaged over the order of its rows). The bag's law is enumerated, so no theorem on
    subsampling is used. For small n and k only: binom(n + k, k) unknowns.

    Parameters
    ----------
    epsilon : float
        Of the bag, >= 0.
    inner_epsilon, inner_delta : float
        The learner's, under replace-one.
    n_records, sample_size : int
        n and k.
    replacement : bool
        Whether the bag is drawn with replacement.

    >>> from helpers.meta.bagging import changed_rows
    >>> pure = changed_rows("bootstrap", n_records=3, sample_size=3).log_mean(1.0)
    >>> [worst_learner_delta(e, 1.0, n_records=3, sample_size=3) > 1e-5 for e in (pure - 0.01, pure + 1e-9)]
    [True, False]
    """
    here, there = (_bag_law(data, sample_size, replacement) for data in (range(n_records), range(1, n_records + 1)))
    bags = sorted(set(itertools.combinations_with_replacement(range(n_records + 1), sample_size)))
    place = {bag: index for index, bag in enumerate(bags)}
    objective = np.array([math.exp(epsilon) * there.get(bag, 0.0) - here.get(bag, 0.0) for bag in bags])
    rows, bounds = [], []
    for bag in bags:
        changes = itertools.product(range(sample_size), range(n_records + 1))
        for other in {tuple(sorted((*bag[:k], value, *bag[k + 1 :]))) for k, value in changes} - {bag}:
            # f(bag) <= e^eps f(other) + delta for the event, and the same for its complement, 1 - f.
            for sign in (1, -1):
                row = np.zeros(len(bags))
                row[place[bag]] += sign
                row[place[other]] -= sign * math.exp(inner_epsilon)
                rows.append(row)
                bounds.append(inner_delta if sign == 1 else inner_delta + math.expm1(inner_epsilon))
    solution = linprog(objective, A_ub=np.array(rows), b_ub=bounds, bounds=(0, 1), method="highs")
    return float(-solution.fun)


def _bag_law(records: Iterable[int], sample_size: int, replacement: bool) -> dict[tuple, float]:
    records = list(records)
    if not replacement:
        subsets = list(itertools.combinations(records, sample_size))
        return dict.fromkeys((tuple(sorted(subset)) for subset in subsets), 1 / len(subsets))
    orders = math.factorial(sample_size) / len(records) ** sample_size
    return {
        bag: orders / math.prod(math.factorial(count) for count in Counter(bag).values())
        for bag in itertools.combinations_with_replacement(records, sample_size)
    }


def assign_in_blocks(y, n_bags) -> np.ndarray:
    """Bag of each record (n,) by its rank among the labels (n,) equal to its own, in consecutive blocks.

    >>> assign_in_blocks([0, 1, 0, 0, 0], 2).tolist()
    [0, 0, 0, 1, 1]
    """
    n_bags = check_integer("n_bags", n_bags, low=1)
    y = np.asarray(y)
    bags = np.zeros(len(y), dtype=np.int64)
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        bags[members] = np.arange(len(members)) * n_bags // len(members)
    return bags


def assign_within_class(y, n_bags, rng) -> np.ndarray:
    """Bag of each record by its own label, 0 or 1: every row draws a bag for either label.

    The draws look at no label, so one flipped label moves one record, from one bag to another; nobody else moves.

    >>> assign_within_class([0, 1, 1], 3, np.random.default_rng(0)).tolist()
    [2, 0, 0]
    """
    n_bags, codes = check_integer("n_bags", n_bags, low=1), label_codes(np.asarray(y), np.arange(2))
    return rng.integers(n_bags, size=(len(codes), 2))[np.arange(len(codes)), codes]


def bags_touched(y: ArrayLike, assign: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int]:
    """What one flipped label does at worst: (bags that change, records that come or go in all bags together).

    The changed record counts as another record afterwards (its label differs). All n flips are tried.

    Parameters
    ----------
    y : array (n,) of 0 and 1
    assign : callable
        From labels (n,) to bags (n,).

    >>> bags_touched([0, 0, 0, 1, 1, 1], lambda y: assign_in_blocks(y, 3))
    (3, 10)
    """
    y = np.asarray(y)
    before = _contents(y, assign(y))
    bags = distance = 0
    for place in range(len(y)):
        flipped = y.copy()
        flipped[place] = 1 - flipped[place]
        after = _contents(flipped, assign(flipped))
        changes = [len(before[bag] ^ after[bag]) for bag in before.keys() | after.keys()]
        bags, distance = max(bags, sum(map(bool, changes))), max(distance, sum(changes))
    return bags, distance


def _contents(y, bags) -> defaultdict[int, set]:
    contents = defaultdict(set)
    for row, (label, bag) in enumerate(zip(y.tolist(), bags.tolist(), strict=True)):
        contents[bag].add((row, label))
    return contents


def liu_parameters(n_records: int, n_draws: float) -> tuple[float, float]:
    """(epsilon, delta) printed for bagging learners that are not private, from the product m k of the two sizes.

    epsilon = m k log((n + 1)/n) and delta = 1 - ((n - 1)/n)^(m k).

    Parameters
    ----------
    n_records : int
        n >= 2.
    n_draws : float
        m k > 0; not an integer only to follow the paper's algebra.

    Source: Liu, Jia and Gong 2020, Theorem 3, as quoted by Rosenblatt et al. 2025, Section 4.1.

    >>> [round(value, 6) for value in liu_parameters(1000, 5)]
    [0.004998, 0.00499]
    """
    return n_draws * math.log1p(1 / n_records), -math.expm1(n_draws * math.log1p(-1 / n_records))


def draws_for_delta(n_records: int, exponent: float) -> float:
    """The product m k at which the printed delta equals n^-exponent. Below 1 for every exponent > 1.

    Source: Rosenblatt et al. 2025, proof of Proposition 4.

    >>> round(draws_for_delta(1000, 1.0), 6), round(draws_for_delta(1000, 1.5), 4)
    (1.0, 0.0316)
    """
    return math.log1p(-(n_records**-exponent)) / math.log1p(-1 / n_records)
