"""Memory-R1 with both roles in one run: whose calls and rewards are whose, and that both roles learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepworth.methods.recipes._memory_r1 import memory_manager
from keepworth.methods.recipes.memory_r1_joint import Config, right_calls, right_operations, system
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Episode, Task
from keepworth.training.run_folder import RunFolder
from keepworth.training.system import Pair
from keepworth.training.watch.progress import Progress
from keepworth.worlds import answerer
from keepworth.worlds.driver import play
from tests.recipes.tiny_runs import LEARNS
from tests.rollouts.scripted_model import ScriptedModel


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is a letter here: no worked examples before a prompt, and room for the longest operation."""
    monkeypatch.setattr(memory_manager, "PREFIX", "")
    monkeypatch.setattr(memory_manager, "ANSWER_TOKENS", 12)
    monkeypatch.setattr(answerer, "PREFIX", dict.fromkeys(answerer.Style, ""))


def config(**changes: Any) -> Config:
    return Config(**{"facts": 3, "tasks": 8, "held_out": 4, **changes})


def changing(of: Config) -> Task:
    """A stream in which the fact that is asked for changes."""
    return next(task for task in system(of).train if task.tags["changed"] == "true")


def played(of: Config, task: Task, answers: dict[str, str]) -> Episode:
    """answers: to prompts, by what they end with; else by the whole prompt."""

    def answer(prompt: str, number: int) -> str:
        return next((said for end, said in answers.items() if prompt.endswith(end)), "") + "\n"

    made = system(of)
    model: Any = ScriptedModel(answer)
    return play(model, [task], made.play, limits=made.limits)[0].episodes[0]


def right_answers(task: Task) -> dict[str, str]:
    model: Any = ScriptedModel(lambda prompt, number: "")
    return {model.decode(prompt): model.decode(said) for prompt, said in right_calls(model, task)}


def test_gold_operations_add_new_facts_and_update_changed_ones() -> None:
    task = changing(config())
    told = [turn for session in task.sessions for turn in session.turns]
    first, second = (number for number, turn in enumerate(told) if turn.evidence)
    expected = ["ADD"] * 3
    expected[second] = f"UPDATE {told[first].text}"
    assert right_operations(task) == expected


def test_an_episode_has_calls_of_both_roles_and_a_right_one_earns_all() -> None:
    task = changing(config())
    episode = played(config(), task, right_answers(task))
    assert [segment.role for segment in episode.segments] == ["manager"] * 3 + ["answerer"]
    prompts = ["".join(map(chr, segment.context)) for segment in episode.segments]
    assert all(prompt.endswith("Operation:") and task.input not in prompt for prompt in prompts[:3])
    assert prompts[3].endswith(f"Question: {task.input}\nAnswer:")
    assert "Operation:" not in prompts[3]
    terms = {term.name: (term.value, term.weight, term.role) for term in episode.rewards}
    assert terms["token_f1"] == (1.0, 1.0, "")
    assert terms["operation"] == (1.0, 0.0, "manager")
    assert terms["format"] == (1.0, 0.1, "manager")
    assert episode.metric == 1.0
    states = [(segment.memory_before, segment.memory_after) for segment in episode.segments]
    assert [after for _, after in states[:-1]] == [before for before, _ in states[1:]]


def test_where_operations_are_judged_each_role_has_rewards_of_its_own() -> None:
    task = changing(config())
    episode = played(config(manager_reward="operation"), task, {"Answer:": " nobody knows", **right_answers(task)})
    assert episode.reward_of("manager") == pytest.approx(1.1)
    assert episode.reward_of("answerer") == 0.0


def test_nonsense_manager_stores_no_fact_and_earns_zero() -> None:
    task = changing(config())
    episode = played(config(manager_reward="operation"), task, {"Operation:": " hm", "Answer:": f" {task.answers[0]}"})
    assert episode.reward_of("manager") == 0.0
    assert episode.reward_of("answerer") == 1.0
    assert "".join(map(chr, episode.segments[-1].context)).startswith("Memory:\n(empty)\n")


def test_controls_call_no_manager() -> None:
    made, task = system(config()), changing(config())
    model: Any = ScriptedModel(lambda prompt, number: " x\n")
    for way, kept in {"no_memory": 0, "append_only": 3, "oracle": 1}.items():
        how = made.test["test questions"].ways[way]
        episode = play(model, [task], how, limits=made.limits)[0].episodes[0]
        assert [segment.role for segment in episode.segments] == ["answerer"]
        assert len(episode.operations) == kept


def test_both_roles_increase_their_reward(checkpoint: Path, tmp_path: Path) -> None:
    """One stream. At first the manager leaves out as much as it adds, and half of the answers are wrong."""
    own = {"facts": 2, "max_tokens": 12, "manager_reward": "operation", "learning_rate": 4e-3, "warm_start": 100}
    made = config(model=str(checkpoint), **{**LEARNS, **own})
    plain = system(made)
    task = min((task for task in plain.train if task.tags["changed"] == "false"), key=lambda task: len(task.answers[0]))

    def half_right(model: InProcessModel) -> list[list[Pair]]:
        right = right_calls(model, task)
        wrong = [model.encode_continuation(f" {said}\n") for said in ("NOOP", "NOOP", "x")]
        pairs = [*right, *((prompt, said) for (prompt, _), said in zip(right, wrong, strict=True))]
        return [pairs] * made.warm_start

    tried = replace(plain, train=[task], imitated=half_right)
    with RunFolder.create(tmp_path / "run", {}) as run:
        tried.learn(made, run, Progress())
    rows = list(run.metrics())
    for term in ("operation", "token_f1"):
        values = [row[f"reward/{term}"] for row in rows]
        assert sum(values[-3:]) / 3 > sum(values[:3]) / 3 + 0.15
