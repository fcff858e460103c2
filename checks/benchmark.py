"""The benchmark: pipelines, data sets, budgets and seeds, one row of metrics for each.

A pipeline is a function from the training part of a split, a budget and a seed to `Scores`; one line in `PIPELINES` (or
in a chapter, beside them) adds one. All pipelines see the same splits, and their budget is spent on everything that
they learn from the records: bounds, categories and the number of records are public. `experiments.run` runs the trials,
keyed by what each pipeline uses, so another pipeline costs its own trials and no others. Methods as published whose
guarantee the book shows to be false are in the registry too, and say so: no rank, best-of or count takes them in.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from imblearn.over_sampling import SMOTE
from imblearn.pipeline import make_pipeline
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RandomizedSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

from checks.printed_erm import PrintedObjectivePerturbation
from checks.wrapped_budget import wrapped_epsilon
from helpers.data.catalogue import load
from helpers.data.dataset import Dataset, split
from helpers.data.domain import Domain
from helpers.erm.calibration import default_regularization
from helpers.erm.coordinate_descent import DPCoordinateDescentClassifier
from helpers.erm.gradient_descent import DPGradientDescentClassifier
from helpers.erm.greedy import DPGreedyCoordinateClassifier
from helpers.erm.moments import PrivateMomentClassifier
from helpers.erm.perturbation import ObjectivePerturbationClassifier, OutputPerturbationClassifier
from helpers.meta.bagging import PrivateBaggingClassifier
from helpers.meta.logistic import PrivateLogisticRegression
from helpers.meta.threshold import ThresholdClassifier
from helpers.neural.classifier import DPNeuralClassifier
from helpers.privacy.guarantees import ADD_REMOVE, REPLACE_ONE, Guarantee
from helpers.study.metrics import score
from helpers.synthesis.aim import AIM
from helpers.synthesis.balanced import BalancedSynthesizer
from helpers.synthesis.gem import GEM, PAPER
from helpers.synthesis.mst import MST
from helpers.synthesis.privbayes import PrivBayes

DATASETS = ("ecoli", "abalone", "car_eval_34", "solar_flare_m0", "car_eval_4", "yeast_me2", "mammography", "abalone_19")
"""In the order of the paper's Figures 6 to 13."""
EPSILONS = (0.05, 0.1, 0.5, 1.0, 5.0)
DELTA = 1e-5
"""Of every pipeline that has one; the paper names none for its benchmark, and this one for its decision boundaries."""
TEST_SHARE = 0.3
MEASURES = {
    "auc": "AUC",
    "f1": "F1",
    "balanced_accuracy": "Bal-ACC",
    "precision": "Precision",
    "recall": "Recall",
    "worst_class_accuracy": "Worst-ACC",
    "macro_accuracy": "Avg-ACC",
    "g_mean": "G-Mean",
    "mcc": "MCC",
}
"""Keys of `metrics.score` and how the paper calls them."""
N_SYNTHETIC = 10_000
_ROUNDING = 0.01  # of printed numbers
_TRIES = 10  # of a randomised search
_FOLDS = 3


class Scores(NamedTuple):
    """What a pipeline has learnt: scores (n,) of rows X (n, d), and from which score on a row is called minority.

    `guarantee` is None without privacy.
    """

    of: Callable[[np.ndarray], np.ndarray]
    threshold: float
    guarantee: Guarantee | None


Pipeline = Callable[[Dataset, float, int], Scores]


@dataclass(frozen=True)
class Entry:
    """An entry of the registry: a pipeline, which it can be called as, and whether its guarantee is true.

    Parameters
    ----------
    run : callable
        A pipeline.
    guarantee_holds : bool
        False where the book shows that the pipeline does not keep what it promises at its `epsilon`. Such an entry is
        run to show what a published method reaches, under a name with "as printed" or "as wrapped", and is no rival of
        those that keep their promise.
    """

    run: Pipeline
    guarantee_holds: bool = True

    def __call__(self, train: Dataset, epsilon: float, seed: int) -> Scores:
        return self.run(train, epsilon, seed)


def trial(pipeline: Pipeline, dataset: str, epsilon: float, seed: int) -> dict[str, Any]:
    """One row: a pipeline at a budget (infinite: without privacy) on split number `seed` of a data set.

    Returns
    -------
    dict
        The nine `MEASURES`, `pr_auc`, `undefined_precision`, and of the guarantee `spent` (epsilon), `delta` and
        `relation`; None without privacy.
    """
    train, test = split(load(dataset), TEST_SHARE, seed)
    learnt = pipeline(train, epsilon, seed)
    row = score(test.y, learnt.of(test.X), learnt.threshold)
    kept = {name: row[name] for name in (*MEASURES, "pr_auc", "undefined_precision")}
    known = learnt.guarantee
    return kept | {
        "spent": known and known.epsilon,
        "delta": known and known.delta,
        "relation": known and known.neighbouring.name.lower().replace("_", "-"),
    }


def labelled(trials: pd.DataFrame) -> pd.DataFrame:
    """Trials with the registry's flag in the column `guarantee_holds`.

    A method that is in no registry of private ones (a pipeline without privacy, or one of a chapter's own) counts as
    one that keeps what it promises.
    """
    broken = [name for name, entry in PIPELINES.items() if not entry.guarantee_holds]
    return trials.assign(guarantee_holds=~trials.method.isin(broken))


def trials(pipelines: Mapping[str, Pipeline]) -> dict[str, Callable[..., dict[str, Any]]]:
    """For `experiments.run(trials(pipelines), cells, name=..., scope="trial")`."""
    return {name: partial(trial, pipeline) for name, pipeline in pipelines.items()}


def cells(
    private: Iterable[str],
    public: Iterable[str] = (),
    *,
    datasets: Sequence[str] = DATASETS,
    epsilons: Sequence[float] = EPSILONS,
    n_seeds: int = 10,
) -> list[dict[str, Any]]:
    """The grid, seed by seed, so that what is finished of it is complete in all else; the names are of pipelines.

    >>> cells(["GEM + XGBoost"], ["LogReg"], datasets=["ecoli"], epsilons=[1.0], n_seeds=1)[1]
    {'method': 'LogReg', 'dataset': 'ecoli', 'epsilon': inf, 'seed': 0}
    """
    settings = [(method, epsilon) for epsilon in epsilons for method in private]
    settings += [(method, math.inf) for method in public]
    return [
        {"method": method, "dataset": dataset, "epsilon": epsilon, "seed": seed}
        for seed in range(n_seeds)
        for dataset in datasets
        for method, epsilon in settings
    ]


def against_printed(summary: pd.DataFrame, printed: pd.DataFrame, *, n_printed: int = 10) -> pd.DataFrame:
    """Printed means of the pipelines without privacy beside ours, cell by cell.

    Parameters
    ----------
    summary : DataFrame
        From `metrics.summary(trials, ["method", "dataset"])`, methods named as in `PUBLIC`.
    printed : DataFrame
        `dpci_tables13-20_nonprivate` of `reference/tables`, with numbers in `mean_value` and `std_value`.
    n_printed : int
        Repetitions behind a printed mean.

    Returns
    -------
    DataFrame
        One row a cell that both have: `dataset`, `method`, `metric`, `printed`, `printed_sd`, `ours`, `sd`, `n`,
        `difference` and `z`, the difference over its standard error (both deviations, and rounding to two decimals).
        Over repetitions on one data set; the splits behind the two means are different ones.

    >>> ours = pd.DataFrame({"method": "Identity + LogReg", "dataset": "ecoli", "metric": ["auc"], "mean": 0.9,
    ...                      "sd": 0.04, "n": 10})
    >>> told = {"row_label": "Identity + NonPriv. LogReg", "dataset": "ecoli", "metric": "AUC"}
    >>> theirs = pd.DataFrame([told | {"mean_value": 0.94, "std_value": 0.03}])
    >>> against_printed(ours, theirs)[["difference", "z"]].round(2).values.tolist()
    [[-0.04, -2.49]]
    """
    keys = {name: key for key, name in MEASURES.items()}
    theirs = pd.DataFrame(
        {
            "dataset": printed.dataset,
            "method": printed.row_label.str.replace("NonPriv. ", "").str.replace(r"XGB$", "XGBoost", regex=True),
            "metric": printed.metric.map(keys),
            "printed": printed.mean_value,
            "printed_sd": printed.std_value,
        }
    )
    table = theirs.merge(summary.rename(columns={"mean": "ours"})[["dataset", "method", "metric", "ours", "sd", "n"]])
    table["difference"] = table.ours - table.printed
    variance = table.printed_sd**2 / n_printed + table.sd**2 / table.n + _ROUNDING**2 / 12
    table["z"] = table.difference / np.sqrt(variance)
    return table


# Private pipelines. The last three arguments are always those of a pipeline; those before are bound in the registry.


def linear(learner: type, parameters: Mapping[str, Any], train: Dataset, epsilon: float, seed: int) -> Scores:
    """A private linear classifier on features that public bounds scale, with the default penalty of its budget."""
    fixed = {"regularization": default_regularization(train.n, train.n_features + 1, epsilon), "bounds": train.bounds}
    return _fitted(learner(epsilon=epsilon, random_state=seed, **fixed | dict(parameters)), train)


def descent(learner: type, parameters: Mapping[str, Any], train: Dataset, epsilon: float, seed: int) -> Scores:
    """A private linear classifier by descent, in the scale that it finds out itself; its own defaults otherwise."""
    fixed = {"delta": DELTA, "bounds": train.bounds, "scale": "private", "prior": "offset"}
    model = learner(epsilon=epsilon, random_state=seed, **fixed | dict(parameters)).fit(train.X, train.y)
    # Above the prior's log odds a record is more probably of the minority than a random one is.
    return Scores(model.decision_function, float(model.offset_), model.guarantee_)


def threshold(parameters: Mapping[str, Any], train: Dataset, epsilon: float, seed: int) -> Scores:
    """Private logistic regression with a private threshold, for balanced accuracy unless `parameters` say otherwise."""
    penalty = default_regularization(train.n, train.n_features + 1, epsilon)
    inner = ObjectivePerturbationClassifier(regularization=penalty, bounds=train.bounds)
    return _fitted(ThresholdClassifier(inner, epsilon=epsilon, random_state=seed, **parameters), train)


def offset(parameters: Mapping[str, Any], train: Dataset, epsilon: float, seed: int) -> Scores:
    """Private logistic regression with a noisy count inside the loss and as threshold, with its own defaults."""
    model = PrivateLogisticRegression(epsilon, bounds=train.bounds, random_state=seed, **parameters)
    model.fit(train.X, train.y)
    return Scores(model.decision_function, float(model.threshold_), model.guarantee_)


def bagging(parameters: Mapping[str, Any], train: Dataset, epsilon: float, seed: int) -> Scores:
    """A vote of private weighted logistic regressions, each on its own part of the records."""
    n_bags = parameters["n_estimators"]
    penalty = default_regularization(train.n // n_bags, train.n_features + 1, epsilon)
    inner = ObjectivePerturbationClassifier(regularization=penalty, bounds=train.bounds, class_weight="balanced")
    return _fitted(PrivateBaggingClassifier(inner, epsilon=epsilon, random_state=seed, **parameters), train)


def moments(parameters: Mapping[str, Any], train: Dataset, epsilon: float, seed: int) -> Scores:
    """A private additive classifier, one released table of marginals and one of moments."""
    fixed = {"delta": DELTA, "domain": Domain.from_dataset(train)}
    model = PrivateMomentClassifier(epsilon, random_state=seed, **fixed | dict(parameters)).fit(train.X, train.y)
    return Scores(model.decision_function, 0.0, model.guarantee_)


def network(model: str, parameters: Mapping[str, Any], train: Dataset, epsilon: float, seed: int) -> Scores:
    """A network trained by DP-SGD on features that public bounds scale.

    Its own guarantee is under add/remove. For one under replace-one, as the others have, it gets half the budget, and a
    replacement counts as two changes; `parameters` with "neighbouring" add/remove leave it as it is.
    """
    own = {"delta": DELTA, "bounds": train.bounds, "neighbouring": REPLACE_ONE} | dict(parameters)
    if own.pop("neighbouring") == ADD_REMOVE:
        return _fitted(DPNeuralClassifier(model, epsilon=epsilon, random_state=seed, **own), train)
    own["delta"] /= 1 + math.exp(epsilon / 2)
    learnt = _fitted(DPNeuralClassifier(model, epsilon=epsilon / 2, random_state=seed, **own), train)
    return learnt._replace(guarantee=learnt.guarantee.under_replace_one())


def synthetic(
    synthesizer: type, parameters: Mapping[str, Any], learner: str, train: Dataset, epsilon: float, seed: int
) -> Scores:
    """A learner without privacy, "trees" or "logistic", on private synthetic records, half of them of the minority."""
    own = {"n_bins": 16} | dict(parameters)
    domain = Domain.from_dataset(train, n_bins=own.pop("n_bins"))
    made = BalancedSynthesizer(synthesizer(epsilon, domain=domain, **own), n_samples=N_SYNTHETIC, random_state=seed)
    X, y = made.fit_resample(train.X, train.y)
    if learner == "trees":
        model = XGBClassifier(n_estimators=60, max_depth=4, n_jobs=1, random_state=seed)
    else:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return Scores(_probability(model.fit(X, y)), 0.5, made.guarantee_)


def as_wrapped(parameters: Mapping[str, Any], train: Dataset, epsilon: float, seed: int) -> Scores:
    """GEM and trees, where the whole budget is taken for the parameter of one round."""
    return synthetic(GEM, parameters, "trees", train, wrapped_epsilon(epsilon), seed)


def _fitted(model: BaseEstimator, train: Dataset) -> Scores:
    """The model's own decision: probabilities against one half, or its threshold; log odds against 0 for networks."""
    model.fit(train.X, train.y)
    if isinstance(model, DPNeuralClassifier):  # what it decides by is in its log odds alone
        return Scores(model.decision_function, 0.0, model.guarantee_)
    return Scores(_probability(model), getattr(model, "threshold_", 0.5), model.guarantee_)


def _probability(model: BaseEstimator) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rows: model.predict_proba(rows)[:, 1]


# Without privacy


def tuned(learner: str, weighted: bool, smote: bool, train: Dataset, epsilon: float, seed: int) -> Scores:
    """A learner with the best AUC of ten random settings in three folds; SMOTE sees the training folds alone."""
    if epsilon != math.inf:
        raise ValueError(f"epsilon must be infinite for a pipeline without privacy, got {epsilon!r}")
    ratio = float(train.counts[0] / train.counts[1])
    steps = [SMOTE(random_state=seed)] if smote else []
    if learner == "logistic":
        weight = "balanced" if weighted else None
        steps = [StandardScaler(), *steps, LogisticRegression(class_weight=weight, max_iter=2000)]
        grid = {"logisticregression__C": np.logspace(-3, 2, 26)}
    else:
        trees = XGBClassifier(n_jobs=1, scale_pos_weight=ratio if weighted else 1.0, random_state=seed)
        steps = [*steps, trees]
        grid = {
            "xgbclassifier__n_estimators": [50, 100, 150, 200, 300],
            "xgbclassifier__max_depth": [2, 3, 4, 5, 6, 7],
            "xgbclassifier__learning_rate": [0.02, 0.05, 0.1, 0.2, 0.3],
            "xgbclassifier__subsample": [0.6, 0.8, 1.0],
            "xgbclassifier__min_child_weight": [1, 2, 4, 8],
        }
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    search = RandomizedSearchCV(
        make_pipeline(*steps), grid, n_iter=_TRIES, scoring="roc_auc", cv=folds, random_state=seed
    )
    return Scores(_probability(search.fit(train.X, train.y)), 0.5, None)


# The registry

_DISJOINT = {"n_estimators": 5, "sampling": "disjoint", "voting": "soft"}
_NETWORK = {"epochs": 20, "sample_rate": 0.25}  # the paper's number of epochs
_COUNTED = {"prior": "offset", "decision": "cut-off"}
_SIZE = PAPER | {"parameterization": "direct", "lr": None}

_PRIVATE: dict[str, Pipeline] = {
    "GEM + XGBoost": partial(synthetic, GEM, {"delta": DELTA}, "trees"),
    "GEM, paper's size + XGBoost": partial(synthetic, GEM, {"delta": DELTA, **_SIZE}, "trees"),
    "AIM + XGBoost": partial(synthetic, AIM, {"delta": DELTA}, "trees"),
    "PrivBayes + XGBoost": partial(synthetic, PrivBayes, {}, "trees"),
    "MST + XGBoost": partial(synthetic, MST, {"delta": DELTA, "workload": "all"}, "trees"),
    "MST, label in all pairs + XGBoost": partial(synthetic, MST, {"delta": DELTA}, "trees"),
    "MST, label in all pairs + LogReg": partial(synthetic, MST, {"delta": DELTA}, "logistic"),
    "GEM + LogReg": partial(synthetic, GEM, {"delta": DELTA}, "logistic"),
    "AIM + LogReg": partial(synthetic, AIM, {"delta": DELTA}, "logistic"),
    "LogReg": partial(linear, ObjectivePerturbationClassifier, {}),
    "weighted LogReg": partial(linear, ObjectivePerturbationClassifier, {"class_weight": "balanced"}),
    "LogReg, private weights": partial(linear, ObjectivePerturbationClassifier, {"class_weight": "private"}),
    "weighted LogReg, Gaussian": partial(
        linear, ObjectivePerturbationClassifier, {"class_weight": "balanced", "delta": DELTA}
    ),
    "LogReg, output": partial(linear, OutputPerturbationClassifier, {}),
    "weighted LogReg, output": partial(linear, OutputPerturbationClassifier, {"class_weight": "balanced"}),
    "LogReg + threshold": partial(threshold, {}),
    "offset LogReg, cube": partial(offset, {}),
    "offset LogReg, Gaussian": partial(offset, {"delta": DELTA}),
    "gradient descent": partial(descent, DPGradientDescentClassifier, {}),
    "coordinate descent": partial(descent, DPCoordinateDescentClassifier, {}),
    "greedy coordinates": partial(descent, DPGreedyCoordinateClassifier, {}),
    "additive moments": partial(moments, {}),
    "bagged weighted LogReg": partial(bagging, _DISJOINT),
    "DP-SGD linear": partial(network, "linear", {**_NETWORK, **_COUNTED, "learning_rate": 0.2}),
    "DP-SGD linear, add/remove": partial(
        network, "linear", {**_NETWORK, **_COUNTED, "learning_rate": 0.2, "neighbouring": ADD_REMOVE}
    ),
    "weighted DP-SGD linear": partial(network, "linear", {**_NETWORK, "class_weight": "private", "learning_rate": 0.2}),
    "DP-SGD perceptron": partial(network, "mlp", {**_NETWORK, **_COUNTED, "learning_rate": 0.2}),
    "weighted DP-SGD FTT, printed": partial(
        network,
        "ft-transformer",
        {**_NETWORK, "class_weight": "private", "weighting": "loss", "learning_rate": 0.05, "neighbouring": ADD_REMOVE},
    ),
}
_WEIGHTED = {"class_weight": "balanced"}
_AS_PRINTED: dict[str, Pipeline] = {
    "weighted LogReg, as printed": partial(linear, PrintedObjectivePerturbation, _WEIGHTED | {"version": "icml"}),
    "weighted LogReg of the preprint, as printed": partial(
        linear, PrintedObjectivePerturbation, _WEIGHTED | {"version": "arxiv"}
    ),
    "GEM as wrapped + XGBoost": partial(as_wrapped, {"delta": DELTA, **_SIZE}),
}

PIPELINES = {name: Entry(run) for name, run in _PRIVATE.items()} | {
    name: Entry(run, guarantee_holds=False) for name, run in _AS_PRINTED.items()
}
"""Private, by name; the last three promise more than they keep."""
SLOW = ("GEM, paper's size + XGBoost", "GEM as wrapped + XGBoost", "weighted DP-SGD FTT, printed")
"""Those that take half a minute or a minute a trial, not one second."""

PUBLIC: dict[str, Pipeline] = {
    f"{'SMOTE' if smote else 'Identity'} + {'Weighted ' if weighted else ''}{name}": partial(
        tuned, learner, weighted, smote
    )
    for smote in (False, True)
    for name, learner in {"LogReg": "logistic", "XGBoost": "trees"}.items()
    for weighted in (False, True)
}
"""Without privacy: eight of the nine rows of Tables 13 to 20; the ninth is a network."""
