"""`keepworth watch RUN`: the curves of a run while another process trains it, or of one that is finished."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.cli.output import Runs, say_json

if TYPE_CHECKING:
    from rich.console import Console

    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.dashboard import Curve, RunView
    from keepworth.learning.watch.progress import RunStatus

FINISHED, STOPPED = "finished", "stopped"
LATEST = 10
"""Lines of a run's past that are printed where there is no terminal, before those that are new."""


def watch(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="Name of a run or its folder; the latest if not given.")
    ] = "",
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and leave.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON per step, measurement and anomaly.")
    ] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Watch a run: reward, held-out curves, what training costs, and what looks wrong. Ctrl-C leaves; the run goes on.

    Ends by itself when the run is finished or its process is gone."""
    from keepworth.cli.show import named_or_latest
    from keepworth.episodes.text import terminal

    run = named_or_latest(name, runs)
    console = terminal()
    if as_json:
        _lines(run, console, every, once, as_json=True)
    elif console.is_terminal:
        _live(run, console, every, once)
    else:
        _lines(run, console, every, once)


def view_of(run: RunFolder, now: float | None = None) -> RunView:
    """The run as it stands on the disk. now: seconds since 1970, for the time left.

    Of several roles, the one that is trained, or was trained last."""
    from keepworth.learning.run_folder import writer
    from keepworth.learning.watch.anomalies import anomalies
    from keepworth.learning.watch.dashboard import RunView
    from keepworth.learning.watch.progress import RunStatus, read_status

    process = writer(run.path)
    finished = run.result() is not None
    status = (read_status(run.path) if process else None) or RunStatus()
    every = run.metrics()
    role = every[-1].get("role") if every else None
    rows = [row for row in every if row.get("role") == role]
    last = int(every[-1]["step"]) if every else 0
    state = FINISHED if finished else f"process {process}" if process else STOPPED
    return RunView(
        name=run.name,
        title=status.title,
        done=status.done if status.total else last,
        total=status.total or (last if finished else 0),
        rows=rows,
        held_out=_held_out(run, None if role is None else str(role)),
        anomalies=[each for each in anomalies(rows) if each.now],
        left=time_left([float(row["time"]) for row in rows if "time" in row], status, now or time.time()),
        phase=status.phase,
        state=state,
    )


def time_left(times: Sequence[float], status: RunStatus, now: float) -> float | None:
    """Seconds: to the planned end of the whole, else to the last step, from the pace of the last twenty, with what was
    measured between them; None where nobody can say."""
    if status.ends:
        return max(0.0, status.ends - now)
    recent = times[-20:]
    if len(recent) < 2 or not 0 < status.done < status.total:
        return None
    pace = (recent[-1] - recent[0]) / (len(recent) - 1)
    return max(0.0, pace * (status.total - status.done) - max(0.0, now - recent[-1]))


def _held_out(run: RunFolder, role: str | None) -> list[Curve]:
    """The arms of the leading metric of each split, measured for `role`; of runs without roles, all."""
    from keepworth.evaluation.curves import panels
    from keepworth.learning.watch.dashboard import Curve

    found = []
    for panel in panels([], run.evals()):
        if not panel.wide or (role and panel.role and panel.role != role):
            continue
        for series in panel.series:
            bounds = f"[{series.low[-1]:.2f}, {series.high[-1]:.2f}]" if series.low else ""
            found.append(Curve(f"{panel.title.removesuffix(' questions')}: {series.label}", series.values, bounds))
    return found


def _live(run: RunFolder, console: Console, every: float, once: bool) -> None:
    from rich.live import Live

    from keepworth.learning.watch.dashboard import dashboard

    view = view_of(run)
    if not once and _goes_on(view):
        first = dashboard(view, console.width, console.height - 1)
        with Live(first, console=console, auto_refresh=False, transient=True) as live:
            while _goes_on(view):
                time.sleep(every)
                view = view_of(run)
                live.update(dashboard(view, console.width, console.height - 1), refresh=True)
    console.print(dashboard(view, console.width))  # as it ended, with all there is to say
    if view.state == STOPPED:
        console.print("\nIt is not finished: the command that began it continues it.", style="dim")


def _lines(run: RunFolder, console: Console, every: float, once: bool, *, as_json: bool = False) -> None:
    """A line per step and per measurement, and one per anomaly that is new; the state first and last."""
    from keepworth.episodes.text import one_line
    from keepworth.learning.watch.dashboard import duration, short
    from keepworth.learning.watch.progress import headline

    def say(record: dict[str, Any], *words: str) -> None:
        if as_json:
            say_json(record)
            return
        console.file.write(one_line("  ".join(word for word in words if word)) + "\n")
        console.file.flush()

    step = -1
    measured: dict[str, int] = {}
    named: set[str] = set()
    view = view_of(run)
    say({"run": run.name, "title": view.title, "state": view.state}, f"== {run.name}", view.title, view.state)
    while True:
        rows = [row for row in run.metrics() if int(row["step"]) > step]
        for row in rows[-LATEST:] if step < 0 else rows:
            numbers = {key: value for key, value in row.items() if isinstance(value, float)}
            say(
                dict(row),
                f"step {row['step']}",
                *(f"{name} {short(value)}" for name, value in headline(numbers).items()),
            )
        step = int(rows[-1]["step"]) if rows else step
        for curve in view.held_out:
            if measured.get(curve.label) != len(curve.values):
                value = curve.values[-1]
                say(
                    {"held_out": curve.label, "value": value}, "held-out", f"{curve.label} {short(value)}", curve.suffix
                )
                measured[curve.label] = len(curve.values)
        for each in view.anomalies:
            if each.name not in named:
                record = {"anomaly": each.name, "message": each.message, "tries": list(each.tries)}
                say(record, f"!! {each.name}: {each.message}. Try: {'; or '.join(each.tries)}.")
        named = {each.name for each in view.anomalies}
        if once or not _goes_on(view):
            break
        time.sleep(every)
        view = view_of(run)
    left = "" if view.left is None else f"{duration(view.left)} left"
    ended = {"state": view.state, "step": view.done, "total": view.total or None, "seconds_left": view.left}
    say(ended, f"== {view.state}", f"step {view.done}" + (f"/{view.total}" if view.total else ""), left)


def _goes_on(view: RunView) -> bool:
    return view.state not in (FINISHED, STOPPED)
