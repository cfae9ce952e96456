"""Put the tables of the JSON files in this folder into docs/speed.md, so that no number is typed by hand.

python -m benchmarks.speed.page
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.speed.setting import HERE

PAGE = HERE.parent.parent / "docs" / "speed.md"
Result = dict[str, Any]


def sampling(result: Result) -> str:
    rows = [
        (
            each["case"]["name"],
            each["rounds"],
            f"{each['tokens_per_second']['theirs']:.0f}",
            f"{each['tokens_per_second']['ours']:.0f}",
            _spread(each["speedup"]),
            f"{each['speedup_in_cpu_seconds']['median']:.1f}x",
        )
        for each in result["results"]
    ]
    head = (
        "prompts x samples x tokens",
        "rounds",
        "`generate`, tokens/s",
        "ours, tokens/s",
        "times as fast",
        "in CPU time",
    )
    return _table(head, rows) + "\n\n" + _setting(result)


def training_step(result: Result) -> str:
    rows = [
        (
            f"{each['case']['prompts']} x {each['case']['group']} x {each['case']['tokens']}",
            each["rounds"],
            f"{statistics.median(each['seconds']['theirs']):.1f} s",
            f"{statistics.median(each['seconds']['ours']):.1f} s",
            _spread(each["speedup"]),
            f"{each['speedup_in_cpu_seconds']['median']:.1f}x",
            f"{each['peak_rss_bytes']['theirs'] / 1e9:.1f} GB",
            f"{each['peak_rss_bytes']['ours'] / 1e9:.1f} GB ({each['memory_ratio']:.2f}x)",
        )
        for each in result["results"]
    ]
    head = (
        "prompts x completions x tokens",
        "rounds",
        "TRL",
        "ours",
        "times as fast",
        "in CPU time",
        "TRL's memory",
        "ours",
    )
    versions = result["results"][0]["versions_of_trl_side"]
    return (
        _table(head, rows) + "\n\n" + _setting(result) + f" TRL {versions['trl']}, accelerate {versions['accelerate']}."
    )


def episodes(result: Result) -> str:
    rows = [
        (
            f"{each['case']['prompts']} x {each['case']['group']}, {each['case']['turns']} turns",
            each["rounds"],
            f"{each['tokens_per_second']['theirs']:.0f}",
            f"{each['tokens_per_second']['ours']:.0f}",
            _spread(each["speedup"]),
            f"{each['speedup_in_cpu_seconds']['median']:.1f}x",
        )
        for each in result["results"]
    ]
    head = (
        "prompts x episodes",
        "rounds",
        "`generate`, drawn tokens/s",
        "ours, drawn tokens/s",
        "times as fast",
        "in CPU time",
    )
    return _table(head, rows) + "\n\n" + _setting(result)


def phases(result: Result) -> str:
    shown = ("prefill", "decoding", "forward", "backward", "optimiser", "the rest of learning")
    rows = []
    for each in result["results"]:
        for phase in shown:
            seconds, floor = each["seconds"][phase], each["floor_seconds"][phase]
            rows.append(
                (
                    f"{result['prompts']} x {result['group']} x {each['tokens']}: {phase}",
                    f"{seconds:.2f}",
                    f"{each['flops'].get(phase, 0) / 1e9:.0f}",
                    f"{floor:.2f}" if floor else "",
                    f"{seconds / floor:.1f}x" if floor else "",
                )
            )
    rates = result["flops_per_second_of_products"]
    best = max(rates, key=lambda shape: rates[shape])
    about = (
        f"Fastest product: {best}, {rates[best] / 1e9:.0f} GFLOP/s; reading memory: "
        f"{result['bytes_per_second_of_reading'] / 1e9:.1f} GB/s; weights: {result['weight_bytes'] / 1e6:.0f} MB. "
    )
    return (
        _table(("phase", "seconds", "GFLOP", "floor, seconds", "of the floor"), rows)
        + "\n\n"
        + about
        + _setting(result)
    )


def branches(result: Result) -> str:
    parts = []
    for what, sides in (("sampling", ("tree", "own rows")), ("learning", ("all siblings' keys", "skipped"))):
        if not result[what]:
            continue
        rows = [
            (
                f"{what}: {result['group']} x {each['tokens']} behind {each['prompt']}",
                f"{min(each['seconds']['theirs']):.2f} s",
                f"{min(each['seconds']['ours']):.2f} s",
                f"{each['speedup']['median']:.2f}x",
            )
            for each in result[what]
        ]
        machine = result["machine"] if what == "sampling" else result.get("machine_of_learning", result["machine"])
        about = _setting(
            {**result, "prompt_tokens": "100 and 400" if what == "sampling" else "400", "machine": machine}
        )
        parts.append(_table(("branches", sides[0], sides[1], "times as fast"), rows) + "\n\n" + about)
    return "\n\n".join(parts)


def _spread(ratio: dict[str, float]) -> str:
    return f"**{ratio['median']:.1f}x** ({ratio['lowest']:.1f} to {ratio['highest']:.1f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _setting(result: Result) -> str:
    machine, versions = result["machine"], result["machine"]["versions"]
    return (
        f"{machine['processor']}; {machine['threads']} threads on {machine['cores']} cores, load average "
        f"{machine['load_average_at_start']:.1f} at the start; {result['model']}, {result['dtype']}, prompts of "
        f"{result['prompt_tokens']} tokens; torch {versions['torch']}, transformers {versions['transformers']}, "
        f"peft {versions['peft']}; revision {machine['revision']}, {machine['measured_at'][:10]}."
    )


TABLES: dict[str, Callable[[Result], str]] = {
    "sampling": sampling,
    "training_step": training_step,
    "episodes": episodes,
    "phases": phases,
    "branches": branches,
}


def main() -> None:
    text = PAGE.read_text()
    for name, render in TABLES.items():
        path = HERE / f"{name}.json"
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{PAGE} has no place for the table: it lacks {begin} ... {end}")
        table = render(json.loads(path.read_text())) if path.exists() else "Not measured: run the command above."
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        text = re.sub(pattern, lambda _: f"{begin}\n{table}\n{end}", text, flags=re.DOTALL)  # noqa: B023
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
