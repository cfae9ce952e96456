"""Rewards that depend on more than one episode's text: turned into terms of the episodes before they are learned from.

Each function takes finished episodes and returns the same ones with terms added, so that what was trained on is what
is stored. Sources: Fine-Mem, arXiv 2601.08435; Memory-R2, arXiv 2605.21768; Memory-R+, arXiv 2504.02273.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from keepworth.episodes.episode import DecisionKind, Episode, Group, RewardScope, RewardTerm
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.objective.attribution import attributed
from keepworth.learning.objective.branching import session_reward

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from keepworth.learning.objective.episodic_reward import EpisodicReward


class NoProvenance(KeepworthError, ValueError):
    """An episode that does not say which of its segments wrote what."""


@dataclass(frozen=True, slots=True)
class MemoryQuestion:
    """A question put to the memory an episode left: its score, and the ids of the items shown to the reader."""

    score: float
    retrieved: tuple[str, ...]


def writers(episode: Episode) -> dict[str, tuple[int, ...]]:
    """Item id -> indices of the segments that wrote or revised it, from the episode's WRITE decisions.

    `Decision.step` is the index of the segment that decided, `Decision.chosen` what it wrote. Raises NoProvenance for
    a step that is no segment.
    """
    found: dict[str, list[int]] = {}
    for decision in episode.decisions:
        if decision.kind is not DecisionKind.WRITE:
            continue
        if not 0 <= decision.step < len(episode.segments):
            raise NoProvenance(
                f"Decision {decision.id!r} of episode {episode.id!r} names step {decision.step}, and the episode has "
                f"{len(episode.segments)} segments.",
                "Record decisions with the index of the segment that made them.",
            )
        for item in decision.chosen:
            steps = found.setdefault(item, [])
            if decision.step not in steps:
                steps.append(decision.step)
    return {item: tuple(steps) for item, steps in found.items()}


def with_attribution(
    episode: Episode,
    asked: Sequence[MemoryQuestion],
    *,
    share: float = 0.5,
    weight: float = 1.0,
    name: str = "attribution",
) -> Episode:
    """The delayed answers' score, given back to the segments that wrote their evidence: one term a segment.

    Where every question is shown at least one item of the episode's own, the terms sum to the mean score. Add the
    score of the answers as a term of weight 0: it is already in these. Source: Fine-Mem, arXiv 2601.08435.
    """
    if not episode.segments:
        raise NoProvenance(f"Episode {episode.id!r} has no segments to credit.", "Leave it out.")
    given = attributed(
        [each.score for each in asked],
        [each.retrieved for each in asked],
        writers(episode),
        len(episode.segments),
        share,
    )
    terms = tuple(
        RewardTerm(name, value, weight, RewardScope.SEGMENT, segment=index) for index, value in enumerate(given)
    )
    return replace(episode, rewards=episode.rewards + terms)


def with_compression(
    episode: Episode, bank_tokens: int, seen_tokens: int, *, allowed: float, weight: float = 0.3
) -> Episode:
    """A term that is negative by the share of the seen tokens by which the bank exceeds `allowed` of them.

    Source: Memory-R2, arXiv 2605.21768 (see `objective.branching.session_reward` for what is unverified).
    """
    value = session_reward(0.0, bank_tokens, seen_tokens, allowed, 1.0)
    return replace(episode, rewards=(*episode.rewards, RewardTerm("compression", value, weight, shaping=True)))


def as_rerolls(anchor: Episode, index: int, rerolls: Sequence[Episode]) -> Group:
    """Re-rolls of segment `index` of `anchor` as a group of their own, compared with each other alone.

    Raises NoProvenance unless all start from the memory that the anchor had there (content hashes).
    Source: Memory-R2 (local groups), arXiv 2605.21768.
    """
    state = anchor.segments[index].memory_before
    for episode in rerolls:
        began = episode.segments[0].memory_before if episode.segments else ""
        if began != state:
            raise NoProvenance(
                f"Re-roll {episode.id!r} starts from memory {began!r}, the anchor {anchor.id!r} had {state!r} before "
                f"segment {index}.",
                "Restore the snapshot before every re-roll.",
            )
    task = f"{anchor.task}@{index}"
    own = tuple(replace(each, task=task, memory_snapshot=state, parent=anchor.id) for each in rerolls)
    return Group(task, state, own)


def with_episodic_reward(
    groups: Sequence[Group],
    aid: EpisodicReward,
    encode: Callable[[Sequence[str]], NDArray[np.float64]],
    *,
    weight: float = 1.0,
    name: str = "episodic",
) -> list[Group]:
    """Near past successes, away from past failures: a term for every answer, scored before it is remembered.

    encode: texts -> vectors [n, D]. What counts as a success is the episode's reward so far. `aid` changes: it must be
    in the checkpoint. Source: Memory-R+, arXiv 2504.02273.
    """
    found = []
    for group in groups:
        vectors = encode([group.episodes[0].question, *(episode.answer for episode in group.episodes)])
        outcomes = [episode.reward for episode in group.episodes]
        values = aid.score_group(vectors[0], vectors[1:], outcomes)
        episodes = tuple(
            replace(episode, rewards=(*episode.rewards, RewardTerm(name, value, weight, shaping=True)))
            for episode, value in zip(group.episodes, values, strict=True)
        )
        found.append(replace(group, episodes=episodes))
    return found
