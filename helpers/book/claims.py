"""The claims register: every statement of the five documents, and what became of it.

`reference/claims.yml` holds one row a statement. A chapter calls `check` with evidence it has just computed;
`check` derives the verdict from that evidence and raises when the register says otherwise, so executing the
chapters is the test of the register. Rendering the register as a page belongs to `helpers.book.extension`.
"""

import html
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import yaml

from helpers import paths
from helpers.checks import check_choice, check_real

HOLDS = "holds"
TIGHTER = "holds, tighter shown"
CORRECTED = "holds only after correction"
FAILS = "fails as printed"
NOT_CHECKABLE = "not checkable here"
UNCHECKED = "not checked yet"
VERDICTS = (HOLDS, TIGHTER, CORRECTED, FAILS, NOT_CHECKABLE, UNCHECKED)

DOCUMENTS = {
    "dpci": "Rosenblatt et al. 2025, ICML version",
    "dpci-arxiv": "Rosenblatt et al. 2025, arXiv version",
    "chaudhuri": "Chaudhuri, Monteleoni and Sarwate 2011",
    "mangold": "Mangold 2023, defence slides",
    "sad": "Huang and Xie 2025",
}


class ClaimContradiction(AssertionError):
    """The evidence of a chapter and the verdict in the register disagree."""


@dataclass(frozen=True)
class Claim:
    """One row of the register; texts are MyST with `$...$` mathematics."""

    id: str
    document: str
    label: str
    statement: str
    location: str
    chapter: str
    verdict: str
    reason: str = ""
    assumptions: str = ""
    differences: str = ""
    arxiv_label: str = ""
    issues: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """HTML id of the verdict box in the checking chapter."""
        return f"claim-{self.id}"

    @property
    def is_checked(self) -> bool:
        return self.verdict not in (UNCHECKED, NOT_CHECKABLE)


@cache
def register() -> dict[str, Claim]:
    """All claims by id, in the order of the documents.

    Raises
    ------
    ValueError
        A verdict outside the vocabulary, an unknown document, or a verdict without its reason.
    """
    rows = yaml.safe_load((paths.REFERENCE / "claims.yml").read_text())
    claims = {row["id"]: Claim(**row | {"issues": tuple(row.get("issues", ()))}) for row in rows}
    for claim in claims.values():
        check_choice(f"verdict of {claim.id}", claim.verdict, VERDICTS)
        check_choice(f"document of {claim.id}", claim.document, DOCUMENTS)
        if claim.verdict != UNCHECKED and not claim.reason:
            raise ValueError(f"reason of {claim.id} must be one line that explains the verdict, got nothing")
    return claims


@dataclass(frozen=True)
class Evidence:
    """One comparison: whether it came out as `text` says, in numbers."""

    holds: bool
    text: str

    def __bool__(self) -> bool:
        return self.holds


def close(what: str, computed: float, printed: float, *, tolerance: float) -> Evidence:
    """Evidence that a computed number agrees with a printed one.

    Parameters
    ----------
    tolerance : float
        Largest absolute difference that still agrees (half a unit of the last printed digit, as a rule).

    >>> close("imbalance ratio", 42.01, 42, tolerance=0.5).holds
    True
    """
    check_real("tolerance", tolerance, low=0)
    holds = bool(abs(computed - printed) <= tolerance)
    verb = "agrees with" if holds else "differs from"
    return Evidence(holds, f"{what}: computed {_show(computed)} {verb} {_show(printed)} (tolerance {_show(tolerance)})")


def at_most(what: str, computed: Any, bound: Any, *, slack: float = 0.0) -> Evidence:
    """Evidence that computed values never exceed a bound (numbers or arrays of one shape; the worst entry is shown).

    Parameters
    ----------
    slack : float
        Absolute allowance for rounding in floating point.

    >>> at_most("delta", [0.1, 0.3], 0.2).text
    'delta: 0.3 exceeds 0.2'
    """
    computed, bound = np.broadcast_arrays(np.asarray(computed, float), np.asarray(bound, float))
    if computed.size == 0 or np.isnan(computed).any() or np.isnan(bound).any():
        raise ValueError(f"computed and bound must be numbers without NaN for {what!r}")
    worst = np.unravel_index(np.argmax(computed - bound), computed.shape)
    holds = bool(computed[worst] - bound[worst] <= slack)
    verb = "is at most" if holds else "exceeds"
    cases = f", worst of {computed.size:,} cases" if computed.size > 1 and holds else ""
    return Evidence(holds, f"{what}: {_show(computed[worst])} {verb} {_show(bound[worst])}{cases}")


def fact(what: str, holds: bool) -> Evidence:
    """Evidence that is a yes or no, such as a counterexample found by enumeration."""
    return Evidence(bool(holds), f"{what}: {'yes' if holds else 'no'}")


@dataclass(frozen=True)
class Verdict:
    """A checked claim with its evidence; in a notebook it shows as the verdict box."""

    claim: Claim
    verdict: str
    evidence: tuple[Evidence, ...] = field(default=())

    def __repr__(self) -> str:
        lines = "".join(f"\n  {item.text}" for item in self.evidence)
        return f"{self.claim.id}: {self.verdict}. {self.claim.reason}{lines}"

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(item.text)}</li>" for item in self.evidence)
        kind = self.verdict.replace(",", "").replace(" ", "-")
        return (
            f'<div class="verdict verdict-{kind}" id="{self.claim.anchor}" data-verdict="{self.verdict}">'
            f'<p class="verdict-title"><strong>{html.escape(self.verdict)}</strong> '
            f"{html.escape(DOCUMENTS[self.claim.document])}, {html.escape(self.claim.label)} "
            f'<a class="verdict-id" href="claims.html#row-{self.claim.id}">{self.claim.id}</a></p>'
            f"<p>{html.escape(self.claim.reason)}</p><ul>{items}</ul></div>"
        )


def check(
    claim_id: str, *, as_printed: Evidence, tighter: Evidence | None = None, corrected: Evidence | None = None
) -> Verdict:
    """Derive a verdict from evidence and hold it against the register.

    Parameters
    ----------
    as_printed : Evidence
        Whether the statement holds as the document prints it.
    tighter : Evidence, optional
        For a statement that holds: evidence of something strictly better.
    corrected : Evidence, optional
        For a statement that fails: evidence that the corrected statement holds.

    Raises
    ------
    ClaimContradiction
        The derived verdict is not the register's.
    ValueError
        Unknown claim.
    """
    claims = register()
    check_choice("claim_id", claim_id, claims)
    claim = claims[claim_id]
    if as_printed:
        verdict = TIGHTER if tighter else HOLDS
    else:
        verdict = CORRECTED if corrected else FAILS
    evidence = tuple(item for item in (as_printed, tighter, corrected) if item is not None)
    if verdict != claim.verdict:
        shown = "; ".join(item.text for item in evidence)
        raise ClaimContradiction(f"{claim_id}: the register says {claim.verdict!r}, the evidence {verdict!r} ({shown})")
    return Verdict(claim, verdict, evidence)


def all_of(*evidence: Evidence) -> Evidence:
    """Several comparisons as one: it holds if all hold; otherwise the failing ones are shown."""
    failing = [item for item in evidence if not item]
    return Evidence(not failing, "; ".join(item.text for item in (failing or evidence)))


def _show(value: float) -> str:
    return f"{float(value):.4g}"
