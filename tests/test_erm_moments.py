"""The moment classifier: what one record moves, what the noise is, what comes of it."""

import math
import pickle
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, balanced_accuracy_score, brier_score_loss, roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit

from helpers import data
from helpers.data.domain import Attribute, Domain
from helpers.erm import marginals, moments
from helpers.erm.marginals import RankFeatures, marginals_move, noisy_marginals
from helpers.erm.moments import PrivateMomentClassifier
from helpers.erm.partitions import table
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, SEED_SECRET, ClassLedger, Ledger, event_delta, gaussian_mu

RELATIONS = [ADD_REMOVE, REPLACE_ONE]
MIXED = Domain(
    [
        Attribute.real("a", 0, -1, 1, n_bins=8),
        Attribute.integer("b", 1, 0, 5),  # six cells, in a tree of eight
        Attribute.categorical("c", 2, ("red", "green", "blue")),
        Attribute.one_hot("d", (3, 4), ("left", "right")),
    ],
    classes=("no", "perhaps", "yes"),
)


def of_codes(codes, domain):
    """A table of records with these codes, the label last."""
    return table(*domain.decode(codes, np.random.default_rng(0)), domain.classes)


def records(n, rng):
    """Records of `MIXED`."""
    X = np.empty((n, 5), dtype=object)
    X[:, 0], X[:, 1] = rng.uniform(-1, 1, n), rng.integers(0, 6, n)
    X[:, 2] = rng.choice(["red", "green", "blue"], n)
    X[:, 3] = rng.integers(0, 2, n)
    X[:, 4] = 1 - X[:, 3]
    return X, rng.choice(["no", "perhaps", "yes"], n)


class Asked(NamedTuple):
    """One release: which class it was about, what was asked, and the standard deviation of each entry's noise."""

    number: int
    query: Callable
    noise_scales: list


def asked(X, y, groups=None, **parameters):
    """All releases of a fit, and the fitted model."""
    found, ledgers, gaussian, classes = [], [], ClassLedger.gaussian, Ledger.classes

    def divided(self, choose, count):
        ledgers.extend(classes(self, choose, count))
        return ledgers

    def seen(self, query, move, noise_multiplier, units=1.0):
        scale = move.added * noise_multiplier
        scales = [unit * scale for unit in units] if isinstance(units, tuple) else [units * scale]
        found.append(Asked(ledgers.index(self), query, scales))
        return gaussian(self, query, move, noise_multiplier, units)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "classes", divided)
        patch.setattr(ClassLedger, "gaussian", seen)
        model = PrivateMomentClassifier(**parameters).fit(X, y, groups)
    return found, model


def told(found, X, codes, n_classes, weights=None):
    """Exact answers about these records, each over the standard deviation of its noise."""
    sizes = np.bincount(codes, weights, minlength=n_classes)
    held = moments.Table([moments.Block(moments.Rows(X), codes, weights)], X.shape, sizes)
    parts = []
    for number, query, scales in found:
        exact = query(moments._OfClass(held, number))
        exact = list(exact) if isinstance(exact, list | tuple) else [exact]
        scales = scales * len(exact) if len(scales) == 1 else scales
        parts += [np.ravel(part / scale) for part, scale in zip(exact, scales, strict=True)]
    return np.concatenate(parts)


CASES = {
    "two classes": {"classes": (0, 1)},
    "a recall": {"classes": (0, 1), "recall": 0.8},
    "alarms": {"classes": (0, 1), "alarms": 30.0},
    "three classes": {"classes": (0, 1, 2)},
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_no_change_of_one_record_moves_all_releases_by_more_than_the_budget(monkeypatch, relation, step, case):
    """All records of a small domain, and all their pairs: what was asked once is asked of each of them alone."""
    monkeypatch.setattr(moments, "_WORTH_IT", 0.0 if step else math.inf)
    rng, classes = np.random.default_rng(0), CASES[case]["classes"]
    attributes = [Attribute.real("a", 0, -1, 1, n_bins=8), Attribute.one_hot("b", (1, 2), ("x", "y"))]
    domain = Domain(attributes, classes=classes)
    X = np.array([(a, b, 1 - b) for a in np.linspace(-1, 1, 10) for b in (0.0, 1.0)])
    y = np.where(X[:, 0] > 0.5, 1, 0)
    many, labels = np.repeat(X, 20, axis=0), np.repeat(y, 20)
    labels[rng.random(len(labels)) < 0.1] = classes[-1]
    parameters = {**CASES[case], "domain": domain, "epsilon": 2.0, "delta": 1e-5, "neighbouring": relation}
    found, _ = asked(many, labels, **parameters)
    # A size, the marginals, the sums; the gradients; the scores.
    assert len(found) == len(classes) * (2 + step) + 1 + (case in ("alarms", "a recall"))
    each = np.array([told(found, x[None], np.array([k]), len(classes)) for x in X for k in classes])
    moved = each if relation is ADD_REMOVE else (each[:, None] - each).reshape(-1, each.shape[1])
    largest = np.linalg.norm(moved, axis=1).max() / gaussian_mu(2.0, 1e-5)
    assert 0.6 < largest <= 1 + 1e-9


@given(seed=st.integers(0, 10**6), relation=st.sampled_from(RELATIONS), n_classes=st.integers(2, 4))
def test_no_person_moves_all_releases_by_more_than_the_budget(seed, relation, n_classes):
    """Persons of up to five rows with any labels, each row with weight one over their number."""
    rng = np.random.default_rng(seed)
    X, y = rng.uniform(-1, 1, (60, 2)), rng.integers(0, n_classes, 60)
    classes = tuple(range(n_classes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "_WORTH_IT", rng.choice([0.0, math.inf]))
        found, _ = asked(
            X,
            y,
            np.arange(60) // 3,
            classes=classes,
            epsilon=1.0,
            delta=1e-4,
            neighbouring=relation,
            domain=[[-1, 1]] * 2,
        )

    def person():
        count = int(rng.integers(1, 6))
        # Extreme rows, and copies of one, move the most.
        rows = np.repeat(rng.choice([-1.0, -0.9, 0.9, 1.0], (1, 2)), count, axis=0)
        return told(found, rows, rng.integers(0, n_classes, count), n_classes, np.full(count, 1 / count))

    for _ in range(5):
        moved = person() - (person() if relation is REPLACE_ONE else 0.0)
        assert np.linalg.norm(moved) <= gaussian_mu(1.0, 1e-4) * (1 + 1e-9)


@given(
    relation=st.sampled_from(RELATIONS),
    n_levels=st.integers(0, 9),
    n_trees=st.integers(0, 9),
    n_classes=st.integers(2, 5),
    scored=st.sampled_from([None, False, True]),
    step=st.booleans(),
)
def test_the_dearest_change_of_one_record_costs_the_budget(relation, n_levels, n_trees, n_classes, scored, step):
    attributes = [Attribute.real(f"a{j}", j, 0, 1, n_bins=2**j * 8) for j in range(n_trees)]
    attributes += [Attribute.categorical(f"c{j}", n_trees + j, tuple(range(j + 2))) for j in range(n_levels)]
    if not attributes:
        return
    moved = marginals_move(Domain(attributes))
    one = moments._precisions(relation, moved, n_classes, scored, step=step)
    on_common, on_rare = one.scores * (scored is True), one.scores * (scored is False)
    a, b, square = one.common, one.second, 1.0 if n_classes == 2 else 2.0
    common = one.size + one.marginals * moved.added**2 + a + b + one.common_slope + 8 * on_common
    rare = one.size + one.rare + one.rare_slope * square + 8 * on_rare
    costs = [common, rare]
    if relation is REPLACE_ONE:
        costs = [
            common + rare,
            2 * rare if n_classes > 2 else 0.0,
            4 * (one.rare + one.rare_slope * square) + 18 * on_rare,
        ]
        both = 2 * a + 2 * b + a**2 / (2 * b)
        costs.append(one.marginals * moved.replaced**2 + both + 4 * one.common_slope + 18 * on_common)
    assert max(costs) == pytest.approx(1)
    assert min(one) >= 0


def test_the_moves_of_a_tree():
    move = marginals_move(Domain.from_bounds([[0, 1]] * 3, n_bins=32))
    assert (move.added**2, move.replaced**2) == (pytest.approx(15), pytest.approx(36))


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_record_moves_the_marginals_as_stated_and_no_less(relation):
    """Exhaustive over all pairs of records of a small domain."""
    domain = Domain([Attribute.real("a", 0, 0, 1, n_bins=5), Attribute.categorical("b", 1, (1, 2, 3))])
    codes, found = np.array([(a, b, 0) for a in range(5) for b in range(3)]), []

    class Watching:
        def gaussian(self, query, move, noise_multiplier):
            found.append((query, move))
            return query(of_codes(codes[:0], domain))

    noisy_marginals(Watching(), domain, 0.7, 1.0)
    ((query, move),) = found
    each = np.array([np.concatenate(query(of_codes(codes[[i]], domain))) for i in range(len(codes))])
    assert np.linalg.norm(each, axis=1).max() == pytest.approx(move.added)
    if relation is REPLACE_ONE:
        assert np.linalg.norm(each[:, None] - each, axis=2).max() == pytest.approx(move.replaced)


def test_the_event_is_the_budget_whatever_was_asked():
    X, y = records(400, np.random.default_rng(0))
    model = PrivateMomentClassifier(0.8, 1e-5, MIXED).fit(X, y)
    assert 1 / model.guarantee_.event.noise_multiplier == pytest.approx(gaussian_mu(0.8, 1e-5), rel=1e-9)
    assert event_delta(model.guarantee_.event, 0.8, REPLACE_ONE) <= 1.01e-5
    assert "number of records public" in model.guarantee_.assumes
    added = PrivateMomentClassifier(0.8, 1e-5, MIXED, neighbouring=ADD_REMOVE).fit(X, y)
    assert "number of records public" not in added.guarantee_.assumes


@pytest.mark.parametrize(("relation", "share"), [(ADD_REMOVE, 0.08), (REPLACE_ONE, 0.125)])
def test_the_noise_on_the_sizes_has_its_law(relation, share):
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, (50, 2)), np.repeat([0, 1], 25)
    fits = [PrivateMomentClassifier(1.0, 1e-5, neighbouring=relation, random_state=i).fit(X, y) for i in range(200)]
    errors = [(model.sizes_.counts[1] - 25) / model.sizes_.noise_scale for model in fits]
    assert stats.kstest(errors, "norm").pvalue > 1e-3
    expected = 1 / (gaussian_mu(1.0, 1e-5) * math.sqrt(share * (1 if relation is ADD_REMOVE else 2)))
    assert fits[0].sizes_.noise_scale == pytest.approx(expected)


def test_the_noise_on_the_marginals_is_as_stated(monkeypatch):
    """Of 4,000 releases of no record: standard deviations to 6 of their own, 1.1 % each."""
    domain = Domain([Attribute.real("a", 0, 0, 1, n_bins=5), Attribute.categorical("b", 1, (1, 2, 3))])
    heights, none = [], of_codes(np.zeros((0, 3), dtype=int), domain)
    held = Ledger(none, REPLACE_ONE, np.random.default_rng(2)).classes(moments._OfClass, 2)[0]

    def keep(domain, noisy, n_records, noise_scale):
        heights.append((np.concatenate([part for parts in noisy for part in parts]), noise_scale))

    monkeypatch.setattr(marginals, "denoised", keep)
    for _ in range(4000):
        noisy_marginals(held, domain, 1.3, 1.0, 2)
    answers, scales = zip(*heights, strict=True)
    assert scales[0] == pytest.approx(1.3 * 2 * marginals_move(domain).added)
    assert np.std(answers, axis=0) == pytest.approx(np.full(10, scales[0]), rel=0.07)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_on_means_second_moments_and_slopes_is_as_stated(relation):
    """Of 3,000 releases of no record, three classes: standard deviations to 6 of their own, 1.3 % each."""
    domain = Domain.from_bounds([[-1, 1]], classes=(0, 1, 2), n_bins=4)
    features, sizes = RankFeatures(domain, [np.full(4, 0.25)]), np.array([70.0, 20.0, 10.0])
    none = Ledger(table(np.zeros((0, 1)), [], (0, 1, 2)), relation, np.random.default_rng(1))
    ask = moments._Asked(none.classes(moments._OfClass, 3), 1.4, 2)
    precision = moments._precisions(relation, marginals_move(domain), 3, step=True)
    kept, cleaned = [], moments._cleaned

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "_cleaned", lambda second, scale: kept.append((second, scale)) or cleaned(second, scale))
        found = [moments._noisy_moments(ask, features, precision, sizes, 0) for _ in range(3000)]
    means, second = np.array([one.means for one in found]), np.array([matrix for matrix, _ in kept])
    on_diagonal = kept[0][1]
    assert on_diagonal == pytest.approx(1 / (0.7 * math.sqrt(precision.second) * 70))
    assert np.array_equal(second, second.transpose(0, 2, 1))
    assert second.std(axis=0) == pytest.approx(on_diagonal * (np.eye(3) + (1 - np.eye(3)) / math.sqrt(2)), rel=0.08)
    expected = 1 / (0.7 * np.sqrt([precision.common, precision.rare, precision.rare]) * sizes)
    assert found[0].noise_scales == pytest.approx(expected)
    assert means.std(axis=0) == pytest.approx(np.tile(expected[:, None], 3), rel=0.08)
    discriminants = moments._Discriminants.of(found[0])
    slopes = [moments._noisy_slopes(ask, features, precision, discriminants) for _ in range(3000)]
    assert np.std([slope for slope, _ in slopes], axis=0) == pytest.approx(np.full((2, 3), slopes[0][1]), rel=0.08)
    numbers = [second[:, 0, 0], second[:, 0, 1], second[:, 1, 2], means[:, 0, 0], means[:, 1, 0]]
    assert abs(np.corrcoef(numbers) - np.eye(5)).max() < 0.1


def test_a_published_object_does_not_tell_its_seed():
    X, y = records(100, np.random.default_rng(0))
    model = PrivateMomentClassifier(domain=MIXED, random_state=5).fit(X, y)
    assert pickle.loads(pickle.dumps(model)).random_state is None
    assert SEED_SECRET in model.guarantee_.assumes
    again = PrivateMomentClassifier(domain=MIXED, random_state=5).fit(X, y)
    assert np.array_equal(model.coef_, again.coef_)


def test_without_noise_the_marginals_are_those_of_the_class():
    X, y = records(300, np.random.default_rng(0))
    codes = MIXED.encode(X, y)
    codes = codes[codes[:, -1] == 1]
    held = Ledger(table(X, y, MIXED.classes), ADD_REMOVE, np.random.default_rng(0)).classes(moments._OfClass, 3)[1]
    for j, shares in enumerate(noisy_marginals(held, MIXED, 1e-9, len(codes))):
        assert shares == pytest.approx(np.bincount(codes[:, j], minlength=MIXED.sizes[j]) / len(codes), abs=1e-6)


def test_with_noise_alone_the_cells_are_equal():
    """Shrinking leaves nothing of differences that are as small as their noise, and nothing in the padding."""
    codes = np.column_stack([np.tile(np.arange(6), 50), np.zeros(300, int)])
    domain = Domain([Attribute.integer("b", 0, 0, 5)])
    held = Ledger(of_codes(codes, domain), REPLACE_ONE, np.random.default_rng(3)).classes(moments._OfClass, 2)[0]
    found = np.array([noisy_marginals(held, domain, 1e3, 300.0)[0] for _ in range(200)])
    assert found.sum(axis=1) == pytest.approx(1)
    assert found.mean(axis=0) == pytest.approx(np.full(6, 1 / 6), abs=0.06)  # no cell is preferred
    assert np.mean(abs(found - 1 / 6).max(axis=1) < 0.01) > 0.2


def test_rows_have_one_root_mean_square_under_the_marginals():
    X, y = records(4000, np.random.default_rng(0))
    codes = MIXED.encode(X, y)
    shares = [np.bincount(codes[:, j], minlength=size) / len(X) for j, size in enumerate(MIXED.sizes[:-1])]
    rows = RankFeatures(MIXED, shares).rows(X)
    assert rows.shape == (4000, 3 + 3 + 3 + 2)
    assert np.mean((rows**2).sum(axis=1)) == pytest.approx(1.6**2, rel=0.02)  # not exactly, between middles of cells
    lone = [np.eye(size)[0] for size in MIXED.sizes[:-1]]
    assert np.isfinite(RankFeatures(MIXED, lone).rows(X)).all()


@given(seed=st.integers(0, 10**6))
def test_what_is_summed_lies_in_the_ball_whatever_the_marginals_are(seed):
    rng = np.random.default_rng(seed)
    X, _ = records(20, rng)
    cells = [rng.dirichlet(np.full(size, 0.05)) for size in MIXED.sizes[:-1]]
    for rows in moments._clipped(RankFeatures(MIXED, cells), X):
        assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12


@given(seed=st.integers(0, 10**6))
def test_rows_are_interpolated_between_the_middles_of_cells(seed):
    rng = np.random.default_rng(seed)
    domain = Domain.from_bounds([[-1, 1]], n_bins=int(rng.integers(2, 9)))
    features = RankFeatures(domain, [rng.dirichlet(np.ones(domain.sizes[0]))])
    X = rng.uniform(-1.2, 1.2, (30, 1))
    expected = np.column_stack([np.interp(X[:, 0], features.places[0], heights) for heights in features.tables[0].T])
    assert features.rows(X) == pytest.approx(expected)


def test_bounds_near_the_largest_double_have_middles():
    domain = Domain([Attribute.real("a", 0, 1e308, 1.7e308, n_bins=4)])
    found = RankFeatures(domain, [np.full(4, 0.25)]).places[0]
    assert found == pytest.approx([1.0875e308, 1.2625e308, 1.4375e308, 1.6125e308])


def test_a_value_nobody_had_does_not_decide_alone():
    """All training records in one cell: rows elsewhere are long, and shortened as they would be in the fit."""
    X, y = np.full((400, 2), -0.99), np.repeat([0, 1, 2], [300, 60, 40])
    model = PrivateMomentClassifier(50.0, 1e-6, classes=(0, 1, 2), random_state=0).fit(X, y)
    far = np.array([[1.0, 1.0], [0.0, 1.0], [-0.5, -0.3]])
    assert np.linalg.norm(model.features_.rows(far), axis=1).min() > 2
    reach = np.linalg.norm(model.coef_, axis=1) + abs(model.intercept_)
    assert (abs(model.decision_function(far)) <= reach + 1e-9).all()


def test_probabilities_of_several_classes_stay_numbers_where_all_are_unlikely():
    model = PrivateMomentClassifier(5.0, 1e-6, classes=(0, 1, 2), random_state=0)
    model.fit(np.zeros((9, 1)), np.repeat([0, 1, 2], 3))
    model.intercept_ = np.array([-900.0, -901.0, -990.0])
    model.coef_ = np.zeros_like(model.coef_)
    model.priors_ = np.full(3, 1 / 3)
    assert model.predict_proba([[0.0]])[0] == pytest.approx([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0])


def test_probabilities_beat_a_constant_at_a_large_budget():
    """With rows as long as they come, a Brier score of .025 on mammography, where the constant share has .0227."""
    dataset = data.load("mammography")
    scores = []
    splits = StratifiedShuffleSplit(4, test_size=0.3, random_state=0)
    for seed, (train, test) in enumerate(splits.split(dataset.X, dataset.y)):
        model = PrivateMomentClassifier(5.0, len(train) ** -2.0, dataset.bounds, random_state=seed)
        model.fit(dataset.X[train], dataset.y[train])
        scores.append(brier_score_loss(dataset.y[test], model.predict_proba(dataset.X[test])[:, 1]))
    assert np.mean(scores) < 0.02


def test_shapes_add_up_to_the_log_odds_and_show_their_noise():
    rng = np.random.default_rng(0)
    X, _ = records(2000, rng)
    y = rng.choice(["no", "perhaps", "yes"], 2000, p=[0.7, 0.2, 0.1])
    y[(X[:, 0] > 0.5) & (rng.random(2000) < 0.5)] = "yes"
    fits = [PrivateMomentClassifier(2.0, 1e-5, MIXED, random_state=i).fit(X, y) for i in range(60)]
    model = fits[0]
    middle = np.array([[-0.875, 2, "green", 0, 1]], dtype=object)
    total = sum(s.log_odds[:, i] for s, i in zip(model.shapes_, (0, 2, 1, 1), strict=True))
    total = model.intercept_ + total / max(1, np.linalg.norm(model.features_.rows(middle)))
    assert model.decision_function(middle)[0] == pytest.approx(total)
    first = [fit.shapes_[0] for fit in fits]
    assert first[0].name == "a"
    assert first[0].log_odds[2, -1] > first[0].log_odds[2, 0]
    seen = np.std([shape.log_odds[2, 4] / np.linalg.norm(shape.log_odds[2]) for shape in first])
    stated = np.mean([shape.noise_scale[2, 4] / np.linalg.norm(shape.log_odds[2]) for shape in first])
    assert 0.3 < seen / stated < 3


def test_polynomials_are_centred_and_orthogonal_under_the_marginal():
    shares = np.random.default_rng(0).dirichlet(np.ones(32))
    heights = RankFeatures(Domain.from_bounds([[0, 1]], n_bins=32), [shares]).tables[0]
    products = heights.T @ (shares[:, None] * heights)
    assert abs(shares @ heights).max() < 1e-12
    assert abs(products - np.diag(products.diagonal())).max() < 1e-12


def test_blocks_change_nothing(monkeypatch):
    X, y = records(100, np.random.default_rng(0))
    whole = PrivateMomentClassifier(domain=MIXED, random_state=5).fit(X, y)
    monkeypatch.setattr(moments, "_BLOCK", 70)
    parts = PrivateMomentClassifier(domain=MIXED, random_state=5).fit(X, y)
    assert parts.coef_ == pytest.approx(whole.coef_, rel=1e-4, abs=1e-4)
    assert parts.decision_function(X) == pytest.approx(whole.decision_function(X), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("relation", RELATIONS)
def test_it_finds_a_rare_class(relation):
    """Mammography at epsilon 1: private logistic regression with a private threshold has about .89 and .83 there."""
    dataset = data.load("mammography")
    scores = []
    splits = StratifiedShuffleSplit(5, test_size=0.3, random_state=0)
    for seed, (train, test) in enumerate(splits.split(dataset.X, dataset.y)):
        model = PrivateMomentClassifier(
            1.0, len(train) ** -2.0, dataset.bounds, neighbouring=relation, random_state=seed
        ).fit(dataset.X[train], dataset.y[train])
        X, y = dataset.X[test], dataset.y[test]
        scores.append((roc_auc_score(y, model.decision_function(X)), balanced_accuracy_score(y, model.predict(X))))
    assert np.mean(scores, axis=0)[0] > 0.9
    assert np.mean(scores, axis=0)[1] > 0.82


def test_three_classes_and_two_are_one_method():
    rng = np.random.default_rng(0)
    centres = np.array([[-0.6, 0.0], [0.6, 0.0], [0.0, 0.7]])
    y = rng.choice(3, 6000, p=[0.8, 0.15, 0.05])
    X = np.clip(centres[y] + 0.15 * rng.normal(size=(6000, 2)), -1, 1)
    model = PrivateMomentClassifier(3.0, 1e-6, classes=(0, 1, 2), random_state=0).fit(X, y)
    assert model.decision_function(X).shape == (6000, 3)
    assert balanced_accuracy_score(y, model.predict(X)) > 0.9
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)
    two = PrivateMomentClassifier(3.0, 1e-6, random_state=0).fit(X, (y == 1).astype(int))
    assert two.decision_function(X).shape == (6000,)
    assert balanced_accuracy_score(y == 1, two.predict(X)) > 0.9


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("rare", [0, 1])
def test_a_recall_and_a_rate_of_alarms_are_about_what_was_asked_for(relation, rare):
    """Whichever of the two classes is the larger."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(20_000) < 0.05, rare, 1 - rare)
    X = np.clip(0.3 * rng.normal(size=(20_000, 3)) + 0.4 * (y == rare)[:, None], -1, 1)
    for recall in (0.6, 0.9):
        model = PrivateMomentClassifier(5.0, 1e-6, neighbouring=relation, recall=recall, random_state=0).fit(X, y)
        assert model.predict(X)[y == 1].mean() == pytest.approx(recall, abs=0.06)
    for alarms in (30.0, 300.0) if rare else (900.0, 970.0):
        model = PrivateMomentClassifier(5.0, 1e-6, neighbouring=relation, alarms=alarms, random_state=0).fit(X, y)
        assert 1000 * model.predict(X).mean() == pytest.approx(alarms, abs=15)


def test_probabilities_are_close_to_frequencies():
    dataset = data.load("mammography")
    model = PrivateMomentClassifier(1.0, 1e-8, dataset.bounds, random_state=0).fit(dataset.X, dataset.y)
    share = model.predict_proba(dataset.X)[:, 1].mean()
    assert 1 / 3 < share / dataset.y.mean() < 3


@pytest.mark.parametrize(
    ("relation", "n"), [(ADD_REMOVE, 0), (ADD_REMOVE, 1), (REPLACE_ONE, 1), (ADD_REMOVE, 3), (REPLACE_ONE, 3)]
)
def test_few_records_and_one_class_are_no_errors(relation, n):
    X, _ = records(n, np.random.default_rng(0))
    model = PrivateMomentClassifier(domain=MIXED, neighbouring=relation).fit(X, np.full(n, "yes"))
    assert np.isfinite(model.decision_function(records(5, np.random.default_rng(1))[0])).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0}, "^epsilon must"),
        ({"delta": 0}, "^delta must"),
        ({"delta": 1.0}, "^delta must"),
        ({"recall": 1.0}, "^recall must"),
        ({"alarms": 0.0}, "^alarms must"),
        ({"alarms": 5.0, "recall": 0.5}, "^alarms must be None where recall is given"),
        ({"recall": 0.5, "classes": (0, 1, 2)}, "^recall must be None for 3 classes"),
        ({"neighbouring": "replace"}, "^neighbouring must"),
        ({"rows_per_person": 0}, "^rows_per_person must"),
        ({"classes": (1,)}, "^classes must"),
        ({"random_state": np.random.default_rng(0)}, "^random_state must"),
        ({"domain": [[0, 1]]}, "^domain must have the 2 features of X, got 1"),
        ({"domain": [[1, 0], [0, 1]]}, "^high must"),
        ({"domain": [[0, 0], [1, 1]]}, "^domain must give 1 to 4000 features"),
        ({"domain": Domain.from_bounds([[0, 1]] * 2, classes=(0, 2))}, "classes"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    X, y = np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([0, 1])
    with pytest.raises(ValueError, match=message):
        PrivateMomentClassifier(**parameters).fit(X, y)


@pytest.mark.parametrize("value", [np.nan, np.inf, None, "text", 10**400])
@pytest.mark.parametrize("label", ["no", "yes"])
def test_a_cell_that_is_no_number_is_refused_in_whichever_class_it_is(value, label):
    """Only the largest class is asked for its marginals: other records must not go unseen."""
    X, y = records(50, np.random.default_rng(0))
    y[:] = "no"
    X[7, 0], y[7] = value, label
    with pytest.raises(ValueError, match=r"^X |^Input "):
        PrivateMomentClassifier(domain=MIXED).fit(X, y)
    X[7, 0], X[7, 2] = 0.0, "violet"
    with pytest.raises(ValueError, match=r"^X |^c "):
        PrivateMomentClassifier(domain=MIXED).fit(X, y)


def of_persons(X, y, persons, relation, monkeypatch, seed=0):
    """What a fit to rows of these persons would publish without noise, and the fitted model."""
    # The noise of a seed depends on the rows; here it must not, so that two fits can be compared.
    monkeypatch.setattr(
        PrivateMomentClassifier, "_noise_generator", lambda *arguments: np.random.default_rng(seed), raising=True
    )
    model = PrivateMomentClassifier(epsilon=3.0, delta=1e-4, neighbouring=relation)
    return model.fit(X, y, persons)


@pytest.mark.parametrize("relation", RELATIONS)
def test_rows_written_ten_times_change_nothing_where_their_persons_are_named(monkeypatch, relation):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (200, 3)), rng.integers(0, 2, 200)
    once = of_persons(X, y, np.arange(200), relation, monkeypatch)
    order = rng.permutation(2000)
    often = of_persons(
        np.tile(X, (10, 1))[order], np.tile(y, 10)[order], np.tile(np.arange(200), 10)[order], relation, monkeypatch
    )
    plain = of_persons(X, y, None, relation, monkeypatch)
    for one in (once, often):
        assert one.guarantee_.unit == "person"
        assert one.sizes_.n_records == plain.sizes_.n_records
        np.testing.assert_allclose(one.coef_, plain.coef_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.sizes_.counts, plain.sizes_.counts, rtol=1e-9)
    assert plain.guarantee_.unit == "record"


def test_where_nobody_knows_whose_rows_they_are_the_noise_is_for_all_that_a_person_may_have():
    X, y = np.random.default_rng(0).uniform(-1, 1, (50, 2)), np.tile([0, 1], 25)
    one, four = (PrivateMomentClassifier(1.0, 1e-4, rows_per_person=k).fit(X, y) for k in (1, 4))
    assert four.sizes_.noise_scale == pytest.approx(4 * one.sizes_.noise_scale)
    assert "no person has more than 4 rows" in four.guarantee_.assumes
    assert (one.guarantee_.unit, four.guarantee_.unit) == ("record", "person")
    assert four.guarantee_.event == one.guarantee_.event
    for groups, k in ((np.arange(50), 2), (np.arange(49), 1)):
        with pytest.raises(ValueError, match=r"groups must be None|inconsistent numbers of samples"):
            PrivateMomentClassifier(1.0, 1e-4, rows_per_person=k).fit(X, y, groups)


def test_a_failed_fit_leaves_nothing_of_the_one_before():
    X, y = np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([0, 1])
    model = PrivateMomentClassifier().fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((2, 2), np.nan), y)
    assert not hasattr(model, "guarantee_")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
def test_no_value_of_a_record_warns(relation):
    rows = np.tile([[1e308, -1e308], [-1e308, 1e308], [5e-324, -0.0]], (5, 1))
    PrivateMomentClassifier(1.0, 1e-6, neighbouring=relation).fit(rows, np.arange(15) % 2)


def few_of_many(rng):
    """Twenty independent attributes, three of which say something."""
    y = (rng.random(4000) < 0.04).astype(int)
    return 0.3 * rng.normal(size=(4000, 20)) + 0.25 * y[:, None] * (np.arange(20) < 3), y


def dependent(rng):
    """Sixty attributes that depend on one another, some with hardly any variance of their own."""
    y = (rng.random(4000) < 0.04).astype(int)
    mixed = np.linalg.qr(rng.normal(size=(60, 60)))[0] * np.linspace(0.05, 0.5, 60)
    return rng.normal(size=(4000, 60)) @ mixed.T + 0.1 * y[:, None] * rng.normal(size=60), y


@pytest.mark.parametrize("simulated", [few_of_many, dependent])
@pytest.mark.parametrize("relation", RELATIONS)
def test_more_budget_does_no_harm(relation, simulated):
    """Where the noise is gone a small sample of many attributes is left: its own noise must not take over."""
    X, y = simulated(np.random.default_rng(0))
    X, scores = np.clip(X, -1, 1), []
    for epsilon in (1.0, 5.0, 20.0, 100.0, 1e6):
        found = []
        for i in range(8):
            fit = PrivateMomentClassifier(epsilon, 1e-6, neighbouring=relation, random_state=i).fit(X[:2000], y[:2000])
            said, true = fit.decision_function(X[2000:]), y[2000:]
            ranked = roc_auc_score(true, said), average_precision_score(true, said)
            found.append((*ranked, balanced_accuracy_score(true, said > 0)))
        scores.append(np.mean(found, axis=0))
    assert (np.diff(scores, axis=0) > -0.005).all(), scores
    assert (scores[-1] > scores[0] + 0.05).all()
