"""Whether tokens are drawn faster from weights in 8 bits: each product, the whole decoding step, and the log-probabilities.

    python -m benchmarks.speed.int8 --threads 2 --json benchmarks/speed/int8.json
    python -m benchmarks.speed.int8 --threads 1 --json benchmarks/speed/int8.json     # added to the same file
    python -m benchmarks.speed.page

Weights are rounded to 8 bits for each output, inputs at each call; the adapter stays in bfloat16. PyTorch has three products
for that on processors. Nothing of it is in `keepworth`: the step is taken apart here.

With one thread, times are those of the processor, which hardly feel a busy machine. With more they are those on the wall, on a
machine that has to be idle.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.setting import MODEL, machine, prompts
from keepworth.episodes.model import SamplingParams, Tokens
from keepworth.models.adapter import attach_lora
from keepworth.models.decoding_step import DecodingStep, Product
from keepworth.models.files import path_of
from keepworth.models.inprocess import InProcessModel

SHAPES = (
    (16, 576, 1536),
    (16, 1536, 576),
    (16, 576, 576),
    (16, 576, 960),
    (16, 576, 3072),
    (16, 576, 49152),
    (8, 576, 3072),
    (8, 1536, 576),
    (8, 576, 49152),
    (64, 576, 3072),
    (64, 1536, 576),
    (64, 576, 49152),
)
"""Rows, inputs, outputs. 960: queries, keys and values; 3072: gate and up; 49152: the head."""
STEPS = {"1 x 8": (1, 8), "2 x 8": (2, 8), "1 x 64": (1, 64)}
PROMPT, TOKENS, ROUNDS = 400, 24, 3
COLD = 150_000_000
"""Bytes of weights that are multiplied in turn, so that they come from memory as in a network, and not from a cache."""
Multiply = Callable[[torch.Tensor], torch.Tensor]


def packed(weight: torch.Tensor) -> Multiply:
    """What `keepworth` does, in bfloat16."""
    copied = torch.ops.mkldnn._reorder_linear_weight(weight, 16)
    return lambda rows: torch.ops.mkldnn._linear_pointwise(rows, copied, None, "none", [], "")


def linear_dynamic(weight: torch.Tensor) -> Multiply:
    whole, scale = rounded(weight)
    nowhere = torch.zeros(len(scale), dtype=torch.int64)
    kept = torch.ops.quantized.linear_prepack(
        torch._make_per_channel_quantized_tensor(whole, scale.double(), nowhere, 0), None
    )
    return lambda rows: torch.ops.quantized.linear_dynamic(rows.float(), kept, False).to(rows.dtype)


def qlinear(weight: torch.Tensor) -> Multiply:
    multiply = _qlinear(weight)

    def call(rows: torch.Tensor) -> torch.Tensor:
        scale = max(float(rows.abs().max()) / 127, 1e-8)
        return multiply((rows * (1 / scale)).round_().add_(128).to(torch.uint8), scale)

    return call


def qlinear_alone(weight: torch.Tensor) -> Multiply:
    """Of rows that were rounded before: what is left if rounding them took no time."""
    multiply = _qlinear(weight)
    return lambda rows: multiply(rows, 0.01)


def _qlinear(weight: torch.Tensor) -> Callable[[torch.Tensor, float], torch.Tensor]:
    whole, scales = rounded(weight)
    kept = torch.ops.onednn.qlinear_prepack(whole, [16, weight.shape[1]])
    nowhere = torch.zeros(len(scales), dtype=torch.int64)
    after: tuple[Any, ...] = (torch.bfloat16, "none", [], "")
    return lambda rows, scale: torch.ops.onednn.qlinear_pointwise(
        rows, scale, 128, kept, scales, nowhere, None, 1.0, 0, *after
    )


def int_mm(weight: torch.Tensor) -> Multiply:
    """Each row with a scale of its own."""
    whole, scales = rounded(weight)
    across = whole.t().contiguous()

    def call(rows: torch.Tensor) -> torch.Tensor:
        scale = rows.abs().amax(-1, keepdim=True).float().clamp_(min=1e-8) / 127
        found = torch._int_mm((rows / scale).round_().to(torch.int8), across)
        return found.mul(scale).mul_(scales).to(rows.dtype)

    return call


def rounded(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers [out, in] from -127 to 127, and the scale of each output [out]."""
    scale = (weight.float().abs().amax(1) / 127).clamp(min=1e-8)
    return (weight.float() / scale[:, None]).round().to(torch.int8), scale


BF16 = "bf16"
WAYS: dict[str, Callable[[torch.Tensor], Multiply]] = {
    "linear_dynamic": linear_dynamic,
    "qlinear": qlinear,
    "_int_mm": int_mm,
}
ALONE = "qlinear, rows rounded before"


@torch.inference_mode()
def products() -> dict[str, dict[str, float]]:
    """Microseconds of each product."""
    found = {}
    for rows, inputs, outputs in SHAPES:
        copies = max(1, min(30, COLD // (2 * inputs * outputs)))
        weights = [(torch.randn(outputs, inputs) / inputs**0.5).bfloat16() for _ in range(copies)]
        given = torch.randn(rows, inputs).bfloat16()
        whole = torch.randint(0, 255, (rows, inputs), dtype=torch.uint8)
        spent = {BF16: _microseconds(packed, weights, given)}
        spent |= {name: _microseconds(make, weights, given) for name, make in WAYS.items()}
        spent[ALONE] = _microseconds(qlinear_alone, weights, whole)
        name = f"{rows} x {inputs} x {outputs}"
        found[name] = spent
        print(name, ", ".join(f"{way} {each:.0f}" for way, each in spent.items()), flush=True)
    return found


def _microseconds(
    make: Callable[[torch.Tensor], Multiply], weights: Sequence[torch.Tensor], given: torch.Tensor
) -> float:
    """The least of four rounds through all weights."""
    calls = [make(each) for each in weights]
    times = max(1, 30 // len(calls))
    best, clock = float("inf"), _clock()
    for _ in range(5):  # the first builds kernels
        begun = clock()
        for _ in range(times):
            for call in calls:
                call(given)
        best = min(best, (clock() - begun) / (times * len(calls)))
    return 1e6 * best


def _clock() -> Callable[[], float]:
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


@dataclass(frozen=True, slots=True)
class _Rounded:
    """A `Product` whose weight is in 8 bits; its adapter is as it was."""

    product: Product
    multiply: Multiply

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        found = self.multiply(rows)
        if self.product.down is None or self.product.up is None:
            return found
        return found.addmm_(rows @ self.product.down, self.product.up, alpha=self.product.scale)


def adapted() -> InProcessModel:
    """The model with an adapter that changes what it draws."""
    model = InProcessModel.load(path_of(MODEL), name=MODEL, precision="bf16")
    drawn = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in attach_lora(model, 16).items():
            if "lora_B" in name:
                value.copy_(torch.randn(value.shape, generator=drawn) * 0.02)
    return model


class Steps:
    """A model whose decoding step has its products in one of the ways; from here on it is drawn from in that way."""

    def __init__(self, model: InProcessModel) -> None:
        self.model = model
        self.way = BF16
        self._own = model._step
        self._copies: dict[tuple[str, int], Multiply] = {}
        vars(model)["_step"] = self._step

    @cached_property
    def texts(self) -> list[Tokens]:
        return [self.model.encode(text) for text in prompts(self.model.tokenizer, 2, PROMPT)]

    def _step(self) -> DecodingStep | None:
        step = self._own()
        if self.way == BF16:
            return step
        assert step is not None
        layers = zip(step._layers, step._decoder.layers, strict=True)
        vars(step)["_layers"] = [
            replace(
                layer,
                heads=self._product(layer.heads, "qkv", module.self_attn, ("q_proj", "k_proj", "v_proj")),
                out=self._product(layer.out, "o", module.self_attn, ("o_proj",)),
                gates=self._product(layer.gates, "gates", module.mlp, ("gate_proj", "up_proj")),
                down=self._product(layer.down, "down", module.mlp, ("down_proj",)),
            )
            for layer, module in layers
        ]
        vars(step)["_head"] = self._product(step._head, "head", self.model._causal_model(), ("lm_head",))
        return step

    def _product(self, product: Product, kind: str, parent: Any, names: Sequence[str]) -> Any:
        place = f"{self.way} {kind}", id(parent)
        if place not in self._copies:
            parts = [getattr(parent, name) for name in names]
            weights = [getattr(each, "base_layer", each).weight for each in parts]
            self._copies[place] = WAYS[self.way](torch.cat([each.detach() for each in weights]))
        return _Rounded(product, self._copies[place])

    def seconds(self, count: int, group: int, tokens: int, seed: int) -> float:
        clock = _clock()
        begun = clock()
        self.model.sample(self.texts[:count], SamplingParams(tokens, n=group, seed=seed))
        return clock() - begun

    def milliseconds(self, count: int, group: int) -> dict[str, float]:
        """Of a step, by way: what all tokens after the first take. The least of some rounds, because others only add to it."""
        one: dict[str, list[float]] = {way: [] for way in (BF16, *WAYS)}
        all_: dict[str, list[float]] = {way: [] for way in one}
        for turn in range(ROUNDS + 1):
            for self.way in list(one)[:: 1 if turn % 2 else -1]:
                some = self.seconds(count, group, 1, turn), self.seconds(count, group, TOKENS if turn else 2, turn)
                if turn:  # the first makes the copies
                    one[self.way].append(some[0])
                    all_[self.way].append(some[1])
        return {way: 1e3 * (min(all_[way]) - min(one[way])) / (TOKENS - 1) for way in one}

    def gaps(self) -> dict[str, dict[str, float]]:
        """Absolute differences in nats between the log-probabilities of the sampler and of the learner, who keeps bfloat16."""
        found = {}
        for self.way in (BF16, *WAYS):
            drawn = self.model.sample(self.texts, SamplingParams(64, n=8, seed=1))
            scored = self.model.score(self.texts, [[each.ids for each in own] for own in drawn])
            gap = np.array(
                [
                    abs(a - b)
                    for own, rows in zip(drawn, scored, strict=True)
                    for each, row in zip(own, rows, strict=True)
                    for a, b in zip(each.logprobs, row, strict=True)
                ]
            )
            found[self.way] = {"n": len(gap), "mean": float(gap.mean()), "largest": float(gap.max())}
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*deprecated.*")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    made: dict[str, Any] = {"machine": machine(options.threads), "products": products(), "steps": {}}
    steps = Steps(adapted())
    for name, (count, group) in STEPS.items():
        made["steps"][name] = steps.milliseconds(count, group)
        print(f"a step of {name}, ms:", {way: round(each, 1) for way, each in made["steps"][name].items()}, flush=True)
    made["mismatch"] = steps.gaps()
    print("nats from the learner:", made["mismatch"])
    if options.json is not None:
        before = json.loads(options.json.read_text()) if options.json.exists() else {}
        kept = {"prompt": PROMPT, "by_threads": {**before.get("by_threads", {}), str(options.threads): made}}
        options.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
