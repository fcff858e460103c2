"""Optimal kissing arrangements, and the exponent that is printed as a bound on kissing numbers.

The bounds themselves, for use in a guarantee, are in `helpers.resampling.kissing`.
"""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from helpers.validation import check_choice

_GOLAY = 0b110001110101  # generator polynomial of the cyclic code of length 23


def configuration(dimension: int) -> NDArray[np.float64]:
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
    if dimension == 2:
        angles = np.arange(6) * math.pi / 3
        return np.column_stack([np.cos(angles), np.sin(angles)])
    if dimension == 3:
        golden = (1 + math.sqrt(5)) / 2
        edge = [(0.0, s, t * golden) for s, t in itertools.product((1, -1), repeat=2)]
        return np.vstack([np.roll(edge, shift, axis=1) for shift in range(3)]) / math.hypot(1, golden)
    vectors = minimal_vectors(dimension).astype(float)
    return vectors / math.sqrt(vectors[0] @ vectors[0])


def minimal_vectors(dimension: int) -> NDArray[np.int8]:
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
    dimension = check_choice("dimension", dimension, (1, 4, 8, 24))
    if dimension == 1:
        return np.array([[1], [-1]], dtype=np.int8)
    if dimension == 4:
        return _two_entries(4, 1)
    if dimension == 8:
        return np.vstack([_two_entries(8, 2), _even_signs(8)])
    return _leech()


def _two_entries(dimension, size) -> NDArray[np.int8]:
    """All vectors with two entries +-size and zeros elsewhere."""
    pairs = list(itertools.combinations(range(dimension), 2))
    signs = list(itertools.product((size, -size), repeat=2))
    vectors = np.zeros((len(pairs), len(signs), dimension), dtype=np.int8)
    for row, pair in enumerate(pairs):
        vectors[row][:, pair] = signs
    return vectors.reshape(-1, dimension)


def _even_signs(length) -> NDArray[np.int8]:
    """All vectors of signs with an even number of minus signs."""
    signs = np.array(list(itertools.product((1, -1), repeat=length)), dtype=np.int8)
    return signs[signs.prod(axis=1) == 1]


def _golay() -> NDArray[np.int8]:
    """The 4096 words of the extended binary Golay code, (4096, 24) of 0 and 1."""
    generator = np.array([[(_GOLAY << shift) >> place & 1 for place in range(23)] for shift in range(12)])
    messages = np.array(list(itertools.product((0, 1), repeat=12)))
    words = messages @ generator % 2
    return np.column_stack([words, words.sum(axis=1) % 2]).astype(np.int8)


def _leech() -> NDArray[np.int8]:
    """Minimal vectors of the Leech lattice times sqrt 8: 1104 + 759 * 128 + 24 * 4096 of them."""
    words = _golay()
    octads = np.array([np.flatnonzero(word) for word in words if word.sum() == 8])
    twos = np.zeros((len(octads), 128, 24), dtype=np.int8)
    np.put_along_axis(twos, octads[:, None, :].repeat(128, axis=1), 2 * _even_signs(8)[None], axis=2)
    signs = 1 - 2 * words
    threes = signs[:, None, :] * (1 - 4 * np.eye(24, dtype=np.int8))  # one coordinate times -3
    return np.vstack([_two_entries(24, 4), twos.reshape(-1, 24), threes.reshape(-1, 24)]).astype(np.int8)


def kissing_upper(dimension: int) -> float:
    """2^(0.4042 d), which the paper prints as a bound on K(d). Never use it as one.

    The exponent of Kabatiansky and Levenshtein (1978), 0.4041... + o(1), says nothing about a given dimension: the
    expression is below the kissing number in every dimension where that is known.

    Source: Rosenblatt et al. 2025, Theorem 3 and the proof of Lemma 9.

    >>> from helpers.resampling import kissing
    >>> round(kissing_upper(2), 2), kissing.bounds(2).lower
    (1.75, 6)
    """
    return 2 ** (0.4042 * dimension)
