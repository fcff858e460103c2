"""What was spent on a table: a file beside its schema, with a line for each fit, written before a record is read.

What a fit has begun counts as spent, whatever becomes of it: a release cannot be taken back. Fits that were made in
other ways, or by a schema elsewhere, are not known here.
"""

import fcntl
import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from helpers.privacy import RELATION_NAMES, REPLACE_ONE, Guarantee, compose

_RELATIONS = {name: relation for relation, name in RELATION_NAMES.items()}


def beside(schema: Path) -> Path:
    """Where it is noted what was spent by a schema.

    >>> beside(Path("data/my.schema.yaml")).as_posix()
    'data/my.budget.jsonl'
    """
    return schema.with_name(schema.name.removesuffix(".yaml").removesuffix(".schema") + ".budget.jsonl")


def total(spent: Iterable[Guarantee]) -> Guarantee:
    """What several fits promise together, by basic composition: under replace-one where one of them is, and for single
    records where one of them is.

    >>> print(total([Guarantee(1.0, 1e-6, REPLACE_ONE), Guarantee(0.5, 1e-6, REPLACE_ONE)]))
    (1.5, 2e-06)-DP, replace-one
    """
    parts = list(spent)
    if any(each.neighbouring is REPLACE_ONE for each in parts):
        parts = [each if each.neighbouring is REPLACE_ONE else each.under_replace_one() for each in parts]
    unit = "person" if all(each.unit == "person" for each in parts) else "record"
    return compose([Guarantee(each.epsilon, each.delta, each.neighbouring, unit=unit) for each in parts])


def begin(file: Path, promised: Guarantee, most: float | None = None) -> list[Guarantee]:
    """Note that a fit begins; returns all that was begun, this fit too.

    Two that begin at once wait for each other, so that together they cannot exceed a total either.

    Parameters
    ----------
    file : Path
    promised : Guarantee
        Of this fit.
    most : float, optional
        The epsilon that all fits together may cost.

    Raises
    ------
    ValueError
        Together with this fit more would be spent; or the file holds what is no note of a fit.
    OSError
        The file cannot be written.
    """
    with file.open("ab+", buffering=0) as notes:
        fcntl.flock(notes, fcntl.LOCK_EX)
        notes.seek(0)
        spent = [*(_read(file, number, line) for number, line in enumerate(notes, 1)), promised]
        together = total(spent)
        if most is not None and together.epsilon > most:
            before = total(spent[:-1]).epsilon if spent[1:] else 0.0
            raise ValueError(
                f"epsilon must be at most {max(most - before, 0.0):g}, what earlier fits have left of the budget of "
                f"{most:g} ({before:g} is noted in {file.name}), got {promised.epsilon:g}"
            )
        note = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "epsilon": promised.epsilon,
            "delta": promised.delta,
            "neighbouring": RELATION_NAMES[promised.neighbouring],
            "unit": promised.unit,
        }
        size = notes.seek(0, os.SEEK_END)
        try:
            notes.write(json.dumps(note).encode() + b"\n")
            os.fsync(notes.fileno())
        except OSError:
            notes.truncate(size)  # of a full disk: half a note would be none
            raise
    return spent


def _read(file: Path, number: int, line: bytes) -> Guarantee:
    """The promise that one line notes."""
    try:
        note = json.loads(line)
        relation = _RELATIONS[note["neighbouring"]]
        return Guarantee(note["epsilon"], note["delta"], relation, unit=note["unit"])
    except (ValueError, KeyError, TypeError, RecursionError):
        reason = f"{file.name} must hold a note of a fit in every line, got something else in line {number}"
        raise ValueError(reason) from None
