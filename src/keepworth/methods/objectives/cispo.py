"""CISPO: the weight of a token is capped, and no token loses its gradient."""

from __future__ import annotations

from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import Cispo, GroupStd, Outcome, Token
from keepworth.learning.objective.presets import Citation, preset_method

METHOD = preset_method(
    "CISPO",
    "Caps the weight of a token, so that no token loses its gradient",
    Objective(name="cispo", advantage=Outcome("group", GroupStd()), ratio=Token(), surrogate=Cispo(1.0, 4.0)),
    Citation(
        "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention",
        "2506.13585",
        "code",
        (
            "the paper's own bound; a weight of at most 5 is that of arXiv 2510.13786",
            "twice the step efficiency of DAPO",
        ),
        "No trust region: keep the learning rate small and clip the gradient. low = 1 switches the lower bound off.",
    ),
    claim="It has about twice the step efficiency of DAPO with Qwen2.5-32B.",
)
