"""Hooks: the places where a recipe changes what is collected, rewarded and learned from.

`Play.vary` changes how one member of a group is played; all other changes are fields here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from keepworth.base.errors import KeepworthError, require_known
from keepworth.records.episode import Group

if TYPE_CHECKING:
    from keepworth.records.episode import Task
    from keepworth.training.collect.groups import Again, GroupRollout, Regroup
    from keepworth.training.collect.later_rewards import LaterReward, Service
    from keepworth.training.collect.sources import Source
    from keepworth.training.mixture import MixedLoss
    from keepworth.training.objective.options import Objective
    from keepworth.training.settings import TrainingSettings


@dataclass(frozen=True, slots=True)
class Hooks:
    """A recipe's changes to the training loop.

    Attributes:
        roles: Roles that are trained together, each on its own calls and rewards; the recipe's role alone where empty.
        regroup: Replaces a group that has ended by the one that is trained on; it may sample for it.
        group_rollout: Makes all episodes of a group at once, such as a tree.
        later: Reward terms that are computed once a group has ended, after `regroup`.
        services: The services that those ask, by name.
        sources: Add groups to an update, and review the sampled ones.
        mixture: Losses that are added to the policy's.
    """

    roles: tuple[str, ...] = ()
    regroup: Regroup | None = None
    group_rollout: GroupRollout | None = None
    later: tuple[LaterReward, ...] = ()
    services: Mapping[str, Service] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    mixture: MixedLoss | None = None

    def regrouping(self, folder: Path) -> Regroup | None:
        """Returns a function that applies `regroup`, then `later`. The run's `folder` stores the services' answers."""
        if not self.later:
            return self.regroup
        from keepworth.training.collect.later_rewards import Services, add_later_rewards

        services = Services(self.services, folder / "services.jsonl")

        async def both(task: Task, group: Group, again: Again) -> Group | Sequence[Group] | None:
            made = group if self.regroup is None else await self.regroup(task, group, again)
            groups = [] if made is None else [made] if isinstance(made, Group) else list(made)
            rewarded = [await add_later_rewards(task, made_group, self.later, services) for made_group in groups]
            # What a required reward is silent about is left out; a group of one episode has nothing to compare.
            sizes = zip(rewarded, groups, strict=True)
            return [after for after, before in sizes if len(after.episodes) >= min(2, len(before.episodes))] or None

        return both

    def require(self, settings: TrainingSettings, objective: Objective) -> None:
        """Raises KeepworthError, before anything slow, where a hook would have no effect or cannot work with the settings."""
        from keepworth.training.collect.sources import require_sources
        from keepworth.training.objective.inputs import require_off_policy
        from keepworth.training.settings import refuse_workers

        require_sources(self.sources)
        names = [source.name for source in self.sources]
        for name in self.mixture.imitated if self.mixture is not None else ():
            require_known("source", name, names)
            if not (self.sources[names.index(name)].share or self.regroup or self.group_rollout):
                raise KeepworthError(f"The source {name!r} is imitated and has no share of an update.", "Give it one.")
        for service in filter(None, (reward.service for reward in self.later)):
            require_known("service", service, self.services)
        if self.services and not self.later:
            raise KeepworthError("There are services and no later reward that asks them.", "Leave them out.")
        replayed = [
            source
            for source in self.sources
            if source.replays and (self.mixture is None or source.name not in self.mixture.imitated)
        ]
        if replayed:  # episodes of earlier weights
            require_off_policy(objective, settings.passes, settings.minibatches, max_staleness=1)
        if self.regroup is not None or self.later:
            refuse_workers(settings, "a group is made again in the process that samples it")
        if self.group_rollout is not None:
            refuse_workers(settings, "one rollout makes all episodes of a group")


NO_HOOKS = Hooks()
"""The loop without changes."""
