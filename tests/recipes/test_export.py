"""What was trained, out again: folders that transformers and PEFT load, that say what the run says, and tell no places."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from keepworth.base.durable_files import DiskTrouble
from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.methods.recipes import strings
from keepworth.models.adapter import save_network
from keepworth.records.model import SamplingParams
from keepworth.training import export as exporting
from keepworth.training.export import export, find_dtype
from keepworth.training.run_folder import RunFolder
from keepworth.training.trained import find_trained
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.recipes.tiny_runs import STRINGS, run_of

MOVING = {**STRINGS, "warm_start": 16, "warm_start_learning_rate": 0.05}
"""A start that changes what the model says: without it two steps of a tiny model teach nothing."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machine")


@pytest.fixture(scope="module")
def checkpoint(place: Path) -> Path:
    """A base in bfloat16, as people publish them."""
    folder = write_tiny_checkpoint(place / "base-of-here")
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n\nA base.\n")
    return folder


@pytest.fixture(scope="module")
def run(checkpoint: Path, place: Path) -> RunFolder:
    return run_of(strings, checkpoint, place / "runs" / "mine", **MOVING)


@pytest.fixture(scope="module")
def full(checkpoint: Path, place: Path) -> RunFolder:
    return run_of(strings, checkpoint, place / "runs" / "full", **MOVING, train="full")


PROMPT = tuple(range(20, 44))


def network_in(folder: Path | str) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@torch.inference_mode()
def answered(network: Any) -> list[int]:
    ids = network.eval().generate(torch.tensor([PROMPT]), max_new_tokens=8, min_new_tokens=8, do_sample=False)
    return ids[0, len(PROMPT) :].tolist()


def said(run: RunFolder) -> list[int]:
    """What the trained model of the run answers, adapter unmerged."""
    model = find_trained(run).loaded("fp32")
    return list(model.sample([PROMPT], SamplingParams(8, temperature=0.0))[0][0].ids)


@pytest.mark.parametrize("which", ["run", pytest.param("full", marks=pytest.mark.slow)])
def test_merged_weights_answer_as_the_run_does_in_plain_transformers(
    which: str, checkpoint: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = request.getfixturevalue(which)
    monkeypatch.setattr(exporting, "save_network", coarser)  # so that float32 is taken
    done = export(run, tmp_path / "out")
    assert answered(network_in(tmp_path / "out")) == said(run) != answered(network_in(checkpoint))
    assert done.agreement.identical == done.agreement.prompts > 0
    assert done.agreement.largest_gap < 1e-4
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("who is it?")["input_ids"] == AutoTokenizer.from_pretrained(checkpoint)("who is it?")["input_ids"]
    assert tokenizer.chat_template == "{{ messages[0].content }}"
    assert (tmp_path / "out" / "generation_config.json").is_file()


def test_the_type_is_kept_if_no_answer_changes(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_first_segments", lambda *_: [])
    monkeypatch.setattr(exporting, "_TEXTS", ("A",))
    done = export(run, tmp_path / "out")
    assert done.dtype == find_dtype(tmp_path / "out") == "bfloat16"
    written = json.loads((tmp_path / "out" / "export.json").read_text())
    assert written["agreement"]["mean_gap"] == done.agreement.mean_gap
    assert str(done.agreement) in (tmp_path / "out" / "README.md").read_text()
    # By hand: the sum is rounded once, in float32 before.
    merged, base = map(network_in, (tmp_path / "out", run.config["model"]))
    parts = load_file(run.path / "weights" / "policy" / "adapter_model.safetensors")
    name = "model.layers.0.self_attn.q_proj"
    down, up = (parts[f"base_model.model.{name}.lora_{which}.weight"].float() for which in "AB")
    settings = json.loads((run.path / "weights" / "policy" / "adapter_config.json").read_text())
    total = base.get_submodule(name).weight + settings["lora_alpha"] / settings["r"] * (up @ down)
    assert torch.equal(merged.get_submodule(name).weight, total.to(torch.bfloat16).float())


def coarser(network: Any, folder: Path) -> None:
    """What bfloat16 does to large networks, done to a tiny one."""
    for value in network.parameters() if network.dtype == torch.bfloat16 else ():
        value.copy_((4 * value).round() / 4)
    save_network(network, folder)


def test_export_keeps_precision_if_rounding_changes_answers(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "save_network", coarser)
    done = export(run, tmp_path / "out")
    assert done.dtype == find_dtype(tmp_path / "out") == "float32"
    assert done.agreement.identical == done.agreement.prompts


def test_the_adapter_loads_with_peft_on_a_base_that_goes_along(run: RunFolder, tmp_path: Path) -> None:
    done = export(run, tmp_path / "out", merged=False)
    network = PeftModel.from_pretrained(network_in(tmp_path / "out" / "base"), tmp_path / "out")
    assert answered(network) == said(run)
    assert done.agreement.largest_gap < 1e-4
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize("options", [{}, pytest.param({"merged": False}, marks=pytest.mark.slow)])
def test_no_place_of_this_machine_is_told(run: RunFolder, place: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    settings = Path(run.config["model"]) / "tokenizer_config.json"
    before = settings.read_text()
    settings.write_text(json.dumps({**json.loads(before), "name_or_path": str(place)}))
    try:
        export(run, tmp_path / "out", **options)
    finally:
        settings.write_text(before)
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for told in (place, tmp_path, Path.home(), Path.cwd()):
                assert str(told).encode() not in content, path


def test_model_card_states_origin_and_measurements(run: RunFolder, tmp_path: Path) -> None:
    export(run, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    head = card.split("---")[1]
    assert head.splitlines()[1:] == [
        'base_model: "base-of-here"', "base_model_relation: finetune", "library_name: transformers",
        "pipeline_tag: text-generation", "license: mit", "tags:", "- keepworth", "- reinforcement-learning",
    ]  # fmt: skip
    table = run.result()["tables"][0]  # type: ignore[index]
    trained = next(row for row in table["rows"] if row["arm"] == "trained")
    assert table["title"] in card
    assert f"{trained['mean']:.3f} [{trained['low']:.2f}, {trained['high']:.2f}]" in card


def test_a_folder_that_differs_is_refused(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The base without its adapter.
    monkeypatch.setattr(exporting, "merge_network", lambda model: model.network.unload())
    with pytest.raises(KeepworthError, match=r"differs from the run by \d\.\d+ nats a token"):
        export(run, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_base_that_has_changed_is_refused(run: RunFolder, checkpoint: Path, tmp_path: Path) -> None:
    weights = checkpoint / "model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    try:
        with pytest.raises(KeepworthError, match=r"model.safetensors is not what .* was trained from"):
            export(run, tmp_path / "out")
    finally:
        weights.write_bytes(before)


@pytest.mark.slow
def test_export_leaves_foreign_files_alone(run: RunFolder, full: RunFolder, tmp_path: Path) -> None:
    there = tmp_path / "out"
    there.mkdir()
    export(run, there)  # empty
    card = (there / "README.md").read_text()
    (there / "README.md").unlink()
    export(run, there)  # the same again
    assert (there / "README.md").read_text() == card
    for other in ({"merged": False}, {"run": full}):
        with pytest.raises(KeepworthError, match="holds something else than an export of this run"):
            export(**{"run": run, "folder": there, **other})
    (there / "export.json").write_text("[]")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    taken = dict.fromkeys((tmp_path / "file", tmp_path / "link"), "holds something else")
    taken |= {there: "JSON object", run.path / "weights" / "out": "inside the run's own folder"}
    for folder, says in taken.items():
        with pytest.raises(KeepworthError, match=says):
            export(run, folder)


def test_export_on_a_full_disk_leaves_no_files(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(exporting, "copy_texts", full)
        with pytest.raises(DiskTrouble, match=r"The disk that holds .*out is full"):
            export(run, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_run_that_has_not_finished_is_refused(run: RunFolder, full: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(KeepworthError, match="trained all weights of policy: there is no adapter"):
        export(full, tmp_path / "out", merged=False)
    cut = tmp_path / run.name
    shutil.copytree(run.path, cut)
    shutil.rmtree(cut / "weights")
    with pytest.raises(KeepworthError, match="not finished training"):
        export(cut, tmp_path / "out")


def test_wrong_names_are_refused(run: RunFolder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UnknownName, match="polisy"):
        export(run, out, role="polisy")
    with pytest.raises(UnknownName, match="mime"):
        export(run.path.parent / "mime", out)
    both = tmp_path / "both"
    shutil.copytree(run.path, both)
    shutil.copytree(both / "weights" / "policy", both / "weights" / "reader")
    with pytest.raises(KeepworthError, match="trained policy and reader") as caught:
        export(both, out)
    assert caught.value.fix == "Say which: --role policy."
    assert export(both, out, role="reader").role == "reader"
    assert set(tmp_path.iterdir()) == {both, out}
