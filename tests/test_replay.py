"""A fitted object depends on its records through its releases alone.

One fit is recorded: what leaves the functions that add noise, and the public terms of each release. Then the estimator
is fitted to *other* records (another number of them where the relation adds and removes), while the recorded answers
are given in place of its own. Whoever has nothing but the releases must arrive at the same object: the same attributes,
the same predictions or samples, and the same public terms at every release.
"""

import hashlib
import inspect
import itertools
import types

import inventory
import numpy as np
import pytest
import torch

from helpers.erm import OutputPerturbationClassifier
from helpers.neural import training
from helpers.privacy import ADD_REMOVE, mechanisms, randomness

# Where noise is added to a value, or a choice is made at random: the value comes first, all else is public.
RELEASING = ("to_grid", "exponential", "discrete_laplace", "report_noisy_max")


class Tape:
    """Answers of one fit, to be given again."""

    def __init__(self):
        self.answers, self.at, self.replaying = [], 0, False

    def next(self, terms, answer):
        """Keep the answer; or hold the terms against those recorded, and return the answer recorded with them."""
        if not self.replaying:
            self.answers.append((terms, answer))
            return answer
        assert self.at < len(self.answers), "a release that the first fit did not make"
        recorded, answer = self.answers[self.at]
        self.at += 1
        assert terms == recorded, "public terms of a release depend on the records"
        return answer


def described(value):
    """Public terms as text that can be compared."""
    if isinstance(value, np.random.Generator):
        return "generator"
    return repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value)


def taped(function, tape):
    """A function that adds noise to its first argument, on a tape."""

    def wrapped(value, *args, **kwargs):
        own = function(value, *args, **kwargs)  # with the same draws from the generator in either fit
        terms = (function.__name__, np.shape(value), *map(described, args), *map(described, kwargs.values()))
        return tape.next(terms, own)

    return wrapped


def put_on(tape, patch):
    """Let everything that leaves with noise go over one tape."""
    for name in RELEASING:
        original = getattr(mechanisms, name)
        for module in inventory.modules():
            if vars(module).get(name) is original:
                patch.setattr(module, name, taped(original, tape))
    original_sums, sample = training.ClippedSums.__call__, training.poisson_sample

    def sums(self, X, y, *args, **kwargs):
        return tape.next(("clipped sums", *map(described, args)), original_sums(self, X, y, *args, **kwargs))

    # Noise is added to these sums after they are made, from a generator of the step's own. Its sample draws a number
    # for each record first, which would move the noise that follows.
    patch.setattr(training.ClippedSums, "__call__", sums)
    patch.setattr(training, "poisson_sample", lambda n, rate, rng: sample(n, rate, np.random.default_rng(0)))


def fitted(cls, parameters, records, patch):
    """A fit whose secret draws come from keys that count from zero, so that two fits draw the same."""
    keys = (hashlib.sha256(f"replay {i}".encode()).digest() for i in itertools.count())
    drawn = types.SimpleNamespace(randbits=lambda bits: int.from_bytes(next(keys), "big") % (1 << bits))
    patch.setattr(randomness, "secrets", drawn)
    return inventory.fit(inventory.build(cls, **parameters), *records)


def others(model, parameters, X, y):
    """Other records with the same columns and classes: another number of them where the model hides that."""
    is_hidden = model.guarantee_.neighbouring == ADD_REMOVE and "n_records" not in parameters
    n = len(X) + (7 if is_hidden else 0)
    X = np.random.default_rng(1).uniform(-0.4, 0.4, (n, X.shape[1]))
    return X, y[::-1] if parameters.get("counts") == "public" else np.resize([0, 1, 1, 0, 0], n)


def tree(value, seen=()):
    """What an object holds, as nested tuples that can be compared; generators and code count by their type."""
    if isinstance(value, torch.nn.Module):
        return tree(value.state_dict(), seen)
    if isinstance(value, torch.Tensor):
        return ("tensor", value.detach().cpu().numpy().tobytes())
    if isinstance(value, np.ndarray):
        return (
            "array",
            value.shape,
            [tree(part, seen) for part in value] if value.dtype == object else value.tobytes(),
        )
    if isinstance(value, dict):
        return tuple((repr(key), tree(part, seen)) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(tree(part, seen) for part in value)
    if inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, np.random.Generator):
        return getattr(value, "__qualname__", type(value).__name__)
    if hasattr(value, "__dict__") and id(value) not in seen:
        return type(value).__name__, tree(vars(value), (*seen, id(value)))
    return repr(value)


def outputs(model, X):
    """What a user can ask of it at public records, without further noise."""
    asked = [name for name in ("decision_function", "predict_proba", "predict") if hasattr(model, name)]
    found = [getattr(model, name)(X) for name in asked]
    if hasattr(model, "sample"):
        found += model.sample(20, random_state=0)
    return found


@pytest.mark.parametrize("cls", [cls for cls in inventory.private() if not hasattr(cls, "fit_resample")])
def test_nothing_but_releases_reaches_the_object(cls):
    """In every variant of its parameters. Samplers release nothing by themselves."""
    X, y = inventory.data(cls)
    for parameters in inventory.variants(cls):
        tape = Tape()
        with pytest.MonkeyPatch.context() as patch:
            put_on(tape, patch)
            first = fitted(cls, parameters, (X, y), patch)
            tape.replaying = True
            second = fitted(cls, parameters, others(first, parameters, X, y), patch)
        assert tape.answers, f"{parameters}: no release at all"
        assert tape.at == len(tape.answers), f"{parameters}: fewer releases than in the first fit"
        assert tree(vars(first)) == tree(vars(second)), parameters
        for mine, yours in zip(outputs(first, X), outputs(second, X), strict=True):
            np.testing.assert_array_equal(mine, yours, err_msg=str(parameters))


class Leaky(OutputPerturbationClassifier):
    """Adds something exact to what it has released."""

    leak = "mean"

    def fit(self, X, y):
        super().fit(X, y)
        if self.leak == "mean":
            self.mean_ = X.mean()
        elif self.leak == "coefficients":
            self.coef_ = self.coef_ + 1e-9 * X[0, 0]
        else:
            mechanisms.to_grid(X[0], abs(X[0, 0]))
        return self


@pytest.mark.parametrize(
    ("leak", "noticed"), [("mean", False), ("coefficients", False), ("scale", "public terms of a release")]
)
def test_what_passes_the_releases_by_is_noticed(leak, noticed, monkeypatch):
    monkeypatch.setattr(Leaky, "leak", leak)
    X, y = inventory.data(OutputPerturbationClassifier)
    tape, parameters = Tape(), {"epsilon": 1.0, "regularization": 0.1}
    put_on(tape, monkeypatch)
    first = fitted(Leaky, parameters, (X, y), monkeypatch)
    tape.replaying = True
    if noticed:
        with pytest.raises(AssertionError, match=noticed):
            fitted(Leaky, parameters, others(first, parameters, X, y), monkeypatch)
    else:
        second = fitted(Leaky, parameters, others(first, parameters, X, y), monkeypatch)
        assert tree(vars(first)) != tree(vars(second))
