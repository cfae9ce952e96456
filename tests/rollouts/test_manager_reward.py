"""The manager's reward: right operations, and that any text is carried out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1.memory_manager import act, manager_params, observe
from keepworth.methods.recipes._memory_r1.operation_tasks import operation_tasks
from keepworth.methods.recipes._memory_r1.steps import ManagerStep, judged, manage, operation_step, retrieved
from keepworth.models.inprocess import InProcessModel
from keepworth.records.episode import Episode, OperationKind, ParseStatus, Task, combine_terms
from keepworth.worlds.answerer import ModelReader
from keepworth.worlds.driver import RolloutContext, together
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.rollouts.scripted_model import ScriptedModel


def _value(step: ManagerStep, text: str) -> float:
    return combine_terms(judged(step, text).terms)


def test_operation_reward_of_constant_policies_and_of_the_oracle() -> None:
    tasks = operation_tasks("dev", 400, seed=9)
    steps = [operation_step(task) for task in tasks]

    def mean(policy: str | None) -> float:
        scored = (judged(step, policy or step.gold) for step in steps)
        return sum(each.terms[0].value for each in scored) / len(steps)

    for kind in ("ADD", "NOOP"):
        assert mean(kind) == pytest.approx(sum(task.tags["operation"] == kind for task in tasks) / len(tasks))
    assert mean(None) == 1.0
    assert mean("perhaps") == 0.0


def test_the_format_enters_as_stated() -> None:
    task = next(task for task in operation_tasks("train", 50) if task.answers[0] == "UPDATE 1")
    step = operation_step(task)
    assert _value(step, "UPDATE 1") == pytest.approx(1.1)
    assert _value(step, "update [1]") == pytest.approx(1.05)
    assert _value(step, "UPDATE 0") == pytest.approx(0.1)
    assert _value(step, "DELETE 1") == pytest.approx(0.1)
    assert _value(step, "UPDATE 99") == 0.0
    assert _value(step, "hello") == 0.0


def test_an_operation_step_is_carried_out_and_its_bank_left_alone() -> None:
    task = next(task for task in operation_tasks("train", 50) if task.answers[0].startswith("UPDATE"))
    step = operation_step(task)
    before = step.bank.content_hash()
    right, wrong = judged(step, step.gold), judged(step, "nonsense")
    assert right.event.operation.kind is OperationKind.SUPERSEDE
    assert right.event.operation.text == task.input
    assert right.event.outcome == "applied"
    assert right.memory_after != before
    assert wrong.memory_after == before == step.bank.content_hash()
    assert wrong.event.status is ParseStatus.INVALID


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_any_manager_text_is_executed_and_invalid_text_has_no_effect(text: str) -> None:
    bank = Bank.empty(None)
    for memory in ("I have three bikes.", "I like tea."):
        bank.add(memory)
    before = bank.content_hash()
    event = act(bank, observe(bank, "I have four bikes.", mode="lexical"), text)
    if event.status is ParseStatus.INVALID:
        assert bank.content_hash() == before
        assert event.outcome == "no-op: noop"


def test_memories_are_read_in_the_order_of_time() -> None:
    bank = Bank.empty(None)
    for number, day in (("four", 9), ("three", 2)):
        bank.add(f"My bikes number {number}.", event_time=f"2023-05-{day:02d}T10:00")
    assert retrieved(bank, "bikes number", 5, "lexical") == ("My bikes number three.", "My bikes number four.")
    assert retrieved(Bank.empty(None), "bikes", 5, "lexical") == ()


def test_model_reader_asks_each_prompt_once_per_version() -> None:
    model = ScriptedModel(lambda prompt, j: f" {len(prompt)}\n")
    reader = ModelReader(model)

    def asked() -> list[int]:
        return [len(prompts) for prompts, _ in model.batches]

    first = reader.answers([("q", ("a",)), ("q", ("b",)), ("q", ("a",))])
    assert first[0] == first[2]
    assert asked() == [2]
    reader.answers([("q", ("b",))])
    assert asked() == [2]
    before = reader.identity
    model.version += 1
    assert reader.identity != before
    reader.answers([("q", ("b",))])
    assert asked() == [2, 1]


def test_questions_over_the_same_memories_are_chosen_from_as_one_by_one(tmp_path: Path) -> None:
    reader = ModelReader(InProcessModel.load(write_tiny_checkpoint(tmp_path / "model"), precision="fp32"))
    options = ["the cat", "a hat", "seven miles of road"]
    queries = [(f"What is {word}?", memories, options) for memories in (["It rains."], []) for word in "abcde"]
    assert reader.choices(queries) == [reader.choices([query])[0] for query in queries]


def test_groups_hold_all_events_of_their_episodes() -> None:
    task = next(task for task in operation_tasks("train", 50) if task.answers[0] == "ADD")
    model = ScriptedModel(lambda prompt, j: (" ADD\n", " NOOP\n", " UPDATE 7\n")[j])

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        return await manage(model, operation_step(task), context, manager_params(model))

    (group,) = together(model, [task], rollout, n=3, label="1/")
    added, kept, invalid = group.episodes
    assert [episode.id for episode in group.episodes] == [f"1/{task.key}#{number}" for number in range(3)]
    assert group.memory_snapshot == operation_step(task).bank.content_hash()
    assert added.segments[0].ids == model.encode(" ADD\n")
    assert added.segments[0].memory_after != added.segments[0].memory_before == kept.segments[0].memory_after
    assert added.operations[0].operation.text == task.input
    assert invalid.stop.value == "parse_error"
    assert invalid.operations[0].status is ParseStatus.INVALID
    assert [episode.reward for episode in group.episodes] == pytest.approx([1.1, 0.1, 0.0])
    assert (added.answer, added.expected) == ("ADD", ("ADD",))
