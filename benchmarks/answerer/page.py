"""The arms of the answerer in docs/appendix/results.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.tables import DOCS, markdown, read, spread

Record = dict[str, Any]
SHOWN = {
    "": "with memory",
    "no_memory": "no memory",
    "wrong_memory": "another question's memory",
    "oracle": "oracle evidence",
}


def arm(name: str) -> str:
    """The model, then what it is shown: "reinforced, no_memory" and "no_memory_untrained" alike."""
    if name.endswith("untrained"):
        return f"untrained, {SHOWN[name.removesuffix('untrained').rstrip('_')]}"
    method, _, memory = name.partition(", ")
    return f"{method}, {SHOWN[memory]}"


def arms(record: Record) -> str:
    def rows(of: list[Record], called: Any) -> list[list[str]]:
        return [[called(row["arm"]), spread(row), str(row["n"]), str(row["seeds"])] for row in of]

    gains = [row for row in record["gains"] if "out" not in row["arm"] and "another" not in row["arm"]]
    head = ("mean [95 %]", "questions", "seeds")
    of_each = ", ".join(f"{value:+.3f}" for value in record.get("claim", {}).get("gain_of_each_seed", ()))
    return "\n\n".join(
        [
            markdown(["token F1, test questions", *head], rows(record["levels"], arm)),
            markdown(["gain over the untrained model", *head], rows(gains, str)),
            f"Gain of each seed: {of_each}.",
        ]
    )


def tables() -> Iterator[tuple[Path, str, str]]:
    yield DOCS / "appendix" / "results.md", "answerer-arms", arms(read("answerer/arms"))
