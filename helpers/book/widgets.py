"""Figures with sliders for the static pages: inline SVG, a few lines of JavaScript, nothing fetched.

Without JavaScript the first frame is an ordinary picture and the sliders stay hidden; text and axes take the page's own
colour, so dark mode needs nothing. What is drawn is computed by the chapter.
"""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from helpers.book.inline import check_name, scripts
from helpers.checks import check_integer

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 4", "1 2")
# Small, so that the text is still readable when the picture shrinks to the width of a phone.
_WIDTH, _HEIGHT = 480, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 12, 44
_LOW, _HIGH = 0.0, 1.0  # ends of the vertical axis: all that is shown is a share


@dataclass(frozen=True)
class SliderFigure:
    """Curves over one axis with two sliders: one changes the curves, one moves a line that reads them off.

    Parameters
    ----------
    name : str
        Letters, digits and hyphens; unique on its page.
    x : sequence of float
        At least two increasing values, for all curves.
    frames : mapping of str to mapping of str to sequence of float
        Value of the first slider -> curve -> heights at `x`. Every frame has the same curves.
    x_label, frame_label : str
        What the axis, hence the second slider, and the first slider show.
    caption : str
        One sentence; also the text alternative of the picture.
    start : int
        Position of the first slider at first, and without JavaScript.
    cursor : int
        Index into `x` where the line stands at first.

    Raises
    ------
    ValueError
        A name with other characters, frames of different curves or lengths, values that are not finite, a start
        outside.

    >>> figure = SliderFigure("d", [0, 1], {"1": {"a": [0, 1]}}, x_label="x", frame_label="f", caption="A line.")
    >>> "<svg" in figure._repr_html_()
    True
    """

    name: str
    x: Sequence[float]
    frames: Mapping[str, Mapping[str, Sequence[float]]]
    x_label: str
    frame_label: str
    caption: str
    start: int = 0
    cursor: int = 0

    def __post_init__(self) -> None:
        check_name(self.name)
        x = np.asarray(self.x, float)
        if x.ndim != 1 or x.size < 2 or not (np.diff(x) > 0).all():
            raise ValueError("x must be at least two increasing values")
        names = self._curves()
        for key, frame in self.frames.items():
            if list(frame) != names or any(np.shape(values) != x.shape for values in frame.values()):
                raise ValueError(f"every frame must have the curves {names} with {x.size} values, not so {key!r}")
            if not np.isfinite([list(values) for values in frame.values()]).all():
                raise ValueError(f"values must be finite, not so in frame {key!r}")
        check_integer("start", self.start, low=0, high=len(self.frames) - 1)
        check_integer("cursor", self.cursor, low=0, high=x.size - 1)

    def __repr__(self) -> str:
        return f"{self.caption} ({', '.join(self._curves())}; {self.frame_label}: {', '.join(self.frames)})"

    def _repr_html_(self) -> str:
        data = {
            "x": np.round(np.asarray(self.x, float), 6).tolist(),
            "names": list(self.frames),
            "frames": [[np.round(values, 4).tolist() for values in frame.values()] for frame in self.frames.values()],
            "low": _LOW,
            "high": _HIGH,
            "left": _LEFT,
            "top": _TOP,
            "width": _WIDTH - _LEFT - _RIGHT,
            "height": _HEIGHT - _TOP - _BOTTOM,
        }
        return (
            f'<figure class="slider-figure" id="{self.name}" style="max-width:38rem;margin:1rem 0">'
            f'<figcaption style="font-size:.9em">{html.escape(self.caption)}</figcaption>'
            f'{self._picture()}{self._legend()}<div data-role="controls" hidden>'
            f"{self._slider('frame', self.frame_label, len(self.frames) - 1, self.start)}"
            f"{self._slider('cursor', self.x_label, len(self.x) - 1, self.cursor)}</div>"
            f"{scripts(data, 'widgets', id=self.name)}</figure>"
        )

    def _curves(self) -> list[str]:
        return list(next(iter(self.frames.values())))

    def _shown(self) -> list[np.ndarray]:
        return [np.asarray(values, float) for values in list(self.frames.values())[self.start].values()]

    def _place(self, x, y):
        first, last = self.x[0], self.x[-1]
        across = _LEFT + (np.asarray(x, float) - first) / (last - first) * (_WIDTH - _LEFT - _RIGHT)
        return across, _TOP + (_HIGH - np.asarray(y, float)) / (_HIGH - _LOW) * (_HEIGHT - _TOP - _BOTTOM)

    def _picture(self) -> str:
        paths = "".join(
            f'<path data-curve="" fill="none" stroke="{COLOURS[k]}" stroke-width="2.2" stroke-dasharray="{DASHES[k]}" '
            f'd="{_path(*self._place(self.x, values))}"/>'
            for k, values in enumerate(self._shown())
        )
        at = float(self._place(self.x[self.cursor], _LOW)[0])
        bottom = _HEIGHT - _BOTTOM
        return (
            f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" style="width:100%;height:auto;color:inherit" '
            f'font-size="15" fill="currentColor" aria-label="{html.escape(self.caption)}">'
            f'{self._axes()}<clipPath id="{self.name}-clip"><rect x="{_LEFT}" y="{_TOP - 2}" '
            f'width="{_WIDTH - _LEFT - _RIGHT}" height="{bottom - _TOP + 4}"/></clipPath>'
            f'<g clip-path="url(#{self.name}-clip)">{paths}</g><line data-role="line" x1="{at:.1f}" x2="{at:.1f}" '
            f'y1="{_TOP}" y2="{bottom}" stroke="currentColor" stroke-dasharray="3 3"/></svg>'
        )

    def _axes(self) -> str:
        parts = []
        bottom = _HEIGHT - _BOTTOM
        for tick in _ticks(_LOW, _HIGH):
            y = float(self._place(self.x[0], tick)[1])
            grid = f'x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
            parts.append(f'<line {grid} stroke="currentColor" opacity=".2"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 5:.1f}" text-anchor="end">{tick:g}</text>')
        for tick in _ticks(self.x[0], self.x[-1]):
            x = float(self._place(tick, _LOW)[0])
            parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>')
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        label = html.escape(self.x_label)
        parts.append(f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{label}</text>')
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}" stroke="currentColor"/>')
        return "".join(parts)

    def _legend(self) -> str:
        rows = "".join(
            f'<tr><td style="text-align:left"><svg width="34" height="10" aria-hidden="true">'
            f'<line x1="0" x2="34" y1="5" y2="5" stroke="{COLOURS[k]}" stroke-width="3" '
            f'stroke-dasharray="{DASHES[k]}"/></svg> {html.escape(name)}</td>'
            f"<td data-value>{values[self.cursor]:.3f}</td><td data-best>{self.x[int(np.argmax(values))]:.3g}</td></tr>"
            for k, (name, values) in enumerate(zip(self._curves(), self._shown(), strict=True))
        )
        return (
            '<table class="book-table"><thead><tr><th>curve</th><th>at the line</th>'
            f"<th>highest at</th></tr></thead><tbody>{rows}</tbody></table>"
        )

    def _slider(self, role: str, label: str, last: int, value: int) -> str:
        return (
            f'<label style="display:flex;flex-wrap:wrap;gap:0 .8rem;align-items:center">'
            f'<span>{html.escape(label)}</span><input type="range" data-role="{role}" min="0" max="{last}" '
            f'value="{value}" style="flex:1 1 8rem"> <output style="min-width:3.5rem"></output></label>'
        )


def _path(xs: np.ndarray, ys: np.ndarray) -> str:
    return "".join(f"{'L' if k else 'M'}{x:.1f} {y:.1f}" for k, (x, y) in enumerate(zip(xs, ys, strict=True)))


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between the ends."""
    raw = (high - low) / 5
    power = 10 ** math.floor(math.log10(raw))
    step = min((1, 2, 2.5, 5, 10), key=lambda size: abs(size * power - raw)) * power
    return [float(round(k * step, 10)) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
