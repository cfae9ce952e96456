"""What the tests of learners in several processes are made of: tiny learners, built alike here and in a worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from keepworth.models.adapter import unfreeze
from keepworth.training.critic import CriticSettings
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.learner_group import LeadingLearner
from keepworth.training.objective.options import Objective
from keepworth.training.objective.presets import preset
from keepworth.training.placement import WorkerPart
from keepworth.training.shares import Shares
from tests.learning.letters import OBJECTIVE, Letters, settings, train_letters
from tests.learning.objective.toys import runnable
from tests.learning.turns import ROLE, weights
from tests.models.tiny import tiny_model


def made(name: str, hidden: int) -> tuple[Any, ...]:
    """Model, what is trained of it, the objective and how it is optimised. letters: the training of `tests.learning.letters`."""
    torch.set_num_threads(1)
    model = tiny_model(hidden=hidden)
    objective: Objective = OBJECTIVE if name == "letters" else runnable(preset(name), 8)
    passes = 2 if objective.takes_passes and name != "letters" else 1
    how = Optimisation(learning_rate=1e-2, token_budget=96, checkpointing="off", passes=passes)
    return model, unfreeze(model), objective, how, ROLE


def critic(objective: Objective) -> CriticSettings | None:
    return CriticSettings(learning_rate=1e-2) if objective.needs_critic else None


def follower(name: str, hidden: int, shares: Shares) -> Learner:
    """fails: ends its process in its first update."""
    parts = made("grpo" if name == "fails" else name, hidden)
    learner = Learner(*parts, critic=critic(parts[2]), shares=shares)
    if name == "fails":
        learner.update = lambda groups: os._exit(7)  # type: ignore[method-assign,assignment,misc]
    return learner


def leading(name: str, count: int, hidden: int = 16) -> Learner:
    """The first of so many learners; alone, a learner like any."""
    parts = made("grpo" if name == "fails" else name, hidden)
    if count == 1:
        return Learner(*parts, critic=critic(parts[2]))
    part = WorkerPart("tests.learning.group_parts:follower", {"name": name, "hidden": hidden})
    return LeadingLearner(*parts, count=count, part=part, critic=critic(parts[2]))


def train(folder: Path, steps: int, count: int) -> Learner:
    """A training of letters, begun or continued, by so many learners."""
    learner = leading("letters", count)
    return train_letters(folder, steps, settings(mode="serial"), Letters(), checkpoint_every=1, learner=learner)


if __name__ == "__main__":  # a controller that can be killed
    trained = train(Path(sys.argv[1]), int(sys.argv[2]), 2)
    torch.save(weights(trained), Path(sys.argv[1]).parent / "weights.pt")
