"""What resamplers for private learners share: imbalanced-learn's shape, without its look at the class counts.

imbalanced-learn's own `fit_resample` refuses data with a single class and keeps the class counts on the fitted sampler:
both tell something about private labels. Here a sampler works on every data set, and keeps public numbers and its
`stability_` only. Resampled data stay as private as the records: they are for a private learner and for nobody else.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Self

from imblearn.base import BaseSampler
from imblearn.utils._validation import ArraysTransformer
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from helpers.privacy import ChangedRows
from helpers.validation import DeclaredParameters


class StableSampler(DeclaredParameters, BaseSampler):
    """Base of samplers that state how far one record can move their output."""

    _sampling_type = "over-sampling"
    _accepts: ClassVar[dict] = {}  # options of `validate_data`

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Check the parameters and the data, and set `stability_`; returns self.

        Parameters
        ----------
        X : array-like (n, d)
        y : array-like (n,)
        """
        self._prepare(X, y)
        return self

    def fit_resample(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, Any]:
        """Resampled X (n_resampled, d) and y (n_resampled,), of the containers' own types; the old rows come first.

        Parameters
        ----------
        X : array-like (n, d)
        y : array-like (n,)
        """
        prepared = self._prepare(X, y)
        return ArraysTransformer(X, y).transform(*self._fit_resample(*prepared))

    def _prepare(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, NDArray]:
        self._check_parameters()
        # Under add/remove the number of records is private, so that none at all is no error.
        records = validate_data(self, X, y, ensure_min_samples=0, **self._accepts)
        check_classification_targets(records[1])
        self.stability_ = self._stability(records[1])
        return records

    @abstractmethod
    def _stability(self, y: NDArray) -> ChangedRows:
        """The law of changed rows, with a warning where it depends on the labels."""
