"""Group branching from a memory snapshot: single calls of a whole rollout, rolled again from the memory they began with.

Source: Memory-R2 (LoGo-GRPO), arXiv 2605.21768. The members of a group soon hold different memories, so that what they
do later is not comparable; re-rolls of one call from one memory state are. Each re-roll is an episode of its own, whose
`parent` is the anchor's id, in a group of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recollect.episodes.episode import Episode, Group
from recollect.learning.objective.branching import require_same_state, sampled_sessions

Reroll = Callable[[Episode, int], Group]
"""(anchor, index of its segment) -> a group of episodes that start from the memory before that segment."""


@dataclass(frozen=True, slots=True)
class Branches:
    """reroll: makes the group; probability: of each call of the anchor to be rolled again (0.5 in the paper); seed."""

    reroll: Reroll
    probability: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"a probability of {self.probability} rolls nothing again: it lies above 0, up to 1")


def branched(groups: Sequence[Group], branches: Branches, step: int) -> list[Group]:
    """The groups, and after them the re-rolls of each one's anchor, its first episode. A function of the seed and the step.

    Raises ValueError where a re-roll starts from another memory than the call it repeats, or does not name its parent."""
    found = list(groups)
    for number, group in enumerate(groups):
        anchor = group.episodes[0]
        seed = random.Random(f"{branches.seed}/{step}/{number}").getrandbits(31)
        for index in sampled_sessions(len(anchor.segments), branches.probability, seed):
            again = branches.reroll(anchor, index)
            before = anchor.segments[index].memory_before
            require_same_state({len(found): [before, *(episode.memory_snapshot for episode in again.episodes)]})
            strays = [episode.id for episode in again.episodes if episode.parent != anchor.id]
            if strays:
                raise ValueError(f"re-rolls of {anchor.id!r} name another parent: {strays[:3]}")
            found.append(again)
    return found
