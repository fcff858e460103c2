"""The moment classifier: what one record moves, what the noise is, what comes of it."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit

from helpers import data
from helpers.data.domain import Attribute, Domain
from helpers.erm import marginals, moments
from helpers.erm.marginals import RankFeatures, marginals_sensitivity, noisy_marginals
from helpers.erm.moments import PrivateMomentClassifier, moments_noise
from helpers.erm.partitions import table
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, SEED_SECRET, Ledger, event_delta, gaussian_mu, ledger

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


class Silent(np.random.Generator):
    """A source of noise that is zero."""

    def normal(self, loc=0.0, scale=1.0, size=None):
        return np.zeros(size)


def of_codes(codes, domain):
    """A table of records with these codes, the label last."""
    return table(*domain.decode(codes, np.random.default_rng(0)), domain.classes)


def without_noise(records, relation):
    return Ledger(records, relation, Silent(np.random.PCG64(0)))


def records(n, rng):
    """Records of `MIXED`."""
    X = np.empty((n, 5), dtype=object)
    X[:, 0], X[:, 1] = rng.uniform(-1, 1, n), rng.integers(0, 6, n)
    X[:, 2] = rng.choice(["red", "green", "blue"], n)
    X[:, 3] = rng.integers(0, 2, n)
    X[:, 4] = 1 - X[:, 3]
    return X, rng.choice(["no", "perhaps", "yes"], n)


def released(monkeypatch, release):
    """What `release` would publish without noise, each number in standard deviations of its noise."""
    found = []

    def keep(value, scale):
        found.append(np.ravel(value) / scale)
        return value

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "to_grid", keep)
        release()
    return np.concatenate(found)


def pairs(relation, codes):
    """All pairs of neighbouring data sets that differ in records of `codes`, the rest being its first two."""
    rest = codes[:2]
    for i, one in enumerate(codes):
        others = codes[:i] if relation is REPLACE_ONE else [None]
        for other in others:
            yield np.vstack([rest, one]), rest if other is None else np.vstack([rest, other])


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_record_moves_the_marginals_as_stated_and_no_less(monkeypatch, relation):
    """Exhaustive over all pairs of records of a small domain; each number is divided by its own noise."""
    domain = Domain([Attribute.real("a", 0, 0, 1, n_bins=5), Attribute.categorical("b", 1, (1, 2, 3))])
    codes = np.array([(a, b, y) for a in range(5) for b in range(3) for y in range(2)])
    moved = []
    for pair in pairs(relation, codes):
        ledgers = [without_noise(of_codes(side, domain), relation) for side in pair]
        sides = [released(monkeypatch, lambda one=one: noisy_marginals(one, domain, 0.7)) for one in ledgers]
        moved.append(np.linalg.norm(sides[0] - sides[1]))
    assert 0.999999 * 0.7 < max(moved) <= 0.7 * (1 + 1e-12)


@pytest.mark.parametrize(("relation", "levels"), [(REPLACE_ONE, 12), (ADD_REMOVE, 5)])
def test_the_sensitivity_of_a_tree(relation, levels):
    assert (1 - marginals.LABEL_SHARE) * marginals_sensitivity(
        Domain.from_bounds([[0, 1]] * 3, n_bins=32), relation
    ) ** 2 == pytest.approx(3 * levels)


@given(seed=st.integers(0, 10**6), n_classes=st.integers(2, 5), relation=st.sampled_from(RELATIONS))
def test_one_record_moves_the_moments_as_stated(seed, n_classes, relation):
    """Random rows, also opposite ones, where a swap is worst, and random class shares: at most mu = 1.3."""
    rng = np.random.default_rng(seed)
    priors = rng.dirichlet(np.full(n_classes, 0.3)) + 1e-3
    priors /= priors.sum()
    domain = Domain.from_bounds([[-1, 1]] * 2, classes=tuple(range(n_classes)), n_bins=4)
    features = RankFeatures(domain, [np.full(4, 0.25)] * 2)
    X = rng.uniform(-1, 1, (8, 2))
    X[1] = -X[0]
    codes = rng.integers(0, n_classes, len(X))

    def sides(keep):
        with pytest.MonkeyPatch.context() as patch:
            return released(
                patch,
                lambda: moments._noisy_moments(
                    without_noise(table(X[keep], codes[keep], range(n_classes)), relation), features, priors, 1.3
                ),
            )

    for i in range(1, len(X)):
        other = [0, *range(2, len(X))] if relation is ADD_REMOVE else [0, *[i] * 7]
        one = list(range(len(X))) if relation is ADD_REMOVE else [0, *[i] * 6, 0]
        assert np.linalg.norm(sides(one) - sides(other)) <= 1.3 * (1 + 1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("priors", [(0.9, 0.09, 0.01), (0.4, 0.35, 0.25)])
def test_no_pair_of_all_records_moves_the_moments_further(monkeypatch, relation, priors):
    """All 60 records of a domain with numbers and levels, and all their pairs: at most mu = 0.7."""
    attributes = [Attribute.real("a", 0, -1, 1, n_bins=4), Attribute.categorical("b", 1, ("x", "y"))]
    features = RankFeatures(Domain(attributes, classes=(0, 1, 2)), [np.array([0.7, 0.1, 0.1, 0.1]), np.full(2, 0.5)])
    values = [(a, b) for a in np.linspace(-1, 1, 10) for b in ("x", "y")]
    X = np.array(values * 3, dtype=object)
    codes = np.repeat([0, 1, 2], len(values))

    def sums(keep):
        return released(
            monkeypatch,
            lambda: moments._noisy_moments(
                without_noise(table(X[keep], codes[keep], (0, 1, 2)), relation), features, np.array(priors), 0.7
            ),
        )

    of_record = np.array([sums([i]) for i in range(len(X))]) - sums([])
    moved = of_record if relation is ADD_REMOVE else (of_record[:, None] - of_record).reshape(-1, of_record.shape[1])
    largest = np.linalg.norm(moved, axis=1).max()
    assert 0.5 * 0.7 < largest <= 0.7 * (1 + 1e-12)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5])
def test_the_moments_bound_is_reached(share):
    """Opposite rows of one label for the first case, the worst cosine of two labels for the second."""
    priors = np.array([1 - share, share])
    sigma, t, k = moments_noise(priors, 1.0, REPLACE_ONE)
    labels = np.eye(2) - priors
    q = sigma / 2
    assert t == pytest.approx(math.sqrt(2) * sigma / q)

    def moved(one, other, cosine):
        product = labels[one] @ labels[other]
        means = labels[one] @ labels[one] + labels[other] @ labels[other] - 2 * cosine * product
        counts = k**2 * np.sum((labels[one] - labels[other]) ** 2)
        return (means + counts) / sigma**2 + 2 * (1 - cosine**2) / t**2

    cosines = np.linspace(-1, 1, 20_001)
    same, cross = (max(moved(1, other, c) for c in cosines) for other in (1, 0))
    assert max(same, cross) <= 1 + 1e-9
    assert cross > 0.95 or k**2 == pytest.approx(1.25)
    assert same == pytest.approx((labels[1] @ labels[1]) / q**2, rel=0.3)


def test_the_event_is_what_was_executed_and_the_budget_is_used_up():
    X, y = records(400, np.random.default_rng(0))
    model = PrivateMomentClassifier(0.8, 1e-5, MIXED).fit(X, y)
    total = sum(1 / event.noise_multiplier**2 for event in model.guarantee_.event.events)
    assert math.sqrt(total) == pytest.approx(gaussian_mu(0.8, 1e-5), rel=1e-9)
    assert event_delta(model.guarantee_.event, 0.8, REPLACE_ONE) <= 1.01e-5
    assert "number of records public" in model.guarantee_.assumes
    added = PrivateMomentClassifier(0.8, 1e-5, MIXED, neighbouring=ADD_REMOVE).fit(X, y)
    assert "number of records public" not in added.guarantee_.assumes


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_on_the_counts_has_its_law(relation):
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, (50, 2)), np.repeat([0, 1], 25)
    fits = [PrivateMomentClassifier(1.0, 1e-5, neighbouring=relation, random_state=i).fit(X, y) for i in range(200)]
    errors = [(model.marginals_.counts[1] - 25) / model.marginals_.noise_scale for model in fits]
    assert stats.kstest(errors, "norm").pvalue > 1e-3
    first = math.sqrt(0.15) * gaussian_mu(1.0, 1e-5)
    weight = math.sqrt(0.2 if relation is ADD_REMOVE else 0.1)
    expected = 1 / (first * weight) * (1 if relation is ADD_REMOVE else math.sqrt(0.5))
    assert fits[0].marginals_.noise_scale == pytest.approx(expected)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_on_the_marginals_is_as_stated(monkeypatch, relation):
    """Of 4,000 releases of no record: standard deviations to 6 of their own, 1.1 % each, over a sensitivity of 1.3."""
    domain = Domain([Attribute.real("a", 0, 0, 1, n_bins=5), Attribute.categorical("b", 1, (1, 2, 3))])
    heights, none, rng = [], of_codes(np.zeros((0, 3), dtype=int), domain), np.random.default_rng(2)

    def keep(domain, noisy, n_records, spread):
        heights.append(np.concatenate([part for parts in noisy for part in parts]))

    monkeypatch.setattr(marginals, "denoised", keep)
    found = [noisy_marginals(Ledger(none, relation, rng), domain, 1.3) for _ in range(4000)]
    spread = marginals_sensitivity(domain, relation) / 1.3
    assert np.std(heights, axis=0) == pytest.approx(np.full(10, spread), rel=0.07)
    assert np.std([one.counts for one in found], axis=0) == pytest.approx(np.full(2, found[0].noise_scale), rel=0.07)


def test_a_published_object_does_not_tell_its_seed():
    X, y = records(100, np.random.default_rng(0))
    model = PrivateMomentClassifier(domain=MIXED, random_state=5).fit(X, y)
    assert pickle.loads(pickle.dumps(model)).random_state is None
    assert SEED_SECRET in model.guarantee_.assumes
    again = PrivateMomentClassifier(domain=MIXED, random_state=5).fit(X, y)
    assert np.array_equal(model.coef_, again.coef_)


def test_without_noise_the_marginals_are_the_data_s():
    X, y = records(300, np.random.default_rng(0))
    codes = MIXED.encode(X, y)
    found = noisy_marginals(Ledger(table(X, y, MIXED.classes), ADD_REMOVE, np.random.default_rng(0)), MIXED, 1e9)
    for j, shares in enumerate(found.cells):
        assert shares == pytest.approx(np.bincount(codes[:, j], minlength=MIXED.sizes[j]) / 300, abs=1e-6)
    assert found.counts == pytest.approx(np.bincount(codes[:, -1]), abs=1e-4)
    assert found.n_records == pytest.approx(300)


def test_with_noise_alone_the_cells_are_equal():
    """Shrinking leaves nothing of differences that are as small as their noise, and nothing in the padding."""
    codes = np.column_stack([np.tile(np.arange(6), 50), np.zeros(300, int)])
    domain = Domain([Attribute.integer("b", 0, 0, 5)])
    held = Ledger(of_codes(codes, domain), REPLACE_ONE, np.random.default_rng(3))
    cells = noisy_marginals(held, domain, 1e-3).cells[0]
    assert cells.sum() == pytest.approx(1)
    assert abs(cells - 1 / 6).max() < 0.2


def test_rows_have_unit_mean_square_under_the_marginals():
    X, y = records(4000, np.random.default_rng(0))
    codes = MIXED.encode(X, y)
    shares = [np.bincount(codes[:, j], minlength=size) / len(X) for j, size in enumerate(MIXED.sizes[:-1])]
    rows = RankFeatures(MIXED, shares).rows(X)
    assert rows.shape == (4000, 3 + 3 + 3 + 2)
    assert np.mean((rows**2).sum(axis=1)) == pytest.approx(1, rel=0.02)  # not exactly, between middles of cells
    lone = [np.eye(size)[0] for size in MIXED.sizes[:-1]]
    assert np.isfinite(RankFeatures(MIXED, lone).rows(X)).all()


@given(seed=st.integers(0, 10**6))
def test_what_is_summed_lies_in_the_ball_whatever_the_marginals_are(seed):
    """One record's own second moments: their trace is the squared length of its row."""
    rng = np.random.default_rng(seed)
    X, _ = records(1, rng)
    cells = [rng.dirichlet(np.full(size, 0.05)) for size in MIXED.sizes[:-1]]
    features = RankFeatures(MIXED, cells)
    one = without_noise(table(X, [0], (0, 1, 2)), REPLACE_ONE)
    found = moments._noisy_moments(one, features, np.full(3, 1 / 3), 1.0)
    assert np.trace(found.second) <= 1 + 1e-5


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


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_on_the_moments_is_as_stated(relation):
    """Of 4,000 releases of no record: standard deviations to 6 of their own, 1.1 % each; no two numbers go together."""
    features = RankFeatures(Domain.from_bounds([[-1, 1]], n_bins=4), [np.full(4, 0.25)])
    priors = np.array([0.7, 0.2, 0.1])
    _, t, k = moments_noise(priors, 1.0, relation)
    none = Ledger(table(np.zeros((0, 1)), [], (0, 1, 2)), relation, np.random.default_rng(1))
    found = [moments._noisy_moments(none, features, priors, 1.0) for _ in range(4000)]
    second, means, counts = (np.array([getattr(one, name) for one in found]) for name in ("second", "means", "counts"))
    assert np.array_equal(second, second.transpose(0, 2, 1))
    assert second.std(axis=0) == pytest.approx(t * (np.eye(3) + (1 - np.eye(3)) / math.sqrt(2)), rel=0.07)
    assert means.std(axis=0) == pytest.approx(found[0].noise_scale, rel=0.07)
    assert counts.std(axis=0) == pytest.approx(found[0].noise_scale / k, rel=0.07)
    numbers = [second[:, 0, 0], second[:, 0, 1], second[:, 1, 2], means[:, 0, 0], means[:, 0, 1], counts[:, 0]]
    assert abs(np.corrcoef(numbers) - np.eye(6)).max() < 0.1


def test_shapes_add_up_to_the_log_odds_and_show_their_noise():
    X, y = records(2000, np.random.default_rng(0))
    y[X[:, 0] > 0.5] = "yes"
    fits = [PrivateMomentClassifier(2.0, 1e-5, MIXED, random_state=i).fit(X, y) for i in range(60)]
    model = fits[0]
    middle = np.array([[-0.875, 2, "green", 0, 1]], dtype=object)
    total = sum(s.log_odds[:, i] for s, i in zip(model.shapes_, (0, 2, 1, 1), strict=True))
    total = model.intercept_ + total / max(1, np.linalg.norm(model.features_.rows(middle)))
    assert model.decision_function(middle)[0] == pytest.approx(total)
    first = [fit.shapes_[0] for fit in fits]
    assert first[0].name == "a"
    assert first[0].log_odds[2, -1] > first[0].log_odds[2, 0]
    seen = np.std([shape.log_odds[0, 4] / np.linalg.norm(shape.log_odds[0]) for shape in first])
    stated = np.mean([shape.noise_scale[0, 4] / np.linalg.norm(shape.log_odds[0]) for shape in first])
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
        ({"marginals_share": 1.0}, "^marginals_share must"),
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
        assert one.marginals_.n_records == plain.marginals_.n_records
        np.testing.assert_allclose(one.coef_, plain.coef_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.marginals_.counts, plain.marginals_.counts, rtol=1e-9)
    assert plain.guarantee_.unit == "record"


@pytest.mark.parametrize("relation", RELATIONS)
@given(st.integers(0, 10_000))
def test_a_person_moves_no_more_than_a_row_does(relation, seed):
    """A person of up to five rows with any labels, beside two others: both releases, in units of what is billed."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_bounds([[-1, 1]] * 2, n_bins=8)
    features = RankFeatures(domain, [rng.dirichlet(np.ones(8)) for _ in range(2)])
    priors = np.array([0.8, 0.2])

    def rows(count):
        # Extreme rows, and copies of one, move the most.
        return np.repeat(rng.choice([-1.0, -0.9, 0.9, 1.0], (1, 2)), count, axis=0), rng.integers(0, 2, count)

    def asked(persons):
        X, y = (np.concatenate(part) for part in zip(*persons, strict=True))
        weights = np.concatenate([np.full(len(labels), 1 / len(labels)) for _, labels in persons])
        sizes = np.bincount(y, weights, minlength=2)
        records = moments.Table([moments.Block(moments.Rows(X), y, weights)], (len(persons), 2), sizes)
        found = []
        seen = Ledger(records, relation, np.random.default_rng(0))

        def gaussian(query, sensitivity, noise_multiplier, units=1.0):
            exact = query(records)
            scales = units if isinstance(units, tuple) else [units] * len(exact)
            parts = [np.ravel(part / unit) / sensitivity for part, unit in zip(exact, scales, strict=True)]
            found.append(np.concatenate(parts))
            return exact

        seen.gaussian = gaussian
        noisy_marginals(seen, domain, 1.0)
        moments._noisy_moments(seen, features, priors, 1.0)
        return found

    others = [rows(1), rows(3)]
    here = [*others, rows(int(rng.integers(1, 6)))]
    there = [*others, rows(int(rng.integers(1, 6)))] if relation is REPLACE_ONE else others
    for one, other in zip(asked(here), asked(there), strict=True):
        assert np.linalg.norm(one - other) <= 1 + 1e-9


def test_where_nobody_knows_whose_rows_they_are_the_noise_is_for_all_that_a_person_may_have():
    X, y = np.random.default_rng(0).uniform(-1, 1, (50, 2)), np.tile([0, 1], 25)
    one, four = (PrivateMomentClassifier(1.0, 1e-4, rows_per_person=k).fit(X, y) for k in (1, 4))
    assert four.marginals_.noise_scale == pytest.approx(4 * one.marginals_.noise_scale)
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
