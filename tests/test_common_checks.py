"""scikit-learn's and imbalanced-learn's own checks over every estimator and sampler, and why some cannot pass."""

from functools import cache

import inventory
import pytest
from imblearn.utils.estimator_checks import estimator_checks_generator as sampler_checks_generator
from sklearn.base import clone
from sklearn.utils import estimator_checks, get_tags

from helpers.privacy import ADD_REMOVE
from helpers.validation import DeclaredParameters

pytestmark = [
    pytest.mark.filterwarnings("ignore::helpers.privacy.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore:A column-vector y was passed"),
]

OUTSIDE = "labels are a public parameter, never taken from the data; this check uses others than 0 and 1"
ONE_FEATURE = "takes one feature; this check has more"
RELATION = "the default relation is a member of dp-accounting's enumeration, which scikit-learn's list of types lacks"
BOUNDED = "class weights above 1 are refused: a record's pull must be bounded"
FEW = "ten records: private noise may outweigh them at any budget that a test should use"
NO_ROWS = "under add/remove the number of records is private, so that none at all is no error"
ONE_CLASS = "whether a class is absent is private: the data are resampled as they are"
COUNTS = "sampling_strategy_ holds class counts, which are private"
ONE_HOT = "the minority is one label, named by a public parameter"
DENSE = "a record between two sparse ones is dense"

LABELS = ("check_estimators_dtypes", "check_classifier_data_not_an_array", "check_fit2d_1feature")
# Checks that fit more than one feature.
MORE_FEATURES = (
    "check_classifier_data_not_an_array",
    "check_classifier_not_supporting_multiclass",
    "check_classifiers_classes",
    "check_classifiers_one_label",
    "check_classifiers_regression_target",
    "check_classifiers_train",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_supervised_y_2d",
)


def takes_no_rows(estimator) -> bool:
    """Whether its guarantee, as it comes, is add/remove and does without a public number of records."""
    guarantee = getattr(inventory.fit(clone(estimator), *inventory.data(type(estimator))), "guarantee_", None)
    return guarantee is not None and guarantee.neighbouring is ADD_REMOVE


def expected_failures(estimator) -> dict[str, str]:
    """Check -> reason, from what an estimator is: nothing here goes by the name of a class."""
    names, anywhere = ({name.split("__")[-1] for name in estimator.get_params(deep)} for deep in (False, True))
    found = {}
    if "classes" in anywhere:
        found |= dict.fromkeys((*LABELS, "check_classifiers_classes"), OUTSIDE)
    if "class_weight" in names:
        found["check_class_weight_classifiers"] = BOUNDED
    if "neighbouring" in names:
        found["check_parameters_default_constructible"] = RELATION
    if "alarms" in names or {"estimator", "threshold_share"} <= names:
        found["check_classifiers_one_label"] = FEW
    if takes_no_rows(estimator):
        found["check_estimators_empty_data_messages"] = NO_ROWS
    if hasattr(estimator, "fit_resample"):
        found |= {
            "check_estimators_empty_data_messages": NO_ROWS,
            "check_samplers_one_label": ONE_CLASS,
            "check_samplers_fit": COUNTS,
            "check_samplers_multiclass_ova": ONE_HOT,
        }
        if not get_tags(estimator).input_tags.sparse:
            found["check_samplers_pandas_sparse"] = DENSE
    if inventory.n_features(type(estimator)) == 1:
        found |= dict.fromkeys(MORE_FEATURES, ONE_FEATURE)
    return found


def built(cls):
    """With a seed, since checks compare fits, and a budget at which noise does not decide about accuracy."""
    values = {"random_state": 0, "epsilon": 600.0, "n_minority": 7}
    known = {name: value for name, value in values.items() if name in inventory.parameter_names(cls)}
    return inventory.build(cls, **known)


# Classes that share fit and prediction, by the class that is checked for them in every run; all are checked weekly.
# What differs inside a family (noise, steps, releases) is the subject of its own tests.
FAMILIES = {
    "AIM": ["GEM"],  # MixtureSynthesizer
    "MST": ["PrivBayes"],  # Synthesizer
    "DPGradientDescentClassifier": ["DPCoordinateDescentClassifier", "DPGreedyCoordinateClassifier"],
    "ObjectivePerturbationClassifier": ["OutputPerturbationClassifier", "PrintedObjectivePerturbation"],
    "PrivateBaggingClassifier": ["PrintedBaggingClassifier"],
    "PATEClassifier": ["SubsampleAndAggregateClassifier"],  # _DisjointLearners
    "RepeatedSearch": ["PartitionedSearch"],  # _PrivateSearch
}


def test_families_share_a_base_of_the_package():
    classes = {cls.__name__: cls for cls in inventory.estimators()}
    for first, others in FAMILIES.items():
        for other in others:
            shared = set(classes[first].__mro__) & set(classes[other].__mro__) - {inventory.PrivateMixin}
            assert any("fit" in vars(base) and base.__module__.startswith("helpers.") for base in shared), other


def checks(generator, classes):
    """Cases of one library's checks, named; nothing is fitted before a case runs."""
    weekly = {name for others in FAMILIES.values() for name in others}
    for cls in classes:
        marks = pytest.mark.weekly if cls.__name__ in weekly else ()
        for estimator, check in generator(built(cls), legacy=True):
            name = getattr(check, "func", check).__name__
            yield pytest.param(estimator, check, name, id=f"{cls.__name__}-{name}", marks=marks)


@cache
def failures_of(cls) -> dict[str, str]:
    return expected_failures(built(cls))


def passes_or_has_a_reason(request, estimator, check, name):
    """A check that is expected to fail has to."""
    if reason := failures_of(type(estimator)).get(name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    check(estimator)


@pytest.mark.parametrize(
    ("estimator", "check", "name"), checks(estimator_checks.estimator_checks_generator, inventory.estimators())
)
def test_sklearn(request, estimator, check, name):
    passes_or_has_a_reason(request, estimator, check, name)


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize(
    "cls",
    [cls for cls in inventory.classifiers() if "classes" in inventory.parameter_names(cls)],
    ids=lambda c: c.__name__,
)
def test_checks_with_other_labels_pass_once_these_are_declared(cls, name):
    estimator = built(cls)
    declared = {key: (1, 2) for key in estimator.get_params() if key.split("__")[-1] == "classes"}
    getattr(estimator_checks, name)(cls.__name__, estimator.set_params(**declared))


@pytest.mark.parametrize(("estimator", "check", "name"), checks(sampler_checks_generator, inventory.samplers()))
def test_imblearn(request, estimator, check, name):
    passes_or_has_a_reason(request, estimator, check, name)


@pytest.mark.parametrize("cls", [cls for cls in inventory.estimators() if issubclass(cls, DeclaredParameters)])
def test_every_parameter_is_declared(cls):
    declared = set().union(*(vars(base).get("_allowed", {}) for base in cls.__mro__))
    assert declared == set(cls._get_param_names())
