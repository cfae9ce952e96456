from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.tasks.chat_logs import ChatLog, chat_log, logged, rewarded
from keepworth.tasks.data_files import WrongFormat

ASKED = {"role": "user", "content": "Where is Leeds?"}
ANSWERED = {"role": "assistant", "content": "In Yorkshire."}


def read(*rows: dict[str, Any]) -> ChatLog:
    return logged(((f"log, line {number}", row) for number, row in enumerate(rows, start=1)), "log")


def said(log: ChatLog) -> list[list[tuple[str, str]]]:
    return [[(message.role, message.text) for message in one.messages] for one in log.conversations]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [ASKED, ANSWERED]},
        {"conversations": [{"from": "human", "value": "Where is Leeds?"}, {"from": "gpt", "value": "In Yorkshire."}]},
        {"prompt": "Where is Leeds?", "completion": "In Yorkshire."},
        {"prompt": [ASKED], "response": "In Yorkshire."},
        {"question": "Where is Leeds?", "answer": "In Yorkshire.", "task": "t", "segments": []},
        {"request": {"messages": [ASKED], "model": "m"}, "response": {"choices": [{"message": ANSWERED}]}},
        {
            "turns": [
                {"author": {"role": "user"}, "text": "Where is Leeds?"},
                {"speaker": "bot", "text": "In Yorkshire."},
            ]
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Where is Leeds?"}, {"type": "image_url"}]},
                {"role": "assistant", "content": None, "tool_calls": []},
                ANSWERED,
            ]
        },
    ],
)
def test_every_form_is_read_alike(row: dict[str, Any]) -> None:
    assert said(read(row)) == [[("user", "Where is Leeds?"), ("assistant", "In Yorkshire.")]]


def test_a_file_of_lines_and_a_list_are_read_alike(tmp_path: Path) -> None:
    rows = [{"messages": [ASKED, ANSWERED], "id": n} for n in ("a", "b")]
    rows[1]["messages"] = [ASKED]
    lines, listed = tmp_path / "chats.jsonl", tmp_path / "chats.json"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    listed.write_text(json.dumps(rows))
    assert chat_log(lines) != chat_log(listed)  # the places differ
    assert said(chat_log(lines)) == said(chat_log(listed))
    assert chat_log(lines).name == "chats"
    assert [one.id for one in chat_log(lines).conversations] == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "reward"),
    [(1, 1.0), (0.25, 0.25), (True, 1.0), ("up", 1.0), ("👎", 0.0), ("3.5", 3.5), ({"score": -1}, -1.0)],
)
def test_rewards_are_found_on_an_answer_and_on_a_line(given: object, reward: float) -> None:
    own = read({"messages": [ASKED, {**ANSWERED, "rating": given}]})
    whole = read({"messages": [ASKED, ANSWERED, ASKED, {**ANSWERED, "content": "North."}, ASKED], "feedback": given})
    assert [(index, value) for _, index, value in rewarded(own)] == [(1, reward)]
    assert [(index, value) for _, index, value in rewarded(whole)] == [(3, reward)]  # of the last answer


CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [ASKED, ANSWERED, ASKED, CALLED], "reward": 0},
        {"messages": [ASKED, ANSWERED, ASKED, {**CALLED, "reward": 0}]},
        {"messages": [ASKED, {**CALLED, "reward": 0}, {"role": "tool", "content": "York"}, ANSWERED]},
        {"messages": [ASKED, ANSWERED, {"from": "function_call", "value": '{"place": "Leeds"}'}], "reward": 0},
        {
            "request": {"messages": [ASKED, ANSWERED, ASKED]},
            "response": {"choices": [{"message": CALLED}]},
            "reward": 0,
        },
    ],
)
def test_a_reward_of_an_answer_without_text_is_of_no_other(row: dict[str, Any]) -> None:
    log = read(row)
    assert not list(rewarded(log))
    assert log.left_out["rewards of answers without text"] == 1


def test_what_is_no_reward_is_counted_and_not_taken() -> None:
    log = read({"messages": [ASKED, ANSWERED], "feedback": "rather long", "latency": 3})
    assert not list(rewarded(log))
    assert log.left_out == {"`feedback` that is no number, and no word for good or bad": 1}
    assert log.unread == ("latency",)


def test_lines_of_one_session_are_one_conversation_and_a_repeated_history_is_taken_once() -> None:
    first = {"messages": [ASKED, {**ANSWERED, "reward": 1}], "session": "s"}
    longer = {"messages": [ASKED, ANSWERED, {**ASKED, "content": "Why?"}], "session": "s"}
    other = {"messages": [{**ASKED, "content": "And York?"}], "session": "s"}
    log = read(first, longer, other)
    (one,) = log.conversations
    assert [message.text for message in one.messages] == ["Where is Leeds?", "In Yorkshire.", "Why?", "And York?"]
    assert [message.reward for message in one.messages] == [None, 1.0, None, None]
    assert read(longer, first).conversations[0].messages[1].reward == 1.0


def exchanges(*names: str) -> list[dict[str, str]]:
    """What is asked and answered, for each name."""
    roles = ("user", "assistant")
    return [{"role": role, "content": f"{role} {name}"} for name in names for role in roles]


def texts(log: ChatLog) -> list[str]:
    """Of each conversation, the names in its messages."""
    return [" ".join(message.text.split()[-1] for message in one.messages[::2]) for one in log.conversations]


def test_a_history_behind_other_system_messages_is_taken_once() -> None:
    days = [{"role": "system", "content": f"It is day {n}."} for n in range(3)]
    log = read(*({"messages": [day, *exchanges(*"abc"[: n + 1])], "session": "s"} for n, day in enumerate(days)))
    assert texts(log) == ["a b c"]
    assert [message.system for message in log.conversations[0].messages[::2]] == [day["content"] for day in days]


def test_an_exchange_that_is_said_twice_is_no_history() -> None:
    lines = [exchanges(name) for name in "abcb"]
    assert texts(read(*({"messages": line, "session": "s"} for line in lines))) == ["a b c b"]


def test_an_answer_that_was_drawn_again_is_imitated_without_the_other() -> None:
    asked = exchanges("q")[:-1]
    tries = [[*asked, {"role": "assistant", "content": name}] for name in ("bad", "good")]
    lines = [{"messages": each, "session": "s", "rating": n} for n, each in enumerate(tries)]
    log = read(*lines, {"messages": [*tries[1], *exchanges("c")], "session": "s"})
    one, other = log.conversations
    assert [
        (each.messages[index - 1].text, each.messages[index].text, value) for each, index, value in rewarded(log)
    ] == [
        ("user q", "bad", 0.0),
        ("user q", "good", 1.0),
    ]
    assert (other.of, other.id) == ("s", "s//2")
    assert [turn.text for turn in other.session.turns] == [
        "good",
        "user c",
        "assistant c",
    ]  # and what is shared is there once
    assert len(one.messages) == len(asked) + 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=6))
def test_nothing_that_lines_of_a_session_say_is_lost(lines: list[list[str]]) -> None:
    """Answers differ by line, as if all were drawn again."""
    rows = []
    for n, names in enumerate(lines):
        messages = exchanges(*names)
        messages[-1]["content"] += f" {n}"
        rows.append({"messages": messages, "session": "s", "reward": n})
    log = read(*rows)
    turns = [turn.text for one in log.conversations for turn in one.session.turns]
    assert set(turns) == {message["content"] for row in rows for message in row["messages"]}
    found = {value: [message.text for message in one.messages[:index]] for one, index, value in rewarded(log)}
    assert len(found) == len(rows)
    for n, row in enumerate(rows):
        asked = [message["content"] for message in row["messages"][:-1]]
        assert found[n][-len(asked) :] == asked


def test_a_conversation_under_two_ids_is_taken_once() -> None:
    log = read({"messages": [ASKED], "id": 1}, {"messages": [ASKED], "id": 2})
    assert [one.id for one in log.conversations] == ["1"]
    assert log.left_out == {"conversations that repeat another, word for word": 1}


def test_an_id_follows_from_what_is_said() -> None:
    alone = read({"messages": [ASKED]}).conversations[0].id
    assert read({"messages": [ANSWERED]}, {"messages": [ASKED]}).conversations[1].id == alone


@pytest.mark.parametrize(
    ("given", "time"),
    [
        ("2026-01-03", "2026-01-03T00:00:00"),
        ("2026-01-03T10:00+02:00", "2026-01-03T08:00:00"),
        ("2026-01-03 10:00:01Z", "2026-01-03T10:00:01"),
        (1_767_434_400, "2026-01-03T10:00:00"),
        (1_767_434_400_000, "2026-01-03T10:00:00"),
    ],
)
def test_times(given: object, time: str) -> None:
    assert read({"messages": [ASKED], "created_at": given}).conversations[0].session.date == time


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "hello"}, r"line 1: there are no messages .* 'text'"),
        ({"messages": []}, r"line 1: messages is \[\]"),
        ({"messages": "hello"}, r"line 1: messages is 'hello'"),
        ({"messages": ["hello"]}, r"line 1: messages, message 1 is 'hello'"),
        ({"messages": [{"content": "hello"}]}, r"message 1 has no role"),
        ({"messages": [ASKED, {"role": "asistant", "content": "x"}]}, r"message 2: the role 'asistant'.*'assistant'"),
        ({"messages": [{"role": "user"}]}, r"message 1 has no text"),
        ({"messages": [{"role": "user", "content": 3}]}, r"message 1: content is 3"),
        ({"messages": [{"role": "user", "content": " "}]}, r"line 1: messages has no message with text"),
        ({"messages": [ASKED], "time": "yesterday"}, r"line 1: time is 'yesterday'"),
        ({"messages": [ASKED], "session": ["a"]}, r"line 1: session is \['a'\]"),
        ({"writes": [], "questions": []}, r"line 1: there are no messages .*--tasks"),
        ({"request": {}, "response": {}}, r"line 1: request has no messages"),
    ],
)
def test_what_cannot_be_read_is_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongFormat, match=message):
        read(row)


def test_sessions_of_two_people_with_one_name_are_two() -> None:
    log = read({"messages": [ASKED], "id": "s", "user": "a/b"}, {"messages": [ANSWERED], "id": "b/s", "user": "a"})
    assert len({one.id for one in log.conversations}) == 2


def test_lines_that_leave_the_person_out_are_of_the_one_that_the_session_has() -> None:
    why = {**ASKED, "content": "Why?"}
    log = read({"messages": [ASKED], "id": "s"}, {"messages": [ANSWERED], "id": "s", "user": "a"})
    assert [(one.id, one.person, len(one.messages)) for one in log.conversations] == [("a/s", "a", 2)]
    rows = [{"messages": [each], "id": "s", "user": user} for each, user in ((ASKED, "a"), (why, "b"), (ANSWERED, ""))]
    assert [one.id for one in read(*rows).conversations] == ["a/s", "b/s", "s"]


@pytest.mark.parametrize("text", ["", "\n", "[]"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(text)
    with pytest.raises(WrongFormat, match="chats"):
        chat_log(file)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps({"messages": [ASKED]}) + "\n{")
    with pytest.raises(WrongFormat, match=r"chats.jsonl, line 2: this is no JSON"):
        chat_log(file)
    with pytest.raises(WrongFormat, match="is no file"):
        chat_log(tmp_path / "none.jsonl")
