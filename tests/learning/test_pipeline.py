"""Asynchronous training: bounds that hold, nothing finished lost or trained twice, failures that stay values."""

from __future__ import annotations

import gc
import itertools
import math
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.base.errors import KeepworthError
from keepworth.methods.recipes._bank.rerolls import rolled_again
from keepworth.records import Episode, StopReason
from keepworth.training.collect.asynchrony import Staleness
from keepworth.training.collect.curriculum import AdmissionError
from keepworth.training.collect.groups import EpisodeContext
from keepworth.training.objective.options import ObjectiveError
from keepworth.training.objective.presets import preset
from keepworth.training.run_folder import RunFolder
from tests.learning.letters import Letters, again, failed, index_of, low, metrics, settings, train_letters, trained
from tests.learning.turns import learner_of, same, weights


@given(
    groups=st.integers(1, 4),
    max_staleness=st.integers(0, 4),
    share=st.floats(0, 1),
    picks=st.lists(st.integers(0, 10**6), min_size=40, max_size=160),
    failing=st.sets(st.integers(0, 60)),
)
def test_staleness_bound_holds_in_any_order(
    groups: int, max_staleness: int, share: float, picks: list[int], failing: set[int]
) -> None:
    """Play: start what may be started, finish a group picked at random (or let it fail), train when the rule allows it."""
    rule = Staleness(groups, max_staleness, pipeline_depth=1 + share * max_staleness)
    version = consumed = index = 0
    running: dict[int, int] = {}
    finished: dict[int, int] = {}
    trained: set[int] = set()
    for pick in picks:
        for _ in range(
            rule.capacity(version=version, accepted=consumed + len(finished), running=len(running), consumed=consumed)
        ):
            running[index] = version
            index += 1
        assert len(running) + len(finished) <= (max_staleness + 1) * groups
        if running:
            chosen = sorted(running)[pick % len(running)]
            born = running.pop(chosen)
            if chosen not in failing:
                finished[chosen] = born
        batch = rule.choose(version, finished, running)
        if batch is None:
            assert running or len(finished) < groups, "nothing runs that could be waited for"
            continue
        for group in batch:
            assert version - finished.pop(group) <= max_staleness
            assert group not in trained
            trained.add(group)
        version, consumed = version + 1, consumed + groups


def lags(folder: Path) -> dict[tuple[int, int], int]:
    """By step and index, the lag of the oldest token of every group that was trained."""
    found: dict[tuple[int, int], int] = {}
    for step, episode in trained(folder):
        oldest = min(span.version for s in episode.segments for span in s.spans)
        key = (step, index_of(episode))
        found[key] = max(found.get(key, 0), step - 1 - oldest)
    return found


@pytest.mark.parametrize(
    ("mode", "max_staleness", "depth"),
    [("serial", 0, 1.0), ("turns", 0, 1.0), ("turns", 1, 2.0), ("overlap", 0, 1.0), ("overlap", 3, 1.5)],
)
def test_the_bound_holds_and_each_group_is_trained_once(
    tmp_path: Path, mode: str, max_staleness: int, depth: float
) -> None:
    letters = Letters(latency=lambda index, member: 0.002 * ((7 * index + member) % 5))
    asynchrony = settings(mode=mode, max_staleness=max_staleness, pipeline_depth=depth)
    train_letters(tmp_path, 6, asynchrony, letters)
    found = lags(tmp_path)
    assert len(found) == len({index for _, index in found}) == 24
    assert max(found.values()) <= max_staleness
    assert letters.measured == [0, 6]
    if max_staleness == 0:
        assert set(found.values()) == {0}
        assert sorted(index for _, index in found) == list(range(24))


def test_long_answers_span_versions_and_are_trained_with_them(tmp_path: Path) -> None:
    """With one long group among short ones, the long one crosses updates instead of holding them up."""
    letters = Letters(lengths=lambda index: 60 if index % 6 == 0 else 3)
    train_letters(tmp_path, 6, settings(max_staleness=3, pipeline_depth=2.0, slots=24), letters)
    crossed = [e for _, e in trained(tmp_path) if len(e.segments[0].spans) > 1]
    assert crossed
    assert all(len(e.segments[0].ids) == 60 for e in crossed)
    assert any(row["pipeline/unfinished_tokens"] > 0 for row in metrics(tmp_path))


def test_serial_mode_repeats_exactly(tmp_path: Path) -> None:
    asynchrony = settings(mode="serial")
    one = train_letters(tmp_path / "one", 4, asynchrony, Letters(turns=2))
    late = Letters(turns=2, latency=lambda index, member: 0.001 * ((5 * index + member) % 3))
    other = train_letters(tmp_path / "other", 4, asynchrony, late)
    assert metrics(tmp_path / "one") == metrics(tmp_path / "other")
    assert same(weights(one), weights(other))


@pytest.mark.parametrize(("score", "says"), [
    (lambda ids: 1 / 0, "ZeroDivisionError"),
    (lambda ids: math.nan, "nan, not a finite number"),
    (lambda ids: "good", "'good', not a number"),
    (lambda ids: None, "None, not a number"),
    (lambda ids: time.sleep(60), "did not answer in 0.05 s"),
])  # fmt: skip
def test_a_reward_that_misbehaves_now_and_then_fails_its_episode_alone(tmp_path: Path, score: Any, says: str) -> None:
    count = itertools.count()
    lock = threading.Lock()

    def sometimes(ids: tuple[int, ...]) -> Any:
        with lock:
            turn = next(count)
        return score(ids) if turn % 5 == 2 else low(ids)

    asynchrony = settings(call_seconds=0.05 if "0.05" in says else 20.0, retries=0)
    train_letters(tmp_path, 2, asynchrony, Letters(score=sometimes))
    lost = failed(tmp_path)
    assert lost
    assert all(says in e.errors[-1] and not e.segments for e in lost)
    assert {e.stop for e in lost} <= {StopReason.ENVIRONMENT_ERROR, StopReason.TIMEOUT}
    sizes = Counter(index_of(e) for _, e in trained(tmp_path))
    assert len(sizes) == 8
    assert set(sizes.values()) <= {2, 3}


def test_slow_tasks_are_trained_as_often_as_they_are_drawn(tmp_path: Path) -> None:
    """One group in four takes fifty times as long. Throwing away what is late would leave the quick ones."""
    slow = Letters(lengths=lambda index: 3, latency=lambda index, member: 0.1 if index % 4 == 0 else 0.002)
    train_letters(tmp_path, 10, settings(mode="overlap", max_staleness=2, pipeline_depth=2.0), slow)
    indices = {index for _, index in lags(tmp_path)}
    assert len(indices) == 40
    under_way = 8  # at most so many groups are started and not yet trained at the end
    assert set(range(40 - under_way)) <= indices
    assert sum(index % 4 == 0 for index in indices) >= 10 - under_way // 4


def test_an_environment_that_dies_is_begun_anew_and_says_so(tmp_path: Path) -> None:
    class Dying(Letters):
        died: set[str] = set()  # noqa: RUF012

        async def rollout(self, task: Any, context: Any) -> Any:
            if context.member == 1 and context.id not in self.died:
                await super().rollout(task, context)
                self.died.add(context.id)
                raise ConnectionResetError("the world ended")
            return await super().rollout(task, context)

    train_letters(tmp_path, 2, settings(), Dying())
    assert len({episode.id for _, episode in trained(tmp_path)}) == 24
    assert all("the world ended" in episode.errors[0] for episode in failed(tmp_path))
    assert metrics(tmp_path)[-1]["pipeline/retried"] >= 8


def test_repeated_rollout_failures_end_the_run_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(KeepworthError, match=r"5 groups in a row .* ZeroDivisionError"):
        train_letters(tmp_path, 2, settings(patience=5), Letters(score=lambda ids: 1 / 0))


@pytest.mark.parametrize("mode", ["turns", "overlap"])
def test_a_task_source_that_raises_ends_the_run_with_its_own_error(tmp_path: Path, mode: str) -> None:
    class Short(Letters):
        def task(self, index: int) -> Any:
            if index >= 10:
                raise LookupError("no task 10")
            return super().task(index)

    with pytest.raises(LookupError, match="no task 10"):
        train_letters(tmp_path / "run", 4, settings(mode=mode), Short())


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mode", ["serial", "turns"])
def test_interrupt_in_a_rollout_ends_all_rollouts(tmp_path: Path, mode: str) -> None:
    class Pressed(Letters):
        async def rollout(self, task: Any, context: Any) -> Any:
            if context.id == "5/1":
                raise KeyboardInterrupt
            return await super().rollout(task, context)

    with pytest.raises(KeyboardInterrupt):
        train_letters(tmp_path / "run", 4, settings(mode=mode), Pressed())
    gc.collect()  # whatever was never awaited says so now
    ended = train_letters(tmp_path / "run", 4, settings(mode=mode))
    straight = train_letters(tmp_path / "straight", 4, settings(mode=mode))
    if mode == "serial":
        assert metrics(tmp_path / "run") == metrics(tmp_path / "straight")
        assert same(weights(ended), weights(straight))


@pytest.mark.parametrize(("changes", "says"), [
    ({"max_staleness": -1}, "max_staleness = -1: input should be greater than or equal to 0"),
    ({"max_staleness": 0, "pipeline_depth": 1.5}, "cannot take effect"),
    ({"pipeline_depth": 0.5}, "pipeline_depth = 0.5: input should be greater than or equal to 1"),
    ({"mode": "parallel"}, "mode = 'parallel': input should be 'overlap', 'turns' or 'serial'"),
    ({"mode": "serial", "max_staleness": 1}, "in step with the learner"),
    ({"slots": 0}, "slots = 0: input should be greater than or equal to 1"),
    ({"mode": "serial", "slots": 6}, "slots = 6 has no effect"),
])  # fmt: skip
def test_settings_that_cannot_take_effect_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(AdmissionError, match=says):
        settings(**changes)


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_an_objective_that_takes_old_tokens_for_its_own_is_refused(tmp_path: Path, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of grpo's clip, with one pass
        learner = learner_of(preset(name), hidden=16)
    with pytest.raises(ObjectiveError, match=rf"'{name}' takes tokens as drawn .* 1 updates old"):
        train_letters(tmp_path / "run", 1, settings(max_staleness=1), learner=learner)
    train_letters(tmp_path / "fresh", 1, settings(max_staleness=0, pipeline_depth=1.0), learner=learner)


@pytest.mark.parametrize("fails_at", [2, 3])
def test_diverging_step_writes_a_checkpoint_unless_one_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """Checkpoints are of every second step. The one of step 2 holds what would be written again: it is not touched."""
    learner = learner_of(preset("areal"), hidden=16, learning_rate=1e-2)
    update, checkpoint = learner.update, RunFolder.checkpoint

    def diverging(groups: Any) -> dict[str, float]:
        if learner.steps == fails_at:
            raise FloatingPointError("not a number")
        return update(groups)

    monkeypatch.setattr(learner, "update", diverging)
    written: list[int] = []

    def noted(self: RunFolder, step: int, **more: Any) -> Any:
        written.append(step)
        return checkpoint(self, step, **more)

    monkeypatch.setattr(RunFolder, "checkpoint", noted)
    with pytest.raises(FloatingPointError):
        train_letters(tmp_path / "run", 6, settings(mode="serial"), Letters(), learner=learner)
    assert written == ([2] if fails_at == 2 else [2, 3])
    assert [checkpoint.step for checkpoint in RunFolder(tmp_path / "run").checkpoints()] == written


def test_update_metrics_report_decoding_steps(tmp_path: Path) -> None:
    """Whole calls are made once for each limit: of 3, 8 and 13 tokens. In slots the longest answer says how many steps."""
    for mode, slots, steps in (("serial", None, 3 + 8 + 13), ("turns", 12, 13)):
        asynchrony = settings(mode=mode, max_staleness=0, pipeline_depth=1.0, slots=slots)
        train_letters(tmp_path / mode, 2, asynchrony)
        row = RunFolder.open(tmp_path / mode).metrics()[0]
        assert row["decode/steps"] == steps
        assert row["decode/drawn"] == row["drawn_tokens"] == 3 * (3 + 8 + 13 + 3)
        assert row["decode/read"] == 4 * len("letters 0:")
        assert 0 < row["seconds/decode"] <= row["seconds/sample"]


MEMBERS, SIZE = 3, 2


@pytest.mark.parametrize("mode", ["turns", "overlap", "serial"])
def test_every_call_of_a_groups_first_episode_is_rolled_again(tmp_path: Path, mode: str) -> None:
    regroup = rolled_again(again, SIZE, probability=1.0, seed=0)
    train_letters(tmp_path, 3, settings(mode=mode), Letters(turns=2), regroup=regroup)
    found = {(step, episode.id): episode for step, episode in trained(tmp_path)}
    assert len(found) == 3 * 4 * (MEMBERS + 2 * SIZE)
    assert len({name for _, name in found}) == len(found), "something was trained twice"
    for (step, name), episode in found.items():
        index, member = map(int, name.split("/"))
        if member < MEMBERS:
            assert not episode.parent
            continue
        anchor = found[step, f"{index}/0"]  # trained in the same update
        assert episode.parent == anchor.id
        assert episode.segments[0].context == anchor.segments[(member - MEMBERS) // SIZE].context


def test_re_rolls_that_fail_are_left_out_and_said(tmp_path: Path) -> None:
    async def breaks(anchor: Episode, index: int, context: EpisodeContext) -> Episode:
        if context.group % 2 == 0 and context.member == MEMBERS:
            raise ConnectionResetError("gone")
        return await again(anchor, index, context)

    regroup = rolled_again(breaks, SIZE, probability=1.0, seed=0)
    train_letters(tmp_path, 2, settings(mode="serial"), Letters(), regroup=regroup)
    parents = {episode.parent.split("/")[0] for _, episode in trained(tmp_path) if episode.parent}
    assert parents == {str(index) for index in range(8) if index % 2}
    assert any("gone" in error for episode in failed(tmp_path) for error in episode.errors)
