"""The numbers of simulated nights, in docs/memory.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.nights.planted import mistakes
from benchmarks.nights.run import LAYERS
from benchmarks.tables import DOCS, read


def tables() -> Iterator[tuple[Path, str, str]]:
    lines = ["| nights of | seeds | steps | distinct faults | in an hour of one core | failed |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: |"]
    kinds = list[str]()
    for layer in LAYERS:
        done = read(f"nights/{'nights' if layer == 'engine' else layer}")
        lines.append(
            f"| {layer} | {done['seeds']} | {done['steps']:,} | {done['faults']:,} at {done['places']:,} kinds of places | "
            f"{done['faults_per_core_hour']:,} | {len(done['failures'])} of {done['nights']} |"
        )
        kinds.append(f"{layer}: " + ", ".join(f"{count:,} {kind}" for kind, count in done["by_kind"].items()))
    yield DOCS / "memory.md", "nights", "\n".join([*lines, "", f"Of each kind: {'; '.join(kinds)}."])
    yield DOCS / "memory.md", "planted mistakes", _planted(read("nights/planted"))


def _planted(done: dict[str, Any]) -> str:
    """Return how many of the mistakes of each layer are found, and the names of those that are not, or were not tried."""
    lines = ["| mistakes in | planted | found | nights at most | not found | not tried |"]
    lines += ["| --- | ---: | ---: | ---: | --- | --- |"]
    tried = {(each["layer"], each["mistake"]): each for each in done["mistakes"]}
    for layer in LAYERS:
        names = [each["name"] for each in mistakes() if each["layer"] == layer]
        found = [name for name in names if tried.get((layer, name), {"claim": ""})["claim"]]
        rest = [name for name in names if (layer, name) not in tried]
        missed = [name for name in names if name not in found and name not in rest]
        most = max((each["most"] for (of, _), each in tried.items() if of == layer), default=0)
        lines.append(f"| {layer} | {len(names)} | {len(found)} | {most} | {'; '.join(missed)} | {'; '.join(rest)} |")
    return "\n".join(lines)
