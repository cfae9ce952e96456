"""Long branches in the learner: one forward and backward pass over a group of 8, with blocks of queries reading every earlier
sibling's keys, then skipping them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from benchmarks.speed.rows import Call, Row
from benchmarks.speed.setting import MODEL, prompts, timed
from keepworth.models.adapter import attach_lora
from keepworth.models.attention import Tree, tree
from keepworth.models.files import path_of
from keepworth.models.inprocess import InProcessModel

GROUP = 8
LEARNED = {(400, 64): 0.2, (400, 256): 0.5}


def rows() -> list[Row]:
    return [
        Row(
            "branches learned",
            f"{GROUP} x {tokens} behind {prompt}",
            3,
            minutes,
            partial(learning, prompt, tokens),
            {"group": GROUP, "tokens": tokens, "prompt_tokens": prompt},
        )
        for (prompt, tokens), minutes in LEARNED.items()
    ]


@contextmanager
def learning(prompt: int, tokens: int, threads: int) -> Iterator[Mapping[str, Call]]:
    model = InProcessModel.load(path_of(MODEL), name=MODEL, precision="bf16")
    attach_lora(model, 16)
    ids = model.encode(prompts(model.tokenizer, 1, prompt)[0])
    batch = tree([ids], [[ids[:1] * tokens] * GROUP])
    dense = replace(batch, mask=batch.mask.clone())  # without the layout, the mask alone says who sees what

    def learn(tree: Tree) -> None:
        lp, _ = model.tree_scores(tree)
        (-lp.mean()).backward()  # type: ignore[no-untyped-call]

    learn(batch)
    yield {
        "skipped": partial(timed, partial(learn, batch)),
        "all siblings' keys": partial(timed, partial(learn, dense)),
    }
