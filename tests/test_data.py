"""Data sets: what is loaded is what was published, stays inside its declared bounds, and fails clearly when absent."""

import dataclasses
import hashlib
import http.server
import io
import math
import shutil
import socket
import tarfile
import threading
import time

import nbformat
import numpy as np
import pandas as pd
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from nbclient import NotebookClient
from scipy.stats import binomtest

from helpers import data, paths
from helpers.data import catalogue, files
from helpers.data.sets import BENCHMARK, card

# Rows, columns, minority records and rows whose X occurred before, of the files at hand.
PUBLISHED = {
    "ecoli": (336, 7, 35, 0),
    "satimage": (6435, 36, 626, 0),
    "pen_digits": (10992, 16, 1055, 0),
    "abalone": (4177, 10, 391, 0),
    "spectrometer": (531, 93, 45, 0),
    "car_eval_34": (1728, 21, 134, 0),
    "yeast_ml8": (2417, 103, 178, 0),
    "scene": (2407, 294, 177, 9),
    "coil_2000": (9822, 85, 586, 1561),
    "arrhythmia": (452, 278, 25, 0),
    "solar_flare_m0": (1389, 32, 68, 1011),
    "car_eval_4": (1728, 21, 65, 0),
    "letter_img": (20000, 16, 734, 1332),
    "yeast_me2": (1484, 8, 51, 31),
    "mammography": (11183, 6, 260, 3335),
    "abalone_19": (4177, 10, 32, 0),
}
BUILTIN = ("gaussian_mixture", "breast_cancer", "digits", "wine")


def file_of(name):
    """Where the one file of a benchmark set lies in a data folder."""
    return next(iter(card(name).files))


def first_of(name):
    """A record: the first level or the lower bound of each column, in the order of the file."""
    columns = {column.name: column.levels[0] if column.levels else column.low for column in card(name).schema.columns}
    return {source: columns[source] for source in card(name).schema.facts["header"] if source in columns}


@pytest.fixture(scope="module")
def mammography():
    return data.load("mammography")


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No data folder but an empty cache, and every socket refused."""
    refused = []

    def refuse(*args, **kwargs):
        refused.append(args)
        raise OSError("network is blocked in this test")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("DPBOOK_DATA", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for proxy in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setattr(paths, "data_folders", lambda: [tmp_path / "empty", paths.data_cache()])
    return refused


def assert_inside_bounds(dataset):
    assert dataset.bounds is not None
    low, high = dataset.bounds.T
    outside = ((dataset.X < low) | (dataset.X > high)).any(axis=0)
    assert not outside.any(), np.array(dataset.feature_names)[outside]
    assert len(dataset.bounds_basis) > 20


def assert_one_hot_blocks(dataset):
    """Columns named attribute=level add up to one in every record."""
    names = pd.Series(dataset.feature_names)
    attributes = names[names.str.contains("=")].str.partition("=")[0]
    assert attributes.nunique() > 0
    for attribute, columns in attributes.groupby(attributes).groups.items():
        assert (dataset.X[:, columns].sum(axis=1) == 1).all(), attribute


# ------------------------------------------------------------------------------------------------- published sets


@pytest.mark.parametrize("name", PUBLISHED)
def test_benchmark_sets_have_the_published_size_and_stay_inside_their_bounds(name):
    dataset = data.load(name)
    n, n_features, n_minority, n_repeated = PUBLISHED[name]
    assert (dataset.n, dataset.n_features) == (n, n_features)
    assert dataset.counts.tolist() == [n - n_minority, n_minority]
    assert dataset.imbalance_ratio == pytest.approx((n - n_minority) / n_minority)
    assert dataset.n_repeated == n_repeated
    assert (dataset.X.dtype, dataset.y.dtype) == (np.float64, np.int64)
    assert_inside_bounds(dataset)


def test_mammography_labels_follow_the_file(mammography):
    folder = files.find({file_of("mammography"): None})
    with np.load(folder / file_of("mammography")) as archive:
        assert (mammography.y == (archive["label"] == 1)).all()
        assert (mammography.X == archive["data"]).all()
    assert "assumption" in mammography.bounds_basis
    assert "not a private step" in mammography.bounds_basis


@pytest.mark.parametrize("name", ["abalone", "car_eval_34", "solar_flare_m0"])
def test_one_hot_columns_of_the_benchmark_are_named_in_blocks(name):
    assert_one_hot_blocks(data.load(name))


def test_car_columns_are_the_full_factorial_in_alphabetical_levels():
    dataset = data.load("car_eval_4")
    assert dataset.n_repeated == 0
    assert dataset.n == 4 * 4 * 4 * 3 * 3 * 3
    # UCI lists its first row as vhigh, vhigh, 2, 2, small, low.
    first = [dataset.feature_names[j] for j in np.flatnonzero(dataset.X[0])]
    assert first == ["buying=vhigh", "maint=vhigh", "doors=2", "persons=2", "lug_boot=small", "safety=low"]


def test_adult_keeps_missing_values_as_a_level_or_drops_the_record():
    everyone = data.load("adult")
    assert (everyone.n, everyone.n_features, everyone.counts.tolist()) == (48842, 108, [37155, 11687])
    assert_inside_bounds(everyone)
    assert_one_hot_blocks(everyone)
    complete = data.load("adult", incomplete="drop")
    assert (complete.n, complete.n_features) == (45222, 105)
    assert_one_hot_blocks(complete)
    assert not any(name.endswith("=?") for name in complete.feature_names)
    missing = [j for j, name in enumerate(everyone.feature_names) if name.endswith("=?")]
    assert everyone.n - everyone.X[:, missing].any(axis=1).sum() == complete.n
    # The category lists are public, so a level nobody has after dropping keeps its column.
    assert complete.X[:, complete.feature_names.index("workclass=Never-worked")].sum() == 0


def test_kddcup99_is_one_category_against_the_rest():
    dataset = data.load("kddcup99")
    assert (dataset.n, dataset.n_features, dataset.counts.tolist()) == (494021, 122, [391458, 102563])
    assert dataset.class_names == ("dos", "not dos")
    assert_inside_bounds(dataset)
    assert_one_hot_blocks(dataset)
    unseen = [f"service={service}" for service in ("aol", "harvest", "http_2784", "http_8001")]
    assert not dataset.X[:, [dataset.feature_names.index(name) for name in unseen]].any()


def test_electricity_and_madelon_have_the_published_counts():
    electricity = data.load("electricity")
    assert (electricity.n, electricity.n_features, electricity.counts.tolist()) == (45312, 8, [26075, 19237])
    assert electricity.bounds[electricity.feature_names.index("day")].tolist() == [1, 7]
    assert_inside_bounds(electricity)
    madelon = data.load("madelon")
    assert (madelon.n, madelon.n_features, madelon.counts.tolist()) == (2600, 500, [1300, 1300])
    assert_inside_bounds(madelon)


def test_ham10000_keeps_lesions_together():
    dataset = data.load("ham10000")
    assert dataset.X.shape == (10015, 28 * 28 * 3)
    assert dict(zip(dataset.class_names, dataset.counts.tolist(), strict=True)) == {
        "akiec": 327,
        "bcc": 514,
        "bkl": 1099,
        "df": 115,
        "mel": 1113,
        "nv": 6705,
        "vasc": 142,
    }
    assert np.unique(dataset.groups).size == 7470
    assert_inside_bounds(dataset)
    channels = dataset.X[:7007].reshape(-1, 3).mean(axis=0)  # the training part
    assert channels.tolist() == pytest.approx([0.7631, 0.5380, 0.5615], abs=1e-4)

    small = dataclasses.replace(dataset, X=dataset.X[:, :1], feature_names=["r0c0R"], bounds=None)
    train, test = data.split(small, test_size=0.2, seed=0)
    assert set(train.groups).isdisjoint(test.groups)
    assert train.n + test.n == dataset.n
    assert (test.counts / dataset.counts).tolist() == pytest.approx([0.2] * 7, abs=0.02)


def test_ham10000_metadata_is_in_the_order_of_the_images():
    dataset = data.load("ham10000")
    metadata = catalogue.ham10000_metadata()
    assert (np.unique(metadata["lesion_id"], return_inverse=True)[1] == dataset.groups).all()
    assert (metadata["dx"].to_numpy() == np.array(dataset.class_names)[dataset.y]).all()
    assert metadata["age"].isna().sum() == 57
    assert (metadata["sex"] == "unknown").sum() == 57


# --------------------------------------------------------------------------------------------- without any file


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_sets_need_neither_file_nor_network(offline, name):
    dataset = data.load(name)
    assert_inside_bounds(dataset)
    assert dataset.counts[1] < dataset.counts[0]
    assert not offline, "a socket was opened"
    again = data.load(name)
    assert (again.X == dataset.X).all()
    assert not np.shares_memory(again.X, dataset.X)


def test_bundled_sets_are_thinned_where_the_class_is_not_rare():
    assert data.load("breast_cancer").counts.tolist() == [357, 36]
    assert data.load("wine").counts.tolist() == [130, 13]
    assert data.load("digits").counts.tolist() == [1623, 174]


def test_gaussian_mixture_is_the_one_of_the_figure():
    dataset = data.load("gaussian_mixture", n=200_000, seed=5)
    share = binomtest(int(dataset.counts[1]), dataset.n).proportion_ci(0.999, method="exact")
    assert share.low <= 0.1 <= share.high
    for label, mean in ((0, [0, 0]), (1, [4, 4])):
        X = dataset.X[dataset.y == label]
        assert X.mean(axis=0).tolist() == pytest.approx(mean, abs=5 * 2 / math.sqrt(len(X)))
        assert np.cov(X.T).ravel().tolist() == pytest.approx([4, 0, 0, 4], abs=5 * 4 * math.sqrt(2 / len(X)))


@pytest.mark.parametrize("options", [{"n": 0}, {"seed": -1}, {"seed": None}])
def test_gaussian_mixture_refuses_bad_parameters(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        data.gaussian_mixture(**options)


# ------------------------------------------------------------------------------------------------ the catalogue


def test_available_agrees_with_what_is_loaded():
    table = data.available().set_index("name")
    assert set(BENCHMARK) == set(PUBLISHED)
    assert set(BENCHMARK) < set(table.index)
    assert (table.loc[list(BUILTIN), "where"].to_numpy() == ["simulated", "bundled", "bundled", "bundled"]).all()
    for name in ("breast_cancer", "digits", "wine", "ecoli", "mammography", "madelon"):
        dataset = data.load(name)
        row = table.loc[name]
        assert (row["n"], row["features"]) == (dataset.n, dataset.n_features)
        assert row["classes"] == len(dataset.class_names)
        assert row["imbalance_ratio"] == round(dataset.imbalance_ratio, 1)


def test_available_opens_no_file_and_says_where(offline, monkeypatch, tmp_path):
    monkeypatch.setattr(files, "verify", lambda *args: pytest.fail("a file was read"))
    where = data.available().set_index("name")["where"]
    assert where[["mammography", "adult", "ham10000"]].tolist() == ["download", "download", "by hand"]
    for folder, label in ((tmp_path / "empty", "DPBOOK_DATA"), (paths.data_cache(), "cache")):
        target = folder / file_of("mammography")
        target.parent.mkdir(parents=True)
        target.touch()
        assert data.available().set_index("name").loc["mammography", "where"] == label
        target.unlink()
    assert not offline


def test_unknown_names_and_options_are_refused():
    with pytest.raises(ValueError, match=r"name must be one of .*yeast_me2.* \(did you mean 'mammography'\?\)"):
        data.load("mamography")
    with pytest.raises(ValueError, match="name must be one of"):
        data.load(25)
    for name in ("adult", "ecoli", "wine", "my.csv"):
        with pytest.raises(TypeError, match="unexpected keyword argument 'drop'"):
            data.load(name, drop=True)
    with pytest.raises(ValueError, match="incomplete must be one of"):
        data.load("adult", incomplete="keep")


@pytest.mark.parametrize("name", ["mammography", "ecoli", "adult", "kddcup99", "electricity", "madelon", "ham10000"])
def test_offline_and_absent_is_said_quickly_and_with_the_three_ways(offline, name):
    started = time.perf_counter()
    with pytest.raises(data.DatasetUnavailable) as caught:
        data.load(name)
    assert time.perf_counter() - started < 5
    message = str(caught.value)
    for way in ("DPBOOK_DATA", "../shared/data", "get online", name):
        assert way in message
    assert file_of(name) in message
    assert bool(offline) == (name != "ham10000")


def test_a_network_that_never_answers_is_given_up(offline, monkeypatch):
    released = threading.Event()

    def hang(*args, **kwargs):
        released.wait(5)
        raise OSError("given up")

    monkeypatch.setattr(requests, "head", hang)
    monkeypatch.setattr(files, "PROBE_SECONDS", -0.8)
    with pytest.raises(data.DatasetUnavailable, match=r"no answer from https://zenodo\.org"):
        data.load("mammography")
    released.set()


# ------------------------------------------------------------------------------------------- files and downloads


def place(folder, relative, content=None):
    target = folder / relative
    target.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        shutil.copyfile(files.find({relative: None}) / relative, target)
    else:
        target.write_bytes(content)
    return target


def test_a_damaged_file_is_an_error_that_names_it(offline, tmp_path):
    relative, expected = next(iter(card("mammography").files.items()))
    place(tmp_path / "empty", relative, b"abc")
    with pytest.raises(data.ChecksumMismatch) as caught:
        data.load("mammography")
    found = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # SHA-256 of "abc", FIPS 180-2
    assert all(part in str(caught.value) for part in ("x25data.npz", expected, found))


def test_the_first_folder_wins(tmp_path, monkeypatch):
    relative = file_of("ecoli")
    data.load("ecoli")
    place(tmp_path, relative)
    monkeypatch.setenv("DPBOOK_DATA", str(tmp_path))
    assert files.find({relative: None}) == tmp_path
    assert data.available().set_index("name").loc["ecoli", "where"] == "DPBOOK_DATA"
    assert data.load("ecoli").n == 336


def pretend_online(monkeypatch):
    monkeypatch.setattr(files, "_offline_reason", lambda url: None)


def write_benchmark(target, name, **changes):
    """A file of the right shape and ratio, but for the changes."""
    known = card(name)
    n_minority = round(known.n / (1 + known.ratio))
    arrays = {
        "data": np.zeros((known.n, known.n_features)),
        "label": np.repeat([-1, 1], [known.n - n_minority, n_minority]),
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez(target, **arrays | changes)
    return target


def test_a_benchmark_set_is_downloaded_once_into_the_cache(offline, monkeypatch, tmp_path):
    pretend_online(monkeypatch)

    def retrieve(url, relative, *, sha256):
        made = write_benchmark(tmp_path / "made.npz", "scene").read_bytes()
        place(paths.data_cache(), relative, tar(tmp_path, **{"x12data.npz": made}).read_bytes())
        return paths.data_cache()

    monkeypatch.setattr(files, "retrieve", retrieve)
    dataset = data.load("scene")
    assert dataset.counts.tolist() == [2230, 177]
    monkeypatch.setattr(files, "retrieve", lambda *args, **options: pytest.fail("downloaded twice"))
    assert data.load("scene").n == 2407


def test_a_download_that_breaks_is_reported_as_unavailable(offline, monkeypatch):
    pretend_online(monkeypatch)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **options: socket.create_connection(("x", 1)))
    with pytest.raises(data.DatasetUnavailable, match="scikit-learn's fetch_openml failed"):
        data.load("electricity")
    for name in ("ecoli", "kddcup99"):
        with pytest.raises(data.DatasetUnavailable, match=r"pooch failed: .*blocked"):
            data.load(name)


def test_the_rebuilt_scene_is_checked_but_the_publishers_is_not(offline, tmp_path):
    content = write_benchmark(tmp_path / "scene.npz", "scene")
    target = place(paths.data_cache(), file_of("scene"), content.read_bytes())
    assert data.load("scene").n == card("scene").n
    target.unlink()
    place(tmp_path / "empty", file_of("scene"), content.read_bytes())
    with pytest.raises(data.ChecksumMismatch):
        data.load("scene")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros((9, 294))}, r"numbers of shape \(2407, 294\) as 'data', got float64 of shape \(9, 294\)"),
        ({"data": np.zeros((2407, 294), dtype="U1")}, "must hold numbers"),
        ({"label": np.zeros((16, 10))}, r"shape \(2407,\) as 'label', got float64 of shape \(16, 10\)"),
    ],
)
def test_another_size_is_refused_where_no_checksum_is_known(offline, monkeypatch, changes, message):
    target = paths.data_cache() / file_of("scene")
    write_benchmark(target, "scene", **changes)
    with pytest.raises(data.UnexpectedData, match=message):
        data.load("scene")


def test_a_damaged_npz_is_unexpected_data(tmp_path):
    file = tmp_path / "damaged.npz"
    np.savez(file, other=np.zeros((2, 2)), texts=np.array([["a"]], dtype=object))
    whole = file.read_bytes()
    for content, name in ((b"abc", "other"), (whole[:-9], "other"), (whole, "data"), (whole, "texts")):
        file.write_bytes(content)
        with pytest.raises(data.UnexpectedData, match=r"damaged\.npz cannot be read"):
            files.read_npz(file, {name: (2, 2)})


def tar(folder, **members) -> tuple:
    archive = folder / "sets.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(f"../{name}")
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return archive


def test_one_member_is_taken_out_of_an_archive_and_nothing_else(tmp_path):
    archive, target = tar(tmp_path, other=b"no", x13=b"abc"), tmp_path / "out" / "x13"
    target.parent.mkdir()
    files.extract_member(archive, target)
    assert target.read_bytes() == b"abc"
    assert [path.name for path in target.parent.iterdir()] == ["x13"]


def test_a_damaged_archive_leaves_no_file(tmp_path):
    archive, target = tar(tmp_path, x13=bytes(10**6)), tmp_path / "x13"
    with pytest.raises(data.UnexpectedData, match="has no file 'x14'"):
        files.extract_member(archive, tmp_path / "x14")
    archive.write_bytes(archive.read_bytes()[:500])
    with pytest.raises(data.UnexpectedData, match="cannot be read"):
        files.extract_member(archive, target)
    assert not target.exists()


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A web server on this machine, and the paths that it was asked for."""
    pages, asked = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200 if self.path in pages else 404)
            self.end_headers()
            self.wfile.write(pages.get(self.path, b""))

        def log_message(self, *args):
            pass

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", pages, asked
        running.shutdown()


def test_a_file_is_retrieved_once_checked_and_never_half(server):
    url, pages, asked = server
    content = bytes(3 * 2**20)
    sha256 = hashlib.sha256(content).hexdigest()
    pages["/file"] = content
    target = files.retrieve(f"{url}/file", "sets/file", sha256=sha256) / "sets/file"
    assert target == paths.data_cache() / "sets/file"
    assert target.read_bytes() == content
    files.retrieve(f"{url}/file", "sets/file", sha256=sha256)
    assert asked == ["/file"]
    for name, wrong, error in (
        ("file", "0" * 64, data.ChecksumMismatch),
        ("absent", sha256, OSError),
    ):
        with pytest.raises(error):
            files.retrieve(f"{url}/{name}", "sets/again", sha256=wrong)
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_a_benchmark_set_comes_out_of_the_publishers_archive(server, monkeypatch, tmp_path):
    url, pages, asked = server
    content = write_benchmark(tmp_path / "made.npz", "scene").read_bytes()
    pages["/sets.tar.gz"] = tar(tmp_path, **{"x12data.npz": content}).read_bytes()
    pretend_online(monkeypatch)
    monkeypatch.setattr(paths, "data_folders", lambda: [paths.data_cache()])
    monkeypatch.setattr(catalogue, "ARCHIVE_URL", f"{url}/sets.tar.gz")
    assert data.load("scene").counts.tolist() == [2230, 177]
    with pytest.raises(data.UnexpectedData, match=r"has no file 'x1data\.npz'"):
        data.load("ecoli")
    assert asked == ["/sets.tar.gz"]


def openml_adult(frame):
    text = {column.name for column in card("adult").schema.columns if column.levels}
    frame = frame.rename(columns={"income": "class"})
    return frame.assign(**{name: frame[name].replace("?", np.nan).astype("category") for name in text})


def test_openmls_table_gives_the_same_records_as_the_files(offline, monkeypatch):
    row = first_of("adult")
    rows = [row | {"income": "<=50K"}, row | {"workclass": "?", "age": 30, "income": ">50K."}]
    frame = pd.DataFrame(rows)
    monkeypatch.setattr(catalogue, "_adult_frame", lambda: frame)
    from_files = data.load("adult")
    monkeypatch.undo()
    monkeypatch.setattr(paths, "data_folders", list)
    monkeypatch.setattr(catalogue, "_openml", lambda *args, **kwargs: openml_adult(frame))
    from_openml = data.load("adult")
    assert (from_openml.X == from_files.X).all()
    assert from_openml.y.tolist() == from_files.y.tolist() == [0, 1]
    others = dict.fromkeys(card("electricity").schema.feature_names[2:], 0.5)
    electric = pd.DataFrame({"date": [0.0, 0.1], "day": pd.Categorical(["2", "7"]), "class": ["UP", "DOWN"], **others})
    monkeypatch.setattr(catalogue, "_openml", lambda *args, **kwargs: electric)
    assert data.load("electricity").X.tolist() == [[0.0, 2.0, *[0.5] * 6], [0.1, 7.0, *[0.5] * 6]]
    made = pd.DataFrame(np.full((2, 500), 5.0), columns=[f"V{k + 1}" for k in range(500)]).assign(Class=["1", "2"])
    monkeypatch.setattr(catalogue, "_openml", lambda *args, **kwargs: made)
    assert data.load("madelon").y.tolist() == [0, 1]


def test_openml_tables_of_another_size_or_label_set_are_refused(offline, monkeypatch):
    pretend_online(monkeypatch)
    for rows, labels, message in (
        (45311, ["UP", "DOWN"], "must have 45,312 records, got 45,311"),
        (45312, ["UP", "SIDEWAYS"], r"labels of 'electricity' must be \['DOWN', 'UP'\]"),
    ):
        frame = pd.DataFrame({"day": 1, "class": np.resize(labels, rows)})
        bunch = type("Bunch", (), {"frame": frame})
        monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda bunch=bunch, **options: bunch)
        with pytest.raises(data.UnexpectedData, match=message):
            data.load("electricity")


def test_kddcup99_is_downloaded_as_the_very_file_that_is_checked(offline, monkeypatch):
    pretend_online(monkeypatch)
    seen = []

    def retrieve(url, relative, *, sha256):
        seen.append((relative, sha256))
        lines = [",".join([*map(str, first_of("kddcup99").values()), label]) for label in ("normal.", "smurf.")]
        place(paths.data_cache(), relative.removesuffix(".gz"), "\n".join(lines).encode())
        pd.read_csv(paths.data_cache() / relative.removesuffix(".gz"), header=None).to_csv(
            paths.data_cache() / relative, header=False, index=False
        )
        return paths.data_cache()

    monkeypatch.setattr(files, "retrieve", retrieve)
    dataset = data.load("kddcup99")
    assert seen == list(card("kddcup99").files.items())
    assert dataset.y.tolist() == [1, 0]
    assert_one_hot_blocks(dataset)


def test_a_level_outside_the_public_list_is_refused(monkeypatch):
    row = first_of("adult")
    frame = pd.DataFrame([row | {"race": "Martian", "income": ">50K"}])
    monkeypatch.setattr(catalogue, "_adult_frame", lambda: frame)
    with pytest.raises(ValueError, match="column 'race' has 1 of 1 rows that are not one of White, ") as caught:
        data.load("adult")
    assert "Martian" not in str(caught.value)


# -------------------------------------------------------------------------------------- Dataset and its operations


def toy(n0=40, n1=10, **fields):
    X = np.arange(2.0 * (n0 + n1)).reshape(-1, 2)
    return data.Dataset("toy", X, [0] * n0 + [1] * n1, ("a", "b"), **fields)


def test_nothing_mutable_is_shared():
    X, bounds = np.zeros((3, 1)), np.array([[0.0, 1.0]])
    dataset = data.Dataset("toy", X, [0, 0, 1], ("a",), bounds=bounds)
    X[0], bounds[0, 1] = 9, 9
    assert dataset.X[0, 0] == 0
    assert dataset.bounds[0, 1] == 1
    for derived in (dataset, dataset.take([0, 2]), data.unit_ball(dataset), data.load("wine")):
        for array in (derived.X, derived.y, derived.bounds):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.X = X


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"X": [1.0, 2.0]}, "X must be an array of shape"),
        ({"X": [[math.nan], [1.0]]}, "X must be finite"),
        ({"y": [0]}, "y must be an array of shape"),
        ({"y": [0, 2]}, "y must be codes"),
        ({"groups": ["a"]}, "groups must be an array of shape"),
        ({"feature_names": ("a", "b")}, "feature_names must be 1 names"),
        ({"bounds": [[0, 1], [0, 1]]}, "bounds must be finite, of shape"),
        ({"bounds": [[1, 0]]}, "bounds must be finite, of shape"),
    ],
)
def test_dataset_refuses_what_does_not_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        data.Dataset(**({"name": "bad", "X": [[1.0], [2.0]], "y": [0, 1], "feature_names": ("a",)} | fields))


def test_counts_ratio_and_repeats():
    dataset = data.Dataset("toy", [[0.0], [-0.0], [1.0], [0.0]], [0, 0, 0, 1], ("a",))
    assert (dataset.counts.tolist(), dataset.imbalance_ratio, dataset.n_repeated) == ([3, 1], 3, 2)
    assert toy(n1=0).imbalance_ratio == math.inf
    three = data.Dataset("toy", np.eye(6), [0, 0, 0, 1, 1, 2], "abcdef", class_names=("p", "q", "r"))
    assert three.imbalance_ratio == 3


def test_take_moves_every_column_of_a_record_together():
    dataset = toy(groups=np.arange(50))
    taken = dataset.take([49, 0, 0])
    assert taken.X[:, 0].tolist() == [98, 0, 0]
    assert taken.y.tolist() == [1, 0, 0]
    assert taken.groups.tolist() == [49, 0, 0]
    assert dataset.take(np.arange(50) == 49).groups.tolist() == [49]
    with pytest.raises(IndexError):
        dataset.take(np.array([0.5]))


@given(
    n0=st.integers(1, 60),
    n1=st.integers(1, 30),
    n=st.integers(2, 100),
    ratio=st.floats(0.2, 50),
    seed=st.integers(0, 2**32 - 1),
)
def test_subsample_draws_distinct_records_at_the_ratio_or_says_how_many_there_are(n0, n1, n, ratio, seed):
    dataset = toy(n0, n1)
    wanted = math.floor(n / (1 + ratio) + 0.5)
    if wanted < 1 or wanted == n:
        with pytest.raises(ValueError, match="ratio must leave both classes a record"):
            data.subsample(dataset, n, ratio, np.random.default_rng(seed))
        return
    if wanted > n1 or n - wanted > n0:
        with pytest.raises(ValueError, match=rf"needs \d+ m.* records and 'toy' has ({n0}|{n1})$"):
            data.subsample(dataset, n, ratio, np.random.default_rng(seed))
        return
    drawn = data.subsample(dataset, n, ratio, np.random.default_rng(seed))
    assert drawn.counts.tolist() == [n - wanted, wanted]
    assert drawn.n_repeated == 0
    assert (drawn.y == (drawn.X[:, 0] >= 2 * n0)).all()
    again = data.subsample(dataset, n, ratio, np.random.default_rng(seed))
    assert (again.X == drawn.X).all()


def test_subsample_takes_every_record_equally_often():
    dataset, rng = toy(8, 4), np.random.default_rng(7)
    drawn = np.concatenate([data.subsample(dataset, 6, 2, rng).X[:, 0] for _ in range(400)])
    counts = np.unique(drawn, return_counts=True)[1]
    assert counts.size == 12
    for count in counts:
        # Four of eight and two of four: every record has probability 1/2; twelve looks at once.
        interval = binomtest(int(count), 400).proportion_ci(1 - 1e-4, method="exact")
        assert interval.low <= 0.5 <= interval.high


def test_subsample_of_mammography_says_what_is_infeasible(mammography):
    rng = np.random.default_rng(0)
    assert data.subsample(mammography, 2000, 8, rng).counts.tolist() == [1778, 222]
    with pytest.raises(ValueError, match="needs 2000 minority records and 'mammography' has 260"):
        data.subsample(mammography, 10_000, 4, rng)
    with pytest.raises(ValueError, match="needs 10954 majority records and 'mammography' has 10923"):
        data.subsample(mammography, 11_183, 47.9, rng)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 1}, "n must be an integer"),
        ({"n": 10.0}, "n must be an integer"),
        ({"ratio": 0}, "ratio must be"),
        ({"rng": 3}, "rng must be a numpy.random.Generator"),
    ],
)
def test_subsample_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        data.subsample(toy(), **({"n": 10, "ratio": 4, "rng": np.random.default_rng(0)} | arguments))


def test_subsample_needs_two_classes():
    three = data.Dataset("toy", np.eye(3), [0, 1, 2], "abc", class_names=("p", "q", "r"))
    with pytest.raises(ValueError, match="dataset must have two classes"):
        data.subsample(three, 2, 1, np.random.default_rng(0))


def test_split_is_stratified_disjoint_and_repeatable(mammography):
    train, test = data.split(mammography, test_size=0.25, seed=3)
    assert (train.n + test.n, test.n) == (11183, math.ceil(11183 / 4))
    assert test.counts[1] == 65
    again = data.split(mammography, test_size=0.25, seed=3)[1]
    assert (again.X == test.X).all()
    assert not (data.split(mammography, test_size=0.25, seed=4)[1].X == test.X).all()
    rows = toy()
    parts = data.split(rows, test_size=0.3, seed=0)
    assert sorted(np.concatenate([part.X[:, 0] for part in parts])) == sorted(rows.X[:, 0])


@given(seed=st.integers(0, 10_000), test_size=st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5, 1 / 3]))
def test_split_never_shares_a_group(seed, test_size):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 60, 300)
    dataset = data.Dataset("toy", np.arange(300.0)[:, None], groups % 5 == 0, ("a",), groups=groups)
    train, test = data.split(dataset, test_size=test_size, seed=seed)
    assert set(train.groups).isdisjoint(test.groups)
    assert sorted([*train.X[:, 0], *test.X[:, 0]]) == list(range(300))
    assert test.n / 300 == pytest.approx(test_size, abs=0.1)


@pytest.mark.parametrize("arguments", [{"test_size": 0}, {"test_size": 1.0}, {"seed": 1.5}, {"seed": -1}])
def test_split_refuses_bad_arguments(arguments):
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} must be"):
        data.split(toy(), **({"test_size": 0.2, "seed": 0} | arguments))
    with pytest.raises(ValueError, match="for grouped records"):
        data.split(toy(groups=np.arange(50)), test_size=0.01, seed=0)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 30), d=st.integers(1, 40), spread=st.floats(0.1, 1e6))
def test_unit_ball_bounds_every_row_and_touches_each_record_alone(seed, n, d, spread):
    rng = np.random.default_rng(seed)
    low = rng.normal(0, spread, d)
    bounds = np.column_stack([low, low + rng.exponential(spread, d)])
    # Corners of the box, where rounding could push the norm above one, and points far outside.
    corners = np.where(rng.random((n, d)) < 0.5, bounds[:, 0], bounds[:, 1])
    X = np.vstack([corners, rng.normal(0, 3 * spread, (n, d))])
    dataset = data.Dataset("toy", X, np.zeros(2 * n, dtype=int), [f"x{j}" for j in range(d)], bounds=bounds)
    mapped = data.unit_ball(dataset)
    assert (np.linalg.norm(mapped.X, axis=1) <= 1).all()
    assert np.linalg.norm(mapped.X[:n], axis=1).tolist() == pytest.approx([1.0] * n, abs=1e-6)
    assert ((mapped.X >= mapped.bounds[:, 0]) & (mapped.X <= mapped.bounds[:, 1])).all()
    alone = data.unit_ball(dataset.take([2 * n - 1]))
    assert (alone.X[0] == mapped.X[-1]).all()
    side = (bounds[:, 1] - bounds[:, 0]) / 2 * math.sqrt(d)
    restored = mapped.X * side + bounds.mean(axis=1)
    clipped = np.clip(X, bounds[:, 0], bounds[:, 1])
    assert np.abs(restored - clipped).max() <= 1e-9 * (np.abs(bounds).max() + 1)


def test_unit_ball_needs_bounds_and_sends_constants_to_zero(mammography):
    with pytest.raises(ValueError, match="bounds must be declared"):
        data.unit_ball(toy())
    assert data.unit_ball(toy(bounds=[[0, 100], [5, 5]])).X[:, 1].tolist() == [0] * 50
    mapped = data.unit_ball(mammography)
    assert np.linalg.norm(mapped.X, axis=1).max() <= 1
    assert mapped.y.tolist() == mammography.y.tolist()
    assert mammography.bounds_basis in mapped.bounds_basis


def test_an_error_of_the_publishers_server_is_an_answer(server):
    url, _, _ = server  # which knows no HEAD
    assert requests.head(url, timeout=3).status_code == 501
    assert files._offline_reason(url) is None


def test_an_incomplete_openml_cache_is_no_answer(offline, monkeypatch):
    (paths.data_cache() / "madelon" / "openml").mkdir(parents=True)
    attempts = []

    def fail(**options):
        attempts.append(options["data_id"])
        raise OSError("not in the cache")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fail)
    with pytest.raises(data.DatasetUnavailable, match="no connection to"):
        data.load("madelon")
    assert attempts == [1485]


def test_corners_of_the_box_stay_inside_the_ball_in_floating_point():
    dimensions = range(1, 400)
    naive = [np.linalg.norm(np.full((1, d), 1 / math.sqrt(d)), axis=1)[0] for d in dimensions]
    assert max(naive) > 1, "without shrinking some corner leaves the ball"
    for d in dimensions:
        names = [f"x{j}" for j in range(d)]
        corner = data.Dataset("corner", np.ones((1, d)), [0], names, bounds=np.tile([0, 1], (d, 1)))
        assert np.linalg.norm(data.unit_ball(corner).X, axis=1)[0] <= 1


def test_is_available_opens_no_file(offline, monkeypatch, tmp_path):
    monkeypatch.setattr(files, "verify", lambda *args: pytest.fail("a file was read"))
    assert data.is_available("wine")
    assert not data.is_available("mammography")
    place(tmp_path / "empty", file_of("mammography"), b"")
    assert data.is_available("mammography")
    assert not data.is_available("madelon")
    (paths.data_cache() / "madelon" / "openml").mkdir(parents=True)
    assert data.is_available("madelon")
    with pytest.raises(ValueError, match="did you mean 'mammography'"):
        data.is_available("mamography")
    assert not offline


def test_into_ball_does_not_overflow_for_wide_boxes():
    bounds = np.array([[-1.7e308, 1.7e308], [0.0, 5e-324]])
    mapped = data.into_ball(np.array([[1.7e308, 1.0], [-1.7e308, -1.0], [0.0, 0.0]]), bounds, radius=3.0)
    assert mapped[:, 0].tolist() == pytest.approx([3 / math.sqrt(2), -3 / math.sqrt(2), 0])
    assert (np.linalg.norm(mapped, axis=1) <= 3).all()


def test_importing_leaves_no_noise_in_a_notebook():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("from helpers import data")])
    NotebookClient(notebook, kernel_name="python3").execute()
    assert notebook.cells[0].outputs == []


# ----------------------------------------------------------------------------------- equal rows


def test_equal_rows_are_never_on_both_sides():
    whole = data.load("mammography")
    grouped = data.group_repeats(whole)
    assert len(set(grouped.groups)) == whole.n - whole.n_repeated
    train, test = data.split(grouped, 0.3, 0)
    assert not {bytes(row) for row in train.X} & {bytes(row) for row in test.X}
    assert train.n + test.n == whole.n


def test_groups_are_not_replaced():
    with pytest.raises(ValueError, match="dataset must have no groups yet, got 'mammography' with 7848"):
        data.group_repeats(data.group_repeats(data.load("mammography")))
