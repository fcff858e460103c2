"""What one fit shows: the fitted object with all that it holds and says, and all that the fit leaves behind.

`observe` runs a release once and reduces what can be seen to named features, each a number or a text: the tree of the
object's attributes with presence, types, shapes, numbers and the finest bits of floats; its pickle; what it predicts;
warnings, the text of an exception, printed text and files. Nothing is left out because it looks harmless: an exception
is an outcome like any other.

The file needs NumPy and the standard library alone, so that an interpreter with the audited library in it can run it.
There it answers one request after the other on its standard input and output (`serve`).
"""

import contextlib
import copy
import functools
import hashlib
import importlib.util
import inspect
import io
import math
import os
import pickle
import platform
import re
import struct
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

Features = dict[str, float | str]
"""From names such as "estimators_.0.coef_[1]" to a number or a text."""

AGAIN = "drawn again from "
_VERSIONS = (
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "torch",
    "opacus",
    "diffprivlib",
    "interpret-core",
    "DataSynthesizer",
    "opendp",
)
_MOST_NUMBERS = 2_000  # of one array that become features; the rest is in a digest
_MOST_BITS = 32  # floats of one array whose finest bit is a feature
_MOST_DEPTH = 40
_MOST_SEEDS = 4  # seeds and generators that noise is drawn from again
_DRAWS = 12  # numbers of each law
_SEED_NAME = re.compile(r"seed|random_state|entropy", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")  # of an object in memory


def observe(release: Callable[[Any, Any], Any], X: Any, y: Any, probes: Any = None, *, clock: bool = False) -> Features:
    """Features of one run of `release(X, y)`, in a folder of its own.

    Parameters
    ----------
    release : callable
        Takes records and labels, which it gets as copies, and returns whatever is published.
    X, y : array (n, d) or DataFrame, array (n,)
        The records.
    probes : like X, optional
        Public rows that the object is asked to predict.
    clock : bool
        Whether CPU time is part of what is seen.
    """
    features: Features = {}
    printed = io.StringIO()
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                started = time.process_time()
                try:
                    found = release(copy.deepcopy(X), copy.deepcopy(y))
                except Exception as error:  # whatever it is, it is what the caller gets to see
                    found = None
                    features |= _text("exception", f"{type(error).__name__}: {error}")
                seconds = time.process_time() - started
                features |= _object(found, probes)
        finally:
            os.chdir(here)
        for place, warning in enumerate(warned):
            features |= _text(f"warning {place}", f"{warning.category.__name__}: {warning.message}")
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                features[f"file {file.name} size"] = float(file.stat().st_size)
                features |= _text(f"file {file.name}", file.read_bytes()[:100_000].decode("utf-8", "replace"))
        features |= _text("printed", printed.getvalue())
        features = {name: _placeless(value, folder) for name, value in features.items()}
    if clock:
        features["CPU seconds"] = seconds
    return features


def _placeless(value: float | str, folder: str) -> float | str:
    """Text without the name of the folder and without addresses, which chance alone decides."""
    return _ADDRESS.sub("0x", value.replace(folder, "folder")) if isinstance(value, str) else value


def _text(name: str, text: str) -> Features:
    """A text and the numbers in it."""
    if not text:
        return {}
    numbers = _NUMBER.findall(text)[:50]
    return {name: text[:2_000], **{f"{name} number {i}": float(number) for i, number in enumerate(numbers)}}


def _object(found: Any, probes: Any) -> Features:
    """The object, its pickle, what it predicts, and noise drawn again from seeds that are in it."""
    seeds: list[tuple[str, Any]] = []
    features = dict(_walk(found, "", set(), seeds, 0))
    try:
        stored = pickle.dumps(found)
        features |= {"pickle size": float(len(stored)), "pickle": hashlib.sha256(stored).hexdigest()}
    except Exception as error:
        features["pickle"] = f"none: {type(error).__name__}"
    for method in ("predict_proba", "decision_function", "predict", "sample"):
        if probes is None or not callable(getattr(found, method, None)) or inspect.isclass(found):
            continue
        try:
            answer = getattr(found, method)(len(probes) if method == "sample" else copy.deepcopy(probes))
        except Exception as error:
            features |= _text(f"{method}()", f"{type(error).__name__}: {error}")
        else:
            features |= dict(_walk(answer, f"{method}()", set(), [], 0))
    for name, source in seeds[:_MOST_SEEDS]:
        features |= _drawn_again(name, source)
    return features


def _walk(item: Any, name: str, above: set[int], seeds: list, depth: int) -> Iterator[tuple[str, float | str]]:
    """Name and value of everything that `item` holds; `above` are the objects that we are in, so that circles end."""
    if id(item) in above or depth > _MOST_DEPTH:
        yield name, "again"
        return
    if isinstance(item, Enum):
        item = str(item)
    if isinstance(item, np.generic):
        item = item.item()
    if item is None or isinstance(item, bool | str | bytes | complex):
        yield name, f"{type(item).__name__} {item!r}"[:2_000]
        return
    if isinstance(item, int | float):
        if isinstance(item, int) and _SEED_NAME.search(name):
            seeds.append((name, item))
        if not math.isfinite(item) or abs(item) > 2**53:  # more digits than a float has
            yield name, repr(item)
            return
        yield name, float(item)
        if isinstance(item, float):
            yield f"{name} finest bit", float(_finest_bits(np.array([item]))[0])
        return
    if isinstance(item, np.random.Generator | np.random.BitGenerator | np.random.RandomState):
        seeds.append((name, item))
    inside = above | {id(item)}
    for part, value in _parts(item, name):
        if value is _MARK:
            yield part, ""
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            yield from _numbers(value, part)
        else:
            yield from _walk(value, part, inside, seeds, depth + 1)


_MARK = object()


def _hashed(state: Mapping[str, Any]) -> dict[str, Any]:
    """A generator's state with a digest in place of each array: hundreds of numbers of chance would bury all others."""
    return {
        key: _hashed(part)
        if isinstance(part, Mapping)
        else hashlib.sha256(part.tobytes()).hexdigest()
        if isinstance(part, np.ndarray)
        else part
        for key, part in state.items()
    }


def _parts(item: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What an object that is no single value consists of."""
    dot = f"{name}." if name else ""
    kind = f"{type(item).__module__}.{type(item).__qualname__}"
    if isinstance(item, np.ndarray):
        yield f"{name} shape", f"{item.dtype.kind} {item.shape}"
        if item.dtype.kind in "biuf":
            yield name, item
        else:
            yield from ((f"{name}[{i}]", part) for i, part in enumerate(item.ravel().tolist()[:_MOST_NUMBERS]))
    elif isinstance(item, dict):
        yield f"{name} keys", repr([str(key) for key in item])[:2_000]
        yield from ((f"{dot}{key}", part) for key, part in item.items())
    elif isinstance(item, list | tuple):
        yield f"{name} length", len(item)
        yield from ((f"{dot}{i}", part) for i, part in enumerate(item[:_MOST_NUMBERS]))
    elif isinstance(item, set | frozenset):
        yield f"{name} order", repr(list(item))[:2_000]  # which may tell in what order the parts came
        yield from ((f"{dot}{part}", True) for part in item)
    elif isinstance(item, np.random.RandomState):
        yield f"{dot}state", _hashed(item.get_state(legacy=False))
    elif isinstance(item, np.random.Generator):
        yield f"{dot}state", _hashed(item.bit_generator.state)
    elif isinstance(item, np.random.BitGenerator):
        yield f"{dot}state", _hashed(item.state)
    elif inspect.isclass(item) or inspect.ismodule(item) or isinstance(item, types.BuiltinFunctionType):
        yield f"{name} is {getattr(item, '__qualname__', kind)}", _MARK
    elif isinstance(item, types.FunctionType | types.MethodType):
        yield f"{name} is {item.__qualname__}", _MARK
        cells = [cell.cell_contents for cell in getattr(item, "__closure__", None) or ()]
        held = [getattr(item, key, None) for key in ("__self__", "__defaults__", "__kwdefaults__")]
        yield from ((f"{dot}holds {i}", part) for i, part in enumerate([*cells, *held]) if part is not None)
    elif callable(getattr(item, "detach", None)):  # a tensor
        yield name, item.detach().cpu().numpy()
    elif callable(getattr(item, "tocoo", None)):  # a sparse matrix
        yield f"{name} kind", kind
        yield from ((f"{dot}{key}", np.asarray(getattr(item.tocoo(), key))) for key in ("data", "row", "col"))
    elif callable(getattr(item, "to_numpy", None)):  # of pandas
        yield f"{name} kind", kind
        columns = list(getattr(item, "columns", ()))
        yield f"{dot}columns", [str(column) for column in columns]
        for i, column in enumerate(columns):
            yield f"{dot}{column}", item.iloc[:, i].to_numpy()
        if not columns:
            yield f"{dot}values", item.to_numpy()
    else:
        yield f"{name} kind", kind
        yield from ((f"{dot}{key}", part) for key, part in _state(item).items())


def _state(item: Any) -> dict:
    """Attributes of an object, those in slots too; of one of C code, what it would pickle."""
    held = dict(getattr(item, "__dict__", {}))
    for slot in {name for cls in type(item).__mro__ for name in getattr(cls, "__slots__", ()) if name != "__dict__"}:
        if hasattr(item, slot):
            held[slot] = getattr(item, slot)
    if not held:
        try:
            state = item.__reduce_ex__(2)[2]
        except Exception:
            return {}
        return state if isinstance(state, dict) else {} if state is None else {"state": state}
    return held


def _numbers(array: np.ndarray, name: str) -> Iterator[tuple[str, float | str]]:
    """Numbers of an array with their sum, the finest bits of its first floats, and a digest where there are more."""
    flat = array.ravel()
    if flat.size > _MOST_NUMBERS:
        yield f"{name} digest", hashlib.sha256(np.ascontiguousarray(flat).tobytes()).hexdigest()
        flat = flat[:_MOST_NUMBERS]
    if 1 < flat.size <= _MOST_NUMBERS and array.dtype.kind in "iuf":
        total = round(float(flat.astype(float).sum()), 6)  # of counts, say, which noise may leave as it is
        yield f"{name} sum", total if math.isfinite(total) else repr(total)
    for i, number in enumerate(flat.tolist()):
        number = float(number)
        yield f"{name}[{i}]", number if math.isfinite(number) else repr(number)
    if array.dtype.kind == "f":
        for i, bit in enumerate(_finest_bits(flat[:_MOST_BITS].astype(float)).tolist()):
            yield f"{name}[{i}] finest bit", float(bit)


def _finest_bits(numbers: np.ndarray) -> np.ndarray:
    """Exponent of the last bit of each float that is 1; -1075 for 0 and for what is no number."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(numbers), numbers, 0.0))
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    lowest = np.log2(np.maximum(whole & -whole, 1)).astype(int)
    return np.where(whole > 0, exponent - 53 + lowest, -1075)


def _drawn_again(name: str, source: Any) -> Features:
    """Numbers that a seed gives, or that a generator has just given."""
    draws: Features = {}
    try:
        if isinstance(source, int):
            makers = {"default_rng": np.random.default_rng, "RandomState": np.random.RandomState}
            for maker, make in makers.items():
                for law in ("normal", "laplace", "exponential", "random"):
                    draw = getattr(make(source % 2**32 if maker == "RandomState" else source), law)
                    for i, number in enumerate(draw(size=_DRAWS)):
                        draws[f"{AGAIN}{name} ({maker}, {law} {i})"] = float(number)
        else:
            bits = copy.deepcopy(getattr(source, "bit_generator", source))
            for back in range(1, _DRAWS + 1):
                for law in ("normal", "laplace", "exponential", "random"):
                    rewound = copy.deepcopy(bits)
                    rewound.advance((1 << 128) - back)  # PCG64 and Philox have a period of 2^128 or more
                    draws[f"{AGAIN}{name} ({law}, {back} back)"] = float(getattr(np.random.Generator(rewound), law)())
    except Exception:  # a generator that cannot be wound back; that it is there was said already
        return draws
    return draws


# The other interpreter


def load(target: str) -> Callable[[Any, Any], Any]:
    """The release that "FILE.py" or "FILE.py:NAME" names; see `as_release`.

    Raises
    ------
    ValueError
        There is no such file or name, or it is nothing that can be fitted.
    """
    file, _, name = target.partition(".py:")
    path = Path(file if not name else f"{file}.py")
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"target must be FILE.py or FILE.py:NAME, got {target!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except Exception as error:
        raise ValueError(f"{path.name} must be importable, got {type(error).__name__}: {error}") from None
    name = name or "build"
    if not hasattr(module, name):
        raise ValueError(f"target must name something of {path.name}, which has no {name!r}")
    return as_release(getattr(module, name))


def as_release(build: Any) -> Callable[[Any, Any], Any]:
    """A function of records and labels made of what a user has.

    Parameters
    ----------
    build : class, callable or object
        A class or function without arguments, whose result has `fit(X, y)`; an object that has it, which is copied for
        every fit; or a function of X and y that returns what is published.

    Raises
    ------
    ValueError
        It is none of these.
    """
    if hasattr(build, "fit") and not inspect.isclass(build):
        return lambda X, y: _fitted(_afresh(build), X, y)
    if not callable(build):
        raise ValueError(f"build must be a class, a function or an object with fit, got {type(build).__name__}")
    try:
        needed = [
            parameter
            for parameter in inspect.signature(build).parameters.values()
            if parameter.default is parameter.empty and parameter.kind in (0, 1)
        ]
    except ValueError:
        needed = []
    if len(needed) == 2:
        return build
    if needed:
        raise ValueError(f"build must take no argument or X and y, got one that needs {len(needed)}")
    return lambda X, y: _fitted(build(), X, y)


def _afresh(model: Any) -> Any:
    """A copy of the object whose own generators are new ones, since copies of one would draw the same noise."""
    model = copy.deepcopy(model)
    for name, value in vars(model).items():
        if isinstance(value, np.random.Generator):
            setattr(model, name, np.random.default_rng())
        elif isinstance(value, np.random.RandomState):
            setattr(model, name, np.random.RandomState())
    return model


def _fitted(model: Any, X: Any, y: Any) -> Any:
    """The model after `fit`."""
    model.fit(X, y)
    return model


def serve(target: str) -> None:
    """Answer requests (X, y, probes, clock) with features, each pickled behind its length, until there are no more."""
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever C code prints must not come between the answers

    def answer(value: Any) -> None:
        content = pickle.dumps(value, protocol=4)
        outgoing.write(struct.pack("<Q", len(content)) + content)
        outgoing.flush()

    try:
        release = load(target)
        answer(None)
    except ValueError as error:
        answer(error)
        return
    while size := incoming.read(8):
        question = pickle.loads(incoming.read(*struct.unpack("<Q", size)))
        if question is None:
            answer(versions())
            continue
        X, y, probes, clock = question
        answer(observe(release, *map(_table, (X, y, probes)), clock=clock))


@functools.cache
def versions() -> dict[str, str]:
    """Of Python, and of the installed packages that a fit most often depends on."""
    found = {one.metadata["Name"]: one.version for one in metadata.distributions() if one.metadata["Name"]}
    return {"python": platform.python_version()} | {name: found[name] for name in _VERSIONS if name in found}


def _table(value: Any) -> Any:
    """A dict of columns as a DataFrame of this interpreter's own pandas."""
    if not isinstance(value, dict):
        return value
    import pandas as pd

    return pd.DataFrame(value)
