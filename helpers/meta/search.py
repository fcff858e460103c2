"""Private choice of a learner's parameters, the trials included in the bill.

Trying several parameters on private data and keeping the best tells something about the data even if every trial is
private. `PartitionedSearch` gives every candidate records of its own and draws the winner from noisy mistakes (the
classic procedure); `RepeatedSearch` tries candidates at random, a random and secret number of times, and pays for
three trials however many there were. Both promise their whole `epsilon` for the chosen parameters and coefficients.
"""

import math

import numpy as np
from scipy.optimize import brentq
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import ParameterGrid

from helpers.checks import check_choice, check_classes, check_real, label_codes, validate_records
from helpers.meta.learners import (
    check_learner,
    check_mistake_costs,
    fit_learner,
    new_learner,
    part_of,
    planned_guarantee,
    restate,
)
from helpers.predictions import ModelPredictions
from helpers.privacy import (
    EXACT_REALS,
    RELATION_NAMES,
    REPLACE_ONE,
    Guarantee,
    Ledger,
    PrivateMixin,
    check_random_state,
    child_state,
)

_MOST_TRIALS = 1e9
REPEATS = {"geometric": 1.0, "logarithmic": 0.0}  # law of the number of trials: shape of the negative binomial


def selection_epsilon(epsilon, shape=1.0) -> float:
    """Epsilon of the best of a random number of runs of an epsilon-DP mechanism, runs and scores not chosen published.

    Parameters
    ----------
    epsilon : float
        Of one run, which includes its score, at least 0.
    shape : float
        Of the truncated negative binomial law of the number of runs, at least 0: 1 is geometric, 0 logarithmic. Its
        mean does not enter.

    Source: Papernot and Steinke 2022, Theorem 2 at order infinity; shape 1: Liu and Talwar 2019, Theorem 3.2.

    >>> selection_epsilon(0.5), selection_epsilon(0.5, shape=0.0)
    (1.5, 1.0)
    """
    return (2 + check_real("shape", shape, low=0)) * check_real("epsilon", epsilon, low=0)


def draw_repeats(rng, mean, law="geometric") -> int:
    """A number of trials, at least 1, of the given mean in [1, 1e9], by a law that `REPEATS` names.

    >>> draw_repeats(np.random.default_rng(0), 1.0)
    1
    """
    mean = check_real("mean", mean, low=1, high=_MOST_TRIALS)
    if mean < 1 + 1e-9:
        return 1
    if check_choice("law", law, tuple(REPEATS)) == "geometric":
        return int(rng.geometric(1 / mean))
    # Logarithmic law: mean = p / ((p - 1) log(1 - p)), as a function of t = -log(1 - p).
    t = brentq(lambda t: math.expm1(t) / t - mean, 1e-12, 2 * math.log(mean) + 5)
    return int(rng.logseries(-math.expm1(-t)))


class _PrivateSearch(PrivateMixin, ModelPredictions, ClassifierMixin, BaseEstimator):
    """What both searches share: the grid, the learners, the score. Not for use by itself."""

    def fit(self, X, y):
        """Fit to X (n, d) and labels y (n,); returns self."""
        grid = self._check_parameters()
        X, y = validate_records(self, X, y, dtype=np.float64)
        self.classes_ = np.unique(self.classes)
        label_codes(y, self.classes_)
        sizes = self._sizes(len(X), len(grid))
        planned = [self._planned(setting, size, X.shape[1]) for setting, size in zip(grid, sizes, strict=True)]
        self._learn(Ledger((X, y), REPLACE_ONE, self._noise_generator(X, y)), grid, planned)
        restate(self.best_estimator_, self.guarantee_)  # its own does not count that it was selected
        return self

    def _learn(self, ledger, grid, planned):
        """Set what is fitted; `planned` is what each setting of the grid guarantees."""
        ledger.assume("candidates public", "set of labels public")
        if self.mistake_costs is not None:
            ledger.assume("costs of mistakes public")
        # The choice depends on all candidates, so it needs what any of them assumes.
        ledger.assume(*(item for guarantee in planned for item in guarantee.assumes))
        self.best_params_, self.best_estimator_ = self._search(ledger, grid, planned)
        self.guarantee_ = ledger.guarantee(self.epsilon, 0.0, source=self._source)

    def _model(self):
        return getattr(self, "best_estimator_", self.estimator)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = np.size(self.classes) > 2
        return tags

    def _check_parameters(self) -> list[dict]:
        check_random_state(self.random_state)
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_real("held_out", self.held_out, low=0, high=1, inclusive="neither")
        classes = check_classes(self.classes)
        if self.mistake_costs is not None:
            check_mistake_costs(self.mistake_costs, classes, low=0, high=1)
        check_learner(self.estimator, "epsilon", "random_state")
        try:
            grid = list(ParameterGrid(self.param_grid))
        except TypeError as error:
            raise ValueError(
                f"param_grid must be a dict of lists, or a list of such, got {self.param_grid!r}"
            ) from error
        if not grid or any({"epsilon", "random_state"} & set(setting) for setting in grid):
            raise ValueError(
                f"param_grid must hold settings other than epsilon and random_state, got {self.param_grid!r}"
            )
        for setting in grid:
            self._learner(setting, None)  # scikit-learn names parameters that there are not
        return grid

    def _learner(self, setting, random_state):
        learner = new_learner(self.estimator, epsilon=self._trial_epsilon()).set_params(**setting)
        return learner.set_params(random_state=random_state)

    def _planned(self, setting, n_rows, n_features) -> Guarantee:
        """The guarantee of one candidate's trial, from made-up records, or a refusal."""
        found = planned_guarantee(lambda: self._learner(setting, None), n_rows, n_features, self.classes_)
        epsilon = self._trial_epsilon()
        if found.delta > 0 or found.epsilon > epsilon * (1 + 1e-9):
            raise ValueError(f"estimator must be {epsilon:g}-DP with delta 0, got {found} from {setting!r}")
        if found.neighbouring is not REPLACE_ONE:
            raise ValueError(
                f"estimator must be private under {RELATION_NAMES[REPLACE_ONE]}, got {found} from {setting!r}"
            )
        return found

    def _fitted(self, ledger, setting, guarantee):
        """A learner of one setting, fitted to the ledger's records with noise of its own."""
        learner = self._learner(setting, child_state(self.random_state, ledger.rng))
        return ledger.fitted(lambda records: fit_learner(learner, *records), guarantee)

    def _mistakes(self, learner, records) -> float:
        """Sum of the costs of the records that the learner gets wrong."""
        X, y = records
        wrong = learner.predict(X) != y
        if self.mistake_costs is None:
            return float(wrong.sum())
        return float(sum(cost * np.sum(wrong & (y == label)) for label, cost in self.mistake_costs.items()))

    def _largest_cost(self) -> float:
        """Sensitivity of the mistakes: the record that changes is right before and wrong after, or wrong at two
        prices."""
        largest = 1.0 if self.mistake_costs is None else max(self.mistake_costs.values())
        return largest or 1.0


class PartitionedSearch(_PrivateSearch):
    """Choice among candidates by the exponential mechanism on the mistakes that each makes on records held out.

    A replaced record is either one that candidates learned from or one that they are judged by. So the total is the
    larger of what learning costs and what judging costs, not the sum, and both are given the whole of `epsilon`.

    Parameters
    ----------
    estimator : estimator
        With parameters `epsilon` and `random_state`, which are set from here, pure differential privacy under
        replace-one in `guarantee_`, and labels `classes`.
    param_grid : dict or list of dicts
        Candidates as in `sklearn.model_selection.ParameterGrid`, m in all. Public: chosen without the data.
    epsilon : float
        Total budget, > 0.
    parts : {"disjoint", "shared"}
        "disjoint": the records are cut into m + 1 equal parts at random, the last is held out, and every candidate has
        a part and the whole of `epsilon`. "shared": every candidate learns on all that is not held out, with
        epsilon/m.
    held_out : float
        Share of the records to judge by with "shared" parts, in (0, 1).
    mistake_costs : dict, optional
        Public price in [0, 1] of a mistake on a record of each label; 1 for all if left out.
    classes : sequence of labels
        Public.
    random_state : None or int
        Of the split, the learners' noise and the choice. None, except to reproduce a result: whoever can guess an
        integer knows all three, and it must not serve two releases on related data (`PrivateMixin`).

    Attributes
    ----------
    best_estimator_ : estimator; best_params_ : dict
    classes_ : ndarray (K,); n_features_in_ : int
    guarantee_ : helpers.privacy.Guarantee
        Of the chosen coefficients and `best_params_`, and of all the other candidates had they been kept.
        `best_estimator_` carries the same one. Replace-one only: a record more would shift the borders of the parts.

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range, a learner that is not private as needed or fails on made-up records (all
        before it sees a private one), labels outside `classes`, fewer records than parts.

    Proof: in the literature.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 4 and Theorem 8 ("disjoint").

    >>> from helpers.erm import ObjectivePerturbationClassifier
    >>> X, y = np.linspace(-1, 1, 400)[:, None], np.repeat([0, 1], 200)
    >>> search = PartitionedSearch(ObjectivePerturbationClassifier(), {"regularization": [0.01, 1.0]}, random_state=0)
    >>> print(search.fit(X, y).guarantee_)
    (1, 0)-DP, replace-one
    """

    _source = "Chaudhuri, Monteleoni and Sarwate 2011, Theorem 8"

    def __init__(
        self,
        estimator,
        param_grid,
        epsilon=1.0,
        parts="disjoint",
        held_out=0.2,
        mistake_costs=None,
        classes=(0, 1),
        random_state=None,
    ):
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.parts = parts
        self.held_out = held_out
        self.mistake_costs = mistake_costs
        self.classes = classes
        self.random_state = random_state

    def _check_parameters(self):
        check_choice("parts", self.parts, ("disjoint", "shared"))
        return super()._check_parameters()

    def _sizes(self, n_rows, n_candidates) -> list[int]:
        needed = n_candidates + 1 if self.parts == "disjoint" else 2
        if n_rows < needed:
            raise ValueError(f"X must have at least {needed} records, one for each part, got {n_rows} sample(s)")
        if self.parts == "disjoint":
            return [len(part) for part in np.array_split(np.arange(n_rows), needed)[:-1]]
        return [n_rows - _n_held_out(n_rows, self.held_out)] * n_candidates

    def _trial_epsilon(self):
        return self.epsilon if self.parts == "disjoint" else self.epsilon / len(ParameterGrid(self.param_grid))

    def _search(self, ledger, grid, planned):
        n = ledger.n_records()
        order = ledger.rng.permutation(n)
        if self.parts == "disjoint":
            cut = np.array_split(order, len(grid) + 1)
        else:
            judges, rest = np.split(order, [_n_held_out(n, self.held_out)])
            cut = [rest, judges]
        *learning, judging = ledger.parts([part_of(rows) for rows in cut])
        if self.parts == "shared":
            learning *= len(grid)
        learners = [self._fitted(*trial) for trial in zip(learning, grid, planned, strict=True)]

        def scores(records):
            return np.array([-self._mistakes(learner, records) for learner in learners])

        best = judging.choose(scores, self._largest_cost(), epsilon=self.epsilon)
        return grid[best], learners[best]


class RepeatedSearch(_PrivateSearch):
    """Best of a random number of trials of randomly drawn candidates, judged by noisy mistakes on records held out.

    One trial draws a candidate, fits it with a third of `epsilon` ("logarithmic": half) to the records not held out,
    and adds Laplace noise of the same budget to its mistakes on those held out. A record is in one of the two parts, so
    the trial is private at that budget. The best of a random number of trials costs three times as much ("logarithmic":
    twice), whatever the number of candidates and trials.

    Parameters
    ----------
    estimator, param_grid, epsilon, held_out, mistake_costs, classes, random_state
        As in `PartitionedSearch`.
    trials : float
        Mean number of trials, in [1, 1e9]. It does not enter the budget, only the running time. None: three for each
        candidate.
    law : {"geometric", "logarithmic"}
        Of the number of trials. The logarithmic law gives a trial more budget, but has most of its mass on few trials.

    Attributes
    ----------
    best_estimator_ : estimator; best_params_ : dict
    classes_ : ndarray (K,); n_features_in_ : int
    guarantee_ : helpers.privacy.Guarantee
        Of the chosen coefficients and `best_params_`; `best_estimator_` carries the same one. The number of trials must
        stay secret, and so must the running time, which tells it: given K = k, the loss can be k times that of a trial.
        The other trials, the scores and the split are not kept.

    Raises
    ------
    ValueError
        As in `PartitionedSearch`.

    Proof: in the literature.

    Source: Liu and Talwar 2019; Papernot and Steinke 2022.

    >>> from helpers.erm import ObjectivePerturbationClassifier
    >>> X, y = np.linspace(-1, 1, 400)[:, None], np.repeat([0, 1], 200)
    >>> search = RepeatedSearch(ObjectivePerturbationClassifier(), {"regularization": [0.01, 1.0]}, random_state=0)
    >>> print(search.fit(X, y).guarantee_)
    (1, 0)-DP, replace-one
    """

    _source = "Papernot and Steinke 2022, Theorem 2"

    def __init__(
        self,
        estimator,
        param_grid,
        epsilon=1.0,
        trials=None,
        law="geometric",
        held_out=0.2,
        mistake_costs=None,
        classes=(0, 1),
        random_state=None,
    ):
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.trials = trials
        self.law = law
        self.held_out = held_out
        self.mistake_costs = mistake_costs
        self.classes = classes
        self.random_state = random_state

    def _check_parameters(self):
        check_choice("law", self.law, tuple(REPEATS))
        if self.trials is not None:
            check_real("trials", self.trials, low=1, high=_MOST_TRIALS)
        return super()._check_parameters()

    def _sizes(self, n_rows, n_candidates) -> list[int]:
        if n_rows < 2:
            raise ValueError(f"X must have at least 2 records, one for each part, got {n_rows} sample(s)")
        return [n_rows - _n_held_out(n_rows, self.held_out)] * n_candidates

    def _trial_epsilon(self):
        return self.epsilon / selection_epsilon(1.0, REPEATS[self.law])

    def _search(self, ledger, grid, planned):
        n, rng = ledger.n_records(), ledger.rng
        judges, rest = np.split(rng.permutation(n), [_n_held_out(n, self.held_out)])
        n_trials = draw_repeats(rng, 3.0 * len(grid) if self.trials is None else float(self.trials), self.law)
        budget = self._trial_epsilon()

        def tried(records):
            """Noisy score, setting and learner of one trial, which has a bill of its own."""
            trial, at = Ledger(records, ledger.neighbouring, rng), rng.integers(len(grid))
            learning, judging = trial.parts([part_of(rest), part_of(judges)])
            learner = self._fitted(learning, grid[at], planned[at])
            # Real noise, although mistakes are integers: scores must not tie, and only their order shows.
            score = judging.laplace(lambda held: -self._mistakes(learner, held), self._largest_cost(), budget)
            trial.guarantee(budget, 0.0, source="larger of what learning and judging cost")
            return score, grid[at], learner

        def best_of_trials(records):
            return max((tried(records) for _ in range(n_trials)), key=lambda trial: trial[0])[1:]

        ledger.assume("number of trials and running time secret", EXACT_REALS)
        total = selection_epsilon(budget, REPEATS[self.law])
        return ledger.fitted(best_of_trials, Guarantee(total, 0.0, ledger.neighbouring, source=self._source))


def _n_held_out(n_rows, share) -> int:
    return min(max(round(share * n_rows), 1), n_rows - 1)
