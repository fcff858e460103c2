"""Kissing numbers: how many unit vectors in d dimensions can be pairwise at least 60 degrees apart.

`bounds` gives the exact number or the best known bounds with their sources. Every upper bound holds in its own finite
dimension, so that it may back a privacy guarantee; the exponents of the literature hold only asymptotically. What a
kissing number says about nearest neighbours is left to the resamplers, proofs and certificates to the evidence.
"""

from dataclasses import dataclass

from helpers.checks import check_integer

_KZ = "Korkine and Zolotareff 1873"
_LEECH = "Leech 1967"
_LS = "Leech and Sloane 1971"
_GANZHINOV = "Ganzhinov 2022"
_COHN_LI = "Cohn and Li 2024"
_MA = "Ma et al. 2025"
_ERS = "Edel, Rains and Sloane 1998, with Brouwer's table of codes"
_MV = "Mittelmann and Vallentin 2010"
_MO = "Machado and de Oliveira Filho 2018"
_LL = "Leijenhorst and de Laat 2024"
_OSL = "Odlyzko and Sloane 1979; Levenshtein 1979"
_HERE = "Delsarte bound, computed here 2026"
_SUBSPACE = f"{_LS}, in a subspace of dimension 48"

# dimension: (lower bound, its source, upper bound, its source). Lower bounds are those of Cohn's table of kissing
# numbers as of August 2026. Upper bounds up to 24 are as in that table, which has semidefinite bounds beyond 24 too;
# ours are 3 to 18 per cent larger than those, and certified by `checks.kissing_numbers` (with 1e-4 added
# and rounded up to five digits, so that the last digits of another solver do not matter); a test computes them again.
_TABLE = {
    1: (2, "two directions", 2, "two directions"),
    2: (6, "the hexagon", 6, "six angles of 60 degrees fill the circle"),
    3: (12, "the icosahedron", 12, "Schuette and van der Waerden 1953"),
    4: (24, "the 24-cell", 24, "Musin 2008"),
    5: (40, _KZ, 44, _MV),
    6: (72, _KZ, 77, "de Laat, Leijenhorst and de Muinck Keizer 2024"),
    7: (126, _KZ, 134, _MV),
    8: (240, "roots of E8", 240, _OSL),
    9: (306, _LS, 363, _MO),
    10: (510, _GANZHINOV, 553, _MO),
    11: (604, "Bianchi, Kwon, Pappu and Zou 2026", 868, _LL),
    12: (841, "Takhanov, Assylbekov and Yun 2026", 1355, _LL),
    13: (1154, "Zinoviev and Ericson 1999", 2064, _LL),
    14: (1932, _GANZHINOV, 3174, _LL),
    15: (2564, _LS, 4853, _LL),
    16: (4320, "Barnes and Wall 1959", 7320, _LL),
    17: (5730, _COHN_LI, 10978, _LL),
    18: (7654, _COHN_LI, 16406, _LL),
    19: (11948, "Ho 2026", 24417, _LL),
    20: (19448, _COHN_LI, 36195, _LL),
    21: (29768, _COHN_LI, 53524, _LL),
    22: (49896, _LEECH, 80810, _LL),
    23: (93150, _LEECH, 122351, _LL),
    24: (196560, _LEECH, 196560, _OSL),
    25: (197056, _MA, 278400, _HERE),
    26: (198550, _MA, 397020, _HERE),
    27: (200044, _MA, 560750, _HERE),
    28: (204520, _MA, 790790, _HERE),
    29: (209496, _MA, 1131000, _HERE),
    30: (220440, _MA, 1654100, _HERE),
    31: (238350, _MA, 2438900, _HERE),
    32: (345408, _ERS, 3522900, _HERE),
    33: (360640, _ERS, 5218800, _HERE),
    34: (380868, _ERS, 7520300, _HERE),
    35: (409548, _ERS, 10512000, _HERE),
    36: (484568, _ERS, 14715000, _HERE),
    37: (494312, _ERS, 20310000, _HERE),
    38: (566652, _ERS, 28372000, _HERE),
    39: (755988, _ERS, 40384000, _HERE),
    40: (1064368, _ERS, 58584000, _HERE),
    41: (1170384, _ERS, 83067000, _HERE),
    42: (1250676, _ERS, 118540000, _HERE),
    43: (2060399, "Sun and Wang 2026", 173160000, _HERE),
    44: (2948552, "Edel, Rains and Sloane 1998", 245810000, _HERE),
    45: (3047160, _ERS, 341690000, _HERE),
    46: (5318060, _ERS, 473200000, _HERE),
    47: (9741412, _ERS, 646590000, _HERE),
    48: (52416000, _LS, 895590000, _HERE),
    49: (52416000, _SUBSPACE, 1266200000, _HERE),
    50: (52416000, _SUBSPACE, 1802100000, _HERE),
    51: (52416000, _SUBSPACE, 2509000000, _HERE),
    52: (52416000, _SUBSPACE, 3527000000, _HERE),
    53: (52416000, _SUBSPACE, 5038500000, _HERE),
    54: (52416000, _SUBSPACE, 7209800000, _HERE),
    55: (52416000, _SUBSPACE, 9995100000, _HERE),
    56: (52416000, _SUBSPACE, 13892000000, _HERE),
    57: (52416000, _SUBSPACE, 18895000000, _HERE),
    58: (52416000, _SUBSPACE, 25906000000, _HERE),
    59: (52416000, _SUBSPACE, 36231000000, _HERE),
    60: (52416000, _SUBSPACE, 51009000000, _HERE),
    61: (52416000, _SUBSPACE, 70241000000, _HERE),
    62: (52416000, _SUBSPACE, 96971000000, _HERE),
    63: (52416000, _SUBSPACE, 135780000000, _HERE),
    64: (52416000, _SUBSPACE, 192290000000, _HERE),
}
_LARGEST_TABLED = max(_TABLE)


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
    if dimension in _TABLE:
        lower, lower_source, upper, upper_source = _TABLE[dimension]
        return Bounds(dimension, lower, upper, lower_source, upper_source)
    lower, lower_source, _, _ = _TABLE[_LARGEST_TABLED]
    return Bounds(dimension, lower, 3**dimension - 1, lower_source, "comparison of volumes")
