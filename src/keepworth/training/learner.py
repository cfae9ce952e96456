"""The learner: updates a model's weights from groups of episodes."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Annotated, Any, Literal

from keepworth.base.needs import needs_train

import torch
from pydantic import Field

from keepworth.models.adapter import Named
from keepworth.models.inprocess import InProcessModel
from keepworth.records.episode import Group
from keepworth.records.model import Model, Tokens
from keepworth.training.critic import Critic, CriticSettings
from keepworth.training.master_weights import MasterWeights, Norm
from keepworth.training.mixture import Imitation, MixedLoss, OtherLoss, other_losses
from keepworth.training.objective.advantage import advantages, rejection, select
from keepworth.training.objective.batch import Batch
from keepworth.training.objective.inputs import require_clip, require_inputs, require_off_policy
from keepworth.training.objective.options import Controls, Objective, advance, initial
from keepworth.training.objective.parts import Advised, Amount, Count, KlReward, ObjectiveError, check_fields
from keepworth.training.objective.policy_loss import (
    Denominators,
    denominators,
    effective_sample_size,
    group_metrics,
    loss,
    merge_metrics,
    mismatch,
    unit_of,
    unit_sum,
)
from keepworth.training.passes import Checkpointing, MicroBatch, Passes, PassRoom, row_scores
from keepworth.training.recomputed import estimate_recomputed_share
from keepworth.training.reference import reference_for, require_same_tokens, teacher_scores
from keepworth.training.rows import Rows, Texts, require_credit, require_roles, rows_of
from keepworth.training.shares import Shares

Beta = Annotated[float, Field(ge=0, lt=1)]


@check_fields(ObjectiveError)
class Optimisation:
    """Settings of AdamW, of its learning rate's schedule, and of the passes of an update. Raises ObjectiveError for a bad number.

    Attributes:
        max_norm: The gradient is scaled down to this norm where it is longer.
        warmup_steps: Updates over which the learning rate rises to its value.
        schedule: How the learning rate goes on from there. "linear" and "cosine" fall towards 0 over the `steps` of the whole
            training (see `rate_at`).
        token_budget: The most padded tokens whose activations one forward and backward pass may hold. It bounds memory only.
            `update` raises BudgetTooSmall where one answer and its prompt do not fit.
        checkpointing: Whether layers are recomputed in the backward pass, which fits several times as many tokens. "auto" does so
            where it is needed or saves time (see `keepworth.training.passes.PassRoom`). It bounds memory only.
        passes: How often an update goes over its episodes.
        minibatches: Optimiser steps of each such pass, every one on its share of the groups. From the second step of an update
            on, the ratio to the proximal policy is not 1.
    """

    learning_rate: Amount = 3e-4
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: Amount = 0.0
    max_norm: Norm = 1.0
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    steps: int = 0
    token_budget: Count = 2048
    checkpointing: Checkpointing = "auto"
    passes: Count = 1
    minibatches: Count = 1

    def __post_init__(self) -> None:
        if self.schedule != "constant" and self.steps <= self.warmup_steps:
            raise ValueError(
                f"schedule = {self.schedule!r} falls over what is left of steps = {self.steps} after warmup_steps = "
                f"{self.warmup_steps}: nothing is. Say how many steps the training has, more than the learning rate rises over"
            )


def rate_at(optimisation: Optimisation, step: int) -> float:
    """Returns the factor by which update `step` (from 0) multiplies the learning rate.

    It rises by 1/W over the first W = warmup_steps updates and is 1 in the last of them. Then, with N = steps and p = (step - W)
    / (N - W), it is 1 - p (linear) or (1 + cos(pi p)) / 2 (cosine; SGDR, arXiv 1608.03983, equation 5, without restarts). So it
    is 1 in the first update after the rise, and 1 / (N - W), or (1 - cos(pi / (N - W))) / 2, in the last."""
    rising = optimisation.warmup_steps
    if step < rising:
        return (step + 1) / rising
    if optimisation.schedule == "constant":
        return 1.0
    left = max(0, optimisation.steps - step) / (optimisation.steps - rising)
    return left if optimisation.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2


class Learner:
    """Updates `model` in place. The sampler and the learner use the same weights, so nothing has to be published.

    Args:
        role: The role under which the weights are saved.
        roles: The roles whose segments are trained on; by default `role` alone.
        teacher: The model that an objective with a teacher term distils from.
        soft_values: V* of each task, by its key, for an objective that regresses on it. The learner's `soft_values` may grow.
        critic: Settings of the value model, for an objective with a critic.
        mixture: Losses that are added to the policy's.
        shares: This learner's share of updates that several learners make together; by default it makes them alone. Only the
            first learner then has a teacher and the values of tasks.

    Raises:
        ObjectiveError: The objective needs an input that is missing, or would leave one unused. With one optimiser step an
            update, this holds for a clip that you set; one that comes with a preset only warns, as many train it so.
    """

    def __init__(
        self,
        model: InProcessModel,
        named: Named,
        objective: Objective,
        optimisation: Optimisation,
        role: str,
        *,
        roles: Sequence[str] = (),
        teacher: Model | None = None,
        soft_values: Mapping[str, float] | None = None,
        critic: CriticSettings | None = None,
        mixture: MixedLoss | None = None,
        shares: Shares | None = None,
    ) -> None:
        self.shares = shares or Shares()
        follows = self.shares.rank > 0  # what a teacher or values of tasks say, the first learner tells the others
        given = {
            "lp_teacher": teacher is not None or follows,
            "soft_value": soft_values is not None or follows,
            "adapter_decay": hasattr(model.network, "peft_config"),
        }
        require_inputs(objective, given, "the learner")
        _require_effect(objective, teacher is not None, soft_values is not None, critic is not None)
        require_off_policy(objective, optimisation.passes, optimisation.minibatches)
        if idle := require_clip(objective, optimisation.passes, optimisation.minibatches):
            warnings.warn(idle, stacklevel=2)
        if teacher is not None:
            require_same_tokens(teacher, model)
        self.model = model
        self.objective = objective
        self.optimisation = optimisation
        self.role = role
        self.roles = tuple(roles) or (role,)
        self.teacher = teacher
        self.mixture = mixture
        self.soft_values = None if soft_values is None else dict(soft_values)
        self.master_weights = MasterWeights(
            named,
            optimisation.learning_rate,
            optimisation.betas,
            optimisation.weight_decay,
            optimisation.max_norm,
            self.shares,
        )
        self.reference = reference_for(model, named, objective)
        self.critic: Critic | None = None
        if isinstance(objective.advantage, Advised):
            self.critic = Critic(model, critic or CriticSettings(), self.shares, objective.advantage)
        self.controls = initial(objective)
        self.steps = 0
        self._validation: float | None = None
        recomputed = estimate_recomputed_share(model.network)
        room = PassRoom(optimisation.token_budget, optimisation.checkpointing, recomputed)
        self.passes = Passes(model, room, self.shares)

    def update(self, groups: Sequence[Group]) -> dict[str, float]:
        """Takes the optimiser steps of one update on these groups: `passes` times `minibatches`.

        Advantages are computed over the whole update, denominators over each step.

        Raises:
            FloatingPointError: A step would diverge. It is not taken, but a critic, which goes first, may have taken its own.
            BadEpisode: In the first update, no call has one of the roles.
        """
        begun = time.perf_counter()
        if not self.steps:  # later on a role may have nothing to do in all episodes of a step
            require_roles(groups, self.roles)
        sampled = list(groups)
        if self.mixture is not None:
            sampled = [group for group in groups if group.episodes[0].origin not in self.mixture.imitated]
        trained = [group for group in sampled if not rejection([e.metric for e in group.episodes], self.objective)]
        rejected = len(sampled) - len(trained)
        if rejected and not trained:
            others = other_losses(self.mixture, groups, self.roles, self.steps, 1.0) if self.mixture else []
            measured = {other.name: other.backward(self.passes) for other in others}
            if others:
                measured["gradient_norm"] = self.master_weights.step(rate_at(self.optimisation, self.steps))
            self._count_update()
            return measured | {"rejected_groups": float(rejected), "trained_rows": 0.0}
        rows = rows_of(trained, self.roles, self.model.version, merge=self.objective.aggregation_unit == "episode")
        require_credit(rows, trained, self.objective)
        temperature = self._temperature(trained)
        rows = replace(rows, batch=self._with_model_scores(rows, temperature))
        learned: dict[str, float] = {}
        if self.critic is not None:
            rows, learned = self._with_critic_values(rows, self.critic)
        advantage = advantages(rows.batch, self.objective)
        if self.objective.needs_selection:
            generator = torch.Generator().manual_seed(self.steps)
            rows = replace(rows, batch=select(rows.batch, self.objective, advantage, self.controls, generator))
        learning = self._rows_with_gradient(rows.batch, advantage)
        measured = group_metrics(rows.batch) | learned
        for part in self._minibatches(rows) * self.optimisation.passes:
            divisors = denominators(rows.batch.rows(part), self.objective)
            if self.critic is not None and not self.critic.advantage.leads and self.critic.learns(self.steps):
                measured |= self.critic.teach(rows, self.passes.split(rows, part), self.objective, divisors)
            if self.critic is not None and self.steps < self.critic.settings.warmup:
                continue
            chosen = sorted(set(part) & set(learning))
            others = other_losses(self.mixture, groups, self.roles, self.steps, temperature) if self.mixture else []
            if chosen or others:
                measured |= self._step(
                    rows, chosen, temperature, partial(self._loss, rows, advantage, divisors), others
                )
        if self.critic is not None and self.critic.learns(self.steps):
            self.critic.remember(rows)
        self._advance(measured)
        self._count_update()
        if rejected or self.objective.group_filter is not None:
            measured["rejected_groups"] = float(rejected)
        if self.objective.local_weight is not None:
            measured["local_episodes"] = float(sum(bool(e.parent) for group in trained for e in group.episodes))
        return measured | {"trained_rows": float(len(learning)), "seconds/learn": time.perf_counter() - begun}

    def imitate(self, pairs: Sequence[tuple[Tokens, Tokens]], learning_rate: float | None = None) -> dict[str, float]:
        """Takes one supervised step on (prompt, completion) pairs, with token-mean cross-entropy in nats. A `learning_rate`
        replaces that of the schedule in this step."""
        begun = time.perf_counter()
        texts = Texts([prompt for prompt, _ in pairs], [completion for _, completion in pairs])
        value = OtherLoss("loss", Imitation("", 1.0), 1.0, texts).backward(self.passes)
        rate = self.optimisation.learning_rate
        scale = rate_at(self.optimisation, self.steps) if learning_rate is None else learning_rate / rate
        norm = self.master_weights.step(scale)
        self._count_update()
        learned = {"loss": value, "gradient_norm": norm, "learning_rate": rate * scale}
        return learned | {"seconds/learn": time.perf_counter() - begun}

    def _count_update(self) -> None:
        self.steps += 1
        self.model.version += 1

    def forget_moments(self) -> None:
        """Resets the optimiser's moments and the count of steps, because the gradients that follow are of another kind."""
        self.master_weights.optimiser.state.clear()
        self.steps = 0

    def validated(self, score: float) -> None:
        """Takes a validation score, higher is better. Only a `Reset` uses it."""
        self._validation = score if self.objective.reset is not None else None

    @property
    def needs_differences(self) -> bool:
        """Whether an update learns nothing where the episodes of each group earn the same."""
        return self.objective.needs_differences and self.mixture is None

    def state(self) -> dict[str, Any]:
        """Returns everything that the next step depends on, apart from the data."""
        return {
            **self.master_weights.state(),
            "controls": asdict(self.controls),
            "steps": self.steps,
            "version": self.model.version,
            # A reference that is never reset is a function of the checkpoint that the run began from.
            "reference": self.reference.state() if self.objective.reset is not None and self.reference else {},
            "critic": self.critic.state() if self.critic is not None else {},
            "soft_values": dict(self.soft_values or {}),
            "validation": self._validation,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.master_weights.load(state)
        self.controls = Controls(**{field.name: state["controls"][field.name] for field in fields(Controls)})
        self.steps = int(state["steps"])
        self.model.version = int(state["version"])
        if self.reference is not None and state.get("reference"):
            self.reference.load(state["reference"])
        if self.critic is not None:
            self.critic.load(state["critic"])
        if self.soft_values is not None:
            self.soft_values.update(state.get("soft_values", {}))
        self._validation = state.get("validation")

    def close(self) -> None:
        """Does nothing: only a group of learners has processes to end."""

    # -- parts ----------------------------------------------------------------------------------------------------

    def _with_model_scores(self, rows: Rows, temperature: float) -> Batch:
        """Adds to the batch what only models can compute: log-probabilities of the proximal policy, the reference and the
        teacher, values, and score norms."""
        objective, batch = self.objective, rows.batch
        kind = batch.lp_behaviour.dtype
        if bool(rows.unscored.any()):
            lp, _ = self.passes.scores(rows, temperature)
            batch = replace(batch, lp_behaviour=torch.where(rows.unscored, lp.to(kind), batch.lp_behaviour))
        if objective.ratio.anchor == "proximal" and self._reads_proximal_first():
            batch = replace(batch, lp_proximal=self.passes.scores(rows, temperature)[0].to(kind))
        if self.reference is not None:
            with self.reference.active():
                batch = replace(batch, lp_reference=self.passes.scores(rows, temperature)[0].to(kind))
        if objective.teacher is not None:
            teacher: Any = self.teacher  # only the first learner has one and calls it
            every = self.passes.split(rows, range(batch.shape[0]))
            scores = self.shares.first(lambda: teacher_scores(teacher, rows, every, temperature))
            batch = replace(batch, lp_teacher=scores)
        measured = objective.advantage.measure(self, replace(rows, batch=batch), temperature)
        return replace(batch, **measured)

    def _with_critic_values(self, rows: Rows, critic: Critic) -> tuple[Rows, dict[str, float]]:
        """Returns the rows with the critic's values, and the metrics of what the critic learned before it computed them."""
        measured: dict[str, float] = {}
        if critic.learns(self.steps):
            critic.replay(self.passes.split, self.objective)
            for part in self._minibatches(rows) * self.optimisation.passes if critic.advantage.leads else ():
                divisors = denominators(rows.batch.rows(part), self.objective)
                measured |= critic.teach(rows, self.passes.split(rows, part), self.objective, divisors)
        return critic.valued(rows, self.passes.split(rows, range(rows.batch.shape[0]))), measured

    def _step(
        self, rows: Rows, learning: Sequence[int], temperature: float, loss_of: LossOf, others: Sequence[OtherLoss]
    ) -> dict[str, float]:
        """Takes one optimiser step of the policy, accumulated over micro-batches. `others` are losses that are added to the
        policy's."""
        parts = self.passes.split(rows, learning)
        if self.objective.needs_whole_episodes and _splits_an_episode(rows.batch, parts):
            results = [self._gradients_of_whole_episodes(rows, learning, parts, temperature, loss_of)]
            scored = [learning]
        else:
            gradients = {}
            for number, pass_ in self.passes.training(rows, parts):
                lp, entropy = row_scores(self.model, rows, pass_.rows, temperature)
                scalar, metrics = loss_of(pass_.rows, lp, entropy)
                scalar.backward()  # type: ignore[no-untyped-call]
                gradients[number] = metrics, lp.detach()
            # Every learner gets the numbers of all parts, because the controls of the next update depend on them.
            results, scored = self.shares.gathered(gradients), [part.rows for part in parts]
        drawn = [(rows.batch.rows(of), lp) for of, (_, lp) in zip(scored, results, strict=True)]
        measured = {**merge_metrics([metrics for metrics, _ in results]), **mismatch(drawn)} if drawn else {}
        for other in others:
            measured[other.name] = other.backward(self.passes)
        scale = self._learning_rate_scale(rows.batch)
        norm = self.master_weights.step(scale, self.objective.adapter_decay)
        return measured | {"gradient_norm": norm, "learning_rate": self.optimisation.learning_rate * scale}

    def _loss(
        self,
        rows: Rows,
        advantage: torch.Tensor,
        divisors: Denominators,
        chosen: Sequence[int],
        lp: torch.Tensor,
        entropy: torch.Tensor,
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Returns the loss of the chosen rows, a scalar, and the metrics to log."""
        part = rows.batch.rows(chosen)
        if self.objective.ratio.anchor == "proximal" and part.lp_proximal is None:
            part = replace(part, lp_proximal=lp.detach().to(part.lp_behaviour.dtype))
        weighed = advantage[torch.tensor(chosen)]
        scalar, metrics = loss(self.objective, lp, entropy, weighed, part, divisors, self.controls)
        return scalar if self.mixture is None else scalar * self.mixture.policy_weight(self.steps), metrics

    def _gradients_of_whole_episodes(
        self, rows: Rows, learning: Sequence[int], parts: Sequence[MicroBatch], temperature: float, loss_of: LossOf
    ) -> tuple[dict[str, float], torch.Tensor]:
        """Computes gradients of a loss that reads all rows of an episode at once, where they do not fit into one pass. First it
        takes the loss's gradient in the log-probabilities, from a pass without a gradient, then that of the weights, part by
        part."""
        order = torch.tensor(learning)
        lp, entropy = (score[order].requires_grad_() for score in self.passes.scores(rows, temperature, learning))
        scalar, metrics = loss_of(learning, lp, entropy)
        scalar.backward()  # type: ignore[no-untyped-call]
        position_of = {row: position for position, row in enumerate(learning)}
        for _, part in self.passes.training(rows, parts):
            positions = torch.tensor([position_of[row] for row in part.rows])
            scores = zip(row_scores(self.model, rows, part.rows, temperature), (lp, entropy), strict=True)
            given = [(score, leaf.grad[positions]) for score, leaf in scores if leaf.grad is not None]
            torch.autograd.backward([score for score, _ in given], [gradient for _, gradient in given])
        return metrics, lp.detach()

    def _advance(self, measured: Mapping[str, float]) -> None:
        """Updates the controls for the next update, unless this one did not measure what they depend on."""
        gated, reset = self.objective.negatives is not None, self.objective.reset is not None
        if (gated and "entropy" not in measured) or (reset and "reference_kl" not in measured):
            return
        self.controls = advance(
            self.controls,
            self.objective,
            entropy=measured.get("entropy"),
            kl=measured.get("reference_kl"),
            validation=self._validation,
        )
        self._validation = None
        if self.controls.reset and self.reference is not None:
            self.reference.retake()
            self.master_weights.optimiser.state.clear()

    def _temperature(self, groups: Sequence[Group]) -> float:
        segments = [s for g in groups for e in g.episodes for s in e.segments if s.role in self.roles]
        temperatures = {segment.temperature for segment in segments if segment.logprobs} or {1.0}
        if len(temperatures) != 1 or 0.0 in temperatures:
            raise ValueError(
                f"a step must be sampled at one temperature above 0, not {sorted(temperatures)}: ratios would mean nothing"
            )
        return temperatures.pop()

    def _reads_proximal_first(self) -> bool:
        """Whether the proximal log-probabilities of the whole step are needed before its first gradient. Otherwise they cost
        nothing: with one optimiser step an update, the weights of the forward pass are the proximal ones."""
        objective = self.objective
        return (
            isinstance(objective.kl, KlReward)
            or objective.advantage.reads_proximal
            or objective.denominator == "kept"
            or objective.step_control is not None
            or objective.needs_selection
            or self.optimisation.passes * self.optimisation.minibatches > 1
        )

    def _rows_with_gradient(self, batch: Batch, advantage: torch.Tensor) -> list[int]:
        """Returns the rows to train on. Those of zero advantage are left out, unless a regulariser reads them too."""
        if self.objective.reads_every_row:
            return list(range(batch.shape[0]))
        strength = advantage.abs().sum(1)
        if self.objective.needs_whole_episodes:
            strength = unit_sum(strength[:, None], unit_of(batch, "episode"))
        return [int(i) for i in strength.nonzero().flatten()]

    def _minibatches(self, rows: Rows) -> list[list[int]]:
        """Divides the rows of a pass into optimiser steps of whole groups, as evenly as possible."""
        group = rows.batch.group.tolist()
        numbers = list(dict.fromkeys(group))
        count = min(self.optimisation.minibatches, len(numbers))
        batch_of = {number: index * count // len(numbers) for index, number in enumerate(numbers)}
        return [[row for row, number in enumerate(group) if batch_of[number] == part] for part in range(count)]

    def _learning_rate_scale(self, batch: Batch) -> float:
        scheduled = rate_at(self.optimisation, self.steps)
        if self.objective.step_control is None:
            return scheduled
        assert batch.lp_proximal is not None
        _, episode = torch.unique(batch.episode, return_inverse=True)
        gap = ((batch.lp_proximal - batch.lp_behaviour) * batch.mask).sum(1)
        drift = torch.zeros(int(episode.max()) + 1, dtype=gap.dtype).index_add_(0, episode, gap)
        return scheduled * self.objective.step_control.scale(float(effective_sample_size(drift)))


LossOf = Callable[[Sequence[int], torch.Tensor, torch.Tensor], tuple[torch.Tensor, dict[str, float]]]
"""Maps (rows, their log-probabilities, their entropies) to the scalar to minimise and the metrics to log."""


def _splits_an_episode(batch: Batch, parts: Sequence[MicroBatch]) -> bool:
    places = {
        (episode, number) for number, part in enumerate(parts) for episode in batch.episode[list(part.rows)].tolist()
    }
    return len(places) > len({episode for episode, _ in places})


def _require_effect(objective: Objective, teacher: bool, soft_values: bool, critic: bool) -> None:
    """Raises ObjectiveError where the learner was given something that the objective would leave unused."""
    idle = {
        "a teacher": teacher and objective.teacher is None,
        "values of tasks": soft_values and not objective.needs_soft_values,
        "critic settings": critic and not objective.needs_critic,
    }
    if unused := [name for name, is_idle in idle.items() if is_idle]:
        raise ObjectiveError(
            f"objective {objective.name!r} does not read what it was given: {', '.join(unused)}.",
            "Leave it out, or choose an objective that uses it.",
        )
