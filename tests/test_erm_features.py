"""Random Fourier features: the kernels they approximate, exact norms, and what a wrong norm does to privacy."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from checks import exact_loss, printed_erm
from helpers import erm
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, SEED_SECRET


@parametrize_with_checks([erm.RandomFourierFeatures(paired=False)])
def test_scikit_learn_checks_of_single_cosines(estimator, check):
    check(estimator)


@pytest.mark.parametrize("paired", [True, False])
def test_inner_products_approximate_the_kernel(paired):
    X = np.random.default_rng(0).normal(size=(6, 3)) / 2
    features = erm.RandomFourierFeatures(50_000, 0.7, paired, random_state=1)
    V = features.fit_transform(X)
    exact = np.array([[np.exp(-0.7 * np.square(a - b).sum()) for b in X] for a in X])
    # Terms lie in [-2, 2]: Hoeffding over 36 entries at failure 1e-9.
    assert np.abs(V @ V.T - exact).max() < np.sqrt(8 * np.log(2 * 36 / 1e-9) / 50_000)
    assert np.linalg.norm(V, axis=1).max() <= features.radius_ + 1e-12


def test_paired_norm_is_one_and_single_cosine_reaches_root_two():
    X = np.random.default_rng(0).normal(size=(50, 2))
    assert np.allclose(np.linalg.norm(erm.RandomFourierFeatures(7, random_state=0).fit_transform(X), axis=1), 1)
    single = erm.RandomFourierFeatures(1, paired=False, random_state=0).fit(X)
    omega = single.frequencies_[:, 0]
    undone = -single.phases_[0] * omega / (omega @ omega)  # the point where the phase is undone
    assert np.linalg.norm(single.transform(undone[None])) == pytest.approx(np.sqrt(2))
    assert single.radius_ == pytest.approx(np.sqrt(2))  # and no larger than what is reached


def test_scikit_learns_sampler_has_the_same_norms_as_the_single_cosine():
    X = np.random.default_rng(0).normal(size=(5000, 2))
    norms = np.linalg.norm(RBFSampler(n_components=5, random_state=0).fit_transform(X), axis=1)
    assert 1.1 < norms.max() <= np.sqrt(2)


def test_extreme_records_have_features():
    X = np.array([[1e308, -1e308], [np.finfo(float).max, 0.0], [0.0, 5e-324]])
    for gamma in (1e3, 1e100):
        V = erm.RandomFourierFeatures(50, gamma, random_state=0).fit_transform(X)
        assert np.allclose(np.linalg.norm(V, axis=1), 1)


def test_printed_radius_breaks_the_guarantee():
    """Records inside the unit ball, five single cosines: the printed constants lose more than they promise."""
    n = 70_000
    features = erm.RandomFourierFeatures(5, gamma=4.0, paired=False, random_state=0).fit([[0.0, 0.0]])
    rng = np.random.default_rng(0)

    def inside(x):
        return x / max(1.0, np.linalg.norm(x))

    found = [
        minimize(lambda x: -np.sum(features.transform(inside(x)[None]) ** 2), rng.normal(size=2)) for _ in range(5)
    ]
    longest = inside(min(found, key=lambda result: result.fun).x)
    largest = {1.0: 0.0, np.sqrt(2): 0.0}
    for step, radius, size in product((0.03, 0.06, 0.1, 0.2), largest, 10 ** np.linspace(0, 4, 40)):
        moves = np.random.default_rng(1).normal(size=(2, 2))
        moves *= step / np.linalg.norm(moves, axis=1, keepdims=True)
        V = features.transform(np.array([longest, inside(longest + moves[0]), inside(longest + moves[1])]))
        across = (V[1] - V[2]) / np.linalg.norm(V[1] - V[2])
        weights = np.array([n - 1.0, 1.0])
        loss = exact_loss.privacy_loss(
            -size * across,
            np.vstack([V[0], -V[2]]),
            V[[0, 1]],
            **printed_erm.algorithm_2(epsilon=1.0, n_records=n, regularization=1e-3, radius=radius)._asdict(),
            n_records=n,
            weights=weights,
            neighbour_weights=weights,
        )
        largest[radius] = max(largest[radius], loss)
    assert largest[1.0] > 1.1
    assert largest[np.sqrt(2)] <= 1.0


def rings(n, seed):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(int)
    radius = np.where(y == 1, 0.3, 0.8) + 0.05 * rng.standard_normal(n)
    angle = rng.uniform(0, 2 * np.pi, n)
    return radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]), y


def test_a_kernel_separates_what_no_line_can():
    X, y = rings(4000, 0)
    new_X, new_y = rings(2000, 1)
    kernel = erm.KernelClassifier(epsilon=20.0, n_frequencies=30, gamma=4.0, random_state=0).fit(X, y)
    line = erm.ERMClassifier().fit(X, y)
    assert roc_auc_score(new_y, kernel.decision_function(new_X)) > 0.95
    assert roc_auc_score(new_y, line.decision_function(new_X)) < 0.6


@pytest.mark.parametrize("learner", [erm.ObjectivePerturbationClassifier(), erm.OutputPerturbationClassifier()])
def test_guarantee_is_the_learners_for_the_radius_of_the_features(learner):
    X, y = rings(300, 0)
    model = erm.KernelClassifier(learner, epsilon=2.0, random_state=0).fit(X, y)
    alone = learner.set_params(epsilon=2.0, radius=1.0).fit(np.zeros((300, 2)), y)
    assert model.estimator_.radius == 1.0
    assert model.estimator_.noise_rate_ == pytest.approx(alone.noise_rate_)
    assert (model.guarantee_.epsilon, model.guarantee_.delta, model.guarantee_.neighbouring) == (2.0, 0.0, REPLACE_ONE)


def kernel_noise(model, n):
    """The noise in the objective, where all records are at the origin and the sines see nothing else."""
    sines = model.estimator_.coef_[0, model.n_frequencies :] * np.sqrt(2)
    return -sines * n * model.estimator_.total_regularization_


def test_the_noise_is_the_learners_and_the_frequencies_do_not_tell_it():
    """Equal integers, and none at all: the noise has its law, differs between fits, and is not the frequencies'."""
    X, y = np.zeros((50, 3)), np.zeros(50, dtype=int)
    published = np.random.default_rng(0).normal(size=120)
    estimator = erm.KernelClassifier(n_frequencies=40)
    noises = []
    for seed in [0, 8, *[None] * 60]:
        model = clone(estimator).set_params(random_state=seed).fit(X, y)
        assert np.array_equal(model.features_.frequencies_.ravel(), np.sqrt(2) * published)
        noises.append(kernel_noise(model, 50))
        assert abs(np.corrcoef(noises[-1], published[:40])[0, 1]) < 0.85  # 62 times 1e-11
    assert np.linalg.matrix_rank(np.array(noises[:30])) == 30
    # 40 of the 81 directions of a vector whose length is Gamma(81, 1/rate).
    squared = np.sum(np.square(noises), axis=1) * model.estimator_.noise_rate_**2
    assert np.mean(squared) == pytest.approx(40 / 81 * 81 * 82, rel=0.25)  # seven standard deviations


def test_no_record_is_no_error_only_where_their_number_is_private():
    X, y = np.zeros((0, 2)), np.zeros(0, dtype=int)
    adding = erm.ObjectivePerturbationClassifier(neighbouring=ADD_REMOVE, n_records=20)
    assert np.isfinite(erm.KernelClassifier(adding).fit(X, y).estimator_.coef_).all()
    with pytest.raises(ValueError, match="minimum of 1 is required by KernelClassifier"):
        erm.KernelClassifier().fit(X, y)
    assert erm.KernelClassifier().fit(np.zeros((1, 2)), [1]).classes_.tolist() == [0, 1]
    for bad in (0.0, -0.5):
        with pytest.raises(ValueError, match="epsilon must be"):
            erm.KernelClassifier(epsilon=bad).fit(None, None)


def test_one_frequency_will_do_and_none_is_refused_before_the_data_are_read():
    assert erm.KernelClassifier(n_frequencies=1).fit(*rings(20, 0)).estimator_.coef_.shape == (1, 2)
    with pytest.raises(ValueError, match="n_frequencies must be"):
        erm.KernelClassifier(n_frequencies=0).fit(None, None)


def test_other_features_than_those_of_the_fit_are_refused_and_change_nothing():
    model = erm.KernelClassifier(n_frequencies=5).fit(*rings(50, 0))
    for method in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match="X has 3 features, but KernelClassifier is expecting 2"):
            method(np.zeros((1, 3)))
    assert model.n_features_in_ == 2


def test_the_guarantee_names_the_kernel():
    model = erm.KernelClassifier(random_state=0).fit(*rings(50, 0))
    assert "kernel and number of frequencies public" in model.guarantee_.assumes
    assert SEED_SECRET in model.guarantee_.assumes
    assert SEED_SECRET not in erm.KernelClassifier().fit(*rings(50, 0)).guarantee_.assumes


def test_the_fitted_model_does_not_carry_its_noise_source():
    model = erm.KernelClassifier(random_state=0).fit(*rings(50, 0))
    assert model.estimator_.random_state is None


@pytest.mark.parametrize(
    "bad",
    [
        {"n_frequencies": 0},
        {"gamma": 0.0},
        {"gamma": 1e101},
        {"random_state": np.random.default_rng(0)},
    ],
)
def test_bad_parameters(bad):
    for estimator in (erm.RandomFourierFeatures(), erm.KernelClassifier()):
        with pytest.raises(ValueError, match=next(iter(bad))):
            estimator.set_params(**bad).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="estimator must have parameters epsilon"):
        erm.KernelClassifier(erm.ERMClassifier()).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="paired must be True or False"):
        erm.RandomFourierFeatures(paired="no").fit([[0.0]])
