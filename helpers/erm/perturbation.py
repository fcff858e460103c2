"""Private linear classifiers: noise in the objective, or noise on its minimiser.

Both theorems are about exact minimisers, and a solver only comes close. So a share `tol` of epsilon pays for the
distance between the two, and epsilon is what the *released* coefficients have. What double arithmetic adds is not in it
(`EXACT_REALS` in `guarantee_.assumes`): measured against extended precision, rounding moves the minimisers of tables of
10^3 to 10^6 records by less than 3e-15 / radius, which the noise below hides for some 1e-8 of epsilon, and releases are
rounded to a public grid (`helpers.privacy.to_grid`).

Objective perturbation with approximate minima
    Let beta*(D, b) be the exact minimiser for data D and noise b, and let its law be (e, delta)-DP. Let beta~(D, b) be
    within rho of it, always, and release beta~ + u with u of density proportional to exp(-r ||u||). That is (e + 2 r
    rho, e^{r rho} delta)-DP. Proof: for fixed b the density of beta~ + u is at every point at most e^{r rho} times that
    of beta* + u, and at least e^{-r rho} times, by the triangle inequality; integrating over b, the same holds for
    P(beta~ + u in A) and P(beta* + u in A); and beta* + u, post-processing of beta*, is (e, delta)-DP. So P(beta~ + u
    in A) <= e^{r rho} P(beta* + u in A) <= e^{r rho} (e^e P'(beta* + u in A) + delta) <= e^{e + 2 r rho} P'(beta~ + u
    in A) + e^{r rho} delta. With e = (1 - tol) epsilon and r = tol epsilon / (2 rho) the sum is epsilon. Here rho = tol
    w / (2 R), hence r = epsilon R / w and u has the mean length w d / (epsilon R), whatever tol is; the constant w =
    4e-7 makes it invisible in any score.
Output perturbation with approximate minima
    Exact minimisers of neighbours are within S = `largest_move` of each other, approximate ones within S + 2 rho, so
    noise at the rate epsilon / (S + 2 rho) gives epsilon. With rho = tol S / (2 (1 - tol)) that is the rate (1 - tol)
    epsilon/S. Gaussian noise of standard deviation (S + 2 rho) / mu is a Gaussian mechanism of parameter mu, and
    (epsilon, delta)-DP where that is: the solver costs no epsilon then, and makes the noise 1 / (1 - tol) times as
    large.

Source: Iyengar et al. 2019 (approximate minima perturbation, with Gaussian noise); the pure version is proved here.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from dp_accounting import GaussianDpEvent

from helpers.checks import check_boolean, check_choice, check_integer, check_real
from helpers.constructors import SharedParameters
from helpers.erm.calibration import calibrate, calibrate_gaussian, gaussian_jacobian_cost, largest_move
from helpers.erm.linear import LinearClassifier
from helpers.erm.weighting import balanced_weights, class_weights, fixed_weights
from helpers.privacy import (
    ADD_REMOVE,
    EXACT_REALS,
    REPLACE_ONE,
    Guarantee,
    PrivateMixin,
    check_random_state,
    class_counts,
    compose,
    gaussian_multiplier,
    noise_assumptions,
    spherical_gamma,
    to_grid,
)

_BLUR = 4e-7  # w: the mean length of u is this times d / (epsilon R)
_SMALLEST_EPSILON = 1e-10
_LARGEST_DIVISOR = 10**15


@dataclass(frozen=True)
class Budget:
    """What epsilon is spent on, by public shares.

    Attributes
    ----------
    counts : float
        For noisy class counts.
    learner : float
        For the coefficients.
    tol : float
        The solver's share of `learner`.

    >>> Budget(counts=0.0, learner=2.0, tol=0.25).noise
    1.5
    """

    counts: float
    learner: float
    tol: float

    @property
    def solver(self) -> float:
        """For the distance between the solver's result and the exact minimiser."""
        return self.tol * self.learner

    @property
    def noise(self) -> float:
        """For the exact minimiser."""
        return self.learner - self.solver


class Constants(NamedTuple):
    """Constants of objective perturbation, from public numbers, and what they guarantee for exact minimisers.

    Attributes
    ----------
    noise : float
        Rate of the noise norm, or standard deviation of each coordinate where delta > 0.
    total_regularization : float
    epsilon : float
        What is proved.
    epsilon_noise, epsilon_jacobian : float
        How the analysis splits the budget between the noise and the Jacobian determinant.
    source : str
    """

    noise: float
    total_regularization: float
    epsilon: float
    epsilon_noise: float
    epsilon_jacobian: float
    source: str


class PrivateLinearClassifier(SharedParameters, PrivateMixin, LinearClassifier, ABC):
    """Budget, relation, class weights and guarantee of the private classifiers. Not for use by itself."""

    _class_weights_allowed = (None, "balanced", "private")

    def __init__(
        self,
        epsilon=1.0,
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
    ):
        self.epsilon = epsilon
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

    def fit(self, X, y, multiplicity=None):
        """Fit privately.

        Parameters
        ----------
        X : array (m, d)
        y : array (m,)
        multiplicity : array (m,) of int, optional
            How many equal records each row stands for, at least 1: the same mechanism as for the table written out, and
            the guarantee is about that table.

        Returns
        -------
        self
        """
        self._check_parameters()
        self._forget()
        budget = self._budget()
        records = self._records(X, y, multiplicity, self.n_records)
        parts = (records.rows, records.codes, records.multiplicity)
        rng = self._noise_generator(*(part for part in parts if part is not None))
        weights, counted = self._released_weights(records, budget.counts, rng)
        weighting = self._weighting(weights)
        beta, guarantee = self._released(records, weights, weighting, budget, rng)
        self._store(beta)
        self.guarantee_ = guarantee if counted is None else compose([counted, guarantee])
        if weights is not None and self.class_weight != "balanced":
            self.class_weight_ = weights
        return self

    @abstractmethod
    def _released(self, records, weights, weighting, budget, rng):
        """Coefficients and their guarantee; sets the constants as attributes."""

    def _check_parameters(self):
        super()._check_parameters()
        check_random_state(self.random_state)
        check_real("epsilon", self.epsilon, low=_SMALLEST_EPSILON)
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        if self.n_records is not None:
            check_integer("n_records", self.n_records, low=1, high=_LARGEST_DIVISOR)
        elif self.neighbouring == ADD_REMOVE:
            raise ValueError("n_records must be a public integer under add/remove-one, got None")
        check_real("counts_share", self.counts_share, low=0, high=1, inclusive="neither")

    def _budget(self, tol=0.0) -> Budget:
        counts = self.counts_share * self.epsilon if self.class_weight == "private" else 0.0
        return Budget(counts, self.epsilon - counts, tol)

    def _released_weights(self, records, epsilon, rng):
        """Weights (K,) of the classes, and the guarantee of what was paid for them (None: nothing)."""
        if self.class_weight != "private":
            return self._weights(records), None
        codes = records.codes if records.multiplicity is None else np.repeat(records.codes, records.multiplicity)
        released = class_counts(codes, range(len(self.classes_)), epsilon, self.neighbouring, rng)
        return class_weights(np.maximum(released.value, 1.0)), released.guarantee

    def _weighting(self, weights):
        if self.class_weight == "balanced":
            return balanced_weights(len(self.classes))
        return fixed_weights(1.0 if weights is None else float(weights.max()), self.neighbouring)

    def _spent(self, budget, event, rng, source) -> Guarantee:
        """The guarantee of coefficients that cost the learner's whole budget."""
        return Guarantee(budget.learner, float(self.delta), self.neighbouring, event, self._assumptions(rng), source)

    def _assumptions(self, rng) -> tuple[str, ...]:
        return (
            "number of records public" if self.n_records is None else "number that divides the loss public",
            "norm bound (radius) public",
            "set of labels public",
            *(("class weights public",) if isinstance(self.class_weight, dict) else ()),
            *(("feature bounds public",) if self.bounds is not None else ()),
            EXACT_REALS,
            *noise_assumptions(rng),
        )


class ObjectivePerturbationClassifier(PrivateLinearClassifier):
    """Linear classification that is differentially private by noise in the objective, weighted by class or not.

    The objective of `ERMClassifier` gets a linear term b'beta/n, b of density proportional to exp(-noise_rate
    ||b||), and extra regularisation where the budget asks for it. `coef_` and `intercept_` together are
    epsilon-DP under `neighbouring`, with n, `radius` and `classes` public. Standardising X with its own mean or maximum
    is not covered.

    Parameters
    ----------
    epsilon : float
        Privacy budget, at least 1e-10.
    regularization, radius, fit_intercept, classes, loss, h, bounds
        As in `ERMClassifier`.
    tol : float
        In [1e-12, 0.5): the share of epsilon that pays for stopping at a distance 2e-7 tol / radius from the exact
        minimiser (`helpers.erm.perturbation` has the theorem). A small vector of noise, of mean length 4e-7 d /
        (epsilon radius), is added to the result.
    random_state : None or int
        None: noise that nobody can predict. An integer is for reproducing: whoever can guess it can undo the privacy,
        and it must not serve two releases on related data (`PrivateMixin`).
    neighbouring : NeighboringRelation
        `REPLACE_ONE`, as in the papers, or `ADD_REMOVE`.
    n_records : int, optional
        Public number n >= 1 that divides the loss. By default the number of records, which replace-one keeps and
        add/remove does not: there it has to be given, and need not be the number of records.
    class_weight : None, "balanced", "private" or dict
        "balanced": the data's own inverse frequencies; that one record moves them all is part of the proof. "private":
        the inverse frequencies of noisy counts, which cost `counts_share` of epsilon. A dict is public.
    delta : float
        0, or in (0, 1) for Gaussian noise and (epsilon, delta)-DP.
    raise_regularization : bool
        Whether more than `regularization` may be used. If not, small budgets are refused.
    counts_share : float
        In (0, 1): the part of epsilon spent on the counts by "private".

    Attributes
    ----------
    noise_rate_ : float
        Rate of the noise norm, 1 / (units of radius); with `delta` > 0 there is `noise_scale_` instead.
    total_regularization_ : float
        lambda + Delta.
    epsilon_noise_, epsilon_jacobian_, epsilon_solver_ : float
        How epsilon is split between the noise, the Jacobian determinant and the solver.
    class_weight_ : ndarray (K,)
        The public or privately estimated weights; not there with "balanced", whose weights no guarantee covers.
    guarantee_ : helpers.privacy.Guarantee
        Of `coef_` and `intercept_` (and `class_weight_`), and of nothing else.
    coef_, intercept_, classes_, n_features_in_
        As in `ERMClassifier`.

    Raises
    ------
    ValueError
        As in `ERMClassifier`, and where `helpers.erm.calibrate` refuses the parameters.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2; Rosenblatt et al. 2025, Algorithm 1.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> model = ObjectivePerturbationClassifier(epsilon=2.0, regularization=0.6, random_state=0).fit(X, y)
    >>> model.guarantee_.epsilon, round(model.noise_rate_, 6)
    (2.0, 1.0)
    """

    def __init__(
        self,
        epsilon=1.0,
        regularization=1e-3,
        tol=5e-7,
        delta=0.0,
        raise_regularization=True,
        **shared,
    ):
        super().__init__(epsilon=epsilon, regularization=regularization, **shared)
        self.tol = tol
        self.delta = delta
        self.raise_regularization = raise_regularization

    def _check_parameters(self):
        super()._check_parameters()
        _check_tol(self.tol)
        _check_delta(self.delta)
        check_boolean("raise_regularization", self.raise_regularization)

    def _budget(self):
        return super()._budget(self.tol)

    def _released(self, records, weights, weighting, budget, rng):
        """Coefficients and their guarantee; sets the constants as attributes."""
        size = self._size(records)
        # Gaussian noise: the theorem multiplies delta by e^{r rho}.
        delta = self.delta * math.exp(-budget.solver / 2)
        constants = self._constants(budget.noise, delta, records.divisor, records.rows.shape[1], weighting)
        self._check_condition(constants.total_regularization)
        if delta > 0:
            self.noise_scale_ = constants.noise
            noise = rng.normal(0.0, constants.noise, size)
        else:
            self.noise_rate_ = constants.noise
            noise = spherical_gamma(size, constants.noise, rng)
        distance = self.tol * _BLUR / (2 * self.radius)
        beta = self._minimiser(records, weights, constants.total_regularization, noise, distance).beta
        blur = spherical_gamma(size, budget.solver / (2 * distance), rng).reshape(beta.shape)
        self.total_regularization_ = constants.total_regularization
        self.epsilon_noise_, self.epsilon_jacobian_ = constants.epsilon_noise, constants.epsilon_jacobian
        self.epsilon_solver_ = budget.solver
        kept = constants.epsilon <= budget.noise * (1 + 1e-9)
        epsilon = budget.learner if kept else constants.epsilon + budget.solver
        guarantee = Guarantee(
            epsilon,
            float(self.delta),
            self.neighbouring,
            assumes=self._assumptions(rng),
            source=constants.source,
        )
        return to_grid(beta + blur, 2 * distance / budget.solver), guarantee

    def _constants(self, epsilon, delta, n_records, dimension, weighting) -> Constants:
        """Noise and regularisation for exact minimisers, from public numbers alone; for subclasses to replace."""
        loss = self._loss()
        problem = {
            "epsilon": epsilon,
            "n_records": n_records,
            "regularization": self.regularization,
            "radius": self.radius,
            "loss": loss,
            "weighting": weighting,
            "raise_regularization": self.raise_regularization,
        }
        source = "objective perturbation with the constants of helpers.erm.calibrate"
        if delta == 0:
            rate, total = calibrate(**problem)
            spent = min(weighting.mass * loss.steepness * self.radius * rate, epsilon)
            return Constants(rate, total, epsilon, spent, epsilon - spent, source)
        # A softmax record pulls in one of K - 1 directions, which one depends on the output: a share of delta each.
        scale, total = calibrate_gaussian(delta=delta / (len(self.classes) - 1), **problem)
        jacobian = gaussian_jacobian_cost(epsilon, self.radius**2 / (n_records * total), loss, weighting)
        return Constants(scale, total, epsilon, epsilon - jacobian, jacobian, f"{source}, Gaussian noise")


class OutputPerturbationClassifier(PrivateLinearClassifier):
    """Linear classification that is differentially private by noise added to the minimiser.

    The minimiser of `ERMClassifier`'s objective moves by at most `largest_move` when one record changes, so noise of
    density proportional to exp(-noise_rate ||b||) at the rate epsilon divided by that makes `coef_` and `intercept_`
    epsilon-DP under `neighbouring`. With `delta` > 0 Gaussian noise makes them (epsilon, delta)-DP, which needs less
    noise where there are many.

    Parameters
    ----------
    epsilon, regularization, radius, fit_intercept, random_state, classes, neighbouring, n_records, loss, h, \
class_weight, bounds, counts_share
        As in `ObjectivePerturbationClassifier`.
    tol : float
        In [1e-12, 0.5): the share of epsilon that pays for stopping at a distance tol / (2 - 2 tol) `largest_move` from
        the exact minimiser (`helpers.erm.perturbation` has the theorem). With `delta` > 0 it is a share of the noise.
    delta : float
        0, or in (0, 1) for Gaussian noise and (epsilon, delta)-DP.

    Attributes
    ----------
    noise_rate_ : float
        Rate of the norm of the noise on the coefficients; with `delta` > 0 there is `noise_scale_` instead, its
        standard deviation along each.
    epsilon_solver_ : float
        The solver's part of epsilon; 0 with `delta` > 0.
    guarantee_ : helpers.privacy.Guarantee
    others
        As in `ObjectivePerturbationClassifier`.

    Raises
    ------
    ValueError
        As in `ERMClassifier`.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1 and Theorem 1.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> round(OutputPerturbationClassifier(epsilon=2.0, regularization=0.5, random_state=0).fit(X, y).noise_rate_, 5)
    2.0
    """

    def __init__(
        self,
        epsilon=1.0,
        regularization=1e-3,
        tol=5e-7,
        delta=0.0,
        **shared,
    ):
        super().__init__(epsilon=epsilon, regularization=regularization, **shared)
        self.tol = tol
        self.delta = delta

    def _check_parameters(self):
        super()._check_parameters()
        _check_tol(self.tol)
        _check_delta(self.delta)

    def _budget(self):
        return super()._budget(self.tol)

    def _released(self, records, weights, weighting, budget, rng):
        """Coefficients and their guarantee; sets the constants as attributes."""
        regularization, size = float(self.regularization), self._size(records)
        move = largest_move(
            n_records=records.divisor,
            regularization=regularization,
            radius=self.radius,
            loss=self._loss(),
            weighting=weighting,
        )
        distance = self.tol * move / (2 * (1 - self.tol))
        beta = self._minimiser(records, weights, regularization, np.zeros(size), distance).beta
        source = "Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1, Theorem 1"
        if self.delta > 0:
            multiplier = gaussian_multiplier(budget.learner, self.delta)
            scale = self.noise_scale_ = multiplier * (move + 2 * distance)
            noise, event = rng.normal(0.0, scale, size), GaussianDpEvent(multiplier)
            self.epsilon_solver_, source = 0.0, f"{source}, Gaussian noise"
        else:
            self.noise_rate_, event = budget.noise / move, None
            scale, noise = 1 / self.noise_rate_, spherical_gamma(size, self.noise_rate_, rng)
            self.epsilon_solver_ = budget.solver
        return to_grid(beta + noise.reshape(beta.shape), scale), self._spent(budget, event, rng, source)


def _check_tol(tol):
    check_real("tol", tol, low=1e-12, high=0.5, inclusive="low")


def _check_delta(delta):
    check_real("delta", delta, low=0, high=1, inclusive="low")
