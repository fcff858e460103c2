"""Gradient descent with Gaussian noise, on all records or on Poisson samples: a yardstick for other private fits.

Every step releases the clipped, weighted sum of the gradients with Gaussian noise, so its guarantee is a composition of
Gaussian mechanisms and needs no minimiser and no smooth loss. Frame, scale, clips and penalties are those of coordinate
descent, so that the two can be compared at the same knowledge of the scale. Deep models are left to others.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

from helpers.erm.linear import Records
from helpers.erm.partitions import is_dask
from helpers.erm.perturbation import Claim, Public
from helpers.erm.scaling import SCALE_SHARE, ScaledLinearClassifier
from helpers.privacy import ADD_REMOVE, Ledger, event_epsilon, furthest, gaussian_mu
from helpers.validation import Check, integer, optional, real

_INTERVAL = 5e-4  # between the points of a privacy loss distribution, over epsilon or mu
_LARGEST_EPSILON = 100.0  # beyond it nobody counts on sampling
_SOURCE = "composition of Gaussian mechanisms (Dong, Roth and Su 2022, Corollary 3.3)"
_SAMPLED_SOURCE = "privacy loss distributions of sampled Gaussian mechanisms (Doroshenko et al. 2022; dp-accounting)"


@dataclass(eq=False, repr=False)
class DPGradientDescentClassifier(ScaledLinearClassifier):
    """Linear classification that is (epsilon, delta)-DP by noise in every step of gradient descent.

    Parameters
    ----------
    epsilon, delta, step, radius, scale, center, penalty, regularization, prior, fit_intercept, random_state, classes, \
neighbouring, n_records, class_weight, bounds, counts_share
        As in `DPCoordinateDescentClassifier`; gradients are clipped by record, and `step` is in units of 1 / (the
        loss's curvature times the mean square length that the frame expects of a row).
    n_steps : int
        Steps T >= 1.
    sample_rate : float, optional
        In (0, 1): every step sees each record with this probability, independently. Add/remove only, and no weights
        that one record moves for all; nor with Dask's records, where no worker can draw from the generator of the
        noise. Left out: all records.
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

    _allowed: ClassVar[dict[str, Check]] = {
        "n_steps": integer(low=1),
        "sample_rate": optional(real(low=0, high=1, inclusive="neither")),
        "average": real(low=0, high=1),
    }

    _takes_parts = True

    n_steps: int = 100
    sample_rate: float | None = None
    average: float = 0.0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.sample_rate is not None and self.neighbouring is not ADD_REMOVE:
            raise ValueError(f"neighbouring must be add/remove-one with a sample_rate, got {self.neighbouring!r}")
        if self.sample_rate is not None and self.class_weight == "balanced":
            raise ValueError("class_weight must not be 'balanced' with a sample_rate: one record moves all weights")

    def _records(self, X, y, multiplicity) -> Records:
        if self.sample_rate is not None and is_dask(X):
            raise ValueError(
                "sample_rate must be None with Dask's records, as no worker has the generator of the noise, "
                f"got {self.sample_rate!r}"
            )
        return super()._records(X, y, multiplicity)

    def _released(self, ledger: Ledger, public: Public, epsilon: float) -> Claim:
        mu = gaussian_mu(epsilon, self.delta)
        for_scale = 1 / (math.sqrt(SCALE_SHARE) * mu)
        frame, steps = self._private_frame(ledger, public, for_scale)
        left = mu * math.sqrt(1 - self._scale_share)
        # T mechanisms of multiplier sqrt(T) / mu compose to one of parameter mu (Corollary 3.3).
        multiplier, claim = math.sqrt(self.n_steps) / left, Claim(epsilon, _SOURCE)
        if self.sample_rate is not None:
            scaling = GaussianDpEvent(for_scale) if self._scale_share else None
            claim = Claim(epsilon, _SAMPLED_SOURCE, _INTERVAL * max(epsilon, mu))
            multiplier = _sampled_multiplier(scaling, self.sample_rate, self.n_steps, self.delta, claim, multiplier)
        self.noise_multiplier_ = multiplier
        lengths = np.full(len(frame.largest), public.weighting.mass * self._longest(frame))
        self.noise_scales_ = multiplier * lengths

        # The mean square length of a row is that of all its entries together, or `radius`^2 without a scale.
        rate = self._rate(frame._replace(moment=self.radius**2 if self._has_no_scale else 1.0))
        beta, mean = np.zeros(len(lengths)), np.zeros(len(lengths))
        # The expected number of records in a sample divides the sum: the number that was drawn is private.
        kept, expected = max(round(self.average * self.n_steps), 1), public.divisor * (self.sample_rate or 1.0)
        for step in range(self.n_steps):

            def slope(margins, rng, beta=beta):
                return -margins.pull(beta, rate=self.sample_rate, rng=None if self.sample_rate is None else rng)

            # What one record moves, in units of `lengths`, has length 1 at most.
            noisy = steps.sampled(slope, self.sample_rate, 1.0, self.noise_multiplier_, lengths)
            beta = self._proximal(beta - rate * noisy / expected, rate)
            if step >= self.n_steps - kept:
                mean = mean + beta / kept
        self._store_units(mean, frame)
        return claim


@cache
def _sampled_multiplier(
    scaling: GaussianDpEvent | None, rate: float, count: int, delta: float, claim: Claim, high: float
) -> float:
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
    return furthest(enough, high, low, relative=1e-4)
