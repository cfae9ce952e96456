"""Many worlds of one Gymnasium id, stepped together. A world whose episode ends is reset in the same step."""

from __future__ import annotations

import hmac
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from keepworth.base.needs import needs_control

import gymnasium
import numpy as np
from numpy.typing import NDArray

from keepworth.base.errors import called_as, nearest
from keepworth.base.extras import fix_for, missing
from keepworth.base.user_files import UnusableCache, signature
from keepworth.control import ladder as ladder  # registers its worlds
from keepworth.control.errors import UnknownWorld, WorldError
from keepworth.control.spaces import ActionSpace, Features, ObservationSpace
from keepworth.control.trials import Trials
from keepworth.records.episode import finite_number

PACKAGES = {"popgym": "popgym", "MiniGrid": "minigrid", "BabyAI": "minigrid"}
"""The packages that register worlds, by the beginning of their ids."""

_SIGNED = 32
"""Bytes of a signature."""
MakeWorld = Callable[[], gymnasium.Env[Any, Any]]


@dataclass(frozen=True, slots=True)
class Stepped:
    """The result of a step of all worlds.

    Attributes:
        features: Features of the current observations, [worlds, features]; of a new episode where one ended.
        rewards: [worlds].
        terminated: Where an episode terminated, [worlds].
        truncated: Where it was cut off, as by a limit of time, [worlds].
        finals: By world, features of the last observation of an episode that was cut off.
        returns: Sums of rewards of the episodes that ended.
        lengths: Their steps.
    """

    features: Features
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    finals: dict[int, Features]
    returns: list[float]
    lengths: list[int]


MASK = "action_mask"
"""Under this name in `info`, or as a method with an "s", worlds say which actions are allowed."""


class Worlds:
    """A number of worlds of one kind.

    Attributes:
        observations: Converts observations to features.
        actions: Converts outputs of a network to actions.
    """

    def __init__(self, world: str | MakeWorld, count: int, seed: int = 0, trial: int = 1) -> None:
        """Makes the worlds of a Gymnasium id, or those that a function makes. World i is seeded from `seed` and i. For `trial`
        see `Trials`.

        Raises:
            UnknownWorld: There is no such id.
            MissingExtra: The package that brings it is not installed.
            SpaceError: A network cannot take its observations or give its actions.
        """
        make = world if callable(world) else maker(world)
        self._worlds = [Trials(make(), trial) if trial > 1 else make() for _ in range(count)]
        self.observations = ObservationSpace(self._worlds[0].observation_space)
        self.actions = ActionSpace(self._worlds[0].action_space)
        self._seeds = [int(part.generate_state(1)[0]) for part in np.random.SeedSequence(seed).spawn(count)]
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int64)

    def reset(self) -> Features:
        """Begins all episodes, and returns the features of their first observations. Raises WorldError for a world that allows
        only some of its actions."""
        with called_as("The reset of a world"):
            resets = [world.reset(seed=seed) for world, seed in zip(self._worlds, self._seeds, strict=True)]
            begun = [(observation, dict(info)) for observation, info in resets]
        for i, (world, (_, info)) in enumerate(zip(self._worlds, begun, strict=True)):
            if MASK in info or callable(getattr(getattr(world, "unwrapped", world), f"{MASK}s", None)):
                raise WorldError(
                    f"World {i} says which actions are allowed ({MASK}), and networks here draw any action.",
                    "Let an action that is not allowed do nothing or cost something, and leave the mask out: a "
                    f"gymnasium.Wrapper that takes {MASK} out of info, or no method {MASK}s.",
                )
        return self.observations.encode([observation for observation, _ in begun])

    def step(self, actions: list[Any]) -> Stepped:
        """Steps every world.

        Raises:
            WorldError: A reward is not one finite number, or an observation is outside the space.
        """
        count = len(self._worlds)
        observations: list[Any] = []
        rewards = np.zeros(count, np.float32)
        terminated, truncated = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        finals: dict[int, Features] = {}
        returns, lengths = [], []
        for i, (world, action) in enumerate(zip(self._worlds, actions, strict=True)):
            with called_as(f"The step of world {i}"):
                observation, given, over, cut, _ = world.step(action)
            try:
                reward = finite_number(given)
                if abs(reward) > np.finfo(np.float32).max:
                    raise ValueError(f"{reward:g}, which float32 does not hold")
                rewards[i] = reward
            except ValueError as error:
                raise WorldError(
                    f"World {i} gave a reward that is {error}.",
                    "Let its step return one finite number, such as float(...).",
                ) from None
            self._returns[i] += reward
            self._lengths[i] += 1
            if over or cut:
                terminated[i], truncated[i] = over, cut and not over
                if truncated[i]:
                    finals[i] = self.observations.encode([observation])[0]
                returns.append(float(self._returns[i]))
                lengths.append(int(self._lengths[i]))
                self._returns[i] = self._lengths[i] = 0
                with called_as(f"The reset of world {i}"):
                    observation, _ = world.reset()
            observations.append(observation)
        features = self.observations.encode(observations)
        return Stepped(features, rewards, terminated, truncated, finals, returns, lengths)

    def save(self) -> bytes | None:
        """Returns the signed state of all worlds; None where a world cannot be pickled."""
        with suppress(Exception):
            saved = pickle.dumps((self._worlds, self._returns, self._lengths))
            return signature(saved) + saved
        return None

    def load(self, signed: bytes) -> bool:
        """Restores the state of `save`, and returns whether it did. A state without this user's signature is refused, because
        reading a pickle runs code."""
        saved = signed[_SIGNED:]
        try:
            expected = signature(saved)
        except UnusableCache:
            return False
        if not hmac.compare_digest(signed[:_SIGNED], expected):
            return False
        self._worlds, self._returns, self._lengths = pickle.loads(saved)
        return True


def maker(name: str) -> MakeWorld:
    """Returns a function that makes a world by its Gymnasium id. "module:id" imports a module first, as in Gymnasium.

    Raises:
        UnknownWorld: There is no such id. The message has the nearest.
        MissingExtra: The package that brings it is not installed.
    """
    package = PACKAGES.get(name.partition("-")[0], "")
    if package:
        if missing("control", package):
            raise UnknownWorld(
                f"The world {name!r} needs {package}, which is not installed.",
                fix_for("control") if package == "popgym" else f"pip install {package}",
            )
        import_module(package)
    module, _, world = name.rpartition(":")
    try:
        if module:
            import_module(module)
        gymnasium.spec(world)
    except (gymnasium.error.Error, ImportError) as error:
        near = nearest(name, gymnasium.registry)
        raise UnknownWorld(
            f"Gymnasium has no world {name!r}: {str(error).splitlines()[0]}",
            f"Did you mean {near!r}?" if near else 'Write "module:id" for a world that a module of yours registers.',
        ) from error

    def make() -> gymnasium.Env[Any, Any]:
        try:
            return gymnasium.make(name, disable_env_checker=True)
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            raise UnknownWorld(f"The world {name!r} needs a package that is not installed.", f"{error}.") from error

    return make
