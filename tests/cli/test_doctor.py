"""What is missing is said with what it costs and how to get it."""

from __future__ import annotations

import pytest

from keepworth.cli import doctor
from keepworth.cli.doctor import Verdict
from keepworth.cli.main import main
from keepworth.episodes import extras


def test_what_matters_comes_first_and_extras_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    short = capsys.readouterr().out.splitlines()
    subjects = [line.split()[1] for line in short if line.split()[0] in "✓○✗"]
    assert subjects[:3] == ["python", "packages", "model"]
    assert [line for line in subjects if line.startswith("extra")] == ["extras"]
    assert "doctor --all" in short[-1]
    main(["doctor", "--all"])
    assert sum(line.split()[1] == "extra" for line in capsys.readouterr().out.splitlines()) == len(extras.EXTRAS)


def test_without_java_the_household_is_left_out_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    found = doctor._java()
    assert found.verdict is Verdict.MISSING
    assert "household (TextWorldExpress) and science (ScienceWorld) are left out" in found.message
    assert "install a Java runtime" in found.fix
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert doctor._java().verdict is Verdict.GOOD


def test_without_alfworld_its_stream_is_left_out_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepworth.methods.worlds.alfworld.find_spec", lambda name: None)
    found = doctor._alfworld()
    assert found.verdict is Verdict.MISSING
    assert "the stream alfworld is left out" in found.message
    assert "compiler" in found.fix
    monkeypatch.setattr("keepworth.methods.worlds.alfworld.find_spec", lambda name: object())
    assert doctor._alfworld().verdict is Verdict.GOOD


def test_an_extra_that_is_there_in_part_names_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "textworld_express" else object())
    found = {each.message.split(":")[0]: each for each in doctor._extras() if each.subject == "extra"}
    assert found["envs"].verdict is Verdict.MISSING
    assert found["envs"].message.endswith("(textworld_express is not there)")
    assert found["envs"].fix == 'pip install "keepworth[envs]"'
    assert found["trl"].verdict is Verdict.GOOD
