"""Which inputs an objective needs of a run, so that a run can refuse it before it starts.

Free of torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from keepworth.training.objective.options import Objective, ObjectiveError
from keepworth.training.objective.presets import presets


def inputs(objective: Objective) -> tuple[str, ...]:
    """Returns the fields of `Batch` that the objective reads beyond those that all read, then the duties it puts on the trainer.

    Duties: critic (train values with value_loss), group_filter (reject groups with `rejection`), reference_reset (honour
    Controls.reset), learning_rate_scale, adapter_decay, whole_episodes (all rows of an episode in one micro-batch), reward_term
    (refuse episodes without the named term), length_budget (set on the objective)."""
    wanted = (
        ("lp_proximal", objective.ratio.anchor == "proximal"),
        ("branch", objective.local_weight is not None),
        *((name, True) for part in objective.all_parts for name in part.needs),
        ("adapter_decay", objective.adapter_decay != 0.0),
        ("whole_episodes", objective.needs_whole_episodes),
        ("reward_term", objective.reward_term is not None),
        ("length_budget", objective.needs_length_budget and objective.length_budget is None),
    )
    return tuple(dict.fromkeys(name for name, condition in wanted if condition))


_FIXES = {
    "length_budget": "Set length_budget to the run's max new tokens.",
    "lp_teacher": "Set teacher (in Python, hand the learner one): a larger model with the same tokenizer, or a finished run.",
    "soft_value": "A recipe measures tasks as it meets them, with sampling = synchronous. In Python, hand the learner their "
    "values (reference_values).",
    "adapter_decay": "It decays an adapter's weights: train with LoRA, or set adapter_decay=0.",
}
"""How to provide the inputs that depend on the run. The learner always provides the others."""


def require_inputs(objective: Objective, provided: Mapping[str, bool], who: str) -> None:
    """Raises ObjectiveError, which names every input that is missing and how to provide it.

    Args:
        objective: What is to be optimised.
        provided: Whether each input is provided, by its name; one that is absent is not.
        who: What provides them, as the subject of the message.
    """
    missing = [name for name in inputs(objective) if name in _FIXES and not provided.get(name)]
    if missing:
        raise ObjectiveError(
            f"objective {objective.name!r} needs {', '.join(missing)}, which {who} does not provide.",
            " ".join(_FIXES[name] for name in missing),
        )


def episode_inputs(objective: Objective) -> tuple[str, ...]:
    """Returns, in words, what the episodes must hold besides rewards of whole episodes. states of turns: `Segment.state`. rewards
    of turns: terms of the scope "segment". re-rolls: episodes with a `parent`."""
    inputs = [words for part in objective.all_parts for words in part.episodes]
    inputs += ["re-rolls"] * (objective.local_weight is not None)
    return (*inputs, *([] if objective.reward_term is None else [f"a reward term {objective.reward_term!r}"]))


def require_episodes(objective: Objective, provided: Collection[str], who: str) -> None:
    """Raises ObjectiveError, which names what the objective needs of its episodes and what those at hand do not hold.

    Args:
        objective: What is to be optimised.
        provided: What the episodes hold, in the words of `episode_inputs`.
        who: The owner of the episodes, for the message.
    """
    missing = [name for name in episode_inputs(objective) if name not in provided]
    if missing:
        raise ObjectiveError(
            f"objective {objective.name!r} needs {', '.join(missing)}, which episodes of {who} do not hold.",
            " ".join(_HOLDERS.get(name, "Choose another one: no recipe has them yet.") for name in missing)
            + " In Python, episodes that you build yourself may hold them (docs/objectives.md).",
        )


_HOLDERS = {
    "states of turns": "Those of arithmetic with answer = calculator do.",
    "rewards of turns": "Those of the recipe fine_mem do.",
    "durations of turns": "Those of recipes that play in an environment do.",
    "re-rolls": "Those of the recipe memory_r2 do.",
    "a reward term 'episodic'": "Those of the recipe memory_r_plus do.",
}


def require_off_policy(objective: Objective, passes: int, minibatches: int = 1, *, max_staleness: int = 0) -> None:
    """Raises ObjectiveError where another policy drew the tokens than the one that is trained, and the objective ignores that.

    From the second optimiser step of an update on, the policy has moved: that needs a ratio to a fixed anchor, or a
    correction at every step. Older tokens need a correction, or a ratio to the policy that drew them: a ratio to the proximal
    policy begins where the update begins.

    Args:
        objective: What is to be optimised.
        passes: How often an update goes through its episodes.
        minibatches: The optimiser steps of one pass.
        max_staleness: The most updates by which a token may be older than the weights.
    """
    if passes * minibatches > 1 and not objective.takes_passes:
        given = {"passes": passes, "minibatches": minibatches}
        several = [f"{name} = {count}" for name, count in given.items() if count > 1]
        raise ObjectiveError(
            f"{' and '.join(several)} with objective {objective.name!r}: it has no ratio, so that from the second step on it "
            "would follow the gradient of a policy that has moved on.",
            f"Set {' and '.join(one.split(' ')[0] + ' = 1' for one in several)}, or take an objective with a ratio, such as "
            "grpo, dapo or cispo.",
        )
    if max_staleness > 0 and not objective.corrects_staleness:
        raise ObjectiveError(
            f"objective {objective.name!r} takes tokens as drawn by the policy that is trained, and they may be "
            f"{max_staleness} updates old (max_staleness).",
            "Take one with a correction (areal, tis, icepop, vcpo, or a recipe's own), or sampling = synchronous; in Python, "
            "ratio=Token('behaviour') works too.",
        )


def idle_clip(objective: Objective, passes: int, minibatches: int = 1) -> str:
    """Returns why the objective's clip cannot change anything; "" where it can, or where there is none.

    Args:
        objective: What is to be optimised.
        passes: How often an update goes through its episodes.
        minibatches: The optimiser steps of one pass.
    """
    if objective.ratio.anchor != "proximal" or passes * minibatches > 1 or not objective.surrogate.clips:
        return ""
    return (
        f"{objective.name}: {objective.surrogate!r} changes nothing with passes = 1 and minibatches = 1, where every ratio "
        "to the policy before the update is 1; this is its gradient without a clip"
    )


def require_clip(objective: Objective, passes: int, minibatches: int = 1) -> str:
    """Returns `idle_clip` of a published preset, so that the caller can warn of it. Raises ObjectiveError where the clip was set
    by the user: an option that cannot take effect is an error.

    Args:
        objective: What is to be optimised.
        passes: How often an update goes through its episodes.
        minibatches: The optimiser steps of one pass.
    """
    idle = idle_clip(objective, passes, minibatches)
    published = presets().get(objective.name)
    changed = published is None or published.surrogate != objective.surrogate
    if idle and changed:
        raise ObjectiveError(f"{idle}.", "Set passes = 2 or more, or surrogate=Plain().")
    return idle
