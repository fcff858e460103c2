"""The 27 sets of imbalanced-learn's benchmark (Ding 2011; Zenodo record 61452).

Rows keep the publisher's order, labels become 1 for the minority, and every set whose file could be inspected carries
declared bounds. Eleven sets can only be had from the publisher's archive: no SHA-256 and no bounds are known of them,
and their size, label set and imbalance are compared with the published ones. Shuffling and splitting are left to
`helpers.data.split`.
"""

import numpy as np

from helpers import paths
from helpers.data import files
from helpers.data.dataset import Dataset
from helpers.data.sets import card

PUBLISHER = "https://zenodo.org"
ARCHIVE_URL = f"{PUBLISHER}/record/61452/files/benchmark-imbalanced-learn.tar.gz"
ARCHIVE = "imblearn/benchmark-imbalanced-learn.tar.gz"
MAX_ARCHIVE_BYTES = 500 * 2**20  # all 27 sets take 370 MB before compression


def load_benchmark(name: str) -> Dataset:
    """One benchmark set; see `helpers.data.load`."""
    known = card(name)
    # imbalanced-learn's own client keeps the file there too, so that its cache serves.
    [(relative, sha256)] = known.files.items()
    is_rebuilt = "rebuilt" in known.schema.facts
    if is_rebuilt and files.find(known.files) in (None, paths.data_cache()):
        sha256 = None  # the publisher's file differs from the rebuilt one; its digest is not known
    wanted = {relative: sha256}
    folder = files.find_verified(wanted)
    if folder is None:
        files.fetch(name, wanted, PUBLISHER, "pooch", lambda: _download(relative, known.n, known.n_features))
        folder = files.find_verified(wanted)
    arrays = files.read_npz(folder / relative, {"data": (known.n, known.n_features), "label": (known.n,)})
    X, label = arrays["data"].astype(np.float64), arrays["label"]
    files.expect(name, rows=(len(X), known.n), labels=(np.unique(label).tolist(), (-1, 1)))
    if known.published_ratio is not None:
        ratio = (label == -1).sum() / (label == 1).sum()
        # The published one is rounded: to one decimal below 10, to an integer above.
        if abs(ratio - known.published_ratio) > (0.06 if known.published_ratio < 10 else 0.6):
            raise files.UnexpectedData(
                f"data set {name!r} must have imbalance ratio {known.published_ratio:g}, got {ratio:.3g}"
            )
    source = known.schema.source + (", rebuilt from the raw table" if is_rebuilt and sha256 else "")
    return known.schema.records(X, (label == 1).astype(np.int64), name, source=source)


def _download(relative: str, n: int, n_features: int) -> None:
    """One set out of the publisher's archive, which is kept."""
    target = paths.data_cache() / relative
    target.parent.mkdir(parents=True, exist_ok=True)
    archive = files.retrieve(ARCHIVE_URL, ARCHIVE, sha256=None, max_bytes=MAX_ARCHIVE_BYTES)
    # More than the file can take: eight bytes a number, and a mebibyte of headers.
    files.extract_member(archive, target.name, target, max_bytes=8 * n * (n_features + 1) + 2**20)
