"""Memory-R2 on the bounded bank: whole streams are compared with each other, and re-rolls of a write among themselves.

After "Memory-R2: Fair Credit Assignment for Long-Horizon Memory-Augmented LLM Agents" (arXiv 2605.21768). The members of a group
soon hold different banks, so that their later writes are not comparable. So some writes of a group's first member are resampled
from the bank as it was there, `rerolls` times each, and compared with each other alone; both losses are added. Shorter streams
come first. docs/recipes.md lists the differences from the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from keepworth.methods.recipes import bounded_bank
from keepworth.methods.recipes.bounded_bank import Horizon
from keepworth.training.objective.options import Objective
from keepworth.training.objective.presets import preset
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Idle, Pairs, objective_of


class Config(bounded_bank.Config):
    """Settings: the bounded bank with re-rolls and shorter streams first. An objective without `local_weight` has no re-rolls."""

    default_objective: ClassVar[Objective] = preset("memory_r2")
    holds: ClassVar[frozenset[str]] = frozenset({"re-rolls"})

    horizons: tuple[Horizon, ...] = Field(
        default=(Horizon(steps=8, length=8),),
        description="stretches of streams of other lengths before those of `length`: steps, length",
    )
    rerolls: Pairs = Field(default=4, description="of one write, from one bank")
    reroll_share: float = Field(
        default=0.25, gt=0, le=1, description="of the writes of a group's first member, how many are drawn again"
    )

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if self.local is None:
            reason = f"with objective = {objective_of(self).name}, which has no local_weight"
            yield ("rerolls", "reroll_share"), reason, "leave objective out"

    @property
    def local(self) -> tuple[int, float] | None:
        return None if objective_of(self).local_weight is None else (self.rerolls, self.reroll_share)


METHOD = recipe_method(
    name="memory_r2",
    title="Memory-R2",
    paper="arXiv 2605.21768",
    about="Trains a writer of a bounded bank and draws single writes again from the same state",
    tags=("token", "factual", "formation", "evolution"),
    claim="LoCoMo F1 is 50.60, where Memory-R1 has 43.14.",
    differs="A digit for each fact replaces operations, with 135M parameters, one role and a frozen reader.",
    label="small",
    make=Recipe(Config, bounded_bank.system),
)
