"""Data on which objective perturbation loses almost its exact price, and how probable such outputs are.

`directed_search` exhibits the data, `exact_delta` integrates over the outputs; the price itself is
`checks.exact_price`.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.optimize import minimize as descend
from scipy.stats.distributions import rv_frozen

from checks.exact_loss import privacy_loss, softmax_privacy_loss
from checks.worst_case import Found
from helpers.erm.losses import LOGISTIC, Loss, Softmax, zero_sum_basis
from helpers.privacy import REPLACE_ONE, NeighboringRelation


def directed_search(
    noise_rate: float,
    stiffness: float,
    *,
    n_records: int,
    dimension: int,
    rng: np.random.Generator,
    loss: Loss | Softmax = LOGISTIC,
    neighbouring: NeighboringRelation = REPLACE_ONE,
    n_restarts: int = 8,
) -> Found:
    """Largest privacy loss found, by ascent from starts that the proof of the price directs.

    Every start has the output along one axis, the records that stay (of K - 1 kinds; of two for a margin loss) near a
    second axis with a random tilt, and the record that changes on the other side; in the neighbour it has joined the
    others or is gone, which costs more than if it came. Then output and rows move together.

    Parameters
    ----------
    noise_rate, stiffness, neighbouring
        As in `price`.
    n_records : int
        n >= 2: the records that stay, one more, and the public divisor.
    dimension : int
        d >= 2.
    rng : numpy.random.Generator
    loss : Loss or Softmax
    n_restarts : int

    >>> from helpers.privacy import ADD_REMOVE
    >>> many = dict(n_records=1000, dimension=2, rng=np.random.default_rng(0), n_restarts=3)
    >>> 0.8 < directed_search(1.0, 1.0, **many, neighbouring=ADD_REMOVE).loss <= 1.0
    True
    """
    constants: dict[str, Any] = {
        "noise_rate": noise_rate,
        "total_regularization": stiffness / n_records,
        "n_records": n_records,
    }
    if not isinstance(loss, Softmax):
        constants["loss"] = loss
    changed = int(neighbouring == REPLACE_ONE)
    found = [_ascend(constants, loss, changed, dimension, rng) for _ in range(n_restarts)]
    return max(found, key=lambda case: case.loss)


def _ascend(constants, loss, changed, dimension, rng) -> Found:
    """One start; `changed` is how many records take the place of the odd one in the neighbour: 0 or 1."""
    many = isinstance(loss, Softmax)
    scores, kinds = (loss.n_classes - 1, loss.n_classes - 1) if many else (1, 2)
    stay = rng.dirichlet(np.ones(kinds)) * (constants["n_records"] - 1)
    here, there = np.append(stay, 1.0), np.append(stay, np.ones(changed))
    codes = np.full(kinds + 1 + changed, scores)
    codes[kinds] = rng.integers(scores + 1)
    exact = softmax_privacy_loss if many else privacy_loss

    def unpack(theta):
        rows = theta[scores * dimension :].reshape(kinds + 1 + changed, dimension)
        rows = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        data, neighbour = np.arange(kinds + 1), np.delete(np.arange(kinds + 1 + changed), kinds)
        pairs = [(rows[part], codes[part]) if many else rows[part] for part in (data, neighbour)]
        output = theta[: scores * dimension].reshape(scores, dimension)
        return output if many else output[0], *pairs

    def lost(theta):
        return exact(*unpack(theta), **constants, weights=here, neighbour_weights=there)

    start = _directed_start(scores, kinds, changed, dimension, rng)
    best = descend(lambda theta: -lost(theta), start, method="L-BFGS-B", options={"maxiter": 300}).x
    return Found(float(lost(best)), *unpack(best), here, there)


def _directed_start(scores, kinds, changed, dimension, rng) -> np.ndarray:
    """An output along the second axis; rows near the first, tilted towards the wrong side, and one opposite."""
    length, tilt = 10 ** rng.uniform(0.5, 2.5), rng.choice([0.03, 0.1, 0.3])
    pattern = zero_sum_basis(scores + 1) @ rng.standard_normal(scores + 1) if scores > 1 else np.ones(1)
    output = length * np.outer(pattern, np.eye(dimension)[1])
    sides = 1 + kinds + changed
    rows = np.tile(np.eye(dimension)[0], (sides, 1)) + 0.05 * rng.standard_normal((sides, dimension))
    rows[:, 1] = tilt * (-1.0) ** np.arange(sides) if scores > 1 else -tilt
    rows[kinds] = -rows[kinds]
    return np.concatenate([output.ravel(), rows.ravel()])


def exact_delta(
    epsilon: float,
    data: ArrayLike,
    neighbour: ArrayLike,
    *,
    total_regularization: float,
    noise: rv_frozen,
    n_records: int | None = None,
    loss: Loss = LOGISTIC,
    weights: ArrayLike | None = None,
    neighbour_weights: ArrayLike | None = None,
) -> float:
    """The least delta at `epsilon` of objective perturbation for one ordered pair of data sets in one dimension.

    delta is the integral of (f - e^epsilon f')_+ over the outputs. In one dimension the output falls as the noise
    grows, so that the probability of every interval is one of the noise: between the outputs where f = e^epsilon f'
    nothing is left to integrate.

    Parameters
    ----------
    epsilon : float
        >= 0.
    data, neighbour : array (n, 1), (n', 1)
        Signed rows.
    total_regularization : float
    noise : frozen distribution of `scipy.stats`
        Symmetric about 0: `laplace(scale=1 / noise_rate)`, or `norm(scale=standard_deviation)`.
    n_records, loss, weights, neighbour_weights
        As in `exact_loss.privacy_loss`.

    >>> from scipy.stats import laplace
    >>> round(exact_delta(0.0, [[1.0]], [[-1.0]], total_regularization=1.0, noise=laplace(scale=2.0)), 4)
    0.2212
    """
    sides = [
        (np.asarray(rows, dtype=float)[:, 0], 1.0 if each is None else np.asarray(each, dtype=float))
        for rows, each in ((data, weights), (neighbour, neighbour_weights))
    ]
    stiffness = (n_records or len(sides[0][0])) * total_regularization

    def noise_at(outputs, side):
        rows, each = side
        return -(each * loss.slope(np.multiply.outer(outputs, rows))) @ rows - stiffness * outputs

    def log_density(outputs, side):
        rows, each = side
        bend = stiffness + (each * loss.bend(np.multiply.outer(outputs, rows))) @ rows**2
        return np.log(bend) + noise.logpdf(noise_at(outputs, side))

    def excess(outputs):
        return log_density(outputs, sides[0]) - log_density(outputs, sides[1]) - epsilon

    def mass(low, high, side):
        """Probability of the outputs between: that of the noises between, the other way round."""
        least, most = noise_at(high, side), noise_at(low, side)
        if least > 0:  # by symmetry, so that nothing is a difference of numbers near 1
            least, most = -most, -least
        return noise.cdf(most) - noise.cdf(least)

    far = (40 * noise.std() + max(float(np.sum(each * np.abs(rows))) for rows, each in sides)) / stiffness
    fine = far * np.geomspace(1e-9, 1, 4000)
    grid = np.unique(np.concatenate([np.linspace(-far, far, 20_001), fine, -fine]))
    above = excess(grid) > 0
    places = np.flatnonzero(above[1:] != above[:-1])
    edges = [brentq(excess, grid[k], grid[k + 1], xtol=1e-15 * far) for k in places]
    cuts = [-far, *edges, far]
    total = 0.0
    for low, high, inside in zip(cuts[:-1], cuts[1:], [above[0], *above[places + 1]], strict=True):
        if inside:
            total += mass(low, high, sides[0]) - math.exp(epsilon) * mass(low, high, sides[1])
    return max(float(total), 0.0)
