"""Rewards in processes of their own: `Scorers` is the controller's side, `RewardWorker` in rollout_worker.py the other.

A judge is loaded once in each of them, on hosts that have what it needs, and environments stay where they are. What it says
depends on the task and the answer alone, so which scorer is asked changes nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from keepworth.episodes.episode import RewardTerm
from keepworth.learning.placement import Cluster, Needs, Part, WorkerDied

if TYPE_CHECKING:
    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.progress import Progress
    from keepworth.recipes.own import Config
    from keepworth.recipes.workers import Origin

DEATHS = 5
"""So often a scorer may die at one answer; its episode then fails."""

Terms = Callable[[str, str], Awaitable[list[RewardTerm]]]
"""(the task's key, the answer) to what the rewards say."""


class AskedElsewhere:
    """Who says what an answer is worth. In a rollout worker the controller is asked; in the controller its scorers."""

    def __init__(self) -> None:
        self.scorers: Scorers | None = None

    async def terms(self, task: str, answer: str) -> list[RewardTerm]:
        if self.scorers is not None:
            return await self.scorers.terms(task, answer)
        from keepworth.learning.collect.workers import SCORE, ask_controller

        found: list[RewardTerm] = await ask_controller(SCORE, task, answer)
        return found


class Scorers:
    """Processes that reward, asked from any thread and any loop; an answer goes to the one that has the fewest before it.

    Args:
        cluster: Starts them; raises what `Cluster.spawn` raises.
        part: What each is made of.
        count: How many.
        note: Receives a line for each death.
        needs: Of each.
    """

    def __init__(self, cluster: Cluster, part: Part, count: int, note: Callable[[str], None], needs: Needs) -> None:
        names = [f"scorer {number}" for number in range(1, count + 1)]
        with ThreadPoolExecutor(count) as pool:
            self._workers = list(pool.map(lambda name: cluster.spawn(part, name, needs), names))
        self._note, self._lock = note, threading.Lock()
        self._asked = [0] * count

    async def terms(self, task: str, answer: str) -> list[RewardTerm]:
        """What the rewards say of an answer to the task with this key.

        Raises:
            WorkerFailed: A reward raised.
            WorkerDied: The scorer died at this answer `DEATHS` times, or is not started again.
        """
        with self._lock:
            number = min(range(len(self._workers)), key=self._asked.__getitem__)
            self._asked[number] += 1
        worker = self._workers[number]
        try:
            for tried in range(DEATHS):
                try:
                    terms: list[RewardTerm] = await asyncio.wrap_future(worker.call("terms", task, answer))
                    return terms
                except WorkerDied as died:
                    self._note(f"{died.message} What it was asked is asked again.")
                    if tried == DEATHS - 1:
                        raise
                    await asyncio.wrap_future(worker.restarted())
        finally:
            with self._lock:
                self._asked[number] -= 1
        raise AssertionError


@contextmanager
def scorers_of(
    settings: Config, asked: AskedElsewhere | None, origin: Origin | None, run: RunFolder, progress: Progress
) -> Iterator[None]:
    """Lets `asked` ask the scorers of the settings, if there are any; at the end they are closed.

    Raises KeepworthError where one cannot make the rewards, or they fail as they are tried, and what `Cluster.spawn` raises."""
    if asked is None:
        yield
        return
    from keepworth.recipes.workers import cluster_of, made_there

    progress.phase(f"starting {settings.scorers} scorers")
    given = made_there(settings, origin, run, "scorers")
    needs = Needs(settings.scorer_cores, settings.scorer_gpus, label=settings.scorer_label)
    cluster = cluster_of(settings)
    try:
        part = Part("keepworth.recipes.rollout_worker:RewardWorker", given)
        asked.scorers = Scorers(cluster, part, settings.scorers, progress.note, needs)
        yield
    finally:
        asked.scorers = None
        cluster.close()
