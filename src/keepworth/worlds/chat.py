"""Chat: a conversation in the model's own format, over as many turns as the environment gives.

The prompt of a turn consists of the ids of the turn before, the drawn ids, and the environment's text, encoded separately. Drawn
ids are never decoded and encoded again, so a conversation is one sequence that can be trained on as it was drawn. With `thinking
= "strip"` earlier thoughts are removed from the conversation, as many templates do: each turn is then a prompt of its own, and is
trained on as such.

Where the environment has tools, a call is parsed in the forms that models write (see `call_in`), and passed to the environment as
`name: argument`; any other text is the answer."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from keepworth.base.text import as_line, as_text
from keepworth.models.chat_format import NoChatTemplate
from keepworth.records.episode import Observation, Shown, ToolDescription
from keepworth.records.model import ChatTemplate, FinishReason, Message, Reads, Tokens
from keepworth.worlds.agent import Action, Caller
from keepworth.worlds.chat_logs import write_call

Thinking = Literal["keep", "strip"]
Format = Literal["auto", "chat", "plain"]
ANSWER = "answer"
"""The name of an answer among tools (`keepworth.worlds.tool_use`)."""
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)\s*", re.DOTALL)
_UNOPENED = re.compile(r"\A(?:(?!<think>).)*?</think>\s*", re.DOTALL)
_LINE = re.compile(r"\s*([A-Za-z_][\w-]*)\s*:(.*)", re.DOTALL)
_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_LISTED = re.compile(r"\[TOOL_CALLS\]\s*(.*)", re.DOTALL)


class Chat:
    """An agent that holds a conversation.

    Args:
        system: A text before all messages.
        shown: Memories, which are placed before the first question.
        schemas: Tools that the conversation may call, in OpenAI's form, where the environment has none: a call is then an answer.
        max_tokens: The most tokens of one turn.
        stop: Texts at which a turn ends, besides the model's own end of a turn.
        format: "chat" uses the model's template, "plain" the texts one after the other, "auto" the template where there is one.
    """

    def __init__(
        self,
        system: str = "",
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        format: Format = "auto",
        thinking: Thinking = "keep",
        shown: Sequence[Shown] = (),
        schemas: Sequence[Mapping[str, Any]] = (),
        role: str = "policy",
    ) -> None:
        self.system, self.max_tokens, self.stop, self.thinking = system, max_tokens, tuple(stop), thinking
        self.format, self.shown, self.role = format, tuple(shown), role
        self.prompt_id = f"chat/v1-{hashlib.sha256(system.encode()).hexdigest()[:8]}"
        self._messages: list[Message] = []
        self._tools: tuple[ToolDescription, ...] = ()
        self._schemas: tuple[Mapping[str, Any], ...] = tuple(schemas)
        self._ids: Tokens = ()
        self._last: int | None = None

    async def act(self, observation: Observation, model: Caller) -> Action:
        first, chat = not self._messages, format_of(model, self.format, self.stop)
        prompt = self._open(observation, chat) if first else self._continued(observation, chat)
        sample = await model.call(
            prompt,
            role=self.role,
            prompt_id=self.prompt_id,
            max_tokens=self.max_tokens,
            stop_ids=chat.stop_ids,
            stop=self.stop,
        )
        self._ids = prompt + sample.ids
        ended = bool(sample.ids) and sample.ids[-1] in chat.stop_ids
        self._last = sample.ids[-1] if ended else None
        reply = model.decode(sample.ids[:-1] if ended else sample.ids)
        for text in self.stop:
            reply = reply.partition(text)[0]
        if self.thinking == "strip":
            reply = without_thoughts(reply)
        self._messages.append({"role": "assistant", "content": reply})
        text = read_action(reply, self._tools) if self._tools else reply.strip()
        return Action(text, cut=sample.finish is FinishReason.LENGTH, shown=self.shown if first else ())

    def _open(self, observation: Observation, chat: ChatTemplate) -> Tokens:
        self._tools, takes_tools = observation.tools, chat.takes_tools
        system = "\n\n".join(filter(None, (self.system, "" if takes_tools else tools_in_words(observation.tools))))
        question = {"role": "user", "content": observation.question or observation.text}
        messages = [clean(message) for message in observation.messages or (question,)]
        if self._tools:
            self._schemas = tuple(map(schema_of, self._tools)) if takes_tools else ()
        self._messages, self._schemas = with_tools(messages, self._schemas, chat)
        self._messages = add_memories(add_system(self._messages, system, chat), self.shown)
        return chat.opening(self._messages, self._schemas)

    def _continued(self, observation: Observation, chat: ChatTemplate) -> Tokens:
        new = fold_system([clean(message) for message in observation.messages], chat, behind=True)
        if not new:
            role = "tool" if self._schemas and chat.takes_results else "user"
            new = [{"role": role, "content": as_text(observation.text)}]
        self._messages += new
        if self.thinking == "strip":
            return chat.opening(self._messages, self._schemas)
        return self._ids + chat.following(new, self._last)


def format_of(model: Reads, format: Format, stop: Sequence[str] = ()) -> ChatTemplate:
    """Returns the format of conversations for a model. Raises NoChatTemplate where the format must be "chat" and the model has no
    template.

    Args:
        model: The model whose tokenizer may have a template.
        format: "chat" for the model's template, "plain" for none, and otherwise the template where there is one.
        stop: Texts that end a turn in the plain format, beside the model's own end of a text.
    """
    if format == "plain":
        return PlainFormat(model, tuple(stop))
    try:
        return model.chat
    except NoChatTemplate:
        if format == "chat":
            raise
        return PlainFormat(model, tuple(stop))


@dataclass(frozen=True, slots=True)
class PlainFormat:
    """Joins the texts, for a model that was not trained on conversations, and adds nothing behind the last. A turn ends at the
    model's own end of a text, and at the texts in `stop`."""

    model: Reads
    stop: tuple[str, ...] = ()
    takes_tools: bool = False
    takes_results: bool = False
    takes_system: bool = True
    takes_later_system: bool = True

    @property
    def stop_ids(self) -> frozenset[int]:
        # No text has "\0": these are the special ids alone. A line break that ends the turn need not be drawn any further.
        return self.model.stop_ids_for("\n" if "\n" in self.stop else "\0")

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Tokens:
        return self.model.encode("\n\n".join(message["content"] for message in messages))

    def following(self, messages: Sequence[Message], last: int | None) -> Tokens:
        return self.model.encode_continuation("\n".join(("", *(message["content"] for message in messages), "")))


def add_system(messages: Sequence[Message], system: str, chat: ChatTemplate) -> list[Message]:
    """Puts a text before a conversation, as its system message. The text of a system message that is there already follows it.

    Args:
        messages: The conversation, the oldest message first. It is not changed.
        system: The text; "" adds nothing.
        chat: The format. Where it takes no system message, the text becomes a part of the user's.
    """
    result = list(messages)
    if system and result and result[0]["role"] == "system":
        result[0] = {**result[0], "content": f"{system}\n\n{result[0]['content']}"}
    elif system:
        result.insert(0, {"role": "system", "content": system})
    return fold_system(result, chat)


def fold_system(messages: Sequence[Message], chat: ChatTemplate, *, behind: bool = False) -> list[Message]:
    """Writes system messages that the format does not take into the user's text that follows: all of them where it has no system
    role, and those behind the first message where it takes one only.

    Args:
        messages: The conversation, the oldest message first. It is not changed.
        chat: The format.
        behind: Whether the messages continue a conversation, so that none of them is its first.
    """
    first = 0 if behind or not chat.takes_system else 1
    if chat.takes_system and chat.takes_later_system:
        return list(messages)
    result: list[Message] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] == "system" and index >= first:
            waiting.append(as_text(message["content"]))
        elif waiting and message["role"] == "user":
            result.append({**message, "content": "\n\n".join((*waiting, message["content"]))})
            waiting = []
        else:
            result.append(message)
    if waiting and result and result[-1]["role"] == "user":
        result[-1] = {**result[-1], "content": "\n\n".join((result[-1]["content"], *waiting))}
    elif waiting:
        result.append({"role": "user", "content": "\n\n".join(waiting)})
    return result


def with_tools(
    messages: Sequence[Message], schemas: Sequence[Mapping[str, Any]], chat: ChatTemplate
) -> tuple[list[Message], tuple[Mapping[str, Any], ...]]:
    """Returns the messages and the schemas of tools as the format takes them. What it does not take is written in words: schemas
    into the system's text, calls into the assistant's, and what a tool answered into a user's message.

    Args:
        messages: The conversation, the oldest message first.
        schemas: The JSON schema of each tool, in OpenAI's form.
        chat: The format.
    """
    result = [_write_calls(message, chat) for message in messages]
    if not schemas or chat.takes_tools:
        return result, tuple(schemas)
    lines = "\n".join(json.dumps(schema.get("function", schema), ensure_ascii=False) for schema in schemas)
    return add_system(result, f"{_CALLING}\n{lines}", chat), ()


_CALLING = 'To call a tool, write <tool_call>{"name": ..., "arguments": {...}}</tool_call>. Tools:'


def _write_calls(message: Message, chat: ChatTemplate) -> Message:
    if message.get("tool_calls") and not getattr(chat, "takes_calls", False):
        functions = [call["function"] for call in message["tool_calls"]]
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**rest, "content": write_call(message["content"], functions)}
    if message["role"] == "tool" and not chat.takes_results:
        return {"role": "user", "content": f"{message.get('name') or 'Tool'}: {message['content']}"}
    return message


def add_memories(messages: Sequence[Message], shown: Sequence[Shown]) -> list[Message]:
    """Adds the memories before the user's last text."""
    result = list(messages)
    if shown:
        index = max((i for i, message in enumerate(result) if message["role"] == "user"), default=len(result) - 1)
        lines = "\n".join(f"- {as_line(item.text)}" for item in shown)
        result[index] = {**result[index], "content": f"Memory:\n{lines}\n\n{result[index]['content']}"}
    return result


def clean(message: Message) -> Message:
    """Returns the message without tokens of a chat template in its text and its calls of tools. A system message is trusted and
    stays as it is."""
    if message["role"] == "system":
        return dict(message)
    calls = {"tool_calls": _clean_all(message["tool_calls"])} if message.get("tool_calls") else {}
    return {**message, **calls, "content": as_text(message["content"])}


def _clean_all(value: Any) -> Any:
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, Mapping):
        return {as_text(str(name)): _clean_all(part) for name, part in value.items()}
    return [_clean_all(part) for part in value] if isinstance(value, list | tuple) else value


def without_thoughts(text: str) -> str:
    """Removes the text between <think> and </think>; the opening one may be in the prompt."""
    return _THOUGHTS.sub("", _UNOPENED.sub("", text))


# Tools: their schemas for templates, and calls in the forms that models write.


def schema_of(tool: ToolDescription) -> Mapping[str, Any]:
    """Returns the JSON schema of a tool, in the form that chat templates take."""
    parameters = tool.parameters or {
        "type": "object",
        "properties": {tool.argument: {"type": "string"}},
        "required": [tool.argument],
    }
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.does, "parameters": dict(parameters)},
    }


def tools_in_words(tools: Sequence[ToolDescription]) -> str:
    """Describes the tools in words, for a template that takes no tools; "" where there are none."""
    if not tools:
        return ""
    lines = [f"{tool.name}: {tool.argument} - {tool.does}" for tool in tools]
    return "\n".join(
        ("To use a tool, write one line: its name, a colon, its argument.", *lines, f"{ANSWER}: the answer")
    )


def read_action(text: str, tools: Sequence[ToolDescription]) -> str:
    """Converts the model's text to an action of an environment with tools: `name: argument` of a call, else its answer."""
    reply = without_thoughts(text)  # a call inside thoughts does not count
    if (called := call_in(reply)) is not None:
        name, arguments = called
        called_tool = next((tool for tool in tools if tool.name == name), None)
        argument = None if called_tool is None or called_tool.parameters else called_tool.argument
        alone = arguments.get(argument) if argument and set(arguments) == {argument} else None
        if alone is None or str(alone).startswith("{"):  # which would be read as arguments by name
            return f"{name}: {json.dumps(arguments, ensure_ascii=False)}"
        return f"{name}: {alone}"
    stripped = reply.strip()
    match = _LINE.fullmatch(stripped.split("\n", 1)[0])
    if match and match[1].lower() in {ANSWER, *(tool.name.lower() for tool in tools)}:
        return stripped if match[1].lower() == ANSWER else stripped.split("\n", 1)[0]
    return f"{ANSWER}: {text.strip()}"


def call_in(text: str) -> tuple[str, Mapping[str, Any]] | None:
    """Returns (name, arguments) of the first call in `text`; None where there is none that can be parsed."""
    return next(iter(calls_in(text)[1]), None)


def calls_in(text: str) -> tuple[str, list[tuple[str, Mapping[str, Any]]]]:
    """Returns the text around the calls in `text`, and (name, arguments) of each; all of the text where there is none that can be
    parsed.

    It reads `<tool_call>{...}</tool_call>` (Hermes, Qwen, SmolLM), `[TOOL_CALLS] [{...}]` (Mistral), or one JSON object that is
    the whole text (Llama)."""
    tagged = [match[1] for match in _TAGGED.finditer(text)]
    listed = _LISTED.search(text)
    for written, rest in (
        (tagged, _TAGGED.sub("", text)),
        ([listed[1]] if listed else [], text[: listed.start()] if listed else ""),
        ([text.strip()], ""),
    ):
        if calls := [call for one_call in written for call in _calls_of(one_call)]:
            return rest.strip(), calls
    return text, []


def _calls_of(written: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for call in _objects(written):
        name, arguments = call.get("name"), call.get("arguments", call.get("parameters"))
        if isinstance(arguments, str):
            arguments = next(_objects(arguments), None)
        if isinstance(name, str) and isinstance(arguments, Mapping):
            yield name, arguments


def _objects(written: str) -> Iterator[Mapping[str, Any]]:
    if not written.startswith(("{", "[")):
        return
    try:
        value, _ = json.JSONDecoder().raw_decode(written)
    except (ValueError, RecursionError):
        return
    yield from (part for part in (value if isinstance(value, list) else [value]) if isinstance(part, Mapping))
