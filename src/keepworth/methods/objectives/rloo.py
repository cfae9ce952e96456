"""RLOO: the score function, with the mean reward of the other answers of the group as baseline."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Outcome
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "RLOO",
    "Weighs each answer by its reward less the mean reward of the other answers of its group",
    Objective(name="rloo", advantage=Outcome("leave_one_out"), aggregation="seq-mean-token-sum"),
    Citation(
        "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback",
        "2402.14740",
        "code",
        note="For verifiable rewards; with a learned reward model add kl=KlReward(0.03) to 0.05.",
    ),
)
