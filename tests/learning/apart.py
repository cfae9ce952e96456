"""A rollout that uses all that a context offers, and the worker that runs it in another process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from keepworth.records import Episode, SamplingParams, Task
from keepworth.training.collect.groups import CallFailed, EpisodeContext
from keepworth.training.collect.workers import Rollouts
from tests.episode_of import call_of, episode_of

PARAMS = SamplingParams(4, seed=1)


class Playing:
    """folder: where it is noted what was called, by which process. A file `kill-MEMBER` there ends the process of that member,
    once, between its two samples."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def rollout(self, task: Task, context: EpisodeContext) -> Episode:
        shared = await context.shared("shared", self.noted, "shared", 7)
        first = await context.sample(tuple(b"go:"), PARAMS)
        number = await context.call(self.noted, f"weather {context.member}", 40 + context.member)
        order = self.folder / f"kill-{context.member}"
        if order.exists():
            order.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if task.tags.get("fails") == str(context.member) and not context.tries:
            await context.call(self.fails)
        second = await context.sample((*b"go:", *first.ids, number), PARAMS)
        place = await context.with_group("places", self.places, context.member * 10)
        segments = [call_of("r", (1,), sample) for sample in (first, second)]
        rewards = (
            await context.reward("place", lambda: place),
            await context.reward("draw", lambda: context.seed % 97),
            await context.reward("shared", lambda: shared),
        )
        return episode_of(context.id, segments, rewards, task=task.key, role="r")

    def noted(self, what: str, value: int) -> int:
        with open(self.folder / "called", "a", encoding="utf-8") as file:
            file.write(f"{what}\n")
        return value

    def places(self, items: Sequence[int]) -> list[int]:
        self.noted(f"places {sorted(items)}", 0)
        if min(items) < 0:
            raise CallFailed("nobody stands there")
        return [sum(items) - item for item in items]

    def fails(self) -> None:
        raise ValueError("no such door")


class Worker(Rollouts):
    def __init__(self, folder: str) -> None:
        super().__init__(Playing(Path(folder)).rollout)

    def has_loaded(self, module: str) -> bool:
        return module in sys.modules


class Fatal(Rollouts):
    """Ends its process whatever it is to play."""

    def __init__(self, folder: str) -> None:
        async def rollout(task: Task, context: EpisodeContext) -> Episode:
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

        super().__init__(rollout)


class Broken(Rollouts):
    """Returns an episode that cannot be written down."""

    def __init__(self, folder: str) -> None:
        async def rollout(task: Task, context: EpisodeContext) -> Episode:
            episode = await Playing(Path(folder)).rollout(task, context)
            return replace(episode, seconds={"play": object()})  # type: ignore[dict-item]

        super().__init__(rollout)
