"""The package had another name at first: what it left on disk is found, and what is not read any more is said."""

from __future__ import annotations

from pathlib import Path

import pytest

import keepworth
from keepworth.cli.main import main
from keepworth.memory.store.transfer import exported, imported
from keepworth.models.files import cache_folder


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_memory_under_the_first_default_name_is_not_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    with keepworth.Memory("recollect.mem", encoder=None) as memory:
        memory.add("Ana lives in Porto.")
    assert main(["memory", "add", "Bob lives in Rome.", "--encoder", "none"]) == 2
    assert "--file recollect.mem" in capsys.readouterr().err
    assert not Path("keepworth.mem").exists()
    assert main(["memory", "search", "Ana", "--encoder", "none", "--file", "recollect.mem"]) == 0
    assert "Porto" in capsys.readouterr().out


def test_variables_of_the_first_name_are_said_to_be_without_effect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECOLLECT_RUNS", "elsewhere")
    assert main(["objectives", "list"]) == 0
    assert "KEEPWORTH_RUNS" in capsys.readouterr().err


def test_models_fetched_under_the_first_name_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEEPWORTH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "keepworth"
    (tmp_path / "recollect").mkdir()
    assert cache_folder() == tmp_path / "recollect"
    (tmp_path / "keepworth").mkdir()
    assert cache_folder() == tmp_path / "keepworth"


def test_exports_of_the_first_name_are_imported() -> None:
    with keepworth.Memory("one.mem", encoder=None) as one, keepworth.Memory("two.mem", encoder=None) as two:
        one.add("Ana lives in Porto.")
        lines = [line.replace("keepworth memory", "recollect memory") for line in exported(one.store)]
        imported(two.store, iter(lines))
        assert [item.text for item in two.get_all()] == ["Ana lives in Porto."]
