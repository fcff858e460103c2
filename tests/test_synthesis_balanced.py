"""Balanced synthetic data: equal classes, one fit, one guarantee, the libraries' habits."""

import contextlib
import pickle
from unittest import SkipTest

import numpy as np
import pytest
from imblearn.pipeline import make_pipeline
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import estimator_checks_generator

from helpers.data.domain import Attribute, Domain
from helpers.privacy import REPLACE_ONE, SEED_SECRET, audit_estimator
from helpers.synthesis import AIM, GEM, BalancedSynthesizer, PrivBayes

DOMAIN = Domain([Attribute.real("x", 0, -4.0, 4.0, n_bins=8)], classes=("a", "b", "c"))


def records(n=600, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(["a", "b", "c"], p=[0.85, 0.1, 0.05], size=n)
    return rng.normal(np.select([y == "a", y == "b"], [-2.0, 0.0], 2.0), 0.5)[:, None], y


@pytest.mark.parametrize("inner", [PrivBayes(20.0, domain=DOMAIN), GEM(20.0, domain=DOMAIN, T=10, k=2, max_idxs=None)])
def test_every_class_gets_its_share_and_looks_like_itself(inner):
    model = BalancedSynthesizer(inner, n_samples=3001, random_state=0)
    X, y = model.fit_resample(*records())
    assert X.shape == (3001, 1)
    assert [int(np.sum(y == label)) for label in "abc"] == [1001, 1000, 1000]
    means = [X[y == label].mean() for label in "abc"]
    assert means == pytest.approx([-2, 0, 2], abs=0.5)
    assert y[:50].tolist() != sorted(y[:50])  # in random order


def test_one_fit_serves_any_number_of_samples():
    model = BalancedSynthesizer(PrivBayes(1.0, domain=DOMAIN), n_samples=60).fit(*records())
    first, second = model.sample(random_state=1), model.sample(random_state=2)
    assert not np.array_equal(first[0], second[0])
    assert np.array_equal(model.sample(random_state=1)[0], first[0])
    assert model.guarantee_.epsilon == model.synthesizer_.guarantee_.epsilon == 1.0
    assert "post-processing" in model.guarantee_.source


def test_the_records_are_seen_once(monkeypatch):
    seen = []
    fit = PrivBayes.fit
    monkeypatch.setattr(PrivBayes, "fit", lambda self, X, y: (seen.append(len(X)), fit(self, X, y))[1])
    BalancedSynthesizer(PrivBayes(1.0, domain=DOMAIN), n_samples=60).fit_resample(*records())
    assert seen == [600]


def test_seeds_do_not_leave_with_a_fitted_object_and_are_told():
    model = BalancedSynthesizer(PrivBayes(1.0, domain=DOMAIN), n_samples=60, random_state=5).fit(*records())
    assert SEED_SECRET in model.guarantee_.assumes
    assert model.synthesizer_.random_state is None
    assert pickle.loads(pickle.dumps(model)).random_state is None
    again = clone(model).fit(*records())
    assert all(
        np.array_equal(a, b)
        for a, b in zip(again.synthesizer_.model_.tables, model.synthesizer_.model_.tables, strict=True)
    )
    fresh = BalancedSynthesizer(PrivBayes(1.0, domain=DOMAIN), n_samples=60).fit(*records())
    assert SEED_SECRET not in fresh.guarantee_.assumes


@pytest.mark.parametrize("inner", [PrivBayes(1.0), GEM(1.0, T=2, max_iters=2, n_components=4)])
def test_one_seed_is_one_release_whatever_was_read_in_between(inner):
    inner = clone(inner).set_params(domain=Domain([Attribute.real("x", 0, -4.0, 4.0)], classes=("a", "b", "c")))
    model = BalancedSynthesizer(inner, n_samples=60, random_state=0)
    cold = model.fit_resample(*records())
    assert inner.domain.sizes == (16, 3)
    assert len(inner.domain.attributes) == 1
    inner.fit(*records())
    for again in (model, clone(model)):
        assert all(np.array_equal(a, b) for a, b in zip(cold, again.fit_resample(*records()), strict=True))


def test_a_second_fit_that_breaks_off_leaves_nothing(monkeypatch):
    model = BalancedSynthesizer(PrivBayes(1.0, domain=DOMAIN), n_samples=60)
    with pytest.raises(NotFittedError):
        model.sample()
    model.fit(*records())

    def broken(self, X, y):
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivBayes, "fit", broken)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*records())
    assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        model.sample()


def test_parameters_set_after_the_fit_are_checked_too():
    model = BalancedSynthesizer(PrivBayes(1.0, domain=DOMAIN), n_samples=60).fit(*records())
    assert len(model.set_params(n_samples=7).sample()[0]) == 7
    for n_samples in (-5, 2.5):
        with pytest.raises(ValueError, match="n_samples must"):
            model.set_params(n_samples=n_samples).sample()


def test_it_is_aim_that_is_balanced_if_nothing_is_named(monkeypatch):
    fit, seen = AIM.fit, []
    monkeypatch.setattr(AIM, "fit", lambda self, X, y: (seen.append(self.get_params()), fit(self, X, y))[1])
    monkeypatch.setattr(AIM, "_improve", lambda self, *arguments, **options: None)
    X, y = records()
    BalancedSynthesizer().fit(X, (y == "c").astype(int))
    assert seen == [AIM().get_params()]


def test_it_is_a_step_of_a_pipeline():
    X, y = records()
    steps = make_pipeline(BalancedSynthesizer(PrivBayes(20.0, domain=DOMAIN), n_samples=600), LogisticRegression())
    assert steps.fit(X, y).score(X, y) > 0.8


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_samples": 1}, "n_samples"),
        ({"synthesizer": LogisticRegression()}, "synthesizer"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        BalancedSynthesizer(**parameters).fit(*records())


def test_an_audit_of_the_whole_algorithm_refutes_nothing():
    domain = Domain([Attribute.categorical("a", 0, (0, 1))])
    X, y = np.array([[0.0]] * 5 + [[1.0]]), np.array([0] * 5 + [1])
    model = BalancedSynthesizer(PrivBayes(1.5, domain=domain), n_samples=20)
    audit = audit_estimator(
        model, (X, y), (np.zeros((6, 1)), np.zeros(6, int)), n_runs=150, n_seeds=10, confidence=0.99999
    )
    assert audit.claimed.neighbouring is REPLACE_ONE
    assert audit.refuted(1e-6) == ()


class _Checked:
    """scikit-learn's checks make up to four labels; declared, nothing is left to skip."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags._skip_test = False
        return tags


class CheckedPrivBayes(_Checked, PrivBayes):
    pass


class CheckedAIM(_Checked, AIM):
    pass


QUICK = [CheckedPrivBayes(classes=(0, 1, 2, 3), random_state=0)]
QUICK.append(CheckedAIM(classes=(0, 1, 2, 3), random_state=0, max_iters=1, n_components=3))
# The default relation is a member of an enumeration, which scikit-learn's list of types lacks; subclasses here too.
EXPECTED = ("check_parameters_default_constructible", "check_no_attributes_set_in_init")


@pytest.mark.filterwarnings("ignore:all numbers of")
@pytest.mark.parametrize("model", QUICK, ids=["PrivBayes", "AIM"])
def test_scikit_learn_s_checks_pass_once_labels_are_declared(model):
    names = []
    for estimator, check in estimator_checks_generator(model, legacy=True):
        names.append(check.func.__name__)
        with contextlib.suppress(SkipTest):  # of one check for want of a library, not of all
            if check.func.__name__ not in EXPECTED:
                check(estimator)
    assert len(names) > 30
