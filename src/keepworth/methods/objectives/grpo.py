"""GRPO: normalises rewards by mean and deviation of their group, and clips token by token."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, GroupStd, KlLoss, Outcome, Token
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "GRPO",
    "Compares each reward with the mean and deviation of its group and clips token by token",
    Objective(
        name="grpo",
        advantage=Outcome("group", GroupStd()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        aggregation="seq-mean-token-mean",
        kl=KlLoss("k3", 0.001),
    ),
    Citation(
        "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
        "2402.03300",
        "code",
        (
            "The paper's constants (group 64, KL 0.04, rate 1e-6) were not confirmed; our KL coefficient is common practice.",
        ),
        "Long wrong answers cost less per token; groups near all-right or all-wrong weigh more; the k3 loss has the "
        "gradient of the forward KL.",
    ),
)
