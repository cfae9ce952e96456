"""Re-rolls: single calls of a group's first episode, resampled from the memory that they began with.

The members of a group soon hold different memories, so that their later calls are not comparable; re-rolls of one call from one
memory state are. Source: Memory-R2 (LoGo-GRPO), arXiv 2605.21768.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from keepworth.records import Episode, Group, Task
from keepworth.training.collect.curriculum import without_signal
from keepworth.training.collect.groups import Again, EpisodeContext, Regroup

Reroll = Callable[[Episode, int, EpisodeContext], Awaitable[Episode]]
"""(anchor, index of its segment, context) -> one episode from the memory before that segment, with the context's id, the anchor's
task, and the anchor as parent."""


def rolled_again(reroll: Reroll, size: int, probability: float, seed: int, refill: int = 0) -> Regroup:
    """Returns a `regroup` that adds a group of re-rolls for each chosen call.

    Args:
        size: Re-rolls per call; a call with fewer than two finished ones is left out.
        probability: Probability with which each call of the anchor is re-rolled (0.5 in the paper).
        refill: That of the training: a group without a signal is replaced there, and not re-rolled.
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
    """Returns the sessions of an anchor rollout to re-roll, each drawn independently with `probability`."""
    generator = random.Random(seed)
    return tuple(session for session in range(sessions) if generator.random() < probability)
