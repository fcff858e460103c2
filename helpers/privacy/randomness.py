"""Where noise comes from, and why nothing that is fitted can give it back.

Without a seed, noise comes from ChaCha20 with a key of 256 bits from the operating system. With an integer, for
reproducing a result, the key is a hash of the integer, of what is computed and of the data: one integer used twice
gives the same release for the same question, which tells nothing new, and unrelated noise for any other. That the
integer itself stays secret is an assumption, and every guarantee made with one says so.
"""

import hashlib
import secrets
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike
from randomgen import ChaCha

from helpers.checks import check_integer

SEED_SECRET = "seed of the noise secret: it was chosen by the caller"
_KEY_BYTES = 32
_BLOCK = 8192  # rows hashed at a time


def secure_generator() -> np.random.Generator:
    """A generator that nobody can predict, rewind or repeat: ChaCha20 with a fresh key from the operating system."""
    return np.random.Generator(ChaCha(key=secrets.randbits(8 * _KEY_BYTES)))


def check_random_state(random_state: Any, name: str = "random_state") -> int | None:
    """None or an integer >= 0.

    A `numpy.random.Generator` is refused: it would stay on the estimator, and whoever gets it can wind it back to the
    noise.

    Raises
    ------
    ValueError
        Anything else.

    >>> check_random_state(None), check_random_state(7)
    (None, 7)
    """
    if random_state is None:
        return None
    if isinstance(random_state, np.random.Generator | np.random.RandomState | np.random.BitGenerator):
        raise ValueError(
            f"{name} must be None or an integer, which can be forgotten after the fit, got {random_state!r}"
        )
    return check_integer(name, random_state, low=0)


def noise_generator(random_state: int | None, *context: Any) -> np.random.Generator:
    """The source of one release's noise.

    Parameters
    ----------
    random_state : None or int
        None: `secure_generator`. An integer: a generator keyed by the integer and the context.
    context : arrays, and values that joblib can hash
        What is computed, and from which data. Arrays of floats count to the precision of a float32, so that the last
        bits, which depend on the processor, do not change the noise. Not looked at without an integer.

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
    if check_random_state(random_state) is None:
        return secure_generator()
    digest = hashlib.blake2b(str(int(random_state)).encode(), digest_size=_KEY_BYTES)
    for item in context:
        _absorb(digest, item)
    return np.random.default_rng(np.random.SeedSequence(int.from_bytes(digest.digest(), "big")))


def noise_assumptions(rng: np.random.Generator) -> tuple[str, ...]:
    """What a guarantee has to assume about the source of its noise: nothing if it is `secure_generator`'s.

    >>> noise_assumptions(secure_generator()), noise_assumptions(np.random.default_rng(0))
    ((), ('seed of the noise secret: it was chosen by the caller',))
    """
    return () if isinstance(rng.bit_generator, ChaCha) else (SEED_SECRET,)


def child_state(random_state: int | None, rng: np.random.Generator) -> int | None:
    """A `random_state` for one part of an ensemble: None where the whole has none, else a number of its own."""
    return None if random_state is None else int(rng.integers(2**63))


def _absorb(digest, item: ArrayLike) -> None:
    if not isinstance(item, np.ndarray):
        digest.update(joblib.hash(item).encode())
        return
    digest.update(f"{item.shape}{item.dtype.kind}".encode())
    if item.dtype.kind != "f":
        digest.update(joblib.hash(np.ascontiguousarray(item)).encode())
        return
    with np.errstate(over="ignore"):
        for start in range(0, len(item), _BLOCK):
            block = np.ascontiguousarray(item[start : start + _BLOCK], dtype=np.float32)
            digest.update((block + np.float32(0)).tobytes())  # -0.0 is 0.0


class PrivateMixin:
    """What private estimators and resamplers do with their `random_state`.

    The parameter stays where scikit-learn wants it, on the object in memory; a pickled or copied *fitted* object has
    None in its place, because pickling it is publishing it. The generator made from it is never kept.
    """

    def _noise_generator(self, *data: np.ndarray) -> np.random.Generator:
        """The source of this fit's noise, from `random_state`, the class, all other parameters and the data."""
        if check_random_state(self.random_state) is None:
            return secure_generator()
        parameters = {name: value for name, value in self.get_params().items() if name != "random_state"}
        return noise_generator(self.random_state, type(self).__name__, sorted(parameters.items(), key=repr), *data)

    def __getstate__(self):
        state = super().__getstate__()
        fitted = any(name.endswith("_") and not name.startswith("_") for name in state)
        return state | {"random_state": None} if fitted and "random_state" in state else state
