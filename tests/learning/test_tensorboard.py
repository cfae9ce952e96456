"""TensorBoard reads back what the run holds, each step once."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from keepworth.cli.main import main
from keepworth.episodes import extras
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.dashboard import Events, require_tensorboard


def scalars(run: RunFolder) -> dict[str, list[tuple[int, float]]]:
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = loading.EventAccumulator(str(run.path / "tensorboard"))
    found.Reload()
    return {name: [(e.step, e.value) for e in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_rows_become_scalars_and_a_continued_run_has_no_step_twice(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with RunFolder.create(tmp_path / "r", {}) as run:
        run.append_metrics(1, {"reward": 0.25, "role": "answerer"})
        for step in (2, 3):
            events = Events(run)
            run.append_metrics(step, {"reward": step / 4, "role": "answerer", "loss": math.nan, "words": "no number"})
            run.append_eval(
                step, arm="with memory", metric="f1", mean=0.5, low=0.4, high=0.6, n=9, role="answerer", split="dev"
            )
            events.close()
        run.append_metrics(4, {"reward": 1.0, "role": "answerer"})  # nobody listens any more
    assert scalars(run) == {
        "answerer/reward": [(1, 0.25), (2, 0.5), (3, 0.75)],
        "answerer/held-out/dev/f1/with_memory": [(2, 0.5), (3, 0.5)],
    }


def test_without_the_package_the_extra_is_named_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "tensorboard" else object())
    with pytest.raises(KeepworthError, match="--tensorboard needs tensorboard"):
        require_tensorboard()
    assert main(["train", "memory_r1", "--tensorboard", "--runs", str(tmp_path / "runs")]) == 2
    assert 'pip install "keepworth[tensorboard]"' in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
