"""The exact price of objective perturbation: closed forms, constructions that come near, and deltas by quadrature."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import laplace, norm

from checks import erm_audit, exact_loss, exact_price
from checks.printed_erm import algorithm_2
from helpers import erm
from helpers.privacy import ADD_REMOVE, REPLACE_ONE

HUBER, QUARTIC = erm.huber(0.5), exact_price.quartic(0.5)
LOSSES = {"logistic": erm.LOGISTIC, "huber": HUBER, "quartic": QUARTIC}
BOTH = (REPLACE_ONE, ADD_REMOVE)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_slopes_and_bends_are_derivatives(loss):
    margins, step = np.linspace(-3, 4, 4001) + 1e-4, 1e-6
    kinks = np.abs(np.abs(1 - margins) - 0.5) < 2 * step
    slopes = (loss.slope(margins + step) - loss.slope(margins - step)) / (2 * step)
    assert slopes[~kinks] == pytest.approx(loss.bend(margins)[~kinks], abs=1e-6)
    assert loss.bend(margins).max() <= loss.curvature + 1e-12


def test_the_quartic_hinge_has_the_printed_slope():
    middle = np.linspace(0.5, 1.5, 11)
    printed = (1 - middle) ** 3 / (4 * 0.5**3) - 3 * (1 - middle) / (4 * 0.5) - 0.5
    assert QUARTIC.slope(middle) == pytest.approx(printed)
    assert QUARTIC.slope(np.array([-2.0, 3.0])).tolist() == [-1.0, 0.0]


@pytest.mark.parametrize("stiffness", [0.05, 0.7, 4.0, 50.0])
@pytest.mark.parametrize("rate", [0.1, 1.0, 3.0])
def test_the_price_is_the_closed_form_of_each_loss(rate, stiffness):
    for loss in (erm.LOGISTIC, HUBER):
        own = loss.own_cost(rate, 1 / stiffness)
        both = [exact_price.price(rate, stiffness, loss=loss, neighbouring=relation).epsilon for relation in BOTH]
        assert both == pytest.approx([own + rate, own], rel=1e-7)
    assert exact_price.price(rate / 7, stiffness * 49, radius=7.0) == exact_price.price(rate, stiffness)


def test_the_determinant_is_free_from_the_threshold_on_and_not_before():
    for relation, moved in ((REPLACE_ONE, 2), (ADD_REMOVE, 1)):
        for rate in (0.1, 0.5, 2.0):
            at, below = (exact_price.price(rate, x / rate, neighbouring=relation).epsilon for x in (1.0, 0.98))
            assert at == pytest.approx(moved * rate, rel=1e-9)
            assert below > moved * rate * (1 + 1e-6)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("stiffness", [0.3, 3.0])
def test_the_construction_comes_near_and_never_exceeds(loss, stiffness):
    exact = exact_price.price(0.5, stiffness, loss=loss).epsilon
    found = exact_price.constructed_loss(0.5, stiffness, loss=loss)
    assert 0.96 * exact < found <= exact * (1 + 1e-9)


@pytest.mark.parametrize("radius", [12.0, 100.0])
def test_a_radius_where_its_square_belongs_is_found_out(radius):
    rate, total = algorithm_2(epsilon=1.0, n_records=1000, regularization=1e-3, curvature=0.25 / radius, radius=radius)
    exact = exact_price.price(rate, 1000 * total, radius=radius).epsilon
    assert 1.5 < exact_price.constructed_loss(rate, 1000 * total, radius=radius) <= exact


# --- several classes ---


def softmax_by_definition(rate, t, prediction, label):
    hessian = np.diag(prediction) - np.outer(prediction, prediction)
    pull = np.linalg.norm(prediction - np.eye(len(prediction))[label])
    return rate * pull + np.linalg.slogdet(np.eye(len(prediction)) + t * hessian)[1]


@settings(max_examples=15)  # each searches the price of three times forty predictions
@given(st.integers(2, 5), st.floats(-1.5, 1), st.floats(-1, 2), st.integers(0, 10**6))
def test_no_prediction_costs_more_than_the_softmax_price(n_classes, log_rate, log_stiffness, seed):
    rate, stiffness = 10**log_rate, 10**log_stiffness
    exact = exact_price.softmax_price(rate, stiffness, n_classes, neighbouring=ADD_REMOVE)
    rng = np.random.default_rng(seed)
    for sharpness in (0.2, 1.0, 5.0):
        for prediction in rng.dirichlet(np.full(n_classes, sharpness), 40):
            assert softmax_by_definition(rate, 1 / stiffness, prediction, 0) <= exact * (1 + 1e-6)
    weighting = erm.fixed_weights(1.0, ADD_REMOVE)
    assert exact <= exact_loss.joint_cost(rate, 1 / stiffness, erm.Softmax(n_classes), weighting) * (1 + 1e-9)
    both = exact_price.softmax_price(rate, stiffness, n_classes)
    assert both == pytest.approx(exact + math.sqrt(2) * rate)


def test_two_classes_of_the_softmax_are_the_logistic_loss():
    """With scores +-m/2 a row has sqrt(2) of the pull and twice the curvature of a logistic row, in one dimension."""
    for rate, stiffness in ((0.5, 0.3), (2.0, 5.0)):
        binary = exact_price.price(math.sqrt(2) * rate, stiffness / 2).epsilon
        assert exact_price.softmax_price(rate, stiffness, 2) == pytest.approx(binary, rel=1e-6)


@pytest.mark.parametrize(("n_classes", "threshold"), [(2, math.sqrt(2)), (3, 2 * math.sqrt(2)), (5, 2 * math.sqrt(2))])
def test_the_softmax_threshold_is_sharp(n_classes, threshold):
    """Free determinant from threshold/rate on; below it some prediction costs more."""
    at, below = (
        exact_price.softmax_price(1.0, share * threshold, n_classes, neighbouring=ADD_REMOVE) for share in (1.0, 0.95)
    )
    assert at == pytest.approx(math.sqrt(2), rel=1e-9)
    assert below > math.sqrt(2) * (1 + 1e-5)


@pytest.mark.parametrize(
    ("loss", "relation", "at_least"),
    [
        (erm.LOGISTIC, ADD_REMOVE, 0.95),
        pytest.param(erm.LOGISTIC, REPLACE_ONE, 0.95, marks=pytest.mark.weekly),
        (HUBER, ADD_REMOVE, 0.95),
        pytest.param(erm.Softmax(3), ADD_REMOVE, 0.93, marks=pytest.mark.weekly),
        (erm.Softmax(3), REPLACE_ONE, 0.93),
    ],
)
def test_the_directed_search_comes_near_the_budget_and_can_be_repeated(loss, relation, at_least):
    many, weighting = isinstance(loss, erm.Softmax), erm.fixed_weights(1.0, relation)
    constants = erm.calibrate(epsilon=1.0, n_records=1000, regularization=1e-9, loss=loss, weighting=weighting)
    found = erm_audit.directed_search(
        constants.noise_rate,
        1000 * constants.total_regularization,
        n_records=1000,
        dimension=3 if many else 2,
        rng=np.random.default_rng(0 if many else 1),
        loss=loss,
        neighbouring=relation,
        n_restarts=3 if many else 36,
    )
    assert at_least < found.loss <= 1.0 + 1e-9
    again = (exact_loss.softmax_privacy_loss if many else exact_loss.privacy_loss)(
        found.output,
        found.data,
        found.neighbour,
        **constants._asdict(),
        n_records=1000,
        weights=found.weights,
        neighbour_weights=found.neighbour_weights,
        **({} if many else {"loss": loss}),
    )
    assert again == pytest.approx(found.loss)
    sizes = [weights.sum() for weights in (found.weights, found.neighbour_weights)]
    assert abs(sizes[0] - sizes[1]) == pytest.approx(0 if relation == REPLACE_ONE else 1)
    rows = [pair[0] if many else pair for pair in (found.data, found.neighbour)]
    assert max(np.linalg.norm(part, axis=1).max() for part in rows) <= 1 + 1e-12


def test_the_directed_search_finds_out_noise_for_another_relation():
    """Constants made for one record more or less lose too much when a record is replaced."""
    one = erm.calibrate(epsilon=1.0, n_records=1000, regularization=1e-2, weighting=erm.fixed_weights(1.0, ADD_REMOVE))
    rng = np.random.default_rng(0)
    found = erm_audit.directed_search(one.noise_rate, 10.0, n_records=1000, dimension=2, rng=rng, n_restarts=4)
    assert found.loss > 1.5


# --- delta ---


def by_quadrature(epsilon, data, neighbour, total, law, loss):
    def density(output, rows):
        margins = np.asarray(rows) * output
        noise = -np.sum(loss.slope(margins) * rows) - len(rows) * total * output
        return law.pdf(noise) * (len(rows) * total + np.sum(loss.bend(margins) * np.square(rows)))

    def excess(output):
        return max(density(output, data) - math.exp(epsilon) * density(output, neighbour), 0.0)

    ends = (12 * law.std() + len(data)) / (len(data) * total)
    return quad(excess, -ends, ends, points=np.linspace(-ends, ends, 99)[1:-1], limit=2000)[0]


@pytest.mark.parametrize("loss", [erm.LOGISTIC, QUARTIC], ids=["logistic", "quartic"])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_exact_delta_is_the_integral_of_the_hockey_stick(loss, epsilon):
    data, neighbour = np.array([0.9, 0.4, 1.0]), np.array([0.9, 0.4, -1.0])
    found = erm_audit.exact_delta(
        epsilon, data[:, None], neighbour[:, None], total_regularization=0.3, noise=norm(scale=0.8), loss=loss
    )
    assert found == pytest.approx(by_quadrature(epsilon, data, neighbour, 0.3, norm(scale=0.8), loss), abs=2e-7)


@pytest.mark.parametrize("order", [1, -1])
def test_exact_delta_of_laplace_noise_against_quadrature(order):
    pair = [np.array([1.0, 0.7]), np.array([-0.6, 0.7])][::order]
    constants = {"total_regularization": 0.2, "noise": laplace(scale=1 / 1.3)}
    found = erm_audit.exact_delta(0.2, *(rows[:, None] for rows in pair), **constants)
    assert found == pytest.approx(by_quadrature(0.2, *pair, 0.2, laplace(scale=1 / 1.3), erm.LOGISTIC), abs=2e-7)


def test_no_delta_is_left_at_the_exact_epsilon():
    rate, total = algorithm_2(epsilon=1.0, n_records=1, regularization=1e-3)
    pair, noise = (np.array([[1.0]]), np.array([[-1.0]])), laplace(scale=1 / rate)
    limit = exact_price.price(rate, total).epsilon
    assert erm_audit.exact_delta(limit, *pair, total_regularization=total, noise=noise) == 0.0
    assert erm_audit.exact_delta(limit / 4, *pair, total_regularization=total, noise=noise) > 1e-3


def test_records_of_a_kind_are_weights():
    pair = [np.array([[0.5], [0.5], [1.0]]), np.array([[0.5], [0.5], [-1.0]])]
    short = [np.array([[0.5], [1.0]]), np.array([[0.5], [-1.0]])]
    constants = {"total_regularization": 0.2, "noise": laplace(scale=1 / 0.7)}
    twice = {"n_records": 3, "weights": [2, 1], "neighbour_weights": [2, 1]}
    assert erm_audit.exact_delta(0.1, *short, **constants, **twice) == pytest.approx(
        erm_audit.exact_delta(0.1, *pair, **constants)
    )
