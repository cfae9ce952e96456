"""DataMind's mixture: imitation and reinforcement in one loss, whose weight moves from the first to the second.

After "Scaling Generalist Data-Analytic Agents" (DataMind, arXiv 2509.25084): loss = (1 - mu) policy + mu supervised, where mu
falls from its peak to its valley along half a cosine. What is imitated here are training compositions of strings, worked out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from keepworth.methods.recipes import strings
from keepworth.recipes.hooks import Hooks
from keepworth.recipes.recipe import Recipe
from keepworth.recipes.settings import Count
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.recipes.system import System

Part = Annotated[float, Field(ge=0, le=1)]


class Config(strings.Config):
    """The strings recipe with imitation beside reinforcement, and none worked out before it."""

    worked: int = Field(default=0, ge=0, description="training compositions that are imitated worked out before")
    share: float = Field(default=0.5, gt=0, lt=1, description="of an update's groups that are imitated")
    mu_peak: Part = Field(default=0.9, description="weight of imitation at first")
    mu_valley: Part = Field(default=0.05, description="weight of imitation in the end")
    mu_decay: Count | None = Field(default=None, description="updates from the first to the second; None is all")
    mu_tokens: Literal["one", "probability", "unsure"] = Field(
        default="one", description="what a token of imitation counts: one, its probability p, or p (1 - p)"
    )


def system(config: Config) -> System:
    from keepworth.episodes import Group
    from keepworth.learning.collect.sources import Demonstrations
    from keepworth.learning.mixture import Falling, Imitation, MixedLoss
    from keepworth.recipes.system import demonstrated

    plain = strings.system(config)
    mu = Falling(config.mu_peak, config.mu_valley, decay=config.mu_decay or config.steps)

    def right_answers(model: InProcessModel) -> list[Group]:
        tasks = plain.train
        return [Group(task.key, "", (demonstrated(plain, model, task, f"right/{task.key}"),)) for task in tasks]

    return replace(
        plain,
        hooks=Hooks(
            sources=(Demonstrations(right_answers, config.share, seed=config.seed),),
            mixture=MixedLoss((Imitation("demonstrations", mu, config.mu_tokens),)),
        ),
    )


METHOD = Method(
    kind="recipe",
    name="datamind",
    title="DataMind's mixture",
    paper="arXiv 2509.25084",
    about="Mixes imitation and reinforcement in one loss, under a schedule",
    claim="The whole pipeline has a mean of 71.16 (14B) and 68.10 (7B) over data-analysis benchmarks.",
    differs="It trains on compositions of strings, and has only the mixed loss of the pipeline.",
    label="small",
    make=Recipe(Config, system),
    extra="train",
)
