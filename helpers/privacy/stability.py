"""How far one record moves the input of a private learner, and what that does to the learner's guarantee.

Copies, SMOTE and bags change a learner's rows by one law: some rows always, others each with a probability of its own.
`ChangedRows` is that law, with every guarantee that follows from it and their inverse. Where the numbers of a law come
from (neighbours, copies, draws) is left to the methods that resample.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from helpers.privacy.accounting import ADD_REMOVE, LARGEST_EPSILON, REPLACE_ONE, chained_delta, closed_form, furthest
from helpers.privacy.guarantees import Guarantee
from helpers.validation import check_choice, check_integer, check_real

_NEGLIGIBLE = 1e-20  # tail probability left out of a sum, and added to the result
_LARGE_EPSILON = 40.0  # beyond, e^-epsilon is below the last digit of 1


@dataclass(frozen=True)
class ChangedRows:
    """Law of the learner's rows that one changed record changes: certain + Bin(trials, probability) are substituted.

    Neighbours differ in one record and keep the order of the others. With coupled randomness they give inputs of the
    learner that differ in that many substituted rows, and in `inserted` rows that only one of the two has. Each of the
    `trials` rows is changed independently of the others: its laws in the two data sets are (1 - p) C + p O and
    (1 - p) C + p X with one C. The law is a stochastic upper bound over all pairs of neighbours.

    Attributes
    ----------
    neighbouring : NeighboringRelation
        Of the raw data, hence of the whole pipeline.
    certain : int
        Rows that may be substituted always.
    trials : int
    probability : float
        Rows that may be substituted with this probability, > 0.
    inserted : int
        Rows inserted or deleted always, one step of add/remove each; none under a replace-one learner, whose number of
        rows is public.
    learner_neighbouring : NeighboringRelation, optional
        Relation under which the learner must be private; `neighbouring` if not given. A substitution is one step of
        replace-one and two of add/remove.
    assumes : tuple of str
        What must be public or true for the law to hold.
    source : str

    Raises
    ------
    ValueError
        A field out of range, or a law that changes nothing.

    >>> rows = ChangedRows(REPLACE_ONE, certain=2, trials=3333, probability=0.2)
    >>> rows.maximum, round(rows.log_mean(0.1), 2)
    (3335, 69.58)
    """

    neighbouring: NeighboringRelation
    certain: int = 0
    trials: int = 0
    probability: float = 1.0
    inserted: int = 0
    learner_neighbouring: NeighboringRelation | None = None
    assumes: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self):
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        learner = self.neighbouring if self.learner_neighbouring is None else self.learner_neighbouring
        object.__setattr__(self, "learner_neighbouring", learner)
        check_choice("learner_neighbouring", learner, (ADD_REMOVE, REPLACE_ONE))
        check_integer("certain", self.certain, low=0)
        check_integer("trials", self.trials, low=0)
        check_real("probability", self.probability, low=0, high=1, inclusive="high")
        # A replace-one learner takes its number of rows as public, so no row may appear or vanish.
        check_integer("inserted", self.inserted, low=0, high=None if learner is ADD_REMOVE else 0)
        if self.group_size == 0:
            raise ValueError("certain, trials and inserted must not all be 0: some row changes")

    @property
    def maximum(self) -> int:
        """Most rows that can be substituted."""
        return self.certain + self.trials

    @property
    def mean(self) -> float:
        """Expected number of substituted rows."""
        return self.certain + self.trials * self.probability

    @property
    def group_size(self) -> int:
        """Most steps of the learner's relation: what group privacy would have to pay for.

        >>> ChangedRows(ADD_REMOVE, inserted=3).group_size
        3
        """
        return self.steps(self.maximum)

    def steps(self, rows: Any) -> Any:
        """Steps of the learner's own relation between inputs that differ in `rows` substituted rows, one number or an
        array of them.

        >>> ChangedRows(ADD_REMOVE, certain=2, trials=10, probability=0.2, inserted=1).steps(3)
        7
        """
        return self.inserted + self._cost * rows

    def log_mean(self, epsilon: float) -> float:
        """log E e^{epsilon steps}: the pure guarantee of an `epsilon`-DP learner, and attained.

        Replace the law P of one row by its law P' in the other data set, all other rows drawn independently. The two
        laws share mass 1 - p and differ in the rest: P = (1 - p) C + p O, P' = (1 - p) C + p X. Averaged over the other
        rows, the learner's probability F of an event is within a factor e^a for any two values of this row (a = 2
        epsilon under add/remove, else epsilon). So E_O F <= e^a min(E_C F, E_X F), and hence E_P F <= (1 + p (e^a - 1))
        E_P' F. Replacing one row after the other multiplies these factors, whatever the output tells about the
        choices that were made: independence of the rows is all that is needed. If several rows shared one draw and
        the output showed it, only `group_size` would count.

        Parameters
        ----------
        epsilon : float
            Of the learner, >= 0.

        Raises
        ------
        ValueError
            `epsilon` out of range.

        Source: each step is advanced joint convexity (Balle, Barthe and Gaboardi 2018, Theorem 2).

        >>> round(ChangedRows(REPLACE_ONE, trials=1000, probability=1 / 1000).log_mean(1.0), 4)
        1.7168
        """
        epsilon = check_real("epsilon", epsilon, low=0)
        # log(1 + p (e^row - 1)), where a substituted row costs `row`. For large `row` e^row is taken out of the
        # logarithm, because it would overflow.
        row = self._cost * epsilon
        if row < LARGEST_EPSILON:
            uncertain = math.log1p(self.probability * math.expm1(row))
        else:
            uncertain = row + math.log1p((1 - self.probability) * math.expm1(-row))
        return epsilon * self.steps(self.certain) + self.trials * uncertain

    def mixture_delta(self, epsilon: float, inner: Guarantee) -> float:
        """delta of the pipeline at `epsilon`, averaging what the learner promises to groups.

        Let eta be the probability that any row changes, and epsilon = log(1 + eta (e^e - 1)). Then delta <= sum_j P(j
        steps) delta_j(e), where delta_j is the learner's for groups of j: exact for Gaussian and Laplace noise, which
        is then shifted by j sensitivities, and by group privacy otherwise. Why: given that a row changes, the input is
        turned into one drawn from the other data set, or into one without any changed row, by substituting those rows;
        the part without changes is common to both data sets, and the hockey-stick divergence is jointly convex. Where
        some row changes always, eta = 1 and e = epsilon. For a pure learner the result is at most P(steps > J) at
        epsilon = J e, for every cut-off J.

        Parameters
        ----------
        epsilon : float
            >= 0.
        inner : Guarantee
            The learner's, under `learner_neighbouring`.

        Returns
        -------
        float
            In [0, 1].

        Raises
        ------
        ValueError
            `inner` is for another relation; `epsilon` out of range.

        Source: Balle, Barthe and Gaboardi 2018, Theorems 2 and 10.

        >>> round(ChangedRows(REPLACE_ONE, 2, 3333, 0.2).mixture_delta(69.0, Guarantee(0.1, 0.0, REPLACE_ONE)), 3)
        0.103
        """
        epsilon = check_real("epsilon", epsilon, low=0)
        check_choice("inner.neighbouring", inner.neighbouring, (self.learner_neighbouring,))
        # Advanced joint convexity with eta = P(some row changes) (Theorem 2): the target epsilon is turned into the e
        # at which the learner's promises are averaged. For large epsilon log(1 + (e^epsilon - 1)/eta) is epsilon - log
        # eta to the last digit.
        if not (self.certain or self.inserted or self.probability == 1):  # log(1 + (e^epsilon - 1)/eta)
            changed = -math.expm1(self.trials * math.log1p(-self.probability))
            is_large = epsilon >= _LARGE_EPSILON
            epsilon = epsilon - math.log(changed) if is_large else math.log1p(math.expm1(epsilon) / changed)
        rows, probabilities = self._law
        # `_law` leaves out a tail of probability 1e-20, which is added here as if it were a certain failure.
        return min(1.0, float(probabilities @ _group_deltas(epsilon, inner, self.steps(rows))) + _NEGLIGIBLE)

    def delta_at(self, epsilon: float, inner: Guarantee) -> float:
        """Smallest delta known for the pipeline at `epsilon`: from `mixture_delta` or `amplify`, whichever is less.

        Parameters, result and errors as in `mixture_delta`.

        >>> rows, learner = ChangedRows(REPLACE_ONE, 2, 3333, 0.2), Guarantee(0.1, 0.0, REPLACE_ONE)
        >>> [round(rows.delta_at(epsilon, learner), 3) for epsilon in (69.0, 69.57, 69.58)]
        [0.103, 0.01, 0.0]
        """
        return min(self.mixture_delta(epsilon, inner), self.amplify(inner).delta_at(epsilon))

    def amplify(self, inner: Guarantee, delta: float | None = None) -> Guarantee:
        """Guarantee of "resample, then learn", from the learner's own on its input.

        Without `delta`: epsilon = `log_mean`(e) and delta = d (e^epsilon - 1)/(e^e - 1) for an (e, d)-DP learner, which
        is group privacy with e^{size e} replaced by its mean: replacing one row's law is then a step of (log(1 + p (e^e
        - 1)), p d), and the steps add up as they do for groups. Where nothing is left to chance this *is* group
        privacy, as `Guarantee.group` has it. With `delta`: the smallest epsilon known to hold there, from this pair and
        from `mixture_delta`; infinite if there is none.

        Parameters
        ----------
        inner : Guarantee
            The learner's, under `learner_neighbouring`.
        delta : float, optional
            In (0, 1).

        Raises
        ------
        ValueError
            As in `mixture_delta`; `delta` out of range.

        >>> rows = ChangedRows(REPLACE_ONE, 2, 10, 0.2)
        >>> print(rows.amplify(Guarantee(0.1, 0.0, REPLACE_ONE)))
        (0.4082, 0)-DP, replace-one
        >>> print(rows.amplify(Guarantee(0.1, 0.0, REPLACE_ONE), delta=0.1))
        (0.2176, 0.1)-DP, replace-one
        """
        check_choice("inner.neighbouring", inner.neighbouring, (self.learner_neighbouring,))
        # With no row left to chance the group theorem applies as it is, and keeps the learner's event.
        if self.trials == 0:
            known = inner.group(self.group_size)
        elif math.isinf(inner.epsilon):
            known = replace(inner, event=None)
        else:
            total = self.log_mean(inner.epsilon)
            # The number of steps matters at epsilon = 0 only, where the fraction becomes their mean.
            moved = chained_delta(inner.epsilon, inner.delta, total, self.steps(self.mean))
            known = replace(inner, epsilon=total, delta=float(moved), event=None)
        known = replace(
            known,
            neighbouring=self.neighbouring,
            assumes=tuple(dict.fromkeys(inner.assumes + self.assumes)),
            source="; ".join(filter(None, [known.source, self.source])),
        )
        if delta is None:
            return known
        delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
        epsilon, most = known.epsilon_at(delta), float(self.steps(self._law[0][-1]))
        # A starting point at which delta surely holds: group privacy for the most rows, or the closed form at half of
        # delta. The search then goes down from it.
        enough = [most * inner.epsilon]
        if closed := closed_form(inner.event):
            enough.append(closed.epsilon(delta / 2, most * closed.parameter))
        high = min(max(filter(math.isfinite, enough), default=math.inf), epsilon)
        # Where even that does not reach delta, the pair of `log_mean` stays.
        if math.isfinite(high) and self.mixture_delta(high, inner) <= delta:
            epsilon = furthest(lambda smaller: self.mixture_delta(smaller, inner) <= delta, high, 0.0)
        return replace(known, epsilon=epsilon, delta=delta)

    def inner_epsilon(self, epsilon: float, *, delta: float | None = None) -> float:
        """Epsilon to give a learner that is purely private so that `amplify` gives the pipeline at most `epsilon`.

        Parameters
        ----------
        epsilon : float
            Target, > 0.
        delta : float, optional
            In (0, 1): of the pipeline.

        Returns
        -------
        float
            The largest there is, rounded down (at most 700: beyond, nothing is promised).

        Raises
        ------
        ValueError
            A parameter out of range.

        >>> ChangedRows(ADD_REMOVE, inserted=3).inner_epsilon(1.5)
        0.5
        """
        epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
        if delta is None and self.trials == 0:
            return epsilon / self.group_size

        def within(inner):
            return self.amplify(Guarantee(inner, 0.0, self.learner_neighbouring), delta).epsilon <= epsilon

        high = min(epsilon, LARGEST_EPSILON)
        # Chance, or delta, may allow the learner more than the pipeline's epsilon: the bracket grows until it does not.
        while high < LARGEST_EPSILON and within(high):
            high = min(2 * high, LARGEST_EPSILON)
        return furthest(within, 0.0, high)

    @property
    def _cost(self) -> int:
        """Steps of the learner's relation that one substituted row is."""
        return 1 if self.learner_neighbouring is REPLACE_ONE else 2

    @cached_property
    def _law(self) -> tuple[NDArray, NDArray]:
        """Possible numbers of substituted rows (m,) and their probabilities (m,).

        The upper tail of probability below 1e-20 is left out; the lower tail counts as the smallest number kept.
        """
        draws = binom(self.trials, self.probability)
        # Bernstein's inequality: quantiles this far out are not reliable in scipy.
        third = -math.log(_NEGLIGIBLE) / 3
        width = third + math.sqrt(third**2 + 6 * third * draws.var())
        low, high = math.floor(draws.mean() - width), math.ceil(draws.mean() + width)
        extra = np.arange(max(low, 0), min(high, self.trials) + 1)
        probabilities = draws.pmf(extra)
        # All that lies below the smallest number counts as that number, which is more rows than were changed: an upper
        # bound.
        probabilities[0] = draws.cdf(extra[0])
        return self.certain + extra, probabilities


def _group_deltas(epsilon: float, inner: Guarantee, sizes: NDArray) -> NDArray:
    """The learner's delta (m,) at `epsilon` for inputs that differ in `sizes` (m,) steps; 0 for 0 steps."""
    if math.isinf(inner.epsilon):
        deltas = (sizes > 0).astype(float)
    else:
        losses = sizes * inner.epsilon
        # Group privacy at (size e, delta'), moved to `epsilon` along the curve of the worst mechanism with that pair
        # (`optimal_delta` with one mechanism).
        pure = expit(losses) * -np.expm1(np.minimum(epsilon - losses, 0.0))
        deltas = pure + (1 - pure) * chained_delta(inner.epsilon, inner.delta, losses, sizes)
    if closed := closed_form(inner.event):
        deltas = np.minimum(deltas, closed.delta(epsilon, sizes * closed.parameter))
    return deltas
