"""What the kissing numbers rest on: upper bounds with certificates, the printed lower bound, and arrangements measured.

`delsarte_bound` computes an upper bound as a certificate that is checked in exact arithmetic, and
`verify_configuration` measures all angles of an arrangement (`checks.arrangements` builds the optimal ones). The bounds
themselves, for use in a guarantee, are in `helpers.resampling.kissing`.
"""

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog
from sklearn.utils import check_array

# --- the linear programming bound -----------------------------------------------------------------

_LARGEST_CERTIFIED = 64  # beyond it, double precision no longer finds good polynomials reliably
_DEGREE = 30
_GRID = 20_001
_FIRST_ETA = 2.0**-20
_ROUNDS = 20
_DEEPEST = 80  # halvings of [-1, 1/2], far below the width of any cell that decides


def gegenbauer(dimension, degree, t) -> np.ndarray:
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

    Raises
    ------
    ValueError
        `dimension` or `degree` out of range.

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

    def __call__(self, t) -> np.ndarray:
        """f(t) = 1 + sum_k c_k P_k(t) in floating point, shape of `t`."""
        return 1 + np.array(self.coefficients) @ gegenbauer(self.dimension, len(self.coefficients), t)[1:]

    @property
    def at_most(self) -> int:
        """The largest kissing number that the certificate allows."""
        return math.floor(_delsarte_value(self.coefficients, self.eta))

    def verify(self) -> bool:
        """Check the proof in exact integer arithmetic: c >= 0, f <= eta on all of [-1, 1/2], and the bound.

        On a cell a polynomial is an average of its Bernstein coefficients, hence at most the largest of them; cells of
        [-1, 1/2] are halved until that is enough. (A grid of step h proves that f is at most its grid maximum plus
        h^2/8 sum_k c_k P_k''(1): at a maximum between two points f' = 0 and the nearer point is at most h/2 away; and
        P_k'' is P_k''(1) times a Gegenbauer polynomial in four dimensions more, so |P_k''| <= P_k''(1). In high
        dimensions it would take millions of points.)

        >>> delsarte_bound(8).verify()
        True
        """
        if not all(map(math.isfinite, (self.bound, self.eta, *self.coefficients))):
            return False
        if not (self.dimension >= 2 and self.coefficients and min(self.coefficients) >= 0 and 0 <= self.eta < 1):
            return False
        if Fraction(self.bound) < _delsarte_value(self.coefficients, self.eta):
            return False
        return _never_positive(_exact_polynomial(self.dimension, self.coefficients, self.eta))


def delsarte_bound(dimension, degree=None) -> DelsarteCertificate:
    """Linear programming bound on the kissing number, computed here, with its certificate checked.

    Minimises f(1) = 1 + sum_k c_k over polynomials with f <= 0 on a grid. A grid programme is a *lower* estimate of
    its own optimum (f is positive between the points), so points are added where f is largest, and the result is
    inflated by an eta just above the largest value found, which `DelsarteCertificate.verify` has then to accept.

    Parameters
    ----------
    dimension : int
        From 2 to 64.
    degree : int, optional
        Of the polynomial, 1 to 60; 30 if not given, which is enough (more does not change the fifth digit).

    Raises
    ------
    ValueError
        Out of range, or no polynomial of this degree gives a bound (high dimensions need a degree of 20 or so).

    Source: Delsarte, Goethals and Seidel 1977; Odlyzko and Sloane 1979.

    >>> [round(delsarte_bound(d).bound, 2) for d in (3, 4, 8)]
    [13.16, 25.56, 240.0]
    """
    degree = _DEGREE if degree is None else degree
    return _delsarte_bound(dimension, degree)


@functools.cache
def _delsarte_bound(dimension, degree) -> DelsarteCertificate:
    c, violation = _minimise(dimension, degree)
    coefficients = tuple(c.tolist())
    eta = violation + _FIRST_ETA
    while eta < 1:
        certificate = DelsarteCertificate(dimension, coefficients, eta, _rounded_up(_delsarte_value(coefficients, eta)))
        if certificate.verify():
            return certificate
        eta *= 2
    raise ValueError(f"degree must be one that gives a bound in dimension {dimension}, got {degree}")


def _minimise(dimension, degree) -> tuple[np.ndarray, float]:
    """Coefficients c_1, ..., c_degree >= 0 of the linear programme, nearly feasible.

    The programme is refined in rounds: constraints are added where f is largest, and only the correction is solved
    for, with the residuals magnified, so that the solver's absolute tolerance (1e-7) does not limit the accuracy of
    coefficients that are 1e10 and more. Columns are scaled to the size of P_k on the part of the interval that
    matters, where P_k decays by many orders of magnitude with k.
    """
    angles = np.linspace(0, math.pi, _GRID)
    values = gegenbauer(dimension, degree, _inner_products(angles))[1:].T
    scale = 1 / np.abs(values[: _GRID // 2]).max(axis=0)
    rows = values[:: _GRID // 400]
    c = np.zeros(degree)
    violation = 1.0
    for _ in range(_ROUNDS):
        magnify = 1 / max(violation, 1e-6)
        correction = linprog(
            scale,
            A_ub=rows * scale,
            b_ub=(-1 - rows @ c) * magnify,
            bounds=np.column_stack([-c * magnify / scale, np.full(degree, np.inf)]),
            method="highs",
        )
        if correction.x is None:
            break
        c = np.maximum(c + correction.x * scale / magnify, 0)
        peaks = gegenbauer(dimension, degree, _inner_products(_peaks(angles, 1 + values @ c)))[1:].T
        violation = float((1 + peaks @ c).max())
        if violation < _FIRST_ETA / 4:
            break
        rows = np.vstack([rows, peaks])
    return c, max(violation, 0.0)


def _inner_products(angles) -> np.ndarray:
    """From [0, pi] to [1/2, -1], dense at both ends, where the polynomials oscillate most."""
    return 0.5 - 0.75 * (1 - np.cos(angles))


def _peaks(x, y) -> np.ndarray:
    """Abscissae of the local maxima of a function sampled on a regular grid, by parabolas; and both ends."""
    inside = 1 + np.flatnonzero((y[1:-1] >= y[:-2]) & (y[1:-1] >= y[2:]))
    left, middle, right = y[inside - 1], y[inside], y[inside + 1]
    bend = np.minimum(left - 2 * middle + right, -np.finfo(float).tiny)
    return np.concatenate([x[inside] + (x[1] - x[0]) * np.clip((left - right) / (2 * bend), -1, 1), x[[0, -1]]])


def _delsarte_value(coefficients, eta) -> Fraction:
    return 1 + sum(map(Fraction, coefficients)) / (1 - Fraction(eta))


def _rounded_up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _exact_polynomial(dimension, coefficients, eta) -> list[Fraction]:
    """Coefficients of 1, u, u^2, ... in f - eta, where t = -1 + 3u/2 and u in [0, 1]."""
    d = dimension
    polynomial = [1 - Fraction(eta)]
    previous, current = [Fraction(1)], [Fraction(-1), Fraction(3, 2)]  # P_0 and P_1 = t
    for k, c in enumerate(map(Fraction, coefficients), start=1):
        polynomial = _add(polynomial, [c * a for a in current])
        ratio = Fraction(2 * k + d - 2, k + d - 2)
        times_t = _add([-ratio * a for a in current], [Fraction(0), *(ratio * Fraction(3, 2) * a for a in current)])
        previous, current = current, _add(times_t, [Fraction(-k, k + d - 2) * a for a in previous])
    return polynomial


def _add(a, b) -> list[Fraction]:
    return [x + y for x, y in itertools.zip_longest(a, b, fillvalue=Fraction(0))]


def _never_positive(polynomial: list[Fraction]) -> bool:
    """Whether a polynomial, from its power coefficients, is at most 0 on [0, 1]; False also if that stays undecided."""
    degree = len(polynomial) - 1
    bernstein = [
        sum(Fraction(math.comb(i, j), math.comb(degree, j)) * polynomial[j] for j in range(i + 1))
        for i in range(degree + 1)
    ]
    common = math.lcm(*(b.denominator for b in bernstein))
    cells = [(0, [int(b * common) for b in bernstein])]
    while cells:
        depth, cell = cells.pop()
        if max(cell[0], cell[-1]) > 0 or depth > _DEEPEST:  # first and last coefficients are values at the ends
            return False
        if max(cell) > 0:
            cells += [(depth + 1, half) for half in _halves(cell)]
    return True


def _halves(bernstein: list[int]) -> tuple[list[int], list[int]]:
    """Bernstein coefficients on the two halves of a cell, times a power of two (de Casteljau without division)."""
    degree = len(bernstein) - 1
    left, right = [], []
    row = bernstein
    for spare in range(degree, -1, -1):
        left.append(row[0] << spare)
        right.append(row[-1] << spare)
        row = [a + b for a, b in itertools.pairwise(row)]
    return left, right[::-1]


# --- configurations -------------------------------------------------------------------------------

_BLOCK = 4096
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


def verify_configuration(points) -> ConfigurationCheck:
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
        Fewer than two points, a point at the origin, or integer vectors of different lengths or too long for exact
        arithmetic.

    >>> from checks.arrangements import minimal_vectors
    >>> check = verify_configuration(minimal_vectors(8))
    >>> check.largest_cosine, check.exact, check.valid
    (0.5, True, True)
    """
    points = check_array(points, dtype=None, ensure_min_samples=2)
    exact = np.issubdtype(points.dtype, np.integer)
    squares = np.square(points, dtype=np.float64).sum(axis=1)
    if squares.min() == 0:
        raise ValueError("points must be different from the origin, got a row of zeros")
    if exact:
        if squares.min() != squares.max() or squares[0] >= 2**24:
            raise ValueError(
                "integer points must have one squared length, below 2^24, "
                f"got {squares.min():.0f} to {squares.max():.0f}"
            )
        points, length = points.astype(np.float32), squares[0]
    else:
        points, length = points / np.sqrt(squares)[:, None], 1.0
    largest = max(_largest_products(points))
    return ConfigurationCheck(*points.shape, float(largest / length), exact)


def _largest_products(points) -> Iterator[float]:
    """Largest inner product of two distinct rows, block by block."""
    starts = range(0, len(points), _BLOCK)
    for i in starts:
        for j in range(i, len(points), _BLOCK):
            products = points[i : i + _BLOCK] @ points[j : j + _BLOCK].T
            if i == j:
                np.fill_diagonal(products, -np.inf)
            yield products.max()


def kissing_lower(dimension) -> float:
    """2^(0.2075 d), the paper's asymptotic lower bound without its o(1): true where K(d) is known, and far below it.

    Raises
    ------
    ValueError
        `dimension` is not a positive integer.

    Source: Rosenblatt et al. 2025, proof of Lemma 9; the exponent is Wyner's (1965).

    >>> from helpers.resampling import kissing
    >>> round(kissing_lower(24), 1), kissing.bounds(24).lower
    (31.6, 196560)
    """
    return 2 ** (0.2075 * dimension)
