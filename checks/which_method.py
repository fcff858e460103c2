"""For the page on choosing a method: the short list, rules that say beforehand what to expect, and a form for sizes.

The short list is three methods with all their settings; what was compared and what the page recommends are the same
functions. A rule is a cut on a size that is public (budget times rare records, say), judged on data sets that it was
not fitted to. The form takes sizes and a budget and shows recorded results of the most similar data sets; nothing is
fetched, and without JavaScript the answer to the first question stands there. `nearest` is the same choice in Python.
"""

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from checks import benchmark
from helpers.book.widgets import scripts
from helpers.data import Dataset, Domain
from helpers.meta import PartitionedSearch
from helpers.synthesis.aim import AIM

_NUMBERS = {"n": "records", "minority": "of the rare class", "features": "features", "epsilon": "epsilon"}
_SIZES = ["n", "minority", "features"]
_SCORES = {"balanced_accuracy": "decide (balanced accuracy)", "auc": "rank (AUC)"}
_SETS, _METHODS = 3, 3
_ID = "which-method-chooser"

N_BINS = 32  # of the marginals that private moments release
ASSUMED_SHARE = 0.05  # of the rare class, public: what the choice takes for a mistake on a common record
MOMENTS, OFFSET, SYNTHETIC = "moments", "offset logistic", "AIM + XGBoost"
SHORT_LIST = (MOMENTS, OFFSET, SYNTHETIC)
"""For sums of one function an attribute, for what is nearly linear, and for interactions."""
CHOICE = "private choice"


def public_delta(n: int) -> float:
    """The delta of every method here: far below one over the number of records, which replace-one makes public."""
    return float(n) ** -2.0


def learn(
    method: str, train: Dataset, epsilon: float, seed: int | None, *, delta: float | None = None
) -> benchmark.Scores:
    """A method of the short list, or the choice among them, with all its settings; replace-one.

    Parameters
    ----------
    method : str
        Of `SHORT_LIST`, or `CHOICE`.
    train : Dataset
        With public bounds.
    epsilon : float
    seed : int or None
    delta : float, optional
        `public_delta` of the records if left out.
    """
    delta = public_delta(train.n) if delta is None else delta
    if method == MOMENTS:
        domain = Domain.from_dataset(train, n_bins=N_BINS)
        return benchmark.moments({"delta": delta, "domain": domain}, train, epsilon, seed)
    if method == OFFSET:
        return benchmark.offset({"delta": delta}, train, epsilon, seed)
    if method == SYNTHETIC:
        return benchmark.synthetic(AIM, {"delta": delta}, "trees", train, epsilon, seed)
    search = private_choice(train, epsilon, seed, delta=delta).fit(train.X, train.y)
    return search.best_estimator_.scores_._replace(guarantee=search.guarantee_)


def private_choice(
    train: Dataset, epsilon: float, seed: int | None, *, delta: float, methods: Sequence[str] = SHORT_LIST
) -> PartitionedSearch:
    """A search over methods within one budget: each learns from a part of the records, and a further part judges.

    A mistake on a rare record counts as many times as much as one on a common record as common records are assumed to
    be more frequent, so that the judge counts about the mean of the error rates.
    """
    odds = ASSUMED_SHARE / (1 - ASSUMED_SHARE)
    schema = Dataset(
        train.name, np.empty((0, train.n_features)), np.empty(0, int), train.feature_names, train.bounds,
        train.bounds_basis,
    )  # fmt: skip
    return PartitionedSearch(
        _Candidate(schema),
        {"method": list(methods)},
        epsilon=epsilon,
        delta=delta,
        mistake_costs={0: odds, 1: 1.0},
        random_state=seed,
    )


class _Candidate(ClassifierMixin, BaseEstimator):
    """A method of the short list as an estimator. Rows that the schema does not allow (the search tries made-up ones)
    count as the first level of an attribute; that reads each record by itself."""

    def __init__(self, schema: Dataset, method=MOMENTS, epsilon=1.0, delta=1e-6, random_state=None):
        self.schema = schema
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.random_state = random_state

    def fit(self, X: NDArray, y: NDArray) -> Self:
        known = self.schema
        records = Dataset(known.name, self._read(X), y, known.feature_names, known.bounds, known.bounds_basis)
        self.scores_ = learn(self.method, records, self.epsilon, self.random_state, delta=self.delta)
        self.guarantee_, self.classes_ = self.scores_.guarantee, np.array([0, 1])
        return self

    def predict(self, X: NDArray) -> NDArray:
        check_is_fitted(self)
        return (self.scores_.of(self._read(X)) >= self.scores_.threshold).astype(int)

    def _read(self, X: NDArray) -> NDArray:
        X = np.array(X, dtype=float)
        for attribute in Domain.from_dataset(self.schema).attributes:
            columns = list(attribute.columns)
            if len(columns) > 1:
                X[:, columns] = np.eye(len(columns))[X[:, columns].argmax(axis=1)]
        return X


_AUDITED = {
    "diffprivlib LR": ("diffprivlib", "LogisticRegression"),
    "diffprivlib GNB": ("diffprivlib", "GaussianNB"),
    "diffprivlib RF": ("diffprivlib", "RandomForestClassifier"),
    "DP-EBM": ("DP-EBM", "bounds given"),
}


def refuted(audits: pd.DataFrame) -> list[str]:
    """Other libraries' methods whose guarantee an audit of this book has shown to be false, for lists of the best.

    Parameters
    ----------
    audits : DataFrame
        The recorded table `audit-libraries`: `library`, `call`, and the `verdict` "hidden" where more is lost than is
        claimed, and nothing says so.
    """
    broken = audits[audits.verdict == "hidden"]
    calls = list(zip(broken["library"], broken["call"], strict=True))
    return [
        name
        for name, (library, call) in _AUDITED.items()
        if any(library == one and other.startswith(call) for one, other in calls)
    ]


# Rules


def cut(sizes: NDArray, good: NDArray) -> float:
    """From which size on settings are called good, with the fewest mistakes on these; the least of several such cuts.

    It lies in the middle between two sizes, in ratio; 0 or infinity call all settings good or none.

    >>> cut(np.array([1.0, 4.0, 16.0]), np.array([False, False, True]))
    8.0
    """
    found = np.unique(sizes)
    cuts = np.concatenate([[0.0], np.sqrt(found[:-1] * found[1:]), [np.inf]])
    return float(cuts[np.argmin([((sizes >= one) != good).sum() for one in cuts])])


def left_out_errors(frame: pd.DataFrame, size: str, good: pd.Series) -> pd.Series:
    """Mistakes of a cut on each data set, fitted to the settings of all others.

    Parameters
    ----------
    frame : DataFrame
        One row a setting, with `dataset` and the column `size`.
    size : str
    good : Series of bool
        What is to be told beforehand, aligned with `frame`.

    Returns
    -------
    Series
        Number of mistakes by data set.
    """
    mistakes = {}
    for name, part in frame.groupby("dataset", sort=False):
        others = frame.dataset != name
        called = part[size] >= cut(frame[size][others].to_numpy(float), good[others].to_numpy())
        mistakes[name] = int((called != good[part.index]).sum())
    return pd.Series(mistakes)


def over_sets(
    frame: pd.DataFrame, statistic: Callable[[pd.DataFrame], float], *, n_draws: int = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """The statistic of tables of as many data sets, drawn with replacement and all settings of each: shape (n_draws,).

    Settings of one set are not independent, so whole sets are drawn.

    Source: Efron and Tibshirani 1993, An introduction to the bootstrap, on clustered data.
    """
    places = [np.asarray(rows) for rows in frame.groupby("dataset", sort=False).indices.values()]
    rng = np.random.default_rng(seed)
    draws = (rng.integers(len(places), size=len(places)) for _ in range(n_draws))
    return np.array([statistic(frame.iloc[np.concatenate([places[at] for at in draw])]) for draw in draws])


def rank_correlation(frame: pd.DataFrame, size: str, value: str) -> float:
    """Spearman's, which is that of the ranks."""
    return float(frame[size].corr(frame[value], method="spearman"))


# The form


def nearest(
    settings: pd.DataFrame, *, n: int, minority: int, features: int, epsilon: float, relation: str, score: str
) -> pd.DataFrame:
    """The best recorded methods on the data sets that are most like one of these sizes, at about this epsilon.

    Parameters
    ----------
    settings : DataFrame
        Recorded results, one row for each `method`, `relation`, `dataset` and `epsilon`, with the sizes `n`,
        `minority` and `features` of the set and, of each score, the mean, `SCORE_low` and `SCORE_high`.
    n, minority, features : int
        Sizes that are public or were released, at least 1.
    epsilon : float
        Positive; the recorded one that is nearest in ratio is taken.
    relation : str
        One that occurs in `settings`.
    score : {"auc", "balanced_accuracy"}

    Returns
    -------
    DataFrame
        Three sets, nearest first in the sum of log ratios of sizes, and the three best methods of each.
    """
    rows = settings[settings.relation == relation]
    gap = (np.log(rows.epsilon) - math.log(epsilon)).abs()
    rows = rows[gap <= gap.min() + 1e-9]
    asked = {"n": n, "minority": minority, "features": features}
    far = sum((np.log(rows[name]) - math.log(value)).abs() for name, value in asked.items())
    sets = rows.assign(far=far).drop_duplicates("dataset").nsmallest(_SETS, "far").dataset
    return pd.concat([rows[rows.dataset == name].nlargest(_METHODS, score) for name in sets], ignore_index=True)


@dataclass(frozen=True)
class Chooser:
    """The form over `settings` (see `nearest`); shown by a notebook and by the page that is made of it.

    Parameters
    ----------
    settings : DataFrame
    caption : str
        One sentence above the form.
    n, minority, features : int
        The first question; `nearest` answers it for readers without JavaScript.
    epsilon : float
    """

    settings: pd.DataFrame
    caption: str
    n: int
    minority: int
    features: int
    epsilon: float
    relation: ClassVar = "replace-one"
    score: ClassVar = "balanced_accuracy"

    def _nearest(self) -> pd.DataFrame:
        asked = {name: getattr(self, name) for name in (*_NUMBERS, "relation", "score")}
        return nearest(self.settings, **asked)

    def _answer(self) -> pd.DataFrame:
        """What the page says to the first question."""
        found = self._nearest()
        sizes = [f"{row.dataset} (n {row.n}, rare {row.minority}, d {row.features})" for row in found.itertuples()]
        mean, low, high = (found[self.score + end].map("{:.2f}".format) for end in ("", "_low", "_high"))
        named = pd.Series(sizes).mask(found.dataset.duplicated(), "")  # a set is named in the first of its rows
        columns = {"similar data set": named, "best methods": found.method, "mean score": mean}
        return pd.DataFrame(columns | {"lowest to highest fit": low + " to " + high})

    def __repr__(self) -> str:
        return self._answer().to_string(index=False)

    def _repr_html_(self) -> str:
        table = self._answer().to_html(index=False, border=0, classes="book-table")
        at = f"epsilon = {self._nearest().epsilon.iloc[0]:g}, {html.escape(self.relation)}"
        computed = f"These scores were computed at {at}."
        code = Path(__file__).with_name("which_method.js")
        return (
            f'<figure class="chooser" id="{_ID}"><figcaption>{html.escape(self.caption)}</figcaption>{self._form()}'
            f'<div class="book-table-scroll" tabindex="0">{table}</div><output aria-live="polite">{computed}</output>'
            f"{scripts(self._data(), code, id=_ID, sets=_SETS, methods=_METHODS)}</figure>"
        )

    def _data(self) -> dict:
        table = self.settings
        coded = [pd.factorize(table[name]) for name in ("method", "relation", "dataset")]
        numbers = [f"{score}{end}" for score in ("auc", "balanced_accuracy") for end in ("", "_low", "_high")]
        places = [codes.tolist() for codes, _ in coded]
        # The form shows two digits, and orders methods by their means.
        rounded = [[round(value, 3 if name in _SCORES else 2) for value in table[name]] for name in numbers]
        return {
            "methods": coded[0][1].tolist(),
            "relations": coded[1][1].tolist(),
            "sets": table.drop_duplicates("dataset")[["dataset", *_SIZES]].to_numpy().tolist(),
            "rows": list(zip(*places, table.epsilon, *rounded, strict=True)),
        }

    def _form(self) -> str:
        fields = [
            f'<label>{text} <input type="number" name="{name}" value="{getattr(self, name):g}" min="0" step="any" '
            'inputmode="decimal"></label>'
            for name, text in _NUMBERS.items()
        ]
        relations = {name: name for name in self.settings.relation.unique()}
        for name, text, options in (("relation", "relation", relations), ("score", "to", _SCORES)):
            listed = "".join(
                f'<option value="{html.escape(value)}"{" selected" * (value == getattr(self, name))}>'
                f"{html.escape(shown)}</option>"
                for value, shown in options.items()
            )
            fields.append(f'<label>{text} <select name="{name}">{listed}</select></label>')
        return f"<form hidden>{''.join(fields)}</form>"
