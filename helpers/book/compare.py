"""What a private classifier could do for a table, compared before a budget is spent: a page for the holder's eyes.

The classifier that `dpbook fit` makes, its private rivals, and what needs no privacy: the best that a common learner
reaches without noise, and the rule that always says the frequent class. Nothing here is private: every number is
computed from the records, over and over.
"""

import html
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from dp_accounting import NeighboringRelation
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers.book.card import html_table, wide
from helpers.book.display import use_style
from helpers.data import Dataset, Domain, split
from helpers.erm import DPGradientDescentClassifier, PrivateMomentClassifier
from helpers.meta import PrivateLogisticRegression
from helpers.privacy import ADD_REMOVE, RELATION_NAMES
from helpers.study import comparison, metrics

OURS, TRIVIAL = "private moments", "always the frequent class"
NOT_PRIVATE = ("logistic regression, not private", "gradient boosting, not private")
"""What can be had without noise: of two that are good on tables of different kinds, the better is the ceiling."""
HELD_OUT = 0.3
_SHOWN = {"auc": "AUC", "balanced_accuracy": "balanced accuracy"}
_MEANS = {"recall": "recall", "precision": "precision", "alarms": "alarms per 1,000"}
_FEWEST = 10  # records of a class, so that both sides of a split have some


class Problem(NamedTuple):
    """What is compared: records, what is public about them, and the budget."""

    records: Dataset
    domain: Domain
    epsilon: float
    delta: float
    neighbouring: NeighboringRelation


def _moments(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
    budget = {"epsilon": problem.epsilon, "delta": problem.delta, "neighbouring": problem.neighbouring}
    model = PrivateMomentClassifier(**budget, domain=problem.domain, random_state=seed)
    return model.fit(train.X, train.y, train.groups).decision_function(X), 0.0


def _logistic(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
    model = PrivateLogisticRegression(problem.epsilon, problem.delta, **_options(problem, train, seed))
    return model.fit(train.X, train.y).decision_function(X), float(model.threshold_)


def _descent(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
    model = DPGradientDescentClassifier(
        problem.epsilon, delta=problem.delta, scale="private", prior="offset", **_options(problem, train, seed)
    )
    return model.fit(train.X, train.y).decision_function(X), float(model.offset_)


def _plain(model: Any) -> Callable[..., tuple[NDArray, float]]:
    """A learner of scikit-learn, with the share of the rare class as its cut-off."""

    def fitted(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
        return clone(model).fit(train.X, train.y).predict_proba(X)[:, 1], float(train.y.mean())

    return fitted


def _constant(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
    return np.zeros(len(X)), 0.5


METHODS: dict[str, Callable[..., tuple[NDArray, float]]] = {
    OURS: _moments,
    "private logistic regression": _logistic,
    "private gradient descent": _descent,
    NOT_PRIVATE[0]: _plain(make_pipeline(StandardScaler(), LogisticRegression())),
    NOT_PRIVATE[1]: _plain(HistGradientBoostingClassifier(max_depth=3, learning_rate=0.05, random_state=0)),
    TRIVIAL: _constant,
}
"""Each gives scores of the records X, and from which score on it says the rare class."""


def _options(problem: Problem, train: Dataset, seed: int) -> dict[str, Any]:
    # Under add/remove the loss is divided by a public number; here the true one, which favours the rivals.
    divisor = {"n_records": train.n} if problem.neighbouring is ADD_REMOVE else {}
    return divisor | {"bounds": train.bounds, "neighbouring": problem.neighbouring, "random_state": seed}


class Outcome(NamedTuple):
    """One method on one split: its row of metrics, and the scores and labels of the test part."""

    row: dict[str, Any]
    scores: NDArray
    y: NDArray


def trials(problem: Problem, n_splits: int) -> Iterator[Outcome]:
    """Every method on the first split, then on the second, and so on; equal problems give equal outcomes.

    Raises
    ------
    ValueError
        The records have other than two classes, or too few of one.
    """
    records = problem.records
    if len(records.class_names) != 2 or records.counts.min() < _FEWEST:
        raise ValueError(f"table must have two classes of {_FEWEST} records or more, got {records.counts.tolist()}")
    for seed in range(n_splits):
        train, test = split(records, HELD_OUT, seed)
        for name, method in METHODS.items():
            started = time.perf_counter()
            scores, threshold = method(problem, train, test.X, seed)
            seconds = time.perf_counter() - started
            row = metrics.score(test.y, scores, threshold)
            alarms = 1000 * float(np.mean(scores >= threshold))
            yield Outcome(row | {"method": name, "seed": seed, "seconds": seconds, "alarms": alarms}, scores, test.y)


def render(problem: Problem, outcomes: list[Outcome]) -> str:
    """The page: HTML without scripts or references to other files."""
    rows = pd.DataFrame([outcome.row for outcome in outcomes])
    values = list(_SHOWN)
    # The rule that never looks has .5 of both on every split, so a gain over it is the score less that.
    above = comparison.paired_gains(rows, {"method": TRIVIAL}, values=values, test_fraction=HELD_OUT)
    gains = comparison.paired_gains(rows, {"method": OURS}, values=values, test_fraction=HELD_OUT)
    means = rows.groupby("method", sort=False)[list(_MEANS)].mean()
    table = []
    for name in METHODS:
        found = above[above.method == name].set_index("metric")
        scores = ["0.50"] * 2 if name == TRIVIAL else [_ranged(found.loc[value], 0.5) for value in values]
        alone = (f"{means.recall[name]:.2f}", f"{means.precision[name]:.2f}", f"{means.alarms[name]:,.0f}")
        table.append((name, *scores, *alone))
    n_splits = int(rows.seed.max()) + 1
    texts = {
        "name": problem.records.name,
        "answer": _answer(gains, above),
        "run": (
            f"{problem.records.n:,} records, {problem.records.counts[1]:,} of {problem.records.class_names[1]}; "
            f"epsilon {problem.epsilon:g}, delta {problem.delta:g}, {RELATION_NAMES[problem.neighbouring]}; {n_splits} "
            f"splits with {100 * HELD_OUT:.0f} % held out, seeds 0 to {n_splits - 1}"
        ),
    }
    return Template(Path(__file__).with_name("compare.html").read_text(encoding="utf-8")).substitute(
        {key: html.escape(text) for key, text in texts.items()},
        table=html_table(("", *_SHOWN.values(), *_MEANS.values()), table),
        figure=_figure(above, outcomes, problem.records.class_names[1]),
    )


def _ranged(row: pd.Series, plus: float) -> str:
    return f"{row['mean'] + plus:.2f} ({row.low + plus:.2f} to {row.high + plus:.2f})"


def _answer(gains: pd.DataFrame, above: pd.DataFrame) -> str:
    """The first paragraph: what is best, by how much, and how far from without privacy."""
    accuracy = gains[gains.metric == "balanced_accuracy"].set_index("method")
    rivals, ceiling = accuracy.drop([*NOT_PRIVATE, TRIVIAL]), accuracy["mean"][list(NOT_PRIVATE)]
    rival = rivals["mean"].idxmax()
    first, second = (rival, OURS) if rivals["mean"][rival] > 0 else (OURS, rival)
    chance = ", which may be chance" if rivals.sign[rival] == comparison.OPEN else ""
    [own] = above[(above.method == OURS) & (above.metric == "balanced_accuracy")].itertuples()
    best = 0.5 + own.mean + ceiling.max()
    return (
        f"Of the private classifiers, {first} has the best mean balanced accuracy, {abs(rivals['mean'][rival]):.2f} "
        f"above {second}{chance}. {OURS.capitalize()}, which dpbook fit makes, has {0.5 + own.mean:.2f} "
        f"({0.5 + own.low:.2f} to {0.5 + own.high:.2f}). A rule that never looks at the records has 0.50, and without "
        f"privacy {ceiling.idxmax().partition(',')[0]} has {best:.2f}."
    )


def _figure(above: pd.DataFrame, outcomes: list[Outcome], rare: str) -> str:
    """Scores with their intervals, and precision against recall, as SVG."""
    names = [name for name in METHODS if name != TRIVIAL]
    colours = {name: f"C{k}" for k, name in enumerate(names)}
    with plt.rc_context():
        use_style()
        figure = Figure(figsize=(8.4, 3.8))
        left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
        for offset, (metric, marker) in zip((-0.12, 0.12), zip(_SHOWN, "os", strict=True), strict=True):
            for place, name in enumerate(names):
                [row] = above[(above.method == name) & (above.metric == metric)].itertuples()
                reach = [[row.mean - row.low], [row.high - row.mean]]
                left.errorbar(row.mean + 0.5, place + offset, xerr=reach, fmt=marker, color=colours[name])
            left.plot([], [], marker, color="black", label=_SHOWN[metric])
        left.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
        left.invert_yaxis()
        left.axvline(0.5, color="black", linewidth=0.8)
        left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)
        # The split on which ours has its median.
        ours = sorted((o for o in outcomes if o.row["method"] == OURS), key=lambda o: o.row["balanced_accuracy"])
        seed = ours[len(ours) // 2].row["seed"]
        for one in outcomes:
            if one.row["seed"] == seed and one.row["method"] in names:
                precision, recall, _ = precision_recall_curve(one.y, one.scores)
                right.plot(recall, precision, color=colours[one.row["method"]], label=one.row["method"])
        right.axhline(outcomes[0].y.mean(), color="black", linewidth=0.8)
        right.set_xlabel(f"recall of {rare}".replace("$", r"\$"))
        right.set_ylabel("precision")
        right.legend(fontsize=8)
    drawn = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "compare", "svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    _, _, svg = drawn.getvalue().partition("<svg")
    return wide(f'<svg role="img" aria-label="scores with intervals, and precision against recall"{svg}')
