"""Progress: how a long run says where it is. A live display on a terminal, one plain line per step elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live


class Progress(Protocol):
    """What a trainer tells. `start` may be called again for the next half of a run; `finish` is called once, at the end."""

    def start(self, total_steps: int, title: str) -> None: ...

    def phase(self, name: str) -> None:
        """What is being done now (`loading the model`, `evaluating`): shown until the next call."""
        ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """`step` of `total_steps` is done. Families by slash: `reward/f1`, `seconds/sample`."""
        ...

    def note(self, text: str) -> None:
        """A line that stays."""
        ...

    def finish(self) -> None: ...


class SilentProgress:
    """Says nothing: for tests and for callers with a display of their own."""

    def start(self, total_steps: int, title: str) -> None: ...

    def phase(self, name: str) -> None: ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def note(self, text: str) -> None: ...

    def finish(self) -> None: ...


class PlainProgress:
    """One line per step, flushed: for files, pipes and continuous integration."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._total = 0
        self._clock = _Clock()

    def start(self, total_steps: int, title: str) -> None:
        self._total = total_steps
        self._clock = _Clock()
        self._say(f"== {title}: {total_steps} steps" if total_steps else f"== {title}")

    def phase(self, name: str) -> None:
        self._say(f".. {name}")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        left = self._clock.left(step, self._total)
        shown = [f"{name} {short(value)}" for name, value in headline(metrics).items()]
        self._say("  ".join([f"step {step}/{self._total}", *shown, *([f"left {left}"] if left else [])]))

    def note(self, text: str) -> None:
        self._say(text)

    def finish(self) -> None:
        pass

    def _say(self, text: str) -> None:
        # Looked up at each call: whoever captures standard output may have replaced it since.
        stream = self._stream or sys.stdout
        stream.write(text + "\n")
        stream.flush()


class RichProgress:
    """A bar with the time left, what is being done, and a small table of the latest numbers."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self._console = console or Console()
        self._live: Live | None = None
        self._title = ""
        self._phase = ""
        self._total = 0
        self._done = 0
        self._metrics: dict[str, float] = {}
        self._history: dict[str, list[float]] = {}
        self._clock = _Clock()

    def start(self, total_steps: int, title: str) -> None:
        from rich.live import Live

        self.finish()
        self._title, self._total, self._done, self._phase = title, total_steps, 0, "starting"
        self._metrics, self._history, self._clock = {}, {}, _Clock()
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
        self._live.start()

    def phase(self, name: str) -> None:
        self._phase = name
        if self._live is None:
            self._console.print(f"[dim]{name}[/dim]")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._clock.left(step, self._total)
        self._done, self._metrics = step, dict(metrics)
        for name, value in metrics.items():
            self._history.setdefault(name, []).append(float(value))

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def finish(self) -> None:
        if self._live is not None:
            self._phase = ""
            self._live.stop()
            self._live = None

    def _render(self) -> Group:
        from rich.console import Group, RenderableType
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 2))
        left = self._clock.left(self._done, self._total)
        head.add_row(
            Text(self._title, style="bold"),
            ProgressBar(total=max(1, self._total), completed=self._done, width=30),
            Text(f"{self._done}/{self._total}"),
            Text(f"{left} left" if left else "", style="cyan"),
            Text(self._phase, style="dim"),
        )
        parts: list[RenderableType] = [head]
        shown = headline(self._metrics)
        if shown:
            numbers = Table.grid(padding=(0, 2))
            for name, value in shown.items():
                numbers.add_row(
                    Text(name, style="dim"),
                    Text(short(value), style="bold"),
                    Text(sparkline(self._history.get(name, [])[-40:]), style="cyan"),
                )
            parts.append(numbers)
        seconds = {name.split("/", 1)[1]: v for name, v in self._metrics.items() if name.startswith("seconds/")}
        if seconds:
            spent = "  ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
            parts.append(Text(f"last step: {spent}", style="dim"))
        return Group(*parts)


def progress_for(stream: TextIO | None = None) -> Progress:
    """RichProgress where people watch a terminal, PlainProgress everywhere else."""
    target = stream or sys.stdout
    return RichProgress() if target.isatty() else PlainProgress(stream)


_WORTH_A_GLANCE = ("entropy", "response_length", "invalid_operations", "loss", "mismatch_mean", "gradient_norm")


def headline(metrics: Mapping[str, float], limit: int = 7) -> dict[str, float]:
    """The numbers worth a glance: the reward and its terms, then those that say whether learning is healthy."""
    rewards = [name for name in metrics if name == "reward" or name.startswith("reward/")]
    chosen = [*rewards, *(name for name in _WORTH_A_GLANCE if name in metrics)]
    return {name: metrics[name] for name in (chosen or list(metrics))[:limit]}


def short(value: float) -> str:
    """Three significant digits, without an exponent where a person would not write one."""
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3f}" if 1e-3 <= abs(value) < 100 else f"{value:.3g}"


def sparkline(values: Sequence[float], scale: tuple[float, float] | None = None) -> str:
    """A curve in one line of text, on `scale` (low, high) or from its own lowest value to its highest."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    low, high = scale or (min(finite), max(finite))
    bars = "▁▂▃▄▅▆▇█"
    return "".join(bars[round((value - low) / (high - low) * 7)] if high > low else bars[3] for value in finite)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `1 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class _Clock:
    """Time left, from the steps seen since the first one: what came before it (loading, measuring, an earlier process)
    says nothing about a step's time."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def left(self, step: int, total: int) -> str:
        now = time.monotonic()
        if step < 1 or step >= total:
            return ""
        if self._first is None:
            self._first = (step, now)
        if self._last is None or step != self._last[0]:
            self._last = (step, now)
        done = self._last[0] - self._first[0]
        if done <= 0:
            return ""
        per_step = (self._last[1] - self._first[1]) / done
        return duration(max(0.0, per_step * (total - step) - (now - self._last[1])))
