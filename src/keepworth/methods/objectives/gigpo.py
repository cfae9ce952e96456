"""GiGPO: compares episodes with their group, and turns with turns from the same state."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, KlLoss, Token
from keepworth.training.objective.presets import Citation, preset_method
from keepworth.training.objective.turns import StepState

METHOD = preset_method(
    "GiGPO",
    "Compares episodes within their group, and turns with other turns from the same state",
    Objective(
        name="gigpo",
        advantage=StepState(episode_weight=1.0, step_weight=1.0, discount=0.95),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        kl=KlLoss("k3", 0.01),
    ),
    Citation(
        "Group-in-Group Policy Optimization for LLM Agent Training",
        "2505.10978",
        "code",
        (),
        "scale=GroupStd() is the other published choice. The state key leaves out step counters, times and the agent's own "
        "history. Statistics are per episode, not per row as in the released code's default.",
        "Batch.steps and Batch.step",
    ),
    claim="ALFWorld is 90.8, where GRPO has 77.6, and WebShop 75.2, where it has 66.1, with 7B parameters.",
)
