"""What the command line prints. Everything goes through here, so that nothing that is data is obeyed by a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from keepworth.episodes.text import json_line, one_line, printable


def say(text: object, *, error: bool = False, end: str = "\n") -> None:
    """A line, or several, on standard output or standard error."""
    typer.echo(printable(str(text)) + end, nl=False, err=error)


def say_row(*cells: str) -> None:
    """A line of a table for programs: cells between tabs."""
    typer.echo("\t".join(map(one_line, cells)))


def say_json(record: Any, **settings: Any) -> None:
    """settings: of `json.dumps`."""
    typer.echo(json_line(record, **settings))


# Options that several commands have.


Runs = Annotated[Path, typer.Option("--runs", help="Folder that holds the run folders.", envvar="KEEPWORTH_RUNS")]
