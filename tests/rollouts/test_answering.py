"""Rollouts of the answerer: exact ids, shared snapshots, named rewards, stated truncation."""

from __future__ import annotations

from keepworth.agents import recall
from keepworth.agents.answerer import Style, render
from keepworth.episodes import FinishReason, SamplingParams, Session, StopReason, Task, Turn
from keepworth.rollouts.answering import answer, demonstrations
from tests.models.tiny import tiny_model

TASKS = [
    Task(
        f"t/{i}",
        "made up",
        f"What is {i}?",
        (f"thing {i}", "it"),
        "token_f1",
        sessions=(Session(f"s{i}", "2024-01-01T00:00", (Turn("user", f"{i} is thing {i}. " * 3, 0, True),)),),
        evidence=(f"s{i}",),
    )
    for i in range(3)
]
PARAMS = SamplingParams(5, n=3, seed=1, stop_ids=frozenset({10}))


def test_a_group_shares_its_prompt_and_its_snapshot_and_keeps_the_sampled_ids() -> None:
    model = tiny_model()
    show = recall.given(2, seed=0)
    groups = answer(model, TASKS, show, PARAMS, reward="exact_match", label="7/")
    assert [g.task for g in groups] == [t.key for t in TASKS]
    for group, task in zip(groups, TASKS, strict=True):
        expected = model.encode(render(show(task).shown, task.input))
        assert group.memory_snapshot == show(task).snapshot
        assert len({e.id for e in group.episodes}) == 3
        for episode, sample in zip(group.episodes, model.sample([expected], PARAMS)[0], strict=True):
            (segment,) = episode.segments
            assert segment.context == expected
            assert len(segment.ids) == len(segment.logprobs) == segment.spans[-1].end
            weights = {t.name: t.weight for t in episode.rewards}
            assert weights == {"exact_match": 1.0, "token_f1": 0.0}
            if task is TASKS[0]:  # the draw depends on the prompt's place in the call
                assert segment.ids == sample.ids


def test_the_reward_depends_on_the_answer_key() -> None:
    model = tiny_model()
    shown = demonstrations(model, TASKS, recall.given(1, seed=0), 16)
    right = [g.episodes[0].reward for g in shown]
    assert right == [1.0, 1.0, 1.0]
    (demonstration,) = shown[0].episodes
    assert model.decode(demonstration.segments[0].ids) == " thing 0\n"
    assert demonstration.segments[0].finish is FinishReason.STOP


def test_memories_that_do_not_fit_are_said_to_be_left_out() -> None:
    model = tiny_model()
    long = Task(
        "t/long",
        "made up",
        "What?",
        ("x",),
        "token_f1",
        sessions=tuple(
            Session(f"l{i}", f"2024-01-0{i + 1}T00:00", (Turn("user", f"{i} " + "word " * 30, 0, i == 0),))
            for i in range(5)
        ),
        evidence=("l0",),
    )
    (group,) = answer(model, [long], recall.given(5, seed=0), PARAMS, style=Style.DIRECT)
    for episode in group.episodes:
        assert 0 < len(episode.shown) < 5
        everything = recall.given(5, seed=0)(long).shown
        best = sorted(everything, key=lambda item: item.score)[-len(episode.shown) :]
        assert episode.shown == tuple(item for item in everything if item in best)
        assert episode.errors == (f"{5 - len(episode.shown)} memories did not fit the model's window",)


def test_an_answer_that_never_stops_says_so() -> None:
    endless = SamplingParams(3, n=2, seed=0)
    (group,) = answer(tiny_model(), TASKS[:1], recall.nothing, endless)
    assert {e.stop for e in group.episodes} == {StopReason.MAX_TOKENS}
