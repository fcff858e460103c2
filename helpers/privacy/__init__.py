"""Privacy: guarantees, mechanisms and accounting, one import away.

Whatever is released in the book goes through a mechanism that returns its `Guarantee`, and guarantees are
combined with `compose`. Neighbouring relations are dp-accounting's; a guarantee holds for the relation it
names and no other. Learners, resamplers and audits are built on top, in modules of their own.
"""

from dp_accounting import NeighboringRelation

from helpers.privacy.accounting import (
    ADD_REMOVE,
    REPLACE_ONE,
    ApproximateDpEvent,
    advanced_composition,
    event_delta,
    event_epsilon,
    event_supported,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_multiplier,
    group_delta,
    laplace_delta,
    laplace_epsilon,
    optimal_composition,
    optimal_delta,
)
from helpers.privacy.audit import EstimatorAudit, audit_estimator, neighbouring_data
from helpers.privacy.guarantees import COMPOSITION_METHODS, RELATION_NAMES, Guarantee, PrivacyLeakWarning, compose
from helpers.privacy.ledger import Law, Ledger, zcdp_budget
from helpers.privacy.mechanisms import Release, class_counts, class_priors, gaussian, laplace, report_noisy_max
from helpers.privacy.noise import EXACT_REALS, Sensitivity, exponential_probabilities, spherical_gamma, to_grid
from helpers.privacy.randomness import (
    SEED_SECRET,
    PrivateMixin,
    check_random_state,
    child_state,
    noise_assumptions,
    noise_generator,
    secure_generator,
)
from helpers.privacy.stability import ChangedRows

__all__ = [
    "ADD_REMOVE",
    "COMPOSITION_METHODS",
    "EXACT_REALS",
    "RELATION_NAMES",
    "REPLACE_ONE",
    "SEED_SECRET",
    "ApproximateDpEvent",
    "ChangedRows",
    "EstimatorAudit",
    "Guarantee",
    "Law",
    "Ledger",
    "NeighboringRelation",
    "PrivacyLeakWarning",
    "PrivateMixin",
    "Release",
    "Sensitivity",
    "advanced_composition",
    "audit_estimator",
    "check_random_state",
    "child_state",
    "class_counts",
    "class_priors",
    "compose",
    "event_delta",
    "event_epsilon",
    "event_supported",
    "exponential_probabilities",
    "gaussian",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_multiplier",
    "group_delta",
    "laplace",
    "laplace_delta",
    "laplace_epsilon",
    "neighbouring_data",
    "noise_assumptions",
    "noise_generator",
    "optimal_composition",
    "optimal_delta",
    "report_noisy_max",
    "secure_generator",
    "spherical_gamma",
    "to_grid",
    "zcdp_budget",
]
