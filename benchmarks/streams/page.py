"""The one table of memories: what to take in docs/experience.md, stream by stream in its appendix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.streams.memories import controls, worded
from benchmarks.tables import DOCS, markdown, read
from keepworth.registry import evidence, methods

Record = dict[str, Any]
LIMITS = ("oracle", "random", "none")


def tables() -> Iterator[tuple[Path, str, str]]:
    record = read("streams/memories")
    yield DOCS / "experience.md", "memories", by_method(record)
    yield DOCS / "experience.md", "memories-by-stream", by_stream(record)
    yield DOCS / "experience.md", "memories-equal", equal_rows(record)
    yield DOCS / "experience.md", "memories-source", source(record)
    more = read("streams/more")
    yield DOCS / "experience.md", "memories-by-more-streams", by_stream(more)
    yield DOCS / "experience.md", "more-source", source(more)
    yield DOCS / "experience.md", "horizons", by_horizon(read("streams/horizons"))


def points(row: Record) -> str:
    return f"{100 * row['mean']:.1f}"


def by_method(record: Record) -> str:
    """Each method by the settings that it is judged by, the best first."""
    arms = {row["arm"]: row for row in record["arms"] if "mean" in row}
    rows = []
    for name, method in methods("policy").items():
        measured = evidence(method)
        if measured is None or "memories FOLDER" not in measured["command"]:
            continue
        gaps = {
            gap["against"].rpartition(" on ")[0]: gap
            for gap in measured["comparisons"]
            if gap["against"].endswith(" streams")
        }
        settings = [arm for arm in (f"{name}+on", name, f"{name}+published") if arm in arms]
        arm = settings[0] if settings[0].endswith("+on") else max(settings, key=lambda arm: arms[arm]["mean"]["mean"])
        others = [arms[of]["mean"] for of in settings if of != arm]
        control = next(of for of in controls(name, arm) if of in gaps)
        idea = f"{worded(gaps[control], '')} `{control}`"
        rows.append((name, arms[arm], points(max(others, key=lambda row: row["mean"])) if others else "", idea))
    rows.sort(key=lambda row: -row[1]["mean"]["mean"])
    lines = [
        (f"`{name}`", points(row["mean"]), points(row["mean frozen"]), other, worded(row["plain similarity"], ""), idea)
        for name, row, other, idea in rows
    ]
    lines += [(f"`{arm}`", points(arms[arm]["mean"]), points(arms[arm]["mean frozen"]), "", "", "") for arm in LIMITS]
    scores = ("learning", "frozen", "learning, other settings")
    return markdown(("memory", *scores, "minus plain similarity", "gain over itself, its idea switched off"), lines)


def by_stream(record: Record) -> str:
    """Every arm on every stream, without those that are controls of others."""
    streams = list(record["streams"])
    rows = [row for row in record["arms"] if "mean" in row and row["arm"].partition("+")[2] in ("", "published", "on")]
    rows = [row for row in rows if "-without-" not in row["arm"]]
    best = {
        stream: max(row["learning"][stream]["mean"] for row in rows if row["arm"] != "oracle") for stream in streams
    }
    last = ("attacker's aim", "words") if "injection" in streams else ("words",)
    lines = []
    for row in sorted(rows, key=lambda row: -row["mean"]["mean"]):
        cells = []
        for stream in streams:
            text = points(row["learning"][stream])
            highest = row["learning"][stream]["mean"] == best[stream] and row["arm"] != "oracle"
            cells.append(f"**{text}**" if highest else text)
        if "injection" in streams:
            cells.append(points(row["attacker's aim on injection"]))
        lines.append((f"`{row['arm']}`", points(row["mean"]), *cells, row["words"]))
    return markdown(("memory", "all", *streams, *last), lines)


def equal_rows(record: Record) -> str:
    """The methods that have the same numbers on a stream, and on which: what they differ in changes nothing there."""
    equal: dict[str, list[str]] = {}
    for stream in record["streams"]:
        groups: dict[str, list[str]] = {}
        for row in record["arms"]:
            method, _, changed = row["arm"].partition("+")
            if stream in row["learning"] and changed in ("", "published", "on") and "-without-" not in method:
                groups.setdefault(str((row["learning"][stream], row["frozen"][stream])), []).append(row["arm"])
        for arms in groups.values():
            if len({arm.partition("+")[0] for arm in arms}) > 1:
                equal.setdefault(", ".join(f"`{arm}`" for arm in arms), []).append(f"`{stream}`")
    return markdown(("equal", "on"), [(arms, ", ".join(streams)) for arms, streams in equal.items()], align="--")


def by_horizon(record: Record) -> str:
    """Every memory by how far back lies what counts."""
    arms = list(record["rows"][0]["arms"])
    lines = []
    for row in record["rows"]:
        low, high = row["xi"]
        cells = [points(row["arms"][arm]) for arm in arms]
        lines.append((f"`{row['stream']}`", row["K"], low if low == high else f"{low} to {high}", *cells))
    return markdown(("stream", "K", "xi", *(f"`{arm}`" for arm in arms)), lines)


def source(record: Record) -> str:
    streams = ", ".join(f"`{name}` ({of['tasks']} and {of['frozen']})" for name, of in record["streams"].items())
    where = f"{record['seeds']} rule sets, {record['machine']}, revision {record['revision']}."
    return f"Streams, with their tasks while learning and frozen: {streams}. {where}"
