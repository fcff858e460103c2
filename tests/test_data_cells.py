"""A frame is read cell by cell: whatever one cell holds, all other records keep their codes, and nothing raises."""

import datetime
import decimal
import enum
import fractions
import ipaddress
import math
import pathlib
import uuid

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.data import Schema, cells
from helpers.data.schema import propose

UTC = datetime.UTC
SCHEMA = Schema.parse(
    """
basis: a test
rows_per_person: 1
label: {column: label, levels: [no, 'True', '3'], minority: '3'}
columns:
  whole: {kind: real, low: 0, high: 1e19}
  number: {kind: integer, low: -5, high: 50, missing: true}
  real: {kind: real, low: -1, high: 1e300, missing: true}
  level: {kind: categorical, levels: ['9007199254740992', '1', '2.5', 'True'], missing: true}
  text: {kind: categorical, levels: [a, b, '1', '(1+0j)', nan], missing: true}
  truth: {kind: categorical, levels: ['False', 'True']}
  moment: {kind: categorical, levels: ['2020-01-02 00:00:00', '2021-03-04 05:06:07'], missing: true}
  day: {kind: categorical, levels: ['2020-01-02', '2021-03-04']}
  flag: {kind: one-hot, levels: [a, b]}
"""
)
TABLE = {
    "whole": [2**53 + 1, 2**60 + 1, 3, 2**63 + 3],
    "number": [7, 2, 50, 4],
    "real": [0.1, 2.5, 1e300, -0.0],
    "level": [2**53, 1, 2**53, 1],
    "text": ["a", "b", "1", "nan"],
    "truth": [True, False, True, True],
    "moment": [datetime.datetime(2020, 1, 2), datetime.datetime(2021, 3, 4, 5, 6, 7)] * 2,
    "day": [datetime.date(2020, 1, 2), datetime.date(2021, 3, 4)] * 2,
    "flag=a": [1, 0, 1, 0],
    "flag=b": [0.0, 1.0, 0.0, 1.0],
    "label": [3, 3, 3, 3],
}


class Refuses:
    """Every method that a reader might call raises."""

    def _refuse(self, *args):
        raise RuntimeError("a method of a cell was called")

    __str__ = __repr__ = __eq__ = __hash__ = __float__ = __int__ = __bool__ = __len__ = __iter__ = _refuse
    __complex__ = __index__ = __lt__ = __array__ = __format__ = _refuse


class RefusingText(str):
    __str__ = __eq__ = strip = Refuses._refuse
    __hash__ = str.__hash__


class RefusingNumber(float):
    __str__ = __eq__ = __float__ = is_integer = Refuses._refuse
    __hash__ = float.__hash__


class RefusingWhole(int):
    __str__ = __eq__ = __int__ = __float__ = __index__ = __bool__ = __gt__ = Refuses._refuse
    __hash__ = int.__hash__


class RefusingDecimal(decimal.Decimal):
    __str__ = __eq__ = __float__ = __bool__ = Refuses._refuse
    __hash__ = decimal.Decimal.__hash__


class RefusingSingle(np.float32):
    __str__ = __eq__ = __float__ = __complex__ = Refuses._refuse
    __hash__ = np.float32.__hash__


class RefusingDate(datetime.date):
    __str__ = __eq__ = isoformat = strftime = Refuses._refuse
    __hash__ = datetime.date.__hash__


class RefusingMoment(datetime.datetime):
    __str__ = __eq__ = isoformat = strftime = date = time = utcoffset = Refuses._refuse
    __hash__ = datetime.datetime.__hash__


class RefusingZone(datetime.tzinfo):
    utcoffset = dst = tzname = Refuses._refuse


class Colour(enum.Enum):
    RED = 1


class Fixed(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    A = "a"


HOSTILE = [
    *(None, pd.NA, pd.NaT, np.nan, math.inf, -math.inf, -0.0, 0.5, 1e-320, 1.5e308, 5e-324),
    *(10**5000, -(10**5000), 10**400, 2**53 + 1, 2**63, 2**64, 2**64 + 1, -(2**63) - 1, 10**18, -1, 0, 1, 3),
    *(True, False, np.True_, np.False_),
    *("", " ", "a", " a ", "A", "nan", "NaN", "NA", "?", "None", "null", "inf", "-inf", "1e5", "1e400", "1_0", "0x10"),
    *("9" * 5000, "9" * 400, "1.0", "01", "+1", "1,5", "\u0663", "\u00bd", "a\0", "a\0b", "\0", "\ud800", "'\\ud800'"),
    *("a" * 10**5, "=1+1", "yes", "TRUE", "2020-01-02", "2020-01-02 00:00:00", "(1+0j)", '"', "\n", "\r\n", "a,b"),
    *(b"", b"1", b"\xff", bytearray(b"1"), memoryview(b"1"), np.str_("a"), np.bytes_(b"a")),
    *(1j, 1 + 0j, 2.5 + 0j, complex(math.nan, 1), complex(math.inf, math.nan), np.complex64(1), np.clongdouble(1)),
    *(decimal.Decimal("1"), decimal.Decimal("1.00"), decimal.Decimal("NaN"), decimal.Decimal("sNaN")),
    *(decimal.Decimal("Infinity"), decimal.Decimal("1e999999"), decimal.Decimal("-0"), fractions.Fraction(1, 3)),
    *(np.int8(1), np.uint64(2**64 - 1), np.float16(0.1), np.float32(0.1), np.longdouble(1) / 3),
    np.longdouble("1e4000"),
    *(datetime.date(1, 1, 1), datetime.date(2020, 1, 2), datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)),
    *(datetime.datetime(2020, 1, 2), datetime.datetime(2020, 1, 2, tzinfo=UTC), datetime.time(1)),
    datetime.timedelta(1),
    *(pd.Timestamp(0), pd.Timestamp("2020-01-02 00:00:00.000000001"), pd.Timestamp(0, tz="Europe/Berlin")),
    *(np.datetime64("NaT"), np.datetime64("2020-01-02"), np.datetime64(2**62, "ns"), np.datetime64(10**15, "Y")),
    *(np.timedelta64(1, "D"), pd.Timedelta(1), pd.Period("2020"), pd.Interval(0, 1), pd.Interval(0.5, 1)),
    *([], [1], [[1], [2, [3]]], (), (1, 2), {}, {"a": 1}, set(), frozenset({1}), range(3), np.zeros(2), np.array(1)),
    *(Refuses(), Refuses, RefusingText("a"), RefusingNumber(1), datetime.datetime(2020, 1, 2, tzinfo=RefusingZone())),
    *(RefusingDate(2020, 1, 2), RefusingMoment(2020, 1, 2), Fixed.ONE, Word.A, RefusingWhole(1), RefusingDecimal(1)),
    *(RefusingSingle(1), Colour.RED, uuid.UUID(int=1), pathlib.Path("a"), ipaddress.ip_address("::1")),
    *(..., NotImplemented, object(), len),
    *(pd.Series([1]), pd.DataFrame({"a": [1]}), pd.Categorical(["a"]), iter(()), slice(1), float, np.float64, math),
]


def column(values):
    """A column of a frame, with the type that pandas gives it; of objects where pandas itself refuses the values."""
    try:
        return pd.Series(values)
    except Exception:
        return objects(values)


def objects(values):
    held = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        held[place] = value
    return pd.Series(held, dtype=object)


def frame(table, make=column):
    return pd.DataFrame({name: make(values) for name, values in table.items()})


def test_there_are_enough_hostile_cells():
    assert len(HOSTILE) >= 140


@pytest.mark.parametrize("name", TABLE)
def test_one_cell_changes_no_other_cell(name):
    before = [cells.text(value) for value in TABLE[name]]
    for hostile in HOSTILE:
        for place in (0, 3):
            values, expected = list(TABLE[name]), list(before)
            values[place], expected[place] = hostile, cells.text(hostile)
            for make in (column, objects):
                found = cells.read(make(values))
                assert [found.texts[code] for code in found.codes] == expected, type(hostile)


def test_one_record_changes_no_other_record_and_reads_the_same_alone():
    X, y, _ = SCHEMA.encode(frame(TABLE))
    assert X[0].tolist() == [2.0**53, 7, 0, 0.1, 0, *[1, 0, 0, 0, 0], *[1, 0, 0, 0, 0, 0], 0, 1, 1, 0, 0, 1, 0, 1, 0]
    assert y.tolist() == [2] * 4
    for hostile in HOSTILE:
        table = {name: [hostile, *values[1:]] for name, values in TABLE.items()}
        alone = SCHEMA.encode(frame({name: [hostile] for name in TABLE}, objects))
        for make in (column, objects):
            X_new, y_new, _ = SCHEMA.encode(frame(table, make))
            assert np.array_equal(X_new[1:], X[1:]), type(hostile)
            assert np.array_equal(y_new[1:], y[1:]), type(hostile)
            assert np.array_equal(X_new[0], alone[0][0]), type(hostile)
            assert y_new[0] == alone[1][0], type(hostile)
        assert (X_new >= SCHEMA.bounds[:, 0]).all()
        assert (X_new <= SCHEMA.bounds[:, 1]).all()


@pytest.mark.parametrize("propose_from", [column, objects])
def test_no_cell_makes_a_proposal_or_a_finding_fail(propose_from):
    for hostile in HOSTILE:
        table = frame({name: [hostile, *values[1:]] for name, values in TABLE.items()}, propose_from)
        propose(table, "label")
        SCHEMA.findings(table)


@pytest.mark.parametrize(
    "make",
    [
        lambda values: pd.Series(values, dtype="Float64"),
        lambda values: pd.Series(values, dtype="float64"),
        lambda values: pd.Series(values, dtype="Int64").astype("category"),
        lambda values: pd.Series(values, dtype="complex128"),
        lambda values: pd.Series(values, dtype=object),
        lambda values: pd.Series([None if v is None else str(v) for v in values], dtype="string"),
    ],
)
def test_a_number_reads_the_same_in_columns_of_all_types(make):
    found = cells.read(make([1, None, 3, 2**40]))
    assert [found.texts[code] for code in found.codes] == ["1", "", "3", str(2**40)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.text(), st.decimals()), min_size=1))
def test_any_column_reads_as_its_cells_do_alone(values):
    found = cells.read(column(values))
    for code, value in zip(found.codes, values, strict=True):
        assert found.texts[code] == cells.text(value)
