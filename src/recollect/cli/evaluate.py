"""`recollect eval`: measure a model or a run on held-out questions."""

from __future__ import annotations

import typer

app = typer.Typer(help="Measure models and runs on held-out questions.", no_args_is_help=True)


@app.callback()
def options() -> None: ...
