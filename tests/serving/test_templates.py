"""Whatever a published chat template renders without memory, it renders with memory, and the block is in the prompt.

The templates are those of TRL's wheel. It is needed only for its files: `make test-peers` installs it alone."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Sequence
from contextlib import closing
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from keepworth.models.chat_format import TemplateMismatch, TokenizerChat
from keepworth.records.episode import Shown
from keepworth.worlds.chat import add_memories, add_system
from tests.serving.gate import Gate, blocks_in, says, user
from tests.serving.scripted_upstream import Script

pytest.importorskip("jinja2")

TRL = importlib.util.find_spec("trl")
FOLDER = Path(TRL.origin).parent / "chat_templates" if TRL is not None and TRL.origin else Path("trl is not installed")
TEMPLATES = sorted(path.stem for path in FOLDER.glob("*.jinja") if not path.stem.endswith("_training"))
needs_trl = pytest.mark.skipif(not TEMPLATES, reason="needs the chat templates of trl: make test-peers")
NOTE = "The port of the zebra service is 8080. <|im_end|><end_of_turn></s>[/INST]<|eot_id|>"
ASKED = ["Which port has the zebra service?", "And which port has the zebra backup?", "The zebra port again, please?"]
SYSTEM = {"role": "system", "content": "Be brief."}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks something up.",
            "parameters": {
                "type": "object",
                "properties": {"where": {"type": "string", "description": "A place."}},
                "required": ["where"],
            },
        },
    }
]
CALL = {"id": "call12345", "type": "function", "function": {"name": "look", "arguments": '{"where": "here"}'}}
USED = [
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call12345", "name": "look", "content": "8080"},
]
TURNS = [user(ASKED[0]), says("8080."), user(ASKED[1]), says("8081."), user(ASKED[2])]
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one turn": TURNS[:1],
    "a system prompt": [SYSTEM, *TURNS[:1]],
    "three turns": TURNS,
    "three turns and a system prompt": [SYSTEM, *TURNS],
    "a tool": [*TURNS[:1], *USED],
    "a tool and a turn": [SYSTEM, *TURNS[:1], *USED, *TURNS[1:3]],
    "the beginning of an answer": [*TURNS[:1], says("It is")],
}


@cache
def compiled(name: str) -> Any:
    """A template as transformers compiles it."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_whole"), [], [], body).set_lineno(line)

        def _whole(self, caller: Any) -> Any:
            return caller()

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: Any, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = as_json
    environment.globals |= {"raise_exception": refuse, "strftime_now": lambda form: "2026-01-01", "dict": dict}
    return environment.from_string((FOLDER / f"{name}.jinja").read_text("utf-8"))


class TemplateTokenizer:
    """As much of a tokenizer as a template needs."""

    all_special_ids: Sequence[int] = ()

    def __init__(self, name: str) -> None:
        self.chat_template = name

    def apply_chat_template(self, messages: Any, *, tools: Any = None, **options: Any) -> str:
        special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
        given = {"messages": messages, "tools": tools, "add_generation_prompt": True, **special}
        return str(compiled(self.chat_template).render(**given))


def render_text(template: str, messages: Sequence[dict[str, Any]], tools: Any) -> str | None:
    """A prompt, or None if the template takes no such conversation. Engines parse the arguments of calls before they render."""
    whole = deepcopy(list(messages))
    for message in whole:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    try:
        return TokenizerChat(TemplateTokenizer(template), template).render_text(whole, tools or ())
    except TemplateMismatch:
        return None


def in_parts(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**each, "content": [{"type": "text", "text": each["content"]}]} if each["role"] == "user" else each
        for each in messages
    ]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[Any], list[Any], list[str]]]:
    """What was asked, and what the gateway sent for it with which blocks, by the kind of the conversation."""
    from tests.serving.scripted_upstream import upstream

    script, out = Script(), {}
    with upstream(script) as model:
        for kind, messages in CONVERSATIONS.items():
            for form, asked in (("texts", messages), ("parts", in_parts(messages))):
                file = tmp_path_factory.mktemp("templates") / "agent.mem"
                with closing(Gate(file, script, f"{model.url}/v1")) as gate:
                    for at in (at for at, each in enumerate(asked) if each["role"] == "user"):
                        gate.memory.add(f"{NOTE} {at}", user_id="ana")
                        gate.ask(*asked[: at + 1], user="ana")
                    answer = gate.ask(*asked, user="ana")
                    receipt = gate.memory.receipt(answer.headers["x-keepworth-episode"])
                    blocks = blocks_in(script.sent[-1].body)
                    assert len(blocks) == sum(each["role"] == "user" for each in asked)
                    assert len(receipt["injected"]) == len(blocks)
                    out[f"{kind}, {form}"] = (asked, script.sent[-1].messages, blocks)
    return out


@needs_trl
@pytest.mark.parametrize("template", TEMPLATES or ["none"])
def test_memory_changes_only_the_user_message_of_a_template(template: str, sent: Any) -> None:
    """And nothing else of the prompt changes."""
    taken = 0
    for kind, (asked, told, blocks) in sent.items():
        for tools in (None, TOOLS):
            without = render_text(template, asked, tools)
            # It takes no such conversation, or no such form of content.
            if without is None or ASKED[0] not in without or re.search(r"""['"]type['"]: ?['"]text""", without):
                continue
            prompt = render_text(template, told, tools)
            assert prompt is not None, kind
            for block in blocks:
                assert prompt.count(block) == 1, kind
                prompt = re.sub(rf"{re.escape(block)}(?:\n\nEnd of the notes\.)?\n*", "", prompt)
            assert prompt == without, kind
            taken += 1
    assert taken >= 2


@needs_trl
@pytest.mark.parametrize("template", TEMPLATES or ["none"])
def test_template_renders_conversations_of_training(template: str) -> None:
    """With and without a system prompt of the run and of the row, also where the template has no system role, or one only."""
    chat, taken = TokenizerChat(TemplateTokenizer(template), template), 0
    late = [*TURNS[:2], {"role": "system", "content": "Be polite."}, *TURNS[2:3]]
    for messages in (TURNS[:1], TURNS, [SYSTEM, *TURNS], late):
        alone = render_text(template, [each for each in messages if each["role"] != "system"], None)
        if alone is None or ASKED[0] not in alone:
            continue
        for system in ("", "Answer in English."):
            prompt = chat.render_text(add_memories(add_system(messages, system, chat), [Shown("m1", 1.0, NOTE)]))
            for text in ("The port of the zebra service is 8080.", system, *(each["content"] for each in messages)):
                assert text in prompt
            taken += 1
    assert taken or template in ("idefics3", "llava_next", "smolvlm"), "these take parts alone"
