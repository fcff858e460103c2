"""Private logistic regression as it should be used on rare classes: an offset, rows of one length, a threshold.

`PrivateLogisticRegression` is `helpers.erm.ObjectivePerturbationClassifier` with one noisy count of the minority, which
stands inside the loss as the log-odds of the classes and is the threshold as well, and with defaults that were chosen
on development sets alone (`benchmarks/defaults.py`).
"""

from dataclasses import replace

import numpy as np
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.checks import check_choice, check_classes, check_real, label_codes, validate_records
from helpers.erm import (
    LOGISTIC,
    ObjectivePerturbationClassifier,
    Softmax,
    default_regularization,
    fixed_weights,
    private_standard,
)
from helpers.erm.partitions import count_records, gathered, is_partitioned
from helpers.meta.learners import fit_learner, restate
from helpers.meta.threshold import (
    check_mistake_costs,
    cost_threshold,
    f1_threshold,
    recall_threshold,
)
from helpers.privacy import REPLACE_ONE, PrivateMixin, check_random_state, child_state, compose, noise_assumptions

OBJECTIVES = ("accuracy", "balanced_accuracy", "expected_cost", "f1", "recall")
_ANY_NUMBER_OF_CLASSES = OBJECTIVES[:2]
_RAREST = 1e-12  # prevalences beyond are not told apart
_OF_THE_LEARNER = (
    "intercept_scaling",
    "rows",
    "center",
    "blocks",
    "counts_share",
    "neighbouring",
    "n_records",
)


class PrivateLogisticRegression(PrivateMixin, ClassifierMixin, BaseEstimator):
    """Private logistic regression for rare classes: ranking, probabilities and decisions within one budget.

    A share of epsilon buys one noisy count of the minority (one a class under add/remove, or with more classes). Their
    log-odds stand inside the loss of an `ObjectivePerturbationClassifier`, which gets the rest, so that a strong
    penalty leaves the share of the minority and no wrong direction; and they are the threshold for balanced accuracy.

    Parameters
    ----------
    epsilon, delta : float
        The whole budget; delta = 0 is pure differential privacy.
    bounds : array (d, 2), optional
        Public bounds of the features, by which they are mapped to [-1, 1]. Without them X has to be in units in which
        a record of length `radius` = 1 is a long one.
    objective : {"balanced_accuracy", "accuracy", "expected_cost", "f1", "recall"}
        What the decisions are best for, where the model is right. "balanced_accuracy": the mean of the two error rates,
        by the noisy share of the minority as threshold. "accuracy": the number of mistakes, by 1/2. "expected_cost":
        the price of the mistakes, by `cost_threshold`. "f1": `f1_threshold`, an approximation. "recall": a share
        `target_recall` of the minority among the records of the fit, by `recall_threshold`, which costs
        `threshold_share` of epsilon. Those but "recall" cost nothing beyond the count.
    regularization : "auto" or float
        Of the mean loss. "auto": `default_regularization`, from public numbers.
    intercept_scaling, rows, center, blocks
        As in `ObjectivePerturbationClassifier`, with other defaults: rows of one length, and a small constant feature,
        since the offset leaves little for the intercept to do.
    noise : {"auto", "ball", "cube", "gaussian"}
        As in `ObjectivePerturbationClassifier`, where "auto" is "gaussian" with `delta` > 0; without, "cube" if there
        are `bounds` (and no `blocks` with more than two classes), else "ball".
    frame_share : float
        In [0, 1): part of epsilon and delta for a private centre and scale of the features (`private_standard`), which
        then take the place of the middle and half the width of the bounds. It needs `bounds`, and pays where many
        features are far from the middle of theirs and the records are many.
    counts_share : float
        In (0, 1): part of epsilon for the count.
    threshold_share : float
        In (0, 1): part of epsilon for the threshold of "recall". A rank among few records needs more than a count.
    mistake_costs : dict, optional
        Price, > 0, of a mistake on a record of each label, for "expected_cost".
    expected_auc : float
        For "f1": how well the model is expected to rank, in [0.5, 1). A guess from outside the data.
    target_recall : float
        For "recall", in (0, 1).
    classes : sequence of labels
        Public. Of two, the larger one is the minority; more are for "balanced_accuracy" and "accuracy".
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
        The second class is predicted where the score is at least this; of more, the one that exceeds its own most.
    standard_ : helpers.erm.Standard or None
        The private centre and scale.
    estimator_ : ObjectivePerturbationClassifier
        The fitted model, whose guarantee is that of count and coefficients, the private centre and scale included.
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

    Source: objective perturbation as in `ObjectivePerturbationClassifier`; thresholds as in `ThresholdClassifier`.

    >>> X, y = np.linspace(-1, 1, 1000)[:, None], np.repeat([0, 1], [950, 50])
    >>> model = PrivateLogisticRegression(epsilon=2.0, bounds=[[-1, 1]], random_state=0).fit(X, y)
    >>> str(model.guarantee_), bool(model.threshold_ == model.offset_), round(model.offset_)
    ('(2, 0)-DP, replace-one', True, -3)
    """

    def __init__(
        self,
        epsilon=1.0,
        delta=0.0,
        bounds=None,
        objective="balanced_accuracy",
        regularization="auto",
        intercept_scaling=0.1,
        rows="unit",
        center=None,
        noise="auto",
        blocks=None,
        frame_share=0.0,
        counts_share=0.1,
        threshold_share=0.3,
        mistake_costs=None,
        expected_auc=0.8,
        target_recall=0.9,
        classes=(0, 1),
        neighbouring=REPLACE_ONE,
        n_records=None,
        random_state=None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.objective = objective
        self.regularization = regularization
        self.intercept_scaling = intercept_scaling
        self.rows = rows
        self.center = center
        self.noise = noise
        self.blocks = blocks
        self.frame_share = frame_share
        self.counts_share = counts_share
        self.threshold_share = threshold_share
        self.mistake_costs = mistake_costs
        self.expected_auc = expected_auc
        self.target_recall = target_recall
        self.classes = classes
        self.neighbouring = neighbouring
        self.n_records = n_records
        self.random_state = random_state

    def fit(self, X, y):
        """Fit to X (n, d) and labels y (n,), which memory need not hold (`helpers.erm.partitions`); returns self.

        A `frame_share` and the threshold of "recall" need all records at once, and refuse `Chunks` and Dask's.
        """
        classes = self._check_parameters()
        X = gathered(X)
        if self._comes_in_parts(X):  # the learner checks them, and keys its noise by them; no other noise is drawn
            self.n_features_in_, rng = X.shape[1], self._noise_generator()
        else:
            fewest = 1 if self.n_records is None else 0  # no rows are refused where their number is public
            X, y = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=fewest)
            label_codes(y, classes)
            rng = self._noise_generator(X, y)
        penalty = self._penalty(self.n_records or count_records(X), X.shape[1] + 1)
        learner = self._learner(penalty, child_state(self.random_state, rng))
        self.standard_, spent = self._find_standard(X, rng)
        self.estimator_ = fit_learner(learner, self._framed(X), y)
        self.classes_, self.offset_ = classes, self.estimator_.offset_
        self.coef_, self.intercept_ = self.estimator_.coef_, self.estimator_.intercept_
        self.threshold_, also_spent = self._find_threshold(X, y, rng)
        if spent:  # the frame depends on the records, so the estimator's own guarantee does not cover its coefficients
            restate(self.estimator_, compose([*spent, self.estimator_.guarantee_]))
        whole = compose([self.estimator_.guarantee_, *also_spent])
        assumes = (*whole.assumes, *self._assumptions(), *noise_assumptions(rng))
        source = f"{self.estimator_.guarantee_.source}; one noisy count as offset and threshold"
        self.guarantee_ = replace(whole, assumes=tuple(dict.fromkeys(assumes)), source=source)
        return self

    def decision_function(self, X):
        """Scores (n,), log-odds of the second class; with more classes (n, K). They know nothing of the threshold."""
        check_is_fitted(self)
        return self.estimator_.decision_function(self._framed(validate_data(self, X, dtype=np.float64, reset=False)))

    def predict_proba(self, X):
        """Class probabilities (n, K), columns as in `classes_`. They know nothing of the threshold."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(self._framed(validate_data(self, X, dtype=np.float64, reset=False)))

    def predict(self, X):
        """Labels (n,), by `threshold_`."""
        scores = self.decision_function(X) - self.threshold_
        return self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores >= 0).astype(int)]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = np.size(self.classes) > 2
        return tags

    def _check_parameters(self) -> np.ndarray:
        check_random_state(self.random_state)
        if isinstance(self.regularization, str):
            check_choice("regularization", self.regularization, ("auto",))
        else:
            check_real("regularization", self.regularization, low=0, inclusive="neither")
        check_real("threshold_share", self.threshold_share, low=0, high=1, inclusive="neither")
        check_real("expected_auc", self.expected_auc, low=0.5, high=1, inclusive="low")
        check_real("target_recall", self.target_recall, low=0, high=1, inclusive="neither")
        check_choice("objective", self.objective, OBJECTIVES)
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_real("delta", self.delta, low=0, high=1, inclusive="low")
        self._check_frame()
        self._learner(1.0 if self._is("regularization", "auto") else self.regularization, None)._check_parameters()
        classes = check_classes(self.classes)
        if len(classes) > 2 and self.objective not in _ANY_NUMBER_OF_CLASSES:
            raise ValueError(
                f"objective must be one of {_ANY_NUMBER_OF_CLASSES} with more than two classes, got {self.objective!r}"
            )
        if self.objective == "expected_cost" or self.mistake_costs is not None:
            check_mistake_costs(self.mistake_costs, classes)
        return classes

    def _check_frame(self):
        if check_real("frame_share", self.frame_share, low=0, high=1, inclusive="low") == 0:
            return
        if self.bounds is None:
            raise ValueError(f"bounds must be given with frame_share={self.frame_share!r}, got None")
        if self.center is not None or self.blocks is not None or self._is("noise", "cube"):
            raise ValueError(
                f"frame_share must be 0 with a public center, blocks or noise='cube', got {self.frame_share!r}"
            )
        if self.frame_share + (self.threshold_share if self.objective == "recall" else 0.0) >= 1:
            raise ValueError(f"frame_share and threshold_share must add up to less than 1, got {self.frame_share!r}")

    def _comes_in_parts(self, X) -> bool:
        whole = self.frame_share > 0 or self.objective == "recall"
        if whole and is_partitioned(X) and not isinstance(X, np.memmap):
            name, allowed = ("frame_share", "0") if self.frame_share > 0 else ("objective", 'other than "recall"')
            value = getattr(self, name)
            raise ValueError(f"{name} must be {allowed} where records come in parts, got {value!r}")
        return is_partitioned(X) and not whole

    @property
    def _noise_shape(self) -> str:
        has_a_polytope = self.blocks is None or np.size(self.classes) == 2
        in_a_box = self.bounds is not None and self.frame_share == 0 and has_a_polytope
        return "cube" if self._is("noise", "auto") and self.delta == 0 and in_a_box else self.noise

    def _is(self, name, word) -> bool:
        value = getattr(self, name)
        return isinstance(value, str) and value == word

    def _learner_epsilon(self) -> float:
        threshold = self.threshold_share * self.epsilon if self.objective == "recall" else 0.0
        return self.epsilon - threshold - self.frame_share * self.epsilon

    def _learner_delta(self) -> float:
        return self.delta - self.frame_share * self.delta

    def _penalty(self, n_records, dimension) -> float:
        if not self._is("regularization", "auto"):
            return self.regularization
        several = len(self.classes) - 1
        return default_regularization(
            n_records,
            several * dimension,
            (1 - self.counts_share) * self._learner_epsilon(),
            delta=self._learner_delta(),
            loss=LOGISTIC if several == 1 else Softmax(several + 1),
            weighting=fixed_weights(1.0, self.neighbouring),
        )

    def _learner(self, penalty, random_state) -> ObjectivePerturbationClassifier:
        return ObjectivePerturbationClassifier(
            epsilon=self._learner_epsilon(),
            delta=self._learner_delta(),
            bounds=None if self.frame_share > 0 else self.bounds,
            regularization=penalty,
            prior="offset",
            classes=self.classes,
            random_state=random_state,
            noise=self._noise_shape,
            **{name: getattr(self, name) for name in _OF_THE_LEARNER},
        )

    def _find_standard(self, X, rng):
        """The private centre and scale, and the guarantees of what was paid for them."""
        if self.frame_share == 0:
            return None, []
        epsilon, delta = self.frame_share * self.epsilon, self.frame_share * self.delta
        standard, guarantee = private_standard(X, self.bounds, epsilon, delta, self.neighbouring, self.n_records, rng)
        return standard, [guarantee]

    def _framed(self, X) -> np.ndarray:
        """What the learner sees."""
        return X if self.standard_ is None else self.standard_.applied(np.clip(X, *np.asarray(self.bounds, float).T))

    def _find_threshold(self, X, y, rng):
        """Scores to decide at, and the guarantees of what was paid for them."""
        match self.objective:
            case "accuracy":
                return np.zeros_like(self.offset_) if np.ndim(self.offset_) else 0.0, []
            case "balanced_accuracy":
                return self.offset_, []
            case "expected_cost":
                return float(
                    logit(cost_threshold(*(self.mistake_costs[label] for label in self.classes_.tolist())))
                ), []
            case "f1":
                prevalence = float(np.clip(expit(self.offset_), _RAREST, 1 - _RAREST))
                return float(logit(f1_threshold(prevalence, self.expected_auc))), []
        scores = self.estimator_.decision_function(self._framed(X)) if len(X) else np.empty(0)
        epsilon, is_second = self.threshold_share * self.epsilon, y == self.classes_[1]
        found = recall_threshold(scores, is_second, self.target_recall, epsilon, self.neighbouring, rng)
        return found.value, [found.guarantee]

    def _assumptions(self) -> tuple[str, ...]:
        own = {"expected_cost": ("costs of mistakes public",), "f1": ("expected AUC public",)}
        return own.get(self.objective, ())
