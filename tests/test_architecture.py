"""The page on the house names every room and no file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import keepworth

SOURCE = Path(keepworth.__file__).parent
ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BEGINS = "## The rooms"


def test_every_room_is_named_and_every_file_is_there() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    table = PAGE[PAGE.index(BEGINS) :].partition("\n\n|")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)/`", table, re.M)) == rooms
    for room in ("memory", "training"):
        inside = {path.name for path in (SOURCE / room).iterdir() if path.is_dir() and (path / "__init__.py").exists()}
        assert inside <= set(re.findall(r"`(\w+)/`", PAGE)), room
    named = re.findall(r"`([\w/]+\.(?:py|json))`", PAGE)
    assert [each for each in named if not (SOURCE / each).exists() and not (ROOT / each).exists()] == []


def test_rooms_stand_in_the_order_of_who_may_import_whom() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    level = {name.strip(" ()"): place for place, layer in enumerate(layers) for name in layer.split("|")}
    table = PAGE[PAGE.index(BEGINS) :].partition("\n\n|")[2].partition("\n\n")[0]
    order = [level[f"keepworth.{room}"] for room in re.findall(r"^\| `(\w+)/`", table, re.M)]
    assert order == sorted(order)
