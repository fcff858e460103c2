"""No rank, best-of or count takes in a method whose guarantee does not hold, in any table of the chapters that rank.

The chapters are executed twice from the recorded trials: as they are, and with every method whose guarantee is false
given perfect scores. All tables have to be the same, but for rows that say "as printed" or "as wrapped".
"""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from checks import benchmark, claims, which_method
from helpers import book
from helpers.book import chapters
from helpers.book.results import recorded
from helpers.study import experiments

BROKEN = [name for name, entry in benchmark.PIPELINES.items() if not entry.guarantee_holds]
SAID = "as printed|as wrapped"
SCORES = [*benchmark.MEASURES, "pr_auc", "ap", "auc_low", "auc_high", "balanced_accuracy_low", "balanced_accuracy_high"]


def tables(name, monkeypatch, fresh, *, perfect):
    """All tables that a chapter shows, and all rows of its form, by their names.

    `fresh` keeps the trials that the page runs itself, which are the same whatever was recorded.
    """
    shown, run = {}, experiments.run

    def read(table):
        frame, label = recorded(table)
        if perfect and "method" in frame:
            broken = [*BROKEN, *which_method.refuted(recorded("audit-libraries")[0])]
            frame.loc[frame.method.isin(broken), frame.columns.intersection(SCORES)] = 1.0
        return frame, label

    def once(trial, cells, *, name, **options):
        key = name, len(cells), str(cells[0])
        if key not in fresh:
            fresh[key] = run(trial, cells, name=name, **options)
        return fresh[key].copy()

    def form(settings, *arguments, **asked):
        shown["form"] = settings

    with monkeypatch.context() as patched:
        patched.setattr(book, "recorded", read)
        patched.setattr(book, "Table", lambda frame, caption, table, **options: shown.update({table: frame}))
        patched.setattr(book, "glue", lambda texts={}, **named: shown.update(texts | named))
        patched.setattr(experiments, "run", once)
        patched.setattr(which_method, "Chooser", form)
        patched.setattr(claims, "check", lambda *arguments, **evidence: None)
        patched.setattr(plt, "show", lambda: plt.close("all"))
        names = {}
        for cell in chapters.chapter(name).notebook.cells:
            if cell.cell_type == "code":
                exec(cell.source, names)
    return shown


def test_the_registry_and_the_audits_name_some_methods_without_a_guarantee():
    assert {name.rpartition(", ")[2] for name in BROKEN if "wrapped" not in name} == {"as printed"}
    assert not benchmark.labelled(pd.DataFrame({"method": BROKEN})).guarantee_holds.any()
    assert which_method.refuted(recorded("audit-libraries")[0])


@pytest.mark.parametrize("name", ["benchmark", "app-benchmark", "which-method", "app-which-method"])
def test_a_broken_promise_changes_no_rank_best_or_count(name, monkeypatch):
    fresh = {}
    honest, poisoned = (tables(name, monkeypatch, fresh, perfect=perfect) for perfect in (False, True))
    assert honest.keys() == poisoned.keys()
    for key, frame in honest.items():
        if not isinstance(frame, pd.DataFrame):
            assert str(frame) == str(poisoned[key]) or not isinstance(frame, str), key
            continue
        rows = [one.reset_index() for one in (frame, poisoned[key])]
        kept = [one[~one.astype(str).apply(lambda row: row.str.contains(SAID)).any(axis=1)] for one in rows]
        columns = [column for column in kept[0] if "seconds" not in str(column)]
        pd.testing.assert_frame_equal(*(one[columns] for one in kept), check_exact=False, rtol=1e-9)
