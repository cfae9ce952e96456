"""What a long command shows while it runs: the time left, and one live table."""

from __future__ import annotations

import itertools
import math
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from keepworth.episodes.text import printable, terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live


# Numbers for a line of text: a curve as blocks, three significant digits, a stretch of time.


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


# Progress: how a long run says where it is. A live display on a terminal, one plain line per step elsewhere.


class Progress:
    """What a trainer tells. It says nothing itself: for tests, and for callers with a display of their own.

    `start` may be called again for the next half of a run; `finish` is called once, at the end."""

    def start(self, total_steps: int, title: str) -> None: ...

    def phase(self, name: str) -> None:
        """What is being done now (`loading the model`, `evaluating`): shown until the next call."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """`step` of `total_steps` is done. Families by slash: `reward/f1`, `seconds/sample`."""

    def note(self, text: str) -> None:
        """A line that stays."""

    def finish(self) -> None: ...


class _TimedProgress(Progress):
    """Knows the time left, from the steps seen since the first one. What came before it (loading, measuring,
    an earlier process) says nothing about a step's time."""

    def __init__(self) -> None:
        self._total = 0
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def start(self, total_steps: int, title: str) -> None:
        self._total, self._first, self._last = total_steps, None, None

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._last = (step, time.monotonic())
        self._first = self._first or self._last

    def _left(self) -> float | None:
        """Seconds; None where nothing can be said yet, or nothing is left."""
        if self._first is None or self._last is None or not self._first[0] < self._last[0] < self._total:
            return None
        per_step = (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])
        return max(0.0, per_step * (self._total - self._last[0]) - (time.monotonic() - self._last[1]))


class PlainProgress(_TimedProgress):
    """One line per step, flushed: for files, pipes, continuous integration."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self._stream = stream

    def start(self, total_steps: int, title: str) -> None:
        super().start(total_steps, title)
        self.note(f"== {title}: {total_steps} steps" if total_steps else f"== {title}")

    def phase(self, name: str) -> None:
        self.note(f".. {name}")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        super().step(step, metrics)
        left = self._left()
        time_left = [f"left {duration(left)}"] if left is not None else []
        line, width = f"step {step}/{self._total}", shutil.get_terminal_size().columns
        # What does not fit on a line of the terminal is in metrics.jsonl.
        for name, value in headline(metrics).items():
            longer = f"{line}  {name} {short(value)}"
            line = longer if len("  ".join([longer, *time_left])) <= width else line
        self.note("  ".join([line, *time_left]))

    def note(self, text: str) -> None:
        # Looked up at each call: whoever captures standard output may have replaced it since.
        stream = self._stream or sys.stdout
        stream.write(printable(text) + "\n")
        stream.flush()


class RichProgress(_TimedProgress):
    """A live table: what is being done, the time left, and the curves so far."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or terminal()
        self._live: Live | None = None
        self._title = self._phase = ""
        self._done = 0
        self._rows: list[Mapping[str, float]] = []

    def start(self, total_steps: int, title: str) -> None:
        from rich.live import Live

        self.finish()
        super().start(total_steps, title)
        self._title, self._done, self._phase, self._rows = title, 0, "starting", []
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
        self._live.start()

    def phase(self, name: str) -> None:
        self._phase = name
        if self._live is None:
            self._console.print(name, style="dim")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        super().step(step, metrics)
        self._done = step
        self._rows.append(metrics)

    def note(self, text: str) -> None:
        self._console.print(text)

    def finish(self) -> None:
        if self._live is not None:
            self._phase = ""
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        rows = list(self._rows)  # the display refreshes in a thread of its own
        left = self._left()
        parts = (f"step {self._done} of {self._total}", self._phase, "" if left is None else f"{duration(left)} left")
        table = Table.grid(padding=(0, 2))
        for name, value in headline(rows[-1]).items() if rows else ():
            values = [row[name] for row in rows if name in row]
            table.add_row(f"  {name}", sparkline(values, width=max(10, self._console.width - 50)), short(value))
        return Group(Text(self._title, style="bold"), Text("  ".join(filter(None, parts))), table)


def progress_for(stream: TextIO | None = None) -> Progress:
    """RichProgress where people watch a terminal, PlainProgress everywhere else."""
    target = stream or sys.stdout
    return RichProgress() if target.isatty() else PlainProgress(stream)


_WORTH_A_GLANCE = ("entropy", "response_length", "invalid_operations", "zero_variance_groups", "mismatch_mean")
_WITHOUT_REWARD = ("loss", "gradient_norm")
"""Beside a reward the loss says nothing: on policy it is about 0 by construction, however well it goes."""


def headline(metrics: Mapping[str, float], limit: int = 7) -> dict[str, float]:
    """The numbers worth a glance: the reward and its terms, then those that say whether learning is healthy."""
    rewards = [name for name in metrics if name == "reward" or name.startswith("reward/")]
    others = _WORTH_A_GLANCE if rewards else (*_WORTH_A_GLANCE, *_WITHOUT_REWARD)
    chosen = [*rewards, *(name for name in others if name in metrics)]
    return {name: metrics[name] for name in (chosen or list(metrics))[:limit]}
