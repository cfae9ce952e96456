"""A world model over histories, and an actor and a critic that learn from what it imagines.

    z_t ~ q(z | o_t)                       categories in groups; q and p are mixed with a hundredth of an even draw
    h_t = memory(z_1..t, a_1..t-1)         of any kind, which is handed in; it starts anew with an episode
    p(z_t+1 | h_t, a_t)                    the prior; with the first step of an episode p(z), which knows nothing
    r, c, o by heads on (h_t, z_t)         for each choice the reward and whether the episode goes on; and the observation

    model   |o - o'|^2 / 2 + (r - r')^2 / (2 var r) - log p(c) + .5 max(1, KL(sg(q) | p)) + .1 max(1, KL(q | sg(p)))
    critic  (V(h_i, z_i) - R_i)^2 / 2      R_i = r_i + gamma c_i ((1 - lambda) V'_i+1 + lambda R_i+1),   R_H = V'_H
    actor   -sg((R_i - V_i) / max(1, S)) log pi(a_i | h_i, z_i) - temperature H(pi)

V' follows V slowly, and S the distance between the 5th and the 95th percentile of R. From each step of the windows, which
are drawn from the replay, H steps are imagined: actions by the actor, z by the prior. A step counts as much as it is likely
to be reached, and as gamma weighs it. z is drawn while learning, and the likeliest one while playing.
Source: Hafner et al., "Mastering diverse domains through world models", arXiv 2301.04104, as changed by Samsami et al., arXiv
2403.04253, whose q does not depend on the memory, so that all steps are learned at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keepworth.base.needs import needs_control

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from keepworth.base.errors import require_known
from keepworth.control.critics import Ensemble
from keepworth.control.errors import SpaceError
from keepworth.control.memory_base import State
from keepworth.control.network import HistoryNetwork, layers
from keepworth.control.off_policy import OffPolicyTrainer
from keepworth.control.replay import Columns, Windows, run_lead
from keepworth.control.settings import OffPolicySettings, SettingError
from keepworth.control.spaces import ActionSpace
from keepworth.control.worlds import MakeWorld

SETTINGS = (
    "memory_settings", "steps", "seed", "envs", "learning_rate", "discount", "gradient_norm", "width", "trial", "capacity",
    "batch", "length", "hidden", "burn_in", "warmup", "ratio", "every", "tau", "temperature",
)  # fmt: skip
"""Those of `OffPolicySettings` that have an effect."""
EVEN = 0.01
"""The share of an even draw in each distribution of z."""
LEAST_VARIANCE = 1e-3
"""Of rewards, by which the error of them is divided."""


@dataclass(frozen=True)
class ModelSettings:
    """Settings of a world model and of what is imagined.

    Attributes:
        groups: Groups of categories of z.
        classes: Categories of a group.
        horizon: Steps that are imagined, H.
        context: Rows of a window, from the first, that nothing is imagined from.
        trace: Lambda of the returns.
        actor_rate: The rate of Adam of actor and critic; `learning_rate` is that of the model.
    """

    groups: int = 8
    classes: int = 8
    horizon: int = 8
    context: int = 0
    trace: float = 0.95
    actor_rate: float = 1e-3

    def __post_init__(self) -> None:
        for name, least in (("groups", 1), ("classes", 2), ("horizon", 1), ("context", 0)):
            if getattr(self, name) < least:
                raise SettingError(
                    f"{name} = {getattr(self, name)} is less than {least}.", f"Set {name} to {least} or more."
                )
        if not 0.0 <= self.trace <= 1.0:
            raise SettingError(f"trace = {self.trace} is not in [0, 1].", "Set trace to such a number.")


class WorldModel(HistoryNetwork):
    """The model, and the actor that sees its memory and z."""

    log_std: Tensor

    def __init__(
        self, observation_size: int, actions: ActionSpace, settings: OffPolicySettings, model: ModelSettings
    ) -> None:
        """Makes all networks with fresh weights.

        Args:
            observation_size: Features of an observation.
            actions: The actions, which are choices.
            settings: The settings of the run.
            model: Those of the model.
        """
        self.groups, self.classes, self.latent = model.groups, model.classes, model.groups * model.classes
        width, act = settings.width, actions.features
        super().__init__(self.latent, actions, settings)
        self.observation_size = observation_size
        self.input_size += observation_size - self.latent
        self.features = width + self.latent
        self.posterior = layers(observation_size, width, self.latent)
        self.prior = layers(width + act, width, self.latent)
        self.outcome = layers(self.features, width, 2 * actions.size)
        self.decoder = layers(self.features, width, observation_size)
        self.policy = Ensemble(1, self.features, width, width, actions.size)
        self.register_buffer("log_std", torch.zeros(0))

    def model_parameters(self) -> list[nn.Parameter]:
        """Returns all weights but those of the actor."""
        return [weights for name, weights in self.named_parameters() if not name.startswith("policy.")]

    def log_probs(self, logits: Tensor) -> Tensor:
        """Returns the log-probabilities of the categories, [..., groups, classes]. logits: [..., latent]."""
        even = logits.unflatten(-1, (self.groups, self.classes)).softmax(-1) * (1.0 - EVEN) + EVEN / self.classes
        return even.log()

    def draw(self, log_probs: Tensor, draw: torch.Generator) -> Tensor:
        """Draws z, [..., latent], whose gradient is that of the probabilities.

        Args:
            log_probs: [..., groups, classes].
            draw: The source of the random numbers.
        """
        noise = -torch.empty_like(log_probs).exponential_(generator=draw).log()
        drawn, probs = self.likeliest(log_probs + noise), log_probs.exp().flatten(-2)
        return drawn + probs - probs.detach()

    def likeliest(self, log_probs: Tensor) -> Tensor:
        """Returns the likeliest z, [..., latent]. log_probs: [..., groups, classes]."""
        return one_hot(log_probs.argmax(-1), self.classes).flatten(-2).float()

    def encode(self, z: Tensor, action: Tensor, starts: Tensor) -> Tensor:
        """Returns what the memory takes, [..., width].

        Args:
            z: [..., latent].
            action: The actions before, [..., parts].
            starts: Where an episode begins, [...], Boolean.
        """
        encoded: Tensor = self.encoder(self.input(z, action, torch.zeros(starts.shape), starts))
        return encoded

    def advance(self, z: Tensor, action: Tensor, starts: Tensor, state: State) -> tuple[Tensor, State]:
        """Returns h of one step, [batch, width], and the memory's state after it.

        Args:
            z: [batch, latent].
            action: The actions before the step, [batch, parts].
            starts: Where an episode begins, [batch], Boolean.
            state: The memory's state before the step.
        """
        return self.memory.step(self.encode(z, action, starts), state, starts)

    def expect(self, h: Tensor, action: Tensor, starts: Tensor) -> Tensor:
        """Returns the log-probabilities of the prior of z, [..., groups, classes].

        Args:
            h: What the memory made of the steps before, [..., width].
            action: The actions after them, [..., parts].
            starts: Where an episode begins with z, so that it does not depend on what was before, [...], Boolean.
        """
        before = torch.cat([h, self.actions.describe(action)], -1) * (~starts).unsqueeze(-1)
        return self.log_probs(self.prior(before))

    def outcomes(self, features: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns expected rewards, and logits of going on, both [...].

        Args:
            features: h and z, [..., features].
            action: [..., parts].
        """
        of_choices = self.outcome(features).unflatten(-1, (2, self.actions.size))
        reward, goes_on = (
            of_choices.gather(-1, action.unsqueeze(-2).expand(*action.shape[:-1], 2, 1)).squeeze(-1).unbind(-1)
        )
        return reward, goes_on

    def step(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
        """Returns the policy's outputs, zeros in the place of values, and the state after a step; see `Actor.step`.

        Args:
            x: What `input` returned, [batch, input_size].
            state: The memory's state before the step.
            starts: Where an episode begins, [batch], Boolean.
        """
        seen, rest = x[..., : self.observation_size], x[..., self.observation_size :]
        z = self.likeliest(self.log_probs(self.posterior(seen)))
        h, state = self.memory.step(self.encoder(torch.cat([z, rest], -1)), state, starts)
        outputs: Tensor = self.policy(torch.cat([h, z], -1))
        return outputs[0], x.new_zeros(len(x)), state


class DreamCritic(nn.Module):
    """The critic, and the spread of returns."""

    spread: Tensor

    def __init__(self, features: int, width: int) -> None:
        """Makes the network with fresh weights."""
        super().__init__()
        self.memory = _None()
        self.network = Ensemble(1, features, width, width, 1)
        self.register_buffer("spread", torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        """Returns values, [...]. features: h and z."""
        values: Tensor = self.network(features)
        return values[0].squeeze(-1)


class _None(nn.Module):
    """No memory, as that of the model is used."""

    def initial_state(self, batch: int) -> State:
        """Returns a state of no numbers."""
        return (torch.zeros(batch, 0),)


@dataclass(frozen=True, slots=True)
class ModelBatch:
    """What a model makes of windows of the replay, all [windows, rows, ...].

    Attributes:
        columns: The windows' columns.
        before: The actions before the rows.
        posterior: Log-probabilities of z by the observation.
        prior: Those by the row before, from the second row on.
        z: What was drawn.
        h: What the memory made of it.
    """

    columns: Columns
    before: Tensor
    posterior: Tensor
    prior: Tensor
    z: Tensor
    h: Tensor

    @property
    def features(self) -> Tensor:
        """What heads see."""
        return torch.cat([self.h, self.z], -1)


@dataclass(frozen=True, slots=True)
class Dream:
    """What was imagined, [steps, rows, ...]; of features and of z there is a step more."""

    features: Tensor
    z: Tensor
    actions: Tensor
    rewards: Tensor
    goes_on: Tensor


class ImaginationTrainer(OffPolicyTrainer):
    """The off-policy learner whose updates are those of a model, and of an actor and a critic in what it imagines.

    Attributes:
        losses: The parts of the model's loss in the last update.
    """

    network: WorldModel  # type: ignore[assignment]
    critics: DreamCritic  # type: ignore[assignment]
    target_critics: DreamCritic  # type: ignore[assignment]

    def __init__(
        self, world: str | MakeWorld, memory: str, model: ModelSettings | None = None, **settings: Any
    ) -> None:
        """Makes the worlds, the networks and the replay.

        Args:
            world: A Gymnasium id, or a function that makes a world, whose actions are choices.
            memory: A sequence memory's name.
            model: The settings of the model.
            settings: Those of `SETTINGS`.

        Raises:
            SpaceError: Actions are numbers.
            SettingError: Settings do not fit one another.
        """
        for name in settings:
            require_known("setting of a learner that imagines", name, SETTINGS)
        self.model = model or ModelSettings()
        name = f"made by {world!r}" if callable(world) else world
        usual = {
            "learning_rate": 1e-3,
            "temperature": 0.03,
            "tau": 0.02,
            "batch": 16,
            "length": 16,
            "hidden": "recomputed",
        }
        chosen = OffPolicySettings(name, memory, learner="sac", tune=False, **{**usual, **settings})
        if chosen.hidden == "stored":
            raise SettingError(
                "A state that was stored is of an earlier model.", 'Set hidden to "recomputed", "burnt_in" or "zero".'
            )
        if self.model.context >= chosen.length:
            raise SettingError(
                f"context = {self.model.context} leaves no row of windows of length = {chosen.length} to imagine from.",
                f"Set context to {chosen.length - 1} or less.",
            )
        super().__init__(chosen, world if callable(world) else None)
        rates = {"model": chosen.learning_rate, "actor": self.model.actor_rate, "critics": self.model.actor_rate}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(chosen.seed)
            self.parts = self.make_parts()
        self.learns = {
            "model": [*self.network.model_parameters(), *self.parts.parameters()],
            "actor": [*self.network.policy.parameters()],
            "critics": [*self.critics.network.parameters()],
        }
        self.optimisers = {
            part: torch.optim.Adam(weights, rates[part], fused=True) for part, weights in self.learns.items()
        }
        self.losses = dict[str, float]()

    def make_policy(self, observation_size: int) -> WorldModel:  # type: ignore[override]
        if not self.actions.categorical:
            raise SpaceError(
                f"What imagines chooses here, and the actions of {self.settings.world} are numbers: "
                f"{self.worlds.actions.space}.",
                "Use rsac.",
            )
        return WorldModel(observation_size, self.actions, self.settings, self.model)

    def make_critics(self, observation_size: int) -> DreamCritic:  # type: ignore[override]
        return DreamCritic(self.network.features, self.settings.width)

    def make_parts(self) -> nn.ModuleDict:
        """Returns further networks that learn with the model. A method may have some."""
        return nn.ModuleDict()

    def observation_loss(self, batch: ModelBatch) -> Tensor:
        """Returns the loss by which z is to hold the observation. A method may have its own."""
        error = self.network.decoder(batch.features) - batch.columns["features"]
        return 0.5 * error.square().sum(-1).mean()

    def divergence_loss(self, batch: ModelBatch) -> Tensor:
        """Returns the loss that draws posterior and prior together. A method may have its own."""
        to_prior, to_posterior = balanced(batch.posterior[:, 1:], batch.prior)
        return 0.5 * to_prior.clamp(min=1.0).mean() + 0.1 * to_posterior.clamp(min=1.0).mean()

    def bonus(self, dream: Dream, log_probs: Tensor) -> Tensor | None:
        """Returns what imagined steps are paid further; None for nothing. A method may pay.

        Args:
            dream: What was imagined.
            log_probs: Of its actions, [steps, rows].
        """
        return None

    def windows_to_imagine(self, windows: Windows, shares: Mapping[str, float]) -> Windows:
        """Returns the windows that are imagined from: those that the model has learned. A method may have others.

        Args:
            windows: Those.
            shares: Of the sources.
        """
        return windows

    def see(self, windows: Windows) -> ModelBatch:
        """Returns what the model makes of windows."""
        network, columns = self.network, self.replay.columns
        names = ("features", "actions", "rewards", "starts", "terminated", "valid")
        of = {name: columns[name][windows.rows] for name in names}
        before = columns["actions"][windows.before]
        posterior = network.log_probs(network.posterior(of["features"]))
        z = network.draw(posterior, self.draw)
        h, _ = network.memory(network.encode(z, before, of["starts"]), self._state(network, windows, of), of["starts"])
        prior = network.expect(h[:, :-1], of["actions"][:, :-1], of["starts"][:, 1:])
        return ModelBatch(of, before, posterior, prior, z, h)

    @torch.no_grad()
    def _state(self, network: Any, windows: Windows, batch: Columns) -> State:
        """Returns the memory's state before windows, by the likeliest z of the rows before them; see `OffPolicyTrainer`."""
        columns, lead = self.replay.columns, windows.lead
        z = network.likeliest(network.log_probs(network.posterior(columns["features"][lead])))
        inputs = network.encode(z, columns["actions"][windows.lead_before], columns["starts"][lead])
        return run_lead(network.memory, inputs, columns["starts"][lead], windows.lead_mask)

    def _learn(self, shares: Mapping[str, float], conservative: float) -> dict[str, float]:
        """Takes an optimiser step of the model, and in what it imagines one of the actor and of the critic; returns metrics.
        shares: of the sources; conservative: of no effect."""
        self.learned += 1
        windows = self.draw_windows(shares)
        batch = self.see(windows)
        valid = batch.columns["valid"].float()
        reward, goes_on = self.network.outcomes(batch.features, batch.columns["actions"])
        rewards = batch.columns["rewards"]
        errors = {
            "reward": 0.5 * (reward - rewards).square() / rewards.var().clamp(min=LEAST_VARIANCE),
            "goes_on": binary_cross_entropy_with_logits(
                goes_on, (~batch.columns["terminated"]).float(), reduction="none"
            ),
        }
        losses = {name: (error * valid).sum() / valid.sum().clamp(min=1.0) for name, error in errors.items()}
        losses |= {"observation": self.observation_loss(batch), "divergence": self.divergence_loss(batch)}
        self._step("model", torch.stack([*losses.values()]).sum(), self.learns["model"])
        self.losses = {name: float(loss.detach()) for name, loss in losses.items()}
        chosen = self.windows_to_imagine(windows, shares)
        dream, weight = self.imagine(chosen)
        return self._learn_from(dream, weight)

    @torch.no_grad()
    def imagine(self, windows: Windows) -> tuple[Dream, Tensor]:
        """Imagines steps from the rows of windows; returns them, and whether each row was a step, [rows].

        The memory is stepped over the windows, so that its state before each row is known."""
        network, columns = self.network, self.replay.columns
        starts, before = columns["starts"][windows.rows], columns["actions"][windows.before]
        drawn = network.draw(network.log_probs(network.posterior(columns["features"][windows.rows])), self.draw)
        state, of_rows = self._state(network, windows, {}), list[tuple[Tensor, State]]()
        for row in range(starts.shape[1] - 1):
            h, state = network.advance(drawn[:, row], before[:, row], starts[:, row], state)
            of_rows.append((h, state))
        of_rows = of_rows[self.model.context :]
        h = torch.cat([of for of, _ in of_rows])
        state = tuple(torch.cat(parts) for parts in zip(*(of for _, of in of_rows), strict=True))
        first, last = self.model.context, starts.shape[1] - 1
        z = drawn[:, first:last].transpose(0, 1).flatten(0, 1)
        weight = columns["valid"][windows.rows][:, first:last].T.flatten().float()
        never = torch.zeros(len(z), dtype=torch.bool)
        features, latents, actions = [torch.cat([h, z], -1)], [z], list[Tensor]()
        for _ in range(self.model.horizon):
            outputs: Tensor = network.policy(features[-1])[0]
            action = self.actions.sample(outputs, network.log_std, self.draw)
            z = network.draw(network.expect(h, action, never), self.draw)
            h, state = network.advance(z, action, never, state)
            actions.append(action)
            latents.append(z)
            features.append(torch.cat([h, z], -1))
        seen, done = torch.stack(features), torch.stack(actions)
        rewards, goes_on = network.outcomes(seen[:-1], done)
        return Dream(seen, torch.stack(latents), done, rewards, goes_on.sigmoid()), weight

    def _learn_from(self, dream: Dream, weight: Tensor) -> dict[str, float]:
        """Takes a step of the actor and of the critic; returns metrics.

        Args:
            dream: What was imagined.
            weight: Of each row that it began with, [rows].
        """
        settings, critics, network = self.settings, self.critics, self.network
        log_probs, entropy = self.actions.judge(network.policy(dream.features[:-1])[0], network.log_std, dream.actions)
        with torch.no_grad():
            further = self.bonus(dream, log_probs)
            rewards = dream.rewards if further is None else dream.rewards + further
            following = self.target_critics(dream.features)
            returns = lambda_returns(rewards, dream.goes_on, following[1:], settings.discount, self.model.trace)
            ends = returns.flatten().quantile(torch.tensor([0.05, 0.95]))
            critics.spread.lerp_(ends[1] - ends[0], 1.0 if self.learned == 1 else 0.01)
            going = torch.cat([torch.ones_like(weight).unsqueeze(0), settings.discount * dream.goes_on[:-1]])
            weight = going.cumprod(0) * weight
            weight = weight / weight.sum().clamp(min=1.0)
        values = critics(dream.features[:-1])
        critic_loss = (0.5 * (values - returns).square() * weight).sum()
        advantage = (returns - values.detach()) / critics.spread.clamp(min=1.0)
        actor_loss = -((advantage * log_probs + (self.temperature() or 0.0) * entropy) * weight).sum()
        self._step("critics", critic_loss, self.learns["critics"])
        self._step("actor", actor_loss, self.learns["actor"])
        with torch.no_grad():
            pairs = zip(self.target_critics.parameters(), critics.parameters(), strict=True)
            for target, source in pairs:
                target.lerp_(source, settings.tau)
        return {
            "critic_loss": critic_loss.item(),
            "actor_loss": actor_loss.item(),
            "value": float((values.detach() * weight).sum()),
            "entropy": float((entropy.detach() * weight).sum()),
        }

    def save(self) -> dict[str, Any]:
        """Returns all that the next update depends on, as tensors, numbers and lists."""
        return super().save() | {"parts": self.parts.state_dict()}

    def load(self, saved: dict[str, Any]) -> None:
        """Continues from the result of `save`; see `OffPolicyTrainer.load`."""
        super().load(saved)
        self.parts.load_state_dict(saved["parts"])


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """Returns KL(one | other), summed over groups, [...].

    Args:
        one, other: Log-probabilities, [..., groups, classes].
    """
    return (one.exp() * (one - other)).sum((-2, -1))


def balanced(posterior: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Returns KL(posterior | prior) twice, [...]: with a gradient of the prior alone, and of the posterior alone.

    Args:
        posterior, prior: Log-probabilities, [..., groups, classes].
    """
    return divergence(posterior.detach(), prior), divergence(posterior, prior.detach())


def lambda_returns(rewards: Tensor, goes_on: Tensor, following: Tensor, discount: float, trace: float) -> Tensor:
    """Returns R_i = r_i + gamma c_i ((1 - lambda) V_i+1 + lambda R_i+1), where R_H = V_H, [steps, ...].

    Args:
        rewards: [steps, ...].
        goes_on: The probability that the episode goes on after a step, [steps, ...].
        following: The values after each step, [steps, ...].
        discount: Gamma.
        trace: Lambda.
    """
    returns, after = list[Tensor](), following[-1]
    for step in range(len(rewards) - 1, -1, -1):
        after = rewards[step] + discount * goes_on[step] * ((1.0 - trace) * following[step] + trace * after)
        returns.append(after)
    return torch.stack(returns[::-1])
