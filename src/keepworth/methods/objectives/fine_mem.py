"""Fine-Mem: compares turns of a group that have the same number, by the reward credited to each."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, GroupStd, Token
from keepworth.training.objective.presets import Citation, preset_method
from keepworth.training.objective.turns import StepIndex

METHOD = preset_method(
    "Fine-Mem",
    "Compares turns of a group that have the same number, by the reward that each turn is credited with",
    Objective(
        name="fine_mem",
        advantage=StepIndex(episode_weight=0.0, step_weight=1.0, discount=0.0, scale=GroupStd()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        aggregation="seq-mean-token-mean",
        aggregation_unit="row",
    ),
    Citation(
        "Fine-Mem: Fine-Grained Feedback Alignment for Long-Horizon Memory Management",
        "2601.08435",
        "secondary",
        (
            "A turn's reward is compared with turns of the group that have the same number: not confirmed, nor the clip range.",
        ),
        needs="Batch.steps with rewards of turns (`with_attribution`), Batch.step",
    ),
    claim="It gains 4.4 points on Mem-alpha's validation suite and 7.2 on MemoryAgentBench over Mem-alpha.",
)
