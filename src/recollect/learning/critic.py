"""The critic: the value of every state a policy drew a token in, from the policy's own base.

A linear head reads the last hidden states. Over a network with an adapter, the critic has an adapter of its own on the
same base, so that its gradient cannot move the policy; where all weights are trained there is no second body to give
it, and the head reads the policy's hidden states as they are, without a gradient into them.
Sources: PPO, arXiv 1707.06347; one base with an adapter per role: Efficient RLHF (Hydra-PPO), arXiv 2309.00754.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from recollect.learning.forward import layout
from recollect.learning.masters import Masters
from recollect.learning.rows import Rows
from recollect.models.adapter import Named
from recollect.models.inprocess import InProcessModel
from recollect.models.lora import fuse

ADAPTER = "critic"


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """learning_rate of head and adapter; rank of the adapter (scaled by 2 * rank); warmup: updates that train the
    critic alone, before the policy follows its advice."""

    learning_rate: float = 1e-3
    rank: int = 8
    warmup: int = 0
    max_norm: float = 1.0
    seed: int = 0


class Critic:
    """Values of states, and the optimiser that teaches them. Starts at 0 everywhere."""

    def __init__(self, model: InProcessModel, settings: CriticSettings) -> None:
        self.model = model
        self.settings = settings
        wide = torch.promote_types(model.dtype, torch.float32)
        self.head = torch.nn.Linear(int(model.network.config.hidden_size), 1, dtype=wide)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.policy_adapter: str | None = None
        named: Named = {f"head.{name}": value for name, value in self.head.named_parameters()}
        if hasattr(model.network, "peft_config"):
            self.policy_adapter = str(model.network.active_adapter)
            named |= self._attach()
        self.masters = Masters(named, settings.learning_rate, max_norm=settings.max_norm)

    def _attach(self) -> Named:
        """A second adapter on the same base; the policy's stays the active one."""
        from peft import LoraConfig

        network = self.model.network
        assert self.policy_adapter is not None
        with torch.random.fork_rng():
            torch.manual_seed(self.settings.seed)
            rank = self.settings.rank
            options = LoraConfig(r=rank, lora_alpha=2.0 * rank, lora_dropout=0.0, target_modules="all-linear")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                network.add_adapter(ADAPTER, options, autocast_adapter_dtype=False)
        fuse(network)
        found = {name: value for name, value in network.named_parameters() if f".{ADAPTER}." in name}
        for value in found.values():
            value.requires_grad_(True)
        return found

    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        """Inside, the network runs under the critic's adapter. Nobody else may use the model meanwhile."""
        if self.policy_adapter is None:
            yield
            return
        _switch(self.model.network, ADAPTER)
        try:
            yield
        finally:
            _switch(self.model.network, self.policy_adapter)

    def values(self, rows: Rows, chosen: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """(values [len(chosen), T] before each drawn token, zero elsewhere; ends [len(chosen)] behind the last token).

        With gradient to the critic's own weights where gradients are on.
        """
        plan = layout(rows, chosen)
        batch = plan.tree
        with self._active(), torch.set_grad_enabled(torch.is_grad_enabled() and self.policy_adapter is not None):
            hidden = self.model.hidden_states(batch.ids, batch.positions, batch.mask, None).flatten(0, 1)
        picked = torch.cat([hidden[batch.predictor], hidden[plan.last]]).to(self.head.weight.dtype)
        found = self.head(picked).squeeze(1)
        drawn, ends = found[: len(batch.predictor)], found[len(batch.predictor) :]
        blank = drawn.new_zeros(len(chosen) * plan.width)
        return blank.index_copy(0, plan.place, drawn).view(-1, plan.width), ends

    def state(self) -> dict[str, Any]:
        return self.masters.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self.masters.load(dict(state))


def _switch(network: Any, adapter: str) -> None:
    """PEFT freezes the adapter it leaves; here every weight stays as trainable as it was."""
    flags = [(value, value.requires_grad) for value in network.parameters()]
    network.set_adapter(adapter)
    for value, trainable in flags:
        value.requires_grad_(trainable)
