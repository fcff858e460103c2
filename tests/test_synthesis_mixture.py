"""Mixtures of products against enumeration: marginals, conditional sampling, gradients, fitting."""

import itertools

import numpy as np
import pytest
from scipy import stats

from helpers.synthesis.mixture import Loss, MixtureFit, ProductMixture, Target, loss_gradient

SIZES = (2, 3, 4, 2)


def tables(seed=0, k=5, dtype=float):
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(size), k).astype(dtype).T for size in SIZES]


WEIGHTS = np.array([0.1, 0.3, 0.2, 0.05, 0.35])


def joint(mixture):
    """Probability of every record, by going through them."""
    cells = np.zeros(SIZES)
    for codes in itertools.product(*map(range, SIZES)):
        within = np.prod([t[c] for t, c in zip(mixture.tables, codes, strict=True)], axis=0)
        cells[codes] = mixture.weights @ within
    return cells


@pytest.mark.parametrize("attributes", [(1,), (0, 3), (0, 1, 2), (0, 1, 2, 3)])
def test_marginals_are_sums_over_the_joint_distribution(attributes):
    mixture = ProductMixture(tables(), WEIGHTS)
    others = tuple(j for j in range(4) if j not in attributes)
    assert np.allclose(mixture.marginal(attributes), joint(mixture).sum(axis=others))


@pytest.mark.parametrize("given", [{}, {3: 1}, {0: 1, 2: 0}])
def test_sampling_is_exact_under_any_condition(given):
    mixture = ProductMixture(tables(), WEIGHTS)
    wanted = joint(mixture)
    for j, code in given.items():
        keep = np.zeros(SIZES[j])
        keep[code] = 1
        wanted = wanted * keep.reshape([-1 if axis == j else 1 for axis in range(4)])
    wanted = wanted / wanted.sum()
    n = 40_000
    codes = mixture.sample(n, np.random.default_rng(1), given)
    seen = np.bincount(np.ravel_multi_index(codes.T, SIZES), minlength=wanted.size)
    possible = wanted.ravel() > 0
    assert seen[~possible].sum() == 0
    assert stats.chisquare(seen[possible], n * wanted.ravel()[possible]).pvalue > 1e-4


def test_a_condition_of_probability_zero_is_no_error():
    mixture = ProductMixture([np.array([[1.0], [0.0]]), np.array([[0.5], [0.5]])])
    assert (mixture.sample(10, np.random.default_rng(0), {0: 1})[:, 0] == 1).all()


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("attributes", [(2,), (0, 3), (0, 1, 2), (0, 1, 2, 3)])
def test_gradients_are_finite_differences(p, attributes):
    base, step = [*tables(), WEIGHTS], 1e-6
    goal = ProductMixture(tables(seed=9)).marginal(attributes)
    targets = [Target(attributes, goal, 0.7), Target((0, 1), ProductMixture(tables(seed=8)).marginal((0, 1)))]

    def loss(entries):
        mixture = ProductMixture(entries[:-1], entries[-1])
        return sum(t.weight * np.sum(np.abs(mixture.marginal(t.attributes) - t.shares) ** p) for t in targets)

    gradients = loss_gradient(ProductMixture(base[:-1], base[-1]), targets, Loss(p))
    places = [*itertools.product(range(4), [(0, 0), (1, 3)]), (4, 0), (4, 3)]
    for j, place in places:
        up, down = ([table.copy() for table in base] for _ in range(2))
        up[j][place] += step
        down[j][place] -= step
        assert gradients[j][place] == pytest.approx((loss(up) - loss(down)) / (2 * step), abs=1e-6)


def test_only_the_largest_errors_count_if_so_many_are_asked_for():
    errors = [np.array([0.5, -0.1]), np.array([[-0.4, 0.05]])]
    kept = Loss(2, max_idxs=2).slope(errors)
    assert [k.ravel().tolist() for k in kept] == [[1.0, 0.0], [-0.8, 0.0]]
    kept = Loss(1, max_idxs=3, errors_from=0.45).slope(errors)
    assert [k.ravel().tolist() for k in kept] == [[1.0, 0.0], [0.0, 0.0]]
    assert [k.ravel().tolist() for k in Loss(2).slope(errors)] == [[1.0, -0.2], [-0.8, 0.1]]


def network_fit():
    from helpers.synthesis.network import NetworkFit

    return NetworkFit(8, 32, SIZES, np.random.default_rng(0))


def direct_fit(n_components=32):
    return MixtureFit(n_components, SIZES, np.random.default_rng(0))


def test_every_layer_of_the_network_sees_the_layers_before_it_and_the_noise():
    import torch

    def settings():
        backends = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
        precisions = [backend.fp32_precision for backend in backends]
        return torch.get_num_threads(), precisions, torch.random.get_rng_state().tolist()

    found, fit = settings(), network_fit()
    noise, hidden = fit._inputs.numpy(), np.zeros((32, 0))
    for i, linear in enumerate(fit._network.layers):
        weights, bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()
        layer = np.hstack([noise, hidden]) @ weights.T + bias
        assert np.abs(weights).max() <= (noise.shape[1] + hidden.shape[1]) ** -0.5
        if i < len(fit._network.norms):
            layer = np.maximum((layer - layer.mean(axis=0)) / np.sqrt(layer.var(axis=0) + 1e-5), 0)
            hidden = np.hstack([layer, hidden])
    assert fit._logits() == pytest.approx(layer.T, abs=0.05)  # products may be rounded to bfloat16
    assert settings() == found


@pytest.mark.parametrize(
    ("make", "rate"),
    [(direct_fit, 0.1), (network_fit, 0.01)],
    ids=["direct", "network"],
)
def test_either_parameterisation_learns_what_a_mixture_can_be(make, rate):
    truth = ProductMixture(tables(seed=3, k=4))
    workload = list(itertools.combinations(range(4), 2))
    targets = [Target(a, truth.marginal(a).astype(np.float32)) for a in workload]
    fit = make()

    def error():
        return sum(np.abs(fit.mixture().marginal(a) - truth.marginal(a)).sum() for a in workload)

    before = error()
    fit.improve(targets, n_steps=500, rate=rate, batch_size=6, loss=Loss())
    assert error() < 0.1 * before
    state = fit.state()
    fit.improve(targets, n_steps=5, rate=rate, batch_size=6, loss=Loss())
    after = fit.mixture().tables[0]
    fit.restore(state)
    assert not np.allclose(fit.mixture().tables[0], after, atol=1e-9)
    assert np.array_equal(fit.state(), state)


def test_every_label_starts_with_as_many_components_and_its_weight_makes_it_rare():
    share = np.array([0.98, 0.02], dtype=np.float32)
    fit = direct_fit(6)
    assert fit.mixture().tables[3].argmax(axis=0).tolist() == [0, 1, 0, 1, 0, 1]
    fit.improve([Target((3,), share)], n_steps=400, rate=0.1, batch_size=1, loss=Loss())
    assert fit.mixture().marginal((3,)) == pytest.approx(share, abs=2e-3)
    assert fit.mixture().weights[1::2].sum() < 0.05


@pytest.mark.parametrize("max_idxs", [1, 3, 5, 40, 10_000])
@pytest.mark.parametrize("errors_from", [0.0, 0.2, 9.0])
def test_gradients_of_the_largest_errors_are_those_of_a_loss_without_the_others(max_idxs, errors_from):
    """Few cells and many take different ways to the same sums."""
    rng = np.random.default_rng(5)
    mixture = ProductMixture(tables(), WEIGHTS)
    targets = [Target(a, rng.normal(size=[SIZES[j] for j in a]), 0.5 + len(a)) for a in [(0, 1, 2, 3), (1, 2), (3,)]]
    loss = Loss(2, max_idxs, errors_from)
    gradients = loss_gradient(mixture, targets, loss)
    slopes = loss.slope([mixture.marginal(target.attributes) - target.shares for target in targets])
    step = 1e-6

    def along(entries):  # what the kept cells add up to; linear in each table
        changed = ProductMixture(entries[:-1], entries[-1])
        parts = zip(targets, slopes, strict=True)
        return sum(target.weight * np.sum(slope * changed.marginal(target.attributes)) for target, slope in parts)

    base = [*tables(), WEIGHTS]
    for j, place in [(j, place) for j, table in enumerate(base) for place in np.ndindex(table.shape)]:
        up, down = ([table.copy() for table in base] for _ in range(2))
        up[j][place] += step
        down[j][place] -= step
        assert gradients[j][place] == pytest.approx((along(up) - along(down)) / (2 * step), abs=1e-6)
