"""What the page on class weights and a moved cut-off says of its recorded study and of the published ranks."""

import numpy as np
import pandas as pd
import pytest

from checks import printed_tables
from checks.weights_worth import (
    better_worse_open,
    lead_of_private_moments,
    lead_over_weights,
    moved_cut_off_minus_weights,
    published_ranks,
    worse_rankings_in_words,
)
from helpers.book import recorded

PUBLIC, STRONGEST = 0.0, 0.1  # the penalty from public numbers, and the largest fixed one
MEASURES = ["auc", "balanced_accuracy"]
each_measure = pytest.mark.parametrize("measure", MEASURES)


@pytest.fixture(scope="module")
def over() -> pd.DataFrame:
    table, _ = recorded("app-weights-worth-gains")
    return moved_cut_off_minus_weights(table)


@pytest.fixture(scope="module")
def means() -> pd.DataFrame:
    """Means over the eight data sets of private models, one row a measure, penalty and budget, one column a method."""
    table, _ = recorded("app-weights-worth-study")
    private = table[(table.splits == "random") & np.isfinite(table.epsilon)]
    keys = ["metric", "regularization", "epsilon"]
    return private.groupby([*keys, "method"])["mean"].mean().unstack("method")


@pytest.fixture(scope="module")
def lead() -> pd.DataFrame:
    table, _ = recorded("private-classifiers-quality")
    return lead_of_private_moments(table)


def test_the_comparison_has_eight_data_sets_and_five_budgets_at_each_penalty(over):
    sizes = over.groupby(["metric", "regularization"]).size()
    assert over.dataset.nunique() == 8
    assert over.epsilon.nunique() == 5
    assert (sizes == 40).all()


def test_weights_lowered_the_auc_on_average_and_raised_the_balanced_accuracy_at_one_half(means):
    public = means.xs(PUBLIC, level="regularization").groupby("metric").mean()
    assert public.weights["auc"] < public.plain["auc"]
    assert public.weights["balanced_accuracy"] > public.plain["balanced_accuracy"]


def test_the_published_ranks_favour_no_weights_by_auc_and_weights_by_balanced_accuracy():
    ranks = published_ranks(printed_tables.reference_table("dpci_table03_ranks"))
    assert ranks["rank_auc_plain"] < ranks["rank_auc_weights"]
    assert ranks["rank_ba_plain"] > ranks["rank_ba_weights"]


@each_measure
def test_under_the_penalty_from_public_numbers_the_moved_cut_off_is_ahead_on_most_sets(over, measure):
    lead = lead_over_weights(over, measure)
    assert lead["mean"] > 0
    assert lead["n"] == 8
    assert lead["n_better"] > 4


def test_the_lead_in_rankings_is_significant_and_the_lead_in_decisions_may_be_chance(over):
    assert lead_over_weights(over, "auc")["p_value"] < 0.05
    assert lead_over_weights(over, "balanced_accuracy")["p_value"] > 0.05


@each_measure
def test_for_each_single_data_set_and_budget_the_difference_under_this_penalty_may_be_chance(over, measure):
    public = over[(over.regularization == PUBLIC) & (over.metric == measure)]
    assert better_worse_open(public) == (0, 0, 40)


def test_with_a_penalty_of_a_tenth_the_moved_cut_off_is_no_better_than_guessing(means):
    decided = means.threshold["balanced_accuracy", STRONGEST]
    assert len(decided) == 5
    assert decided.max() < 0.51


def test_under_the_strongest_penalty_rankings_are_worse_on_abalone_and_yeast_alone(over):
    assert worse_rankings_in_words(over).endswith("are all on abalone and yeast_me2")


def test_private_moments_are_ahead_of_a_regression_with_a_moved_cut_off_at_each_of_these_budgets(lead):
    assert list(lead.index) == [0.1, 0.5, 1, 5]
    assert list(lead) == MEASURES
    assert lead.min(axis=None) > 0
