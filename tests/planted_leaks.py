"""Small releases that claim epsilon 1 under replace-one, each with one leak, and honest ones without."""

import threading
import time
import warnings
from pathlib import Path

import numpy as np


class Honest:
    """A noisy sum of the first column, a noisy count of the rare class, both for half of epsilon; n is public."""

    def fit(self, X, y):
        self.rng = np.random.default_rng()
        self.bounded = np.clip(np.nan_to_num(X[:, 0]), -1, 1)
        self.sum_ = self.grid(self.bounded.sum() + self.rng.laplace(scale=4.0))
        self.count_ = int(np.sum(y == 1)) + self.integer(0.5)
        self.release(X, y)
        del self.rng, self.bounded
        return self

    def grid(self, number):
        return float(np.round(number * 2**18) / 2**18)

    def integer(self, epsilon):
        return int(self.rng.geometric(1 - np.exp(-epsilon)) - self.rng.geometric(1 - np.exp(-epsilon)))

    def release(self, X, y):
        """Where the leaks go."""

    def predict_proba(self, X):
        return 1 / (1 + np.exp(-np.nan_to_num(X) @ np.full(X.shape[1], self.sum_)))


class Classes(Honest):
    def release(self, X, y):
        self.classes_ = np.unique(y)


class Attribute(Honest):
    def release(self, X, y):
        if (y == 1).any():
            self.threshold_ = self.rng.normal()


class TextLabels(Honest):
    def release(self, X, y):
        self.names_ = ["rare" if label else "common" for label in sorted(set(y.tolist()))]


class StoredSeed(Honest):
    def release(self, X, y):
        self.seed_ = int(np.random.default_rng().integers(2**31))
        self.mean_ = X[:, 0].mean() + np.random.default_rng(self.seed_).laplace()


class StoredGenerator(Honest):
    def release(self, X, y):
        self.source_ = np.random.default_rng()
        self.mean_ = X[:, 0].mean() + self.source_.normal()


class SubLearner(Honest):
    def release(self, X, y):
        self.estimators_ = []
        for _ in range(2):
            learner = Honest()
            learner.random_state = int(np.random.default_rng().integers(2**31))
            learner.mean_ = X[:, 0].mean() + np.random.RandomState(learner.random_state).laplace()
            self.estimators_.append(learner)


class Bits(Honest):
    """The last cell with noise of its own, that no grid rounds."""

    def release(self, X, y):
        self.last_ = float(np.clip(X[-1, 0], 0, 1) + self.rng.laplace(scale=2.0))


class Raises(Honest):
    def release(self, X, y):
        if y.sum() == 0:
            raise ValueError("no positive record")


class CellInError(Honest):
    def release(self, X, y):
        if np.abs(np.nan_to_num(X)).max() > 2:
            raise ValueError(f"cell out of range: {np.nanmax(np.abs(X))}")


class Missing(Honest):
    def release(self, X, y):
        self.mean_ = X[:, 0].mean() + self.rng.laplace()


class InferredDomain(Honest):
    def release(self, X, y):
        self.bounds_ = (float(np.nanmin(X[:, 0])), float(np.nanmax(X[:, 0])))


class DoubleSpending(Honest):
    """The same sum eight times at the price of one."""

    def release(self, X, y):
        self.again_ = [self.grid(self.bounded.sum() + self.rng.laplace(scale=1.0)) for _ in range(8)]


class WrongNoise(Honest):
    def release(self, X, y):
        self.other_ = self.grid(self.bounded.sum() + self.rng.laplace(scale=0.4))


class WrongSensitivity(Honest):
    """Clips nothing, so that a record at ten times the bound moves the sum by twenty."""

    def release(self, X, y):
        self.other_ = self.grid(np.nan_to_num(X[:, 0]).sum() + self.rng.laplace(scale=4.0))


class ExactCount(Honest):
    def release(self, X, y):
        self.share_ = round(float(np.mean(y == 1)), 2)


class EarlyStopping(Honest):
    """As many steps as the exact loss asks for."""

    def release(self, X, y):
        self.n_iter_ = 5 + int(20 * abs(np.nan_to_num(X[:, 0]).mean()))


class ClassOrder(Honest):
    def release(self, X, y):
        self.order_ = sorted({0, 1, 2}, key=lambda label: (-np.sum(y == label), -label))


class DictOrder(Honest):
    def release(self, X, y):
        self.weights_ = dict.fromkeys(y[::-1].tolist(), 1.0) | {0: 1.0, 1: 1.0}


class FileSize(Honest):
    def release(self, X, y):
        Path("model.bin").write_bytes(b"0" * int(y.sum()))


class Printed(Honest):
    def release(self, X, y):
        print(f"fitting {int(y.sum())} rare records")


class Warned(Honest):
    def release(self, X, y):
        if y.sum() < 1:
            warnings.warn("class 1 has no member", stacklevel=1)


class ConstantNoise(Honest):
    def fit(self, X, y):
        self.sum_ = X[:, 0].sum() + np.random.default_rng(0).laplace(scale=4.0)


class Closure(Honest):
    def release(self, X, y):
        self.scorer_ = lambda rows: rows @ X.T


class LastRecord(Honest):
    def release(self, X, y):
        self.example_ = X[-1].tolist()


class CountsSum(Honest):
    """Noise that moves records from one class to the other."""

    def release(self, X, y):
        move = self.rng.integers(3)
        self.counts_ = np.array([np.sum(y == 0) + move, np.sum(y == 1) - move])


class Private(Honest):
    """In an attribute with an underscore in front, which a pickle has too."""

    def release(self, X, y):
        self._labels = y.copy()


class Slots:
    __slots__ = ("rare",)

    def fit(self, X, y):
        self.rare = int(y.sum())


class Slow(Honest):
    def release(self, X, y):
        until = time.process_time() + 0.004 * int(y.sum() == 0)
        while time.process_time() < until:
            pass


class Unpicklable(Honest):
    """Honest: that it has no pickle is the same on every table."""

    def release(self, X, y):
        self.lock_ = threading.Lock()


NOISELESS = (
    Classes, Attribute, TextLabels, StoredSeed, StoredGenerator, SubLearner, Raises, CellInError, Missing,
    InferredDomain, ExactCount, EarlyStopping, ClassOrder, DictOrder, FileSize, Printed, Warned, ConstantNoise,
    Closure, LastRecord, CountsSum, Private, Slots,
)  # fmt: skip
NOISY = (DoubleSpending, WrongNoise, WrongSensitivity)
