"""Tables of patients whose truth is known, to hold against it what a privacy card says about a classifier.

Nobody is in them: columns and their laws are made up, and the log-odds of a complication are a sum over columns, with
products where `interacting`. Strength and base rate are found by bisection, so that the best score of all has a wanted
AUC and the complication a wanted share.
"""

import math
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from helpers.data import Schema

SCHEMA = Schema.parse(
    """
basis: ranges that are written down with the laws of the columns
rows_per_person: 1
record: a simulated patient
label: {column: complication, levels: [no, yes], minority: yes}
columns:
  age: {kind: integer, low: 18, high: 91}
  sex: {kind: categorical, levels: [F, M]}
  bmi: {kind: real, low: 10, high: 60, missing: true}
  pressure: {kind: real, low: 60, high: 220, missing: true}
  hba1c: {kind: real, low: 2, high: 18, missing: true}
  smoker: {kind: categorical, levels: [never, former, current], missing: true}
  ward: {kind: categorical, levels: [A, B, C, D, E]}
  admissions: {kind: integer, low: 0, high: 10}
"""
)
_WITH_GAPS = ("bmi", "pressure", "hba1c", "smoker")
_GAPS = 0.05  # of the cells of these columns
_CALIBRATION = 40_000  # patients by whom strength and base rate are found


def patients(n: int, auc: float, share: float, *, interacting: bool = False, seed: int = 0) -> pd.DataFrame:
    """A table of `n` patients.

    Parameters
    ----------
    n : int
    auc : float
        Of the log-odds themselves, in (0.5, 1): no classifier is better.
    share : float
        Of patients with a complication, in (0, 1).
    interacting : bool
        Whether columns go together, and have effects together.
    seed : int

    >>> table = patients(5000, 0.85, 0.05)
    >>> bool(0.04 < (table.complication == "yes").mean() < 0.06)
    True
    """
    strength, base = _calibrated(auc, share, interacting)
    rng = np.random.default_rng(seed)
    table, effect = _columns(n, interacting, rng)
    ill = rng.random(n) < expit(strength * effect + base)
    for name in _WITH_GAPS:
        table[name] = table[name].astype(object).where(rng.random(n) >= _GAPS, "")
    return table.assign(complication=np.where(ill, "yes", "no"))


def _columns(n: int, interacting: bool, rng: np.random.Generator) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """The columns, and what they add to the log-odds, with median 0 up to chance."""
    common = rng.normal(size=n) if interacting else np.zeros(n)
    own = math.sqrt(0.5) if interacting else 1.0

    def normal(mean, deviation):
        return mean + deviation * (math.sqrt(0.5) * common + own * rng.normal(size=n))

    table = pd.DataFrame(
        {
            "age": rng.integers(18, 92, n),
            "sex": np.where(rng.random(n) < 0.54, "F", "M"),
            "bmi": normal(27, 5).round(1),
            "pressure": normal(132, 18).round(),
            "hba1c": rng.gamma(9, 0.7, n).round(2),
            "smoker": rng.choice(["never", "former", "current"], n, p=[0.55, 0.25, 0.2]),
            "ward": rng.choice(list("ABCDE"), n),
            "admissions": rng.poisson(0.6, n),
        }
    )
    smokes = (table.smoker == "current").to_numpy()
    effect = 0.05 * (table.age - 60) + 0.9 * smokes + 0.06 * (table.bmi - 27) + 0.02 * (table.pressure - 132)
    effect += 0.35 * (table.hba1c - 6.3) + 0.5 * table.admissions + 0.2 * (table.sex == "M")
    if interacting:
        effect += 0.03 * smokes * (table.age - 55) + 0.004 * (table.bmi - 27) * (table.pressure - 132)
    return table, (effect - np.median(effect)).to_numpy()


@cache
def _calibrated(auc: float, share: float, interacting: bool) -> tuple[float, float]:
    """The strength and the base rate of the log-odds."""
    _, effect = _columns(_CALIBRATION, interacting, np.random.default_rng(0))
    uniform = np.random.default_rng(1).random(_CALIBRATION)

    def base(strength):
        return brentq(lambda b: expit(strength * effect + b).mean() - share, -500, 500)

    def reached(strength):
        ill = uniform < expit(strength * effect + base(strength))
        return roc_auc_score(ill, effect)

    strength = brentq(lambda s: reached(s) - auc, 0.05, 10, xtol=1e-3)
    return strength, base(strength)
