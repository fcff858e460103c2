"""Full-batch gradient descent with Gaussian noise: a yardstick for objective perturbation.

Every step releases the clipped, weighted sum of the gradients with Gaussian noise, so its guarantee is a composition of
Gaussian mechanisms and needs no exact minimiser and no smooth loss. Mini-batches and deep models are left to others.
"""

import math

import numpy as np
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent

from helpers.checks import check_integer, check_real
from helpers.erm.estimators import PrivateERMClassifier
from helpers.erm.objective import Solution
from helpers.privacy import REPLACE_ONE, Guarantee, compose, gaussian_mu


class DPGradientDescentClassifier(PrivateERMClassifier):
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
        > 0; 1 / (curvature radius^2 + regularization) if left out, which is safe for every data set.

    Attributes
    ----------
    noise_multiplier_ : float
        Standard deviation of the noise on a sum, over that sum's sensitivity.
    rho_ : float
        Parameter of zero-concentrated differential privacy, n_steps / (2 noise_multiplier^2).
    guarantee_ : helpers.privacy.Guarantee
    others
        As in `ERMClassifier`; there is no minimiser, so `gradient_norm_` is NaN.

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
        super().__init__(regularization, radius, fit_intercept, 1e-8, classes, loss, h, class_weight, bounds)
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.n_records = n_records
        self.random_state = random_state
        self.counts_share = counts_share
        self.n_steps = n_steps
        self.clip = clip
        self.learning_rate = learning_rate

    def _check_parameters(self):
        super()._check_parameters()
        check_real("delta", self.delta, low=0, high=1, inclusive="neither")
        check_integer("n_steps", self.n_steps, low=1)
        for name in ("clip", "learning_rate"):
            if getattr(self, name) is not None:
                check_real(name, getattr(self, name), low=0, inclusive="neither")
        if len(self.classes) > 2:
            raise ValueError(f"classes must be two labels, got {self.classes!r}")

    def _solve(self, rows, codes, weights, regularization, linear):
        loss, signs = self._loss(), 2.0 * codes - 1
        clip = self.radius if self.clip is None else self.clip
        rate = self.learning_rate or 1 / (loss.curvature * self.radius**2 + self.regularization)
        self.noise_multiplier_ = math.sqrt(self.n_steps) / gaussian_mu(self._budget, self.delta)
        self.rho_ = self.n_steps / (2 * self.noise_multiplier_**2)
        scale = self.noise_multiplier_ * self._weighting.mass * clip
        lengths = np.linalg.norm(rows, axis=1)
        weights = np.ones(len(rows)) if weights is None else weights
        divisor = self._divisor(len(rows))
        beta = np.zeros(rows.shape[1])
        for _ in range(self.n_steps):
            slope = loss.slope(signs * (rows @ beta))
            # |slope| length is the norm of one gradient; multiplying first avoids a division by zero.
            slope = slope * np.minimum(1.0, clip / np.maximum(np.abs(slope) * lengths, clip))
            total = (weights * signs * slope) @ rows + self._rng.normal(0.0, scale, len(beta))
            beta = beta - rate * (total / divisor + self.regularization * beta)
        return Solution(beta, math.nan, self.n_steps)

    def _guarantee(self):
        event = SelfComposedDpEvent(GaussianDpEvent(self.noise_multiplier_), self.n_steps)
        own = Guarantee(
            self._budget,
            float(self.delta),
            self.neighbouring,
            event,
            tuple(item for item in self._assumptions() if item != "exact minimiser"),
            "composition of Gaussian mechanisms (Dong, Roth and Su 2022, Corollary 3.3)",
        )
        return compose([self._counted, own]) if self.class_weight == "private" else own
