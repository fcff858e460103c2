"""A card for every named data set: what a record is, what the minority is, how many there are, which bounds are public.

Whether a guarantee protects somebody depends on what a record is: a person, one of several pictures of a person, or
nobody. No data file is opened; numbers that would need one are written down here, and tests hold them against the
files. How a card looks is left to `book/_ext`.
"""

from collections import Counter
from dataclasses import dataclass

from helpers.data import benchmark, catalogue
from helpers.data.dataset import Dataset

_MOST_RANGES = 12
_ABALONE = "an abalone, a sea snail: its sex, lengths and weights"
_CAR = "a car by six attributes of price and comfort; all 1,728 combinations, so a record is nobody's"
_PATIENT = "a patient whose thyroid was examined"

# What a record is, what the minority is, and rows whose X occurred in an earlier row (None: the file was not at hand).
_CARDS: dict[str, tuple[str, str, int | None]] = {
    "gaussian_mixture": ("a simulated point", "a point of the second normal distribution", 0),
    "breast_cancer": ("a needle biopsy of a breast, by its cell nuclei", "malignant, thinned to one in eleven", 0),
    "digits": ("a handwritten digit, 8 x 8 pixels", "the digit 8", 0),
    "wine": ("a wine, by chemical analysis", "the third cultivar, thinned to one in eleven", 0),
    "ecoli": ("a protein of a bacterium, by scores for its place in the cell", "at the inner membrane (imU)", 0),
    "optical_digits": ("a handwritten digit, counts of 8 x 8 blocks of pixels", "the digit 8", None),
    "satimage": ("a pixel of a satellite's image and its eight neighbours, in four bands", "damp grey soil", 0),
    "pen_digits": ("a digit written on a tablet, eight points of its path", "the digit 5", 0),
    "abalone": (_ABALONE, "7 rings, which tell the age", 0),
    "sick_euthyroid": (_PATIENT, "sick euthyroid", None),
    "spectrometer": ("a source in the sky, by its infrared spectrum", "class 44 or above", 0),
    "car_eval_34": (_CAR, "rated good or very good", 0),
    "isolet": ("the name of a letter, spoken by a person who speaks many", "the letters A and B", None),
    "us_crime": ("a community in the United States", "a rate of violent crime above 0.65 (normalised)", None),
    "yeast_ml8": ("a gene of yeast, by its expression and phylogeny", "has label 8", 0),
    "scene": ("a photograph, by colours of its parts", "has more than one label", 9),
    "libras_move": ("a movement of a hand in Brazilian sign language", "the first of 15 movements", None),
    "thyroid_sick": (_PATIENT, "sick", None),
    "coil_2000": ("a customer of an insurer, and the customer's postal area", "holds a caravan policy", 1561),
    "arrhythmia": ("a patient, by an electrocardiogram", "sinus bradycardia (class 06)", 0),
    "solar_flare_m0": ("an active region of the sun on a day", "a flare of class M within a day", 1011),
    "oil": ("a dark patch in a radar image of the sea", "an oil slick", None),
    "car_eval_4": (_CAR, "rated very good", 0),
    "wine_quality": ("a white wine, by chemical analysis", "a quality of at most 4", None),
    "letter_img": ("a printed capital letter, by 16 numbers of its image", "the letter Z", 1332),
    "yeast_me2": ("a protein of yeast, by scores for its place in the cell", "a membrane protein (ME2)", 31),
    "webpage": ("a web page, by 300 words", "the publisher's smaller class", None),
    "ozone_level": ("a day's weather in Houston", "an ozone day", None),
    "mammography": ("a spot in a mammogram; a person may have several", "a calcification", 3335),
    "protein_homo": ("a pair of proteins, by how they fit", "they are related", None),
    "abalone_19": (_ABALONE, "19 rings, which tell the age", 0),
    "adult": ("a person in the census of 1994", "an income above 50,000 dollars", 57),
    "kddcup99": ("a connection in a simulated network", "no denial of service", 348437),
    "electricity": ("half an hour of the market of New South Wales", "the price goes up (42 %)", 0),
    "madelon": ("an artificial point", "none: both classes have 1,300 records", 0),
    "ham10000": ("a picture of a lesion of the skin; a lesion has up to six", "a dermatofibroma, of 7 classes", 2),
}

_SMALLEST = {"ham10000": 115}  # of several classes


@dataclass(frozen=True)
class Card:
    """What is known of a data set, with default options, without opening its file.

    Attributes
    ----------
    name, group : str
        `group` is where it comes from, in a few words.
    record, minority : str
        What a record is, and one of the minority.
    n, n_features, n_minority : int
        The last is about right where `is_counted` is False: only the ratio is known.
    is_counted : bool
    n_repeated : int or None
        Records whose features are those of an earlier one; None where the file was not at hand.
    bounds, basis : str
        Ranges of the features, and why they may be called public.
    source, licence : str
    """

    name: str
    group: str
    record: str
    minority: str
    n: int
    n_features: int
    n_minority: int
    is_counted: bool
    n_repeated: int | None
    bounds: str
    basis: str
    source: str
    licence: str


def card(name: str) -> Card:
    """The card of a named data set.

    Raises
    ------
    ValueError
        Unknown name.

    >>> mammography = card("mammography")
    >>> mammography.n_minority, mammography.n_repeated, mammography.bounds[:33]
    (260, 3335, 'area -1 to 32, grey_level -1 to 6')
    """
    outline, entry, specs = catalogue.outline(name), catalogue.entry(name), benchmark.BENCHMARKS
    record, minority, n_repeated = _CARDS[name]
    others = "Larger public sets" if entry.files else "Simulated, or bundled with scikit-learn"
    return Card(
        name,
        "The benchmark of imbalanced-learn" if name in specs else others,
        record,
        minority,
        entry.n,
        entry.n_features,
        _SMALLEST.get(name, round(entry.n / (1 + entry.ratio))),
        name != "gaussian_mixture" and (name not in specs or specs[name].n_minority is not None),
        n_repeated,
        _ranges(outline),
        outline.bounds_basis,
        outline.source,
        outline.licence,
    )


def cards() -> list[Card]:
    """All cards, in the order of the catalogue."""
    return [card(name) for name in catalogue.available().name]


def _ranges(outline: Dataset) -> str:
    """The bounds in words: by name where few features are not in [0, 1], otherwise each range with its frequency."""
    if outline.bounds is None:
        return "none declared"
    pairs = [tuple(pair) for pair in outline.bounds.tolist()]
    named = {name: pair for name, pair in zip(outline.feature_names, pairs, strict=True) if pair != (0, 1)}
    if len(set(pairs)) == 1:
        return f"each {_words(pairs[0])}"
    if len(named) <= _MOST_RANGES and "x1" not in outline.feature_names:
        rest = ["all others 0 to 1"] if len(named) < len(pairs) else []
        return ", ".join([*(f"{name} {_words(pair)}" for name, pair in named.items()), *rest])
    counted = Counter(pairs)
    if len(counted) > _MOST_RANGES:
        return f"{len(counted)} ranges between {min(pairs)[0]:,.9g} and {max(high for _, high in pairs):,.9g}"
    return ", ".join(f"{_words(pair)}" + (f" ({n} features)" if n > 1 else "") for pair, n in counted.items())


def _words(pair: tuple[float, float]) -> str:
    return " to ".join(f"{end:,.9g}" for end in pair)
