"""Groups without a signal are replaced in their place; the same after a stop in serial mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepworth.episodes import Group, RewardTerm
from keepworth.learning.collect.curriculum import candidate_of, position_of, retry_of, without_signal
from keepworth.learning.learner import Learner
from tests.episode_of import episode_of
from tests.learning.letters import Letters, Stops, index_of, low, metrics, settings, train_letters, trained
from tests.learning.turns import same, weights

GROUPS = 4


def task_of(folder: Path) -> dict[int, str]:
    """Of every group that was trained, by its index."""
    return {index_of(episode): episode.task for _, episode in trained(folder)}


def every_third(ids: tuple[int, ...]) -> float:
    """Three letters earn the same for every member; longer answers hardly ever do."""
    return sum(ids) / (256 * len(ids)) if len(ids) > 3 else 0.0


@pytest.mark.parametrize("mode", ["turns", "serial"])
def test_a_group_without_a_signal_is_replaced_in_its_place_and_written_down(tmp_path: Path, mode: str) -> None:
    """Every third place answers in three letters at first, for which all members earn the same."""
    lengths = lambda index: 3 if position_of(index) % 3 == 0 and not retry_of(index) else 8  # noqa: E731
    asynchrony = settings(mode=mode, pipeline_depth=1.0)
    train_letters(tmp_path, 3, asynchrony, Letters(lengths, score=every_third), refill=1)
    found = task_of(tmp_path)
    assert sorted(map(position_of, found)) == list(range(12))
    replaced = [index for index in found if candidate_of(index)]
    assert {position_of(index) for index in replaced} == {0, 3, 6, 9}
    assert {retry_of(index) for index in replaced} == {1}
    for step in range(3):  # what replaces a group is of a task that the step does not have yet
        keys = [task for index, task in found.items() if position_of(index) // GROUPS == step]
        assert len(keys) >= len(set(keys)) >= 3
    rows = metrics(tmp_path)
    if mode != "serial":
        assert rows[-1]["pipeline/rejected_groups"] == 4
    assert sum(row["curriculum/rejected_groups"] for row in rows) == 4
    assert sum(row["curriculum/sampled_groups"] for row in rows) == 16


def test_a_place_that_stays_without_a_signal_is_given_up_and_left_out(tmp_path: Path) -> None:
    """Places 0, 3, 6 ... never earn a difference: after two others, the update goes on without them."""
    lengths = lambda index: 3 if position_of(index) % 3 == 0 else 8  # noqa: E731
    train_letters(tmp_path, 3, settings(pipeline_depth=1.0), Letters(lengths, score=every_third), refill=2)
    assert sorted(task_of(tmp_path)) == [position for position in range(12) if position % 3]
    assert [row["step"] for row in metrics(tmp_path)] == [1, 2, 3]


def test_where_no_group_has_a_signal_the_run_goes_on_all_the_same(tmp_path: Path) -> None:
    train_letters(tmp_path, 2, settings(pipeline_depth=1.0), Letters(score=lambda ids: 1.0), refill=1)
    assert len(task_of(tmp_path)) == 8
    assert metrics(tmp_path)[-1]["pipeline/rejected_groups"] == 8  # replaced; their others were trained


@pytest.mark.parametrize("checkpoint_every", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_serial_training_with_a_curriculum_that_is_stopped_ends_like_a_straight_one(
    tmp_path: Path, checkpoint_every: int
) -> None:
    def score(ids: tuple[int, ...]) -> float:
        return low(ids) if len(ids) > 6 else 0.0

    def train(folder: str, kind: type[Letters] = Letters, **how: int) -> Learner:
        letters = kind(lambda index: 3 + 5 * (index % 3), 2, score=score)
        return train_letters(tmp_path / folder, 7, settings(mode="serial"), letters, checkpoint_every, refill=2, **how)

    straight = train("straight")
    with pytest.raises(KeyboardInterrupt):  # after the third step, of which there is no checkpoint yet
        train("killed", Stops, evaluate_every=3)
    ended = train("killed")
    assert metrics(tmp_path / "straight") == metrics(tmp_path / "killed")
    assert same(weights(straight), weights(ended))


def test_a_group_of_one_has_nothing_to_be_compared_with() -> None:
    assert without_signal(Group("t", "", (episode_of("e", (), [RewardTerm("low", 1.0)]),)))
