"""By how much the sampler's log-probabilities differ from the learner's, for the same tokens and weights.

    python -m benchmarks.speed.mismatch --json benchmarks/speed/mismatch.json

Two prompts, eight answers to each, an adapter of rank 16 whose B is drawn (it is zero before any training). What was sampled
is scored as the learner does it. Absolute differences in nats (of the logarithm of a token's probability), by length of the
answers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.speed.setting import MODEL, machine, prompts
from keepworth.episodes.model import Sample, SamplingParams, Tokens
from keepworth.models.adapter import attach_lora
from keepworth.models.files import path_of
from keepworth.models.inprocess import InProcessModel

GROUP, PROMPT, SPREAD = 8, 200, 0.02
LENGTHS = (24, 100, 220, 224)


def drawn_adapter(model: InProcessModel) -> dict[str, torch.Tensor]:
    """An adapter of rank 16 whose B is not zero."""
    drawn = torch.Generator().manual_seed(3)
    named = attach_lora(model, 16)
    with torch.no_grad():
        for name, value in named.items():
            if "lora_B" in name:
                value.copy_(torch.randn(value.shape, generator=drawn) * SPREAD)
    return named


def against_scored(
    model: InProcessModel, texts: Sequence[Tokens], sampled: Sequence[Sequence[Sample]]
) -> npt.NDArray[np.float64]:
    """Of every sampled token, the absolute difference of its log-probability to that with which the learner scores it."""
    scored = model.score(texts, [[sample.ids for sample in samples] for samples in sampled])
    return np.array(
        [
            abs(a - b)
            for samples, rows in zip(sampled, scored, strict=True)
            for sample, row in zip(samples, rows, strict=True)
            for a, b in zip(sample.logprobs, row, strict=True)
        ]
    )


def _summary(gaps: npt.NDArray[np.float64]) -> dict[str, float]:
    return {"n": len(gaps), "mean": float(gaps.mean()), "largest": float(gaps.max())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result = {"machine": machine(options.threads), "group": GROUP, "prompt": PROMPT, "lengths": {}}
    model = InProcessModel.load(path_of(MODEL), name=MODEL, precision="bf16")
    drawn_adapter(model)
    texts = [model.encode(text) for text in prompts(model.tokenizer, 2, PROMPT)]
    for tokens in LENGTHS:
        params = SamplingParams(tokens, n=GROUP, seed=1)
        summary = result["lengths"][tokens] = _summary(against_scored(model, texts, model.sample(texts, params)))
        print(f"{tokens} tokens: mean {summary['mean']:.4f}, largest {summary['largest']:.2f} nats", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
