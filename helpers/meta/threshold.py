"""A private decision threshold for any private scorer: what to do about imbalance without touching the records.

A model without class weights knows how likely the minority is, and only its threshold 1/2 serves the wrong purpose. One
noisy count of the minority, a tenth of the budget by default, moves the threshold to where the purpose wants it. How
well the scores are calibrated decides about the result, and nothing here improves a ranking.
"""

import math

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri
from sklearn.base import BaseEstimator, ClassifierMixin

from helpers.checks import check_choice, check_classes, check_real, label_codes, validate_records
from helpers.meta.learners import (
    check_learner,
    check_mistake_costs,
    fit_learner,
    new_learner,
    planned_guarantee,
    with_origin,
)
from helpers.predictions import ModelPredictions
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Guarantee, Ledger, PrivateMixin, check_random_state, child_state

OBJECTIVES = ("balanced_accuracy", "expected_cost", "f1", "recall")
_SOURCES = {
    "balanced_accuracy": "the noisy prevalence as threshold",
    "expected_cost": "a threshold from public costs",
    "f1": "a threshold from the noisy prevalence",
    "recall": "a private quantile of the minority's scores (Smith 2011)",
}
_RESPONSES = ("predict_proba", "decision_function")
# Log-odds that a threshold for a target recall is chosen from; more of them would cost nothing.
CANDIDATES = np.linspace(-10.0, 10.0, 20_001)


def cost_threshold(majority_cost, minority_cost) -> float:
    """Probability from which to predict the minority for the least expected cost, from the prices of the two mistakes.

    A false alarm costs (1 - p) `majority_cost`, a miss p `minority_cost`, whatever the prevalence is. The scores have
    to be calibrated. Source: Elkan 2001, Equation 2.

    >>> cost_threshold(1.0, 49.0)
    0.02
    """
    prices = [
        check_real(name, price, low=0, inclusive="neither")
        for name, price in (("majority_cost", majority_cost), ("minority_cost", minority_cost))
    ]
    return prices[0] / sum(prices)


def f1_threshold(prevalence, expected_auc) -> float:
    """Probability from which to predict the minority for the largest F1, if the ranking is as good as expected.

    Half of the largest F1 that can be reached: of F1 = 2 hits / (n1 + alarms and hits), another "yes" raises the upper
    part by 2 p and the lower by 1, which pays as long as 2 p > F1. That F1 is a property of the unknown scores. The
    approximation: it is that of normal log-odds, of one variance in both classes and with means as far apart as
    `expected_auc` says.

    Parameters
    ----------
    prevalence : float
        In (0, 1).
    expected_auc : float
        In [0.5, 1).

    Source: Lipton, Elkan and Naryanaswamy 2014.

    >>> [round(f1_threshold(0.02, auc), 3) for auc in (0.5, 0.8, 0.95)]
    [0.02, 0.09, 0.252]
    """
    prevalence = check_real("prevalence", prevalence, low=0, high=1, inclusive="neither")
    distance = math.sqrt(2) * ndtri(check_real("expected_auc", expected_auc, low=0.5, high=1, inclusive="low"))
    cut = np.linspace(-distance / 2 - 8, distance / 2 + 8, 4001)
    hits = prevalence * ndtr(distance / 2 - cut)
    alarms = (1 - prevalence) * ndtr(-distance / 2 - cut)
    return float(np.max(hits / (prevalence + hits + alarms)))


def recall_threshold(ledger: Ledger, target: float, epsilon: float) -> float:
    """One of `CANDIDATES` at or above which about a share `target` of the minority's log-odds lie: pure epsilon-DP.

    The exponential mechanism, with minus the distance between the number of minority records below and 1 - target of
    all minority records. A minority record adds `target` or target - 1 to their difference, a majority record nothing,
    so one more record moves it by at most max(target, 1 - target), and another record by at most 1. Nothing is assumed
    about the scores. With probability 1 - beta the distance exceeds that of the best candidate by at most
    (2/epsilon) log(20,001/beta) records. Without minority records every candidate is as likely.

    Parameters
    ----------
    ledger : Ledger
        Of log-odds (n,), from something that is private itself, and of whether a record is of the minority (n,).
    target, epsilon : float
        In (0, 1), and above 0.

    Source: Smith 2011 (quantiles by the exponential mechanism), on a grid, for one class.

    >>> records = np.linspace(-4, 4, 8001), np.arange(8001) >= 4000
    >>> ledger = Ledger(records, REPLACE_ONE, np.random.default_rng(0))
    >>> round(recall_threshold(ledger, 0.75, 1.0), 1), ledger.bill
    (1.0, {ApproximateDpEvent(epsilon=1.0, delta=0.0): 1})
    """
    target = check_real("target", target, low=0, high=1, inclusive="neither")

    def nearness(records):
        log_odds, is_minority = records
        minority = np.sort(log_odds[is_minority])
        return -np.abs(np.searchsorted(minority, CANDIDATES) - (1 - target) * len(minority))

    change = max(target, 1 - target) if ledger.neighbouring is ADD_REMOVE else 1.0
    return float(CANDIDATES[ledger.choose(nearness, change, epsilon=epsilon)])


class ThresholdMixin:
    """What a classifier's parameters from `objective` to `target_recall` say about where it decides.

    Subclasses have `_log_odds`, the log-odds (n,) of the minority for records X (n, d), n at least 1, and
    `_threshold_epsilon`, the part of epsilon that the threshold costs.
    """

    def _check_threshold(self, classes, objectives):
        check_choice("objective", self.objective, objectives)
        check_real("threshold_share", self.threshold_share, low=0, high=1, inclusive="neither")
        check_real("expected_auc", self.expected_auc, low=0.5, high=1, inclusive="low")
        check_real("target_recall", self.target_recall, low=0, high=1, inclusive="neither")
        if self.objective == "expected_cost" or self.mistake_costs is not None:
            check_mistake_costs(self.mistake_costs, classes, low=0, inclusive="neither")

    def _threshold_log_odds(self, ledger, prevalence) -> float:
        """Log-odds to decide at, from the noisy prevalence or, for "recall", an answer of the ledger of X and y."""
        match self.objective:
            case "balanced_accuracy":
                probability = prevalence
            case "f1":
                probability = f1_threshold(prevalence, self.expected_auc)
            case "expected_cost":
                probability = cost_threshold(*(self.mistake_costs[label] for label in self.classes_.tolist()))
            case "recall":

                def scored(records):
                    X, y = records
                    log_odds = self._log_odds(X) if len(X) else np.empty(0)  # no classifier takes an empty table
                    return log_odds, y == self.classes_[1]

                return recall_threshold(ledger.view(scored), self.target_recall, self._threshold_epsilon())
        return float(logit(probability))

    def _threshold_assumptions(self) -> tuple[str, ...]:
        return {"expected_cost": ("costs of mistakes public",), "f1": ("expected AUC public",)}.get(self.objective, ())


class ThresholdClassifier(PrivateMixin, ThresholdMixin, ModelPredictions, ClassifierMixin, BaseEstimator):
    """A private classifier whose scores decide at a threshold that is private too, within one budget.

    The learner gets the budget less `threshold_share` of it, the rest buys one noisy number about the labels. All
    objectives but "recall" take the learner's scores for the log-odds of the minority among the records that it saw: a
    logistic model without class weights, or a soft vote of such. Weights in the learner are refused there.

    Parameters
    ----------
    estimator : classifier
        With a parameter `epsilon`, `predict_proba` or `decision_function`, and a `guarantee_` after fitting, of either
        neighbouring relation, which becomes that of the whole. Its `epsilon` is set from here, and so are `classes` and
        `random_state` where it has them.
    epsilon : float
        Total budget, > 0.
    objective : {"balanced_accuracy", "expected_cost", "f1", "recall"}
        What the threshold is best for. "balanced_accuracy": the noisy prevalence, which would be exact without noise
        for calibrated scores (Notes). "expected_cost": `cost_threshold` of public costs, exact for calibrated scores;
        nothing is counted, and the learner gets the whole budget. "f1": `f1_threshold`, an approximation even then.
        "recall": `recall_threshold`, a private quantile of the minority's scores on the records of the fit, which needs
        no calibration, but recall on new records is lower where the learner overfits.
    threshold_share : float
        Part of `epsilon` for the threshold, in (0, 1). Public, like all parameters.
    mistake_costs : dict, optional
        Price, > 0, of a mistake on a record of each label, for "expected_cost".
    expected_auc : float
        For "f1": how well the learner is expected to rank, in [0.5, 1). A guess from outside the data.
    target_recall : float
        For "recall", in (0, 1).
    classes : sequence of two labels
        Public; the larger one is the minority.
    random_state : None or int
        None, except to reproduce a result: whoever can guess an integer knows the noise, and it must not serve two
        releases on related data (`PrivateMixin`).

    Attributes
    ----------
    estimator_ : fitted learner
    threshold_ : float
        In the units of the scores that decide: a probability where the learner gives one, else log-odds. The second
        class is predicted from it on.
    prevalence_ : float or None
        The noisy one that the threshold comes from, for "balanced_accuracy" and "f1".
    guarantee_ : helpers.privacy.Guarantee
        Of all of these together; `estimator_.guarantee_` is its part.
    classes_ : ndarray (2,); n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range; a learner without a guarantee, with a larger one than its budget, with
        class weights where log-odds are needed, or that fails on made-up records; labels outside `classes`.

    Notes
    -----
    Why the prevalence q is best for balanced accuracy: P(yes | 1) - P(yes | 0) is the mean of p/q - (1 - p)/(1 - q)
    over the records that are called "yes", p being their probability of the minority, and every record for which that
    is positive, p > q, adds to it.

    A class without a record is no error, since it would tell something about the labels. Under add/remove the learner
    also gets two made-up records, the origin once with each label, so that no record at all is no error either.

    Proof: in the literature (composition, quantiles), given that of the learner; the sensitivity of the quantile's
    score is proved in `recall_threshold`.

    Source: basic composition (Dwork and Roth 2014, Theorem 3.16); for the thresholds, their functions.

    >>> from helpers.erm import ObjectivePerturbationClassifier
    >>> X, y = np.linspace(-1, 1, 1000)[:, None], np.repeat([0, 1], [980, 20])
    >>> model = ThresholdClassifier(ObjectivePerturbationClassifier(), epsilon=10.0, random_state=0).fit(X, y)
    >>> round(model.threshold_, 2), str(model.guarantee_)
    (0.02, '(10, 0)-DP, replace-one')
    """

    def __init__(
        self,
        estimator,
        epsilon=1.0,
        objective="balanced_accuracy",
        threshold_share=0.1,
        mistake_costs=None,
        expected_auc=0.8,
        target_recall=0.9,
        classes=(0, 1),
        random_state=None,
    ):
        self.estimator = estimator
        self.epsilon = epsilon
        self.objective = objective
        self.threshold_share = threshold_share
        self.mistake_costs = mistake_costs
        self.expected_auc = expected_auc
        self.target_recall = target_recall
        self.classes = classes
        self.random_state = random_state

    def fit(self, X, y):
        """Fit to X (n, d) and labels y (n,); returns self."""
        classes = self._check_parameters()
        X, y = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=0)
        label_codes(y, classes)
        planned = self._planned(len(X), X.shape[1], classes)
        self._learn(Ledger((X, y), planned.neighbouring, self._noise_generator(X, y)), planned)
        return self

    def _learn(self, ledger, planned):
        """Set what is fitted, from a private fit that guarantees what was planned and at most one answer more."""
        self.classes_, learner = np.unique(self.classes), self._learner(child_state(self.random_state, ledger.rng))
        replaced = ledger.neighbouring is REPLACE_ONE
        ledger.assume(*(("number of records public",) if replaced else ()), "set of labels public")

        def fit(records):
            return fit_learner(learner, *(records if replaced else with_origin(*records, self.classes_)))

        self.estimator_ = ledger.fitted(fit, planned)
        self.prevalence_, spent = None, self._threshold_epsilon()
        if self.objective in ("balanced_accuracy", "f1"):

            def sizes(records):
                return np.bincount(records[1] == self.classes_[1], minlength=2)

            counts = np.maximum(ledger.class_counts(sizes, 2, spent), 1.0)
            self.prevalence_ = float(counts[1] / counts.sum())
        log_odds = self._threshold_log_odds(ledger, self.prevalence_)
        self.threshold_ = float(expit(log_odds)) if self._uses_probabilities() else log_odds
        self.guarantee_ = ledger.guarantee(
            planned.epsilon + spent,
            planned.delta,
            source=f"{planned.source}, and {_SOURCES[self.objective]}",
            assumes=self._threshold_assumptions(),
        )

    def predict(self, X):
        """Labels (n,): the second class where the score is at least `threshold_`."""
        X = self._seen(X)
        scores = self.estimator_.predict_proba(X)[:, 1] if self._uses_probabilities() else self._log_odds(X)
        return self.classes_[(scores >= self.threshold_).astype(int)]

    def _model(self):
        return getattr(self, "estimator_", self.estimator)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_parameters(self) -> np.ndarray:
        check_random_state(self.random_state)
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        classes = check_classes(self.classes, 2)
        self._check_threshold(classes, OBJECTIVES)
        check_learner(self.estimator, "epsilon")
        if not any(hasattr(self.estimator, name) for name in _RESPONSES):
            raise ValueError(f"estimator must have {' or '.join(_RESPONSES)}, got {self.estimator!r}")
        weights = {n: v for n, v in self.estimator.get_params().items() if n.split("__")[-1] == "class_weight"}
        if self.objective != "recall" and any(value is not None for value in weights.values()):
            raise ValueError(f"estimator must be without class weights for objective {self.objective!r}, got {weights}")
        return classes

    def _threshold_epsilon(self) -> float:
        return 0.0 if self.objective == "expected_cost" else self.threshold_share * self.epsilon

    def _learner(self, random_state):
        epsilon = self.epsilon - self._threshold_epsilon()
        return new_learner(self.estimator, epsilon=epsilon, classes=tuple(self.classes), random_state=random_state)

    def _planned(self, n_rows, n_features, classes) -> Guarantee:
        """The learner's guarantee, found without looking at a record, nor at how many there are under add/remove."""

        def at(size):
            return planned_guarantee(lambda: self._learner(None), size, n_features, classes)

        try:
            planned = at(len(classes))
        except ValueError:
            if n_rows == 0:
                raise
            planned = None  # too few for this learner, perhaps
        if planned is None or planned.neighbouring is REPLACE_ONE:
            if n_rows == 0:
                raise ValueError("X must have at least one record under replace-one, got 0 sample(s)")
            planned = at(n_rows)
            if planned.neighbouring is ADD_REMOVE:
                raise ValueError(
                    f"estimator must take any number of records under add/remove-one, got {self.estimator!r}"
                )
        epsilon = self.epsilon - self._threshold_epsilon()
        if planned.epsilon > epsilon * (1 + 1e-9):
            raise ValueError(f"estimator must keep its epsilon, {epsilon:g}, got {planned}")
        return planned

    def _uses_probabilities(self) -> bool:
        return hasattr(self.estimator_, "predict_proba")

    def _log_odds(self, X) -> np.ndarray:
        if self._uses_probabilities():
            return logit(self.estimator_.predict_proba(X)[:, 1])
        return self.estimator_.decision_function(X)
