"""Numbers that the documents print in tables, beside those of a chapter."""

from collections.abc import Sequence

import pandas as pd

from helpers import paths
from helpers.validation import check_choice


def reference_table(file: str) -> pd.DataFrame:
    """A printed table of the documents, from `reference/tables/FILE.csv`.

    Returns
    -------
    DataFrame
        As transcribed: every column is text, except that `mean` and `std` also come as numbers in `mean_value` and
        `std_value` (thousands separators removed, NaN where nothing is printed).

    Raises
    ------
    ValueError
        No such table; the message lists those there are.
    """
    folder = paths.REFERENCE / "tables"
    check_choice("file", file, sorted(entry.stem for entry in folder.glob("*.csv")))
    table = pd.read_csv(folder / f"{file}.csv", dtype=str, keep_default_na=False)
    for column in ("mean", "std"):
        if column in table:
            table[f"{column}_value"] = pd.to_numeric(table[column].str.replace(",", ""), errors="coerce")
    return table


def paper_vs_ours(
    printed: pd.DataFrame, ours: pd.DataFrame, on: Sequence[str], *, rounding: float = 0.0
) -> pd.DataFrame:
    """Printed numbers beside computed ones.

    Parameters
    ----------
    printed : DataFrame
        Rows of `reference_table`, filtered to what is compared.
    ours : DataFrame
        Columns `on` and `ours`; with `low` and `high`, the ends of our interval.
    on : sequence of str
        Columns that identify a cell; they must identify it uniquely in both frames.
    rounding : float
        Half a unit in the last printed digit; `inside` allows for it.

    Returns
    -------
    DataFrame
        Columns `on`, `printed` (text as printed), `ours`, `difference` (ours minus printed) and, when there is an
        interval, `low`, `high` and `inside` (whether the printed number lies in it). Every printed row is kept; a
        row we did not compute has NaN.
    """
    if printed.empty:
        raise ValueError("printed must have at least one row, got none")
    ends = ["low", "high"] if "low" in ours else []
    merged = printed.merge(ours[[*on, "ours", *ends]], on=list(on), how="left", validate="one_to_one")
    result = merged[list(on)].assign(
        printed=merged["mean"], ours=merged["ours"], difference=merged["ours"] - merged["mean_value"]
    )
    if ends:
        result[ends] = merged[ends]
        result["inside"] = merged["mean_value"].between(merged["low"] - rounding, merged["high"] + rounding)
    return result
