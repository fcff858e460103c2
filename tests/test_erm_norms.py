"""Noise shaped like the rows: the body's norm and sampler, the sensitivity lemma, and the noise of fitted models."""

import itertools
import math
import pickle

import numpy as np
import pytest
from erm_data import HUBER, ROUNDING, determinant_share, weights_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.stats import beta as beta_law
from scipy.stats import gamma, ks_2samp, kstest
from sklearn.base import clone

from checks import exact_loss
from checks.exact_loss import gradient, softmax_gradient
from helpers import erm
from helpers.erm import norms
from helpers.privacy import ADD_REMOVE

UNLIKELY = 1e-9
BOUNDS = np.array([[0.0, 4.0], [-1.0, 1.0]])
LEVELS = np.array([[0.0, 4.0]] + [[0.0, 1.0]] * 5)
BLOCKS = ((1, 2), (3, 4, 5))
N_FITS = 150


def all_rows(widths, blocks):
    """Every row of a schema at the ends of its intervals: numbers at +-width, blocks at the corners of simplices."""
    blocked = {column for block in blocks for column in block}
    last = len(widths) - 1
    numbers = [j for j in range(last) if j not in blocked]
    rows = []
    for ends in itertools.product((-1, 1), repeat=len(numbers)):
        for levels in itertools.product(*blocks):
            row = np.zeros(len(widths))
            row[numbers], row[last] = np.array(ends) * np.array(widths)[numbers], widths[last]
            for block, level in zip(blocks, levels, strict=True):
                scale = widths[block[0]] / (1 - 1 / len(block))
                row[list(block)] = -scale / len(block)
                row[level] += scale
            rows.append(row)
    return np.array(rows)


def schema(rng):
    """Widths and blocks of a small schema, and its body."""
    blocks, start = [], int(rng.integers(0, 3))
    widths = list(rng.uniform(0.2, 2, start))
    for size in rng.integers(2, 5, int(rng.integers(1, 3))):
        blocks.append(tuple(range(len(widths), len(widths) + size)))
        widths += [rng.uniform(0.2, 2)] * size
    return (*widths, rng.uniform(0.2, 2)), tuple(blocks)


@pytest.mark.parametrize("seed", range(12))
def test_the_norm_is_that_of_the_hull_of_the_rows(seed):
    """Least sum of coefficients with which rows and their negatives make up a vector, by linear programming."""
    rng = np.random.default_rng(seed)
    widths, blocks = schema(rng)
    body, rows = norms.RowPolytope(widths, blocks), all_rows(widths, blocks)
    for _ in range(5):
        b = rng.normal(size=len(rows)) * (rng.random(len(rows)) < 0.5) @ rows
        least = linprog(np.ones(2 * len(rows)), A_eq=np.vstack([rows, -rows]).T, b_eq=b)
        assert body.norm(b) == pytest.approx(least.fun, abs=1e-7)
    assert body.dimension == np.linalg.matrix_rank(rows)
    shifted = b.copy()
    shifted[list(blocks[0])] += 0.7  # which no row does: of a block only the differences count
    assert body.norm(shifted) == pytest.approx(body.norm(b))


def test_draws_have_the_density_of_the_norm():
    """Length Gamma(p), and in every direction what rejection from a box gives."""
    rng = np.random.default_rng(0)
    body = norms.RowPolytope((0.5,) * 3 + (0.75,) * 4 + (3.0,), ((0, 1, 2), (3, 4, 5, 6)))
    draws = np.array([body.draw(2.0, rng)[0] for _ in range(1500)])
    lengths = np.array([body.norm(b) for b in draws])
    assert kstest(lengths, gamma(body.dimension, scale=0.5).cdf).pvalue > UNLIKELY
    # b = length times a point of the surface; the points (t, w) inside, by rejection in barycentric coordinates.
    t, first, second = rng.uniform(-1, 1, 300_000), rng.uniform(-1, 1, (300_000, 2)), rng.uniform(-1, 1, (300_000, 3))
    w = np.column_stack([t - first.sum(axis=1), first, t - second.sum(axis=1), second])
    inside = (np.abs(w[:, :3]).sum(axis=1) <= 1) & (np.abs(w[:, 3:]).sum(axis=1) <= 1)
    flat = np.column_stack([w[:, :3] - t[:, None] / 3, w[:, 3:] - t[:, None] / 4, 3 * t])[inside]
    flat[:, :3] *= 0.5 / (2 / 3)
    size = np.maximum.reduce([np.abs(w[:, :3]).sum(axis=1), np.abs(w[:, 3:]).sum(axis=1), np.abs(t)])[inside]
    surface, drawn = flat / size[:, None], draws / lengths[:, None]
    for direction in np.vstack([np.eye(8), rng.normal(size=(6, 8))]):
        assert ks_2samp(surface @ direction, drawn @ direction).pvalue > UNLIKELY


def test_many_levels_are_drawn_from_too():
    body = norms.RowPolytope((0.5,) * 90 + (1.0,), (tuple(range(30)), tuple(range(30, 90))))
    rng = np.random.default_rng(0)
    lengths = [body.norm(body.draw(1.0, rng)) for _ in range(60)]
    assert kstest(lengths, gamma(89).cdf).pvalue > UNLIKELY


def test_a_column_that_is_always_zero_gets_no_noise():
    body = norms.RowPolytope((0.5, 0.0, 0.25))
    draw = body.draw(1.0, np.random.default_rng(0))[0]
    assert body.dimension == 2
    assert np.array_equal(draw != 0, [True, False, True])
    assert body.norm([0.5, 0.0, 0.5]) == 2


def test_a_block_of_two_levels_is_a_number():
    number = norms.RowPolytope((math.sqrt(0.5), 1.0))
    block = norms.RowPolytope((0.5, 0.5, 1.0), ((0, 1),))
    rng = np.random.default_rng(0)
    for a, t in rng.normal(size=(20, 2)):
        assert block.norm([a, -a, t]) == pytest.approx(number.norm([math.sqrt(2) * a, t]))


# --- the sensitivity lemma: exact privacy losses against what is proved ---


def proven(constants, radius, n, loss, weighting):
    by_ball = erm.Calibration(constants.noise_rate / radius, constants.total_regularization)
    return exact_loss.proven_epsilon(by_ball, n_records=n, radius=radius, loss=loss, weighting=weighting)


def row_pairs(rng, n, rows):
    """n + 1 rows inside the hull of `rows`, many of them corners, with classes."""
    mixed = rng.dirichlet(np.full(len(rows), 0.3), n + 1) @ rows
    corner = rng.random(n + 1) < 0.6
    mixed[corner] = rows[rng.integers(len(rows), size=corner.sum())]
    return mixed, (rng.random(n + 1) < rng.choice([0.05, 0.5])).astype(int)


@given(
    st.integers(1, 25),
    st.floats(-2.5, 1.5),
    st.floats(-2, 2),
    st.booleans(),
    st.sampled_from(["public", "balanced", "add/remove"]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_exact_loss_never_exceeds_what_is_proved(n, log_rate, log_total, huber, kind, boxed, seed):
    """Any constants; random outputs and directed ones, in boxes and in polytopes of levels."""
    rng = np.random.default_rng(seed)
    widths, blocks = (tuple(rng.uniform(0.1, 2, int(rng.integers(1, 5)))), ()) if boxed else schema(rng)
    body, corners = norms.RowPolytope(widths, blocks), all_rows(widths, blocks)
    radius, loss = np.linalg.norm(corners, axis=1).max(), HUBER if huber else erm.LOGISTIC
    constants = erm.Calibration(10**log_rate, 10**log_total * radius**2 / n)
    rows, codes = row_pairs(rng, n, corners)
    here, there = (slice(0, n), slice(1, n + 1)) if kind != "add/remove" else (slice(0, n + 1), slice(1, n + 1))
    fixed = rng.random(2)
    relation = {"neighbouring": ADD_REMOVE} if kind == "add/remove" else {}
    weighting = erm.BALANCED if kind == "balanced" else erm.fixed_weights(float(fixed.max()), **relation)
    w, w2 = (weights_of(codes[part]) if kind == "balanced" else fixed[codes[part]] for part in (here, there))
    signed = rows * (2 * codes - 1)[:, None]
    bound = proven(constants, radius, n, loss, weighting)
    outputs = 10 ** rng.uniform(-2, 3, (4, 1)) / radius * rng.standard_normal((4, len(widths)))
    for beta in np.vstack([outputs, 10 ** rng.uniform(-2, 3) * np.sign(signed[:1]) / radius]):
        options = {"n_records": n, "loss": loss, "weights": w, "neighbour_weights": w2, "norm": body.norm}
        exact = exact_loss.privacy_loss(beta, signed[here], signed[there], **constants._asdict(), **options)
        assert abs(exact) <= bound * ROUNDING + 1e-9


@given(
    st.integers(1, 3), st.integers(2, 4), st.integers(1, 20), st.floats(-2, 1), st.floats(-2, 2), st.integers(0, 10**6)
)
def test_exact_loss_of_several_classes_never_exceeds_what_is_proved(d, n_classes, n, log_rate, log_total, seed):
    rng = np.random.default_rng(seed)
    widths = tuple(rng.uniform(0.2, 2, d))
    body, radius, loss = norms.RowPolytope(widths), np.linalg.norm(widths), erm.Softmax(n_classes)
    constants = erm.Calibration(10**log_rate, 10**log_total * radius**2 / n)
    rows, codes = row_pairs(rng, n, all_rows((*widths, 0.0), ())[:, :-1])[0], rng.integers(n_classes, size=n + 1)
    bound = proven(constants, radius, n, loss, erm.UNWEIGHTED)
    for C in 10 ** rng.uniform(-2, 2) / radius * rng.standard_normal((4, n_classes - 1, d)):
        pairs = (rows[:n], codes[:n]), (rows[1:], codes[1:])
        exact = exact_loss.softmax_privacy_loss(C, *pairs, **constants._asdict(), norm=body.norm)
        assert abs(exact) <= bound * ROUNDING + 1e-9


@pytest.mark.parametrize(
    ("widths", "blocks", "picked"),
    [((0.4, 0.4, 1.0), (), (3, 1, 2, 0)), ((0.4,) * 7 + (1.0,), ((0, 1, 2), (3, 4, 5, 6)), (0, 4, 1, 5))],
    ids=["box", "levels"],
)
def test_the_budget_is_nearly_used_up_by_a_directed_pair(widths, blocks, picked):
    """Everybody is misclassified, and one record turns against all others: it changes both attributes and the label.

    Each of its new levels is also that of others, so that no attribute hides that the sum of the constant falls by 2.
    """
    corners = all_rows(widths, blocks)[list(picked)]
    beta = 20 * np.linalg.pinv(corners) @ [6.0, 1.0, 1.0, -4.0]
    rows = -np.repeat(corners[:3], [100_000, 3000, 3000], axis=0)
    other = rows.copy()
    other[0] = corners[3]
    radius = np.linalg.norm(corners[0])
    constants = erm.calibrate(epsilon=1.0, n_records=len(rows), regularization=1e-9, radius=radius)
    options = {"noise_rate": constants.noise_rate * radius, "norm": norms.RowPolytope(widths, blocks).norm}
    options["total_regularization"] = constants.total_regularization
    loss = exact_loss.privacy_loss(beta, rows, other, **options)
    assert 0.99 < abs(loss) <= 1 + 1e-9


def test_a_minimiser_can_leave_the_cube_by_which_its_gradient_moves():
    """Output perturbation cannot use the cube: one more record moves a minimiser by 1.2 times its largest entry."""
    u, q = np.array([-0.414, 1.0]), np.array([[1.0, 1.0]])
    rows = np.tile(u, (10_000, 1))
    n, total = 1, 100.0  # n L = 100

    def minimiser(signed):
        return erm.minimize(signed, erm.huber(0.1), total, np.zeros(2), distance=1e-10, n_records=n).beta

    move = n * total * (minimiser(np.vstack([rows, q])) - minimiser(rows))
    assert 1.19 < np.abs(move).max() < (1 + math.sqrt(2)) / 2
    assert np.linalg.norm(move) <= math.sqrt(2)


# --- fitted models ---


def independent_widths(n_attributes, numbers, blocks, radius, size, intercept=True):
    """Largest entries of rows, by the formula of the documentation."""
    share = 1 / math.sqrt(1 + size**2) if intercept else 1.0
    each = radius * share / math.sqrt(n_attributes)
    widths = [each] * numbers
    for k in blocks:
        widths += [each * math.sqrt(k / (k - 1)) * (1 - 1 / k)] * k
    return (*widths, size * radius * share) if intercept else tuple(widths)


def levels_table(n, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(2, size=n), rng.integers(3, size=n)
    X = np.column_stack([rng.uniform(0, 4, n), np.eye(2)[codes[0]], np.eye(3)[codes[1]]])
    return X, (X[:, 0] + codes[1] > rng.uniform(1, 5, n)).astype(int)


def recovered(model, X, y, rows):
    """Noise (K - 1, D): minus n times the gradient of the objective at the released coefficients."""
    size = model.intercept_scaling
    beta = model.coef_
    if model.fit_intercept:
        last = model.intercept_ / (size * model.radius)
        beta = math.sqrt(1 + size**2) * np.column_stack([beta, last])
    n, codes, total = model.n_records or len(X), np.searchsorted(model.classes_, y), model.total_regularization_
    weights = {None: None, "balanced": weights_of(codes)}.get(model.class_weight)
    if len(beta) > 1:
        C = erm.zero_sum_basis(len(beta)) @ beta
        return -n * softmax_gradient(C, rows, codes, total, np.zeros_like(C), weights, n)
    slope = gradient(beta[0], rows * (2 * codes - 1)[:, None], model._loss(), total, np.zeros_like(beta[0]), weights, n)
    if model.prior == "offset":
        slope[-1] -= total * model.offset_ * math.sqrt(1 + size**2) / (size * model.radius)
    return -n * slope[None, :]


CASES = [
    ({}, (), erm.UNWEIGHTED),
    ({"radius": 5.0, "class_weight": "balanced"}, (), erm.BALANCED),
    ({"radius": 5.0, "neighbouring": ADD_REMOVE, "n_records": 70, "intercept_scaling": 0.3}, (), None),
    ({"fit_intercept": False, "loss": "huber"}, (), erm.UNWEIGHTED),
    ({"classes": (0, 1, 2), "radius": 3.0}, (), erm.UNWEIGHTED),
    ({"prior": "offset", "radius": 0.2}, (), erm.UNWEIGHTED),
    ({"rows": "unit", "radius": 3.0}, (), erm.UNWEIGHTED),
    ({"radius": 5.0, "class_weight": "balanced"}, BLOCKS, erm.BALANCED),
    ({"intercept_scaling": 0.3, "prior": "offset"}, BLOCKS, erm.UNWEIGHTED),
]


@pytest.mark.parametrize(("changes", "blocks", "weighting"), CASES, ids=str)
def test_a_fitted_model_has_the_noise_that_its_guarantee_needs(changes, blocks, weighting):
    X, y = levels_table(60)
    if not blocks:
        X = X[:, [0, 1]]
    estimator = erm.ObjectivePerturbationClassifier(
        1.0, 0.1 * changes.get("radius", 1.0) ** 2, noise="cube", bounds=LEVELS if blocks else BOUNDS, **changes
    ).set_params(blocks=blocks or None)
    numbers, sizes = (1, (2, 3)) if blocks else (2, ())
    intercept = estimator.fit_intercept
    widths = independent_widths(
        numbers + len(sizes), numbers, sizes, estimator.radius, estimator.intercept_scaling, intercept
    )
    body = norms.RowPolytope(widths, blocks)
    models = [clone(estimator).fit(X, y) for _ in range(N_FITS)]
    rows = models[0]._rows(X).written()
    assert max(body.norm(row) for row in rows) <= 1 + 1e-9
    assert np.linalg.norm(rows, axis=1).max() <= estimator.radius
    assert np.abs(rows).max(axis=0) == pytest.approx(widths, rel=0.1)  # not shorter than the body supposes
    noise = np.array([recovered(model, X, y, rows) for model in models])
    K = len(models[0].classes_)
    weighting = weighting or erm.fixed_weights(1.0, ADD_REMOVE)
    rate = models[0].noise_rate_
    pull = weighting.mass * (math.sqrt(2) if K > 2 else 1.0)  # in units of the body
    budget, cost = 1.0 if estimator.prior is None else 0.9, determinant_share(models[0], len(X), weighting)
    assert models[0].epsilon_solver_ == pytest.approx(budget * estimator.tol)
    assert rate * pull + cost + models[0].epsilon_solver_ == pytest.approx(budget)
    lengths = np.array([body.norm(b if K > 2 else b[0]) for b in noise])
    assert kstest(lengths, gamma((K - 1) * body.dimension, scale=1 / rate).cdf).pvalue > UNLIKELY
    if blocks:
        # But for the noise that hides the solver, of mean length 1e-5 d / (epsilon radius) on the coefficients.
        hidden = len(X) * models[0].total_regularization_ * 1e-5 * len(widths) / estimator.radius
        assert np.abs(noise[:, 0, list(blocks[1])].sum(axis=1)).max() < 6 * hidden
        assert hidden < 1e-3 * lengths.mean()
    else:
        # On the surface of the cube an entry is at its end in one of D cases, else uniform.
        parts = np.linalg.norm(noise, axis=1) / np.array(widths) / lengths[:, None]
        assert kstest(parts[parts < 1 - 1e-9], beta_law(K - 1, 1).cdf).pvalue > UNLIKELY
        assert 0.3 < np.mean(noise[:, 0] > 0) < 0.7
    guarantee = models[0].guarantee_
    assert guarantee.epsilon == pytest.approx(1.0)
    assert (guarantee.delta, guarantee.neighbouring) == (0.0, estimator.neighbouring)
    assert "feature bounds public" in guarantee.assumes
    assert ("one-hot blocks public" in guarantee.assumes) == bool(blocks)


def test_every_record_has_a_row_inside_the_body():
    """Values outside the bounds, blocks without or with several ones, and what is between: nothing fails or leaves."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1e300, -3.0, 0.0, 0.3, 1.0, 7.0, 1e300], (300, 6))
    model = erm.ObjectivePerturbationClassifier(bounds=LEVELS, blocks=BLOCKS, noise="cube", random_state=0)
    model.fit(X, rng.integers(2, size=300))
    body = norms.RowPolytope(independent_widths(3, 1, (2, 3), 1.0, 1.0), BLOCKS)
    rows = model._rows(X).written()
    assert max(body.norm(row) for row in rows) <= 1 + 1e-9
    assert np.linalg.norm(rows, axis=1).max() <= 1
    assert np.isfinite(model.decision_function(X)).all()
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_rows_of_unit_size_lie_on_the_surface_of_the_box():
    X = np.array([[3.0, 0.1], [2.0, 0.0], [1e9, -0.5]])  # the middle of the box has no direction
    model = erm.ObjectivePerturbationClassifier(bounds=BOUNDS, rows="unit", noise="cube", intercept_scaling=0.3)
    rows = model.fit(X, [0, 1, 0])._rows(X).written()
    half = 1 / math.sqrt(2 * (1 + 0.3**2))
    assert rows[:, :2] == pytest.approx(half * np.array([[1.0, 0.2], [0.0, 0.0], [1.0, -0.5]]))
    scores = rows[:, :2] * math.sqrt(1 + 0.3**2) @ model.coef_[0] + model.intercept_
    assert model.decision_function(X) == pytest.approx(scores)


def test_a_missing_level_is_the_middle_of_its_simplex():
    code = norms.simplex_rows(np.zeros((2, 3)), np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), [(0, 1, 2)], 1.0)
    assert np.array_equal(code, np.zeros((2, 3)))


def test_levels_shape_the_ball_and_the_gaussian_too():
    X, y = levels_table(40)
    for options in ({"noise": "ball"}, {"noise": "gaussian", "delta": 1e-4}, {}):
        model = erm.ObjectivePerturbationClassifier(bounds=LEVELS, blocks=BLOCKS, **options).fit(X, y)
        assert model._rows(X).written()[:, 3:6].sum(axis=1) == pytest.approx(np.zeros(40), abs=1e-12)
        assert hasattr(model, "noise_scale_") == ("delta" in options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "diamond"}, "noise must be one of"),
        ({"noise": "cube"}, "bounds must be given"),
        ({"noise": "cube", "bounds": LEVELS, "delta": 1e-5}, "delta must be 0"),
        ({"noise": "ball", "delta": 1e-5}, "delta must be 0"),
        ({"noise": "gaussian"}, "delta must be above 0"),
        ({"blocks": BLOCKS}, "bounds must be given"),
        ({"blocks": [(1,)], "bounds": LEVELS}, "two or more columns"),
        ({"blocks": [(1, 2), (2, 3)], "bounds": LEVELS}, "each once"),
        ({"blocks": [(4, 6)], "bounds": LEVELS}, "below 6"),
        ({"blocks": [(-1, 4)], "bounds": LEVELS}, "blocks must be"),
        ({"blocks": 3, "bounds": LEVELS}, "lists of columns"),
        ({"blocks": BLOCKS, "bounds": LEVELS, "noise": "cube", "classes": (0, 1, 2)}, "more than two classes"),
        ({"blocks": BLOCKS, "bounds": LEVELS, "noise": "cube", "fit_intercept": False}, "no intercept"),
    ],
    ids=str,
)
def test_what_does_not_hold_is_refused(changes, message):
    X, y = levels_table(20)
    with pytest.raises(ValueError, match=message):
        erm.ObjectivePerturbationClassifier(**changes).fit(X, y)


@pytest.mark.parametrize(
    ("widths", "blocks", "message"),
    [
        ((-1.0,), (), "widths"),
        ((0.0, 0.0), (), "above 0 somewhere"),
        ((0.5, 0.5, 0.0), ((0, 1),), "above 0"),
        ((0.5, 0.5), ((0, 1),), "below 1"),
    ],
)
def test_a_body_that_is_none_is_refused(widths, blocks, message):
    with pytest.raises(ValueError, match=message):
        norms.RowPolytope(widths, blocks)


def test_what_no_body_has_a_norm_or_a_draw_for_is_refused():
    box, rng = norms.RowPolytope((1.0, 1.0)), np.random.default_rng(0)
    levels = norms.RowPolytope((0.5, 0.5, 1.0), ((0, 1),))
    for body, shape in ((box, (1,)), (box, (1, 1, 2)), (levels, (2, 3))):
        with pytest.raises(ValueError, match="columns"):
            body.norm(np.ones(shape))
    for body, n_scores in ((box, 0), (levels, 2)):
        with pytest.raises(ValueError, match="n_scores must be"):
            body.draw(1.0, rng, n_scores)
    with pytest.raises(ValueError, match="rate must be"):
        box.draw(-0.5, rng)


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("d", range(1, 40, 3))
def test_no_corner_is_longer_than_the_radius_after_rounding(d, k):
    assert np.linalg.norm(norms.surface_rows(np.ones((1, d)), 1.0)) <= 1
    blocks = [tuple(range(start, start + k)) for start in range(0, d * k, k)]
    first_level = np.tile(np.eye(1, k), d)
    assert np.linalg.norm(norms.simplex_rows(np.zeros((1, d * k)), first_level, blocks, 1.0)) <= 1


def slice_volume(k, t):
    """Volume of the w in R^k with sum t and sum of sizes <= 1: by the number of positive entries, and quadrature."""

    def piece(positive):
        negative = k - positive
        factor = math.comb(k, positive) / math.factorial(positive - 1) / math.factorial(negative - 1)
        return factor * quad(lambda below: (below + t) ** (positive - 1) * below ** (negative - 1), 0, (1 - t) / 2)[0]

    return sum(map(piece, range(1, k))) + t ** (k - 1) / math.factorial(k - 1)


@pytest.mark.parametrize("k", [2, 3, 4, 7])
def test_slices_have_their_volumes(k):
    for t in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert np.exp(norms._log_weights(k, t)).sum() == pytest.approx(slice_volume(k, t), rel=1e-8)
    body = norms.RowPolytope((0.5,) * (k + 3) + (1.0,), (range(k), range(k, k + 3)))
    ratio = slice_volume(k, 0.5) * slice_volume(3, 0.5) / slice_volume(k, 0.0) / slice_volume(3, 0.0)
    assert math.exp(body._log_share(0.5)) == pytest.approx(ratio)


@pytest.mark.parametrize("sizes", [(2,), (3,), (3, 4), (6,) * 5], ids=str)
def test_the_constant_has_the_law_of_its_slices(monkeypatch, sizes):
    """The sampler takes the volumes from a table here, which is fast enough for many draws."""
    grid = np.linspace(0, 1, 401)
    volume = np.prod([[slice_volume(k, t) for t in grid] for k in sizes], axis=0)
    log_share = np.log(volume / volume[0])
    monkeypatch.setattr(norms.RowPolytope, "_log_share", lambda self, t: np.interp(t, grid, log_share))
    starts = np.cumsum((0, *sizes))
    body = norms.RowPolytope((0.5,) * starts[-1] + (1.0,), [range(*ends) for ends in itertools.pairwise(starts)])
    rng = np.random.default_rng(0)
    drawn = np.array([body._constant(rng) for _ in range(50_000)])
    law = np.append(0.0, np.cumsum((volume[1:] + volume[:-1]) / 2))
    assert kstest(np.abs(drawn), lambda t: np.interp(t, grid, law / law[-1])).pvalue > UNLIKELY
    assert 0.48 < np.mean(drawn > 0) < 0.52
