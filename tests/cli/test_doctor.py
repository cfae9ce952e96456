"""What is missing is said with what it costs and how to get it."""

from __future__ import annotations

import pytest

from keepworth.cli import doctor
from keepworth.episodes import extras
from tests.cli.conftest import CommandLine


def test_what_matters_comes_first_and_extras_are_one_line(command: CommandLine) -> None:
    short = command("doctor")[1].splitlines()
    subjects = [line.split()[1] for line in short if line.split()[0] in "✓○✗"]
    assert subjects[:3] == ["python", "packages", "model"]
    assert [line for line in subjects if line.startswith("extra")] == ["extras"]
    assert "doctor --all" in short[-1]
    every = command("doctor", "--all")[1].splitlines()
    assert sum(line.split()[1] == "extra" for line in every) == len(extras.EXTRAS)


def test_an_extra_that_is_there_in_part_names_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "textworld_express" else object())
    found = {extra.message.split(":")[0]: extra for extra in doctor._extras()}
    assert found["envs"].verdict == "missing"
    assert found["envs"].message.endswith("(textworld_express is not there)")
    assert found["envs"].fix == 'pip install "keepworth[envs]"'
    assert found["trl"].verdict == "good"
