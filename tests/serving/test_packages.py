"""An episode that is played through another package earns what it earns here.

The packages themselves play it, where they are installed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from keepworth.agents.acting import FunctionActor
from keepworth.environments.bounded_bank import BankKeeping, worded
from keepworth.episodes.episode import Episode, Observation
from keepworth.memory.search.search import Hits
from keepworth.rollouts.driver import Limits, run_episode
from keepworth.serving.trl_bank import DONE, TrlBank, trl_rows
from keepworth.tasks.fact_streams import FactStream
from tests.serving.packages import script

ROOT = Path(__file__).parents[2]
READER = "tests.serving.packages.script:reader"


def python_with(package: str, variable: str) -> tuple[str, Any]:
    python = os.environ.get(variable) or (sys.executable if importlib.util.find_spec(package) else "")
    reason = f"{package} is not installed; pip install -e '.[{package}]', or set {variable}"
    return python, pytest.mark.skipif(not python, reason=reason)


VERIFIERS, needs_verifiers = python_with("verifiers", "KEEPWORTH_VERIFIERS_PYTHON")
TRL, needs_trl = python_with("trl", "KEEPWORTH_TRL_PYTHON")


def printed_by(python: str, program: str, *words: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    done = subprocess.run(
        [python, "-m", f"tests.serving.packages.{program}", *words],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def ours(stream: FactStream, reader: Any = None) -> tuple[Episode, BankKeeping]:
    def choose(seen: Observation, hits: Hits) -> str:
        return script.answer(seen.text) if seen.answer_due else script.operation(worded(seen, script.BUDGET, "items"))

    def evidence(task: object, stays: Sequence[int]) -> float:
        return stream.evidence_kept(stays)

    world = BankKeeping(
        lambda task: [fact.text for fact in stream.facts], script.BUDGET, reader=reader, evidence=evidence
    )
    limits = Limits(max_turns=len(stream.facts) + 1)
    return asyncio.run(run_episode(stream.task, world, FunctionActor(choose), limits=limits)), world


def test_the_scripted_streams_tell_things_apart() -> None:
    played = [ours(stream) for stream in script.STREAMS]
    assert {episode.reward for episode, _ in played} == {0.0, 2 / 3}
    assert any(world.bank.invalid for _, world in played)
    assert [episode.reward for episode, _ in played] == [
        ours(stream, script.reader)[0].reward for stream in script.STREAMS
    ]


@pytest.mark.slow
@needs_verifiers
@pytest.mark.parametrize("reader", ["", READER])
def test_verifiers_records_the_rewards_of_our_driver(reader: str) -> None:
    made = printed_by(VERIFIERS, "with_verifiers", reader)
    assert [each["task"] for each in made] == [stream.key for stream in script.STREAMS]
    for each, stream in zip(made, script.STREAMS, strict=True):
        episode, world = ours(stream, script.reader if reader else None)
        assert (each["ok"], each["errors"]) == (True, [])
        assert each["reward"] == episode.reward
        assert each["metrics"] == {
            "evidence_kept": episode.rewards[1].value, "invalid": world.bank.invalid, "refused": world.bank.refused
        }  # fmt: skip
        assert each["turns"] == each["branches"] == len(episode.exchanges), "a context of its own for each turn"
        assert each["messages"] == [1]


@pytest.mark.slow
@needs_verifiers
def test_in_verifiers_a_reader_that_fails_fails_the_episode_and_a_writer_that_is_stopped_earns_nothing() -> None:
    for each in printed_by(VERIFIERS, "with_verifiers", "tests.serving.packages.script:broken"):
        assert not each["ok"]
        assert "the endpoint is gone" in each["errors"][0]
    for each in printed_by(VERIFIERS, "with_verifiers", "", "3"):
        assert (each["ok"], each["turns"], each["reward"]) == (True, 3, 0.0)


@pytest.mark.slow
@needs_trl
def test_trl_takes_the_rewards_of_our_driver() -> None:
    made = printed_by(TRL, "with_trl")
    expected = {stream.key: ours(stream, script.reader)[0].reward for stream in script.STREAMS}
    assert [key for key, _ in made] == [stream.key for stream in script.STREAMS for _ in range(2)]
    assert [reward for _, reward in made] == pytest.approx([expected[key] for key, _ in made])


@pytest.mark.slow
@needs_trl
def test_trl_leaves_out_what_a_reader_failed_on() -> None:
    assert [reward for _, reward in printed_by(TRL, "with_trl", "broken")] == [None] * 8


@pytest.mark.slow
@needs_trl
def test_trl_trains_with_a_memory_which_is_told_what_episodes_earned() -> None:
    made = printed_by(TRL, "with_trl_memory")
    assert made["environment"]["rewards"] == made["prompts"]["rewards"] == [1.0, 1.0, 0.0, 0.0]
    assert sorted(made["environment"]["told"]) == [0.0, 0.0, 1.0, 1.0]
    assert made["environment"]["kept"] == ["Ana lives in Oslo.", "The sky is blue."]
    assert made["prompts"]["kept"] == ["Ana lives in Oslo."]
    assert made["prompts"]["credited"][1] == made["environment"]["credited"][1] == 2.0
    assert made["ours"]["rewards"] == [1.0] * 4


# What TRL does with an environment, without it: `reset` with a row, tools by their names, `get_reward`.


def through_trl(stream: FactStream, reader: Any, turns: int = 99) -> TrlBank:
    environment = TrlBank(script.BUDGET, reader)
    (row,) = trl_rows([stream], script.BUDGET)
    seen = environment.reset(**row)

    async def written() -> None:
        shown = seen
        for _ in range(turns):
            if shown == DONE:
                break
            shown = await environment.write(script.operation(shown))

    asyncio.run(written())
    return environment


def test_an_environment_of_trl_earns_what_the_driver_says() -> None:
    for stream in script.STREAMS:
        assert through_trl(stream, script.reader).get_reward() == ours(stream, script.reader)[0].reward


def test_an_episode_of_trl_that_ends_early_earns_nothing_and_one_without_a_reader_says_nothing() -> None:
    assert through_trl(script.STREAMS[0], script.reader, turns=3).get_reward() == 0.0
    with pytest.raises(OSError, match="endpoint"):
        through_trl(script.STREAMS[0], script.broken)
    failed = TrlBank(script.BUDGET, script.broken)
    failed.reset(**trl_rows([script.STREAMS[0]], script.BUDGET)[0])

    async def all_at_once() -> list[Any]:
        calls = [failed.write("ADD") for _ in range(8)]
        return await asyncio.gather(*calls, return_exceptions=True)

    said = asyncio.run(all_at_once())
    assert [isinstance(each, OSError) for each in said] == [False] * 5 + [True] + [False] * 2
    assert said[6:] == [DONE] * 2
    assert failed.get_reward() is None
    failed.reset(**trl_rows([script.STREAMS[0]], script.BUDGET)[0])
    assert failed.get_reward() == 0.0, "reset begins afresh"


def test_rows_hold_no_marks_of_evidence() -> None:
    (row,) = trl_rows(script.STREAMS[:1], script.BUDGET)
    assert set(row) == {"prompt", "key", "facts", "question", "answers"}
    assert "at most 2 items" in row["prompt"][0]["content"]
