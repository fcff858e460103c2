"""The public schema: codes and back, for every kind of attribute, and what it refuses."""

import copy
import pickle

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import data
from helpers.data.domain import Attribute, Domain

MIXED = Domain(
    [
        Attribute.real("mass", 3, -1.0, 3.0, n_bins=5),
        Attribute.integer("age", 0, 18, 60, n_bins=10),
        Attribute.one_hot("sex", (1, 4), ("F", "M")),
        Attribute.categorical("code", 2, (10, 20, 40)),
    ],
    classes=("rare", "common"),
)


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.integers(2, size=n)
    X = np.column_stack(
        [rng.integers(18, 61, n), sex == 0, rng.choice([10, 20, 40], n), rng.uniform(-1, 3, n), sex == 1]
    ).astype(float)
    return X, rng.choice(["rare", "common"], n)


def test_codes_survive_the_round_trip():
    X, y = rows()
    codes = MIXED.encode(X, y)
    X_new, y_new = MIXED.decode(codes, np.random.default_rng(1))
    assert np.array_equal(MIXED.encode(X_new, y_new), codes)
    assert X_new.dtype == np.float64
    assert X_new.shape == X.shape
    assert np.array_equal(X_new[:, [1, 2, 4]], X[:, [1, 2, 4]])  # categories come back as they were
    assert np.array_equal(y_new, y)
    assert np.abs(X_new[:, 3] - X[:, 3]).max() < 4 / 5
    assert np.array_equal(X_new[:, 0], np.rint(X_new[:, 0]))  # whole years
    assert X_new[:, 0].min() >= 18
    assert X_new[:, 0].max() <= 60


@given(low=st.integers(-50, 50), width=st.integers(0, 40), n_bins=st.integers(1, 12), seed=st.integers(0, 99))
def test_every_integer_is_in_one_bin_and_every_bin_gives_back_each_of_its_integers(low, width, n_bins, seed):
    attribute = Attribute.integer("k", 0, low, low + width, n_bins=n_bins)
    assert attribute.size == min(n_bins, width + 1)
    values = np.arange(low, low + width + 1)
    codes = attribute.encode(values[:, None].astype(float))
    assert set(codes) == set(range(attribute.size))
    made = attribute.decode(np.repeat(codes, 200), np.random.default_rng(seed))[:, 0]
    assert set(made) <= set(values)
    # Uniform within the bin: each of its integers about as often, so that all of them occur.
    assert set(made) == set(values)


def test_integers_of_a_bin_are_equally_likely():
    attribute = Attribute.integer("k", 0, 0, 3, n_bins=1)
    made = attribute.decode(np.zeros(40_000, int), np.random.default_rng(0))[:, 0]
    assert np.allclose(np.bincount(made.astype(int)) / 40_000, 0.25, atol=0.015)


def test_numbers_outside_the_bounds_count_as_the_ends():
    domain = Domain.from_bounds([[0, 1]], n_bins=4)
    assert domain.encode([[-9.0], [0.0], [0.25], [1.0], [7.0]], [0, 1, 0, 1, 0])[:, 0].tolist() == [0, 0, 1, 3, 3]


def test_a_point_is_one_bin():
    domain = Domain.from_bounds([[2, 2]], n_bins=4)
    assert domain.sizes == (1, 2)
    assert domain.decode([[0, 0]], np.random.default_rng(0))[0].tolist() == [[2.0]]


def test_texts_are_categories_too():
    domain = Domain([Attribute.categorical("sex", 0, ("F", "M")), Attribute.real("x", 1, 0, 1, n_bins=2)])
    X = np.array([["M", 0.7], ["F", 0.1]], dtype=object)
    codes = domain.encode(X, [1, 0])
    assert codes.tolist() == [[1, 1, 1], [0, 0, 0]]
    made, _ = domain.decode(codes, np.random.default_rng(0))
    assert made[:, 0].tolist() == ["M", "F"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({(0, 2): 30.0}, "categories of 'code'"),
        ({(0, 1): 1.0, (0, 4): 1.0}, "one 1 and else 0"),
        ({(0, 1): 0.0, (0, 4): 0.0}, "one 1 and else 0"),
        ({(0, 3): np.nan}, "finite"),
        ({(0, 0): np.inf}, "finite"),
    ],
)
def test_records_outside_the_schema_are_refused(change, message):
    X, y = rows(5)
    for place, value in change.items():
        X[place] = value
    with pytest.raises(ValueError, match=message):
        MIXED.encode(X, y)


def test_other_columns_and_labels_are_refused():
    X, y = rows(5)
    with pytest.raises(ValueError, match="5 columns"):
        MIXED.encode(X[:, :4], y)
    with pytest.raises(ValueError, match="y must hold labels"):
        MIXED.encode(X, ["never"] * 5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Domain([Attribute.real("x", 1, 0, 1)]),
        lambda: Domain([Attribute.real("x", 0, 0, 1), Attribute.real("z", 0, 0, 1)]),
        lambda: Domain([Attribute.real("x", 0, 0, 1)], classes=(1,)),
        lambda: Domain([Attribute.real("x", 0, 0, 1)], classes=(1, "1")),
        lambda: Domain([Attribute.real("x", 0, 0, 1)], classes=(0, None)),
        lambda: Domain([]),
        lambda: Attribute.real("x", 0, 1, 0),
        lambda: Attribute.real("x", 0.5, 0, 1),
        lambda: Attribute.integer("x", 0, 0.5, 2),
        lambda: Attribute("x", "real", (0,), (0.0, 2.0, 1.0)),
        lambda: Attribute("x", "ordinal", (0,), (0.0, 1.0)),
        lambda: Attribute.categorical("x", 0, ()),
        lambda: Attribute.categorical("x", 0, (1, 1)),
        lambda: Attribute.one_hot("x", (0, 1), ("a",)),
        lambda: Domain.from_bounds([0, 1]),
    ],
)
def test_bad_schemas_are_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()


def test_a_data_set_has_its_one_hot_blocks_restored():
    records = data.Dataset(
        "toy", [[1, 0, 3.0], [0, 1, 4.0]], [0, 1], ("sex=F", "sex=M", "age"), bounds=[[0, 1], [0, 1], [0, 9]]
    )
    domain = Domain.from_dataset(records, n_bins=3)
    assert [attribute.name for attribute in domain.attributes] == ["sex", "age"]
    assert domain.sizes == (2, 3, 2)
    assert domain.attributes[0].levels == ("F", "M")
    assert domain.attributes[1].kind == "real"
    assert domain.basis == records.bounds_basis
    with pytest.raises(ValueError, match="bounds"):
        Domain.from_dataset(data.Dataset("toy", [[0.0]], [0], ("x",)))


def shared_and_separate():
    """Equal domains whose fields are one object, and objects of their own."""
    edges, levels = (-1.0, 0.0, 1.0), ("female", "male")
    shared = [Attribute("x", "real", (0,), edges), Attribute("z", "real", (1,), edges)]
    separate = [Attribute(name, "real", (np.int64(j),), [-1, -0.0, 1]) for j, name in enumerate("xz")]
    return (
        Domain([*shared, Attribute.categorical(levels[0], 2, levels)], levels, "public"),
        Domain(
            [*separate, Attribute.categorical("female", 2, np.array(["female", "male"]))], ["male", "female"], "public"
        ),
    )


def test_equal_domains_have_one_content_whatever_was_done_with_them():
    one, other = shared_and_separate()
    copies = [one, other, copy.deepcopy(one), pickle.loads(pickle.dumps(other))]
    assert all(domain == one for domain in copies)
    before = {joblib.hash(domain) for domain in copies}
    assert len(before) == 1
    assert one.sizes == other.sizes == (2, 2, 2, 2)
    assert {joblib.hash(domain) for domain in copies} == before
    assert joblib.hash(Domain(one.attributes, one.classes, "another")) not in before
    assert pickle.loads(pickle.dumps(one)).attributes[2].encode(np.array([[0, 0, "male"]], dtype=object)).tolist() == [
        1
    ]


def test_one_level_alone_has_two_codes():
    toy = data.Dataset("toy", [[1, 0.2], [0, 0.3]], [0, 1], ("sex=F", "x"), bounds=[[0, 1], [0, 1]])
    domain = Domain.from_dataset(toy)
    assert [attribute.name for attribute in domain.attributes] == ["sex=F", "x"]
    assert domain.sizes == (2, 16, 2)
    made, _ = domain.decode(domain.encode(toy.X, toy.y), np.random.default_rng(0))
    assert made[:, 0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("attribute", [Attribute.real("a", 0, 0, 1), Attribute.one_hot("b", (0,), ("yes",))])
def test_an_error_about_a_cell_does_not_repeat_it(attribute):
    domain = Domain([attribute])
    with pytest.raises(ValueError, match="must hold numbers"):
        domain.encode(np.array([[10**400]], dtype=object), [0])
    with pytest.raises(ValueError, match="must hold numbers") as caught:
        domain.encode(np.array([["secret"]], dtype=object), [0])
    assert "secret" not in str(caught.getrepr(chain=True).reprcrash)
    assert caught.value.__suppress_context__
