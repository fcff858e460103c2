"""Figures with sliders for the static pages: inline SVG, a few lines of JavaScript, nothing fetched.

Without JavaScript the first frame is an ordinary picture and the sliders stay hidden; text and axes take the page's own
colour, so dark mode needs nothing. What is drawn is computed by the chapter.
"""

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 4", "1 2")
# Small, so that the text is still readable when the picture shrinks to the width of a phone.
_WIDTH, _HEIGHT = 480, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 458, 26, 256  # sides of the box that the axes span; half a number stands right of it


def scripts(data: dict[str, Any], code: Path, **values: object) -> str:
    """Two elements of a page: data, as JSON, and the code that reads them, with `%(name)s` replaced by these values."""
    # "</" would end the script element early, whatever the text it stands in.
    payload = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    script = code.read_text(encoding="utf-8") % values
    return f'<script type="application/json">{payload}</script><script>{script}</script>'


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
    y_label : str
        What the heights are; stands above the axis.
    y_range : pair of float
        Heights at the bottom and at the top.
    log_x, log_y : bool
        Whether an axis is logarithmic.
    peaks : bool
        Whether the table says where each curve is highest.

    Raises
    ------
    ValueError
        A name with other characters, frames of different curves or lengths, values outside `y_range`, a logarithmic
        axis that reaches zero.

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
    y_label: str = ""
    y_range: tuple[float, float] = (0.0, 1.0)
    log_x: bool = False
    log_y: bool = False
    peaks: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch("[A-Za-z0-9-]+", self.name):
            raise ValueError(f"name must be letters, digits and hyphens, got {self.name!r}")
        x = np.asarray(self.x, float)
        if x.ndim != 1 or x.size < 2 or not (np.diff(x) > 0).all():
            raise ValueError("x must be at least two increasing values")
        low, high = self.y_range
        if not low < high:
            raise ValueError(f"y_range must be increasing, got {self.y_range}")
        if (self.log_x and x[0] <= 0) or (self.log_y and low <= 0):
            raise ValueError("a logarithmic axis must begin above 0")
        curves = self._curves()
        for key, frame in self.frames.items():
            if list(frame) != curves or any(np.shape(values) != x.shape for values in frame.values()):
                raise ValueError(f"every frame must have the curves {curves} with {x.size} values, not so {key!r}")
            heights = np.array(list(frame.values()))
            if not ((heights >= low) & (heights <= high)).all():
                raise ValueError(f"values must be in [{low:g}, {high:g}], not so in frame {key!r}")

    def __repr__(self) -> str:
        return f"{self.caption} ({', '.join(self._curves())}; {self.frame_label}: {', '.join(self.frames)})"

    def _repr_html_(self) -> str:
        data = {
            "x": _rounded(self.x),
            "names": list(self.frames),
            "frames": [[_rounded(values) for values in frame.values()] for frame in self.frames.values()],
            # The script draws other frames into the same box.
            "box": [_LEFT, _RIGHT, _TOP, _BOTTOM],
            "range": list(self.y_range),
            "log": [self.log_x, self.log_y],
        }
        return (
            f'<figure class="slider-figure" id="{self.name}" style="max-width:38rem;margin:1rem 0">'
            f'<figcaption style="font-size:.9em">{html.escape(self.caption)}</figcaption>'
            f'{self._picture()}{self._legend()}<div data-role="controls" hidden>'
            f"{_slider('frame', self.frame_label, len(self.frames) - 1, self.start)}"
            f"{_slider('cursor', self.x_label, len(self.x) - 1, self.cursor)}</div>"
            f"{scripts(data, Path(__file__).with_name('widgets.js'), id=self.name)}</figure>"
        )

    def _curves(self) -> list[str]:
        return list(next(iter(self.frames.values())))

    def _shown(self) -> Mapping[str, Sequence[float]]:
        """The frame that is seen before a slider is moved."""
        return list(self.frames.values())[self.start]

    def _across(self, x: float) -> float:
        """A value of the axis as a coordinate of the picture."""
        return _LEFT + _share(x, self.x[0], self.x[-1], self.log_x) * (_RIGHT - _LEFT)

    def _up(self, height: float) -> float:
        """A height as a coordinate of the picture, which counts downwards."""
        return _BOTTOM - _share(height, *self.y_range, self.log_y) * (_BOTTOM - _TOP)

    def _picture(self) -> str:
        parts = []
        for height in _ticks(*self.y_range, self.log_y):
            y = self._up(height)
            parts.append(f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" stroke="currentColor" opacity=".2"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 5:.1f}" text-anchor="end">{height:g}</text>')
        for tick in _ticks(self.x[0], self.x[-1], self.log_x):
            at = f'x="{self._across(tick):.1f}" y="{_BOTTOM + 18}"'
            parts.append(f'<text {at} text-anchor="middle">{tick:g}</text>')
        parts.append(f'<text x="2" y="14">{html.escape(self.y_label)}</text>')
        at = f'x="{(_LEFT + _RIGHT) / 2}" y="{_HEIGHT - 6}"'
        parts.append(f'<text {at} text-anchor="middle">{html.escape(self.x_label)}</text>')
        parts.append(f'<path d="M{_LEFT} {_BOTTOM}H{_RIGHT}" stroke="currentColor"/>')
        for k, heights in enumerate(self._shown().values()):
            points = (f"{self._across(x):.1f} {self._up(y):.1f}" for x, y in zip(self.x, heights, strict=True))
            line = f'stroke="{COLOURS[k]}" stroke-width="2.2" stroke-dasharray="{DASHES[k]}"'
            parts.append(f'<path data-curve="" fill="none" {line} d="M{"L".join(points)}"/>')
        x = self._across(self.x[self.cursor])
        line = f'x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_BOTTOM}" stroke="currentColor" stroke-dasharray="3 3"'
        return (
            f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" style="width:100%;height:auto;color:inherit" '
            f'font-size="15" fill="currentColor" aria-label="{html.escape(self.caption)}">{"".join(parts)}'
            f'<line data-role="line" {line}/></svg>'
        )

    def _legend(self) -> str:
        rows = []
        for k, (name, heights) in enumerate(self._shown().items()):
            line = f'<line x1="0" x2="34" y1="5" y2="5" stroke="{COLOURS[k]}" stroke-width="3"'
            sample = f'<svg width="34" height="10" aria-hidden="true">{line} stroke-dasharray="{DASHES[k]}"/></svg>'
            best = f"<td data-best>{self.x[int(np.argmax(heights))]:.3g}</td>" if self.peaks else ""
            rows.append(
                f'<tr><td style="text-align:left">{sample} {html.escape(name)}</td>'
                f"<td data-value>{heights[self.cursor]:.3g}</td>{best}</tr>"
            )
        peaks = "<th>highest at</th>" if self.peaks else ""
        return (
            f'<table class="book-table"><thead><tr><th>curve</th><th>at the line</th>{peaks}</tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table>"
        )


def _share(value: float, first: float, last: float, log: bool) -> float:
    """Where a value lies between the ends of an axis: 0 at the first, 1 at the last."""
    if log:
        return math.log(value / first) / math.log(last / first)
    return (value - first) / (last - first)


def _ticks(first: float, last: float, log: bool) -> list[float]:
    if log:
        powers = range(math.floor(math.log10(first)), math.floor(math.log10(last)) + 1)
        found = [step * 10.0**power for power in powers for step in (1, 2, 5)]
        if last / first > 200:  # so many that they would touch
            found = found[::3]
    else:
        found = [float(tick) for tick in MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(first, last)]
    return [tick for tick in found if first <= tick * (1 + 1e-9) and tick <= last * (1 + 1e-9)]


def _rounded(values: Sequence[float]) -> list[float]:
    """Five digits, more than a picture shows."""
    return [float(f"{value:.5g}") for value in values]


def _slider(role: str, label: str, last: int, value: int) -> str:
    return (
        f'<label style="display:flex;flex-wrap:wrap;gap:0 .8rem;align-items:center">'
        f'<span>{html.escape(label)}</span><input type="range" data-role="{role}" min="0" max="{last}" '
        f'value="{value}" style="flex:1 1 8rem"> <output style="min-width:3.5rem"></output></label>'
    )
