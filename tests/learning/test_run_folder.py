"""Run folders: what is written is read back, a kill at any moment loses at most what is later than the checkpoint."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.episodes import Episode, RewardTerm, StopReason
from recollect.episodes.errors import RecollectError, UnknownName
from recollect.learning.disk import check_writable
from recollect.learning.run_folder import (
    CheckpointCorrupt,
    DiskTrouble,
    NotOurs,
    RunConflict,
    RunFolder,
    RunLocked,
    disk,
    find_run,
    flatten,
    list_runs,
)

CONFIG = {"seed": 0, "learning": {"rate": 1e-4, "steps": 45}}


def episode(name: str, reward: float = 0.5, role: str = "answerer") -> Episode:
    return Episode(
        id=name,
        task="t",
        role=role,
        question="who?",
        segments=(),
        answer="Ada",
        expected=("Ada",),
        rewards=(RewardTerm("f1", reward),),
        stop=StopReason.COMPLETED,
        memory_snapshot="s",
        policy_version=0,
    )


def save(run: RunFolder, step: int, text: str = "weights") -> None:
    with run.checkpoint(step) as folder:
        (folder / "adapter").mkdir()
        (folder / "adapter" / "a.bin").write_text(text)
        (folder / "state.json").write_text("{}")


def half_saved(folder: Path, error: Exception) -> None:
    """A save that fails midway."""
    (folder / "half").write_text("x")
    raise error


def full(path: Path) -> Path:
    path.symlink_to("/dev/full")
    return path


def measure(run: RunFolder, step: int, mean: float = 0.4) -> None:
    run.append_eval(step, arm="trained", metric="f1", mean=mean, low=mean - 0.1, high=mean + 0.1, n=54)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG, environment={"threads": 1}) as run:
        run.append_metrics(1, {"reward": 0.25, "seconds/sample": 1.5})
        measure(run, 0)
        run.write_episodes(1, [episode("a"), episode("b", role="manager")])
        run.write_episodes(0, [episode("c")], arm="untrained")
        run.write_result({"tables": []})
    read = RunFolder.open(tmp_path / "r")
    assert read.config == CONFIG
    assert read.environment["threads"] == 1
    assert read.environment["python"].startswith("3.")
    assert [(row["step"], row["reward"], row["seconds/sample"]) for row in read.metrics()] == [(1, 0.25, 1.5)]
    assert read.evals()[0]["low"] == pytest.approx(0.3)
    assert [(each.step, each.arm, each.episode.id) for each in read.episodes()] == [
        (0, "untrained", "c"),
        (1, "train", "a"),
        (1, "train", "b"),
    ]
    assert [each.episode.id for each in read.episodes(role="manager")] == ["b"]
    assert read.result() == {"tables": []}


def test_writing_a_steps_episodes_again_replaces_them(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        run.write_episodes(3, [episode("a")])
        run.write_episodes(3, [episode("b")])
        assert [each.episode.id for each in run.episodes(step=3)] == ["b"]


def test_a_measurement_made_again_counts_once(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        measure(run, 5, 0.1)
        measure(run, 5, 0.2)
        assert [row["mean"] for row in run.evals()] == [0.2]


def test_continuing_keeps_what_the_checkpoint_knows_and_drops_the_rest(tmp_path: Path) -> None:
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


def test_fresh_deletes_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
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
@pytest.mark.parametrize(
    "name", ["weights/a.bin", "checkpoints/a", "episodes/a", "report.html", "metrics.jsonl", "config.json", ".lock"]
)
def test_what_a_run_did_not_put_there_is_not_replaced(tmp_path: Path, name: str, resume: bool) -> None:
    foreign = tmp_path / "r" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_text('{"config": "of something else"}')
    with pytest.raises(NotOurs, match=name.split("/")[0]) as caught:
        RunFolder.create(tmp_path / "r", CONFIG, resume=resume)
    assert "--name" in caught.value.mend
    assert [each for each in (tmp_path / "r").rglob("*") if each.is_file()] == [foreign]
    assert foreign.read_text() == '{"config": "of something else"}'


def test_a_start_over_that_was_killed_is_still_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 1)
        (run.path / "weights").mkdir()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            RunFolder.create(tmp_path / "r", CONFIG, resume=False)
    with RunFolder.create(tmp_path / "r", CONFIG, resume=False) as run:
        assert run.checkpoints() == []


def test_a_first_start_that_failed_does_not_keep_the_name(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", {"model": "smolm"}, environment={"threads": 7}) as run:
        run.write_episodes(0, [episode("a")], arm="untrained")
    with RunFolder.create(tmp_path / "r", {"model": "smollm"}) as run:
        assert run.config == {"model": "smollm"}
        assert "threads" not in run.environment
        assert list(run.episodes()) == []


@pytest.mark.parametrize("what", ["metric", "eval", "checkpoint", "result", "weights"])
def test_a_run_that_has_begun_keeps_its_configuration(tmp_path: Path, what: str) -> None:
    with RunFolder.create(tmp_path / "r", {"seed": 0}) as run:
        if what == "metric":
            run.append_metrics(1, {})
        elif what == "eval":
            measure(run, 0)
        elif what == "checkpoint":
            save(run, 1)
        elif what == "result":
            run.write_result({"tables": []})
        else:
            with run.writing_weights("answerer") as folder:
                (folder / "w").write_text("x")
    with pytest.raises(RunConflict, match="seed: 0 -> 1"):
        RunFolder.create(tmp_path / "r", {"seed": 1})


def test_finished_weights_stay_while_their_checkpoint_or_a_later_one_does(tmp_path: Path) -> None:
    """The demo skips a role whose weights are there: they must not outlive the measurements that belong to them."""
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 2)
        save(run, 4)
        measure(run, 4)
        with run.writing_weights("answerer") as folder:
            (folder / "w").write_text("x")
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        assert (run.path / "weights" / "answerer" / "w").read_text() == "x"
        assert len(run.evals()) == 1
        shutil.rmtree(run.path / "checkpoints" / "step-000004")
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        assert run.resumed_from == 2
        assert not (run.path / "weights" / "answerer").exists()
        assert run.evals() == []


def test_weights_are_there_whole_or_not_at_all(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        with pytest.raises(ZeroDivisionError), run.writing_weights("manager") as folder:
            half_saved(folder, ZeroDivisionError())
        assert list((run.path / "weights").iterdir()) == []


def test_two_writers_are_one_too_many(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG), pytest.raises(RunLocked, match=str(os.getpid())):
        RunFolder.create(tmp_path / "r", CONFIG)
    RunFolder.create(tmp_path / "r", CONFIG).close()


def test_a_reader_needs_no_lock(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        run.append_metrics(1, {"reward": 1.0})
        assert len(RunFolder.open(tmp_path / "r").metrics()) == 1


@pytest.mark.parametrize("damage", ["changed", "longer", "gone", "manifest"])
def test_a_damaged_checkpoint_is_named_with_its_mend(tmp_path: Path, damage: str) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 3)
        save(run, 6)
        path = run.path / "checkpoints" / "step-000006" / "adapter" / "a.bin"
        if damage == "changed":
            path.write_text("weightz")
        elif damage == "longer":
            path.write_text("weights!")
        elif damage == "gone":
            path.unlink()
        else:
            path = run.path / "checkpoints" / "step-000006" / "manifest.json"
            path.write_text("{")
        with pytest.raises(CheckpointCorrupt) as caught:
            run.latest_checkpoint()
        assert str(path) in str(caught.value)
        assert "step-000006" in caught.value.mend
        last = run.latest_checkpoint(verify=False)
        assert last is not None
        assert last.step == 6


def test_a_checkpoint_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 1)
        with pytest.raises(DiskTrouble, match="half"), run.checkpoint(2) as folder:
            (folder / "half" / "way").write_text("x")
        assert [each.name for each in (run.path / "checkpoints").iterdir()] == ["step-000001"]


def test_the_latest_checkpoints_stay(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        for step in (1, 2, 3, 10):
            save(run, step)
        assert [each.step for each in run.checkpoints()] == [3, 10]


def test_a_full_disk_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DiskTrouble, match="full"), disk(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskTrouble, match="cannot be written"), disk(tmp_path):
        raise OSError(errno.EROFS, "Read-only file system", "x")
    with pytest.raises(BrokenPipeError), disk(tmp_path):
        raise BrokenPipeError(errno.EPIPE, "nobody reads")
    with pytest.raises(RuntimeError, match="shapes"), disk(tmp_path):
        raise RuntimeError("shapes differ")


def test_a_full_disk_is_recognised_where_the_library_does_not_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch.save puts it; the space is measured before the half-written checkpoint is removed."""
    part = tmp_path / "r" / "checkpoints" / ".step-000002.part"
    total, used, _ = shutil.disk_usage(tmp_path)
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(total, used, 0 if part.exists() else 1 << 40))
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 1)
        with pytest.raises(DiskTrouble, match=r"is full \(0 MiB are left\)"), run.checkpoint(2) as folder:
            half_saved(folder, RuntimeError("unexpected pos 576 vs 534"))
        assert [each.name for each in (run.path / "checkpoints").iterdir()] == ["step-000001"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_what_torch_says_when_it_cannot_write_is_understood(tmp_path: Path) -> None:
    import torch

    with (
        RunFolder.create(tmp_path / "r", CONFIG) as run,
        pytest.raises(DiskTrouble, match="cannot be written"),
        run.checkpoint(1) as folder,
    ):
        torch.save({"weights": torch.zeros(1000)}, full(folder / "learner.pt"))


def test_a_place_that_cannot_hold_a_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "r", tmp_path / ("long" * 200)):
        with pytest.raises(DiskTrouble, match="cannot be written") as caught:
            RunFolder.create(place, CONFIG)
        assert str(tmp_path) in str(caught.value)


def test_a_file_that_will_be_written_is_tried_first(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deep" / "numbers.json")
    assert list((tmp_path / "new" / "deep").iterdir()) == []
    (tmp_path / "kept").write_text("as it was")
    check_writable(tmp_path / "kept")
    assert (tmp_path / "kept").read_text() == "as it was"
    for place in (tmp_path, tmp_path / "kept" / "numbers.json"):
        with pytest.raises(DiskTrouble):
            check_writable(place)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_while_a_row_is_written(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        (run.path / "metrics.jsonl").symlink_to("/dev/full")
        with pytest.raises(DiskTrouble, match="full"):
            run.append_metrics(1, {"reward": 1.0})


def test_a_damaged_line_in_the_middle_is_not_skipped_silently(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        (run.path / "metrics.jsonl").write_text('{"step": 1}\nnonsense\n{"step": 3}\n')
        with pytest.raises(RecollectError, match="line 2"):
            run.metrics()


@pytest.mark.parametrize(
    ("file", "row", "says"),
    [
        ("metrics.jsonl", "5", "holds 5, not a JSON object"),
        ("metrics.jsonl", '{"reward":1}', "has no 'step'"),
        ("metrics.jsonl", '{"step":"one"}', "not a whole number"),
        ("evals.jsonl", '{"arm":"trained","metric":"f1","mean":1,"n":2}', "has no 'step'"),
        ("evals.jsonl", '{"step":1,"metric":"f1","mean":1,"n":2}', "has no 'arm'"),
        ("evals.jsonl", '{"step":1,"arm":"a","metric":"f1","mean":null,"n":2}', "as 'mean', not a number"),
    ],
)
def test_a_row_of_another_shape_is_named_by_file_and_line(tmp_path: Path, file: str, row: str, says: str) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 1)
        good = {"step": 1, "arm": "a", "metric": "f1", "mean": 0.5, "n": 2}
        (run.path / file).write_text(json.dumps(good) + "\n" + row + "\n")
        with pytest.raises(RecollectError, match=f"{file} line 2 .*{says}"):
            run.metrics() if file == "metrics.jsonl" else run.evals()
    with pytest.raises(RecollectError, match=f"{file} line 2"):
        RunFolder.create(tmp_path / "r", CONFIG)


def test_other_names_beside_ours_are_left_alone(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 3)
        run.write_episodes(3, [episode("a")])
        for name in ("checkpoints/step-000003-mine", "checkpoints/step-last"):
            (run.path / name).mkdir()
        for name in ("step-copy.jsonl.gz", "step-000009.jsonl.gz", "step-x.train.jsonl.gz"):
            (run.path / "episodes" / name).write_text("")
        assert [each.step for each in run.checkpoints()] == [3]
        assert [(step, arm) for step, arm, _ in run.episode_files()] == [(3, "train")]
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        assert run.resumed_from == 3
        assert (run.path / "episodes" / "step-x.train.jsonl.gz").exists()


def test_a_count_has_no_interval(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        run.append_eval(1, arm="trained", metric="invalid", mean=0.25, low=None, high=None, n=8)
        assert [(row["low"], row["high"]) for row in run.evals()] == [(None, None)]


@pytest.mark.parametrize("content", ["5", "{}", '{"config": {}}', "{"])
def test_a_record_of_another_shape_is_named(tmp_path: Path, content: str) -> None:
    RunFolder.create(tmp_path / "r", CONFIG).close()
    (tmp_path / "r" / "config.json").write_text(content)
    with pytest.raises(RecollectError, match=r"config\.json"):
        _ = RunFolder.open(tmp_path / "r").config
    assert list_runs(tmp_path) == []


@pytest.mark.parametrize("content", ["5\n", '{"role": "answerer"}\n'])
def test_an_episode_of_another_shape_is_named_by_file_and_line(tmp_path: Path, content: str) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        path = run.write_episodes(1, [episode("a")])
        with gzip.open(path, "at") as lines:
            lines.write(content)
        with pytest.raises(RecollectError, match=f"{path.name} line 2"):
            list(run.episodes(role="answerer"))


def test_a_damaged_episode_file_is_named(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        path = run.write_episodes(1, [episode(f"e{index}") for index in range(50)])
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(RecollectError, match=path.name):
            list(run.episodes())


def test_an_unknown_run_gets_the_nearest_name(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "demo-quick", CONFIG).close()
    with pytest.raises(UnknownName, match="demo-quick") as caught:
        find_run("demo-quik", tmp_path)
    assert caught.value.nearest == "demo-quick"
    assert find_run(str(tmp_path / "demo-quick"), Path("elsewhere")).name == "demo-quick"


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(0, 400))
def test_any_torn_end_leaves_whole_rows(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("torn")
    with RunFolder.create(folder / "r", CONFIG) as run:
        for step in range(8):
            run.append_metrics(step, {"reward": 0.125})
    path = folder / "r" / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)])
    rows = RunFolder.open(folder / "r").metrics()
    assert [row["step"] for row in rows] == list(range(len(rows)))
    assert len(rows) == path.read_bytes().count(b"\n")


def test_a_killed_process_leaves_a_folder_that_continues(tmp_path: Path) -> None:
    """The writer is killed with SIGKILL in the midst of its work, several times over."""
    script = textwrap.dedent(f"""
        from recollect.learning.run_folder import RunFolder
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
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and not (tmp_path / "r" / "checkpoints" / f"step-{last + 3:06d}").exists():
            time.sleep(0.002)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        with RunFolder.create(tmp_path / "r", CONFIG) as run:
            checkpoint = run.latest_checkpoint()
            assert checkpoint is not None
            assert checkpoint.step > last
            last = checkpoint.step
            assert [row["step"] for row in run.metrics()] == list(range(1, last + 1))
            assert (checkpoint.path / "2.bin").read_bytes() == bytes([last % 256]) * 4096


def test_names_of_settings() -> None:
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}


def test_the_configuration_file_is_plain_json(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        run.record_environment(threads=1, dtype="bfloat16")
    record = json.loads((tmp_path / "r" / "config.json").read_text())
    assert record["environment"]["dtype"] == "bfloat16"
    assert record["config"] == CONFIG
