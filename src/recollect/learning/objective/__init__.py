"""The composable objective: what a policy update optimises, as data, and the pure functions that compute it.

`Objective`, `PRESETS`, `preset` and `explain` are free of torch; the rest is loaded when first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from recollect.learning.objective.control import Controls, advanced, initial, learning_rate_scale
from recollect.learning.objective.options import Objective
from recollect.learning.objective.presets import PRESETS, SOURCES, Source, preset, varied, without_kl

if TYPE_CHECKING:
    from recollect.learning.objective.advantage import advantages, value_targets
    from recollect.learning.objective.aggregation import Denominators, denominators, merged
    from recollect.learning.objective.batch import Batch, Steps
    from recollect.learning.objective.correction import effective_sample_size, mismatch
    from recollect.learning.objective.policy_loss import group_metrics, loss, merge_metrics, value_loss
    from recollect.learning.objective.selection import select

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
    "Objective",
    "Source",
    "Steps",
    "advanced",
    "advantages",
    "denominators",
    "effective_sample_size",
    "group_metrics",
    "initial",
    "learning_rate_scale",
    "loss",
    "merge_metrics",
    "merged",
    "mismatch",
    "preset",
    "select",
    "value_loss",
    "value_targets",
    "varied",
    "without_kl",
]
