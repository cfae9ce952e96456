"""Tokens per second of episodes of three turns beside Hugging Face `generate`: a tool answers between the turns.

Groups of 8 episodes from one prompt of 400 tokens; each turn draws 16 tokens, then 24 tokens of the environment's are
appended. `generate` is called once per turn with every episode's whole context, as its documentation has it: it keeps
nothing between calls. Ours is called the same way, and keeps nothing either; it computes what the contexts of a call
share once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from benchmarks.speed.rows import Call, Row
from benchmarks.speed.sampling import both, generate
from benchmarks.speed.setting import prompts, timed
from keepworth.models.inprocess import InProcessModel
from keepworth.records.model import SamplingParams, Tokens

PROMPT_TOKENS, GROUP, TURNS, DRAWN, SEEN = 400, 8, 3, 16, 24


def rows() -> list[Row]:
    facts = {"group": GROUP, "turns": TURNS, "drawn": DRAWN, "seen": SEEN, "prompt_tokens": PROMPT_TOKENS}
    return [
        Row(
            "episodes",
            f"{count} x {GROUP}, {TURNS} turns",
            3,
            0.5 * count,
            partial(opened, count),
            {"prompts": count, **facts},
        )
        for count in (1, 2)
    ]


@contextmanager
def opened(count: int, threads: int) -> Iterator[Mapping[str, Call]]:
    model, network = both()
    texts = prompts(model.tokenizer, 2, PROMPT_TOKENS)
    seen = model.encode(texts[1])[:SEEN]
    ids = [model.encode(text) for text in texts[:count]]
    model.sample(ids[:1], SamplingParams(1, n=GROUP))  # kernels are built at the first call
    yield {
        "ours": partial(timed, partial(ours, model, ids, seen)),
        "generate": partial(timed, partial(theirs, network, ids, seen)),
    }


def ours(model: InProcessModel, ids: list[Tokens], seen: Tokens) -> None:
    first = model.sample(ids, SamplingParams(DRAWN, n=GROUP, seed=0))
    contexts = [p + s.ids + seen for p, samples in zip(ids, first, strict=True) for s in samples]
    for turn in range(1, TURNS):
        drawn = model.sample(contexts, SamplingParams(DRAWN, seed=turn))
        contexts = [c + samples[0].ids + seen for c, samples in zip(contexts, drawn, strict=True)]
    assert {len(c) for c in contexts} == {PROMPT_TOKENS + TURNS * (DRAWN + SEEN)}


def theirs(network: Any, ids: list[Tokens], seen: Tokens) -> None:
    def turn(contexts: torch.Tensor, group: int) -> torch.Tensor:
        drawn = generate(network, contexts, DRAWN, num_return_sequences=group)
        return torch.cat([drawn, torch.tensor(seen).expand(len(drawn), -1)], dim=1)

    contexts = turn(torch.tensor(ids), GROUP)
    for _ in range(1, TURNS):
        contexts = turn(contexts, 1)
    assert contexts.shape == (len(ids) * GROUP, PROMPT_TOKENS + TURNS * (DRAWN + SEEN))
