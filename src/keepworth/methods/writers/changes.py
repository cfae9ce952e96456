"""What a new fact does to what is known: a small policy that says ADD, UPDATE n, DELETE n or NOOP, learned from reward.

It looks at pairs of the new fact and an entry, how alike they are and how the new fact is worded, and knows no word by heart:
that "no longer" takes something back it has to find out. For each entry a network of one hidden layer gives three numbers, of
putting the fact in its place, of giving it up, and of letting the fact pass because the entry says it; ADD has the number 0. A
softmax over all of them is the policy, so that its probability is known and reward can reach it (REINFORCE, Williams 1992).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from keepworth.episodes.model import Encoder
from keepworth.memory.policy.slots import Writer
from keepworth.registry import Method
from keepworth.tasks.metrics import tokens

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.agents.manager import ManagerState

    Floats = npt.NDArray[np.float64]

VERBS = ("UPDATE", "DELETE", "NOOP")
"""What may be done because of an entry, in the order of the network's outputs."""
PAIR_FEATURES = ("constant", "cosine", "shared words", "shared names", "shared numbers")
_NAME, _NUMBER = re.compile(r"\b[A-Z][a-z]+\b"), re.compile(r"[0-9]+")


def _share(one: set[str], other: set[str]) -> float:
    """Of two sets what they share (Jaccard); 0 where both are empty."""
    return len(one & other) / len(one | other) if one | other else 0.0


def pair_features(texts: Sequence[str], vectors: Floats, cues: Floats) -> Floats:
    """[n, n, len(PAIR_FEATURES) + k]: of each text as the new fact beside each other as an entry.

    vectors: [n, dimension], of unit length; cues: [dimension, k], directions in which the wording of the new fact is told
    (`principal`). All are scaled so that they vary by about 1. Nothing but the two texts is looked at, so what a policy learned
    from streams is what it does in use."""
    worded, cosine = vectors @ cues, vectors @ vectors.T
    words = [set(tokens(text.replace("'s", ""))) for text in texts]
    names, numbers = ([set(pattern.findall(text)) for text in texts] for pattern in (_NAME, _NUMBER))
    made = np.ones((len(texts), len(texts), len(PAIR_FEATURES) + cues.shape[1]))
    made[:, :, 1] = 5.0 * (cosine - 0.5)
    for place, own in enumerate((words, names, numbers)):
        made[:, :, 2 + place] = [[4.0 * _share(one, other) for other in own] for one in own]
    made[:, :, len(PAIR_FEATURES) :] = worded[:, None]
    return made


def principal(vectors: Floats, count: int) -> Floats:
    """[dimension, count]: the directions in which vectors [n, dimension] differ most, scaled so that each varies by 1."""
    _, sizes, directions = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    return np.asarray(directions[:count].T * (len(vectors) ** 0.5 / sizes[:count]))


@dataclass(frozen=True, slots=True)
class Played:
    """One stream played. lines: what was said of each fact; numbers: of the facts in the bank after the last one; chosen: per
    fact the numbers in the bank before it, the place of what was drawn (0: ADD; 1 + 3 entry + verb), and the probabilities."""

    lines: tuple[str, ...]
    numbers: tuple[int, ...]
    chosen: tuple[tuple[tuple[int, ...], int, Floats], ...]


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """inner: [d, h]; outer: [h + 1, 3], its last row the bias. `start` makes one."""

    inner: Floats
    outer: Floats

    @classmethod
    def start(cls, dimension: int, seed: int, *, hidden: int = 16, shy: float = 3.0) -> ChangePolicy:
        """One that mostly adds: of ADD and any other choice, ADD is e^shy times as likely."""
        draw = np.random.default_rng(seed)
        outer = np.concatenate([draw.normal(0.0, 0.1, (hidden, 3)), np.full((1, 3), -shy)])
        return cls(draw.normal(0.0, dimension**-0.5, (dimension, hidden)), outer)

    @property
    def parameters(self) -> int:
        return self.inner.size + self.outer.size

    def logits(self, features: Floats) -> Floats:
        """[..., d] to [..., 3]."""
        return np.asarray(np.tanh(features @ self.inner) @ self.outer[:-1] + self.outer[-1])

    def slope(self, features: Floats, by_logits: Floats) -> ChangePolicy:
        """The derivative by its numbers of a value whose derivative by `logits(features)` is `by_logits`: [m, d] and [m, 3]."""
        hidden = np.tanh(features @ self.inner)
        outer = np.concatenate([hidden.T @ by_logits, by_logits.sum(axis=0, keepdims=True)])
        return ChangePolicy(features.T @ ((by_logits @ self.outer[:-1].T) * (1.0 - hidden**2)), outer)

    def play(self, features: Floats, generator: np.random.Generator | None = None) -> Played:
        """A whole stream, from its pair features [n, n, d], against a bank with room for all of it; drawn, or the likeliest each
        time where there is no generator."""
        every = self.logits(features)
        bank: list[int] = []
        lines, chosen = [], []
        for new in range(len(features)):
            probabilities = _softmax(every[new, bank].ravel())
            if generator is None:
                place = int(probabilities.argmax())
            else:
                place = min(int(np.searchsorted(probabilities.cumsum(), generator.random())), len(probabilities) - 1)
            chosen.append((tuple(bank), place, probabilities))
            lines.append(line_at(place))
            verb, entry = (place - 1) % 3, (place - 1) // 3
            if place and verb < 2:
                del bank[entry]
            if not place or verb == 0:
                bank.append(new)
        return Played(tuple(lines), tuple(bank), tuple(chosen))

    def log_slope(
        self, features: Floats, played: Sequence[Played], weights: Sequence[float], curious: float = 0.0
    ) -> ChangePolicy:
        """The derivative of the sum over `played` of weight times log-probability, all of one stream.

        curious: so many times the derivative of the entropy of the verb where the entry is given, in nats, is added for each
        entry, weighted by the entry's probability. Without it a verb that seldom pays is given up before its cues are found."""
        by_logits = np.zeros((*features.shape[:2], 3))
        for each, weight in zip(played, weights, strict=True):
            for new, (bank, place, probabilities) in enumerate(each.chosen):
                own = probabilities[1:].reshape(-1, 3)
                slope = -weight * own
                if curious:
                    verbs = np.maximum(own, 1e-300) / np.maximum(own, 1e-300).sum(axis=1, keepdims=True)
                    logs = np.log(verbs)
                    slope -= curious * own * (logs - (verbs * logs).sum(axis=1, keepdims=True))
                if place:
                    slope[(place - 1) // 3, (place - 1) % 3] += weight
                by_logits[new, list(bank)] += slope
        return self.slope(features.reshape(-1, features.shape[2]), by_logits.reshape(-1, 3))

    def moved(self, slope: ChangePolicy, rate: float) -> ChangePolicy:
        return replace(self, inner=self.inner + rate * slope.inner, outer=self.outer + rate * slope.outer)


def _softmax(others: Floats) -> Floats:
    """[1 + m]: of ADD, whose number is 0, and the others."""
    numbers = np.concatenate([[0.0], others])
    weights = np.exp(numbers - numbers.max())
    return np.asarray(weights / weights.sum())


def line_at(place: int) -> str:
    """What a place among the choices is called."""
    if not place:
        return "ADD"
    verb = VERBS[(place - 1) % 3]
    return verb if verb == "NOOP" else f"{verb} {(place - 1) // 3}"


def writer_of(policy: ChangePolicy, encoder: Encoder, cues: Floats) -> Callable[[Sequence[str], str], str]:
    """The policy in use: (what is in the bank, oldest first; the new fact) to the likeliest line."""

    def line(entries: Sequence[str], fact: str) -> str:
        texts = [*entries, fact]
        features = pair_features(texts, np.asarray(encoder.encode(texts), dtype=np.float64), cues)
        return line_at(int(_softmax(policy.logits(features[-1, :-1]).ravel()).argmax()))

    return line


@dataclass(frozen=True, slots=True)
class ChangeStream:
    """What the policy learns from: the pair features of a stream, and what its bank is worth by the numbers that are left."""

    features: Floats
    reward: Callable[[Sequence[int]], float]


def learned_changes(
    streams: Sequence[ChangeStream],
    seed: int,
    *,
    passes: int = 16,
    members: int = 8,
    at_once: int = 8,
    rate: float = 0.04,
    curious: float = 0.05,
    permuted: bool = False,
) -> ChangePolicy:
    """REINFORCE: each stream is played `members` times, and each time is worth its reward minus the mean of the others. Steps
    are Adam's (arXiv 1412.6980), on the mean of `at_once` streams. `rate`, and `curious` of `log_slope`, fall to nothing pass
    by pass. permuted: a control, in which the rewards of the members change places."""
    draw = np.random.default_rng(seed)
    policy = ChangePolicy.start(streams[0].features.shape[2], seed)
    first, second = ([np.zeros_like(policy.inner), np.zeros_like(policy.outer)] for _ in range(2))
    steps = 0
    for number in range(passes):
        order, left = draw.permutation(len(streams)), 1.0 - number / passes
        for start in range(0, len(order), at_once):
            slopes, steps = [], steps + 1
            for place in order[start : start + at_once]:
                stream = streams[place]
                played = [policy.play(stream.features, draw) for _ in range(members)]
                rewards = np.array([stream.reward(each.numbers) for each in played])
                if permuted:
                    draw.shuffle(rewards)
                advantages = (rewards - rewards.mean()) * (members / (members - 1))
                slopes.append(
                    policy.log_slope(stream.features, played, list(advantages / members), left * curious / members)
                )
            taken = []
            for place, name in enumerate(("inner", "outer")):
                slope = np.mean([getattr(slope, name) for slope in slopes], axis=0)
                first[place] = 0.9 * first[place] + 0.1 * slope
                second[place] = 0.99 * second[place] + 0.01 * slope**2
                taken.append(first[place] / (1 - 0.9**steps) / (np.sqrt(second[place] / (1 - 0.99**steps)) + 1e-6))
            policy = policy.moved(ChangePolicy(taken[0], taken[1]), left * rate)
    return policy


def changes(*, policy: ChangePolicy, encoder: Encoder, cues: Floats, facts: Writer | None = None) -> Writer:
    """The writer that decides about each fact as `policy` does.

    Args:
        policy: See `learned_changes`.
        encoder, cues: With which it learned; see `pair_features`.
        facts: What finds the facts; None takes each message for one.
    """
    from keepworth.agents.manager import Manager

    line = writer_of(policy, encoder, cues)

    def choose(states: Sequence[ManagerState]) -> list[str]:
        return [line(state.memories, state.fact) for state in states]

    return Manager(choose, facts)


METHOD = Method(
    kind="writer",
    name="changes",
    title="Learned changes",
    about="a small policy adds, updates, deletes or passes over each fact, learned from reward by REINFORCE (ours)",
    differs="Not published: this project's own, on pairs of facts, without a language model.",
    make=changes,
)
