"""The curator: exact sensitivities over all neighbours of small data, the noise's own law, and a bill that is true."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent
from dp_accounting.dp_event import ZCDpEvent
from scipy import stats

from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    ApproximateDpEvent,
    Ledger,
    event_epsilon,
    exponential_probabilities,
    zcdp_budget,
)
from helpers.privacy import ledger as ledger_module
from helpers.synthesis import bins
from helpers.synthesis.bins import noisy_domain
from helpers.synthesis.curator import Curator, check_cells

SIZES = (2, 3)
RELATIONS = (ADD_REMOVE, REPLACE_ONE)


def made(codes, neighbouring=REPLACE_ONE, seed=0, sizes=SIZES, pure=False):
    codes = np.array(codes, dtype=int).reshape(-1, len(sizes))
    return Curator(Ledger(codes, neighbouring, np.random.default_rng(seed)), sizes, pure)


def exact(curator, attributes):
    return curator._counts._held(attributes)


def data_sets(n):
    """All data sets of n records over 2 x 3 cells, in order of the records' codes."""
    cells = list(itertools.product(*map(range, SIZES)))
    return itertools.combinations_with_replacement(cells, n)


def neighbours(neighbouring, n=3):
    """All pairs of neighbours."""
    cells = list(itertools.product(*map(range, SIZES)))
    for common in data_sets(n - 1):
        if neighbouring is ADD_REMOVE:
            yield from ((common, (*common, cell)) for cell in cells)
        else:
            yield from (((*common, a), (*common, b)) for a, b in itertools.combinations(cells, 2))


@pytest.mark.parametrize("neighbouring", RELATIONS)
@pytest.mark.parametrize("attributes", [(0,), (1,), (0, 1)])
def test_marginals_move_by_what_the_noise_is_made_for(neighbouring, attributes):
    moves = [
        exact(made(a, neighbouring), attributes) - exact(made(b, neighbouring), attributes)
        for a, b in neighbours(neighbouring)
    ]
    assert max(np.linalg.norm(m) for m in moves) == pytest.approx(1.0 if neighbouring is ADD_REMOVE else math.sqrt(2))
    gaussian = made([(0, 0)], neighbouring).measure(attributes, 0.5)  # rho 1/2: multiplier 1
    assert gaussian.scale == pytest.approx(max(np.linalg.norm(m) for m in moves))
    laplace = made([(0, 0)], neighbouring, pure=True).measure(attributes, 1.0)
    assert laplace.scale / math.sqrt(2) == pytest.approx(max(np.abs(m).sum() for m in moves))


def captured_laws(monkeypatch, choose):
    """Probabilities with which `choose` of a curator drew."""
    laws = []
    draw = ledger_module.exponential_choice

    def spy(scores, sensitivity, epsilon, rng, **options):
        laws.append((exponential_probabilities(scores, sensitivity, epsilon), epsilon))
        return draw(scores, sensitivity, epsilon, rng, **options)

    monkeypatch.setattr(ledger_module, "exponential_choice", spy)
    return lambda records, neighbouring: (choose(made(records, neighbouring)), laws.pop())[1]


def renyi(p, q, order):
    return math.log(np.sum(p**order * q ** (1 - order))) / (order - 1)


def worst(curator):
    candidates = [(0,), (1,), (0, 1)]
    return curator.choose_worst(candidates, [np.ones(2), np.ones(3), np.full((2, 3), 0.5)], 0.3)


def farthest(curator):
    candidates = [(0,), (1,), (0, 1)]
    # A record that leaves a cell with too few for one with too many takes both further away.
    expected = [np.ones(2), np.ones(3), np.array([[0.0, 10.0, 0.0], [10.0, 0.0, 10.0]])]
    return curator.choose_farthest(candidates, expected, 0.3, np.array([0.3, 1.0, 2.0]), np.array([0.5, 0.1, 30.0]))


@pytest.mark.parametrize("neighbouring", RELATIONS)
@pytest.mark.parametrize("choose", [worst, farthest])
def test_a_choice_costs_its_rho_over_all_neighbours_and_no_less_than_it_must(monkeypatch, neighbouring, choose):
    law = captured_laws(monkeypatch, choose)
    losses, costs = [], []
    for a, b in neighbours(neighbouring):
        (p, epsilon), (q, _) = law(a, neighbouring), law(b, neighbouring)
        losses.append(np.ptp(np.log(p) - np.log(q)))
        costs += [renyi(*pair, order) / order for pair in ((p, q), (q, p)) for order in (1.01, 2, 5, 20)]
    assert epsilon == pytest.approx(math.sqrt(8 * 0.3))
    assert max(losses) <= epsilon * (1 + 1e-9)  # bounded range: the reason for epsilon^2 / 8
    assert max(costs) <= 0.3
    assert max(costs) > 0.02  # and the check can fail: the loss is not tiny


@pytest.mark.parametrize("neighbouring", RELATIONS)
def test_noise_has_the_stated_law(neighbouring):
    curator = made([(0, 0), (1, 2)], neighbouring, sizes=(2, 2000))
    counts = exact(curator, (1,))
    gaussian = curator.measure((1,), 0.02)
    assert stats.kstest(gaussian.counts - counts, stats.norm(scale=gaussian.scale).cdf).pvalue > 1e-4
    laplace = made([(0, 0), (1, 2)], neighbouring, sizes=(2, 2000), pure=True).measure((1,), 0.1)
    assert stats.kstest(laplace.counts - counts, stats.laplace(scale=laplace.scale / math.sqrt(2)).cdf).pvalue > 1e-4


def test_the_bill_lists_what_was_done():
    curator = made([(0, 0), (1, 2)])
    curator.measure((0, 1), 0.02)
    curator.measure((0,), 0.02)
    worst(curator)
    assert curator.ledger.bill == {GaussianDpEvent(5.0): 2, ZCDpEvent(0.3): 1}
    assert curator.ledger.rho() == pytest.approx(0.34)
    whole = event_epsilon(ZCDpEvent(0.34), 1e-5, REPLACE_ONE, method="rdp")
    assert curator.ledger.epsilon(1e-5) == pytest.approx(whole)
    told = curator.ledger.guarantee(1.01 * whole, 1e-5, source="").event
    assert event_epsilon(told, 1e-5, REPLACE_ONE, method="rdp") == pytest.approx(whole)
    pure = made([(0, 0)], pure=True)
    pure.measure((0,), 0.5)
    pure.choose(lambda counts: np.zeros(3), 1.0, 0.25)
    assert pure.ledger.bill == {LaplaceDpEvent(2.0): 1, ApproximateDpEvent(0.25, 0.0): 1}
    assert pure.ledger.epsilon(0.0) == pytest.approx(0.75)
    assert pure.ledger.rho() == math.inf  # no such cost follows from what was billed


def test_the_number_of_records_is_public_or_measured():
    assert made([(0, 0)] * 7).total(0.0) == 7
    curator = made([(0, 0)] * 70, ADD_REMOVE)
    assert curator.total(5.0) == pytest.approx(70, abs=3)
    assert curator.ledger.bill == {GaussianDpEvent(10**-0.5): 1}
    assert made([], ADD_REMOVE).total(5.0) >= 1


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-5), (1.0, 1e-5), (5.0, 1e-6)])
def test_the_budget_in_zcdp_is_the_whole_of_epsilon(epsilon, delta):
    rho = zcdp_budget(epsilon, delta)
    assert event_epsilon(ZCDpEvent(rho), delta, REPLACE_ONE, method="rdp") <= epsilon
    assert event_epsilon(ZCDpEvent(1.001 * rho), delta, REPLACE_ONE, method="rdp") > epsilon
    textbook = (math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))) ** 2
    assert textbook < rho < 2.5 * textbook


def test_too_many_cells_are_refused_with_their_number():
    with pytest.raises(ValueError, match="1,000,000,000"):
        check_cells([(0, 1, 2)], (1000, 1000, 1000), "k")
    with pytest.raises(ValueError, match=r"k must .* 80,000,000 in 80 marginals"):
        check_cells([(0, 1)] * 80, (1000, 1000), "k")
    most = 2**22
    check_cells([(0,)] * 16, (most,), "k")
    with pytest.raises(ValueError, match="k must"):
        check_cells([(0,)], (most + 1,), "k")
    with pytest.raises(ValueError, match="k must"):
        check_cells([(0,)] * 17, (most,), "k")


# Bins


def binned(X, budget, seed=0, n_bins=8):
    ledger = Ledger(X, REPLACE_ONE, np.random.default_rng(seed))
    return noisy_domain(ledger, X.shape[1], (0, 1), n_bins=n_bins, budget=budget, pure=False), ledger


def test_private_bins_hold_about_equally_many_and_cost_their_budget():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(500.0, 3.0, 20_000), rng.exponential(1e-3, 20_000)])
    domain, ledger = binned(X, 0.5)
    assert ledger.rho() == pytest.approx(0.5)
    codes = domain.encode(X, np.zeros(len(X), int))
    # The exponential's tail keeps the range wide, so that its first bins may hold more.
    assert np.bincount(codes[:, 0]).max() < 0.5 * len(X)
    assert domain.sizes[1] >= 6
    counts = np.bincount(codes[:, 1]) / len(X)
    assert counts.max() < 0.25
    assert domain.attributes[1].edges[0] >= -1e-6
    assert 0.005 < domain.attributes[1].edges[-1] < 0.05


def test_bins_are_quantiles_on_256_cells_between_powers_of_two():
    """With so much budget that no noise is left: the first cell's end at which the share is reached, for each share."""
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.uniform(9.0, 31.9, 3001), np.append(np.full(1001, -0.3), np.full(2000, 3.999))])
    domain, _ = binned(X, 1e12)
    for j, (low, high) in enumerate([(8.0, 32.0), (-0.5, 4.0)]):
        ends = np.linspace(low, high, 257)
        below = [(X[:, j] < end).sum() for end in ends]
        quantiles = [next(end for end, n in zip(ends, below, strict=True) if n >= 3001 * i / 8) for i in range(1, 8)]
        expected = sorted({low, high, *quantiles})
        assert domain.attributes[j].edges == pytest.approx(expected)
        assert domain.attributes[j].name == f"x{j + 1}"


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (1.5 * 2.0**-30, 2.0**-30, 2.0**-29),
        (1.5 * 2.0**39, 2.0**39, 2.0**40),
        (1e-12, 0.0, 2.0**-30),
        (-7.0, -8.0, -4.0),
    ],
)
def test_ranges_reach_from_two_to_the_minus_30_to_two_to_the_40(value, low, high):
    domain, _ = binned(np.full((50, 1), value), 1e12)
    assert domain.attributes[0].edges[:: len(domain.attributes[0].edges) - 1] == (low, high)
    assert 142 * 0.5 * np.exp(-np.sqrt(2) * bins._CLEAR) == pytest.approx(1 / 280, rel=0.02)  # as its comment says


def test_bins_of_noisy_counts():
    """Noise has no lower end, and running sums must not fall."""
    ends = np.arange(7.0)
    assert bins._equal_mass(ends, np.array([-5.0, 2.0, 2.0, -4.0, 8.0, 4.0]), 3) == (0.0, 5.0, 6.0)
    assert bins._equal_mass(ends, np.array([0.2, 0.2, 0.2, 0.2, 0.2, 0.2]), 3) == (0.0, 2.0, 4.0, 6.0)
    assert bins._equal_mass(ends, np.full(6, -1.0), 3) == (0.0, 6.0)


def test_private_bins_of_nothing_are_still_bins():
    with pytest.warns(UserWarning, match=r"x1, x2 drown in noise, so that \[-1, 1\]"):
        domain, _ = binned(np.zeros((0, 2)), 0.5)
    assert [(a.edges[0], a.edges[-1]) for a in domain.attributes] == [(-1.0, 1.0)] * 2
    assert 1 <= domain.sizes[0] <= 8


@pytest.mark.parametrize("neighbouring", RELATIONS)
@pytest.mark.parametrize("choose", [worst, farthest])
def test_scores_move_by_what_a_choice_is_billed_for(monkeypatch, neighbouring, choose):
    asked = []

    def noted(self, query, sensitivity, **budget):
        asked.append((query(self._held), sensitivity))
        return 0

    monkeypatch.setattr(Ledger, "choose", noted)
    largest = 0.0
    for pair in neighbours(neighbouring):
        for records in pair:
            choose(made(records, neighbouring))
        (here, sensitivity), (there, same) = asked[-2:]
        assert sensitivity == same
        largest = max(largest, np.abs(here - there).max())
    assert largest == pytest.approx(sensitivity)


def test_choices_at_a_huge_budget_are_those_with_the_largest_score():
    """Four of five records are (0, 0) and one is (1, 2); what is expected makes each rule prefer another candidate."""
    curator = made([[0, 0]] * 4 + [[1, 2]])
    candidates = [(0,), (1,)]
    # Off by (2, 2) and by (1, 3, 0): the second has the worst cell, though sums with the expected ones would not.
    assert curator.choose_worst(candidates, [np.array([6.0, -1.0]), np.array([3.0, 3.0, 1.0])], 1e6) == 1
    assert curator.choose_worst(candidates, [np.array([8.0, 5.0]), np.array([9.0, -4.0, 1.0])], 1e6) == 1
    # Off by 8 and by 9 in all; the worst cell, or the sum of both tables, would say otherwise.
    far, near = np.array([-4.0, 1.0]), np.array([1.0, 3.0, 4.0])
    assert curator.choose_farthest(candidates, [far, near], 1e6) == 1
    assert curator.choose_farthest(candidates, [far, near], 1e6, weights=np.array([2.0, 1.0])) == 0
    assert curator.choose_farthest(candidates, [far, near], 1e6, penalties=np.array([0.0, 4.0])) == 0


def test_without_weights_and_penalties_each_distance_is_its_own_score(monkeypatch):
    curator, seen = made([[0, 0]] * 4 + [[1, 2]]), []
    monkeypatch.setattr(
        curator, "choose", lambda scores, sensitivity, budget: seen.append((scores(exactly), sensitivity)) or 0
    )
    exactly = curator._counts._held
    curator.choose_farthest([(0,), (1,)], [np.array([1.0, 1.0]), np.zeros(3)], 1.0)
    [(scores, sensitivity)] = seen
    assert scores.tolist() == [3.0, 5.0]
    assert sensitivity == 2.0


def test_few_records_count_as_one():
    assert {made([], ADD_REMOVE, seed).total(1e9) for seed in range(3)} == {1.0}
    # Budgets are rho if nothing else is said.
    assert not Curator(Ledger(np.zeros((1, 2), int), ADD_REMOVE, None), SIZES)._pure
