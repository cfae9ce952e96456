"""Memory-R+ on the bounded bank: for tiny models, a reward from stored successes and failures of the training.

After "Reasoning Under 1 Billion: Memory-Augmented Reinforcement Learning for Large Language Models" (arXiv 2504.02273). Two
memories map questions to the banks that were written for them, one for right answers and one for wrong ones. With B_s and B_f the
banks of the K nearest questions there, a bank a earns besides the answer's reward

    R_mem(q, a) = norm(exploit) + norm(explore)
    exploit = -|| a - mean of B_s ||          explore = 1 - max over b in B_f of cos(a, b)
    norm(r) = (r - min) / (max - min) over the last `window` values of r

and GRPO compares the sum with the group's. explore counts after a warm-up. The writer never sees the memories, and they end with
the training. docs/recipes.md lists the differences from the paper: banks are compared in place of the reasoning of an answer, and
they are scored before they are stored, where the released script compares each wrong one with itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from keepworth.methods.recipes import bounded_bank
from keepworth.methods.recipes._episodic import EpisodicReward, RememberedEpisodes
from keepworth.records import Episode
from keepworth.training.objective.options import Objective
from keepworth.training.objective.presets import preset
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Amount, Count, Idle, Share, objective_of

if TYPE_CHECKING:
    from keepworth.training.recipe import Trainable
    from keepworth.training.watch.progress import Progress


class Config(bounded_bank.Config):
    """Settings: the bounded bank with an intrinsic reward. An objective without its term gets the answer's reward alone."""

    default_objective: ClassVar[Objective] = preset("memory_r_plus")
    holds: ClassVar[frozenset[str]] = frozenset({"a reward term 'episodic'"})

    encoder: str = Field(default="minilm", description="of questions and banks")
    neighbours: Count = Field(default=1, description="questions whose banks one is compared with")
    responses: Count = Field(default=100, description="banks that are remembered of a question, the oldest going first")
    remembered: Count = Field(default=10_000, description="questions that are remembered, the oldest going first")
    window: Count = Field(default=100, description="values over which each part of the reward is scaled")
    explore_after: Amount = Field(default=50, description="groups after which being unlike failures counts")
    success_above: Share = Field(default=0.5, description="a bank whose answer scores more is a success")
    episodic_weight: Share = Field(default=1.0, description="of the intrinsic reward, beside the answer's")

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if not self.remembers:
            keys = ("encoder", "neighbours", "responses", "remembered", "window", "explore_after", "success_above")
            reason = f"with objective = {objective_of(self).name}, which reads no such term"
            yield (*keys, "episodic_weight"), reason, "leave objective out"

    @property
    def remembers(self) -> bool:
        return objective_of(self).reward_term == "episodic"


def system(config: Config) -> Trainable:
    from keepworth.methods.recipes._bank.writing import BankWriter

    return BankWriter(remembered=partial(remembering, config) if config.remembers else None)


def remembering(config: Config, progress: Progress) -> RememberedEpisodes:
    """Returns the two memories of a training, empty."""
    from keepworth.encoders.local import encoder

    progress.phase(f"loading {config.encoder}")
    sentence_encoder = encoder(config.encoder)

    def encode(texts: Sequence[str]) -> Any:
        return np.asarray(sentence_encoder.encode(list(texts)), dtype=np.float64)

    reward = EpisodicReward(
        queries=config.remembered,
        responses=config.responses,
        window=config.window,
        neighbours=config.neighbours,
        warmup=config.explore_after,
        success_above=config.success_above,
    )
    return RememberedEpisodes(reward, encode, bank_of, config.episodic_weight)


def bank_of(episode: Episode) -> str:
    """Returns the final bank of an episode as one text."""
    return " ".join(fact.text for fact in episode.shown)


METHOD = recipe_method(
    name="memory_r_plus",
    title="Memory-R+",
    paper="arXiv 2504.02273",
    about="Trains a writer of a bounded bank with a reward for banks like past successes",
    tags=("token", "factual", "formation", "evolution"),
    claim="GSM8K is 34.0 with Qwen2.5-0.5B, where GRPO has 28.8, and 40.7 with Llama3.2-1B, where it has 37.2.",
    differs="Banks of facts replace reasoning texts, as docs/recipes.md explains.",
    label="small",
    make=Recipe(Config, system),
)
