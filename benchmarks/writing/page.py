"""Put what writers keep, what learning gains of it and which credit is worth its cost into docs/writing.md and docs/memory.md.

python -m benchmarks.writing.page
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing
from benchmarks.writing.setting import HERE

PAGE = HERE.parents[1] / "docs" / "writing.md"
WHO = {
    "latest": "the latest",
    "reservoir": "evenly drawn",
    "longest": "the longest",
    "most specific": "most specific: digits, names, dates, money",
    "best of 200 rules": "best of 200 randomly weighted rules, chosen by evidence",
    "log alone": "**small policy, from the log alone**",
    "log alone, rewards permuted": "the same, rewards permuted",
    "small policy": "**small policy, in step with the reader**",
    "small policy, rewards permuted": "the same, rewards permuted",
    "model, warm start": "SmolLM2-135M after its warm start (it imitates *most specific*)",
    "model": "**SmolLM2-135M after reinforcement**",
    "model, rewards permuted": "the same, rewards permuted",
    "model from the log": "**SmolLM2-135M, taught by the log of rewards**",
    "head on the model from the log": "**a head of 577 numbers on its states, from the log**",
    "head on the model from the log, rewards permuted": "the same, rewards permuted",
    "supervised": "supervised on evidence, with sentence vectors",
    "oracle": "oracle",
}
CHANGING = {
    "nothing": "keep nothing",
    "evenly drawn": "8 of 16, evenly drawn",
    "latest": "the latest 8",
    "always add": "always add",
    "always add, with dates": "always add, with dates",
    "always add, all shown": "always add, all entries shown",
    "shared names": "replace by shared names",
    "shared words": "replace by shared words",
    "cosine": "replace by sentence vectors",
    "small policy": "**small policy, from reward**",
    "small policy, rewards permuted": "the same, rewards permuted",
    "oracle": "oracle: what is true now",
}
CONTROL = {
    "model, warm start": "135M model, warm start",
    "model": "135M model, reinforced",
    "model, rewards permuted": "135M model, rewards permuted",
}
ENDPOINT = "endpoint "
"""What the names of chat models begin with, where some were measured."""
WORLDS = {"4 of 16": "", "4 of 32": "-32"}
"""The worlds on the page, and what the marks of their tables end with."""


def cell(value: dict[str, float] | None) -> str:
    return "" if value is None else f"{value['mean']:.2f} ({value['low']:.2f} to {value['high']:.2f})"


def writers(world: dict[str, Any]) -> str:
    rows = {row["arm"]: row for row in world["rows"]}
    asked = [arm for arm in rows if arm.startswith(ENDPOINT)]
    lines = [
        (said, rows[arm]["seeds"], cell(rows[arm].get("evidence")), cell(rows[arm].get("f1")))
        for arm, said in (*WHO.items(), *((arm, f"{arm.removeprefix(ENDPOINT)}, not trained") for arm in asked))
        if arm in rows
    ]
    return markdown(("who decides what stays", "seeds", "evidence kept", "F1 of the reader"), lines)


def signed(gap: dict[str, float] | None) -> str:
    return "" if gap is None else f"{gap['difference']:+.2f} ({gap['low']:+.2f} to {gap['high']:+.2f})"


def credit(record: dict[str, Any]) -> str:
    against = {row["form"]: row for row in record["against"]}
    lines = [
        (
            row["form"],
            f"{row['evidence']:.2f} ({row['low']:.2f} to {row['high']:.2f})",
            signed(against.get(row["form"])),
            "never above its start" if row["readings_to_90"] is None else f"{row['readings_to_90']:,}",
        )
        for row in record["rows"]
    ]
    head = ("credit of a write", "evidence kept", "minus episode", "readings to 90 % of its gain")
    return markdown(head, lines)


def control(world: dict[str, Any]) -> str:
    """The model beside its control, on the folds that there are of both."""
    of = world["control"]
    lines = [(CONTROL[arm], cell(of[arm]), signed(of.get(f"{arm} - warm start"))) for arm in CONTROL]
    head = ("writer", "evidence kept", "minus warm start")
    parts = f"{of['streams']} streams, {of['model']['clusters']} clusters: seed and fold {', '.join(of['parts'])}."
    return f"{markdown(head, lines)}\n\n{parts}"


CARRIED = {
    "latest": "the latest",
    "reservoir": "evenly drawn",
    "longest": "the longest",
    "most specific": "most specific",
    "best of 200 rules": "best of 200 rules",
    "log alone": "**small policy, log alone**",
    "log alone, no vectors": "the same without sentence vectors",
    "small policy": "**small policy, in step with the reader**",
    "small policy, rewards permuted": "the same, rewards permuted",
    "oracle": "oracle",
}


def carried_columns(worlds: dict[str, Any]) -> list[tuple[str, str]]:
    """(world, measure): no F1 where nothing was read."""
    return [(name, each) for name, of in worlds.items() for each in ("evidence", "f1") if each != "f1" or of["read"]]


def carried(record: dict[str, Any]) -> str:
    """What writers of LongMemEval keep in other worlds."""
    worlds = record["worlds"]
    rows = {name: {row["arm"]: row for row in of["rows"]} for name, of in worlds.items()}
    columns = carried_columns(worlds)
    lines = [
        (said, *(cell(rows[name].get(arm, {}).get(measure)) for name, measure in columns))
        for arm, said in CARRIED.items()
    ]
    head = ("who decides what stays", *(f"{name}: {measure.replace('f1', 'F1')}" for name, measure in columns))
    sizes = "; ".join(
        f"{name}: {of['streams']} streams, {of['clusters']} clusters, F1 over {of['read'] or 'none'} of the streams"
        for name, of in worlds.items()
    )
    return f"{markdown(head, lines)}\n\n{sizes}."


READ_BY = {"plain": "plain reader", "later": "reader taught that the later counts"}


def changing(world: dict[str, Any]) -> str:
    rows = {row["arm"]: row for row in world["rows"]}
    lines = []
    for arm, text in CHANGING.items():
        row = rows[arm]
        banks = [
            f"{row[each]['mean']:.{places}f}" if each in row else "" for each, places in (("true", 2), ("stale", 1))
        ]
        lines.append((text, row["seeds"], *banks, *(cell(row[reader]) for reader in READ_BY)))
    head = ("writer", "seeds", "true facts in the bank", "stale entries")
    return markdown((*head, *(f"F1: {text}" for text in READ_BY.values())), lines)


def keeping(worlds: dict[str, Any]) -> str:
    """What a keeper keeps of the evidence, beside the best rule of one line."""
    arms = (
        *("chance", "has digits", "", "the keeper as it begins", "after 400 rewards", "after 400 permuted rewards"),
        "regression on the evidence",
    )
    rows = []
    for name, found in worlds.items():
        kept, best, promises = found["kept"], found["best rule"], found["promises"]
        cells = [f"{kept[arm or best]['mean']:.3f}" + ("" if arm else f" ({best})") for arm in arms]
        more = found["more than the best rule"]["after 400 rewards"]
        gain = f"{more['mean']:+.3f}, {more['low']:+.3f} to {more['high']:+.3f}"
        rows.append([name, *cells, gain, f"{promises['covered']} of {promises['of']}"])
    head = [
        "conversations",
        "chance",
        "has digits",
        "best rule of one line",
        "`Keeper` as it begins",
        "after 400 rewards",
    ]
    head += [
        "after 400 permuted",
        "regression on the evidence",
        "more than the best rule",
        "promised gains that cover what was earned",
    ]
    return markdown(head, rows)


def main() -> None:
    takes_nothing(__doc__)
    filled(PAGE.with_name("memory.md"), "keeping", keeping(json.loads((HERE / "keeping.json").read_text())["worlds"]))
    worlds = json.loads((HERE / "writers.json").read_text())["worlds"]
    filled(PAGE, "credit", credit(json.loads((HERE / "credit.json").read_text())["worlds"]["4 of 16"]))
    for name, mark in WORLDS.items():
        if name in worlds:
            filled(PAGE, f"writers{mark}", writers(worlds[name]))
            if worlds[name].get("control"):
                filled(PAGE, f"control{mark}", control(worlds[name]))
    elsewhere = json.loads((HERE / "transfer.json").read_text())
    filled(PAGE, "transfer", carried(elsewhere))
    changes = json.loads((HERE / "changing.json").read_text())
    filled(PAGE, "changing", changing(changes))


if __name__ == "__main__":
    main()
