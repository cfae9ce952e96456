"""What a long command shows while it runs: its plan and the time left, and one live table."""

from __future__ import annotations

import itertools
import math
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


# The plan of a long command: what will be done, how long it takes here, and how much of that is left.


STEP = "step"
"""A unit of work: one step of training. Other kinds are named by whoever plans them."""
RECENT = 8
"""Units of a kind are expected to take as long as the last so many that were done, on average."""


@dataclass(frozen=True, slots=True)
class PlanPart:
    """A stretch of the work: `units` of one kind, which are expected to take equally long."""

    name: str
    kind: str
    units: int


class Plan:
    """All parts of the work, with one time left for the whole, from measured speed.

    seconds: of one unit of each kind, measured before. What is done since then is timed and counts more and more.
    """

    def __init__(
        self,
        parts: Sequence[PlanPart],
        seconds: Mapping[str, float],
        clock: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self.parts = tuple(part for part in parts if part.units)
        self.seconds_of_each = {kind: float(seconds[kind]) for kind in dict.fromkeys(part.kind for part in self.parts)}
        self._clock = clock
        self._units = {kind: sum(p.units for p in self.parts if p.kind == kind) for kind in self.seconds_of_each}
        self._recent = {kind: deque([each], maxlen=RECENT) for kind, each in self.seconds_of_each.items()}
        self._expected = self.planned
        self._since = clock()

    def seconds(self, part: PlanPart) -> float:
        """What the part was planned to take."""
        return part.units * self.seconds_of_each[part.kind]

    @property
    def planned(self) -> float:
        """Seconds that the whole was planned to take."""
        return sum(self.seconds(part) for part in self.parts)

    def did(self, kind: str, units: int, seconds: float) -> None:
        """`units` of a kind are done and took `seconds`. Raises KeyError for a kind that was not planned."""
        self._recent[kind].append(seconds / units)
        self._units[kind] = max(0, self._units[kind] - units)
        self._expected = sum(n * sum(self._recent[k]) / len(self._recent[k]) for k, n in self._units.items())
        self._since = self._clock()

    def left(self) -> float:
        """Seconds to the end of the whole, at least 0."""
        return max(0.0, self._expected - (self._clock() - self._since))

    def lines(self) -> list[str]:
        """A line per part, with its minutes, and one for the whole."""
        rows = [(part.name, self.seconds(part)) for part in self.parts]
        rows.append(("together", self.planned))
        width = max(len(name) for name, _ in rows)
        return [f"  {name:<{width}}  {seconds / 60:5.1f} min" for name, seconds in rows]


# Progress: how a long run says where it is. A live display on a terminal, one plain line per step elsewhere.


class Progress:
    """What a trainer tells. It says nothing itself: for tests, and for callers with a display of their own.

    `start` may be called again for the next half of a run; `finish` is called once, at the end."""

    def planned(self, plan: Plan) -> None:
        """What the whole is, of which `start` may begin several stretches: the time left is the plan's from now on."""

    def start(self, total_steps: int, title: str) -> None: ...

    def phase(self, name: str) -> None:
        """What is being done now (`loading the model`, `evaluating`): shown until the next call."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """`step` of `total_steps` is done. Families by slash: `reward/f1`, `seconds/sample`."""

    def note(self, text: str) -> None:
        """A line that stays."""

    def finish(self) -> None: ...


SilentProgress = Progress


class _TimedProgress(Progress):
    """Knows the time left: the plan's, or else from the steps seen since the first one. What came before it (loading, measuring,
    an earlier process) says nothing about a step's time."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._total = 0
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def planned(self, plan: Plan) -> None:
        self._plan = plan

    def start(self, total_steps: int, title: str) -> None:
        self._total, self._first, self._last = total_steps, None, None

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._last = (step, time.monotonic())
        self._first = self._first or self._last

    def _left(self) -> float | None:
        """Seconds; None where nothing can be said yet, or nothing is left."""
        if self._plan is not None:
            return self._plan.left()
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
