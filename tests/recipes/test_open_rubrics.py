"""Pairwise rubrics: wins by hand, a judge that prefers what it reads first, a gate, a chat model as the judge, and learning."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepworth.base.model_errors import ChatError
from keepworth.methods.recipes import open_rubrics as rubrics
from keepworth.methods.recipes import strings
from keepworth.methods.recipes._strings import worked_out
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Episode, Group, RewardTerm, Task
from keepworth.training.collect.later_rewards import Service, Services, add_later_rewards
from keepworth.training.run_folder import RunFolder
from keepworth.training.system import Pair
from keepworth.training.watch.progress import Progress
from tests.episode_of import episode_of
from tests.recipes.tiny_runs import LEARNS

TASK = Task("strings/t", "", "f(g(red sun cat))", ("red cat sun",), "same_words", tags={"composition": "fg"})
RIGHT = "g(red sun cat) = sun cat red, f(sun cat red) = red cat sun"
HALF = "g(red sun cat) = sun cat red, f(sun cat red) = sun sun sun"
SHORT = "red cat sun"
LONG = f"{SHORT} = {SHORT} = {SHORT} = {SHORT} = {SHORT}"
STRANGE = "red cat sun horse"


def episodes(*answers: str) -> list[Episode]:
    terms = [RewardTerm("same_words", 1.0, 0.0)]
    return [episode_of(f"e{n}", (), terms, task=TASK.key, answer=answer) for n, answer in enumerate(answers)]


def wins_of(judge: Service, *answers: str) -> list[float]:
    return list(asyncio.run(rubrics.wins(TASK, episodes(*answers), Services({rubrics.JUDGE: judge}))))


def test_worked_solution_of_the_task_is_right() -> None:
    assert worked_out(TASK) == RIGHT


def test_wins_by_hand() -> None:
    """Weights 4, 2, 1. The worked-out answer beats the half-right one by result and steps: 6/7. It beats the bare result by its
    steps: 2/7. The bare result beats the half-right one by result and loses by steps: 2/7. All are brief enough."""
    assert [criterion.weight for criterion in rubrics.CRITERIA] == [4.0, 2.0, 1.0]
    margins = [(6 / 7 + 2 / 7) / 2, (-6 / 7 - 2 / 7) / 2, (-2 / 7 + 2 / 7) / 2]
    assert wins_of(rubrics.programs(), RIGHT, HALF, SHORT) == pytest.approx([(1 + margin) / 2 for margin in margins])


def test_words_that_are_not_needed_cost_and_equal_answers_tie() -> None:
    assert wins_of(rubrics.programs(), SHORT, LONG) == pytest.approx([(1 + 1 / 7) / 2, (1 - 1 / 7) / 2])
    assert wins_of(rubrics.programs(), SHORT, SHORT, SHORT) == [0.5, 0.5, 0.5]


def test_position_bias_of_the_judge_cancels() -> None:
    def biased(texts: Sequence[str]) -> list[Any]:
        signs = rubrics.programs().answer(texts)
        return [[max(sign, 1) if number == 2 else sign for number, sign in enumerate(each)] for each in signs]  # type: ignore[union-attr]

    assert wins_of(Service("biased", biased), SHORT, RIGHT) == wins_of(rubrics.programs(), SHORT, RIGHT)


def test_answer_refused_by_the_guard_earns_zero() -> None:
    asked: list[str] = []

    def judge(texts: Sequence[str]) -> Any:
        asked.extend(texts)
        return rubrics.programs().answer(texts)

    won = wins_of(Service("v", judge), RIGHT, STRANGE, SHORT, "")
    assert won == pytest.approx([(1 + 2 / 7) / 2, 0.0, (1 - 2 / 7) / 2, 0.0])
    pairs = [(pair["first"], pair["second"]) for pair in map(json.loads, asked)]
    assert pairs == [(RIGHT, SHORT), (SHORT, RIGHT)]
    assert wins_of(rubrics.programs(), RIGHT, STRANGE) == [0.5, 0.0]


def test_a_group_has_the_rubric_behind_the_gate_and_its_metric_is_whether_it_was_right() -> None:
    hooks = rubrics.system(rubrics.Config()).hooks
    group = Group(TASK.key, "", tuple(episodes(RIGHT, HALF, STRANGE)))
    services = Services(hooks.services)
    made = asyncio.run(add_later_rewards(TASK, group, hooks.later, services)).episodes
    assert [episode.reward for episode in made] == pytest.approx([(1 + 6 / 7) / 2, (1 - 6 / 7) / 2, 0.0])
    assert [episode.metric for episode in made] == [1.0, 1.0, 1.0], "as the recipe's environment said"
    assert [term.scorer for term in made[0].rewards if term.name == "rubric"] == ["programs/1"]
    assert services.asked == 2


@pytest.mark.parametrize(
    ("answer", "kept"), [(RIGHT, True), (SHORT, True), (STRANGE, False), ("", False), ("= , (", False), ("Red", False)]
)
def test_the_guard_asks_for_words_of_the_question_alone(answer: str, kept: bool) -> None:
    assert rubrics.keeps_words(TASK, answer) is kept
    assert asyncio.run(rubrics.guard(TASK, episodes(answer), Services({}))) == [float(kept)]


class Chat:
    """A chat model that answers what it is told to, and keeps what it was asked."""

    model = "judge-1"

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer, self.asked = answer, list[str]()

    def complete_json(self, messages: Sequence[dict[str, str]]) -> dict[str, Any]:
        self.asked.append(messages[0]["content"])
        return self.answer


def test_a_chat_model_is_shown_both_answers_and_every_criterion() -> None:
    chat = Chat({"1": 0, "2": 1, "3": 0})
    service = rubrics.reading(chat)  # type: ignore[arg-type]
    assert wins_of(service, RIGHT, SHORT) == [0.5, 0.5], "it says the same of both orders"
    assert service.version.startswith("judge-1/")
    assert len(chat.asked) == 2
    first = next(text for text in chat.asked if f"Answer 1: {RIGHT}" in text)
    assert f"Answer 2: {SHORT}" in first
    assert all(criterion.asks in first for criterion in rubrics.CRITERIA)


@pytest.mark.parametrize("answer", [{}, {"1": 0, "2": 1}, {"1": 0, "2": 1, "3": 2}, {"1": True, "2": 0, "3": 0}])
def test_malformed_verdict_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(ChatError, match="judge-1 compared with"):
        wins_of(rubrics.reading(Chat(answer)), RIGHT, SHORT)  # type: ignore[arg-type]


def test_judge_without_a_url_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ChatError, match="OPENAI_BASE_URL"):
        rubrics.system(rubrics.Config(judge="some-model"))


def test_answers_that_win_become_likelier(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One question. At first two answers of three are wrong."""
    monkeypatch.setattr(strings, "head", lambda: "")  # a token is a letter here
    own = {"held_out": 4, "tasks": 8, "max_tokens": 8, "learning_rate": 5e-3, "warm_start": 200}
    made = rubrics.Config(model=str(checkpoint), **{**LEARNS, **own})
    plain = rubrics.system(made)
    task = Task("strings/u", "", "k(p(sun cat dog))", ("cat",), "same_words", tags={"composition": "kp"})

    def half_right(model: InProcessModel) -> list[list[Pair]]:
        prompt = model.encode(strings.asked(task))
        said = [(prompt, model.encode_continuation(f" {word}\n")) for word in ("sun", "cat", "dog")]
        return [said] * made.warm_start

    with RunFolder.create(tmp_path / "run", {}) as run:
        replace(plain, train=[task], imitated=half_right).learn(made, run, Progress())
    values = [row["reward/same_words"] for row in run.metrics()]
    assert sum(values[:3]) / 3 < 0.6
    assert sum(values[-3:]) / 3 > sum(values[:3]) / 3 + 0.2
    assert (run.path / "services.jsonl").read_text(encoding="utf-8").count("\n") > 0
