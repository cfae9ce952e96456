"""AMAGO: one memory for actor and critics, which learn at once from whole trajectories, for several discounts.

    y_g  = r + g (1 - terminated) min_{k in two drawn heads} sum_a pi'_g(a | e') Q'_{k,g}(e', a)          for each discount g
    critics: mean over heads, discounts and steps of (n_{k,g}(e, a) - (y_g - mean_g) / sd_g)^2,   Q = mean_g + sd_g n
    actor:   mean over discounts of -online sum_a pi_g(a | e) n_g(e, a) - offline 1[A_g > 0] log pi_g(a done | e)
    loss:    actor + 10 critics, in one backward pass through the memory

e is what the one memory made of the history; n_g the mean over the heads, whose weights the actor's loss does not change; A_g =
n_g(e, a done) - sum_a pi_g n_g. mean_g and sd_g follow the targets (PopArt), and the last layer is scaled such that Q stays as it
was. Targets are of the heads and the policy alone, over the memory as it is. It plays by the policy of the greatest discount, and
draws an action evenly with a probability that falls. Goals in observations can be exchanged in hindsight, by a function that is
handed in. Source: Grigsby et al., "AMAGO: scalable in-context reinforcement learning for adaptive agents", arXiv 2310.09971;
PopArt: van Hasselt et al., arXiv 1602.07714."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from keepworth.control.critics import Actor
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.replay import Columns
    from keepworth.control.worlds import MakeWorld

    Relabel = Callable[[Columns, torch.Generator], Columns]

CRITICS_WEIGHT = 10.0
SETTINGS = (
    "memory_settings", "steps", "seed", "envs", "learning_rate", "discount", "gradient_norm", "width", "encoder", "action_input",
    "reward_input", "trial", "capacity", "batch", "length", "hidden", "burn_in", "warmup", "ratio", "every", "tau",
)  # fmt: skip
"""Those of `OffPolicySettings` that have an effect."""


def make(
    world: str | MakeWorld,
    memory: str = "gru",
    *,
    discounts: Sequence[float] = (0.9, 0.97),
    heads: int = 4,
    offline: float = 0.1,
    even: tuple[float, float, float] = (1.0, 0.05, 0.5),
    forget: float = 1e-2,
    relabel: Relabel | None = None,
    **settings: Any,
) -> OffPolicyTrainer:
    """Returns a trainer whose `update` plays and learns until the next row of the curve.

    Args:
        world: A Gymnasium id, or a function that makes a world, whose actions are one choice.
        memory: A sequence memory's name.
        discounts: Those that are learned beside the setting `discount`, by which it plays.
        heads: Critics, two or more.
        offline: Weight of the imitation of what was better than the policy.
        even: The probability of an action that is drawn evenly at first, and at last, and the share of the steps after which it
            is the last one.
        forget: How fast the mean and the deviation of the targets follow.
        relabel: Changes the columns of windows of the replay, [windows, rows, ...]: `features`, `rewards`, `terminated`, `valid`.
        settings: Those of `SETTINGS`; see `keepworth.control.settings.OffPolicySettings`.
    """
    import torch
    from torch import nn

    from keepworth.base.errors import require_known
    from keepworth.control.critics import Actor, Critics, Ensemble
    from keepworth.control.errors import SpaceError
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.settings import OffPolicySettings, SettingError
    from keepworth.control.spaces import ActionSpace

    for name in settings:
        require_known("setting of amago", name, SETTINGS)
    if heads < 2:
        raise SettingError(f"heads = {heads} leaves no two to draw.", "Set it to 2 or more.")
    chosen = {"reward_input": True, "tau": 0.005, "gradient_norm": 1.0, **settings}
    name = f"made by {world!r}" if callable(world) else world
    asked = OffPolicySettings(name, memory, **chosen)
    every = torch.tensor([*discounts, asked.discount])
    if bool(((every < 0.0) | (every > 1.0)).any()):
        raise SettingError(f"discounts = {tuple(discounts)} are not in [0, 1].", "Set it to such numbers.")

    class Policies(Actor):
        """input -> encoder -> memory -> a policy for each discount."""

        def __init__(self, observation_size: int, actions: ActionSpace) -> None:
            super().__init__(observation_size, actions, asked)
            self.policy = Ensemble(1, self.head_input, asked.width, asked.width, len(every) * actions.size)

        def logits(self, memories: Tensor) -> Tensor:
            """Returns logits for each discount, [..., discounts, choices]. memories: what `remember` returned."""
            every_output: Tensor = self.policy(memories)
            return every_output[0].unflatten(-1, (len(every), -1))

        def forward(self, x: Tensor, state: Any, starts: Tensor) -> Tensor:
            return self.logits(self.remember(x, state, starts))[..., -1, :]

        def step(self, x: Tensor, state: Any, starts: Tensor) -> tuple[Tensor, Tensor, Any]:
            y, state = self.memory.step(self.encoder(x), state, starts)
            outputs = self.logits(torch.cat([y, x[..., : self.observation_size]], -1))[..., -1, :]
            return outputs, x.new_zeros(len(x)), state

    class Heads(Critics):
        """Critics over the memory of the policies, whose values are normalised for each discount."""

        mean: Tensor
        square: Tensor

        def __init__(self, observation_size: int, actions: ActionSpace) -> None:
            super().__init__(
                observation_size, actions, OffPolicySettings(name, "mlp", **{**chosen, "memory_settings": {}})
            )
            self.encoder, self.memory = nn.Identity(), _None()  # type: ignore[assignment]
            self.heads = Ensemble(heads, self.head_input, asked.width, asked.width, len(every) * actions.size)
            self.register_buffer("mean", torch.zeros(len(every)))
            self.register_buffer("square", torch.ones(len(every)))

        @property
        def deviation(self) -> Tensor:
            return (self.square - self.mean.square()).clamp(min=1e-4).sqrt()

        def normal(self, memories: Tensor) -> Tensor:
            """Returns normalised values, [heads, ..., discounts, choices]."""
            values: Tensor = self.heads(memories)
            return values.unflatten(-1, (len(every), -1))

        def follow(self, mean: Tensor, square: Tensor, others: Sequence[Heads]) -> None:
            """Moves mean and mean square of the targets towards these, [discounts], such that values stay as they were.

            Args:
                mean, square: Those of the newest targets.
                others: Heads that are normalised by the same numbers.
            """
            before = self.mean.clone(), self.deviation
            self.mean.lerp_(mean, forget)
            self.square.lerp_(square, forget)
            for of in (self, *others):
                of.mean.copy_(self.mean)
                of.square.copy_(self.square)
                weight = of.heads.weights[-1].data.unflatten(-1, (len(every), -1))
                bias = of.heads.biases[-1].data.unflatten(-1, (len(every), -1))
                scale, shift = before[1] / self.deviation, (before[0] - self.mean) / self.deviation
                weight.mul_(scale.unsqueeze(1))
                bias.mul_(scale.unsqueeze(1)).add_(shift.unsqueeze(1))

    class _None(nn.Module):
        """No memory, where that of the policies is used."""

        def initial_state(self, batch: int) -> tuple[Tensor, ...]:
            """Returns no state."""
            return ()

    class AmagoTrainer(OffPolicyTrainer):
        """The off-policy learner with one memory for all, and one backward pass."""

        def __init__(self) -> None:
            super().__init__(asked, world if callable(world) else None)
            if not self.actions.categorical:
                raise SpaceError(
                    f"AMAGO chooses here, and the actions of {name} are numbers: {self.worlds.actions.space}.",
                    "Use rsac.",
                )
            self.parameters = [*self.network.parameters(), *self.critics.heads.parameters()]
            self.optimisers = {"all": torch.optim.Adam(self.parameters, asked.learning_rate, fused=True)}

        def make_policy(self, observation_size: int) -> Actor:
            return Policies(observation_size, self.actions)

        def make_critics(self, observation_size: int) -> Heads:
            return Heads(observation_size, self.actions)

        def _act(self, outputs: Tensor) -> Tensor:
            first, last, share = even
            done = len(self.curve) * asked.every / max(1.0, share * asked.steps)
            chance = last + (first - last) * max(0.0, 1.0 - done)
            drawn = super()._act(outputs)
            others = torch.randint(self.actions.size, drawn.shape, generator=self.draw)
            return torch.where(torch.rand(drawn.shape, generator=self.draw) < chance, others, drawn)

        def _learn(self, shares: Mapping[str, float], conservative: float) -> dict[str, float]:
            lead = {"burnt_in": asked.burn_in or 0, "recomputed": asked.capacity}.get(asked.hidden, 0)
            windows = self.replay.draw(asked.batch, asked.length, lead, shares, self.draw)
            batch = {name: column[windows.rows] for name, column in self.replay.columns.items()}
            paid = self.replay.columns["rewards"][windows.before]
            if relabel is not None:
                batch = relabel(batch, self.draw)
                paid = torch.cat([paid[:, :1], batch["rewards"][:, :-1]], 1)
            starts, network, targets = batch["starts"], self.network, self.target_network
            assert isinstance(network, Policies)
            assert isinstance(targets, Policies)
            assert isinstance(self.critics, Heads)
            assert isinstance(self.target_critics, Heads)
            x = network.input(batch["features"], self.replay.columns["actions"][windows.before], paid, starts)
            memories = network.remember(x, self._state(network, windows, batch), starts)
            valid = batch["valid"][:, :-1].float()
            count = valid.sum().clamp(min=1.0) * len(every)
            with torch.no_grad():
                ahead = memories[:, 1:].detach()
                pair = torch.randperm(heads, generator=self.draw)[:2]
                normal = self.target_critics.normal(ahead)[pair].amin(0)
                following = (targets.logits(ahead).softmax(-1) * normal).sum(-1)
                following = self.critics.mean + self.critics.deviation * following
                goes_on = (~batch["terminated"][:, :-1]).float().unsqueeze(-1)
                returns = batch["rewards"][:, :-1].unsqueeze(-1) + every * goes_on * following
                weight = (valid / valid.sum().clamp(min=1.0)).unsqueeze(-1)
                mean, square = ((of * weight).sum((0, 1)) for of in (returns, returns.square()))
                self.critics.follow(mean, square, [self.target_critics])
                wanted = (returns - self.critics.mean) / self.critics.deviation
            done = batch["actions"][:, :-1].unsqueeze(-2).expand(-1, -1, len(every), -1)
            normal = self.critics.normal(memories[:, :-1])
            of_done = normal.gather(-1, done.expand(heads, *done.shape)).squeeze(-1)
            critic_loss = ((of_done - wanted).square() * valid.unsqueeze(-1)).sum() / (count * heads)
            logs, worth = network.logits(memories[:, :-1]).log_softmax(-1), normal.detach().mean(0)
            usual = (logs.exp() * worth).sum(-1)
            better = worth.gather(-1, done).squeeze(-1) > usual.detach()
            imitation = -better.float() * logs.gather(-1, done).squeeze(-1)
            actor_loss = ((offline * imitation - usual) * valid.unsqueeze(-1)).sum() / count
            self._step("all", actor_loss + CRITICS_WEIGHT * critic_loss, self.parameters)
            self.learned += 1
            with torch.no_grad():
                for target, source in ((self.target_critics, self.critics), (targets, network)):
                    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), asked.tau)
                value = self.critics.mean[-1] + self.critics.deviation[-1] * of_done[..., -1].mean(0)
                entropy = -(logs.exp() * logs).sum(-1)[..., -1]
            return {
                "critic_loss": critic_loss.item(),
                "actor_loss": actor_loss.item(),
                "value": float((value * valid).sum() / valid.sum().clamp(min=1.0)),
                "entropy": float((entropy * valid).sum() / valid.sum().clamp(min=1.0)),
            }

    return AmagoTrainer()


METHOD = Method(
    kind="control_agent",
    name="amago",
    title="AMAGO",
    about="Lets actor and critics share one memory, and learns all its steps at once, off-policy and for several discounts",
    paper="arXiv 2310.09971",
    claim="It is above recurrent PPO on POPGym and solves goal-conditioned worlds with hindsight (no number checked).",
    differs=(
        "A recurrent memory in place of the transformer, two further discounts in place of a dozen, windows of the replay in "
        "place of whole trajectories where they are longer. Actions are one choice."
    ),
    label="small",
    make=make,
    extra="control",
)
