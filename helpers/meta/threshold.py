"""A private decision threshold for any private scorer: what to do about imbalance without touching the records.

A model without class weights knows how likely the minority is, and only its threshold 1/2 serves the wrong purpose. One
noisy count of the minority, a tenth of the budget by default, moves the threshold to where the purpose wants it. How
well the scores are calibrated decides about the result, and nothing here improves a ranking.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri
from sklearn.model_selection._classification_threshold import BaseThresholdClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _estimator_has, check_is_fitted, validate_data

from helpers.checks import check_choice, check_classes, check_real, label_codes, validate_records
from helpers.meta.learners import check_learner, fit_learner, new_learner, planned_guarantee, with_origin
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    Guarantee,
    PrivateMixin,
    Release,
    Sensitivity,
    check_random_state,
    child_state,
    class_priors,
    compose,
    exponential,
    noise_assumptions,
)

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


def check_mistake_costs(mistake_costs, classes) -> None:
    """Refuse what is no dict of positive prices over the labels.

    Raises
    ------
    ValueError
        Other keys than `classes`, or a price that is not above 0.
    """
    if not isinstance(mistake_costs, dict) or set(mistake_costs) != set(classes.tolist()):
        raise ValueError(f"mistake_costs must be a dict over the labels of classes, got {mistake_costs!r}")
    for cost in mistake_costs.values():
        check_real("mistake_costs", cost, low=0, inclusive="neither")


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


def recall_threshold(log_odds, is_minority, target, epsilon, neighbouring, rng) -> Release:
    """One of `CANDIDATES` at or above which about a share `target` of the minority's `log_odds` lie: pure epsilon-DP.

    The exponential mechanism, with minus the distance between the number of minority records below and 1 - target of
    all minority records. A minority record adds `target` or target - 1 to their difference, a majority record nothing,
    so one more record moves it by at most max(target, 1 - target), and another record by at most 1. Nothing is assumed
    about the scores. With probability 1 - beta the distance exceeds that of the best candidate by at most
    (2/epsilon) log(20,001/beta) records. Without minority records every candidate is as likely.

    Parameters
    ----------
    log_odds, is_minority : array (n,)
        Private; the scores from something that is private itself.
    target, epsilon : float
        In (0, 1), and above 0.
    neighbouring : NeighboringRelation
    rng : numpy.random.Generator

    Source: Smith 2011 (quantiles by the exponential mechanism), on a grid, for one class.

    >>> scores, minority = np.linspace(-4, 4, 8001), np.arange(8001) >= 4000
    >>> release = recall_threshold(scores, minority, 0.75, 1.0, REPLACE_ONE, np.random.default_rng(0))
    >>> round(release.value, 1), str(release.guarantee)
    (1.0, '(1, 0)-DP, replace-one')
    """
    target = check_real("target", target, low=0, high=1, inclusive="neither")
    minority = np.sort(np.asarray(log_odds)[np.asarray(is_minority, dtype=bool)])
    below = np.searchsorted(minority, CANDIDATES)
    change = max(target, 1 - target) if neighbouring is ADD_REMOVE else 1.0
    distance = np.abs(below - (1 - target) * len(minority))
    choice = exponential(-distance, Sensitivity(change, neighbouring, "linf"), epsilon, rng)
    return Release(float(CANDIDATES[choice.value]), choice.guarantee)


class ThresholdClassifier(PrivateMixin, BaseThresholdClassifier):
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
    response_method : {"auto", "predict_proba", "decision_function"}
        Which scores decide. "auto": probabilities where the learner has them.
    random_state : None or int
        None, except to reproduce a result: whoever can guess an integer knows the noise, and it must not serve two
        releases on related data (`PrivateMixin`).

    Attributes
    ----------
    estimator_ : fitted learner
    threshold_ : float
        In the units of the scores that decide: a probability or log-odds. The second class is predicted from it on.
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
        response_method="auto",
        random_state=None,
    ):
        super().__init__(estimator, response_method=response_method)
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
        rng = self._noise_generator(X, y)
        records = (X, y) if planned.neighbouring is REPLACE_ONE else with_origin(X, y, classes)
        self.estimator_ = fit_learner(self._learner(child_state(self.random_state, rng)), *records)
        log_odds, self.prevalence_, spent = self._find_threshold(X, y == classes[1], planned.neighbouring, rng)
        self.threshold_ = float(expit(log_odds)) if self._uses_probabilities() else log_odds
        whole = compose([planned, *spent])
        assumes = (*whole.assumes, *self._assumptions(planned.neighbouring), *noise_assumptions(rng))
        source = f"{planned.source}, and {_SOURCES[self.objective]}"
        self.guarantee_ = replace(whole, assumes=tuple(dict.fromkeys(assumes)), source=source)
        return self

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X):
        """Class probabilities (n, 2) of the learner; they know nothing of the threshold."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(validate_data(self, X, dtype=np.float64, reset=False))

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X):
        """Scores (n,) of the learner; they know nothing of the threshold."""
        check_is_fitted(self)
        return self.estimator_.decision_function(validate_data(self, X, dtype=np.float64, reset=False))

    def predict(self, X):
        """Labels (n,): the second class where the score is at least `threshold_`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = self.estimator_.predict_proba(X)[:, 1] if self._uses_probabilities() else self._log_odds(X)
        return self.classes_[(scores >= self.threshold_).astype(int)]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def _check_parameters(self) -> np.ndarray:
        check_random_state(self.random_state)
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_choice("objective", self.objective, OBJECTIVES)
        check_real("threshold_share", self.threshold_share, low=0, high=1, inclusive="neither")
        check_real("expected_auc", self.expected_auc, low=0.5, high=1, inclusive="low")
        check_real("target_recall", self.target_recall, low=0, high=1, inclusive="neither")
        classes = check_classes(self.classes, 2)
        if self.objective == "expected_cost" or self.mistake_costs is not None:
            check_mistake_costs(self.mistake_costs, classes)
        check_learner(self.estimator, "epsilon")
        check_choice("response_method", self.response_method, ("auto", *_RESPONSES))
        if not any(hasattr(self.estimator, name) for name in self._responses()):
            raise ValueError(f"estimator must have {' or '.join(self._responses())}, got {self.estimator!r}")
        weights = {n: v for n, v in self.estimator.get_params().items() if n.split("__")[-1] == "class_weight"}
        if self.objective != "recall" and any(value is not None for value in weights.values()):
            raise ValueError(f"estimator must be without class weights for objective {self.objective!r}, got {weights}")
        return classes

    def _learner_epsilon(self) -> float:
        return self.epsilon if self.objective == "expected_cost" else self.epsilon - self.threshold_share * self.epsilon

    def _learner(self, random_state):
        values = {"epsilon": self._learner_epsilon(), "classes": tuple(self.classes), "random_state": random_state}
        return new_learner(self.estimator, **values)

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
        if planned.epsilon > self._learner_epsilon() * (1 + 1e-9):
            raise ValueError(f"estimator must keep its epsilon, {self._learner_epsilon():g}, got {planned}")
        return planned

    def _find_threshold(self, X, is_minority, neighbouring, rng) -> tuple[float, float | None, list[Guarantee]]:
        """Log-odds to decide at, the noisy prevalence that they come from, and what was paid."""
        if self.objective == "expected_cost":
            costs = [self.mistake_costs[label] for label in self.classes_.tolist()]
            return float(logit(cost_threshold(*costs))), None, []
        epsilon = self.threshold_share * self.epsilon
        if self.objective == "recall":
            found = recall_threshold(self._log_odds(X), is_minority, self.target_recall, epsilon, neighbouring, rng)
            return found.value, None, [found.guarantee]
        counted = class_priors(is_minority, (False, True), epsilon, neighbouring, rng)
        prevalence = float(counted.value[1])
        share = prevalence if self.objective == "balanced_accuracy" else f1_threshold(prevalence, self.expected_auc)
        return float(logit(share)), prevalence, [counted.guarantee]

    def _assumptions(self, neighbouring) -> tuple[str, ...]:
        size = ("number of records public",) if neighbouring is REPLACE_ONE else ()
        own = {"expected_cost": ("costs of mistakes public",), "f1": ("expected AUC public",)}
        return (*size, "set of labels public", *own.get(self.objective, ()))

    def _responses(self) -> tuple[str, ...]:
        return _RESPONSES if self.response_method == "auto" else (self.response_method,)

    def _uses_probabilities(self) -> bool:
        return "predict_proba" in self._responses() and hasattr(self.estimator_, "predict_proba")

    def _log_odds(self, X) -> np.ndarray:
        if not len(X):
            return np.empty(0)  # no classifier takes an empty table
        if self._uses_probabilities():
            return logit(self.estimator_.predict_proba(X)[:, 1])
        return self.estimator_.decision_function(X)
