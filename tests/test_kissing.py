"""Kissing numbers: the table against certificates and configurations, and the certificates against exact arithmetic."""

import dataclasses
import itertools
import math
import os
import resource
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import eval_gegenbauer

from checks import arrangements
from checks import kissing_numbers as certificates
from checks.arrangements import kissing_upper
from checks.kissing_numbers import kissing_lower
from helpers.resampling import kissing

EXACT = {1: 2, 2: 6, 3: 12, 4: 24, 8: 240, 24: 196_560}
TABLED = range(1, 65)
SAMPLE = (2, 3, 4, 5, 8, 13, 17, 24, 25, 33, 48, 54, 64)


# --- the table ---


@pytest.mark.parametrize("dimension", TABLED)
def test_table_is_consistent(dimension):
    known = kissing.bounds(dimension)
    assert known.dimension == dimension
    assert known.lower <= known.upper
    assert known.exact == (dimension in EXACT)
    assert known.lower_source
    assert known.upper_source
    if known.exact:
        assert known.lower == EXACT[dimension]


def test_bounds_do_not_decrease_with_dimension():
    rows = [kissing.bounds(dimension) for dimension in range(1, 70)]
    assert np.all(np.diff([row.lower for row in rows]) >= 0)
    assert all(a.upper <= b.upper for a, b in itertools.pairwise(rows))


# The chapter on kissing numbers verifies them all; here a few of each size suffice from day to day.
DAILY = {*range(2, 9), 12, 16, 23, 24, 25, 32, 48, 64}


@pytest.mark.parametrize(
    "dimension", [pytest.param(d, marks=() if d in DAILY else pytest.mark.weekly) for d in range(2, 65)]
)
def test_certified_bound_against_table(dimension):
    """The certificate is never below a known configuration; the table is never above the certificate, or rounds it."""
    certificate = certificates.delsarte_bound(dimension)
    known = kissing.bounds(dimension)
    assert certificate.verify()
    at_most = math.floor(certificate.bound)
    assert known.lower <= at_most
    if "Delsarte" in known.upper_source:
        assert at_most <= known.upper <= 1.0003 * at_most
    else:
        assert 0.85 * at_most < known.upper <= at_most


def test_beyond_the_table():
    far = kissing.bounds(65)
    assert far.lower == 52_416_000
    assert far.upper == 3**65 - 1 > kissing.bounds(64).upper
    assert [3**d - 1 >= n for d, n in EXACT.items()] == [True] * 6


def test_printed_formulas_are_no_bounds():
    assert all(kissing_upper(d) < n for d, n in EXACT.items())
    assert all(kissing_lower(d) < n for d, n in EXACT.items())
    assert [round(kissing_upper(d), 2) for d in (2, 3, 4, 8)] == [1.75, 2.32, 3.07, 9.41]
    assert round(kissing_upper(24)) == 832
    assert round(kissing_upper(25), 1) == 1101.3


@pytest.mark.parametrize("dimension", [0, -1, 2.0, True, "3", None])
@pytest.mark.parametrize("function", [kissing.bounds])
def test_dimension_is_a_positive_integer(function, dimension):
    with pytest.raises(ValueError, match="dimension must be an integer"):
        function(dimension)


# --- Gegenbauer polynomials ---


@pytest.mark.parametrize("dimension", [3, 4, 8, 24])
def test_gegenbauer_against_scipy(dimension):
    t = np.linspace(-1, 1, 101)
    alpha = dimension / 2 - 1
    expected = [eval_gegenbauer(k, alpha, t) / eval_gegenbauer(k, alpha, 1.0) for k in range(13)]
    np.testing.assert_allclose(certificates.gegenbauer(dimension, 12, t), expected, atol=1e-12)


def test_gegenbauer_in_the_plane_is_chebyshev():
    angles = np.linspace(0, math.pi, 50)
    values = certificates.gegenbauer(2, 6, np.cos(angles))
    np.testing.assert_allclose(values, [np.cos(k * angles) for k in range(7)], atol=1e-12)


@given(st.integers(2, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_gegenbauer_is_positive_definite(dimension, degree, seed):
    """What the certificate rests on: P_k summed over all ordered pairs of unit vectors is not negative."""
    points = np.random.default_rng(seed).standard_normal((15, dimension))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    products = np.clip(points @ points.T, -1, 1)
    assert certificates.gegenbauer(dimension, degree, products.ravel())[degree].sum() > -1e-10


# --- certificates ---


@pytest.mark.parametrize(
    ("dimension", "low", "high"),
    [
        (2, 6, 6.01),
        (3, 13.158, 13.1584),
        (4, 25.558, 25.5585),
        (8, 240, 240.001),
        (24, 196_560, 196_561),
        (25, 278_363, 278_365),
    ],
)
def test_known_linear_programming_bounds(dimension, low, high):
    assert low <= certificates.delsarte_bound(dimension).bound <= high


@pytest.mark.parametrize(
    ("dimension", "published"),
    [(5, 46), (6, 82), (7, 140), (9, 380), (12, 1416), (16, 8313), (20, 37_974), (22, 86_537)],
)
def test_bounds_of_odlyzko_and_sloane(dimension, published):
    assert math.floor(certificates.delsarte_bound(dimension).bound) == published


def polynomial(certificate, t):
    """f(t) = 1 + sum_k c_k P_k(t) in floating point."""
    degree = len(certificate.coefficients)
    return 1 + np.array(certificate.coefficients) @ certificates.gegenbauer(certificate.dimension, degree, t)[1:]


@pytest.mark.parametrize("dimension", SAMPLE)
def test_certificate_on_a_finer_grid(dimension):
    certificate = certificates.delsarte_bound(dimension)
    coefficients = np.array(certificate.coefficients)
    assert coefficients.min() >= 0
    t = np.concatenate([np.linspace(-1, 0.5, 300_001), 1.5e-3 * np.geomspace(1e-6, 1, 100_000) - 1])
    rounding = 1e-14 * coefficients.sum()
    assert polynomial(certificate, t).max() <= certificate.eta + rounding


def exact_values(certificate, points):
    """1 + sum c_k P_k by the recurrence in exact rationals, at Fractions."""
    d = certificate.dimension
    for t in points:
        previous, current, total = Fraction(1), t, Fraction(1)
        for k, c in enumerate(map(Fraction, certificate.coefficients), start=1):
            total += c * current
            previous, current = current, ((2 * k + d - 2) * t * current - k * previous) / (k + d - 2)
        yield total


@pytest.mark.parametrize("dimension", [3, 8, 24, 48])
def test_certificate_in_exact_rationals(dimension):
    """The polynomial is at most eta at rational points, most of them around the maxima, by another formula."""
    certificate = certificates.delsarte_bound(dimension)
    t = np.linspace(-1, 0.5, 20_001)
    peaks = t[np.argsort(polynomial(certificate, t))[-40:]]
    points = [Fraction(x) for x in (*peaks, *t[::1000])]
    assert max(exact_values(certificate, points)) <= Fraction(certificate.eta)
    value = 1 + sum(map(Fraction, certificate.coefficients)) / (1 - Fraction(certificate.eta))
    assert value <= Fraction(certificate.bound) <= value * (1 + Fraction(1, 2**49))


@pytest.mark.parametrize("dimension", [3, 4, 8])
def test_certificate_by_the_grid_and_the_second_derivative(dimension):
    """The textbook argument agrees: grid maximum + h^2/8 sum c_k P_k''(1), on a coarse grid, bounds the maximum."""
    certificate = certificates.delsarte_bound(dimension)
    d, step = dimension, 1.5 / 1_000_000
    curvature = sum(
        c * (k - 1) * k * (k + d - 2) * (k + d - 1) / ((d - 1) * (d + 1))
        for k, c in enumerate(certificate.coefficients, start=1)
    )
    excess = step**2 / 8 * curvature
    largest = polynomial(certificate, np.linspace(-1, 0.5, 1_000_001)).max()
    assert excess < 1e-5
    assert certificate.eta - 1e-5 < largest <= certificate.eta
    assert largest + excess < certificate.eta + 1e-5


def test_second_derivatives_are_largest_at_one():
    """P_k'' in dimension d is P_k''(1) P_{k-2} in dimension d + 4: the formula and the bound, from polynomial fits."""
    for d in (2, 3, 8, 24):
        t = np.linspace(-1, 1, 31)
        values = certificates.gegenbauer(d, 8, t)
        for k in range(2, 9):
            second = np.polynomial.Polynomial.fit(t, values[k], k).deriv(2)
            at_one = (k - 1) * k * (k + d - 2) * (k + d - 1) / ((d - 1) * (d + 1))
            assert second(1.0) == pytest.approx(at_one, rel=1e-8)
            assert np.abs(second(t)).max() <= at_one * (1 + 1e-8)


def test_tampered_certificates_are_refused():
    certificate = certificates.delsarte_bound(8)
    coefficients = certificate.coefficients

    def changed(**fields):
        return dataclasses.replace(certificate, **fields).verify()

    assert changed()
    assert not changed(bound=240.0)
    assert not changed(bound=math.nextafter(certificate.bound, 0) - 1e-9)
    assert not changed(eta=0.0, bound=1e6)
    assert not changed(dimension=1)
    assert not changed(eta=1.0)
    assert not changed(coefficients=(-coefficients[0], *coefficients[1:]))
    assert not changed(coefficients=(coefficients[0] * 1.001, *coefficients[1:]), bound=1e6)
    assert not changed(coefficients=(), bound=1e6)
    assert not changed(dimension=9)


def test_a_polynomial_that_is_positive_between_grid_points_is_refused():
    """Shrinking eta below the maximum by a millionth of a millionth leaves a peak that no regular grid sees."""
    certificate = certificates.delsarte_bound(3)
    t = np.linspace(-1, 0.5, 300_001)
    top = float(polynomial(certificate, t).max())
    for eta, accepted in ((top + 1e-9, True), (top - 1e-12, False)):
        bound = float(certificates._delsarte_value(certificate.coefficients, eta)) * (1 + 1e-12)
        assert dataclasses.replace(certificate, eta=eta, bound=bound).verify() == accepted


# --- configurations ---


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 8])
def test_configurations_attain_the_kissing_number(dimension):
    points = arrangements.configuration(dimension)
    assert points.shape == (EXACT[dimension], dimension)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-14)
    check = certificates.verify_configuration(points)
    assert (check.n_points, check.dimension, check.exact) == (EXACT[dimension], dimension, False)
    assert check.valid
    expected = {1: 180, 3: math.degrees(math.acos(1 / math.sqrt(5)))}.get(dimension, 60)
    assert check.minimum_angle == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("dimension", [1, 4, 8])
def test_angles_in_exact_integers(dimension):
    vectors = arrangements.minimal_vectors(dimension).astype(int)
    gram = vectors @ vectors.T
    length = gram[0, 0]
    assert np.all(np.diag(gram) == length)
    assert np.all(2 * (gram - length * np.eye(len(gram), dtype=int)) <= length)
    check = certificates.verify_configuration(arrangements.minimal_vectors(dimension))
    assert check.exact
    assert check.valid
    assert check.largest_cosine == (-1 if dimension == 1 else 0.5)


def test_golay_code():
    words = arrangements._golay().astype(int)
    weights, counts = np.unique(words.sum(axis=1), return_counts=True)
    assert dict(zip(weights.tolist(), counts.tolist(), strict=True)) == {0: 1, 8: 759, 12: 2576, 16: 759, 24: 1}
    keys = {tuple(word) for word in words.tolist()}
    assert all(tuple(((words[i] + words[j]) % 2).tolist()) in keys for i, j in [(1, 2), (77, 3001), (4095, 5)])


def test_leech_lattice_vectors():
    vectors = arrangements.minimal_vectors(24)
    assert vectors.shape == (196_560, 24)
    assert vectors.dtype == np.int8
    assert np.all(np.square(vectors, dtype=int).sum(axis=1) == 32)
    assert len(np.unique(vectors, axis=0)) == 196_560
    # the group acts transitively, so every vector sees the others at these numbers of angles
    for i in (0, 1104, 150_000):
        products, counts = np.unique(vectors.astype(int) @ vectors[i].astype(int), return_counts=True)
        assert products.tolist() == [-32, -16, -8, 0, 8, 16, 32]
        assert counts.tolist() == [1, 4600, 47_104, 93_150, 47_104, 4600, 1]


@pytest.mark.skipif(os.environ.get("DPBOOK_SLOW") != "1", reason="1.9e10 pairs: set DPBOOK_SLOW=1")
def test_leech_lattice_all_pairs():
    start = time.process_time()
    check = certificates.verify_configuration(arrangements.minimal_vectors(24))
    assert check == certificates.ConfigurationCheck(196_560, 24, 0.5, True)
    assert check.valid
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes on Linux
    print(f"{time.process_time() - start:.0f} s of CPU, peak {peak / 1e6:.2f} GB")


def test_blocks_see_every_pair(monkeypatch):
    vectors = arrangements.minimal_vectors(8)
    monkeypatch.setattr(certificates, "_BLOCK", 7)
    assert certificates.verify_configuration(vectors).largest_cosine == 0.5
    for i, j in [(0, 239), (13, 14), (100, 33), (6, 7)]:
        doubled = vectors.copy()
        doubled[i] = doubled[j]
        check = certificates.verify_configuration(doubled)
        assert check.largest_cosine == 1
        assert not check.valid


def test_too_close_is_refused():
    hexagon = arrangements.configuration(2)
    angle = math.radians(59.999)
    assert not certificates.verify_configuration(np.vstack([hexagon[:1], [[math.cos(angle), math.sin(angle)]]])).valid
    assert not certificates.verify_configuration(np.array([[2, 1], [1, 2]])).valid  # cosine 4/5
    assert certificates.verify_configuration(5 * hexagon).valid  # lengths of floats do not matter


def test_bad_configurations():
    with pytest.raises(ValueError, match="dimension must be one of"):
        arrangements.configuration(5)
    with pytest.raises(ValueError, match="dimension must be one of"):
        arrangements.minimal_vectors(3)
    with pytest.raises(ValueError, match="one squared length"):
        certificates.verify_configuration([[1, 0], [0, 2]])
    with pytest.raises(ValueError, match="below 2"):
        certificates.verify_configuration([[4096, 0], [0, 4096]])


# --- no set of points exceeds the bounds ---


@given(st.integers(1, 8), st.integers(0, 2**32 - 1), st.sampled_from(["random", "seeded"]))
def test_greedy_sets_stay_below_the_bound(dimension, seed, start):
    """Unit vectors taken as long as they keep 60 degrees, from random ones or around part of a rotated optimum."""
    rng = np.random.default_rng(seed)
    candidates = rng.standard_normal((3000, dimension))
    if start == "seeded" and dimension in (2, 3, 4, 8):
        rotation = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
        optimum = arrangements.configuration(dimension) @ rotation
        candidates = np.vstack([optimum[rng.random(len(optimum)) < 0.9], candidates])
    candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
    chosen = []
    free = np.ones(len(candidates), dtype=bool)
    while free.any():
        chosen.append(candidates[free.argmax()])
        free &= candidates @ chosen[-1] <= 0.5 + 1e-9
    assert len(chosen) <= kissing.bounds(dimension).upper
    assert len(chosen) == 1 or certificates.verify_configuration(np.array(chosen)).valid
