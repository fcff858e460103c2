"""The cells of a data frame as texts, each read alone: no cell changes how another one is read, and none can raise.

pandas gives a column one type. A single cell can therefore turn the whole numbers of all other records into floating
point numbers or these into complex ones, and would change their texts. Here a number is its nearest double whatever the
type of its column, so that it reads the same in each of them. What is not a text, a number, a truth value or a date
counts as an empty cell, and none of its methods is called. What a text means is left to `helpers.data.schema`.
"""

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# How to take the value out of a number. The built-in type is asked, not the cell, which may be of a derived class whose
# own methods raise, or say another thing than pandas finds.
_NUMBERS: dict[type, Callable[[Any], int | float | complex]] = {
    float: float.__float__,
    int: int.__int__,
    complex: complex.__complex__,
    Decimal: Decimal.__float__,
    np.number: complex,
}


class Cells(NamedTuple):
    """The cells of one column: the different texts among them, and for each cell (n,) the place of its text."""

    codes: NDArray[np.intp]
    texts: list[str]

    def map(self, function: Callable[[str], Any], dtype: Any) -> NDArray:
        """The value of a function of the text, cell by cell."""
        return np.array([function(text) for text in self.texts], dtype=dtype)[self.codes]


def read(column: pd.Series) -> Cells:
    """The cells of a column, whatever they hold.

    >>> read(pd.Series([1, 2.5, None])).texts, read(pd.Series([1, 1j, "no "])).texts
    (['1', '2.5', ''], ['1', '', 'no'])
    """
    if column.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        codes, distinct = pd.factorize(numbers, use_na_sentinel=False)
        return Cells(codes, [_of_double(number) for number in distinct.tolist()])
    # A dictionary, because pandas' own tables of texts take two that differ after a zero byte for one.
    places: dict[str, int] = {}
    codes = [places.setdefault(text(cell), len(places)) for cell in column.to_numpy(dtype=object)]
    return Cells(np.array(codes, dtype=np.intp), list(places))


def text(cell: Any) -> str:
    """A cell as it stands in a CSV: whole numbers without a point, and nothing for what is missing or no plain value.

    >>> text(2.0), text(10**5000), text(True), text(None), text([1])
    ('2', 'inf', 'True', '', '')
    """
    kind = type(cell)
    if issubclass(kind, str):
        return str.__str__(cell).strip()
    if kind in (bool, np.bool_):
        return str(bool(cell))
    try:
        if issubclass(kind, datetime | np.datetime64):
            moment = pd.Timestamp(cell)
            return "" if moment is pd.NaT else str(moment)
        if issubclass(kind, date):
            return date.isoformat(cell)
        for base, value_of in _NUMBERS.items():
            # NumPy derives lengths of time from its integers; they are no numbers here.
            if issubclass(kind, base) and kind is not np.timedelta64:
                return _of_value(value_of(cell))
    except Exception:  # a year beyond those that pandas counts, a time zone that is no plain one, a signalling NaN
        pass
    return ""


def _of_value(number: int | float | complex) -> str:
    try:
        value = complex(number)
    except OverflowError:  # a whole number beyond the largest double
        return "-inf" if isinstance(number, int) and number < 0 else "inf"
    # A complex number that is real may have been cast because of another cell.
    return _of_double(value.real) if value.imag == 0 else ""


def _of_double(value: float) -> str:
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() else str(value)
