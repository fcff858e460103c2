"""Kissing numbers: how many unit vectors in d dimensions can be pairwise at least 60 degrees apart.

`bounds` gives the exact number or the best known bounds with their sources. Every upper bound holds in its own finite
dimension, so that it may back a privacy guarantee; the exponents of the literature hold only asymptotically. What a
kissing number says about nearest neighbours is left to the resamplers, proofs and certificates to the evidence.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from helpers.validation import check_integer


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bound on the kissing number of one dimension.

    Attributes
    ----------
    dimension, lower, upper : int
    lower_source, upper_source : str
        Authors and year, or the argument.

    >>> Bounds(5, 40, 44, "the root lattice D5", "a semidefinite programme").exact
    False
    """

    dimension: int
    lower: int
    upper: int
    lower_source: str
    upper_source: str

    @property
    def exact(self) -> bool:
        """True if the kissing number is known."""
        return self.lower == self.upper


# `kissing.csv` has one row a dimension. Lower bounds are those of Cohn's table of kissing numbers as of August 2026.
# Upper bounds up to 24 are as in that table, which has semidefinite bounds beyond 24 too; ours are 3 to 18 per cent
# larger than those, and certified by `checks.kissing_numbers` (with 1e-4 added and rounded up to five digits, so that
# the last digits of another solver do not matter); a test computes them again.
with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as _file:
    _TABLE = [
        Bounds(int(row["dimension"]), int(row["lower"]), int(row["upper"]), row["lower_source"], row["upper_source"])
        for row in csv.DictReader(_file)
    ]


def bounds(dimension: int) -> Bounds:
    """Best known bounds on the kissing number, rigorous in this dimension.

    Beyond 48 the lower bound is that of a subspace. Beyond 64 the upper one is 3^d - 1, by comparing volumes: balls of
    radius 1/2 around the vectors and around the origin do not overlap, and lie in a ball of radius 3/2.

    Parameters
    ----------
    dimension : int
        At least 1.

    Raises
    ------
    ValueError
        `dimension` is not a positive integer.

    Source: Cohn, table of kissing number bounds (hdl.handle.net/1721.1/153312), and the works named in the result.

    >>> known = bounds(8)
    >>> known.lower, known.upper, known.exact
    (240, 240, True)
    """
    dimension = check_integer("dimension", dimension, low=1)
    if dimension <= len(_TABLE):
        return _TABLE[dimension - 1]
    last = _TABLE[-1]
    return Bounds(dimension, last.lower, 3**dimension - 1, last.lower_source, "comparison of volumes")
