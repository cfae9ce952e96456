"""The critic: values of the states a policy acted in, and of the turns it took, computed from the policy's own base model.

A linear head reads the last hidden states. Over a network with an adapter, the critic has a second adapter on the same base, so
that its gradient cannot move the policy. Where all weights are trained there is no second adapter: the head reads the policy's
hidden states, and its gradient does not reach them.
Sources: PPO, arXiv 1707.06347; one base with an adapter per role: Efficient RLHF (Hydra-PPO), arXiv 2309.00754; values of whole
turns, averages and replay: ArCHer, arXiv 2402.19446."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from keepworth.base.needs import needs_train

import torch
from pydantic import Field
from torch import Tensor

from keepworth.models.adapter import Named
from keepworth.models.fused_adapter import fuse
from keepworth.models.inprocess import InProcessModel
from keepworth.training.master_weights import MasterWeights, Norm
from keepworth.training.objective.advantage import value_targets
from keepworth.training.objective.batch import Batch, Steps, turn_ends
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Advised, Amount, Count, Gae, ObjectiveError, check_fields
from keepworth.training.objective.policy_loss import (
    Denominators,
    denominators,
    mask_valued_tokens,
    unit_of,
    unit_sum,
    value_loss,
)
from keepworth.training.passes import MicroBatch, Passes, layout
from keepworth.training.rows import Rows
from keepworth.training.shares import Shares

CRITIC_ADAPTER = "critic"


@check_fields(ObjectiveError)
class CriticSettings:
    """Settings of a critic.

    Attributes:
        rank: The rank of the adapter, which is scaled by 2 * rank.
        warmup: Updates that train the critic alone, before the policy uses its values.
        max_norm: The gradient is scaled down to this norm where it is longer.
        frozen: Whether it learns in warm-up updates only.
        replay: The most episodes of earlier updates to keep. Before each update the critic alone takes one step on the episodes
            of every kept update, the oldest first.
    """

    learning_rate: Amount = 1e-3
    rank: Count = 8
    warmup: Annotated[int, Field(ge=0)] = 0
    max_norm: Norm = 1.0
    seed: int = 0
    frozen: bool = False
    replay: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, slots=True)
class HeadValues:
    """The heads' values of R rows, on the CPU.

    Attributes:
        states: [heads, R, T] before each drawn token, or before the first of its turn; zero where nothing was drawn.
        actions: [heads, R, T] after the last token of each drawn token's turn; None where turns have no value of their own.
        ends: [heads, R] after the last token.
    """

    states: Tensor
    actions: Tensor | None
    ends: Tensor


class Critic:
    """The value model of states, and of turns where the advantage asks for them, with its optimiser.

    A single head starts at 0. Several heads start at random, or they would stay equal. Averages for targets are of the heads and
    the adapter alike (Polyak averaging, as in DDPG, arXiv 1509.02971)."""

    def __init__(
        self,
        model: InProcessModel,
        settings: CriticSettings,
        shares: Shares | None = None,
        advantage: Advised = Gae(1.0),  # noqa: B008  (frozen)
    ) -> None:
        self.settings = settings
        self.advantage = advantage
        self.steps = 0
        self.past: list[Rows] = []
        self._passes = Passes(model, shares=shares or Shares())
        self._model = model
        self.head = self._make_head(settings.seed)
        named: Named = {f"head.{name}": value for name, value in self.head.named_parameters()}
        self.action_head: torch.nn.Linear | None = None
        if advantage.values_actions:
            self.action_head = self._make_head(settings.seed + 1)
            named |= {f"action_head.{name}": value for name, value in self.action_head.named_parameters()}
        self._policy_adapter: str | None = None
        if hasattr(model.network, "peft_config"):
            self._policy_adapter = str(model.network.active_adapter)
            named |= self._attach()
        self.master_weights = MasterWeights(
            named, settings.learning_rate, max_norm=settings.max_norm, shares=self._passes.shares
        )
        self._averages: dict[str, Tensor] = {}
        if advantage.target_rate is not None:
            self._averages = {name: value.clone() for name, value in self._wide_weights().items()}

    def _make_head(self, seed: int) -> torch.nn.Linear:
        """Makes a linear layer with one output for each of the advantage's heads."""
        wide = torch.promote_types(self._model.dtype, torch.float32)
        size, count = int(self._model.network.config.hidden_size), self.advantage.heads
        head = torch.nn.Linear(size, count, dtype=wide, device=self._model.device)
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
        if count > 1:
            drawn = torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            with torch.no_grad():
                head.weight.copy_(drawn / size)
        return head

    def _attach(self) -> Named:
        """Adds the critic's adapter to the base; the policy's stays active."""
        from peft import LoraConfig

        network, rank = self._model.network, self.settings.rank
        with torch.random.fork_rng():
            torch.manual_seed(self.settings.seed)
            options = LoraConfig(r=rank, lora_alpha=2.0 * rank, lora_dropout=0.0, target_modules="all-linear")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                network.add_adapter(CRITIC_ADAPTER, options, autocast_adapter_dtype=False)
        fuse(network)
        adapters = {name: value for name, value in network.named_parameters() if f".{CRITIC_ADAPTER}." in name}
        for value in adapters.values():
            value.requires_grad_(True)
        return adapters

    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        """Switches to the critic's adapter inside the block. Nothing else may use the model meanwhile."""
        if self._policy_adapter is None:
            yield
            return
        _switch(self._model.network, CRITIC_ADAPTER)
        try:
            yield
        finally:
            _switch(self._model.network, self._policy_adapter)

    def _wide_weights(self) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = self.master_weights.state()["master_weights"]
        return weights

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[None]:
        """Replaces the critic's weights by their averages inside the block."""
        named, live = self.master_weights.named, self._wide_weights()
        try:
            with torch.no_grad():
                for name, value in self._averages.items():
                    named[name].copy_(value)
            yield
        finally:
            with torch.no_grad():
                for name in self._averages:
                    named[name].copy_(live[name])

    def read(self, rows: Rows, chosen: Sequence[int]) -> HeadValues:
        """Returns the values of the chosen rows, with gradient to the critic's own weights where gradients are on."""
        plan = layout(rows, chosen)
        tree, batch = plan.tree, rows.batch.rows(list(chosen))
        with self._active(), torch.set_grad_enabled(torch.is_grad_enabled() and self._policy_adapter is not None):
            hidden = self._model.hidden_states(tree.ids, tree.positions, tree.mask, None).flatten(0, 1)

        def spread(values: Tensor) -> Tensor:
            blank = values.new_zeros(len(values), len(chosen) * plan.width)
            return blank.index_copy(1, plan.place, values).view(len(values), -1, plan.width)

        count = len(tree.predictor)
        predictions = _heads(self.head, torch.cat([hidden[tree.predictor], hidden[plan.last]]))
        states, actions = spread(predictions[:, :count]), None
        if self.action_head is not None:
            actions = spread(_heads(self.action_head, hidden[plan.behind]))
        if self.advantage.by_turn:
            first, last = (ends.expand_as(states) for ends in turn_ends(batch))
            states, actions = states.gather(2, first), None if actions is None else actions.gather(2, last)
        return HeadValues(states, actions, predictions[:, count:])

    @torch.no_grad()
    def _read_all(self, rows: Rows, parts: Sequence[MicroBatch]) -> HeadValues:
        heads, kind = self.advantage.heads, rows.batch.lp_behaviour.dtype
        states, actions = (torch.zeros(heads, *rows.batch.shape, dtype=kind) for _ in range(2))
        ends = torch.zeros(heads, rows.batch.shape[0])
        for _, part in self._passes.pick(rows, parts):
            predictions, indices = self.read(rows, part.rows), torch.tensor(part.rows)
            states[:, indices], ends[:, indices] = predictions.states.to(kind), predictions.ends.to(ends.dtype)
            if predictions.actions is not None:
                actions[:, indices] = predictions.actions.to(kind)
        states, actions, ends = self._passes.shares.joined(states, actions, ends)
        return HeadValues(states, None if self.action_head is None else actions, ends)

    def valued(self, rows: Rows, parts: Sequence[MicroBatch]) -> Rows:
        """Returns the rows with the critic's values filled in. These are `values`, `action_values` where the advantage reads
        them, and `bootstrap` where it asks for that: the value at the end of an episode that was cut off, else 0."""
        predictions = self._read_all(rows, parts)
        batch = replace(rows.batch, values=predictions.states.amin(0))
        if predictions.actions is not None:
            batch = replace(batch, action_values=predictions.actions.amin(0))
        if self.advantage.bootstrap:
            ends = torch.where(torch.tensor(rows.cut), predictions.ends.amin(0), 0.0)
            batch = replace(batch, bootstrap=unit_sum(ends[:, None], unit_of(batch, "episode")))
        return replace(rows, batch=batch)

    def learns(self, update: int) -> bool:
        """Whether the critic learns in this update, counted from 0. Raises ValueError where it never has and never will."""
        learns = not self.settings.frozen or update < self.settings.warmup
        if not learns and self.steps == 0:
            raise ValueError(
                "The critic is frozen and has learned nothing: its advice would be 0 for every state. Set warmup "
                "(critic_warmup), or load the state of one that has learned."
            )
        return learns

    def teach(
        self,
        rows: Rows,
        parts: Sequence[MicroBatch],
        objective: Objective,
        divisors: Denominators,
        *,
        only_actions: bool = False,
    ) -> dict[str, float]:
        """Takes one step towards the targets of some rows. The targets come from the values of `valued`, or from the averages.

        Args:
            rows: All rows of the update.
            parts: The micro-batches of the rows that are taught.
            objective: The objective, whose advantage defines the targets.
            divisors: The counts that losses are divided by, over all learners.
            only_actions: Whether the values of states stay, and only those of actions are taught.
        """
        advised = [rows.batch]
        if self._averages:
            every = [MicroBatch(part.rows) for part in parts]
            with self._averaged():
                predictions = self._read_all(rows, every)
            pairs = zip(
                predictions.states,
                predictions.states if predictions.actions is None else predictions.actions,
                strict=True,
            )
            advised = [replace(rows.batch, values=value, action_values=action) for value, action in pairs]
        states = [value_targets(batch, objective) for batch in advised]
        actions = [value_targets(batch, objective, of="actions") for batch in advised if self.action_head is not None]
        losses = {}
        for number, part in self._passes.training(rows, parts):
            reading, batch, indices = self.read(rows, part.rows), rows.batch.rows(part.rows), torch.tensor(part.rows)
            taught = [] if only_actions else list(zip(reading.states, states, strict=True))
            if reading.actions is not None:
                taught += zip(reading.actions, actions, strict=True)
            scalar = torch.stack(
                [
                    value_loss(value, target[indices].to(value.dtype), batch, objective, divisors)
                    for value, target in taught
                ]
            ).sum()
            scalar.backward()  # type: ignore[no-untyped-call]
            losses[number] = float(scalar.detach())
        total = sum(self._passes.shares.gathered(losses))
        norm = self.master_weights.step()
        self.steps += 1
        for name, value in self._averages.items():
            value.lerp_(self._wide_weights()[name], self.advantage.target_rate)
        here = sorted(row for part in parts for row in part.rows)
        drawn = mask_valued_tokens(rows.batch, self.advantage)[here] > 0
        values, targets = (advised[0].action_values, actions[0]) if actions else (advised[0].values, states[0])
        assert values is not None
        explained = explained_variance(values[here][drawn], targets[here][drawn])
        return {"value_loss": total, "critic_gradient_norm": norm, "explained_variance": explained}

    def remember(self, rows: Rows) -> None:
        """Keeps the rows of an update for `replay`, and drops the oldest that are too many. Raises ValueError where not even one
        update fits."""
        if not self.settings.replay:
            return
        self.past.append(replace(rows, grammars=()))  # a critic scores no ids
        while sum(map(_episodes, self.past)) > self.settings.replay:
            self.past.pop(0)
        if not self.past:
            raise ValueError(
                f"The critic's replay = {self.settings.replay} holds less than the {_episodes(rows)} episodes of one update, so "
                "that nothing would ever be taught again. Set it to as many or more, or to 0."
            )

    def replay(self, parts_of: Callable[[Rows, Iterable[int]], Sequence[MicroBatch]], objective: Objective) -> None:
        """Takes one step on the episodes of each kept update. An older policy took their actions, so where turns have values,
        only these are taught."""
        for rows in self.past:
            parts = parts_of(rows, range(rows.batch.shape[0]))
            given = rows if self._averages else self.valued(rows, parts)
            divisors = denominators(rows.batch, objective)
            self.teach(given, parts, objective, divisors, only_actions=self.action_head is not None)

    def state(self) -> dict[str, Any]:
        """Returns everything that the critic's next step depends on."""
        past = [asdict(rows) for rows in self.past]
        return {**self.master_weights.state(), "steps": self.steps, "averages": self._averages, "past": past}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state()`."""
        self.master_weights.load(state)
        self.steps = int(state.get("steps", 1))  # a state without the count is of a critic that learned in every update
        self._averages = {name: state["averages"][name].clone() for name in self._averages}
        self.past = [_rows_of(saved) for saved in state.get("past", ())]


def _heads(head: torch.nn.Linear, hidden: Tensor) -> Tensor:
    """Returns the heads' values, [heads, N], on the CPU. It uses sums, because a float32 matrix product may lose precision while
    another thread is in bfloat16 attention."""
    wide = hidden.to(head.weight.dtype)
    values = [(wide * weight).sum(1) + bias for weight, bias in zip(head.weight, head.bias, strict=True)]
    return torch.stack(values).cpu()


def _episodes(rows: Rows) -> int:
    return len(torch.unique(rows.batch.episode))


def _rows_of(saved: Mapping[str, Any]) -> Rows:
    """Rebuilds rows from `asdict(rows)`."""
    steps = saved["batch"]["steps"]
    batch = Batch(**{**saved["batch"], "steps": None if steps is None else Steps(**steps)})
    return Rows(**{**saved, "batch": batch})


def _switch(network: Any, adapter: str) -> None:
    """Activates an adapter and keeps every weight as trainable as it was, because PEFT freezes the adapter that it leaves."""
    flags = [(value, value.requires_grad) for value in network.parameters()]
    network.set_adapter(adapter)
    for value, trainable in flags:
        value.requires_grad_(trainable)


def explained_variance(values: torch.Tensor, targets: torch.Tensor) -> float:
    """Returns 1 - Var(target - value) / Var(target): 1 for a perfect critic, 0 for one that is no better than the mean."""
    spread = float(targets.var()) if len(targets) > 1 else 0.0
    return 1 - float((targets - values).var()) / spread if spread > 0 else 0.0
