"""What "Differential Privacy Under Class Imbalance" prints about bagging, to be compared and never relied on.

The guarantee of bagging learners that are not private, the composition of private learners as if no record could be
drawn twice, and the ensemble that divides its budget so. The sound ones are in `helpers.meta.bagging`.
"""

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from helpers.meta.bagging import PrivateBaggingClassifier, largest_budget
from helpers.privacy import REPLACE_ONE, Guarantee, PrivacyLeakWarning, compose
from helpers.validation import choice

_FALSE = "no record drawn twice (false)"


def printed_guarantee(inner: Guarantee, *, n_estimators, composition="basic", delta=0.0) -> Guarantee:
    """The learners' own guarantees composed, as if a bag could not hold a record many times; `assumes` says so.

    Parameters
    ----------
    inner : Guarantee
        Of each learner, on its bag.
    n_estimators : int
    composition : {"basic", "advanced", "optimal"}
    delta : float
        Total, in [0, 1).

    Source: Rosenblatt et al. 2025, Section 4.1 and Appendix C.1.

    >>> print(printed_guarantee(Guarantee(0.1, 0.0, REPLACE_ONE), n_estimators=5))
    (0.5, 0)-DP, replace-one
    """
    bag = replace(inner, event=None, assumes=(*inner.assumes, _FALSE))
    return compose([bag] * n_estimators, composition, **({} if composition == "basic" else {"delta": delta}))


@lru_cache(maxsize=1024)
def printed_learner_epsilon(epsilon, *, n_estimators, composition="basic", delta=0.0, inner_delta=0.0) -> float:
    """Largest budget of one learner for which `printed_guarantee` is within `epsilon`.

    Parameters
    ----------
    epsilon : float
        Total, > 0.
    n_estimators, composition, delta
        As in `printed_guarantee`.
    inner_delta : float
        delta of each learner.

    >>> options = dict(n_estimators=10, delta=1e-6)
    >>> [round(printed_learner_epsilon(0.5, composition=c, **options), 4) for c in ("basic", "advanced", "optimal")]
    [0.05, 0.0295, 0.0501]
    """

    def total(inner_epsilon):
        inner = Guarantee(inner_epsilon, inner_delta, REPLACE_ONE)
        return printed_guarantee(inner, n_estimators=n_estimators, composition=composition, delta=delta).epsilon

    return largest_budget(total, epsilon)


@dataclass(eq=False, repr=False)
class PrintedBaggingClassifier(PrivateBaggingClassifier):
    """The paper's ensemble of bootstrap bags: learners get what `printed_learner_epsilon` allows, which is too much.

    Parameters, attributes and errors as in `PrivateBaggingClassifier`, with bootstrap bags only. Its `guarantee_` is
    the printed claim, with the false assumption that it needs.

    Warns
    -----
    PrivacyLeakWarning
        Always, in `fit`.

    Source: Rosenblatt et al. 2025, Section 4.1 and Appendix C.1.
    """

    _allowed: ClassVar[dict] = {"sampling": choice("bootstrap"), "neighbouring": choice(REPLACE_ONE)}

    sampling: str = "bootstrap"

    def _shared_out(self, n_records, sizes) -> Guarantee:
        warnings.warn(
            "each learner is taken as private in the data, but it is so in its bag only, which can hold a record many "
            "times",
            PrivacyLeakWarning,
            stacklevel=4,
        )
        options = {"n_estimators": self.n_estimators, "composition": self.composition, "delta": self.delta}
        stated = self._stated(self.epsilon, sizes)
        self.learner_epsilon_ = printed_learner_epsilon(self.epsilon, inner_delta=stated.delta, **options)
        self.learner_guarantee_ = self._stated(self.learner_epsilon_, sizes)
        return printed_guarantee(self.learner_guarantee_, **options)
