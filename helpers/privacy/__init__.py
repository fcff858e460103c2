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
    furthest,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_multiplier,
    group_delta,
    laplace_delta,
    optimal_composition,
    optimal_delta,
)
from helpers.privacy.audit import audit_estimator, neighbouring_data
from helpers.privacy.guarantees import COMPOSITION_METHODS, RELATION_NAMES, Guarantee, PrivacyLeakWarning, compose
from helpers.privacy.ledger import (
    EXACT_REALS,
    RUNNING_TIME,
    ClassLedger,
    Law,
    Ledger,
    Move,
    Sensitivity,
    exponential_probabilities,
    spherical_gamma,
    to_grid,
    zcdp_budget,
)
from helpers.privacy.mechanisms import Release, class_counts, gaussian, laplace, report_noisy_max
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
