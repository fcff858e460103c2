"""Where the project's files live.

Every path is derived from the package's own location, so a notebook finds its reference tables and data whatever
folder it runs in. Only `$DPBOOK_DATA` is checked for existence: callers decide what a missing file means.
Downloading belongs to `helpers.data`.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
APPENDIX = BOOK / "appendix"
PARAMS = ROOT / "params"
REFERENCE = ROOT / "reference"
RESULTS = ROOT / "results"
RUNS = ROOT / "runs"


def data_folders() -> list[Path]:
    """Folders searched for data sets, first match wins.

    Returns
    -------
    list of Path
        `$DPBOOK_DATA` if set, `../shared/data` beside the project if it is there, then the user's cache folder, which
        is where downloads go.

    Raises
    ------
    ValueError
        `$DPBOOK_DATA` names no folder: a mistyped one would be passed over without a word.
    """
    override = os.environ.get("DPBOOK_DATA")
    if override and not Path(override).expanduser().is_dir():
        raise ValueError(f"DPBOOK_DATA must be a folder that exists, got {override!r}")
    chosen = [Path(override).expanduser()] if override else []
    shared = ROOT.parent / "shared" / "data"
    return [*chosen, *([shared] if shared.is_dir() else []), data_cache()]


def data_cache() -> Path:
    """The folder that downloads are kept in (`$XDG_CACHE_HOME/dpbook` or `~/.cache/dpbook`)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dpbook"
