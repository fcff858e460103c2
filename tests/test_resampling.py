"""imbalanced-learn's common checks over every resampler of the package."""

import inspect

import pytest
from imblearn.base import SamplerMixin, is_sampler
from imblearn.utils.estimator_checks import estimator_checks_generator

from helpers.resampling import oversampling, smote
from helpers.resampling.base import StableSampler

ONE_CLASS = "whether a class is absent is private: the data are resampled as they are"
COUNTS = "sampling_strategy_ holds class counts, which are private"
ONE_HOT = "the minority is one label, named by a public parameter"
DENSE = "a record between two sparse ones is dense"
COMMON = {
    "check_samplers_one_label": ONE_CLASS,
    "check_samplers_fit": COUNTS,
    "check_samplers_multiclass_ova": ONE_HOT,
}
SAMPLERS = {
    oversampling.DeterministicOversampler(multiplicity=2): COMMON,
    smote.StableSMOTE(10, n_minority=7, random_state=0): COMMON | {"check_samplers_pandas_sparse": DENSE},
}
CHECKS = [
    pair
    for sampler, expected in SAMPLERS.items()
    for pair in estimator_checks_generator(sampler, legacy=True, expected_failed_checks=expected, mark="xfail")
]


def test_every_sampler_is_checked():
    found = {
        value
        for module in (oversampling, smote)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, StableSampler) and value is not StableSampler
    }
    assert found == {type(sampler) for sampler in SAMPLERS}
    assert all(isinstance(sampler, SamplerMixin) and is_sampler(sampler) for sampler in SAMPLERS)


@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
@pytest.mark.parametrize(("sampler", "check"), CHECKS)
def test_common_checks(sampler, check):
    check(sampler)
