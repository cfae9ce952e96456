"""Bisimulation of histories: from logs a memory learns to tell histories apart by what they lead to, and by nothing else.

    (|phi(h) - phi(h')| - |r - r'| - gamma W(p(. | phi(h), a), p(. | phi(h'), a)))^2      for histories h, h' before the same a

phi is the output of the critics' memory, p a Gaussian over the next output that a model predicts, and W the distance of
Wasserstein of two of them, sqrt(|m - m'|^2 + |s - s'|^2). Gradients do not reach what stands behind the first minus. Where a
step ended an episode there is no next output, and W is 0. The loss is a mean over pairs that are drawn, added to that of the
critics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.logs import Logs
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.replay import Columns
    from keepworth.control.worlds import MakeWorld


def make(
    world: str | MakeWorld,
    memory: str = "gru",
    *,
    logs: Logs,
    updates: int = 10_000,
    steps: int = 0,
    weight: float = 1.0,
    **settings: Any,
) -> OffPolicyTrainer:
    """Returns a trainer whose `update` learns from logs, with IQL by default, and draws histories together that lead to the same.

    Args:
        world: A Gymnasium id, or a function that makes a world; `keepworth.control.logs.SpacesOf` where there is none. Its
            actions are choices.
        memory: A sequence memory's name.
        logs: By source, episodes; `keepworth.control.logs.read_logs` opens a folder of them.
        updates: Updates from logs.
        steps: Steps of the world after them.
        weight: The weight of the loss.
        settings: As in `keepworth.control.settings.OffPolicySettings`.

    Raises:
        SettingError: The weight is not above 0, or the learner has no critics.
        SpaceError: Actions are numbers, of which no two are the same.
    """
    import torch
    from torch import nn

    from keepworth.control.errors import SpaceError
    from keepworth.control.network import layers
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.settings import OffPolicySettings, SettingError

    if weight <= 0.0:
        raise SettingError(f"weight = {weight} draws no histories together.", "Set it above 0, or use iql.")
    chosen = {"learner": "iql", **settings}
    if chosen["learner"] == "bc":
        raise SettingError("The learner 'bc' has no critics, whose memory could learn.", 'Set learner to "iql".')

    class Bisimulating(OffPolicyTrainer):
        """A learner from logs whose critics' memory is shaped by what histories lead to."""

        def __init__(self, chosen: OffPolicySettings, world: MakeWorld | None) -> None:
            super().__init__(chosen, world, logs)
            if not self.actions.categorical:
                raise SpaceError(
                    f"Histories are compared before the same action, and those of {chosen.world} are numbers.",
                    "Use iql.",
                )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(chosen.seed)
                size = chosen.width + self.actions.features
                self.model = nn.Sequential(*layers(size, chosen.width, 2 * chosen.width))
            self.optimisers["model"] = torch.optim.Adam(self.model.parameters(), chosen.learning_rate)

        def further_loss(self, memories: Tensor, batch: Columns, rewards: Tensor, valid: Tensor) -> Tensor:
            outputs, there = memories[..., : self.settings.width], valid.bool()
            goes_on = (~batch["terminated"][:, :-1])[there]
            before, after = outputs[:, :-1][there], outputs[:, 1:][there].detach()
            done, paid = batch["actions"][:, :-1][there], rewards[there]
            inputs = torch.cat([before.detach(), self.actions.describe(done)], -1)
            mean, log_std = self._predict(inputs)
            error = (log_std + 0.5 * ((after - mean) / log_std.exp()).square()).mean(-1)
            self._step("model", (error * goes_on).sum() / goes_on.sum().clamp(min=1), self.model.parameters())
            with torch.no_grad():
                mean, log_std = self._predict(inputs)
            of = partners(done[:, 0], self.draw)
            return weight * bisimulation_loss(before, paid, mean, log_std.exp(), goes_on, of, self.settings.discount)

        def _predict(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
            mean, log_std = self.model(inputs).chunk(2, -1)
            return mean, log_std.clamp(-5.0, 2.0)

        def save(self) -> dict[str, Any]:
            return super().save() | {"model": self.model.state_dict()}

        def load(self, saved: dict[str, Any]) -> None:
            super().load(saved)
            self.model.load_state_dict(saved["model"])

    name = f"made by {world!r}" if callable(world) else world
    asked = OffPolicySettings(world=name, memory=memory, logged=updates, steps=steps, **chosen)
    return Bisimulating(asked, world if callable(world) else None)


def partners(actions: Tensor, draw: Any) -> Tensor:
    """Returns for each row one that has the same action, [rows]; itself where there is no other.

    Args:
        actions: The number of the action of each row, [rows].
        draw: The source of the random numbers.
    """
    import torch

    of = torch.arange(len(actions))
    for action in actions.unique():
        rows = (actions == action).nonzero()[:, 0]
        order = rows[torch.randperm(len(rows), generator=draw)]
        of[order] = order.roll(1)
    return of


def bisimulation_loss(
    outputs: Tensor, rewards: Tensor, mean: Tensor, deviation: Tensor, goes_on: Tensor, of: Tensor, discount: float
) -> Tensor:
    """Returns the mean squared difference between distances of outputs and of what histories lead to.

    Args:
        outputs: phi of each row, [rows, width].
        rewards: [rows].
        mean: Of the predicted next outputs, [rows, width].
        deviation: Of them, [rows, width].
        goes_on: Whether the episode went on after the row, [rows].
        of: The partner of each row, [rows].
        discount: Gamma.
    """
    ahead = ((mean - mean[of]).square() + (deviation - deviation[of]).square()).sum(-1).sqrt()
    goal = (rewards - rewards[of]).abs() + discount * ahead * goes_on * goes_on[of]
    distance = ((outputs - outputs[of]).square().sum(-1) + 1e-8).sqrt()
    return (distance - goal.detach()).square().mean()


METHOD = Method(
    kind="control_agent",
    name="history_bisimulation",
    title="Bisimulation of histories",
    about="Learns from logs, and draws histories together in memory that are paid the same and lead to the same",
    paper="arXiv 2310.20663",
    claim=(
        "Offline RL over histories can need far more logs than over states; this loss improves it, or is small already where "
        "standard offline RL does well."
    ),
    differs=(
        "The loss is of the general form of bisimulation losses, as its exact one could not be verified, and is added to IQL. "
        "Pairs have the same action, which must be a choice."
    ),
    label="small",
    make=make,
    extra="control",
)
