"""Private greedy coordinate descent: choose the coordinate that moves most, then measure its slope.

Every step makes two releases: the index of a coordinate, by a noisy choice among scores of *equal* sensitivity, and the
noisy sum of slopes along it. The score of a coordinate is the distance that its exact proximal step would move it, over
the most that one record can change that distance. Proximal steps move no two points apart, so the distance moves by at
most rate * limit / n, and every score by at most 1. Choosing among scores of different sensitivities with noise in
proportion to each one's own is not private at the stated epsilon (`checks.greedy_descent`).

What a choice at epsilon e costs: as pure privacy always e. As zero-concentrated privacy e^2/8 where probabilities are
proportional to exp(e score / 2), which is the largest score after Gumbel noise, because its privacy loss lies in an
interval of length e; e^2/2 for permute-and-flip and for Laplace noise, which are e-DP and no more is known. At equal
zero-concentrated cost Gumbel noise has twice the e.

Source: Mangold, Bellet, Salmon and Tommasi 2023 (the method); Dong, Durfee and Rogers 2020, Cesar and Rogers 2021
(bounded range); Bun and Steinke 2016 (zero-concentrated privacy; Proposition 1.4: epsilon-DP has epsilon^2/2 of it).
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent, LaplaceDpEvent, SelfComposedDpEvent, ZCDpEvent

from helpers.checks import check_choice, check_integer, check_real
from helpers.erm.linear import row_weights
from helpers.erm.scaling import ScaledLinearClassifier, clipped_sums
from helpers.privacy import (
    ApproximateDpEvent,
    Sensitivity,
    event_epsilon,
    exponential,
    gaussian_mu,
    report_noisy_max,
    to_grid,
)
from helpers.privacy.search import largest

# What a choice at epsilon e costs as zero-concentrated privacy, over e^2.
SELECTION_COSTS = {"gumbel": 1 / 8, "permute_and_flip": 1 / 2, "laplace": 1 / 2}


class Plan(NamedTuple):
    """What the budget buys, from public numbers alone.

    Attributes
    ----------
    scaling : float
        Scale of the noise on the second moments, over its sensitivity; 0 if there are none to release.
    selection : float
        Epsilon of each choice.
    measurement : float
        Scale of the noise on each measured sum, over its sensitivity.
    event : DpEvent
    """

    scaling: float
    selection: float
    measurement: float
    event: DpEvent


class DPGreedyCoordinateClassifier(ScaledLinearClassifier):
    """Linear classification, differentially private by noise in the choice of coordinates and in their slopes.

    Fits few coefficients well where many features say little. Objective, frame and units as in
    `DPCoordinateDescentClassifier`.

    Parameters
    ----------
    epsilon, radius, fit_intercept, random_state, neighbouring, n_records, loss, h, class_weight, counts_share, step, \
scale, center, penalty, regularization, box, prior, bounds, classes
        As in `DPCoordinateDescentClassifier`; slopes are clipped by coordinate.
    scale_share : float
        In (0, 1): the part of the budget (of epsilon where delta is 0, else of rho) that scale "private" spends.
    delta : float
        0 for pure privacy, by Laplace noise and basic composition, or in (0, 1): Gaussian noise and zero-concentrated
        composition.
    n_steps : int
        T >= 1: at most so many coefficients are not 0.
    selection : {"gumbel", "permute_and_flip", "laplace"}
        Law of the noisy choice, see the module. Gumbel noise is best where delta > 0, permute-and-flip where it is 0.
    selection_share : float
        In (0, 1): the part of each step's budget that its choice spends.

    Attributes
    ----------
    rho_ : float
        With delta > 0: the whole budget as zero-concentrated differential privacy.
    selection_epsilon_ : float
        Of each choice.
    noise_multiplier_ : float
        Scale of the noise on a measured sum (Laplace's, or the standard deviation) over the sum's sensitivity.
    moments_, offset_, coef_, intercept_, class_weight_, classes_, n_features_in_, guarantee_
        As in `DPCoordinateDescentClassifier`.

    Raises
    ------
    ValueError
        As in `ERMClassifier`.

    Source: Mangold, Bellet, Salmon and Tommasi 2023, Algorithm 1, with scores of equal sensitivity.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> model = DPGreedyCoordinateClassifier(epsilon=2.0, delta=1e-3, n_steps=4, random_state=0).fit(X, y)
    >>> str(model.guarantee_), round(model.rho_, 3), round(model.selection_epsilon_, 3)
    ('(2, 0.001)-DP, replace-one', 0.193, 0.44)
    """

    _delta_allowed = "low"

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        n_steps=10,
        selection="gumbel",
        selection_share=0.5,
        **shared,
    ):
        super().__init__(epsilon=epsilon, delta=delta, **shared)
        self.n_steps = n_steps
        self.selection = selection
        self.selection_share = selection_share

    def _check_parameters(self):
        super()._check_parameters()
        check_integer("n_steps", self.n_steps, low=1)
        check_choice("selection", self.selection, tuple(SELECTION_COSTS))
        check_real("selection_share", self.selection_share, low=0, high=1, inclusive="neither")

    def _released_weights(self, records, epsilon, rng):
        """As in the base. Counts are told as zero-concentrated where the rest is, so that one accountant reads all."""
        weights, counted = super()._released_weights(records, epsilon, rng)
        if counted is not None and self.delta > 0:
            counted = replace(counted, event=ZCDpEvent(epsilon**2 / 2))
        return weights, counted

    def _released(self, records, weights, weighting, budget, rng):
        """Coefficients and their guarantee; sets the constants as attributes."""
        if self.delta > 0:
            self.rho_ = _largest_rho(budget.learner, self.delta, self.neighbouring)
        plan, d = self._plan(budget.learner if self.delta == 0 else self.rho_), self.n_features_in_
        frame = self._frame(d)
        if self._scale_is_private:
            # One record moves the sum of the squares by at most d in l1 and by sqrt(d) in l2.
            scale = plan.scaling * (math.sqrt(d) if self.delta > 0 else d)
            spread = scale if self.delta > 0 else math.sqrt(2) * scale
            frame = self._rescaled(records, frame, spread, self._noise(scale, d, rng))
        self.selection_epsilon_, self.noise_multiplier_ = plan.selection, plan.measurement
        beta = self._descend(records, row_weights(records, weights), weighting.mass, frame, rng)
        if self.delta > 0:
            source = "zero-concentrated composition of noisy choices and Gaussian noise (Bun and Steinke 2016)"
        else:
            source = "basic composition of noisy choices and Laplace noise (Dwork and Roth 2014, Theorem 3.16)"
        return self._affine(beta, frame), self._spent(budget, plan.event, rng, source)

    def _plan(self, total) -> Plan:
        """What a total of epsilon (delta = 0) or of rho pays for."""
        share = self.scale_share if self._scale_is_private else 0.0
        each = (1 - share) * total / self.n_steps
        chosen, measured = self.selection_share * each, (1 - self.selection_share) * each
        if self.delta == 0:
            selection, noise = chosen, 1 / measured
            events = ApproximateDpEvent(selection, 0.0), LaplaceDpEvent(noise)
        else:
            selection, noise = math.sqrt(chosen / SELECTION_COSTS[self.selection]), _multiplier(measured)
            events = ZCDpEvent(chosen), GaussianDpEvent(noise)
        steps = SelfComposedDpEvent(ComposedDpEvent(events), self.n_steps)
        if not share:
            return Plan(0.0, selection, noise, steps)
        scaling = 1 / (share * total) if self.delta == 0 else _multiplier(share * total)
        first = ApproximateDpEvent(share * total, 0.0) if self.delta == 0 else GaussianDpEvent(scaling)
        return Plan(scaling, selection, noise, ComposedDpEvent((first, steps)))

    def _noise(self, scale, size, rng):
        return rng.normal(0.0, scale, size) if self.delta > 0 else rng.laplace(0.0, scale, size)

    def _descend(self, records, weights, mass, frame, rng) -> np.ndarray:
        """Coefficients after the last step; each sees the records through an index and one noisy sum."""
        signed, margins = self._signed(records)
        rate, limits, pull = self._rate(frame), self._limits(frame), np.empty(len(margins))
        weights = np.ones(len(margins)) if weights is None else weights
        beta = np.zeros(len(limits))
        for _ in range(self.n_steps):
            totals = clipped_sums(signed, self._pull(margins, out=pull), limits, weights)
            distances = np.abs(self._proximal(beta + rate * totals / records.divisor, rate) - beta)
            j = self._chosen(distances * (records.divisor / (rate * mass * limits)), rng)
            scale = self.noise_multiplier_ * mass * limits[j]
            slope = to_grid(self._noise(scale, None, rng) - totals[j], scale) / records.divisor
            moved = self._proximal(beta[j] - rate * slope, rate)
            margins += (moved - beta[j]) * signed[:, j]
            beta[j] = moved
        return beta

    def _chosen(self, scores, rng) -> int:
        """A coordinate of a large score; one record changes any of them by at most 1."""
        if self.selection == "laplace":
            return int(np.argmax(scores + rng.laplace(scale=2 / self.selection_epsilon_, size=len(scores))))
        change = Sensitivity(1.0, self.neighbouring, "linf")
        choose = exponential if self.selection == "gumbel" else report_noisy_max
        return choose(scores, change, self.selection_epsilon_, rng).value


def _largest_rho(epsilon, delta, neighbouring) -> float:
    """Largest rho whose Renyi curve dp-accounting turns into (epsilon, delta); a Gaussian of the same rho has more."""

    def enough(rho):
        return event_epsilon(ZCDpEvent(rho), delta, neighbouring, method="rdp") <= epsilon

    return largest(enough, 0.0, gaussian_mu(epsilon, delta) ** 2 / 2)


def _multiplier(rho) -> float:
    """Noise over sensitivity of a Gaussian mechanism."""
    return 1 / math.sqrt(2 * rho)
