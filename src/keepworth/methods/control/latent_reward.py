"""LaRe: learns what each step was worth from the sum of an episode's rewards, over named factors of the step.

    R                        the sum of an episode's rewards, of T steps
    f(o, a)                  factors, which somebody who knows the world writes down: data, and no network
    r(o, a) = g(f(o, a))     the reward that the critics learn instead of the world's
    loss(g) = (mean_K r - R / T)^2 - var_K(r) (1 - K / T) / K

K steps of each episode are drawn without replacement, and var_K is their sample variance (over K - 1): its term makes the
expectation of the loss that of the mean over all T steps. Without factors, g sees the observation and the action themselves,
which is randomised return decomposition (arXiv 2111.13485)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.worlds import MakeWorld

    Factors = Callable[[Tensor, Tensor], Tensor]
    """Maps features of observations, [..., size], and actions, [..., parts], to factors, [..., factors]."""

EPISODES, RENEWED = 32, 50
"""Episodes that an update learns from, and the updates after which the new ones are among them."""


def make(
    world: str | MakeWorld,
    memory: str = "gru",
    *,
    factors: Factors | None = None,
    drawn: int = 16,
    **settings: Any,
) -> OffPolicyTrainer:
    """Returns a trainer for a world that pays late, as `keepworth.control.dials.Dials(summed=True)` makes any.

    Args:
        world: A Gymnasium id, or a function that makes a world.
        memory: A sequence memory's name.
        factors: The factors; None for the observation and the action themselves. Numbers of an action are within [-1, 1].
        drawn: Steps of an episode that are drawn for an update, K.
        settings: As in `keepworth.control.settings.OffPolicySettings`.
    """
    import torch
    from torch import nn

    from keepworth.control.network import layers
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.replay import PLAY
    from keepworth.control.settings import OffPolicySettings, SettingError

    if drawn < 2:
        raise SettingError(f"drawn = {drawn} steps have no variance.", "Set drawn to 2 or more.")

    class LatentReward(OffPolicyTrainer):
        """Its critics learn the rewards of a network over factors, which an update of theirs improves first."""

        def __init__(self, chosen: OffPolicySettings, world: MakeWorld | None) -> None:
            super().__init__(chosen, world)
            blank = {name: column[:1] for name, column in self.replay.columns.items()}
            size = self._factors(blank["features"], blank["actions"]).shape[-1]
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(chosen.seed)
                self.worth = nn.Sequential(*layers(size, chosen.width, chosen.width, 1))
            self.optimisers["worth"] = torch.optim.Adam(self.worth.parameters(), chosen.learning_rate)
            self.scale = {"centre": torch.zeros(size), "spread": torch.ones(size), "usual": torch.zeros(2)}
            self._since, self._places = 0, torch.zeros(0, 0, dtype=torch.long)
            self._steps, self._means = torch.zeros(0, dtype=torch.long), torch.zeros(0)

        def _factors(self, features: Tensor, actions: Tensor) -> Tensor:
            if factors is None:
                return torch.cat([features, self.actions.describe(actions)], -1)
            return factors(features, actions)

        def rewards(self, rows: Tensor) -> Tensor:
            """Learns the rewards of steps from those of whole episodes, and returns them for rows of the replay."""
            if self._since % RENEWED == 0:
                self._gather()
            self._since += 1
            if not len(self._means):  # no episode is over: all that is known is that nothing was paid
                return torch.zeros(rows.shape)
            of = torch.randint(len(self._means), (EPISODES,), generator=self.draw)
            places, present = self._draw_steps(of)
            with torch.enable_grad():
                loss = decomposition_loss(self._worth(places), present, self._means[of], self._steps[of])
                self._step("worth", loss, self.worth.parameters())
            return self._worth(rows)

        def _gather(self) -> None:
            """Reads the whole episodes of the replay, and the scale of their factors and of their mean rewards."""
            episodes = [places for places in self.replay.episodes(PLAY) if len(places) > 1]
            if not episodes:
                return
            columns = self.replay.columns
            self._steps = torch.tensor([len(places) for places in episodes])
            self._means = torch.stack([columns["rewards"][places].mean() for places in episodes])
            self._places = nn.utils.rnn.pad_sequence(episodes, batch_first=True)
            every = torch.cat(episodes)
            values = self._factors(columns["features"][every], columns["actions"][every])
            self.scale["centre"], self.scale["spread"] = values.mean(0), values.std(0).clamp(min=1e-3)
            spread = self._means.std(unbiased=False).clamp(min=1e-3)
            self.scale["usual"] = torch.stack([self._means.mean(), spread])

        def _draw_steps(self, of: Tensor) -> tuple[Tensor, Tensor]:
            """Draws steps of episodes without replacement; returns their places, and which of them there are."""
            places, steps = self._places[of], self._steps[of].unsqueeze(1)
            keys = torch.rand(places.shape, generator=self.draw)
            keys[torch.arange(places.shape[1]) >= steps] = -1.0
            order = keys.topk(min(drawn, places.shape[1])).indices
            return places.gather(1, order), keys.gather(1, order) >= 0.0

        def _worth(self, places: Tensor) -> Tensor:
            columns, scale = self.replay.columns, self.scale
            values = self._factors(columns["features"][places], columns["actions"][places])
            worth: Tensor = self.worth((values - scale["centre"]) / scale["spread"]).squeeze(-1)
            return scale["usual"][0] + scale["usual"][1] * worth

        def save(self) -> dict[str, Any]:
            gathered = self._since, self._places, self._steps, self._means
            return super().save() | {"worth": (self.worth.state_dict(), dict(self.scale), gathered)}

        def load(self, saved: dict[str, Any]) -> None:
            super().load(saved)
            weights, self.scale, gathered = saved["worth"]
            self.worth.load_state_dict(weights)
            self._since, self._places, self._steps, self._means = gathered

    name = f"made by {world!r}" if callable(world) else world
    return LatentReward(OffPolicySettings(name, memory, **settings), world if callable(world) else None)


def decomposition_loss(worth: Tensor, present: Tensor, means: Tensor, steps: Tensor) -> Tensor:
    """Returns the loss of randomised return decomposition, whose expectation is that of all steps.

    It is divided by the variance of the mean rewards, such that their size does not matter.

    Args:
        worth: The rewards of the steps that were drawn, [episodes, K].
        present: Which of them there are, [episodes, K]; at least two of each episode.
        means: The mean reward of each episode, [episodes].
        steps: How many steps each episode has, [episodes].
    """
    count = present.sum(1)
    mean = (worth * present).sum(1) / count
    variance = ((worth - mean.unsqueeze(1)).square() * present).sum(1) / (count - 1)
    unequal = (mean - means).square() - variance * (1.0 - count / steps) / count
    return unequal.mean() / means.var(unbiased=False).clamp(min=1e-6)


METHOD = Method(
    kind="control_agent",
    name="lare",
    title="LaRe",
    about="Learns what each step was worth from the sum of an episode's rewards, over factors that are written down",
    paper="arXiv 2412.11120",
    claim="Factors that a language model writes give better credit than raw inputs, at times better than the true rewards.",
    differs=(
        "The factors are a function that is handed in; no language model writes it or checks it. Rewards of the network are "
        "made anew for each batch, factors are scaled to a variance of one, and the learner may have a memory."
    ),
    label="small",
    make=make,
    extra="control",
)
