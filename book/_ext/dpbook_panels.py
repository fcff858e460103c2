"""Small multiples for the static pages: a fold a measure, a panel a data set, nothing fetched and no script.

A measure is a fold (`<details>`), and a panel an inline SVG of a few hundred bytes; panels wrap to the width of the
screen, and text and axes take the page's own colour. What is drawn is computed by the caller.
"""

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Okabe and Ito's, with the page's own colour in the place of black, and grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "currentColor", "#888888")
DASHES = ("none", "6 2", "2 2", "8 2 2 2", "4 3", "1 2", "none", "5 1")
_WIDTH, _HEIGHT = 200, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 26, 6, 18, 30
_SPREAD = 0.012  # of the axis, between the intervals of two curves

Point = tuple[float, float, float]
"""Mean, low and high end of its interval; NaN ends draw none."""


@dataclass(frozen=True)
class Panels:
    """Curves with intervals over a logarithmic axis, one panel a key of `curves`.

    Parameters
    ----------
    x : sequence of float
        Positive and increasing; shared by all panels.
    curves : mapping of panel to mapping of curve to sequence of (mean, low, high)
        One point for each x; NaN where there is none.
    levels : mapping of panel to float
        Height of a dashed line, for comparison.
    measure : str
        What the vertical axis shows.
    x_label : str
    y_range : (float, float)

    >>> curves = {"a": {"GEM": [(0.5, 0.4, 0.6), (0.7, 0.6, 0.8)]}}
    >>> panels = Panels([0.1, 1.0], curves, {"a": 0.9}, "AUC", "epsilon", (0, 1))
    >>> panels.html().count("<svg")
    1
    """

    x: Sequence[float]
    curves: Mapping[str, Mapping[str, Sequence[Point]]]
    levels: Mapping[str, float]
    measure: str
    x_label: str
    y_range: tuple[float, float]

    @property
    def names(self) -> list[str]:
        """Of all curves, in the order of their colours."""
        return list(dict.fromkeys(name for lines in self.curves.values() for name in lines))

    def html(self, *, is_open: bool = False) -> str:
        """The measure as a fold, open or closed."""
        pictures = "".join(self._panel(panel) for panel in self.curves)
        return (
            f'<details class="panels"{" open" if is_open else ""}><summary>{html.escape(self.measure)}</summary>'
            f'<div class="panels-grid">{pictures}</div></details>'
        )

    def legend(self) -> str:
        """Names and colours, once for all measures that have the same curves."""
        keys = "".join(
            f'<li><svg width="34" height="10" aria-hidden="true"><line x1="0" x2="34" y1="5" y2="5" '
            f'stroke="{COLOURS[k]}" stroke-width="3" stroke-dasharray="{DASHES[k]}"/></svg> {html.escape(name)}</li>'
            for k, name in enumerate(self.names)
        )
        return f'<ul class="panels-legend">{keys}</ul>'

    def _panel(self, panel: str) -> str:
        drawn = "".join(
            self._curve(self.curves[panel][name], k) for k, name in enumerate(self.names) if name in self.curves[panel]
        )
        level = ""
        if math.isfinite(self.levels.get(panel, math.nan)):
            y = self._y(self.levels[panel])
            level = (
                f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="currentColor" opacity=".6" '
                f'stroke-dasharray="5 3"/>'
            )
        return (
            f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="11" fill="currentColor" '
            f'aria-label="{html.escape(self._alternative(panel))}"><text x="{_LEFT}" y="12">{html.escape(panel)}</text>'
            f"{self._axes()}{level}{drawn}</svg>"
        )

    def _curve(self, points: Sequence[Point], k: int) -> str:
        shift = _SPREAD * (k - (len(self.names) - 1) / 2) * (_WIDTH - _LEFT - _RIGHT)
        line, bars, pen = "", "", "M"
        for x, (mean, low, high) in zip(self.x, points, strict=True):
            if not math.isfinite(mean):
                pen = "M"
                continue
            at = round(self._x(x) + shift, 1)
            line += f"{pen}{at:g} {self._y(mean)}"
            pen = "L"
            if math.isfinite(low) and math.isfinite(high):
                bars += f"M{at:g} {self._y(low)}V{self._y(high)}"
        line = re.sub(r"(M[\d.]+ [\d.]+)(?=M|$)", r"\1m-3,0h6", line)  # a point without neighbours is a short dash
        path = f'<path fill="none" stroke="{COLOURS[k]}" '
        drawn = f'{path}stroke-width="1.6" stroke-dasharray="{DASHES[k]}" d="{line}"/>' if line else ""
        return drawn + (f'{path}stroke-width=".8" d="{bars}"/>' if bars else "")

    def _axes(self) -> str:
        (low, high), right, parts = self.y_range, _WIDTH - _RIGHT, []
        for share in (0, 0.25, 0.5, 0.75, 1):
            y = self._y(low + share * (high - low))
            parts.append(f'<path d="M{_LEFT} {y}H{right}" stroke="currentColor" opacity=".2"/>')
            if share in (0, 0.5, 1):
                value = f"{low + share * (high - low):g}"
                parts.append(f'<text x="{_LEFT - 3}" y="{y + 4:g}" text-anchor="end">{value}</text>')
        for x in self.x:
            at = f'x="{self._x(x):g}" y="{_HEIGHT - _BOTTOM + 13}"'
            parts.append(f'<text {at} text-anchor="middle">{x:g}</text>')
        at, label = f'x="{(_LEFT + right) / 2:g}" y="{_HEIGHT - 4}"', html.escape(self.x_label)
        return "".join(parts) + f'<text {at} text-anchor="middle">{label}</text>'

    def _alternative(self, panel: str) -> str:
        last = len(self.x) - 1
        values = ", ".join(
            f"{name} {points[last][0]:.2f}"
            for name, points in self.curves[panel].items()
            if math.isfinite(points[last][0])
        )
        return f"{panel}: {self.measure} against {self.x_label}; at {self.x[last]:g}: {values}"

    def _x(self, x: float) -> float:
        if len(self.x) == 1:
            return (_LEFT + _WIDTH - _RIGHT) / 2
        inner = _WIDTH - _LEFT - _RIGHT - 24  # names of the first and the last tick stay inside
        return round(_LEFT + 12 + math.log(x / self.x[0]) / math.log(self.x[-1] / self.x[0]) * inner, 1)

    def _y(self, y: float) -> float:
        low, high = self.y_range
        share = (high - min(max(y, low), high)) / (high - low)
        return round(_TOP + share * (_HEIGHT - _TOP - _BOTTOM), 1)
