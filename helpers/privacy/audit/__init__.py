"""Tests of a privacy claim by what is really released, of mechanisms and of anything that is fitted.

`audit_object` looks at all that a fit shows (`observation`) on pairs of neighbouring tables (`pairs`), finds what tells
the two apart, and judges it on fresh fits. `audit_one_run` needs a single training. `replay` follows one run release by
release. What counts of events prove about epsilon is in `bounds`; `audit_estimator` asks whether noise is fresh and has
its law.
"""

from helpers.privacy.audit.bounds import (
    Audit,
    audit_mechanism,
    epsilon_lower_bound,
    gaussian_lower_bound,
)
from helpers.privacy.audit.estimators import audit_estimator, neighbouring_data, released
from helpers.privacy.audit.interpreter import Interpreter
from helpers.privacy.audit.objects import Certificate, audit_object, fits_needed, replay_certificate
from helpers.privacy.audit.one_run import audit_one_run, one_run_epsilon
from helpers.privacy.audit.pairs import Pair, rare_class_pairs, schema_pairs
from helpers.privacy.audit.recorder import Divergence, Noise, replay

__all__ = [
    "Audit",
    "Certificate",
    "Divergence",
    "Interpreter",
    "Noise",
    "Pair",
    "audit_estimator",
    "audit_mechanism",
    "audit_object",
    "audit_one_run",
    "epsilon_lower_bound",
    "fits_needed",
    "gaussian_lower_bound",
    "neighbouring_data",
    "one_run_epsilon",
    "rare_class_pairs",
    "released",
    "replay",
    "replay_certificate",
    "schema_pairs",
]
