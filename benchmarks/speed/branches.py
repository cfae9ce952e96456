"""Long branches: a place in the prompt's tree beside a row of one's own, and a backward pass with and without siblings.

    python -m benchmarks.speed.branches [--seconds 300] [--threads N] [--only passes]

Sampling: groups of 8 from one prompt, `tokens` drawn each, all forced through the tree, then all as rows of their own
(`recollect.models.tree.apart` is the rule that these numbers give). Learning: one forward and backward pass over the
same group, with blocks of queries reading every earlier sibling's keys, then skipping them. Writes `branches.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.speed.setting import HERE, MODEL, machine, paired, prompts, timed, write
from recollect.episodes.model import SamplingParams, Tokens
from recollect.models import attention, inprocess
from recollect.models.adapter import attach_lora
from recollect.models.files import path_of
from recollect.models.inprocess import InProcessModel
from recollect.models.tree import tree

GROUP = 8
SAMPLED = ((100, 64), (100, 128), (100, 256), (400, 128), (400, 256), (100, 512), (400, 512))
LEARNED = ((400, 64), (400, 256))


def sampling(model: InProcessModel, prompt: Tokens, tokens: int, limit: float) -> dict[str, Any]:
    params = SamplingParams(tokens, n=GROUP, seed=0)
    rule = inprocess.apart

    def forced(own_rows: bool) -> Any:
        def call() -> None:
            inprocess.apart = lambda prompt, branches, tokens: own_rows
            model.sample([prompt], params)
            inprocess.apart = rule

        return lambda: timed(call)

    return {"prompt": len(prompt), "tokens": tokens, **paired(2, limit, forced(True), forced(False))}


def learning(model: InProcessModel, prompt: Tokens, tokens: int, limit: float) -> dict[str, Any]:
    batch = tree([prompt], [[prompt[:1] * tokens] * GROUP])
    threshold = attention._SKIPPED

    def forced(skipped: int) -> Any:
        def call() -> None:
            attention._SKIPPED = skipped
            lp, _ = model.tree_scores(batch)
            (-lp.mean()).backward()  # type: ignore[no-untyped-call]
            attention._SKIPPED = threshold

        return lambda: timed(call)

    forced(threshold)()
    return {"prompt": len(prompt), "tokens": tokens, **paired(2, limit, forced(threshold), forced(10**9))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="skip what would begin after this long")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", choices=("sampling", "passes"), help="leave the other half of the file as it is")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    about = machine(options.threads)
    begun = time.perf_counter()
    end = begun + options.seconds
    model = InProcessModel.load(path_of(MODEL), name=MODEL, precision="bf16")
    text = {length: prompts(model.tokenizer, 1, length)[0] for length in (100, 400)}
    ids = {length: model.encode(each) for length, each in text.items()}
    model.sample([ids[100]], SamplingParams(2, n=GROUP))
    path = HERE / "branches.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    sampled, learned = before.get("sampling", []), before.get("learning", [])
    machines = {"sampling": before.get("machine", about), "learning": before.get("machine_of_learning", about)}
    if options.only != "passes":
        machines["sampling"] = about
        sampled = [sampling(model, ids[p], tokens, begun) for p, tokens in SAMPLED if time.perf_counter() < end - 60]
    if options.only != "sampling":
        attach_lora(model, 16)
        machines["learning"] = about
        learned = [learning(model, ids[p], tokens, begun) for p, tokens in LEARNED if time.perf_counter() < end]
    for title, results, sides in (
        ("sampling", sampled, ("in the tree", "rows of their own")),
        ("learning", learned, ("with siblings", "skipping them")),
    ):
        table = Table(title=f"{title}, 8 branches, {options.threads} threads")
        for column in ("prompt", "tokens", f"{sides[0]}, s", f"{sides[1]}, s", "times as fast"):
            table.add_column(column, justify="right")
        for each in results:
            seconds = each["seconds"]
            table.add_row(
                str(each["prompt"]),
                str(each["tokens"]),
                f"{min(seconds['theirs']):.2f}",
                f"{min(seconds['ours']):.2f}",
                f"{each['speedup']['median']:.2f}",
            )
        Console(width=100).print(table)
    write(
        "branches.json",
        {
            "what": "sampling: rows of their own (ours) beside the tree (theirs); learning: siblings skipped (ours) or not",
            "model": MODEL,
            "dtype": "bf16",
            "group": GROUP,
            "machine": machines["sampling"],
            "machine_of_learning": machines["learning"],
            "sampling": sampled,
            "learning": learned,
        },
    )


if __name__ == "__main__":
    main()
