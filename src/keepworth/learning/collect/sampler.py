"""Where a pipeline's tokens come from: the model in this process, or an engine behind HTTP."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from keepworth.environments.environment import in_thread
from keepworth.episodes.model import FinishReason, Receipt, Sample, Tokens, VersionSpan
from keepworth.learning.collect.curriculum import AdmissionError
from keepworth.learning.learner import MasterWeights
from keepworth.learning.run_folder import replacing_folder
from keepworth.models.adapter import Outgoing, Replica, save_trained
from keepworth.models.errors import BadAnswer
from keepworth.models.http_wire import derived_seed
from keepworth.models.inprocess import ContinuousBatch, GroupBatch, InProcessModel, PartialSample

if TYPE_CHECKING:
    from keepworth.learning.collect.pipeline import Asynchrony
    from keepworth.models.http_engine import HttpModel


# Sampler: where a pipeline's tokens come from. A protocol, and the sampler of this process; `http_sampler` is the other.


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
    may_draw: whether a token may be drawn now. settle: waits until nothing else would go on by itself."""

    order: Callable[[PartialSample], Any]
    ended: Callable[[PartialSample], None]
    may_draw: Callable[[], bool]
    settle: Callable[[], Awaitable[None]]


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


class Decoder(Protocol):
    """Drafts in, finished drafts out: `ContinuousBatch`, one token each a step, or `GroupBatch`, whole calls."""

    model: InProcessModel
    steps: int

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
            for draft in self.batch.step():
                self._host.ended(draft)
                self._waits[id(draft)][1].set_result(None)
            await asyncio.sleep(0)

    def wake(self) -> None:
        self._wake.set()

    def waited_for(self) -> int:
        return _episodes(self._waits.values())

    def unfinished(self) -> int:
        return self.batch.unfinished()


def _episodes(waits: Iterable[tuple[PartialSample, asyncio.Future[None]]]) -> int:
    """How many members wait. One may have asked for several samples at once, whose streams begin alike: position and member."""
    return len({(draft.group, *draft.stream[:2]) for draft, waiting in waits if not waiting.done()})


# HttpSampler: a pipeline's tokens from an engine behind HTTP, which goes on sampling while the learner learns.
#
# Each draft is one request; as many run at once as the pipeline has slots. New weights are written to the run's folder, the
# engine loads them from there and the publication is proven (`keepworth.models.http_engine`). What runs meanwhile
#
# * goes on under the adapter it began with, or, where full weights are replaced, says from which token on it is of the new
#   ones (caches="keep");
# * is ended by the engine, which gives back what was drawn so far (vLLM does, our own small server gives nothing), and goes on
#   from there under the new weights (caches="recompute": interruptible generation, AReaL, arXiv 2505.24298).
#
# An engine draws in its own way: there is no serial mode, and what was drawn of a request that was running when the process died
# is drawn again.


PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class Written:
    """Weights on disk, for the engine to load."""

    folder: Path
    version: int


class HttpSampler:
    """Raises AdmissionError for settings that need the in-process engine, MissingCapability for what the engine lacks."""

    def __init__(self, learner: Samples, settings: Asynchrony, host: Host, engine: HttpModel, run: Path) -> None:
        self._adapter = hasattr(learner.model.network, "peft_config")
        _check(settings, engine, self._adapter)
        self._learner, self._host, self._engine = learner, host, engine
        self._slots = settings.width
        self._recomputes = settings.caches == "recompute"
        self._versions_kept = settings.staleness.max_staleness + 2
        self._folder = run / PUBLISHED / learner.role
        self._waits: dict[int, tuple[PartialSample, asyncio.Future[None]]] = {}
        self._waiting: list[PartialSample] = []
        self._running: dict[int, PartialSample] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._publications = 0
        self._publishing = False

    @property
    def version(self) -> int:
        return self._engine.version

    def outgoing(self) -> Written:
        model = self._learner.model
        folder = self._folder / f"version-{model.version:06d}"
        with replacing_folder(folder) as temporary:
            save_trained(model, self._learner.master_weights.named, temporary)
        for old in sorted(self._folder.glob("version-*"))[: -self._versions_kept]:
            shutil.rmtree(old, ignore_errors=True)
        return Written(folder, model.version)

    async def begin(self, sent: Written) -> None:
        """Where nothing has been learned yet, both sides must say the same; else the engine gets what was learned.

        Either way weights are loaded once before anything is sampled: an engine that takes none ends the run here."""
        model = self._learner.model
        if sent.version == 0:
            await in_thread(self._engine.calibrate, model)
            await in_thread(self._engine.rehearse, sent.folder, model)
            return
        if self._adapter:
            await in_thread(self._engine.calibrate, _Base(model))
        await in_thread(self._engine.publish, sent.folder, sent.version, model)

    async def publish(self, sent: Written) -> Receipt:
        self._publishing = True  # what comes back unfinished waits for the new weights
        try:
            if self._recomputes:
                await in_thread(self._engine.abort)
            receipt = await in_thread(self._engine.publish, sent.folder, sent.version, self._learner.model)
        finally:
            self._publishing = False
        self._publications += 1
        self.wake()
        return receipt

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
                self._waiting = [each for each in self._waiting if each is not draft]
        return draft.sample(self.version)

    async def run(self) -> None:
        """Requests run by themselves; this waits for the end and takes them along."""
        try:
            await asyncio.Event().wait()
        finally:
            for each in self._requests:
                each.cancel()
            await asyncio.gather(*self._requests, return_exceptions=True)

    def wake(self) -> None:
        """Send requests for as many of the waiting as there are free slots."""
        while self._waiting and not self._publishing and len(self._running) < self._slots:
            draft = min(self._waiting, key=self._host.order)
            self._waiting = [each for each in self._waiting if each is not draft]
            self._running[id(draft)] = draft
            task = asyncio.get_running_loop().create_task(self._request(draft))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    def waited_for(self) -> int:
        return _episodes(self._waits.values())

    def unfinished(self) -> int:
        return sum(len(each.ids) for each in (*self._running.values(), *self._waiting))

    async def _request(self, draft: PartialSample) -> None:
        """One request; a sample that was ended for an update waits to go on."""
        before = self._publications
        params = replace(
            draft.params,
            max_tokens=draft.params.max_tokens - len(draft.ids),
            seed=derived_seed(draft.params.seed, *draft.stream, len(draft.ids)),
        )
        try:
            ((drawn,),) = await in_thread(self._engine.sample, [(*draft.prompt, *draft.ids)], params)
            if drawn.finish is FinishReason.ABORTED and before == self._publications and not self._publishing:
                raise BadAnswer(
                    f"{self._engine.url} ended a sample that nobody asked it to end.", "Is it shutting down?"
                )
        except Exception as error:
            del self._running[id(draft)]
            self._answer(draft, error)
        else:
            del self._running[id(draft)]
            _append(draft, drawn)
            asked = id(draft) in self._waits  # else whoever asked has given up
            if asked and draft.finish is not None:
                self._host.ended(draft)
                self._answer(draft)
            elif asked:
                self._waiting.append(draft)
        self.wake()

    def _answer(self, draft: PartialSample, error: Exception | None = None) -> None:
        _, waiting = self._waits.get(id(draft), (draft, None))
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)


class _Base:
    """The learner's model with its adapter off, which is what an engine has before the first publication."""

    def __init__(self, model: InProcessModel) -> None:
        self._model = model

    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        with self._model.without_adapter():
            return self._model.score(prompts, branches, temperature)


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
