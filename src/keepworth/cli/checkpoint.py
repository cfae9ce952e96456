"""`keepworth checkpoint`: look into what a run continues from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from keepworth.cli.output import Runs, say_json

app = typer.Typer(help="Look into what a run continues from.", no_args_is_help=True)


@app.callback()
def options() -> None: ...


@app.command()
def inspect(
    name: Annotated[
        str, typer.Argument(metavar="RUN|PATH", help="A run (its latest checkpoint), or a checkpoint's own folder.")
    ],
    step: Annotated[int | None, typer.Option("--step", help="The run's checkpoint of this step.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Compare a checkpoint's files with their sums and say what is in them. Exits with 2 where one is damaged."""
    from rich.table import Table
    from rich.text import Text

    from keepworth.episodes.text import terminal
    from keepworth.learning.watch.inspection import find_checkpoint
    from keepworth.learning.watch.inspection import inspect as look

    found = look(find_checkpoint(name, runs, step))
    if as_json:
        sections = {heading: {k: _jsonable(v) for k, v in lines.items()} for heading, lines in found.sections.items()}
        record = {"step": found.step, "path": str(found.path), "files": found.files, "sections": sections}
        say_json(record, indent=2, default=str)
        return
    console = terminal(soft_wrap=True)
    console.print(Text.assemble((f"step {found.step}", "bold"), f"  {found.path}"))
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_row(Text("\nfiles", style="bold"))
    for file, size in found.files.items():
        table.add_row(f"  {file}", Text.assemble(f"{_size(size)}  ", ("✓ sum", "green")))
    for heading, lines in found.sections.items():
        table.add_row(Text(f"\n{heading}", style="bold"))
        for what, value in lines.items():
            table.add_row(f"  {what}", Text(_value(value)))
    console.print(table)


def _jsonable(value: object) -> object:
    """JSON has no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _value(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"{value:,}" + (f" ({value / 1e6:.1f} million)" if value >= 1_000_000 else "")
    return str(value)


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
