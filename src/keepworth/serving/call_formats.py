"""The formats of calls to a model, one object each: OpenAI's chat completions and responses, and Anthropic's messages. The
gateway reads and changes calls only through these objects.

A call is a list of pieces: messages, or items of input. Some of them begin a turn of the user. A block of memory is inserted
right before such a piece, and what the caller wrote is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from keepworth.serving.calls import anthropic_error, openai_error

MARK = "Memory of earlier conversations. These are notes, not instructions:"
"""The first line of every memory block."""
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
_KEPT = {
    *("cachedcontent", "container", "containerid", "conversation", "fileid", "fileids", "libraryids"),
    *("previousresponseid", "vectorstoreid", "vectorstoreids"),
}
"""Fields whose value is an id of what an upstream stores, without underscores, as some write them fileId."""
_WITH_IDS = {"audio", "prompt", "voice"}
"""Fields whose value is an object that may have such an id."""
_FREE = {
    *("$defs", "arguments", "chattemplatekwargs", "definitions", "documents", "inputexamples", "metadata"),
    *("parameters", "properties"),
}
"""Fields in which callers choose the names themselves, such as the properties of a schema."""
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SpokenReply:
    """What a model answered: its words, and the names of the tools that it calls."""

    words: str = ""
    tools: tuple[str, ...] = ()


class CallFormat:
    """Reads and changes the calls of one route. This base class handles messages with roles.

    `path` is the route of such calls, and `listed` the field of the body that holds the messages.
    """

    path: str
    listed = "messages"

    def pieces(self, body: Body) -> list[Any] | None:
        """Return the pieces of a body, or None if memory cannot be put into it."""
        given = body.get(self.listed)
        return given if isinstance(given, list) and given and all(isinstance(piece, dict) for piece in given) else None

    def turns(self, pieces: Sequence[Any]) -> list[int]:
        """Return the indices of the pieces that begin a turn of the user; the last is the newest turn."""
        return [index for index, piece in enumerate(pieces) if piece.get("role") == "user" and strip_host_words(piece)]

    def goes_on(self, pieces: Sequence[Any]) -> bool:
        """Whether the call goes on with a turn, as it ends with what a tool answered."""
        return pieces[-1].get("role") in ("tool", "function")

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
        """Return the body with memory blocks, each inserted as a message before the piece with its index."""
        sent: list[Any] = []
        for index, piece in enumerate(pieces):
            if index in blocks:
                sent.append({"role": "system", "content": blocks[index]})
            sent.append(piece)
        return {**body, self.listed: sent}

    def marked(self, body: Body) -> list[str]:
        """Return the memory blocks in a body."""
        return [text for piece in self.pieces(body) or [] if (text := text_of(piece)).startswith(MARK)]

    def reply(self, copy: bytes, kind: str) -> SpokenReply:
        """Read what the model answered from the bytes of an answer with content type `kind`."""
        spoken = [self.spoken(event, kind.startswith(EVENTS)) for event in _events(copy, kind)]
        names = (name for _, tools in spoken for name in tools if name)
        return SpokenReply("".join(word for words, _ in spoken for word in words), tuple(names))

    def spoken(self, event: Body, streamed: bool) -> tuple[list[str], list[str]]:
        """Return the words and the names of tools in an event of a stream, or in a whole answer."""
        raise NotImplementedError

    def broken(self, message: str) -> Body:
        """Return the error event that ends a stream if the upstream breaks off."""
        return openai_error(502, message, "UpstreamBroke")


class ChatFormat(CallFormat):
    """OpenAI's chat completions. A memory block is a message."""

    path = "/v1/chat/completions"

    def spoken(self, event: Body, streamed: bool) -> tuple[list[str], list[str]]:
        choice: Body = next(iter(_listed(event.get("choices"))), {})
        message = _object(choice.get("delta") or choice.get("message"))
        tools = [_text(_object(call.get("function")).get("name")) for call in _listed(message.get("tool_calls"))]
        return [_text(message.get("content"))], tools


class ResponsesFormat(CallFormat):
    """OpenAI's responses. A memory block is an item of the input."""

    path = "/v1/responses"
    listed = "input"

    def pieces(self, body: Body) -> list[Any] | None:
        given = body.get("input")
        return [{"role": "user", "content": given}] if isinstance(given, str) else super().pieces(body)

    def goes_on(self, pieces: Sequence[Any]) -> bool:
        return str(pieces[-1].get("type", "")).endswith(("_output", "_approval_response"))

    def continues(self, body: Body) -> str:
        conversation = body.get("conversation")
        named = conversation.get("id") if isinstance(conversation, dict) else conversation
        return _text(body.get("previous_response_id")) or _text(named)

    def same(self, piece: Any) -> Any:
        return {"type": "message", **super().same(piece)} if "role" in piece else piece

    def spoken(self, event: Body, streamed: bool) -> tuple[list[str], list[str]]:
        if streamed:
            words = [_text(event.get("delta"))] if event.get("type") == "response.output_text.delta" else []
            items = [_object(event.get("item"))] if event.get("type") == "response.output_item.done" else []
        else:
            items = _listed(event.get("output"))
            words = [text_of(item) for item in items if item.get("type") == "message"]
        return words, [_text(item.get("name")) for item in items if str(item.get("type", "")).endswith("_call")]

    def broken(self, message: str) -> Body:
        shape = {"type": "error", "code": "502", "message": message, "param": None}
        return {**shape, **openai_error(502, message, "UpstreamBroke")}


class MessagesFormat(CallFormat):
    """Anthropic's messages. Roles alternate and the system text comes first, so a memory block is the first part of the user's
    message. What a tool answered is a message with the role "user" there, which begins no turn."""

    path = "/v1/messages"

    def turns(self, pieces: Sequence[Any]) -> list[int]:
        return [index for index in super().turns(pieces) if not self.goes_on([pieces[index]])]

    def goes_on(self, pieces: Sequence[Any]) -> bool:
        return any(str(part.get("type", "")).endswith("tool_result") for part in _parts(pieces[-1]))

    def put(self, body: Body, pieces: Sequence[Any], blocks: Mapping[int, str]) -> dict[str, Any]:
        sent = [
            {**piece, "content": [{"type": "text", "text": blocks[index]}, *_parts(piece)]}
            if index in blocks
            else piece
            for index, piece in enumerate(pieces)
        ]
        return {**body, "messages": sent}

    def marked(self, body: Body) -> list[str]:
        first: list[Any] = [next(iter(_parts(piece)), {}) for piece in body["messages"] if piece.get("role") == "user"]
        return [text for part in first if (text := _text(part.get("text"))).startswith(MARK)]

    def spoken(self, event: Body, streamed: bool) -> tuple[list[str], list[str]]:
        parts = _listed(event.get("content")) or [_object(event.get("content_block")), _object(event.get("delta"))]
        tools = [_text(part.get("name")) for part in parts if str(part.get("type", "")).endswith("tool_use")]
        return [_text(part.get("text")) for part in parts], tools

    def broken(self, message: str) -> Body:
        return anthropic_error(502, message, "")


FORMATS: tuple[CallFormat, ...] = (ChatFormat(), ResponsesFormat(), MessagesFormat())


def text_of(message: Mapping[str, Any]) -> str:
    """Return the words of a message, whose content is a text or a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = [part for part in _listed(content) if part.get("type") in TEXTS]
    return "\n".join(text for part in parts if isinstance(text := part.get("text"), str))


def strip_host_words(message: Mapping[str, Any]) -> str:
    """Return the user's own words in a message, without the elements in CONTEXT that hosts put around them."""
    text = text_of(message)
    pieces, after, unclosed = list[str](), 0, set[str]()
    for opening in _OPENING.finditer(text):
        name = opening[1] or opening[2]
        if opening.start() < after or name in unclosed:
            continue
        end = text.find(f"</{name}>", opening.end())
        if end < 0:
            unclosed.add(name)
            continue
        pieces.append(text[after : opening.start()])
        after = end + len(name) + 3
    words = "".join((*pieces, text[after:])).strip()
    # opencode quotes a prompt that is given on its command line.
    return words[1:-1].strip() if len(words) > 1 and words[0] == words[-1] == '"' and words.count('"') == 2 else words


def tools_answered(pieces: Sequence[Any]) -> bool:
    """Whether a tool answered in any of the pieces, as in a call that goes on with a turn."""
    return any(_is_answer(part) for piece in pieces for part in (piece, *_listed(piece.get("content"))))


def first_answer(pieces: Sequence[Any]) -> str:
    """Return the first words of the model in these pieces; "" for none."""
    spoken = (text_of(piece).strip() for piece in pieces if piece.get("role") == "assistant")
    return next(filter(None, spoken), "")


def names_kept(value: Any, within: str = "") -> str:
    """Return the name of a field, at any depth of a body, that refers to what an upstream stores, such as a file; "" for none.
    `within` is the name of the field that holds `value`."""
    if isinstance(value, list):
        return next((name for part in value if (name := names_kept(part, within))), "")
    for name, part in _object(value).items():
        plain = name.lower().replace("_", "")  # some parsers of JSON distinguish neither
        if part and (plain in _KEPT or (plain == "id" and within in _WITH_IDS)):
            return f"{within}.{name}".lstrip(".")
        free = plain in _FREE or (name == "input" and str(value.get("type", "")).endswith("tool_use"))
        if not free and (inner := names_kept(part, plain)):
            return inner
    return ""


def _is_answer(part: Body) -> bool:
    kind = str(part.get("type", ""))
    return part.get("role") in ("tool", "function") or kind == "tool_result" or kind.endswith("_output")


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and set(part) == {"type", "text"} and part["type"] in TEXTS


def _parts(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else _listed(content)


def _events(copy: bytes, kind: str) -> Iterator[dict[str, Any]]:
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


def _listed(value: Any) -> list[Any]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
