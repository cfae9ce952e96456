"""T-SPMO: only the tokens at which the answers of a group part are trained on."""

from __future__ import annotations

from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import Clip, PrefixTree, Token
from keepworth.learning.objective.presets import Citation, preset_method

METHOD = preset_method(
    "T-SPMO",
    "Trains only the tokens at which the answers of a group part",
    Objective(
        name="t_spmo",
        advantage=PrefixTree(),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        denominator="kept",
        adapter_decay=0.01,
    ),
    Citation(
        "Token-Efficient RL for LLM Reasoning",
        "2504.20834",
        "secondary",
        ("the formula of the node advantage", "adapter_decay, the L2 weight on the adapter"),
        "Each distinct (prefix, token) counts once. Wants large groups (about 50) and short answers.",
        "Batch.ids; the trainer applies adapter_decay",
    ),
)
