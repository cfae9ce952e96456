"""Re-rolls: single calls of a group's first episode, drawn again from the memory that they began with.

The members of a group soon hold different memories, so that what they do later is not comparable; re-rolls of one call from one
memory state are. Source: Memory-R2 (LoGo-GRPO), arXiv 2605.21768.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from keepworth.episodes import Episode, Group, Task
from keepworth.learning.collect.curriculum import without_signal
from keepworth.learning.collect.groups import Again, EpisodeContext, Regroup

Reroll = Callable[[Episode, int, EpisodeContext], Awaitable[Episode]]
"""(anchor, index of its segment, context) -> one episode from the memory before that segment: its id is the context's, its
task the anchor's, its parent the anchor's id."""


def rolled_again(reroll: Reroll, size: int, probability: float, seed: int, refill: int = 0) -> Regroup:
    """A `regroup` that puts a group of re-rolls beside the group for each call that is chosen.

    Args:
        reroll: Makes one episode of a re-roll.
        size: How many a call is rolled again; those of which fewer than two come to something are left out.
        probability: Of each call of the anchor to be rolled again (0.5 in the paper).
        seed: Of that choice, with the group's index.
        refill: That of the training: a group without a signal is replaced there, and not rolled again.
    """

    async def regroup(task: Task, group: Group, again: Again) -> Sequence[Group]:
        if refill and without_signal(group):
            return (group,)
        anchor = group.episodes[0]

        def roll(call: int) -> Awaitable[list[Episode]]:
            return again.play([None] * size, lambda task, context: reroll(anchor, call, context))

        draws = random.Random(f"{seed}/{again.index}").getrandbits(31)
        rolled = await asyncio.gather(*map(roll, sampled_sessions(len(anchor.segments), probability, draws)))
        groups = [Group(task.key, episodes[0].memory_snapshot, tuple(episodes)) for episodes in rolled if episodes[1:]]
        return (group, *groups)

    return regroup


def sampled_sessions(sessions: int, probability: float, seed: int) -> tuple[int, ...]:
    """Which sessions of an anchor rollout are rolled again: each on its own with `probability`."""
    generator = random.Random(seed)
    return tuple(session for session in range(sessions) if generator.random() < probability)
