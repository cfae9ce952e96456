"""Groups without a signal are replaced in their place; the same after a stop in serial mode."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.base.errors import KeepworthError
from keepworth.records import Group, RewardTerm
from keepworth.training.collect import curriculum
from keepworth.training.collect.curriculum import SPAN, position_of, retry_of
from keepworth.training.learner import Learner
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
    replaced = [index for index in found if index >= SPAN]
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


def test_group_of_one_gives_no_signal() -> None:
    assert curriculum.without_signal(Group("t", "", (episode_of("e", (), [RewardTerm("low", 1.0)]),)))


# Indices of groups: each position is filled once, whatever comes to nothing on the way and wherever the run is stopped.


@given(st.lists(st.sampled_from(["kept", "nothing", "stopped"]), max_size=60))
def test_every_position_is_filled_once_however_often_it_is_begun_anew(fates: list[str]) -> None:
    order, kept = curriculum.GroupOrder(), list[int]()
    for fate in fates:
        if fate == "stopped":
            again = curriculum.GroupOrder()
            again.load(order.state())
            order = again
            continue
        index = order.take()
        assert position_of(index) not in map(position_of, kept)
        assert (index >= SPAN) == bool(retry_of(index))
        if fate == "nothing":
            order.replace(index)
        else:
            kept.append(index)
    while len(kept) < 60:
        kept.append(order.take())
    assert sorted(map(position_of, kept)) == list(range(60))
    assert sum(map(retry_of, kept)) == fates.count("nothing")


# Every task comes as often as it should, and the order depends on the seed and the step alone.


@given(st.integers(1, 9), st.integers(1, 7), st.integers(0, 99))
def test_a_pass_holds_each_item_once(count: int, size: int, seed: int) -> None:
    drawn = [item for step in range(count) for item in curriculum.batch(range(count), size, step, seed)]
    assert all(sorted(drawn[i : i + count]) == list(range(count)) for i in range(0, count * size, count))


@given(st.lists(st.sampled_from("aab"), min_size=1, max_size=12), st.integers(1, 6), st.integers(0, 9))
def test_kinds_are_equal_within_one_and_items_within_a_kind_too(kinds: list[str], size: int, seed: int) -> None:
    items = list(enumerate(kinds))
    drawn = [curriculum.draw_task(items, lambda item: item[1], seed, position) for position in range(11 * size)]
    per_kind = Counter(kind for _, kind in drawn)
    assert set(per_kind) == set(kinds) or len(drawn) < len(set(kinds))
    counts = [per_kind[kind] for kind in set(kinds)]
    assert max(counts) - min(counts) <= 1
    for kind in set(kinds):
        each = Counter(index for index, of in drawn if of == kind)
        own = [each[index] for index, of in items if of == kind]
        assert max(own) - min(own) <= 1
    again = [curriculum.draw_task(items, lambda item: item[1], seed, position) for position in range(11 * size)]
    assert again == drawn


def test_empty_curriculum_is_refused() -> None:
    with pytest.raises(KeepworthError, match="nothing to train on"):
        curriculum.draw_task([], str, 0, 0)
    with pytest.raises(KeepworthError, match="nothing to train on"):
        curriculum.batch([], 2, 0, 0)
