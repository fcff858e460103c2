"""What "Differential Privacy Under Class Imbalance" prints about SMOTE, and the law of several classes at once.

The printed guarantees are to be compared and never relied on; the sound ones are
`helpers.resampling.smote.amplification` and `inner_epsilon`.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from checks.arrangements import kissing_upper
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, ChangedRows, Guarantee, NeighboringRelation, furthest
from helpers.resampling.smote import changed_rows

_FALSE = "K(d) <= 2^(0.4042 d), which is false in every dimension where K(d) is known"
_LARGEST_EPSILON = 700.0  # e^epsilon overflows a little above this


class PrintedPair(NamedTuple):
    """(epsilon', delta) as a formula gives it; delta may exceed 1."""

    epsilon: float
    delta: float


def printed_pair(epsilon: float, gamma: float, *, d: int, k: int, n_minority: int, n_new: int) -> PrintedPair:
    """The paper's (epsilon', delta) for its free parameter gamma, to be compared and not to be relied on.

    Both editions print epsilon' = epsilon (1 + gamma) 2^(0.4042 d) ceil(N/n1)/k; the proof, with l = k 2^(0.4042 d),
    has no 1/k. All have delta = exp(k 2^(0.4042 d) ceil(N/n1) (epsilon - gamma^2/(k (2 + gamma)))).

    Parameters
    ----------
    epsilon : float
        Of the learner, >= 0.
    gamma : float
        >= 0.
    d, k, n_minority, n_new
        As in `changed_rows`.

    Source: Rosenblatt et al. 2025, Theorem 3 and its proof; 2024 (arXiv), Theorem 5.

    >>> pair = printed_pair(1.0, 0.0, d=25, k=5, n_minority=1000, n_new=1000)
    >>> round(pair.epsilon, 2), pair.delta > 1
    (220.26, True)
    """
    trials = _printed_trials(d, n_minority, n_new)
    exponent = k * trials * (epsilon - gamma**2 / (k * (2 + gamma)))
    delta = math.exp(exponent) if exponent < _LARGEST_EPSILON else math.inf
    return PrintedPair(epsilon * (1 + gamma) * trials / k, delta)


def _printed_trials(d, n_minority, n_new) -> float:
    """2^(0.4042 d) ceil(N/n1); the proof's l is k times the first factor."""
    return kissing_upper(d) * -(-n_new // n_minority)


def printed_amplification(
    epsilon: float, *, d: int, k: int, n_minority: int, n_new: int, neighbouring: NeighboringRelation
) -> Guarantee:
    """The printed pure guarantee of SMOTE and an `epsilon`-DP learner, as if it were one; `assumes` says what is false.

    Parameters
    ----------
    epsilon : float
        Of the learner, pure, >= 0.
    d, k, n_minority, n_new
        As in `helpers.resampling.smote.changed_rows`; k does not enter.
    neighbouring : NeighboringRelation
        For which it is claimed; the paper uses both.

    Source: Rosenblatt et al. 2025, Theorem 3.

    >>> from helpers.privacy import REPLACE_ONE
    >>> print(printed_amplification(0.1, d=3, k=5, n_minority=200, n_new=200, neighbouring=REPLACE_ONE))
    (0.3318, 0)-DP, replace-one
    """
    total = epsilon * (1 + _printed_trials(d, n_minority, n_new))
    return Guarantee(total, 0.0, neighbouring, assumes=(_FALSE,), source="Rosenblatt et al. 2025, Theorem 3")


def printed_inner_epsilon(epsilon: float, *, delta: float, d: int, k: int, n_minority: int, n_new: int) -> float:
    """Epsilon that the printed pair would give the learner for a total of `epsilon`: what its reader would use.

    Parameters
    ----------
    epsilon : float
        Target, > 0.
    delta : float
        In (0, 1): gamma is solved from it, gamma^2 = v (2 + gamma).
    d, k, n_minority, n_new
        As in `printed_pair`; at least one new record.

    >>> round(printed_inner_epsilon(1.0, delta=1e-6, d=3, k=5, n_minority=200, n_new=200), 4)
    0.2224
    """
    sizes = {"d": d, "k": k, "n_minority": n_minority, "n_new": n_new}

    def total(inner):
        v = k * inner - math.log(delta) / _printed_trials(d, n_minority, n_new)
        return printed_pair(inner, (v + math.sqrt(v**2 + 8 * v)) / 2, **sizes).epsilon

    return furthest(lambda inner: total(inner) <= epsilon, 0.0, epsilon)


def multiclass_changed_rows(
    *, d: int, k: int, n_records: Sequence[int], n_new: Sequence[int], neighbouring: NeighboringRelation
) -> ChangedRows:
    """`changed_rows` with several classes resampled, each by a SMOTE of its own with cyclic bases.

    A record that comes or goes concerns one class. A replacement within a class is that of `changed_rows`; one that
    moves a record from one class to another leaves the lists of the first *and* enters those of the second, so the rows
    of both add up. The law takes the largest number of certain rows and of trials over these cases.

    Parameters
    ----------
    d, k, neighbouring
        As in `changed_rows`.
    n_records : sequence of int
        Public floor on the number of records of each class, all above `k`.
    n_new : sequence of int
        New rows of each class, fixed and public; 0 for a class that is left alone.

    Source: corrects Rosenblatt et al. 2025, Section 6, which takes the largest ratio of a single class.

    >>> rows = multiclass_changed_rows(d=1, k=1, n_records=[9, 9, 50], n_new=[9, 9, 0], neighbouring=REPLACE_ONE)
    >>> rows.certain, rows.trials
    (3, 4)
    """

    def laws(relation):
        return [
            changed_rows(d=d, k=k, n_minority=own, n_new=new, neighbouring=relation)
            for own, new in zip(n_records, n_new, strict=True)
        ]

    within = laws(neighbouring)
    cases = [(law.certain, law.trials) for law in within]
    if neighbouring == REPLACE_ONE:
        # The record's own row, and what coming or going does to two classes.
        cases += [
            (1 + left.certain + entered.certain, left.trials + entered.trials)
            for left, entered in itertools.combinations(laws(ADD_REMOVE), 2)
        ]
    certain, trials = (max(column) for column in zip(*cases, strict=True))
    _, _, *order_and_ties = within[0].assumes  # behind the sizes and public numbers of one class
    sizes = f"at least {tuple(n_records)!r} records of each class, public floors"
    public = f"public: {d} features, {k} neighbours, {tuple(n_new)!r} new records of each class"
    return replace(within[0], certain=certain, trials=trials, assumes=(sizes, public, *order_and_ties))
