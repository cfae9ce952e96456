"""The six-command memory tool that models know as files: view, create, str_replace, insert, delete, rename.

Files live in the memory, never on the disk: a path is a name under /memories and nothing else can be reached. Every
version of a file stays in the history.
"""

from __future__ import annotations

import inspect
import posixpath
from collections.abc import Callable, Collection, Mapping
from typing import Any

from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import Item, ItemKind
from keepworth.memory.memory import Memory

ROOT = "/memories"
AGENT = "files"
_EMPTY = "(empty file)\n"
"""Before what a memory would not take as a text, and before what begins like this."""


class FileTool:
    """Call it with the tool's arguments ({"command": "view", "path": "/memories"}); it answers with text, errors too."""

    def __init__(self, memory: Memory, *, user_id: str = "") -> None:
        self._memory = memory
        self._bounds: dict[str, Any] = {"agent_id": AGENT, **({"user_id": user_id} if user_id else {})}

    def __call__(self, arguments: Mapping[str, Any]) -> str:
        commands: dict[str, Callable[..., str]] = {
            "view": self.view,
            "create": self.create,
            "str_replace": self.str_replace,
            "insert": self.insert,
            "delete": self.delete,
            "rename": self.rename,
        }
        if not isinstance(arguments, Mapping):
            return f"Error: the arguments must be an object with a command, got {type(arguments).__name__}"
        rest = {str(name): value for name, value in arguments.items()}
        name = rest.pop("command", "")
        command = commands.get(name) if isinstance(name, str) else None
        if command is None:
            return f"Error: unknown command; use one of {', '.join(commands)}"
        try:
            inspect.signature(command).bind(**rest)
            _check_types(rest)
            return command(**rest)
        except (MemoryProblem, _Refused) as error:
            return f"Error: {error}"
        except TypeError as error:  # of `bind`: missing or unknown ones
            return f"Error: wrong arguments for {name}: {error}"

    def view(self, path: str, view_range: list[int] | None = None) -> str:
        name = normal_path(path)
        files = self._files()
        if name in files:
            lines = _content(files[name]).split("\n")
            first, last = (1, len(lines)) if view_range is None else (view_range[0], view_range[1])
            last = len(lines) if last == -1 else last
            if not 1 <= first <= last <= len(lines):
                raise _Refused(f"view_range {view_range} does not fit the file's {len(lines)} lines")
            body = "\n".join(f"{number:6d}\t{lines[number - 1]}" for number in range(first, last + 1))
            return f"Here's the content of {name} with line numbers:\n{body}"
        below = sorted(file for file in files if file.startswith(name + "/"))
        if not below and name != ROOT:
            raise _Refused(f"The path {name} does not exist. Please provide a valid path.")
        return "\n".join([f"Here're the files in {name}:", *below])

    def create(self, path: str, file_text: str) -> str:
        name = self._file_path(path)
        files = self._files()
        if name in files:
            raise _Refused(f"File {name} already exists")
        _check_place(name, files)
        self._write(name, file_text)
        return f"File created successfully at: {name}"

    def str_replace(self, path: str, old_str: str, new_str: str = "") -> str:
        name, item = self._existing(path)
        content = _content(item)
        times = content.count(old_str) if old_str else 0
        if times != 1:
            found = "did not appear verbatim" if not times else f"appears {times} times and must be unique"
            raise _Refused(f"No replacement was performed: old_str `{old_str}` {found} in {name}")
        self._write(name, content.replace(old_str, new_str), item)
        return f"The memory file {name} has been edited."

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        name, item = self._existing(path)
        lines = _content(item).split("\n")
        if not 0 <= insert_line <= len(lines):
            raise _Refused(f"insert_line {insert_line} must lie in [0, {len(lines)}]")
        lines[insert_line:insert_line] = insert_text.removesuffix("\n").split("\n")
        self._write(name, "\n".join(lines), item)
        return f"The file {name} has been edited."

    def delete(self, path: str) -> str:
        name = normal_path(path)
        files = self._files()
        doomed = [file for file in files if file == name or file.startswith(name + "/")]
        if name == ROOT or not doomed:
            raise _Refused(f"The path {name} does not exist or cannot be deleted")
        for file in doomed:
            self._memory.delete(files[file].id)
        return f"Successfully deleted {name}"

    def rename(self, old_path: str, new_path: str) -> str:
        old, new = normal_path(old_path), self._file_path(new_path)
        files = self._files()
        moved = [file for file in files if file == old or file.startswith(old + "/")]
        if not moved:
            raise _Refused(f"The path {old} does not exist")
        if any(file == new or file.startswith(new + "/") for file in files):
            raise _Refused(f"The destination {new} already exists")
        if new.startswith(old + "/"):
            raise _Refused(f"{old} cannot be moved into itself")
        _check_place(new, [file for file in files if file not in moved])
        for file in moved:
            self._memory.update(files[file].id, metadata={"path": new + file[len(old) :]})
        return f"Successfully renamed {old} to {new}"

    def _files(self) -> dict[str, Item]:
        found = self._memory.get_all(limit=100_000, **self._bounds)
        # Others may write under the tool's agent, too: what has no path of ours is no file.
        return {path: item for item in found if isinstance(path := item.metadata.get("path"), str) and _is_file(path)}

    def _existing(self, path: str) -> tuple[str, Item]:
        name = normal_path(path)
        item = self._files().get(name)
        if item is None:
            raise _Refused(f"The path {name} does not exist. Please provide a valid path.")
        return name, item

    def _file_path(self, path: str) -> str:
        name = normal_path(path)
        if name == ROOT:
            raise _Refused(f"{ROOT} is the folder itself: give the path of a file in it")
        return name

    def _write(self, name: str, content: str, old: Item | None = None) -> None:
        text = _EMPTY + content if not content.strip() or content.startswith(_EMPTY) else content
        if old is not None:
            self._memory.update(old.id, text, repeat=True)
        else:
            self._memory.add(text, kind=ItemKind.CORE, metadata={"path": name}, repeat=True, **self._bounds)


class _Refused(Exception):
    """What the model is told."""


def _check_types(arguments: Mapping[str, Any]) -> None:
    """Raise _Refused for a value that is not of the sort its name asks for: a model may send anything."""
    for name, value in arguments.items():
        if name == "insert_line":
            sound, sort = type(value) is int, "a whole number"
        elif name == "view_range":
            whole = isinstance(value, (list, tuple)) and len(value) == 2 and all(type(each) is int for each in value)
            sound, sort = value is None or whole, "[first line, last line], -1 for the end"
        else:
            sound, sort = isinstance(value, str), "text"
        if not sound:
            raise _Refused(f"{name} must be {sort}, got {value!r:.60}")


def _check_place(name: str, files: Collection[str]) -> None:
    """Raise _Refused where a file `name` would be a folder, too, or lie in a file."""
    if any(file.startswith(name + "/") for file in files):
        raise _Refused(f"{name} is a folder")
    parents = [file for file in files if name.startswith(file + "/")]
    if parents:
        raise _Refused(f"{parents[0]} is a file, not a folder")


def _is_file(path: str) -> bool:
    try:
        return normal_path(path) == path != ROOT
    except _Refused:
        return False


def normal_path(path: object) -> str:
    """The one spelling of a path under /memories. Everything that points outside is refused, encoded dots included."""
    if not isinstance(path, str) or "\x00" in path or "\\" in path or "%" in path:
        raise _Refused(f"{path!r:.80} is not a path under {ROOT}")
    name = posixpath.normpath(path)
    parts = path.split("/")
    if ".." in parts or (name != ROOT and not name.startswith(ROOT + "/")):
        raise _Refused(f"Path {path} is not within {ROOT}")
    return name


def _content(item: Item) -> str:
    return item.text.removeprefix(_EMPTY)
