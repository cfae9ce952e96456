"""Claude's memory tool (`memory_20250818`) over a memory: each file that Claude writes is an item.

from anthropic import Anthropic
from keepworth import Memory
from keepworth.adapters.claude import KeepworthMemoryTool

memory = Memory("agent.mem")
tool = KeepworthMemoryTool(memory, user_id="ana")
messages = [{"role": "user", "content": "I live in Oslo."}]
tool.run(Anthropic(), model="claude-sonnet-5-5", max_tokens=1000, messages=messages)

`run` is the loop of `client.beta.messages.tool_runner(..., tools=[tool]).until_done()`, and beside it a turn: what the memory
shows stands below the user's message, and the next message is the outcome of this one. In `tools=[tool]` of a loop of one's own,
the tool reads and writes its files alone. Needs the package `anthropic`.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from keepworth.adapters.turns import HostTurn, Turns, load_host
from keepworth.memory.item import Item
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Ask

PACKAGE, LEAST = "anthropic", "2.10"
_NAMES = ("BetaAbstractMemoryTool", "BetaAsyncAbstractMemoryTool", "ToolError")
SyncTool, AsyncTool, ToolError = load_host(PACKAGE, LEAST, [f"anthropic.lib.tools:{name}" for name in _NAMES])

_LOG = logging.getLogger("keepworth.adapters")
_TURN: ContextVar[HostTurn | None] = ContextVar("keepworth_claude_turn", default=None)
ROOT = "/memories"
FILE, OWNER = "claude_file", "claude_file_of"
"""The metadata of an item that is a file: its path, and whose it is, so that nobody's file is not taken for a person's."""
DEEP = 2
"""How many levels of a folder Claude sees."""
RewardOf = Callable[[HostTurn], float | None]


class KeepworthMemoryTool(SyncTool):  # type: ignore[misc, valid-type]  # the package is optional
    """The tool for a client that blocks.

    Args:
        memory: A `Memory`, an `AsyncMemory`, or a `Client` of a served one.
        reward: A function from a finished turn to its reward, or to None; `turn.host` is Claude's last message.
        user_id: The person whom Claude serves; "" for nobody.
        agent_id: The agent whose memory it is; "" for all.
        top_k: The most notes that a turn shows; "auto" for those that answer (`Memory.search`).
    """

    def __init__(
        self,
        memory: Any,
        reward: RewardOf | None = None,
        *,
        user_id: str = "",
        agent_id: str = "",
        top_k: int | str = 5,
    ) -> None:
        super().__init__()
        self.turns = Turns(memory, "claude", reward, user_id=user_id, agent_id=agent_id, top_k=top_k)
        self._scope = self.turns.scope()

    def run(
        self, client: Any, *, messages: Sequence[Any], tools: Sequence[Any] = (), conversation: str = "", **options: Any
    ) -> Any:
        """Answer the newest message as a turn, and return Claude's last message.

        Args:
            client: An `Anthropic` client.
            messages: The conversation; the newest is the user's.
            tools: Other tools than this one.
            conversation: Its name, if the person has several at once.
            options: What else `client.beta.messages.tool_runner` takes.
        """
        turn = self.turns.begin(_words(messages), conversation=conversation)
        token = _TURN.set(turn)
        try:
            loop = client.beta.messages.tool_runner(
                messages=_put_recalled(messages, turn), tools=[self, *tools], **options
            )
            last = loop.until_done()
        finally:
            _TURN.reset(token)
        self.turns.finish(turn, _text(last.content), host=last)
        return last

    def execute(self, command: Any) -> Any:
        """Carry out one of Claude's commands. What cannot be done is a `ToolError`, which Claude reads."""
        try:
            return super().execute(command)
        except (ToolError, NotImplementedError):
            raise
        except ValueError as error:  # the text or the path is refused
            raise ToolError(str(error)) from error
        except Exception as error:
            _LOG.warning("Claude's memory tool failed: %s: %s", type(error).__name__, error)
            raise ToolError("The memory cannot be reached at present. Go on without it.") from error

    # What Claude is told is worded as the framework's own tool words it.

    def view(self, command: Any) -> str:
        path = _checked(command.path)
        below = self._below(path)
        if path in below:
            self._log(path)
            return _numbered(path, below[path].text, command.view_range)
        if not below and path != ROOT:
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        sizes: dict[str, int] = {}
        for file, item in below.items():
            names = file.removeprefix(f"{path}/").split("/")
            if not any(name.startswith(".") for name in names[:DEEP]):
                for depth in range(1, min(len(names), DEEP) + 1):
                    shown = "/".join(names[:depth]) + ("/" if depth < len(names) else "")
                    sizes[shown] = sizes.get(shown, 0) + len(item.text.encode())
        lines = [f"{_size(size)}\t{path}/{name}" for name, size in sorted(sizes.items())]
        head = f"Here're the files and directories up to {DEEP} levels deep in {path}, excluding hidden items:"
        return "\n".join([head, f"{_size(sum(len(item.text.encode()) for item in below.values()))}\t{path}", *lines])

    def create(self, command: Any) -> str:
        path = _checked(command.path, file=True)
        if self._below(path):
            raise ToolError(f"File {path} already exists")
        self._put(path, command.file_text)
        return f"File created successfully at: {path}"

    def str_replace(self, command: Any) -> str:
        path, text = self._read(command.path)
        count = text.count(command.old_str) if command.old_str else 0
        if count != 1:
            lines = [
                number for number, line in enumerate(text.split("\n"), 1) if command.old_str and command.old_str in line
            ]
            many = f"Multiple occurrences of old_str `{command.old_str}` in lines: {', '.join(map(str, lines))}. "
            none = f"old_str `{command.old_str}` did not appear verbatim in {path}."
            raise ToolError(
                f"No replacement was performed. {many}Please ensure it is unique"
                if count
                else f"No replacement was performed, {none}"
            )
        changed = text[: text.index(command.old_str)].count("\n")
        text = text.replace(command.old_str, command.new_str)
        self._put(path, text)
        head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return "\n".join([head, *_lines(text)[max(0, changed - 2) : changed + 3]])

    def insert(self, command: Any) -> str:
        path, text = self._read(command.path)
        lines = text.removesuffix("\n").split("\n") if text else []
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(
                f"Invalid `insert_line` parameter: {command.insert_line}. "
                f"It should be within the range [0, {len(lines)}]."
            )
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        self._put(path, "\n".join(lines) + "\n")
        return f"The file {path} has been edited."

    def delete(self, command: Any) -> str:
        path = _checked(command.path)
        if path == ROOT:
            raise ToolError(f"Cannot delete the {ROOT} directory itself")
        below = self._below(path)
        if not below:
            raise ToolError(f"The path {path} does not exist")
        for file in below:
            self._put(file, None)
        return f"Successfully deleted {path}"

    def rename(self, command: Any) -> str:
        old, new = _checked(command.old_path), _checked(command.new_path, file=True)
        if old == ROOT:
            raise ToolError(f"Cannot rename the {ROOT} directory itself")
        below = self._below(old)
        if not below:
            raise ToolError(f"The path {old} does not exist")
        if self._below(new) or new.startswith(f"{old}/"):
            raise ToolError(f"The destination {new} already exists")
        for file, item in below.items():
            self._put(new + file.removeprefix(old), item.text)
            self._put(file, None)
        return f"Successfully renamed {old} to {new}"

    def clear_all_memory(self) -> str:
        """Delete all files of the person. Their history stays; `Memory.erase` removes it too."""
        for file in self._below(ROOT):
            self._put(file, None)
        return "All memory cleared"

    def _below(self, path: str) -> dict[str, Item]:
        """Return the files at a path or below it, by their own paths."""
        listed = self.turns.memory.get_all(where={OWNER: self.turns.user_id}, limit=1_000_000, **self._scope)
        files = {str(item.metadata[FILE]): item for item in listed if FILE in item.metadata}
        return {file: files[file] for file in sorted(files) if file == path or file.startswith(f"{path}/")}

    def _read(self, path: str) -> tuple[str, str]:
        """Return the checked path of a file and its text."""
        path = _checked(path)
        below = self._below(path)
        if path not in below:
            missing = "is not a file." if below or path == ROOT else "does not exist. Please provide a valid path."
            raise ToolError(f"The path {path} {missing}")
        return path, below[path].text

    def _put(self, path: str, text: str | None) -> None:
        turn = _TURN.get()
        options = self._scope if turn is None or not turn.id else {**self._scope, "episode": turn.id}
        self.turns.memory.put(text, name={FILE: path, OWNER: self.turns.user_id}, source=self.turns.host, **options)

    def _log(self, path: str) -> None:
        """Log that a file was read, so that the outcome of the turn is also one of the file."""
        turn = _TURN.get()
        if turn is not None and turn.id and isinstance(self.turns.memory, Memory):
            where = {FILE: path, OWNER: self.turns.user_id}
            self.turns.memory.answer(Ask(path, plain=True), turn.id, top_k=1, where=where, **self._scope)


class AsyncKeepworthMemoryTool(AsyncTool):  # type: ignore[misc, valid-type]  # the package is optional
    """The tool for an `AsyncAnthropic` client. Its arguments are those of `KeepworthMemoryTool`; the memory works in threads."""

    def __init__(self, memory: Any, reward: RewardOf | None = None, **options: Any) -> None:
        super().__init__()
        self._tool = KeepworthMemoryTool(memory, reward, **options)
        self.turns = self._tool.turns

    async def run(
        self, client: Any, *, messages: Sequence[Any], tools: Sequence[Any] = (), conversation: str = "", **options: Any
    ) -> Any:
        """Answer the newest message as a turn, and return Claude's last message.

        Args:
            client: An `AsyncAnthropic` client.
            messages: The conversation; the newest is the user's.
            tools: Other tools than this one.
            conversation: Its name, if the person has several at once.
            options: What else `client.beta.messages.tool_runner` takes.
        """
        turn = await asyncio.to_thread(self.turns.begin, _words(messages), conversation=conversation)
        token = _TURN.set(turn)
        try:
            loop = client.beta.messages.tool_runner(
                messages=_put_recalled(messages, turn), tools=[self, *tools], **options
            )
            last = await loop.until_done()
        finally:
            _TURN.reset(token)
        await asyncio.to_thread(self.turns.finish, turn, _text(last.content), host=last)
        return last

    async def execute(self, command: Any) -> Any:
        """Carry out one of Claude's commands. What cannot be done is a `ToolError`, which Claude reads."""
        return await asyncio.to_thread(self._tool.execute, command)

    async def view(self, command: Any) -> str:
        return await asyncio.to_thread(self._tool.view, command)

    async def create(self, command: Any) -> str:
        return await asyncio.to_thread(self._tool.create, command)

    async def str_replace(self, command: Any) -> str:
        return await asyncio.to_thread(self._tool.str_replace, command)

    async def insert(self, command: Any) -> str:
        return await asyncio.to_thread(self._tool.insert, command)

    async def delete(self, command: Any) -> str:
        return await asyncio.to_thread(self._tool.delete, command)

    async def rename(self, command: Any) -> str:
        return await asyncio.to_thread(self._tool.rename, command)

    async def clear_all_memory(self) -> str:
        """Delete all files of the person. Their history stays; `Memory.erase` removes it too."""
        return await asyncio.to_thread(self._tool.clear_all_memory)


def _checked(path: str, *, file: bool = False) -> str:
    """Return a path below the root in its plain form."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with {ROOT}, got: {path}")
    if ".." in path.split("/"):
        raise ToolError(f"Path {path} would escape {ROOT} directory")
    plain = posixpath.normpath(path)
    if file and plain == ROOT:
        raise ToolError(f"{ROOT} is the directory itself: name a file below it")
    return plain


def _numbered(path: str, text: str, bounds: Sequence[int] | None) -> str:
    first, last = (bounds[0], bounds[1]) if bounds and len(bounds) == 2 else (1, -1)
    lines = _lines(text)
    chosen = lines[max(1, first) - 1 : None if last == -1 else last]
    return "\n".join([f"Here's the content of {path} with line numbers:", *chosen])


def _lines(text: str) -> list[str]:
    return [f"{number:6}\t{line}" for number, line in enumerate(text.split("\n"), 1)]


def _size(size: int) -> str:
    amount, unit = float(size), 0
    while amount >= 1024 and unit < 3:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f}{'BKMG'[unit]}" if amount == int(amount) else f"{amount:.1f}{'BKMG'[unit]}"


def _words(messages: Sequence[Any]) -> str:
    """Return what the user says in the newest message."""
    newest = messages[-1] if messages else {"role": "", "content": ""}
    return _text(newest["content"]) if newest["role"] == "user" else ""


def _text(content: Any) -> str:
    """Return the texts of a message, whose content is a text or parts, each a dictionary or one of the SDK's objects."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") if isinstance(part, Mapping) else getattr(part, "text", None) for part in content)
    return "\n".join(text for text in texts if text)


def _put_recalled(messages: Sequence[Any], turn: HostTurn) -> list[Any]:
    """Return the messages with what the memory shows below the newest."""
    if not turn.text:
        return list(messages)
    newest = messages[-1]
    content = newest["content"]
    words = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    return [*messages[:-1], {**newest, "content": [*words, {"type": "text", "text": turn.text}]}]
