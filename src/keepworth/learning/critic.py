"""The critic: the value of every state a policy drew a token in, from the policy's own base.

A linear head reads the last hidden states. Over a network with an adapter, the critic has another one on the same base, so
that its gradient cannot move the policy; where all weights are trained there is no second body to give it, and the head reads
the policy's hidden states as they are, without a gradient into them.
Sources: PPO, arXiv 1707.06347; one base with an adapter per role: Efficient RLHF (Hydra-PPO), arXiv 2309.00754.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from keepworth.episodes.needs import needs_train

import torch

from keepworth.learning.master_weights import MasterWeights
from keepworth.learning.objective.advantage import value_targets
from keepworth.learning.objective.batch import Batch
from keepworth.learning.objective.options import Objective, require_range
from keepworth.learning.objective.policy_loss import Denominators, unit_of, unit_sum, value_loss
from keepworth.learning.passes import MicroBatch, layout, own_parts, training_passes
from keepworth.learning.rows import Rows
from keepworth.learning.shares import Shares
from keepworth.models.adapter import Named
from keepworth.models.fused_adapter import fuse
from keepworth.models.inprocess import InProcessModel

CRITIC_ADAPTER = "critic"


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """learning_rate of head and adapter; rank of the adapter (scaled by 2 * rank); warmup: updates that train the
    critic alone, before the policy follows its advice."""

    learning_rate: float = 1e-3
    rank: int = 8
    warmup: int = 0
    max_norm: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, interval in (("rank", "[1, inf)"), ("warmup", "[0, inf)"), ("max_norm", "(0, inf]")):
            require_range(name, getattr(self, name), interval)


class Critic:
    """Values of states, and the optimiser that teaches them. Starts at 0 everywhere."""

    def __init__(self, model: InProcessModel, settings: CriticSettings, shares: Shares | None = None) -> None:
        self.settings = settings
        self._shares = shares or Shares()
        self._model = model
        wide = torch.promote_types(model.dtype, torch.float32)
        self.head = torch.nn.Linear(int(model.network.config.hidden_size), 1, dtype=wide, device=model.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        named: Named = {f"head.{name}": value for name, value in self.head.named_parameters()}
        self._policy_adapter: str | None = None
        if hasattr(model.network, "peft_config"):
            self._policy_adapter = str(model.network.active_adapter)
            named |= self._attach()
        self.master_weights = MasterWeights(
            named, settings.learning_rate, max_norm=settings.max_norm, shares=self._shares
        )

    def _attach(self) -> Named:
        """Another adapter on the same base; the policy's stays the active one."""
        from peft import LoraConfig

        network, rank = self._model.network, self.settings.rank
        if CRITIC_ADAPTER in network.peft_config:
            raise ValueError(f"{self._model.name} already has an adapter called {CRITIC_ADAPTER!r}")
        with torch.random.fork_rng():
            torch.manual_seed(self.settings.seed)
            options = LoraConfig(r=rank, lora_alpha=2.0 * rank, lora_dropout=0.0, target_modules="all-linear")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                network.add_adapter(CRITIC_ADAPTER, options, autocast_adapter_dtype=False)
        fuse(network)
        found = {name: value for name, value in network.named_parameters() if f".{CRITIC_ADAPTER}." in name}
        for value in found.values():
            value.requires_grad_(True)
        return found

    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        """The network with the critic's adapter: nobody else may use the model meanwhile."""
        if self._policy_adapter is None:
            yield
            return
        _switch(self._model.network, CRITIC_ADAPTER)
        try:
            yield
        finally:
            _switch(self._model.network, self._policy_adapter)

    def values(self, rows: Rows, chosen: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """(values [len(chosen), T] before each drawn token, zero elsewhere; ends [len(chosen)] behind the last token),
        on the CPU, with gradient to the critic's own weights where gradients are on."""
        plan = layout(rows, chosen)
        batch = plan.tree
        with self._active(), torch.set_grad_enabled(torch.is_grad_enabled() and self._policy_adapter is not None):
            hidden = self._model.hidden_states(batch.ids, batch.positions, batch.mask, None).flatten(0, 1)
        read = torch.cat([hidden[batch.predictor], hidden[plan.last]])
        # Written as a sum: a float32 matrix product may lose precision while another thread is in bfloat16 attention.
        found = ((read.to(self.head.weight.dtype) * self.head.weight[0]).sum(1) + self.head.bias).cpu()
        drawn, ends = found[: len(batch.predictor)], found[len(batch.predictor) :]
        blank = drawn.new_zeros(len(chosen) * plan.width)
        return blank.index_copy(0, plan.place, drawn).view(-1, plan.width), ends

    @torch.no_grad()
    def valued(self, rows: Rows, batch: Batch, parts: Sequence[MicroBatch], bootstrap: bool) -> Batch:
        """`batch` with `values`, and with `bootstrap`: what an episode that was cut off is worth at its end, else 0."""
        values, ends = torch.zeros_like(batch.lp_behaviour), torch.zeros(batch.shape[0])
        for _, part in own_parts(rows.contexts, rows.answers, parts, self._shares):
            found, behind = self.values(rows, part.rows)
            own = torch.tensor(part.rows)
            values[own], ends[own] = found.to(values.dtype), behind.to(ends.dtype)
        values, ends = self._shares.joined(values, ends)
        if not bootstrap:
            return replace(batch, values=values)
        end = unit_sum(torch.where(torch.tensor(rows.cut), ends, 0.0)[:, None], unit_of(batch, "episode"))
        return replace(batch, values=values, bootstrap=end)

    def teach(
        self, rows: Rows, parts: Sequence[MicroBatch], objective: Objective, divisors: Denominators
    ) -> dict[str, float]:
        """One step towards the returns of this batch, whose values `valued` has filled in."""
        targets = value_targets(rows.batch, objective)
        losses = {}
        for number, part in training_passes(self._model.network, rows.contexts, rows.answers, parts, self._shares):
            values, _ = self.values(rows, part.rows)
            wanted = targets[torch.tensor(part.rows)].to(values.dtype)
            scalar = value_loss(values, wanted, rows.batch.rows(part.rows), objective, divisors)
            scalar.backward()  # type: ignore[no-untyped-call]
            losses[number] = float(scalar.detach())
        total = sum(self._shares.gathered(losses))
        norm = self.master_weights.step()
        assert rows.batch.values is not None
        drawn = rows.batch.mask > 0
        explained = explained_variance(rows.batch.values[drawn], targets[drawn])
        return {"value_loss": total, "critic_gradient_norm": norm, "explained_variance": explained}


def _switch(network: Any, adapter: str) -> None:
    """PEFT freezes the adapter it leaves; here every weight stays as trainable as it was."""
    flags = [(value, value.requires_grad) for value in network.parameters()]
    network.set_adapter(adapter)
    for value, trainable in flags:
        value.requires_grad_(trainable)


def explained_variance(values: torch.Tensor, targets: torch.Tensor) -> float:
    """1 - Var(target - value) / Var(target): 1 is a perfect critic, 0 one that knows no more than the mean."""
    spread = float(targets.var()) if len(targets) > 1 else 0.0
    return 1 - float((targets - values).var()) / spread if spread > 0 else 0.0
