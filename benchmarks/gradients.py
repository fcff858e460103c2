"""DP-SGD for logistic regression and for a network of one hidden layer, as Opacus computes it, in NumPy.

What Opacus does to one layer after the other is written out here for these two models, which is some forty times as
fast; a test compares a step with Opacus' own. Beyond its tutorial there is what a careful user adds: class weights from
a noisy count, averaged iterates, all records in every step or a Poisson sample, and the clipping norm as a setting.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from helpers.neural import Schedule
from helpers.privacy import gaussian_mu


def fit(
    X: NDArray,
    y: NDArray,
    weights: NDArray,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    *,
    hidden: int,
    steps: int,
    sample: float,
    rate: float,
    clip: float,
    average: float,
) -> Callable[[NDArray], NDArray]:
    """Log-odds as a function of X (n, d), (epsilon, delta)-DP under add/remove-one with the number of records public.

    Parameters
    ----------
    X : array (n, d)
    y : array (n,)
        In {0, 1}.
    weights : array (2,)
        Of the losses of the classes, public or private by themselves.
    hidden : int
        Tanh units; 0 for logistic regression.
    steps : int
    sample : float
        In (0, 1]: every step sees each record with this probability.
    rate : float
        Of the mean clipped gradient over `clip`, so that it need not be changed with `clip`.
    clip : float
        Largest norm of the gradient of one record's weighted loss.
    average : float
        In [0, 1]: share of the steps, from the last one backwards, whose iterates are averaged; at least one.
    """
    noise = clip * noise_multiplier(steps, sample, epsilon, delta)
    rows = np.column_stack([X, np.ones(len(X))])
    losses = weights[y]
    parts = _start(X.shape[1], hidden, rng)
    means, kept = [np.zeros_like(part) for part in parts], max(round(average * steps), 1)
    for step in range(steps):
        seen = slice(None) if sample == 1 else np.flatnonzero(rng.random(len(y)) < sample)
        sums = clipped_sums(parts, rows[seen], y[seen], losses[seen], clip)
        for part, mean, total in zip(parts, means, sums, strict=True):
            part -= rate / (clip * sample * len(y)) * (total + noise * rng.normal(size=part.shape))
            if step >= steps - kept:
                mean += part / kept
    return lambda X: _log_odds(means, np.column_stack([X, np.ones(len(X))]))[0]


def _start(d: int, hidden: int, rng: np.random.Generator) -> list[NDArray]:
    """Weights of every layer, the intercept last; PyTorch's law of initial weights for a network."""
    if not hidden:
        return [np.zeros(d + 1)]
    inner, outer = 1 / math.sqrt(d), 1 / math.sqrt(hidden)
    return [rng.uniform(-inner, inner, (hidden, d + 1)), rng.uniform(-outer, outer, hidden + 1)]


def _log_odds(parts: list[NDArray], rows: NDArray) -> tuple[NDArray, NDArray]:
    """Log-odds (n,), and what the last layer sees, a constant 1 in its last column."""
    units = rows if len(parts) == 1 else np.column_stack([np.tanh(rows @ parts[0].T), np.ones(len(rows))])
    return units @ parts[-1], units


def clipped_sums(parts: list[NDArray], rows: NDArray, y: NDArray, weights: NDArray, clip: float) -> list[NDArray]:
    """Sum over records of the gradients of their weighted logistic losses, each clipped to norm `clip`; one a layer."""
    odds, units = _log_odds(parts, rows)
    slopes = weights * (expit(odds) - y)
    squares = slopes**2 * np.einsum("ij,ij->i", units, units)
    if len(parts) == 1:
        return [(slopes * _shrink(squares, clip)) @ units]
    # A record's gradient of the inner layer is an outer product, so that its length is a product of lengths.
    back = slopes[:, None] * parts[1][:-1] * (1 - units[:, :-1] ** 2)
    squares = squares + np.einsum("ij,ij->i", back, back) * np.einsum("ij,ij->i", rows, rows)
    factors = _shrink(squares, clip)
    return [(factors[:, None] * back).T @ rows, (slopes * factors) @ units]


def _shrink(squares: NDArray, clip: float) -> NDArray:
    return np.minimum(1.0, clip / np.sqrt(np.maximum(squares, 1e-300)))


@cache
def noise_multiplier(steps: int, sample: float, epsilon: float, delta: float) -> float:
    """Standard deviation of the noise over the clipping norm: exact for all records, else by privacy loss
    distributions."""
    if sample == 1:
        return math.sqrt(steps) / gaussian_mu(epsilon, delta)
    return float(Schedule.constant(steps, sample_rate=sample).calibrate(epsilon, delta).noise_multipliers[0])
