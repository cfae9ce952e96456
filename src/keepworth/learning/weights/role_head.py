"""RoleHead: one number per token from the policy's own base, under an adapter of its own.

A linear head reads the last hidden states. Over a network with an adapter, each such role has another one on the same base,
so that its gradient cannot move the policy; where all weights are trained there is no second body to give it, and the
head reads the policy's hidden states as they are, without a gradient into them.
Source: one base with an adapter per role: Efficient RLHF (Hydra-PPO), arXiv 2309.00754.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from keepworth.episodes.extras import needs_train

import torch

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
