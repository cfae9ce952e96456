"""Rewards in processes of their own: `Scorers` is the controller's side, `RewardWorker` in rollout_worker.py the other.

A judge is loaded once in each of them, on hosts that have what it needs, and environments stay where they are. What it says
depends on the task and the answer alone, so which scorer is asked changes nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from keepworth.episodes.episode import RewardTerm
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.placement import Cluster, Needs, Part, Worker, WorkerDied, spawn_lasting

if TYPE_CHECKING:
    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.progress import Progress
    from keepworth.recipes.own import Config
    from keepworth.recipes.workers import Origin

DEATHS = 5
"""So many scorers may die at one answer; its episode then fails."""

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


class _Seat:
    """One of the scorers, and after its death the one that took its place. back: while there is none."""

    def __init__(self, name: str, worker: Worker) -> None:
        self.name, self.worker = name, worker
        self.asked = 0
        self.back: Future[None] | None = None
        self.given_up = ""


class Scorers:
    """So many processes of a cluster that reward. Asked from any thread and any loop.

    part: what one is made of. note: is told of every one that dies. Raises what `Cluster.spawn` raises."""

    def __init__(self, cluster: Cluster, part: Part, count: int, note: Callable[[str], None], needs: Needs) -> None:
        self._cluster, self._part, self._needs, self._note = cluster, part, needs, note
        names = [f"scorer {number}" for number in range(1, count + 1)]
        with ThreadPoolExecutor(count) as pool:
            workers = list(pool.map(self._spawned, names))
        self._places = [_Seat(name, worker) for name, worker in zip(names, workers, strict=True)]
        self._lock = threading.Lock()

    async def terms(self, task: str, answer: str) -> list[RewardTerm]:
        """Raises WorkerFailed where a reward raises, WorkerDied where one scorer after the other dies, KeepworthError where none
        is left."""
        for tried in range(DEATHS):
            place, worker = await self._free()
            try:
                found: list[RewardTerm] = await asyncio.wrap_future(worker.call("terms", task, answer))
                return found
            except WorkerDied as died:
                self._replace(place, worker, died)
                if tried == DEATHS - 1:
                    raise
            finally:
                with self._lock:
                    place.asked -= 1
        raise AssertionError

    async def _free(self) -> tuple[_Seat, Worker]:
        """The scorer that has the fewest answers before it; where all are being replaced, the first that is back."""
        while True:
            with self._lock:
                there = [each for each in self._places if each.back is None and not each.given_up]
                if there:
                    place = min(there, key=lambda each: each.asked)
                    place.asked += 1
                    return place, place.worker
                coming = [each.back for each in self._places if each.back is not None]
                if not coming:
                    why = " ".join(each.given_up for each in self._places)
                    raise KeepworthError(f"No scorer is left. {why}", "Make room for one, and continue the run.")
            await asyncio.wait([asyncio.wrap_future(each) for each in coming], return_when=asyncio.FIRST_COMPLETED)

    def _replace(self, place: _Seat, worker: Worker, died: WorkerDied) -> None:
        with self._lock:
            if place.worker is not worker or place.back is not None or place.given_up:  # another call has seen it
                return
            place.back = Future()
            place.back.set_running_or_notify_cancel()  # whoever stops waiting does not end it
        self._note(f"{died.message} Another scorer takes its place; what it was asked is asked again.")
        threading.Thread(target=self._succeed, args=(place,), daemon=True, name=f"successor of {place.name}").start()

    def _succeed(self, place: _Seat) -> None:
        worker, why = None, ""
        try:
            worker = self._spawned(place.name)
        except Exception as error:
            why = str(error)
        with self._lock:
            if worker is not None:
                place.worker = worker
            place.given_up = why
            back, place.back = place.back, None
        if why:
            self._note(f"{place.name} has no successor, and the run goes on with fewer scorers: {why}")
        assert back is not None
        back.set_result(None)

    def _spawned(self, name: str) -> Worker:
        return spawn_lasting(self._cluster, self._part, name, self._needs, self._note)


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
    cluster = cluster_of(settings, run)
    try:
        part = Part("keepworth.recipes.rollout_worker:RewardWorker", given)
        asked.scorers = Scorers(cluster, part, settings.scorers, progress.note, needs)
        yield
    finally:
        asked.scorers = None
        cluster.close()
