"""How settings are chosen before methods are compared: declared once, for every method alike, and told in a sentence.

A `Protocol` says what is tried, on which data, with how many seeds and at which budget; `tune` tries it, lets the grid
grow where the best setting lies at an end, and keeps every score. No setting may be chosen on what a comparison is
scored on: data that are public, simulated or set aside cost none of a comparison's budget, and whether they are so is
for the caller to say. Comparing the tuned methods is left to `helpers.study.comparison`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers.privacy import ADD_REMOVE, NeighboringRelation
from helpers.privacy.guarantees import RELATION_NAMES
from helpers.study import experiments
from helpers.validation import check_choice, check_integer, check_real

KINDS = {"public": "public data", "simulated": "simulated data", "development": "data that no comparison uses"}
_FEWEST_SEEDS = 5  # of a choice: with one, the best of many settings is the luckiest
_FIRST_SEED = 1000  # comparisons count theirs from 0
_OWN = ("data", "epsilon", "delta", "seed")


@dataclass(frozen=True, eq=False)
class Protocol:
    """What is tried before a comparison, and where.

    Attributes
    ----------
    grid : mapping of str to sequence
        The values of each parameter: increasing numbers, above 0 where there are several, or other scalars (names of
        optimisers, say), which have no order. All combinations are tried.
    data : mapping of str to any
        What settings are tried on, by name: data, or functions of a seed that make them. Several count alike.
    kind : {"public", "simulated", "development"}
        Why looking at these data costs no privacy; "development": records that no comparison uses.
    measure : str
        What is made as large as possible, in the mean over data and seeds.
    epsilon, delta : float
        The budget at which settings are tried, which has to be the one at which the method is used.
    neighbouring : NeighboringRelation
        Of that budget.
    n_seeds : int
        At least 5. The seeds are 1000, 1001 ...; comparisons take others.
    growth : int
        How many values an axis may get beyond its list, if the best setting lies at an end.
    limits : mapping of str to (low, high), optional
        What a parameter can be at least and at most. There a list may end: no value lies beyond.
    compared_on : sequence of str
        Names of the data sets of the comparison.

    Raises
    ------
    ValueError
        A parameter is out of range, a list is not increasing, or a data set is also one of the comparison.

    >>> Protocol({"rate": (1.0, 2.0)}, {"mixture": None}, "simulated", "auc", epsilon=1.0, delta=1e-5, n_seeds=3)
    Traceback (most recent call last):
        ...
    ValueError: n_seeds must be an integer in [5, inf), got 3
    """

    grid: Mapping[str, Sequence[Any]]
    data: Mapping[str, Any]
    kind: str
    measure: str
    epsilon: float
    delta: float
    neighbouring: NeighboringRelation = ADD_REMOVE
    n_seeds: int = _FEWEST_SEEDS
    growth: int = 2
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    compared_on: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, tuple(KINDS))
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_real("delta", self.delta, low=0, high=1, inclusive="low")
        check_integer("n_seeds", self.n_seeds, low=_FEWEST_SEEDS)
        check_integer("growth", self.growth, low=0)
        if not self.grid or not self.data:
            raise ValueError(f"grid and data must not be empty, got {dict(self.grid)!r} and {list(self.data)!r}")
        if both := sorted(set(self.data) & set(self.compared_on)):
            raise ValueError(f"data must be none of those that methods are compared on, got {both} among both")
        for name, values in self.grid.items():
            if name in (*_OWN, self.measure):
                raise ValueError(f"grid must name no column of the result, got {name!r}")
            fits = 0 < len(values) == len(set(values))
            if fits and len(values) > 1 and _is_numeric(values):
                fits = bool(values[0] > 0 and (np.diff(values) > 0).all())
            if not fits:
                raise ValueError(f"grid must have increasing numbers > 0 or different names, got {name}={values!r}")
        for name, (low, high) in self.limits.items():
            values = self.grid.get(name, ())
            if not len(values) or not _is_numeric(values) or not low <= values[0] <= values[-1] <= high:
                raise ValueError(f"limits must hold the grid's numbers, got {name} in [{low}, {high}] for {values!r}")

    def further(self, name: str, values: Sequence[float], side: str) -> float | None:
        """The next value of an axis below or above its ("lower", "upper") end, in geometric progression, or None.

        There is none where the axis has grown as far as it may, or at its limit. Rounded to three digits; integers
        stay integers.
        """
        if len(values) - len(self.grid[name]) >= self.growth:
            return None
        end, before = (values[0], values[1]) if side == "lower" else (values[-1], values[-2])
        low, high = self.limits.get(name, (0.0, math.inf))
        value = float(np.clip(float(f"{end * end / before:.3g}"), low, high))
        if all(isinstance(one, int | np.integer) for one in values):
            value = round(value)
        return value if (0 < value < end if side == "lower" else value > end) else None


@dataclass(frozen=True, eq=False)
class Tuned:
    """The outcome of a protocol. All but the scores is computed from them, so a stored table gives the same.

    Attributes
    ----------
    protocol : Protocol
    trials : DataFrame
        One row a setting, data set and seed: `data`, `epsilon`, `delta`, `seed`, the parameters, and what was measured.
    """

    protocol: Protocol
    trials: pd.DataFrame

    def __post_init__(self) -> None:
        if not np.isfinite(self._scores.mean(axis=1)).any():
            raise ValueError("trials must have a setting that failed with no seed, got none")

    @property
    def table(self) -> pd.DataFrame:
        """All settings with `mean`, `sd` over the seeds and `n_seeds`, the best first.

        A score that is NaN, of a run that failed, counts as the least of all. Of equal means the one nearest to the
        middle of the lists comes first: a plateau has no edge.
        """
        mean, n = self._scores.mean(axis=1), self._scores.shape[1]
        with np.errstate(invalid="ignore"):  # a failed run has no deviation
            summary = self._settings.assign(mean=mean, sd=self._scores.std(axis=1, ddof=1), n_seeds=n)
        return summary.iloc[np.lexsort([self._off_centre, -mean.round(12)])].reset_index(drop=True)

    @property
    def winner(self) -> dict[str, Any]:
        """The best setting: a value for each parameter."""
        return self._best(self._scores.mean(axis=1))

    @property
    def edges(self) -> dict[str, str]:
        """Parameters whose best value is the "lower" or "upper" end of its list, though more could be tried."""
        found = {}
        for name, value in self.winner.items():
            tried = sorted(self._settings[name].unique()) if _is_numeric(self._settings[name]) else []
            low, high = self.protocol.limits.get(name, (0.0, math.inf))
            if len(tried) > 1 and value in (tried[0], tried[-1]) and low < value < high:
                found[name] = "lower" if value == tried[0] else "upper"
        return found

    def by_seed(self) -> pd.DataFrame:
        """The setting that each seed alone would have chosen, with its `seed` and `score`."""
        seeds = self.trials["seed"].drop_duplicates()
        return pd.DataFrame(
            [
                {"seed": seed} | self._best(scores) | {"score": scores.max()}
                for seed, scores in zip(seeds, self._scores.T, strict=True)
            ]
        )

    def resampled(self, n: int, random_state: int) -> list[dict[str, Any]]:
        """`n` settings, each chosen by a bootstrap sample of the tuning seeds.

        A comparison that takes another one of them in each of its repetitions has an interval that covers how much
        the choice itself depends on luck, as far as so few seeds tell. Methods that were tuned with the same seeds and
        are given the same `random_state` are chosen by the same samples, so their repetitions are pairs.
        """
        seeds = self._scores.shape[1]
        draws = np.random.default_rng(random_state).integers(seeds, size=(n, seeds))
        return [self._best(self._scores[:, drawn].mean(axis=1)) for drawn in draws]

    def __str__(self) -> str:
        own, at, settings = self.protocol, self.trials.iloc[0], []
        for name, value in self.winner.items():
            tried = self._settings[name].unique().tolist()
            among = "not varied" if len(tried) == 1 else "of " + ", ".join(map(_told, tried))
            if len(tried) > 1 and _is_numeric(tried):
                among = f"of {_told(min(tried))} ... {_told(max(tried))}"
            settings.append(f"{name} {_told(value)} {among}")
        where, n_seeds = ", ".join(self.trials["data"].unique()), self.trials["seed"].nunique()
        relation = RELATION_NAMES[own.neighbouring]
        ends = " and ".join(f"{name} at the {side} end" for name, side in self.edges.items())
        return (
            f"Tuned on {where} ({KINDS[own.kind]}), {n_seeds} seeds, at epsilon {at['epsilon']:g}, "
            f"delta {at['delta']:g} ({relation}), by {own.measure}: {', '.join(settings)}; {ends or 'inside the grid'}."
        )

    def _best(self, scores: NDArray[np.float64]) -> dict[str, Any]:
        row = np.lexsort([self._off_centre, -scores.round(12)])[0]
        values = {name: self._settings[name].iloc[row] for name in self._settings}
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}

    @cached_property
    def _settings(self) -> pd.DataFrame:
        """What was tried, a row a setting, in the order of the trials."""
        return self.trials[list(self.protocol.grid)].drop_duplicates().reset_index(drop=True)

    @cached_property
    def _scores(self) -> NDArray[np.float64]:
        """Means over data sets, (settings, seeds); minus infinity where a run failed."""
        own = self.trials[self.protocol.measure].fillna(-math.inf).astype(float)
        setting = self.trials.groupby(list(self.protocol.grid), sort=False, dropna=False).ngroup()
        seed = pd.factorize(self.trials["seed"])[0]
        wide = own.groupby([setting, seed]).mean().unstack()
        if wide.isna().to_numpy().any():
            raise ValueError("trials must have every setting with every seed, got some that are missing")
        return wide.to_numpy()

    @cached_property
    def _off_centre(self) -> NDArray[np.float64]:
        """How far each setting lies from the middle of the lists, in places, added up over those of numbers."""
        total = np.zeros(len(self._settings))
        for _, values in self._settings.items():
            if _is_numeric(values):
                places = np.searchsorted(np.unique(values), values)
                total += np.abs(places - places.max() / 2)
        return total


def tune(
    fit_and_score: Callable[..., float | Mapping[str, Any]],
    protocol: Protocol,
    *,
    name: str,
    scope: str = "chapter",
) -> Tuned:
    """Try all settings of a protocol, and one more value wherever the best lies at an end, as often as allowed.

    Parameters
    ----------
    fit_and_score : callable
        Called as `fit_and_score(data, epsilon=..., delta=..., seed=..., **setting)` and returns the measure, or a dict
        of scalars of which it is one; larger is better, NaN stands for a run that failed. As a trial of
        `experiments.run` it draws its randomness from the seed.
    protocol : Protocol
    name : str
        What the progress bar and errors call it.
    scope : {"chapter", "trial"}
        As in `experiments.run`, where every single score is stored.

    Raises
    ------
    experiments.TrialError
        A trial failed.

    >>> def parabola(data, epsilon, delta, seed, rate):
    ...     return -((math.log(rate) - math.log(data)) ** 2)
    >>> protocol = Protocol({"rate": (1.0, 2.0)}, {"peak": 4.0}, "simulated", "fit", epsilon=1.0, delta=1e-5)
    >>> print(tune(parabola, protocol, name="a parabola"))  # doctest: +NORMALIZE_WHITESPACE
    Tuned on peak (simulated data), 5 seeds, at epsilon 1, delta 1e-05 (add/remove-one), by fit:
    rate 4 of 1 ... 8; inside the grid.
    """
    trial = partial(_trial, fit_and_score, dict(protocol.data), protocol.measure)
    axes = {axis: list(values) for axis, values in protocol.grid.items()}
    at = {"epsilon": protocol.epsilon, "delta": protocol.delta}
    tried: set[tuple] = set()
    found: list[pd.DataFrame] = []
    while True:
        # Only what the grid has gained: outside `dpbook record` no store would find the rest again.
        new = [setting for setting in product(*axes.values()) if setting not in tried]
        cells = [
            {"data": data, **at, "seed": seed, **dict(zip(axes, setting, strict=True))}
            for seed in range(_FIRST_SEED, _FIRST_SEED + protocol.n_seeds)
            for data in protocol.data
            for setting in new
        ]
        found.append(experiments.run(trial, cells, name=name, scope=scope))
        tried.update(new)
        tuned = Tuned(protocol, pd.concat(found, ignore_index=True))
        further = {axis: protocol.further(axis, axes[axis], side) for axis, side in tuned.edges.items()}
        if not any(value is not None for value in further.values()):
            return tuned
        for axis, value in further.items():
            axes[axis] = sorted([*axes[axis], *([] if value is None else [value])])


def _trial(
    fit_and_score: Callable[..., float | Mapping[str, Any]],
    sets: Mapping[str, Any],
    measure: str,
    /,
    *,
    data: str,
    seed: int,
    **cell: Any,
) -> Mapping[str, Any]:
    """One score, on the set that the cell names."""
    made = sets[data](seed) if callable(sets[data]) else sets[data]
    found = fit_and_score(made, seed=seed, **cell)
    return found if isinstance(found, Mapping) else {measure: found}


def _is_numeric(values: Sequence[Any] | pd.Series) -> bool:
    return all(isinstance(value, Real | np.number) and not isinstance(value, bool | np.bool_) for value in values)


def _told(value: Any) -> str:
    return f"{value:g}" if _is_numeric([value]) else str(value)
