"""A real vLLM on this machine's processor: all that the adapter needs of it, and a short training that samples there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("KEEPWORTH_ENGINE_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="`make test-engine` names a Python that has vLLM (KEEPWORTH_ENGINE_PYTHON)"),
    pytest.mark.timeout(1500),
]
STARTS = 600
"""Seconds that vLLM may take to answer."""


@pytest.fixture(scope="module")
def folder() -> Path:
    from keepworth.base.model_files import ModelKind, path_of

    return path_of("smollm2-135m-instruct", kind=ModelKind.LANGUAGE)


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(str(Path(PYTHON).parent / "vllm"), "serve", str(folder), "--host", "127.0.0.1", "--port", str(port)),
        # One sequence at a time: with several of unequal length, this build's adapter kernel ends the engine.
        *("--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "1", "--enable-lora", "--max-loras", "3"),
        *("--max-lora-rank", "16", "--logprobs-mode", "processed_logprobs", "--enable-scale-out"),
    ]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    bare |= {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    log = tmp_path_factory.mktemp("vllm") / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, env=bare, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(server, address, log)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait_for(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    for _ in range(STARTS):
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None:
                break
        time.sleep(1)
    pytest.fail("vLLM does not answer; its last lines:\n" + log.read_text(errors="replace")[-3000:])


def test_all_that_the_adapter_needs(url: str, folder: Path, tmp_path: Path) -> None:
    from benchmarks.engines.released import Steps
    from keepworth.models.http_engine import HttpModel

    found: dict[str, Any] = {}
    with HttpModel.connect(url, folder, adapters=True, max_staleness=1) as engine:
        steps = Steps(engine, folder, found)
        steps.sampling(1)
        steps.scoring()
        steps.adapters(tmp_path)
    assert [name for name, each in found.items() if not each["ok"]] == []
    assert sum("published and proven" in name for name in found) == 4
    assert found["six sequences scored at once"]["mean_gap_nats"] < 0.1, "two bfloat16 programs differ by so much"


def test_a_training_samples_there(url: str, folder: Path, tmp_path: Path) -> None:
    from keepworth.methods.recipes import arithmetic
    from keepworth.training.front_door import find_recipe
    from keepworth.training.run_folder import RunFolder
    from keepworth.training.watch.progress import Progress

    config = arithmetic.Config(
        model=str(folder), engine=url, sampling="overlap", precision="bf16", threads=1, steps=3, patience=0, tasks_per_step=2,
        group_size=2, evaluate_every=3, checkpoint_every=1, questions=2, answer="number", max_tokens=8, slots=2,
    )  # fmt: skip
    with RunFolder.create(tmp_path / "run", config.model_dump(mode="json")) as run:
        find_recipe("arithmetic").train(config, run, Progress())
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    segments = [segment for stored in run.episodes(arm="train") for segment in stored.episode.segments]
    assert len({span.version for segment in segments for span in segment.spans}) > 1, "published weights were sampled"
    assert "vllm" in str(run.environment["engine"]).lower()
