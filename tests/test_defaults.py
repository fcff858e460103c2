"""What is left out is part of the interface: a default that drifts changes results, or a budget, without a word."""

import inspect

import inventory

from helpers.privacy import REPLACE_ONE

LINEAR = {
    "epsilon": 1.0,
    "regularization": 1e-3,
    "radius": 1.0,
    "fit_intercept": True,
    "random_state": None,
    "classes": (0, 1),
    "neighbouring": REPLACE_ONE,
    "n_records": None,
    "loss": "logistic",
    "h": 0.5,
    "class_weight": None,
    "bounds": None,
    "counts_share": 0.1,
}
FEATURES = {"n_frequencies": 100, "kernel": "gaussian", "gamma": 1.0, "paired": True, "random_state": None}
SEARCH = {"epsilon": 1.0, "held_out": 0.2, "mistake_costs": None, "classes": (0, 1), "random_state": None}
PRIVATE_ONLY = ("epsilon", "random_state", "neighbouring", "n_records", "counts_share")
DEFAULTS = {
    "ERMClassifier": {name: LINEAR[name] for name in LINEAR if name not in PRIVATE_ONLY} | {"tol": 1e-9},
    "ObjectivePerturbationClassifier": LINEAR | {"tol": 5e-7, "delta": 0.0, "raise_regularization": True},
    "OutputPerturbationClassifier": LINEAR | {"tol": 5e-7},
    "DPGradientDescentClassifier": LINEAR | {"delta": 1e-6, "n_steps": 100, "clip": None, "learning_rate": None},
    "RandomFourierFeatures": FEATURES,
    "KernelClassifier": FEATURES | {"estimator": None, "epsilon": 1.0, "frequency_state": 0},
    "MidpointClassifier": {
        "radius": 1.0,
        "epsilon": 1.0,
        "delta": 1e-5,
        "gamma": 0.5,
        "counts": "private",
        "neighbouring": REPLACE_ONE,
        "random_state": None,
    },
    "PartitionedSearch": SEARCH | {"parts": "disjoint"},
    "RepeatedSearch": SEARCH | {"trials": None, "law": "geometric"},
    "PrivateBaggingClassifier": {
        "estimator": None,
        "n_estimators": 10,
        "epsilon": 1.0,
        "delta": 0.0,
        "sampling": "without-replacement",
        "sample_size": None,
        "voting": "hard",
        "composition": "basic",
        "public_labels": False,
        "classes": (0, 1),
        "neighbouring": REPLACE_ONE,
        "n_records": None,
        "random_state": None,
    },
    "ThresholdClassifier": {
        "epsilon": 1.0,
        "objective": "balanced_accuracy",
        "threshold_share": 0.1,
        "mistake_costs": None,
        "expected_auc": 0.8,
        "target_recall": 0.9,
        "classes": (0, 1),
        "response_method": "auto",
        "random_state": None,
    },
    "DeterministicOversampler": {"multiplicity": None, "n_new": None, "minority": 1},
    "StableSMOTE": {
        "k": 5,
        "n_minority": None,
        "bases": "cyclic",
        "interpolation": "coordinate",
        "neighbouring": REPLACE_ONE,
        "minority": 1,
        "diagnostics": False,
        "random_state": None,
    },
}


def test_defaults_are_the_published_ones():
    """Of every estimator that is no evidence, found by walking the package."""
    found = {
        cls.__name__: {
            name: parameter.default
            for name, parameter in inspect.signature(cls).parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        for cls in inventory.estimators()
        if not cls.__module__.startswith("helpers.evidence.")
    }
    assert found == DEFAULTS
