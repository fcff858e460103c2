"""Private logistic regression as it should be used on rare classes: an offset, rows of one length, a threshold.

`PrivateLogisticRegression` is `helpers.erm.ObjectivePerturbationClassifier` with one noisy count of the minority, which
stands inside the loss as the log-odds of the classes and is the threshold as well, and with defaults that were chosen
on development sets alone (`benchmarks/defaults.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from helpers.erm import LOGISTIC, ObjectivePerturbationClassifier, Softmax, default_regularization, fixed_weights
from helpers.erm.partitions import count_records, gathered, is_partitioned
from helpers.meta.learners import fit_learner
from helpers.predictions import ModelPredictions
from helpers.privacy import REPLACE_ONE, PrivateMixin, child_state
from helpers.validation import any_value, check_choice, validate_records


@dataclass(eq=False, repr=False)
class PrivateLogisticRegression(PrivateMixin, ModelPredictions, ClassifierMixin, BaseEstimator):
    """Private logistic regression for rare classes: ranking, probabilities and decisions within one budget.

    A share of epsilon buys one noisy count of the minority (one a class under add/remove, or with more classes). Their
    log-odds stand inside the loss of an `ObjectivePerturbationClassifier`, which gets the rest, so that a strong
    penalty leaves the share of the minority and no wrong direction; and they are the threshold, which is best for the
    mean of the error rates where the model is right. For a target recall or F1, put it into a `ThresholdClassifier`.

    Parameters
    ----------
    epsilon, delta : float
        The whole budget; delta = 0 is pure differential privacy.
    bounds : array (d, 2), optional
        Public bounds of the features, by which they are mapped to [-1, 1]. Without them X has to be in units in which
        a record of length `radius` = 1 is a long one.
    regularization : "auto" or float
        Of the mean loss. "auto": `default_regularization`, from public numbers.
    intercept_scaling, rows
        As in `ObjectivePerturbationClassifier`, with other defaults: rows of one length, and a small constant feature,
        since the offset leaves little for the intercept to do.
    noise : {"auto", "ball", "cube", "gaussian"}
        As in `ObjectivePerturbationClassifier`, where "auto" is "gaussian" with `delta` > 0; without, "cube" if there
        are `bounds`, else "ball".
    counts_share : float
        In (0, 1): part of epsilon for the count.
    classes : sequence of labels
        Public. Of two, the larger one is the minority.
    neighbouring : NeighboringRelation
        `REPLACE_ONE` or `ADD_REMOVE`.
    n_records : int, optional
        Public number of records that divides the loss; needed under add/remove.
    random_state : None or int
        None, except to reproduce a result: whoever can guess an integer knows the noise, and it must not serve two
        releases on related data (`PrivateMixin`).

    Attributes
    ----------
    coef_ : ndarray (1, d) or (K, d); intercept_ : ndarray (1,) or (K,)
        Of rows as `estimator_` makes them.
    offset_ : float or ndarray (K,)
        Noisy log-odds of the minority, or log shares that add up to 0; inside `intercept_`.
    threshold_ : float or ndarray (K,)
        `offset_`: the second class is predicted where the score is at least this; of more, the one that exceeds its own
        most.
    estimator_ : ObjectivePerturbationClassifier
        The fitted model, whose guarantee is that of count and coefficients.
    guarantee_ : helpers.privacy.Guarantee
        Of all of these together.
    classes_ : ndarray (K,); n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range; X not a finite numeric matrix; labels outside `classes`.

    Notes
    -----
    A class without a record is no error, since it would tell something about the labels.

    Proof: that of the learner and of the threshold.

    Source: objective perturbation as in `ObjectivePerturbationClassifier`; thresholds as in `ThresholdClassifier`.

    >>> X, y = np.linspace(-1, 1, 1000)[:, None], np.repeat([0, 1], [950, 50])
    >>> model = PrivateLogisticRegression(epsilon=2.0, bounds=[[-1, 1]], random_state=0).fit(X, y)
    >>> str(model.guarantee_), bool(model.threshold_ == model.offset_), round(model.offset_)
    ('(2, 0)-DP, replace-one', True, -3)
    """

    _allowed: ClassVar[dict] = {
        # The learner has the same parameters, and checks them.
        **dict.fromkeys(("epsilon", "delta", "counts_share", "classes", "neighbouring", "n_records"), any_value),
        **dict.fromkeys(("bounds", "intercept_scaling", "rows", "noise"), any_value),
        "regularization": lambda name, value: isinstance(value, str) and check_choice(name, value, ("auto",)),
    }

    epsilon: float = 1.0
    delta: float = 0.0
    bounds: ArrayLike | None = None
    regularization: float | str = "auto"
    intercept_scaling: float = 0.1
    rows: str = "unit"
    noise: str = "auto"
    counts_share: float = 0.1
    classes: Sequence[Any] = (0, 1)
    neighbouring: NeighboringRelation = REPLACE_ONE
    n_records: int | None = None
    random_state: int | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._learner()._check_parameters()

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to X (n, d) and labels y (n,), which memory need not hold (`helpers.erm.partitions`); returns self."""
        self._check_parameters()
        X = gathered(X)
        if is_partitioned(X):
            self.n_features_in_ = X.shape[1]
        else:
            fewest = 1 if self.n_records is None else 0  # no rows are refused where their number is public
            X, y = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=fewest)
        # No noise is drawn here: the learner keys its own by the records.
        learner = self._learner().set_params(random_state=child_state(self.random_state, self._noise_generator()))
        if self.regularization == "auto":
            # Without `n_records` the relation is replace-one, where the number of records is public.
            n_records, n_classes = self.n_records or count_records(X), len(self.classes)
            learner.regularization = default_regularization(
                n_records,
                (n_classes - 1) * (self.n_features_in_ + 1),
                (1 - self.counts_share) * self.epsilon,
                delta=self.delta,
                loss=LOGISTIC if n_classes == 2 else Softmax(n_classes),
                # Without class weights: the offset takes their place.
                weighting=fixed_weights(1.0, self.neighbouring),
            )
        self.estimator_ = fit_learner(learner, X, y)
        self.classes_, self.coef_ = self.estimator_.classes_, self.estimator_.coef_
        self.intercept_, self.offset_ = self.estimator_.intercept_, self.estimator_.offset_
        self.threshold_, given = self.offset_, self.estimator_.guarantee_
        self.guarantee_ = replace(given, source=f"{given.source}; one noisy count as offset and threshold")
        return self

    def predict(self, X: ArrayLike) -> NDArray:
        """Labels (n,), by `threshold_`."""
        scores = self.decision_function(X) - self.threshold_
        return self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores >= 0).astype(int)]

    def _model(self) -> ObjectivePerturbationClassifier:
        return self.estimator_ if hasattr(self, "estimator_") else ObjectivePerturbationClassifier()

    def __sklearn_tags__(self) -> Tags:
        return self._learner().__sklearn_tags__()

    def _learner(self) -> ObjectivePerturbationClassifier:
        """The learner without a seed, and without the penalty that the number of records gives."""
        parameters = self.get_params(deep=False) | {"prior": "offset", "random_state": None}
        if self.regularization == "auto":
            del parameters["regularization"]
        if self.noise == "auto" and self.delta == 0 and self.bounds is not None:
            parameters["noise"] = "cube"
        return ObjectivePerturbationClassifier(**parameters)
