"""One run of a library, followed release by release: what differs on a neighbour although all noise is the same?

The functions that make noise are named, and replaced for the time of two runs, so that nothing of the audited code has
to be edited. On the first table their answers are recorded. On its neighbour the recorded answers are given back. What
is released is then the same, so all else has to be: which functions are called in which order, with which parameters,
and the object that comes out; and a private input may have moved by no more than its sensitivity.

The estimators of this package have their noise from a ledger, and `tests/test_replay.py` replays each of them there.

Source: the idea of recording and replaying is that of dp-recorder (Cebere, Erb, Desfontaines, Bellet and Fitzsimons).
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from helpers.privacy.audit.observation import AGAIN, Features, as_release, observe
from helpers.privacy.audit.pairs import Pair

_SLACK = 1 + 1e-9  # of a sensitivity, for rounding
_NORMS = {"l1": 1, "l2": 2, "linf": np.inf}


class Noise(NamedTuple):
    """How to read one noise function.

    Attributes
    ----------
    value : str or None
        Its argument that depends on the records; None where noise is drawn apart from what it is added to.
    sensitivity : str or None
        Argument, or attribute of its object, that says how far one record moves the value.
    norm : {"l1", "l2", "linf"}
    """

    value: str | None = None
    sensitivity: str | None = None
    norm: str = "l1"


class Divergence(NamedTuple):
    """Where the run on the neighbour first differs: which call (from 0; after the last, the object), and how."""

    call: int
    function: str
    told: str

    def __str__(self):
        return f"call {self.call}, {self.function}: {self.told}"


class _Call(NamedTuple):
    function: str
    value: Any
    parameters: dict[str, str]
    sensitivity: float | None
    answer: Any


def replay(build: Any, pair: Pair, noise: Mapping[str, Noise]) -> Divergence | None:
    """First difference between a run on `pair.data` and one on `pair.neighbour` with the same noisy answers.

    Parameters
    ----------
    build
        As in `audit_object`.
    pair : Pair
    noise : mapping from str to Noise
        Noise functions such as "diffprivlib.mechanisms:Laplace.randomise", as module, colon, and name.

    Returns
    -------
    Divergence or None
        None if nothing differs, which is no proof: other tables may differ, and noise that nobody named.

    Raises
    ------
    ValueError
        A name that is no function, an argument that it does not have, or no call of any of them.

    >>> from helpers.privacy import REPLACE_ONE
    >>> from helpers.privacy.audit.pairs import rare_class_pairs
    >>> class Sum:  # its noise is drawn apart, for a parameter that depends on the records
    ...     def fit(self, X, y):
    ...         self.sum_ = np.random.laplace(X.sum(), X.max())
    >>> print(replay(Sum, rare_class_pairs(REPLACE_ONE)[0], {"numpy.random:laplace": Noise("loc")}))
    call 0, numpy.random:laplace: parameter scale is 1 on one table and 0.3516 on the other
    """
    release = as_release(build)
    owners = {name: _owner(name) for name in noise}
    recorded: list[_Call] = []
    replayed: list[_Call] = []

    def run(records, calls: list[_Call], given: list[_Call] | None) -> Features:
        def wrapped(name, original):
            signature, rule = _signature(original), noise[name]

            def call(*args, **kwargs):
                bound = _bound(signature, args, kwargs)
                value = bound.pop(rule.value, None) if rule.value else None
                sensitivity = _sensitivity(rule, bound)
                parameters = {key: _shown(part) for key, part in bound.items()}
                answer = (
                    original(*args, **kwargs)
                    if given is None or len(given) <= len(calls) or given[len(calls)].function != name
                    else given[len(calls)].answer
                )
                calls.append(_Call(name, _numbers(value), parameters, sensitivity, answer))
                return answer

            return call

        try:
            for name, (owner, key, original) in owners.items():
                setattr(owner, key, wrapped(name, original))
            return observe(release, records[0], records[1], records[0][:4])
        finally:
            for owner, key, original in owners.values():
                setattr(owner, key, original)

    first = run(pair.data, recorded, None)
    if not recorded:
        raise ValueError(f"noise must name functions that a fit calls, got none of {', '.join(noise)}")
    second = run(pair.neighbour, replayed, recorded)
    return _first_difference(recorded, replayed, noise) or _object_difference(first, second, len(recorded))


def _first_difference(recorded: list[_Call], replayed: list[_Call], noise: Mapping[str, Noise]) -> Divergence | None:
    for i, (here, there) in enumerate(zip(recorded, replayed, strict=False)):
        if here.function != there.function:
            return Divergence(i, here.function, f"on the other table {there.function} is called")
        for key in sorted(here.parameters.keys() | there.parameters.keys()):
            one, other = (call.parameters.get(key, "absent") for call in (here, there))
            if one != other:
                return Divergence(i, here.function, f"parameter {key} is {one} on one table and {other} on the other")
        if here.value is None:
            continue
        if here.value.shape != there.value.shape:
            return Divergence(i, here.function, f"the value has shape {here.value.shape}, or {there.value.shape}")
        moved = float(np.linalg.norm((here.value - there.value).ravel(), _NORMS[noise[here.function].norm]))
        if here.sensitivity is not None and not moved <= here.sensitivity * _SLACK:
            return Divergence(i, here.function, f"the value moves by {moved:.4g}, billed for {here.sensitivity:.4g}")
    if len(recorded) != len(replayed):
        n = min(len(recorded), len(replayed))
        return Divergence(n, "the run", f"{len(recorded)} calls on one table, {len(replayed)} on the other")
    return None


def _object_difference(first: Features, second: Features, n_calls: int) -> Divergence | None:
    for name in dict.fromkeys((*first, *second)):
        if name.startswith(("pickle", AGAIN)):  # which follow from the rest
            continue
        one, other = first.get(name, "absent"), second.get(name, "absent")
        if one != other:
            return Divergence(n_calls, "the object", f"{name} is {one} on one table and {other} on the other")
    return None


def _owner(name: str) -> tuple[Any, str, Callable]:
    """The object that holds a function "module:Class.name", its key there, and the function."""
    module, colon, path = name.partition(":")
    try:
        owner: Any = importlib.import_module(module)
        *above, key = path.split(".")
        for part in above:
            owner = getattr(owner, part)
        original = getattr(owner, key)
    except (ImportError, AttributeError, ValueError):
        original = None
    if not colon or not callable(original):
        raise ValueError(f"noise must name functions like module:Class.name, got {name!r}")
    return owner, key, original


def _signature(function: Callable) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:  # of C code
        return None


_NUMPY_LAWS = ("loc", "scale", "size")


def _bound(signature: inspect.Signature | None, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Arguments by their names; those of C code as NumPy's laws have them."""
    if signature is None:
        return dict(zip(_NUMPY_LAWS, args, strict=False)) | kwargs
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _sensitivity(rule: Noise, bound: dict[str, Any]) -> float | None:
    if rule.sensitivity is None:
        return None
    found = bound.get(rule.sensitivity, getattr(bound.get("self"), rule.sensitivity, None))
    if found is None:
        raise ValueError(f"noise must name an argument or attribute as sensitivity, got {rule.sensitivity!r}")
    return float(found)


def _shown(part: Any) -> str:
    """A parameter as text that can be compared; of an object, its numbers and texts."""
    if isinstance(part, np.random.Generator | np.random.RandomState):
        return type(part).__name__
    if hasattr(part, "__dict__"):
        held = {key: value for key, value in vars(part).items() if isinstance(value, int | float | str | np.number)}
        return f"{type(part).__name__} {held}"
    return f"{part:.4g}" if isinstance(part, float | np.floating) else repr(part)[:200]


def _numbers(value: Any) -> np.ndarray | None:
    return None if value is None else np.array(value, dtype=float)
