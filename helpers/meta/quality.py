"""How good a private classifier is, measured on records that it did not learn from, and paid for by them.

The persons of a table are divided by chance into those who are learned from and those who are held out. The chance is
drawn without looking at the records, so what one person moves is either the classifier or the count of its hits and
misses, and never both: each of the two may cost the whole budget (parallel composition, McSherry 2009). What the
measurement takes is not budget but records, a fifth of them.

Where nobody knows which rows are of one person, k rows at most, j of them may be held out. The counts then cost
epsilon j/k; the classifier, as a Gaussian mechanism of parameter mu that was billed for k rows, t = 1 - j/k of mu.
That is at most (t epsilon, delta): its delta at t epsilon is Phi(t mu/2 - c) - exp(t epsilon) Phi(-t mu/2 - c) with
c = epsilon/mu, whose derivative by t, mu phi(t mu/2 - c) - epsilon exp(t epsilon) Phi(-t mu/2 - c), is not negative,
since Phi(-x) <= phi(x)/x <= phi(x)/c at x = t mu/2 + c and exp(t epsilon) phi(t mu/2 + c) = phi(t mu/2 - c). So both
together stay within (epsilon, delta).

Source of the intervals: those shares that a test would not reject, as for a quotient of two normal numbers (Fieller
1954), with the law of the noise simulated; that of a mean of shares from those of each share (Zou and Donner 2008).
"""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import laplace

from helpers.privacy import ADD_REMOVE, Ledger, NeighboringRelation

HELD_OUT = 0.2
"""Share of the persons who are held out."""
_ERROR = 0.05  # of the intervals
_TRIED = 101
_DRAWS = 2000


class Quality(NamedTuple):
    """Noisy counts of what a classifier said about records it had not seen.

    Attributes
    ----------
    counts : ndarray (K, K)
        Records of each class, by row, that it took for each class, by column; with noise, so that one may be negative.
        A person with several rows counts as one, in parts.
    noise_scale : float
        Scale of the Laplace noise on each count.
    """

    counts: NDArray[np.float64]
    noise_scale: float

    def intervals(self) -> pd.DataFrame:
        """What the counts say of records like these: the middle and the ends of intervals that hold with 95 %.

        They cover the noise and the choice of the records. The rare class is the last of the classes.

        Returns
        -------
        DataFrame
            `low`, `middle`, `high` of each row: `balanced accuracy`; `recall`, the share of the rare class that is
            found; `precision`, the share of alarms that are right; `alarms per 1,000` records.

        >>> found = Quality(np.array([[900.0, 60.0], [12.0, 28.0]]), 1.4).intervals()
        >>> bool(found.low["recall"] < 28 / 40 < found.high["recall"])
        True
        """
        n_classes = len(self.counts)
        recalls = np.array([self._share(self.counts[k, [k]], np.delete(self.counts[k], k)) for k in range(n_classes)])
        low, middle, high = recalls.T
        mean = middle.mean()
        alarms, silence = self.counts[:, -1], self.counts[:, :-1].ravel()
        table = {
            "balanced accuracy": (
                mean - np.linalg.norm(middle - low) / n_classes,
                mean,
                mean + np.linalg.norm(high - middle) / n_classes,
            ),
            "recall": recalls[-1],
            "precision": self._share(alarms[[-1]], alarms[:-1]),
            "alarms per 1,000": 1000 * np.array(self._share(alarms, silence)),
        }
        return pd.DataFrame.from_dict(table, orient="index", columns=["low", "middle", "high"])

    def _share(self, hits: NDArray, misses: NDArray) -> tuple[float, float, float]:
        """The least, likeliest and largest share of hits among hits and misses that the noisy counts of both allow.

        Had all records the share r, (1 - r) hits - r misses would be 0 but for chance and noise: those r are allowed
        for which it is not among the 5 % that are farthest off.
        """
        rng = np.random.default_rng(0)  # nothing here is secret, and equal counts always give equal intervals
        total = max(round(float(hits.sum() + misses.sum())), 1)
        # Such noise as the counts may have; nothing is released with it.
        uniform = [rng.random((len(part), _DRAWS)) for part in (hits, misses)]
        noise = [laplace.ppf(each, scale=self.noise_scale).sum(axis=0) for each in uniform]
        # Shares to be tried: as far from the quotient as chance and noise hardly ever go.
        near = min(max(float(hits.sum()) / total, 0.0), 1.0)
        spread = (math.sqrt(total) + self.noise_scale * math.sqrt(2 * (len(hits) + len(misses)))) / total
        tried = np.linspace(max(near - 5 * spread, 0), min(near + 5 * spread, 1), _TRIED)
        drawn = rng.binomial(total, tried[:, None], (_TRIED, _DRAWS)) - total * tried[:, None]
        drawn = drawn + np.outer(1 - tried, noise[0]) - np.outer(tried, noise[1])
        found = ((1 - tried) * hits.sum() - tried * misses.sum())[:, None]
        likely = 2 * np.minimum((drawn <= found).mean(axis=1), (drawn >= found).mean(axis=1))
        allowed = tried[likely >= _ERROR]
        if not len(allowed):  # both counts are far below 0, so they say nothing
            return 0.0, 0.5, 1.0
        return allowed[0], tried[np.argmax(likely)], allowed[-1]


def held_out(n_persons: int, neighbouring: NeighboringRelation, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which persons (n_persons,) are held out.

    Where the number of persons is public, so is how many are held out, and chance says who; where it is not, each is
    with probability `HELD_OUT`, whoever else there is.
    """
    if neighbouring is ADD_REMOVE:
        return rng.random(n_persons) < HELD_OUT
    return rng.permutation(n_persons) < round(HELD_OUT * n_persons)


def measured(ledger: Ledger, n_classes: int, epsilon: float, rows_per_person: int = 1) -> Quality:
    """Counts of right and wrong predictions, for all of the budget that the held-out persons have.

    Parameters
    ----------
    ledger : Ledger
        Of the held-out rows: codes of the classes (m,) and of the predictions (m,), and how much of a person each row
        is (m,), one over the number of this person's rows.
    n_classes : int
    epsilon : float
    rows_per_person : int
        The most rows of a person that are counted as if each were another's.
    """
    # A record is in one cell: one that is replaced leaves a cell and enters another one.
    most = rows_per_person * (1.0 if ledger.neighbouring is ADD_REMOVE else 2.0)

    def cells(records):
        truth, said, parts = records
        return np.bincount(truth * n_classes + said, parts, n_classes**2).reshape(n_classes, n_classes)

    return Quality(ledger.laplace(cells, most, epsilon), most / epsilon)
