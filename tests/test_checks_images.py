"""Image data: the same pictures everywhere, lesions that stay together, and files that are what they should be."""

import hashlib
import io
import pickle
import zipfile

import numpy as np
import pytest
from PIL import Image

from checks import images
from checks.images import ImageDataset, load_images, read_squares
from helpers import data
from helpers.data import catalogue, files


def toy(n=12, side=4):
    rng = np.random.default_rng(0)
    return ImageDataset(
        name="toy",
        images=rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8),
        y=np.arange(n) % 3,
        class_names=("a", "b", "c"),
        groups=np.arange(n) // 2,
        partition=np.repeat(["train", "test"], [n - 5, 5]),
    )


@pytest.fixture(scope="module")
def small():
    return load_images()


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """No data folder but an empty cache; the folder it is in."""
    monkeypatch.delenv("DPBOOK_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(images.paths, "ROOT", tmp_path / "nowhere" / "project")
    return tmp_path


# --------------------------------------------------------------------------------------------------- the value


def test_nothing_can_be_written_and_counts_are_shown():
    whole = toy()
    for field in ("images", "y", "groups", "partition"):
        assert not getattr(whole, field).flags.writeable
    assert repr(whole) == "ImageDataset('toy', n=12, side=4, counts=(4, 4, 4))"
    assert (pickle.loads(pickle.dumps(whole)).images == whole.images).all()


def test_parts_and_shared_groups_are_counted_by_hand():
    """Rows 0-6 train, 7-11 test; groups are pairs, so only group 3 (rows 6 and 7) is on both sides."""
    dataset = toy()
    assert dataset.rows("test").tolist() == [7, 8, 9, 10, 11]
    assert dataset.shared("test", "train").tolist() == [True, False, False, False, False]
    assert dataset.shared("train", "test").sum() == 1
    with pytest.raises(ValueError, match="part must be one of 'test', 'train', got 'val'"):
        dataset.rows("val")


# ------------------------------------------------------------------------------------------------------ HAM10000


def test_ham10000_is_the_flat_data_set_as_images(small):
    flat = data.load("ham10000")
    rows = np.arange(0, flat.n, 500)
    assert (small.images[rows].reshape(len(rows), -1) == np.rint(flat.X[rows] * 255)).all()
    assert (small.y == flat.y).all()
    assert small.class_names == flat.class_names
    assert small.shared("val", "train").sum() == 348
    assert small.shared("test", "train").sum() == 693
    pairs = set(zip(small.groups.tolist(), flat.groups.tolist(), strict=True))
    assert len(pairs) == len(np.unique(small.groups)) == 7470


def test_small_images_are_the_archive_resized(small):
    """The archive's squares by the same filter, to the bit with this version of Pillow: so are the larger ones."""
    folder = files.find_verified(images.ARCHIVE)
    if folder is None:
        pytest.skip("no archive of HAM10000 on this machine")
    ids = catalogue.ham10000_metadata()["image_id"].to_numpy(str)
    rows = np.array([0, 5000, 10014])
    again = read_squares(folder / next(iter(images.ARCHIVE)), ids[rows], 28)
    assert np.abs(again.astype(int) - small.images[rows]).max() <= 1


# ------------------------------------------------------------------------------------------- archives and cache


def picture(colour, size=(200, 150)):
    content = io.BytesIO()
    image = Image.new("RGB", size, (0, 0, 0))
    image.paste(colour, (25, 0, 175, 150))
    image.save(content, "JPEG", quality=95)
    return content.getvalue()


def archive(path, **members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"folder/{name}.jpg", content)
    return path


def test_central_squares_are_cut_and_keep_their_colours(tmp_path):
    file = archive(tmp_path / "a.zip", one=picture((200, 100, 50)), two=picture((10, 220, 30)))
    got = read_squares(file, ["two", "one"], 8)
    assert got.shape == (2, 8, 8, 3)
    assert got.dtype == np.uint8
    middle = got[:, 2:6, 2:6].reshape(2, -1, 3).astype(int)
    assert np.abs(middle - np.array([[[10, 220, 30]], [[200, 100, 50]]])).max() <= 4


def test_archives_that_are_something_else_are_refused(tmp_path):
    file = archive(tmp_path / "a.zip", text=b"no picture")
    for name in ("absent", "text"):
        with pytest.raises(data.UnexpectedData, match="cannot be read"):
            read_squares(file, [name], 8)
    (tmp_path / "b.zip").write_bytes(b"no archive")
    with pytest.raises(data.UnexpectedData, match=r"b\.zip cannot be read"):
        read_squares(tmp_path / "b.zip", ["one"], 8)


def test_larger_images_are_made_once_and_checked(monkeypatch, elsewhere):
    file = archive(elsewhere / "data" / "ham10000" / "a.zip", one=picture((200, 100, 50)))
    monkeypatch.setenv("DPBOOK_DATA", str(elsewhere / "data"))
    monkeypatch.setattr(images, "ARCHIVE", {"ham10000/a.zip": hashlib.sha256(file.read_bytes()).hexdigest()})
    ids = np.array(["one"])
    first = images._resized_images(ids, 64)
    (kept,) = (elsewhere / "cache" / "dpbook" / "ham10000").iterdir()
    monkeypatch.setattr(images, "read_squares", lambda *told: pytest.fail("made again"))
    assert (images._resized_images(ids, 64) == first).all()
    np.save(kept, first[:, :32])
    with pytest.raises(data.UnexpectedData):
        images._resized_images(ids, 64)


def test_a_damaged_archive_is_noticed(monkeypatch, elsewhere):
    archive(elsewhere / "data" / next(iter(images.ARCHIVE)), one=picture((1, 2, 3)))
    monkeypatch.setenv("DPBOOK_DATA", str(elsewhere / "data"))
    with pytest.raises(data.ChecksumMismatch):
        images._resized_images(np.array(["one"]), 64)


def test_absent_files_are_named(elsewhere):
    with pytest.raises(data.DatasetUnavailable, match=r"dermamnist\.npz"):
        load_images()
    with pytest.raises(data.DatasetUnavailable, match=r"HAM10000_images_200x150\.zip"):
        images._resized_images(np.array(["one"]), 64)


def test_interrupted_writing_leaves_no_file(monkeypatch, tmp_path):
    monkeypatch.setattr(np, "save", lambda *told, **options: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        files.save_whole(tmp_path / "a.npy", np.zeros(3))
    assert not (tmp_path / "a.npy").exists()


def test_other_sizes_are_refused():
    with pytest.raises(ValueError, match="side must be one of 28, 64, got 32"):
        load_images(side=32)
