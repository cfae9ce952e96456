"""Adaptive Memory Allocator: a contextual bandit learns from reward which eviction rule manages a full memory (Cho et al.,
"Spatially-aware transformers for embodied agents", arXiv 2402.15160).

An agent walks through a house and sees objects in rooms, which change. A memory holds at most `capacity` sights; its rule chooses
which one to drop. A sentence, known from the start, says what will be asked at the end. The dropped sight is, by rule:

    fifo: the oldest;  lifo: the newest;  mvfo: the oldest of the most visited room;  lvfo: of the least visited

Q(goal, rule) is a linear function of the sentence's embedding, trained towards the reward of the chosen rule: w_rule <- w_rule +
rate (r - w_rule . goal) goal, epsilon-greedily, one rule for a whole episode. There are four streams, each with a kind of
question that suits another rule; test sentences have other wordings than training sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.evaluation.study import Rows, Study, rows_of
from keepworth.registry import Method, part

RULES = ("fifo", "lifo", "mvfo", "lvfo")
ROOMS, STEPS, ASKED, CAPACITY, RATE = 9, 60, 6, 12, 0.5
GOALS: Mapping[str, Sequence[str]] = {
    "recent": (
        "Which sights are the newest?",
        "What did you look at just now?",
        "Which objects did you see last?",
        "Name the most recent things on your way.",
        "What have you come across in the past few minutes?",
        "Tell me about the latest sights.",
    ),
    "early": (
        "Which sights are the oldest?",
        "What did you look at in the very beginning?",
        "Which objects did you see first?",
        "Name the things at the beginning of your walk.",
        "What was there when you started?",
        "Tell me about your very first sights.",
    ),
    "rare": (
        "Which sights are of rooms with the fewest visits?",
        "What did you see in places that you seldom enter?",
        "What stood in the rooms that you hardly ever visited?",
        "Name objects of rarely seen places.",
        "What is in the rooms where you almost never go?",
        "Tell me about the corners of the house that are seldom entered.",
    ),
    "often": (
        "Which sights are of the room with the most visits?",
        "What did you see in the place that you enter all the time?",
        "What stood in the room that you visited most often?",
        "Name all the objects of your favourite place.",
        "What has been in the room where you always go?",
        "Tell me about the busiest room of the house.",
    ),
}
"""Wordings of each kind of question."""
TRAINING, TEST = slice(0, 4), slice(4, 6)
"""The wordings for training, and those for testing."""


def evict(rule: str, rooms: Sequence[int], capacity: int) -> list[int]:
    """Returns the times of the sights that a memory holds after a walk.

    Args:
        rule: One of `RULES`.
        rooms: The room of each step.
        capacity: How many sights it holds.
    """
    memory: list[int] = []
    visits = np.zeros(ROOMS)
    for time, room in enumerate(rooms):
        visits[room] += 1
        if len(memory) == capacity:
            if rule in ("fifo", "lifo"):
                memory.pop(0 if rule == "fifo" else -1)
            else:
                sign = 1.0 if rule == "mvfo" else -1.0
                memory.remove(max(memory, key=lambda sight: (sign * visits[rooms[sight]], -sight)))
        memory.append(time)
    return memory


def draw_walk(draw: np.random.Generator) -> list[int]:
    """Returns the room of each step. The frequency of a room falls with its rank, which is drawn for each walk."""
    odds = draw.permutation(1.0 / np.arange(1, ROOMS + 1))
    return list(map(int, draw.choice(ROOMS, size=STEPS, p=odds / odds.sum())))


def asked_times(kind: str, rooms: Sequence[int]) -> list[int]:
    """Returns the times of the sights that a question is about."""
    if kind in ("recent", "early"):
        return list(range(STEPS))[-ASKED:] if kind == "recent" else list(range(ASKED))
    visits = np.bincount(rooms, minlength=ROOMS)
    if kind == "often":
        room = int(visits.argmax())
        return [time for time, at in enumerate(rooms) if at == room][-ASKED:]
    rarest = [int(room) for room in np.argsort(visits, kind="stable") if visits[room]][:2]
    return [time for time, at in enumerate(rooms) if at in rarest][-ASKED:]


def reward(rule: str, kind: str, rooms: Sequence[int]) -> float:
    """Returns the share of the requested sights that the memory still holds.

    Args:
        rule: The name of the rule by which the memory evicts.
        kind: The kind of episode, which decides what is requested.
        rooms: The room of each sight, in order of time.
    """
    memory = set(evict(rule, rooms, CAPACITY))
    return float(np.mean([time in memory for time in asked_times(kind, rooms)]))


def learn_rules(
    goals: Floats, rewards: Floats, draw: np.random.Generator, rate: float, epsilon: tuple[float, float]
) -> Floats:
    """Returns the weights of Q, [rules, features].

    Args:
        goals: Embeddings of the goals, [episodes, features], each of length 1.
        rewards: The reward of each rule, [episodes, rules]; the learner sees that of the chosen rule only.
        draw: Generator of exploration.
        rate: Step size of the regression.
        epsilon: Share of random rules, at the first episode and at the last.
    """
    weights = np.zeros((len(RULES), goals.shape[1]))
    for goal, earned, explore in zip(goals, rewards, np.linspace(*epsilon, len(goals)), strict=True):
        chosen = int(draw.integers(len(RULES))) if draw.random() < explore else int((weights @ goal).argmax())
        weights[chosen] += rate * (earned[chosen] - weights[chosen] @ goal) * goal
    return weights


def run(*, episodes: int = 1000, test: int = 200, seeds: int = 20, encoder: str = "minilm") -> Rows:
    """Measures recall of every rule, of the allocator and of its controls, on each stream and on all together.

    Args:
        episodes: Walks for training.
        test: Walks for testing, for each seed.
        seeds: Number of seeds.
        encoder: Encoder of the goals.
    """
    kinds = tuple(GOALS)
    embed = part("encoder")(encoder).encode
    words = {kind: np.asarray(embed(list(texts)), dtype=np.float64) for kind, texts in GOALS.items()}
    arms: dict[str, list[float]] = {}
    clusters: dict[str, list[str]] = {}
    for seed in range(seeds):
        draw = np.random.default_rng([11, seed])

        def play(count: int, wordings: slice, draw: np.random.Generator = draw) -> tuple[list[str], Floats, Floats]:
            goal_kinds = [kinds[at] for at in draw.integers(len(kinds), size=count)]
            goals = np.stack([draw.choice(words[kind][wordings]) for kind in goal_kinds])
            walks = [draw_walk(draw) for _ in goal_kinds]
            asked = zip(goal_kinds, walks, strict=True)
            return goal_kinds, goals, np.array([[reward(rule, *of) for rule in RULES] for of in asked])

        _, goals, earned = play(episodes, TRAINING)
        goal_kinds, tested, of_rules = play(test, TEST)
        permuted = earned[draw.permutation(len(earned))]
        chosen = {
            "allocator": learn_rules(goals, earned, draw, RATE, (1.0, 0.05)),
            "allocator, rewards permuted": learn_rules(goals, permuted, draw, RATE, (1.0, 0.05)),
            "allocator that sees no goal": learn_rules(np.ones((episodes, 1)), earned, draw, RATE / 10, (1.0, 0.05)),
        }
        scores = {rule: of_rules[:, at] for at, rule in enumerate(RULES)}
        for name, weights in chosen.items():
            inputs = tested if weights.shape[1] > 1 else np.ones((test, 1))
            scores[name] = of_rules[np.arange(test), (inputs @ weights.T).argmax(1)]
        scores["chance"] = of_rules.mean(1)
        best = {kind: of_rules[np.array(goal_kinds) == kind].mean(0).argmax() for kind in set(goal_kinds)}
        scores["best rule of each stream"] = of_rules[np.arange(test), [best[kind] for kind in goal_kinds]]
        for name, values in scores.items():
            for kind in ("all", *kinds):
                there = np.ones(test, dtype=bool) if kind == "all" else np.array(goal_kinds) == kind
                arm = f"{name} on {kind}"
                arms.setdefault(arm, []).extend(map(float, values[there]))
                clusters.setdefault(arm, []).extend([str(seed)] * int(there.sum()))
    return [row for arm, values in arms.items() for row in rows_of({arm: values}, clusters[arm])]


METHOD = Method(
    kind="study",
    name="ama",
    title="Adaptive Memory Allocator",
    paper="arXiv 2402.15160",
    about="A bandit learns which rule of eviction manages a memory, from what will be asked",
    tags=("token", "experiential", "evolution"),
    claim="With its allocator a memory recalls as well as with the best fixed rule of each task.",
    differs=(
        "The memory is of sights in a made house, the goal is a sentence, and Q is linear, without a transformer."
    ),
    label="analogue",
    make=Study(run, "share of what is asked for that the memory still holds"),
)
