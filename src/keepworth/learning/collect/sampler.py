"""Where a pipeline's tokens come from: the model in this process, or engines behind HTTP."""

from __future__ import annotations

import asyncio
import math
import shutil
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from keepworth.environments.environment import in_thread
from keepworth.episodes.model import FinishReason, Receipt, Sample, Tokens, VersionSpan
from keepworth.learning.collect.curriculum import AdmissionError
from keepworth.learning.learner import MasterWeights
from keepworth.learning.run_folder import replacing_folder
from keepworth.models.adapter import Outgoing, Replica, save_trained
from keepworth.models.errors import (
    EngineDied,
    EngineError,
    EngineRefused,
    EngineUnreachable,
    MissingCapability,
    NoEngineLeft,
)
from keepworth.models.http_wire import derived_seed
from keepworth.models.inprocess import ContinuousBatch, GroupBatch, InProcessModel
from keepworth.models.partial_sample import PartialSample

if TYPE_CHECKING:
    from keepworth.learning.collect.pipeline import Asynchrony
    from keepworth.models.http_engine import HttpModel


# Sampler: where a pipeline's tokens come from. A protocol, and the sampler of this process.


class Samples(Protocol):
    """What a pipeline needs of the learner's side."""

    @property
    def model(self) -> InProcessModel: ...

    @property
    def master_weights(self) -> MasterWeights: ...

    @property
    def role(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Host:
    """What a sampler asks of the pipeline it works for.

    order: which draft goes first, the smallest key. ended: told of every draft that ended, before whoever waits for it.
    may_draw: whether a token may be drawn now. settle: waits until nothing else would go on by itself. open_groups: indices of
    those that are being sampled."""

    order: Callable[[PartialSample], Any]
    ended: Callable[[PartialSample], None]
    may_draw: Callable[[], bool]
    settle: Callable[[], Awaitable[None]]
    open_groups: Callable[[], Collection[int]]


class Sampler(Protocol):
    """All but `outgoing` is called on the pipeline's event loop."""

    @property
    def version(self) -> int:
        """Of the weights in service."""
        ...

    def outgoing(self) -> Any:
        """What `publish` is given. Called in the learner's thread, where no step is being made."""
        ...

    async def begin(self, sent: Any) -> None:
        """The first publication: of what the run begins with, or continues with."""
        ...

    async def publish(self, sent: Any) -> Receipt | None:
        """Bring new weights into service and prove that they arrived; None where the learner's own are in service. The learner
        waits meanwhile."""
        ...

    async def sample(self, draft: PartialSample) -> Sample:
        """Go on with a draft until it ends; it holds what was drawn also while it is waited for."""
        ...

    async def run(self) -> None:
        """Draw, until cancelled."""
        ...

    def wake(self) -> None:
        """What `Host.may_draw` says may have changed."""
        ...

    def waited_for(self) -> int:
        """Episodes that wait for drafts, one or several each."""
        ...

    def unfinished(self) -> int:
        """Tokens of drafts that have not ended."""
        ...

    def news(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Since this was asked last: what drawing took, as metrics, and lines for people about what happened."""
        ...


class Decoder(Protocol):
    """Drafts in, finished drafts out: `ContinuousBatch`, one token each a step, or `GroupBatch`, whole calls.

    steps: decoding steps made; drawn: tokens that they drew; read: tokens of prompts, and of what is continued, that were
    read."""

    model: InProcessModel
    steps: int
    drawn: int
    read: int

    def add(self, draft: PartialSample) -> None: ...

    def remove(self, draft: PartialSample) -> None: ...

    @property
    def busy(self) -> bool: ...

    def unfinished(self) -> int: ...

    def step(self) -> list[PartialSample]: ...


class LocalSampler:
    """A decoder in this process: whole calls on the learner's own weights where the settings allow it, else a continuous batch
    on a copy of them."""

    def __init__(self, learner: Samples, settings: Asynchrony, host: Host) -> None:
        self._learner, self._host = learner, host
        self._keeps_caches = settings.caches == "keep"
        self._replica: Replica | None = None
        self.batch: Decoder
        if settings.whole_calls:
            self.batch = GroupBatch(learner.model, order=host.order)
        else:
            self._replica = Replica(learner.model, learner.master_weights.named)
            self.batch = ContinuousBatch(self._replica.model, settings.width, refill=settings.refill, order=host.order)
        self._waits: dict[int, tuple[PartialSample, asyncio.Future[None]]] = {}
        self._seconds, self._asked = 0.0, (0.0, 0, 0, 0)

    @property
    def version(self) -> int:
        return self.batch.model.version

    def outgoing(self) -> Outgoing | None:
        if self._replica is None:
            return None
        return self._replica.outgoing(self._learner.model, self._learner.master_weights.named)

    async def begin(self, sent: Outgoing | None) -> None:
        self._wake = asyncio.Event()
        if self._replica is not None and sent is not None:
            self._replica.publish(sent)

    async def publish(self, sent: Outgoing | None) -> Receipt | None:
        if self._replica is None or sent is None:
            return None
        assert isinstance(self.batch, ContinuousBatch)
        self.batch.interrupt(keep=self._keeps_caches)
        return self._replica.publish(sent)

    async def sample(self, draft: PartialSample) -> Sample:
        if draft.finish is None:
            self.batch.add(draft)
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waits[id(draft)] = draft, waiting
            self.wake()
            try:
                await waiting
            finally:
                if self._waits.pop(id(draft), None) is not None and draft.finish is None:
                    self.batch.remove(draft)
        return draft.sample(self.version)

    async def run(self) -> None:
        """One step for all at a time; between two steps everybody else has a turn."""
        while True:
            await self._host.settle()
            if not self.batch.busy or not self._host.may_draw():
                self._wake.clear()
                await self._wake.wait()
                continue
            begun = time.perf_counter()
            ended = self.batch.step()
            self._seconds += time.perf_counter() - begun
            for draft in ended:
                self._host.ended(draft)
                self._waits[id(draft)][1].set_result(None)
            await asyncio.sleep(0)

    def wake(self) -> None:
        self._wake.set()

    def waited_for(self) -> int:
        return _episodes(self._waits.values())

    def unfinished(self) -> int:
        return self.batch.unfinished()

    def news(self) -> tuple[dict[str, float], tuple[str, ...]]:
        now = (self._seconds, self.batch.steps, self.batch.drawn, self.batch.read)
        names = ("seconds/decode", "decode/steps", "decode/drawn", "decode/read")
        since = {name: float(new - old) for name, new, old in zip(names, now, self._asked, strict=True)}
        self._asked = now
        return since, ()


def _episodes(waits: Iterable[tuple[PartialSample, asyncio.Future[None]]]) -> int:
    """How many members wait. One may have asked for several samples at once, whose streams begin alike: position and member."""
    return len({(draft.group, *draft.stream[:2]) for draft, waiting in waits if not waiting.done()})


# HttpSampler: a pipeline's tokens from engines behind HTTP, which go on sampling while the learner learns. One engine is the
# smallest pool of them.
#
# Each draft is one request; at each engine as many run at once as the pipeline has slots. The members of a group go to one
# engine, which keeps the beginning that they share. New weights are written to the run's folder, each engine loads them from
# there and each publication is proven by itself (`keepworth.models.http_engine`). What runs meanwhile
#
# * goes on under the adapter it began with, or, where full weights are replaced, says from which token on it is of the new
#   ones (caches="keep");
# * is ended by the engine, which gives back what was drawn so far (vLLM does, our own small server gives nothing), and goes on
#   from there under the new weights (caches="recompute": interruptible generation, AReaL, arXiv 2505.24298).
#
# An engine that dies, hangs, forgets its weights or fails its proof leaves the pool. What it was drawing goes on elsewhere, from
# what it had given back. It is asked again with every publication, and let in again with the newest weights, proven.
#
# How the bound on staleness holds: `version` is that of the oldest weights in the pool, and every group is born under it.
# Versions at an engine only rise, and whoever is let in has the newest. So no token of a group is older than the group, wherever
# it goes on. Engines differ only while a publication is under way, and by that one.
#
# An engine draws in its own way: there is no serial mode, and what was drawn of a request that was running when the process died
# is drawn again.


PUBLISHED = "published"
PATIENCE = 60.0
"""Seconds. An engine that has not taken new weights so long after another one did is gone on without, until it has. So is one
that has not answered for as long whether it is there, which is a small question: a sample may take longer."""
LOOK = 20.0
"""Seconds in which an engine whose request failed has to say that it is there, and has its weights; and between two questions to
each whether it is."""
IN_A_ROW = 3
"""Requests that come to nothing, one after the other, at an engine that is well by its own account: it then leaves, where there
is another. As often is a draft asked for again whose request broke there."""
_OF_THE_REQUEST = (400, 413, 422)
"""Statuses of refusals that say nothing against the engine."""


@dataclass(frozen=True, slots=True)
class Written:
    """Weights on disk, for the engines to load."""

    folder: Path
    version: int


@dataclass(slots=True, eq=False)
class PooledEngine:
    """An engine, and what it is doing.

    left: why it is out of the pool; "" while it is in. running: its requests, by draft. publication: of the newest weights, while
    it is under way; publications: how many were begun. gap: of the last one's proof. doubted: looks under way at whether it is
    still there. troubles: requests in a row that came to nothing."""

    model: HttpModel
    slots: int
    left: str = ""
    running: dict[int, tuple[PartialSample, asyncio.Task[None]]] = field(default_factory=dict)
    publication: asyncio.Task[None] | None = None
    publications: int = 0
    gap: float = 0.0
    doubted: int = 0
    troubles: int = 0

    @property
    def takes(self) -> bool:
        """Whether a request may be sent to it now."""
        return not self.left and self.publication is None and not self.doubted and len(self.running) < self.slots


def engine_for(home: PooledEngine | None, engines: Sequence[PooledEngine]) -> PooledEngine | None:
    """Where a draft is to be drawn: at `home`, the engine of its group, while that is in the pool. Else where the fewest requests
    run; of equal ones at the one that was named first. None where it has to wait."""
    if home is None or home.left:
        home = min((each for each in engines if each.takes), key=lambda each: len(each.running), default=None)
    return home if home is not None and home.takes else None


class HttpSampler:
    """Raises AdmissionError for settings that need the in-process engine, MissingCapability for what an engine lacks, EngineError
    where the engines are not several of one kind; NoEngineLeft once all have left."""

    def __init__(
        self, learner: Samples, settings: Asynchrony, host: Host, engines: Sequence[HttpModel], run: Path
    ) -> None:
        from keepworth.models.http_engine import require_alike

        self._adapter = hasattr(learner.model.network, "peft_config")
        require_alike(engines)
        for each in engines:
            _check(settings, each, self._adapter)
        self._learner, self._host = learner, host
        self._engines = [PooledEngine(each, settings.width) for each in engines]
        self._recomputes = settings.caches == "recompute"
        self._versions_kept = settings.staleness.max_staleness + 2
        self._folder = run / PUBLISHED / learner.role
        self._waits: dict[int, tuple[PartialSample, asyncio.Future[None]]] = {}
        self._waiting: list[PartialSample] = []
        self._broken: dict[int, int] = {}
        self._homes: dict[int, PooledEngine] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._version = 0
        self._notes: list[str] = []

    @property
    def version(self) -> int:
        return self._version

    def outgoing(self) -> Written:
        model = self._learner.model
        folder = self._folder / f"version-{model.version:06d}"
        with replacing_folder(folder) as temporary:
            save_trained(model, self._learner.master_weights.named, temporary)
        for old in sorted(self._folder.glob("version-*"))[: -self._versions_kept]:
            shutil.rmtree(old, ignore_errors=True)
        return Written(folder, model.version)

    async def begin(self, sent: Written) -> None:
        """Where nothing has been learned yet, both sides must say the same; else the engines get what was learned.

        Either way weights are loaded once before anything is sampled: an engine that takes none ends the run here."""
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        witness = await in_thread(self._witness)
        before = None
        if sent.version == 0:
            before = witness
        elif self._adapter:
            before = await in_thread(self._witness, of_base=True)
        self._sent, self._version = (sent, witness), sent.version
        ready = (in_thread(_make_ready, each.model, sent, before, witness) for each in self._engines)
        for failure in await asyncio.gather(*ready, return_exceptions=True):
            if failure is not None:
                raise failure

    async def publish(self, sent: Written) -> Receipt:
        begun = time.perf_counter()
        self._sent = sent, await in_thread(self._witness)
        served = [each for each in self._engines if not each.left]
        for each in self._engines:
            if each.publication is None:  # else it goes on to these by itself
                each.publications += 1
                each.publication = self._spawn(self._bring(each))
        await self._proven(served)
        for each in served:
            if each.publication is not None:
                self._leave(
                    each, f"It has not taken version {sent.version} within {PATIENCE:g} s after another engine had."
                )
        if not self._in_pool():
            await self._gone
        self._version = sent.version
        open_groups = self._host.open_groups()
        self._homes = {group: each for group, each in self._homes.items() if group in open_groups}
        self.wake()
        gap = max(each.gap for each in self._in_pool())
        return Receipt(sent.version, gap, time.perf_counter() - begun)

    async def sample(self, draft: PartialSample) -> Sample:
        if draft.finish is None:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waits[id(draft)] = draft, waiting
            self._waiting.append(draft)
            self.wake()
            try:
                await waiting
            finally:
                self._waits.pop(id(draft), None)
                self._broken.pop(id(draft), None)
                self._waiting = [each for each in self._waiting if each is not draft]
        return draft.sample(self.version)

    async def run(self) -> None:
        """Requests run by themselves; this waits for the end and takes them along. Raises NoEngineLeft."""
        self._spawn(self._listen())
        try:
            await self._gone
        finally:
            for each in self._tasks:
                each.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        """Send requests for as many of the waiting as there are free slots where they may go."""
        if not any(each.takes for each in self._engines):
            return
        waiting: list[PartialSample] = []
        for draft in sorted(self._waiting, key=self._host.order):
            engine = engine_for(self._homes.get(draft.group), self._engines)
            if engine is None:
                waiting.append(draft)
                continue
            self._homes[draft.group] = engine
            engine.running[id(draft)] = draft, self._spawn(self._request(engine, draft))
        self._waiting = waiting

    def waited_for(self) -> int:
        return _episodes(self._waits.values())

    def unfinished(self) -> int:
        running = (draft for each in self._engines for draft, _ in each.running.values())
        return sum(len(each.ids) for each in (*running, *self._waiting))

    def news(self) -> tuple[dict[str, float], tuple[str, ...]]:
        notes, self._notes = tuple(self._notes), []
        return {"pipeline/engines": float(len(self._in_pool()))}, notes

    # -- one request ------------------------------------------------------------------------------------------------

    async def _request(self, engine: PooledEngine, draft: PartialSample) -> None:
        """One request; a sample that was ended for an update waits to go on."""
        publications, version = engine.publications, engine.model.version
        params = replace(
            draft.params,
            max_tokens=draft.params.max_tokens - len(draft.ids),
            seed=derived_seed(draft.params.seed, *draft.stream, len(draft.ids)),
        )
        try:
            ((drawn,),) = await in_thread(engine.model.sample, [(*draft.prompt, *draft.ids)], params)
        except Exception as error:
            engine.running.pop(id(draft), None)
            await self._after_error(engine, draft, error)
            return
        engine.running.pop(id(draft), None)
        if any(span.version < version for span in drawn.spans):
            forgotten = EngineDied(
                f"{engine.model.url} drew under weights older than version {version}, which it had.",
                "Was it started anew?",
            )
            await self._after_error(engine, draft, forgotten)
            return
        unasked = drawn.finish is FinishReason.ABORTED and publications == engine.publications
        _append(draft, await self._proven_part(engine, drawn))
        if unasked and draft.finish is None:
            ended = _Ended(f"{engine.model.url} ended a sample that nobody asked it to end.", "Is it shutting down?")
            await self._after_error(engine, draft, ended)
            return
        engine.troubles = 0
        self._go_on(draft)
        self.wake()

    async def _proven_part(self, engine: PooledEngine, drawn: Sample) -> Sample:
        """Full weights change under running requests before they are proven: without what was drawn under those that were not."""
        newest = max((span.version for span in drawn.spans), default=0)
        if newest > engine.model.version and engine.publication is not None:
            await asyncio.wait({engine.publication})
        return drawn if newest <= engine.model.version else _until(drawn, engine.model.version)

    async def _after_error(self, engine: PooledEngine, draft: PartialSample, error: Exception) -> None:
        """An engine that is gone, or was started anew and has forgotten its weights, leaves, and the draft goes on elsewhere. One
        that only fails leaves where there is another. What is wrong with the request itself is its episode's affair."""
        if isinstance(error, EngineError) and not isinstance(error, MissingCapability):
            engine.doubted += 1
            try:
                await self._look_at(engine, LOOK, error.message)
            finally:
                engine.doubted -= 1
            of_the_request = isinstance(error, EngineRefused) and error.status in _OF_THE_REQUEST
            engine.troubles += not of_the_request
            if engine.troubles >= IN_A_ROW and len(self._in_pool()) > 1:  # what fails at once has the fewest running
                self._leave(engine, error.message)
            broken = isinstance(error, (EngineUnreachable, EngineDied, _Ended))
            if engine.left or (broken and await self._is_worth_another(draft)):
                self._go_on(draft)
                self.wake()
                return
        self._answer(draft, error)
        self.wake()

    async def _is_worth_another(self, draft: PartialSample) -> bool:
        """Whether its request, which broke at an engine that is well, is made again; after a while."""
        broken = self._broken[id(draft)] = self._broken.get(id(draft), 0) + 1
        if broken > IN_A_ROW:
            return False
        await asyncio.sleep(0.2 * broken)
        return True

    async def _listen(self) -> None:
        """An engine that hangs breaks no connection, and would keep its requests until they time out."""
        while True:
            await asyncio.sleep(LOOK)
            asked = (each for each in self._in_pool() if each.publication is None)
            await asyncio.gather(*(self._look_at(each, PATIENCE) for each in asked))

    async def _look_at(self, engine: PooledEngine, seconds: float, before: str = "") -> None:
        """Whether it is there: where a publication is under way that finds out, else by asking. before: what made one doubt."""
        publications = engine.publications
        if engine.publication is not None:
            await asyncio.wait({engine.publication})
        elif not engine.left:
            gone = ""
            try:
                await asyncio.wait_for(in_thread(engine.model.check), seconds)
            except TimeoutError:
                gone = f"Nothing answered within {seconds:g} s."
            except EngineError as found:
                gone = found.message
            if gone and publications == engine.publications:  # else what was heard is of before
                self._leave(engine, " ".join(dict.fromkeys(filter(None, (before, gone)))))

    def _go_on(self, draft: PartialSample) -> None:
        """It is handed to whoever waits for it, if it has ended; else it waits for an engine."""
        if id(draft) not in self._waits:  # whoever asked has given up
            return
        if draft.finish is None:
            self._waiting.append(draft)
        else:
            self._host.ended(draft)
            self._answer(draft)

    def _answer(self, draft: PartialSample, error: Exception | None = None) -> None:
        _, waiting = self._waits.get(id(draft), (draft, None))
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)

    # -- who is in the pool -----------------------------------------------------------------------------------------

    def _in_pool(self) -> list[PooledEngine]:
        return [each for each in self._engines if not each.left]

    async def _bring(self, engine: PooledEngine) -> None:
        """The newest weights to an engine, until it has them, proven, and is in the pool, or fails and is out of it."""
        try:
            while engine.model.version < self._sent[0].version:
                sent, witness = self._sent
                if self._recomputes:
                    await in_thread(engine.model.abort)
                receipt = await in_thread(engine.model.publish, sent.folder, sent.version, witness)
                engine.gap = receipt.probe_gap
        except Exception as error:
            engine.publication = None
            self._leave(engine, error.message if isinstance(error, EngineError) else f"{type(error).__name__}: {error}")
            return
        engine.publication = None
        if engine.left:
            engine.left, engine.troubles = "", 0
            self._note(engine, f"is back in the pool, with version {engine.model.version}.")
        self.wake()

    async def _proven(self, served: Sequence[PooledEngine]) -> None:
        """Until each of these has the newest weights or has left, but at most PATIENCE longer than until the first has; where
        none of them takes them, until one that had left is back."""
        latest = math.inf
        while True:
            now = time.monotonic()
            waited = {each.publication for each in served if each.publication is not None}
            if any(each.publication is None for each in self._in_pool()):
                latest = min(latest, now + PATIENCE)
                if not waited or now >= latest:
                    return
            else:
                latest, waited = math.inf, {each.publication for each in self._engines if each.publication is not None}
                if not waited:
                    return
            seconds = None if latest == math.inf else latest - now
            await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def _leave(self, engine: PooledEngine, reason: str) -> None:
        """Out of the pool: what it was drawing goes on elsewhere, from what it had given back. The last one ends the run."""
        was_in = not engine.left
        engine.left = reason
        if was_in:
            for draft, request in engine.running.values():
                request.cancel()
                self._go_on(draft)
            engine.running.clear()
            self._homes = {group: each for group, each in self._homes.items() if each is not engine}
            self._note(engine, f"left the pool at version {engine.model.version}: {reason}")
        if all(each.left and each.publication is None for each in self._engines) and not self._gone.done():
            reasons = " ".join(f"{each.model.url} left: {each.left}" for each in self._engines)
            self._gone.set_exception(
                NoEngineLeft(
                    f"No engine is left to sample at. {reasons}",
                    "Look at their logs, start them, and continue the run with the command that began it.",
                )
            )
        self.wake()

    def _note(self, engine: PooledEngine, what: str) -> None:
        self._notes.append(
            f"The engine at {engine.model.url} {what} Engines in the pool: {len(self._in_pool())} of {len(self._engines)}."
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _witness(self, of_base: bool = False) -> _Witness:
        """of_base: with the adapter off, which is what an engine has before the first publication."""
        model, probes = self._learner.model, {each.model.probe for each in self._engines}
        if not of_base:
            return _Witness(model, probes)
        with model.without_adapter():
            return _Witness(model, probes)


class _Ended(EngineError):
    """An engine ended a sample by itself."""


class _Witness:
    """What the learner's model says of the engines' probes: computed once while it holds still, for all engines, and for those
    that come late."""

    def __init__(self, model: InProcessModel, probes: Iterable[tuple[Tokens, Tokens]]) -> None:
        self._scores = {(prompt, branch): model.score([prompt], [[branch]])[0][0] for prompt, branch in probes}

    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        pairs = zip(prompts, branches, strict=True)
        return [[self._scores[prompt, branch] for branch in own] for prompt, own in pairs]


def _make_ready(engine: HttpModel, sent: Written, before: _Witness | None, witness: _Witness) -> None:
    """before: of what the engine has now, as far as that is known."""
    if before is not None:
        engine.calibrate(before)
    if sent.version == 0:
        engine.rehearse(sent.folder, witness)
    else:
        engine.publish(sent.folder, sent.version, witness)


def _until(drawn: Sample, version: int) -> Sample:
    """What of it was drawn before any weights newer than `version`."""
    end = next((span.start for span in drawn.spans if span.version > version), len(drawn.ids))
    spans = tuple(span for span in drawn.spans if span.end <= end)
    return Sample(drawn.ids[:end], drawn.logprobs[:end], FinishReason.ABORTED, spans)


def _append(draft: PartialSample, drawn: Sample) -> None:
    """What was drawn, behind what the draft had; it ends where the sample did, but not where that was interrupted."""
    start = len(draft.ids)
    draft.ids += drawn.ids
    draft.logprobs += drawn.logprobs
    for span in drawn.spans:
        last = draft.spans[-1] if draft.spans else None
        if last is not None and last.version == span.version:  # the engine ended it, and nothing changed
            draft.spans[-1] = VersionSpan(last.version, last.start, start + span.end)
        else:
            draft.spans.append(VersionSpan(span.version, start + span.start, start + span.end))
    if drawn.finish is not FinishReason.ABORTED:
        draft.finish = drawn.finish
    elif len(draft.ids) >= draft.params.max_tokens:
        draft.finish = FinishReason.LENGTH


def _check(settings: Asynchrony, engine: HttpModel, adapter: bool) -> None:
    if settings.mode != "overlap":
        raise AdmissionError(
            f"mode = {settings.mode!r} needs the in-process engine: an engine behind HTTP goes on by itself.",
            "Set mode = 'overlap'.",
        )
    if settings.refill != 1:
        raise AdmissionError(
            f"refill = {settings.refill} has no effect behind HTTP: the engine fills its own batch.", "Leave it at 1."
        )
    if engine.versions_kept < settings.staleness.max_staleness + 1:
        raise AdmissionError(
            f"The engine keeps {engine.versions_kept} versions, and samples may be {settings.staleness.max_staleness} behind.",
            f"Connect with max_staleness={settings.staleness.max_staleness}.",
        )
    engine.require("adapters" if adapter else "weights")
    if not adapter:
        engine.require("pause")
    if settings.caches == "recompute":
        engine.require("abort")
