"""`recollect objectives`: the objectives by name, and what each one is made of."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="List and explain training objectives.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """List the objectives by name."""
    from recollect.learning.objective import PRESETS

    for name in PRESETS:
        typer.echo(name)


@app.command()
def explain(name: Annotated[str, typer.Argument(metavar="OBJECTIVE", help="A name from the list.")]) -> None:
    """Say what an objective is made of, and where it was published."""
    from recollect.episodes.errors import UnknownName
    from recollect.learning import objective

    if name not in objective.PRESETS:
        raise UnknownName("objective", name, objective.PRESETS)
    typer.echo(objective.explain(name))
