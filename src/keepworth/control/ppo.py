"""Recurrent PPO over many worlds at once: play a rollout, estimate advantages, learn from chunks that start from stored states.

Source: Schulman et al., "Proximal policy optimization algorithms", arXiv 1707.06347; advantages: Schulman et al.,
"High-dimensional continuous control using generalized advantage estimation", arXiv 1506.02438."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from keepworth.base.needs import needs_control

import torch
from torch import Tensor, nn

from keepworth.control.errors import CheckpointError
from keepworth.control.exploration import Bonus
from keepworth.control.memory_base import State
from keepworth.control.network import ActorCritic, Carry, as_tensor, start_carry
from keepworth.control.prediction import Prediction
from keepworth.control.settings import PpoSettings, RunSettings, SettingError
from keepworth.control.worlds import MakeWorld, Worlds

Row = dict[str, float | int | None]
"""A point of the curve; `Trainer.update` describes its entries."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The played steps, [worlds, rollout, ...], and the memory's states at the first step of every chunk. `rewards` are learned
    from: they include the bonus, and the value after an episode that was cut off. `earned` are the world's."""

    x: Tensor
    starts: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    rewards: Tensor
    earned: Tensor
    ends: Tensor
    last_value: Tensor
    states: list[State]


class Trainer:
    """A training run, with its network, its worlds and their current states. `curve` has a row per update."""

    def __init__(self, settings: PpoSettings, world: MakeWorld | None = None) -> None:
        """Makes the worlds and the networks. `world` makes a world that has no Gymnasium id."""
        self.settings = settings
        self.worlds = Worlds(world or settings.world, settings.envs, settings.seed, settings.trial)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            size, actions = self.worlds.observations.size, self.worlds.actions
            self.network = ActorCritic(size, actions, settings)
            self.bonus = None if settings.bonus == "none" else Bonus(settings.bonus, settings.envs, size, actions)
            self.prediction = (
                None
                if settings.predict == "none"
                else Prediction(settings.predict, settings.width, size, actions, settings.learning_rate)
            )
        self.optimiser = torch.optim.Adam(self.network.parameters(), settings.learning_rate, eps=1e-5)
        self.draw = torch.Generator().manual_seed(settings.seed)
        self.curve: list[Row] = []
        self.recent: deque[float] = deque(maxlen=100)
        self.seconds = 0.0
        self._features = as_tensor(self.worlds.reset())
        self._starts = torch.ones(settings.envs, dtype=torch.bool)
        self._carry: Carry = start_carry(self.network, settings.envs)
        if self.bonus:
            self.bonus.visit(self._features, self._starts)

    def train(self) -> Iterator[Row]:
        """Updates until all steps are done, and yields a row per update."""
        while len(self.curve) < self.settings.updates:
            yield self.update()

    def update(self) -> Row:
        """Plays a rollout and learns from it.

        Returns:
            A row: `steps` of all worlds so far; `return`, the mean over the episodes that ended in this update (None where none
            did), `episodes` and their mean `length`; `recent`, the mean return of the last hundred; `entropy`, `kl` and
            `value_loss`; `mismatch`, the greatest difference between a stored log-probability and the same computed again before
            the first step, which would show a mistake in states or resets; `bonus`, the mean exploration bonus, and `prediction`,
            the loss of the prediction, where the settings ask for them; `seconds` of work so far.
        """
        began = time.perf_counter()
        rollout, returns, lengths = self._play()
        extra = self.pay(rollout)
        losses = {**self._learn(rollout, self._advantages(rollout)), **extra}
        self.recent.extend(returns)
        self.seconds += time.perf_counter() - began
        row: Row = {
            "steps": (len(self.curve) + 1) * self.settings.envs * self.settings.rollout,
            "return": sum(returns) / len(returns) if returns else None,
            "recent": sum(self.recent) / len(self.recent) if self.recent else None,
            "episodes": len(returns),
            "length": sum(lengths) / len(lengths) if lengths else None,
            **losses,
            "seconds": round(self.seconds, 2),
        }
        self.curve.append(row)
        return row

    @torch.no_grad()
    def _play(self) -> tuple[Rollout, list[float], list[int]]:
        """Plays a rollout; also returns the returns and lengths of the episodes that ended in it."""
        settings, network = self.settings, self.network
        columns: list[tuple[Tensor, ...]] = []
        states: list[State] = []
        returns: list[float] = []
        lengths: list[int] = []
        state, action, reward = self._carry
        for step in range(settings.rollout):
            if step % settings.chunk == 0:
                states.append(state)
            x = network.input(self._features, action, reward, self._starts)
            outputs, value, state = network.step(x, state, self._starts)
            action = network.actions.sample(outputs, network.log_std, self.draw)
            log_prob, _ = network.actions.judge(outputs, network.log_std, action)
            if not log_prob.isfinite().all():
                rate = settings.learning_rate
                raise SettingError("The network's outputs are no longer finite.", f"Lower learning_rate = {rate:g}.")
            stepped = self.worlds.step(network.actions.to_world(action))
            reward = torch.from_numpy(stepped.rewards)
            paid = reward.clone()
            if stepped.finals:  # an episode that was cut off gets the value of its last state
                cut = torch.tensor(list(stepped.finals))
                last = torch.stack([as_tensor(features) for features in stepped.finals.values()])
                going_on = torch.zeros(len(cut), dtype=torch.bool)
                x_last = network.input(last, action[cut], reward[cut], going_on)
                _, beyond, _ = network.step(x_last, tuple(part[cut] for part in state), going_on)
                paid[cut] += settings.discount * beyond
            ends = torch.from_numpy(stepped.terminated | stepped.truncated)
            columns.append((x, self._starts, action, log_prob, value, paid, reward, ends))
            self._features, self._starts = as_tensor(stepped.features), ends
            returns += stepped.returns
            lengths += stepped.lengths
        self._carry = state, action, reward
        _, last_value, _ = network.step(
            network.input(self._features, action, reward, self._starts), state, self._starts
        )
        x, starts, actions, log_probs, values, rewards, earned, ended = (
            torch.stack(part, 1) for part in zip(*columns, strict=True)
        )
        played = Rollout(x, starts, actions, log_probs, values, rewards, earned, ended, last_value, states)
        return played, returns, lengths

    def pay(self, rollout: Rollout) -> dict[str, float]:
        """Adds the bonus, where the settings ask for one, to the rewards of a rollout, lets the bonus learn from it, and returns
        metrics. A method may pay more."""
        if not self.bonus:
            return {}
        observations, starts = self.seen(rollout)
        paid = self.bonus.pay(observations, starts)
        rollout.rewards.add_(paid, alpha=self.settings.bonus_weight)
        self.bonus.learn(observations, starts, rollout.actions, self.draw)
        return {"bonus": float(paid.mean())}

    def seen(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Returns the observations of a rollout and the one after it, [worlds, rollout + 1, size], and where episodes start."""
        observations = torch.cat([rollout.x[..., : self.worlds.observations.size], self._features.unsqueeze(1)], 1)
        return observations, torch.cat([rollout.starts, self._starts.unsqueeze(1)], 1)

    def further_loss(self) -> Tensor | None:
        """Returns what is added to the loss of each minibatch; None for nothing. A method may have its own."""
        return None

    def _advantages(self, rollout: Rollout) -> Tensor:
        """Returns generalised advantages, [worlds, rollout]: A_t = delta_t + gamma lambda (1 - end_t) A_{t+1}."""
        settings = self.settings
        advantages = torch.zeros_like(rollout.values)
        following, value = torch.zeros_like(rollout.last_value), rollout.last_value
        for step in range(settings.rollout - 1, -1, -1):
            going_on = (~rollout.ends[:, step]).float()
            delta = rollout.rewards[:, step] + settings.discount * going_on * value - rollout.values[:, step]
            following = delta + settings.discount * settings.trace * going_on * following
            advantages[:, step] = following
            value = rollout.values[:, step]
        return advantages

    def _learn(self, rollout: Rollout, advantages: Tensor) -> dict[str, float]:
        """Takes the optimiser steps on the rollout's chunks, and returns metrics."""
        settings, network = self.settings, self.network
        # Chunk k of world i is row i * (rollout / chunk) + k.
        x, starts, actions, old, earned, targets, advantages = (
            part.unflatten(1, (-1, settings.chunk)).flatten(0, 1)
            for part in (
                *(rollout.x, rollout.starts, rollout.actions, rollout.log_probs, rollout.earned),
                *(advantages + rollout.values, advantages),
            )
        )
        observations = x[..., : self.worlds.observations.size]
        states = tuple(torch.stack(parts, 1).flatten(0, 1) for parts in zip(*rollout.states, strict=True))
        sums = {"entropy": 0.0, "kl": 0.0, "value_loss": 0.0, **({"prediction": 0.0} if self.prediction else {})}
        mismatch = 0.0
        for epoch in range(settings.epochs):
            order = torch.randperm(len(x), generator=self.draw)
            for part, rows in enumerate(order.tensor_split(settings.minibatches)):
                outputs, values, y = network(x[rows], tuple(s[rows] for s in states), starts[rows])
                log_probs, entropy = network.actions.judge(outputs, network.log_std, actions[rows])
                change = log_probs - old[rows]
                ratio = change.exp()
                advantage = advantages[rows]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
                policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
                value_loss = (values - targets[rows]).square().mean()
                loss = policy_loss + settings.value_weight * value_loss - settings.entropy * entropy.mean()
                further = self.further_loss()
                if further is not None:
                    loss = loss + further
                predicted = []
                if self.prediction:
                    predicted.append(
                        self.prediction.loss(y, actions[rows], observations[rows], earned[rows], starts[rows])
                    )
                    loss = loss + settings.predict_weight * predicted[0]
                    self.prediction.optimiser.zero_grad()
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), settings.gradient_norm)
                self.optimiser.step()
                if self.prediction:
                    self.prediction.optimiser.step()
                if epoch == part == 0:
                    mismatch = float(change.detach().abs().max())
                if epoch == settings.epochs - 1:
                    kl = (ratio - 1 - change).mean()
                    for name, of_part in zip(sums, (entropy.mean(), kl, value_loss, *predicted), strict=True):
                        sums[name] += of_part.item() / settings.minibatches
        return {**sums, "mismatch": mismatch}

    def save(self) -> dict[str, Any]:
        """Returns everything that the next update depends on, as tensors, numbers and lists."""
        worlds = self.worlds.save()
        return {
            "settings": asdict(self.settings),
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "draw": self.draw.get_state(),
            "curve": self.curve,
            "recent": list(self.recent),
            "seconds": self.seconds,
            "place": (self._features, self._starts, self._carry),
            "worlds": None if worlds is None else torch.frombuffer(bytearray(worlds), dtype=torch.uint8),
            "bonus": (self.bonus.state_dict(), self.bonus.optimiser.state_dict()) if self.bonus else None,
            "prediction": (self.prediction.state_dict(), self.prediction.optimiser.state_dict())
            if self.prediction
            else None,
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Continues from the result of `save`: exactly, or with new episodes where the worlds cannot be saved or another user
        saved them. Raises CheckpointError for a checkpoint of another memory, world or size."""
        load_network(self.network, saved, self.settings)
        self.optimiser.load_state_dict(saved["optimiser"])
        self.draw.set_state(saved["draw"])
        self.curve, self.seconds = list(saved["curve"]), saved["seconds"]
        self.recent.extend(saved["recent"])
        goes_on = saved["worlds"] is not None and self.worlds.load(saved["worlds"].numpy().tobytes())
        if goes_on:
            self._features, self._starts, self._carry = saved["place"]
        for name, part in (("bonus", self.bonus), ("prediction", self.prediction)):
            if part:
                weights, optimiser = saved[name]
                part.load_state_dict(weights)
                part.optimiser.load_state_dict(optimiser)
        if self.bonus and not goes_on:
            self.bonus.visit(self._features, self._starts)


def load_network(network: nn.Module, saved: dict[str, Any], settings: RunSettings) -> None:
    """Loads the weights of a checkpoint into a network. Raises CheckpointError where they are of another memory, world or size.

    Args:
        network: The network, which was made by the settings.
        saved: The content of the checkpoint.
        settings: The settings that are asked for.
    """
    of = saved["settings"]
    for name in ("memory", "memory_settings", "world", "width"):
        if of[name] != getattr(settings, name):
            raise CheckpointError(
                f"The checkpoint is of a network with {name} = {of[name]!r}, not {getattr(settings, name)!r}.",
                f"Ask for {name} = {of[name]!r}, or choose another folder.",
            )
    try:
        network.load_state_dict(saved["network"])
    except RuntimeError as error:
        raise CheckpointError(
            f"The checkpoint's weights do not fit the network: {str(error).splitlines()[-1].strip()}",
            "The memory's file or the world's spaces changed since: train anew in another folder.",
        ) from error
