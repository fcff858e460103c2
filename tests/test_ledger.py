"""The ledger: noise of the law that is billed, a bill that is true, and queries that move by what is billed.

The object by itself, and the rule that no method draws noise without it. `test_replay.py` looks at what the private
estimators ask it.
"""

import ast
import copy
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.dp_event import DiscreteLaplaceDpEvent, ZCDpEvent
from scipy import stats

import helpers
from helpers.erm.norms import RowPolytope
from helpers.privacy import (
    ADD_REMOVE,
    EXACT_REALS,
    REPLACE_ONE,
    ApproximateDpEvent,
    Guarantee,
    Law,
    Ledger,
    Move,
    Sensitivity,
    event_epsilon,
    gaussian_epsilon,
)
from helpers.privacy.ledger import exponential_probabilities

N = 4000


def ledger(records=None, relation=REPLACE_ONE, seed=0):
    return Ledger(np.zeros(N) if records is None else records, relation, np.random.default_rng(seed))


def itself(records):
    return records


# The object by itself


@pytest.mark.parametrize(
    ("ask", "law"),
    [
        (lambda made: made.gaussian(itself, 3.0, 2.0), stats.norm(scale=6.0)),
        (lambda made: made.gaussian(lambda r: [r, r], 3.0, 2.0, (1.0, 0.5))[1], stats.norm(scale=3.0)),
        (lambda made: made.gaussian(itself, 3.0, 2.0, np.full(N, 0.1)), stats.norm(scale=0.6)),
        (lambda made: made.laplace(itself, 3.0, 0.5), stats.laplace(scale=6.0)),
        (lambda made: made.sampled(lambda r, rng: r, None, 3.0, 2.0), stats.norm(scale=6.0)),
    ],
)
def test_noise_has_the_size_of_sensitivity_and_multiplier(ask, law):
    assert stats.kstest(ask(ledger()), law.cdf).pvalue > 1e-4


def test_vectors_have_noise_of_gamma_length():
    made = ledger(np.zeros(5))
    lengths = [np.linalg.norm(made.k_norm(itself, 2.0, 0.5)) for _ in range(2000)]
    assert stats.kstest(lengths, stats.gamma(5, scale=4.0).cdf).pvalue > 1e-4
    assert made.bill == {ApproximateDpEvent(0.5, 0.0): 2000}


def test_integers_have_two_sided_geometric_noise():
    for made, change, ask in (
        (ledger(np.zeros(N, int), ADD_REMOVE), 2, lambda made: made.integers(itself, 2, 0.5)),
        (ledger(np.zeros(N, int), REPLACE_ONE), 2, lambda made: made.class_counts(itself, N, 0.5)),
        (ledger(np.zeros(N, int), ADD_REMOVE), 1, lambda made: made.class_counts(itself, N, 0.5)),
    ):
        noise, rate = ask(made), 0.5 / change
        assert np.mean(np.abs(noise)) == pytest.approx(1 / math.sinh(rate), rel=0.1)
        assert made.bill == {DiscreteLaplaceDpEvent(rate, change): 1}


def test_two_counts_of_a_public_total_need_one():
    made = ledger(np.array([70, 30]))
    counts = np.array([made.class_counts(itself, 2, 0.5) for _ in range(1000)])
    assert (counts.sum(axis=1) == 100).all()
    assert np.mean(np.abs(counts[:, 1] - 30)) == pytest.approx(1 / math.sinh(0.5), rel=0.15)
    assert list(made.bill) == [DiscreteLaplaceDpEvent(0.5, 1)]
    assert "number of records public" in made.guarantee(500.0, 0.0, source="").assumes


@pytest.mark.parametrize("budget", ["rho", "epsilon"])
@pytest.mark.parametrize("law", ["exponential", "permute_and_flip", "laplace"])
def test_choices_are_as_likely_as_their_budget_says(law, budget):
    """The worse of two scores, by a gap at which a budget half or twice as large would show."""
    gap, sensitivity, amount = 12.0, 2.0, 0.3
    made = ledger(np.array([0.0, gap]))
    chosen = [made.choose(itself, sensitivity, law=law, **{budget: amount}) for _ in range(4000)]
    epsilon = amount if budget == "epsilon" else math.sqrt(amount * (8 if law == "exponential" else 2))
    z = epsilon * gap / (2 * sensitivity)
    # Two Laplace variables of scale 1 differ by more than z with probability (1/2 + z/4) e^-z.
    worse = {
        "exponential": 1 / (1 + math.exp(z)),
        "permute_and_flip": math.exp(-z) / 2,
        "laplace": (0.5 + z / 4) * math.exp(-z),
    }[law]
    assert stats.binomtest(chosen.count(0), 4000, worse).pvalue > 1e-4
    assert list(made.bill) == [ZCDpEvent(0.3) if budget == "rho" else ApproximateDpEvent(0.3, 0.0)]


def test_sampling_is_billed_and_is_for_add_remove():
    made = ledger(relation=ADD_REMOVE)
    seen = made.sampled(lambda r, rng: np.array(float(np.sum(rng.random(N) < 0.25))), 0.25, 1e-9, 1.0)
    assert seen == pytest.approx(N / 4, rel=0.1)
    assert made.bill == {PoissonSampledDpEvent(0.25, GaussianDpEvent(1.0)): 1}
    with pytest.raises(ValueError, match="neighbouring"):
        ledger().sampled(lambda r, rng: r, 0.25, 1.0, 1.0)


def test_sweeps_are_billed_once_and_end_with_their_visits():
    made = ledger()
    ask = made.sweeps(np.array([1.0, 3.0]), np.array([2, 1]), 2.0, 5)
    assert made.bill == {GaussianDpEvent(2.0): 5}
    ask(lambda r: 0.0, 0), ask(lambda r: 0.0, 1), ask(lambda r: 0.0, 0)
    for j in (0, 1):
        with pytest.raises(RuntimeError, match=f"coordinate {j}"):
            ask(lambda r: 0.0, j)
    asked = ledger().sweeps(np.array([3.0]), np.array([N]), 2.0, 1)
    assert stats.kstest([asked(lambda r: 7.0, 0) for _ in range(N)], stats.norm(7.0, 6.0).cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    ("law", "length"),
    [
        (Law("ball", 2.0, 5), stats.gamma(5, scale=0.5)),
        (Law("gaussian", 2.0, 5), stats.chi(5, scale=2.0)),
    ],
)
def test_a_minimum_gets_the_law_s_noise_and_the_solver_s(law, length):
    made, noises, blurs = ledger(), [], []
    for _ in range(1000):
        released = made.minimum(
            lambda r, noise: (noises.append(noise), np.zeros(5))[1], law, ApproximateDpEvent(0.9, 1e-6), 0.01, 0.1
        )
        blurs.append(np.linalg.norm(released))
    assert stats.kstest(np.linalg.norm(noises, axis=1), length.cdf).pvalue > 1e-4
    assert stats.kstest(blurs, stats.gamma(5, scale=2 * 0.01 / 0.1).cdf).pvalue > 1e-4
    ((event, n),) = made.bill.items()
    assert (event.epsilon, event.delta, n) == (1.0, pytest.approx(1e-6 * math.exp(0.05)), 1000)


def test_a_guarantee_is_the_bill_s():
    made = ledger()
    for _ in range(4):
        made.gaussian(itself, 1.0, 4.0)
    made.laplace(itself, 1.0, 0.25)
    made.class_counts(lambda r: np.array([1, 2, 3]), 3, 0.5)
    spent = gaussian_epsilon(1e-5, 0.5) + 0.75
    assert made.epsilon(1e-5) == pytest.approx(spent)
    guarantee = made.guarantee(spent, 1e-5, source="here", assumes=("a bound",))
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbouring) == (spent, 1e-5, REPLACE_ONE)
    assert guarantee.assumes[:1] == ("a bound",)
    assert {EXACT_REALS, "class list"} < set(guarantee.assumes)
    assert guarantee.event.events[0] == SelfComposedDpEvent(GaussianDpEvent(4.0), 4)
    with pytest.raises(RuntimeError, match="nothing of them may be published"):
        made.guarantee(0.999 * spent, 1e-5, source="")
    with pytest.raises(RuntimeError):
        made.guarantee(spent, 0.0, source="")
    with pytest.raises(RuntimeError):
        made.guarantee(spent, 0.9e-5, source="")


def test_a_filter_is_kept_or_nothing_is_guaranteed():
    made = ledger()
    made.gaussian(itself, 1.0, 5.0)
    made.choose(itself, 1.0, rho=0.03)
    assert made.rho() == pytest.approx(0.05)
    bound = ZCDpEvent(0.05)
    epsilon = event_epsilon(bound, 1e-5, REPLACE_ONE, method="rdp")
    assert made.guarantee(epsilon, 1e-5, source="", bound=bound).event == bound
    with pytest.raises(RuntimeError):
        made.guarantee(epsilon, 1e-5, source="", bound=ZCDpEvent(0.0499))
    for spend in (lambda made: made.laplace(itself, 1.0, 1e-9), lambda made: made.parts([itself])):
        made = ledger()
        spend(made)  # which no zero-concentrated bound covers
        with pytest.raises(RuntimeError):
            made.guarantee(10.0, 1e-5, source="", bound=ZCDpEvent(0.5))


def test_what_is_released_twice_costs_twice():
    made = ledger()
    for _ in range(2):
        made.gaussian(itself, 1.0, 5.0)
        made.choose(itself, 1.0, rho=0.03)
    assert made.rho() == pytest.approx(2 * 0.05)
    twice = ledger()
    for _ in range(2):
        twice.minimum(lambda r, noise: noise, Law("ball", 1.0, 2), ApproximateDpEvent(0.4, 1e-6), 0.1, 0.1)
    delta = 2e-6 * math.exp(0.05)
    assert twice.epsilon(delta) == pytest.approx(2 * 0.5)
    assert twice.epsilon(0.99 * delta) == math.inf
    assert twice.epsilon(delta * (1 - 1e-6)) == math.inf


@pytest.mark.parametrize("most", [0.0, 100.0])
def test_samples_are_billed_beside_pure_releases(most):
    """Where all samples may be whole data sets within the budget, that is what is told, and is more."""
    made = ledger(relation=ADD_REMOVE)
    made.laplace(itself, 1.0, 0.5)
    made.k_norm(itself, 1.0, 0.25)
    for _ in range(3):
        made.sampled(lambda r, rng: r, 0.1, 1.0, 2.0)
    sampled = ledger(relation=ADD_REMOVE)
    for _ in range(3):
        sampled.sampled(lambda r, rng: r, 0.1, 1.0, 2.0)
    pure = ledger(relation=ADD_REMOVE)
    pure.k_norm(itself, 1.0, 0.25)
    spent = made.epsilon(1e-5, enough=most)
    if most:
        laplace = ComposedDpEvent((LaplaceDpEvent(2.0), SelfComposedDpEvent(GaussianDpEvent(2.0), 3)))
        assert spent >= 0.25 + event_epsilon(laplace, 1e-5, ADD_REMOVE) - 1e-9
    else:
        apart = 0.5 + 0.25 + sampled.epsilon(1e-5)
        assert 0.25 + sampled.epsilon(1e-5) < spent <= apart + 1e-6
    assert pure.epsilon(0.0) == 0.25


def test_a_pure_filter_bounds_the_sum():
    made = ledger()
    made.laplace(itself, 1.0, 0.5)
    bound = ApproximateDpEvent(1.0, 0.0)
    assert made.guarantee(1.0, 0.0, source="", bound=bound).event == bound
    made = ledger()
    made.laplace(itself, 1.0, 1.1)
    with pytest.raises(RuntimeError):
        made.guarantee(1.0, 0.0, source="", bound=bound)


def test_parts_cost_as_much_as_the_dearest():
    made = ledger(np.arange(10.0))
    left, right = made.parts([lambda r: r[:5], lambda r: r[5:]])
    left.laplace(np.sum, 1.0, 0.5)
    right.laplace(np.sum, 1.0, 0.3)
    right.laplace(np.sum, 1.0, 0.3)
    made.laplace(np.sum, 1.0, 1.0)
    assert made.epsilon(0.0) == pytest.approx(1.6)
    whole = made.guarantee(1.6, 0.0, source="").event
    assert event_epsilon(whole, 1e-12, REPLACE_ONE) == pytest.approx(1.6, rel=1e-3)
    made = ledger(np.arange(10.0))
    left, _ = made.parts([lambda r: r[:5], lambda r: r[5:]])
    left.gaussian(np.sum, 1.0, 1.0)  # of which nothing is known at delta 0
    assert made.epsilon(1e-5) == math.inf


def test_what_is_fitted_is_billed_with_its_guarantee():
    class Fitted:
        guarantee_ = Guarantee(0.5, 1e-6, REPLACE_ONE, ComposedDpEvent((GaussianDpEvent(3.0),)), ("a schema",))

    made = ledger()
    made.fitted(lambda r: Fitted())
    made.fitted(lambda r: None, Guarantee(0.25, 0.0, REPLACE_ONE))
    assert made.epsilon(1e-6) == 0.75
    assert made.epsilon(0.9e-6) == math.inf
    assert "a schema" in made.guarantee(0.75, 1e-6, source="").assumes
    with pytest.raises(ValueError, match="neighbouring"):
        made.fitted(lambda r: None, Guarantee(0.25, 0.0, ADD_REMOVE))


def test_the_number_of_records_is_public_under_replace_one_only():
    assert ledger().n_records() == N
    with pytest.raises(RuntimeError, match="private under add/remove"):
        ledger(relation=ADD_REMOVE).n_records()


def test_nothing_is_released_after_the_guarantee():
    made = ledger()
    seen, (part,) = made.view(itself), made.parts([itself])
    made.gaussian(itself, 1.0, 2.0)
    made.guarantee(10.0, 1e-5, source="")
    for late in (made, seen, part):
        with pytest.raises(RuntimeError, match="any more"):
            late.laplace(itself, 1.0, 1e-9)
    assert sum(made.bill.values()) == 1


def test_a_view_is_made_once_and_shares_the_bill():
    calls, made = [], ledger(np.ones(3))
    doubled = made.view(lambda r: (calls.append(1), 2 * r)[1])
    assert not calls  # nobody has asked yet
    answers = [doubled.view(np.sum).gaussian(itself, 1e-9, 1.0), doubled.laplace(np.sum, 1e-9, 1.0)]
    assert answers == pytest.approx([6, 6])
    assert len(calls) == 1
    assert sum(made.bill.values()) == 2
    assert made.bill is doubled.bill


def test_a_ledger_is_never_published():
    for made in (ledger(), ledger().view(itself)):
        for forget in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="private records"):
                forget(made)


@pytest.mark.parametrize(
    "ask",
    [
        lambda made, bad: made.gaussian(itself, bad, 1.0),
        lambda made, bad: made.gaussian(itself, 1.0, bad),
        lambda made, bad: made.gaussian(itself, -bad if bad < 0 else bad, -1.0),
        lambda made, bad: made.gaussian(itself, 1.0, 1.0, np.array([1.0, bad]) if bad <= 0 else bad),
        lambda made, bad: made.laplace(itself, 1.0, bad),
        lambda made, bad: made.k_norm(itself, bad, 1.0),
        lambda made, bad: made.choose(itself, 1.0, rho=bad),
        lambda made, bad: made.choose(itself, bad, epsilon=1.0),
        lambda made, bad: made.integers(lambda r: np.array([1]), 1, bad),
        lambda made, bad: made.class_counts(lambda r: np.array([1, 2]), 2, bad),
        lambda made, bad: made.sampled(lambda r, rng: r, None, 1.0, bad),
        lambda made, bad: made.sweeps(np.ones(2), np.ones(2, int), bad, 1),
        lambda made, bad: made.minimum(lambda r, b: b, Law("ball", 1.0, 2), ApproximateDpEvent(1.0, 0.0), bad, 1.0),
        lambda made, bad: made.minimum(lambda r, b: b, Law("ball", 1.0, 2), ApproximateDpEvent(1.0, 0.0), 1.0, bad),
    ],
)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_noise_of_no_size_is_refused(ask, bad):
    made = ledger(np.zeros(2))
    with pytest.raises(ValueError, match="must be"):
        ask(made, bad)


def test_choices_have_one_of_three_laws():
    with pytest.raises(ValueError, match="law must be"):
        ledger().choose(itself, 1.0, epsilon=1.0, law="largest")


# All noise of the methods is the ledger's

ROOMS = ("privacy", "resampling", "erm", "meta", "neural", "synthesis")
SOURCES = {"rng", "generator", "random", "torch"}
DRAWS = {"normal", "standard_normal", "randn", "laplace", "gumbel", "gamma", "exponential", "geometric"}
NOISY = {"to_grid", "spherical_gamma", "discrete_laplace", "exponential_choice", "noisy_max"}
# What draws numbers like noise, though none hides a record.
EXCEPTIONS = {
    "privacy/ledger.py": "the ledger",
    "erm/norms.py": "the sampler that the ledger calls",
    "erm/kernels.py": "frequencies of random features, which no record enters",
    "meta/search.py": "a secret number of trials, which no record enters",
    "synthesis/mixture.py": "the first logits of a fit",
    "synthesis/network.py": "the first weights of a network, and its fixed inputs",
}


def draws(tree):
    """Calls that draw noise, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=receiver, attr=name)) if name in DRAWS:
                if getattr(receiver, "id", getattr(receiver, "attr", "")) in SOURCES:
                    yield name, node.lineno
            case ast.Call(func=ast.Name(id=name)) if name in NOISY:
                yield name, node.lineno


def test_no_noise_is_drawn_outside_the_ledger():
    root = Path(helpers.__file__).parent
    files = [file for room in ROOMS for file in sorted((root / room).rglob("*.py"))]
    found = {file.relative_to(root).as_posix(): list(draws(ast.parse(file.read_text()))) for file in files}
    drawing = {name: calls for name, calls in found.items() if calls}
    assert {name: calls for name, calls in drawing.items() if name not in EXCEPTIONS} == {}
    assert set(EXCEPTIONS) == set(drawing) & set(EXCEPTIONS), "exceptions that nobody needs any more"


def test_nobody_but_the_ledger_looks_at_its_records():
    users = {file.name for file in Path(helpers.__file__).parent.rglob("*.py") if "._held" in file.read_text()}
    assert users == {"ledger.py"}


@pytest.mark.parametrize("rate", [None, 0.1])
def test_samples_that_are_cheap_enough_cost_what_all_records_would(rate):
    """Four steps of noise multiplier 20: mu is sqrt(4) / 20, were every sample all records."""
    ledger = Ledger(np.zeros(3), ADD_REMOVE, np.random.default_rng(0))
    for _ in range(4):
        ledger.sampled(lambda records, rng: np.zeros(1), rate, 1.0, 20.0)
    most = gaussian_epsilon(1e-6, 0.1)
    assert ledger.epsilon(1e-6, enough=most * 1.001) == pytest.approx(most, rel=1e-6)
    if rate is not None:  # the accountant finds less
        assert ledger.epsilon(1e-6, enough=most * 0.999) < most / 2


def every_release(asked):
    """One release of each kind with noise on a grid: what it bills is public, and so is the size of its grid."""
    rate = 0.5 / (2 * 0.01)
    body = RowPolytope((1.0, 2.0))
    law = Law("body", 3.0, 4, body)  # of two scores, each with noise in the norm of the body
    return {
        "gaussian": (asked.gaussian(itself, 2.0, 1.5), 3.0),
        "laplace": (asked.laplace(itself, 2.0, 0.5), 4.0),
        "k_norm": (asked.k_norm(itself, 2.0, 0.5), 4.0),
        "minimum": (
            asked.minimum(lambda x, noise: x + 0 * noise, law, ApproximateDpEvent(1.0, 0.0), 0.01, 0.5),
            1 / rate,
        ),
    }


def test_noise_is_rounded_to_a_grid_of_its_own_size(monkeypatch):
    sizes = []
    monkeypatch.setattr("helpers.privacy.ledger.to_grid", lambda value, scale: sizes.append(scale) or value)
    found = every_release(ledger(np.zeros(4)))
    assert sizes == pytest.approx([scale for _, scale in found.values()])
    ledger(np.zeros(2)).gaussian(itself, 1.0, 1.0, np.array([1.0, 3.0]))
    assert sizes[-1] == 1.0  # in units of each entry's own


def test_terms_are_in_units_of_the_query(monkeypatch):
    told = []
    release = Ledger._release
    monkeypatch.setattr(
        Ledger, "_release", lambda self, query, draw, terms: told.append(terms) or release(self, query, draw, terms)
    )
    every_release(ledger(np.zeros(4)))
    ledger(np.zeros(4, dtype=int)).integers(itself, 1, 1.0)
    ledger(np.zeros(4)).fitted(lambda records: records.sum(), Guarantee(1.0, 0.0, REPLACE_ONE))
    assert [terms.units for terms in told if terms.kind in ("gaussian", "laplace", "k_norm", "integers")] == [1.0] * 4
    assert told[-1] == ("fitted", "", 0.0, 1.0, None)


def test_noise_in_the_norm_of_a_body_is_drawn_once_for_each_score():
    body, seen = RowPolytope((1.0, 2.0)), []

    def minimise(records, noise):
        seen.append(noise)
        return records

    for scores in (1, 3):
        law = Law("body", 3.0, 2 * scores, body)
        ledger(np.zeros(2 * scores)).minimum(minimise, law, ApproximateDpEvent(1.0, 0.0), 0.01, 0.5)
        assert seen[-1].shape == (2 * scores,)


def test_queries_and_units_are_as_many():
    with pytest.raises(ValueError, match="zip"):
        ledger(np.zeros(4)).gaussian(lambda x: [x, x], 1.0, 1.0, (1.0, 1.0, 1.0))


def test_a_cost_is_never_below_zero_and_never_of_a_delta_that_is_spent():
    cheap = ledger(np.zeros(4))
    cheap.gaussian(itself, 1.0, 1e9)
    assert cheap.epsilon(0.5) == 0.0
    cheap = ledger(np.zeros(4), ADD_REMOVE)
    cheap.sampled(lambda x, rng: x, 0.5, 1.0, 1e9)
    assert cheap.epsilon(0.5) == 0.0
    spent = ledger(np.zeros(4))
    spent.fitted(lambda records: records.sum(), Guarantee(1.0, 0.1, REPLACE_ONE))
    spent.gaussian(itself, 1.0, 1.0)
    assert spent.epsilon(0.05) == math.inf
    assert math.isfinite(spent.epsilon(0.11))


def test_without_a_limit_samples_are_not_counted_as_all_records():
    asked = ledger(np.zeros(4), ADD_REMOVE)
    asked.sampled(lambda x, rng: x, 0.1, 1.0, 5.0)
    assert asked.epsilon(1e-5) < 0.2 < asked.epsilon(1e-5, enough=1.0)


@pytest.mark.parametrize("rate", [0.0, -0.5, 1.5])
def test_a_rate_of_no_sample_is_refused(rate):
    with pytest.raises(ValueError, match="rate must be"):
        ledger(np.zeros(4), ADD_REMOVE).sampled(lambda x, rng: x, rate, 1.0, 5.0)


def test_a_choice_needs_a_budget_above_zero():
    with pytest.raises(ValueError, match="epsilon must be"):
        exponential_probabilities([1.0, 2.0], Sensitivity(1.0, ADD_REMOVE, "linf"), -0.5)


def by_class(labels, relation, moves, noise_multipliers):
    """A ledger whose classes each made one release of their size."""
    held = Ledger(np.array(labels), relation, np.random.default_rng(0))
    classes = held.classes(lambda records, k: records[records == k], len(moves))
    for one, move, multiplier in zip(classes, moves, noise_multipliers, strict=True):
        one.gaussian(lambda records: np.array(float(len(records))), move, multiplier)
    return held


@pytest.mark.parametrize(
    ("relation", "moves", "multipliers", "mu_squared"),
    [
        (ADD_REMOVE, [Move(1.0, 0.0), Move(3.0, 0.0)], [2.0, 4.0], 1 / 4),  # the dearer of the two
        (REPLACE_ONE, [Move(1.0, 0.0), Move(3.0, 0.0)], [2.0, 4.0], 1 / 4 + 1 / 16),  # from one to the other
        (REPLACE_ONE, [Move(1.0, 3.0), Move(3.0, 0.0)], [2.0, 4.0], 9 / 4),  # within the first: three times as far
        (REPLACE_ONE, [Move(1.0, 0.0)] * 3, [2.0, 4.0, 8.0], 1 / 4 + 1 / 16),  # never all three
        (ADD_REMOVE, [Move(1.0, 9.0), Move(1.0, 9.0)], [2.0, 4.0], 1 / 4),  # nobody is replaced
    ],
)
def test_releases_about_classes_cost_what_the_dearest_change_of_a_record_does(relation, moves, multipliers, mu_squared):
    held = by_class([0, 0, 1], relation, moves, multipliers)
    assert 2 * held.rho() == pytest.approx(mu_squared)
    assert held.epsilon(1e-5) == pytest.approx(gaussian_epsilon(1e-5, math.sqrt(mu_squared)))
    event = held.guarantee(9.0, 1e-5, source="").event
    assert 1 / event.noise_multiplier**2 == pytest.approx(mu_squared)


def test_releases_about_all_records_come_on_top_of_those_about_classes():
    held = by_class([0, 1], ADD_REMOVE, [Move(1.0, 0.0)] * 2, [2.0, 2.0])
    held.gaussian(lambda records: np.array(float(len(records))), 1.0, 2.0)
    assert held.epsilon(1e-5) == pytest.approx(gaussian_epsilon(1e-5, math.sqrt(0.5)))
    held.laplace(lambda records: np.array(float(len(records))), 1.0, 0.25)
    assert held.epsilon(1e-5) == pytest.approx(gaussian_epsilon(1e-5, math.sqrt(0.5)) + 0.25, rel=1e-4)


def test_a_gaussian_bound_is_the_event_and_is_held_against_the_bill():
    bound = GaussianDpEvent(2.0)
    for multiplier, kept in ((2.0, True), (3.0, True), (1.999, False)):
        held = by_class([0, 1], ADD_REMOVE, [Move(1.0, 0.0)] * 2, [multiplier, 5.0])
        if kept:
            assert held.guarantee(gaussian_epsilon(1e-5, 0.5), 1e-5, source="", bound=bound).event == bound
        else:
            with pytest.raises(RuntimeError, match="more than the budget"):
                held.guarantee(50.0, 1e-5, source="", bound=bound)
    mixed = by_class([0, 1], ADD_REMOVE, [Move(1.0, 0.0)] * 2, [4.0, 4.0])
    mixed.laplace(lambda records: np.array(0.0), 1.0, 1e-3)
    with pytest.raises(RuntimeError, match="more than the budget"):
        mixed.guarantee(50.0, 1e-5, source="", bound=bound)
    small = by_class([0, 1], ADD_REMOVE, [Move(1.0, 0.0)] * 2, [2.0, 2.0])
    with pytest.raises(RuntimeError, match="more than the budget"):
        small.guarantee(0.99 * gaussian_epsilon(1e-5, 0.5), 1e-5, source="", bound=bound)


def test_the_noise_of_a_class_follows_its_move_units_and_multiplier():
    held = Ledger(np.zeros(0), REPLACE_ONE, np.random.default_rng(0))
    (one, _) = held.classes(lambda records, k: records, 2)
    draws = [
        one.gaussian(lambda records: [np.zeros(2), np.zeros(1)], Move(3.0, 1.0), 0.5, (1.0, 4.0)) for _ in range(4000)
    ]
    first, second = (np.array(part) for part in zip(*draws, strict=True))
    assert first.std(axis=0) == pytest.approx(np.full(2, 1.5), rel=0.07)
    assert second.std(axis=0) == pytest.approx(np.full(1, 6.0), rel=0.07)
    assert one.cost().added ** 2 == pytest.approx(4000 * 4)
    assert one.cost().replaced ** 2 == pytest.approx(4000 * (1 / 1.5) ** 2)


def test_records_are_divided_into_classes_once_and_classes_share_the_end_of_all_releases():
    held = by_class([0, 1], ADD_REMOVE, [Move(1.0, 0.0)] * 2, [4.0, 4.0])
    with pytest.raises(RuntimeError, match="divided into classes once"):
        held.classes(lambda records, k: records, 2)
    held = Ledger(np.zeros(3), ADD_REMOVE, np.random.default_rng(0))
    one, _ = held.classes(lambda records, k: records, 2)
    one.gaussian(lambda records: np.array(0.0), Move(1.0, 0.0), 4.0)
    held.guarantee(5.0, 1e-5, source="")
    with pytest.raises(RuntimeError, match="nothing may be released any more"):
        one.gaussian(lambda records: np.array(0.0), Move(1.0, 0.0), 4.0)


@pytest.mark.parametrize(
    ("move", "multiplier", "message"),
    [
        (Move(0.0, 1.0), 1.0, r"^move\.added must"),
        (Move(1.0, -1.0), 1.0, r"^move\.replaced must"),
        (Move(1.0, math.inf), 1.0, r"^move\.replaced must"),
        (Move(1.0, 1.0), 0.0, "^noise_multiplier must"),
        (Move(1e-200, 1.0), 1e-200, "^noise must"),
    ],
)
def test_bad_moves_are_refused_before_anything_is_billed(move, multiplier, message):
    one, _ = Ledger(np.zeros(3), REPLACE_ONE, None).classes(lambda records, k: records, 2)
    with pytest.raises(ValueError, match=message):
        one.gaussian(lambda records: np.array(0.0), move, multiplier)
    assert one.cost() == Move(0.0, 0.0)
