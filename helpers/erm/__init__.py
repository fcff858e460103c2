"""Private empirical risk minimisation: linear classifiers with noise in the objective, or on its minimiser.

Every estimator is differentially private for its coefficients, weighted by class or not, and epsilon covers what the
solver leaves. Modules: `losses`, `risk` (rows, derivatives, and minimisers within a certified distance), `partitions`
(records that memory does not hold), `calibration` (class weights and noise constants),
`linear` and `perturbation` (scikit-learn classes), `scaling` (features on one scale, public or private) with
`gradient_descent`, `coordinate_descent` and `greedy` on it, `norms` (the shape of noise), `kernels` (random features),
`midpoint` (one feature, two noisy means), `marginals` and `moments` (an additive classifier from sums
over the classes, each of which pays for itself).
Formulas as printed elsewhere, and exact losses, are left to `checks`.
"""

from helpers.erm.calibration import (
    BALANCED,
    UNWEIGHTED,
    Calibration,
    Weighting,
    balanced_weights,
    calibrate,
    calibrate_gaussian,
    class_weights,
    default_regularization,
    fixed_weights,
    largest_move,
)
from helpers.erm.coordinate_descent import DPCoordinateDescentClassifier
from helpers.erm.gradient_descent import DPGradientDescentClassifier
from helpers.erm.greedy import DPGreedyCoordinateClassifier
from helpers.erm.kernels import KernelClassifier, RandomFourierFeatures
from helpers.erm.linear import ERMClassifier
from helpers.erm.losses import LOGISTIC, Loss, Softmax, huber, zero_sum_basis
from helpers.erm.midpoint import MidpointClassifier
from helpers.erm.moments import PrivateMomentClassifier
from helpers.erm.partitions import Chunks, read_parquet
from helpers.erm.perturbation import ObjectivePerturbationClassifier, OutputPerturbationClassifier
from helpers.erm.risk import design_matrix, minimize, signed_rows
