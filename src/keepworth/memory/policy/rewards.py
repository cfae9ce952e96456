"""Rewards: what one counts. How much time passes with it, and how much of a memory that several people use one of them may
have."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from numbers import Real

from keepworth.memory.errors import InvalidReward
from keepworth.memory.operations import LARGEST_REWARD

WINDOW = 40
SHARE = 2.0


class EpisodeClock:
    """now: the time, in episodes. People are told apart by name; "" is the program itself, which is never held back.

    Evidence fades with time, so whoever makes time pass makes others forgotten. Time passes with episodes, and an episode counts
    less the more of the latest ones are the same person's: nobody has more than `SHARE` times what a person has on average.
    """

    def __init__(self) -> None:
        self._passed = 0.0
        self._people: set[str] = set()
        self._latest: deque[str] = deque(maxlen=WINDOW)

    @property
    def now(self) -> int:
        return int(self._passed + 1e-9)

    def share(self, by: str = "") -> float:
        """How much an episode that ends now on the word of `by` counts, in (0, 1]. Called once for each."""
        self._people.add(by)
        self._latest.append(by)
        return min(1.0, SHARE * WINDOW / (len(self._people) * self._latest.count(by))) if by else 1.0

    def go_on(self, share: float) -> None:
        self._passed += share


def check_range(reward_range: tuple[float, float]) -> None:
    """Raise InvalidReward for a range that holds no rewards."""
    pair = isinstance(reward_range, Sequence) and len(reward_range) == 2
    if not (pair and all(_is_finite(end) for end in reward_range) and reward_range[0] < reward_range[1]):
        raise InvalidReward(
            f"the reward range {reward_range!r:.60} holds no rewards.", "Give (lowest, highest), both finite."
        )


def _is_finite(number: object) -> bool:
    try:
        return isinstance(number, Real) and abs(float(number)) <= LARGEST_REWARD
    except OverflowError:
        return False
