"""GEM and AIM as fitted: what was executed is what is claimed, neighbours cannot be told apart, and it is useful."""

import csv
import itertools
import math

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import ZCDpEvent
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from synthesis_data import ledgers

from helpers import paths
from helpers.data.domain import Attribute, Domain
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    Guarantee,
    Ledger,
    audit_estimator,
    event_epsilon,
    gaussian_mu,
    zcdp_budget,
)
from helpers.synthesis import AIM, GEM, PAPER, PrivBayes
from helpers.synthesis import Domain as ExportedDomain
from helpers.synthesis import base as base_module
from helpers.synthesis import curator as curator_module

BITS = Domain(
    [
        Attribute.categorical("a", 0, (0, 1)),
        Attribute.categorical("b", 1, (0, 1)),
        Attribute.categorical("c", 2, (0, 1)),
    ]
)
QUICK = {GEM: {"T": 4, "max_iters": 5, "n_components": 8}, AIM: {"max_iters": 5, "n_components": 8}}
both = pytest.mark.parametrize("cls", [GEM, AIM])


def bits(n=400, seed=0):
    """b is mostly a, c is mostly the label, 20 % of the records are in class 1."""
    rng = np.random.default_rng(seed)
    a, y = rng.integers(2, size=n), (rng.uniform(size=n) < 0.2).astype(int)
    b, c = (np.where(rng.uniform(size=n) < 0.9, v, 1 - v) for v in (a, y))
    return np.column_stack([a, b, c]).astype(float), y


@pytest.mark.filterwarnings("ignore:all numbers of")
@pytest.mark.parametrize("domain", [BITS, None], ids=["public", "private"])
@pytest.mark.parametrize("neighbouring", [REPLACE_ONE, ADD_REMOVE])
@both
def test_what_was_executed_is_within_the_budget(monkeypatch, cls, neighbouring, domain):
    kept = ledgers(monkeypatch)
    model = cls(0.7, 1e-6, domain=domain, neighbouring=neighbouring, **QUICK[cls]).fit(*bits())
    rho = zcdp_budget(0.7, 1e-6)
    assert kept[0].rho() <= rho
    assert kept[0].rho() > (1 - 1e-8) * rho
    assert model.guarantee_.epsilon <= 0.7
    assert model.guarantee_.epsilon > 0.69
    assert model.guarantee_.delta == 1e-6
    assert model.guarantee_.neighbouring is neighbouring
    assert ("number of records public" in model.guarantee_.assumes) == (neighbouring is REPLACE_ONE)


def test_gem_pays_for_rounds_as_derived(monkeypatch):
    kept = ledgers(monkeypatch)
    model = GEM(1.0, domain=BITS, alpha=0.6, **QUICK[GEM]).fit(*bits())
    choices = [event for event in kept[0].events if isinstance(event, ZCDpEvent)]
    answers = [event for event in kept[0].events if isinstance(event, GaussianDpEvent)]
    assert len(choices) == len(answers) == len(model.measurements_) == 4
    e = math.sqrt(2 * zcdp_budget(1.0, 1e-5) / (4 * (0.6**2 + 0.4**2)))
    assert [c.rho for c in choices] == pytest.approx([(0.6 * e) ** 2 / 2] * 4, rel=1e-6)
    assert [a.noise_multiplier for a in answers] == pytest.approx([1 / (0.4 * e)] * 4, rel=1e-6)
    assert [m.scale for m in model.measurements_] == pytest.approx([math.sqrt(2) / (0.4 * e)] * 4, rel=1e-6)
    assert isinstance(model.guarantee_.event, ComposedDpEvent)
    assert sorted(part.count for part in model.guarantee_.event.events) == [4, 4]
    assert all(isinstance(part, SelfComposedDpEvent) for part in model.guarantee_.event.events)


@pytest.mark.parametrize("neighbouring", [REPLACE_ONE, ADD_REMOVE])
def test_one_marginal_alone_is_measured_with_the_whole_budget(monkeypatch, neighbouring):
    kept = ledgers(monkeypatch)
    GEM(1.0, domain=BITS, k=4, neighbouring=neighbouring, **QUICK[GEM]).fit(*bits())
    assert [type(event) for event in kept[0].events] == [GaussianDpEvent] * (4 if neighbouring is REPLACE_ONE else 5)
    assert kept[0].rho() == pytest.approx(gaussian_mu(1.0, 1e-5) ** 2 / 2, rel=1e-6)


@pytest.mark.filterwarnings("ignore:all numbers of")
@pytest.mark.parametrize("domain", [BITS, None], ids=["public", "private"])
@pytest.mark.parametrize("neighbouring", [REPLACE_ONE, ADD_REMOVE])
@both
def test_without_a_choice_the_noise_follows_from_the_exact_curve(monkeypatch, cls, neighbouring, domain):
    """All noise is Gaussian then; zero-concentrated privacy would afford 17.6 % less of its rho at epsilon 1."""
    kept = ledgers(monkeypatch)
    model = cls(1.0, 1e-5, k=4 if cls is GEM else 1, domain=domain, neighbouring=neighbouring, **QUICK[cls])
    model.fit(*bits())
    assert {type(event) for event in kept[0].events} == {GaussianDpEvent}
    mu, moved = gaussian_mu(1.0, 1e-5), 2 if neighbouring is REPLACE_ONE else 1
    assert mu**2 / 2 / zcdp_budget(1.0, 1e-5) == pytest.approx(1.176, abs=1e-3)
    # A measurement of standard deviation s costs moved / (2 s^2); the number of records is one under add/remove.
    spent = sum(moved / (2 * measured.scale**2) for measured in model.measurements_)
    if neighbouring is REPLACE_ONE:
        assert spent == pytest.approx((1.0 if domain is BITS else 0.9) * mu**2 / 2, rel=1e-6)
    else:
        assert spent < (1.0 if domain is BITS else 0.9) * mu**2 / 2
    assert kept[0].rho() == pytest.approx(mu**2 / 2, rel=1e-6)
    if cls is AIM:  # its prices depend on earlier answers, so the guarantee is that of the whole budget
        assert model.guarantee_.event == GaussianDpEvent(pytest.approx(1 / mu))
    assert 1 - 1e-6 < event_epsilon(model.guarantee_.event, 1e-5, neighbouring) <= 1 + 1e-9


@pytest.mark.parametrize("parameterization", ["direct", "network"])
def test_gem_learns_the_joint_distribution_when_noise_is_small(parameterization):
    X, y = bits(2000)
    gem = GEM(200.0, domain=BITS, workload="all", parameterization=parameterization, T=8, max_idxs=None)
    gem.set_params(
        n_components=64, max_iters=150, embedding_dim=32, lr={"direct": 0.1, "network": 0.01}[parameterization]
    )
    gem.fit(X, y)
    codes = BITS.encode(X, y)
    for attributes in itertools.combinations(range(4), 3):
        exact = np.bincount(np.ravel_multi_index(codes[:, list(attributes)].T, (2, 2, 2)), minlength=8) / len(X)
        assert np.abs(gem.model_.marginal(attributes).ravel() - exact).sum() / 2 < 0.05
    made, labels = gem.sample(4000, label=1, random_state=0)
    assert (labels == 1).all()
    assert made[:, 2].mean() == pytest.approx(X[y == 1, 2].mean(), abs=0.06)


def test_aim_learns_what_the_label_goes_with():
    X, y = bits(2000)
    aim = AIM(50.0, domain=BITS).fit(X, y)
    for label in (0, 1):
        made, _ = aim.sample(4000, label=label, random_state=0)
        assert made.mean(axis=0) == pytest.approx(X[y == label].mean(axis=0), abs=0.06)


@both
def test_the_workload_of_the_label_measures_nothing_else_but_single_attributes(cls):
    model = cls(1.0, domain=BITS, **QUICK[cls]).fit(*bits())
    assert all(3 in m.attributes for m in model.measurements_ if len(m.attributes) > 1)


@pytest.mark.parametrize("neighbouring", [REPLACE_ONE, ADD_REMOVE])
@both
def test_an_audit_of_the_whole_on_a_tiny_domain_refutes_nothing(cls, neighbouring):
    domain = Domain([Attribute.categorical("a", 0, (0, 1))])
    X, y = np.array([[0.0]] * 5 + [[1.0]]), np.array([0] * 5 + [1])
    other = (X[:-1], y[:-1]) if neighbouring is ADD_REMOVE else (np.zeros((6, 1)), np.zeros(6, int))
    parameters = QUICK[cls] | {"max_iters": 1} | ({"T": 2} if cls is GEM else {})
    model = cls(2.0, 1e-3, domain=domain, neighbouring=neighbouring, **parameters)
    audit = audit_estimator(model, (X, y), other, n_runs=120, n_seeds=12, confidence=0.99999)
    assert audit.refuted(1e-6) == ()
    assert audit.constant_guarantee


def test_the_audit_would_see_too_little_noise(monkeypatch):
    monkeypatch.setattr(base_module, "gaussian_mu", lambda epsilon, delta: 1800**0.5)  # its workload is one marginal
    monkeypatch.setattr(Ledger, "guarantee", lambda self, *_, **__: Guarantee(2.0, 1e-3, REPLACE_ONE))
    domain = Domain([Attribute.categorical("a", 0, (0, 1))])
    X, y = np.array([[0.0]] * 5 + [[1.0]]), np.array([0] * 5 + [1])
    model = GEM(2.0, 1e-3, domain=domain, T=2, max_iters=1, n_components=4)
    assert audit_estimator(model, (X, y), (np.zeros((6, 1)), np.zeros(6, int)), n_runs=100, n_seeds=10).refuted()


def test_the_paper_s_parameters_are_those_of_its_table():
    with (paths.ROOT / "reference/tables/dpci_table12_gem_hyperparameters.csv").open() as file:
        printed = {row["row_label"]: float(row["mean"]) for row in csv.DictReader(file)}
    found = GEM(**PAPER).get_params()
    assert printed == {name: float(found[name]) for name in printed}
    assert found["parameterization"] == "network"
    assert PAPER["workload"] == "all"
    assert PAPER["n_components"] == 1000  # of the published code


def test_the_network_s_noise_comes_from_the_caller_alone():
    import torch

    torch.manual_seed(0)
    state = torch.get_rng_state()
    network = {"parameterization": "network", "embedding_dim": 8, **QUICK[GEM]}
    tables = [GEM(1.0, domain=BITS, random_state=3, **network).fit(*bits()).model_.tables[0] for _ in range(2)]
    assert np.array_equal(*tables)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"T": 0}, "T must"),
        ({"alpha": 1.0}, "alpha must"),
        ({"k": 0}, "k must"),
        ({"workload": "none"}, "workload must"),
        ({"loss_p": 3}, "loss_p must"),
        ({"epsilon": 0.0}, "epsilon must"),
        ({"delta": 0.0}, "delta must"),
        ({"domain": "public"}, "domain must"),
        ({"classes": (1,), "domain": None}, "classes must"),
        ({"parameterization": "tree"}, "parameterization must"),
        ({"parameterization": "network", "n_components": 1}, "n_components must"),
        ({"classes": (0, "a"), "domain": None}, "classes must be all numbers or all texts"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        GEM(**({"domain": BITS} | parameters)).fit(*bits(20))


def test_too_many_cells_are_refused_before_anything_is_spent(monkeypatch):
    kept = ledgers(monkeypatch)
    wide = Domain.from_bounds([[0, 1]] * 3, n_bins=300)
    with pytest.raises(ValueError, match="27,000,000"):
        GEM(1.0, domain=wide, workload="all").fit(*bits(20))
    assert not any(ledger.bill for ledger in kept)


@both
def test_nothing_about_the_classes_is_an_error(cls):
    X, _ = bits(30)
    for y in (np.zeros(30, int), np.ones(30, int)):
        model = cls(1.0, domain=BITS, **QUICK[cls]).fit(X, y)
        assert model.sample(5, label=1)[1].tolist() == [1] * 5
    empty = cls(1.0, domain=BITS, neighbouring=ADD_REMOVE, **QUICK[cls]).fit(np.zeros((0, 3)), np.zeros(0, int))
    assert len(empty.sample(5)[0]) == 5


def test_samples_are_refused_for_what_the_domain_has_not():
    model = GEM(1.0, domain=BITS, **QUICK[GEM]).fit(*bits(30))
    for arguments in ({"n": -1}, {"n": 1, "label": 7}):
        with pytest.raises(ValueError, match="must"):
            model.sample(**arguments)
    assert ExportedDomain is Domain


SMALL = [GEM(1.0, **QUICK[GEM]), AIM(1.0, **QUICK[AIM]), PrivBayes(1.0)]
every = pytest.mark.parametrize("model", SMALL, ids=["GEM", "AIM", "PrivBayes"])


def released(model):
    return model.fit(*bits()).sample(50, random_state=0)[0]


@every
def test_one_seed_and_one_question_are_one_release(model):
    """A second one with noise of its own would have to be paid for, and nobody would know."""
    model = clone(model).set_params(domain=Domain.from_bounds([[0, 1]] * 3, n_bins=2), random_state=4)
    cold, copied, warm = released(model), released(clone(model)), released(model)
    edges = (0.0, 0.5, 1.0)  # one object in three attributes
    equal = Domain([Attribute(f"x{j + 1}", "real", (j,), edges) for j in range(3)])
    assert equal == model.domain
    assert equal.sizes == (2, 2, 2, 2)
    built = released(clone(model).set_params(domain=equal))
    assert all(np.array_equal(cold, other) for other in (copied, warm, built))
    assert not np.array_equal(cold, released(clone(model).set_params(random_state=5)))


@every
def test_more_than_the_budget_is_never_released(monkeypatch, model):
    fit_model, model = type(model)._fit_model, clone(model).set_params(domain=BITS)

    def greedy(self, curator, *arguments):
        found = fit_model(self, curator, *arguments)
        curator.measure((0,), 1e-3 if isinstance(self, PrivBayes) else 1e-6)
        return found

    model.fit(*bits())
    monkeypatch.setattr(type(model), "_fit_model", greedy)
    with pytest.raises(RuntimeError, match="more than the budget"):
        model.fit(*bits())
    assert not hasattr(model, "guarantee_")


@every
def test_a_second_fit_that_breaks_off_leaves_nothing(monkeypatch, model):
    model = clone(model).set_params(domain=BITS).fit(*bits())
    fitted = {name for name in vars(model) if name.endswith("_")}
    assert "guarantee_" in fitted
    counter, calls = curator_module._counter, []

    def broken(codes, sizes):
        counts = counter(codes, sizes)

        def counted(attributes):
            calls.append(attributes)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return counts(attributes)

        return counted

    monkeypatch.setattr(curator_module, "_counter", broken)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(epsilon=50.0).fit(*bits())
    assert {name for name in vars(model) if name.endswith("_")} <= {"n_features_in_"}
    with pytest.raises(NotFittedError):
        model.sample(1)
