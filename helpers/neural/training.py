"""Private training of neural networks: what is executed is what is accounted.

`train` runs the steps of a `Schedule`: a Poisson sample with the schedule's own rate, gradients of single records,
clipping, a sum, noise, division by the *expected* batch size. The result, with every model on the way to it, is
differentially private under add/remove, and its guarantee comes from the schedule that was run.

Four decisions that the guarantee rests on:

*Gradients of single records.* `helpers.neural.gradients` differentiates each record's loss alone, or takes a faster
route after checking that it does the same. Random views of a record (`augment`) are made from that record alone, and
their gradients are averaged before clipping, so that all of them together pull with at most C.

*Noise by ChaCha20.* Batches and noise come from NumPy generators that nobody can predict; PyTorch's own generators are
not cryptographic and take seeds of 64 bits. Noise is drawn, and norms are taken, with 64-bit floats; a norm has room
for what rounding can add to the record's part of a sum. The model sees the noisy mean rounded to its own type. None of
this hides the gaps between floating-point numbers, nor that a record may move the last bits of another's gradient, or
of the sum, by its presence (`EXACT_REALS` in the guarantee).

*A record without a finite gradient contributes nothing.* If its norm is infinite or not a number, its clipped gradient
is zero, as if it had not been drawn; nothing is raised, counted or shown. One record can thus neither spoil the sum nor
be seen by its failure. If the model itself has diverged, training goes on with noise alone.

*What is published has never seen a record.* Forward passes are run by a copy of the model that is thrown away, because
a layer may keep what it was shown. Parameters are copied to it before every step, and gradients are all it gives.
"""

import copy
import functools
import itertools
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from tqdm import tqdm

from helpers.checks import check_boolean, check_choice, check_integer, check_real
from helpers.neural.gradients import ClippedSums, as_input
from helpers.neural.losses import CrossEntropy, RecordLoss
from helpers.neural.schedule import Schedule
from helpers.privacy import ADD_REMOVE, Guarantee, noise_assumptions, noise_generator
from helpers.privacy.randomness import check_random_state

KEY_SECRET = "the file private-noise-key.json was kept secret until the end of the run"
BFLOAT16 = "gradients in bfloat16 do not depend on the other records"
_PUBLIC, _PRIVATE = "model.pt", "private-noise-key.json"
_ACCOUNTING = {"accountant", "interval"}
_RATE_BITS = 53
_PLAIN = (type, type(None), bool, int, float, complex, str, bytes, range, set, frozenset, np.ndarray, np.generic)
_SGD = functools.partial(torch.optim.SGD, lr=0.1)

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Augmentation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ExecutedStep:
    """What one step has done, without anything private: the size of its batch is not told.

    Parameters
    ----------
    index : int
        Steps before it.
    noise_multiplier, clip_norm, sample_rate : float
        As they were used.
    noise_scale : float
        Standard deviation of the noise on each coordinate of the sum.
    """

    index: int
    noise_multiplier: float
    clip_norm: float
    sample_rate: float
    noise_scale: float


@dataclass(frozen=True)
class Trained:
    """A privately trained model: all that is here may be published.

    Parameters
    ----------
    model : torch.nn.Module
        After the last step, or the mean of the last ones, in evaluation mode. Only its trainable parameters differ from
        those of the model that was given.
    schedule : Schedule
        What was run.
    guarantee : Guarantee
        Of the model and of every model on the way.
    """

    model: nn.Module
    schedule: Schedule
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
    micro_batch: int = 256,
    precision: str = "full",
    augment: Augmentation | None = None,
    average: float = 0.0,
    random_state: int | None = None,
    device: str | torch.device = "cpu",
    checkpoint: str | os.PathLike | None = None,
    steps_per_epoch: int | None = None,
    accounting: Mapping[str, Any] | None = None,
    on_step: Callable[[ExecutedStep], None] | None = None,
    progress: bool = True,
) -> Trained:
    """Train a copy of `model` by the steps of `schedule`, (epsilon, delta)-DP under add/remove of one record.

    Parameters
    ----------
    model : torch.nn.Module
        Maps (1, ...) to logits (1, K), with parameters of 32 or 64 bits. Its starting values are public, with its
        buffers, which stay as they are. An index outside the table of an `nn.Embedding` counts as the nearest row: an
        error would tell of the record.
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
    micro_batch : int
        Records whose gradients are in memory at a time. It does not change the law of the result. Numbers that the
        model draws (dropout) fall differently, so another size has other noise too: `random_state` does not repeat a
        result with it.
    precision : {"full", "bfloat16"}
        "full": the type of the parameters. "bfloat16": products of matrices and convolutions have eight significant
        bits, there and back. Loss, norms, factors, sums, noise and update stay as they are, so a record still pulls
        with at most C_t; but a kernel that goes another way through a batch of another size may change all gradients
        by their last bit in eight, which `BFLOAT16` in the guarantee assumes away. For parameters of 32 bits, models
        that book-keeping is right for, and GPUs: a CPU that multiplies in bfloat16 gained little. Not where values of
        a feature differ by less than 1/256 of their size: they become equal, so shift and scale them first.
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
    checkpoint : path, optional
        A folder of this run alone. After every epoch `model.pt` is replaced there: the model, the optimiser, the steps
        done and the guarantee of the *whole* run, all covered by that guarantee (`read_checkpoint` reads it). Called
        again with the same arguments, training goes on from there, to the same end as if it had never stopped.
        For this the key of the noise is kept in `private-noise-key.json`, readable by the owner alone and removed after
        the last step. Whoever has it has the noise: never publish or copy it. (Removing is not erasing a disk.)
    steps_per_epoch : int, optional
        Steps between checkpoints; 1/q of the first step, rounded, if left out.
    accounting : dict, optional
        How the guarantee is computed: `accountant` and `interval`, as `Schedule.calibrate` was given them.
    on_step : callable, optional
        Called with an `ExecutedStep` after every step.
    progress : bool
        Whether to show a progress bar; on terminals only.

    Returns
    -------
    Trained
        Model, schedule and guarantee.

    Raises
    ------
    ValueError
        A parameter is out of range, records or labels are outside their domain, the model has layers that mix records
        (batch normalisation), keeps running statistics or changes its buffers, or a checkpoint is of another run.
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
    check_random_state(random_state)
    check_boolean("progress", progress)
    accounting = {} if accounting is None else dict(accounting)
    if not set(accounting) <= _ACCOUNTING:
        raise ValueError(f"accounting must hold some of {sorted(_ACCOUNTING)}, got {sorted(accounting)}")
    if steps_per_epoch is not None:
        check_integer("steps_per_epoch", steps_per_epoch, low=1)
    run = _Run.prepare(
        model, X, y, schedule, loss, class_weight, weighting, optimizer, n_records, micro_batch, precision, device,
        augment, average,
    )  # fmt: skip
    if delta >= 1 / run.n_records:
        warnings.warn(f"delta={delta!r} is at least 1/n: publishing whole records would satisfy it", stacklevel=2)
    public, private = run.context()
    source = noise_generator(random_state, *public, *private)
    key = int.from_bytes(source.bytes(32), "big")
    assumes = (
        "starting values of the model public",
        "number of records public" if n_records is None else "number that divides the sums public",
        "set of labels public",
        *(("class weights public",) if class_weight is not None else ()),
        *noise_assumptions(source),
        *((BFLOAT16,) if precision == "bfloat16" else ()),
        *((KEY_SECRET,) if checkpoint is not None else ()),
    )
    guarantee = schedule.guarantee(delta, **accounting, assumes=assumes)
    saver = None
    if checkpoint is not None:
        epoch = steps_per_epoch or max(round(1 / schedule.sample_rates[0]), 1)
        saver = _Checkpoints(Path(checkpoint), epoch, guarantee, _fingerprint(*public), _fingerprint(*public, *private))
    key, start = saver.resume(run, key) if saver else (key, 0)
    steps = range(start, len(schedule))
    for index in tqdm(steps, initial=start, total=len(schedule), disable=None if progress else True):
        executed = run.step(index, key)
        if saver:
            saver.after(run, index + 1)
        if on_step:
            on_step(executed)
    if saver:
        saver.forget_key()
    run.model.zero_grad(set_to_none=True)
    if run.mean is not None:
        run.model.load_state_dict(run.mean, strict=False)
    return Trained(run.model.eval(), schedule, guarantee)


@dataclass
class _Run:
    """The checked arguments of one run, its model and its optimiser."""

    model: nn.Module  # what will be published: it sees no record, the model of `sums` does
    X: Tensor
    y: Tensor
    schedule: Schedule
    loss: RecordLoss
    class_weight: Tensor | None
    weighting: str
    optimizer: torch.optim.Optimizer
    n_records: int
    micro_batch: int
    augment: Augmentation | None
    averaged: int  # last steps whose models are averaged
    sums: ClippedSums
    mean: dict[str, Tensor] | None = None  # trainable parameters, once the first of these steps is done

    @classmethod
    def prepare(
        cls,
        model,
        X,
        y,
        schedule,
        loss,
        class_weight,
        weighting,
        optimizer,
        n_records,
        micro_batch,
        precision,
        device,
        augment,
        average,
    ) -> "_Run":
        """Everything that can be refused, before anything is computed from the data."""
        if not isinstance(schedule, Schedule):
            raise ValueError(f"schedule must be a Schedule, got {schedule!r}")
        check_choice("weighting", weighting, ("loss", "bound"))
        check_choice("precision", precision, ("full", "bfloat16"))
        micro_batch = check_integer("micro_batch", micro_batch, low=1)
        average = check_real("average", average, low=0, high=1, inclusive="low")
        device = torch.device(device)
        check_choice("device", device.type, ("cpu", "cuda"))
        _check_model(model)
        if precision == "bfloat16" and any(p.dtype == torch.float64 for p in model.parameters()):
            raise ValueError("precision must be 'full' with parameters of 64 bits, got 'bfloat16'")
        model = copy.deepcopy(model).to(device).train()
        loss, augment = CrossEntropy() if loss is None else loss, copy.deepcopy(augment)
        X, y = _tensor("X", X), _tensor("y", y)
        if X.ndim < 2 or y.shape != X.shape[:1] or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise ValueError(
                f"X and y must be records (n, ...) and integer labels (n,), got shapes {tuple(X.shape)} and "
                f"{tuple(y.shape)}, labels of type {y.dtype}"
            )
        n_records = check_integer("n_records", len(y) if n_records is None else n_records, low=1)
        blank = torch.zeros(X.shape[1:], dtype=X.dtype, device=device)
        views = blank[None] if augment is None else _views(copy.deepcopy(augment), blank)
        sums = ClippedSums(throw_away(model), copy.deepcopy(loss), views.dtype, views.shape[1:], precision)
        n_classes = _probe(sums, views)
        weights = None if class_weight is None else _check_weights(class_weight, n_classes).to(device)
        _check_domain(X, y, n_classes)
        made = optimizer([parameter for parameter in model.parameters() if parameter.requires_grad])
        return cls(
            model, X.to(device), y.long().to(device), schedule, loss, weights, weighting, made, n_records,
            max(micro_batch // len(views), 1), augment, math.ceil(average * len(schedule)), sums,
        )  # fmt: skip

    def context(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What the result depends on besides the noise: what is public of it, and the data. Before the first step."""
        known = {}
        model, loss, augment = (_described(part, known) for part in (self.model, self.loss, self.augment))
        weights = None if self.class_weight is None else _numpy(self.class_weight)
        steps = (self.schedule.noise_multipliers, self.schedule.clip_norms, self.schedule.sample_rates)
        rules = (loss, weights, self.weighting, repr(self.optimizer), self.n_records, augment, self.averaged)
        # Where and in which order numbers are drawn: other dropout with the same noise would give the noise away.
        order = (self.micro_batch, self.sums.precision, self.y.device.type)
        return ("neural.train", model, steps, *rules, *order), (_numpy(self.X), _numpy(self.y))

    def step(self, index: int, key: int) -> ExecutedStep:
        """One step; its randomness depends on the key and its index only, so a repeated step is the same step."""
        noise_multiplier, clip_norm, rate = (
            float(array[index])
            for array in (self.schedule.noise_multipliers, self.schedule.clip_norms, self.schedule.sample_rates)
        )
        with torch.no_grad():
            for mine, seeing in zip(self.model.parameters(), self.sums.model.parameters(), strict=True):
                seeing.copy_(mine)
        rng = noise_generator(key, "step", index)
        chosen = torch.from_numpy(poisson_sample(len(self.y), rate, rng)).to(self.y.device)
        layers = [self.y.device] if self.y.device.type == "cuda" else []
        with torch.random.fork_rng(devices=layers):  # dropout draws from torch's own generator
            torch.manual_seed(int(rng.integers(2**63)))
            total = self.sums(
                self.X[chosen], self.y[chosen], clip_norm, class_weight=self.class_weight, weighting=self.weighting,
                micro_batch=self.micro_batch, augment=self.augment,
            )  # fmt: skip
        largest = 1.0
        if self.weighting == "bound" and self.class_weight is not None:
            largest = float(self.class_weight.max())
        scale = noise_multiplier * clip_norm * largest
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                noise = torch.as_tensor(scale * rng.standard_normal(tuple(parameter.shape)))
                mean = (total[name] + noise.to(parameter.device)) / (rate * self.n_records)
                parameter.grad = mean.to(parameter.dtype)
        self.optimizer.step()
        self._average(index + 1)
        return ExecutedStep(index, noise_multiplier, clip_norm, rate, scale)

    def _average(self, steps: int) -> None:
        """Takes the model after this many steps into the mean, if it is one of the last."""
        seen = steps - (len(self.schedule) - self.averaged)
        if seen < 1:
            return
        # By all names of a parameter: a state that is loaded has them.
        named = self.model.named_parameters(remove_duplicate=False)
        state = {name: value.detach() for name, value in named if value.requires_grad}
        before = {name: torch.zeros_like(value) for name, value in state.items()} if seen == 1 else self.mean
        self.mean = {name: before[name] + (value - before[name]) / seen for name, value in state.items()}


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
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()  # NumPy has no such type


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
    if isinstance(value, ModuleType) or not hasattr(value, "__dict__"):
        return type(value), getattr(value, "__name__", None)
    if id(value) in known:
        return "again", known[id(value)][0]
    known[id(value)] = len(known), value
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return value.__code__, _described((value.__defaults__, value.__kwdefaults__, cells), known)
    # Hooks are kept under numbers that count all hooks of the process.
    held = {name: list(item.values()) if name.endswith("_hooks") else item for name, item in vars(value).items()}
    return type(value), _methods(type(value)), _described(held, known)


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
        if isinstance(layer, _BatchNorm) or (isinstance(layer, _NormBase) and layer.track_running_stats):
            raise ValueError(
                f"model must treat every record alone, got layer {name or 'model'!r} of type {type(layer).__name__}, "
                "which mixes the records of a batch or keeps their statistics; GroupNorm does not"
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
            raise ValueError(
                f"model must keep its parameters in a forward pass, got layer {name or 'model'!r} with max_norm, which "
                "rewrites the rows that records look up"
            )
    trainable = {name: value.dtype for name, value in model.named_parameters() if value.requires_grad}
    others = [name for name, dtype in trainable.items() if dtype not in (torch.float32, torch.float64)]
    if not trainable or others:
        raise ValueError(f"model must have trainable parameters, of 32 or 64 bits, got others: {others}")


def _views(augment: Augmentation, blank: Tensor) -> Tensor:
    """What is made of a blank record, which shows the number of views and their shape."""
    with torch.random.fork_rng(devices=[blank.device] if blank.device.type == "cuda" else []):
        views = augment(blank)
    if not isinstance(views, Tensor) or views.ndim < 2 or not len(views):
        raise ValueError(f"augment must make views (V, ...), V >= 1, of a record {tuple(blank.shape)}, got {views!r}")
    return views


def check_trainable(model: nn.Module, loss: RecordLoss, record: Tensor) -> int:
    """Number of classes of a model that `train` accepts with records like this one, which is made up.

    Raises
    ------
    ValueError
        As `train`, about the model.

    >>> check_trainable(nn.Linear(4, 3), CrossEntropy(), torch.zeros(4))
    3
    """
    _check_model(model)
    sums = ClippedSums(throw_away(model).train(), copy.deepcopy(loss), record.dtype, record.shape)
    return _probe(sums, record[None])


def _probe(sums: ClippedSums, views: Tensor) -> int:
    """Number of classes; gradients of two blank records show whether the model can be trained at all."""
    model, records = sums.model, views[:1].expand(2, *views.shape[1:])
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[views.device] if views.device.type == "cuda" else []):
            before = _versions(model)
            logits = model(as_input(records[:1], model))
            changed = _changed(before, _versions(model))
            if changed:
                raise ValueError(f"model must keep its buffers and parameters in a forward pass, got other {changed}")
            if logits.ndim != 2 or len(logits) != 1 or logits.shape[1] < 2:
                raise ValueError(f"model must map (1, ...) to logits (1, K), K >= 2, got {tuple(logits.shape)}")
            sums(records, torch.zeros(2, dtype=torch.long, device=views.device), 1.0)
    except (RuntimeError, TypeError, IndexError) as error:
        shape = tuple(views.shape[1:])
        raise ValueError(f"model must have gradients for single records of shape {shape}: {error}") from error
    return logits.shape[1]


def _versions(model: nn.Module) -> dict[str, tuple[Tensor, int]]:
    """Parameters and buffers, and how often each was written to: blank records may leave the values as they were."""
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    return {name: (value, value._version) for name, value in tensors}


def _changed(before: dict[str, tuple[Tensor, int]], after: dict[str, tuple[Tensor, int]]) -> list[str]:
    none = (None, 0)
    pairs = {name: (before.get(name, none), after.get(name, none)) for name in before | after}
    return [name for name, (old, new) in pairs.items() if old[0] is not new[0] or old[1] != new[1]]


def _check_weights(class_weight: Sequence[float], n_classes: int) -> Tensor:
    weights = np.asarray(class_weight, dtype=float)
    if weights.shape != (n_classes,) or not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
        raise ValueError(
            f"class_weight must hold {n_classes} finite numbers >= 0, not all of them 0, got {class_weight!r}"
        )
    return torch.tensor(weights)


def _check_domain(X: Tensor, y: Tensor, n_classes: int) -> None:
    """No guarantee is about records outside the domain, as everywhere in the package."""
    if X.is_floating_point() and not torch.isfinite(X).all():
        raise ValueError("X must hold finite numbers, found NaN or infinity")
    if ((y < 0) | (y >= n_classes)).any():
        raise ValueError(f"y must hold labels in [0, {n_classes - 1}], found others")


# --------------------------------------------------------------------------------------------------- checkpoints


def read_checkpoint(folder: str | os.PathLike) -> tuple[dict[str, Tensor], Schedule, Guarantee, int]:
    """What a checkpoint publishes: the model's state, the schedule, the guarantee of the whole run, the steps done.

    Raises
    ------
    ValueError
        There is no checkpoint in the folder.
    """
    saved = _read_public(Path(folder))
    if saved is None:
        raise ValueError(f"folder must hold a checkpoint {_PUBLIC}, got {str(folder)!r}")
    schedule = Schedule(*saved["schedule"].numpy())
    told = saved["guarantee"]
    guarantee = Guarantee(
        told["epsilon"], told["delta"], ADD_REMOVE, schedule.event(), tuple(told["assumes"]), told["source"]
    )
    finished = saved["steps"] == len(schedule)
    state = saved["model"] | (saved["mean"] if finished and saved["mean"] is not None else {})
    return state, schedule, guarantee, saved["steps"]


def _read_public(folder: Path) -> dict[str, Any] | None:
    file = folder / _PUBLIC
    return torch.load(file, map_location="cpu", weights_only=True) if file.exists() else None


def _fingerprint(*context: Any) -> str:
    """A hash of everything in `context`, by the rules of `noise_generator`."""
    return noise_generator(0, *context).bytes(32).hex()


@dataclass(frozen=True)
class _Checkpoints:
    """The files of one run: `model.pt`, which is covered by the guarantee, and the key of the noise, which is not.

    The fingerprint of the data stands beside the key, in the private file.
    """

    folder: Path
    epoch: int
    guarantee: Guarantee
    public_fingerprint: str
    private_fingerprint: str

    def resume(self, run: _Run, key: int) -> tuple[int, int]:
        """The key of the run and the number of its steps that are done; model and optimiser are put there."""
        saved = _read_public(self.folder)
        if saved and saved["run"] != self.public_fingerprint:
            self._refuse("a checkpoint of another run (model, schedule or parameters differ)")
        kept = self.folder / _PRIVATE
        if kept.exists():
            told = json.loads(kept.read_text())
            if told["run"] != self.private_fingerprint:
                self._refuse("the noise key of another run (data, model, schedule or parameters differ)")
            key = int(told["key"], 16)
        elif saved is None:
            self._keep(key)
        elif saved["steps"] < len(run.schedule):
            self._refuse(f"an unfinished checkpoint without {_PRIVATE}: other noise would be a second release")
        if saved is None:
            return key, 0
        run.model.load_state_dict(saved["model"])
        run.optimizer.load_state_dict(saved["optimizer"])
        run.mean = saved["mean"]
        return key, saved["steps"]

    def after(self, run: _Run, steps: int) -> None:
        """At the end of an epoch, replaces the published file, at once or not at all."""
        if steps % self.epoch and steps < len(run.schedule):
            return
        schedule, told = run.schedule, self.guarantee
        rows = np.stack([schedule.noise_multipliers, schedule.clip_norms, schedule.sample_rates])
        guarantee = {"epsilon": told.epsilon, "delta": told.delta, "assumes": list(told.assumes), "source": told.source}
        saved = {
            "model": run.model.state_dict(),
            "mean": run.mean,
            "optimizer": run.optimizer.state_dict(),  # it has seen noisy gradients only
            "steps": steps,
            "schedule": torch.from_numpy(rows),
            "guarantee": guarantee,
            "run": self.public_fingerprint,
        }
        partial = self.folder / (_PUBLIC + ".part")
        torch.save(saved, partial)
        os.replace(partial, self.folder / _PUBLIC)

    def forget_key(self) -> None:
        (self.folder / _PRIVATE).unlink(missing_ok=True)

    def _keep(self, key: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / (_PRIVATE + ".part")
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"key": f"{key:x}", "run": self.private_fingerprint}, file)
        os.replace(partial, self.folder / _PRIVATE)

    def _refuse(self, found: str) -> None:
        raise ValueError(f"checkpoint must be a folder of this run alone, got {str(self.folder)!r} with {found}")
