"""Named data sets with public bounds.

`load` gives records in one shape on every machine, `available` says what there is, `outline` what is public about a
set (`helpers.data.cards` in words), and `split`, `subsample` and `unit_ball` prepare them; `into_ball` is the map
behind the last, for plain arrays. Bounds and category lists are written down, never computed from the records; every
file with a known SHA-256 is checked, and what has none is held against its published size and labels. Whether a bound
may be called public is stated in `bounds_basis` and left to the reader. `Domain` is a public schema of attributes,
`Schema` that of a file of the reader's own, and `load_groups` says who belongs to which group; pictures are in
`helpers.data.images`, which alone needs Pillow.
"""

from helpers.data.builtin import gaussian_mixture
from helpers.data.catalogue import available, is_available, load, outline
from helpers.data.dataset import Dataset, into_ball, split, subsample, unit_ball
from helpers.data.domain import Attribute, Domain
from helpers.data.files import ChecksumMismatch, DatasetUnavailable, UnexpectedData
from helpers.data.groups import load_groups
from helpers.data.public import ham10000_metadata
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
    "ham10000_metadata",
    "into_ball",
    "is_available",
    "load",
    "load_groups",
    "outline",
    "split",
    "subsample",
    "unit_ball",
]
