"""scikit-learn classifiers over the private and the exact empirical risk minimiser.

`ObjectivePerturbationClassifier` carries a guarantee for its coefficients; `ERMClassifier` is the same fit
without noise, the yardstick for what privacy costs. Both treat bounds and labels as public parameters and never
fail on the *values* of valid records (finite numbers, declared labels); standardising features and choosing
parameters privately are left to the caller.
"""

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.erm.analysis import algorithm_2
from helpers.erm.objective import LOGISTIC, design_matrix, minimize, signed_rows
from helpers.privacy import ADD_REMOVE, EXACT_REALS, REPLACE_ONE, Guarantee, spherical_gamma
from helpers.validation import check_choice, check_integer, check_real


class ERMClassifier(ClassifierMixin, BaseEstimator):
    """Regularised logistic regression on records inside a ball, without privacy.

    Minimises (1/n) sum log(1 + exp(-s_i z_i'beta)) + (regularization/2) ||beta||^2, where x is shortened to norm
    `radius` and z = [x, radius] / sqrt(2) with an intercept, z = x without. Rows are shortened at prediction too.

    Parameters
    ----------
    regularization : float
        lambda > 0, on the mean loss; the intercept is regularised.
    radius : float
        Public bound on a row's Euclidean norm, in the units of X.
    fit_intercept : bool
        Whether there is a constant feature; it lies inside the ball.
    tol : float
        Largest accepted gradient norm, relative to radius + ||noise||/n (which no record can change).
    classes : sequence of two labels
        Public. A label outside is refused; a class that no record has is not an error.

    Attributes
    ----------
    coef_ : ndarray (1, d); intercept_ : ndarray (1,)
        In the units of the shortened rows: decision = coef_ x + intercept_.
    classes_ : ndarray (2,); n_features_in_ : int
    total_regularization_ : float
    gradient_norm_ : float; n_iter_ : int
        Diagnostics of the solver. They depend on the data and no guarantee covers them.

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range; X not a finite numeric matrix; a label outside `classes`.
    RuntimeError
        From `fit`: the minimiser was not reached to `tol`.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> ERMClassifier(regularization=0.1).fit(X, y).predict_proba([[1.0]]).round(3)
    array([[0.252, 0.748]])
    """

    def __init__(self, regularization=1e-3, radius=1.0, fit_intercept=True, tol=1e-8, classes=(0, 1)):
        self.regularization = regularization
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.classes = classes

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X, y):
        """Fit to X (n, d) and labels y (n,); returns self."""
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64)
        positive = self._positive(y)
        rows = signed_rows(X, positive, radius=self.radius, fit_intercept=self.fit_intercept)
        divisor = self._divisor(len(rows))
        noise, regularization = self._perturbation(divisor, rows.shape[1])
        # Dividing by another number than the rows' is the same problem with the penalty rescaled.
        linear = noise / len(rows)
        tolerance = self.tol * (self.radius + np.linalg.norm(linear))
        solution = minimize(rows, LOGISTIC, regularization * divisor / len(rows), linear, tol=tolerance)
        self._store(solution, regularization)
        return self

    def decision_function(self, X):
        """Signed scores (n,), positive for the second class."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return design_matrix(X, radius=self.radius, fit_intercept=False) @ self.coef_[0] + self.intercept_[0]

    def predict_proba(self, X):
        """Class probabilities (n, 2) of the fitted logistic model, columns as in `classes_`."""
        scores = self.decision_function(X)
        return np.column_stack([expit(-scores), expit(scores)])

    def predict(self, X):
        """Labels (n,): the second class where the score is positive."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int)]

    def _check_parameters(self):
        check_real("regularization", self.regularization, low=0, inclusive="neither")
        check_real("radius", self.radius, low=0, inclusive="neither")
        check_real("tol", self.tol, low=0, high=1, inclusive="neither")
        if np.ndim(self.classes) != 1 or len(np.unique(self.classes)) != 2 or len(self.classes) != 2:
            raise ValueError(f"classes must be two different labels, got {self.classes!r}")

    def _positive(self, y) -> np.ndarray:
        check_classification_targets(y)
        if type_of_target(y) == "multiclass":
            raise ValueError("Only binary classification is supported. The type of the target is multiclass.")
        self.classes_ = np.unique(self.classes)
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise ValueError(f"y must hold labels among classes={tuple(self.classes_.tolist())!r}, found others")
        return y == self.classes_[1]

    def _divisor(self, n_rows) -> int:
        """The number that the sum of the losses is divided by."""
        return n_rows

    def _perturbation(self, n_records, dimension) -> tuple[np.ndarray, float]:
        """Noise vector (dimension,) and total regularisation of the objective."""
        return np.zeros(dimension), float(self.regularization)

    def _store(self, solution, regularization):
        beta = solution.beta
        if self.fit_intercept:
            self.coef_ = beta[None, :-1] / np.sqrt(2)
            self.intercept_ = beta[-1:] * self.radius / np.sqrt(2)
        else:
            self.coef_, self.intercept_ = beta[None, :], np.zeros(1)
        self.total_regularization_ = regularization
        self.gradient_norm_, self.n_iter_ = solution.gradient_norm, solution.n_iter


class ObjectivePerturbationClassifier(ERMClassifier):
    """Logistic regression that is epsilon-DP by noise in the objective (unweighted, Algorithm 2).

    The objective of `ERMClassifier` gets a linear term b'beta/n, b of density proportional to exp(-noise_rate
    ||b||), and extra regularisation where the budget asks for it. `coef_` and `intercept_` together are
    epsilon-DP under `neighbouring`, with n, `radius` and `classes` public, for exact minimisation in exact
    arithmetic. Standardising X with its own mean or maximum is not covered.

    Parameters
    ----------
    epsilon : float
        Privacy budget, > 0.
    regularization, radius, fit_intercept, tol, classes
        As in `ERMClassifier`.
    neighbouring : NeighboringRelation
        `REPLACE_ONE`, as in the paper, or `ADD_REMOVE`.
    n_records : int, optional
        Public number n >= 1 that divides the loss. By default the number of rows, which replace-one keeps and
        add/remove does not: there it has to be given, and need not be the number of rows.
    random_state : None, int or numpy.random.Generator
        Source of the noise. Whoever knows the seed can undo the privacy.

    Attributes
    ----------
    noise_rate_ : float
        Rate of the noise norm, 1 / (units of radius).
    total_regularization_ : float
        lambda + Delta.
    guarantee_ : helpers.privacy.Guarantee
        Of `coef_` and `intercept_`, and of nothing else.
    others
        As in `ERMClassifier`.

    Raises
    ------
    ValueError, RuntimeError
        As in `ERMClassifier`.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2 and Theorem 2, carried over to norm bound R.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> model = ObjectivePerturbationClassifier(epsilon=2.0, regularization=0.5, random_state=0).fit(X, y)
    >>> model.guarantee_.epsilon, round(model.noise_rate_, 3)
    (2.0, 0.882)
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
    ):
        super().__init__(regularization, radius, fit_intercept, tol, classes)
        self.epsilon = epsilon
        self.neighbouring = neighbouring
        self.n_records = n_records
        self.random_state = random_state

    def fit(self, X, y):
        """Fit to X (n, d) and labels y (n,); returns self."""
        super().fit(X, y)
        self.guarantee_ = Guarantee(
            float(self.epsilon),
            0.0,
            self.neighbouring,
            assumes=(
                *self._assumed_of_size(),
                "norm bound (radius) public",
                "set of labels public",
                "exact minimiser",
                EXACT_REALS,
            ),
            source="Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2, Theorem 2",
        )
        return self

    def _check_parameters(self):
        super()._check_parameters()
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        if self.n_records is not None:
            check_integer("n_records", self.n_records, low=1)
        elif self.neighbouring == ADD_REMOVE:
            raise ValueError("n_records must be a public integer under add/remove-one, got None")

    def _assumed_of_size(self) -> tuple[str, ...]:
        if self.n_records is None:
            return ("number of records public",)
        # scikit-learn refuses an empty table, which under add/remove would tell that it is empty.
        return ("number that divides the loss public", "at least one record")

    def _divisor(self, n_rows):
        return n_rows if self.n_records is None else self.n_records

    def _perturbation(self, n_records, dimension):
        self.noise_rate_, regularization = algorithm_2(
            epsilon=self.epsilon,
            n_records=n_records,
            regularization=self.regularization,
            radius=self.radius,
            neighbouring=self.neighbouring,
        )
        rng = np.random.default_rng(self.random_state)
        return spherical_gamma(dimension, self.noise_rate_, rng), regularization
