"""Tokens per second of our sampler beside Hugging Face `generate`: same weights, dtype, threads and prompts.

    python -m benchmarks.speed.sampling [--seconds 210] [--threads N]

Prefill is included on both sides. Every completion has exactly the stated length: neither side is given a token to
stop at. `generate` runs as it is documented for this (`num_return_sequences`, `do_sample`, its default attention, no
top-k or top-p filter, which would cost it extra); ours also returns log-probabilities, which `generate` is not asked for.
Prints a table and writes `sampling.json` beside this file.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.speed.setting import MODEL, Spent, machine, paired, prompts, timed, write
from recollect.episodes.model import SamplingParams, Tokens
from recollect.models.files import path_of
from recollect.models.inprocess import InProcessModel

PROMPT_TOKENS = 400


@dataclass(frozen=True, slots=True)
class Case:
    """`rounds` pairs of calls for `prompts` prompts with `samples` completions of `tokens` tokens each; `until`: the
    share of all the time at which this case must be done."""

    prompts: int
    samples: int
    tokens: int
    rounds: int
    until: float

    @property
    def name(self) -> str:
        return f"{self.prompts} x {self.samples} x {self.tokens}"


CASES = (Case(1, 8, 16, 5, 0.1), Case(1, 8, 64, 3, 0.25), Case(8, 8, 16, 5, 0.6), Case(8, 8, 64, 3, 1.0))


def ours(model: InProcessModel, ids: list[Tokens], case: Case) -> Callable[[], Spent]:
    seeds = iter(range(10_000))

    def call() -> None:
        groups = model.sample(ids, SamplingParams(max_tokens=case.tokens, n=case.samples, seed=next(seeds)))
        assert {len(sample.ids) for group in groups for sample in group} == {case.tokens}
        assert len(groups) * len(groups[0]) == case.prompts * case.samples

    return lambda: timed(call)


def theirs(network: Any, ids: list[Tokens], case: Case) -> Callable[[], Spent]:
    inputs = torch.tensor(ids)  # all of one length: no padding, so their mask costs nothing

    def call() -> None:
        drawn = network.generate(
            input_ids=inputs,
            attention_mask=torch.ones_like(inputs),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=case.samples,
            max_new_tokens=case.tokens,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert drawn.shape == (case.prompts * case.samples, PROMPT_TOKENS + case.tokens), drawn.shape

    return lambda: timed(call)


def measure(model: InProcessModel, network: Any, ids: list[Tokens], case: Case, limit: float) -> dict[str, Any]:
    some = ids[: case.prompts]
    first = replace(case, tokens=1)  # warm both up: kernels are built per shape
    ours(model, some, first)()
    theirs(network, some, first)()
    result = paired(case.rounds, limit, ours(model, some, case), theirs(network, some, case))
    tokens = case.prompts * case.samples * case.tokens
    speeds = {side: tokens / statistics.median(seconds) for side, seconds in result["seconds"].items()}
    return {"case": asdict(case) | {"name": case.name}, "tokens_per_second": speeds, **result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=210.0, help="stop adding rounds after this long")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cases", default="", help="only cases whose name contains this, such as '8 x 8 x 16'")
    parser.add_argument("--output", default="sampling.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    from transformers import AutoModelForCausalLM

    about = machine(options.threads)
    folder = path_of(MODEL)
    model = InProcessModel.load(folder, name=MODEL, precision="bf16")
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    ids = [model.encode(text) for text in prompts(model.tokenizer, 8, PROMPT_TOKENS)]
    chosen = [case for case in CASES if options.cases in case.name]
    begun = time.perf_counter()
    results = []
    for number, case in enumerate(chosen):
        until = 1.0 if number + 1 == len(chosen) else case.until
        results.append(measure(model, network, ids, case, begun + options.seconds * until))

    table = Table(title=f"Sampling, {MODEL}, bf16, {options.threads} threads, prompts of {PROMPT_TOKENS} tokens")
    for column in (
        "prompts x samples x tokens",
        "rounds",
        "generate, tokens/s",
        "ours, tokens/s",
        "times as fast",
        "in CPU time",
    ):
        table.add_column(column, justify="right")
    for case, result in zip(chosen, results, strict=True):
        speed, times = result["tokens_per_second"], result["speedup"]
        table.add_row(
            case.name,
            str(result["rounds"]),
            f"{speed['theirs']:.0f}",
            f"{speed['ours']:.0f}",
            f"{times['median']:.2f} ({times['lowest']:.2f} to {times['highest']:.2f})",
            f"{result['speedup_in_cpu_seconds']['median']:.2f}",
        )
    Console(width=120).print(table)
    path = write(
        options.output,
        {
            "what": "sampling beside Hugging Face generate (theirs), prefill included",
            "model": MODEL,
            "dtype": "bf16",
            "prompt_tokens": PROMPT_TOKENS,
            "generate": "do_sample, top_k=0, top_p=1, eos_token_id=None, default attention and cache",
            "attention_of_generate": network.config._attn_implementation,
            "machine": about,
            "results": results,
        },
    )
    Console().print(f"written to {path}")


if __name__ == "__main__":
    main()
