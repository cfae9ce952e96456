"""`recollect bench`: measure this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Measure this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure this machine."""


@app.command()
def memory(
    size: Annotated[int, typer.Option(min=1000, help="Items in the memory that is measured.")] = 10_000,
    index: Annotated[str, typer.Option(help="exact, int8 or pq (the last two need faiss).")] = "exact",
    json: Annotated[Path | None, typer.Option(help="Write the figures there, too.")] = None,
    seed: Annotated[int, typer.Option(help="Of the texts and vectors.")] = 0,
    encoder: Annotated[
        str, typer.Option(help="Encodes the queries of one line, for the time it takes; 'none' leaves that line out.")
    ] = "minilm",
) -> None:
    """Adds, searches, forks and opening of the memory engine, next to the physical limit."""
    import json as encoding
    import os
    import tempfile
    from dataclasses import asdict

    # A scan that is limited by memory gains nothing from threads, and loses much on a busy machine.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from rich.console import Console
    from rich.table import Table

    from recollect.learning.disk import check_writable, disk
    from recollect.memory.measure import DIMENSION, figures, machine

    if json is not None:
        check_writable(json)
    setting = machine()
    queries = None
    if encoder != "none":
        from recollect.models.encoders import encoder as encoder_named

        queries = encoder_named(encoder)
        if queries.identity.dimension != DIMENSION:
            raise typer.BadParameter(
                f"{encoder} has {queries.identity.dimension} dimensions, the measured vectors have {DIMENSION}",
                param_hint="--encoder",
            )
    console = Console()
    table = Table(title=f"memory engine, {size:,} items of 384 dimensions")
    for name in ("", "p50", "p95", "limit", "unit", "target", "how"):
        table.add_column(name, justify="right" if name in ("p50", "p95", "limit") else "left")
    found = []
    with tempfile.TemporaryDirectory() as folder, console.status("measuring") as status:
        for figure in figures(size, Path(folder), index=index, seed=seed, encoder=queries):
            status.update(figure.name)
            found.append(asdict(figure))
            numbers = [_short(figure.p50), _short(figure.p95), _short(figure.limit)]
            table.add_row(figure.name, *numbers, figure.unit, figure.target, figure.note)
    console.print(table)
    if json is not None:
        with disk(json):
            record = {"size": size, "index": index, "seed": seed, "machine": setting, "figures": found}
            json.write_text(encoding.dumps(record, indent=1) + "\n")


def _short(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
