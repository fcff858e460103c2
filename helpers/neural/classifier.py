"""Private training of a network as a scikit-learn classifier: public parameters in, a guarantee and a model out.

One budget pays for everything that is released: noisy class counts where something needs them, the training, and a
private cut-off where one is asked for. They are composed by one accountant, so the noise of the training is no larger
than the budget wants. Weights computed from the private data have no place here: under sampling, one record more moves
the weight of every record in every batch, and nothing pays for it.
"""

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from dp_accounting import DpEvent
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from torch.func import vmap

from helpers.data import into_ball
from helpers.neural import models
from helpers.neural.decisions import balanced_cut_off
from helpers.neural.losses import CrossEntropy, Focal, RecordLoss
from helpers.neural.schedule import Schedule
from helpers.neural.training import Descent, throw_away
from helpers.predictions import ScorePredictions
from helpers.privacy import ADD_REMOVE, Ledger, PrivateMixin, noise_assumptions
from helpers.privacy.accounting import ApproximateDpEvent
from helpers.validation import (
    Check,
    any_value,
    check_bounds,
    check_choice,
    check_classes,
    check_real,
    choice,
    integer,
    label_codes,
    optional,
    real,
    validate_records,
)

# From the numbers of features and classes, and a seed for the starting values.
_MODELS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "linear": lambda n_features, n_classes, seed: models.linear(n_features, n_classes),  # starts from zero
    "mlp": lambda n_features, n_classes, seed: models.mlp(n_features, n_classes, seed=seed),
    "ft-transformer": lambda n_features, n_classes, seed: models.FTTransformer(n_features, n_classes, seed=seed),
}
_LOSSES: dict[str, Callable[[], RecordLoss]] = {"cross-entropy": CrossEntropy, "focal": Focal}
_LARGEST_VALUE = 1e18  # of a feature: its square is still a 32-bit float


def _named_or_callable(names: Collection[str], name: str, value: Any) -> None:
    """Refuse what is neither one of the names nor a callable."""
    if not (isinstance(value, str) and value in names) and (isinstance(value, str) or not callable(value)):
        raise ValueError(f"{name} must be a callable or one of {tuple(names)}, got {value!r}")


def _weights(name: str, value: Any) -> None:
    """Refuse class weights that are neither None, "private" nor a dict of numbers in (0, 1]."""
    if not isinstance(value, dict):
        check_choice(name, value, (None, "private"))
        return
    for weight in value.values():
        check_real(name, weight, low=0, high=1, inclusive="high")


def _one_schedule(name: str, value: Any) -> None:
    if not isinstance(value, Schedule):
        raise ValueError(f"{name} must be a Schedule or None, got {value!r}")


class DPNeuralClassifier(PrivateMixin, ScorePredictions, ClassifierMixin, BaseEstimator):
    """A network trained by noisy gradient descent on Poisson batches, (epsilon, delta)-DP under add/remove-one.

    Parameters
    ----------
    model : {"linear", "mlp", "ft-transformer"} or callable
        The network; a callable makes one from the numbers of features and classes. Its layers must treat every record
        alone (no batch normalisation).
    epsilon : float
        Budget of everything that is released, at least 1e-3.
    delta : float
        In (0, 1).
    epochs : float
        Expected passes over the records, > 0; T = epochs / sample_rate steps, rounded.
    sample_rate : float
        q in (0, 1]: the probability with which a record is in a batch.
    clip_norm : float
        C > 0, the largest pull of one record.
    schedule : Schedule, optional
        Steps whose noise, clipping or sampling vary; its noise is scaled to the budget. In place of `epochs`,
        `sample_rate` and `clip_norm`.
    learning_rate, momentum : float
        Of the optimiser, on the mean gradient (with weighting "bound": per unit of weight); > 0, in [0, 1).
    optimizer : {"sgd", "adam"}
        What the noisy gradients go to. "adam" divides each step by the size of recent gradients, so `clip_norm` sets no
        step length; `momentum` is its first moment's.
    average : float
        In [0, 1): the model is the mean of those after this share of the steps, the last ones, which costs no privacy.
    loss : {"cross-entropy", "focal"} or RecordLoss
    class_weight : None, "private" or dict
        "private": in proportion to one over the noisy count of the class; the largest is 1. A dict maps every label to
        a public weight in (0, 1].
    weighting : {"bound", "loss"}
        "bound" clips a gradient, then weighs it. "loss" weighs the loss, as is printed: clipping then takes the weights
        off again where a weighted gradient is longer than C (Notes).
    prior : None or "offset"
        "offset": the logarithms of the noisy class shares are added to the logits, in training and after it, so that
        the network has only to learn in what the records differ.
    decision : {"likely", "prior", "cut-off"}
        What `predict` and `decision_function` do. "likely": the largest logit. "prior": the largest logit less the
        logarithm of what the class weighs (noisy share times weight), best for balanced accuracy if probabilities are
        right. "cut-off" (two
        classes): `balanced_cut_off` of the scores of the records of the fit, which only needs a good ranking.
    counts_share, cut_off_share : float
        Parts of `epsilon` for noisy counts and for the cut-off, in (0, 1), together below 1; what is not needed is not
        spent. One noisy count a class serves weights, offset, decision and the divisor of the sums.
    n_records : int, optional
        Public number that divides the noisy sums, in place of the noisy counts' sum (with weighting "bound": weighted).
    bounds : array (d, 2), optional
        Public bounds of the features: X is mapped to [-1, 1] by them.
    classes : sequence of at least two labels
        Public. A label outside is refused; a class that no record has is not an error.
    device : {"cpu", "cuda"}
        Where it is trained. The fitted model is on the CPU.
    random_state : None or int
        None, except to reproduce a result: whoever can guess an integer knows the noise, and it must not serve two
        releases on related data (`PrivateMixin`).

    Attributes
    ----------
    model_ : torch.nn.Module
        In 64-bit floats. It has seen no record; scores are computed by a copy, one row at a time.
    schedule_ : Schedule
        What was run.
    counts_ : ndarray (K,) of int64, or None if nothing was counted
        Noisy; may be negative.
    class_weight_ : ndarray (K,) or None
    shifts_ : ndarray (K,)
        What is taken off the logits for the decision.
    guarantee_ : helpers.privacy.Guarantee
        Of all of these together.
    classes_ : ndarray (K,); n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range, a budget out of reach, a model that mixes records, X not a finite numeric
        matrix, a label outside `classes`. No other failure depends on the records: not even none of them is an error.

    Notes
    -----
    Which `weighting`: "bound" for networks. Their gradients are long, and with "loss" clipping takes from those of the
    rare class, whose weight is 1, what is beyond C, and nothing from the common ones. "bound" clips before it weighs,
    and keeps the proportion. A linear model of features in [-1, 1] has short gradients: there both do alike.

    What divides the sums is the most that all records together can pull, over C: their weight with "bound", their
    number with "loss". So no step is longer than the rate times C, noise aside; but weights of the loss that are far
    below 1 make steps shorter, where gradients are short, and want a larger rate.

    Which options against imbalance: prior="offset" with decision="cut-off" has the fewest assumptions, all in one
    budget. Without any, a model may rank well and call every record negative.

    Proof: in the literature; gaps between floating-point numbers are not covered (`helpers.neural.training`).

    Source: Abadi et al. 2016, Algorithm 1; class weights: Rosenblatt et al. 2025, Algorithm 4, repaired.

    >>> X, y = np.linspace(-1, 1, 200)[:, None], np.repeat([0, 1], 100)
    >>> model = DPNeuralClassifier(epsilon=4.0, delta=1e-4, random_state=0).fit(X, y)
    >>> str(model.guarantee_), model.predict([[-1.0], [1.0]]).tolist()
    ('(4, 0.0001)-DP, add/remove-one', [0, 1])
    """

    _allowed: ClassVar[dict[str, Check]] = {
        "model": functools.partial(_named_or_callable, _MODELS),
        "epsilon": real(low=1e-3),
        "delta": real(low=0, high=1, inclusive="neither"),
        "epochs": real(low=0, inclusive="neither"),
        "sample_rate": real(low=0, high=1, inclusive="high"),
        "clip_norm": real(low=0, inclusive="neither"),
        "schedule": optional(_one_schedule),
        "learning_rate": real(low=0, inclusive="neither"),
        "momentum": real(low=0, high=1, inclusive="low"),
        "optimizer": choice("sgd", "adam"),
        "average": real(low=0, high=1, inclusive="low"),
        "loss": functools.partial(_named_or_callable, _LOSSES),
        "class_weight": _weights,
        "weighting": choice("bound", "loss"),
        "prior": choice(None, "offset"),
        "decision": choice("likely", "prior", "cut-off"),
        "counts_share": real(low=0, high=1, inclusive="neither"),
        "cut_off_share": real(low=0, high=1, inclusive="neither"),
        "n_records": optional(integer(low=1, high=10**15)),
        "bounds": any_value,  # with the number of features
        "classes": check_classes,
        "device": choice("cpu", "cuda"),
    }

    def __init__(
        self,
        model: str | Callable[[int, int], nn.Module] = "linear",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        epochs: float = 20,
        sample_rate: float = 0.25,
        clip_norm: float = 1.0,
        schedule: Schedule | None = None,
        learning_rate: float = 0.2,
        momentum: float = 0.9,
        optimizer: str = "sgd",
        average: float = 0.5,
        loss: str | RecordLoss = "cross-entropy",
        class_weight: str | dict[Any, float] | None = None,
        weighting: str = "bound",
        prior: str | None = None,
        decision: str = "likely",
        counts_share: float = 0.1,
        cut_off_share: float = 0.2,
        n_records: int | None = None,
        bounds: ArrayLike | None = None,
        classes: Sequence[Any] = (0, 1),
        device: str = "cpu",
        random_state: int | None = None,
    ):
        self.model = model
        self.epsilon = epsilon
        self.delta = delta
        self.epochs = epochs
        self.sample_rate = sample_rate
        self.clip_norm = clip_norm
        self.schedule = schedule
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.optimizer = optimizer
        self.average = average
        self.loss = loss
        self.class_weight = class_weight
        self.weighting = weighting
        self.prior = prior
        self.decision = decision
        self.counts_share = counts_share
        self.cut_off_share = cut_off_share
        self.n_records = n_records
        self.bounds = bounds
        self.classes = classes
        self.device = device
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = np.size(self.classes) > 2
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit privately to X (n, d) and labels y (n,); returns self. A fit that fails leaves nothing behind."""
        self._forget()
        self._check_parameters()
        for_counts, for_cut_off = self._shares()
        beside: tuple[DpEvent, ...] = ()
        if for_counts:
            beside += (DiscreteLaplaceDpEvent(for_counts, 1),)
        if for_cut_off:
            beside += (ApproximateDpEvent(for_cut_off, 0.0),)
        # In proportion to the budget, so that a loss distribution has about as many points for every epsilon.
        accounting: dict[str, Any] = {"interval": 1e-3 * self.epsilon, "beside": beside}
        schedule = self.schedule
        if schedule is None:
            steps = max(round(self.epochs / self.sample_rate), 1)
            schedule = Schedule.constant(steps, sample_rate=self.sample_rate, clip_norm=self.clip_norm)
        # Before the records are looked at: the noise, and whether the budget can be met at all, depend on public
        # numbers only.
        schedule = schedule.calibrate(self.epsilon, self.delta, **accounting)
        # Under add/remove the number of records is private, so none at all is no error.
        X, y = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=0)
        try:
            if self.bounds is not None:
                check_bounds("bounds", self.bounds, X.shape[1])
            codes = label_codes(y, check_classes("classes", self.classes))
            ledger = Ledger((X, codes), ADD_REMOVE, self._noise_generator(X, y))
            learnt = self._learn(X.shape[1], ledger, schedule)
            assumes = (
                "starting values of the model public",
                "set of labels public",
                *(("number that divides the sums public",) if self.n_records is not None else ()),
                *(("class weights public",) if isinstance(self.class_weight, dict) else ()),
                *(("feature bounds public",) if self.bounds is not None else ()),
                *noise_assumptions(ledger.rng),
            )
            # At the budget itself: calibration spends a little less.
            learnt["guarantee_"] = schedule.guarantee(
                self.delta, **accounting, assumes=assumes, ledger=ledger, budget=self.epsilon
            )
            self.__dict__.update(learnt)
        except BaseException:  # an interrupt too
            self._forget()
            raise
        return self

    def _learn(self, n_features: int, ledger: Ledger, schedule: Schedule) -> dict[str, Any]:
        """Attributes of the fitted object by name, without its guarantee, computed from the ledger's answers."""
        classes = check_classes("classes", self.classes)
        for_counts, for_cut_off = self._shares()
        optimizer: Callable[..., torch.optim.Optimizer] = functools.partial(
            torch.optim.SGD, lr=self.learning_rate, momentum=self.momentum
        )
        if self.optimizer == "adam":
            optimizer = functools.partial(torch.optim.Adam, lr=self.learning_rate, betas=(self.momentum, 0.999))
        # What the caller made is tried before anything is paid for.
        descent = Descent(
            self._new_model(n_features, int(ledger.rng.integers(2**63))),
            torch.zeros(n_features),
            schedule,
            loss=_LOSSES[self.loss]() if isinstance(self.loss, str) else self.loss,
            weighting=self.weighting,
            optimizer=optimizer,
            average=self.average,
            device=self.device,
        )
        if descent.n_classes != len(classes):
            raise ValueError(f"model must give one logit a class, {len(classes)}, got {descent.n_classes}")
        counts, positive = None, np.full(len(classes), np.nan)  # not read where no counts are bought
        if for_counts:
            counts = ledger.class_counts(
                lambda records: np.bincount(records[1], minlength=len(classes)), len(classes), for_counts
            )
            positive = np.maximum(counts, 1).astype(float)  # raised to 1, which can be divided by
        log_prior = np.log(positive / positive.sum())
        class_weight = None
        if isinstance(self.class_weight, dict):
            class_weight = np.array([float(self.class_weight[label]) for label in classes.tolist()])
        elif self.class_weight == "private":
            # The largest weight is 1, so the bound on a record's pull is the clipping norm.
            class_weight = positive.min() / positive
        # The most that all records together can pull, over C. Weights of the loss are no part of it: where gradients
        # are long, clipping takes them off, and a sum of pulls of C over small weights would be a step far longer than
        # the rate allows.
        n_divisor = self.n_records
        if n_divisor is None:
            pulls = positive if class_weight is None or self.weighting == "loss" else class_weight * positive
            n_divisor = max(round(float(np.sum(pulls))), 1)
        if self.prior is not None:
            descent.published = models.with_prior(descent.published, log_prior).to(descent.device)
        as_tensors = ledger.view(
            lambda records: (
                torch.from_numpy(self._as_input(records[0]).astype(np.float32)),
                torch.from_numpy(records[1]),
            )
        )
        weights = None if class_weight is None else torch.from_numpy(class_weight)
        model = descent.run(as_tensors, weights, n_divisor).cpu().double()
        shifts = np.zeros(len(classes))
        if self.decision == "prior":
            # A weighted model's classes are as frequent as their shares times their weights.
            shifts = log_prior + np.log(1.0 if class_weight is None else class_weight)
        elif self.decision == "cut-off":
            # `balanced_cut_off` looks most closely around 0: scores are measured from where the model says nothing
            # beyond the prior.
            centre = 0.0 if self.prior is None else float(np.diff(log_prior)[0])
            scored = ledger.view(
                lambda records: (np.diff(self._logits(model, records[0]))[:, 0] - centre, records[1] == 1)
            )
            shifts[1] = centre + balanced_cut_off(scored, tuple(positive), for_cut_off)
        return {
            "classes_": classes,
            "counts_": counts,
            "class_weight_": class_weight,
            "schedule_": schedule,
            "model_": model,
            "shifts_": shifts,
        }

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores (n,), positive for the second class; with more classes (n, K)."""
        X = self._checked(X)
        scores = self._logits(self.model_, X) - self.shifts_
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities (n, K) as the network sees them; they know nothing of `decision`."""
        X = self._checked(X)
        return softmax(self._logits(self.model_, X), axis=1)

    # ------------------------------------------------------------------------------------------ public parameters

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.counts_share + self.cut_off_share >= 1:
            shares = [self.counts_share, self.cut_off_share]
            raise ValueError(f"counts_share and cut_off_share must be together below 1, got {shares}")
        classes = check_classes("classes", self.classes).tolist()
        if self.decision == "cut-off" and len(classes) > 2:
            raise ValueError(f"decision must be 'likely' or 'prior' with more than two classes, got {self.decision!r}")
        if isinstance(self.class_weight, dict) and set(self.class_weight) != set(classes):
            raise ValueError(f"class_weight must be a dict over the labels of classes, got {self.class_weight!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device must be 'cpu' where PyTorch finds no GPU, got 'cuda'")

    def _shares(self) -> tuple[float, float]:
        """Epsilons of the noisy counts and of the cut-off; 0 for what is not bought."""
        counted = (
            self.n_records is None
            or self.class_weight == "private"
            or self.prior is not None
            or self.decision != "likely"
        )
        cut_off = self.decision == "cut-off"
        return counted * self.counts_share * self.epsilon, cut_off * self.cut_off_share * self.epsilon

    # ------------------------------------------------------------------------------------------- parts of training

    def _new_model(self, n_features: int, seed: int) -> nn.Module:
        if isinstance(self.model, str):
            return _MODELS[self.model](n_features, len(self.classes), seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.model(n_features, len(self.classes))

    # ------------------------------------------------------------------------------------------------- predictions

    def _checked(self, X) -> np.ndarray:
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False)

    def _as_input(self, X) -> np.ndarray:
        """Rows (n, d) as the network takes them.

        Without bounds, entries are cut where a 32-bit float would overflow: the error would depend on a record.
        """
        if self.bounds is not None:
            # A ball of radius sqrt(d) has the cube [-1, 1]^d inside.
            return into_ball(X, np.asarray(self.bounds, dtype=float), radius=math.sqrt(X.shape[1]))
        return np.clip(X, -_LARGEST_VALUE, _LARGEST_VALUE)

    def _logits(self, model, X) -> np.ndarray:
        """Logits (n, K) of rows X (n, d), each of its row alone, whatever the network does with a batch.

        By a copy: layers may keep what they are shown, and the model is published.
        """
        model, rows = throw_away(model), torch.from_numpy(self._as_input(X))
        if len(rows) == 0:
            return np.empty((0, len(self.classes)))
        # Mapped with gradients on: without, PyTorch's fused encoder layers run, which cannot be mapped.
        alone = vmap(lambda row: model(row[None])[0], randomness="different", chunk_size=1024)
        return alone(rows).detach().numpy()
