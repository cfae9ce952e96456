"""A pipeline whose updates end by tokens in place of groups: C3PO++ (Ring-1T, arXiv 2510.18855), to be measured beside parking.

So many groups are always under way. Once the sampler has drawn the budget, the update trains on every group that is whole, and
the others go on under the next weights. What is done about groups that grow too old is said by `Old`:

* keep: nothing;
* wait: the update waits for a group that would else be older than the limit, whatever that costs;
* purge: it is given up, its tokens are lost, and another is started (the paper's limit on how long a rollout may live).

Measured by `benchmarks.asynchrony.lengths` and `benchmarks.asynchrony.equal_tokens`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from keepworth.episodes.model import Receipt
from keepworth.learning.collect.groups import CallLog, OpenGroup
from keepworth.learning.collect.pipeline import Pipeline
from keepworth.models.inprocess import PartialSample

Old = Literal["keep", "wait", "purge"]


def budgeted(base: type[Pipeline], tokens: int, old: Old) -> type[Pipeline]:
    """`base`, with updates of `tokens` drawn tokens. Its staleness says how many groups are under way (`pipeline_depth` batches),
    and when one is too old (`max_staleness` versions)."""

    class Budgeted(base):  # type: ignore[misc, valid-type]
        purged = 0
        """Tokens of groups that were given up."""

        def __init__(self, *arguments: Any, **others: Any) -> None:
            super().__init__(*arguments, **others)
            self._ended = self._before = 0
            self._members_of: dict[int, set[asyncio.Task[None]]] = {}

        def _start_groups(self) -> None:
            staleness = self.settings.staleness
            while len(self._open) < round(staleness.pipeline_depth * staleness.groups):
                index, task = self._curriculum.admit(self._group_order.take(), self._step + 1)
                logs = [CallLog() for _ in range(self.settings.group_size)]
                self._begin_group(OpenGroup(index, self.sampler.version, task, logs))

        def _begin_group(self, group: OpenGroup) -> None:
            before = set(self._loop._tasks)
            super()._begin_group(group)
            self._members_of[group.index] = self._loop._tasks - before

        def _end_group(self, group: OpenGroup) -> None:
            super()._end_group(group)
            del self._members_of[group.index]
            self._start_groups()

        def _learn_length(self, draft: PartialSample) -> None:
            super()._learn_length(draft)
            self._ended += len(draft.ids)

        def _drawn(self) -> int:
            return self._ended + self.sampler.unfinished()

        def _choose(self) -> list[int] | None:
            version, limit = self.sampler.version, self.settings.staleness.max_staleness
            if not len(self._waiting) or self._drawn() - self._before < tokens:
                return None
            if old == "wait" and any(version - each.born >= limit for each in self._open.values()):
                return None
            return sorted(self._waiting.groups)

        def _may_draw(self) -> bool:
            may: bool = super()._may_draw()
            if not may:
                self._loop.changed.set()  # the budget may be spent between two groups
            return may

        async def _publish(self, sent: Any) -> Receipt | None:
            receipt: Receipt | None = await super()._publish(sent)
            self._before = self._drawn()
            if old == "purge":
                await self._purge()
            return receipt

        async def _purge(self) -> None:
            staleness, version = self.settings.staleness, self.sampler.version
            for index in [i for i, each in self._open.items() if version - each.born > staleness.max_staleness]:
                self.purged += sum(len(d.ids) for d in (*self.batch.live, *self.batch.waiting) if d.group == index)
                self.purged += sum(len(s.ids) for episode in self._open[index].done.values() for s in episode.segments)
                del self._open[index]
                members = self._members_of.pop(index)
                for each in members:
                    each.cancel()
                await asyncio.gather(*members, return_exceptions=True)
                self._group_order.replace(index)
            self._before = self._drawn()

    return Budgeted
