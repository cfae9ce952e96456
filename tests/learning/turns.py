"""Groups of episodes of several model calls, sampled from the tiny model: two continue each other, a third starts anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from keepworth.models.adapter import attach_lora, unfreeze
from keepworth.models.inprocess import InProcessModel, Precision
from keepworth.records import Group, RewardScope, RewardTerm, SamplingParams, Segment
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Sequence
from keepworth.training.objective.presets import preset
from tests.episode_of import call_of, episode_of
from tests.learning.objective.toys import runnable
from tests.models.tiny import tiny_model

ROLE = "speaker"
PROMPTS = (tuple(b"say:"), tuple(b"and again:"))
REWRITTEN = tuple(b"memory: x;")
WRITTEN = tuple(b"(ok)")
VALUES = {"kind0/0": 0.4, "kind1/1": 0.2}
"""Of tasks, for the objective that needs some."""
WHOLE = "grpo, sequences over episodes"
"""An objective whose loss reads all rows of an episode at once, and the rows do not fit into one pass."""
REWARDS = ((1.0, 0.0, 0.5, 0.0), (0.0, 0.0, 0.0, 1.0))


def objective_of(name: str) -> Objective:
    """A preset, or WHOLE."""
    if name == WHOLE:
        return runnable(preset("grpo", ratio=Sequence("proximal", unit="episode"), aggregation_unit="episode"), 8)
    return runnable(preset(name), 8)


OF_OPTIMISER = {field.name for field in fields(Optimisation)}


def learner_of(
    objective: Objective,
    lora: int = 0,
    *,
    model: InProcessModel | None = None,
    hidden: int = 32,
    precision: Precision = "fp32",
    role: str = ROLE,
    **how: Any,
) -> Learner:
    """Of a tiny model, or of its adapter of rank `lora`. how: settings of the optimiser, and what else a learner may be given."""
    model = model or tiny_model(precision=precision, hidden=hidden)
    named = attach_lora(model, lora) if lora else unfreeze(model)
    optimisation = Optimisation(**{name: how.pop(name) for name in OF_OPTIMISER & set(how)})
    return Learner(model, named, objective, optimisation, role, **how)


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    """A copy of what it trains, its critic's weights too."""
    trained = dict(learner.master_weights.named)
    if learner.critic is not None:
        trained |= learner.critic.master_weights.named
    return {name: value.detach().clone() for name, value in trained.items()}


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Whether these weights are equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def descend_plainly(learner: Learner, rate: float) -> None:
    """A step is the rate times the gradient, as it is worked out without the learner."""
    weights = learner.master_weights
    weights.optimiser = torch.optim.SGD(weights.optimiser.param_groups[0]["params"], lr=rate)
    weights.learning_rate = rate


def segment(context: tuple[int, ...], sample: Any, state: str = "", seconds: float | None = None) -> Segment:
    return call_of(ROLE, context, sample, state=state, seconds=seconds)


def sampled_groups(model: InProcessModel, size: int = 4, seed: int = 0) -> list[Group]:
    """Two groups: whole rollouts, and re-rolls. Every episode: say 2 tokens, be answered, say 2, start anew, say 2."""
    groups = []
    for number, prompt in enumerate(PROMPTS):
        first = model.sample([prompt], SamplingParams(2, n=size, seed=seed + number))[0]
        follow = [prompt + sample.ids + WRITTEN[: 1 + j % 3] for j, sample in enumerate(first)]
        second = [drawn[0] for drawn in model.sample(follow, SamplingParams(2, seed=seed + 10 + number))]
        anew = [REWRITTEN + sample.ids[:1] for sample in second]
        third = [drawn[0] for drawn in model.sample(anew, SamplingParams(2, seed=seed + 20 + number))]
        episodes = []
        for j in range(size):
            calls = [
                segment(prompt, first[j], "start", seconds=1.0),
                segment(follow[j], second[j], f"said {first[j].ids[0] % 2}", seconds=2.0 + j),
                segment(anew[j], third[j]),
            ]
            of_turn = RewardTerm("turn", 0.1 * j, scope=RewardScope.SEGMENT, segment=1)
            rewards = [RewardTerm("task", REWARDS[number][j]), of_turn, RewardTerm("episodic", 0.0)]
            where = {"task": f"kind{number}/{number}", "role": ROLE, "parent": "0/0" if number else ""}
            episodes.append(episode_of(f"{number}/{j}", calls, rewards, **where))
        groups.append(Group(f"kind{number}/{number}", "", tuple(episodes)))
    return groups
