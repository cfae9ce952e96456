"""Lays out runs of memories with their mechanism on: one result file, the evidence of each method, and the table of the page.

python -m benchmarks.streams.evidence RUN [RUN ...]     folders of `keepworth eval stream`
python -m benchmarks.streams.evidence --arm NAME RUN    that arm alone, measured again on the same streams and rule sets
python -m benchmarks.streams.evidence                   from the result file that is there: evidence and table alone

Of the same arm on the same stream and rule set the later folder counts. Rule sets that an arm lacks are left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.methods.write import arm as arm_of
from benchmarks.tables import filled, markdown
from keepworth.evaluation.statistics import paired_difference
from keepworth.evaluation.stream import Results, load

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).parent / "results" / "mechanisms.json"
PAGE = ROOT / "docs" / "experience.md"
PLAIN = ("exprag", "exprag+published")
"""Plain similarity: a method is held against the better of its two settings on each stream."""
SUBJECTS = {
    "memq": ("memq", "memq-without-true-parents", "memq-without-provenance"),
    "romerl": ("romerl", "romerl+masked"),
    "earm": ("earm", "earm+masked"),
    "dead-ends": ("dead-ends+on", "dead-ends-without-cap", "dead-ends"),
    "ace": ("ace", "ace-without-counters"),
    "expel": ("expel", "expel+masked"),
    "agent-workflow-memory": ("agent-workflow-memory", "exprag+published"),
    "dynamic-cheatsheet": ("dynamic-cheatsheet", "exprag+published"),
    "gitm": ("gitm", "gitm-without-references"),
    "memrl": ("memrl+on", "memrl"),
    "memento-kernel": ("memento-kernel+on", "exprag"),
    "rememberer": ("rememberer+on", "exprag"),
}
"""The arm of each method, and the arms without its idea; the first of them is its control."""
OTHERS = ("none", "oracle", *PLAIN, "nearest-mean+on", "default")
SAID = {
    "memq": (
        "not held",
        "Credit along the graph could not be told from credit along edges drawn by chance, {control} points; against plain "
        "similarity {plain}.",
    ),
    "romerl": (
        "not reachable here",
        "How many memories are unnecessary was not measured. Sharing utilities among all that advise the same brought {control} "
        "points over the same choice without them.",
    ),
    "earm": (
        "not held",
        "Completed scores did not beat the same choice without them, {control} points, nor plain similarity, {plain}.",
    ),
    "dead-ends": (
        "held in part",
        "The paper's number was not looked for. A cap that is reached brought {control} points over the same successes without "
        "it, nearly all on near-miss, and that is what showing the failures brings ({plain} against plain similarity). With the "
        "published slack, and where memory holds successes of several steps, it changed nothing at all.",
    ),
    "ace": (
        "not held",
        "The counters brought {control} points over the same bullets by similarity; the whole is above no memory, {none}.",
    ),
    "expel": (
        "not held",
        "Votes on insights could not be told from insights without votes, {control} points; the whole has {plain} against "
        "plain similarity and {none} against no memory.",
    ),
    "agent-workflow-memory": (
        "not held",
        "Where tasks have several steps and pay at the end it has the highest mean of the published ones, which could "
        "not be told from similar cases; where a task is one decision it is them to the digit.",
    ),
    "dynamic-cheatsheet": (
        "not held",
        "A bounded sheet brought {control} points over all successes; it is above no memory, {none}.",
    ),
    "memrl": (
        "not held",
        "The tuned settings show all that passes the gate, and are not above plain similarity. With twelve candidates for four "
        "places the value decides: {control} points against the tuned settings and {plain} against plain similarity.",
    ),
    "memento-kernel": (
        "not held",
        "The tuned settings show every candidate, so that Q chooses nothing and the rows are those of plain similarity. With "
        "twelve candidates for four places, and values carried over steps, it has {plain} points against plain similarity.",
    ),
    "rememberer": (
        "not held",
        "The tuned settings have no value over several steps. With values over two steps and from the end it is as plain "
        "similarity where a task is one decision, and below no memory where tasks pay at the end only: what was done in an "
        "episode that failed is discouraged, right steps too. Over all {plain} points against plain similarity.",
    ),
    "gitm": (
        "not held",
        "Reference plans let the agent read {words}, at {control} points of success over all streams; on the other streams no "
        "situation comes up five times, and they change nothing. Success is no higher with them; Minecraft was not played.",
    ),
}
"""Verdict and sentence of each method; numbers are means over all streams, with the control, plain similarity or no memory."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="folders")
    parser.add_argument("--arm", nargs="*", default=[], help="take these arms alone into the result file")
    options = parser.parse_args()
    if options.runs:
        results = fresh = measured(options.runs)
        if options.arm:
            results = json.loads(RESULT.read_text(encoding="utf-8"))
        for arm in options.arm:
            results = merged(results, fresh, arm)
        RESULT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    for name in SAID:
        write_evidence(name, result)
    filled(PAGE, "mechanisms", table(result))


def measured(runs: Sequence[Path]) -> dict[str, Any]:
    """Success of each arm on each stream and rule set, while learning and frozen; and the commands that made them."""
    rows = {(row.family, row.seed, row.arm): row for run in runs for row in load(run / "rows.jsonl")}
    arms = {(family, arm): set[int]() for family, _, arm in rows}
    for family, seed, arm in rows:
        arms[family, arm].add(seed)
    common = set.intersection(*arms.values())
    results = Results([row for row in rows.values() if row.seed in common])
    plans = [json.loads((run / "plan.json").read_text(encoding="utf-8")) for run in runs]
    commands = [
        f"keepworth eval stream --streams {','.join(plan['streams'])} --length {plan['length']} --arms {','.join(plan['arms'])} "
        f"--seeds {len(results.seeds)} --split {plan['split']} --tuned benchmarks/streams/tuned.json"
        for plan in plans
    ]
    revision = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {
        "command": "; ".join(dict.fromkeys(commands)),
        "revision": revision.stdout.strip(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "seeds": len(results.seeds),
        "tasks": {name: len(results.of(name, "none")[0].bits) for name in results.families},
        "success": per_arm(results, lambda rows: [round(row.auc, 4) for row in rows]),
        "frozen": per_arm(results, lambda rows: [round(row.final, 4) for row in rows]),
        "words": per_arm(results, lambda rows: round(float(np.mean([row.words for row in rows])), 1)),
    }


def per_arm(results: Results, take: Callable[[list[Any]], Any]) -> dict[str, dict[str, Any]]:
    """What `take` makes of the rows of an arm, by rule set, for each stream and arm."""
    return {
        name: {arm: take(ordered(results, name, arm)) for arm in results.arms if results.of(name, arm)}
        for name in results.families
    }


def merged(before: dict[str, Any], fresh: dict[str, Any], arm: str) -> dict[str, Any]:
    """The result before, with one arm as it was measured again."""
    for measure in ("success", "frozen", "words"):
        for stream, arms in fresh[measure].items():
            before.setdefault(measure, {}).setdefault(stream, {})[arm] = arms[arm]
    where = ", ".join(fresh["success"])
    before["command"] += f"; {arm} on {where} at revision {fresh['revision']}: {fresh['command']}"
    return before


def ordered(results: Results, name: str, arm: str) -> list[Any]:
    return sorted(results.of(name, arm), key=lambda row: row.seed)


def plain(result: dict[str, Any], stream: str) -> str:
    """The setting of plain similarity that has the higher mean on this stream, which favours it."""
    return max(PLAIN, key=lambda arm: float(np.mean(result["success"][stream][arm])))


def against(result: dict[str, Any], arm: str, other: str, streams: Sequence[str]) -> dict[str, Any]:
    """The paired difference over rule sets, each the mean over the streams. other: an arm, or "plain similarity"."""
    success = result["success"]
    gaps = [
        np.subtract(success[name][arm], success[name][plain(result, name) if other == "plain similarity" else other])
        for name in streams
    ]
    gap = paired_difference(f"{arm} - {other}", np.mean(gaps, axis=0).tolist())
    return {"mean": round(gap.difference, 4), "interval": [round(gap.low, 4), round(gap.high, 4)]}


def write_evidence(name: str, result: dict[str, Any]) -> None:
    """The file of one method; arms of earlier runs in it stay."""
    file = ROOT / "benchmarks" / "methods" / f"{name}.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"arms": [], "comparisons": []}
    arm, *without = SUBJECTS[name]
    streams = list(result["success"])
    others = dict.fromkeys((*without, "none", "plain similarity", "nearest-mean+on", "default"))
    arms = [
        arm_of(f"{compared} on {stream}, {result['tasks'][stream]} tasks", result["success"][stream][compared])
        for stream in streams
        for compared in dict.fromkeys((arm, *without, *OTHERS))
    ]
    comparisons = [
        {
            "against": f"{other}, {arm} on {'all streams' if len(where) > 1 else where[0]}",
            **against(result, arm, other, where),
        }
        for other in others
        for where in (streams, *([stream] for stream in streams))
    ]
    ours = {row["name"] for row in arms} | {row["against"] for row in comparisons}
    earlier = {
        "arms": [row for row in before["arms"] if row["name"] not in ours],
        "comparisons": [row for row in before["comparisons"] if row["against"] not in ours],
    }
    verdict, sentence = SAID[name]
    gaps = {"control": without[0], "plain": "plain similarity", "none": "none"}
    evidence = {
        "name": name,
        "command": result["command"],
        "revision": result["revision"],
        "machine": "2 cores, one process",
        "model": "none: an agent that does what it is advised, with words of hashed texts",
        "n": sum(result["tasks"].values()),
        "seeds": str(result["seeds"]),
        "unit": "rule set",
        "arms": earlier["arms"] + arms,
        "comparisons": earlier["comparisons"] + comparisons,
        "controls": list(dict.fromkeys(["none", "oracle", *without])),
        "verdict": verdict,
        "sentence": sentence.format(
            words=words_read(result, arm, without[0]),
            **{word: points(against(result, arm, other, streams)) for word, other in gaps.items()},
        ),
    }
    if earlier["arms"]:
        evidence |= {"machine": before["machine"], "n": before["n"]}
        for key, mark in (("command", "; "), ("revision", ", "), ("seeds", ", ")):
            evidence[key] = mark.join(dict.fromkeys([*before[key].split(mark), *evidence[key].split(mark)]))
    file.write_text(json.dumps(evidence, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def words_read(result: dict[str, Any], arm: str, other: str) -> str:
    """The words that both read a task, where they differ and were counted."""
    pairs = [
        (name, arms[arm], arms[other]) for name, arms in result.get("words", {}).items() if {arm, other} <= set(arms)
    ]
    return " and ".join(
        f"{mine:.0f} words for {theirs:.0f} on {name}" for name, mine, theirs in pairs if mine != theirs
    )


def table(result: dict[str, Any]) -> str:
    """Success while learning and, in brackets, frozen, in points; then each method minus its control over all streams."""
    streams = list(result["success"])
    rows = []
    controls = {arms[0]: arms[1] for arms in SUBJECTS.values()}
    for arm in (*OTHERS, *controls):
        cells = [
            f"{100 * np.mean(result['success'][name][arm]):.1f} ({100 * np.mean(result['frozen'][name][arm]):.1f})"
            for name in streams
        ]
        gaps = ["", ""]
        if arm in controls:
            gaps = [points(against(result, arm, other, streams)) for other in (controls[arm], "plain similarity")]
            gaps[0] += f" `{controls[arm]}`"
        rows.append((f"`{arm}`", *cells, *gaps))
    return markdown(["", *streams, "minus its control", "minus plain similarity"], rows)


def points(gap: dict[str, Any]) -> str:
    low, high = gap["interval"]
    return f"{100 * gap['mean']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


if __name__ == "__main__":
    main()
