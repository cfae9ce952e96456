"""Batching: many episodes, one model. Calls that wait at the same time are sampled in one batch.

`Lockstep` waits until every episode is waiting or has ended, so that what is sampled with what, and with which seed,
does not depend on how long anything took: the same arguments give the same episodes. `ReadyFirst` samples whatever is
ready while slower environments are still busy: faster where they are slow, and not reproducible.

Calls with the same prompt (the first turn of a group) are sampled as one prompt with several samples, which an engine
reads once.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from keepworth.environments.blocking import in_thread
from keepworth.episodes.model import Model, Sample, SamplingParams, Tokens


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that waits for its sample. episode: the number of the episode, which orders a batch."""

    episode: int
    prompt: Tokens
    max_tokens: int
    stop_ids: frozenset[int]
    sample: asyncio.Future[Sample]


class Batcher(Protocol):
    """enter and leave: whoever may call announces itself and says when it will call no more."""

    seconds: float

    def enter(self) -> None: ...

    def leave(self) -> None: ...

    async def sample(self, episode: int, prompt: Tokens, max_tokens: int, stop_ids: frozenset[int]) -> Sample: ...


class Lockstep:
    """Samples when everybody who entered waits."""

    def __init__(self, model: Model, temperature: float, seed: int) -> None:
        self._model, self._temperature, self._seed = model, temperature, seed
        self._inside = 0
        self._waiting: list[Waiting] = []
        self._round = 0
        self.seconds = 0.0

    def enter(self) -> None:
        self._inside += 1

    def leave(self) -> None:
        self._inside -= 1
        self._sample_if_all_wait()

    async def sample(self, episode: int, prompt: Tokens, max_tokens: int, stop_ids: frozenset[int]) -> Sample:
        future: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiting(episode, prompt, max_tokens, stop_ids, future))
        self._sample_if_all_wait()
        return await future

    def _sample_if_all_wait(self) -> None:
        self._waiting = [call for call in self._waiting if not call.sample.done()]  # done before: cancelled
        if not self._waiting or len({call.episode for call in self._waiting}) < self._inside:
            return
        calls, self._waiting = sorted(self._waiting, key=lambda call: call.episode), []
        begun = time.perf_counter()
        try:
            samples = sample_together(self._model, calls, self._temperature, f"{self._seed}/{self._round}")
        except Exception as error:
            _fail(calls, error)
            return
        self._round += 1
        self.seconds += time.perf_counter() - begun
        _hand_out(calls, samples)


class ReadyFirst:
    """Samples what waits as soon as the model is free, in a thread, while environments go on."""

    def __init__(self, model: Model, temperature: float, seed: int) -> None:
        self._model, self._temperature, self._seed = model, temperature, seed
        self._waiting: list[Waiting] = []
        self._round = 0
        self._sampler: asyncio.Task[None] | None = None
        self.seconds = 0.0

    def enter(self) -> None: ...

    def leave(self) -> None: ...

    async def sample(self, episode: int, prompt: Tokens, max_tokens: int, stop_ids: frozenset[int]) -> Sample:
        future: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiting(episode, prompt, max_tokens, stop_ids, future))
        if self._sampler is None or self._sampler.done():
            self._sampler = asyncio.create_task(self._sample_what_waits())
        return await future

    async def _sample_what_waits(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # everybody who is about to call does so first
            calls, self._waiting = sorted(self._waiting, key=lambda call: call.episode), []
            begun = time.perf_counter()
            seed = f"{self._seed}/{self._round}"
            self._round += 1
            try:
                samples = await in_thread(sample_together, self._model, calls, self._temperature, seed)
            except Exception as error:
                _fail(calls, error)
                continue
            self.seconds += time.perf_counter() - begun
            _hand_out(calls, samples)


def sample_together(model: Model, calls: Sequence[Waiting], temperature: float, seed: str) -> list[Sample]:
    """One sample per call, in the order of `calls`, in as few calls of the model as their limits allow.

    Calls differ in what ends them and in how many share their prompt: each combination is one call of the model."""
    by_prompt: dict[tuple[int, frozenset[int], Tokens], list[int]] = {}
    for index, call in enumerate(calls):
        by_prompt.setdefault((call.max_tokens, call.stop_ids, call.prompt), []).append(index)
    batches: dict[tuple[int, frozenset[int], int], list[tuple[Tokens, list[int]]]] = {}
    for (max_tokens, stop_ids, prompt), members in by_prompt.items():
        batches.setdefault((max_tokens, stop_ids, len(members)), []).append((prompt, members))
    found: dict[int, Sample] = {}
    for number, ((max_tokens, stop_ids, copies), entries) in enumerate(batches.items()):
        drawn = int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:6], "big")
        params = SamplingParams(max_tokens, copies, temperature, drawn, stop_ids)
        sampled = model.sample([prompt for prompt, _ in entries], params)
        for (_, members), samples in zip(entries, sampled, strict=True):
            found.update(zip(members, samples, strict=True))
    return [found[index] for index in range(len(calls))]


def _hand_out(calls: Sequence[Waiting], samples: Sequence[Sample]) -> None:
    for call, sample in zip(calls, samples, strict=True):
        if not call.sample.done():
            call.sample.set_result(sample)


def _fail(calls: Sequence[Waiting], error: Exception) -> None:
    """A model that fails ends the run: it is nobody's episode."""
    for call in calls:
        if not call.sample.done():
            call.sample.set_exception(error)
