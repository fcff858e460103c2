"""Gradient descent with Gaussian noise, on all records or on Poisson samples: a yardstick for other private fits.

Every step releases the clipped, weighted sum of the gradients with Gaussian noise, so its guarantee is a composition of
Gaussian mechanisms and needs no minimiser and no smooth loss. Frame, scale, clips and penalties are those of coordinate
descent, so that the two can be compared at the same knowledge of the scale. Deep models are left to others.
"""

import math
from functools import cache

import numpy as np
from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

from helpers.checks import check_integer, check_real
from helpers.erm.perturbation import Claim
from helpers.erm.scaling import ScaledLinearClassifier, clipped_sums
from helpers.privacy import ADD_REMOVE, event_epsilon, gaussian_mu
from helpers.privacy.search import smallest

_INTERVAL = 5e-4  # between the points of a privacy loss distribution, over epsilon or mu
_LARGEST_EPSILON = 100.0  # beyond it nobody counts on sampling
_SOURCE = "composition of Gaussian mechanisms (Dong, Roth and Su 2022, Corollary 3.3)"
_SAMPLED_SOURCE = "privacy loss distributions of sampled Gaussian mechanisms (Doroshenko et al. 2022; dp-accounting)"


class DPGradientDescentClassifier(ScaledLinearClassifier):
    """Linear classification that is (epsilon, delta)-DP by noise in every step of gradient descent.

    Parameters
    ----------
    epsilon, delta, step, clip, radius, scale, scale_share, center, penalty, regularization, box, prior, \
fit_intercept, random_state, classes, neighbouring, n_records, loss, h, class_weight, bounds, counts_share
        As in `DPCoordinateDescentClassifier`; `step` is in units of 1 / (the loss's curvature times the mean square
        length that the frame expects of a row).
    n_steps : int
        Steps T >= 1.
    sample_rate : float, optional
        In (0, 1): every step sees each record with this probability, independently. Add/remove only, and no weights
        that one record moves for all. Left out: all records.
    average : float
        In [0, 1]: the part of the steps, from the last one backwards, whose results are averaged; at least one.

    Attributes
    ----------
    noise_multiplier_ : float
        Standard deviation of the noise on a sum, over that sum's sensitivity.
    noise_scales_ : ndarray (D,)
        Standard deviation of the noise on the sum along each coordinate.
    coef_, intercept_, offset_, moments_, class_weight_, classes_, n_features_in_, guarantee_
        As in `DPCoordinateDescentClassifier`.

    Raises
    ------
    ValueError
        As in `ERMClassifier`.

    Proof: in the literature; what one record moves is proved here, as for coordinate descent.

    Source: Song, Chaudhuri and Sarwate 2013; Abadi et al. 2016 (sampling); composition exactly by Dong, Roth and Su
    2022, with sampling by dp-accounting.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> model = DPGradientDescentClassifier(epsilon=2.0, delta=1e-3, n_steps=10, random_state=0).fit(X, y)
    >>> str(model.guarantee_), round(model.noise_multiplier_, 3)
    ('(2, 0.001)-DP, replace-one', 4.57)
    """

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        n_steps=100,
        sample_rate=None,
        clip="row",
        average=0.0,
        **shared,
    ):
        super().__init__(epsilon=epsilon, delta=delta, **shared)
        self.n_steps = n_steps
        self.sample_rate = sample_rate
        self.clip = clip
        self.average = average

    def _check_parameters(self):
        super()._check_parameters()
        check_integer("n_steps", self.n_steps, low=1)
        check_real("average", self.average, low=0, high=1)
        if self.sample_rate is None:
            return
        check_real("sample_rate", self.sample_rate, low=0, high=1, inclusive="neither")
        if self.neighbouring is not ADD_REMOVE:
            raise ValueError(f"neighbouring must be add/remove-one with a sample_rate, got {self.neighbouring!r}")
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            raise ValueError("class_weight must not be 'balanced' with a sample_rate: one record moves all weights")

    def _released(self, ledger, public, epsilon):
        mu = gaussian_mu(epsilon, self.delta)
        frame, ledger, left = self._gaussian_frame(ledger, public.divisor, mu)
        multiplier, claim = math.sqrt(self.n_steps) / left, Claim(epsilon, _SOURCE)
        if self.sample_rate is not None:
            scaling = GaussianDpEvent(1 / (math.sqrt(self.scale_share) * mu)) if self._scale_is_private else None
            claim = Claim(epsilon, _SAMPLED_SOURCE, _INTERVAL * max(epsilon, mu))
            multiplier = _sampled_multiplier(scaling, self.sample_rate, self.n_steps, self.delta, claim, multiplier)
        self.noise_multiplier_ = multiplier
        lengths = public.weighting.mass * self._lengths(frame, np.ones(len(frame.largest)))
        self.noise_scales_ = multiplier * lengths
        beta = self._descend(self._steps(ledger, frame, public), frame, lengths, public.divisor)
        return self._affine(beta, frame), claim

    def _descend(self, steps, frame, lengths, divisor) -> np.ndarray:
        """Mean coefficients of the last steps; every step sees the records through one noisy sum."""
        rate = self.step / (self._loss().curvature * (self.radius**2 if self._scaling is None else 1.0))
        beta, mean, kept = np.zeros(len(frame.largest)), 0.0, max(round(self.average * self.n_steps), 1)
        limits, expected = self._limits(frame), divisor * (self.sample_rate or 1.0)
        for step in range(self.n_steps):

            def slope(margins, rng, beta=beta):
                return -self._clipped_total(margins, beta, limits, rng)

            # What one record moves, in units of `lengths`, has length 1 at most.
            noisy = steps.sampled(slope, self.sample_rate, 1.0, self.noise_multiplier_, lengths)
            beta = self._proximal(beta - rate * noisy / expected, rate)
            if step >= self.n_steps - kept:
                mean = mean + beta / kept
        return mean

    def _clipped_total(self, margins, beta, limits, rng) -> np.ndarray:
        """Weighted sum (D,) of what the records of one step pull at coefficients beta."""
        weights = self._drawn(margins, rng)
        if margins.class_weights is not None:
            weights = margins.class_weights * weights
        seen = slice(None) if self.sample_rate is None else np.flatnonzero(weights)
        rows, weights = margins.signed[seen], weights[seen]
        scores = margins.values[seen] + rows @ beta
        pull = self._pull(scores, out=scores)
        if self.clip == "coordinate":
            return clipped_sums(rows, pull, limits, weights)
        return (np.minimum(pull, margins.caps[seen]) * weights) @ rows

    def _drawn(self, margins, rng) -> np.ndarray:
        """How many of the records (m,) that each row stands for a step sees."""
        numbers, rate, m = margins.multiplicity, self.sample_rate, len(margins.values)
        if numbers is None:  # uniform numbers are faster than binomial ones
            return np.ones(m) if rate is None else rng.random(m) < rate
        return numbers if rate is None else rng.binomial(numbers, rate)


@cache
def _sampled_multiplier(scaling, rate, count, delta, claim, high) -> float:
    """Least noise over sensitivity of `count` sampled steps, after `scaling`, that keeps what is claimed at `delta`.

    `high` is what suffices without sampling, which never helps an adversary.
    """
    if claim.epsilon > _LARGEST_EPSILON:
        return high

    def enough(multiplier):
        step = PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier))
        parts = [SelfComposedDpEvent(event, n) for event, n in ((scaling, 1), (step, count)) if event]
        return event_epsilon(ComposedDpEvent(parts), delta, ADD_REMOVE, interval=claim.interval) <= claim.epsilon

    least, low = high / 1000, high / 2  # none at all would do where delta exceeds the chance to be seen
    while low > least and enough(low):
        low, high = low / 2, low
    return smallest(enough, low, high, relative=1e-4)
