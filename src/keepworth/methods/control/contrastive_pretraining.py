"""Contrastive pre-training and a reward of progress, both from demonstrations that need no actions.

    encoder     -log softmax_j (e(o_t) W e(o'_j))[own]     o' is a later observation of the same demonstration, and those of the
                                                           other rows of the batch are told apart from it (NCE)
    progress    (p(o_t) - t / T)^2                         how much of its demonstration an observation has behind it
    reward      r_t + weight * (p(o_{t+1}) - p(o_t))       and r_t alone with the last step of an episode

What is added over an episode is the increase from its first observation to its last but one: less than `weight`, and nothing for
going in circles. The encoder is that of the policy, and goes on learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.logs import Episode
    from keepworth.control.ppo import Rollout, Row, Trainer
    from keepworth.control.worlds import MakeWorld

BATCH, NEAR = 128, 0.8
"""Observations of a batch, and the discount of the number of steps after which the later one is drawn."""


def make(
    world: str | MakeWorld,
    memory: str = "gru",
    *,
    demonstrations: Sequence[Episode],
    before: int = 300,
    weight: float = 1.0,
    **settings: Any,
) -> Trainer:
    """Returns a trainer whose encoder has learned from demonstrations, and whose `update` is paid for progress, too.

    Args:
        world: A Gymnasium id, or a function that makes a world.
        memory: A sequence memory's name.
        demonstrations: Episodes of someone who can do it. Their actions and rewards are not used.
        before: Updates of the encoder before the first step; 0 for none.
        weight: The weight of the reward of progress; 0 for none.
        settings: As in `keepworth.control.settings.PpoSettings`.

    Raises:
        SettingError: There are fewer than two demonstrations, nothing uses them, or there is no encoder to train.
    """
    import torch
    from torch import nn

    from keepworth.control.network import as_tensor, layers
    from keepworth.control.ppo import Trainer
    from keepworth.control.settings import PpoSettings, SettingError

    if len(demonstrations) < 2 or not all(map(len, demonstrations)):
        raise SettingError(
            f"{sum(map(bool, map(len, demonstrations)))} demonstrations with a step tell nothing apart.",
            "Give two, and leave out what is empty.",
        )
    if before < 0 or weight < 0.0 or not (before or weight):
        raise SettingError(
            f"before = {before} and weight = {weight} learn nothing of demonstrations.",
            "Set one of them above 0, and none below.",
        )
    if before and not settings.get("encoder", True):
        raise SettingError(f"before = {before} trains an encoder, and encoder = False.", "Leave one of them out.")

    class Pretrained(Trainer):
        """Recurrent PPO whose encoder and further reward are of demonstrations."""

        def __init__(self, chosen: PpoSettings, world: MakeWorld | None) -> None:
            super().__init__(chosen, world)
            observed = [
                as_tensor(self.worlds.observations.encode([*(step[0] for step in log), log[-1][3]]))
                for log in demonstrations
            ]
            self.features = torch.cat(observed)
            self.left = torch.cat([torch.arange(len(of) - 1, -1, -1) for of in observed])
            self.share = torch.cat([torch.arange(len(of)) / (len(of) - 1) for of in observed])
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(chosen.seed)
                self.bilinear = nn.Linear(chosen.width, chosen.width, bias=False)
                self.progress = nn.Sequential(
                    *layers(self.features.shape[1], chosen.width, chosen.width, 1), nn.Sigmoid()
                )

        def update(self) -> Row:
            if not self.curve:
                if before:
                    modules = nn.ModuleList([self.network.encoder, self.bilinear])
                    self._learn_before(modules, before, self._told_apart)
                if weight:
                    self._learn_before(self.progress, 300, self._behind)
            return super().update()

        def _learn_before(self, module: nn.Module, updates: int, loss: Any) -> None:
            optimiser = torch.optim.Adam(module.parameters(), 1e-3)
            for _ in range(updates):
                optimiser.zero_grad()
                loss(torch.randint(len(self.features), (BATCH,), generator=self.draw)).backward()
                optimiser.step()

        def _told_apart(self, rows: Tensor) -> Tensor:
            rows = rows[self.left[rows] > 0]
            ahead = torch.zeros(len(rows)).geometric_(1.0 - NEAR, generator=self.draw).long()
            return nce_loss(self._encode(rows), self.bilinear(self._encode(rows + ahead.minimum(self.left[rows]))))

        def _encode(self, rows: Tensor) -> Tensor:
            """What the encoder makes of observations, as if an episode began with each, since no action is known."""
            actions, starts = self._carry[1][:1].expand(len(rows), -1), torch.ones(len(rows), dtype=torch.bool)
            encoded: Tensor = self.network.encoder(
                self.network.input(self.features[rows], actions, torch.zeros(len(rows)), starts)
            )
            return encoded

        def _behind(self, rows: Tensor) -> Tensor:
            return (self.progress(self.features[rows]).squeeze(-1) - self.share[rows]).square().mean()

        def pay(self, rollout: Rollout) -> dict[str, float]:
            metrics = super().pay(rollout)
            if not weight:
                return metrics
            observations, starts = self.seen(rollout)
            with torch.no_grad():
                progress = self.progress(observations).squeeze(-1)
            paid = increase(progress, starts[:, 1:])
            rollout.rewards.add_(paid, alpha=weight)
            return metrics | {"progress": float(paid.mean())}

        def save(self) -> dict[str, Any]:
            return super().save() | {"progress": self.progress.state_dict()}

        def load(self, saved: dict[str, Any]) -> None:
            super().load(saved)
            self.progress.load_state_dict(saved["progress"])

    name = f"made by {world!r}" if callable(world) else world
    return Pretrained(PpoSettings(name, memory, **settings), world if callable(world) else None)


def nce_loss(anchors: Tensor, later: Tensor) -> Tensor:
    """Returns the mean of -log softmax_j(anchors_i . later_j) at j = i.

    Args:
        anchors: What the encoder made of observations, [rows, width].
        later: The same of a later observation of each, after the bilinear map, [rows, width].
    """
    import torch

    return torch.nn.functional.cross_entropy(anchors @ later.T, torch.arange(len(anchors)))


def increase(progress: Tensor, ended: Tensor) -> Tensor:
    """Returns p(o_{t+1}) - p(o_t), [worlds, steps]; 0 where an episode ended with the step.

    Args:
        progress: Of the observations of steps and of the one after them, [worlds, steps + 1].
        ended: Whether an episode ended with a step, [worlds, steps].
    """
    return (progress[:, 1:] - progress[:, :-1]) * ~ended


METHOD = Method(
    kind="control_agent",
    name="nce_pretraining",
    title="Contrastive pre-training with a reward of progress",
    about="Learns an encoder and a reward of progress from demonstrations that need no actions, before it plays",
    paper="arXiv 2304.00046",
    claim=(
        "An encoder by noise-contrastive estimation and, apart from it, a model of a further reward, both from one set of "
        "demonstrations, improve sample efficiency on NetHack significantly."
    ),
    differs=(
        "The form of the further reward is this project's: a network learns how much of its demonstration an observation has "
        "behind it, and its increase is paid. The learner is recurrent PPO, and the encoder goes on learning."
    ),
    label="small",
    make=make,
    extra="control",
)
