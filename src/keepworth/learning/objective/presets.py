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
    OptimalBaseline,
    Outcome,
    OverlongPenalty,
    PrefixTree,
    Regression,
    Reset,
    RewardToGo,
    SequenceTruncate,
    SoftValue,
    StepIndex,
    StepState,
    TaskStd,
    Teacher,
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
        found = "; ".join(_complaint(entry) for entry in error.errors())
        raise ObjectiveError(
            found, f"Asked for: {', '.join(f'{key}={value!r}' for key, value in changes.items())}."
        ) from None


def _complaint(entry: Any) -> str:
    where = ".".join(str(part) for part in entry["loc"])
    message = str(entry["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def without_kl(objective: Objective) -> Objective:
    """The same objective with no reference model to keep or to run."""
    if objective.regresses:
        raise ObjectiveError(
            f"objective {objective.name!r} is a regression against its reference and cannot go without"
        )
    return varied(objective, kl=None)


_GRPO = Objective(
    name="grpo",
    advantage=Outcome("group", GroupStd()),
    ratio="token",
    anchor="proximal",
    surrogate=Clip(0.2, 0.2),
    aggregation="seq-mean-token-mean",
    kl=KlLoss("k3", 0.001),
)
_PLAIN = varied(without_kl(_GRPO), name="plain", aggregation="token-mean")

_CRITIC_FREE = (
    Objective(name="reinforce", advantage=Outcome("batch"), aggregation="seq-mean-token-sum"),
    varied(
        _PLAIN,
        name="reinforce_pp",
        advantage=RewardToGo(scale=Whitened()),
        kl=KlReward(0.001),
    ),
    varied(
        _PLAIN,
        name="reinforce_pp_baseline",
        advantage=Outcome("group", Whitened()),
        kl=KlLoss("k2", 0.001),
    ),
    Objective(name="rloo", advantage=Outcome("leave_one_out"), aggregation="seq-mean-token-sum"),
    _GRPO,
    varied(_PLAIN, name="dr_grpo", advantage=Outcome("group"), aggregation="constant"),
    varied(_PLAIN, name="dapo", surrogate=Clip(0.2, 0.28), group_filter=Mixed(), overlong=OverlongPenalty(0.2)),
    varied(_PLAIN, name="lite_ppo", advantage=Outcome("group", BatchStd())),
    varied(_PLAIN, name="gspo", ratio="sequence", surrogate=Clip(3e-4, 4e-4), aggregation="seq-mean-token-mean"),
    varied(_PLAIN, name="cispo", surrogate=Cispo(1.0, 4.0)),
)

_CRITIC = (
    varied(
        _PLAIN,
        name="ppo",
        advantage=Gae(0.95, scale=Whitened(), value_coefficient=0.5, value_clip=0.2),
        kl=KlReward(0.001),
    ),
)

_OFF_POLICY = (
    varied(
        _PLAIN,
        name="areal",
        advantage=Outcome("batch", BatchStd()),
        correction=(Mask(0.0, 5.0),),
    ),
    varied(_PLAIN, name="tis", correction=(Truncate(2.0),)),
    varied(
        _PLAIN,
        name="icepop",
        correction=(Mask(0.5, 5.0),),
        aggregation="seq-mean-token-mean",
    ),
    Objective(
        name="vcpo",
        advantage=OptimalBaseline(GroupStd()),
        anchor="proximal",
        correction=(SequenceTruncate(8.0, "episode"),),
        aggregation="seq-mean-token-mean",
        step_control=EssControl(base=1.0, power=0.5),
    ),
)

_STEERED = (
    varied(
        _PLAIN,
        name="prorl",
        surrogate=Clip(0.2, 0.4),
        group_filter=Mixed(),
        kl=KlLoss("k2", 1e-4, Reset(kl=0.1, patience=5)),
    ),
    Objective(
        name="aepo",
        advantage=Outcome("group", TaskStd()),
        negatives=EntropyGate(0.15, 0.25),
        denominator="kept",
    ),
    varied(
        _PLAIN,
        name="kdrl",
        teacher=Teacher(5e-3, "wrong", Anneal(final=1e-3, updates=100)),
    ),
)

_FEWER_TOKENS = (
    varied(
        _PLAIN,
        name="s_grpo",
        selection=FirstAndRandom(8, 0.4),
        denominator="kept",
    ),
    varied(
        _PLAIN,
        name="t_spmo",
        advantage=PrefixTree(),
        denominator="kept",
        adapter_decay=0.01,
    ),
    Objective(
        name="a_star_po",
        advantage=SoftValue(0.5),
        surrogate=Regression(1e-3),
        aggregation="seq-mean-token-sum",
    ),
)

_MEMORY = (
    varied(
        _PLAIN,
        name="gigpo",
        advantage=StepState(episode_weight=1.0, step_weight=1.0, discount=0.95),
        kl=KlLoss("k3", 0.01),
    ),
    varied(
        _PLAIN,
        name="memory_r2",
        ratio="sequence",
        surrogate=DualClip(0.2, 0.2, 3.0),
        aggregation="seq-mean-token-mean",
        aggregation_unit="row",
        local_weight=1.0,
        kl=KlLoss("k3", 0.001),
        entropy=EntropyBonus(0.001),
        group_filter=Mixed(),
    ),
    varied(
        _PLAIN,
        name="fine_mem",
        advantage=StepIndex(episode_weight=0.0, step_weight=1.0, discount=0.0, scale=GroupStd()),
        aggregation="seq-mean-token-mean",
        aggregation_unit="row",
    ),
    varied(_PLAIN, name="memory_r_plus", aggregation="seq-mean-token-mean", reward_term="episodic"),
)

PRESETS: dict[str, Objective] = {
    objective.name: objective
    for family in (_CRITIC_FREE, _CRITIC, _OFF_POLICY, _STEERED, _FEWER_TOKENS, _MEMORY)
    for objective in family
}


def preset(name: str, **changes: Any) -> Objective:
    """The preset of that name, with options changed. Raises UnknownName or ObjectiveError."""
    if name not in PRESETS:
        raise UnknownName("objective", name, PRESETS)
    return varied(PRESETS[name], **changes) if changes else PRESETS[name]
