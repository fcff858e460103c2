"""What a private classifier could do for a table, compared before a budget is spent: a page for the holder's eyes.

The classifier that `dpbook fit` makes, its private rivals, and what needs no privacy: the best that a common learner
reaches without noise, and the rule that always says the frequent class. Nothing here is private: every number is
computed from the records, over and over.
"""

import shlex
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from dp_accounting import NeighboringRelation
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

from helpers.book.card import html_table, page, svg
from helpers.book.display import OKABE_ITO, use_style
from helpers.data import Dataset, Schema, split
from helpers.erm import (
    DPGradientDescentClassifier,
    ObjectivePerturbationClassifier,
    PrivateMomentClassifier,
    default_regularization,
)
from helpers.meta import PrivateLogisticRegression, ThresholdClassifier
from helpers.privacy import ADD_REMOVE, RELATION_NAMES, REPLACE_ONE
from helpers.study import comparison, metrics

OURS, TRIVIAL = "private moments", "always the frequent class"
NOT_PRIVATE = ("logistic regression without privacy", "gradient boosting without privacy")
"""What can be had without noise: of two that are good on tables of different kinds, the better is the ceiling."""
HELD_OUT = 0.3
_SCORES = {"auc": "AUC", "balanced_accuracy": "balanced accuracy"}
_METRICS = _SCORES | {"recall": "recall", "precision": "precision", "alarms": "alarms per 1,000"}
_FEWEST = 10  # persons of a class, so that both sides of a split have some


class Problem(NamedTuple):
    """What is compared: records, what is public about them, and the budget."""

    records: Dataset
    schema: Schema
    epsilon: float
    delta: float
    neighbouring: NeighboringRelation


def _moments(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
    """As `dpbook fit` fits it."""
    model = PrivateMomentClassifier(
        problem.epsilon,
        problem.delta,
        problem.schema.domain,
        neighbouring=problem.neighbouring,
        rows_per_person=problem.schema.rows_per_person or 1,
        random_state=seed,
    )
    return model.fit(train.X, train.y, train.groups).decision_function(X), 0.0


def _offset(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
    model = PrivateLogisticRegression(
        problem.epsilon, problem.delta, random_state=seed, **_public(problem.neighbouring, train)
    )
    return model.fit(train.X, train.y).decision_function(X), float(model.threshold_)


def _threshold(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
    penalty = default_regularization(train.n, train.n_features + 1, problem.epsilon)
    inner = ObjectivePerturbationClassifier(regularization=penalty, **_public(problem.neighbouring, train))
    model = ThresholdClassifier(inner, problem.epsilon, random_state=seed).fit(train.X, train.y)
    return model.predict_proba(X)[:, 1], float(model.threshold_)


def _descent(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
    public = _public(problem.neighbouring, train)
    model = DPGradientDescentClassifier(
        problem.epsilon, problem.delta, scale="private", prior="offset", random_state=seed, **public
    )
    return model.fit(train.X, train.y).decision_function(X), float(model.offset_)


def _public(neighbouring: NeighboringRelation, train: Dataset) -> dict[str, Any]:
    # Under add/remove the loss is divided by a public number; here the true one, which favours the rivals.
    divisor = {"n_records": train.n} if neighbouring is ADD_REMOVE else {}
    return divisor | {"bounds": train.bounds, "neighbouring": neighbouring}


def _plain(model: Any) -> Callable[..., tuple[NDArray, float]]:
    """A learner as in scikit-learn, with the share of the rare class as its cut-off."""

    def fitted(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
        return clone(model).fit(train.X, train.y).predict_proba(X)[:, 1], float(train.y.mean())

    return fitted


def _constant(problem: Problem, train: Dataset, X: NDArray, seed: int) -> tuple[NDArray, float]:
    return np.zeros(len(X)), 0.5


METHODS: dict[str, Callable[..., tuple[NDArray, float]]] = {
    OURS: _moments,
    "private logistic regression (offset)": _offset,
    "private logistic regression (threshold)": _threshold,
    "private gradient descent": _descent,
    NOT_PRIVATE[0]: _plain(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))),
    # On a busy machine, several threads of a small fit would wait for each other most of the time.
    NOT_PRIVATE[1]: _plain(XGBClassifier(max_depth=3, learning_rate=0.05, n_jobs=1)),
    TRIVIAL: _constant,
}
"""Each gives scores of the records X, and from which score on it says the rare class."""


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
        The records have other than two classes, or too few of one, or delta is too large for their number.
    """
    records = problem.records
    persons = np.arange(records.n) if records.groups is None else records.groups
    counts = [len(np.unique(persons[records.y == code])) for code in range(len(records.class_names))]
    if len(counts) != 2 or min(counts) < _FEWEST:
        raise ValueError(f"table must have two classes of {_FEWEST} records (or persons) or more, got {counts}")
    if problem.neighbouring is REPLACE_ONE and problem.delta * (n_persons := len(np.unique(persons))) >= 1:
        raise ValueError(f"delta must be less than one over the number of records, {n_persons}, got {problem.delta!r}")
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
    rows, (records, schema, epsilon, delta, relation) = pd.DataFrame([one.row for one in outcomes]), problem
    reached = metrics.summary(
        rows, "method", list(_METRICS), test_fraction=HELD_OUT, ranges={"alarms": (0, 1000)}
    ).set_index(["metric", "method"])
    gains = comparison.paired_gains(rows, {"method": OURS}, values=list(_SCORES), test_fraction=HELD_OUT)
    # Of ours over the others, and not the other way round.
    gains = comparison.signed(gains.assign(mean=-gains["mean"], low=-gains.high, high=-gains.low))
    gains = gains.set_index(["metric", "method"])
    signs, n_splits = gains.sign["balanced_accuracy"], rows.seed.nunique()
    options = f"--epsilon {epsilon:g} --delta {delta:g}" + " --neighbouring add-remove" * (relation is ADD_REMOVE)
    texts = {
        "name": records.name,
        "answer": _answer(reached, gains.loc["balanced_accuracy"], records.class_names[0]),
        "protected": _protected(schema),
        "advice": _advice(signs[TRIVIAL], records.class_names[0]),
        "fit": f"dpbook fit {shlex.quote(records.name)} {options} --out model",
        "run": f"{records.n:,} records, {records.counts[1]:,} of them {records.class_names[1]}; epsilon {epsilon:g}, "
        f"delta {delta:g}, {RELATION_NAMES[relation]}; {n_splits} splits with {100 * HELD_OUT:.0f} % held out, seeds 0 "
        f"to {n_splits - 1}; the fits took {duration(rows.seconds.sum())}",
    }
    table = [(name, *(_ranged(reached.loc[metric, name], metric) for metric in _METRICS)) for name in METHODS]
    against = [
        (name, *(_ranged(gains.loc[metric, name], metric, "+") for metric in _SCORES), signs[name])
        for name in signs.index
    ]
    return page(
        "compare.html",
        texts,
        table=html_table(("", *_METRICS.values()), table),
        gains=html_table((f"{OURS} minus", *_SCORES.values(), "in balanced accuracy"), against),
        scores=_scores(reached),
        curves=_curves(outcomes),
    )


def _advice(sign: str, frequent: str) -> str:
    """Whether a fit is worth its budget, by the sign of private moments minus the majority rule."""
    if sign == comparison.BETTER:
        return f'Private moments are better here than always saying "{frequent}", so a fit has something to show:'
    return (
        f'Private moments are not clearly better here than always saying "{frequent}". Then a fit spends the privacy '
        "of these people for nothing: take a larger budget or more rare records first. The command would be:"
    )


def _protected(schema: Schema) -> str:
    """What is unequal in the comparison where persons have several rows."""
    if schema.person is None and (schema.rows_per_person or 1) == 1:
        return ""
    said = "Private moments protect persons, with all their rows; the other private classifiers rows, which is easier."
    if schema.person is None:
        said += " Rows of one person may be on both sides of a split, which flatters every method."
    return said


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def _ranged(row: pd.Series, metric: str, sign: str = "") -> str:
    """A mean with its interval, if it has any width, in which no line is broken."""
    form = f"{sign},.0f" if metric == "alarms" else f"{sign}.2f"
    mean, low, high = (format(value, form) for value in (row["mean"], row.low, row.high))
    return mean if low == high else f"{mean} ({low}\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}{high})"


def _answer(reached: pd.DataFrame, gains: pd.DataFrame, frequent: str) -> str:
    """The first paragraph: what is best, by how much, and how far from without privacy and from no look at all."""
    accuracy = reached.loc["balanced_accuracy", "mean"]
    told = {name: _ranged(reached.loc["balanced_accuracy", name], "balanced_accuracy") for name in METHODS}
    private = accuracy.drop([*NOT_PRIVATE, TRIVIAL])
    best, rival, ceiling = private.idxmax(), private.drop(OURS).idxmax(), accuracy[list(NOT_PRIVATE)].idxmax()
    second = f"Next comes {rival}" if best == OURS else f"Private moments, which dpbook fit makes, have {told[OURS]}"
    chance = ", which may be chance" if gains.sign[rival] == comparison.OPEN else ""
    # Whether the interval of their difference leaves out 0.
    trivial = {comparison.OPEN: "not clearly better"}.get(gains.sign[TRIVIAL], gains.sign[TRIVIAL])
    above = accuracy[ceiling] - accuracy[OURS]
    alarms, right = (reached["mean"][metric, OURS] for metric in ("alarms", "precision"))
    return (
        f"Of {len(private)} private classifiers the best on this table is {best}, with a mean balanced accuracy of "
        f'{told[best]}. {second}, {abs(gains["mean"][rival]):.2f} lower{chance}. Always saying "{frequent}" has '
        f"{told[TRIVIAL]}, and private moments are {trivial}. Best without privacy is "
        f"{ceiling.removesuffix(' without privacy')} with {told[ceiling]}, {abs(above):.2f} "
        f"{'above' if above > 0 else 'below'} private moments. Private moments would raise {alarms:,.0f} alarms "
        f"in 1,000 records, and {100 * right:.0f} % of the alarms would be right."
    )


def _scores(reached: pd.DataFrame) -> str:
    """Scores with their intervals, as SVG."""
    names = [name for name in METHODS if name != TRIVIAL]
    with matplotlib.rc_context():
        use_style()
        figure = Figure(figsize=(4.2, 4.2))
        axes = figure.subplots()
        for shift, marker, colour, metric in (
            (-0.14, "o", "blue", "auc"),
            (0.14, "s", "vermillion", "balanced_accuracy"),
        ):
            found = reached.loc[metric].loc[names]
            reach = [found["mean"] - found.low, found.high - found["mean"]]
            places = np.arange(len(names)) + shift
            axes.errorbar(found["mean"], places, xerr=reach, fmt=marker, color=OKABE_ITO[colour], label=_SCORES[metric])
        axes.set_yticks(range(len(names)), [_in_two_lines(name) for name in names], fontsize=9)
        axes.invert_yaxis()
        axes.axvline(0.5, color="black", linestyle=":", linewidth=1)
        figure.legend(loc="outside upper center", ncols=2, fontsize=9)
        return svg(figure, "AUC and balanced accuracy of each method with their intervals")


def _curves(outcomes: list[Outcome]) -> str:
    """Precision against recall on the split on which ours has its median, as SVG."""
    ours = sorted((one for one in outcomes if one.row["method"] == OURS), key=lambda one: one.row["balanced_accuracy"])
    median = ours[len(ours) // 2]
    with matplotlib.rc_context():
        use_style()
        figure = Figure(figsize=(4.2, 4.2))
        axes = figure.subplots()
        for one in outcomes:
            if one.row["seed"] == median.row["seed"] and one.row["method"] != TRIVIAL:
                precision, recall, _ = precision_recall_curve(one.y, one.scores, drop_intermediate=True)
                axes.plot(recall, precision, linewidth=1.3, label=_in_two_lines(one.row["method"]))
        axes.axhline(median.y.mean(), color="black", linestyle=":", linewidth=1)
        axes.set(xlabel="recall", ylabel="precision", ylim=(0, 1.02))
        figure.legend(loc="outside upper center", ncols=2, fontsize=8)
        return svg(figure, f"precision against recall of each method on split {median.row['seed']}")


def _in_two_lines(name: str) -> str:
    return name.replace(" (", "\n(").replace(" without", "\nwithout")
