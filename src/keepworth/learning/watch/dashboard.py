"""The curves of a run in a terminal, and numbers as short text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from keepworth.learning.watch.anomalies import Anomaly

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


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


# What a person watches while a run goes on: how far it is, its curves in lines of blocks, and what looks wrong.
#
# The same picture stands over a training (`RichProgress`), is drawn from a run folder by `keepworth watch`, and is data first:
# `RunView` in, lines out.


Row = Mapping[str, Any]
Scale = Literal["own", "from zero", "share"]
"""Of a curve: from its lowest value to its highest, from 0 to its highest, from 0 to 1."""

SHOWN: Mapping[str, tuple[str, Scale]] = {
    "entropy": ("entropy", "from zero"),
    "response_length": ("answer length", "from zero"),
    "mismatch_mean": ("sampler, learner gap", "from zero"),
    "ess": ("sample size, share", "share"),
    "lag_mean": ("lag, versions", "from zero"),
    "zero_variance_groups": ("groups without signal", "share"),
    "invalid_operations": ("invalid operations", "share"),
    "reference_kl": ("KL to reference", "from zero"),
    "clip_fraction": ("clipped", "share"),
    "stop/max_tokens": ("cut off", "share"),
    "gradient_norm": ("gradient norm", "from zero"),
}
"""Metrics of the table, after the reward and its terms: what they are called there, and what their curve is drawn on."""
MOST_TERMS = 4


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of the table: what it is called, its values from first to last, and what stands after the last one."""

    label: str
    values: tuple[float, ...]
    suffix: str = ""
    scale: Scale = "own"


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment. rows: metrics of the role being trained; held_out: a curve per arm and metric;
    left: seconds to the last step, None where nobody knows; state: `running`, `finished`, `stopped` ..."""

    name: str
    title: str
    done: int
    total: int
    rows: Sequence[Row] = ()
    held_out: Sequence[Curve] = ()
    anomalies: Sequence[Anomaly] = ()
    left: float | None = None
    phase: str = ""
    state: str = ""


def training_curves(rows: Sequence[Row]) -> list[Curve]:
    """The reward, its terms where there are several, and those of `SHOWN` that are measured and are not always 0."""
    names = dict.fromkeys(name for row in rows for name in row)
    terms = [name for name in names if name.startswith("reward/")]
    found = []
    for name in ["reward", *(terms if len(terms) > 1 else [])[:MOST_TERMS], *SHOWN]:
        values = tuple(float(row[name]) for row in rows if isinstance(row.get(name), int | float))
        if values and (name.startswith("reward") or any(values)):
            label, scale = SHOWN.get(name, (_term(name), "own"))
            found.append(Curve(label, values, scale=scale))
    return found


def _term(name: str) -> str:
    """Terms stand indented below the reward."""
    return f"  {name.split('/', 1)[1].replace('_', ' ')}" if "/" in name else name


def seconds_by_phase(row: Row) -> dict[str, float]:
    return {name.split("/", 1)[1]: float(value) for name, value in row.items() if name.startswith("seconds/")}


def dashboard(view: RunView, width: int, height: int | None = None) -> RenderableType:
    """The picture, for a terminal of `width` columns. height: lines that there are; what fits no more is left out, the
    advice first, then the curves from the last one up."""
    from rich.console import Group
    from rich.text import Text

    training, held_out = training_curves(view.rows), list(view.held_out)
    spent = _spent(view.rows)
    advice = True
    if height is not None:
        seen = sum(2 + len(each.message) // max(1, width - 2) + 1 for each in view.anomalies)
        room = height - 2 - (2 if spent else 0) - seen
        lines = 2 * bool(training) + 2 * bool(held_out)
        advice = lines + len(training) + len(held_out) + sum(len(each.tries) for each in view.anomalies) <= room
        held_out = held_out[: max(1, room // 2 - 2)]
        training = training[: max(1, room - lines - len(held_out))]
    parts: list[RenderableType] = [_head(view, width)]
    if training or held_out:
        parts += [Text(""), _curves(training, held_out, width)]
    if spent:
        parts += [Text(""), Text(spent, style="dim", no_wrap=True, overflow="ellipsis")]
    for each in view.anomalies:
        parts += [Text(""), anomaly_lines(each, advice=advice and each.now)]
    return Group(*parts)


def anomaly_lines(each: Anomaly, *, advice: bool = True) -> RenderableType:
    """What is seen, in yellow while it holds, and what to try, a line each."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    steps = f"step {each.last}" if each.first == each.last else f"steps {each.first} to {each.last}"
    style = "bold yellow" if each.now else "bold"
    where = ", ".join([each.role] * bool(each.role) + [steps] + ["over"] * (not each.now))
    parts: list[RenderableType] = [Text.assemble((f"! {each.name}", style), (f"  {where}", "dim"))]
    parts.append(Padding(Text(each.message), (0, 0, 0, 2)))
    if advice:
        tries = Table.grid(padding=(0, 2, 0, 0))
        for number, what in enumerate(each.tries):
            tries.add_row("" if number else "  try", what, style="dim")
        parts.append(tries)
    return Group(*parts)


def _head(view: RunView, width: int) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    facts = [f"{view.done}/{view.total}" if view.total else f"step {view.done}"]
    if view.left is not None:
        facts.append(f"{duration(view.left)} left")
    said = Text("  ".join(facts), style="cyan")
    for words in (view.phase, view.state):
        if words:
            said.append(f"  {words}", style="dim")
    title = Text.assemble((view.name, "bold"), ("  " if view.name and view.title else ""), view.title)
    if not view.total:
        return Group(title, said)
    line = Table.grid(padding=(0, 2))
    bar = max(10, min(40, width - len(said.plain) - 4))
    line.add_row(ProgressBar(total=view.total, completed=view.done, width=bar), said)
    return Group(title, line)


def _curves(training: Sequence[Curve], held_out: Sequence[Curve], width: int) -> Table:
    """What it is, where it began, how it went, where it is."""
    from rich.table import Table
    from rich.text import Text

    labels = min(max(len(each.label) for each in [*training, *held_out]), max(20, width // 3))
    suffixes = max((len(each.suffix) for each in held_out), default=0)
    line = max(8, min(60, width - labels - 2 * 8 - suffixes - 8))
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, width=labels, overflow="ellipsis")
    table.add_column(no_wrap=True, justify="right", min_width=7, style="dim")
    table.add_column(no_wrap=True, width=line)
    table.add_column(no_wrap=True, justify="right", min_width=7, style="bold")
    table.add_column(no_wrap=True, style="dim")

    def add(each: Curve, scale: tuple[float, float] | None, colour: str) -> None:
        first = number(each.values[0]) if len(each.values) > 1 else ""
        drawn = Text(sparkline(each.values, scale, width=line), style=colour)
        table.add_row(Text(each.label), first, drawn, number(each.values[-1]), each.suffix)

    if training:
        table.add_row(Text("training", style="dim"), "first", "", Text("now", style="not bold dim"))
    for each in training:
        add(each, _bounds(each), "cyan")
    if held_out:
        if training:
            table.add_row("")
        table.add_row(Text("held-out", style="dim"), "first", "", Text("now", style="not bold dim"))
        # Arms are compared with each other: one scale for all of them.
        values = [value for each in held_out for value in each.values]
        for each in held_out:
            add(each, (min(0.0, *values), max(values)), "green")
    return table


def _bounds(curve: Curve) -> tuple[float, float] | None:
    finite = [value for value in curve.values if math.isfinite(value)]
    if curve.scale == "own" or not finite:
        return None
    return min(0.0, *finite), max(1.0 if curve.scale == "share" else 0.0, *finite)


def number(value: float) -> str:
    """As `short`, but with the same digits all down a column: 1.000 below 0.984."""
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 100 else short(value)


def _spent(rows: Sequence[Row]) -> str:
    """Seconds of a step by phase, as means over the last ten, and what was computed in them."""
    recent = rows[-10:]
    if not recent:
        return ""
    totals: dict[str, float] = {}
    for row in recent:
        for name, value in seconds_by_phase(row).items():
            totals[name] = totals.get(name, 0.0) + value / len(recent)
    if not totals:
        return ""
    speeds = rates({name: value for name, value in rows[-1].items() if isinstance(value, int | float)})
    said = {"tokens_per_second/sample": "drawn", "tokens_per_second/learn": "learned from"}
    parts = ["  ".join(f"{name} {value:.1f} s" for name, value in totals.items())]
    parts += [f"{value:,.0f} tokens/s {said[name]}" for name, value in speeds.items()]
    return "a step:  " + "  ·  ".join(parts)


def rates(row: Mapping[str, float]) -> dict[str, float]:
    """Tokens per second of sampling and of learning, from a step's row: derived where it is shown, so that the rows of a
    run that was killed differ from those of one that was not in `seconds/...` alone."""
    found = {}
    for phase, count in (("sample", "drawn_tokens"), ("learn", "tokens")):
        seconds = row.get(f"seconds/{phase}", 0.0)
        if count in row and seconds > 0:
            found[f"tokens_per_second/{phase}"] = row[count] / seconds
    return found
