"""The form for a reader's sizes: the right rows, valid without JavaScript, and nothing fetched."""

import json
import re

import pandas as pd
import pytest

from checks.which_method import Chooser, nearest

SCORES = ("auc", "balanced_accuracy")


def settings() -> pd.DataFrame:
    """Five sets that differ in size by powers of ten; method "c" ranks best, "a" decides best."""
    rows = []
    for k in range(5):
        for epsilon in (0.1, 1.0):
            for relation in ("replace-one", "add/remove"):
                for place, method in enumerate("abcd"):
                    row = {"method": method, "relation": relation, "dataset": f"set <{k}>", "epsilon": epsilon}
                    row |= {"n": 10 ** (k + 2), "minority": 10 ** (k + 1), "features": 5}
                    row |= {"auc": [0.5, 0.6, 0.9, 0.7][place], "balanced_accuracy": 0.9 - place / 10}
                    rows.append(row | {f"{s}{end}": row[s] + off for s in SCORES for end, off in ENDS.items()})
    return pd.DataFrame(rows)


ENDS = {"_low": -0.1, "_high": 0.05}
ASKED = {"n": 9000, "minority": 1100, "features": 5, "epsilon": 0.7, "relation": "add/remove", "score": "auc"}


def test_nearest_sets_and_their_best_methods():
    found = nearest(settings(), **ASKED)
    assert list(dict.fromkeys(found.dataset)) == ["set <2>", "set <1>", "set <3>"]
    assert list(found.method) == ["c", "d", "b"] * 3
    assert set(found.epsilon) == {1.0}
    assert set(found.relation) == {"add/remove"}
    decided = nearest(settings(), **ASKED | {"score": "balanced_accuracy", "epsilon": 0.2})
    assert list(decided.method) == ["a", "b", "c"] * 3
    assert set(decided.epsilon) == {0.1}


FIRST = {"n": 2000, "minority": 100, "features": 10, "epsilon": 1.0}


def chooser(caption: str = "Sizes.") -> Chooser:
    return Chooser(settings(), caption, **FIRST)


def test_the_first_answer_stands_there_without_a_script():
    page = chooser("Sizes </script>.")._repr_html_()
    assert "<form hidden>" in page
    first = re.findall(r"<tr>\s*<td>(.*?)</td>\s*<td>(.*?)</td>\s*<td>(.*?)</td>\s*<td>(.*?)</td>", page)
    assert first[0] == ("set &lt;1&gt; (n 1000, rare 100, d 5)", "a", "0.90", "0.80 to 0.95")
    assert len(first) == 9
    assert [row.split()[-5:] for row in repr(chooser()).splitlines()[1:3]] == [
        ["a", "0.90", "0.80", "to", "0.95"],
        ["b", "0.80", "0.70", "to", "0.85"],
    ]


def test_nothing_is_fetched_and_all_settings_are_inside():
    page = chooser()._repr_html_()
    assert not re.search(r"https?:|src=|href=|fetch\(|import", page)
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])
    assert len(data["rows"]) == len(settings())
    assert data["sets"][2] == ["set <2>", 10_000, 1000, 5]
    assert data["rows"][0] == [0, 0, 0, 0.1, 0.5, 0.4, 0.55, 0.9, 0.8, 0.95]


@pytest.mark.browser
def test_the_form_answers_as_python_does(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body>{chooser()._repr_html_()}")
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(file.as_uri())
    for changes in ({}, {"n": 150, "minority": 20}, {"epsilon": 0.2}, {"score": "balanced_accuracy"}):
        asked = ASKED | changes
        for name in ("n", "minority", "features", "epsilon"):
            page.locator(f"input[name={name}]").fill(str(asked[name]))
        for name in ("relation", "score"):
            page.locator(f"select[name={name}]").select_option(asked[name])
        expected = nearest(settings(), **asked)
        lines = page.locator("tbody tr").all()
        assert len(lines) == len(expected)
        for line, (_, row) in zip(lines, expected.iterrows(), strict=True):
            cells = line.locator("td").all_inner_texts()
            low, high = (f"{row[asked['score'] + end]:.2f}" for end in ("_low", "_high"))
            assert cells[1:] == [row.method, f"{row[asked['score']]:.2f}", f"{low} to {high}"]
    page.locator("input[name=n]").fill("0")
    assert "must be" in page.locator("output").inner_text()
    page.close()
