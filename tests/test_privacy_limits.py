"""Mechanisms at their edges, quickly: how much noise is asked for, which parameters end where, what a release says."""

import inspect
import math

import numpy as np
import pytest

from helpers.privacy import (
    ADD_REMOVE,
    EXACT_REALS,
    REPLACE_ONE,
    RUNNING_TIME,
    SEED_SECRET,
    Ledger,
    Sensitivity,
    class_counts,
    exponential_probabilities,
    gaussian,
    gaussian_multiplier,
    laplace,
    report_noisy_max,
    spherical_gamma,
    to_grid,
)
from helpers.privacy.ledger import exponential_choice


class Spy(np.random.Generator):
    """Notes every draw with its parameters, and returns the largest value that the law is likely to give."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))
        self.asked = []

    def laplace(self, loc, scale, size):
        self.asked.append(("laplace", scale, size))
        return np.full(size, scale)

    def normal(self, loc=0.0, scale=1.0, size=None):
        self.asked.append(("normal", scale, size))
        return np.full(size, scale)

    def gamma(self, shape, scale):
        self.asked.append(("gamma", shape, scale))
        return shape * scale

    def exponential(self, scale, size):
        self.asked.append(("exponential", scale, size))
        return np.zeros(size)

    def choice(self, n, p):
        self.asked.append(("choice", n, p))
        return n - 1


def released(mechanism, *arguments, **options):
    spy = Spy()
    return mechanism(*arguments, rng=spy, **options), spy.asked


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
@pytest.mark.parametrize(("size", "epsilon"), [(3.0, 0.4), (0.2, 5.0)])
def test_each_mechanism_asks_for_the_noise_of_its_sensitivity(relation, size, epsilon):
    value, change = np.zeros((2, 3)), Sensitivity(size, relation, "l1")
    release, asked = released(laplace, value, change, epsilon)
    assert asked == [("laplace", pytest.approx(size / epsilon), (2, 3))]
    assert release.value == pytest.approx(np.full((2, 3), size / epsilon), rel=1e-5)
    assert release.guarantee.event.noise_multiplier == pytest.approx(1 / epsilon)
    release, asked = released(gaussian, value, change, epsilon, 1e-5)
    assert asked == [("normal", pytest.approx(size * gaussian_multiplier(epsilon, 1e-5)), (2, 3))]
    assert release.guarantee.event.noise_multiplier == pytest.approx(gaussian_multiplier(epsilon, 1e-5))
    noisy = (made := Ledger(value, relation, Spy())).k_norm(np.copy, size, epsilon)
    assert made.rng.asked == [("normal", 1.0, 6), ("gamma", 6, pytest.approx(size / epsilon))]
    assert np.linalg.norm(noisy) == pytest.approx(6 * size / epsilon, rel=1e-5)
    release, asked = released(report_noisy_max, [0.0, 1.0], change, epsilon)
    assert asked == [("exponential", pytest.approx(2 * size / epsilon), (2,))]
    _, ((name, n, p),) = released(exponential_choice, [0.0, 1.0], change, epsilon)
    assert (name, n) == ("choice", 2)
    assert math.log(p[1] / p[0]) == pytest.approx(epsilon / (2 * size))
    for guarantee in (release.guarantee, made.guarantee(epsilon, 0.0, source="")):
        assert (guarantee.epsilon, guarantee.delta, guarantee.neighbouring) == (epsilon, 0.0, relation)
        assert guarantee.assumes == (EXACT_REALS, RUNNING_TIME, SEED_SECRET)


def test_counts_have_the_noise_of_their_relation():
    for relation, classes, step in ((ADD_REMOVE, 2, 1), (ADD_REMOVE, 3, 1), (REPLACE_ONE, 2, 1), (REPLACE_ONE, 3, 2)):
        guarantee = class_counts([0, 1], range(classes), 0.5, relation).guarantee
        assert (guarantee.event.noise_parameter, guarantee.event.sensitivity) == (0.5 / step, step)
        public = "number of records public" in guarantee.assumes
        assert public == (relation is REPLACE_ONE and classes == 2)
    sure = class_counts([0, 0, 1, 7], [0, 1], 600.0, REPLACE_ONE)
    assert sure.value.tolist() == [3, 1]  # a label outside the list counts as the first class
    assert class_counts([0, 0, 1, 7], [0, 1], 600.0, ADD_REMOVE).value.tolist() == [2, 1]
    assert class_counts([], [5], 600.0, ADD_REMOVE).value.tolist() == [0]


def test_monotonic_scores_need_half_the_noise_and_a_promise():
    change = Sensitivity(3.0, ADD_REMOVE, "linf")
    plain, monotonic = (exponential_probabilities([0.0, 1.0], change, 0.4, monotonic=m) for m in (False, True))
    assert math.log(plain[1] / plain[0]) == pytest.approx(0.4 / 6)
    assert math.log(monotonic[1] / monotonic[0]) == pytest.approx(0.4 / 3)
    replaced = Sensitivity(3.0, REPLACE_ONE, "linf")
    with pytest.raises(ValueError, match=r"neighbouring must be one of .*ADD_OR_REMOVE_ONE"):
        exponential_probabilities([0.0], replaced, 0.4, monotonic=True)
    exponential_probabilities([0.0], replaced, 0.4, monotonic=False)
    for function in (exponential_choice, exponential_probabilities):  # a promise is made by name
        assert inspect.signature(function).parameters["monotonic"].kind is inspect.Parameter.KEYWORD_ONLY
        assert inspect.signature(function).parameters["epsilon"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert inspect.signature(function).parameters["monotonic"].default is False


def test_a_sensitivity_does_not_change():
    with pytest.raises(AttributeError):
        Sensitivity(3.0, REPLACE_ONE, "l2").value = 1.0


@pytest.mark.parametrize(("scale", "step"), [(1.0, 2.0**-20), (1.99, 2.0**-20), (2.0, 2.0**-19), (0.3, 2.0**-22)])
def test_the_grid_is_a_millionth_of_the_noise(scale, step):
    assert to_grid(0.6 * step, scale) == step
    assert to_grid(0.4 * step, scale) == 0.0
    assert to_grid([1e300], scale).tolist() == [1e300]


def test_the_norm_of_the_change_bounds_the_smaller_ones():
    """l1 >= l2 >= linf, so an l1 bound serves every mechanism and a linf bound only choices, of a single number any."""
    for mechanism, good in ((laplace, 1), (gaussian, 2)):
        more = (1e-5,) if mechanism is gaussian else ()
        for place, norm in enumerate(("l1", "l2", "linf"), 1):
            change = Sensitivity(1.0, ADD_REMOVE, norm)
            assert np.shape(mechanism(0.0, change, 1.0, *more).value) == ()
            if place <= good:
                assert mechanism([0.0, 0.0], change, 1.0, *more).value.shape == (2,)
            else:
                with pytest.raises(ValueError, match="sensitivity must be in"):
                    mechanism([0.0, 0.0], change, 1.0, *more)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: spherical_gamma(1, 0.0, Spy()), "rate"),
        (lambda: spherical_gamma(1, -1.0, Spy()), "rate"),
        (lambda: to_grid(1.0, 0.0), "scale"),
        (lambda: to_grid(1.0, -1.0), "scale"),
        (lambda: gaussian_multiplier(0.0, 0.1), "epsilon"),
        (lambda: gaussian_multiplier(1.0, 0.0), "delta"),
        (lambda: gaussian_multiplier(1.0, 1.0), "delta"),
        (lambda: class_counts([0], [0, 0], 1.0, ADD_REMOVE), "classes"),
        (lambda: class_counts([0], [], 1.0, ADD_REMOVE), "classes"),
        (lambda: class_counts([0], [[0, 1]], 1.0, ADD_REMOVE), "classes"),
        (lambda: class_counts([[0]], [0, 1], 1.0, ADD_REMOVE), "y"),
        (lambda: class_counts([0], [0, 1], 0.0, ADD_REMOVE), "epsilon"),
        (lambda: class_counts([0], [0, 1], -1.0, ADD_REMOVE), "epsilon"),
        (lambda: exponential_probabilities([], Sensitivity(1.0, ADD_REMOVE, "l1"), 1.0), "scores"),
        (lambda: exponential_probabilities([[1.0]], Sensitivity(1.0, ADD_REMOVE, "l1"), 1.0), "scores"),
        (lambda: report_noisy_max([], Sensitivity(1.0, ADD_REMOVE, "l1"), 1.0), "scores"),
        (lambda: laplace([], Sensitivity(1.0, ADD_REMOVE, "l1"), 1.0), "value"),
        (lambda: Sensitivity(-0.5, ADD_REMOVE, "l1"), "value"),
    ],
)
def test_ranges(call, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        call()


def test_the_smallest_that_is_allowed():
    assert spherical_gamma(1, 1e-3, Spy()).shape == (1,)
    assert report_noisy_max([1.0], Sensitivity(1.0, ADD_REMOVE, "l1"), 1.0).value == 0
    assert class_counts([3], [3], 600.0, ADD_REMOVE).value.tolist() == [1]
