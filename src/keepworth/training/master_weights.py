"""Float32 master copies of low-precision weights, and the optimiser that updates them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from keepworth.base.needs import needs_train

import torch
from pydantic import Field

from keepworth.base.errors import KeepworthError
from keepworth.models.adapter import Named
from keepworth.training.shares import Shares

Norm = Annotated[float, Field(gt=0, allow_inf_nan=True)]
"""The norm that a longer gradient is scaled down to; infinite for no limit."""


class Diverged(KeepworthError, FloatingPointError):
    """A gradient, or a weight after a step, is not finite. The live weights are as before the step."""


class MasterWeights:
    """AdamW over float32 copies. In bfloat16 a weight near 1 moves in steps of 0.008, so small updates would be lost. `shares`
    adds up the gradients of several learners."""

    def __init__(
        self,
        named: Named,
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        max_norm: float = 1.0,
        shares: Shares | None = None,
    ) -> None:
        self.named = named
        self.learning_rate = learning_rate
        self.max_norm = max_norm
        self._shares = shares or Shares()
        self._master_weights = {
            name: value.detach().to(torch.promote_types(value.dtype, torch.float32)).clone()
            for name, value in named.items()
        }
        self.optimiser = torch.optim.AdamW(
            list(self._master_weights.values()), lr=learning_rate, betas=betas, weight_decay=weight_decay
        )

    def step(self, scale: float = 1.0, decay: float = 0.0) -> float:
        """Takes one step from the gradients on the live weights, which are then cleared, and returns the gradient's norm.

        The gradients of several learners are added first. `scale` multiplies the learning rate of this step only. `decay` adds
        the gradient of decay times the sum of the squared weights. A gradient that is not finite raises Diverged and changes
        nothing. A step to weights that are not finite raises Diverged too, before a live weight changes; the master weights and
        the moments then restart from the live weights."""
        wide = list(self._master_weights.values())
        gradients: list[torch.Tensor | None] = []
        for value, master in zip(self.named.values(), wide, strict=True):
            gradients.append(None if value.grad is None else value.grad.to(master.dtype))
            value.grad = None
        sums = self._shares.summed(gradients, wide)
        for value, master, gradient in zip(self.named.values(), wide, sums, strict=True):
            if decay:
                more = 2 * decay * value.detach().to(master.dtype)
                gradient = more if gradient is None else gradient + more
            master.grad = gradient
        norm = float(torch.nn.utils.clip_grad_norm_(wide, self.max_norm))
        if not math.isfinite(norm):
            for master in self._master_weights.values():
                master.grad = None
            raise Diverged(
                f"The gradient's norm is {norm}: this step changed nothing.",
                f"Lower the learning rate (it is {self.learning_rate}) and continue from the last checkpoint.",
            )
        for settings in self.optimiser.param_groups:
            settings["lr"] = self.learning_rate * scale
        try:
            self.optimiser.step()
        except RuntimeError as error:  # a step size past float32 is refused half-way
            if "overflow" not in str(error):
                raise
            raise self._undone(scale, next(iter(self.named))) from error
        lost = [name for name, value in self.named.items() if not _finite_as(self._master_weights[name], value.dtype)]
        if lost:
            raise self._undone(scale, lost[0])
        with torch.no_grad():
            for name, value in self.named.items():
                value.copy_(self._master_weights[name])
                # The gradients are freed, so that these float32 copies take no memory during the next pass.
                self._master_weights[name].grad = None
        return norm

    def _undone(self, scale: float, name: str) -> Diverged:
        """Restarts from the live weights, which the failed step has not reached, and returns the error to raise."""
        with torch.no_grad():
            for key, value in self.named.items():
                self._master_weights[key].copy_(value)
                self._master_weights[key].grad = None
        self.optimiser.state.clear()
        return Diverged(
            f"A step at learning rate {self.learning_rate * scale} leaves weights that are no finite numbers "
            f"(first in {name}): it was not taken.",
            f"Lower the learning rate (it is {self.learning_rate}) and continue from the last checkpoint.",
        )

    def state(self) -> dict[str, Any]:
        return {"master_weights": self._master_weights, "optimiser": self.optimiser.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Loads a state. Raises ValueError where it holds other weights than those being trained, or a number that isn't
        finite."""
        saved = state["master_weights"]
        if set(saved) != set(self._master_weights):
            other = sorted(set(saved) ^ set(self._master_weights))[:3]
            raise ValueError(f"the checkpoint trains other weights than this run, for example {other}")
        for name, value in saved.items():
            if value.shape != self._master_weights[name].shape:
                raise ValueError(
                    f"{name} is {list(value.shape)} there and {list(self._master_weights[name].shape)} here"
                )
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"{name} holds numbers that are not finite")
        with torch.no_grad():
            for name, value in saved.items():
                self._master_weights[name].copy_(value)
                self.named[name].copy_(value)
        self.optimiser.load_state_dict(state["optimiser"])


def _finite_as(master: torch.Tensor, dtype: torch.dtype) -> bool:
    low, high = torch.aminmax(master.detach())  # one pass, nothing allocated; not a number comes through both
    return bool(torch.isfinite(torch.stack((low, high)).to(dtype)).all())
