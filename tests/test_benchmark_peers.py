"""The comparison with other libraries: one rule for all, and gradients that are those of Opacus."""

import numpy as np
import pandas as pd
import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer

from benchmarks import classifiers, contenders, cutoff, gradients, short_list
from helpers import data, paths
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Ledger

RELATIONS = [ADD_REMOVE, REPLACE_ONE]


@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("clip", [0.05, 0.5, 100.0])
def test_a_clipped_sum_is_that_of_opacus(hidden, clip):
    """One step of its optimizer without noise, from the same weights, with weighted losses."""
    rng = np.random.default_rng(0)
    X, y, weights = rng.uniform(-1, 1, (40, 5)), rng.integers(0, 2, 40), np.array([0.6, 4.0])
    parts = [rng.normal(size=(hidden, 6)), rng.normal(size=hidden + 1)] if hidden else [rng.normal(size=6)]
    ends = [torch.nn.Linear(5, hidden), torch.nn.Tanh()] if hidden else []
    model = torch.nn.Sequential(*ends, torch.nn.Linear(hidden or 5, 1)).double()
    linear = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
    with torch.no_grad():
        for layer, part in zip(linear, parts, strict=True):
            together = torch.tensor(part.reshape(layer.out_features, -1))
            layer.weight.copy_(together[:, :-1])
            layer.bias.copy_(together[:, -1])
    seen = GradSampleModule(model)
    inner = torch.optim.SGD(seen.parameters(), lr=1.0)
    optimizer = DPOptimizer(inner, noise_multiplier=0.0, max_grad_norm=clip, expected_batch_size=1)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        seen(torch.tensor(X))[:, 0], torch.tensor(y).double(), weight=torch.tensor(weights[y]), reduction="none"
    )
    losses.mean().backward()
    optimizer.pre_step()
    sums = gradients.clipped_sums(parts, np.column_stack([X, np.ones(40)]), y, weights[y], clip)
    for layer, found in zip(linear, sums, strict=True):
        expected = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], dim=1).numpy()
        # Opacus adds 1e-6 to every norm.
        assert found.reshape(expected.shape) == pytest.approx(expected, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("sample", [1.0, 0.2])
def test_the_noise_of_all_steps_is_worth_the_budget(sample):
    """Gaussian steps on all records compose to one; a sample of them needs less noise for as many steps."""
    found = gradients.noise_multiplier(50, sample, 1.0, 1e-6)
    whole = gradients.noise_multiplier(50, 1.0, 1.0, 1e-6)
    assert found == whole if sample == 1 else found < whole


def test_without_noise_the_descent_finds_the_minimum():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 3))
    y = (rng.random(2000) < 1 / (1 + np.exp(3 - 4 * X[:, 0]))).astype(int)
    settings = {"hidden": 0, "steps": 3000, "sample": 1.0, "rate": 10.0, "clip": 10.0, "average": 0.0}
    score = gradients.fit(X, y, np.ones(2), 1e8, 1e-6, rng, **settings | {"rate": 40.0})
    expected = LogisticRegression(C=np.inf, max_iter=1000).fit(X, y).decision_function(X)
    assert score(X) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_cut_off_costs_what_it_says(relation):
    rng = np.random.default_rng(0)
    ledger = Ledger((rng.normal(size=100), rng.integers(0, 2, 100)), relation, rng)
    cutoff.cut_off(ledger, 0.4)
    assert ledger.epsilon(0.0) == pytest.approx(0.4)


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_record_moves_the_counts_of_the_cut_off_as_stated(relation):
    """Every query's largest change over pairs of neighbours, in l1, is at most the sensitivity that is billed."""
    rng, seen = np.random.default_rng(0), []

    class Watched(Ledger):
        def integers(self, query, sensitivity, epsilon):
            seen.append((query, sensitivity))
            return super().integers(query, sensitivity, epsilon)

    scores, y = 3 * rng.normal(size=50), rng.integers(0, 2, 50)
    cutoff.cut_off(Watched((scores, y), relation, rng), 1.0)
    assert len(seen) == 2
    for query, sensitivity in seen:
        whole, moves = query((scores, y)), []
        for i in range(50):
            if relation is ADD_REMOVE:
                other = np.delete(scores, i), np.delete(y, i)
            else:
                other = scores.copy(), y.copy()
                other[0][i], other[1][i] = rng.normal(0, 9), 1 - y[i]
            moves.append(abs(query(other) - whole).sum())
        assert max(moves) == sensitivity


def test_the_cut_off_is_best_for_balanced_accuracy_where_noise_is_small():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [19_000, 1000])
    for scale, shift in ((0.1, -3.0), (1.0, 0.0), (3.0, 2.0)):  # whatever the units of the scores are
        scores = shift + scale * rng.normal(2 * y)
        cut = cutoff.cut_off(Ledger((scores, y), ADD_REMOVE, rng), 10.0)
        said = scores >= cut
        assert (said[y == 1].mean() + (~said)[y == 0].mean()) / 2 == pytest.approx(0.841, abs=0.025)


def test_few_records_and_one_class_have_a_cut_off():
    rng = np.random.default_rng(0)
    for y in ([], [0], [1, 1]):
        ledger = Ledger((np.zeros(len(y)), np.array(y, dtype=int)), ADD_REMOVE, rng)
        assert np.isfinite(cutoff.cut_off(ledger, 1.0))


def test_all_methods_see_one_schema():
    """A level is a column of 0 and 1, or a place in the list of its attribute; numbers are in [-1, 1]."""
    dataset = data.Dataset(
        "made up",
        np.array([[5.0, 0, 1, 0], [10.0, 1, 0, 0], [0.0, 0, 0, 1]] * 10),
        np.array([0, 1, 0] * 10),
        ("age", "colour=red", "colour=blue", "colour=green"),
        np.array([[0, 10], [0, 1], [0, 1], [0, 1]], dtype=float),
        "made up",
    )
    split = next(contenders.splits(dataset, 1))
    columns, attributes = split.columns, split.attributes
    assert (columns.X[:, 0] == split.X[:, 0] / 5 - 1).all()
    assert (columns.X[:, 1:] == split.X[:, 1:]).all()
    assert (attributes.X[:, 1] == split.X[:, 1:].argmax(axis=1)).all()
    assert attributes.n_levels.tolist() == [0, 3]
    for table in (columns, attributes):
        for X in (table.X, table.X_test):
            assert ((X >= table.low) & (X <= table.high)).all()
            assert np.linalg.norm(X, axis=1).max() <= table.norm + 1e-12


@pytest.mark.parametrize("name", contenders.OURS)
def test_a_method_of_ours_has_log_odds_and_a_cut_off_of_its_own(name):
    call, relation = contenders.OURS[name]
    split = next(contenders.splits(data.load("gaussian_mixture"), 1))
    row = classifiers.trial(call, relation, split, 5.0)
    assert row["auc"] > 0.8
    assert all(0 <= value <= 1 for score, value in row.items() if score != "seconds")


def test_an_interrupted_run_goes_on(tmp_path):
    path, asked = tmp_path / "rows.csv", []

    def work():
        asked.append(1)
        return {"auc": 0.5}

    for _ in range(2):
        rows = classifiers.Rows(path, ("dataset", "epsilon"))
        assert rows.get(("a", 0.5), work) == {"auc": 0.5}
        assert rows.get(("a", 1.0), work) == {"auc": 0.5}
    assert len(asked) == 2


def test_the_short_list_is_run_once(tmp_path, monkeypatch):
    file = tmp_path / "trials.csv"
    monkeypatch.setattr(short_list, "TRIALS", file)
    monkeypatch.setattr(short_list, "GROUPS", {"new": ("simulated, linear",)})
    for _ in range(2):
        short_list.run(2, [1.0], ["offset logistic"], ["new"])
    trials = pd.read_csv(file)
    assert trials.split.tolist() == [0, 1]
    assert (trials.auc > 0.8).all()


def test_decisions_on_the_short_list_are_each_method_s_own():
    earlier = pd.read_csv(classifiers.TRIALS).query(f"method == '{short_list.MOMENTS}, replace-one'")
    shown = pd.read_csv(paths.RESULTS / "which-method-trials.csv").query("method == 'moments'")
    both = shown.merge(earlier, on=["dataset", "epsilon", "split"])
    assert len(both) >= 5 * len(classifiers.SETS)
    assert (both.balanced_accuracy_x == both.own_balanced_accuracy).all()
