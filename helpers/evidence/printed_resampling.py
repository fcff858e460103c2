"""What "Differential Privacy Under Class Imbalance" prints about resampling, to be compared and never relied on.

The exponents that it takes for bounds on kissing numbers, and SMOTE's guarantees built on them. The sound guarantees
are `helpers.resampling.smote.amplification` and `inner_epsilon`.
"""

import math
from typing import NamedTuple

from helpers.checks import check_choice, check_integer, check_real
from helpers.privacy import Guarantee, NeighboringRelation
from helpers.privacy.search import largest

# Where each printed pair stands, and whether it keeps the factor k that its proof has and its statement lost.
_SOURCES = {
    "printed-icml": ("Rosenblatt et al. 2025, Theorem 3", False),
    "printed-arxiv": ("Rosenblatt et al. 2024 (arXiv), Theorem 5", False),
    "printed-proof": ("Rosenblatt et al. 2025, proof of Theorem 3", True),
}
VERSIONS = tuple(_SOURCES)
_FALSE = "K(d) <= 2^(0.4042 d), which is false in every dimension where K(d) is known"
_LARGEST_EPSILON = 700.0  # e^epsilon overflows a little above this


def kissing_upper(dimension) -> float:
    """2^(0.4042 d), which the paper prints as a bound on K(d). Never use it as one.

    The exponent of Kabatiansky and Levenshtein (1978), 0.4041... + o(1), says nothing about a given dimension: the
    expression is below the kissing number in every dimension where that is known.

    Raises
    ------
    ValueError
        `dimension` is not a positive integer.

    Source: Rosenblatt et al. 2025, Theorem 3 and the proof of Lemma 9.

    >>> from helpers.resampling import kissing
    >>> round(kissing_upper(2), 2), kissing.bounds(2).lower
    (1.75, 6)
    """
    return 2 ** (0.4042 * check_integer("dimension", dimension, low=1))


def kissing_lower(dimension) -> float:
    """2^(0.2075 d), the paper's asymptotic lower bound without its o(1): true where K(d) is known, and far below it.

    Raises
    ------
    ValueError
        `dimension` is not a positive integer.

    Source: Rosenblatt et al. 2025, proof of Lemma 9; the exponent is Wyner's (1965).

    >>> from helpers.resampling import kissing
    >>> round(kissing_lower(24), 1), kissing.bounds(24).lower
    (31.6, 196560)
    """
    return 2 ** (0.2075 * check_integer("dimension", dimension, low=1))


class PrintedPair(NamedTuple):
    """(epsilon', delta) as a formula gives it; delta may exceed 1."""

    epsilon: float
    delta: float


def printed_pair(epsilon, gamma, *, d, k, n_minority, n_new, version="printed-icml") -> PrintedPair:
    """The paper's (epsilon', delta) for its free parameter gamma, to be compared and not to be relied on.

    The statement has epsilon' = epsilon (1 + gamma) 2^(0.4042 d) ceil(N/n1)/k; its proof, with l = k 2^(0.4042 d), has
    no 1/k. Both have delta = exp(k 2^(0.4042 d) ceil(N/n1) (epsilon - gamma^2/(k (2 + gamma)))).

    Parameters
    ----------
    epsilon : float
        Of the learner, >= 0.
    gamma : float
        >= 0.
    d, k, n_minority, n_new
        As in `changed_rows`.
    version : {"printed-icml", "printed-arxiv", "printed-proof"}

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: Rosenblatt et al. 2025, Theorem 3 and its proof.

    >>> pair = printed_pair(1.0, 0.0, d=25, k=5, n_minority=1000, n_new=1000)
    >>> round(pair.epsilon, 2), pair.delta > 1
    (220.26, True)
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    gamma = check_real("gamma", gamma, low=0)
    trials = _printed_trials(d, k, n_minority, n_new, "printed-proof")
    exponent = trials * (epsilon - gamma**2 / (k * (2 + gamma)))
    delta = math.exp(exponent) if exponent < _LARGEST_EPSILON else math.inf
    return PrintedPair(epsilon * (1 + gamma) * _printed_trials(d, k, n_minority, n_new, version) / k, delta)


def _printed_trials(d, k, n_minority, n_new, version) -> float:
    """l ceil(N/n1) with the printed l: k 2^(0.4042 d) in the proof, 2^(0.4042 d) in the statements."""
    _, keeps_k = _SOURCES[check_choice("version", version, VERSIONS)]
    n_minority = check_integer("n_minority", n_minority, low=2)
    k = check_integer("k", k, low=1, high=n_minority - 1)
    ratio = -(-check_integer("n_new", n_new, low=0) // n_minority)
    return (k if keeps_k else 1) * kissing_upper(d) * ratio


def _printed_gamma(epsilon, delta, d, k, n_minority, n_new) -> float:
    """gamma for which the printed delta is `delta`: gamma^2 = v (2 + gamma)."""
    trials = _printed_trials(d, k, n_minority, n_new, "printed-proof")
    if trials == 0:
        raise ValueError(f"n_new must be positive for a printed pair at delta, got {n_new!r}")
    v = k * (epsilon - math.log(delta) / trials)
    return (v + math.sqrt(v**2 + 8 * v)) / 2


def printed_amplification(
    epsilon, *, d, k, n_minority, n_new, neighbouring: NeighboringRelation, delta=None, version="printed-icml"
) -> Guarantee:
    """The printed guarantee of SMOTE and an `epsilon`-DP learner, as if it were one; `assumes` says what is false.

    Parameters
    ----------
    epsilon : float
        Of the learner, pure, >= 0.
    d, k, n_minority, n_new
        As in `helpers.resampling.smote.changed_rows`.
    neighbouring : NeighboringRelation
        For which it is claimed; the paper uses both.
    delta : float, optional
        In (0, 1): gamma is solved from it. Without it, the pure guarantee.
    version : {"printed-icml", "printed-arxiv", "printed-proof"}
        The two editions print the same pair; its proof supports a larger one.

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: Rosenblatt et al. 2025, Theorem 3 and its proof.

    >>> from helpers.privacy import REPLACE_ONE
    >>> print(printed_amplification(0.1, d=3, k=5, n_minority=200, n_new=200, neighbouring=REPLACE_ONE))
    (0.3318, 0)-DP, replace-one
    """
    sizes = {"d": d, "k": k, "n_minority": n_minority, "n_new": n_new, "version": version}
    total = _printed_epsilon(check_real("epsilon", epsilon, low=0), delta, **sizes)
    source, _ = _SOURCES[version]
    return Guarantee(total, 0.0 if delta is None else delta, neighbouring, assumes=(_FALSE,), source=source)


def printed_inner_epsilon(epsilon, *, d, k, n_minority, n_new, delta=None, version="printed-icml") -> float:
    """Epsilon that the printed pair would give the learner for a total of `epsilon`: what its reader would use.

    Parameters
    ----------
    epsilon : float
        Target, > 0.
    others
        As in `printed_amplification`.

    Raises
    ------
    ValueError
        A parameter out of range.

    >>> round(printed_inner_epsilon(1.0, d=3, k=5, n_minority=200, n_new=200), 4)
    0.3014
    """
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
    sizes = {"d": d, "k": k, "n_minority": n_minority, "n_new": n_new, "version": version}
    return largest(lambda inner: _printed_epsilon(inner, delta, **sizes) <= epsilon, 0.0, epsilon)


def _printed_epsilon(epsilon, delta, **sizes) -> float:
    if delta is None:
        return epsilon * (1 + _printed_trials(**sizes))
    delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
    gamma = _printed_gamma(epsilon, delta, *(sizes[name] for name in ("d", "k", "n_minority", "n_new")))
    return printed_pair(epsilon, gamma, **sizes).epsilon
