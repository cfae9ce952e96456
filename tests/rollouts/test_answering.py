"""Rollouts of the answerer: exact ids, shared snapshots, named rewards, stated truncation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keepworth.methods.recipes._memory_r1.answering import answer, demonstration
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Episode, FinishReason, Group, Sample, SamplingParams, Session, StopReason, Task, Turn
from keepworth.records.model import Tokens
from keepworth.worlds import recall
from keepworth.worlds.answerer import Style, render
from keepworth.worlds.driver import RolloutContext, together
from tests.models.tiny import tiny_model


def task_of(name: str, question: str, answers: Sequence[str], texts: Sequence[str]) -> Task:
    """A session of one turn a day; the first is the evidence."""
    turns = [Turn("user", text, 0, number == 0) for number, text in enumerate(texts)]
    sessions = tuple(Session(f"{name}-{j}", f"2024-01-0{j + 1}T00:00", (turn,)) for j, turn in enumerate(turns))
    return Task(name, "made up", question, tuple(answers), "token_f1", sessions=sessions, evidence=(sessions[0].id,))


TASKS = [task_of(f"t/{i}", f"What is {i}?", (f"thing {i}", "it"), [f"{i} is thing {i}. " * 3]) for i in range(3)]
PARAMS = SamplingParams(5, stop_ids=frozenset({10}))


def answered(
    model: InProcessModel, tasks: list[Task], show: recall.Recall, params: SamplingParams, label: str = "", **how: Any
) -> list[Group]:
    """Three answers to each task."""

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        return await answer(model, task, show, context, params, **how)

    return together(model, tasks, rollout, n=3, label=label)


def test_a_group_shares_its_prompt_and_its_snapshot_and_keeps_the_sampled_ids() -> None:
    model = tiny_model()
    show = recall.recall_evidence(2, seed=0)
    calls: list[tuple[list[Tokens], SamplingParams]] = []
    sample = model.sample

    def noted(prompts: Any, params: SamplingParams) -> list[list[Sample]]:
        calls.append((list(prompts), params))
        return sample(prompts, params)

    model.sample = noted  # type: ignore[method-assign]
    groups = answered(model, TASKS, show, PARAMS, reward="exact_match", label="7/")
    ((prompts, params),) = calls
    assert params.n == 3
    drawn = sample(prompts, params)
    assert [g.task for g in groups] == [t.key for t in TASKS]
    for group, task, prompt, samples in zip(groups, TASKS, prompts, drawn, strict=True):
        expected = model.encode(render(show(task).shown, task.input))
        assert group.memory_snapshot == show(task).snapshot
        assert {e.id for e in group.episodes} == {f"7/{task.key}#{j}" for j in range(3)}
        for episode, own in zip(group.episodes, samples, strict=True):
            (segment,) = episode.segments
            assert segment.context == expected == prompt
            assert len(segment.ids) == len(segment.logprobs) == segment.spans[-1].end
            weights = {t.name: t.weight for t in episode.rewards}
            assert weights == {"exact_match": 1.0, "token_f1": 0.0}
            assert segment.ids == own.ids


def test_the_reward_depends_on_the_answer_key() -> None:
    model = tiny_model()
    shown = [demonstration(model, task, recall.recall_evidence(1, seed=0), 16, identity="d") for task in TASKS]
    assert [episode.reward for episode in shown] == [1.0, 1.0, 1.0]
    assert model.decode(shown[0].segments[0].ids) == " thing 0\n"
    assert shown[0].segments[0].finish is FinishReason.STOP


def test_memories_that_do_not_fit_are_said_to_be_left_out() -> None:
    model = tiny_model()
    long = task_of("t/long", "What?", ("x",), [f"{i} " + "word " * 30 for i in range(5)])
    (group,) = answered(model, [long], recall.recall_evidence(5, seed=0), PARAMS, style=Style.DIRECT)
    for episode in group.episodes:
        assert 0 < len(episode.shown) < 5
        everything = recall.recall_evidence(5, seed=0)(long).shown
        best = sorted(everything, key=lambda item: item.score)[-len(episode.shown) :]
        assert episode.shown == tuple(item for item in everything if item in best)
        assert episode.errors == (f"{5 - len(episode.shown)} memories did not fit the model's window",)


def test_an_answer_that_never_stops_says_so() -> None:
    (group,) = answered(tiny_model(), TASKS[:1], recall.nothing, SamplingParams(3))
    assert {e.stop for e in group.episodes} == {StopReason.MAX_TOKENS}
