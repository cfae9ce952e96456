"""An environment of a stream, played by hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from keepworth.worlds.scene import PROGRESS, SUCCESS, Scene, StreamTask


@dataclass(frozen=True)
class Met:
    """What an action led to: the scene, which is also reached through the names of its fields."""

    scene: Scene
    done: bool = False
    reward: float = 0.0
    signal: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scene, name)


class Game:
    def __init__(self, task: StreamTask) -> None:
        self.task, self.environment = task.task, task.environment()

    def reset(self) -> Met:
        told = asyncio.run(self.environment.reset(self.task, 0))
        met = Met(self.environment.scene)
        assert told == met.scene.seen
        return met

    def act(self, action: str) -> Met:
        step = asyncio.run(self.environment.step(action))
        met, done = self.environment.scene, step.stop is not None
        assert done or step.observation == met.seen
        rewards = {term.name: term.value for term in step.rewards}
        return Met(met, done, rewards.get(SUCCESS, 0.0), rewards.get(PROGRESS))
