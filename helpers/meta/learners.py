"""What all wrappers do with the learner inside: dry runs on made-up records, a budget and noise of its own, no traces.

A wrapper's guarantee must not depend on the records, so it is planned with the guarantee that the learner states for
made-up ones, and a learner that states another for other made-up ones, or fails on some, is refused before it sees a
private record. That its guarantee does not depend on private records either is then the learner's own promise.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from helpers.checks import check_real
from helpers.privacy import Guarantee


def check_learner(estimator: Any, *needed: str) -> None:
    """Refuse what is no scikit-learn estimator with the parameters `needed`.

    >>> check_learner(None, "epsilon")
    Traceback (most recent call last):
    ValueError: estimator must be a classifier with a parameter 'epsilon', got None
    """
    is_estimator = not isinstance(estimator, type) and all(hasattr(estimator, name) for name in ("fit", "get_params"))
    for name in needed:
        if not is_estimator or name not in estimator.get_params(deep=False):
            raise ValueError(f"estimator must be a classifier with a parameter {name!r}, got {estimator!r}")


def new_learner(estimator: BaseEstimator, **values: Any) -> BaseEstimator:
    """An unfitted copy with those of the `values` set that are parameters of it."""
    known = estimator.get_params(deep=False)
    return clone(estimator).set_params(**{name: value for name, value in values.items() if name in known})


def fit_learner(learner: BaseEstimator, X: NDArray, y: NDArray) -> BaseEstimator:
    """The learner fitted to X (n, d) and y (n,), without the seed of its noise."""
    learner.fit(X, y)
    if "random_state" in learner.get_params(deep=False):
        learner.set_params(random_state=None)
    return learner


def planned_guarantee(make: Callable[[], BaseEstimator], n_rows: int, n_features: int, classes: NDArray) -> Guarantee:
    """What the learner guarantees for `n_rows` records, from fits to made-up ones.

    Parameters
    ----------
    make : callable
        Gives an unfitted learner.
    n_rows : int
        Public: as many as the learner will get, since a guarantee, or whether there is one, may depend on it.
    classes : array (K,)
        Public labels.

    Raises
    ------
    ValueError
        No `guarantee_` after the fit, or not the same for all made-up records; and whatever the learner refuses.
    """
    stated = []
    for X, y in _made_up(n_rows, n_features, classes):
        guarantee = getattr(make().fit(X, y), "guarantee_", None)
        if not isinstance(guarantee, Guarantee):
            raise ValueError(f"estimator must have a guarantee_ after fitting, got {make()!r}")
        stated.append(guarantee)
    if stated[0] != stated[1]:
        raise ValueError(
            f"estimator must have one guarantee whatever its records are, got {stated[0]} and {stated[1]} for "
            "made-up records"
        )
    return stated[0]


def part_of(rows: NDArray) -> Callable[[tuple[NDArray, NDArray]], tuple[NDArray, NDArray]]:
    """A function that takes a pair X, y and gives the records in these rows."""
    return lambda records: (records[0][rows], records[1][rows])


def check_mistake_costs(mistake_costs: Any, classes: NDArray, **allowed: Any) -> None:
    """Refuse what is no dict of prices over the labels.

    Raises
    ------
    ValueError
        Other keys than `classes`, or a price that `check_real` refuses where this is `allowed`.
    """
    if not isinstance(mistake_costs, dict) or set(mistake_costs) != set(classes.tolist()):
        raise ValueError(f"mistake_costs must be a dict over the labels of classes, got {mistake_costs!r}")
    for cost in mistake_costs.values():
        check_real("mistake_costs", cost, **allowed)


def with_origin(X: NDArray, y: NDArray, classes: NDArray) -> tuple[NDArray, NDArray]:
    """The records and one more at the origin for each class, so that there are some where their number is private.

    Records that everybody has change nothing for neighbours.

    >>> with_origin(np.empty((0, 1)), np.empty(0, int), np.array([0, 1]))[1].tolist()
    [0, 1]
    """
    return np.vstack([X, np.zeros((len(classes), X.shape[1]))]), np.concatenate([y, classes])


def restate(learner: BaseEstimator, guarantee: Guarantee) -> None:
    """Put `guarantee` in place of every one that the fitted learner, and what it is made of, states for itself."""
    for part in _parts(learner):
        for name, value in vars(part).items():
            if isinstance(value, Guarantee):
                setattr(part, name, guarantee)


def _made_up(n_rows: int, n_features: int, classes: NDArray) -> Iterator[tuple[NDArray, NDArray]]:
    """Two data sets that differ in the values and in which classes occur."""
    yield np.zeros((n_rows, n_features)), np.resize(classes, n_rows)
    spread = np.zeros((n_rows, n_features))
    spread[:, 0] = np.linspace(-1, 1, n_rows)
    yield spread, np.full(n_rows, classes[0])


def _parts(value: Any) -> Iterator[BaseEstimator]:
    """An estimator and all those on it, in lists and dicts too."""
    if isinstance(value, BaseEstimator):
        yield value
        value = vars(value)
    if isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _parts(item)
