"""A run that is killed continues as if it had not been: same weights, same rows, same episodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.cli.main import main
from keepworth.training.run_folder import RunFolder
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.recipes.tiny_runs import TINY

SETTINGS = {
    **TINY, "steps": 6, "patience": 0, "group_size": 4, "checkpoint_every": 2, "evaluate_every": 4, "learning_rate": 0.01,
    "entropy": 0.1,  # a random model is never right: without the bonus there would be nothing to learn from
}  # fmt: skip
OF_ROLE = {
    "answerer": {"memories": "1", "words": "12", "max_tokens": "4"},
    "manager": {"role": "manager", "maintained": "false", "warm_start": "8", "warm_start_batch": "4"},
}
TIMINGS = ("time", "seconds/")


def command(model: Path, runs: Path, name: str, role: str) -> list[str]:
    settings = {"model": str(model), **SETTINGS, **OF_ROLE[role]}
    assigned = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "keepworth", "train", "memory_r1", "--runs", str(runs), "--name", name, *assigned]


def stop_at_step(arguments: list[str], folder: Path, step: int, how: signal.Signals) -> int:
    """Start, wait for the row of `step`, send the signal; returns the exit code."""
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = folder / "metrics.jsonl"
    while not (metrics.exists() and f'"step":{step},' in metrics.read_text()):
        assert running.poll() is None, running.communicate()[0]
        time.sleep(0.02)
    os.kill(running.pid, how)
    output = running.communicate()[0]
    if how is signal.SIGINT:
        assert "To continue: " in output
        assert "Traceback" not in output
    return running.returncode


def rows(run: RunFolder) -> list[str]:
    plain = [{k: v for k, v in row.items() if not k.startswith(TIMINGS)} for row in (*run.metrics(), *run.evals())]
    return [json.dumps(row, sort_keys=True) for row in plain]


def episodes(run: RunFolder) -> list[tuple[int, str, str, tuple[int, ...], float]]:
    return [(s.step, s.arm, s.episode.id, s.episode.segments[0].ids, s.episode.reward) for s in run.episodes()]


def state(run: RunFolder) -> Any:
    last = run.latest_checkpoint()
    assert last is not None
    return torch.load(last.path / "learner.pt", weights_only=True)["learner"]["master_weights"]


@pytest.mark.parametrize(
    ("role", "step", "how"),
    [
        ("answerer", 3, signal.SIGKILL),
        pytest.param("answerer", 5, signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("manager", 3, signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_ends_like_a_straight_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], role: str, step: int, how: signal.Signals
) -> None:
    model = write_tiny_checkpoint(tmp_path / "model")
    runs = tmp_path / "runs"
    stopped = command(model, runs, "stopped", role)
    code = stop_at_step(stopped, runs / "stopped", step, how)
    assert code == (130 if how is signal.SIGINT else -signal.SIGKILL)
    for each in (stopped, command(model, runs, "straight", role)):
        assert main(each[3:]) == 0
    assert "from step" in capsys.readouterr().out
    straight, resumed = RunFolder.open(runs / "straight"), RunFolder.open(runs / "stopped")
    assert rows(straight) == rows(resumed)
    assert episodes(straight) == episodes(resumed)
    one, other = state(straight), state(resumed)
    assert set(one) == set(other)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(row["gradient_norm"] > 0 for row in straight.metrics()), "nothing was trained"
