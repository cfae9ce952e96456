"""A chat model behind an OpenAI-compatible URL as the writer of the bounded bank, on the streams of the other writers.

    OPENAI_BASE_URL=http://localhost:8000/v1 python -m benchmarks.writing.endpoint --model NAME

For each fact it sees the rules, what is in the bank and the fact, and says one line; it does not see the question, which comes
later. It is not trained, so all streams are tested. Every answer is kept under `--runs`: the same command goes on where it
stopped and pays for nothing twice. It prints the evidence that stayed, the F1 of the frozen reader as far as those banks were
read (`python -m benchmarks.writing.reads --wanted` reads the others), what made no sense, and the tokens that it cost.
OPENAI_API_KEY is sent where it is set.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.tables import markdown
from benchmarks.writing.setting import WORLDS, Reads, kept_file
from keepworth.environments.bounded_bank import BoundedBank
from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.statistics import MeanEstimate, paired_difference, pooled_estimate
from keepworth.learning.run_folder import versions
from keepworth.memory.policy.importance import specificity
from keepworth.models.chat import from_environment
from keepworth.models.kept_replies import KeptReplies, side_by_side
from keepworth.rollouts.bounded_bank import chatted, written
from keepworth.tasks.fact_streams import FactStream, longmemeval_streams
from keepworth.tasks.splits import draw_order

FEWEST = 3
"""Clusters before there is a comparison."""
LINE = 16
"""Tokens of a line."""


def named(model: str) -> str:
    """The part of a file's name that stands for a model."""
    return re.sub(r"[^\w.-]+", "-", model).strip("-")


def told(values: Sequence[float], clusters: Sequence[str]) -> dict[str, Any]:
    found: MeanEstimate = pooled_estimate(list(values), list(clusters), within=(0.0, 1.0))
    return {"mean": found.mean, "low": found.low, "high": found.high, "clusters": found.n}


def played(streams: Sequence[FactStream], budget: int, replies: KeptReplies, at_once: int) -> list[BoundedBank]:
    """The bank that is left of each stream."""
    begun, done = time.monotonic(), 0

    def play(stream: FactStream) -> BoundedBank:
        nonlocal done
        bank = BoundedBank(budget)
        chatted(bank, stream, replies)
        done += 1
        if done % 20 == 0 or done == len(streams):
            left = (time.monotonic() - begun) / done * (len(streams) - done) / 60
            print(f"{done} of {len(streams)} streams, about {left:.0f} min left", flush=True)
        return bank

    return side_by_side(play, list(streams), at_once)


def by_rule(streams: Sequence[FactStream], budget: int, line: Any) -> list[float]:
    """The evidence that a rule leaves of each stream."""
    found = []
    for stream in streams:
        bank = BoundedBank(budget)
        written(bank, [line(fact.statement) for fact in stream.facts], stream)
        found.append(stream.evidence_kept(bank.numbers))
    return found


def measured(
    model: str, world: str, streams: Sequence[FactStream], budget: int, replies: KeptReplies, at_once: int, reads: Reads
) -> dict[str, Any]:
    """The record of one model in one world."""
    banks = played(streams, budget, replies, at_once)
    clusters = [stream.cluster for stream in streams]
    evidence = [stream.evidence_kept(bank.numbers) for stream, bank in zip(streams, banks, strict=True)]
    f1 = [reads.f1(world, stream, bank.numbers) for stream, bank in zip(streams, banks, strict=True)]
    rules = {
        "the latest": by_rule(streams, budget, lambda _: "ADD"),
        "most specific": by_rule(streams, budget, lambda text: f"ADD {min(9.0, specificity(text)):.4f}"),
    }
    known = [(score, cluster) for score, cluster in zip(f1, clusters, strict=True) if not math.isnan(score)]
    gaps = {}
    for name, values in rules.items() if len(set(clusters)) >= FEWEST else ():
        gap = paired_difference(
            f"{model} - {name}", [a - b for a, b in zip(evidence, values, strict=True)], clusters=clusters
        )
        gaps[name] = {"difference": gap.difference, "low": gap.low, "high": gap.high, "p": gap.p}
    lines = sum(len(stream.facts) for stream in streams)
    return {
        "model": model,
        "world": world,
        "streams": len(streams),
        "evidence": told(evidence, clusters),
        "f1": told([score for score, _ in known], [cluster for _, cluster in known]) if known else None,
        "read": len(known),
        "rules": {name: told(values, clusters) for name, values in rules.items()},
        "minus": gaps,
        "lines": lines,
        "invalid": sum(bank.invalid for bank in banks) / lines,
        "refused": sum(bank.refused for bank in banks) / lines,
        "spent": asdict(replies.spent),
        "versions": versions(),
        "kept": {f"endpoint {model}": [{s.key: list(b.numbers) for s, b in zip(streams, banks, strict=True)}]},
    }


def table(record: dict[str, Any]) -> str:
    def shown(found: dict[str, Any] | None) -> str:
        return "" if found is None else f"{found['mean']:.2f} ({found['low']:.2f} to {found['high']:.2f})"

    rows = [(name, shown(each), "") for name, each in record["rules"].items()]
    f1 = shown(record["f1"]) + (f", of {record['read']} banks" if record["read"] < record["streams"] else "")
    rows.append((record["model"], shown(record["evidence"]), f1 if record["read"] else ""))
    return markdown(("who decides what stays", "evidence kept", "F1 of the reader"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the name that the server knows it by")
    parser.add_argument("--world", choices=WORLDS, default="4 of 16")
    parser.add_argument("--streams", type=int, help="the first so many alone")
    parser.add_argument("--at-once", type=int, default=4, help="streams that are played side by side")
    parser.add_argument("--runs", type=Path, default=Path("runs/writing"))
    parser.add_argument("--out", type=Path, help="the record; by default beside those of the other writers")
    options = parser.parse_args()
    try:
        chat = from_environment(options.model, "the writer", max_tokens=LINE)
    except KeepworthError as error:
        parser.error(str(error))
    length, budget = WORLDS[options.world]
    # Of as many questions as there can be, where it is a part of them.
    every = sorted(longmemeval_streams(length), key=lambda stream: draw_order("endpoint", stream.key))
    streams = every[: options.streams]
    replies = KeptReplies(chat, options.runs / "replies" / f"{named(options.model)}.jsonl")
    print(
        f"{len(streams)} streams of {length} facts: {len(streams) * length:,} questions to {options.model}", flush=True
    )
    reads = Reads.on_file()
    try:
        record = measured(options.model, options.world, streams, budget, replies, options.at_once, reads)
    except KeepworthError as error:
        raise SystemExit(
            f"{error}\nWhat it said until then is in {replies.path}: the same command goes on from there."
        ) from None
    out = options.out or kept_file(options.world, f"endpoint-{named(options.model)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(table(record))
    spent = record["spent"]
    print(
        f"{record['invalid']:.1%} of its lines made no sense, {record['refused']:.1%} could not be done. It cost "
        f"{spent['prompt_tokens']:,} tokens of prompts and {spent['reply_tokens']:,} of answers; {spent['asked']:,} of "
        f"{spent['answers']:,} answers were asked for now"
        + (f", and of {spent['uncounted']:,} the server counted no tokens." if spent["uncounted"] else ".")
    )
    if reads.wanted:
        from benchmarks.writing.reads import want

        want(reads)
    print(f"Written: {out.relative_to(Path.cwd()) if out.is_relative_to(Path.cwd()) else out}")


if __name__ == "__main__":
    main()
