"""Private empirical risk minimisation: linear classifiers with noise in the objective, or on its minimiser.

The estimators are differentially private for their coefficients, weighted by class or not, and `privacy_loss` lets
anyone check it exactly. Modules: `objective` and `softmax` (risk and solver), `weighting` (class weights), `analysis`
(noise constants, exact loss), `worst_case` (search for the largest loss), `estimators` and `descent` (scikit-learn
classes), `features` (kernels), `tuning` (private choice of parameters), `generalization` (what the noise costs).
"""

from helpers.erm.analysis import (
    ANALYSES,
    Calibration,
    GaussianCalibration,
    algorithm_2,
    calibrate,
    calibrate_gaussian,
    default_regularization,
    gaussian_objective_delta,
    privacy_loss,
    proven_epsilon,
    softmax_privacy_loss,
)
from helpers.erm.descent import DPGradientDescentClassifier
from helpers.erm.estimators import ERMClassifier, ObjectivePerturbationClassifier, OutputPerturbationClassifier
from helpers.erm.features import KernelClassifier, RandomFourierFeatures
from helpers.erm.objective import LOGISTIC, Loss, design_matrix, huber, minimize, signed_rows
from helpers.erm.softmax import Softmax, minimize_softmax, zero_sum_basis
from helpers.erm.weighting import BALANCED, UNWEIGHTED, Weighting, balanced_weights, class_weights, fixed_weights

__all__ = [
    "ANALYSES",
    "BALANCED",
    "LOGISTIC",
    "UNWEIGHTED",
    "Calibration",
    "DPGradientDescentClassifier",
    "ERMClassifier",
    "GaussianCalibration",
    "KernelClassifier",
    "Loss",
    "ObjectivePerturbationClassifier",
    "OutputPerturbationClassifier",
    "RandomFourierFeatures",
    "Softmax",
    "Weighting",
    "algorithm_2",
    "balanced_weights",
    "calibrate",
    "calibrate_gaussian",
    "class_weights",
    "default_regularization",
    "design_matrix",
    "fixed_weights",
    "gaussian_objective_delta",
    "huber",
    "minimize",
    "minimize_softmax",
    "privacy_loss",
    "proven_epsilon",
    "signed_rows",
    "softmax_privacy_loss",
    "zero_sum_basis",
]
