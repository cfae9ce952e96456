"""Tokens per second of episodes of three turns beside Hugging Face `generate`: a tool answers between the turns.

    python -m benchmarks.speed.episodes [--seconds 100] [--threads N]

Groups of 8 episodes from one prompt of 400 tokens; each turn draws 16 tokens, then 24 tokens of the environment's are
appended. `generate` is called once per turn with every episode's whole context, as its documentation has it: it keeps
nothing between calls. Ours is called the same way, and keeps nothing either; it computes what the contexts of a call
share once. Prints a table and writes `episodes.json`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.speed.setting import MODEL, Spent, machine, paired, prompts, timed, write
from recollect.episodes.model import SamplingParams, Tokens
from recollect.models.files import path_of
from recollect.models.inprocess import InProcessModel

PROMPT_TOKENS, GROUP, TURNS, DRAWN, SEEN = 400, 8, 3, 16, 24


def ours(model: InProcessModel, ids: list[Tokens], seen: Tokens) -> Callable[[], Spent]:
    seeds = iter(range(0, 10**6, 10))

    def call() -> None:
        seed = next(seeds)
        first = model.sample(ids, SamplingParams(DRAWN, n=GROUP, seed=seed))
        contexts = [p + s.ids + seen for p, samples in zip(ids, first, strict=True) for s in samples]
        for turn in range(1, TURNS):
            drawn = model.sample(contexts, SamplingParams(DRAWN, seed=seed + turn))
            contexts = [c + samples[0].ids + seen for c, samples in zip(contexts, drawn, strict=True)]
        assert {len(c) for c in contexts} == {PROMPT_TOKENS + TURNS * (DRAWN + SEEN)}

    return lambda: timed(call)


def theirs(network: Any, ids: list[Tokens], seen: Tokens) -> Callable[[], Spent]:
    inputs = torch.tensor(ids)

    def turn(contexts: torch.Tensor, group: int) -> torch.Tensor:
        drawn = network.generate(
            input_ids=contexts,
            attention_mask=torch.ones_like(contexts),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=group,
            max_new_tokens=DRAWN,
            eos_token_id=None,
            pad_token_id=0,
        )
        return torch.cat([drawn, torch.tensor(seen).expand(len(drawn), -1)], dim=1)

    def call() -> None:
        contexts = turn(inputs, GROUP)
        for _ in range(1, TURNS):
            contexts = turn(contexts, 1)
        assert contexts.shape == (len(ids) * GROUP, PROMPT_TOKENS + TURNS * (DRAWN + SEEN))

    return lambda: timed(call)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=100.0, help="stop adding rounds after this long")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    from transformers import AutoModelForCausalLM

    about = machine(options.threads)
    folder = path_of(MODEL)
    model = InProcessModel.load(folder, name=MODEL, precision="bf16")
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    ids = [model.encode(text) for text in prompts(model.tokenizer, 2, PROMPT_TOKENS)]
    seen = ids[1][:SEEN]
    begun = time.perf_counter()
    model.sample(ids[:1], SamplingParams(1, n=GROUP))  # kernels are built at the first call
    results = []
    for count, until in ((1, 0.4), (2, 1.0)):
        result = paired(
            3, begun + options.seconds * until, ours(model, ids[:count], seen), theirs(network, ids[:count], seen)
        )
        drawn = count * GROUP * TURNS * DRAWN
        speeds = {side: drawn / statistics.median(seconds) for side, seconds in result["seconds"].items()}
        case = {"prompts": count, "group": GROUP, "turns": TURNS, "drawn": DRAWN, "seen": SEEN}
        results.append({"case": case, "tokens_per_second": speeds, **result})

    table = Table(title=f"Episodes of {TURNS} turns, {MODEL}, bf16, {options.threads} threads")
    for column in ("prompts x episodes", "rounds", "generate, tokens/s", "ours, tokens/s", "times as fast"):
        table.add_column(column, justify="right")
    for result in results:
        speed, times = result["tokens_per_second"], result["speedup"]
        table.add_row(
            f"{result['case']['prompts']} x {GROUP}",
            str(result["rounds"]),
            f"{speed['theirs']:.0f}",
            f"{speed['ours']:.0f}",
            f"{times['median']:.2f} ({times['lowest']:.2f} to {times['highest']:.2f})",
        )
    Console(width=120).print(table)
    what = "episodes of three turns beside Hugging Face generate (theirs), drawn tokens per second"
    write(
        "episodes.json",
        {
            "what": what,
            "model": MODEL,
            "dtype": "bf16",
            "prompt_tokens": PROMPT_TOKENS,
            "machine": about,
            "results": results,
        },
    )


if __name__ == "__main__":
    main()
