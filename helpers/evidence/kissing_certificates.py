"""What the kissing numbers rest on: upper bounds with certificates, and the optimal arrangements themselves.

`delsarte_bound` computes an upper bound as a certificate that is checked in exact arithmetic, `configuration` and
`minimal_vectors` build arrangements that attain the known numbers, and `verify_configuration` measures all their
angles. The bounds themselves, for use in a guarantee, are in `helpers.resampling.kissing`.
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

from helpers.checks import check_choice, check_integer

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
    dimension = check_integer("dimension", dimension, low=2)
    degree = check_integer("degree", degree, low=1)
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
    dimension = check_integer("dimension", dimension, low=2, high=_LARGEST_CERTIFIED)
    degree = _DEGREE if degree is None else check_integer("degree", degree, low=1, high=60)
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

_AVAILABLE = (1, 2, 3, 4, 8, 24)
_INTEGER = (1, 4, 8, 24)
_GOLAY = 0b110001110101  # generator polynomial of the cyclic code of length 23
_BLOCK = 4096
_TOLERANCE = 1e-9  # on the cosine, for vectors that are not integers


def configuration(dimension) -> np.ndarray:
    """Optimal kissing configuration, as unit vectors.

    Two points, the hexagon, the icosahedron, the 24-cell, the roots of E8, the minimal vectors of the Leech lattice.

    Parameters
    ----------
    dimension : {1, 2, 3, 4, 8, 24}
        Where the kissing number is known.

    Returns
    -------
    ndarray (K, dimension) of float64
        38 MB in dimension 24.

    Raises
    ------
    ValueError
        Another dimension; the message lists the available ones.

    Source: Conway and Sloane, Sphere Packings, Lattices and Groups, chapters 1 and 4.

    >>> [configuration(d).shape[0] for d in (1, 2, 3, 4, 8)]
    [2, 6, 12, 24, 240]
    """
    dimension = check_choice("dimension", dimension, _AVAILABLE)
    if dimension == 2:
        angles = np.arange(6) * math.pi / 3
        return np.column_stack([np.cos(angles), np.sin(angles)])
    if dimension == 3:
        golden = (1 + math.sqrt(5)) / 2
        edge = [(0.0, s, t * golden) for s, t in itertools.product((1, -1), repeat=2)]
        return np.vstack([np.roll(edge, shift, axis=1) for shift in range(3)]) / math.hypot(1, golden)
    vectors = minimal_vectors(dimension).astype(float)
    return vectors / math.sqrt(vectors[0] @ vectors[0])


def minimal_vectors(dimension) -> np.ndarray:
    """Optimal kissing configuration as integer vectors of equal length, for exact checks.

    Parameters
    ----------
    dimension : {1, 4, 8, 24}

    Returns
    -------
    ndarray (K, dimension) of int8
        Of squared length 1, 2, 8 and 32; 5 MB in dimension 24.

    Raises
    ------
    ValueError
        Another dimension; the message lists the available ones.

    Source: Conway and Sloane, Sphere Packings, Lattices and Groups, chapter 4.

    >>> minimal_vectors(4)[0].tolist(), minimal_vectors(24).shape
    ([1, 1, 0, 0], (196560, 24))
    """
    dimension = check_choice("dimension", dimension, _INTEGER)
    if dimension == 1:
        return np.array([[1], [-1]], dtype=np.int8)
    if dimension == 4:
        return _two_entries(4, 1)
    if dimension == 8:
        return np.vstack([_two_entries(8, 2), _even_signs(8)])
    return _leech()


def _two_entries(dimension, size) -> np.ndarray:
    """All vectors with two entries +-size and zeros elsewhere."""
    pairs = list(itertools.combinations(range(dimension), 2))
    signs = list(itertools.product((size, -size), repeat=2))
    vectors = np.zeros((len(pairs), len(signs), dimension), dtype=np.int8)
    for row, pair in enumerate(pairs):
        vectors[row][:, pair] = signs
    return vectors.reshape(-1, dimension)


def _even_signs(length) -> np.ndarray:
    """All vectors of signs with an even number of minus signs."""
    signs = np.array(list(itertools.product((1, -1), repeat=length)), dtype=np.int8)
    return signs[signs.prod(axis=1) == 1]


def _golay() -> np.ndarray:
    """The 4096 words of the extended binary Golay code, (4096, 24) of 0 and 1."""
    generator = np.array([[(_GOLAY << shift) >> place & 1 for place in range(23)] for shift in range(12)])
    messages = np.array(list(itertools.product((0, 1), repeat=12)))
    words = messages @ generator % 2
    return np.column_stack([words, words.sum(axis=1) % 2]).astype(np.int8)


def _leech() -> np.ndarray:
    """Minimal vectors of the Leech lattice times sqrt 8: 1104 + 759 * 128 + 24 * 4096 of them."""
    words = _golay()
    octads = np.array([np.flatnonzero(word) for word in words if word.sum() == 8])
    twos = np.zeros((len(octads), 128, 24), dtype=np.int8)
    np.put_along_axis(twos, octads[:, None, :].repeat(128, axis=1), 2 * _even_signs(8)[None], axis=2)
    signs = 1 - 2 * words
    threes = signs[:, None, :] * (1 - 4 * np.eye(24, dtype=np.int8))  # one coordinate times -3
    return np.vstack([_two_entries(24, 4), twos.reshape(-1, 24), threes.reshape(-1, 24)]).astype(np.int8)


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
