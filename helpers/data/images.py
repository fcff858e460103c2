"""HAM10000 as pictures, and as rows of numbers like every other data set.

`load_images` gives the same pictures on every machine that has the files: bytes, with labels, the groups that must stay
together and the publisher's split. A model scales pixels by public constants of its own. Whether the record of a
privacy claim is an image or a lesion is left to the caller, and so is every use of age and sex, which belong to a
person.
"""

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import PIL
from numpy.typing import NDArray
from PIL import Image

from helpers import paths
from helpers.checks import check_choice
from helpers.data import files
from helpers.data.dataset import Dataset, read_only
from helpers.data.sets import card

SIDES = (28, 64)
MALIGNANT = ("akiec", "bcc", "mel")
"""Classes that have to be found. Melanoma and basal cell carcinoma are malignant; actinic keratosis and Bowen's disease
(akiec) are carcinoma in situ, which the data set's authors describe as precursors that may become invasive, and which
are treated (Tschandl, Rosendahl and Kittler 2018, description of the diagnoses)."""
HAM10000_ARCHIVE = {
    "ham10000/HAM10000_images_200x150.zip": "0a9697de01502a6ce48fec872050353f86b9a1abc6b14ac8cad363d6cea571a0"
}
_PARTS = {"train": 7007, "val": 1003, "test": 2005}  # of the publisher's split, in the order of the rows
_MEMBER_BYTES = 2**20  # the largest of the 10,015 JPEG files has 20 kB


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


def load_images(name: str, *, side: int = 28) -> ImageDataset:
    """Load an image data set by name.

    Files are searched where `load` searches. Images of 64 pixels are made once from the JPEG archive, in about 15 CPU
    seconds, and kept in the user's cache folder.

    Parameters
    ----------
    name : {"ham10000"}
        HAM10000 with DermaMNIST's split: 10,015 images of 7,470 lesions in seven classes.
    side : {28, 64}
        Pixels a side.

    Raises
    ------
    ValueError
        Unknown name or another size.
    DatasetUnavailable
        No folder has the files.
    ChecksumMismatch, UnexpectedData
        A file is not the expected one.

    Source: Tschandl, Rosendahl and Kittler 2018; Yang et al. 2023 (split).
    """
    check_choice("name", name, ("ham10000",))
    check_choice("side", side, SIDES)
    known, told = card(name).schema, ham10000_metadata()
    images = _small_images() if side == 28 else _resized_images(told["image_id"].to_numpy(str), side)
    return ImageDataset(
        name=name,
        images=images,
        y=told["dx"].map(known.class_names.index).to_numpy(np.int64),
        class_names=known.class_names,
        groups=np.unique(told["lesion_id"].to_numpy(str), return_inverse=True)[1],
        partition=np.repeat(list(_PARTS), list(_PARTS.values())),
    )


def ham10000() -> Dataset:
    """HAM10000 dermatoscopic images at DermaMNIST's size: 10,015 x 2,352 pixel values in [0, 1].

    A row is an image 28 x 28 x 3 in C order (`X.reshape(-1, 28, 28, 3)`). `groups` are the 7,470 lesions: one lesion
    has up to six images, so a record of a privacy claim may be an image or a lesion.
    """
    pictures = load_images("ham10000")
    X = pictures.images.reshape(len(pictures.images), -1) / 255.0
    return card("ham10000").schema.records(X, pictures.y, "ham10000", groups=pictures.groups)


def ham10000_metadata() -> pd.DataFrame:
    """What is known of each image, in the row order of `load("ham10000")`: 10,015 rows.

    Returns
    -------
    DataFrame
        Columns image_id, lesion_id, dx, dx_type, age (years, NaN where missing), sex and localization ("unknown" where
        missing). Age and sex belong to a person: not public.

    Raises
    ------
    DatasetUnavailable
        The files are not to be found.

    Source: Tschandl, Rosendahl and Kittler 2018.
    """
    folder = _folder(card("ham10000").files)
    with np.load(folder / "ham10000/dermamnist.npz") as archive:
        ids = np.concatenate([archive[f"{part}_ids"] for part in _PARTS])
    table = pd.read_csv(folder / "ham10000/HAM10000_metadata.csv").set_index("image_id")
    return table.loc[ids].rename_axis("image_id").reset_index()


def _folder(wanted: Mapping[str, str | None]) -> Path:
    """The folder that holds these files, which have been checked."""
    folder = files.find_verified(wanted)
    if folder is None:
        advice = (
            "get online and make the files, which no client fetches in this form, from the images and the table of "
            "Harvard Dataverse doi:10.7910/DVN/DBW86T: pictures of 200 x 150 pixels, and their central squares, "
            "bicubic to 28 x 28, split as in DermaMNIST"
        )
        raise files.DatasetUnavailable("ham10000", wanted, advice, "no folder holds its files")
    return folder


def _small_images() -> NDArray[np.uint8]:
    shapes = {f"{part}_images": (n, 28, 28, 3) for part, n in _PARTS.items()}
    arrays = files.read_npz(_folder(card("ham10000").files) / "ham10000/dermamnist.npz", shapes)
    return np.concatenate(list(arrays.values()))


def _resized_images(ids: NDArray[np.str_], side: int) -> NDArray[np.uint8]:
    """From the cache, or made and put there. The name holds all that the pixels depend on."""
    ((relative, sha256),) = HAM10000_ARCHIVE.items()
    key = hashlib.sha256(f"{sha256} {PIL.__version__} {' '.join(ids)}".encode()).hexdigest()[:12]
    kept = paths.data_cache() / "ham10000" / f"images_{side}_{key}.npy"
    if kept.is_file():
        images = np.load(kept, allow_pickle=False)
    else:
        images = read_squares(_folder(HAM10000_ARCHIVE) / relative, ids, side)
        files.save_whole(kept, images)
    if images.shape != (len(ids), side, side, 3):
        raise files.UnexpectedData(f"{kept.name} must hold {len(ids)} images of {side} pixels, got {images.shape}")
    return images


def read_squares(archive: Path, ids: Sequence[str] | NDArray[np.str_], side: int) -> NDArray[np.uint8]:
    """The central squares of the archive's pictures `id.jpg`, resized by Pillow's bicubic filter: (n, side, side, 3).

    Raises
    ------
    UnexpectedData
        A picture is missing, too large, or no picture.
    """
    images = np.empty((len(ids), side, side, 3), dtype=np.uint8)
    try:
        with zipfile.ZipFile(archive) as pictures:
            members = {Path(info.filename).name: info for info in pictures.infolist()}
            for row, picture in enumerate(ids):
                info = members[f"{picture}.jpg"]
                if info.file_size > _MEMBER_BYTES:
                    raise files.UnexpectedData(f"{info.filename} takes {info.file_size:,} bytes, more than expected")
                with Image.open(io.BytesIO(pictures.read(info)), formats=["JPEG"]) as image:
                    short = min(image.size)
                    left, top = ((length - short) // 2 for length in image.size)
                    square = image.convert("RGB").crop((left, top, left + short, top + short))
                    images[row] = np.asarray(square.resize((side, side), Image.Resampling.BICUBIC))
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise files.UnexpectedData(f"{archive.name} cannot be read: {error}") from error
    return images
