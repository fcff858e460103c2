"""Run as a script, executes chapters and prints which definitions of the project each really calls, as JSON.

What runs while a module is imported is left out: of that, only statements count (see `helpers.sources`).
"""

import ast
import importlib
import json
import os
import sys
import threading
from functools import cache
from pathlib import Path

from helpers import paths, sources

FOLDERS = tuple(str(paths.ROOT / package) + os.sep for package in sources.PACKAGES)


@cache
def definitions(file: str) -> list[tuple[range, str]]:
    """Lines of each top-level statement of a file, and the name that it defines."""
    found = []
    for node in ast.parse(Path(file).read_text()).body:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        name = getattr(node, "name", None) or getattr(targets[0], "id", "")
        found.append((range(first, node.end_lineno + 1), name))
    return found


def main(notebooks: list[Path]) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    called = set()

    def note(frame, event, argument):
        code = frame.f_code
        if code not in called and code.co_filename.startswith(FOLDERS):
            outer = frame
            while outer and not (outer.f_code.co_name == "<module>" and outer.f_code.co_filename.startswith(FOLDERS)):
                outer = outer.f_back
            if outer is None:
                called.add(code)

    shell = InteractiveShell.instance()
    found = {}
    for notebook in notebooks:
        cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
        code = ["".join(cell["source"]) for cell in cells]
        for name in sources.definitions(code):
            importlib.import_module(name)  # untraced, which is three times as fast
        called.clear()
        shell.reset()
        os.chdir(notebook.parent)
        threading.settrace(note)
        sys.settrace(note)
        for cell in code:
            shell.run_cell(cell).raise_error()
        sys.settrace(None)
        found[notebook.stem] = sorted(map(definition, called))
    print("\n" + json.dumps(found))


def definition(code) -> tuple[str, str]:
    """Module and top-level name that a code object belongs to."""
    module = ".".join(Path(code.co_filename).relative_to(paths.ROOT).with_suffix("").parts)
    [name] = [name for lines, name in definitions(code.co_filename) if code.co_firstlineno in lines]
    return module.removesuffix(".__init__"), name


if __name__ == "__main__":
    main([Path(file).resolve() for file in sys.argv[1:]])
