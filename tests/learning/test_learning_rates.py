"""Schedules of the learning rate against transformers', and against what the optimiser is told."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from keepworth.learning.learner import Learner, Optimisation, rate_at
from keepworth.learning.objective.options import ObjectiveError
from keepworth.models.adapter import attach_lora
from keepworth.recipes.settings import GROUP_RELATIVE
from tests.models.tiny import tiny_model

THEIRS = {"linear": get_linear_schedule_with_warmup, "cosine": get_cosine_schedule_with_warmup}


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize(("steps", "rising"), [(1, 0), (7, 0), (20, 1), (20, 6), (20, 19)])
def test_like_transformers_after_the_rise_and_a_step_ahead_of_it_before(schedule: str, steps: int, rising: int) -> None:
    """Theirs begins at 0, which moves nothing: the first of our steps takes what their second one does."""
    optimisation = Optimisation(warmup_steps=rising, schedule=schedule, steps=steps)  # type: ignore[arg-type]
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = THEIRS[schedule](optimiser, rising, steps)
    expected = []
    for _ in range(steps + 1):
        expected.append(theirs.get_last_lr()[0])
        optimiser.step()
        theirs.step()
    ours = [rate_at(optimisation, step) for step in range(steps)]
    assert ours[:rising] == pytest.approx(expected[1 : rising + 1])
    assert ours[rising:] == pytest.approx(expected[rising:steps])
    last = 1 / (steps - rising)
    assert ours[-1] == pytest.approx(last if schedule == "linear" else (1 - math.cos(math.pi * last)) / 2)


def test_the_optimiser_takes_the_rate_and_a_step_says_it() -> None:
    model = tiny_model()
    optimisation = Optimisation(learning_rate=1e-3, warmup_steps=1, schedule="cosine", steps=3)
    learner = Learner(model, attach_lora(model, rank=2), GROUP_RELATIVE, optimisation, "r")
    for step in range(3):
        said = learner.imitate([((1, 2), (3, 4))])
        (group,) = learner.master_weights.optimiser.param_groups
        assert said["learning_rate"] == group["lr"] == pytest.approx(1e-3 * rate_at(optimisation, step))
    assert learner.imitate([((1, 2), (3, 4))], learning_rate=0.5)["learning_rate"] == 0.5


def test_a_schedule_that_cannot_fall_is_refused() -> None:
    with pytest.raises(ObjectiveError, match="steps = 4 after warmup_steps = 4: nothing is"):
        Optimisation(schedule="linear", steps=4, warmup_steps=4)
    with pytest.raises(ObjectiveError, match="schedule = 'cosin': input should be 'constant', 'linear' or"):
        Optimisation(schedule="cosin", steps=4)  # type: ignore[arg-type]
