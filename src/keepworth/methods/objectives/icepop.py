"""IcePop: drops tokens whose ratio between engine and learner lies outside a range."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, GroupStd, Mask, Outcome, Token
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "IcePop",
    "Drops tokens whose ratio between sampler and learner lies outside a range",
    Objective(
        name="icepop",
        advantage=Outcome("group", GroupStd()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        correction=Mask(0.5, 5.0),
        aggregation="seq-mean-token-mean",
    ),
    Citation(
        "Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale Thinking Model",
        "2510.18855",
        "code",
        (
            "The coefficient of the paper's KL term was not confirmed, and none is used; the interval is OpenRLHF's default.",
        ),
    ),
    claim="AIME25 is 93.4 and HMMT25 86.72 with Ring-1T.",
)
