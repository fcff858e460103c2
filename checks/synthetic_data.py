"""What "Differential Privacy Under Class Imbalance" prints about synthetic data, to be compared and never relied on.

The loss as printed, the mixture of Appendix D, and Theorem 8 with Proposition 10 as exact computations on finite
mechanisms; how far synthetic records are from real ones, and what they betray of a single one. The synthesisers are
`helpers.synthesis`.
"""

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from helpers.data.domain import Domain
from helpers.privacy import Guarantee
from helpers.privacy.audit import Certificate, Pair, audit_object

# --- the loss -------------------------------------------------------------------------------------


def gem_loss(shares: ArrayLike, answers: ArrayLike, p: int = 1) -> float:
    """Sum over queries of |q(P) - a|^p, from the model's shares q(P) and the noisy answers a.

    Printed with p = 1 in the text; Table 12 says p = 2. Each q(P) is in [0, 1] because it is a probability; the answers
    need not be.

    Source: Rosenblatt et al. 2025, Appendix E.

    >>> round(gem_loss([0.2, 0.8], [0.1, 1.1]), 3), round(gem_loss([0.2, 0.8], [0.1, 1.1], p=2), 3)
    (0.4, 0.1)
    """
    return float(np.sum(np.abs(np.asarray(shares, dtype=float) - np.asarray(answers, dtype=float)) ** p))


# --- the mixture of Appendix D --------------------------------------------------------------------


def mixture_auc(distance: float = 32**0.5, deviation: float = 2.0) -> float:
    """Largest area under the ROC curve for two normal classes of one variance whose means are `distance` apart.

    The log-odds are linear, normal in both classes with one variance, and their means distance^2/deviation^2 apart.

    Source: the mixture is Rosenblatt et al. 2025, Appendix D.2; the area is standard (Green and Swets 1966).

    >>> round(mixture_auc(), 4)
    0.9772
    """
    return float(ndtr(distance / deviation / math.sqrt(2)))


# --- Theorem 8 and Proposition 10 -----------------------------------------------------------------


def noisy_label_law(n_minority: int, n_records: int, epsilon: float) -> NDArray[np.float64]:
    """Law (n_records + 1,) of a minority count with two-sided geometric noise, cut off at 0 and at n_records.

    Stage 1 of Algorithm 3 at its smallest: a synthesiser of the label alone, epsilon-DP under replace-one.

    >>> noisy_label_law(1, 2, 1.0).round(3).tolist()
    [0.269, 0.462, 0.269]
    """
    rate = math.exp(-epsilon)
    counts = np.arange(n_records + 1)
    law = (1 - rate) / (1 + rate) * rate ** np.abs(counts - n_minority)
    law[0], law[-1] = rate**n_minority / (1 + rate), rate ** (n_records - n_minority) / (1 + rate)
    return law


def drawn_labels_channel(n_records: int, n_drawn: int) -> NDArray[np.float64]:
    """Channel (n_records + 1, 2^n_drawn) from a fitted minority count to the labels of `n_drawn` independent records.

    Column i is the sequence of the bits of i. Stage 2 of Algorithm 3 for any rule that looks at the sequence.

    >>> drawn_labels_channel(2, 1).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    """
    share = np.arange(n_records + 1) / n_records
    sequences = np.array(list(product((0, 1), repeat=n_drawn)))
    ones = sequences.sum(axis=1)
    return share[:, None] ** ones * (1 - share[:, None]) ** (n_drawn - ones)


def repeated_synthesizer_epsilon(n_minority: int, n_records: int, epsilon: float, n_calls: int) -> float:
    """Exact privacy loss, in epsilon, of calling the synthesiser of `noisy_label_law` on the data `n_calls` times.

    Under replace-one, between n_minority and n_minority + 1. Rejection that is read as "S(D) again until the label
    fits" is this; drawing from what one call has fitted costs one call.

    Source: Rosenblatt et al. 2025, Algorithm 3, the way for models that are not parametric.

    >>> round(repeated_synthesizer_epsilon(1, 4, 0.5, 3), 6)
    1.5
    """
    laws = [noisy_label_law(count, n_records, epsilon) for count in (n_minority, n_minority + 1)]
    losses = np.log(laws[0]) - np.log(laws[1])
    return n_calls * float(np.abs(losses).max())


Records = tuple[ArrayLike, ArrayLike]


def marginal_error(domain: Domain, here: Records, there: Records, *, order: int = 2, given: Any = None) -> float:
    """Mean total variation distance, over all marginals of some attributes, of two sets of records.

    Parameters
    ----------
    domain : Domain
    here, there : pairs (X (n, d), y (n,))
        At least one record each (of the label that is given); 0 where all shares agree, 1 where no cell is shared.
    order : int
        Attributes of a marginal, at least 1; all of them where the domain has fewer.
    given : label, optional
        Only records with this label, and marginals of the other attributes. None: all records, and the label is an
        attribute.

    >>> domain = Domain.from_bounds([[0, 1]], n_bins=2)
    >>> marginal_error(domain, ([[0.1], [0.9]], [0, 1]), ([[0.1], [0.1]], [0, 1]), order=1)
    0.25
    >>> marginal_error(domain, ([[0.1], [0.9]], [0, 1]), ([[0.1], [0.1]], [0, 1]), given=1)
    1.0
    """
    codes = [domain.encode(*records) for records in (here, there)]
    attributes = range(len(domain.sizes))
    if given is not None:
        codes = [part[part[:, -1] == domain.classes.index(given)] for part in codes]
        attributes = attributes[:-1]
    distances = []
    for chosen in combinations(attributes, min(order, len(attributes))):
        shape = [domain.sizes[j] for j in chosen]
        cells = [np.ravel_multi_index(part[:, list(chosen)].T, shape) for part in codes]
        shares = [np.bincount(cell, minlength=int(np.prod(shape))) / cell.size for cell in cells]
        distances.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(distances))


# --- membership ----------------------------------------------------------------------------------


def audit_samples(
    publish: Callable[[NDArray, NDArray, int], Records],
    claim: Guarantee,
    pairs: Sequence[Pair],
    domain: Domain,
    *,
    fits: int,
    confidence: float,
    seed: int,
) -> Certificate:
    """`audit_object` for somebody who gets synthetic records and nothing else.

    What is seen of a fit is how many of its records lie in every cell of the domain; events are made of these counts.

    Parameters
    ----------
    publish : callable (X, y, seed) -> (X, y)
        One fit, and the synthetic records that come of it.
    claim, pairs, fits, confidence
        As in `audit_object`.
    domain : Domain
        Public and small: all of its cells are counted.
    seed : int
        Of all fits. The fits of a table are numbered, so that the order of the tables, which is of chance, has no
        influence on the outcome.

    >>> from helpers.privacy import REPLACE_ONE
    >>> from helpers.privacy.audit import rare_class_pairs
    >>> pairs, domain = rare_class_pairs(REPLACE_ONE)[2:3], Domain.from_bounds([[-1, 1]] * 2, n_bins=2)
    >>> found = audit_samples(lambda X, y, seed: (X, y), Guarantee(1.0, 0.0, REPLACE_ONE), pairs, domain,
    ...                       fits=100, confidence=0.95, seed=0)
    >>> found.shown > 1
    True
    """
    cells = list(product(*map(range, domain.sizes)))
    made: Counter = Counter()

    def look(X, y, probes):
        table = zlib.crc32(X.tobytes() + y.tobytes())
        made[table] += 1
        own = np.random.default_rng([seed, table, made[table]])
        codes = domain.encode(*publish(X, y, int(own.integers(2**31))))
        counts = np.bincount(np.ravel_multi_index(codes.T, domain.sizes), minlength=len(cells))
        return {f"records in cell {cell}": float(count) for cell, count in zip(cells, counts, strict=True)}

    return audit_object(None, claim, pairs, fits=fits, confidence=confidence, look=look)
