"""What is left out is part of the interface: a default that drifts changes results, or a budget, without a word."""

import inspect

import inventory
from sklearn.base import BaseEstimator

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
    "class_weight": None,
    "bounds": None,
    "counts_share": 0.1,
    "prior": None,
}
LOSS = {"loss": "logistic", "h": 0.5}
PERTURBATION = LINEAR | LOSS | {"tol": 1e-3, "delta": 0.0}
SHAPE = {"intercept_scaling": 1.0, "rows": "clip", "noise": "auto", "blocks": None, "raise_regularization": True}
SCALED = LINEAR | {"delta": 1e-6, "step": 1.0, "scale": "auto", "center": None, "penalty": "l2"}
FEATURES = {"n_frequencies": 100, "gamma": 1.0, "random_state": None}
SEARCH = {"epsilon": 1.0, "mistake_costs": None, "classes": (0, 1), "random_state": None}
SYNTHESIS = {
    "epsilon": 1.0,
    "domain": None,
    "classes": (0, 1),
    "n_bins": 16,
    "random_state": None,
}
MARGINALS = SYNTHESIS | {
    "delta": 1e-5,
    "k": 3,
    "workload": "label",
    "n_components": 128,
    "max_iters": 100,
    "neighbouring": REPLACE_ONE,
}
AGGREGATION = {
    "n_estimators": 20,
    "epsilon": 1.0,
    "classes": (0, 1),
    "neighbouring": REPLACE_ONE,
    "random_state": None,
}
PRIVATE_ONLY = ("epsilon", "random_state", "neighbouring", "n_records", "counts_share")
DEFAULTS = {
    "ERMClassifier": {name: LINEAR[name] for name in LINEAR if name not in PRIVATE_ONLY}
    | LOSS
    | {"tol": 1e-9, "intercept_scaling": 1.0},
    "ObjectivePerturbationClassifier": PERTURBATION | SHAPE,
    "OutputPerturbationClassifier": PERTURBATION,
    "DPGradientDescentClassifier": SCALED | {"n_steps": 100, "sample_rate": None, "average": 0.0},
    "DPCoordinateDescentClassifier": SCALED | {"sweeps": 20, "clip": "row", "order": "shuffled"},
    "DPGreedyCoordinateClassifier": SCALED | {"n_steps": 10, "selection": "gumbel"},
    "DPNeuralClassifier": {
        "model": "linear",
        "epsilon": 1.0,
        "delta": 1e-5,
        "epochs": 20,
        "sample_rate": 0.25,
        "clip_norm": 1.0,
        "schedule": None,
        "learning_rate": 0.2,
        "momentum": 0.9,
        "optimizer": "sgd",
        "average": 0.5,
        "loss": "cross-entropy",
        "class_weight": None,
        "weighting": "bound",
        "prior": None,
        "decision": "likely",
        "counts_share": 0.1,
        "cut_off_share": 0.2,
        "n_records": None,
        "bounds": None,
        "classes": (0, 1),
        "device": "cpu",
        "random_state": None,
    },
    "RandomFourierFeatures": FEATURES | {"paired": True},
    "KernelClassifier": FEATURES | {"estimator": None, "epsilon": 1.0},
    "MidpointClassifier": {
        "radius": 1.0,
        "epsilon": 1.0,
        "delta": 1e-5,
        "counts": "private",
        "random_state": None,
    },
    "PartitionedSearch": SEARCH | {"parts": "disjoint", "delta": 0.0},
    "RepeatedSearch": SEARCH | {"trials": None, "law": "geometric"},
    "PrivateBaggingClassifier": {
        "n_estimators": 10,
        "epsilon": 1.0,
        "delta": 0.0,
        "sampling": "without-replacement",
        "sample_size": None,
        "voting": "hard",
        "composition": "basic",
        "classes": (0, 1),
        "neighbouring": REPLACE_ONE,
        "n_records": None,
        "random_state": None,
    },
    "SubsampleAndAggregateClassifier": AGGREGATION | {"delta": 0.0, "radius": 1.0},
    "PATEClassifier": AGGREGATION | {"delta": 1e-6, "public_records": None, "n_queries": 100},
    "PrivateLogisticRegression": {
        "epsilon": 1.0,
        "delta": 0.0,
        "bounds": None,
        "regularization": "auto",
        "intercept_scaling": 0.1,
        "rows": "unit",
        "noise": "auto",
        "counts_share": 0.1,
        "classes": (0, 1),
        "neighbouring": REPLACE_ONE,
        "n_records": None,
        "random_state": None,
    },
    "PrivateMomentClassifier": {
        "epsilon": 1.0,
        "delta": 1e-6,
        "domain": None,
        "classes": (0, 1),
        "neighbouring": REPLACE_ONE,
        "rows_per_person": 1,
        "recall": None,
        "alarms": None,
        "random_state": None,
    },
    "ThresholdClassifier": {
        "epsilon": 1.0,
        "objective": "balanced_accuracy",
        "threshold_share": 0.1,
        "target_recall": 0.9,
        "classes": (0, 1),
        "random_state": None,
    },
    "AIM": MARGINALS,
    "GEM": MARGINALS
    | {
        "T": 20,
        "alpha": 0.67,
        "parameterization": "direct",
        "loss_p": 2,
        "lr": None,
        "max_idxs": None,
        "ema_weights_beta": 0.9,
        "embedding_dim": 512,
    },
    "MST": SYNTHESIS | {"delta": 1e-5, "workload": "label", "neighbouring": REPLACE_ONE},
    "PrivBayes": SYNTHESIS | {"degree": 2},
    "BalancedSynthesizer": {
        "synthesizer": None,
        "n_samples": 10_000,
        "random_state": None,
    },
    "DeterministicOversampler": {"multiplicity": None, "n_new": None, "minority": 1},
    "StableSMOTE": {
        "k": 5,
        "bases": "cyclic",
        "neighbouring": REPLACE_ONE,
        "minority": 1,
        "diagnostics": False,
        "random_state": None,
    },
}


def test_defaults_are_the_published_ones():
    """Of every estimator outside `checks`, found by walking the packages."""
    found = {
        cls.__name__: {
            name: parameter.default
            for name, parameter in inspect.signature(cls).parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        for cls in inventory.estimators()
        if not cls.__module__.startswith("checks.")
    }
    assert found == DEFAULTS


def test_estimators_are_compared_and_printed_as_those_of_scikit_learn():
    """As constructors are written by dataclasses: one by value could be no key, and would print what it was given."""
    for cls in inventory.estimators():
        for method in ("__eq__", "__hash__", "__repr__"):
            assert getattr(cls, method) is getattr(BaseEstimator, method), (cls, method)
