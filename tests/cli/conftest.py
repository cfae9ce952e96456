"""The command line as people use it, called in this process and in a folder of the test's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from keepworth.cli.main import main


class CommandLine:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """The exit code, what was printed, and what was said on standard error."""
        self._capsys.readouterr()
        self._patch.setattr(sys, "argv", ["keepworth", *words])
        code = main(list(words))
        said = self._capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    def done(self, *words: str) -> str:
        """What a command printed that did what it was told."""
        code, out, err = self(*words)
        assert code == 0, err
        return out

    def refused(self, *words: str) -> str:
        """What was said of a mistake."""
        code, out, err = self(*words)
        assert (code, out) == (2, "")
        return err


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("KEEPWORTH_RUNS", raising=False)
    monkeypatch.delenv("KEEPWORTH_DEBUG", raising=False)
    return CommandLine(monkeypatch, capsys)
