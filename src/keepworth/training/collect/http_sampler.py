"""Sampling at engines behind HTTP.

Each draft is one request, and the engines continue sampling while the learner learns. The members of a group go to one engine,
which caches their common prefix. New weights are written to the run's folder; each engine loads them from there and each
publication is verified separately (`keepworth.models.http_engine`). Requests that run meanwhile finish under the adapter that
they began with."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from keepworth.base.durable_files import replacing_folder
from keepworth.base.model_errors import EngineError, EngineRefused
from keepworth.models.adapter import save_trained
from keepworth.models.http_wire import derive_seed
from keepworth.records.model import Receipt, Tokens
from keepworth.training.collect.partial_sample import PartialSample
from keepworth.training.collect.sampler import Sampler
from keepworth.worlds.environment import in_thread

if TYPE_CHECKING:
    from keepworth.models.http_engine import HttpModel
    from keepworth.models.inprocess import InProcessModel
    from keepworth.training.collect.asynchrony import Asynchrony
    from keepworth.training.learner import Learner

PUBLISHED = "published"
TRIES = 3
"""How often a draft is requested from an engine before the engine is dropped."""
PAUSE = 0.2
"""Seconds before a failed request is repeated; the pause grows by as much each time."""
_OF_THE_REQUEST = (400, 413, 422)
"""Statuses of refusals that are due to the request, not to the engine."""


@dataclass(frozen=True, slots=True)
class SavedWeights:
    """Weights on disk, which the engines load."""

    folder: Path
    version: int


@dataclass(slots=True, eq=False)
class SampledEngine:
    """An engine that is sampled from. `free` guards its slots; `running` counts the drafts that it draws or that wait for a
    slot."""

    model: HttpModel
    free: asyncio.Semaphore
    running: int = 0


class HttpSampler(Sampler):
    """Engines behind HTTP. An engine that fails is dropped for the rest of the run, and its drafts continue at another.

    Raises EngineError once all have been dropped. Continuing the run tries all of them again."""

    def __init__(self, learner: Learner, settings: Asynchrony, engines: Sequence[HttpModel], run: Path) -> None:
        super().__init__()
        self._learner = learner
        self._engines = [SampledEngine(engine, asyncio.Semaphore(settings.width)) for engine in engines]
        self._count = len(engines)
        self._homes: dict[int, SampledEngine] = {}
        self._versions_kept = settings.staleness.max_staleness + 2
        self._folder = run / PUBLISHED / learner.role
        self._version = 0
        self._notes: list[str] = []

    @property
    def version(self) -> int:
        return self._version

    def outgoing(self) -> SavedWeights:
        model = self._learner.model
        folder = self._folder / f"version-{model.version:06d}"
        with replacing_folder(folder) as temporary:
            save_trained(model, self._learner.master_weights.named, temporary)
        for old in sorted(self._folder.glob("version-*"))[: -self._versions_kept]:
            shutil.rmtree(old, ignore_errors=True)
        return SavedWeights(folder, model.version)

    async def begin(self, sent: SavedWeights) -> None:
        """Checks that engines and learner agree where nothing has been learned yet, else publishes the learned weights. Either
        way weights are loaded once before anything is sampled, so that an engine which refuses them ends the run here."""
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        witness = await in_thread(self._witness)
        before = witness if sent.version == 0 else await in_thread(self._witness, of_base=True)

        def make_ready(engine: HttpModel) -> None:
            engine.calibrate(before)
            if sent.version == 0:
                engine.rehearse(sent.folder, witness)
            else:
                engine.publish(sent.folder, sent.version, witness)

        await asyncio.gather(*(in_thread(make_ready, engine.model) for engine in self._engines))
        self._version = sent.version

    async def publish(self, sent: SavedWeights) -> Receipt:
        begun = time.perf_counter()
        witness = await in_thread(self._witness)
        gaps: list[float] = []

        async def bring(engine: SampledEngine) -> None:
            try:
                gaps.append((await in_thread(engine.model.publish, sent.folder, sent.version, witness)).probe_gap)
            except EngineError as error:
                self._leave(engine, error)

        await asyncio.gather(*(bring(engine) for engine in self._engines))
        if not gaps:
            await self._gone
        self._version = sent.version
        return Receipt(sent.version, max(gaps), time.perf_counter() - begun)

    async def run(self) -> None:
        """Waits, because requests run by themselves. Raises EngineError once no engine is left."""
        await self._gone

    async def _draw(self, draft: PartialSample) -> None:
        tries = 0
        while draft.finish is None:
            engine = self._engine_for(draft.group)
            engine.running += 1
            try:
                async with engine.free:
                    await self._request(engine, draft)
                tries = 0
            except EngineError as error:
                if isinstance(error, EngineRefused) and error.status in _OF_THE_REQUEST:
                    raise
                tries += 1
                if tries == TRIES:
                    self._leave(engine, error)
                    tries = 0
                await asyncio.sleep(PAUSE * tries)
            finally:
                engine.running -= 1

    def _engine_for(self, group: int) -> SampledEngine:
        """Returns the engine that draws for the group already, else the one with the fewest drafts."""
        if not self._engines:
            self._gone.result()
        if self._homes.get(group) not in self._engines:
            self._homes[group] = min(self._engines, key=lambda engine: engine.running)
        return self._homes[group]

    async def _request(self, engine: SampledEngine, draft: PartialSample) -> None:
        params = replace(
            draft.params,
            max_tokens=draft.params.max_tokens - len(draft.ids),
            seed=derive_seed(draft.params.seed, *draft.stream, len(draft.ids)),
        )
        ((drawn,),) = await in_thread(engine.model.sample, [(*draft.prompt, *draft.ids)], params)
        draft.append(drawn)
        if draft.finish is None:
            raise EngineError(f"{engine.model.url} ended a sample by itself.", "Is it shutting down?")

    def _leave(self, engine: SampledEngine, error: EngineError) -> None:
        if engine in self._engines:
            self._engines.remove(engine)
            left = f"Engines that are left: {len(self._engines)} of {self._count}."
            self._notes.append(f"The engine at {engine.model.url} is left: {error.message} {left}")
        if not self._engines and not self._gone.done():
            gone = EngineError(
                f"No engine is left to sample at. {' '.join(self._notes[-self._count :])}",
                "Look at their logs, start them, and continue the run with the command that began it.",
            )
            self._gone.set_exception(gone)

    def news(self) -> tuple[dict[str, float], tuple[str, ...]]:
        notes, self._notes = tuple(self._notes), []
        return {"pipeline/engines": float(len(self._engines))}, notes

    def _witness(self, of_base: bool = False) -> _Witness:
        """Scores the engines' probes with the learner's model. `of_base` switches the adapter off, as engines are before the
        first publication."""
        model, probes = self._learner.model, {engine.model.probe for engine in self._engines}
        with model.without_adapter() if of_base else nullcontext():
            return _Witness(model, probes)


class _Witness:
    """The learner's log-probabilities of the engines' probes, computed once for all engines while no step is being made."""

    def __init__(self, model: InProcessModel, probes: set[tuple[Tokens, Tokens]]) -> None:
        self._scores = {(prompt, branch): model.score([prompt], [[branch]])[0][0] for prompt, branch in probes}

    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        pairs = zip(prompts, branches, strict=True)
        return [[self._scores[prompt, branch] for branch in of_prompt] for prompt, of_prompt in pairs]
