"""Inputs: what an objective reads and what it expects of a run, so that a run can refuse it before it starts.

Free of torch.
"""

from __future__ import annotations

from collections.abc import Collection

from recollect.learning.objective.options import Objective, ObjectiveError


def inputs(objective: Objective) -> tuple[str, ...]:
    """Fields of `Batch` beyond those every objective reads, then duties of the trainer.

    Duties: critic (train values with value_loss), group_filter (reject groups with kept_groups), reference_reset
    (honour Controls.reset), learning_rate_scale, adapter_decay, whole_episodes (all rows of an episode in one
    micro-batch), reward_term (refuse episodes without the named term), length_budget (set on the objective).
    """
    steps = objective.credit in ("step_state", "step_index")
    lagged = objective.anchor == "interpolated" or objective.max_lag is not None
    wanted = (
        ("lp_proximal", objective.needs_proximal),
        ("lp_reference", objective.needs_reference),
        ("lp_teacher", objective.needs_teacher),
        ("values", objective.needs_critic),
        ("task_type", objective.scale == "task"),
        ("version_lag", lagged),
        ("steps", steps),
        ("ids", objective.credit == "prefix_tree"),
        ("truncated", objective.overlong == "mask"),
        ("soft_value", objective.credit == "soft_value"),
        ("score_norm", objective.center == "optimal"),
        ("branch", objective.local_weight is not None),
        ("entropy_behaviour", objective.selection == "top_entropy"),
        ("critic", objective.needs_critic),
        ("group_filter", objective.group_filter != "none"),
        ("reference_reset", objective.reference == "reset"),
        ("learning_rate_scale", objective.step_control != "constant"),
        ("adapter_decay", objective.adapter_decay != 0.0),
        ("whole_episodes", objective.needs_whole_episodes),
        ("reward_term", objective.reward_term is not None),
        ("length_budget", objective.needs_length_budget and objective.length_budget is None),
    )
    return tuple(name for name, condition in wanted if condition)


_MENDS = {
    "length_budget": "Set length_budget to the run's max new tokens.",
    "lp_teacher": "Hand the learner a teacher: a larger model with the same tokenizer.",
    "soft_value": "Measure the tasks under the reference first (reference_values) and hand the learner their values.",
    "adapter_decay": "It decays an adapter's weights: train with LoRA, or set adapter_decay=0.",
}


def require_inputs(objective: Objective, provided: Collection[str], who: str) -> None:
    """Raises ObjectiveError naming every input that `who` does not provide, and how to provide it."""
    missing = [name for name in inputs(objective) if name not in provided]
    if missing:
        raise ObjectiveError(
            f"objective {objective.name!r} needs {', '.join(missing)}, which {who} does not provide.",
            " ".join(dict.fromkeys(_MENDS.get(name, "Choose another one.") for name in missing)),
        )
