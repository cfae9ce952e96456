"""Judges every record of evidence by the one rule, and leaves its numbers as they are.

python -m benchmarks.methods.judge

A record that has no rule yet gets that of `benchmarks/methods/rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.methods import rules
from benchmarks.methods.ruling import ALL
from benchmarks.methods.write import FOLDER, judged
from benchmarks.record import save, takes_nothing
from keepworth.registry import KINDS, Method, evidence, methods


def records() -> Iterator[tuple[Method, Path, dict[str, Any]]]:
    """Each method that has evidence, with the file and what it holds."""
    for kind in KINDS:
        for declared in methods(kind).values():
            measured = evidence(declared)
            if measured is not None:
                yield declared, FOLDER / measured.pop("file"), measured


def rule_now(declared: Method, record: dict[str, Any]) -> Any:
    """The rule of a record as `rules` makes it; those of the table of streams and of systems are made with their numbers."""
    stored = record.get("rule", {})
    with_numbers = ALL in stored.get("places", {}) or declared.kind == "system"
    return stored if with_numbers else rules.rule_of(declared.name, declared.kind, record)


def main() -> None:
    takes_nothing(__doc__)
    for declared, file, record in records():
        save(file, judged({**record, "rule": rule_now(declared, record)}, declared.claim))


if __name__ == "__main__":
    main()
