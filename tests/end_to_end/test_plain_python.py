"""Exported folders in a Python where keepworth is not installed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from keepworth.methods.recipes import strings
from keepworth.records.model import SamplingParams
from keepworth.training.export import export
from keepworth.training.trained import find_trained
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.recipes.tiny_runs import STRINGS, run_of

PLAIN = os.environ.get("KEEPWORTH_PLAIN_PYTHON", "")


@pytest.mark.slow
@pytest.mark.skipif(not PLAIN, reason="KEEPWORTH_PLAIN_PYTHON names no Python with transformers and without keepworth")
def test_transformers_and_peft_answer_as_the_run_does(tmp_path: Path) -> None:
    moving = {**STRINGS, "warm_start": 16, "warm_start_learning_rate": 0.05}
    run = run_of(strings, write_tiny_checkpoint(tmp_path / "base"), tmp_path / "run", **moving)
    export(run, tmp_path / "merged")
    export(run, tmp_path / "adapter", merged=False)
    model = find_trained(run).loaded()
    prompts = [stored.episode.segments[0].context for stored in run.episodes(step=2, arm="dev-policy")][:10]
    drawn = model.sample(prompts, SamplingParams(8, temperature=0.0))
    cases = [{"prompt": prompt, "answer": sample.ids} for prompt, (sample,) in zip(prompts, drawn, strict=True)]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for kind in ("merged", "adapter"):
        (tmp_path / kind / "probe.json").write_text(json.dumps({"cases": cases}))
        done = subprocess.run(
            [PLAIN, str(Path(__file__).with_name("plain_answers.py")), str(tmp_path / kind), "--dtype", "float32"],
            capture_output=True, text=True, cwd=tmp_path, env=bare, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["kind"] == kind
        assert found["same"] == found["of"] > 0
