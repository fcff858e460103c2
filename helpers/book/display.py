"""What a notebook cell calls: figure style, tables with a download, provenance, and the paper's numbers beside ours.

Everything shown is deterministic given the chapter's parameters, so stored outputs can be compared cell by cell.
Privacy cards are `Guarantee` objects and verdict boxes come from `helpers.claims`; both show themselves.
"""

import base64
import html
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata

import matplotlib.pyplot as plt
import pandas as pd
from cycler import cycler
from myst_nb import glue as store

from helpers import paths
from helpers.checks import check_choice

OKABE_ITO = {
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "orange": "#E69F00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "black": "#000000",
}
"""Colours that stay apart for colour-blind readers (Okabe and Ito 2008)."""

MAX_COLUMNS = 8


def use_style() -> None:
    """Set the book's figure style: opaque white, colour-blind-safe, readable at phone width."""
    plt.rcParams.update(
        {
            "axes.grid": True,
            "axes.prop_cycle": cycler(
                color=list(OKABE_ITO.values()), linestyle=["-", "--", "-.", ":", "-", "--", "-."]
            ),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "figure.constrained_layout.use": True,
            "figure.dpi": 110,
            "figure.facecolor": "white",
            "figure.figsize": (6.4, 3.8),
            "font.size": 11,
            "grid.alpha": 0.3,
            "legend.frameon": False,
            "savefig.bbox": "tight",
            "savefig.facecolor": "white",
            "savefig.transparent": False,
        }
    )


@dataclass(frozen=True)
class Table:
    """A data frame with a caption and its CSV to download; `repr` is the plain text that nbval compares.

    Parameters
    ----------
    frame : DataFrame
        At most eight columns, the index included only where it is named.
    caption : str
        One sentence.
    name : str
        File name of the download, without extension. The file holds ten digits, the page `digits`: the last bits of a
        double depend on how many threads added it up.
    digits : int
        Significant digits shown.
    """

    frame: pd.DataFrame
    caption: str
    name: str
    digits: int = 3

    def __post_init__(self) -> None:
        if len(self.frame.columns) > MAX_COLUMNS:
            raise ValueError(f"frame must have at most {MAX_COLUMNS} columns, got {len(self.frame.columns)}")

    def __repr__(self) -> str:
        return f"{self.caption}\n{self._rounded().to_string(index=False)}"

    def _repr_html_(self) -> str:
        body = self._rounded().to_html(index=False, border=0, classes="book-table", na_rep="")
        csv = self.frame.to_csv(index=self._has_index, float_format="%.10g")
        data = base64.b64encode(csv.encode()).decode()
        return (
            f'<figure class="book-table-figure"><figcaption>{html.escape(self.caption)} '
            f'<a download="{self.name}.csv" href="data:text/csv;base64,{data}">CSV</a></figcaption>'
            f'<div class="book-table-scroll" tabindex="0">{body}</div></figure>'
        )

    @property
    def _has_index(self) -> bool:
        return any(name is not None for name in self.frame.index.names)

    def _rounded(self) -> pd.DataFrame:
        # A named index becomes a column, which spares the reader pandas' second header row.
        shown = self.frame.rename_axis(columns=None)
        shown = shown.reset_index() if self._has_index else shown.copy()
        for column in shown.select_dtypes("number").columns:
            if not pd.api.types.is_integer_dtype(shown[column]):
                shown[column] = shown[column].map(lambda value: "" if pd.isna(value) else f"{value:.{self.digits}g}")
        return shown


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


def glue(key: str, text: str) -> None:
    """Store a text in the cell's output.

    `` {glue:text}`key` `` shows it in the chapter, `` {finding}`chapter.key` `` on other pages.
    """
    store(key, str(text), display=False)


def keep(frame: pd.DataFrame, name: str) -> None:
    """Leave a chapter's result in the folder of the run as `NAME.csv`, in full precision.

    Does nothing in a plain session: only `dpbook run` and `dpbook record` name a folder (`$DPBOOK_RUN_FOLDER`).
    """
    folder = os.environ.get("DPBOOK_RUN_FOLDER")
    if folder:
        frame.to_csv(os.path.join(folder, f"{name}.csv"), index=False)


def recorded_names(pattern: str) -> list[str]:
    """Names of the recorded results that match a pattern such as `oversampling-*`, sorted."""
    return sorted(file.stem for file in paths.RESULTS.glob(f"{pattern}.csv"))


def recorded(name: str) -> tuple[pd.DataFrame, str]:
    """A recorded full-scale result and the line that labels it.

    Parameters
    ----------
    name : str
        A table that `dpbook record` left in `results/`.

    Returns
    -------
    frame : DataFrame
    label : str
        Date, parameters and cost of the recorded run.
    """
    check_choice("name", name, recorded_names("*"))
    record = json.loads((paths.RESULTS / f"{name}.json").read_text())
    values = ", ".join(f"{key}={value!r}" for key, value in record["parameters"].items())
    label = f"recorded on {record['date']} with {values} ({record['seconds']} s on {record['cores']} cores)"
    return pd.read_csv(paths.RESULTS / f"{name}.csv"), label


def paper_vs_ours(
    printed: pd.DataFrame, ours: pd.DataFrame, on: Sequence[str], *, value: str = "ours", rounding: float = 0.0
) -> pd.DataFrame:
    """Printed numbers beside computed ones.

    Parameters
    ----------
    printed : DataFrame
        Rows of `reference_table`, filtered to what is compared.
    ours : DataFrame
        Columns `on` and `value`; with `low` and `high`, the ends of our interval.
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
    keep = [*on, value, *(column for column in ("low", "high") if column in ours)]
    merged = printed.merge(ours[keep], on=list(on), how="left", validate="one_to_one")
    result = merged[list(on)].copy()
    result["printed"] = merged["mean"]
    result["ours"] = merged[value]
    result["difference"] = merged[value] - merged["mean_value"]
    if "low" in ours:
        result["low"], result["high"] = merged["low"], merged["high"]
        result["inside"] = merged["mean_value"].between(merged["low"] - rounding, merged["high"] + rounding)
    return result


@dataclass(frozen=True)
class Provenance:
    """What a run depended on: chapter, parameters, versions. See `provenance`."""

    chapter: str
    parameters: dict
    versions: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.chapter}({values}) with {versions}"

    def _repr_html_(self) -> str:
        return f'<p class="provenance">Run as <code>{html.escape(repr(self))}</code></p>'


def provenance(chapter: str, **parameters) -> Provenance:
    """The provenance line of a chapter: its parameters as they are in this run, and the versions that matter."""
    names = ("numpy", "scipy", "scikit-learn", "imbalanced-learn", "dp-accounting")
    versions = {"Python": platform.python_version()} | {name: metadata.version(name) for name in names}
    return Provenance(chapter, parameters, versions)
