"""Audit of anything that can be fitted: what tells two neighbouring tables apart, judged on fits nobody has looked at.

First come a few fits on each table of each pair. What is always the same on one table and always something else on the
other needs no noise to be told, and is judged on as many fresh fits as its claim needs. Then, where that is asked for,
events are learned from half of the first fits, chosen on the other half and judged on fresh ones. All bounds together
hold with the stated confidence.
"""

import hashlib
import json
import math
import pickle
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.tree import DecisionTreeClassifier

from helpers.privacy.audit.bounds import best_threshold, gaussian_lower_bound, lower_bound
from helpers.privacy.audit.observation import AGAIN, Features, as_release, observe, versions
from helpers.privacy.audit.pairs import Pair, rare_class_pairs
from helpers.privacy.guarantees import RELATION_NAMES, Guarantee
from helpers.validation import check_integer, check_real

FIRST_LOOKS = 6  # fits on each table that suspicions come from
_MOST_SUSPECTS = 4  # of one pair
# Fits on each table of a pair that events are learned and chosen from: a quarter of the judged ones, but
_LEARNT_FROM, _MOST_LEARNT = 100, 1000
# Events are chosen by bounds of this confidence. A few hits in a tail, whose ratio is large by chance, show nothing
# then, while an event of a tenth of the fits can still be chosen.
_CHOOSING = 0.8
_MOST_FITS = 1_000_000
_COLUMNS = 48  # numbers that a discriminant uses
_SAME = 1 - 1e-9  # correlation of a released number with one that a stored seed gives
_MOVED = 1e-3  # how far it has to move from the line that it is on, in its standard deviations
_ABSENT = "absent"


@dataclass(frozen=True)
class Event:
    """Something that a fit shows or not: a feature has a value, is at least a threshold, a weighted sum is, or several
    features are each on their side of a cut.

    Attributes
    ----------
    names : tuple of str
        Features.
    value : float or str, optional
        Of the single feature. "absent": it is not there.
    threshold : float, optional
        Of the feature, or of the sum over features of weights * z + squares * z^2, z = (number - centre) / scale.
    centre, scale, weights, squares : tuple of float
        Empty where there is no weighted sum.
    cuts : tuple of float
        Where several features count: one for each name.
    above : tuple of bool
        Whether the feature has to be above its cut, or at most at it.
    """

    names: tuple[str, ...]
    value: float | str | None = None
    threshold: float | None = None
    centre: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    squares: tuple[float, ...] = ()
    cuts: tuple[float, ...] = ()
    above: tuple[bool, ...] = ()

    def __call__(self, features: Features) -> bool:
        """Whether it happened."""
        if self.value is not None:
            return features.get(self.names[0], _ABSENT) == self.value
        if self.cuts:
            numbers = (features.get(name) for name in self.names)
            return all(
                isinstance(number, float) and (number > cut) == above
                for number, cut, above in zip(numbers, self.cuts, self.above, strict=True)
            )
        return self.score(features) >= (0.0 if self.threshold is None else self.threshold)

    def score(self, features: Features) -> float:
        """The number that is compared with the threshold; a feature that is no number counts as its centre."""
        if self.value is not None or self.cuts:
            return float(self(features))
        if not self.weights:
            number = features.get(self.names[0])
            return number if isinstance(number, float) else -math.inf
        total = 0.0
        for name, *constants in zip(self.names, self.centre, self.scale, self.weights, self.squares, strict=True):
            number, (centre, scale, weight, square) = features.get(name), constants
            if isinstance(number, float):
                z = (number - centre) / scale
                total += weight * z + square * z * z
        return total

    def __str__(self):
        names = [name or "the result" for name in self.names]
        if self.value is not None:
            shown = self.value if isinstance(self.value, str) else f"{self.value:.10g}"
            return f"{names[0]} is {shown[:80]}"
        if self.cuts:
            sides = ("is above" if above else "is at most" for above in self.above)
            return " and ".join(
                f"{name} {side} {cut:.6g}" for name, side, cut in zip(names, sides, self.cuts, strict=True)
            )
        if self.weights:
            return f"a weighted sum of {len(names)} numbers is at least {self.threshold:.4g}"
        return f"{names[0]} is at least {self.threshold:.6g}"


class Finding(NamedTuple):
    """An event with its counts on fresh fits, and what they prove.

    `epsilon` is a lower bound at the claim's delta, `mu` one of Gaussian differential privacy.
    """

    pair: str
    told: str
    event: Event
    hits: int
    trials: int
    neighbour_hits: int
    neighbour_trials: int
    epsilon: float
    mu: float

    def __str__(self):
        return (
            f"{self.event}: in {self.hits} of {self.trials} fits, and in {self.neighbour_hits} of "
            f"{self.neighbour_trials} on a table that differs in {self.told}; epsilon is at least {self.epsilon:.2f}, "
            f"and mu of Gaussian differential privacy at least {self.mu:.2f}"
        )


@dataclass(frozen=True)
class Certificate:
    """What an audit found; `save` and `load` keep it as JSON, and `replay_certificate` repeats it.

    Attributes
    ----------
    epsilon, delta, relation
        The claim.
    findings : tuple of Finding
        Every event that was judged.
    seeds : tuple of str
        Sentences on stored seeds or generators that give back noise.
    notes : tuple of str
        Sentences on what was seen and is not judged: warnings of the library, its own guarantee, seeds that are kept.
    pairs : tuple of Pair
        Those of the findings.
    confidence : float
        With which all bounds hold together.
    fits : int
        How many were made.
    power : str
        What would have been seen.
    seconds : float
    clock : bool
        Whether CPU time counted as released.
    versions : dict
    """

    epsilon: float
    delta: float
    relation: str
    findings: tuple[Finding, ...]
    seeds: tuple[str, ...]
    notes: tuple[str, ...]
    pairs: tuple[Pair, ...]
    confidence: float
    fits: int
    power: str
    seconds: float
    clock: bool = False
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> float:
        """Largest lower bound on epsilon."""
        return max((finding.epsilon for finding in self.findings), default=0.0)

    @property
    def refuted(self) -> tuple[str, ...]:
        """Sentences on what contradicts the claim; empty if nothing does."""
        return (*self.seeds, *(str(finding) for finding in self.findings if finding.epsilon > self.epsilon))

    def __str__(self):
        claim = f"({self.epsilon:g}, {self.delta:g})-DP, {self.relation}"
        verdict = f"refuted: {claim}" if self.refuted else f"not refuted: {claim}"
        lines = [f"  {line}" for line in self.refuted]
        return "\n".join([f"{verdict} ({self.fits} fits, {self.seconds:.0f} s)", *lines, self.power, *self.notes])

    def save(self, file: str | Path) -> None:
        """Write it as JSON."""
        content = asdict(self) | {
            "findings": [finding._asdict() | {"event": asdict(finding.event)} for finding in self.findings],
            "pairs": [
                pair._asdict() | {side: _listed(getattr(pair, side)) for side in ("data", "neighbour")}
                for pair in self.pairs
            ],
        }
        Path(file).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, file: str | Path) -> "Certificate":
        """Read what `save` wrote.

        Raises
        ------
        ValueError
            The file is no certificate.
        """
        try:
            content = json.loads(Path(file).read_text(encoding="utf-8"))
            findings = [
                Finding(
                    **one
                    | {"event": Event(**{k: tuple(v) if isinstance(v, list) else v for k, v in one["event"].items()})}
                )
                for one in content["findings"]
            ]
            pairs = [
                Pair(one["name"], one["told"], _records(one["data"]), _records(one["neighbour"]), one["outside"])
                for one in content["pairs"]
            ]
            lists = {name: tuple(content[name]) for name in ("seeds", "notes")}
            return cls(**content | lists | {"findings": tuple(findings), "pairs": tuple(pairs)})
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} must be a certificate of an audit, got {type(error).__name__}: {error}") from None


def _listed(records):
    X, y = records
    if hasattr(X, "columns"):
        return {"table": {str(name): X[name].tolist() for name in X.columns}, "y": np.asarray(y).tolist()}
    return {"X": [[None if math.isnan(x) else x for x in row] for row in X.tolist()], "y": np.asarray(y).tolist()}


def _records(content):
    y = np.array(content["y"])
    if "table" in content:
        import pandas as pd

        return pd.DataFrame(content["table"]), y
    return np.array([[math.nan if x is None else x for x in row] for row in content["X"]]), y


def fits_needed(epsilon: float, delta: float = 0.0, confidence: float = 0.999) -> int:
    """Fits on each table with which an event of a mechanism of twice this epsilon refutes it, in 8 of 10 audits.

    The event has probability 1/2 on one table, and on the other the least that (2 epsilon, delta) allows. Either count
    may be as bad as in one audit of ten.

    >>> fits_needed(1.0), fits_needed(0.1)
    (418, 10996)
    """
    other = max((0.5 - delta) * math.exp(-2 * epsilon), 0.0)

    def is_enough(n):
        return lower_bound(binom.ppf(0.1, n, 0.5), n, binom.ppf(0.9, n, other), n, delta, confidence) > epsilon

    n = 8
    while not is_enough(n):
        n *= 2
        if n > _MOST_FITS:
            raise ValueError(
                f"epsilon must be one that {_MOST_FITS} fits can refute, got {epsilon:g} at delta {delta:g}"
            )
    low = n // 2
    while n - low > 1:
        middle = (low + n) // 2
        low, n = (low, middle) if is_enough(middle) else (middle, n)
    return n


def _certain_fits(epsilon: float, delta: float, confidence: float) -> int:
    """Fits on each table after which an event of all but one of one and none of the other refutes epsilon."""
    n = 2
    while lower_bound(n - 1, n, 0, n, delta, confidence) <= epsilon:
        n += 1 + n // 20
        if n > _MOST_FITS:
            raise ValueError(
                f"epsilon must be one that {_MOST_FITS} fits can refute, got {epsilon:g} at delta {delta:g}"
            )
    return n


class _Fits:
    """Fits that are made when they are asked for, and kept in a file where there is one."""

    def __init__(
        self, look: Callable[[Any, Any, Any], Features], store: Path | None, key: str, say: Callable[[str], None]
    ):
        self.look, self.say, self.made = look, say, 0
        self.kept: dict = defaultdict(list)
        self.coin = np.random.default_rng()
        self.store = store
        if store is not None:
            for place, seen in self._read(store, key):
                self.kept[place].append(seen)
            if not store.exists() or not store.stat().st_size:
                self._keep(key)

    @staticmethod
    def _read(store: Path, key: str) -> list:
        """Entries of a store with this key; one that was cut off in the middle of a write is dropped."""
        if not store.exists():
            return []
        entries, whole = [], 0
        with store.open("rb") as file:
            try:
                if pickle.load(file) != key:
                    raise ValueError(
                        f"{store} must be left by the same audit, got one of another claim, plan or object"
                    )
                whole = file.tell()
                while True:
                    entries.append(pickle.load(file))
                    whole = file.tell()
            except (EOFError, pickle.UnpicklingError):
                pass
        with store.open("r+b") as file:
            file.truncate(whole)
        return entries

    def _keep(self, entry: Any) -> None:
        if self.store is not None:
            with self.store.open("ab") as file:
                pickle.dump(entry, file)

    def both(self, stage: str, pair: Pair, n: int, seen: Callable[[Features], Any] = lambda features: features):
        """`n` fits on each table of the pair, as lists of what `seen` makes of each, in turns."""
        places = [(stage, pair.name, side) for side in (0, 1)]
        probes = pair.data[0][-4:]
        last = time.monotonic()
        for i in range(n):
            # In an order of chance: whatever changes with every fit must not look like the table.
            turn = [*zip(places, (pair.data, pair.neighbour), strict=True)]
            for place, records in turn if self.coin.random() < 0.5 else turn[::-1]:
                if len(self.kept[place]) > i:
                    continue
                found = seen(self.look(*records, probes))
                self.made += 1
                self.kept[place].append(found)
                self._keep((place, found))
            if time.monotonic() - last > 10:
                last = time.monotonic()
                self.say(f"{stage}, {pair.name}: {i + 1} of {n} fits on each table")
        return tuple(self.kept[place][:n] for place in places)


def audit_object(
    build: Any,
    claim: Guarantee,
    pairs: Sequence[Pair] | None = None,
    *,
    fits: int | None = 0,
    confidence: float = 0.999,
    clock: bool = False,
    look: Callable[[Any, Any, Any], Features] | None = None,
    store: Path | None = None,
    about: str = "",
    say: Callable[[str], None] = lambda line: None,
) -> Certificate:
    """Test a privacy claim by everything that fits on neighbouring public tables show.

    Parameters
    ----------
    build : class, callable or object
        A class or function without arguments whose result has `fit(X, y)`, an object that has it, or a function of X
        and y that returns what is published. It needs no `guarantee_`; one that is there is compared with the claim.
    claim : Guarantee
        Epsilon, delta and relation.
    pairs : sequence of Pair, optional
        `rare_class_pairs` of the claim's relation if left out.
    fits : int or None
        Judged fits on each table for what was learned; 0 for none, so that only what needs no noise to be told is
        looked for. None: `fits_needed`.
    confidence : float
        With which all bounds hold together, in (0, 1).
    clock : bool
        Whether CPU time counts as released.
    look : callable (X, y, probes) -> Features, optional
        Makes a fit elsewhere, in another process, say.
    store : Path, optional
        File in which fits are kept, so that an interrupted audit goes on.
    about : str
        What is audited, so that a store of something else is refused; a digest of its source, say.
    say : callable
        Gets a line now and then.

    Returns
    -------
    Certificate

    Raises
    ------
    ValueError
        A parameter out of range, or a claim that no audit of this size can refute.

    Source: Clopper and Pearson 1934; sample splitting.

    >>> from helpers.privacy import REPLACE_ONE
    >>> class Mean:
    ...     def fit(self, X, y):
    ...         self.mean_ = X.mean() + np.random.default_rng().laplace()
    ...         self.n_rare_ = int(y.sum())
    >>> found = audit_object(Mean, Guarantee(1.0, 0.0, REPLACE_ONE))
    >>> found.findings[0].event.names, found.shown > 1
    (('n_rare_',), True)
    """
    if not isinstance(claim, Guarantee) or not 0 <= claim.epsilon < math.inf:
        raise ValueError(f"claim must be a Guarantee with a finite epsilon, got {claim!r}")
    check_real("confidence", confidence, low=0, high=1, inclusive="neither")
    fits = fits_needed(claim.epsilon, claim.delta, _half(confidence)) if fits is None else fits
    if fits:
        check_integer("fits", fits, low=8, high=_MOST_FITS)
    _certain_fits(claim.epsilon, claim.delta, _half(confidence))  # refuses a claim that is too large
    pairs = rare_class_pairs(claim.neighbouring) if pairs is None else list(pairs)
    look = partial(observe, as_release(build), clock=clock) if look is None else look
    names = [pair.name for pair in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"pairs must have different names, got {', '.join(names)}")
    content = pickle.dumps([(pair.name, *map(_listed, (pair.data, pair.neighbour))) for pair in pairs])
    key = f"{about} {claim} {fits} {confidence} {clock} {hashlib.sha256(content).hexdigest()}"
    made, started = _Fits(look, store, key, say), time.monotonic()
    if fits:
        before = 2 * len(pairs) * (FIRST_LOOKS + _learning(fits))
        say(f"plan: {before + 2 * fits} fits, {2 * fits} of them judged. {_power(claim, fits, _half(confidence))}")
    # Half of the error is for what needs no noise to be told, half for what is learned.
    looks = {pair.name: made.both("look", pair, FIRST_LOOKS) for pair in pairs}
    pairs, refusals = _accepted(pairs, looks)
    findings = _certain(claim, pairs, looks, made, _half(confidence))
    sound = [pair for pair in pairs if not any("exception" in fit for side in looks[pair.name] for fit in side)]
    seeds, notes = _seeds(sound[0], made) if sound else ([], [])
    notes += refusals + _notes(claim, looks)
    power = "Only what needs no noise to be told was looked for."
    if fits:
        # What a pair has shown without noise would be learned from it again.
        shown = {finding.pair for finding in findings if finding.epsilon > claim.epsilon}
        quiet = [pair for pair in pairs if pair.name not in shown] or pairs
        findings.append(_learned(claim, quiet, made, fits, _half(confidence)))
        power = _power(claim, fits, _half(confidence))
    judged = {finding.pair for finding in findings} | ({sound[0].name} if seeds else set())
    return Certificate(
        claim.epsilon,
        claim.delta,
        RELATION_NAMES[claim.neighbouring],
        tuple(findings),
        tuple(seeds),
        tuple(notes),
        tuple(pair for pair in pairs if pair.name in judged),
        confidence,
        made.made,
        power,
        time.monotonic() - started,
        clock,
        versions(),
    )


def _half(confidence: float) -> float:
    return 1 - (1 - confidence) / 2


def _accepted(pairs: Sequence[Pair], looks) -> tuple[list[Pair], list[str]]:
    """Pairs whose records the release takes, and sentences on those that it refuses, as a public schema allows it to.

    Raises
    ------
    ValueError
        Every fit fails, or every pair is refused.
    """
    failures = {pair.name: [fit.get("exception") for side in looks[pair.name] for fit in side] for pair in pairs}
    if all(failure for pair in pairs for failure in failures[pair.name]):
        raise ValueError(f"build must fit the pairs' records, got {failures[pairs[0].name][0]}")
    accepted, refused = [], []
    for pair in pairs:
        with_record, without = ([fit.get("exception") for fit in side] for side in looks[pair.name])
        if pair.outside and all(with_record) and not any(without):
            refused.append(f"{pair.told} ({str(with_record[0]).splitlines()[0][:90]})")
        else:
            accepted.append(pair)
    note = "The claim has to assume that there is none: whoever sees the error learns of it."
    if not accepted:
        raise ValueError(f"pairs must have one whose records build takes, got {', '.join(pair.name for pair in pairs)}")
    return accepted, [f"Refuses {' and '.join(refused)}. {note}"] if refused else []


def _certain(claim, pairs, looks, made, confidence) -> list[Finding]:
    """What is always one value on one table and always another on its neighbour, on fresh fits."""
    suspects: dict[str, list[Event]] = {pair.name: _suspects(*looks[pair.name]) for pair in pairs}
    for pair in pairs:
        if events := suspects[pair.name]:  # chance has made some of many, and most of these do not come again
            again = made.both("look again", pair, FIRST_LOOKS)
            told = {_part(event.names[0]): event for event in reversed(events) if _tells(event, *again)}
            suspects[pair.name] = list(told.values())[::-1][:_MOST_SUSPECTS]
    n_events = sum(map(len, suspects.values()))
    if not n_events:
        return []
    each = 1 - (1 - confidence) / n_events
    n = _certain_fits(claim.epsilon, claim.delta, each)
    findings: list[Finding] = []
    for pair in pairs:
        # What another pair has shown already needs no second proof.
        known = {_part(finding.event.names[0]) for finding in findings if finding.epsilon > claim.epsilon}
        if events := [event for event in suspects[pair.name] if _part(event.names[0]) not in known]:
            happened = made.both(
                "judge", pair, n, lambda features, events=events: [event(features) for event in events]
            )
            counts = zip(events, *(np.sum(side, axis=0).tolist() for side in happened), strict=True)
            findings += [
                _finding(claim, pair, event, hits, neighbour_hits, n, each) for event, hits, neighbour_hits in counts
            ]
    return findings


def _suspects(here: Sequence[Features], there: Sequence[Features]) -> list[Event]:
    """Events that happened in all fits on one side and in none on the other."""
    failing = Event(("exception",), value=_ABSENT)
    if _tells(failing, here, there):  # all else follows
        return [failing]
    found = []
    for name in dict.fromkeys(name for fit in (*here, *there) for name in fit):
        values = [{fit.get(name, _ABSENT) for fit in side} for side in (here, there)]
        # A number that is there and one that is not are told apart by whether it is there.
        constant: list = [_ABSENT] if {_ABSENT} in values else [next(iter(side)) for side in values if len(side) == 1]
        if constant and _tells(event := Event((name,), value=constant[0]), here, there):
            found.append(event)
    return found


def _tells(event: Event, here: Sequence[Features], there: Sequence[Features]) -> bool:
    """Whether it happens in all fits on one side and in none on the other."""
    sides = [[event(fit) for fit in side] for side in (here, there)]
    return any(all(one) and not any(other) for one, other in (sides, sides[::-1]))


def _part(name: str) -> str:
    """The attribute that a feature is of."""
    return re.split(r"[\[. ]", name, maxsplit=1)[0]


def _finding(claim, pair, event, hits, neighbour_hits, n, confidence) -> Finding:
    counts = (hits, n, neighbour_hits, n)
    epsilon = float(lower_bound(*counts, claim.delta, confidence))
    return Finding(pair.name, pair.told, event, *counts, epsilon, gaussian_lower_bound(*counts, confidence))


def _learned(claim, pairs, made, fits, confidence) -> Finding:
    """The event that tells the tables of a pair apart best on fits to learn from, judged on fresh ones."""
    best: tuple = (-1.0, None, None)
    for pair in pairs:
        here, there = made.both("learn", pair, _learning(fits))
        half = len(here) // 2
        for event in candidates(here[:half], there[:half]):
            scores = [np.array([event.score(fit) for fit in side[half:]]) for side in (here, there)]
            shown, threshold = best_threshold(scores[0], scores[1], claim.delta, _CHOOSING)
            if shown > best[0]:
                best = (shown, pair, replace(event, threshold=threshold))
        for side in (0, 1):
            del made.kept["learn", pair.name, side]  # there may be thousands
    _, pair, event = best
    sides = made.both("prove", pair, fits, event)
    return _finding(claim, pair, event, sum(sides[0]), sum(sides[1]), fits, confidence)


def _learning(fits: int) -> int:
    return min(fits, max(_LEARNT_FROM, min(fits // 4, _MOST_LEARNT)))


def candidates(here: Sequence[Features], there: Sequence[Features]) -> list[Event]:
    """Events that may tell two sides apart: single numbers, discriminants with and without squares, and the leaves of a
    tree, for what shows only in several numbers at once."""
    counted = Counter(name for fit in (*here, *there) for name, value in fit.items() if isinstance(value, float))
    names = [name for name, times in counted.items() if times == len(here) + len(there)]
    table = np.array([[fit[name] for name in names] for fit in (*here, *there)]).reshape(len(here) + len(there), -1)
    varies = np.ptp(table, axis=0) > 0 if table.size else np.zeros(0, bool)
    names, table = [name for name, keep in zip(names, varies, strict=True) if keep], table[:, varies]
    sometimes = [name for name, times in counted.items() if times < len(here) + len(there)]
    texts = Counter((name, value) for fit in (*here, *there) for name, value in fit.items() if isinstance(value, str))
    said = [Event((name,), value=value) for (name, value), times in texts.items() if 1 < times < len(here) + len(there)]
    if not names:
        return [Event((name,), threshold=0.0) for name in sometimes] + said or [Event(("nothing",), threshold=0.0)]
    side = np.repeat([1, 0], [len(here), len(there)])
    order = np.argsort(-_apart(table, side))
    singles = [names[i] for i in order[:200]] + sometimes[:100]
    found = [Event((name,), threshold=0.0) for name in singles] + said[:100]
    columns = order[:_COLUMNS]
    centre, scale = table[:, columns].mean(axis=0), table[:, columns].std(axis=0)
    z = (table[:, columns] - centre) / scale
    for inputs in (z, np.hstack([z, z**2])):
        for shrinkage in (0.1, 0.5, 0.9):
            weights = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(inputs, side).coef_[0]
            squares = weights[len(columns) :] if len(weights) > len(columns) else np.zeros(len(columns))
            constants = (tuple(part.tolist()) for part in (centre, scale, weights[: len(columns)], squares))
            found.append(Event(tuple(names[i] for i in columns), None, 0.0, *constants))
    return found + _leaves([names[i] for i in columns], table[:, columns], side)


def _leaves(names: Sequence[str], table: NDArray, side: NDArray) -> list[Event]:
    """The leaves of a small decision tree, of a twentieth of the fits or more each."""
    tree = DecisionTreeClassifier(max_depth=3, min_samples_leaf=1 + len(table) // 20, random_state=0)
    nodes = tree.fit(table, side).tree_
    found: list[Event] = []
    left: list[tuple[int, dict[tuple[int, bool], float]]] = [(0, {})]
    while left:
        node, path = left.pop()
        if nodes.children_left[node] < 0:
            chosen = [(names[column], cut, above) for (column, above), cut in path.items()]
            if len(chosen) > 1:  # a single cut is a candidate already
                named, cuts, above = zip(*chosen, strict=True)
                found.append(Event(named, cuts=cuts, above=above))
            continue
        column, cut = int(nodes.feature[node]), float(nodes.threshold[node])
        # Deeper cuts of one column on one side are the closer ones.
        left += [
            (int(nodes.children_left[node]), path | {(column, False): cut}),
            (int(nodes.children_right[node]), path | {(column, True): cut}),
        ]
    return found


def _apart(table: NDArray, side: NDArray) -> NDArray:
    """How far the sides are from each other in each column, in mean or in spread, in units of their spread."""
    found = []
    for values in (table, np.abs(table - np.median(table, axis=0))):
        gap = np.abs(values[side == 1].mean(axis=0) - values[side == 0].mean(axis=0))
        found.append(gap / np.maximum(values.std(axis=0), 1e-12 * np.abs(values).max(axis=0) + 1e-300))
    return np.maximum(*found)


def _power(claim: Guarantee, fits: int, confidence: float) -> str:
    """What this many judged fits would have shown."""
    try:
        needed = fits_needed(claim.epsilon, claim.delta, confidence)
    except ValueError:
        return f"No power at this size: more than {_MOST_FITS} judged fits on each table would be needed."
    if fits < needed:
        return (
            f"No power at this size: with {fits} judged fits on each table even a loss of twice the claim may pass; "
            f"{needed} would show it."
        )
    return (
        f"{fits} judged fits on each table show, in 8 of 10 audits, an event that is e^(2 epsilon) times as likely on "
        "one of them, if it was learned. A loss in the tails of Gaussian noise needs many more."
    )


def _seeds(pair: Pair, made: _Fits) -> tuple[list[str], list[str]]:
    """Sentences on noise that a stored seed gives back, and on seeds that vary from fit to fit.

    A number that is a straight line of one that the seed gives, in all fits, is noise and something exact. That is a
    leak if the line is another one on the other table; if not, it is public randomness, such as random features.
    """
    sides = made.both("look", pair, 2 * FIRST_LOOKS)
    fits = [fit for side in sides for fit in side]
    names = [name for name in fits[0] if all(isinstance(fit.get(name), float) for fit in fits)]
    here, there = (np.array([[fit[name] for name in names] for fit in side]) for side in sides)
    varies = np.array([len(set(column)) == len(here) for column in here.T], dtype=bool)
    names, here, there = (
        [name for name, keep in zip(names, varies, strict=True) if keep],
        here[:, varies],
        there[:, varies],
    )
    again = np.array([name.startswith(AGAIN) for name in names], dtype=bool)
    shown, drawn = (np.array(names)[which] for which in (~again, again))
    refuted, notes = [], []
    if len(shown) and len(drawn):
        z = (here - here.mean(axis=0)) / here.std(axis=0)
        for i, j in np.argwhere(np.abs(z[:, ~again].T @ z[:, again]) / len(here) > _SAME):
            number, seeded = (
                np.concatenate([side[:, which][:, k] for side in (here, there)])
                for which, k in ((~again, i), (again, j))
            )
            line = np.polyfit(seeded[: len(here)], number[: len(here)], 1)
            if np.abs(np.polyval(line, seeded) - number)[len(here) :].min() > _MOVED * number.std():
                refuted.append(
                    f"the noise of {shown[i]} can be subtracted: {drawn[j].removeprefix(AGAIN)} gives it again, which "
                    f"the fitted object keeps (in each of {len(here)} fits)"
                )
                break
        else:
            kept = dict.fromkeys(name.removeprefix(AGAIN).split(" (")[0] for name in drawn)
            notes.append(
                f"Kept in the fitted object, and another in every fit: {', '.join(list(kept)[:5])}. Whoever gets the "
                "object may draw noise again from it."
            )
    if not varies.any():
        notes.append("No number varies between fits on one table: no noise was seen.")
    return refuted, notes


def _notes(claim: Guarantee, looks) -> list[str]:
    """What the library itself says."""
    fits = [fit for sides in looks.values() for side in sides for fit in side]
    said = {
        value for fit in fits for name, value in fit.items() if name.startswith("warning ") and isinstance(value, str)
    }
    told = sorted(line for line in said if "rivacy" in line)
    notes = [f"Disclosed by a warning: {line[:300]}" for line in told[:3]]
    stated = {fit["guarantee_.epsilon"] for fit in fits if isinstance(fit.get("guarantee_.epsilon"), float)}
    if len(stated) > 1:
        notes.append(f"guarantee_ states several epsilons: {', '.join(f'{one:g}' for one in sorted(stated)[:5])}.")
    elif stated and not math.isclose(next(iter(stated)), claim.epsilon, rel_tol=1e-9):
        notes.append(f"guarantee_ states epsilon {next(iter(stated)):g}, the claim {claim.epsilon:g}.")
    return notes


def replay_certificate(certificate: Certificate, build: Any, *, look=None) -> Certificate:
    """The findings of a certificate again, each event as it stands there, on as many fresh fits.

    Parameters
    ----------
    certificate : Certificate
    build, look
        As in `audit_object`.

    Returns
    -------
    Certificate
        With new counts; notes are left out.
    """
    look = partial(observe, as_release(build), clock=certificate.clock) if look is None else look
    made, started = _Fits(look, None, "", lambda line: None), time.monotonic()
    pairs, claim = {pair.name: pair for pair in certificate.pairs}, certificate
    each = 1 - (1 - certificate.confidence) / max(len(certificate.findings), 1)
    findings = []
    # That of the seeds is the first one of the list on which they were seen.
    seeds = (
        next((told for pair in certificate.pairs if (told := _seeds(pair, made)[0])), []) if certificate.seeds else []
    )
    for place, old in enumerate(certificate.findings):
        sides = made.both(f"again {place}", pairs[old.pair], old.trials, old.event)
        findings.append(_finding(claim, pairs[old.pair], old.event, sum(sides[0]), sum(sides[1]), old.trials, each))
    return Certificate(
        claim.epsilon,
        claim.delta,
        claim.relation,
        tuple(findings),
        tuple(seeds),
        (),
        certificate.pairs,
        certificate.confidence,
        made.made,
        "The events of the certificate, on fresh fits.",
        time.monotonic() - started,
        claim.clock,
        versions(),
    )
