"""Mechanisms audited: output laws against their densities, privacy losses against their bounds."""

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from helpers.privacy import (
    ADD_REMOVE,
    EXACT_REALS,
    REPLACE_ONE,
    RUNNING_TIME,
    SEED_SECRET,
    Ledger,
    Release,
    Sensitivity,
    class_counts,
    compose,
    exponential_probabilities,
    gaussian,
    gaussian_delta,
    gaussian_multiplier,
    laplace,
    report_noisy_max,
    spherical_gamma,
    to_grid,
)
from helpers.privacy.ledger import _digits, _geometric, _odds, _tossed, discrete_laplace, exponential_choice

relations = pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])


def interval(hits):
    """Exact interval of the probability of an event, from a boolean array; wrong once in a thousand."""
    found = stats.binomtest(int(np.sum(hits)), len(hits)).proportion_ci(0.999, method="exact")
    return found.low, found.high


def check_audit(hits, hits_neighbour, epsilon, tightness):
    """The frequencies do not contradict epsilon, and do contradict `tightness` * epsilon."""
    (low, high), (low_neighbour, high_neighbour) = interval(hits), interval(hits_neighbour)
    assert math.log(low / high_neighbour) <= epsilon
    assert math.log(high / low_neighbour) >= epsilon
    assert math.log(low / high_neighbour) >= tightness * epsilon


# Sensitivities


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ((0.0, ADD_REMOVE, "l1"), "value"),
        ((math.inf, ADD_REMOVE, "l1"), "value"),
        ((1.0, "add", "l1"), "neighbouring"),
        ((1.0, ADD_REMOVE, "l3"), "norm"),
    ],
)
def test_bad_sensitivities_are_named(fields, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        Sensitivity(*fields)


class Untouchable:
    """Private data that no check of public parameters may look at."""

    def __array__(self, *args, **kwargs):
        raise AssertionError("private data was read before the public parameters were checked")


@pytest.mark.parametrize(
    "call",
    [
        lambda s, e, r: laplace(Untouchable(), s, e, r),
        lambda s, e, r: gaussian(Untouchable(), s, e, 1e-5, r),
        lambda s, e, r: report_noisy_max(Untouchable(), s, e, r),
    ],
)
def test_public_parameters_are_checked_first(call):
    rng, good = np.random.default_rng(0), Sensitivity(1.0, ADD_REMOVE, "l1")
    for epsilon in (0.0, -1.0, math.inf, math.nan, "1"):
        with pytest.raises(ValueError, match=r"^epsilon must be"):
            call(good, epsilon, rng)
    with pytest.raises(ValueError, match=r"^sensitivity must be a Sensitivity"):
        call(1.0, 1.0, rng)
    for bad in (0, np.random.RandomState(0)):
        with pytest.raises(ValueError, match=r"^rng must be"):
            call(good, 1.0, bad)
    with pytest.raises(AssertionError, match="private data"):
        call(good, 1.0, rng)


def mechanisms(rng):
    """One release of each kind."""
    scalar, scores = Sensitivity(1.0, ADD_REMOVE, "l1"), Sensitivity(1.0, ADD_REMOVE, "linf")
    return {
        "laplace": laplace(0.0, scalar, 1.0, rng),
        "gaussian": gaussian(0.0, scalar, 1.0, 1e-5, rng),
        "report_noisy_max": report_noisy_max(np.zeros(2**20), scores, 1.0, rng),
        "class_counts": class_counts([0, 1], range(30), 1.0, ADD_REMOVE, rng),
        "class_counts of two": class_counts([0, 1], [0, 1], 1e-6, REPLACE_ONE, rng),
    }


def test_a_generator_of_the_callers_is_named_and_the_systems_is_not():
    """And with the system's, no two releases are equal."""
    for name, release in mechanisms(np.random.default_rng(0)).items():
        assert SEED_SECRET in release.guarantee.assumes, name
    first, second = mechanisms(None), mechanisms(None)
    for name, release in first.items():
        assert SEED_SECRET not in release.guarantee.assumes, name
        assert np.any(release.value != second[name].value), name


def with_gaussian_noise(value, sensitivity, epsilon, rng):
    return gaussian(value, sensitivity, epsilon, 1e-5, rng)


def test_noise_that_a_double_cannot_hold_is_refused():
    rng = np.random.default_rng(0)
    for value, epsilon in ((1e200, 1e-200), (1e-200, 1e200)):
        with pytest.raises(ValueError, match=r"^noise must be a finite number"):
            laplace(Untouchable(), Sensitivity(value, ADD_REMOVE, "l1"), epsilon, rng)


@pytest.mark.parametrize(("mechanism", "refused"), [(laplace, ("l2", "linf")), (with_gaussian_noise, ("linf",))])
def test_a_vector_needs_the_norm_of_its_noise(mechanism, refused):
    rng = np.random.default_rng(0)
    for norm in ("l1", "l2", "linf"):
        sensitivity = Sensitivity(1.0, ADD_REMOVE, norm)
        assert isinstance(mechanism(3.0, sensitivity, 1.0, rng).value, float)
        assert mechanism([3.0], sensitivity, 1.0, rng).value.shape == (1,)
        if norm in refused:
            with pytest.raises(ValueError, match=r"^sensitivity must be in"):
                mechanism([0.0, 1.0], sensitivity, 1.0, rng)
        else:
            assert mechanism(np.zeros((2, 3)), sensitivity, 1.0, rng).value.shape == (2, 3)


@pytest.mark.parametrize("value", [[], math.nan, math.inf, None, "5", [1.0, None], [1.0, math.nan], 1j, [True, "1"]])
def test_what_is_no_number_is_refused_and_not_released(value):
    for mechanism in (laplace, with_gaussian_noise):
        with pytest.raises(ValueError, match=r"^value must be one or more finite numbers, got something else$"):
            mechanism(value, Sensitivity(1.0, ADD_REMOVE, "l1"), 1.0, np.random.default_rng(0))


def test_an_epsilon_beyond_what_can_be_computed_is_refused_by_name():
    for epsilon in (1e300, 1.1e12):
        with pytest.raises(ValueError, match="epsilon must be a finite number in"):
            gaussian(1.0, Sensitivity(1.0, ADD_REMOVE, "l2"), epsilon, 1e-6)
    assert gaussian(1.0, Sensitivity(1.0, ADD_REMOVE, "l2"), 1e12, 1e-6).value == pytest.approx(1.0, abs=1e-4)


# Laplace


@relations
def test_laplace_noise_has_its_law(relation):
    value = np.linspace(-5, 5, 20_000)
    released = laplace(value, Sensitivity(3.0, relation, "l1"), 0.5, np.random.default_rng(1))
    assert stats.kstest(released.value - value, stats.laplace(scale=6.0).cdf).pvalue > 0.01
    assert (released.guarantee.epsilon, released.guarantee.delta) == (0.5, 0.0)
    assert released.guarantee.neighbouring is relation
    assert released.guarantee.event == LaplaceDpEvent(2.0)
    assert released.guarantee.assumes == (EXACT_REALS, RUNNING_TIME, SEED_SECRET)


def test_laplace_frequencies_attain_epsilon():
    """Beyond the larger value the ratio of the two output laws is exactly e^epsilon."""
    epsilon, sensitivity = 1.0, Sensitivity(2.0, ADD_REMOVE, "l1")
    rng = np.random.default_rng(2)
    near, far = (
        np.array([laplace(value, sensitivity, epsilon, rng).value for value in np.full(6_000, centre)]) > 2.0
        for centre in (2.0, 0.0)
    )
    check_audit(near, far, epsilon, tightness=0.85)


@given(
    first=st.lists(st.floats(-3, 3), min_size=1, max_size=4),
    step=st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    output=st.lists(st.floats(-9, 9), min_size=4, max_size=4),
)
def test_laplace_loss_is_bounded_at_every_output(first, step, output):
    """The event's scale times the l1 sensitivity bounds the log ratio of the released densities."""
    first = np.array(first)
    step, output = np.array(step[: first.size]), np.array(output[: first.size])
    size = max(np.abs(step).sum(), 0.01)
    sensitivity = Sensitivity(size, REPLACE_ONE, "l1")
    guarantee = laplace(first, sensitivity, 0.8, np.random.default_rng(0)).guarantee
    scale = guarantee.event.noise_multiplier * size
    loss = (np.abs(output - first - step) - np.abs(output - first)).sum() / scale
    assert abs(loss) <= guarantee.epsilon + 1e-9


# What floating point breaks, and what the grid mends


def atom(u):
    """What numpy's Laplace sampler of scale 1 makes of the uniform number u in (0, 1), a multiple of 2^-53."""
    return math.log(u + u) if u < 0.5 else -math.log(2.0 - u - u)


def reachable(noise):
    """Whether `noise` is a number that the sampler can return."""
    tail = 0.5 * math.exp(-abs(noise))
    guess = round((tail if noise < 0 else 1 - tail) * 2**53)
    return any(atom(k / 2**53) == noise for k in range(max(guess - 3, 1), min(guess + 4, 2**53)))


def test_most_unrounded_outputs_belong_to_one_neighbour_only():
    """The 80 % of the module's docstring."""
    noise = np.random.default_rng(20).laplace(size=4_000)
    assert all(map(reachable, noise))
    alien = np.mean([not reachable(output) for output in 1 + noise])
    assert alien == pytest.approx(0.80, abs=0.03)


def atoms_of_the_cell(output, centre, step):
    """At least how many of the sampler's 2^53 equally likely values are rounded to `output` on a grid of `step`."""
    low, high = (stats.laplace.cdf(-abs(output - centre) + side) for side in (-step / 2, step / 2))
    return np.floor((high - low) * 2**53 * (1 - 1e-6)) - 1


def test_rounded_outputs_belong_to_both():
    """Each of 10^6 releases is the rounding of several values that the noise can give on either neighbour."""
    rng, step = np.random.default_rng(21), 2.0**-20
    released = laplace(np.ones(1_000_000), Sensitivity(1.0, ADD_REMOVE, "l1"), 1.0, rng).value
    assert np.array_equal(released, np.rint(released / step) * step)
    for centre in (0.0, 1.0):
        assert atoms_of_the_cell(released, centre, step).min() >= 1
    # Where a cell of half the width might be empty there are 2 in 10^9 entries.
    assert atoms_of_the_cell(20.0, 0.0, step / 2) >= 1
    assert 2 * stats.laplace.sf(20.0) < 2.1e-9


def of_gamma_length(value, sensitivity, epsilon, rng):
    made = Ledger(value, sensitivity.neighbouring, rng)
    noisy = made.k_norm(np.copy, sensitivity.value, epsilon)
    return Release(noisy, made.guarantee(epsilon, 0.0, source="K-norm mechanism"))


@pytest.mark.parametrize("mechanism", [laplace, of_gamma_length, with_gaussian_noise])
@pytest.mark.parametrize("size", [1e-12, 1.0, 3e7])
def test_every_real_release_is_on_its_grid(mechanism, size):
    value = np.linspace(-5 * size, 5 * size, 50)
    released = mechanism(value, Sensitivity(size, ADD_REMOVE, "l1"), 0.7, np.random.default_rng(22)).value
    step = 2.0 ** (math.floor(math.log2(size)) - 20)
    assert np.array_equal(released, np.rint(released / step) * step)
    assert np.abs(released - value).max() > size / 10  # the noise is there


@given(value=st.floats(-1e300, 1e300), scale=st.floats(1e-300, 1e300))
def test_rounding_moves_by_less_than_the_grid_and_is_idempotent(value, scale):
    rounded = to_grid(value, scale)
    assert abs(rounded - value) <= scale * 2.0**-21
    assert to_grid(rounded, scale) == rounded


def test_grids_need_a_scale():
    for scale in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match=r"^scale must be"):
            to_grid(1.0, scale)


# Discrete Laplace


def geometric_law(rate, largest):
    """P(k) for |k| <= largest: tanh(rate/2) e^{-rate |k|}."""
    return math.tanh(rate / 2) * np.exp(-rate * np.abs(np.arange(-largest, largest + 1)))


@pytest.mark.parametrize("rate", [Fraction(0.7), Fraction(0.7) / 2, Fraction(4, 3), Fraction(1, 3)])
def test_integer_noise_has_its_law(rate):
    value = np.arange(-2_000, 2_000)
    released = discrete_laplace(value, rate, np.random.default_rng(23))
    noise = released - value
    assert released.dtype == np.int64
    largest = max(int(8 / rate), 3)
    law = 4_000 * geometric_law(float(rate), largest)
    common = law > 5
    found = np.array([np.sum(noise == k) for k in range(-largest, largest + 1)])
    rest = [4_000 - found[common].sum()], [4_000 - law[common].sum()]
    assert stats.chisquare(np.append(found[common], rest[0]), np.append(law[common], rest[1])).pvalue > 1e-3


class Scripted:
    """Random bytes in an order given in advance."""

    def __init__(self, *script):
        self.script = list(script)

    def bytes(self, length):
        number = self.script.pop(0)
        return number.to_bytes(length, "big")


def test_digits_of_a_geometric_number_have_its_law():
    """Independent digits, the k-th 1 with odds exp(-rate 2^k): every number's probability is that of the law."""
    rate = Fraction(1, 3)
    powers, odds = _digits(rate)
    chance = [(int(high) << 64 | int(low)) / 2.0**128 for high, low in odds]
    assert powers[-1] >= 128 > powers[-2]
    assert chance[-1] == 0
    for number in (0, 1, 2, 3, 11, 64):
        digits = [number >> k & 1 for k in range(len(chance))]
        found = math.prod(p if digit else 1 - p for p, digit in zip(chance, digits, strict=True))
        assert found == pytest.approx((1 - math.exp(-rate)) * math.exp(-rate * number), rel=1e-12)


@pytest.mark.parametrize("power", [Fraction(1, 10**30), Fraction(1, 3), Fraction(5), Fraction(88), Fraction(127)])
@pytest.mark.parametrize("is_last", [False, True])
def test_odds_are_rounded_down_exactly(power, is_last):
    """Against 400 digits; and more bits only add to those that are there."""
    for bits in (128, 256, 384):
        with localcontext(Context(prec=400)):
            exact = 2**bits / ((0 if is_last else 1) + (Decimal(power.numerator) / Decimal(power.denominator)).exp())
        assert _odds(power, bits, is_last=is_last) == int(exact)
    assert _odds(power, 256, is_last=is_last) >> 128 == _odds(power, 128, is_last=is_last)
    assert _odds(Fraction(10) ** 300, 128, is_last=is_last) == 0


def test_a_coin_whose_bits_are_those_of_its_probability_is_tossed_on():
    power = Fraction(1, 2)
    first, both = (_odds(power, bits, is_last=False) for bits in (128, 256))
    rest = both - (first << 128)
    for more, expected in ((rest - 1, True), (rest + 1, False)):
        assert _tossed(power, first, Scripted(more), is_last=False) == expected
    # Two rounds: the second 128 bits agree too.
    third = _odds(power, 384, is_last=False) - (both << 128)
    assert _tossed(power, first, Scripted(rest, third - 1), is_last=False)


def test_a_number_beyond_all_digits_goes_on_with_a_geometric_one():
    """All bits of the coin for "any higher digit" are zero, and its next 128 say yes."""
    rate, none = Fraction(64), (1 << 128) - 1
    assert _digits(rate)[0] == [64, 128]  # one digit, and the rest
    undecided = none << 128
    assert _geometric(1, rate, Scripted(undecided, 0, none)) == [2]
    assert _geometric(1, rate, Scripted(undecided, 1 << 127)) == [0]
    assert _geometric(1, rate, Scripted(none)) == [1]  # the digit's bits are all 0, below its probability
    # The number in multiples of 2 is undecided as well.
    assert _geometric(1, rate, Scripted(undecided, 0, 0, 0, none)) == [4]


def test_the_work_is_the_same_for_every_noise():
    """What is drawn from the generator is settled by the rate and the number of values, not by what comes out."""
    rng = np.random.default_rng(24)
    states = set()
    for _ in range(200):
        before = rng.bit_generator.state["state"]["state"]
        discrete_laplace(np.zeros(3, int), Fraction(1, 20), rng)
        copy = np.random.PCG64()
        copy.state = rng.bit_generator.state | {"state": rng.bit_generator.state["state"] | {"state": before}}
        copy.advance(3 * 2 * 2 * len(_digits(Fraction(1, 20))[1]))
        states.add(copy.state["state"]["state"] == rng.bit_generator.state["state"]["state"])
    assert states == {True}


def test_integer_noise_takes_every_epsilon():
    """From 2^-1074 to 10^300: no overflow, no failure, no bias at the cut."""
    rng = np.random.default_rng(25)
    huge = class_counts([], range(40), 5e-324, ADD_REMOVE, rng).value
    assert set(huge.tolist()) == {-(2**62), 2**62}
    assert class_counts([3] * 7, [3], 1e300, ADD_REMOVE, rng).value.tolist() == [7]
    assert discrete_laplace(np.uint8([255]), Fraction(1e9), rng).tolist() == [255]


def test_integer_guarantees_compose():
    """Ten counts by PLD accounting cost less than ten epsilons, and the event's own epsilon is the stated one."""
    guarantee = class_counts([0], [0], 0.5, REPLACE_ONE).guarantee
    assert guarantee.epsilon_at(0.0) == pytest.approx(0.5, abs=1e-3)
    assert 0 < guarantee.delta_at(0.25) < 0.2
    assert compose([guarantee] * 10, delta=1e-5, method="pld").epsilon < 5


# Gaussian


@pytest.mark.parametrize("epsilon", [0.5, 6.0])
def test_gaussian_noise_has_its_law_and_its_delta(epsilon):
    delta, sensitivity = 1e-4, Sensitivity(3.0, REPLACE_ONE, "l2")
    released = gaussian(np.zeros(20_000), sensitivity, epsilon, delta, np.random.default_rng(3))
    multiplier = gaussian_multiplier(epsilon, delta)
    assert stats.kstest(released.value, stats.norm(scale=3.0 * multiplier).cdf).pvalue > 0.01
    assert released.guarantee.event == GaussianDpEvent(multiplier)
    assert (released.guarantee.epsilon, released.guarantee.delta) == (epsilon, delta)
    exact = gaussian_delta(epsilon, 1 / multiplier)
    assert exact == pytest.approx(delta, rel=1e-7)
    assert released.guarantee.delta_at(epsilon) == pytest.approx(exact)


def test_gaussian_parameters_are_checked_before_the_value():
    rng = np.random.default_rng(0)
    for delta in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match=r"^delta must be"):
            gaussian(Untouchable(), Sensitivity(1.0, ADD_REMOVE, "l2"), 1.0, delta, rng)
    with pytest.raises(ValueError, match=r"^sensitivity must be in l2"):
        gaussian([0.0, 1.0], Sensitivity(1.0, ADD_REMOVE, "linf"), 1.0, 1e-5, rng)


# K-norm


@pytest.fixture(scope="module")
def spheres():
    rng = np.random.default_rng(4)
    return {d: np.array([spherical_gamma(d, 2.0, rng) for _ in range(5_000)]) for d in (1, 2, 3)}


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_spherical_gamma_norms_have_their_law(spheres, dimension):
    norms = np.linalg.norm(spheres[dimension], axis=1)
    assert stats.kstest(norms, stats.gamma(dimension, scale=0.5).cdf).pvalue > 0.01


def test_spherical_gamma_has_its_marginals(spheres):
    """In one dimension it is a Laplace law; in three, a coordinate has density (r/4)(1 + r|x|) e^{-r|x|}."""

    def third(x):
        tail = (2 + 2 * np.abs(x)) / 4 * np.exp(-2 * np.abs(x))
        return np.where(x < 0, tail, 1 - tail)

    assert stats.kstest(spheres[1][:, 0], stats.laplace(scale=0.5).cdf).pvalue > 0.01
    for axis in range(3):
        assert stats.kstest(spheres[3][:, axis], third).pvalue > 0.01


def test_spherical_gamma_directions_are_uniform(spheres):
    angles = np.arctan2(spheres[2][:, 1], spheres[2][:, 0])
    assert stats.kstest(angles, stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 0.01


@pytest.mark.parametrize("axis", [0, 1])
def test_k_norm_frequencies_respect_epsilon(axis):
    """The loss is largest in a narrow cone behind the shifted value."""
    epsilon, sensitivity = 1.5, Sensitivity(2.0, REPLACE_ONE, "l2")
    rng = np.random.default_rng(5)
    shift = 2.0 * np.eye(2)[axis]

    def hits(value):
        made = Ledger(value, REPLACE_ONE, rng)
        noisy = np.array([made.k_norm(np.copy, sensitivity.value, epsilon) for _ in range(15_000)]) - shift
        return noisy[:, axis] > 2 * np.abs(noisy[:, 1 - axis])

    (low, _), (_, high) = interval(hits(shift)), interval(hits(np.zeros(2)))
    assert 0.75 * epsilon <= math.log(low / high) <= epsilon


def test_spherical_gamma_parameters_are_checked():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"^rate must be"):
        spherical_gamma(2, 0.0, rng)


# Choices


@st.composite
def neighbouring_scores(draw):
    size = draw(st.integers(1, 6))
    scores = [draw(st.floats(-4, 4)) for _ in range(size)]
    steps = [draw(st.floats(-1, 1)) for _ in range(size)]
    return np.array(scores), np.array(steps)


def largest_loss(p, q):
    return np.abs(np.log(p / q)).max()


@given(pair=neighbouring_scores(), epsilon=st.floats(0.05, 3.0))
def test_exponential_loss_is_at_most_epsilon(pair, epsilon):
    scores, steps = pair
    sensitivity = Sensitivity(1.0, REPLACE_ONE, "linf")
    p, q = (exponential_probabilities(s, sensitivity, epsilon) for s in (scores, scores + steps))
    assert largest_loss(p, q) <= epsilon + 1e-9


@given(pair=neighbouring_scores(), epsilon=st.floats(0.05, 3.0), sign=st.sampled_from([-1, 1]))
def test_exponential_without_the_factor_two_is_private_for_monotonic_scores(pair, epsilon, sign):
    scores, steps = pair
    sensitivity = Sensitivity(1.0, ADD_REMOVE, "linf")
    p, q = (
        exponential_probabilities(s, sensitivity, epsilon, monotonic=True)
        for s in (scores, scores + sign * np.abs(steps))
    )
    assert largest_loss(p, q) <= epsilon + 1e-9


def test_exponential_needs_the_factor_two_in_general():
    """One score rises while ten thousand fall: almost epsilon with the factor, almost 2 epsilon without it."""
    up, down = np.r_[1.0, np.zeros(10_000)], np.r_[0.0, np.ones(10_000)]
    sensitivity = Sensitivity(1.0, ADD_REMOVE, "linf")
    with_factor = [exponential_probabilities(s, sensitivity, 1.0) for s in (up, down)]
    without = [exponential_probabilities(s, sensitivity, 1.0, monotonic=True) for s in (up, down)]
    assert largest_loss(*with_factor) == pytest.approx(1.0, abs=1e-3)
    assert largest_loss(*without) == pytest.approx(2.0, abs=1e-3)


def test_exponential_probabilities_are_the_definition():
    scores, sensitivity = np.array([0.0, 2.0, -1.0]), Sensitivity(0.5, REPLACE_ONE, "linf")
    weights = [math.exp(0.7 * score / (2 * 0.5)) for score in scores]
    found = exponential_probabilities(scores, sensitivity, 0.7)
    assert found == pytest.approx(np.array(weights) / sum(weights))
    assert exponential_probabilities([0.0, 1e6], sensitivity, 5.0).tolist() == [0.0, 1.0]


def test_exponential_draws_with_its_probabilities():
    scores, sensitivity = [0.0, 1.0, 3.0], Sensitivity(1.0, ADD_REMOVE, "linf")
    rng = np.random.default_rng(6)
    for monotonic in (False, True):
        draws = np.array([exponential_choice(scores, sensitivity, 1.0, rng, monotonic=monotonic) for _ in range(4_000)])
        expected = exponential_probabilities(scores, sensitivity, 1.0, monotonic=monotonic)
        for candidate, probability in enumerate(expected):
            low, high = interval(draws == candidate)
            assert low <= probability <= high


def test_monotonic_scores_are_an_assumption_and_need_add_remove():
    with pytest.raises(ValueError, match=r"^monotonic must be True or False, got 'no'"):
        exponential_probabilities(Untouchable(), Sensitivity(1.0, ADD_REMOVE, "linf"), 1.0, monotonic="no")
    made = Ledger(np.array([1, 2]), ADD_REMOVE, np.random.default_rng(0))
    made.choose(np.copy, 1.0, epsilon=1.0, monotonic=True)
    assert "scores monotone in the records" in made.guarantee(1.0, 0.0, source="").assumes
    with pytest.raises(ValueError, match=r"^neighbouring must be one of .*ADD_OR_REMOVE_ONE"):
        exponential_probabilities(Untouchable(), Sensitivity(1.0, REPLACE_ONE, "linf"), 1.0, monotonic=True)


def noisy_max_probabilities(scores, rate):
    """Law of the noisy maximum with exponential noise of the given rate, exactly.

    Candidate r wins with probability w_r times the integral over [0, 1] of prod_{s != r} (1 - w_s t), where
    w_s = e^{rate (score_s - best)}; the integrand is a polynomial, integrated exactly by Gauss and Legendre.
    """
    weights = np.exp(rate * (scores - scores.max()))
    nodes, masses = np.polynomial.legendre.leggauss(len(scores))
    factors = 1 - weights[:, None] * (nodes + 1) / 2
    return np.array(
        [weight * masses @ np.delete(factors, r, axis=0).prod(axis=0) / 2 for r, weight in enumerate(weights)]
    )


def test_noisy_max_of_two_has_its_closed_form():
    """The loser by g wins when its noise exceeds the other's by g: probability e^{-rate g} / 2."""
    found = noisy_max_probabilities(np.array([1.0, 3.0]), 0.4)
    assert found == pytest.approx([math.exp(-0.8) / 2, 1 - math.exp(-0.8) / 2])


@given(pair=neighbouring_scores(), epsilon=st.floats(0.05, 3.0))
def test_noisy_max_loss_is_at_most_epsilon(pair, epsilon):
    scores, steps = pair
    p, q = (noisy_max_probabilities(s, epsilon / 2) for s in (scores, scores + steps))
    assert p.sum() == pytest.approx(1.0)
    assert largest_loss(p, q) <= epsilon + 1e-9


@given(pair=neighbouring_scores(), epsilon=st.floats(0.05, 3.0))
def test_noisy_max_scores_at_least_as_well_as_the_exponential_mechanism(pair, epsilon):
    scores, _ = pair
    drawn = exponential_probabilities(scores, Sensitivity(1.0, ADD_REMOVE, "linf"), epsilon)
    assert noisy_max_probabilities(scores, epsilon / 2) @ scores >= drawn @ scores - 1e-9


@relations
def test_noisy_max_draws_with_its_probabilities(relation):
    scores, sensitivity = np.array([0.0, 1.0, 2.5, 2.0]), Sensitivity(0.5, relation, "linf")
    rng = np.random.default_rng(7)
    released = [report_noisy_max(scores, sensitivity, 0.8, rng) for _ in range(4_000)]
    draws = np.array([release.value for release in released])
    for candidate, probability in enumerate(noisy_max_probabilities(scores, 0.8 / (2 * 0.5))):
        low, high = interval(draws == candidate)
        assert low <= probability <= high
    assert (released[0].guarantee.epsilon, released[0].guarantee.neighbouring) == (0.8, relation)
    assert released[0].guarantee.delta == 0


@pytest.mark.parametrize("mechanism", [exponential_choice, report_noisy_max])
def test_scores_must_be_a_vector(mechanism):
    for scores in ([], [[1.0, 2.0]], 3.0):
        with pytest.raises(ValueError, match=r"^scores must be a non-empty vector"):
            mechanism(scores, Sensitivity(1.0, ADD_REMOVE, "linf"), 1.0, np.random.default_rng(0))


# Class counts


def exact_counts(y, classes, relation=ADD_REMOVE):
    """Counts with noise too small to matter."""
    return class_counts(y, classes, 1e9, relation, np.random.default_rng(0)).value


labels = st.lists(st.integers(0, 4), max_size=12)


@given(y=labels, new=st.integers(0, 4))
def test_an_added_record_moves_the_counts_by_at_most_one(y, new):
    moved = np.abs(exact_counts([*y, new], [0, 1, 2]) - exact_counts(y, [0, 1, 2])).sum()
    assert moved == (1 if new <= 2 else 0)


@given(y=labels.filter(len), new=st.integers(0, 4), where=st.integers(0, 11))
def test_a_replaced_record_moves_the_counts_by_at_most_two(y, new, where):
    where %= len(y)
    changed = [*y[:where], new, *y[where + 1 :]]
    moved = np.abs(exact_counts(changed, [0, 1, 2]) - exact_counts(y, [0, 1, 2])).sum()
    assert moved == (0 if new == y[where] else (new <= 2) + (y[where] <= 2))


@pytest.mark.parametrize(
    ("relation", "classes", "step"), [(ADD_REMOVE, 3, 1), (REPLACE_ONE, 3, 2), (ADD_REMOVE, 2, 1), (REPLACE_ONE, 2, 1)]
)
def test_count_noise_follows_the_relation(relation, classes, step):
    """Two classes under replace-one are one count, of half the noise, and its rest."""
    rng = np.random.default_rng(8)
    y = np.repeat([0, 1, 2], [50, 7, 0])
    released = [class_counts(y, range(classes), 0.5, relation, rng) for _ in range(1_000)]
    noise = np.array([release.value for release in released]) - [50, 7, 0][:classes]
    spread = np.sqrt(np.exp(-0.5 / step) * 2) / (1 - np.exp(-0.5 / step))  # of two-sided geometric noise
    assert noise.std(axis=0) == pytest.approx(np.full(classes, spread), rel=0.15)
    one_count = relation is REPLACE_ONE and classes == 2
    assert np.all(noise.sum(axis=1) == 0) == one_count
    guarantee = released[0].guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbouring) == (0.5, 0.0, relation)
    size = ("number of records public",) if one_count else ()
    assert guarantee.assumes == ("class list", *size, RUNNING_TIME, SEED_SECRET)
    assert guarantee.event == DiscreteLaplaceDpEvent(0.5 / step, step)


def test_count_frequencies_attain_epsilon_when_a_label_flips():
    epsilon, rng = 1.0, np.random.default_rng(9)

    def hits(y):
        counts = np.array([class_counts(y, [0, 1], epsilon, REPLACE_ONE, rng).value for _ in range(5_000)])
        return counts[:, 0] >= 3

    check_audit(hits([0, 0, 0, 1]), hits([0, 0, 1, 1]), epsilon, tightness=0.8)


def test_counts_follow_the_public_class_list():
    assert exact_counts([2, 0, 2, 9], [2, 5, 0]).tolist() == [2, 0, 1]
    assert exact_counts(["b", "a", "b"], ["a", "b"]).tolist() == [1, 2]
    assert exact_counts([], [0, 1]).tolist() == [0, 0]
    assert exact_counts([1, 1], [1]).tolist() == [2]


def test_public_arguments_of_counts_are_checked_first():
    rng = np.random.default_rng(0)
    for classes in ([], [0, 0], [[0, 1]]):
        with pytest.raises(ValueError, match=r"^classes must be"):
            class_counts(Untouchable(), classes, 1.0, ADD_REMOVE, rng)
    with pytest.raises(ValueError, match=r"^neighbouring must be"):
        class_counts(Untouchable(), [0, 1], 1.0, "replace", rng)
    with pytest.raises(ValueError, match=r"^epsilon must be"):
        class_counts(Untouchable(), [0, 1], 0.0, ADD_REMOVE, rng)
    with pytest.raises(ValueError, match=r"^y must be one-dimensional"):
        class_counts([[0, 1]], [0, 1], 1.0, ADD_REMOVE, rng)
