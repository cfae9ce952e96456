"""The numbers of simulated nights, in docs/memory.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.tables import DOCS, read


def tables() -> Iterator[tuple[Path, str, str]]:
    done = read("nights/nights")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in done["by_kind"].items())
    yield (
        DOCS / "memory.md",
        "nights",
        f"{done['nights']:,} nights (seeds {done['seeds']}), {done['steps']:,} steps, {done['faults']:,} distinct faults "
        f"({kinds}), {done['faults_per_core_hour']:,} in an hour of one core: {len(done['failures'])} nights failed.",
    )
