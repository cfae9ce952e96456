"""How sampler and learner share the machine: how far the sampler may run ahead, and how long an episode may take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from keepworth.training.collect.curriculum import AdmissionError
from keepworth.training.objective.parts import Count, check_fields

# How far the sampler may run ahead of the learner: which groups may be started, and which are trained next.
#
# Staleness is bounded when a group is started, not by discarding finished work (AReaL, arXiv 2505.24298, section 4.2):
# with B groups per update, S versions of lag allowed and v updates made, a group starts only while
#
#     accepted + running < (S + v + 1) * B,
#
# where `accepted` counts every group that was ever finished and kept. The bound is on groups, so one slow group can still exceed
# it; `Staleness.choose` makes the next update wait for groups so that none does.


@check_fields(AdmissionError)
class Staleness:
    """How far the sampler may run ahead of the learner. Raises AdmissionError.

    Attributes:
        groups: Groups trained per update.
        max_staleness: The most versions by which a trained token may be behind the learner. 0 is synchronous; asynchronous
            training uses 1 to 8.
        pipeline_depth: Groups started and not yet trained, in batches. 1.5 starts half a batch more than is needed, and continues
            the rest in the next round (APRIL, arXiv 2509.18521).
    """

    groups: Count
    max_staleness: Annotated[int, Field(ge=0)] = 1
    pipeline_depth: Annotated[float, Field(ge=1)] = 2.0

    def __post_init__(self) -> None:
        if self.pipeline_depth > self.max_staleness + 1:
            raise ValueError(
                f"pipeline_depth = {self.pipeline_depth:g} cannot take effect: with max_staleness = {self.max_staleness} "
                f"at most {self.max_staleness + 1} batches may be started and not yet trained. Lower pipeline_depth, or raise "
                "max_staleness"
            )

    def capacity(self, *, version: int, accepted: int, running: int, consumed: int) -> int:
        """Returns how many groups may be started now.

        Args:
            version: The number of updates that the learner has made.
            accepted: The groups that were ever finished and kept.
            running: The groups that are started and not finished.
            consumed: The groups that were ever trained.
        """
        within = (self.max_staleness + version + 1) * self.groups - (accepted + running)
        ahead = math.ceil(self.pipeline_depth * self.groups) - (accepted + running - consumed)
        return max(0, min(within, ahead))

    def choose(self, version: int, finished: Mapping[int, int], running: Mapping[int, int]) -> list[int] | None:
        """Returns the groups of the next update, oldest first; None where it has to wait for a running group.

        Every group has a last version from which it can be trained. An update waits unless all groups that are left after it
        can still be trained in time, at `groups` per update: taking any ready groups could leave more old groups than one
        later update can hold. Admission keeps that possible.

        Args:
            version: The number of updates that the learner has made.
            finished: The version under which each finished group was started, by the group's index.
            running: The same of the groups that are not finished.
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


@check_fields(AdmissionError)
class Asynchrony:
    """How sampler and learner share the machine.

    Attributes:
        mode: "overlap" samples in a thread of its own while the learner computes. In "turns" they alternate on the same cores,
            and unfinished samples are parked meanwhile. "serial" samples only between updates (max_staleness = 0): whole calls
            are drawn once every episode waits for one, so that a run repeats exactly, also after a kill. It is faster than
            "turns", because a group's prompt is stored once.
        group_size: Episodes per group.
        slots: Sequences decoded together, whatever the group size; None is 32. Refused in serial mode, where it has no effect.
        call_seconds: The longest that a call of an environment or reward may take.
        episode_seconds: The longest that a whole episode may take.
        retries: How often a failed episode is started again.
        patience: Failed groups in a row that end the run.
    """

    staleness: Staleness
    group_size: Count
    mode: Literal["overlap", "turns", "serial"] = "overlap"
    slots: Count | None = None
    seed: int = 0
    call_seconds: float = 60.0
    episode_seconds: float = 600.0
    retries: int = 1
    patience: Count = 16

    def __post_init__(self) -> None:
        if self.mode == "serial" and self.staleness.max_staleness:
            raise ValueError(
                f"mode = 'serial' is in step with the learner, and max_staleness = {self.staleness.max_staleness}. Set "
                "max_staleness = 0, or mode = 'turns' or 'overlap'"
            )
        if self.mode == "serial" and self.slots is not None:
            raise ValueError(
                f"slots = {self.slots} has no effect with mode = 'serial', where whole calls are drawn. Leave it out, or set "
                "mode = 'turns', which decodes in slots"
            )

    @property
    def width(self) -> int:
        """The number of sequences decoded together."""
        return 32 if self.slots is None else self.slots


def synchronous(groups: int, group_size: int, *, seed: int = 0) -> Asynchrony:
    """Returns settings of synchronous training: groups are sampled for each update with the current weights. It repeats exactly.
    An episode may take a day, because every episode takes as long as its step.

    Args:
        groups: The number of groups of an update.
        group_size: The episodes of a group.
        seed: The seed of the draws.
    """
    staleness = Staleness(groups, max_staleness=0, pipeline_depth=1.0)
    return Asynchrony(staleness, group_size, mode="serial", seed=seed, episode_seconds=86_400.0)
