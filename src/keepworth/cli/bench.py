"""`keepworth bench`: measure this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from keepworth.cli.command import App
from keepworth.cli.output import say_json

app = App(help="Measure this machine.")


@app.callback()
def bench() -> None:
    """Measure this machine."""


@app.command(
    examples="""
    keepworth bench memory
    keepworth bench memory --size 100000 --out bench.json
    """
)
def memory(
    size: Annotated[int, typer.Option(metavar="N", min=1000, help="Items in the memory that is measured.")] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the figures there as JSON, too.")
    ] = None,
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
    import json
    import os
    import tempfile
    from dataclasses import asdict

    # A scan that is limited by memory gains nothing from threads, and loses much on a busy machine.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from keepworth.cli.tables import print_rows
    from keepworth.episodes.text import terminal
    from keepworth.evaluation.engine import DIMENSION, Figure, figures, machine
    from keepworth.evaluation.peers import Bounds, beside, lines, sync_here
    from keepworth.learning.run_folder import check_writable, disk

    if peer_seconds is not None and not peers:
        raise typer.BadParameter("has an effect only with --peers", param_hint="--peer-seconds")
    if out is not None:
        check_writable(out)
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
    console = terminal(stderr=as_json)
    found: list[Figure] = []
    records = []
    with tempfile.TemporaryDirectory() as folder, console.status("measuring") as status:
        for figure in figures(size, Path(folder), seed=seed, encoder=queries):
            status.update(figure.name)
            found.append(figure)
        if peers:
            status.update("other stores")
            sync = sync_here()
            for store in beside(Bounds(size, seconds=peer_seconds or 600.0, seed=seed)):
                status.update(f"other stores: {store['name']} is done")
                records.append(store)
            found += lines(records, sync)
    record: dict[str, Any] = {
        "size": size,
        "seed": seed,
        "machine": setting,
        "figures": [asdict(figure) for figure in found],
    }
    if peers:
        record["stores"] = records
    if as_json:
        say_json(record, indent=1)
    else:
        rows = [
            (each.name, [_short(each.p50), _short(each.p95), _short(each.limit), each.unit, each.target, each.note])
            for each in found
        ]
        failed = [each for each in records if "did not run" in each]
        rows += [(each["name"], [*[""] * 5, f"did not run: {each['did not run']}"]) for each in failed]
        headings = ["p50", "p95", "limit", "unit", "target", "how"]
        print_rows(console, f"memory engine, {size:,} items of 384 dimensions", headings, rows)
    if out is not None:
        with disk(out):
            out.write_text(json.dumps(record, indent=1) + "\n")


def _short(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
