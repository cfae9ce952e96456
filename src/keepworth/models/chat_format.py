"""Conversations in the format that a model was trained on: its tokenizer's chat template, as tokens that are only appended to.

A template renders a conversation as one text. Rendering it again at every turn would decode and encode again what the model drew,
and some templates rewrite earlier turns. So the template renders only the opening; later turns are encoded separately, as the
template writes them after an assistant's text, and drawn tokens stay as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.models.template_bounds import Unbounded, bounded_time, require_bounded
from keepworth.records.model import Message, Tokens

_SAID = "KEEPWORTH-SAID"
_ASKED = "KEEPWORTH-ASKED"
_TOOL = {
    "type": "function",
    "function": {
        "name": "keepworth_probe",
        "description": _ASKED,
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}


class NoChatTemplate(KeepworthError):
    """The model's tokenizer has no chat template."""


class TemplateMismatch(KeepworthError):
    """A chat template cannot render the messages, or not in a way that can be trained on."""


class TokenizerChat:
    """A tokenizer's chat template as a `keepworth.records.model.ChatTemplate`. Raises NoChatTemplate. `name` is the model's, for
    messages; `ends` are ids that end a text, from the checkpoint's generation config."""

    def __init__(self, tokenizer: Any, name: str, ends: Sequence[int] = ()) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise NoChatTemplate(
                f"{name} has no chat template, so what a conversation looks like to it is not known.",
                'Take an instruction-tuned model, or set format = "plain", which continues a text.',
            )
        self._tokenizer, self.name, self._ends = tokenizer, name, tuple(ends)
        templates = tokenizer.chat_template
        self._template = "".join(templates.values()) if isinstance(templates, dict) else str(templates)
        self._between: dict[str, Tokens] = {}

    def render_text(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, opens: bool = True
    ) -> str:
        """Renders a conversation as text. Raises TemplateMismatch where the template does not take it, or does not end in bounded
        time.

        Args:
            messages: The conversation, the oldest message first.
            tools: The JSON schemas of the tools that the model may call.
            opens: Whether the text goes on to where the assistant's turn begins.
        """
        roles = ", ".join(str(message.get("role")) for message in messages)
        try:
            require_bounded(self._template)
            with bounded_time():
                return str(
                    self._tokenizer.apply_chat_template(
                        [dict(message) for message in messages],
                        add_generation_prompt=opens,
                        tokenize=False,
                        **({"tools": [dict(tool) for tool in tools]} if tools else {}),
                    )
                )
        except (Unbounded, RecursionError, MemoryError) as error:
            reason = str(error) or f"it ends in a {type(error).__name__}"
            raise TemplateMismatch(
                f"The chat template of {self.name} has no bound: {reason}.", "Take another template, or another model."
            ) from error
        except Exception as error:  # a template is a program, and may fail in any way
            raise TemplateMismatch(
                f"The chat template of {self.name} does not take these messages ({roles}): {error}.",
                "Leave out the role that it does not know, such as system, or write that text into the user's message.",
            ) from error

    @cached_property
    def takes_tools(self) -> bool:
        return _ASKED in self._tried([_user("")], [_TOOL])

    @cached_property
    def takes_results(self) -> bool:
        called = {"role": "assistant", "content": _SAID}
        return _ASKED in self._tried([_user("a"), called, {"role": "tool", "content": _ASKED}])

    @cached_property
    def takes_calls(self) -> bool:
        """Whether the template writes an assistant's calls of tools."""
        return _ASKED in self._tried([_user("a"), _calling({"name": _ASKED, "arguments": {"text": "b"}})])

    def write_text(self, message: Message) -> str:
        """Returns the text that the template writes for an assistant's message, without the end of its turn; "" where it writes
        something else before it than before an answer that is to be drawn."""
        usual_answer = {"role": "assistant", "content": _SAID}
        opening = self._tried([_user("a")])
        whole, usual = (self._tried([_user("a"), answer], opens=False) for answer in (message, usual_answer))
        behind = usual.rpartition(_SAID)[2]
        if not opening or not whole.startswith(opening) or not whole.endswith(behind):
            return ""
        return whole[len(opening) : len(whole) - len(behind)]

    @cached_property
    def takes_system(self) -> bool:
        return _ASKED in self._tried([{"role": "system", "content": _ASKED}, _user("a")])

    @cached_property
    def takes_later_system(self) -> bool:
        system = {"role": "system", "content": _ASKED}
        turn = [_user("a"), {"role": "assistant", "content": _SAID}]
        return self._tried([system, *turn, system, _user("b")]).count(_ASKED) == 2  # some templates keep one of them

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        closing = self._behind([_user("b")])[:1]
        special = set(self._tokenizer.all_special_ids)
        turn = {token for token in closing if token in special}
        end = getattr(self._tokenizer, "eos_token_id", None)
        stops = {*self._ends, *turn, *(() if end is None else (end,))}
        return frozenset(stops or special)

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Tokens:
        return self._encoded(self.render_text(messages, tools))  # a template writes its BOS itself

    def following(self, messages: Sequence[Message], last: int | None) -> Tokens:
        ids = self._behind(messages)
        return ids[1:] if last is not None and ids[:1] == (last,) else ids

    def _behind(self, messages: Sequence[Message]) -> Tokens:
        """Returns the ids that the template writes after an assistant's text when `messages` follow."""
        key = json.dumps([dict(message) for message in messages], sort_keys=True)
        if key not in self._between:
            text = self.render_text([_user("a"), {"role": "assistant", "content": _SAID}, *messages])
            _, separator, behind = text.rpartition(_SAID)
            if not separator:
                raise TemplateMismatch(
                    f"The chat template of {self.name} leaves out what an assistant said before: a conversation of several "
                    "turns cannot be added to.",
                    "Take tasks of one turn, or a model whose template keeps the conversation.",
                )
            if len(self._between) > 256:
                self._between.clear()
            self._between[key] = self._encoded(behind)
        return self._between[key]

    def _encoded(self, text: str) -> Tokens:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _tried(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, opens: bool = True
    ) -> str:
        try:
            return self.render_text(messages, tools, opens=opens)
        except TemplateMismatch:
            return ""


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _calling(function: Mapping[str, Any]) -> Message:
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": dict(function)}]}


def ends_of(network: Any) -> tuple[int, ...]:
    """Returns the ids that end a text, by the checkpoint's generation config."""
    return ids_of(getattr(getattr(network, "generation_config", None), "eos_token_id", None))


def ids_of(given: Any) -> tuple[int, ...]:
    """Returns a tuple of ids from a configuration's value, which is one id, several or None."""
    return tuple(token for token in (given if isinstance(given, list) else [given]) if token is not None)
