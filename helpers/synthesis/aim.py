"""AIM: marginals chosen by what they would teach beyond their noise, with a budget that grows when little is left.

The adaptive mechanism of McKenna et al. 2022: every single attribute first, then round by round the marginal whose
distance from the model exceeds what its noise would show anyway. The model is `helpers.synthesis.mixture` instead of a
graphical model: no junction tree has to fit into memory, and samples given a label are exact. The rounds stop when the
budget is spent, whatever the answers were.
"""

import math
from collections import Counter

import numpy as np

from helpers.privacy import REPLACE_ONE
from helpers.synthesis.base import Fitted, MixtureSynthesizer
from helpers.synthesis.curator import Attributes, Curator, Measurement
from helpers.synthesis.mixture import Loss, MixtureFit, Target

_ROUNDS_PER_ATTRIBUTE = 4  # 16 as published: too many for some thousand records, whose single attributes drown then
_MEASURED = 0.9  # of a round's budget, as published: the rest pays for the choice
_RATE = 0.03
_BATCH = 8  # measured marginals that a step looks at
_SETTLE = 10  # times max_iters steps at the end


class AIM(MixtureSynthesizer):
    """Adaptive and iterative measurement of marginals, with a mixture of products as model; (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon, delta, n_components, domain, classes, n_bins, random_state
        As in `GEM`.
    k : int
        The workload is marginals of k attributes, the label being one of them; smaller ones may be measured too.
    workload : {"label", "all"}
        "all" as published, or only those with the label in them; then nothing else is measured but single attributes.
    max_iters : int
        Steps after each measurement, and ten times as many at the end.
    neighbouring : NeighboringRelation
        What neighbouring data sets are. `REPLACE_ONE`: the number of records is public. `ADD_REMOVE`: it is measured
        first.

    Attributes
    ----------
    model_, measurements_, domain_, classes_, n_records_, guarantee_
        As in `GEM`.

    Raises
    ------
    ValueError
        As `GEM`.

    Notes
    -----
    How much a round costs depends on noisy answers before it, so the guarantee is that of the whole budget in zCDP,
    which the rounds never exceed (a privacy filter: Feldman and Zrnic 2021). With k = 1 and the workload "label" there
    is one candidate and nothing to choose: all noise is Gaussian, and the filter is that of one Gaussian mechanism
    (Smith and Thakurta 2022).

    Proof: in the literature (zero-concentrated composition under a privacy filter); how far a record moves counts and
    choices is enumerated in `tests/test_synthesis_curator.py`.

    Source: McKenna, Mullins, Sheldon and Miklau 2022, Algorithms 2 to 4.

    >>> from helpers.data.domain import Domain
    >>> X, y = np.repeat([[0.2], [0.8]], 500, axis=0), np.repeat([0, 1], 500)
    >>> aim = AIM(1.0, domain=Domain.from_bounds([[0, 1]], n_bins=2), random_state=0).fit(X, y)
    >>> made, _ = aim.sample(1000, label=1, random_state=0)
    >>> round(float((made > 0.5).mean()), 1), str(aim.guarantee_)
    (1.0, '(1, 1e-05)-DP, replace-one')
    """

    _source = "AIM (McKenna et al. 2022), with a mixture as model"

    def _candidates(self, n_attributes: int) -> list[Attributes]:
        """Marginals of at most k attributes that may be measured after the single attributes."""
        orders = range(1, min(self.k, n_attributes) + 1)
        return [one for order in orders for one in self._workload(n_attributes, order)]

    def _makes_choices(self, n_attributes: int) -> bool:
        return len(self._candidates(n_attributes)) > 1

    def _fit_model(self, curator: Curator, sizes: tuple[int, ...], budget: float) -> Fitted:
        left, each = budget, budget / (_ROUNDS_PER_ATTRIBUTE * len(sizes))
        # Under replace-one the number is public and this costs nothing.
        n_records = curator.total(each)
        left -= 0.0 if self.neighbouring is REPLACE_ONE else each
        measurements: list[Measurement] = []
        fit = MixtureFit(self.n_components, sizes, curator.ledger.rng)
        for j in range(len(sizes)):
            measurements.append(curator.measure((j,), _MEASURED * each))
            left -= _MEASURED * each
        self._improve(fit, measurements, n_records, n_steps=len(sizes) * self.max_iters)
        candidates = self._candidates(len(sizes))
        # One candidate leaves nothing to choose: its measurement gets the whole of a round's budget.
        share = _MEASURED if self._makes_choices(len(sizes)) else 1.0
        # How much each says about the workload: the attributes that it shares with its marginals.
        shared = Counter(j for attributes in self._workload(len(sizes)) for j in attributes)
        weights = np.array([float(sum(shared[j] for j in candidate)) for candidate in candidates])
        # The largest weight is 1, so the sensitivity of a choice is that of one l1 distance.
        weights /= weights.max()
        cells = np.array([math.prod(sizes[j] for j in candidate) for candidate in candidates])
        while left > 0:
            # The last round takes all that is left, when another one would not fit.
            each = left if left < 2 * each else each
            left -= each
            # Standard deviation of the noise that `Curator.measure` will add to a cell.
            scale = math.sqrt((2 if self.neighbouring is REPLACE_ONE else 1) / (2 * share * each))
            # Expected l1 length of the noise alone: sqrt(2 / pi) standard deviations a cell. Only what exceeds it is
            # worth a measurement.
            noise = math.sqrt(2 / math.pi) * scale * cells
            mixture = fit.mixture()
            expected = [n_records * mixture.marginal(candidate) for candidate in candidates]
            chosen = 0
            if share < 1:
                for_choice = (1 - share) * each
                chosen = curator.choose_farthest(candidates, expected, for_choice, weights=weights, penalties=noise)
            measurements.append(curator.measure(candidates[chosen], share * each))
            self._improve(fit, measurements, n_records, n_steps=self.max_iters)
            moved = n_records * fit.mixture().marginal(candidates[chosen]) - expected[chosen]
            if np.abs(moved).sum() <= noise[chosen]:
                each *= 4  # half the noise: at this level nothing is left to be learnt
        self._improve(fit, measurements, n_records, n_steps=_SETTLE * self.max_iters)
        return {"model_": fit.mixture(), "n_records_": n_records, "measurements_": measurements}

    def _improve(self, fit: MixtureFit, measurements: list[Measurement], n_records: float, n_steps: int) -> None:
        """Fit the shares, each with the weight that its noise deserves."""
        least = min(measured.scale for measured in measurements)
        targets = [
            Target(measured.attributes, (measured.counts / n_records).astype(np.float32), (least / measured.scale) ** 2)
            for measured in measurements
        ]
        fit.improve(targets, n_steps=n_steps, rate=_RATE, batch_size=_BATCH, loss=Loss())
