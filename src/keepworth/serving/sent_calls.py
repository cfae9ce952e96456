"""A call of a model as it was sent and answered, in the shape that training reads (`keepworth.worlds.chat_logs`): its messages,
tools and answer, without pictures, sounds and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import from_json

from keepworth.base.json_values import as_object
from keepworth.serving.call_formats import EVENTS, events, first_choice

_NOT_WORDS = ("image", "input_image", "input_file", "input_audio", "audio", "document", "file", "video")
"""The beginnings of types of parts of a message of which the type alone is kept."""
_FIELDS = ("messages", "input", "system", "instructions", "tools")


def sent_call(content: bytes, copy: bytes, kind: str, redact: Callable[[str], str] | None) -> dict[str, Any] | None:
    """Return the request and the response of a call.

    Args:
        content: The body that was sent.
        copy: The body that came back, whole.
        kind: The content type of the answer; for a stream its events are joined.
        redact: Returns a text without secrets, or "" for one that must not be stored; None keeps every text.

    Returns:
        Both, or None if either cannot be read or holds a text that must not be stored.
    """
    try:
        body = from_json(content)
        answer = _join_events(copy, kind) if kind.startswith(EVENTS) else from_json(copy)
    except ValueError:
        return None
    if not isinstance(body, dict) or not isinstance(answer, dict):
        return None
    reply = {name: answer[name] for name in ("choices", "content", "output") if name in answer}
    if not reply:
        return None
    refused: list[str] = []

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            text = value if redact is None else redact(value)
            if value.strip() and not text:
                refused.append(value)
            return text
        if isinstance(value, list):
            return [clean(part) for part in value]
        if not isinstance(value, dict):
            return value
        kind = value.get("type")
        if isinstance(kind, str) and kind.startswith(_NOT_WORDS) and "role" not in value:
            return {"type": kind}
        return {name: clean(part) for name, part in value.items()}

    sent = {"request": clean({name: body[name] for name in _FIELDS if name in body}), "response": clean(reply)}
    return None if refused else sent


def _join_events(copy: bytes, kind: str) -> dict[str, Any]:
    """Return the answer that the events of a stream add up to; {} where the stream broke off."""
    listed = list(events(copy, kind))
    for event in listed:
        if event.get("type") == "response.completed" and isinstance(event.get("response"), dict):
            return dict(event["response"])
    parts: dict[int, dict[str, Any]] = {}
    text, ended = "", False
    calls: dict[int, dict[str, Any]] = {}
    for event in listed:
        index = event.get("index")
        number = index if isinstance(index, int) else 0
        if event.get("type") == "content_block_start":
            parts[number] = {**as_object(event.get("content_block")), "json": ""}
        elif event.get("type") == "content_block_delta" and number in parts:
            delta = as_object(event.get("delta"))
            parts[number]["text"] = str(parts[number].get("text", "")) + str(delta.get("text") or "")
            parts[number]["json"] += str(delta.get("partial_json") or "")
        elif event.get("type") == "message_stop":
            ended = True
        if (choice := first_choice(event)) is not None:
            delta = as_object(choice.get("delta"))
            ended = ended or bool(choice.get("finish_reason"))
            text += str(delta.get("content") or "")
            for call in delta.get("tool_calls") or []:
                at = calls.setdefault(as_object(call).get("index") or 0, {"id": "", "name": "", "arguments": ""})
                function = as_object(as_object(call).get("function"))
                at["id"] += str(call.get("id") or "")
                at["name"] += str(function.get("name") or "")
                at["arguments"] += str(function.get("arguments") or "")
    if not ended:
        return {}
    if parts:
        return {"content": [_part(part) for _, part in sorted(parts.items())]}
    listed_calls = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for _, call in sorted(calls.items())
    ]
    message = {"role": "assistant", "content": text, **({"tool_calls": listed_calls} if listed_calls else {})}
    return {"choices": [{"message": message}]}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") != "tool_use":
        return {name: value for name, value in part.items() if name != "json"}
    rest = {name: value for name, value in part.items() if name not in ("json", "text")}
    try:
        return {**rest, "input": from_json(part["json"] or "{}")}
    except ValueError:
        return {**rest, "input": {}}
