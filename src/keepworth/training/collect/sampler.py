"""Samplers of a pipeline, and the one that draws with the model in this process (`http_sampler.py` has that of engines).

`version` is that of the oldest weights in service, and every group is born under it, so no token of a group is older than the
group."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from keepworth.base.needs import needs_llm

import numpy as np
import torch

from keepworth.models.attention import float32_products
from keepworth.models.drawing import Drawing
from keepworth.models.inprocess import InProcessModel
from keepworth.records.model import Receipt, Sample, SamplingParams, Tokens
from keepworth.training.collect.partial_sample import PartialSample
from keepworth.training.replica import Replica

if TYPE_CHECKING:
    from keepworth.training.collect.asynchrony import Asynchrony
    from keepworth.training.learner import Learner


class Sampler(ABC):
    """Draws the samples of a pipeline. All methods but `outgoing` are called on the pipeline's event loop. `waiting` holds the
    drafts that are being waited for."""

    def __init__(self) -> None:
        self.waiting: dict[int, PartialSample] = {}

    @property
    @abstractmethod
    def version(self) -> int:
        """The version of the weights in service."""

    @abstractmethod
    def outgoing(self) -> Any:
        """Returns what `publish` receives. It is called in the learner's thread, when no step is being made."""

    @abstractmethod
    async def begin(self, sent: Any) -> None:
        """Publishes the weights that the run begins or continues with."""

    @abstractmethod
    async def publish(self, sent: Any) -> Receipt | None:
        """Puts new weights into service and verifies that they arrived; returns None where the sampler uses the learner's own
        weights. The learner waits meanwhile."""

    @abstractmethod
    async def run(self) -> None:
        """Draws until cancelled."""

    def wake(self) -> None:  # noqa: B027 - engines need no waking
        """Notes that the answer to whether tokens may be drawn may have changed."""

    async def sample(self, draft: PartialSample) -> Sample:
        """Continues a draft until it ends, and returns its sample. The draft holds the tokens drawn so far at any time."""
        self.waiting[id(draft)] = draft
        try:
            await self._draw(draft)
        finally:
            self.waiting.pop(id(draft), None)
        return draft.sample()

    @abstractmethod
    async def _draw(self, draft: PartialSample) -> None: ...

    def unfinished(self) -> int:
        """Returns the number of tokens in drafts that have not ended."""
        return sum(len(draft.ids) for draft in self.waiting.values())

    def news(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Returns metrics of the drawing since the last call, and notes to display."""
        return {}, ()


class LocalSampler(Sampler):
    """A decoder in this process. It draws whole calls with the learner's own weights in serial mode, else one token at a time
    with a copy of them.

    Args:
        may_draw: Whether a token may be drawn now.
        settle: Waits until no other task can continue by itself.
        changed: Is called whenever a caller starts to wait for a draft.
    """

    def __init__(
        self,
        learner: Learner,
        settings: Asynchrony,
        may_draw: Callable[[], bool],
        settle: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        super().__init__()
        self._may_draw, self._settle, self._changed = may_draw, settle, changed
        self._replica: Replica | None = None
        if settings.mode != "serial":
            self._replica = Replica(learner.model, learner.master_weights.named)
        model, slots = (learner.model, None) if self._replica is None else (self._replica.model, settings.width)
        self.batch = DraftBatch(model, slots=slots)
        self._ends: dict[int, asyncio.Future[None]] = {}
        self._seconds, self._before = 0.0, (0.0, 0, 0, 0)

    @property
    def version(self) -> int:
        return self.batch.model.version

    def outgoing(self) -> Any:
        return None if self._replica is None else self._replica.outgoing()

    async def begin(self, sent: Any) -> None:
        self._wake = asyncio.Event()
        if self._replica is not None:
            self._replica.publish(sent)

    async def publish(self, sent: Any) -> Receipt | None:
        if self._replica is None:
            return None
        self.batch.interrupt()
        return self._replica.publish(sent)

    async def _draw(self, draft: PartialSample) -> None:
        self.batch.add(draft)
        end = self._ends[id(draft)] = asyncio.get_running_loop().create_future()
        self.wake()
        self._changed()
        try:
            await end
        finally:
            if self._ends.pop(id(draft), None) is not None and draft.finish is None:
                self.batch.remove(draft)

    async def run(self) -> None:
        """Steps the batch repeatedly, and lets other tasks run between two steps."""
        while True:
            await self._settle()
            if not self.batch.busy or not self._may_draw():
                self._wake.clear()
                await self._wake.wait()
                continue
            begun = time.perf_counter()
            ended = self.batch.step()
            self._seconds += time.perf_counter() - begun
            for draft in ended:
                self.waiting.pop(id(draft), None)
                if (end := self._ends.get(id(draft))) is not None and not end.done():
                    end.set_result(None)
            await asyncio.sleep(0)

    def wake(self) -> None:
        self._wake.set()

    def unfinished(self) -> int:
        return self.batch.unfinished()

    def news(self) -> tuple[dict[str, float], tuple[str, ...]]:
        now = (self._seconds, self.batch.steps, self.batch.drawn, self.batch.read)
        names = ("seconds/decode", "decode/steps", "decode/drawn", "decode/read")
        since = {name: float(new - old) for name, new, old in zip(names, now, self._before, strict=True)}
        self._before = now
        return since, ()


# Decoding samples that several callers asked for in one batch. Each ends by itself.


@dataclass(slots=True)
class _Drafts:
    """A running decode, with its drafts in the order of its branches."""

    drawing: Drawing
    drafts: list[PartialSample]


_AT_ONCE = 2
"""The most decodes at a time: each reads all weights for its tokens."""
_order = attrgetter("group", "stream")


class DraftBatch:
    """Draws drafts together until they end.

    When new weights arrive, `interrupt` drops the keys and values of the old ones; every unfinished draft is read again under the
    new weights and continues (interruptible generation: AReaL, arXiv 2505.24298, section 4.1). Tokens drawn before keep their
    log-probabilities and their version.

    `slots` is how many drafts are drawn at once, one token a `step`. None draws all waiting drafts to their ends in one step,
    during which the weights must not change."""

    def __init__(self, model: InProcessModel, *, slots: int | None = None) -> None:
        self.model, self.slots = model, slots
        self.waiting: list[PartialSample] = []
        self.steps = self.drawn = self.read = 0
        self._drawings: list[_Drafts] = []

    def add(self, draft: PartialSample) -> None:
        """Adds a draft. Raises ContextOverflow where it could exceed the model's window, ValueError where it asks for no
        token."""
        if not draft.prompt or draft.params.max_tokens < 1 or draft.params.n != 1:
            raise ValueError("a draft continues a prompt of at least one token, by one sample of at least one token")
        self.model.check([draft.prompt], draft.params)
        self.waiting.append(draft)

    @torch.inference_mode()
    def remove(self, draft: PartialSample) -> None:
        """Removes a draft. One that has ended or was never added is ignored."""
        if draft in self.waiting:
            self.waiting.remove(draft)
        for drawing in self._drawings:
            if draft in drawing.drafts:
                drawing.drawing.ended[drawing.drafts.index(draft)] = True

    @property
    def live(self) -> list[PartialSample]:
        """The drafts that are being drawn and have not ended."""
        return [drawing.drafts[branch] for drawing in self._drawings for branch in _going(drawing.drawing)]

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.live)

    def unfinished(self) -> int:
        """Returns the number of tokens in drafts that have not ended."""
        live = sum(int(drawing.drawing.drawn[~drawing.drawing.ended].sum()) for drawing in self._drawings)
        return live + sum(len(draft.ids) for draft in (*self.waiting, *self.live))

    def interrupt(self) -> None:
        """Moves unfinished drafts back to the waiting ones, to be read again. Call it before the weights change."""
        drawings, self._drawings = self._drawings, []
        for drawing in drawings:
            for branch in _going(drawing.drawing):
                drawing.drafts[branch].append(drawing.drawing.sample(branch))
                self.waiting.append(drawing.drafts[branch])

    @torch.inference_mode()
    def step(self) -> list[PartialSample]:
        """Draws one token for every running draft, or without slots all waiting drafts to their ends. Returns the drafts that
        ended."""
        with float32_products(self.model.dtype):
            if self.slots is None:
                drafts, self.waiting = sorted(self.waiting, key=_order), []
                for begun in self._begin(drafts):
                    while not begun.drawing.over:
                        self._step(begun)
                return drafts
            self._drawings = [drawing for drawing in self._drawings if not drawing.drawing.over]
            if self.waiting and len(self._drawings) < _AT_ONCE and (free := self.slots - len(self.live)) > 0:
                self.waiting.sort(key=_order)
                chosen, self.waiting = self.waiting[:free], self.waiting[free:]
                self._drawings += self._begin(chosen)
            return [draft for drawing in self._drawings for draft in self._step(drawing)]

    def _begin(self, drafts: Sequence[PartialSample]) -> Iterator[_Drafts]:
        """Starts the drafts in as few decodes as their settings allow. A prompt that a group shares is read and stored once."""
        by_prompt: dict[tuple[SamplingParams, int, Tokens], list[PartialSample]] = {}
        for draft in drafts:
            left = draft.params.max_tokens - len(draft.ids)
            alike = replace(draft.params, seed=0, max_tokens=left if self.slots is None else 1)
            if alike.grammar is not None:
                alike = replace(alike, grammar=replace(alike.grammar, begun=tuple(draft.ids)))
            by_prompt.setdefault((alike, draft.group, (*draft.prompt, *draft.ids)), []).append(draft)
        batches: dict[tuple[SamplingParams, int], list[tuple[Tokens, list[PartialSample]]]] = {}
        for (alike, _, prompt), members in by_prompt.items():
            batches.setdefault((alike, len(members)), []).append((prompt, members))
        for (alike, copies), entries in batches.items():
            limits = torch.tensor(
                [[draft.params.max_tokens - len(draft.ids) for draft in drafts] for _, drafts in entries]
            )
            params = replace(alike, n=copies, max_tokens=int(limits.max()))
            draws = np.zeros((len(entries), copies, params.max_tokens))
            for row, (_, members) in enumerate(entries):
                for column, draft in enumerate(members):
                    draws[row, column, : limits[row, column]] = draft.draws()
            uniform = None if params.temperature == 0 else torch.from_numpy(draws)
            for rows, first, drawing in self.model.drawings([prompt for prompt, _ in entries], params, uniform):
                members = [entry for row in rows for entry in entries[row][1][first : first + drawing.group]]
                drawing.limits = limits[rows, first : first + drawing.group].flatten()
                self.read += sum(len(entries[row][0]) for row in rows)
                yield _Drafts(drawing, members)

    def _step(self, drawn: _Drafts) -> list[PartialSample]:
        ended = drawn.drawing.step()
        self.steps += 1
        self.drawn += drawn.drawing.tokens
        for branch in ended:
            drawn.drafts[branch].append(drawn.drawing.sample(branch))
        return [drawn.drafts[branch] for branch in ended]


def _going(drawing: Drawing) -> list[int]:
    return [int(branch) for branch in (~drawing.ended).nonzero().flatten()]
