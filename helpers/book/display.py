"""What a notebook cell shows itself with: figure style, tables with a download, glued texts, provenance.

Everything shown is deterministic given the chapter's parameters, so stored outputs can be compared cell by cell.
Privacy cards are `Guarantee` objects and verdict boxes come from `checks.claims`; both show themselves.
"""

import base64
import html
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import pandas as pd

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
    """Set the book's figure style: opaque white, colour-blind-safe, readable at phone width, twice as fine as shown."""
    import matplotlib.pyplot as plt  # seconds, which the command line is spared
    from cycler import cycler
    from matplotlib_inline.backend_inline import InlineBackend

    # Twice the pixels, for screens that have them; outside a notebook there is no backend to ask.
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
        InlineBackend.instance(parent=shell).figure_formats = {"retina"}
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
        # The download is in the page itself, so it can be had without the project.
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


def glue(texts: Mapping[str, object] | None = None, /, **named: object) -> None:
    """Store texts in the cell's output, by name.

    `` {glue:text}`name` `` shows one in the chapter, `` {finding}`chapter.name` `` on other pages.
    """
    from myst_nb import glue as store

    for name, text in {**(texts or {}), **named}.items():
        store(name, str(text), display=False)


class Provenance:
    """What a run depended on, as one line: the chapter, its parameters as they are, and the versions that matter."""

    def __init__(self, chapter: str, **parameters: Any) -> None:
        names = ("numpy", "scipy", "scikit-learn", "imbalanced-learn", "dp-accounting")
        versions = [f"Python {platform.python_version()}", *(f"{name} {metadata.version(name)}" for name in names)]
        values = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
        self._line = f"{chapter}({values}) with {', '.join(versions)}"

    def __repr__(self) -> str:
        return self._line

    def _repr_html_(self) -> str:
        return f'<p class="provenance">Run as <code>{html.escape(self._line)}</code></p>'


provenance = Provenance
