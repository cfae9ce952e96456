"""The table of all benchmarks in docs/benchmarks.md."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.tables import DOCS, markdown
from keepworth.registry import methods
from keepworth.worlds.benchmark import Benchmark, sizes
from keepworth.worlds.data_files import VARIABLE, MissingData
from keepworth.worlds.splits import SPLITS


def where(benchmark: Benchmark) -> str:
    """Where a set can be had, as its loader says it to who has none."""
    if benchmark.shipped:
        return "included"
    before = os.environ.pop(VARIABLE, None)
    try:
        benchmark("test")
    except MissingData as error:
        match = re.search(r"Get it from (.*?), then pass", error.fix)
        return match[1] if match else error.fix
    finally:
        if before is not None:
            os.environ[VARIABLE] = before
    raise SystemExit(f"{benchmark.name} is not shipped, and yet it was found without data")


def tables() -> Iterator[tuple[Path, str, str]]:
    known = sizes()
    rows = []
    for name, benchmark in methods("benchmark").items():
        make, size = benchmark.make, known.get(name)
        judged, counted = make.metric, ""
        if size:
            judged = ", ".join(f"`{name}`" if name != "choice" else "right option" for name in size["judged"]) or judged
            counted = " / ".join(f"{size['questions'][side]:,}" for side in SPLITS)
            counted += f"; {size['haystacks']:,} x {size['entries']:,}"
        rows.append((f"`{make.name}`", benchmark.about, judged, make.licence, where(make), counted))
    head = ("name", "what it asks", "judged by", "licence", "where", "train / dev / test; haystacks x entries")
    yield DOCS / "benchmarks.md", "benchmarks", markdown(head, rows, left=len(head))
