"""What a gateway keeps of a call, so that a model can be trained on it, and what it does not keep."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from keepworth.memory.scan import scan_of
from keepworth.memory.store import notes
from keepworth.serving.access import new_access
from keepworth.serving.sent_calls import sent_call
from keepworth.training.logs import tasks_of
from tests.serving.gate import EPISODE, Gate, until, user

Gates = Callable[..., Gate]
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


def sent_of(gate: Gate, answer: Any) -> Any:
    return notes.read_sent(gate.store, answer.headers[EPISODE])


def waited_for(gate: Gate, answer: Any) -> Any:
    until(lambda: sent_of(gate, answer) is not None)
    return sent_of(gate, answer)


def test_a_training_reads_the_prompt_as_it_was_sent_with_tools_and_their_calls(gate: Gate) -> None:
    for n in range(6):
        gate.memory.add(f"To reset router {n} press button {7 * n}.", user_id="ana")
    asked = user("How do I reset router 4?")
    call = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": '{"n": 4}'}}
    result = {"role": "tool", "tool_call_id": "1", "content": "28"}
    called = [{"role": "assistant", "content": None, "tool_calls": [call]}, result]
    first = gate.ask(asked, user="ana", more={"tools": [TOOL]})
    last = gate.ask(asked, *called, user="ana", more={"tools": [TOOL]})
    assert last.headers[EPISODE] == first.headers[EPISODE]
    until(lambda: len((sent_of(gate, last) or {"request": {"messages": []}})["request"]["messages"]) == 3)
    gate.memory.reward(last.headers[EPISODE], 1.0)
    for n in range(3):
        gate.memory.reward(gate.ask(user(f"What of router {n}?"), user=f"u{n}").headers[EPISODE], 0.0)
    tasks = tasks_of(gate.server.memories.of(new_access()).memory)
    rows = {task.answers[0]: task.row for task in tasks.all}
    assert {row["source"] for row in rows.values()} == {"sent"}
    (imitated,) = [answer for answer in rows if answer.startswith("<tool_call>")]
    assert imitated == '<tool_call>\n{"name": "look_up", "arguments": {"n": 4}}\n</tool_call>'
    assert rows[imitated]["prompt"] == [gate.script.sent[0].messages[0]]
    assert "press button 28" in rows[imitated]["prompt"][0]["content"]
    (answered,) = [row for answer, row in rows.items() if answer != imitated]
    assert [message["role"] for message in answered["prompt"]] == ["user", "assistant", "tool"]
    assert answered["tools"][0]["function"]["name"] == "look_up"
    assert f"Prompts: {len(rows)} as they were sent" in tasks.remark


def test_calls_go_with_what_is_erased_and_those_of_others_stay(gate: Gate) -> None:
    gate.memory.add("I am allergic to peanuts.", user_id="ana")
    ana = gate.ask(user("What am I allergic to, peanuts?"), user="ana")
    bob = gate.ask(user("I live in Oslo."), user="bob")
    assert "peanuts" in json.dumps(waited_for(gate, ana))
    waited_for(gate, bob)
    gate.memory.erase(user_id="ana")
    assert sent_of(gate, ana) is None
    assert sent_of(gate, bob) is not None


@pytest.mark.parametrize("settings", [{"prompts": False}, {}])
def test_what_is_not_to_be_kept_is_not(gates: Gates, settings: dict[str, Any]) -> None:
    gate = gates(**settings)
    headers = {} if settings else {"memory": "read"}
    answer = gate.ask(user("I live in Oslo."), user="ana", **headers)
    gate.ask(user("And now?"), user="ana")  # which waits for the turn before
    assert sent_of(gate, answer) is None


def test_a_secret_is_redacted_in_what_is_kept_and_a_refused_one_keeps_nothing(gates: Gates) -> None:
    secret = "AKIAIOSFODNN7EXAMPLE"
    gate = gates(scan=scan_of("redact", "allow"))
    text = json.dumps(waited_for(gate, gate.ask(user(f"My key is {secret}."), user="ana")))
    assert "My key is" in text
    assert secret not in text
    content = json.dumps({"messages": [user(secret)]}).encode()
    assert sent_call(content, b'{"choices": []}', "application/json", scan_of("refuse", "allow").storable) == ""


def events(*listed: dict[str, Any]) -> bytes:
    return "".join(f"data: {json.dumps(each)}\n\n" for each in listed).encode()


USED = {"type": "tool_use", "id": "1", "name": "look_up"}
CALLED = {"name": "look_up", "arguments": '{"n": 4}'}


@pytest.mark.parametrize(("stream", "reply"), [
    (
        events(
            {"choices": [{"delta": {"content": "Let me "}}]},
            {"choices": [{"delta": {"content": "see."}}]},
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "look_up", "arguments": ""}}]}}]},
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"n": 4}'}}]}}]},
            {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        ),
        {"choices": [{"message": {
            "role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "1", "type": "function", "function": CALLED}],
        }}]},
    ),
    (
        events(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me see."}},
            {"type": "content_block_start", "index": 1, "content_block": {**USED, "input": {}}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"n"'}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ": 4}"}},
            {"type": "message_stop"},
        ),
        {"content": [
            {"type": "text", "text": "Let me see."}, {**USED, "input": {"n": 4}},
        ]},
    ),
    (
        events({"type": "response.completed", "response": {"id": "r", "output": [{"type": "function_call", **CALLED}]}}),
        {"output": [{"type": "function_call", **CALLED}]},
    ),
    (events({"choices": [{"delta": {"content": "Let me "}}]}), None),  # it broke off
])  # fmt: skip
def test_streams_are_put_together(stream: bytes, reply: dict[str, Any] | None) -> None:
    text = sent_call(json.dumps({"messages": [user("a")]}).encode(), stream, "text/event-stream", None)
    assert (json.loads(text)["response"] if text else None) == reply


def test_pictures_are_left_out_and_what_is_too_long_is_not_kept(gate: Gate) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "I live in Oslo."}, picture]
    answer = gate.ask({"role": "user", "content": parts}, user="ana")
    (message,) = waited_for(gate, answer)["request"]["messages"]
    assert message["content"][-1] == {"type": "image_url"}
    long = gate.ask(user("I live in Rome. " + "a" * notes.LARGEST_SENT), user="bob")
    gate.ask(user("And now?"), user="bob")
    assert sent_of(gate, long) is None
