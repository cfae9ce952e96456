"""Metrics of the episodes of a step: by reward term, by source, by policy version.

Metrics that need the weights (entropy, effective sample size, gap between sampler and learner) are computed by the learner."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from keepworth.records.episode import DecisionKind, Episode, Group, ParseStatus, StopReason, is_silent

ALWAYS = (StopReason.MAX_TOKENS, StopReason.PARSE_ERROR)
"""Endings whose share is logged even where it is 0, so that its curve begins at 0."""


def episode_metrics(
    groups: Sequence[Group], version: int | None = None, optional: Collection[str] = ()
) -> dict[str, float]:
    """Returns means over the step's episodes. Names with a slash form families; shares are between 0 and 1. Raises ValueError
    without an episode.

    Args:
        groups: The groups of the step.
        version: The learner's, for the lag of the weights that drew the tokens; None leaves the lag out.
        optional: The reward terms that may be absent from an episode, which their means then leave out; other terms count as
            0 there.
    """
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
        **_sources(groups),
        **({} if version is None else _lags(episodes, version)),
    }


def source_of(task: str) -> str:
    """Returns the data set of a task, the first part of its key: `longmemeval` of `longmemeval/3f2a`. "" where there is none."""
    return task.split("/", 1)[0] if "/" in task else ""


def is_right(episode: Episode) -> bool:
    """Whether the reward is at least half of the most that its terms could add up to, if each were at most 1."""
    return episode.reward >= 0.5 * sum(max(0.0, term.weight) for term in episode.rewards)


def _lengths(episodes: Sequence[Episode]) -> dict[str, float]:
    """Returns statistics of lengths. `tokens` counts every prompt once and every drawn token, which is what the learner
    computes."""
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
    right = [is_right(episode) for episode in episodes]
    return metrics | _split(lengths, right, "response_length/right", "response_length/wrong")


def _endings(episodes: Sequence[Episode]) -> dict[str, float]:
    occurred = [stop for stop in StopReason if stop in ALWAYS or any(e.stop is stop for e in episodes)]
    metrics = {f"stop/{stop.value}": _mean(e.stop is stop for e in episodes) for stop in occurred}
    if any(episode.errors for episode in episodes):
        metrics["episodes_with_errors"] = _mean(bool(episode.errors) for episode in episodes)
    return metrics


def _memory(episodes: Sequence[Episode]) -> dict[str, float]:
    """Returns reads and writes per episode, the mean reward of episodes with and without items shown, and the shares of each kind
    of operation."""
    metrics = {}
    if any(episode.shown or episode.decisions for episode in episodes):
        metrics["memory/shown"] = _mean(len(e.shown) for e in episodes)
        metrics["memory/reads"] = _mean(_reads(e) for e in episodes)
        rewards, shown = [e.reward for e in episodes], [bool(e.shown) for e in episodes]
        metrics |= _split(rewards, shown, "memory/reward_with", "memory/reward_without")
    if events := [event for episode in episodes for event in episode.operations]:
        invalid = sum(event.status is ParseStatus.INVALID for event in events)
        metrics["memory/writes"] = (len(events) - invalid) / len(episodes)
        metrics["invalid_operations"] = invalid / len(events)
        for kind, count in Counter(event.operation.kind for event in events).items():
            metrics[f"operation/{kind.value}"] = count / len(events)
    return metrics


def _sources(groups: Sequence[Group]) -> dict[str, float]:
    """Returns the same few metrics for each source, so that a mixed run can be analysed."""
    by_source: dict[str, list[Group]] = {}
    for group in groups:
        if group.episodes and (source := group.episodes[0].source or source_of(group.task)):
            by_source.setdefault(source, []).append(group)
    metrics = {}
    for source, terms in by_source.items():
        episodes = [episode for group in terms for episode in group.episodes]
        several = [group for group in terms if len(group.episodes) > 1]
        metrics[f"source/{source}/episodes"] = float(len(episodes))
        metrics[f"source/{source}/reward"] = _mean(e.reward for e in episodes)
        metrics[f"source/{source}/response_length"] = _mean(map(_drawn, episodes))
        metrics[f"source/{source}/max_tokens"] = _mean(e.stop is StopReason.MAX_TOKENS for e in episodes)
        if several:
            metrics[f"source/{source}/zero_variance_groups"] = _mean(
                len({e.reward for e in group.episodes}) == 1 for group in several
            )
    return metrics


def _lags(episodes: Sequence[Episode], version: int) -> dict[str, float]:
    """Returns the 95th percentile of versions between drawing and learning, by each episode's oldest token."""
    drawn = [[span.version for segment in episode.segments for span in segment.spans] for episode in episodes]
    lags = [version - min(versions) for versions in drawn if versions]
    return {"lag_p95": _at(0.95, lags)} if lags else {}


def _reads(episode: Episode) -> int:
    """Returns the number of recorded searches; where none was recorded, 1 if something was shown."""
    return sum(d.kind is DecisionKind.SEARCH for d in episode.decisions) or int(bool(episode.shown))


def _drawn(episode: Episode) -> int:
    return sum(len(segment.ids) for segment in episode.segments)


def _split(values: Sequence[float], tests: Sequence[bool], yes: str, no: str) -> dict[str, float]:
    """Returns the means of the values whose test is true and of the others. A name without values is left out."""
    tested = list(zip(values, tests, strict=True))
    halves = {yes: [value for value, test in tested if test], no: [value for value, test in tested if not test]}
    return {name: _mean(half) for name, half in halves.items() if half}


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _at(quantile: float, values: Sequence[float]) -> float:
    """Returns the smallest value that is not exceeded by at least this share of the values."""
    return float(sorted(values)[max(0, math.ceil(quantile * len(values)) - 1)])
