"""Ways to run all-MiniLM-L6-v2 on this processor: texts per second, one query, and how far the vectors are from float32.

    python -m benchmarks.memory.encoder_paths --data DATA --json benchmarks/memory/encoder_paths.json

One thread. Texts are distinct real sentences (see `real_sentences`), in batches of 32 of like length. The reference is
transformers' BERT in float32, one text at a time. The engine uses the graph of `keepworth.models.onnx_graph`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.engine import at, machine, timed
from benchmarks.memory.real_sentences import sentences
from keepworth.models.encoders import SentenceEncoder
from keepworth.models.files import KNOWN, download, extract, path_of
from keepworth.models.onnx_graph import GRAPH, TOKENIZER

MODEL = "all-minilm-l6-v2"
Encode = Callable[[Sequence[str]], np.ndarray]


def torch_path(folder: Path, dtype: str) -> Encode:
    import torch
    from transformers import AutoTokenizer, BertModel

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertModel.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    def encode(texts: Sequence[str]) -> np.ndarray:
        out = np.zeros((len(texts), 384), np.float32)
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        for start in range(0, len(texts), 32):
            rows = order[start : start + 32]
            batch = tokenizer(
                [texts[row] for row in rows], padding=True, truncation=True, max_length=256, return_tensors="pt"
            )
            with torch.inference_mode():
                hidden = model(
                    input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
                ).last_hidden_state.float()
            mask = batch["attention_mask"][..., None]
            pooled = (hidden * mask).sum(1) / mask.sum(1)
            out[rows] = torch.nn.functional.normalize(pooled, dim=1).numpy()
        return out

    return encode


def onnx_path(graph: Path, folder: Path) -> Encode:
    return SentenceEncoder(graph, folder / TOKENIZER, MODEL, remember=0).encode


def whole_numbers(graph: Path, target: Path) -> Path:
    """The same graph with weights and activations of eight bits, as the library quantises it on the fly."""
    from onnxruntime.quantization import quantize_dynamic

    # The library does not know the type that its own fused operators give.
    quantize_dynamic(graph, target, extra_options={"DefaultTensorType": 1})
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    setting = machine()
    texts, questions = sentences(arguments.data, arguments.texts)
    questions = questions[:60]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        weights = Path(temporary)
        model = KNOWN[MODEL]
        extract(download(model, weights), model.files, weights)
        graph = path_of(MODEL) / GRAPH
        reference = torch_path(weights, "float32")
        truth = np.concatenate([reference([text]) for text in texts[:200]])
        paths: dict[str, Callable[[], Encode]] = {
            "ONNX, float32 (the engine's)": lambda: onnx_path(graph, graph.parent),
            "torch, float32": lambda: torch_path(weights, "float32"),
            "torch, bfloat16": lambda: torch_path(weights, "bfloat16"),
            "ONNX, dynamic int8": lambda: onnx_path(whole_numbers(graph, weights / "int8.onnx"), graph.parent),
        }
        print("| path | texts/s | one query, p50 ms | least cosine to float32 | mean |\n| --- |" + " --- |" * 4)
        for name, make in paths.items():
            encode = make()
            encode(texts[:64])
            start = time.perf_counter()
            vectors = encode(texts)
            rate = len(texts) / (time.perf_counter() - start)
            single = timed(
                [lambda question=question, encode=encode: encode([question]) for question in questions], warm=10
            )  # type: ignore[misc]
            cosine = (vectors[: len(truth)] * truth).sum(axis=1)
            rows.append(
                {
                    "path": name,
                    "texts per second": rate,
                    "one query ms": {"n": len(single), "p50": at(single, 0.5), "p95": at(single, 0.95)},
                    "cosine": {"n": len(cosine), "least": float(cosine.min()), "mean": float(cosine.mean())},
                }
            )
            print(
                f"| {name} | {rate:.0f} | {at(single, 0.5):.2f} | {cosine.min():.5f} | {cosine.mean():.5f} |",
                flush=True,
            )
    if arguments.json:
        versions = {name: version(name) for name in ("keepworth", "torch", "transformers", "onnxruntime")}
        arguments.json.write_text(
            json.dumps({"texts": len(texts), "rows": rows, "versions": versions, "machine": setting}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
