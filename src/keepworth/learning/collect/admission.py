"""How far the sampler may run ahead of the learner: which groups may be started, and which are trained next.

Staleness is bounded where a group is started, not by throwing finished work away (AReaL, arXiv 2505.24298, section 4.2):
with B groups per update, S versions of lag allowed and v updates made, a group starts only while

    accepted + running < (S + v + 1) * B,

`accepted` counting every group that was ever finished and kept. The bound is on groups, so one slow group can still outlive
it; `Staleness.choose` says for which groups the next update has to wait so that none does. Synchronous training is staleness
0 of the same: see `keepworth.learning.collect.pipeline.synchronous`. Counts in, counts out: the pipeline plays by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from keepworth.learning.collect.curriculum import AdmissionError


@dataclass(frozen=True, slots=True)
class Staleness:
    """groups: trained per update. max_staleness: by how many versions a trained token may be behind the learner.
    pipeline_depth: groups started and not yet trained, in batches: 1.5 asks for half a batch more than is needed and
    goes on with the rest in the next round (APRIL, arXiv 2509.18521).

    Raises AdmissionError.
    """

    groups: int
    max_staleness: int = 1
    pipeline_depth: float = 2.0

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise AdmissionError(f"An update trains at least one group, not {self.groups}.", "Set groups to 1 or more.")
        if self.max_staleness < 0:
            raise AdmissionError(
                f"max_staleness = {self.max_staleness} is below 0.",
                "0 is synchronous; asynchronous training uses 1 to 8.",
            )
        if not 1 <= self.pipeline_depth < math.inf:
            raise AdmissionError(
                f"pipeline_depth = {self.pipeline_depth} is not a number of batches from 1 on.", "Set it to 1 or more."
            )
        if self.pipeline_depth > self.max_staleness + 1:
            raise AdmissionError(
                f"pipeline_depth = {self.pipeline_depth:g} cannot take effect: with max_staleness = {self.max_staleness} "
                f"at most {self.max_staleness + 1} batches may be started and not yet trained.",
                f"Lower pipeline_depth to {self.max_staleness + 1} or less, or raise max_staleness.",
            )

    def capacity(self, *, version: int, accepted: int, running: int, consumed: int) -> int:
        """How many groups may be started now. All arguments are counts of groups, but `version`, which counts updates."""
        within = (self.max_staleness + version + 1) * self.groups - (accepted + running)
        ahead = math.ceil(self.pipeline_depth * self.groups) - (accepted + running - consumed)
        return max(0, min(within, ahead))

    def choose(self, version: int, finished: Mapping[int, int], running: Mapping[int, int]) -> list[int] | None:
        """The groups of the update from `version`, oldest first; None where it has to wait for one that runs.

        finished, running: the version under which each group was started, by its index. Every group has a last version from
        which it can be trained, and an update waits unless, after it, all that is left can still be trained in time at `groups`
        per update. Taking what is ready is else free to leave more old groups behind than one later update can hold. Admission
        keeps it possible.
        """
        if len(finished) < self.groups:
            return None
        chosen = sorted(finished, key=lambda index: (finished[index], index))[: self.groups]
        for later in range(self.max_staleness):
            oldest = version + later - self.max_staleness  # what must be trained from version + later at the latest
            left = sum(born <= oldest for born in (*finished.values(), *running.values()))
            now = sum(finished[index] <= oldest for index in chosen)
            if now < min(self.groups, left - later * self.groups):
                return None
        return chosen
