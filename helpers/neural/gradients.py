"""Gradients of single records, clipped and summed: what a step of private training adds noise to.

`ClippedSums` gives, for one model and loss, the sum over a batch of every record's gradient, weighted and clipped, up
to rounding as if each record had been differentiated alone. It is not private; noise is left to `training`.

There are two routes, and the model decides which one is taken:

*Mapping.* `torch.func` differentiates the loss of one record as a function of that record alone and maps it over the
batch. No layer, reduction or weight can let one record into another's gradient, and no layer needs a rule. But every
gradient is formed, of all parameters.

*Book-keeping.* One forward and backward pass over the batch as a whole. What went into every layer and the gradients
of what came out are kept, and the norms and the weighted sum are computed from these: for a matrix that is applied at
M places of a record, the squared norm needs M x M inner products only, and all records share one product of matrices
for the sum. These are the norms of ghost clipping without its second backward pass: a record's factor is put on after
the only one, so any clipping norm will do, and it may change from step to step. That takes two thirds of the time on a
transformer, but a layer that mixes records, a parameter used twice or an operation that overwrites its input would
go unnoticed. So it is taken only if, on a copy of the model with random parameters and random records, its gradients
are those of mapping, and a record that is not a number leaves every trace of the others finite: arithmetic that reads
a record cannot hide it. No private number has a part in the choice. A model whose mixing acts on particular values
only, and through comparisons rather than arithmetic, would pass: a model that compares records has no place in `train`.
The loss, which sees labels, needs no such check: here too it is mapped over records, so that it never sees two of them.

Products of matrices are taken in the type of the parameters, in blocks of few records; norms, factors and the sums of
blocks are 64 bits wide. What rounding can add to a record's part of a product, whatever the order of the terms and
however they cancel, is added to its norm before it is clipped (in 32 bits some 10^-5 of it): what a record is clipped
to holds for what it adds. PyTorch's shorter products (TF32, bfloat16) are switched off for these products.

Sources: Goodfellow 2015 and Li, Tramer, Liang and Hashimoto 2022 (norms from inputs and output gradients); Bu, Wang,
Zha and Karypis 2023 (one backward pass).
"""

import copy
import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, autocast, nn
from torch.func import functional_call, grad, vjp, vmap
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd

from helpers.neural.losses import RecordLoss

_ROUNDING = torch.finfo(torch.float64).eps
_BACKENDS = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
_BLOCK = 32  # records in one product of matrices, as the rounding of a sum grows with its terms
_NUMBERS = 2**16  # that are 64 bits wide at a time: more would leave the cache


def clipped_sum(
    model: nn.Module,
    loss: RecordLoss,
    X: Tensor,
    y: Tensor,
    clip_norm: float,
    *,
    class_weight: Tensor | None = None,
    weighting: str = "loss",
    micro_batch: int = 256,
    precision: str = "full",
) -> dict[str, Tensor]:
    """Sum over records of their clipped, weighted gradients: what a step adds noise to. **Not private.**

    Parameters
    ----------
    X, y : tensors (B, ...), (B,)
        A batch, possibly empty.
    clip_norm : float
        C. One record more moves the sum by at most C, with weighting "bound" by at most its weight times C.
    model, loss, class_weight, weighting, micro_batch, precision
        As in `train`.

    Returns
    -------
    dict of str to float64 tensors
        One for each trainable parameter, of its shape. A record whose gradient is not finite adds zero.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> total = clipped_sum(model, lambda z, y: z[:, 0], torch.tensor([[3.0, 4.0]]), torch.tensor([0]), 1.0)
    >>> total["weight"].numpy().round(4).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    sums = ClippedSums(model, loss, X.dtype, X.shape[1:], precision)
    return sums(X, y, clip_norm, class_weight=class_weight, weighting=weighting, micro_batch=micro_batch)


class ClippedSums:
    """`clipped_sum` for one model and loss, to be called again and again while the model changes.

    Parameters
    ----------
    model : torch.nn.Module
        Maps records (B, ...) to logits (B, K). The parameters that it has when called are the ones that count.
    loss : callable
        Logits (B, K) and labels (B,) to one number a record.
    dtype, shape : torch.dtype, torch.Size
        Of a record, as it comes.
    precision : {"full", "bfloat16"}
        Of the layers' arithmetic, as in `train`.

    Raises
    ------
    ValueError
        "bfloat16" for a model that book-keeping would get wrong: mapped layers may not take two types at once.

    Attributes
    ----------
    route : {"book-keeping", "mapping"}
        How gradients are computed; chosen without data, as the module describes.
    """

    def __init__(
        self, model: nn.Module, loss: RecordLoss, dtype: torch.dtype, shape: torch.Size, precision: str = "full"
    ):
        self.model, self.loss, self.precision = model, loss, precision
        self.route = "book-keeping" if _book_keeping_is_exact(model, loss, dtype, shape) else "mapping"
        if self.route == "mapping" and precision != "full":
            raise ValueError(f"precision must be 'full' for a model whose gradients are mapped, got {precision!r}")

    def __call__(
        self,
        X: Tensor,
        y: Tensor,
        clip_norm: float,
        *,
        class_weight: Tensor | None = None,
        weighting: str = "loss",
        micro_batch: int = 256,
        augment: Callable[[Tensor], Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """As `clipped_sum`; `augment` turns one record into views (V, ...), whose gradients are averaged first."""
        gradients = _mapping
        if self.route == "book-keeping":
            gradients = functools.partial(_book_keeping, precision=self.precision)
        total = {
            name: torch.zeros_like(value, dtype=torch.float64)
            for name, value in self.model.named_parameters()
            if value.requires_grad
        }
        for start in range(0, len(y), micro_batch):
            records, labels = X[start : start + micro_batch], y[start : start + micro_batch]
            weights = torch.ones(len(labels), dtype=torch.float64, device=labels.device)
            weights = weights if class_weight is None else class_weight.to(weights)[labels]
            inside = weights if weighting == "loss" else torch.ones_like(weights)
            outside = torch.ones_like(weights) if weighting == "loss" else weights
            views = records[:, None] if augment is None else torch.stack([augment(record) for record in records])
            n_views = views.shape[1]
            parts = gradients(
                self.model,
                self.loss,
                as_input(views.flatten(0, 1), self.model),
                labels.repeat_interleave(n_views),
                inside.repeat_interleave(n_views) / n_views,
            )
            parts = {name: part.of_records(len(labels)) for name, part in parts.items()}
            _add_clipped(total, parts, clip_norm, outside)
        return total


def as_input(records: Tensor, model: nn.Module) -> Tensor:
    """Floats and bytes in the type of the model's parameters, other integers as they are."""
    dtype = next(value.dtype for value in model.parameters() if value.requires_grad)
    return records.to(dtype) if records.is_floating_point() or records.dtype == torch.uint8 else records


# ------------------------------------------------------------------------------------- gradients, formed or not


@dataclass(frozen=True)
class _Formed:
    """Gradients (B, ...) of one parameter."""

    rows: Tensor

    def of_records(self, n: int) -> "_Formed":
        """The rows of a record's views, next to each other, are added up."""
        return self if len(self.rows) == n else _Formed(self.rows.unflatten(0, (n, -1)).sum(1))

    def norms(self) -> Tensor:
        return torch.cat([torch.linalg.vector_norm(few, dim=1, dtype=torch.float64) for few in self._blocks(1)])

    def weighted_sum(self, factors: Tensor, spoiled: Tensor) -> Tensor:
        # Zero times infinity is no number.
        whole = _Formed(self.rows.index_fill(0, spoiled, 0.0)) if len(spoiled) else self
        blocks = whole._blocks(_BLOCK)
        return sum(some @ few.double() for some, few in zip(factors.split(len(blocks[0])), blocks, strict=True))

    def _blocks(self, least: int) -> tuple[Tensor, ...]:
        """Rows (n, size), n such that they stay in the cache, but not below `least`."""
        rows = self.rows.reshape(len(self.rows), -1)
        return rows.split(max(_NUMBERS // max(rows.shape[1], 1), least))


@dataclass(frozen=True)
class _Products:
    """Gradients left^T right of a matrix (p, d), from its M places in a record: (B, M, p) and (B, M, d).

    A sum of K products of two numbers is off by at most K u of the sum of their sizes, if the type rounds by u
    (Higham 2002, section 3.1). So a record's part of a block's product is off by at most K u times the product of the
    lengths of its two sides, K being the terms of the block, and its own gradient, if it is formed, by M u times that.
    """

    left: Tensor
    right: Tensor

    def of_records(self, n: int) -> "_Products":
        return self if len(self.left) == n else _Products(*(_places(side, n) for side in (self.left, self.right)))

    def norms(self) -> Tensor:
        """Of the gradients, with what rounding may add to them in `weighted_sum`."""
        left, right = self.left, self.right
        places, p, d = left.shape[1], left.shape[2], right.shape[2]
        kind = torch.finfo(left.dtype)  # squares of smaller numbers than the root of the smallest are zero
        lengths = torch.linalg.vector_norm(left, dim=2).double() + (kind.tiny * p) ** 0.5
        lengths = lengths * (torch.linalg.vector_norm(right, dim=2).double() + (kind.tiny * d) ** 0.5)
        if 4 * places * (p + d) <= p * d:  # inner products of places are fewer than the entries of the matrix
            left, right = left.double(), right.double()
            squares = ((left @ left.mT) * (right @ right.mT)).sum((1, 2))
            norms = (squares + _cancelled(lengths, places**2 + p + d)).sqrt()
        else:
            rows = torch.linalg.vector_norm(left.mT @ right, dim=2)
            norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
        terms = places * (_BLOCK + 1) + p + d + 8
        lost = 2 * (kind.tiny * p * d) ** 0.5
        return norms + 1.1 * terms * kind.eps / 2 * lengths.sum(1) + lost

    def weighted_sum(self, factors: Tensor, spoiled: Tensor) -> Tensor:
        sides = [side.index_fill(0, spoiled, 0.0) if len(spoiled) else side for side in (self.left, self.right)]
        dtype = sides[0].dtype  # a subnormal factor is rounded by more than the norm has room for
        sides[0] = sides[0] * functional.threshold(factors.to(dtype), torch.finfo(dtype).tiny, 0.0)[:, None, None]
        if missing := -len(factors) % _BLOCK:
            sides = [functional.pad(side, (0, 0, 0, 0, 0, missing)) for side in sides]
        left, right = (side.unflatten(0, (-1, _BLOCK)).flatten(1, 2) for side in sides)
        return (left.mT @ right).sum(0, dtype=torch.float64)


@dataclass(frozen=True)
class _Lookups:
    """Gradients of a table (size, p) of which a record reads M rows: (B, M) and (B, M, p), 64 bits."""

    indices: Tensor
    left: Tensor
    size: int

    def of_records(self, n: int) -> "_Lookups":
        if len(self.left) == n:
            return self
        return _Lookups(_places(self.indices, n), _places(self.left, n), self.size)

    def norms(self) -> Tensor:
        places, p = self.left.shape[1:]
        products = self.left @ self.left.mT * (self.indices[:, :, None] == self.indices[:, None, :])
        lengths = products.diagonal(dim1=1, dim2=2).sqrt()
        return (products.sum((1, 2)) + _cancelled(lengths, places**2 + p)).sqrt()

    def weighted_sum(self, factors: Tensor, spoiled: Tensor) -> Tensor:
        left = self.left.index_fill(0, spoiled, 0.0) * factors[:, None, None]
        return left.new_zeros(self.size, left.shape[2]).index_add(0, self.indices.flatten(), left.flatten(0, 1))


_Part = _Formed | _Products | _Lookups


def _cancelled(lengths: Tensor, terms: int) -> Tensor:
    """Most that rounding can take off the square of a sum of M vectors of these lengths (B, M), if they cancel."""
    return 4 * terms * _ROUNDING * lengths.sum(1).square()


def _places(values: Tensor, n: int) -> Tensor:
    """The places (n V, M, ...) of all views of a record, as places (n, V M, ...) of the record."""
    return values.unflatten(0, (n, -1)).flatten(1, 2)


def _add_clipped(total: dict[str, Tensor], parts: dict[str, _Part], clip_norm: float, weights: Tensor) -> None:
    """Norms and factors in 64 bits, with room for the rounding of the sums."""
    with _full_products(), autocast(weights.device.type, enabled=False):
        norms = torch.linalg.vector_norm(torch.stack([part.norms() for part in parts.values()]), dim=0)
        finite = norms.isfinite()
        factors = torch.where(finite, weights * clip_norm / norms.clamp(min=clip_norm), 0.0)
        spoiled = (~finite).nonzero()[:, 0]
        for name, part in parts.items():
            total[name] += part.weighted_sum(factors, spoiled).reshape(total[name].shape)


@contextmanager
def _full_products() -> Iterator[None]:
    """Products of matrices in 32 bits as they are, whatever PyTorch was told to make of them."""
    before = [backend.fp32_precision for backend in _BACKENDS]
    try:
        for backend in _BACKENDS:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(_BACKENDS, before, strict=True):
            backend.fp32_precision = precision


# ----------------------------------------------------------------------------------------------------- mapping


def _mapping(model: nn.Module, loss: RecordLoss, X: Tensor, y: Tensor, weights: Tensor) -> dict[str, _Part]:
    trainable = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
    fixed = {name: value.detach() for name, value in model.named_parameters() if not value.requires_grad}
    fixed |= dict(model.named_buffers())

    def record_loss(parameters, record, label, weight):
        logits = functional_call(model, (parameters, fixed), (record.unsqueeze(0),))
        return weight * _of_one(loss)(logits[0], label)

    dtype = next(iter(trainable.values())).dtype
    gradients = vmap(grad(record_loss), in_dims=(None, 0, 0, 0), randomness="different")
    return {name: _Formed(rows) for name, rows in gradients(trainable, X, y, weights.to(dtype)).items()}


def _arithmetic(precision: str, device: torch.device) -> autocast:
    """Products of matrices and convolutions in bfloat16, or everything as it is."""
    return autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def _of_one(loss: RecordLoss) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss as a function of the logits (K,) and the label of one record."""
    return lambda logits, label: loss(logits.unsqueeze(0), label.unsqueeze(0)).sum()


# ------------------------------------------------------------------------------------------------- book-keeping


@dataclass(frozen=True)
class _Call:
    """What went into a layer and the gradient of what came out."""

    name: str
    layer: nn.Module
    inputs: tuple[Tensor, ...]
    gradient: Tensor

    def parts(self) -> dict[str, _Part]:
        rule = _RULES.get(type(self.layer), _any_layer)
        trainable = {name for name, value in self.layer.named_parameters() if value.requires_grad}
        prefix = f"{self.name}." if self.name else ""
        return {
            prefix + name: part
            for name, part in rule(self.layer, *self.inputs, self.gradient).items()
            if name in trainable
        }


def _book_keeping(
    model: nn.Module, loss: RecordLoss, X: Tensor, y: Tensor, weights: Tensor, precision: str = "full"
) -> dict[str, _Part]:
    parts = {}
    for call in _calls(model, loss, X, y, weights, precision):
        parts |= call.parts()
    unused = {n: v for n, v in model.named_parameters() if v.requires_grad and n not in parts}
    return parts | {name: _Formed(value.new_zeros(len(y), *value.shape)) for name, value in unused.items()}


def _calls(
    model: nn.Module, loss: RecordLoss, X: Tensor, y: Tensor, weights: Tensor, precision: str = "full"
) -> list[_Call]:
    """One forward and one backward pass, without gradients of parameters; kept in the type of the parameters."""
    dtype = next(value.dtype for value in model.parameters() if value.requires_grad)
    names = {layer: name for name, layer in model.named_modules() if _has_trainable(layer)}
    kept = []
    hooks = [layer.register_forward_hook(lambda *call: kept.append(call)) for layer in names]
    try:
        with torch.enable_grad():
            with _arithmetic(precision, X.device):
                logits = model(X)
            losses = vmap(_of_one(loss), randomness="different")(_wide(logits, dtype), y)
    finally:
        for hook in hooks:
            hook.remove()
    called = [layer for layer, _, _ in kept]
    if len(set(called)) < len(called) or any(list(layer.children()) for layer in names):
        raise RuntimeError("every layer with parameters must be called once and alone")
    outputs = [output for _, _, output in kept]
    gradients = torch.autograd.grad(losses, outputs, weights.to(losses.dtype), allow_unused=True)
    return [
        _Call(names[layer], layer, tuple(_wide(value.detach(), dtype) for value in inputs), _wide(gradient, dtype))
        for (layer, inputs, _), gradient in zip(kept, gradients, strict=True)
        if gradient is not None
    ]


def _wide(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.dtype == torch.bfloat16 else value


def _has_trainable(layer: nn.Module) -> bool:
    return any(value.requires_grad for value in layer.parameters(recurse=False))


def _linear(layer: nn.Linear, inputs: Tensor, gradient: Tensor) -> dict[str, _Part]:
    left = gradient.reshape(len(gradient), -1, layer.out_features)
    right = inputs.reshape(len(inputs), -1, layer.in_features)
    return {"weight": _Products(left, right), "bias": _Formed(left.sum(1))}


def _layer_norm(layer: nn.LayerNorm, inputs: Tensor, gradient: Tensor) -> dict[str, _Part]:
    shape = layer.normalized_shape
    standard = functional.layer_norm(inputs, shape, eps=layer.eps)
    sums = [values.reshape(len(inputs), -1, *shape).sum(1) for values in (standard * gradient, gradient)]
    return {"weight": _Formed(sums[0]), "bias": _Formed(sums[1])}


def _group_norm(layer: nn.GroupNorm, inputs: Tensor, gradient: Tensor) -> dict[str, _Part]:
    standard = functional.group_norm(inputs, layer.num_groups, eps=layer.eps)
    sums = [values.reshape(*inputs.shape[:2], -1).sum(2) for values in (standard * gradient, gradient)]
    return {"weight": _Formed(sums[0]), "bias": _Formed(sums[1])}


def _convolution(layer: nn.Conv2d, inputs: Tensor, gradient: Tensor) -> dict[str, _Part]:
    if layer.groups > 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return _any_layer(layer, inputs, gradient)
    patches = functional.unfold(inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    left = gradient.flatten(2)
    return {"weight": _Formed((left @ patches.mT).unflatten(2, layer.weight.shape[1:])), "bias": _Formed(left.sum(2))}


def _embedding(layer: nn.Embedding, inputs: Tensor, gradient: Tensor) -> dict[str, _Part]:
    if layer.padding_idx is not None or layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse:
        return _any_layer(layer, inputs, gradient)
    left = gradient.reshape(len(gradient), -1, layer.embedding_dim).double()
    return {"weight": _Lookups(inputs.reshape(len(inputs), -1), left, layer.num_embeddings)}


def _any_layer(layer: nn.Module, *values: Tensor) -> dict[str, _Part]:
    """A layer without a rule: it runs again, mapped over records. Random layers are refused by `vmap`."""
    trainable = {name: value.detach() for name, value in layer.named_parameters() if value.requires_grad}

    def pull_back(*record):
        *inputs, gradient = (value.unsqueeze(0) for value in record)
        return vjp(lambda parameters: functional_call(layer, parameters, tuple(inputs)), trainable)[1](gradient)[0]

    return {name: _Formed(rows) for name, rows in vmap(pull_back)(*values).items()}


_RULES = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.Embedding: _embedding,
}


# ----------------------------------------------------------------------------------------- which route is taken


def _book_keeping_is_exact(model: nn.Module, loss: RecordLoss, dtype: torch.dtype, shape: torch.Size) -> bool:
    """Whether book-keeping gives the gradients of mapping, and keeps records apart; on the CPU, in 64 bits."""
    if any(isinstance(layer, _DropoutNd) and layer.inplace for layer in model.modules()):
        return False  # it overwrites what the layer before it gave, and is left out of the comparison below
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            twin = copy.deepcopy(model).cpu().double().train()
            for value in twin.parameters():  # not the model's own: a layer of zeros would hide what is behind it
                fan = math.prod(value.shape[1:])
                nn.init.normal_(value, std=fan**-0.5)
            # Codes of categories may be among the floats, so numbers are in [0, 1).
            X = as_input(torch.rand(4, *shape).to(dtype), twin)
            with torch.no_grad():
                n_classes = twin(X[:1]).shape[1]
            y = torch.arange(len(X)) % n_classes
            return _same_gradients(twin, loss, X, y) and _records_stay_apart(twin, loss, X, y)
    except Exception:  # whatever is wrong with the model, mapping meets it again and says so
        return False


def _same_gradients(model: nn.Module, loss: RecordLoss, X: Tensor, y: Tensor) -> bool:
    """In training mode, but for dropout: the two routes would draw different numbers."""
    still = copy.deepcopy(model)
    for layer in still.modules():
        if isinstance(layer, _DropoutNd):
            layer.eval()
    weights = torch.linspace(0.5, 2, len(y), dtype=torch.float64)
    kept, mapped = (route(still, loss, X, y, weights) for route in (_book_keeping, _mapping))
    pairs = [(kept[name], mapped[name]) for name in mapped]
    norms = [(one.norms(), other.norms()) for one, other in pairs]
    none = torch.arange(0)
    sums = [(one.weighted_sum(weights, none).flatten(), other.weighted_sum(weights, none)) for one, other in pairs]
    return all(_close(*map(torch.cat, zip(*numbers, strict=True))) for numbers in (norms, sums))


def _close(one: Tensor, other: Tensor) -> bool:
    """Up to rounding in 64 bits, of the largest: some gradients are zero in exact arithmetic only."""
    return torch.allclose(one, other, rtol=1e-6, atol=1e-10 * float(other.abs().max()))


def _records_stay_apart(model: nn.Module, loss: RecordLoss, X: Tensor, y: Tensor) -> bool:
    """A record that is not a number, nor any layer's answer to it, must not show in what is kept of the others."""
    for index in (0, len(X) - 1):
        tainted = torch.arange(len(X)) == index

        def taint(values: Tensor, tainted: Tensor = tainted) -> Tensor:
            rows = tainted.reshape(-1, *[1] * (values.ndim - 1))
            return torch.where(rows, torch.nan, values) if values.is_floating_point() else values

        hooks = [
            layer.register_forward_hook(lambda _layer, _inputs, output, taint=taint: taint(output))
            for layer in model.modules()
            if _has_trainable(layer)
        ]
        try:
            calls = _calls(model, loss, taint(X), y, torch.ones(len(y)))
        finally:
            for hook in hooks:
                hook.remove()
        kept = [values[~tainted] for call in calls for values in (*call.inputs, call.gradient)]
        if not all(values.isfinite().all() for values in kept):
            return False
    return True
