"""One object that holds the private records, draws all noise and writes the bill.

A *query* is a function of the records, and the ledger alone evaluates it. One call evaluates it, draws the noise and
bills the event, all three from the same numbers: how far one record moves the query, and how much noise there is
relative to that. The size of the noise itself is never an argument, so that it cannot differ from what is billed.
`Ledger.guarantee` makes an estimator's `guarantee_` from the bill, and refuses if the bill is above the budget. That a
query moves by no more than its sensitivity is the caller's promise, which `tests/test_ledger.py` tries to break.

An estimator that hands its records to a ledger and computes with the answers alone can only be as private as they are:
everything else is post-processing, and may look at public numbers, earlier answers and `Ledger.rng` as it likes.

The laws of noise stand below the ledger, which alone draws from them for a release.

**Integers are exact.** `discrete_laplace` draws by integer arithmetic alone: epsilon is the stated one, to the last
digit. Its work does not depend on the noise, so that a clock does not give the noise away.

**Reals are not**, and a release says so by `EXACT_REALS` in `assumes`. A floating-point sampler reaches few of the
numbers that its density covers, and which ones it can add up to depends on the private value: of 10^6 outputs of value
1 plus `Generator.laplace()`, 80 % cannot be had from value 0 with any noise, so each of them tells the two apart for
certain (Mironov 2012). So every real-valued release is rounded to a public grid of about 2^-20 of the noise's scale
(`to_grid`), which costs nothing and leaves 0 of 10^6: a grid point can be missed only where the noise is beyond 20
scales, two in 10^9 entries, and at 7 scales its odds are off by about a millionth.
Choices among candidates have their probabilities to about 2^-52 each.

**How long a fit runs** may depend on the records, by the steps of a solver or the sizes of arrays, and no guarantee
covers it. All of them say so, by `RUNNING_TIME` in `assumes`.

Source: adaptive composition (Dwork and Roth 2014, Section 3.5); queries that are sent to the records instead of records
that are handed out: PINQ (McSherry 2009).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from dp_accounting import NeighboringRelation, dp_event
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from helpers.privacy.accounting import (
    ADD_REMOVE,
    REPLACE_ONE,
    ApproximateDpEvent,
    event_epsilon,
    furthest,
    gaussian_epsilon,
)
from helpers.privacy.guarantees import Guarantee
from helpers.privacy.randomness import noise_assumptions, secure_generator
from helpers.validation import check_boolean, check_choice, check_real

EXACT_REALS = "exact real arithmetic"
RUNNING_TIME = "running time secret"
NORMS = ("l1", "l2", "linf")
"""From the largest norm of a vector to the smallest, so a bound on one also bounds those after it."""
# A release is rounded to multiples of about 2^-20 of its noise's scale; the module's docstring says what that hides.
_GRID_BITS = 20
# Noisy counts are cut to this size, so that they fit an int64 whatever the noise is.
_LARGEST_COUNT = 1 << 62
# Random bits that a digit of integer noise is drawn with.
_COIN_BITS = 128
# `_ROUNDING`: the shares of a budget, added up in floating point, may exceed the whole by this part of it.
# `_SMALLEST`: dp-accounting solves for the noise of an epsilon to an absolute tolerance, so the epsilon computed back
# from that noise may exceed the one asked for by this many nats.
_ROUNDING, _SMALLEST = 1e-9, 1e-11
SELECTION_COSTS = {"exponential": 1 / 8, "permute_and_flip": 1 / 2, "laplace": 1 / 2}
"""What a choice at epsilon e costs in zero-concentrated privacy, over e^2.

All are e-DP, and e-DP costs e^2/2 (Bun and Steinke 2016, Proposition 1.4). The exponential mechanism costs a quarter
of that, because its privacy loss has a range of e: the logarithm of the odds of two outcomes moves by e at most (Cesar
and Rogers 2021, Lemma 3.2).
"""

# Takes the private records, or what a view has made of them, and returns the exact answer.
Query = Callable[[Any], Any]
_positive = partial(check_real, low=0, inclusive="neither")
# Fits with equal parameters have equal bills, and to account for one may take seconds.
_accounted = lru_cache(maxsize=256)(event_epsilon)


@dataclass(frozen=True)
class Sensitivity:
    """Largest change of a query between neighbouring data sets.

    Parameters
    ----------
    value : float
        In the units of the query, above 0.
    neighbouring : NeighboringRelation
        `ADD_REMOVE` or `REPLACE_ONE`.
    norm : {"l1", "l2", "linf"}
        Norm of the change; the three coincide for a single number. A vector of scores to choose from has an
        "linf" one.

    Raises
    ------
    ValueError
        A field is out of range.

    Notes
    -----
    Source: Dwork, McSherry, Nissim and Smith 2006, Definition 2.

    >>> Sensitivity(1, ADD_REMOVE, "l1").value
    1.0
    """

    value: float
    neighbouring: NeighboringRelation
    norm: str

    def __post_init__(self):
        object.__setattr__(self, "value", check_real("value", self.value, low=0, inclusive="high"))
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        check_choice("norm", self.norm, NORMS)


class Terms(NamedTuple):
    """All that is public about a release.

    Attributes
    ----------
    kind : str
        The method of `Ledger`.
    norm : str
        Norm of the query's change: "l1", "l2" or "linf"; "" where a theorem bounds something else than that change.
    sensitivity : float
        Largest change between neighbours, in `units`.
    units : array or tuple of arrays
        Each entry of the query is divided by its unit before the change is measured. Of `minimum`: the noise's law.
    event : DpEvent
        What is billed; None where the caller bills by itself.
    """

    kind: str
    norm: str
    sensitivity: float
    units: Any
    event: dp_event.DpEvent


class Law(NamedTuple):
    """The law of a noise vector.

    Attributes
    ----------
    shape : {"ball", "gaussian", "body"}
        Density proportional to exp(-parameter ||b||_2); independent normal entries of standard deviation `parameter`;
        or proportional to exp(-parameter ||b||) in the norm of `body`.
    parameter : float
    size : int
        Number of entries.
    body : helpers.erm.norms.RowPolytope, optional
        `size` is a multiple of the number of its dimensions.
    """

    shape: str
    parameter: float
    size: int
    body: Any = None


class Move(NamedTuple):
    """How far one record moves a query about the records of one class, in l2.

    Attributes
    ----------
    added : float
        Above 0: a record more or less in the class.
    replaced : float
        Another record of the class in the place of one.
    """

    added: float
    replaced: float


class Ledger:
    """Private records, the source of noise and the bill.

    Parameters
    ----------
    records : object
        Private; whatever the queries take.
    neighbouring : NeighboringRelation
        `ADD_REMOVE` or `REPLACE_ONE`: the relation of the data sets between which sensitivities are measured.
    rng : numpy.random.Generator or None
        Source of all noise. None: `secure_generator`. An estimator with a seed passes what `PrivateMixin` makes of it.

    Attributes
    ----------
    neighbouring, rng
        As above; `rng` is for draws that no record enters, such as initial weights or the order of coordinates.
    bill : dict of DpEvent to int
        How often each event was executed, in order of first execution.

    Raises
    ------
    ValueError
        From every release: a sensitivity or a budget that is not above 0.

    Notes
    -----
    A ledger is for the duration of a fit and holds the records: it is never kept on what is fitted, and refuses to be
    pickled.

    >>> ledger = Ledger(np.array([1.0, 2.0, 5.0]), REPLACE_ONE, np.random.default_rng(0))
    >>> answer = ledger.gaussian(np.sum, sensitivity=5.0, noise_multiplier=2.0)
    >>> round(float(answer), 2), ledger.bill
    (9.26, {GaussianDpEvent(noise_multiplier=2.0): 1})
    >>> print(ledger.guarantee(3.0, 1e-5, source="Gaussian mechanism"))
    (3, 1e-05)-DP, replace-one
    """

    _transform: Callable[[], Any]

    def __init__(self, records: Any, neighbouring: NeighboringRelation, rng: np.random.Generator | None):
        self.neighbouring = check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
        self.rng = secure_generator() if rng is None else rng
        if not isinstance(self.rng, np.random.Generator):
            raise ValueError(f"rng must be a numpy.random.Generator or None, got {rng!r}")
        self.bill: dict[dp_event.DpEvent, int] = {}
        self._claims: dict[dp_event.DpEvent, tuple[float, float]] = {}  # what events of fitted objects guarantee
        self._parts: list[list[Ledger]] = []
        self._classes: list[ClassLedger] = []
        self._assumes: dict[str, None] = {}
        self._closed: list[Guarantee] = []  # shared by views, like the bill
        self._held = records

    def view(self, transform: Query) -> "Ledger":
        """A ledger of `transform(records)` with the same noise and the same bill.

        `transform` runs when the first query needs it, and once. It must treat each record by itself (encode it, clip
        it), or sensitivities have to be those of the query after it.
        """
        # The view shares every attribute with this ledger, the bill too, which is one dict: what the view releases is
        # billed here. Only `_held` differs; it is a cached property, so its stored value has to go for the view to
        # compute its own.
        seen = object.__new__(type(self))
        vars(seen).update(vars(self))
        vars(seen).pop("_held", None)
        seen._transform = lambda: transform(self._held)
        return seen

    @cached_property
    def _held(self) -> Any:
        """The records; a view's when they are first needed. Nothing but `_release` and views may look at them."""
        return self._transform()

    def n_records(self) -> int:
        """Number of records, which is public under replace-one: the length of the first of several arrays.

        Raises
        ------
        RuntimeError
            Under add/remove, where it is private: ask for it with noise.
        """
        if self.neighbouring is not REPLACE_ONE:
            raise RuntimeError("the number of records is private under add/remove-one: release it with noise")
        self.assume("number of records public")
        return len(self._held[0] if isinstance(self._held, tuple) else self._held)

    def assume(self, *assumptions: str) -> None:
        """Note what has to be public or true for the guarantee; an assumption that is made twice is listed once."""
        self._assumes |= dict.fromkeys(assumptions)

    def __reduce__(self):
        raise TypeError("a ledger holds private records and cannot be pickled or copied")

    # Noisy values

    def gaussian(
        self, query: Query, sensitivity: float, noise_multiplier: float, units: ArrayLike | Sequence[ArrayLike] = 1.0
    ) -> Any:
        """`query(records)` with Gaussian noise of standard deviation units * sensitivity * noise_multiplier.

        Parameters
        ----------
        query : callable
            Gives an array, or a sequence of arrays.
        sensitivity : float
            Largest change between neighbours in l2, all arrays together, each entry divided by its unit.
        noise_multiplier : float
            Standard deviation over sensitivity: 1 / mu for a Gaussian mechanism of parameter mu.
        units : float or array, or a sequence of them
            One an array, with its shape or a number for all of its entries.

        Returns
        -------
        array, or list of arrays
            As the query gives them.

        Notes
        -----
        Bills `GaussianDpEvent(noise_multiplier)`. Source: Dong, Roth and Su 2022, Theorem 2.7.
        """
        multiplier = _positive("noise_multiplier", noise_multiplier)
        # The product is checked as well: two numbers above 0 may multiply to 0 in floating point, and that would be no
        # noise.
        scale = _positive("noise", _positive("sensitivity", sensitivity) * multiplier)
        self.assume(EXACT_REALS)
        terms = Terms("gaussian", "l2", sensitivity, units, dp_event.GaussianDpEvent(noise_multiplier))
        return self._release(query, lambda value: _each(value, units, scale, self.rng.normal), terms)

    def laplace(self, query: Query, sensitivity: float, epsilon: float) -> Any:
        """`query(records)`, an array, with Laplace noise of scale sensitivity / epsilon, the sensitivity being in l1.

        Bills `LaplaceDpEvent(1 / epsilon)`. Source: Dwork, McSherry, Nissim and Smith 2006, Proposition 1.
        """
        scale = _positive("noise", _positive("sensitivity", sensitivity) * (1 / _positive("epsilon", epsilon)))
        self.assume(EXACT_REALS)
        terms = Terms("laplace", "l1", sensitivity, 1.0, dp_event.LaplaceDpEvent(1 / epsilon))
        return self._release(query, lambda value: _each(value, 1.0, scale, self.rng.laplace), terms)

    def k_norm(self, query: Query, sensitivity: float, epsilon: float) -> NDArray[np.float64]:
        """`query(records)`, an array, with noise of density proportional to exp(-epsilon ||b||_2 / sensitivity).

        Bills `ApproximateDpEvent(epsilon, 0)`. Source: Hardt and Talwar 2010, Section 4.
        """
        scale = _positive("noise", _positive("sensitivity", sensitivity) * (1 / _positive("epsilon", epsilon)))
        self.assume(EXACT_REALS)

        def draw(value):
            return to_grid(value + spherical_gamma(value.size, 1 / scale, self.rng).reshape(value.shape), scale)

        return self._release(query, draw, Terms("k_norm", "l2", sensitivity, 1.0, ApproximateDpEvent(epsilon, 0.0)))

    def integers(self, query: Query, sensitivity: int, epsilon: float) -> NDArray[np.int64]:
        """`query(records)`, an array of integers, with discrete Laplace noise; epsilon is exact to the last digit.

        `sensitivity`, a whole number, is in l1. Source: `discrete_laplace`.
        """
        # The event that is billed has a rounded rate. The noise is drawn at the exact one: `Fraction(epsilon)` is the
        # double's binary value.
        event = dp_event.DiscreteLaplaceDpEvent(_positive("epsilon", epsilon) / sensitivity, sensitivity)
        rate, terms = Fraction(epsilon) / sensitivity, Terms("integers", "l1", sensitivity, 1.0, event)
        return self._release(query, lambda value: discrete_laplace(value, rate, self.rng), terms)

    def class_counts(self, query: Query, n_classes: int, epsilon: float) -> NDArray[np.int64]:
        """Noisy number (n_classes,) of records of each class, which may be negative; `query` gives the exact one.

        Epsilon is exact to the last digit. The counts are disjoint, so as a vector they move by 1 in l1 when a record
        is added or removed, and by 2 when one is replaced. With two classes and replace-one, where the number of
        records is public, one count is enough: the second class's moves by 1 and the first class is the rest, so both
        have half the noise.

        Source: Dwork, McSherry, Nissim and Smith 2006 (histograms).
        """
        one_is_enough = n_classes == 2 and self.neighbouring is REPLACE_ONE
        change = 1 if one_is_enough or self.neighbouring is ADD_REMOVE else 2
        event = dp_event.DiscreteLaplaceDpEvent(_positive("epsilon", epsilon) / change, change)
        self.assume("class list", *(("number of records public",) if one_is_enough else ()))

        def draw(counts):
            rate = Fraction(epsilon) / change
            if one_is_enough:
                second = discrete_laplace(counts[1], rate, self.rng)
                # The sum is the public number of records, so the first class needs no noise of its own.
                return np.array([counts.sum() - second, second])
            return discrete_laplace(counts, rate, self.rng)

        return self._release(query, draw, Terms("class_counts", "l1", change, 1.0, event))

    def sampled(
        self,
        query: Callable[[Any, Any], Any],
        rate: float | None,
        sensitivity: float,
        noise_multiplier: float,
        units: ArrayLike = 1.0,
    ) -> NDArray[np.float64]:
        """`gaussian` of a query that draws a Poisson sample of the records first: add/remove only.

        Parameters
        ----------
        query : callable
            Takes the records and a generator, with which it draws each record independently with probability `rate`;
            gives an array.
        rate : float or None
            In (0, 1). None: the query takes all records, and either relation will do.
        sensitivity, noise_multiplier, units
            As in `gaussian`, for a record that is in the sample.

        Notes
        -----
        Bills `PoissonSampledDpEvent(rate, GaussianDpEvent(noise_multiplier))`. Source: Abadi et al. 2016.
        """
        multiplier = _positive("noise_multiplier", noise_multiplier)
        scale = _positive("noise", _positive("sensitivity", sensitivity) * multiplier)
        event = dp_event.GaussianDpEvent(noise_multiplier)
        if rate is not None:
            # The event is accounted for under add/remove only: replace-one would also have to hide whether a record was
            # drawn.
            check_choice("neighbouring", self.neighbouring, (ADD_REMOVE,))
            event = dp_event.PoissonSampledDpEvent(check_real("rate", rate, low=0, high=1, inclusive="neither"), event)
        self.assume(EXACT_REALS)

        def draw(value):
            return _each(value, units, scale, self.rng.normal)

        terms = Terms("sampled", "l2", sensitivity, units, event)
        # The sample is as secret as the noise and comes from the same generator, before the noise does.
        return self._release(lambda records: query(records, self.rng), draw, terms)

    def sweeps(
        self, lengths: NDArray, visits: NDArray, noise_multiplier: float, count: int
    ) -> Callable[[Query, int], float]:
        """A function that releases sums along one coordinate after the other, billed as `count` Gaussian mechanisms.

        Parameters
        ----------
        lengths : array (D,)
            Public. Noise on coordinate j has standard deviation lengths[j] * noise_multiplier.
        visits : array (D,) of int
            How often each coordinate may be asked for, in all.
        noise_multiplier : float
        count : int
            Number of `GaussianDpEvent(noise_multiplier)` that are billed, all at once, before any sum is released.

        Returns
        -------
        callable (query, j) -> float
            The noisy sum `query(records)` along coordinate j.

        Raises
        ------
        RuntimeError
            From the returned function: coordinate j was asked for more than visits[j] times.

        Notes
        -----
        The bill is a lemma's (`helpers.erm.coordinate_descent`), and `lengths` its promise: for any two neighbours
        there are bounds v_j, fixed before the first sum, on what one record moves the sum along coordinate j, such that
        sum_j visits_j (v_j / lengths_j)^2 <= count.
        """
        _positive("noise_multiplier", noise_multiplier)
        left, scales = np.array(visits), np.asarray(lengths) * noise_multiplier
        self.assume(EXACT_REALS)
        event = dp_event.GaussianDpEvent(noise_multiplier)
        # Single sums have no cost of their own: the lemma bounds that of all of them together, so the whole is billed
        # here and the releases below carry no event.
        self.bill[event] = self.bill.get(event, 0) + count

        def released(query, j):
            # The lemma holds for the numbers of visits that were announced, so one more would be unpaid.
            if left[j] == 0:
                raise RuntimeError(f"coordinate {j} was asked for more often than the bill allows")
            left[j] -= 1
            scale = scales[j]
            terms = Terms("sweeps", "l2", lengths[j], 1.0, None)
            return self._release(query, lambda value: to_grid(self.rng.normal(0.0, scale) + value, scale), terms)

        return released

    # Choices

    def choose(
        self,
        query: Query,
        sensitivity: float,
        *,
        epsilon: float | None = None,
        rho: float | None = None,
        law: str = "exponential",
        monotonic: bool = False,
    ) -> int:
        """Position of one of the candidates, those with large scores `query(records)` more likely.

        Parameters
        ----------
        query : callable
            Gives an array (n_candidates,).
        sensitivity : float
            Largest change of any one score.
        epsilon, rho : float
            The budget, in pure or in zero-concentrated privacy: one of them.
        law : {"exponential", "permute_and_flip", "laplace"}
            "permute_and_flip" has the largest expected score at equal epsilon, "exponential" at equal rho. "laplace":
            the largest score after Laplace noise of scale 2 sensitivity / epsilon.
        monotonic : bool
            As in `helpers.privacy.exponential_probabilities`.

        Notes
        -----
        Bills `ApproximateDpEvent(epsilon, 0)` or `ZCDpEvent(rho)`. Source: McSherry and Talwar 2007; McKenna and
        Sheldon 2020; Dwork and Roth 2014, Claim 3.9, for any law whose noise hides a change of every score; for rho,
        `SELECTION_COSTS`.
        """
        check_choice("law", law, tuple(SELECTION_COSTS))
        spent = (
            # A choice at epsilon e costs c e^2 in rho, c as in `SELECTION_COSTS`, so rho buys a choice at e = sqrt(rho
            # / c).
            _positive("epsilon", epsilon) if rho is None else math.sqrt(_positive("rho", rho) / SELECTION_COSTS[law])
        )
        event = ApproximateDpEvent(spent, 0.0) if rho is None else dp_event.ZCDpEvent(rho)
        change = Sensitivity(sensitivity, self.neighbouring, "linf")
        self.assume(EXACT_REALS, *(("scores monotone in the records",) if monotonic else ()))

        def draw(scores):
            if law == "exponential":
                return exponential_choice(scores, change, spent, self.rng, monotonic=monotonic)
            if law == "permute_and_flip":
                return noisy_max(scores, change, spent, self.rng)
            return int(np.argmax(scores + self.rng.laplace(0.0, 2 * sensitivity / spent, len(scores))))

        return self._release(query, draw, Terms("choose", "linf", sensitivity, 1.0, event))

    # Results of theorems

    def minimum(
        self,
        minimise: Callable[[Any, NDArray], NDArray],
        law: Law,
        exact: ApproximateDpEvent,
        distance: float,
        solver_epsilon: float,
    ) -> NDArray[np.float64]:
        """`minimise(records, noise)`, the approximate minimiser of a noisy objective, with more noise added to it.

        Parameters
        ----------
        minimise : callable
            Takes the records and a vector (law.size,) of noise; gives an array within `distance` of the exact minimiser
            for that noise, whatever the records and the noise are.
        law : Law
            Of the noise.
        exact : ApproximateDpEvent
            What a theorem claims of the exact minimiser under that noise.
        distance, solver_epsilon : float
            Above 0: how far the minimiser may be off, and what that may cost.

        Notes
        -----
        Noise u of density proportional to exp(-r ||u||), r = solver_epsilon / (2 distance), is added to the minimiser,
        which makes the result (e + solver_epsilon, delta e^{solver_epsilon / 2})-DP where the exact minimiser is
        (e, delta)-DP; that is what is billed. `helpers.erm.perturbation` has the proof.
        """
        rate = _positive("noise", _positive("solver_epsilon", solver_epsilon) / (2 * _positive("distance", distance)))
        # With rate r and distance rho, r rho is solver_epsilon / 2: the lemma adds 2 r rho to epsilon and multiplies
        # delta by e^{r rho}.
        event = ApproximateDpEvent(exact.epsilon + solver_epsilon, exact.delta * math.exp(solver_epsilon / 2))
        self.assume(EXACT_REALS)
        # The noise of the objective is part of what the query minimises, so it is drawn before the query runs.
        if law.shape == "gaussian":
            noise = self.rng.normal(0.0, law.parameter, law.size)
        elif law.shape == "ball":
            noise = spherical_gamma(law.size, law.parameter, self.rng)
        else:
            noise = law.body.draw(law.parameter, self.rng, law.size // len(law.body.widths)).ravel()

        def draw(value):
            return to_grid(value + spherical_gamma(value.size, rate, self.rng).reshape(value.shape), 1 / rate)

        terms = Terms("minimum", "", distance, law, event)
        return self._release(lambda records: minimise(records, noise), draw, terms)

    def fitted(self, fit: Query, guarantee: Guarantee | None = None) -> Any:
        """What a private `fit(records)` returns, billed with what it guarantees.

        Parameters
        ----------
        fit : callable
            Takes the records.
        guarantee : Guarantee, optional
            Of what is returned, known beforehand and the same for all records. Left out: its own `guarantee_`.

        Raises
        ------
        ValueError
            The guarantee is for another neighbouring relation.
        """
        if guarantee is not None:  # refused before anything is fitted
            check_choice("guarantee.neighbouring", guarantee.neighbouring, (self.neighbouring,))
        # No event yet: without a guarantee given beforehand, what the fit costs is known only from its result.
        result = self._release(fit, lambda value: value, Terms("fitted", "", 0.0, 1.0, None))
        guarantee = result.guarantee_ if guarantee is None else guarantee
        check_choice("guarantee.neighbouring", guarantee.neighbouring, (self.neighbouring,))
        self.assume(*guarantee.assumes)
        event = guarantee.as_event()
        self.bill[event] = self.bill.get(event, 0) + 1
        # Equal events may come with different pairs (epsilon, delta). Each pair is true of the event, so the last one
        # may stand for all.
        self._claims[event] = guarantee.epsilon, guarantee.delta
        return result

    def parts(self, choices: Sequence[Query]) -> list["Ledger"]:
        """Ledgers of disjoint parts of the records: together they cost as much as the dearest of them.

        Parameters
        ----------
        choices : sequence of callables
            Each takes the records and returns a part of them. Under replace-one, where the number of records is public,
            a record's place decides whether it is in the part; under add/remove, a random draw of its own. What the
            records contain must not decide it.

        Notes
        -----
        Source: McSherry 2009, Theorem 4 (parallel composition). Under add/remove one record is in one part; under
        replace-one the record that replaces another takes its place.
        """
        found = [self.view(choose) for choose in choices]
        for part in found:
            # Views share the bill, and parts must not: each keeps its own, and `epsilon` takes the largest. The noise,
            # the assumptions and the end of all releases stay shared.
            part.bill, part._claims, part._parts, part._classes = {}, {}, [], []
        self._parts.append(found)
        return found

    def classes(self, choose: Callable[[Any, int], Any], count: int) -> list["ClassLedger"]:
        """Ledgers of the records of each class: together they cost what the dearest change of one record costs.

        Parameters
        ----------
        choose : callable
            Takes the records and the number of a class, and returns the records of that class, which are private in
            number too.
        count : int
            Number of classes, public.

        Notes
        -----
        A record more or less is a record of one class. A record that replaces another is of the same class, or the one
        class loses a record and another gets one. Whichever it is, all that was released about these classes makes one
        Gaussian mechanism, whose squared parameter is the sum of the squared moves over the noise; what was asked may
        have depended on earlier answers. So a rare record need not pay for what only common ones are asked for.

        Source: full adaptivity of Gaussian differential privacy (Smith and Thakurta 2022).
        """
        if self._classes:
            raise RuntimeError("records are divided into classes once: what one record moves is added up by class")
        self._classes.extend(ClassLedger(self.view(partial(_chosen, choose, k))) for k in range(count))
        return self._classes.copy()

    def _release(self, query: Query, draw: Callable, terms: Terms) -> Any:
        """The one way out: bill, evaluate the query, draw."""
        if self._closed:
            raise RuntimeError(f"nothing may be released any more after the guarantee {self._closed[0]}")
        if terms.event is not None:
            # Billed before the records are looked at, so that no answer exists without its entry, even if the query
            # fails half-way.
            self.bill[terms.event] = self.bill.get(terms.event, 0) + 1
        return draw(query(self._held))

    # The bill

    def rho(self) -> float:
        """Cost rho, in zero-concentrated privacy, of all that was executed; infinite if some event's is not known.

        Source: Bun and Steinke 2016, Lemma 1.7 and Proposition 1.6.
        """

        def cost(event):
            if isinstance(event, dp_event.GaussianDpEvent):
                return 0.5 / event.noise_multiplier**2
            return event.rho if isinstance(event, dp_event.ZCDpEvent) else math.inf

        return math.inf if self._parts else math.fsum(n * cost(event) for event, n in self._events().items())

    def _events(self) -> dict[dp_event.DpEvent, int]:
        """The bill, with all releases about single classes as one Gaussian mechanism."""
        costs = [one.cost() for one in self._classes]
        added = sorted(one.added**2 for one in costs)
        if self.neighbouring is REPLACE_ONE:
            # Within a class, or from the one of the two dearest classes to the other.
            square = max([sum(added[-2:]), *(one.replaced**2 for one in costs)], default=0.0)
        else:
            square = max(added, default=0.0)
        events = dict(self.bill)
        if square > 0:
            event = dp_event.GaussianDpEvent(1 / math.sqrt(square))
            events[event] = events.get(event, 0) + 1
        return events

    def epsilon(self, delta: float, *, interval: float = 1e-4, enough: float = 0.0) -> float:
        """Upper bound on the epsilon, at `delta`, of all that was executed.

        Events of pure and of approximate privacy add up by basic composition. All other events go through one
        accountant together, at the part of delta that basic composition leaves: the Renyi accountant if one of them is
        zero-concentrated, a closed form if all are Gaussian, else privacy loss distributions with points `interval`
        apart. Sampled Gaussian releases are first counted as if every sample held all records; if that costs at most
        `enough`, it is returned, because a distribution takes long to compute where epsilon is large.
        """
        events = self._events()
        basic: dict[dp_event.DpEvent, tuple[float, float]] = {}
        ratios = []  # how far a record moves each Gaussian release, in standard deviations, were samples all records
        for event, n in events.items():
            match event:
                # Claims come first, because the event of a fitted object may be of any of the types below.
                case _ if event in self._claims:
                    basic[event] = self._claims[event]
                case ApproximateDpEvent():
                    basic[event] = event.epsilon, event.delta
                case dp_event.LaplaceDpEvent():
                    basic[event] = 1 / event.noise_multiplier, 0.0
                case dp_event.DiscreteLaplaceDpEvent():
                    basic[event] = event.noise_parameter * event.sensitivity, 0.0
                case dp_event.GaussianDpEvent(noise_multiplier=noise):
                    ratios.append(math.sqrt(n) / noise)
                case dp_event.PoissonSampledDpEvent(event=dp_event.GaussianDpEvent(noise_multiplier=noise)):
                    ratios.append(math.sqrt(n) / noise)
        spent = math.fsum(events[event] * epsilon for event, (epsilon, _) in basic.items())
        # The part of delta that basic composition leaves; below 0 if it alone uses more than `delta`.
        left = delta - math.fsum(events[event] * delta for event, (_, delta) in basic.items())
        # Other parts of the records: no delta is spent there.
        spent += math.fsum(max(part.epsilon(0.0) for part in parts) for parts in self._parts)
        others = tuple(dp_event.SelfComposedDpEvent(event, n) for event, n in events.items() if event not in basic)
        if not others:
            return spent if left >= -_ROUNDING * delta else math.inf
        if left > 0 and len(ratios) == len(others):  # Gaussian noise and nothing else
            most = spent + max(gaussian_epsilon(left, math.hypot(*ratios)) - _SMALLEST, 0.0)
            if most <= enough or all(isinstance(one.event, dp_event.GaussianDpEvent) for one in others):
                return most
        # rho-zCDP says that the Renyi divergence of every order a is at most rho a, which the Renyi accountant reads as
        # it is.
        method = "rdp" if any(isinstance(one.event, dp_event.ZCDpEvent) for one in others) else "pld"
        whole = dp_event.ComposedDpEvent(others)
        accounted = _accounted(whole, max(left, 0.0), self.neighbouring, method=method, interval=interval)
        return spent + max(accounted - _SMALLEST, 0.0)

    def guarantee(
        self,
        epsilon: float,
        delta: float,
        *,
        source: str,
        assumes: Sequence[str] = (),
        bound: dp_event.DpEvent | None = None,
        interval: float = 1e-4,
    ) -> Guarantee:
        """(epsilon, delta) for all that was released, if the bill is within it.

        Parameters
        ----------
        source : str
        assumes : sequence of str
            Listed before what the releases and the noise assume by themselves.
        bound : ZCDpEvent, GaussianDpEvent or ApproximateDpEvent, optional
            Where what is released depends on earlier answers: a public bound on the bill that the fit keeps whatever
            they are (a privacy filter: Feldman and Zrnic 2021; Rogers, Roth, Ullman and Vadhan 2016 for pure privacy;
            Smith and Thakurta 2022 for a Gaussian one, below which all releases have to be Gaussian). The guarantee's
            event is then the bound.
        interval : float
            As in `epsilon`.

        Raises
        ------
        RuntimeError
            More was spent than the budget: nothing that was released may be published.
        """
        most = epsilon * (1 + _ROUNDING)
        spent = self.epsilon(delta, interval=interval, enough=most)
        if isinstance(bound, dp_event.ZCDpEvent):
            # How many releases there were depends on the data, so the bill must not show in the guarantee: it is only
            # held against the bound, and the bound is converted to epsilon.
            kept = self.rho() <= bound.rho * (1 + _ROUNDING)
            spent = _accounted(bound, delta, self.neighbouring, method="rdp") if kept else math.inf
        if isinstance(bound, dp_event.GaussianDpEvent):
            gaussian = all(isinstance(event, dp_event.GaussianDpEvent) for event in self._events())
            kept = gaussian and 2 * self.rho() <= (1 + _ROUNDING) / bound.noise_multiplier**2
            spent = gaussian_epsilon(delta, 1 / bound.noise_multiplier) - _SMALLEST if kept else math.inf
        if not spent <= most:
            raise RuntimeError(
                f"the releases cost epsilon {spent:g} at delta {delta:g}, more than the budget of {epsilon:g}: "
                "nothing of them may be published"
            )
        told = dict.fromkeys((*assumes, *self._assumes, RUNNING_TIME, *noise_assumptions(self.rng)))
        # Equal events are counted; disjoint parts are the worst mechanism with their epsilon at delta 0.
        events = [event if n == 1 else dp_event.SelfComposedDpEvent(event, n) for event, n in self._events().items()]
        events += [ApproximateDpEvent(max(part.epsilon(0.0) for part in parts), 0.0) for parts in self._parts]
        event = bound or (events[0] if len(events) == 1 else dp_event.ComposedDpEvent(tuple(events)))
        guarantee = Guarantee(float(epsilon), float(delta), self.neighbouring, event, tuple(told), source)
        # From here on `_release` refuses: a later answer would be outside the bill that was just certified.
        self._closed.append(guarantee)
        return guarantee


class ClassLedger:
    """The private records of one class, about which only Gaussian releases are made; made by `Ledger.classes`.

    The ledger of all records makes the guarantee, and bills what is released here.

    >>> ledger = Ledger(np.array([0, 0, 1]), REPLACE_ONE, np.random.default_rng(0))
    >>> common, rare = ledger.classes(lambda labels, k: labels[labels == k], 2)
    >>> counts = [one.gaussian(lambda labels: np.array(len(labels)), Move(1.0, 0.0), 4.0) for one in (common, rare)]
    >>> print(ledger.guarantee(2.0, 1e-5, source="Gaussian mechanism").event)
    GaussianDpEvent(noise_multiplier=2.82842712474619)
    """

    def __init__(self, view: Ledger):
        self._view = view
        # Views share the bill, and classes must not: `Ledger` adds theirs up.
        view.bill, view._claims, view._parts, view._classes = {}, {}, [], []
        self._replaced = 0.0  # squared parameter of all releases, for a record that another of the class replaces

    def gaussian(
        self, query: Query, move: Move, noise_multiplier: float, units: ArrayLike | Sequence[ArrayLike] = 1.0
    ) -> Any:
        """`query(records of the class)` with Gaussian noise of standard deviation units * move.added *
        noise_multiplier.

        Parameters
        ----------
        query : callable
            Gives an array, or a sequence of arrays: sums over the records of the class.
        move : Move
            All arrays together, each entry divided by its unit.
        noise_multiplier, units
            As in `Ledger.gaussian`.
        """
        multiplier = _positive("noise_multiplier", noise_multiplier)
        scale = _positive("noise", _positive("move.added", move.added) * multiplier)
        replaced = check_real("move.replaced", move.replaced, low=0)
        self._view.assume(EXACT_REALS)
        self._replaced += (replaced / scale) ** 2
        terms = Terms("of_class", "l2", move.added, units, dp_event.GaussianDpEvent(noise_multiplier))
        return self._view._release(query, lambda value: _each(value, units, scale, self._view.rng.normal), terms)

    def cost(self) -> Move:
        """Parameters of the Gaussian mechanism that all releases make, for a record more or less and for another."""
        added = math.fsum(n / event.noise_multiplier**2 for event, n in self._view.bill.items())
        return Move(math.sqrt(added), math.sqrt(self._replaced))


def _chosen(choose: Callable[[Any, int], Any], k: int, records: Any) -> Any:
    return choose(records, k)


@lru_cache
def zcdp_budget(epsilon: float, delta: float) -> float:
    """Largest rho for which rho-zCDP is (epsilon, delta)-DP by the accountant that guarantees are made with.

    Source: Bun and Steinke 2016, through dp-accounting's Renyi accountant.

    >>> round(zcdp_budget(1.0, 1e-5), 4)
    0.0306
    """

    def affordable(rho):
        return event_epsilon(dp_event.ZCDpEvent(rho), delta, ADD_REMOVE, method="rdp") <= epsilon

    return furthest(affordable, 0.0, epsilon)


def _each(value: Any, units: Any, scale: float, law: Callable) -> Any:
    """An array, or a list of arrays, plus noise of scale units * scale, rounded to the grid of that noise."""
    if isinstance(value, list | tuple):
        each = units if isinstance(units, list | tuple) else [units] * len(value)
        return [_each(part, unit, scale, law) for part, unit in zip(value, each, strict=True)]
    value, scale = np.asarray(value, dtype=float), np.multiply(units, scale)
    if not np.all(scale > 0):
        raise ValueError(f"units must be above 0, got {units!r}")
    noisy = value + law(0.0, scale, value.shape)
    if np.ndim(scale):  # each entry has a grid of its own: in units of its scale it is that of scale 1
        return scale * to_grid(noisy / scale, 1.0)
    return to_grid(noisy, float(scale))


# The laws of noise


def to_grid(value: ArrayLike, scale: float) -> NDArray[np.float64]:
    """`value` rounded to multiples of a power of two between 2^-21 and 2^-20 of `scale`.

    After noise of that scale it hides which floating-point numbers the noise can reach, and being post-processing it
    takes nothing from the guarantee. Numbers too large for such a multiple to change stay as they are.

    Parameters
    ----------
    value : float or array
        Noisy already.
    scale : float
        Public, above 0: that of the noise.

    Raises
    ------
    ValueError
        `scale` is out of range.

    Notes
    -----
    Source: Mironov 2012, whose snapping mechanism also replaces the sampler.

    >>> float(to_grid(math.pi, 2.0**10))
    3.1416015625
    """
    # `frexp` writes scale = m 2^e with m in [1/2, 1), so 2^{e-1} is the largest power of two that is not above it.
    exponent = math.frexp(check_real("scale", scale, low=0, inclusive="neither"))[1] - 1 - _GRID_BITS
    value = np.asarray(value, dtype=float)
    # Where dividing by the step overflows, the double is so large that it is a multiple of the step already.
    with np.errstate(over="ignore"):
        steps = np.rint(np.ldexp(value, -exponent))
        return np.where(np.isfinite(steps), np.ldexp(steps, exponent), value)


def spherical_gamma(dimension: int, rate: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """One draw, of shape (dimension,), from the density proportional to exp(-rate ||b||_2).

    The direction is uniform and the norm is Gamma distributed with shape `dimension` and scale 1 / rate.

    Parameters
    ----------
    dimension : int
        At least 1.
    rate : float
        Inverse units of the noise, above 0.
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1.

    >>> round(float(np.linalg.norm(spherical_gamma(3, 2.0, np.random.default_rng(0)))), 2)
    1.42
    """
    _positive("rate", rate)
    direction = rng.normal(size=dimension)
    return direction / np.linalg.norm(direction) * rng.gamma(dimension, 1 / rate)


def discrete_laplace(value: NDArray[np.integer], rate: Fraction, rng: np.random.Generator) -> NDArray[np.int64]:
    """Integers plus independent noise k with probability proportional to exp(-rate |k|), drawn from random bits.

    Not up to rounding: the rate is a fraction, and all arithmetic is on integers. The work does not depend on the
    noise, whose size could otherwise be read from a clock. Results beyond 2^62 in size are cut to that.

    Source: Ghosh, Roughgarden and Sundararajan 2012; noise of this law is the difference of two geometric numbers.

    >>> discrete_laplace(np.array([10, 20]), Fraction(1, 2), np.random.default_rng(0)).tolist()
    [8, 19]
    """
    drawn = _geometric(2 * value.size, rate, rng)
    pairs = zip(value.ravel().tolist(), drawn[::2], drawn[1::2], strict=True)
    noisy = [number + up - down for number, up, down in pairs]
    return np.array([min(max(number, -_LARGEST_COUNT), _LARGEST_COUNT) for number in noisy]).reshape(value.shape)


def _geometric(size: int, rate: Fraction, rng: np.random.Generator) -> list[int]:
    """Independent integers g >= 0 with probability proportional to exp(-rate g), exactly.

    The binary digits of such a number are independent, and the k-th is 1 with probability 1 / (1 + exp(rate 2^k)). Each
    digit is a comparison of `_COIN_BITS` random bits with that probability. Once in 2^128 all bits agree and more are
    needed, which is the only work that depends on what is drawn.

    Source: the product 1 + x + x^2 + ... = (1 + x)(1 + x^2)(1 + x^4)..., for x = exp(-rate).
    """
    powers, odds = _digits(rate)
    words = np.frombuffer(rng.bytes(_COIN_BITS // 8 * size * len(odds)), ">u8").reshape(size, len(odds), 2)
    ones = (words[..., 0] < odds[:, 0]) | ((words[..., 0] == odds[:, 0]) & (words[..., 1] < odds[:, 1]))
    for i, k in np.argwhere((words == odds).all(axis=2)).tolist():
        drawn = int.from_bytes(words[i, k].tobytes(), "big")
        ones[i, k] = _tossed(powers[k], drawn, rng, is_last=k == len(powers) - 1)
    numbers = [int.from_bytes(digits.tobytes(), "little") for digits in np.packbits(ones[:, :-1], 1, "little")]
    for i in np.flatnonzero(ones[:, -1]).tolist():
        # The number is at least 2^K. By how many times that, is geometric again and independent of the lower digits.
        numbers[i] += (1 + _geometric(1, powers[-1], rng)[0]) << (len(powers) - 1)
    return numbers


@lru_cache(maxsize=256)
def _digits(rate: Fraction) -> tuple[list[Fraction], NDArray[np.uint64]]:
    """Exponents rate 2^k for k = 0, ..., K, and the probabilities of the digits as two words of 64 bits each.

    The last entry stands for all digits from the K-th on; that one of them is 1 has probability exp(-rate 2^K), which
    is below 2^-128.
    """
    powers = [rate]
    while powers[-1] < _COIN_BITS:
        powers.append(2 * powers[-1])
    odds = [_odds(power, _COIN_BITS, is_last=False) for power in powers[:-1]] + [0]
    return powers, np.array([divmod(number, 1 << 64) for number in odds], dtype=np.uint64)


def _tossed(power: Fraction, drawn: int, rng: np.random.Generator, *, is_last: bool) -> bool:
    """A coin whose first `_COIN_BITS` bits, `drawn`, are those of its probability: more bits are drawn."""
    bits = _COIN_BITS
    while drawn == (odds := _odds(power, bits, is_last=is_last)):
        bits += _COIN_BITS
        drawn = (drawn << _COIN_BITS) + int.from_bytes(rng.bytes(_COIN_BITS // 8), "big")
    return drawn < odds


def _odds(power: Fraction, bits: int, *, is_last: bool) -> int:
    """2^bits / (1 + exp(power)), or 2^bits / exp(power) for the last one, rounded down exactly."""
    if power >= bits:  # exp(power) is above 2^bits
        return 0
    digits = bits // 2
    while True:
        with localcontext(Context(prec=digits)):
            odds = 2**bits / ((0 if is_last else 1) + (Decimal(power.numerator) / Decimal(power.denominator)).exp())
            error = odds.scaleb(10 - digits)  # far more than the rounding of any of these steps
            low, high = int(odds - error), int(odds + error)
        if low == high:
            return low
        digits *= 2


# Choices


def exponential_probabilities(
    scores: ArrayLike, sensitivity: Sensitivity, epsilon: float, *, monotonic: bool = False
) -> NDArray[np.float64]:
    """Probability (n_candidates,) of each candidate in the exponential mechanism; private, as the scores are.

    It is proportional to exp(epsilon score / (2 sensitivity)).

    Parameters
    ----------
    scores : array of shape (n_candidates,)
        Private; larger is better. The number of candidates is public.
    sensitivity : Sensitivity
        Largest change of any one score ("linf"; the larger l1 and l2 bounds will do).
    epsilon : float
        Above 0.
    monotonic : bool
        Promise that adding a record never lowers a score (or never raises one), as with counts. Then the
        normalising constant moves in the same direction as the scores, the factor 2 is not needed and is
        dropped. Add/remove only: a replaced record raises some scores and lowers others.

    Raises
    ------
    ValueError
        A public parameter is out of range, or `scores` is not a non-empty vector.

    Source: McSherry and Talwar 2007, Theorem 6; for monotonic scores, the argument above.

    >>> exponential_probabilities([0.0, 1.0], Sensitivity(1.0, ADD_REMOVE, "linf"), 2.0).round(4).tolist()
    [0.2689, 0.7311]
    """
    check_sensitivity(sensitivity)
    check_real("epsilon", epsilon, low=0, inclusive="neither")
    if check_boolean("monotonic", monotonic):
        # A replaced record raises some scores and lowers others, so no score is monotone under replace-one.
        check_choice("neighbouring", sensitivity.neighbouring, (ADD_REMOVE,))
    scale = (1 if monotonic else 2) * sensitivity.value
    return softmax(epsilon / scale * as_scores(scores))


def exponential_choice(
    scores: ArrayLike, sensitivity: Sensitivity, epsilon: float, rng: np.random.Generator, *, monotonic: bool = False
) -> int:
    """Position of a candidate, drawn with `exponential_probabilities`."""
    probabilities = exponential_probabilities(scores, sensitivity, epsilon, monotonic=monotonic)
    return int(rng.choice(probabilities.size, p=probabilities))


def noisy_max(scores: ArrayLike, sensitivity: Sensitivity, epsilon: float, rng: np.random.Generator) -> int:
    """Position of the largest score after each got exponential noise of mean 2 sensitivity / epsilon.

    Source: McKenna and Sheldon 2020, Theorem 1 (permute and flip); equality with noisy max: Ding et al. 2021.
    """
    scores = as_scores(scores)
    return int(np.argmax(scores + rng.exponential(2 * sensitivity.value / epsilon, size=scores.shape)))


def check_sensitivity(sensitivity: Sensitivity) -> None:
    """Refuse anything but a `Sensitivity`: a bare number says neither its relation nor its norm."""
    if not isinstance(sensitivity, Sensitivity):
        raise ValueError(f"sensitivity must be a Sensitivity, got {sensitivity!r}")


def as_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """A vector of scores; anything else is refused."""
    scores = np.asarray(scores, dtype=float)
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"scores must be a non-empty vector, got shape {scores.shape}")
    return scores
