"""scikit-learn classifiers over the private and the exact empirical risk minimiser.

`ObjectivePerturbationClassifier` and `OutputPerturbationClassifier` carry a guarantee for their coefficients;
`ERMClassifier` is the same fit without noise, the yardstick for what privacy costs. All treat bounds and labels as
public parameters and never fail on the *values* of valid records (finite numbers, declared labels), except where the
solver does not converge, which no guarantee covers: a deployment must answer a failure with a constant classifier.
Standardising features and choosing parameters privately are left to the caller.
"""

import numpy as np
from scipy.special import expit
from scipy.special import softmax as softmax_probabilities
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.checks import check_choice, check_integer, check_real
from helpers.erm.analysis import ANALYSES, calibrate, calibrate_gaussian, gaussian_jacobian_cost, proven_epsilon
from helpers.erm.objective import LOGISTIC, design_matrix, huber, into_ball, minimize
from helpers.erm.softmax import Softmax, minimize_softmax, zero_sum_basis
from helpers.erm.weighting import balanced_weights, class_weights, fixed_weights
from helpers.privacy import ADD_REMOVE, EXACT_REALS, REPLACE_ONE, Guarantee, class_counts, compose, spherical_gamma

_LOSSES = ("logistic", "huber")


def _has_probabilities(model) -> bool:
    return model.loss == "logistic"


def check_classes(classes):
    """Refuse a set of labels that is not two or more different ones."""
    if np.ndim(classes) != 1 or len(classes) < 2 or len(np.unique(classes)) != len(classes):
        raise ValueError(f"classes must be two or more different labels, got {classes!r}")


def label_codes(y, classes) -> np.ndarray:
    """Positions (n,) of the labels y (n,) among the sorted `classes`; a label outside is a ValueError.

    >>> label_codes(["b", "a"], np.array(["a", "b"]))
    array([1, 0])
    """
    if not np.isin(y, classes).all():
        check_classification_targets(y)  # says so if these are no labels at all
        if len(classes) == 2 and type_of_target(y) == "multiclass":
            raise ValueError("Only binary classification is supported. The type of the target is multiclass.")
        raise ValueError(f"y must hold labels among classes={tuple(classes.tolist())!r}, found others")
    return np.searchsorted(classes, y)


class ERMClassifier(ClassifierMixin, BaseEstimator):
    """Regularised linear classification of records inside a ball, without privacy.

    Minimises (1/n) sum w_i loss(s_i z_i'beta) + (regularization/2) ||beta||^2, where x is shortened to norm `radius`
    and z = [x, radius] / sqrt(2) with an intercept, z = x without. Rows are shortened at prediction too. More than two
    classes: the softmax loss, with scores that add up to zero.

    Parameters
    ----------
    regularization : float
        lambda > 0, on the mean loss; the intercept is regularised.
    radius : float
        Public bound on a row's Euclidean norm, in the units of X (of the mapped X if there are `bounds`).
    fit_intercept : bool
        Whether there is a constant feature; it lies inside the ball.
    tol : float
        Largest accepted gradient norm, relative to radius + ||noise||/n (which no record can change).
    classes : sequence of at least two labels
        Public. A label outside is refused; a class that no record has is not an error.
    loss : {"logistic", "huber"}
        "huber" (the smoothed SVM) has two classes and no probabilities.
    h : float
        Half the width of the Huber loss's quadratic piece, > 0.
    class_weight : None, "balanced" or dict
        "balanced": `class_weights` of the data's counts, n_other/n with two classes, which is not scikit-learn's. A
        dict maps every label to a weight in [0, 1].
    bounds : array (d, 2), optional
        Public bounds of the features: X is mapped into the ball by them (`helpers.erm.into_ball`).

    Attributes
    ----------
    coef_ : ndarray (1, d) or (K, d); intercept_ : ndarray (1,) or (K,)
        In the units of the shortened rows: decision = coef_ x + intercept_.
    classes_ : ndarray (K,); n_features_in_ : int
    total_regularization_ : float
    gradient_norm_ : float; n_iter_ : int
        Diagnostics of the solver. They depend on the data and no guarantee covers them.

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range; X not a finite numeric matrix; a label outside `classes`.
    RuntimeError
        From `fit`: the minimiser was not reached to `tol`. It depends on the data, and no guarantee covers it.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> ERMClassifier(regularization=0.1).fit(X, y).predict_proba([[1.0]]).round(3)
    array([[0.252, 0.748]])
    """

    def __init__(
        self,
        regularization=1e-3,
        radius=1.0,
        fit_intercept=True,
        tol=1e-8,
        classes=(0, 1),
        loss="logistic",
        h=0.5,
        class_weight=None,
        bounds=None,
    ):
        self.regularization = regularization
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.classes = classes
        self.loss = loss
        self.h = h
        self.class_weight = class_weight
        self.bounds = bounds

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = np.size(self.classes) > 2
        return tags

    def fit(self, X, y):
        """Fit to X (n, d) and labels y (n,); returns self."""
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64)
        self._check_bounds(X.shape[1])
        codes = self._codes(y)
        rows = design_matrix(self._mapped(X), radius=self.radius, fit_intercept=self.fit_intercept)
        weights = self._class_weights(codes)
        divisor = self._divisor(len(rows))
        noise, regularization = self._perturbation(divisor, rows.shape[1])
        # Dividing by another number than the rows' is the same problem with the penalty rescaled.
        solution = self._solve(
            rows,
            codes,
            None if weights is None else weights[codes],
            regularization * divisor / len(rows),
            noise / len(rows),
        )
        self._store(self._released(solution.beta, divisor))
        self.total_regularization_ = regularization
        self.gradient_norm_, self.n_iter_ = solution.gradient_norm, solution.n_iter
        return self

    def decision_function(self, X):
        """Scores (n,), positive for the second class; with more classes (n, K)."""
        check_is_fitted(self)
        X = self._mapped(validate_data(self, X, dtype=np.float64, reset=False))
        rows = design_matrix(X, radius=self.radius, fit_intercept=False)
        scores = rows @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @available_if(_has_probabilities)
    def predict_proba(self, X):
        """Class probabilities (n, K) of the fitted logistic model, columns as in `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return softmax_probabilities(scores, axis=1)
        return np.column_stack([expit(-scores), expit(scores)])

    def predict(self, X):
        """Labels (n,): the class with the largest score."""
        scores = self.decision_function(X)
        return self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)]

    def _check_parameters(self):
        check_real("regularization", self.regularization, low=0, inclusive="neither")
        check_real("radius", self.radius, low=0, inclusive="neither")
        check_real("tol", self.tol, low=0, high=1, inclusive="neither")
        check_choice("loss", self.loss, _LOSSES)
        check_real("h", self.h, low=0, inclusive="neither")
        check_classes(self.classes)
        if self.loss == "huber" and len(self.classes) > 2:
            raise ValueError(f"classes must be two labels with the Huber loss, got {self.classes!r}")
        self._check_class_weight()

    def _check_class_weight(self):
        if isinstance(self.class_weight, dict):
            if set(self.class_weight) != set(np.unique(self.classes).tolist()):
                raise ValueError(f"class_weight must be a dict over the labels of classes, got {self.class_weight!r}")
            for weight in self.class_weight.values():
                check_real("class_weight", weight, low=0, high=1)
            if max(self.class_weight.values()) == 0:
                raise ValueError(f"class_weight must be positive for some class, got {self.class_weight!r}")
        elif self.class_weight not in self._weightings():
            allowed = ", ".join(repr(choice) for choice in self._weightings())
            raise ValueError(f"class_weight must be a dict or one of {allowed}, got {self.class_weight!r}")

    def _weightings(self) -> tuple:
        return (None, "balanced")

    def _check_bounds(self, n_features):
        if self.bounds is None:
            return
        bounds = np.asarray(self.bounds, dtype=float)
        if bounds.shape != (n_features, 2) or not np.isfinite(bounds).all() or (bounds[:, 0] > bounds[:, 1]).any():
            raise ValueError(f"bounds must be finite, of shape ({n_features}, 2), the lower one first")
        # Beyond this, arithmetic would fail for some records and not for others.
        widths = bounds[:, 1] / 2 - bounds[:, 0] / 2
        if np.abs(bounds).max() > 1e150 or (widths[widths > 0] < 1e-150).any():
            raise ValueError("bounds must be at most 1e150 in size and, where they differ, at least 1e-150 apart")

    def _mapped(self, X) -> np.ndarray:
        return X if self.bounds is None else into_ball(X, np.asarray(self.bounds, dtype=float), radius=self.radius)

    def _codes(self, y) -> np.ndarray:
        self.classes_ = np.unique(self.classes)
        return label_codes(y, self.classes_)

    def _class_weights(self, codes) -> np.ndarray | None:
        """Weights (K,) of the classes, None if all are 1."""
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, dict):
            return np.array([float(self.class_weight[label]) for label in self.classes_.tolist()])
        return class_weights(np.bincount(codes, minlength=len(self.classes_)))

    def _loss(self):
        """The loss, or its constants where there are more than two classes."""
        if len(self.classes) > 2:
            return Softmax(len(self.classes))
        return LOGISTIC if self.loss == "logistic" else huber(self.h)

    def _divisor(self, n_rows) -> int:
        """The number that the sum of the losses is divided by."""
        return n_rows

    def _perturbation(self, n_records, dimension) -> tuple[np.ndarray, float]:
        """Noise vector of `_size(dimension)` and total regularisation of the objective."""
        return np.zeros(self._size(dimension)), float(self.regularization)

    def _size(self, dimension) -> int:
        """Number of coefficients that are free."""
        return (len(self.classes) - 1) * dimension

    def _solve(self, rows, codes, weights, regularization, linear):
        loss = self._loss()
        tolerance = self.tol * (self.radius + np.linalg.norm(linear))
        if isinstance(loss, Softmax):
            shape = (loss.n_classes - 1, rows.shape[1])
            return minimize_softmax(
                rows, codes, loss.n_classes, regularization, linear.reshape(shape), tol=tolerance, weights=weights
            )
        rows *= (2.0 * codes - 1)[:, None]
        return minimize(rows, loss, regularization, linear, tol=tolerance, weights=weights)

    def _released(self, beta, n_records) -> np.ndarray:
        """What becomes the coefficients: the minimiser, or a noisy version of it."""
        return beta

    def _store(self, beta):
        if beta.ndim == 2:
            beta = zero_sum_basis(len(self.classes_)).T @ beta
        beta = np.atleast_2d(beta)
        if self.fit_intercept:
            self.coef_ = beta[:, :-1] / np.sqrt(2)
            self.intercept_ = beta[:, -1] * self.radius / np.sqrt(2)
        else:
            self.coef_, self.intercept_ = beta, np.zeros(len(beta))


class PrivateERMClassifier(ERMClassifier):
    """What the private versions share: budget, relation, private class weights, guarantee. Not for use by itself."""

    def fit(self, X, y):
        """Fit to X (n, d) and labels y (n,); returns self."""
        for name in ("class_weight_", "noise_rate_", "noise_scale_"):
            self.__dict__.pop(name, None)  # not every combination of parameters sets them
        self._rng = np.random.default_rng(self.random_state)
        try:
            super().fit(X, y)
            self.guarantee_ = self._guarantee()
        finally:
            del self._rng  # what is left of the noise source must not travel with the model
            self.__dict__.pop("_counted", None)
        return self

    def _check_parameters(self):
        super()._check_parameters()
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        if self.n_records is not None:
            check_integer("n_records", self.n_records, low=1)
        elif self.neighbouring == ADD_REMOVE:
            raise ValueError("n_records must be a public integer under add/remove-one, got None")
        check_real("counts_share", self.counts_share, low=0, high=1, inclusive="neither")
        if self.class_weight == "private":
            self._budget = (1 - self.counts_share) * self.epsilon
        else:
            self._budget = float(self.epsilon)

    def _weightings(self) -> tuple:
        return (None, "balanced", "private")

    def _class_weights(self, codes):
        if self.class_weight != "private":
            weights = super()._class_weights(codes)
        else:
            released = class_counts(
                codes,
                range(len(self.classes_)),
                self.counts_share * self.epsilon,
                self.neighbouring,
                self._rng,
            )
            self._counted = released.guarantee
            weights = class_weights(np.maximum(released.value, 1.0))
        self._weighting = self._weighting_of(weights)
        if self.class_weight == "private" or isinstance(self.class_weight, dict):
            self.class_weight_ = weights
        return weights

    def _weighting_of(self, weights):
        if self.class_weight == "balanced":
            return balanced_weights(len(self.classes))
        return fixed_weights(1.0 if weights is None else float(weights.max()), self.neighbouring)

    def _divisor(self, n_rows):
        return n_rows if self.n_records is None else self.n_records

    def _assumptions(self) -> tuple[str, ...]:
        # scikit-learn refuses an empty table, which under add/remove would tell that it is empty.
        size = ("number of records public",)
        if self.n_records is not None:
            size = ("number that divides the loss public", "at least one record")
        return (
            *size,
            "norm bound (radius) public",
            "set of labels public",
            *(("class weights public",) if isinstance(self.class_weight, dict) else ()),
            *(("feature bounds public",) if self.bounds is not None else ()),
            "exact minimiser",
            EXACT_REALS,
        )

    def _guarantee(self) -> Guarantee:
        epsilon, delta, source = self._promise()
        own = Guarantee(epsilon, delta, self.neighbouring, assumes=self._assumptions(), source=source)
        return compose([self._counted, own]) if self.class_weight == "private" else own


class ObjectivePerturbationClassifier(PrivateERMClassifier):
    """Linear classification that is differentially private by noise in the objective, weighted by class or not.

    The objective of `ERMClassifier` gets a linear term b'beta/n, b of density proportional to exp(-noise_rate
    ||b||), and extra regularisation where the budget asks for it. `coef_` and `intercept_` together are
    epsilon-DP under `neighbouring`, with n, `radius` and `classes` public, for exact minimisation in exact
    arithmetic. Standardising X with its own mean or maximum is not covered.

    Parameters
    ----------
    epsilon : float
        Privacy budget, > 0.
    regularization, radius, fit_intercept, tol, classes, loss, h, bounds
        As in `ERMClassifier`.
    random_state : None, int or numpy.random.Generator
        Source of the noise. Whoever knows the seed can undo the privacy.
    neighbouring : NeighboringRelation
        `REPLACE_ONE`, as in the papers, or `ADD_REMOVE`.
    n_records : int, optional
        Public number n >= 1 that divides the loss. By default the number of rows, which replace-one keeps and
        add/remove does not: there it has to be given, and need not be the number of rows.
    class_weight : None, "balanced", "private" or dict
        "balanced": the data's own inverse frequencies; that one record moves them all is part of the proof. "private":
        the inverse frequencies of noisy counts, which cost `counts_share` of epsilon. A dict is public.
    analysis : {"tight", "icml", "arxiv", "chaudhuri"}
        "tight" is the best that is proved, and the others are the printed constants (see `helpers.erm.calibrate`).
        Where a printed guarantee is not proved, `guarantee_` states what is.
    delta : float
        0, or in (0, 1) for Gaussian noise and (epsilon, delta)-DP; "tight" only.
    raise_regularization : bool
        Whether "tight" may regularise more than `regularization`. If not, small budgets are refused.
    counts_share : float
        In (0, 1): the part of epsilon spent on the counts by "private".

    Attributes
    ----------
    noise_rate_ : float
        Rate of the noise norm, 1 / (units of radius); with `delta` > 0 there is `noise_scale_` instead.
    total_regularization_ : float
        lambda + Delta.
    epsilon_noise_, epsilon_jacobian_ : float
        How the analysis splits epsilon between the noise and the Jacobian determinant.
    class_weight_ : ndarray (K,)
        The public or privately estimated weights; not there with "balanced", whose weights no guarantee covers.
    guarantee_ : helpers.privacy.Guarantee
        Of `coef_` and `intercept_` (and `class_weight_`), and of nothing else.
    others
        As in `ERMClassifier`.

    Raises
    ------
    ValueError, RuntimeError
        As in `ERMClassifier`, and where `helpers.erm.calibrate` refuses the parameters.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2; Rosenblatt et al. 2025, Algorithm 1.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> model = ObjectivePerturbationClassifier(epsilon=2.0, regularization=0.5, random_state=0).fit(X, y)
    >>> model.guarantee_.epsilon, model.noise_rate_
    (2.0, 1.0)
    """

    def __init__(
        self,
        epsilon=1.0,
        regularization=1e-3,
        radius=1.0,
        fit_intercept=True,
        tol=1e-8,
        random_state=None,
        classes=(0, 1),
        neighbouring=REPLACE_ONE,
        n_records=None,
        loss="logistic",
        h=0.5,
        class_weight=None,
        analysis="tight",
        delta=0.0,
        bounds=None,
        raise_regularization=True,
        counts_share=0.1,
    ):
        super().__init__(regularization, radius, fit_intercept, tol, classes, loss, h, class_weight, bounds)
        self.epsilon = epsilon
        self.neighbouring = neighbouring
        self.n_records = n_records
        self.random_state = random_state
        self.analysis = analysis
        self.delta = delta
        self.raise_regularization = raise_regularization
        self.counts_share = counts_share

    def _check_parameters(self):
        super()._check_parameters()
        check_choice("analysis", self.analysis, ANALYSES)
        check_real("delta", self.delta, low=0, high=1, inclusive="low")
        if self.analysis != "tight" and len(self.classes) > 2:
            raise ValueError(f"analysis must be 'tight' for more than two classes, got {self.analysis!r}")
        if self.analysis != "tight" and self.delta > 0:
            raise ValueError(f"analysis must be 'tight' for Gaussian noise, got {self.analysis!r}")
        if self.analysis == "icml":
            check_choice("neighbouring", self.neighbouring, (REPLACE_ONE,))

    def _perturbation(self, n_records, dimension):
        problem = {
            "epsilon": self._budget,
            "n_records": n_records,
            "regularization": self.regularization,
            "radius": self.radius,
            "loss": self._loss(),
            "weighting": self._weighting,
            "raise_regularization": self.raise_regularization,
        }
        size = self._size(dimension)
        if self.delta > 0:
            # A softmax record pulls in one of K - 1 directions, which one depends on the output: a share of delta each.
            delta = self.delta / (len(self.classes) - 1)
            self.noise_scale_, regularization = calibrate_gaussian(delta=delta, **problem)
            ratio = self.radius**2 / (n_records * regularization)
            self.epsilon_jacobian_ = gaussian_jacobian_cost(self._budget, ratio, self._loss(), self._weighting)
            self.epsilon_noise_ = self._budget - self.epsilon_jacobian_
            return self._rng.normal(0.0, self.noise_scale_, size), regularization
        constants = calibrate(analysis=self.analysis, neighbouring=self.neighbouring, dimension=dimension, **problem)
        self.noise_rate_, regularization = constants
        self.epsilon_noise_ = self._assumed_radius() * self.noise_rate_
        self.epsilon_jacobian_ = self._budget - self.epsilon_noise_ if self.epsilon_noise_ < self._budget else 0.0
        self._proven = proven_epsilon(
            constants, n_records=n_records, radius=self.radius, loss=self._loss(), weighting=self._weighting
        )
        return spherical_gamma(size, self.noise_rate_, self._rng), regularization

    def _assumed_radius(self) -> float:
        """How far one record moves b, according to the analysis."""
        if self.analysis == "tight":
            return self._weighting.mass * self._loss().steepness * self.radius
        if self.analysis == "icml":
            return 3 * self.radius
        return (2 if self.neighbouring == REPLACE_ONE else 1) * self.radius

    def _promise(self):
        names = {
            "tight": "objective perturbation with the constants of helpers.erm.calibrate",
            "icml": "Differential Privacy Under Class Imbalance, Algorithm 1",
            "arxiv": "Differential Privacy Under Class Imbalance, arXiv version, Algorithm 3",
            "chaudhuri": "Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2, Theorem 2",
        }
        source = names[self.analysis]
        if self.delta > 0:
            return self._budget, float(self.delta), f"{source}, Gaussian noise"
        if self._proven <= self._budget * (1 + 1e-9):
            return self._budget, 0.0, source
        return self._proven, 0.0, f"{source}; epsilon is what helpers.erm.proven_epsilon proves, not the printed one"


class OutputPerturbationClassifier(PrivateERMClassifier):
    """Linear classification that is epsilon-DP by noise added to the minimiser.

    The minimiser of `ERMClassifier`'s objective moves by at most mass steepness radius / (n regularization) when one
    record changes (`helpers.erm.Weighting`), so noise of density proportional to exp(-noise_rate ||b||) at the rate
    epsilon divided by that makes `coef_` and `intercept_` epsilon-DP under `neighbouring`.

    Parameters
    ----------
    epsilon, regularization, radius, fit_intercept, tol, random_state, classes, neighbouring, n_records, loss, h, \
class_weight, bounds, counts_share
        As in `ObjectivePerturbationClassifier`.

    Attributes
    ----------
    noise_rate_ : float
        Rate of the norm of the noise on the coefficients.
    guarantee_ : helpers.privacy.Guarantee
    others
        As in `ERMClassifier`; `class_weight_` as in `ObjectivePerturbationClassifier`.

    Raises
    ------
    ValueError, RuntimeError
        As in `ERMClassifier`.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1 and Theorem 1.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> OutputPerturbationClassifier(epsilon=2.0, regularization=0.5, random_state=0).fit(X, y).noise_rate_
    2.0
    """

    def __init__(
        self,
        epsilon=1.0,
        regularization=1e-3,
        radius=1.0,
        fit_intercept=True,
        tol=1e-8,
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
        super().__init__(regularization, radius, fit_intercept, tol, classes, loss, h, class_weight, bounds)
        self.epsilon = epsilon
        self.neighbouring = neighbouring
        self.n_records = n_records
        self.random_state = random_state
        self.counts_share = counts_share

    def _released(self, beta, n_records):
        reach = self._weighting.mass * self._loss().steepness * self.radius
        self.noise_rate_ = self._budget * n_records * self.regularization / reach
        return beta + spherical_gamma(beta.size, self.noise_rate_, self._rng).reshape(beta.shape)

    def _promise(self):
        return self._budget, 0.0, "Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1, Theorem 1"
