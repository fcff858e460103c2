"""Guarantees: validation, group privacy, subsampling and composition, checked against exact divergences."""

import math
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    SingleEpochTreeAggregationDpEvent,
)
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, laplace

from helpers.privacy import (
    ADD_REMOVE,
    COMPOSITION_METHODS,
    REPLACE_ONE,
    ApproximateDpEvent,
    Guarantee,
    PrivacyLeakWarning,
    compose,
    gaussian_delta,
    gaussian_epsilon,
    group_delta,
    laplace_delta,
    optimal_composition,
)


def gaussian_guarantee(mu, epsilon, neighbouring=ADD_REMOVE):
    return Guarantee(epsilon, gaussian_delta(epsilon, mu), neighbouring, GaussianDpEvent(1 / mu))


def laplace_guarantee(epsilon, neighbouring=ADD_REMOVE, **fields):
    return Guarantee(epsilon, 0.0, neighbouring, LaplaceDpEvent(1 / epsilon), **fields)


# The object


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"epsilon": -1e-9}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": -math.inf}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"delta": 1.1}, "delta"),
        ({"delta": -0.1}, "delta"),
        ({"neighbouring": "add-remove"}, "neighbouring"),
        ({"neighbouring": NeighboringRelation.REPLACE_SPECIAL}, "neighbouring"),
        ({"event": "Gaussian"}, "event"),
        ({"assumes": "n"}, "assumes"),
        ({"assumes": (1,)}, "assumes"),
    ],
)
def test_bad_fields_are_named(fields, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        Guarantee(**({"epsilon": 1.0, "delta": 0.0, "neighbouring": ADD_REMOVE} | fields))


def test_guarantees_are_frozen_values():
    first = Guarantee(1, 0, REPLACE_ONE, assumes=["n"])
    assert first == Guarantee(1.0, 0.0, REPLACE_ONE, assumes=("n",))
    assert len({first, Guarantee(1, 0, REPLACE_ONE, assumes=("n",))}) == 1
    with pytest.raises(AttributeError):
        first.epsilon = 0.5


def test_text_states_the_relation_and_delta():
    assert str(Guarantee(0.123456, 1e-5, REPLACE_ONE)) == "(0.1235, 1e-05)-DP, replace-one"
    assert str(Guarantee(math.inf, 1.0, ADD_REMOVE)) == "(inf, 1)-DP, add/remove-one"


class CardParser(HTMLParser):
    """Collects the description list and the nesting of tags."""

    def __init__(self, html):
        super().__init__()
        self.open, self.classes, self.terms, self.texts = [], [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.classes += [value for key, value in attrs if key == "class"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        (self.terms if "dt" in self.open else self.texts).append(data)


def test_privacy_card_says_everything_and_escapes_it():
    guarantee = Guarantee(1.5, 1e-6, REPLACE_ONE, None, ("n < 10 & public", "bounds"), "A <b>paper</b>, Theorem 1")
    card = CardParser(guarantee._repr_html_())
    assert card.open == []
    assert card.classes[0] == "privacy-card"
    assert card.terms == [
        *("Epsilon", "Delta", "Protects", "Neighbouring data sets", "Assumed public or true", "Source")
    ]
    assert "one record" in card.texts
    for text in ("1.5", "1e-06", "replace-one", "n < 10 & public", "bounds", "A <b>paper</b>, Theorem 1"):
        assert text in card.texts


def test_privacy_card_of_a_bare_guarantee():
    assert {"nothing", "not stated"} <= set(CardParser(Guarantee(1, 0, ADD_REMOVE)._repr_html_()).texts)


def test_a_guarantee_says_whom_it_is_for_and_is_composed_with_its_like():
    person = Guarantee(1, 1e-6, ADD_REMOVE, unit="person")
    assert str(person) == "(1, 1e-06)-DP, add/remove-one, for a person"
    assert "one person, with all that is recorded of them" in CardParser(person._repr_html_()).texts
    assert compose([person, person]).unit == person.group(2).unit == person.under_replace_one().unit == "person"
    with pytest.raises(ValueError, match="guarantees must be for one unit"):
        compose([person, Guarantee(1, 0, ADD_REMOVE)])
    with pytest.raises(ValueError, match="unit must be one of"):
        Guarantee(1, 0, ADD_REMOVE, unit="patient")


def test_leak_warning_can_be_filtered_by_type():
    with pytest.warns(PrivacyLeakWarning, match="bounds"):
        warnings.warn("bounds were taken from the data", PrivacyLeakWarning, stacklevel=1)
    assert issubclass(PrivacyLeakWarning, UserWarning)


# Other points of the curve


def test_gaussian_curve_comes_from_the_event():
    guarantee = gaussian_guarantee(1.0, 1.0)
    assert guarantee.epsilon_at(1e-5) == pytest.approx(gaussian_epsilon(1e-5, 1.0))
    assert guarantee.delta_at(3.0) == pytest.approx(gaussian_delta(3.0, 1.0))


def test_laplace_curve_comes_from_the_event_and_beats_what_purity_implies():
    with_event, without = laplace_guarantee(1.0), Guarantee(1.0, 0.0, ADD_REMOVE)
    assert with_event.delta_at(0.5) == pytest.approx(laplace_delta(0.5, 1.0))
    assert with_event.delta_at(0.5) < without.delta_at(0.5)
    assert with_event.epsilon_at(0.1) < without.epsilon_at(0.1)


@given(epsilon=st.floats(0.01, 8.0), delta=st.floats(0.0, 0.3), share=st.floats(0.0, 1.2))
def test_implied_curve_is_that_of_the_worst_mechanism(epsilon, delta, share):
    """Hockey stick of randomised response that fails openly with probability delta."""
    truth, lie = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    other = share * epsilon
    expected = delta + (1 - delta) * max(truth - math.exp(other) * lie, 0.0)
    guarantee = Guarantee(epsilon, delta, REPLACE_ONE)
    assert guarantee.delta_at(other) == pytest.approx(expected, abs=1e-12)
    if share < 0.99:
        assert guarantee.epsilon_at(expected) == pytest.approx(other, abs=1e-6)


def test_nothing_is_known_below_delta_or_without_a_guarantee():
    assert Guarantee(1.0, 1e-3, ADD_REMOVE).epsilon_at(1e-4) == math.inf
    nothing = Guarantee(math.inf, 0.0, ADD_REMOVE)
    assert nothing.delta_at(5.0) == 1.0
    assert nothing.epsilon_at(0.5) == math.inf
    assert nothing.epsilon_at(1.0) == 0.0
    assert Guarantee(1.0, 0.0, ADD_REMOVE).epsilon_at(0.0) == 1.0
    assert Guarantee(1.0, 0.0, ADD_REMOVE).epsilon_at(0.9) == 0.0
    with pytest.raises(ValueError, match=r"^delta must be"):
        nothing.epsilon_at(2.0)
    with pytest.raises(ValueError, match=r"^epsilon must be"):
        nothing.delta_at(-1.0)


def test_an_event_that_no_accountant_reads_is_not_used():
    unreadable = SingleEpochTreeAggregationDpEvent(1.0, 8)
    assert Guarantee(1.0, 0.0, ADD_REMOVE, unreadable).delta_at(0.5) == Guarantee(1.0, 0.0, ADD_REMOVE).delta_at(0.5)


@given(first=st.floats(1e-8, 0.5), second=st.floats(1e-8, 0.5))
def test_epsilon_at_falls_with_delta(first, second):
    low, high = sorted((first, second))
    for guarantee in (gaussian_guarantee(0.7, 1.0), laplace_guarantee(1.0), Guarantee(1.0, 1e-9, ADD_REMOVE)):
        assert guarantee.epsilon_at(high) <= guarantee.epsilon_at(low) + 1e-12


# Group privacy


def test_multiplying_delta_by_the_size_understates_a_gaussian_group():
    """mu = 1/2, epsilon = 1, ten records: 10 * delta is 0.068, the generic bound is vacuous, the truth is 0.617."""
    one = gaussian_guarantee(0.5, 1.0)
    assert one.delta == pytest.approx(0.00683, abs=5e-6)
    ten = one.group(10)
    assert (ten.epsilon, round(ten.delta, 3)) == (10.0, 0.617)
    assert one.delta * math.expm1(10) / math.expm1(1) == pytest.approx(87.5, abs=0.1)
    assert Guarantee(1.0, one.delta, ADD_REMOVE).group(10).delta == 1.0


@given(mu=st.floats(0.05, 2.0), epsilon=st.floats(0.05, 2.0), size=st.integers(1, 12))
def test_generic_group_bound_covers_the_exact_gaussian_one(mu, epsilon, size):
    one = gaussian_guarantee(mu, epsilon)
    exact = one.group(size).delta
    assert exact == pytest.approx(gaussian_delta(size * epsilon, size * mu), rel=1e-7, abs=1e-300)
    assert exact <= group_delta(epsilon, one.delta, size) * (1 + 1e-9)


@pytest.mark.parametrize(
    "guarantee",
    [
        gaussian_guarantee(1.0, 1.0),
        laplace_guarantee(0.3, assumes=("n",), source="somewhere"),
        Guarantee(0.5, 1e-6, REPLACE_ONE),
        Guarantee(math.inf, 0.5, REPLACE_ONE),
    ],
)
def test_group_of_one_is_the_guarantee(guarantee):
    assert guarantee.group(1) == guarantee


def test_pure_groups_stay_pure_and_keep_what_is_assumed():
    group = laplace_guarantee(0.3, REPLACE_ONE, assumes=("n",), source="a paper").group(4)
    assert (group.epsilon, group.delta) == (pytest.approx(1.2), 0.0)
    assert group.neighbouring is REPLACE_ONE
    assert group.assumes == ("n",)
    assert group.source.startswith("a paper; group of 4")
    assert group.delta_at(0.6) == pytest.approx(laplace_delta(0.6, 1.2))
    assert group.group(2).epsilon == pytest.approx(2.4)


@given(epsilon=st.floats(0.01, 1.0), delta=st.floats(0, 0.01), first=st.integers(1, 5), second=st.integers(1, 5))
def test_generic_groups_multiply(epsilon, delta, first, second):
    guarantee = Guarantee(epsilon, delta, ADD_REMOVE)
    twice, once = guarantee.group(first).group(second), guarantee.group(first * second)
    assert twice.epsilon == pytest.approx(once.epsilon)
    assert twice.delta == pytest.approx(once.delta, rel=1e-9)


def test_group_of_a_composition_scales_every_part():
    parts = [gaussian_guarantee(0.3, 0.5)] * 3 + [laplace_guarantee(0.2), Guarantee(0.1, 1e-7, ADD_REMOVE)]
    parts.append(Guarantee(0.1, 0.0, ADD_REMOVE, DiscreteLaplaceDpEvent(0.1, 1)))
    group = compose(parts, "pld", delta=1e-4).group(3)
    expected = ComposedDpEvent(
        (
            SelfComposedDpEvent(GaussianDpEvent(1 / 0.3 / 3), 3),
            LaplaceDpEvent(5.0 / 3),
            ApproximateDpEvent(pytest.approx(0.3), pytest.approx(group_delta(0.1, 1e-7, 3))),
            DiscreteLaplaceDpEvent(0.1, 3),
        )
    )
    assert group.event == expected
    assert group.delta < group_delta(group.epsilon / 3, 1e-4, 3)


def test_group_of_a_subsampled_release_falls_back_on_the_generic_bound():
    sampled = gaussian_guarantee(0.5, 1.0).subsampled(0.1)
    event = PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0))
    for group in (sampled.group(3), replace(sampled, event=event).group(3)):
        assert group.event is None
        assert group.delta == pytest.approx(group_delta(sampled.epsilon, sampled.delta, 3))


def test_group_without_any_guarantee():
    group = Guarantee(math.inf, 0.1, ADD_REMOVE, NonPrivateDpEvent()).group(3)
    assert group.epsilon == math.inf
    with pytest.raises(ValueError, match=r"^size must be"):
        group.group(0)


def test_replacing_a_record_is_two_steps_of_add_remove():
    moved = gaussian_guarantee(0.5, 1.0).under_replace_one()
    assert (moved.epsilon, moved.neighbouring) == (2.0, REPLACE_ONE)
    assert moved.delta == pytest.approx(gaussian_delta(2.0, 1.0))
    assert moved.epsilon_at(1e-5) == pytest.approx(gaussian_epsilon(1e-5, 1.0))
    generic = Guarantee(1.0, 1e-6, ADD_REMOVE).under_replace_one()
    assert generic.delta == pytest.approx((1 + math.e) * 1e-6)
    assert gaussian_guarantee(0.5, 1.0).subsampled(0.1).under_replace_one().event is None
    with pytest.raises(ValueError, match=r"^neighbouring must be"):
        moved.under_replace_one()


# Subsampling


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_subsampled_laplace_count_is_exactly_amplified(rate):
    """A Laplace count of a Poisson sample of n and n + 1 records; n = 0 attains the bound."""
    epsilon = 1.3
    bound = laplace_guarantee(epsilon).subsampled(rate).epsilon
    x = np.linspace(-15, 25, 4001)

    def density(n):
        counts = np.arange(n + 1)
        return binom.pmf(counts, n, rate) @ laplace.pdf(x, counts[:, None], 1 / epsilon)

    losses = [np.abs(np.log(density(n + 1) / density(n))).max() for n in (0, 1, 2, 5)]
    assert max(losses) <= bound + 1e-9
    assert losses[0] == pytest.approx(bound, abs=1e-9)


def test_subsampling_of_an_approximate_guarantee():
    sampled = Guarantee(1.0, 1e-4, ADD_REMOVE, GaussianDpEvent(2.0), ("n",)).subsampled(0.1)
    assert sampled.epsilon == pytest.approx(math.log(1 + 0.1 * (math.e - 1)))
    assert sampled.delta == pytest.approx(1e-5)
    assert sampled.assumes == ("n", "secret sample")
    assert sampled.event is None


@pytest.mark.parametrize(("rate", "epsilon"), [(0.0, 0.0), (1.0, 2.0)])
def test_subsampling_at_the_ends(rate, epsilon):
    assert Guarantee(2.0, 0.0, ADD_REMOVE).subsampled(rate).epsilon == pytest.approx(epsilon)


def test_subsampling_is_refused_where_it_is_not_proved():
    with pytest.raises(ValueError, match=r"neighbouring must be one of .*ADD_OR_REMOVE_ONE"):
        Guarantee(1.0, 0.0, REPLACE_ONE).subsampled(0.1)
    with pytest.raises(ValueError, match=r"^rate must be"):
        Guarantee(1.0, 0.0, ADD_REMOVE).subsampled(1.1)
    assert Guarantee(math.inf, 0.0, ADD_REMOVE).subsampled(0.5).epsilon == math.inf
    assert Guarantee(math.inf, 0.0, ADD_REMOVE).subsampled(0.0).epsilon == 0.0


# Composition


@pytest.mark.parametrize("method", COMPOSITION_METHODS)
def test_relations_do_not_mix(method):
    parts = [Guarantee(1.0, 0.0, ADD_REMOVE), Guarantee(1.0, 0.0, REPLACE_ONE)]
    with pytest.raises(ValueError, match="add/remove-one and replace-one"):
        compose(parts, method, delta=0.1)


@pytest.mark.parametrize("method", COMPOSITION_METHODS)
def test_assumptions_are_unioned_in_order(method):
    parts = [
        laplace_guarantee(0.1, assumes=("n", "bounds")),
        laplace_guarantee(0.1, assumes=("exact real arithmetic", "n")),
    ]
    total = compose(iter(parts), method, delta=1e-3)
    assert total.assumes == ("n", "bounds", "exact real arithmetic")
    assert total.neighbouring is ADD_REMOVE
    assert total.source.startswith("2 releases, ")


@given(epsilon=st.floats(0.02, 0.5), count=st.integers(1, 60))
def test_methods_are_ordered_for_laplace_releases(epsilon, count):
    parts = [laplace_guarantee(epsilon)] * count
    cost = {method: compose(parts, method, delta=1e-6).epsilon for method in ("basic", "advanced", "optimal")}
    assert cost["optimal"] <= min(cost["basic"] * (1 + 1e-12), cost["advanced"])
    assert compose(parts, delta=1e-6).delta == 0.0


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 40), (0.5, 8), (0.02, 200)])
def test_pld_is_the_tightest_for_laplace_releases(epsilon, count):
    parts = [laplace_guarantee(epsilon)] * count
    cost = {method: compose(parts, method, delta=1e-6).epsilon for method in COMPOSITION_METHODS}
    assert cost["pld"] <= cost["rdp"]
    assert cost["pld"] <= cost["optimal"]


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
def test_pure_guarantees_without_events_compose_optimally_under_pld(relation):
    parts = [Guarantee(0.1, 0.0, relation)] * 30
    exact, _ = optimal_composition(0.1, 30, 1e-6)
    assert compose(parts, "pld", delta=1e-6).epsilon == pytest.approx(exact, abs=3e-3)
    assert compose(parts, "optimal", delta=1e-6).epsilon == pytest.approx(exact)
    assert compose(parts, "rdp", delta=1e-6).epsilon > exact


def test_gaussian_composition_is_exact():
    parts = [gaussian_guarantee(0.3, 1.0), gaussian_guarantee(0.4, 1.0)]
    total = compose(parts, "pld", delta=1e-5)
    assert total.epsilon == pytest.approx(gaussian_epsilon(1e-5, 0.5))
    assert total.delta_at(2.0) == pytest.approx(gaussian_delta(2.0, 0.5))


def test_composition_of_compositions_is_accounted_as_one():
    parts = [gaussian_guarantee(0.2, 1.0)] * 8
    inner = compose(parts[:4], "basic")
    assert compose([inner, inner], "pld", delta=1e-5).epsilon == pytest.approx(
        compose(parts, "pld", delta=1e-5).epsilon
    )
    assert inner.epsilon_at(1e-5) < inner.epsilon


def test_approximate_guarantees_keep_their_deltas():
    parts = [Guarantee(0.1, 1e-5, ADD_REMOVE)] * 10
    assert compose(parts).delta == pytest.approx(1e-4)
    advanced = compose(parts, "advanced", delta=2e-4)
    assert advanced.delta == 2e-4
    assert compose(parts, "optimal", delta=2e-4).epsilon <= advanced.epsilon
    assert compose(parts, "optimal", delta=5e-5).epsilon == math.inf
    assert compose(parts, "pld", delta=5e-5).epsilon == math.inf
    assert compose(parts, "pld", delta=2e-4).epsilon < 1.0
    with pytest.raises(ValueError, match="sum of the deltas"):
        compose(parts, "advanced", delta=5e-5)
    with pytest.raises(ValueError, match="sum of the deltas"):
        compose(parts, "basic", delta=5e-5)
    with pytest.raises(ValueError, match=r"^event must be one that"):
        compose(parts, "rdp", delta=2e-4)


@pytest.mark.parametrize("method", ["advanced", "optimal"])
def test_homogeneous_theorems_refuse_unequal_parts(method):
    with pytest.raises(ValueError, match="equal epsilons"):
        compose([Guarantee(0.1, 0.0, ADD_REMOVE), Guarantee(0.2, 0.0, ADD_REMOVE)], method, delta=1e-5)


@pytest.mark.parametrize("method", ["advanced", "optimal", "rdp", "pld"])
def test_a_target_delta_is_needed(method):
    with pytest.raises(ValueError, match=r"^delta must be"):
        compose([Guarantee(0.1, 0.0, ADD_REMOVE)], method)


def test_empty_and_unknown_compositions_are_refused():
    with pytest.raises(ValueError, match="guarantees must not be empty"):
        compose([])
    with pytest.raises(ValueError, match=r"^method must be"):
        compose([Guarantee(0.1, 0.0, ADD_REMOVE)], "gdp", delta=1e-5)


@pytest.mark.parametrize("method", COMPOSITION_METHODS)
def test_nothing_plus_something_is_nothing(method):
    assert compose([Guarantee(math.inf, 0.0, ADD_REMOVE)] * 2, method, delta=0.1).epsilon == math.inf


def test_an_event_with_lists_is_refused():
    """Equal events are counted by their hash, in compositions and in bills."""
    with pytest.raises(ValueError, match="tuples"):
        Guarantee(1.0, 1e-5, ADD_REMOVE, ComposedDpEvent([GaussianDpEvent(8.0)]))
