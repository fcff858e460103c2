"""What the page on public features takes from the recorded trials, on skin images and on eight tables."""

import numpy as np
import pandas as pd
from dp_accounting.dp_event import ComposedDpEvent
from torch import nn

from checks import skin
from checks.image_features import feature_names, image_maps
from helpers.neural import Schedule
from helpers.privacy import ADD_REMOVE, event_epsilon
from helpers.study import comparison, metrics

_COLUMNS = {
    "accuracy": ("likely", "accuracy"),
    "AUC": ("likely", "auc"),
    "balanced accuracy, most probable": ("likely", "balanced_accuracy"),
    "balanced accuracy, by shares": ("prior", "balanced_accuracy"),
}


# Skin images


def image_trials(variants: pd.DataFrame, networks: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Recorded trials of the three models that are compared on skin images, by the model's name."""
    return {
        "linear, features": variants[variants.variant == "as it is"],
        "network, maps": networks[networks.kind == "maps"],
        "network, pixels": networks[networks.kind == "pixels"],
    }


def image_models() -> tuple[nn.Module, nn.Module, nn.Module]:
    """The three models that are compared on skin images, untrained."""
    channels = image_maps(np.zeros((1, 64, 64, 3), dtype=np.uint8)).shape[1]
    columns = channels + sum(not name.startswith("bin") for name in feature_names(64))
    return skin.linear_head(columns, 7), skin.MapCNN(channels, 7), skin.ResidualCNN(7)


def levels(trials: pd.DataFrame) -> dict[str, pd.Series]:
    """Mean and interval over the runs of one model, for each column of Table 1."""
    found = metrics.summary(trials, "decision", values=["accuracy", "auc", "balanced_accuracy"])
    found = found.set_index(["decision", "metric"])
    return {column: found.loc[key] for column, key in _COLUMNS.items()}


def image_texts(trials: dict[str, pd.DataFrame], table2: pd.DataFrame) -> dict[str, str]:
    """Means of our models of skin images, and what Table II of Huang and Xie prints, as the text shows them."""
    means = {name: rows.groupby("decision").mean(numeric_only=True) for name, rows in trials.items()}
    linear, pixels = means["linear, features"], means["network, pixels"]
    theirs = table2.set_index(["row_label", "col_label"]).mean_value
    return {
        "ba_linear": f"{linear.balanced_accuracy['prior']:.2f}",
        "ba_likely": f"{linear.balanced_accuracy['likely']:.2f}",
        "ba_pixels": f"{pixels.balanced_accuracy['prior']:.2f}",
        "accuracy_likely": f"{linear.accuracy['likely']:.2f}",
        "accuracy_prior": f"{linear.accuracy['prior']:.2f}",
        "accuracy_percent": f"{100 * linear.accuracy['likely']:.1f} %",
        "theirs": f"{theirs['eps=8', 'DPSGD']:.1f} %",
    }


def budget_for_images(size: int) -> float:
    """Epsilon, for somebody with so many images, of the linear model that has a budget of 8 for one image."""
    steps, rate = 40 * 4, 1 / 4  # 40 passes in samples of a quarter
    four_sums = skin.frame_events(8.0, 1e-5)
    plan = Schedule.constant(steps, sample_rate=rate).calibrate(8.0, 1e-5, beside=four_sums, **skin.ACCOUNTING)
    together = skin.group_event(ComposedDpEvent((*four_sums, plan.event())), size)
    return event_epsilon(together, 1e-5, ADD_REMOVE, interval=0.01)


# Tables


def mean_auc(study: pd.DataFrame) -> pd.DataFrame:
    """Means over the tables, a row for each budget and a column for each model."""
    rows = study[(study.rule == "private") & (study.metric == "auc")]
    return rows.pivot_table(index="epsilon", columns="model", values="mean")


def mean_balanced_accuracy(study: pd.DataFrame) -> pd.DataFrame:
    """Means over the tables, a row for each budget and a column for each model with each rule for its cut-off."""
    rows = study[study.metric == "balanced_accuracy"]
    return rows.pivot_table(index="epsilon", columns=["model", "rule"], values="mean")


def transformer_gains(gains: pd.DataFrame) -> pd.Series:
    """In how many cases the interval of the transformer's lead in AUC over the linear model excludes zero."""
    cases = gains[(gains.model == "ft-transformer") & (gains.rule == "private") & (gains.metric == "auc")]
    return comparison.tally(cases).iloc[0]


def tuned_gains(forms: pd.DataFrame) -> pd.DataFrame:
    """The transformer's AUC minus the linear model's, with chosen settings, on each table at the budget nearest to 1.

    The intervals are for new data of the same kind.
    """
    by = ["dataset", "epsilon", "form"]
    pairs = comparison.paired_gains(forms, {"model": "linear"}, values=["auc"], by=by, test_fraction=0.3)
    at = min(pairs.epsilon.unique(), key=lambda budget: abs(np.log(budget)))
    return pairs[pairs.epsilon == at]


def table_texts(study: pd.DataFrame, gains: pd.DataFrame, twins: pd.DataFrame) -> dict[str, str]:
    """Means over the tables at a budget of 1, and the number of cases in which the transformer is worse, as texts."""
    auc, balanced = mean_auc(study), mean_balanced_accuracy(study).loc[1.0]
    cases = transformer_gains(gains)
    return {
        "n_budgets": f"{len(auc)}",
        "auc_linear": f"{auc.loc[1.0, 'linear']:.2f}",
        "auc_small": f"{auc.loc[1.0, 'mlp']:.2f}",
        "auc_transformer": f"{auc.loc[1.0, 'ft-transformer']:.2f}",
        "auc_openly": f"{twins[twins.metric == 'auc']['mean'].mean():.2f}",
        "ba_bought_linear": f"{balanced['linear', 'private']:.2f}",
        "ba_shares_linear": f"{balanced['linear', 'prior']:.2f}",
        "single_worse": f"{cases[comparison.WORSE]:.0f}",
        "single_open": f"{cases['settings'] - cases[comparison.WORSE]:.0f}",
        "single_all": f"{cases['settings']:.0f}",
    }
