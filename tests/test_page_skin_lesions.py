"""What the page on public features says of its recorded trials, on skin images and on eight tables."""

import pytest

from checks import printed_tables, skin_lesions
from helpers import book
from helpers.study import comparison

COLUMNS = ["accuracy", "AUC", "balanced accuracy, most probable", "balanced accuracy, by shares"]


@pytest.fixture(scope="module")
def trials():
    variants, _ = book.recorded("app-skin-lesions-variants")
    networks, _ = book.recorded("app-skin-lesions-networks")
    return skin_lesions.image_trials(variants, networks)


@pytest.fixture(scope="module")
def levels(trials):
    """Linear model, network on maps and network on pixels."""
    return [skin_lesions.levels(rows) for rows in trials.values()]


@pytest.fixture(scope="module")
def decisions(trials):
    return trials["linear, features"].groupby("decision").mean(numeric_only=True)


@pytest.fixture(scope="module")
def study():
    return book.recorded("ft-transformer-study")[0]


@pytest.fixture(scope="module")
def auc(study):
    return skin_lesions.mean_auc(study)


@pytest.fixture(scope="module")
def balanced(study):
    return skin_lesions.mean_balanced_accuracy(study)


@pytest.fixture(scope="module")
def tuned():
    return skin_lesions.tuned_gains(book.recorded("ft-transformer-forms")[0])


@pytest.fixture(scope="module")
def ranks():
    """Mean ranks of the paper; the largest is the worst."""
    printed = printed_tables.reference_table("dpci_table03_ranks")
    return printed.set_index(["row_label", "col_label"]).mean_value.unstack()


# Table 1


def test_the_linear_model_learns_from_333_features():
    linear, _, _ = skin_lesions.image_models()
    assert linear.in_features == 333


def test_table_1_has_four_columns(levels):
    assert all(list(level) == COLUMNS for level in levels)


@pytest.mark.parametrize("column", COLUMNS)
def test_in_each_column_the_linear_model_has_the_highest_mean_and_the_network_on_pixels_the_lowest(levels, column):
    linear, maps, pixels = levels
    assert linear[column]["mean"] > maps[column]["mean"] > pixels[column]["mean"]


@pytest.mark.parametrize("column", COLUMNS)
def test_the_interval_of_the_network_on_maps_lies_above_that_of_the_network_on_pixels(levels, column):
    _, maps, pixels = levels
    assert maps[column].low > pixels[column].high


@pytest.mark.parametrize("column", [name for name in COLUMNS if name != "balanced accuracy, most probable"])
def test_the_interval_of_the_linear_model_lies_above_that_of_the_network_on_maps_in_three_columns(levels, column):
    linear, maps, _ = levels
    assert linear[column].low > maps[column].high


# Two decisions, the level without privacy, and a published accuracy


def test_deciding_by_shares_raises_the_balanced_accuracy_and_lowers_the_accuracy(decisions):
    assert decisions.balanced_accuracy["prior"] > decisions.balanced_accuracy["likely"]
    assert decisions.accuracy["prior"] < decisions.accuracy["likely"]


def test_deciding_by_shares_recognizes_fewer_moles_but_more_images_of_most_other_diagnoses(decisions):
    recalls = decisions.filter(like="recall_")
    rises = recalls.loc["prior"] > recalls.loc["likely"]
    assert not rises["recall_nv"]
    assert rises.sum() >= 5


def test_without_privacy_the_linear_model_has_a_higher_balanced_accuracy():
    rows, _ = book.recorded("skin-tuning-trials")
    rows = rows[(rows.variant == "as it is") & (rows.decision == "prior")]
    means = rows.groupby("setting").balanced_accuracy.mean()
    assert means["without privacy"] > means["own"]


def test_the_accuracy_that_huang_and_xie_publish_is_above_that_of_our_linear_model(decisions):
    printed = printed_tables.reference_table("sad_table2_algorithms").set_index(["row_label", "col_label"])
    assert printed.loc["eps=8", "mean_value"].min() > 100 * decisions.accuracy["likely"]


# Tables


def test_the_models_were_trained_on_eight_tables(study):
    assert study.dataset.nunique() == 8


def test_on_average_the_linear_model_has_the_highest_auc_at_each_budget(auc):
    assert (auc.idxmax(axis=1) == "linear").all()


def test_without_privacy_a_transformer_has_a_higher_auc_than_every_private_linear_model(auc):
    twins, _ = book.recorded("ft-transformer-twins")
    assert twins[twins.metric == "auc"]["mean"].mean() > auc["linear"].max()


@pytest.mark.parametrize("rule", ["zero", "printed"])
def test_without_a_private_cut_off_the_transformers_balanced_accuracy_is_near_one_half(balanced, rule):
    assert (abs(balanced["ft-transformer", rule] - 0.5) < 0.03).all()


def test_with_private_cut_offs_the_linear_model_has_the_higher_balanced_accuracy_at_each_budget(balanced):
    assert (balanced["linear", "private"] > balanced["ft-transformer", "private"]).all()


def test_a_private_cut_off_serves_the_linear_model_better_than_deciding_by_shares(balanced):
    assert balanced.loc[1.0, ("linear", "private")] > balanced.loc[1.0, ("linear", "prior")] + 0.03


def test_a_single_private_transformer_may_order_records_worse_than_guessing():
    draws, _ = book.recorded("ft-transformer-draws")
    assert draws[draws.recipe == "private FTT, repaired"].auc.min() < 0.5


def test_the_transformer_is_clearly_better_than_the_linear_model_in_no_case():
    gains, _ = book.recorded("ft-transformer-gains")
    assert skin_lesions.transformer_gains(gains)[comparison.BETTER] == 0


# Both models with settings chosen on simulated records


def test_with_chosen_settings_the_transformers_auc_was_again_lower_on_average(tuned):
    assert (tuned.groupby("form")["mean"].mean() < 0).all()


def test_with_chosen_settings_there_are_three_comparisons_on_each_of_the_eight_tables_and_none_is_better(tuned):
    assert (tuned.dataset.nunique(), tuned.form.nunique(), len(tuned)) == (8, 3, 24)
    assert not (tuned.low > 0).any()


# The ranks of the paper


def test_in_balanced_accuracy_the_transformer_has_the_worst_mean_rank(ranks):
    assert ranks["Bal-ACC"].idxmax() == "Priv. Weighted FTT"


def test_in_auc_the_transformer_has_the_second_worst_mean_rank(ranks):
    assert ranks["AUC"].nlargest(2).index.tolist() == ["Priv. Weighted LogReg", "Priv. Weighted FTT"]
