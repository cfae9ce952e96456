"""What a log of an agent holds, whatever program wrote it: sessions of turns, what tools did in each, and outcomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from keepworth.base.json_values import as_object, parsed
from keepworth.memory.errors import InvalidTime
from keepworth.memory.headline import without_blocks
from keepworth.memory.item import timestamp

LONGEST_ASKED, LONGEST_ANSWER, LONGEST_CALL, LONGEST_OUTPUT = 20_000, 1_200, 400, 1_000
"""The most characters that are read of a message, an answer, what a tool was called with, and what it printed."""
MOST_RECEIPTS = 64
"""The most ids of searches of a memory that are noted of a turn."""
_RECEIPT = re.compile(r"(?<![0-9A-Za-z])[de][0-9a-f]{16}(?![0-9A-Za-z])")
"""The ids of searches and episodes of a memory."""
MOST_STEPS = 400
"""The most steps of a turn; of more, the first and the last half are read."""
_INPUTS = ("command", "cmd", "file_path", "filePath", "path", "absolute_path", "url", "query", "pattern", "description")


@dataclass(slots=True)
class LogStep:
    """A call of a tool. `failed` is None if the log does not say it, or if the call was refused or never ended; `command` is the
    line that a shell ran."""

    tool: str
    done: str
    command: str = ""
    failed: bool | None = None
    output: str = ""


@dataclass(slots=True)
class LogTurn:
    """What a user asked, and what was done for it. `key` names it in its session, `reply` is the user's
    next message, and `receipts` are ids of searches and episodes of
    a memory, each with the number of steps before it."""

    asked: str
    key: str = ""
    time: str = ""
    steps: list[LogStep] = field(default_factory=list)
    answer: str = ""
    interrupted: bool = False
    taken_back: bool = False
    reply: str = ""
    receipts: list[tuple[str, int]] = field(default_factory=list)

    def note_receipts(self, text: str) -> None:
        """Note the searches and episodes of a memory that a text names."""
        there = {id for id, _ in self.receipts}
        for match in _RECEIPT.finditer(text):
            if match[0] not in there and len(there) < MOST_RECEIPTS:
                there.add(match[0])
                self.receipts.append((match[0], len(self.steps)))


@dataclass(frozen=True, slots=True)
class LogOutcome:
    """A score in a log. `turn` is the index of its turn, -1 for the whole session; `label` is what is said in a word beside a
    number, and `key` that of the event, if it may also come to a server."""

    name: str
    value: float | str
    turn: int = -1
    label: str = ""
    key: str = ""


@dataclass(slots=True)
class LogSession:
    """A conversation or a run in a log.

    Args:
        id: Its name there; "" if the format has none.
        folder: The project in which it ran; "" if the format does not say.
        marked: Whether a block of a memory stands in it.
        before: How many of its turns were read earlier, and are not in `turns` any more.
    """

    format: str
    id: str
    file: str
    folder: str = ""
    person: str = ""
    started: str = ""
    ended: str = ""
    turns: list[LogTurn] = field(default_factory=list)
    outcomes: list[LogOutcome] = field(default_factory=list)
    marked: bool = False
    before: int = 0
    calls: dict[str, LogStep] = field(default_factory=dict)

    def see(self, time: object) -> str:
        """Note that something happened at a time, and return it as canonical text; "" if it is none."""
        at = plain_time(time)
        if at:
            self.started, self.ended = min(self.started or at, at), max(self.ended, at)
        return at

    def ask(self, text: str, time: str = "", key: str = "") -> None:
        """Begin a turn with a message of the user, without what a memory put into it.

        Args:
            text: The message.
            time: Canonical text; "" if it is not known.
            key: What names the turn in every log that holds it; "" if nothing does.
        """
        asked = without_blocks(text).strip()[:LONGEST_ASKED]
        if asked:
            if self.turns:
                self.turns[-1].reply = asked
            self.turns.append(LogTurn(asked, key, time))
            self.calls.clear()

    def call(self, id: str, tool: str, arguments: object) -> None:
        """Note that a tool was called.

        Args:
            id: By what `finish` finds the call; "" if nothing names it.
            tool: Its name.
            arguments: An object, its JSON, or a text.
        """
        if not self.turns:
            return
        command = command_in(arguments)
        step = LogStep(tool[:80], command[:LONGEST_CALL] or describe(arguments), command[:LONGEST_OUTPUT])
        steps = self.turns[-1].steps
        steps.append(step)
        if len(steps) > MOST_STEPS:
            del steps[MOST_STEPS // 2]
        if id:
            self.calls[id] = step

    def finish(self, id: str, failed: bool | None, output: str = "") -> None:
        """Note how a call ended.

        Args:
            id: That of the call.
            failed: None if it was refused, or if the log does not say it.
            output: What the tool printed.
        """
        step = self.calls.pop(id, None)
        if step is not None:
            step.failed, step.output = failed, shorten(output, LONGEST_OUTPUT)
            self.turns[-1].note_receipts(output)

    def say(self, text: str) -> None:
        """Note what the agent said; the last of a turn counts as its answer."""
        if self.turns and text.strip():
            self.turns[-1].answer = shorten(text.strip(), LONGEST_ANSWER)

    def interrupt(self) -> None:
        """Note that the user stopped the turn."""
        if self.turns:
            self.turns[-1].interrupted = True

    def take_back(self, count: int) -> None:
        """Remove the last turns, which the user took back."""
        del self.turns[max(0, len(self.turns) - max(0, count)) :]
        if self.turns:
            self.turns[-1].reply = ""

    @property
    def weight(self) -> int:
        """How many turns and steps are held."""
        return len(self.turns) + sum(len(turn.steps) for turn in self.turns)


class LogReader:
    """Reads the rows of one file, or of the files of a folder that belong together. `of_nobody` counts scores that name nothing
    in these files."""

    def __init__(self) -> None:
        self.sessions: dict[str, LogSession] = {}
        self.of_nobody = 0

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a row, and return the session that it is about, if that is known."""
        raise NotImplementedError

    def close(self) -> None:
        """Put together what can only be told when everything was read."""


def plain_time(time: object) -> str:
    """Return a time of a log as canonical text: ISO text, or seconds, milliseconds or nanoseconds since 1970; "" if none."""
    if isinstance(time, str) and time.isdecimal() and len(time) < 25:
        time = int(time)
    if isinstance(time, int | float) and not isinstance(time, bool) and abs(time) < 1e25:
        number = float(time)
        while number > 1e11:
            number /= 1000.0
        time = number
    try:
        return timestamp(time) if isinstance(time, str | float) else ""
    except InvalidTime:
        return ""


def shorten(text: str, most: int) -> str:
    """Return a text, or its beginning and its end, where tools say most."""
    return text if len(text) <= most else f"{text[: most // 4]} ... {text[-most * 3 // 4 :]}"


def texts_in(content: object, kinds: tuple[str, ...] = ("text", "input_text", "output_text")) -> str:
    """Return the text of a message: a string, or blocks of which those of these kinds have text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [
        block if isinstance(block, str) else block.get("text", block.get("content"))
        for block in content
        if isinstance(block, str) or (isinstance(block, dict) and block.get("type", "text") in kinds)
    ]
    return "\n".join(text for text in parts if isinstance(text, str))


def parsed_object(arguments: object) -> Mapping[str, Any]:
    """Return the arguments of a call, which may be JSON in a text; {} if they are no object."""
    return as_object(parsed(arguments) if isinstance(arguments, str) else arguments)


def command_in(arguments: object) -> str:
    """Return the command line among the arguments of a call; "" if there is none."""
    given = parsed_object(arguments)
    command = given.get("command", given.get("cmd", ""))
    if isinstance(command, list):  # ["bash", "-lc", "make test"]
        words = [word for word in command if isinstance(word, str)]
        command = words[-1] if words[1:2] in (["-c"], ["-lc"]) else " ".join(words)
    return command if isinstance(command, str) else ""


def describe(arguments: object) -> str:
    """Return in short what a tool was called with: its file, its address or its query, else its first text."""
    given = parsed_object(arguments)
    if not given:
        return arguments.strip()[:LONGEST_CALL] if isinstance(arguments, str) and arguments.strip() != "{}" else ""
    values = [given[name] for name in _INPUTS if name in given] or list(given.values())
    text = next((value for value in values if isinstance(value, str | int | float)), "")
    return str(text)[:LONGEST_CALL]
