"""Data and a script inside a page: what the parts of a page that answer to the reader have in common."""

import json
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


def scripts(data: dict[str, Any], code: str) -> str:
    """Two elements: the data, as JSON, and the code that reads them.

    >>> scripts({"a": "</b>"}, "run()")
    '<script type="application/json">{"a":"<\\\\/b>"}</script><script>run()</script>'
    """
    # "</" would end the script element early, whatever the text it stands in.
    payload = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    return f'<script type="application/json">{payload}</script><script>{code}</script>'
