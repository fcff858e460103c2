"""What makes a notebook a page of the book: figures and tables, recorded results, chapters.

A notebook cell calls the names below; `chapters` are the notebooks as objects with their
`parameters`, `freshness` says what their outputs depend on, `record` keeps full-scale results, and `pages` builds HTML
with the extensions in `book/_ext`. Nothing here computes a result.
"""

from helpers.book.display import OKABE_ITO, Table, glue, provenance, use_style
from helpers.book.results import keep, recorded, recorded_names

__all__ = [
    "OKABE_ITO",
    "Table",
    "glue",
    "keep",
    "provenance",
    "recorded",
    "recorded_names",
    "use_style",
]
