"""Wrappers around any private classifier: a threshold, a vote of several, a private choice among several.

Each takes a classifier with an `epsilon` and a `guarantee_` after fitting, divides a budget, and has a guarantee for
everything it shows; any may be inside another. Modules: `threshold`, `bagging`, `search`, and `learners`, which is what
they share; how good the learner inside is remains its own affair. `aggregation` is the exception: its learners need not
be private, since it releases only what many of them say together. `logistic` is the one ready-made combination: private
logistic regression with an offset and a threshold.
"""

from helpers.meta.aggregation import PATEClassifier, SubsampleAndAggregateClassifier
from helpers.meta.bagging import PrivateBaggingClassifier
from helpers.meta.logistic import PrivateLogisticRegression
from helpers.meta.search import PartitionedSearch, RepeatedSearch
from helpers.meta.threshold import ThresholdClassifier

__all__ = [
    "PATEClassifier",
    "PartitionedSearch",
    "PrivateBaggingClassifier",
    "PrivateLogisticRegression",
    "RepeatedSearch",
    "SubsampleAndAggregateClassifier",
    "ThresholdClassifier",
]
