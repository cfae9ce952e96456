"""Rewards: what one counts. How much time passes with it, how much of a memory that several people use one of them may have, and
how far somebody is believed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.errors import InvalidReward
from keepworth.memory.operations import checked_reward

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats

WINDOW = 40
SHARE = 2.0
TRUST, MOST_TRUST = 2.0, 4.0
"""The log-odds with which a rewarder is believed at first, and at most."""
FORGIVES = 0.05
"""Share of what speaks for or against a person that the person's next reward takes back, where other people are the measure: some
noise in what a few of them said costs nobody belief, and whoever contradicts them in one reward of five is out after twenty."""


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
        """Return how much an episode that ends now counts if `by` rewarded it, in (0, 1]. Call it once for each episode."""
        self._people.add(by)
        self._latest.append(by)
        return min(1.0, SHARE * WINDOW / (len(self._people) * self._latest.count(by))) if by else 1.0

    def go_on(self, share: float) -> None:
        self._passed += share

    def save(self) -> list[Any]:
        """Return the time and what it depends on, as JSON has it."""
        return [self._passed, sorted(self._people), list(self._latest)]

    def load(self, state: Sequence[Any]) -> None:
        """Restore what `save` returned."""
        self._passed, people, latest = state
        self._people, self._latest = set(people), deque(latest, maxlen=WINDOW)


class Trust:
    """How far rewards count, on the word of whom they stand: who contradicts again and again what others' rewards say is believed
    less, and nobody less because everybody is surprised. The program's own rewards count fully.

    What a single person said is no measure of others, however often it was said and whoever came first: an agreement or a
    contradiction counts by the share of others' rewards that come from more than the one who gave most of them.

    doubts: of each rewarder, the log-odds of being believed; standing: the same as other people see it; numbers: of who rewards,
    the program itself first; spoken: by number, how much each of them said."""

    def __init__(self) -> None:
        self.doubts: dict[str, float] = {}
        self.standing: dict[str, float] = {}
        self.numbers = {"": 0}
        self.spoken = np.zeros(64)
        self._beliefs: Floats | None = None

    def number(self, by: str) -> int:
        """Return the number of a rewarder; a new rewarder gets the next one."""
        number = self.numbers.setdefault(by, len(self.numbers))
        if number == len(self.spoken):
            self.spoken = np.pad(self.spoken, (0, number))
        if self._beliefs is not None and number == len(self._beliefs):
            self._beliefs = None
        return number

    def judge(self, by: str, expected: float, reward: float, usual: float) -> float:
        """Return how far a reward counts.

        Args:
            by: The person who gave it; "" for the program itself, which always counts.
            expected: The reward that was expected there, from 0 to 1.
            reward: The reward itself, from 0 to 1.
            usual: The mean of all rewards, from 0 to 1.
        """
        if not by:
            return 1.0
        several, gain = self._compare(by, expected, reward, usual)
        doubt = (1.0 - 0.01 * several) * self.doubts.get(by, TRUST) + several * gain
        self.doubts[by] = min(MOST_TRUST, max(-MOST_TRUST, doubt))
        return self.believed(by)

    def contradict(self, by: str, expected: float, reward: float, usual: float) -> None:
        """Note how far what others said of the same speaks for a person's reward, or against it.

        The measure is a coin or the mean of all rewards, whichever makes the reward the likelier. By that mean alone, a failure
        that nobody else saw would say next to nothing of a person where most rewards are successes; by a coin alone, a person
        who praises what is good anyway would earn the belief with which he then praises his own.

        Args:
            by: The person who gave it.
            expected: The reward that others lead to expect there, from 0 to 1.
            reward: The reward itself, from 0 to 1.
            usual: The mean of all rewards, from 0 to 1.
        """
        measure = max(0.5, usual) if reward > 0.5 else min(0.5, usual)
        several, gain = self._compare(by, expected, reward, measure)
        standing = TRUST + (1.0 - FORGIVES * several) * (self.standing.get(by, TRUST) - TRUST) + several * gain
        self.standing[by], self._beliefs = min(MOST_TRUST, max(-MOST_TRUST, standing)), None

    def _compare(self, by: str, expected: float, reward: float, usual: float) -> tuple[float, float]:
        """Return the share of others' rewards that come from more than the loudest of them, and how much likelier a reward is by
        what was expected than by what is usual, as a logarithm."""
        spoken = self.spoken[: len(self.numbers)].copy()
        if by in self.numbers:
            spoken[self.numbers[by]] = 0.0
        of_others, loudest = float(spoken.sum()), float(spoken[1:].max(initial=0.0))
        several = (of_others - loudest) / of_others if of_others > 0.0 else 0.0
        gain = reward * math.log(expected / usual) + (1.0 - reward) * math.log((1.0 - expected) / (1.0 - usual))
        return several, gain

    def believed(self, by: str) -> float:
        """Return how far a reward of this person counts at present; 1 for a person who was not judged yet."""
        if by not in self.doubts:
            return 1.0
        return _chance(self.doubts[by]) / _chance(max(self.doubts.values()))

    @property
    def beliefs(self) -> Floats:
        """How far the rewards of each person, by number, count for others at present: by what others said of the same."""
        if self._beliefs is None:
            most = _chance(max(self.standing.values(), default=math.inf))
            chances = [_chance(self.standing.get(by, math.inf)) for by in self.numbers]
            self._beliefs = np.array([min(1.0, chance / most) for chance in chances])
        return self._beliefs


def _chance(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-log_odds))


def check_range(reward_range: tuple[float, float]) -> None:
    """Raise InvalidReward for a range that holds no rewards."""
    try:
        low, high = map(checked_reward, reward_range) if isinstance(reward_range, Sequence) else (0.0, 0.0)
        sound = low < high
    except ValueError:  # there are not two, or one is no number that a reward can be
        sound = False
    if not sound:
        raise InvalidReward(
            f"the reward range {reward_range!r:.60} holds no rewards.", "Give (lowest, highest), both finite."
        )
