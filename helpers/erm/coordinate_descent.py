"""Private coordinate descent: noisy slopes along one coordinate after the other.

Every update releases the clipped, weighted sum of the records' slopes along one coordinate with Gaussian noise; the
order of the coordinates does not look at the records. Steps, proximal steps and averages are post-processing. Greedy
choices of the coordinate are left to `helpers.erm.greedy`.

The sweep lemma
    A sweep visits each coordinate once, and every visit sees the coefficients that the visits before have left. In a
    linear model it costs what *one* full gradient costs: the noise for a vector of length R, not for D numbers.
    Proof. Record i pulls along coordinate j by at most u_ij = a_i |z_ij|, a_i = min(1, R / |z_i|), at whatever
    coefficients: the loss has a slope of at most 1, and clipping keeps the pull below R / |z_i|. So |u_i| <= R. Fix two
    neighbouring data sets. The sum along coordinate j moves between them by at most v_j = sum_i |a_i| u_ij, where sum
    |a_i| <= mass is what one record does to the weights (`helpers.erm.Weighting`), hence |v| <= mass R: a bound fixed
    before the first step, whatever has been released since. A visit with noise t_j is a Gaussian mechanism of parameter
    v_j / t_j for these two data sets, given any past, and the adaptive composition of Gaussian mechanisms of fixed
    parameters is one whose squares add up: sum_j v_j^2 / t_j^2 <= (mass R / t)^2 where all t_j = t.
    What makes it work is that the direction z_i of a record's gradient does not depend on the coefficients. It is
    attained: far on the wrong side of the boundary a record pulls by R z_i / |z_i| at every visit.
Other orders
    Independent draws visit coordinate j N_j times, public numbers, and T sweeps' worth of them cost max_j N_j full
    gradients instead of T: noise grows by the square root of the ratio.
Clipping by coordinate
    One record adds at most c_j to the sum along coordinate j, and may do so along all of them. The least sum of
    variances sum_j t_j^2 under sum_j c_j^2 / t_j^2 = 1 / k^2 has t_j^2 = k^2 c_j sum_i c_i: k^2 (sum c)^2 in all, where
    noise in proportion to c_j, as printed, has D k^2 sum c_j^2. Equal limits make the two equal.

Source: Mangold, Bellet, Salmon and Tommasi 2022 (the method); Dong, Roth and Su 2022, Corollary 3.3 (composition); the
lemma and the split are proved here.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from helpers.erm.perturbation import Claim, Public
from helpers.erm.scaling import SCALE_SHARE, ScaledLinearClassifier, logistic_pull
from helpers.privacy import Ledger, gaussian_mu
from helpers.validation import Check, choice, integer

_AVERAGED = 0.5  # of the sweeps, from the last one backwards, whose results are averaged; at least one


@dataclass(eq=False, repr=False)
class DPCoordinateDescentClassifier(ScaledLinearClassifier):
    """Linear classification that is (epsilon, delta)-DP by noise in every update of coordinate descent.

    With rows z of the frame that `scale` names, minimises the mean of w_i loss(s_i (offset + z_i'beta)) plus a penalty,
    one coordinate at a time. Multiplying a feature, its bounds and its scale by a number changes no prediction.

    Parameters
    ----------
    epsilon, radius, fit_intercept, random_state, neighbouring, n_records, class_weight, counts_share
        As in `ObjectivePerturbationClassifier`; `radius` is the clip, in units of the rows, which a known scale makes
        about 1 long. `counts_share` of epsilon pays for the counts of `prior` too.
    delta : float
        In (0, 1).
    sweeps : int
        T >= 1: every sweep makes as many updates as there are coordinates.
    step : float
        In (0, 1e6]. Length of a step in units of 1 / (the loss's curvature times the mean square that the frame expects
        of an entry); more than 1 where the features are smaller than `scale` says, or weights small.
    clip : {"row", "coordinate"}
        "row": a record's pull is clipped so that its gradient is at most `radius` long; a sweep costs one gradient.
        "coordinate": its part along each of D coordinates is clipped at radius / sqrt(D), or what the bounds allow,
        with the noise split between coordinates as is best. Both cost the same; "row" is the gradient of a convex
        function.
    scale : {"auto", "public", "private"}, array (d,) or None
        "public": the distance from the centre to the farther bound. "private": root mean squares about the centre,
        released by a tenth of the budget (of mu^2, the square of the Gaussian parameter). An array: public numbers.
        None: features as they are, which `bounds` then only clip. "auto": "public" where there are bounds, else None.
    center : float, array (d,) or None
        Public point that features are measured from. None: the middle of the bounds, 0 without bounds. A centre near
        the bulk of a feature is worth much: a scale about a far point says nothing about its spread.
    order : {"shuffled", "iid"}
        Of the coordinates: each once a sweep in random order, or independent draws, which need more noise.
    penalty : {"l2"} or None
        On the coefficients of the rows, the intercept included: (regularization/2) ||beta||^2.
    regularization : float
        Above 0.
    prior : {"offset"} or None
        "offset": the log odds of noisy class counts (with public weights: of the weighted classes) are added to every
        score, also inside the loss. Costs `counts_share` of epsilon.
    bounds : array (d, 2), optional
        Public: X is clipped to them. Needed by scale "public" and "private".
    classes : sequence of two labels

    Attributes
    ----------
    coef_ : ndarray (1, d); intercept_ : ndarray (1,)
        decision = coef_ x + intercept_ with x in its own units, clipped to the bounds.
    offset_ : float
        Inside `intercept_`; 0 without a prior. Scores above 0 make the fewest (weighted) mistakes, scores above
        `offset_` the largest balanced accuracy, where the model is right.
    moments_ : ndarray (d,)
        With scale "private": released mean squares, in units of scale "public".
    noise_multiplier_ : float
        Noise of a sweep over the sensitivity of a sweep.
    noise_scales_ : ndarray (D,)
        Standard deviation of the noise on the sum of slopes along each coordinate.
    class_weight_, classes_, n_features_in_, guarantee_
        As in `ObjectivePerturbationClassifier`.

    Raises
    ------
    ValueError
        As in `ERMClassifier`.

    Proof: the sweep lemma and the split of the noise are proved here (`helpers.erm.coordinate_descent`); composition is
    in the literature.

    Source: Mangold, Bellet, Salmon and Tommasi 2022, Algorithm 1; its noise and sweeps as in this module.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> model = DPCoordinateDescentClassifier(epsilon=2.0, delta=1e-3, sweeps=16, random_state=0).fit(X, y)
    >>> str(model.guarantee_), round(model.noise_multiplier_, 3)
    ('(2, 0.001)-DP, replace-one', 5.781)
    """

    _allowed: ClassVar[dict[str, Check]] = {
        "sweeps": integer(low=1),
        "clip": choice("row", "coordinate"),
        "order": choice("shuffled", "iid"),
    }

    sweeps: int = 20
    clip: str = "row"
    order: str = "shuffled"

    def _released(self, ledger: Ledger, public: Public, epsilon: float) -> Claim:
        mu = gaussian_mu(epsilon, self.delta)
        # Squares of Gaussian parameters add up: the scale gets a share of mu^2, as a release of parameter sqrt(share)
        # mu and multiplier one over that, and the descent gets the rest.
        frame, steps = self._private_frame(ledger, public, 1 / (math.sqrt(SCALE_SHARE) * mu))
        mu *= math.sqrt(1 - self._scale_share)
        size, limits, rng = len(frame.largest), self._limits(frame), ledger.rng
        # The coordinates (sweeps, D) in order of their updates, drawn without looking at the records.
        if self.order == "iid":
            order = rng.integers(size, size=(self.sweeps, size))
        else:
            order = np.array([rng.permutation(size) for _ in range(self.sweeps)])
        visits = np.bincount(order.ravel(), minlength=size)
        # Noise that makes a sweep a Gaussian mechanism of multiplier 1: what one record can move, in units of it, has
        # length 1 at most, by the sweep lemma or by the split above.
        a_sweep = visits / self.sweeps
        if self.clip == "row":
            # T sweeps cost as many full gradients as the most visited coordinate has visits ("Other orders" above).
            lengths = np.full(size, self._longest(frame) * math.sqrt(a_sweep.max()))
        else:
            # The split of the module's docstring: with it the squares c_j^2 / t_j^2, counted by visits, add up to 1 in
            # a sweep.
            lengths = np.sqrt(limits * (a_sweep @ limits))
        lengths = public.weighting.mass * lengths
        # T mechanisms of multiplier sqrt(T) / mu compose to one of parameter mu (Corollary 3.3).
        self.noise_multiplier_ = math.sqrt(self.sweeps) / mu
        self.noise_scales_ = self.noise_multiplier_ * lengths
        released = steps.sweeps(lengths, visits, self.noise_multiplier_, self.sweeps)

        # The result is the mean of the coefficients after each sweep of the last half.
        rate, beta, mean = self._rate(frame), np.zeros(size), np.zeros(size)
        kept = max(round(_AVERAGED * self.sweeps), 1)
        last, by = 0, 0.0  # coordinate and size of the last update, by which the margins are moved in the next query

        def slope(margins, j):
            """Minus the weighted sum of what the records pull along coordinate j."""
            # The margins are private, so they follow the coefficients inside the query, one update late.
            margins.move(last, by)
            column, weights = margins.signed[:, j], margins.weights
            pull = logistic_pull(margins.values, out=margins.buffer)
            if self.clip == "row":
                # A record's pull is at most its cap, which keeps its whole gradient within the clip.
                np.minimum(pull, margins.caps, out=pull)
                return -(pull @ column if weights is None else np.multiply(pull, weights, out=pull) @ column)
            np.multiply(pull, column, out=pull)
            np.clip(pull, -limits[j], limits[j], out=pull)
            return -(pull.sum() if weights is None else pull @ weights)

        for sweep, coordinates in enumerate(order):
            for j in coordinates:
                noisy = released(partial(slope, j=j), j)
                moved = self._proximal(beta[j] - rate * (noisy / public.divisor), rate)
                last, by, beta[j] = j, moved - beta[j], moved
            if sweep >= self.sweeps - kept:
                mean += beta / kept
        self._store_units(mean, frame)
        source = "composition of Gaussian mechanisms (Dong, Roth and Su 2022, Corollary 3.3) by the sweep lemma"
        return Claim(epsilon, source)
