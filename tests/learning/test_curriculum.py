"""Groups without a signal are replaced in their place; the same after a stop in serial mode."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from keepworth.episodes import Episode, Group, RewardTerm
from keepworth.learning.collect.curriculum import candidate_of, position_of, retry_of, without_signal
from keepworth.learning.learner import Learner
from keepworth.learning.run_folder import RunFolder
from tests.episode_of import episode_of
from tests.learning.letters import Letters, Stops, low, metrics, settings, train_letters

GROUPS = 4


def trained(folder: Path) -> dict[int, list[Episode]]:
    """By index."""
    found: dict[int, list[Episode]] = {}
    for stored in RunFolder.open(folder).episodes(arm="train"):
        found.setdefault(int(stored.episode.id.split("/")[0]), []).append(stored.episode)
    return found


def every_third(ids: tuple[int, ...]) -> float:
    """Three letters earn the same for every member; longer answers hardly ever do."""
    return sum(ids) / (256 * len(ids)) if len(ids) > 3 else 0.0


@pytest.mark.parametrize("mode", ["turns", "serial"])
def test_a_group_without_a_signal_is_replaced_in_its_place_and_written_down(tmp_path: Path, mode: str) -> None:
    """Every third place answers in three letters at first, for which all members earn the same."""
    lengths = lambda index: 3 if position_of(index) % 3 == 0 and not retry_of(index) else 8  # noqa: E731
    asynchrony = settings(mode=mode, pipeline_depth=1.0)
    train_letters(tmp_path / "run", 3, asynchrony, Letters(lengths, score=every_third), refill=1)
    found = trained(tmp_path / "run")
    assert sorted(map(position_of, found)) == list(range(12))
    replaced = [index for index in found if candidate_of(index)]
    assert {position_of(index) for index in replaced} == {0, 3, 6, 9}
    assert {retry_of(index) for index in replaced} == {1}
    for step in range(3):  # what replaces a group is of a task that the step does not have yet
        keys = [each[0].task for index, each in found.items() if position_of(index) // GROUPS == step]
        assert len(keys) >= len(set(keys)) >= 3
    rows = metrics(tmp_path / "run")
    if mode != "serial":
        assert rows[-1]["pipeline/rejected_groups"] == 4
    assert sum(row["curriculum/rejected_groups"] for row in rows) == 4
    assert sum(row["curriculum/sampled_groups"] for row in rows) == 16


def test_a_place_that_stays_without_a_signal_is_given_up_and_left_out(tmp_path: Path) -> None:
    """Places 0, 3, 6 ... never earn a difference: after two others, the update goes on without them."""
    lengths = lambda index: 3 if position_of(index) % 3 == 0 else 8  # noqa: E731
    letters = Letters(lengths, score=every_third)
    train_letters(tmp_path / "run", 3, settings(pipeline_depth=1.0), letters, refill=2)
    found = trained(tmp_path / "run")
    assert sorted(found) == [position for position in range(12) if position % 3]
    assert [row["step"] for row in metrics(tmp_path / "run")] == [1, 2, 3]


def test_where_no_group_has_a_signal_the_run_goes_on_all_the_same(tmp_path: Path) -> None:
    letters = Letters(score=lambda ids: 1.0)
    train_letters(tmp_path / "run", 2, settings(pipeline_depth=1.0), letters, refill=1)
    assert len(trained(tmp_path / "run")) == 8
    assert metrics(tmp_path / "run")[-1]["pipeline/rejected_groups"] == 8  # replaced; their others were trained


def same_weights(one: Learner, other: Learner) -> bool:
    mine, theirs = one.master_weights.state()["master_weights"], other.master_weights.state()["master_weights"]
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("checkpoint_every", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_serial_training_with_a_curriculum_that_is_stopped_ends_like_a_straight_one(
    tmp_path: Path, checkpoint_every: int
) -> None:
    def score(ids: tuple[int, ...]) -> float:
        return low(ids) if len(ids) > 6 else 0.0

    letters = [cls(lambda index: 3 + 5 * (index % 3), 2, score=score) for cls in (Letters, Stops, Letters)]
    asynchrony = settings(mode="serial")
    straight = train_letters(
        tmp_path / "straight",
        7,
        asynchrony,
        letters[0],
        refill=2,
        checkpoint_every=checkpoint_every,
    )
    with pytest.raises(KeyboardInterrupt):  # after the third step, of which there is no checkpoint yet
        train_letters(
            tmp_path / "killed",
            7,
            asynchrony,
            letters[1],
            refill=2,
            evaluate_every=3,
            checkpoint_every=checkpoint_every,
        )
    ended = train_letters(tmp_path / "killed", 7, asynchrony, letters[2], refill=2, checkpoint_every=checkpoint_every)
    assert metrics(tmp_path / "straight") == metrics(tmp_path / "killed")
    assert same_weights(straight, ended)


def one(reward: float) -> Group:
    return Group("t", "", (episode_of("e", (), [RewardTerm("low", reward)]),))


def test_a_group_of_one_has_nothing_to_be_compared_with() -> None:
    assert without_signal(one(1.0))
