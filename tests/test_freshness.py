"""What stales a chapter and a recorded result: what is computed, never words."""

import ast
import hashlib
import json
import re
import subprocess
import sys

import pandas as pd
import pytest

from helpers import book, data, paths, sources
from helpers.book import chapters, freshness, plan, results, slices

CELL = "from helpers import used\nfrom helpers import book\nbook.keep(used.f(), 'mine')"
USED = (
    '"""Words."""\nfrom helpers.room import deeper\n\n\ndef f(x):\n    """Words."""\n    return deeper.g(x)  # words\n'
)


ENTRY = {"chapter": "mine", "parameters": {}, "seconds": 1, "cores": 2, "date": "2026-01-01"}
ENTRY |= {"sha256": hashlib.sha256(b"x\n1\n").hexdigest()}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small package with tables, results and pins."""
    for name in ("ROOT", "REFERENCE", "RESULTS"):
        monkeypatch.setattr(paths, name, tmp_path / {"ROOT": "", "REFERENCE": "reference", "RESULTS": "results"}[name])
    write(tmp_path, "helpers/__init__.py", '__version__ = "1"\n')
    write(tmp_path, "helpers/used.py", USED)
    write(tmp_path, "helpers/room/__init__.py", "from helpers.room.eager import a\n")
    write(tmp_path, "helpers/room/eager.py", "a = 1\nprint(a)\n")
    write(tmp_path, "helpers/room/deeper.py", "def g(x):\n    from helpers.room import lazy\n    return lazy.h(x)\n")
    write(tmp_path, "helpers/room/lazy.py", "def h(x):\n    return x\n")
    write(tmp_path, "helpers/room/alone.py", "z = 1\n")
    write(tmp_path, "helpers/unused.py", "y = 1\n")
    write(tmp_path, "checks/__init__.py", "")
    write(tmp_path, "checks/chapter.py", "from helpers import unused\n\nfound = unused.y\n")
    write(
        tmp_path,
        "helpers/book/__init__.py",
        "from helpers.book.results import keep\nfrom helpers.book import display\n",
    )
    write(tmp_path, "helpers/book/display.py", "d = print(1)\nd.x = 1\n")
    write(tmp_path, "helpers/book/results.py", "def keep(frame, name):\n    return 1\n")
    write(tmp_path, "reference/tables/one.csv", "a\n1\n")
    write(tmp_path, "reference/tables/two.csv", "a\n2\n")
    write(tmp_path, "constraints.txt", "# pins\nnumpy==1\nscipy==1\n")
    for name in ("mine-a", "mine-b", "other"):
        write(tmp_path, f"results/{name}.csv", "x\n1\n")
        write(
            tmp_path,
            f"results/{name}.json",
            json.dumps(ENTRY),
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
    assert sorted(sources.definitions([CELL])) == [
        *("helpers", "helpers.book", "helpers.book.display", "helpers.book.results", "helpers.room"),
        *("helpers.room.deeper", "helpers.room.eager", "helpers.room.lazy", "helpers.used"),
    ]
    assert sorted(sources.definitions(["import helpers.room.alone as z"])) == [
        *("helpers", "helpers.room", "helpers.room.alone", "helpers.room.eager")
    ]


def test_what_verdicts_need_counts_as_the_package_does(project):
    cells = ["from checks import chapter\nchapter.found"]
    assert sorted(sources.definitions(cells)) == ["checks", "checks.chapter", "helpers", "helpers.unused"]
    changed_text = "from helpers import unused\n\nfound = unused.y + 1\n"
    assert changed(project, cells, "checks/chapter.py", changed_text) == ["checks.chapter"]
    assert changed(project, cells, "helpers/unused.py", "y = 2\n") == ["helpers.unused"]


# One module `m` of a synthetic package (and what else it needs), what a cell does with it, and the definitions of `m`
# that this reaches, "" for its statements. All others must not count.
REACH = {
    "a function and what it calls": ("def f(): return g()\ndef g(): return c\nc = 1\nd = 2", "m.f()", "f g c"),
    "a name of the cell's own": ("def f(): pass\ndef g(): pass", "from helpers.m import f as g\ng()", "f"),
    "a whole class with its bases": (
        "class A(B):\n    def one(self): return f()\nclass B:\n    def two(self): return g()\n"
        "def f(): pass\ndef g(): pass\nclass C:\n    def two(self): pass",
        "m.A().one()",
        "A B f g",
    ),
    "a method of an unknown object": (
        "class A:\n    def do(self): return f()\ndef make(): return A()\ndef run(x): return x.do()\ndef f(): pass",
        "m.run(m.make())",
        "make run A f",
    ),
    "a constant that holds functions": ("def f(): pass\ndef g(): pass\nall_ = {'f': f}", "m.all_[name]()", "all_ f"),
    "a registry that is filled by statements": ("r = {}\ndef f(): pass\nr['f'] = f\ndef g(): pass", "m.r", "'' r f"),
    "statements of a module that is only loaded": ("def f(): pass\nf.x = 1\ndef g(): pass", "", "'' f"),
    "a decorator from elsewhere": ("from functools import cache\n@cache\ndef f(): pass", "", ""),
    "a local name may be the module's": ("def f(g): return g()\ndef g(): pass\ndef h(): pass", "m.f(1)", "f g"),
    "a class body hides nothing from methods": (
        "class A:\n    g = 1\n    def one(self): return g()\ndef g(): pass",
        "m.A",
        "A g",
    ),
    "a global that is written": ("n = 0\ndef f():\n    global n\n    n += 1", "m.f()", "f n"),
    "a default and a decorator of a method": (
        "def d(f): return f\nclass A:\n    @d\n    def one(self, x=c): pass\nc = 1\ne = 2",
        "m.A",
        "A d c",
    ),
    "an annotation computes nothing": ("class A: pass\ndef f(x: A) -> A: pass", "m.f(1)", "f"),
    "getattr with a computed name": ("def f(): pass\ndef g(): pass", "getattr(m, name)()", "f g"),
    "a module that is passed on": ("def f(): pass\ndef g(): pass", "for part in [m]: part.f()", "f g"),
    "an import inside a function": (
        "def f():\n    from helpers import m\n    return m.g()\ndef g(): pass",
        "m.f()",
        "f g",
    ),
    "a definition under a condition": ("if print():\n    def f(): return g()\ndef g(): pass", "m.f()", "'' g"),
    "what only type checkers import": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from helpers.m import g\n"
        "def f(): pass\ndef g(): pass",
        "m.f(1)",
        "f",
    ),
}


@pytest.mark.parametrize("case", REACH)
def test_reach_goes_from_definition_to_definition(project, case):
    module, cell, expected = REACH[case]
    write(project, "helpers/m.py", module)
    found = sources.definitions(["import importlib\nfrom helpers import m", cell])["helpers.m"]
    assert {name for name in found if name not in {"cache", "TYPE_CHECKING"}} - {""} == {*expected.split()} - {"''"}
    assert ("helpers.m" in sources.parts(["from helpers import m", cell])) == bool(expected)
    if "''" in expected:
        before = sources.parts(["from helpers import m"])
        write(project, "helpers/m.py", module + "\nprint()")
        assert sources.parts(["from helpers import m"]) != before


def test_reach_goes_through_the_faces_of_rooms(project):
    """What a room re-exports stands for what it is; the rest does not count."""
    write(project, "helpers/hall/__init__.py", "from helpers.hall.one import f\nfrom helpers.hall.two import h\n")
    write(project, "helpers/hall/one.py", "def f(): return 1\ndef g(): return 2\n")
    write(project, "helpers/hall/two.py", "def h(): return 1\n")
    for cell in (
        "from helpers import hall\nhall.f()",
        "from helpers.hall import f\nf()",
        "import helpers.hall\nhelpers.hall.f()",
        "import helpers.hall.one as x\nx.f()",
    ):
        found = sources.definitions([cell])
        assert found["helpers.hall.one"] == {"", "f"}, cell
        assert found["helpers.hall.two"] == {""}, cell
    assert sources.definitions(["from helpers import hall\nprint(hall)"])["helpers.hall.two"] == {"", "h"}


def test_an_edit_stales_what_reaches_it_and_nothing_else(project):
    """Also an edit of what a name stands for, with both of them reached before and after."""
    write(project, "helpers/m.py", "from helpers.room.lazy import h as k\ndef f(): return k()\ndef g(): return 1\n")
    cells = {name: f"from helpers import m\nfrom helpers.room import lazy, alone\n{name}" for name in ("m.f", "m.g")}
    both = "\nlazy.h, alone.z"
    before = {name: sources.parts([cell + both]) for name, cell in cells.items()}
    write(project, "helpers/m.py", "from helpers.room.alone import z as k\ndef f(): return k()\ndef g(): return 1\n")
    changed = {name: sources.parts([cell + both]) != before[name] for name, cell in cells.items()}
    assert changed == {"m.f": True, "m.g": False}


@pytest.mark.parametrize(
    ("name", "text", "stale"),
    [
        ("helpers/used.py", USED.replace("Words", "Other words").replace("# words", ""), False),
        ("helpers/used.py", USED.replace("\n\n\n", "\n").replace("deeper.g(x)", "(\n        deeper.g(\n x))"), False),
        ("helpers/used.py", USED.replace('    """Words."""\n', ""), False),
        ("helpers/used.py", USED.replace("g(x)", "g(-x)"), True),
        ("helpers/used.py", USED.replace("f(x)", "f(x=1)"), True),
        ("helpers/used.py", USED + "f.__name__ = 'words'\n", True),
        ("helpers/used.py", USED + "def other(x):\n    return 1\n", False),
        ("helpers/room/lazy.py", "def h(x):\n    return 2 * x\n", True),
        ("helpers/room/eager.py", "a = 2\nprint(a)\n", True),
        ("helpers/room/eager.py", "a = 1\n'''Of an attribute.'''\nprint(a)\n", False),
        ("helpers/room/alone.py", "z = 2\n", False),
        ("helpers/unused.py", "y = 2\n", False),
        ("helpers/__init__.py", '"""Words."""\n__version__ = "2"\n', False),
        ("constraints.txt", "numpy==2\nscipy==1\n", False),  # no package is imported
    ],
)
def test_code_and_pins_stale_and_words_do_not(project, name, text, stale):
    part = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    before = freshness.of_outputs([CELL]), freshness.of_tables([CELL], {})
    write(project, name, text)
    assert freshness.changed(before[0], freshness.of_outputs([CELL])) == ([part] if stale else [])
    assert freshness.changed(before[1], freshness.of_tables([CELL], {})) == ([part] if stale else [])


def test_outputs_and_tables_depend_on_the_pins_of_what_they_import_and_on_no_others(project):
    cells = ["import numpy as np", "from helpers import book\nbook.keep(np.ones(3), 'mine')", "import pandas"]
    outputs, before = freshness.of_outputs(cells), freshness.of_tables(cells, {})
    assert before["constraints.txt: numpy"] == "1"
    write(project, "constraints.txt", "# pins\nscipy==2  # why\n\nnumpy==1\n")
    assert freshness.of_tables(cells, {}) == before
    assert freshness.of_outputs(cells) == outputs
    write(project, "constraints.txt", "scipy==2\nnumpy==1\npandas==2\n")  # shown with pandas, kept without
    assert freshness.of_tables(cells, {}) == before
    assert freshness.changed(outputs, freshness.of_outputs(cells)) == ["constraints.txt"]
    write(project, "constraints.txt", "numpy==2\nscipy==1\n")
    assert freshness.changed(before, freshness.of_tables(cells, {})) == ["constraints.txt: numpy"]
    assert freshness.changed(outputs, freshness.of_outputs(cells)) == ["constraints.txt"]
    write(project, "helpers/used.py", "import scikit_learn, sklearn\n" + USED)
    write(project, "constraints.txt", "numpy==2\nScikit_Learn==1\n")
    assert freshness.of_tables([*cells[:1], CELL], {})["constraints.txt: Scikit_Learn"] == "1"


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
        assert freshness.of_tables([cell], {}).keys() == {"code cells"}


def test_the_label_of_a_result_counts_and_its_other_provenance_does_not(project):
    cells = ["book.recorded('other')"]
    assert changed(project, cells, "results/other.json", json.dumps(ENTRY | {"commit": "x"})) == []
    assert changed(project, cells, "results/other.json", json.dumps(ENTRY | {"seconds": 2})) == ["results/other"]
    assert changed(project, cells, "results/other.json", "damaged") == ["results/other"]


def test_tables_depend_on_no_drawing_and_on_no_text_or_figure(project):
    before = freshness.of_tables([CELL, "plot()"], {})
    write(project, "helpers/book/display.py", "d = print(2)\nd.x = 2\n")
    assert freshness.of_tables([CELL, "other_plot()", "from helpers import unused"], {}) == before
    assert freshness.of_tables(["plot()", f"book.glue('a', 'b')\n{CELL}\nbook.Table(used.f(), 'Text.')"], {}) == before
    write(project, "helpers/book/results.py", "def keep(frame, name):\n    return 2\n")
    assert freshness.changed(before, freshness.of_tables([CELL], {})) == ["helpers.book.results"]


def test_a_parameter_that_the_run_sets_counts_by_its_value_alone(project):
    cells = ["n: int = 1\nm: int = 1", "from helpers import book\nbook.keep([n, m], 'mine')"]
    other = [cells[0].replace("n: int = 1", "n: int = 2"), cells[1]]
    assert freshness.of_tables(cells, {"n": 7}) == freshness.of_tables(other, {"n": 7})
    assert freshness.changed(freshness.of_tables(cells, {}), freshness.of_tables(other, {})) == ["code cells"]


def test_a_table_that_is_made_of_recorded_ones_depends_on_those_of_others(project):
    cells = ["from helpers import book\na, b = book.recorded('other'), book.recorded('mine-a')\nbook.keep(a, 'mine-a')"]
    before = freshness.of_tables(cells, {})
    assert [name for name in before if name.startswith("results/")] == ["results/other"]
    write(project, "results/other.json", "{}")  # where it comes from does not count
    assert freshness.of_tables(cells, {}) == before
    write(project, "results/other.csv", "x\n2\n")
    assert freshness.changed(before, freshness.of_tables(cells, {})) == ["results/other"]


SLICES = {
    "what is read, and what that reads": ("a = 1\nb = a + 1\nc = 3\nkeep(b, 'x')", "a = 1\nb = a + 1"),
    "what was bound before is replaced": ("a = draw()\na = 1\nkeep(a, 'x')", "a = 1"),
    "unless it may not be": ("a = 1\nif b:\n    a = 2\nkeep(a, 'x')", "a = 1\nif b:\n    a = 2"),
    "changes in place": (
        "a = []\na.append(1)\na[0] = 2\na.b = 3\na += [4]\nplot(a)\nkeep(a, 'x')",
        "a = []\na.append(1)\na[0] = 2\na.b = 3\na += [4]",
    ),
    "loops": (
        "a, b = ([], 2)\nfor one in draw():\n    ax.plot(one)\nfor one in range(b):\n    a.append(one)\nkeep(a, 'x')",
        "a, b = ([], 2)\nfor one in range(b):\n    a.append(one)",
    ),
    "what a loop leaves behind": ("for a in draw():\n    plot(a)\nkeep(a, 'x')", "for a in draw():\n    plot(a)"),
    "what functions read, whenever it is bound": (
        "def f(x):\n    y = 1\n    return x + y + late\nx = y = 5\nlate = 2\nkeep(f(1), 'x')",
        "def f(x):\n    y = 1\n    return x + y + late\nlate = 2",
    ),
    "names of comprehensions are their own": ("x = 1\ny = 2\nkeep([x + y for x in range(3)], 'x')", "y = 2"),
    "a function that keeps": ("def f(t):\n    keep(t, 'x')\nb = 1\nc = 2\nf(b)", "def f(t):\n    keep(t, 'x')\nb = 1"),
    "settings of a module": ("import m, n\nm.seed(1)\nn.seed(1)\nkeep(m.draw(), 'x')", "import m, n\nm.seed(1)"),
    "what only shows": (
        "from helpers import book\nfrom checks import claims\nbook.glue('a')\nclaims.check('c')\nbook.keep(1, 'x')",
        "from helpers import book",
    ),
}


@pytest.mark.parametrize("case", SLICES)
def test_a_table_is_made_by_what_it_reads_and_what_changes_that(case):
    cell, expected = SLICES[case]
    [found] = slices.kept([cell])
    assert found.rpartition("\n")[0] == expected
    assert found.rpartition("\n")[2] == cell.splitlines()[-1].replace("draw(), 'x'", "draw(), 'x'")


def test_names_of_kept_tables_are_known_beforehand():
    cells = ["book.keep(a, 'x')\nkeep(b, name=f'y-{dataset}-z')", "book.keep(a, 'x')\nbook.keep(c, f'{w:>3}')"]
    assert freshness.kept_names(cells, {"dataset": "abalone"}) == ["x", "y-abalone-z", "*"]
    assert freshness.kept_names(["house.keeper(1)"], {}) == []


def test_libraries_are_found_through_the_package(project):
    write(project, "constraints.txt", "torch==1\n")
    assert sources.pins([CELL]) == {}
    write(project, "helpers/room/lazy.py", "def h(x):\n    import torch.nn\n")
    assert sources.pins([CELL]) == {"torch": "1"}


# The book itself


QUICK = ("random-copies", "threshold-bounds")


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(QUICK, id="quick ones"),
        *(pytest.param((one.name,), marks=pytest.mark.weekly, id=one.name) for one in chapters.chapters()),
    ],
)
def test_what_a_chapter_calls_is_what_it_reaches(names):
    """No definition that a run of a chapter calls is missed."""
    run = {name: chapters.chapter(name) for name in names}
    if missing := [one for chapter in run.values() for one in chapter.requires if not data.is_available(one)]:
        pytest.skip(f"not on this machine: {', '.join(missing)}")
    script = [sys.executable, paths.ROOT / "tests" / "called.py", *(chapter.path for chapter in run.values())]
    shown = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    for name, called in json.loads(shown.splitlines()[-1]).items():
        reached = sources.definitions(run[name].code)
        assert len(called) >= 10
        assert not [(module, one) for module, one in called if one not in reached.get(module, ())]


@pytest.mark.parametrize(
    "name",
    [
        "known-population",
        *(
            pytest.param(one.name, marks=pytest.mark.weekly)
            for one in chapters.chapters()
            if freshness.kept_names(one.code, {}) and one.name != "known-population"
        ),
    ],
)
def test_what_is_run_to_record_keeps_the_same_tables_as_the_chapter(tmp_path, name):
    """No statement is missed that a table is made by; only measured seconds differ from run to run."""
    chapter = chapters.chapter(name)
    if missing := [one for one in chapter.requires if not data.is_available(one)]:
        pytest.skip(f"not on this machine: {', '.join(missing)}")
    kept = []
    for only_tables in (True, False):
        chapter.run({}, tmp_path / str(only_tables), only_tables=only_tables)
        files = sorted((tmp_path / str(only_tables)).glob("*.csv"))
        kept.append({file.name: pd.read_csv(file) for file in files})
    assert kept[0]
    assert kept[0].keys() == kept[1].keys()
    for file, table in kept[0].items():
        timed = [column for column in table if "second" in column] or (
            ["mean", "std"] if file == "app-benchmark-cost.csv" else []
        )
        pd.testing.assert_frame_equal(table.drop(columns=timed), kept[1][file].drop(columns=timed), check_exact=True)


def texts():
    files = [file for package in sources.PACKAGES for file in (paths.ROOT / package).rglob("*.py")]
    found = {str(file.relative_to(paths.ROOT)): file.read_text() for file in files}
    return found | {chapter.name: "\n".join(chapter.code) for chapter in chapters.chapters()}


def test_nothing_is_reached_in_a_way_that_is_not_followed():
    """One exception loads modules and looks into none; the other looks into those that a user names, to audit them."""
    hidden = r"import_module|__import__|\b(globals|locals)\(|def __getattr__\(name|^ *from \.|import \*"
    found = {name for name, text in texts().items() if re.search(hidden, text, re.MULTILINE)}
    assert found == {"helpers/study/experiments.py", "helpers/privacy/audit/recorder.py"}


def test_no_decorator_at_the_top_of_a_module_is_the_project_s():
    """It would run when the module is loaded, and could hand out what it decorates under any name."""
    for name, text in texts().items():
        nodes = sources.parsed(text).body
        used = {ast.unparse(one) for node in nodes for one in getattr(node, "decorator_list", ())}
        project = [node for node in nodes if getattr(node, "module", "") and node.module.startswith(sources.PACKAGES)]
        own = {getattr(node, "name", "") for node in nodes} | {one.name for node in project for one in node.names}
        assert not {one.partition("(")[0].partition(".")[0] for one in used} & own, name


def test_every_reached_module_of_a_chapter_is_loaded_by_it():
    """Nothing that a chapter loads from the package is missed."""
    cells = ["from helpers import book, data, erm\nfrom helpers.meta import bagging\nbook.Table, erm.ERMClassifier"]
    code = "import sys\n" + cells[0] + "\nprint(*(name for name in sys.modules if name.split('.')[0] == 'helpers'))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=paths.ROOT).split()
    assert set(loaded) <= set(sources.definitions(cells))


def test_an_edited_result_stales_the_chapters_that_show_it(tmp_path, monkeypatch):
    code = chapters.chapter("oversampling").code
    before = freshness.of_outputs(code)
    names = {name.removeprefix("results/") for name in before if name.startswith("results/")}
    assert names == {*book.recorded_names("oversampling-*"), "paid-copies-tuned"}
    assert names
    for name in names:
        content, provenance = results.read(name)
        write(tmp_path, f"{name}.json", json.dumps(provenance))
        (tmp_path / f"{name}.csv").write_bytes(content)
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    assert freshness.of_outputs(code) == before
    (tmp_path / "oversampling-audit.csv").write_bytes(content + b"\n")
    assert freshness.changed(before, freshness.of_outputs(code)) == ["results/oversampling-audit"]


@pytest.mark.release
def test_every_table_is_recorded_from_the_code_as_it_is():
    """What a release has to hold; `dpbook record --all` makes it so."""
    parts = plan.parts()
    assert {str(part): part.stale() for part in parts if part.stale()} == {}
    assert [name for name in book.recorded_names() if not any(part.makes(name) for part in parts)] == []
