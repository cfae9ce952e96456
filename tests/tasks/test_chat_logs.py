from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepworth.training.logs import tasks_of
from keepworth.worlds.chat_logs import make_rewarded_tasks
from keepworth.worlds.data_files import WrongFormat, rows_of
from keepworth.worlds.own import OwnTasks
from keepworth.worlds.splits import SPLITS

ASKED = {"role": "user", "content": "Where is Leeds?"}
ANSWERED = {"role": "assistant", "content": "In Yorkshire."}


def talk(number: int, reward: float, **more: Any) -> dict[str, Any]:
    asked = {"role": "user", "content": f"Where is place {number}?"}
    return {"messages": [asked, {"role": "assistant", "content": f"There, {number}.", "reward": reward}], **more}


OTHERS = [talk(number, number % 2) for number in range(8)]


def read(*rows: dict[str, Any]) -> OwnTasks:
    return make_rewarded_tasks(((f"log, line {number}", row) for number, row in enumerate(rows, start=1)), "log")


def pairs(tasks: OwnTasks) -> list[tuple[list[str], str]]:
    return [([message["content"] for message in task.row["prompt"]], task.answers[0]) for task in tasks.all]


@pytest.mark.parametrize("row", [
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
])  # fmt: skip
def test_every_form_is_read_alike(row: dict[str, Any]) -> None:
    assert (["Where is Leeds?"], "In Yorkshire.") in pairs(read({**row, "reward": 2}, *OTHERS))


@pytest.mark.parametrize(
    ("given", "better"),
    [(1, True), (0.25, False), (True, True), ("up", True), ("👎", False), ("3.5", True), ({"score": -1}, False)],
)
def test_rewards_are_of_an_answer_or_of_the_last_one_of_a_line(given: object, better: bool) -> None:
    own = read({"messages": [ASKED, {**ANSWERED, "rating": given}]}, *OTHERS)
    whole = read({"messages": [ASKED, {**ANSWERED, "content": "North."}, ASKED, ANSWERED], "feedback": given}, *OTHERS)
    assert ((["Where is Leeds?"], "In Yorkshire.") in pairs(own)) == better
    assert ((["Where is Leeds?", "North.", "Where is Leeds?"], "In Yorkshire.") in pairs(whole)) == better
    assert not any(answer == "North." for _, answer in pairs(whole))


CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}


@pytest.mark.parametrize("row", [
    {"messages": [ASKED, ANSWERED, ASKED, CALLED], "reward": 5},
    {"messages": [ASKED, ANSWERED, ASKED, {**CALLED, "reward": 5}]},
    {"messages": [ASKED, {**CALLED, "reward": 5}, {"role": "tool", "content": "York"}, ANSWERED]},
    {"messages": [ASKED, ANSWERED, {"from": "function_call", "value": '{"place": "Leeds"}'}], "reward": 5},
])  # fmt: skip
def test_a_reward_of_a_call_without_text_is_of_no_other_answer(row: dict[str, Any]) -> None:
    assert not any(answer == "In Yorkshire." for _, answer in pairs(read(row, *OTHERS)))


CALL = {"name": "look_up", "arguments": {"place": "Leeds"}}
WRITTEN = '<tool_call>\n{"name": "look_up", "arguments": {"place": "Leeds"}}\n</tool_call>'
PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}}}
RESPONSES = {
    "request": {
        "input": [
            ASKED,
            {"type": "reasoning", "id": "r", "summary": []},
            {"type": "function_call", "call_id": "1", "name": "look_up", "arguments": '{"place": "Leeds"}'},
            {"type": "function_call_output", "call_id": "1", "output": "York"},
        ],
        "tools": [{"type": "function", "name": "look_up", "parameters": PARAMETERS}],
    },
    "response": {"output": [{"type": "message", "role": "assistant", "content": [{"text": "In Yorkshire."}]}]},
}
ANTHROPIC = {
    "request": {
        "messages": [
            ASKED,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "1", "name": "look_up", "input": {"place": "Leeds"}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"text": "York"}]}]},
        ],
        "tools": [{"name": "look_up", "input_schema": PARAMETERS}, {"type": "web_search"}],
    },
    "response": {"role": "assistant", "content": [{"type": "text", "text": "In Yorkshire."}]},
}
CHAT = {
    "request": {
        "messages": [
            ASKED,
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {**CALL, "arguments": '{"place": "Leeds"}'}}]},
            {"role": "tool", "tool_call_id": "1", "content": "York"},
        ],
        "tools": [{"type": "function", "function": {"name": "look_up", "parameters": PARAMETERS}}],
    },
    "response": {"choices": [{"message": ANSWERED}]},
}
LANGCHAIN = {
    "tools": CHAT["request"]["tools"],
    "messages": [
        {"type": "human", "content": "Where is Leeds?"},
        {"type": "ai", "content": "", "tool_calls": [{"name": "look_up", "args": {"place": "Leeds"}, "id": "1"}]},
        {"type": "tool", "data": {"content": "York", "tool_call_id": "1"}},
        {"type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": {"content": "In Yorkshire."}},
    ],
}
SHAREGPT = {
    "tools": CHAT["request"]["tools"],
    "conversations": [
        {"from": "human", "value": "Where is Leeds?"},
        {"from": "function_call", "value": json.dumps(CALL)},
        {"from": "observation", "value": "York"},
        {"from": "gpt", "value": "In Yorkshire."},
    ],
}


@pytest.mark.parametrize("row", [CHAT, ANTHROPIC, RESPONSES, LANGCHAIN, SHAREGPT], ids=str)
def test_calls_of_tools_are_imitated_with_the_reward_of_the_answer_that_they_led_to(row: dict[str, Any]) -> None:
    rows = {task.answers[0]: task.row for task in read({**row, "reward": 2}, *OTHERS).all}
    assert rows[WRITTEN]["prompt"] == [ASKED]
    assert rows[WRITTEN]["calls"] == [{"type": "function", "function": CALL}]
    asked, called, told = rows["In Yorkshire."]["prompt"]
    assert (asked, called) == (ASKED, {"role": "assistant", "content": "", "tool_calls": rows[WRITTEN]["calls"]})
    assert (told["role"], told["content"]) == ("tool", "York")
    tool = {"name": "look_up", "description": "", "parameters": PARAMETERS}
    assert rows[WRITTEN]["tools"] == rows["In Yorkshire."]["tools"] == [{"type": "function", "function": tool}]
    worse = read({**row, "reward": 0}, *OTHERS)
    assert not {WRITTEN, "In Yorkshire."} & {task.answers[0] for task in worse.all}


def test_art_trajectory_is_read() -> None:
    row = {"messages_and_choices": [ASKED, {"finish_reason": "stop", "index": 0, "message": ANSWERED}], "reward": 2.0}
    assert (["Where is Leeds?"], "In Yorkshire.") in pairs(read(row, *OTHERS))


def test_a_history_that_lines_repeat_is_imitated_once_and_with_its_latest_reward() -> None:
    first = {"messages": [ASKED, {**ANSWERED, "reward": 0}], "session": "s"}
    later = {"messages": [ASKED, {**ANSWERED, "reward": 1}, {**ASKED, "content": "Why?"}], "session": "s"}
    assert [answer for _, answer in pairs(read(first, later, later, *OTHERS))].count("In Yorkshire.") == 1


def test_sessions_persons_and_questions_stay_in_one_split() -> None:
    rows = [talk(number // 2, number % 3, session=f"s{number % 20}", user=f"u{number % 10}") for number in range(60)]
    tasks = read(*rows)
    for mark in ("user", "session", "prompt"):
        sides = [{json.dumps(task.row[mark]) for task in tasks.by_split[split]} for split in SPLITS]
        assert all(sides)
        assert sum(map(len, sides)) == len(set().union(*sides))


def test_lines_without_a_session_that_begin_alike_are_one() -> None:
    rows = [{"messages": [ASKED, *talk(number, 1)["messages"]]} for number in range(4)]
    tasks = read(*rows, *OTHERS)
    assert len({task.row["group"] for task in tasks.all if len(task.row["prompt"]) > 1}) == 1


def test_common_greetings_do_not_tie_sessions() -> None:
    rows = []
    for number in range(12):
        greeting = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": f"Hello {number}", "reward": 1}]
        rows.append({"messages": [*greeting, *talk(number, 1)["messages"]], "session": f"s{number}"})
    tasks = read(*rows, *OTHERS)
    assert all(tasks.by_split.values())
    assert not any(answer.startswith("Hello") for _, answer in pairs(tasks))


@pytest.mark.parametrize(("row", "message"), [
    ({"text": "hello"}, r"line 1: there are no messages .* 'text'"),
    ({"messages": []}, r"line 1: messages is \[\]"),
    ({"messages": "hello"}, r"line 1: messages is 'hello'"),
    ({"messages": ["hello"]}, r"line 1, message 1 is 'hello'"),
    ({"messages": [{"content": "hello"}]}, r"message 1: the role None"),
    ({"messages": [ASKED, {"role": "asistant", "content": "x"}]}, r"message 2: the role 'asistant'.*'assistant'"),
    ({"messages": [{"role": "user"}]}, r"message 1 has no text"),
    ({"messages": [{"role": "user", "content": 3}]}, r"message 1: the text is 3"),
    ({"messages": [{"role": "user", "content": " "}]}, r"line 1 has no message with text"),
    ({"messages": [ASKED, ANSWERED], "session": ["a"]}, r"line 1: session is \['a'\]"),
    ({"messages": [ASKED, ANSWERED], "feedback": "rather long"}, r"line 1: feedback is 'rather long'"),
    ({"writes": [], "questions": []}, r"line 1: there are no messages .*--tasks"),
    ({"request": {}, "response": {}}, r"line 1: request has no messages"),
    (talk(1, 1), r"All 1 rewards in log are 1"),
    ({"messages": [ASKED, ANSWERED]}, r"log has no rewarded answer"),
])  # fmt: skip
def test_unusable_chat_logs_are_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongFormat, match=message):
        read(row)


def test_a_file_of_lines_and_a_list_are_read_alike(tmp_path: Path) -> None:
    lines, listed = tmp_path / "chats.jsonl", tmp_path / "chats.json"
    lines.write_text("".join(json.dumps(row) + "\n" for row in OTHERS))
    listed.write_text(json.dumps(OTHERS))
    assert [row for _, row in rows_of(lines)] == [row for _, row in rows_of(listed)] == OTHERS


def otlp_span(n: int) -> dict[str, Any]:
    """A request of OTLP: a call of a model that answers after a tool, and its evaluation."""
    place = {"traceId": f"{n:032x}", "spanId": f"{n:016x}"}
    sent = [
        {"role": "user", "parts": [{"type": "text", "content": f"Weather in city {n}?"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "look", "arguments": {"city": n}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": f"{n} degrees"}]},
    ]
    answers = [{"role": "assistant", "parts": [{"type": "text", "content": f"It is {n} degrees."}]}]
    texts = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": f"s{n}"}
    texts |= {"gen_ai.input.messages": json.dumps(sent), "gen_ai.output.messages": json.dumps(answers)}
    texts["gen_ai.system_instructions"] = json.dumps([{"type": "text", "content": "Be brief."}])
    attributes = [{"key": name, "value": {"stringValue": text}} for name, text in texts.items()]
    score = [
        {"key": "gen_ai.evaluation.name", "value": {"stringValue": "quality"}},
        {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": float(n % 2)}},
    ]
    event = {"name": "gen_ai.evaluation.result", "timeUnixNano": "5", "attributes": score}
    span = {**place, "name": "chat", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    span |= {"attributes": attributes, "events": [event]}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def langsmith_run(n: int) -> dict[str, Any]:
    """A run of LangSmith, with LangChain's messages as its tracer writes them."""
    question = {"lc": 1, "id": ["langchain", "HumanMessage"], "kwargs": {"content": f"Weather in city {n}?"}}
    calls = [{"id": "c1", "name": "look", "args": {"city": n}}]
    called = {"lc": 1, "id": ["langchain", "AIMessage"], "kwargs": {"content": "", "tool_calls": calls}}
    output = {"content": f"{n} degrees", "tool_call_id": "c1"}
    result = {"lc": 1, "id": ["langchain", "ToolMessage"], "kwargs": output}
    orders = {"lc": 1, "id": ["langchain", "SystemMessage"], "kwargs": {"content": "Be brief."}}
    message = {"lc": 1, "id": ["langchain", "AIMessage"], "kwargs": {"content": f"It is {n} degrees."}}
    row = {"id": f"r{n}", "trace_id": f"r{n}", "run_type": "llm", "dotted_order": f"20260101Zr{n}", "name": "chat"}
    row |= {"inputs": {"messages": [[orders, question, called, result]]}, "start_time": "2026-01-01T00:00:00"}
    row |= {"outputs": {"generations": [[{"text": f"It is {n} degrees.", "message": message}]]}}
    return {**row, "feedback_stats": {"thumb": {"n": 1, "avg": n % 2}}}


def langfuse_rows(n: int) -> list[dict[str, Any]]:
    """A generation of an exported table, and its score."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": json.dumps({"city": n})}}
    sent = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"Weather in city {n}?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": f"{n} degrees"},
    ]
    about = {"project_id": "p", "trace_id": f"t{n}"}
    answer = {"role": "assistant", "content": f"It is {n} degrees."}
    row = {**about, "type": "GENERATION", "input": json.dumps(sent), "output": json.dumps(answer)}
    return [
        {**row, "start_time": "2026-01-01T00:00:00", "name": "chat"},
        {**about, "name": "thumb", "data_type": "NUMERIC", "value": n % 2},
    ]


TRACES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "otlp": lambda n: [otlp_span(n)],
    "langsmith": lambda n: [langsmith_run(n)],
    "langfuse": langfuse_rows,
}


@pytest.mark.parametrize("form", TRACES)
def test_calls_of_a_model_in_traces_are_imitated_with_the_scores_of_their_traces(form: str, tmp_path: Path) -> None:
    lines = tmp_path / "traces.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for n in range(40) for row in TRACES[form](n)))
    tasks = tasks_of(lines).all
    answers = {answer for task in tasks for answer in task.answers}
    assert {f"It is {n} degrees." for n in range(1, 40, 2)} <= answers, "those that were scored above the mean"
    assert not {f"It is {n} degrees." for n in range(0, 40, 2)} & answers
    task = next(task for task in tasks if "It is 7 degrees." in task.answers)
    prompt = json.dumps(task.row["prompt"])
    assert [message["role"] for message in task.row["prompt"]] == ["system", "user", "assistant", "tool"]
    for text in ("Be brief.", "Weather in city 7?", "7 degrees", '"look"'):
        assert text in prompt


def test_traces_without_scores_are_refused(tmp_path: Path) -> None:
    lines = tmp_path / "traces.jsonl"
    rows = [{**langsmith_run(n), "feedback_stats": None} for n in range(9)]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(WrongFormat, match="no rewarded answer"):
        tasks_of(lines)
