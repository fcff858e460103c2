"""The cells of a data frame as texts, each read alone: no cell changes how another one is read, and none can raise.

pandas gives a column one type. A single cell can therefore turn the whole numbers of all other records into floating
point numbers or these into complex ones, and would change their texts. Here a number is its nearest double whatever the
type of its column, so that it reads the same in each of them. No method of an object in a cell is called: what is not
a text, a number, a truth value or a date counts as an empty cell. What a text means is left to `helpers.data.schema`.
"""

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# Types are compared exactly: a class derived from one of these may have methods that raise.
_TEXTS = {str, np.str_}
_TRUTH_VALUES = {bool, np.bool_}
_NUMBERS = {int, float, complex, Decimal}
_NUMBERS |= {np.dtype(code).type for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"]}
_TIMES = {datetime, pd.Timestamp, np.datetime64}


class Cells(NamedTuple):
    """The cells of one column: `texts` are the different ones among them, `codes` (n,) says which of them a cell has."""

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
        return Cells(codes, [_of_number(number) for number in distinct.tolist()])
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
    if kind in _TEXTS:
        return cell.strip()
    if kind in _TRUTH_VALUES:
        return str(bool(cell))
    if kind in _NUMBERS:
        return _of_number(cell)
    if kind is date:
        return str(cell)
    if kind in _TIMES:
        try:
            moment = pd.Timestamp(cell)
            return "" if moment is pd.NaT else str(moment)
        except Exception:  # a year beyond those that pandas counts, or a time zone that is no plain one
            return ""
    return ""


def _of_number(number: Any) -> str:
    """The nearest double as a text. A complex number is the real one that it may have been before it was cast."""
    try:
        value = complex(number)
    except OverflowError:  # a whole number beyond the largest double
        return "inf" if number > 0 else "-inf"
    except ValueError:  # a signalling NaN of `decimal`
        return ""
    if math.isnan(value.real) or value.imag != 0:
        return ""
    return str(int(value.real)) if value.real.is_integer() else str(value.real)
