"""The bounded bank: facts come one by one, the bank holds fewer, and the question comes after the last. A model learns
to rate the importance of facts from a frozen reader's answers.

This is the plain recipe: every write gets the answer's reward, compared with that of the group, as in "Memory-R1" (arXiv
2508.19828) over a whole stream. `memory_r2` and `fine_mem` differ in the credit of single writes only. In all of them, because
the model has 135M parameters, the writer draws one digit for each fact instead of a tool call, it first imitates a rule that sees
no answer, and the reward is token F1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Amount, Count, Rate, WarmStarted

if TYPE_CHECKING:
    from keepworth.records import Episode
    from keepworth.training.recipe import Trainable


class Horizon(BaseModel):
    """A part of the training, with streams of another length."""

    model_config = ConfigDict(extra="forbid")

    steps: int = Field(ge=1)
    length: int = Field(ge=2)


class Config(WarmStarted):
    """Settings: `length` facts of LongMemEval's conversations for a bank of `budget`."""

    steps: Count = 24
    environment_seconds: float = Field(
        default=600.0, gt=0, allow_inf_nan=False, description="how long the reader may take for the banks of a group"
    )
    evaluate_every: Count = 12
    checkpoint_every: Count = 6
    questions: int | None = Field(default=None, ge=2, description="measure on the first so many streams; None is all")

    length: int = Field(default=16, ge=2, description="facts of a stream")
    budget: Count = Field(default=4, description="what the bank holds")
    unit: Literal["items", "tokens"] = Field(default="items", description="of the budget")
    streams: Count = Field(default=3, description="of every question")
    horizons: tuple[Horizon, ...] = Field(
        default=(), description="stretches of streams of other lengths before those of `length`: steps, length"
    )

    reader: str | None = Field(
        default=None, description="run whose trained answerer reads the banks; None is the untrained model"
    )
    style: Literal["direct", "distil"] = Field(default="direct", description="of the reader's answers")
    max_tokens: Count = Field(default=12, description="of the reader's answers")

    warm_start: int = Field(default=60, ge=0, description="batches in which the rule `most specific` is imitated first")
    warm_start_batch: Count = 32
    warm_start_learning_rate: Rate = 1e-3
    permuted: bool = Field(
        default=False, description="a control: banks that are read together exchange their rewards while it learns"
    )

    @model_validator(mode="after")
    def _leaves_a_choice(self) -> Config:
        for length in (self.length, *(horizon.length for horizon in self.horizons)) if self.unit == "items" else ():
            if self.budget >= length:
                raise ValueError(
                    f"a bank of {self.budget} keeps all of a stream of {length} facts: set budget below it, or length above it"
                )
        before = sum(horizon.steps for horizon in self.horizons)
        if before and before >= self.steps:
            raise ValueError(
                f"streams of length {self.length} begin after step {before}, and the training has {self.steps}: shorten the "
                "horizons, or train longer"
            )
        return self

    def length_at(self, step: int) -> int:
        """Returns the length of the streams of a step (from 0): that of its horizon, after the horizons `length`."""
        for horizon in self.horizons:
            if step < horizon.steps:
                return horizon.length
            step -= horizon.steps
        return self.length

    @property
    def local(self) -> tuple[int, float] | None:
        """Returns (re-rolls of a write, share of an episode's writes that are resampled), or None without re-rolls."""
        return None

    def credited(self, episode: Episode) -> Episode:
        """Returns the episode with the rewards that it is trained on."""
        return episode


class ChunkConfig(Config):
    """Settings of writers by calls: facts come in chunks."""

    chunk: Count = Field(default=4, description="facts that come at once")
    recent: Amount = Field(
        default=20, description="entries of each part that the writer sees, the latest; 0 shows it nothing of the bank"
    )

    @property
    def share(self) -> int:
        """Returns the number of facts per chunk that the imitated rule stores."""
        return max(1, round(self.chunk * self.budget / self.length)) if self.unit == "items" else 1


def system(config: Config) -> Trainable:
    from keepworth.methods.recipes._bank.writing import BankWriter

    return BankWriter()


METHOD = recipe_method(
    name="bounded_bank",
    title="Bounded bank",
    about="Learns what to keep of a stream of facts from what a frozen reader answers",
    tags=("token", "factual", "formation", "evolution"),
    differs="This project's own baseline for Memory-R2 and Fine-Mem: every write gets the reward of the whole stream.",
    label="small",
    make=Recipe(Config, system),
)
