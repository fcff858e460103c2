"""Other private classifiers, and parts of them, for the comparison on development sets (`benchmarks.variants`).

Each function takes a split, a budget and a relation, spends the whole budget, and returns the scores of the test
records with the threshold 0. With delta = n^-2 all of them are Gaussian mechanisms of one parameter mu, which is shared
out by squares; where a share of epsilon is left out of that, it is said. As for the other methods n is public. Where a
paper has no noise for replace-one or no cut-off for a rare class, it gets those that its sums need, and the noisy share
of the minority for a tenth of epsilon. The oracles are not private at all: they say what the noise costs.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from benchmarks.accounts import symmetric_noise
from benchmarks.classifiers import Outcome, Split
from helpers.data import Domain
from helpers.erm import (
    DPCoordinateDescentClassifier,
    DPGradientDescentClassifier,
    KernelClassifier,
    ObjectivePerturbationClassifier,
    PrivateMomentClassifier,
    default_regularization,
)
from helpers.erm.marginals import RankFeatures, noisy_marginals
from helpers.erm.moments import _clipped, _Moments, moments_noise
from helpers.erm.partitions import table
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Ledger, gaussian_epsilon, gaussian_mu, noise_generator

_CELLS, _FIRST, _COUNT = 32, 0.15, 0.1
_BINS, _FREQUENCIES = 8, 50


class Ranks(NamedTuple):
    """What the first release gives, and the parameter that is left."""

    model: PrivateMomentClassifier
    codes: np.ndarray
    rows: np.ndarray
    tested: np.ndarray
    mu: float
    rng: np.random.Generator

    @property
    def share(self) -> float:
        """Of the minority."""
        return float(self.model.marginals_.priors[1])


class _Bare(PrivateMomentClassifier):
    """Without shapes, for rows that are no longer those of single attributes."""

    def _shapes(self, vectors, spreads):
        return []


def first_release(split: Split, epsilon: float, relation, name: str, exact: bool = False) -> Ranks:
    """Marginals and class sizes of `PrivateMomentClassifier`, and the rows that it makes of them."""
    domain, mu = Domain.from_dataset(split.dataset, n_bins=_CELLS), gaussian_mu(epsilon, split.delta)
    records, rng = table(split.X, split.y, np.array([0, 1])), noise_of(split, name, epsilon)
    model = _Bare(epsilon, split.delta, domain, neighbouring=relation)
    model.classes_ = np.array([0, 1])
    model.marginals_ = noisy_marginals(Ledger(records, relation, rng), domain, 1e9 if exact else math.sqrt(_FIRST) * mu)
    model.features_ = RankFeatures(domain, model.marginals_.cells)
    rows, tested = (np.concatenate(list(_clipped(model.features_, X))) for X in (split.X, split.X_test))
    return Ranks(model, split.y, rows, tested, math.sqrt(1 - _FIRST) * mu, rng)


def noise_of(split: Split, name: str, epsilon: float) -> np.random.Generator:
    """The source of a method's noise on a split."""
    return noise_generator(split.seed, name, epsilon, split.dataset.name, split.y)


def by_moments(ranks: Ranks, relation, rows=None, tested=None, part: float = 1.0, quiet: str = "") -> Outcome:
    """`PrivateMomentClassifier` on rows of length at most 1, for a part of mu^2; "sums" or "all" have no noise."""
    rows, tested = ranks.rows if rows is None else rows, ranks.tested if tested is None else tested
    model, mu = ranks.model, math.sqrt(part) * ranks.mu
    sigma, t, k = moments_noise(model.marginals_.priors, mu, relation)
    sigma, t = (1e-9 if quiet else sigma), (1e-9 if quiet == "all" else t)
    labels = (np.eye(2) - model.marginals_.priors)[ranks.codes]
    basis, size = np.array([1.0, -1.0]) / math.sqrt(2), rows.shape[1]
    means = np.outer(basis, basis @ labels.T @ rows + ranks.rng.normal(0, sigma, size))
    counts = basis * (basis @ labels.sum(axis=0) + ranks.rng.normal(0, sigma) / k)
    second = rows.T @ rows + symmetric_noise(size, t, ranks.rng)
    of_class = sigma / math.sqrt(2)
    model._solve(_Moments(means, counts, second, of_class, of_class / k, t))
    return decided(tested @ model.coef_[0] + model.intercept_[0], model.priors_[0])


def decided(scores: np.ndarray, share: float) -> Outcome:
    """Scores with the threshold 0."""
    return Outcome(scores, 0.0, expit(scores + logit(np.clip(share, 1e-6, 1 - 1e-6))), 0.0)


def oracle(quiet: str) -> Callable:
    """Not private: without noise on the sums ("sums"), or on anything ("all")."""

    def fit(split, epsilon, relation):
        ranks = first_release(split, epsilon, relation, "oracle", exact=quiet == "all")
        return by_moments(ranks, relation, quiet=quiet)

    return fit


# Fewer, or other, features


def projection(size: int) -> Callable:
    """Rows on random directions, which are public."""

    def fit(split, epsilon, relation):
        ranks = first_release(split, epsilon, relation, "projection")
        width = ranks.rows.shape[1]
        directions = np.random.default_rng(split.seed).normal(size=(width, min(size, width)))
        directions = np.linalg.qr(directions)[0] * math.sqrt(width / min(size, width))
        return by_moments(ranks, relation, _in_ball(ranks.rows @ directions), _in_ball(ranks.tested @ directions))

    return fit


def prior_on_degrees(strength: float) -> Callable:
    """Polynomials beyond the first weigh less the more noise a class mean has: smooth effects are likelier."""

    def fit(split, epsilon, relation):
        ranks = first_release(split, epsilon, relation, "degrees")
        noise = 2 if relation is REPLACE_ONE else 1
        noise *= math.sqrt(ranks.rows.shape[1]) / ranks.mu / (strength * ranks.share * len(ranks.rows))
        tables = ranks.model.features_.tables
        edges = [bool(attribute.edges) for attribute in ranks.model.features_.domain.attributes]
        degree = np.concatenate([np.arange(t.shape[1]) * e for t, e in zip(tables, edges, strict=True)])
        weights = np.where(degree > 0, 1 / math.hypot(1, noise), 1.0)
        squares = np.concatenate([c @ t**2 for c, t in zip(ranks.model.marginals_.cells, tables, strict=True)])
        weights /= math.sqrt(squares @ weights**2) or 1.0
        rows, tested = (ranks.model.features_.rows(X) * weights for X in (split.X, split.X_test))
        return by_moments(ranks, relation, _in_ball(rows), _in_ball(tested))

    return fit


def two_looks(share: float) -> Callable:
    """A first look at the class means decides how much each attribute weighs in the second."""

    def fit(split, epsilon, relation):
        ranks = first_release(split, epsilon, relation, "looks")
        sigma = moved_by(relation) * (1 - ranks.share) / (math.sqrt(share) * ranks.mu)
        look = (split.y - ranks.share) @ ranks.rows + ranks.rng.normal(0, sigma, ranks.rows.shape[1])
        tables = ranks.model.features_.tables
        of = np.repeat(np.arange(len(tables)), [t.shape[1] for t in tables])
        cells = ranks.model.marginals_.cells
        squares = np.concatenate([c @ t**2 for c, t in zip(cells, tables, strict=True)])
        found, sizes = np.bincount(of, look**2), np.bincount(of)
        raw = found - sizes * sigma**2
        centre, noise = max(raw.mean(), 0.0), 2 * sizes * sigma**4 + 4 * sigma**2 * max(raw.mean(), 0.0)
        spread = max(((raw - centre) ** 2 - noise).mean(), 0.0)
        strength = np.maximum(centre + (raw - centre) * spread / (spread + noise), 0.0)
        weights = np.sqrt((strength + 0.05 * strength.mean() + 1e-9) / np.maximum(np.bincount(of, squares), 1e-9))[of]
        weights = np.sqrt(weights) * (squares > 0)
        weights /= math.sqrt(squares @ weights**2) or 1.0
        rows, tested = (ranks.model.features_.rows(X) * weights for X in (split.X, split.X_test))
        return by_moments(ranks, relation, _in_ball(rows), _in_ball(tested), part=1 - share)

    return fit


def selection(count: int, share: float = 0.25) -> Callable:
    """Columns by noisy maxima of their class gaps, for a share of epsilon; the moment classifier on these."""

    def fit(split, epsilon, relation):
        rng, (X, _) = noise_of(split, "selection", epsilon), split.scaled()
        each = share * epsilon / (count + 1)
        minority = np.clip((split.y.sum() + rng.laplace(0, 1 / each)) / len(split.y), 0, 0.5)
        gaps, width = abs((split.y - minority) @ X), 2.0 if relation is REPLACE_ONE else 1.0
        chosen: list[int] = []
        for _ in range(min(count, len(gaps))):
            noisy = gaps + rng.exponential(2 * width / each, len(gaps))
            noisy[chosen] = -math.inf
            chosen.append(int(noisy.argmax()))
        model = PrivateMomentClassifier(
            (1 - share) * epsilon,
            split.delta,
            split.dataset.bounds[chosen],
            neighbouring=relation,
            random_state=split.seed,
        ).fit(split.X[:, chosen], split.y)
        return decided(model.decision_function(split.X_test[:, chosen]), model.priors_[0])

    return fit


def _in_ball(rows) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1), 1.0)[:, None]


# Optimisers on private ranks or bins


def boosting(passes: int, rate: float) -> Callable:
    """Additive boosting in fixed bins (Nori et al. 2021, all attributes at once): a Gaussian release each pass."""

    def fit(split, epsilon, relation):
        ranks = first_release(split, epsilon, relation, "boosting")
        bins, tested, weights = private_bins(ranks, split)
        # A record's residual, at most 1 in size, is in one bin an attribute; another's can be the opposite, in it too.
        spread = moved_by(relation) * math.sqrt(len(bins) * passes) / ranks.mu
        offset, share = logit(ranks.share), ranks.share
        scores, new = np.full(len(split.y), offset), np.full(len(split.X_test), offset)
        for _ in range(passes):
            residuals, step, step_new = split.y - expit(scores), 0.0, 0.0
            for codes, codes_new, size in zip(bins, tested, weights, strict=True):
                sums = np.bincount(codes, residuals, len(size)) + ranks.rng.normal(0, spread, len(size))
                heights = rate * sums / (size * share * (1 - share) + spread)
                step, step_new = step + heights[codes], step_new + heights[codes_new]
            scores, new = scores + step, new + step_new
        return decided(new - offset, share)

    return fit


def descended(learner: type, own: dict, split, relation, ranks, rows, tested):
    """Decisions of a private descent on rows that are in scale, with what the first release has left."""
    model = learner(
        gaussian_epsilon(split.delta, ranks.mu),
        split.delta,
        scale=None,
        prior="offset",
        neighbouring=relation,
        random_state=split.seed,
        n_records=len(split.y) if relation is ADD_REMOVE else None,
        **own,
    ).fit(rows, split.y)
    return decided(model.decision_function(tested) - model.offset_, ranks.share)


def coordinates(on: str, sweeps: int = 30) -> Callable:
    """Private coordinate descent (Mangold et al. 2022) on indicators of fixed bins, or on ranks."""

    def fit(split, epsilon, relation):
        ranks = first_release(split, epsilon, relation, "coordinates")
        rows, tested, options = ranks.rows, ranks.tested, {}
        if on == "bins":
            bins, new, weights = private_bins(ranks, split)
            unit = 1 / math.sqrt(len(bins))
            rows, tested = (
                unit * np.concatenate([np.eye(len(size))[c] for c, size in zip(codes, weights, strict=True)], axis=1)
                for codes in (bins, new)
            )
            centre = unit * np.concatenate([size / size.sum() for size in weights])
            options = {"bounds": np.tile([0.0, unit], (len(centre), 1)), "center": centre}
        own = {"sweeps": sweeps, **options}
        return descended(DPCoordinateDescentClassifier, own, split, relation, ranks, rows, tested)

    return fit


def gradients(steps: int) -> Callable:
    """Private gradient steps on ranks, each from all records."""

    def fit(split, epsilon, relation):
        ranks = first_release(split, epsilon, relation, "gradients")
        own = {"n_steps": steps}
        return descended(DPGradientDescentClassifier, own, split, relation, ranks, ranks.rows, ranks.tested)

    return fit


def following_the_leader(batches: int, rate: float) -> Callable:
    """DP-FTRL (Kairouz et al. 2021) on ranks: one pass, and prefix sums of the gradients with noise from a tree."""

    def fit(split, epsilon, relation):
        ranks = first_release(split, epsilon, relation, "leader")
        levels, size = batches.bit_length(), ranks.rows.shape[1]
        spread, offset = moved_by(relation) * math.sqrt(levels) / ranks.mu, logit(ranks.share)
        step = rate / (len(split.y) * ranks.share * (1 - ranks.share))
        weights, exact, mean = np.zeros(size), np.zeros(size), np.zeros(size)
        nodes: dict[tuple[int, int], np.ndarray] = {}
        for seen, batch in enumerate(np.array_split(ranks.rng.permutation(len(split.y)), batches), start=1):
            exact = exact + (split.y[batch] - expit(offset + ranks.rows[batch] @ weights)) @ ranks.rows[batch]
            noise, start = np.zeros(size), 0
            for level in reversed(range(levels)):
                if seen >> level & 1:
                    if (level, start) not in nodes:
                        nodes[level, start] = ranks.rng.normal(0, spread, size)
                    noise, start = noise + nodes[level, start], start + (1 << level)
            weights = step * (exact + noise)
            mean += weights / batches
        return decided(ranks.tested @ mean, ranks.share)

    return fit


def moved_by(relation) -> int:
    """How far one record moves a sum of vectors of length 1."""
    return 2 if relation is REPLACE_ONE else 1


def private_bins(ranks, split):
    """Codes of the records and of the test records in at most eight bins an attribute, and the bins' sizes."""
    domain, found = ranks.model.domain, ([], [], [])
    codes, tested = domain.encode(split.X, split.y), domain.encode(split.X_test, split.y_test)
    for j, (attribute, shares) in enumerate(zip(domain.attributes, ranks.model.marginals_.cells, strict=True)):
        of = np.arange(attribute.size)
        if attribute.edges and attribute.size > _BINS:
            of = np.minimum((np.cumsum(shares) - shares / 2) * _BINS, _BINS - 1).astype(int)
        of = np.unique(of, return_inverse=True)[1]
        for part, new in zip(found, (of[codes[:, j]], of[tested[:, j]], np.bincount(of, shares)), strict=True):
            part.append(new)
    bins, new, shares = found
    return bins, new, [ranks.model.marginals_.n_records * share for share in shares]


# What DPpack offers beside the logistic regression of the comparison


def kernel_machine(split: Split, epsilon: float, relation) -> Outcome:
    """Huber support vectors on random Fourier features by objective perturbation, with balanced weights (pure)."""
    X, X_test = split.scaled()
    inner = ObjectivePerturbationClassifier(
        regularization=default_regularization(len(X), 2 * _FREQUENCIES, (1 - _COUNT) * epsilon),
        loss="huber",
        class_weight="balanced",
        fit_intercept=False,
        neighbouring=relation,
        n_records=len(X) if relation is ADD_REMOVE else None,
    )
    model = KernelClassifier(inner, epsilon, _FREQUENCIES, gamma=1 / X.shape[1], random_state=split.seed)
    return decided(model.fit(X, split.y).decision_function(X_test), 0.5)


# Linear models by released sums of the columns, scaled by their bounds


def functional(split: Split, epsilon: float, relation) -> Outcome:
    """Functional mechanism (Zhang et al. 2012): noisy coefficients of the loss's second-order expansion at 0."""
    rows, tested, rng, share, mu = _columns(split, epsilon, "functional")
    spread, size = moved_by(relation) * math.sqrt(1 / 4 + 1 / 64) / mu, rows.shape[1]
    linear = (split.y - 0.5) @ rows + rng.normal(0, spread, size)
    second = 2 * (rows.T @ rows / 8 + symmetric_noise(size, spread, rng))
    values, vectors = np.linalg.eigh(second + 4 * math.sqrt(2) * spread * np.eye(size))
    kept = values > 0
    weights = vectors[:, kept] @ (vectors[:, kept].T @ linear / values[kept])
    return decided(tested @ weights - logit(share), share)


def adassp(split: Split, epsilon: float, relation) -> Outcome:
    """AdaSSP (Wang 2018) for labels of -1 and 1: a third of mu^2 each for S, the sums and the least eigenvalue."""
    rows, tested, rng, share, mu = _columns(split, epsilon, "adassp")
    size, mu = rows.shape[1], mu / math.sqrt(3)
    spread = math.sqrt(moved_by(relation)) / mu
    second = rows.T @ rows
    least = max(np.linalg.eigvalsh(second)[0] + rng.normal(0, 1 / mu) - 1.65 / mu, 0.0)
    ridge = max(0.0, spread * math.sqrt(size * math.log(2 * size**2 / 0.05)) - least)
    second = second + symmetric_noise(size, spread, rng) + ridge * np.eye(size)
    sums = (2 * split.y - 1) @ rows + rng.normal(0, moved_by(relation) / mu, size)
    return decided(tested @ np.linalg.solve(second, sums) - (2 * share - 1), share)


def discriminant(quadratic: bool) -> Callable:
    """Gaussian classes: size, sum and second moments of each, which are about disjoint records."""

    def fit(split, epsilon, relation):
        X, X_test = split.scaled()
        X, X_test = (x / math.sqrt(x.shape[1]) for x in (X, X_test))
        rng, size = noise_of(split, "discriminant", epsilon), X.shape[1]
        spread = math.sqrt(6 if relation is REPLACE_ONE else 3) / gaussian_mu(epsilon, split.delta)
        sizes, means, seconds = [], [], []
        for label in (0, 1):
            rows = X[split.y == label]
            sizes.append(max(len(rows) + rng.normal(0, spread), 2.0))
            means.append((rows.sum(axis=0) + rng.normal(0, spread, size)) / sizes[-1])
            seconds.append(rows.T @ rows + symmetric_noise(size, spread, rng))
        share = sizes[1] / sum(sizes)
        if not quadratic:
            within = sum(s - n * np.outer(m, m) for s, n, m in zip(seconds, sizes, means, strict=True)) / sum(sizes)
            vectors, values = _positive(within, spread * math.sqrt(2 * size) / sum(sizes))
            weights = vectors @ (vectors.T @ (means[1] - means[0]) / values)
            return decided((X_test - (means[0] + means[1]) / 2) @ weights, share)
        densities = []
        for second, n, mean in zip(seconds, sizes, means, strict=True):
            vectors, values = _positive(second / n - np.outer(mean, mean), spread * math.sqrt(2 * size) / n)
            densities.append(-0.5 * (((X_test - mean) @ vectors) ** 2 / values).sum(axis=1) - np.log(values).sum() / 2)
        return decided(densities[1] - densities[0], share)

    return fit


def _positive(matrix, noise):
    """Eigenvectors, and eigenvalues that are at least twice what noise alone gives."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors, np.maximum(values, 2 * noise + 1e-9)


def _columns(split, epsilon, name):
    """Rows in the unit ball with a constant, generator, noisy share of the minority, and the parameter that is left."""
    rng, parts = noise_of(split, name, epsilon), []
    for X in split.scaled():
        rows = np.column_stack([X, np.ones(len(X))])
        parts.append(rows / math.sqrt(rows.shape[1]))
    share = (split.y.sum() + rng.laplace(0, 1 / (_COUNT * epsilon))) / len(split.y)
    mu = gaussian_mu((1 - _COUNT) * epsilon, split.delta)
    return *parts, rng, float(np.clip(share, 2 / len(split.y), 0.5)), mu
