"""What an earlier version wrote and computed is opened, continued and computed alike."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.goldens import freeze

HERE = freeze.HERE
WHOLE = "near-miss"
"""The stream that all methods meet each time; on the others it is those that stand for the rest, and all in the slow tests."""
EACH_KIND = ("memrl", "rememberer", "kernel-mean")
"""Methods of different kinds: values by item, by situation and action, and by kernel."""


def frozen(name: str) -> dict:
    return json.loads((HERE / f"{name}.json").read_text())


def unpacked(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(gzip.decompress((HERE / f"{name}.gz").read_bytes()))
    return path


def test_old_memory_file_gives_the_same_answers(tmp_path: Path) -> None:
    from keepworth.encoders.local import HashingEncoder
    from keepworth.memory.memory import Memory

    with Memory(unpacked("store.mem", tmp_path), encoder=HashingEncoder(64)) as memory:
        expected = frozen("store")
        moved, episode = expected.pop("moved"), expected.pop("episode")
        assert json.loads(json.dumps(freeze.memory_facts(memory))) == expected
        assert memory.get(moved).text == "Ana lives in Lisbon since May."
        assert memory.episode_record(episode).reward == 1.0


SOURCES = ("a guest", "calendar", "told late", "one", "two", "atlas", "episode")


@pytest.mark.parametrize("moved", [False, True], ids=["the file", "its export"])
def test_old_memory_file_replays_to_the_same_state(moved: bool, tmp_path: Path) -> None:
    from keepworth.encoders.local import HashingEncoder
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.memory.store.checks import check
    from keepworth.memory.store.transfer import exported, imported

    path = unpacked("order-of-writing.mem", tmp_path)
    if moved:
        with (
            Memory(path, encoder=HashingEncoder(64)) as old,
            Memory(tmp_path / "new.mem", encoder=HashingEncoder(64)) as new,
        ):
            imported(new.store, list(exported(old.store)))
        path = tmp_path / "new.mem"
    with Memory(path, encoder=HashingEncoder(64), writer="rules") as memory:
        assert check(memory.store) == []

        def held() -> dict[str, Item]:
            return {item.id: item for item in memory.store.items(memory.scope)}

        before = held()
        texts = {item.text: item for item in before.values()}
        assert [texts[f"{each}."].valid_to for each in ("I live in Bonn", "I moved to Kiel")] == ["", ""]
        assert texts["Eva lives in Oslo."].valid_to == "2023-05-01T00:00:00"
        assert texts["Eva has a cat."].deleted
        assert [hit.text for hit in memory.search("where do I live", user_id="ana", top_k=1)] == ["I moved to Ulm."]
        undone = []
        for source in SOURCES:
            undone.append(memory.rollback(source=source).id)
            assert check(memory.store) == [], source
        memory.rollback(memory.rollback(undone[0]).id)
        for id in reversed(undone):
            memory.rollback(id)
        assert held() == before
        for content in ("I moved to Jena.", "I moved to Bern."):
            memory.add([{"role": "user", "content": content}], infer=True, user_id="ana", source="a guest")
        memory.update(texts["Eva likes green tea."].id, "Eva likes black tea.")
        memory.rollback(source="a guest")
        assert check(memory.store) == []
        assert [hit.text for hit in memory.search("where do I live", user_id="ana", top_k=1)] == ["I moved to Kiel."]


def test_an_export_of_then_is_imported(tmp_path: Path) -> None:
    from keepworth.encoders.local import HashingEncoder
    from keepworth.memory.memory import Memory
    from keepworth.memory.store.transfer import imported

    with (
        Memory(tmp_path / "new.mem", encoder=HashingEncoder(64)) as memory,
        (HERE / "store.jsonl").open(encoding="utf-8") as lines,
    ):
        imported(memory.store, lines)
        assert freeze.memory_facts(memory)["items"] == frozen("store")["items"]


def test_a_learning_memory_of_then_goes_on_with_the_same_choices(tmp_path: Path) -> None:
    from keepworth.memory.choose.hashed_words import HashedWords
    from keepworth.memory.memory import Memory

    expected = frozen("learning")["memrl"]
    with Memory(unpacked("learning-memrl.mem", tmp_path), policy="memrl", encoder=HashedWords(), seed=5) as memory:
        assert len(memory.pending()) == expected["pending"]
        assert freeze.played(memory, range(30, 40)) == expected["after"]


# Near ties that OpenBLAS decides by the kernels that it picks for the processor (`OPENBLAS_CORETYPE` names them): what comes out
# with others than those of the machine that froze the rest.
OTHER_KERNELS = {
    "t-maze kernel-mean 1": (0.2291667, 0.3333333, 587, "92e926e9470dc5d5"),
    "tool-graph kernel-mean-items 1": (0.375, 0.55, 329, "a8a7844bc4be0aee"),
}


@pytest.mark.parametrize(
    ("seed", "long"), [(0, False), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0, True), (1, True)))]
)
@pytest.mark.parametrize("stream", freeze.STREAMS)
def test_streams_are_met_with_the_same_choices(stream: str, seed: int, long: bool) -> None:
    """long: with all methods on every stream."""
    every = {key: facts for key, facts in frozen("streams").items() if key.split(" ")[::2] == [stream, str(seed)]}
    if stream != WHOLE and not long:
        every = {key: facts for key, facts in every.items() if key.split(" ")[1] in EACH_KIND}
    assert every
    met = {key: freeze.stream_facts(stream, key.split(" ")[1], seed) for key in every}
    for key in every.keys() & OTHER_KERNELS.keys():
        if tuple(met[key].values()) == OTHER_KERNELS[key]:
            met[key] = every[key]
    assert met == every


def test_updates_are_the_same_to_the_last_digits() -> None:
    """Exactly the same on the machine that froze them; elsewhere sums may be taken in another order."""
    for name, expected in frozen("updates").items():
        if isinstance(expected, str):
            continue
        for one, other in zip(freeze.update_facts(name), expected, strict=True):
            assert math.isclose(float.fromhex(one), float.fromhex(other), rel_tol=1e-9, abs_tol=1e-12), name


def test_a_run_that_was_killed_then_is_finished_now(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path / "model")
    shutil.copytree(HERE / "runs", tmp_path / "runs")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(freeze.training("runs"), cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "runs" / "run" / "metrics.jsonl").read_text().splitlines()]
    for row, expected in zip(rows, frozen("run"), strict=True):
        for key, value in expected.items():
            assert row[key] == (pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value), key
