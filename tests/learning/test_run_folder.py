"""Run folders: what is written is read back, a kill at any moment loses at most what is later than the checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.training.front_door import track_of
from keepworth.training.run_folder import RunConflict, RunFolder, episode_files, find_run
from tests.learning.run_folders import CONFIG, episode, measure, save


def test_run_folder_round_trips(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        run.record_environment(threads=1, dtype="bfloat16")
        run.append_metrics(1, {"reward": 0.25, "seconds/sample": 1.5})
        measure(run, 0)
        run.write_episodes(1, [episode("a"), episode("b", role="manager")])
        run.write_episodes(0, [episode("c")], arm="untrained")
        run.write_result({"tables": []})
    read = RunFolder.open(tmp_path / "r")
    assert read.config == CONFIG
    assert read.environment["threads"] == 1
    assert read.environment["python"].startswith("3.")
    record = json.loads((tmp_path / "r" / "config.json").read_text())  # plain JSON
    assert (record["config"], record["environment"]["dtype"]) == (CONFIG, "bfloat16")
    assert [(row["step"], row["reward"], row["seconds/sample"]) for row in read.metrics()] == [(1, 0.25, 1.5)]
    assert read.evals()[0]["low"] == pytest.approx(0.3)
    kept = [(each.step, each.arm, each.episode.id) for each in read.episodes()]
    assert kept == [(0, "untrained", "c"), (1, "train", "a"), (1, "train", "b")]
    assert [each.episode.id for each in read.episodes(role="manager")] == ["b"]
    assert read.result() == {"tables": []}


def test_episodes_and_measurements_of_a_step_that_is_made_again_replace_the_first(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        for name, mean in (("a", 0.1), ("b", 0.2)):
            run.write_episodes(3, [episode(name)])
            measure(run, 5, mean)
        assert [each.episode.id for each in run.episodes(step=3)] == ["b"]
        assert [row["mean"] for row in run.evals()] == [0.2]


def test_resuming_removes_unfinished_files_of_a_killed_process(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        run.append_metrics(1, {"reward": 0.1})
        save(run, 1)
    for place in (".metrics.jsonl.9-ab.part", "episodes/.step-000002.train.jsonl.gz.9-ab.part"):
        (run.path / place).write_bytes(b"{")
    (run.path / "checkpoints" / ".step-000002.part").mkdir()
    RunFolder.create(tmp_path / "r", CONFIG).close()
    assert [*run.path.rglob("*.part")] == []
    assert [row["step"] for row in run.metrics()] == [1]


def test_resuming_drops_records_after_the_checkpoint(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        for step in range(1, 6):
            run.append_metrics(step, {"reward": step / 10})
            run.write_episodes(step, [episode(f"e{step}")])
            if step in (2, 4):
                measure(run, step)
                save(run, step)
        measure(run, 5)
    with open(tmp_path / "r" / "metrics.jsonl", "a") as torn:
        torn.write('{"step": 6, "rew')
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        assert run.resumed_from == 4
        assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4]
        assert [row["step"] for row in run.evals()] == [2, 4]
        assert [each.step for each in run.episodes()] == [1, 2, 3, 4]
        run.append_metrics(5, {"reward": 0.5})
        assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4, 5]


def test_without_a_checkpoint_it_begins_again(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        run.append_metrics(1, {"reward": 0.1})
        run.write_episodes(1, [episode("a")])
        (run.path / "weights" / "answerer").mkdir(parents=True)
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        assert run.resumed_from is None
        assert not (run.path / "weights" / "answerer").exists()
        assert run.metrics() == []
        assert list(run.episodes()) == []


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 4)
        run.append_metrics(5, {"reward": 0.1})
        run.write_result({"tables": []})
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        assert [row["step"] for row in run.metrics()] == [5]


def test_another_configuration_is_refused_by_key_and_way_out(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        run.append_metrics(1, {"reward": 0.5})
    other = {"seed": 0, "learning": {"rate": 3e-4, "steps": 45}, "data": "x"}
    with pytest.raises(RunConflict) as caught:
        RunFolder.create(tmp_path / "r", other)
    for part in ("learning.rate: 0.0001 -> 0.0003", "data: '(absent)' -> 'x'", "--name", "--fresh"):
        assert part in str(caught.value)
    assert "seed" not in str(caught.value)


def test_fresh_deletes_run_files_only(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 1)
        run.append_metrics(1, {})
    (tmp_path / "r" / "notes.txt").write_text("mine")
    with RunFolder.create(tmp_path / "r", {"seed": 1}, resume=False) as run:
        assert run.metrics() == []
        assert run.latest_checkpoint() is None
        assert run.config == {"seed": 1}
    assert (tmp_path / "r" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("name", ["weights/a.bin", "notes.txt", "metrics.jsonl", "config.json"])
def test_foreign_files_are_not_replaced(tmp_path: Path, name: str, resume: bool) -> None:
    foreign = tmp_path / "r" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_text('{"config": "of something else"}')
    with pytest.raises(RunConflict, match="holds files, but no record of a run") as caught:
        RunFolder.create(tmp_path / "r", CONFIG, resume=resume)
    assert "--name" in caught.value.fix
    assert [path for path in (tmp_path / "r").rglob("*") if path.is_file()] == [foreign]
    assert foreign.read_text() == '{"config": "of something else"}'


def test_a_first_start_that_failed_does_not_keep_the_name(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", {"model": "smolm"}) as run:
        run.record_environment(threads=7)
        run.write_episodes(0, [episode("a")], arm="untrained")
    with RunFolder.create(tmp_path / "r", {"model": "smollm"}) as run:
        assert run.config == {"model": "smollm"}
        assert "threads" not in run.environment
        assert list(run.episodes()) == []


def write_weights(run: RunFolder) -> None:
    with run.writing_weights("answerer") as folder:
        (folder / "w").write_text("x")


@pytest.mark.parametrize("begin", [
    lambda run: run.append_metrics(1, {}), lambda run: measure(run, 0), lambda run: save(run, 1), write_weights,
    lambda run: run.write_result({"tables": []}),
], ids=["metric", "eval", "checkpoint", "weights", "result"])  # fmt: skip
def test_a_run_that_has_begun_keeps_its_configuration(tmp_path: Path, begin: Callable[[RunFolder], None]) -> None:
    with RunFolder.create(tmp_path / "r", {"seed": 0}) as run:
        begin(run)
    with pytest.raises(RunConflict, match="seed: 0 -> 1"):
        RunFolder.create(tmp_path / "r", {"seed": 1})


def test_finished_weights_stay_while_their_checkpoint_or_a_later_one_does(tmp_path: Path) -> None:
    """The demo skips a role whose weights are there: they must not outlive the measurements that belong to them."""
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 2)
        save(run, 4)
        measure(run, 4)
        write_weights(run)
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        assert (run.path / "weights" / "answerer" / "w").read_text() == "x"
        assert len(run.evals()) == 1
        shutil.rmtree(run.path / "checkpoints" / "step-000004")
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        assert run.resumed_from == 2
        assert not (run.path / "weights" / "answerer").exists()
        assert run.evals() == []


def test_two_writers_are_one_too_many_and_a_reader_needs_no_lock(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        run.append_metrics(1, {"reward": 1.0})
        assert len(RunFolder.open(tmp_path / "r").metrics()) == 1
        with pytest.raises(KeepworthError, match=str(os.getpid())):
            RunFolder.create(tmp_path / "r", CONFIG)
    RunFolder.create(tmp_path / "r", CONFIG).close()


def test_the_latest_checkpoints_stay(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        for step in (1, 2, 3, 10):
            save(run, step)
        assert [checkpoint.step for checkpoint in run.checkpoints()] == [3, 10]


def test_other_names_beside_ours_are_left_alone(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 3)
        run.write_episodes(3, [episode("a")])
        for name in ("checkpoints/step-000003-mine", "checkpoints/step-last"):
            (run.path / name).mkdir()
        for name in ("step-copy.jsonl.gz", "step-000009.jsonl.gz", "step-x.train.jsonl.gz"):
            (run.path / "episodes" / name).write_text("")
        assert [checkpoint.step for checkpoint in run.checkpoints()] == [3]
        assert [(step, arm) for step, arm, _ in episode_files(run.path)] == [(3, "train")]
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        assert run.resumed_from == 3
        assert (run.path / "episodes" / "step-x.train.jsonl.gz").exists()


def test_an_unknown_run_gets_the_nearest_name(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "demo-quick", CONFIG).close()
    with pytest.raises(UnknownName, match="demo-quick") as caught:
        find_run("demo-quik", tmp_path)
    assert caught.value.nearest == "demo-quick"
    assert find_run(str(tmp_path / "demo-quick"), Path("elsewhere")).name == "demo-quick"


def test_a_killed_process_leaves_a_folder_that_continues(tmp_path: Path) -> None:
    """The writer is killed with SIGKILL in the midst of its work, several times over."""
    script = textwrap.dedent(f"""
        from keepworth.training.run_folder import RunFolder
        run = RunFolder.create({str(tmp_path / "r")!r}, {CONFIG!r})
        first = (run.resumed_from or 0) + 1
        for step in range(first, 100_000):
            run.append_metrics(step, {{"reward": step}})
            with run.checkpoint(step) as folder:
                for part in range(3):
                    (folder / f"{{part}}.bin").write_bytes(bytes([step % 256]) * 4096)
    """)
    last = 0
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", script])
        try:
            while writer.poll() is None and not (tmp_path / "r" / "checkpoints" / f"step-{last + 3:06d}").exists():
                time.sleep(0.002)
        finally:
            writer.kill()
            writer.wait()
        with RunFolder.create(tmp_path / "r", CONFIG) as run:
            checkpoint = run.latest_checkpoint()
            assert checkpoint is not None
            assert checkpoint.step > last
            last = checkpoint.step
            assert [row["step"] for row in run.metrics()] == list(range(1, last + 1))
            assert (checkpoint.path / "2.bin").read_bytes() == bytes([last % 256]) * 4096


def test_a_function_receives_the_numbers_of_each_step(tmp_path: Path) -> None:
    rows: list[tuple[int, Mapping[str, float]]] = []
    with RunFolder.create(tmp_path / "run", {}) as run:
        run.track = lambda step, numbers: rows.append((step, dict(numbers)))
        run.append_metrics(1, {"reward": 0.5, "role": "policy", "loss": float("inf")})
        run.append_metrics(2, {"reward": 0.75})
    assert [(step, numbers["reward"]) for step, numbers in rows] == [(1, 0.5), (2, 0.75)]
    assert all("loss" not in numbers and "role" not in numbers for _, numbers in rows)


def test_a_function_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def log(step, numbers):\n    return step\n")
    function = track_of(f"{tmp_path}/mine.py:log")
    assert callable(function)
    assert function(3, {}) == 3
    assert track_of("") is None
    with pytest.raises(KeepworthError, match="Did you mean 'tensorboard'"):
        track_of("tensorbord")
