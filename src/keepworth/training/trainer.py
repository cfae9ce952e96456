"""The trainer: one loop that turns tasks into better weights and that continues after a kill.

It reads like the algorithm. The collector decides what is sampled, and how far ahead of the learner. Everything that the next
step depends on is either in the checkpoint or a function of (seed, step), so a run that is killed anywhere continues as if it had
not been."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepworth.base.needs import needs_train

import torch

from keepworth.base.errors import KeepworthError
from keepworth.base.interruption import uninterrupted
from keepworth.models.adapter import save_trained
from keepworth.records.episode import Group
from keepworth.training.collect.curriculum import without_signal
from keepworth.training.learner import Learner
from keepworth.training.mixture import calls_of
from keepworth.training.run_folder import LEARNER, RunFolder, reading
from keepworth.training.watch.metrics import episode_metrics
from keepworth.training.watch.progress import Progress, short

if TYPE_CHECKING:
    from keepworth.training.collect.pipeline import Collected, Pipeline

FAILED = "failed"
"""The arm under which episodes that failed are kept: they are not trained on."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long to train, and how often to evaluate and to save, in optimiser steps. A step also ends with a checkpoint where the
    last one is `checkpoint_seconds` old; 0 leaves that out. A training that has no signal in its first `patience` steps stops; 0
    goes on."""

    steps: int
    evaluate_every: int
    checkpoint_every: int
    checkpoint_seconds: float = 300.0
    patience: int = 0

    def measures(self, step: int) -> bool:
        """Whether the model is measured after `step`."""
        return step == self.steps or step % self.evaluate_every == 0


class NoSignal(KeepworthError):
    """The answers of every group earned the same, in every step: nothing could be learned."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Where a training continues: how many steps are done, and whether what is due after the last of them was measured."""

    step: int
    measured: bool


def train(
    run: RunFolder,
    learner: Learner,
    collector: Pipeline,
    schedule: Schedule,
    progress: Progress,
    title: str,
    optional: Collection[str] = (),
    supervised: bool = False,
) -> int:
    """Takes the optimiser steps that are left of `schedule.steps`, and returns the number of the last one. At the end it closes
    the collector and the learner.

    Args:
        run: The folder that gets metrics and checkpoints.
        learner: What updates the weights.
        collector: What gives the groups of each update, and measures.
        schedule: When the run measures, saves and ends.
        progress: It is told of each step.
        title: What the progress calls the training.
        optional: The reward terms that may be absent from an episode.
        supervised: Whether episodes are imitated, whatever their reward.
    """
    done = restore(run, learner)
    progress.start(schedule.steps, title)
    last, measured, saved = (0, False, None) if done is None else (done.step, done.measured, done.step)
    border = (
        done is not None or learner.model.version > 0
    )  # whether the state is that after a step, or after a warm start
    clock = time.monotonic()

    times = _Times(schedule)

    def measure() -> None:
        begun = time.monotonic()
        progress.phase("measuring" if last else "measuring before training")
        collector.evaluate(last)
        times.measured(last, time.monotonic() - begun)
        if not last:
            return
        dev = {"role": learner.role, "split": "dev", "step": last}
        scores = (float(row["mean"]) for row in run.evals() if dev.items() <= row.items())
        if (score := next(scores, None)) is not None:
            learner.validated(score)

    def is_old() -> bool:
        return 0 < schedule.checkpoint_seconds <= time.monotonic() - clock

    try:
        if not measured:
            measure()
            measured = border = True
        if not last and saved is None and is_old():
            save(run, learner, last, collector)
            saved, clock = last, time.monotonic()
        collector.begin(None if done is None else run.latest_checkpoint(verify=False))
        for step in range(last, schedule.steps):
            begun = time.perf_counter()
            progress.phase("answering")
            collected = collector.collect(step)
            sampled = time.perf_counter()
            for note in collected.notes:
                progress.note(f"Step {step + 1}: {note}")
            if reason := next((error for episode in collected.failed for error in episode.errors), ""):
                progress.note(
                    f"Step {step + 1}: {len(collected.failed)} episodes are not trained on: {reason.rstrip('.')}."
                )
            progress.phase("learning")
            values = episode_metrics(collected.groups, learner.model.version, optional)
            if supervised:  # nothing was drawn, and nothing rewarded
                values = {name: value for name, value in values.items() if name.partition("/")[0] != "reward"}
            signal = supervised or not learner.needs_differences or not all(map(without_signal, collected.groups))
            if not supervised and learner.needs_differences:
                values["signal_groups"] = float(sum(not without_signal(group) for group in collected.groups))
            with uninterrupted(lambda: progress.phase("ending this step before the stop (again: stops at once)")):
                border = False
                try:
                    learned = _imitated(learner, collected.groups) if supervised else learner.update(collected.groups)
                except FloatingPointError:
                    # A checkpoint of this step holds the same weights: writing it again could only lose it to a kill.
                    if saved != step:
                        save(run, learner, step, collector)
                    raise
                published = collector.publish()
                seconds = {"seconds/sample": sampled - begun, "role": learner.role}
                row = {**values, **learned, **collected.metrics, **published, **seconds}
                run.write_episodes(step + 1, [episode for group in collected.groups for episode in group.episodes])
                if collected.failed:
                    run.write_episodes(step + 1, collected.failed, arm=FAILED)
                run.append_metrics(step + 1, row)
                last, measured, border = step + 1, not schedule.measures(step + 1), True
            times.took(time.perf_counter() - begun)
            if not signal:
                _note_no_signal(run, collected, schedule, last, progress)
            if not measured:
                measure()
                measured = True
            if last == schedule.steps or last % schedule.checkpoint_every == 0 or is_old():
                save(run, learner, last, collector)
                saved, clock = last, time.monotonic()
            if (left := times.left(last)) is not None:
                progress.expect(left)
            progress.step(last, {k: v for k, v in row.items() if isinstance(v, float)})
    except (KeyboardInterrupt, asyncio.CancelledError, Exception):
        if border and saved != last:
            progress.phase("saving what is done")
            try:
                with uninterrupted():
                    save(run, learner, last, collector, measured=measured)
            except Exception as error:  # such as a full disk, which may be what ended the run
                progress.note(f"What was done since the last checkpoint could not be saved: {error}")
        raise
    finally:
        try:
            collector.close()
        finally:
            learner.close()
    return last


class _Times:
    """How long steps and measurements took, and so how long the rest takes."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._steps: list[float] = []
        self._whole = self._short = 0.0

    def took(self, seconds: float) -> None:
        """Notes the seconds of a step, without its measurement."""
        self._steps.append(seconds)

    def measured(self, step: int, seconds: float) -> None:
        """Notes the seconds of a measurement. That before the first step is as long as the one at the end."""
        if step:
            self._short = seconds
        else:
            self._whole = seconds

    def left(self, step: int) -> float | None:
        """Returns the seconds from `step` to the end; None where that is not known yet. The first step, which may have prepared
        something, counts only while there is no other."""
        steps, last = self._steps[1:] or self._steps, self._schedule.steps
        if not steps or step >= last:
            return None
        short = self._short or self._whole / 2
        between = sum(map(self._schedule.measures, range(step + 1, last)))
        return (last - step) * sum(steps) / len(steps) + between * short + (self._whole or 2 * self._short)


def _note_no_signal(run: RunFolder, collected: Collected, schedule: Schedule, step: int, progress: Progress) -> None:
    """Notes that nothing could be learned in a step. Raises NoSignal where that was so in all steps, and there are enough."""
    rewards = [episode.reward for group in collected.groups for episode in group.episodes]
    sampled = int(collected.metrics.get("curriculum/sampled_groups", 0))
    more = f" {sampled} groups were sampled, as refill replaces such groups." if sampled > len(collected.groups) else ""
    progress.note(
        f"Step {step}: no group had a signal, so nothing was learned: the answers of each earned the same "
        f"({short(sum(rewards) / len(rewards))} on average).{more}"
    )
    if any(row.get("signal_groups", 1.0) for row in run.metrics()):
        return
    right = all(
        episode.reward >= sum(max(0.0, term.weight) for term in episode.rewards)
        for group in collected.groups
        for episode in group.episodes
    )
    if right or not 0 < schedule.patience <= step:
        return
    raise NoSignal(
        f"In none of {step} steps did the answers of a group earn different rewards, and not all of them were right: nothing was "
        "learned.",
        "Show worked examples in the prompt, reward a part of what is asked, take easier tasks first, a higher temperature or a "
        "stronger model, or imitate right answers first (method = supervised). To go on all the same, set patience = 0.",
    )


def _imitated(learner: Learner, groups: Sequence[Group]) -> dict[str, float]:
    calls = [call for group in groups for episode in group.episodes for call in calls_of(episode, learner.roles)]
    return learner.imitate([(call.context, call.ids) for call in calls])


def save(run: RunFolder, learner: Learner, step: int, collector: Pipeline, measured: bool = True) -> None:
    """Writes a checkpoint from which the run continues exactly. It holds the trained weights, the master weights, the optimiser,
    the controls, the random state and the waiting episodes.

    Args:
        run: The folder of the run.
        learner: What is saved, with its optimiser and its reference.
        step: The number of the last step.
        collector: The pipeline, which saves the episodes that wait.
        measured: Whether nothing is left to measure after the step.
    """
    with run.checkpoint(step) as folder:
        save_trained(learner.model, learner.master_weights.named, folder / learner.role)
        state = {
            "first": 0,
            "step": step,
            "role": learner.role,
            "measured": measured,
            "torch_rng": torch.get_rng_state(),
        }
        torch.save({**state, "learner": learner.state()}, folder / LEARNER)
        collector.save(folder)


def restore(run: RunFolder, learner: Learner) -> Restored | None:
    """Continues from the run's last checkpoint if it belongs to this training, and returns what is done.

    Returns None where there is no such checkpoint. That is not the same as 0 steps: a training that ended in its first step left
    a checkpoint of 0 steps, and a warm start that precedes the first step is already done. Raises CheckpointCorrupt for one that
    cannot be continued from."""
    last = run.latest_checkpoint()
    if last is None:
        return None
    with reading(last.path / LEARNER, last):
        state = torch.load(last.path / LEARNER, weights_only=True)  # tensors and plain values, never code
        if not isinstance(state, dict) or not isinstance(state.get("learner"), dict):
            raise ValueError("it holds no learner")
        if state["role"] != learner.role:
            return None
        learner.load(state["learner"])
        torch.set_rng_state(state["torch_rng"])
        return Restored(int(state["step"]), bool(state.get("measured", True)))
