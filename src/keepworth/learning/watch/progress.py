"""Progress: how a long run says where it is. A live display on a terminal, one plain line per step elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TextIO

from keepworth.episodes.terminal import printable, terminal
from keepworth.learning.watch.anomalies import present
from keepworth.learning.watch.dashboard import View, dashboard
from keepworth.learning.watch.sparkline import duration, short

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from keepworth.learning.watch.plan import Plan


class Progress(Protocol):
    """What a trainer tells. `start` may be called again for the next half of a run; `finish` is called once, at the end."""

    def planned(self, plan: Plan) -> None:
        """What the whole is, of which `start` may begin several stretches: the time left is the plan's from now on."""
        ...

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

    def planned(self, plan: Plan) -> None: ...

    def start(self, total_steps: int, title: str) -> None: ...

    def phase(self, name: str) -> None: ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def note(self, text: str) -> None: ...

    def finish(self) -> None: ...


class PlainProgress:
    """One line per step, flushed, and one where something begins to look wrong: for files, pipes, continuous integration."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._total = 0
        self._plan: Plan | None = None
        self._clock = _Clock()
        self._rows: list[Mapping[str, float]] = []
        self._named: set[str] = set()

    def planned(self, plan: Plan) -> None:
        self._plan = plan

    def start(self, total_steps: int, title: str) -> None:
        self._total = total_steps
        self._clock, self._rows, self._named = _Clock(), [], set()
        self._say(f"== {title}: {total_steps} steps" if total_steps else f"== {title}")

    def phase(self, name: str) -> None:
        self._say(f".. {name}")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        left = self._clock.left(step, self._total) if self._plan is None else self._plan.left()
        shown = [f"{name} {short(value)}" for name, value in headline(metrics).items()]
        time_left = [f"left {duration(left)}"] if left is not None else []
        self._say("  ".join([f"step {step}/{self._total}", *shown, *time_left]))
        self._rows.append({"step": step, **metrics})
        here = present(self._rows)
        for each in here:
            if each.name not in self._named:
                self._say(f"!! {each.name}: {each.message}. Try: {'; or '.join(each.tries)}.")
        self._named = {each.name for each in here}

    def note(self, text: str) -> None:
        self._say(text)

    def finish(self) -> None:
        pass

    def _say(self, text: str) -> None:
        # Looked up at each call: whoever captures standard output may have replaced it since.
        stream = self._stream or sys.stdout
        stream.write(printable(text) + "\n")
        stream.flush()


class RichProgress:
    """A bar with the time left, what is being done, the curves so far, and what looks wrong."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or terminal()
        self._live: Live | None = None
        self._title = ""
        self._phase = ""
        self._total = 0
        self._done = 0
        self._rows: list[Mapping[str, float]] = []
        self._plan: Plan | None = None
        self._clock = _Clock()

    def planned(self, plan: Plan) -> None:
        self._plan = plan

    def start(self, total_steps: int, title: str) -> None:
        from rich.live import Live

        self.finish()
        self._title, self._total, self._done, self._phase = title, total_steps, 0, "starting"
        self._rows, self._clock = [], _Clock()
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
        self._live.start()

    def phase(self, name: str) -> None:
        self._phase = name
        if self._live is None:
            self._console.print(name, style="dim")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._clock.left(step, self._total)
        self._done = step
        self._rows.append({"step": step, **metrics})

    def note(self, text: str) -> None:
        self._console.print(text)

    def finish(self) -> None:
        if self._live is not None:
            self._phase = ""
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        rows = list(self._rows)  # the display refreshes in a thread of its own
        view = View(
            name="",
            title=self._title,
            done=self._done,
            total=self._total,
            rows=rows,
            anomalies=present(rows),
            left=self._clock.left(self._done, self._total) if self._plan is None else self._plan.left(),
            phase=self._phase,
        )
        return dashboard(view, self._console.width, self._console.height - 1)


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


class _Clock:
    """Time left, from the steps seen since the first one: what came before it (loading, measuring, an earlier process)
    says nothing about a step's time."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def left(self, step: int, total: int) -> float | None:
        """Seconds; None where nothing can be said yet, or nothing is left."""
        now = time.monotonic()
        if step < 1 or step >= total:
            return None
        if self._first is None:
            self._first = (step, now)
        if self._last is None or step != self._last[0]:
            self._last = (step, now)
        done = self._last[0] - self._first[0]
        if done <= 0:
            return None
        per_step = (self._last[1] - self._first[1]) / done
        return max(0.0, per_step * (total - step) - (now - self._last[1]))
