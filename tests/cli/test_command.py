"""What all commands have in common: help that fits, examples that parse, options of earlier versions that name the new ones."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from keepworth.base.errors import KeepworthError
from keepworth.cli.main import app, main


def commands(command: Any = None, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group of the program, with the words that lead to it."""
    command = command or typer.main.get_command(app)
    yield names, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, *names, name)


EVERY = [(words, command) for words, command in commands() if words != ("hook",)]  # which reads its words itself


def test_help_fits_and_names_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words, command in EVERY:
        shown = CliRunner().invoke(app, [*words, "--help"], prog_name="keepworth").stdout
        text, _, _ = shown.partition("\nExamples:\n")  # a command line is to be copied, and is not broken
        wide = [line for line in text.splitlines() if len(line) > 80 and len(line.split()) > 2]
        assert wide == [], words
        for option in command.params:
            assert all(opt in text for opt in option.opts if opt.startswith("--")), words


def test_help_lists_common_commands_first() -> None:
    shown = CliRunner().invoke(app, ["--help"], prog_name="keepworth").stdout
    titles = [line for line in shown.splitlines() if line and not line.startswith(" ")]
    assert titles[titles.index("Remember:") :] == ["Remember:", "Learn:", "Look:", "Set up:", "Options:"]
    first = shown.partition("\nRemember:\n")[2].split("\nLearn:\n")[0]
    assert [line.split()[0] for line in first.splitlines() if re.match(r"  \w", line)] == [
        "serve",
        "hook",
        "learn",
        "memory",
    ]
    assert "a memory to agents" in " ".join(first.split())


def test_examples_of_help_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        "all.jsonl",
        "memories.json",
        "CLAUDE.md",
        "AGENTS.md",
        "notes",
    ):  # to be read, so they have to be there
        (tmp_path / name).touch()
    for words, command in EVERY:
        for line in (command.epilog or "").splitlines():
            found = shlex.split(line.split(" | ")[-1].split(" > ")[0])
            assert tuple(found[: len(words) + 1]) == ("keepworth", *words), line
            given = [word for word in found[len(words) + 1 :] if word != "--help"]
            command.make_context(" ".join(words), given)


def test_a_group_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Usage: keepworth memory")
    assert "error" not in said


@pytest.mark.parametrize(
    "words", [["--debug", "models", "fetch", "no such"], ["models", "fetch", "no such", "--debug"]]
)
def test_debug_stands_anywhere(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(KeepworthError):
        main(words)


def test_words_after_two_dashes_are_text(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "a.mem")
    assert main(["memory", "add", "--file", file, "--encoder", "none", "--", "--debug"]) == 0
    assert "--debug" in capsys.readouterr().out
