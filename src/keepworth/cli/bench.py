"""`keepworth bench`: measure this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepworth.cli.command import App

app = App(help="Measure this machine.")


@app.callback()
def bench() -> None:
    """Measure this machine."""


@app.command()
def memory(
    size: Annotated[int, typer.Option(min=1000, help="Items in the memory that is measured.")] = 10_000,
    index: Annotated[str, typer.Option(help="exact, int8 (needs simsimd) or pq (needs faiss).")] = "exact",
    json: Annotated[Path | None, typer.Option(help="Write the figures there, too.")] = None,
    seed: Annotated[int, typer.Option(help="Of the texts and vectors.")] = 0,
    encoder: Annotated[
        str, typer.Option(help="Encodes the queries of one line, for the time it takes; 'none' leaves that line out.")
    ] = "minilm",
    peers: Annotated[
        bool,
        typer.Option(
            "--peers", help="Then mem0, LangGraph's store, Chroma, LanceDB and sqlite-vec, where they are installed."
        ),
    ] = False,
    peer_seconds: Annotated[
        float | None, typer.Option(min=1, help="At most, to fill each of them.  [default: 600]", show_default=False)
    ] = None,
) -> None:
    """Adds, searches, forks and opening of the memory engine, next to the physical limit and to other stores."""
    import json as encoding
    import os
    import tempfile
    from dataclasses import asdict

    # A scan that is limited by memory gains nothing from threads, and loses much on a busy machine.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from rich.table import Table

    from keepworth.episodes.text import terminal
    from keepworth.evaluation.engine import DIMENSION, Figure, figures, machine
    from keepworth.evaluation.peers import Bounds, beside, lines, sync_here
    from keepworth.learning.run_folder import check_writable, disk

    if peer_seconds is not None and not peers:
        raise typer.BadParameter("has an effect only with --peers", param_hint="--peer-seconds")
    if json is not None:
        check_writable(json)
    setting = machine()
    queries = None
    if encoder != "none":
        from keepworth.models.encoders import encoder as encoder_named

        queries = encoder_named(encoder)
        if queries.identity.dimension != DIMENSION:
            raise typer.BadParameter(
                f"{encoder} has {queries.identity.dimension} dimensions, the measured vectors have {DIMENSION}",
                param_hint="--encoder",
            )
    console = terminal()
    table = Table(title=f"memory engine, {size:,} items of 384 dimensions")
    for name in ("", "p50", "p95", "limit", "unit", "target", "how"):
        table.add_column(name, justify="right" if name in ("p50", "p95", "limit") else "left")
    found: list[Figure] = []
    records = []

    def keep(figure: Figure) -> None:
        found.append(figure)
        numbers = [_short(figure.p50), _short(figure.p95), _short(figure.limit)]
        table.add_row(figure.name, *numbers, figure.unit, figure.target, figure.note)

    with tempfile.TemporaryDirectory() as folder, console.status("measuring") as status:
        for figure in figures(size, Path(folder), index=index, seed=seed, encoder=queries):
            status.update(figure.name)
            keep(figure)
        if peers:
            status.update("other stores")
            sync = sync_here()
            for record in beside(Bounds(size, seconds=peer_seconds or 600.0, seed=seed)):
                status.update(f"other stores: {record['name']} is done")
                records.append(record)
            table.add_section()
            for figure in lines(records, sync):
                keep(figure)
            for record in records:
                if "did not run" in record:
                    table.add_row(record["name"], "", "", "", "", "", f"did not run: {record['did not run']}")
    console.print(table)
    if json is not None:
        with disk(json):
            rows = [asdict(figure) for figure in found]
            record = {"size": size, "index": index, "seed": seed, "machine": setting, "figures": rows}
            if peers:
                record["stores"] = records
            json.write_text(encoding.dumps(record, indent=1) + "\n")


def _short(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
