"""Worlds with a dial for the distance over which they test memory, and what a result on a world shows about memory.

K, the context, is how many of the last inputs a network takes at once: 1 for a recurrence. xi, the correlation horizon, is the
distance between an event and the step that needs it, both counted: xi = t_recall - t_event + 1. Success where xi <= K needs only
short-term memory, success where xi > K needs long-term memory. Where some xi are below K and others above, success cannot be
attributed. A memory whose state has a limited reach cannot succeed beyond it.
Source: Cherepanov et al., "Unraveling the complexity of memory in RL agents", arXiv 2412.06531, which has the horizons below."""

from __future__ import annotations

from typing import Any

from keepworth.base.needs import needs_control

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

SYMBOLS = 4
RUNGS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""The xi of the worlds "keepworth/Cue2-v0" to "keepworth/Cue1024-v0"."""
CUE, BETWEEN, QUESTION = range(3)
HORIZONS = {
    "RepeatPreviousEasy": (5, 5),
    "RepeatPreviousMedium": (33, 33),
    "RepeatPreviousHard": (65, 65),
    "AutoencodeEasy": (2, 104),
    "AutoencodeMedium": (2, 208),
    "AutoencodeHard": (2, 312),
}
"""Maps worlds of POPGym to their least and greatest xi."""


class Cue(gymnasium.Env[NDArray[np.int64], Any]):
    """A world whose first observation shows a symbol, which has to be named xi - 1 steps later; those between are random.

    An observation is a symbol, and whether it is the cue, between, or shown with the question. The answer pays 1 if it is right
    and ends the episode; no other step pays. xi is the same in every episode: where it varies, success cannot be attributed."""

    observation_space = spaces.MultiDiscrete([SYMBOLS, 3])
    action_space = spaces.Discrete(SYMBOLS)

    def __init__(self, xi: int = 8) -> None:
        self.xi = xi

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Shows the cue."""
        super().reset(seed=seed)
        self.symbol, self.time = int(self.np_random.integers(SYMBOLS)), 1
        return np.array([self.symbol, CUE]), {}

    def step(self, action: int) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:
        """Shows the next of xi observations, or ends after the last."""
        over = self.time == self.xi
        self.time += 1
        shown = np.array([self.np_random.integers(SYMBOLS), QUESTION if self.time >= self.xi else BETWEEN])
        return shown, float(over and action == self.symbol), over, False, {}


for rung in RUNGS:
    gymnasium.register(f"keepworth/Cue{rung}-v0", entry_point=f"{__name__}:Cue", kwargs={"xi": rung})


def horizons(world: str) -> tuple[int, int] | None:
    """Returns the least and the greatest xi of a world by its Gymnasium id; None where they are not known."""
    if world in gymnasium.registry and "xi" in gymnasium.registry[world].kwargs:
        xi = int(gymnasium.registry[world].kwargs["xi"])
        return xi, xi
    return HORIZONS.get(world.removeprefix("popgym-").rpartition("-v")[0])


def regime(context: int, reach: int | None, xi: tuple[int, int]) -> str:
    """Returns what success would show: "short-term" memory, "long-term" memory, "mixed", or nothing: "out of reach".

    Args:
        context: K of the memory.
        reach: How many inputs its state can reach back; None without bound.
        xi: The least and the greatest horizon of the world.
    """
    if reach is not None and xi[1] > reach:
        return "out of reach"
    if xi[1] <= context:
        return "short-term"
    return "long-term" if xi[0] > context else "mixed"
