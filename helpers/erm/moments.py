"""A private additive classifier without an optimiser: two Gaussian releases, of marginals and of moments.

What a linear classifier needs are the class means of its features and their second moments. Here the features are
polynomials of private ranks (`helpers.erm.marginals`), clipped to length 1, and one release has it all. Scores are sums
of one function an attribute, which can be looked at. Where a record's row is clipped, its sum is shortened with it, in
prediction as in the fit: else a value in a cell that was empty would decide alone, with a probability of 0 or 1.

**What one record moves.** Let phi be a record's row, |phi| <= 1, pi the class shares of the first release, and a_y the
unit vector of the label y less pi. Released are sum a_y phi' and k sum a_y with noise of standard deviation sigma, and
S = sum phi phi' with noise of standard deviation t = sqrt 2 sigma/q on the diagonal and t/sqrt 2 off it, which is t in
the Frobenius norm. Take q >= |a_y| for all y, and let another record take this one's place, with rows of lengths r and
s at an angle of cosine c. With the same label it moves all of it, in units of sigma and squared, by at most

    q^2 [r^2 + s^2 - 2 c r s + (r^4 + s^4 - 2 c^2 r^2 s^2)/2] <= 4 q^2:

this falls with c, and at c = -1 it is q^2 [(r + s)^2 + (r^2 - s^2)^2/2], which grows with r and with s, and is 4 q^2 at
r = s = 1. With another label z it is at most

    |a_y|^2 r^2 + |a_z|^2 s^2 - 2 c r s <a_y, a_z> + 2 k^2 + q^2 (r^4 + s^4 - 2 c^2 r^2 s^2)/2,

whose two terms in c r s are at most <a_y, a_z>^2/q^2 together, so that 2 k^2 <= 3 q^2 - |a_y|^2 - |a_z|^2 -
<a_y, a_z>^2/q^2 makes it at most 4 q^2 again. So sigma = 2 q/mu makes all of it one Gaussian mechanism of parameter mu:
**S is free**, it costs no more than the first sum does alone. One record more or less moves the sums by at most
|a_y| sqrt(1 + k^2), and S by 1, which is paid for.

**What one person moves.** All of this is sums over rows. Where it is known which rows are of one person, each of their
m rows counts with weight 1/m: what the person adds is then a mean of what single rows add, and a mean of changes is no
longer than the longest of them. So a person is protected at the price of a row. Where it is known only that nobody has
more than k rows, they move k times as much, and the noise is k times as large.

Source: the sufficient statistics of Vu and Slavkovic 2009 and of Wang 2018 (adaptive ridge), on ranks.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import helmert
from scipy.special import expit, log_expit, logit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from helpers.data.domain import Domain
from helpers.erm.marginals import RankFeatures, noisy_marginals
from helpers.erm.partitions import gathered, is_dask, is_partitioned, table
from helpers.erm.risk import Block, Rows, Table
from helpers.predictions import ScorePredictions
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Ledger, NeighboringRelation, PrivateMixin, gaussian_mu
from helpers.validation import Check, any_value, choice, integer, label_codes, real, validate_records

_N_BINS = 32
# Least q under replace-one. Noise on the means grows with q, and t does not depend on it. But k^2, at most
# (3 q^2 - ...)/2 by the module's theorem, would be 0 at the least q that the theorem allows for two equal classes.
_SHORTEST = 0.75 * math.sqrt(2)
_COUNT = 1.25  # largest k^2 under replace-one
_COUNT_ADDED = 0.1  # k^2 under add/remove, where it makes the noise on the means longer by the factor sqrt(1 + k^2)
_MOMENTS_ADDED = 0.15  # share of mu^2 that S costs under add/remove, where it is not free
_RIDGE = 15.0  # in units of the variance of the noise on the means, over the squared length of their signal
_GAPS = (0.7, 3.0)  # distances of class means, in standard deviations of the score, that are believed
_WITHIN = 0.1  # least share of a score's variance that is within the classes
_BLOCK = 1 << 22  # entries of rows at a time
_MOST_FEATURES = 4000
_MOST_ROWS = 1000  # of a person


class Shape(NamedTuple):
    """What one attribute adds to the log-odds of a class.

    Attributes
    ----------
    name : str
    places : ndarray (size,)
        Middles of the cells of an ordered attribute, or levels.
    log_odds : ndarray (1, size) or (K, size)
        Centred under the private marginal; of the second class, or of each of more than two.
    noise_scale : ndarray of the same shape
        Standard deviation of `log_odds` from the noise on the class means; not from the choice of records.
    """

    name: str
    places: NDArray
    log_odds: NDArray[np.float64]
    noise_scale: NDArray[np.float64]


class PrivateMomentClassifier(PrivateMixin, ScorePredictions, ClassifierMixin, BaseEstimator):
    """Additive classification by private ranks and private moments: (epsilon, delta)-DP by two Gaussian releases.

    `predict` says the class whose probability exceeds its share by most, which is best for balanced accuracy: the most
    likely class is hardly ever a rare one.

    The first releases the marginals of all attributes and the class sizes, the second the class means of the rows that
    `RankFeatures` makes of them and their second moments. All else is post-processing of the two: eigenvalues that are
    noise are levelled, the ridge grows with the noise, and so does the care in placing the threshold. Time and memory
    are linear in the number of records; nothing is iterated.

    Parameters
    ----------
    epsilon : float
        Above 0.
    delta : float
        In (0, 1).
    domain : Domain or array (d, 2), optional
        Public schema, or public bounds of the features, the lower one first; left out, features lie in [-1, 1]. Numbers
        outside count as the nearest bound.
    classes : sequence of labels
        Public; not looked at if `domain` is a `Domain`, which has its own.
    marginals_share : float
        Of the squared Gaussian parameter for the first release, in (0, 1).
    neighbouring : NeighboringRelation
        `REPLACE_ONE` (the number of records is public) or `ADD_REMOVE` (it is not).
    rows_per_person : int
        The most rows of one person, whom the guarantee protects, 1 or more; all noise grows with it. Not for rows whose
        persons are named in `fit`.
    random_state : None or int
        None, except to reproduce a result (`PrivateMixin`).

    Attributes
    ----------
    guarantee_ : helpers.privacy.Guarantee
    marginals_ : Marginals
    features_ : RankFeatures
    coef_, intercept_ : ndarray (1, D) or (K, D), and (1,) or (K,)
        Log-odds against the share of the class, of the rows `features_.rows(X)` clipped to length 1; two classes have
        one, of the second.
    priors_ : ndarray (1,) or (K,)
        Shares of these classes.
    shapes_ : list of Shape
        One an attribute; with `intercept_` they add up to the log-odds, but for records whose row is longer than 1,
        where their sum counts divided by its length.
    classes_ : ndarray (K,); n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range, X not as the domain says, a label that is not public, or no record under
        replace-one. No error depends on which of the allowed values the records have.

    Notes
    -----
    Proof: here, of both sensitivities (`helpers.erm.moments`, `helpers.erm.marginals`); composition is in the
    literature.

    Source: `helpers.erm.moments` for the second release, `marginals_sensitivity` for the first; composition of Gaussian
    mechanisms by Dong, Roth and Su 2022.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (2000, 2))
    >>> y = (X[:, 0] > 0.9).astype(int)
    >>> model = PrivateMomentClassifier(epsilon=1.0, delta=1e-6, random_state=0).fit(X, y)
    >>> str(model.guarantee_), model.predict([[0.99, 0.0], [-0.5, 0.0]]).tolist()
    ('(1, 1e-06)-DP, replace-one', [1, 0])
    """

    _allowed: ClassVar[dict[str, Check]] = {
        "epsilon": real(low=0, inclusive="neither"),
        "delta": real(low=0, high=1, inclusive="neither"),
        "domain": any_value,
        "classes": any_value,
        "marginals_share": real(low=0, high=1, inclusive="neither"),
        "neighbouring": choice(ADD_REMOVE, REPLACE_ONE),
        "rows_per_person": integer(low=1, high=_MOST_ROWS),
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        domain=None,
        classes=(0, 1),
        marginals_share=0.15,
        neighbouring=REPLACE_ONE,
        rows_per_person=1,
        random_state=None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.domain = domain
        self.classes = classes
        self.marginals_share = marginals_share
        self.neighbouring = neighbouring
        self.rows_per_person = rows_per_person
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Learn from records X (n, d) with labels y (n,); returns self.

        They may be arrays, or of numbers alone memory maps, `Chunks` or Dask collections (`helpers.erm.partitions`).
        `groups` (n,) says of each row of an array whose it is. The guarantee is then for persons, each of whom counts
        as one record, and their number is what is public under replace-one.
        """
        self._forget()
        self._check_parameters()
        dtype = None if isinstance(self.domain, Domain) else np.float64
        fewest = 1 if self.neighbouring is REPLACE_ONE else 0
        # A plain array, by far the most frequent, needs no second look.
        in_parts = False
        if type(X) is not np.ndarray:
            X = gathered(X)
            in_parts = is_partitioned(X)
        if in_parts:
            self.n_features_in_ = X.shape[1]
        else:
            X, y = validate_records(self, X, y, dtype=dtype, ensure_min_samples=fewest)
        domain = self._public_domain(X.shape[1])
        if groups is not None and (in_parts or self.rows_per_person > 1):
            raise ValueError("groups must be None for records in parts or with rows_per_person above 1, got some")
        # A record that the domain does not allow is found by the first query, which then releases nothing; but on a
        # worker it must not raise, and is looked for beforehand.
        if in_parts:
            make = partial(_allowed_rows, domain) if is_dask(X) else Rows
            records = table(X, y, domain.classes, make=make, fewest=fewest)
            key: tuple = () if self.random_state is None else (records.shape, records.fingerprint())
        else:
            codes = label_codes(y, np.array(domain.classes))
            n_persons, weights, key = len(X), None, (X, y)
            if groups is not None:
                groups = column_or_1d(groups)
                check_consistent_length(X, groups)
                _, persons, n_rows = np.unique(groups, return_inverse=True, return_counts=True)
                n_persons, weights, key = len(n_rows), 1 / n_rows[persons], (X, y, persons)
            sizes = np.bincount(codes, weights, minlength=len(domain.classes))
            records = Table([Block(Rows(X), codes, weights)], (n_persons, X.shape[1]), sizes)
        ledger = Ledger(records, self.neighbouring, self._noise_generator(*key))
        ledger.assume(*records.assumes)
        self._learn(domain, ledger, "record" if groups is None and self.rows_per_person == 1 else "person")
        return self

    def _learn(self, domain: Domain, ledger: Ledger, unit: str) -> None:
        """Set what is fitted, from two answers of the ledger."""
        # k rows of a person move k times what one does, which is as if the budget were a k-th of it; the ledger bills
        # the longer move.
        mu, k = gaussian_mu(self.epsilon, self.delta), self.rows_per_person
        if k > 1:
            ledger.assume(f"no person has more than {k} rows")
        first, second = mu * math.sqrt(self.marginals_share), mu * math.sqrt(1 - self.marginals_share)
        self.classes_ = np.array(domain.classes)
        self.marginals_ = noisy_marginals(ledger, domain, first, k)
        self.features_ = RankFeatures(domain, self.marginals_.cells)
        self._solve(_noisy_moments(ledger, self.features_, self.marginals_.priors, second, k))
        source = "composition of Gaussian mechanisms (Dong, Roth and Su 2022, Corollary 3.3)"
        schema = f"domain public (bins, categories, set of labels): {domain.basis}"
        given = ledger.guarantee(self.epsilon, self.delta, source=source, assumes=(schema,))
        self.guarantee_ = replace(given, unit=unit)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-odds of the class against its share (n,), or (n, K); `predict` says yes above 0."""
        odds = self._log_odds(X)
        return odds[:, 0] if len(self.classes_) == 2 else odds

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities (n, K) of the classes if scores are normal in each, with one variance."""
        odds = self._log_odds(X) + logit(self.priors_)
        if len(self.classes_) == 2:
            return np.column_stack([1 - expit(odds[:, 0]), expit(odds[:, 0])])
        return softmax(log_expit(odds), axis=1)  # in logarithms, as all of them can be too small for a double

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        classes: Any = self.domain.classes if isinstance(self.domain, Domain) else self.classes
        tags.classifier_tags.multi_class = np.size(classes) > 2
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._public_domain()

    def _public_domain(self, n_features: int = 0) -> Domain:
        """The schema; with the number of features of X (0: not known yet), that it fits them."""
        domain = self.domain
        if not isinstance(domain, Domain | None | np.ndarray | list | tuple):
            raise ValueError(f"domain must be None, a Domain or an array of bounds (d, 2), got {domain!r}")
        if not isinstance(domain, Domain):
            bounds = np.tile([-1.0, 1.0], (n_features or 1, 1)) if domain is None else domain
            domain = Domain.from_bounds(bounds, classes=self.classes, n_bins=_N_BINS)
        if n_features not in (0, domain.n_features):
            raise ValueError(f"domain must have the {n_features} features of X, got {domain.n_features}")
        if not 1 <= RankFeatures.count(domain) <= _MOST_FEATURES:
            raise ValueError(
                f"domain must give 1 to {_MOST_FEATURES} features (three for an ordered attribute, one for a level), "
                f"got {RankFeatures.count(domain)}"
            )
        return domain

    def _log_odds(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-odds (n, 1) or (n, K) of each class against all others, less those of its share."""
        check_is_fitted(self)
        dtype = None if isinstance(self.domain, Domain) else np.float64
        checked = validate_data(self, X, dtype=dtype, reset=False)
        return np.concatenate([rows @ self.coef_.T for rows in _clipped(self.features_, checked)]) + self.intercept_

    def _solve(self, moments: "_Moments") -> None:
        """Set the coefficients, what places the threshold, and the shapes, from what was released alone."""
        first, n_records, n_classes = self.marginals_, self.marginals_.n_records, len(self.classes_)
        values, vectors = _cleaned(moments.second / n_records, moments.noise_scale_second / n_records)
        found = []
        for k in [1] if n_classes == 2 else range(n_classes):
            # The share of the class from its two noisy counts, weighted by their precision.
            counts = np.array([first.counts[k], n_records * first.priors[k] + moments.counts[k]])
            precision = np.array([first.noise_scale, moments.noise_scale_count]) ** -2.0
            least = 2 / max(n_records, 5.0)
            share = float(np.clip(counts @ precision / precision.sum() / n_records, least, 1 - least))
            mean, noise_scale = moments.means[k] / n_records, moments.noise_scale / n_records
            # The squared length of the noise is `noise` in expectation, with standard deviation noise * sqrt(2 / D).
            # That of the signal is the mean's less the noise's, and not below half that standard deviation.
            noise = len(mean) * noise_scale**2
            signal = max(mean @ mean - noise, noise * math.sqrt(0.5 / len(mean)))
            inverse = 1 / (values + _RIDGE * noise_scale**2 / signal)
            coef = vectors @ (inverse * (vectors.T @ mean))
            variance = float((vectors.T @ coef) ** 2 @ values)
            # Difference of the class means of the score, less what the noise in the coefficients adds to it.
            gap = (mean @ coef - noise_scale**2 * inverse.sum()) / (share * (1 - share))
            nearest, farthest = (factor * math.sqrt(variance) for factor in _GAPS)
            gap = float(np.clip(gap, nearest, farthest))
            # Log-odds of two normal laws of one variance: gap over the variance within the classes, which is the whole
            # variance less that between them.
            slope = gap / max(variance - share * (1 - share) * gap**2, _WITHIN * variance)
            # The mean of all scores is 0, since features are centred: so gap * (0.5 - share) lies half-way between the
            # class means.
            found.append((slope * coef, -slope * gap * (0.5 - share), share, slope * noise_scale * inverse))
        coefs, intercepts, shares, noise_scales = zip(*found, strict=True)
        self.coef_, self.intercept_, self.priors_ = np.array(coefs), np.array(intercepts), np.array(shares)
        self.shapes_: list[Shape] = []
        start = 0
        features = self.features_
        for attribute, curve, places in zip(features.domain.attributes, features.tables, features.places, strict=True):
            stop = start + curve.shape[1]
            # The coefficients are `vectors` times numbers with the noise's `noise_scales`.
            on_values = curve @ vectors[start:stop]
            blur = np.array([np.sqrt((on_values * one) ** 2 @ np.ones(len(one))) for one in noise_scales])
            self.shapes_.append(Shape(attribute.name, places, self.coef_[:, start:stop] @ curve.T, blur))
            start = stop


class _Moments(NamedTuple):
    """The second release.

    Attributes
    ----------
    means : ndarray (K, D)
        Sums of (indicator of the class less its share) times row, noisy with standard deviation `noise_scale`.
    counts : ndarray (K,)
        Sums of (indicator less share), noisy with standard deviation `noise_scale_count`.
    second : ndarray (D, D)
        Symmetric; noise of standard deviation `noise_scale_second` on the diagonal, and 1/sqrt 2 of it elsewhere.
    """

    means: NDArray[np.float64]
    counts: NDArray[np.float64]
    second: NDArray[np.float64]
    noise_scale: float
    noise_scale_count: float
    noise_scale_second: float


def moments_noise(priors: NDArray, mu: float, neighbouring: NeighboringRelation) -> tuple[float, float, float]:
    """Standard deviations sigma of the noise on the means and t on S, and the factor k of the counts.

    The K entries of every a_y sum to zero, so the means are released in the K - 1 coordinates of an orthonormal basis
    of all such vectors.

    >>> sigma, t, k = moments_noise(np.array([0.9, 0.1]), 1.0, REPLACE_ONE)
    >>> round(sigma / math.sqrt(2), 3), round(k**2, 3)  # in the units of y - pi: 2 (1 - pi)
    (1.8, 1.25)
    """
    labels = np.eye(len(priors)) - priors
    products = labels @ labels.T
    square = products.diagonal().max()
    if neighbouring is not REPLACE_ONE:
        sigma = math.sqrt(square * (1 + _COUNT_ADDED) / (1 - _MOMENTS_ADDED)) / mu
        return sigma, 1 / (mu * math.sqrt(_MOMENTS_ADDED)), math.sqrt(_COUNT_ADDED)
    # q^2 of the module's docstring.
    square = max(square, _SHORTEST**2)
    one, other = np.triu_indices(len(priors), 1)
    moved = products[one, one] + products[other, other] + products[one, other] ** 2 / square
    count = min(_COUNT, (3 * square - moved.max()) / 2)
    return 2 * math.sqrt(square) / mu, 2 * math.sqrt(2) / mu, math.sqrt(count)


def _noisy_moments(ledger, features, priors, mu, n_rows=1) -> _Moments:
    """The second release, of a ledger of a `Table` of records (n, d), for persons with at most `n_rows` of them."""
    sigma, t, k = moments_noise(priors, 1.0, ledger.neighbouring)
    # Orthonormal rows (K - 1, K), each of which sums to zero as every a_y does.
    basis, size = helmert(len(priors)), RankFeatures.count(features.domain)
    labels = (basis @ (np.eye(len(priors)) - priors).T).T  # a_y in coordinates, one row a class
    above = np.triu_indices(size, 1)

    def moments(records):
        sums = np.zeros((len(basis) + size, size)) + records.total(_sums, features, labels)
        means, second = np.split(sums, [len(basis)])
        return means, k * records.sizes @ labels, second.diagonal(), second[above]

    # The module's theorem: in units of the noise's own sizes all of it moves by 1.
    units = sigma, sigma, t, t / math.sqrt(2)
    means, counts, squares, products = ledger.gaussian(moments, float(n_rows), 1 / mu, units)
    mu = mu / n_rows
    second = np.diag(squares)
    second[above] = products
    second.T[above] = products
    of_class = sigma / mu * math.sqrt(1 - 1 / len(priors))  # the basis spreads it evenly over the classes
    return _Moments(basis.T @ means, basis.T @ counts / k, second, of_class, of_class / k, t / mu)


def _allowed_rows(domain, X):
    """Records as rows, if the domain has them: else ValueError."""
    for attribute in domain.attributes:
        attribute.encode(X)
    return Rows(X)


def _sums(features, labels, block):
    """Sums of a_y phi' and, below them, of phi phi'."""
    size, width, start = labels.shape[1], RankFeatures.count(features.domain), 0
    sums = np.zeros((size + width, width))
    for rows in _clipped(features, block.rows.base):
        here = slice(start, start + len(rows))
        weighted = rows if block.weights is None else block.weights[here, None] * rows
        sums[:size] += labels[block.codes[here]].T @ weighted
        sums[size:] += rows.T @ weighted
        start += len(rows)
    return sums


def _clipped(features, X):
    """Rows of X of length at most 1, some at a time: memory does not grow with features times records."""
    size = max(1, _BLOCK // RankFeatures.count(features.domain))
    for start in range(0, max(len(X), 1), size):
        rows = features.rows(X[start : start + size])
        yield rows / np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), 1.0)[:, None]


def _cleaned(second, noise_scale):
    """Eigenvalues (D,) and eigenvectors of noisy second moments of rows of length at most 1.

    An eigenvalue outside what noise alone would give is smaller than it looks, to first order by the noise's variance
    times D/2 over itself; the others share what is left of 1, to which all would add up had all rows length 1.
    """
    values, vectors = np.linalg.eigh(second)
    size = len(values)
    # Symmetric noise of this kind alone has its largest eigenvalue near sqrt(2 D) noise_scale; 5 % more is a margin.
    clear = values > 1.05 * math.sqrt(2 * size) * noise_scale
    levelled = np.where(clear, values - size * noise_scale**2 / 2 / np.where(clear, values, 1.0), 0.0)
    if not clear.all():
        levelled[~clear] = max(1 - levelled.sum(), 0.0) / (~clear).sum()
    return np.maximum(levelled, 1e-12), vectors
