"""A parameters cell as values that are checked before anything runs.

The parameters cell holds lines of one pattern, `name: type = literal  # RANGE: meaning`, where RANGE is one of

    in [2, 200]          a number of the interval (a round bracket excludes an end, of real numbers only)
    in {a, b, c}         one of the names; with *.csv among them, also a table of the reader's own (`own_data`)
    each in (0, 50]      a non-empty list, every element of the interval; or of names, as above

Numbers have a range; booleans have none; text may have names. Values that fit only together are said on lines of
their own, `# requires: max(sizes) <= n_total`: comparisons of parameters and numbers, with + - * /, `and`, `or`, `not`,
`min`, `max` and `len`. All of it is checked before anything runs.

Named sets of values live in YAML files. Which notebook a cell belongs to, and running it, is left to `chapters`.
"""

import ast
import io
import math
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.book import strict_yaml
from helpers.validation import check_boolean, check_choice, check_integer, check_real

_TYPES = ("int", "float", "str", "bool", "list[float]", "list[int]", "list[str]")
# "in SET: meaning" or "each in SET: meaning", SET being names in braces or an interval; or a meaning alone.
_COMMENT = re.compile(r"(?:(?P<scope>in|each in) (?P<set>\{[^{}]+\}|[\[(][^\[\](){}]+[\])]): )?(?P<meaning>.+)")
_LONGEST = 1000  # characters of a value at the command line; Python's parser is not made for hostile text
_REQUIRES = "# requires:"
_TABLES = "*.csv"
_FUNCTIONS = {"min": min, "max": max, "len": len}


class ChapterError(ValueError):
    """A chapter or parameter that does not exist, or a value that is not allowed: nothing was run."""


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell.

    Attributes
    ----------
    name, type : str
        Python name, and one of int, float, str, bool, list[int], list[float], list[str].
    default : object
        The literal in the notebook.
    allowed : str
        The range as written (`in [2, 200]`), empty for booleans and free text.
    meaning : str
        One line for the reader.
    """

    name: str
    type: str
    default: Any
    allowed: str
    meaning: str

    def check(self, value: Any) -> Any:
        """Return `value` as this parameter's type.

        Raises
        ------
        ChapterError
            Wrong type or out of range; the message names parameter, value and what is allowed.
        """
        try:
            if not self.type.startswith("list"):
                return self._check_one(value)
            if not isinstance(value, list) or not value:
                raise ValueError(f"{self.name} must be a non-empty list, got {value!r}")
            return [self._check_one(item) for item in value]
        except ValueError as error:
            raise ChapterError(f"{error} ({self.type}, {self.allowed or 'any'})") from None

    def parse(self, text: str) -> Any:
        """`check` for a value typed at the command line (`[0.1, 1]` for a list, `true` or `false` for a boolean)."""
        if len(text) > _LONGEST:
            raise ChapterError(f"{self.name} must have at most {_LONGEST} characters here, got {len(text)}")
        if self.type == "str":
            return self.check(text)
        try:
            value = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
        except (ValueError, SyntaxError, RecursionError, MemoryError):  # of nested text, the last two, in some Pythons
            # The check below refuses it, in the words of the parameter's type.
            value = text
        return self.check(value)

    def _check_one(self, value: Any) -> Any:
        """A single value, or one item of a list, if the range allows it."""
        kind = self.type.removeprefix("list[").removesuffix("]")
        members = self.allowed.partition("in ")[2]
        if kind == "bool":
            return check_boolean(self.name, value)
        if kind == "str":
            if not isinstance(value, str):
                raise ValueError(f"{self.name} must be text, got {value!r}")
            names = [part.strip() for part in members[1:-1].split(",")]
            if _TABLES in names and value not in set(names) - {_TABLES}:
                from helpers.book import own_data  # loads pandas, which the command line does without while it can

                if own_data.names({self.name: value}):
                    return own_data.check(self.name, value)
            return check_choice(self.name, value, names) if members else value
        low, high, inclusive = _interval(members)
        if kind == "int":
            return check_integer(self.name, value, low=low, high=high)
        return check_real(self.name, value, low=low, high=high, inclusive=inclusive)


def _interval(text: str) -> tuple[Any, Any, str]:
    """An interval as low, high and the ends that belong to it: `[2, inf)` as (2, None, "low")."""
    numbers = [int(end) if re.fullmatch(r"\s*-?\d+\s*", end) else float(end) for end in text[1:-1].split(",")]
    low, high = (None if math.isinf(number) else number for number in numbers)
    if low is not None and high is not None and low > high:
        raise ValueError(f"the ends must be in order, got {text}")
    ends = {("[", "]"): "both", ("[", ")"): "low", ("(", "]"): "high", ("(", ")"): "neither"}
    return low, high, ends[text[0], text[-1]]


def read_cell(chapter_name: str, cell: str) -> list[Parameter]:
    """The parameters that a cell defines, in its order.

    Raises
    ------
    ChapterError
        A line that does not follow the pattern of this module's docstring, or a default that is not allowed.

    >>> [found] = read_cell("smote", "n: int = 5  # in [1, 9]: neighbours")
    >>> found.parse("7"), found.meaning
    (7, 'neighbours')
    """
    try:
        statements = ast.parse(cell).body
    except SyntaxError as error:
        raise ChapterError(f"chapter {chapter_name}: the parameters cell must be Python, got {error.text!r}") from None
    tokens = tokenize.generate_tokens(io.StringIO(cell).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    return [_parameter(chapter_name, node, comments.get(node.end_lineno or 0, "")) for node in statements]


def read_constraints(chapter_name: str, cell: str, parameters: dict[str, Parameter]) -> tuple[str, ...]:
    """What a cell requires of parameters together, as Python expressions.

    Raises
    ------
    ChapterError
        A line that is no expression of parameters, or that the defaults do not meet.
    """
    lines = [line for line in cell.splitlines() if re.match(r"\s*#\s*requires?\b", line, re.IGNORECASE)]
    for line in lines:
        if not line.startswith(_REQUIRES):
            raise ChapterError(f"chapter {chapter_name}: the line must start with '{_REQUIRES}', got {line!r}")
    found = tuple(line.removeprefix(_REQUIRES).strip() for line in lines)
    for text in found:
        require(chapter_name, text, {name: item.default for name, item in parameters.items()})
    return found


def require(chapter_name: str, text: str, values: dict[str, Any]) -> None:
    """Raise ChapterError unless the values, of all parameters, meet one of `read_constraints`."""
    try:
        holds = eval(text, {"__builtins__": {}}, _FUNCTIONS | values)  # the chapter's own code, as all of its cells
    except (SyntaxError, NameError, TypeError, ArithmeticError) as error:
        raise ChapterError(f"chapter {chapter_name}: {text} cannot be checked: {error}") from None
    if not holds:
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items() if re.search(rf"\b{name}\b", text))
        raise ChapterError(f"parameters of {chapter_name} must fit together, {text}, got {shown}")


def read_sets(file: Path) -> dict[str, dict[str, Any]]:
    """Named sets of values, as they stand in a YAML file.

    Raises
    ------
    ChapterError
        The file is not YAML, holds a name twice, or something else than named sets.
    """
    try:
        sets = strict_yaml.load(file) or {}
    except ValueError as error:
        raise ChapterError(f"params/{error}") from None
    # Each set is a mapping whose keys are texts, and so is the whole.
    mappings = [sets, *sets.values()] if isinstance(sets, dict) else [sets]
    if not all(isinstance(each, dict) and all(isinstance(name, str) for name in each) for each in mappings):
        raise ChapterError(f"params/{file.name} must hold named sets of parameters, each 'NAME: {{parameter: value}}'")
    return sets


def _parameter(chapter_name: str, node: ast.stmt, comment: str) -> Parameter:
    """The parameter of one line, its default checked like any other value."""
    where = f"chapter {chapter_name}, parameters cell, {ast.unparse(node)!r}"
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
        raise ChapterError(f"{where}: the line must be 'name: type = literal  # RANGE: meaning'")
    kind = ast.unparse(node.annotation)
    match = _COMMENT.fullmatch(comment)
    if kind not in _TYPES:
        raise ChapterError(f"{where}: type must be one of {', '.join(_TYPES)}, got {kind!r}")
    if not match:
        raise ChapterError(f"{where}: the line needs a comment that says what the parameter means")
    allowed = f"{match['scope']} {match['set']}" if match["scope"] else ""
    try:
        _check_range(kind, allowed, match["meaning"])
        parameter = Parameter(node.target.id, kind, ast.literal_eval(node.value), allowed, match["meaning"])
        parameter.check(parameter.default)
    except (TypeError, ValueError) as error:
        raise ChapterError(f"{where}: {error}") from None
    return parameter


def _check_range(kind: str, allowed: str, meaning: str) -> None:
    """Refuse a comment that would leave a parameter unchecked."""
    members = allowed.removeprefix("each ").removeprefix("in ")
    wants_names = "str" in kind
    if not allowed:
        if kind != "bool" and (kind != "str" or re.match(r"(each )?in\b", meaning)):
            pattern = f"{'each in' if 'list' in kind else 'in'} {'{a, b}' if wants_names else '[low, high]'}: meaning"
            raise ValueError(f"the comment must be '{pattern}', got {meaning!r}")
        return
    if kind == "bool" or allowed.startswith("each") != kind.startswith("list") or (members[0] == "{") != wants_names:
        raise ValueError(f"the range must fit the type {kind}, got {allowed!r}")
    if "int" in kind and re.search(r"\(|\d\)", allowed):
        raise ValueError(f"the range of integers must have square brackets, got {allowed!r}")
    if not wants_names:
        _interval(members)
