"""Long reading: a question about one's own conversations, and the text that has to be read for it, section by section.

Made from LongMemEval's questions (see `longmemeval`): the windows of the evidence turns among windows of other turns, in
order of time, so many to a section. How long a text is, is a dial; where the evidence stands in it is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from keepworth.episodes.task import Task
from keepworth.tasks.entries import Entry, candidates
from keepworth.tasks.longmemeval import longmemeval


@dataclass(frozen=True, slots=True)
class Layout:
    """sections of `windows` windows of at most `words` words. seed: of what else is in the text."""

    sections: int = 3
    windows: int = 1
    words: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.sections, self.windows, self.words) < 1:
            raise ValueError(f"{self}: sections, windows and words are at least 1")


def reading_tasks(split: str, *, distractors: int = 10) -> list[Task]:
    """The extractive questions of LongMemEval whose answer can be read in the text."""
    return longmemeval(split, distractors=distractors, seed=0, extractive=True, abstention=False)


def sections(task: Task, layout: Layout) -> tuple[str, ...]:
    """The text of `task`, as it is read. Fewer sections where the haystack holds no more; the evidence is always in it."""
    return _cut(_chosen(task, layout), layout)


def evidence(task: Task, layout: Layout) -> tuple[str, ...]:
    """Only the windows of `sections` that hold evidence: what a reader could at best have remembered."""
    return _cut([entry for entry in _chosen(task, layout) if entry.evidence], layout)


def _chosen(task: Task, layout: Layout) -> list[Entry]:
    found = candidates(task, layout.sections * layout.windows, layout.seed, layout.words)
    return sorted(found, key=lambda entry: (entry.date, entry.session, entry.turn, entry.window))


def _cut(entries: Sequence[Entry], layout: Layout) -> tuple[str, ...]:
    size = layout.windows
    return tuple(
        " ".join(entry.text for entry in entries[start : start + size]) for start in range(0, len(entries), size)
    )
