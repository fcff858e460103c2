"""Named data sets with public bounds.

`load` gives records in one shape on every machine, `available` says what there is, and `split`, `subsample` and
`unit_ball` prepare them. Bounds and category lists are written down, never computed from the records, and every
file with a known SHA-256 is checked. Whether a bound may be called public is stated in `bounds_basis` and left to
the reader.
"""

from helpers.data.builtin import gaussian_mixture
from helpers.data.catalogue import available, load
from helpers.data.dataset import Dataset, split, subsample, unit_ball
from helpers.data.files import ChecksumMismatch, DatasetUnavailable
from helpers.data.public import ham10000_metadata

__all__ = [
    "ChecksumMismatch",
    "Dataset",
    "DatasetUnavailable",
    "available",
    "gaussian_mixture",
    "ham10000_metadata",
    "load",
    "split",
    "subsample",
    "unit_ball",
]
