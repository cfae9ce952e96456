"""REINFORCE++ with a baseline: the mean of the group is taken off, and the batch is whitened."""

from __future__ import annotations

from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import Clip, KlLoss, Outcome, Token, Whitened
from keepworth.learning.objective.presets import Preset, Source
from keepworth.registry import Method

OBJECTIVE = Objective(
    name="reinforce_pp_baseline",
    advantage=Outcome("group", Whitened()),
    ratio=Token(),
    surrogate=Clip(0.2, 0.2),
    kl=KlLoss("k2", 0.001),
)

SOURCE = Source(
    "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization",
    "2501.03262",
    "code",
)

METHOD = Method(
    kind="objective",
    name="reinforce_pp_baseline",
    title="REINFORCE++ with a baseline",
    paper="arXiv 2501.03262",
    about="the mean of the group is taken off, and the batch is whitened",
    make=Preset(OBJECTIVE, SOURCE),
)
