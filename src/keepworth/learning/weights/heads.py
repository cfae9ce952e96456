"""RoleHead: one number per token from the policy's own base, under an adapter of its own.

A linear head reads the last hidden states. Over a network with an adapter, each such role has another one on the same base,
so that its gradient cannot move the policy; where all weights are trained there is no second body to give it, and the
head reads the policy's hidden states as they are, without a gradient into them.
Source: one base with an adapter per role: Efficient RLHF (Hydra-PPO), arXiv 2309.00754.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from keepworth.episodes.needs import needs_train

import torch

from keepworth.learning.objective.advantage import value_targets
from keepworth.learning.objective.aggregation import Denominators
from keepworth.learning.objective.batch import Batch
from keepworth.learning.objective.options import Objective, require_range
from keepworth.learning.objective.policy_loss import value_loss
from keepworth.learning.objective.ratio import unit_of, unit_sum
from keepworth.learning.weights.master_weights import MasterWeights
from keepworth.learning.weights.rows import Rows, layout
from keepworth.models.adapter import Named, fuse
from keepworth.models.inprocess import InProcessModel


class RoleHead:
    """Starts at 0 everywhere. adapter: its name on the network; rank of it (scaled by 2 * rank)."""

    def __init__(self, model: InProcessModel, adapter: str, rank: int, seed: int) -> None:
        self.model = model
        self.adapter = adapter
        wide = torch.promote_types(model.dtype, torch.float32)
        self.head = torch.nn.Linear(int(model.network.config.hidden_size), 1, dtype=wide, device=model.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.policy_adapter: str | None = None
        self.named: Named = {f"head.{name}": value for name, value in self.head.named_parameters()}
        if hasattr(model.network, "peft_config"):
            self.policy_adapter = str(model.network.active_adapter)
            self.named |= self._attach(rank, seed)

    def _attach(self, rank: int, seed: int) -> Named:
        """Another adapter on the same base; the policy's stays the active one."""
        from peft import LoraConfig

        network = self.model.network
        if self.adapter in network.peft_config:
            raise ValueError(f"{self.model.name} already has an adapter called {self.adapter!r}")
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            options = LoraConfig(r=rank, lora_alpha=2.0 * rank, lora_dropout=0.0, target_modules="all-linear")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                network.add_adapter(self.adapter, options, autocast_adapter_dtype=False)
        fuse(network)
        found = {name: value for name, value in network.named_parameters() if f".{self.adapter}." in name}
        for value in found.values():
            value.requires_grad_(True)
        return found

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Last hidden states [B, L, H] under this role's adapter, with gradient to it where gradients are on.

        Nobody else may use the model meanwhile."""
        with self._active(), torch.set_grad_enabled(torch.is_grad_enabled() and self.policy_adapter is not None):
            found: torch.Tensor = self.model.hidden_states(ids, positions, mask, None)
        return found

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [N, H] -> [N], on the CPU."""
        # Written as a sum: a float32 matrix product may lose precision while another thread is in bfloat16 attention.
        found = (hidden.to(self.head.weight.dtype) * self.head.weight[0]).sum(1) + self.head.bias
        return found.cpu()

    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        if self.policy_adapter is None:
            yield
            return
        _switch(self.model.network, self.adapter)
        try:
            yield
        finally:
            _switch(self.model.network, self.policy_adapter)


def _switch(network: Any, adapter: str) -> None:
    """PEFT freezes the adapter it leaves; here every weight stays as trainable as it was."""
    flags = [(value, value.requires_grad) for value in network.parameters()]
    network.set_adapter(adapter)
    for value, trainable in flags:
        value.requires_grad_(trainable)


# The critic: the value of every state a policy drew a token in, from the policy's own base.
#
# How it shares the base with the policy: `role_head`. Source: PPO, arXiv 1707.06347.


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

    def __init__(self, model: InProcessModel, settings: CriticSettings) -> None:
        self.settings = settings
        self._role = RoleHead(model, CRITIC_ADAPTER, settings.rank, settings.seed)
        self.head = self._role.head
        self.master_weights = MasterWeights(self._role.named, settings.learning_rate, max_norm=settings.max_norm)

    def values(self, rows: Rows, chosen: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """(values [len(chosen), T] before each drawn token, zero elsewhere; ends [len(chosen)] behind the last token).

        With gradient to the critic's own weights where gradients are on.
        """
        plan = layout(rows, chosen)
        batch = plan.tree
        hidden = self._role.hidden(batch.ids, batch.positions, batch.mask).flatten(0, 1)
        found = self._role(torch.cat([hidden[batch.predictor], hidden[plan.last]]))
        drawn, ends = found[: len(batch.predictor)], found[len(batch.predictor) :]
        blank = drawn.new_zeros(len(chosen) * plan.width)
        return blank.index_copy(0, plan.place, drawn).view(-1, plan.width), ends

    @torch.no_grad()
    def valued(self, rows: Rows, batch: Batch, micro_batches: Sequence[Sequence[int]], bootstrap: bool) -> Batch:
        """`batch` with `values`, and with `bootstrap`: what an episode that was cut off is worth at its end, else 0."""
        values, ends = torch.zeros_like(batch.lp_behaviour), torch.zeros(batch.shape[0])
        for chosen in micro_batches:
            found, behind = self.values(rows, chosen)
            values[torch.tensor(chosen)], ends[torch.tensor(chosen)] = found.to(values.dtype), behind.to(ends.dtype)
        if not bootstrap:
            return replace(batch, values=values)
        end = unit_sum(torch.where(torch.tensor(rows.cut), ends, 0.0)[:, None], unit_of(batch, "episode"))
        return replace(batch, values=values, bootstrap=end)

    def teach(
        self, rows: Rows, micro_batches: Sequence[Sequence[int]], objective: Objective, divisors: Denominators
    ) -> dict[str, float]:
        """One step towards the returns of this batch, whose values `valued` has filled in."""
        targets = value_targets(rows.batch, objective)
        total = 0.0
        for chosen in micro_batches:
            values, _ = self.values(rows, chosen)
            wanted = targets[torch.tensor(chosen)].to(values.dtype)
            scalar = value_loss(values, wanted, rows.batch.rows(chosen), objective, divisors)
            scalar.backward()  # type: ignore[no-untyped-call]
            total += float(scalar.detach())
        norm = self.master_weights.step()
        assert rows.batch.values is not None
        drawn = rows.batch.mask > 0
        explained = explained_variance(rows.batch.values[drawn], targets[drawn])
        return {"value_loss": total, "critic_gradient_norm": norm, "explained_variance": explained}

    def state(self) -> dict[str, Any]:
        return self.master_weights.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self.master_weights.load(dict(state))


def explained_variance(values: torch.Tensor, targets: torch.Tensor) -> float:
    """1 - Var(target - value) / Var(target): 1 is a perfect critic, 0 one that knows no more than the mean."""
    spread = float(targets.var()) if len(targets) > 1 else 0.0
    return 1 - float((targets - values).var()) / spread if spread > 0 else 0.0
