"""Presets: published objectives as data. Free of torch; where each comes from is in `sources.py`."""

from __future__ import annotations

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
