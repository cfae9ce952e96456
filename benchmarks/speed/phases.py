"""Where a training step's time goes, and how far each phase is from what the processor could do.

    python -m benchmarks.speed.phases [--threads N] [--tokens 16 64 256]

One GRPO step on two prompts of 400 tokens, groups of 8, completions of 16, 64 and 256 tokens, a LoRA adapter of rank
16, bf16.
The floor of a phase is the larger of two times measured on the same processor with the same threads: its
multiplications at the fastest rate of any matrix product tried here, and its reads of the weights at the fastest rate
of reading memory. Multiplications are counted by torch's own formulas in a step of their own. Writes `phases.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from benchmarks.speed.setting import HERE, MODEL, machine, prompts
from keepworth.episodes import Episode, Group, RewardTerm, SamplingParams, Segment, StopReason
from keepworth.learning import learner as learning
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.objective.presets import preset, without_kl
from keepworth.models.adapter import attach_lora
from keepworth.models.files import path_of
from keepworth.models.inprocess import InProcessModel

PROMPT_TOKENS, PROMPTS, GROUP = 400, 2, 8
SHAPES = (
    (512, 576, 1536),
    (1024, 576, 1536),
    (1024, 1536, 576),
    (2048, 576, 576),
    (1024, 1024, 1024),
    (256, 576, 49152),
)


def product_rate(seconds: float = 0.4) -> dict[str, float]:
    """Multiplications and additions per second of bf16 matrix products, by shape."""
    found = {}
    for rows, inner, columns in SHAPES:
        a, b = torch.randn(rows, inner).bfloat16(), torch.randn(columns, inner).bfloat16()
        torch.nn.functional.linear(a, b)
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            torch.nn.functional.linear(a, b)
            count += 1
        found[f"{rows} x {inner} x {columns}"] = 2.0 * rows * inner * columns * count / (time.perf_counter() - begun)
    return found


def reading_rate(seconds: float = 0.5) -> float:
    """Bytes per second of reading a tensor that no cache holds."""
    big = torch.ones(128 * 1024 * 1024)
    big.sum()
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        big.sum()
        count += 1
    return 4.0 * big.numel() * count / (time.perf_counter() - begun)


class Counter(TorchDispatchMode):
    """Adds up multiplications and additions of matrix products. torch's FlopCounterMode also follows modules with hooks,
    which refuse a backward pass inside a backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        packet, aten = func._overloadpacket, torch.ops.aten
        if packet in (
            aten.linear,
            aten.matmul,
            torch.ops.mkldnn._linear_pointwise,
        ):  # whole where no gradient is recorded
            self.total += 2.0 * result.numel() * args[0].shape[-1]
            return result
        packet = aten.addmm if packet is aten.addmm_ else packet
        if packet in flop_registry:
            self.total += flop_registry[packet](*args, **named, out_val=result)
        return result


class Phases:
    """Replaces a few functions by themselves with a clock, or with a counter of multiplications, around them."""

    def __init__(self, model: InProcessModel, learner: Learner, count: bool) -> None:
        self.count = count
        self.seconds: dict[str, float] = {}
        self.flops: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._put(model, "_prefill", "prefill")
        self._put(model, "sample", "sampling")
        self._put(learning, "row_scores", "forward")
        self._put(torch.Tensor, "backward", "backward")
        self._put(learner.master_weights, "step", "optimiser")
        self._put(learner, "update", "learning")

    def _put(self, owner: Any, name: str, phase: str) -> None:
        plain: Callable[..., Any] = getattr(owner, name)

        def measured(*arguments: Any, **named: Any) -> Any:
            counter = Counter() if self.count else None
            begun = time.perf_counter()
            if counter is None:
                result = plain(*arguments, **named)
            else:
                with counter:
                    result = plain(*arguments, **named)
                self.flops[phase] = self.flops.get(phase, 0.0) + counter.total
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun
            self.calls[phase] = self.calls.get(phase, 0) + 1
            return result

        setattr(owner, name, measured)
        self._undo = [*getattr(self, "_undo", []), (owner, name, plain)]

    def restore(self) -> None:
        for owner, name, plain in self._undo:
            setattr(owner, name, plain)


def step(model: InProcessModel, learner: Learner, texts: list[str], tokens: int, seed: int) -> None:
    ids = [model.encode(text) for text in texts]
    drawn = model.sample(ids, SamplingParams(tokens, n=GROUP, seed=seed))
    groups = []
    for number, (prompt, samples) in enumerate(zip(ids, drawn, strict=True)):
        episodes = tuple(
            Episode(
                id=f"{number}/{j}",
                task=str(number),
                role="policy",
                question="",
                segments=(Segment("policy", "", prompt, s.ids, s.logprobs, 1.0, s.finish, s.spans, ""),),
                answer="",
                expected=(),
                rewards=(RewardTerm("r", float(j)),),
                stop=StopReason.MAX_TOKENS,
                memory_snapshot="",
                policy_version=model.version,
            )
            for j, s in enumerate(samples)
        )
        groups.append(Group(str(number), "", episodes))
    learner.update(groups)


def measure(model: InProcessModel, learner: Learner, texts: list[str], tokens: int, rounds: int) -> dict[str, Any]:
    step(model, learner, texts, tokens, 0)  # kernels are built at the first call
    clock = Phases(model, learner, count=False)
    for seed in range(1, rounds + 1):
        step(model, learner, texts, tokens, seed)
    clock.restore()
    counter = Phases(model, learner, count=True)
    step(model, learner, texts, tokens, 1)
    counter.restore()
    seconds = {name: value / rounds for name, value in clock.seconds.items()}
    seconds["decoding"] = seconds["sampling"] - seconds["prefill"]
    inside = seconds["forward"] + seconds["backward"] + seconds["optimiser"]
    seconds["the rest of learning"] = seconds["learning"] - inside
    flops = counter.flops
    flops["decoding"] = flops["sampling"] - flops["prefill"]
    return {"tokens": tokens, "rounds": rounds, "seconds": seconds, "flops": flops, "calls": clock.calls}


SHOWN = ("prefill", "decoding", "forward", "backward", "optimiser", "the rest of learning")


def with_floors(result: dict[str, Any], rate: float, reading: float, weight_bytes: float) -> dict[str, Any]:
    """Adds each phase's floor. Decoding reads all weights once a token, the other passes once."""
    reads = {"decoding": result["tokens"] - 1, "prefill": 1, "forward": 1, "backward": 1}
    floors = {}
    for phase in SHOWN:
        products = result["flops"].get(phase, 0.0) / rate
        passes = (
            reads.get(phase, 0) * (1 if phase == "decoding" else result["calls"][phase] / result["rounds"])
            if phase in reads
            else 0
        )
        floors[phase] = max(products, passes * weight_bytes / reading)
    return result | {"floor_seconds": floors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 256], help="new tokens of each completion")
    parser.add_argument("--json", type=Path, default=HERE / "phases.json", help="the file to write")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    about = machine(options.threads)
    rates, reading = product_rate(), reading_rate()
    model = InProcessModel.load(path_of(MODEL), name=MODEL, precision="bf16")
    weight_bytes = float(sum(p.numel() * p.element_size() for p in model.network.parameters()))
    named = attach_lora(model, rank=16, alpha=32.0)
    learner = Learner(
        model, named, without_kl(preset("grpo")), Optimisation(learning_rate=1e-5, token_budget=4096), "policy"
    )
    texts = prompts(model.tokenizer, PROMPTS, PROMPT_TOKENS)
    results = [
        with_floors(measure(model, learner, texts, tokens, options.rounds), max(rates.values()), reading, weight_bytes)
        for tokens in options.tokens
    ]
    for result in results:
        table = Table(title=f"{PROMPTS} prompts x {GROUP} x {result['tokens']} tokens, {options.threads} threads")
        for column in ("phase", "seconds", "GFLOP", "floor, seconds", "times the floor"):
            table.add_column(column, justify="right")
        for phase in SHOWN:
            spent, floor = result["seconds"][phase], result["floor_seconds"][phase]
            times = f"{spent / floor:.1f}" if floor > 0 else "-"
            table.add_row(phase, f"{spent:.2f}", f"{result['flops'].get(phase, 0) / 1e9:.0f}", f"{floor:.2f}", times)
        Console(width=120).print(table)
    record = {
        "what": "seconds of each phase of a training step, and their floor",
        "model": MODEL,
        "dtype": "bf16",
        "prompt_tokens": PROMPT_TOKENS,
        "prompts": PROMPTS,
        "group": GROUP,
        "flops_per_second_of_products": rates,
        "bytes_per_second_of_reading": reading,
        "weight_bytes": weight_bytes,
        "machine": about,
        "results": results,
    }
    options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
