"""What makes a notebook a page of the book: figures and tables, recorded results, claims, chapters.

A notebook cell calls the names below and `helpers.book.claims`; `chapters` are the notebooks as objects with their
`parameters`, `freshness` says what their outputs depend on, `record` keeps full-scale results, and `pages` builds HTML
with the extensions in `book/_ext`. Nothing here computes a result.
"""

from helpers.book.display import OKABE_ITO, Table, glue, provenance, use_style
from helpers.book.results import keep, paper_vs_ours, recorded, recorded_names, reference_table

__all__ = [
    "OKABE_ITO",
    "Table",
    "glue",
    "keep",
    "paper_vs_ours",
    "provenance",
    "recorded",
    "recorded_names",
    "reference_table",
    "use_style",
]
