"""Private greedy coordinate descent: choose the coordinate that moves most, then measure its slope.

Every step makes two releases: the index of a coordinate, by a noisy choice among scores of *equal* sensitivity, and the
noisy sum of slopes along it. The score of a coordinate is the distance that its exact proximal step would move it, over
the most that one record can change that distance. Proximal steps move no two points apart, so the distance moves by at
most rate * limit / n, and every score by at most 1. Choosing among scores of different sensitivities with noise in
proportion to each one's own is not private at the stated epsilon (`checks.greedy_descent`).

What a choice at epsilon e costs as zero-concentrated privacy: e^2/8 where probabilities are proportional to
exp(e score / 2), which is the largest score after Gumbel noise, because its privacy loss lies in an interval of length
e; e^2/2 for permute-and-flip and for Laplace noise, which are e-DP and no more is known. At equal cost Gumbel noise has
twice the e.

Source: Mangold, Bellet, Salmon and Tommasi 2023 (the method); Dong, Durfee and Rogers 2020, Cesar and Rogers 2021
(bounded range); Bun and Steinke 2016 (zero-concentrated privacy; Proposition 1.4: epsilon-DP has epsilon^2/2 of it).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from helpers.erm.perturbation import Claim, Public
from helpers.erm.scaling import SCALE_SHARE, ScaledLinearClassifier, logistic_pull
from helpers.privacy import Ledger, zcdp_budget
from helpers.privacy.ledger import SELECTION_COSTS
from helpers.validation import Check, choice, integer

_BLOCK = 1 << 16  # entries of the table of clipped slopes
_LAWS = {"gumbel": "exponential", "permute_and_flip": "permute_and_flip", "laplace": "laplace"}


@dataclass(eq=False, repr=False)
class DPGreedyCoordinateClassifier(ScaledLinearClassifier):
    """Linear classification, differentially private by noise in the choice of coordinates and in their slopes.

    Fits few coefficients well where many features say little. Objective, frame and units as in
    `DPCoordinateDescentClassifier`.

    Parameters
    ----------
    epsilon, radius, fit_intercept, random_state, neighbouring, n_records, class_weight, counts_share, step, scale, \
center, penalty, regularization, prior, bounds, classes
        As in `DPCoordinateDescentClassifier`; slopes are clipped by coordinate. Scale "private" spends a tenth of rho.
    delta : float
        In (0, 1): Gaussian noise and zero-concentrated composition.
    n_steps : int
        T >= 1, which is also the largest number of coefficients other than 0.
    selection : {"gumbel", "permute_and_flip", "laplace"}
        Law of the noisy choice, which spends half of each step's budget; see the module. Gumbel noise is best.

    Attributes
    ----------
    rho_ : float
        The whole budget as zero-concentrated differential privacy.
    selection_epsilon_ : float
        Of each choice.
    noise_multiplier_ : float
        Standard deviation of the noise on a measured sum over the sum's sensitivity.
    moments_, offset_, coef_, intercept_, class_weight_, classes_, n_features_in_, guarantee_
        As in `DPCoordinateDescentClassifier`.

    Raises
    ------
    ValueError
        As in `ERMClassifier`.

    Proof: the sensitivity of the scores is proved here (`helpers.erm.greedy`); the cost of choices and composition are
    in the literature.

    Source: Mangold, Bellet, Salmon and Tommasi 2023, Algorithm 1, with scores of equal sensitivity.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> model = DPGreedyCoordinateClassifier(epsilon=2.0, delta=1e-3, n_steps=4, random_state=0).fit(X, y)
    >>> str(model.guarantee_), round(model.rho_, 3), round(model.selection_epsilon_, 3)
    ('(2, 0.001)-DP, replace-one', 0.193, 0.44)
    """

    _allowed: ClassVar[dict[str, Check]] = {
        "n_steps": integer(low=1),
        "selection": choice(*_LAWS),
    }

    n_steps: int = 10
    selection: str = "gumbel"

    def _released(self, ledger: Ledger, public: Public, epsilon: float) -> Claim:
        self.rho_ = zcdp_budget(epsilon, float(self.delta))
        # Half of a step's budget for the choice of the coordinate, and half for its slope.
        half, law = (1 - self._scale_share) * self.rho_ / self.n_steps / 2, _LAWS[self.selection]
        self.selection_epsilon_ = math.sqrt(half / SELECTION_COSTS[law])
        # Gaussian noise of multiplier m costs rho = 1 / (2 m^2).
        self.noise_multiplier_ = 1 / math.sqrt(2 * half)
        frame, steps = self._private_frame(ledger, public, 1 / math.sqrt(2 * SCALE_SHARE * self.rho_))
        limits, rate = self._limits(frame), self._rate(frame)
        mass, divisor = public.weighting.mass, public.divisor
        beta, last, by = np.zeros(len(limits)), 0, 0.0

        def scores(margins):
            margins.move(last, by)
            weights = np.ones(len(margins.values)) if margins.weights is None else margins.weights
            pull = logistic_pull(margins.values, out=margins.buffer)
            # The clipped sum along each coordinate, in blocks of them so that memory stays bounded.
            margins.totals, width = np.empty(len(limits)), max(_BLOCK // max(len(pull), 1), 1)
            for start in range(0, len(limits), width):
                block = slice(start, start + width)
                part = margins.signed[:, block].T * pull
                margins.totals[block] = np.clip(part, -limits[block, None], limits[block, None], out=part) @ weights
            distances = np.abs(self._proximal(beta + rate * margins.totals / divisor, rate) - beta)
            # Over the most that one record can change each distance: all scores have sensitivity 1, whatever their
            # limits.
            return distances * (divisor / (rate * mass * limits))

        for _ in range(self.n_steps):
            j = steps.choose(scores, 1.0, law=law, rho=half)

            # The sum along the chosen coordinate was computed with the scores and is kept with the private margins.
            def slope(margins, j=j):
                return -margins.totals[j]

            noisy = steps.gaussian(slope, mass * limits[j], self.noise_multiplier_)
            moved = self._proximal(beta[j] - rate * (noisy / divisor), rate)
            last, by, beta[j] = j, moved - beta[j], moved
        self._store_units(beta, frame)
        source = "zero-concentrated composition of noisy choices and Gaussian noise (Bun and Steinke 2016)"
        return Claim(epsilon, source)
