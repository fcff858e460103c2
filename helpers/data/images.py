"""Image data sets as bytes: pictures, labels, the groups that must stay together, and the publisher's split.

`load_images` gives the same pictures on every machine that has the files, in the row order of `load`. Pixels stay 8-bit
integers; a model scales them by public constants of its own. Whether the record of a privacy claim is an image or a
lesion is left to the caller, and so is every use of age and sex, which belong to a person.
"""

import hashlib
import io
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image
from sklearn.model_selection import StratifiedGroupKFold

from helpers import paths
from helpers.checks import check_choice, check_integer
from helpers.data import files
from helpers.data.dataset import _read_only
from helpers.data.public import ham10000_metadata
from helpers.data.sets import card

SIDES = (28, 64)
MALIGNANT = ("akiec", "bcc", "mel")
HAM10000_ARCHIVE = {
    "ham10000/HAM10000_images_200x150.zip": "0a9697de01502a6ce48fec872050353f86b9a1abc6b14ac8cad363d6cea571a0"
}
_PARTS = {"train": 7007, "val": 1003, "test": 2005}
_MEMBER_BYTES = 2**20  # the largest of the 10,015 JPEG files has 20 kB


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset:
    """Square colour images with labels; all arrays are read-only.

    Parameters
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
    age : array of shape (n,), float64
        Years, NaN where unknown. Not public.
    sex : array of shape (n,)
        "female", "male" or "unknown". Not public.
    source, licence : str
    public : str
        What may be called public, and why.

    Raises
    ------
    ValueError
        Shapes that do not fit, images that are not bytes, labels that are not codes of `class_names`.
    """

    name: str
    images: np.ndarray
    y: np.ndarray
    class_names: tuple[str, ...]
    groups: np.ndarray
    partition: np.ndarray
    age: np.ndarray
    sex: np.ndarray
    source: str = ""
    licence: str = ""
    public: str = "none declared"

    def __post_init__(self) -> None:
        types = {"images": None, "y": np.int64, "groups": np.int64, "partition": None, "age": np.float64, "sex": None}
        for field, dtype in types.items():
            object.__setattr__(self, field, _read_only(getattr(self, field), dtype))
        object.__setattr__(self, "class_names", tuple(map(str, self.class_names)))
        shape = self.images.shape
        if self.images.dtype != np.uint8 or len(shape) != 4 or shape[1] != shape[2] or shape[3] != 3:
            raise ValueError(f"images must be bytes (n, side, side, 3), got {self.images.dtype} of shape {shape}")
        for field in list(types)[1:]:
            if getattr(self, field).shape != shape[:1]:
                raise ValueError(f"{field} must have shape {shape[:1]}, got {getattr(self, field).shape}")
        if self.n and not (self.y.min() >= 0 and self.y.max() < len(self.class_names)):
            raise ValueError(f"y must be codes of {self.class_names}, got codes {np.unique(self.y).tolist()}")

    def __repr__(self) -> str:
        counts = tuple(self.counts.tolist())
        return f"ImageDataset({self.name!r}, n={self.n}, side={self.side}, counts={counts})"

    @property
    def n(self) -> int:
        """Number of images."""
        return len(self.images)

    @property
    def side(self) -> int:
        """Pixels a side."""
        return self.images.shape[1]

    @property
    def counts(self) -> NDArray[np.int64]:
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

    def take(self, rows: Sequence[int] | NDArray) -> "ImageDataset":
        """The images at `rows` (integer positions, repeats allowed), in that order.

        Raises
        ------
        ValueError
            `rows` are no vector of integers.
        """
        rows = np.asarray(rows)
        if rows.ndim != 1 or (rows.size and not np.issubdtype(rows.dtype, np.integer)):
            raise ValueError(f"rows must be a one-dimensional array of integers, got {rows.dtype} {rows.shape}")
        per_image = ("images", "y", "groups", "partition", "age", "sex")
        return replace(self, **{field: getattr(self, field)[rows.astype(np.intp)] for field in per_image})

    def positive(self, names: Sequence[str] = MALIGNANT) -> NDArray[np.int64]:
        """Labels (n,) of a binary task: 1 for the named classes; by default the malignant ones of HAM10000.

        Melanoma and basal cell carcinoma are malignant; actinic keratosis and Bowen's disease (akiec) are carcinoma in
        situ, which the data set's authors describe as precursors that may become invasive, and which are treated.

        Raises
        ------
        ValueError
            A name that is no class.

        Source: Tschandl, Rosendahl and Kittler 2018, description of the diagnoses.
        """
        for name in names:
            check_choice("names", name, self.class_names)
        return np.isin(self.y, [self.class_names.index(name) for name in names]).astype(np.int64)

    def shared(self, part: str = "test", other: str = "train") -> NDArray[np.bool_]:
        """Which images of `part` (in its row order) show a group that `other` shows too.

        Raises
        ------
        ValueError
            The split has no such part.
        """
        return np.isin(self.groups[self.rows(part)], self.groups[self.rows(other)])


def lesion_folds(dataset: ImageDataset, n_splits: int, seed: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Pairs of training and test positions: each image is in one test part, no group on both sides.

    Classes are kept in proportion as far as the groups allow. The folds depend on all labels and groups: they prepare
    an experiment and are no part of a private method.

    Parameters
    ----------
    n_splits : int
        At least 2.
    seed : int
        Of the shuffle.

    Raises
    ------
    ValueError
        A parameter is out of range, or there are fewer groups than folds.
    """
    n_splits = check_integer("n_splits", n_splits, low=2)
    seed = check_integer("seed", seed, low=0, high=2**32 - 1)
    if (n_groups := len(np.unique(dataset.groups))) < n_splits:
        raise ValueError(f"n_splits must be at most the number of groups, {n_groups}, got {n_splits}")
    folds = StratifiedGroupKFold(n_splits=n_splits, shuffle=True, random_state=seed)
    return list(folds.split(dataset.y, dataset.y, dataset.groups))


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
    known, told = card(name).schema, ham10000_metadata()  # checks the files' sums
    images = _small_images() if side == 28 else _resized_images(told["image_id"].to_numpy(str), side)
    return ImageDataset(
        name=name,
        images=images,
        y=told["dx"].map(known.class_names.index).to_numpy(),
        class_names=known.class_names,
        groups=np.unique(told["lesion_id"].to_numpy(str), return_inverse=True)[1],
        partition=np.repeat(list(_PARTS), list(_PARTS.values())),
        age=told["age"].to_numpy(),
        sex=told["sex"].to_numpy(str),
        source=known.source,
        licence=known.licence,
        public="names of the classes and the range 0..255 of a pixel, by construction; nothing else",
    )


def _small_images() -> NDArray[np.uint8]:
    relative = "ham10000/dermamnist.npz"
    folder = files.find_verified(card("ham10000").files)
    arrays = files.read_npz(folder / relative, {f"{part}_images": (n, 28, 28, 3) for part, n in _PARTS.items()})
    return np.concatenate(list(arrays.values()))


def _resized_images(ids: NDArray[np.str_], side: int) -> NDArray[np.uint8]:
    """From the cache, or made and put there. The name holds all that the pixels depend on."""
    ((relative, sha256),) = HAM10000_ARCHIVE.items()
    key = hashlib.sha256(f"{sha256} {PIL.__version__} {' '.join(ids)}".encode()).hexdigest()[:12]
    kept = paths.data_cache() / "ham10000" / f"images_{side}_{key}.npy"
    if kept.is_file():
        images = np.load(kept, allow_pickle=False)
    else:
        folder = files.find_verified(HAM10000_ARCHIVE)
        if folder is None:
            advice = (
                "get online and make the archive, which no client fetches in this form: the images of Harvard "
                "Dataverse doi:10.7910/DVN/DBW86T reduced to 200 x 150"
            )
            raise files.DatasetUnavailable("ham10000", HAM10000_ARCHIVE, advice, "no folder holds its files")
        images = read_squares(folder / relative, ids, side)
        save_whole(kept, images)
    files.expect("ham10000", rows=(len(images), len(ids)), labels=(images.shape[1:], (side, side, 3)))
    return images


def read_squares(archive: Path, ids: Sequence[str], side: int) -> NDArray[np.uint8]:
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
                images[row] = _central_square(pictures.read(info), side)
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise files.UnexpectedData(f"{archive.name} cannot be read: {error}") from error
    return images


def _central_square(content: bytes, side: int) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(content), formats=["JPEG"]) as picture:
        width, height = picture.size
        short = min(width, height)
        left, top = (width - short) // 2, (height - short) // 2
        square = picture.convert("RGB").crop((left, top, left + short, top + short))
        return np.asarray(square.resize((side, side), Image.Resampling.BICUBIC))


def save_whole(file: Path, array: NDArray) -> None:
    """Write an .npy file that appears under its name only when it is complete."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}.part")
    with open(partial, "wb") as target:
        np.save(target, array, allow_pickle=False)
    os.replace(partial, file)
