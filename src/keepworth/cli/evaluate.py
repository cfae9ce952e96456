"""`keepworth eval`: measure memories and runs on held-out questions, and memories that learn from reward on streams."""

from __future__ import annotations

from keepworth.cli.command import App
from keepworth.cli.eval_run import compare, listing, run
from keepworth.cli.eval_stream import stream

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
