"""REINFORCE: the score function, with the mean reward of the batch as baseline."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Outcome
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "REINFORCE",
    "Weighs each answer by its reward less the mean reward of the batch",
    Objective(name="reinforce", advantage=Outcome("batch"), aggregation="seq-mean-token-sum"),
    Citation(
        "Simple statistical gradient-following algorithms for connectionist reinforcement learning (Williams, 1992)",
        "",
        "text",
        note="The baseline is the mean reward of the batch, so tasks need no groups.",
    ),
)
