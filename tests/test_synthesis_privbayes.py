"""PrivBayes: the sensitivity by brute force, the bill, exact ancestral and conditional sampling, and an audit."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import LaplaceDpEvent
from scipy import stats
from sklearn.metrics import mutual_info_score
from synthesis_data import ledgers

from helpers.data.domain import Attribute, Domain
from helpers.privacy import REPLACE_ONE, ApproximateDpEvent, Ledger, audit_estimator
from helpers.synthesis import PrivBayes, mutual_information, mutual_information_sensitivity
from helpers.synthesis import curator as curator_module
from helpers.synthesis.privbayes import BayesianNetwork, _parent_sets, conditional_table

BITS = Domain([Attribute.categorical(name, j, (0, 1)) for j, name in enumerate("abc")])


def bits(n=400, seed=0):
    rng = np.random.default_rng(seed)
    a, y = rng.integers(2, size=n), (rng.uniform(size=n) < 0.2).astype(int)
    b, c = (np.where(rng.uniform(size=n) < 0.9, v, 1 - v) for v in (a, y))
    return np.column_stack([a, b, c]).astype(float), y


def compositions(total, cells):
    """All tables of `cells` counts that add up to `total`."""
    for bars in itertools.combinations(range(total + cells - 1), cells - 1):
        yield np.diff([-1, *bars, total + cells - 1]) - 1


def largest_change(score, n, shape):
    """Over all tables of n records and all replacements of one."""
    worst = 0.0
    for common in compositions(n - 1, math.prod(shape)):
        values = [score((common + one).reshape(shape)) for one in np.eye(len(common), dtype=int)]
        worst = max(worst, max(values) - min(values))
    return worst


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("shape", [(2, 2), (3, 2)])
def test_the_sensitivity_is_exact_where_one_side_is_binary(n, shape):
    assert largest_change(mutual_information, n, shape) == pytest.approx(
        mutual_information_sensitivity(n, binary=True), abs=1e-12
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_general_sensitivity_is_a_bound_and_attained_by_odd_numbers(n):
    found, bound = largest_change(mutual_information, n, (3, 3)), mutual_information_sensitivity(n)
    assert found <= bound + 1e-12
    if n % 2:
        assert found == pytest.approx(bound, abs=1e-12)


def test_divided_by_an_entropy_it_would_not_hold():
    """The error of another package: normalised mutual information with the plain one's sensitivity."""

    def normalised(counts):
        shares = counts.sum(axis=0) / counts.sum()
        entropy = -np.sum(shares[shares > 0] * np.log(shares[shares > 0]))
        return mutual_information(counts) / entropy if entropy > 0 else 0.0

    assert largest_change(normalised, 6, (2, 2)) > 2 * mutual_information_sensitivity(6, binary=True)


def test_it_is_the_mutual_information_of_scikit_learn():
    rng = np.random.default_rng(0)
    a, b = rng.integers(3, size=200), rng.integers(4, size=200)
    counts = np.bincount(a * 4 + b, minlength=12).reshape(3, 4)
    assert mutual_information(counts) == pytest.approx(mutual_info_score(a, b))
    assert mutual_information(counts.reshape(1, 3, 4)) == pytest.approx(mutual_info_score(a, b))
    assert mutual_information(np.zeros((2, 2))) == 0.0


def test_one_record_has_no_information_and_rounding_makes_none_negative():
    assert mutual_information([[1, 0], [0, 0]]) == 0.0
    rng = np.random.default_rng(0)
    independent = [np.outer(*rng.integers(1, 9, (2, 3))) for _ in range(100)]
    assert min(map(mutual_information, independent)) == 0.0


def test_a_sensitivity_is_asked_for_by_name_and_for_some_record():
    with pytest.raises(TypeError):
        mutual_information_sensitivity(9, True)
    for binary in (False, True):
        with pytest.raises(ValueError, match="n must be"):
            mutual_information_sensitivity(0, binary=binary)


def test_tables_are_shares_of_what_is_positive():
    """A row without anything positive has the shares of all rows together; without any such row all are equal."""
    with np.errstate(all="raise"):
        few = conditional_table(np.array([[0.25, 0.0], [0.0, 0.5], [-1.0, -2.0]]))
        some = conditional_table(np.array([[3.0, -1.0], [-2.0, -5.0], [1.0, 1.5]]))
        one = conditional_table(np.array([[0.25, -1.0], [-2.0, -5.0]]))
        none = conditional_table(np.array([[-1.0, 0.0, -3.0, -1.0]] * 2))
    assert few == pytest.approx(np.array([[1, 0], [0, 1], [1 / 3, 2 / 3]]))
    assert some == pytest.approx(np.array([[1, 0], [4 / 5.5, 1.5 / 5.5], [0.4, 0.6]]))
    assert one == pytest.approx(np.array([[1, 0], [1, 0]]))
    assert none == pytest.approx(np.full((2, 4), 0.25))


def test_samples_follow_tables_of_more_than_two_values():
    root, child = np.array([0.2, 0.3, 0.5]), np.array([[0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0], [0, 0, 0.5, 0.5]])
    codes = BayesianNetwork(((1, ()), (0, (1,))), [root, child]).sample(20_000, np.random.default_rng(0), {})
    found = np.bincount(codes[:, 1] * 4 + codes[:, 0], minlength=12).reshape(3, 4) / 20_000
    assert found == pytest.approx(root[:, None] * child, abs=0.015)


@pytest.mark.filterwarnings("ignore:all numbers of")
@pytest.mark.parametrize("domain", [BITS, None], ids=["public", "private"])
def test_what_was_executed_adds_up_to_epsilon(monkeypatch, domain):
    kept = ledgers(monkeypatch)
    model = PrivBayes(0.7, domain=domain).fit(*bits())
    each = [e.epsilon if isinstance(e, ApproximateDpEvent) else 1 / e.noise_multiplier for e in kept[0].events]
    assert all(isinstance(event, ApproximateDpEvent | LaplaceDpEvent) for event in kept[0].events)
    assert math.fsum(each) <= 0.7
    assert math.fsum(each) == pytest.approx(0.7, rel=1e-6)
    choices = [e.epsilon for e in kept[0].events if isinstance(e, ApproximateDpEvent)]
    share = 1.0 if domain is BITS else 0.9
    assert choices == pytest.approx([share * 0.7 * 0.3 / 3] * len(choices), rel=1e-6)
    assert len(choices) == 3 or domain is None  # wide bins leave no parent that fits
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (0.7, 0.0)
    assert model.guarantee_.neighbouring is REPLACE_ONE


def test_choices_are_billed_for_how_far_mutual_information_moves(monkeypatch):
    asked, choose = [], Ledger.choose

    def noted(self, query, sensitivity, **budget):
        asked.append(sensitivity)
        return choose(self, query, sensitivity, **budget)

    monkeypatch.setattr(Ledger, "choose", noted)
    X, y = bits(200)
    PrivBayes(50.0, domain=BITS, degree=1).fit(X, y)  # pairs of bits: one side has two values
    assert asked == [mutual_information_sensitivity(200, binary=True)] * 3
    asked.clear()
    PrivBayes(50.0, domain=Domain.from_bounds([[0, 1]] * 3, n_bins=4), degree=2).fit(X, y)
    assert asked[-1] == mutual_information_sensitivity(200)  # four cells beside the label and another attribute
    asked.clear()
    three = Domain([Attribute.categorical(name, j, (0, 1, 2)) for j, name in enumerate("ab")])
    PrivBayes(50.0, domain=three, degree=1).fit(X[:, :2], y)
    # An attribute of three values beside the label, which has two; then one of three values beside another of three.
    assert asked == [mutual_information_sensitivity(200, binary=binary) for binary in (True, False)]


def test_tables_have_a_mean_count_of_four_times_the_scale_of_their_noise(monkeypatch):
    limits, choose = [], PrivBayes._choose_network

    def noted(self, curator, sizes, budget, n, limit):
        limits.append(limit)
        return choose(self, curator, sizes, budget, n, limit)

    monkeypatch.setattr(PrivBayes, "_choose_network", noted)
    PrivBayes(0.5, domain=BITS).fit(*bits(300))
    scale = 2 * 4 / (0.7 * 0.5)  # four tables share what choices leave, and one record moves two cells
    assert limits == [pytest.approx(300 / (4 * scale))]


def test_the_network_starts_with_the_label_and_keeps_its_degree():
    for degree in (1, 2):
        model = PrivBayes(50.0, degree=degree, domain=BITS).fit(*bits())
        assert model.model_.edges[0] == (3, ())
        assert sorted(child for child, _ in model.model_.edges) == [0, 1, 2, 3]
        assert max(len(parents) for _, parents in model.model_.edges) == degree
        placed = set()
        for child, parents in model.model_.edges:
            assert set(parents) <= placed
            placed.add(child)


@pytest.mark.parametrize("limit", [0.5, 2, 4, 8, 16, 100])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_parent_sets_are_all_that_fit_and_cannot_grow(degree, limit):
    sizes, chosen = (2, 3, 2, 4, 1, 2), [1, 2, 4, 5]
    subsets = [set(s) for order in range(degree + 1) for s in itertools.combinations(chosen, order)]
    fitting = [s for s in subsets if 2 * math.prod(sizes[j] for j in s) <= limit]
    largest = [s for s in fitting if not any(s < other for other in fitting)] or [set()]
    assert sorted(map(sorted, largest)) == sorted(map(list, _parent_sets(0, chosen, sizes, degree, limit)))


def test_a_small_attribute_does_not_hide_an_informative_one():
    """{label, b} fits and {label, a} does not, but {a} alone does: it is a candidate too."""
    assert set(_parent_sets(0, [1, 2, 3], (16, 16, 2, 2), 2, 300)) == {(1,), (2, 3)}


@pytest.mark.parametrize(
    ("epsilon", "n", "d", "why"), [(0.01, 50, 3, "no parent fits"), (5.0, 400, 1, "nothing to choose from")]
)
def test_what_no_choice_needs_goes_to_the_tables(monkeypatch, epsilon, n, d, why):
    kept = ledgers(monkeypatch)
    domain = Domain([Attribute.categorical(name, j, (0, 1)) for j, name in enumerate("abc"[:d])])
    X, y = bits(n)
    PrivBayes(epsilon, domain=domain).fit(X[:, :d], y)
    assert {type(event) for event in kept[0].events} == {LaplaceDpEvent}, why
    assert kept[0].epsilon(0.0) == pytest.approx(epsilon, rel=1e-6)


def test_tables_are_no_larger_than_the_noise_allows():
    model = PrivBayes(0.01, domain=BITS).fit(*bits(50))
    assert model.model_.edges == ((3, ()), (0, ()), (1, ()), (2, ()))


def test_with_little_noise_it_finds_the_law_and_samples_it_exactly():
    X, y = bits(4000)
    model = PrivBayes(1e4, domain=BITS).fit(X, y)
    made, labels = model.sample(40_000, random_state=1)
    cells = [np.bincount(BITS.encode(*r) @ [8, 4, 2, 1], minlength=16) for r in ((X, y), (made, labels))]
    assert np.abs(cells[0] / 4000 - cells[1] / 40_000).sum() / 2 < 0.03
    for label in (0, 1):
        made, labels = model.sample(20_000, label=label, random_state=2)
        assert (labels == label).all()
        assert made.mean(axis=0) == pytest.approx(X[y == label].mean(axis=0), abs=0.03)


def test_conditional_sampling_is_sampling_that_kept_the_label():
    model = PrivBayes(1.0, domain=BITS).fit(*bits())
    made, labels = model.sample(60_000, random_state=0)
    given, _ = model.sample(20_000, label=1, random_state=1)
    counts = [np.bincount(x.astype(int) @ [4, 2, 1], minlength=8) for x in (made[labels == 1], given)]
    kept = np.sum(counts, axis=0) > 20
    assert stats.chi2_contingency([c[kept] for c in counts]).pvalue > 1e-4


def test_an_audit_of_the_whole_on_a_tiny_domain_refutes_nothing():
    domain = Domain([Attribute.categorical("a", 0, (0, 1))])
    X, y = np.array([[0.0]] * 5 + [[1.0]]), np.array([0] * 5 + [1])
    other = np.zeros((6, 1)), np.zeros(6, int)
    audit = audit_estimator(PrivBayes(1.5, domain=domain), (X, y), other, n_runs=400, n_seeds=20, confidence=0.99999)
    assert audit.refuted(1e-6) == ()
    assert audit.constant_guarantee


def test_the_audit_would_see_a_sensitivity_of_one(monkeypatch):
    """Counts move by 2 in l1 when a record is replaced; noise for 1 is half of what epsilon needs."""
    from helpers.synthesis.curator import Curator

    monkeypatch.setattr(Curator, "_moved_cells", 0.1)
    domain = Domain([Attribute.categorical("a", 0, (0, 1))])
    X, y = np.array([[0.0]] * 5 + [[1.0]]), np.array([0] * 5 + [1])
    other = np.zeros((6, 1)), np.zeros(6, int)
    assert audit_estimator(PrivBayes(1.5, domain=domain), (X, y), other, n_runs=200, n_seeds=10).refuted()


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="degree"):
        PrivBayes(1.0, domain=BITS, degree=0).fit(*bits(20))


def test_too_many_cells_are_told_by_a_parameter_that_it_has(monkeypatch):
    monkeypatch.setattr(curator_module, "LARGEST_MARGINAL", 3)
    wide = Domain.from_bounds([[0, 1]] * 3, n_bins=4)
    for parameters, name in (({"domain": wide}, "domain"), ({"n_bins": 4}, "n_bins")):
        with pytest.raises(ValueError, match=f"{name} must leave"):
            PrivBayes(1.0, **parameters).fit(*bits(20))


def test_one_record_alone_may_be_chosen_for():
    """Its mutual information cannot change, and noise for a change of 0 there is none."""
    model = PrivBayes(1e4, domain=BITS).fit(np.ones((1, 3)), np.ones(1, int))
    assert any(parents for _, parents in model.model_.edges)


def test_one_record_and_one_class_are_no_errors():
    for n in (1, 20):
        model = PrivBayes(1.0, domain=BITS).fit(np.zeros((n, 3)), np.zeros(n, int))
        assert model.sample(3, label=1)[1].tolist() == [1, 1, 1]
