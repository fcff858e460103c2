"""Predictions that many classifiers make in the same way: by their own scores, or by a model that they have fitted."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data


class ScorePredictions:
    """Labels by the scores of one's own `decision_function`."""

    classes_: NDArray
    decision_function: Callable[..., NDArray]

    def predict(self, X: ArrayLike) -> NDArray:
        """Labels (n,): the class with the largest score."""
        scores = self.decision_function(X)
        return self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)]


def _model_has(name: str) -> Callable[[Any], bool]:
    """A condition for `available_if`: the model that predicts, or will after the fit, has the method `name`."""
    return lambda wrapper: hasattr(wrapper._model(), name)


class ModelPredictions:
    """Predictions of the model inside, which `_model` gives: before the fit, what it will be made from."""

    _model: Callable[[], Any]

    @available_if(_model_has("predict_proba"))
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities (n, K) by the model inside, columns as in `classes_`."""
        return self._model().predict_proba(self._seen(X))

    @available_if(_model_has("decision_function"))
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores by the model inside: (n,), positive for the second class; with more classes (n, K)."""
        return self._model().decision_function(self._seen(X))

    def predict(self, X: ArrayLike) -> NDArray:
        """Labels (n,) by the model inside."""
        return self._model().predict(self._seen(X))

    def _seen(self, X: ArrayLike) -> NDArray[np.float64]:
        """The records X (n, d), checked, in the form that the model inside takes."""
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False)
