"""A figure of what an additive model has learned: one function an attribute, with the error bars of its noise."""

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from helpers.book.display import use_style
from helpers.erm.moments import PrivateMomentClassifier, Shape
from helpers.validation import check_integer

_BAR = 1.96  # standard deviations of the noise in a 95 % interval
_LINE_FROM = 5  # places of an ordered attribute that are drawn as a line
_MOST_NAMES = 12  # of levels under an axis
_COLUMNS = 3


def plot_shapes(
    model: PrivateMomentClassifier,
    *,
    most: int = 9,
    class_names: Sequence[str] | None = None,
) -> Figure:
    """What each attribute adds to the log-odds of a class, the attributes that matter most first.

    How much one matters is the root mean square of its function under the private marginal. Bands and bars are 95 %
    intervals of the noise on the class means, the ranks taken as they are; a sample of other records would move the
    functions too, and is not in them. All that is drawn has been released with the model: the figure costs nothing.

    Parameters
    ----------
    model : PrivateMomentClassifier
        Fitted.
    most : int
        Attributes drawn, at least 1.
    class_names : sequence of str, optional
        Names of the model's classes.

    Returns
    -------
    Figure
        Not known to pyplot: shown by a notebook where it is the value of a cell.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (500, 2))
    >>> model = PrivateMomentClassifier(random_state=0).fit(X, X[:, 0] > 0.5)
    >>> [axes.get_title() for axes in plot_shapes(model).axes]
    ['x1', 'x2']
    """
    most = check_integer("most", most, low=1)
    matter = [
        # Of several classes, the one for which the attribute matters most.
        math.sqrt(float((shape.log_odds**2 @ cells).max()))
        for shape, cells in zip(model.shapes_, model.marginals_, strict=True)
    ]
    chosen = np.argsort(-np.array(matter), kind="stable")[:most]
    names = [str(label) for label in (model.classes_ if class_names is None else class_names)]
    shown = names[1:] if len(names) == 2 else names
    with plt.rc_context():
        use_style()
        n_columns = min(_COLUMNS, len(chosen))
        n_rows = -(-len(chosen) // n_columns)
        figure = Figure(figsize=(2.6 * n_columns + 0.6, 2.3 * n_rows + 0.3))
        for place, k in enumerate(chosen):
            axes = figure.add_subplot(n_rows, n_columns, place + 1)
            _draw(axes, model.shapes_[k], shown)
            axes.set_title(_plain(model.shapes_[k].name), fontsize=11)
        figure.supylabel("adds to the log-odds" + (f" of {_plain(shown[0])}" if len(shown) == 1 else ""), fontsize=11)
        if len(shown) > 1:
            figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw(axes, shape: Shape, names: Sequence[str]) -> None:
    axes.axhline(0, color="black", linewidth=0.8)
    is_ordered = np.issubdtype(shape.places.dtype, np.number)
    places = shape.places if is_ordered else np.arange(len(shape.places))
    for name, heights, noise_scale in zip(names, shape.log_odds, shape.noise_scale, strict=True):
        if is_ordered and len(places) >= _LINE_FROM:
            [line] = axes.plot(places, heights, label=_plain(name))
            axes.fill_between(
                places, heights - _BAR * noise_scale, heights + _BAR * noise_scale, alpha=0.2, color=line.get_color()
            )
        else:
            axes.errorbar(places, heights, _BAR * noise_scale, fmt="o", capsize=3, label=_plain(name))
    if not is_ordered:
        # Every `step`-th name, so that no more than fit stand under the axis.
        step = -(-len(places) // _MOST_NAMES)
        axes.set_xticks(places[::step], [_plain(str(level)) for level in shape.places[::step]], rotation=45, ha="right")
    elif len(places) < _LINE_FROM:
        axes.set_xticks(places)
    else:
        axes.locator_params(axis="x", nbins=4)  # long numbers have room


def _plain(text: str) -> str:
    """A name as it is, also where it looks like a formula."""
    return text.replace("$", r"\$")
