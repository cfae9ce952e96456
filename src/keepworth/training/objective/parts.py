"""Parts: what an objective is made of. Each holds its own numbers, so no number can be set where nothing reads it.

A part is written alike in Python, in a configuration and on the command line: `Clip(0.2, 0.28)`. This module is free of torch. A
new part is one decorated class: it derives from the class of its axis, implements the function of that axis, and lists in `needs`
what it reads; no other code has to change. The first paragraph of a part's docstring is its row in docs/objectives.md; names in
backticks there are its fields."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.registry import methods

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.collect.sources import Source
    from keepworth.training.learner import Learner
    from keepworth.training.objective.advantage import CreditTable
    from keepworth.training.objective.batch import Batch
    from keepworth.training.objective.formulas import Moments
    from keepworth.training.objective.policy_loss import Denominators, Gap
    from keepworth.training.rows import Rows

C = TypeVar("C")


class ObjectiveError(KeepworthError, ValueError):
    """An objective contradicts itself, or a run lacks what it needs."""


PARTS: dict[str, type] = {}
"""All parts by name, for configurations."""


class Part:
    """The base class of all parts.

    Attributes:
        needs: What it reads beyond what every objective reads: fields of `Batch`, then duties of the trainer.
        episodes: What the episodes must hold besides rewards of whole episodes, in words.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    episodes: ClassVar[tuple[str, ...]] = ()


class Advantage(Part):
    """The axis that says what an episode, a turn or a token is compared with.

    Attributes:
        compares: Whether an episode is compared with others of its group, so that a group of one is useless.
        takes_penalty: Whether a KL penalty that is subtracted from the reward has an effect.
        reads_proximal: Whether it reads log-probabilities from before the update.
    """

    compares: ClassVar[bool] = False
    takes_penalty: ClassVar[bool] = False
    reads_proximal: ClassVar[bool] = False
    scale: Any = None

    def sources(self, learner: Learner, episodes: Any, group_size: int, seed: int) -> tuple[Source, ...]:
        """Returns the sources that a recipe's updates need besides the groups that it samples.

        Args:
            learner: The learner, whose model a source may read.
            episodes: The recipe's episodes (`RecipeEpisodes`), from which a source may sample.
            group_size: The episodes of a group.
            seed: The seed of a source's draws.
        """
        return ()

    def measure(self, learner: Learner, rows: Rows, temperature: float) -> dict[str, Any]:
        """Returns, by name, fields of the batch that only models can compute, once the learner has filled in its own.

        Args:
            learner: The learner, with its model and its reference.
            rows: The rows of the update.
            temperature: The temperature at which the episodes were drawn.
        """
        return {}

    def tokens(self, credit: CreditTable) -> Tensor:
        """Returns the advantage of every token, [B,T] float64, before it is whitened."""
        raise NotImplementedError(f"{type(self).__name__} has no tokens(credit)")

    def keep(self, credit: CreditTable) -> Tensor | None:
        """Returns how much of each token is trained on, [B,T]; None where all tokens count fully."""
        return None


class Advised(Advantage):
    """An advantage that is computed from a critic's values, with the targets that the critic learns.

    Attributes:
        heads: How many values are learned separately; their minimum is used.
        values_actions: Whether the critic also values a turn once it is taken, Q(s, a).
        by_turn: Whether all tokens of a turn share one value, that of the state before its first token.
        leads: Whether the critic learns from an update's episodes before it values them.
        target_rate: The rate of the weight averages that its targets come from, per step; None for no averages.
    """

    needs: ClassVar[tuple[str, ...]] = ("values", "critic")
    heads: ClassVar[int] = 1
    values_actions: ClassVar[bool] = False
    leads: ClassVar[bool] = False
    by_turn: Any = False
    target_rate: Any = None
    value_coefficient: Any = 1.0
    value_clip: Any = None
    bootstrap: Any = False

    def state_targets(self, credit: CreditTable) -> Tensor:
        """Returns the targets of the values of states, [B,T] float64."""
        raise NotImplementedError(f"{type(self).__name__} has no state_targets(credit)")

    def action_targets(self, credit: CreditTable) -> Tensor:
        """Returns the targets of the values of turns, [B,T] float64, where turns have values."""
        raise NotImplementedError(f"{type(self).__name__} has no action_targets(credit)")


class Weight(Part):
    """The axis of factors by which the gradient of each token is multiplied, once its advantage is known."""

    def weigh(self, batch: Batch) -> Tensor:
        """Returns the factors, [B,T] float64, computed on the whole batch."""
        raise NotImplementedError(f"{type(self).__name__} has no weigh(batch)")


class Ratio(Part):
    """The axis of ratios between the policy and the anchor."""

    acts: ClassVar[bool] = True
    anchor: Any = "proximal"

    def log(self, gap: Gap) -> Tensor:
        """Returns the log-ratio of each token, [B,T] with gradient. `gap` is that of the policy over the anchor."""
        raise NotImplementedError(f"{type(self).__name__} has no log(gap)")


class Surrogate(Part):
    """The axis of terms that are maximised at each token. All tensors are [B,T]."""

    clips: ClassVar[bool] = True
    """Whether the term differs from r A for ratios away from 1."""
    regresses: ClassVar[bool] = False
    """Whether it is a regression of whole episodes (`whole`) instead of a surrogate of tokens (`value`)."""

    def value(self, lp: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns the term of each token, [B,T].

        Args:
            lp: [B,T] The log-probabilities under the current weights, with gradient.
            log_ratio: [B,T] The log-ratio to the anchor, with gradient.
            advantage: [B,T] The advantages, detached.
        """
        raise NotImplementedError(f"{type(self).__name__} has no value(lp, log_ratio, advantage)")

    def whole(self, lp: Tensor, advantages: Tensor, batch: Batch, denominators: Denominators) -> Tensor:
        """Returns the loss of whole episodes, a scalar.

        Args:
            lp: [B,T] The log-probabilities under the current weights, with gradient.
            advantages: [B,T] The advantages, detached.
            batch: The rows that the tensors are of.
            denominators: The counts over the whole optimiser step that the loss is divided by.
        """
        raise NotImplementedError(f"{type(self).__name__} has no whole(lp, advantages, batch, denominators)")

    def cut(self, ratio: Tensor, advantage: Tensor) -> dict[str, Tensor]:
        """Returns by name, as [B,T] bool, which tokens' gradients were cut or weights capped, for the run's metrics."""
        return {}


class Correction(Part):
    """The axis of corrections for the gap between the policy that drew and the anchor: rho = anchor / behaviour."""

    def weigh(self, gap: Gap) -> tuple[Tensor | None, Tensor | None]:
        """Returns (weight, keep) of every token, [B,T]; None for a part of the pair that changes nothing."""
        raise NotImplementedError(f"{type(self).__name__} has no weigh(gap)")


class Selection(Part):
    """The axis that selects the tokens to train on."""

    def keep(self, batch: Batch, generator: Any = None) -> Tensor:
        """Returns each token's factor, [B,T]: 0 where it is left out, above 1 where it stands for several."""
        raise NotImplementedError(f"{type(self).__name__} has no keep(batch, generator)")


class Overlong(Part):
    """The axis that says how answers that hit the length limit are treated."""

    reads_budget: ClassVar[bool] = False

    def shape(self, reward: Tensor, tokens: Tensor, budget: int) -> Tensor:
        """Returns the rewards of episodes, [E], with the penalty for long answers.

        Args:
            reward: [E] The rewards of the episodes.
            tokens: [E] The drawn tokens of each.
            budget: The most tokens that an episode may draw.
        """
        return reward


class Distillation(Part):
    """The axis of a coefficient times k2(lp, lp_teacher), averaged like the loss, on some episodes."""

    needs: ClassVar[tuple[str, ...]] = ("lp_teacher",)

    def coefficient_at(self, step: int) -> float:
        """Returns the coefficient at update `step`."""
        raise NotImplementedError(f"{type(self).__name__} has no coefficient_at(step)")

    def rows(self, batch: Batch) -> Tensor:
        """Returns the rows that the teacher term applies to, [B] bool, besides the reward."""
        raise NotImplementedError(f"{type(self).__name__} has no rows(batch)")


class Gate(Part):
    """The axis that decides whether episodes with a negative advantage are left out of the next update."""

    def closed(self, before: bool, entropy: float) -> bool:
        """Returns whether they are left out, from the last decision and the batch's mean token entropy at the training
        temperature, in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no closed(before, entropy)")


class StepControl(Part):
    """The axis that scales a step."""

    needs: ClassVar[tuple[str, ...]] = ("learning_rate_scale",)

    def scale(self, ess: float) -> float:
        """Returns the factor of the step's learning rate, from the effective sample size of the whole step, a share in (0, 1]."""
        raise NotImplementedError(f"{type(self).__name__} has no scale(ess)")


@dataclass_transform(frozen_default=True)
def check_fields(raises: type[KeepworthError]) -> Callable[[type[C]], type[C]]:
    """Returns a decorator that makes a frozen dataclass which checks its fields' values. Making one with a bad value raises
    `raises`, which names the class and the value."""

    def decorate(cls: type[C]) -> type[C]:
        settings = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid", arbitrary_types_allowed=True)
        made: Any = dataclass(cls, frozen=True, repr=False, config=settings)
        check = made.__init__

        def __init__(self: Any, *arguments: Any, **named: Any) -> None:
            try:
                check(self, *arguments, **named)
            except ValidationError as error:
                raise raises(f"{cls.__name__}: {_complaints(made, error)}.") from None

        made.__init__ = __init__
        made.__repr__ = _written
        return made  # type: ignore[no-any-return]

    return decorate


@dataclass_transform(frozen_default=True)
def part(cls: type[C]) -> type[C]:
    """Makes a dataclass under `check_fields` whose repr is the code that makes it, without fields at their defaults. It raises
    ObjectiveError."""
    made = check_fields(ObjectiveError)(cls)
    if not cls.__name__.startswith("_"):
        PARTS[cls.__name__] = made
    return made


def _written(self: Any) -> str:
    shown: list[str] = []
    for index, parameter in enumerate(fields(self)):
        value = getattr(self, parameter.name)
        if parameter.default is MISSING or value != parameter.default:
            shown.append(repr(value) if index == len(shown) else f"{parameter.name}={value!r}")
    return f"{type(self).__name__}({', '.join(shown)})"


def _complaints(cls: Any, error: ValidationError) -> str:
    names = [field.name for field in fields(cls)]
    takes = f"it takes {', '.join(names) or 'no values'}"
    complaints: dict[str, str] = {}  # one complaint a field, of those that each kind of part would make
    for entry in error.errors():
        parameter = entry["loc"][0] if entry["loc"] else ""
        name = names[parameter] if isinstance(parameter, int) and parameter < len(names) else str(parameter)
        message = str(entry["msg"]).removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        if entry["type"] == "missing":
            complaints.setdefault(name, f"it needs {name}")
        elif entry["type"] == "unexpected_positional_argument":
            complaints.setdefault("", takes)
        elif entry["type"].startswith("unexpected"):
            complaints.setdefault(name, f"it takes no {name!r}; {takes}")
        else:
            complaints.setdefault(name, f"{name} = {entry['input']!r}: {message}" if name else message)
    return "; ".join(complaints.values())


Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

# -- advantages: what an episode, a turn or a token is compared with, R the episode's reward ----------------------------------

Baseline = Literal["group", "leave_one_out", "batch"]
"""The mean of the group, of the others of the group, or of all episodes of the update."""


class Scale(Part):
    """The axis of what an advantage is divided by."""

    epsilon: Any

    def statistics(self, rewards: Tensor, group: Tensor, task: Tensor | None) -> Moments | None:
        """Returns statistics of the rewards, [E], whose spread divides each advantage; None where the spread is over tokens.

        Args:
            rewards: [E] The rewards of the episodes as they were.
            group: [E] The group of each episode.
            task: [E] The kind of task of each episode; None where kinds are not known.
        """
        return None


@part
class GroupStd(Scale):
    """divided by std_group R + `epsilon` (GRPO)."""

    epsilon: Positive = 1e-6

    def statistics(self, rewards: Tensor, group: Tensor, task: Tensor | None) -> Moments:
        """Returns statistics of each group. Source: GRPO, arXiv 2402.03300."""
        from keepworth.training.objective.formulas import moments

        return moments(rewards, group)


@part
class BatchStd(Scale):
    """divided by std_batch R + `epsilon` (Lite PPO)."""

    epsilon: Positive = 1e-6

    def statistics(self, rewards: Tensor, group: Tensor, task: Tensor | None) -> Moments:
        """Returns statistics of the whole batch. Source: Lite PPO, arXiv 2508.08221."""
        from keepworth.training.objective.formulas import moments

        return moments(rewards, group * 0)


@part
class Whitened(Scale):
    """whitened over all drawn tokens of the step (REINFORCE++)."""

    epsilon: Positive = 1e-6


@part
class Outcome(Advantage):
    """R; minus its mean (`baseline`); `scale`.

    One number for all tokens of an episode."""

    takes_penalty = True

    baseline: Baseline | None = None
    scale: Scale | None = None

    def tokens(self, credit: CreditTable) -> Tensor:
        return credit.spread(credit.compare(credit.reward_less_penalty(), self.baseline, self.scale))


@part
class Gae(Advised):
    """generalised advantage estimation over every `level`, discount `discount`, trace `trace_decay`, of the critic; its targets
    have the trace `target_decay`; `scale`; V clipped to within `value_clip` of its old value; `bootstrap`: V stands behind an
    answer that the length limit cut off.

    With level "turn", a value is that of the state before a turn's first token, and all tokens of the turn have its advantage."""

    takes_penalty = True

    trace_decay: Share
    discount: Share = 1.0
    scale: Whitened | None = None
    value_coefficient: Positive = 0.5
    value_clip: Positive | None = None
    bootstrap: bool = False
    level: Literal["token", "turn"] = "token"
    target_decay: Share | None = None

    def __post_init__(self) -> None:
        if self.target_decay == self.trace_decay:
            raise ValueError(f"target_decay = {self.target_decay} is trace_decay: leave it out")

    @property
    def by_turn(self) -> bool:
        return self.level == "turn"

    def tokens(self, credit: CreditTable) -> Tensor:
        return self._estimate(credit, self.trace_decay)

    def state_targets(self, credit: CreditTable) -> Tensor:
        """Returns targets with a trace of their own: the decoupled GAE of VAPO, arXiv 2504.05118."""
        decay = self.trace_decay if self.target_decay is None else self.target_decay
        return self._estimate(credit, decay) + credit.state_values(self)

    def _estimate(self, credit: CreditTable, trace_decay: float) -> Tensor:
        from keepworth.training.objective.formulas import gae

        places, end = (credit.turns if self.by_turn else credit.packed), credit.batch.bootstrap
        estimate = gae(
            places.pack(credit.unpack(credit.token_rewards(credit.reward)), total=True),
            places.pack(credit.state_values(self)),
            places.lengths,
            self.discount,
            trace_decay,
            None if end is None else credit.table.first(end),
        )
        return places.unpack(estimate, credit.batch.shape)


LOG_LIMIT, GEOMETRIC_LOG_LIMIT = 20.0, 10.0

# -- ratios: how far the policy has moved from an anchor ----------------------------------------------------------------------

Unit = Literal["episode", "row"]
"""The unit of a sequence: all rows of an episode, or one row."""
Anchor = Literal["proximal", "behaviour", "current"]
"""The policy before the update, the sampler's, or the policy itself, at which every ratio is 1."""


@part
class NoRatio(Ratio):
    """lp in its place: the score function (REINFORCE).

    anchor: what a correction is taken at."""

    acts = False

    anchor: Literal["current", "proximal"] = "current"


@part
class Token(Ratio):
    """exp(lp - anchor), token by token; anchor: `anchor`."""

    anchor: Anchor = "proximal"

    def log(self, gap: Gap) -> Tensor:
        return gap.log_rho.clamp(-LOG_LIMIT, LOG_LIMIT)


@part
class Sequence(Ratio):
    """exp(mean over the `unit` of lp - anchor), the same on each of its tokens (GSPO); anchor: `anchor`."""

    anchor: Anchor = "proximal"
    unit: Unit = "row"

    def log(self, gap: Gap) -> Tensor:
        """Returns the mean log-ratio of the sequence at each of its tokens. Source: GSPO, arXiv 2507.18071."""
        return gap.mean(gap.log_rho, self.unit).clamp(-LOG_LIMIT, GEOMETRIC_LOG_LIMIT).expand_as(gap.log_rho)


# -- surrogates: what is maximised at a token, r its ratio and A its advantage ------------------------------------------------


def clip_surrogate(log_ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """Returns min(r A, clip(r, 1 - low, 1 + high) A), r = exp(log_ratio).

    Args:
        log_ratio: [B,T] The log-ratio to the anchor, with gradient.
        advantage: [B,T] The advantages, detached.
        low: How far below 1 a ratio has a gradient where the advantage is negative.
        high: How far above 1 a ratio has a gradient where the advantage is positive.
    """
    ratio = log_ratio.exp()
    return (ratio * advantage).minimum(ratio.clamp(1 - low, 1 + high) * advantage)


def outside(ratio: Tensor, advantage: Tensor, low: float, high: float) -> dict[str, Tensor]:
    """Returns which tokens have no gradient under `clip_surrogate`, [B,T] bool, by the names of the run's metrics.

    Args:
        ratio: [B,T] The ratios to the anchor.
        advantage: [B,T] The advantages.
        low: How far below 1 a ratio has a gradient.
        high: How far above 1 a ratio has a gradient.
    """
    below, above = (ratio < 1 - low) & (advantage < 0), (ratio > 1 + high) & (advantage > 0)
    return {"clip_fraction_low": below, "clip_fraction_high": above}


@part
class Plain(Surrogate):
    """r A."""

    clips = False

    def value(self, lp: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns r A. At r = 1 its gradient is REINFORCE's."""
        return log_ratio.exp() * advantage


@part
class Clip(Surrogate):
    """min(r A, clip(r, 1 - `low`, 1 + `high`) A)."""

    low: Share  # from 1 on, no ratio is below the bound
    high: Amount

    def value(self, lp: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns min(r A, clip(r) A). A > 0 has a gradient iff r < 1 + high, A < 0 iff r > 1 - low. Source: Proximal Policy
        Optimization Algorithms, arXiv 1707.06347, eq. 7; unequal bounds from DAPO, arXiv 2503.14476."""
        return clip_surrogate(log_ratio, advantage, self.low, self.high)

    def cut(self, ratio: Tensor, advantage: Tensor) -> dict[str, Tensor]:
        return outside(ratio, advantage, self.low, self.high)


# -- corrections of the gap between the policy that drew and the anchor: rho = anchor / behaviour -------------------------------

Ceiling = Annotated[float, Field(ge=1)]  # a range of ratios holds 1, or tokens without a gap are dropped


def truncate_ratio(log_rho: Tensor, high: float) -> Tensor:
    """Returns min(rho, high): truncated importance sampling (TIS). It works on tokens or on sequence sums."""
    return log_rho.clamp(-LOG_LIMIT, LOG_LIMIT).exp().clamp(max=high)


def within(log_rho: Tensor, low: float, high: float) -> Tensor:
    """Returns 1 where low <= rho <= high, else 0. With the weight rho itself this is IcePop's M(rho), arXiv 2510.18855.

    Args:
        log_rho: The log-ratios of the anchor over the policy that drew, of any shape.
        low: The least ratio that is kept.
        high: The greatest ratio that is kept.
    """
    rho = log_rho.clamp(-LOG_LIMIT, LOG_LIMIT).exp()
    return ((rho >= low) & (rho <= high)).to(log_rho.dtype)


@part
class Mask(Correction):
    """weight rho; tokens outside [`low`, `high`] are dropped (IcePop)."""

    low: Share
    high: Ceiling

    def weigh(self, gap: Gap) -> tuple[Tensor | None, Tensor | None]:
        return truncate_ratio(gap.log_rho, math.inf), within(gap.log_rho, self.low, self.high)


# -- regularisers ---------------------------------------------------------------------------------------------------------


@part
class Reset(Part):
    """the reference becomes the policy, and the optimiser forgets, when the KL exceeds `kl` or `patience` validations bring no
    improvement (ProRL)."""

    needs = ("reference_reset",)

    kl: Positive
    patience: Count


@part
class KlReward(Part):
    """`coefficient` * (lp - lp_reference) is taken off the reward of each token."""

    needs = ("lp_reference",)

    coefficient: Positive
    reset: Reset | None = None


@part
class KlLoss(Part):
    """`coefficient` * `estimator`(lp, lp_reference), averaged like the loss."""

    needs = ("lp_reference",)

    estimator: Literal["k2", "k3"]
    coefficient: Positive
    reset: Reset | None = None


@part
class EntropyBonus(Part):
    """`coefficient` * the token's entropy, averaged like the loss."""

    coefficient: Positive


# -- which tokens, episodes and groups count --------------------------------------------------------------------------------


@part
class OverlongMask(Overlong):
    """answers that the length limit cut off are left out."""

    needs = ("truncated",)


@part
class Mixed(Part):
    """groups whose scores are all equal are rejected, and logged (dynamic sampling, DAPO)."""

    needs = ("group_filter",)

    def rejection(self, scores: tuple[float, ...]) -> str:
        """Returns why a group with these scores is rejected; "" where it is kept. Source: DAPO, arXiv 2503.14476."""
        return f"all {len(scores)} scores are {scores[0]:g}" if min(scores) == max(scores) else ""


Kl = KlReward | KlLoss


def kinds_in(annotation: Any) -> tuple[type, ...]:
    """Returns the kinds of parts that an annotation such as `Kl | None` allows."""
    if annotation in PARTS.values():
        return (annotation,)
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return tuple(kind for kind in PARTS.values() if issubclass(kind, annotation))
    return tuple(kind for arg in get_args(annotation) for kind in kinds_in(arg))


def inside(kinds: tuple[type, ...]) -> tuple[type, ...]:
    """Returns the kinds of parts that parts of these kinds may hold: GroupStd and others for Outcome."""
    nested = (kind_inside for kind in kinds for hint in get_type_hints(kind).values() for kind_inside in kinds_in(hint))
    return tuple(dict.fromkeys(nested))


def signature(kind: type) -> str:
    """Returns how a part of this kind is written: `Clip(low, high)`."""
    return f"{kind.__name__}({', '.join(field.name for field in fields(kind))})"


def read(text: str) -> Any:
    """Parses a part as it is written in Python, `Clip(0.2, 0.28)`, or without numbers `Plain`. `none` is None.

    A word inside may go without quotes: `KlLoss(k3, 0.001)`. Raises UnknownName with the nearest part, or ObjectiveError for text
    that is not a part."""
    try:
        part = _made(ast.parse(text.strip(), mode="eval").body)
        if isinstance(part, str):
            raise UnknownName("part of an objective", part, PARTS)
        return part
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        if isinstance(error, KeepworthError):
            raise
        raise ObjectiveError(f"{text[:80]!r} is not a part of an objective.", "Write it as Clip(0.2, 0.28).") from None


def _parts(name: str) -> dict[str, type]:
    """Returns all parts. Those in files of objectives are loaded only where `name` is none of the others."""
    if name not in PARTS and name[:1].isupper():
        methods("objective")
    return PARTS


def _made(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id not in _parts(node.func.id):
            raise UnknownName("part of an objective", node.func.id, PARTS)
        named = {str(keyword.arg): _made(keyword.value) for keyword in node.keywords}
        return PARTS[node.func.id](*map(_made, node.args), **named)
    if isinstance(node, ast.Name):
        word = node.id
        return PARTS[word]() if word in _parts(word) else None if word.lower() == "none" else word
    return ast.literal_eval(node)
