"""A run in a folder: settings, curve and checkpoint; and the trained agent that is loaded from there."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from keepworth.base.needs import needs_control

import gymnasium
import numpy as np
import torch

from keepworth.control.critics import Actor, StackedCritics
from keepworth.control.dials import Transition
from keepworth.control.errors import CheckpointError
from keepworth.control.ladder import horizons
from keepworth.control.logs import Logs, SpacesOf
from keepworth.control.network import ActorCritic, Carry, as_tensor, start_carry
from keepworth.control.off_policy import OffPolicyTrainer, action_space, make_actor
from keepworth.control.ppo import Row, Trainer, load_network
from keepworth.control.settings import OffPolicySettings, PpoSettings, SettingError
from keepworth.control.worlds import MakeWorld, Worlds

CHECKPOINT, CURVE = "checkpoint.pt", "curve.json"
EVERY = 15.0
"""Seconds between two checkpoints."""


def make_trainer(
    settings: PpoSettings | OffPolicySettings, world: MakeWorld | None = None, logs: Logs | None = None
) -> Trainer | OffPolicyTrainer:
    """Makes the trainer that the settings are of.

    Args:
        settings: The settings of the run.
        world: Makes a world that has no Gymnasium id.
        logs: By source, episodes that the replay of an off-policy learner holds from the beginning.

    Raises:
        SettingError: PPO is given logs.
    """
    if isinstance(settings, OffPolicySettings):
        return OffPolicyTrainer(settings, world, logs)
    if logs:
        raise SettingError("PPO learns from nothing but what it plays, and logs were given.", "Use OffPolicySettings.")
    return Trainer(settings, world)


def run(
    settings: PpoSettings | OffPolicySettings,
    folder: str | Path,
    world: MakeWorld | None = None,
    logs: Logs | None = None,
) -> Iterator[Row]:
    """Trains in a folder, or continues its run; yields a row per update, the earlier ones first.

    Args:
        settings: The settings of the run. To continue one, only `steps` may differ.
        folder: The folder, which is made where it does not exist.
        world: Makes a world that has no Gymnasium id. Its name takes the place of the id in the settings.
        logs: By source, episodes that the replay of an off-policy learner holds from the beginning; the same to continue.

    Raises:
        CheckpointError: The folder holds another run, or is a file.
    """
    folder = Path(folder)
    if folder.is_file():
        raise CheckpointError(f"{folder} is a file.", "Give the name of a folder.")
    if world is not None:
        settings = replace(settings, world=getattr(world, "__qualname__", type(world).__qualname__))
    trainer = make_trainer(settings, world, logs)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / CHECKPOINT).exists():
        saved = load_checkpoint(folder)
        before = replace(settings_of(saved), steps=settings.steps)
        if type(before) is not type(settings):
            raise CheckpointError(
                f"{folder} holds a run of {_learner(before)}, not of {_learner(settings)}.",
                "Choose another folder, or ask for the same.",
            )
        differing = [name for name, value in asdict(settings).items() if asdict(before)[name] != value]
        if differing:
            name = differing[0]
            raise CheckpointError(
                f"{folder} holds a run with {name} = {getattr(before, name)!r}, not {getattr(settings, name)!r}.",
                "Choose another folder, or ask for the same.",
            )
        trainer.load(saved)
        yield from trainer.curve
    written = time.monotonic()
    for row in trainer.train():
        yield row
        if time.monotonic() - written > EVERY:
            save(trainer, folder)
            written = time.monotonic()
    save(trainer, folder)


def save(trainer: Trainer | OffPolicyTrainer, folder: Path) -> None:
    """Writes the checkpoint and the curve, each completely or not at all."""
    write_whole(folder / CHECKPOINT, trainer.save())
    finished = len(trainer.curve) >= trainer.settings.updates
    about = {
        "settings": asdict(trainer.settings),
        "done": finished,
        "K": trainer.network.memory.context,
        "reach": trainer.network.memory.reach,
        "xi": horizons(trainer.settings.world),
        "torch": torch.__version__,
        "gymnasium": version("gymnasium"),
        "columns": list(trainer.curve[-1]) if trainer.curve else [],
        "rows": [[_rounded(value) for value in row.values()] for row in trainer.curve],
    }
    lines = json.dumps(about, separators=(", ", ": ")).replace("], [", "],\n[")
    part = folder / f"{CURVE}.part"
    part.write_text(lines + "\n", encoding="utf-8")
    os.replace(part, folder / CURVE)


def _rounded(value: float | int | None) -> float | int | None:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def write_whole(path: Path, content: Any) -> None:
    """Saves tensors such that a reader finds the old file or the new one."""
    part = path.with_name(f"{path.name}.part")
    torch.save(content, part)
    os.replace(part, path)


def load_checkpoint(folder: Path) -> dict[str, Any]:
    """Loads the result of `Trainer.save` from a folder. Raises CheckpointError where it is missing or damaged."""
    path = folder / CHECKPOINT
    if not path.exists():
        raise CheckpointError(f"{folder} holds no {CHECKPOINT}.", "Name the folder that --folder of a training named.")
    try:
        saved = torch.load(path, weights_only=True)
        settings_of(saved)
    except (RuntimeError, EOFError, pickle.UnpicklingError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no checkpoint of keepworth control: {str(error).splitlines()[0]}",
            "Train anew in another folder.",
        ) from error
    return dict(saved)


def settings_of(saved: dict[str, Any]) -> PpoSettings | OffPolicySettings:
    """Returns the settings of a checkpoint."""
    settings = saved["settings"]
    return OffPolicySettings(**settings) if "learner" in settings else PpoSettings(**settings)


def _learner(settings: PpoSettings | OffPolicySettings) -> str:
    return settings.learner if isinstance(settings, OffPolicySettings) else "ppo"


def play(
    agent: TrainedAgent, world: gymnasium.Env[Any, Any], episodes: int, *, seed: int = 0, deterministic: bool = True
) -> Iterator[list[Transition]]:
    """Yields episodes of a trained agent as logs.

    Args:
        agent: What was trained, or loaded from a folder.
        world: An environment of Gymnasium, which is reset before each episode.
        episodes: How many are played.
        seed: The seed of the first episode; each further one has the next.
        deterministic: Whether to take the likeliest action, or to draw one.
    """
    for episode in range(episodes):
        observation, _ = world.reset(seed=seed + episode)
        state, reward, log, over, cut = None, 0.0, list[Transition](), False, False
        while not (over or cut):
            action, state = agent.predict(observation, state, reward=reward, deterministic=deterministic)
            after, paid, over, cut, _ = world.step(action)
            reward = float(paid)
            log.append((observation, action, reward, after, over))
            observation = after
        yield log


class TrainedAgent:
    """A trained network that acts.

    agent = TrainedAgent.load("runs/control/ffm")
    state = None
    while not done:
        action, state = agent.predict(observation, state)
    """

    def __init__(self, network: ActorCritic | Actor | StackedCritics, worlds: Worlds) -> None:
        self.network = network.eval()
        self.worlds = worlds

    @classmethod
    def load(cls, folder: str | Path, world: MakeWorld | None = None) -> TrainedAgent:
        """Loads the agent of a run's folder. `world` makes a world that has no Gymnasium id."""
        saved = load_checkpoint(Path(folder))
        settings = settings_of(saved)
        if world is None and saved.get("spaces"):  # learned from logs, without a world
            world = SpacesOf.of_json(saved["spaces"])
        worlds = Worlds(world or settings.world, 1, settings.seed, settings.trial)
        size = worlds.observations.size
        network: ActorCritic | Actor | StackedCritics
        if isinstance(settings, OffPolicySettings):
            network = make_actor(size, action_space(worlds.actions.space, settings), settings)
        else:
            network = ActorCritic(size, worlds.actions, settings)
        load_network(network, saved, settings)
        return cls(network, worlds)

    @torch.no_grad()
    def predict(
        self,
        observation: Any,
        state: Carry | None = None,
        *,
        reward: Any = 0.0,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Carry]:
        """Returns the action for an observation, or those for the observations of `gymnasium.make_vec`.

        Args:
            observation: The world's observation.
            state: The state that the previous call returned; None at the start of an episode.
            reward: The reward of the previous step, for networks that take it.
            episode_start: For several worlds, whether each is at the start of an episode. Then all else has a part for each.
            deterministic: Whether to take the likeliest action, or to draw one.

        Returns:
            An action for the world, and the state for the next call.
        """
        network, several = self.network, episode_start is not None
        starts = torch.as_tensor(episode_start if several else [state is None], dtype=torch.bool)
        memory, action, _ = state or start_carry(network, len(starts))
        seen = observation if several else [observation]
        if isinstance(seen, dict):
            seen = [{name: part[world] for name, part in seen.items()} for world in range(len(starts))]
        features = as_tensor(self.worlds.observations.encode(seen))
        paid = torch.as_tensor(reward, dtype=torch.float32).expand(len(starts))
        outputs, _, memory = network.step(network.input(features, action, paid, starts), memory, starts)
        if deterministic:
            action = network.actions.best(outputs)
        else:
            action = network.actions.sample(outputs, network.log_std, torch.default_generator)
        acts = network.actions.to_world(action)
        return np.stack(acts) if several else acts[0], (memory, action, paid)

    def export(self, path: str | Path) -> None:
        """Writes one step of the network as a program that PyTorch runs without keepworth.

        `torch.export.load(path).module()` takes inputs, [batch, size], the parts of the memory's state, a list, and Boolean
        starts, [batch]. It returns the policy's outputs, values, and the parts of the state."""

        class Step(torch.nn.Module):
            def __init__(self, network: ActorCritic | Actor | StackedCritics) -> None:
                super().__init__()
                self.network = network

            def forward(self, x: Any, state: list[Any], starts: Any) -> tuple[Any, Any, list[Any]]:
                outputs, values, after = self.network.step(x, tuple(state), starts)
                return outputs, values, list(after)

        batch = torch.export.Dim("batch", min=1, max=65536)
        state = list(self.network.memory.initial_state(3))
        inputs = (torch.zeros(3, self.network.input_size), state, torch.zeros(3, dtype=torch.bool))
        shapes = ({0: batch}, [{0: batch} for _ in state], {0: batch})
        program = torch.export.export(Step(self.network), inputs, dynamic_shapes=shapes)
        torch.export.save(program, Path(path))
