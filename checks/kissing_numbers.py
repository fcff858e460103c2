"""What the kissing numbers rest on: upper bounds with certificates, the printed lower bound, and arrangements measured.

`delsarte_bound` computes an upper bound as a certificate that is checked in exact arithmetic, and
`verify_configuration` measures all angles of an arrangement (`checks.arrangements` builds the optimal ones). The bounds
themselves, for use in a guarantee, are in `helpers.resampling.kissing`.
"""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from sympy import QQ, Poly, Rational, Symbol

# --- the linear programming bound -----------------------------------------------------------------

_DEGREE = 30  # of the polynomials: more does not change the fifth digit of a bound
_GRID = 20_001
_FIRST_ETA = 2.0**-20
_ROUNDS = 20


def gegenbauer(dimension: int, degree: int, t: ArrayLike) -> NDArray[np.float64]:
    """Gegenbauer polynomials P_0, ..., P_degree of the sphere in R^dimension, with P_k(1) = 1.

    Parameters
    ----------
    dimension : int
        At least 2.
    degree : int
        At least 1.
    t : array (n,)
        Inner products, in [-1, 1].

    Returns
    -------
    ndarray (degree + 1, n)

    >>> gegenbauer(3, 2, np.array([0.5])).ravel().tolist()
    [1.0, 0.5, -0.125]
    """
    t = np.asarray(t, dtype=float)
    values = [np.ones_like(t), t]
    for k in range(1, degree):
        values.append(((2 * k + dimension - 2) * t * values[k] - k * values[k - 1]) / (k + dimension - 2))
    return np.array(values)


@dataclass(frozen=True)
class DelsarteCertificate:
    """A polynomial that proves an upper bound on the kissing number, and the check of that proof.

    With f = 1 + sum_k c_k P_k, all c_k >= 0 and f <= eta < 1 on [-1, 1/2], the polynomial g = f - eta is non-positive
    there. Sum g(<x, y>) over all ordered pairs of a kissing configuration of size K: the K diagonal terms are g(1)
    and the others at most 0, and each P_k sums to something non-negative (it is a positive definite function on the
    sphere), so (1 - eta) K^2 <= K g(1), that is K <= 1 + sum_k c_k / (1 - eta).

    Attributes
    ----------
    dimension : int
    coefficients : tuple of float
        c_1, c_2, ...; floating-point numbers, taken as the exact dyadic rationals that they are.
    eta : float
        Proved maximum of f on [-1, 1/2].
    bound : float
        The bound, rounded up.

    Source: Delsarte, Goethals and Seidel 1977, Theorem 4.3.

    >>> DelsarteCertificate(2, (2.0, 2.0, 1.0), 0.0, 6.0).verify()
    False
    """

    dimension: int
    coefficients: tuple[float, ...]
    eta: float
    bound: float

    def verify(self) -> bool:
        """Check the proof in exact rational arithmetic: c >= 0, f < eta on all of [-1, 1/2], and the bound.

        A Sturm sequence counts the zeros of f - eta there: with none, and below 0 at one end, it is below 0 everywhere.

        >>> delsarte_bound(8).verify()
        True
        """
        if not (self.dimension >= 2 and self.coefficients and min(self.coefficients) >= 0 and 0 <= self.eta < 1):
            return False
        if Fraction(self.bound) < _delsarte_value(self.coefficients, self.eta):
            return False
        d, t = self.dimension, Poly(Symbol("t"), domain=QQ)
        previous, current, excess = t.one, t, t.one - Rational(self.eta)
        for k, c in enumerate(self.coefficients, start=1):
            excess += Rational(c) * current
            previous, current = current, ((2 * k + d - 2) * t * current - k * previous) * Rational(1, k + d - 2)
        return bool(excess.eval(-1) < 0) and excess.count_roots(-1, Rational(1, 2)) == 0


@functools.cache
def delsarte_bound(dimension: int) -> DelsarteCertificate:
    """Linear programming bound on the kissing number, computed here, with its certificate checked.

    Minimises f(1) = 1 + sum_k c_k over polynomials with f <= 0 on a grid. A grid programme is a *lower* estimate of
    its own optimum (f is positive between the points), so points are added where f is largest, and the result is
    inflated by an eta just above the largest value found, which `DelsarteCertificate.verify` has then to accept.

    Parameters
    ----------
    dimension : int
        From 2 to 64: beyond it, double precision no longer finds good polynomials reliably.

    Raises
    ------
    ValueError
        No polynomial was found that gives a bound.

    Source: Delsarte, Goethals and Seidel 1977; Odlyzko and Sloane 1979.

    >>> [round(delsarte_bound(d).bound, 2) for d in (3, 4, 8)]
    [13.16, 25.56, 240.0]
    """
    c, violation = _minimise(dimension)
    coefficients = tuple(c.tolist())
    eta = violation + _FIRST_ETA
    while eta < 1:
        bound = math.nextafter(float(_delsarte_value(coefficients, eta)), math.inf)
        certificate = DelsarteCertificate(dimension, coefficients, eta, bound)
        if certificate.verify():
            return certificate
        eta *= 2
    raise ValueError(f"dimension must be one for which a polynomial of degree {_DEGREE} gives a bound, got {dimension}")


def _minimise(dimension) -> tuple[NDArray[np.float64], float]:
    """Coefficients c_1, ..., c_degree >= 0 of the linear programme, nearly feasible.

    The programme is refined in rounds: constraints are added where f is largest, and only the correction is solved
    for, with the residuals magnified, so that the solver's absolute tolerance (1e-7) does not limit the accuracy of
    coefficients that are 1e10 and more. Columns are scaled to the size of P_k on the part of the interval that
    matters, where P_k decays by many orders of magnitude with k.
    """
    angles = np.linspace(0, math.pi, _GRID)
    values = gegenbauer(dimension, _DEGREE, _inner_products(angles))[1:].T
    scale = 1 / np.abs(values[: _GRID // 2]).max(axis=0)
    rows = values[:: _GRID // 400]
    c = np.zeros(_DEGREE)
    violation = 1.0
    for _ in range(_ROUNDS):
        magnify = 1 / max(violation, 1e-6)
        correction = linprog(
            scale,
            A_ub=rows * scale,
            b_ub=(-1 - rows @ c) * magnify,
            bounds=np.column_stack([-c * magnify / scale, np.full(_DEGREE, np.inf)]),
            method="highs",
        )
        if correction.x is None:
            break
        c = np.maximum(c + correction.x * scale / magnify, 0)
        peaks = gegenbauer(dimension, _DEGREE, _inner_products(_peaks(angles, 1 + values @ c)))[1:].T
        violation = float((1 + peaks @ c).max())
        if violation < _FIRST_ETA / 4:
            break
        rows = np.vstack([rows, peaks])
    return c, max(violation, 0.0)


def _inner_products(angles) -> NDArray[np.float64]:
    """From [0, pi] to [1/2, -1], dense at both ends, where the polynomials oscillate most."""
    return 0.5 - 0.75 * (1 - np.cos(angles))


def _peaks(x, y) -> NDArray[np.float64]:
    """Abscissae of the local maxima of a function sampled on a regular grid, by parabolas; and both ends."""
    inside = 1 + np.flatnonzero((y[1:-1] >= y[:-2]) & (y[1:-1] >= y[2:]))
    left, middle, right = y[inside - 1], y[inside], y[inside + 1]
    bend = np.minimum(left - 2 * middle + right, -np.finfo(float).tiny)
    return np.concatenate([x[inside] + (x[1] - x[0]) * np.clip((left - right) / (2 * bend), -1, 1), x[[0, -1]]])


def _delsarte_value(coefficients, eta) -> Fraction:
    return 1 + sum(map(Fraction, coefficients)) / (1 - Fraction(eta))


# --- configurations -------------------------------------------------------------------------------

_BLOCK = 512
_TOLERANCE = 1e-9  # on the cosine, for vectors that are not integers


@dataclass(frozen=True)
class ConfigurationCheck:
    """Result of `verify_configuration`.

    Attributes
    ----------
    n_points, dimension : int
    largest_cosine : float
        Over all pairs of distinct rows.
    exact : bool
        True if the inner products are exact integers; else the cosine has a rounding error, far below 1e-9.

    >>> ConfigurationCheck(6, 2, 0.5, True).valid
    True
    """

    n_points: int
    dimension: int
    largest_cosine: float
    exact: bool

    @property
    def minimum_angle(self) -> float:
        """Smallest angle between two points, in degrees."""
        return math.degrees(math.acos(max(-1.0, min(1.0, self.largest_cosine))))

    @property
    def valid(self) -> bool:
        """Whether all angles are at least 60 degrees (up to 1e-9 in the cosine, unless `exact`)."""
        return self.largest_cosine <= 0.5 + (0 if self.exact else _TOLERANCE)


def verify_configuration(points: ArrayLike) -> ConfigurationCheck:
    """All pairwise angles of a set of points seen from the origin.

    Block by block, so that memory stays far below 2 GB for the 1.9e10 pairs in dimension 24. Integer vectors of equal
    length are compared exactly: their inner products are integers that float32 holds without rounding.

    Parameters
    ----------
    points : array (K, d)
        K >= 2 points, none of them the origin. Integers are checked exactly; others are scaled to unit length.

    Raises
    ------
    ValueError
        Integer vectors of different lengths, or too long for exact arithmetic.

    >>> from checks.arrangements import minimal_vectors
    >>> check = verify_configuration(minimal_vectors(8))
    >>> check.largest_cosine, check.exact, check.valid
    (0.5, True, True)
    """
    rows, length = np.asarray(points), 1.0
    exact = bool(np.issubdtype(rows.dtype, np.integer))
    squares = np.square(rows, dtype=np.float64).sum(axis=1)
    if exact:
        if squares.min() != squares.max() or squares[0] >= 2**24:
            raise ValueError("integer points must have one squared length, below 2^24, got others")
        rows, length = rows.astype(np.float32), float(squares[0])
    else:
        rows = rows / np.sqrt(squares)[:, None]
    largest = -math.inf
    for start in range(0, len(rows), _BLOCK):
        products = rows[start : start + _BLOCK] @ rows[start:].T
        np.fill_diagonal(products, -np.inf)  # a point with itself
        largest = max(largest, float(products.max()))
    return ConfigurationCheck(rows.shape[0], rows.shape[1], largest / length, exact)


def kissing_lower(dimension: int) -> float:
    """2^(0.2075 d), the paper's asymptotic lower bound without its o(1): true where K(d) is known, and far below it.

    Source: Rosenblatt et al. 2025, proof of Lemma 9; the exponent is Wyner's (1965).

    >>> from helpers.resampling import kissing
    >>> round(kissing_lower(24), 1), kissing.bounds(24).lower
    (31.6, 196560)
    """
    return 2 ** (0.2075 * dimension)
