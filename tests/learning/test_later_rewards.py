"""Later rewards: sums, gates and conditions over a whole group; services that are asked once, whatever ends the run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from keepworth.episodes import Episode, Group, RewardTerm, Task
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.learning.collect.later_rewards import LaterReward, Service, Services, rewarded
from tests.episode_of import episode_of

TASK = Task("t", "", "What?", (), "none")
NO_SERVICES = Services({})


def group_of(*rewards: tuple[RewardTerm, ...]) -> Group:
    return Group(
        "t",
        "",
        tuple(episode_of(f"e{number}", (), terms, answer=f"answer {number}") for number, terms in enumerate(rewards)),
    )


def giving(values: Sequence[float | None]) -> Any:
    async def score(task: Task, episodes: Sequence[Episode], services: Services) -> Sequence[float | None]:
        assert task is TASK
        return values

    return score


def rewards_of(later: LaterReward | Sequence[LaterReward], *rewards: tuple[RewardTerm, ...]) -> list[float]:
    chosen = [later] if isinstance(later, LaterReward) else later
    made = asyncio.run(rewarded(TASK, group_of(*rewards), chosen, NO_SERVICES))
    return [episode.reward for episode in made.episodes]


class Judge:
    """Answers the length of a text, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[int]:
        self.asked.append(list(texts))
        return [len(text) for text in texts]


def ask(services: Services, *texts: str) -> list[Any]:
    return asyncio.run(services.ask("judge", texts))


def test_a_sum_adds_its_weight_times_its_value_and_none_says_nothing() -> None:
    right = (RewardTerm("right", 1.0),)
    later = LaterReward("style", giving([0.5, None, -1.0]), weight=2.0)
    assert rewards_of(later, right, right, ()) == [2.0, 1.0, -2.0]


def test_a_gate_lets_the_terms_before_it_count_from_its_threshold_on() -> None:
    right = (RewardTerm("right", 1.0), RewardTerm("short", 1.0, 0.25))
    gate = LaterReward("safe", giving([0.4, 0.5, 1.0]), combine="gate")
    assert rewards_of(gate, right, right, right) == [0.0, 1.25, 1.25]
    behind = LaterReward("style", giving([3.0, 3.0, 3.0]))
    assert rewards_of([gate, behind], right, right, right) == [3.0, 4.25, 4.25], "what comes behind a gate counts"


def test_a_gate_is_written_down_and_hides_nothing() -> None:
    gate = LaterReward("safe", giving([0.0]), combine="gate")
    made = asyncio.run(rewarded(TASK, group_of((RewardTerm("right", 1.0),)), [gate], NO_SERVICES))
    assert made.episodes[0].rewards == (RewardTerm("right", 1.0, 0.0), RewardTerm("safe", 0.0, 0.0))


def test_a_condition_counts_only_where_the_term_that_it_names_is_reached() -> None:
    later = LaterReward("brief", giving([0.5, 0.5, 0.5]), combine="condition", given="right", threshold=1.0)
    assert rewards_of(later, (RewardTerm("right", 1.0),), (RewardTerm("right", 0.9),), ()) == [1.5, 0.9, 0.0]


@pytest.mark.parametrize(("combine", "given"), [("condition", ""), ("sum", "right"), ("gate", "right")])
def test_a_condition_names_a_term_and_nothing_else_does(combine: Any, given: str) -> None:
    with pytest.raises(KeepworthError, match="says two things"):
        LaterReward("brief", giving([]), combine=combine, given=given)


def test_an_unknown_combination_is_refused() -> None:
    with pytest.raises(UnknownName, match="product"):
        LaterReward("brief", giving([]), combine="product")  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0, 1.0], []])
def test_a_wrong_number_of_values_is_refused(values: list[float]) -> None:
    with pytest.raises(KeepworthError, match=f"'style' gave {len(values)} values to 2 episodes"):
        rewards_of(LaterReward("style", giving(values)), (), ())


def test_a_value_that_is_no_finite_number_names_the_episode_and_the_reward() -> None:
    with pytest.raises(KeepworthError, match=r"e1.*style"):
        rewards_of(LaterReward("style", giving([1.0, float("nan")])), (), ())


def test_a_score_sees_the_group_and_the_version_of_its_service_stands_beside_the_term() -> None:
    async def score(task: Task, episodes: Sequence[Episode], services: Services) -> list[float]:
        return [float(length) for length in await services.ask("judge", [episode.answer for episode in episodes])]

    services = Services({"judge": Service("v1", Judge())})
    later = LaterReward("length", score, service="judge", shaping=True)
    made = asyncio.run(rewarded(TASK, group_of((), ()), [later], services))
    assert {episode.rewards for episode in made.episodes} == {(RewardTerm("length", 8.0, scorer="v1", shaping=True),)}


def test_a_text_is_asked_once_for_each_version_also_within_one_call(tmp_path: Path) -> None:
    judge, file = Judge(), tmp_path / "services.jsonl"
    services = Services({"judge": Service("v1", judge)}, file)
    assert ask(services, "ab", "abc", "ab") == [2, 3, 2]
    assert ask(services, "abc", "a") == [3, 1]
    assert judge.asked == [["ab", "abc"], ["a"]]
    assert services.asked == 3
    newer = Services({"judge": Service("v2", judge)}, file)
    assert ask(newer, "ab") == [2]
    assert judge.asked[-1] == ["ab"], "another version is asked anew"


def test_an_asynchronous_service_is_awaited() -> None:
    async def answer(texts: Sequence[str]) -> list[str]:
        await asyncio.sleep(0)
        return [text.upper() for text in texts]

    class Called:
        async def __call__(self, texts: Sequence[str]) -> list[str]:
            return await answer(texts)

    for service in (answer, Called()):
        assert ask(Services({"judge": Service("v1", service)}), "a", "b") == ["A", "B"]


def test_a_service_that_gives_another_number_of_answers_is_refused_and_nothing_is_kept() -> None:
    services = Services({"judge": Service("v1", lambda texts: [1])})
    with pytest.raises(KeepworthError, match="'judge' gave 1 answers to 2 texts"):
        ask(services, "a", "b")
    assert services.asked == 0


def test_an_unknown_service_is_named() -> None:
    with pytest.raises(UnknownName, match="critic"):
        asyncio.run(Services({"judge": Service("v1", Judge())}).ask("critic", ["a"]))


def test_answers_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "services.jsonl"
    answers = {"a": [1, 0], "b": {"score": 0.25}, "ü\n": "line\nbreak\u2028and more", "n": None}
    given = Service("v1", lambda texts: [answers[text] for text in texts])
    assert ask(Services({"judge": given}, file), *answers) == list(answers.values())
    silent = Judge()
    again = Services({"judge": Service("v1", silent)}, file)
    assert ask(again, *answers) == list(answers.values())
    assert silent.asked == []
    assert again.asked == 0


@pytest.mark.parametrize("cut", [1, 2, 10, 79])
def test_a_last_line_that_a_kill_cut_off_is_asked_again_and_the_file_is_whole_afterwards(
    tmp_path: Path, cut: int
) -> None:
    file = tmp_path / "services.jsonl"
    ask(Services({"judge": Service("v1", Judge())}, file), "a", "bb")
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    judge = Judge()
    assert ask(Services({"judge": Service("v1", judge)}, file), "a", "bb") == [1, 2]
    assert judge.asked == [["bb"]]
    assert file.read_bytes() == whole
