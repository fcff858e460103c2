"""What stales a chapter and a recorded result: what is computed, never words."""

import json
import subprocess
import sys

import pytest

from helpers import book, paths, sources
from helpers.book import chapters, freshness, results

CELL = "from helpers import used\nfrom helpers import book\nbook.keep(used.f(), 'mine')"
USED = (
    '"""Words."""\nfrom helpers.room import deeper\n\n\ndef f(x):\n    """Words."""\n    return deeper.g(x)  # words\n'
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small package with tables, results and pins."""
    for name in ("ROOT", "REFERENCE", "RESULTS"):
        monkeypatch.setattr(paths, name, tmp_path / {"ROOT": "", "REFERENCE": "reference", "RESULTS": "results"}[name])
    write(tmp_path, "helpers/__init__.py", '__version__ = "1"\n')
    write(tmp_path, "helpers/used.py", USED)
    write(tmp_path, "helpers/room/__init__.py", "from helpers.room.eager import a\n")
    write(tmp_path, "helpers/room/eager.py", "a = 1\n")
    write(tmp_path, "helpers/room/deeper.py", "def g(x):\n    from helpers.room import lazy\n    return lazy.h(x)\n")
    write(tmp_path, "helpers/room/lazy.py", "def h(x):\n    return x\n")
    write(tmp_path, "helpers/room/alone.py", "z = 1\n")
    write(tmp_path, "helpers/unused.py", "y = 1\n")
    write(tmp_path, "checks/__init__.py", "")
    write(tmp_path, "checks/chapter.py", "from helpers import unused\n")
    write(tmp_path, "helpers/book/__init__.py", "from helpers.book import display, results\n")
    write(tmp_path, "helpers/book/display.py", "d = 1\n")
    write(tmp_path, "helpers/book/results.py", "r = 1\n")
    write(tmp_path, "reference/tables/one.csv", "a\n1\n")
    write(tmp_path, "reference/tables/two.csv", "a\n2\n")
    write(tmp_path, "constraints.txt", "# pins\nnumpy==1\nscipy==1\n")
    for name in ("mine-a", "mine-b", "other"):
        write(tmp_path, f"results/{name}.csv", "x\n1\n")
        write(
            tmp_path,
            f"results/{name}.json",
            '{"chapter": "mine", "parameters": {}, "seconds": 1, "cores": 2, "date": "2026-01-01"}',
        )
    return tmp_path


def write(folder, name, text):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def changed(project, cells, name, text, of=freshness.of_outputs):
    before = of(cells)
    write(project, name, text)
    return freshness.changed(before, of(cells))


def test_reach_follows_imports_through_packages_and_functions(project):
    assert sources.reached([CELL]) == [
        *("helpers", "helpers.book", "helpers.book.display", "helpers.book.results", "helpers.room"),
        *("helpers.room.deeper", "helpers.room.eager", "helpers.room.lazy", "helpers.used"),
    ]
    assert sources.reached(["import helpers.room.alone as z"]) == [
        *("helpers", "helpers.room", "helpers.room.alone", "helpers.room.eager")
    ]
    write(project, "helpers/room/near.py", "from . import lazy\nfrom .alone import z\nfrom .. import unused\n")
    assert sources.reached(["from helpers.room import near"])[-3:] == [
        *("helpers.room.lazy", "helpers.room.near", "helpers.unused")
    ]


def test_what_verdicts_need_counts_as_the_package_does(project):
    cells = ["from checks import chapter"]
    assert sources.reached(cells) == ["checks", "checks.chapter", "helpers", "helpers.unused"]
    assert changed(project, cells, "checks/chapter.py", "from helpers import unused\nx = 1\n") == ["checks.chapter"]
    assert changed(project, cells, "helpers/unused.py", "y = 2\n") == ["helpers.unused"]


@pytest.mark.parametrize(
    ("name", "text", "stale"),
    [
        ("helpers/used.py", USED.replace("Words", "Other words").replace("# words", ""), False),
        ("helpers/used.py", USED.replace("\n\n\n", "\n").replace("deeper.g(x)", "(\n        deeper.g(\n x))"), False),
        ("helpers/used.py", USED.replace('    """Words."""\n', ""), False),
        ("helpers/used.py", USED.replace("g(x)", "g(-x)"), True),
        ("helpers/used.py", USED.replace("f(x)", "f(x=1)"), True),
        ("helpers/used.py", USED + "f.__name__ = 'words'\n", True),
        ("helpers/room/lazy.py", "def h(x):\n    return 2 * x\n", True),
        ("helpers/room/eager.py", "a = 2\n", True),
        ("helpers/room/eager.py", "a = 1\n'''Of an attribute.'''\n", False),
        ("helpers/room/alone.py", "z = 2\n", False),
        ("helpers/unused.py", "y = 2\n", False),
        ("helpers/__init__.py", '"""Words."""\n__version__ = "2"\n', False),
        ("constraints.txt", "scipy==1  # why\n\nnumpy==1\n", False),
        ("constraints.txt", "numpy==2\nscipy==1\n", True),
    ],
)
def test_code_and_pins_stale_and_words_do_not(project, name, text, stale):
    part = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") if name != "constraints.txt" else name
    before = {of: of([CELL]) for of in (freshness.of_outputs, freshness.of_tables)}
    write(project, name, text)
    for of, parts in before.items():
        assert freshness.changed(parts, of([CELL])) == ([part] if stale else [])


@pytest.mark.parametrize(
    ("cells", "same"),
    [
        (["x = 1  # a word\n\n\n", "x"], True),
        (["# only words", "x = 1", "x"], True),
        (["x  =  (1)", "x"], True),
        (["def f():\n    'words'\nx = 1", "x"], False),
        (["x = 2", "x"], False),
        (["x = 1", "x;"], False),
        (["x = 1\nx"], False),
        (["x", "x = 1"], False),
        (["x = 1", "x", "'shown'"], False),
    ],
)
def test_cells_count_by_what_they_do(cells, same):
    assert (sources.cells_digest(cells) == sources.cells_digest(["x = 1", "x"])) == same


def test_printed_tables_count_where_they_are_shown(project):
    one, some, every = ([f"book.reference_table({name})"] for name in ("'one'", "f't{number}'", "name"))
    for cells, expected in ((one, []), (some, ["two"]), (every, ["two"])):
        write(project, "reference/tables/two.csv", "a\n2\n")
        found = changed(project, cells, "reference/tables/two.csv", "a\n3\n")
        assert found == [f"reference/tables/{name}.csv" for name in expected]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("book.recorded('mine-a')", {"mine-a"}),
        ("frame, label = recorded(name='mine-a')", {"mine-a"}),
        ("for x in 'ab':\n    book.recorded(f'mine-{x}')", {"mine-a", "mine-b"}),
        ("for name in book.recorded_names('mine-*'):\n    book.recorded(name)", {"mine-a", "mine-b"}),
        ("book.recorded(name)", {"mine-a", "mine-b", "other"}),
        ("recorded = 1", set()),
    ],
)
def test_recorded_results_count_where_they_are_shown(project, cell, shown):
    for name in ("mine-a", "mine-b", "other"):
        found = changed(project, [cell], f"results/{name}.csv", f"x\n{name}\n")
        assert found == ([f"results/{name}"] if name in shown else [])
        assert freshness.of_tables([cell]).keys() == {"code cells", "constraints.txt"}


def test_the_label_of_a_result_counts_and_its_other_provenance_does_not(project):
    cells = ["book.recorded('other')"]
    entry = {"chapter": "mine", "parameters": {}, "seconds": 1, "cores": 2, "date": "2026-01-01"}
    assert changed(project, cells, "results/other.json", json.dumps(entry | {"commit": "x"})) == []
    assert changed(project, cells, "results/other.json", json.dumps(entry | {"seconds": 2})) == ["results/other"]


def test_tables_depend_on_no_drawing_and_on_no_later_cell(project):
    before = freshness.of_tables([CELL, "plot()"])
    write(project, "helpers/book/display.py", "d = 2\n")
    assert freshness.of_tables([CELL, "other_plot()", "from helpers import unused"]) == before
    assert freshness.of_tables(["plot()", CELL]) != before
    write(project, "helpers/book/results.py", "r = 2\n")
    assert freshness.changed(before, freshness.of_tables([CELL])) == ["helpers.book.results"]


def test_names_of_kept_tables_are_known_beforehand():
    cells = ["book.keep(a, 'x')\nkeep(b, name=f'y-{dataset}-z')", "book.keep(a, 'x')\nbook.keep(c, f'{w:>3}')"]
    assert freshness.kept_names(cells, {"dataset": "abalone"}) == ["x", "y-abalone-z", "*"]
    assert freshness.kept_names(["house.keeper(1)"], {}) == []


def test_libraries_are_found_through_the_package(project):
    assert not sources.imports("torch", [CELL])
    write(project, "helpers/room/lazy.py", "def h(x):\n    import torch.nn\n")
    assert sources.imports("torch", [CELL])


# The book itself


def test_every_reached_module_of_a_chapter_is_loaded_by_it():
    """Nothing that a chapter loads from the package is missed."""
    cells = ["from helpers import book, data, erm\nfrom helpers.meta import bagging\nbook.Table, erm.ERMClassifier"]
    code = "import sys\n" + cells[0] + "\nprint(*(name for name in sys.modules if name.split('.')[0] == 'helpers'))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=paths.ROOT).split()
    assert set(loaded) <= set(sources.reached(cells))


def test_an_edited_result_stales_the_chapters_that_show_it(tmp_path, monkeypatch):
    code = chapters.chapter("oversampling").code
    before = freshness.of_outputs(code)
    names = {name.removeprefix("results/") for name in before if name.startswith("results/")}
    assert names == set(book.recorded_names("oversampling-*"))
    assert names
    for name in names:
        content, provenance = results.read(name)
        write(tmp_path, f"{name}.json", json.dumps(provenance))
        (tmp_path / f"{name}.csv").write_bytes(content)
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    assert freshness.of_outputs(code) == before
    (tmp_path / "oversampling-audit.csv").write_bytes(content + b"\n")
    assert freshness.changed(before, freshness.of_outputs(code)) == ["results/oversampling-audit"]
