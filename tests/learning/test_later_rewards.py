"""Later rewards: sums, gates and conditions over a whole group; services that are asked once, whatever ends the run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.records import Episode, Group, RewardTerm, Task
from keepworth.training.collect.later_rewards import LaterReward, Service, Services, add_later_rewards
from tests.episode_of import episode_of

TASK = Task("t", "", "What?", (), "none")
NO_SERVICES = Services({})


def group_of(*rewards: tuple[RewardTerm, ...]) -> Group:
    return Group("t", "", tuple(episode_of(f"e{j}", (), of, answer=f"answer {j}") for j, of in enumerate(rewards)))


def giving(values: Sequence[float | None]) -> Any:
    async def score(task: Task, episodes: Sequence[Episode], services: Services) -> Sequence[float | None]:
        assert task is TASK
        return values

    return score


def rewards_of(later: LaterReward | Sequence[LaterReward], *rewards: tuple[RewardTerm, ...]) -> list[float]:
    chosen = [later] if isinstance(later, LaterReward) else later
    made = asyncio.run(add_later_rewards(TASK, group_of(*rewards), chosen, NO_SERVICES))
    return [episode.reward for episode in made.episodes]


class Judge:
    """Answers the length of a text, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[int]:
        self.asked.append(list(texts))
        return [len(text) for text in texts]


def judged_by(judge: Any, file: Path | None = None, version: str = "v1") -> Services:
    return Services({"judge": Service(version, judge)}, file)


def ask(services: Services, *texts: str) -> list[Any]:
    return asyncio.run(services.ask("judge", texts))


def test_later_reward_adds_weighted_values_and_skips_none() -> None:
    right = (RewardTerm("right", 1.0),)
    later = LaterReward("style", giving([0.5, None, -1.0]), weight=2.0)
    assert rewards_of(later, right, right, ()) == [2.0, 1.0, -2.0]


def test_a_gate_lets_the_terms_before_it_count_from_its_threshold_on() -> None:
    right = (RewardTerm("right", 1.0), RewardTerm("short", 1.0, 0.25))
    gate = LaterReward("safe", giving([0.4, 0.5, 1.0]), combine="gate")
    assert rewards_of(gate, right, right, right) == [0.0, 1.25, 1.25]
    behind = LaterReward("style", giving([3.0, 3.0, 3.0]))
    assert rewards_of([gate, behind], right, right, right) == [3.0, 4.25, 4.25], "what comes behind a gate counts"


def test_gate_reward_is_recorded_beside_the_original() -> None:
    gate = LaterReward("safe", giving([0.0]), combine="gate")
    made = asyncio.run(add_later_rewards(TASK, group_of((RewardTerm("right", 1.0),)), [gate], NO_SERVICES))
    assert made.episodes[0].rewards == (RewardTerm("right", 1.0, 0.0), RewardTerm("safe", 0.0, 0.0))


def test_a_condition_counts_only_where_the_term_that_it_names_is_reached() -> None:
    later = LaterReward("brief", giving([0.5, 0.5, 0.5]), combine="condition", given="right", threshold=1.0)
    assert rewards_of(later, (RewardTerm("right", 1.0),), (RewardTerm("right", 0.9),), ()) == [1.5, 0.9, 0.0]


@pytest.mark.parametrize(("combine", "given"), [("condition", ""), ("sum", "right"), ("gate", "right")])
def test_only_conditional_rewards_take_a_condition(combine: Any, given: str) -> None:
    with pytest.raises(KeepworthError, match="says two things"):
        LaterReward("brief", giving([]), combine=combine, given=given)
    with pytest.raises(UnknownName, match="product"):
        LaterReward("brief", giving([]), combine="product")  # type: ignore[arg-type]


@pytest.mark.parametrize(("values", "says"), [
    ([1.0], "'style' gave 1 values to 2 episodes"), ([1.0] * 3, "'style' gave 3 values to 2 episodes"),
    ([], "'style' gave 0 values to 2 episodes"), ([1.0, math.nan], r"e1.*style"),
])  # fmt: skip
def test_values_of_another_number_or_that_are_no_numbers_are_refused(values: list[float], says: str) -> None:
    with pytest.raises(KeepworthError, match=says):
        rewards_of(LaterReward("style", giving(values)), (), ())


def test_a_score_sees_the_group_and_the_version_of_its_service_stands_beside_the_term() -> None:
    async def score(task: Task, episodes: Sequence[Episode], services: Services) -> list[float]:
        return [float(length) for length in await services.ask("judge", [episode.answer for episode in episodes])]

    services = judged_by(Judge())
    later = LaterReward("length", score, service="judge", shaping=True)
    made = asyncio.run(add_later_rewards(TASK, group_of((), ()), [later], services))
    assert {episode.rewards for episode in made.episodes} == {(RewardTerm("length", 8.0, scorer="v1", shaping=True),)}


def test_a_text_is_asked_once_for_each_version_also_within_one_call(tmp_path: Path) -> None:
    judge, file = Judge(), tmp_path / "services.jsonl"
    services = judged_by(judge, file)
    assert ask(services, "ab", "abc", "ab") == [2, 3, 2]
    assert ask(services, "abc", "a") == [3, 1]
    assert judge.asked == [["ab", "abc"], ["a"]]
    assert services.asked == 3
    assert ask(judged_by(judge, file, "v2"), "ab") == [2]
    assert judge.asked[-1] == ["ab"], "another version is asked anew"


def test_an_asynchronous_service_is_awaited() -> None:
    class Called:
        async def __call__(self, texts: Sequence[str]) -> list[str]:
            await asyncio.sleep(0)
            return [text.upper() for text in texts]

    for service in (Called(), Called().__call__):
        assert ask(judged_by(service), "a", "b") == ["A", "B"]


def test_service_with_a_wrong_answer_count_is_refused() -> None:
    services = judged_by(lambda texts: [1])
    with pytest.raises(KeepworthError, match="'judge' gave 1 answers to 2 texts"):
        ask(services, "a", "b")
    assert services.asked == 0
    with pytest.raises(UnknownName, match="critic"):
        asyncio.run(services.ask("critic", ["a"]))


def test_answers_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "services.jsonl"
    answers = {"a": [1, 0], "b": {"score": 0.25}, "ü\n": "line\nbreak\u2028and more", "n": None}
    first = judged_by(lambda texts: [answers[text] for text in texts], file)
    assert ask(first, *answers) == list(answers.values())
    silent = Judge()
    again = judged_by(silent, file)
    assert ask(again, *answers) == list(answers.values())
    assert (silent.asked, again.asked) == ([], 0)


@pytest.mark.parametrize("cut", [1, 2, 10, 79])
def test_a_last_line_that_a_kill_cut_off_is_asked_again_and_the_file_is_whole_afterwards(
    tmp_path: Path, cut: int
) -> None:
    file = tmp_path / "services.jsonl"
    ask(judged_by(Judge(), file), "a", "bb")
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    judge = Judge()
    assert ask(judged_by(judge, file), "a", "bb") == [1, 2]
    assert judge.asked == [["bb"]]
    assert file.read_bytes() == whole
