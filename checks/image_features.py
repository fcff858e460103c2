"""Features of single images that need no training: scattering and colour, in rings around the centre or in cells.

Everything that defines a feature is public: wavelets, rings, bins and the size of the image. A feature of an image
depends on that image alone, so computing features costs no privacy and neighbouring data sets stay neighbouring.

*Scattering*: two layers of Morlet wavelets, each with a modulus behind it, describe texture, stably under small shifts
and deformations. The coefficients are averaged over rotations and mirror images, the second layer by the angle between
its two wavelets, because a lesion has no upright position. *Colour*: moments and histograms.

`image_features` pools both in rings, for a linear model; `image_maps` keeps where they are, for a network that
convolves or to see how much they differ from place to place.

Sources: Mallat 2012 (scattering), Sifre and Mallat 2013 (averaging over rotations), Tramer and Boneh 2021 (private
networks on scattering maps).
"""

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from helpers import paths, sources
from helpers.data.files import save_whole
from helpers.validation import check_boolean, check_choice

PARTS = ("scattering", "colour")
_ANGLES, _SCATTERING_RINGS = 6, 2
_COLOUR_RINGS, _BINS = 5, 10
_FLOOR = 1e-3  # of the logarithm: coefficients below a quarter of a grey level are noise
_LARGEST_RADIUS = 1.2  # of the outermost ring's outer edge, in half sides: corners, at 1.41, count to it
_BATCH = 8  # images whose intermediate results fit into a cache

_Pooling = Callable[[int, int, int], Tensor]  # side, step and margin to weights (points, places)


def image_features(images: ArrayLike, *, parts: Sequence[str] = PARTS, cache: bool = False) -> NDArray[np.float32]:
    """Features (n, d) of images of bytes (n, side, side, 3), each between -1 and 1.

    Parameters
    ----------
    images : array of uint8 (n, side, side, 3)
        Red, green, blue; `side` even and in [16, 256].
    parts : sequence of {"scattering", "colour"}
        What to compute, in this order. Scattering has 96 features at 28 pixels and 174 at 64, colour 210.
    cache : bool
        Whether to keep the result in the user's cache folder and take it from there. The file's name is a digest of
        the images, of this code and of PyTorch's version. Like the images, the file is not public.

    Raises
    ------
    ValueError
        Images of another type or shape, or an unknown part.

    Examples
    --------
    An image of one colour has no texture:

    >>> grey = np.full((1, 28, 28, 3), 51, dtype=np.uint8)
    >>> values = dict(zip(feature_names(28), image_features(grey)[0].tolist(), strict=True))
    >>> round(values["mean red ring 0"], 3), round(values["waves 0 red ring 0"], 3)
    (0.2, 0.0)
    """
    images, parts = _check_images(images), _check_parts(parts)
    layers = [_LAYERS[part] for part in parts]
    return _computed(images, " ".join(parts), layers, cache)


def image_maps(images: ArrayLike, *, cache: bool = False) -> NDArray[np.float32]:
    """Scattering and moments of colour in square cells: maps (n, channels, cells, cells), between -1 and 1.

    A cell is as wide as the longest wavelength's grid: 7 x 7 cells at 28 pixels, 8 x 8 at 64. Cells overlap, with
    weights that fall linearly from the middle of one to that of the next. Channels are those of `image_features`
    without rings and histograms, in its order.

    Parameters
    ----------
    images, cache
        As for `image_features`.

    Raises
    ------
    ValueError
        Images of another type or shape.

    >>> image_maps(np.zeros((1, 28, 28, 3), dtype=np.uint8)).shape
    (1, 60, 7, 7)
    """
    images = _check_images(images)
    n_cells = images.shape[1] // 2 ** (_scales(images.shape[1]) - 1)
    pooling = functools.partial(_cells, n_cells)
    layers = [functools.partial(layer, pooling=pooling) for layer in (scattering, moments)]
    return _computed(images, "maps", layers, cache).reshape(len(images), -1, n_cells, n_cells)


def feature_names(side: int, parts: Sequence[str] = PARTS) -> list[str]:
    """Names of the columns of `image_features`, "waves 0 then 2 at 60 degrees blue ring 1" for instance.

    >>> len(feature_names(28)), len(feature_names(64)), feature_names(64)[0]
    (306, 384, 'average red ring 0')
    """
    columns = {
        "scattering": [f"{path} ring {ring}" for path in _paths(_scales(side)) for ring in range(_SCATTERING_RINGS)],
        "colour": [f"{name} ring {ring}" for name in _COLOUR_NAMES for ring in range(_COLOUR_RINGS)],
    }
    return [name for part in _check_parts(parts) for name in columns[part]]


def _check_images(images: ArrayLike) -> NDArray[np.uint8]:
    images = np.asarray(images)
    shape = images.shape
    fits = images.ndim == 4 and shape[1] == shape[2] and shape[3] == 3 and shape[1] % 2 == 0 and 16 <= shape[1] <= 256
    if images.dtype != np.uint8 or not fits:
        raise ValueError(
            "images must be bytes (n, side, side, 3) with an even side in [16, 256], "
            f"got {images.dtype} of shape {shape}"
        )
    return images


def _check_parts(parts: Sequence[str]) -> tuple[str, ...]:
    parts = (parts,) if isinstance(parts, str) else tuple(parts)
    for part in parts:
        check_choice("parts", part, PARTS)
    if not parts or len(set(parts)) < len(parts):
        raise ValueError(f"parts must be one or both of {PARTS}, got {parts!r}")
    return parts


def _computed(
    images: NDArray[np.uint8],
    name: str,
    layers: Sequence[Callable[[Tensor], Tensor]],
    cache: bool,
) -> NDArray[np.float32]:
    """What the layers, known as `name`, make of the images, side by side (n, d); from the cache if it is there."""
    check_boolean("cache", cache)
    if not cache:
        return _layered(images, layers)
    code = sources.modules_digest(["checks.image_features"])
    key = hashlib.sha256(f"{code} {torch.__version__} {images.shape} {name}".encode())
    key.update(np.ascontiguousarray(images).data)
    kept = paths.data_cache() / "features" / f"{key.hexdigest()[:32]}.npy"
    if not kept.is_file():
        save_whole(kept, _layered(images, layers))
    return np.load(kept, allow_pickle=False)


def _layered(images: NDArray[np.uint8], layers: Sequence[Callable[[Tensor], Tensor]]) -> NDArray[np.float32]:
    """On one thread: the arrays are small, and threads would only wait for one another."""
    answer = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for start in tqdm(range(0, len(images), _BATCH), disable=None):
            batch = torch.tensor(images[start : start + _BATCH]).movedim(-1, 1).float() / 255
            answer.append(torch.cat([layer(batch) for layer in layers], 1).clamp(-1, 1))
    finally:
        torch.set_num_threads(threads)
    return torch.cat(answer).numpy()


# ------------------------------------------------------------------------------------------------ rings and cells


@functools.lru_cache(maxsize=64)
def rings(n_rings: int, side: int, step: int, margin: int) -> Tensor:
    """Weights (points, rings) of overlapping rings, each ring's sum 1, on every `step`-th point of a padded image.

    Ring k is a hat in the distance from the centre, highest in the middle of the ring; margins have no weight.
    """
    place = _points(side, step, margin)
    hats = _hats(torch.hypot(place[:, None], place) / _LARGEST_RADIUS, n_rings)
    hats[(place.abs() > 1), :], hats[:, (place.abs() > 1)] = 0, 0
    return (hats / hats.sum((0, 1))).flatten(0, 1).float()


@functools.lru_cache(maxsize=64)
def _cells(n_cells: int, side: int, step: int, margin: int) -> Tensor:
    """Weights (points, n_cells^2) of overlapping cells, row by row, each cell's sum 1; margins have no weight."""
    place = _points(side, step, margin)
    hats = _hats((place + 1) / 2, n_cells)
    hats[place.abs() > 1] = 0
    hats = hats / hats.sum(0)
    return torch.einsum("yr,xc->yxrc", hats, hats).flatten(2).flatten(0, 1).float()


def _points(side: int, step: int, margin: int) -> Tensor:
    """Every `step`-th pixel of a padded row, its image from -1 to 1."""
    size = side + 2 * margin
    return (torch.arange(0, size, step, dtype=torch.float64) - (size - 1) / 2) / (side / 2)


def _hats(share: Tensor, n: int) -> Tensor:
    """(..., n): hat k is highest where `share` is (k + 1/2) / n, and the outermost stay high beyond."""
    position = (share * n - 0.5).clamp(0, n - 1)
    return (1 - (position[..., None] - torch.arange(n)).abs()).clamp(min=0)


# ------------------------------------------------------------------------------------------------------- wavelets


@functools.lru_cache(maxsize=8)
def wavelets(size: int, scales: int) -> tuple[Tensor, ...]:
    """Morlet wavelets on a periodic grid as real multipliers of the discrete Fourier transform.

    Returns
    -------
    tuple of float32 tensors (angles, m, m)
        One for each scale j, on the lowest m = size / 2^max(j-1, 0) frequencies, outside which they are zero. The sum
        of squares over all of them, at each frequency and its opposite together, is at most 2: the transform
        is a contraction.
    """
    raw = [_morlets(size, scale) for scale in range(scales)]
    total = sum(((multipliers**2).sum(0) for multipliers in raw), torch.zeros(()))
    opposite = torch.roll(total.flip(0, 1), (1, 1), (0, 1))
    norm = ((total + opposite) / 2).max().sqrt()
    return tuple(_lowest(m / norm, size >> max(scale - 1, 0)).float() for scale, m in enumerate(raw))


def _morlets(size: int, scale: int) -> Tensor:
    """A Gaussian around the frequency 3 pi / 4 / 2^scale, less one around 0 so that the mean is not seen."""
    width, centre, slant = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, 4 / _ANGLES
    frequencies = 2 * math.pi * torch.fft.fftfreq(size, dtype=torch.float64)
    # Copies at multiples of 2 pi: sampling in space is repetition in frequency.
    copies = frequencies + 2 * math.pi * torch.arange(-2, 3)[:, None]
    bank = []
    for angle in torch.arange(_ANGLES) * math.pi / _ANGLES:
        y, x = copies[:, None, :, None], copies[None, :, None, :]
        along, across = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
        gabor = torch.exp(-((width * (along - centre)) ** 2 + (width / slant * across) ** 2) / 2).sum((0, 1))
        plain = torch.exp(-((width * along) ** 2 + (width / slant * across) ** 2) / 2).sum((0, 1))
        bank.append(gabor - plain * gabor[0, 0] / plain[0, 0])
    return torch.stack(bank)


def _lowest(spectrum: Tensor, size: int) -> Tensor:
    """The lowest `size` frequencies of each of the last two axes."""
    if spectrum.shape[-1] == size:
        return spectrum
    half = size // 2
    keep = torch.cat([torch.arange(half), torch.arange(spectrum.shape[-1] - half, spectrum.shape[-1])])
    return spectrum[..., keep, :][..., keep]


def _modulus(spectrum: Tensor, filters: Tensor, scale: int) -> Tensor:
    """|x * psi| for every angle, at every 2^scale-th point of the image.

    `spectrum` is that of x divided by the number of points; it may be on a coarser grid than the image's.
    """
    product = _lowest(spectrum, filters.shape[-1])[..., None, :, :] * filters
    if scale:  # every second point: the spectrum's halves fall together
        half = filters.shape[-1] // 2
        product = product[..., :half, :] + product[..., half:, :]
        product = product[..., :half] + product[..., half:]
    return torch.fft.ifft2(product, norm="forward").abs()


# ----------------------------------------------------------------------------------------------------- scattering


def scattering(x: Tensor, pooling: _Pooling) -> Tensor:
    """Two layers of scattering of images (B, 3, side, side) in [0, 1]: (B, paths x channels x places).

    A coefficient u is shown as log(1 + u / c) / log(1 + 1 / c), c = .001; `image_features` cuts it at 1.
    """
    side, scales = x.shape[-1], _scales(x.shape[-1])
    step = 2 ** (scales - 1)
    margin = (math.ceil((side + side // 8) / step) * step - side) // 2  # all grids must have whole sides
    size = side + 2 * margin
    bank = wavelets(size, scales)
    pooled = [pooling(side, 2**scale, margin) for scale in range(scales)]
    padded = functional.pad(x, (margin,) * 4, mode="reflect").flatten(0, 1)
    spectrum = torch.fft.fft2(padded, norm="forward")
    first, second = [], []
    for scale in range(scales):
        waves = _modulus(spectrum, bank[scale], scale)
        first.append((waves.flatten(2) @ pooled[scale]).mean(1, keepdim=True))
        if scale < scales - 1:
            inner = torch.fft.fft2(waves, norm="forward")
        for other in range(scale + 1, scales):
            both = _modulus(inner, bank[other], other).flatten(3) @ pooled[other]
            second.append(_by_angle_between(both))
    average = (padded.flatten(1) @ pooled[0])[:, None]
    found = torch.cat([average, *first, *second], 1).unflatten(0, (-1, 3)).transpose(1, 2)
    return (torch.log1p(found / _FLOOR) / math.log1p(1 / _FLOOR)).flatten(1)


def _by_angle_between(both: Tensor) -> Tensor:
    """Means of (M, L, L, places) over pairs of directions of equal angle, either way round: (M, L/2 + 1, places)."""
    n = both.shape[1]
    turn, first = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    turned = both[:, first, (first + turn) % n].mean(2)
    return torch.stack([(turned[:, t] + turned[:, -t % n]) / 2 for t in range(n // 2 + 1)], 1)


def _scales(side: int) -> int:
    """Octaves of wavelengths, the longest about a third of the side: 3 at 28 pixels, 4 at 64."""
    return round(math.log2(side)) - 2


def _paths(scales: int) -> list[str]:
    waves = [f"waves {scale}" for scale in range(scales)]
    angles = [f"at {180 * turn // _ANGLES} degrees" for turn in range(_ANGLES // 2 + 1)]
    pairs = [f"waves {one} then {other}" for one, other in itertools.combinations(range(scales), 2)]
    layers = ["average", *waves, *(f"{pair} {angle}" for pair in pairs for angle in angles)]
    return [f"{path} {colour}" for path in layers for colour in _CHANNELS]


# --------------------------------------------------------------------------------------------------------- colour


_CHANNELS = ("red", "green", "blue")
_PAIRS = tuple(itertools.combinations(range(3), 2))
_MOMENTS = [
    *(f"{moment} {colour}" for moment in ("mean", "sd", "third moment") for colour in _CHANNELS),
    *(f"covariance {_CHANNELS[one]} {_CHANNELS[other]}" for one, other in _PAIRS),
]
_COLOUR_NAMES = [*_MOMENTS, *(f"bin {bin_} {colour}" for colour in _CHANNELS for bin_ in range(_BINS))]


def colour(x: Tensor, pooling: _Pooling) -> Tensor:
    """Moments, and shares of ten bins, of images (B, 3, side, side) in [0, 1]: (B, 42 x places), in [-1, 1].

    A value between two bins' middles counts to both in part.
    """
    weights = pooling(x.shape[-1], 1, 0).double()
    shares = _hats(x.flatten(2).double(), _BINS).movedim(-1, 2) @ weights
    return torch.cat([moments(x, pooling), shares.flatten(1).float()], 1)


def moments(x: Tensor, pooling: _Pooling) -> Tensor:
    """Of colour, for images (B, 3, side, side) in [0, 1]: (B, 12 x places), in [-1, 1].

    Mean, standard deviation, cube root of the third central moment, root of the covariance with its sign.
    """
    weights = pooling(x.shape[-1], 1, 0).double()
    x = x.flatten(2).double()  # differences of powers, and roots of them, would magnify the rounding of 32 bits
    mean, square, cube = (x**power @ weights for power in (1, 2, 3))
    spread = (square - mean**2).clamp(min=0)
    third = cube - 3 * mean * square + 2 * mean**3
    mixed = torch.stack([(x[:, i] * x[:, j]) @ weights - mean[:, i] * mean[:, j] for i, j in _PAIRS], 1)
    found = [mean, spread.sqrt(), third.sign() * third.abs() ** (1 / 3), mixed.sign() * mixed.abs().sqrt()]
    return torch.cat(found, 1).flatten(1).float()


_LAYERS = {
    "scattering": functools.partial(scattering, pooling=functools.partial(rings, _SCATTERING_RINGS)),
    "colour": functools.partial(colour, pooling=functools.partial(rings, _COLOUR_RINGS)),
}
