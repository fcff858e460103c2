"""MST: the bill, the tree, inference on it against an optimiser, exact sampling, and an audit."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.dp_event import ZCDpEvent
from scipy import stats
from scipy.optimize import minimize
from synthesis_data import ledgers

from helpers.data.domain import Attribute, Domain
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, audit_estimator, event_epsilon, gaussian_mu, zcdp_budget
from helpers.synthesis import MST
from helpers.synthesis import curator as curator_module
from helpers.synthesis import mst as mst_module
from helpers.synthesis.curator import Curator, Measurement
from helpers.synthesis.mst import _law, fit_tree

BITS = Domain([Attribute.categorical(name, j, (0, 1)) for j, name in enumerate("abc")])
CHAIN = ((3, ()), (2, (3,)), (0, (2,)), (1, (0,)))


def bits(n=400, seed=0):
    """b is mostly a, a mostly c, c mostly the label: a chain."""
    rng = np.random.default_rng(seed)
    label = (rng.uniform(size=n) < 0.2).astype(int)
    columns = [label]
    for _ in range(3):
        columns.append(np.where(rng.uniform(size=n) < 0.9, columns[-1], 1 - columns[-1]))
    c, a, b = columns[1:]
    return np.column_stack([a, b, c]).astype(float), label


@pytest.mark.filterwarnings("ignore:all numbers of")
@pytest.mark.parametrize("domain", [BITS, None], ids=["public", "private"])
@pytest.mark.parametrize("neighbouring", [REPLACE_ONE, ADD_REMOVE])
@pytest.mark.parametrize("workload", ["all", "label"])
def test_what_was_executed_is_the_budget(monkeypatch, workload, neighbouring, domain):
    kept = ledgers(monkeypatch)
    model = MST(0.7, 1e-6, workload=workload, domain=domain, neighbouring=neighbouring).fit(*bits())
    rho = zcdp_budget(0.7, 1e-6) if workload == "all" else gaussian_mu(0.7, 1e-6) ** 2 / 2
    assert (1 - 1e-8) * rho < kept[0].rho() <= rho
    choices = [event.rho for event in kept[0].events if isinstance(event, ZCDpEvent)]
    share = 1.0 if domain is BITS else 0.9
    assert choices == pytest.approx([share * rho / 9] * len(choices), rel=1e-6)
    assert len(choices) <= 3 if workload == "all" else not choices
    answers = [event for event in kept[0].events if isinstance(event, GaussianDpEvent)]
    asked_for_bins = 0 if domain is BITS else 6
    assert len(answers) == asked_for_bins + 4 + 3 + (neighbouring is ADD_REMOVE)
    assert 0.69 < model.guarantee_.epsilon <= 0.7
    assert model.guarantee_.delta == 1e-6
    assert model.guarantee_.neighbouring is neighbouring
    assert ("number of records public" in model.guarantee_.assumes) == (neighbouring is REPLACE_ONE)


@pytest.mark.filterwarnings("ignore:all numbers of")
@pytest.mark.parametrize("domain", [BITS, None], ids=["public", "private"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-5), (1.0, 1e-5), (20.0, 1e-9), (1e4, 1e-5)])
def test_gaussian_noise_alone_is_charged_by_its_exact_curve(epsilon, delta, domain):
    """The whole of epsilon is spent and no more; the accountant of zero-concentrated privacy would ask for more."""
    event = MST(epsilon, delta, domain=domain).fit(*bits(50)).guarantee_.event
    parts = [(part.event.noise_multiplier, part.count) for part in event.events]  # nothing but counted Gaussians
    rho = math.fsum(count / (2 * multiplier**2) for multiplier, count in parts)
    assert rho == pytest.approx(gaussian_mu(epsilon, delta) ** 2 / 2, rel=1e-8)
    assert epsilon * (1 - 1e-6) < event_epsilon(event, delta, REPLACE_ONE) <= epsilon * (1 + 1e-9)
    assert rho > 1.01 * zcdp_budget(epsilon, delta)
    if (epsilon, delta) == (1.0, 1e-5):
        assert rho / zcdp_budget(epsilon, delta) == pytest.approx(1.176, abs=1e-3)


def test_one_attribute_beside_the_label_leaves_no_choice():
    """Its pair is the whole tree with either workload, so both are charged alike."""
    X, y = bits(100)
    for workload in ("all", "label"):
        event = MST(1.0, domain=TINY, workload=workload).fit(X[:, :1], y).guarantee_.event
        assert event_epsilon(event, 1e-5, REPLACE_ONE) == pytest.approx(1.0, rel=1e-6)
        assert {type(part.event) for part in event.events if hasattr(part, "event")} <= {GaussianDpEvent}


def test_the_noise_that_was_added_is_the_noise_that_was_paid_for():
    X, y = bits(300)
    domain, found = BITS, []
    exact = {j: np.bincount(domain.encode(X, y)[:, j], minlength=2) for j in range(4)}
    for _ in range(60):
        model = MST(1.0, domain=domain).fit(X, y)
        found += [(m.counts - exact[m.attributes[0]]) / m.scale for m in model.measurements_[:4]]
    rho = gaussian_mu(1.0, 1e-5) ** 2 / 2
    assert model.measurements_[0].scale == pytest.approx(math.sqrt(2 / (2 * rho / 12)), rel=1e-6)
    assert model.measurements_[-1].scale == pytest.approx(math.sqrt(2 / (2 * (2 * rho / 3) / 3)), rel=1e-6)
    assert stats.kstest(np.ravel(found), "norm").pvalue > 1e-5


def test_with_little_noise_the_tree_is_the_heaviest_one():
    X, y = bits(2000)
    codes = BITS.encode(X, y)

    def weight(pair):
        i, j = pair
        joint = np.bincount(codes[:, i] * 2 + codes[:, j], minlength=4).reshape(2, 2)
        return np.abs(joint - np.outer(joint.sum(axis=1), joint.sum(axis=0)) / len(y)).sum()

    model = MST(1e4, domain=BITS, workload="all").fit(X, y)
    edges = {tuple(sorted((child, *parents))) for child, parents in model.model_.edges[1:]}
    assert edges == {(2, 3), (0, 2), (0, 1)} == set(sorted(itertools.combinations(range(4), 2), key=weight)[-3:])
    assert model.model_.edges == CHAIN
    star = MST(1e4, domain=BITS).fit(X, y).model_.edges
    assert star == ((3, ()), (0, (3,)), (1, (3,)), (2, (3,)))


@pytest.mark.parametrize("network", [CHAIN, ((3, ()), (0, (3,)), (1, (3,)), (2, (0,)))])
def test_inference_finds_the_nearest_distribution_on_the_tree(network):
    """Against a general optimiser over the same tables, with answers that contradict one another."""
    rng = np.random.default_rng(1)
    sizes, n = (2, 3, 2, 2), 50.0
    edges = [tuple(sorted((child, *parents))) for child, parents in network]
    answers = [
        Measurement(at, n * rng.dirichlet(np.ones(math.prod(sizes[j] for j in at))).reshape([sizes[j] for j in at]), s)
        for at, s in [((0,), 1.0), ((1,), 1.0), ((2,), 1.0), ((3,), 1.0), *((edge, 1.5) for edge in edges[1:])]
    ]
    shapes = [tuple(sizes[j] for j in (*parents, child)) for child, parents in network]

    def error(tables):
        joint = np.ones(sizes)
        for (child, parents), table in zip(network, tables, strict=True):
            places = [child, *parents]
            joint = joint * np.moveaxis(
                table.T.reshape([sizes[j] for j in places] + [1] * (4 - len(places))), range(len(places)), places
            )
        total = 0.0
        for at, counts, scale in answers:
            summed = joint.sum(axis=tuple(j for j in range(4) if j not in at))
            total += np.sum(((n * summed - counts) / scale) ** 2)
        return total

    def tables_of(logits):
        parts = np.split(logits, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
        exps = [np.exp(part.reshape(shape)) for part, shape in zip(parts, shapes, strict=True)]
        return [part / part.sum(axis=-1, keepdims=True) for part in exps]

    start = np.zeros(sum(math.prod(shape) for shape in shapes))
    best = min(
        minimize(lambda v: error(tables_of(v)), start + rng.normal(size=start.size), method="L-BFGS-B").fun
        for _ in range(3)
    )
    tables = fit_tree(network, answers, n, 1500)
    assert all(table.sum(axis=-1) == pytest.approx(1) for table in tables)
    assert error(tables) == pytest.approx(best, rel=2e-3)
    assert error(fit_tree(network, answers, n, 0)) > 1.5 * best


def test_the_law_of_logits_is_the_product_of_their_exponentials():
    """Tables and marginals against the joint distribution, written out."""
    rng = np.random.default_rng(0)
    sizes, network = (2, 3, 4, 2), ((3, ()), (0, (3,)), (1, (3,)), (2, (0,)))
    logits = [rng.normal(0, 2, [sizes[j] for j in (*parents, child)]) for child, parents in network]
    root, first, second, third = logits
    joint = np.exp(root + first.T[:, None, None] + second.T[:, None] + third[:, None, :, None])
    joint /= joint.sum()
    tables, marginals = _law(network, logits)
    for at, found in marginals.items():
        summed = joint.sum(axis=tuple(j for j in range(4) if j not in at))
        assert found == pytest.approx(summed if at == tuple(sorted(at)) else summed.T)
    assert len(marginals) == 4 + 2 * 3
    for (child, parents), table in zip(network, tables, strict=True):
        together = marginals[(*parents, child)]
        assert table == pytest.approx(together / together.sum(axis=-1, keepdims=True))


def test_inference_takes_steps_that_are_short_enough_for_many_attributes():
    """Of a star whose attributes all follow the label: answers that agree are met, however many they are."""
    n_children, pair = 30, np.array([[72.0, 8.0], [2.0, 18.0]])
    network = ((n_children, ()), *((child, (n_children,)) for child in range(n_children)))
    answers = [Measurement((child,), pair.sum(axis=0), 1.0) for child in range(n_children)]
    answers.append(Measurement((n_children,), pair.sum(axis=1), 1.0))
    answers += [Measurement((child, n_children), pair.T, 1.0) for child in range(n_children)]
    root, *others = fit_tree(network, answers, 100.0, 200)
    assert root == pytest.approx([0.8, 0.2], abs=0.01)
    for table in others:
        assert table == pytest.approx(np.array([[0.9, 0.1], [0.1, 0.9]]), abs=0.05)


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_inference_goes_on_where_noisy_counts_do_not_add_up_to_the_number_of_records(factor):
    counts = {(0,): np.array([6.0, 2.0]), (1,): np.array([4.0, 4.0]), (0, 1): np.array([[4.0, 2], [0, 2]])}
    answers = [Measurement(at, factor * noisy, 1.0) for at, noisy in counts.items()]
    network = ((0, ()), (1, (0,)))
    _, found = _law(network, [np.log(table + 1e-300) for table in fit_tree(network, answers, 8.0, 300)])
    _, further = _law(network, [np.log(table + 1e-300) for table in fit_tree(network, answers, 8.0, 3000)])
    for at in counts:
        assert found[at] == pytest.approx(further[at], abs=0.01)
    assert np.abs(found[0, 1] - 0.25).max() > 0.1


def test_two_attributes_and_the_label_make_a_tree_of_two_edges():
    X, y = bits(500)
    domain = Domain([Attribute.categorical(name, j, (0, 1)) for j, name in enumerate("ab")])
    model = MST(1.0, domain=domain, workload="all").fit(X[:, :2], y)
    assert sum(len(measured.attributes) == 2 for measured in model.measurements_) == 2


def test_a_given_label_is_drawn_as_if_others_had_been_thrown_away():
    model = MST(1.0, domain=BITS, workload="all").fit(*bits())
    made, labels = model.sample(60_000, random_state=0)
    given, chosen = model.sample(20_000, label=1, random_state=1)
    assert (chosen == 1).all()
    counts = [np.bincount(x.astype(int) @ [4, 2, 1], minlength=8) for x in (made[labels == 1], given)]
    kept = np.sum(counts, axis=0) > 20
    assert stats.chi2_contingency([c[kept] for c in counts]).pvalue > 1e-4


def test_with_little_noise_samples_follow_the_records():
    X, y = bits(4000)
    made, labels = MST(1e4, domain=BITS, workload="all").fit(X, y).sample(40_000, random_state=1)
    cells = [np.bincount(BITS.encode(*r) @ [8, 4, 2, 1], minlength=16) / len(r[1]) for r in ((X, y), (made, labels))]
    assert np.abs(cells[0] - cells[1]).sum() / 2 < 0.03


TINY = Domain([Attribute.categorical("a", 0, (0, 1))])
NEIGHBOURS = (np.array([[0.0]] * 5 + [[1.0]]), np.array([0] * 5 + [1])), (np.zeros((6, 1)), np.zeros(6, int))


def test_an_audit_of_the_whole_on_a_tiny_domain_refutes_nothing(monkeypatch):
    monkeypatch.setattr(mst_module, "_STEPS", 3)
    model = MST(1.5, domain=TINY)
    audit = audit_estimator(model, *NEIGHBOURS, n_runs=120, n_seeds=10, confidence=0.99999)
    assert audit.refuted(1e-6) == ()
    assert audit.constant_guarantee


def test_the_audit_would_see_noise_for_a_smaller_change(monkeypatch):
    monkeypatch.setattr(mst_module, "_STEPS", 3)
    monkeypatch.setattr(Curator, "_moved_cells", 1e-4)
    assert audit_estimator(MST(1.5, domain=TINY), *NEIGHBOURS, n_runs=120, n_seeds=8).refuted()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"workload": "some"}, "workload"), ({"delta": 0.0}, "delta")],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        MST(1.0, domain=BITS, **parameters).fit(*bits(20))


def test_too_many_cells_are_told_by_a_parameter_that_it_has(monkeypatch):
    monkeypatch.setattr(curator_module, "LARGEST_MARGINAL", 3)
    wide = Domain.from_bounds([[0, 1]] * 3, n_bins=4)
    for parameters, name in (({"domain": wide}, "domain"), ({"n_bins": 4}, "n_bins")):
        with pytest.raises(ValueError, match=f"{name} must leave"):
            MST(1.0, **parameters).fit(*bits(20))


def test_nothing_but_what_is_released_stays_on_a_fitted_object():
    model = MST(1.0, domain=BITS).fit(*bits())
    kept = {name for name in vars(model) if name.endswith("_")}
    assert kept == {*("model_", "measurements_", "n_records_", "n_features_in_", "domain_", "classes_", "guarantee_")}
