"""Wrappers around any private classifier: votes of several, and a private choice among several.

Each takes a classifier with an `epsilon` and a `guarantee_` after fitting, divides a budget, and has a guarantee for
everything it shows. Modules: `bagging`, `search`.
"""

from helpers.meta.bagging import PrivateBaggingClassifier
from helpers.meta.search import PartitionedSearch, RepeatedSearch

__all__ = ["PartitionedSearch", "PrivateBaggingClassifier", "RepeatedSearch"]
