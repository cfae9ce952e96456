"""Imitation and reinforcement: a few demonstrations of other levels teach a policy before it plays, or all the while.

    before      -log pi(a | h) alone, over the demonstrations, for some updates before the first step
    beside      the loss of each minibatch of PPO  +  weight * -log pi(a | h)  over demonstrations

h is the history of a demonstration, which the network's memory sees from the beginning of its episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.logs import Episode
    from keepworth.control.network import ActorCritic
    from keepworth.control.ppo import Row, Trainer
    from keepworth.control.worlds import MakeWorld

AT_ONCE = 8
"""Demonstrations of a batch."""


def make(
    world: str | MakeWorld,
    memory: str = "gru",
    *,
    demonstrations: Sequence[Episode],
    before: int = 200,
    weight: float = 1.0,
    **settings: Any,
) -> Trainer:
    """Returns a trainer whose `update` plays, and learns from what it played and from demonstrations.

    Args:
        world: A Gymnasium id, or a function that makes a world.
        memory: A sequence memory's name.
        demonstrations: Episodes of someone who can do it; `keepworth.control.logs.read_logs` opens a folder of them. They
            need no rewards.
        before: Updates that imitate before the first step.
        weight: The weight of imitation in each minibatch; 0 for none.
        settings: As in `keepworth.control.settings.PpoSettings`.

    Raises:
        SettingError: There is no demonstration, or neither `before` nor `weight` uses them.
        WorldError: A demonstration is of another world.
    """
    import torch
    from torch import nn

    from keepworth.control.logs import as_batch
    from keepworth.control.ppo import Trainer
    from keepworth.control.settings import PpoSettings, SettingError

    if not len(demonstrations):
        raise SettingError("There is no demonstration to imitate.", "Give one, or use recurrent_ppo.")
    if before < 0 or weight < 0.0 or not (before or weight):
        raise SettingError(
            f"before = {before} and weight = {weight} imitate nothing.", "Set one of them above 0, and none below."
        )

    class Imitating(Trainer):
        """Recurrent PPO that also imitates."""

        def __init__(self, chosen: PpoSettings, world: MakeWorld | None) -> None:
            super().__init__(chosen, world)
            self.logged = as_batch(demonstrations, "demonstrations", self.worlds.observations, self.worlds.actions)

        def imitate(self) -> None:
            """Imitates alone, without a step of the world."""
            for _ in range(before):
                self.optimiser.zero_grad()
                self._error().backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.gradient_norm)
                self.optimiser.step()

        def update(self) -> Row:
            if not self.curve:
                self.imitate()
            return super().update()

        def further_loss(self) -> Tensor | None:
            return weight * self._error() if weight else None

        def _error(self) -> Tensor:
            count = len(self.logged["starts"])
            chosen = torch.randperm(count, generator=self.draw)[:AT_ONCE]
            return imitation_loss(self.network, {name: column[chosen] for name, column in self.logged.items()})

    name = f"made by {world!r}" if callable(world) else world
    return Imitating(PpoSettings(name, memory, **settings), world if callable(world) else None)


def imitation_loss(network: ActorCritic, logged: dict[str, Tensor]) -> Tensor:
    """Returns the mean of -log pi(a | h) over the steps of logged episodes.

    Args:
        network: The network, whose memory sees each episode from its beginning.
        logged: What `keepworth.control.logs.as_batch` returned.
    """
    import torch

    features, starts, actions, valid = (logged[name] for name in ("features", "starts", "actions", "valid"))
    before = torch.cat([torch.zeros_like(actions[:, :1]), actions[:, :-1]], 1)
    x = network.input(features, before, torch.zeros(starts.shape), starts)
    outputs, _, _ = network(x, network.memory.initial_state(len(x)), starts)
    log_probs, _ = network.actions.judge(outputs, network.log_std, actions)
    return -(log_probs * valid).sum() / valid.sum()


METHOD = Method(
    kind="control_agent",
    name="il_rl",
    title="Imitation and reinforcement in generated worlds",
    about="Imitates a few demonstrations before it plays, or beside what it learns from its own play",
    paper="arXiv 2304.09825",
    claim="As few as two demonstrations decide between never and optimal on four sparse tasks of MiniGrid.",
    differs=(
        "Recurrent PPO without a bonus for exploration. Demonstrations are of a planner that sees the whole level or of "
        "BabyAI's bot, and rewards of demonstrations are not an input."
    ),
    label="small",
    make=make,
    extra="control",
)
