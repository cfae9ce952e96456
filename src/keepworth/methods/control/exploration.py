"""Recurrent PPO with a bonus for novelty: E3B, NovelD and their product. Formulas: `keepworth.control.exploration`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.control.ppo import Trainer
    from keepworth.control.worlds import MakeWorld


def make(bonus: str, world: str | MakeWorld, memory: str = "gru", **settings: Any) -> Trainer:
    """Returns the trainer of `recurrent_ppo` with this bonus; `bonus_weight` is among its settings."""
    from keepworth.methods.control.recurrent_ppo import make as make_trainer

    return make_trainer(world, memory, bonus=bonus, **settings)


def explorer(name: str, bonus: str, title: str, about: str, paper: str, claim: str, differs: str) -> Method:
    """Returns the method of one bonus."""
    made: Callable[..., Trainer] = partial(make, bonus)
    return Method("control_agent", name, title, about, made, paper, claim, differs, extra="control")


METHODS = [
    explorer(
        "e3b",
        "e3b",
        "E3B",
        "Pays a bonus for observations that lie outside the ellipsoid of those of the episode",
        "arXiv 2210.05805",
        ("It solves sparse-reward MiniHack families whose episodes differ, without counts or hand-made features."),
        ("PPO replaces IMPALA, features are of one observation, and the last step of an episode earns nothing."),
    ),
    explorer(
        "noveld",
        "noveld",
        "NovelD",
        "Pays a bonus for first visits that are more novel than the last observation",
        "NeurIPS 2021",
        ("It solves all static MiniGrid tasks in 120 M steps without a curriculum, where the one before solved half."),
        "The last step of an episode earns nothing, and the bonus is divided by its running deviation.",
    ),
    explorer(
        "e3b_noveld",
        "both",
        "E3B x NovelD",
        "Pays the product of a bonus within the episode and one over all episodes",
        "arXiv 2306.03236",
        ("It works whether episodes share much or little, and is the best combination on 16 MiniHack tasks."),
        "It differs as its two parts do.",
    ),
]
