"""Tables that a benchmark keeps in results/, with the provenance that `dpbook record` writes beside a chapter's."""

import hashlib
import json
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

RESULTS = Path(__file__).parents[1] / "results"


def record(
    table: pd.DataFrame,
    name: str,
    parameters: Mapping[str, Any],
    seconds: float,
    *,
    chapter: str = "private-classifiers",
    **more: Any,
) -> None:
    """Write results/NAME.csv, and results/NAME.json with what the table was computed from and at what cost.

    Parameters
    ----------
    table : DataFrame
    name : str
    parameters : mapping
        Of the run, for JSON.
    seconds : float
        CPU seconds of all its fits, on one core and beside other work.
    chapter : str
        That shows it.
    more
        Further entries, for JSON.
    """
    content = table.to_csv(index=False).encode()
    provenance = {
        "chapter": chapter,
        "parameters": parameters,
        **more,
        "date": time.strftime("%Y-%m-%d"),
        "machine": "cpu, under load",
        "cores": 1,
        "python": platform.python_version(),
        "seconds": round(seconds),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (RESULTS / f"{name}.csv").write_bytes(content)
    (RESULTS / f"{name}.json").write_text(json.dumps(provenance, indent=1) + "\n")
