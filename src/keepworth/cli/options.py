"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[Path, typer.Option("--runs", help="Folder that holds the run folders.", envvar="KEEPWORTH_RUNS")]
