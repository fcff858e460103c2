"""What a perturbation tells the proof of its solver, and what it takes from it.

The proof (`helpers.erm.risk.precision`) holds for the numbers that it is told: too small a bound on the noise, on the
number of rows or on their weight would make it a proof about something else.
"""

import math

import numpy as np
import pytest

from helpers.erm import ObjectivePerturbationClassifier, OutputPerturbationClassifier, perturbation
from helpers.erm.risk import Precision, precision
from helpers.privacy import ADD_REMOVE, REPLACE_ONE

RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-0.4, 0.4, (60, 3)), np.tile([0, 1, 1], 20)


class Asked:
    """What the solver was asked: the arguments of the proof, and of the minimiser."""

    def __init__(self, patch, *, reach=None):
        self.proof, self.solver = {}, {}

        def proved(loss, regularization, **told):
            self.proof = told | {"regularization": regularization}
            found = precision(loss, regularization, **told)
            return found if reach is None else Precision(reach, found[1])

        def minimiser(model, records, weights, regularization, noise, distance):
            self.solver = {"weights": weights, "noise": noise, "distance": distance}
            return original(model, records, weights, regularization, noise, distance)

        original = perturbation.PerturbationClassifier._minimiser
        patch.setattr(perturbation, "precision", proved)
        patch.setattr(perturbation.PerturbationClassifier, "_minimiser", minimiser)


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_the_proof_is_told_of_noise_that_is_hardly_ever_longer(monkeypatch, relation, delta):
    asked = Asked(monkeypatch)
    model = ObjectivePerturbationClassifier(
        2.0, delta=delta, regularization=0.1, neighbouring=relation, n_records=50, random_state=0
    ).fit(X, Y)
    size = X.shape[1] + 1
    if delta:
        longest = (math.sqrt(size) + 10) * model.noise_scale_
    else:
        longest = (size + 10 * math.sqrt(size) + 50) / model.noise_rate_
    assert asked.proof["center"] == pytest.approx(longest / (50 * asked.proof["regularization"]), rel=1e-12)
    assert np.linalg.norm(asked.solver["noise"]) < longest
    assert asked.proof["width"] == size
    # Ten times as many records as are said keep their full weight, and a sum has no more terms.
    assert asked.proof["mean_weight"] == 10
    assert asked.proof["n_rows"] == 500


def test_lengths_of_noise_are_exceeded_with_the_probability_that_is_said():
    """e^-50 is nothing to wait for: the same bounds with 2 in the place of 50 and 10 are exceeded with e^-2 at most."""
    rng, size = np.random.default_rng(0), 7
    lengths = rng.gamma(size, size=100_000)
    assert np.mean(lengths > size + math.sqrt(2 * 2 * size) + 2) < math.exp(-2)
    assert size + 10 * math.sqrt(size) + 50 == pytest.approx(size + math.sqrt(2 * 50 * size) + 50)
    normal = np.linalg.norm(rng.normal(size=(100_000, size)), axis=1)
    assert np.mean(normal > math.sqrt(size) + math.sqrt(2 * 2)) < math.exp(-2)
    assert math.sqrt(2 * 50) == 10


def test_the_proof_is_told_of_a_prior_and_of_more_rows_than_are_said(monkeypatch):
    asked = Asked(monkeypatch)
    options = {"delta": 1e-3, "regularization": 0.1, "n_records": 5, "random_state": 0}
    model = ObjectivePerturbationClassifier(2.0, prior="offset", **options).fit(X, Y)
    anchor = np.linalg.norm(model._anchor())
    assert anchor > 0
    noise = (math.sqrt(4) + 10) * model.noise_scale_ / (5 * asked.proof["regularization"])
    assert asked.proof["center"] == pytest.approx(noise + anchor)
    assert asked.proof["n_rows"] == 60  # public under replace-one, and more than ten times five
    ObjectivePerturbationClassifier(2.0, neighbouring=ADD_REMOVE, **options).fit(X, Y)
    assert asked.proof["n_rows"] == 50  # private, so that only what is assumed bounds it


@pytest.mark.parametrize(("class_weight", "own"), [(None, 1.0), ({0: 0.25, 1: 0.5}, 0.5), ("balanced", None)])
def test_the_proof_is_told_of_the_largest_weight(monkeypatch, class_weight, own):
    asked = Asked(monkeypatch)
    model = ObjectivePerturbationClassifier(2.0, regularization=0.1, class_weight=class_weight, random_state=0)
    model.fit(X, Y)
    if own is None:
        own = perturbation.balanced_weights(2).own
    assert asked.proof["mean_weight"] == own


@pytest.mark.parametrize("class_weight", [None, {0: 1.0, 1: 0.5}])
def test_more_records_than_keep_their_weight_share_it(monkeypatch, class_weight):
    asked = Asked(monkeypatch)
    options = {"regularization": 0.1, "class_weight": class_weight, "random_state": 0, "neighbouring": ADD_REMOVE}
    ObjectivePerturbationClassifier(2.0, n_records=6, **options).fit(X, Y)  # exactly ten times as many
    expected = np.array([1.0, 1.0 if class_weight is None else 0.5])
    weights = asked.solver["weights"]
    assert (np.ones(2) if weights is None else weights).tolist() == expected.tolist()
    ObjectivePerturbationClassifier(2.0, n_records=4, **options).fit(X, Y)
    np.testing.assert_allclose(asked.solver["weights"], expected * 40 / 60, rtol=1e-12)


def test_the_solver_certifies_a_quarter_and_results_are_shortened_to_what_is_proved(monkeypatch):
    asked = Asked(monkeypatch, reach=1e-3)
    model = OutputPerturbationClassifier(1e6, regularization=0.1, random_state=0).fit(X, Y)
    # What is stored is for rows before the constant feature took half of their squared length. The released point is
    # within the noise of the shortened one.
    found = np.append(model.coef_, model.intercept_) * math.sqrt(2)
    noise = 40 / model.noise_rate_
    assert 1e-3 - noise < np.linalg.norm(found) < 1e-3 + noise
    # The sensitivity holds twice the distance, of which the solver's gradient certifies a quarter.
    assert asked.solver["distance"] == pytest.approx(model.epsilon_solver_ / model.noise_rate_ / 2 / 4)
    assert asked.proof["center"] == 0.0  # there is no noise in this objective


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "gaussian"}, "delta must be above 0 with noise='gaussian', got 0"),
        ({"noise": "ball", "delta": 0.5}, "delta must be 0 with noise='ball', got 0.5"),
        ({"noise": "cube", "bounds": [[-1, 1]] * 3, "delta": 0.5}, "delta must be 0 with noise='cube', got 0.5"),
        ({"noise": "cube"}, "bounds must be given with noise='cube' and with blocks, got None"),
        ({"blocks": [[0, 1]]}, "bounds must be given with noise='cube' and with blocks, got None"),
        (
            {"noise": "cube", "blocks": [[0, 1]], "bounds": [[0, 1]] * 3, "fit_intercept": False},
            "blocks must be None with noise='cube' for more than two classes or no intercept",
        ),
        (
            {"noise": "cube", "blocks": [[0, 1]], "bounds": [[0, 1]] * 3, "classes": (0, 1, 2)},
            "blocks must be None with noise='cube' for more than two classes or no intercept",
        ),
    ],
)
def test_noise_that_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        ObjectivePerturbationClassifier(1.0, **options).fit(X, Y)


def test_noise_that_fits_is_not():
    blocks = {"blocks": [[0, 1]], "bounds": [[0, 1], [0, 1], [-1, 1]]}
    Z = np.column_stack([Y, 1 - Y, X[:, 2]])
    for options in (
        *({"noise": "gaussian", "delta": 1e-3}, {"noise": "ball"}, blocks, blocks | {"fit_intercept": False}),
        *({"noise": "cube"} | blocks, {"noise": "cube", "bounds": [[-1, 1]] * 3, "fit_intercept": False}),
    ):
        ObjectivePerturbationClassifier(1.0, random_state=0, **options).fit(Z, Y)


def test_the_polytope_holds_every_row_and_no_more():
    """Corners of the block and of the numbers, as rows: the largest of each entry is the polytope's width."""
    model = ObjectivePerturbationClassifier(
        1.0, noise="cube", blocks=[[1, 2, 3]], bounds=[[-1, 3], [0, 1], [0, 1], [0, 1], [-2, 1]], random_state=0
    )
    Z = np.column_stack([np.linspace(-1, 3, 60), np.eye(3)[np.arange(60) % 3], np.linspace(-2, 1, 60)])
    model.fit(Z, Y)
    corners = [[a, *level, b] for a in (-1, 3) for level in np.eye(3) for b in (-2, 1)]
    rows = np.abs(model._rows(np.array(corners, dtype=float)).written()).max(axis=0)
    assert model._polytope().widths == pytest.approx(tuple(rows))
    assert [list(block) for block in model._polytope().blocks] == [[1, 2, 3]]


@pytest.mark.parametrize("kind", [ObjectivePerturbationClassifier, OutputPerturbationClassifier])
def test_a_model_is_itself_alone_and_shows_what_is_not_by_default(kind):
    assert kind() != kind()
    assert repr(kind(epsilon=2.0)) == f"{kind.__name__}(epsilon=2.0)"


def test_options_are_given_by_name():
    with pytest.raises(TypeError):
        ObjectivePerturbationClassifier(1.0, 1e-3, False)


def test_the_guarantee_names_the_norm_of_its_noise():
    for noise, named in (("cube", True), ("ball", False)):
        model = ObjectivePerturbationClassifier(1.0, noise=noise, bounds=[[-1, 1]] * 3, random_state=0).fit(X, Y)
        assert ("noise in the norm of the rows' polytope" in model.guarantee_.source) is named
