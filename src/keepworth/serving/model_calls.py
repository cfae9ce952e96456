"""Calls of a model, read from the three formats into one, and a model's answers written in each of them: OpenAI's chat
completions and responses, and Anthropic's messages.

`keepworth.serving.call_formats` changes calls that somebody else answers; here they are answered. What would change an answer and
cannot be done is refused with its reason, as a provider does."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keepworth.base.json_values import as_list, as_object, parse
from keepworth.serving.answer_forms import Schema, grammar_of
from keepworth.serving.call_formats import EVENTS, TEXTS, text_of
from keepworth.serving.calls import NotServed, ReadyAnswer

Body = Mapping[str, Any]
_PASSED_OVER = {
    # of all formats
    *("metadata", "service_tier", "store", "stream_options", "user", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "cache_control", "parallel_tool_calls"),
    # of models that think, and of what the format tells about them
    *("reasoning", "reasoning_effort", "thinking", "verbosity", "include", "truncation", "prediction"),
}
"""Fields of a call that do not change what this model answers."""
_OFF = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "background": (False,),
}
"""Fields that are taken only with the value by which they change nothing."""
_CHOICES = ("auto", "none", "required", "any", "function", "tool")
"""Choices of tools: the model's, none, one of them whichever, and the one that is named."""


class _Options(BaseModel):
    """The options that a call may give, by their names in chat completions."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1, le=2**24)
    temperature: float = Field(1.0, ge=0, le=1000)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    n: int = Field(1, ge=1, le=128)
    stop: list[Annotated[str, Field(min_length=1)]] = Field([], max_length=16)
    stream: bool = False
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. `arguments` is a JSON object, as text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call of a model, whatever its format.

    Attributes:
        messages: The conversation as chat templates take it: role, content, tool_calls with their arguments as a mapping; a
            tool's result has the name of the tool.
        tools: The JSON schemas of the tools, in OpenAI's form.
        max_tokens: The most tokens of an answer; None leaves it to the model.
        stop: Texts that end an answer.
        grammar: What an answer may say (`keepworth.serving.answer_forms`); "" leaves it free.
        usage: Whether a stream ends with the number of tokens.
    """

    model: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    max_tokens: int | None
    stop: tuple[str, ...]
    grammar: str = ""
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stream: bool = False
    usage: bool = False
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """One answer to a call.

    Attributes:
        finish: "stop", "length" or "tool_calls".
        stopped_by: The text of the call's `stop` that ended it, "" for none.
        logprobs: The text of each token that was drawn, with its log-probability.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish: str
    stopped_by: str = ""
    logprobs: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model answered: a choice for each of the `n` of the call, and the tokens that were read and drawn."""

    model: str
    choices: tuple[ModelChoice, ...]
    tokens_read: int
    tokens_drawn: int


class AnsweredFormat:
    """A format whose calls are answered here. `path` is its route."""

    path: str
    renamed: Mapping[str, str] = {}
    """Names of options in this format, and their names in chat completions."""
    message_fields: tuple[str, ...] = ("messages",)
    """The fields that hold the conversation."""
    lacks: frozenset[str] = frozenset()
    """Options of chat completions that this format has not, and whose effect its answers could not show."""

    def read(self, body: Body) -> ModelCall:
        """Return the call that a body holds. Raises NotServed for what this package cannot answer."""
        values = {name: value for name, value in body.items() if value is not None}
        fields = {name: values.pop(name) for name in (*self.message_fields, "tools") if name in values}
        tools = tuple(self._schema(tool) for tool in _list_of(fields.get("tools", []), "tools"))
        messages = tuple(self._messages(fields))
        if not messages:
            raise NotServed("messages must be a list of at least one message with role and content.")
        if messages[-1]["role"] == "assistant":
            raise NotServed(
                "The last message is the assistant's, and is not continued.", "End with a user's message or a result."
            )
        choice, names = _tool_choice(values.pop("tool_choice", "auto"), tools)
        form = self._form(values)
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools if choice != "none"}
        called = [
            (name, Schema(f"tools[{place}]", parameters))
            for place, (name, parameters) in enumerate(schemas.items())
            if name in names
        ]
        grammar = grammar_of(form, called, free=choice in ("auto", "none"))
        for name, allowed in _OFF.items():
            if name in values and values.pop(name) not in allowed:
                raise NotServed(f"{name} is not supported.", f"Leave {name} out.", about=name)
        usage = bool(as_object(values.get("stream_options")).get("include_usage"))
        model = values.pop("model", "")
        if unknown := sorted(self.lacks & values.keys()):
            raise NotServed(
                f"{unknown[0]} is no field of {self.path}: its answers have no place for it.",
                f"Leave {unknown[0]} out, or call {ChatCalls.path}.",
                about=unknown[0],
            )
        for name, usual in self.renamed.items():
            if name in values:
                values[usual] = values.pop(name)
        if isinstance(values.get("stop"), str):
            values["stop"] = [values["stop"]]
        try:
            options = _Options(**{name: value for name, value in values.items() if name not in _PASSED_OVER})
        except ValidationError as error:
            (first, *_) = error.errors()
            field, fields_of = ".".join(map(str, first["loc"])), ", ".join(_Options.model_fields)
            raise NotServed(
                f"{field} is not supported: {first['msg']}.", f"This model takes {fields_of}.", about=field
            ) from error
        given = {name: getattr(options, name) for name in _Options.model_fields if name != "stop"}
        return ModelCall(
            model=str(model),
            messages=messages,
            tools=tools if choice != "none" else (),
            stop=tuple(options.stop),
            grammar=grammar,
            usage=usage,
            **given,
        )

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return an answer as one body."""
        raise NotImplementedError

    def events(self, answer: ModelAnswer, call: ModelCall) -> Iterator[tuple[str, Any]]:
        """Yield the events of a stream, each with its name; "" for none."""
        raise NotImplementedError

    def written(self, answer: ModelAnswer, call: ModelCall, headers: Mapping[str, str]) -> ReadyAnswer:
        """Return an answer as bytes: a stream of events where the call wants one.

        Args:
            answer: What the model answered.
            call: The call that it answers.
            headers: Headers of the answer.
        """
        if not call.stream:
            return ReadyAnswer(json.dumps(self.whole(answer)).encode(), headers=headers)
        lines = [
            f"event: {name}\ndata: {json.dumps(event)}\n\n" if name else f"data: {json.dumps(event)}\n\n"
            for name, event in self.events(answer, call)
        ]
        return ReadyAnswer("".join([*lines, self.last_line]).encode(), EVENTS, headers=headers)

    last_line = ""
    """What ends a stream."""

    def _messages(self, fields: Body) -> Iterator[dict[str, Any]]:
        names: dict[str, str] = {}
        for message in _list_of(fields.get("messages"), "messages"):
            yield from self._message(as_object(message), names)

    def _message(self, message: Body, names: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield what a message is in chat completions.

        Args:
            message: The message.
            names: The names of the tools that were called, by the calls' ids. Calls of the message are added.
        """
        role = {"developer": "system", "function": "tool"}.get(str(message.get("role")), message.get("role"))
        if role == "tool":
            id = str(message.get("tool_call_id", ""))
            yield _result(names.get(id, str(message.get("name") or "")), _words(message.get("content"), message))
            return
        if role not in ("system", "user", "assistant"):
            raise _no_message()
        calls = [as_object(call) for call in message.get("tool_calls") or ()]
        functions = [as_object(call.get("function")) for call in calls]
        names.update(
            {str(call.get("id")): str(of.get("name")) for call, of in zip(calls, functions, strict=True)},
        )
        empty = message.get("content") is None and role == "assistant"
        yield _spoken(str(role), "" if empty else _words(message.get("content"), message), functions)

    def _schema(self, tool: Any) -> Mapping[str, Any]:
        function = as_object(tool).get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise NotServed(
                "tools must be functions with a name.", "A tool that a provider runs itself is not here.", about="tools"
            )
        return _schema_of(function["name"], function.get("description"), function.get("parameters"))

    def _form(self, values: dict[str, Any]) -> Schema | None:
        """Remove the field that says what form the answer has, and return the schema of its JSON; None for any text."""
        given = as_object(values.pop("response_format", None))
        return _schema_in("response_format", given, as_object(given.get("json_schema")), ".json_schema")


class ChatCalls(AnsweredFormat):
    """OpenAI's chat completions."""

    path = "/v1/chat/completions"
    renamed = {"max_completion_tokens": "max_tokens"}  # noqa: RUF012
    last_line = "data: [DONE]\n\n"

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        choices = [
            {
                "index": index,
                "message": self._answered(choice),
                "finish_reason": choice.finish,
                "logprobs": self._logprobs(choice),
            }
            for index, choice in enumerate(answer.choices)
        ]
        usage = {"prompt_tokens": answer.tokens_read, "completion_tokens": answer.tokens_drawn}
        usage["total_tokens"] = sum(usage.values())
        return {**_head("chatcmpl", answer), "object": "chat.completion", "choices": choices, "usage": usage}

    def events(self, answer: ModelAnswer, call: ModelCall) -> Iterator[tuple[str, Any]]:
        whole = self.whole(answer)
        head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
        for choice in whole["choices"]:
            delta = dict(choice["message"])
            if "tool_calls" in delta:
                delta["tool_calls"] = [{"index": place, **tool} for place, tool in enumerate(delta["tool_calls"])]
            first = {"index": choice["index"], "delta": delta, "finish_reason": None, "logprobs": choice["logprobs"]}
            yield "", {**head, "choices": [first]}
            last = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
            yield "", {**head, "choices": [last]}
        if call.usage:
            yield "", {**head, "choices": [], "usage": whole["usage"]}

    def _answered(self, choice: ModelChoice) -> dict[str, Any]:
        calls = [
            {"id": tool.id, "type": "function", "function": {"name": tool.name, "arguments": tool.arguments}}
            for tool in choice.tool_calls
        ]
        content = choice.text or (None if calls else "")
        return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}

    def _logprobs(self, choice: ModelChoice) -> dict[str, Any] | None:
        if not choice.logprobs:
            return None
        return {
            "content": [
                {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
                for text, value in choice.logprobs
            ]
        }


class ResponsesCalls(AnsweredFormat):
    """OpenAI's responses. Nothing is stored: a call brings its whole conversation."""

    path = "/v1/responses"
    renamed = {"max_output_tokens": "max_tokens"}  # noqa: RUF012
    message_fields = ("input", "instructions")
    lacks = frozenset({"n", "logprobs", "stop"})

    def _messages(self, fields: Body) -> Iterator[dict[str, Any]]:
        if fields.get("instructions"):
            yield _spoken("system", str(fields["instructions"]), ())
        given = fields.get("input")
        if isinstance(given, str):
            yield _spoken("user", given, ())
            return
        names: dict[str, str] = {}
        words, functions = list[str](), list[Body]()  # of the assistant's turn, which is several items

        def end_turn() -> Iterator[dict[str, Any]]:
            if words or functions:
                yield _spoken("assistant", "\n".join(words), functions)
            words.clear()
            functions.clear()

        for item in map(as_object, _list_of(given, "input")):
            kind = item.get("type", "message")
            if kind == "function_call":
                names[str(item.get("call_id"))] = str(item.get("name"))
                functions.append(item)
            elif kind == "message" and item.get("role") == "assistant":
                words.append(_words(item.get("content"), item))
            elif kind == "function_call_output":
                yield from end_turn()
                output = item.get("output")
                yield _result(names.get(str(item.get("call_id")), ""), _words(output, {"content": output}))
            elif kind == "message":
                yield from end_turn()
                yield from self._message(item, names)
            elif kind != "reasoning":
                raise NotServed(f"An item of type {kind!r:.40} is not supported.", "Leave it out.", about="input")
        yield from end_turn()

    def _schema(self, tool: Any) -> Mapping[str, Any]:
        return super()._schema({"function": tool} if as_object(tool).get("type") == "function" else tool)

    def _form(self, values: dict[str, Any]) -> Schema | None:
        given = as_object(as_object(values.pop("text", None)).get("format"))
        for name in ("previous_response_id", "conversation", "prompt"):
            if name in values:
                raise NotServed(f"{name} is not supported.", "Send the whole conversation as input.", about=name)
        return _schema_in("text.format", given, given)

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        (choice, *_) = answer.choices
        cut = choice.finish == "length"
        output: list[dict[str, Any]] = []
        if choice.text or not choice.tool_calls:
            text = {"type": "output_text", "text": choice.text, "annotations": [], "logprobs": []}
            about = {"id": _new_id("msg"), "role": "assistant", "status": "incomplete" if cut else "completed"}
            output.append({"type": "message", **about, "content": [text]})
        for tool in choice.tool_calls:
            about = {"id": _new_id("fc"), "call_id": tool.id, "name": tool.name, "status": "completed"}
            output.append({"type": "function_call", **about, "arguments": tool.arguments})
        head = _head("resp", answer)
        usage = {"input_tokens": answer.tokens_read, "output_tokens": answer.tokens_drawn}
        return {
            "id": head["id"],
            "object": "response",
            "created_at": head["created"],
            "model": answer.model,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "error": None,
            "instructions": None,
            "metadata": {},
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": None,
            "top_p": None,
            "usage": {
                **usage,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": sum(usage.values()),
            },
        }

    def events(self, answer: ModelAnswer, call: ModelCall) -> Iterator[tuple[str, Any]]:
        for number, (name, event) in enumerate(self._events(self.whole(answer))):
            yield name, {"type": name, "sequence_number": number, **event}

    def _events(self, whole: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        yield "response.created", {"response": begun}
        yield "response.in_progress", {"response": begun}
        for index, item in enumerate(whole["output"]):
            at = {"item_id": item["id"], "output_index": index}
            empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
            added = {**item, **empty, "status": "in_progress"}
            yield "response.output_item.added", {"output_index": index, "item": added}
            if item["type"] == "message":
                (part,), place = item["content"], {**at, "content_index": 0}
                yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
                yield "response.output_text.delta", {**place, "delta": part["text"], "logprobs": []}
                yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
                yield "response.content_part.done", {**place, "part": part}
            else:
                yield "response.function_call_arguments.delta", {**at, "delta": item["arguments"]}
                done = {**at, "name": item["name"], "arguments": item["arguments"]}
                yield "response.function_call_arguments.done", done
            yield "response.output_item.done", {"output_index": index, "item": item}
        yield f"response.{whole['status']}", {"response": whole}


class MessagesCalls(AnsweredFormat):
    """Anthropic's messages. What a tool answered is a part of a user's message there, and a message of its own here."""

    path = "/v1/messages"
    renamed = {"stop_sequences": "stop"}  # noqa: RUF012
    message_fields = ("messages", "system")
    lacks = frozenset({"n", "logprobs", "stop"})

    def _messages(self, fields: Body) -> Iterator[dict[str, Any]]:
        if fields.get("system"):
            yield _spoken("system", _words(fields["system"], {"content": fields["system"]}), ())
        yield from super()._messages(fields)

    def _message(self, message: Body, names: dict[str, str]) -> Iterator[dict[str, Any]]:
        content = message.get("content")
        parts = [as_object(part) for part in as_list(content)]
        used = [part for part in parts if part.get("type") == "tool_use"]
        names.update({str(part.get("id")): str(part.get("name")) for part in used})
        results = [part for part in parts if part.get("type") == "tool_result"]
        for part in results:
            answered = part.get("content", "")
            yield _result(names.get(str(part.get("tool_use_id")), ""), _words(answered, {"content": answered}))
        others = {"tool_use", "tool_result", "thinking", "redacted_thinking"}
        rest = [part for part in parts if part.get("type") not in others]
        if results and not rest:
            return
        role = message.get("role")
        if role not in ("system", "user", "assistant"):
            raise _no_message()
        words = _words(rest if isinstance(content, list) else content, {"content": rest})
        yield _spoken(role, words, used)

    def _schema(self, tool: Any) -> Mapping[str, Any]:
        given = as_object(tool)
        if given.get("type", "custom") != "custom":
            return super()._schema(tool)
        function = {**given, "parameters": given.get("input_schema")}
        return super()._schema({"function": function})

    def _form(self, values: dict[str, Any]) -> Schema | None:
        if values.pop("thread", None) is not None:
            raise NotServed(
                "thread is not supported: no conversation is held here between calls.",
                "Send the whole conversation, without thread.",
                about="thread",
                details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
            )
        older = as_object(values.pop("output_format", None))
        newer = as_object(as_object(values.pop("output_config", None)).get("format"))
        return _schema_in("output_config.format", newer, newer) or _schema_in("output_format", older, older)

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        (choice, *_) = answer.choices
        content: list[dict[str, Any]] = [{"type": "text", "text": choice.text}] if choice.text else []
        content += [
            {"type": "tool_use", "id": tool.id, "name": tool.name, "input": json.loads(tool.arguments)}
            for tool in choice.tool_calls
        ]
        reasons = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
        return {
            "id": _new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": content,
            "stop_reason": "stop_sequence" if choice.stopped_by else reasons[choice.finish],
            "stop_sequence": choice.stopped_by or None,
            "usage": {"input_tokens": answer.tokens_read, "output_tokens": answer.tokens_drawn},
        }

    def events(self, answer: ModelAnswer, call: ModelCall) -> Iterator[tuple[str, Any]]:
        for event in self._events(self.whole(answer)):
            yield event["type"], event

    def _events(self, whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
        usage = {**whole["usage"], "output_tokens": 0}
        begun = {**whole, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield {"type": "message_start", "message": begun}
        for index, part in enumerate(whole["content"]):
            is_text = part["type"] == "text"
            empty = {**part, "text": ""} if is_text else {**part, "input": {}}
            yield {"type": "content_block_start", "index": index, "content_block": empty}
            text = {"type": "text_delta", "text": part["text"]} if is_text else {}
            delta = text or {"type": "input_json_delta", "partial_json": json.dumps(part["input"])}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        stopped = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        yield {"type": "message_delta", "delta": stopped, "usage": whole["usage"]}
        yield {"type": "message_stop"}


ANSWERED: Mapping[str, AnsweredFormat] = {
    format.path: format for format in (ChatCalls(), ResponsesCalls(), MessagesCalls())
}
"""The formats that are answered here, by their routes."""


def answer_error(status: int, message: str, kind: str) -> dict[str, Any]:
    """Return an error in a form that callers of all three formats read.

    Args:
        status: The status of the response.
        message: What is wrong and how to mend it.
        kind: The type of the error, such as "invalid_request_error".
    """
    return {"type": "error", "error": {"message": message, "type": kind, "code": status}}


def new_tool_call(name: str, arguments: Mapping[str, Any]) -> ToolCall:
    """Return a call of a tool, with a new id."""
    return ToolCall(_new_id("call"), name, json.dumps(arguments, ensure_ascii=False))


def message_of(choice: ModelChoice) -> dict[str, Any]:
    """Return an answer as the message by which later calls repeat it."""
    functions = [{"name": tool.name, "arguments": tool.arguments} for tool in choice.tool_calls]
    return _spoken("assistant", choice.text, functions)


def _spoken(role: str, content: str, functions: Sequence[Body]) -> dict[str, Any]:
    calls = [
        {"type": "function", "function": {"name": str(of.get("name")), "arguments": _arguments(of)}} for of in functions
    ]
    return {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}


def _arguments(function: Body) -> Mapping[str, Any]:
    """Return the arguments of a call as a mapping, as templates take them."""
    given = function.get("arguments", function.get("input"))
    if isinstance(given, str):
        try:
            given = parse(given or "{}")
        except ValueError:
            given = {"text": given}
    return given if isinstance(given, dict) else {"value": given}


def _result(name: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, **({"name": name} if name else {})}


def _words(content: Any, message: Body) -> str:
    """Return the text of a content, which is a text or a list of parts. Raises NotServed for parts that are no text."""
    parts = as_list(content)
    if not isinstance(content, str | list) or any(as_object(part).get("type", "text") not in TEXTS for part in parts):
        raise _no_message()
    if any(not isinstance(as_object(part).get("text"), str) for part in parts):
        raise _no_message()
    return content if isinstance(content, str) else text_of({**message, "content": content})


def _no_message() -> NotServed:
    return NotServed("A message must have role and content, both texts.", "Pictures and sounds are not supported.")


def _tool_choice(choice: Any, tools: Sequence[Mapping[str, Any]]) -> tuple[str, tuple[str, ...]]:
    """Return the kind of a choice of tools, and the names of those that may be called."""
    names = tuple(tool["function"]["name"] for tool in tools)
    kind = choice.get("type", "") if isinstance(choice, dict) else choice
    if kind not in _CHOICES:
        raise NotServed(
            f"tool_choice = {kind!r:.40} is not supported.",
            f"Choose one of {', '.join(_CHOICES)}.",
            about="tool_choice",
        )
    if kind in ("function", "tool"):
        named = as_object(choice)
        names = tuple(name for name in names if name == as_object(named.get("function", named)).get("name"))
    if not names and kind not in ("auto", "none"):
        raise NotServed(
            "tool_choice wants a tool to be called that tools does not hold.", "Add it to tools.", about="tool_choice"
        )
    return kind, names


def _schema_in(place: str, format: Body, holder: Body, within: str = "") -> Schema | None:
    """Return the schema of a format of answers; None for any text. Raises NotServed for a format of another kind.

    Args:
        place: The place of the format in the call.
        format: It says its type.
        holder: It holds the schema.
        within: The way from the format to the holder.
    """
    kind = format.get("type", "text")
    if kind == "json_object":
        return Schema(place, {"type": "object"})
    if kind not in ("text", "json_schema"):
        raise NotServed(
            f"{place}.type = {kind!r:.40} is not supported.", "Take text, json_object or json_schema.", about=place
        )
    return None if kind == "text" else Schema(f"{place}{within}.schema", holder.get("schema"))


def _schema_of(name: str, does: Any, parameters: Any) -> dict[str, Any]:
    about = {"name": name, "description": str(does or "")}
    return {
        "type": "function",
        "function": {**about, "parameters": parameters or {"type": "object", "properties": {}}},
    }


def _list_of(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise NotServed(f"{name} must be a list.", about=name)
    return value


def _head(kind: str, answer: ModelAnswer) -> dict[str, Any]:
    return {"id": _new_id(kind), "created": int(time.time()), "model": answer.model}


def _new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex[:24]}"
