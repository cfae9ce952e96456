"""Tasks from conversations whose answers have rewards: the answers with more reward than the average are imitated.

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "...", "reward": 1}], "session": "s-1"}
    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}], "score": 0.5}
    {"prompt": "...", "completion": "...", "rating": 4}
    {"request": {"messages": [...]}, "response": {"choices": [{"message": {...}}]}, "feedback": "up"}

A line is a conversation; `session` and `user` (see `SESSION`, `PERSON`) name the conversation and its user. A reward (see
`REWARD`) belongs to the answer that contains it; that of a line belongs to its last answer. A log has no rewards of answers that
were not given, so its rewards choose what is imitated (`method = supervised`) and are not used for reinforcement."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from statistics import fmean
from typing import Any

from keepworth.episodes.errors import nearest
from keepworth.tasks.data_files import WrongFormat
from keepworth.tasks.json_lines import UNSAYABLE
from keepworth.tasks.own import OwnTasks, own_tasks

MESSAGES = ("messages", "conversations", "conversation", "turns")
COMPLETIONS = ("completion", "response", "output", "answer")
SESSION = ("session", "session_id", "conversation_id", "thread_id", "chat_id", "id")
PERSON = ("user", "user_id", "person")
REWARD = ("reward", "score", "rating", "feedback")
SPEAKER, CONTENT = ("role", "from", "speaker", "author"), ("content", "value", "text")
ROLES: Mapping[str, str] = {
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bot", "model", "ai"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "function_call"), "tool"),
}
WORDS: Mapping[str, float] = {
    **dict.fromkeys(("up", "thumbs_up", "👍", "good", "positive", "like", "yes", "correct"), 1.0),
    **dict.fromkeys(("down", "thumbs_down", "👎", "bad", "negative", "dislike", "no", "incorrect"), 0.0),
}
OFTEN, SHARE = 10, 0.05
"""A question in more sessions than OFTEN, and in more than this share of them, is a greeting. Answers to it are left out, because
it would tie almost all sessions to one split."""


def rewarded_tasks(rows: Iterable[tuple[str, Mapping[str, Any]]], name: str) -> OwnTasks:
    """Makes a task of each answer with more reward than the average, with the conversation before it as the prompt.

    Splits share no session, no user (where there are several) and no question. `rows` are conversations, each with its place in
    the file; `name` is that of their source. Raises WrongFormat where a line cannot be read, or all rewards are equal."""
    answers = {}
    for place, row in rows:
        for answer in _answers(row, place):
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
    return replace(tasks, note=f"{note} {tasks.note}")


def _answers(row: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
    """Yields the rewarded answers of a conversation, as rows of tasks."""
    messages = [_message(message, f"{place}, message {n}") for n, message in enumerate(_messages(row, place), start=1)]
    if not any(message["content"] for message in messages):
        raise WrongFormat(f"{place} has no message with text.", "Leave the conversation out.")
    last = max((n for n, message in enumerate(messages) if message["answers"]), default=-1)
    first = next((message["content"] for message in messages if message["role"] == "user"), "")
    user = _name(row, PERSON, place)
    session = _name(row, SESSION, place) or sha256(first.encode()).hexdigest()[:12]
    for n, message in enumerate(messages):
        reward = message["reward"] if message["reward"] is not None or n != last else _reward(row, place)
        before = [{"role": one["role"], "content": one["content"]} for one in messages[:n] if one["content"]]
        if reward is None or not message["content"] or message["role"] != "assistant":
            continue
        if before and before[-1]["role"] != "assistant" and any(one["role"] == "user" for one in before):
            id = sha256(json.dumps([before, message["content"]]).encode()).hexdigest()[:16]
            yield {
                "id": id,
                "prompt": before,
                "answer": message["content"],
                "reward": reward,
                "user": user,
                "session": f"{user}/{session}",
            }


def _messages(row: Mapping[str, Any], place: str) -> Sequence[Any]:
    """Returns the messages of a row, whatever its format."""
    field = next((name for name in MESSAGES if name in row), "")
    request, response = row.get("request"), row.get("response")
    prompt = row.get("prompt") or row.get("question")
    answer = next((row[name] for name in COMPLETIONS if isinstance(row.get(name), str)), None)
    if field:
        messages = row[field]
    elif isinstance(request, Mapping) and isinstance(response, Mapping):
        try:
            messages = [*request["messages"], response["choices"][0]["message"]]
        except (LookupError, TypeError):
            raise WrongFormat(
                f"{place}: request has no messages, or response no choices with a message.",
                "Give the bodies of a chat completion as they were sent and received.",
            ) from None
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
    return messages


def _message(given: Any, place: str) -> dict[str, Any]:
    """Returns role, content ("" where there is no text), reward, and whether the message answers, as a call of a tool also
    does."""
    if not isinstance(given, Mapping):
        raise WrongFormat(f"{place} is {given!r:.60}.", 'Write {"role": "user", "content": "..."}.')
    speaker = next((given[name] for name in SPEAKER if name in given), None)
    speaker = speaker.get("role") if isinstance(speaker, Mapping) else speaker  # {"author": {"role": "user"}}
    role = ROLES.get(speaker.strip().lower()) if isinstance(speaker, str) else None
    if role is None:
        near = nearest(str(speaker), ROLES)
        fix = f"Did you mean {near!r}?" if near else f"There are {', '.join(ROLES)}."
        raise WrongFormat(f"{place}: the role {speaker!r:.40} is not known.", fix)
    content = next((given[name] for name in CONTENT if name in given), None)
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        content = "\n".join(text for text in texts if isinstance(text, str))
    if content is not None and not isinstance(content, str):
        raise WrongFormat(f"{place}: the text is {content!r:.60}.", "Write a text, or a list of parts with text.")
    if content is None and "tool_calls" not in given and "function_call" not in given:
        raise WrongFormat(f"{place} has no text ({', '.join(CONTENT)}).", f"There are {', '.join(map(repr, given))}.")
    text = UNSAYABLE.sub(" ", content or "").strip()
    answers = role == "assistant" or speaker == "function_call"
    return {"role": role, "content": text, "reward": _reward(given, place) if answers else None, "answers": answers}


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
