"""`keepworth show` and `keepworth report`: what a run learned, in the terminal and as a page."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.base.json_values import read_json
from keepworth.cli.command import argument, option
from keepworth.cli.episode_panel import episode_panel
from keepworth.cli.output import Runs, say, say_json
from keepworth.cli.tables import print_evaluation, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from keepworth.charts.charts import Panel
    from keepworth.training.run_folder import RunFolder


def show(
    name: Annotated[str, argument("RUN", "A run or an evaluation; the latest run if none is given.")] = "",
    episodes: Annotated[bool, option("--episodes", "Page through the episodes instead.")] = False,
    step: Annotated[int | None, option("--step", "Episodes of this step only.")] = None,
    role: Annotated[str | None, option("--role", "Episodes of this role only.")] = None,
    arm: Annotated[str | None, option("--arm", "Episodes of this arm only (train, or an evaluation's).")] = None,
    worst: Annotated[bool, option("--worst", "Lowest reward first.")] = False,
    limit: Annotated[int | None, option("--limit -n", "At most this many episodes.", min=1)] = None,
    export: Annotated[Path | None, option("--export", "Write the episodes to this file of JSON lines instead.")] = None,
    as_json: Annotated[bool, option("--json", "Print its tables as JSON; with --episodes, a line each.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Show a run: its tables and curves, or its episodes."""
    from keepworth.base.text import terminal
    from keepworth.records.episode import episode_to_json

    console = terminal()
    # What says which episodes are meant asks for episodes.
    episodes = episodes or worst or any(value is not None for value in (step, role, arm, limit, export))
    if episodes:
        run = named_or_latest(name, runs)
        matching = list(run.episodes(step=step, arm=arm, role=role))
        if worst:
            matching.sort(key=lambda stored: stored.episode.reward)
        episodes_shown = matching[:limit]
        if not episodes_shown:
            raise KeepworthError(
                f"No episode of {run.path} fits.", "Leave options out: what is shown says its step, arm and role."
            )
        if export is not None:
            from keepworth.worlds.traces import write_traces

            say(f"{write_traces(export, (stored.episode for stored in episodes_shown))} episodes are in {export}.")
            return
        if as_json:
            for stored in episodes_shown:
                say_json({"step": stored.step, "arm": stored.arm, **episode_to_json(stored.episode)})
            return
        with console.pager(styles=True) if console.is_terminal else nullcontext():
            for stored in episodes_shown:
                episode = stored.episode
                named = (f"step {stored.step}", stored.arm, episode.role, episode.task, episode.stop.value)
                console.print(episode_panel(episode, named))
    elif (evaluated := _evaluated(name, runs)) is not None:
        summary = read_json(
            evaluated / "summary.json", "Give the command of the evaluation again: it writes the file anew."
        )
        if as_json:
            say_json(summary, indent=1)
        else:
            print_evaluation(summary, console)
    else:
        run = named_or_latest(name, runs)
        if as_json:
            say_json(_as_record(run), indent=1)
            return
        print_tables(run, console)
        print_curves(run, console)
        if not _as_record(run)["tables"]:
            say(f"Nothing of {run.path} is measured yet.", error=True)


def _evaluated(name: str, runs: Path) -> Path | None:
    """Returns the folder of a finished `keepworth eval run` or `keepworth eval stream`; None where it is no such folder."""
    for path in (Path(name), runs / name) if name else ():
        if (path / "rows.jsonl").is_file() and (path / "summary.json").is_file():
            return path
    return None


def _as_record(run: RunFolder) -> dict[str, Any]:
    """Converts tables to a record, with the labels that they show."""
    from dataclasses import asdict

    from keepworth.training.watch.tables import tables_of

    result, tables = run.result(), [asdict(table) for table in tables_of(run)]
    about = {"run": run.name, "path": str(run.path), "finished": result is not None}
    return {**about, "headline": (result or {}).get("headline"), "tables": tables}


def report(
    name: Annotated[str, argument("RUN", "The name of a run or its folder; the latest if none is given.")] = "",
    as_json: Annotated[bool, option("--json", "Print the path of what was written as JSON.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Make a run's report.html anew."""
    from keepworth.training.watch.report import write_report

    page = write_report(named_or_latest(name, runs))
    if as_json:
        say_json({"page": str(page)})
    else:
        say(page)


def named_or_latest(name: str, runs: Path) -> RunFolder:
    """Returns the run of that name, or the one that was started last. Raises KeepworthError where there is none."""
    from keepworth.training.run_folder import find_run, list_runs

    folders, fix = list_runs(runs), "keepworth demo makes one; --runs looks elsewhere."
    if not (name or folders):
        raise KeepworthError(f"There is no run in {runs} yet.", fix)
    try:
        return find_run(name or str(folders[0]), runs)
    except UnknownName as error:
        error.fix = error.fix if folders else fix
        raise


def print_tables(run: RunFolder, console: Console) -> None:
    """Prints the final tables, or the latest measurement of each arm while there are none."""
    from keepworth.training.watch.tables import tables_of

    headline = (run.result() or {}).get("headline")
    if headline:
        console.print(f"\n{headline}\n", style="bold")
    for result in tables_of(run):
        print_table(result, console)


def print_curves(run: RunFolder, console: Console) -> None:
    """Prints every curve as a line of blocks, from first to last value."""
    from keepworth.charts.curves import filter_drawable, panels

    for panel in filter_drawable(panels(run.metrics(), run.evals())):
        _print_panel(panel, console)


def _print_panel(panel: Panel, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    from keepworth.training.watch.progress import short, sparkline

    table = Table.grid(padding=(0, 2))
    every = [value for series in panel.series for value in series.values if math.isfinite(value)]
    # Held-out arms are compared with each other: one scale for all of them.
    scale = (min(every), max(every)) if panel.held_out and every else None
    labels = max(len(series.label) for series in panel.series)
    for series in panel.series:
        values = list(series.values)
        table.add_row(
            f"  {series.label}",
            Text(sparkline(values, scale, width=max(10, min(60, console.width - labels - 26))), style="cyan"),
            Text.assemble(short(values[0]), (" to ", "dim"), short(values[-1]))
            if len(values) > 1
            else short(values[0]),
        )
    owner = f"{panel.role}: " if panel.role else ""
    console.print(Text.assemble("\n", (f"{owner}{panel.title}", "bold"), (f"  {panel.unit}", "dim")))
    console.print(table)
