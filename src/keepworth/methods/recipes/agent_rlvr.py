"""Agent-RLVR: a task that a whole group fails is tried again with guidance, and the update does not see the guidance.

After "Agent-RLVR: Training Software Engineering Agents via Guidance and Environment Rewards" (arXiv 2506.11425), on compositions
of strings: the guidance is the first step of the solution. The guided answers are trained on after the plain question, with
log-probabilities recomputed for it, so that training matches later use.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import Field

from keepworth.methods.recipes import strings
from keepworth.training.hooks import Hooks
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Count

if TYPE_CHECKING:
    from keepworth.records import Group, Task
    from keepworth.records.episode import Observation
    from keepworth.training.collect.groups import Again
    from keepworth.training.system import System
    from keepworth.worlds.driver import Variation


class Config(strings.Config):
    """Settings: the strings recipe with guided tries. No worked-out answer is imitated, so that some groups have no success."""

    worked: int = Field(default=0, ge=0, description="training compositions that are imitated worked out")
    guided: Count = Field(
        default=4, description="further answers, with guidance, to a task that nobody of its group solved"
    )
    strip: bool = Field(default=True, description="what is trained on does not show the guidance")


def guidance(task: Task, strip: bool) -> Variation:
    """Returns a variation that shows the first step of a task's solution before its question."""
    from keepworth.methods.recipes._strings import worked_out
    from keepworth.worlds.driver import Variation

    step = worked_out(task).split(", ")[0]

    def see(observation: Observation) -> Observation:
        return replace(observation, text=f"{step}, {observation.text}")

    return Variation("guided", see, strip=strip)


def system(config: Config) -> System:
    async def regroup(task: Task, group: Group, again: Again) -> Group:
        if any(episode.metric > 0 for episode in group.episodes):
            return group
        guided = await again.play([guidance(task, config.strip)] * config.guided)
        return replace(group, episodes=(*group.episodes, *guided))

    return replace(strings.system(config), hooks=Hooks(regroup=regroup))


METHOD = recipe_method(
    name="agent_rlvr",
    title="Agent-RLVR",
    paper="arXiv 2506.11425",
    about="Tries a task that a whole group fails again with guidance, which the update does not see",
    claim="SWE-bench Verified rises from 9.4 to 22.4 % with Qwen2.5-72B-Instruct.",
    differs="Compositions of strings replace repositories, and the group's policy gradient replaces DPO on pairs.",
    label="small",
    make=Recipe(Config, system),
)
