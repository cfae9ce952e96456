"""Tokens per second of our sampler beside Hugging Face `generate`: same weights, dtype, threads and prompts.

Prefill is included on all sides. Every completion has exactly the stated length: no side is given a token to stop at.
`generate` runs as it is documented for this (`num_return_sequences`, `do_sample`, its default attention, no top-k or top-p
filter, which would cost it extra), and once more as a careful user runs it: the prompt prefilled once, its cache repeated for
the group. Ours also returns log-probabilities, which `generate` is not asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from benchmarks.speed.rows import Call, Row
from benchmarks.speed.setting import MODEL, prompts, timed
from keepworth.base.model_files import path_of
from keepworth.models.inprocess import InProcessModel
from keepworth.records.model import SamplingParams, Tokens

PROMPT_TOKENS, SAMPLES = 400, 8
OURS, GENERATE, PREFILLED = "ours", "generate", "generate, prompt prefilled once"
CASES = {  # (prompts, tokens): (rounds, minutes of one on two cores)
    (1, 16): (3, 0.2),
    (1, 64): (3, 0.4),
    (1, 256): (3, 1.5),
    (1, 1024): (3, 6.0),
    (8, 16): (3, 0.8),
    (8, 256): (3, 6.0),
}


def rows() -> list[Row]:
    return [
        Row(
            "sampling",
            f"{count} x {SAMPLES} x {tokens}",
            rounds,
            minutes,
            partial(opened, count, tokens),
            {"prompts": count, "samples": SAMPLES, "tokens": tokens, "prompt_tokens": PROMPT_TOKENS},
        )
        for (count, tokens), (rounds, minutes) in CASES.items()
    ]


def both() -> tuple[InProcessModel, Any]:
    """The model, and the network as transformers has it."""
    from transformers import AutoModelForCausalLM

    folder = path_of(MODEL)
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    return InProcessModel.load(folder, name=MODEL, precision="bf16", device="cpu"), network


@contextmanager
def opened(count: int, tokens: int, threads: int) -> Iterator[Mapping[str, Call]]:
    model, network = both()
    ids = [model.encode(text) for text in prompts(model.tokenizer, count, PROMPT_TOKENS)]
    yield {name: partial(timed, partial(call, tokens)) for name, call in compared(model, network, ids).items()}


def compared(model: InProcessModel, network: Any, ids: list[Tokens]) -> dict[str, Callable[[int], None]]:
    """What draws so many tokens on each side, by name; each was called once, as kernels are built per shape."""
    calls = {
        OURS: ours(model, ids),
        GENERATE: generated(network, ids, prefilled=False),
        PREFILLED: generated(network, ids, prefilled=True),
    }
    for call in calls.values():
        call(2)
    return calls


def ours(model: InProcessModel, ids: list[Tokens]) -> Callable[[int], None]:
    seeds = iter(range(10_000))

    def call(tokens: int) -> None:
        groups = model.sample(ids, SamplingParams(max_tokens=tokens, n=SAMPLES, seed=next(seeds)))
        assert {len(sample.ids) for group in groups for sample in group} == {tokens}
        assert {len(group) for group in groups} == {SAMPLES}
        assert len(groups) == len(ids)

    return call


def generate(network: Any, ids: torch.Tensor, tokens: int, **more: Any) -> torch.Tensor:
    """The ids with exactly so many tokens drawn behind each row."""
    drawn: torch.Tensor = network.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=tokens,
        eos_token_id=None,
        pad_token_id=0,
        **more,
    )
    return drawn


def generated(network: Any, ids: list[Tokens], *, prefilled: bool) -> Callable[[int], None]:
    from transformers import DynamicCache

    inputs = torch.tensor(ids, device=network.device)  # all of one length: no padding, so their mask costs nothing

    @torch.no_grad()
    def call(tokens: int) -> None:
        given, more = inputs, {"num_return_sequences": SAMPLES}
        if prefilled:
            cache = DynamicCache(config=network.config)
            network(inputs[:, :-1], past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache.batch_repeat_interleave(SAMPLES)
            given, more = inputs.repeat_interleave(SAMPLES, dim=0), {"past_key_values": cache}
        drawn = generate(network, given, tokens, **more)
        assert drawn.shape == (len(ids) * SAMPLES, len(ids[0]) + tokens), drawn.shape

    return call
