"""Every public estimator and sampler of the package, found by walking it, and a way to build each by its parameters."""

import importlib
import inspect
import pkgutil
import re
from functools import cache
from types import ModuleType

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._testing import ignore_warnings

import checks
import helpers
from helpers.privacy import ADD_REMOVE, PrivateMixin
from helpers.resampling.base import StableSampler

# Values by a parameter's name, the same for every class: where there is no default, or None that means "to be given",
_NEEDED = {
    # A wrapper sets its budget; one whose learners need not be private leaves it, and then it should not matter.
    "estimator": lambda: _class("OutputPerturbationClassifier")(epsilon=1e4, regularization=0.1),
    "param_grid": lambda: {"regularization": [0.05, 0.5]},
    "multiplicity": lambda: 2,
}
_REQUIRED = _NEEDED | {"n_new": lambda: 4, "n_minority": lambda: 12}
# and where the default is slower than a test wants.
_QUICK = {"n_frequencies": 4, "n_estimators": 3, "n_steps": 5, "sweeps": 5, "epochs": 1}
_QUICK |= {"n_samples": 40, "T": 2, "max_iters": 2, "n_components": 4}


@cache
def modules() -> tuple[ModuleType, ...]:
    """All modules of `helpers` and `checks`, loaded."""
    found = [*pkgutil.walk_packages(helpers.__path__, "helpers."), *pkgutil.walk_packages(checks.__path__, "checks.")]
    return tuple(importlib.import_module(module.name) for module in found)


@cache
def estimators() -> tuple[type, ...]:
    """All public classes of `helpers` and `checks` with `fit` and parameters of their own, in order of their names.

    Classes that cannot be built, because they are abstract or take no parameters at all, only serve as bases.
    """
    found = {}
    for module in modules():
        for name, item in inspect.getmembers(module, inspect.isclass):
            usable = issubclass(item, BaseEstimator) and hasattr(item, "fit") and not inspect.isabstract(item)
            if usable and not name.startswith("_") and item.__module__ == module.__name__ and item._get_param_names():
                found[name] = item
    return tuple(found[name] for name in sorted(found))


def samplers() -> tuple[type, ...]:
    """Those that copy or blend records, and say how many rows one record moves."""
    return tuple(cls for cls in estimators() if issubclass(cls, StableSampler))


def classifiers() -> tuple[type, ...]:
    return tuple(cls for cls in estimators() if hasattr(cls, "predict"))


def private() -> tuple[type, ...]:
    """Those that draw noise which has to stay secret."""
    return tuple(cls for cls in estimators() if issubclass(cls, PrivateMixin))


def private_classifiers() -> tuple[type, ...]:
    return tuple(cls for cls in private() if hasattr(cls, "predict"))


def build(cls: type, **parameters) -> BaseEstimator:
    """An instance with defaults, and with other values where defaults do not work or are slow."""
    values = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.default is inspect.Parameter.empty and name in _REQUIRED:
            values[name] = _REQUIRED[name]()
        elif parameter.default is None and name in _NEEDED:
            values[name] = _NEEDED[name]()
        elif name in _QUICK:
            values[name] = _QUICK[name]
    return cls(**(values | parameters))


def parameter_names(cls: type) -> list[str]:
    return list(cls._get_param_names())


def fit(model: BaseEstimator, X, y) -> BaseEstimator:
    """The model after `fit`, or after `fit_resample` where there is that; warnings about leaks are not the subject."""
    with ignore_warnings():
        if hasattr(model, "fit_resample"):
            model.fit_resample(X, y)
        else:
            model.fit(X, y)
    return model


@cache
def n_features(cls: type) -> int:
    """2, or 1 for what takes only that."""
    try:
        fit(build(cls), *_records(2))
    except ValueError:
        return 1
    return 2


def data(cls: type):
    """Public records in the unit ball, a third of them in class 1, the minority."""
    return _records(n_features(cls))


def _records(n_columns: int):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (60, n_columns))
    y = (np.arange(len(X)) % 3 == 0).astype(int)
    X[:, 0] += np.where(y == 1, 0.2, -0.2)
    return X, y


def neighbour(X, y):
    """The same records, the last one replaced: the other label, at the other end of the ball."""
    X, y = X.copy(), y.copy()
    X[-1], y[-1] = -X[-1] / np.linalg.norm(X[-1]), 1 - y[-1]
    return X, y


# Values worth trying by a parameter's name, and what else a value needs.
_OTHERS = {
    "class_weight": ("private", "balanced", {0: 0.5, 1: 1.0}),
    "loss": ("huber",),
    "delta": (1e-3,),
    "mistake_costs": ({0: 0.5, 1: 1.0},),
    "neighbouring": (ADD_REMOVE,),
    "rows_per_person": (3,),
}
_PUBLIC_LABELS = "public-strata"  # of bagging: its guarantee is about features only, and its own tests are too
_COMPANIONS = {
    "neighbouring": {"n_records": 60},
    "composition": {"delta": 1e-3},
}


@cache
@cache
def variants(cls: type) -> tuple[dict, ...]:
    """Parameters that differ from the defaults in one switch or choice; those that the class refuses are left out.

    Choices are read from lines of its docstring such as `sampling : {"bootstrap", "disjoint"}`.
    """
    found = [{}]
    for name, parameter in inspect.signature(cls).parameters.items():
        stated = re.search(rf"^{name} : .*?{{(.*?)}}", inspect.getdoc(cls) or "", re.MULTILINE)
        choices = [*(re.findall('"([^"]+)"', stated.group(1)) if stated else ()), *_OTHERS.get(name, ())]
        choices = [value for value in choices if value != _PUBLIC_LABELS]
        if isinstance(parameter.default, bool):
            choices.append(not parameter.default)
        for value in choices:
            needed = _COMPANIONS.get(name, {}) | (_COMPANIONS.get(value, {}) if isinstance(value, str) else {})
            extra = {key: needed[key] for key in needed if key in parameter_names(cls)}
            if value != parameter.default and _works(cls, {name: value, **extra}):
                found.append({name: value, **extra})
    return tuple(found)


def _works(cls: type, parameters: dict) -> bool:
    try:
        fit(build(cls, **parameters), *data(cls))
    except ValueError:
        return False
    return True


def _class(name: str) -> type:
    return next(cls for cls in estimators() if cls.__name__ == name)
