"""Privacy accounting on numbers and on dp-accounting's events.

The module holds the exact privacy curves of the two standard noises, the composition theorems, and
accountants that turn a `DpEvent` into epsilon or delta. Every number is an upper bound up to floating-point
rounding; closed forms are used where they exist and dp-accounting's RDP and PLD accountants everywhere else.
What the numbers are promised about (neighbouring relation, assumptions) belongs to
`helpers.privacy.guarantees`.

One convention differs from dp-accounting's documentation. The noise multiplier of an event is the noise
divided by the sensitivity *under the guarantee's own relation*, so a Gaussian event of multiplier 1 costs the
same under both relations. dp-accounting 0.6 reads it so in its RDP accountant, whereas its PLD accountant
doubles the sensitivity under replace-one.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import attr
import numpy as np
from dp_accounting import NeighboringRelation, UnsupportedEventError, dp_event, get_epsilon_gaussian, get_sigma_gaussian
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_privacy_parameters
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from dp_accounting.rdp import RdpAccountant
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, log_ndtr
from scipy.stats import binom

from helpers.validation import check_choice, check_integer, check_real

LARGEST_EPSILON = 700.0  # e^epsilon overflows a little above this, and nothing is promised there anyway
_MOST_EPSILON = 1e12  # for which the standard deviation of Gaussian noise can still be solved for
ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE_ONE = NeighboringRelation.REPLACE_ONE


# Privacy curves


def gaussian_delta(epsilon: float, mu: float | NDArray) -> float | NDArray:
    """Smallest delta for which the Gaussian mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        At least 0.
    mu : float or array
        l2 sensitivity divided by the standard deviation of the noise; at least 0.

    Returns
    -------
    float or array of the shape of `mu`
        Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), subtracted in log space so that neither a
        large epsilon nor a tiny delta loses its digits.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Balle and Wang 2018, Theorem 8.

    >>> round(gaussian_delta(1.0, 0.5), 5)
    0.00683
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    mu = _check_distances("mu", mu)
    moved = np.where(mu > 0, mu, 1.0)  # at mu = 0 delta is 0, set below; 1 only avoids the division by 0
    # Both terms in logarithms: e^epsilon overflows and Phi underflows long before their product leaves the range.
    log_upper = log_ndtr(moved / 2 - epsilon / moved)
    log_lower = epsilon + log_ndtr(-moved / 2 - epsilon / moved)
    # Rounding can put the two in the wrong order when the difference is below the last digit.
    delta = np.exp(log_upper) * -np.expm1(np.minimum(log_lower - log_upper, 0.0))
    return unwrapped(np.where(mu > 0, delta, 0.0))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Smallest epsilon for which the Gaussian mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    delta : float
        In [0, 1]; at 0 the answer is infinite unless mu is 0.
    mu : float
        l2 sensitivity divided by the standard deviation of the noise; at least 0.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Balle and Wang 2018, Theorem 8, inverted by dp-accounting.

    >>> round(gaussian_epsilon(1e-5, 1.0), 4)
    4.3772
    """
    delta = check_real("delta", delta, low=0, high=1)
    mu = check_real("mu", mu, low=0)
    # The library takes the standard deviation over the sensitivity, 1 / mu; without any movement that is infinite.
    return float(get_epsilon_gaussian(math.inf if mu == 0 else 1 / mu, delta))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu for which the Gaussian mechanism is (epsilon, delta)-DP: the analytic calibration.

    The standard deviation to use is the l2 sensitivity divided by the returned value.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float
        In (0, 1).

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Balle and Wang 2018, Algorithm 1, solved by dp-accounting.

    >>> round(1 / gaussian_mu(1.0, 1e-5), 4)
    3.7306
    """
    epsilon = check_real("epsilon", epsilon, low=0, high=_MOST_EPSILON)
    delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
    # The solver's tolerance is absolute. A standard deviation below 0.01, at epsilon beyond about 1e4, needs more than
    # the digits that 1e-12 leaves it, so the tolerance shrinks as epsilon grows.
    tolerance = 1e-12 / max(1.0, epsilon / 1e4)
    return float(1 / get_sigma_gaussian(epsilon, delta, tolerance))


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Standard deviation of the Gaussian mechanism for l2 sensitivity 1: the least that suffices.

    Parameters
    ----------
    epsilon : float
        Above 0.
    delta : float
        In (0, 1).

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Balle and Wang 2018, Theorem 9.

    >>> round(gaussian_multiplier(0.5, 1e-5), 2)
    7.03
    """
    return 1 / gaussian_mu(check_real("epsilon", epsilon, low=0, inclusive="neither"), delta)


def laplace_delta(epsilon: float, pure_epsilon: float | NDArray) -> float | NDArray:
    """Smallest delta for which an eps0-DP Laplace mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        At least 0.
    pure_epsilon : float or array
        eps0, the l1 sensitivity divided by the scale of the noise; at least 0.

    Returns
    -------
    float or array of the shape of `pure_epsilon`
        1 - e^{(epsilon - eps0)/2} below eps0 and 0 from there on: the hockey-stick divergence of two Laplace
        densities.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Balle, Barthe and Gaboardi 2018, Theorem 3.

    >>> round(laplace_delta(0.5, 1.0), 4)
    0.2212
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    pure_epsilon = _check_distances("pure_epsilon", pure_epsilon)
    return unwrapped(np.abs(np.expm1(np.minimum((epsilon - pure_epsilon) / 2, 0.0))))  # 0, never -0


def laplace_epsilon(delta: float, pure_epsilon: float) -> float:
    """Smallest epsilon for which an eps0-DP Laplace mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    delta : float
        In [0, 1].
    pure_epsilon : float
        eps0, the l1 sensitivity divided by the scale of the noise; at least 0.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Balle, Barthe and Gaboardi 2018, Theorem 3, inverted.

    >>> round(laplace_epsilon(0.1, 1.0), 4)
    0.7893
    """
    delta = check_real("delta", delta, low=0, high=1)
    pure_epsilon = check_real("pure_epsilon", pure_epsilon, low=0)
    # The curve delta = 1 - e^{(epsilon - eps0)/2} solved for epsilon; log1p(-1) would be -inf.
    return 0.0 if delta == 1 else max(pure_epsilon + 2 * math.log1p(-delta), 0.0)


def group_delta(epsilon: float, delta: float, size: int) -> float:
    """Delta that (epsilon, delta)-DP gives groups of `size` records at size * epsilon, at most 1.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for one record.
    size : int
        Number of records, at least 1.

    Returns
    -------
    float
        min(1, delta (e^{size epsilon} - 1)/(e^epsilon - 1)), the geometric sum of the size intermediate
        steps. It is *not* size * delta, except at epsilon = 0.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Vadhan 2017, Lemma 2.2, with its geometric sum kept.

    >>> round(group_delta(1.0, 1e-6, 5), 8)
    8.579e-05
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    delta = check_real("delta", delta, low=0, high=1)
    size = check_integer("size", size, low=1)
    return float(chained_delta(epsilon, delta, size * epsilon, size))


def chained_delta(epsilon: float, delta: float, losses: Any, sizes: Any) -> Any:
    """delta (e^loss - 1)/(e^epsilon - 1), at most 1; at epsilon = 0 its limit, size * delta.

    This is the delta that (epsilon, delta)-DP leaves after `sizes` steps from neighbour to neighbour, which together
    multiply probabilities by at most e^loss. `losses` and `sizes` are numbers, or arrays of one shape.
    """
    if delta == 0 or epsilon == 0:
        return np.minimum(sizes * delta, 1.0)
    # e^loss overflows long before its logarithm does; -expm1(-x) keeps the digits of small epsilon.
    with np.errstate(divide="ignore"):  # no loss, no delta
        # log of (e^loss - 1)/(e^epsilon - 1), with e^loss and e^epsilon taken out of the fraction.
        log_sum = losses - epsilon + np.log(np.expm1(-losses) / np.expm1(-epsilon))
    return np.exp(np.minimum(math.log(delta) + log_sum, 0.0))


def _check_distances(name: str, value: ArrayLike) -> NDArray | np.float64:
    """`value` as a float or an array of floats, if all are finite and at least 0; else a ValueError names `name`."""
    if np.ndim(value) == 0:
        return np.float64(check_real(name, value, low=0))
    value = np.asarray(value, dtype=float)
    if not (np.isfinite(value) & (value >= 0)).all():
        raise ValueError(f"{name} must hold finite numbers in [0, inf), got {value!r}")
    return value


def unwrapped(value: NDArray) -> float | NDArray:
    """A number instead of an array without dimensions."""
    return float(value) if np.ndim(value) == 0 else value


# Composition theorems on numbers


def advanced_composition(epsilon: float, delta: float, count: int, delta_slack: float) -> tuple[float, float]:
    """Advanced composition of `count` adaptively chosen (epsilon, delta)-DP mechanisms.

    Parameters
    ----------
    epsilon, delta : float
        Guarantee of each mechanism.
    count : int
        How many, at least 1.
    delta_slack : float
        Added to the total delta; in (0, 1).

    Returns
    -------
    (float, float)
        sqrt(2 count log(1/delta_slack)) epsilon + count epsilon (e^epsilon - 1), and count * delta +
        delta_slack (at most 1). For few mechanisms this exceeds basic composition: take the smaller.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Dwork, Rothblum and Vadhan 2010, Theorem III.3.

    >>> [round(v, 7) for v in advanced_composition(0.1, 0.0, 100, 1e-6)]
    [6.308231, 1e-06]
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    delta = check_real("delta", delta, low=0, high=1)
    count = check_integer("count", count, low=1)
    slack = check_real("delta_slack", delta_slack, low=0, high=1, inclusive="neither")
    drift = count * epsilon * (math.expm1(epsilon) if epsilon < 700 else math.inf)
    total = math.sqrt(2 * count * math.log(1 / slack)) * epsilon + drift
    return total, min(count * delta + slack, 1.0)


def optimal_delta(total_epsilon: float, epsilon: float, count: int, *, delta_each: float = 0.0) -> float:
    """Delta at `total_epsilon` that `count` (epsilon, delta_each)-DP mechanisms can need, adaptively chosen.

    It is attained by `count` randomised responses, so no composition theorem that knows only the two
    parameters beats it. With one mechanism it is the exact curve that (epsilon, delta_each)-DP implies at
    other values of epsilon.

    Parameters
    ----------
    total_epsilon : float
        Where the curve is evaluated, at least 0.
    epsilon, delta_each : float
        Guarantee of each mechanism.
    count : int
        How many, at least 1. Time and memory are proportional to it.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Kairouz, Oh and Viswanath 2015, Theorem 3.3; at every epsilon: Murtagh and Vadhan 2016.

    >>> round(optimal_delta(0.5, 1.0, 1), 4)
    0.2876
    """
    total_epsilon = check_real("total_epsilon", total_epsilon, low=0)
    epsilon = check_real("epsilon", epsilon, low=0)
    count = check_integer("count", count, low=1)
    delta_each = check_real("delta_each", delta_each, low=0, high=1)
    # Each mechanism is at worst a randomised response that tells the truth with odds e^epsilon to 1. With `lies` lies
    # among `count` answers the privacy loss is (count - 2 lies) epsilon.
    lies = np.arange(count + 1)
    losses = (count - 2 * lies) * epsilon
    # Only positive terms are summed, so a tiny delta keeps its digits.
    gain = -np.expm1(np.minimum(total_epsilon - losses, 0.0))
    pure = min(float(binom.pmf(lies, count, expit(-epsilon)) @ gain), 1.0)
    # Each mechanism also fails openly with probability delta_each, and one failure gives all away.
    return pure + (1 - pure) * _any_fails(delta_each, count)


def optimal_composition(epsilon: float, count: int, delta: float, *, delta_each: float = 0.0) -> tuple[float, float]:
    """Smallest total epsilon at `delta` that covers `count` (epsilon, delta_each)-DP mechanisms.

    Parameters
    ----------
    epsilon, delta_each : float
        Guarantee of each mechanism.
    count : int
        How many, at least 1; each may be chosen after seeing the previous outputs.
    delta : float
        Total delta in [0, 1]; at 0 the answer is count * epsilon.

    Returns
    -------
    (float, float)
        Total epsilon (infinite when `delta` is below 1 - (1 - delta_each)^count) and `delta`.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Kairouz, Oh and Viswanath 2015, Theorem 3.3 (between its breakpoints: Murtagh and Vadhan 2016).

    >>> round(optimal_composition(0.1, 100, 1e-6)[0], 4)
    4.7746
    """
    delta = check_real("delta", delta, low=0, high=1)
    high = check_real("epsilon", epsilon, low=0) * check_integer("count", count, low=1)
    # A failure is visible at every epsilon, so a smaller total delta cannot be had at any.
    if _any_fails(check_real("delta_each", delta_each, low=0, high=1), count) > delta:
        return math.inf, delta

    def enough(total_epsilon):
        return optimal_delta(total_epsilon, epsilon, count, delta_each=delta_each) <= delta

    # From count * epsilon, where basic composition holds, downwards: what is returned satisfies `enough`.
    return furthest(enough, high, 0.0, relative=1e-12), delta


def _any_fails(delta: float, count: int) -> float:
    """Probability that at least one of `count` independent events of probability `delta` happens."""
    return 1.0 if delta == 1 else -math.expm1(count * math.log1p(-delta))


def furthest(holds: Callable[[float], bool], start: float, end: float, *, relative: float = 1e-10) -> float:
    """Furthest number from `start` towards `end` where a monotone condition holds, rounded to the safe side.

    Parameters
    ----------
    holds : callable
        True from `start` up to some number, false beyond. Not called at `start`.
    start, end : float
        At least 0; either may be the larger.
    relative : float
        Width of the final bracket over its upper end.

    Returns
    -------
    float
        Never too far: `holds` is true there.

    >>> round(furthest(lambda x: x * x <= 2, 0.0, 2.0), 6), round(furthest(lambda x: x * x >= 2, 2.0, 0.0), 6)
    (1.414214, 1.414214)
    """
    if holds(end):
        return end
    while abs(end - start) > relative * max(start, end):
        middle = (start + end) / 2
        # Neighbouring doubles have no number between them, and the loop would not end.
        if middle in (start, end):
            break
        # `start` always holds and `end` never does; so `start` is returned, the safe side.
        start, end = (middle, end) if holds(middle) else (start, middle)
    return start


# Events and their accountants


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ApproximateDpEvent(dp_event.DpEvent):
    """A mechanism of which nothing is known but that it is (epsilon, delta)-DP.

    dp-accounting has no event for it. Its accountants here use the worst such mechanism: randomised response
    that fails openly with probability delta (Kairouz, Oh and Viswanath 2015).

    >>> round(event_epsilon(dp_event.SelfComposedDpEvent(ApproximateDpEvent(0.1, 0.0), 100), 1e-6, ADD_REMOVE), 2)
    4.77
    """

    epsilon: float
    delta: float


def event_epsilon(
    event: dp_event.DpEvent,
    delta: float,
    neighbouring: NeighboringRelation,
    *,
    method: str = "pld",
    interval: float = 1e-4,
) -> float:
    """Epsilon of an event at `delta`.

    Parameters
    ----------
    event : DpEvent
        Noise multipliers are relative to the sensitivity under `neighbouring`.
    delta : float
        In [0, 1].
    neighbouring : NeighboringRelation
        `ADD_REMOVE` or `REPLACE_ONE`.
    method : {"pld", "rdp"}
        "pld" uses closed forms for compositions of Gaussians and for one Laplace event.
    interval : float
        Discretisation of the privacy loss in nats, rounded up: smaller is tighter and slower. Used by "pld"
        only.

    Returns
    -------
    float
        Infinite when the accountant has no bound at this delta.

    Raises
    ------
    ValueError
        A parameter is out of range, or the accountant does not support the event under this relation.

    Notes
    -----
    Source: Mironov 2017 (RDP); Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022 (PLD), both as in
    dp-accounting.

    >>> round(event_epsilon(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(4.0), 16), 1e-5, REPLACE_ONE), 4)
    4.3772
    """
    delta = check_real("delta", delta, low=0, high=1)
    # Built even where a closed form is used, because it checks the relation, the method and the interval.
    accountant = _accountant(neighbouring, method, interval)
    if method == "pld" and (closed := closed_form(event)):
        return closed.epsilon(delta, closed.parameter)
    return float(_spend(accountant, event).get_epsilon(delta))


def event_delta(event: dp_event.DpEvent, epsilon: float, neighbouring: NeighboringRelation) -> float:
    """Delta of an event at `epsilon` by privacy loss distributions; parameters and errors as in `event_epsilon`.

    Returns
    -------
    float
        In [0, 1].

    Notes
    -----
    Source: as `event_epsilon`.

    >>> round(event_delta(dp_event.LaplaceDpEvent(1.0), 0.5, ADD_REMOVE), 4)
    0.2212
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    accountant = _accountant(neighbouring)
    if closed := closed_form(event):
        return float(closed.delta(epsilon, closed.parameter))
    return min(float(_spend(accountant, event).get_delta(epsilon)), 1.0)


def event_supported(event: dp_event.DpEvent, neighbouring: NeighboringRelation, *, method: str = "pld") -> bool:
    """Whether the accountant can read the event under the relation.

    >>> event_supported(ApproximateDpEvent(1.0, 1e-6), ADD_REMOVE, method="rdp")
    False
    """
    return _accountant(neighbouring, method).supports(event)


class ClosedForm(NamedTuple):
    """Exact curve of additive noise: `parameter` is the distance that one record moves the value, in units of noise.

    `epsilon(delta, parameter)` and `delta(epsilon, parameter)`; for `size` records the parameter is `size` times as
    large, and `delta` takes an array of them.
    """

    epsilon: Callable[[float, float], float]
    delta: Callable[[float, float | NDArray], float | NDArray]
    parameter: float


def closed_form(event: dp_event.DpEvent | None) -> ClosedForm | None:
    """The exact curve of compositions of Gaussian noise, and of one Laplace noise; None for any other event.

    Source: Dong, Roth and Su 2022, Corollary 3.3.

    >>> closed_form(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(4.0), 16)).parameter
    1.0
    """
    match event:
        case dp_event.NoOpDpEvent():
            events, count = [], 0
        case dp_event.GaussianDpEvent(noise_multiplier=noise) if noise > 0:
            return ClosedForm(gaussian_epsilon, gaussian_delta, 1 / noise)
        case dp_event.LaplaceDpEvent(noise_multiplier=noise) if noise > 0:
            return ClosedForm(laplace_epsilon, laplace_delta, 1 / noise)
        case dp_event.SelfComposedDpEvent():
            events, count = [event.event], event.count
        case dp_event.ComposedDpEvent():
            events, count = event.events, 1
        case _:
            return None
    # Only Gaussians compose to something with a closed form: mu adds up in squares (Corollary 3.3). No event at all is
    # mu = 0.
    parts = [form for form in map(closed_form, events) if form and form.delta is gaussian_delta]
    if len(parts) < len(events):
        return None
    mu = math.sqrt(count) * math.hypot(*(part.parameter for part in parts))
    return ClosedForm(gaussian_epsilon, gaussian_delta, mu)


def _spend(accountant: Any, event: dp_event.DpEvent) -> Any:
    """The accountant after the event; an event that it cannot read is a ValueError instead of the library's error."""
    try:
        return accountant.compose(event)
    except UnsupportedEventError as error:
        raise ValueError(f"event must be one that {type(accountant).__name__} supports: {error}") from error


def _accountant(neighbouring: NeighboringRelation, method: str = "pld", interval: float = 1e-4) -> Any:
    """A fresh accountant, once its three public parameters have been checked."""
    check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
    if check_choice("method", method, ("pld", "rdp")) == "rdp":
        return _RenyiAccountant(neighboring_relation=neighbouring)
    return _LossAccountant(neighbouring, check_real("interval", interval, low=0, inclusive="high"))


class _RenyiAccountant(RdpAccountant):
    """dp-accounting's RDP accountant, which can also read a pure `ApproximateDpEvent`, and integer noise as one."""

    _rdp: NDArray

    def _maybe_compose(self, event: dp_event.DpEvent, count: int, do_compose: bool):
        if isinstance(event, dp_event.DiscreteLaplaceDpEvent):
            # Discrete Laplace noise is epsilon-DP, epsilon being its rate times the sensitivity. The library's Renyi
            # accountant does not read the event itself.
            event = ApproximateDpEvent(event.noise_parameter * event.sensitivity, 0.0)
        if not isinstance(event, ApproximateDpEvent):
            return super()._maybe_compose(event, count, do_compose)
        if event.delta > 0:
            return self.CompositionErrorDetails(event, "Renyi DP does not follow from approximate DP.")
        if do_compose:  # the largest divergence of an epsilon-DP mechanism is that of randomised response
            orders, log_true, log_lie = self._orders, log_expit(event.epsilon), log_expit(-event.epsilon)
            # The order-a divergence is log(p^a q^{1-a} + q^a p^{1-a}) / (a - 1), with p = e^epsilon / (1 + e^epsilon)
            # the probability of the truth and q = 1 - p.
            same = orders * log_true + (1 - orders) * log_lie
            other = orders * log_lie + (1 - orders) * log_true
            self._rdp = self._rdp + count * np.logaddexp(same, other) / (orders - 1)
        return None


class _LossAccountant(PLDAccountant):
    """dp-accounting's PLD accountant with this module's convention, which can also read an `ApproximateDpEvent`.

    It is always run under add/remove, where one record moves the released value by one sensitivity. That is
    also what replace-one means for additive noise here (see the module's docstring), but not for subsampling,
    which is refused there.
    """

    _pld: PrivacyLossDistribution

    _REPLACE_ONE_EVENTS = (
        dp_event.NoOpDpEvent,
        dp_event.NonPrivateDpEvent,
        dp_event.SelfComposedDpEvent,
        dp_event.ComposedDpEvent,
        dp_event.GaussianDpEvent,
        dp_event.LaplaceDpEvent,
        dp_event.DiscreteLaplaceDpEvent,
        ApproximateDpEvent,
    )

    def __init__(self, neighbouring: NeighboringRelation, interval: float):
        # See the module's docstring: under replace-one the library would double a sensitivity that is stated for
        # replace-one already.
        super().__init__(ADD_REMOVE, value_discretization_interval=interval)
        self._replace_one = neighbouring is REPLACE_ONE

    def _maybe_compose(self, event: dp_event.DpEvent, count: int, do_compose: bool):
        if self._replace_one and not isinstance(event, self._REPLACE_ONE_EVENTS):
            return self.CompositionErrorDetails(event, "Not accounted for under replace-one.")
        match event:
            case dp_event.PoissonSampledDpEvent(
                sampling_probability=rate, event=dp_event.GaussianDpEvent(noise_multiplier=noise)
            ) if 0 < rate < 1 and noise > 0:
                if do_compose:
                    single = _sampled_gaussian(noise, rate, self._value_discretization_interval)
                    # The library looks for truncation bounds, at some length, even if there is nothing to compose.
                    self._pld = self._pld.compose(single.self_compose(count) if count > 1 else single)
                return None
        if not isinstance(event, ApproximateDpEvent):
            return super()._maybe_compose(event, count, do_compose)
        # Its loss distribution needs e^epsilon, which overflows. That nothing is promised is the safe reading.
        if event.epsilon > LARGEST_EPSILON:
            return super()._maybe_compose(dp_event.NonPrivateDpEvent(), count, do_compose)
        if do_compose:
            worst = DifferentialPrivacyParameters(event.epsilon, event.delta)
            single = from_privacy_parameters(worst, self._value_discretization_interval)
            self._pld = self._pld.compose(single.self_compose(count))
        return None


def _sampled_gaussian(multiplier: float, rate: float, interval: float) -> PrivacyLossDistribution:
    """Loss distribution of one Gaussian release from a Poisson sample, as dp-accounting's `from_gaussian_mechanism`.

    The library inverts the privacy loss at one point of its grid after the other, which is most of the work where noise
    differs from step to step. Here all points are inverted at once; discretisation and composition stay the library's.

    Source: Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, Algorithm 1.
    """
    found = []
    for adjacency, sign in ((AdjacencyType.REMOVE, 1), (AdjacencyType.ADD, -1)):
        mechanism = GaussianPrivacyLoss(multiplier, sampling_prob=rate, adjacency_type=adjacency)
        bounds = mechanism.connect_dots_bounds()
        low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
        losses = interval * np.arange(low, high + 1)
        # Sampling makes log(1 - q + q e^a) of a loss a in a removed record, and minus that of -a in an added one. Below
        # log(1 - q) there is no a: the limits of both distribution functions then give the right delta.
        signed = sign * losses
        with np.errstate(divide="ignore"):
            unsampled = signed - math.log(rate) + np.log1p(-np.minimum((1 - rate) * np.exp(-signed), 1.0))
        # The noise at which a removed record has this loss; for an added one, its mirror image around 0.
        noise = -sign * (unsampled * multiplier**2 + 0.5)
        deltas = mechanism.mu_upper_cdf(noise) - np.exp(losses + mechanism.mu_lower_log_cdf(noise))
        found.append(create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, np.clip(deltas, 0.0, 1.0)))
    return PrivacyLossDistribution(*found)
