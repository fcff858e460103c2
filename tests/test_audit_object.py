"""Audits of whole objects: every planted leak is found, nothing is found where there is none, and what is found can be
kept, repeated and resumed."""

import json
import sys
from collections import Counter

import numpy as np
import pandas as pd
import planted_leaks
import pytest
from scipy.spatial import ConvexHull
from scipy.stats import beta, binom, norm

from helpers import cli
from helpers.data.schema import Schema
from helpers.erm import OutputPerturbationClassifier
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Guarantee
from helpers.privacy.audit import (
    Certificate,
    Interpreter,
    Noise,
    audit_object,
    audit_one_run,
    fits_needed,
    gaussian_lower_bound,
    one_run_epsilon,
    rare_class_pairs,
    replay,
    replay_certificate,
    schema_pairs,
)
from helpers.privacy.audit.observation import as_release, observe
from helpers.privacy.audit.one_run import one_run_p_value

CLAIM = Guarantee(1.0, 0.0, REPLACE_ONE)
PAIRS = {pair.name: pair for pair in rare_class_pairs(REPLACE_ONE)}


def shown(model, pair="first of its class"):
    return observe(as_release(model), *PAIRS[pair].data, PAIRS[pair].data[0][:3])


# Planted leaks


@pytest.mark.parametrize("leak", planted_leaks.NOISELESS, ids=lambda leak: leak.__name__)
def test_a_leak_that_needs_no_noise_to_be_told_is_found(leak):
    found = audit_object(leak, CLAIM)
    assert found.refuted, str(found)


@pytest.mark.parametrize("leak", planted_leaks.NOISY, ids=lambda leak: leak.__name__)
def test_a_leak_behind_noise_is_found_by_judged_fits(leak):
    kept = [PAIRS[name] for name in ("first of its class", "beyond the bound", "alone")]
    found = audit_object(leak, CLAIM, kept, fits=None)
    assert found.refuted, str(found)
    assert found.findings[-1].trials == fits_needed(1.0, 0.0, 0.9995)


def test_bits_that_one_table_cannot_produce_are_found():
    """Noise near zero has finer bits than 1 plus noise near zero. It takes luck, and so more fits."""
    found = audit_object(planted_leaks.Bits, CLAIM, [PAIRS["alone"]], fits=2_000)
    assert found.refuted, str(found)
    assert any("finest bit" in name for name in found.findings[-1].event.names)


def test_a_clock_is_read_on_request():
    pair = [PAIRS["first of its class"]]
    assert not audit_object(planted_leaks.Slow, CLAIM, pair, fits=60).refuted
    found = audit_object(planted_leaks.Slow, CLAIM, pair, fits=60, clock=True)
    assert found.refuted
    assert found.findings[-1].event.names == ("CPU seconds",)


def test_an_object_with_a_generator_of_its_own_has_new_noise_in_every_fit():
    class Owner:
        def __init__(self):
            self.rng = np.random.default_rng()

        def fit(self, X, y):
            self.sum_ = round(np.clip(np.nan_to_num(X[:, 0]), -1, 1).sum() + self.rng.laplace(scale=2), 4)
            del self.rng

    assert audit_object(Owner(), CLAIM).refuted == ()


def test_what_changes_with_every_fit_is_not_taken_for_the_table():
    fits = []

    def release(X, y):
        fits.append(0)
        return len(fits) % 2

    assert audit_object(release, CLAIM).refuted == ()


def test_an_exact_value_on_one_side_alone_is_found():
    """No rare record gives an exact 0, one gives a noisy number."""

    def release(X, y):
        return np.random.default_rng().normal() if (y == 1).any() else 0.0

    found = audit_object(release, CLAIM)
    assert found.findings[0].event.value == 0.0
    assert found.refuted


def test_one_leak_among_many_coins_is_found():
    """Six looks make hundreds of suspects of 20,000 coins; twelve leave few."""

    def release(X, y):
        coins = np.random.default_rng().integers(2, size=1500).astype(float)
        coins[700] = y[-1]
        return coins

    assert audit_object(release, CLAIM, [PAIRS["label"]]).refuted


def test_a_certificate_of_a_seed_can_be_repeated(tmp_path):
    audit_object(planted_leaks.StoredSeed, CLAIM).save(tmp_path / "one.json")
    again = replay_certificate(Certificate.load(tmp_path / "one.json"), planted_leaks.StoredSeed)
    assert again.seeds


def test_a_seed_of_public_randomness_is_no_leak():
    """Directions drawn at random and a noisy sum along them; the seed gives the directions again, not the noise."""

    def release(X, y):
        seed = int(np.random.default_rng().integers(2**31))
        directions = np.random.default_rng(seed).normal(size=4)
        return {
            "seed": seed,
            "directions": directions,
            "sum": round(y.sum() + np.random.default_rng().laplace(scale=8), 4),
        }

    found = audit_object(release, CLAIM)
    assert found.refuted == ()
    assert "Kept in the fitted object, and another in every fit: seed" in found.notes[0]


@pytest.mark.parametrize("honest", [planted_leaks.Honest, planted_leaks.Unpicklable], ids=lambda one: one.__name__)
def test_nothing_is_found_where_there_is_no_leak(honest):
    found = audit_object(honest, CLAIM)
    assert found.refuted == ()
    assert found.shown == 0


def test_false_alarms_are_as_rare_as_the_confidence_says():
    """200 audits of a mechanism that loses exactly what it claims, at 90 %."""
    rng, pair = np.random.default_rng(5), [PAIRS["label"]]

    def look(X, y, probes):
        coin = rng.random() < 1 / (1 + np.exp(-1.0))
        return {"coin": float(coin == y[-1]), "text": f"said {coin == y[-1]}", "noise": rng.normal()}

    alarms = sum(bool(audit_object(None, CLAIM, pair, fits=60, confidence=0.9, look=look).refuted) for _ in range(200))
    assert alarms <= binom.isf(1e-4, 200, 0.1)


def test_a_mechanism_that_loses_twice_its_claim_is_refuted_at_the_planned_size():
    """In 8 of 10 audits, less what is lost because the event has to be learned: 18 of 30 are enough here."""
    rng = np.random.default_rng(6)

    def look(X, y, probes):
        return {"sum": y[-1] + rng.laplace(scale=0.5)}

    hits = sum(bool(audit_object(None, CLAIM, [PAIRS["label"]], fits=None, look=look).refuted) for _ in range(30))
    assert hits >= 18


# What is seen


def test_an_observation_has_every_part_of_an_object():
    class Inside:
        __slots__ = ("value",)

    def release(X, y):
        inside = Inside()
        inside.value = np.float32(0.5)
        circle = {"numbers": np.arange(3.0), "inside": inside, "when": None, "parts": ({1, 2}, [True])}
        circle["self"] = circle
        print("step 7")
        return circle

    seen = observe(release, *PAIRS["label"].data)
    assert seen["numbers[2]"] == 2.0
    assert seen["numbers sum"] == 3.0
    assert seen["numbers[1] finest bit"] == 0.0
    assert seen["inside.value"] == 0.5
    assert seen["inside.value finest bit"] == -1.0
    assert seen["self"] == "again"
    assert seen["printed"] == "step 7\n"
    assert seen["printed number 0"] == 7.0
    assert seen["when"] == "NoneType None"
    assert seen[" keys"] == repr("['numbers', 'inside', 'when', 'parts', 'self']").join(["str ", ""])


def test_frames_tensors_and_sparse_matrices_are_read():
    import torch
    from scipy.sparse import csr_matrix

    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    seen = observe(lambda X, y: [frame, torch.tensor([3.0]), csr_matrix([[0, 4.0]])], *PAIRS["label"].data)
    assert (seen["0.a[1]"], seen["0.b[1]"], seen["1[0]"], seen["2.data[0]"]) == (2.0, "str 'y'", 3.0, 4.0)


def test_an_exception_is_an_outcome():
    def fails(X, y):
        raise KeyError("column 3")

    seen = observe(fails, *PAIRS["label"].data)
    assert seen["exception"] == "KeyError: 'column 3'"
    assert seen["exception number 0"] == 3.0


def test_records_are_not_touched_and_two_fits_of_one_object_are_apart():
    X, y = PAIRS["label"].data
    model = planted_leaks.Honest()

    def spoils(X, y):
        X[:] = 0

    before = X.copy()
    observe(spoils, X, y)
    np.testing.assert_array_equal(X, before)
    assert shown(model)["sum_"] != shown(model)["sum_"]
    assert not hasattr(model, "sum_")


# Pairs


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
@pytest.mark.parametrize("box", [(-1.0, 1.0), (305.0, 315.0)])
def test_pairs_are_neighbours(relation, box):
    """As tables without an order they differ in one record; in "order" in none."""
    for pair in rare_class_pairs(relation, n_features=3, low=box[0], high=box[1]):
        here, there = (
            Counter((*row, label) for row, label in zip(np.nan_to_num(X, nan=7e9).tolist(), y.tolist(), strict=True))
            for X, y in (pair.data, pair.neighbour)
        )
        changed = (sum((here - there).values()), sum((there - here).values()))
        assert changed == ((0, 0) if pair.name == "order" else (1, int(relation is REPLACE_ONE))), pair.name
        assert len(pair.data[1]) - len(pair.neighbour[1]) == int(relation is ADD_REMOVE and pair.name != "order")


SCHEMA = """
basis: an example
rows_per_person: 1
label: {column: ill, levels: [no, yes], minority: yes}
columns:
  age: {kind: integer, low: 0, high: 99, missing: true}
  since: {kind: date, low: 2000-01-01, high: 2020-12-31}
  sex: {kind: categorical, levels: [f, m]}
  weight: {kind: real, low: 0.5, high: 250}
"""


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
def test_pairs_of_a_schema_follow_it_and_differ_in_one_row(relation):
    schema = Schema.parse(SCHEMA)
    for pair in schema_pairs(schema, relation):
        tables = [X.assign(ill=y) for X, y in (pair.data, pair.neighbour)]
        rows = [Counter(map(tuple, table.astype(str).to_numpy().tolist())) for table in tables]
        assert sum((rows[0] - rows[1]).values()) == (pair.name != "order")
        findings = schema.findings(tables[0])
        assert (len(findings) > 0) == (pair.name in ("beyond the bound", "unknown")), findings
    # Whoever reads cells through a schema loses nothing; whoever takes levels from the table does.
    claim = Guarantee(1.0, 0.0, relation)

    def careful(X, y):
        encoded, codes, _ = schema.encode(X.assign(ill=y))
        return encoded.shape[1], int(codes.sum()) + np.random.default_rng().laplace(scale=3)

    assert not audit_object(careful, claim, schema_pairs(schema, relation)).refuted
    found = audit_object(lambda X, y: sorted(set(X["sex"])), claim, schema_pairs(schema, relation))
    assert {finding.pair for finding in found.findings} == {"unknown"}
    assert found.refuted


# Certificates


def test_a_certificate_can_be_kept_and_repeated(tmp_path):
    found = audit_object(planted_leaks.Classes, CLAIM, fits=30)
    found.save(tmp_path / "one.json")
    again = Certificate.load(tmp_path / "one.json")
    assert again.findings == found.findings
    assert again.versions["python"]
    assert str(again) == str(found)
    for mine, theirs in zip(again.pairs, found.pairs, strict=True):
        np.testing.assert_array_equal(mine.data[0], theirs.data[0])
    confirmed = replay_certificate(again, planted_leaks.Classes)
    assert confirmed.refuted
    assert not replay_certificate(again, planted_leaks.Honest).refuted


def test_what_is_no_certificate_is_refused(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps({"epsilon": 1}))
    with pytest.raises(ValueError, match="must be a certificate"):
        Certificate.load(tmp_path / "one.json")


def test_an_interrupted_audit_goes_on(tmp_path):
    made = []

    def look(X, y, probes):
        made.append(1)
        if len(made) == 50:
            raise KeyboardInterrupt
        return {"count": float(y.sum())}

    store = tmp_path / "fits"
    with pytest.raises(KeyboardInterrupt):
        audit_object(None, CLAIM, look=look, store=store)
    with store.open("ab") as file:
        file.write(b"\x80\x05half")  # a write that was cut off
    found = audit_object(None, CLAIM, look=look, store=store)
    assert found.refuted
    assert len(made) == 50 + found.fits
    assert found.fits < len(made) - 40
    with pytest.raises(ValueError, match="left by the same audit"):
        audit_object(None, CLAIM, look=look, store=store, about="something else")
    with pytest.raises(ValueError, match="left by the same audit"):
        audit_object(None, Guarantee(2.0, 0.0, REPLACE_ONE), look=look, store=store)


def test_what_the_object_says_of_itself_is_compared():
    found = audit_object(OutputPerturbationClassifier(2.0, 0.1), CLAIM)
    assert any("guarantee_ states epsilon 2, the claim 1" in note for note in found.notes)


def test_refusals():
    with pytest.raises(ValueError, match="claim must be a Guarantee with a finite epsilon"):
        audit_object(planted_leaks.Honest, Guarantee(np.inf, 0.0, REPLACE_ONE))
    with pytest.raises(ValueError, match="build must be a class, a function or an object with fit"):
        audit_object(3, CLAIM)
    with pytest.raises(ValueError, match="build must take no argument or X and y"):
        audit_object(lambda a, b, c: None, CLAIM)
    with pytest.raises(ValueError, match=r"build must fit the pairs' records, got TypeError"):
        audit_object(lambda X, y: X + None, CLAIM)
    with pytest.raises(ValueError, match="epsilon must be one that"):
        audit_object(planted_leaks.Classes, Guarantee(40.0, 0.0, REPLACE_ONE))
    for fits in (-1, 3):
        with pytest.raises(ValueError, match="fits must be"):
            audit_object(planted_leaks.Honest, CLAIM, fits=fits)
    with pytest.raises(ValueError, match="pairs must have different names"):
        audit_object(planted_leaks.Honest, CLAIM, [PAIRS["label"], PAIRS["label"]])
    with pytest.raises(ValueError, match="pairs must have one whose records build takes"):
        audit_object(OutputPerturbationClassifier(1.0, 0.1), CLAIM, [PAIRS["missing cell"]])


def test_no_power_is_said():
    found = audit_object(planted_leaks.Honest, CLAIM, [PAIRS["label"]], fits=10)
    assert found.power.startswith("No power at this size")


def test_gaussian_bounds():
    """A test of size .05 and power .26 is what mu = 1 allows; counts show somewhat less."""
    n = 1_000_000
    hits = int(n * norm.cdf(norm.ppf(0.05) + 1))
    assert 0.98 < gaussian_lower_bound(hits, n, n // 20, n, 0.95) < 1
    assert gaussian_lower_bound(5, 10, 5, 10, 0.95) == 0


def test_two_numbers_that_tell_only_together_are_found():
    """The time of a sampler that counts its tosses: neither it nor the noisy count shows the count alone."""

    def release(X, y):
        rng = np.random.default_rng()
        ups, downs = rng.geometric(1 - np.exp(-1), size=2)
        return {"count": int(np.sum(y)) + ups - downs, "seconds": ups + downs + rng.uniform(0, 0.5)}

    found = audit_object(release, CLAIM, [PAIRS["label"]], fits=600)
    assert found.refuted
    assert {"count", "seconds"} <= set(found.findings[-1].event.names)
    for name in ("count", "seconds"):
        assert not audit_object(lambda X, y, name=name: release(X, y)[name], CLAIM, [PAIRS["label"]], fits=600).refuted


# One run


@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-3, 0.1, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_one_run_p_values_against_the_sum_that_the_theorem_has(epsilon, delta):
    for m, guesses, wrong in ((10, 1, 0), (10, 10, 1), (100, 10, 10), (1000, 100, 10), (1000, 10, 0)):
        right, q = guesses - wrong, 1 / (1 + np.exp(-epsilon))
        tail = binom.pmf(np.arange(right, guesses + 1), guesses, q).sum()
        shares = [binom.pmf(np.arange(right - i, right), guesses, q).sum() / i for i in range(1, right + 1)]
        expected = min(tail + 2 * m * delta * max(shares, default=0.0), 1.0)
        assert one_run_p_value(m, guesses, right, epsilon, delta) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("shift", "bound"), [(1, 1.13346), (2, 2.311945), (4, 4.395568)])
def test_one_run_bounds_that_jax_privacy_publishes(shift, bound):
    """Of the tests of its version 2: 10,000 normal scores a side, delta 1e-6, and the best of the corners of
    the upper hull of (misses, right rejections), each at .05 over their number."""
    n = 10_000
    outside = norm.ppf((np.arange(n) + 0.5) / n)
    inside = outside + shift
    cuts = np.append(np.union1d(inside, outside), np.inf)
    missed, rejected = np.searchsorted(inside, cuts), np.searchsorted(outside, cuts)
    corners = ConvexHull(np.column_stack([missed, rejected])).vertices
    corners = corners[rejected[corners] >= missed[corners]]
    right, guesses = n - missed[corners], 2 * n - missed[corners] - rejected[corners]
    level, best = 0.05 / len(corners), 0.0
    for i in np.argsort(-beta.ppf(level, right, guesses - right + 1)):  # the surest first, so that most are quickly out
        counts = 2 * n, int(guesses[i]), int(right[i])
        if one_run_p_value(*counts, best, 1e-6) < level:
            best = max(best, one_run_epsilon(*counts, delta=1e-6, confidence=1 - level))
    assert best == pytest.approx(bound, rel=1e-5)


def test_one_run_covers_and_has_power():
    """Randomised response with epsilon 1 for each canary: the bound is wrong in at most 5 % of 400 runs."""
    rng = np.random.default_rng(8)
    found = [one_run_epsilon(500, 500, int(rng.binomial(500, 1 / (1 + np.exp(-1.0))))) for _ in range(400)]
    assert sum(bound > 1 for bound in found) <= binom.isf(1e-4, 400, 0.05)
    assert np.median(found) > 0.7
    assert one_run_epsilon(10, 0, 0) == 0.0


def test_one_training_convicts_a_learner_that_remembers():
    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(50, 4)), rng.integers(2, size=50)
    canaries = rng.normal(size=(200, 4)) * 5, rng.integers(2, size=200)

    def fit(X, y):
        return {tuple(row) for row in X.tolist()}

    def score(model, X, y):
        return [tuple(row) in model for row in X.tolist()]

    found = audit_one_run(fit, score, (X, y), canaries, rng=rng)
    assert (found.guesses, found.correct) == (20, 20)
    assert found.epsilon > 1.5
    blind = audit_one_run(
        lambda X, y: None, lambda model, X, y: np.zeros(len(X)), (X, y), canaries, guesses=200, rng=rng
    )
    assert blind.epsilon < 0.5
    with pytest.raises(ValueError, match="score must give one finite number"):
        audit_one_run(fit, lambda *_: [np.nan], (X, y), canaries)


# Replay


class NoisySum:
    """Of a clipped column, by a function of its own module."""

    scale = staticmethod(lambda X: 1.0)
    bound, drawn = 1.0, 1

    def fit(self, X, y):
        clipped = np.clip(np.nan_to_num(X[:, 0]), -self.bound, self.bound)
        for _ in range(self.draws(y)):
            self.sum_ = noisy(clipped.sum(), 2.0, self.scale(X))
        self.after(y)

    def draws(self, y):
        return 1

    def after(self, y):
        pass


def noisy(value, sensitivity, epsilon):
    return value + np.random.default_rng().laplace(scale=sensitivity / epsilon)


def variant(**changes):
    return type("Variant", (NoisySum,), changes)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (NoisySum, None),
        (variant(bound=50.0), "the value moves by"),
        (variant(scale=staticmethod(lambda X: float(np.abs(X).max()))), "parameter epsilon is"),
        (variant(draws=lambda self, y: 1 + int(y.sum() > 0)), "calls on one table"),
        (variant(after=lambda self, y: setattr(self, "n_", int(y.sum()))), "n_ is"),
    ],
)
def test_a_replay_reports_the_first_release_that_differs(build, told):
    rule = {f"{__name__}:noisy": Noise("value", "sensitivity")}
    pair = PAIRS["first of its class"]
    if told in ("the value moves by", "parameter epsilon is"):
        pair = PAIRS["beyond the bound"]
    found = replay(build, pair, rule)
    assert (found is None) == (told is None), found
    assert told is None or told in str(found)
    assert sys.modules[__name__].noisy is noisy


def test_a_replay_refuses_what_it_cannot_follow():
    with pytest.raises(ValueError, match=r"noise must name functions like module:Class\.name"):
        replay(NoisySum, PAIRS["label"], {"numpy.nothing:at.all": Noise()})
    with pytest.raises(ValueError, match="noise must name functions that a fit calls"):
        replay(NoisySum, PAIRS["label"], {"numpy.random:laplace": Noise("loc")})


# The command


@pytest.fixture
def target(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\n"
        "class Tells:\n"
        "    def fit(self, X, y): self.rare_ = int(y.sum())\n"
        "class Quiet:\n"
        "    def fit(self, X, y): self.noise_ = np.random.default_rng().normal()\n"
        "build = Tells\n"
        "def dies(X, y):\n"
        "    import os; os._exit(3)\n"
    )
    return file


def test_the_command_says_by_its_exit_code_whether_a_claim_is_refuted(target, tmp_path, capsys):
    out = tmp_path / "found.json"
    assert cli.main(["audit", str(target), "--epsilon", "1", "--out", str(out)]) == 1
    assert "rare_ is" in capsys.readouterr().out
    assert [file.name for file in tmp_path.glob("found*")] == ["found.json"]
    assert cli.main(["audit", str(target), "--replay", str(out)]) == 1
    assert cli.main(["audit", f"{target}:Quiet", "--replay", str(out)]) == 0
    assert cli.main(["audit", f"{target}:Quiet", "--epsilon", "1", "--judge", "--fits", "20"]) == 0
    assert "No power at this size" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{target}"], "audit needs either --epsilon or --replay"),
        (["{target}", "--epsilon", "-1"], "epsilon must be"),
        (["{target}:Absent", "--epsilon", "1"], "has no 'Absent'"),
        (["{target}.txt", "--epsilon", "1"], "target must be FILE.py"),
        (["{target}:dies", "--epsilon", "1"], "must not end its interpreter, got exit code 3"),
        (["{target}", "--epsilon", "1", "--fits", "9"], "--fits needs --judge"),
        (["{target}", "--epsilon", "1", "--python", "/none"], "python must be an interpreter"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(target, capsys, arguments, message):
    assert cli.main(["audit", *(one.format(target=target) for one in arguments)]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert message in said[0]


def test_fits_in_another_process_show_what_fits_here_show(target):
    X, y = PAIRS["label"].data
    with Interpreter(sys.executable, f"{target}:Tells") as interpreter:
        there = interpreter.look(X, y, X[:3])
        assert interpreter.versions()["numpy"] == np.__version__
    assert there["rare_"] == float(y.sum())
