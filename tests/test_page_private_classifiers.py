"""What the page on private moments says of its recorded comparison, and of how its method divides the budget."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from checks.private_classifiers import (
    OURS,
    account_shares,
    mean_scores,
    methods_of_libraries,
    nearest_library,
    noise_in_average_row,
)
from helpers import data
from helpers.book import recorded
from helpers.data import Domain
from helpers.erm import PrivateMomentClassifier
from helpers.erm.marginals import RankFeatures
from helpers.privacy import ADD_REMOVE, ClassLedger, gaussian_mu

METRICS = ["auc", "balanced_accuracy"]
REPLACED = "moments, replace-one"
each_metric = pytest.mark.parametrize("metric", METRICS)


def at_budget_one(name: str) -> pd.DataFrame:
    table, _ = recorded(f"private-classifiers-{name}")
    return table[table.epsilon == 1]


@pytest.fixture(scope="module")
def trials() -> pd.DataFrame:
    return at_budget_one("comparison")


@pytest.fixture(scope="module")
def gains() -> pd.DataFrame:
    return at_budget_one("gains")


@pytest.fixture(scope="module")
def means(trials) -> pd.DataFrame:
    return mean_scores(trials)


@pytest.fixture(scope="module")
def libraries(means) -> list[str]:
    return methods_of_libraries(means.index)


@pytest.fixture(scope="module")
def new_sets(trials) -> pd.DataFrame:
    return trials[trials.reserve == "second"]


# ----------------------------------------------------------------------------------------------------- twenty data sets


def test_ten_of_the_twenty_data_sets_are_new(trials, new_sets, gains):
    assert trials.dataset.nunique() == 20
    assert new_sets.dataset.nunique() == 10
    assert len(new_sets) == len(trials) / 2
    assert {nearest_library(gains, metric).n for metric in METRICS} == {20}


@each_metric
def test_private_moments_has_the_best_averages(means, metric):
    assert means[metric][OURS] == means[metric].max()


@each_metric
def test_private_moments_has_the_best_averages_on_the_new_sets(new_sets, libraries, metric):
    scores = mean_scores(new_sets)[metric]
    assert scores.idxmax() == OURS
    assert scores[OURS] > scores[libraries].max()


@each_metric
def test_private_moments_is_ahead_of_every_library_on_average_under_its_relation(gains, libraries, metric):
    leads = gains[gains.over.isin(libraries) & (gains.metric == metric)]
    assert set(leads.over) == set(libraries)
    assert (leads.gain > 0).all()


@each_metric
def test_the_nearest_library_is_dp_ebm_by_means_and_by_gains(means, new_sets, gains, libraries, metric):
    assert nearest_library(gains, metric).over == "DP-EBM"
    assert means[metric][libraries].idxmax() == "DP-EBM"
    assert mean_scores(new_sets)[metric][libraries].idxmax() == "DP-EBM"


@each_metric
def test_on_most_single_data_sets_the_lead_over_the_nearest_library_is_not_told_from_chance(gains, metric):
    near = nearest_library(gains, metric)
    assert near["clearly better"] < near.n / 2


@each_metric
def test_a_record_that_may_be_replaced_costs_and_so_does_the_noise(means, metric):
    ceilings, _ = recorded("private-classifiers-ceilings")
    free = ceilings.groupby("method")[metric].mean()
    assert means[metric][REPLACED] < means[metric][OURS] < free["moments, no noise"] < free["trees, no privacy"]
    assert means[metric][REPLACED] > means[metric]["diffprivlib LR"]


def test_its_own_cut_off_saves_the_fifth_of_the_budget(means, libraries):
    ours = means.loc[OURS]
    assert ours.own_balanced_accuracy > ours.balanced_accuracy
    assert ours.own_balanced_accuracy == means.own_balanced_accuracy.max()
    assert means.own_balanced_accuracy[libraries].max() < means.balanced_accuracy[libraries].max()


def test_private_moments_does_not_gain_much_at_the_top_of_the_list(means, gains):
    top = nearest_library(gains, "recall_at_alarms")
    assert means.recall_at_alarms[OURS] > means.recall_at_alarms[top.over]
    assert top["median"] < top.gain / 2


def test_every_method_is_near_guessing_on_the_poker_hands(trials):
    assert trials[trials.dataset == "poker-8-9_vs_5"].auc.max() < 0.6


# -------------------------------------------------------------------------------------------------------- two accounts


@pytest.fixture(scope="module")
def few() -> data.Dataset:
    """Mammography with ten suspicious spots: too few for one more sum in each account."""
    spots = data.load("mammography")
    rows = np.r_[np.flatnonzero(spots.y == 0), np.flatnonzero(spots.y == 1)[:10]]
    return dataclasses.replace(spots, X=spots.X[rows], y=spots.y[rows])


@pytest.fixture(scope="module")
def released(few) -> list[tuple[float, float]]:
    """Noise multiplier, and standard deviation of the first entry's noise, of every release of one fit."""
    found, gaussian = [], ClassLedger.gaussian

    def seen(self, query, move, noise_multiplier, units=1.0):
        unit = units[0] if isinstance(units, tuple) else units
        found.append((noise_multiplier, unit * move.added * noise_multiplier))
        return gaussian(self, query, move, noise_multiplier, units)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassLedger, "gaussian", seen)
        domain = Domain.from_dataset(few, n_bins=32)
        model = PrivateMomentClassifier(1.0, delta=few.n**-2.0, neighbouring=ADD_REMOVE, domain=domain, random_state=0)
        model.fit(few.X, few.y)
    return found


def test_a_fit_draws_its_noise_by_the_shares_of_the_table(few, released):
    shares = account_shares(Domain.from_dataset(few, n_bins=32), ADD_REMOVE)
    drawn = [(gaussian_mu(1.0, few.n**-2.0) * multiplier) ** -2 for multiplier, _ in released]
    sums = [shares["size"], shares["size"], shares["cells"], shares["rare"], shares["common"] + shares["second"]]
    assert drawn == pytest.approx(sums)


def test_the_noise_in_the_average_row_is_that_of_the_sum_in_a_fit_divided_by_the_number_of_spots(few, released):
    domain = Domain.from_dataset(few, n_bins=32)
    share, width = account_shares(domain, ADD_REMOVE)["rare"], RankFeatures.count(domain)
    _, scale = released[3]
    assert noise_in_average_row(width, share, few.n, 10, epsilon=1.0) == pytest.approx(width**0.5 * scale / 10)
