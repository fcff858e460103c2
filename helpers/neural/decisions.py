"""Where a privately trained scorer says yes: a cut-off for balanced accuracy, chosen by the exponential mechanism.

A private network may rank well and still call every record negative: clipping, noise and few steps leave its scores far
from log-odds. The cut-off found here needs no calibration, only the ranking. What is paid for it is left to the caller.
"""

import numpy as np

from helpers.privacy import Ledger
from helpers.validation import check_real

_SIZES = np.geomspace(1e-3, 30.0, 500)
# As dense around 0 as the scores of a model that has hardly moved, and as wide as those of one that is sure.
CUT_OFFS = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])


def balanced_cut_off(ledger: Ledger, counts: tuple[float, float], epsilon: float) -> float:
    """One of `CUT_OFFS` from which to say yes for a large balanced accuracy: pure epsilon-DP under add/remove.

    Parameters
    ----------
    ledger : Ledger
        Of scores (n,), larger where a record is more likely positive and about 0 where the model has no opinion, and of
        whether each record is positive (n,). The scores come from a model that is private itself.
    counts : (float, float)
        Public (or private and paid for) numbers of negative and positive records, > 0. They need not be right; wrong
        ones shift the balance between the two kinds of mistakes.
    epsilon : float
        > 0.

    Raises
    ------
    ValueError
        A public parameter is out of range.

    Notes
    -----
    A candidate's utility is hits / counts[1] + correct rejections / counts[0], twice its estimated balanced accuracy.
    One more record raises some of the utilities by 1 / counts of its class and lowers none, so the exponential
    mechanism needs no factor 2. With probability 1 - beta the utility is within log(1,001 / beta) / (epsilon
    min(counts)) of the best candidate's.

    Source: McSherry and Talwar 2007, Theorem 6, for monotone utilities.

    >>> from helpers.privacy import ADD_REMOVE
    >>> scores, positive = np.linspace(-4, 4, 8001), np.arange(8001) >= 6000
    >>> ledger = Ledger((scores, positive), ADD_REMOVE, np.random.default_rng(0))
    >>> round(balanced_cut_off(ledger, (6000, 2001), 1.0), 1), str(ledger.guarantee(1.0, 0.0, source="cut-off"))
    (2.0, '(1, 0)-DP, add/remove-one')
    """
    negatives, positives = (check_real("counts", count, low=0, inclusive="neither") for count in counts)
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")

    def utilities(records):
        scores, is_positive = (np.asarray(part) for part in records)
        # searchsorted counts the scores below each cut-off: among positives the misses, among negatives the correct
        # rejections.
        hits = is_positive.sum() - np.searchsorted(np.sort(scores[is_positive]), CUT_OFFS)
        rejections = np.searchsorted(np.sort(scores[~is_positive]), CUT_OFFS)
        return hits / positives + rejections / negatives

    return float(CUT_OFFS[ledger.choose(utilities, 1 / min(negatives, positives), epsilon=epsilon, monotonic=True)])
