"""A form for static pages: sizes and a budget in, recorded results of the most similar data sets out.

Nothing is fetched, and without JavaScript the answer to the first question stands there. `nearest` is the same choice
in Python, for a chapter's text and for tests.
"""

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from helpers.book.inline import check_name, scripts
from helpers.checks import check_choice, check_integer, check_real

_SIZES = {"n": "records", "minority": "of the rare class", "features": "features"}
_SCORES = {"balanced_accuracy": "decide (balanced accuracy)", "auc": "rank (AUC)"}
_SETS, _METHODS = 3, 3


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
        Sizes that are public or were released.
    epsilon : float
        The recorded one that is nearest in ratio is taken.
    relation : str
        One that occurs in `settings`.
    score : {"auc", "balanced_accuracy"}

    Returns
    -------
    DataFrame
        Three sets, nearest first in the sum of log ratios of sizes, and the three best methods of each.

    Raises
    ------
    ValueError
        A size below 1, more rare records than records, an epsilon that is not positive, or a choice that is not there.
    """
    for name, value in {"n": n, "minority": minority, "features": features}.items():
        check_integer(name, value, low=1)
    check_integer("minority", minority, low=1, high=n)
    check_real("epsilon", epsilon, low=0.0, inclusive="neither")
    check_choice("relation", relation, sorted(set(settings.relation)))
    check_choice("score", score, tuple(_SCORES))
    rows = settings[settings.relation == relation]
    gap = (np.log(rows.epsilon) - math.log(epsilon)).abs()
    rows = rows[gap <= gap.min() + 1e-9]
    asked = {"n": n, "minority": minority, "features": features}
    far = sum((np.log(rows[name]) - math.log(value)).abs() for name, value in asked.items())
    sets = far.groupby(rows.dataset, sort=False).first().sort_values(kind="stable").index[:_SETS]
    best = [rows[rows.dataset == name].nlargest(_METHODS, score) for name in sets]
    return pd.concat(best, ignore_index=True)


@dataclass(frozen=True)
class Chooser:
    """The form over `settings` (see `nearest`); shown by a notebook and by the page that is made of it.

    Parameters
    ----------
    name : str
        Letters, digits and hyphens; unique on its page.
    settings : DataFrame
    caption : str
        One sentence above the form.
    n, minority, features : int
        The first question; `nearest` answers it for readers without JavaScript.
    epsilon : float
    """

    name: str
    settings: pd.DataFrame
    caption: str
    n: int = 2000
    minority: int = 100
    features: int = 10
    epsilon: float = 1.0
    relation: ClassVar = "replace-one"
    score: ClassVar = "balanced_accuracy"

    def __post_init__(self) -> None:
        check_name(self.name)
        self._first()

    def _first(self) -> pd.DataFrame:
        asked = {name: getattr(self, name) for name in ("n", "minority", "features", "epsilon", "relation", "score")}
        return nearest(self.settings, **asked)

    def __repr__(self) -> str:
        return "\n".join(f"{row.dataset}: {row.method} {mean} ({span})" for row, mean, span in self._answers())

    def _answers(self) -> Iterator[tuple[pd.Series, str, str]]:
        """Rows of the answer to the first question, with the score's mean and its range as texts."""
        for _, row in self._first().iterrows():
            mean, low, high = (f"{row[self.score + end]:.2f}" for end in ("", "_low", "_high"))
            yield row, mean, f"{low} to {high}"

    def _repr_html_(self) -> str:
        return (
            f'<figure class="chooser" id="{self.name}">'
            f"<figcaption>{html.escape(self.caption)}</figcaption>"
            f'{self._form()}<div class="book-table-scroll" tabindex="0"><table class="book-table"><thead><tr>'
            "<th>recorded set</th><th>best methods</th><th>mean</th><th>single fits</th></tr></thead>"
            f'<tbody>{self._answer()}</tbody></table></div><output aria-live="polite">Recorded at epsilon = '
            f"{self._first().epsilon.iloc[0]:g}, {html.escape(self.relation)}.</output>"
            f"{scripts(self._data(), 'chooser', id=self.name, sets=_SETS, methods=_METHODS)}</figure>"
        )

    def _data(self) -> dict:
        table = self.settings
        sets = table.drop_duplicates("dataset")[["dataset", *_SIZES]]
        lists = {name: list(dict.fromkeys(table[name])) for name in ("method", "relation")}
        place = {name: {value: k for k, value in enumerate(values)} for name, values in lists.items()}
        where = {name: k for k, name in enumerate(sets.dataset)}
        numbers = [f"{score}{end}" for score in ("auc", "balanced_accuracy") for end in ("", "_low", "_high")]
        return {
            "methods": lists["method"],
            "relations": lists["relation"],
            "sets": sets.to_numpy().tolist(),
            "rows": [
                [place["method"][row.method], place["relation"][row.relation], where[row.dataset], row.epsilon]
                + [round(float(row[name]), 3) for name in numbers]
                for _, row in table.iterrows()
            ],
        }

    def _form(self) -> str:
        def number(name: str, text: str, step: str) -> str:
            return (
                f'<label>{text} <input type="number" name="{name}" value="{getattr(self, name):g}" '
                f'min="{step}" step="any" inputmode="decimal"></label>'
            )

        def select(name: str, text: str, options: dict[str, str]) -> str:
            chosen = getattr(self, name)
            listed = "".join(
                f'<option value="{html.escape(value)}"{" selected" * (value == chosen)}>{html.escape(shown)}</option>'
                for value, shown in options.items()
            )
            return f'<label>{text} <select name="{name}">{listed}</select></label>'

        fields = [number(name, text, "1") for name, text in _SIZES.items()]
        fields.append(number("epsilon", "epsilon", "0.01"))
        fields.append(select("relation", "relation", {name: name for name in dict.fromkeys(self.settings.relation)}))
        fields.append(select("score", "to", _SCORES))
        return f"<form hidden>{''.join(fields)}</form>"

    def _answer(self) -> str:
        lines, before = [], None
        for row, mean, span in self._answers():
            sizes = f"{row.dataset} (n {row.n}, rare {row.minority}, d {row.features})" if row.dataset != before else ""
            lines.append("".join(f"<td>{html.escape(text)}</td>" for text in (sizes, row.method, mean, span)))
            before = row.dataset
        return "".join(f"<tr>{line}</tr>" for line in lines)
