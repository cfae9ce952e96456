"""What a checkpoint holds is said in numbers that can be counted, and a damaged one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from keepworth.cli.main import main
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.groups import write_state
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.run_folder import CheckpointCorrupt, RunFolder
from keepworth.learning.watch.inspection import find_checkpoint, inspect
from keepworth.models.adapter import save_trained, unfreeze
from keepworth.recipes.settings import GROUP_RELATIVE
from tests.models.tiny import tiny_model


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Two checkpoints of a tiny model, the later one after an imitated step and with a pipeline's state."""
    model = tiny_model()
    learner = Learner(model, unfreeze(model), GROUP_RELATIVE, Optimisation(learning_rate=0.25), "speaker")
    with RunFolder.create(tmp_path / "r", {"seed": 0}, environment={"threads": 1}) as run:
        for step in (1, 2):
            learner.imitate([(model.encode("ab"), model.encode("c"))])
            with run.checkpoint(step) as folder:
                save_trained(model, learner.master_weights.named, folder / "speaker")
                state = {"first": 0, "step": step, "role": "speaker", "torch_rng": torch.get_rng_state()}
                torch.save({**state, "learner": learner.state()}, folder / "learner.pt")
                if step == 2:
                    groups = [{"group": 7, "episodes": {"0": {}}}]
                    counts = {"retried": 3}
                    write_state(
                        folder,
                        {"version": 2, "done": [[0, 4], [5, 6]], "finished": [1, 2], "open": groups, "counts": counts},
                    )
    return run


def test_everything_is_counted(run: RunFolder) -> None:
    found = inspect(find_checkpoint(str(run.path), run.path.parent))
    masters = torch.load(found.path / "learner.pt", weights_only=True)["learner"]["master_weights"]
    parameters = sum(each.numel() for each in masters.values())
    whole = {"model.safetensors", "config.json", "generation_config.json", "base.json"}
    assert set(found.files) == {"learner.pt", "pipeline.json", *(f"speaker/{name}" for name in whole)}
    said = found.sections
    assert said["training"]["steps done"] == 2
    assert said["training"]["role"] == "speaker"
    assert said["training"]["policy version"] == 2
    assert said["training"]["random state"].startswith("5056 bytes")
    assert said["master weights"] == {"tensors": len(masters), "parameters": parameters, "type": "float32"}
    embeddings = 257 * 64  # saved with the rest, but not trained
    assert said["weights of speaker"]["parameters"] == parameters + embeddings
    assert said["optimiser"]["updates"] == 2
    assert said["optimiser"]["second moments"] == parameters
    assert said["optimiser"]["learning rate"] == 0.25
    assert said["controls"]["entropy active"] is True
    assert said["collecting ahead"]["groups trained or dropped"] == 5
    assert said["collecting ahead"]["retried"] == 3
    assert said["where it ran"]["threads"] == 1


def test_a_checkpoint_is_found_by_run_step_and_path(run: RunFolder) -> None:
    runs = run.path.parent
    assert find_checkpoint("r", runs).step == 2
    assert find_checkpoint("r", runs, 1).step == 1
    assert find_checkpoint(str(run.checkpoints()[0].path), runs).step == 1
    with pytest.raises(KeepworthError, match="no checkpoint of step 3") as error:
        find_checkpoint("r", runs, 3)
    assert "steps 1, 2" in error.value.fix
    with pytest.raises(KeepworthError, match="of step 1, not of 2"):
        find_checkpoint(str(run.checkpoints()[0].path), runs, 2)
    with RunFolder.create(runs / "empty", {}), pytest.raises(KeepworthError, match="no checkpoint yet"):
        find_checkpoint("empty", runs)


@pytest.mark.parametrize("file", ["learner.pt", "speaker/model.safetensors", "pipeline.json"])
def test_a_changed_file_is_named(run: RunFolder, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = run.checkpoints()[-1].path / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    assert main(["checkpoint", "inspect", str(run.path)]) == 2
    said = capsys.readouterr().err
    assert f"{path} is not what was saved: its sha256 differs." in said
    assert "the run continues from the checkpoint before it" in said


@pytest.mark.parametrize("file", ["learner.pt", "speaker/model.safetensors", "pipeline.json"])
def test_a_file_that_was_saved_damaged_is_named_too(run: RunFolder, file: str) -> None:
    """Its sum is right, so that only reading it can tell."""
    with run.checkpoint(3) as folder:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(b"[1]   not what it should be")
    with pytest.raises(KeepworthError, match=Path(file).name.split(".")[0]) as error:
        inspect(run.checkpoints()[-1])
    assert "checkpoint before it" in error.value.fix
    if file != "pipeline.json":
        assert isinstance(error.value, CheckpointCorrupt)


def test_the_command_prints_it(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "inspect", str(run.path)]) == 0
    said = capsys.readouterr().out
    for words in ("step 2", "✓ sum", "second moments", "groups under way"):
        assert words in said
    assert main(["checkpoint", "inspect", str(run.path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert record["sections"]["controls"]["best"] == "-inf"
    assert record["files"]["pipeline.json"] > 0
