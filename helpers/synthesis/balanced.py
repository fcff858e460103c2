"""Balanced private data from any private synthesiser, for any learner: nothing about the learner has to be private.

`BalancedSynthesizer` fits a synthesiser once and draws equally many records of every class from what was fitted. By
post-processing the guarantee is the synthesiser's own, whatever is drawn and whatever is trained on it.
"""

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from helpers.privacy import PrivateMixin, check_random_state, child_state
from helpers.synthesis.aim import AIM
from helpers.validation import integer


def _check_synthesizer(name: str, value: Any) -> None:
    if value is not None and not (hasattr(value, "sample") and "random_state" in value.get_params(deep=False)):
        raise ValueError(f"{name} must have sample and a parameter random_state, got {value!r}")


class BalancedSynthesizer(PrivateMixin, BaseEstimator):
    """Replace the records by synthetic ones, equally many of each class.

    Parameters
    ----------
    synthesizer : estimator, optional
        With `fit`, `sample` and `guarantee_` as `AIM`, `GEM` and `PrivBayes`. It holds the budget, and the public
        domain with the set of labels. None: `AIM()`, because on mammography and abalone at epsilon 1 XGBoost learns
        more from it than from `GEM()` (area under the ROC curve; `benchmarks/synthesis.py`), and it has either
        neighbouring relation, unlike `PrivBayes`, which is ahead on mammography and behind on abalone.
    n_samples : int
        Synthetic records in all, at least 2; what does not divide evenly goes to the first classes.
    random_state : None or int
        None, except to reproduce a result (`PrivateMixin`).

    Attributes
    ----------
    synthesizer_ : fitted synthesizer
    guarantee_ : helpers.privacy.Guarantee
        Of the synthesizer, and of everything that is made of its samples.
    n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range, and what the synthesizer refuses.

    Notes
    -----
    Proof: in the literature (post-processing), given that of the synthesiser.

    Source: Rosenblatt et al. 2025, Algorithm 3 and Proposition 10, with the first of its two ways to draw: records of
    each class with `sample(n, label)`.

    >>> from helpers.synthesis import GEM, Domain
    >>> X, y = np.repeat([[0.2], [0.8]], [950, 50], axis=0), np.repeat([0, 1], [950, 50])
    >>> gem = GEM(1.0, domain=Domain.from_bounds([[0, 1]], n_bins=2), T=3)
    >>> balanced = BalancedSynthesizer(gem, n_samples=200, random_state=0)
    >>> X_new, y_new = balanced.fit_resample(X, y)
    >>> X_new.shape, int(y_new.sum()), str(balanced.guarantee_)
    ((200, 1), 100, '(1, 1e-05)-DP, replace-one')
    """

    _allowed: ClassVar[dict] = {"synthesizer": _check_synthesizer, "n_samples": integer(low=2, high=None)}

    def __init__(self, synthesizer=None, n_samples=10_000, random_state=None):
        self.synthesizer = synthesizer
        self.n_samples = n_samples
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the synthesizer to X (n, d) and labels y (n,); returns self."""
        self._fit(X, y)
        return self

    def fit_resample(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray, NDArray]:
        """Fit, and return balanced synthetic X (n_samples, d) and y (n_samples,), in random order."""
        return self.sample(random_state=self._fit(X, y))

    def sample(self, *, random_state: int | None = None) -> tuple[NDArray, NDArray]:
        """Another balanced synthetic data set (X, y) from the same fit, at no further cost.

        Parameters
        ----------
        random_state : None or int
            Need not be secret: what is drawn from is public already.
        """
        check_is_fitted(self, "guarantee_")
        self._check_parameters()
        rng = np.random.default_rng(check_random_state("random_state", random_state))
        classes = self.synthesizer_.domain_.classes
        # n_samples over the classes, the remainder one each to the first of them.
        sizes = [(self.n_samples + len(classes) - 1 - i) // len(classes) for i in range(len(classes))]
        parts = [
            self.synthesizer_.sample(n, label, random_state=int(rng.integers(2**63)))
            for n, label in zip(sizes, classes, strict=True)
        ]
        X, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        order = rng.permutation(len(y))
        return X[order], y[order]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # The libraries' checks of samplers want the records back, and their class counts; here neither is released.
        tags._skip_test = True
        return tags

    def _fit(self, X: ArrayLike, y: ArrayLike) -> int | None:
        """Fit; the seed for sampling."""
        self._forget()
        self._check_parameters()
        rng = clone(self)._noise_generator(np.asarray(X), np.asarray(y))  # the same whether the inner one is fitted
        inner = AIM() if self.synthesizer is None else clone(self.synthesizer)
        inner.set_params(random_state=child_state(self.random_state, rng))
        inner.fit(X, y)
        inner.random_state = None  # spent: it must not be kept beside what was made with it
        source = f"{inner.guarantee_.source}, and post-processing (Dwork and Roth 2014, Proposition 2.1)"
        self.synthesizer_, self.n_features_in_ = inner, inner.n_features_in_
        self.guarantee_ = replace(inner.guarantee_, source=source)
        return child_state(self.random_state, rng)
