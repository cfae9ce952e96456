"""The numbers of a step, against episodes small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.records import Episode, FinishReason, Group, RewardTerm, Segment, StopReason, VersionSpan
from keepworth.records.episode import MemoryEvent, Operation, OperationKind, ParseStatus, Shown
from keepworth.training.watch.metrics import _at, episode_metrics, source_of
from tests.episode_of import episode_of

SHOWN = (Shown("m1", 0.5, "a memory"),)


def episode(reward: float, tokens: int = 2, *, task: str = "a/1", version: int = 0, **more: Any) -> Episode:
    spans = (VersionSpan(version, 0, tokens),)
    segment = Segment("r", "p", (1, 2, 3), (7,) * tokens, (0.0,) * tokens, 1.0, FinishReason.STOP, spans, "")
    rewards = RewardTerm("f1", reward), RewardTerm("format", 1.0, 0.0)
    more |= {"task": task, "role": "r", "policy_version": version}
    return episode_of("same", [segment], rewards, **more)  # nothing may depend on ids being different


def of(*episodes: Episode) -> Group:
    return Group(episodes[0].task, "", episodes)


def test_optional_reward_is_averaged_over_scored_episodes() -> None:
    spoke, silent = episode(0.5), replace(episode(0.0), rewards=(RewardTerm("format", 1.0),))
    unscored = replace(episode(0.0), rewards=())
    assert episode_metrics([of(spoke, silent)], optional=("f1",))["reward/f1"] == 0.5
    assert episode_metrics([of(spoke, silent)])["reward/f1"] == 0.25, "what others do not give is nothing earned"
    assert episode_metrics([of(spoke, silent, unscored)], optional=("f1",))["reward/f1"] == 0.25
    assert episode_metrics([of(spoke, silent)], optional=("f1",))["reward"] == pytest.approx(0.75)


def test_rewards_lengths_and_endings() -> None:
    cut, late = episode(0.0, 6, stop=StopReason.MAX_TOKENS), episode(0.5, 4, stop=StopReason.TIMEOUT)
    found = episode_metrics([of(episode(1.0, 2), cut, late)])
    assert found["reward"] == pytest.approx(0.5)
    assert found["reward/format"] == 1.0
    assert found["tokens"] == 3 + 12  # one prompt, shared
    assert (found["drawn_tokens"], found["response_length"], found["response_length/p95"]) == (12, 4, 6)
    assert (found["response_length/right"], found["response_length/wrong"]) == (3, 6)
    assert found["stop/max_tokens"] == found["stop/timeout"] == pytest.approx(1 / 3)
    assert found["stop/parse_error"] == 0
    assert "stop/aborted" not in found


def test_sources_are_taken_apart() -> None:
    other = of(episode(0.0, 4, task="b/1"), episode(1.0, 8, task="b/1"))
    found = episode_metrics([of(episode(1.0), episode(1.0)), other])
    assert (found["source/a/zero_variance_groups"], found["source/b/zero_variance_groups"]) == (1, 0)
    assert (found["source/a/reward"], found["source/b/reward"]) == (1, 0.5)
    assert found["source/b/response_length"] == 6
    assert source_of("plain") == ""


def test_lag_is_that_of_the_oldest_token() -> None:
    fresh, stale = episode(1.0, version=5), episode(0.0, version=3)
    assert episode_metrics([of(fresh, stale)], version=5)["lag_p95"] == 2


def test_memory_metrics_relate_reads_and_writes_to_reward() -> None:
    add = Operation(OperationKind.ADD, (), "x")
    good, bad = MemoryEvent(add, ParseStatus.OK, "applied"), MemoryEvent(add, ParseStatus.INVALID, "")
    found = episode_metrics([of(episode(1.0, shown=SHOWN, operations=(good, bad)), episode(0.0, operations=(bad,)))])
    assert (found["memory/reads"], found["memory/shown"], found["memory/writes"]) == (0.5, 0.5, 0.5)
    assert (found["memory/reward_with"], found["memory/reward_without"]) == (1, 0)
    assert found["invalid_operations"] == pytest.approx(2 / 3)
    assert found["operation/ADD"] == 1


def test_metrics_of_no_episode_are_refused() -> None:
    with pytest.raises(ValueError, match="without an episode"):
        episode_metrics([])


@given(st.lists(st.integers(0, 50), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_a_value_that_enough_values_do_not_exceed(values: list[int], share: float) -> None:
    found = _at(share, values)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values) + 1e-9
