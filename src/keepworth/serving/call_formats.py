"""The formats of calls to a model, one object each: OpenAI's chat completions and responses, and Anthropic's messages. The
gateway reads and changes calls only through these objects.

A call is a list of pieces: messages, or items of input. Some of them begin a turn of the user. A block of memory stands inside
such a piece, before the user's words: it is data that the user's message brings along, and never speaks with the authority of a
system message. Many templates of open models also refuse a second system message. What the caller wrote is not changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from keepworth.base.json_values import as_list, as_object, objects_in
from keepworth.base.text import unquoted
from keepworth.memory.headline import MARK, PART, without_blocks
from keepworth.memory.speech import clean
from keepworth.serving.calls import anthropic_error, openai_error

_END = "\n\n"
"""What stands between a block and the user's words in one text. A block has no empty line."""
_BLOCK = re.compile(rf"{re.escape(MARK)}(?:\n[^\n]+)+(?={_END}|\n*\Z)")
_CLOSING = "\n\nEnd of the notes.\n\n"
"""Ends a block that is a part of its own. Templates join the texts of parts as they are, and some without the blanks around them,
so that the last note would run into the user's words."""
_BLOCKS = re.compile(rf"\A(?:{_BLOCK.pattern}(?:{_CLOSING.rstrip()})?\n*)+")
"""The blocks that a text begins with: more than one if it has passed through several gateways."""
EVENTS = "text/event-stream"
TEXTS = ("text", "input_text", "output_text")
"""The types of parts of a message that are text."""
CONTEXT = (
    # Claude Code, and opencode
    "system-reminder", "command-name", "command-message", "command-args", "local-command-caveat", "local-command-stdout",
    "local-command-stderr", "bash-input", "bash-stdout", "bash-stderr", "ide_opened_file", "ide_selection", "task-notification",
    # Codex
    "environment_context", "user_instructions", "turn_aborted", "user_shell_command",
    # Gemini CLI
    "session_context", "hook_context",
    # Cline
    "environment_details",
)  # fmt: skip
"""XML elements that hosts (coding assistants) put into the user's messages, and that hold no words of the user."""
_OPENING = re.compile(
    rf"<({'|'.join(CONTEXT)})(?: [^<>]*)?>|# AGENTS\.md instructions[^\n]{{0,300}}\s{{1,4}}<(INSTRUCTIONS)>"
)
_INTERJECTION = re.compile(
    r"\s*The user sent (?:a new message while you were working|the following message):\n(.*?)"
    r"(?:\n\s*\n(?:IMPORTANT: After completing|This is how Claude Code|Please address this message)\b.*)?\s*",
    re.DOTALL,
)
"""What Claude Code and opencode write around words that the user sends while a tool is at work."""
_KEPT = {
    *("cachedcontent", "container", "containerid", "conversation", "fileid", "fileids", "libraryids"),
    *("previousresponseid", "vectorstoreid", "vectorstoreids"),
}
"""Fields whose value is an id of what an upstream stores, without underscores, as some write them fileId."""
_FORM_NAME = re.compile(rb"""[;\s]name\*?\s*=\s*"?([^";\r\n]{1,200})""", re.IGNORECASE)
_WITH_IDS = {"audio", "prompt", "voice"}
"""Fields whose value is an object that may have such an id."""
_FREE = {
    *("$defs", "arguments", "chattemplatekwargs", "definitions", "documents", "inputexamples", "metadata"),
    *("parameters", "properties"),
}
"""Fields in which callers choose the names themselves, such as the properties of a schema."""
_EXIT = re.compile(
    r"(?:exit(?:ed with)?[ _]?(?:code|status)|exitCode|return[ _]?code)\"?\s*[:=]?\s*\(?(-?\d+)", re.IGNORECASE
)
"""The exit code in what tools of coding assistants answer."""
_LONGEST_EXIT, _LONGEST_ARGUMENTS = 300, 100_000
"""The characters at both ends of an answer in which an exit code is looked for, and the most of arguments that are read."""
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SpokenReply:
    """What a model answered: its words, the names of the tools that it calls, and the id of the answer."""

    words: str = ""
    tools: tuple[str, ...] = ()
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """How a tool ended, as a call says it.

    Args:
        command: The command line that it ran; "" for another tool.
        failed: Whether it failed; None where the call does not say so.
        output: What it answered.
    """

    command: str
    failed: bool | None
    output: str


class CallFormat:
    """Reads and changes the calls of one route. This base class handles messages with roles.

    `path` is the route of such calls, and `listed` the field of the body that holds the messages.
    """

    path: str
    listed = "messages"
    text_type = "text"
    """The type of a part of a message that holds text."""

    def pieces(self, body: Body) -> list[Any] | None:
        """Return the pieces of a body, or None if memory cannot be put into it."""
        given = body.get(self.listed)
        return given if isinstance(given, list) and given and all(isinstance(piece, dict) for piece in given) else None

    def turns(self, pieces: Sequence[Any]) -> list[int]:
        """Return the indices of the pieces that begin a turn of the user; the last is the newest turn."""
        return [index for index, piece in enumerate(pieces) if piece.get("role") == "user" and strip_host_words(piece)]

    def continues(self, body: Body) -> str:
        """Return the id of the conversation, or of its last response, that the upstream stores; "" if it stores none."""
        return ""

    def same(self, piece: Any) -> Any:
        """Return a piece in the form in which it is compared with those of earlier calls: without `cache_control`, which callers
        move from message to message, and with a list of one text part as that text, as callers make such lists to set it."""
        content = piece.get("content")
        if isinstance(content, list):
            content = [
                {name: value for name, value in part.items() if name != "cache_control"}
                if isinstance(part, dict)
                else part
                for part in content
            ]
            if len(content) == 1 and _is_text(content[0]):
                content = content[0]["text"]
        return {**piece, "content": content}

    def put(self, body: Body, pieces: Sequence[Any], blocks: Mapping[int, str]) -> dict[str, Any]:
        """Return the body with memory blocks, which stand before the user's words.

        Args:
            body: The call as it was sent; it is not changed.
            pieces: Its pieces, as `pieces` returned them.
            blocks: By the index of a piece, the block that goes inside it.
        """
        sent = [self.with_block(piece, blocks[at]) if at in blocks else piece for at, piece in enumerate(pieces)]
        return {**body, self.listed: sent}

    def with_block(self, piece: Body, block: str) -> dict[str, Any]:
        """Return a piece with a memory block before the user's words. A content that is a text stays one. Results of tools stay
        in front, as they must follow the calls of the tools."""
        content = piece["content"]
        if isinstance(content, str):
            return {**piece, "content": f"{block}{_END}{content}"}
        part, place = {"type": self.text_type, "text": f"{block}{_CLOSING}"}, _end_of_results(content)
        return {**piece, "content": [*content[:place], part, *content[place:]]}

    def find_blocks(self, body: Body) -> dict[int, str]:
        """Return the first memory block of each of the user's pieces in a body that begins with one, by the index of the piece.
        It may have been put there by another gateway, or written by the user."""
        there = {}
        for index, piece in enumerate(self.pieces(body) or []):
            if piece.get("role") == "user":
                content = piece.get("content")
                texts = [content] if isinstance(content, str) else _texts(content, _end_of_results(content))
                if texts and (block := _BLOCK.match(texts[0])):
                    there[index] = block[0]
        return there

    def reply(self, copy: bytes, kind: str) -> SpokenReply:
        """Read what the model answered from the bytes of an answer with content type `kind`."""
        listed = list(events(copy, kind))
        spoken = [self.spoken(event, kind.startswith(EVENTS)) for event in listed]
        names = (name for _, tools in spoken for name in tools if name)
        # An event has the id, or what it holds of the answer.
        holders = (part for event in listed for part in (event, event.get("response"), event.get("message")))
        ids = (_text(as_object(part).get("id")) for part in holders)
        words = "".join(word for words, _ in spoken for word in words)
        return SpokenReply(words, tuple(names), next(filter(None, ids), ""))

    def spoken(self, event: Body, streamed: bool) -> tuple[list[str], list[str]]:
        """Return the words and the names of tools in an event of a stream, or in a whole answer."""
        raise NotImplementedError

    def broken(self, message: str) -> Body:
        """Return the error event that ends a stream if the upstream breaks off."""
        return openai_error(502, message, "UpstreamBroke")


class ChatFormat(CallFormat):
    """OpenAI's chat completions."""

    path = "/v1/chat/completions"

    def spoken(self, event: Body, streamed: bool) -> tuple[list[str], list[str]]:
        choice = first_choice(event) or {}
        message = as_object(choice.get("delta") or choice.get("message"))
        tools = [_text(as_object(call.get("function")).get("name")) for call in objects_in(message.get("tool_calls"))]
        return [_text(message.get("content"))], tools


class ResponsesFormat(CallFormat):
    """OpenAI's responses."""

    path = "/v1/responses"
    listed = "input"
    text_type = "input_text"

    def pieces(self, body: Body) -> list[Any] | None:
        given = body.get("input")
        return [{"role": "user", "content": given}] if isinstance(given, str) else super().pieces(body)

    def put(self, body: Body, pieces: Sequence[Any], blocks: Mapping[int, str]) -> dict[str, Any]:
        sent = super().put(body, pieces, blocks)
        return {**sent, "input": sent["input"][0]["content"]} if isinstance(body["input"], str) else sent

    def continues(self, body: Body) -> str:
        conversation = body.get("conversation")
        named = conversation.get("id") if isinstance(conversation, dict) else conversation
        return _text(body.get("previous_response_id")) or _text(named)

    def same(self, piece: Any) -> Any:
        return {"type": "message", **super().same(piece)} if "role" in piece else piece

    def spoken(self, event: Body, streamed: bool) -> tuple[list[str], list[str]]:
        if streamed:
            words = [_text(event.get("delta"))] if event.get("type") == "response.output_text.delta" else []
            items = [as_object(event.get("item"))] if event.get("type") == "response.output_item.done" else []
        else:
            items = objects_in(event.get("output"))
            words = [text_of(item) for item in items if item.get("type") == "message"]
        return words, [_text(item.get("name")) for item in items if str(item.get("type", "")).endswith("_call")]

    def broken(self, message: str) -> Body:
        shape = {"type": "error", "code": "502", "message": message, "param": None}
        return {**shape, **openai_error(502, message, "UpstreamBroke")}


class MessagesFormat(CallFormat):
    """Anthropic's messages. A memory block is a part of the user's message. What a tool answered is a part of a message with the
    role "user" there, beside which the user may say something."""

    path = "/v1/messages"

    def with_block(self, piece: Body, block: str) -> dict[str, Any]:
        content = piece["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        place = _end_of_results(parts)
        return {**piece, "content": [*parts[:place], {"type": "text", "text": block}, *parts[place:]]}

    def spoken(self, event: Body, streamed: bool) -> tuple[list[str], list[str]]:
        parts = objects_in(event.get("content")) or [
            as_object(event.get("content_block")),
            as_object(event.get("delta")),
        ]
        tools = [_text(part.get("name")) for part in parts if str(part.get("type", "")).endswith("tool_use")]
        return [_text(part.get("text")) for part in parts], tools

    def broken(self, message: str) -> Body:
        return anthropic_error(502, message, "")


FORMATS: tuple[CallFormat, ...] = (ChatFormat(), ResponsesFormat(), MessagesFormat())


def first_choice(answer: Body) -> Body | None:
    """Return the first of the choices in an answer of chat completions, or in an event of a stream. Where a caller asks for
    several answers at once (`n`), each event of a stream belongs to one of them, and the first is what is recorded."""
    return next((choice for choice in objects_in(answer.get("choices")) if not choice.get("index")), None)


def text_of(message: Mapping[str, Any]) -> str:
    """Return the words of a message, whose content is a text or a list of parts."""
    content = message.get("content")
    return content if isinstance(content, str) else "\n".join(_texts(content))


def strip_host_words(message: Mapping[str, Any]) -> str:
    """Return the user's own words in a message, without the elements in CONTEXT that hosts put around them, without the memory
    blocks of other gateways or any that the user wrote, and without control characters."""
    content = message.get("content")
    texts = [content] if isinstance(content, str) else _texts(content)
    text = PART.join(_BLOCKS.sub("", clean(part)) for part in texts)
    pieces, after, unclosed = list[str](), 0, set[str]()
    for opening in _OPENING.finditer(text):
        name = opening[1] or opening[2]
        if opening.start() < after or name in unclosed:
            continue
        end = text.find(f"</{name}>", opening.end())
        if end < 0:
            unclosed.add(name)
            continue
        interjection = _INTERJECTION.fullmatch(text, opening.end(), end) if name == "system-reminder" else None
        pieces += [text[after : opening.start()], interjection[1] if interjection else ""]
        after = end + len(name) + 3
    words = without_blocks("".join((*pieces, text[after:]))).replace(PART, "\n").strip()
    if interjection := _INTERJECTION.fullmatch(words):
        words = interjection[1].strip()
    return unquoted(words)


def is_answered(pieces: Sequence[Any]) -> bool:
    """Whether the model has answered a turn already, by the pieces behind the one that begins it. A message of the assistant at
    the very end is the beginning of an answer that the model is to go on with, and so no answer yet."""
    of_model = [at for at, piece in enumerate(pieces) if piece.get("role") not in ("user", "system", "developer")]
    begun = of_model == [len(pieces) - 1] and pieces[-1].get("role") == "assistant" and not pieces[-1].get("tool_calls")
    return bool(of_model) and not begun


def tool_ends(pieces: Sequence[Any]) -> list[ToolEnd]:
    """Return how the tools ended whose results stand behind the model's last message in these pieces."""
    commands, ends = dict[str, str](), list[ToolEnd]()
    for piece in pieces:
        calls = [*objects_in(piece.get("tool_calls")), *objects_in(piece.get("content"))]
        for call in [*calls, piece]:
            arguments = call.get("input") or call.get("arguments") or as_object(call.get("function")).get("arguments")
            id = _text(call.get("call_id")) or _text(call.get("id"))
            if id and (command := _command_in(arguments or call.get("action"))):
                commands[id] = command
        results = [part for part in objects_in(piece.get("content")) if part.get("type") == "tool_result"]
        if piece.get("role") == "tool" or _text(piece.get("type")).endswith("_call_output"):
            results.append(piece)
        if piece.get("role") == "assistant":
            ends = []
        for result in results:
            id = next(
                filter(None, (_text(result.get(name)) for name in ("tool_use_id", "tool_call_id", "call_id"))), ""
            )
            answer = result.get("output", result.get("content"))
            output = answer if isinstance(answer, str) else "\n".join(_texts(answer)) or json.dumps(answer)
            failed = True if result.get("is_error") is True else _exit_in(output)
            ends.append(ToolEnd(commands.get(id, ""), failed, output))
    return ends


def _command_in(arguments: Any) -> str:
    """Return the command line among the arguments of a tool; "" for none."""
    if isinstance(arguments, str) and '"c' in arguments and len(arguments) < _LONGEST_ARGUMENTS:
        try:
            arguments = from_json(arguments)
        except ValueError:
            return ""
    command = as_object(arguments).get("command", as_object(arguments).get("cmd"))
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        return command[-1] if re.fullmatch(r"-\w*c", "".join(command[1:2])) else " ".join(command)
    return _text(command)


def _exit_in(output: str) -> bool | None:
    """Return whether a tool failed by the exit code in its answer; None where there is none."""
    ends = _EXIT.search(output[:_LONGEST_EXIT]) or _EXIT.search(output[-_LONGEST_EXIT:])
    return None if ends is None else ends[1] != "0"


def first_answer(pieces: Sequence[Any]) -> str:
    """Return the first words of the model in these pieces; "" for none."""
    spoken = (text_of(piece).strip() for piece in pieces if piece.get("role") == "assistant")
    return next(filter(None, spoken), "")


def last_answer(pieces: Sequence[Any]) -> str:
    """Return the last words of the model in these pieces; "" for none."""
    return first_answer(list(reversed(pieces)))


def form_names_kept(raw: bytes) -> str:
    """Return the name of a field of a multipart form that refers to what an upstream stores; "" for none."""
    names: list[bytes] = _FORM_NAME.findall(raw)
    for name in (name.decode("latin-1") for name in names):
        if not _KEPT.isdisjoint(re.split(r"[^a-z0-9]+", name.lower().replace("_", ""))):  # also files[0][file_id]
            return name
    return ""


def names_kept(value: Any, within: str = "") -> str:
    """Return the name of a field, at any depth of a body, that refers to what an upstream stores, such as a file; "" for none.
    `within` is the name of the field that holds `value`."""
    if isinstance(value, list):
        return next((name for part in value if (name := names_kept(part, within))), "")
    for name, part in as_object(value).items():
        plain = name.lower().replace("_", "")  # some parsers of JSON distinguish neither
        if part and (plain in _KEPT or (plain == "id" and within in _WITH_IDS)):
            return f"{within}.{name}".lstrip(".")
        free = plain in _FREE or (name == "input" and str(value.get("type", "")).endswith("tool_use"))
        if not free and (inner := names_kept(part, plain)):
            return inner
    return ""


def _end_of_results(parts: Any) -> int:
    """Return the place behind the last result of a tool among the parts of a message."""
    results = (
        at for at, part in enumerate(parts or ()) if str(as_object(part).get("type", "")).endswith("tool_result")
    )
    return max(results, default=-1) + 1


def _texts(parts: Any, start: int = 0) -> list[str]:
    """Return the texts of the parts of a message from `start` on."""
    listed = objects_in(as_list(parts)[start:])
    return [text for part in listed if part.get("type") in TEXTS and isinstance(text := part.get("text"), str)]


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and set(part) == {"type", "text"} and part["type"] in TEXTS


def events(copy: bytes, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of an answer: one, or those of a stream; what cannot be read is skipped."""
    lines: list[bytes | str] = [copy]
    if kind.startswith(EVENTS):
        text = copy.decode("utf-8", "replace")
        lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    for line in lines:
        try:
            event = from_json(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
