"""A form for the page on choosing a method: sizes and a budget in, recorded results of the most similar data sets out.

Nothing is fetched, and without JavaScript the answer to the first question stands there. `nearest` is the same choice
in Python, for the page without JavaScript and for tests.
"""

import html
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from helpers.book.widgets import scripts

_NUMBERS = {"n": "records", "minority": "of the rare class", "features": "features", "epsilon": "epsilon"}
_SIZES = ["n", "minority", "features"]
_SCORES = {"balanced_accuracy": "decide (balanced accuracy)", "auc": "rank (AUC)"}
_SETS, _METHODS = 3, 3
_ID = "which-method-chooser"


def nearest(
    settings: pd.DataFrame, *, n: int, minority: int, features: int, epsilon: float, relation: str, score: str
) -> pd.DataFrame:
    """The best recorded methods on the data sets that are most like one of these sizes, at about this epsilon.

    Parameters
    ----------
    settings : DataFrame
        Recorded results, one row for each `method`, `relation`, `dataset` and `epsilon`, with the sizes `n`,
        `minority` and `features` of the set and, of each score, the mean, `SCORE_low` and `SCORE_high`.
    n, minority, features : int
        Sizes that are public or were released, at least 1.
    epsilon : float
        Positive; the recorded one that is nearest in ratio is taken.
    relation : str
        One that occurs in `settings`.
    score : {"auc", "balanced_accuracy"}

    Returns
    -------
    DataFrame
        Three sets, nearest first in the sum of log ratios of sizes, and the three best methods of each.
    """
    rows = settings[settings.relation == relation]
    gap = (np.log(rows.epsilon) - math.log(epsilon)).abs()
    rows = rows[gap <= gap.min() + 1e-9]
    asked = {"n": n, "minority": minority, "features": features}
    far = sum((np.log(rows[name]) - math.log(value)).abs() for name, value in asked.items())
    sets = rows.assign(far=far).drop_duplicates("dataset").nsmallest(_SETS, "far").dataset
    return pd.concat([rows[rows.dataset == name].nlargest(_METHODS, score) for name in sets], ignore_index=True)


@dataclass(frozen=True)
class Chooser:
    """The form over `settings` (see `nearest`); shown by a notebook and by the page that is made of it.

    Parameters
    ----------
    settings : DataFrame
    caption : str
        One sentence above the form.
    n, minority, features : int
        The first question; `nearest` answers it for readers without JavaScript.
    epsilon : float
    """

    settings: pd.DataFrame
    caption: str
    n: int
    minority: int
    features: int
    epsilon: float
    relation: ClassVar = "replace-one"
    score: ClassVar = "balanced_accuracy"

    def _nearest(self) -> pd.DataFrame:
        asked = {name: getattr(self, name) for name in (*_NUMBERS, "relation", "score")}
        return nearest(self.settings, **asked)

    def _answer(self) -> pd.DataFrame:
        """What the page says to the first question."""
        found = self._nearest()
        sizes = [f"{row.dataset} (n {row.n}, rare {row.minority}, d {row.features})" for row in found.itertuples()]
        mean, low, high = (found[self.score + end].map("{:.2f}".format) for end in ("", "_low", "_high"))
        named = pd.Series(sizes).mask(found.dataset.duplicated(), "")  # a set is named in the first of its rows
        columns = {"recorded set": named, "best methods": found.method, "mean": mean}
        return pd.DataFrame(columns | {"single fits": low + " to " + high})

    def __repr__(self) -> str:
        return self._answer().to_string(index=False)

    def _repr_html_(self) -> str:
        table = self._answer().to_html(index=False, border=0, classes="book-table")
        recorded = f"Recorded at epsilon = {self._nearest().epsilon.iloc[0]:g}, {html.escape(self.relation)}."
        code = Path(__file__).with_name("which_method.js")
        return (
            f'<figure class="chooser" id="{_ID}"><figcaption>{html.escape(self.caption)}</figcaption>{self._form()}'
            f'<div class="book-table-scroll" tabindex="0">{table}</div><output aria-live="polite">{recorded}</output>'
            f"{scripts(self._data(), code, id=_ID, sets=_SETS, methods=_METHODS)}</figure>"
        )

    def _data(self) -> dict:
        table = self.settings
        coded = [pd.factorize(table[name]) for name in ("method", "relation", "dataset")]
        numbers = [f"{score}{end}" for score in ("auc", "balanced_accuracy") for end in ("", "_low", "_high")]
        places = [codes.tolist() for codes, _ in coded]
        rounded = [[round(value, 3) for value in table[name]] for name in numbers]
        return {
            "methods": coded[0][1].tolist(),
            "relations": coded[1][1].tolist(),
            "sets": table.drop_duplicates("dataset")[["dataset", *_SIZES]].to_numpy().tolist(),
            "rows": list(zip(*places, table.epsilon, *rounded, strict=True)),
        }

    def _form(self) -> str:
        fields = [
            f'<label>{text} <input type="number" name="{name}" value="{getattr(self, name):g}" min="0" step="any" '
            'inputmode="decimal"></label>'
            for name, text in _NUMBERS.items()
        ]
        relations = {name: name for name in self.settings.relation.unique()}
        for name, text, options in (("relation", "relation", relations), ("score", "to", _SCORES)):
            listed = "".join(
                f'<option value="{html.escape(value)}"{" selected" * (value == getattr(self, name))}>'
                f"{html.escape(shown)}</option>"
                for value, shown in options.items()
            )
            fields.append(f'<label>{text} <select name="{name}">{listed}</select></label>')
        return f"<form hidden>{''.join(fields)}</form>"
