"""A fitted object depends on its records through its ledger's answers alone, and the ledger's bill is true.

Every private estimator of the package with `fit`, in all variants of its parameters. One fit is recorded: the terms of
each release, its exact answer and its noisy one. Then four things have to hold:

*Replay.* Fitted to *other* records (another number of them where the relation adds and removes), while the recorded
answers are given in place of its own, the estimator arrives at the same object: the same attributes, the same
predictions or samples, and the same terms of every release.
*Bill.* The guarantee's event is what was released, and an accountant of its own finds no more than is claimed.
*Neighbours.* Fitted to a neighbour while the recorded answers are given, each exact answer moves by no more than is
billed.
*Noise.* Noisy answers less exact ones follow the law that is billed.
"""

import hashlib
import inspect
import itertools
import math
import re
import types
from collections import Counter, defaultdict
from functools import partial
from typing import Any, NamedTuple

import inventory
import numpy as np
import pytest
import torch
from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from scipy import stats

from helpers.data.domain import Domain
from helpers.erm import OutputPerturbationClassifier
from helpers.erm.scaling import ScaledLinearClassifier
from helpers.meta import search
from helpers.neural import FTTransformer, Schedule
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, ApproximateDpEvent, Ledger, event_epsilon, randomness
from helpers.privacy.ledger import Terms
from helpers.synthesis import GEM, MST
from helpers.synthesis.base import MixtureSynthesizer

FITTED = [cls for cls in inventory.private() if not hasattr(cls, "fit_resample")]  # samplers release nothing themselves
each = pytest.mark.parametrize("cls", FITTED, ids=lambda cls: cls.__name__)


def variants(cls):
    """Those of the inventory, and such as bring records near their bounds."""
    found = inventory.variants(cls)
    if issubclass(cls, MixtureSynthesizer | MST):  # which choose among marginals of a public schema
        domain = Domain.from_bounds(np.tile([-1.0, 1.0], (inventory.n_features(cls), 1)), n_bins=4)
        choosing = {"domain": domain, "workload": "all"} | ({} if cls is MST else {"k": 2})
        labels = Domain.from_bounds(np.tile([-1.0, 1.0], (inventory.n_features(cls), 1)), n_bins=1)
        # One marginal alone: GEM's of all attributes, AIM's of the label. All noise is Gaussian then.
        whole = {"domain": domain, "workload": "label", "k": inventory.n_features(cls) + 1 if cls is GEM else 1}
        alone = () if cls is MST else (whole, whole | {"neighbouring": ADD_REMOVE})
        return (*found, choosing, choosing | {"neighbouring": ADD_REMOVE}, choosing | {"domain": labels}, *alone)
    if issubclass(cls, OutputPerturbationClassifier):
        strong = {"loss": "huber", "regularization": 10.0}  # under this penalty every record pulls with all its force
        return (*found, strong, strong | {"delta": 1e-3})
    if issubclass(cls, ScaledLinearClassifier):
        # Much noise makes long steps; then a record more may be far on the wrong side, and pulls with all its force.
        far = {"epsilon": 0.01, "step": 10.0, "regularization": 1e-6, "neighbouring": ADD_REMOVE, "n_records": 60}
        # A prior that is mostly noise puts one class on the wrong side whatever its features are, so that a record and
        # the one that replaces it may both pull with all their force, in opposite directions.
        biased = {"prior": "offset", "counts_share": 0.5, "epsilon": 0.05, "step": 1e-3, "fit_intercept": False}
        return (*found, far, far | {"scale": None}, biased)
    return found


@pytest.fixture(autouse=True)
def nearly_all_records_are_judges(monkeypatch):
    """Where searches hold some out, so that the last one, which changes, is a judge too."""
    monkeypatch.setattr(search, "_HELD_OUT", 0.95)


class Entry(NamedTuple):
    """One release: whether it is part of another's query, and whether of a fit that is billed with its guarantee; its
    ledger's bill, its terms, both answers, and the generator after it."""

    within: bool
    billed_whole: bool
    bill: dict
    terms: Terms
    exact: Any
    noisy: Any
    state: dict


class Tape:
    """Releases of one fit, to be given again; and what guarantees were made of them."""

    def __init__(self, live=False):
        self.entries, self.exact, self.guarantees, self.replaying = [], [], [], False
        self.live = live  # are fits that are part of a query, and released by it alone, left to their own answers?
        self.queries, self.fits = 0, 0  # in how many of them we are

    def install(self, patch):
        release, guarantee, accounted = Ledger._release, Ledger.guarantee, Schedule.guarantee

        def released(ledger, query, draw, terms):
            asked = []

            def seen(records):
                asked.append(query(records))
                return asked[0]

            is_fit = terms.kind == "fitted"
            self.queries, self.fits = self.queries + (not is_fit), self.fits + is_fit
            noisy = release(ledger, seen, draw, terms)
            self.queries, self.fits = self.queries - (not is_fit), self.fits - is_fit
            if terms.kind == "fitted":  # by a ledger of its own
                return noisy
            if not self.replaying:
                self.entries.append(
                    Entry(
                        self.queries > 0,
                        self.fits > 0,
                        ledger.bill,
                        terms,
                        snapshot(asked[0]),
                        noisy,
                        ledger.rng.bit_generator.state,
                    )
                )
                return noisy
            assert len(self.exact) < len(self.entries), "a release that the first fit did not make"
            entry = self.entries[len(self.exact)]
            self.exact.append(snapshot(asked[0]))
            if self.live and entry.within:
                return noisy
            assert described(terms) == described(entry.terms), "public terms of a release depend on the records"
            ledger.rng.bit_generator.state = entry.state  # a sample's draws are as many as there are records
            return entry.noisy

        def guaranteed(ledger, *args, **kwargs):
            found = guarantee(ledger, *args, **kwargs)
            if not self.replaying:
                self.guarantees.append((ledger, found, kwargs.get("bound")))
            return found

        def scheduled(schedule, *args, **kwargs):
            found = accounted(schedule, *args, **kwargs)
            if not self.replaying and kwargs.get("ledger") is not None:
                self.guarantees.append((kwargs["ledger"], found, None))
            return found

        patch.setattr(Ledger, "_release", released)
        patch.setattr(Ledger, "guarantee", guaranteed)
        patch.setattr(Schedule, "guarantee", scheduled)  # which holds its steps against the ledger's bill

    def owns(self, entry):
        """Whether the release is in the bill of the fit itself. Those of learners inside, and of their dry runs, have
        other neighbours: a bag can hold a record twice."""
        found = [self.guarantees[-1][0]]
        for ledger in found:
            found += itertools.chain(*ledger._parts, (one._view for one in ledger._classes))
        return any(entry.bill is ledger.bill for ledger in found)


def snapshot(value):
    """A copy of an exact answer: a list of arrays, whatever it is."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, list | tuple):
        return [part for item in value for part in snapshot(item)]
    return [np.array(value, dtype=float)]


def described(terms):
    """Public terms as text that can be compared."""
    return repr([part.tolist() if isinstance(part, np.ndarray) else part for part in terms])


def fitted(cls, parameters, records, patch):
    """A fit whose secret draws come from keys that count from zero, so that two fits draw the same."""
    keys = (hashlib.sha256(f"replay {parameters} {i}".encode()).digest() for i in itertools.count())
    drawn = types.SimpleNamespace(randbits=lambda bits: int.from_bytes(next(keys), "big") % (1 << bits))
    patch.setattr(randomness, "secrets", drawn)
    return inventory.fit(inventory.build(cls, **parameters), *records)


def recorded(cls, parameters, records, *again, live=False):
    """Tape and models of a fit to the records, and of fits to others to which the answers are given."""
    tape = Tape(live)
    with pytest.MonkeyPatch.context() as patch:
        tape.install(patch)
        models = [fitted(cls, parameters, records, patch)]
        tape.replaying = True
        for other in again:
            tape.exact = []
            models.append(fitted(cls, parameters, other(models[0]) if callable(other) else other, patch))
            assert len(tape.exact) == len(tape.entries), f"{parameters}: fewer releases than in the first fit"
    assert tape.entries, f"{parameters}: no release at all"
    return tape, models


def others(model, parameters, X, y):
    """Other records with the same columns and classes: another number of them where the model hides that."""
    is_hidden = model.guarantee_.neighbouring == ADD_REMOVE and "n_records" not in parameters
    n = len(X) + (7 if is_hidden else 0)
    X = np.random.default_rng(1).uniform(-0.4, 0.4, (n, X.shape[1]))
    return X, y[::-1] if parameters.get("counts") == "public" else np.resize([0, 1, 1, 0, 0], n)


_OF_EVERY_MODULE = set(vars(torch.nn.Module()))


def tree(value, seen=()):
    """What an object holds, as nested tuples that can be compared.

    Generators and classes count by their names, functions by what they hold: closed over, as defaults, or bound to.
    """
    if isinstance(value, torch.nn.Module):  # weights, buffers, and whatever else a layer was given
        kept = [{k: v for k, v in vars(layer).items() if k not in _OF_EVERY_MODULE} for layer in value.modules()]
        return type(value).__name__, tree(value.state_dict(), seen), tree(kept, seen)
    if isinstance(value, torch.Tensor):
        return ("tensor", value.detach().cpu().numpy().tobytes())
    if isinstance(value, np.ndarray):
        return (
            "array",
            value.shape,
            [tree(part, seen) for part in value] if value.dtype == object else value.tobytes(),
        )
    if isinstance(value, dict):
        return tuple((repr(key), tree(part, seen)) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(tree(part, seen) for part in value)
    if inspect.isclass(value) or inspect.ismodule(value) or isinstance(value, np.random.Generator):
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, partial):
        return tree((value.func, value.args, value.keywords), seen)
    if inspect.isroutine(value):
        if id(value) in seen or inspect.ismodule(getattr(value, "__self__", None)):
            return value.__qualname__
        cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        held = [getattr(value, name, None) for name in ("__self__", "__defaults__", "__kwdefaults__")]
        return value.__qualname__, tree([*cells, *held], (*seen, id(value)))
    if hasattr(value, "__dict__") and id(value) not in seen:
        return type(value).__name__, tree(vars(value), (*seen, id(value)))
    return repr(value)


def outputs(model, X):
    """What a user can ask of it at public records, without further noise."""
    asked = [name for name in ("decision_function", "predict_proba", "predict") if hasattr(model, name)]
    found = [getattr(model, name)(X) for name in asked]
    if hasattr(model, "sample"):
        found += model.sample(20, random_state=0)
    return found


@each
def test_nothing_but_releases_reaches_the_object_and_the_bill_is_true(cls):
    X, y = inventory.data(cls)
    residuals = defaultdict(list)
    for parameters in variants(cls):
        other = partial(others, parameters=parameters, X=X, y=y)
        tape, (first, second) = recorded(cls, parameters, (X, y), other)
        assert tree(vars(first)) == tree(vars(second)), parameters
        for mine, yours in zip(outputs(first, X), outputs(second, X), strict=True):
            np.testing.assert_array_equal(mine, yours, err_msg=str(parameters))
        check_bill(first, tape)
        for entry in filter(tape.owns, tape.entries):
            for law, numbers in noise(entry):
                residuals[law].append(numbers)
    for law, numbers in residuals.items():
        pooled = np.concatenate(numbers)
        assert len(pooled) < 20 or stats.kstest(pooled, LAWS[law]).pvalue > 1e-6, (law, len(pooled))


def check_bill(model, tape):
    """What the guarantee says is what was released, and its event costs no more, by an accountant that reads it
    alone."""
    assert tape.guarantees, "a guarantee that no ledger has made"
    ledger, guarantee, bound = tape.guarantees[-1]
    # A dry run of a learner is on public records: its exact answers are the same where the records are others.
    outside = [
        entry
        for entry, again in itertools.zip_longest(tape.entries, tape.exact)
        if not (entry.within or entry.billed_whole or tape.owns(entry))
        and (again is None or not all(map(np.array_equal, entry.exact, again)))
    ]
    assert not outside, "a release that is in no bill of the guarantee's"
    billed = [SelfComposedDpEvent(event, n) for event, n in ledger._events().items()]
    billed += [ApproximateDpEvent(max(part.epsilon(0.0) for part in parts), 0.0) for parts in ledger._parts]
    assert counted(guarantee.event) == counted(ComposedDpEvent(billed) if bound is None else bound)
    for bill in (ledger.bill, *(one._view.bill for one in ledger._classes)):
        seen = Counter(entry.terms.event for entry in tape.entries if entry.bill is bill and entry.terms.event)
        assert {event: n for event, n in bill.items() if event in seen} == dict(seen)
    assert guarantee.neighbouring is ledger.neighbouring
    # Renyi accounting reads zero-concentrated events, loss distributions all others.
    method = "rdp" if "ZCDpEvent" in repr(guarantee.event) else "pld"
    delta = guarantee.delta * (1 + 1e-9) or 1e-13
    cost = event_epsilon(guarantee.event, delta, guarantee.neighbouring, method=method)
    assert cost <= guarantee.epsilon * (1 + 1e-3), guarantee
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (guarantee.epsilon, guarantee.delta)
    if "epsilon" in inventory.parameter_names(type(model)):
        assert model.guarantee_.epsilon <= model.epsilon * (1 + 1e-9)


def counted(event):
    """The events that an event is composed of, with their numbers."""
    match event:
        case ComposedDpEvent(events=parts):
            return sum((counted(part) for part in parts), Counter())
        case SelfComposedDpEvent(event=inner, count=n):
            return Counter({part: n * times for part, times in counted(inner).items()})
    return Counter([event])


LAWS = {"normal": stats.norm.cdf, "laplace": stats.laplace.cdf, "uniform": stats.uniform.cdf}


def noise(entry):
    """Residuals of one release in units of the size that is billed, with the name of their law."""
    kind, _, sensitivity, units, event = entry.terms
    if isinstance(event, PoissonSampledDpEvent):
        event = event.event
    if kind == "sweeps":
        event = next(event for event in entry.bill if isinstance(event, GaussianDpEvent) and entry.bill[event] > 1)
    if kind not in ("gaussian", "of_class", "sampled", "sweeps", "laplace", "k_norm"):
        return
    residuals = distances(entry.exact, snapshot(entry.noisy), units) / sensitivity
    if kind == "k_norm":
        yield "uniform", stats.gamma(residuals.size).cdf([np.linalg.norm(residuals) * event.epsilon])
    else:
        yield "laplace" if kind == "laplace" else "normal", residuals / event.noise_multiplier


def distances(one, other, units):
    """Entries of the differences of two answers, in units."""
    units = units if isinstance(units, list | tuple) else [units] * len(one)
    parts = zip(one, other, units, strict=True)
    return np.concatenate([((b.reshape(a.shape) - a) / unit).ravel() for a, b, unit in parts])


# How far an extreme record moves what is asked, at least, over what is billed.
NEAR = 0.9 - 1e-9
# The answers of one learner of many, which could be any: test_meta_aggregation has learners that go from one end of
# what is allowed to the other.
# Wrappers whose releases are all their learners', each billed with its guarantee as a whole: the test has nothing of
# their own to look at, and the learners are tested as estimators.
ALL_ELSEWHERE = {
    "KernelClassifier": "one learner is fitted to random features, which no record enters",
    "PrintedBaggingClassifier": "as PrivateBaggingClassifier, with another sum over the bags",
    "PrivateBaggingClassifier": "learners are fitted to bags, whose law test_meta_bagging_theory enumerates",
    "RepeatedSearch": "trials have ledgers of their own, and their number is random: test_meta_search",
}
ELSEWHERE = {"PATEClassifier": {"gaussian"}, "SubsampleAndAggregateClassifier": {"gaussian", "k_norm"}}


def pairs(cls, relation):
    """Neighbours whose last record, or additional one, is extreme."""
    X, y = inventory.data(cls)
    ends = [(np.full(X.shape[1], sign / math.sqrt(X.shape[1])), label) for sign in (-1.0, 1.0) for label in (0, 1)]

    def ending(record):
        return np.vstack([X[:-1], record[0]]), np.append(y[:-1], record[1])

    if relation == ADD_REMOVE:
        return [((X[:-1], y[:-1]), ending(record)) for record in ends]
    return [(ending(one), ending(other)) for one, other in itertools.combinations(ends, 2)]


def moves(tape):
    """By kind of release, how far answers are from the recorded ones, over what is billed."""
    sweeps, of_classes = Counter(), 0.0
    for entry, exact in zip(tape.entries, tape.exact, strict=True):
        kind, norm, sensitivity, units, _ = entry.terms
        before = entry.exact
        if kind == "class_counts" and len(before[0]) == 2 and sensitivity == 1 and sum(before[0]) == sum(exact[0]):
            before, exact = [before[0][1:]], [exact[0][1:]]  # the other count follows from a public total
        if not tape.owns(entry):
            continue
        if kind == "sweeps":
            billed = next(n for event, n in entry.bill.items() if isinstance(event, GaussianDpEvent) and n > 1)
            sweeps[id(entry.bill)] += np.sum(distances(before, exact, units) / sensitivity) ** 2 / billed
        elif kind == "of_class":  # all of them together are one Gaussian mechanism, that of the guarantee
            noise_scale = sensitivity * entry.terms.event.noise_multiplier
            of_classes += float(np.sum((distances(before, exact, units) / noise_scale) ** 2))
        elif norm:
            size = np.linalg.norm(distances(before, exact, units), {"l1": 1, "l2": 2, "linf": np.inf}[norm])
            yield kind, size / sensitivity
    yield from (("sweeps", math.sqrt(square)) for square in sweeps.values())
    if of_classes:
        yield "of_class", math.sqrt(of_classes) * tape.guarantees[-1][1].event.noise_multiplier


@each
def test_no_neighbour_moves_an_answer_by_more_than_is_billed(cls):
    largest = defaultdict(float)
    for parameters in variants(cls):
        if parameters.get("counts") == "public":
            continue  # neighbours keep their labels there
        if parameters.get("model") == "ft-transformer":  # dropout falls otherwise where there is a record more
            parameters = parameters | {"model": partial(FTTransformer, dropout=0.0)}
        relation = inventory.fit(inventory.build(cls, **parameters), *inventory.data(cls)).guarantee_.neighbouring
        for here, there in pairs(cls, relation)[: 2 if len(parameters) == 1 else None]:
            tape, _ = recorded(cls, parameters, here, there, live=True)
            for kind, ratio in moves(tape):
                assert ratio <= 1 + 1e-9, (kind, parameters)
                largest[kind] = max(largest[kind], ratio)
    print(cls.__name__, {kind: round(ratio, 3) for kind, ratio in largest.items()})
    assert (not largest) == (cls.__name__ in ALL_ELSEWHERE), "no release to look at"
    far = {kind for kind, ratio in largest.items() if ratio < NEAR}
    assert far == set(ELSEWHERE.get(cls.__name__, ())), largest


class Leaky(OutputPerturbationClassifier):
    """Adds something exact to what it has released."""

    leak = "mean"

    def fit(self, X, y):
        super().fit(X, y)
        if self.leak == "mean":
            self.mean_ = X.mean()
        elif self.leak == "coefficients":
            self.coef_ = self.coef_ + 1e-9 * X[0, 0]
        elif self.leak == "closure":
            self.predictor_ = lambda Z: Z - X.mean()
        elif self.leak == "default":
            mean = X.mean()
            self.predictor_ = lambda Z, mean=mean: Z - mean
        elif self.leak == "method":
            self.predictor_ = X.mean
        elif self.leak == "partial":
            self.predictor_ = partial(np.subtract, X.mean())
        elif self.leak == "layer":
            self.module_ = torch.nn.Sequential(torch.nn.Flatten())
            self.module_[0].mean = X.mean()
        elif self.leak == "another ledger":
            Ledger(X, REPLACE_ONE, self._noise_generator(X)).laplace(np.sum, 1.0, 1.0)
        else:
            Ledger(X, REPLACE_ONE, self._noise_generator(X)).laplace(len, abs(X[0, 0]), 1.0)
        return self


HELD = ["mean", "coefficients", "closure", "default", "method", "partial", "layer"]


@pytest.mark.parametrize("leak", [*HELD, "sensitivity", "another ledger"])
def test_what_passes_the_releases_by_is_noticed(leak, monkeypatch):
    monkeypatch.setattr(Leaky, "leak", leak)
    X, y = inventory.data(OutputPerturbationClassifier)
    parameters = {"epsilon": 1.0, "regularization": 0.1}
    other = partial(others, parameters=parameters, X=X, y=y)
    if leak == "sensitivity":
        with pytest.raises(AssertionError, match="public terms of a release"):
            recorded(Leaky, parameters, (X, y), other)
    elif leak == "another ledger":
        tape, (model, _) = recorded(Leaky, parameters, (X, y), other)
        with pytest.raises(AssertionError, match="in no bill"):
            check_bill(model, tape)
    else:
        _, (first, second) = recorded(Leaky, parameters, (X, y), other)
        assert tree(vars(first)) != tree(vars(second))


@pytest.mark.parametrize("cls", inventory.private(), ids=lambda cls: cls.__name__)
def test_each_says_where_its_guarantee_is_proved(cls):
    if cls.__module__.startswith("helpers."):
        (stated,) = re.findall(r"^Proof: (.+?)\n\n", inspect.getdoc(cls), re.MULTILINE | re.DOTALL)
        assert re.search(r"here|in the literature|enumerated|as `|that of the", stated)
