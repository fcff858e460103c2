"""Noise constants of objective perturbation as three papers print them, and a classifier that runs them.

Chaudhuri, Monteleoni and Sarwate's Algorithm 2 is right without weights. The two versions of Differential Privacy Under
Class Imbalance use such constants with class weights, where their printed guarantees need not be true: the classifier's
`guarantee_` states what is proved. What a practitioner should use is `helpers.erm.calibrate`.
"""

import math
from typing import Any, ClassVar

from checks.exact_loss import proven_epsilon
from helpers.constructors import SharedParameters
from helpers.erm.calibration import Calibration
from helpers.erm.losses import LOGISTIC
from helpers.erm.perturbation import ObjectivePerturbationClassifier
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, NeighboringRelation
from helpers.validation import Check, check_boolean, check_choice, choice, real

VERSIONS = ("chaudhuri", "icml", "arxiv")
_SOURCES = {
    "chaudhuri": "Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2, Theorem 2",
    "icml": "Differential Privacy Under Class Imbalance, Algorithm 1",
    "arxiv": "Differential Privacy Under Class Imbalance, arXiv version, Algorithm 3",
}
_LARGEST_EPSILON = 700.0  # e^epsilon overflows a little above this


def algorithm_2(
    *,
    epsilon: float,
    n_records: int,
    regularization: float,
    radius: float = 1.0,
    curvature: float = LOGISTIC.curvature,
    neighbouring: NeighboringRelation = REPLACE_ONE,
) -> Calibration:
    """Constants of Chaudhuri, Monteleoni and Sarwate's Algorithm 2, for records of norm at most `radius`.

    The objective is (1/n) sum loss + (total_regularization/2) ||beta||^2 + b'beta/n, n a public number; its exact
    minimiser is epsilon-DP. One record more or less moves b by at most radius and multiplies the Jacobian
    determinant by at most 1 + t, t = curvature radius^2 / (n (lambda + Delta)); a replacement does both twice. What
    the determinant costs is taken from epsilon. As printed, Delta = 0 whenever anything is left, so the noise grows
    without bound where epsilon approaches that cost from above.

    Parameters
    ----------
    epsilon : float
        Budget, > 0.
    n_records : int
        n >= 1, public: the number of records under replace-one; under add/remove any number fixed in advance.
    regularization : float
        lambda > 0.
    radius : float
        Public bound R > 0 on a record's norm, the constant feature included.
    curvature : float
        c > 0, bound on the second derivative of the loss (its slope is at most 1).
    neighbouring : NeighboringRelation
        The paper's is replace-one; add/remove is the same argument with one record instead of two.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2 and Theorem 2 (R = 1 there).

    >>> [round(x, 4) for x in algorithm_2(epsilon=1.0, n_records=1000, regularization=0.01)]
    [0.4753, 0.01]
    """
    moved = 2 if check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE)) == REPLACE_ONE else 1
    bend = curvature * radius**2 / n_records
    left = epsilon - moved * math.log1p(bend / regularization)
    if left > 0:
        return Calibration(left / (moved * radius), regularization)
    return Calibration(epsilon / (2 * moved * radius), bend / math.expm1(epsilon / (2 * moved)))


def algorithm_1(
    *,
    epsilon: float,
    n_records: int,
    regularization: float,
    dimension: int,
    radius: float = 1.0,
    curvature: float = LOGISTIC.curvature,
) -> Calibration:
    """Constants of Algorithm 1 of the published version, with lambda + Delta in the objective, as its proof has it.

    Parameters
    ----------
    dimension : int
        d, the number of coefficients.
    others
        As in `algorithm_2`; the relation is replace-one.

    Source: Differential Privacy Under Class Imbalance, Algorithm 1 and Equation 5.

    >>> [round(x, 4) for x in algorithm_1(epsilon=1.0, n_records=1000, regularization=0.1, dimension=7)]
    [0.31, 0.1]
    """
    bend = curvature * radius**2 / n_records
    left = epsilon - 4 * dimension * bend / regularization
    if left > 0:
        return Calibration(left / (3 * radius), regularization)
    return Calibration(epsilon / (9 * radius), bend / math.expm1(epsilon / 4))


def printed_constants(version: str, *, dimension: int | None = None, **problem: Any) -> Calibration:
    """The constants of one of the printed versions.

    Parameters
    ----------
    version : {"chaudhuri", "icml", "arxiv"}
        "arxiv" has the constants of "chaudhuri", for weighted objectives.
    dimension : int, optional
        "icml" needs it.
    problem
        As in `algorithm_2`; "icml" is for replace-one alone.

    >>> printed_constants("icml", epsilon=1.0, n_records=1000, regularization=0.1, dimension=7).total_regularization
    0.1
    """
    if check_choice("version", version, VERSIONS) == "icml":
        check_choice("neighbouring", problem.pop("neighbouring", REPLACE_ONE), (REPLACE_ONE,))
        return algorithm_1(**problem | {"dimension": dimension})
    return algorithm_2(**problem)


class PrintedObjectivePerturbation(SharedParameters, ObjectivePerturbationClassifier):
    """Objective perturbation with printed constants, and a guarantee that says what is proved for them.

    Parameters
    ----------
    version : {"chaudhuri", "icml", "arxiv"}
        Whose constants; see `printed_constants`. Two classes, no Gaussian noise.
    others
        As in `ObjectivePerturbationClassifier`; whether to raise the penalty is the printed formula's decision,
        and delta is 0. The printed constants are those for (1 - tol) epsilon, since the solver costs the rest.

    Attributes
    ----------
    guarantee_ : helpers.privacy.Guarantee
        With the epsilon that `proven_epsilon` proves where that is more than the printed one, and a source that says
        so.
    others
        As in `ObjectivePerturbationClassifier`.

    Raises
    ------
    ValueError
        As in `ObjectivePerturbationClassifier` and `printed_constants`.

    >>> import numpy as np
    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    >>> model = PrintedObjectivePerturbation("arxiv", epsilon=8.0, class_weight="balanced", random_state=0).fit(X, y)
    >>> round(model.guarantee_.epsilon, 2)
    10.68
    """

    _allowed: ClassVar[dict[str, Check]] = {
        "version": choice(*VERSIONS),
        "epsilon": real(low=1e-10, high=_LARGEST_EPSILON),
        "delta": choice(0.0),
        "raise_regularization": lambda name, value: check_choice(name, check_boolean(name, value), (True,)),
    }

    def __init__(
        self,
        version="chaudhuri",
        epsilon=1.0,
        regularization=1e-3,
        **shared,
    ):
        super().__init__(epsilon=epsilon, regularization=regularization, **shared)
        self.version = version

    def _check_parameters(self):
        super()._check_parameters()
        if len(self.classes) > 2:
            raise ValueError(f"classes must be two labels for printed constants, got {self.classes!r}")
        if self.version == "icml":
            check_choice("neighbouring", self.neighbouring, (REPLACE_ONE,))

    def _constants(self, epsilon, delta, public):
        loss, n_records = self._loss(), public.divisor
        constants = printed_constants(
            self.version,
            epsilon=epsilon,
            n_records=n_records,
            regularization=self.regularization,
            radius=self.radius,
            curvature=loss.curvature,
            neighbouring=self.neighbouring,
            dimension=public.width,
        )
        proven = proven_epsilon(
            constants, n_records=n_records, radius=self.radius, loss=loss, weighting=public.weighting
        )
        source = _SOURCES[self.version]
        if proven > epsilon * (1 + 1e-9):
            source += "; epsilon is what checks.exact_loss.proven_epsilon proves, not the printed one"
        return *constants, proven, source
