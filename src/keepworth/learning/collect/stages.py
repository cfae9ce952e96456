"""Stages of a training: from which step on which reward counts, how far an episode may go, and who trains.

Functions of the step alone, so that a run that is continued is in the stage in which it was stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from keepworth.episodes.episode import Group
from keepworth.episodes.errors import KeepworthError, UnknownName


class BadStages(KeepworthError, ValueError):
    """Stages that cannot all take effect."""


@dataclass(frozen=True, slots=True)
class Stage:
    """steps: how many it lasts; the last stage goes on to the end. role: who trains ("": whoever the training is of).
    horizon: how far an episode may go, in what the recipe counts (turns, tokens of an answer). weights: of reward terms,
    by name, in the place of those the environment gave; a term that is not named keeps its own."""

    steps: int
    role: str = ""
    horizon: int | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise BadStages(f"A stage of {self.steps} steps never takes place.", "Give it at least one.")
        if self.horizon is not None and self.horizon < 1:
            raise BadStages(f"A horizon of {self.horizon} leaves no room for an answer.", "Give it at least 1.")


def require_stages(stages: Sequence[Stage], steps: int) -> None:
    """Raises BadStages where one of them begins after the last of `steps` steps: it could have no effect."""
    begins = 0
    for number, stage in enumerate(stages, 1):
        if begins >= steps:
            raise BadStages(
                f"Stage {number} begins after step {begins}, and the training has {steps}.",
                "Make the stages before it shorter, or the training longer.",
            )
        begins += stage.steps


def stage_at(stages: Sequence[Stage], step: int) -> tuple[int, Stage]:
    """(number from 0, stage) of step `step` (from 0). Raises ValueError without a stage."""
    if not stages:
        raise ValueError("there is no stage")
    for number, stage in enumerate(stages[:-1]):
        if step < stage.steps:
            return number, stage
        step -= stage.steps
    return len(stages) - 1, stages[-1]


def turns(stages: Sequence[Stage], steps: int) -> list[tuple[str, int, int]]:
    """Who trains when: (role, first step, steps), neighbours of one role merged. Each is one training, with its
    `Schedule.first`; the roles that are not training stay as they are."""
    require_stages(stages, steps)
    found: list[tuple[str, int, int]] = []
    for step in range(steps):
        role = stage_at(stages, step)[1].role
        if found and found[-1][0] == role:
            found[-1] = (role, found[-1][1], found[-1][2] + 1)
        else:
            found.append((role, step, 1))
    return found


def reweighed(group: Group, weights: Mapping[str, float]) -> Group:
    """The same episodes with other weights on their reward terms, of which the group need not have every one that is named."""
    if not weights:
        return group
    return replace(
        group,
        episodes=tuple(
            replace(
                episode,
                rewards=tuple(replace(term, weight=weights.get(term.name, term.weight)) for term in episode.rewards),
            )
            for episode in group.episodes
        ),
    )


def require_terms(groups: Sequence[Group], weights: Mapping[str, float]) -> None:
    """Raises UnknownName for a weight of a reward term that none of the groups' episodes has."""
    if not weights:
        return
    known = {term.name for group in groups for episode in group.episodes for term in episode.rewards}
    for name in weights:
        if name not in known:
            raise UnknownName("reward term", name, known)
