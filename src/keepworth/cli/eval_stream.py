"""`keepworth eval stream`: memories that learn from reward, on streams, against controls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from keepworth.base.extras import require
from keepworth.cli.command import option
from keepworth.cli.eval_run import app as app
from keepworth.cli.output import say, say_json, stopping
from keepworth.cli.tables import print_evaluation


@app.command(
    examples="""
    keepworth eval stream --streams near-miss,drift --arms none,exprag,memrl,mixture --seeds 3
    """
)
def stream(
    streams: Annotated[
        str,
        option(
            "--streams",
            "Names with commas; all, or attacks. Dials of a made-up one follow colons: t-maze:length=16.",
        ),
    ] = "all",
    arms: Annotated[str, option("--arms", "Names with commas: see `keepworth eval list`.")] = "",
    orders: Annotated[str, option("--orders", "random, easy-to-hard, hard-to-easy, or several.")] = "random",
    seeds: Annotated[int, option("--seeds", "Rule sets; statistics need at least 3.", min=1)] = 3,
    split: Annotated[str, option("--split", "dev rules are for tuning, held-out for the final run.")] = "dev",
    length: Annotated[int, option("--length", "Tasks per stream; 0 for each stream's own.", min=0)] = 0,
    agent: Annotated[
        str,
        option(
            "--agent",
            "The frozen policy: linear (advice counts by similarity), tabular (advice counts fully), or usual (tabular where "
            "memory is of one episode, else linear).",
        ),
    ] = "usual",
    workers: Annotated[int, option("--workers", "Streams that run at the same time, a process each.", min=1)] = 1,
    tuned: Annotated[
        Path | None, option("--tuned", "A JSON file with settings for each kind of stream and method.")
    ] = None,
    data: Annotated[Path | None, option("--data", "The folder of a published set, or of several.")] = None,
    out: Annotated[Path, option("--out", "A folder: rows, summary and page.")] = Path("runs/streams"),
    method: Annotated[str, option("--method", "The arm that claims are made of; the last that learns.")] = "",
    as_json: Annotated[bool, option("--json", "Print the summary as JSON instead.")] = False,
) -> None:
    """Compare memories that learn from reward, on streams of tasks.

    Runs every arm on every stream, in every order, with every seed; then says what holds. The same command continues it.
    """
    from rich.progress import Progress

    from keepworth.base.text import terminal

    console = terminal(stderr=as_json)  # with --json, standard output has the result and nothing else
    require("train", "keepworth eval stream", "scipy", "statsmodels")
    from keepworth.evaluation import arms as stream_arms

    named = (arms or (stream_arms.ATTACK_ARMS if streams == "attacks" else stream_arms.ARMS)).split(",")

    def advance(done: int, total: int) -> None:
        progress.update(bar, completed=done, total=total)
        if not console.is_terminal:
            say(f"{done} of {total} streams are done.", error=True)

    with (
        Progress(console=console, disable=not console.is_terminal) as progress,
        stopping("The same command continues with what is missing."),
    ):
        bar = progress.add_task("streams", total=None)
        summary = stream_arms.compare_streams(
            {"all": stream_arms.STREAMS, "attacks": stream_arms.ATTACKS}.get(streams, streams).split(","),
            named,
            out,
            stream_arms.StreamConditions(split, length, agent, stream_arms.read_tuned(tuned, named), data),
            orders=orders.split(","),
            seeds=seeds,
            workers=workers,
            method=method,
            announce=lambda text: console.print(text, highlight=False),
            progress=advance,
        )
    if as_json:
        say_json(summary, indent=1)
        return
    print_evaluation(summary, console)
    console.print(f"The page: {out / 'report.html'}\nBeside it: summary.json, rows.jsonl", highlight=False)
