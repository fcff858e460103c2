"""What makes a notebook a page of the book: figures and tables, recorded results, claims, chapters, the Sphinx side.

A notebook cell calls the names below and `helpers.book.claims`; `chapters` are the notebooks as objects, and
`extension` is what Sphinx loads. Nothing here computes a result.
"""

from helpers.book.display import (
    MAX_COLUMNS,
    OKABE_ITO,
    Provenance,
    Table,
    glue,
    keep,
    paper_vs_ours,
    provenance,
    recorded,
    recorded_names,
    reference_table,
    use_style,
)

__all__ = [
    "MAX_COLUMNS",
    "OKABE_ITO",
    "Provenance",
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
