"""ProRL: GRPO with a KL to a reference that is renewed, for long runs."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, GroupStd, KlLoss, Mixed, Outcome, Reset, Token
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "ProRL",
    "Is GRPO for long runs, with a KL to a reference that is renewed",
    Objective(
        name="prorl",
        advantage=Outcome("group", GroupStd()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.4),
        kl=KlLoss("k2", 1e-4, Reset(kl=0.1, patience=5)),
        group_filter=Mixed(),
    ),
    Citation(
        "ProRL: Prolonged Reinforcement Learning Expands Reasoning Boundaries in Large Language Models",
        "2505.24864",
        "text",
        (
            "The paper does not say what triggers a reset, so those numbers are ours; its other numbers were not confirmed.",
            "The KL estimator is k2, for its correct gradient.",
        ),
        "A reset copies the policy into the reference and clears the optimiser's state (Controls.reset).",
        "the KL and, where measured, a validation score handed to `advance`",
    ),
    claim="It gains 14.7 % in mathematics, 13.9 % in code and 54.8 % in logic puzzles with 1.5B parameters.",
)
