"""EpisodicReward: be near past successes, away from past failures, for models too small to be explored by reward alone.

Source: Reasoning Under 1 Billion (Memory-R+), arXiv 2504.02273. A device of training only: nothing is retrieved when
the model answers. Differences from the released script: answers are scored before they are remembered (else a wrong
answer always meets itself and is never novel); a window of equal values gives 0.5 (else the raw distance leaks out).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


@dataclass(slots=True)
class NeighbourMemory:
    """Responses seen per query: at most `queries` of them, the oldest leaving first, and `responses` for each."""

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
        """[n, D]: the responses of the `neighbours` queries most alike by cosine; None from an empty memory."""
        import numpy as np

        if not self.entries:
            return None
        stored = list(self.entries.values())
        similarity = np.stack([_unit(other) for other, _ in stored]) @ _unit(query)
        best = np.argsort(-similarity, kind="stable")[:neighbours]
        return np.stack([response for index in best for response in stored[index][1]])


@dataclass(slots=True)
class EpisodicReward:
    """exploit = -|a - centroid of near successes|, explore = 1 - max cosine to near failures; each is scaled by the
    minimum and maximum of its last `window` raw values and the two are added.

    explore counts after `warmup` scored groups. An empty memory gives 0 for its part. The defaults are the paper's for
    GSM8K (responses 100, window 100, one neighbour, warm-up about 50 steps); queries is the size of its dataset.
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
        """(exploit, explore) before scaling, None from an empty memory; remembers nothing."""
        import numpy as np

        right = self.successes.near(query, self.neighbours)
        wrong = self.failures.near(query, self.neighbours)
        exploit = None if right is None else -float(np.linalg.norm(response - right.mean(0)))
        explore = None if wrong is None else 1 - float((_units(wrong) @ _unit(response)).max())
        return exploit, explore

    def score_group(self, query: Vector, responses: Vector, outcomes: Sequence[float]) -> list[float]:
        """Intrinsic reward of each answer of a group, then the answers are remembered by their outcome.

        query [D], responses [G, D]: encoder vectors of the question and of the answers' reasoning; outcomes [G].
        """
        import numpy as np

        if len(responses) != len(outcomes):
            raise ValueError(f"score_group: {len(responses)} responses but {len(outcomes)} outcomes")
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
        """Everything a checkpoint must keep, as plain lists."""
        memories = {
            name: [(query.tolist(), [r.tolist() for r in responses]) for query, responses in memory.entries.values()]
            for name, memory in (("successes", self.successes), ("failures", self.failures))
        }
        windows = {"exploit_window": list(self.exploit_window), "explore_window": list(self.explore_window)}
        return {"scored": self.scored, **windows, **memories}

    def restore(self, state: dict[str, Any]) -> None:
        import numpy as np

        self.__post_init__()
        self.scored = state["scored"]
        self.exploit_window.extend(state["exploit_window"])
        self.explore_window.extend(state["explore_window"])
        for memory, name in ((self.successes, "successes"), (self.failures, "failures")):
            for query, responses in state[name]:
                for response in responses:
                    memory.insert(np.asarray(query, dtype=np.float64), np.asarray(response, dtype=np.float64))


def scaled_in(window: deque[float], value: float) -> float:
    """value added to the window, then placed between its minimum and maximum; 0.5 where they are equal."""
    window.append(value)
    low, high = min(window), max(window)
    return 0.5 if high - low <= 1e-12 else (value - low) / (high - low)


def _unit(vector: Vector) -> Vector:
    import numpy as np

    result: Vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return result


def _units(matrix: Vector) -> Vector:
    import numpy as np

    result: Vector = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return result
