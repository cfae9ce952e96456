"""Recipes with rollout workers on a real Ray of several nodes on this machine: the same run, whatever dies."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from keepworth.training.recipe import Origin
from keepworth.training.run_folder import RunFolder
from keepworth.training.trained import find_weights
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.pages import lines_that_run_in
from tests.recipes.test_workers import OWN, rows, run_of
from tests.recipes.tiny_runs import TINY

pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a head that places nothing, and of three nodes that do."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for room in ("play", "play", "judge"):
        nodes.add_node(num_cpus=1, labels={"room": room})
    yield nodes.address
    nodes.shutdown()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Origin, Path, Any]:
    """A recipe in a file, a model, and what comes of them in one process."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "mine.py").write_text(OWN)
    checkpoint = write_tiny_checkpoint(folder / "model")
    origin = Origin(str(folder / "mine.py"))
    return origin, checkpoint, run_of(origin, checkpoint, folder / "run")[0]


def test_the_lines_of_docs_cluster_md_begin_a_ray_and_train_there(
    alone: tuple[Origin, Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a port that is free here, and room for two workers on each of two nodes. It stands first: Ray's own program begins
    none beside the nodes of `address`."""
    _, checkpoint, _ = alone
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])

    def here(word: str) -> str:
        return word.replace("10.0.0.1", "127.0.0.1").replace("6379", str(port))

    programs = Path(sys.executable).parent
    written = lines_that_run_in("cluster.md", "tests/recipes/test_workers_ray.py")
    lines = [[here(word) for word in line] for line in written]
    exports, starts, trainings = ([line for line in lines if line[0] == of] for of in ("export", "ray", "keepworth"))
    assert len(starts) == 2
    for each in (word for line in exports for word in line[1:]):
        monkeypatch.setenv(*each.split("=", 1))
    assert len(trainings) == 1
    monkeypatch.chdir(tmp_path)
    began: list[subprocess.Popen[str]] = []
    try:
        for line in starts:
            local = ["--node-ip-address=127.0.0.1"] if "--head" in line else []
            command = [str(programs / "ray"), *line[1:], *local, "--num-cpus=2", "--disable-usage-stats", "--block"]
            node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            began.append(node)
            assert node.stdout is not None
            said = []
            for text in node.stdout:
                said.append(text)
                if "Ray runtime started" in text:
                    break
            else:
                pytest.fail("".join(said))
        # In a process of its own: Ray reads of tokens when it is imported.
        few = {**TINY, "max_tokens": 4, "evaluate_every": 2, "tasks_per_step": 4}
        sets = [word for name, value in few.items() for word in ("--set", f"{name}={value}")]
        command = [str(programs / "keepworth"), *trainings[0][1:], "--name", "there", "--model", str(checkpoint), *sets]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        for node in reversed(began):
            node.terminate()
            node.communicate(timeout=60)
    assert [row["step"] for row in RunFolder.open(tmp_path / "runs" / "there").metrics()] == [1, 2]


@pytest.mark.parametrize("killed", ["nobody", "worker", "raylet"])
def test_a_run_on_several_nodes_is_that_of_one_process(
    alone: tuple[Origin, Path, Any], address: str, tmp_path: Path, killed: str
) -> None:
    origin, checkpoint, expected = alone
    order = Path(origin.recipe).with_name("kill")
    if killed != "nobody":
        order.write_text(f"{killed} {os.getpid()}")
    run, notes = run_of(origin, checkpoint, tmp_path / "run", workers=2, ray_address=address)
    assert not order.exists()
    pairs = zip(rows(run), rows(expected), strict=True)
    differ = {name for one, other in pairs for name in one if one[name] != other[name]}
    if killed != "nobody":  # what the dead one drew is drawn again, and counted again
        differ = {name for name in differ if name != "drawn_tokens" and not name.startswith("decode/")}
    assert differ == set()
    one, other = (load_file(find_weights(each, "policy") / "adapter_model.safetensors") for each in (expected, run))
    assert all((one[name] == other[name]).all() for name in one)
    died = [note for note in notes if "rollout worker" in note and "died" in note]
    assert len(died) == (0 if killed == "nobody" else 1)
    ids = [episode.episode.id for episode in run.episodes(arm="train")]
    assert len(ids) == len(set(ids)) == 8  # none was trained on twice
