"""What an agent is shown: the right memory, none, a stranger's, the evidence alone, or what retrieval finds."""

from __future__ import annotations

import pytest

from keepworth.base.errors import KeepworthError
from keepworth.encoders.local import encoder
from keepworth.records import Session, Task, Turn
from keepworth.worlds import recall


def task(number: int, evidence: str, answer: str) -> Task:
    sessions = (
        Session(f"e{number}", "2024-05-02T10:00", (Turn("user", evidence, 0, True), Turn("assistant", "Noted.", 1))),
        Session(f"d{number}", "2024-04-01T10:00", (Turn("user", f"The weather was mild in week {number}.", 0),)),
        Session(f"f{number}", "2024-06-01T10:00", (Turn("user", f"I watched film number {number} alone.", 0),)),
    )
    ordered = tuple(sorted(sessions, key=lambda session: session.date))
    question, marked = f"Where is item {number}?", (f"e{number}",)
    return Task(f"t/{number}", "made up", question, (answer,), "token_f1", sessions=ordered, evidence=marked)


TASKS = [task(1, "I put item 1 in the attic.", "attic"), task(2, "Now item 2 is in the shed.", "shed")]


def texts(recalled: recall.Recalled) -> list[str]:
    return [item.text for item in recalled.shown]


def test_given_shows_the_evidence_among_others_in_order_of_time() -> None:
    shown = texts(recall.recall_evidence(3, seed=0)(TASKS[0]))
    assert shown == ["The weather was mild in week 1.", "I put item 1 in the attic.", "I watched film number 1 alone."]
    assert texts(recall.recall_evidence(1, seed=0)(TASKS[0])) == ["I put item 1 in the attic."]


def test_control_recalls_return_no_items_or_the_evidence() -> None:
    assert texts(recall.nothing(TASKS[0])) == []
    assert texts(recall.evidence_only()(TASKS[0])) == ["I put item 1 in the attic."]


def test_another_shows_a_stranger_and_never_shared_evidence() -> None:
    own = recall.recall_evidence(3, seed=0)
    assert texts(recall.another(own, TASKS)(TASKS[0])) == texts(own(TASKS[1]))
    with pytest.raises(KeepworthError, match=r"all . share its evidence"):
        recall.another(own, [TASKS[0], TASKS[0]])


def test_a_task_has_one_snapshot_and_different_memories_have_different_ones() -> None:
    one, two = recall.recall_evidence(3, seed=0), recall.recall_evidence(1, seed=0)
    assert one(TASKS[0]).snapshot == one(TASKS[0]).snapshot == recall.recall_evidence(3, seed=0)(TASKS[0]).snapshot
    assert len({one(TASKS[0]).snapshot, two(TASKS[0]).snapshot, one(TASKS[1]).snapshot}) == 3


def test_retrieval_finds_the_evidence_and_logs_the_choice() -> None:
    found = recall.recall_by_search(2, encoder("hashing"))(TASKS[0])
    assert "I put item 1 in the attic." in texts(found)
    (decision,) = found.decisions
    assert set(decision.chosen) == {item.item for item in found.shown}
    assert decision.candidates[0][1] >= decision.candidates[-1][1]


def test_dates_and_names_are_written_as_people_say_them() -> None:
    dated = texts(recall.recall_evidence(3, seed=0, dates=True)(TASKS[0]))
    assert dated[1] == "2 May 2024: I put item 1 in the attic."
    other = Task("t/3", "made up", "?", ("x",), "token_f1", sessions=(Session("s", "", (Turn("Ana", "x y", 0),)),))
    assert texts(recall.recall_evidence(1, seed=0, dates=True)(other)) == ["Ana: x y"]
