"""Random Fourier features: kernel classifiers out of the linear private learners of this package.

A translation-invariant kernel is the mean of products of cosines at random frequencies. The frequencies are drawn
without looking at the data, and the length of a feature vector is known in advance, so a private linear learner on
the features is a private kernel learner, and the bound on the records' own length is not needed any more.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.erm.perturbation import ObjectivePerturbationClassifier
from helpers.predictions import ModelPredictions
from helpers.privacy import REPLACE_ONE, Ledger, PrivateMixin, check_random_state, child_state
from helpers.validation import Check, DeclaredParameters, any_value, check_boolean, integer, real, validate_records

_LARGEST_ENTRY = 1e100  # beyond it, angles could overflow for some records and not for others
_FREQUENCIES = 0  # seed of those of `KernelClassifier`
_GAMMA = real(low=0, high=_LARGEST_ENTRY, inclusive="high")


class RandomFourierFeatures(DeclaredParameters, TransformerMixin, BaseEstimator):
    """Features whose inner products are, on average over the frequencies, the Gaussian kernel.

    Parameters
    ----------
    n_frequencies : int
        D, at least 1.
    gamma : float
        In (0, 1e100], in the units of X to the power -2: the kernel is exp(-gamma ||x - y||^2). Public, like the other
        parameters.
    paired : bool
        True: cosine and sine of every frequency, divided by sqrt(D): 2 D features, of norm exactly 1. False: the
        cosine with a random phase, times sqrt(2/D): D features, of norm up to sqrt(2).
    random_state : None or int
        Of the frequencies, which need not be secret.

    Attributes
    ----------
    frequencies_ : ndarray (d, D); phases_ : ndarray (D,)
        Independent of the data, so they may be published. The phases are 0 if paired.
    radius_ : float
        Bound on the norm of every feature vector: the `radius` of a private learner.
    n_features_in_ : int
        d.

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range, or X not a finite numeric matrix.

    Source: Rahimi and Recht 2007; Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 3, whose features are the single
    cosines under a bound of 1 that they exceed, and whose example has the laws of frequency and phase interchanged.

    >>> X = np.array([[0.0, 1.0], [3.0, -1.0]])
    >>> np.linalg.norm(RandomFourierFeatures(50, random_state=0).fit_transform(X), axis=1).round(12).tolist()
    [1.0, 1.0]
    """

    _allowed: ClassVar[dict[str, Check]] = {
        "n_frequencies": integer(low=1),
        "gamma": _GAMMA,
        "paired": check_boolean,
        "random_state": check_random_state,
    }

    def __init__(self, n_frequencies=100, gamma=1.0, paired=True, random_state=None):
        self.n_frequencies = n_frequencies
        self.gamma = gamma
        self.paired = paired
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Draw the frequencies; of X (n, d) only d is used. Returns self."""
        self._check_parameters()
        d = validate_data(self, X, dtype=np.float64).shape[1]
        rng, D = np.random.default_rng(self.random_state), self.n_frequencies
        # The density of the frequencies is the kernel's Fourier transform.
        self.frequencies_ = rng.normal(scale=np.sqrt(2 * self.gamma), size=(d, D))
        self.phases_ = np.zeros(D) if self.paired else rng.uniform(-np.pi, np.pi, D)
        # cos^2 + sin^2 = 1 for each frequency; a single cosine can be 1 at all of them.
        self.radius_ = 1.0 if self.paired else float(np.sqrt(2))
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Feature vectors of X (n, d): (n, 2 D) if paired, else (n, D)."""
        check_is_fitted(self)
        return self._mapped(validate_data(self, X, dtype=np.float64, reset=False))

    def _mapped(self, X: NDArray) -> NDArray[np.float64]:
        angles = np.clip(X, -_LARGEST_ENTRY, _LARGEST_ENTRY) @ self.frequencies_ + self.phases_
        D = angles.shape[1]
        if self.paired:
            return np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(D)
        return np.sqrt(2 / D) * np.cos(angles)


class KernelClassifier(PrivateMixin, ModelPredictions, ClassifierMixin, BaseEstimator):
    """A private linear learner on random Fourier features: private classification with a kernel.

    Parameters
    ----------
    estimator : estimator
        With parameters `epsilon`, `radius` and `random_state`, and a `guarantee_` after fitting; its `epsilon` and
        `radius` are set from here. None: `ObjectivePerturbationClassifier` with its defaults.
    epsilon : float
        Budget, of the estimator's meaning.
    n_frequencies, gamma
        As in `RandomFourierFeatures`, which are paired here.
    random_state : None or int
        Of the noise. None: noise that nobody can predict. An integer is for reproducing: whoever can guess it can undo
        the privacy, and it must not serve two releases on related data (`PrivateMixin`). The frequencies, which are
        published, are the same in all fits and have nothing to do with it.

    Attributes
    ----------
    features_ : RandomFourierFeatures; estimator_ : estimator
    classes_ : ndarray (K,); n_features_in_ : int
    guarantee_ : helpers.privacy.Guarantee
        The estimator's, for its coefficients and the frequencies together. The norm bound that it names is the
        features' own, a constant that they keep whatever the records are.

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range, X not a finite numeric matrix, or what the estimator refuses.

    Proof: that of the classifier inside; that features keep their bound is proved here (`helpers.erm.kernels`).

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 3, with a bound that its features keep.

    >>> X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([1, 0, 0, 1])
    >>> KernelClassifier(epsilon=600.0, random_state=0).fit(X, y).predict(X)
    array([1, 0, 0, 1])
    """

    _allowed: ClassVar[dict[str, Check]] = {
        "estimator": any_value,  # `_learner` looks at it
        "epsilon": real(low=0, inclusive="neither"),
        "n_frequencies": integer(low=1),
        "gamma": _GAMMA,
    }

    def __init__(
        self,
        estimator=None,
        epsilon=1.0,
        n_frequencies=100,
        gamma=1.0,
        random_state=None,
    ):
        self.estimator = estimator
        self.epsilon = epsilon
        self.n_frequencies = n_frequencies
        self.gamma = gamma
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to X (n, d) and labels y (n,); returns self."""
        self._check_parameters()
        features = RandomFourierFeatures(self.n_frequencies, self.gamma, random_state=_FREQUENCIES)
        learner = self._learner()
        fewest = 1 if getattr(learner, "n_records", None) is None else 0  # a given number keeps that of rows private
        records = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=fewest)
        features.fit(np.zeros((1, records[0].shape[1])))  # of the records only their width counts
        relation = getattr(learner, "neighbouring", REPLACE_ONE)
        self._learn(Ledger(tuple(records), relation, self._noise_generator(*records)), features, learner)
        return self

    def _learn(self, ledger: Ledger, features: RandomFourierFeatures, learner: Any) -> None:
        """Set what is fitted, from a private fit of the learner to the features."""
        # With a seed the learner gets one of its own, drawn from the stream that the records key; else it draws from
        # the system.
        secret = child_state(self.random_state, ledger.rng)
        learner.set_params(epsilon=self.epsilon, radius=features.radius_, random_state=secret)
        # The map looks at one record at a time, so neighbouring records have neighbouring features.
        mapped = ledger.view(lambda records: (features._mapped(records[0]), records[1]))
        mapped.fitted(lambda records: learner.fit(*records))
        learner.set_params(random_state=None)  # the seed of the noise must not travel with the model
        self.features_, self.estimator_, self.classes_ = features, learner, learner.classes_
        given = learner.guarantee_
        ledger.assume("kernel and number of frequencies public")
        self.guarantee_ = ledger.guarantee(given.epsilon, given.delta, source=given.source)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._learner().__sklearn_tags__().classifier_tags.multi_class
        return tags

    def _learner(self):
        estimator = ObjectivePerturbationClassifier() if self.estimator is None else self.estimator
        known = estimator.get_params(deep=False) if isinstance(estimator, BaseEstimator) else {}
        if not {"epsilon", "radius", "random_state"} <= known.keys():
            raise ValueError(f"estimator must have parameters epsilon, radius and random_state, got {self.estimator!r}")
        return clone(estimator)

    def _model(self):
        return self.estimator_ if hasattr(self, "estimator_") else self._learner()

    def _seen(self, X):
        X = super()._seen(X)
        return self.features_.transform(X)
