"""Rewards that depend on more than one episode's text: turned into terms of the episodes before they are learned from.

Each function takes finished episodes and returns the same ones with terms added, so that what was trained on is what
is stored. Sources: Fine-Mem, arXiv 2601.08435; Memory-R2, arXiv 2605.21768; Memory-R+, arXiv 2504.02273.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from keepworth.episodes.episode import DecisionKind, Episode, Group, RewardScope, RewardTerm
from keepworth.episodes.errors import KeepworthError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


class NoProvenance(KeepworthError, ValueError):
    """An episode that does not say which of its segments wrote what."""


@dataclass(frozen=True, slots=True)
class MemoryQuestion:
    """A question put to the memory an episode left: its score, and the ids of the items shown to the reader."""

    score: float
    retrieved: tuple[str, ...]


def writers(episode: Episode) -> dict[str, tuple[int, ...]]:
    """Item id -> indices of the segments that wrote or revised it, from the episode's WRITE decisions.

    `Decision.step` is the index of the segment that decided, `Decision.chosen` what it wrote. Raises NoProvenance for
    a step that is no segment.
    """
    found: dict[str, list[int]] = {}
    for decision in episode.decisions:
        if decision.kind is not DecisionKind.WRITE:
            continue
        if not 0 <= decision.step < len(episode.segments):
            raise NoProvenance(
                f"Decision {decision.id!r} of episode {episode.id!r} names step {decision.step}, and the episode has "
                f"{len(episode.segments)} segments.",
                "Record decisions with the index of the segment that made them.",
            )
        for item in decision.chosen:
            steps = found.setdefault(item, [])
            if decision.step not in steps:
                steps.append(decision.step)
    return {item: tuple(steps) for item, steps in found.items()}


def with_attribution(
    episode: Episode,
    asked: Sequence[MemoryQuestion],
    *,
    share: float = 0.5,
    weight: float = 1.0,
    name: str = "attribution",
) -> Episode:
    """The delayed answers' score, given back to the segments that wrote their evidence: one term a segment.

    Where every question is shown at least one item of the episode's own, the terms sum to the mean score. Add the
    score of the answers as a term of weight 0: it is already in these. Source: Fine-Mem, arXiv 2601.08435.
    """
    if not episode.segments:
        raise NoProvenance(f"Episode {episode.id!r} has no segments to credit.", "Leave it out.")
    given = attributed(
        [each.score for each in asked],
        [each.retrieved for each in asked],
        writers(episode),
        len(episode.segments),
        share,
    )
    terms = tuple(
        RewardTerm(name, value, weight, RewardScope.SEGMENT, segment=index) for index, value in enumerate(given)
    )
    return replace(episode, rewards=episode.rewards + terms)


def with_episodic_reward(
    groups: Sequence[Group],
    aid: EpisodicReward,
    encode: Callable[[Sequence[str]], NDArray[np.float64]],
    *,
    weight: float = 1.0,
    name: str = "episodic",
    compared: Callable[[Episode], str] = lambda episode: episode.answer,
) -> list[Group]:
    """Near past successes, away from past failures: a term for every answer, scored before it is remembered.

    encode: texts -> vectors [n, D]; compared: what of an episode is, its answer or another text. What counts as a
    success is the episode's reward so far. `aid` changes: it must be in the checkpoint. Source: Memory-R+, arXiv 2504.02273.
    """
    found = []
    for group in groups:
        vectors = encode([group.episodes[0].question, *map(compared, group.episodes)])
        outcomes = [episode.reward for episode in group.episodes]
        values = aid.score_group(vectors[0], vectors[1:], outcomes)
        episodes = tuple(
            replace(episode, rewards=(*episode.rewards, RewardTerm(name, value, weight, shaping=True)))
            for episode, value in zip(group.episodes, values, strict=True)
        )
        found.append(replace(group, episodes=episodes))
    return found


# Attribution: one delayed question-answering reward, given back to the steps that wrote the evidence. Plain numbers.
#
# Source: Fine-Mem, arXiv 2601.08435 (evidence-anchored reward attribution; known from secondary descriptions).


def attributed(
    scores: Sequence[float],
    retrieved: Sequence[Sequence[str]],
    writers: Mapping[str, Sequence[int]],
    steps: int,
    share: float = 0.5,
) -> list[float]:
    """Reward of each of `steps` steps: (1 - share) * mean(scores) / steps + share * N_t.

    N_t = sum over questions j and items m retrieved for j of scores[j] / (|retrieved[j]| n), for the items that step t
    wrote. scores [n]: each question's score; retrieved [n]: item ids shown to the reader; writers: item id -> the steps
    that wrote or revised it, among whom its part is split evenly (the paper credits the last alone). An item without
    writers was there before the episode and credits no one. share is the paper's beta: 0 spreads the reward evenly.

    If every question retrieves at least one item, all written in the episode, the rewards sum to mean(scores).
    """
    if len(scores) != len(retrieved):
        raise ValueError(f"attributed: {len(scores)} scores but {len(retrieved)} retrieved sets")
    if steps < 1 or not scores:
        raise ValueError(f"attributed: needs at least one step and one question, got {steps} and {len(scores)}")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"attributed: share={share} is outside [0, 1]")
    count = len(scores)
    evidence = [0.0] * steps
    for score, items in zip(scores, retrieved, strict=True):
        for item in items:
            wrote = writers.get(item, ())
            for step in wrote:
                if not 0 <= step < steps:
                    raise ValueError(f"attributed: item {item!r} names step {step}, outside 0..{steps - 1}")
                evidence[step] += score / (len(items) * count * len(wrote))
    even = (1 - share) * (sum(scores) / count) / steps
    return [even + share * part for part in evidence]


# EpisodicReward: be near past successes, away from past failures, for models too small to be explored by reward alone.
#
# Source: Reasoning Under 1 Billion (Memory-R+), arXiv 2504.02273. A device of training only: nothing is retrieved when
# the model answers. Differences from the released script: answers are scored before they are remembered (else a wrong
# answer always meets itself and is never novel); a window of equal values gives 0.5 (else the raw distance leaks out).


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
