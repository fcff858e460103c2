"""Linear classifiers of records inside a ball: what the private ones share, and the exact minimiser beside them.

`LinearClassifier` holds rows, labels, class weights and predictions; `ERMClassifier` is the fit without noise, the
yardstick for what privacy costs. Bounds and labels are public parameters, and no fit fails on the *values* of valid
records (finite numbers, declared labels). Standardising features and choosing parameters are left to the caller.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from scipy.special import softmax as softmax_probabilities
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.checks import (
    check_boolean,
    check_bounds,
    check_choice,
    check_classes,
    check_real,
    label_codes,
    validate_records,
)
from helpers.data import into_ball
from helpers.erm import partitions
from helpers.erm.losses import LOGISTIC, Softmax, huber, zero_sum_basis
from helpers.erm.partitions import gathered, is_dask, is_partitioned, table
from helpers.erm.risk import Block, LocalTable, Rows, Table, design_matrix, factored_rows, pieces
from helpers.erm.solver import Solution, minimize_table
from helpers.erm.weighting import class_weights
from helpers.predictions import ScorePredictions

_LOSSES = ("logistic", "huber")
_LARGEST_RADIUS = 1e100
_LARGEST_CONDITION = 1e16  # of a Hessian; doubles resolve no more
_LARGEST_TABLE = 10**15
_LARGEST_CENTER = 1e100
_PRIORS = (None, "offset")
_ROWS = ("clip", "unit")


class Records(NamedTuple):
    """Records as the solver wants them.

    Attributes
    ----------
    rows : ndarray (m, d), or Table
        Feature vectors inside the ball; a table where there are many, or where they come in parts.
    codes : ndarray (m,) of int
        Classes 0..K-1; None with a table, which has them.
    multiplicity : ndarray (m,) of int64, or None if every row is one record.
    divisor : int
        The number that divides the sum of the losses.
    """

    rows: np.ndarray | Table
    codes: np.ndarray | None
    multiplicity: np.ndarray | None
    divisor: int


class LinearClassifier(ScorePredictions, ClassifierMixin, BaseEstimator):
    """Rows, labels, class weights and predictions of `ERMClassifier` and the private classifiers. Not used by
    itself."""

    _class_weights_allowed = (None, "balanced")
    # Of those that have no such parameters:
    intercept_scaling = 1.0
    rows = "clip"
    center = None
    prior = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = np.size(self.classes) > 2
        return tags

    def decision_function(self, X):
        """Scores (n,), positive for the second class; with more classes (n, K)."""
        check_is_fitted(self)
        X = self._mapped(validate_data(self, X, dtype=np.float64, reset=False))
        rows = design_matrix(X, **(self._geometry() | {"fit_intercept": False}))
        scores = rows @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @available_if(lambda model: model.loss == "logistic")
    def predict_proba(self, X):
        """Class probabilities (n, K) of the fitted logistic model, columns as in `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return softmax_probabilities(scores, axis=1)
        return np.column_stack([expit(-scores), expit(scores)])

    def _check_parameters(self):
        """Refuse public parameters that make no sense, before any record is looked at."""
        check_real("regularization", self.regularization, low=0, inclusive="neither")
        check_real("radius", self.radius, low=1 / _LARGEST_RADIUS, high=_LARGEST_RADIUS)
        check_boolean("fit_intercept", self.fit_intercept)
        # An offset over a smaller constant is a coefficient so large that it lacks the digits of the solver's share.
        check_real("intercept_scaling", self.intercept_scaling, low=1e-3, high=1e3)
        check_choice("rows", self.rows, _ROWS)
        public_center(self.center, np.size(self.center))
        check_choice("loss", self.loss, _LOSSES)
        check_real("h", self.h, low=1e-10, high=1e10)
        check_classes(self.classes)
        if self.loss == "huber" and len(self.classes) > 2:
            raise ValueError(f"classes must be two labels with the Huber loss, got {self.classes!r}")
        self._check_class_weight()
        self._check_condition(self.regularization)

    def _check_condition(self, regularization):
        """Refuse what double arithmetic cannot solve or hold, whatever the records are."""
        condition = self._loss().curvature * self.radius**2 / regularization
        if not 1 / _LARGEST_CONDITION**2 <= condition <= _LARGEST_CONDITION:
            raise ValueError(
                f"regularization must be at least {1 / _LARGEST_CONDITION:g} (and at most {_LARGEST_CONDITION**2:g}) "
                f"times the loss's curvature times radius**2, got {regularization!r}"
            )

    def _check_class_weight(self):
        if isinstance(self.class_weight, dict):
            if set(self.class_weight) != set(np.unique(self.classes).tolist()):
                raise ValueError(f"class_weight must be a dict over the labels of classes, got {self.class_weight!r}")
            for weight in self.class_weight.values():
                check_real("class_weight", weight, low=0, high=1)
            if max(self.class_weight.values()) == 0:
                raise ValueError(f"class_weight must be positive for some class, got {self.class_weight!r}")
        elif self.class_weight not in self._class_weights_allowed:
            allowed = ", ".join(repr(choice) for choice in self._class_weights_allowed)
            raise ValueError(f"class_weight must be a dict or one of {allowed}, got {self.class_weight!r}")
        if check_choice("prior", self.prior, _PRIORS) is None:
            return
        if self.class_weight in ("balanced", "private"):
            raise ValueError(f"prior must be None with class_weight={self.class_weight!r}: such classes weigh the same")
        if isinstance(self.class_weight, dict) and min(self.class_weight.values()) == 0:
            raise ValueError(f"class_weight must be above 0 with a prior, got {self.class_weight!r}")

    def _records(self, X, y, multiplicity, n_records=None) -> Records:
        """Checked data as rows and codes; sets `classes_` and `n_features_in_`."""
        # A number of records that is given need not be that of the rows, which can then be private and 0.
        fewest = 1 if n_records is None else 0
        takes_parts = type(self)._rows is LinearClassifier._rows  # rows of one's own are written out
        X = gathered(X) if takes_parts else X
        in_parts = takes_parts and is_partitioned(X)
        if in_parts:
            self.n_features_in_ = X.shape[1]
        else:
            X, y = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=fewest)
        if self.bounds is not None:
            check_bounds(self.bounds, X.shape[1])
        if in_parts or (takes_parts and X.size > partitions.FEW):
            return self._table_records(X, y, multiplicity, n_records)
        multiplicity = None if multiplicity is None else check_multiplicity(multiplicity, len(X))
        self.classes_ = np.unique(self.classes)
        codes = label_codes(y, self.classes_)
        rows = self._rows(X)
        if n_records is None:
            n_records = len(rows) if multiplicity is None else int(multiplicity.sum())
        return Records(rows, codes, multiplicity, n_records)

    def _table_records(self, X, y, multiplicity, n_records) -> Records:
        if multiplicity is not None and not is_dask(multiplicity):
            multiplicity = check_multiplicity(multiplicity, X.shape[0])
        self.classes_ = np.unique(self.classes)
        unfitted = clone(self)
        if hasattr(self, "random_state"):
            unfitted.random_state = None  # the seed is no concern of a worker
        rows = table(X, y, multiplicity, self.classes_, partial(_made_rows, unfitted))
        if n_records is None and len(rows) == 0:
            raise ValueError("X must have one or more records, got 0 sample(s)")
        return Records(rows, None, None, int(rows.sizes.sum()) if n_records is None else n_records)

    def _rows(self, X) -> np.ndarray:
        """Feature vectors (m, d) from checked X."""
        return design_matrix(self._mapped(X), **self._geometry())

    def _geometry(self) -> dict:
        """What `design_matrix` has to know."""
        return {name: getattr(self, name) for name in ("radius", "fit_intercept", "intercept_scaling", "rows")}

    def _mapped(self, X) -> np.ndarray:
        center = public_center(self.center, X.shape[1])
        if self.bounds is None:
            return X if center is None else np.clip(X, -_LARGEST_CENTER, _LARGEST_CENTER) - center
        bounds = np.asarray(self.bounds, dtype=float)
        if center is not None:
            X = np.clip(X, *bounds.T)
            reach = np.maximum(bounds[:, 1] - center, center - bounds[:, 0])
            bounds = np.column_stack([center - reach, center + reach])
        return into_ball(X, bounds, radius=self.radius)

    def _weights(self, records) -> np.ndarray | None:
        """Weights (K,) of the classes, public or from the data's own counts; None if all are 1."""
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, dict):
            return np.array([float(self.class_weight[label]) for label in self.classes_.tolist()])
        counts = class_sizes(records, len(self.classes_))
        return class_weights(counts if counts.any() else np.ones(len(counts)))  # without records they weigh nothing

    def _offset(self, sizes, weights) -> float | np.ndarray:
        """Log-odds of the second of two classes, or log shares (K,) that add up to 0, from sizes of at least 1."""
        logs = np.log(sizes if weights is None else sizes * weights)
        return float(logs[1] - logs[0]) if len(logs) == 2 else logs - logs.mean()

    def _anchor(self) -> np.ndarray:
        """Coefficients that the penalty pulls to: those whose scores are the offset for every record.

        A score b0 + z'beta with a penalty on beta is z'u, u = beta + b0/c along the constant feature c, with a penalty
        on u minus that. So an offset inside the loss is a linear term, and neither slope nor bend of a record sees it.
        """
        constant = self.intercept_scaling * self.radius / math.sqrt(1 + self.intercept_scaling**2)
        offset = self.offset_ if np.ndim(self.offset_) == 0 else zero_sum_basis(len(self.offset_)) @ self.offset_
        anchor = np.zeros((*np.shape(offset), self.n_features_in_ + 1))
        anchor[..., -1] = offset / constant
        return anchor.ravel()

    def _loss(self):
        """The loss, or its constants where there are more than two classes."""
        if len(self.classes) > 2:
            return Softmax(len(self.classes))
        return LOGISTIC if self.loss == "logistic" else huber(self.h)

    def _minimiser(self, records, weights, regularization, noise, distance) -> Solution:
        """Within `distance` of the minimiser of the risk with total `regularization` and the linear term noise/n."""
        linear, n, loss, rows = noise / records.divisor, records.divisor, self._loss(), records.rows
        if self.prior is not None:
            linear = linear - regularization * self._anchor()
        if isinstance(loss, Softmax):
            linear = linear.reshape(loss.n_classes - 1, -1)
        total_weight = np.sum(class_sizes(records, len(self.classes_)) * (1.0 if weights is None else weights))
        if not isinstance(rows, Table):
            block = Block(Rows(rows), records.codes, row_weights(records, None))
            rows = LocalTable(pieces(block), *rows.shape)
        sizes = {"n_records": n, "mean_weight": float(total_weight) / n, "longest": float(self.radius)}
        return minimize_table(rows, loss, regularization, linear, distance=distance, class_weights=weights, **sizes)

    def _store(self, beta):
        """Set `coef_` and `intercept_`, in the units of the shortened rows."""
        if beta.ndim == 2:
            beta = zero_sum_basis(len(self.classes_)).T @ beta
        beta = np.atleast_2d(beta)
        if self.fit_intercept:
            longest = np.sqrt(1 + self.intercept_scaling**2)
            self.coef_ = beta[:, :-1] / longest
            self.intercept_ = beta[:, -1] * self.intercept_scaling * self.radius / longest
        else:
            self.coef_, self.intercept_ = beta, np.zeros(len(beta))


class ERMClassifier(LinearClassifier):
    """Regularised linear classification of records inside a ball, without privacy.

    Minimises (1/n) sum w_i loss(s_i z_i'beta) + (regularization/2) ||beta||^2, where x is shortened to norm `radius`
    and z = [x, a radius] / sqrt(1 + a^2) with an intercept, z = x without. Rows are shortened at prediction too. More
    than two classes: the softmax loss, with scores that add up to zero.

    Parameters
    ----------
    regularization : float
        lambda > 0, on the mean loss, at least 1e-16 curvature radius^2; the intercept is regularised.
    radius : float
        Public bound on a row's Euclidean norm, in the units of X (of the mapped X if there are `bounds`).
    fit_intercept : bool
        Whether there is a constant feature; it lies inside the ball.
    tol : float
        In (0, 1): bound on what the distance to the exact minimiser changes in any score.
    classes : sequence of at least two labels
        Public. A label outside is refused; a class that no record has is not an error.
    loss : {"logistic", "huber"}
        "huber" (the smoothed SVM) has two classes and no probabilities.
    h : float
        Half the width of the Huber loss's quadratic piece, in [1e-10, 1e10].
    class_weight : None, "balanced" or dict
        "balanced": `class_weights` of the data's counts, n_other/n with two classes, which is not scikit-learn's. A
        dict maps every label to a weight in [0, 1].
    bounds : array (d, 2), optional
        Public bounds of the features: X is mapped into the ball by them (`helpers.data.into_ball`).
    intercept_scaling : float
        a in [1e-3, 1e3], the size of the constant feature beside the longest row. The larger it is, the less the
        intercept is regularised, and the shorter are all rows beside it.
    rows : {"clip", "unit"}
        "unit": rows shorter than `radius` are lengthened to it.
    center : float or array (d,), optional
        Public: what is subtracted from X before rows are measured. By default the middle of the bounds, or 0.
    prior : {"offset"} or None
        "offset": the log-odds of the classes (times their weights) stand inside the loss, and what is penalised is the
        distance from them. A strong penalty then leaves the share of each class, and not a score of 0, which with a
        rare class would turn the other coefficients into minus the mean of the common one. Needs an intercept.

    Attributes
    ----------
    offset_ : float or ndarray (K,)
        Inside `intercept_`: log-odds of the second class, or log shares that add up to 0; 0 without a prior. Scores
        above 0 make the fewest mistakes, scores above `offset_` the largest balanced accuracy, where the model is
        right.
    coef_ : ndarray (1, d) or (K, d); intercept_ : ndarray (1,) or (K,)
        In the units of the shortened rows: decision = coef_ x + intercept_.
    classes_ : ndarray (K,); n_features_in_ : int
    gradient_norm_ : float; n_iter_ : int
        Of the solver.

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range; X not a finite numeric matrix; a label outside `classes`.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> ERMClassifier(regularization=0.1).fit(X, y).predict_proba([[1.0]]).round(3)
    array([[0.252, 0.748]])
    """

    def __init__(
        self,
        regularization=1e-3,
        radius=1.0,
        fit_intercept=True,
        tol=1e-9,
        classes=(0, 1),
        loss="logistic",
        h=0.5,
        class_weight=None,
        bounds=None,
        intercept_scaling=1.0,
        rows="clip",
        center=None,
        prior=None,
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
        self.intercept_scaling = intercept_scaling
        self.rows = rows
        self.center = center
        self.prior = prior

    def fit(self, X, y, multiplicity=None):
        """Fit to X (m, d), labels y (m,) and, where rows stand for several equal records, their numbers (m,).

        They may be arrays, memory maps, `Chunks` or Dask collections (`helpers.erm.partitions`).
        """
        self._check_parameters()
        check_real("tol", self.tol, low=0, high=1, inclusive="neither")
        check_intercept(self)
        records = self._records(X, y, multiplicity)
        none = np.zeros((len(self.classes) - 1) * records.rows.shape[1])
        weights = self._weights(records)
        sizes = np.maximum(class_sizes(records, len(self.classes_)), 1)
        self.offset_ = 0.0 if self.prior is None else self._offset(sizes, weights)
        regularization, distance = float(self.regularization), self.tol / self.radius
        solution = self._minimiser(records, weights, regularization, none, distance)
        self._store(solution.beta)
        self.gradient_norm_, self.n_iter_ = solution.gradient_norm, solution.n_iter
        return self


def check_intercept(model) -> None:
    """Refuse an offset without the constant feature that carries it.

    Raises
    ------
    ValueError
        `prior` without `fit_intercept`.
    """
    if model.prior is not None and not model.fit_intercept:
        raise ValueError(f"prior must be None with fit_intercept=False, got {model.prior!r}")


def public_center(center, n_features) -> np.ndarray | None:
    """The public centre of the features as an array (d,); None where it is left to the bounds.

    Raises
    ------
    ValueError
        Neither a finite number nor `n_features` of them, or beyond 1e100.

    >>> public_center(0.5, 2).tolist()
    [0.5, 0.5]
    """
    if center is None:
        return None
    try:
        center = np.asarray(center, dtype=float)
    except (TypeError, ValueError):
        center = np.empty((0, 0))
    fits = center.ndim == 0 or center.shape == (n_features,)
    if not fits or not (np.abs(center) <= _LARGEST_CENTER).all():
        raise ValueError(f"center must be a finite number or {n_features} of them, one a feature")
    return np.broadcast_to(center, n_features)


def _made_rows(unfitted, X) -> Rows:
    """Rows of some of the records, by the public parameters of an estimator."""
    return factored_rows(unfitted._mapped(X), **unfitted._geometry())


def identity(records) -> tuple:
    """What tells the records from others, for noise that is keyed by an integer: arrays, or the hashes of a table."""
    if isinstance(records.rows, Table):
        return (records.rows.shape, records.rows.fingerprint())
    return tuple(part for part in (records.rows, records.codes, records.multiplicity) if part is not None)


def class_sizes(records, n_classes) -> np.ndarray:
    """Number of records (K,) of each class, as int64."""
    if isinstance(records.rows, Table):
        return records.rows.sizes
    numbers = np.ones(len(records.codes), np.int64) if records.multiplicity is None else records.multiplicity
    sizes = np.zeros(n_classes, np.int64)
    np.add.at(sizes, records.codes, numbers)
    return sizes


def row_weights(records, weights) -> np.ndarray | None:
    """Weight (m,) of every row: its class's, times the number of records it stands for; None if all are 1."""
    if weights is None:
        return None if records.multiplicity is None else records.multiplicity.astype(float)
    each = weights[records.codes]
    return each if records.multiplicity is None else each * records.multiplicity


def check_multiplicity(multiplicity, n_rows) -> np.ndarray:
    """Numbers of records (m,), as int64.

    Raises
    ------
    ValueError
        Not `n_rows` integers of at least 1 that add up to at most 10^15.

    >>> check_multiplicity([2, 1], 2)
    array([2, 1])
    """
    numbers = np.asarray(multiplicity)
    if numbers.shape != (n_rows,) or numbers.dtype.kind not in "iu" or (numbers < 1).any():
        raise ValueError(f"multiplicity must be {n_rows} integers of at least 1, got an array {numbers.shape}")
    if not math.fsum(numbers) <= _LARGEST_TABLE:
        raise ValueError(f"multiplicity must add up to at most {_LARGEST_TABLE:.0e}, got {math.fsum(numbers):.0e}")
    return numbers.astype(np.int64)
