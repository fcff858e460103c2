"""What a release promises: epsilon, delta, the neighbouring relation, and what has to be public.

A `Guarantee` is validated when it is made and can only be combined with guarantees of the same relation, so
that no epsilon travels without its relation and its assumptions. Group privacy, subsampling and composition
return new guarantees that hold whenever the old ones do. Noise belongs to `helpers.privacy.ledger`, the
numbers to `helpers.privacy.accounting`.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape

import attr
from dp_accounting import NeighboringRelation, dp_event

from helpers.privacy.accounting import (
    ADD_REMOVE,
    LARGEST_EPSILON,
    REPLACE_ONE,
    ApproximateDpEvent,
    advanced_composition,
    event_delta,
    event_epsilon,
    event_supported,
    group_delta,
    optimal_composition,
    optimal_delta,
)
from helpers.validation import check_choice, check_integer, check_real

RELATION_NAMES = {ADD_REMOVE: "add/remove-one", REPLACE_ONE: "replace-one"}
UNITS = {"record": "one record", "person": "one person, with all that is recorded of them"}
COMPOSITION_METHODS = ("basic", "advanced", "optimal", "rdp", "pld")

_COMPOSITION_SOURCES = {
    "basic": "basic composition (Dwork and Roth 2014, Theorem 3.16)",
    "advanced": "advanced composition (Dwork, Rothblum and Vadhan 2010, Theorem III.3)",
    "optimal": "optimal composition (Kairouz, Oh and Viswanath 2015, Theorem 3.3)",
    "rdp": "Renyi accounting (Mironov 2017; dp-accounting)",
    "pld": "privacy loss distributions (Doroshenko et al. 2022; dp-accounting)",
}


class PrivacyLeakWarning(UserWarning):
    """A guarantee does not cover everything released; for example, bounds or weights come from the private data."""


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy under a stated neighbouring relation.

    Parameters
    ----------
    epsilon : float
        In nats, at least 0; `math.inf` says that nothing is promised.
    delta : float
        In [0, 1].
    neighbouring : NeighboringRelation
        `ADD_REMOVE` or `REPLACE_ONE`.
    event : DpEvent, optional
        What was run, where dp-accounting can describe it. Noise multipliers are relative to the sensitivity
        under `neighbouring`. The caller answers for its agreement with epsilon and delta. A composed event has a
        tuple of parts, since equal events are counted.
    assumes : iterable of str
        What must be public or true for the guarantee to hold; kept as a tuple.
    source : str
        Where the guarantee comes from (paper, theorem).
    unit : {"record", "person"}
        What neighbouring data sets differ in: one record, or all records of one person.

    Raises
    ------
    ValueError
        A field is out of range or of the wrong kind.

    Notes
    -----
    Source: Dwork, McSherry, Nissim and Smith 2006; Dwork and Roth 2014, Definition 2.4.

    >>> print(Guarantee(1.0, 1e-5, ADD_REMOVE))
    (1, 1e-05)-DP, add/remove-one
    """

    epsilon: float
    delta: float
    neighbouring: NeighboringRelation
    event: dp_event.DpEvent | None = None
    assumes: tuple[str, ...] = ()
    source: str = ""
    unit: str = "record"

    def __post_init__(self):
        # `check_real` refuses infinity, which is allowed for this one field.
        if self.epsilon != math.inf:
            object.__setattr__(self, "epsilon", check_real("epsilon", self.epsilon, low=0))
        object.__setattr__(self, "delta", check_real("delta", self.delta, low=0, high=1))
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        check_choice("unit", self.unit, UNITS)
        if not isinstance(self.event, dp_event.DpEvent | None):
            raise ValueError(f"event must be a DpEvent or None, got {self.event!r}")
        try:  # equal events are counted, by their hash
            hash(self.event)
        except TypeError:
            raise ValueError(f"event must have tuples where it has parts, got {self.event!r}") from None
        # A string is an iterable of strings too, one for each letter, and is never meant.
        assumes = () if isinstance(self.assumes, str) else tuple(self.assumes)
        if isinstance(self.assumes, str) or not all(isinstance(item, str) for item in assumes):
            raise ValueError(f"assumes must be an iterable of strings, got {self.assumes!r}")
        object.__setattr__(self, "assumes", assumes)

    def epsilon_at(self, delta: float) -> float:
        """Smallest epsilon known to hold at another delta.

        Parameters
        ----------
        delta : float
            In [0, 1].

        Returns
        -------
        float
            From the event (in closed form for Gaussian and Laplace, by PLD otherwise) or, if smaller or
            without a usable event, what every mechanism with this epsilon and delta satisfies. Infinite when
            nothing is known.

        Raises
        ------
        ValueError
            `delta` is out of range.

        Notes
        -----
        Source: Kairouz, Oh and Viswanath 2015, Theorem 3.3 with one mechanism; otherwise as `event_epsilon`.

        >>> round(Guarantee(1.0, 0.0, ADD_REMOVE).epsilon_at(0.1), 4)
        0.8529
        """
        delta = check_real("delta", delta, low=0, high=1)
        if delta == 1:
            return 0.0
        implied = math.inf
        if delta >= self.delta and self.epsilon != math.inf:  # the inverse of `optimal_delta` with one mechanism
            # The worst mechanism fails openly with probability self.delta; `spare` is what is left of delta for its
            # randomised response. Solving 1 - e^{e - eps} = spare (1 + e^-eps) for e gives the line below.
            spare = (delta - self.delta) / (1 - self.delta)
            reached = 1 - spare * (1 + math.exp(-self.epsilon))
            implied = max(self.epsilon + math.log(reached), 0.0) if reached > 0 else 0.0
        if self._event_is_readable():
            return min(implied, event_epsilon(self.event, delta, self.neighbouring))
        return implied

    def delta_at(self, epsilon: float) -> float:
        """Smallest delta known to hold at another epsilon; the inverse of `epsilon_at`.

        Parameters
        ----------
        epsilon : float
            At least 0.

        Returns
        -------
        float
            In [0, 1]; 1 when nothing is known.

        Raises
        ------
        ValueError
            `epsilon` is out of range.

        Notes
        -----
        Source: as `epsilon_at`.

        >>> round(Guarantee(1.0, 0.0, ADD_REMOVE).delta_at(0.5), 4)
        0.2876
        """
        epsilon = check_real("epsilon", epsilon, low=0)
        is_infinite = math.isinf(self.epsilon)
        implied = 1.0 if is_infinite else optimal_delta(epsilon, self.epsilon, 1, delta_each=self.delta)
        if self._event_is_readable():
            return min(implied, event_delta(self.event, epsilon, self.neighbouring))
        return implied

    def group(self, size: int) -> "Guarantee":
        """The guarantee for data sets that differ in `size` records, at size * epsilon.

        Without an event delta grows to delta (e^{size epsilon} - 1)/(e^epsilon - 1), at most 1. With additive
        noise the sensitivity grows by the factor `size` and delta is computed for that noise, which is exact
        for a Gaussian.

        Parameters
        ----------
        size : int
            Number of steps of `neighbouring`, at least 1.

        Raises
        ------
        ValueError
            `size` is out of range.

        Notes
        -----
        Source: Vadhan 2017, Lemma 2.2 (with its geometric sum kept); Gaussian: Dong, Roth and Su 2022,
        Theorem 2.14.

        >>> one = Guarantee(1.0, 0.00684, ADD_REMOVE, event=dp_event.GaussianDpEvent(2.0))
        >>> round(one.group(10).delta, 3), replace(one, event=None).group(10).delta
        (0.617, 1.0)
        """
        size = check_integer("size", size, low=1)
        if size == 1:
            return self
        # At `size` sensitivities additive noise is the same noise with a smaller multiplier, and its own curve beats
        # the general theorem's delta.
        event = None if self.event is None else _group_event(self.event, size)
        epsilon = size * self.epsilon
        # An infinite epsilon promises nothing at any delta, so that delta may stay.
        delta = self.delta if math.isinf(epsilon) else group_delta(self.epsilon, self.delta, size)
        if event is not None and delta > 0 and math.isfinite(epsilon):
            delta = min(delta, event_delta(event, epsilon, self.neighbouring))
        source = "; ".join(filter(None, [self.source, f"group of {size} (Vadhan 2017, Lemma 2.2)"]))
        return replace(self, epsilon=epsilon, delta=delta, event=event, source=source)

    def subsampled(self, rate: float) -> "Guarantee":
        """The guarantee of running the mechanism on a Poisson sample of the records.

        Holds under add/remove only: there epsilon' = log(1 + rate (e^epsilon - 1)) and delta' = rate * delta.
        Under replace-one the sampled mechanism would also have to hide whether the record was drawn, which a
        replace-one guarantee does not promise.

        Parameters
        ----------
        rate : float
            Probability in [0, 1] with which each record is drawn, independently; the sample must stay secret.

        Raises
        ------
        ValueError
            `rate` is out of range, or the relation is replace-one.

        Notes
        -----
        Source: Balle, Barthe and Gaboardi 2018, Theorem 8.

        >>> round(Guarantee(1.0, 0.0, ADD_REMOVE).subsampled(0.1).epsilon, 4)
        0.1586
        """
        rate = check_real("rate", rate, low=0, high=1)
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE,))
        source = f"Poisson sample at rate {rate:g} (Balle, Barthe and Gaboardi 2018, Theorem 8)"
        epsilon = 0.0 if rate == 0 else self.epsilon
        # Beyond, e^epsilon overflows, and sampling lowers epsilon by log(1/rate) only: the old epsilon is a safe bound.
        if 0 < epsilon <= LARGEST_EPSILON:
            epsilon = math.log1p(rate * math.expm1(epsilon))
        return replace(
            self,
            epsilon=epsilon,
            delta=rate * self.delta,
            # The event of the whole data no longer describes what was run on a sample.
            event=None,
            assumes=tuple(dict.fromkeys((*self.assumes, "secret sample"))),
            source="; ".join(filter(None, [self.source, source])),
        )

    def under_replace_one(self) -> "Guarantee":
        """The same releases under replace-one: a replacement is a removal and an addition, two steps of add/remove.

        Raises
        ------
        ValueError
            The relation is replace-one already.

        Notes
        -----
        Source: Dwork and Roth 2014, Section 2.3 (group privacy for two).

        >>> print(Guarantee(0.5, 0.0, ADD_REMOVE).under_replace_one())
        (1, 0)-DP, replace-one
        """
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE,))
        return replace(self.group(2), neighbouring=REPLACE_ONE)

    def as_event(self) -> dp_event.DpEvent:
        """The event to account for: `event`, or the worst mechanism with this epsilon and delta.

        >>> Guarantee(1.0, 0.0, ADD_REMOVE).as_event()
        ApproximateDpEvent(epsilon=1.0, delta=0.0)
        """
        return _worst_event(self.epsilon, self.delta) if self.event is None else self.event

    def __str__(self) -> str:
        whom = "" if self.unit == "record" else f", for a {self.unit}"
        return f"({self.epsilon:.4g}, {self.delta:.4g})-DP, {RELATION_NAMES[self.neighbouring]}{whom}"

    def _repr_html_(self) -> str:
        """The privacy card: an HTML description list, styled by the book."""
        assumed = "".join(f"<li>{escape(item)}</li>" for item in self.assumes)
        rows = {
            "Epsilon": f"{self.epsilon:.4g}",
            "Delta": f"{self.delta:.4g}",
            "Protects": UNITS[self.unit],
            "Neighbouring data sets": RELATION_NAMES[self.neighbouring],
            "Assumed public or true": f"<ul>{assumed}</ul>" if assumed else "nothing",
            "Source": escape(self.source) or "not stated",
        }
        items = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows.items())
        return f'<div class="privacy-card"><p class="privacy-card-title">Privacy card</p><dl>{items}</dl></div>'

    def _event_is_readable(self) -> bool:
        """Whether there is an event, and the PLD accountant supports it under this relation."""
        return self.event is not None and event_supported(self.event, self.neighbouring)


def compose(guarantees: Iterable[Guarantee], method: str = "basic", *, delta: float | None = None) -> Guarantee:
    """The guarantee of releasing everything, each mechanism chosen after seeing the previous outputs.

    Parameters
    ----------
    guarantees : iterable of Guarantee
        At least one; all of the same neighbouring relation and for the same unit.
    method : {"basic", "advanced", "optimal", "rdp", "pld"}
        "advanced" and "optimal" need equal epsilons and equal deltas. "rdp" and "pld" account for the events;
        a guarantee without one counts as the worst mechanism with its epsilon and delta, which "rdp" can do
        for pure guarantees only.
    delta : float, optional
        Total delta of the result, in (0, 1). Required, except by "basic", whose result has the sum of the
        deltas.

    Returns
    -------
    Guarantee
        With the union of the assumptions and the composed event. Epsilon is the method's own, which can
        exceed that of basic composition, and is infinite where "optimal" or "pld" cannot reach `delta`.

    Raises
    ------
    ValueError
        No guarantees, different relations or units, a `delta` that the method cannot use, unequal guarantees for a
        homogeneous theorem, or an event that the accountant does not support.

    Notes
    -----
    Source: Dwork and Roth 2014, Theorem 3.16 (basic); Dwork, Rothblum and Vadhan 2010, Theorem III.3
    (advanced); Kairouz, Oh and Viswanath 2015, Theorem 3.3 (optimal); Mironov 2017 (RDP); Doroshenko et al.
    2022 (PLD).

    >>> hundred = [Guarantee(0.1, 0.0, ADD_REMOVE, event=dp_event.LaplaceDpEvent(10.0))] * 100
    >>> [round(compose(hundred, method, delta=1e-6).epsilon, 2) for method in COMPOSITION_METHODS]
    [10.0, 6.31, 4.77, 4.98, 4.69]
    """
    parts = list(guarantees)
    check_choice("method", method, COMPOSITION_METHODS)
    if not parts:
        raise ValueError("guarantees must not be empty")
    relation = parts[0].neighbouring
    if any(g.neighbouring is not relation for g in parts):
        raise ValueError("guarantees must have one neighbouring relation, got add/remove-one and replace-one")
    if any(g.unit != parts[0].unit for g in parts):
        raise ValueError("guarantees must be for one unit, got some for a record and some for a person")
    first, count = parts[0], len(parts)
    # Equal events are counted, because n equal events compose far faster than n different ones.
    counted = Counter(g.as_event() for g in parts)
    events = tuple(event if n == 1 else dp_event.SelfComposedDpEvent(event, n) for event, n in counted.items())
    event = events[0] if len(events) == 1 else dp_event.ComposedDpEvent(events)
    if method == "basic":
        epsilon, total = math.fsum(g.epsilon for g in parts), min(math.fsum(g.delta for g in parts), 1.0)
        if delta is not None and check_real("delta", delta, low=0, high=1) < total:
            raise ValueError(f"delta must be at least the sum of the deltas, {total:g}, got {delta!r}")
    else:
        total = check_real("delta", delta, low=0, high=1, inclusive="neither")
        # For "advanced", which spends delta twice: each mechanism's own, and the slack of the theorem.
        slack = total - count * first.delta
        if method in ("rdp", "pld"):
            epsilon = event_epsilon(event, total, relation, method=method)
        elif any((g.epsilon, g.delta) != (first.epsilon, first.delta) for g in parts):
            raise ValueError(f"guarantees must have equal epsilons and deltas for method {method!r}")
        elif math.isinf(first.epsilon):
            epsilon = math.inf
        elif method == "optimal":
            epsilon, _ = optimal_composition(first.epsilon, count, total, delta_each=first.delta)
        elif slack > 0:
            epsilon, _ = advanced_composition(first.epsilon, first.delta, count, slack)
        else:
            raise ValueError(f"delta must exceed the sum of the deltas, {count * first.delta:g}, got {delta!r}")
    assumes = tuple(dict.fromkeys(item for g in parts for item in g.assumes))
    source = f"{count} releases, {_COMPOSITION_SOURCES[method]}"
    return Guarantee(epsilon, total, relation, event, assumes, source, parts[0].unit)


def _worst_event(epsilon: float, delta: float) -> dp_event.DpEvent:
    """The worst mechanism that is (epsilon, delta)-DP; one that is not private at all where nothing is promised."""
    if epsilon > LARGEST_EPSILON or delta == 1:
        return dp_event.NonPrivateDpEvent()
    return ApproximateDpEvent(epsilon, delta)


def _group_event(event: dp_event.DpEvent, size: int) -> dp_event.DpEvent | None:
    """The event at distance `size`, or None where scaling the sensitivity does not describe it."""
    match event:
        case dp_event.GaussianDpEvent() | dp_event.LaplaceDpEvent():
            return attr.evolve(event, noise_multiplier=event.noise_multiplier / size)
        case dp_event.DiscreteLaplaceDpEvent():
            return attr.evolve(event, sensitivity=size * event.sensitivity)
        case ApproximateDpEvent(epsilon=epsilon, delta=delta):
            return _worst_event(size * epsilon, group_delta(epsilon, delta, size))
        case dp_event.SelfComposedDpEvent(event=inner, count=count):
            inner = _group_event(inner, size)
            return None if inner is None else dp_event.SelfComposedDpEvent(inner, count)
        case dp_event.ComposedDpEvent(events=events):
            scaled = tuple(_group_event(part, size) for part in events)
            return None if None in scaled else dp_event.ComposedDpEvent(scaled)
    return None
