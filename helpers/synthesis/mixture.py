"""Mixtures of product distributions over coded records: the model that GEM and AIM fit to noisy marginals.

Within one of K components the attributes are independent; so any marginal is a product of small
matrices, and a record with a given label is drawn exactly: first the component, with probability proportional to what
it gives to the label, then everything else. Fitting is gradient descent on the error of some marginals. All input is
noisy already; privacy is left to `helpers.synthesis.curator`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from helpers.synthesis.curator import Attributes

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

    def marginals(self, workload: Iterable[Attributes]) -> Iterator[NDArray[np.float64]]:
        """The marginals of a workload, one after the other; those that start alike and follow each other are faster."""
        columns = [np.ascontiguousarray(table.T) for table in self.tables]
        shared, left = None, None
        for attributes in workload:
            if not attributes:
                yield np.ones(())
                continue
            if attributes[:-1] != shared:
                shared, left = attributes[:-1], _joint(columns, self.weights, attributes[:-1])
            table = left @ columns[attributes[-1]].T
            yield table.reshape([len(columns[j]) for j in attributes])

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
    columns = [np.ascontiguousarray(table.T) for table in mixture.tables]
    return [gradient.T for gradient in _gradients(columns, mixture.weights, targets, loss)]


# Below, tables are turned round, (size, K): arithmetic along thousand components is several times faster than along
# sixteen codes.


def _gradients(columns: Sequence[NDArray], weights: NDArray, targets: Sequence[Target], loss: Loss) -> list[NDArray]:
    lefts = [_joint(columns, weights, target.attributes[:-1]) for target in targets]
    errors = []
    for target, left in zip(targets, lefts, strict=True):
        error = left @ columns[target.attributes[-1]].T
        error -= target.shares.reshape(error.shape)
        errors.append(error)
    gradients = [np.zeros_like(part) for part in (*columns, weights)]
    for target, left, slope in zip(targets, lefts, loss.slope(errors), strict=True):
        *others, last = target.attributes
        slope = target.weight * slope
        rows = np.flatnonzero(slope.any(axis=1))
        if 4 * max(len(rows), 1) < len(slope):  # where only the largest errors count
            slope = slope[rows]
            gradients[last] += slope.T @ left[rows]
            _fold_back_rows(slope @ columns[last], rows, others, columns, weights, gradients)
        else:
            gradients[last] += slope.T @ left
            _fold_back(slope @ columns[last], others, columns, weights, gradients)
    return gradients


def _fold_back(
    gradient: NDArray, attributes: list[int], columns: Sequence[NDArray], weights: NDArray, gradients: list[NDArray]
) -> None:
    """Pass the gradient (cells, K) of the weights times a product of attributes on to each factor."""
    while attributes:
        *attributes, last = attributes
        gradient = gradient.reshape(-1, *columns[last].shape)
        rest = _joint(columns, weights, tuple(attributes))
        gradients[last] += np.einsum("rsk,rk->sk", gradient, rest)
        gradient = np.einsum("rsk,sk->rk", gradient, columns[last])
    gradients[-1] += gradient[0]


def _fold_back_rows(
    gradient: NDArray,
    rows: NDArray[np.intp],
    attributes: list[int],
    columns: Sequence[NDArray],
    weights: NDArray,
    gradients: list[NDArray],
) -> None:
    """The same for some of the cells: `gradient` (len(rows), K)."""
    codes = np.unravel_index(rows, [len(columns[j]) for j in attributes])
    factors = [columns[j][code] for j, code in zip(attributes, codes, strict=True)]
    for place, (j, code) in enumerate(zip(attributes, codes, strict=True)):
        rest = gradient
        for factor in (*factors[:place], *factors[place + 1 :]):
            rest = rest * factor
        is_code = np.equal.outer(np.arange(len(columns[j])), code).astype(gradient.dtype)
        gradients[j] += weights * (is_code @ rest)
    gradients[-1] += (rest * factors[-1]).sum(axis=0)


def _joint(columns: Sequence[NDArray], weights: NDArray, attributes: Attributes) -> NDArray:
    """(cells, K): probability of each component together with every combination of codes."""
    product = weights[None, :]
    for j in attributes:
        product = (product[:, None, :] * columns[j][None, :, :]).reshape(-1, len(weights))
    return product


class Parameters(Protocol):
    """What a mixture's logits come from: (sum of sizes, K), and one more row if components have weights."""

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
        self._logits = np.ascontiguousarray(logits.T, dtype=np.float32)
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
        columns, weights = self._current()
        tables = [np.ascontiguousarray(column.T, dtype=float) for column in columns]
        return ProductMixture(tables, weights.astype(float))

    def improve(self, targets: Sequence[Target], *, n_steps: int, rate: float, batch_size: int, loss: Loss) -> None:
        """`n_steps` steps; each looks at the last target and at up to batch_size - 1 others, drawn anew.

        The rate falls from `rate` to 0 along a cosine.
        """
        for step in range(n_steps):
            others = self._rng.permutation(len(targets) - 1)[: batch_size - 1]
            batch = [targets[-1], *(targets[i] for i in others)]
            columns, weights = self._current()
            *by_column, by_weight = _gradients(columns, weights, batch, loss)
            by_logit = [
                column * (gradient - (column * gradient).sum(axis=0))
                for column, gradient in zip(columns, by_column, strict=True)
            ]
            if self._has_weights:
                by_logit.append((weights * (by_weight - weights @ by_weight))[None, :])
            self.parameters.step(np.vstack(by_logit), rate * (1 + np.cos(np.pi * step / n_steps)) / 2)

    def _current(self) -> tuple[list[NDArray], NDArray]:
        """Tables, turned round, and weights."""
        logits = self.parameters.logits()
        self._has_weights = len(logits) > self._ends[-1]
        bounds = zip(self._ends[:-1], self._ends[1:], strict=True)
        columns = [_softmax(logits[start:end]) for start, end in bounds]
        n_components = logits.shape[1]
        weights = _softmax(logits[-1]) if self._has_weights else np.full(n_components, 1 / n_components, logits.dtype)
        return columns, weights


def _softmax(logits: NDArray) -> NDArray:
    """Along the first axis."""
    part = np.exp(logits - logits.max(axis=0))
    part /= part.sum(axis=0)
    return part
