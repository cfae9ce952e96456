"""Fine-Mem on the bounded bank: part of the answer's reward goes to the writes of the facts that the answer used.

After "Fine-Mem: Fine-Grained Feedback Alignment for Long-Horizon Memory Management" (arXiv 2601.08435). A write gets an even part
of the answer's reward, and of the rest the parts of the used facts that it wrote. All parts of an episode sum to the answer's
reward. A write is compared with the group's other writes of the same fact. docs/recipes.md lists the differences from the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from keepworth.methods.recipes import bounded_bank
from keepworth.records.episode import DecisionKind, Episode, ParseStatus, RewardScope, RewardTerm
from keepworth.training.objective.options import Objective
from keepworth.training.objective.presets import preset
from keepworth.training.objective.turns import StepIndex
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Count, Idle, Share, objective_of


class Config(bounded_bank.Config):
    """Settings: the bounded bank with a reward for each write. An objective that compares whole episodes gets the answer's reward
    alone."""

    default_objective: ClassVar[Objective] = preset("fine_mem")
    holds: ClassVar[frozenset[str]] = frozenset({"rewards of turns"})

    attributed: float = Field(
        default=0.5, gt=0, le=1, description="the part of the reward that goes to the writes which the answer used"
    )
    used: Count = Field(default=2, description="facts of the bank, those most like question and answer, count as used")
    format_weight: Share = Field(default=0.1, description="of whether the writer's line made sense, for its write")

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if not self._by_write:
            reason = f"with objective = {objective_of(self).name}, which credits whole episodes"
            yield ("attributed", "used", "format_weight"), reason, "leave objective out"

    @property
    def _by_write(self) -> bool:
        return isinstance(objective_of(self).advantage, StepIndex)

    def credited(self, episode: Episode) -> Episode:
        if not self._by_write:
            return episode
        return with_lines(with_shares(episode, self.attributed, self.used), self.format_weight)


def with_shares(episode: Episode, attributed: float, used: int) -> Episode:
    """Divides the answer's reward into one term for each write; the answer's own term stays, with weight 0.

    Write t of T gets  (1 - attributed) R / T + attributed * sum of R / (n w_m),  over those of the n used facts m that it wrote,
    w_m writes having written m (the paper credits the last alone). With an empty bank no fact was used: its reward is shared
    evenly by all writes. Source: Fine-Mem, arXiv 2601.08435 (known from secondary descriptions).

    Args:
        episode: The writes, and the answer with its reward.
        attributed: The share of the reward that goes by the facts that the answer used.
        used: The most facts that count as used.
    """
    from keepworth.methods.recipes._bank.reading import used_by

    (answer,) = [term for term in episode.rewards if term.name == "answer"]
    rewards = tuple(replace(term, weight=0.0) if term is answer else term for term in episode.rewards)
    facts = used_by(f"{episode.question} {episode.answer}", episode.shown, used)
    share, earned, count = attributed if facts else 0.0, answer.value * answer.weight, len(episode.segments)
    evidence, wrote = [0.0] * count, writers(episode)
    for fact in facts:
        for step in wrote.get(fact, ()):
            evidence[step] += earned / (len(facts) * len(wrote[fact]))
    even = (1 - share) * earned / count
    terms = tuple(
        RewardTerm("attribution", even + share * part, 1.0, RewardScope.SEGMENT, segment=index)
        for index, part in enumerate(evidence)
    )
    return replace(episode, rewards=rewards + terms)


def writers(episode: Episode) -> dict[str, tuple[int, ...]]:
    """Returns item id -> indices of the segments that wrote or revised it, from the episode's WRITE decisions.

    `Decision.step` is the index of the segment that decided, `Decision.chosen` the written items.
    """
    steps_by_item: dict[str, list[int]] = {}
    for decision in episode.decisions:
        if decision.kind is not DecisionKind.WRITE:
            continue
        for item in decision.chosen:
            steps = steps_by_item.setdefault(item, [])
            if decision.step not in steps:
                steps.append(decision.step)
    return {item: tuple(steps) for item, steps in steps_by_item.items()}


def with_lines(episode: Episode, weight: float) -> Episode:
    """Adds a term for each write: 1 where the writer's line was valid, else 0."""
    terms = tuple(
        RewardTerm(
            "format",
            float(event.status is not ParseStatus.INVALID),
            weight,
            RewardScope.SEGMENT,
            segment=index,
            shaping=True,
        )
        for index, event in enumerate(episode.operations)
    )
    return replace(episode, rewards=episode.rewards + terms)


METHOD = recipe_method(
    name="fine_mem",
    title="Fine-Mem",
    paper="arXiv 2601.08435",
    about="Trains a writer of a bounded bank whose writes share the reward of the answers that used them",
    tags=("token", "factual", "formation", "evolution"),
    claim="It gains 4.4 points on Mem-alpha's validation suite and 7.2 on MemoryAgentBench over Mem-alpha.",
    differs="A digit for each fact replaces operations, with 135M parameters and a frozen reader.",
    label="small",
    make=Recipe(Config, bounded_bank.system),
)
