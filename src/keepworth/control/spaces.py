"""Converts Gymnasium's spaces to numbers: observations become features, and a network's outputs become actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from keepworth.base.needs import needs_control

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from keepworth.control.errors import SpaceError, WorldError

Features = NDArray[np.float32]


class ObservationSpace:
    """Features of observations: categories as one-hot vectors, bounded numbers scaled to [-1, 1], others as they are.

    Attributes:
        size: The number of features.
    """

    def __init__(self, space: gymnasium.Space[Any], where: str = "observation") -> None:
        """Raises SpaceError where the space, or a part of it, consists neither of categories nor of numbers."""
        self.space = space
        self._parts: list[tuple[Any, ObservationSpace]] = []
        match space:
            case spaces.Discrete():
                self.size = int(space.n)
            case spaces.MultiDiscrete() if space.nvec.ndim == 1:
                self.size = int(space.nvec.sum())
                self._first = np.concatenate([[0], space.nvec.cumsum()[:-1]])
            case spaces.MultiBinary() | spaces.Box():
                self.size = math.prod(space.shape or ())
                self._scale(space.shape or ())
            case spaces.Tuple() | spaces.Dict():
                keyed = enumerate(space.spaces) if isinstance(space, spaces.Tuple) else space.spaces.items()
                self._parts = [(key, ObservationSpace(part, f"{where}[{key!r}]")) for key, part in keyed]
                self.size = sum(part.size for _, part in self._parts)
            case _:
                raise SpaceError(
                    f"A network cannot take the {where}, whose space is {type(space).__name__}.",
                    "Wrap the world so that it gives numbers or categories (gymnasium.wrappers.TransformObservation; "
                    "for MiniGrid minigrid.wrappers.ImgObsWrapper), register it, and name its id.",
                )

    def _scale(self, shape: tuple[int, ...]) -> None:
        low = getattr(self.space, "low", np.zeros(shape)).astype(np.float32).ravel()
        high = getattr(self.space, "high", np.ones(shape)).astype(np.float32).ravel()
        bounded = (low > -1e6) & (high < 1e6)
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        self._middle = (low / 2 + high / 2).astype(np.float32)
        self._half = np.maximum(high / 2 - low / 2, 1e-6).astype(np.float32)

    def encode(self, observations: Sequence[Any]) -> Features:
        """Returns features, [how many observations, size].

        Raises:
            WorldError: An observation is not of the space, or holds a number that is not finite.
        """
        try:
            features = self._encode(observations)
        except (IndexError, ValueError, TypeError, KeyError) as error:
            raise WorldError(
                f"The world gave an observation outside its space {self.space}: {error}.",
                "Correct the world, or the observation_space that it declares.",
            ) from error
        if not np.isfinite(features).all():
            raise WorldError(
                "The world gave an observation that is not a finite number.",
                "Correct the world: often a division by zero, or a simulation that left its range.",
            )
        return features

    def _encode(self, observations: Sequence[Any]) -> Features:
        if self._parts:
            return np.concatenate([part._encode([o[key] for o in observations]) for key, part in self._parts], 1)
        values = np.asarray(observations)
        match self.space:
            case spaces.Discrete():
                return _one_hot((values - self.space.start).reshape(-1, 1), self.size)
            case spaces.MultiDiscrete():
                values = values - self.space.start
                if ((values < 0) | (values >= self.space.nvec)).any():
                    raise ValueError(f"a category beyond {self.space.nvec.tolist()}")
                return _one_hot(values + self._first, self.size)
        flat = values.reshape(len(observations), self.size).astype(np.float32)
        return (flat - self._middle) / self._half


def _one_hot(columns: NDArray[Any], size: int) -> Features:
    """Returns ones in these columns, [rows, how many]."""
    if columns.min() < 0:
        raise ValueError("a category below 0")
    features = np.zeros((len(columns), size), np.float32)
    np.put_along_axis(features, columns.astype(np.intp), 1.0, 1)
    return features


class ActionSpace:
    """Actions from the outputs of a network: categories, several at once, or numbers with Gaussian noise.

    Actions are tensors, [..., parts]: indices, or numbers before they are clipped to the space.

    Attributes:
        size: The number of the network's outputs.
        parts: The number of numbers in an action.
        features: The number of features that describe an action to the network at the next step.
        categorical: Whether actions are categories.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        """Raises SpaceError where actions are neither categories nor bounded or unbounded numbers."""
        self.space = space
        self.categorical = not isinstance(space, spaces.Box)
        match space:
            case spaces.Discrete():
                self.choices = [int(space.n)]
            case spaces.MultiDiscrete() if space.nvec.ndim == 1:
                self.choices = [int(n) for n in space.nvec]
            case spaces.MultiBinary() if len(space.shape) == 1:
                self.choices = [2] * space.shape[0]
            case spaces.Box():
                self.choices = []
            case _:
                raise SpaceError(
                    f"A network cannot give actions of the space {space}.",
                    "Wrap the world with gymnasium.wrappers.TransformAction, register it, and name its id.",
                )
        self.parts = len(self.choices) if self.categorical else math.prod(space.shape or (1,))
        self.size = self.features = sum(self.choices) if self.categorical else self.parts

    def sample(self, outputs: Tensor, log_std: Tensor, draw: torch.Generator) -> Tensor:
        """Draws actions from the policy, [..., parts].

        Args:
            outputs: The policy's outputs, [..., size]: logits of all choices, or means.
            log_std: The logarithms of the standard deviations, [size]; of no effect where actions are choices.
            draw: The source of the random numbers.
        """
        if not self.categorical:
            noise = torch.randn(outputs.shape, generator=draw, dtype=outputs.dtype)
            return outputs + log_std.exp() * noise
        noise = -torch.empty_like(outputs).exponential_(generator=draw).log()  # the greatest of logit + Gumbel noise
        return self.best(outputs + noise)

    def best(self, outputs: Tensor) -> Tensor:
        """Returns the likeliest actions, [..., parts]."""
        if not self.categorical:
            return outputs
        if len(self.choices) == 1:
            return outputs.argmax(-1, keepdim=True)
        return torch.stack([part.argmax(-1) for part in outputs.split(self.choices, -1)], -1)

    def judge(self, outputs: Tensor, log_std: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the log-probabilities of actions, and the entropies of the policy; both [...].

        Args:
            outputs: The policy's outputs, [..., size]: logits of all choices, or means.
            log_std: The logarithms of the standard deviations, [size]; of no effect where actions are choices.
            actions: What was done, [..., parts].
        """
        if not self.categorical:
            z = (actions - outputs) / log_std.exp()
            log_prob = (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
            return log_prob, (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).expand_as(log_prob)
        log_probs: list[Tensor] = []
        entropies: list[Tensor] = []
        for part, action in zip(outputs.split(self.choices, -1), actions.unbind(-1), strict=True):
            logs = part.log_softmax(-1)
            log_probs.append(logs.gather(-1, action.unsqueeze(-1)).squeeze(-1))
            entropies.append(-(logs.exp() * logs).sum(-1))
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def describe(self, actions: Tensor) -> Tensor:
        """Returns features of actions for the next step, [..., features]."""
        if not self.categorical:
            return actions.clamp(-10.0, 10.0)
        features = torch.zeros(*actions.shape[:-1], self.features)
        first = torch.tensor([sum(self.choices[:part]) for part in range(self.parts)])
        return features.scatter_(-1, actions + first, 1.0)

    def to_world(self, actions: Tensor) -> list[Any]:
        """Converts actions to those that worlds take."""
        match self.space:
            case spaces.Discrete():
                return [action + int(self.space.start) for action in actions[:, 0].tolist()]
            case spaces.Box():
                shaped = actions.numpy().reshape(-1, *self.space.shape).astype(self.space.dtype)
                return list(np.clip(shaped, self.space.low, self.space.high))
        return list(actions.numpy().astype(np.int64) + getattr(self.space, "start", 0))

    def from_world(self, actions: Sequence[Any]) -> Tensor:
        """Converts actions that worlds take to those of a network, [how many, parts]. It is the inverse of `to_world`."""
        array = np.asarray(actions).reshape(len(actions), self.parts)
        if not self.categorical:
            return torch.from_numpy(array.astype(np.float32))
        return torch.from_numpy(array.astype(np.int64) - np.asarray(getattr(self.space, "start", 0)).reshape(-1))


class BoundedActions(ActionSpace):
    """Numbers within bounds, as off-policy learners give them: the tanh of an output, which worlds take scaled to their bounds.

    Attributes:
        noise: The standard deviation of what is added to an action that is drawn; None for a policy that draws outputs from a
            Gaussian, whose means and logarithms of standard deviations the network gives.
    """

    def __init__(self, space: spaces.Box, noise: float | None) -> None:
        """Raises SpaceError where a number has no bound."""
        super().__init__(space)
        if not space.is_bounded():
            raise SpaceError(
                f"The actions {space} have no bounds, and an off-policy learner gives actions within bounds.",
                "Wrap the world with gymnasium.wrappers.RescaleAction or TransformAction, register it, and name its id.",
            )
        self.noise = noise
        self.size = self.parts * (2 if noise is None else 1)
        low, high = (torch.as_tensor(bound.astype(np.float32).ravel()) for bound in (space.low, space.high))
        self._middle, self._half = (low + high) / 2, ((high - low) / 2).clamp(min=1e-6)

    def draw(self, outputs: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws actions such that gradients reach the outputs; returns them with their log-probabilities, [..., parts] and [...].

        The density of a = tanh(u) is that of u over 1 - tanh(u)^2. Source: Haarnoja et al., arXiv 1801.01290, appendix C.

        Args:
            outputs: Means and logarithms of standard deviations, [..., size].
            draw: The source of the random numbers.
        """
        mean, log_std = outputs.chunk(2, -1)
        log_std = log_std.clamp(-20.0, 2.0)
        z = torch.randn(mean.shape, generator=draw, dtype=mean.dtype)
        raw = mean + log_std.exp() * z
        return raw.tanh(), _log_density(z, log_std, raw)

    def sample(self, outputs: Tensor, log_std: Tensor, draw: torch.Generator) -> Tensor:
        if self.noise is None:
            return self.draw(outputs, draw)[0]
        noise = torch.randn(outputs.shape, generator=draw, dtype=outputs.dtype)
        return (outputs.tanh() + self.noise * noise).clamp(-1.0, 1.0)

    def best(self, outputs: Tensor) -> Tensor:
        return outputs[..., : self.parts].tanh()

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Returns the log-probabilities of actions, [...]; of those at a bound, of what lies just inside.

        Args:
            outputs: Means and logarithms of standard deviations, [..., size].
            actions: What was done, [..., parts].
        """
        mean, log_std = outputs.chunk(2, -1)
        log_std = log_std.clamp(-20.0, 2.0)
        raw = actions.clamp(-0.999, 0.999).atanh()
        return _log_density((raw - mean) / log_std.exp(), log_std, raw)

    def to_world(self, actions: Tensor) -> list[Any]:
        return super().to_world(self._middle + self._half * actions)

    def from_world(self, actions: Sequence[Any]) -> Tensor:
        return ((super().from_world(actions) - self._middle) / self._half).clamp(-1.0, 1.0)


def _log_density(z: Tensor, log_std: Tensor, raw: Tensor) -> Tensor:
    """The log-density of tanh(raw), where raw is z standard deviations from its mean."""
    gaussian = -0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)
    return (gaussian - 2 * (math.log(2) - raw - softplus(-2 * raw))).sum(-1)
