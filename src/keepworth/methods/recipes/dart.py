"""DART: successes are kept, and a group without one is filled from them.

After "Efficient Multi-turn RL for GUI Agents via Decoupled Training and Adaptive Data Curation" (arXiv 2509.23866), on
compositions of strings. Of its four devices this is the experience pool, with the truncated weight that repairs what the pool's
episodes were drawn under; the others are settings of every recipe (`sampling`, `refill`, `objective.selection`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import Field

from keepworth.methods.recipes import strings
from keepworth.recipes.hooks import Hooks
from keepworth.recipes.recipe import Recipe
from keepworth.recipes.settings import Count
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.episodes import Group, Task
    from keepworth.learning.collect.groups import Again
    from keepworth.recipes.system import System


class Config(strings.Config):
    """The strings recipe with a pool of successes. Each task comes back once in `tasks / tasks_per_step` updates."""

    tasks: int = Field(default=64, ge=8, description="compositions with words to train on")
    per_task: Count = Field(default=4, description="successes that are kept of a task")
    expires: Count = Field(default=100, description="updates after which a success is forgotten")


def system(config: Config) -> System:
    from keepworth.learning.collect.sources import SuccessPool

    pool = SuccessPool(per_task=config.per_task, expires=config.expires, seed=config.seed)

    async def regroup(task: Task, group: Group, again: Again) -> Group:
        success = pool.success(task.key, again.index)
        if success is None or any(episode.metric > 0 for episode in group.episodes):
            return group
        pooled = replace(success, memory_snapshot=group.memory_snapshot)
        return replace(group, episodes=(*group.episodes[:-1], pooled))

    return replace(strings.system(config), hooks=Hooks(regroup=regroup, sources=(pool,)))


METHOD = Method(
    kind="recipe",
    name="dart",
    title="DART",
    paper="arXiv 2509.23866",
    about="Keeps a pool of successes, of which a group without any success is given one",
    claim="OSWorld rises from 27.5 to 42.1 % with a 7B model and all four devices.",
    differs="It trains on compositions of strings, and has one of the paper's four devices, the pool.",
    label="small",
    make=Recipe(Config, system),
    extra="train",
)
