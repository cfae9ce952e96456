"""The display of a long command: the time left, and one live table."""

from __future__ import annotations

import itertools
import math
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from keepworth.base.text import printable, terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live


# Numbers for a line of text: a curve as blocks, three significant digits, a stretch of time.


_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], scale: tuple[float, float] | None = None, width: int | None = None) -> str:
    """Draws a curve in one line of text. Values that are not finite are left out.

    Args:
        values: The values of the curve.
        scale: Its lower and upper end; None goes from the lowest value to the highest.
        width: The most characters; a longer curve is averaged over stretches. None draws one for each value.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    shown = finite if width is None else average(finite, width)
    low, high = scale or (min(shown), max(shown))
    if high <= low:
        return _BLOCKS[3] * len(shown)
    return "".join(_BLOCKS[round((value - low) / (high - low) * 7)] for value in shown)


def average(values: Sequence[float], width: int) -> list[float]:
    """Returns at most `width` means of consecutive stretches of nearly equal length, which cover all values."""
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]


def short(value: float) -> str:
    """Formats three significant digits, without an exponent where a person would not write one."""
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3f}" if 1e-3 <= abs(value) < 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Formats a duration as `42 s`, `3 min 20 s`, `1 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


# Progress of a long run: a live display on a terminal, one plain line per step elsewhere.


class Progress:
    """Receives the progress of a trainer. This one displays nothing: for tests, and for callers with a display of their own.
    `start` may be called again for the next part of a run; `finish` is called once, at the end."""

    def start(self, total_steps: int, title: str) -> None: ...

    def phase(self, name: str) -> None:
        """Shows what is being done (`loading the model`, `evaluating`) until the next call."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows that `step` of `total_steps` is done. Names of metrics form families by slash: `reward/f1`, `seconds/sample`."""

    def done(self, count: float, total: int) -> None:
        """Shows that `count` of `total` answers of the current phase are drawn; a part of an answer counts as a part of one."""

    def expect(self, seconds: float) -> None:
        """Tells how long the rest takes from now on, where the caller knows more than the times of the steps."""

    def note(self, text: str) -> None:
        """Shows a line that stays."""

    def finish(self) -> None: ...


class _TimedProgress(Progress):
    """Estimates the time left from the steps since the first one, unless `expect` says more. Earlier work (loading, measuring, an
    earlier process) does not count."""

    def __init__(self) -> None:
        self._total = 0
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None
        self._ends: float | None = None
        self._phase, self._begun, self._count = "", 0.0, 0.0

    def start(self, total_steps: int, title: str) -> None:
        self._total, self._first, self._last, self._ends = total_steps, None, None, None

    def phase(self, name: str) -> None:
        self._phase, self._begun, self._count = name, time.monotonic(), 0.0

    def expect(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def _part(self, count: float, total: int) -> str:
        """Returns how much of the phase is done, and how long the rest of it takes."""
        if count < self._count:  # other answers than those before
            self._begun = time.monotonic()
        self._count = count
        elapsed = time.monotonic() - self._begun
        left = f", left {duration(elapsed * (total - count) / count)}" if count > 0 and elapsed > 1 else ""
        return f"{int(count)} of {total} answers{left}"

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._last = (step, time.monotonic())
        self._first = self._first or self._last

    def _left(self) -> float | None:
        """Returns the seconds left; None where they are not known yet, or no step is left."""
        if self._ends is not None:
            return max(0.0, self._ends - time.monotonic())
        if self._first is None or self._last is None or not self._first[0] < self._last[0] < self._total:
            return None
        per_step = (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])
        return max(0.0, per_step * (self._total - self._last[0]) - (time.monotonic() - self._last[1]))


class PlainProgress(_TimedProgress):
    """Writes one line per step and flushes it: for files, pipes, continuous integration."""

    OFTEN = 15.0
    """Seconds between two lines about one phase."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self._stream = stream
        self._printed = 0.0

    def start(self, total_steps: int, title: str) -> None:
        super().start(total_steps, title)
        self.note(f"== {title}: {total_steps} steps" if total_steps else f"== {title}")

    def phase(self, name: str) -> None:
        super().phase(name)
        self._printed = self._begun
        self.note(f".. {name}")

    def done(self, count: float, total: int) -> None:
        part = self._part(count, total)
        if time.monotonic() - self._printed > self.OFTEN:
            self._printed = time.monotonic()
            self.note(f".. {self._phase}: {part}")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        super().step(step, metrics)
        left = self._left()
        time_left = [f"left {duration(left)}"] if left is not None else []
        line, width = f"step {step}/{self._total}", shutil.get_terminal_size().columns
        # Metrics that do not fit on a line of the terminal are in metrics.jsonl.
        for name, value in headline(metrics).items():
            longer = f"{line}  {name} {short(value)}"
            line = longer if len("  ".join([longer, *time_left])) <= width else line
        self.note("  ".join([line, *time_left]))

    def note(self, text: str) -> None:
        # The stream is looked up at each call: it may have been replaced to capture standard output.
        stream = self._stream or sys.stdout
        stream.write(printable(text) + "\n")
        stream.flush()


class RichProgress(_TimedProgress):
    """Shows a live table: the current phase, the time left, and the curves so far."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or terminal()
        self._live: Live | None = None
        self._title = self._doing = ""
        self._done = 0
        self._rows: list[Mapping[str, float]] = []

    def start(self, total_steps: int, title: str) -> None:
        from rich.live import Live

        self.finish()
        super().start(total_steps, title)
        self._title, self._done, self._doing, self._rows = title, 0, "starting", []
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
        self._live.start()

    def phase(self, name: str) -> None:
        super().phase(name)
        self._doing = name
        if self._live is None:
            self._console.print(name, style="dim")

    def done(self, count: float, total: int) -> None:
        self._doing = f"{self._phase}: {self._part(count, total)}"

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        super().step(step, metrics)
        self._done = step
        self._rows.append(metrics)

    def note(self, text: str) -> None:
        self._console.print(text)

    def finish(self) -> None:
        if self._live is not None:
            self._doing = ""
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        rows = list(self._rows)  # the display refreshes in a thread of its own
        left = self._left()
        parts = (f"step {self._done} of {self._total}", self._doing, "" if left is None else f"{duration(left)} left")
        table = Table.grid(padding=(0, 2))
        for name, value in headline(rows[-1]).items() if rows else ():
            values = [row[name] for row in rows if name in row]
            table.add_row(f"  {name}", sparkline(values, width=max(10, self._console.width - 50)), short(value))
        return Group(Text(self._title, style="bold"), Text("  ".join(filter(None, parts))), table)


def progress_for() -> Progress:
    """Returns a RichProgress for a terminal, else a PlainProgress."""
    return RichProgress() if sys.stdout.isatty() else PlainProgress()


_WORTH_A_GLANCE = (
    *("entropy", "response_length", "invalid_operations", "zero_variance_groups"),
    *("curriculum/sampled_groups", "mismatch_mean"),
)
_WITHOUT_REWARD = ("loss", "gradient_norm")
"""Shown only without a reward: on policy the loss is about 0 by construction, however well training goes."""


def headline(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the seven most informative metrics: the reward and its terms, then those that show whether learning is healthy."""
    rewards = [name for name in metrics if name == "reward" or name.startswith("reward/")]
    others = _WORTH_A_GLANCE if rewards else (*_WORTH_A_GLANCE, *_WITHOUT_REWARD)
    chosen = [*rewards, *(name for name in others if name in metrics)]
    return {name: metrics[name] for name in (chosen or list(metrics))[:7]}
