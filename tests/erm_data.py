"""Made-up data for the tests of helpers.erm, and the noise of a fitted model recovered from what it releases."""

import math
from types import SimpleNamespace

import numpy as np

from checks.exact_loss import gradient, softmax_gradient
from helpers import erm
from helpers.erm import calibration, perturbation, risk

ROUNDING = 1 + 1e-9
HUBER = erm.huber(0.3)


def simulated(n, d, n_classes=2, *, seed=0, scale=0.4):
    """Records of n_classes classes that a linear rule tells apart, with noise."""
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((n, d))
    y = np.argmax(X @ rng.standard_normal((d, n_classes)) + 0.3 * rng.standard_normal((n, n_classes)), axis=1)
    return X, y


def in_ball(rng, n, d, radius=1.0):
    """Rows of norm at most radius, many of them on the sphere and some along an axis."""
    rows = rng.standard_normal((n, d))
    rows[rng.random(n) < 0.3] *= 1e-6
    rows[:, 0] += 3 * (rng.random(n) < 0.3)
    length = np.linalg.norm(rows, axis=1) * np.where(rng.random(n) < 0.7, 1.0, 1 + rng.random(n))
    return radius * rows / length[:, None]


def neighbours(rng, n, d, n_classes=2, radius=1.0):
    """Rows and labels of two data sets that differ in their first record; empty classes occur."""
    rows = in_ball(rng, n + 1, d, radius)
    shares = rng.dirichlet(np.full(n_classes, rng.choice([0.05, 0.3, 5.0])))
    codes = rng.choice(n_classes, size=n + 1, p=shares)
    if rng.random() < 0.3:
        codes[:] = codes[0]
        codes[-1] = rng.integers(n_classes)
    other = np.arange(n)
    other[0] = n
    return (rows[:n], codes[:n]), (rows[other], codes[other])


def weights_of(codes, n_classes=2):
    """Balanced weight of every record."""
    return erm.class_weights(np.bincount(codes, minlength=n_classes))[codes]


def parameters(model):
    """The released beta (d,) or C (K - 1, d), from the released coefficients."""
    if model.fit_intercept:
        a = model.intercept_scaling
        beta = math.sqrt(1 + a**2) * np.column_stack([model.coef_, model.intercept_ / (a * model.radius)])
    else:
        beta = model.coef_
    return beta[0] if len(beta) == 1 else erm.zero_sum_basis(len(beta)) @ beta


def recovered_noise(model, X, y, weights=None):
    """The noise b of objective perturbation: minus n times the gradient of the risk at the released coefficients."""
    n, loss, regularization = model.n_records or len(X), model._loss(), model.total_regularization_
    rows = model._rows(X).written()
    beta, codes = parameters(model), np.searchsorted(model.classes_, y)
    if beta.ndim == 2:
        slope = softmax_gradient(beta, rows, codes, regularization, np.zeros_like(beta), weights, n)
    else:
        signed = rows * (2 * codes - 1)[:, None]
        slope = gradient(beta, signed, loss, regularization, np.zeros_like(beta), weights, n)
    return -n * slope.ravel()


def determinant_share(model, n, weighting=erm.UNWEIGHTED):
    """What the Jacobian costs a fit on n records whose penalty was raised: 0 if no record pulls and bends at once."""
    loss = model._loss()
    if loss.free_ratio >= (1.0 if model.delta else 1e-9):
        return 0.0
    return calibration.determinant_cost(model.radius**2 / (n * model.total_regularization_), loss, weighting)


def watched(monkeypatch):
    """A list that gets what a perturbation asks its solver for, and what it finds, at every fit from now on."""
    seen, told = [], []
    within, precision = perturbation.PerturbationClassifier._within, perturbation.precision

    def precise(*arguments, **sizes):
        told.append(precision(*arguments, **sizes))
        return told[-1]

    def watch(self, ledger, public, penalty, *lengths):
        distance, minimise = within(self, ledger, public, penalty, *lengths)

        def minimiser(records, *noise):
            found = minimise(records, *noise)
            drawn = noise[0] if noise else np.zeros(found.size)
            asked = {"records": records, "noise": drawn, "public": public, "penalty": penalty, "distance": distance}
            seen.append(SimpleNamespace(**asked, reach=told[-1].reach, found=found))
            return found

        return distance, minimiser

    monkeypatch.setattr(perturbation, "precision", precise)
    monkeypatch.setattr(perturbation.PerturbationClassifier, "_within", watch)
    return seen


def minimize_softmax(Z, codes, n_classes, regularization, linear, distance):
    """Minimiser C (K - 1, d) of the mean softmax loss + (regularization/2) ||C||^2 + <linear, C>."""
    table = risk.Table(list(risk.blocks_of([Z], codes)), Z.shape)
    longest = np.linalg.norm(Z, axis=1).max()
    sums = risk.SoftmaxSums(erm.Softmax(n_classes))
    return risk.Risk(table, sums, regularization, linear, len(Z), 1.0, longest).minimiser(distance)
