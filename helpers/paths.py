"""Where the project's files live.

Every path is derived from the package's own location, so a notebook finds its reference tables and data whatever
folder it runs in. The module guarantees nothing about existence: callers decide what a missing file means.
Downloading belongs to `helpers.data`.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
PARAMS = ROOT / "params"
REFERENCE = ROOT / "reference"
RESULTS = ROOT / "results"
RUNS = ROOT / "runs"


def data_folders() -> list[Path]:
    """Folders searched for data sets, first match wins.

    Returns
    -------
    list of Path
        `$DPBOOK_DATA` if set, `../shared/data` beside the project, then the user's cache folder. Folders that do not
        exist are left out, except the cache, which is where downloads go.
    """
    override = os.environ.get("DPBOOK_DATA")
    candidates = [Path(override).expanduser()] if override else []
    candidates.append(ROOT.parent / "shared" / "data")
    return [folder for folder in candidates if folder.is_dir()] + [data_cache()]


def data_cache() -> Path:
    """The folder that downloads are kept in (`$XDG_CACHE_HOME/dpbook` or `~/.cache/dpbook`)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dpbook"
