"""Draws of a prescribed shape, and ensembles that are compared with one model on the same draw and budget."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from checks import bagging
from helpers import data
from helpers.erm import ObjectivePerturbationClassifier
from helpers.meta import PrivateBaggingClassifier, ThresholdClassifier
from helpers.study import comparison
from helpers.study.comparison import BETTER, OPEN

LEARNER = ObjectivePerturbationClassifier(regularization=0.1)


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    y = (np.arange(400) < 60).astype(int)
    X = rng.normal(np.where(y == 1, 0.3, -0.3)[:, None], 0.2, (400, 2))
    return data.Dataset("made up", X, y, ("a", "b"))


def test_a_draw_has_its_size_ratio_and_share(records):
    train, test = bagging.drawn(records, 200, 4.0, 1, 0.25)
    assert (train.n, test.n) == (150, 50)
    assert train.counts[1] + test.counts[1] == 40
    again, _ = bagging.drawn(records, 200, 4.0, 1, 0.25)
    assert np.array_equal(again.X, train.X)


@pytest.mark.parametrize(("n", "ratio", "expected"), [(200, 4.0, True), (310, 4.0, False), (400, 9.0, False)])
def test_feasible_is_what_can_be_drawn(records, n, ratio, expected):
    assert bagging.feasible(records, n, ratio) is expected
    if not expected:
        with pytest.raises(ValueError, match="n"):
            bagging.drawn(records, n, ratio, 0, 0.3)


def test_decisions_are_those_of_the_model(records):
    model = ThresholdClassifier(LEARNER, epsilon=5.0, random_state=0).fit(records.X, records.y)
    row = bagging.scored(model, records, method="x")
    predicted = model.predict(records.X)
    recalls = [(predicted[records.y == label] == label).mean() for label in (0, 1)]
    assert row["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    assert row["method"] == "x"


def test_all_kinds_and_votes_are_compared_once(records):
    kinds = {
        "disjoint": partial(PrivateBaggingClassifier, sampling="disjoint"),
        "strata": partial(PrivateBaggingClassifier, sampling="public-strata"),
    }
    train, test = bagging.drawn(records, 100, 19.0, 0, 0.3)  # four minority records to learn from
    rows = list(bagging.compared(train, test, LEARNER, kinds, [2, 6], 0, epsilon=2.0, delta=1e-4))
    found = [(row["method"], row["m"], row["voting"]) for row in rows]
    votes = ("hard", "soft")
    bags = [("disjoint", 2), ("strata", 2), ("disjoint", 6)]  # six bags would lack a class
    assert found == [("DPLR", 1, "hard"), *((*bag, vote) for bag in bags for vote in votes)]
    assert all(set(bagging.METRICS) <= set(row) for row in rows)


def test_widened_intervals_are_those_of_paired_gains():
    rng = np.random.default_rng(0)
    trials = pd.DataFrame({"seed": np.tile(range(12), 2), "method": np.repeat(["a", "b"], 12), "auc": rng.random(24)})
    narrow, wide = (
        comparison.paired_gains(trials, {"method": "a"}, values=["auc"], test_fraction=share) for share in (None, 0.3)
    )
    found = bagging.over_new_data(narrow, 0.3)
    assert np.allclose(found[["low", "high"]], wide[["low", "high"]])
    assert (found.high - found.low > 2 * (narrow.high - narrow.low)).all()


def test_welch_is_scipys():
    rng = np.random.default_rng(4)
    x, y = rng.normal(1, 2, 9), rng.normal(0, 1, 5)
    table = [pd.DataFrame({"mean": [v.mean()], "sd": [v.std(ddof=1)], "n": [v.size]}) for v in (x, y)]
    row = bagging.gap_of_means(*table).iloc[0]
    wanted = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    assert [row.low, row.high] == pytest.approx([wanted.low, wanted.high])


def test_gaps_are_matched_by_index_and_constants_differ_exactly():
    new = pd.DataFrame({"mean": [0.5, np.nan, 0.9], "sd": [0.0, 0.1, 0.1], "n": 5}, index=["a", "b", "c"])
    old = pd.DataFrame({"mean": [0.4, 0.4], "sd": [0.0, 0.1], "n": 5}, index=["a", "b"])
    gap = bagging.gap_of_means(new, old)
    assert gap.index.tolist() == ["a", "b"]
    assert gap.loc["a", ["low", "high"]].tolist() == pytest.approx([0.1, 0.1])
    assert gap.sign.tolist() == [BETTER, OPEN]
