"""What trackers hold of a run is what the run holds, each step once; with the package of each, where that is installed."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from keepworth.cli.main import main
from keepworth.episodes import extras
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch import trackers
from keepworth.learning.watch.progress import Progress, SilentProgress
from keepworth.learning.watch.trackers import COLUMNS, TRACKERS, numbers_of, require_trackers, tracked
from tests.end_to_end.tiny_folder import write_tiny_checkpoint

Curves = dict[str, list[tuple[int, float]]]


class Listing:
    """A tracker in memory."""

    made: list[Listing]

    def __init__(self, run: RunFolder) -> None:
        self.settings = run.config
        self.curves: Curves = {}
        self.order: list[int] = []
        self.tables: dict[str, Any] = {}
        self.finished: bool | None = None
        self.made.append(self)

    def metrics(self, step: int, values: Mapping[str, float], time: float) -> None:
        assert self.finished is None
        self.order.append(step)
        for name, value in values.items():
            self.curves.setdefault(name, []).append((step, value))

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.tables[name] = [dict(zip(columns, row, strict=True)) for row in rows]

    def close(self, finished: bool) -> None:
        self.finished = finished


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> type[Listing]:
    monkeypatch.setattr(Listing, "made", [], raising=False)
    monkeypatch.setattr(trackers, "TRACKERS", {**TRACKERS, "listing": Listing})
    monkeypatch.setattr(trackers, "require", lambda *given: None)
    return Listing


def test_a_continued_run_has_no_step_twice_and_ends_with_its_tables(tmp_path: Path, listing: type[Listing]) -> None:
    evaluation = {"metric": "f1", "low": 0.4, "high": 0.6, "n": 9, "role": "answerer", "split": "dev"}
    with RunFolder.create(tmp_path / "r", {"steps": 3}) as run:
        run.append_eval(0, arm="with memory", mean=0.25, **evaluation)
        with run.checkpoint(0) as folder:
            (folder / "x").write_text("x")
        with contextlib.suppress(KeyboardInterrupt), tracked(run, ["listing"]):
            run.append_metrics(1, {"reward": 0.25, "role": "answerer", "loss": math.nan, "words": "none", "yes": True})
            with run.checkpoint(1) as folder:
                (folder / "x").write_text("x")
            run.append_metrics(2, {"reward": 0.9, "role": "answerer"})
            raise KeyboardInterrupt
    with RunFolder.create(tmp_path / "r", {"steps": 3}) as run:
        with tracked(run, ["listing", "listing"]):
            for step in (2, 3):
                run.append_metrics(step, {"reward": step / 4, "role": "answerer"})
            run.append_eval(3, arm="with memory", mean=0.5, **evaluation)
            row = {"arm": "trained", "metric": "f1", "mean": 0.5, "low": 0.4, "high": 0.6, "n": 9}
            run.write_result({"headline": "", "tables": [{"title": "Test questions", "note": "", "rows": [row]}]})
        run.append_metrics(4, {"reward": 1.0})  # nobody listens any more
    first, second = listing.made
    assert first.curves["answerer/reward"] == [(1, 0.25), (2, 0.9)]
    assert (first.finished, first.tables) == (False, {})
    assert second.curves == {
        "answerer/held-out/dev/f1/with_memory": [(0, 0.25), (3, 0.5)],
        "answerer/reward": [(1, 0.25), (2, 0.5), (3, 0.75)],
    }
    assert second.order == sorted(second.order)
    assert (second.settings, second.finished, second.tables) == ({"steps": 3}, True, {"Test_questions": [row]})


def test_names_are_those_that_every_tracker_takes() -> None:
    row = {"step": 1, "time": 2.0, "source/a b@c/reward": 1, "loss": math.inf, "reward": 0.5}
    assert numbers_of("metrics.jsonl", row) == {"source/a_b_c/reward": 1.0, "reward": 0.5}


@pytest.mark.parametrize("name", TRACKERS)
def test_without_its_package_a_tracker_is_named_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    from keepworth.recipes.front_door import train

    monkeypatch.setattr(extras, "find_spec", lambda module: None if module == name else object())
    assert main(["train", "memory_r1", "--track", name, "--runs", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert f"--track {name} needs {name}" in said
    assert f'pip install "keepworth[{name}]"' in said
    with pytest.raises(KeepworthError, match=f"--track {name} needs {name}"):
        train([{"prompt": "a", "answer": "b"}] * 9, track=(name,), runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_an_unknown_tracker_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no tracker 'trackoi'") as refused:
        require_trackers(["trackoi"])
    assert "'trackio'" in refused.value.fix


# With the packages themselves.


def in_tensorboard(run: RunFolder) -> tuple[Curves, str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run.path / "tensorboard"))
    found.Reload()
    tags = found.Tags()
    (text,) = (
        found.Tensors(name)[0].tensor_proto.string_val[0].decode() for name in tags["tensors"] if "tables" in name
    )
    assert any(name.startswith("config") for name in tags["tensors"])
    return {name: [(each.step, each.value) for each in found.Scalars(name)] for name in tags["scalars"]}, text


def in_trackio(run: RunFolder) -> tuple[Curves, str]:
    from trackio.sqlite_storage import SQLiteStorage

    (name,) = SQLiteStorage.get_runs("keepworth")
    config = SQLiteStorage.get_run_config("keepworth", name)
    assert config is not None
    assert config["max_tokens"] == 4
    curves: Curves = {}
    table = ""
    for row in SQLiteStorage.get_logs("keepworth", name):
        for key, value in row.items():
            if key.startswith("tables/"):
                table = json.dumps(value)
            elif key not in ("step", "timestamp"):
                curves.setdefault(key, []).append((row["step"], value))
    return curves, table


def in_wandb(run: RunFolder) -> tuple[Curves, str]:
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = run.path.parent.glob("wandb/offline-run-*/*.wandb")
    curves: Curves = {}
    for data in leveldb_records(file.read_bytes()[7:]):
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for name, value in row.items():
                if not name.startswith(("_", "tables/")) and name != "step":
                    curves.setdefault(name, []).append((row["step"], value))
    (table,) = run.path.parent.glob("wandb/offline-run-*/files/media/table/**/*.json")
    return curves, table.read_text()


def leveldb_records(data: bytes) -> list[bytes]:
    """Of a log as LevelDB writes it: blocks of 32 KiB, the first of which begins 7 bytes into the file; each piece has a sum, a
    length and a kind: 1 is whole, 2 to 4 the first, a middle and the last piece of a record."""
    found, whole, place = [], b"", 0
    while place + 7 <= len(data):
        room = 32768 - (place + 7) % 32768
        if room < 7:
            place += room
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        if kind == 0:
            break
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            found.append(whole)
            whole = b""
    return found


def in_mlflow(run: RunFolder) -> tuple[Curves, str]:
    from mlflow import MlflowClient

    store = run.path.parent / "mlruns"
    client = MlflowClient(tracking_uri=store.as_uri())
    experiment = client.get_experiment_by_name("keepworth")
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.status, found.data.params["max_tokens"]) == ("FINISHED", "4")
    of_each = {name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
    curves = {name: [(each.step, each.value) for each in points] for name, points in of_each.items()}
    (table,) = store.rglob("tables/*.json")
    return curves, table.read_text()


STORED: dict[str, Callable[[RunFolder], tuple[Curves, str]]] = {
    "tensorboard": in_tensorboard,
    "trackio": in_trackio,
    "wandb": in_wandb,
    "mlflow": in_mlflow,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACKERS)
def test_a_real_run_that_was_killed_is_read_back_from_the_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip(name)
    if name == "trackio":
        monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "trackio")
        monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path / "trackio")
    from keepworth.methods.recipes import arithmetic
    from keepworth.recipes.front_door import carry_out
    from keepworth.recipes.interactive import run_system

    settings = {"threads": 1, "precision": "fp32", "tasks_per_step": 2, "group_size": 2, "questions": 2}
    times = {"steps": 3, "evaluate_every": 1, "checkpoint_every": 2, "max_tokens": 4}
    config = arithmetic.Config(model=str(write_tiny_checkpoint(tmp_path / "model")), **settings, **times)
    append = RunFolder.append_eval

    def killed(self: RunFolder, step: int, **row: Any) -> None:
        if step == 3:
            raise KeyboardInterrupt
        append(self, step, **row)

    def work(run: RunFolder) -> Callable[[Progress], None]:
        return lambda progress: run_system(config, arithmetic.system(config), run, progress)

    for interrupted in (True, False):
        with (
            monkeypatch.context() as patched,
            RunFolder.create(tmp_path / "run", config.model_dump(mode="json")) as run,
        ):
            if interrupted:
                patched.setattr(RunFolder, "append_eval", killed)
                with pytest.raises(KeyboardInterrupt):
                    carry_out(run, work(run), SilentProgress(), [name])
            else:
                assert run.resumed_from == 2
                carry_out(run, work(run), SilentProgress(), [name])
    curves, table = STORED[name](run)
    slash = "." if name == "mlflow" else "/"
    expected: Curves = {}
    for file, rows in (("metrics.jsonl", run.metrics()), ("evals.jsonl", run.evals())):
        for row in rows:
            for key, value in numbers_of(file, row).items():
                expected.setdefault(key.replace("/", slash), []).append((row["step"], value))
    rewards = [(json.loads(line)["step"], json.loads(line)["reward"]) for line in (run.path / "metrics.jsonl").open()]
    assert [step for step, _ in rewards] == [1, 2, 3]
    assert curves[f"policy{slash}reward"] == [(step, pytest.approx(value)) for step, value in rewards]
    assert curves.keys() == expected.keys()
    for key, values in expected.items():
        assert sorted(curves[key]) == [(step, pytest.approx(value, rel=1e-6)) for step, value in values], key
    assert all(word in table for word in (*COLUMNS, "untrained", "trained"))
