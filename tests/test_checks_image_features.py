"""Features of an image depend on that image alone, and are what their definitions say."""

import math

import numpy as np
import pytest
import torch

from checks import image_features as features
from checks.image_features import PARTS, feature_names, image_features, image_maps

pytest_plugins = ("neural_torch",)
pytestmark = pytest.mark.usefixtures("one_thread_and_one_seed")


def noise(n=3, side=28, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def blob(side=64, shift=0.0, seed=0):
    """A smooth dark lesion with texture on light skin, moved to the right by `shift` pixels."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    x = x - shift
    waves = sum(
        a * np.cos(2 * np.pi * (fx * x + fy * y) / side + p)
        for a, fx, fy, p in zip(*rng.normal(size=(3, 8)) * [[0.05], [6], [6]], rng.uniform(0, 6, 8), strict=True)
    )
    lesion = 0.8 - 0.5 * np.exp(-(x**2 + (1.3 * y) ** 2) / (2 * (side / 6) ** 2)) + waves
    channels = np.stack([lesion, 0.8 * lesion, 0.7 * lesion], -1)
    return (255 * np.clip(channels, 0, 1)).astype(np.uint8)[None]


def features_of(images, parts=PARTS):
    return image_features(images, parts=parts)


@pytest.mark.parametrize(("side", "n_scattering"), [(28, 96), (64, 174)])
def test_columns_have_names_and_stay_between_minus_one_and_one(side, n_scattering):
    board = np.indices((side, side)).sum(0) % 2
    hard = 255 * np.stack([np.zeros_like(board), np.ones_like(board), board])[..., None].repeat(3, -1).astype(np.uint8)
    images = np.concatenate([hard, noise(2, side)])
    values = features_of(images)
    assert values.shape == (5, n_scattering + 210) == (5, len(set(feature_names(side))))
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= 1
    assert (features_of(images, "colour") == values[:, n_scattering:]).all()
    assert (features_of(images, ("colour", "scattering"))[:, 210:] == values[:, :n_scattering]).all()


@pytest.mark.parametrize("n", [1, 2, 11])
def test_an_images_features_do_not_depend_on_the_others(n):
    """Neither on their values nor, but for rounding, on their number."""
    images = noise(12)
    alone = features_of(images[:1])
    among = features_of(images[:n])
    assert np.abs(among[0] - alone[0]).max() < 1e-6
    others = np.concatenate([images[:1], 255 - images[1:n]])
    assert (features_of(others)[0] == among[0]).all()
    assert n == 1 or (features_of(others)[1:] != among[1:]).any()


def test_progress_and_threads_leave_no_trace(capsys):
    torch.set_num_threads(2)
    image_features(noise(1))
    assert torch.get_num_threads() == 2
    assert capsys.readouterr() == ("", "")


# ------------------------------------------------------------------------------------------------------ wavelets


def whole(bank, size):
    """The multipliers on the whole grid of frequencies."""
    answer = []
    for filters in bank:
        full, half = torch.zeros(len(filters), size, size), filters.shape[-1] // 2
        keep = torch.cat([torch.arange(half), torch.arange(size - half, size)])
        full[:, keep[:, None], keep] = filters
        answer.append(full)
    return answer


@pytest.mark.parametrize(("size", "scales"), [(32, 3), (72, 4)])
def test_wavelets_lose_energy_but_create_none(size, scales):
    """Littlewood-Paley: for real images the sum over wavelets is at most the image's energy; in between, most of it."""
    bank = whole(features.wavelets(size, scales), size)
    total = sum((filters**2).sum(0) for filters in bank).double()
    both = (total + torch.roll(total.flip(0, 1), (1, 1), (0, 1))) / 2
    assert 0.98 < float(both.max()) <= 1 + 1e-6
    assert float(both[0, 0]) < 1e-12
    frequency = torch.fft.fftfreq(size)
    distance = torch.hypot(frequency[:, None], frequency)
    assert float(both[(distance > 2 / size) & (distance < 0.3)].min()) > 0.5
    x = torch.rand(size, size)
    spectrum = torch.fft.fft2(x - x.mean())
    energy = sum(float(torch.fft.ifft2(spectrum * filters).abs().square().sum()) for filters in bank)
    assert energy <= float((x - x.mean()).square().sum()) * (1 + 1e-5)


@pytest.mark.parametrize("scale", [0, 1, 2])
def test_waves_are_a_direct_convolution(scale):
    """Sum over all pixels, wrapped around, in complex arithmetic; at every 2^scale-th point."""
    size = 16
    bank = features.wavelets(size, 3)
    x = torch.rand(size, size, dtype=torch.float64)
    kernel = torch.fft.ifft2(whole(bank, size)[scale].double()).numpy()
    got = features._modulus(torch.fft.fft2(x, norm="forward").to(torch.complex64), bank[scale], scale).numpy()
    step = 2**scale
    for angle in (0, 2):
        for row, column in ((0, 0), (1, 3), (size // step - 1, 1)):
            i, j = np.ogrid[:size, :size]
            direct = np.sum(x.numpy() * kernel[angle][(row * step - i) % size, (column * step - j) % size])
            assert got[angle, row, column] == pytest.approx(abs(direct), abs=1e-5)


def test_second_layer_is_the_first_one_again():
    """From the definition, without shared spectra: |  |x * psi_0| * psi_1 | at every second point."""
    size = 32
    bank = features.wavelets(size, 3)
    x = torch.rand(size, size)
    waves = features._modulus(torch.fft.fft2(x, norm="forward"), bank[0], 0)
    got = features._modulus(torch.fft.fft2(waves, norm="forward"), bank[1], 1)
    full = whole(bank, size)
    inner = torch.fft.ifft2(torch.fft.fft2(x) * full[0][2]).abs()
    direct = torch.fft.ifft2(torch.fft.fft2(inner) * full[1][4]).abs()[::2, ::2]
    torch.testing.assert_close(got[2, 4], direct, rtol=1e-4, atol=1e-6)


def test_pairs_of_directions_are_averaged_by_their_angle():
    both = torch.rand(2, 6, 6, 3)
    got = features._by_angle_between(both)
    expected = torch.zeros(2, 4, 3)
    number = torch.zeros(4)
    for one in range(6):
        for other in range(6):
            turn = min((one - other) % 6, (other - one) % 6)
            expected[:, turn] += both[:, one, other]
            number[turn] += 1
    torch.testing.assert_close(got, expected / number[:, None])


# ---------------------------------------------------------------------------------------------------- scattering


def distance(one, other):
    return float(np.linalg.norm(one - other))


def test_scattering_is_stable_under_small_shifts():
    """A shift of half a pixel moves features less than another lesion does, and less than it moves pixels."""
    here, moved, other = (features_of(blob(**kind), "scattering")[0] for kind in ({}, {"shift": 0.5}, {"seed": 1}))
    pixels = [blob(**kind).astype(float).ravel() for kind in ({}, {"shift": 0.5}, {"seed": 1})]
    by_features = distance(here, moved) / distance(here, other)
    by_pixels = distance(pixels[0], pixels[1]) / distance(pixels[0], pixels[2])
    assert 0 < by_features < 0.5 * by_pixels


@pytest.mark.parametrize("turned", [lambda x: np.rot90(x, axes=(1, 2)), lambda x: x[:, :, ::-1], lambda x: x[:, ::-1]])
def test_turned_and_mirrored_images_have_about_the_same_features(turned):
    image = blob()
    here, there, other = (features_of(x) for x in (image, np.ascontiguousarray(turned(image)), blob(seed=1)))
    assert np.abs(here[0, 174:] - there[0, 174:]).max() < 1e-4
    assert distance(here[0, :174], there[0, :174]) < 0.2 * distance(here[0, :174], other[0, :174])


def test_waves_show_in_their_own_scale():
    """A grating of frequency 3 pi / 4 / 2^j is strongest in wavelets of scale j."""
    names = feature_names(64, "scattering")
    x = np.arange(64)
    for scale in range(4):
        wave = 127 + 100 * np.cos(0.75 * math.pi / 2**scale * x)
        image = np.broadcast_to(wave[None, None, :, None], (1, 64, 64, 3)).astype(np.uint8)
        values = dict(zip(names, features_of(image, "scattering")[0], strict=True))
        strengths = [values[f"waves {j} green ring 0"] for j in range(4)]
        assert int(np.argmax(strengths)) == scale


def test_average_is_that_of_the_ring_on_a_logarithmic_scale():
    image = np.full((1, 28, 28, 3), 51, dtype=np.uint8)
    values = dict(zip(feature_names(28), features_of(image)[0].tolist(), strict=True))
    assert values["average blue ring 1"] == pytest.approx(math.log1p(200) / math.log1p(1000), abs=1e-5)
    assert values["waves 2 blue ring 1"] == pytest.approx(0, abs=1e-3)


# -------------------------------------------------------------------------------------------------------- colour


def test_moments_and_histograms_are_those_of_weighted_pixels():
    image = noise(1)
    names, values = feature_names(28, "colour"), features_of(image, "colour")[0]
    got = dict(zip(names, values.tolist(), strict=True))
    place = (np.arange(28) - 13.5) / 14
    position = np.clip(np.hypot(place[:, None], place) / 1.2 * 5 - 0.5, 0, 4)
    for ring in (0, 3, 4):
        w = np.clip(1 - np.abs(position - ring), 0, None).ravel()
        red, green = (image[0, :, :, channel].ravel() / 255 for channel in (0, 1))
        mean = np.average(red, weights=w)
        both = np.average((red - mean) * (green - np.average(green, weights=w)), weights=w)
        assert got[f"mean red ring {ring}"] == pytest.approx(mean, abs=1e-5)
        assert got[f"sd red ring {ring}"] ** 2 == pytest.approx(np.average((red - mean) ** 2, weights=w), abs=1e-5)
        third = np.average((red - mean) ** 3, weights=w)
        assert got[f"third moment red ring {ring}"] ** 3 == pytest.approx(third, abs=1e-5)
        assert np.sign(both) * got[f"covariance red green ring {ring}"] ** 2 == pytest.approx(both, abs=1e-5)
        shares = [got[f"bin {bin_} green ring {ring}"] for bin_ in range(10)]
        near = np.clip(1 - np.abs(np.clip(green * 10 - 0.5, 0, 9) - 4), 0, None)
        assert shares[4] == pytest.approx(np.average(near, weights=w), abs=1e-5)
        assert sum(shares) == pytest.approx(1, abs=1e-5)


# ---------------------------------------------------------------------------------------------------------- maps


def hats(place, n):
    """Weights (points, n) of `n` cells on points in [0, 1]."""
    middle = np.clip(place * n - 0.5, 0, n - 1)
    return np.clip(1 - np.abs(middle[:, None] - np.arange(n)), 0, None)


@pytest.mark.parametrize(("side", "n_maps", "cells"), [(28, 60, 7), (64, 99, 8)])
def test_maps_are_means_and_moments_of_weighted_pixels_in_cells(side, n_maps, cells):
    image = noise(1, side)
    maps = image_maps(image)
    assert maps.shape == (1, n_maps, cells, cells)
    assert np.abs(maps).max() <= 1
    red, green = (image[0, :, :, channel] / 255 for channel in (0, 1))
    rows = hats((np.arange(side) + 0.5) / side, cells)
    for row, column in ((0, 0), (3, cells - 1)):
        w = np.outer(rows[:, row], rows[:, column])
        mean, other = np.average(red, weights=w), np.average(green, weights=w)
        both = np.average((red - mean) * (green - other), weights=w)
        third = np.average((red - mean) ** 3, weights=w)
        got = maps[0, :, row, column]
        assert got[-12] == pytest.approx(mean, abs=1e-5)
        assert got[-9] ** 2 == pytest.approx(np.average((red - mean) ** 2, weights=w), abs=1e-5)
        assert got[-6] ** 3 == pytest.approx(third, abs=1e-5)
        assert np.sign(got[-3]) * got[-3] ** 2 == pytest.approx(both, abs=1e-5)


@pytest.mark.parametrize("side", [28, 64])
def test_texture_shows_in_its_own_cells(side):
    """Noise in one corner: waves of the shortest wavelength are strong in that corner's cells and not in the others."""
    image = np.full((1, side, side, 3), 128, dtype=np.uint8)
    image[:, : side // 4, -side // 4 :] = noise(1, side)[:, : side // 4, -side // 4 :]
    waves = image_maps(image)[0, 4]  # after the averages of three channels: scale 0, green
    assert waves[:2, -2:].min() > 0.5
    assert waves[3:].max() < 0.1
    assert waves[:, :3].max() < 0.1


def test_maps_of_an_image_do_not_depend_on_the_others():
    images = noise(11)
    among, others = image_maps(images), image_maps(np.concatenate([images[:1], 255 - images[1:]]))
    assert (among[0] == others[0]).all()
    assert (among[1:] != others[1:]).any()


def test_maps_turn_with_the_image():
    image = blob()
    here, there = image_maps(image), image_maps(np.ascontiguousarray(np.rot90(image, axes=(1, 2))))
    assert distance(np.rot90(here, axes=(2, 3)), there) < 0.2 * distance(here, there)


# --------------------------------------------------------------------------------------------------------- cache


def test_kept_features_are_found_again_and_belong_to_their_images(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images = noise(2)
    first = image_features(images, cache=True)
    assert (first == features_of(images)).all()
    assert len(list((tmp_path / "dpbook" / "features").iterdir())) == 1
    with monkeypatch.context() as patch:
        patch.setattr(features, "_layered", lambda *_: pytest.fail("computed again"))
        assert (image_features(images, cache=True) == first).all()
    changed = images.copy()
    changed[1, 5, 5, 2] ^= 1
    assert (image_features(changed, cache=True)[1] != first[1]).any()
    assert image_features(images, parts="colour", cache=True).shape == (2, 210)
    monkeypatch.setattr(features.sources, "modules_digest", lambda names: "other code")
    image_features(images, cache=True)
    assert len(list((tmp_path / "dpbook" / "features").iterdir())) == 4
    assert (image_maps(images, cache=True) == image_maps(images)).all()
    assert len(list((tmp_path / "dpbook" / "features").iterdir())) == 5


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((1, 28, 28, 3)),
        np.zeros((1, 28, 28), np.uint8),
        np.zeros((1, 28, 30, 3), np.uint8),
        np.zeros((1, 28, 28, 4), np.uint8),
        np.zeros((1, 27, 27, 3), np.uint8),
        np.zeros((1, 14, 14, 3), np.uint8),
    ],
)
def test_images_of_another_kind_are_refused(images):
    with pytest.raises(ValueError, match=r"images must be bytes \(n, side, side, 3\)"):
        image_features(images)


def test_unknown_parts_are_refused():
    with pytest.raises(ValueError, match="parts must be one of 'scattering', 'colour', got 'shape'"):
        image_features(noise(1), parts=("shape",))
    for parts in ((), ("colour", "colour")):
        with pytest.raises(ValueError, match="parts must be one or both of"):
            image_features(noise(1), parts=parts)
    with pytest.raises(ValueError, match="cache must be True or False"):
        image_features(noise(1), cache="yes")
