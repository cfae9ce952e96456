"""The six-command memory tool that models know as files: view, create, str_replace, insert, delete, rename.

Files live in the memory, never on the disk: a path is a name under /memories and nothing else can be reached. Every
version of a file stays in the history.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from recollect.memory.errors import MemoryProblem
from recollect.memory.item import Item, ItemKind
from recollect.memory.memory import Memory

ROOT = "/memories"
AGENT = "files"
_EMPTY = "(empty file)"


class FileTool:
    """Call it with the tool's arguments ({"command": "view", "path": "/memories"}); it answers with text, errors too."""

    def __init__(self, memory: Memory, *, user_id: str = "") -> None:
        self._memory = memory
        self._bounds: dict[str, Any] = {"agent_id": AGENT, **({"user_id": user_id} if user_id else {})}

    def __call__(self, arguments: Mapping[str, Any]) -> str:
        commands: dict[Any, Callable[..., str]] = {
            "view": self.view,
            "create": self.create,
            "str_replace": self.str_replace,
            "insert": self.insert,
            "delete": self.delete,
            "rename": self.rename,
        }
        rest = dict(arguments)
        command = commands.get(rest.pop("command", ""))
        if command is None:
            return f"Error: unknown command; use one of {', '.join(commands)}"
        try:
            return command(**rest)
        except (MemoryProblem, _Refused) as error:
            return f"Error: {error}"
        except TypeError as error:
            return f"Error: wrong arguments for this command: {error}"

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
        if name in self._files():
            raise _Refused(f"File {name} already exists")
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
        for file in moved:
            self._memory.update(files[file].id, metadata={"path": new + file[len(old) :]})
        return f"Successfully renamed {old} to {new}"

    def _files(self) -> dict[str, Item]:
        found = self._memory.get_all(limit=100_000, **self._bounds)
        return {item.metadata["path"]: item for item in found if "path" in item.metadata}

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
        text = content if content.strip() else f"{_EMPTY}\n{content}"
        if old is not None:
            self._memory.update(old.id, text)
        else:
            self._memory.add(text, kind=ItemKind.CORE, metadata={"path": name}, repeat=True, **self._bounds)


class _Refused(Exception):
    """What the model is told."""


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
    return item.text.removeprefix(f"{_EMPTY}\n") if item.text.startswith(f"{_EMPTY}\n") else item.text
