"""DART: successes are stored, and a group without one gets one of them.

After "Efficient Multi-turn RL for GUI Agents via Decoupled Training and Adaptive Data Curation" (arXiv 2509.23866), on
compositions of strings. Of its four devices this is the experience pool, with the truncated weight that corrects for the policy
that drew the pool's episodes; the others are settings of every recipe (`sampling`, `refill`, `objective.selection`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from keepworth.methods.recipes import strings
from keepworth.records.episode import UNSOUND, Episode, Group, episode_from_json, episode_to_json
from keepworth.training.collect.sources import Source
from keepworth.training.hooks import Hooks
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Count

if TYPE_CHECKING:
    from keepworth.records import Task
    from keepworth.training.collect.groups import Again
    from keepworth.training.system import System


class Config(strings.Config):
    """Settings: the strings recipe with a pool of successes. Each task returns once in `tasks / tasks_per_step` updates."""

    tasks: int = Field(default=64, ge=8, description="compositions with words to train on")
    per_task: Count = Field(default=4, description="successes that are kept of a task")
    expires: Count = Field(default=100, description="updates after which a success is forgotten")


class SuccessPool(Source):
    """A replay of successful episodes, a few of each task, which also fills failed groups.

    Args:
        share: Share of an update's groups that are replayed from it; 0 where only a `regroup` reads it.
        above: An episode has succeeded if its score (`Episode.metric`) is above this.
        per_task: Successes stored per task, the newest.
        expires: Updates after which a success is deleted, because the policy has moved away from it.
        seed: Seed of the draws.
    """

    name, replays = "successes", True

    def __init__(
        self, share: float = 0.0, *, above: float = 0.5, per_task: int = 4, expires: int = 100, seed: int = 0
    ) -> None:
        self.share = share
        self._above, self._per_task, self._expires, self._seed = above, per_task, expires, seed
        self._stored: dict[str, list[tuple[int, Episode]]] = {}

    def success(self, task: str, key: object) -> Episode | None:
        """Returns one of the task's successes, drawn by the seed and `key`; None without any."""
        stored = self._stored.get(task, [])
        if not stored:
            return None
        return random.Random(f"{self._seed}/{key}").choice(stored)[1]

    def take(self, step: int, count: int) -> list[Group]:
        tasks = sorted(self._stored)
        groups = []
        for task in random.Random(f"{self._seed}/{step}").sample(tasks, min(count, len(tasks))):
            episodes = [episode for _, episode in self._stored[task]]
            first = episodes[0].memory_snapshot
            groups.append(Group(task, first, tuple(replace(episode, memory_snapshot=first) for episode in episodes)))
        return groups

    def keep(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        for group in groups:
            for episode in group.episodes:
                if episode.metric > self._above and episode.stop not in UNSOUND and not episode.origin:
                    stored = self._stored.setdefault(group.task, [])
                    stored.append((step, replace(episode, origin=self.name)))
                    del stored[: -self._per_task]
        for task in list(self._stored):
            fresh = [(born, episode) for born, episode in self._stored[task] if step - born < self._expires]
            if fresh:
                self._stored[task] = fresh
            else:
                del self._stored[task]
        return {f"sources/{self.name}": float(sum(map(len, self._stored.values())))}

    def state(self) -> Any:
        return {
            task: [[born, episode_to_json(episode)] for born, episode in stored]
            for task, stored in self._stored.items()
        }

    def load(self, state: Any) -> None:
        self._stored = {
            task: [(int(born), episode_from_json(record)) for born, record in stored] for task, stored in state.items()
        }


def system(config: Config) -> System:
    pool = SuccessPool(per_task=config.per_task, expires=config.expires, seed=config.seed)

    async def regroup(task: Task, group: Group, again: Again) -> Group:
        success = pool.success(task.key, again.index)
        if success is None or any(episode.metric > 0 for episode in group.episodes):
            return group
        pooled = replace(success, memory_snapshot=group.memory_snapshot)
        return replace(group, episodes=(*group.episodes[:-1], pooled))

    return replace(strings.system(config), hooks=Hooks(regroup=regroup, sources=(pool,)))


METHOD = recipe_method(
    name="dart",
    title="DART",
    paper="arXiv 2509.23866",
    about="Keeps a pool of successes, of which a group without any success is given one",
    claim="OSWorld rises from 27.5 to 42.1 % with a 7B model and all four devices.",
    differs="It trains on compositions of strings, and has one of the paper's four devices, the pool.",
    label="small",
    make=Recipe(Config, system),
)
