"""Private training of neural networks: what is executed is what is accounted.

`train` runs the steps of a `Schedule`: a Poisson sample with the schedule's own rate, gradients of single records,
clipping, a sum, noise, division by the *expected* batch size. Every step is one query to a `Ledger`, which draws the
noise and writes the bill; the guarantee is that of the schedule, and is given only if the bill is the schedule's. The
result, with every model on the way to it, is differentially private under add/remove.

Three decisions that the guarantee rests on:

*Gradients of single records.* `helpers.neural.gradients` differentiates each record's loss alone. Random views of a
record (`augment`) are made from that record alone, and their gradients are averaged before clipping, so that all of
them together pull with at most C.

*A record without a finite gradient contributes nothing.* If its norm is infinite or not a number, its clipped gradient
is zero, as if it had not been drawn; nothing is raised, counted or shown. One record can thus neither spoil the sum nor
be seen by its failure. If the model itself has diverged, training goes on with noise alone.

*What is published has never seen a record.* Forward passes are run by a copy of the model, because a layer may keep
what it was shown. The published model is another copy, made before the first record is touched, with the trained
parameters put into it. What two copies would share (hooks, functions that hold values) is refused.

Batches and noise come from NumPy generators that nobody can predict; PyTorch's own generators are not cryptographic.
None of this hides the gaps between floating-point numbers, nor that a record may move the last bits of another's
gradient, or of the sum, by its presence (`EXACT_REALS` in the guarantee).
"""

import copy
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from helpers.neural.gradients import as_input, clipped_sum
from helpers.neural.losses import CrossEntropy, RecordLoss
from helpers.neural.schedule import Schedule
from helpers.privacy import ADD_REMOVE, Guarantee, Ledger, noise_assumptions, noise_generator
from helpers.privacy.randomness import check_random_state
from helpers.validation import check_choice, check_integer, check_real

# Sampling compares a whole number of this many bits with the rate: a double has no more.
_RATE_BITS = 53
# Types whose values are hashed as they are, and are not searched for closures.
_PLAIN = (type, type(None), bool, int, float, complex, str, bytes, range, set, frozenset, np.ndarray, np.generic)
_SGD = functools.partial(torch.optim.SGD, lr=0.1)

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Augmentation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ExecutedStep:
    """Public facts about one step. The size of its batch, which is private, is not among them.

    Parameters
    ----------
    index : int
        Number of steps before this one.
    noise_scale : float
        Standard deviation of the noise on each coordinate of the sum.
    """

    index: int
    noise_scale: float


@dataclass(frozen=True)
class Trained:
    """A privately trained model: all that is here may be published.

    Parameters
    ----------
    model : torch.nn.Module
        After the last step, or the mean of the last ones, in evaluation mode. Only its trainable parameters differ from
        those of the model that was given.
    guarantee : Guarantee
        Of the model and of every model on the way.
    """

    model: nn.Module
    guarantee: Guarantee


def train(
    model: nn.Module,
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    schedule: Schedule,
    *,
    delta: float,
    loss: RecordLoss | None = None,
    class_weight: Sequence[float] | None = None,
    weighting: str = "loss",
    optimizer: OptimizerFactory = _SGD,
    n_records: int | None = None,
    augment: Augmentation | None = None,
    average: float = 0.0,
    random_state: int | None = None,
    device: str | torch.device = "cpu",
    accountant: str = "pld",
    interval: float | None = None,
    on_step: Callable[[ExecutedStep], None] | None = None,
) -> Trained:
    """Train a copy of `model` by the steps of `schedule`, (epsilon, delta)-DP under add/remove of one record.

    Parameters
    ----------
    model : torch.nn.Module
        Maps (V, ...) to logits (V, K), with parameters of 32 or 64 bits. Its starting values are public, with its
        buffers, which stay as they are. It has no hooks and, among its attributes, no function with a closure: either
        could carry a record into the published model. An index outside the table of an `nn.Embedding` counts as the
        nearest row: an error would tell of the record.
    X : array (n, ...)
        Records: floats, finite; bytes (uint8) are turned into floats, other integers are passed on.
    y : array of integers (n,)
        Labels in [0, K).
    schedule : Schedule
        Noise, clipping and sampling of every step.
    delta : float
        In (0, 1). A warning is given from 1/n on, where publishing whole records is (0, delta)-DP.
    loss : callable, optional
        Logits (B, K) and labels (B,) to one number a record, in which no other record has a part. Cross-entropy if left
        out.
    class_weight : sequence of float (K,), optional
        Public weights >= 0, not all 0.
    weighting : {"loss", "bound"}
        "loss" multiplies a record's loss, before its gradient is clipped to C_t: clipping takes the weights off large
        gradients. "bound" clips the gradient to C_t first, so that a record of weight w pulls with at most w C_t; noise
        is then sigma_t C_t times the largest weight.
    optimizer : callable
        Makes the optimiser from the parameters, `functools.partial(torch.optim.SGD, lr=0.1)` say. It sees the noisy
        mean gradient and nothing else.
    n_records : int, optional
        Public number that divides, with the rate, the noisy sum; the length of X, which is then public, if left out.
    augment : callable, optional
        One record (...) to V random views of it (V, ...), V always the same. The record's gradient is the mean over its
        views, formed before clipping, so the guarantee does not change. It draws from PyTorch's global generator, which
        is seeded for every step and put back afterwards.
    average : float
        In [0, 1): the result is the mean of the models after this share of the steps, the last ones (0: of the last one
        alone). It costs no privacy, since all of them are covered.
    random_state : int, optional
        None: unpredictable. An integer, for reproducing a result on one kind of machine, gives noise that depends on
        it, the data and everything else that is computed; whoever knows it knows the noise. What model, loss and
        `augment` hold is part of that, methods and functions by their code. Two things are not seen: global variables,
        and the inside of objects written in C, which count by type and name. Models that differ in these alone share
        their noise.
    device : str or torch.device
        "cpu" or "cuda".
    accountant, interval
        How the guarantee is computed, with the values that `Schedule.calibrate` was given.
    on_step : callable, optional
        Called with an `ExecutedStep` after every step.

    Returns
    -------
    Trained
        Model and guarantee.

    Raises
    ------
    ValueError
        A parameter is out of range, records or labels are outside their domain, the model has layers that mix records
        (batch normalisation), keeps running statistics, changes its buffers, or has hooks or functions with closures.
        Before the first step.

    Source: Abadi et al. 2016, Algorithm 1; record-wise class weights, dpci Algorithm 4 with public weights;
    views and averages, De, Berrada, Hayes, Smith and Balle 2022.

    >>> _ = torch.manual_seed(0)
    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> schedule = Schedule.constant(10, sample_rate=0.5, noise_multiplier=2.0)
    >>> print(train(nn.Linear(1, 2), X, y, schedule, delta=1e-3, random_state=0).guarantee)
    (2.682, 0.001)-DP, add/remove-one
    """
    delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
    check_random_state("random_state", random_state)
    # Shapes and types are checked first; values are looked at below, after everything else that can be refused.
    X, y = _tensor("X", X), _tensor("y", y)
    if X.ndim < 2 or y.shape != X.shape[:1] or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise ValueError(
            f"X and y must be records (n, ...) and integer labels (n,), got shapes {tuple(X.shape)} and "
            f"{tuple(y.shape)}, labels of type {y.dtype}"
        )
    n_divisor = check_integer("n_records", len(y) if n_records is None else n_records, low=1)
    # A made-up record of the same shape and type: what fails on it fails before a private one is seen.
    descent = Descent(
        model, torch.zeros(X.shape[1:], dtype=X.dtype), schedule, loss=loss, weighting=weighting, optimizer=optimizer,
        augment=augment, average=average, device=device, on_step=on_step,
    )  # fmt: skip
    weights = None if class_weight is None else _check_weights(class_weight, descent.n_classes)
    # Refuses what it cannot read before a step is made; the answer is kept.
    schedule.epsilon(delta, accountant=accountant, interval=interval)
    if X.is_floating_point() and not torch.isfinite(X).all():
        raise ValueError("X must hold finite numbers, found NaN or infinity")
    if ((y < 0) | (y >= descent.n_classes)).any():
        raise ValueError(f"y must hold labels in [0, {descent.n_classes - 1}], found others")
    if delta >= 1 / n_divisor:
        warnings.warn(f"delta={delta!r} is at least 1/n: publishing whole records would satisfy it", stacklevel=2)
    rng = noise_generator(random_state, *descent.context(weights, n_divisor), _numpy(X), _numpy(y))
    ledger = Ledger((X, y), ADD_REMOVE, rng)
    trained = descent.run(ledger, weights, n_divisor)
    assumes = (
        "starting values of the model public",
        "number of records public" if n_records is None else "number that divides the sums public",
        "set of labels public",
        *(("class weights public",) if class_weight is not None else ()),
        *noise_assumptions(rng),
    )
    guarantee = schedule.guarantee(delta, accountant=accountant, interval=interval, assumes=assumes, ledger=ledger)
    return Trained(trained, guarantee)


class Descent:
    """The checked public arguments of one training; `run` asks a ledger for the steps.

    Parameters
    ----------
    model, schedule, loss, weighting, optimizer, average, device, augment, on_step
        As in `train`.
    record : tensor (...)
        Of the shape and type of a record, and made up: model, loss and `augment` are tried on it.

    Raises
    ------
    ValueError
        As `train`, about all that is not a record.
    """

    def __init__(
        self,
        model: nn.Module,
        record: Tensor,
        schedule: Schedule,
        *,
        loss: RecordLoss | None,
        weighting: str,
        optimizer: OptimizerFactory,
        average: float,
        device: str | torch.device,
        augment: Augmentation | None = None,
        on_step: Callable[[ExecutedStep], None] | None = None,
    ):
        if not isinstance(schedule, Schedule):
            raise ValueError(f"schedule must be a Schedule, got {schedule!r}")
        self.schedule, self.on_step = schedule, on_step
        self.weighting = check_choice("weighting", weighting, ("loss", "bound"))
        average = check_real("average", average, low=0, high=1, inclusive="low")
        self.n_averaged = math.ceil(average * len(schedule))
        self.device = torch.device(device)
        check_choice("device", self.device.type, ("cpu", "cuda"))
        self.loss = CrossEntropy() if loss is None else copy.deepcopy(loss)
        self.augment = copy.deepcopy(augment)
        _check_model(model)
        # A copy, so that the caller's model stays as it is; in training mode, where dropout works.
        self.published = copy.deepcopy(model).to(self.device).train()
        self.n_classes = _n_classes(self.published, self.loss, self.augment, record.to(self.device))
        self.optimizer = optimizer([value for value in self.published.parameters() if value.requires_grad])

    def context(self, class_weight: Tensor | None, n_records: int) -> tuple[Any, ...]:
        """What the noise of a seeded run depends on besides the records; to be called before the first step."""
        known: dict[int, tuple[int, Any]] = {}
        model, loss, augment = (_described(part, known) for part in (self.published, self.loss, self.augment))
        weights = None if class_weight is None else _numpy(class_weight)
        steps = (self.schedule.noise_multipliers, self.schedule.clip_norms, self.schedule.sample_rates)
        rules = (loss, weights, self.weighting, repr(self.optimizer), n_records, augment, self.n_averaged)
        return ("neural.train", model, *steps, *rules, self.device.type)

    def run(self, ledger: Ledger, class_weight: Tensor | None, n_records: int) -> nn.Module:
        """The trained model, in evaluation mode. Records are (X, y), tensors (n, ...) and (n,).

        Weights and the number that divides the sums, as in `train`, are public or paid for.
        """
        on_device = ledger.view(lambda records: [part.to(self.device) for part in records])
        seeing = throw_away(self.published)
        parameters = {name: value for name, value in self.published.named_parameters() if value.requires_grad}
        mean = {name: torch.zeros_like(value) for name, value in parameters.items()}
        # Weights inside the loss are clipped with the gradient and cannot lengthen it; those applied after clipping
        # can.
        heaviest = 1.0 if class_weight is None or self.weighting == "loss" else float(class_weight.max())
        schedule = self.schedule
        arrays = (schedule.noise_multipliers, schedule.clip_norms, schedule.sample_rates)
        for index, (noise_multiplier, clip_norm, rate) in enumerate(zip(*(a.tolist() for a in arrays), strict=True)):
            with torch.no_grad():
                for mine, theirs in zip(self.published.parameters(), seeing.parameters(), strict=True):
                    # Parameters go from the published model to the copy that sees records; nothing comes back but the
                    # noisy sum.
                    theirs.copy_(mine)
            query = functools.partial(self._sum_of_sample, seeing, class_weight, rate, clip_norm)
            # With rate 1 nothing is sampled, and nothing is gained by it.
            noisy = on_device.sampled(query, rate if rate < 1 else None, heaviest * clip_norm, noise_multiplier)
            # Divided by the expected size of the batch, a public number: the size that was drawn is private.
            means = torch.from_numpy(noisy / (rate * n_records)).split([v.numel() for v in parameters.values()])
            # The sum holds the parameters one after the other, in the order of `parameters`.
            for value, gradient in zip(parameters.values(), means, strict=True):
                value.grad = gradient.reshape(value.shape).to(value)
            self.optimizer.step()
            if (n_seen := index + 1 - (len(schedule) - self.n_averaged)) > 0:
                for name, value in parameters.items():
                    # A running mean, which needs one copy of the parameters instead of one a step.
                    mean[name] += (value.detach() - mean[name]) / n_seen
            if self.on_step:
                self.on_step(ExecutedStep(index, noise_multiplier * clip_norm * heaviest))
        with torch.no_grad():
            for name, value in parameters.items():
                value.grad = None
                if self.n_averaged:
                    value.copy_(mean[name])
        return self.published.eval()

    def _sum_of_sample(
        self,
        seeing: nn.Module,
        class_weight: Tensor | None,
        rate: float,
        clip_norm: float,
        records: tuple[Tensor, Tensor],
        rng: np.random.Generator,
    ) -> np.ndarray:
        """The clipped sum over a Poisson sample, all parameters in one vector. **Not private.**"""
        X, y = records
        # Drawn by the ledger's generator, because PyTorch's own can be predicted.
        chosen = torch.from_numpy(poisson_sample(len(y), rate, rng)).to(self.device)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(rng.integers(2**63)))  # dropout and views draw from PyTorch's own generator
            total = clipped_sum(
                seeing, self.loss, X[chosen], y[chosen].long(), clip_norm, class_weight=class_weight,
                weighting=self.weighting, augment=self.augment,
            )  # fmt: skip
        return _numpy(torch.cat([value.flatten() for value in total.values()]))


def poisson_sample(n: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Indices of the records drawn, each independently with probability `rate`; possibly none.

    The probability is `rate` rounded down to a multiple of 2^-53, so never more than was accounted.

    >>> poisson_sample(3, 1.0, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """
    return np.flatnonzero(rng.integers(0, 2**_RATE_BITS, size=n) < int(rate * 2**_RATE_BITS))


def _tensor(name: str, values: ArrayLike | Tensor) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    try:
        return torch.from_numpy(np.array(values))  # a copy: arrays of data sets are read-only
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from error


def _numpy(value: Tensor) -> np.ndarray:
    """The tensor's values as an array in main memory, without their derivatives."""
    return value.detach().cpu().numpy()


def throw_away(model: nn.Module) -> nn.Module:
    """A copy of a model to show private records to: what its layers keep of them goes with it.

    Its embeddings take an index outside their table for the nearest one, as an error would depend on the record.

    >>> throw_away(nn.Embedding.from_pretrained(torch.tensor([[1.0], [2.0]])))(torch.tensor([-5, 7]))[:, 0].tolist()
    [1.0, 2.0]
    """
    model = copy.deepcopy(model)
    for layer in model.modules():
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            layer.register_forward_pre_hook(_in_table)
    return model


def _in_table(layer: nn.Embedding | nn.EmbeddingBag, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a forward pass with every index moved to the nearest row of the table."""
    indices, *others = inputs
    return indices.clamp(0, layer.num_embeddings - 1), *others


def _described(value: Any, known: dict[int, tuple[int, Any]]) -> Any:
    """What a model or function is, in values that `noise_generator` reads alike in every process.

    A model's `repr` shows what its author chose to show, and pickled tensors hold addresses. `known` holds the objects
    that were described before, so that a circle ends.
    """
    if isinstance(value, Tensor):
        return str(value.dtype), value.requires_grad, _numpy(value)
    if isinstance(value, list | tuple):
        return [_described(item, known) for item in value]
    if isinstance(value, dict):
        return [(_described(key, known), _described(item, known)) for key, item in value.items()]
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    if isinstance(value, MethodType):
        return _described((value.__func__, value.__self__), known)
    if isinstance(value, functools.partial):
        return _described((value.func, value.args, value.keywords), known)
    # Objects written in C show nothing of their inside: type and name have to do.
    if isinstance(value, ModuleType) or not hasattr(value, "__dict__"):
        return type(value), getattr(value, "__name__", None)
    if id(value) in known:
        return "again", known[id(value)][0]
    # The object is kept with its number, so that no later object can get the same address.
    known[id(value)] = len(known), value
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return value.__code__, _described((value.__defaults__, value.__kwdefaults__, cells), known)
    return type(value), _methods(type(value)), _described(vars(value), known)


def _methods(kind: type) -> list[tuple[str, CodeType]]:
    """Code of a class and its bases: one that is written anew, in a notebook say, keeps its name."""
    classes = [base for base in kind.__mro__ if not base.__module__.startswith("torch.")]
    parts = [item for base in classes for item in vars(base).items()]
    return [(name, part.__code__) for name, part in parts if isinstance(part, FunctionType)]


# ------------------------------------------------------------------------------------------------- what is refused


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {model!r}")
    for name, layer in model.named_modules():
        place = f"layer {name or 'model'!r} of type {type(layer).__name__}"
        if isinstance(layer, _BatchNorm) or (isinstance(layer, _NormBase) and layer.track_running_stats):
            raise ValueError(
                f"model must treat every record alone, got {place}, which mixes the records of a batch or keeps their "
                "statistics; GroupNorm does not"
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
            raise ValueError(
                f"model must keep its parameters in a forward pass, got {place} with max_norm, which rewrites the rows "
                "that records look up"
            )
        # PyTorch keeps hooks in attributes of these names, one for each kind of hook.
        hooks = [kind for kind, held in vars(layer).items() if kind.endswith("_hooks") and held]
        if hooks:
            raise ValueError(f"model must have no hooks, which could keep records, got {place} with {hooks}")
        closures = [attribute for attribute, value in vars(layer).items() if _holds_closure(value, set())]
        if closures:
            raise ValueError(
                f"model must hold no function with a closure, which could keep records, got {place} with {closures}"
            )
    trainable = {name: value.dtype for name, value in model.named_parameters() if value.requires_grad}
    others = [name for name, dtype in trainable.items() if dtype not in (torch.float32, torch.float64)]
    if not trainable or others:
        raise ValueError(f"model must have trainable parameters, of 32 or 64 bits, got others: {others}")


def _holds_closure(value: Any, known: set[int]) -> bool:
    """Whether a copy of the value would share with it what a function has closed over; PyTorch's functions aside.

    Layers inside layers are looked at by themselves, and `known` ends circles.
    """
    if isinstance(value, FunctionType):
        return value.__closure__ is not None and not value.__module__.startswith("torch.")
    if isinstance(value, (*_PLAIN, Tensor, nn.Module, ModuleType)) or id(value) in known:
        return False
    known.add(id(value))
    held: Iterable[Any]
    match value:
        case MethodType():
            held = [value.__func__, value.__self__]
        case functools.partial():
            held = [value.func, value.args, value.keywords]
        case dict():
            held = value.values()
        case list() | tuple():
            held = value
        case _:
            held = getattr(value, "__dict__", {}).values()
    return any(_holds_closure(item, known) for item in held)


def _n_classes(model: nn.Module, loss: RecordLoss, augment: Augmentation | None, record: Tensor) -> int:
    """Number of classes; gradients of two blank records show whether the model can be trained at all."""
    model, loss, augment = throw_away(model), copy.deepcopy(loss), copy.deepcopy(augment)
    with torch.random.fork_rng(devices=[record.device] if record.device.type == "cuda" else []):
        views = record[None] if augment is None else augment(record)
        if not isinstance(views, Tensor) or views.ndim < 2 or not len(views):
            shape = tuple(record.shape)
            raise ValueError(f"augment must make views (V, ...), V >= 1, of a record {shape}, got {views!r}")
        try:
            # A forward pass that wrote to a parameter or buffer would leave something of its records there.
            before = _versions(model)
            with torch.no_grad():
                logits = model(as_input(views, model))
            after, none = _versions(model), (None, 0)
            pairs = {name: (before.get(name, none), after.get(name, none)) for name in before | after}
            changed = [name for name, (old, new) in pairs.items() if old[0] is not new[0] or old[1] != new[1]]
            if changed:
                raise ValueError(f"model must keep its buffers and parameters in a forward pass, got other {changed}")
            if logits.ndim != 2 or len(logits) != len(views) or logits.shape[1] < 2:
                raise ValueError(
                    f"model must map (V, ...) to logits (V, K), K >= 2, got {tuple(logits.shape)} for V = {len(views)}"
                )
            labels = torch.zeros(2, dtype=torch.long, device=record.device)
            clipped_sum(model, loss, record.expand(2, *record.shape), labels, 1.0, augment=augment)
        except (RuntimeError, TypeError, IndexError) as error:
            shape = tuple(views.shape[1:])
            raise ValueError(f"model must have gradients for single records of shape {shape}: {error}") from error
    return logits.shape[1]


def _versions(model: nn.Module) -> dict[str, tuple[Tensor, int]]:
    """Parameters and buffers, and how often each was written to: blank records may leave the values as they were."""
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    return {name: (value, value._version) for name, value in tensors}


def _check_weights(class_weight: ArrayLike, n_classes: int) -> Tensor:
    """Public class weights (K,) as a tensor of 64 bits."""
    weights = np.asarray(class_weight, dtype=float)
    if weights.shape != (n_classes,) or not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
        raise ValueError(
            f"class_weight must hold {n_classes} finite numbers >= 0, not all of them 0, got {class_weight!r}"
        )
    return torch.tensor(weights)
