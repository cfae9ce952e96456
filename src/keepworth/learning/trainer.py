"""The trainer: one loop from a task to better weights, and back after a kill.

It reads like the algorithm. What is sampled, and how far ahead of the learner, is the collector's affair; everything that the
next step depends on is either in the checkpoint or a function of (seed, step), so that a run killed anywhere continues
as if it had not been.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from keepworth.episodes.needs import needs_train

import torch

from keepworth.episodes.episode import DecisionKind, Episode, Group, ParseStatus, StopReason, is_silent
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.learner import Imitator
from keepworth.learning.run_folder import LEARNER, Checkpoint, RunFolder, read_learner, reading
from keepworth.learning.watch.progress import STEP, Plan, Progress
from keepworth.models.adapter import save_trained
from keepworth.models.inprocess import InProcessModel

if TYPE_CHECKING:
    from keepworth.learning.learner import MasterWeights

FAILED = "failed"
"""The arm under which episodes that failed are kept: they are not trained on."""


class Learns(Protocol):
    """What the loop needs of a learner: `Learner`, or `Imitator` for the supervised arm."""

    @property
    def model(self) -> InProcessModel: ...

    @property
    def role(self) -> str: ...

    @property
    def master_weights(self) -> MasterWeights: ...

    def update(self, groups: Sequence[Group]) -> dict[str, float]: ...

    def validated(self, score: float) -> None: ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: Mapping[str, Any]) -> None: ...

    def close(self) -> None:
        """Called once, at the end, however the training ends."""
        ...


@dataclass(frozen=True, slots=True)
class Collected:
    """What one update trains on; episodes that came to nothing, with their errors; how the collecting went, and lines for people
    about it."""

    groups: list[Group]
    failed: tuple[Episode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Collector(Protocol):
    """Groups for the trainer's loop."""

    def begin(self, checkpoint: Checkpoint | None, first: int, done: int) -> None:
        """Called once, after the learner has its weights. checkpoint: what this training continues from; first: the run's step
        at which it began; done: how many steps of it are behind it."""
        ...

    def collect(self, step: int) -> Collected:
        """The groups of step `step` (from 0)."""
        ...

    def publish(self) -> dict[str, float]:
        """The learner has taken a step: what is sampled from here on is sampled from its weights. Returns metrics."""
        ...

    def save(self, folder: Path, step: int) -> None:
        """Add to the checkpoint of `step` what collecting continues from."""
        ...

    def evaluate(self, step: int) -> None:
        """Measure the model after `step` updates and write the measurements to the run."""
        ...

    def close(self) -> None:
        """Called once, at the end, however the training ends."""
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """steps in all; `first`: the run's step at which this training begins (another role may have trained before).

    patience: measurements on dev in a row without a better score after which the training ends; 0 is never. keep: which weights
    the learner has in the end, those of the last step, or of the one with the best score on dev (of equal ones the first). What
    was measured before the first step is none of them. Both go by `dev_scores`."""

    steps: int
    evaluate_every: int
    checkpoint_every: int
    first: int = 0
    patience: int = 0
    keep: Literal["last", "best"] = "last"


@dataclass(frozen=True, slots=True)
class Ended:
    """step: the last one; weights_of: that whose weights the learner has now."""

    step: int
    weights_of: int

    @property
    def remark(self) -> str:
        """What a reader of the results should know; "" where nothing is."""
        return (
            ""
            if self.weights_of == self.step
            else f"Weights of step {self.weights_of}, which had the best score on dev"
        )


def train(
    run: RunFolder,
    learner: Learns,
    collector: Collector,
    schedule: Schedule,
    progress: Progress,
    title: str,
    plan: Plan | None = None,
    optional: Collection[str] = (),
) -> Ended:
    """Take `schedule.steps` optimiser steps, or those that are left of them; fewer where the schedule's patience ends.

    plan: is told of every step. optional: reward terms, as of `episode_metrics`.
    KeyboardInterrupt leaves at once, without a checkpoint of a half-made step: the last one stands. FloatingPointError
    (a diverging step) leaves the weights of the step before, saved.
    """
    done = restore(run, learner, schedule.first)
    progress.start(schedule.steps, title)
    last = done or 0
    ends = has_ended(run, learner.role, schedule, last)
    try:
        if done is None:
            progress.phase("measuring before training")
            collector.evaluate(0)
        collector.begin(None if done is None else run.latest_checkpoint(verify=False), schedule.first, last)
        for step in range(last, last if ends else schedule.steps):
            begun = time.perf_counter()
            progress.phase("answering")
            collected = collector.collect(step)
            sampled = time.perf_counter()
            number = schedule.first + step + 1
            for each in collected.notes:
                progress.note(f"Step {number}: {each}")
            if reason := next((error for episode in collected.failed for error in episode.errors), ""):
                progress.note(
                    f"Step {number}: {len(collected.failed)} episodes are not trained on: {reason.rstrip('.')}."
                )
            progress.phase("learning")
            measured = episode_metrics(collected.groups, learner.model.version, optional)
            if isinstance(learner, Imitator):  # nothing was drawn, and nothing rewarded
                measured = {name: each for name, each in measured.items() if name.partition("/")[0] != "reward"}
            try:
                learned = learner.update(collected.groups)
            except FloatingPointError:
                # A checkpoint of this step holds the same weights: writing it again could only lose it to a kill.
                saved = run.latest_checkpoint(verify=False)
                if saved is None or saved.step != schedule.first + step:
                    save(run, learner, schedule, step, collector)
                raise
            published = collector.publish()
            seconds = {"seconds/sample": sampled - begun, "role": learner.role}
            row = {**measured, **learned, **collected.metrics, **published, **seconds}
            write_episodes(run, schedule.first + step + 1, collected)
            run.append_metrics(schedule.first + step + 1, row)
            if plan is not None:
                plan.did(STEP, 1, time.perf_counter() - begun)
            last = step + 1
            if last == schedule.steps or last % schedule.evaluate_every == 0:
                progress.phase("measuring")
                collector.evaluate(last)
                if (score := dev_scores(run, learner.role, last).get(last)) is not None:
                    learner.validated(score)
            ends = has_ended(run, learner.role, schedule, last)
            is_best = schedule.keep == "best" and best_step(run, learner.role, last) == last
            if ends or last % schedule.checkpoint_every == 0 or is_best:
                save(run, learner, schedule, last, collector)
            progress.step(last, {k: v for k, v in row.items() if isinstance(v, float)})
            if ends:
                break
    finally:
        try:
            collector.close()
        finally:
            learner.close()
    if last < schedule.steps:
        progress.note(
            f"The score on dev did not rise in {schedule.patience} measurements: the run ends at step {last}."
        )
    return Ended(last, last if schedule.keep == "last" else take_best(run, learner, schedule.first, last))


def dev_scores(run: RunFolder, role: str, until: int) -> dict[int, float]:
    """By step, up to and with `until`, what was measured first of the role on the dev split after that step."""
    scores: dict[int, float] = {}
    for row in run.evals():
        if row.get("role") == role and row.get("split") == "dev" and row["step"] <= until:
            scores.setdefault(int(row["step"]), float(row["mean"]))
    return scores


def best_step(run: RunFolder, role: str, until: int) -> int | None:
    """The step with the best score on dev, the first of equal ones; None where nothing was measured after a step yet."""
    scores = {step: score for step, score in dev_scores(run, role, until).items() if step}
    return max(scores, key=lambda step: scores[step], default=None)


def has_ended(run: RunFolder, role: str, schedule: Schedule, step: int) -> bool:
    """Whether no step comes after this one. It is read from the run's measurements, so that a run that is continued ends where it
    would have."""
    if step == schedule.steps:
        return True
    if not schedule.patience:
        return False
    best = best_step(run, role, step)
    return best is not None and sum(each > best for each in dev_scores(run, role, step)) >= schedule.patience


def take_best(run: RunFolder, learner: Learns, first: int, last: int) -> int:
    """Give the learner the weights of the best step, whose checkpoint was kept; returns the step. Raises KeepworthError where it
    is gone."""
    best = best_step(run, learner.role, last)
    if best is None or best == last:
        return last
    kept = next((each for each in run.checkpoints() if each.step == first + best), None)
    if kept is None:
        raise KeepworthError(
            f"The weights of step {first + best}, the best on dev, are not in {run.path / 'checkpoints'} any more.",
            "Put the checkpoint back, or start over with --fresh.",
        )
    kept.verify()
    learner.load(read_learner(kept)["learner"])
    return best


def write_episodes(run: RunFolder, step: int, collected: Collected) -> None:
    """What was trained on, and beside it what came to nothing, with its errors."""
    run.write_episodes(step, [episode for group in collected.groups for episode in group.episodes])
    if collected.failed:
        run.write_episodes(step, collected.failed, arm=FAILED)


def save(run: RunFolder, learner: Learns, schedule: Schedule, step: int, collector: Collector) -> None:
    """A checkpoint that continues exactly: trained weights, master weights, optimiser, controls, random state, and what waits.

    Where the best weights are kept, the best checkpoint so far stays besides the latest, and the one that was it before."""
    first, spare = schedule.first, set[int]()
    if schedule.keep == "best":
        latest = [each.step - first for each in run.checkpoints()[-1:]]
        found = [best_step(run, learner.role, each) for each in (*latest, step)]
        spare = {first + best for best in found if best is not None}
    with run.checkpoint(first + step, spare=spare) as folder:
        save_trained(learner.model, learner.master_weights.named, folder / learner.role)
        state = {"first": first, "step": step, "role": learner.role, "torch_rng": torch.get_rng_state()}
        torch.save({**state, "learner": learner.state()}, folder / LEARNER)
        collector.save(folder, first + step)


def restore(run: RunFolder, learner: Learns, first: int) -> int | None:
    """Continue from the run's last checkpoint if it belongs to this training; returns how many steps are done.

    None where there is none, which is not 0: a training whose first step diverged left a checkpoint of 0 steps, and
    what comes before the first step is behind it. Raises CheckpointCorrupt for one that cannot be continued from."""
    last = run.latest_checkpoint()
    if last is None:
        return None
    state = read_learner(last)
    with reading(last.path / LEARNER, last):
        if state["first"] != first or state["role"] != learner.role:
            return None
        learner.load(state["learner"])
        torch.set_rng_state(state["torch_rng"])
        return int(state["step"])


# What the episodes of a step say about themselves, as numbers: by reward term, by source, by policy version.
#
# What only the weights can tell (entropy, effective sample size, gap between sampler and learner) is measured by the learner.


ALWAYS = (StopReason.MAX_TOKENS, StopReason.PARSE_ERROR)
"""Endings whose share is logged where it is 0, too: a curve of them should begin at 0."""


def episode_metrics(
    groups: Sequence[Group], version: int | None = None, optional: Collection[str] = ()
) -> dict[str, float]:
    """Means over the step's episodes; names with a slash form families. Shares are between 0 and 1.

    version: the learner's, for the lag of the weights that drew the tokens. optional: reward terms that may have nothing to say
    of an episode, which then is none of theirs; others are 0 there. Raises ValueError without an episode."""
    episodes = [episode for group in groups for episode in group.episodes]
    if not episodes:
        raise ValueError("a step without an episode has nothing to measure")
    metrics = {"episodes": float(len(episodes)), "reward": _mean(e.reward for e in episodes)}
    for name in dict.fromkeys(term.name for episode in episodes for term in episode.rewards):
        of = [e.rewards for e in episodes if name not in optional or not is_silent(e.rewards, name)]
        metrics[f"reward/{name}"] = sum(term.value for terms in of for term in terms if term.name == name) / len(of)
    return {
        **metrics,
        **_lengths(episodes),
        **_endings(episodes),
        **_memory(episodes),
        **_operations(episodes),
        **_sources(groups),
        **({} if version is None else _lags(episodes, version)),
    }


def source_of(task: str) -> str:
    """The data set of a task, the first part of its key: `longmemeval` of `longmemeval/3f2a`. "" where there is none."""
    return task.split("/", 1)[0] if "/" in task else ""


def is_right(episode: Episode) -> bool:
    """At least half of the most that the episode's reward terms could add up to, were each at most 1."""
    return episode.reward >= 0.5 * sum(max(0.0, term.weight) for term in episode.rewards)


def _lengths(episodes: Sequence[Episode]) -> dict[str, float]:
    """tokens: every prompt once and every drawn token, which is what the learner computes."""
    prompts = {s.context for episode in episodes for s in episode.segments}
    lengths = [_drawn(episode) for episode in episodes]
    metrics = {
        "tokens": float(sum(map(len, prompts)) + sum(lengths)),
        "drawn_tokens": float(sum(lengths)),
        "response_length": _mean(lengths),
        "response_length/p95": _at(0.95, lengths),
    }
    if prompts:
        metrics["prompt_length"] = _mean(map(len, prompts))
    return metrics | _split(episodes, is_right, "response_length/right", "response_length/wrong", _drawn)


def _endings(episodes: Sequence[Episode]) -> dict[str, float]:
    occurred = [stop for stop in StopReason if stop in ALWAYS or any(e.stop is stop for e in episodes)]
    metrics = {f"stop/{stop.value}": _mean(e.stop is stop for e in episodes) for stop in occurred}
    if any(episode.errors for episode in episodes):
        metrics["episodes_with_errors"] = _mean(bool(episode.errors) for episode in episodes)
    return metrics


def _memory(episodes: Sequence[Episode]) -> dict[str, float]:
    """Reads and writes per episode, and what an episode earned with something shown to it and with nothing."""
    metrics = {}
    if any(episode.shown or episode.decisions for episode in episodes):
        metrics["memory/shown"] = _mean(len(e.shown) for e in episodes)
        metrics["memory/reads"] = _mean(_reads(e) for e in episodes)
        metrics |= _split(
            episodes, lambda e: bool(e.shown), "memory/reward_with", "memory/reward_without", lambda e: e.reward
        )
    if any(episode.operations for episode in episodes):
        metrics["memory/writes"] = _mean(
            sum(o.status is not ParseStatus.INVALID for o in e.operations) for e in episodes
        )
    return metrics


def _operations(episodes: Sequence[Episode]) -> dict[str, float]:
    events = [event for episode in episodes for event in episode.operations]
    if not events:
        return {}
    kinds = dict.fromkeys(event.operation.kind for event in events)
    return {
        "invalid_operations": _mean(event.status is ParseStatus.INVALID for event in events),
        **{f"operation/{kind.value}": _mean(event.operation.kind is kind for event in events) for kind in kinds},
    }


def _sources(groups: Sequence[Group]) -> dict[str, float]:
    """The same few numbers for each source, so that a mixed run can be taken apart."""
    by_source: dict[str, list[Group]] = {}
    for group in groups:
        if group.episodes and (source := group.episodes[0].source or source_of(group.task)):
            by_source.setdefault(source, []).append(group)
    metrics = {}
    for source, own in by_source.items():
        episodes = [episode for group in own for episode in group.episodes]
        several = [group for group in own if len(group.episodes) > 1]
        metrics[f"source/{source}/episodes"] = float(len(episodes))
        metrics[f"source/{source}/reward"] = _mean(e.reward for e in episodes)
        metrics[f"source/{source}/response_length"] = _mean(map(_drawn, episodes))
        metrics[f"source/{source}/max_tokens"] = _mean(e.stop is StopReason.MAX_TOKENS for e in episodes)
        metrics[f"source/{source}/reward_std"] = _deviation([e.reward for e in episodes])
        metrics[f"source/{source}/with_errors"] = _mean(bool(e.errors) for e in episodes)
        metrics |= _split(
            episodes,
            is_right,
            f"source/{source}/response_length/right",
            f"source/{source}/response_length/wrong",
            _drawn,
        )
        if several:
            metrics[f"source/{source}/zero_variance_groups"] = _mean(
                len({e.reward for e in group.episodes}) == 1 for group in several
            )
    return metrics


def _lags(episodes: Sequence[Episode], version: int) -> dict[str, float]:
    """Versions between drawing and learning, by each episode's oldest token; by lag only where there is any."""
    by_lag: dict[int, list[float]] = {}
    for episode in episodes:
        drawn = [span.version for segment in episode.segments for span in segment.spans]
        if drawn:
            by_lag.setdefault(version - min(drawn), []).append(episode.reward)
    if not by_lag:
        return {}
    metrics = {"lag_p95": _at(0.95, [lag for lag, rewards in by_lag.items() for _ in rewards])}
    if any(by_lag):
        for lag, rewards in sorted(by_lag.items()):
            metrics[f"lag/{lag}/episodes"] = float(len(rewards))
            metrics[f"lag/{lag}/reward"] = _mean(rewards)
            metrics[f"lag/{lag}/reward_std"] = _deviation(rewards)
    return metrics


def _reads(episode: Episode) -> int:
    """Recorded searches; where none was recorded, one if something was shown."""
    return sum(d.kind is DecisionKind.SEARCH for d in episode.decisions) or int(bool(episode.shown))


def _drawn(episode: Episode) -> int:
    return sum(len(segment.ids) for segment in episode.segments)


def _split(
    episodes: Sequence[Episode],
    test: Callable[[Episode], bool],
    yes: str,
    no: str,
    value: Callable[[Episode], float],
) -> dict[str, float]:
    """Means of `value` over the episodes that pass the test and over those that do not; a name without any is left out."""
    halves = {yes: [value(e) for e in episodes if test(e)], no: [value(e) for e in episodes if not test(e)]}
    return {name: _mean(values) for name, values in halves.items() if values}


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _deviation(values: Sequence[float]) -> float:
    """Of the values as they are, not of what they were drawn from: 0 for one."""
    mean = _mean(values)
    return math.sqrt(_mean((value - mean) ** 2 for value in values))


def _at(quantile: float, values: Sequence[float]) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return float(sorted(values)[max(0, math.ceil(quantile * len(values)) - 1)])
