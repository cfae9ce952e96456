"""Every writer: whatever people and models say is a legal input, and what it wrote can be taken back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth import Facts, Memory, policy
from keepworth.base.errors import KeepworthError
from keepworth.encoders.local import HashingEncoder
from keepworth.memory.choose.case_writers import parsed
from keepworth.memory.choose.slots import Writer
from keepworth.methods.recipes._memory_r1.memory_manager import Manager
from keepworth.methods.writers.statements import Statements
from keepworth.registry import method, methods


def of_choices(name: str, ask: Callable[[str], str] | None = None) -> Memory:
    """A memory whose policy keeps what this writer makes of episodes."""
    made = replace(policy("exprag"), writer=method("writer", name).make(ask=ask))
    return Memory(policy=made, encoder=HashingEncoder(64), seed=1)


def played(memory: Memory, text: str, action: str, reward: float) -> None:
    """An episode in which `action` was done at `text`."""
    with memory.episode(text) as episode:
        episode.search(actions=(action, "wait"))
        episode.act(action)
        episode.reward(reward)


def of_messages(reply: str) -> dict[str, Writer]:
    """Writers that read messages, with a model that says `reply`; those of other packages as they are by name."""
    ours = ("rules", "statements", "model", "trained", "notes", "distilled", "keeper")
    return {
        **{name: declared.make() for name, declared in methods("writer").items() if name not in ours},
        "rules": method("writer", "rules").make(),
        "statements": Statements(assistant=True, facts=Facts(lambda messages: [reply])),
        "model": Facts(lambda messages: [reply], lambda facts, known: [[0] * 3 for _ in facts]),
        "trained": Manager(lambda states: [reply for _ in states], Facts(updates=False)),
    }


def test_every_writer_is_tried_here() -> None:
    assert set(methods("writer")) == {*of_messages(""), "notes", "distilled", "keeper"}


@settings(max_examples=20)
@given(st.text(min_size=1, max_size=200), st.text(max_size=200))
def test_writers_accept_any_model_reply_and_roll_back(said: str, reply: str) -> None:
    for name in ("notes", "distilled"):
        for ask in (None, lambda prompt: reply):
            with of_choices(name, ask) as memory:
                text, before = f"it rains {said}".replace("\x00", ""), memory.snapshot()
                played(memory, text.encode("utf-8", "replace").decode(), "umbrella", 1.0)
                memory.rollback(since=before)
                assert len(memory.bank()) == 0


@settings(max_examples=20)
@given(st.text(max_size=300), st.text(max_size=100))
def test_writers_accept_any_message_and_roll_back(said: str, reply: str) -> None:
    text = f"I live in Oslo. {said}".replace("\x00", "").encode("utf-8", "replace").decode()
    for writer in of_messages(reply).values():
        with Memory(encoder=HashingEncoder(64), writer=writer) as memory:
            memory.add("My name is Ana.")
            before = memory.snapshot()
            memory.add([{"role": "user", "content": text}], infer=True)
            memory.add([{"role": "user", "content": "I moved to Bergen."}], infer=True)
            memory.rollback(since=before)
            assert [item.text for item in memory.bank().items()] == ["My name is Ana."]


def test_a_reply_with_talk_and_fences_around_it_is_read() -> None:
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        if "actionable" in prompt:
            return '{"accept": true}'
        advice = {"when": "rain outside", "advice": "Take the umbrella.", "action": "umbrella", "confidence": 3}
        return f"Sure!\n```json\n{json.dumps([advice])}\n```\nDone."

    with of_choices("distilled", ask) as memory:
        played(memory, "it rains", "umbrella", 1.0)
        (item,) = memory.bank().items()
        assert (item.key, item.text, item.metadata["confidence"]) == ("rain outside", "Take the umbrella.", 1.0)
    assert len(asked) == 2
    assert "did: umbrella" in asked[0]


@pytest.mark.parametrize("reply", ["", "no idea", "[1, 2]", '{"when": "x"}'])
def test_garbage_reply_distils_no_item_and_keeps_the_note(reply: str) -> None:
    for name, keys in (("distilled", []), ("notes", ["it rains"])):
        with of_choices(name, lambda prompt: reply) as memory:
            played(memory, "it rains", "umbrella", 1.0)
            assert [item.key for item in memory.bank().items()] == keys


def test_a_reply_that_nests_without_end_has_no_value() -> None:
    assert parsed("[" * 3_000 + "]") is None
    assert parsed("[" * 200_000 + "]" * 200_000) is None
    assert parsed('Well: {"a": [1, 2]} and so on ]}') == {"a": [1, 2]}


@pytest.mark.parametrize(("name", "said"), [("rulse", "rules"), ("keeper", "needs facts, most")])
def test_unknown_writer_name_is_refused_with_a_fix(name: str, said: str) -> None:
    with pytest.raises(KeepworthError, match=said):
        Memory(encoder=None, writer=name)
