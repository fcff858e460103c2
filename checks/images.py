"""HAM10000 as pictures of either size, for the chapters on lesions of the skin.

`load_images` gives the same pictures on every machine that has the files: bytes, with labels, the groups that must stay
together and the publisher's split. A model scales pixels by public constants of its own. Whether the record of a
privacy claim is an image or a lesion is left to the caller, and so is every use of age and sex, which belong to a
person. The small pictures as rows of numbers are `helpers.data.load("ham10000")`.
"""

import hashlib
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image

from helpers import paths
from helpers.data import files
from helpers.data.catalogue import HAM10000_PARTS, ham10000_folder, ham10000_metadata, load
from helpers.data.dataset import read_only
from helpers.validation import check_choice

SIDES = (28, 64)
MALIGNANT = ("akiec", "bcc", "mel")
"""Classes that have to be found. Melanoma and basal cell carcinoma are malignant; actinic keratosis and Bowen's disease
(akiec) are carcinoma in situ, which the data set's authors describe as precursors that may become invasive, and which
are treated (Tschandl, Rosendahl and Kittler 2018, description of the diagnoses)."""
ARCHIVE = {"ham10000/HAM10000_images_200x150.zip": "0a9697de01502a6ce48fec872050353f86b9a1abc6b14ac8cad363d6cea571a0"}


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset:
    """Square colour images with labels; all arrays are read-only.

    Attributes
    ----------
    name : str
    images : array of shape (n, side, side, 3), uint8
        Rows, columns, red-green-blue.
    y : array of shape (n,), int64
        Codes into `class_names`.
    class_names : tuple of str
    groups : array of shape (n,), int64
        Codes of the lesions: images of one lesion share a code.
    partition : array of shape (n,)
        The publisher's own split: "train", "val" or "test". It may share groups between its parts.
    """

    name: str
    images: NDArray[np.uint8]
    y: NDArray[np.int64]
    class_names: tuple[str, ...]
    groups: NDArray[np.int64]
    partition: NDArray[np.str_]

    def __post_init__(self) -> None:
        for field in ("images", "y", "groups", "partition"):
            object.__setattr__(self, field, read_only(getattr(self, field)))

    def __repr__(self) -> str:
        n, side, counts = *self.images.shape[:2], tuple(self.counts.tolist())
        return f"ImageDataset({self.name!r}, n={n}, side={side}, counts={counts})"

    @property
    def counts(self) -> NDArray[np.intp]:
        """Images per class, shape (number of classes,)."""
        return np.bincount(self.y, minlength=len(self.class_names))

    def rows(self, part: str) -> NDArray[np.intp]:
        """Positions of the images of one part of the publisher's split.

        Raises
        ------
        ValueError
            The split has no such part.
        """
        check_choice("part", part, tuple(np.unique(self.partition).tolist()))
        return np.flatnonzero(self.partition == part)

    def shared(self, part: str, other: str) -> NDArray[np.bool_]:
        """Which images of `part` (in its row order) show a group that `other` shows too.

        Raises
        ------
        ValueError
            The split has no such part.
        """
        return np.isin(self.groups[self.rows(part)], self.groups[self.rows(other)])


def load_images(*, side: int = 28) -> ImageDataset:
    """HAM10000 with DermaMNIST's split: 10,015 images of 7,470 lesions in seven classes.

    Files are searched where `helpers.data.load` searches. Images of 64 pixels are made once from the JPEG archive, in
    about 15 CPU seconds, and kept in the user's cache folder.

    Parameters
    ----------
    side : {28, 64}
        Pixels a side.

    Raises
    ------
    ValueError
        Another size.
    DatasetUnavailable
        No folder has the files.
    ChecksumMismatch, UnexpectedData
        A file is not the expected one.

    Source: Tschandl, Rosendahl and Kittler 2018; Yang et al. 2023 (split).
    """
    check_choice("side", side, SIDES)
    flat = load("ham10000")
    if side == 28:
        images = np.rint(255 * flat.X).astype(np.uint8).reshape(-1, side, side, 3)
    else:
        images = _resized_images(ham10000_metadata()["image_id"].to_numpy(str), side)
    partition = np.repeat(list(HAM10000_PARTS), list(HAM10000_PARTS.values()))
    return ImageDataset(flat.name, images, flat.y, flat.class_names, flat.groups, partition)


def _resized_images(ids: NDArray[np.str_], side: int) -> NDArray[np.uint8]:
    """From the cache, or made and put there. The name holds all that the pixels depend on."""
    ((relative, sha256),) = ARCHIVE.items()
    key = hashlib.sha256(f"{sha256} {PIL.__version__} {' '.join(ids)}".encode()).hexdigest()[:12]
    kept = paths.data_cache() / "ham10000" / f"images_{side}_{key}.npy"
    if kept.is_file():
        images = np.load(kept, allow_pickle=False)
    else:
        images = read_squares(ham10000_folder(ARCHIVE) / relative, ids, side)
        files.save_whole(kept, images)
    if images.shape != (len(ids), side, side, 3):
        raise files.UnexpectedData(f"{kept.name} must hold {len(ids)} images of {side} pixels, got {images.shape}")
    return images


def read_squares(archive: Path, ids: Sequence[str] | NDArray[np.str_], side: int) -> NDArray[np.uint8]:
    """The central squares of the archive's pictures `id.jpg`, resized by Pillow's bicubic filter: (n, side, side, 3).

    Raises
    ------
    UnexpectedData
        A picture is missing, or no picture.
    """
    images = np.empty((len(ids), side, side, 3), dtype=np.uint8)
    try:
        with zipfile.ZipFile(archive) as pictures:
            members = {Path(member).name: member for member in pictures.namelist()}
            for row, picture in enumerate(ids):
                with Image.open(io.BytesIO(pictures.read(members[f"{picture}.jpg"])), formats=["JPEG"]) as image:
                    short = min(image.size)
                    left, top = ((length - short) // 2 for length in image.size)
                    square = image.convert("RGB").crop((left, top, left + short, top + short))
                    images[row] = np.asarray(square.resize((side, side), Image.Resampling.BICUBIC))
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise files.UnexpectedData(f"{archive.name} cannot be read: {error}") from error
    return images
