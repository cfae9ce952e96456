"""Long branches: a place in the prompt's tree beside a row of one's own, and a backward pass with and without siblings.

Sampling: groups of 8 from one prompt, `tokens` drawn each, all forced through the tree, then all as rows of their own
(`keepworth.models.attention.apart` is the rule that these numbers give). Learning: one forward and backward pass over the
same group, with blocks of queries reading every earlier sibling's keys, then skipping them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from benchmarks.speed.rows import Call, Row
from benchmarks.speed.setting import MODEL, prompts, timed
from keepworth.episodes.model import SamplingParams
from keepworth.models import attention, inprocess
from keepworth.models.adapter import attach_lora
from keepworth.models.attention import tree
from keepworth.models.files import path_of
from keepworth.models.inprocess import InProcessModel

GROUP = 8
SAMPLED = {
    (100, 64): 0.2,
    (100, 128): 0.3,
    (100, 256): 0.6,
    (400, 128): 0.4,
    (400, 256): 0.7,
    (100, 512): 1.2,
    (400, 512): 1.5,
}
LEARNED = {(400, 64): 0.2, (400, 256): 0.5}


def rows() -> list[Row]:
    return [
        Row(
            table,
            f"{GROUP} x {tokens} behind {prompt}",
            3,
            minutes,
            partial(opened, prompt, tokens),
            {"group": GROUP, "tokens": tokens, "prompt_tokens": prompt},
        )
        for table, cases, opened in (("branches sampled", SAMPLED, sampling), ("branches learned", LEARNED, learning))
        for (prompt, tokens), minutes in cases.items()
    ]


@contextmanager
def sampling(prompt: int, tokens: int, threads: int) -> Iterator[Mapping[str, Call]]:
    model = InProcessModel.load(path_of(MODEL), name=MODEL, precision="bf16")
    ids = model.encode(prompts(model.tokenizer, 1, prompt)[0])
    rule = inprocess.apart

    def forced(own_rows: bool, tokens: int) -> None:
        inprocess.apart = lambda prompt, branches, tokens: own_rows
        model.sample([ids], SamplingParams(tokens, n=GROUP, seed=0))
        inprocess.apart = rule

    for own_rows in (True, False):
        forced(own_rows, 2)
    yield {
        "own rows": partial(timed, partial(forced, True, tokens)),
        "tree": partial(timed, partial(forced, False, tokens)),
    }


@contextmanager
def learning(prompt: int, tokens: int, threads: int) -> Iterator[Mapping[str, Call]]:
    model = InProcessModel.load(path_of(MODEL), name=MODEL, precision="bf16")
    attach_lora(model, 16)
    ids = model.encode(prompts(model.tokenizer, 1, prompt)[0])
    batch = tree([ids], [[ids[:1] * tokens] * GROUP])
    threshold = attention._SKIPPED

    def forced(skipped: int) -> None:
        attention._SKIPPED = skipped
        lp, _ = model.tree_scores(batch)
        (-lp.mean()).backward()  # type: ignore[no-untyped-call]
        attention._SKIPPED = threshold

    forced(threshold)
    yield {
        "skipped": partial(timed, partial(forced, threshold)),
        "all siblings' keys": partial(timed, partial(forced, 10**9)),
    }
