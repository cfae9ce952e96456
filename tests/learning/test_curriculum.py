"""The curriculum of what is sampled: stages by place, replacements, bands and hooks; the same after a stop in serial mode."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.episodes import Episode, Group, RewardTerm, StopReason
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.learning.collect.curriculum import (
    AdmissionError,
    Band,
    Curriculum,
    Difficulty,
    Stage,
    candidate_of,
    position_of,
    retry_of,
    without_signal,
)
from keepworth.learning.learner import Learner
from keepworth.learning.run_folder import RunFolder
from tests.learning.letters import Letters, low, settings, train_letters

GROUPS = 4


def trained(folder: Path) -> dict[int, list[Episode]]:
    """By index."""
    found: dict[int, list[Episode]] = {}
    for stored in RunFolder.open(folder).episodes(arm="train"):
        found.setdefault(int(stored.episode.id.split("/")[0]), []).append(stored.episode)
    return found


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in RunFolder.open(folder).metrics()]


def every_third(ids: tuple[int, ...]) -> float:
    """Three letters earn the same for every member; longer answers hardly ever do."""
    return sum(ids) / (256 * len(ids)) if len(ids) > 3 else 0.0


@pytest.mark.parametrize("mode", ["turns", "overlap", "serial"])
def test_a_groups_stage_is_that_of_its_place(tmp_path: Path, mode: str) -> None:
    stages = (Stage(2, horizon=4), Stage(1, weights={"low": 2.0}), Stage(1, horizon=6))
    train_letters(tmp_path / "run", 5, settings(mode=mode), Letters(lambda t: 9), curriculum=Curriculum(GROUPS, stages))
    found = trained(tmp_path / "run")
    for index, episodes in found.items():
        step = position_of(index) // GROUPS
        lengths = {len(episode.segments[0].ids) for episode in episodes}
        assert max(lengths) <= (4 if step < 2 else 9 if step == 2 else 6)
        assert {episode.rewards[0].weight for episode in episodes} == {2.0 if step == 2 else 1.0}
    assert set(range(12)) <= set(found)
    seen = [row["curriculum/stage"] for row in metrics(tmp_path / "run")]
    assert (seen[0], seen[-1]) == (0, 2)


@pytest.mark.parametrize("mode", ["turns", "serial"])
def test_a_group_without_a_signal_is_replaced_in_its_place_and_written_down(tmp_path: Path, mode: str) -> None:
    """Every third place answers in three letters at first, for which all members earn the same."""
    lengths = lambda index: 3 if position_of(index) % 3 == 0 and not retry_of(index) else 8  # noqa: E731
    asynchrony = settings(mode=mode, pipeline_depth=1.0)
    train_letters(
        tmp_path / "run", 3, asynchrony, Letters(lengths, score=every_third), curriculum=Curriculum(4, refill=1)
    )
    found = trained(tmp_path / "run")
    assert sorted(map(position_of, found)) == list(range(12))
    replaced = [index for index in found if candidate_of(index)]
    assert {position_of(index) for index in replaced} == {0, 3, 6, 9}
    assert {retry_of(index) for index in replaced} == {1}
    for step in range(3):  # what replaces a group is of a task that the step does not have yet
        keys = [each[0].task for index, each in found.items() if position_of(index) // GROUPS == step]
        assert len(keys) >= len(set(keys)) >= 3
    rejected = RunFolder.open(tmp_path / "run").curriculum()
    assert {row["what"] for row in rejected} == {"rejected"}
    assert all("rewards are 0" in row["reason"] for row in rejected)
    rows = metrics(tmp_path / "run")
    if mode != "serial":
        assert rows[-1]["pipeline/rejected_groups"] == 4
    assert len(rejected) == 4
    assert sum(row["curriculum/rejected_groups"] for row in rows) == 4
    assert sum(row["curriculum/sampled_groups"] for row in rows) == 16


def test_a_place_that_stays_without_a_signal_is_given_up_and_left_out(tmp_path: Path) -> None:
    """Places 0, 3, 6 ... never earn a difference: after two others, the update goes on without them."""
    lengths = lambda index: 3 if position_of(index) % 3 == 0 else 8  # noqa: E731
    letters = Letters(lengths, score=every_third)
    train_letters(tmp_path / "run", 3, settings(pipeline_depth=1.0), letters, curriculum=Curriculum(4, refill=2))
    found = trained(tmp_path / "run")
    assert sorted(found) == [position for position in range(12) if position % 3]
    assert len(RunFolder.open(tmp_path / "run").curriculum()) == 3 * 4
    assert [row["step"] for row in metrics(tmp_path / "run")] == [1, 2, 3]


def test_where_no_group_has_a_signal_the_run_goes_on_all_the_same(tmp_path: Path) -> None:
    letters = Letters(score=lambda ids: 1.0)
    train_letters(tmp_path / "run", 2, settings(pipeline_depth=1.0), letters, curriculum=Curriculum(4, refill=1))
    assert len(trained(tmp_path / "run")) == 8
    assert metrics(tmp_path / "run")[-1]["pipeline/rejected_groups"] == 8  # replaced; their others were trained


def test_tasks_outside_the_band_are_put_aside_until_their_time_comes(tmp_path: Path) -> None:
    class OneEasy(Letters):
        async def rollout(self, task: Any, context: Any) -> Episode:
            episode = await super().rollout(task, context)
            value = 1.0 if task.key == "letters/0" else 0.5
            return replace(episode, rewards=(replace(episode.rewards[0], value=value),))

    curriculum = Curriculum(5, band=Band(0.0, 1.0, retry=3))
    asynchrony = settings(mode="serial", max_staleness=0, pipeline_depth=1.0, groups=5)
    train_letters(tmp_path / "run", 6, asynchrony, OneEasy(), curriculum=curriculum)
    run = RunFolder.open(tmp_path / "run")
    steps = [s.step for s in run.episodes(arm="train") if s.episode.task == "letters/0" and s.episode.id.endswith("/0")]
    assert steps == [1, 5]  # 3 steps later it may try again, in the fourth
    asides = [row for row in run.curriculum() if row["what"] == "aside"]
    assert {row["task"] for row in asides} == {"letters/0"}
    assert all("too easy" in row["reason"] for row in asides)


def test_where_every_task_is_put_aside_the_one_sampled_longest_ago_is_taken(tmp_path: Path) -> None:
    letters = Letters(score=lambda ids: 1.0)
    asynchrony = settings(mode="serial", max_staleness=0, pipeline_depth=1.0)
    train_letters(tmp_path / "run", 4, asynchrony, letters, curriculum=Curriculum(4, band=Band(0.0, 0.9)))
    assert sorted(map(position_of, trained(tmp_path / "run"))) == list(range(16))


def test_the_hook_sees_each_group_and_may_leave_it_out(tmp_path: Path) -> None:
    def look(step: int, group: Group) -> Group | None:
        return None if group.task.endswith("/2") else group

    train_letters(tmp_path / "run", 3, settings(), curriculum=Curriculum(4, after_group=look))
    assert {value[0].task for value in trained(tmp_path / "run").values()} == {f"letters/{n}" for n in (0, 1, 3, 4)}
    rows = RunFolder.open(tmp_path / "run").curriculum()
    assert {(row["task"], row["reason"]) for row in rows} == {("letters/2", "left out by after_group")}


def test_a_hook_that_leaves_nothing_ends_the_run(tmp_path: Path) -> None:
    curriculum = Curriculum(4, after_group=lambda step, group: None)
    with pytest.raises(KeepworthError, match="after_group left out every group of step 1"):
        train_letters(tmp_path / "run", 2, settings(), curriculum=curriculum)


ALL = Curriculum(4, (Stage(2, horizon=7), Stage(1, weights={"low": 2.0})), Band(0.3, 1.5, retry=2), refill=2)


class Stops(Letters):
    def evaluate(self, step: int) -> None:
        if step:
            raise KeyboardInterrupt


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
        curriculum=ALL,
        checkpoint_every=checkpoint_every,
    )
    with pytest.raises(KeyboardInterrupt):  # after the third step, of which there is no checkpoint yet
        train_letters(
            tmp_path / "killed",
            7,
            asynchrony,
            letters[1],
            curriculum=ALL,
            evaluate_every=3,
            checkpoint_every=checkpoint_every,
        )
    ended = train_letters(
        tmp_path / "killed", 7, asynchrony, letters[2], curriculum=ALL, checkpoint_every=checkpoint_every
    )
    assert metrics(tmp_path / "straight") == metrics(tmp_path / "killed")
    said = [RunFolder.open(tmp_path / name).curriculum() for name in ("straight", "killed")]
    assert said[0] == said[1]
    assert {row["what"] for row in said[0]} == {"outcome", "aside", "rejected"}
    assert same_weights(straight, ended)


def test_an_overlapping_training_with_a_curriculum_that_is_stopped_fills_no_place_twice(tmp_path: Path) -> None:
    asynchrony = settings(mode="overlap", max_staleness=2, pipeline_depth=3.0)
    curriculum = replace(ALL, band=None)
    with pytest.raises(KeyboardInterrupt):
        train_letters(
            tmp_path / "run",
            8,
            asynchrony,
            Stops(score=every_third),
            curriculum=curriculum,
            evaluate_every=3,
            checkpoint_every=2,
        )
    train_letters(tmp_path / "run", 8, asynchrony, Letters(score=every_third), curriculum=curriculum)
    indices = {
        (stored.step, int(stored.episode.id.split("/")[0]))
        for stored in RunFolder.open(tmp_path / "run").episodes(arm="train")
    }
    positions = Counter(position_of(index) for _, index in indices)
    assert max(positions.values()) == 1
    assert len(positions) >= 2 * 8


@pytest.mark.parametrize(
    ("curriculum", "says"),
    [(Curriculum(3), "3 tasks per step, and an update trains 4 groups")],
)
def test_a_curriculum_that_does_not_fit_is_refused(tmp_path: Path, curriculum: Curriculum, says: str) -> None:
    with pytest.raises(AdmissionError, match=says):
        train_letters(tmp_path / "run", 1, settings(), curriculum=curriculum)


def test_a_weight_of_a_term_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="hihg"):
        train_letters(tmp_path / "run", 1, settings(), curriculum=Curriculum(4, (Stage(1, weights={"hihg": 1.0}),)))


def one(reward: float) -> Group:
    episode = Episode("e", "t", "r", "", (), "", (), (RewardTerm("low", reward),), StopReason.COMPLETED, "", 0)
    return Group("t", "", (episode,))


def test_a_group_of_one_has_nothing_to_be_compared_with() -> None:
    assert without_signal(one(1.0)) == "one episode, nothing to compare it with"


def test_difficulty_is_a_running_mean() -> None:
    known = Difficulty(Band(0.3, 0.9, memory=0.5))
    assert known.aside("t", 1) == ""
    known.note("t", 1.0, 1)
    assert known.aside("t", 2).startswith("too easy")
    known.note("t", 0.0, 2)
    assert known.aside("t", 3) == ""
    known.note("t", 0.0, 3)
    assert known.aside("t", 4) == "too hard: mean score 0.25 is not above 0.3"
    assert known.aside("t", 14) == ""
    for wrong in ({"low": 0.5, "high": 0.5}, {"retry": 0}, {"memory": 1.0}):
        with pytest.raises(AdmissionError):
            Band(**wrong)  # type: ignore[arg-type]


def test_difficulty_goes_by_the_score_before_shaping(tmp_path: Path) -> None:
    """With a term for length on top, no task would ever look as if it were always won."""

    class Shaped(Letters):
        async def rollout(self, task: Any, context: Any) -> Episode:
            episode = await super().rollout(task, context)
            won = replace(episode.rewards[0], value=1.0)
            return replace(episode, rewards=(won, RewardTerm("length", -0.1 * context.member, shaping=True)))

    train_letters(tmp_path / "run", 2, settings(mode="serial"), Shaped(), curriculum=Curriculum(4, band=Band(0.0, 1.0)))
    outcomes = [row for row in RunFolder.open(tmp_path / "run").curriculum() if row["what"] == "outcome"]
    assert {row["score"] for row in outcomes} == {1.0}


def test_another_memory_of_the_tasks_is_not_made_by_a_stop(tmp_path: Path) -> None:
    """What is known of them comes back from the run's log."""
    known = Difficulty(Band(0.25, 1.0, retry=50))
    known.restore(
        [{"what": "outcome", "step": 3, "task": "a", "score": 0.0}, {"what": "aside", "step": 4, "task": "a"}]
    )
    assert known.aside("a", 5).startswith("too hard")
