"""What all wrappers share: their fit, and the learner inside, which gets a budget and noise of its own.

A wrapper's guarantee must not depend on the records, so it is planned with the guarantee that the learner states for
made-up ones, and a learner that states another for other made-up ones, or fails on some, is refused before it sees a
private record. That its guarantee does not depend on private records either is then the learner's own promise.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags

from helpers.privacy import RELATION_NAMES, REPLACE_ONE, Guarantee, Ledger, PrivateMixin
from helpers.validation import check_classes, label_codes, real, validate_records

Records = tuple[NDArray, NDArray]
"""Features (n, d) and labels (n,)."""


def check_learner(name: str, estimator: Any, *, needed: Sequence[str] = ("epsilon",)) -> None:
    """Refuse what is no classifier with the parameters `needed`.

    >>> check_learner("estimator", None)
    Traceback (most recent call last):
    ValueError: estimator must be a classifier with a parameter 'epsilon', got None
    """
    usable = not isinstance(estimator, type) and all(hasattr(estimator, part) for part in ("fit", "get_params"))
    missing = [one for one in needed if not usable or one not in estimator.get_params(deep=False)]
    if missing or not usable:
        wanted = f" with a parameter {missing[0]!r}" if missing else ""
        raise ValueError(f"{name} must be a classifier{wanted}, got {estimator!r}")


@dataclass(eq=False, repr=False)
class Wrapper(PrivateMixin, ClassifierMixin, BaseEstimator, ABC):
    """A classifier that releases something about records through the classifier `estimator` inside it.

    A subclass plans with public numbers before it looks at a record (`_planned`), and learns from a ledger's answers
    alone (`_learn`).

    Parameters are fields of dataclasses, which write the constructors that scikit-learn reads.
    """

    _allowed: ClassVar[dict] = {
        "estimator": check_learner,
        "epsilon": real(low=0, inclusive="neither"),
        "classes": partial(check_classes, n_classes=2),
    }
    _predictor = "estimator_"  # the attribute that predicts, once it is there

    estimator: Any
    _: KW_ONLY
    classes: Sequence[Any] = (0, 1)
    random_state: int | None = None

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to X (n, d) and labels y (n,); returns self."""
        self._check_parameters()
        # Where the number of records is private, that there are none must be no error.
        fewest = 1 if getattr(self, "neighbouring", None) is REPLACE_ONE else 0
        records = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=fewest)
        self.classes_ = np.unique(np.asarray(self.classes))
        # Only for its refusal: no guarantee is about a label outside the public classes.
        label_codes(records[1], self.classes_)
        relation, plan = self._planned(*records)
        self._learn(Ledger(records, relation, self._noise_generator(*records)), plan)
        return self

    @abstractmethod
    def _planned(self, X: NDArray, y: NDArray) -> tuple[NeighboringRelation, Any]:
        """The neighbouring relation, and what else `_learn` is to know beside the ledger, all of it public.

        A learner or a size that does not fit is refused here.
        """

    @abstractmethod
    def _learn(self, ledger: Ledger, plan: Any) -> None:
        """Set what is fitted."""

    def _model(self) -> Any:
        """The fitted model that predicts; before the fit, the estimator that it will be made from."""
        return getattr(self, self._predictor, self.estimator)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = np.size(self.classes) > 2
        return tags


def new_learner(estimator: Any, **values: Any) -> Any:
    """An unfitted copy with those of the `values` set that are parameters of it."""
    known = estimator.get_params(deep=False)
    return clone(estimator).set_params(**{name: value for name, value in values.items() if name in known})


def with_seed(estimator: Any, seed: int | None) -> Any:
    """The estimator with this `random_state` for every part of it that draws, steps of a pipeline included."""
    names = [name for name in estimator.get_params() if name.split("__")[-1] == "random_state"]
    return estimator.set_params(**dict.fromkeys(names, seed))


def fit_learner(learner: Any, X: NDArray, y: NDArray) -> Any:
    """The learner, fitted to X (n, d) and y (n,), with None in place of every seed of its noise."""
    learner.fit(X, y)
    return with_seed(learner, None)


def planned_guarantee(
    make: Callable[[], Any],
    n_rows: int,
    n_features: int,
    classes: NDArray,
    neighbouring: NeighboringRelation | None = None,
) -> Guarantee:
    """What the learner guarantees for `n_rows` records, from fits to made-up ones.

    Parameters
    ----------
    make : callable
        Gives an unfitted learner.
    n_rows : int
        Public: as many as the learner will get, since a guarantee, or whether there is one, may depend on it.
    classes : array (K,)
        Public labels.
    neighbouring : NeighboringRelation, optional
        The relation that the guarantee must be for.

    Raises
    ------
    ValueError
        No `guarantee_` after the fit, one for another relation, or not the same for all made-up records; and whatever
        the learner refuses.
    """
    spread = np.zeros((n_rows, n_features))
    spread[:, 0] = np.linspace(-1, 1, n_rows)
    # Two data sets that differ in the values and in which classes occur.
    tables = made_up(n_rows, n_features, classes), (spread, np.full(n_rows, classes[0]))
    first, second = (getattr(make().fit(*table), "guarantee_", None) for table in tables)
    if not isinstance(first, Guarantee):
        raise ValueError(f"estimator must have a guarantee_ after fitting, got {make()!r}")
    if first != second:
        raise ValueError(f"estimator must have one guarantee whatever its records are, got {first} and {second}")
    if neighbouring not in (None, first.neighbouring):
        raise ValueError(f"estimator must be private under {RELATION_NAMES[neighbouring]}, got {first} from {make()!r}")
    return first


def made_up(n_rows: int, n_features: int, labels: NDArray) -> Records:
    """Public records at the origin with these labels, in turn."""
    return np.zeros((n_rows, n_features)), np.resize(labels, n_rows)


def with_origin(X: NDArray, y: NDArray, classes: NDArray) -> Records:
    """The records and one more at the origin for each class, so that there are some where their number is private.

    Records that everybody has change nothing for neighbours.

    >>> with_origin(np.empty((0, 1)), np.empty(0, int), np.array([0, 1]))[1].tolist()
    [0, 1]
    """
    rows, labels = made_up(len(classes), X.shape[1], classes)
    return np.vstack([X, rows]), np.concatenate([y, labels])


def restate(fitted: Any, guarantee: Guarantee) -> None:
    """Put `guarantee` in place of every one that the fitted learner, and what it is made of, states for itself."""
    if isinstance(fitted, BaseEstimator):
        fitted = vars(fitted)
        fitted.update({name: guarantee for name, value in fitted.items() if isinstance(value, Guarantee)})
    # Guarantees may stand at any depth: in a learner inside a pipeline inside a list, say.
    if isinstance(fitted, dict):
        fitted = list(fitted.values())
    if isinstance(fitted, list | tuple):
        for item in fitted:
            restate(item, guarantee)
