"""Private empirical risk minimisation: linear classifiers with noise in the objective.

The estimators are epsilon-DP under replace-one for their coefficients, and `privacy_loss` lets anyone check it
exactly. Modules: `objective` (risk and solver), `analysis` (noise constants, exact loss), `estimators`
(scikit-learn classes).
"""

from helpers.erm.analysis import Calibration, algorithm_2, privacy_loss
from helpers.erm.estimators import ERMClassifier, ObjectivePerturbationClassifier
from helpers.erm.objective import LOGISTIC, Loss, design_matrix, minimize, signed_rows

__all__ = [
    "LOGISTIC",
    "Calibration",
    "ERMClassifier",
    "Loss",
    "ObjectivePerturbationClassifier",
    "algorithm_2",
    "design_matrix",
    "minimize",
    "privacy_loss",
    "signed_rows",
]
