"""Audits of public libraries and of the package's own classifiers: which claims do the fitted objects refute?

`libraries` runs every row of `ROWS` in the libraries' own environments, `own` all private methods of the package, and
`clock` reads the CPU time of whole-numbered noise. Certificates go to `results/audits/`, one a row, and the tables to
`results/`. A row is not run again before its code has changed.

    .venv/bin/python -m benchmarks.audits libraries
    .venv/bin/python -m benchmarks.audits own
    .venv/bin/python -m benchmarks.audits clock
    .venv/bin/python -m benchmarks.audits replay     # all certificates of libraries, on fresh fits
"""

import argparse
import itertools
import math
import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent

from benchmarks import recording
from benchmarks.audited import FIVE
from helpers import erm, meta, neural, synthesis
from helpers.data import Domain, Schema
from helpers.meta.published import PublishedClassifier
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Guarantee, event_epsilon, secure_generator
from helpers.privacy.audit import (
    Certificate,
    Interpreter,
    Pair,
    audit_object,
    fits_needed,
    rare_class_pairs,
    replay_certificate,
    schema_pairs,
)
from helpers.privacy.audit.observation import as_release
from helpers.privacy.ledger import discrete_laplace

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ROOT / "benchmarks" / "audited.py"
CERTIFICATES = ROOT / "results" / "audits"
RELATIONS = {"add/remove": ADD_REMOVE, "replace-one": REPLACE_ONE}
CONFIDENCE = 0.999


class Row(NamedTuple):
    """One call of a library: what it claims, and the pair that shows most; `fits` as in `audit_object`."""

    package: str
    call: str
    target: str
    epsilon: float
    delta: float
    relation: str
    pair: str
    fits: int | None = 0
    low: float = -1.0
    high: float = 1.0
    n_features: int = 2
    environment: str = "audited"

    @property
    def python(self) -> Path:
        """The interpreter that has the library."""
        return ROOT / "benchmarks" / f".venv-{self.environment}" / "bin" / "python"


def _sgd(noise: float, rate: float, steps: int) -> float:
    """Epsilon of DP-SGD at delta 1e-5, by loss distributions."""
    steps_taken = SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps)
    return event_epsilon(steps_taken, 1e-5, ADD_REMOVE)


ROWS = (
    Row("diffprivlib", "GaussianNB, bounds given", "gaussian_nb", 1, 0, "replace-one", "first of its class"),
    Row("diffprivlib", "GaussianNB, counts", "gaussian_nb", 1, 0, "add/remove", "at the bound", None),
    Row("diffprivlib", "GaussianNB, bounds (305, 315)", "gaussian_nb_far", 1, 0, "replace-one", "many", None, 305, 315),
    Row("diffprivlib", "LogisticRegression", "logistic_regression", 1, 0, "replace-one", "first of its class"),
    Row(
        "diffprivlib",
        "LogisticRegression, data_norm 100",
        "logistic_regression_norm",
        1,
        0,
        "replace-one",
        "alone",
        4000,
        -100,
        100,
        1,
    ),
    Row(
        "diffprivlib",
        "LinearRegression, bounds from 0",
        "linear_regression",
        1,
        0,
        "replace-one",
        "first of its class",
        0,
        0,
        100,
    ),
    Row("diffprivlib", "RandomForestClassifier, stored seed", "forest_redrawn", 0.1, 0, "replace-one", "five", None),
    Row("diffprivlib", "RandomForestClassifier, as many trees as records", "forest", 1, 0, "add/remove", "dealt", None),
    Row("diffprivlib", "StandardScaler, bounds given", "standard_scaler", 1, 0, "replace-one", "at the bound", None),
    Row(
        "Opacus",
        "100 records or 101, batch 50",
        "opacus_batches",
        _sgd(20.0, 0.5, 2),
        1e-5,
        "add/remove",
        "one over a batch",
        400,
    ),
    *(
        Row("Opacus", call, target, _sgd(4.0, 0.5, 2), 1e-5, "add/remove", "first of its class", 3000)
        for call, target in (
            ("class weights from the labels", "opacus_class_weights"),
            ("public class weights, mean loss", "opacus_fixed_weights"),
        )
    ),
    Row(
        "Opacus",
        "BatchNorm1d(affine=False)",
        "opacus_batch_norm",
        _sgd(4.0, 0.25, 4),
        1e-5,
        "add/remove",
        "beyond the bound",
        400,
    ),
    Row("Opacus", "plain linear model", "opacus", _sgd(4.0, 0.25, 4), 1e-5, "add/remove", "at the bound", 600),
    Row("DataSynthesizer", "default seed", "data_synthesizer", 1, 0, "replace-one", "label"),
    Row("DataSynthesizer", "another seed each time", "data_synthesizer_seeded", 1, 0, "replace-one", "at the bound"),
    Row("DP-EBM", "bounds left out", "ebm", 1, 1e-5, "replace-one", "at the bound"),
    Row("DP-EBM", "bounds given", "ebm_bounds", 1, 1e-5, "replace-one", "first of its class"),
    Row("OpenDP", "Laplace sum and count", "opendp_mean", 1, 0, "replace-one", "label", None),
    *(
        Row("dpmm", call, target, 1, 1e-5, "add/remove", "first of its class", fits, environment="synthesis")
        for call, target, fits in (
            ("PrivBayesGM, domain left out", "dpmm_privbayes_inferred", 0),
            ("PrivBayesGM, domain given", "dpmm_privbayes", None),
            ("AIMGM, domain given", "dpmm_aim", None),
        )
    ),
)


def pairs(row: Row) -> list[Pair]:
    """The pair of the row."""
    if row.pair == "five":
        X, y = FIVE
        return [Pair("five", "the last label of five", FIVE, (X, np.zeros_like(y)))]
    if row.pair == "dealt":
        X, y = np.zeros((21, 1)), np.arange(21) % 2
        return [Pair("dealt", "a record at the end of 20 whose labels take turns", (X, y), (X[:20], y[:20]))]
    if row.pair == "many":  # with few records diffprivlib's sums are cut at the number of records times a bound
        rng = np.random.default_rng(0)
        X, y = rng.uniform(row.low, row.high, (1000, row.n_features)), np.arange(1000) % 2
        return [Pair("many", "one label of 1,000", (X, y), (X, np.append(y[:-1], 0)))]
    made = rare_class_pairs(RELATIONS[row.relation], n_features=row.n_features, low=row.low, high=row.high)
    return [pair for pair in made if pair.name == row.pair]


def file_of(row: Row) -> Path:
    return CERTIFICATES / f"{row.target.replace('_', '-')}-{row.relation.replace('/', '-')}.json"


def _audited(row: Row) -> dict[str, str]:
    """The certificate of a row, as text."""
    claim = Guarantee(row.epsilon, row.delta, RELATIONS[row.relation])
    with tempfile.TemporaryDirectory() as folder, Interpreter(row.python, f"{TARGETS}:{row.target}") as interpreter:
        found = audit_object(
            None,
            claim,
            pairs(row),
            fits=row.fits,
            confidence=CONFIDENCE,
            look=interpreter.look,
            say=lambda line: print(line, file=sys.stderr),
        )
        found.versions.update(interpreter.versions())
        found.save(Path(folder) / "certificate.json")
        return {"text": (Path(folder) / "certificate.json").read_text()}


def libraries() -> None:
    """Audit every row, and write the certificates and the table."""
    CERTIFICATES.mkdir(exist_ok=True)
    trials = {file_of(row).name: partial(_audited, row) for row in ROWS}
    for row in recording.run("audits-libraries", trials, [{"method": name} for name in trials]).itertuples():
        (CERTIFICATES / row.method).write_text(row.text)
    found = [Certificate.load(file_of(row)) for row in ROWS]
    table = pd.DataFrame([_summary(row, one) for row, one in zip(ROWS, found, strict=True)])
    versions = {name: version for one in found for name, version in one.versions.items()}
    seconds = sum(one.seconds for one in found)
    recording.record(table, "audit-libraries", {"confidence": CONFIDENCE}, seconds, versions=versions)


def _summary(row: Row, found: Certificate) -> dict:
    """A row of the table: the finding that proves most."""
    best = max(found.findings, key=lambda finding: finding.epsilon, default=None)
    disclosed = any(note.startswith("Disclosed") for note in found.notes)
    return {
        "library": row.package,
        "call": row.call,
        "relation": row.relation,
        "claimed": round(row.epsilon, 3),
        "delta": row.delta,
        "differs in": pairs(row)[0].told,
        "event": "" if best is None else str(best.event),
        "hits": 0 if best is None else best.hits,
        "hits on the neighbour": 0 if best is None else best.neighbour_hits,
        "fits": 0 if best is None else best.trials,
        "epsilon at least": 0.0 if best is None else round(best.epsilon, 3),
        "without statistics": any(
            one.epsilon > row.epsilon and one.event.value is not None and one.event.threshold is None
            for one in found.findings
        ),
        "verdict": ("disclosed by a warning" if disclosed else "hidden") if found.refuted else "not refuted",
        "seconds": round(found.seconds, 1),
        "target": row.target,
        "certificate": file_of(row).name,
    }


class Built(NamedTuple):
    """What a builder of `OWN` may use: the budget and what is public of 40 records with two numbers each."""

    epsilon: float
    relation: NeighboringRelation

    @property
    def public(self) -> dict:
        return {"neighbouring": self.relation} | ({"n_records": 40} if self.relation is ADD_REMOVE else {})

    @property
    def synthetic(self) -> dict:
        domain = Domain.from_bounds(np.tile([-1.0, 1.0], (2, 1)), n_bins=4)
        return {"domain": domain, "neighbouring": self.relation}

    @property
    def learner(self) -> erm.OutputPerturbationClassifier:
        return erm.OutputPerturbationClassifier(self.epsilon, 0.1, **self.public)


def _kernel(b: Built) -> erm.KernelClassifier:
    return erm.KernelClassifier(b.learner, b.epsilon, n_frequencies=4)


def _published(b: Built) -> Callable:
    def publish(X, y):
        table = X.assign(ill=y)
        return PublishedClassifier.fit(table, SCHEMA, epsilon=b.epsilon, neighbouring=b.relation)

    return publish


SCHEMA = Schema.parse("""
basis: made up for an audit
rows_per_person: 1
label: {column: ill, levels: [no, yes], minority: yes}
columns: {age: {kind: integer, low: 0, high: 99}, smokes: {kind: categorical, levels: [no, yes]}}
""")


class _Holder(NamedTuple):
    """A fitted classifier as `PublishedClassifier` hands one out."""

    model: Any

    def predict_proba(self, X):
        return self.model.predict_proba(X)


def _network(built: Built) -> Callable[[Any, Any], _Holder]:
    """A small network, whose own `model` is a name where an audit of our own looks for what was fitted."""

    def publish(X, y):
        return _Holder(neural.DPNeuralClassifier(epsilon=built.epsilon, epochs=4, n_records=40).fit(X, y))

    return publish


class Own(NamedTuple):
    """How a method is built, how many judged fits on each table a row may take, and the relations that the method has.

    Where more would be needed, 500 are made, and the row says that they are not enough.
    """

    build: Callable[[Built], Any]
    fits: int
    relations: tuple[str, ...] = tuple(RELATIONS)


_REPLACED, _ADDED = ("replace-one",), ("add/remove",)
_GRID = {"regularization": [0.05, 0.5]}
_LITTLE = {"delta": 1e-6, "max_iters": 5, "n_components": 8}
OWN = {
    "PrivateMomentClassifier": Own(
        lambda b: erm.PrivateMomentClassifier(b.epsilon, 1e-6, neighbouring=b.relation), 3000
    ),
    "PublishedClassifier": Own(_published, 500),
    "PrivateLogisticRegression": Own(lambda b: meta.PrivateLogisticRegression(b.epsilon, **b.public), 12_000),
    "OutputPerturbationClassifier": Own(lambda b: b.learner, 12_000),
    "ObjectivePerturbationClassifier": Own(
        lambda b: erm.ObjectivePerturbationClassifier(b.epsilon, **b.public), 12_000
    ),
    "DPGradientDescentClassifier": Own(lambda b: erm.DPGradientDescentClassifier(b.epsilon, 1e-6, **b.public), 3000),
    "DPCoordinateDescentClassifier": Own(
        lambda b: erm.DPCoordinateDescentClassifier(b.epsilon, 1e-6, **b.public), 3000
    ),
    "DPGreedyCoordinateClassifier": Own(lambda b: erm.DPGreedyCoordinateClassifier(b.epsilon, 1e-6, **b.public), 3000),
    "KernelClassifier": Own(lambda b: erm.KernelClassifier(b.learner, b.epsilon, n_frequencies=4), 3000),
    "MidpointClassifier": Own(lambda b: erm.MidpointClassifier(epsilon=b.epsilon), 3000, _REPLACED),
    "DPNeuralClassifier": Own(_network, 500, _ADDED),
    "PrivateBaggingClassifier": Own(lambda b: meta.PrivateBaggingClassifier(b.learner, 3, b.epsilon), 3000, _REPLACED),
    "SubsampleAndAggregateClassifier": Own(
        lambda b: meta.SubsampleAndAggregateClassifier(erm.ERMClassifier(0.1), 4, b.epsilon, neighbouring=b.relation),
        3000,
    ),
    "PATEClassifier": Own(
        lambda b: meta.PATEClassifier(erm.ERMClassifier(0.1), 4, b.epsilon, neighbouring=b.relation), 1500
    ),
    "ThresholdClassifier": Own(lambda b: meta.ThresholdClassifier(b.learner, b.epsilon), 3000),
    "PartitionedSearch": Own(lambda b: meta.PartitionedSearch(b.learner, _GRID, b.epsilon), 3000, _REPLACED),
    "RepeatedSearch": Own(lambda b: meta.RepeatedSearch(b.learner, _GRID, b.epsilon), 1500, _REPLACED),
    "PrivBayes": Own(lambda b: synthesis.PrivBayes(b.epsilon, domain=b.synthetic["domain"]), 3000, _REPLACED),
    "MST": Own(lambda b: synthesis.MST(b.epsilon, 1e-6, **b.synthetic), 500),
    "AIM": Own(lambda b: synthesis.AIM(b.epsilon, **_LITTLE, **b.synthetic), 500),
    "GEM": Own(lambda b: synthesis.GEM(b.epsilon, T=2, **_LITTLE, **b.synthetic), 1500),
    "BalancedSynthesizer": Own(
        lambda b: synthesis.BalancedSynthesizer(synthesis.GEM(b.epsilon, T=2, **_LITTLE, **b.synthetic), 40), 1500
    ),
}
_PAIRS = ("first of its class", "at the bound", "label", "one over a batch", "alone")


def _own_pairs(name: str, neighbouring: NeighboringRelation) -> list[Pair]:
    if name == "PublishedClassifier":
        found = schema_pairs(SCHEMA, neighbouring)
    else:
        found = rare_class_pairs(neighbouring, n_features=1 if name == "MidpointClassifier" else 2)
    return [pair for pair in found if pair.name in _PAIRS]


def _own(build: Callable[[Built], Any], pairs_of: Callable, most: int, claimed: float, relation: str) -> dict[str, Any]:
    """The judged audit of one method of the package at one budget."""
    neighbouring = RELATIONS[relation]
    pairs = pairs_of(neighbouring)
    release = as_release(build(Built(claimed, neighbouring)))
    fitted = release(*pairs[0].data)
    claim = (fitted.model if hasattr(fitted, "model") else fitted).guarantee_
    if claim.neighbouring is not neighbouring or not math.isclose(claim.epsilon, claimed, rel_tol=1e-6):
        raise ValueError(f"the method must claim {claimed} under {relation}, got {claim}")
    half = 1 - (1 - CONFIDENCE) / 2  # the other half is for what needs no noise
    try:
        needed = fits_needed(claimed, claim.delta, half)
    except ValueError:  # more than anybody makes
        needed = 10**6
    fits = max(needed, 1000) if needed <= most else 500
    found = audit_object(
        release,
        claim,
        pairs,
        fits=fits,
        confidence=CONFIDENCE,
        say=lambda line: print(line, file=sys.stderr),
    )
    return {
        "delta": claim.delta,
        "judged fits": fits,
        "enough": needed <= fits,
        "epsilon at least": round(found.shown, 3),
        "event": str(found.findings[-1].event),
        "refuted": bool(found.refuted),
        "fits": found.fits,
        "seconds": round(found.seconds, 1),
    }


def own() -> None:
    """Judged audits of all methods of the package, at three budgets and under the relations that they have."""
    trials = {name: partial(_own, one.build, partial(_own_pairs, name), one.fits) for name, one in OWN.items()}
    cells = [
        {"method": name, "relation": relation, "claimed": epsilon}
        for name, one in OWN.items()
        for relation, epsilon in itertools.product(one.relations, (0.1, 1.0, 5.0))
    ]
    table = recording.run("audits-own", trials, cells)
    recording.record(table, "audit-own", {"confidence": CONFIDENCE}, table.seconds.sum())


_SECRET = secure_generator()


def _below(limit: int) -> int:
    """Uniform on 0, ..., limit - 1, by rejection."""
    bits = (limit - 1).bit_length()
    while True:
        number = int.from_bytes(_SECRET.bytes((bits + 7) // 8), "big") >> (-bits % 8)
        if number < limit:
            return number


def _exponential_coin() -> bool:
    """True with probability exp(-1): the first k at which a coin of probability 1/k fails is odd."""
    k = 1
    while _below(k) < 1:
        k += 1
    return k % 2 == 1


def _by_tosses(X, y) -> int:
    """Canonne, Kamath and Steinke 2020, Algorithm 2, at scale 1: as several libraries draw."""
    while True:
        size = 0
        while _exponential_coin():
            size += 1
        negative = _below(2)
        if size or not negative:  # zero must not come with two signs
            return int(y[0]) + (-size if negative else size)


def _by_digits(X, y) -> int:
    return int(discrete_laplace(y, Fraction(1), _SECRET)[0])


def clock() -> None:
    """Does CPU time tell a noisy count of 0 from one of 1? For noise of epsilon 1 by tosses, and by binary digits.

    For a quiet machine: whatever else runs hides times.
    """
    X = np.zeros((1, 1))
    pair = Pair("count", "a count of 0 or 1", (X, np.array([0])), (X, np.array([1])))
    rows = []
    for sampler, release in (("tosses of a coin", _by_tosses), ("binary digits", _by_digits)):
        found = audit_object(
            release, Guarantee(1.0, 0.0, REPLACE_ONE), [pair], fits=4000, confidence=CONFIDENCE, clock=True
        )
        best = found.findings[-1]
        rows.append(
            {
                "sampler": sampler,
                "claimed": 1.0,
                "hits": best.hits,
                "hits on the neighbour": best.neighbour_hits,
                "fits": best.trials,
                "epsilon at least": round(best.epsilon, 3),
                "event": str(best.event),
                "refuted": bool(found.refuted),
                "seconds": round(found.seconds, 1),
            }
        )
        print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    recording.record(table, "audit-clock", {"confidence": CONFIDENCE}, table.seconds.sum())


def replay() -> int:
    """All certificates of libraries again; how many are not confirmed."""
    missed = 0
    for row in ROWS:
        old = Certificate.load(file_of(row))
        if not old.findings:
            continue
        with Interpreter(row.python, f"{TARGETS}:{row.target}", clock=old.clock) as interpreter:
            new = replay_certificate(old, None, look=interpreter.look)
        missed += bool(old.refuted) != bool(new.refuted)
        print(f"{row.package}, {row.call}: at least {old.shown:.2f}, again {new.shown:.2f}", flush=True)
    return missed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"libraries": libraries, "own": own, "clock": clock, "replay": replay}
    parser.add_argument("what", choices=parts)
    sys.exit(parts[parser.parse_args().what]())
