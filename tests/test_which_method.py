"""The short list and its private choice, rules on sets left out, and the form for a reader's sizes."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from checks import which_method
from checks.which_method import CHOICE, MOMENTS, OFFSET, SHORT_LIST, Chooser, nearest
from helpers import data
from helpers.book import chapters, recorded
from helpers.privacy import REPLACE_ONE

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


# ------------------------------------------------------------------------------------------------ the short list


def mixture(seed=0):
    return data.split(data.load("gaussian_mixture"), 0.3, seed)


@pytest.mark.parametrize("method", [*SHORT_LIST, CHOICE])
def test_each_method_keeps_to_the_same_budget_and_relation(method):
    train, test = mixture()
    learnt = which_method.learn(method, train, 2.0, 0)
    found = learnt.guarantee
    assert found.neighbouring is REPLACE_ONE
    assert found.epsilon <= 2.0 * (1 + 1e-9)
    assert found.delta == pytest.approx(train.n**-2.0)
    assert learnt.of(test.X).shape == test.y.shape


def test_the_recipe_of_the_chapter_is_the_method_that_was_compared():
    """The visible code, at a budget, against `learn`, whose trials are recorded."""
    page = chapters.chapter("app-which-method").notebook
    [code] = [cell.source for cell in page.cells if cell.source.startswith("def recipe(")]
    train, test = mixture()
    from helpers.data import Domain
    from helpers.erm import PrivateMomentClassifier

    names = {"Domain": Domain, "PrivateMomentClassifier": PrivateMomentClassifier, "epsilon": 1.0}
    exec(code, names)
    scores = names["recipe"](train, 0).decision_function(test.X)
    assert scores.tolist() == which_method.learn(MOMENTS, train, 1.0, 0).of(test.X).tolist()


def test_rows_that_the_schema_does_not_allow_are_read_one_by_one():
    names = ("size", "colour=red", "colour=blue")
    schema = data.Dataset("toy", np.empty((0, 3)), np.empty(0, int), names, np.array([[0, 5], [0, 1], [0, 1]]))
    rows = np.array([[1.0, 0, 0], [2.0, 0, 1], [9.0, 1, 1]])
    read = which_method._Candidate(schema)._read(rows)
    assert read.tolist() == [[1, 1, 0], [2, 0, 1], [9, 1, 0]]
    assert rows[0].tolist() == [1, 0, 0]


def test_the_choice_takes_what_decides_better_when_the_budget_is_large():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 1))
    y = (rng.random(4000) < np.where(abs(X[:, 0]) > 0.8, 0.3, 0.0)).astype(int)  # both ends: no line tells them
    train = data.Dataset("ends", X, y, ("x",), np.array([[-1.0, 1.0]]), "a simulation")
    search = which_method.private_choice(train, 20.0, 0, delta=1e-6, methods=(OFFSET, MOMENTS)).fit(train.X, train.y)
    assert search.best_params_ == {"method": MOMENTS}


# ------------------------------------------------------------------------------------------------------- the rules


def test_a_cut_has_the_fewest_mistakes_of_all():
    rng = np.random.default_rng(1)
    for _ in range(20):
        sizes, good = rng.integers(1, 9, 12).astype(float), rng.random(12) < 0.5
        found = which_method.cut(sizes, good)
        tried = [((sizes >= one) != good).sum() for one in (*np.arange(0.5, 10), np.inf)]
        assert ((sizes >= found) != good).sum() == min(tried)


def test_a_set_that_is_left_out_is_called_by_the_others():
    frame = pd.DataFrame({"dataset": list("aabbcc"), "size": [1.0, 8.0, 2.0, 9.0, 1.5, 7.0]})
    good = frame["size"] > 5
    assert which_method.left_out_errors(frame, "size", good).tolist() == [0, 0, 0]
    # A set on which small is good: the others call it wrongly both times, and it spoils none of theirs.
    assert which_method.left_out_errors(frame, "size", good ^ (frame.dataset == "c")).to_dict()["c"] == 2


def test_whole_sets_are_drawn():
    frame = pd.DataFrame({"dataset": list("aaabc"), "value": [1.0, 1.0, 1.0, 0.0, 0.0]})
    sizes = which_method.over_sets(frame, len, n_draws=200)
    assert set(sizes) <= {3, 5, 7, 9}
    assert sizes.mean() == pytest.approx(5, abs=0.5)
    assert (which_method.over_sets(frame, lambda part: part.value.sum() % 3, n_draws=50) == 0).all()


def test_libraries_whose_guarantee_was_refuted_are_known_by_the_audits():
    found = which_method.refuted(recorded("audit-libraries")[0])
    assert "diffprivlib GNB" in found
    assert "Opacus LR" not in found
