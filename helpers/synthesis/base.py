"""What private synthesisers share: a domain, a budget, a curator of the records, and sampling from what was fitted.

`fit` is the only step that sees records. What it keeps is noisy or public, so samples of any number cost nothing more.
How the distribution is learned is left to the subclasses.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from helpers.checks import check_choice, check_integer, check_real, label_codes, validate_records
from helpers.constructors import SharedParameters
from helpers.data.domain import Domain, check_labels
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    Guarantee,
    Ledger,
    PrivateMixin,
    check_random_state,
    zcdp_budget,
)
from helpers.synthesis.bins import noisy_domain
from helpers.synthesis.curator import Attributes, Curator, Measurement, check_cells
from helpers.synthesis.mixture import MixtureFit, ProductMixture

Fitted = dict[str, Any]
"""Attributes of a fitted object by name."""
WORKLOADS = ("all", "label")
_ROUNDING = 1e-9  # of a budget: what its parts may add up to beyond it in floating point


class Synthesizer(SharedParameters, PrivateMixin, BaseEstimator, ABC):
    """Base of private synthesisers: public parameters, then the domain, then the model, then the guarantee."""

    def __init__(self, epsilon=1.0, domain=None, classes=(0, 1), n_bins=16, domain_share=0.1, random_state=None):
        self.epsilon = epsilon
        self.domain = domain
        self.classes = classes
        self.n_bins = n_bins
        self.domain_share = domain_share
        self.random_state = random_state

    def fit(self, X, y):
        """Learn a distribution over records X (n, d) with labels y (n,); returns self.

        A second fit forgets the first one before it begins: should it break off, no guarantee of old is left beside
        what was measured since.
        """
        forget(self)
        self._check_parameters()
        fewest = 1 if self._relation is REPLACE_ONE else 0
        dtype = np.float64 if self.domain is None else None
        X, y = validate_records(self, X, y, dtype=dtype, ensure_min_samples=fewest)
        classes = self.classes if self.domain is None else self.domain.classes
        label_codes(y, np.array(check_labels(classes)))  # refused before anything is spent
        # What is too large, or not in the domain, is refused here, where nothing has been spent.
        self._check_sizes((self.n_bins,) * X.shape[1] + (len(classes),) if self.domain is None else self.domain.sizes)
        records = (X, y) if self.domain is None else self.domain.encode(X, y)
        vars(self).update(self._learn(Ledger(records, self._relation, self._noise_generator(X, y)), X.shape[1]))
        return self

    def _learn(self, ledger: Ledger, d: int) -> Fitted:
        """All attributes of the fitted object, from the answers of a ledger of codes; of (X, y) without a domain."""
        budget = self._total_budget() * (1 - _ROUNDING)
        domain, coded = self.domain, ledger
        if domain is None:
            share = self.domain_share * budget
            domain = noisy_domain(
                ledger.view(lambda records: records[0]),
                d,
                self.classes,
                n_bins=self.n_bins,
                measure=self._measure_column,
                budget=share,
            )
            budget -= share
            coded = ledger.view(lambda records: domain.encode(*records))
        curator = Curator(coded, domain.sizes)
        with threadpool_limits(1):  # products are small: threads would wait for each other longer than they work
            model = self._fit_model(curator, domain.sizes, budget)
        return model | {
            "domain_": domain,
            "classes_": np.array(domain.classes),
            "guarantee_": self._guarantee(ledger, self._assumptions()),
        }

    def sample(
        self, n: int, label: Hashable | None = None, *, random_state: int | None = None
    ) -> tuple[NDArray, NDArray]:
        """Synthetic records, at no further cost.

        Parameters
        ----------
        n : int
            How many, at least 0.
        label : label, optional
            All of them with this label, drawn from the conditional distribution; without it the label is drawn too.
        random_state : None or int
            Need not be secret: what is drawn from is public already.

        Returns
        -------
        (X (n, d), y (n,))

        Raises
        ------
        ValueError
            A number out of range, or a label that the domain does not have.
        """
        check_is_fitted(self, "guarantee_")
        check_integer("n", n, low=0)
        if label is not None:
            check_choice("label", label, self.domain_.classes)
        rng = np.random.default_rng(check_random_state(random_state))
        given = {} if label is None else {len(self.domain_.attributes): self.domain_.classes.index(label)}
        return self.domain_.decode(self._sample_codes(n, given, rng), rng)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # scikit-learn's checks make up labels; here the set of labels is public and others are refused.
        tags._skip_test = True
        return tags

    @abstractmethod
    def _fit_model(self, curator: Curator, sizes: tuple[int, ...], budget: float) -> Fitted:
        """Ask the curator within the budget; the model's attributes."""

    @abstractmethod
    def _sample_codes(self, n: int, given: dict[int, int], rng: np.random.Generator) -> NDArray[np.intp]:
        """Codes (n, attributes) where the label's is given or not."""

    @abstractmethod
    def _total_budget(self) -> float:
        """In the unit in which the curator's answers add up."""

    @abstractmethod
    def _measure_column(self, curator: Curator, column: int, budget: float) -> Measurement:
        """A histogram for the bins."""

    @abstractmethod
    def _guarantee(self, ledger: Ledger, assumes: tuple[str, ...]) -> Guarantee:
        """From the bill."""

    @abstractmethod
    def _check_sizes(self, sizes: tuple[int, ...]) -> None:
        """Refuse a domain that takes too much memory."""

    @property
    def _relation(self):
        return getattr(self, "neighbouring", REPLACE_ONE)

    def _check_parameters(self) -> None:
        check_random_state(self.random_state)
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_choice("neighbouring", self._relation, (ADD_REMOVE, REPLACE_ONE))
        check_integer("n_bins", self.n_bins, low=1)
        check_real("domain_share", self.domain_share, low=0, high=1, inclusive="neither")
        check_labels(self.classes)
        if not isinstance(self.domain, Domain | None):
            raise ValueError(f"domain must be a Domain or None, got {self.domain!r}")

    def _assumptions(self) -> tuple[str, ...]:
        size = ("number of records public",) if self._relation is REPLACE_ONE else ()
        if self.domain is None:
            return (*size, "set of labels public")
        return (*size, f"domain public (bins, categories, set of labels): {self.domain.basis}")


class ZcdpSynthesizer(Synthesizer):
    """Base of those that add Gaussian noise and account for it in zCDP."""

    def __init__(self, delta=1e-5, neighbouring=REPLACE_ONE, **shared):
        super().__init__(**shared)
        self.delta = delta
        self.neighbouring = neighbouring

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real("delta", self.delta, low=0, high=1, inclusive="neither")

    def _total_budget(self) -> float:
        return zcdp_budget(float(self.epsilon), float(self.delta))

    def _measure_column(self, curator: Curator, column: int, budget: float) -> Measurement:
        return curator.measure((column,), budget)


class MixtureSynthesizer(ZcdpSynthesizer):
    """Base of those that fit a `ProductMixture` to what they measure."""

    def __init__(self, k=3, workload="label", n_components=128, max_iters=100, **shared):
        super().__init__(**shared)
        self.k = k
        self.workload = workload
        self.n_components = n_components
        self.max_iters = max_iters

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer("k", self.k, low=1)
        check_choice("workload", self.workload, WORKLOADS)
        check_integer("n_components", self.n_components, low=1)
        check_integer("max_iters", self.max_iters, low=0)
        check_integer("batch_size", self.batch_size, low=1)

    def _workload(self, sizes: tuple[int, ...]) -> list[Attributes]:
        """Marginals of k attributes (of all of them if there are fewer), the label being one: all, or those with it."""
        marginals = combinations(range(len(sizes)), min(self.k, len(sizes)))
        return [attributes for attributes in marginals if self.workload == "all" or attributes[-1] == len(sizes) - 1]

    def _check_sizes(self, sizes: tuple[int, ...]) -> None:
        check_cells(self._workload(sizes), sizes, "k")

    @staticmethod
    def _fitted(fit: MixtureFit, n_records: float, measurements: list[Measurement]) -> Fitted:
        mixture = fit.mixture()
        model = {"tables_": list(mixture.tables), "weights_": mixture.weights}
        return model | {"n_records_": n_records, "measurements_": measurements}

    def _sample_codes(self, n: int, given: dict[int, int], rng: np.random.Generator) -> NDArray[np.intp]:
        return self.mixture_.sample(n, rng, given)

    @property
    def mixture_(self) -> ProductMixture:
        """The fitted distribution over codes."""
        check_is_fitted(self, "tables_")
        return ProductMixture(self.tables_, self.weights_)


def forget(estimator: BaseEstimator) -> None:
    """Delete what an earlier fit has left."""
    for name in [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]:
        delattr(estimator, name)
