"""Objective: what a policy update optimises, as data. Free of torch, so that it can be listed and checked anywhere.

Everything here is an instance of one formula, summed over the rows i and tokens t of an optimiser step:

    L = Agg[ keep * weight * -Surrogate(ratio, A) ]
        + kl      * Agg[ KL(lp, lp_reference) ]
        - entropy * Agg[ H ]
        + teacher * Agg[ k2(lp, lp_teacher) on some episodes ]

One field per axis; what stands there is a part with its own numbers (`parts.py`). What parts can still say that could not take
effect is refused when the objective is made.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_serializer, field_validator, model_validator

from keepworth.episodes.errors import UnknownName, nearest
from keepworth.learning.objective.parts import (
    WEIGHING,
    Advantage,
    Correction,
    Entropy,
    EntropyGate,
    EssControl,
    Gae,
    GroupFilter,
    Kl,
    KlLoss,
    KlReward,
    OptimalBaseline,
    Outcome,
    Overlong,
    OverlongMask,
    OverlongPenalty,
    Plain,
    PrefixTree,
    Regression,
    Reset,
    RewardToGo,
    Selection,
    SoftValue,
    StepIndex,
    StepState,
    Surrogate,
    Teacher,
    read,
    signature,
)
from keepworth.learning.objective.parts import ObjectiveError as ObjectiveError

RatioLevel = Literal["none", "token", "sequence", "sequence_product", "sequence_token"]
Anchor = Literal["proximal", "behaviour", "interpolated", "current"]
AggregationName = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "constant"]
Unit = Literal["episode", "row"]
Denominator = Literal["original", "kept"]

_MOVED = {
    "advantage = Outcome(baseline, scale) or another part of that axis": (
        *("credit", "center", "scale", "scale_epsilon", "discount"),
    ),
    "advantage = Gae(trace_decay, discount, scale, value_coefficient, value_clip, bootstrap)": (
        *("trace_decay", "value_coefficient", "value_clip", "bootstrap"),
    ),
    "advantage = StepState(episode_weight, step_weight, discount, scale) or StepIndex(...)": (
        "episode_weight",
        "step_weight",
    ),
    "advantage = SoftValue(temperature)": ("soft_value_temperature",),
    "surrogate = Clip(low, high), DualClip(low, high, bound) or Cispo(low, high)": (
        "clip_low",
        "clip_high",
        "dual_clip",
    ),
    "surrogate = SoftGate(positive, negative)": ("gate_temperature_positive", "gate_temperature_negative"),
    "surrogate = Regression(coefficient)": ("regression_coefficient",),
    "kl = KlLoss(estimator, coefficient), KlReward(coefficient) or none": (
        *("kl_placement", "kl_estimator", "kl_coefficient", "reference"),
    ),
    "kl = KlLoss(estimator, coefficient, Reset(kl, patience))": ("reset_kl", "reset_patience"),
    "entropy = EntropyBonus(coefficient) or AdaptiveEntropy(coefficient, target, step)": (
        *("entropy_coefficient", "entropy_target", "entropy_step"),
    ),
    "overlong = OverlongPenalty(buffer)": ("overlong_buffer",),
    "negatives = EntropyGate(low, high)": ("gate_low", "gate_high"),
    "selection = FirstAndRandom(first, probability, limit, weighted) or TopEntropy(share)": (
        *("selection_first", "selection_probability", "selection_limit", "selection_weight"),
    ),
    "group_filter = Spread(above)": ("filter_spread",),
    "step_control = EssControl(base, power)": ("ess_base", "ess_power"),
    "teacher = Teacher(coefficient, on, Anneal(final, updates))": (
        *("teacher_coefficient", "teacher_final", "teacher_steps", "teacher_mask"),
    ),
    "a correction, such as Mask(low, high) or (Truncate(high), Veto(below))": (
        *("correction_low", "correction_high", "correction_unit", "veto"),
    ),
}
"""Options that are written in a part now, by how that is."""


def require_range(name: str, value: float, interval: str) -> None:
    """Raises ObjectiveError for a number outside its range (see `within_range`)."""
    if not within_range(value, interval):
        raise ObjectiveError(f"{name} = {value} is not in {interval}.", "Set it to a number inside.")


_RANGES = {
    "advantage_clamp": "(0, inf)",
    "length_budget": "[1, inf)",
    "max_lag": "[0, inf)",
    "local_weight": "(0, inf)",
    "adapter_decay": "[0, inf)",
}
"""The values that each number may have, in the notation of intervals. All are finite."""


def within_range(value: float, interval: str) -> bool:
    """Whether the value is finite and in the interval: "(0, 1]" is above 0 and at most 1."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value > low if interval[0] == "(" else value >= low
    below = value < high if interval[-1] == ")" else value <= high
    return above and below  # false for what is not a number


_KINDS: dict[str, tuple[type, ...]] = {
    "advantage": get_args(Advantage),
    "surrogate": get_args(Surrogate),
    "correction": get_args(Correction),
    "kl": get_args(Kl),
    "entropy": get_args(Entropy),
    "teacher": (Teacher,),
    "overlong": get_args(Overlong),
    "negatives": (EntropyGate,),
    "selection": get_args(Selection),
    "group_filter": get_args(GroupFilter),
    "step_control": (EssControl,),
}
"""The parts that each field takes."""


def _taken(field: str) -> str:
    return ", ".join(map(signature, _KINDS[field])) + ("" if field in ("advantage", "surrogate") else " or none")


class Objective(BaseModel):
    """One policy-gradient (or regression) objective.

    `None` means "this axis does not use the number"; a number that is needed and missing, or given and unused, raises
    ValueError. `length_budget` alone may stay None in a preset: it is the run's generation limit, and
    `denominators` or `advantages` ask for it by name when they need it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "custom"

    # Advantage, from the reward.
    advantage: Advantage = Outcome()
    advantage_clamp: float | None = None
    overlong: Overlong | None = None
    length_budget: int | None = None

    # Ratio, surrogate, behaviour correction.
    ratio: RatioLevel = "none"
    ratio_unit: Unit = "row"
    anchor: Anchor = "current"
    surrogate: Surrogate = Plain()
    correction: tuple[Correction, ...] = ()
    max_lag: int | None = None

    # Aggregation.
    aggregation: AggregationName = "token-mean"
    aggregation_unit: Unit = "episode"
    denominator: Denominator = "original"
    local_weight: float | None = None

    # Regularisers.
    kl: Kl | None = None
    entropy: Entropy | None = None
    teacher: Teacher | None = None
    adapter_decay: float = 0.0

    # Which tokens, episodes and groups count.
    negatives: EntropyGate | None = None
    selection: Selection | None = None
    group_filter: GroupFilter | None = None

    step_control: EssControl | None = None

    # A term that every episode's reward must hold, or the objective would be another one.
    reward_term: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                for written, options in _MOVED.items():
                    if key in options:
                        raise ValueError(f"an objective has no option {key!r}: write {written}")
                if key not in cls.model_fields:
                    near = nearest(str(key), cls.model_fields)
                    fix = f"did you mean {near!r}?" if near else f"known: {', '.join(cls.model_fields)}"
                    raise ValueError(f"an objective has no option {key!r}; {fix}")
        return data

    @field_validator(*_KINDS, mode="before")
    @classmethod
    def _part(cls, value: Any, info: ValidationInfo) -> Any:
        """A part, as it is or as text. A field that may be left out takes None, that of corrections one or several."""
        name = str(info.field_name)
        kinds, several = _KINDS[name], name == "correction"
        try:
            found = read(value) if isinstance(value, str) else value
        except UnknownName as error:
            raise ValueError(f"{error} {name} takes {_taken(name)}.") from None
        if several:
            found = () if found is None else tuple(found) if isinstance(found, list | tuple) else (found,)
        for each in found if several else (found,):
            if not isinstance(each, kinds) and not (each is None and cls.model_fields[name].default is None):
                raise ValueError(f"{each!r} is none of {_taken(name)}")
        return found

    @field_serializer(*_KINDS)
    def _written(self, value: Any) -> str | None:
        return None if value is None else repr(value[0] if isinstance(value, tuple) and len(value) == 1 else value)

    @model_validator(mode="after")
    def _takes_effect(self) -> Objective:
        problems = _problems(self)
        if problems:
            raise ValueError(f"objective {self.name!r}: {'; '.join(problems)}")
        return self

    @property
    def needs_reference(self) -> bool:
        return self.kl is not None or self.regresses

    @property
    def reset(self) -> Reset | None:
        """When the reference becomes the policy; None where it stays."""
        return None if self.kl is None else self.kl.reset

    @property
    def regresses(self) -> bool:
        return isinstance(self.surrogate, Regression)

    @property
    def needs_proximal(self) -> bool:
        return self.anchor == "proximal"

    @property
    def needs_critic(self) -> bool:
        return isinstance(self.advantage, Gae)

    @property
    def needs_soft_values(self) -> bool:
        return isinstance(self.advantage, SoftValue)

    @property
    def compares(self) -> bool:
        """True if an episode is compared with others of its group, so that a group of one says nothing."""
        within = isinstance(self.advantage, OptimalBaseline | StepState | StepIndex)
        return within or getattr(self.advantage, "baseline", None) in ("group", "leave_one_out")

    @property
    def needs_teacher(self) -> bool:
        return self.teacher is not None

    @property
    def needs_entropy(self) -> bool:
        """True if `loss` needs the per-token entropy with a gradient."""
        return self.entropy is not None

    @property
    def needs_selection(self) -> bool:
        """True if `select` must run before `loss`."""
        return (
            self.shares_nodes
            or isinstance(self.overlong, OverlongMask)
            or any(each is not None for each in (self.selection, self.negatives, self.max_lag, self.teacher))
        )

    @property
    def shares_nodes(self) -> bool:
        """True if only tokens at which a group's answers part are trained on, each distinct one once."""
        return isinstance(self.advantage, PrefixTree)

    @property
    def needs_whole_episodes(self) -> bool:
        """True if all rows of an episode must be in one micro-batch."""
        return self.regresses or "episode" in (
            self.ratio_unit,
            *(getattr(each, "unit", "") for each in self.correction),
        )

    @property
    def reads_every_row(self) -> bool:
        """True if a row whose advantages are all zero still has a gradient, and must not be skipped."""
        return self.regresses or isinstance(self.kl, KlLoss) or self.needs_entropy or self.needs_teacher

    @property
    def clips(self) -> bool:
        """True if the surrogate treats ratios away from 1 otherwise than `plain` does."""
        return not isinstance(self.surrogate, Plain | Regression)

    @property
    def takes_passes(self) -> bool:
        """True if a second optimiser step on the same tokens is still a step of this objective."""
        ratio = self.ratio != "none" and self.anchor != "current"
        return ratio or self.regresses or (bool(self.correction) and self.anchor == "current")

    @property
    def corrects_staleness(self) -> bool:
        """True if tokens that an older policy drew are weighed or dropped for it."""
        anchored = self.ratio != "none" and self.anchor in ("behaviour", "interpolated")
        return anchored or bool(self.correction) or self.max_lag == 0

    @property
    def needs_length_budget(self) -> bool:
        return self.aggregation == "constant" or isinstance(self.overlong, OverlongPenalty)


def _problems(o: Objective) -> list[str]:
    """Why the combination of fields of `o` cannot take effect; empty if it can."""
    corrected = bool(o.correction)
    found: list[str] = []

    def refuse(condition: bool, message: str) -> None:
        if condition:
            found.append(message)

    refuse(
        sum(isinstance(each, WEIGHING) for each in o.correction) > 1,
        f"correction={o.correction!r} weighs by rho twice: let one weigh, and others drop",
    )
    refuse(o.needs_soft_values != o.regresses, "advantage=SoftValue(...) and surrogate=Regression(...) belong together")
    refuse(
        o.ratio == "none" and o.clips,
        f"surrogate={o.surrogate!r} acts on a ratio, but ratio='none' gives it none",
    )
    refuse(o.regresses and o.ratio != "none", "surrogate=Regression(...) uses no ratio: set ratio='none'")
    refuse(
        o.anchor == "current" and o.clips,
        f"anchor='current' makes every ratio 1, so surrogate={o.surrogate!r} could never clip",
    )
    refuse(
        o.ratio == "none" and not corrected and o.anchor != "current",
        f"anchor={o.anchor!r} has no effect without a ratio or a correction",
    )
    refuse(
        o.anchor == "behaviour" and corrected,
        "anchor='behaviour' already corrects for the sampler: a second correction would count it twice",
    )
    refuse(o.ratio_unit == "episode" and not o.ratio.startswith("sequence"), "ratio_unit has no effect at token level")
    refuse(o.regresses and corrected, "surrogate=Regression(...) takes no correction weight")
    refuse(
        isinstance(o.kl, KlLoss) and o.kl.estimator == "ratio_k3" and o.ratio == "none",
        f"kl={o.kl!r} multiplies by a ratio, but ratio='none'",
    )
    refuse(
        isinstance(o.kl, KlReward) and not isinstance(o.advantage, Outcome | OptimalBaseline | RewardToGo | Gae),
        f"kl={o.kl!r} has no effect with advantage={o.advantage!r}",
    )
    refuse(
        o.length_budget is not None and not o.needs_length_budget,
        "length_budget has no effect: only aggregation='constant' and an OverlongPenalty read it",
    )
    refuse(
        o.selection is not None and o.shares_nodes,
        f"selection={o.selection!r} does not go with advantage=PrefixTree(), which selects its own tokens",
    )
    refuse(
        o.needs_whole_episodes and o.aggregation_unit != "episode",
        "a ratio, correction or regression over whole episodes needs aggregation_unit='episode'",
    )
    refuse(
        o.regresses and o.aggregation != "seq-mean-token-sum",
        "surrogate=Regression(...) is a mean over episodes: set aggregation='seq-mean-token-sum'",
    )
    refuse(
        o.step_control is not None and not corrected,
        f"step_control={o.step_control!r} measures correction weights: set a correction",
    )
    for field, interval in _RANGES.items():
        value = getattr(o, field)
        refuse(value is not None and not within_range(value, interval), f"{field}={value!r} is not in {interval}")
    return found
