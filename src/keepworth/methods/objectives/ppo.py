"""PPO: a clipped ratio, and advantages from a critic."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, Gae, KlReward, Token, Whitened
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "PPO",
    "Clips the probability ratio and takes advantages from a critic",
    Objective(
        name="ppo",
        advantage=Gae(0.95, scale=Whitened(), value_coefficient=0.5, value_clip=0.2),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        kl=KlReward(0.001),
    ),
    Citation(
        "Proximal Policy Optimization Algorithms; High-Dimensional Continuous Control Using GAE",
        "1707.06347, 1506.02438",
        "code",
        ("trace_decay, value_coefficient and the KL coefficient are picked from the usual ranges.",),
        "Train the critic alone for some steps first; give a bootstrap value to truncated answers or mask them.",
        "Batch.values from a critic, trained with value_loss towards value_targets",
    ),
)
