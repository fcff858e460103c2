"""What the page on the benchmark says of its recorded trials and of the published ranks."""

from itertools import chain

import pandas as pd
import pytest

from checks import benchmark, benchmark_page, printed_tables, which_method
from checks.benchmark_page import BOTH, GEM, OFFSET, PLAIN, SETTING, WEIGHTED
from checks.ranks import best_of
from helpers.book import recorded
from helpers.study import comparison

each_measure = pytest.mark.parametrize("measure", BOTH)


@pytest.fixture(scope="module")
def trials() -> pd.DataFrame:
    table, _ = recorded("app-benchmark-trials")
    return benchmark_page.private_trials(table)


@pytest.fixture(scope="module")
def field(trials) -> pd.DataFrame:
    return trials[trials.method.isin(benchmark_page.complete(trials))]


@pytest.fixture(scope="module")
def means(field) -> pd.DataFrame:
    choice, _ = recorded("app-benchmark-choice")
    return benchmark_page.mean_scores(field, choice)


@pytest.fixture(scope="module")
def sizes(means) -> pd.DataFrame:
    return means.drop_duplicates("dataset").set_index("dataset")[["rare", "records"]]


@pytest.fixture(scope="module")
def four(trials) -> pd.DataFrame:
    return benchmark_page.four_on_the_same_splits(trials)


@pytest.fixture(scope="module")
def best(four) -> pd.Series:
    """The pipeline of the paper with our best average rank, by measure."""
    return benchmark_page.ranks_of_four(four).idxmin()


@pytest.fixture(scope="module")
def four_over_sets(four) -> pd.DataFrame:
    return benchmark_page.ranks_over_sets(four, [*benchmark_page.MEASURES])


@pytest.fixture(scope="module")
def table3() -> pd.DataFrame:
    return printed_tables.reference_table("dpci_table03_ranks")


@pytest.fixture(scope="module")
def published(table3) -> pd.DataFrame:
    return benchmark_page.published_ranks(table3)


@pytest.fixture(scope="module")
def leads(published) -> pd.Series:
    return benchmark_page.published_leads(published)


@pytest.fixture(scope="module")
def at_one(field) -> dict[str, pd.DataFrame]:
    return benchmark_page.moments_at_one(field)


@pytest.fixture(scope="module")
def over_weighted(field) -> dict[float, pd.Series]:
    """Whether private moments are better than weighted regression by each measure, by the budget."""
    return {budget: benchmark_page.moments_beside(field, WEIGHTED, budget).sign for budget in set(field.epsilon)}


@pytest.fixture(scope="module")
def single(field) -> pd.DataFrame:
    return benchmark_page.single_sets(field)


@pytest.fixture(scope="module")
def rich(means) -> pd.Series:
    return benchmark_page.moments_where_rare(means)


# The same records, the same budget, the same promise


def test_there_are_eight_data_sets_and_their_sizes_are_known(field, sizes):
    choice, _ = recorded("app-benchmark-choice")
    assert set(field.dataset) == set(choice.dataset)
    assert len(sizes) == 8
    assert sizes.notna().all(axis=None)


def test_there_are_five_budgets_from_one_twentieth_to_5(field):
    assert set(field.epsilon) == {0.05, 0.1, 0.5, 1, 5}


def test_all_pipelines_get_the_same_splits(field):
    assert all(set(part.seed) == set(field.seed) for _, part in field.groupby("method"))


# The paper's four pipelines


def test_both_versions_of_the_paper_print_the_same_ranks(table3):
    stated = table3[table3.mean_value.notna()]
    assert (stated.mean_value == pd.to_numeric(stated.mean_arxiv)).all()


def test_on_seven_of_eight_measures_the_published_rank_of_gem_with_trees_is_the_best(published):
    assert published.shape == (4, 8)
    assert published.drop(columns="Recall").idxmin().eq("GEM + trees").all()


def test_on_recall_the_published_rank_of_weighted_regression_is_the_best(published):
    assert published.Recall.idxmin() == "weighted regression"


def test_each_published_lead_over_the_second_is_larger_than_what_sums_of_ranks_are_off(published, leads):
    assert leads.min() > 1
    assert (published.sum() - 10).max() < 1  # four ranks sum to 10


def test_published_ranks_in_f1_and_precision_are_the_same(published):
    assert (published["F1"] == published["Precision"]).all()


def test_the_published_order_does_not_come_out_gem_is_first_on_at_most_two_of_eight_measures(best):
    assert (best == "GEM + trees").sum() <= 2


def test_gem_leads_the_regressions_on_most_measures_only_where_all_three_are_near_guessing(field):
    firsts = benchmark_page.gem_firsts_of_three(field)
    auc = field[field.method.isin([GEM, PLAIN, WEIGHTED])].groupby(["epsilon", "method"]).auc.mean()
    assert {budget for budget, n in firsts.items() if n > 4} == {0.05, 0.1}
    assert auc[[0.05, 0.1]].max() < 0.6


def test_most_of_our_first_places_go_to_weighted_regression(best):
    assert (best == "weighted regression").sum() > 4


def test_on_the_auc_regression_has_our_first_place(best):
    assert best.auc == "regression"


def test_the_published_lead_over_the_second_could_be_luck_on_eight_sets(leads, four_over_sets):
    assert leads.max() < four_over_sets.critical_difference.min()


def test_our_own_order_is_no_safer(four_over_sets):
    assert benchmark_page.gem_apart_from_weighted(four_over_sets) < 4


# A budget of one


@each_measure
@pytest.mark.parametrize("name", [GEM, WEIGHTED, PLAIN])
def test_at_a_budget_of_one_private_moments_are_better_than_the_paper_s_pipelines(at_one, name, measure):
    assert at_one[name].sign[measure] == comparison.BETTER


def test_in_no_comparison_of_figure_1_are_private_moments_worse(at_one):
    assert comparison.WORSE not in set(chain.from_iterable(at_one[name].sign for name in benchmark_page.SHOWN))


def test_the_stored_trials_are_those_of_the_classifier_of_today(field):
    again = benchmark.trial(benchmark.PIPELINES[benchmark_page.MOMENTS], "ecoli", 1.0, 0)
    one = (field.method == benchmark_page.MOMENTS) & (field.dataset == "ecoli") & (field.epsilon == 1)
    then = field[one & (field.seed == 0)].iloc[0]
    assert then[BOTH].tolist() == pytest.approx([again[name] for name in BOTH], abs=1e-4)


def test_regression_calls_next_to_nobody_suspicious(at_one):
    assert at_one[PLAIN].second["balanced_accuracy"] < 0.52


@each_measure
def test_the_comparison_with_regression_with_the_share_built_in_is_unclear(at_one, measure):
    assert at_one[OFFSET].sign[measure] == comparison.OPEN


def test_several_pipelines_come_close_to_private_moments(at_one):
    close = [name for name, table in at_one.items() if (table.sign == comparison.OPEN).all()]
    assert len(close) >= 3


def test_at_some_budgets_private_moments_are_better_than_weighted_regression_by_both_measures(over_weighted):
    told = [budget for budget, sign in over_weighted.items() if (sign == comparison.BETTER).all()]
    assert 0 < len(told) < len(over_weighted)


def test_at_no_budget_are_private_moments_worse_than_weighted_regression(over_weighted):
    assert comparison.WORSE not in set(chain.from_iterable(over_weighted.values()))


@each_measure
def test_gem_with_100_rounds_has_a_lower_mean_than_private_moments(trials, at_one, measure):
    assert benchmark_page.gem_hundred_at_one(trials)[measure] < at_one[GEM]["first"][measure]


@each_measure
def test_most_comparisons_with_private_moments_on_a_single_data_set_are_unclear(single, measure):
    assert (single[single.metric == measure].sign == comparison.OPEN).mean() > 0.5


# No pipeline leads everywhere


@each_measure
def test_no_pipeline_leads_on_every_data_set(means, measure):
    leaders = best_of(means, SETTING, measure).groupby("epsilon").method.nunique()
    assert len(leaders) == 5
    assert (leaders > 1).all()


def test_mammography_and_abalone_have_the_most_rare_records(sizes):
    assert set(sizes.index[sizes.rare > 200]) == {"mammography", "abalone"}


def test_abalone_19_has_as_many_records_as_abalone_and_32_rare_ones(sizes):
    assert sizes.records["abalone"] == sizes.records["abalone_19"]
    assert sizes.rare["abalone_19"] == 32


def test_private_moments_first_become_good_where_data_sets_have_many_rare_records(rich):
    assert rich[0.1, True] > rich[0.1, False] + 0.1


def test_with_a_large_budget_private_moments_become_good_on_the_other_six_data_sets(rich):
    assert rich[5, False] > rich[0.1, False] + 0.1


@pytest.mark.parametrize("size", ["by all", "epsilon"])
def test_eight_sets_do_not_tell_the_product_with_rare_records_from_two_other_rules(means, size):
    top = best_of(means, SETTING, "auc")
    train = (1 - benchmark.TEST_SHARE) * top.epsilon
    top = top.assign(**{"score": train * top.rare, "by all": train * top.records})
    missed = {name: which_method.left_out_errors(top, name, top.auc >= 0.75) for name in ("score", size)}
    gap = (missed[size] - missed["score"]).rename("mean").rename_axis("dataset").reset_index()
    assert comparison.signed_rank(gap)["p_value"] > 0.05


# How much of a rank is luck?


@each_measure
def test_eight_data_sets_cannot_rank_so_many_pipelines_most_pairs_are_not_told_apart(means, measure):
    n = means.method.nunique()
    assert benchmark_page.pairs_apart(benchmark_page.ranks_over_sets(means, BOTH), measure) < n * (n - 1) / 4
