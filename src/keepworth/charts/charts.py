"""Charts for pages, as inline SVG with the colours of the page's CSS variables, so that they follow light and dark themes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol
from xml.etree import ElementTree

from keepworth.charts import finite, render


@dataclass(frozen=True, slots=True)
class Series:
    """One line: `values[i]` at `steps[i]`, in the unit of its panel. `low` and `high` bound it where it was measured with an
    interval. `key` is the arm or the metric; the same key has the same colour everywhere."""

    key: str
    label: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes:
        role: Its role ("" where a run has no roles).
        held_out: Whether it was measured on questions that were not trained on.
        wide: Whether it shows the main metric of the run.
        among: Keys that share the palette, where other panels have more of them than this one.
        along: The label of the horizontal axis.
    """

    key: str
    title: str
    unit: str
    series: tuple[Series, ...]
    role: str = ""
    held_out: bool = False
    wide: bool = False
    among: tuple[str, ...] = ()
    along: str = "step"

    def colours(self) -> list[int]:
        """Returns the palette index of each series; one key has one colour in all panels."""
        keys = [series.key for series in self.series]
        every = self.among or keys
        palette = dict(zip(every, colour_indices(every), strict=True))
        return [palette[key] for key in keys]


# Light and dark variants of the same eight hues, in an order that stays apart for colour-blind readers.
PALETTE = ("#2563eb", "#c2630a", "#0f8a7a", "#8b45d6", "#d1345b", "#6b7280", "#0e7fa6", "#7c7a12")
PALETTE_DARK = ("#7aa7ff", "#f0a35e", "#4fd1bd", "#c49bff", "#ff86a3", "#a3acba", "#62c6ea", "#cfcb5a")
ARM_COLOURS = {
    "trained": 0,
    "untrained": 5,
    "no_memory": 1,
    "wrong_memory": 4,
    "supervised": 2,
    "oracle": 3,
    "another_memory": 4,
    "oracle_evidence": 3,
    "no_tool": 1,
    "reinforced": 0,
    "warm_start": 2,
}


def colour_indices(keys: Sequence[str]) -> list[int]:
    """Returns a palette index for each key. The usual arms have fixed ones; other keys take the remaining ones in order."""
    taken = {ARM_COLOURS[key] for key in keys if key in ARM_COLOURS}
    free = [index for index in range(len(PALETTE)) if index not in taken] or list(range(len(PALETTE)))
    indices, used = [], 0
    for key in keys:
        if key in ARM_COLOURS:
            indices.append(ARM_COLOURS[key])
        else:
            indices.append(free[used % len(free)])
            used += 1
    return indices


class Estimated(Protocol):
    """A mean with the ends of its interval; None where they were not measured."""

    @property
    def mean(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


# Sizes are in the coordinates of a chart, which are close to pixels on a usual screen.
WIDTH, HEIGHT = 222, 182
WIDE, HIGH = 492, 208
LEFT, RIGHT, TOP, BOTTOM = 36, 6, 10, 36


def charts(panels: Sequence[Panel]) -> str:
    """Returns one grid of charts per role, as HTML: figures with title, legend and curves, and with the numbers for the pointer
    (see `parts.js`)."""
    roles: dict[str, list[tuple[Panel, str, dict[str, Any]]]] = {}
    for panel in panels:
        svg, data = drawing(panel)
        named = svg.replace("<svg ", f'<svg aria-label="{escape(panel.title)}" ', 1)
        roles.setdefault(panel.role, []).append((panel, named, data))
    return render("charts", roles=roles)


def as_elements(panel: Panel) -> dict[str, Any]:
    """Returns the chart as JSON, for a page that makes its elements itself. An element is [tag, attributes, children]; a child
    may be a text."""
    svg, data = drawing(panel)
    root = ElementTree.fromstring(svg)
    root.set("aria-label", panel.title)
    return {
        "title": panel.title,
        "unit": panel.unit,
        "wide": panel.wide,
        "svg": _elements(root),
        "data": finite(data),
    }


def _elements(node: ElementTree.Element) -> list[Any]:
    texts = [node.text] if node.text else []
    return [node.tag, dict(node.attrib), [*texts, *(_elements(child) for child in node)]]


def drawing(panel: Panel) -> tuple[str, dict[str, Any]]:
    """Returns the curves as SVG without a name, and the data for the pointer. The data has x, [left, right, first step, last
    step]; y, [top, bottom]; the label of a step; and the series."""
    colours = panel.colours()
    steps = sorted({step for series in panel.series for step in series.steps})
    values = [value for series in panel.series for value in (*series.values, *series.low, *series.high)]
    bounds = [value for value in values if math.isfinite(value)]
    low, high = _range(bounds, from_zero=panel.held_out)
    ticks = nice_ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    first, last = steps[0], steps[-1]
    width, height = (WIDE, HIGH) if panel.wide else (WIDTH, HEIGHT)

    def x(step: float) -> float:
        return LEFT + (step - first) / max(1, last - first) * (width - LEFT - RIGHT)

    def y(value: float) -> float:
        return height - BOTTOM - (value - low) / (high - low) * (height - TOP - BOTTOM)

    def points(line: Iterable[tuple[int, float]]) -> str:
        return " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in line)

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img">']
    for tick in ticks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 7}" y="{y(tick) + 3.5:.1f}" text-anchor="end">{tick_text(tick)}</text>'
        )
    parts += [
        f'<text class="tick" x="{x(step):.1f}" y="{height - 20}" text-anchor="middle">{step}</text>'
        for step in _step_ticks(first, last)
    ]
    middle = (LEFT + width - RIGHT) / 2
    parts.append(
        f'<text class="tick" x="{middle:g}" y="{height - 5}" text-anchor="middle">{escape(panel.along)}</text>'
    )
    # The emphasised arm is drawn last, so that nothing covers it.
    order = sorted(zip(panel.series, colours, strict=True), key=lambda pair: pair[0].key == "trained")
    for series, colour in order:
        if series.low:
            upper = zip(series.steps, series.high, strict=True)
            lower = zip(reversed(series.steps), reversed(series.low), strict=True)
            parts.append(f'<polygon points="{points([*upper, *lower])}" fill="var(--c{colour})" fill-opacity=".13"/>')
    for series, colour in order:
        line = [pair for pair in zip(series.steps, series.values, strict=True) if math.isfinite(pair[1])]
        parts.append(f'<polyline points="{points(line)}" stroke="var(--c{colour})"/>')
        for step, value in line if len(line) <= 12 else ():
            parts.append(f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="3" fill="var(--c{colour})"/>')
    parts.append('<line class="cursor" y1="0" y2="0" x1="0" x2="0"/></svg>')
    data = {
        "x": [LEFT, width - RIGHT, first, last],
        "y": [TOP, height - BOTTOM],
        "along": panel.along,
        "series": [
            {"label": s.label, "colour": c, "steps": s.steps, "values": s.values, "low": s.low, "high": s.high}
            for s, c in zip(panel.series, colours, strict=True)
        ],
    }
    return "".join(parts), data


def whisker(
    cell: Estimated | None, low: float, high: float, colour: int, width: int = 220, *, ring: bool = False
) -> str:
    """Draws a mean with its interval, as SVG, on a common scale, with a mark at 0 where the scale includes it.

    Args:
        cell: The mean and its bounds; None draws the empty scale, and a mean without bounds is drawn as a point.
        low: The left end of the scale.
        high: The right end of the scale.
        colour: The number of the colour in the page's style, `--c1` and so on.
        width: The width of the drawing, in pixels.
        ring: Whether the mean is drawn as a ring instead of a filled circle.
    """
    height = 18
    span = (high - low) or 1.0

    def x(value: float) -> float:
        return 4 + (value - low) / span * (width - 8)

    parts = [f'<svg class="whisker" width="{width}" viewBox="0 0 {width} {height}" aria-hidden="true">']
    parts.append(f'<line class="grid" x1="4" x2="{width - 4}" y1="9" y2="9"/>')
    if low < 0.0 < high:
        parts.append(f'<line x1="{x(0.0):.1f}" x2="{x(0.0):.1f}" y1="2" y2="16" stroke="var(--faint)"/>')
    if cell is not None:
        if cell.low is not None and cell.high is not None:
            parts.append(
                f'<line x1="{x(cell.low):.1f}" x2="{x(cell.high):.1f}" y1="9" y2="9" '
                f'stroke="var(--c{colour})" stroke-width="6" stroke-opacity=".32" stroke-linecap="round"/>'
            )
        inside = "var(--card)" if ring else f"var(--c{colour})"
        parts.append(
            f'<circle cx="{x(cell.mean):.1f}" cy="9" r="4.2" fill="{inside}" stroke="var(--c{colour})" stroke-width="1.8"/>'
        )
    return "".join([*parts, "</svg>"])


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Returns about `count` round numbers that cover [low, high].

    Args:
        low: The least value that the ticks have to cover.
        high: The greatest value that they have to cover, above `low`.
        count: How many steps there are, roughly: the distance is rounded up to 1, 2, 2.5 or 5 times a power of ten.
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def tick_text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _range(values: Sequence[float], *, from_zero: bool) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if low >= 0 and (from_zero or low < 0.5 * high):
        low = 0.0
    if high == low:
        low, high = (low - 0.5 * abs(low), high + 0.5 * abs(high)) if high else (0.0, 1.0)
    return low, high


def _step_ticks(first: int, last: int) -> list[int]:
    if last == first:
        return [first]
    return [int(tick) for tick in nice_ticks(first, last, 5) if first <= tick <= last and float(tick).is_integer()]
