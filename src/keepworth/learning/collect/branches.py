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

from keepworth.episodes.episode import Episode
from keepworth.learning.objective.branching import require_same_state, sampled_sessions

if TYPE_CHECKING:
    from keepworth.learning.collect.context import RecordedContext

Reroll = Callable[[Episode, int, "RecordedContext"], Awaitable[Episode]]
"""(anchor, index of its segment, context) -> one episode from the memory before that segment: its id is the context's, its
task the anchor's, its parent the anchor's id."""


@dataclass(frozen=True, slots=True)
class Branches:
    """Re-rolls begin when a group's own episodes are done, and the group waits for them.

    reroll: makes one episode of a re-roll; size: how many a call is rolled again; probability: of each call of the anchor to be
    rolled again (0.5 in the paper); seed."""

    reroll: Reroll
    size: int
    probability: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"a probability of {self.probability} rolls nothing again: it lies above 0, up to 1")
        if self.size < 2:
            raise ValueError(f"re-rolls are compared with each other: size = {self.size} is below 2")

    def calls(self, anchor: Episode, group: int) -> tuple[int, ...]:
        """Which of the anchor's calls are rolled again: a function of the seed and the group's index."""
        seed = random.Random(f"{self.seed}/{group}").getrandbits(31)
        return sampled_sessions(len(anchor.segments), self.probability, seed)


def require_rerolls(anchor: Episode, index: int, episodes: Sequence[Episode], number: int = 0) -> None:
    """Raises ValueError where one of them starts from another memory than the call it repeats, or names another parent.

    number: of their group, for the message."""
    before = anchor.segments[index].memory_before
    require_same_state({number: [before, *(episode.memory_snapshot for episode in episodes)]})
    strays = [episode.id for episode in episodes if episode.parent != anchor.id]
    if strays:
        raise ValueError(f"re-rolls of {anchor.id!r} name another parent: {strays[:3]}")
