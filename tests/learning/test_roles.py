"""Roles: two in one episode, each with rewards and statistics of its own; without such rewards an episode is what it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keepworth.records import Episode, FinishReason, Group, RewardTerm, Segment, VersionSpan
from keepworth.training.objective.advantage import advantages
from keepworth.training.objective.parts import Outcome
from keepworth.training.objective.presets import preset, vary_objective
from keepworth.training.rows import BadEpisode, Rows, rows_of
from tests.episode_of import episode_of
from tests.learning.turns import learner_of, same, weights

ROLES = ("manager", "answerer")
CENTERED = vary_objective(preset("areal"), advantage=Outcome("group"))
"""A row's advantage is its reward minus the mean of its group."""


def call(role: str, *ids: int) -> Segment:
    logprobs = (-1.0,) * len(ids)
    spans = (VersionSpan(0, 0, len(ids)),)
    return Segment(role, "p", (1, len(ids)), ids, logprobs, 1.0, FinishReason.STOP, spans, "")


def episode(number: int, *rewards: RewardTerm, calls: tuple[Segment, ...] | None = None) -> Episode:
    """Two calls of the manager, then one of the answerer."""
    made = calls or (call("manager", 10 + number), call("manager", 20 + number, 4), call("answerer", 30 + number, 5, 6))
    return episode_of(f"e{number}", made, rewards, role="answerer")


def rewarded(both: float, manager: float, answerer: float) -> tuple[RewardTerm, ...]:
    return (
        RewardTerm("all", both),
        RewardTerm("operation", manager, 0.5, role="manager"),
        RewardTerm("f1", answerer, role="answerer"),
    )


TWO = Group("t", "", (episode(0, *rewarded(1.0, 1.0, 0.0)), episode(1, *rewarded(0.0, 0.0, 4.0))))


def advantage_of(rows: Rows) -> list[float]:
    """Of each row, at the tokens that were drawn."""
    found = advantages(rows.batch, CENTERED)
    return [float(row[mask > 0].mean()) for row, mask in zip(found, rows.batch.mask, strict=True)]


def test_a_role_is_rewarded_by_its_terms_and_by_those_of_no_role() -> None:
    first, second = TWO.episodes
    assert [first.reward_of(role) for role in ROLES] == [1.5, 1.0]
    assert [second.reward_of(role) for role in ROLES] == [0.0, 4.0]
    assert (first.reward, second.reward) == (1.5, 4.0)


def test_rewards_and_advantages_of_two_roles_in_a_group_of_two() -> None:
    """By hand: managers have 1.5 and 0, mean 0.75; answerers 1 and 4, mean 2.5. Over both roles the mean would be 1.625."""
    rows = rows_of([TWO], ROLES, 0)
    assert [answer[0] for answer in rows.answers] == [10, 20, 11, 21, 30, 31]
    assert rows.batch.rewards.tolist() == [1.5, 1.5, 0.0, 0.0, 1.0, 4.0]
    assert rows.batch.group.tolist() == [0, 0, 0, 0, 1, 1]
    assert rows.batch.episode.tolist() == [0, 0, 1, 1, 2, 3], "each role of an episode counts as an episode"
    assert advantage_of(rows) == [0.75, 0.75, -0.75, -0.75, -1.5, 1.5]


def test_groups_are_kept_apart_by_task_and_by_role() -> None:
    rows = rows_of([TWO, TWO], ROLES, 0)
    assert rows.batch.group.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3]
    assert advantage_of(rows) == [0.75, 0.75, -0.75, -0.75, -1.5, 1.5] * 2


def test_one_role_learns_from_its_terms_alone() -> None:
    rows = rows_of([TWO], ("answerer",), 0)
    assert rows.batch.rewards.tolist() == [1.0, 4.0]
    assert advantage_of(rows) == [-1.5, 1.5]


def test_episode_without_role_rewards_counts_once() -> None:
    plain = tuple(episode(number, RewardTerm("all", 1.0 - number)) for number in range(2))
    rows = rows_of([Group("t", "", plain)], ROLES, 0)
    assert [answer[0] for answer in rows.answers] == [10, 20, 30, 11, 21, 31]
    assert rows.batch.rewards.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert rows.batch.group.tolist() == [0] * 6
    assert rows.batch.episode.tolist() == [0, 0, 0, 1, 1, 1]
    assert advantage_of(rows) == [0.5, 0.5, 0.5, -0.5, -0.5, -0.5]


def test_a_role_without_an_agent_is_named_before_the_first_update_with_the_roles_there_are() -> None:
    learner = learner_of(CENTERED, role="manager", roles=("manager", "critic"))
    before = weights(learner)
    with pytest.raises(BadEpisode, match=r"'critic'(.|\n)*answerer, manager"):
        learner.update([TWO])
    assert learner.steps == 0
    assert same(before, weights(learner))


def test_role_without_later_segments_is_accepted() -> None:
    learner = learner_of(CENTERED, role="manager", roles=ROLES)
    learner.update([TWO])
    alone = tuple(replace(each, segments=each.segments[:2]) for each in TWO.episodes)
    assert learner.update([replace(TWO, episodes=alone)])["trained_rows"] == 4.0
