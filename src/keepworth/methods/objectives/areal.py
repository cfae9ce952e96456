"""AReaL, decoupled: clips tokens of older policies against the proximal policy and reweighs them for the sampling policy."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import BatchStd, Clip, Mask, Outcome, Token
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "AReaL, decoupled",
    "Clips tokens of older policies against a recent policy and reweighs them for the policy that drew them",
    Objective(
        name="areal",
        advantage=Outcome("batch", BatchStd()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        correction=Mask(0.0, 5.0),
    ),
    Citation(
        "AReaL: A Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning",
        "2505.24298",
        "code",
        ("The coefficient of its KL penalty was not confirmed, and none is used here.",),
        "Tokens with proximal / behaviour above 5 are dropped. Staleness is bounded by the scheduler.",
    ),
    claim="It is up to 2.57 times as fast as the best synchronous system.",
)
