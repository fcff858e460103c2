"""The claims register: every statement of the five documents, and what became of it.

`reference/claims.yml` holds one row a statement. A chapter calls `check` with evidence it has just computed;
`check` derives the verdict from that evidence and raises when the register says otherwise, so executing the
chapters is the test of the register. Evidence says of what kind it is and how far it is from its bound. Rendering the
register as a page belongs to `book/_ext`.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from helpers import paths
from helpers.book import strict_yaml
from helpers.validation import check_boolean, check_choice, check_integer, check_real

HOLDS = "holds"
TIGHTER = "holds, tighter shown"
CORRECTED = "holds only after correction"
FAILS = "fails as published"
NOT_CHECKABLE = "not checkable here"
UNCHECKED = "not checked yet"
VERDICTS = (HOLDS, TIGHTER, CORRECTED, FAILS, NOT_CHECKABLE, UNCHECKED)

PROOF = "proof"
EXACT = "exact"
ENUMERATION = "enumeration"
SAMPLE = "sample"
KINDS = (PROOF, EXACT, ENUMERATION, SAMPLE)
"""Kinds of evidence, the strongest first.

* `PROOF`: the number instantiates a proof that stands in the chapter, and is an instance of it.
* `EXACT`: one quantity, computed in closed form or by quadrature to stated accuracy; one counterexample is exact too.
* `ENUMERATION`: every case of a finite set that the statement quantifies over (or is restricted to) was looked at.
* `SAMPLE`: some cases out of infinitely many, drawn or on a grid; it can refute a statement and only support one.
"""

DOCUMENTS = {
    "dpci": "Rosenblatt et al. (2025), ICML version",
    "dpci-arxiv": "Rosenblatt et al. (2025), arXiv version",
    "chaudhuri": "Chaudhuri, Monteleoni and Sarwate (2011)",
    "mangold": "Mangold (2023), defence slides",
    "sad": "Huang and Xie (2025)",
}
_FAR = 0.5  # of the bound left unused


class ClaimContradiction(AssertionError):
    """The evidence of a chapter and the verdict in the register disagree."""


@dataclass(frozen=True)
class Claim:
    """One row of the register; texts are MyST with `$...$` mathematics.

    Attributes
    ----------
    plain : str
        One sentence for outsiders: what the document states and what became of it.
    chapter : str
        The main chapter that tells of the statement.
    evidence : str
        The page with the cell that decides it, which is an appendix page or the main chapter itself.
    """

    id: str
    document: str
    label: str
    statement: str
    plain: str
    location: str
    chapter: str
    evidence: str
    verdict: str
    reason: str = ""
    assumptions: str = ""
    differences: str = ""
    arxiv_label: str = ""
    issues: Sequence[str] = ()

    @property
    def anchor(self) -> str:
        """HTML id of the verdict box on the page with the evidence."""
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
        One line that names the file and the row: not YAML, a key twice in a row, a key that is missing or unknown, an
        id twice, a verdict outside the vocabulary, an unknown document, or a verdict without its reason.
    """
    rows = strict_yaml.load(paths.REFERENCE / "claims.yml")
    if not isinstance(rows, list):
        raise ValueError("claims.yml: must be a list of claims")
    claims: dict[str, Claim] = {}
    for place, row in enumerate(rows, start=1):
        where = f"claims.yml, claim {place} ({row.get('id', 'without an id') if isinstance(row, dict) else row})"
        try:
            claim = Claim(**row)
        except TypeError as error:
            raise ValueError(f"{where}: keys must be those of a claim, got {error}") from None
        for name, value in row.items():
            if not isinstance(value, list if name == "issues" else str):
                raise ValueError(f"{where}: {name} must be {'a list' if name == 'issues' else 'text'}, got {value!r}")
        check_choice(f"{where}: verdict", claim.verdict, VERDICTS)
        check_choice(f"{where}: document", claim.document, DOCUMENTS)
        if claim.verdict != UNCHECKED and not claim.reason:
            raise ValueError(f"{where}: reason must be one line that explains the verdict, got nothing")
        if claim.id in claims:
            raise ValueError(f"claims.yml: id {claim.id!r} stands twice")
        claims[claim.id] = claim
    return claims


@dataclass(frozen=True)
class Evidence:
    """Whether something came out as `text` says, in numbers.

    Attributes
    ----------
    holds : bool
    text : str
    kind : str
        One of `KINDS`.
    n : int or None
        Cases of an enumeration or a sample.
    slack : float or None
        Share of a bound that is left unused, of the case nearest to it; 0 is attained. None without a bound.
    parts : tuple of Evidence
        The comparisons of `all_of`.
    """

    holds: bool
    text: str
    kind: str
    n: int | None = None
    slack: float | None = None
    parts: tuple["Evidence", ...] = ()

    def __bool__(self) -> bool:
        return self.holds

    @property
    def basis(self) -> str:
        """The kind in words.

        >>> fact("even", [True, True], kind=SAMPLE).basis
        'sample of 2'
        """
        return self.kind if self.n is None else f"{self.kind} of {self.n:,}"


def _cases(what: str, kind: str, n: int | None, size: int) -> int | None:
    """Number of cases: given, or the size of the values; a sample of one number has to say how many it stands for."""
    check_choice(f"kind of {what!r}", kind, KINDS)
    if n is not None:
        return check_integer(f"n of {what!r}", n, low=1)
    if kind in (PROOF, EXACT):
        return None
    if size > 1:
        return size
    if kind == SAMPLE:
        raise ValueError(f"n of {what!r} must be the number of cases that its one number stands for, got None")
    return None


def close(what: str, computed: Any, printed: Any, *, tolerance: float, kind: str, n: int | None = None) -> Evidence:
    """Evidence that computed numbers agree with printed ones (numbers, or arrays of one shape; the worst is shown).

    Parameters
    ----------
    tolerance : float
        Largest absolute difference that still agrees (half a unit of the last printed digit, as a rule).
    kind : str
        One of `KINDS`.
    n : int, optional
        Cases behind an enumeration or a sample; by default the size of the arrays.

    Raises
    ------
    ValueError
        NaN, an unknown kind, or a sample of one number without `n`.

    >>> close("imbalance ratio", 42.01, 42, tolerance=0.5, kind=EXACT).text
    'imbalance ratio: computed 42.01 agrees with 42 (off by 0.01, tolerance 0.5)'
    """
    check_real("tolerance", tolerance, low=0)
    computed, printed = _numbers(what, computed, printed)
    n = _cases(what, kind, n, computed.size)
    worst = np.unravel_index(np.argmax(np.abs(computed - printed)), computed.shape)
    gap = abs(computed[worst] - printed[worst])
    holds = bool(gap <= tolerance)
    verb = "agrees with" if holds else "differs from"
    allowed = f"off by {_show(gap)}, tolerance {_show(tolerance)}" if gap else "no difference"
    text = f"{what}: computed {_show(computed[worst])} {verb} {_show(printed[worst])} ({allowed})"
    return Evidence(holds, text, kind, n)


def at_most(
    what: str, computed: Any, bound: Any, *, kind: str, n: int | None = None, tolerance: float = 0.0
) -> Evidence:
    """Evidence that computed values never exceed a bound (numbers or arrays of one shape).

    The case nearest to its bound is shown, with the share of the bound that it leaves unused.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    n : int, optional
        Cases behind an enumeration or a sample; by default the size of the arrays.
    tolerance : float
        Absolute allowance for rounding in floating point.

    Raises
    ------
    ValueError
        NaN, a bound that is not finite, an unknown kind, or a sample of one number without `n`.

    >>> at_most("delta", [0.1, 0.3], 0.2, kind=SAMPLE).text
    'delta: 0.3 exceeds 0.2 (by 50 %)'
    >>> at_most("delta", [0.1, 0.02], 0.5, kind=SAMPLE).text
    'delta: at most 0.1, far from the bound 0.5 (80 % unused)'
    """
    check_real("tolerance", tolerance, low=0)
    computed, bound = _numbers(what, computed, bound)
    n = _cases(what, kind, n, computed.size)
    if not np.isfinite(bound).all():
        raise ValueError(f"bound of {what!r} must be finite: everything is at most infinity")
    computed = np.maximum(computed, -np.finfo(float).max)
    excess = computed - bound
    if holds := bool(excess.max() <= tolerance):
        scale = np.maximum(np.maximum(np.abs(bound), np.abs(computed)), np.finfo(float).tiny)
        excess = excess / scale
    nearest = np.lexsort(((computed - bound).ravel(), excess.ravel()))[-1]  # shares are all equal where bounds are 0
    shown = np.unravel_index(nearest, excess.shape)
    value, limit = float(computed[shown]), float(bound[shown])
    slack = (limit - value) / abs(limit) if limit else None
    return Evidence(holds, f"{what}: {_against_bound(value, limit, slack, holds, tolerance)}", kind, n, slack)


def _against_bound(value: float, limit: float, slack: float | None, holds: bool, tolerance: float) -> str:
    if not holds:
        by = f" (by {_percent(-slack)})" if slack is not None and np.isfinite(slack) else ""
        return f"{_show(value)} exceeds {_show(limit)}{by}"
    if tolerance and abs(value - limit) <= tolerance:  # on which side is a matter of the machine
        return f"reaches the bound {_show(limit)} up to rounding (at most {_show(tolerance)})"
    if value == limit or (slack is not None and slack < 5e-5):
        return f"reaches the bound {_show(limit)}, never above"
    if slack is None:
        return f"at most {_show(value)}, below the bound {_show(limit)}"
    far = ", far from the bound" if slack >= _FAR else ", bound"
    return f"at most {_show(value)}{far} {_show(limit)} ({_percent(slack)} unused)"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:,.0f} %"


def fact(what: str, holds: Any, *, kind: str, n: int | None = None) -> Evidence:
    """Evidence that is a yes or no, or a yes or no for each case, all of which have to be yes.

    Parameters
    ----------
    holds : bool, or array of bool
    kind : str
        One of `KINDS`.
    n : int, optional
        Cases behind an enumeration or a sample; by default the size of the array.

    Raises
    ------
    ValueError
        Anything but booleans, an unknown kind, or a sample of one yes without `n`.

    >>> fact("no coefficient is zero", [True, True], kind=ENUMERATION).text
    'no coefficient is zero: yes'
    """
    cases = np.asarray(holds)
    if cases.ndim == 0:
        cases = np.asarray(check_boolean(f"holds of {what!r}", holds))
    elif cases.dtype != bool or cases.size == 0:
        raise ValueError(f"holds of {what!r} must be an array of booleans, got {cases.dtype} {cases.shape}")
    n = _cases(what, kind, n, cases.size)
    verdict = "yes" if cases.all() else "no" if cases.size == 1 else f"no in {np.sum(~cases):,} of {cases.size:,}"
    return Evidence(bool(cases.all()), f"{what}: {verdict}", kind, n)


def all_of(*evidence: Evidence) -> Evidence:
    """Several comparisons as one: it holds if all hold; otherwise the failing ones are shown.

    Its kind is the weakest of the kinds that it shows.
    """
    if not evidence:
        raise ValueError("all_of must be given at least one comparison, got none")
    failing = [item for item in evidence if not item]
    parts = tuple(part for item in (failing or evidence) for part in (item.parts or (item,)))
    weakest = max(parts, key=lambda part: KINDS.index(part.kind))
    return Evidence(not failing, "; ".join(part.text for part in parts), weakest.kind, parts=parts)


def _numbers(what: str, *values: Any) -> Sequence[np.ndarray]:
    arrays = np.broadcast_arrays(*(np.asarray(value, float) for value in values))
    if arrays[0].size == 0 or any(np.isnan(array).any() for array in arrays):
        raise ValueError(f"values must be numbers without NaN for {what!r}, got none or NaN")
    return arrays


@dataclass(frozen=True)
class Verdict:
    """A checked claim with its evidence.

    In a notebook a statement that holds takes one line, which opens on its evidence; all others show as a box.
    """

    claim: Claim
    verdict: str
    evidence: tuple[Evidence, ...]

    @property
    def items(self) -> tuple[Evidence, ...]:
        """The single comparisons."""
        return tuple(part for item in self.evidence for part in (item.parts or (item,)))

    @property
    def basis(self) -> str:
        """The kinds of its evidence, the strongest first."""
        return ", ".join(kind for kind in KINDS if any(item.kind == kind for item in self.items))

    def __repr__(self) -> str:
        lines = "".join(f"\n  {item.text} [{item.basis}]" for item in self.items)
        return f"{self.claim.id}: {self.verdict}. {self.claim.reason}{lines}"

    def _repr_html_(self) -> str:
        kind = self.verdict.replace(",", "").replace(" ", "-")
        compact = self.verdict == HOLDS
        frame = "details" if compact else "div"
        opening = (
            f'<{frame} class="verdict verdict-{kind}" id="{html.escape(self.claim.anchor)}" '
            f'data-verdict="{self.verdict}" data-basis="{self.basis}">'
        )
        title = (
            f"<strong>{html.escape(self.verdict)}</strong> "
            f"{html.escape(DOCUMENTS[self.claim.document])}, {html.escape(self.claim.label)} "
            f'<span class="verdict-basis">{self.basis}</span>'
        )
        # Seen from the folder of the main chapters; the extension of Sphinx corrects it for the appendix.
        # A link inside a summary is out of reach for the keyboard, so it stands with the reason.
        name = html.escape(self.claim.id)
        link = f'<a class="verdict-id" href="claims.html#row-{name}">{name}</a>'
        title = f"<summary>{title}</summary>" if compact else f'<p class="verdict-title">{title}</p>'
        items = "".join(
            f'<li>{html.escape(item.text)} <span class="verdict-basis">{item.basis}</span></li>' for item in self.items
        )
        return f"{opening}{title}<p>{html.escape(self.claim.reason)} {link}</p><ul>{items}</ul></{frame}>"


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


def _show(value: float) -> str:
    return f"{float(value):.4g}"
