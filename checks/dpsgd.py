"""Weighted DP-SGD as "Differential Privacy Under Class Imbalance" prints it, and DP-SGD as the slides print it.

`algorithm_4` is the algorithm to the letter. With class weights computed from the labels one record moves the gradients
of all others, in every step and whether or not it is drawn: `WeightLeak` (add/remove) and `RelabelledRecord`
(replace-one) have the exact privacy loss of such runs, `train_as_printed` runs them. Then the printed and the corrected
bound on a minibatch average, and the slides' noise with what a threshold test makes of it. What a practitioner should
use is `helpers.neural.train` with public weights.
"""

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammaln, log_ndtr, ndtr
from scipy.stats import binom

from helpers.erm.calibration import class_weights
from helpers.neural import Schedule, Trained, train
from helpers.privacy import PrivacyLeakWarning, furthest

_FALSE = "class weights public (false: they are computed from the labels)"
_LARGEST_EPSILON = 25.0  # beyond it, rounding in the densities could show
_ROUNDING = 1e-13  # of the largest probability; taken off every likelihood ratio
_TAIL = 14.0  # standard deviations to either side: nothing is left outside
_GRID = 256  # points to a standard deviation of the noise
_BLOCKS = 32  # of batch sizes
_COUNTS = 200  # numbers of steps that a threshold test tries


# Algorithm 4


def algorithm_4(
    X: ArrayLike,
    y: ArrayLike,
    *,
    learning_rate: float,
    clip_norm: float,
    minibatch: int,
    sample_rate: float,
    noise_multiplier: float,
    steps: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """All models of Algorithm 4 as printed, for logistic regression without intercept that starts at 0.

    Every record is drawn with probability q, and the batch is cut into minibatches in the order of the records. Each
    gradient is weighted by Equation 7, clipped, and gets noise *of its own*; their sum over the minibatch size B
    is the step, also where fewer than B records are left. An empty batch makes no step.

    Parameters
    ----------
    X : array (n, p)
    y : array (n,)
        0 or 1.
    learning_rate, clip_norm : float
        eta and C, > 0.
    minibatch : int
        B, at least 1.
    sample_rate : float
        q in (0, 1].
    noise_multiplier : float
        sigma > 0, in units of C.
    steps : int
        T, at least 1.
    rng : numpy.random.Generator

    Returns
    -------
    array (T + 1, p)
        The start and the model after each batch. **Not private** under add/remove: how far a step goes tells how many
        records were drawn.

    Source: Rosenblatt et al. 2025, Algorithm 4, lines 3 to 11, with its gradient of a linear model.

    >>> no_records = np.zeros((0, 2)), np.zeros(0, dtype=int)
    >>> rates = {"learning_rate": 1.0, "clip_norm": 1.0, "sample_rate": 1.0, "noise_multiplier": 1.0}
    >>> algorithm_4(*no_records, minibatch=8, steps=2, rng=np.random.default_rng(0), **rates).tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    X, y = np.asarray(X, dtype=float), np.asarray(y)
    weights = class_weights(np.maximum(np.bincount(y, minlength=2), 1))[y]
    models = np.zeros((steps + 1, X.shape[1]))
    for t in range(steps):
        theta = models[t].copy()
        batch = np.flatnonzero(rng.random(len(X)) < sample_rate)
        for first in range(0, len(batch), minibatch):
            rows = batch[first : first + minibatch]
            gradients = (weights[rows] * (expit(X[rows] @ theta) - y[rows]))[:, None] * X[rows]
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            clipped = gradients / np.maximum(norms / clip_norm, 1.0)
            noisy = clipped + noise_multiplier * clip_norm * rng.standard_normal(clipped.shape)
            theta -= learning_rate * noisy.sum(axis=0) / minibatch
        models[t + 1] = theta
    return models


@dataclass(frozen=True)
class WeightLeak:
    """Algorithm 4 on two explicit data sets: n0 majority and n1 minority records, and one minority record more.

    The model is logistic regression on one feature, started at 0 with a small rate, so that gradients stay what they
    are at the start. Majority records have x > 0, the new one -x, which gives all of them the same gradient, of length
    `gradient_norm` before its weight; the minority records that are there have x = 0 and gradient 0. Each gradient
    is multiplied by its weight (Equation 7, from the labels), clipped to 1, added up over a Poisson sample, and
    released with Gaussian noise. Neighbours under add/remove.

    Parameters
    ----------
    n_majority, n_minority : int
        Without the new record.
    sample_rate : float
        q in (0, 1].
    noise_multiplier : float
        sigma > 0, noise of a sum in units of the clipping norm.
    steps : int
        T, at least 1.
    gradient_norm : float
        Unweighted, in units of the clipping norm, > 0. Up to 1, clipping never does anything (Lemma 19's assumption).

    Source: Rosenblatt et al. 2025, Algorithm 4, Equation 7 and Proposition 6.

    >>> run = WeightLeak(9980, 20, sample_rate=0.01, noise_multiplier=2.0, steps=2000)
    >>> [round(run.claimed_epsilon(1e-5), 2), round(run.exact_epsilon(1e-5), 2), round(run.upper_epsilon(1e-5), 2)]
    [0.9, 1.77, 1.83]
    """

    n_majority: int
    n_minority: int
    sample_rate: float
    noise_multiplier: float
    steps: int
    gradient_norm: float = 1.0

    @property
    def schedule(self) -> Schedule:
        """The run as the trainer and the accountants know it; the clipping norm is 1."""
        return Schedule.constant(
            self.steps, sample_rate=self.sample_rate, noise_multiplier=self.noise_multiplier, clip_norm=1.0
        )

    def claimed_epsilon(self, delta: float) -> float:
        """What Proposition 6 promises at `delta`, for all models of the run: that of DP-SGD without weights."""
        return self.schedule.epsilon(delta)

    def exact_epsilon(self, delta: float) -> float:
        """Exact epsilon at `delta` of the *last* model of these two runs, by Fourier inversion of its densities.

        Five digits; it is never more than 25, beyond which rounding could raise it. `delta` in (0, 1), far above 1e-12.
        """
        without, with_record = self._probabilities()
        floor = _ROUNDING * max(without.max(), with_record.max())

        def enough(epsilon):
            factor = math.exp(epsilon)
            more = np.maximum(with_record - factor * (without + floor), 0.0).sum()
            less = np.maximum(without - factor * (with_record + floor), 0.0).sum()
            return max(more, less) <= delta

        return furthest(enough, _LARGEST_EPSILON, 0.0, relative=1e-9)

    def upper_epsilon(self, delta: float, *, interval: float = 1e-3) -> float:
        """Epsilon that *no* such neighbours with these counts exceed, for all models of the run.

        Gradients may be anything up to `gradient_norm`. Given that K of the other records are drawn, their sum moves by
        at most K times what the weight of one moves it, and the record that changes adds its own if it is drawn. The
        worst is that all point in one direction; K is given away.

        Parameters
        ----------
        delta : float
            In (0, 1).
        interval : float
            Discretisation of the privacy loss in nats.

        Source: dominating pairs of mixtures of Gaussians (Choquette-Choo et al. 2024), composed by dp-accounting's
        connect-the-dots (Doroshenko et al. 2022).
        """
        n, q = self.n_majority + self.n_minority, self.sample_rate
        # Batch sizes in blocks, each read as its largest; what lies above all of them counts as a broken promise.
        spread = math.sqrt(n * q * (1 - q))
        first, last = max(math.floor(n * q - 4 * spread), 0), min(math.ceil(n * q + 9 * spread + 20 * (q < 1)), n)
        sizes = np.unique(np.linspace(first, last, _BLOCKS).astype(int))
        chances = np.diff(binom.cdf(sizes, n, q), prepend=0.0)
        each, own, left = self._largest_moves()
        farthest = (sizes[-1] * each + own + left) / self._noise
        end = math.ceil(farthest * (_TAIL + farthest) / interval) + 5
        dots = np.arange(-end, end + 1)
        curves = np.full((2, len(dots)), float(binom.sf(last, n, q)))
        for size, chance in zip(sizes, chances, strict=True):
            curves += chance * _mixture_deltas(size * each, own, left, q, self._noise, dots * interval)
        pmfs = [create_pmf_pessimistic_connect_dots(interval, dots, np.minimum(curve, 1.0)) for curve in curves]
        composed = PrivacyLossDistribution(*pmfs).self_compose(self.steps)
        return float(composed.get_epsilon_for_delta(delta))

    def draw(self, rng: np.random.Generator, runs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums of all noisy steps of `runs` simulated runs on the first data set and on its neighbour.

        The last model is its start minus the rate times such a sum.
        """
        noise = math.sqrt(self.steps) * self._noise
        sums = []
        for terms in self._terms():
            drawn = sum(pull * rng.binomial(count, self.sample_rate, runs) for count, pull in terms)
            sums.append(drawn + rng.normal(0.0, noise, runs))
        return sums[0], sums[1]

    @property
    def _noise(self) -> float:
        """Standard deviation of a step's noise, in units of the clipping norm."""
        return self.noise_multiplier

    def _terms(self) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
        """Without and with the new record: chances to be drawn over all steps, and what each draw adds to the sum."""
        majority, steps = self.n_majority * self.steps, self.steps
        before, _ = self._pulls(self.n_minority)
        after, own = self._pulls(self.n_minority + 1)
        return [(majority, before)], [(majority, after), (steps, own)]

    def _pulls(self, n_minority: int) -> NDArray[np.float64]:
        return np.minimum(class_weights([self.n_majority, n_minority]) * self.gradient_norm, 1.0)

    def _largest_moves(self) -> tuple[float, float, float]:
        """At most: move of another record's clipped gradient, pull of the record that comes, of the one that goes."""
        n = self.n_majority + self.n_minority
        moved = self.gradient_norm * self.n_majority / (n * (n + 1))  # all weights move by this, up or down
        # 1 - w/w' of the majority and 1 - w'/w of the minority, of which clipping leaves at most that.
        clipped = max(self.n_majority / (n * (self.n_minority + 1)), 1 / (n + 1))
        return min(moved, clipped), float(self._pulls(self.n_minority + 1)[1]), 0.0

    def _probabilities(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The two laws of the sum of all steps on one fine grid."""
        q, both = self.sample_rate, self._terms()
        noise = math.sqrt(self.steps) * self._noise
        means = [sum(count * q * pull for count, pull in terms) for terms in both]
        variances = [noise**2 + sum(count * q * (1 - q) * pull**2 for count, pull in terms) for terms in both]
        step = noise / _GRID
        width = 2 * _TAIL * math.sqrt(max(variances)) + abs(means[1] - means[0])
        size = 2 ** math.ceil(math.log2(width / step))
        start = (sum(means) - size * step) / 2
        t = 2 * np.pi * np.fft.fftfreq(size, step)
        laws = []
        for terms in both:
            exponent = -((noise * t) ** 2) / 2 - 1j * t * start
            for count, pull in terms:
                exponent = exponent + count * _log_bernoulli(q, t * pull)
            laws.append(np.fft.fft(np.exp(exponent)).real / size)
        return laws[0], laws[1]


@dataclass(frozen=True)
class RelabelledRecord(WeightLeak):
    """The same in the relation of the paper, with the noise of its proof: replace-one, sensitivity 2 C.

    One of the n0 majority records becomes a minority record. Its gradient points against those of the other majority
    records before, and along with them after. `noise_multiplier` is over the sensitivity 2 C, so that a step has the
    noise 2 sigma, and the claim for a given sigma is the same as in `WeightLeak`.

    Source: Rosenblatt et al. 2025, Definition 1 and the conference version's proof of Proposition 6.

    >>> own = [RelabelledRecord(9980, 20, 0.01, 2.0, 2000, gradient_norm=length) for length in (1.0, 5.0)]
    >>> [round(run.exact_epsilon(1e-5), 2) for run in own], round(own[0].claimed_epsilon(1e-5), 2)
    ([0.82, 2.78], 0.9)
    >>> round(own[0].upper_epsilon(1e-5), 2)
    0.84
    """

    @property
    def _noise(self) -> float:
        return 2 * self.noise_multiplier

    def _terms(self) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
        others, steps = (self.n_majority - 1) * self.steps, self.steps
        (before, _), (after, joined) = self._both_pulls()
        return [(others, before), (steps, -before)], [(others, after), (steps, joined)]

    def _largest_moves(self) -> tuple[float, float, float]:
        (left, _), (_, joined) = self._both_pulls()
        moved = self.gradient_norm / (self.n_majority + self.n_minority)
        # 1 - w/w' of the majority and 1 - w'/w of the minority, of which clipping leaves at most that.
        clipped = max(1 / (self.n_minority + 1), 1 / self.n_majority)
        return min(moved, clipped), float(joined), float(left)

    def _both_pulls(self) -> NDArray[np.float64]:
        """Clipped gradients of a majority and a minority record, before (first row) and after the change."""
        counts = (self.n_majority, self.n_minority), (self.n_majority - 1, self.n_minority + 1)
        return np.minimum([class_weights(pair) * self.gradient_norm for pair in counts], 1.0)


def _log_bernoulli(q: float, t: NDArray) -> NDArray[np.complex128]:
    """log(1 - q + q e^(it)), to the last digit also where it is close to 0: it is multiplied by millions."""
    half = np.sin(t / 2) ** 2
    return 0.5 * np.log1p(-4 * q * (1 - q) * half) + 1j * np.arctan2(q * np.sin(t), 1 - 2 * q * half)


def _mixture_deltas(
    shift: float, own: float, left: float, q: float, sigma: float, epsilons: NDArray
) -> NDArray[np.float64]:
    """delta(epsilon) of (1 - q) N(shift) + q N(shift + own) against (1 - q) N(0) + q N(-left), and the reverse.

    Rows of (2, len(epsilons)). The likelihood ratio grows with x, so the best events are half-lines, with one end for
    each epsilon.
    """
    after, before = np.array([[shift], [shift + own]]), np.array([[0.0], [-left]])
    weights = np.array([[1 - q], [q]])

    def log_density(means, x):  # over that of N(0)
        with np.errstate(divide="ignore"):
            return np.logaddexp(*(np.log(weights) + (means * x - means**2 / 2) / sigma**2))

    # Where the log ratio is this large: near the best event, delta does not depend on it to first order.
    grid = np.linspace(-_TAIL * sigma - left, _TAIL * sigma + shift + own, 20_001)
    losses = log_density(after, grid) - log_density(before, grid)

    def tails(sign, end):  # of both mixtures
        return [np.sum(weights * ndtr(sign * (means - end) / sigma), axis=0) for means in (after, before)]

    above, below = (tails(sign, np.interp(sign * epsilons, losses, grid)) for sign in (1, -1))
    factor = np.exp(epsilons)
    curves = np.array([above[0] - factor * above[1], below[1] - factor * below[0]])
    return np.clip(curves, np.maximum(0.0, -np.expm1(epsilons)), 1.0)


def train_as_printed(model, X: ArrayLike, y: ArrayLike, schedule: Schedule, *, delta: float, **options) -> Trained:
    """`helpers.neural.train` with the class weights of Equation 7, from the labels themselves.

    The guarantee is Proposition 6's, with the false assumption that it needs.

    Parameters
    ----------
    model, X, y, schedule, delta, options
        As in `helpers.neural.train`; labels are 0 and 1, and `options` has no `class_weight`.

    Warns
    -----
    PrivacyLeakWarning
        Always.

    Source: Rosenblatt et al. 2025, Algorithm 4, with noise on the sum.
    """
    warnings.warn(
        "class weights are computed from the private labels: one record moves all gradients",
        PrivacyLeakWarning,
        stacklevel=2,
    )
    weights = class_weights(np.bincount(np.asarray(y), minlength=2))
    trained = train(model, X, y, schedule, delta=delta, class_weight=weights, **options)
    assumes = (*(a for a in trained.guarantee.assumes if a != "class weights public"), _FALSE)
    return replace(trained, guarantee=replace(trained.guarantee, assumes=assumes))


# Lemma 19


def weighted_average(
    gradients: ArrayLike, labels: ArrayLike, batch: ArrayLike, clip_norm: float
) -> NDArray[np.float64]:
    """Average over a minibatch of gradients that are weighted by Equation 7 and then clipped, as in Algorithm 4.

    Parameters
    ----------
    gradients : array (n, p)
        Of all records, before weights.
    labels : array (n,)
        0 or 1, all of them: the weights depend on records outside the batch.
    batch : array of int (B,)
        Positions in the minibatch.
    clip_norm : float
        C > 0; infinity for no clipping.

    Returns
    -------
    array (p,)

    Source: Rosenblatt et al. 2025, Algorithm 4, lines 7 and 8.

    >>> weighted_average([[1.0], [1.0], [-1.0]], [0, 0, 1], [0, 2], 1.0).round(4).tolist()
    [-0.1667]
    """
    labels, batch = np.asarray(labels), np.asarray(batch)
    weights = class_weights(np.bincount(labels, minlength=2))[labels[batch]]
    rows = weights[:, None] * np.asarray(gradients, dtype=float)[batch]
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.mean(rows / np.maximum(norms / clip_norm, 1.0), axis=0)


def minibatch_move(
    gradients: ArrayLike, labels: ArrayLike, record: int, new_gradient: ArrayLike, batch: ArrayLike, clip_norm: float
) -> float:
    """How far the `weighted_average` of a batch moves when one record's label flips and its gradient is replaced.

    Parameters
    ----------
    record : int
        Position of the record, in the batch or not.
    new_gradient : array (p,)
        Of the record that takes its place, before its weight.
    gradients, labels, batch, clip_norm
        As in `weighted_average`.

    >>> minibatch_move([[1.0], [1.0], [1.0]], [0, 0, 1], 2, [-1.0], [0, 2], 1.0)
    0.5
    """
    changed, flipped = np.array(gradients, dtype=float), np.array(labels)
    changed[record], flipped[record] = new_gradient, 1 - flipped[record]
    before = weighted_average(gradients, labels, batch, clip_norm)
    return float(np.linalg.norm(before - weighted_average(changed, flipped, batch, clip_norm)))


def printed_minibatch_bound(batch_size: int, n_majority: int, n_minority: int) -> float:
    """Lemma 19's bound as printed on how far a minibatch average moves, in units of C: 2 n0/(B n) - 1/n.

    Source: Rosenblatt et al. 2025, Lemma 19.

    >>> round(printed_minibatch_bound(64, 100, 7), 4)
    0.0199
    """
    n = n_majority + n_minority
    return 2 * n_majority / (batch_size * n) - 1 / n


def minibatch_bound(batch_size: int, n_records: int) -> float:
    """The corrected bound of Lemma 19, in units of C: (1 + (B - 2)/n)/B, which is attained and at most 2/B.

    A flipped label moves the other weights by 1/n each, and its own two weights add up to 1 - 1/n. Gradients have norm
    at most C before their weights; neighbours replace one record, and the batch is the same.

    >>> round(minibatch_bound(64, 107), 4)
    0.0247
    """
    return (1 + (batch_size - 2) / n_records) / batch_size


# The slides


def slide_multiplier(epsilon: float, delta: float, *, steps: int, n_records: int) -> float:
    """Noise over the gradients' bound by the slides' order with its usual constant: sqrt(2 T log(1/delta))/(n epsilon).

    The slides print the variance as O(Lambda T/(n^2 epsilon^2)); dimensions ask for Lambda^2, and delta is missing.

    Source: Bassily, Smith and Thakurta 2014, as quoted by Mangold 2023; constant of Abadi et al. 2016, Theorem 1.

    >>> round(slide_multiplier(1.0, 1 / 2000**2, steps=2000, n_records=2000), 4)
    0.1233
    """
    return math.sqrt(2 * steps * math.log(1 / delta)) / (n_records * epsilon)


def threshold_epsilon(noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> float:
    """Epsilon at `delta` that a threshold test of the steps proves, exactly: how many steps exceed a number?

    Without the record a step is N(0, sigma^2), with it N(1, sigma^2) where it is drawn. The number of steps above a
    threshold is binomial on either side. The best threshold of a grid and the best number are taken.

    Parameters
    ----------
    noise_multiplier, sample_rate : float
        sigma > 0 and q in (0, 1].
    steps : int
    delta : float
        In (0, 1).

    >>> n = 2000
    >>> sigma = slide_multiplier(1.0, 1 / n**2, steps=n, n_records=n)
    >>> round(threshold_epsilon(sigma, 1 / n, n, 1 / n**2), 1)
    202.3
    """
    sigma, q, best = noise_multiplier, sample_rate, 0.0
    for threshold in np.linspace(0.0, 1.0 + 4 * sigma, 81):
        log_p = log_ndtr(-threshold / sigma)
        with_record = (1 - q) * math.exp(log_p) + q * ndtr((1 - threshold) / sigma)
        chances = np.geomspace(delta, 0.99, _COUNTS)
        counts = np.unique(np.clip(binom.isf(chances, steps, with_record), 1, steps).astype(int))
        kept = binom.sf(counts - 1, steps, with_record) - delta
        shown = np.log(kept[kept > 0]) - _log_tail(counts[kept > 0], steps, log_p)
        best = max(best, shown.max(initial=0.0))
    return float(best)


def _log_tail(counts: NDArray, steps: int, log_p: float) -> NDArray[np.float64]:
    """log P(N >= k) of a binomial number; where SciPy's probability is 0, its bound (T choose k) p^k."""
    probability = binom.sf(counts - 1, steps, math.exp(log_p))
    choose = gammaln(steps + 1) - gammaln(counts + 1) - gammaln(steps - counts + 1)
    bound = np.minimum(choose + counts * log_p, 0.0)
    return np.where(probability > 1e-250, np.log(np.maximum(probability, 1e-250)), bound)
