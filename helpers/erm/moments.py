"""A private additive classifier from sums over the classes, each of which pays for what is asked about it alone.

What a linear classifier needs are the means of the classes and the second moments of the largest one. Here the features
are polynomials of private ranks (`helpers.erm.marginals`), clipped to length 1. Scores are sums of one function an
attribute, which can be looked at. Where a record's row is clipped, its sum is shortened with it, in prediction as in
the fit: else a value in a cell that was empty would decide alone, with a probability of 0 or 1.

**What is released**, each number with Gaussian noise: the size of every class; the marginals of the largest class, from
which rows are made; the sum of the rows of every class, and with it S = sum phi phi' of the largest class; and, where
released sizes say that it is worth it, the gradient of the logistic loss in every class. The largest class has many
records and the others few, so the noise of most releases is spread over many records, and what a rare record does not
take part in it need not pay for.

**What one record moves**, squared and over the variance of the noise at mu = 1. Let 1/p, 1/m, 1/a, 1/b, 1/r and 1/g be
the variances of the noise on a size, on a marginal, on an entry of the largest class's sum, on a diagonal entry of S
(half of it elsewhere, so that S has b in the Frobenius norm), on an entry of another class's sum and of a gradient.
A record more or less moves

    largest class:  p + m A + a + b + g          any other:  p + r + g s,

where A is the square that a record adds to the marginals, and s is 1 for two classes and 2 for more: the residual of a
record of the largest class is no longer than 1 (its entries are probabilities of the other classes), that of another
class than sqrt 2, and than 1 if there is one such class. Another record of the same class in its place moves at most

    largest class:  m R + (2 a + 2 b + a^2/(2 b)) + 4 g          any other:  4 r + 4 g s,

and no size. R is the square that it moves the marginals by. For the bracket let the two rows have lengths s, t <= 1 and
product u: it is a (s^2 + t^2 - 2 u) + b (s^4 + t^4 - 2 u^2), and -2 a u - 2 b u^2 is at most a^2/(2 b) whatever u is.
Where scores are released for a cut, their tree is one more table of marginals, which the class that they are of pays. A
record of one class in place of one of another moves what both classes lose and gain. `_precisions` keeps the dearest of
all these at 1, so that all releases together are one Gaussian mechanism of parameter mu, whatever is asked because of
earlier answers (`Ledger.classes`).

**What one person moves.** All of this is sums over rows. Where it is known which rows are of one person, each of their
m rows counts with weight 1/m: what the person adds is then a mean of what single rows add, and a mean of changes is no
longer than the longest of them, whatever the labels of these rows are. So a person is protected at the price of a row.
Where it is known only that nobody has more than k rows, they move k times as much, and the noise is k times as large.

Source: linear discriminants from sufficient statistics (Vu and Slavkovic 2009; Wang 2018 for the adaptive ridge), on
ranks; one Newton step from a first estimate (Le Cam 1956); the account by class is this project's.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from dp_accounting import dp_event
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from helpers.data.domain import Attribute, Domain
from helpers.erm.marginals import RankFeatures, marginals_move, noisy_marginals
from helpers.erm.partitions import gathered, is_dask, is_partitioned, table
from helpers.erm.risk import Block, Rows, Table, blocks_of
from helpers.predictions import ScorePredictions
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    ClassLedger,
    Ledger,
    Move,
    NeighboringRelation,
    PrivateMixin,
    gaussian_mu,
)
from helpers.validation import Check, any_value, choice, integer, label_codes, optional, real, validate_records

_N_BINS = 32
# Of the squared budget, under add/remove and under replace-one: what the sizes cost; the marginals; S, by its precision
# b; and how much less the marginals or a rare sum get where a class's scores are released too, for a stated recall or
# rate of alarms. What is left goes to the sums and, where it is taken, to the step.
_SIZES = {ADD_REMOVE: 0.08, REPLACE_ONE: 0.125}
_MARGINALS = {ADD_REMOVE: 0.40, REPLACE_ONE: 0.46}
_SECOND = {ADD_REMOVE: 0.25, REPLACE_ONE: 0.12}
_SCORES = 0.08
_STEP = 0.4  # of what is left
# A step is taken where every class's sum is this much longer than its noise, were all its rows alike and of length 1;
# under replace-one the noise is twice as long.
_WORTH_IT = 10.0
_LEAST = 2.0  # records that a class counts as having at least
_RIDGE = 15.0  # in units of the variance of an entry of a difference of means, over the square of what is signal in it
_CURVATURE = 0.3  # of the logistic loss, which is p (1 - p) <= 1/4 for two classes, times the number of classes
_GAP = (2.0, 0.7)  # what the distance of two class means is before it is seen: mean and standard deviation,
_GAPS = (0.5, 5.0)  # and what is believed of it, in standard deviations of the score
_WITHIN = 0.1  # least share of a score's second moment that is variance
_SHORT = 1e-100  # of squares: so that nothing is divided by zero
_SCORE_CELLS = 256
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
        Centred under the private marginal of the largest class; of the second class against the first, or of each of
        more than two against the largest.
    noise_scale : ndarray of the same shape
        Standard deviation of `log_odds` from the noise on class means and gradient; not from the choice of records.
    """

    name: str
    places: NDArray
    log_odds: NDArray[np.float64]
    noise_scale: NDArray[np.float64]


class Sizes(NamedTuple):
    """What is known about the numbers of records.

    Attributes
    ----------
    counts : ndarray (K,)
        Records of each class, as noisy as they came: a rare one can be below 0.
    noise_scale : float
        Standard deviation of the noise on one of `counts`.
    n_records : float
        The number of records, at least 1: the public one, or a noisy one under add/remove.
    """

    counts: NDArray[np.float64]
    noise_scale: float
    n_records: float


class PrivateMomentClassifier(PrivateMixin, ScorePredictions, ClassifierMixin, BaseEstimator):
    """Additive classification by private ranks and private moments, each class paying for itself: (epsilon, delta)-DP.

    `predict` says the class whose probability exceeds its share by most, which is best for balanced accuracy: the most
    likely class is hardly ever a rare one. Of two classes it can be asked for a recall or a rate of alarms instead.

    All that is released are noisy sums over the records of a class (`helpers.erm.moments`): sizes, marginals and second
    moments of the largest class, class means, and where it is worth it one gradient. The rest is post-processing:
    eigenvalues that are noise are levelled, the ridge grows with the noise, and so does the care in placing the
    threshold. Time and memory are linear in the number of records, which are read at most five times for each class.

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
    neighbouring : NeighboringRelation
        `REPLACE_ONE` (the number of records is public) or `ADD_REMOVE` (it is not).
    rows_per_person : int
        The most rows of one person, whom the guarantee protects, 1 or more; all noise grows with it. Not for rows whose
        persons are named in `fit`.
    recall : float, optional
        In (0, 1), for two classes: the share of the second class that is to be found. From a private distribution of
        its scores, for which its sum gets a little less.
    alarms : float, optional
        In (0, 1000), for two classes, instead of `recall`: of 1,000 records, how many are to be called the second
        class. From a private distribution of the largest class's scores, for which its marginals get a little less.
    random_state : None or int
        None, except to reproduce a result (`PrivateMixin`).

    Attributes
    ----------
    guarantee_ : helpers.privacy.Guarantee
    sizes_ : Sizes
    marginals_ : list of ndarray
        Shares of the records of the largest class in the cells of each attribute.
    features_ : RankFeatures
    coef_, intercept_ : ndarray (1, D) or (K, D), and (1,) or (K,)
        Log-odds, were all classes equally frequent, of the rows `features_.rows(X)` clipped to length 1: of the second
        of two classes against the first, or of each class against the largest.
    priors_ : ndarray (K,)
        Shares of the classes.
    cut_ : float
        Log-odds, were both classes equally frequent, above which the second is said; 0 without `recall` or `alarms`.
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
    Proof: here, of what one record moves (`helpers.erm.moments`, `helpers.erm.marginals`); composition is in the
    literature.

    Source: `helpers.erm.moments`; fully adaptive composition of Gaussian mechanisms by Smith and Thakurta 2022.

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
        "neighbouring": choice(ADD_REMOVE, REPLACE_ONE),
        "rows_per_person": integer(low=1, high=_MOST_ROWS),
        "recall": optional(real(low=0, high=1, inclusive="neither")),
        "alarms": optional(real(low=0, high=1000, inclusive="neither")),
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        domain=None,
        classes=(0, 1),
        neighbouring=REPLACE_ONE,
        rows_per_person=1,
        recall=None,
        alarms=None,
        random_state=None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.domain = domain
        self.classes = classes
        self.neighbouring = neighbouring
        self.rows_per_person = rows_per_person
        self.recall = recall
        self.alarms = alarms
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
        # Numbers are finite by now, and a level that the domain does not have stops the query that meets it. In columns
        # of any objects, and on a worker, where nothing may raise, records are looked at beforehand.
        if in_parts:
            make = partial(_allowed_rows, domain) if is_dask(X) else Rows
            records = table(X, y, domain.classes, make=make, fewest=fewest)
            key: tuple = () if self.random_state is None else (records.shape, records.fingerprint())
        else:
            if X.dtype == object:
                _allowed_rows(domain, X)
            codes = label_codes(y, np.array(domain.classes))
            n_persons, weights, key = len(X), None, (X, y)
            if groups is not None:
                groups = column_or_1d(groups)
                check_consistent_length(X, groups)
                _, persons, n_rows = np.unique(groups, return_inverse=True, return_counts=True)
                n_persons, weights, key = len(n_rows), 1 / n_rows[persons], (X, y, persons)
            sizes = np.bincount(codes, weights, minlength=len(domain.classes))
            records = Table(list(blocks_of([X], codes, weights)), (n_persons, X.shape[1]), sizes)
        ledger = Ledger(records, self.neighbouring, self._noise_generator(*key))
        ledger.assume(*records.assumes)
        self._learn(domain, ledger, "record" if groups is None and self.rows_per_person == 1 else "person")
        return self

    def _learn(self, domain: Domain, ledger: Ledger, unit: str) -> None:
        """Set what is fitted, from answers of the ledger alone."""
        k, relation, n_classes = self.rows_per_person, ledger.neighbouring, len(domain.classes)
        if k > 1:
            ledger.assume(f"no person has more than {k} rows")
        moved, budget = marginals_move(domain), gaussian_mu(self.epsilon, self.delta)
        ask = _Asked(ledger.classes(_OfClass, n_classes), budget, k)
        size = _SIZES[relation]

        self.classes_ = np.array(domain.classes)
        counts = np.array([ask(j, _OfClass.size, size, 0.0, size**-0.5) for j in range(n_classes)])
        noise_scale = size**-0.5 / ask.mu
        if relation is REPLACE_ONE:
            n_records = float(ledger.n_records())
            # The sum is public, so its noise is taken off the counts in equal parts: each keeps 1 - 1/K of its
            # variance.
            counts += (n_records - counts.sum()) / n_classes
            noise_scale *= math.sqrt(1 - 1 / n_classes)
        else:
            n_records = max(float(counts.sum()), 1.0)
        self.sizes_ = Sizes(counts, noise_scale, n_records)
        sizes = np.maximum(counts, _LEAST)
        self.priors_, largest = sizes / sizes.sum(), int(np.argmax(sizes))

        # The class whose scores place the cut: the second one for a recall, the one that most alarms are about for a
        # rate of alarms.
        scored = 1 if self.recall is not None else largest if self.alarms is not None else None
        shares = partial(_precisions, relation, moved, n_classes, None if scored is None else scored == largest)
        noise_multiplier = 1 / (budget * math.sqrt(shares(step=False).marginals) * moved.added)
        self.marginals_ = noisy_marginals(ask.ledgers[largest], domain, noise_multiplier, sizes[largest], k)
        self.features_ = RankFeatures(domain, self.marginals_)
        width = RankFeatures.count(domain)
        # How much longer the sum of a class would be than its noise: whether a step is worth its share of the budget
        # depends on released sizes alone.
        reach = ask.mu * np.delete(sizes, largest) / math.sqrt(width) / (2 if relation is REPLACE_ONE else 1)
        is_worth_it = bool((reach >= _WORTH_IT).all())
        precision = shares(step=is_worth_it)
        moments = _noisy_moments(ask, self.features_, precision, sizes, largest)
        found = _Discriminants.of(moments)
        if is_worth_it:
            found = found.stepped(*_noisy_slopes(ask, self.features_, precision, found))
        self._keep(found)
        self.cut_ = 0.0 if scored is None else self._cut(found, ask, precision.scores, scored)
        source = "fully adaptive composition of Gaussian mechanisms (Smith and Thakurta 2022)"
        schema = f"domain public (bins, categories, set of labels): {domain.basis}"
        event = dp_event.GaussianDpEvent(1 / budget)
        given = ledger.guarantee(self.epsilon, self.delta, source=source, assumes=(schema,), bound=event)
        self.guarantee_ = replace(given, unit=unit)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-odds (n,) of the second of two classes, less `cut_`: `predict` says it above 0; or (n, K) of each class
        against the largest. Both are log-odds as if all classes were equally frequent."""
        odds = self._log_odds(X)
        return odds[:, 0] - self.cut_ if len(self.classes_) == 2 else odds

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities (n, K) of the classes if scores are normal in each, with one variance."""
        odds = self._log_odds(X)
        if len(self.classes_) == 2:
            rare = expit(odds[:, 0] + logit(self.priors_[1]))
            return np.column_stack([1 - rare, rare])
        return softmax(odds + np.log(self.priors_), axis=1)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        classes: Any = self.domain.classes if isinstance(self.domain, Domain) else self.classes
        tags.classifier_tags.multi_class = np.size(classes) > 2
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        domain = self._public_domain()
        for name in ("recall", "alarms"):
            if getattr(self, name) is not None and len(domain.classes) != 2:
                raise ValueError(f"{name} must be None for {len(domain.classes)} classes, got {getattr(self, name)!r}")
        if self.recall is not None and self.alarms is not None:
            raise ValueError(f"alarms must be None where recall is given, got {self.alarms!r}")

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
        """Log-odds (n, 1) of the second class, or (n, K)."""
        check_is_fitted(self)
        dtype = None if isinstance(self.domain, Domain) else np.float64
        checked = validate_data(self, X, dtype=dtype, reset=False)
        return np.concatenate([rows @ self.coef_.T for rows in _clipped(self.features_, checked)]) + self.intercept_

    def _keep(self, found: "_Discriminants") -> None:
        """Set the coefficients and the shapes."""
        coefs, intercepts, noise_scales = found.coefs, found.intercepts, found.noise_scales
        if len(self.classes_) == 2:
            sign = 1.0 if found.largest == 0 else -1.0
            coefs, intercepts = sign * coefs, sign * intercepts
        else:
            coefs, intercepts, noise_scales = (
                np.insert(part, found.largest, 0.0, axis=0) for part in (coefs, intercepts, noise_scales)
            )
        self.coef_, self.intercept_ = coefs, intercepts
        self.shapes_: list[Shape] = []
        start, features, vectors = 0, self.features_, found.moments.vectors
        for attribute, curve, places in zip(features.domain.attributes, features.tables, features.places, strict=True):
            stop = start + curve.shape[1]
            # The coefficients are `vectors` times numbers with the noise's `noise_scales`.
            on_values = curve @ vectors[start:stop]
            blur = np.array([np.sqrt((on_values * one) ** 2 @ np.ones(len(one))) for one in noise_scales])
            self.shapes_.append(Shape(attribute.name, places, coefs[:, start:stop] @ curve.T, blur))
            start = stop

    def _cut(self, found: "_Discriminants", ask: "_Asked", precision: float, scored: int) -> float:
        """Log-odds above which the second of two classes is to be said, for the stated recall or rate of alarms.

        The scores of class `scored` have a private distribution, in cells that are equally full if they are normal, as
        those of the other class are taken to be. What of it is noise is shrunk towards the normal law.
        """
        (coef,), (intercept,), largest = found.coefs, found.intercepts, found.largest
        spread = found.spreads[0]
        means = np.full(2, found.common[0])
        means[1 - largest] += found.gaps[0]
        odds = np.linspace(means.min() - 8 * spread, means.max() + 8 * spread, 4001)
        below = ndtr((odds - means[:, None]) / spread)  # shares of both classes
        domain = _score_domain()
        noise_multiplier = 1 / (ask.budget * math.sqrt(precision) * marginals_move(domain).added)
        places = partial(_places, self.features_, coef, intercept, means[scored], spread)
        (shares,) = noisy_marginals(
            ask.ledgers[scored], domain, noise_multiplier, found.moments.sizes[scored], ask.n_rows, of=places
        )
        cells = np.linspace(0, 1, _SCORE_CELLS + 1)
        below[scored] = np.interp(below[scored], cells, np.append(0.0, np.cumsum(shares)))
        if largest == 1:  # these are log-odds of the first class, and what is below is said to be the second
            odds, above = -odds[::-1], below[:, ::-1]
        else:
            above = 1 - below
        if self.recall is not None:
            return float(np.interp(-self.recall, -above[1], odds))
        return float(np.interp(-self.alarms / 1000, -(self.priors_ @ above), odds))


class _OfClass(NamedTuple):
    """The records of one class of a table."""

    table: Table
    number: int

    def size(self) -> Any:
        return self.table.sizes[self.number]

    def total(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """As of the table."""
        return self.table.total(_only, self.number, function, *arguments)


def _only(number, function, *arguments):
    """function(*arguments, block) of the block's records of one class; the block is the last argument."""
    block = arguments[-1]
    here = block.codes == number
    weights = None if block.weights is None else block.weights[here]
    return function(*arguments[:-1], Block(Rows(block.rows.base[here]), None, weights))


class _Asked(NamedTuple):
    """Releases about the classes, at a Gaussian budget for persons with at most `n_rows` rows each."""

    ledgers: list[ClassLedger]
    budget: float
    n_rows: int

    @property
    def mu(self) -> float:
        """The budget as seen by one row: k rows move k times as much."""
        return self.budget / self.n_rows

    def __call__(self, j: int, query: Callable[[Any], Any], added: float, replaced: float, units: Any) -> Any:
        """A query about class j with noise of standard deviation units / mu.

        `added` and `replaced` are squares of what a row more, or another row of the class, moves it in these units:
        shares of the squared budget.
        """
        move = Move(self.n_rows * math.sqrt(added), self.n_rows * math.sqrt(replaced))
        return self.ledgers[j].gaussian(query, move, 1 / (self.budget * math.sqrt(added)), units)


class _Precisions(NamedTuple):
    """p, m, h, b, a, r and the two g of the module's docstring, one over a variance at mu = 1 each; h is a score's."""

    size: float
    marginals: float
    scores: float
    second: float
    common: float
    rare: float
    common_slope: float
    rare_slope: float


def _precisions(
    relation: NeighboringRelation, moved: Move, n_classes: int, scored: bool | None = None, *, step: bool
) -> _Precisions:
    """The budget, divided up.

    Parameters
    ----------
    relation : NeighboringRelation
    moved : Move
        Of the marginals.
    n_classes : int
    scored : bool, optional
        Whether scores are asked of the largest class, which pays with its marginals, or of another, which pays with its
        sum; None: of no class.
    step : bool
        Whether there is a step.

    >>> _precisions(ADD_REMOVE, Move(math.sqrt(5), math.sqrt(12)), 2, step=False).rare
    0.92
    """
    size, b = _SIZES[relation], _SECOND[relation]
    marginals = _MARGINALS[relation] - (_SCORES if scored else 0.0)
    square, taken = _residual(n_classes) ** 2, _STEP * step
    by_scores = marginals_move(_score_domain())
    if relation is not REPLACE_ONE:
        common, rare = 1 - size - _MARGINALS[relation] - b, 1 - size - (_SCORES if scored is False else 0.0)
        return _Precisions(
            size=size,
            marginals=marginals / moved.added**2,
            scores=_SCORES / by_scores.added**2,
            second=b,
            common=(1 - taken) * common,
            rare=(1 - taken) * rare,
            common_slope=taken * common,
            rare_slope=taken * rare / square,
        )
    common, rare = 1 - _MARGINALS[relation] - 2 * b, 1 - (_SCORES if scored is False else 0.0)
    return _Precisions(
        size=size,
        marginals=marginals / moved.replaced**2,
        scores=_SCORES / by_scores.replaced**2,
        second=b,
        # 2 a + a^2/(2 b) is what is left for the sum.
        common=2 * b * (math.sqrt(1 + (1 - taken) * common / (2 * b)) - 1),
        rare=(1 - taken) * rare / 4,
        common_slope=taken * common / 4,
        rare_slope=taken * rare / (4 * square),
    )


def _residual(n_classes: int) -> float:
    """Longest residual of a record of a class that is not the largest: see the module's docstring."""
    return 1.0 if n_classes == 2 else math.sqrt(2)


def _score_domain() -> Domain:
    """Places of scores among those of a normal law, which are equally full if the scores have that law."""
    return Domain([Attribute.real("score", 0, 0.0, 1.0, n_bins=_SCORE_CELLS)])


class _Moments(NamedTuple):
    """What was released of the classes' rows.

    Attributes
    ----------
    sizes : ndarray (K,)
    largest : int
    means : ndarray (K, D)
        Noisy with standard deviation `noise_scales` (K,).
    values : ndarray (D,), vectors : ndarray (D, D)
        Eigenvalues, cleaned of noise, and eigenvectors of the largest class's mean of phi phi'.
    """

    sizes: NDArray[np.float64]
    largest: int
    means: NDArray[np.float64]
    noise_scales: NDArray[np.float64]
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]


def _noisy_moments(ask, features, precision, sizes, largest) -> _Moments:
    """The sums of all classes and the second moments of the largest."""
    width = RankFeatures.count(features.domain)
    above = np.triu_indices(width, 1)
    a, b, r = precision.common, precision.second, precision.rare

    def sums(records):
        return np.zeros(width) + records.total(_sums, features)

    def sums_and_second(records):
        found = np.zeros((1 + width, width)) + records.total(_sums_and_second, features)
        return found[0], found[1:].diagonal(), found[1:][above]

    means, units = np.zeros((len(sizes), width)), np.full(len(sizes), r**-0.5)
    units[largest] = a**-0.5
    for j in range(len(sizes)):
        if j != largest:
            means[j] = ask(j, sums, r, 4 * r, units[j])
    means[largest], squares, products = ask(
        largest, sums_and_second, a + b, 2 * a + 2 * b + a**2 / (2 * b), (units[largest], b**-0.5, (2 * b) ** -0.5)
    )
    second = np.diag(squares)
    second[above] = products
    second.T[above] = products
    values, vectors = _cleaned(second / sizes[largest], b**-0.5 / (ask.mu * sizes[largest]))
    return _Moments(sizes, largest, means / sizes[:, None], units / (ask.mu * sizes), values, vectors)


def _noisy_slopes(ask, features, precision, found):
    """Gradients (K - 1, D) of the mean over all classes of their mean logistic losses, and their noise's scale."""
    sizes, largest, n_classes = found.moments.sizes, found.moments.largest, len(found.moments.sizes)
    mean, noise = np.zeros(found.coefs.shape), 0.0
    for j, size in enumerate(sizes):
        g = precision.common_slope if j == largest else precision.rare_slope
        square = 1.0 if j == largest else _residual(n_classes) ** 2
        own = None if j == largest else j - (j > largest)  # its row among the coefficients

        def total(records, own=own):
            return np.zeros(found.coefs.shape) + records.total(_slopes, features, found.coefs, found.intercepts, own)

        mean += ask(j, total, g * square, 4 * g * square, g**-0.5) / (n_classes * size)
        noise += 1 / (g * (ask.mu * n_classes * size) ** 2)
    return mean, math.sqrt(noise)


class _Discriminants(NamedTuple):
    """Log-odds of every other class against the largest, were all equally frequent, one row a class.

    Attributes
    ----------
    moments : _Moments
    coefs : ndarray (K - 1, D), intercepts : ndarray (K - 1,)
    noise_scales : ndarray (K - 1, D)
        Standard deviations of the coefficients along `moments.vectors` that the noise causes.
    common, gaps, spreads : ndarray (K - 1,)
        Mean of the log-odds in the largest class, how far that of the other class is above it, and the standard
        deviation in the largest class.
    corrections : ndarray (K - 1,)
        What noise and sampling in the coefficients add to the distance as it is measured.
    """

    moments: _Moments
    coefs: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    noise_scales: NDArray[np.float64]
    common: NDArray[np.float64]
    gaps: NDArray[np.float64]
    spreads: NDArray[np.float64]
    corrections: NDArray[np.float64]

    @property
    def largest(self) -> int:
        return self.moments.largest

    @classmethod
    def of(cls, moments: _Moments) -> "_Discriminants":
        """Linear discriminants, whose ridge and distances take noise and sampling into account."""
        sizes, largest, means, noise_scales, values, vectors = moments
        width, found = len(values), []
        centre = _shrunk(means[largest], noise_scales[largest])
        for j in range(len(sizes)):
            if j == largest:
                continue
            apart = vectors.T @ (means[j] - means[largest])
            noise = float(noise_scales[j] ** 2 + noise_scales[largest] ** 2)
            # Of an entry of `apart`: the noise, and what other records of these classes would change.
            variances = noise + values * (1 / sizes[j] + 1 / sizes[largest])
            # The squared length of the noise has the standard deviation width * noise * sqrt(2 / width). That of the
            # signal is not taken to be below half of it.
            signal = max(apart @ apart - variances.sum(), noise * math.sqrt(width / 2), _SHORT)
            inverse = 1 / (values + _RIDGE * variances.mean() / signal)
            coef = inverse * apart
            middle = float(centre @ (vectors @ coef))
            variance = _variance(coef, values, middle)
            spread = math.sqrt(variance)
            # The distance of the class means of the score, less what noise and sampling in the coefficients add to it,
            # in standard deviations of the score; and `doubt`, its variance by the noise alone, in the same units. The
            # less that is, the more the distance is believed, against what distances are before one is seen.
            correction = float(variances @ inverse)
            gap, doubt = (apart @ coef - correction) / spread, 2 * noise**2 * float(inverse @ inverse)
            doubt = max(4 * noise * float(coef @ coef) - doubt, doubt) / variance
            mean, deviation = _GAP
            gap = (gap * deviation**2 + mean * doubt) / (deviation**2 + doubt)
            gap = float(np.clip(gap, *_GAPS))
            # Two normal laws of one variance have the log-odds gap/spread times the score, and 0 half-way.
            slope = gap / spread
            found.append(
                (
                    slope * (vectors @ coef),
                    -slope * (middle + gap * spread / 2),
                    slope * math.sqrt(noise) * inverse,
                    -(gap**2) / 2,  # mean of the log-odds in the largest class,
                    gap**2,  # how far that of the other class is above it,
                    gap,  # and their standard deviation
                    slope * correction,
                )
            )
        return cls(moments, *map(np.array, zip(*found, strict=True)))

    def stepped(self, slopes: NDArray, noise_scale: float) -> "_Discriminants":
        """After one Newton step against gradients (K - 1, D) with noise, as far as they stand out of it."""
        sizes, largest, means, _, values, vectors = self.moments
        centre = _shrunk(means[largest], self.moments.noise_scales[largest])
        curvatures, found = _CURVATURE / len(sizes) * values, []
        others = np.delete(np.arange(len(sizes)), largest)
        for j, slope, coef, intercept, blur, correction in zip(
            others, slopes @ vectors, self.coefs, self.intercepts, self.noise_scales, self.corrections, strict=True
        ):
            # Of an entry of the gradient: the noise, and what other records would change, which of a logistic loss is
            # its curvature over the number of records.
            variances = noise_scale**2 + curvatures * (1 / sizes).sum() / len(sizes) ** 2
            # The coefficients that are missing have a normal prior, whose variance makes the gradient as long as it is.
            signal = max(slope @ slope - variances.sum(), noise_scale**2 * math.sqrt(len(slope) / 8), _SHORT)
            prior = signal / (curvatures @ curvatures)
            factors = curvatures / (curvatures**2 + variances / prior)
            coef = coef - vectors @ (factors * slope)
            middle = float(centre @ coef)
            spread = math.sqrt(_variance(vectors.T @ coef, values, middle))
            gap = float((means[j] - means[largest]) @ coef) - correction
            gap = spread * float(np.clip(gap / spread, *_GAPS))
            # The step takes what it moves out of the coefficients' noise, and brings its own.
            blur = np.hypot((1 - factors * curvatures) * blur, factors * noise_scale)
            found.append((coef, intercept, blur, middle + intercept, gap, spread, correction))
        return _Discriminants(self.moments, *map(np.array, zip(*found, strict=True)))


def _shrunk(mean: NDArray, noise_scale: float) -> NDArray[np.float64]:
    """A noisy mean, as much shorter as its length is noise (James and Stein 1961)."""
    square = float(mean @ mean)
    return mean * max(1 - len(mean) * noise_scale**2 / square, 0.0) if square > 0 else mean


def _variance(coef: NDArray, values: NDArray, mean: float) -> float:
    """Variance of a score in the largest class; `coef` is along the eigenvectors, `mean` the score's."""
    square = float(coef**2 @ values)
    return max(square - mean**2, _WITHIN * square, _SHORT)


def _allowed_rows(domain, X):
    """Records as rows, if the domain has them: else ValueError."""
    for attribute in domain.attributes:
        attribute.encode(X)
    return Rows(X)


def _sums(features, block):
    """Sum (D,) of the rows."""
    return sum(weights @ rows for rows, weights in _weighted(features, block))


def _sums_and_second(features, block):
    """The sum of the rows, and below it that of phi phi'."""
    return sum(
        np.vstack([weights @ rows, rows.T @ (weights[:, None] * rows)]) for rows, weights in _weighted(features, block)
    )


def _slopes(features, coefs, intercepts, own, block):
    """Sum (K - 1, D) of the gradients of the records' logistic losses; they are of class `own` of K - 1, or None."""
    total = np.zeros(coefs.shape)
    for rows, weights in _weighted(features, block):
        odds = rows @ coefs.T + intercepts
        # The largest class, whose log-odds are 0, has no row of its own.
        residuals = softmax(np.column_stack([odds, np.zeros(len(odds))]), axis=1)[:, :-1]
        if own is not None:
            residuals[:, own] -= 1
        total += (weights[:, None] * residuals).T @ rows
    return total


def _places(features, coef, intercept, mean, spread, X):
    """Places (n, 1) of the records' log-odds among those of a normal law."""
    odds = np.concatenate([rows @ coef for rows in _clipped(features, X)]) + intercept
    return ndtr((odds - mean) / spread)[:, None]


def _weighted(features, block):
    """Rows of a block, some at a time, and their weights."""
    start = 0
    for rows in _clipped(features, block.rows.base):
        weights = np.ones(len(rows)) if block.weights is None else block.weights[start : start + len(rows)]
        start += len(rows)
        yield rows, weights


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
