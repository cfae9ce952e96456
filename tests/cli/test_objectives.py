"""The list of objectives holds every preset, on a terminal of any width and off it."""

from __future__ import annotations

import pytest

from keepworth.cli.main import main
from keepworth.cli.train import COLUMNS
from keepworth.episodes.text import terminal
from keepworth.learning.objective.presets import presets


@pytest.mark.parametrize("arguments", [["objectives"], ["objectives", "list"]])
def test_off_a_terminal_it_is_a_table_for_programs(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert tuple(lines[0]) == COLUMNS
    assert [line[0] for line in lines[1:]] == list(presets())
    assert {len(line) for line in lines} == {len(COLUMNS)}


@pytest.mark.parametrize("width", [80, 300])
def test_on_a_terminal_every_name_is_whole(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console = terminal(width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr("keepworth.episodes.text.terminal", lambda: console)
    assert main(["objectives"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in presets())
    assert max(map(len, out.splitlines())) <= width
    assert ("aggregation  " in out.splitlines()[1]) == (width == 300)  # the head of a column
