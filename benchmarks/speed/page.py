"""Put the measured rows into docs/appendix/speed.md, so that no number is typed by hand.

python -m benchmarks.speed.page
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.speed import branches, episodes, int8, long_answers, samplers, sampling, training_step
from benchmarks.speed.rows import Row
from benchmarks.speed.run import BUSY
from benchmarks.speed.setting import HERE, MODEL, ratio
from benchmarks.tables import filled, markdown, takes_nothing

ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "appendix" / "speed.md"
Result = dict[str, Any]
MISSING = "Not measured yet."
TRL_SECTION = """## One training step beside TRL's `GRPOTrainer`

Both sides have the same checkpoint folder, bf16, threads and prompts, groups of 8 completions of exactly the stated length, a
LoRA adapter of rank 16 on every linear layer, no KL, and one AdamW update per step. A step includes encoding, sampling,
decoding, reward, advantages, forward, backward and update. The rows of 16, 64 and 256 tokens are of
one processor and of the present code. The row of 1,024, and the comparison of TRL's settings, are of another, faster one, and of
the code before a token had a step of its own.

TRL is run with the fastest setting that the first table finds (4, 8 and 16 completions per pass, with and without autocast):
once without gradient checkpointing, and once with it, which is TRL's default and takes less memory. At 256 tokens it is faster
with it, so the ratio to that is the fair one there. Ours needs none here, because its budget holds the group of a prompt.

{}

{}

Memory is the largest resident size of a process that does nothing else. TRL takes as many completions per backward pass as its
fastest setting does. If the step does not fit into this machine, the number is halved until it fits. Ours takes the group
of a prompt in one pass, so its memory grows with the group and with the answers. With the default budget it does not: a group
is split, and if that is not enough, layers are recomputed ([long answers](#long-answers)). Ours with its
layers recomputed, as TRL's gradient checkpointing does, was measured apart: in brackets is how much longer such a step takes.

{}"""


def measured(rows: Iterable[Row]) -> list[Result]:
    return [row.record() for row in rows if row.record()["rounds"]]


def seconds(record: Result, side: str, which: str = "wall") -> list[float]:
    return [each["sides"][side][which] for each in record["rounds"] if side in each["sides"]]


def median(record: Result, side: str) -> float:
    return statistics.median(seconds(record, side))


def times(record: Result, theirs: str, ours: str = "ours") -> str:
    """How many times as fast ours is, with its interval; or why that cannot be said."""
    if theirs in record["does_not_fit"]:
        return "does not fit"
    found = ratio(seconds(record, theirs), seconds(record, ours))
    high = f"{found['high']:.1f}" if math.isfinite(found["high"]) else "?"
    return f"**{found['mean']:.1f}x** [{found['low']:.1f}, {high}]"


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
    found = measured(training_step.rows(""))
    sides = (training_step.OURS, training_step.TRL, training_step.CHECKPOINTING)
    lines = []
    for record in found:
        spent = [f"{median(record, side):.1f} s" if seconds(record, side) else "-" for side in sides]
        ratios = [times(record, side) for side in sides[1:]]
        lines.append((record["name"], len(record["rounds"]), spent[0], spent[1], ratios[0], spent[2], ratios[1]))
    head = ("prompts x completions x tokens", "rounds", "ours", "TRL", "times as fast [95 %]")
    return _table((*head, "TRL, gradient checkpointing", "times as fast [95 %]"), lines, found) + _trl(found)


def memory_table() -> str:
    found = measured(training_step.rows(""))
    sides = (training_step.OURS, training_step.TRL, training_step.CHECKPOINTING)
    recomputed = {record["name"]: record for record in measured(training_step.recomputed_rows())}
    lines = []
    for record in found:
        cells = []
        for side in sides:
            last = next((each["sides"][side] for each in record["rounds"][::-1] if side in each["sides"]), None)
            passes = f" ({last['micro_batch']} per pass)" if last and "micro_batch" in last else ""
            cells.append(f"{max(seconds(record, side, 'peak_rss')) / 1e9:.1f} GB{passes}" if last else "does not fit")
        again = recomputed.get(record["name"])
        cells.insert(1, "" if again is None else _recomputed(again))
        lines.append((record["name"], *cells))
    head = ("largest resident memory", "ours", "ours, layers recomputed", "TRL", "TRL, gradient checkpointing")
    return _table(head, lines, [*found, *recomputed.values()])


def _recomputed(record: dict[str, Any]) -> str:
    side = training_step.RECOMPUTED
    longer = median(record, side) / median(record, training_step.OURS)
    return f"{max(seconds(record, side, 'peak_rss')) / 1e9:.1f} GB ({longer:.2f}x the time)"


def settings_table() -> str:
    found = measured(training_step.setting_rows(""))
    lines = [
        (
            name,
            len(seconds(record, name)),
            f"{median(record, name):.1f} s",
            f"{max(seconds(record, name, 'peak_rss')) / 1e9:.1f} GB",
        )
        if seconds(record, name)
        else (name, 0, record["does_not_fit"].get(name, ""), "")
        for record in found
        for name in training_step.SETTINGS
    ]
    return _table((f"TRL, {found[0]['name']}" if found else "", "rounds", "a step", "memory"), lines, found) + _trl(
        found
    )


def episodes_table() -> str:
    found = measured(episodes.rows())
    lines = []
    for record in found:
        drawn = record["prompts"] * record["group"] * record["turns"] * record["drawn"]
        ours, theirs = (f"{drawn / median(record, side):.0f}" for side in ("ours", "generate"))
        lines.append((record["name"], len(record["rounds"]), ours, theirs, times(record, "generate")))
    head = ("prompts x episodes", "rounds", "ours, drawn tokens/s", "`generate`", "times as fast [95 %]")
    return _table(head, lines, found)


def branches_table() -> str:
    ours, theirs = "skipped", "all siblings' keys"
    found = measured(branches.rows())
    lines = [
        (
            record["name"],
            len(record["rounds"]),
            f"{median(record, theirs):.2f} s",
            f"{median(record, ours):.2f} s",
            times(record, theirs, ours),
        )
        for record in found
    ]
    return _table(("branches learned", "rounds", theirs, ours, "times as fast [95 %]"), lines, found)


def mismatch_table() -> str:
    """By how much sampler and learner differ, before they added up alike and now."""
    before, now = (json.loads((HERE / f"{name}.json").read_text()) for name in ("mismatch_before", "mismatch"))
    lines = [
        (
            tokens,
            f"{each['n']:,}",
            *(
                f"{of['mean']:.3f} ({of['largest']:.2f})"
                for of in (before["lengths"][tokens], each, *([each["slots"]] if "slots" in each else []))
            ),
        )
        for tokens, each in now["lengths"].items()
    ]
    said = markdown(("new tokens", "drawn", "mean (largest) before", "now", "now, in slots"), lines)
    made = now["machine"]
    return (
        f"{said}\n\n{made['processor']}; {MODEL}, bf16, two prompts of {now['prompt']} tokens, groups of {now['group']}; "
        f"torch {made['versions']['torch']}; revisions {before['machine']['revision'].removesuffix('-dirty')} and "
        f"{made['revision']}, {made['measured_at'][:10]}."
    )


def int8_table() -> str:
    """Microseconds of products, milliseconds of steps, and nats, with weights in bfloat16 and in 8 bits."""
    result = json.loads((HERE / "int8.json").read_text())
    lines = []
    for threads, made in result["by_threads"].items():
        said = "1 thread" if threads == "1" else f"{threads} threads"
        ways = [int8.BF16, *int8.WAYS]
        lines += [
            (f"{name}, us, {said}", *(f"{each[way]:,.0f}" for way in ways)) for name, each in made["products"].items()
        ]
        lines += [
            (
                f"a step of {name}, ms, {said}",
                *(f"{each[way]:.0f} ({each[int8.BF16] / each[way]:.2f}x)" for way in ways),
            )
            for name, each in made["steps"].items()
        ]
    last = list(result["by_threads"].values())[-1]
    gaps = last["mismatch"]
    lines.append(
        (
            f"nats from the learner, mean (largest) of {gaps[int8.BF16]['n']:,} tokens",
            *(f"{gaps[way]['mean']:.3f} ({gaps[way]['largest']:.2f})" for way in ways),
        )
    )
    made = last["machine"]
    return (
        markdown(("rows x inputs x outputs", "bfloat16", *(f"`{way}`" for way in int8.WAYS)), lines)
        + f"\n\n{made['processor']}; load average at the start {made['load_average_at_start']:.1f}, other work paused; "
        f"{MODEL}, adapter of rank 16, prompts of {result['prompt']} tokens; torch {made['versions']['torch']}; revision "
        f"{made['revision']}, {made['measured_at'][:10]}."
    )


def samplers_table() -> str:
    """Tokens per second, and what each sampler gives back."""
    result = json.loads((HERE / "samplers.json").read_text())
    sides = result["sides"]
    names = [name for name in samplers.SIDES if name in sides]
    cases = list(sides["ours"]["cases"])
    lines = []
    for name in names:
        side = sides[name]
        ours = sides["ours, with an adapter" if name.endswith("with an adapter") else "ours"]
        cells = []
        for case in cases:
            if case not in side["cases"]:
                cells.append("")
                continue
            each = side["cases"][case]
            spent, beside = (own["seconds"] for own in (each, ours["cases"][case]))
            cells.append(
                f"{each['drawn'] / statistics.median(spent):,.0f}{'' if side is ours else _against(spent, beside)}"
            )
        gap = f"{side['gap']['mean']:.3f} ({side['gap']['largest']:.2f})" if side["gap"] else "none"
        changed = f"{side['seconds_to_change']:.2f} s" if side["seconds_to_change"] is not None else ""
        lines.append((name, *cells, gap, changed, f"{side['seconds_to_load']:.0f} s"))
    head = ("sampler", *(f"{case}, tokens/s" for case in cases), "nats from float32, mean (largest)")
    made = sides["ours"]["machine"]
    load = max(side["machine"]["load_average_at_start"] for side in sides.values())
    versions = ", ".join(
        dict.fromkeys(
            f"{samplers.SIDES[name][0]} {sides[name]['version']}"
            for name in names
            if not name.startswith(("ours", "gen"))
        )
    )
    rounds = min(len(each["seconds"]) for side in sides.values() for each in side["cases"].values())
    return (
        markdown((*head, "new adapter", "loading"), lines)
        + f"\n\n{made['processor']}; {made['threads']} threads, rounds: {rounds} or more, load average at most "
        f"{load:.1f} at the start, other work paused; {MODEL}, prompts of {result['prompt']} tokens; torch "
        f"{made['versions']['torch']}, {versions}; revision {made['revision']}, {made['measured_at'][:10]}."
    )


def _against(theirs: Sequence[float], ours: Sequence[float]) -> str:
    """How many times as fast theirs is, with its interval where both were measured in the same rounds, three or more."""
    if len(theirs) != len(ours) or len(theirs) < 3:
        return f" ({statistics.median(ours) / statistics.median(theirs):.1f}x)"
    found = ratio(ours, theirs)
    return f" ({found['mean']:.2f}x [{found['low']:.2f}, {found['high']:.2f}])"


def trl_section() -> str:
    """Left out while nothing of it was measured."""
    tables = (settings_table(), training_table(), memory_table())
    return "" if MISSING in tables else TRL_SECTION.format(*tables)


def phases_table() -> str:
    path = HERE / "phases.json"
    if not path.exists():
        return MISSING
    result = json.loads(path.read_text())
    shown = ("prefill", "decoding", "forward", "backward", "optimiser", "the rest of learning")
    lines = []
    for each in result["results"]:
        for phase in shown:
            spent, floor = each["seconds"][phase], each["floor_seconds"][phase]
            lines.append(
                (
                    f"{result['prompts']} x {result['group']} x {each['tokens']}: {phase}",
                    f"{spent:.2f}",
                    f"{each['flops'].get(phase, 0) / 1e9:.0f}",
                    f"{floor:.2f}" if floor else "",
                    f"{spent / floor:.1f}x" if floor else "",
                )
            )
    rates = result["flops_per_second_of_products"]
    best = max(rates, key=lambda shape: rates[shape])
    about = (
        f"Means of {result['results'][0]['rounds']} steps. Fastest product: {best}, {rates[best] / 1e9:.0f} GFLOP/s; reading "
        f"memory: {result['bytes_per_second_of_reading'] / 1e9:.1f} GB/s; weights: {result['weight_bytes'] / 1e6:.0f} MB."
    )
    record = {**result, "rounds": [{"machine": result["machine"]}]}
    return _table(("phase", "seconds", "GFLOP", "floor, seconds", "of the floor"), lines, [record]) + "\n\n" + about


def _apart(found: dict[str, float]) -> str:
    """By how much at most, beside the largest of them."""
    return f"{found['largest']:.1g} of {found['of']:.2g}" if found["largest"] else "no bit"


def long_answers_table() -> str:
    if not long_answers.FILE.exists():
        return MISSING
    result = json.loads(long_answers.FILE.read_text())
    lines = []
    for each in result["cases"].values():
        passes = f"{each['micro_batches']} plain"
        if each["recomputed"]:
            plain = each["micro_batches"] - each["recomputed"]
            passes = " and ".join(filter(None, (f"{plain} plain" if plain else "", f"{each['recomputed']} recomputed")))
        spent = [
            f"{each[phase][key] / unit:,.{digits}f}" if each[phase] else ""
            for phase in ("sampling", "learning")
            for key, unit, digits in (("wall", 1, 0), ("cpu", 1, 0), ("peak_bytes", 1e9, 1))
        ]
        name = f"{each['prompts']} x {each['group']} x {each['tokens']:,}"
        lines.append((name, f"{each['token_budget']:,}", each["checkpointing"], passes, *spent))
    head = ("prompts x answers x tokens", "budget", "checkpointing", "passes", "sampling, s", "processor s", "peak GB")
    records = [
        {**result, "dtype": each["dtype"], "rounds": [{"machine": each["machine"]}]}
        for each in result["cases"].values()
    ]
    kept = next((each["bytes_of_a_token"] for each in result["cases"].values() if each["bytes_of_a_token"]), None)
    loaded = max(each["loaded_bytes"] for each in result["cases"].values())
    about = f"One step each. Loaded, with an adapter of rank 16: {loaded / 1e9:.1f} GB."
    if kept:
        about += (
            f" A token keeps {kept['plain'] / 1e3:,.0f} KB in a plain pass, {kept['recomputed'] / 1e3:,.0f} KB in a "
            "recomputed one."
        )
    return _table((*head, "learning, s", "processor s", "peak GB"), lines, records) + "\n\n" + about


def _trl(found: Sequence[Result]) -> str:
    sides = [side for record in found for each in record["rounds"] for side in each["sides"].values() if "trl" in side]
    if not sides:
        return ""
    last = sides[-1]
    setting = f"; its fastest setting here: {last['setting']}" if "setting" in last else ""
    return f" TRL {last['trl']}, accelerate {last['accelerate']}{setting}."


def _table(head: Sequence[str], lines: Sequence[Sequence[object]], records: Sequence[Result]) -> str:
    if not lines:
        return MISSING
    return markdown(head, lines) + "\n\n" + _setting(records)


def _setting(records: Sequence[Result]) -> str:
    """Where, with what and when; and whether the machine was idle."""
    machines = [each["machine"] for record in records for each in record["rounds"]]
    machine, versions = machines[-1], machines[-1]["versions"]
    revisions = ", ".join(dict.fromkeys(each["revision"] for each in machines))
    load = max(each["load_average_at_start"] for each in machines)
    lengths = " and ".join(str(each) for each in sorted({record["prompt_tokens"] for record in records}))
    busy = " **The machine was not idle: to be measured again.**" if load > BUSY else ""
    processors = ", and ".join(dict.fromkeys(each["processor"] for each in machines))
    computing = f"{processors}; {machine['threads']} threads on {machine['cores']} cores"
    packages = ", ".join(f"{name} {versions[name]}" for name in ("torch", "transformers", "peft"))
    return (
        f"{computing}, load average at most {load:.1f} at the start; {records[0]['model']}, {records[0]['dtype']}, prompts of "
        f"{lengths} tokens; {packages}; revision {revisions}, {machine['measured_at'][:10]}.{busy}"
    )


TABLES: dict[str, Callable[[], str]] = {
    "sampling": sampling_table,
    "trl": trl_section,
    "episodes": episodes_table,
    "phases": phases_table,
    "branches": branches_table,
    "mismatch": mismatch_table,
    "long_answers": long_answers_table,
    "int8": int8_table,
    "samplers": samplers_table,
}


def main() -> None:
    takes_nothing(__doc__)
    for name, render in TABLES.items():
        filled(PAGE, name, render())


if __name__ == "__main__":
    main()
