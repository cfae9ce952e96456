"""Conversations that come as calls: turns a call into the ids that the model reads, and what it drew into an answer.

A call brings its whole conversation, with the model's earlier answers as text. Such an answer is recognised: the prompt then
consists of the ids of that call, the ids that were drawn, and what was added since. Drawn ids are never decoded and encoded
again. A conversation that was rewritten, such as by a summary, is a new prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from keepworth.models.chat_format import TokenizerChat
from keepworth.records.model import ChatTemplate, FinishReason, Message, Reads, Sample, Tokens
from keepworth.serving.model_calls import ModelCall, ModelChoice, ToolCall, message_of, new_tool_call
from keepworth.worlds.chat import Format, calls_in, clean, fold_system, format_of, with_tools


@dataclass(frozen=True, slots=True)
class CallPrompt:
    """What a model reads for a call.

    Attributes:
        ids: The ids of the conversation, up to where the assistant's turn begins.
        chat: The format, whose `stop_ids` end the turn.
    """

    ids: Tokens
    chat: ChatTemplate


class Conversations:
    """The conversations of one caller. `model` encodes and decodes; `format` is as in `keepworth.worlds.chat.Chat`."""

    def __init__(self, model: Reads, format: Format = "auto") -> None:
        self._model, self._format = model, format
        self._answered: dict[bytes, tuple[Tokens, int | None]] = {}

    def prompt(self, call: ModelCall) -> CallPrompt:
        """Returns what the model reads. Raises NoChatTemplate, and TemplateMismatch for messages that the template refuses."""
        chat = format_of(self._model, self._format, call.stop)
        whole, answered = _Digest(call.tools), 0
        ids: Tokens = ()
        last: int | None = None
        for place, message in enumerate(call.messages, start=1):
            whole.add(message)
            if message["role"] == "assistant" and (earlier := self._answered.get(whole.value)) is not None:
                (ids, last), answered = earlier, place
        messages, tools = _as_taken(call, answered, chat)
        return CallPrompt(ids + chat.following(messages, last) if answered else chat.opening(messages, tools), chat)

    def answer(self, call: ModelCall, prompt: CallPrompt, sample: Sample) -> ModelChoice:
        """Returns what was drawn as an answer, which later calls may go on from.

        Args:
            call: The call that is answered.
            prompt: What the model read for it.
            sample: What it drew.
        """
        decode, ids = self._model.decode, sample.ids
        ended = bool(ids) and ids[-1] in prompt.chat.stop_ids
        text = decode(ids[:-1] if ended else ids)
        stopped_by = next((stop for stop in call.stop if stop in text), "")
        for stop in call.stop:
            text = text.partition(stop)[0]
        words, tool_calls = text, tuple[ToolCall, ...]()
        if call.tools:
            names = {schema["function"]["name"] for schema in call.tools}
            rest, called = calls_in(text)
            if called and all(name in names for name, _ in called):
                words, tool_calls = rest, tuple(new_tool_call(name, arguments) for name, arguments in called)
        finish = "length" if sample.finish is FinishReason.LENGTH else "tool_calls" if tool_calls else "stop"
        pairs = zip(ids, sample.logprobs, strict=False) if call.logprobs else ()
        logprobs = tuple((decode([id]), value) for id, value in pairs)
        choice = ModelChoice(words, tool_calls, finish, stopped_by, logprobs)
        whole = _Digest(call.tools)
        for message in (*call.messages, message_of(choice)):
            whole.add(message)
        self._answered[whole.value] = (prompt.ids + ids, ids[-1] if ended else None)
        return choice


def render_call(call: ModelCall, chat: TokenizerChat) -> str:
    """Returns the text of a call's prompt by a model's own template. Raises TemplateMismatch for messages that it refuses."""
    messages, tools = _as_taken(call, 0, chat)
    return chat.render_text(messages, tools)


def _as_taken(
    call: ModelCall, answered: int, chat: ChatTemplate
) -> tuple[list[Message], tuple[Mapping[str, Any], ...]]:
    """Returns the messages from place `answered` on, and the schemas of the tools, as the format takes them."""
    new = [clean(message) for message in call.messages[answered:]]
    messages, tools = with_tools(new, () if answered else call.tools, chat)
    return fold_system(messages, chat, behind=bool(answered)), tools


class _Digest:
    """A hash of a conversation, message by message. Blanks around an assistant's text do not count: callers strip them."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self.value = _hash(b"", tools)

    def add(self, message: Message) -> None:
        plain = {name: message[name] for name in ("role", "content", "tool_calls", "name") if message.get(name)}
        if message["role"] == "assistant":
            plain["content"] = message["content"].strip()
        self.value = _hash(self.value, plain)


def _hash(before: bytes, value: Any) -> bytes:
    return sha256(before + json.dumps(value, sort_keys=True).encode()).digest()
