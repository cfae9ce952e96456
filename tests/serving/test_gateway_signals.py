"""The gateway takes what the user says next, how tools end, and answers that are made again for outcomes of what it showed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from keepworth.base.chat import ChatModel
from keepworth.memory.model_signals import ModelSignals
from tests.serving.gate import EPISODE, Gate, SetClock, finished, says, until, user
from tests.serving.scripted import scripted

RULE = "Build the documentation with: mkdocs build --strict"
QUESTION = user("How do I build the documentation?")


def rewards(gate: Gate, episode: str) -> list[tuple[str, float]]:
    """The rewards of an episode, once the gateway has written everything."""
    until(lambda: finished(gate.server))
    return [(term.name, term.value) for term in gate.memory.episode_record(episode).rewards]


def ran(command: str, result: str) -> list[dict[str, Any]]:
    """A command that the model runs, and what its tool answers."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "shell", "arguments": json.dumps({"command": command})},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


@pytest.mark.parametrize(
    ("reply", "signals"),
    [
        ("No, that builds the wrong folder.", [("signal:correction:ana", 0.0)]),
        ("Perfect, thank you!", [("signal:thanks:ana", 1.0)]),
        ("How do I build the documentation?", [("signal:repetition:ana", 0.0)]),
        ("And how long does the documentation take to build?", []),
    ],
)
def test_the_next_message_of_a_user_is_the_outcome_of_the_turn_before(
    gate: Gate, reply: str, signals: list[tuple[str, float]]
) -> None:
    gate.memory.add(RULE, user_id="ana")
    first = gate.ask(QUESTION, user="ana")
    answer = says(first.json()["choices"][0]["message"]["content"])
    gate.ask(QUESTION, answer, user(reply), user="ana")
    assert rewards(gate, first.headers[EPISODE]) == signals


@pytest.mark.parametrize("writer", ["default", None])
@pytest.mark.parametrize(
    ("reply", "signal", "notes"),
    [
        ("Spot on!", "thanks", []),
        ("das war's, vielen lieben Dank!", "thanks", []),
        ("Perfect, thanks a lot, that fixed it", "thanks", []),
        ("nope, still wrong", "correction", []),
        ("Non, ce n'est toujours pas ça", "correction", []),
        ("no, the port is 9090", "correction", ["no, the port is 9090"]),
    ],
)
def test_reaction_is_a_signal_and_no_note(
    gates: Callable[..., Gate], writer: str | None, reply: str, signal: str, notes: list[str]
) -> None:
    gate = gates(writer=writer)
    rule = gate.memory.add(RULE, user_id="ana")
    first = gate.ask(QUESTION, user="ana")
    answer = says(first.json()["choices"][0]["message"]["content"])
    gate.ask(QUESTION, answer, user(reply), user="ana")
    assert [name for name, _ in rewards(gate, first.headers[EPISODE])] == [f"signal:{signal}:ana"]
    others = [item.text.rstrip(".") for item in gate.memory.get_all() if item.id != rule.id]
    assert others == notes


def test_model_reads_the_next_message_where_the_rules_do_not_tell(gates: Callable[..., Gate]) -> None:
    said = {"choices": [{"message": {"role": "assistant", "content": "correction"}, "finish_reason": "stop"}]}
    with scripted((200, said)) as model:
        asks = ModelSignals(ChatModel(model.url, "judge"))
        gate = gates(model_signals=asks)
        gate.memory.add(RULE, user_id="ana")
        first = gate.ask(QUESTION, user="ana")
        answer = says(first.json()["choices"][0]["message"]["content"])
        gate.ask(QUESTION, answer, user("two pages"), user="ana")
        until(lambda: finished(gate.server))
        assert asks.wait()
        assert rewards(gate, first.headers[EPISODE]) == [("signal:model-correction:ana", 0.0)]
        assert len(model.asked) == 1
        assert model.asked[0]["messages"][-1]["content"].splitlines()[1:] == [
            "Answer: Noted.",
            "New message: two pages",
            "Label:",
        ]


def test_read_only_call_sends_no_signal(gate: Gate) -> None:
    gate.memory.add(RULE, user_id="ana")
    first = gate.ask(QUESTION, user="ana")
    answer = says(first.json()["choices"][0]["message"]["content"])
    gate.ask(QUESTION, answer, user("No, that is wrong."), user="ana", memory="read")
    assert rewards(gate, first.headers[EPISODE]) == []


@pytest.mark.parametrize(
    ("result", "signal"),
    [
        ("Exit code: 0\nbuilt", ("signal:check-passed:ana", 1.0)),
        ("Exit code: 1\nno such folder", ("signal:check-failed:ana", 0.0)),
        (json.dumps({"output": "no such folder", "metadata": {"exit_code": 2}}), ("signal:check-failed:ana", 0.0)),
        ("Build failed: no such folder", ("signal:check-failed:ana", 0.0)),
    ],
)
def test_tool_result_rewards_the_items_shown_before(gate: Gate, result: str, signal: tuple[str, float]) -> None:
    gate.memory.add(RULE, user_id="ana")
    first = gate.ask(QUESTION, user="ana")
    until(lambda: finished(gate.server))
    tools = ran("mkdocs build --strict", result)
    second = gate.ask(QUESTION, *tools, user="ana")
    assert second.headers[EPISODE] == first.headers[EPISODE]
    assert rewards(gate, first.headers[EPISODE]) == [signal]
    gate.ask(QUESTION, *tools, says("Done."), *ran("ls", "index.html"), user="ana")
    assert rewards(gate, first.headers[EPISODE]) == [signal]  # what was sent before is no news


def test_anthropic_tool_error_flag_is_a_failure_signal(gate: Gate) -> None:
    gate.memory.add(RULE, user_id="ana")

    def ask(*messages: dict[str, Any]) -> str:
        body = {"model": "scripted", "max_tokens": 100, "messages": list(messages)}
        return gate.http.post("/v1/messages", json=body, headers={"X-Keepworth-User": "ana"}).headers[EPISODE]

    episode = ask(QUESTION)
    until(lambda: finished(gate.server))
    call = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "python deploy.py"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no such host"}
    assert ask(QUESTION, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}) == episode
    assert rewards(gate, episode) == [("signal:tool-failed:ana", 0.0)]


def test_regenerated_answer_is_a_negative_signal(gates: Callable[..., Gate]) -> None:
    clock = SetClock()
    timed = gates(clock=clock)
    timed.memory.add(RULE, user_id="ana")
    first = timed.ask(user("Hello, I write documentation."), user="ana")
    begun = [user("Hello, I write documentation."), says(first.json()["choices"][0]["message"]["content"])]
    answered = timed.ask(*begun, QUESTION, user="ana").headers[EPISODE]
    until(lambda: finished(timed.server))
    timed.ask(*begun, QUESTION, user="ana")  # at once: a retry
    assert rewards(timed, answered) == []
    clock.wait(60)
    again = timed.ask(*begun, QUESTION, user="ana").headers[EPISODE]
    assert again != answered
    assert rewards(timed, answered) == [("signal:regenerated:ana", 0.0)]
