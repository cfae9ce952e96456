"""VCPO: sequence weights, a baseline of least variance, and steps as large as the sample is effective."""

from __future__ import annotations

from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import EssControl, GroupStd, NoRatio, OptimalBaseline, SequenceTruncate
from keepworth.learning.objective.presets import Citation, preset_method

METHOD = preset_method(
    "VCPO",
    ("Weights whole sequences, uses the baseline of least variance, and scales steps by the effective sample size"),
    Objective(
        name="vcpo",
        advantage=OptimalBaseline(GroupStd()),
        ratio=NoRatio("proximal"),
        correction=SequenceTruncate(8.0, "episode"),
        aggregation="seq-mean-token-mean",
        step_control=EssControl(base=1.0, power=0.5),
    ),
    Citation(
        "Stable Asynchrony: Variance-Controlled Off-Policy RL for LLMs",
        "2602.17616",
        "code",
        ("the released code appears to count the importance weight twice in the baseline; here it counts once",),
        "EssControl: base 1.0 for one turn, 0.55 was used for long episodes of many turns; power 1 for plain SGD.",
        "Batch.score_norm, one backward pass an episode (`score_norms`)",
    ),
    claim="Countdown is 41.9 % in 89.6 GPU hours, where synchronous training has 38.4 % in 143.2.",
)
