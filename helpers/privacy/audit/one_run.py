"""One training is enough: many canaries in one fit, each in it by a coin, and guesses which ones were.

For what cannot be fitted hundreds of times. A lower bound of this kind is well below what as many fits would show.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import binom

from helpers.validation import check_integer, check_real

_MOST_EPSILON = 100.0


def one_run_p_value(n_canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Largest probability, under (epsilon, delta)-differential privacy, of as many correct guesses.

    Each guess is right with odds of at most e^epsilon, whatever the others are; delta adds the chance that some of them
    are given away.

    Source: Steinke, Nasr and Jagielski 2023, Theorem 5.2.

    >>> round(one_run_p_value(1000, 100, 90, 1.0, 1e-5), 6)
    0.000841
    """
    right = 1 / (1 + np.exp(-epsilon))
    chance = binom.sf(correct - 1, guesses, right)
    fewer = np.arange(1, correct + 1)
    given_away = np.max((binom.sf(correct - fewer - 1, guesses, right) - chance) / fewer, initial=0.0)
    return float(min(chance + 2 * n_canaries * delta * given_away, 1.0))


def one_run_epsilon(
    n_canaries: int, guesses: int, correct: int, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Lower confidence bound on epsilon from guesses which canaries were in one training.

    Parameters
    ----------
    n_canaries : int
        Each was in the training by a fair coin of its own.
    guesses, correct : int
        How many canaries were guessed about, a number fixed beforehand, and how many of the guesses were right.
    delta, confidence : float
        As in `epsilon_lower_bound`.

    Raises
    ------
    ValueError
        A number out of range.

    Source: Steinke, Nasr and Jagielski 2023, Theorem 5.2. The relation is add/remove: a canary is there or not.

    >>> round(one_run_epsilon(1000, 100, 90, delta=1e-5), 2)
    1.63
    """
    n_canaries = check_integer("n_canaries", n_canaries, low=1)
    guesses = check_integer("guesses", guesses, low=0, high=n_canaries)
    correct = check_integer("correct", correct, low=0, high=guesses)
    delta = check_real("delta", delta, low=0, high=1, inclusive="low")
    confidence = check_real("confidence", confidence, low=0, high=1, inclusive="neither")

    def excess(epsilon):
        return one_run_p_value(n_canaries, guesses, correct, epsilon, delta) - (1 - confidence)

    if excess(0.0) >= 0:
        return 0.0
    return _MOST_EPSILON if excess(_MOST_EPSILON) < 0 else float(brentq(excess, 0.0, _MOST_EPSILON, xtol=1e-9))


class OneRun(NamedTuple):
    """Lower confidence bound on epsilon, and the guesses it rests on."""

    epsilon: float
    guesses: int
    correct: int
    canaries: int


def audit_one_run(
    fit: Callable[[Any, Any], Any],
    score: Callable[[Any, Any, Any], ArrayLike],
    records: tuple[ArrayLike, ArrayLike],
    canaries: tuple[ArrayLike, ArrayLike],
    *,
    guesses: int | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    rng: np.random.Generator | None = None,
) -> OneRun:
    """Fit once, with each canary in it by a fair coin, and guess from scores which were.

    Parameters
    ----------
    fit : callable (X, y) -> model
        One training.
    score : callable (model, X, y) -> array (n,)
        Of each record, larger where the model seems to have seen it: minus its loss, say.
    records : pair X (n, d), y (n,)
        Public records that are always there.
    canaries : pair X (m, d), y (m,)
        Records that the model remembers if it remembers any: rare, mislabelled, far out.
    guesses : int, optional
        How many canaries are guessed about: half of them the highest scores, "in", half the lowest, "out". A tenth of
        the canaries if left out. It has to be fixed before scores are seen.
    delta, confidence : float
        As in `one_run_epsilon`.
    rng : numpy.random.Generator, optional
        Of the coins.

    Raises
    ------
    ValueError
        A number out of range, or scores that are not one finite number a canary.
    """
    (X, y), (X_new, y_new) = (tuple(map(np.asarray, pair)) for pair in (records, canaries))
    m = check_integer("canaries", len(X_new), low=2)
    guesses = 2 * max(m // 20, 1) if guesses is None else check_integer("guesses", guesses, low=2, high=m)
    check_real("delta", delta, low=0, high=1, inclusive="low")
    check_real("confidence", confidence, low=0, high=1, inclusive="neither")
    rng = np.random.default_rng() if rng is None else rng
    inside = rng.integers(2, size=m).astype(bool)
    model = fit(np.concatenate([X, X_new[inside]]), np.concatenate([y, y_new[inside]]))
    scores = np.asarray(score(model, X_new, y_new), dtype=float)
    if scores.shape != (m,) or not np.isfinite(scores).all():
        raise ValueError(f"score must give one finite number for each of {m} canaries, got shape {scores.shape}")
    # Ties are broken by chance, so that their order, which is that of the coins' canaries, tells nothing.
    order = np.lexsort([rng.random(m), scores])
    low, high = order[: guesses // 2], order[m - (guesses - guesses // 2) :]
    correct = int(np.sum(~inside[low]) + np.sum(inside[high]))
    return OneRun(one_run_epsilon(m, guesses, correct, delta=delta, confidence=confidence), guesses, correct, m)
