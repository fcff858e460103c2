"""Linear classifiers of records inside a ball: what the private ones share, and the exact minimiser beside them.

`LinearClassifier` holds rows, labels, class weights and predictions; `ERMClassifier` is the fit without noise, the
yardstick for what privacy costs. Bounds and labels are public parameters, and no fit fails on the *values* of valid
records (finite numbers, declared labels). Standardising features and choosing parameters are left to the caller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from scipy.special import softmax as softmax_probabilities
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.data import into_ball
from helpers.erm import partitions
from helpers.erm.calibration import class_weights
from helpers.erm.losses import LOGISTIC, Loss, Softmax, huber, zero_sum_basis
from helpers.erm.norms import check_blocks, simplex_rows, surface_rows
from helpers.erm.partitions import gathered, is_dask, is_partitioned, table
from helpers.erm.risk import MarginSums, Risk, Rows, SoftmaxSums, Table, blocks_of, factored_rows
from helpers.predictions import ScorePredictions
from helpers.privacy import ADD_REMOVE, REPLACE_ONE
from helpers.validation import (
    Check,
    DeclaredParameters,
    check_boolean,
    check_bounds,
    check_classes,
    check_real,
    choice,
    label_codes,
    optional,
    real,
    validate_records,
)

_LARGEST_RADIUS = 1e100
_LARGEST_CONDITION = 1e16  # of a Hessian; doubles resolve no more
_LARGEST_TABLE = 10**15


class Records(NamedTuple):
    """Records as the solver wants them.

    Attributes
    ----------
    rows : ndarray (m, d), or Table
        Feature vectors inside the ball; a `Table` where there are many, or where they come in parts.
    codes : ndarray (m,) of int
        Class of each row, 0..K-1; an empty array if `rows` is a `Table`, whose blocks hold the codes.
    multiplicity : ndarray (m,) of int64, or None if every row is one record.
    sizes : ndarray (K,) of int64
        Number of records of each class.
    divisor : int
        The number that divides the sum of the losses.
    """

    rows: Any
    codes: NDArray[np.intp]
    multiplicity: NDArray[np.int64] | None
    sizes: NDArray[np.int64]
    divisor: int

    def identity(self) -> tuple:
        """What the noise of a seeded fit is keyed by: the arrays themselves, or shape and hashes of a `Table`."""
        if isinstance(self.rows, Table):
            return (self.rows.shape, self.rows.fingerprint())
        return tuple(part for part in (self.rows, self.codes, self.multiplicity) if part is not None)


def class_weight_among(*names: str | None) -> Check:
    """For a declaration: one of the names, or weights in [0, 1] by label, not all 0.

    That the labels are those of `classes` is left to `_check_parameters`.
    """

    def check(name, value):
        if not isinstance(value, dict):
            if value not in names:
                allowed = ", ".join(repr(choice) for choice in names)
                raise ValueError(f"{name} must be a dict or one of {allowed}, got {value!r}")
        elif max([check_real(name, weight, low=0, high=1) for weight in value.values()], default=0.0) == 0:
            raise ValueError(f"{name} must be positive for some class, got {value!r}")

    return check


LOSSES: dict[str, Check] = {"loss": choice("logistic", "huber"), "h": real(low=1e-4, high=1e10)}
"""The parameters of `LinearClassifier._loss`, of classes that leave the choice to the user."""
# The offset is reached by the coefficient offset / constant feature (`_anchor`). For a smaller constant feature that
# coefficient is so large that a double cannot resolve the distance to the minimiser which the solver promises.
INTERCEPT_SCALING = real(low=1e-3, high=1e3)


class LinearClassifier(ScorePredictions, DeclaredParameters, ClassifierMixin, BaseEstimator):
    """Rows, labels, class weights and predictions of `ERMClassifier` and the private classifiers. Not used by
    itself.

    Parameters of the subclasses are fields of a dataclass, which writes the constructor that scikit-learn reads.
    """

    _allowed: ClassVar[dict[str, Check]] = {
        "regularization": real(low=0, inclusive="neither"),
        "radius": real(low=1 / _LARGEST_RADIUS, high=_LARGEST_RADIUS),
        "fit_intercept": check_boolean,
        "classes": check_classes,
        "class_weight": class_weight_among(None, "balanced"),
        "bounds": optional(check_bounds),
        "prior": choice(None, "offset"),
    }
    # Whether the rows lie in a ball together with a constant feature, which then carries the offset. Such rows are
    # made from some of the records at a time; rows of one's own are written out.
    _rows_in_ball = True
    # Whether X may come in parts (`helpers.erm.partitions`).
    _takes_parts = True
    # Of classes that have no such parameters:
    neighbouring: Any = REPLACE_ONE
    n_records: int | None = None
    random_state: int | None = None
    intercept_scaling: float = 1.0
    rows: str = "clip"
    prior: str | None = None
    noise: str = "auto"
    blocks: Sequence[Sequence[int]] | None = None
    loss: str = "logistic"
    h: float = 0.5

    regularization: float
    radius: float
    fit_intercept: bool
    classes: Sequence[Any]
    class_weight: str | dict[Any, float] | None
    bounds: ArrayLike | None
    classes_: NDArray
    n_features_in_: int
    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    offset_: Any

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = np.size(self.classes) > 2
        return tags

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores (n,), positive for the second class; with more classes (n, K)."""
        check_is_fitted(self)
        # The constant feature is in `intercept_` already, and `coef_` has its share of the row's length (`_store`).
        rows = self._rows(validate_data(self, X, dtype=np.float64, reset=False), constant=False)
        scores = rows.written(order="F") @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @available_if(lambda model: model.loss == "logistic")
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities (n, K) of the fitted logistic model, columns as in `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return softmax_probabilities(scores, axis=1)
        return np.column_stack([expit(-scores), expit(scores)])

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.n_records is None and self.neighbouring is ADD_REMOVE:
            raise ValueError("n_records must be a public integer under add/remove-one, got None")
        if self.loss == "huber" and len(self.classes) > 2:
            raise ValueError(f"classes must be two labels with the Huber loss, got {self.classes!r}")
        weights = self.class_weight
        if isinstance(weights, dict) and set(weights) != set(np.unique(self.classes).tolist()):
            raise ValueError(f"class_weight must be a dict over the labels of classes, got {weights!r}")
        if self.prior is not None:
            if self._rows_in_ball and not self.fit_intercept:
                raise ValueError(f"prior must be None with fit_intercept=False, got {self.prior!r}")
            if weights in ("balanced", "private"):
                raise ValueError(f"prior must be None with class_weight={weights!r}: such classes weigh the same")
            if isinstance(weights, dict) and min(weights.values()) == 0:
                raise ValueError(f"class_weight must be above 0 with a prior, got {weights!r}")
        # What double arithmetic cannot solve or hold, whatever the records are. The larger penalty of a calibration is
        # below the limit too, as budgets are at least 1e-10.
        condition = self._loss().curvature * self.radius**2 / self.regularization
        if not 1 / _LARGEST_CONDITION**2 <= condition <= _LARGEST_CONDITION:
            raise ValueError(
                f"regularization must be at least {1 / _LARGEST_CONDITION:g} (and at most {_LARGEST_CONDITION**2:g}) "
                f"times the loss's curvature times radius**2, got {self.regularization!r}"
            )

    def _records(self, X, y, multiplicity) -> Records:
        """Checked data as rows and codes; sets `classes_` and `n_features_in_`."""
        # A number of records that is given need not be that of the rows, which can then be private and 0.
        fewest = 1 if self.n_records is None else 0
        # A plain array, by far the most frequent, needs no second look.
        in_parts = False
        if self._takes_parts and type(X) is not np.ndarray:
            X = gathered(X)
            in_parts = is_partitioned(X)
        if in_parts:
            self.n_features_in_ = X.shape[1]
        else:
            X, y = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=fewest)
        if self.bounds is not None:
            check_bounds("bounds", self.bounds, X.shape[1])
        if multiplicity is not None and not self._rows_in_ball:
            raise ValueError("multiplicity must be None for a descent: write equal records out")
        if multiplicity is not None and not is_dask(X):
            # Integers of at least 1; their sum stays exact in double arithmetic.
            multiplicity, m = np.asarray(multiplicity), X.shape[0]
            if multiplicity.shape != (m,) or multiplicity.dtype.kind not in "iu" or (multiplicity < 1).any():
                raise ValueError(f"multiplicity must be {m} integers of at least 1, got an array {multiplicity.shape}")
            if not (total := math.fsum(multiplicity)) <= _LARGEST_TABLE:
                raise ValueError(f"multiplicity must add up to at most {_LARGEST_TABLE:.0e}, got {total:.0e}")
            multiplicity = multiplicity.astype(np.int64)
        self.classes_ = np.unique(self.classes)
        if in_parts or (self._rows_in_ball and X.size > partitions.FEW):
            unfitted = clone(self)
            # The table makes rows of some records at a time by this copy's `_rows`, perhaps on a worker.
            unfitted.random_state = None  # the seed is no concern of a worker
            rows: Any = table(X, y, self.classes_, multiplicity, unfitted._rows, fewest=fewest)
            codes, multiplicity, sizes = np.empty(0, np.intp), None, rows.sizes
        else:
            codes, rows = label_codes(y, self.classes_), self._rows(X).written(order="F")
            sizes = np.bincount(codes, multiplicity, len(self.classes_)).astype(np.int64)
        n_records = int(sizes.sum()) if self.n_records is None else self.n_records
        return Records(rows, codes, multiplicity, sizes, n_records)

    def _rows(self, X: NDArray, constant: bool = True) -> Rows:
        """Rows of checked X inside the ball, with the constant feature or without it."""
        boxed, rows = X, self.rows
        if self.bounds is not None:
            boxed = into_ball(X, np.asarray(self.bounds, dtype=float), radius=self.radius)
        if self.blocks is not None:
            boxed = simplex_rows(boxed, X, check_blocks(self.blocks, X.shape[1]), self.radius)
        elif self.noise == "cube" and rows == "unit":
            boxed = surface_rows(boxed, self.radius)
        return factored_rows(
            boxed,
            radius=self.radius,
            fit_intercept=constant and self.fit_intercept,
            intercept_scaling=self.intercept_scaling,
            # Rows that have their length in the norm of the cube are not to be lengthened once more.
            rows="clip" if self.noise == "cube" else rows,
        )

    def _weights(self, sizes) -> NDArray[np.float64] | None:
        """Weights (K,) of the classes, public or from the data's own counts; None if all are 1."""
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, dict):
            return np.array([float(self.class_weight[label]) for label in self.classes_.tolist()])
        return class_weights(sizes if sizes.any() else np.ones(len(sizes)))  # without records they weigh nothing

    def _offset(self, sizes: NDArray, weights: NDArray | None) -> float | NDArray[np.float64]:
        """Log-odds of the second of two classes, or log shares (K,) that add up to 0, from sizes of at least 1."""
        logs = np.log(sizes if weights is None else sizes * weights)
        return float(logs[1] - logs[0]) if len(logs) == 2 else logs - logs.mean()

    def _anchor(self) -> NDArray[np.float64]:
        """Coefficients that the penalty pulls to: those whose scores are the offset for every record.

        A score b0 + z'beta with a penalty on beta is z'u, u = beta + b0/c along the constant feature c, with a penalty
        on u minus that. So an offset inside the loss is a linear term, and neither slope nor bend of a record sees it.
        """
        constant = self.intercept_scaling * self.radius / math.sqrt(1 + self.intercept_scaling**2)
        offset = self.offset_ if np.ndim(self.offset_) == 0 else zero_sum_basis(len(self.offset_)) @ self.offset_
        anchor = np.zeros((*np.shape(offset), self.n_features_in_ + 1))
        anchor[..., -1] = offset / constant
        return anchor.ravel()

    def _loss(self) -> Loss | Softmax:
        """The loss, or its constants where there are more than two classes."""
        if len(self.classes) > 2:
            return Softmax(len(self.classes))
        return LOGISTIC if self.loss == "logistic" else huber(self.h)

    def _minimiser(self, records, weights, regularization, noise, distance) -> NDArray[np.float64]:
        """Within `distance` of the minimiser of the risk with total `regularization` and the linear term noise/n.

        `weights` (K,) are those of the classes.
        """
        loss, n = self._loss(), records.divisor
        linear = noise / n
        if self.prior is not None:
            # (L/2) ||u - a||^2 is (L/2) ||u||^2 - L a'u, up to a constant: the anchor a is a linear term.
            linear = linear - regularization * self._anchor()
        sums: MarginSums | SoftmaxSums
        if isinstance(loss, Softmax):
            sums, linear = SoftmaxSums(loss, weights), linear.reshape(loss.n_classes - 1, -1)
        else:
            sums = MarginSums(loss, weights)
        mean_weight = float(np.sum(records.sizes * (1.0 if weights is None else weights))) / n
        rows = records.rows
        if not isinstance(rows, Table):
            numbers = None if records.multiplicity is None else records.multiplicity.astype(float)
            rows = Table(list(blocks_of([rows], records.codes, numbers)), rows.shape)
        risk = Risk(rows, sums, regularization, linear, n, mean_weight, float(self.radius))
        return risk.minimiser(distance).beta

    def _store(self, beta: NDArray) -> None:
        """Set `coef_` and `intercept_`, in the units of the shortened rows."""
        # Several classes: from K - 1 coordinates in the basis to K rows that sum to zero.
        beta = beta[None] if beta.ndim == 1 else zero_sum_basis(len(self.classes_)).T @ beta
        if self.fit_intercept:
            longest = np.sqrt(1 + self.intercept_scaling**2)
            # Rows were z = [x, a R] / sqrt(1 + a^2), so beta'z is (beta / sqrt(1 + a^2))'[x, a R].
            self.coef_ = beta[:, :-1] / longest
            self.intercept_ = beta[:, -1] * self.intercept_scaling * self.radius / longest
        else:
            self.coef_, self.intercept_ = beta, np.zeros(len(beta))


@dataclass(eq=False, repr=False)
class ERMClassifier(LinearClassifier):
    """Regularised linear classification of records inside a ball, without privacy.

    Minimises (1/n) sum w_i loss(s_i z_i'beta) + (regularization/2) ||beta||^2, where x is shortened to norm `radius`
    and z = [x, a radius] / sqrt(1 + a^2) with an intercept, z = x without. Rows are shortened at prediction too. More
    than two classes: the softmax loss, with scores that add up to zero.

    Parameters
    ----------
    regularization : float
        lambda > 0, on the mean loss, at least 1e-16 curvature radius^2; the intercept is penalised.
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
        Half the width of the Huber loss's quadratic piece, in [1e-4, 1e10]: what the solver promises is tested there.
    class_weight : None, "balanced" or dict
        "balanced": `class_weights` of the data's counts, n_other/n with two classes, which is not scikit-learn's. A
        dict maps every label to a weight in [0, 1].
    bounds : array (d, 2), optional
        Public bounds of the features: X is mapped into the ball by them (`helpers.data.into_ball`).
    intercept_scaling : float
        a in [1e-3, 1e3], the size of the constant feature beside the longest row. The larger it is, the less the
        intercept is penalised, and the shorter are all rows beside it.
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

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range; X not a finite numeric matrix; a label outside `classes`.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> ERMClassifier(regularization=0.1).fit(X, y).predict_proba([[1.0]]).round(3)
    array([[0.252, 0.748]])
    """

    _allowed: ClassVar[dict[str, Check]] = LOSSES | {
        "tol": real(low=0, high=1, inclusive="neither"),
        "intercept_scaling": INTERCEPT_SCALING,
    }

    regularization: float = 1e-3
    radius: float = 1.0
    fit_intercept: bool = True
    tol: float = 1e-9
    classes: Sequence[Any] = (0, 1)
    loss: str = "logistic"
    h: float = 0.5
    class_weight: str | dict[Any, float] | None = None
    bounds: ArrayLike | None = None
    intercept_scaling: float = 1.0
    prior: str | None = None

    def fit(self, X: Any, y: Any, multiplicity: Any = None) -> Self:
        """Fit to X (m, d), labels y (m,) and, where rows stand for several equal records, their numbers (m,).

        They may be arrays, memory maps, `Chunks` or Dask collections (`helpers.erm.partitions`).
        """
        self._check_parameters()
        records = self._records(X, y, multiplicity)
        none = np.zeros((len(self.classes) - 1) * records.rows.shape[1])
        weights = self._weights(records.sizes)
        self.offset_ = 0.0 if self.prior is None else self._offset(np.maximum(records.sizes, 1), weights)
        self._store(self._minimiser(records, weights, float(self.regularization), none, self.tol / self.radius))
        return self
