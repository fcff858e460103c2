"""What GEM really spends where public wrappers take the total epsilon for the parameter of one round."""

from dp_accounting.dp_event import ZCDpEvent

from helpers.privacy import REPLACE_ONE, event_epsilon


def wrapped_rho(epsilon, n_rounds=100, alpha=0.67) -> float:
    """zCDP of GEM where the total epsilon is taken for the parameter of one round.

    A round with parameter e costs (alpha e)^2/2 for the choice and ((1 - alpha) e)^2/2 for the answer.

    Source: public wrappers of GEM; the costs as in `helpers.synthesis.GEM`.

    >>> round(wrapped_rho(1.0), 1)
    27.9
    """
    return n_rounds * (alpha**2 + (1 - alpha) ** 2) * epsilon**2 / 2


def wrapped_epsilon(epsilon, delta=1e-5, *, n_rounds=100, alpha=0.67) -> float:
    """Epsilon at `delta` that is spent where the total epsilon is taken for the parameter of one round.

    `GEM(wrapped_epsilon(1.0), **PAPER)` is thus GEM as wrapped, at nominal epsilon 1; the wrappers' bounds are the
    smallest and the largest value of the records besides, which no guarantee covers.

    Source: as `wrapped_rho`; converted by dp-accounting's Renyi accountant.

    >>> round(wrapped_epsilon(1.0))
    62
    """
    return event_epsilon(ZCDpEvent(wrapped_rho(epsilon, n_rounds, alpha)), delta, REPLACE_ONE, method="rdp")
