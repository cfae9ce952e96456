"""Presets: published objectives as data, and where each comes from. Free of torch."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from recollect.learning.objective.options import Objective


@dataclass(frozen=True, slots=True)
class Source:
    """Where a preset comes from. status: what its reading rests on (the method's code, the paper's text, or secondary
    descriptions). unverified: what could not be confirmed; treat it as a starting point."""

    title: str
    arxiv: str
    section: str
    status: str
    unverified: tuple[str, ...] = ()
    note: str = ""


_REINFORCE = Objective(name="reinforce", center="batch", aggregation="seq-mean-token-sum")

_GRPO = Objective(
    name="grpo",
    center="group",
    scale="group",
    ratio="token",
    anchor="proximal",
    surrogate="clip",
    clip_low=0.2,
    clip_high=0.2,
    aggregation="seq-mean-token-mean",
    kl_placement="loss",
    kl_estimator="k3",
    kl_coefficient=0.001,
    reference="frozen",
)


def varied(objective: Objective, **changes: Any) -> Objective:
    """A copy with some options changed, checked like a new one."""
    return Objective(**{**objective.model_dump(exclude_defaults=True), **changes})


def without_kl(objective: Objective) -> Objective:
    """The same objective with no reference model to keep or to run."""
    if objective.surrogate == "regression":
        raise ValueError(f"objective {objective.name!r} is a regression against its reference and cannot go without")
    return varied(
        objective,
        kl_placement="none",
        kl_estimator=None,
        kl_coefficient=0.0,
        reference="none",
        reset_kl=None,
        reset_patience=None,
    )


_PLAIN_GRPO = without_kl(_GRPO)

PRESETS: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        _REINFORCE,
        Objective(name="rloo", center="leave_one_out", aggregation="seq-mean-token-sum"),
        _GRPO,
        varied(_PLAIN_GRPO, name="dr_grpo", scale="none", aggregation="constant"),
        varied(
            _PLAIN_GRPO,
            name="dapo",
            clip_high=0.28,
            aggregation="token-mean",
            group_filter="mixed",
            overlong="penalty",
            overlong_buffer=0.2,
        ),
    )
}

SOURCES: dict[str, Source] = {
    "reinforce": Source(
        "Simple statistical gradient-following algorithms for connectionist reinforcement learning",
        "",
        "Williams, 1992, eq. 5",
        "text",
        note="The baseline is the batch mean of the episode rewards, so no groups are needed.",
    ),
    "rloo": Source(
        "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback",
        "2402.14740",
        "section 2",
        "code",
        note="For verifiable rewards; for a learned reward model add kl_placement='reward', kl_coefficient 0.03 to 0.05.",
    ),
    "grpo": Source(
        "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
        "2402.03300",
        "section 4.1",
        "code",
        (
            "the paper's own constants (group 64, KL 0.04, learning rate 1e-6); the KL coefficient here is a common choice",
        ),
        "Longer wrong answers are cheaper per token, and groups near all-right or all-wrong weigh more.",
    ),
    "dr_grpo": Source(
        "Understanding R1-Zero-Like Training: A Critical Perspective", "2503.20783", "section 3.2", "code"
    ),
    "dapo": Source(
        "DAPO: An Open-Source LLM Reinforcement Learning System at Scale",
        "2503.14476",
        "section 3",
        "code",
        (),
        "The overlong buffer is a share of length_budget: 4096 of 20480 tokens in the paper.",
    ),
}


def preset(name: str, **changes: Any) -> Objective:
    """The preset of that name, with options changed. Raises ValueError naming the nearest preset or option."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown objective {name!r}; the nearest known one is {near!r} (of {', '.join(PRESETS)})")
    return varied(PRESETS[name], **changes) if changes else PRESETS[name]
