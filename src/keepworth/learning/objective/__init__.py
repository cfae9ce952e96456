"""The composable objective: what a policy update optimises, as data, and the pure functions that compute it.

Configuration, presets, explanations and everything on plain numbers are free of torch; what works on tensors is loaded
when first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from keepworth.learning.objective.attribution import attributed, step_reward
from keepworth.learning.objective.branching import require_same_state, sampled_sessions, session_reward
from keepworth.learning.objective.control import Controls, advanced, initial, learning_rate_scale
from keepworth.learning.objective.episodic_reward import EpisodicReward
from keepworth.learning.objective.explain import described, explain, listing
from keepworth.learning.objective.filters import kept_groups
from keepworth.learning.objective.inputs import inputs, require_inputs
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.presets import PRESETS, preset, varied, without_kl
from keepworth.learning.objective.sources import SOURCES, Source

if TYPE_CHECKING:
    from keepworth.learning.objective.advantage import advantages, value_targets
    from keepworth.learning.objective.aggregation import Denominators, denominators, merged
    from keepworth.learning.objective.batch import Batch, Steps
    from keepworth.learning.objective.correction import effective_sample_size, mismatch
    from keepworth.learning.objective.credit import soft_value
    from keepworth.learning.objective.optimal import optimal_baseline_gradient, score_norms
    from keepworth.learning.objective.policy_loss import group_metrics, loss, merge_metrics, value_loss
    from keepworth.learning.objective.selection import select

_TENSOR_NAMES = {
    "advantages": "advantage",
    "value_targets": "advantage",
    "Denominators": "aggregation",
    "denominators": "aggregation",
    "merged": "aggregation",
    "Batch": "batch",
    "Steps": "batch",
    "effective_sample_size": "correction",
    "mismatch": "correction",
    "soft_value": "credit",
    "optimal_baseline_gradient": "optimal",
    "score_norms": "optimal",
    "group_metrics": "policy_loss",
    "loss": "policy_loss",
    "merge_metrics": "policy_loss",
    "value_loss": "policy_loss",
    "select": "selection",
}


def __getattr__(name: str) -> Any:
    if name not in _TENSOR_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_TENSOR_NAMES[name]}"), name)


__all__ = [
    "PRESETS",
    "SOURCES",
    "Batch",
    "Controls",
    "Denominators",
    "EpisodicReward",
    "Objective",
    "Source",
    "Steps",
    "advanced",
    "advantages",
    "attributed",
    "denominators",
    "described",
    "effective_sample_size",
    "explain",
    "group_metrics",
    "initial",
    "inputs",
    "kept_groups",
    "learning_rate_scale",
    "listing",
    "loss",
    "merge_metrics",
    "merged",
    "mismatch",
    "optimal_baseline_gradient",
    "preset",
    "require_inputs",
    "require_same_state",
    "sampled_sessions",
    "score_norms",
    "select",
    "session_reward",
    "soft_value",
    "step_reward",
    "value_loss",
    "value_targets",
    "varied",
    "without_kl",
]
