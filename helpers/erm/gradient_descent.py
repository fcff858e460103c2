"""Full-batch gradient descent with Gaussian noise: a yardstick for objective perturbation.

Every step releases the clipped, weighted sum of the gradients with Gaussian noise, so its guarantee is a composition of
Gaussian mechanisms and needs no minimiser and no smooth loss. Mini-batches and deep models are left to others.
"""

import math

import numpy as np
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent

from helpers.checks import check_integer, check_real
from helpers.erm.linear import row_weights
from helpers.erm.perturbation import PrivateLinearClassifier
from helpers.privacy import REPLACE_ONE, Guarantee, gaussian_mu


class DPGradientDescentClassifier(PrivateLinearClassifier):
    """Linear classification that is (epsilon, delta)-DP by noise in every step of gradient descent.

    Parameters
    ----------
    epsilon, regularization, radius, fit_intercept, random_state, classes, neighbouring, n_records, loss, h, \
class_weight, bounds, counts_share
        As in `ObjectivePerturbationClassifier`; two classes.
    delta : float
        In (0, 1).
    n_steps : int
        Steps T >= 1. All together are one Gaussian mechanism of parameter mu, sqrt(T) / noise_multiplier.
    clip : float, optional
        Largest norm of one record's gradient before its weight, > 0; `radius` if left out, which never clips.
    learning_rate : float, optional
        In (0, 2 / regularization]; 1 / (curvature radius^2 + regularization) if left out, which is safe for every data
        set.

    Attributes
    ----------
    noise_multiplier_ : float
        Standard deviation of the noise on a sum, over that sum's sensitivity.
    rho_ : float
        Parameter of zero-concentrated differential privacy, n_steps / (2 noise_multiplier^2).
    guarantee_ : helpers.privacy.Guarantee
    others
        As in `ObjectivePerturbationClassifier`.

    Raises
    ------
    ValueError
        As in `ERMClassifier`.

    Source: Song, Chaudhuri and Sarwate 2013; Bun and Steinke 2016; composition exactly by Dong, Roth and Su 2022.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> model = DPGradientDescentClassifier(epsilon=2.0, delta=1e-3, n_steps=10, random_state=0).fit(X, y)
    >>> str(model.guarantee_), round(model.rho_, 3)
    ('(2, 0.001)-DP, replace-one', 0.239)
    """

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        regularization=1e-3,
        radius=1.0,
        fit_intercept=True,
        random_state=None,
        classes=(0, 1),
        neighbouring=REPLACE_ONE,
        n_records=None,
        loss="logistic",
        h=0.5,
        class_weight=None,
        bounds=None,
        counts_share=0.1,
        n_steps=100,
        clip=None,
        learning_rate=None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.regularization = regularization
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.classes = classes
        self.neighbouring = neighbouring
        self.n_records = n_records
        self.loss = loss
        self.h = h
        self.class_weight = class_weight
        self.bounds = bounds
        self.counts_share = counts_share
        self.n_steps = n_steps
        self.clip = clip
        self.learning_rate = learning_rate

    def _check_parameters(self):
        super()._check_parameters()
        check_real("delta", self.delta, low=0, high=1, inclusive="neither")
        check_integer("n_steps", self.n_steps, low=1)
        if len(self.classes) > 2:
            raise ValueError(f"classes must be two labels, got {self.classes!r}")
        if self.clip is not None:
            check_real("clip", self.clip, low=1e-100, high=1e100)
        if self.learning_rate is not None:
            # Clipped sums are bounded, so coefficients are as long as the penalty alone does not make them grow.
            check_real("learning_rate", self.learning_rate, low=0, high=2 / self.regularization, inclusive="high")

    def _released(self, records, weights, weighting, budget, rng):
        """Coefficients and their guarantee; sets the constants as attributes."""
        multiplier = math.sqrt(self.n_steps) / gaussian_mu(budget.learner, self.delta)
        clip = float(self.radius if self.clip is None else self.clip)
        scale = multiplier * weighting.mass * clip
        beta = self._descend(records, row_weights(records, weights), clip, scale, rng)
        self.noise_multiplier_, self.rho_ = multiplier, self.n_steps / (2 * multiplier**2)
        guarantee = Guarantee(
            budget.learner,
            float(self.delta),
            self.neighbouring,
            SelfComposedDpEvent(GaussianDpEvent(multiplier), self.n_steps),
            self._assumptions(rng),
            "composition of Gaussian mechanisms (Dong, Roth and Su 2022, Corollary 3.3)",
        )
        return beta, guarantee

    def _descend(self, records, weights, clip, scale, rng) -> np.ndarray:
        """The last of the steps; every one sees the records through one noisy sum."""
        loss, signs, rows = self._loss(), 2.0 * records.codes - 1, records.rows
        rate = self.learning_rate or 1 / (loss.curvature * self.radius**2 + self.regularization)
        lengths = np.linalg.norm(rows, axis=1)
        weights = np.ones(len(rows)) if weights is None else weights
        beta = np.zeros(rows.shape[1])
        for _ in range(self.n_steps):
            slope = loss.slope(signs * (rows @ beta))
            # |slope| length is the norm of one gradient; multiplying first avoids a division by zero.
            slope = slope * np.minimum(1.0, clip / np.maximum(np.abs(slope) * lengths, clip))
            total = (weights * signs * slope) @ rows + rng.normal(0.0, scale, len(beta))
            beta = beta - rate * (total / records.divisor + self.regularization * beta)
        return beta
