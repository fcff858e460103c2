"""A private decision threshold for any private scorer: what to do about imbalance without touching the records.

A model without class weights knows how likely the minority is, and only its threshold 1/2 serves the wrong purpose. One
noisy count of the minority, a tenth of the budget by default, moves the threshold to where the purpose wants it. How
well the scores are calibrated decides about the result, and nothing here improves a ranking.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr, ndtri

from helpers.meta.learners import Records, Wrapper, fit_learner, new_learner, planned_guarantee, with_origin
from helpers.predictions import ModelPredictions
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Guarantee, Ledger, child_state
from helpers.validation import check_real, choice, real

_SOURCES = {
    "balanced_accuracy": "the noisy prevalence as threshold",
    "f1": "a threshold from the noisy prevalence",
    "recall": "a private quantile of the minority's scores (Smith 2011)",
}
_EXPECTED_AUC = 0.8  # for "f1"; a wrong guess costs little
# Log-odds that a threshold for a target recall is chosen from; more of them would cost nothing.
CANDIDATES = np.linspace(-10.0, 10.0, 20_001)


def f1_threshold(prevalence: float, expected_auc: float) -> float:
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
    # Two normal laws of variance 1 whose means are this far apart have the AUC Phi(distance / sqrt 2).
    distance = math.sqrt(2) * ndtri(check_real("expected_auc", expected_auc, low=0.5, high=1, inclusive="low"))
    cut = np.linspace(-distance / 2 - 8, distance / 2 + 8, 4001)
    hits = prevalence * ndtr(distance / 2 - cut)
    alarms = (1 - prevalence) * ndtr(-distance / 2 - cut)
    # F1 is twice this; its largest value over cut-offs, halved, is the threshold.
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

    def nearness(records: Records) -> NDArray:
        log_odds, is_minority = records
        minority = np.sort(log_odds[is_minority])
        # Minus the distance of ranks: number of minority records below each candidate, less the number wanted there.
        return -np.abs(np.searchsorted(minority, CANDIDATES) - (1 - target) * len(minority))

    # A replaced record can be two changes of opposite sign: target + (1 - target).
    change = max(target, 1 - target) if ledger.neighbouring is ADD_REMOVE else 1.0
    return float(CANDIDATES[ledger.choose(nearness, change, epsilon=epsilon)])


@dataclass(eq=False, repr=False)
class ThresholdClassifier(ModelPredictions, Wrapper):
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
    objective : {"balanced_accuracy", "f1", "recall"}
        What the threshold is best for. "balanced_accuracy": the noisy prevalence, which would be exact without noise
        for calibrated scores (Notes). "f1": `f1_threshold` for a learner whose AUC is 0.8, an approximation even then.
        "recall": `recall_threshold`, a private quantile of the minority's scores on the records of the fit, which needs
        no calibration, but recall on new records is lower where the learner overfits.
    threshold_share : float
        Part of `epsilon` for the threshold, in (0, 1). Public, like all parameters. A rank among few records needs
        more than a count: for "recall", 0.3 did best on development sets (`benchmarks/defaults.py`).
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
        The noisy one that the threshold comes from; None for "recall".
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

    _allowed: ClassVar[dict] = {
        "objective": choice(*_SOURCES),
        "threshold_share": real(low=0, high=1, inclusive="neither"),
        "target_recall": real(low=0, high=1, inclusive="neither"),
    }

    epsilon: float = 1.0
    objective: str = "balanced_accuracy"
    threshold_share: float = 0.1
    target_recall: float = 0.9

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not any(hasattr(self.estimator, name) for name in ("predict_proba", "decision_function")):
            raise ValueError(f"estimator must have predict_proba or decision_function, got {self.estimator!r}")
        weights = {n: v for n, v in self.estimator.get_params().items() if n.split("__")[-1] == "class_weight"}
        if self.objective != "recall" and any(value is not None for value in weights.values()):
            raise ValueError(f"estimator must be without class weights for objective {self.objective!r}, got {weights}")

    def _planned(self, X: NDArray, y: NDArray) -> tuple[NeighboringRelation, Guarantee]:
        """The learner's guarantee, found without looking at a record, nor at how many there are under add/remove."""

        def at(size: int) -> Guarantee:
            return planned_guarantee(lambda: self._learner(None), size, self.n_features_in_, self.classes_)

        try:
            # With the made-up records alone, which an add/remove learner always has: its guarantee must not depend on
            # their private number.
            planned = at(len(self.classes_))
        except ValueError:  # too few for this learner, perhaps
            planned = None
        if planned is None or planned.neighbouring is REPLACE_ONE:
            if not len(X):
                raise ValueError("X must have at least one record under replace-one, got 0 sample(s)")
            planned = at(len(X))
            if planned.neighbouring is ADD_REMOVE:
                raise ValueError(
                    f"estimator must take any number of records under add/remove-one, got {self.estimator}"
                )
        epsilon = self._learner(None).epsilon
        if planned.epsilon > epsilon * (1 + 1e-9):
            raise ValueError(f"estimator must keep its epsilon, {epsilon:g}, got {planned}")
        return planned.neighbouring, planned

    def _learner(self, random_state: int | None) -> Any:
        epsilon = self.epsilon - self.threshold_share * self.epsilon
        return new_learner(self.estimator, epsilon=epsilon, classes=tuple(self.classes), random_state=random_state)

    def _learn(self, ledger: Ledger, planned: Guarantee) -> None:
        """Set what is fitted, from a private fit that guarantees what was planned and one answer more."""
        learner, spent = self._learner(child_state(self.random_state, ledger.rng)), self.threshold_share * self.epsilon
        replaced = ledger.neighbouring is REPLACE_ONE
        ledger.assume(*(("number of records public",) if replaced else ()), "set of labels public")

        def fit(records: Records) -> Any:
            return fit_learner(learner, *(records if replaced else with_origin(*records, self.classes_)))

        def sizes(records: Records) -> NDArray:
            return np.bincount(records[1] == self.classes_[1], minlength=2)

        def scored(records: Records) -> Records:
            X, y = records
            log_odds = self._log_odds(X) if len(X) else np.empty(0)  # no classifier takes an empty table
            return log_odds, y == self.classes_[1]

        self.estimator_ = ledger.fitted(fit, planned)
        if self.objective == "recall":
            self.prevalence_, log_odds = None, recall_threshold(ledger.view(scored), self.target_recall, spent)
        else:
            # Noise can make a count 0 or negative, of which there is no prevalence.
            counts = np.maximum(ledger.class_counts(sizes, 2, spent), 1.0)
            self.prevalence_ = float(counts[1] / counts.sum())
            by_f1 = self.objective == "f1"
            log_odds = float(logit(f1_threshold(self.prevalence_, _EXPECTED_AUC) if by_f1 else self.prevalence_))
        self.threshold_ = float(expit(log_odds)) if self._uses_probabilities() else log_odds
        source = f"{planned.source}, and {_SOURCES[self.objective]}"
        self.guarantee_ = ledger.guarantee(planned.epsilon + spent, planned.delta, source=source)

    def predict(self, X: ArrayLike) -> NDArray:
        """Labels (n,): the second class where the score is at least `threshold_`."""
        rows = self._seen(X)
        scores = self.estimator_.predict_proba(rows)[:, 1] if self._uses_probabilities() else self._log_odds(rows)
        return self.classes_[(scores >= self.threshold_).astype(int)]

    def _uses_probabilities(self) -> bool:
        return hasattr(self.estimator_, "predict_proba")

    def _log_odds(self, X: NDArray) -> NDArray:
        if self._uses_probabilities():
            return logit(self.estimator_.predict_proba(X)[:, 1])
        return self.estimator_.decision_function(X)
