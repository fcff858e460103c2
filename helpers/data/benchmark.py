"""The 27 sets of imbalanced-learn's benchmark (Ding 2011; Zenodo record 61452).

Rows keep the publisher's order, labels become 1 for the minority, and every set whose file could be inspected carries
declared bounds. Eleven sets can only be had from the publisher's archive: no SHA-256 and no bounds are known of them,
and their size, label set and imbalance are compared with the published ones. Shuffling and splitting are left to
`helpers.data.split`.
"""

from dataclasses import dataclass, replace

import numpy as np

from helpers import paths
from helpers.data import files
from helpers.data.dataset import Dataset

PUBLISHER = "https://zenodo.org"
ARCHIVE_URL = f"{PUBLISHER}/record/61452/files/benchmark-imbalanced-learn.tar.gz"
ARCHIVE = "imblearn/benchmark-imbalanced-learn.tar.gz"
MAX_ARCHIVE_BYTES = 500 * 2**20  # all 27 sets take 370 MB before compression
_PUBLISHED = "published with the benchmark and treated as public"
_ONE_HOT = "one-hot columns, 0 or 1 by the encoding"

Bounds = tuple[tuple[float, float, int], ...]  # (lower, upper, number of columns)


@dataclass(frozen=True)
class Benchmark:
    """What is known of one benchmark set without opening its file."""

    id: int
    n: int
    n_features: int
    n_minority: int | None  # None: only the published ratio is known
    ratio: float
    positive: str
    sha256: str | None = None
    rebuilt: bool = False
    bounds: Bounds | None = None
    basis: str = "none declared: the file was not at hand when the bounds were written down"
    names: tuple[str, ...] | None = None

    @property
    def relative(self) -> str:
        """Where imbalanced-learn's own client keeps the file, so that its cache serves too."""
        return f"imblearn/zenodo/x{self.id}data.npz"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Arrays of the file."""
        return {"data": (self.n, self.n_features), "label": (self.n,)}

    @property
    def max_bytes(self) -> int:
        """More than the file can take: eight bytes a number, and a mebibyte of headers."""
        return 8 * self.n * (self.n_features + 1) + 2**20


def _levels(**attributes: str) -> tuple[str, ...]:
    return tuple(f"{attribute}={level}" for attribute, levels in attributes.items() for level in levels.split())


_PROTEIN = "mcg gvh lip chg aac alm1 alm2".split()
_YEAST = "mcg gvh alm mit erl pox vac nuc".split()
_ABALONE = (
    *_levels(sex="F I M"),
    *("length", "diameter", "height", "whole_weight", "shucked_weight", "viscera_weight", "shell_weight"),
)
_CAR = _levels(
    buying="high low med vhigh",
    maint="high low med vhigh",
    doors="2 3 4 5more",
    persons="2 4 more",
    lug_boot="big med small",
    safety="high low med",
)
# The file does not say which level a column stands for, only how many levels each attribute has.
_FLARE = _levels(
    zurich_class="#1 #2 #3 #4 #5 #6",
    spot_size="#1 #2 #3 #4 #5 #6",
    spot_distribution="#1 #2 #3 #4",
    activity="#1 #2",
    evolution="#1 #2 #3",
    previous_activity="#1 #2 #3",
    historically_complex="#1 #2",
    became_complex="#1 #2",
    area="#1 #2",
    largest_spot_area="#1 #2",
)
_LETTER = "x-box y-box width high onpix x-bar y-bar x2bar y2bar xybar x2ybr xy2br x-ege xegvy y-ege yegvx".split()
_PEN = tuple(f"{axis}{point}" for point in range(1, 9) for axis in "xy")
_MAMMOGRAPHY = ("area", "grey_level", "gradient_strength", "noise_fluctuation", "contrast", "shape_descriptor")

_ABALONE_BOUNDS = ((0, 1, 5), (0, 1.2, 1), (0, 3, 1), (0, 1.5, 1), (0, 1, 1), (0, 1.2, 1))
_ABALONE_BASIS = (
    "sex is one-hot; measurements: assumption, constants rounded outwards from the range table of UCI's description, "
    f"{_PUBLISHED}"
)

_UNIT = "assumption: scores that the publisher gives in [0, 1]"
_ARRHYTHMIA_BOUNDS = (
    *((0, 120, 1), (0, 1, 1), (0, 800, 1), (0, 200, 1)),  # age, sex, height (with typing errors), weight
    *((0, 300, 1), (0, 600, 2), (0, 400, 1), (0, 300, 1), (-180, 180, 4), (0, 250, 1)),  # intervals, angles, rate
    *((0, 250, 6), (0, 1, 6)) * 12,  # widths in ms and indicators of 12 channels
    *((-50, 50, 8), (-300, 300, 2)) * 12,  # amplitudes and areas of 12 channels
)
_COIL_BOUNDS = (
    *((1, 41, 1), (1, 10, 1), (1, 6, 2), (1, 10, 1)),  # subtype, houses, household size, age group, main type
    *((0, 9, 38), (0, 9, 21), (0, 12, 21)),  # percentage codes, contribution codes, numbers of policies
)

BENCHMARKS: dict[str, Benchmark] = {
    "ecoli": Benchmark(
        *(1, 336, 7, 35, 8.6, "imU", "126f2ec169536858333f98f5d80663e9f066d931cdd302f16941fc25a274ca8b"),
        bounds=((0, 1, 7),),
        basis=_UNIT,
        names=tuple(_PROTEIN),
    ),
    "optical_digits": Benchmark(2, 5620, 64, None, 9.1, "8"),
    "satimage": Benchmark(
        *(3, 6435, 36, 626, 9.3, "4", "06b3c247db5900d4c02a64e28188d7d6b3758019d06eb37db1dc3635d9f82253"),
        bounds=((0, 255, 36),),
        basis="8-bit spectral values, 0..255 by the encoding",
    ),
    "pen_digits": Benchmark(
        *(4, 10992, 16, 1055, 9.4, "5", "ce7affeab9461c0ec366c123bc6f88d2d9286ede43869594e031b3910609c78f"),
        bounds=((0, 100, 16),),
        basis="coordinates normalised per drawing to 0..100 by the publisher",
        names=_PEN,
    ),
    "abalone": Benchmark(
        *(5, 4177, 10, 391, 9.7, "7 rings", "660fbf73a93cfbd9cbdf3091827c5ea1986fbae4f833c52795b218224cecfeaf"),
        bounds=_ABALONE_BOUNDS,
        basis=_ABALONE_BASIS,
        names=_ABALONE,
    ),
    "sick_euthyroid": Benchmark(6, 3163, 42, None, 9.8, "sick euthyroid"),
    "spectrometer": Benchmark(
        *(7, 531, 93, 45, 11, ">= 44", "c8d4249f09c832089474606b09a0d3a3900265634951afea1bd0b593ea2bf852"),
        bounds=((-1000, 40000, 93),),
        basis=f"assumption: one wide constant range for all fluxes, {_PUBLISHED}",
    ),
    "car_eval_34": Benchmark(
        *(8, 1728, 21, 134, 12, "good, vgood"),
        "8da506a8d480473fbbcce6d6e0534246de40a3fa9261d3b740164a32499df10a",
        bounds=((0, 1, 21),),
        basis=_ONE_HOT,
        names=_CAR,
    ),
    "isolet": Benchmark(9, 7797, 617, None, 12, "A, B"),
    "us_crime": Benchmark(10, 1994, 100, None, 12, "> 0.65"),
    "yeast_ml8": Benchmark(
        *(11, 2417, 103, 178, 13, "label 8"),
        "b43b195c198551a1cde3dbbccb0fac131d44cd215bfce3452e5235cbbd4250fd",
        bounds=((-1, 1, 103),),
        basis="the publisher normalised every row to Euclidean norm 1",
    ),
    "scene": Benchmark(
        *(12, 2407, 294, 177, 13, "more than one label"),
        "c232a2184ac9ab573fa6e572bd5b3005be7f1a2d08bb5440bade524e36df005b",
        rebuilt=True,
        bounds=((0, 1, 294),),
        basis=f"assumption: scaled to [0, 1] over the whole set, itself not a private step, {_PUBLISHED}",
    ),
    "libras_move": Benchmark(13, 360, 90, None, 14, "1"),
    "thyroid_sick": Benchmark(14, 3772, 52, None, 15, "sick"),
    "coil_2000": Benchmark(
        *(15, 9822, 85, 586, 16, "has a caravan policy"),
        "6a8505313eb37a5437be17a8e1228037778c0990c169dab6a8cff8546d18fdba",
        bounds=_COIL_BOUNDS,
        basis="codes of the published data dictionary; numbers of policies: assumption, at most 12",
    ),
    "arrhythmia": Benchmark(
        *(16, 452, 278, 25, 17, "class 06"),
        "b4660c3fab15a32df0f35319b59f32b922db567051501d369241195b810e21da",
        bounds=_ARRHYTHMIA_BOUNDS,
        basis=f"assumption: one wide constant range per kind of measurement, {_PUBLISHED}",
    ),
    "solar_flare_m0": Benchmark(
        *(17, 1389, 32, 68, 19, "an M class flare"),
        "747755eaa617bf0af2706ff21d3415f4c1771dfd53859e19fcc11b04662448fb",
        bounds=((0, 1, 32),),
        basis=_ONE_HOT,
        names=_FLARE,
    ),
    "oil": Benchmark(18, 937, 49, None, 22, "minority"),
    "car_eval_4": Benchmark(
        *(19, 1728, 21, 65, 26, "vgood", "90371d46ac4c40742a37f714018421594a894c299d9f10bc7004f09876ba09c9"),
        bounds=((0, 1, 21),),
        basis=_ONE_HOT,
        names=_CAR,
    ),
    "wine_quality": Benchmark(20, 4898, 11, None, 26, "<= 4"),
    "letter_img": Benchmark(
        *(21, 20000, 16, 734, 26, "Z", "5508d65b0d49c3dd9d845ed453047f5db2c61fc4b38fdc32c53513b132de5e90"),
        bounds=((0, 15, 16),),
        basis="integers 0..15 by the publisher's scaling",
        names=tuple(_LETTER),
    ),
    "yeast_me2": Benchmark(
        *(22, 1484, 8, 51, 28, "ME2", "d6e541d50376f3c9720151125db68c8ba743fff74773b06318674fa748494bd4"),
        bounds=((0, 1, 8),),
        basis=_UNIT,
        names=tuple(_YEAST),
    ),
    "webpage": Benchmark(23, 34780, 300, None, 33, "minority"),
    "ozone_level": Benchmark(24, 2536, 72, None, 34, "ozone day"),
    "mammography": Benchmark(
        *(25, 11183, 6, 260, 42, "calcification"),
        "73480c315d42bc5b33c2c73b9078d0034113d26f0511facd9fc5bb07f2d6438a",
        bounds=((-1, 32, 1), (-1, 6, 1), (-1, 30, 1), (-1, 10, 1), (-1, 24, 1), (-1, 2, 1)),
        basis="assumption: constants rounded outwards from the ranges of the published file, treated as public; the "
        "publisher standardised the columns over the whole set, which is itself not a private step",
        names=_MAMMOGRAPHY,
    ),
    "protein_homo": Benchmark(26, 145751, 74, None, 111, "minority"),
    "abalone_19": Benchmark(
        *(27, 4177, 10, 32, 130, "19 rings"),
        "76122e2fafcd4c8cc272154c97d8d4c0f363e82e98bb493f116110f74c2ee3fc",
        bounds=_ABALONE_BOUNDS,
        basis=_ABALONE_BASIS,
        names=_ABALONE,
    ),
}
"""Sizes from the files where they were at hand, otherwise from imbalanced-learn's table. Source: Ding 2011."""


def licence(name: str) -> str:
    """Licence of the records under a benchmark set, as far as known."""
    if name in ("scene", "yeast_ml8", "webpage"):
        return "see Zenodo record 61452; records from LIBSVM"
    if name in ("mammography", "oil", "protein_homo"):
        return "see Zenodo record 61452"
    return "see Zenodo record 61452; records from UCI, CC BY 4.0"


def _download(name: str) -> None:
    """One set out of the publisher's archive, which is kept."""
    spec = BENCHMARKS[name]
    target = paths.data_cache() / spec.relative
    target.parent.mkdir(parents=True, exist_ok=True)
    archive = files.retrieve(ARCHIVE_URL, ARCHIVE, sha256=None, max_bytes=MAX_ARCHIVE_BYTES)
    files.extract_member(archive, target.name, target, max_bytes=spec.max_bytes)


def outline(name: str) -> Dataset:
    """What is public about a benchmark set: the data set without its records, for which no file is opened."""
    spec = BENCHMARKS[name]
    bounds = spec.bounds and np.repeat([pair[:2] for pair in spec.bounds], [pair[2] for pair in spec.bounds], axis=0)
    return Dataset(
        name=name,
        X=np.zeros((0, spec.n_features)),
        y=np.zeros(0),
        feature_names=spec.names or tuple(f"x{j + 1}" for j in range(spec.n_features)),
        bounds=bounds,
        bounds_basis=spec.basis,
        source="imbalanced-learn benchmark, Zenodo record 61452 (collection of Ding 2011)",
        licence=licence(name),
        class_names=("rest", spec.positive),
    )


def load_benchmark(name: str) -> Dataset:
    """One benchmark set; see `helpers.data.load`."""
    spec = BENCHMARKS[name]
    wanted = {spec.relative: spec.sha256}
    if spec.rebuilt and files.find(wanted) in (None, paths.data_cache()):
        wanted = {spec.relative: None}  # the publisher's file differs from the rebuilt one; its digest is not known
    folder = files.find_verified(wanted)
    if folder is None:
        files.fetch(name, wanted, PUBLISHER, "pooch", lambda: _download(name))
        folder = files.find_verified(wanted)
    arrays = files.read_npz(folder / spec.relative, spec.shapes)
    X, label = arrays["data"].astype(np.float64), arrays["label"]
    files.expect(name, rows=(len(X), spec.n), labels=(np.unique(label).tolist(), (-1, 1)))
    _check_imbalance(name, spec, int((label == 1).sum()))
    found = replace(outline(name), X=X, y=(label == 1).astype(np.int64))
    was_rebuilt = spec.rebuilt and wanted[spec.relative]
    return replace(found, source=f"{found.source}, rebuilt from the raw table") if was_rebuilt else found


def _check_imbalance(name: str, spec: Benchmark, n_minority: int) -> None:
    """The published ratio is rounded: to one decimal below 10, to an integer above."""
    ratio = (spec.n - n_minority) / n_minority
    if abs(ratio - spec.ratio) > (0.06 if spec.ratio < 10 else 0.6):
        raise files.UnexpectedData(f"data set {name!r} must have imbalance ratio {spec.ratio:g}, got {ratio:.3g}")
