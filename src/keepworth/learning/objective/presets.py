"""Presets: published objectives as data, and where each comes from. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from keepworth.episodes.errors import UnknownName
from keepworth.learning.objective.options import Objective, ObjectiveError
from keepworth.learning.objective.parts import (
    Anneal,
    BatchStd,
    Cispo,
    Clip,
    DualClip,
    EntropyBonus,
    EntropyGate,
    EssControl,
    FirstAndRandom,
    Gae,
    GroupStd,
    KlLoss,
    KlReward,
    Mask,
    Mixed,
    NoRatio,
    OptimalBaseline,
    Outcome,
    OverlongPenalty,
    PrefixTree,
    Regression,
    Reset,
    RewardToGo,
    Sequence,
    SequenceTruncate,
    SoftValue,
    StepIndex,
    StepState,
    TaskStd,
    Teacher,
    Token,
    Truncate,
    Whitened,
)


def varied(objective: Objective, **changes: Any) -> Objective:
    """A copy with some options changed, checked like a new one; None takes a number away again.

    Raises ObjectiveError naming what cannot take effect.
    """
    try:
        return Objective(**{**{name: getattr(objective, name) for name in objective.model_fields_set}, **changes})
    except ValidationError as error:
        found = "; ".join(_complaint(entry) for entry in error.errors()).removesuffix(".") + "."
        raise ObjectiveError(
            found, f"Asked for: {', '.join(f'{key}={value!r}' for key, value in changes.items())}."
        ) from None


def _complaint(entry: Any) -> str:
    where = str(entry["loc"][0]) if entry["loc"] else ""
    message = str(entry["msg"]).removeprefix("Value error, ")
    if entry["type"] == "value_error":
        return f"{where}: {message}" if where else message
    return f"{where} = {entry['input']!r}: {message[:1].lower()}{message[1:]}"


def without_kl(objective: Objective) -> Objective:
    """The same objective with no reference model to keep or to run."""
    if objective.regresses:
        raise ObjectiveError(
            f"objective {objective.name!r} is a regression against its reference and cannot go without"
        )
    return varied(objective, kl=None)


_GROUP = Outcome("group", GroupStd())
_CLIP = Clip(0.2, 0.2)

PRESETS: dict[str, Objective] = {
    each.name: each
    for each in (
        # Without a critic.
        Objective(name="reinforce", advantage=Outcome("batch"), aggregation="seq-mean-token-sum"),
        Objective(
            name="reinforce_pp",
            advantage=RewardToGo(scale=Whitened()),
            ratio=Token(),
            surrogate=_CLIP,
            kl=KlReward(0.001),
        ),
        Objective(
            name="reinforce_pp_baseline",
            advantage=Outcome("group", Whitened()),
            ratio=Token(),
            surrogate=_CLIP,
            kl=KlLoss("k2", 0.001),
        ),
        Objective(name="rloo", advantage=Outcome("leave_one_out"), aggregation="seq-mean-token-sum"),
        Objective(
            name="grpo",
            advantage=_GROUP,
            ratio=Token(),
            surrogate=_CLIP,
            aggregation="seq-mean-token-mean",
            kl=KlLoss("k3", 0.001),
        ),
        Objective(name="dr_grpo", advantage=Outcome("group"), ratio=Token(), surrogate=_CLIP, aggregation="constant"),
        Objective(
            name="dapo",
            advantage=_GROUP,
            overlong=OverlongPenalty(0.2),
            ratio=Token(),
            surrogate=Clip(0.2, 0.28),
            group_filter=Mixed(),
        ),
        Objective(name="lite_ppo", advantage=Outcome("group", BatchStd()), ratio=Token(), surrogate=_CLIP),
        Objective(
            name="gspo",
            advantage=_GROUP,
            ratio=Sequence(),
            surrogate=Clip(3e-4, 4e-4),
            aggregation="seq-mean-token-mean",
        ),
        Objective(name="cispo", advantage=_GROUP, ratio=Token(), surrogate=Cispo(1.0, 4.0)),
        # With a critic.
        Objective(
            name="ppo",
            advantage=Gae(0.95, scale=Whitened(), value_coefficient=0.5, value_clip=0.2),
            ratio=Token(),
            surrogate=_CLIP,
            kl=KlReward(0.001),
        ),
        # For tokens that an older policy drew.
        Objective(
            name="areal",
            advantage=Outcome("batch", BatchStd()),
            ratio=Token(),
            surrogate=_CLIP,
            correction=(Mask(0.0, 5.0),),
        ),
        Objective(name="tis", advantage=_GROUP, ratio=Token(), surrogate=_CLIP, correction=(Truncate(2.0),)),
        Objective(
            name="icepop",
            advantage=_GROUP,
            ratio=Token(),
            surrogate=_CLIP,
            correction=(Mask(0.5, 5.0),),
            aggregation="seq-mean-token-mean",
        ),
        Objective(
            name="vcpo",
            advantage=OptimalBaseline(GroupStd()),
            ratio=NoRatio("proximal"),
            correction=(SequenceTruncate(8.0, "episode"),),
            aggregation="seq-mean-token-mean",
            step_control=EssControl(base=1.0, power=0.5),
        ),
        # Steered from step to step.
        Objective(
            name="prorl",
            advantage=_GROUP,
            ratio=Token(),
            surrogate=Clip(0.2, 0.4),
            kl=KlLoss("k2", 1e-4, Reset(kl=0.1, patience=5)),
            group_filter=Mixed(),
        ),
        Objective(
            name="aepo",
            advantage=Outcome("group", TaskStd()),
            denominator="kept",
            negatives=EntropyGate(0.15, 0.25),
        ),
        Objective(
            name="kdrl",
            advantage=_GROUP,
            ratio=Token(),
            surrogate=_CLIP,
            teacher=Teacher(5e-3, "wrong", Anneal(final=1e-3, updates=100)),
        ),
        # With fewer tokens.
        Objective(
            name="s_grpo",
            advantage=_GROUP,
            ratio=Token(),
            surrogate=_CLIP,
            denominator="kept",
            selection=FirstAndRandom(8, 0.4),
        ),
        Objective(
            name="t_spmo",
            advantage=PrefixTree(),
            ratio=Token(),
            surrogate=_CLIP,
            denominator="kept",
            adapter_decay=0.01,
        ),
        Objective(
            name="a_star_po",
            advantage=SoftValue(0.5),
            surrogate=Regression(1e-3),
            aggregation="seq-mean-token-sum",
        ),
        # For memories.
        Objective(
            name="gigpo",
            advantage=StepState(episode_weight=1.0, step_weight=1.0, discount=0.95),
            ratio=Token(),
            surrogate=_CLIP,
            kl=KlLoss("k3", 0.01),
        ),
        Objective(
            name="memory_r2",
            advantage=_GROUP,
            ratio=Sequence(),
            surrogate=DualClip(0.2, 0.2, 3.0),
            aggregation="seq-mean-token-mean",
            aggregation_unit="row",
            local_weight=1.0,
            kl=KlLoss("k3", 0.001),
            entropy=EntropyBonus(0.001),
            group_filter=Mixed(),
        ),
        Objective(
            name="fine_mem",
            advantage=StepIndex(episode_weight=0.0, step_weight=1.0, discount=0.0, scale=GroupStd()),
            ratio=Token(),
            surrogate=_CLIP,
            aggregation="seq-mean-token-mean",
            aggregation_unit="row",
        ),
        Objective(
            name="memory_r_plus",
            advantage=_GROUP,
            ratio=Token(),
            surrogate=_CLIP,
            aggregation="seq-mean-token-mean",
            reward_term="episodic",
        ),
    )
}


def preset(name: str, **changes: Any) -> Objective:
    """The preset of that name, with options changed. Raises UnknownName or ObjectiveError."""
    if name not in PRESETS:
        raise UnknownName("objective", name, PRESETS)
    return varied(PRESETS[name], **changes) if changes else PRESETS[name]


# Sources: where each preset comes from, what its reading rests on, and what could not be confirmed. Free of torch.


@dataclass(frozen=True, slots=True)
class Source:
    """status: "code" (checked against the method's public code), "text" (its paper or documentation) or "secondary"
    (descriptions by others only). unverified: what could not be confirmed, our own choices among it; confirm it before
    publishing a comparison. needs: what the run must hand in beyond rewards and log-probabilities."""

    title: str
    arxiv: str
    status: str
    unverified: tuple[str, ...] = ()
    note: str = ""
    needs: str = ""


SOURCES: dict[str, Source] = {
    "reinforce": Source(
        "Simple statistical gradient-following algorithms for connectionist reinforcement learning (Williams, 1992)",
        "",
        "text",
        note="The baseline is the mean reward of the batch, so tasks need no groups.",
    ),
    "reinforce_pp": Source(
        "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization",
        "2501.03262",
        "code",
        note="No groups needed; whitening over tokens weighs long answers more, and is noisy below about 32 episodes.",
    ),
    "reinforce_pp_baseline": Source(
        "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization",
        "2501.03262",
        "code",
    ),
    "rloo": Source(
        "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback",
        "2402.14740",
        "code",
        note="For verifiable rewards; with a learned reward model add kl=KlReward(0.03) to 0.05.",
    ),
    "grpo": Source(
        "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
        "2402.03300",
        "code",
        (
            "the paper's constants (group 64, KL 0.04, learning rate 1e-6); the KL's coefficient here is common practice",
        ),
        "Long wrong answers cost less per token; groups near all-right or all-wrong weigh more; the k3 loss has the "
        "gradient of the forward KL.",
    ),
    "dr_grpo": Source(
        "Understanding R1-Zero-Like Training: A Critical Perspective",
        "2503.20783",
        "code",
        note="The size of the step follows mean length / length_budget: retune the learning rate with the budget.",
    ),
    "dapo": Source(
        "DAPO: An Open-Source LLM Reinforcement Learning System at Scale",
        "2503.14476",
        "code",
        note="The buffer of the penalty is a share of length_budget (4096 of 20480 tokens in the paper). Groups are filtered on "
        "the unshaped metric.",
        needs="a sampler that refills the groups it filters",
    ),
    "lite_ppo": Source(
        "Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning",
        "2508.08221",
        "text",
        ("for which models and data the two tricks help",),
        "With one group in the batch it is GRPO with token-mean.",
    ),
    "gspo": Source(
        "Group Sequence Policy Optimization",
        "2507.18071",
        "code",
        note="The clip range is about a thousand times narrower than a token's: do not reuse 0.2. A sequence is one row.",
    ),
    "cispo": Source(
        "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention",
        "2506.13585",
        "code",
        (
            "the paper's own bound; a weight of at most 5 is that of arXiv 2510.13786",
            "twice the step efficiency of DAPO",
        ),
        "No trust region: keep the learning rate small and clip the gradient. low = 1 switches the lower bound off.",
    ),
    "ppo": Source(
        "Proximal Policy Optimization Algorithms; High-Dimensional Continuous Control Using GAE",
        "1707.06347, 1506.02438",
        "code",
        ("trace_decay, value_coefficient and the KL's coefficient are picked from the usual ranges",),
        "Train the critic alone for some steps first; give a bootstrap value to truncated answers or mask them.",
        "Batch.values from a critic, trained with value_loss towards value_targets",
    ),
    "areal": Source(
        "AReaL: A Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning",
        "2505.24298",
        "code",
        ("the KL coefficient of its reward penalty: none is set here",),
        "Tokens with proximal / behaviour above 5 are dropped. ratio=Token('interpolated') (correction stays) saves the "
        "forward pass for the proximal policy; it needs Batch.version_lag. Staleness is bounded by the scheduler.",
    ),
    "tis": Source(
        "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training (fengyao.notion.site/off-policy-rl)",
        "",
        "code",
        ("only the correction is the source's: the rest is GRPO with token-mean and no KL",),
    ),
    "icepop": Source(
        "Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale Thinking Model",
        "2510.18855",
        "code",
        ("the coefficient of the paper's KL term: none is set here; the interval is OpenRLHF's default",),
    ),
    "vcpo": Source(
        "Stable Asynchrony: Variance-Controlled Off-Policy RL for LLMs",
        "2602.17616",
        "code",
        ("the released code appears to count the importance weight twice in the baseline; here it counts once",),
        "EssControl: base 1.0 for one turn, 0.55 was used for long episodes of many turns; power 1 for plain SGD.",
        "Batch.score_norm, one backward pass an episode (`score_norms`)",
    ),
    "prorl": Source(
        "ProRL: Prolonged Reinforcement Learning Expands Reasoning Boundaries in Large Language Models",
        "2505.24864",
        "text",
        (
            "all numbers; the numbers of the Reset are our choices, the paper gives no triggers",
            "the KL estimator: k2 is used for its correct gradient",
        ),
        "A reset copies the policy into the reference and clears the optimiser's state (Controls.reset).",
        "the KL and, where measured, a validation score handed to `advanced`",
    ),
    "aepo": Source(
        "QwenLong-L1.5: Post-Training Recipe for Long-Context Reasoning and Memory Management",
        "2512.12967",
        "text",
        (
            "the numbers of the EntropyGate: not published, read off the plotted range; set them from a warm-up run",
            "that it must run strictly on-policy, as it does here",
            "a released snippet filters between the thresholds; the hysteresis of the text is implemented",
        ),
        "Masked episodes leave the denominator too, or the step would shrink when the gate closes.",
        "Batch.task_type; the batch entropy handed to `advanced` once per update",
    ),
    "kdrl": Source(
        "KDRL: Post-Training Reasoning LLMs via Unified Knowledge Distillation and Reinforcement Learning",
        "2506.02208",
        "secondary",
        ("how long the annealing from 5e-3 to 1e-3 takes; the clip range",),
        needs="Batch.lp_teacher at the drawn tokens, from a teacher with the same tokeniser",
    ),
    "s_grpo": Source(
        "Token-Efficient RL for LLM Reasoning",
        "2504.20834",
        "secondary",
        ("the numbers of FirstAndRandom: task dependent, the published values are not known here",),
        "denominator='kept' weighs early tokens more; weighted=True with 'original' is unbiased.",
    ),
    "t_spmo": Source(
        "Token-Efficient RL for LLM Reasoning",
        "2504.20834",
        "secondary",
        ("the formula of the node advantage", "adapter_decay, the L2 weight on the adapter"),
        "Each distinct (prefix, token) counts once. Wants large groups (about 50) and short answers.",
        "Batch.ids; the trainer applies adapter_decay",
    ),
    "a_star_po": Source(
        "Accelerating RL for LLM Reasoning with Optimal Advantage Regression",
        "2505.20686",
        "code",
        note="One online sample a task is enough. Summed log-ratios: the loss grows with length.",
        needs="Batch.soft_value, from soft_value(rewards of about 8 reference samples a task, temperature)",
    ),
    "gigpo": Source(
        "Group-in-Group Policy Optimization for LLM Agent Training",
        "2505.10978",
        "code",
        (),
        "scale=GroupStd() is the other published choice. The state key leaves out step counters, times and the agent's own "
        "history. Statistics are per episode, not per row as in the released code's default.",
        "Batch.steps and Batch.step",
    ),
    "memory_r2": Source(
        "Memory-R2: Fair Credit Assignment for Long-Horizon Memory-Augmented LLM Agents",
        "2605.21768",
        "code",
        ("how the two branches are weighed against each other: a plain sum of their means here",),
        "Whole rollouts are compared with each other; re-rolled sessions only with those from the same memory state. "
        "Ratio and mean are per turn: give every model call a row of its own. The released scripts take 16 rollouts, 4 "
        "re-rolls of half the sessions, two passes over a batch and a learning rate of 2e-6.",
        "Batch.branch; re-rolls as episodes of their own, grouped by the state they start from",
    ),
    "fine_mem": Source(
        "Fine-Mem: Fine-Grained Feedback Alignment for Long-Horizon Memory Management",
        "2601.08435",
        "secondary",
        ("over which turns a step's reward is normalised: turns of the group with the same index here", "clip range"),
        needs="Batch.steps with rewards of turns (`with_attribution`), Batch.step",
    ),
    "memory_r_plus": Source(
        "Reasoning Under 1 Billion: Memory-Augmented Reinforcement Learning for Large Language Models",
        "2504.02273",
        "code",
        ("the KL coefficient, none is set here",),
        "GRPO on task reward plus EpisodicReward; answers are scored before they are remembered, unlike in the released "
        "script.",
        "the intrinsic rewards of EpisodicReward added to the task's",
    ),
}
