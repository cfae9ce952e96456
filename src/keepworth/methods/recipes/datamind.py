"""DataMind's mixture: imitation and reinforcement in one loss, whose weight moves from the first to the second.

After "Scaling Generalist Data-Analytic Agents" (DataMind, arXiv 2509.25084): loss = (1 - mu) policy + mu supervised, where mu
falls from its peak to its valley along half a cosine. Here training compositions of strings, worked out, are imitated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from keepworth.base.errors import KeepworthError
from keepworth.methods.recipes import strings
from keepworth.records.episode import Group
from keepworth.training.collect.curriculum import batch
from keepworth.training.collect.sources import Source
from keepworth.training.hooks import Hooks
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Count

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.training.system import System

Part = Annotated[float, Field(ge=0, le=1)]


class Config(strings.Config):
    """Settings: the strings recipe with imitation besides reinforcement, and no worked-out compositions before it."""

    worked: int = Field(default=0, ge=0, description="training compositions that are imitated worked out before")
    share: float = Field(default=0.5, gt=0, lt=1, description="of an update's groups that are imitated")
    mu_peak: Part = Field(default=0.9, description="weight of imitation at first")
    mu_valley: Part = Field(default=0.05, description="weight of imitation in the end")
    mu_decay: Count | None = Field(default=None, description="updates from the first to the second; None is all")
    mu_tokens: Literal["one", "probability", "unsure"] = Field(
        default="one", description="what a token of imitation counts: one, its probability p, or p (1 - p)"
    )


class Demonstrations(Source):
    """A source of fixed groups, each in turn, in another seeded order on every pass.

    Args:
        groups: Makes them for the model that is trained.
        share: Their share of an update's groups.
        seed: Seed of the order.
    """

    def __init__(
        self,
        groups: Callable[[InProcessModel], Sequence[Group]],
        share: float,
        name: str = "demonstrations",
        seed: int = 0,
    ) -> None:
        self.name, self.share = name, share
        self._make, self._seed = groups, seed
        self._groups: list[Group] = []

    def prepare(self, model: InProcessModel) -> None:
        self._groups = [
            replace(group, episodes=tuple(replace(episode, origin=self.name) for episode in group.episodes))
            for group in self._make(model)
        ]
        if not self._groups:
            raise KeepworthError(f"The source {self.name!r} is empty.", "Give it at least one group, or leave it out.")

    def take(self, step: int, count: int) -> list[Group]:
        return batch(self._groups, count, step, f"{self._seed}/{self.name}") if count else []


def system(config: Config) -> System:
    from keepworth.training.mixture import Falling, Imitation, MixedLoss
    from keepworth.training.system import make_demonstration

    plain = strings.system(config)
    mu = Falling(config.mu_peak, config.mu_valley, decay=config.mu_decay or config.steps)

    def right_answers(model: InProcessModel) -> list[Group]:
        tasks = plain.train
        return [Group(task.key, "", (make_demonstration(plain, model, task, f"right/{task.key}"),)) for task in tasks]

    return replace(
        plain,
        hooks=Hooks(
            sources=(Demonstrations(right_answers, config.share, seed=config.seed),),
            mixture=MixedLoss((Imitation("demonstrations", mu, config.mu_tokens),)),
        ),
    )


METHOD = recipe_method(
    name="datamind",
    title="DataMind's mixture",
    paper="arXiv 2509.25084",
    about="Mixes imitation and reinforcement in one loss, under a schedule",
    claim="The whole pipeline has a mean of 71.16 (14B) and 68.10 (7B) over data-analysis benchmarks.",
    differs="It trains on compositions of strings, and has only the mixed loss of the pipeline.",
    label="small",
    make=Recipe(Config, system),
)
