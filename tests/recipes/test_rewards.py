"""Rewards of one's own: in our form, in TRL's, by name, several; what cannot be a reward is said before training."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from keepworth.training.rewards import Scoring, UnusableReward, scoring, try_rewards
from keepworth.worlds.driver import OutOfTime, within
from keepworth.worlds.own import MissingField, messages_of, own_tasks

TASKS = own_tasks([{"prompt": "What is 3 + 4?", "answer": "7", "solution": "7"}]).all


def terms(score: Scoring, answer: str) -> dict[str, tuple[float, float]]:
    found = asyncio.run(score(TASKS[0], answer))  # type: ignore[arg-type]
    return {each.name: (each.value, each.weight) for each in found}


def ours(answer: str, row: Any) -> bool:
    return bool(answer == row["solution"])


def trls(completions: list[str], solution: list[str], **_: Any) -> list[float]:
    return [float(each == right) for each, right in zip(completions, solution, strict=True)]


def narrow(prompts: list[str], completions: list[str]) -> list[float]:
    return [float(len(prompts) == len(completions) == 1)]


async def slow(answer: str, row: Any) -> float:
    await asyncio.sleep(0)
    return 0.5


@pytest.mark.parametrize(
    ("given", "right"),
    [(ours, {"ours": (1, 1)}), (trls, {"trls": (1, 1)}), (narrow, {"narrow": (1, 1)}), (slow, {"slow": (0.5, 1)})],
)
def test_a_function_is_called_in_its_own_form(given: Callable[..., Any], right: dict[str, tuple[float, float]]) -> None:
    assert terms(scoring(given), "7") == right


def test_several_have_weights_and_a_verifier_is_one_by_its_name() -> None:
    score = scoring([ours, "exact_match"], [1.0, 0.5])
    assert terms(score, "7") == {"ours": (1, 1), "exact_match": (1, 0.5)}
    assert terms(score, "8") == {"ours": (0, 1), "exact_match": (0, 0.5)}
    with pytest.raises(UnusableReward, match="2 rewards and 1 weights"):
        scoring([ours, trls], [1.0])


def test_trl_none_reward_is_skipped() -> None:
    def silent(completions: list[str], **_: Any) -> list[float | None]:
        return [None]

    assert terms(scoring([silent, ours]), "7") == {"ours": (1, 1)}
    with pytest.raises(UnusableReward, match="No reward says anything"):
        terms(scoring(silent), "7")


@pytest.mark.parametrize(("given", "error", "says"), [
    (lambda answer, row: None, UnusableReward, r"No reward says anything of the answers to 1 rows"),
    (lambda answer, row: "yes", UnusableReward, r"returned 'yes', which is no number but of type str .row 1 of rows."),
    (lambda answer, row: 1e308, UnusableReward, r"returned 1e\+308 .row 1 of rows.*not beyond 1e\+12"),
    (lambda answer, row: np.array([1.0, 2.0]), UnusableReward, r"returned array.*which is no number"),
    (lambda answer, row: float("nan"), UnusableReward, r"returned nan"),
    (lambda answer, row: row["soluton"], MissingField, r"row 1 of rows has no field 'soluton'.*'solution'"),
    (lambda answer, row: answer[100], UnusableReward, r"fails on row 1 of rows.*IndexError"),
    (lambda completions, soluton: [0.0], MissingField, r"no field 'soluton'"),
    (lambda completions, **_: 0.0, UnusableReward, r"returned 0.0 for one completion"),
    (lambda completions, **_: [0.0, 1.0], UnusableReward, r"returned \[0.0, 1.0\] for one completion"),
    (lambda completions, **_: "1", UnusableReward, r"returned '1' for one completion"),
    (lambda completions, **_: [None], UnusableReward, r"No reward says anything of the answers to 1 rows"),
    (lambda answer: 1.0, UnusableReward, r"takes \(answer\)"),
    ([], UnusableReward, "There is no reward"),
    ([ours, ours], UnusableReward, "Two rewards are called 'ours'"),
    ("exactmatch", ValueError, "exact_match"),
    (3, UnusableReward, "is no reward"),
])  # fmt: skip
def test_reward_mistakes_are_reported_before_training(given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        try_rewards(scoring(given), TASKS)


def test_trl_reward_arguments_are_supported() -> None:
    def logging(completions: list[str], log_metric: Any, log_extra: Any, **_: Any) -> Any:
        log_metric("length", 1.0)
        log_extra("answer", completions)
        return (0.5 for _ in completions)

    def numbers(completions: list[str], **others: Any) -> Any:
        others["log_metric"]("length", 1.0)
        return np.array([0.25], dtype=np.float32)

    assert terms(scoring([logging, numbers]), "7") == {"logging": (0.5, 1), "numbers": (0.25, 1)}


def test_reward_may_skip_rows() -> None:
    tasks = own_tasks([{"prompt": f"Q{number}", "gold": gold} for number, gold in enumerate([None, "1", None])]).all

    def some(completions: list[str], gold: list[str | None]) -> list[float | None]:
        return [None if right is None else float(each == right) for each, right in zip(completions, gold, strict=True)]

    try_rewards(scoring(some), tasks)


def test_asynchronous_rewards_share_one_loop_for_as_long_as_the_program_runs() -> None:
    loops = set()

    async def kept(answer: str, row: Any) -> float:
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return 1.0

    score = scoring(kept)
    try_rewards(score, TASKS)
    assert [terms(score, "7"), terms(score, "8")] == [{"kept": (1, 1)}] * 2
    (loop,) = loops
    assert loop.is_running()


def test_slow_async_reward_is_cancelled_and_exit_is_contained() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def slowest(answer: str, row: Any) -> float:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return 1.0

    async def leaving(answer: str, row: Any) -> float:
        raise SystemExit("enough")

    async def give_up() -> None:
        work = asyncio.ensure_future(scoring(slowest)(TASKS[0], "7"))
        assert await asyncio.to_thread(begun.wait, 60)
        await within(work, 0.05)

    with pytest.raises(OutOfTime):
        asyncio.run(give_up())
    assert ended.wait(60)
    with pytest.raises(RuntimeError, match="SystemExit: enough"):
        terms(scoring(leaving), "7")
    assert terms(scoring(slow), "7") == {"slow": (0.5, 1)}


def test_reward_cannot_change_its_row_or_prompt() -> None:
    (task,) = own_tasks([{"prompt": [{"role": "user", "content": "Hello."}], "tags": ["a"], "split": "train"}]).all

    def editing(prompts: Any, completions: Any, tags: Any, **_: Any) -> list[float]:
        prompts[0][-1]["content"] += " Judged."
        tags[0].append("b")
        return [float(len(tags[0]))]

    def also(answer: str, row: Any) -> float:
        row["prompt"][0]["content"] = "Judged."
        row["tags"].clear()
        return 0.0

    for _ in range(2):
        found = asyncio.run(scoring([editing, also])(task, "7"))
        assert [each.value for each in found] == [2.0, 0.0]
    assert messages_of(task) == ({"role": "user", "content": "Hello."},)
    assert task.row["tags"] == ["a"]
