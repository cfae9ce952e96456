from __future__ import annotations

import pytest

from keepworth.tasks.competing import covered
from keepworth.tasks.entries import DocumentLayout, evidence, reading_tasks, sections


@pytest.fixture(scope="module")
def tasks() -> list:  # type: ignore[type-arg]
    return reading_tasks("dev")


def test_the_answer_can_be_read_in_the_text(tasks: list) -> None:  # type: ignore[type-arg]
    layout = DocumentLayout(sections=3, windows=2, words=60)
    for task in tasks:
        text = sections(task, layout)
        assert len(text) == 3
        assert all(len(section.split()) <= 2 * 60 for section in text)
        assert 0 < sum(len(part.split()) for part in evidence(task, layout)) <= sum(len(part.split()) for part in text)
        single = DocumentLayout(sections=6, words=60)
        assert set(evidence(task, single)) <= set(sections(task, single))
    found = [any(covered(answer, sections(task, layout)) for answer in task.answers) for task in tasks]
    assert sum(found) >= 0.9 * len(found)


def test_a_longer_layout_reads_more_and_the_same_seed_the_same(tasks: list) -> None:  # type: ignore[type-arg]
    short, long = DocumentLayout(sections=2), DocumentLayout(sections=6)
    assert all(len(sections(task, short)) == 2 for task in tasks)
    assert all(len(sections(task, long)) > 2 for task in tasks)
    assert sections(tasks[0], long) == sections(tasks[0], long)
    with pytest.raises(ValueError, match="at least 1"):
        DocumentLayout(sections=0)
