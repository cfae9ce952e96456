"""Tasks from conversations whose answers have rewards: the answers with more reward than the average are imitated.

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "...", "reward": 1}], "session": "s-1"}
    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}], "score": 0.5}
    {"prompt": "...", "completion": "...", "rating": 4}
    {"request": {"messages": [...]}, "response": {"choices": [{"message": {...}}]}, "feedback": "up"}

A line is a conversation; `session` and `user` (see `SESSION`, `PERSON`) name the conversation and its user. A reward (see
`REWARD`) belongs to the answer that contains it; that of a line belongs to its last answer. The calls of tools that led to an
answer have its reward, unless they have their own. A log has no rewards of answers that were not given, so its rewards choose
what is imitated (`method = supervised`) and are not used for reinforcement.

Messages, requests and replies may be those of OpenAI's chat completions and responses, of Anthropic, or of LangChain."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from statistics import fmean
from typing import Any

from keepworth.base.errors import nearest
from keepworth.base.json_values import as_list, parse
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.json_lines import UNSAYABLE
from keepworth.worlds.own import OwnTasks, own_tasks

MESSAGES = ("messages", "conversations", "conversation", "turns", "messages_and_choices")
COMPLETIONS = ("completion", "response", "output", "answer")
SESSION = ("session", "session_id", "conversation_id", "thread_id", "chat_id", "id")
PERSON = ("user", "user_id", "person")
REWARD = ("reward", "score", "rating", "feedback")
SPEAKER, CONTENT = ("role", "from", "speaker", "author", "type"), ("content", "value", "text", "output")
ROLES: Mapping[str, str] = {
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bot", "model", "ai"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "function_call_output"), "tool"),
    "function_call": "assistant",
}
WORDS: Mapping[str, float] = {
    **dict.fromkeys(("up", "thumbs_up", "👍", "good", "positive", "like", "yes", "correct"), 1.0),
    **dict.fromkeys(("down", "thumbs_down", "👎", "bad", "negative", "dislike", "no", "incorrect"), 0.0),
}
_NOT_SAID = ("_call", "_call_output", "_list_tools", "_approval_request", "_approval_response", "_reference")
"""Ends of the types of items of responses that are neither words nor calls of the caller's tools. A call of such a tool is
`function_call`."""
PROMPTS_OF_MEMORY: Mapping[str, str] = {
    "sent": "as they were sent",
    "rebuilt": "rebuilt from the question and the notes that were shown and are still there",
    "question": "of the question alone, for which no note was shown, or none that is still there",
}
"""Where the prompt of an episode of a memory is from, by the row's `source`."""
OFTEN, SHARE = 10, 0.05
"""A question in more sessions than OFTEN, and in more than this share of them, is a greeting. Answers to it are left out, because
it would tie almost all sessions to one split."""


def make_rewarded_tasks(rows: Iterable[tuple[str, Mapping[str, Any]]], name: str) -> OwnTasks:
    """Makes a task of each answer with more reward than the average, with the conversation before it as the prompt.

    Splits share no session, no user (where there are several) and no question. `rows` are conversations, each with its place in
    the file; `name` is that of their source. Raises WrongFormat where a line cannot be read, or all rewards are equal."""
    answers = {}
    for place, row in rows:
        for answer in answers_of(row, place):
            answers[json.dumps(answer["prompt"]), answer["answer"]] = answer  # a repeated history: its latest reward
    rewards = [answer["reward"] for answer in answers.values()]
    if not rewards:
        raise WrongFormat(f"{name} has no rewarded answer.", f"Give answers one of {', '.join(REWARD)}.")
    if len(set(rewards)) == 1:
        raise WrongFormat(
            f"All {len(rewards)} rewards in {name} are {rewards[0]:g}: they do not say which answers are better.",
            "Keep the answers that were not liked in the log, too.",
        )
    sessions = {answer["session"] for answer in answers.values()}
    counts = Counter(prompt for prompt, _ in {(prompt, one["session"]) for (prompt, _), one in answers.items()})
    often = max(OFTEN, SHARE * len(sessions))
    by_person = len({answer["user"] for answer in answers.values()}) > 1
    average = fmean(rewards)
    better = [
        {**answer, "group": (by_person and answer["user"]) or answer["session"]}
        for (prompt, _), answer in answers.items()
        if answer["reward"] > average and counts[prompt] <= often
    ]
    tasks = own_tasks(better, name=name)
    note = f"{len(better)} answers of {len(rewards)}, those with more reward than the average of {average:.2g}."
    kinds = Counter(answer.get("source") for answer in better)
    of_memory = ", ".join(f"{kinds[kind]} {words}" for kind, words in PROMPTS_OF_MEMORY.items() if kinds[kind])
    note += f" Prompts: {of_memory}." if of_memory else ""
    return replace(tasks, note=f"{note} {tasks.note}", remark=note)


def answers_of(row: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
    """Yields the rewarded answers of a conversation, as rows of tasks. Raises WrongFormat."""
    given = list(enumerate(_messages(row, place), start=1))
    messages = [message for n, one in given for message in _plain_messages(one, f"{place}, message {n}")]
    if not any(message["content"] for message in messages):
        raise WrongFormat(f"{place} has no message with text.", "Leave the conversation out.")
    _spread_rewards(messages, _reward(row, place) if any(message["answers"] for message in messages) else None)
    first = next((message["content"] for message in messages if message["role"] == "user"), "")
    user = _name(row, PERSON, place)
    session = _name(row, SESSION, place) or sha256(first.encode()).hexdigest()[:12]
    names = {call["id"]: call["name"] for message in messages for call in message["calls"] if call["id"]}
    tools = _tools(row)
    for n, message in enumerate(messages):
        reward, answer = message["reward"], write_call(message["content"], message["calls"])
        before = [_prompt_message(one, names) for one in messages[:n] if one["content"] or one["calls"]]
        if reward is None or not answer or message["role"] != "assistant":
            continue
        if before and before[-1]["role"] != "assistant" and any(one["role"] == "user" for one in before):
            yield {
                "id": sha256(json.dumps([before, answer]).encode()).hexdigest()[:16],
                "prompt": before,
                "answer": answer,
                "reward": reward,
                "user": user,
                "session": f"{user}/{session}",
                **({"said": message["content"], "calls": _schematic(message["calls"])} if message["calls"] else {}),
                **({"tools": tools} if tools else {}),
                **({"source": row["source"]} if isinstance(row.get("source"), str) else {}),
            }


def _spread_rewards(messages: Sequence[dict[str, Any]], whole: float | None) -> None:
    """Gives the last answer the reward of the conversation, and calls of tools that of the answer that they led to, where they
    have none of their own."""
    last, later = max((n for n, message in enumerate(messages) if message["answers"]), default=-1), None
    for n, message in reversed(list(enumerate(messages))):
        if message["role"] == "user":
            later = None
        elif message["answers"]:
            if message["reward"] is None and (n == last or message["calls"]):
                message["reward"] = whole if n == last else later
            later = message["reward"] if message["reward"] is not None else later


def write_call(text: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """Returns an answer with its calls of tools, as models of the Hermes, Qwen and SmolLM families write them."""
    lines = [json.dumps({"name": call["name"], "arguments": call["arguments"]}, ensure_ascii=False) for call in calls]
    return "\n".join(filter(None, [text, *(f"<tool_call>\n{line}\n</tool_call>" for line in lines)]))


def _schematic(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns calls in the form that chat templates take."""
    return [{"type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}} for call in calls]


def _prompt_message(message: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns a message as a prompt holds it. A tool's answer has the name of the tool."""
    called = {"tool_calls": _schematic(message["calls"])} if message["calls"] else {}
    named = {"name": names[message["of"]]} if message["role"] == "tool" and message["of"] in names else {}
    return {"role": message["role"], "content": message["content"], **called, **named}


def _tools(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the schemas of the tools of a conversation, in OpenAI's form."""
    request = row.get("request")
    given = row.get("tools") or (request.get("tools") if isinstance(request, Mapping) else None)
    schemas = []
    for tool in as_list(given):
        held = tool.get("function") if isinstance(tool, Mapping) else None
        function = held if isinstance(held, Mapping) else tool
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            continue  # a tool that the provider runs itself
        parameters = function.get("parameters") or function.get("input_schema") or {"type": "object", "properties": {}}
        about = {"name": function["name"], "description": str(function.get("description") or "")}
        schemas.append({"type": "function", "function": {**about, "parameters": parameters}})
    return schemas


def _messages(row: Mapping[str, Any], place: str) -> Sequence[Any]:
    """Returns the messages of a row, whatever its format."""
    field = next((name for name in MESSAGES if name in row), "")
    request, response = row.get("request"), row.get("response")
    prompt = row.get("prompt") or row.get("question")
    answer = next((row[name] for name in COMPLETIONS if isinstance(row.get(name), str)), None)
    if field:
        messages = row[field]
    elif isinstance(request, Mapping) and isinstance(response, Mapping):
        messages = [*_request_messages(request, place), *_reply_messages(response, place)]
    elif prompt and answer:
        before = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        messages = [*before, {"role": "assistant", "content": answer}]
    else:
        raise WrongFormat(
            f"{place}: there are no messages ({', '.join(MESSAGES)}, or prompt and completion).",
            f"There are {', '.join(map(repr, row)) or 'no fields'}."
            + " Rows with questions go to --tasks, not to --source." * ("questions" in row),
        )
    if not isinstance(messages, list) or not messages:
        raise WrongFormat(f"{place}: {field} is {messages!r:.60}.", "Write a list of messages, at least one.")
    if field and "system" in row:  # the body of a call of Anthropic
        messages = [{"role": "system", "content": row["system"]}, *messages]
    return messages


def _request_messages(request: Mapping[str, Any], place: str) -> list[Any]:
    """Returns the messages of a request: of chat completions, of Anthropic, or of responses."""
    given = request.get("messages", request.get("input"))
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(messages, list):
        raise WrongFormat(
            f"{place}: request has no messages.",
            "Give the bodies of a call of the model as they were sent and received.",
        )
    system = request.get("system") or request.get("instructions")
    return [*([{"role": "system", "content": system}] if system else []), *messages]


def _reply_messages(response: Mapping[str, Any], place: str) -> list[Any]:
    """Returns the messages of an answer to a request."""
    try:
        if "choices" in response:
            return [response["choices"][0]["message"]]
        if isinstance(response.get("output"), list):
            return list(response["output"])
        if "content" in response:
            return [{"role": "assistant", "content": response["content"]}]
    except (LookupError, TypeError):
        pass
    raise WrongFormat(
        f"{place}: response has no choices with a message, no content and no output.",
        "Give the bodies of a call of the model as they were sent and received.",
    )


def _plain_messages(given: Any, place: str) -> Iterator[dict[str, Any]]:
    """Yields what a message of any format says: role, content ("" where there is no text), calls of tools, the id of the call
    that it answers (`of`), reward, and whether it is an answer of the model, as a call also is. A message of Anthropic that holds
    answers of tools and words of the user is several."""
    if not isinstance(given, Mapping):
        raise WrongFormat(f"{place} is {given!r:.60}.", 'Write {"role": "user", "content": "..."}.')
    for inner in ("message", "data", "kwargs"):  # ART's choices; LangChain's messages in two forms of JSON
        if isinstance(given.get(inner), Mapping) and not isinstance(given.get("content"), str | list):
            kind = given.get("type") if inner == "data" else next(reversed(as_list(given.get("id"))), "")
            given = {**given, **({"type": str(kind).removesuffix("Message")} if kind else {}), **given[inner]}
    kind = str(given.get("type"))
    if "role" not in given and (
        kind == "reasoning" or (kind.endswith(_NOT_SAID) and not kind.startswith("function_call"))
    ):
        return
    speaker = next((given[name] for name in SPEAKER if given.get(name) is not None), None)
    speaker = speaker.get("role") if isinstance(speaker, Mapping) else speaker  # {"author": {"role": "user"}}
    role = ROLES.get(speaker.strip().lower()) if isinstance(speaker, str) else None
    if role is None:
        near = nearest(str(speaker), ROLES)
        fix = f"Did you mean {near!r}?" if near else f"There are {', '.join(ROLES)}."
        raise WrongFormat(f"{place}: the role {speaker!r:.40} is not known.", fix)
    content = next((given[name] for name in CONTENT if name in given), None)
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    calls = _calls(given, speaker) or [_call(part) for part in parts if part.get("type") == "tool_use"]
    for part in parts:
        if part.get("type") == "tool_result":
            result = _text(part.get("content"), place)
            yield _message("tool", result, of=str(part.get("tool_use_id") or ""))
    results = sum(part.get("type") == "tool_result" for part in parts)
    if results and results == len(parts):
        return
    if content is None and not calls and "tool_calls" not in given and "function_call" not in given:
        raise WrongFormat(
            f"{place} has no text ({', '.join(CONTENT[:3])}).", f"There are {', '.join(map(repr, given))}."
        )
    text = "" if speaker == "function_call" else _text(content, place)
    answers = role == "assistant"
    reward = _reward(given, place) if answers else None
    yield _message(role, text, calls, str(given.get("tool_call_id") or given.get("call_id") or ""), reward)


def _message(
    role: str, content: str, calls: Sequence[Any] = (), of: str = "", reward: float | None = None
) -> dict[str, Any]:
    answers = role == "assistant"
    return {"role": role, "content": content, "calls": list(calls), "of": of, "reward": reward, "answers": answers}


def _text(content: Any, place: str) -> str:
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        content = "\n".join(text for text in texts if isinstance(text, str))
    if content is not None and not isinstance(content, str):
        raise WrongFormat(f"{place}: the text is {content!r:.60}.", "Write a text, or a list of parts with text.")
    return UNSAYABLE.sub(" ", content or "").strip()


def _calls(given: Mapping[str, Any], speaker: Any) -> list[dict[str, Any]]:
    """Returns the calls in a message of chat completions, LangChain or ShareGPT, or in an item of responses."""
    if given.get("type") == "function_call" and "name" in given:
        return [_call(given)]
    if speaker == "function_call":  # ShareGPT: the text is the call
        try:
            read = parse(str(next((given[name] for name in CONTENT if name in given), "")))
        except ValueError:
            return []
        return [_call(read)] if isinstance(read, Mapping) and "name" in read else []
    legacy = given.get("function_call")
    listed = [*as_list(given.get("tool_calls")), *([legacy] if isinstance(legacy, Mapping) else [])]
    calls = [_call(call) for call in listed if isinstance(call, Mapping)]
    return [call for call in calls if call["name"]]


def _call(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns name, arguments and id of a call of a tool."""
    held = given.get("function")
    function = held if isinstance(held, Mapping) else given
    arguments: Any = next((function[name] for name in ("arguments", "args", "input") if name in function), {})
    if isinstance(arguments, str):
        try:
            arguments = parse(arguments or "{}")
        except ValueError:
            arguments = {"text": arguments}
    if not isinstance(arguments, Mapping):
        arguments = {"value": arguments}
    return {
        "name": str(function.get("name") or ""),
        "arguments": _make_sayable(arguments),
        "id": str(given.get("call_id") or given.get("id") or ""),
    }


def _make_sayable(value: Any) -> Any:
    if isinstance(value, str):
        return UNSAYABLE.sub(" ", value)
    if isinstance(value, Mapping):
        return {UNSAYABLE.sub(" ", str(name)): _make_sayable(part) for name, part in value.items()}
    return [_make_sayable(part) for part in value] if isinstance(value, list) else value


def _reward(given: Mapping[str, Any], place: str) -> float | None:
    field = next((name for name in REWARD if given.get(name) is not None), "")
    if not field:
        return None
    value = given[field]
    if isinstance(value, Mapping):  # {"feedback": {"score": 1}}
        return _reward(value, f"{place}: {field}")
    try:
        number = float(WORDS.get(value.strip().lower(), value) if isinstance(value, str) else value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise WrongFormat(f"{place}: {field} is {value!r:.40}.", f"Write a number, or one of {', '.join(WORDS)}.")
    return number


def _name(row: Mapping[str, Any], fields: Sequence[str], place: str) -> str:
    value = next((row[field] for field in fields if row.get(field) not in (None, "")), "")
    if not isinstance(value, str | int):
        raise WrongFormat(f"{place}: {fields[0]} is {value!r:.60}.", "Write a name or a number.")
    return str(value)
