"""Noise calibration of private empirical risk minimisation, and its exact privacy loss.

`calibrate` turns a privacy budget into the noise and regularisation of objective perturbation, `proven_epsilon` says
what any such constants guarantee, and `privacy_loss` is the exact log density ratio of the output on two data sets, so
that every calibration can be confronted with the truth. Drawing the noise belongs to `helpers.privacy`, solving to the
modules `objective` and `softmax`.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from helpers.checks import check_choice, check_integer, check_real
from helpers.erm.objective import LOGISTIC, curvature_sum, gradient
from helpers.erm.softmax import softmax_curvature_sum, softmax_gradient
from helpers.erm.weighting import UNWEIGHTED
from helpers.privacy import ADD_REMOVE, REPLACE_ONE

ANALYSES = ("tight", "icml", "arxiv", "chaudhuri")
_LARGEST_EPSILON = 700.0  # e^epsilon overflows a little above this, and nothing is promised there anyway


class Calibration(NamedTuple):
    """Constants of objective perturbation.

    Attributes
    ----------
    noise_rate : float
        The noise b has density proportional to exp(-noise_rate ||b||).
    total_regularization : float
        lambda + Delta, the coefficient of ||beta||^2 / 2.
    """

    noise_rate: float
    total_regularization: float


def algorithm_2(
    *,
    epsilon,
    n_records,
    regularization,
    radius=1.0,
    curvature=LOGISTIC.curvature,
    neighbouring=REPLACE_ONE,
) -> Calibration:
    """Constants of Chaudhuri, Monteleoni and Sarwate's Algorithm 2, for records of norm at most `radius`.

    The objective is (1/n) sum loss + (total_regularization/2) ||beta||^2 + b'beta/n, n a public number; its exact
    minimiser is epsilon-DP. One record more or less moves b by at most radius and multiplies the Jacobian
    determinant by at most 1 + t, t = curvature radius^2 / (n (lambda + Delta)); a replacement does both twice. What
    the determinant costs is taken from epsilon. As printed, Delta = 0 whenever anything is left, so the noise grows
    without bound where epsilon approaches that cost from above.

    Parameters
    ----------
    epsilon : float
        Budget, > 0.
    n_records : int
        n >= 1, public: the number of records under replace-one; under add/remove any number fixed in advance.
    regularization : float
        lambda > 0.
    radius : float
        Public bound R > 0 on a record's norm, the constant feature included.
    curvature : float
        c > 0, bound on the second derivative of the loss (its slope is at most 1).
    neighbouring : NeighboringRelation
        The paper's is replace-one; add/remove is the same argument with one record instead of two.

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2 and Theorem 2 (R = 1 there).

    >>> [round(x, 4) for x in algorithm_2(epsilon=1.0, n_records=1000, regularization=0.01)]
    [0.4753, 0.01]
    """
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
    n_records = check_integer("n_records", n_records, low=1)
    regularization = check_real("regularization", regularization, low=0, inclusive="neither")
    radius = check_real("radius", radius, low=0, inclusive="neither")
    curvature = check_real("curvature", curvature, low=0, inclusive="neither")
    moved = 2 if check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE)) == REPLACE_ONE else 1
    bend = curvature * radius**2 / n_records
    left = epsilon - moved * math.log1p(bend / regularization)
    if left > 0:
        return Calibration(left / (moved * radius), regularization)
    return Calibration(epsilon / (2 * moved * radius), bend / math.expm1(epsilon / (2 * moved)))


def calibrate(
    *,
    epsilon,
    n_records,
    regularization,
    radius=1.0,
    loss=LOGISTIC,
    analysis="tight",
    weighting=UNWEIGHTED,
    neighbouring=REPLACE_ONE,
    raise_regularization=True,
    dimension=None,
) -> Calibration:
    """Constants of objective perturbation under a choice of analyses.

    Let T = R^2 / (n L) and g = noise_rate R, with L the total regularisation. A change of one record moves b by at most
    mass R, and raises the Jacobian's log determinant by at most gained c T. "tight" is the best that is proved here:

    * A loss that cannot pull and bend at once (logistic, softmax) needs nothing for the Jacobian once T <= free_ratio
      g. So L is raised to mass steepness R^2 / (free_ratio n epsilon), for logistic loss 2 R^2 / (n epsilon), and the
      whole of epsilon goes to the noise. If L may not be raised, g solves own_cost + (gained - own) cost(g, T) +
      (mass - gained) steepness g = epsilon, about a square root in epsilon.
    * Other losses pay log(1 + own c T) + (gained - own) c T, the changed record by its rank and the others by the
      trace norm; L is raised until that is at most epsilon/2. Without weights under replace-one, epsilon/4: this is
      the printed fallback's L, at 1.5 times its noise rate.

    "chaudhuri" is `algorithm_2`, "arxiv" the same constants used with weights, "icml" the radius 3 and the factor d of
    the published version. Their printed guarantees need not be true with weights: see `proven_epsilon`.

    Parameters
    ----------
    epsilon : float
        Budget, in (0, 700].
    n_records : int
        n >= 1, public.
    regularization : float
        lambda > 0.
    radius : float
        Public bound R > 0 on a record's norm.
    loss : Loss or Softmax
    analysis : {"tight", "icml", "arxiv", "chaudhuri"}
    weighting : Weighting
        "tight" uses it; the printed constants do not look at it. It belongs to a relation.
    neighbouring : NeighboringRelation
        For the printed constants; "icml" is for replace-one only.
    raise_regularization : bool
        Whether "tight" may regularise more than `regularization`. The printed analyses always may.
    dimension : int, optional
        d, the number of coefficients; "icml" needs it.

    Raises
    ------
    ValueError
        A parameter out of range; or epsilon does not cover the Jacobian and `raise_regularization` is False.

    Source: "tight": proved in the chapters on private and on weighted private ERM; "icml", "arxiv": Differential
    Privacy Under Class Imbalance, Algorithm 1 and arXiv Algorithm 3; "chaudhuri": Algorithm 2.

    >>> calibrate(epsilon=1.0, n_records=1000, regularization=1e-3)
    Calibration(noise_rate=0.5, total_regularization=0.002)
    """
    epsilon = check_real("epsilon", epsilon, low=0, high=_LARGEST_EPSILON, inclusive="high")
    n_records = check_integer("n_records", n_records, low=1)
    regularization = check_real("regularization", regularization, low=0, inclusive="neither")
    radius = check_real("radius", radius, low=0, inclusive="neither")
    check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
    if check_choice("analysis", analysis, ANALYSES) == "tight":
        bend = radius**2 / n_records
        if raise_regularization:
            regularization = max(regularization, bend / _largest_ratio(epsilon, loss, weighting))
        rate = _tight_rate(epsilon, bend / regularization, loss, weighting)
        return Calibration(rate / radius, regularization)
    if analysis == "icml":
        check_choice("neighbouring", neighbouring, (REPLACE_ONE,))
        dimension = check_integer("dimension", dimension, low=1)
        return _icml(epsilon, loss.curvature * radius**2 / n_records, regularization, radius, dimension)
    return algorithm_2(
        epsilon=epsilon,
        n_records=n_records,
        regularization=regularization,
        radius=radius,
        curvature=loss.curvature,
        neighbouring=neighbouring,
    )


def default_regularization(n_records, dimension, epsilon, *, radius=1.0, largest_norm=10.0) -> float:
    """A penalty that needs no private data: pure noise moves the coefficients by largest_norm/R on average.

    Without a signal the minimiser is -b/(n lambda), and b has mean length 2 R d / epsilon at the noise rate of the
    tight analysis without weights or with balanced ones.

    Parameters
    ----------
    n_records, dimension : int
        n and d (coefficients, the intercept included), public.
    epsilon : float
        Budget.
    radius : float
        R, public bound on a record's norm.
    largest_norm : float
        Of the coefficients times R, above 0.

    >>> default_regularization(1000, 10, 1.0)
    0.002
    """
    n_records = check_integer("n_records", n_records, low=1)
    dimension = check_integer("dimension", dimension, low=1)
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
    radius = check_real("radius", radius, low=0, inclusive="neither")
    largest_norm = check_real("largest_norm", largest_norm, low=0, inclusive="neither")
    return 2 * dimension * radius**2 / (largest_norm * n_records * epsilon)


def _icml(epsilon, bend, regularization, radius, dimension) -> Calibration:
    """Algorithm 1 of the published version with lambda + Delta in the objective, as its proof has it (Equation 5)."""
    left = epsilon - 4 * dimension * bend / regularization
    if left > 0:
        return Calibration(left / (3 * radius), regularization)
    return Calibration(epsilon / (9 * radius), bend / math.expm1(epsilon / 4))


def _largest_ratio(epsilon, loss, weighting) -> float:
    """Largest T = R^2 / (n L) at which the tight analysis does not ask for more regularisation."""
    if loss.free_ratio > 0:
        return loss.free_ratio * epsilon / (weighting.mass * loss.steepness)
    # Without weights the share of epsilon at which L is the printed fallback's; the noise then has more than there.
    plain = weighting.gained == weighting.own
    return _ratio_of_share(weighting.own / (2 * weighting.mass) if plain else 0.5, epsilon, loss, weighting)


def _ratio_of_share(share, epsilon, loss, weighting) -> float:
    """Largest T at which the determinant's change costs at most that share of epsilon."""
    high = 1.0
    while _determinant_cost(high, loss, weighting) < share * epsilon:
        high *= 2
    return brentq(lambda ratio: _determinant_cost(ratio, loss, weighting) - share * epsilon, 0.0, high, xtol=1e-300)


def _determinant_cost(ratio, loss, weighting) -> float:
    """Bound on the log determinant's change: the changed record by its rank, all others by the trace norm."""
    others = (weighting.gained - weighting.own) * loss.curvature * ratio
    return loss.log_determinant(weighting.own * ratio) + others


def _joint_cost(g, ratio, loss, weighting) -> float:
    """Bound on the privacy loss that looks at a record's pull and bend together."""
    own = loss.own_cost(weighting.own * g, weighting.own * ratio)
    others = (weighting.gained - weighting.own) * loss.cost(g, ratio)
    return own + others + (weighting.mass - weighting.gained) * loss.steepness * g


def _tight_rate(epsilon, ratio, loss, weighting) -> float:
    """Largest g = noise_rate R that the theorems allow at T = `ratio`."""
    whole = epsilon / (weighting.mass * loss.steepness)
    separate = (epsilon - _determinant_cost(ratio, loss, weighting)) / (weighting.mass * loss.steepness)
    joint = -math.inf
    if _joint_cost(whole, ratio, loss, weighting) <= epsilon * (1 + 1e-14):
        joint = whole
    elif _joint_cost(0.0, ratio, loss, weighting) < epsilon:
        joint = brentq(lambda g: _joint_cost(g, ratio, loss, weighting) - epsilon, 0.0, whole, xtol=1e-15)
    best = max(separate, joint)
    if best <= 0:
        raise ValueError(
            f"epsilon must exceed what the Jacobian costs when regularization may not be raised, got {epsilon!r}; "
            "raise epsilon, regularization or n_records"
        )
    return best


def proven_epsilon(calibration, *, n_records, radius=1.0, loss=LOGISTIC, weighting=UNWEIGHTED) -> float:
    """The epsilon that the theorems of this package prove for given constants, wherever they come from.

    The smaller of two bounds: shift of the noise plus change of the determinant, and both together record by record.

    Parameters
    ----------
    calibration : Calibration
        Or anything with `noise_rate` and `total_regularization`.
    n_records, radius, loss, weighting
        As in `calibrate`; the relation is that of `weighting`.

    >>> constants = algorithm_2(epsilon=1.0, n_records=1000, regularization=1e-2)
    >>> round(proven_epsilon(constants, n_records=1000), 4)
    0.9506
    """
    g = calibration.noise_rate * radius
    ratio = radius**2 / (n_records * calibration.total_regularization)
    separate = weighting.mass * loss.steepness * g + _determinant_cost(ratio, loss, weighting)
    return min(separate, _joint_cost(g, ratio, loss, weighting))


class GaussianCalibration(NamedTuple):
    """Constants of objective perturbation with Gaussian noise.

    Attributes
    ----------
    noise_scale : float
        Standard deviation of each coordinate of the noise b.
    total_regularization : float
        lambda + Delta.
    """

    noise_scale: float
    total_regularization: float


def gaussian_objective_delta(epsilon, shift, jacobian=0.0) -> float:
    """Delta at `epsilon` of objective perturbation with Gaussian noise, whatever direction the noise moves in.

    When a label changes, every record moves b a little, in proportions that depend on the output: b moves by sum m_i
    p_i u_i with sum m_i <= mass, 0 <= p_i <= 1 and u_i fixed, in no fixed direction. Under the neighbour's noise, the
    loss is at most jacobian + sum (m_i/mass) shift (z_i)_+ with z_i standard normal (or shorter), and since (e^x -
    e^epsilon)_+ is convex, delta is at most its mean for a single z: e^{jacobian + shift^2/2} Phi(shift - z0) -
    e^epsilon Phi(-z0), z0 = (epsilon - jacobian)/shift. This is for margin losses. A softmax record pulls along the
    largest of K - 1 such z_i, and delta is at most K - 1 times as large.

    Parameters
    ----------
    epsilon : float
        > `jacobian`.
    shift : float
        mass steepness R / noise_scale, > 0.
    jacobian : float
        What the log determinant can change by, >= 0; 0 for logistic loss if epsilon >= mass T.

    >>> round(gaussian_objective_delta(1.0, 0.25), 7)
    5.1e-06
    """
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
    shift = check_real("shift", shift, low=0, inclusive="neither")
    jacobian = check_real("jacobian", jacobian, low=0)
    if epsilon <= jacobian:
        return 1.0
    cut = (epsilon - jacobian) / shift
    above = jacobian + shift**2 / 2 + log_ndtr(shift - cut)
    below = epsilon + log_ndtr(-cut)
    return float(min(1.0, math.exp(min(above, 700.0)) * -math.expm1(min(below - above, 0.0))))


def calibrate_gaussian(
    *,
    epsilon,
    delta,
    n_records,
    regularization,
    radius=1.0,
    loss=LOGISTIC,
    weighting=UNWEIGHTED,
    raise_regularization=True,
) -> GaussianCalibration:
    """Constants of (epsilon, delta)-DP objective perturbation with Gaussian noise; see `gaussian_objective_delta`.

    For logistic loss L is raised to mass R^2 / (n epsilon) and the Jacobian costs nothing: where the loss exceeds
    epsilon, some record's (z_i)_+ is so large that its best slope is 1, where it does not bend. Otherwise L is raised
    until the Jacobian costs at most epsilon/2.

    Parameters
    ----------
    epsilon, n_records, regularization, radius, loss, weighting, raise_regularization
        As in `calibrate`.
    delta : float
        In (0, 1).

    Raises
    ------
    ValueError
        As in `calibrate`.

    Source: Kifer, Smith and Thakurta 2012; Redberg, Koskela and Wang 2023 for a fixed direction.

    >>> calibrate_gaussian(epsilon=1.0, delta=1e-6, n_records=1000, regularization=1e-2).noise_scale.__round__(3)
    8.674
    """
    epsilon = check_real("epsilon", epsilon, low=0, high=_LARGEST_EPSILON, inclusive="high")
    delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
    n_records = check_integer("n_records", n_records, low=1)
    regularization = check_real("regularization", regularization, low=0, inclusive="neither")
    radius = check_real("radius", radius, low=0, inclusive="neither")
    bend = radius**2 / n_records
    if raise_regularization:
        free = loss.free_ratio >= 1
        limit = epsilon / weighting.mass if free else _ratio_of_share(0.5, epsilon, loss, weighting)
        regularization = max(regularization, bend / limit)
    jacobian = gaussian_jacobian_cost(epsilon, bend / regularization, loss, weighting)
    if jacobian >= epsilon:
        raise ValueError(
            f"epsilon must exceed what the Jacobian costs when regularization may not be raised, got {epsilon!r}; "
            "raise epsilon, regularization or n_records"
        )
    low, high = 1e-12 * epsilon, 1.0
    while gaussian_objective_delta(epsilon, high, jacobian) < delta:
        high *= 2
    # 0 is underflow, not privacy: such shifts are far below the one sought.
    shift = brentq(lambda a: gaussian_objective_delta(epsilon, a, jacobian) - delta, low, high, xtol=1e-14)
    return GaussianCalibration(weighting.mass * loss.steepness * radius / shift, regularization)


def gaussian_jacobian_cost(epsilon, ratio, loss=LOGISTIC, weighting=UNWEIGHTED) -> float:
    """What the determinant adds to the loss under Gaussian noise, T = `ratio`: nothing for logistic loss at small T.

    >>> gaussian_jacobian_cost(1.0, 0.5), gaussian_jacobian_cost(1.0, 0.6) > 0
    (0.0, True)
    """
    if loss.free_ratio >= 1 and ratio <= epsilon / weighting.mass * (1 + 1e-14):
        return 0.0
    return _determinant_cost(ratio, loss, weighting)


def privacy_loss(
    beta,
    data,
    neighbour,
    *,
    noise_rate,
    total_regularization,
    n_records=None,
    loss=LOGISTIC,
    weights=None,
    neighbour_weights=None,
) -> float:
    """Exact log density ratio, data over neighbour, of objective perturbation at the output `beta`.

    For fixed data the map from noise b to minimiser is a bijection: b = -sum w loss' - n L beta, with Jacobian A =
    n L I + sum w loss'' z z' (up to sign). Hence the ratio is noise_rate (||b'|| - ||b||) + log det A - log det A'.
    The mechanism is epsilon-DP exactly if this never exceeds epsilon on neighbouring data.

    Parameters
    ----------
    beta : array (d,)
        Output, in the coordinates of the signed rows.
    data, neighbour : array (n, d), (n', d)
        Signed rows (`signed_rows`) of two data sets.
    noise_rate : float
        As in `Calibration`.
    total_regularization : float or array (d,)
        As in `Calibration`, or one number a coordinate.
    n_records : int, optional
        The public n that divides the loss; may be left out for two data sets of the same size.
    weights, neighbour_weights : array (n,), (n',), optional
        Of the records, at least 0; a row that stands for m equal records has m times their weight. All 1 if left out.

    Raises
    ------
    ValueError
        Shapes that do not fit, or different sizes without `n_records`.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, proof of Theorem 2.

    >>> import numpy as np
    >>> round(privacy_loss([0.0], [[1.0]], [[-1.0]], noise_rate=0.5, total_regularization=1.0), 4)
    0.0
    """
    beta, data, neighbour = (np.asarray(a, dtype=float) for a in (beta, data, neighbour))
    same_size = n_records is not None or len(data) == len(neighbour)
    if (
        data.ndim != 2
        or neighbour.ndim != 2
        or not beta.shape == data.shape[1:] == neighbour.shape[1:]
        or not same_size
    ):
        raise ValueError(
            "beta, data, neighbour must have shapes (d,), (n, d), (n, d), with n_records (d,), (n, d), (n', d), "
            f"got {beta.shape}, {data.shape}, {neighbour.shape} and n_records={n_records!r}"
        )
    n = len(data) if n_records is None else check_integer("n_records", n_records, low=1)
    stiffness = n * np.asarray(total_regularization, dtype=float)
    here = _log_density(beta, data, noise_rate, stiffness, loss, weights)
    return here - _log_density(beta, neighbour, noise_rate, stiffness, loss, neighbour_weights)


def _log_density(beta, rows, noise_rate, stiffness, loss, weights) -> float:
    """Log density of the output up to a constant that the data do not enter; `stiffness` is n (lambda + Delta)."""
    n = len(rows)
    noise = n * gradient(beta, rows, loss, stiffness / n, np.zeros_like(beta), weights)
    jacobian = curvature_sum(beta, rows, loss, weights) + stiffness * np.eye(len(beta))
    return float(np.linalg.slogdet(jacobian)[1] - noise_rate * np.linalg.norm(noise))


def softmax_privacy_loss(
    C, data, neighbour, *, noise_rate, total_regularization, weights=None, neighbour_weights=None
) -> float:
    """Exact log density ratio, data over neighbour, of multinomial objective perturbation at the output C.

    Parameters
    ----------
    C : array (K - 1, d)
        Output in the coordinates of `zero_sum_basis`.
    data, neighbour : pairs (Z, codes)
        Rows (n, d) inside the ball and classes (n,) of two data sets of the same size.
    others
        As in `privacy_loss`.

    Raises
    ------
    ValueError
        Data sets of different size.

    >>> import numpy as np
    >>> one, other = ([[1.0]], [0]), ([[1.0]], [1])
    >>> round(softmax_privacy_loss([[1.0], [0.0]], one, other, noise_rate=0.5, total_regularization=1.0), 4)
    0.6753
    """
    if len(data[0]) != len(neighbour[0]):
        raise ValueError(f"data, neighbour must have as many rows, got {len(data[0])} and {len(neighbour[0])}")
    C = np.asarray(C, dtype=float)

    def log_density(pair, weights):
        Z, codes = np.asarray(pair[0], dtype=float), np.asarray(pair[1])
        stiffness = len(Z) * total_regularization
        noise = len(Z) * softmax_gradient(C, Z, codes, total_regularization, np.zeros_like(C), weights)
        jacobian = softmax_curvature_sum(C, Z, weights) + stiffness * np.eye(C.size)
        return float(np.linalg.slogdet(jacobian)[1] - noise_rate * np.linalg.norm(noise))

    return log_density(data, weights) - log_density(neighbour, neighbour_weights)
