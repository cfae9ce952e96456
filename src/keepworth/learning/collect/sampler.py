"""Sampler: where a pipeline's tokens come from. A protocol, and the sampler of this process; `http_sampler` is the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from keepworth.episodes.model import Receipt, Sample
from keepworth.learning.collect.asynchrony import Asynchrony
from keepworth.learning.weights.master_weights import MasterWeights
from keepworth.models.decoding import ContinuousBatch, Draft, GroupBatch
from keepworth.models.inprocess import InProcessModel
from keepworth.models.replica import Outgoing, Replica


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

    order: Callable[[Draft], Any]
    ended: Callable[[Draft], None]
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

    async def sample(self, draft: Draft) -> Sample:
        """Go on with a draft until it ends; it holds what was drawn also while it is waited for."""
        ...

    async def run(self) -> None:
        """Draw, until cancelled."""
        ...

    def wake(self) -> None:
        """What `Host.may_draw` says may have changed."""
        ...

    def waited_for(self) -> int:
        """Drafts that somebody waits for."""
        ...

    def unfinished(self) -> int:
        """Tokens of drafts that have not ended."""
        ...


class Decoder(Protocol):
    """Drafts in, finished drafts out: `ContinuousBatch`, one token each a step, or `GroupBatch`, whole calls."""

    model: InProcessModel
    steps: int

    def add(self, draft: Draft) -> None: ...

    def remove(self, draft: Draft) -> None: ...

    @property
    def busy(self) -> bool: ...

    def unfinished(self) -> int: ...

    def step(self) -> list[Draft]: ...


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
        self._waits: dict[int, asyncio.Future[None]] = {}

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

    async def sample(self, draft: Draft) -> Sample:
        if draft.finish is None:
            self.batch.add(draft)
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waits[id(draft)] = waiting
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
                self._waits[id(draft)].set_result(None)
            await asyncio.sleep(0)

    def wake(self) -> None:
        self._wake.set()

    def waited_for(self) -> int:
        return sum(not each.done() for each in self._waits.values())

    def unfinished(self) -> int:
        return self.batch.unfinished()
