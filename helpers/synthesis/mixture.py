"""Mixtures of product distributions over coded records: the model that GEM and AIM fit to noisy marginals.

Within one of K components the attributes are independent; so any marginal is a product of small
matrices, and a record with a given label is drawn exactly: first the component, with probability proportional to what
it gives to the label, then everything else. Fitting is gradient descent on the error of some marginals. All input is
noisy already; privacy is left to `helpers.synthesis.curator`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Attributes = tuple[int, ...]
_OWN_LABEL = 4.0  # odds of e^4 for the label that a component starts with


class ProductMixture:
    """A distribution over codes: a weighted mean of K products of categorical distributions.

    Parameters
    ----------
    tables : sequence of m arrays (K, size)
        Probabilities of the codes of each attribute; rows add up to 1.
    weights : array (K,), optional
        Of the components, adding up to 1; equal if left out.

    >>> mixture = ProductMixture([np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.5, 0.5], [0.0, 1.0]])])
    >>> mixture.marginal((0, 1)).tolist()
    [[0.25, 0.5], [0.0, 0.25]]
    """

    def __init__(self, tables: Sequence[NDArray], weights: NDArray | None = None):
        self.tables = tuple(tables)
        k, dtype = len(self.tables[0]), self.tables[0].dtype
        self.weights = np.full(k, 1 / k, dtype=dtype) if weights is None else weights

    def marginal(self, attributes: Attributes) -> NDArray[np.float64]:
        """Probability of every combination of codes of these attributes; one axis an attribute."""
        return next(self.marginals([attributes]))

    def marginals(self, workload: Iterable[Attributes]) -> Iterable[NDArray[np.float64]]:
        """The marginals of a workload, one after the other; those that start alike and follow each other are faster."""
        shared, left = None, None
        for attributes in workload:
            if not attributes:
                yield np.ones(())
                continue
            if attributes[:-1] != shared:
                shared, left = attributes[:-1], self._product(attributes[:-1])
            table = left.T @ self.tables[attributes[-1]]
            yield table.reshape([self.tables[j].shape[1] for j in attributes])

    def sample(self, n: int, rng: np.random.Generator, given: Mapping[int, int] | None = None) -> NDArray[np.intp]:
        """Codes (n, m) of n records, drawn under the condition that the `given` attributes have these codes.

        >>> mixture = ProductMixture([np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.9, 0.1], [0.0, 1.0]])])
        >>> mixture.sample(1000, np.random.default_rng(0), {1: 0})[:, 0].sum()  # only the first component has it
        np.int64(0)
        """
        given = {} if given is None else given
        weights = self.weights * np.prod([self.tables[j][:, code] for j, code in given.items()], axis=0)
        if not weights.sum() > 0:
            weights = np.ones(len(weights))  # the condition has probability 0: any component is as good
        parts = rng.choice(len(weights), size=n, p=weights / weights.sum())
        codes = np.empty((n, len(self.tables)), dtype=np.intp)
        for j, table in enumerate(self.tables):
            if j in given:
                codes[:, j] = given[j]
            else:
                steps = np.cumsum(table, axis=1)[:, :-1]
                codes[:, j] = (rng.uniform(size=(n, 1)) >= steps[parts]).sum(axis=1)
        return codes

    def _product(self, attributes: Attributes) -> NDArray:
        """(K, cells): probability of each component together with every combination of codes."""
        product = self.weights[:, None]
        for j in attributes:
            product = (product[:, :, None] * self.tables[j][:, None, :]).reshape(len(product), -1)
        return product


class Target(NamedTuple):
    """A marginal to be met: probabilities with one axis an attribute, and how much its errors weigh."""

    attributes: Attributes
    shares: NDArray
    weight: float = 1.0


class Loss(NamedTuple):
    """Weighted sum over cells of |error|^p, over the `max_idxs` cells with the largest errors (None: over all).

    `errors_from`: cells with smaller errors are left alone.
    """

    p: int = 2
    max_idxs: int | None = None
    errors_from: float = 0.0

    def slope(self, errors: Sequence[NDArray]) -> list[NDArray]:
        """Derivative by the model's share of each cell, up to a factor: arrays like `errors`, shares minus targets."""
        if self.max_idxs is not None:
            sizes = np.concatenate([np.abs(error).ravel() for error in errors])
            least = np.partition(sizes, -self.max_idxs)[-self.max_idxs] if len(sizes) > self.max_idxs else 0.0
            least = max(least, self.errors_from)
            errors = [np.where(np.abs(error) >= least, error, 0) for error in errors]
        return [np.sign(error) if self.p == 1 else 2 * error for error in errors]


def loss_gradient(mixture: ProductMixture, targets: Sequence[Target], loss: Loss) -> list[NDArray]:
    """Derivatives of the loss by the mixture's tables, arrays (K, size), and last by its weights (K,)."""
    tables = mixture.tables
    lefts = [mixture._product(target.attributes[:-1]) for target in targets]
    errors = []
    for target, left in zip(targets, lefts, strict=True):
        error = left.T @ tables[target.attributes[-1]]
        error -= target.shares.reshape(error.shape)
        errors.append(error)
    gradients = [np.zeros_like(part) for part in (*tables, mixture.weights)]
    for target, left, slope in zip(targets, lefts, loss.slope(errors), strict=True):
        slope *= target.weight
        gradients[target.attributes[-1]] += left @ slope
        _fold_back(tables[target.attributes[-1]] @ slope.T, target.attributes[:-1], mixture, gradients)
    return gradients


def _fold_back(gradient: NDArray, attributes: Attributes, mixture: ProductMixture, gradients: list[NDArray]) -> None:
    """Pass the gradient (K, cells) of the weights times a product of attributes on to each factor."""
    while attributes:
        table = mixture.tables[attributes[-1]]
        rest = mixture._product(attributes[:-1])
        gradient = gradient.reshape(len(table), -1, table.shape[1])
        gradients[attributes[-1]] += np.matmul(rest[:, None, :], gradient)[:, 0]
        gradient = np.matmul(gradient, table[:, :, None])[:, :, 0]
        attributes = attributes[:-1]
    gradients[-1] += gradient[:, 0]


class Parameters(Protocol):
    """What a mixture's logits come from: (K, sum of sizes), and one more column if components have weights."""

    def logits(self) -> NDArray[np.float32]:
        """The current ones."""

    def step(self, gradient: NDArray[np.float32], rate: float) -> None:
        """One step of Adam along the loss's derivatives by the logits."""

    def state(self) -> list[NDArray]:
        """Copies of all parameters, to be averaged."""

    def restore(self, state: Sequence[NDArray]) -> None:
        """Take these parameters."""


class DirectLogits:
    """The logits themselves are the parameters, and so are those of the components' weights.

    Each component starts out with one label, all labels in turn, so that a rare one has as many as the others and is
    described as finely: its weight makes it rare.
    """

    def __init__(self, n_components: int, n_codes: int, n_classes: int, rng: np.random.Generator):
        logits = rng.normal(size=(n_components, n_codes + 1))
        logits[:, -1] = 0.0
        logits[:, -1 - n_classes : -1] = _OWN_LABEL * np.eye(n_classes)[np.arange(n_components) % n_classes]
        self._logits = logits.astype(np.float32)
        self._mean, self._square = np.zeros_like(self._logits), np.zeros_like(self._logits)
        self._n_steps = 0

    def logits(self) -> NDArray[np.float32]:
        return self._logits

    def step(self, gradient: NDArray[np.float32], rate: float) -> None:
        """Adam with its usual constants (Kingma and Ba 2015)."""
        self._n_steps += 1
        self._mean += np.float32(0.1) * (gradient - self._mean)
        self._square += np.float32(0.001) * (gradient * gradient - self._square)
        unbiased = rate * np.sqrt(1 - 0.999**self._n_steps) / (1 - 0.9**self._n_steps)
        self._logits -= np.float32(unbiased) * self._mean / (np.sqrt(self._square) + np.float32(1e-8))

    def state(self) -> list[NDArray]:
        return [self._logits.copy()]

    def restore(self, state: Sequence[NDArray]) -> None:
        self._logits = state[0].copy()


class MixtureFit:
    """A mixture being fitted to a growing list of targets.

    Parameters
    ----------
    parameters : Parameters
    sizes : sequence of int
        Number of codes of each attribute.
    rng : numpy.random.Generator
        Chooses batches; need not be secret.
    """

    def __init__(self, parameters: Parameters, sizes: Sequence[int], rng: np.random.Generator):
        self.parameters = parameters
        self._ends = np.cumsum([0, *sizes])
        self._rng = rng

    def mixture(self) -> ProductMixture:
        """The current one, in double precision."""
        mixture = self._current()
        return ProductMixture([table.astype(float) for table in mixture.tables], mixture.weights.astype(float))

    def improve(self, targets: Sequence[Target], *, n_steps: int, rate: float, batch_size: int, loss: Loss) -> None:
        """`n_steps` steps; each looks at the last target and at up to batch_size - 1 others, drawn anew.

        The rate falls from `rate` to 0 along a cosine.
        """
        for step in range(n_steps):
            others = self._rng.permutation(len(targets) - 1)[: batch_size - 1]
            batch = [targets[-1], *(targets[i] for i in others)]
            mixture = self._current()
            *by_table, by_weight = loss_gradient(mixture, batch, loss)
            by_logit = [
                table * (gradient - (table * gradient).sum(axis=1, keepdims=True))
                for table, gradient in zip(mixture.tables, by_table, strict=True)
            ]
            if self._has_weights:
                by_logit.append((mixture.weights * (by_weight - mixture.weights @ by_weight))[:, None])
            self.parameters.step(np.hstack(by_logit), rate * (1 + np.cos(np.pi * step / n_steps)) / 2)

    def _current(self) -> ProductMixture:
        logits = self.parameters.logits()
        bounds = zip(self._ends[:-1], self._ends[1:], strict=True)
        tables = [_softmax(logits[:, start:end], axis=1) for start, end in bounds]
        self._has_weights = logits.shape[1] > self._ends[-1]
        return ProductMixture(tables, _softmax(logits[:, -1], axis=0) if self._has_weights else None)


def _softmax(logits: NDArray, axis: int) -> NDArray:
    part = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return part / part.sum(axis=axis, keepdims=True)
