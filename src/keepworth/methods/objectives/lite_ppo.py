"""Lite PPO: normalises by the mean of the group and the deviation of the batch, and averages over tokens."""

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import BatchStd, Clip, Outcome, Token
from keepworth.training.objective.presets import Citation, preset_method

METHOD = preset_method(
    "Lite PPO",
    "Uses the mean of the group, the deviation of the batch and a mean over tokens",
    Objective(name="lite_ppo", advantage=Outcome("group", BatchStd()), ratio=Token(), surrogate=Clip(0.2, 0.2)),
    Citation(
        "Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning",
        "2508.08221",
        "text",
        ("For which models and data the two tricks help was not confirmed.",),
        "With one group in the batch it is GRPO with token-mean.",
    ),
    claim="Two tricks alone put it above GRPO and DAPO on models without instructions (no number checked).",
)
