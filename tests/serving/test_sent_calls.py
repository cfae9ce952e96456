"""What a gateway keeps of a call, so that a model can be trained on it, and what it does not keep."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepworth.memory.scan import scan_of
from keepworth.memory.store import kept_calls, notes
from keepworth.serving.access import new_access
from keepworth.serving.sent_calls import sent_call
from keepworth.training.logs import tasks_of
from tests.serving.gate import EPISODE, Gate, SetClock, says, until, user

Gates = Callable[..., Gate]
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


def sent_of(gate: Gate, answer: Any) -> Any:
    return kept_calls.read_call(gate.store, answer.headers[EPISODE])


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


def test_erasing_deletes_calls_of_that_person_only(gate: Gate) -> None:
    gate.memory.add("I am allergic to peanuts.", user_id="ana")
    ana = gate.ask(user("What am I allergic to, peanuts?"), user="ana")
    bob = gate.ask(user("I live in Oslo."), user="bob")
    assert "peanuts" in json.dumps(waited_for(gate, ana))
    waited_for(gate, bob)
    gate.memory.erase(user_id="ana")
    assert sent_of(gate, ana) is None
    assert sent_of(gate, bob) is not None


@pytest.mark.parametrize("settings", [{"prompts": False}, {}])
def test_calls_are_not_kept_when_switched_off_or_read_only(gates: Gates, settings: dict[str, Any]) -> None:
    gate = gates(**settings)
    headers = {} if settings else {"memory": "read"}
    answer = gate.ask(user("I live in Oslo."), user="ana", **headers)
    gate.ask(user("And now?"), user="ana")  # which waits for the turn before
    assert sent_of(gate, answer) is None


def test_kept_calls_are_redacted_or_dropped_for_secrets(gates: Gates) -> None:
    secret = "AKIAIOSFODNN7EXAMPLE"
    gate = gates(scan=scan_of("redact", "allow"))
    text = json.dumps(waited_for(gate, gate.ask(user(f"My key is {secret}."), user="ana")))
    assert "My key is" in text
    assert secret not in text
    content = json.dumps({"messages": [user(secret)]}).encode()
    assert sent_call(content, b'{"choices": []}', "application/json", scan_of("refuse", "allow").storable) is None


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
    (  # two answers at once (n = 2), whose pieces come in turn
        events(*(
            {"choices": [{"index": at, "delta": {"content": word}, "finish_reason": end}]}
            for word, end in (("Press ", None), ("28.", "stop")) for at in (1, 0)
        )),
        {"choices": [{"message": {"role": "assistant", "content": "Press 28."}}]},
    ),
])  # fmt: skip
def test_streams_are_put_together(stream: bytes, reply: dict[str, Any] | None) -> None:
    call = sent_call(json.dumps({"messages": [user("a")]}).encode(), stream, "text/event-stream", None)
    assert (call and call["response"]) == reply


def test_kept_calls_omit_pictures_and_overlong_calls(gate: Gate) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "I live in Oslo."}, picture]
    answer = gate.ask({"role": "user", "content": parts}, user="ana")
    (message,) = waited_for(gate, answer)["request"]["messages"]
    assert message["content"][-1] == {"type": "image_url"}
    long = gate.ask(user("I live in Rome. " + "a" * kept_calls.LARGEST), user="bob")
    gate.ask(user("And now?"), user="bob")
    assert sent_of(gate, long) is None


def kept(gate: Gate, kind: str = kept_calls.MESSAGE) -> dict[str, str]:
    """What is on file of calls, by name."""
    with gate.store.database.reading() as connection:
        query = "SELECT name, value FROM facts_of_file WHERE name LIKE ?"
        return dict(connection.execute(query, (f"{kind}%",)).fetchall())


def conversation(turns: int, words: int = 300) -> list[dict[str, Any]]:
    said = [user(f"Question {n}? {' '.join(f'w{7 * n * k % 997}' for k in range(words))}") for n in range(turns)]
    return [message for one in said for message in (one, says("Noted."))]


def test_each_message_of_a_long_conversation_is_kept_once(gate: Gate) -> None:
    messages = conversation(20)
    answers = [
        gate.ask(*messages[: 2 * n + 1], user="ana", more={"tools": [TOOL], "temperature": 0}) for n in range(20)
    ]
    sizes = [len(json.dumps(waited_for(gate, answer))) for answer in answers]
    for n, answer in enumerate(answers):
        call = sent_of(gate, answer)
        assert call["request"] == {"messages": gate.script.sent[n].messages, "tools": [TOOL]}
        assert call["response"]["choices"][0]["message"]["content"] == "Noted."
    room = sum(
        len(name) + len(value)
        for kind in (kept_calls.MESSAGE, kept_calls.CALL)
        for name, value in kept(gate, kind).items()
    )
    assert room < 0.15 * sum(sizes), "before, 0.46 of it"
    assert len(kept(gate)) == 21, "the messages of the person, and the tool"


def test_a_message_goes_with_the_last_call_that_has_it(gate: Gate) -> None:
    both = {
        "role": "system",
        "content": "You help the customers of a shop, in any language that they speak." + " Be kind." * 9,
    }
    mine = user("My name is Ana Example and I was born on the first of May in a town by the sea." + " Yes." * 9)
    ana, bob = (gate.ask(both, said, user=name) for said, name in ((mine, "ana"), (user("I live in Oslo."), "bob")))
    waited_for(gate, ana)
    waited_for(gate, bob)
    until(lambda: len(gate.memory.get_all()) >= 2)
    before = kept(gate)
    gate.memory.erase(user_id="ana")
    assert sent_of(gate, ana) is None
    assert sent_of(gate, bob)["request"]["messages"][0] == both
    assert set(kept(gate)) < set(before)
    assert len(kept(gate)) == 1, "what both have"
    assert b"born on the first" not in Path(gate.store.database.path).read_bytes()
    gate.memory.erase(user_id="bob")
    assert kept(gate) == {}


def test_a_message_is_there_as_long_as_the_newest_call_that_has_it(gates: Gates) -> None:
    clock = SetClock()
    gate = gates(clock=clock)
    messages = conversation(8, words=30)
    for n in range(8):
        answer = gate.ask(*messages[: 2 * n + 1], user="ana")
        call = waited_for(gate, answer)
        assert call["request"]["messages"] == gate.script.sent[-1].messages
        end = json.loads(kept(gate, kept_calls.CALL)[kept_calls.CALL + answer.headers[EPISODE]])["until"]
        texts = [json.loads(value)["until"] for value in kept(gate).values()]
        assert len(texts) == n + 1
        assert min(texts) >= end
        clock.wait(20 * 24 * 3600.0)


def test_a_call_that_was_kept_whole_is_read_as_before(gate: Gate) -> None:
    """As files of earlier versions have it."""
    answer = gate.ask(user("I live in Oslo."), user="ana")
    waited_for(gate, answer)
    call = {"request": {"messages": [user("I live in Oslo.")]}, "response": {"choices": []}}
    packed = base64.b64encode(zlib.compress(json.dumps(call).encode())).decode()
    noted = {"until": "2999-01-01T00:00:00", "scope": ["", "ana", "", ""], "items": [], "call": packed}
    name = kept_calls.CALL + answer.headers[EPISODE]
    gate.store.database.write(lambda connection: notes.keep(connection, name, json.dumps(noted)))
    assert sent_of(gate, answer) == call
    gate.memory.erase(user_id="ana")
    assert sent_of(gate, answer) is None
