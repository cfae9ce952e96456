"""Group branching from a memory snapshot: single calls of a whole rollout, rolled again from the memory they began with.

Source: Memory-R2 (LoGo-GRPO), arXiv 2605.21768. The members of a group soon hold different memories, so that what they
do later is not comparable; re-rolls of one call from one memory state are. Each re-roll is an episode of its own, whose
`parent` is the anchor's id, in a group of its own.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepworth.episodes.episode import Episode, Group
from keepworth.learning.objective.branching import require_same_state, sampled_sessions

if TYPE_CHECKING:
    from keepworth.learning.collect.attempt import Attempt

Reroll = Callable[[Episode, int], Group]
"""(anchor, index of its segment) -> a group of episodes that start from the memory before that segment."""
RerollAhead = Callable[[Episode, int, "Attempt"], Awaitable[Episode]]
"""The same, one episode at a time: its id is the attempt's, its task the anchor's, its parent the anchor's id."""


@dataclass(frozen=True, slots=True)
class Branches:
    """reroll: makes the group; probability: of each call of the anchor to be rolled again (0.5 in the paper); seed."""

    reroll: Reroll
    probability: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        _require_probability(self.probability)


@dataclass(frozen=True, slots=True)
class BranchesAhead:
    """The same where groups are sampled ahead of the learner: re-rolls begin when a group's own episodes are done, and the
    group waits for them. reroll: makes one episode of a re-roll; size: how many a call is rolled again."""

    reroll: RerollAhead
    size: int
    probability: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        _require_probability(self.probability)
        if self.size < 2:
            raise ValueError(f"re-rolls are compared with each other: size = {self.size} is below 2")

    def calls(self, anchor: Episode, ticket: int) -> tuple[int, ...]:
        """Which of the anchor's calls are rolled again: a function of the seed and the group's ticket."""
        seed = random.Random(f"{self.seed}/{ticket}").getrandbits(31)
        return sampled_sessions(len(anchor.segments), self.probability, seed)


def branched(groups: Sequence[Group], branches: Branches, step: int) -> list[Group]:
    """The groups, and after them the re-rolls of each one's anchor, its first episode. A function of the seed and the step.

    Raises ValueError where a re-roll starts from another memory than the call it repeats, or does not name its parent."""
    found = list(groups)
    for number, group in enumerate(groups):
        anchor = group.episodes[0]
        seed = random.Random(f"{branches.seed}/{step}/{number}").getrandbits(31)
        for index in sampled_sessions(len(anchor.segments), branches.probability, seed):
            again = branches.reroll(anchor, index)
            require_rerolls(anchor, index, again.episodes, len(found))
            found.append(again)
    return found


def require_rerolls(anchor: Episode, index: int, episodes: Sequence[Episode], number: int = 0) -> None:
    """Raises ValueError where one of them starts from another memory than the call it repeats, or names another parent.

    number: of their group, for the message."""
    before = anchor.segments[index].memory_before
    require_same_state({number: [before, *(episode.memory_snapshot for episode in episodes)]})
    strays = [episode.id for episode in episodes if episode.parent != anchor.id]
    if strays:
        raise ValueError(f"re-rolls of {anchor.id!r} name another parent: {strays[:3]}")


def _require_probability(probability: float) -> None:
    if not 0 < probability <= 1:
        raise ValueError(f"a probability of {probability} rolls nothing again: it lies above 0, up to 1")
