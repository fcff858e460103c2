"""GEM: a distribution fitted, round by round, to the marginal that it gets most wrong.

In each of T rounds the exponential mechanism picks a marginal with a large error, Gaussian noise is added to it, and a
mixture of product distributions is fitted to all that was measured so far. Two parameterisations of the mixture: a
network that maps fixed noise vectors to its components, as published, or its logits themselves. The guarantee is made
from the events that were executed.
"""

from typing import Any, ClassVar

import numpy as np

from helpers.privacy import REPLACE_ONE
from helpers.synthesis.base import Fitted, MixtureSynthesizer
from helpers.synthesis.curator import Curator, Measurement
from helpers.synthesis.mixture import Loss, MixtureFit, Target
from helpers.validation import check_integer, choice, integer, optional, real

PAPER: dict[str, Any] = {
    "workload": "all",
    "T": 100,
    "n_components": 1000,
    "lr": 1e-4,
    "max_idxs": 100,
    "parameterization": "network",
}
"""Parameters of `GEM` as in Rosenblatt et al. 2025, Table 12, where they are not the defaults.

`GEM(epsilon, delta, **PAPER)`. The table does not name the number of components; the published code has 1,000.
"""
_RATES = {"direct": 0.03, "network": 1e-3}
_BATCH = 4  # measured marginals that a step looks at: the last one, and others drawn anew
_EMA_ERROR = 0.5  # both constants as in the published code
_LARGE_ERROR = 0.5


class GEM(MixtureSynthesizer):
    """Generative networks with the exponential mechanism, (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon, delta : float
        Total budget, > 0 and in (0, 1).
    k : int
        The workload is marginals of k attributes, the label being one of them.
    workload : {"label", "all"}
        "all", as published, or only those with the label in them. What sets the classes apart is a small error in any
        count where one class is rare, and "all" finds it last.
    T : int
        Rounds, each of which measures one marginal.
    alpha : float
        In (0, 1): of a round's budget in zCDP, alpha^2 / (alpha^2 + (1 - alpha)^2) goes into the choice; nothing where
        the workload is a single marginal.
    parameterization : {"direct", "network"}
        "network": as published, but of two layers of 256 units, with components of equal weight. "direct": the
        mixture's logits and those of its weights; several times faster, and a rare class is described as finely as
        the others.
    n_components : int
        Products in the mixture; at least 2 for "network".
    loss_p : {1, 2}
        Power of a cell's error in the loss.
    lr : float, optional
        Adam's first rate in a round; it falls along a cosine, in and over the rounds. None: 0.03 for "direct", 1e-3 for
        "network".
    max_iters : int
        Steps in a round.
    max_idxs : int, optional
        As published: a step looks at this many cells, those with the largest errors, and among them only at errors
        above half a running mean of the largest error. None: at all cells.
    ema_weights_beta : float
        In [0, 1): parameters are averaged over the second half of the rounds with this weight on the past.
    embedding_dim : int
        Length of the network's noise vectors.
    domain : Domain, optional
        Public. None: all attributes are real numbers, and bins are found privately with a tenth of the budget.
    classes : sequence of labels
        Public; used if `domain` is None, which names them otherwise.
    n_bins : int
        Most bins of an attribute, if `domain` is None.
    neighbouring : NeighboringRelation
        What neighbouring data sets are. `REPLACE_ONE`: the number of records is public. `ADD_REMOVE`: it is measured,
        with as much of the budget as a round.
    random_state : None or int
        None, except to reproduce a result (`PrivateMixin`).

    Attributes
    ----------
    model_ : ProductMixture
    measurements_ : list of Measurement
        What was measured, in order, with its noise.
    domain_ : Domain; classes_ : ndarray; n_records_ : float; guarantee_ : helpers.privacy.Guarantee

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range, more cells than fit into memory, another number of columns than the
        domain has, a category or a label that it does not have.

    Notes
    -----
    A choice with probability proportional to exp(alpha e score/s), s the score's sensitivity, is the exponential
    mechanism at 2 alpha e and costs (2 alpha e)^2/8 = (alpha e)^2/2 in zCDP (Cesar and Rogers 2021); Gaussian noise of
    standard deviation s/((1 - alpha) e) costs ((1 - alpha) e)^2/2. T such rounds fill the budget at
    e = sqrt(2 rho/(T (alpha^2 + (1 - alpha)^2))). Where the workload is a single marginal, all noise is Gaussian, and
    rho is that of the one Gaussian mechanism that it makes.

    Deviations from the published code, with `PAPER` too: steps look at four measured marginals instead of all;
    the loss is a sum of powers, not a norm divided by the number of cells; the running mean is that of the newest
    marginal's largest error, not of all measured ones'; a round takes all its steps, though no error be left; Adam
    keeps its moments from round to round; rates fall to 0, not to 1e-5 and 1e-8; the network has layers of 256 units,
    not of 1,024, and products in bfloat16 where the processor has it; a marginal may be chosen again, so that T may
    exceed their number; noisy shares are not clipped to [0, 1].

    Proof: in the literature (zero-concentrated composition); how far a record moves counts and choices is enumerated in
    `tests/test_synthesis_curator.py`.

    Source: Liu, Vietri and Wu 2021, Algorithm 2 and Section 4; code at terranceliu/dp-query-release.

    >>> from helpers.data.domain import Domain
    >>> X, y = np.repeat([[0.2], [0.8]], 500, axis=0), np.repeat([0, 1], 500)
    >>> gem = GEM(1.0, domain=Domain.from_bounds([[0, 1]], n_bins=2), random_state=0).fit(X, y)
    >>> made, _ = gem.sample(1000, label=1, random_state=0)
    >>> round(float((made > 0.5).mean()), 1), str(gem.guarantee_)
    (1.0, '(1, 1e-05)-DP, replace-one')
    """

    _source = "GEM (Liu, Vietri and Wu 2021)"
    _allowed: ClassVar[dict] = {
        "T": integer(low=1),
        "alpha": real(low=0, high=1, inclusive="neither"),
        "parameterization": choice(*_RATES),
        "loss_p": choice(1, 2),
        "lr": optional(real(low=0, inclusive="neither")),
        "max_idxs": optional(integer(low=1)),
        "ema_weights_beta": real(low=0, high=1, inclusive="low"),
        "embedding_dim": integer(low=1),
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-5,
        T=20,
        alpha=0.67,
        parameterization="direct",
        loss_p=2,
        lr=None,
        max_idxs=None,
        ema_weights_beta=0.9,
        embedding_dim=512,
        **shared,
    ):
        super().__init__(epsilon=epsilon, delta=delta, **shared)
        self.T = T
        self.alpha = alpha
        self.parameterization = parameterization
        self.loss_p = loss_p
        self.lr = lr
        self.max_idxs = max_idxs
        self.ema_weights_beta = ema_weights_beta
        self.embedding_dim = embedding_dim

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.parameterization == "network":
            check_integer("n_components", self.n_components, low=2)  # batch normalisation of one is undefined

    def _makes_choices(self, n_attributes: int) -> bool:
        return len(self._workload(n_attributes)) > 1

    def _bound(self, n_attributes: int, total: float) -> None:
        return None  # rounds and their prices are fixed beforehand

    def _fit_model(self, curator: Curator, sizes: tuple[int, ...], budget: float) -> Fitted:
        # Under add/remove the number of records is measured first, at the price of a round.
        rho = budget / (self.T if self.neighbouring is REPLACE_ONE else self.T + 1)
        n_records = curator.total(rho)
        workload = self._workload(len(sizes))
        choice_share = 0.0
        if self._makes_choices(len(sizes)):
            choice_share = self.alpha**2 / (self.alpha**2 + (1 - self.alpha) ** 2)
        rng = curator.ledger.rng  # of the first parameters and of the order of steps
        if self.parameterization == "direct":
            fit = MixtureFit(self.n_components, sizes, rng)
        else:
            from helpers.synthesis.network import NetworkFit  # torch takes seconds to import

            fit = NetworkFit(self.embedding_dim, self.n_components, sizes, rng)
        first_rate = _RATES[self.parameterization] if self.lr is None else self.lr
        beta = self.ema_weights_beta
        measurements: list[Measurement] = []
        targets, mean_error = [], None
        mean_state: Any = None
        for turn in range(self.T):
            mixture = fit.mixture()
            expected = [n_records * mixture.marginal(attributes) for attributes in workload]
            # A workload of one marginal leaves nothing to choose.
            chosen = curator.choose_worst(workload, expected, rho * choice_share) if choice_share else 0
            measured = curator.measure(workload[chosen], rho * (1 - choice_share))
            measurements.append(measured)
            shares = measured.counts / n_records
            targets.append(Target(measured.attributes, shares.astype(np.float32)))
            # From the noisy answer, so that the loss may depend on it at no cost.
            error = float(np.abs(shares - expected[chosen] / n_records).max())
            mean_error = error if mean_error is None else _EMA_ERROR * mean_error + (1 - _EMA_ERROR) * error
            loss = Loss(self.loss_p, self.max_idxs, _LARGE_ERROR * mean_error)
            # Rates fall twice along a cosine: from round to round here, and within a round in `improve`.
            rate = first_rate * (1 + np.cos(np.pi * turn / self.T)) / 2
            fit.improve(targets, n_steps=self.max_iters, rate=rate, batch_size=_BATCH, loss=loss)
            if 2 * (turn + 1) > self.T:  # over the second half of the rounds, parameters are averaged
                state = fit.state()
                mean_state = state if mean_state is None else beta * mean_state + (1 - beta) * state
        fit.restore(mean_state)
        return {"model_": fit.mixture(), "n_records_": n_records, "measurements_": measurements}
