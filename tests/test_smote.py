"""SMOTE: nearest neighbours with a sound tie rule, brute-force counts of changed rows, guarantees for all learners."""

import dataclasses
import itertools
import math
import pickle
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from imblearn.over_sampling import SMOTE
from scipy.sparse import csr_matrix
from scipy.stats import binom, binomtest
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import get_tags

from checks import arrangements
from checks.smote import multiclass_changed_rows
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    SEED_SECRET,
    Guarantee,
    PrivacyLeakWarning,
)
from helpers.resampling import kissing, smote
from helpers.resampling.smote import (
    BASES,
    StableSMOTE,
    amplification,
    changed_rows,
    in_degree_bound,
    in_degrees,
    inner_epsilon,
    neighbour_lists,
)

RELATIONS = [ADD_REMOVE, REPLACE_ONE]
SEEDS = st.integers(0, 2**32 - 1)


def roots(d):
    """Integer vectors of equal length, pairwise at 60 degrees or more: exact ties, exactly computed.

    For d = 1, 3, 4 optimal kissing configurations; for d = 2 the hexagon, in a plane of three dimensions.
    """
    if d == 1:
        return np.array([[1], [-1]])
    if d == 2:
        return np.array(list(itertools.permutations([1, -1, 0])))
    vectors = [
        [a if i == first else b if i == second else 0 for i in range(d)]
        for first, second in itertools.combinations(range(d), 2)
        for a, b in itertools.product([1, -1], repeat=2)
    ]
    return np.array(vectors)


# --- nearest neighbours ---


def lists_by_definition(X, k, jitter=None):
    """All distances in integers: those of the points moved by jitter / 10^9 along the first coordinate."""
    X, scale = X.astype(object), 10**9
    moved = X * scale
    if jitter is not None:
        moved[:, 0] += jitter.astype(object)
    lists = []
    for i, point in enumerate(moved):
        squared = ((moved - point) ** 2).sum(axis=1)
        lists.append(sorted((j for j in range(len(X)) if j != i), key=lambda j: (squared[j], j))[:k])
    return np.array(lists)


@given(SEEDS, st.integers(1, 3), st.integers(1, 6), st.integers(8, 40), st.booleans())
def test_neighbour_lists_are_those_of_slightly_moved_points(seed, d, k, n, jittered):
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (n, d))  # many ties, many coincident points
    jitter = rng.permutation(1000)[:n] if jittered else None
    np.testing.assert_array_equal(neighbour_lists(X, k, jitter=jitter), lists_by_definition(X, k, jitter))


def test_neighbour_lists_do_not_trust_rounded_inner_products():
    """Far from the origin the usual shortcut |a|^2 + |b|^2 - 2ab loses all digits."""
    X = np.random.default_rng(0).integers(-50, 51, (300, 20))
    np.testing.assert_array_equal(neighbour_lists(X + 2.0**30, 5), lists_by_definition(X, 5))


class RoundingSearch:
    """A search whose squared distances are off by nearly as much as `neighbour_lists` allows for, either way."""

    def __init__(self, n_neighbors):
        self.n_neighbors = n_neighbors

    def fit(self, X):
        self.X = X
        return self

    def kneighbors(self, X):
        squared = np.square(X[:, np.newaxis] - self.X).sum(axis=2)
        allowed = 16 * (X.shape[1] + 8) * np.finfo(float).eps * np.square(X).sum(axis=1).max()
        squared += np.random.default_rng(0).choice([0, 0.99 * allowed], squared.shape)
        found = np.argsort(squared, axis=1)[:, : self.n_neighbors]
        return np.sqrt(np.take_along_axis(squared, found, axis=1)), found


@pytest.mark.parametrize(("d", "width"), [*itertools.product([2, 100], [1e-7, 4e-7, 1e-6]), (1000, 4e-6)])
@pytest.mark.parametrize("k", [1, 3, 8, 40])
def test_neighbour_lists_are_exact_whatever_a_search_within_its_error_leaves_out(monkeypatch, d, width, k):
    """A hundred points so near to one another that the search confuses them, far from the origin."""
    X = 1 / np.sqrt(d) + width * np.random.default_rng(1).normal(size=(100, d)) / np.sqrt(d)
    whole = np.round(X * 2.0**60).astype(np.int64)  # the same points in integers
    monkeypatch.setattr(smote, "NearestNeighbors", RoundingSearch)
    np.testing.assert_array_equal(neighbour_lists(X, k), lists_by_definition(whole, k))


def test_the_error_that_a_search_may_make_is_allowed_for_in_full(monkeypatch):
    """The nearest neighbour is left out for others that seem nearer by nearly all of the allowed error."""
    allowed = 16 * (2 + 8) * np.finfo(float).eps
    squared = 1e-14 + allowed * np.array([0.0, 0.02, 0.98, 0.98, 0.98])
    angles = np.arange(5) * 2 * np.pi / 5
    X = np.vstack([np.zeros((1, 2)), np.sqrt(squared)[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])])
    X[:, 0] += 1

    class Search(RoundingSearch):
        def kneighbors(self, X):
            found = np.tile([0, 2, 3, 4], (len(X), 1))
            return np.sqrt(np.square(X[:, np.newaxis] - X[found]).sum(axis=2)), found

    monkeypatch.setattr(smote, "NearestNeighbors", Search)
    assert neighbour_lists(X, 1)[0] == 1


def test_the_smallest_differences_count():
    assert neighbour_lists([[0.0], [1e-140], [3e-140], [1e-3]], 1).ravel().tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("k", [0, 3])
def test_as_many_neighbours_as_there_are_others(k):
    with pytest.raises(ValueError, match=r"k must be an integer in \[1, 2\]"):
        neighbour_lists([[0.0], [1.0], [3.0]], k)
    with pytest.raises(ValueError, match=r"k must be an integer in \[1, 2\]"):
        in_degree_bound(2, k, 3)
    with pytest.raises(ValueError, match="must be an integer"):
        in_degree_bound(0, 1, 3)
    assert in_degree_bound(25, 2, 3) == 2


@pytest.mark.parametrize(("scale", "outlier"), [(1e200, 1e230), (1e-200, 1e-170), (1e-320, 1.0)])
def test_extreme_coordinates_do_not_make_a_hub(scale, outlier):
    """Squares that overflow or vanish must not make distinct points coincide."""
    rng = np.random.default_rng(1)
    X, jitter = rng.random((60, 1)) * scale, rng.random(60)
    X[0] = outlier
    lists = neighbour_lists(X, 1, jitter=jitter)
    assert in_degrees(X, 1, jitter=jitter).max() <= in_degree_bound(1, 1, 60)
    assert (lists[:, 0] != np.arange(60)).all()


def test_coincident_points_break_the_lemma_in_the_usual_libraries():
    X = np.zeros((500, 2))
    bound = in_degree_bound(2, 1, 500)
    listed = NearestNeighbors(n_neighbors=1).fit(X).kneighbors(return_distance=False)
    assert np.bincount(listed.ravel()).max() == 499 > bound
    assert in_degrees(X, 1).max() == 499
    assert in_degrees(X, 1, jitter=np.random.default_rng(0).random(500)).max() <= 2


@pytest.mark.parametrize("k", [1, 2, 5, 10])
@pytest.mark.parametrize(("d", "number"), [(1, 2), (2, 6), (3, 12), (4, 24)])
def test_kissing_configurations_attain_the_bound(d, number, k):
    configuration = roots(d)
    assert len(configuration) == number == kissing.bounds(d).lower
    X = np.vstack([np.zeros((1, configuration.shape[1])), np.repeat(configuration, k, axis=0)])
    assert in_degrees(X, k)[0] == k * number == in_degree_bound(d, k, 10**6)
    assert in_degree_bound(d, k, len(X)) == len(X) - 1


@pytest.mark.parametrize("k", [1, 3])
def test_jittered_icosahedra_attain_the_bound_without_ties(k):
    rng = np.random.default_rng(k)
    copies = np.repeat(arrangements.configuration(3), k, axis=0) * (1 + 1e-3 * rng.random((12 * k, 1)))
    far = 100 + rng.random((20, 3))
    X = np.vstack([np.zeros((1, 3)), copies, far])
    assert in_degrees(X, k, jitter=rng.random(len(X)))[0] == 12 * k == in_degree_bound(3, k, len(X))


def cloud(rng, d, n):
    """Distinct integer points around the origin, which comes first and so wins all ties."""
    shells = np.vstack([size * roots(d) for size in (1, 2, 3)]) if d != 2 else np.empty((0, 2), dtype=int)
    scattered = rng.integers(-3, 4, (n, d))
    points = np.unique(np.vstack([shells, scattered]), axis=0)
    points = points[np.any(points != 0, axis=1)]
    return np.vstack([np.zeros((1, d), dtype=int), points[rng.permutation(len(points))[:n]]])


@given(SEEDS, st.integers(1, 8), st.integers(1, 10), st.integers(12, 400))
def test_no_distinct_points_exceed_the_bound(seed, d, k, n):
    X = cloud(np.random.default_rng(seed), d, n)
    k = min(k, len(X) - 1)
    assert in_degrees(X, k).max() <= in_degree_bound(d, k, len(X))


@given(SEEDS, st.integers(1, 3), st.integers(1, 4), st.integers(10, 120))
def test_jitter_rescues_coincident_points(seed, d, k, n):
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (n, d)) * (rng.random((n, 1)) < rng.random())
    assert in_degrees(X, k, jitter=rng.random(n)).max() <= in_degree_bound(d, k, n)


# --- counts: neighbouring data sets, exhaustively compared ---


def minority_sets(rng, kind, d, n):
    """n points, and two more places for the changed record."""
    shape = np.vstack([np.zeros((1, d)), roots(d) if d != 2 else arrangements.configuration(2)])
    if kind == "configurations":  # two of them far apart: leaving one centre for the other changes both
        copies = -(-n // (2 * (len(shape) - 1)))
        around = np.repeat(shape[1:], copies, axis=0) * (1 + 0.01 * rng.random((copies * (len(shape) - 1), 1)))
        points = np.vstack([around, around + 50.0])
        points = points[np.sort(rng.permutation(len(points))[:n])]
        return points, np.zeros(d), np.full(d, 50.0)
    if kind == "coincident":
        return np.zeros((n, d)), np.zeros(d), np.ones(d)
    if kind == "lattice":
        points = rng.integers(-2, 3, (n + 2, d)).astype(float)
    else:
        centres = 20 * rng.normal(size=(3, d))
        points = centres[rng.integers(3, size=n + 2)] + rng.normal(size=(n + 2, d))
    return points[:n], points[n], points[n + 1]


def neighbouring_minorities(rng, kind, d, n, relation):
    """Two (ids, points, jitter) in row order; ids from n on belong to the changed record."""
    points, here, there = minority_sets(rng, kind, d, n)
    ids, jitter, place = np.arange(n), rng.random(n), rng.integers(n + 1)
    own = rng.random()

    def put(name, point):
        return np.insert(ids, place, name), np.insert(points, place, point, axis=0), np.insert(jitter, place, own)

    if relation == "replaced":
        return put(n, here), put(n + 1, there)
    return (ids, points, jitter), put(n, here)


def id_lists(minority, k):
    ids, points, jitter = minority
    lists = ids[neighbour_lists(points, k, jitter=jitter)]
    return dict(zip(ids.tolist(), lists.tolist(), strict=True))


def compare(first, second, k, n_new):
    """Rows that cannot be matched, matched rows with a different list, and the number of different lists."""
    uses = [Counter(np.resize(ids, n_new).tolist()) for ids, _, _ in (first, second)]
    lists = [id_lists(minority, k) for minority in (first, second)]
    matched = uses[0] & uses[1]
    common = lists[0].keys() & lists[1].keys()
    differ = [i for i in common if set(lists[0][i]) != set(lists[1][i])]
    for i in differ:
        assert len(set(lists[0][i]) - set(lists[1][i])) == 1
    return n_new - matched.total(), sum(matched[i] for i in differ), len(differ)


CASES = [(ADD_REMOVE, "inserted"), (REPLACE_ONE, "inserted"), (REPLACE_ONE, "replaced")]


@given(
    SEEDS,
    st.sampled_from(CASES),
    st.sampled_from(["configurations", "coincident", "lattice", "clusters"]),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 150),
    st.data(),
)
def test_changed_rows_are_never_more_than_claimed(seed, case, kind, d, k, n_new, data):
    (relation, change), n = case, data.draw(st.integers(k + 1, 60))
    first, second = neighbouring_minorities(np.random.default_rng(seed), kind, d, n, change)
    smaller = min(len(first[0]), len(second[0]))
    unmatched, exposed, lists = compare(first, second, k, n_new)
    own = int(relation == REPLACE_ONE)  # the changed record's own row
    floor = data.draw(st.integers(k + 1, smaller))
    claimed = changed_rows(d=d, k=k, n_minority=floor, n_new=n_new, neighbouring=relation)
    # These two together say that the claimed law is stochastically larger.
    assert own + unmatched <= claimed.certain
    assert own + unmatched + exposed <= claimed.maximum
    claimed = changed_rows(d=d, k=k, n_minority=floor, n_new=n_new, neighbouring=relation, bases="random")
    larger = len(second[0])
    assert own == claimed.certain
    assert (1 + lists / k) / larger <= claimed.probability * (1 + 1e-12)


@pytest.mark.parametrize(("relation", "change"), CASES[::2])
@pytest.mark.parametrize("n_new", [0, 7, 40, 90])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_changed_rows_are_attained_on_the_line(relation, change, k, n_new):
    """Copies of {-1, 1} around two centres; the changed record comes first, so that it is a base most often."""
    copies = np.repeat([[-1.0], [1.0], [99.0], [101.0]], k, axis=0) * (1 + 1e-6 * np.arange(4 * k)[:, np.newaxis])
    far = 1000.0 + 10 * np.arange(8)[:, np.newaxis]
    points = np.vstack([copies, far])
    jitter = np.random.default_rng(0).random(len(points) + 1)
    ids = np.arange(len(points))

    def put(name, place):
        return np.insert(ids, 0, name), np.vstack([[[place]], points]), jitter

    before = put(97, 0.0) if change == "replaced" else (ids, points, jitter[1:])
    after = put(98, 100.0) if change == "replaced" else put(98, 0.0)
    unmatched, exposed, lists = compare(before, after, k, n_new)
    own = int(relation == REPLACE_ONE)
    claimed = changed_rows(d=1, k=k, n_minority=len(before[0]), n_new=n_new, neighbouring=relation)
    assert lists == (4 * k if change == "replaced" else 2 * k)
    assert own + unmatched == claimed.certain
    assert own + unmatched + exposed == claimed.maximum


@given(seed=SEEDS, d=st.integers(1, 3), k=st.integers(1, 3), n=st.integers(5, 12), more=st.integers(0, 25))
def test_moving_between_classes_changes_the_rows_of_both(seed, d, k, n, more):
    """A record leaves one class and enters another: what happens in both is covered by the law of several classes."""
    rng = np.random.default_rng(seed)
    sides = [neighbouring_minorities(rng, "configurations", d, n, "inserted") for _ in range(2)]
    unmatched = uncertain = 0
    for smaller, larger in sides:
        own, matched, _ = compare(smaller, larger, k, more)
        unmatched, uncertain = unmatched + own, uncertain + matched
    claimed = multiclass_changed_rows(d=d, k=k, n_records=[n, n], n_new=[more, more], neighbouring=REPLACE_ONE)
    assert 1 + unmatched <= claimed.certain
    assert 1 + unmatched + uncertain <= claimed.maximum


def test_several_classes_need_more_than_the_largest_of_them():
    def law(n_new, relation):
        return multiclass_changed_rows(d=2, k=2, n_records=[50, 40, 30], n_new=n_new, neighbouring=relation)

    one_by_one = [changed_rows(d=2, k=2, n_minority=n, n_new=100, neighbouring=ADD_REMOVE) for n in (50, 40, 30)]
    everything = law([100, 100, 100], ADD_REMOVE)
    assert everything.maximum == max(rows.maximum for rows in one_by_one)
    both = law([100, 100, 100], REPLACE_ONE)
    assert both.certain == 1 + one_by_one[1].certain + one_by_one[2].certain
    assert both.maximum >= 1 + one_by_one[1].maximum + one_by_one[2].maximum > 1 + everything.maximum
    # One class resampled: the case of `changed_rows`, where a flip is no worse than a replacement.
    alone = changed_rows(d=2, k=2, n_minority=30, n_new=100, neighbouring=REPLACE_ONE)
    assert law([0, 0, 100], REPLACE_ONE) == dataclasses.replace(alone, assumes=law([0, 0, 100], REPLACE_ONE).assumes)


@pytest.mark.parametrize("n_new", [[10], [10, 10, 10]])
def test_classes_must_match(n_new):
    with pytest.raises(ValueError, match="zip"):
        multiclass_changed_rows(d=2, k=2, n_records=[50, 40], n_new=n_new, neighbouring=REPLACE_ONE)


def test_a_naive_jitter_for_neighbours_would_not_do():
    """A priority of each neighbour, instead of a place for each point: all coincident points choose the same one."""
    priority = np.random.default_rng(0).random(30)
    best, second = np.argsort(priority)[:2]
    chosen = np.where(np.arange(30) == best, second, best)
    assert np.bincount(chosen).max() == 29 > in_degree_bound(2, 1, 30)


# --- counts: SMOTE itself, run with coupled randomness ---


def algorithm_2(minority, k, n_new, draws, slots):
    """The paper's Algorithm 2, its randomness a function of the base record and of how often it was used before."""
    ids, points, _ = minority
    place = {name: row for row, name in enumerate(ids.tolist())}
    rows, used = [], Counter()
    for t in range(n_new):
        base = int(ids[t % len(ids)])
        turn, used[base] = used[base], used[base] + 1
        slot, u = draws(base, turn)
        x, neighbour = points[place[base]], points[place[slots[base][slot]]]
        rows.append(tuple((1 - u) * neighbour + u * x))
    return rows


def aligned_lists(first, second, k):
    """Lists in an order that puts shared neighbours into the same slots."""
    here, there = id_lists(first, k), id_lists(second, k)
    for i in here.keys() & there.keys():
        incoming = iter([name for name in there[i] if name not in here[i]])
        there[i] = [name if name in there[i] else next(incoming) for name in here[i]]
    return here, there


def changed(first, second):
    return (Counter(first) - Counter(second)).total()


def around_icosahedron(k):
    """k jittered icosahedra and some points far away, without and with a record at the centre; no ties."""
    rng = np.random.default_rng(k)
    copies = np.repeat(arrangements.configuration(3), k, axis=0) * (1 + 1e-3 * rng.random((12 * k, 1)))
    points = np.vstack([copies, 100 + rng.random((8, 3))])
    ids, jitter = np.arange(len(points)), rng.random(len(points) + 1)
    larger = (np.append(ids, len(ids)), np.vstack([points, np.zeros((1, 3))]), jitter)
    return (ids, points, jitter[:-1]), larger


def assert_dominated(counts, claimed):
    """No count above the maximum, and no more exceedances of a quantile than its probability allows."""
    assert max(counts) <= claimed.maximum
    for tail in (0.5, 0.1, 0.01):
        quantile = claimed.certain + binom.isf(tail, claimed.trials, claimed.probability)
        exceeded = sum(count > quantile for count in counts)
        assert binomtest(exceeded, len(counts)).proportion_ci(0.999, method="exact").low <= tail


@pytest.mark.parametrize(("k", "n_new"), [(1, 50), (3, 100)])
def test_algorithm_2_changes_as_many_rows_as_claimed(k, n_new):
    first, second = around_icosahedron(k)
    here, there = aligned_lists(first, second, k)
    rng, counts = np.random.default_rng(0), []
    for _ in range(150):
        table = {}

        def draws(base, turn, table=table):
            return table.setdefault((base, turn), (rng.integers(k), rng.random(3)))

        counts.append(changed(algorithm_2(first, k, n_new, draws, here), algorithm_2(second, k, n_new, draws, there)))
    claimed = changed_rows(d=3, k=k, n_minority=len(first[0]), n_new=n_new, neighbouring=ADD_REMOVE)
    assert_dominated(counts, claimed)
    # The record comes last, so that it is a base once less than it could be: the mean is nearly that of the claim.
    assert np.mean(counts) > claimed.mean - 1.5


class Rigged(np.random.RandomState):
    """Hands out prepared draws."""

    def prepare(self, integers, steps):
        self.integers, self.steps = integers, steps
        return self

    def randint(self, low=0, high=None, size=None, dtype=int):
        return self.integers

    def uniform(self, low=0.0, high=1.0, size=None):
        return self.steps


def imbalanced_learn(minority, k, integers, steps):
    """The new rows of imbalanced-learn's SMOTE, its choices (base k + slot) given."""
    points = minority[1]
    majority = np.full((len(points) + len(steps), points.shape[1]), 1e6)
    X, y = np.vstack([points, majority]), np.repeat([1, 0], [len(points), len(majority)])
    sampler = SMOTE(k_neighbors=k, random_state=Rigged(0).prepare(integers, steps))
    return [tuple(row) for row in sampler.fit_resample(X, y)[0][len(X) :]]


@pytest.mark.parametrize(("k", "n_new"), [(1, 60), (3, 150)])
def test_imbalanced_learn_changes_as_many_rows_as_claimed(k, n_new):
    first, second = around_icosahedron(k)
    plain = id_lists(first, k), id_lists(second, k)
    here, there = aligned_lists(first, second, k)
    rng, n, counts = np.random.default_rng(1), len(second[0]), []
    # Where in imbalanced-learn's own list (nearest first) the neighbour of an aligned slot is.
    own_slot = [
        np.array([[plain[side][i].index(name) for name in lists[i]] for i in sorted(lists)])
        for side, lists in enumerate((here, there))
    ]
    for _ in range(150):
        base, slot, steps = rng.integers(n, size=n_new), rng.integers(k, size=n_new), rng.random(n_new)
        smaller = np.where(base == n - 1, rng.integers(n - 1, size=n_new), base)
        choices = smaller * k + own_slot[0][smaller, slot], base * k + own_slot[1][base, slot]
        counts.append(
            changed(imbalanced_learn(first, k, choices[0], steps), imbalanced_learn(second, k, choices[1], steps))
        )
    sizes = {"d": 3, "k": k, "n_minority": n - 1, "n_new": n_new}
    claimed = changed_rows(neighbouring=ADD_REMOVE, bases="random", **sizes)
    assert_dominated(counts, claimed)
    assert binomtest(sum(counts), n_new * len(counts), claimed.probability).pvalue > 1e-3  # attained


# --- guarantees ---


@given(
    st.integers(1, 6),
    st.integers(1, 10),
    st.integers(0, 3000),
    st.sampled_from(RELATIONS),
    st.sampled_from(BASES),
    st.data(),
)
def test_a_lower_floor_is_never_better(d, k, n_new, relation, bases, data):
    floor = data.draw(st.integers(k + 1, 300))
    sizes = {"d": d, "k": k, "n_new": n_new, "neighbouring": relation, "bases": bases}
    low, high = (changed_rows(n_minority=n, **sizes) for n in (floor, floor + data.draw(st.integers(1, 50))))
    assert low.certain >= high.certain
    assert low.maximum >= high.maximum
    assert low.log_mean(0.3) >= high.log_mean(0.3) * (1 - 1e-12)
    assert low.certain + low.trials <= n_new + (relation == REPLACE_ONE)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("bases", BASES)
@pytest.mark.parametrize("delta", [None, 1e-6])
def test_inner_epsilon_inverts(relation, bases, delta):
    law = {"d": 3, "k": 5, "n_minority": 100, "n_new": 250, "neighbouring": relation, "bases": bases}
    inner = inner_epsilon(1.0, delta=delta, **law)
    assert amplification(inner, delta=delta, **law).epsilon <= 1.0
    assert amplification(inner * 1.001, delta=delta, **law).epsilon > 1.0


def test_a_learners_delta_may_take_more_than_there_is():
    law = {"d": 3, "k": 5, "n_minority": 100, "n_new": 250, "neighbouring": REPLACE_ONE}
    assert amplification(Guarantee(1.0, 1e-7, REPLACE_ONE), delta=1e-6, **law).epsilon == math.inf


def test_amplification_says_what_it_assumes():
    sizes = {"d": 6, "k": 5, "n_minority": 200, "n_new": 400, "neighbouring": ADD_REMOVE}
    learner = Guarantee(0.1, 0.0, ADD_REMOVE, assumes=("norm bound (radius) public",), source="a paper")
    guarantee = amplification(learner, **sizes)
    assert guarantee.neighbouring == ADD_REMOVE
    text = "; ".join(guarantee.assumes)
    for part in ("radius", "200 minority", "6 features", "5 neighbours", "400 new", "jitter", "secret", "order"):
        assert part in text
    assert guarantee.source.startswith("a paper; ")
    assert guarantee.epsilon == amplification(0.1, **sizes).epsilon


def test_large_numbers_are_fast():
    began = time.process_time()
    amplification(0.01, d=10, k=5, n_minority=1000, n_new=100_000, neighbouring=REPLACE_ONE, delta=1e-8)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": 0}, "d(imension)? must be"),
        ({"k": 0}, r"k must be an integer in \[1, 19\], got 0"),
        ({"k": 20}, r"k must be an integer in \[1, 19\], got 20"),
        ({"n_minority": 1}, "n_minority must be"),
        ({"n_new": -1}, "n_new must be"),
        ({"n_new": 1.5}, "n_new must be"),
        ({"neighbouring": "add"}, "neighbouring must be"),
        ({"bases": "any"}, "bases must be"),
        ({"delta": 0.0}, "delta must be"),
    ],
)
def test_bad_parameters(change, message):
    good = {"d": 2, "k": 5, "n_minority": 20, "n_new": 10, "neighbouring": REPLACE_ONE}
    for function in (amplification, inner_epsilon):
        with pytest.raises(ValueError, match=message):
            function(1.0, **(good | change))


def test_bad_learners():
    sizes = {"d": 2, "k": 5, "n_minority": 20, "n_new": 10}
    with pytest.raises(ValueError, match="neighbouring"):
        amplification(Guarantee(1.0, 0.0, ADD_REMOVE), neighbouring=REPLACE_ONE, **sizes)
    with pytest.raises(ValueError, match=r"epsilon must be a finite number in \[0"):
        amplification(-0.5, neighbouring=REPLACE_ONE, **sizes)
    with pytest.raises(ValueError, match="jitter must hold 3 distinct"):
        neighbour_lists(np.zeros((3, 1)), 1, jitter=[0.1, 0.1, 0.2])


# --- the resampler ---


def two_classes(n_minority, n_majority, d, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([1, 0], [n_minority, n_majority]))
    return rng.normal(size=(n_minority + n_majority, d)) + y[:, np.newaxis], y


def choices(sampler, X, y):
    """Rows of X behind each new row: bases, and their neighbours."""
    with pytest.warns(PrivacyLeakWarning):
        sampler.set_params(diagnostics=True).fit_resample(X, y)
    return sampler.diagnostics_


@pytest.mark.parametrize("bases", BASES)
def test_new_records_lie_between_a_base_and_its_neighbours(bases):
    X, y = two_classes(15, 40, 3)
    sampler = StableSMOTE(100, k=4, n_minority=10, bases=bases, diagnostics=True)
    with pytest.warns(PrivacyLeakWarning, match="diagnostics_ holds private choices"):
        X_new, y_new = sampler.fit_resample(X, y)
    bases_of, neighbours_of = sampler.diagnostics_["base_indices"], sampler.diagnostics_["neighbour_indices"]
    np.testing.assert_array_equal(X_new[: len(X)], X)
    np.testing.assert_array_equal(y_new, np.concatenate([y, np.ones(100, dtype=int)]))
    members = np.flatnonzero(y == 1)
    lists = members[lists_by_definition((X[members] * 1e6).round(), 4)]
    base, neighbour, new = X[bases_of], X[neighbours_of], X_new[len(X) :]
    for i, j in zip(bases_of, neighbours_of, strict=True):
        assert j in lists[np.flatnonzero(members == i)[0]]
    if bases == "cyclic":
        np.testing.assert_array_equal(bases_of, np.resize(members, 100))
    weights = (new - neighbour) / (base - neighbour)
    assert np.all((weights >= 0) & (weights <= 1))
    assert not np.allclose(weights, weights[:, :1])  # one for each coordinate


def test_neighbours_and_random_bases_are_uniform():
    X, y = two_classes(8, 0, 2)
    found = choices(StableSMOTE(8000, k=4, n_minority=8, bases="random", random_state=1), X, y)
    pairs = Counter(zip(*(rows.tolist() for rows in found.values()), strict=True))
    assert len(pairs) == 32
    for count in pairs.values():
        assert binomtest(count, 8000, 1 / 32).pvalue > 1e-5


def test_stability_of_the_resampler_is_that_of_the_theorem():
    X, y = two_classes(30, 50, 3)
    sizes = {"n_new": 70, "k": 5}
    for relation, bases in itertools.product(RELATIONS, BASES):
        sampler = StableSMOTE(**sizes, n_minority=25, neighbouring=relation, bases=bases)
        sampler.fit_resample(X, y)
        assert sampler.stability_ == changed_rows(d=3, n_minority=25, neighbouring=relation, bases=bases, **sizes)


def test_the_least_numbers_are_allowed_and_five_neighbours_are_usual():
    X, y = two_classes(6, 4, 2)
    X_new, _ = StableSMOTE(0, n_minority=6).fit_resample(X, y)
    assert np.array_equal(X_new, X)
    assert StableSMOTE(0, k=1, n_minority=2).fit(X, y).stability_.maximum >= 1
    assert StableSMOTE(0, n_minority=6).k == 5


def test_no_records_at_all_are_no_error():
    X_new, y_new = StableSMOTE(6, n_minority=10, neighbouring=ADD_REMOVE).fit_resample(np.empty((0, 2)), np.empty(0))
    assert (X_new.shape, y_new.shape) == ((0, 2), (0,))


@pytest.mark.parametrize(("n_minority", "expected"), [(0, 0), (1, 6), (2, 6), (4, 6)])
def test_too_few_minority_records_are_no_error(n_minority, expected):
    X, y = two_classes(n_minority, 20, 2)
    X_new, y_new = StableSMOTE(6, k=5, n_minority=10, random_state=0).fit_resample(X, y)
    assert len(X_new) == len(X) + expected
    assert np.sum(y_new == 1) == n_minority + expected
    if n_minority == 1:
        np.testing.assert_allclose(X_new[len(X) :], np.repeat(X[y == 1], 6, axis=0))


def test_coincident_minority_records_are_no_hub():
    """A record among 200 copies of itself: nobody's list depends on it more than the bound allows."""
    X, y = np.zeros((200, 2)), np.ones(200, dtype=int)
    found = choices(StableSMOTE(40_000, k=1, n_minority=200, random_state=0), X, y)
    listed = dict(zip(*found.values(), strict=True))
    assert max(Counter(listed.values()).values()) <= 2


def test_the_same_seed_gives_the_same_records():
    X, y = two_classes(12, 10, 2)
    first, second = (StableSMOTE(20, k=3, n_minority=9, random_state=7).fit_resample(X, y)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = StableSMOTE(20, k=3, n_minority=9, random_state=8).fit_resample(X, y)[0]
    assert not np.array_equal(first, other)


def test_sparse_rows_are_refused_and_the_tag_says_so():
    sampler = StableSMOTE(20, k=3, n_minority=9)
    assert not get_tags(sampler).input_tags.sparse
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        sampler.fit_resample(csr_matrix(np.eye(4)), [0, 0, 1, 1])


def test_what_a_fitted_sampler_shows():
    """Its choices are not on it; a pickle has no seed, and the stability says that there was one."""
    X, y = two_classes(12, 10, 2)
    sampler = StableSMOTE(20, k=3, n_minority=9, random_state=7).fit(X, y)
    assert set(vars(sampler)) == {*sampler.get_params(), "n_features_in_", "stability_"}
    X_new, _ = sampler.fit_resample(X, y)
    assert set(vars(sampler)) == {*sampler.get_params(), "n_features_in_", "stability_"}
    assert SEED_SECRET in sampler.stability_.assumes
    published = pickle.loads(pickle.dumps(sampler))
    assert published.random_state is None
    other, _ = published.fit_resample(X, y)
    assert not np.array_equal(X_new, other)
    assert SEED_SECRET not in published.stability_.assumes
    choices(sampler, X, y)
    assert "diagnostics_ not published" in sampler.stability_.assumes
    sampler.set_params(diagnostics=False).fit_resample(X, y)
    assert not hasattr(sampler, "diagnostics_")


def test_choices_are_unrelated_on_neighbouring_data():
    """One seed, one record changed: the draws have nothing in common, so that their difference tells nothing."""
    X, y = two_classes(400, 0, 2)
    changed_record = X.copy()
    changed_record[0] += 1.0
    sampler = StableSMOTE(4000, k=5, n_minority=300, bases="random", random_state=7)
    first, second = (choices(sampler, data, y)["base_indices"] for data in (X, changed_record))
    assert np.mean(first == second) < 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_new": 5, "diagnostics": "no"}, "diagnostics must be True or False, got 'no'"),
        ({"n_new": 5, "random_state": np.random.default_rng(0)}, "random_state must be None or an integer"),
        ({"n_new": -1}, "n_new must be"),
        ({"n_new": 5, "k": 0}, "k must be"),
        ({"n_new": 5, "k": 5, "n_minority": 5}, r"k must be an integer in \[1, 4\], got 5"),
        ({"n_new": 5, "bases": "all"}, "bases must be"),
        ({"n_new": 5, "neighbouring": None}, "neighbouring must be"),
    ],
)
def test_bad_options_are_refused_before_the_data(options, message):
    for method in ("fit", "fit_resample"):
        with pytest.raises(ValueError, match=message):
            getattr(StableSMOTE(**{"n_minority": 10} | options), method)(None, None)


def test_features_must_be_numbers():
    with pytest.raises(ValueError, match="could not convert string to float"):
        StableSMOTE(5, n_minority=10).fit_resample([["a"], ["b"]], [0, 1])
    with pytest.raises(ValueError, match="NaN"):
        StableSMOTE(5, n_minority=10).fit_resample([[np.nan], [1.0]], [0, 1])
