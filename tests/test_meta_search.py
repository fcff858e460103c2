"""Private choice of parameters: guarantees by enumeration, the law of the trials, and what must be refused."""

import pickle
from itertools import combinations_with_replacement, product
from typing import ClassVar

import numpy as np
import pytest
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from hypothesis import assume, given
from hypothesis import strategies as st
from releases import watched
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags

from helpers import erm, meta
from helpers.meta import search as searches
from helpers.meta.search import REPEATS, draw_repeats, selection_epsilon
from helpers.privacy import (
    ADD_REMOVE,
    EXACT_REALS,
    REPLACE_ONE,
    RUNNING_TIME,
    SEED_SECRET,
    ApproximateDpEvent,
    Guarantee,
    Ledger,
    Sensitivity,
    event_epsilon,
    exponential_probabilities,
)

GRID = {"regularization": [0.01, 0.1, 1.0]}
SEARCHES = [
    meta.PartitionedSearch(erm.ObjectivePerturbationClassifier(), GRID),
    meta.PartitionedSearch(erm.ObjectivePerturbationClassifier(), GRID, parts="shared"),
    meta.RepeatedSearch(erm.ObjectivePerturbationClassifier(), GRID),
    meta.RepeatedSearch(erm.ObjectivePerturbationClassifier(), GRID, law="logarithmic"),
]
SENSITIVITY = Sensitivity(1.0, REPLACE_ONE, "linf")


def data(n=200, seed=0):
    X = np.random.default_rng(seed).uniform(-0.5, 0.5, (n, 2))
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_whole_budget_and_no_more_is_promised(search, epsilon):
    model = search.set_params(epsilon=epsilon, random_state=0).fit(*data())
    guarantee = model.guarantee_
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbouring) == (epsilon, 0.0, REPLACE_ONE)
    assert {"candidates public", "norm bound (radius) public"} <= set(guarantee.assumes)
    assert model.best_params_["regularization"] in GRID["regularization"]


@pytest.mark.parametrize(
    ("search", "share"), list(zip(SEARCHES, [1.0, 1 / 3, 1 / 3, 1 / 2], strict=True)), ids=["parts", "shared", "3", "2"]
)
def test_budget_of_a_candidate(search, share):
    model = search.set_params(epsilon=3.0, random_state=1).fit(*data())
    assert model.best_estimator_.epsilon == pytest.approx(3.0 * share)
    assert model.best_estimator_.guarantee_ is model.guarantee_
    assert model.guarantee_.epsilon == 3.0


@pytest.mark.parametrize(("parts", "share"), [("disjoint", 1), ("shared", 1 / 3)])
def test_a_delta_is_the_learners_and_no_more_is_promised(parts, share):
    search = meta.PartitionedSearch(
        erm.ObjectivePerturbationClassifier(), GRID, epsilon=3.0, parts=parts, delta=1e-4, random_state=0
    )
    model = search.fit(*data())
    chosen = model.best_estimator_
    assert (chosen.epsilon, chosen.delta) == pytest.approx((3 * share, 1e-4 * share))
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (3.0, 1e-4)
    assert chosen.guarantee_ is model.guarantee_
    pure = clone(search).set_params(delta=0.0).fit(*data())
    assert pure.guarantee_.assumes == model.guarantee_.assumes
    assert pure.best_estimator_.delta == 0


def test_a_part_that_spends_more_than_the_budget_is_noticed(monkeypatch):
    fitted = meta.PartitionedSearch._fitted

    def fitted_and_more(self, ledger, setting, guarantee):
        ledger.laplace(lambda records: 0.0, 1.0, 0.1)
        return fitted(self, ledger, setting, guarantee)

    monkeypatch.setattr(meta.PartitionedSearch, "_fitted", fitted_and_more)
    for delta in (0.0, 1e-5):
        with pytest.raises(RuntimeError, match=r"cost epsilon 1\.1 .* more than the budget of 1"):
            meta.PartitionedSearch(Sign(), {"sign": [1]}, delta=delta).fit(*data())


def test_selection_is_private_by_enumeration():
    # Every pair of mistake vectors over three held-out records that differ in one record.
    epsilon, worst = 0.8, 0.0
    records = list(product((0, 1), repeat=3))
    for others in product(records, repeat=2):
        base = np.sum(others, axis=0)
        logs = [np.log(exponential_probabilities(-(base + np.array(r)), SENSITIVITY, epsilon)) for r in records]
        worst = max(worst, max(np.abs(a - b).max() for a in logs for b in logs))
    assert 0.5 * epsilon < worst <= epsilon + 1e-12


@given(st.lists(st.integers(0, 60), min_size=2, max_size=7), st.floats(0.01, 3), st.floats(0.001, 0.5))
def test_mistakes_of_the_choice_stay_near_the_least(mistakes, epsilon, failure):
    """Theorem 9 with m - 1 in place of m, and its exact form."""
    m = len(mistakes)
    assume(failure < 1 - 1 / m)
    p = exponential_probabilities(-np.array(mistakes, dtype=float), SENSITIVITY, epsilon)
    excess = np.array(mistakes) - min(mistakes)
    exact = 2 / epsilon * np.log((m - 1) * (1 - failure) / failure)
    assert p[excess >= exact + 1e-9].sum() <= failure + 1e-12


def trial_laws(levels, epsilon):
    """Pairs of laws over ordered scores whose ratios are at most e^epsilon: the extreme ones."""
    for signs in product((-1, 1), repeat=levels):
        if len(set(signs)) == 2:
            for base in combinations_with_replacement((-4.0, -1.0, 0.0), levels):
                p = softmax(np.array(base))
                up = np.array(signs) == 1
                # q = p e^{epsilon} on one set, p e^{-epsilon} c on the other, c fixed by the total if allowed
                low = (1 - np.exp(epsilon) * p[up].sum()) / p[~up].sum()
                if np.exp(-epsilon) <= low <= np.exp(epsilon):
                    yield p, np.where(up, np.exp(epsilon), low) * p
                high = (1 - np.exp(-epsilon) * p[up].sum()) / p[~up].sum()
                if np.exp(-epsilon) <= high <= np.exp(epsilon):
                    yield p, np.where(up, np.exp(-epsilon), high) * p


def chosen_law(p, generating):
    """Law of the best of K draws, by the probability generating function of K."""
    return np.diff(generating(np.concatenate([[0.0], np.minimum(np.cumsum(p), 1.0)])))


@pytest.mark.parametrize("shape", [1.0, 0.0])
def test_best_of_a_random_number_by_enumeration(shape):
    epsilon, worst = 0.4, 0.0
    gamma = 1e-3
    if shape == 1.0:

        def generating(x):
            return gamma * x / (1 - (1 - gamma) * x)
    else:

        def generating(x):
            return np.log1p(-(1 - gamma) * x) / np.log(gamma)

    for p, q in trial_laws(4, epsilon):
        a, b = chosen_law(p, generating), chosen_law(q, generating)
        worst = max(worst, np.abs(np.log(a) - np.log(b)).max())
    total = selection_epsilon(epsilon, shape)
    assert epsilon * 1.2 < worst <= total + 1e-9
    assert total == pytest.approx((2 + shape) * epsilon)


@pytest.mark.parametrize("law", REPEATS)
def test_dp_accounting_agrees_in_the_limit(law):
    epsilon = 0.3
    event = RepeatAndSelectDpEvent(ApproximateDpEvent(epsilon, 0.0), 10.0, REPEATS[law])
    renyi = event_epsilon(event, 1e-12, REPLACE_ONE, method="rdp")
    assert renyi == pytest.approx(selection_epsilon(epsilon, REPEATS[law]), rel=0.1)


@pytest.mark.parametrize("law", REPEATS)
@pytest.mark.parametrize("mean", [1.0, 1 + 1e-13, 1.5, 10.0])
def test_number_of_trials_has_the_stated_mean(law, mean):
    rng = np.random.default_rng(0)
    draws = np.array([draw_repeats(rng, mean, law) for _ in range(5_000)])
    assert draws.min() >= 1
    assert abs(draws.mean() - mean) <= 5 * draws.std() / np.sqrt(draws.size) + 1e-12


def test_the_law_of_the_trials_is_the_one_that_is_named():
    """Both have the same mean: what a trial costs depends on the law, and so does how often there is only one."""
    shares = {"geometric": 0.1, "logarithmic": 0.269}  # of mean 10
    for law, share in shares.items():
        rng = np.random.default_rng(0)
        once = np.mean([draw_repeats(rng, 10.0, law) == 1 for _ in range(5_000)])
        assert once == pytest.approx(share, abs=0.03)


class Sign(ClassifierMixin, BaseEstimator):
    """A learner that ignores the data; its promise is whatever it is told to promise."""

    def __init__(self, sign=1, relation=REPLACE_ONE, factor=1.0, epsilon=1.0, random_state=None):
        self.sign = sign
        self.relation = relation
        self.factor = factor
        self.epsilon = epsilon
        self.random_state = random_state

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        self.guarantee_ = Guarantee(self.factor * self.epsilon, 0.0, self.relation)
        return self

    def predict(self, X):
        return (self.sign * X[:, 0] > 0).astype(int)


@pytest.mark.parametrize(("kind", "more"), [(meta.PartitionedSearch, {}), (meta.RepeatedSearch, {"trials": 300})])
def test_a_large_budget_takes_the_best(kind, more):
    search = kind(Sign(), {"sign": [-1, 1]}, epsilon=100.0, random_state=0, **more)
    assert search.fit(*data(300)).best_params_ == {"sign": 1}


class Kept(erm.OutputPerturbationClassifier):
    """Keeps every fitted learner, and the records, in a list of the class."""

    fits: ClassVar[list] = []

    def fit(self, X, y):
        super().fit(X, y)
        Kept.fits.append((self, X, self.random_state))
        return self


def real_fits(search, X, y):
    """The learners that a search fitted to the records, with those and their seeds."""
    Kept.fits.clear()
    search.fit(X, y)
    values = set(X[:, 0])
    return [fit for fit in Kept.fits if set(fit[1][:, 0]) <= values]


def test_candidates_have_parts_of_their_own():
    X, y = data(100)
    search = meta.PartitionedSearch(Kept(), {"regularization": [0.1, 1.0, 10.0]}, random_state=0)
    fits = real_fits(search, X, y)
    assert [len(rows) for _, rows, _ in fits] == [25, 25, 25]
    assert len(set().union(*(set(rows[:, 0]) for _, rows, _ in fits))) == 75


SAME = [{"regularization": [0.1]}, {"regularization": [0.1]}]  # two candidates, or trials, of one and the same learner


@pytest.mark.parametrize(
    "search",
    [
        meta.PartitionedSearch(Kept(), SAME),
        meta.PartitionedSearch(Kept(), SAME, parts="shared"),
        meta.RepeatedSearch(Kept(), SAME, trials=6),
    ],
    ids=["disjoint", "shared", "repeated"],
)
@pytest.mark.parametrize("seeded", [False, True])
def test_candidates_have_noise_of_their_own(search, seeded):
    X, y = np.full((30, 1), 0.3), np.ones(30, int)  # all parts are equal, so only the noise can differ
    pairs = []
    for seed in range(40):
        fits = real_fits(search.set_params(random_state=seed if seeded else None), X, y)
        coefficients = [learner.coef_[0, 0] for learner, _, _ in fits]
        assert len(set(coefficients)) == len(coefficients)
        assert seeded or [state for _, _, state in fits] == [None] * len(fits)
        pairs += [coefficients[:2]] if len(coefficients) > 1 else []
    pairs = np.array(pairs)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 5 / np.sqrt(len(pairs))
    spread = 1 / fits[0][0].noise_rate_  # of noise with the norm's law Gamma(2, spread) in the plane, one coordinate
    assert pairs.std() == pytest.approx(np.sqrt(3 / 2) * spread, rel=0.5)


def test_costs_that_are_all_zero_are_refused():
    with pytest.raises(ValueError, match="mistake_costs must have a cost above 0, got "):
        meta.PartitionedSearch(Sign(), {"sign": [0, 1]}, 1.0, mistake_costs={0: 0, 1: 0}).fit(*WRONG)


def test_costs_choose_by_what_a_mistake_costs():
    X = np.linspace(-1, 1, 1000)[:, None]
    y = (np.arange(1000) >= 950).astype(int)
    costs = {0: 0.01, 1: 1.0}
    for chosen, mistake_costs in (({"sign": 0}, None), ({"sign": 1}, costs)):
        search = meta.PartitionedSearch(Sign(), {"sign": [0, 1]}, 50.0, mistake_costs=mistake_costs, random_state=0)
        assert search.fit(X, y).best_params_ == chosen


# What the noise of the choice is for, on fitted objects

WRONG = np.full((50, 2), -0.5), np.ones(50, int)  # what `Sign(1)` gets wrong, always


@pytest.mark.parametrize(("costs", "price", "largest"), [(None, 1.0, 1.0), ({0: 0.7, 1: 0.2}, 0.2, 0.7)])
@pytest.mark.parametrize(("parts", "judges"), [("disjoint", 16), ("shared", 10)])
def test_one_record_moves_the_score_of_a_candidate_by_the_stated_sensitivity(
    monkeypatch, parts, judges, costs, price, largest
):
    seen = watched(monkeypatch)
    meta.PartitionedSearch(Sign(), {"sign": [1, -1]}, 0.6, parts, mistake_costs=costs).fit(*WRONG)
    ((terms, scores),) = seen
    assert scores == pytest.approx([-price * judges, 0.0])
    assert (terms.kind, terms.norm, terms.sensitivity) == ("choose", "linf", largest)
    assert terms.event == ApproximateDpEvent(0.6, 0.0)


@pytest.mark.parametrize(("costs", "price", "largest"), [(None, 1.0, 1.0), ({0: 0.7, 1: 0.2}, 0.2, 0.7)])
@pytest.mark.parametrize(("law", "share"), [("geometric", 3), ("logarithmic", 2)])
def test_a_trials_score_has_the_noise_of_its_budget(monkeypatch, law, share, costs, price, largest):
    seen = watched(monkeypatch)
    meta.RepeatedSearch(Sign(), {"sign": [1]}, 0.6, 20.0, law, mistake_costs=costs).fit(*WRONG)
    assert seen
    for terms, score in seen:
        assert score == pytest.approx(-price * 10)
        assert (terms.kind, terms.norm, terms.sensitivity) == ("laplace", "l1", largest)
        assert 1 / terms.event.noise_multiplier == pytest.approx(0.6 / share)


def test_the_best_trial_is_kept_by_its_noisy_score(monkeypatch):
    """Scores handed out in turn: the largest wins, the first of equals."""
    scores = iter([0.5, 3.0, 3.0, -1.0, 2.0])
    monkeypatch.setattr(searches, "draw_repeats", lambda rng, mean, law: 5)
    monkeypatch.setattr(Ledger, "laplace", lambda *asked: next(scores))
    settings_seen = []
    real = meta.RepeatedSearch._fitted

    def fitted(self, ledger, setting, guarantee):
        settings_seen.append(setting["regularization"])
        return real(self, ledger, setting, guarantee)

    monkeypatch.setattr(meta.RepeatedSearch, "_fitted", fitted)
    grid = {"regularization": np.linspace(0.1, 1.0, 40).tolist()}
    model = meta.RepeatedSearch(erm.OutputPerturbationClassifier(), grid, random_state=0).fit(*data())
    assert model.best_params_["regularization"] == settings_seen[1]
    assert len(set(settings_seen)) > 2


@pytest.mark.parametrize(("trials", "mean"), [(None, 6.0), (2.5, 2.5)])
@pytest.mark.parametrize("law", REPEATS)
def test_three_trials_for_each_candidate(monkeypatch, trials, mean, law):
    asked = []
    monkeypatch.setattr(searches, "draw_repeats", lambda rng, mean, law: asked.append((mean, law)) or 1)
    meta.RepeatedSearch(Sign(), {"sign": [1, -1]}, trials=trials, law=law).fit(*data(20))
    assert asked == [(mean, law)]


@pytest.mark.parametrize(("n", "learned"), [(100, 80), (2, 1), (12, 10)])
@pytest.mark.parametrize(
    "search", [meta.PartitionedSearch(Kept(), SAME, parts="shared"), meta.RepeatedSearch(Kept(), SAME)]
)
def test_a_fifth_is_held_out(monkeypatch, search, n, learned):
    """And the dry run has as many records."""
    tried, real = set(), searches.planned_guarantee

    def planned(learner, size, *asked):
        tried.add(size)
        return real(learner, size, *asked)

    monkeypatch.setattr(searches, "planned_guarantee", planned)
    fits = real_fits(search, *data(n))
    assert {len(rows) for _, rows, _ in fits} == tried == {learned}


def test_the_dry_run_of_each_candidate_has_as_many_records_as_its_part(monkeypatch):
    """Parts differ by one record, and a promise may depend on their size."""
    tried, real = [], searches.planned_guarantee

    def planned(learner, size, *asked):
        tried.append(size)
        return real(learner, size, *asked)

    monkeypatch.setattr(searches, "planned_guarantee", planned)
    fits = real_fits(meta.PartitionedSearch(Kept(), {"regularization": [0.1, 1.0, 10.0]}), *data(10))
    assert [len(rows) for _, rows, _ in fits] == tried == [3, 3, 2]


def test_a_trial_that_spends_more_than_its_budget_is_noticed(monkeypatch):
    fitted, parts = meta.RepeatedSearch._fitted, searches._parts

    def fitted_and_more(self, ledger, setting, guarantee):
        ledger.laplace(lambda records: 0.0, 1.0, 0.1)
        return fitted(self, ledger, setting, guarantee)

    def parts_and_more(ledger, cut):
        ledger.gaussian(lambda records: 0.0, 1.0, 9.0)  # which needs a delta, and a trial has none
        return parts(ledger, cut)

    search = meta.RepeatedSearch(Sign(), {"sign": [1]}, epsilon=0.9)
    for owner, name, wasteful, words in (
        (meta.RepeatedSearch, "_fitted", fitted_and_more, r"epsilon 0\.4.* the budget of 0\.3"),
        (searches, "_parts", parts_and_more, "epsilon inf at delta 0"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, wasteful)
            with pytest.raises(RuntimeError, match=words):
                search.fit(*data(20))


def test_the_smallest_tables():
    for search, fewest in (
        (meta.PartitionedSearch(Sign(), {"sign": [1, -1]}), 3),
        (meta.PartitionedSearch(Sign(), {"sign": [1, -1]}, parts="shared"), 2),
        (meta.RepeatedSearch(Sign(), {"sign": [1, -1]}), 2),
    ):
        assert search.fit(*data(fewest)).best_params_["sign"] in (-1, 1)
        with pytest.raises(ValueError, match=f"at least {fewest} records"):
            search.fit(*data(fewest - 1))


@pytest.mark.parametrize("kind", [meta.PartitionedSearch, meta.RepeatedSearch])
def test_what_is_assumed_is_named(kind):
    usual = {"number of records public", "candidates public", "set of labels public", EXACT_REALS, RUNNING_TIME}
    usual |= {"number of trials secret"} if kind is meta.RepeatedSearch else set()
    costs = {0: 0.0, 1: 1.0}
    assert set(kind(Sign(), {"sign": [1]}).fit(*data()).guarantee_.assumes) == usual
    weighed = kind(Sign(), {"sign": [1]}, mistake_costs=costs, random_state=0).fit(*data())
    assert set(weighed.guarantee_.assumes) == usual | {"costs of mistakes public", SEED_SECRET}


def test_mistakes_that_cost_nothing_need_a_sensitivity_all_the_same():
    free = {0: 0.0, 1: 0.0}
    assert meta.PartitionedSearch(Sign(), {"sign": [1]}, mistake_costs=free)._largest_cost() == 1.0


def test_ranges_end_where_they_are_said_to():
    assert selection_epsilon(0.0, 0.0) == 0.0
    for bad in ((-0.1, 1.0), (1.0, -0.1)):
        with pytest.raises(ValueError, match="must be"):
            selection_epsilon(*bad)
    rng = np.random.default_rng(0)
    for law in REPEATS:
        assert draw_repeats(rng, 1e9, law) > 0
    meta.RepeatedSearch(Sign(), {"sign": [1]}, trials=1e9)._check_parameters()
    for bad in (0.999, 1e9 + 1):
        with pytest.raises(ValueError, match="trials must be"):
            meta.RepeatedSearch(Sign(), {"sign": [1]}, trials=bad).fit(None, None)
    for bad in (-0.01, 1.01):
        with pytest.raises(ValueError, match="mistake_costs must be"):
            meta.RepeatedSearch(Sign(), {"sign": [1]}, mistake_costs={0: bad, 1: 0.5}).fit(None, None)
    assert selection_epsilon(0.5) == 1.5
    assert meta.RepeatedSearch(Sign(), {"sign": [1]}, trials=1).fit(*data()).best_params_ == {"sign": 1}
    meta.PartitionedSearch(Sign(factor=1 + 1e-12), {"sign": [1]}).fit(*data())
    with pytest.raises(ValueError, match="estimator must be 1-DP with delta 0"):
        meta.PartitionedSearch(Sign(factor=1 + 1e-6), {"sign": [1]}).fit(*data())
    with pytest.raises(ValueError, match="with delta 0"):
        meta.PartitionedSearch(erm.DPGradientDescentClassifier(n_steps=2), {"average": [0.5]}).fit(*data())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number in .0, inf., got 0.0"),
        ({"epsilon": -0.5}, "epsilon must be a finite number in .0, inf., got -0.5"),
        ({"param_grid": []}, "param_grid"),
        ({"param_grid": 3}, "param_grid must hold settings"),
        ({"param_grid": {"epsilon": [1.0]}}, "param_grid"),
        ({"estimator": erm.ERMClassifier()}, "estimator must be a classifier with a parameter 'epsilon'"),
        ({"estimator": None}, "estimator must be a classifier"),
        ({"param_grid": {"colour": [1]}}, "Invalid parameter 'colour'"),
        ({"mistake_costs": [1.0, 1.0]}, "mistake_costs"),
        ({"random_state": np.random.default_rng(0)}, "random_state must be None or an integer"),
        ({"mistake_costs": {0: 1.0}}, "mistake_costs"),
        ({"mistake_costs": {0: 1.0, 1: 2.0}}, "mistake_costs"),
        ({"classes": (0,)}, "classes"),
        ({"estimator": Sign(relation=ADD_REMOVE)}, "replace-one"),
        ({"estimator": Sign(factor=1.1)}, "estimator must be"),
    ],
)
@pytest.mark.parametrize("kind", [meta.PartitionedSearch, meta.RepeatedSearch])
def test_refusals(kind, bad, message):
    with pytest.raises(ValueError, match=message):
        kind(Sign(), {"sign": [-1, 1]}).set_params(**bad).fit(*data())


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (meta.PartitionedSearch(Sign(), {"sign": [1]}, parts="equal"), "parts"),
        (meta.PartitionedSearch(Sign(), {"sign": [1]}, delta=-1e-9), "delta must be"),
        (meta.PartitionedSearch(Sign(), {"sign": [1]}, delta=1.0), "delta must be"),
        (meta.RepeatedSearch(Sign(), {"sign": [1]}, law="poisson"), "law"),
        (meta.RepeatedSearch(Sign(), {"sign": [1]}, trials=0.5), "trials"),
        (meta.RepeatedSearch(Sign(), {"sign": [1]}, trials=1e15), "trials"),
    ],
)
def test_refusals_of_one_kind(search, message):
    with pytest.raises(ValueError, match=message):
        search.fit(*data())


@pytest.mark.parametrize("kind", [meta.PartitionedSearch, meta.RepeatedSearch])
def test_a_learner_that_does_not_know_every_label_is_refused_before_it_sees_a_record(kind):
    learner = erm.ObjectivePerturbationClassifier(classes=(0, 5))
    X, y = data(60)
    with pytest.raises(ValueError, match="binary"):
        kind(learner, GRID, classes=(0, 1, 5)).fit(X, np.where(y == 1, 5, 0))


def test_publishing_the_number_of_trials_costs_that_many_trials():
    epsilon, k = 1 / 3, 10
    truth = 1 / (1 + np.exp(-epsilon))
    joint = np.log(truth**k) - np.log((1 - truth) ** k)  # all k trials of randomised response are the worse one
    assert joint > selection_epsilon(epsilon)
    model = meta.RepeatedSearch(Sign(), {"sign": [1]}, random_state=0).fit(*data())
    assert "number of trials secret" in model.guarantee_.assumes


def test_too_few_records_and_foreign_labels():
    with pytest.raises(ValueError, match="at least 4 records"):
        meta.PartitionedSearch(Sign(), {"sign": [1, 2, 3]}).fit(*data(3))
    X, y = data(10)
    with pytest.raises(ValueError, match="y must hold labels"):
        meta.RepeatedSearch(Sign(), {"sign": [1]}).fit(X, 2 * y)


# What stays on the fitted object


KERNEL = erm.KernelClassifier(n_frequencies=4)
KERNEL_GRID = {"gamma": [0.1, 1.0]}


def reachable(value):
    """Everything on an object, and on what is on it."""
    yield value
    inside = vars(value).values() if isinstance(value, BaseEstimator) else ()
    if isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    for item in inside:
        yield from reachable(item)


@pytest.mark.parametrize("kind", [meta.PartitionedSearch, meta.RepeatedSearch])
@pytest.mark.parametrize("seed", [None, 1234567])
def test_what_is_fitted_has_no_seed_no_split_and_one_guarantee(kind, seed):
    X, y = data(70)
    model = kind(KERNEL, KERNEL_GRID, 9.0, random_state=seed).fit(X, y)
    for fitted in (model, pickle.loads(pickle.dumps(model))):
        found = list(reachable(fitted.best_estimator_))
        assert not any(isinstance(item, np.random.Generator | np.random.BitGenerator) for item in found)
        assert seed is None or seed not in [item for item in found if isinstance(item, int)]
        assert all(item.random_state is None for item in found if hasattr(item, "epsilon") and hasattr(item, "fit"))
        assert not any(isinstance(item, np.ndarray) and len(item) in (14, 56, 70) for item in found if np.ndim(item))
        # The learner inside the kernel classifier knows only of a trial's budget by itself.
        stated = [item for item in found if isinstance(item, Guarantee)]
        assert len(stated) == 2
        assert all(item == fitted.guarantee_ for item in stated)
        assert fitted.guarantee_.epsilon == 9.0
        assert (SEED_SECRET in fitted.guarantee_.assumes) == (seed is not None)
    assert pickle.loads(pickle.dumps(model)).random_state is None
    assert np.array_equal(model.predict_proba(X).argmax(axis=1), model.predict(X))


def test_every_candidates_assumptions_are_the_searchs():
    bounds = [[-0.5, 0.5]] * 2
    for seed in range(5):
        search = meta.PartitionedSearch(
            erm.OutputPerturbationClassifier(), {"bounds": [None, bounds]}, random_state=seed
        )
        assert "feature bounds public" in search.fit(*data()).guarantee_.assumes


class Picky(Sign):
    """Needs 30 records."""

    def fit(self, X, y):
        if len(X) < 30:
            raise ValueError(f"30 records are needed, got {len(X)}")
        return super().fit(X, y)


class Curious(Sign):
    """Its promise depends on the records."""

    def fit(self, X, y):
        super().fit(X, y)
        self.guarantee_ = Guarantee(self.epsilon * np.exp(-np.ptp(X)), 0.0, REPLACE_ONE)
        return self


class OneClassFails(Sign):
    def fit(self, X, y):
        if len(np.unique(y)) < 2:
            raise ValueError("two classes are needed")
        return super().fit(X, y)


@pytest.mark.parametrize(("kind", "enough"), [(meta.PartitionedSearch, 90), (meta.RepeatedSearch, 38)])
def test_a_learner_is_tried_with_as_many_records_as_it_gets(kind, enough):
    search = kind(Picky(), {"sign": [-1, 1]}, random_state=0)
    assert search.fit(*data(enough)).best_params_["sign"] in (-1, 1)
    with pytest.raises(ValueError, match=r"30 records are needed, got 2[89]"):
        search.fit(*data(enough - 3))


@pytest.mark.parametrize("kind", [meta.PartitionedSearch, meta.RepeatedSearch])
@pytest.mark.parametrize(
    ("learner", "message"), [(Curious(), "one guarantee whatever its records are"), (OneClassFails(), "two classes")]
)
def test_a_learner_that_depends_on_values_is_refused_for_data_that_would_not_show_it(kind, learner, message):
    X, y = np.zeros((40, 2)), np.tile([0, 1], 20)
    with pytest.raises(ValueError, match=message):
        kind(learner, {"sign": [-1, 1]}).fit(X, y)


@pytest.mark.parametrize("kind", [meta.PartitionedSearch, meta.RepeatedSearch])
def test_other_features_than_those_of_the_fit_are_refused_and_change_nothing(kind):
    model = kind(erm.OutputPerturbationClassifier(), GRID).fit(*data())
    for method in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match=f"X has 3 features, but {kind.__name__} is expecting 2"):
            method(np.zeros((1, 3)))
    assert model.n_features_in_ == 2
    assert not get_tags(model).classifier_tags.multi_class
    assert get_tags(clone(model).set_params(classes=(0, 1, 2))).classifier_tags.multi_class
