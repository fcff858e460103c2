"""Where noise comes from, and why nothing that is fitted can give it back.

Without a seed, noise comes from ChaCha20 with a key of 256 bits from the operating system. With an integer, for
reproducing a result, ChaCha20 gets its key from a hash of the integer, of what is computed and of the data. Two things
are left to the caller, and every guarantee made with an integer says so.

*A seed is as secret as the data.* Whoever can guess it can redraw the noise and subtract it: 0 and 42 are no secrets,
`secrets.randbits(128)` is one. Publish results made with `random_state=None`; keep integers for public data, tests and
the pages of a book.

*One seed, two releases.* Were the seed alone the key, then two fits of the same seed on data sets that share records
would have the same noise, and their difference would be that of the exact, un-noised results: no privacy at all, from
two releases that are private each. Here the same integer gives the same noise only for the same estimator, the same
parameters and the same data, where the second release says nothing new; any other question gets unrelated noise, and is
paid for by composition like any other. The exception: entries of floating-point data count to a relative 2^-24 (a
float32), because their last bits depend on the processor and a reproduced result should not. Data sets that agree to
that precision in *every* entry share their noise, so never release two results on such data with one seed.

*One task, two releases.* A fit without a seed inside a task of Dask's `distributed` is refused: the scheduler may run
the task again after its result was seen.

What this cannot do: erase a generator from the memory of a running process, or hide how long drawing took.
"""

import enum
import hashlib
import itertools
import re
import secrets
import sys
from collections.abc import Callable, Iterable
from numbers import Integral
from types import CodeType, FunctionType
from typing import Any, ClassVar

import joblib
import numpy as np
from randomgen import ChaCha
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone

from helpers.validation import DeclaredParameters

SEED_SECRET = "seed of the noise secret: it was chosen by the caller"
_KEY_BYTES = 32
_BLOCK = 1 << 16  # entries hashed at a time, so that no second copy of a large array is made
_DROPPED_BITS = 29  # the bits of a float64's mantissa that a float32 lacks
_FITTED = re.compile(r"[^_].*_")  # names of what a fit sets


class _SystemChaCha(ChaCha):
    """ChaCha20 keyed by the operating system; never copied or stored: its state gives back the noise drawn."""

    def __reduce__(self):
        raise TypeError("a source of private noise cannot be pickled or copied: make one where the noise is drawn")


def secure_generator() -> np.random.Generator:
    """A generator that nobody can predict or repeat: ChaCha20 with a fresh key from the operating system.

    It refuses to be pickled or copied, so that an object that has kept one cannot be published by accident.

    Raises
    ------
    ValueError
        Inside a task of Dask's `distributed`: where a worker is lost after its result was seen, the scheduler runs the
        task again. With other noise that is a second release of the same data, which no guarantee counts. With an
        integer both are the same.
    """
    if "distributed" in sys.modules:  # a process that has not loaded Dask's scheduler runs none of its tasks
        from distributed import get_worker

        try:
            get_worker()
        except ValueError:  # Dask is loaded, but this code does not run on one of its workers
            pass
        else:
            raise ValueError(
                "random_state must be an integer inside a Dask task, got None: a task may run again, and would release "
                "the same data twice"
            )
    return np.random.Generator(_SystemChaCha(key=secrets.randbits(8 * _KEY_BYTES)))


def check_random_state(name: str, random_state: Any) -> int | None:
    """None or an integer of at least 0.

    A `numpy.random.Generator` is refused: it would stay on the estimator, and whoever gets it can wind it back to the
    noise.

    Raises
    ------
    ValueError
        Anything else.

    >>> check_random_state("random_state", None), check_random_state("random_state", 7)
    (None, 7)
    """
    if random_state is None:
        return None
    if isinstance(random_state, bool) or not isinstance(random_state, Integral) or random_state < 0:
        raise ValueError(f"{name} must be None or an integer in [0, inf), which a fit can forget, got {random_state!r}")
    return int(random_state)


def noise_generator(random_state: int | None, *context: Any) -> np.random.Generator:
    """The source of one release's noise.

    Parameters
    ----------
    random_state : None or int
        None: `secure_generator`. An integer: a generator keyed by the integer and the context.
    context : arrays and other values
        What is computed, and from which data: everything that the release depends on. Arrays of floats count to a
        relative 2^-24, all else exactly. Not looked at without an integer.

    Raises
    ------
    ValueError
        As `check_random_state`.

    Source: the deterministic nonces of RFC 6979 (Pornin 2013), for the same reason: a nonce used for two messages
    gives the secret away.

    >>> one, same, other = (noise_generator(7, "mean", np.array(x)) for x in ([1.0], [1.0], [2.0]))
    >>> one.normal() == same.normal(), one.normal() == other.normal()
    (True, False)
    """
    seed = check_random_state("random_state", random_state)
    if seed is None:
        return secure_generator()
    parts = (_array_digest(item, exact=False) if _is_array(item) else _digest(item) for item in context)
    # Data counts to a float32, so that a result can be reproduced on another processor; parameters count exactly.
    key = _node("noise", itertools.chain([_digest(seed)], parts))
    return np.random.Generator(ChaCha(np.random.SeedSequence(int.from_bytes(key, "big"))))


def noise_assumptions(rng: np.random.Generator) -> tuple[str, ...]:
    """What a guarantee has to assume about the source of its noise: nothing if it is `secure_generator`'s.

    >>> noise_assumptions(secure_generator()), noise_assumptions(np.random.default_rng(0))
    ((), ('seed of the noise secret: it was chosen by the caller',))
    """
    return () if isinstance(rng.bit_generator, _SystemChaCha) else (SEED_SECRET,)


def child_state(random_state: int | None, rng: np.random.Generator) -> int | None:
    """A `random_state` for a learner in an ensemble: None if the ensemble has none, else an integer from `rng`."""
    return None if random_state is None else int(rng.integers(2**63))


class PrivateMixin(DeclaredParameters):
    """What private estimators and resamplers do with their `random_state`; stands left of `BaseEstimator`.

    The parameter stays where scikit-learn wants it, on the object in memory (where its `repr` shows it). A pickled or
    copied *fitted* object has None in its place, and so have the unfitted estimators among its parameters, because
    pickling it is publishing it. The generator made from it is never kept.

    One integer must not serve two releases on related data: see the module's docstring for what is done against the
    accident, and for what is not.

    Raises
    ------
    TypeError
        From the definition of a class that has `BaseEstimator` further left, whose pickles would keep the seed.
    """

    random_state: int | None
    get_params: Callable[..., dict[str, Any]]  # scikit-learn's
    _get_param_names: Callable[[], list[str]]
    _allowed: ClassVar[dict] = {"random_state": check_random_state}

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        order = cls.__mro__
        if BaseEstimator in order and order.index(BaseEstimator) < order.index(PrivateMixin):
            raise TypeError(f"{cls.__name__} must have PrivateMixin left of BaseEstimator among its bases")

    def _noise_generator(self, *data: np.ndarray) -> np.random.Generator:
        """The source of this fit's noise, from `random_state`, the class, all other parameters and the data.

        `data` is all that was passed to `fit`: what is left out here could change while the noise stays.
        """
        if self.random_state is None:
            return secure_generator()
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name != "random_state"}
        return noise_generator(self.random_state, type(self), parameters, *data)

    def _forget(self) -> None:
        """Remove what an earlier fit has set: not every combination of parameters sets the same."""
        for name in filter(_FITTED.fullmatch, list(vars(self))):
            delattr(self, name)

    def __getstate__(self):
        state: Any = super().__getstate__()
        if not any(map(_FITTED.fullmatch, state)):
            return state  # a worker process needs the seed
        parameters = {name: _without_seed(state[name]) for name in self._get_param_names() if name in state}
        # Fitted: pickling it is publishing it, so seeds are left out of it and of the estimators among its parameters.
        return state | parameters | ({"random_state": None} if "random_state" in state else {})


def _without_seed(parameter: Any) -> Any:
    """A parameter of a fitted object; if it is an unfitted estimator, one that has forgotten its seeds."""
    if not isinstance(parameter, BaseEstimator) or any(map(_FITTED.fullmatch, vars(parameter))):
        return parameter
    seeds = {name: None for name in parameter.get_params() if name.split("__")[-1] == "random_state"}
    return clone(parameter).set_params(**seeds) if seeds else parameter


# Hashes of values: the same in every process, whatever an array's memory layout or byte order


def _node(tag: str, parts: Iterable[bytes]) -> bytes:
    """Hash of a tag and parts, each with its length, so that no two lists of parts read the same."""
    digest = hashlib.blake2b(digest_size=_KEY_BYTES)
    for part in itertools.chain([tag.encode()], parts):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _digest(item: Any) -> bytes:
    """Hash of a value by its type and content; unknown kinds are pickled, which fails loudly where it cannot."""
    # A NumPy number and the Python number of the same value have to give the same noise.
    if isinstance(item, np.generic):
        item = item.item()
    kind = f"{type(item).__module__}.{type(item).__qualname__}"
    match item:
        case type() | FunctionType():
            held: tuple = ()  # what a function depends on besides its arguments; a class is known by its name
            if isinstance(item, FunctionType):
                closed_over = [cell.cell_contents for cell in item.__closure__ or ()]
                held = item.__code__, item.__defaults__, item.__kwdefaults__, closed_over
            return _node("definition", [f"{item.__module__}.{item.__qualname__}".encode(), *map(_digest, held)])
        case CodeType():
            return _node("code", map(_digest, (item.co_code, item.co_names, item.co_consts)))
        case None | bool() | int() | float() | complex() | str() | bytes() | range() | enum.Enum():
            return _node(kind, [repr(item).encode()])
        case list() | tuple():
            return _node(kind, map(_digest, item))
        case set() | frozenset():
            # Sets and dicts have no order that is the same in every process: their parts are sorted.
            return _node(kind, sorted(map(_digest, item)))
        case dict():
            return _node(kind, sorted(_digest(pair) for pair in item.items()))
        case BaseEstimator():
            return _node(kind, [_digest(vars(item))])
    if _is_array(item):
        return _array_digest(item, exact=True)
    return _node(kind, [joblib.hash(item).encode()])


def _is_array(item: Any) -> bool:
    """Whether it is an array, a data frame or the like, or a sparse matrix; NumPy's single numbers are none."""
    return issparse(item) or (hasattr(item, "__array__") and not isinstance(item, np.generic))


def _array_digest(item: Any, *, exact: bool) -> bytes:
    """Hash of shape, kind and entries; floats count exactly, or to the 24 bits of a float32."""
    if issparse(item):
        # One form for all sparse matrices of the same content; a copy, because the next line changes it.
        item = item.tocsr(copy=True)
        item.sum_duplicates()
        arrays = (np.array(item.shape), item.indptr, item.indices, item.data)
        return _node("sparse", (_array_digest(array, exact=exact) for array in arrays))
    item = np.asarray(item)
    flat, shape = item.reshape(-1), repr(item.shape).encode()
    if item.dtype.kind not in "biuf":
        return _node("objects", itertools.chain([shape], map(_digest, flat.tolist())))

    def bits(block):
        if item.dtype.kind != "f":
            return block.astype("<i8")
        found = (block.astype("<f8") + 0.0).view("<u8")  # -0.0 becomes 0.0
        # The mantissa is rounded to a float32's, but not the exponent: tiny values stay different.
        half = np.uint64(1 << (_DROPPED_BITS - 1))
        return found if exact else (found + half) >> np.uint64(_DROPPED_BITS)

    blocks = (flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK))
    return _node(item.dtype.kind, itertools.chain([shape], (bits(block).tobytes() for block in blocks)))
