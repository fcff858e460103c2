"""Noise schedules as Huang and Xie print them, as the code published with their paper runs them, and Auto-DPSGD's.

The printed formulas for stage lengths, for the mean and variance of the noise and for the privacy of a run are here as
they stand, to be compared with `helpers.neural.Schedule`, which is what a practitioner should use. All arguments are
public.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from numpy.typing import NDArray

from helpers.neural import Schedule
from helpers.privacy import REPLACE_ONE, furthest
from helpers.validation import check_choice

ORDERS = np.concatenate([np.arange(1.01, 11, 0.01), np.arange(11, 512)])
"""Renyi orders over which the printed conversion is minimised; the paper names none."""

_BETA, _STAGES = 0.8, 3  # R and numOfstep of the published code


def stage_lengths(total: float, n_segments: int, gamma: float) -> NDArray[np.float64]:
    """Real lengths (n_segments,) with D_{i-1} = gamma D_i and sum `total`, the shortest first.

    Parameters
    ----------
    total : float
        T > 0.
    n_segments : int
        n + 1 for the printed D_0 ... D_n, n for what the tables call n steps.
    gamma : float
        In (0, 1].

    Source: Huang and Xie, Algorithm 1, line 3.

    >>> stage_lengths(31, 3, 0.2).round(6).tolist()
    [1.0, 5.0, 25.0]
    """
    shares = gamma ** np.arange(n_segments - 1, -1, -1.0)
    return total * shares / shares.sum()


def auto_l(total_steps: int, decay: float, steps_per_epoch: int, *, sample_rate: float) -> Schedule:
    """Noise that falls from 1 by the factor `decay` in (0, 1] after every epoch; the last epoch may be shorter.

    This is what Auto-DPSGD calls linear decay, although it is geometric. Its clipping norms, estimated from the
    gradients, are not private and have no place here: clipping is constant. The code published with SAD-DPSGD runs 0.99
    an epoch under this name and backwards: its noise grows (`Schedule.reversed` gives that).

    Source: Chilukoti, Hossen, Shan, Tida and Hei 2023, linear decay, with public parameters.

    >>> auto_l(3, 0.5, 1, sample_rate=0.1).noise_multipliers.tolist()
    [1.0, 0.5, 0.25]
    """
    epochs = np.arange(total_steps) // steps_per_epoch
    return Schedule(decay**epochs, np.ones(total_steps), np.full(total_steps, sample_rate))


def auto_s(total_steps: int, decay: float, n_stages: int, *, sample_rate: float) -> Schedule:
    """Noise that falls from 1 by the factor `decay` in (0, 1] from stage to stage, of equal length up to rounding.

    Clipping as in `auto_l`; lengths are rounded as in `Schedule.sad`. How many stages is a free choice: the code
    published with SAD-DPSGD takes three with factor 0.8, and runs them backwards too.

    Source: Chilukoti, Hossen, Shan, Tida and Hei 2023, step decay, with public parameters.

    >>> auto_s(4, 0.5, 2, sample_rate=0.1).noise_multipliers.tolist()
    [1.0, 1.0, 0.5, 0.5]
    """
    ends = np.floor(total_steps * (np.arange(n_stages + 1) / n_stages) + 0.5).astype(int)
    return Schedule.step(np.diff(ends), decay ** np.arange(n_stages), np.ones(n_stages), sample_rate=sample_rate)


def mean_and_variance(lengths: Sequence[float], sigmas: Sequence[float]) -> tuple[float, float]:
    """mu = (1/n) sum s_i sigma_i and sum s_i (sigma_i - mu)^2, as printed, n the number of stages.

    Source: Huang and Xie, Section V-A.

    >>> mean_and_variance([2.0, 2.0], [1.0, 1.0])
    (2.0, 4.0)
    """
    lengths, sigmas = np.asarray(lengths, dtype=float), np.asarray(sigmas, dtype=float)
    mean = np.sum(lengths * sigmas) / len(lengths)
    return float(mean), float(np.sum(lengths * (sigmas - mean) ** 2))


def weighted_mean_and_variance(lengths: Sequence[float], sigmas: Sequence[float]) -> tuple[float, float]:
    """The same over steps: both sums are divided by the number of steps.

    >>> weighted_mean_and_variance([1.0, 3.0], [1.0, 5.0])
    (4.0, 3.0)
    """
    lengths, sigmas = np.asarray(lengths, dtype=float), np.asarray(sigmas, dtype=float)
    mean = np.average(sigmas, weights=lengths)
    return float(mean), float(np.average((sigmas - mean) ** 2, weights=lengths))


def renyi_to_epsilon(order: float | NDArray, divergence: float | NDArray, delta: float) -> float | NDArray:
    """Epsilon by the printed Lemma 1, from Renyi differential privacy of some order > 1.

    Source: Huang and Xie, Lemma 1.

    >>> round(float(renyi_to_epsilon(2.0, 1.0, 0.01)), 4)
    4.2189
    """
    return divergence + np.log1p(-1 / order) - (np.log(delta) + np.log(order)) / (order - 1)


def epsilon_of_sum(sigmas: Sequence[float], delta: float) -> float:
    """Epsilon of sum alpha / (2 sigma^2) over the given multipliers by Lemma 1, at the best of `ORDERS`.

    With one multiplier for each *stage* this is the printed total; with one for each iteration it is right, and leaves
    the sampling out.

    Parameters
    ----------
    sigmas : sequence of float
        Noise multipliers, > 0.
    delta : float
        In (0, 1).

    Source: Huang and Xie, Section IV-B.

    >>> round(epsilon_of_sum([1.0], 1e-3), 3)
    3.537
    """
    precision = np.sum(np.asarray(sigmas, dtype=float) ** -2.0)
    return float(np.min(renyi_to_epsilon(ORDERS, ORDERS * precision / 2, delta)))


def factor_for_sum(sigmas: Sequence[float], epsilon: float, delta: float) -> float:
    """The factor on all multipliers at which `epsilon_of_sum` is `epsilon`.

    >>> factor = factor_for_sum([0.64, 0.8, 1.0], 3.0, 1e-3)
    >>> round(factor, 3), round(epsilon_of_sum([0.64 * factor, 0.8 * factor, factor], 1e-3), 6)
    (2.563, 3.0)
    """
    one = furthest(lambda sigma: epsilon_of_sum([sigma], delta) <= epsilon, 1e6, 1e-3, relative=1e-10)
    return one * math.sqrt(np.sum(np.asarray(sigmas, dtype=float) ** -2.0))


def replaced_epsilon(schedule: Schedule, delta: float, *, interval: float = 1e-4) -> float:
    """Epsilon of a run on Poisson batches if neighbours *replace* a record; upper bound up to its last digits.

    A record that pulls one way is replaced by one that pulls the other way, which turns (1-q) N(0, sigma^2) +
    q N(1, sigma^2) into its mirror image. No other pair of records is worse, so this is what the schedule costs.

    Parameters
    ----------
    schedule : Schedule
        Noise multipliers are over the clipping norm, not over the sensitivity of replace-one, which is twice that.
    delta : float
        In (0, 1).
    interval : float
        Discretisation of the privacy loss in nats.

    Source: dp-accounting's accountant under replace-one; that no pair is worse is proved in the chapter on DP-SGD.

    >>> round(replaced_epsilon(Schedule.constant(1, sample_rate=0.5), 1e-3), 2)
    2.95
    """
    accountant = PLDAccountant(REPLACE_ONE, value_discretization_interval=interval)
    return float(accountant.compose(schedule.event()).get_epsilon(delta))


def fixed_batches_epsilon(schedule: Schedule, delta: float, *, interval: float = 1e-4) -> float:
    """A lower bound on epsilon of batches of a fixed size, drawn without replacement, under either relation.

    All records pull one way, and the one that differs pulls the other way. Where it is drawn it takes the place of
    another record in the batch, so that the sum moves by *two* clipping norms whether it was added or replaced one:
    N(0, sigma^2) becomes (1-q) N(0, sigma^2) + q N(2, sigma^2). Privacy losses are rounded down, which can only lower
    epsilon.

    Parameters
    ----------
    schedule : Schedule
        Each step has a fresh batch; its rate q is the size of the batch over the number of records, of the larger data
        set under add/remove.
    delta : float
        In (0, 1).
    interval : float
        Discretisation of the privacy loss in nats; up to the number of steps times this is lost.

    >>> round(fixed_batches_epsilon(Schedule.constant(1, sample_rate=0.5), 1e-3), 2)
    6.45
    """
    pairs = np.column_stack([schedule.noise_multipliers, schedule.sample_rates])
    stages = [
        privacy_loss_distribution.from_gaussian_mechanism(
            sigma, sensitivity=2.0, sampling_prob=rate, value_discretization_interval=interval,
            pessimistic_estimate=False, use_connect_dots=False,
        ).self_compose(count)
        for (sigma, rate), count in zip(*np.unique(pairs, axis=0, return_counts=True), strict=True)
    ]  # fmt: skip
    whole = functools.reduce(lambda run, stage: run.compose(stage), stages)
    return float(whole.get_epsilon_for_delta(delta))


class Implemented(NamedTuple):
    """One algorithm of the published code: the noise its accountant is asked about, and the noise that is added.

    Attributes
    ----------
    accounted, executed : Schedule
        With the multiplier that calibration returns set to 1. Clipping is left out: accounting does not see it.
    """

    accounted: Schedule
    executed: Schedule


def implemented(
    algorithm: str, *, n_epochs: int = 50, steps_per_epoch: int, sample_rate: float, gamma: float = 0.9
) -> Implemented:
    """What the published code accounts for and what it executes, by epochs, with three stages and beta = 0.8.

    Its trainer starts at the calibrated multiplier and *divides* by beta at the end of each stage, at the epoch
    floor(sum of the stages so far). "sad" is calibrated as if the noise were constant. "auto-s" is calibrated for
    multipliers beta^2, beta, 1 on stages of ratio gamma, and is run with stages of equal length.

    Parameters
    ----------
    algorithm : {"sad", "auto-s"}
    n_epochs : int
        50 in the code.
    steps_per_epoch : int
    sample_rate : float
        Accounted as the rate of a Poisson sample. (What is run are shuffled batches of fixed size.)
    gamma : float
        The argument qR; the default is the paper's. "auto-s" is calibrated with the gamma given, which is 0.8 when the
        command of the code's own instructions is used and 0.7 by default.

    Source: github.com/FangXieLab/SAD-DPSGD, main.py, rdp_accountant.py and algorithm/, read at commit 63a15ca.

    >>> run = implemented("sad", steps_per_epoch=1, sample_rate=0.016)
    >>> [array.round(4).tolist() for array in np.unique(run.executed.noise_multipliers, return_counts=True)]
    [[1.0, 1.25, 1.5625], [14, 17, 19]]
    """
    check_choice("algorithm", algorithm, ("sad", "auto-s"))
    steps = n_epochs * steps_per_epoch
    if algorithm == "sad":
        accounted = Schedule.constant(steps, sample_rate=sample_rate, noise_multiplier=1.0)
    else:
        accounted = Schedule.sad(steps, _STAGES, _BETA, gamma, sample_rate=sample_rate)
    lengths = stage_lengths(n_epochs, _STAGES, gamma if algorithm == "sad" else 1.0)
    ends = np.floor(np.cumsum(lengths) + 1e-9).astype(int)
    executed = Schedule.step(
        (np.diff(ends, prepend=0) * steps_per_epoch).tolist(),
        (_BETA ** -np.arange(float(_STAGES))).tolist(),
        [1.0] * _STAGES,
        sample_rate=sample_rate,
    )
    return Implemented(accounted, executed)
