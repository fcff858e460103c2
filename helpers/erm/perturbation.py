"""Private linear classifiers: noise in the objective, or noise on its minimiser.

Both theorems are about exact minimisers, and a solver only comes close. So a share `tol` of epsilon pays for the
distance between the two, and epsilon is what the *released* coefficients have. The distance covers what double
arithmetic does to the solver, for all records and all noise (`helpers.erm.risk.precision` has the proof): it needs a
public bound on the summed weights over n. Where n is not the number of records, at most ten times n of them
count in full, and if there are more, all weigh less. Under replace-one both neighbours have as many; under add/remove
`guarantee_.assumes` that there are no more. What rounding does to rows and noise is not in epsilon (`EXACT_REALS`);
releases are rounded to a public grid (`helpers.privacy.to_grid`).

Objective perturbation with approximate minima
    Let beta*(D, b) be the exact minimiser for data D and noise b, and let its law be (e, delta)-DP. Let beta~(D, b) be
    within rho of it, always, and release beta~ + u with u of density proportional to exp(-r ||u||). That is (e + 2 r
    rho, e^{r rho} delta)-DP. Proof: for fixed b the density of beta~ + u is at every point at most e^{r rho} times that
    of beta* + u, and at least e^{-r rho} times, by the triangle inequality; integrating over b, the same holds for
    P(beta~ + u in A) and P(beta* + u in A); and beta* + u, post-processing of beta*, is (e, delta)-DP. So P(beta~ + u
    in A) <= e^{r rho} P(beta* + u in A) <= e^{r rho} (e^e P'(beta* + u in A) + delta) <= e^{e + 2 r rho} P'(beta~ + u
    in A) + e^{r rho} delta. With e = (1 - tol) epsilon and r = tol epsilon / (2 rho) the sum is epsilon, which is what
    released class counts, if there are any, have left of the budget. Here rho = tol s / (2 R), so that u has the mean
    length s d / (epsilon R), whatever tol is, and the constant s = 1e-5 makes it invisible in any score; or rho is what
    rounding leaves, if that is more.
Output perturbation with approximate minima
    Exact minimisers of neighbours are within S = `largest_move` of each other, approximate ones within S + 2 rho, so
    noise at the rate epsilon / (S + 2 rho) gives epsilon. With rho = tol S / (2 (1 - tol)) that is the rate (1 - tol)
    epsilon/S (and rho is what rounding leaves, if that is more). Gaussian noise of standard deviation (S + 2 rho) / mu
    is a Gaussian mechanism of parameter mu, and (epsilon, delta)-DP where that is: the solver costs no epsilon then,
    and makes the noise 1 / (1 - tol) times as large.

Source: Iyengar et al. 2019 (approximate minima perturbation, with Gaussian noise); the pure version is proved here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from helpers.erm.calibration import (
    Weighting,
    balanced_weights,
    calibrate,
    calibrate_gaussian,
    class_weights,
    fixed_weights,
    largest_move,
)
from helpers.erm.linear import INTERCEPT_SCALING, LOSSES, LinearClassifier, Records, class_weight_among
from helpers.erm.norms import RowPolytope, check_blocks
from helpers.erm.risk import precision
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    ApproximateDpEvent,
    Law,
    Ledger,
    NeighboringRelation,
    PrivateMixin,
    gaussian_multiplier,
)
from helpers.validation import (
    Check,
    any_value,
    check_boolean,
    check_bounds,
    choice,
    integer,
    optional,
    real,
)

# The constant s of the module's docstring: the noise u that hides where the solver stopped has mean length
# s d / (epsilon R), too short to change a score.
_BLUR = 1e-5
# Where `n_records` is given, up to this many times as many records keep their full weight; more of them share that
# weight. The bound on rounding needs some such limit.
_MOST = 10
# A smaller budget could raise the penalty beyond the range that `LinearClassifier._check_parameters` allows.
_SMALLEST_EPSILON = 1e-10
_LARGEST_DIVISOR = 10**15  # below 2^53, so a double holds it exactly


class Public(NamedTuple):
    """Public numbers that a method may use in addition to the ledger's answers.

    Attributes
    ----------
    divisor : int
        Divides the sum of the losses.
    width : int
        Entries of a row.
    weights : ndarray (K,) or None
        Public weights of the classes; None if all are 1, and with "balanced", whose weights come from private counts.
    weighting : Weighting
        How far one record can move the weights of all records.
    most : int
        Number of records that keep their full weight in a perturbation; if there are more, all weights are scaled down.
        So the sum of the gradients and its rounding error have public bounds.
    n_rows : int
        Bound on the number of rows: that of the records, which is public under replace-one; under add/remove the
        guarantee assumes that it is at most `most`.
    """

    divisor: int
    width: int
    weights: NDArray[np.float64] | None
    weighting: Weighting
    most: int
    n_rows: int


class Claim(NamedTuple):
    """Privacy cost of the coefficients, without that of noisy class counts.

    Attributes
    ----------
    epsilon : float
    source : str
        The theorem.
    interval : float
        As in `Ledger.guarantee`.
    """

    epsilon: float
    source: str
    interval: float = 1e-4


_PUBLIC = {"bounds": "feature bounds public", "center": "centre of the features public"}
"""Options that the guarantee takes to be public, with the assumption each adds: the records must not decide them."""


@dataclass(eq=False, repr=False)
class PrivateLinearClassifier(PrivateMixin, LinearClassifier, ABC):
    """Budget, relation, class weights and guarantee of the private classifiers. Not for use by itself."""

    _allowed: ClassVar[dict[str, Check]] = {
        "epsilon": real(low=_SMALLEST_EPSILON),
        "delta": real(low=0, high=1, inclusive="low"),
        "neighbouring": choice(ADD_REMOVE, REPLACE_ONE),
        "n_records": optional(integer(low=1, high=_LARGEST_DIVISOR)),
        "counts_share": real(low=0, high=1, inclusive="neither"),
        "class_weight": class_weight_among(None, "balanced", "private"),
    }

    epsilon: float = 1.0
    _: KW_ONLY
    regularization: float = 1e-3
    delta: float = 0.0
    radius: float = 1.0
    fit_intercept: bool = True
    random_state: int | None = None
    classes: Sequence[Any] = (0, 1)
    neighbouring: NeighboringRelation = REPLACE_ONE
    n_records: int | None = None
    class_weight: str | dict[Any, float] | None = None
    bounds: ArrayLike | None = None
    counts_share: float = 0.1
    prior: str | None = None

    def fit(self, X: Any, y: Any, multiplicity: Any = None) -> Self:
        """Fit privately.

        Parameters
        ----------
        X : array (m, d)
            Or, but for coordinate descent, a memory map, `Chunks` or a Dask collection: records that memory does not
            hold (`helpers.erm.partitions`).
        y : array (m,)
        multiplicity : array (m,) of int, optional
            How many equal records each row stands for, at least 1: the same mechanism as for the table written out, and
            the guarantee is about that table.

        Returns
        -------
        self
        """
        self._check_parameters()
        self._forget()
        records = self._records(X, y, multiplicity)
        divisor, width = records.divisor, records.rows.shape[1]
        # The true number of records, only to bound how many terms a sum can have (`Public.n_rows`). Under add/remove it
        # is private: 0 leaves the bound to what the guarantee assumes (`_within`).
        n_records = int(records.sizes.sum()) if self.neighbouring is REPLACE_ONE else 0
        # Only a seed needs the identity of the records, whose hash takes a pass over all of them.
        rng = self._noise_generator(*(() if self.random_state is None else records.identity()))
        ledger = Ledger(records, self.neighbouring, rng)
        ledger.assume(
            *(("one-hot blocks public",) if self.blocks is not None else ()),
            "number of records public" if self.n_records is None else "number that divides the loss public",
            "norm bound (radius) public",
            "set of labels public",
            *(("class weights public",) if isinstance(self.class_weight, dict) else ()),
            *(told for name, told in _PUBLIC.items() if getattr(self, name, None) is not None),
            *getattr(records.rows, "assumes", ()),
        )
        del X, y, multiplicity, records  # all that follows is made of the ledger's answers and public numbers
        self.offset_ = 0.0
        # A dict of weights is public and needs no counts; the other two kinds are found below, or inside the query.
        weights = self._weights(None) if isinstance(self.class_weight, dict) else None
        counts = 0.0  # what noisy counts of the classes cost, which pay for their weights or for the offset
        if self.class_weight == "private" or self.prior is not None:
            counts, n_classes = self.counts_share * self.epsilon, len(self.classes_)
            noisy = ledger.class_counts(lambda records: records.sizes, n_classes, counts)
            # Noise can make a count 0 or negative, of which there is neither a logarithm nor an inverse.
            sizes = np.maximum(noisy, 1.0)
            if self.prior is None:
                weights = class_weights(sizes)
            else:
                self.offset_ = self._offset(sizes, weights)
        if self.class_weight == "balanced":
            # "balanced" weights follow the private counts, so one record moves them all; weights that are public, or
            # computed from released counts, do not move.
            weighting = balanced_weights(len(self.classes))
        else:
            weighting = fixed_weights(1.0 if weights is None else float(weights.max()), self.neighbouring)
        # Without `n_records` the divisor is the number of records itself, which cannot be exceeded.
        most = divisor if self.n_records is None else _MOST * divisor
        public = Public(divisor, width, weights, weighting, most, max(most, n_records))
        claim = self._released(ledger, public, self.epsilon - counts)
        source = claim.source
        if counts:
            source = f"{source}; noisy class counts, by basic composition (Dwork and Roth 2014, Theorem 3.16)"
        self.guarantee_ = ledger.guarantee(counts + claim.epsilon, self.delta, source=source, interval=claim.interval)
        if weights is not None:
            self.class_weight_ = weights
        return self

    @abstractmethod
    def _released(self, ledger: Ledger, public: Public, epsilon: float) -> Claim:
        """Set coefficients at a cost of `epsilon`, and the constants; gives the claim about them."""


@dataclass(eq=False, repr=False)
class PerturbationClassifier(PrivateLinearClassifier):
    """The solver's share of both perturbations. Not for use by itself."""

    _allowed: ClassVar[dict[str, Check]] = LOSSES | {"tol": real(low=1e-12, high=0.5, inclusive="low")}

    regularization: float = 1e-3  # may be given by position
    _: KW_ONLY
    tol: float = 1e-3
    loss: str = "logistic"
    h: float = 0.5

    def _within(self, ledger, public, regularization, longest_noise, wanted) -> tuple[float, Callable]:
        """A distance, and a function of records and noise that returns a point within it of the exact minimiser.

        The distance is `wanted`, or the least that double arithmetic can promise if that is more
        (`helpers.erm.risk.precision`, which also says to what length results are shortened). It holds for all records
        and all noise. `longest_noise` is a length of the noise vector that is hardly ever exceeded.
        """
        if self.neighbouring is ADD_REMOVE:
            # If there are more, weights are scaled down, and one more record takes weight from all others: their sum
            # moves twice as far. So the guarantee assumes that there are not.
            ledger.assume(f"at most {_MOST} times as many records as n_records says")
        else:  # the number of records bounds how many terms a sum has, each of which rounds
            ledger.assume("number of records public")
        # Length of the minimiser of penalty, noise and prior alone, without any record: the centre that `precision`
        # asks for.
        center = longest_noise / (public.divisor * regularization)
        if self.prior is not None:
            center += float(np.linalg.norm(self._anchor()))
        reach, floor = precision(
            self._loss(),
            regularization,
            width=public.width,
            n_rows=public.n_rows,
            mean_weight=public.weighting.own * public.most / public.divisor,
            longest=self.radius,
            center=center,
        )
        distance = max(wanted, floor)
        none = np.zeros((len(self.classes) - 1) * public.width)

        def minimise(records: Records, noise: NDArray = none) -> NDArray[np.float64]:
            weights = self._weights(records.sizes) if self.class_weight == "balanced" else public.weights
            # Scaled down so that the weights add up to no more than those of `most` records, which `precision` was
            # told.
            if (number := records.sizes.sum()) > public.most:
                weights = (np.ones(len(self.classes)) if weights is None else weights) * (public.most / number)
            # `precision` proves `distance` for a computed gradient that certifies a quarter of it, and for results of
            # length `reach` at most.
            beta = self._minimiser(records, weights, regularization, noise, distance / 4)
            length = np.linalg.norm(beta)
            return beta * (reach / length) if length > reach else beta

        return distance, minimise


@dataclass(eq=False, repr=False, kw_only=True)
class ObjectivePerturbationClassifier(PerturbationClassifier):
    """Linear classification that is differentially private by noise in the objective, weighted by class or not.

    The objective of `ERMClassifier` gets a linear term b'beta/n, b of density proportional to exp(-noise_rate
    ||b||), and extra penalty where the budget asks for it. `coef_` and `intercept_` together are
    epsilon-DP under `neighbouring`, with n, `radius` and `classes` public. Standardising X with its own mean or maximum
    is not covered.

    Parameters
    ----------
    epsilon : float
        Privacy budget, at least 1e-10.
    regularization, radius, fit_intercept, classes, loss, h, bounds
        As in `ERMClassifier`.
    tol : float
        In [1e-12, 0.5): the share of epsilon that pays for stopping at a distance 5e-6 tol / radius from the exact
        minimiser, or as near as rounding lets it (`helpers.erm.perturbation` has the theorem). A small vector of noise,
        of mean length 1e-5 d / (epsilon radius) or in proportion to that rounding, is added to the result.
    random_state : None or int
        None: noise that nobody can predict. An integer is for reproducing: whoever can guess it can undo the privacy,
        and it must not serve two releases on related data (`PrivateMixin`).
    neighbouring : NeighboringRelation
        `REPLACE_ONE`, as in the papers, or `ADD_REMOVE`.
    n_records : int, optional
        Public number n >= 1 that divides the loss. By default the number of records, which replace-one keeps and
        add/remove does not: there it has to be given, and need not be the number of records.
    class_weight : None, "balanced", "private" or dict
        "balanced": the data's own inverse frequencies; that one record moves them all is part of the proof. "private":
        the inverse frequencies of noisy counts, which cost `counts_share` of epsilon. A dict is public.
    delta : float
        0, or in (0, 1) for Gaussian noise and (epsilon, delta)-DP.
    raise_regularization : bool
        Whether more than `regularization` may be used. If not, small budgets are refused.
    noise : {"auto", "ball", "cube", "gaussian"}
        Density of b, where "auto" is "gaussian" with `delta` > 0 and "ball" without. "ball": proportional to
        exp(-noise_rate ||b||). "cube": exp(-noise_rate ||b||_K), K the smallest convex body that holds all rows within
        `bounds`: without `blocks` a box, which takes 0.58 times the length of noise that the ball does. It needs
        `bounds` (`helpers.erm.norms` has the theorem). With it rows="unit" lengthens rows to the surface of the box,
        and those with `blocks`, which lie on it, not at all.
    blocks : sequence of sequences of int, optional
        Public one-hot blocks: columns of which one is 1 and the others are 0. Each then counts as one attribute, like a
        number: its levels are the corners of a regular simplex, and its bounds are not used. Needs `bounds`; noise of
        the shape "cube" for them is for two classes, with an intercept.
    counts_share : float
        In (0, 1): the part of epsilon spent on noisy counts of the classes, by "private" weights or a prior. With two
        classes and replace-one one count is enough, and has half the noise.
    intercept_scaling : float
        As in `ERMClassifier`; public, and the proofs see nothing but the length of the rows.
    rows : {"clip", "unit"}
        "unit": rows shorter than `radius` are lengthened to it.
    prior : {"offset"} or None
        As in `ERMClassifier`, from the noisy counts: they are released first, and given them the offset is a linear
        term of the objective that no record enters. Not with weights from counts, under which classes weigh the same.

    Attributes
    ----------
    noise_rate_ : float
        Rate of the noise norm, 1 / (units of radius), for the cube without a unit; with `delta` > 0 there is
        `noise_scale_` instead.
    total_regularization_ : float
        lambda + Delta.
    epsilon_solver_ : float
        The solver's part of epsilon; the noise and the Jacobian determinant have the rest.
    offset_ : float or ndarray (K,)
        As in `ERMClassifier`, from noisy counts of at least one record.
    class_weight_ : ndarray (K,)
        The public or privately estimated weights; not there with "balanced", whose weights no guarantee covers.
    guarantee_ : helpers.privacy.Guarantee
        Of `coef_` and `intercept_` (and `offset_`, `class_weight_`), and of nothing else.
    coef_, intercept_, classes_, n_features_in_
        As in `ERMClassifier`.

    Raises
    ------
    ValueError
        As in `ERMClassifier`, and where `helpers.erm.calibrate` refuses the parameters.

    Proof: of the constants (`helpers.erm.calibration`), of approximate minimisers (`helpers.erm.perturbation`) and of
    rounding (`helpers.erm.risk`) here; that the solver arrives at the gradient it promises is tested, not proved.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2; Rosenblatt et al. 2025, Algorithm 1.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> model = ObjectivePerturbationClassifier(epsilon=2.0, regularization=0.6, random_state=0).fit(X, y)
    >>> model.guarantee_.epsilon, round(model.noise_rate_, 6)
    (2.0, 0.999)
    """

    _allowed: ClassVar[dict[str, Check]] = {
        "raise_regularization": check_boolean,
        "intercept_scaling": INTERCEPT_SCALING,
        "rows": choice("clip", "unit"),
        "noise": choice("auto", "ball", "cube", "gaussian"),
        "blocks": optional(any_value),  # with the number of features, in `_check_parameters`
    }

    raise_regularization: bool = True
    intercept_scaling: float = 1.0
    rows: str = "clip"
    noise: str = "auto"
    blocks: Sequence[Sequence[int]] | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.noise != "auto" and (self.noise == "gaussian") != (self.delta > 0):
            needed = "above 0" if self.noise == "gaussian" else "0"
            raise ValueError(f"delta must be {needed} with noise={self.noise!r}, got {self.delta!r}")
        if self.bounds is None:
            if self.noise == "cube" or self.blocks is not None:
                raise ValueError("bounds must be given with noise='cube' and with blocks, got None")
        elif self.blocks is not None:
            check_blocks(self.blocks, len(check_bounds("bounds", self.bounds)))
            if self.noise == "cube" and not (self.fit_intercept and len(self.classes) == 2):
                raise ValueError("blocks must be None with noise='cube' for more than two classes or no intercept")

    def _polytope(self) -> RowPolytope:
        """The body of all rows, from public numbers: bounds, blocks and the constant feature."""
        # Two records, at all lower and at all upper bounds, show the largest size of every number's entry. For a block
        # its first level stands for all: a corner of the simplex has its largest entry in its own column, and all
        # columns are alike.
        corners = np.array(self.bounds, dtype=float).T
        blocks = () if self.blocks is None else check_blocks(self.blocks, corners.shape[1])
        for block in blocks:
            corners[:, list(block)] = np.eye(1, len(block))
        widths = np.abs(self._rows(corners).written()).max(axis=0)
        for block in blocks:
            widths[list(block)] = widths[block[0]]
        return RowPolytope(tuple(widths.tolist()), blocks)

    def _released(self, ledger: Ledger, public: Public, epsilon: float) -> Claim:
        size = (len(self.classes) - 1) * public.width
        solver = self.tol * epsilon
        noise_epsilon = epsilon - solver
        # Gaussian noise: the theorem multiplies delta by e^{r rho}.
        delta = self.delta * math.exp(-solver / 2)
        # From here on only public numbers are used, until the ledger draws the noise and looks at the records.
        noise, total, proved, source = self._constants(noise_epsilon, delta, public)
        # Gamma and normal laws exceed these lengths of noise with probability e^-50.
        if delta > 0:
            self.noise_scale_ = noise
            law = Law("gaussian", noise, size)
            longest_noise = (math.sqrt(size) + 10) * noise
        else:
            in_cube = self.noise == "cube"
            # `calibrate` states the rate per unit of the Euclidean norm. The norm of a body that rows fill has no unit:
            # there the rate is g = noise_rate R (`helpers.erm.norms`). As the body lies in the ball of radius R, its
            # norm is at least ||b||_2 / R, so the bound on the noise's Euclidean length below holds for both.
            self.noise_rate_ = noise * self.radius if in_cube else noise
            law = Law("body" if in_cube else "ball", self.noise_rate_, size, self._polytope() if in_cube else None)
            longest_noise = (size + 10 * math.sqrt(size) + 50) / noise
        distance, minimise = self._within(ledger, public, total, longest_noise, self.tol * _BLUR / (2 * self.radius))
        # `proved` is the budget up to rounding. A subclass with published constants (`checks.printed_erm`) may prove
        # another epsilon, and then that one is billed.
        kept = proved <= noise_epsilon * (1 + 1e-9)
        exact = ApproximateDpEvent(noise_epsilon if kept else proved, delta)
        self._store(ledger.minimum(minimise, law, exact, distance, solver))
        self.total_regularization_, self.epsilon_solver_ = total, solver
        return Claim(exact.epsilon + solver, source)

    def _constants(self, epsilon: float, delta: float, public: Public) -> tuple[float, float, float, str]:
        """Rate of the noise norm (with `delta` the standard deviation), total penalty, the epsilon that is
        proved with them for exact minimisers, and where; for subclasses to replace."""
        problem: dict[str, Any] = {
            "epsilon": epsilon,
            "n_records": public.divisor,
            "regularization": self.regularization,
            "radius": self.radius,
            "loss": self._loss(),
            "weighting": public.weighting,
            "raise_regularization": self.raise_regularization,
        }
        source = "objective perturbation with the constants of helpers.erm.calibrate"
        if delta > 0:
            # A softmax record pulls in one of K - 1 directions, which one depends on the output: a share of delta each.
            found = calibrate_gaussian(delta=delta / (len(self.classes) - 1), **problem)
            return *found, epsilon, f"{source}, Gaussian noise"
        if self.noise == "cube":
            source = f"{source}, noise in the norm of the rows' polytope (helpers.erm.norms)"
        return *calibrate(**problem), epsilon, source


class OutputPerturbationClassifier(PerturbationClassifier):
    """Linear classification that is differentially private by noise added to the minimiser.

    The minimiser of `ERMClassifier`'s objective moves by at most `largest_move` when one record changes, so noise of
    density proportional to exp(-noise_rate ||b||) at the rate epsilon divided by that makes `coef_` and `intercept_`
    epsilon-DP under `neighbouring`. With `delta` > 0 Gaussian noise makes them (epsilon, delta)-DP, which needs less
    noise where there are many coefficients.

    Parameters
    ----------
    epsilon, regularization, radius, fit_intercept, random_state, classes, neighbouring, n_records, loss, h, \
class_weight, bounds, counts_share, prior
        As in `ObjectivePerturbationClassifier`. There is no noise in the shape of a cube: a cube's norm does not bound
        how far a minimiser moves (`helpers.erm.norms`).
    tol : float
        In [1e-12, 0.5): the share of epsilon that pays for stopping at a distance tol / (2 - 2 tol) `largest_move` from
        the exact minimiser (`helpers.erm.perturbation` has the theorem). With `delta` > 0 it is a share of the noise.
    delta : float
        0, or in (0, 1) for Gaussian noise and (epsilon, delta)-DP.

    Attributes
    ----------
    noise_rate_ : float
        Rate of the norm of the noise on the coefficients; with `delta` > 0 there is `noise_scale_` instead, its
        standard deviation along each.
    epsilon_solver_ : float
        The solver's part of epsilon; 0 with `delta` > 0.
    guarantee_ : helpers.privacy.Guarantee
    others
        As in `ObjectivePerturbationClassifier`.

    Raises
    ------
    ValueError
        As in `ERMClassifier`.

    Proof: as `ObjectivePerturbationClassifier`; the mechanisms are in the literature.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1 and Theorem 1.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> round(OutputPerturbationClassifier(epsilon=2.0, regularization=0.5, random_state=0).fit(X, y).noise_rate_, 5)
    1.998
    """

    def _released(self, ledger: Ledger, public: Public, epsilon: float) -> Claim:
        regularization = float(self.regularization)
        move = largest_move(
            n_records=public.divisor,
            regularization=regularization,
            radius=self.radius,
            loss=self._loss(),
            weighting=public.weighting,
        )
        wanted = self.tol * move / (2 * (1 - self.tol))
        # No noise stands inside this objective, so its longest noise is 0.
        distance, minimise = self._within(ledger, public, regularization, 0.0, wanted)
        source = "Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1, Theorem 1"
        # The results of two neighbours are each within `distance` of minimisers that are `move` apart.
        sensitivity = move + 2 * distance
        if self.delta > 0:
            multiplier = gaussian_multiplier(epsilon, self.delta)
            self.noise_scale_, self.epsilon_solver_ = sensitivity * multiplier, 0.0
            self._store(ledger.gaussian(minimise, sensitivity, multiplier))
            return Claim(epsilon, f"{source}, Gaussian noise")
        self.noise_rate_ = epsilon / sensitivity
        self.epsilon_solver_ = 2 * distance * self.noise_rate_
        self._store(ledger.k_norm(minimise, sensitivity, epsilon))
        return Claim(epsilon, source)
