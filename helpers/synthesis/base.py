"""What private synthesisers share: a domain, a budget, a curator of the records, and sampling from what was fitted.

`fit` is the only step that sees records. What it keeps is noisy or public, so samples of any number cost nothing more.
How the distribution is learned is left to the subclasses.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.dp_event import DpEvent, GaussianDpEvent, ZCDpEvent
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from helpers.constructors import SharedParameters
from helpers.data.domain import Domain, check_labels
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    ApproximateDpEvent,
    Ledger,
    PrivateMixin,
    gaussian_mu,
    zcdp_budget,
)
from helpers.privacy.randomness import check_random_state
from helpers.synthesis.bins import noisy_domain
from helpers.synthesis.curator import Attributes, Curator, check_cells
from helpers.validation import check_choice, check_integer, choice, integer, label_codes, real, validate_records

Fitted = dict[str, Any]
"""Attributes of a fitted object by name; `model_`, which draws codes by `sample(n, rng, given)`, is among them."""
_DOMAIN_SHARE = 0.1  # of the budget, for the bins where no domain is declared
_ROUNDING = 1e-9  # of a budget: what its parts may add up to beyond it in floating point


def _check_domain(name: str, value: Any) -> None:
    if not isinstance(value, Domain | None):
        raise ValueError(f"{name} must be a Domain or None, got {value!r}")


class Synthesizer(SharedParameters, PrivateMixin, BaseEstimator, ABC):
    """Base of private synthesisers: public parameters, then the domain, then the model, then the guarantee."""

    neighbouring: NeighboringRelation = REPLACE_ONE  # where it is no parameter
    delta: float = 0.0  # likewise; pure budgets are parts of epsilon, others of rho in zero-concentrated privacy
    workload: str = "all"  # likewise
    k: int = 1  # likewise
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
        domain, dtype = self.domain, np.float64 if self.domain is None else None
        # A declared domain may hold texts, so nothing is cast to numbers then.
        X, y = validate_records(self, X, y, dtype=dtype, ensure_min_samples=int(self.neighbouring is REPLACE_ONE))
        # What is too large, or not in the domain, is refused here, where nothing has been spent.
        decisive = "k" if "k" in self._get_param_names() else "n_bins" if domain is None else "domain"
        d, classes = X.shape[1], check_labels(self.classes) if domain is None else domain.classes
        label_codes(y, np.array(classes))
        sizes = (self.n_bins,) * d + (len(classes),) if domain is None else domain.sizes
        check_cells(self._workload(len(sizes)), sizes, decisive)
        records = (X, y) if domain is None else domain.encode(X, y)
        ledger = coded = Ledger(records, self.neighbouring, self._noise_generator(X, y))
        total = self._total_budget(len(sizes))
        # The parts that the synthesiser adds up in floating point then stay within the whole.
        budget = total * (1 - _ROUNDING)
        if domain is None:
            columns, share = ledger.view(lambda records: records[0]), _DOMAIN_SHARE * budget
            domain = noisy_domain(columns, d, classes, n_bins=self.n_bins, budget=share, pure=self._pure)
            budget -= share
            coded = ledger.view(lambda records: domain.encode(*records))
        # From here on the model sees the curator's noisy answers alone.
        curator = Curator(coded, domain.sizes, self._pure)
        with threadpool_limits(1):  # products are small: threads would wait for each other longer than they work
            model = self._fit_model(curator, domain.sizes, budget)
        public = f"domain public (bins, categories, set of labels): {domain.basis}"
        known = "set of labels public" if self.domain is None else public
        bound = self._bound(len(sizes), total)
        guarantee = ledger.guarantee(self.epsilon, self.delta, source=self._source, assumes=[known], bound=bound)
        # Only now, after the bill was held against the budget, does the object hold anything.
        self.__dict__.update(model, domain_=domain, classes_=np.array(classes), guarantee_=guarantee)
        return self

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
        return self.domain_.decode(self.model_.sample(n, rng, given), rng)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # scikit-learn's checks make up labels; here the set of labels is public and others are refused.
        tags._skip_test = True
        return tags

    def _workload(self, n_attributes: int, order: int | None = None) -> list[Attributes]:
        """Marginals of `order` attributes, `k` if left out (of all of them if there are fewer), the label the last.

        With the workload "label" those that have the label. PrivBayes measures larger ones where they fit.
        """
        found = combinations(range(n_attributes), min(order or self.k, n_attributes))
        return [one for one in found if self.workload == "all" or one[-1] == n_attributes - 1]

    @abstractmethod
    def _fit_model(self, curator: Curator, sizes: tuple[int, ...], budget: float) -> Fitted:
        """Ask the curator within the budget; `model_` and what else is kept."""

    def _total_budget(self, n_attributes: int) -> float:
        """The whole budget as the curator counts it: epsilon, or rho in zero-concentrated privacy."""
        return float(self.epsilon)

    def _bound(self, n_attributes: int, total: float) -> DpEvent | None:
        """What no bill exceeds, if the number or the price of questions depends on earlier answers, else None.

        The bill then differs from run to run, so the guarantee is that of the whole budget.
        """
        return ApproximateDpEvent(total, 0.0)


class ZcdpSynthesizer(Synthesizer):
    """Base of those that add Gaussian noise, and may choose among marginals by the exponential mechanism.

    With choices the account is in zCDP. Without any, all noise is Gaussian: however it is divided, it is one Gaussian
    mechanism, whose exact curve affords more (Dong, Roth and Su 2022, Corollary 3.3; Balle and Wang 2018).
    """

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

    @abstractmethod
    def _makes_choices(self, n_attributes: int) -> bool:
        """Whether it ever chooses among marginals; public, and known before the fit."""

    def _total_budget(self, n_attributes: int) -> float:
        if self._makes_choices(n_attributes):
            return zcdp_budget(float(self.epsilon), float(self.delta))
        return gaussian_mu(self.epsilon, self.delta) ** 2 / 2  # rho of one Gaussian mechanism

    def _bound(self, n_attributes: int, total: float) -> DpEvent | None:
        return ZCDpEvent(total) if self._makes_choices(n_attributes) else GaussianDpEvent(1 / math.sqrt(2 * total))


class MixtureSynthesizer(ZcdpSynthesizer):
    """Base of those that fit a `ProductMixture` to what they measure."""

    _allowed: ClassVar[dict] = {"k": integer(low=1), "n_components": integer(low=1), "max_iters": integer(low=0)}

    def __init__(self, epsilon=1.0, delta=1e-5, k=3, n_components=128, max_iters=100, **shared):
        super().__init__(epsilon=epsilon, delta=delta, **shared)
        self.k = k
        self.n_components = n_components
        self.max_iters = max_iters
