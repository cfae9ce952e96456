"""Presents cases, one per line, so that nothing in a case's text can be mistaken for a label, and limits how many cases stay."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from keepworth.base.text import as_line
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.slots import Presented, Query, Use, Valuer, combined_advice
from keepworth.memory.item import Item, Status

WORKED, FAILED = "worked", "failed"
HEADING = "What was tried before in similar situations:"
_LABEL = re.compile(rf"[(（]\s*({WORKED}|{FAILED})\s*[)）]", re.IGNORECASE)
# It also matches with letters after it: a reader takes ": it worked0" for "it worked".
_ENDING = re.compile(rf":(?= it ({WORKED}|{FAILED}))", re.IGNORECASE)


def case_line(text: str, label: str) -> str:
    """Returns a case as one line to stand behind `label`. An ending such as "it worked" stays only where it agrees with the
    label; any other such mark in the text is defused."""
    line = _LABEL.sub(r"[\1]", as_line(text))
    ending = f": it {label}"
    closing = ending if line.endswith(ending) else ""
    return _ENDING.sub(",", line.removesuffix(closing)) + closing


def sorted_out(items: list[Item]) -> tuple[list[Item], list[Item], list[Item]]:
    """Splits items into cases that succeeded, cases that failed, and items that are no cases."""
    cases = [item for item in items if "do" in item.metadata]
    good = [item for item in cases if item.metadata["good"]]
    return good, [item for item in cases if not item.metadata["good"]], [i for i in items if "do" not in i.metadata]


def exemplars(items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
    """Shows cases that succeeded, then cases that failed, labelled as such (Memento's planner prompt, arXiv 2508.16153).

    Args:
        items: What is shown, in its order.
        query: What was asked, with the actions that are possible.
        similarities: The cosine of each item with the query.
    """
    if not items:
        return Presented("")
    good, bad, facts = sorted_out(items)
    lines = [f"- {as_line(item.text)}" for item in facts]
    lines += [HEADING] if good or bad else []
    lines += [f"- ({WORKED}) {case_line(item.text, WORKED)}" for item in good]
    lines += [f"- ({FAILED}) {case_line(item.text, FAILED)}" for item in bad]
    return Presented("\n".join(lines), combined_advice(items, query, similarities))


@dataclass(frozen=True, slots=True)
class Capacity:
    """Keeps at most `most` active items: it archives the oldest items of the source that has the most. Undoing restores them.

    So a source that writes a lot does not displace the items of others.
    """

    most: int = 400

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is not None:
            return
        rows = pool.advising()
        excess = len(rows) - self.most
        if excess <= 0:
            return
        of_source: dict[str, deque[int]] = {}
        for row in rows:
            of_source.setdefault(pool.items[row].provenance.source, deque()).append(int(row))
        for _ in range(excess):
            most = max(of_source.values(), key=len)
            pool.set_status(most.popleft(), Status.ARCHIVED)
