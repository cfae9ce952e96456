"""The measured rows in docs/appendix/speed.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed import episodes, sampling, training_step
from benchmarks.speed.rows import Row, of_side
from benchmarks.speed.run import BUSY
from benchmarks.speed.setting import ratio
from benchmarks.tables import DOCS, markdown

Result = dict[str, Any]
MISSING = "Not measured yet."
SIDES = (training_step.OURS, training_step.TRL, training_step.CHECKPOINTING)


def measured(rows: Iterable[Row]) -> list[Result]:
    return [row.record() for row in rows if row.record()["rounds"]]


def seconds(record: Result, side: str, which: str = "wall") -> list[float]:
    return [row[which] for row in of_side(record, side)]


def median(record: Result, side: str) -> float:
    return statistics.median(seconds(record, side))


def times(record: Result, theirs: str, ours: str = "ours") -> str:
    """How many times as fast ours is, with its interval; or why that cannot be said."""
    if theirs in record["does_not_fit"]:
        return "does not fit"
    quotient = ratio(seconds(record, theirs), seconds(record, ours))
    high = f"{quotient['high']:.1f}" if math.isfinite(quotient["high"]) else "?"
    return f"**{quotient['mean']:.1f}x** [{quotient['low']:.1f}, {high}]"


def sampling_table() -> str:
    lines = []
    for record in measured(sampling.rows()):
        drawn = record["prompts"] * record["samples"] * record["tokens"]
        sides = (sampling.OURS, sampling.GENERATE, sampling.PREFILLED)
        ours, plain, prefilled = (f"{drawn / median(record, side):.0f}" for side in sides)
        ratios = times(record, sampling.GENERATE), times(record, sampling.PREFILLED)
        lines.append((record["name"], len(record["rounds"]), ours, plain, ratios[0], prefilled, ratios[1]))
    head = ("prompts x samples x tokens", "rounds", "ours, tokens/s", "`generate`", "times as fast [95 %]")
    return _table(
        (*head, "`generate`, prompt prefilled once", "times as fast [95 %]"), lines, measured(sampling.rows())
    )


def training_table() -> str:
    results = measured(training_step.rows(""))
    lines = []
    for record in results:
        spent = [f"{median(record, side):.1f} s" if seconds(record, side) else "-" for side in SIDES]
        ratios = [times(record, side) for side in SIDES[1:]]
        lines.append((record["name"], len(record["rounds"]), spent[0], spent[1], ratios[0], spent[2], ratios[1]))
    head = ("prompts x completions x tokens", "rounds", "ours", "TRL", "times as fast [95 %]")
    return _table((*head, "TRL, gradient checkpointing", "times as fast [95 %]"), lines, results) + _trl(results)


def memory_table() -> str:
    results = measured(training_step.rows(""))
    recomputed = {record["name"]: record for record in measured(training_step.recomputed_rows())}
    lines = []
    for record in results:
        cells = []
        for side in SIDES:
            rows = of_side(record, side)
            passes = f" ({rows[-1]['micro_batch']} per pass)" if rows and "micro_batch" in rows[-1] else ""
            cells.append(f"{max(row['peak_rss'] for row in rows) / 1e9:.1f} GB{passes}" if rows else "does not fit")
        again = recomputed.get(record["name"])
        cells.insert(1, "" if again is None else _recomputed(again))
        lines.append((record["name"], *cells))
    head = ("largest resident memory", "ours", "ours, layers recomputed", "TRL", "TRL, gradient checkpointing")
    return _table(head, lines, [*results, *recomputed.values()])


def _recomputed(record: dict[str, Any]) -> str:
    side = training_step.RECOMPUTED
    longer = median(record, side) / median(record, training_step.OURS)
    return f"{max(seconds(record, side, 'peak_rss')) / 1e9:.1f} GB ({longer:.2f}x the time)"


def episodes_table() -> str:
    results = measured(episodes.rows())
    lines = []
    for record in results:
        drawn = record["prompts"] * record["group"] * record["turns"] * record["drawn"]
        ours, theirs = (f"{drawn / median(record, side):.0f}" for side in ("ours", "generate"))
        lines.append((record["name"], len(record["rounds"]), ours, theirs, times(record, "generate")))
    head = ("prompts x episodes", "rounds", "ours, drawn tokens/s", "`generate`", "times as fast [95 %]")
    return _table(head, lines, results)


def _trl(results: Sequence[Result]) -> str:
    rows = [row for record in results for row in of_side(record, training_step.TRL)]
    if not rows:
        return ""
    last = rows[-1]
    setting = f"; its fastest setting here: {last['setting']}" if "setting" in last else ""
    return f" TRL {last['trl']}, accelerate {last['accelerate']}{setting}."


def _table(head: Sequence[str], lines: Sequence[Sequence[object]], records: Sequence[Result]) -> str:
    if not lines:
        return MISSING
    return markdown(head, lines) + "\n\n" + _setting(records)


def _setting(records: Sequence[Result]) -> str:
    """Where and when; and whether the machine was idle."""
    machines = [round_number["machine"] for record in records for round_number in record["rounds"]]
    revisions = ", ".join(dict.fromkeys(machine["revision"] for machine in machines))
    load = max(machine["load_average_at_start"] for machine in machines)
    busy = " **The machine was not idle: to be measured again.**" if load > BUSY else ""
    processors = ", and ".join(dict.fromkeys(machine["processor"] for machine in machines))
    return f"{processors}; revision {revisions}, {machines[-1]['measured_at'][:10]}.{busy}"


def setting() -> str:
    """What all tables share."""
    rows = [*sampling.rows(), *episodes.rows(), *training_step.rows(""), *training_step.recomputed_rows()]
    records = measured(rows)
    machines = [round_number["machine"] for record in records for round_number in record["rounds"]]

    def every(values: Iterable[object]) -> str:
        return " and ".join(sorted({str(value) for value in values}))

    packages = (
        f"{name} {every(of['versions'][name] for of in machines)}" for name in ("torch", "transformers", "peft")
    )
    return (
        f"{every(record['model'] for record in records)}, {every(record['dtype'] for record in records)}, prompts of "
        f"{every(record['prompt_tokens'] for record in records)} tokens; {every(of['threads'] for of in machines)} threads on "
        f"{every(of['cores'] for of in machines)} cores, load average at most "
        f"{max(of['load_average_at_start'] for of in machines):.1f} at the start; {', '.join(packages)}."
    )


def tables() -> Iterator[tuple[Path, str, str]]:
    of_page = {
        "setting": setting,
        "sampling": sampling_table,
        "trl": training_table,
        "memory": memory_table,
        "episodes": episodes_table,
    }
    for name, render in of_page.items():
        yield DOCS / "appendix" / "speed.md", name, render()
