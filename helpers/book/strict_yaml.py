"""YAML as the project writes it: a key that stands twice in one mapping is an error, not a silent overwrite."""

from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen: list[Any] = []
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} stands twice", key.start_mark)
            seen.append(key.value)
        return super().construct_mapping(node, deep)


def load(file: Path) -> Any:
    """What a YAML file holds.

    Raises
    ------
    ValueError
        No such file, not YAML, not UTF-8, or a key twice in one mapping; one line that names the file and, where known,
        the line.
    """
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{file.name}, line {mark.line + 1}" if mark else file.name
        raise ValueError(f"{where}: {' '.join(str(error.problem).split())}") from None
    # A number of thousands of digits is a ValueError too, and so is a date that no calendar has.
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file.name}: not readable as YAML ({type(error).__name__})") from None
