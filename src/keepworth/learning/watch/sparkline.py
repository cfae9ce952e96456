"""Numbers for a line of text: a curve as blocks, three significant digits, a stretch of time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], scale: tuple[float, float] | None = None, width: int | None = None) -> str:
    """A curve in one line of text, on `scale` (low, high) or from its own lowest value to its highest.

    width: at most so many characters; a longer curve is averaged in as many stretches."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    shown = finite if width is None else averaged(finite, width)
    low, high = scale or (min(shown), max(shown))
    if high <= low:
        return _BLOCKS[3] * len(shown)
    return "".join(_BLOCKS[round((value - low) / (high - low) * 7)] for value in shown)


def averaged(values: Sequence[float], width: int) -> list[float]:
    """At most `width` means of consecutive stretches that are as equal in length as can be. All values enter one of them."""
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]


def short(value: float) -> str:
    """Three significant digits, without an exponent where a person would not write one."""
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3f}" if 1e-3 <= abs(value) < 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `1 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
