"""Private choice of a learner's parameters, the trials included in the bill.

Trying several parameters on private data and keeping the best tells something about the data even if every trial is
private. `PartitionedSearch` gives every candidate records of its own and draws the winner from noisy mistakes (the
classic procedure); `RepeatedSearch` tries candidates at random, a random and secret number of times, and pays for
three trials however many there were. Both promise their whole `epsilon` for the chosen parameters and coefficients.
"""

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import cycle
from typing import Any, ClassVar

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.model_selection import ParameterGrid

from helpers.meta.learners import Records, Wrapper, check_learner, fit_learner, new_learner, planned_guarantee, restate
from helpers.predictions import ModelPredictions
from helpers.privacy import EXACT_REALS, REPLACE_ONE, Guarantee, Ledger, child_state
from helpers.validation import any_value, check_classes, check_real, choice, optional, real

_HELD_OUT = 0.2  # share of the records to judge by, where all candidates learn from the others
_MOST_TRIALS = 1e9
REPEATS = {"geometric": 1.0, "logarithmic": 0.0}  # law of the number of trials: shape of the negative binomial


def selection_epsilon(epsilon: float, shape: float = 1.0) -> float:
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


def draw_repeats(rng: np.random.Generator, mean: float, law: str = "geometric") -> int:
    """A number of trials, at least 1, of the given mean in [1, 1e9], by a law that `REPEATS` names.

    >>> draw_repeats(np.random.default_rng(0), 1.0)
    1
    """
    if mean < 1 + 1e-9:
        return 1
    if law == "geometric":
        return int(rng.geometric(1 / mean))
    # Logarithmic law: mean = p / ((p - 1) log(1 - p)), as a function of t = -log(1 - p).
    # (e^t - 1)/t grows with t and exceeds the mean at the upper end.
    t = brentq(lambda t: math.expm1(t) / t - mean, 1e-12, 2 * math.log(mean) + 5)
    return int(rng.logseries(-math.expm1(-t)))


@dataclass(eq=False, repr=False)
class _PrivateSearch(ModelPredictions, Wrapper):
    """What both searches share: the grid, the learners, the score. Not for use by itself."""

    _allowed: ClassVar[dict] = {
        "estimator": partial(check_learner, needed=("epsilon", "random_state")),
        "param_grid": any_value,
        "mistake_costs": any_value,
        "classes": check_classes,
    }
    _predictor = "best_estimator_"
    _source: ClassVar[str]
    delta = 0.0  # of a search that has no parameter for it

    param_grid: Any
    epsilon: float = 1.0
    _: KW_ONLY
    mistake_costs: dict | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        costs = self._costs()
        if not isinstance(costs, dict) or set(costs) != set(self.classes):
            raise ValueError(f"mistake_costs must be a dict over the labels of classes, got {costs!r}")
        for cost in costs.values():
            check_real("mistake_costs", cost, low=0, high=1)
        if not any(costs.values()):
            raise ValueError(f"mistake_costs must have a cost above 0, got {costs!r}")
        grid = list(ParameterGrid(self.param_grid)) if isinstance(self.param_grid, dict | list | tuple) else []
        if not grid or any({"epsilon", "random_state"} & set(setting) for setting in grid):
            raise ValueError(f"param_grid must hold settings, but not epsilon or random_state, got {self.param_grid!r}")

    def _cut(self, order: NDArray, n_candidates: int) -> list[NDArray]:
        """Rows to learn from, for each candidate its own or the same for all, and last those to judge by."""
        judging, learning = np.split(order, [max(round(_HELD_OUT * len(order)), 1)])
        return [learning, judging]

    @abstractmethod
    def _trial_epsilon(self) -> float:
        """Epsilon that one candidate may spend."""

    def _trial_delta(self) -> float:
        """Delta that one candidate may spend."""
        return self.delta

    def _learner(self, setting: dict, random_state: int | None) -> Any:
        public = {"epsilon": self._trial_epsilon(), "random_state": random_state}
        # With a pure budget a learner's own delta stands, so that one above 0 is refused and not overwritten.
        public |= {"delta": self._trial_delta()} if self.delta > 0 else {}
        return new_learner(self.estimator, **public).set_params(**setting)

    def _planned(self, X: NDArray, y: NDArray) -> tuple[NeighboringRelation, list[tuple[dict, Guarantee]]]:
        """Each setting with what its trial guarantees for made-up records, as many as it gets."""
        grid = list(ParameterGrid(self.param_grid))
        parts = self._cut(np.arange(len(X)), len(grid))
        if not all(map(len, parts)):
            raise ValueError(f"X must have at least {len(parts)} records, one for each part, got {len(X)} sample(s)")
        candidates, epsilon, delta = [], self._trial_epsilon(), self._trial_delta()
        # Disjoint parts are one a candidate; the one shared part comes round for each.
        for setting, rows in zip(grid, cycle(parts[:-1]), strict=False):
            # Only the number of rows is used here, which is public under replace-one.
            make = partial(self._learner, setting, None)
            found = planned_guarantee(make, len(rows), self.n_features_in_, self.classes_, REPLACE_ONE)
            if found.delta > delta * (1 + 1e-9) or found.epsilon > epsilon * (1 + 1e-9):
                raise ValueError(f"estimator must be {epsilon:g}-DP with delta {delta:g}, got {found} from {setting!r}")
            candidates.append((setting, found))
        return REPLACE_ONE, candidates

    def _learn(self, ledger: Ledger, candidates: list[tuple[dict, Guarantee]]) -> None:
        ledger.assume("candidates public", "set of labels public")
        if self.mistake_costs is not None:
            ledger.assume("costs of mistakes public")
        # The choice depends on all candidates, so it needs what any of them assumes.
        ledger.assume(*(item for _, guarantee in candidates for item in guarantee.assumes))
        cut = self._cut(ledger.rng.permutation(ledger.n_records()), len(candidates))
        self.best_params_, self.best_estimator_ = self._search(ledger, candidates, cut)
        self.guarantee_ = ledger.guarantee(self.epsilon, self.delta, source=self._source)
        restate(self.best_estimator_, self.guarantee_)  # its own does not count that it was selected

    @abstractmethod
    def _search(self, ledger: Ledger, candidates: list, cut: list[NDArray]) -> tuple[dict, Any]:
        """The chosen setting and its learner."""

    def _fitted(self, ledger: Ledger, setting: dict, guarantee: Guarantee) -> Any:
        """A learner of one setting, fitted to the ledger's records with noise of its own."""
        learner = self._learner(setting, child_state(self.random_state, ledger.rng))
        return ledger.fitted(lambda records: fit_learner(learner, *records), guarantee)

    def _costs(self) -> dict:
        return dict.fromkeys(self.classes, 1.0) if self.mistake_costs is None else self.mistake_costs

    def _mistakes(self, learner: Any, records: Records) -> float:
        """Sum of the costs of the records that the learner gets wrong."""
        X, y = records
        wrong = learner.predict(X) != y
        return float(sum(cost * np.sum(wrong & (y == label)) for label, cost in self._costs().items()))

    def _largest_cost(self) -> float:
        """Sensitivity of the mistakes: the record that changes is right before and wrong after, or wrong at two
        prices."""
        # Where all costs are 0 nothing moves, and any sensitivity above 0 will do.
        return max(self._costs().values()) or 1.0


def _parts(ledger: Ledger, cut: list[NDArray]) -> list[Ledger]:
    """A ledger of the records in each of these groups of rows, which share none."""
    return ledger.parts([partial(lambda rows, records: (records[0][rows], records[1][rows]), rows) for rows in cut])


@dataclass(eq=False, repr=False)
class PartitionedSearch(_PrivateSearch):
    """Choice among candidates by the exponential mechanism on the mistakes that each makes on records held out.

    A replaced record is either one that candidates learned from or one that they are judged by. So the total is the
    larger of what learning costs and what judging costs, not the sum, and both are given the whole of `epsilon`. The
    judging is purely private, and `delta` is the learners'.

    Parameters
    ----------
    estimator : estimator
        With parameters `epsilon` and `random_state`, and `delta` if the search has one, which are set from here;
        differential privacy of that budget under replace-one in `guarantee_`, and labels `classes`.
    param_grid : dict or list of dicts
        Candidates as in `sklearn.model_selection.ParameterGrid`, m in all. Public: chosen without the data.
    epsilon : float
        Total budget, > 0.
    parts : {"disjoint", "shared"}
        "disjoint": the records are cut into m + 1 equal parts at random, the last is held out, and every candidate has
        a part and the whole of the budget. "shared": a fifth is held out, and every candidate learns on all
        the rest with epsilon/m and delta/m.
    delta : float
        Of the total budget, in [0, 1); 0 for candidates that are purely private.
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

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 4 and Theorem 8 ("disjoint"); with delta, parallel
    composition (McSherry 2009) of learners that are each (epsilon, delta)-DP.

    >>> from helpers.erm import ObjectivePerturbationClassifier
    >>> X, y = np.linspace(-1, 1, 400)[:, None], np.repeat([0, 1], 200)
    >>> search = PartitionedSearch(ObjectivePerturbationClassifier(), {"regularization": [0.01, 1.0]}, random_state=0)
    >>> print(search.fit(X, y).guarantee_)
    (1, 0)-DP, replace-one
    """

    _source = "Chaudhuri, Monteleoni and Sarwate 2011, Theorem 8"

    _allowed: ClassVar[dict] = {
        "parts": choice("disjoint", "shared"),
        "delta": real(low=0, high=1, inclusive="low"),
    }

    parts: str = "disjoint"
    delta: float = 0.0

    def _cut(self, order: NDArray, n_candidates: int) -> list[NDArray]:
        if self.parts == "disjoint":
            return np.array_split(order, n_candidates + 1)
        return super()._cut(order, n_candidates)

    def _trial_epsilon(self) -> float:
        return self.epsilon if self.parts == "disjoint" else self.epsilon / len(ParameterGrid(self.param_grid))

    def _trial_delta(self) -> float:
        return self.delta if self.parts == "disjoint" else self.delta / len(ParameterGrid(self.param_grid))

    def _search(self, ledger: Ledger, candidates: list, cut: list[NDArray]) -> tuple[dict, Any]:
        if self.delta == 0:
            return self._chosen(_parts(ledger, cut), candidates)

        def chosen(records: Records) -> tuple[dict, Any]:
            # The outer ledger counts no delta within parts of the records. So they are billed here, where each is held
            # against the whole budget: the record that is replaced is in one of them.
            parts = _parts(Ledger(records, ledger.neighbouring, ledger.rng), cut)
            found = self._chosen(parts, candidates)
            for part in parts:
                part.guarantee(self.epsilon, self.delta, source=self._source)
            return found

        return ledger.fitted(chosen, Guarantee(self.epsilon, self.delta, ledger.neighbouring, source=self._source))

    def _chosen(self, parts: list[Ledger], candidates: list) -> tuple[dict, Any]:
        """The winner, from ledgers of the parts to learn from and, last, of the records to judge by."""
        *learning, judging = parts
        trials = zip(candidates, cycle(learning), strict=False)
        learners = [self._fitted(part, *candidate) for candidate, part in trials]

        def scores(records: Records) -> NDArray:
            return np.array([-self._mistakes(learner, records) for learner in learners])

        # Learners are fixed by now, so a record held out moves each score by at most one cost.
        best = judging.choose(scores, self._largest_cost(), epsilon=self.epsilon)
        return candidates[best][0], learners[best]


@dataclass(eq=False, repr=False)
class RepeatedSearch(_PrivateSearch):
    """Best of a random number of trials of randomly drawn candidates, judged by noisy mistakes on records held out.

    One trial draws a candidate, fits it with a third of `epsilon` ("logarithmic": half) to four fifths of the records,
    and adds Laplace noise of the same budget to its mistakes on the others. A record is in one of the two parts, so
    the trial is private at that budget. The best of a random number of trials costs three times as much ("logarithmic":
    twice), whatever the number of candidates and trials.

    Parameters
    ----------
    estimator, param_grid, epsilon, mistake_costs, classes, random_state
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

    _allowed: ClassVar[dict] = {"trials": optional(real(low=1, high=_MOST_TRIALS)), "law": choice(*REPEATS)}

    trials: float | None = None
    law: str = "geometric"

    def _trial_epsilon(self) -> float:
        return self.epsilon / selection_epsilon(1.0, REPEATS[self.law])

    def _search(self, ledger: Ledger, candidates: list, cut: list[NDArray]) -> tuple[dict, Any]:
        rng, budget = ledger.rng, self._trial_epsilon()
        n_trials = draw_repeats(rng, 3.0 * len(candidates) if self.trials is None else float(self.trials), self.law)

        def tried(records: Records) -> tuple[float, dict, Any]:
            """Noisy score, setting and learner of one trial, which has a bill of its own."""
            # The outer ledger pays the theorem's price for the best trial, not for each: so a trial's releases are
            # billed here, where they are held against its own budget below.
            trial, at = Ledger(records, ledger.neighbouring, rng), rng.integers(len(candidates))
            learning, judging = _parts(trial, cut)
            learner = self._fitted(learning, *candidates[at])
            # Real noise, although mistakes are integers: scores must not tie, and only their order shows.
            score = judging.laplace(lambda held: -self._mistakes(learner, held), self._largest_cost(), budget)
            trial.guarantee(budget, 0.0, source="larger of what learning and judging cost")
            return score, candidates[at][0], learner

        def best_of_trials(records: Records) -> tuple[dict, Any]:
            return max((tried(records) for _ in range(n_trials)), key=lambda trial: trial[0])[1:]

        ledger.assume("number of trials secret", EXACT_REALS)
        total = selection_epsilon(budget, REPEATS[self.law])
        return ledger.fitted(best_of_trials, Guarantee(total, 0.0, ledger.neighbouring, source=self._source))
