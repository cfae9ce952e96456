"""The chat model: text from a server, objects from text, errors that say what to do, and a key that stays secret."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.base.chat import ChatModel, json_object
from keepworth.base.model_errors import BadAnswer, ChatError, EngineDied, EngineRefused, EngineUnreachable, NoJsonObject
from keepworth.evaluation.judge import judge
from keepworth.methods.writers.facts import extractor
from tests.serving.scripted import scripted

HELLO = [{"role": "user", "content": "hello"}]


def says(text: str | None, reason: str = "stop") -> dict[str, object]:
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": reason}]}


def test_it_sends_the_conversation_and_returns_the_text() -> None:
    with scripted((200, says("hi"))) as server:
        chat = ChatModel(server.url + "/v1/", "m", api_key="k3y", temperature=0.5, max_tokens=7, seed=4)
        assert chat.complete(HELLO) == "hi"
        assert chat("hello") == "hi"
    first, second = server.asked
    settings = {"temperature": 0.5, "max_tokens": 7, "seed": 4}
    assert first == {"path": "/v1/chat/completions", "key": "Bearer k3y", "model": "m", "messages": HELLO, **settings}
    assert second["messages"] == HELLO


def test_models_that_think_first_are_asked_in_their_own_terms() -> None:
    with scripted((200, says("hi"))) as server:
        names = ["gpt-5-mini", "o3", "openai/o4-mini", "gpt-4o", "gpt-50", "olmo", "llama3.1:70b"]
        for name in names:
            assert ChatModel(server.url, name, max_tokens=9)("hello") == "hi"
        ChatModel(server.url, "mine", max_tokens=9, reasoning=True)("hello")
        ChatModel(server.url, "gpt-5-chat", max_tokens=9, reasoning=False)("hello")
    thinking = [each["model"] for each in server.asked if each.get("max_completion_tokens") == 9]
    assert thinking == [*names[:3], "mine"]
    for each in server.asked:
        assert ("temperature" in each) == ("max_tokens" in each) == (each["model"] not in thinking)


def test_instructions_reach_the_fact_extractor() -> None:
    with scripted((200, says('{"facts": []}'))) as server:
        extractor(ChatModel(server.url, "m"), "Leave out food.")(HELLO)
        extractor(ChatModel(server.url, "m"))(HELLO)
    told = [each["messages"][0]["content"] for each in server.asked]
    assert ["Leave out food." in each for each in told] == [True, False]


def test_passing_failures_are_repeated_and_others_are_not() -> None:
    busy = (429, {"error": {"message": "slow down"}}, {"Retry-After": "0"})
    with scripted(busy, (0, None), (200, says("hi"))) as server:
        assert ChatModel(server.url, "m")("hello") == "hi"
        assert len(server.asked) == 3
    with scripted((503, {"error": {"message": "loading"}})) as server:
        with pytest.raises(EngineRefused, match="loading"):
            ChatModel(server.url, "m")("hello")
        assert len(server.asked) == 3
    with scripted((400, {"error": {"message": "no such model"}})) as server:
        with pytest.raises(EngineRefused, match="no such model") as caught:
            ChatModel(server.url, "m")("hello")
        assert (len(server.asked), caught.value.status) == (1, 400)
    with scripted((0, None)) as server, pytest.raises(EngineDied, match="broke"):
        ChatModel(server.url, "m")("hello")


def test_the_server_may_ask_for_a_pause() -> None:
    with scripted((429, {}, {"Retry-After": "1"}), (200, says("hi"))) as server:
        begun = time.monotonic()
        assert ChatModel(server.url, "m")("hello") == "hi"
        assert time.monotonic() - begun >= 1


def test_the_key_is_in_no_message_log_or_repr(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.setenv("A_CHAT_KEY", "s3cret-key")
    caplog.set_level(logging.DEBUG)
    with scripted((401, {"error": {"message": "wrong key s3cret-key"}})) as server:
        chat = ChatModel(server.url, "m", key_variable="A_CHAT_KEY")
        with pytest.raises(EngineRefused, match=r"wrong key \*\*\*") as caught:
            chat("hello")
        assert server.asked[0]["key"] == "Bearer s3cret-key"
    for shown in (caplog.text, repr(chat), repr(chat._client), str(caught.value), repr(caught.value)):
        assert "s3cret" not in shown
    monkeypatch.delenv("A_CHAT_KEY")
    with pytest.raises(ChatError, match="A_CHAT_KEY is not set"):
        ChatModel("http://127.0.0.1:9", "m", key_variable="A_CHAT_KEY")


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (says("half an ans", "length"), ChatError, "Raise max_tokens"),
        (says(""), ChatError, "answered nothing"),
        (says(None, "content_filter"), ChatError, "content_filter"),
        ({"choices": []}, BadAnswer, "message.content"),
        ([1], BadAnswer, "message.content"),
        ("<html>", BadAnswer, "not JSON"),
    ],
)
def test_answers_without_text_are_errors(answer: object, error: type[Exception], message: str) -> None:
    with scripted((200, answer)) as server, pytest.raises(error, match=message):
        ChatModel(server.url, "m")("hello")


def test_no_server_and_no_url() -> None:
    with pytest.raises(EngineUnreachable, match=r"http://127\.0\.0\.1:9.*Start the server"):
        ChatModel("http://127.0.0.1:9", "m")("hello")
    with pytest.raises(ValueError, match="http://"):
        ChatModel("localhost:8000", "m")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure!\n```json\n{"a": {"b": "}"}}\n```\nDone {"c": 2}', {"a": {"b": "}"}}),
        ('{"quote": "she said \\"{\\" twice"} rest', {"quote": 'she said "{" twice'}),
        ('Replace {name} by ana: {"name": "ana"}', {"name": "ana"}),
        ('{"backslash": "\\\\"}', {"backslash": "\\"}),
    ],
)
def test_the_first_balanced_object_is_taken(text: str, found: dict[str, object]) -> None:
    assert json_object(text) == found


@pytest.mark.parametrize(
    "text",
    ["", "no braces", "[1, 2]", '{"facts": [{"a": 1}, {"b": 2', "{not json}", "{" * 50_000, '{"a": "never closed'],
)
def test_incomplete_json_object_is_refused(text: str) -> None:
    with pytest.raises(NoJsonObject):
        json_object(text)


LEAVES = st.none() | st.integers() | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@given(st.dictionaries(st.text(), VALUES), st.text(alphabet=st.characters(exclude_characters="{}")), st.text())
def test_any_object_is_found_in_any_prose(value: dict[str, object], before: str, after: str) -> None:
    assert json_object(before + json.dumps(value) + after) == value


def test_an_answer_without_an_object_is_asked_for_again() -> None:
    with scripted((200, says("I think {it} is yes")), (200, says('{"score": 1}'))) as server:
        assert judge(ChatModel(server.url, "m"))("Where?", "Oslo", "in Oslo") == 1.0
        assert [len(each["messages"]) for each in server.asked] == [1, 3]
    with scripted((200, says("no"))) as server, pytest.raises(NoJsonObject):
        ChatModel(server.url, "m").complete_json(HELLO)


@pytest.mark.parametrize("score", ["true", "2", '"good"', "null", "NaN"])
def test_a_judge_gives_a_number_from_0_to_1(score: str) -> None:
    with scripted((200, says(f'{{"score": {score}}}'))) as server, pytest.raises(ChatError):
        judge(ChatModel(server.url, "m"))("Where?", "Oslo", "in Oslo")


def test_an_extractor_gives_facts() -> None:
    messages = [{"role": "user", "content": "I moved to Oslo."}, {"role": "assistant", "content": "Nice!"}]
    with scripted((200, says('{"facts": [" Ana moved to Oslo. ", ""]}'))) as server:
        assert extractor(ChatModel(server.url, "m"))(messages) == ["Ana moved to Oslo."]
        assert server.asked[0]["messages"][1]["content"] == "user: I moved to Oslo.\nassistant: Nice!"
    with scripted((200, says('{"facts": "none"}'))) as server, pytest.raises(ChatError, match="list of facts"):
        extractor(ChatModel(server.url, "m"))(messages)
