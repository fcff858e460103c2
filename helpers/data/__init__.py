"""Named data sets with public bounds.

`load` gives records in one shape on every machine, `available` says what there is, and `split`, `subsample`,
`group_repeats` and `unit_ball` prepare them; `into_ball` is the map behind the last, for plain arrays. What is public
about a table is a `Schema`, a YAML file: beside a table of the reader's own, and for each named set in
`helpers.data.sets`. From it, or from a data set, methods that count make a `Domain`, which numbers the levels and bins
of its attributes. Bounds and category lists are written down, never computed from the records; every file with a known
SHA-256 is checked, and what has none is held against its published size and labels. Whether a bound may be called
public is stated in `bounds_basis` and left to the reader.
"""

from helpers.data.catalogue import available, gaussian_mixture, is_available, load
from helpers.data.dataset import Dataset, group_repeats, into_ball, split, subsample, unit_ball
from helpers.data.domain import Attribute, Domain
from helpers.data.files import ChecksumMismatch, DatasetUnavailable, UnexpectedData
from helpers.data.schema import Schema

__all__ = [
    "Attribute",
    "ChecksumMismatch",
    "Dataset",
    "DatasetUnavailable",
    "Domain",
    "Schema",
    "UnexpectedData",
    "available",
    "gaussian_mixture",
    "group_repeats",
    "into_ball",
    "is_available",
    "load",
    "split",
    "subsample",
    "unit_ball",
]
