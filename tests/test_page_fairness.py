"""What the page on fairness says of its recorded models: bounds, noise, class weights, cut-offs."""

import pandas as pd
import pytest

from checks.fairness import moved_by_noise, moved_by_weights
from helpers.book import recorded


@pytest.fixture(scope="module")
def bounds() -> pd.DataFrame:
    table, _ = recorded("app-fairness-bounds")
    return table[(table.dataset == "adult") & table.penalty.isin([0.01, 0.001])]


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    table, _ = recorded("app-fairness-learners")
    return table


def test_in_every_line_noise_moved_a_gap_by_less_than_the_theorem_allows(bounds):
    assert len(bounds) == 8
    assert (bounds.q99 < bounds.here).all()


def test_the_first_and_the_fifth_line_are_the_gap_of_women_among_all_people(bounds):
    for line, penalty in ((0, 0.01), (4, 0.001)):
        row = bounds.iloc[line]
        assert (row.penalty, row.group, row.notion) == (penalty, "women", "demographic_parity")


def test_noise_nearly_always_moved_the_gap_of_women_less_than_class_weights_did(bounds, runs):
    by_weights = moved_by_weights(runs, "women, parity")
    assert moved_by_noise(runs, "women, parity") < by_weights
    assert (bounds[(bounds.group == "women") & (bounds.notion == "demographic_parity")].q99 < by_weights).all()


def test_in_a_small_group_noise_can_move_a_gap_as_far_as_class_weights_do(runs):
    assert moved_by_noise(runs, "Black, TPR") >= moved_by_weights(runs, "Black, TPR")


def test_each_row_with_noise_has_as_many_models(runs):
    assert (runs.method == "private").sum() == (runs.method == "private, weights").sum()


def test_what_moved_a_gap_is_measured_from_the_model_without_noise_that_has_the_same_weights():
    methods = ["not private", "private", "private", "not private, weights", "private, weights"]
    runs = pd.DataFrame({"method": methods, "gap": [-0.1, -0.25, 0.1, -0.5, -0.4]})
    assert moved_by_weights(runs, "gap") == pytest.approx(0.4)
    assert moved_by_noise(runs, "gap") == pytest.approx(0.2)
