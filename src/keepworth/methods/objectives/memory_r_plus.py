"""Memory-R+: GRPO on the task reward plus one for being near past successes and far from failures."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, GroupStd, Outcome, Token
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "Memory-R+",
    "Is GRPO on the task's reward and on one for being near past successes and far from failures",
    Objective(
        name="memory_r_plus",
        advantage=Outcome("group", GroupStd()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        aggregation="seq-mean-token-mean",
        reward_term="episodic",
    ),
    Citation(
        "Reasoning Under 1 Billion: Memory-Augmented Reinforcement Learning for Large Language Models",
        "2504.02273",
        "code",
        ("The KL coefficient was not confirmed, and none is used.",),
        "GRPO on task reward plus EpisodicReward; answers are scored before they are remembered, unlike in the released "
        "script.",
        "the intrinsic rewards of EpisodicReward added to the task's",
    ),
    claim="GSM8K is 34.0 with Qwen2.5-0.5B, where GRPO has 28.8, and 40.7 with Llama3.2-1B, where it has 37.2.",
)
