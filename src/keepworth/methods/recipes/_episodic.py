"""Two memories of a training, for its successes and its failures, and the reward from them (Memory-R+, arXiv 2504.02273).

Answers are scored before they are stored, since otherwise a wrong answer would be compared with itself and never be novel; a
window of equal values gives 0.5 instead of the raw distance. Both differ from the released script.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from keepworth.base.arrays import Floats as Vector
from keepworth.records import Episode, Group, RewardTerm
from keepworth.training.collect.sources import Source


@dataclass(slots=True)
class NeighbourMemory:
    """Stores responses per query: at most `queries` of them, the oldest leaving first, and `responses` for each."""

    queries: int
    responses: int
    entries: OrderedDict[bytes, tuple[Vector, deque[Vector]]] = field(default_factory=OrderedDict)

    def insert(self, query: Vector, response: Vector) -> None:
        key = query.tobytes()
        if key not in self.entries:
            self.entries[key] = (query, deque(maxlen=self.responses))
            if len(self.entries) > self.queries:
                self.entries.popitem(last=False)
        self.entries[key][1].append(response)

    def near(self, query: Vector, neighbours: int) -> Vector | None:
        """Returns [n, D]: the responses of the `neighbours` queries of highest cosine; None from an empty memory."""
        if not self.entries:
            return None
        stored = list(self.entries.values())
        similarity = np.stack([_unit(other) for other, _ in stored]) @ _unit(query)
        best = np.argsort(-similarity, kind="stable")[:neighbours]
        return np.stack([response for index in best for response in stored[index][1]])


@dataclass(slots=True)
class EpisodicReward:
    """Rewards exploit + explore, with exploit = -|a - centroid of near successes| and explore = 1 - max cosine to near failures,
    each scaled by the minimum and maximum of its last `window` raw values.

    explore counts after `warmup` scored groups. An empty memory gives 0 for its part. The defaults are the paper's for GSM8K
    (responses 100, window 100, one neighbour, warm-up about 50 steps); queries is the size of its dataset.
    """

    queries: int = 10_000
    responses: int = 100
    window: int = 100
    neighbours: int = 1
    warmup: int = 50
    success_above: float = 0.5
    scored: int = 0
    successes: NeighbourMemory = field(init=False)
    failures: NeighbourMemory = field(init=False)
    exploit_window: deque[float] = field(init=False)
    explore_window: deque[float] = field(init=False)

    def __post_init__(self) -> None:
        self.successes = NeighbourMemory(self.queries, self.responses)
        self.failures = NeighbourMemory(self.queries, self.responses)
        self.exploit_window, self.explore_window = deque(maxlen=self.window), deque(maxlen=self.window)

    def raw(self, query: Vector, response: Vector) -> tuple[float | None, float | None]:
        """Returns (exploit, explore) before scaling, None from an empty memory, and stores nothing."""
        right = self.successes.near(query, self.neighbours)
        wrong = self.failures.near(query, self.neighbours)
        exploit = None if right is None else -float(np.linalg.norm(response - right.mean(0)))
        explore = None if wrong is None else 1 - float((_units(wrong) @ _unit(response)).max())
        return exploit, explore

    def score_group(self, query: Vector, responses: Vector, outcomes: Sequence[float]) -> list[float]:
        """Returns the intrinsic reward of each answer of a group, then stores the answers by their outcome.

        query [D], responses [G, D]: encoder vectors of the question and of the answers' reasoning; outcomes [G].
        """
        query, responses = np.asarray(query, dtype=np.float64), np.asarray(responses, dtype=np.float64)
        rewards = []
        for response in responses:
            exploit, explore = self.raw(query, response)
            reward = 0.0 if exploit is None else scaled_in(self.exploit_window, exploit)
            if explore is not None and self.scored >= self.warmup:
                reward += scaled_in(self.explore_window, explore)
            rewards.append(reward)
        for response, outcome in zip(responses, outcomes, strict=True):
            (self.successes if outcome > self.success_above else self.failures).insert(query, response)
        self.scored += 1
        return rewards

    def state(self) -> dict[str, Any]:
        """Returns the state for a checkpoint, as plain lists."""
        memories = {
            name: [(query.tolist(), [r.tolist() for r in responses]) for query, responses in memory.entries.values()]
            for name, memory in (("successes", self.successes), ("failures", self.failures))
        }
        windows = {"exploit_window": list(self.exploit_window), "explore_window": list(self.explore_window)}
        return {"scored": self.scored, **windows, **memories}

    def restore(self, state: dict[str, Any]) -> None:
        self.__post_init__()
        self.scored = state["scored"]
        self.exploit_window.extend(state["exploit_window"])
        self.explore_window.extend(state["explore_window"])
        for memory, name in ((self.successes, "successes"), (self.failures, "failures")):
            for query, responses in state[name]:
                for response in responses:
                    memory.insert(np.asarray(query, dtype=np.float64), np.asarray(response, dtype=np.float64))


def scaled_in(window: deque[float], value: float) -> float:
    """Adds `value` to the window, and returns its position between the minimum and maximum; 0.5 where they are equal."""
    window.append(value)
    low, high = min(window), max(window)
    return 0.5 if high - low <= 1e-12 else (value - low) / (high - low)


def _unit(vector: Vector) -> Vector:
    result: Vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return result


def _units(matrix: Vector) -> Vector:
    result: Vector = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return result


class RememberedEpisodes(Source):
    """Uses an `EpisodicReward` in a training: every sampled episode gets the term `episodic`, and is then stored.

    Args:
        encode: Texts to vectors [n, D].
        compared: Returns the text of an episode to compare, such as its answer or the bank that it left.
    """

    name, replays = "episodic", False

    def __init__(
        self,
        reward: EpisodicReward,
        encode: Callable[[Sequence[str]], Vector],
        compared: Callable[[Episode], str] = lambda episode: episode.answer,
        weight: float = 1.0,
    ) -> None:
        self.reward, self._encode, self._compared, self._weight = reward, encode, compared, weight

    def review(self, groups: Sequence[Group], step: int = 0) -> list[Group]:
        """Returns the groups with the term, scored before they are stored. An episode is a success if its other terms give more
        than `success_above`."""
        return [self._score(group) for group in groups]

    def _score(self, group: Group) -> Group:
        vectors = self._encode([group.episodes[0].question, *map(self._compared, group.episodes)])
        values = self.reward.score_group(vectors[0], vectors[1:], [episode.reward for episode in group.episodes])
        episodes = tuple(
            replace(episode, rewards=(*episode.rewards, RewardTerm("episodic", value, self._weight, shaping=True)))
            for episode, value in zip(group.episodes, values, strict=True)
        )
        return replace(group, episodes=episodes)

    def keep(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """Returns the numbers of stored responses."""
        kinds = {"successes": self.reward.successes, "failures": self.reward.failures}
        return {
            f"episodic/{name}": float(sum(len(responses) for _, responses in memory.entries.values()))
            for name, memory in kinds.items()
        }

    def state(self) -> dict[str, Any]:
        return self.reward.state()

    def load(self, state: dict[str, Any]) -> None:
        self.reward.restore(state)
