"""Dr. GRPO: GRPO without its divisions by length and by deviation."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, Outcome, Token
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "Dr. GRPO",
    "Is GRPO without its divisions by length and by deviation",
    Objective(
        name="dr_grpo", advantage=Outcome("group"), ratio=Token(), surrogate=Clip(0.2, 0.2), aggregation="constant"
    ),
    Citation(
        "Understanding R1-Zero-Like Training: A Critical Perspective",
        "2503.20783",
        "code",
        note="The size of the step follows mean length / length_budget: retune the learning rate with the budget.",
    ),
    claim="A 7B model was the best of its size after 27 hours on 8 A100, with 43.3 % of AIME24 (not verified).",
)
