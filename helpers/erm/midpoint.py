"""A threshold between two class means: the smallest private classifier, for one feature.

`MidpointClassifier` releases clipped sums and, unless they are public, class counts, by one Gaussian mechanism whose
noise is computed from public numbers alone. What such a threshold does to every metric, and how far it is off, is known
exactly for two normal classes: `checks.two_gaussians`.
"""

import math
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.privacy import REPLACE_ONE, Ledger, PrivateMixin, gaussian_multiplier
from helpers.validation import Check, choice, label_codes, real, validate_records

COUNTS = ("private", "public")
_SMALLEST_COUNT = 1.0  # by which a sum is divided
_CLASSES = np.array([0, 1])


class MidpointClassifier(PrivateMixin, ClassifierMixin, BaseEstimator):
    """Threshold between two privately estimated class means; class 1 lies above.

    Parameters
    ----------
    radius : float
        Values are clipped to [-radius, radius]; public, above 0.
    epsilon : float
        Above 0.
    delta : float
        In (0, 1).
    counts : {"private", "public"}
        "private": clipped sums and a class count are released together. The number of records is public (replace-one),
        so one count will do, and it needs no noise beyond that of the sums: a changed value moves one sum by 2R; a
        changed label moves two sums by R each and the count by 1, which multiplied by sqrt(2) R makes a change of
        length 2R again. "public": the counts are known, so neighbours keep labels, a change touches one class, and each
        mean gets noise for 2R/n_b.
    random_state : None or int
        None: noise that nobody can predict. An integer is for reproducing: whoever can guess it can undo the privacy,
        and it must not serve two releases on related data (`PrivateMixin`).

    Attributes
    ----------
    means_ : array of shape (2,)
        Released means, clipped to [-radius, radius].
    threshold_ : float
    counts_ : array of shape (2,)
        Released counts, at least 1.
    guarantee_ : Guarantee
        For everything above.
    classes_ : array of shape (2,); n_features_in_ : int

    Raises
    ------
    ValueError
        In `fit`: a parameter out of range, labels other than 0 and 1, more than one feature; with public counts a class
        without records. Private counts never fail: an empty class gives a mean of pure noise.

    Notes
    -----
    Proof: the sensitivities are proved here, under `counts`; the Gaussian mechanism is in the literature.

    Source: corrects Rosenblatt et al. 2025, Appendix C.2; Balle and Wang 2018, Theorem 9.

    >>> X, y = np.linspace(-3, 3, 4000)[:, None], np.repeat([0, 1], 2000)
    >>> model = MidpointClassifier(radius=5.0, epsilon=1.0, random_state=0).fit(X, y)
    >>> str(model.guarantee_), bool(abs(model.threshold_) < 0.1)
    ('(1, 1e-05)-DP, replace-one', True)
    """

    _allowed: ClassVar[dict[str, Check]] = {
        "radius": real(low=0, inclusive="neither"),
        "epsilon": real(low=0, inclusive="neither"),
        "delta": real(low=0, high=1, inclusive="neither"),
        "counts": choice(*COUNTS),
    }

    def __init__(
        self,
        radius=1.0,
        epsilon=1.0,
        delta=1e-5,
        counts="private",
        random_state=None,
    ):
        self.radius = radius
        self.epsilon = epsilon
        self.delta = delta
        self.counts = counts
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Release the means of X (n, 1) with labels y (n,), and set the threshold; returns self."""
        self._check_parameters()
        values, labels = validate_records(self, X, y)
        if values.shape[1] != 1:
            raise ValueError(f"X must have one feature, got {values.shape[1]}")
        codes = label_codes(labels, _CLASSES)
        totals = None
        if self.counts == "public":
            # Public counts may be looked at, and refused, without noise.
            totals = np.bincount(codes, minlength=2).astype(float)
            if not totals.all():
                raise ValueError(
                    f"y must have a record of each class when the counts are public, got {totals.tolist()}"
                )
        self._learn(Ledger((values[:, 0], codes), REPLACE_ONE, self._noise_generator(values, labels)), totals)
        return self

    def _learn(self, ledger: Ledger, totals: NDArray | None) -> None:
        """Set what is fitted, from one answer of the ledger of values and codes; `totals` (2,) are the class counts
        where they are public."""
        R, multiplier = self.radius, gaussian_multiplier(self.epsilon, self.delta)

        def sums(records):
            values, codes = records
            # Clipped sums (2,), one a class: each record moves its own by R at most.
            return np.bincount(codes, weights=np.clip(values, -R, R), minlength=2)

        if totals is not None:
            # In units of each mean's own sensitivity a change moves one coordinate by 1.
            units = 2 * R / totals
            means = units * ledger.gaussian(lambda records: sums(records) / totals / units, 1.0, multiplier)
            self.counts_ = totals
        else:
            # The unit in which a count needs no noise beyond that of the sums (see `counts` in the class's docstring).
            unit = math.sqrt(2) * R
            noisy = ledger.gaussian(
                lambda records: np.append(sums(records), unit * np.count_nonzero(records[1])), 2 * R, multiplier
            )
            count = noisy[2] / unit
            self.counts_ = np.maximum([ledger.n_records() - count, count], _SMALLEST_COUNT)
            # Post-processing of the one release: noisy sums over noisy counts.
            means = noisy[:2] / self.counts_
        self.classes_, self.means_ = _CLASSES.copy(), np.clip(means, -R, R)
        self.threshold_ = float(self.means_.mean())
        counted = ("class counts public",) if self.counts == "public" else ()
        known = ("radius public", "which class lies above public", *counted)
        source = "Gaussian mechanism (Balle and Wang 2018, Theorem 9)"
        self.guarantee_ = ledger.guarantee(self.epsilon, self.delta, source=source, assumes=known)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Distance (n,) above the threshold."""
        check_is_fitted(self)
        return validate_data(self, X, reset=False)[:, 0] - self.threshold_

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """1 at or above the threshold."""
        return (self.decision_function(X) >= 0).astype(int)
