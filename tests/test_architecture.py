"""The page on the house names every room and no file that is not there; a private module stays inside its folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import keepworth
from tests.sources import files, nodes

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


def test_rooms_are_listed_in_import_order() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    level = {name.strip(" ()"): place for place, layer in enumerate(layers) for name in layer.split("|")}
    table = PAGE[PAGE.index(BEGINS) :].partition("\n\n|")[2].partition("\n\n")[0]
    order = [level[f"keepworth.{room}"] for room in re.findall(r"^\| `(\w+)/`", table, re.M)]
    assert order == sorted(order)


def imported(path: Path) -> Iterator[str]:
    """Every module and name that a file imports, and every module that a text of it names, with dots."""
    for node in nodes(path):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{name.name}" for name in names)
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.Constant(value=str(text)) if re.fullmatch(r"keepworth(\.\w+)+(:\w+)?", text):
                yield text.replace(":", ".")


def folder_of_private(name: str) -> str:
    """The folder that holds what is private in a dotted name; "" where nothing is."""
    names = name.split(".")
    private = next((place for place, word in enumerate(names) if re.match(r"_[a-z]", word, re.I)), None)
    if private is None or names[0] != "keepworth":
        return ""
    holder = SOURCE.parent.joinpath(*names[:private])
    return ".".join(names[:private] if holder.is_dir() else names[: private - 1])


def test_private_modules_are_imported_inside_their_folder_only() -> None:
    assert folder_of_private("keepworth.methods.writers._claims.Claim") == "keepworth.methods.writers"
    assert folder_of_private("keepworth.memory.item._name") == "keepworth.memory"
    outside = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in files()
        for name in imported(path)
        if (folder := folder_of_private(name))
        and not f"{'.'.join(path.parent.relative_to(SOURCE.parent).parts)}.".startswith(f"{folder}.")
    ]
    assert outside == []
