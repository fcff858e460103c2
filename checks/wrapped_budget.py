"""What GEM really spends where public wrappers take the total epsilon for the parameter of one round."""

from dp_accounting.dp_event import ZCDpEvent

from helpers.privacy import REPLACE_ONE, event_epsilon

_ROUNDS, _ALPHA = 100, 0.67  # of the wrappers


def wrapped_epsilon(epsilon: float, delta: float = 1e-5) -> float:
    """Epsilon at `delta` that is spent where the total epsilon is taken for the parameter of one of 100 rounds.

    A round with parameter e costs (.67 e)^2/2 in zero-concentrated privacy for the choice and (.33 e)^2/2 for the
    answer. `GEM(wrapped_epsilon(1.0), **PAPER)` is thus GEM as wrapped, at nominal epsilon 1; the wrappers' bounds are
    the smallest and the largest value of the records besides, which no guarantee covers.

    Source: public wrappers of GEM; the costs as in `helpers.synthesis.GEM`, converted by dp-accounting's Renyi
    accountant.

    >>> round(wrapped_epsilon(1.0))
    62
    """
    rho = _ROUNDS * (_ALPHA**2 + (1 - _ALPHA) ** 2) * epsilon**2 / 2
    return event_epsilon(ZCDpEvent(rho), delta, REPLACE_ONE, method="rdp")
