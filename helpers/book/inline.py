"""Data and a script inside a page: what the parts of a page that answer to the reader have in common."""

import json
from pathlib import Path
from typing import Any


def check_name(name: str) -> None:
    """Refuse a name that cannot be an element's id as it stands.

    Raises
    ------
    ValueError
        Other characters than letters, digits and hyphens, or none.
    """
    if not name or not name.replace("-", "").isalnum() or not name.isascii():
        raise ValueError(f"name must be letters, digits and hyphens, got {name!r}")


def scripts(data: dict[str, Any], name: str, **values: object) -> str:
    """Two elements: the data, as JSON, and the code that reads them, of `NAME.js` beside this file with its values."""
    # "</" would end the script element early, whatever the text it stands in.
    payload = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    code = Path(__file__).with_name(f"{name}.js").read_text(encoding="utf-8") % values
    return f'<script type="application/json">{payload}</script><script>{code}</script>'
