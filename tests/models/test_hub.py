"""Checkpoints from elsewhere: a folder here, or an id of the Hugging Face Hub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from keepworth.models.errors import IncompleteModel, UnknownModel, UnreachableModel
from keepworth.models.files import path_of, record_of


def _checkpoint(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("{}")
    return folder


def test_a_complete_local_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path / "mine", "config.json", "model.safetensors", "tokenizer.json")
    assert path_of(str(folder)) == folder


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ((), r"lacks config\.json, weights \(\*\.safetensors\), a tokenizer"),
        (("config.json", "model.safetensors"), r"lacks a tokenizer"),
        (("model.safetensors", "tokenizer.json"), r"lacks config\.json\."),
        (("config.json", "pytorch_model.bin", "vocab.txt"), r"lacks weights"),
    ],
)
def test_a_folder_that_lacks_a_part_is_refused_by_its_name(
    names: tuple[str, ...], missing: str, tmp_path: Path
) -> None:
    with pytest.raises(IncompleteModel, match=missing):
        path_of(str(_checkpoint(tmp_path / "mine", *names)))


@pytest.mark.parametrize("where", ["./absent", "/absent/folder", "~/absent/folder/of/mine", "a/b/c"])
def test_an_absent_folder_is_said_to_be_absent(where: str) -> None:
    with pytest.raises(UnknownModel, match="There is no folder"):
        path_of(where)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_text("")
    with pytest.raises(IncompleteModel, match=r"m\.gguf is a file"):
        path_of(str(tmp_path / "m.gguf"))


def test_offline_a_hub_id_says_why_and_what_is_available_instead(tmp_path: Path) -> None:
    # In a process of its own: the Hub's library reads its variables once, when it is first imported.
    program = "from keepworth.models.files import path_of\npath_of('HuggingFaceTB/SmolLM2-135M-Instruct')"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2] / "src"), env.get("PYTHONPATH", "")])
    failed = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "UnreachableModel" in failed.stderr
    assert "HF_HUB_OFFLINE is set" in failed.stderr
    assert "'smollm2-135m-instruct' holds the same model" in failed.stderr


def test_a_hub_that_does_not_answer_and_a_model_it_does_not_have_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import httpx
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    response = httpx.Response(404, request=httpx.Request("GET", "https://example.invalid"))
    answers = {
        LocalEntryNotFoundError("no answer"): (UnreachableModel, "the Hub cannot be reached"),
        RepositoryNotFoundError("no such", response=response): (UnknownModel, "has no 'someone/tiny'"),
        GatedRepoError("gated", response=response): (UnreachableModel, "hf auth login"),
        httpx.ConnectError("refused"): (UnreachableModel, "the Hub cannot be reached"),
    }
    for raised, (expected, said) in answers.items():

        def answer(*_: object, error: Exception = raised, **__: object) -> str:
            raise error

        monkeypatch.setattr(huggingface_hub, "snapshot_download", answer)
        with pytest.raises(expected, match=said):
            path_of("someone/tiny")


def test_a_snapshot_without_safetensors_is_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    folder = _checkpoint(tmp_path / "snapshot", "config.json", "tokenizer.json")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))
    with pytest.raises(IncompleteModel, match="lacks weights"):
        path_of("someone/pickled")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("name", "asked", "warned"),
    [
        ("someone/tiny", None, True),
        ("someone/tiny@main", "main", True),
        (f"someone/tiny@{COMMIT}", COMMIT, False),
    ],
)
def test_files_of_the_hub_are_the_same_again_only_where_a_commit_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    asked: str | None,
    warned: bool,
) -> None:
    import huggingface_hub

    folder = _checkpoint(tmp_path / "snapshots" / COMMIT, "config.json", "tokenizer.json", "model.safetensors")
    calls = []

    def download(repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        calls.append((repository, revision))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert path_of(name) == folder
    assert calls == [("someone/tiny", asked)]
    assert (f"name someone/tiny@{COMMIT}" in caplog.text) is warned
    record = record_of(name, folder)
    assert (record["repository"], record["revision"]) == ("someone/tiny", COMMIT)
