"""Run folders on disks that fill up, and with files that are damaged or of another shape: named, with the fix."""

from __future__ import annotations

import errno
import gzip
import json
from pathlib import Path

import pytest
import torch

from keepworth.base.durable_files import DiskTrouble, check_writable, disk
from keepworth.base.errors import KeepworthError
from keepworth.training.run_folder import CheckpointCorrupt, RunFolder, list_runs
from keepworth.training.settings import GROUP_RELATIVE
from keepworth.training.trainer import restore
from tests.learning.run_folders import CONFIG, episode, full, save
from tests.learning.turns import learner_of


@pytest.mark.parametrize("damage", ["weightz", "", "{"])
def test_a_damaged_checkpoint_is_named_with_its_fix(tmp_path: Path, damage: str) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 3)
        save(run, 6)
        path = run.path / "checkpoints" / "step-000006" / ("manifest.json" if damage == "{" else "adapter/a.bin")
        path.write_text(damage) if damage else path.unlink()
        with pytest.raises(CheckpointCorrupt) as caught:
            run.latest_checkpoint()
        assert str(path) in str(caught.value)
        assert "step-000006" in caught.value.fix
        last = run.latest_checkpoint(verify=False)
        assert last is not None
        assert last.step == 6


def test_failed_checkpoint_leaves_no_files(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 1)
        with pytest.raises(DiskTrouble, match="half"), run.checkpoint(2) as folder:
            (folder / "half" / "way").write_text("x")
        assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["step-000001"]


def test_a_full_disk_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DiskTrouble, match="full"), disk(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskTrouble, match="cannot be written"), disk(tmp_path):
        raise OSError(errno.EROFS, "Read-only file system", "x")
    with pytest.raises(BrokenPipeError), disk(tmp_path):
        raise BrokenPipeError(errno.EPIPE, "nobody reads")
    with pytest.raises(RuntimeError, match="shapes"), disk(tmp_path):
        raise RuntimeError("shapes differ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_torch_write_errors_become_disk_trouble(tmp_path: Path) -> None:
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


def test_a_damaged_line_in_the_middle_is_not_skipped_silently(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        (run.path / "metrics.jsonl").write_text('{"step": 1}\nnonsense\n{"step": 3}\n')
        with pytest.raises(KeepworthError, match="line 2"):
            run.metrics()


@pytest.mark.parametrize(
    ("file", "row", "what"),
    [("metrics.jsonl", "5", "no object"), ("evals.jsonl", '{"step":"one"}', "no row of a step")],
)
def test_a_row_of_another_shape_is_named_by_file_and_line(tmp_path: Path, file: str, row: str, what: str) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        save(run, 1)
        good = {"step": 1, "arm": "a", "metric": "f1", "mean": 0.5, "n": 2}
        (run.path / file).write_text(json.dumps(good) + "\n" + row + "\n")
    with pytest.raises(KeepworthError, match=f"{file}, line 2: this is {what}"):
        RunFolder.create(tmp_path / "r", CONFIG)


@pytest.mark.parametrize("content", ["5", "{}", '{"config": {}}', "{"])
def test_a_record_of_another_shape_is_named(tmp_path: Path, content: str) -> None:
    RunFolder.create(tmp_path / "r", CONFIG).close()
    (tmp_path / "r" / "config.json").write_text(content)
    with pytest.raises(KeepworthError, match=r"config\.json"):
        _ = RunFolder.open(tmp_path / "r").config
    assert list_runs(tmp_path) == []


@pytest.mark.parametrize("content", ["5\n", '{"role": "answerer"}\n'])
def test_an_episode_of_another_shape_is_named_by_file_and_line(tmp_path: Path, content: str) -> None:
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        path = run.write_episodes(1, [episode("a")])
        with gzip.open(path, "at") as lines:
            lines.write(content)
        with pytest.raises(KeepworthError, match=f"{path.name} line 2"):
            list(run.episodes(role="answerer"))


class Evil:
    """Would run code where a checkpoint was unpickled without care."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('code ran')",))


@pytest.mark.parametrize(("damage", "says"), [
    ("code", "it holds something else"),
    ("another version", "KeyError: 'step'"),
    ("no learner", "it holds no learner"),
    ("not finite", "holds numbers that are not finite"),
    ("another shape", r"is \[1\] there and"),
    ("another model", "trains other weights than this run"),
    ("no controls", "KeyError: 'controls'"),
    ("random state", "must be a torch.ByteTensor|ByteTensor"),
])  # fmt: skip
def test_a_checkpoint_that_was_signed_anew_is_refused_by_name(tmp_path: Path, damage: str, says: str) -> None:
    """Its sums are right, as those of a checkpoint of another version are, or of whoever wrote file and manifest."""
    learner = learner_of(GROUP_RELATIVE)
    saved = {"first": 0, "step": 1, "role": "speaker", "torch_rng": torch.get_rng_state(), "learner": learner.state()}
    masters = saved["learner"]["master_weights"]
    name = next(iter(masters))
    changes: dict[str, object] = {
        "code": {**saved, "first": Evil()},
        "another version": {key: value for key, value in saved.items() if key != "step"},
        "no learner": {**saved, "learner": 3},
        "not finite": _with_masters(saved, {**masters, name: masters[name] * float("nan")}),
        "another shape": _with_masters(saved, {**masters, name: torch.zeros(1)}),
        "another model": _with_masters(saved, {name: masters[name]}),
        "no controls": {**saved, "learner": {k: v for k, v in saved["learner"].items() if k != "controls"}},
        "random state": {**saved, "torch_rng": torch.zeros(3)},
    }
    with RunFolder.create(tmp_path / "r", CONFIG) as run:
        with run.checkpoint(1) as folder:
            torch.save(changes[damage], folder / "learner.pt")
        with pytest.raises(CheckpointCorrupt, match=says) as caught:
            restore(run, learner)
    assert "learner.pt has the sum that was saved, but cannot be read" in str(caught.value)
    assert "weights_only" not in str(caught.value)
    assert "start again" in caught.value.fix


def _with_masters(saved: dict[str, object], masters: dict[str, torch.Tensor]) -> dict[str, object]:
    return {**saved, "learner": {**saved["learner"], "master_weights": masters}}  # type: ignore[dict-item]
