"""What private synthesisers share: a domain, a budget, a curator of the records, and sampling from what was fitted.

`fit` is the only step that sees records. What it keeps is noisy or public, so samples of any number cost nothing more.
How the distribution is learned is left to the subclasses.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
from dp_accounting import DpEvent, NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from helpers.checks import check_choice, check_integer, choice, integer, label_codes, real, validate_records
from helpers.constructors import SharedParameters
from helpers.data.domain import Domain, check_labels
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Ledger, PrivateMixin, check_random_state, zcdp_budget
from helpers.synthesis.bins import noisy_domain
from helpers.synthesis.curator import Attributes, Curator, Measurement, check_cells
from helpers.synthesis.mixture import MixtureFit, ProductMixture

Fitted = dict[str, Any]
"""Attributes of a fitted object by name."""
_DOMAIN_SHARE = 0.1  # of the budget, for the bins where no domain is declared
_ROUNDING = 1e-9  # of a budget: what its parts may add up to beyond it in floating point


def _check_domain(name: str, value: Any) -> None:
    if not isinstance(value, Domain | None):
        raise ValueError(f"{name} must be a Domain or None, got {value!r}")


class Synthesizer(SharedParameters, PrivateMixin, BaseEstimator, ABC):
    """Base of private synthesisers: public parameters, then the domain, then the model, then the guarantee."""

    neighbouring: NeighboringRelation = REPLACE_ONE  # where it is no parameter
    delta: float = 0.0  # likewise; pure budgets are parts of epsilon, others of rho in zero-concentrated privacy
    _pure: ClassVar[bool]
    _source: ClassVar[str]
    _allowed: ClassVar[dict] = {
        "epsilon": real(low=0, inclusive="neither"),
        "domain": _check_domain,
        "classes": lambda name, value: check_labels(value),
        "n_bins": integer(low=1),
    }

    def __init__(self, epsilon=1.0, domain=None, classes=(0, 1), n_bins=16, random_state=None):
        self.epsilon = epsilon
        self.domain = domain
        self.classes = classes
        self.n_bins = n_bins
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn a distribution over records X (n, d) with labels y (n,); returns self.

        A second fit forgets the first one before it begins: should it break off, no guarantee of old is left beside
        what was measured since.
        """
        self._forget()
        self._check_parameters()
        fewest = 1 if self.neighbouring is REPLACE_ONE else 0
        dtype = np.float64 if self.domain is None else None
        X, y = validate_records(self, X, y, dtype=dtype, ensure_min_samples=fewest)
        classes = self.classes if self.domain is None else self.domain.classes
        label_codes(y, np.array(check_labels(classes)))  # refused before anything is spent
        # What is too large, or not in the domain, is refused here, where nothing has been spent.
        sizes = (self.n_bins,) * X.shape[1] + (len(classes),) if self.domain is None else self.domain.sizes
        decisive = "k" if hasattr(self, "k") else "n_bins" if self.domain is None else "domain"
        check_cells(self._workload(len(sizes)), sizes, decisive)
        records = (X, y) if self.domain is None else self.domain.encode(X, y)
        self.__dict__.update(self._learn(Ledger(records, self.neighbouring, self._noise_generator(X, y)), X.shape[1]))
        return self

    def _learn(self, ledger: Ledger, d: int) -> Fitted:
        """All attributes of the fitted object, from the answers of a ledger of codes; of (X, y) without a domain."""
        budget = self._total_budget() * (1 - _ROUNDING)
        domain, coded = self.domain, ledger
        if domain is None:
            columns, share = ledger.view(lambda records: records[0]), _DOMAIN_SHARE * budget
            domain = noisy_domain(columns, d, self.classes, n_bins=self.n_bins, budget=share, pure=self._pure)
            budget -= share
            coded = ledger.view(lambda records: domain.encode(*records))
        curator = Curator(coded, domain.sizes, self._pure)
        with threadpool_limits(1):  # products are small: threads would wait for each other longer than they work
            model = self._fit_model(curator, domain.sizes, budget)
        assumes = ["number of records public"] if self.neighbouring is REPLACE_ONE else []
        labels = "set of labels public"
        assumes.append(
            labels if self.domain is None else f"domain public (bins, categories, set of labels): {domain.basis}"
        )
        guarantee = ledger.guarantee(
            self.epsilon, self.delta, source=self._source, assumes=assumes, bound=self._bound()
        )
        return model | {"domain_": domain, "classes_": np.array(domain.classes), "guarantee_": guarantee}

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
        rng = np.random.default_rng(check_random_state("random_state", random_state))
        given = {} if label is None else {len(self.domain_.attributes): self.domain_.classes.index(label)}
        return self.domain_.decode(self._sample_codes(n, given, rng), rng)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # scikit-learn's checks make up labels; here the set of labels is public and others are refused.
        tags._skip_test = True
        return tags

    @abstractmethod
    def _workload(self, n_attributes: int) -> list[Attributes]:
        """The largest marginals that may be measured, the label's position being the last."""

    @abstractmethod
    def _fit_model(self, curator: Curator, sizes: tuple[int, ...], budget: float) -> Fitted:
        """Ask the curator within the budget; the model's attributes."""

    @abstractmethod
    def _sample_codes(self, n: int, given: dict[int, int], rng: np.random.Generator) -> NDArray[np.intp]:
        """Codes (n, attributes) where the label's is given or not."""

    @abstractmethod
    def _total_budget(self) -> float:
        """In the unit in which the curator's answers add up."""

    def _bound(self) -> DpEvent | None:
        """What covers the bill, where answers decide how much is asked; None: the bill is the same for all answers."""
        return None


class ZcdpSynthesizer(Synthesizer):
    """Base of those that add Gaussian noise, account for it in zCDP, and choose among marginals."""

    _pure = False
    _allowed: ClassVar[dict] = {
        "delta": real(low=0, high=1, inclusive="neither"),
        "neighbouring": choice(ADD_REMOVE, REPLACE_ONE),
        "workload": choice("all", "label"),
    }

    def __init__(self, epsilon=1.0, delta=1e-5, neighbouring=REPLACE_ONE, workload="label", **shared):
        super().__init__(epsilon=epsilon, **shared)
        self.delta = delta
        self.neighbouring = neighbouring
        self.workload = workload

    def _total_budget(self) -> float:
        return zcdp_budget(float(self.epsilon), float(self.delta))

    def _marginals(self, order: int, n_attributes: int) -> list[Attributes]:
        """Of so many attributes (of all of them if there are fewer): all, or those with the label."""
        found = combinations(range(n_attributes), min(order, n_attributes))
        return [one for one in found if self.workload == "all" or one[-1] == n_attributes - 1]


class MixtureSynthesizer(ZcdpSynthesizer):
    """Base of those that fit a `ProductMixture` to what they measure."""

    _allowed: ClassVar[dict] = {"k": integer(low=1), "n_components": integer(low=1), "max_iters": integer(low=0)}

    def __init__(self, k=3, n_components=128, max_iters=100, **shared):
        super().__init__(**shared)
        self.k = k
        self.n_components = n_components
        self.max_iters = max_iters

    def _workload(self, n_attributes: int) -> list[Attributes]:
        return self._marginals(self.k, n_attributes)

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
