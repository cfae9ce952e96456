"""REINFORCE++ with a baseline: subtracts the mean of the group, and whitens over the batch."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, KlLoss, Outcome, Token, Whitened
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "REINFORCE++ with a baseline",
    "Subtracts the mean of the group and whitens over the batch",
    Objective(
        name="reinforce_pp_baseline",
        advantage=Outcome("group", Whitened()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        kl=KlLoss("k2", 0.001),
    ),
    Citation(
        "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization",
        "2501.03262",
        "code",
    ),
)
