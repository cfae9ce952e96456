"""`keepworth eval`: measure models and runs on held-out questions, and memories that learn from reward on streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.cli.command import App
from keepworth.cli.eval_run import compare, listing, run
from keepworth.cli.eval_stream import stream
from keepworth.cli.output import Runs, say_json

if TYPE_CHECKING:
    from keepworth.methods.recipes._memory_r1.settings import Config


app = App(help="Measure models and runs on held-out questions, and memories on streams.")


app.command(
    "list",
    examples="""
    keepworth eval list
    keepworth eval list --details
    """,
)(listing)
app.command(
    examples="""
    keepworth eval run longmemeval none bm25 keepworth --setting frozen,oracle
    keepworth eval run mine.jsonl none keepworth --reader http://localhost:8000 --model my-model
    """
)(run)
app.command(examples="keepworth eval compare runs/eval/longmemeval:keepworth runs/eval/longmemeval:bm25")(compare)
app.command(
    examples="""
    keepworth eval stream --streams near-miss,drift --arms none,exprag,memrl,mixture --seeds 3
    keepworth eval stream --streams list
    """
)(stream)


@app.callback()
def options() -> None: ...


@app.command(
    examples="""
    keepworth eval answerer
    keepworth eval answerer demo --set recall=retrieved --out retrieved.json
    """,
)
def answerer(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="A run whose trained answerer is measured beside the untrained one; none if not given.",
        ),
    ] = "",
    split: Annotated[str, typer.Option("--split", help="train, dev or test.")] = "test",
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of memory_r1: memories=10, recall=retrieved, ..."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead.")] = False,
    output: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the numbers there as JSON, too.")
    ] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Answer questions with the right memory, none, another question's, and the evidence alone."""
    import json
    import sys

    from keepworth.episodes.extras import require

    require("train", "keepworth eval answerer")
    from keepworth.cli.tables import print_table
    from keepworth.episodes.errors import KeepworthError, UnknownName
    from keepworth.episodes.text import terminal
    from keepworth.evaluation.statistics import paired_gain
    from keepworth.evaluation.tables import table_of_rows
    from keepworth.learning.run_folder import check_writable, disk, find_run, versions
    from keepworth.learning.watch.progress import PlainProgress, progress_for
    from keepworth.methods.recipes._memory_r1.answerer import answers, recall_for, rows, table_arms, task_sets
    from keepworth.methods.recipes._memory_r1.settings import Config
    from keepworth.models.threads import settle_threads
    from keepworth.recipes.configuration import resolve
    from keepworth.recipes.training import kept_weights, loaded_model, with_weights

    if output is not None:
        check_writable(output)
    if split not in ("train", "dev", "test"):
        raise UnknownName("split", split, ("train", "dev", "test"))
    run = find_run(name, runs) if name else None
    base = {key: value for key, value in run.config.items() if key != "recipe"} if run else {}
    config = resolve(Config, base=base, assignments=assign or [])
    assert isinstance(config, Config)
    if config.role != "answerer":
        raise KeepworthError("This measures answerers.", "Leave --set role=... out, or name a run of the answerer.")
    if run and (
        changed := sorted(key for key in ("model", "precision") if base and base.get(key) != getattr(config, key))
    ):
        raise KeepworthError(f"{changed[0]} is fixed by the run {name}.", "Leave it out of --set.")
    progress = PlainProgress(sys.stderr) if as_json else progress_for()
    tasks = task_sets(config)[split]
    recall = recall_for(config)
    found: list[dict[str, object]] = []
    values = {}
    phases = ["untrained", "trained"] if run else ["untrained"]
    arms = {when: table_arms(when, recall, tasks, config) for when in phases}
    progress.start(sum(len(arm) for arm in arms.values()), f"answering {len(tasks)} {split} questions")
    # A run's own type of number: auto may have measured either.
    model = loaded_model(config, progress, str(run.environment.get("precision", "")) if run else "")
    settle_threads(model, config.threads)
    done = 0
    for when in phases:
        if when == "trained":
            assert run is not None
            with_weights(model, kept_weights(run, "answerer"))
        for arm, memory in arms[when].items():
            progress.phase(arm)
            measured = answers(model, tasks, memory, config.max_tokens, _style(config))
            values[arm] = measured.values
            found += rows(arm, measured, ("f1", "em", "bleu1"))
            done += 1
            progress.step(done, {"f1": measured.estimate("f1").mean})
    progress.finish()
    note = f"{len(tasks)} {split} questions of {config.source}, {config.memories} memories shown. 95 % intervals."
    record: dict[str, Any] = {
        "split": split,
        "run": run.name if run else None,
        "config": config.model_dump(mode="json"),
        "versions": versions(),
        "rows": found,
    }
    if run:
        gain = paired_gain(values["trained"]["f1"], values["untrained"]["f1"], within=(-1.0, 1.0))
        record["gain"] = {"metric": "f1", "mean": gain.mean, "low": gain.low, "high": gain.high, "n": gain.n}
        note += f" Gain in token F1, paired: {gain.mean:+.3f} [{gain.low:+.2f}, {gain.high:+.2f}]."
    if as_json:
        say_json(record, indent=2)
    else:
        print_table(table_of_rows("Answering from memory", found, note), terminal())
    if output is not None:
        with disk(output):
            output.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _style(config: Config) -> Any:
    from keepworth.agents.answerer import Style

    return Style(config.style)
