"""Mixtures of product distributions over coded records: the model that GEM and AIM fit to noisy marginals.

Within one of K components the attributes are independent; so any marginal is a product of small
matrices, and a record with a given label is drawn exactly: first the component, with probability proportional to what
it gives to the label, then everything else. Fitting is gradient descent on the error of some marginals. All input is
noisy already; privacy is left to `helpers.synthesis.curator`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from helpers.synthesis.curator import Attributes

_OWN_LABEL = 4.0  # odds of e^4 for the label that a component starts with


class ProductMixture:
    """A distribution over codes: a weighted mean of K products of categorical distributions.

    Parameters
    ----------
    tables : sequence of m arrays (size, K)
        Probabilities of the codes of each attribute; columns, one a component, add up to 1. (Arithmetic along thousand
        components is several times faster than along sixteen codes.)
    weights : array (K,), optional
        Of the components, adding up to 1; equal if left out.

    >>> mixture = ProductMixture([np.array([[1.0, 0.5], [0.0, 0.5]]), np.array([[0.5, 0.0], [0.5, 1.0]])])
    >>> mixture.marginal((0, 1)).tolist()
    [[0.25, 0.5], [0.0, 0.25]]
    """

    def __init__(self, tables: Sequence[NDArray], weights: NDArray | None = None):
        self.tables = tuple(np.ascontiguousarray(table) for table in tables)
        k, dtype = self.tables[0].shape[1], self.tables[0].dtype
        self.weights = np.full(k, 1 / k, dtype=dtype) if weights is None else weights

    def marginal(self, attributes: Attributes) -> NDArray[np.float64]:
        """Probability of every combination of codes of one attribute or more; one axis an attribute."""
        *others, last = attributes
        table = self.joint(others) @ self.tables[last].T
        return table.reshape([len(self.tables[j]) for j in attributes])

    def joint(self, attributes: Sequence[int]) -> NDArray:
        """(cells, K): probability of each component together with every combination of codes."""
        product = self.weights[None, :]
        for j in attributes:
            product = (product[:, None, :] * self.tables[j][None, :, :]).reshape(-1, len(self.weights))
        return product

    def sample(self, n: int, rng: np.random.Generator, given: Mapping[int, int]) -> NDArray[np.intp]:
        """Codes (n, m) of n records, drawn under the condition that the `given` attributes have these codes.

        >>> mixture = ProductMixture([np.array([[1.0, 0.5], [0.0, 0.5]]), np.array([[0.9, 0.0], [0.1, 1.0]])])
        >>> mixture.sample(1000, np.random.default_rng(0), {1: 0})[:, 0].sum()  # only the first component has it
        np.int64(0)
        """
        # Bayes' rule: each component is weighed by the probability that it gives to the codes.
        weights = self.weights * np.prod([self.tables[j][code] for j, code in given.items()], axis=0)
        if not weights.sum() > 0:
            weights = np.ones(len(weights))  # the condition has probability 0: any component is as good
        parts = rng.choice(len(weights), size=n, p=weights / weights.sum())
        codes = np.empty((n, len(self.tables)), dtype=np.intp)
        for j, table in enumerate(self.tables):
            if j in given:
                codes[:, j] = given[j]
            else:
                # A code is the number of steps of the distribution function that a uniform number has passed.
                steps = np.cumsum(table, axis=0)[:-1]
                codes[:, j] = (rng.uniform(size=n) >= steps[:, parts]).sum(axis=0)
        return codes


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
            # The size of the last of the `max_idxs` largest errors.
            least = np.partition(sizes, -self.max_idxs)[-self.max_idxs] if len(sizes) > self.max_idxs else 0.0
            least = max(least, self.errors_from)
            errors = [np.where(np.abs(error) >= least, error, 0) for error in errors]
        return [np.sign(error) if self.p == 1 else 2 * error for error in errors]


def loss_gradient(mixture: ProductMixture, targets: Sequence[Target], loss: Loss) -> list[NDArray]:
    """Derivatives of the loss by the mixture's tables, arrays (size, K), and last by its weights (K,)."""
    # A marginal is a matrix product: all attributes but the last, with the components, times the last one's table.
    lefts = [mixture.joint(target.attributes[:-1]) for target in targets]
    errors = [
        left @ mixture.tables[target.attributes[-1]].T - target.shares.reshape(len(left), -1)
        for target, left in zip(targets, lefts, strict=True)
    ]
    gradients = [np.zeros_like(part) for part in (*mixture.tables, mixture.weights)]
    for target, left, slope in zip(targets, lefts, loss.slope(errors), strict=True):
        *others, last = target.attributes
        slope = target.weight * slope
        rows = np.flatnonzero(slope.any(axis=1))
        if 4 * max(len(rows), 1) < len(slope):  # where only the largest errors count
            slope = slope[rows]
            gradients[last] += slope.T @ left[rows]
            _fold_back_rows(slope @ mixture.tables[last], rows, others, mixture, gradients)
        else:
            gradients[last] += slope.T @ left
            _fold_back(slope @ mixture.tables[last], others, mixture, gradients)
    return gradients


def _fold_back(gradient: NDArray, attributes: list[int], mixture: ProductMixture, gradients: list[NDArray]) -> None:
    """Pass the gradient (cells, K) of the weights times a product of attributes on to each factor."""
    while attributes:
        *attributes, last = attributes
        gradient = gradient.reshape(-1, *mixture.tables[last].shape)
        gradients[last] += np.einsum("rsk,rk->sk", gradient, mixture.joint(attributes))
        gradient = np.einsum("rsk,sk->rk", gradient, mixture.tables[last])
    gradients[-1] += gradient[0]


def _fold_back_rows(
    gradient: NDArray, rows: NDArray[np.intp], attributes: list[int], mixture: ProductMixture, gradients: list[NDArray]
) -> None:
    """`_fold_back` for some of the cells, whose numbers are `rows`; `gradient` (len(rows), K)."""
    codes = np.unravel_index(rows, [len(mixture.tables[j]) for j in attributes])
    factors = [mixture.tables[j][code] for j, code in zip(attributes, codes, strict=True)]
    for place, (j, code) in enumerate(zip(attributes, codes, strict=True)):
        rest = gradient
        for factor in (*factors[:place], *factors[place + 1 :]):
            rest = rest * factor
        is_code = np.equal.outer(np.arange(len(mixture.tables[j])), code).astype(gradient.dtype)
        gradients[j] += mixture.weights * (is_code @ rest)
    gradients[-1] += (rest * factors[-1]).sum(axis=0)


class MixtureFit:
    """A mixture being fitted to a growing list of targets; its parameters are logits, of the components' weights too.

    Each component starts out with one label, all labels in turn, so that a rare one has as many as the others and is
    described as finely: its weight makes it rare.

    Parameters
    ----------
    n_components : int
    sizes : sequence of int
        Number of codes of each attribute, the label being the last.
    rng : numpy.random.Generator
        Draws the first parameters and chooses batches; need not be secret.
    """

    def __init__(self, n_components: int, sizes: Sequence[int], rng: np.random.Generator):
        self._ends, self._rng = np.cumsum(sizes), rng
        self._begin(n_components, sizes, rng)

    def _begin(self, n_components: int, sizes: Sequence[int], rng: np.random.Generator) -> None:
        logits, n_classes = rng.normal(size=(n_components, sum(sizes) + 1)), sizes[-1]
        # The last column is the logit of the component's weight; the ones before it are those of the label.
        logits[:, -1] = 0.0
        logits[:, -1 - n_classes : -1] = _OWN_LABEL * np.eye(n_classes)[np.arange(n_components) % n_classes]
        self._values = np.ascontiguousarray(logits.T, dtype=np.float32)
        self._mean, self._square = np.zeros_like(self._values), np.zeros_like(self._values)
        self._n_steps = 0

    def state(self) -> NDArray[np.float32]:
        """A copy of all parameters, to be averaged."""
        return self._values.copy()

    def restore(self, state: NDArray[np.float32]) -> None:
        """Take these parameters."""
        self._values = state

    def _logits(self) -> NDArray[np.float32]:
        """(sum of sizes, K), and one more row if components have weights."""
        return self._values

    def _step(self, gradient: NDArray[np.float32], rate: float) -> None:
        """One step of Adam along the derivatives by the logits, those of the weights in the last row.

        With its usual constants (Kingma and Ba 2015).
        """
        self._n_steps += 1
        self._mean += np.float32(0.1) * (gradient - self._mean)
        self._square += np.float32(0.001) * (gradient * gradient - self._square)
        unbiased = rate * np.sqrt(1 - 0.999**self._n_steps) / (1 - 0.9**self._n_steps)
        self._values -= np.float32(unbiased) * self._mean / (np.sqrt(self._square) + np.float32(1e-8))

    def mixture(self, dtype: type = np.float64) -> ProductMixture:
        """The current one."""
        *logits, of_weights = np.split(self._logits(), self._ends)
        n_components = of_weights.shape[1]
        weights = _softmax(of_weights[0]) if len(of_weights) else np.full(n_components, 1 / n_components, np.float32)
        return ProductMixture([_softmax(part).astype(dtype) for part in logits], weights.astype(dtype))

    def improve(self, targets: Sequence[Target], *, n_steps: int, rate: float, batch_size: int, loss: Loss) -> None:
        """`n_steps` steps; each looks at the last target and at up to batch_size - 1 others, drawn anew.

        The rate falls from `rate` to 0 along a cosine.
        """
        for step in range(n_steps):
            # The newest target is in every batch, so that it is met although it is one of many.
            others = self._rng.permutation(len(targets) - 1)[: batch_size - 1]
            mixture = self.mixture(np.float32)
            *by_table, by_weight = loss_gradient(mixture, [targets[-1], *(targets[i] for i in others)], loss)
            by_logit = [
                # From derivatives by probabilities to derivatives by logits: the Jacobian of softmax.
                table * (gradient - (table * gradient).sum(axis=0))
                for table, gradient in zip(mixture.tables, by_table, strict=True)
            ]
            by_logit.append((mixture.weights * (by_weight - mixture.weights @ by_weight))[None, :])
            self._step(np.vstack(by_logit), rate * (1 + np.cos(np.pi * step / n_steps)) / 2)


def _softmax(logits: NDArray) -> NDArray:
    """Softmax along the first axis; the largest logit is subtracted so that no exponential overflows."""
    part = np.exp(logits - logits.max(axis=0))
    part /= part.sum(axis=0)
    return part
