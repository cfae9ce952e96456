"""The six-command memory tool that models know as files: view, create, str_replace, insert, delete, rename.

Answers are worded as those of Anthropic's own tool (`memory_20250818`; `anthropic.lib.tools` of its SDK). Files live in the
memory, never on the disk: a path is a name under /memories and nothing else can be reached. Every version of a file stays in
the history.
"""

from __future__ import annotations

import inspect
import posixpath
import reprlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import unquote

from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import Item, ItemKind, text_problem
from keepworth.memory.memory import Memory

ROOT = "/memories"
AGENT = "files"
_EMPTY = "(empty file)\n"
"""Before what a memory would not take as a text, and before what begins like this."""
LEVELS = 2
"""How deep a folder is listed."""
AROUND = 2
"""Lines shown before and after a change."""
MOST_LINES = 999_999


class FileTool:
    """Call it with the tool's arguments ({"command": "view", "path": "/memories"}); it answers with text, errors too."""

    def __init__(self, memory: Memory, *, user_id: str = "") -> None:
        self._memory = memory
        self._bounds: dict[str, Any] = {"agent_id": AGENT, **({"user_id": user_id} if user_id else {})}

    def __call__(self, arguments: Mapping[str, Any]) -> str:
        try:
            return self.carried_out(arguments)
        except FileToolError as error:
            return f"Error: {error}"

    def carried_out(self, arguments: object) -> str:
        """What a command answers. Raises FileToolError with what the model is to be told."""
        # Half a character of a path or a text must not break whoever sends the answer on.
        try:
            return _sendable(self._answer(arguments))
        except (MemoryProblem, FileToolError) as error:
            raise FileToolError(_sendable(str(error))) from error

    def _answer(self, arguments: object) -> str:
        commands: dict[str, Callable[..., str]] = {
            "view": self.view,
            "create": self.create,
            "str_replace": self.str_replace,
            "insert": self.insert,
            "delete": self.delete,
            "rename": self.rename,
        }
        if not isinstance(arguments, Mapping):
            raise FileToolError(f"the arguments must be an object with a command, got {type(arguments).__name__}")
        rest = {str(name): value for name, value in arguments.items()}
        name = rest.pop("command", "")
        command = commands.get(name) if isinstance(name, str) else None
        if command is None:
            raise FileToolError(f"there is no command {_short(name)}: use one of {', '.join(commands)}")
        takes = inspect.signature(command)
        try:
            takes.bind(**rest)
        except TypeError as error:  # missing or unknown ones
            raise FileToolError(f"{name} takes {', '.join(takes.parameters)}: {error}") from error
        _check_types(rest)
        return command(**rest)

    def view(self, path: str, view_range: list[int] | None = None) -> str:
        name = normal_path(path)
        files = self._files(name)
        if name in files:
            lines = _content(files[name]).split("\n")
            if len(lines) > MOST_LINES:
                raise FileToolError(f"File {name} exceeds maximum line limit of {MOST_LINES:,} lines.")
            first, last = (1, -1) if view_range is None else view_range
            last = len(lines) if last == -1 else min(last, len(lines))
            if not 1 <= first <= last:
                raise FileToolError(
                    f"view_range {list(view_range or ())} does not fit the {len(lines)} lines of {name}: give "
                    "[first line, last line], the first is 1, and -1 is the end"
                )
            return f"Here's the content of {name} with line numbers:\n{_numbered(lines, first, last)}"
        if name != ROOT and not any(file.startswith(name + "/") for file in files):
            raise FileToolError(f"The path {name} does not exist. Please provide a valid path.")
        return _listing(name, files)

    def create(self, path: str, file_text: str) -> str:
        name = self._file_path(path)
        files = self._files(name)
        if name in files:
            raise FileToolError(f"File {name} already exists")
        _check_place(name, files)
        self._write(name, file_text, "file_text")
        return f"File created successfully at: {name}"

    def str_replace(self, path: str, old_str: str, new_str: str = "") -> str:
        name, item = self._existing(path)
        content = _content(item)
        if not old_str or old_str not in content:
            raise FileToolError(
                f"No replacement was performed, old_str `{_short(old_str)}` did not appear verbatim in {name}."
            )
        if content.count(old_str) > 1:
            places = [at for at in range(len(content)) if content.startswith(old_str, at)]
            lines = dict.fromkeys(content.count("\n", 0, at) + 1 for at in places)
            raise FileToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{_short(old_str)}` in lines: "
                f"{', '.join(map(str, lines))}. Please ensure it is unique"
            )
        self._write(name, content.replace(old_str, new_str), "new_str", item)
        before, after = content.split(old_str)
        at, end = before.count("\n") + 1, (before + new_str).count("\n") + 1
        now = f"{before}{new_str}{after}".split("\n")
        snippet = _numbered(now, max(1, at - AROUND), min(len(now), end + AROUND))
        return (
            f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{snippet}"
        )

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        name, item = self._existing(path)
        lines = _content(item).split("\n")
        if not lines[-1]:  # what follows the last line break is no line
            lines.pop()
        if not 0 <= insert_line <= len(lines):
            raise FileToolError(
                f"Invalid `insert_line` parameter: {insert_line}. It should be within the range [0, {len(lines)}]."
            )
        lines.insert(insert_line, insert_text.rstrip("\n"))
        self._write(name, "\n".join(lines) + "\n", "insert_text", item)
        return f"The file {name} has been edited."

    def delete(self, path: str) -> str:
        name = normal_path(path)
        files = self._files(name)
        doomed = [file for file in files if file == name or file.startswith(name + "/")]
        if name == ROOT:
            raise FileToolError(f"Cannot delete the {ROOT} directory itself")
        if not doomed:
            raise FileToolError(f"The path {name} does not exist")
        for file in doomed:
            self._memory.delete(files[file].id)
        return f"Successfully deleted {name}"

    def rename(self, old_path: str, new_path: str) -> str:
        old, new = normal_path(old_path), self._file_path(new_path)
        files = self._files(old, new)
        moved = [file for file in files if file == old or file.startswith(old + "/")]
        if not moved:
            raise FileToolError(f"The path {old} does not exist")
        if any(file == new or file.startswith(new + "/") for file in files):
            raise FileToolError(f"The destination {new} already exists")
        if new.startswith(old + "/"):
            raise FileToolError(f"{old} cannot be moved into itself")
        _check_place(new, [file for file in files if file not in moved])
        for file in moved:
            self._memory.update(files[file].id, metadata={"path": new + file[len(old) :]})
        return f"Successfully renamed {old} to {new}"

    def clear(self) -> str:
        """Delete all files; what they held stays in the history."""
        for item in self._files().values():
            self._memory.delete(item.id)
        return "All memory cleared"

    def _files(self, *names: str) -> dict[str, Item]:
        """By path: all, or what has one of these names, lies in it, or is what it lies in."""
        asked: list[dict[str, Any]] = []
        for name in names if ROOT not in names else ():
            parts = name.split("/")
            above = ["/".join(parts[:end]) for end in range(3, len(parts) + 1)]
            asked += [{"path": {"$in": above}}, {"path": {"$contains": f"{name}/"}}]
        found = self._memory.get_all(limit=100_000, where={"$or": asked} if asked else None, **self._bounds)
        # Others may write under the tool's agent, too: what has no path of ours is no file.
        return {path: item for item in found if isinstance(path := item.metadata.get("path"), str) and _is_file(path)}

    def _existing(self, path: str) -> tuple[str, Item]:
        name = normal_path(path)
        item = self._files(name).get(name)
        if item is None:
            raise FileToolError(f"The path {name} does not exist. Please provide a valid path.")
        return name, item

    def _file_path(self, path: str) -> str:
        name = normal_path(path)
        if name == ROOT:
            raise FileToolError(f"{ROOT} is the folder itself: give the path of a file in it")
        return name

    def _write(self, name: str, content: str, argument: str, old: Item | None = None) -> None:
        """argument: which one the content came with, for what is said where no memory takes it."""
        text = _EMPTY + content if not content.strip() or content.startswith(_EMPTY) else content
        problem = text_problem(text)
        if problem is not None:
            raise FileToolError(f"{argument}: the file's {problem}; nothing was written")
        if old is not None:
            self._memory.update(old.id, text, repeat=True)
        else:
            self._memory.add(text, kind=ItemKind.CORE, metadata={"path": name}, repeat=True, **self._bounds)


class FileToolError(Exception):
    """What the model is told."""


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _check_types(arguments: Mapping[str, Any]) -> None:
    """Raise FileToolError for a value that is not of the sort its name asks for: a model may send anything."""
    for name, value in arguments.items():
        if name == "insert_line":
            sound, sort = _is_line(value), "a whole number, 0 for before the first line"
        elif name == "view_range":
            whole = isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_is_line, value))
            sound, sort = value is None or whole, "[first line, last line], -1 for the end"
        else:
            sound, sort = isinstance(value, str), "text"
        if not sound:
            raise FileToolError(f"{name} must be {sort}, got {_short(value)}")


def _is_line(value: object) -> bool:
    return type(value) is int and abs(value) <= 10 * MOST_LINES


def _short(value: object) -> str:
    """Of what a model sent, enough to tell what it was."""
    if isinstance(value, str):
        return value if len(value) <= 200 else f"{value[:200]}..."
    try:
        return reprlib.repr(value)
    except ValueError:  # Python does not write out numbers of thousands of digits
        return type(value).__name__


def _numbered(lines: list[str], first: int, last: int) -> str:
    return "\n".join(f"{number:6d}\t{lines[number - 1]}" for number in range(first, last + 1))


def _listing(folder: str, files: Mapping[str, Item]) -> str:
    """What lies in a folder, with sizes; a folder has that of all in it."""
    sizes: dict[str, int] = defaultdict(int)
    total = 0
    for file, item in files.items():
        parts = file[len(folder) + 1 :].split("/")
        if not file.startswith(folder + "/") or any(part.startswith(".") or part == "node_modules" for part in parts):
            continue
        size = len(_content(item).encode("utf-8", "replace"))
        total += size
        for depth in range(1, min(len(parts), LEVELS) + 1):
            sizes["/".join(parts[:depth]) + ("/" if depth < len(parts) else "")] += size
    lines = [f"{_size(total)}\t{folder}", *(f"{_size(sizes[name])}\t{folder}/{name}" for name in sorted(sizes))]
    return "\n".join(
        [
            f"Here're the files and directories up to {LEVELS} levels deep in {folder}, excluding hidden items and node_modules:",
            *lines,
        ]
    )


def _size(count: int) -> str:
    """
    >>> _size(0), _size(1536), _size(4096)
    ('0B', '1.5K', '4.0K')
    """
    if count < 1024:
        return f"{count}B"
    return f"{count / 1024:.1f}K" if count < 1024**2 else f"{count / 1024**2:.1f}M"


def _check_place(name: str, files: Collection[str]) -> None:
    """Raise FileToolError where a file `name` would be a folder, too, or lie in a file."""
    if any(file.startswith(name + "/") for file in files):
        raise FileToolError(f"{name} is a folder")
    parents = [file for file in files if name.startswith(file + "/")]
    if parents:
        raise FileToolError(f"{parents[0]} is a file, not a folder")


def _is_file(path: str) -> bool:
    try:
        return normal_path(path) == path != ROOT
    except FileToolError:
        return False


def normal_path(path: object) -> str:
    """The one spelling of a path under /memories. Everything that points outside is refused, encoded dots included."""
    if not isinstance(path, str) or text_problem(path) is not None or not path.isprintable():
        raise FileToolError(f"{reprlib.repr(path)} is not a path under {ROOT}: give text without control characters")
    name = posixpath.normpath(path)
    plain = unquote(path)
    if "\\" in plain or ".." in plain.split("/") or (name != ROOT and not name.startswith(ROOT + "/")):
        if not path.startswith(ROOT):
            raise FileToolError(f"Path must start with {ROOT}, got: {_short(path)}")
        raise FileToolError(f"Path {_short(path)} would escape {ROOT} directory")
    return name


def _content(item: Item) -> str:
    return item.text.removeprefix(_EMPTY)
