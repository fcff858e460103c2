"""Private logistic regression as it should be used on rare classes: an offset, rows of one length, a threshold.

`PrivateLogisticRegression` is `helpers.erm.ObjectivePerturbationClassifier` with one noisy count of the minority, which
stands inside the loss as the log-odds of the classes and is the threshold as well, and with defaults that were chosen
on development sets alone (`benchmarks/defaults.py`).
"""

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin

from helpers.checks import check_choice, check_classes, check_real, label_codes, validate_records
from helpers.erm import LOGISTIC, ObjectivePerturbationClassifier, Softmax, default_regularization, fixed_weights
from helpers.erm.partitions import count_records, gathered, is_partitioned
from helpers.meta.learners import fit_learner
from helpers.meta.threshold import ThresholdMixin
from helpers.predictions import ModelPredictions
from helpers.privacy import REPLACE_ONE, Ledger, PrivateMixin, check_random_state, child_state

OBJECTIVES = ("accuracy", "balanced_accuracy", "expected_cost", "f1", "recall")
_ANY_NUMBER_OF_CLASSES = OBJECTIVES[:2]
_RAREST = 1e-12  # prevalences beyond are not told apart
_OF_THE_LEARNER = ("bounds", "classes", "intercept_scaling", "rows", "counts_share", "neighbouring", "n_records")


class PrivateLogisticRegression(PrivateMixin, ThresholdMixin, ModelPredictions, ClassifierMixin, BaseEstimator):
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
    intercept_scaling, rows
        As in `ObjectivePerturbationClassifier`, with other defaults: rows of one length, and a small constant feature,
        since the offset leaves little for the intercept to do.
    noise : {"auto", "ball", "cube", "gaussian"}
        As in `ObjectivePerturbationClassifier`, where "auto" is "gaussian" with `delta` > 0; without, "cube" if there
        are `bounds`, else "ball".
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

    def __init__(
        self,
        epsilon=1.0,
        delta=0.0,
        bounds=None,
        objective="balanced_accuracy",
        regularization="auto",
        intercept_scaling=0.1,
        rows="unit",
        noise="auto",
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
        self.noise = noise
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

        The threshold of "recall" needs all records at once, and refuses `Chunks` and Dask's.
        """
        self._check_parameters()
        X = gathered(X)
        whole = self.objective == "recall"
        if whole and is_partitioned(X) and not isinstance(X, np.memmap):
            raise ValueError(
                f'objective must be other than "recall" where records come in parts, got {self.objective!r}'
            )
        if is_partitioned(X) and not whole:
            # The learner checks the records and keys its noise by them; no other noise is drawn.
            self.n_features_in_, rng = X.shape[1], self._noise_generator()
        else:
            fewest = 1 if self.n_records is None else 0  # no rows are refused where their number is public
            X, y = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=fewest)
            label_codes(y, check_classes(self.classes))
            rng = self._noise_generator(X, y)
        # Without `n_records` the relation is replace-one, where the number of records is public.
        self._learn(Ledger((X, y), self.neighbouring, rng), self.n_records or count_records(X))
        return self

    def _learn(self, ledger, n_records):
        """Set what is fitted, from a private fit and, for "recall", one answer more."""
        learner = self._learner(self._penalty(n_records), child_state(self.random_state, ledger.rng))
        self.estimator_ = ledger.fitted(lambda records: fit_learner(learner, *records))
        self.classes_, self.offset_ = self.estimator_.classes_, self.estimator_.offset_
        self.coef_, self.intercept_ = self.estimator_.coef_, self.estimator_.intercept_
        match self.objective:
            case "accuracy":
                self.threshold_ = np.zeros_like(self.offset_) if np.ndim(self.offset_) else 0.0
            case "balanced_accuracy":
                self.threshold_ = self.offset_
            case _:
                prevalence = float(np.clip(expit(self.offset_), _RAREST, 1 - _RAREST))
                self.threshold_ = self._threshold_log_odds(ledger, prevalence)
        given = self.estimator_.guarantee_
        self.guarantee_ = ledger.guarantee(
            given.epsilon + self._threshold_epsilon(),
            given.delta,
            source=f"{given.source}; one noisy count as offset and threshold",
            assumes=self._threshold_assumptions(),
        )

    def predict(self, X):
        """Labels (n,), by `threshold_`."""
        scores = self.decision_function(X) - self.threshold_
        return self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores >= 0).astype(int)]

    def _model(self):
        return getattr(self, "estimator_", ObjectivePerturbationClassifier())

    def _log_odds(self, X):
        return self.estimator_.decision_function(X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = np.size(self.classes) > 2
        return tags

    def _check_parameters(self):
        check_random_state(self.random_state)
        if not self._penalty_is_auto():
            check_real("regularization", self.regularization, low=0, inclusive="neither")
        classes = check_classes(self.classes)
        self._check_threshold(classes, OBJECTIVES)
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_real("delta", self.delta, low=0, high=1, inclusive="low")
        self._learner(1.0 if self._penalty_is_auto() else self.regularization, None)._check_parameters()
        if len(classes) > 2 and self.objective not in _ANY_NUMBER_OF_CLASSES:
            raise ValueError(
                f"objective must be one of {_ANY_NUMBER_OF_CLASSES} with more than two classes, got {self.objective!r}"
            )

    def _penalty_is_auto(self) -> bool:
        named = isinstance(self.regularization, str)
        return named and check_choice("regularization", self.regularization, ("auto",)) == "auto"

    def _threshold_epsilon(self) -> float:
        return self.threshold_share * self.epsilon if self.objective == "recall" else 0.0

    def _penalty(self, n_records) -> float:
        if not self._penalty_is_auto():
            return self.regularization
        several = len(self.classes) - 1
        return default_regularization(
            n_records,
            several * (self.n_features_in_ + 1),
            (1 - self.counts_share) * (self.epsilon - self._threshold_epsilon()),
            delta=self.delta,
            loss=LOGISTIC if several == 1 else Softmax(several + 1),
            weighting=fixed_weights(1.0, self.neighbouring),
        )

    def _learner(self, penalty, random_state) -> ObjectivePerturbationClassifier:
        in_a_box = self.delta == 0 and self.bounds is not None
        return ObjectivePerturbationClassifier(
            epsilon=self.epsilon - self._threshold_epsilon(),
            delta=self.delta,
            regularization=penalty,
            prior="offset",
            noise="cube" if in_a_box and self.noise == "auto" else self.noise,
            random_state=random_state,
            **{name: getattr(self, name) for name in _OF_THE_LEARNER},
        )
