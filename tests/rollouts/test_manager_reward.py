"""The manager's reward: right operations, answers of a frozen reader, and that it cannot be had without the answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.agents.answerer import ModelReader
from keepworth.agents.manager import act, manager_params, observe
from keepworth.episodes.episode import Episode, OperationKind, ParseStatus, Task, combined
from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1.steps import (
    Consequence,
    ManagerStep,
    answer_reward,
    bank_of,
    conversation_step,
    manage,
    operation_reward,
    operation_step,
    retrieved,
)
from keepworth.rollouts.driver import RolloutContext, together
from keepworth.tasks.facts import Fact, LinkedQuestion, ManagerTuple
from keepworth.tasks.operations import operation_tasks
from tests.rollouts.scripted_model import FunctionReader


def _value(step: ManagerStep, text: str) -> float:
    (consequence,) = operation_reward()(step, [text])
    return combined(consequence.terms)


def test_operation_reward_of_constant_policies_and_of_the_oracle() -> None:
    tasks = operation_tasks("dev", 400, seed=9)
    steps = [operation_step(task) for task in tasks]

    def mean(policy: str | None) -> float:
        scored = (operation_reward()(step, [policy or step.gold])[0] for step in steps)
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
    right, wrong = operation_reward()(step, [step.gold, "nonsense"])
    assert right.event.operation.kind is OperationKind.SUPERSEDE
    assert right.event.operation.text == task.input
    assert right.event.outcome == "applied"
    assert right.memory_after != before
    assert wrong.memory_after == before == step.bank.content_hash()
    assert wrong.event.status is ParseStatus.INVALID


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_any_text_is_carried_out_and_an_invalid_one_changes_nothing(text: str) -> None:
    bank = Bank.empty(None)
    for memory in ("I have three bikes.", "I like tea."):
        bank.add(memory)
    before = bank.content_hash()
    event = act(bank, observe(bank, "I have four bikes.", mode="lexical"), text)
    if event.status is ParseStatus.INVALID:
        assert bank.content_hash() == before
        assert event.outcome == "no-op: noop"


def _fact(statement: str, day: int) -> Fact:
    return Fact(statement, f"s{day}", f"2023-05-{day:02d}T10:00", 0, 0)


def _word_after(question: str, memories: Sequence[str]) -> str:
    """A reader that looks for `<last word of the question> <answer>` and believes the last memory that has it."""
    wanted = question.split()[-1]
    answer = "unknown"
    for memory in memories:
        words = memory.strip(".").split()
        if wanted in words[:-1]:
            answer = words[words.index(wanted) + 1]
    return answer


READER = FunctionReader("last-match@1", _word_after)
CHANGED = ManagerTuple(
    "t#0",
    (_fact("My bikes number three.", 1), _fact("My cat is called Pepper.", 2)),
    _fact("My bikes number four.", 3),
    (
        LinkedQuestion("t", "What do my bikes number", ("four",), True),
        LinkedQuestion("u", "What is my cat called", ("Pepper",), False),
    ),
)


def _step() -> ManagerStep:
    return conversation_step(CHANGED, Bank.empty(None), mode="lexical")


def _shown(step: ManagerStep, words: str) -> int:
    return next(number for number, memory in enumerate(step.state.memories) if words in memory)


def test_answer_reward_is_what_the_reader_can_answer_afterwards() -> None:
    step = _step()
    score = answer_reward(READER, mode="lexical")
    bikes, cat = _shown(step, "bikes"), _shown(step, "Pepper")
    texts = ["ADD", f"UPDATE {bikes}", f"UPDATE {cat}", f"DELETE {cat}", "NOOP", "what?"]
    consequences = score(step, texts)
    assert [c.answers for c in consequences] == [
        ("four", "Pepper"),
        ("four", "Pepper"),
        ("four", "unknown"),  # overwriting a bystander costs what was known of it
        ("three", "unknown"),
        ("three", "Pepper"),
        ("three", "Pepper"),
    ]
    assert [c.terms[0].value for c in consequences] == [1.0, 1.0, 0.5, 0.0, 0.5, 0.5]
    assert [combined(c.terms) for c in consequences] == pytest.approx([1.1, 1.1, 0.6, 0.1, 0.6, 0.5])
    assert all(c.terms[0].scorer == "last-match@1" for c in consequences)
    assert len(step.bank) == 2


def test_shuffled_golds_lower_the_mean_reward_of_a_good_policy() -> None:
    """The reward depends on the answer, not on the form: the same texts against other answers earn far less."""
    draw = random.Random(0)
    values = [f"value{number}" for number in range(30)]
    steps = []
    for number, value in enumerate(values):
        question = LinkedQuestion(f"t{number}", f"What is thing{number}", (value,), True)
        fact = _fact(f"My thing{number} {value} is new.", 3)
        steps.append(ManagerTuple(f"t{number}#0", (_fact("I like tea a lot.", 1),), fact, (question,)))
    golds = values[:]
    draw.shuffle(golds)
    score = answer_reward(READER, mode="lexical")

    def mean(answers: Sequence[str]) -> float:
        total = 0.0
        for step, answer in zip(steps, answers, strict=True):
            (asked,) = step.questions
            relabelled = ManagerTuple(
                step.key, step.before, step.fact, (LinkedQuestion(asked.task, asked.question, (answer,), True),)
            )
            (consequence,) = score(conversation_step(relabelled, Bank.empty(None), mode="lexical"), ["ADD"])
            total += consequence.terms[0].value
        return total / len(steps)

    assert mean(values) == 1.0
    assert mean(golds) < 0.2


def test_steps_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="answer_reward"):
        operation_reward()(_step(), ["ADD"])
    with pytest.raises(ValueError, match="operation_reward"):
        answer_reward(READER)(operation_step(operation_tasks("dev", 1)[0]), ["ADD"])
    full = Bank.empty(None)
    full.add("I like tea.")
    with pytest.raises(ValueError, match="starts from an empty bank"):
        bank_of([], full)


def test_memories_are_read_in_the_order_of_time() -> None:
    bank = bank_of([_fact("My bikes number four.", 9), _fact("My bikes number three.", 2)], Bank.empty(None))
    assert retrieved(bank, "bikes number", 5, "lexical") == ("My bikes number three.", "My bikes number four.")
    assert retrieved(Bank.empty(None), "bikes", 5, "lexical") == ()


class _Scripted:
    """A model whose tokens are characters; each prompt is continued by what `say` returns for its text."""

    def __init__(self, say: object, version: int = 0) -> None:
        self._say = say
        self.calls: list[int] = []
        self.version = version
        self.name = "scripted"
        self.context_limit = 100_000

    def encode(self, text: str) -> Tokens:
        return tuple(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def stop_ids_for(self, prefix: str) -> frozenset[int]:
        return frozenset({ord(prefix)})

    def sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        self.calls.append(len(prompts))
        result = []
        for prompt in prompts:
            ids = [self.encode(self._say(self.decode(prompt), j))[: params.max_tokens] for j in range(params.n)]  # type: ignore[operator]
            result.append(
                [
                    Sample(
                        tokens,
                        (-1.0,) * len(tokens),
                        FinishReason.STOP,
                        (VersionSpan(self.version, 0, len(tokens)),),
                    )
                    for tokens in ids
                ]
            )
        return result

    def score(self, prompts: object, branches: object, temperature: float = 1.0) -> list[list[tuple[float, ...]]]:
        raise NotImplementedError


def test_model_reader_asks_each_prompt_once_per_version() -> None:
    model = _Scripted(lambda prompt, j: f" {len(prompt)}\n")
    reader = ModelReader(model)
    first = reader.answers([("q", ("a",)), ("q", ("b",)), ("q", ("a",))])
    assert first[0] == first[2]
    assert model.calls == [2]
    reader.answers([("q", ("b",))])
    assert model.calls == [2]
    before = reader.identity
    model.version = 1
    assert reader.identity != before
    reader.answers([("q", ("b",))])
    assert model.calls == [2, 1]


def test_groups_carry_everything_that_happened() -> None:
    model = _Scripted(lambda prompt, j: (" ADD\n", " NOOP\n", " UPDATE 7\n")[j])
    step = _step()
    score = answer_reward(READER, mode="lexical")

    async def judge(text: str) -> Consequence:
        return score(step, [text])[0]

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        return await manage(model, step, context, manager_params(model), judge)  # type: ignore[arg-type]

    task = Task(step.key, "test", "", (), "none")
    (group,) = together(model, [task], rollout, n=3, label="1/")  # type: ignore[arg-type]
    assert group.memory_snapshot == step.bank.content_hash()
    added, kept, invalid = group.episodes
    assert [episode.id for episode in group.episodes] == ["1/t#0#0", "1/t#0#1", "1/t#0#2"]
    assert added.segments[0].ids == model.encode(" ADD\n")
    assert added.segments[0].memory_after != added.segments[0].memory_before == kept.segments[0].memory_after
    assert added.operations[0].operation.text == "My bikes number four."
    assert invalid.stop.value == "parse_error"
    assert invalid.operations[0].status is ParseStatus.INVALID
    assert [episode.reward for episode in group.episodes] == pytest.approx([1.1, 0.6, 0.5])
    assert added.answer == "four | Pepper"
    assert added.expected == ("four", "Pepper")
