"""A tiny language model, and settings in which some objectives claim to do better than others.

A setting makes groups of episodes with the model as it is, and measures it. Tokens are numbers below `WORDS`; everything
goes through the same sampler and learner as a real run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from keepworth.methods.recipes._episodic import EpisodicReward, RememberedEpisodes
from keepworth.models import attention
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Episode, Group, RewardScope, RewardTerm, SamplingParams, Segment, StopReason
from keepworth.records.model import Sample, Tokens

WORDS = 32
ROLE = "policy"


class Words:
    """A tokenizer of nothing but numbers."""

    all_special_ids = ()

    def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
        return {"input_ids": [byte % WORDS for byte in text.encode()]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return " ".join(map(str, ids))


def tiny(seed: int) -> InProcessModel:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.1,
        tie_word_embeddings=False,
        attn_implementation=attention.register(),
    )
    network = LlamaForCausalLM(config).eval().requires_grad_(False)
    return InProcessModel(network, Words(), "tiny")


def episode(name: str, task: str, segments: Sequence[Segment], reward: float, parent: str = "") -> Episode:
    return Episode(
        id=name,
        task=task,
        role=ROLE,
        question=task,
        segments=tuple(segments),
        answer=" ".join(str(i) for s in segments for i in s.ids),
        expected=(),
        rewards=(RewardTerm("score", reward),),
        stop=StopReason.COMPLETED,
        memory_snapshot="",
        policy_version=0,
        parent=parent,
    )


def segment(context: Tokens, sample: Sample, state: str = "", seconds: float = 1.0) -> Segment:
    drawn = (sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans)
    return Segment(ROLE, "", context, *drawn, "", state=state, seconds=seconds)


@dataclass(frozen=True)
class OneCall:
    """Prompts that are answered in one call; `score` (prompt index, ids) says how right an answer is. tokens: at most so
    many; stops: tokens that end an answer before, so that answers are of unequal lengths."""

    prompts: tuple[Tokens, ...]
    tokens: int
    score: Callable[[int, Tokens], float]
    stops: frozenset[int] = frozenset()

    def rollout(self, model: InProcessModel, seed: int, size: int) -> list[Group]:
        drawn = model.sample(self.prompts, SamplingParams(self.tokens, n=size, seed=seed, stop_ids=self.stops))
        played = []
        for number, (prompt, samples) in enumerate(zip(self.prompts, drawn, strict=True)):
            calls = [
                (segment(prompt, sample, f"prompt {number}"), self.score(number, sample.ids)) for sample in samples
            ]
            episodes = (episode(f"{seed}/{number}/{j}", f"t{number}", [of], r) for j, (of, r) in enumerate(calls))
            played.append(Group(f"t{number}", "", tuple(episodes)))
        return played

    def measure(self, model: InProcessModel, seed: int) -> float:
        groups = self.rollout(model, 10_000_000 + seed, 32)
        return float(np.mean([e.reward for g in groups for e in g.episodes]))


def prompts(count: int) -> tuple[Tokens, ...]:
    return tuple((3 + number, 7, 11 + number, 2) for number in range(count))


STOPS = frozenset(range(28, WORDS))
"""Four words of 32: an answer that is drawn by chance has eight tokens on average, and twelve at most."""


def graded(number: int, ids: Tokens) -> float:
    """Eight tokens of the prompt's own residue are right, and each is worth an eighth; one in four is right by chance."""
    right = sum(token % 4 == number % 4 for token in ids if token not in STOPS)
    return min(right, 8) / 8


def sparse(number: int, ids: Tokens) -> float:
    """1 only if both tokens are of the prompt's residue among 8: 1/64 by chance, so most groups are all wrong."""
    return float(all(token % 8 == number for token in ids))


def branching(number: int, ids: Tokens) -> float:
    """Only the second of six tokens decides: 1/4 by chance. Credit for the other five is noise."""
    return float(ids[1] % 4 == number % 4)


GRADED = OneCall(prompts(4), 12, graded, STOPS)
SPARSE = OneCall(prompts(4), 2, sparse)
BRANCHING = OneCall(prompts(4), 6, branching)


@dataclass(frozen=True)
class Corridor:
    """Walk `length` rooms in at most `turns` moves; a move is a token: forward (residue 0 of 3), stay, back. Reward 1 at
    the end alone. The model sees the room after every move, in one growing context."""

    length: int = 3
    turns: int = 7

    def walk(
        self, model: InProcessModel, seed: int, start: int, count: int, name: str, parent: str = ""
    ) -> list[Episode]:
        contexts: list[Tokens] = [(1, 5 + start)] * count
        rooms, segments = [start] * count, [[] for _ in range(count)]  # type: list[int], list[list[Segment]]
        for turn in range(self.turns):
            active = [j for j in range(count) if rooms[j] < self.length]
            if not active:
                break
            drawn = self._draw(model, [contexts[j] for j in active], 1000 * seed + turn, first=turn == 0)
            for j, sample in zip(active, drawn, strict=True):
                segments[j].append(segment(contexts[j], sample, f"room {rooms[j]}"))
                rooms[j] = max(0, rooms[j] + (1, 0, -1)[sample.ids[0] % 3])
                contexts[j] = contexts[j] + sample.ids + (5 + rooms[j],)
        return [
            episode(f"{name}/{j}", f"from {start}", segments[j], float(rooms[j] >= self.length), parent)
            for j in range(count)
        ]

    def _draw(self, model: InProcessModel, contexts: list[Tokens], seed: int, first: bool) -> list[Sample]:
        if first:  # all of one context: one prompt, many branches
            return model.sample(contexts[:1], SamplingParams(1, n=len(contexts), seed=seed))[0]
        return [samples[0] for samples in model.sample(contexts, SamplingParams(1, seed=seed))]

    def rollout(self, model: InProcessModel, seed: int, size: int) -> list[Group]:
        played = []
        for number in range(2):
            episodes = self.walk(model, 10 * seed + number, 0, size, f"{seed}/{number}")
            walks = tuple(replace(e, task=f"walk {number}") for e in episodes)
            played.append(Group(f"walk {number}", "", walks))
        return played

    def measure(self, model: InProcessModel, seed: int) -> float:
        return float(np.mean([e.reward for e in self.walk(model, 900_000 + seed, 0, 64, "measure")]))


def with_turn_rewards(groups: Sequence[Group]) -> list[Group]:
    """Each arrival's reward, split over the moves that went forward: what attribution gives where it is exact. An answer
    of one call keeps its reward."""

    def credited(e: Episode) -> Episode:
        forward = [k for k, s in enumerate(e.segments) if s.ids[0] % 3 == 0 or len(e.segments) == 1]
        terms = [
            RewardTerm("attribution", e.reward / len(forward), scope=RewardScope.SEGMENT, segment=k)
            for k in forward
            if e.reward
        ] or [RewardTerm("attribution", 0.0, scope=RewardScope.SEGMENT, segment=0)]
        return replace(e, rewards=(replace(e.rewards[0], weight=0.0), *terms))

    return [replace(g, episodes=tuple(credited(e) for e in g.episodes)) for g in groups]


def aid() -> RememberedEpisodes:
    """Memory-R+'s two memories over answers, each answer a bag of its tokens."""
    return RememberedEpisodes(EpisodicReward(warmup=5), bag)


def bag(texts: Sequence[str]) -> Any:
    vectors = np.zeros((len(texts), WORDS + 1))
    for row, text in enumerate(texts):
        for word in text.replace("t", "").split():
            vectors[row, int(word) % WORDS] += 1
    return vectors + 1e-3


@dataclass(frozen=True)
class Timed:
    """One token is an answer of one of four kinds, by its residue; the best takes eight times as long as the others. An answer
    that takes d seconds comes into a batch with probability 1 / d, as where samplers run for a time and not for a number of
    answers; at most `size` a prompt are kept.

    limited: False where all answers come in. permuted: whether the seconds are dealt out anew among the answers of a batch."""

    limited: bool = True
    permuted: bool = False
    worth: tuple[float, ...] = (0.2, 0.4, 0.6, 1.0)
    seconds: tuple[float, ...] = (1.0, 1.0, 1.0, 8.0)

    def rollout(self, model: InProcessModel, seed: int, size: int) -> list[Group]:
        chance, begun = np.random.default_rng(seed), prompts(2)
        played = []
        for number, samples in enumerate(model.sample(begun, SamplingParams(1, n=4 * size, seed=seed))):
            kinds = [sample.ids[0] % 4 for sample in samples]
            there = [j for j, kind in enumerate(kinds) if not self.limited or chance.random() < 1 / self.seconds[kind]]
            taken = there[:size] or [0]
            took = [self.seconds[kinds[j]] for j in taken]
            if self.permuted:
                took = list(chance.permutation(took))
            episodes = tuple(
                episode(
                    f"{seed}/{number}/{j}",
                    f"t{number}",
                    [segment(begun[number], samples[j], seconds=float(seconds))],
                    self.worth[kinds[j]],
                )
                for j, seconds in zip(taken, took, strict=True)
            )
            played.append(Group(f"t{number}", "", episodes))
        return played

    def measure(self, model: InProcessModel, seed: int) -> float:
        groups = replace(self, limited=False).rollout(model, 10_000_000 + seed, 32)
        return float(np.mean([e.reward for g in groups for e in g.episodes]))


@dataclass(frozen=True)
class Permuted:
    """A world whose rewards are dealt out anew among the episodes of an update, and among those of a walk: the control that shows
    what is learned without them. It is measured with the true ones."""

    world: Any

    def rollout(self, model: InProcessModel, seed: int, size: int) -> list[Group]:
        groups = self.world.rollout(model, seed, size)
        dealt = iter(self._deal([e for group in groups for e in group.episodes], seed))
        return [replace(group, episodes=tuple(next(dealt) for _ in group.episodes)) for group in groups]

    def walk(self, model: InProcessModel, seed: int, *of_walk: Any) -> list[Episode]:
        return self._deal(self.world.walk(model, seed, *of_walk), seed)

    def measure(self, model: InProcessModel, seed: int) -> float:
        return float(self.world.measure(model, seed))

    def _deal(self, episodes: Sequence[Episode], seed: int) -> list[Episode]:
        order = np.random.default_rng([29, seed]).permutation(len(episodes))
        return [replace(e, rewards=episodes[index].rewards) for e, index in zip(episodes, order, strict=True)]
