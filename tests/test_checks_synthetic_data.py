"""What is printed about synthetic data, against enumeration and simulation."""

import itertools
import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from checks import synthetic_data as printed
from checks.finite import hockey_stick
from checks.wrapped_budget import wrapped_epsilon
from helpers.data.domain import Domain
from helpers.privacy import REPLACE_ONE, Guarantee, event_epsilon, zcdp_budget
from helpers.privacy.audit import rare_class_pairs
from helpers.synthesis import GEM, PAPER


@pytest.mark.parametrize(("nominal", "true"), [(0.05, 1.57), (0.1, 3.39), (0.5, 23.7), (1.0, 62.0)])
def test_the_wrapped_budget_is_many_times_the_nominal_one(nominal, true):
    assert wrapped_epsilon(nominal) == pytest.approx(true, rel=0.002)
    assert zcdp_budget(wrapped_epsilon(nominal), 1e-5) == pytest.approx(50 * (0.67**2 + 0.33**2) * nominal**2, rel=1e-3)


def test_the_wrapped_budget_is_that_of_its_events():
    from dp_accounting import ComposedDpEvent, GaussianDpEvent, SelfComposedDpEvent
    from dp_accounting.dp_event import ZCDpEvent

    alpha, e = GEM(**PAPER).alpha, 0.5
    each = ComposedDpEvent([ZCDpEvent((2 * alpha * e) ** 2 / 8), GaussianDpEvent(1 / ((1 - alpha) * e))])
    event = SelfComposedDpEvent(each, GEM(**PAPER).T)
    assert event_epsilon(event, 1e-5, REPLACE_ONE, method="rdp") == pytest.approx(wrapped_epsilon(e))


def test_the_printed_loss_is_not_that_of_the_table():
    shares, answers = np.array([0.1, 0.4]), np.array([0.3, 0.35])
    assert printed.gem_loss(shares, answers) == pytest.approx(0.25)
    assert printed.gem_loss(shares, answers, GEM(**PAPER).loss_p) == pytest.approx(0.0425)


def test_the_mixture_s_best_area_is_that_of_a_simulation():
    rng = np.random.default_rng(0)
    y = rng.uniform(size=200_000) < 0.1
    X = rng.normal(0, 2, (len(y), 2)) + 4 * y[:, None]
    assert roc_auc_score(y, X.sum(axis=1)) == pytest.approx(printed.mixture_auc(), abs=0.002)
    assert printed.mixture_auc(0.0) == 0.5


def test_postprocessing_never_adds_to_any_delta():
    rng = np.random.default_rng(0)
    gained = []
    for _ in range(200):
        here, there = rng.dirichlet(np.full(6, 0.3), 2)
        channel = rng.dirichlet(np.full(4, 0.5), 6)
        for epsilon in (0.0, 0.3, 1.0):
            after = hockey_stick(here @ channel, there @ channel, epsilon)
            gained.append(after - hockey_stick(here, there, epsilon))
    assert max(gained) <= 1e-12
    assert min(gained) < -0.1


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_algorithm_3_on_its_smallest_domain_is_as_private_as_its_first_stage(epsilon):
    n, drawn = 4, 3
    channel = printed.drawn_labels_channel(n, drawn)
    assert np.allclose(channel.sum(axis=1), 1)
    for count in range(n):
        laws = [printed.noisy_label_law(c, n, epsilon) for c in (count, count + 1)]
        assert np.allclose([law.sum() for law in laws], 1)
        first = max(np.abs(np.log(laws[0]) - np.log(laws[1])))
        assert first == pytest.approx(epsilon)
        for pair in itertools.permutations(law @ channel for law in laws):
            assert hockey_stick(*pair, epsilon) < 1e-12


def test_asking_the_data_again_costs_again():
    laws = [printed.noisy_label_law(c, 3, 0.4) for c in (1, 2)]
    twice = [np.multiply.outer(law, law).ravel() for law in laws]
    exact = max(abs(math.log(a / b)) for a, b in zip(*twice, strict=True))
    assert printed.repeated_synthesizer_epsilon(1, 3, 0.4, 2) == pytest.approx(exact) == pytest.approx(0.8)


@pytest.fixture(scope="module")
def attack():
    [pair] = [pair for pair in rare_class_pairs(REPLACE_ONE) if pair.name == "at the bound"]
    domain = Domain.from_bounds([[-1, 1]] * 2, n_bins=2)

    def lower_bound(publish, seed=0):
        found = printed.audit_samples(
            publish, Guarantee(1.0, 0.0, REPLACE_ONE), [pair], domain, fits=60, confidence=0.95, seed=seed
        )
        return found.shown, [finding[3:7] for finding in found.findings]

    return lower_bound


def noisy_count(X, y, seed):
    """Records of one cell, as many as there are at the corner, with Laplace noise for epsilon = 5."""
    told = 500 + 10 * (np.sum(X[:, 0] > 0.5) + np.random.default_rng(seed).laplace(scale=0.2))
    n = int(np.clip(told, 0, 1000))
    return np.full((n, 2), 0.9), np.ones(n, dtype=int)


def test_an_attack_on_samples_finds_the_records_themselves_and_nothing_in_constants(attack):
    assert attack(lambda X, y, seed: (X, y))[0] > 1
    assert attack(lambda X, y, seed: (np.zeros((5, 2)), np.ones(5, dtype=int)))[0] == 0


def test_an_attack_on_samples_is_the_same_every_time_although_the_order_of_its_fits_is_not(attack):
    assert attack(noisy_count) == attack(noisy_count)
    assert attack(noisy_count)[1] != attack(noisy_count, seed=1)[1]
    assert 1 < attack(noisy_count)[0] < 5  # refutes a claim of 1, and stays below the truth
