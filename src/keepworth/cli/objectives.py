"""`keepworth objectives`: the objectives by name, and what each one is made of."""

from __future__ import annotations

from typing import Annotated

import typer

from keepworth.cli.output import say, say_row

app = typer.Typer(help="List and explain training objectives.", invoke_without_command=True)

COLUMNS = ("objective", "advantage", "ratio", "surrogate", "correction", "aggregation", "KL")


@app.callback()
def objectives(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_()


@app.command("list")
def list_() -> None:
    """List the objectives, a line each: tab-separated where there is no terminal."""
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from keepworth.episodes.text import terminal
    from keepworth.learning.objective.explain import listing

    console = terminal()
    lines = listing()
    if not console.is_terminal:
        for line in (COLUMNS, *lines):
            say_row(*line)
        return
    if console.width >= max(sum(map(len, line)) for line in lines) + 3 * len(COLUMNS):
        table = Table(*COLUMNS, box=box.SIMPLE_HEAD)
        for name, *rest in lines:
            table.add_row(Text(name, style="bold"), *("" if value == "none" else value for value in rest))
        console.print(table)
    else:  # too narrow for columns: what is not there goes without saying
        for name, *rest in lines:
            said = [f"{title} {value}" for title, value in zip(COLUMNS[1:], rest, strict=True) if value != "none"]
            console.print(Text(name, style="bold"))
            console.print(Padding(Text("  ·  ".join(said), style="dim"), (0, 0, 0, 2)))
    console.print("keepworth objectives explain NAME prints the formula and where it was published.", style="dim")


@app.command()
def explain(name: Annotated[str, typer.Argument(metavar="OBJECTIVE", help="A name from the list.")]) -> None:
    """Say what an objective is made of, and where it was published."""
    from keepworth.learning.objective import explain as explaining

    say(explaining.explain(name))
