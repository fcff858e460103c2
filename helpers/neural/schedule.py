"""The noise, the clipping and the sampling of every step of private gradient descent, as one object.

A `Schedule` drives the trainer, is what the accountants read, and is what calibration scales, so that the three cannot
drift apart. All of it is public: no entry may be computed from private data (clipping norms estimated from gradients,
say). Training is left to `helpers.neural.training`.
"""

import functools
import logging
import math
import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from helpers.privacy import (
    ADD_REMOVE,
    EXACT_REALS,
    RUNNING_TIME,
    Guarantee,
    Ledger,
    event_epsilon,
    furthest,
    gaussian_mu,
)
from helpers.validation import check_choice, check_integer, check_real

_SOURCES = {
    "pld": "Poisson-sampled Gaussian steps, privacy loss distributions (Doroshenko et al. 2022; dp-accounting)",
    "rdp": "Poisson-sampled Gaussian steps, Renyi accounting (Mironov, Talwar and Zhang 2019; dp-accounting)",
}
_NAMES = ("noise_multipliers", "clip_norms", "sample_rates")
_SMALLEST_NOISE = 0.05  # calibration goes no lower: privacy losses there are in the hundreds
_LARGEST_NOISE = 1e6
_MARGIN = 4e-5  # relative, around the root that calibration finds
# dp-accounting warns of every Renyi order that it leaves out, although fewer orders never lower the bound.
logging.getLogger("absl").addFilter(lambda record: "Excluding this order" not in record.getMessage())


@dataclass(frozen=True, eq=False)
class Schedule:
    """T steps of noisy gradient descent: step t draws every record with probability q_t and adds noise sigma_t C_t.

    Parameters
    ----------
    noise_multipliers : array (T,)
        sigma_t, the standard deviation of the noise over the largest pull of one record; > 0.
    clip_norms : array (T,)
        C_t, the l2 norm to which a record's gradient is clipped; > 0.
    sample_rates : array (T,)
        q_t in (0, 1]: every record is in the batch with this probability, independently of all others and all steps.

    All three are public, are copied, and cannot be changed afterwards.

    Raises
    ------
    ValueError
        No steps, arrays of different lengths, or a number out of range.

    Source: Abadi et al. 2016, Algorithm 1, with parameters that change from step to step.

    >>> schedule = Schedule.constant(100, sample_rate=0.01, noise_multiplier=1.0)
    >>> print(schedule.guarantee(1e-5))
    (0.718, 1e-05)-DP, add/remove-one
    """

    noise_multipliers: NDArray[np.float64]
    clip_norms: NDArray[np.float64]
    sample_rates: NDArray[np.float64]

    def __post_init__(self):
        for name in _NAMES:
            object.__setattr__(self, name, _public_array(name, getattr(self, name)))
        lengths = {name: len(getattr(self, name)) for name in _NAMES}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"noise_multipliers, clip_norms and sample_rates must have one length, got {lengths}")
        if self.sample_rates.max() > 1:
            raise ValueError(f"sample_rates must hold numbers in (0, 1], got {self.sample_rates.max()!r}")

    # ---------------------------------------------------------------------------------------------- constructors

    @classmethod
    def constant(
        cls, total_steps: int, *, sample_rate: float, noise_multiplier: float = 1.0, clip_norm: float = 1.0
    ) -> "Schedule":
        """The same noise, clipping and sampling in every step.

        >>> len(Schedule.constant(20, sample_rate=0.25))
        20
        """
        return cls.step([total_steps], [noise_multiplier], [clip_norm], sample_rate=sample_rate)

    @classmethod
    def step(
        cls,
        lengths: Sequence[int],
        noise_multipliers: ArrayLike,
        clip_norms: ArrayLike,
        *,
        sample_rate: float,
    ) -> "Schedule":
        """Stages of the given lengths (n,), each with one noise multiplier (n,) and one clipping norm (n,).

        Raises
        ------
        ValueError
            Different numbers of stages, or a length below 1.

        >>> Schedule.step([1, 2], [1.0, 2.0], [4.0, 3.0], sample_rate=0.1).noise_multipliers.tolist()
        [1.0, 2.0, 2.0]
        """
        lengths = [check_integer("lengths", length, low=1) for length in lengths]
        rate = check_real("sample_rate", sample_rate, low=0, high=1, inclusive="high")
        stages = {"noise_multipliers": noise_multipliers, "clip_norms": clip_norms}
        for name, values in stages.items():
            if np.shape(values) != (len(lengths),):
                raise ValueError(f"{name} must have one number for each of {len(lengths)} stages, got {values!r}")
        spread = {name: np.repeat(np.asarray(values, dtype=float), lengths) for name, values in stages.items()}
        return cls(**spread, sample_rates=np.full(sum(lengths), rate))

    @classmethod
    def sad(
        cls,
        total_steps: int,
        n_stages: int,
        beta: float,
        gamma: float,
        clip_decay: float = 1.0,
        *,
        sample_rate: float,
        sigma_final: float = 1.0,
    ) -> "Schedule":
        """Stages that get longer, with noise that grows and clipping norms that fall.

        Stage i has noise beta times that of stage i + 1, a clipping norm `clip_decay` times as large, and gamma times
        the length. Lengths are rounded so that they sum to `total_steps`: stage i ends at step floor(T S_i + 1/2),
        S_i the share of the stages up to i, which is within half a step of the exact end.

        Parameters
        ----------
        total_steps : int
            T.
        n_stages : int
            At most T.
        beta, gamma : float
            In (0, 1].
        clip_decay : float
            At least 1. The paper names it and gives no value; 1 leaves the clipping constant.
        sample_rate : float
            q in (0, 1].
        sigma_final : float
            Noise multiplier of the last stage, to be scaled by `calibrate`. Its clipping norm is 1.

        Raises
        ------
        ValueError
            A parameter is out of range, or rounding leaves a stage empty.

        Source: Huang and Xie, Algorithm 1.

        >>> one = Schedule.sad(50, 3, beta=0.8, gamma=0.9, sample_rate=0.016)
        >>> [array.round(2).tolist() for array in np.unique(one.noise_multipliers, return_counts=True)]
        [[0.64, 0.8, 1.0], [15, 17, 18]]
        """
        total = check_integer("total_steps", total_steps, low=1)
        n = check_integer("n_stages", n_stages, low=1, high=total)
        beta = check_real("beta", beta, low=0, high=1, inclusive="high")
        gamma = check_real("gamma", gamma, low=0, high=1, inclusive="high")
        decay = check_real("clip_decay", clip_decay, low=1)
        sigma = check_real("sigma_final", sigma_final, low=0, inclusive="neither")
        behind = np.arange(n - 1, -1, -1)  # stages still to come
        shares = gamma**behind
        ends = np.floor(total * (np.cumsum(shares) / np.sum(shares)) + 0.5).astype(int)
        ends[-1] = total  # which rounding in the shares could miss
        lengths = np.diff(ends, prepend=0).tolist()
        if min(lengths) == 0:
            raise ValueError(
                f"gamma must be so large that no stage is empty, got gamma={gamma!r} with lengths {lengths}"
            )
        return cls.step(lengths, sigma * beta**behind, decay**behind, sample_rate=sample_rate)

    # ----------------------------------------------------------------------------------------------- as a value

    def __len__(self) -> int:
        return len(self.noise_multipliers)

    def scaled(self, factor: float) -> "Schedule":
        """The same schedule with every noise multiplier times `factor` > 0."""
        factor = check_real("factor", factor, low=0, inclusive="neither")
        return replace(self, noise_multipliers=factor * self.noise_multipliers)

    def reversed(self) -> "Schedule":
        """The last step first: the same guarantee, because accounting knows no order."""
        return Schedule(*(getattr(self, name)[::-1] for name in _NAMES))

    # ------------------------------------------------------------------------------------------------ accounting

    def event(self) -> DpEvent:
        """dp-accounting's event of the whole run; equal steps are counted, wherever they stand.

        >>> Schedule.constant(3, sample_rate=1.0, noise_multiplier=2.0).event()
        SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=2.0), count=3)
        """
        return _event(_steps(self.noise_multipliers, self.sample_rates))

    def epsilon(
        self,
        delta: float,
        *,
        accountant: str = "pld",
        interval: float | None = None,
        beside: Iterable[DpEvent] = (),
    ) -> float:
        """Epsilon of the whole run at `delta`, under add/remove.

        Steps are composed as they are, however many different ones there are. A thousand different steps take "pld"
        some six seconds and "rdp" some 20. Answers are kept: an accountant is asked once in a process.

        Parameters
        ----------
        delta : float
            In [0, 1].
        accountant : {"pld", "rdp"}
            Both are upper bounds. "pld" is tighter unless the schedule is so long that the rounding of its steps, up to
            `interval` each, adds up. "rdp" cannot read every event that may be `beside`.
        interval : float, optional
            Discretisation of the privacy loss in nats. Left out: 1e-4 for equal steps, else 1e-3.
        beside : iterable of DpEvent
            Further releases from the same records under the same budget, composed with the steps by one accountant:
            noisy counts, a private cut-off.

        Raises
        ------
        ValueError
            A parameter is out of range.

        >>> schedule = Schedule.constant(20, sample_rate=0.05)
        >>> [round(schedule.epsilon(1e-5, accountant=name), 3) for name in ("rdp", "pld")]
        [2.481, 1.985]
        >>> round(schedule.epsilon(1e-5, beside=[GaussianDpEvent(10.0)]), 3)
        2.014
        """
        delta = check_real("delta", delta, low=0, high=1)
        check_choice("accountant", accountant, tuple(_SOURCES))
        interval = None if interval is None else check_real("interval", interval, low=0, inclusive="neither")
        beside = tuple(beside)
        if not all(isinstance(event, DpEvent) for event in beside):
            raise ValueError(f"beside must hold DpEvents, got {beside!r}")
        steps = (self.noise_multipliers.tobytes(), self.sample_rates.tobytes())
        return _epsilon_once(*steps, pickle.dumps(beside), delta, accountant, interval)

    def guarantee(
        self,
        delta: float,
        *,
        accountant: str = "pld",
        interval: float | None = None,
        beside: Iterable[DpEvent] = (),
        assumes: Iterable[str] = (),
        ledger: Ledger | None = None,
        budget: float | None = None,
    ) -> Guarantee:
        """The guarantee of the whole run, every intermediate model included, under add/remove.

        Parameters
        ----------
        delta, accountant, interval, beside
            As in `epsilon`.
        assumes : iterable of str
            What the guarantee assumes besides the schedule's own needs.
        ledger : Ledger, optional
            The ledger that released the steps and everything `beside` them.
        budget : float, optional
            Epsilon that the guarantee states in place of the epsilon spent, which must not exceed it.

        Raises
        ------
        ValueError
            A parameter is out of range.
        RuntimeError
            The ledger's bill is not exactly that, or is above the budget: nothing that was released may be published.
        """
        beside = tuple(beside)
        steps = _steps(self.noise_multipliers, self.sample_rates)
        # What is accounted must be what was executed, event by event and as often.
        if ledger is not None and ledger.bill != Counter(beside) + steps:
            raise RuntimeError("the ledger's bill is not that of the schedule and what is beside it: publish nothing")
        epsilon = self.epsilon(delta, accountant=accountant, interval=interval, beside=beside)
        if budget is not None:
            if not epsilon <= budget:
                raise RuntimeError(
                    f"the releases cost {epsilon:g}, more than the budget of {budget:g}: publish nothing"
                )
            epsilon = float(budget)
        own = (
            "schedule public",
            *(("secret sample",) if self.sample_rates.min() < 1 else ()),
            EXACT_REALS,
            RUNNING_TIME,
        )
        source = _SOURCES[accountant] + (f", composed with {len(beside)} releases beside them" if beside else "")
        return Guarantee(
            epsilon, delta, ADD_REMOVE, _event(steps, beside), tuple(dict.fromkeys((*own, *assumes))), source
        )

    def calibrate(
        self,
        epsilon: float,
        delta: float,
        *,
        accountant: str = "pld",
        interval: float | None = None,
        beside: Iterable[DpEvent] = (),
    ) -> "Schedule":
        """The schedule with its noise scaled, by one factor, to meet the budget; clipping and sampling stay.

        Parameters
        ----------
        epsilon : float
            Budget of the whole run, and of what is `beside` it, > 0.
        delta : float
            In (0, 1).
        accountant, interval, beside
            As in `epsilon`, which has to be asked in the same way to get at most the budget.

        Returns
        -------
        Schedule
            Its factor is at most 1e-4 of itself too large. No noise multiplier is scaled below 0.05.

        Raises
        ------
        ValueError
            A parameter is out of range, or no noise multiplier up to 1e6 meets the budget.

        >>> schedule = Schedule.sad(60, 3, beta=0.8, gamma=0.9, sample_rate=0.1).calibrate(3.0, 1e-5)
        >>> round(float(schedule.noise_multipliers[0]), 2), round(schedule.epsilon(1e-5), 2)
        (1.21, 3.0)
        """
        epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
        delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
        beside = tuple(beside)

        @functools.cache
        def spent(factor):
            return self.scaled(factor).epsilon(delta, accountant=accountant, interval=interval, beside=beside)

        def enough(factor):
            return spent(factor) <= epsilon

        least, most = _SMALLEST_NOISE / self.noise_multipliers.min(), _LARGEST_NOISE / self.noise_multipliers.max()
        # A little above the approximation, where it is likely to suffice.
        high = min(max(least, 1.1 * self._rough_factor(gaussian_mu(epsilon, delta))), most)
        while not enough(high):
            if high == most:
                raise ValueError(
                    f"epsilon must be within reach of noise multipliers up to {_LARGEST_NOISE:g}, "
                    f"got {epsilon!r} at delta={delta!r}"
                )
            high = min(1.5 * high, most)
        # From above, because accountants are slow where there is far too little noise.
        low = max(high / 1.25, least)
        while low > least and enough(low):
            low, high = max(low / 1.5, least), low
        if enough(low):
            return self.scaled(low)
        # Epsilon is smooth in the factor, so few calls come close; the last ones make sure.
        root = brentq(lambda factor: math.log(np.clip(spent(factor), 1e-300, 1e300) / epsilon), low, high, rtol=2e-5)
        if enough(above := min(root * (1 + _MARGIN), high)):
            low, high = root * (1 - _MARGIN), above
        return self.scaled(furthest(enough, high, low, relative=1e-4))

    def _rough_factor(self, mu: float) -> float:
        """About the factor at which the composition is as private as one Gaussian mechanism of distance `mu`.

        By the central limit theorem for Poisson-sampled steps (Bu, Dong, Long and Su 2020), or without amplification
        where that asks for less.
        """
        squares = self.noise_multipliers**-2.0

        def distance(log_factor):
            terms = squares * math.exp(-2 * log_factor)
            # mu^2 of a sampled step is about q^2 (e^{1/sigma^2} - 1); the bound on the exponent avoids an overflow.
            sampled = self.sample_rates**2 * np.expm1(np.minimum(terms, 500.0))
            return float(np.log(np.sum(np.minimum(sampled, terms))) - 2 * math.log(mu))

        widest = math.log(math.sqrt(squares.sum()) / mu)  # no amplification at all
        # Sampling only lowers the factor that is needed, so the one without amplification is an upper end.
        return math.exp(brentq(distance, widest - 50, widest + 1))


@functools.lru_cache(maxsize=4096)
def _epsilon_once(
    noise: bytes, rates: bytes, beside: bytes, delta: float, accountant: str, interval: float | None
) -> float:
    """`Schedule.epsilon`, cached: arrays and events come as bytes, since those can be looked up.

    Clipping norms are not needed, because noise multipliers are in units of them.
    """
    steps = _steps(np.frombuffer(noise), np.frombuffer(rates))
    if interval is None:
        interval = 1e-4 if len(steps) == 1 else 1e-3
    event = _event(steps, pickle.loads(beside))
    return event_epsilon(event, delta, ADD_REMOVE, method=accountant, interval=interval)


def _steps(sigma: NDArray, rates: NDArray) -> Counter[DpEvent]:
    """Events of the steps and how often each is executed, from noise multipliers and rates (T,)."""
    pairs, counts = np.unique(np.column_stack([sigma, rates]), axis=0, return_counts=True)
    steps: Counter[DpEvent] = Counter()
    for (noise, rate), count in zip(pairs.tolist(), counts.tolist(), strict=True):
        step = GaussianDpEvent(noise)
        # A sample of all records is no sample; the plain event has a closed form.
        steps[step if rate == 1 else PoissonSampledDpEvent(rate, step)] = count
    return steps


def _event(steps: Counter[DpEvent], beside: tuple[DpEvent, ...] = ()) -> DpEvent:
    """One event for all steps and the releases `beside` them."""
    parts = [step if count == 1 else SelfComposedDpEvent(step, count) for step, count in steps.items()]
    event = parts[0] if len(parts) == 1 else ComposedDpEvent(tuple(parts))
    return ComposedDpEvent((*beside, event)) if beside else event


def _public_array(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """A read-only copy (T,) of finite numbers above 0, one for each step."""
    array = np.array(values, dtype=float)
    if array.ndim != 1 or len(array) == 0 or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"{name} must be a vector of finite numbers > 0, one for each step, got {values!r}")
    array.flags.writeable = False
    return array
