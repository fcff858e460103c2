"""What else `PrivateMomentClassifier` could have been, on development sets: nothing here has seen a reserve set.

`python -m benchmarks.variants` fits each variant on splits of the development sets, and writes the gains of all of them
over the classifier as it is to `results/private-classifiers-variants.csv`. A variant spends the same budget. One that
only changes a constant draws the same noise; the gains of all others have the noise of both sides in them. `holm` are
p-values corrected for all variants at one budget and relation, oracles aside. Fits are kept in `runs/`, and an
interrupted run goes on.
"""

import itertools
import math
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from unittest import mock

import numpy as np
import pandas as pd
from scipy.special import expit

from benchmarks import literature, reserve, trees
from benchmarks.accounts import AccountsByClass
from benchmarks.classifiers import ROOT, Outcome, Rows, Split, holm, measured, record, splits
from helpers import data
from helpers.data import Domain
from helpers.erm import PrivateMomentClassifier, marginals, moments
from helpers.erm.marginals import RankFeatures
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, gaussian_epsilon, gaussian_mu, noise_generator
from helpers.study import comparison

_LARGE = ("scene", "arrhythmia", "yeast_ml8", "coil_2000", "letter_img", "pen_digits")  # left out for time
SETS = tuple(name for name in reserve.DEVELOPMENT if name not in _LARGE)
EPSILONS, SPLITS = (0.1, 0.5, 1.0, 5.0), 8
KEPT = ROOT / "runs" / "classifiers-variants.csv"
_CELLS, _BINS = 32, 8
_PAIRS = 8  # attributes that are multiplied, at most
_BASE = "as it is"
_ORACLES = ("oracle: no noise on the class means", "oracle: no noise at all")


class _Kept(PrivateMomentClassifier):
    """Keeps what was released second."""

    def _solve(self, released):
        self.released = released
        super()._solve(released)


def with_constants(**changes) -> Callable:
    """The classifier with other values of constants of its two modules."""

    def fit(split: Split, epsilon: float, relation) -> Outcome:
        with ExitStack() as stack:
            for name, value in changes.items():
                stack.enter_context(mock.patch.object(moments if hasattr(moments, name) else marginals, name, value))
            return of_model(*fitted(split, epsilon, relation), split)

    return fit


def longer_rows(factor: float, **changes) -> Callable:
    """Rows that many times as long before they are clipped to 1: at the far end, every row has length 1."""
    rows, inner = RankFeatures.rows, with_constants(**changes)

    def fit(split, epsilon, relation):
        with mock.patch.object(RankFeatures, "rows", lambda self, X: factor * rows(self, X)):
            return inner(split, epsilon, relation)

    return fit


def with_centre(share: float) -> Callable:
    """Also the sum of all rows, for its share of the squared parameter: where the mean score is, is known better."""

    def fit(split, epsilon, relation):
        model, X_test = fitted(split, _part(epsilon, split, 1 - share), relation)
        rows = np.concatenate(list(moments._clipped(model.features_, split.X)))
        spread = (1 + (relation is REPLACE_ONE)) / (gaussian_mu(epsilon, split.delta) * math.sqrt(share))
        centre = rows.sum(axis=0) + _noise(split, "centre").normal(0, spread, rows.shape[1])
        kept = max(1 - len(centre) * spread**2 / float(centre @ centre), 0.0)
        outcome = of_model(model, X_test, split)
        return outcome._replace(threshold=float(model.coef_[0] @ centre) * kept / len(rows))

    return fit


def with_histogram(share: float) -> Callable:
    """Threshold from a noisy histogram of the scores of each class, where it is clear of its noise."""

    def fit(split, epsilon, relation):
        model, X_test = fitted(split, _part(epsilon, split, 1 - share), relation)
        scores, width = model.decision_function(split.X), np.linalg.norm(model.coef_)
        edges = np.linspace(-width, width, _CELLS - 1) / 2
        noise, rng = _sensitivity(relation) / (gaussian_mu(epsilon, split.delta) * math.sqrt(share)), _noise(split, "h")
        errors = []
        for label, size in ((0, 1 - model.priors_[0]), (1, model.priors_[0])):
            counts = np.bincount(np.searchsorted(edges, scores[split.y == label]), minlength=_CELLS)
            errors.append(np.cumsum(counts + rng.normal(0, noise, _CELLS))[:-1] / (size * len(scores)))
        spread = noise * np.sqrt(np.arange(1, _CELLS)) / (model.priors_[0] * len(scores))
        believed = 0.05**2 / (0.05**2 + spread**2)
        value = believed * (errors[0] - errors[1]) - (1 - believed) * abs(edges) / width
        return of_model(model, X_test, split)._replace(threshold=float(edges[value.argmax()]))

    return fit


def two_passes(share: float) -> Callable:
    """A Newton step of logistic regression after the fit, from one more release: the rows times what is left of y."""

    def fit(split, epsilon, relation):
        model, X_test = fitted(split, _part(epsilon, split, 1 - share), relation, _Kept)
        rows = np.concatenate(list(moments._clipped(model.features_, split.X)))
        spread = (1 + (relation is REPLACE_ONE)) / (gaussian_mu(epsilon, split.delta) * math.sqrt(share))
        left = rows.T @ (split.y - model.predict_proba(split.X)[:, 1])
        left = (left + _noise(split, "pass").normal(0, spread, len(left))) / len(rows)
        second, noise = model.released.second / len(rows), model.released.noise_scale_second / len(rows)
        values, vectors = moments._cleaned(second, noise)
        signal = max(left @ left - len(left) * (spread / len(rows)) ** 2, (spread / len(rows)) ** 2)
        ridge = moments._RIDGE * (spread / len(rows)) ** 2 / signal
        step = vectors @ ((vectors.T @ left) / (values + ridge))
        model.coef_ = model.coef_ + step / (model.priors_[0] * (1 - model.priors_[0]))
        return of_model(model, X_test, split)

    return fit


def with_pairs(split, epsilon, relation) -> Outcome:
    """Products of the first attributes as attributes of their own."""
    X, X_test = split.scaled()
    pairs = list(itertools.combinations(range(min(X.shape[1], _PAIRS)), 2))
    wide = [np.column_stack([part, *(part[:, i] * part[:, j] for i, j in pairs)]) for part in (X, X_test)]
    model = PrivateMomentClassifier(epsilon, split.delta, neighbouring=relation, random_state=split.seed)
    model.fit(wide[0], split.y)
    return of_model(model, wide[1], split)


def bins(split, epsilon, relation) -> Outcome:
    """An additive model of indicators: noisy histograms, cells merged to bins, then residual sums in the bins."""
    X, X_test = split.scaled()
    mu, d, factor = gaussian_mu(epsilon, split.delta), X.shape[1], 1 + (relation is REPLACE_ONE)
    first, second = mu * math.sqrt(0.2), mu * math.sqrt(0.8)
    rng, noise = _noise(split, "bins"), math.sqrt(factor * d + 1) / first
    edges = np.linspace(-1, 1, _CELLS + 1)[1:-1]
    share = np.clip((split.y.sum() + rng.normal(0, noise)) / len(X), 2 / len(X), 0.5)
    most = max(share, 1 - share) if factor == 1 else max(share, 1 - share, math.sqrt(0.5))
    spread, scores = math.sqrt(factor * d) * most / second, np.zeros(len(X_test))
    for j in range(d):
        cells, tested = np.searchsorted(edges, X[:, j], side="right"), np.searchsorted(edges, X_test[:, j], "right")
        weights = np.maximum(np.bincount(cells, minlength=_CELLS) + rng.normal(0, noise, _CELLS), 0)
        least = max(len(X) / _BINS, 2 * noise)
        of_cell = np.minimum((np.cumsum(weights) - weights / 2) // least, max(len(X) // least - 1, 0)).astype(int)
        size = of_cell.max() + 1
        sums = np.bincount(of_cell[cells], split.y - share, size) + rng.normal(0, spread, size)
        weight = np.bincount(of_cell, weights, size)
        scores += (sums / (weight * share * (1 - share) + spread))[of_cell[tested]]
    return Outcome(scores, 0.0, expit(scores + math.log(share / (1 - share))), 0.0)


VARIANTS = {
    _BASE: with_constants(),
    "rows 1.25 times as long": longer_rows(1.25),
    "rows of length 1": longer_rows(1e6),
    "more for the class sizes": with_constants(LABEL_SHARE=0.35),
    "ranks alone, no polynomials": with_constants(_DEGREES=(1.0,)),
    "polynomials of more weight": with_constants(_DEGREES=(1.0, 0.7, 0.5)),
    "half the ridge": with_constants(_RIDGE=7.5),
    "twice the ridge": with_constants(_RIDGE=30.0),
    "no limits on the gap": with_constants(_GAPS=(0.0, 100.0)),
    "longer rows, class sizes, half the ridge": longer_rows(1.25, LABEL_SHARE=0.35, _RIDGE=7.5),
    "released centre, 4 %": with_centre(0.04),
    "histogram of scores, 10 %": with_histogram(0.1),
    "second pass, 30 %": two_passes(0.3),
    "products of pairs": with_pairs,
    "histograms and residual sums": bins,
    "an account for each class": lambda *arguments: of_model(*fitted(*arguments, AccountsByClass), arguments[0]),
    "two columns, privately chosen": literature.selection(2),
    "eight columns, privately chosen": literature.selection(8),
    "attributes weighed by a first look, 30 %": literature.two_looks(0.3),
    "prior: smooth effects likelier": literature.prior_on_degrees(0.5),
    "eight random directions": literature.projection(8),
    "boosting in bins, 4 passes": literature.boosting(4, 0.2),
    "boosting in bins, 16 passes": literature.boosting(16, 0.2),
    "coordinate descent in bins": literature.coordinates("bins"),
    "coordinate descent on ranks": literature.coordinates("ranks"),
    "gradient descent on ranks": literature.gradients(20),
    "DP-FTRL on ranks": literature.following_the_leader(16, 2.0),
    "boosted trees, learnt": trees.learnt_trees(16, 2),
    "boosted trees, random splits": trees.random_trees(16, 4),
    "random trees after moments, 30 %": trees.random_trees(16, 4, after_moments=0.7),
    "kernel support vectors (DPpack)": literature.kernel_machine,
    "functional mechanism": literature.functional,
    "AdaSSP": literature.adassp,
    "linear discriminant": literature.discriminant(quadratic=False),
    "quadratic discriminant": literature.discriminant(quadratic=True),
    _ORACLES[0]: literature.oracle("sums"),
    _ORACLES[1]: literature.oracle("all"),
}


def fitted(split: Split, epsilon: float, relation, kind: type = PrivateMomentClassifier):
    """A fitted classifier, and the test records."""
    domain = Domain.from_dataset(split.dataset, n_bins=32)
    model = kind(epsilon, split.delta, domain, neighbouring=relation, random_state=split.seed)
    return model.fit(split.X, split.y), split.X_test


def of_model(model, X_test, split) -> Outcome:
    """Scores at the threshold 0, and probabilities."""
    return Outcome(model.decision_function(X_test), 0.0, model.predict_proba(X_test)[:, 1], 0.0)


def _part(epsilon, split, share) -> float:
    return gaussian_epsilon(split.delta, gaussian_mu(epsilon, split.delta) * math.sqrt(share))


def _sensitivity(relation) -> float:
    """Of a histogram."""
    return math.sqrt(1 + (relation is REPLACE_ONE))


def _noise(split, name) -> np.random.Generator:
    return noise_generator(split.seed, name, split.dataset.name, split.y)


def _gains(trials: pd.DataFrame) -> pd.DataFrame:
    """Mean scores of each variant, and over the data sets its gains over the classifier as it is."""
    keys = ["variant", "relation", "epsilon"]
    by_set = trials.groupby([*keys, "dataset"], sort=False)[["auc", "balanced_accuracy"]].mean()
    gains = by_set - by_set.loc[_BASE].reindex(by_set.index.droplevel("variant")).to_numpy()
    found = by_set.groupby(keys, sort=False).mean()
    for score in ("auc", "balanced_accuracy"):
        parts = gains[score].rename("mean").reset_index().groupby(keys, sort=False)
        tests = {key: comparison.signed_rank(part) for key, part in parts}
        found[f"{score}_gain"] = parts["mean"].mean()
        found[f"{score}_p"] = {key: test["p_value"] for key, test in tests.items()}
        private = found.index[~found.index.get_level_values("variant").isin([_BASE, *_ORACLES])]
        corrected = found.loc[private].groupby(["relation", "epsilon"])[f"{score}_p"].transform(holm)
        found[f"{score}_holm"] = corrected.reindex(found.index)
        found[f"{score}_better"] = {key: test["n_better"] for key, test in tests.items()}
    return found.reset_index().round(4)


def main() -> None:
    """Fit all variants, and write their gains."""
    warnings.simplefilter("ignore")
    relations = {"replace-one": REPLACE_ONE, "add/remove": ADD_REMOVE}
    KEPT.parent.mkdir(exist_ok=True)
    rows = Rows(KEPT, ("variant", "dataset", "epsilon", "relation", "split"))
    for name, variant in itertools.product(SETS, VARIANTS):
        for split, epsilon, relation in itertools.product(_splits(name), EPSILONS, relations):
            work = partial(trial, VARIANTS[variant], split, epsilon, relations[relation])
            rows.add((variant, name, epsilon, relation, split.seed), work)
    trials = pd.read_csv(KEPT)
    trials = trials[trials.dataset.isin(SETS) & (trials.split < SPLITS)]
    record(_gains(trials), "private-classifiers-variants", trials)


@cache
def _splits(name) -> list[Split]:
    return list(splits(data.load(name), SPLITS))


def trial(fit: Callable, split: Split, epsilon: float, relation) -> dict[str, float]:
    """Metrics of one fit, and its CPU seconds with those of the scores."""
    started = time.process_time()
    scores = measured(fit(split, epsilon, relation), split.y_test)
    return scores | {"seconds": time.process_time() - started}


if __name__ == "__main__":
    main()
