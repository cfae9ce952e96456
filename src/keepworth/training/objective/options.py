"""Objective: what a policy update optimises, as data. Free of torch, so that it can be listed and checked anywhere.

Every objective is an instance of one formula, summed over the rows i and tokens t of an optimiser step:

    L = Agg[ keep * weight * -Surrogate(ratio, A) ]
        + kl      * Agg[ KL(lp, lp_reference) ]
        - entropy * Agg[ H ]
        + teacher * Agg[ k2(lp, lp_teacher) on some episodes ]

There is one field per axis, which holds a part with its own numbers (`parts.py`). An objective whose parts could not take effect
together is refused when it is made."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_serializer, field_validator, model_validator

from keepworth.base.errors import UnknownName, nearest
from keepworth.training.objective import parts
from keepworth.training.objective.parts import ObjectiveError as ObjectiveError
from keepworth.training.objective.parts import Reset


class Objective(BaseModel):
    """One policy-gradient (or regression) objective.

    `None` means that an axis is not used. A number without effect raises ValueError. Only `length_budget` may stay None in a
    preset: it is the run's generation limit, and `denominators` or `advantages` ask for it by name when they need it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)

    name: str = "custom"

    # Advantage, from the reward.
    advantage: parts.Advantage = parts.Outcome()
    weight: parts.Weight | None = None
    overlong: parts.Overlong | None = None
    length_budget: parts.Count | None = None

    # Ratio, surrogate, behaviour correction.
    ratio: parts.Ratio = parts.NoRatio()
    surrogate: parts.Surrogate = parts.Plain()
    correction: parts.Correction | None = None

    # Aggregation.
    aggregation: Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "constant"] = "token-mean"
    aggregation_unit: parts.Unit = "episode"
    denominator: Literal["original", "kept"] = "original"
    local_weight: parts.Positive | None = None

    # Regularisers.
    kl: parts.Kl | None = None
    entropy: parts.EntropyBonus | None = None
    teacher: parts.Distillation | None = None
    adapter_decay: parts.Amount = 0.0

    # Which tokens, episodes and groups count, and how large a step is.
    negatives: parts.Gate | None = None
    selection: parts.Selection | None = None
    group_filter: parts.Mixed | None = None
    step_control: parts.StepControl | None = None

    # A term that every episode's reward must hold, or the objective would be another one.
    reward_term: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    near = nearest(str(key), cls.model_fields)
                    fix = f"did you mean {near!r}?" if near else f"known: {', '.join(cls.model_fields)}"
                    raise ValueError(f"an objective has no option {key!r}; {fix}")
        return data

    @field_validator("*", mode="before")
    @classmethod
    def _part(cls, value: Any, info: ValidationInfo) -> Any:
        """Converts a part from text where it is text, and checks that the field takes it. An optional field takes None."""
        field = cls.model_fields[str(info.field_name)]
        kinds = parts.kinds_in(field.annotation)
        if not kinds:
            return value
        taken = ", ".join(map(parts.signature, kinds)) + (" or none" if field.default is None else "")
        try:
            given = parts.read(value) if isinstance(value, str) else value
        except UnknownName as error:
            within = () if str(value).strip().startswith(error.name) else parts.inside(kinds)
            near = nearest(error.name, [kind.__name__ for kind in (*kinds, *within)])  # a part of another field never
            meant = f", did you mean {near!r}?" if near else ";"
            raise ValueError(f"there is no part {error.name!r}{meant} it takes {taken}") from None
        if not isinstance(given, kinds) and not (given is None and field.default is None):
            raise ValueError(f"{given!r} cannot stand here: it takes {taken}")
        return given

    @field_serializer("*")
    def _written(self, value: Any) -> Any:
        return repr(value) if type(value) in parts.PARTS.values() else value

    @model_validator(mode="after")
    def _takes_effect(self) -> Objective:
        if problems := "; ".join(_problems(self)):
            raise ValueError(f"objective {self.name!r}: {problems}")
        return self

    @property
    def all_parts(self) -> tuple[parts.Part, ...]:
        """The parts, with the parts inside them."""
        outer = [getattr(self, name) for name in type(self).model_fields]
        inner = [getattr(part, name, None) for part in outer for name in ("scale", "reset", "anneal")]
        return tuple(part for part in (*outer, *inner) if isinstance(part, parts.Part))

    @property
    def needs_reference(self) -> bool:
        return self.kl is not None or self.surrogate.regresses

    @property
    def reset(self) -> parts.Reset | None:
        """The rule by which the reference becomes the policy; None where it never does."""
        return None if self.kl is None else self.kl.reset

    @property
    def needs_critic(self) -> bool:
        return "critic" in self.advantage.needs

    @property
    def needs_soft_values(self) -> bool:
        return "soft_value" in self.advantage.needs

    @property
    def compares(self) -> bool:
        """True if an episode is compared with others of its group, so that a group of one is useless."""
        return self.advantage.compares or getattr(self.advantage, "baseline", None) in ("group", "leave_one_out")

    @property
    def needs_differences(self) -> bool:
        """True if nothing but a difference between the rewards of a group's episodes teaches anything."""
        by_group = isinstance(self.advantage, parts.Outcome) and self.advantage.baseline in ("group", "leave_one_out")
        alone = self.teacher is None and self.overlong is None and not isinstance(self.kl, parts.KlReward)
        return by_group and alone

    @property
    def needs_selection(self) -> bool:
        """True if `select` must run before `loss`."""
        return (
            self.shares_nodes
            or isinstance(self.overlong, parts.OverlongMask)
            or any(part is not None for part in (self.selection, self.negatives, self.teacher))
        )

    @property
    def shares_nodes(self) -> bool:
        """True if only tokens at which a group's answers diverge are trained on, each distinct one once."""
        return type(self.advantage).keep is not parts.Advantage.keep

    @property
    def needs_whole_episodes(self) -> bool:
        """True if all rows of an episode must be in one micro-batch."""
        return self.surrogate.regresses or any(
            getattr(part, "unit", "") == "episode" for part in (self.ratio, self.correction)
        )

    @property
    def reads_every_row(self) -> bool:
        """True if a row whose advantages are all zero still has a gradient, and must not be skipped."""
        return (
            self.surrogate.regresses
            or isinstance(self.kl, parts.KlLoss)
            or self.entropy is not None
            or self.teacher is not None
        )

    @property
    def takes_passes(self) -> bool:
        """True if a second optimiser step on the same tokens is still a step of this objective."""
        ratio = self.ratio.acts and self.ratio.anchor != "current"
        return ratio or self.surrogate.regresses or (self.correction is not None and self.ratio.anchor == "current")

    @property
    def corrects_staleness(self) -> bool:
        """True if tokens that an older policy drew are weighed or dropped because of that."""
        return self.correction is not None or (self.ratio.acts and self.ratio.anchor == "behaviour")

    @property
    def budget(self) -> int:
        """The length_budget, or 0. Raises ObjectiveError where it is needed and not set."""
        if self.needs_length_budget and self.length_budget is None:
            raise ObjectiveError(f"objective {self.name!r} divides by the generation limit: set length_budget.")
        return self.length_budget or 0

    @property
    def needs_length_budget(self) -> bool:
        return self.aggregation == "constant" or (self.overlong is not None and self.overlong.reads_budget)


def _regresses_whole(o: Objective) -> bool:
    """Whether a regression of whole episodes has all that it needs, and nothing that it would ignore."""
    parts_fit = o.surrogate.regresses and o.needs_soft_values and not o.ratio.acts
    return parts_fit and o.correction is None and o.aggregation == "seq-mean-token-sum"


def _problems(o: Objective) -> Iterator[str]:
    """Yields why the parts of `o` cannot take effect together."""
    if (o.surrogate.regresses or o.needs_soft_values) and not _regresses_whole(o):
        yield (
            "surrogate=Regression(...) and advantage=SoftValue(...) belong together, with ratio=NoRatio(), "
            "aggregation='seq-mean-token-sum', and no correction"
        )
    if o.surrogate.regresses and o.weight is not None:
        yield f"weight={o.weight!r} has no effect with a surrogate that is a regression of whole episodes"
    if o.surrogate.clips and not o.ratio.acts:
        yield f"surrogate={o.surrogate!r} acts on a ratio, but ratio={o.ratio!r} gives it none"
    if o.surrogate.clips and o.ratio.anchor == "current":
        yield f"anchor='current' makes every ratio 1, so surrogate={o.surrogate!r} could never clip"
    if not o.ratio.acts and o.correction is None and o.ratio.anchor != "current":
        yield f"ratio={o.ratio!r}: the anchor has no effect without a correction"
    if o.ratio.anchor == "behaviour" and o.correction is not None:
        yield "anchor='behaviour' already corrects for the sampler: a second correction would count it twice"
    if isinstance(o.kl, parts.KlReward) and not o.advantage.takes_penalty:
        yield f"kl={o.kl!r} has no effect with advantage={o.advantage!r}"
    if o.length_budget is not None and not o.needs_length_budget:
        yield "length_budget has no effect: only aggregation='constant' and an OverlongPenalty read it"
    if o.selection is not None and o.shares_nodes:
        yield f"selection={o.selection!r} does not go with advantage=PrefixTree(), which selects its own tokens"
    if o.needs_whole_episodes and o.aggregation_unit != "episode":
        yield "a ratio, correction or regression over whole episodes needs aggregation_unit='episode'"
    if o.step_control is not None and o.correction is None:
        yield f"step_control={o.step_control!r} measures correction weights: set a correction"


# Controls: the few numbers of an objective that change from step to step, and the rules that change them. A checkpoint saves
# `Controls` as it is; nothing else in an objective has a memory.


@dataclass(frozen=True, slots=True)
class Controls:
    """The numbers of an objective that change from step to step.

    Attributes:
        positives_only: The state of AEPO's gate.
        teacher_coefficient: The teacher's coefficient at this step.
        reset: Whether the reference becomes a copy of the policy and the optimiser's state is cleared.
        best: The highest validation score so far.
        waited: Validations since then.
    """

    step: int = 0
    positives_only: bool = False
    teacher_coefficient: float = 0.0
    reset: bool = False
    best: float = -math.inf
    waited: int = 0


def initial(objective: Objective) -> Controls:
    return Controls(teacher_coefficient=0.0 if objective.teacher is None else objective.teacher.coefficient_at(0))


def advance(
    controls: Controls,
    objective: Objective,
    entropy: float | None = None,
    kl: float | None = None,
    validation: float | None = None,
) -> Controls:
    """Returns the controls of the next update. Call it once per optimiser step.

    Args:
        controls: The controls of this update.
        objective: What is optimised, whose parts say how their controls move.
        entropy: For the gate: mean token entropy, in nats, of the batch about to be trained on, or of the last one (a lag of one
            step).
        kl: For a `Reset`: mean KL to the reference.
        validation: A score, higher is better, at steps that measured one.
    """
    following = replace(controls, step=controls.step + 1, reset=False)
    if objective.negatives is not None:
        assert entropy is not None
        closed = objective.negatives.closed(controls.positives_only, entropy)
        following = replace(following, positives_only=closed)
    if objective.teacher is not None:
        following = replace(following, teacher_coefficient=objective.teacher.coefficient_at(following.step))
    if objective.reset is not None:
        assert kl is not None
        following = _reset(following, objective.reset, kl, validation)
    return following


def _reset(controls: Controls, rule: Reset, kl: float, validation: float | None) -> Controls:
    """Resets the reference (and the optimiser's state) when the KL is too large or validation has stopped improving. Source:
    ProRL, arXiv 2505.24864. Its numeric triggers are not published; here they are explicit options."""
    best, waited = controls.best, controls.waited
    if validation is not None:
        best, waited = (validation, 0) if validation > best else (best, waited + 1)
    reset = kl > rule.kl or waited >= rule.patience
    return replace(controls, best=best, waited=0 if reset else waited, reset=reset)
