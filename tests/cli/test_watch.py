"""Watching a run that another process writes, one that is finished, and one whose process is gone."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from keepworth.cli.main import main
from keepworth.cli.watch import time_left, view_of
from keepworth.episodes.text import terminal
from keepworth.learning.run_folder import RunFolder, writer
from keepworth.learning.watch.dashboard import dashboard
from keepworth.learning.watch.progress import RunStatus, SilentProgress, StatedProgress, read_status
from tests.evaluation.sample_run import sample_run

WRITER = """
    import time
    from pathlib import Path
    from keepworth.learning.watch.progress import SilentProgress
    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.progress import StatedProgress

    with RunFolder.create(Path("runs/live"), {"seed": 0}) as run:
        progress = StatedProgress(SilentProgress(), run.path)
        progress.start(6, "learning to wait")
        for step in range(1, 7):
            progress.phase("learning")
            run.append_metrics(step, {"reward": step / 10, "ess": 0.2, "role": "r"})
            progress.step(step, {})
            if step == 2:
                Path("begun").touch()
                while not Path("go").exists():
                    time.sleep(0.01)
        run.write_result({"tables": []})
        progress.finish()
"""


@pytest.fixture
def living(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[bytes]:
    """A process that has taken two of six steps, and takes the others once the file `go` is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KEEPWORTH_RUNS", raising=False)
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER)])
    until = time.monotonic() + 120
    while not Path("begun").exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


def test_a_run_that_goes_on_is_followed_to_its_end(
    living: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(RunFolder.open("runs/live"))
    assert (view.done, view.total, view.title, view.phase) == (2, 6, "learning to wait", "learning")
    assert view.state == f"process {living.pid}"

    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        Path("go").touch()
        living.wait(60)

    # The command's own clock, not everybody's: other threads sleep, too.
    monkeypatch.setattr("keepworth.cli.watch.time", SimpleNamespace(sleep=sleep, time=time.time))
    assert main(["watch", "live", "--every", "0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"== live  learning to wait  process {living.pid}"
    assert [line for line in lines if line.startswith("step")] == [f"step {i}  reward 0.{i}00" for i in range(1, 7)]
    assert [line.split(":")[0] for line in lines if line.startswith("!!")] == ["!! collapsing sample size"]
    assert lines[-1] == "== finished  step 6/6"
    assert waited == [0.5]


def test_a_run_whose_process_was_killed_is_said_to_be_stopped(
    living: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    living.kill()
    living.wait()
    assert main(["watch", "live"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "== stopped  step 2"


def test_leaving_with_ctrl_c_is_quiet_and_leaves_the_run_alone(living: subprocess.Popen[bytes]) -> None:
    command = [sys.executable, "-m", "keepworth", "watch", "live"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith("== live")
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)
    assert watching.returncode == 130
    assert said == ""
    assert living.poll() is None
    Path("go").touch()
    assert living.wait(60) == 0
    assert not (Path("runs/live") / "status.json").exists()


def test_a_finished_run_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample_run(tmp_path / "done", steps=12)
    assert main(["watch", "done", "--runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "== done  finished"
    assert "step 16" in out
    assert main(["watch", "done", "--runs", str(tmp_path), "--json"]) == 0
    first, *between, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first == {"run": "done", "title": "", "state": "finished"}
    assert [each["step"] for each in between if "reward" in each] == list(range(7, 17))
    assert (last["state"], last["step"]) == ("finished", 16)
    with RunFolder.create(tmp_path / "held", {}) as run:
        run.append_eval(0, arm="trained", metric="f1", mean=0.5, low=0.4, high=0.6, n=9)
        run.append_metrics(1, {"reward": 0.5})
    assert main(["watch", "held", "--runs", str(tmp_path), "--json", "--once"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["value"] for each in lines if "held_out" in each] == [0.5]


def test_there_is_nothing_to_watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--runs", str(tmp_path)]) == 2
    assert main(["watch", "dun", "--runs", str(tmp_path)]) == 2
    assert "There is no run" in capsys.readouterr().err


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 60), (120, 40), (40, 10)])
def test_the_picture_fits_the_terminal(tmp_path: Path, width: int, height: int) -> None:
    view = view_of(sample_run(tmp_path / "r", steps=12))
    stream = io.StringIO()
    terminal(file=stream, width=width, height=height).print(dashboard(view, width, height - 1))
    lines = stream.getvalue().splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert any(line.startswith("reward") for line in lines)


def test_the_held_out_curve_of_the_trained_role_is_shown(tmp_path: Path) -> None:
    run = sample_run(tmp_path / "r", steps=10, finished=False)
    rows = [row for row in run.metrics() if row["role"] == "answerer"]
    (run.path / "metrics.jsonl").unlink()
    for row in rows:
        run.append_metrics(int(row["step"]), {k: v for k, v in row.items() if k not in ("step", "time")})
    labels = [curve.label for curve in view_of(run).held_out]
    assert "Token F1, dev: with memory" in labels
    assert all("Exact" not in label for label in labels)


def test_the_time_left_is_that_of_the_latest_steps() -> None:
    status = RunStatus("t", 20, 10, "learning", 0.0)
    assert time_left([0.0, 100.0, *(102.0 + 2 * i for i in range(19))], status, 138.0) == pytest.approx(20.0)
    assert time_left([0.0, 4.0], status, 5.0) == pytest.approx(39.0)
    assert time_left([0.0], status, 5.0) is None
    assert time_left([0.0, 4.0], RunStatus(), 5.0) is None


def test_the_status_says_what_is_done_and_goes_with_the_work(tmp_path: Path) -> None:
    progress = StatedProgress(SilentProgress(), tmp_path)
    progress.start(3, "title")
    progress.phase("measuring")
    progress.step(2, {"reward": 1.0})
    found = read_status(tmp_path)
    assert found is not None
    assert (found.title, found.done, found.total, found.phase) == ("title", 2, 3, "measuring")
    progress.finish()
    assert read_status(tmp_path) is None
    (tmp_path / "status.json").write_text('{"title": 3')
    assert read_status(tmp_path) is None


def test_who_writes_is_known_and_asking_disturbs_nobody(tmp_path: Path) -> None:
    assert writer(tmp_path) is None
    with RunFolder.create(tmp_path / "r", {}) as run:
        assert writer(run.path) == str(os.getpid())
    assert writer(run.path) is None
    with RunFolder.create(tmp_path / "r", {}):
        pass
