"""Private models of images: public features or maps, a private frame for them, noisy descent, and two decisions.

The features are of single images and need no training (`checks.image_features`). Their *frame* is what descent needs
to know of the data before it starts: how many records each class has, where the features lie and which of their
directions are long. It is released with a part of the budget, and the schedule is calibrated beside it, so that both
together meet the budget. A linear model learns from the frame's rows, a small network from standardised maps.

Two things are here for comparisons: the same models without privacy (`fit_openly`), and the guarantee for all images of
a lesion (`group_event`, `image_budget`). Loading images, and choosing learning rates and clipping norms by
`helpers.study.tuning`, are left to the chapters.
"""

import copy
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    MixtureOfGaussiansDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, softmax
from scipy.stats import binom
from sklearn.metrics import balanced_accuracy_score, matthews_corrcoef, roc_auc_score
from torch import Tensor, nn

from checks.image_features import rings
from helpers.neural import CrossEntropy, Schedule, train
from helpers.neural.losses import RecordLoss
from helpers.neural.models import Pixels, ResNet18, drawn_from, load_pretrained, with_prior, zeroed
from helpers.privacy import ADD_REMOVE, Guarantee, Ledger, event_epsilon, gaussian_multiplier, noise_generator
from helpers.privacy.accounting import furthest
from helpers.study import metrics
from helpers.validation import check_integer

# Public bounds: features are in [-1, 1] and a few hundred of them have a length of about 5.
_LENGTH, _SQUARES, _SHORTEST = 6.0, 0.5, 0.015
_UNIT = 2 / 3  # to which rows are cut whose mean square length is about 1: most of them count alike
_RIDGE, _LONGEST = 0.003, 1.5
_GRID = 4096  # noise is keyed by the rows, and the last bits of eigenvectors differ between machines
_OUTERMOST, _MAP_GRID = 4.0, 256  # of standardised maps, in two standard deviations of their means; the same for maps
_RINGS = 3
_SHARES = (0.1, 0.1, 0.1, 0.25)  # of epsilon, for counts, centre, scale and second moments
_OPEN_BATCH = 256  # records of a step without privacy
# PLD with a coarse grid: schedules have a few levels, and a sweep asks for many of them.
ACCOUNTING: dict[str, Any] = {"accountant": "pld", "interval": 2e-3}


@dataclass(frozen=True, eq=False)
class Frame:
    """Releases about features and labels, from which rows of a linear model are made.

    Parameters
    ----------
    counts : array (K,)
        Records of each class, noisy, at least 1.
    centre, scale : array (d,)
        Mean of the features, and their standard deviation times sqrt(d).
    whitening : array (d, d)
        Evens out the directions that stand above the noise; rows have a mean square length of about 1.
    events : tuple of DpEvent
        What was spent.
    """

    counts: NDArray[np.float64]
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    whitening: NDArray[np.float64]
    events: tuple[DpEvent, ...]

    @property
    def log_prior(self) -> NDArray[np.float64]:
        """Logarithms of the noisy class shares (K,)."""
        return np.log(self.counts / self.counts.sum())

    def weights(self, power: float) -> NDArray[np.float64]:
        """Class weights (K,): (smallest count / count)^power, by the noisy counts, so at most 1."""
        return (self.counts.min() / self.counts) ** power

    def rows(self, X: ArrayLike) -> NDArray[np.float32]:
        """Rows (..., d), of length at most 1.5, of features (..., d)."""
        unit = _cut((np.asarray(X, dtype=float) - self.centre) / self.scale, _UNIT) / _UNIT
        return (np.round(_cut(unit @ self.whitening, _LONGEST) * _GRID) / _GRID).astype(np.float32)

    def standardised(self, maps: ArrayLike) -> NDArray[np.float32]:
        """Maps (n, d, ...), of whose means over cells this is the frame, around 0 and between -4 and 4.

        The unit is two standard deviations of a map's mean: single cells vary more than means do.
        """
        maps = np.asarray(maps, dtype=float)
        shape = (-1, *[1] * (maps.ndim - 2))
        unit = (2 * self.scale / np.sqrt(len(self.scale))).reshape(shape)
        inside = np.clip((maps - self.centre.reshape(shape)) / unit, -_OUTERMOST, _OUTERMOST)
        return (np.round(inside * _MAP_GRID) / _MAP_GRID).astype(np.float32)

    def calibrated(self, shape: Schedule, epsilon: float, delta: float, *, clip: float = 1.0) -> Schedule:
        """A schedule's noise scaled so that it meets the budget together with this frame, clipping at `clip` C_t.

        Raises
        ------
        ValueError
            A parameter is out of range, or the frame alone is more than the budget.
        """
        plan = shape.calibrate(epsilon, delta, beside=self.events, **ACCOUNTING)
        return replace(plan, clip_norms=clip * plan.clip_norms)


def release_frame(
    X: ArrayLike, y: ArrayLike, n_classes: int, epsilon: float, delta: float, *, random_state: int | None = None
) -> Frame:
    """Four noisy sums over the records, under add/remove: about a tenth of what (epsilon, delta) can pay.

    Counts, centre and scale are each (epsilon/10, delta/10)-DP alone, the second moments (epsilon/4, delta/10).

    Parameters
    ----------
    X : array (n, d)
        Features in [-1, 1]; private.
    y : array of integers (n,)
        Labels in [0, n_classes); private.
    n_classes : int
        K.
    epsilon, delta : float
        The budget of the whole model.
    random_state : int, optional
        As in `helpers.neural.train`.

    Raises
    ------
    ValueError
        Shapes that do not fit, or a parameter out of range.

    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (2000, 3)), rng.integers(2, size=2000)
    >>> frame = release_frame(X, y, 2, 8.0, 1e-5, random_state=0)
    >>> frame.rows(X).shape, [round(event.noise_multiplier, 1) for event in frame.events]
    ((2000, 3), [5.2, 5.2, 5.2, 2.2])
    """
    n_classes = check_integer("n_classes", n_classes, low=2)
    X, y = np.asarray(X, dtype=float), np.asarray(y)
    if X.ndim != 2 or y.shape != X.shape[:1] or y.dtype.kind not in "iu":
        raise ValueError(f"X and y must be features (n, d) and integers (n,), got {X.shape} and {y.dtype} {y.shape}")
    ledger = Ledger((X, y), ADD_REMOVE, noise_generator(random_state, "frame", epsilon, delta, X, y))
    usual, *_, finer = (event.noise_multiplier for event in frame_events(epsilon, delta))
    counts = ledger.gaussian(lambda records: np.bincount(records[1], minlength=n_classes)[:n_classes], 1.0, usual)
    n = max(counts.sum(), 1.0)
    centre = ledger.gaussian(lambda records: _cut(records[0], _LENGTH).sum(0), _LENGTH, usual) / n
    gaps = ledger.view(lambda records: records[0] - centre)
    squares = gaps.gaussian(lambda rows: _cut(rows**2, _SQUARES).sum(0), _SQUARES, usual)
    d = len(centre)
    scale = np.sqrt(np.maximum(squares / n, _SHORTEST**2) * d)
    units = gaps.view(lambda rows: _cut(rows / scale, _UNIT) / _UNIT)
    moments = units.gaussian(lambda rows: rows.T @ rows, 1.0, finer)
    values, vectors = np.linalg.eigh((moments + moments.T) / (2 * n))
    values = np.maximum(values - finer * np.sqrt(2 * d) / n, 0)  # less the largest eigenvalue of noise alone, about
    size = np.sqrt(max((values / (values + _RIDGE)).sum(), 1.0))
    whitening = (vectors / np.sqrt(values + _RIDGE)) @ vectors.T / size
    events = tuple(event for event, times in ledger.bill.items() for _ in range(times))
    return Frame(np.maximum(counts, 1.0), centre, scale, whitening, events)


def frame_events(epsilon: float, delta: float) -> tuple[GaussianDpEvent, ...]:
    """What `release_frame` spends at this budget: four Gaussian sums, known before any record is seen."""
    return tuple(GaussianDpEvent(gaussian_multiplier(share * epsilon, delta / 10)) for share in _SHARES)


def _cut(rows: NDArray, length: float) -> NDArray:
    return rows * np.minimum(1, length / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12))


# -------------------------------------------------------------------------------------------------------- the model


@dataclass(frozen=True, eq=False)
class Linear:
    """A fitted linear model: logits are evidence plus `offset`.

    Parameters
    ----------
    weights : array (K, d)
    offset : array (K,)
        Added in training.
    prior : array (K,)
        What to take off the logits for the best balanced accuracy.
    guarantee : Guarantee
        Of model and frame together.
    """

    weights: NDArray[np.float64]
    offset: NDArray[np.float64]
    prior: NDArray[np.float64]
    guarantee: Guarantee

    def logits(self, rows: ArrayLike) -> NDArray[np.float64]:
        """(n, K) for rows (n, d)."""
        return np.asarray(rows, dtype=float) @ self.weights.T + self.offset


def fit(
    frame: Frame,
    rows: ArrayLike,
    y: ArrayLike,
    plan: Schedule,
    *,
    power: float = 0.0,
    offset: bool = True,
    **options: Any,
) -> Linear:
    """A linear model without a bias by noisy descent with momentum .9; the second half of its steps is averaged.

    Parameters
    ----------
    frame : Frame
    rows : array (n, d) or (n, V, d)
        From `frame.rows`; V views of a record have one gradient, their mean, which is clipped as one.
    y : array of integers (n,)
    plan : Schedule
        From `frame.calibrated`.
    power : float
        Classes weigh (smallest count / count)^power, by the noisy counts; weights are on the bound of a gradient.
    offset : bool
        Whether the log prior is added to the logits in training.
    options
        As in `fit_network`.
    """
    rows, n_classes = np.asarray(rows), len(frame.counts)
    weights = frame.weights(power)
    shift = frame.log_prior if offset else np.zeros(n_classes)
    usual: dict[str, Any] = {"class_weight": weights, "weighting": "bound"}
    usual["augment"] = nn.Identity() if rows.ndim == 3 else None
    done = fit_network(frame, linear_head(rows.shape[-1], n_classes), rows, y, plan, prior=shift, **usual | options)
    learnt = done.model.get_parameter("model.weight").detach().double().numpy()
    return Linear(learnt, shift, frame.log_prior + np.log(weights), done.guarantee)


# ---------------------------------------------------------------------------------------------------------- networks


class MapCNN(nn.Module):
    """A small convolutional network for maps (B, channels, cells, cells), to be trained privately.

    Channels are mixed in each cell, a residual convolution looks at a cell's neighbours, and means over three rings
    around the centre go to a linear layer that starts from zero. Each record is normalised over its own channels and
    cells.

    Parameters
    ----------
    channels, n_classes, width : int
        Maps of a record, classes, and channels inside.
    seed : int
        Of the starting values, which are public.

    Source: Tramer and Boneh 2021, who train such networks on scattering maps.

    >>> MapCNN(60, 7)(torch.zeros(2, 60, 7, 7)).shape
    torch.Size([2, 7])
    """

    def __init__(self, channels: int, n_classes: int, *, width: int = 32, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.mix = nn.Sequential(nn.Conv2d(channels, width, 1), nn.GroupNorm(1, width), nn.ReLU())
            self.look = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(1, width), nn.ReLU())
            self.head = nn.utils.skip_init(nn.Linear, _RINGS * width, n_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.mix(x)
        found = (mixed + self.look(mixed)).flatten(2) @ rings(_RINGS, x.shape[-1], 1, 0).to(mixed)
        return self.head(found.flatten(1))


class StandardizedConv2d(nn.Conv2d):
    """Convolution whose weights have mean 0 and variance 1/fan-in for each output channel, without a bias.

    Source: Qiao, Wang, Liu, Shen and Yuille 2019, weight standardisation.
    """

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.flatten(1)
        weight = weight - weight.mean(1, keepdim=True)
        # Summed squares rather than var, and eps inside: differentiable where all weights of a channel are equal.
        weight = weight * torch.rsqrt((weight**2).sum(1, keepdim=True) + 1e-6)
        return self._conv_forward(x, weight.view_as(self.weight), self.bias)


def _group_norm(channels: int) -> nn.GroupNorm:
    """Groups of at least four channels, at most eight groups."""
    return nn.GroupNorm(min(channels // 4, 8), channels)


class _PreActivation(nn.Module):
    """GroupNorm, rectify, convolve, twice; the side halved, and added to the input, which is brought to that shape."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.shortcut = StandardizedConv2d(inputs, outputs, 1, 2, bias=False)
        self.residual = nn.Sequential(
            _group_norm(inputs),
            nn.ReLU(),
            StandardizedConv2d(inputs, outputs, 3, 2, 1, bias=False),
            _group_norm(outputs),
            nn.ReLU(),
            StandardizedConv2d(outputs, outputs, 3, 1, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.residual(x)


class ResidualCNN(nn.Module):
    """A compact residual network with GroupNorm and standardised weights for images of bytes (B, side, side, 3).

    Three blocks, each of which halves the side; the second and the third double the channels. The last layer starts
    from zero.

    Parameters
    ----------
    n_classes : int
    width : int
        Channels of the first block, a multiple of 4.
    seed : int
        Of the starting values, which are public.

    >>> ResidualCNN(7)(torch.zeros((2, 28, 28, 3), dtype=torch.uint8)).shape
    torch.Size([2, 7])
    """

    def __init__(self, n_classes: int, *, width: int = 16, seed: int = 0) -> None:
        super().__init__()
        with drawn_from(seed):
            self.body = nn.Sequential(
                Pixels(),
                StandardizedConv2d(3, width, 3, 1, 1, bias=False),
                _PreActivation(width, width),
                _PreActivation(width, 2 * width),
                _PreActivation(2 * width, 4 * width),
                _group_norm(4 * width),
                nn.ReLU(),
            )
        self.head = zeroed(nn.utils.skip_init(nn.Linear, 4 * width, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


def backbone(weights: str, n_classes: int, *, seed: int = 0) -> ResNet18:
    """A ResNet-18 for images of bytes, with pretrained weights from a file; a new last layer starts from zero.

    Parameters
    ----------
    weights : str
        File with a state dict in torchvision's names, pretrained on public images. Empty: random starting values, to
        try the code.
    n_classes, seed
        As for `helpers.neural.models.ResNet18`.

    Raises
    ------
    ValueError, OSError, pickle.UnpicklingError
        As `helpers.neural.models.load_pretrained`.
    """
    model = ResNet18(n_classes, seed=seed)
    return load_pretrained(model, weights) if weights else model


@dataclass(frozen=True, eq=False)
class Network:
    """A fitted network: logits are evidence plus the frame's log prior.

    Parameters
    ----------
    model : torch.nn.Module
    guarantee : Guarantee
        Of model and frame together.
    """

    model: nn.Module
    guarantee: Guarantee

    def logits(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """(n, K) for inputs (n, ...)."""
        with torch.no_grad():
            parts = [self.model(part) for part in torch.from_numpy(np.asarray(inputs)).split(256)]
        return torch.cat(parts).double().numpy()


def fit_network(
    frame: Frame,
    model: nn.Module,
    inputs: ArrayLike,
    y: ArrayLike,
    plan: Schedule,
    *,
    delta: float,
    rate: float,
    prior: ArrayLike | None = None,
    **options: Any,
) -> Network:
    """A network by noisy descent with momentum .9; the second half of its steps is averaged.

    Parameters
    ----------
    frame : Frame
        Its counts give the prior offset; maps come from its `standardised`.
    model : torch.nn.Module
        Inputs to logits, as for `helpers.neural.train`; not changed.
    inputs : array (n, ...)
        Maps or bytes.
    y : array of integers (n,)
    plan : Schedule
        From `frame.calibrated`.
    delta : float
        Of the guarantee.
    rate : float
        Learning rate.
    prior : array (K,), optional
        Added to the logits in training; the frame's log prior if left out.
    options
        As in `helpers.neural.train`.

    Raises
    ------
    ValueError
        As `helpers.neural.train`.
    """
    usual: dict[str, Any] = {
        "n_records": max(int(frame.counts.sum()), 1),
        "average": 0.5,
        "optimizer": functools.partial(torch.optim.SGD, lr=rate, momentum=0.9),
        **ACCOUNTING,
    }
    model = with_prior(model, frame.log_prior if prior is None else prior)
    done = train(model, np.asarray(inputs), y, plan, delta=delta, **usual | options)
    guarantee = plan.guarantee(delta, beside=frame.events, assumes=done.guarantee.assumes, **ACCOUNTING)
    return Network(done.model.cpu(), guarantee)


# -------------------------------------------------------------------------------------------------- without privacy


def fit_openly(
    frame: Frame,
    model: nn.Module,
    inputs: ArrayLike,
    y: ArrayLike,
    *,
    rate: float,
    n_epochs: int,
    power: float = 0.0,
    offset: bool = True,
    loss: RecordLoss | None = None,
    random_state: int = 0,
    device: str | torch.device = "cpu",
) -> Network:
    """The recipe of `fit` and `fit_network` less clipping and noise: what privacy costs is the difference to it.

    Descent has momentum .9 and its second half is averaged, as there; steps see shuffled batches of 256 records.

    Parameters
    ----------
    frame : Frame
        Released at so large an epsilon that its noise is nothing.
    model : torch.nn.Module
        Inputs to logits; not changed. `linear_head` is the model that `fit` trains.
    inputs : array (n, ...)
        What the private model is given.
    y : array of integers (n,)
    rate, n_epochs
        Learning rate, and passes over the records.
    power, offset, loss
        As in `fit`.
    random_state : int
        Of the order of the records.
    device : str or torch.device

    Returns
    -------
    Network
        Its guarantee is none: epsilon is infinite.
    """
    check_integer("n_epochs", n_epochs, low=1)
    loss = CrossEntropy() if loss is None else loss
    prior = frame.log_prior if offset else np.zeros(len(frame.counts))
    model = with_prior(copy.deepcopy(model), prior).to(device).train()
    X, labels = torch.as_tensor(np.asarray(inputs)).to(device), torch.as_tensor(np.asarray(y)).to(device)
    weights = torch.as_tensor(frame.weights(power), dtype=torch.float32, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    order = torch.Generator().manual_seed(random_state)
    epochs = [torch.randperm(len(labels), generator=order).split(_OPEN_BATCH) for _ in range(n_epochs)]
    batches = [batch.to(device) for epoch in epochs for batch in epoch]
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        (weights[labels[batch]] * loss(model(X[batch]), labels[batch])).mean().backward()
        optimizer.step()
        if step >= len(batches) // 2:
            averaged.update_parameters(model)
    guarantee = Guarantee(math.inf, 0.0, ADD_REMOVE, NonPrivateDpEvent())
    return Network(averaged.module.cpu().eval(), guarantee)


def linear_head(n_features: int, n_classes: int) -> nn.Linear:
    """A linear map to logits without a bias, all weights zero."""
    model = nn.utils.skip_init(nn.Linear, n_features, n_classes, bias=False)
    nn.init.zeros_(model.weight)
    return model


# ----------------------------------------------------------------------------------------------- tuning, by one rule


def validation_score(logits: ArrayLike, prior: ArrayLike, y: ArrayLike) -> float:
    """What settings are chosen by: accuracy and AUC of the most probable class, plus balanced accuracy by the prior.

    The three have the values that `decided` gives them.

    Parameters
    ----------
    logits : array (n, K)
    prior : array (K,)
    y : array of integers (n,)
        Every class is there.

    >>> validation_score([[2.0, 1.0, 0.0], [2.0, 1.0, 0.9], [0.0, 1.0, 2.0]], [1.5, 0.0, 0.0], [0, 1, 2])
    2.0
    """
    logits, y = np.asarray(logits, dtype=float), np.asarray(y)
    p = softmax(logits, axis=1)
    auc = [roc_auc_score(y == k, p[:, k]) for k in range(logits.shape[1])]
    fair = (logits - np.asarray(prior)).argmax(1)
    return float(np.mean(logits.argmax(1) == y) + np.mean(auc) + balanced_accuracy_score(y, fair))


# ------------------------------------------------------------------------------------------------------ lesions


def group_event(event: DpEvent, size: int) -> DpEvent:
    """The event for data sets that differ in up to `size` records which come or go together.

    Together they move a sum by at most `size` sensitivities. In a Poisson sample with rate q only those that are drawn
    do, and their number is binomial: the step is then as private as a mixture of Gaussians whose distances 0 ... size
    have the probabilities Bin(size, q), and no closer bound exists, since equal records attain it.

    Parameters
    ----------
    event : DpEvent
        Gaussian noise, Poisson samples of it, and compositions, under add/remove of one record.
    size : int
        At least 1.

    Raises
    ------
    ValueError
        `size` is out of range, or the event has another part.

    Source: Ganesh 2024, Tight group-level DP guarantees for DP-SGD with sampling via mixture of Gaussians mechanisms.

    >>> np.round(group_event(PoissonSampledDpEvent(0.25, GaussianDpEvent(1.0)), 2).sampling_probs, 4).tolist()
    [0.5625, 0.375, 0.0625]
    """
    size = check_integer("size", size, low=1)
    match event:
        case GaussianDpEvent(noise_multiplier=noise):
            return GaussianDpEvent(noise / size)
        case PoissonSampledDpEvent(sampling_probability=rate, event=GaussianDpEvent(noise_multiplier=noise)):
            drawn = np.arange(size + 1)
            return MixtureOfGaussiansDpEvent(noise, drawn.tolist(), binom.pmf(drawn, size, rate).tolist())
        case SelfComposedDpEvent(event=inner, count=count):
            return SelfComposedDpEvent(group_event(inner, size), count)
        case ComposedDpEvent(events=events):
            return ComposedDpEvent(tuple(group_event(part, size) for part in events))
    raise ValueError(f"event must be of Gaussian noise, Poisson samples of it and compositions, got {event!r}")


def image_budget(shape: Schedule, epsilon: float, delta: float, size: int) -> float:
    """Epsilon of an image at which a lesion with up to `size` images has `epsilon`, both at `delta`.

    Parameters
    ----------
    shape : Schedule
        As for `Frame.calibrated`, which is then given the answer.
    epsilon, delta : float
        What is promised for a lesion.
    size : int
        Most images of a lesion: public, or enforced by leaving images out.

    Returns
    -------
    float
        At most `epsilon` / `size`, and below that at most 1 % too small.
    """

    def enough(each):
        events = frame_events(each, delta)
        plan = shape.calibrate(each, delta, beside=events, **ACCOUNTING)
        together = group_event(ComposedDpEvent((*events, plan.event())), size)
        return event_epsilon(together, delta, ADD_REMOVE, interval=0.01) <= epsilon

    return furthest(enough, 0.0, epsilon / size, relative=0.01)


def one_of_each(rows: ArrayLike, groups: ArrayLike, random_state: int) -> NDArray[np.intp]:
    """One of the `rows` of every group, at random: neighbours in a group are then neighbours in one record.

    A group's choice is independent of all other groups.

    >>> one_of_each([0, 1, 2, 5], [7, 7, 7, 8, 8, 9], 0).shape
    (2,)
    """
    mixed = np.random.default_rng(random_state).permutation(np.asarray(rows))
    return np.sort(mixed[np.unique(np.asarray(groups)[mixed], return_index=True)[1]])


# --------------------------------------------------------------------------------------------------------- decisions


def decided(
    logits: ArrayLike, prior: ArrayLike, y: ArrayLike, class_names: Sequence[str], positive: Sequence[str]
) -> list[dict[str, Any]]:
    """A row of `metrics.score` for each of two decisions: the most probable class ("likely"), and the largest logit
    less the prior ("prior").

    Both have the areas under the curve of the probabilities, and `malignant_mcc`, the Matthews correlation of
    "probability of the `positive` classes above 1/2" with being one of them.

    Parameters
    ----------
    logits : array (n, K)
    prior : array (K,)
    y : array of integers (n,)
    class_names : sequence of str (K,)
    positive : sequence of str
        Names of classes.

    >>> rows = decided([[2.0, 1.0, 0.0]] * 3, [1.5, 0.0, 0.0], [0, 1, 2], ["mole", "wart", "scar"], ["scar"])
    >>> [(row["decision"], round(row["recall_wart"], 1)) for row in rows]
    [('likely', 0.0), ('prior', 1.0)]
    """
    logits, y = np.asarray(logits, dtype=float), np.asarray(y)
    bad = np.isin(list(class_names), list(positive))
    log_p = log_softmax(logits, axis=1)
    both = {"malignant_mcc": float(matthews_corrcoef(bad[y], np.exp(log_p)[:, bad].sum(1) > 0.5))}
    named = {f"recall_{code}": f"recall_{name}" for code, name in enumerate(class_names)}
    likely, fair = (
        {named.get(key, key): value for key, value in metrics.score(y, table).items()}
        for table in (log_p, log_p - np.asarray(prior))
    )
    ranks = {key: likely[key] for key in ("auc", "pr_auc")}
    return [{"decision": name} | row | ranks | both for name, row in {"likely": likely, "prior": fair}.items()]
