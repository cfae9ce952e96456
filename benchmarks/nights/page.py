"""The numbers of simulated nights, in docs/memory.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.tables import DOCS, read


def tables() -> Iterator[tuple[Path, str, str]]:
    done, planted = read("nights/nights"), read("nights/planted")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in done["by_kind"].items())
    missed = [each["mistake"] for each in planted["mistakes"] if each["mistake"] != "none" and not each["claim"]]
    yield (
        DOCS / "memory.md",
        "nights",
        f"{done['nights']:,} nights (seeds {done['seeds']}), {done['steps']:,} steps, {done['faults']:,} distinct faults ({kinds}), "
        f"{done['faults_per_core_hour']:,} in an hour of one core: {len(done['failures'])} nights failed. Of {planted['planted']} "
        f"mistakes planted in a copy of the source, at most {planted['nights']} nights find {planted['found']}"
        + (f"; not found: {', '.join(missed)}." if missed else "."),
    )
