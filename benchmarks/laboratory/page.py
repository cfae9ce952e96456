"""The tables of `worlds.json`, `objectives.json` and `update.json` in docs/laboratory.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.tables import DOCS, markdown, read, spread

HEAD = (
    *("world", "pass@1", "any of 64", "best simple rule", "chance", "GRPO gains, held out", "permuted rewards"),
    *("seconds of a core", "carries verdicts"),
)


def worlds(record: dict[str, Any]) -> str:
    rows = []
    for name, row in record["worlds"].items():
        base, grpo, permuted = row["test"], row["grpo"], row["permuted rewards"]
        rows.append(
            (
                f"`{name}`",
                spread(base["pass_at_1"]),
                spread(base["any_of_64"]),
                f"{row['best simple rule']:.2f}",
                f"{row['chance']:.2f}",
                spread(grpo["gain"]["test"], "+.2f"),
                spread(permuted["gain"]["test"], "+.2f"),
                f"{grpo['cpu_seconds']:.0f}",
                "yes" if row["carries_verdicts"] else "no",
            )
        )
    course, setting = record["course"], record["machine"]
    about = (
        f"Held-out compositions, temperature 1; an oracle is always right. {course['updates']} updates of {course['passes']} "
        f"passes, {record['seeds']} seeds, {record['tasks']} tasks with {record['answers']} answers each; 95 % intervals, of the "
        f"first two columns over compositions, of gains over seeds. Weights {record['digest'][:12]}, revision "
        f"{setting['revision']}, {setting['processor']}."
    )
    return markdown(HEAD, rows) + "\n\n" + about


def objectives(record: dict[str, Any]) -> str:
    """The arms of each place where objectives were compared."""
    return "\n\n".join(compared(place, of) for place, of in record["places"].items())


def compared(place: str, record: dict[str, Any]) -> str:
    arms, rates = record["arms"], record["rates"]
    rows = [("`grpo`", rates["grpo"], spread(ends(arms["grpo"])), "", "", "")]
    for row in sorted(record["verdicts"], key=lambda row: -row["against grpo"]["mean"]):
        name, gap = row["arm"], row["against grpo"]
        rate = rates.get(name, rates["grpo"])
        label = name if " " in name else f"`{name}`"
        rows.append(
            (
                label,
                rate,
                spread(ends(arms[name])),
                spread(ends(gap), "+.2f"),
                f"{row['adjusted p']:.2f}",
                row["verdict"],
            )
        )
    course, setting = record["course"], record["machine"]
    about = (
        f"World {place}, held-out compositions, {record['seeds']} seeds, {course['updates']} updates of "
        f"{course['passes']} passes over {course['tasks']} x {course['answers']} answers. Weights {record['digest'][:12]}, "
        f"revision {setting['revision']}, {setting['processor']}."
    )
    head = ("objective", "learning rate", "pass@1 after", "less GRPO", "p (Holm)", "does better than GRPO")
    return markdown(head, rows) + "\n\n" + about


def ends(of: dict[str, Any]) -> dict[str, float]:
    """Return a mean with the ends of its interval by name."""
    return {"mean": of["mean"], "low": of["interval"][0], "high": of["interval"][1]}


def update(record: dict[str, Any]) -> str:
    seconds = {name: f"{of['median']:.2f} s" for name, of in record["seconds"].items()}
    whole = record["seconds"]["update"]
    return (
        f"An update of {record['answers']} answers of {record['tokens']} tokens takes {seconds['update']} of one core "
        f"({whole['least']:.2f} to {whole['most']:.2f} in {record['repeats']} repeats): {seconds['sampling']} of sampling and "
        f"{seconds['learning']} of learning, with one pass. Weights {record['digest'][:12]}, revision "
        f"{record['machine']['revision']}, {record['machine']['processor']}."
    )


def tables() -> Iterator[tuple[Path, str, str]]:
    yield DOCS / "laboratory.md", "worlds", worlds(read("laboratory/worlds"))
    yield DOCS / "laboratory.md", "objectives", objectives(read("laboratory/objectives"))
    yield DOCS / "laboratory.md", "update", update(read("laboratory/update"))
