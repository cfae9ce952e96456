"""Commands on other machines: consoles that are not UTF-8, users without a home folder, folders that cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keepworth import Memory
from tests.slow import slow_but_for

NOTE = "Ana's café opens at 7 \U0001f600, 東京 店, ул. Мира"


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "keepworth", *words],
        env={**{name: value for name, value in os.environ.items() if name != "HOME"}, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("encoding", slow_but_for(["cp1252"], ["cp1252", "gbk", "shift_jis"]))
def test_a_console_that_lacks_a_character_prints_the_rest(tmp_path: Path, encoding: str) -> None:
    file = str(tmp_path / "m.mem")
    environment = {"HOME": str(tmp_path), "PYTHONIOENCODING": encoding, "KEEPWORTH_CACHE": str(tmp_path)}
    with Memory(file, encoder="hashing:64") as memory:
        memory.add("Another note.")
    for words in (
        ("add", NOTE),
        ("list",),
        ("search", "when does the café open"),
        ("search", "when does the café open", "--explain"),
        ("history", "m2"),
        ("show", NOTE),  # an error that quotes it
    ):
        done = run("memory", *words, "--file", file, **environment)
        assert b"Traceback" not in done.stderr
        assert done.returncode == (2 if words[0] == "show" else 0), done.stderr.decode("ascii", "replace")
        assert "opens at 7" in (done.stdout + done.stderr).decode(encoding)
    for words in (("list",), ("search", "when does the café open")):
        printed = run("memory", *words, "--json", "--file", file, **environment).stdout.decode(encoding)
        assert NOTE in json.dumps([json.loads(line) for line in printed.splitlines()], ensure_ascii=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [("add", NOTE), ("list",), ("list", "--json"), ("search", "café"), ("history", "m1")])
def test_output_that_cannot_be_written_is_named_after_the_work_is_done(tmp_path: Path, words: tuple[str, ...]) -> None:
    file = str(tmp_path / "m.mem")
    with Memory(file, encoder="hashing:64") as memory:
        memory.add("The café opens at 8.")
    line = [sys.executable, "-m", "keepworth", "memory", *words, "--file", file]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 2
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr
    with Memory(file) as memory:
        assert len(memory) == (2 if words[0] == "add" else 1)


@pytest.mark.parametrize("closed", slow_but_for([">&-", "<&- >&- 2>&-"], [">&-", "<&-", "2>&-", "<&- >&- 2>&-"]))
def test_commands_work_without_standard_streams(tmp_path: Path, closed: str) -> None:
    file = str(tmp_path / "m.mem")
    with Memory(file, encoder="hashing:64"):
        pass
    for words in ("memory add 'The café opens at 8.'", "memory list", "memory search café", "methods"):
        option = f" --file '{file}'" if words.startswith("memory") else ""
        line = f"'{sys.executable}' -m keepworth {words}{option} {closed}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=60, check=False)
        lost = ">&-" in closed.split()
        assert (done.returncode, b"Traceback" in done.stderr) == (2 if lost else 0, False), done.stderr
        if closed == ">&-":
            assert b"The output of this command cannot be written" in done.stderr
    with Memory(file) as memory:
        assert len(memory) == 1


def test_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    line = f"rmdir '{folder}'; '{sys.executable}' -m keepworth memory add x --encoder hashing"
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in done.stderr
    assert b"is gone" in done.stderr
    assert done.returncode == 2


def test_without_a_home_folder_the_error_names_the_variable_that_helps(tmp_path: Path) -> None:
    file = str(tmp_path / "m.mem")
    nowhere = {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "", "KEEPWORTH_CACHE": ""}
    done = run("memory", "add", "The shop opens at 7.", "--file", file, **nowhere)
    assert done.returncode == 2
    assert b"KEEPWORTH_CACHE" in done.stderr
    assert b"Traceback" not in done.stderr
    assert not Path(file).exists()  # refused before a file is made
    assert run("memory", "add", "x", "--file", file, "--encoder", "hashing", **nowhere).returncode == 0
    assert run("doctor", **nowhere).returncode in (0, 2)


def test_user_unknown_to_the_system_gets_a_typed_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from keepworth.base.user_files import UnusableCache, cache_folder

    for name in ("KEEPWORTH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    with pytest.raises(UnusableCache, match="KEEPWORTH_CACHE"):
        Memory(tmp_path / "m.mem")
    assert not (tmp_path / "m.mem").exists()
    monkeypatch.setenv("KEEPWORTH_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path


def test_a_cache_that_is_full_or_read_only_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from keepworth.base import model_files as files
    from keepworth.base.user_files import UnusableCache

    monkeypatch.setenv("KEEPWORTH_CACHE", str(tmp_path))

    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device", str(tmp_path / "models"))

    monkeypatch.setattr(files, "download", full)
    with pytest.raises(UnusableCache, match=r"No space left on device.*KEEPWORTH_CACHE"):
        Memory(tmp_path / "m.mem")
