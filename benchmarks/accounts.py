"""The moment classifier with an account for each class: what a rare record need not pay for, it does not pay for.

`PrivateMomentClassifier` makes its ranks from the marginals of all records. Those of common classes would do: then a
rare record has no part in them, and what the budget of one spends on them the other spends on its class's sum (parallel
composition). Won on development sets by little, and gained nothing on the reserve at epsilon = 1; so it stays here.

**What is released.** First the sizes of the classes. A class is *rare* if its noisy size is less than half that of the
largest, and *common* if not. Then the marginals of the common records; then, of rows phi made from these, the sum over
every class, and S = sum phi phi' over all.

**What one record moves**, squared and in units of the noise at mu = 1. Let p be the precision (one over the variance)
of a size, m the squared parameter of the marginals, r and a the precisions of an entry of a rare and of a common sum,
and b that of an entry of S on the diagonal, 2 b elsewhere. One record more or less moves p + r + b if its class is
rare, and at most p + m + a + b if it is common. Another record in its place moves at most

    rare, same class        4 r, if r >= 2 b
    rare, another class     2 p + 2 r + 2 b                  (both rare)
    rare and common         2 p + r + m/2 + a + 2 b          (one record moves half of m, or less)
    common, another class   2 p + m + 2 a + 2 b
    common, same class      m + 2 a + 2 b + a^2/(2 b),

since two rows of lengths s, t <= 1 and product u move sums by s^2 + t^2 - 2 u or, of two classes, s^2 + t^2, and S by
s^4 + t^4 - 2 u^2 <= 2. For the last, -2 a u - 2 b u^2 <= a^2/(2 b). For the first, -2 r u - 2 b u^2 falls with u >= -1,
so that opposite rows are the worst, r (s + t)^2 + b (s^2 - t^2)^2, which grows with s and with t. `precisions` makes
all of these at most 1. Which classes are rare depends on the first release, and the rows on the second; but a given
pair of neighbours moves at most 1 in all, whatever came before.
"""

import math
from typing import NamedTuple

import numpy as np
from dp_accounting import GaussianDpEvent

from helpers.erm import PrivateMomentClassifier, marginals, moments
from helpers.erm.marginals import Marginals, RankFeatures, marginals_sensitivity
from helpers.privacy import EXACT_REALS, REPLACE_ONE, Guarantee, gaussian_mu, noise_assumptions

_SIZE, _MARGINALS, _RARE = 0.1, 0.7, 0.5
_SECOND, _SECOND_ADDED, _RARE_SUM, _COMMON_SUM = 0.125, 0.1, 0.25, 0.22


class Precisions(NamedTuple):
    """p, m, r, a and b."""

    size: float
    marginals: float
    rare: float
    common: float
    second: float


def precisions(none_rare: bool, neighbouring) -> Precisions:
    """A budget of 1, divided up; a third of the share for marginals where all records have to pay for their sums."""
    share = _MARGINALS / (3 if none_rare else 1)
    if neighbouring is not REPLACE_ONE:
        left = 1 - _SIZE - _SECOND_ADDED
        return Precisions(_SIZE, share * left, left, (1 - share) * left, _SECOND_ADDED)
    left = 1 - 2 * _SIZE - 2 * _SECOND
    return Precisions(_SIZE, share * left, _RARE_SUM, min((1 - share) * left / 2, _COMMON_SUM), _SECOND)


class AccountsByClass(PrivateMomentClassifier):
    """As `PrivateMomentClassifier`, by the releases of this module; `marginals_share` is not used."""

    def fit(self, X, y):
        """Learn from records X (n, d) with labels y (n,); returns self."""
        domain = self._public_domain(X.shape[1])
        rng, codes, mu = self._noise_generator(X, y), domain.encode(X, y), gaussian_mu(self.epsilon, self.delta)
        labels, self.n_features_in_ = codes[:, -1], X.shape[1]
        sizes = np.bincount(labels, minlength=len(domain.classes)) + rng.normal(
            0, 1 / (mu * math.sqrt(_SIZE)), len(domain.classes)
        )
        if self.neighbouring is REPLACE_ONE:
            sizes += (len(labels) - sizes.sum()) / len(sizes)
        sizes = np.maximum(sizes, 2.0)
        common = sizes >= _RARE * sizes.max()
        spent = precisions(bool(common.all()), self.neighbouring)
        cells = self._cells(codes[common[labels]], domain, mu * math.sqrt(spent.marginals), sizes[common].sum(), rng)
        self.classes_, self.features_ = np.array(domain.classes), RankFeatures(domain, cells)
        self.marginals_ = Marginals(cells, sizes, sizes / sizes.sum(), float(sizes.sum()), 1 / (mu * math.sqrt(_SIZE)))
        self._place(*self._sums(X, labels, common, spent, mu, rng))
        self.guarantee_ = Guarantee(
            self.epsilon,
            self.delta,
            self.neighbouring,
            GaussianDpEvent(1 / mu),
            ("number of records public", "domain public", EXACT_REALS, *noise_assumptions(rng)),
            "one Gaussian mechanism, pair by pair",
        )
        return self

    def _cells(self, codes, domain, mu, n_records, rng):
        spread = math.sqrt(1 - marginals.LABEL_SHARE) * marginals_sensitivity(domain, self.neighbouring) / mu
        noisy = []
        for j, attribute in enumerate(domain.attributes):
            table = np.bincount(codes[:, j], minlength=attribute.size).astype(float)
            nodes = marginals.node_sums(table)[1:] if marginals._levels(attribute) else []
            parts = [level[::2] - level[1::2] for level in nodes] or [table]
            noisy.append([part + rng.normal(0.0, spread, part.shape) for part in parts])
        return marginals.denoised(domain, noisy, n_records, spread)

    def _sums(self, X, labels, common, spent, mu, rng):
        """Noisy sums of the classes, their standard deviations, noisy S, and its."""
        rows = np.concatenate(list(moments._clipped(self.features_, X)))
        spreads = 1 / (mu * np.sqrt(np.where(common, spent.common, spent.rare)))
        sums = np.eye(len(common))[labels].T @ rows + spreads[:, None] * rng.normal(size=(len(common), rows.shape[1]))
        spread = 1 / (mu * math.sqrt(spent.second))
        return sums, spreads, rows.T @ rows + symmetric_noise(rows.shape[1], spread, rng), spread

    def _place(self, sums, spreads, second, spread_second):
        """Coefficients and what places the threshold, as in `PrivateMomentClassifier`, for two classes."""
        sizes = self.marginals_.counts
        values, vectors = moments._cleaned(second / sizes.sum(), spread_second / sizes.sum())
        means, spread = sums / sizes[:, None], float(np.linalg.norm(spreads / sizes))
        apart = means[1] - means[0]
        noise = len(apart) * spread**2
        signal = max(apart @ apart - noise, noise * math.sqrt(0.5 / len(apart)))
        inverse = 1 / (values + moments._RIDGE * spread**2 / signal)
        coef = vectors @ (inverse * (vectors.T @ apart))
        variance = float((vectors.T @ coef) ** 2 @ values)
        gap = apart @ coef - spread**2 * inverse.sum()
        gap = float(np.clip(gap, *(factor * math.sqrt(variance) for factor in moments._GAPS)))
        share = sizes[1] / sizes.sum()
        slope = gap / max(variance - share * (1 - share) * gap**2, moments._WITHIN * variance)
        self.coef_, self.priors_ = slope * coef[None], np.array([share])
        self.intercept_ = np.array([-slope * (means[0] @ coef + gap / 2)])


def symmetric_noise(size: int, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Of standard deviation `spread` on the diagonal, and 1/sqrt 2 of it elsewhere: `spread` in the Frobenius norm."""
    noise = np.triu(rng.normal(0.0, spread / math.sqrt(2), (size, size)), 1)
    return noise + noise.T + np.diag(rng.normal(0.0, spread, size))
