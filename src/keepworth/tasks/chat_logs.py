"""Logs of conversations, in the forms that people have them: one conversation a line, or a JSON list of them.

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "...", "reward": 1}], "session": "s-1"}
    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
    {"prompt": "...", "completion": "...", "rating": 4}
    {"request": {"messages": [...]}, "response": {"choices": [{"message": {...}}]}}

| of | field | what it is |
| --- | --- | --- |
| a line | messages, conversations, conversation, turns | what was said |
| | prompt and completion, response, output or answer | one question and its answer; also an episode of a run folder |
| | request and response | what was sent to a chat endpoint, and what came back |
| | session, session_id, conversation_id, thread_id, chat_id, id | names the conversation; lines of one name are one |
| | user, user_id, person | whose it is: nothing of one person is on two sides of a split |
| | time, timestamp, created_at, create_time, date | when, in ISO 8601 or in seconds since 1970; of a message, too |
| a message | role, from, speaker, author | who says it |
| | content, value, text | what; of parts, the texts |
| either | reward, score, rating, feedback | how good the answer was; that of a line is of its last answer, if that has text |
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from keepworth.episodes.episode import Session, Turn
from keepworth.episodes.errors import nearest
from keepworth.tasks.data_files import WrongFormat, recognised, records, text_of
from keepworth.tasks.json_lines import TIME, UNSAYABLE, lines_of

SAID = ("messages", "conversations", "conversation", "turns")
COMPLETIONS = ("completion", "response", "output", "answer")
SESSION = ("session", "session_id", "conversation_id", "thread_id", "chat_id", "id")
PERSON = ("user", "user_id", "person")
WHEN = ("time", "timestamp", "created_at", "create_time", "date")
REWARD = ("reward", "score", "rating", "feedback")
SPEAKER, CONTENT = ("role", "from", "speaker", "author"), ("content", "value", "text")
_CALL = "call"
"""What a model says to a tool: read as a message of the tool, but a reward of the last answer is its."""
ROLES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("user", "human", "prompter"), "user"),
        **dict.fromkeys(("assistant", "gpt", "chatgpt", "bot", "model", "ai", "bing", "bard"), "assistant"),
        **dict.fromkeys(("system", "developer"), "system"),
        **dict.fromkeys(("tool", "function", "observation", "ipython"), "tool"),
        "function_call": _CALL,
    }
)
RECENT = 50
"""Tries at a session that a line is compared with."""
_WORDS = {
    **dict.fromkeys(("up", "thumbs_up", "thumbsup", "👍", "good", "positive", "like", "liked", "yes", "correct"), 1.0),
    **dict.fromkeys(("down", "thumbs_down", "thumbsdown", "👎", "bad", "negative", "dislike", "no", "incorrect"), 0.0),
}


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """role: user, assistant, system or tool. reward: of an answer, where the log has one. system: what stood before the
    conversation when this was said."""

    role: str
    text: str
    time: str = ""
    reward: float | None = None
    system: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """id: of its session; time: ISO 8601, UTC, "" where it is not known; person: "" where nobody says whose it is.

    of: where it is another try at what the session says (an answer that was drawn again), the id of that session; shared: how
    many of its first messages are from there."""

    id: str
    messages: tuple[LoggedMessage, ...]
    time: str = ""
    person: str = ""
    place: str = ""
    of: str = ""
    shared: int = 0

    @property
    def session(self) -> Session:
        """What the user and the assistant said, and no other session says. A turn's index is that of its message."""
        turns = (
            Turn(each.role, each.text, index, date=each.time if each.time != self.time else "")
            for index, each in enumerate(self.messages)
            if index >= self.shared and each.role in ("user", "assistant")
        )
        return Session(self.id, self.time, tuple(turns))


@dataclass(frozen=True, slots=True)
class ChatLog:
    """name: of where it comes from. left_out: what was not read and why, with how often; unread: fields nobody asked for."""

    name: str
    conversations: tuple[Conversation, ...]
    left_out: Mapping[str, int]
    unread: tuple[str, ...] = ()


def chat_log(path: str | Path) -> ChatLog:
    """The conversations of a file. Raises WrongFormat, which names the line and the field."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise WrongFormat(f"{file} is no file.", "Give the path of a file of conversations, one JSON object a line.")
    text = text_of(file)
    if not text.strip():
        raise WrongFormat(f"{file} is empty.", 'Write {"messages": [...]} a line.')
    rows: Iterable[tuple[str, Mapping[str, Any]]]
    if text.lstrip().startswith("["):
        rows = ((f"{file}, record {n}", row) for n, row in enumerate(records(file, "conversations"), start=1))
    else:
        rows = ((f"{file}, line {number}", row) for number, row in lines_of(file))
    return logged(rows, file.name.split(".")[0])


def logged(rows: Iterable[tuple[str, Mapping[str, Any]]], name: str) -> ChatLog:
    """The conversations of (place, row) pairs. Raises WrongFormat."""
    left_out: Counter[str] = Counter()
    unread: dict[str, None] = {}
    read = [_conversation(row, place, left_out, unread) for place, row in rows]
    people: dict[str, set[str]] = {}
    for one in read:
        people.setdefault(one.id, set()).update({one.person} - {""})
    lines: dict[str, list[Conversation]] = {}
    for each in read:
        # Lines that leave the person out are of the one that the session's others name, if that is one.
        person = each.person or (next(iter(people[each.id])) if len(people[each.id]) == 1 else "")
        id = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (person, each.id) if part)
        lines.setdefault(id, []).append(replace(each, id=id, person=person))
    if not lines:
        raise WrongFormat(f"{name} holds no conversation.", 'Write {"messages": [...]} a line.')
    seen: set[tuple[tuple[str, str, str], ...]] = set()
    distinct = []
    for one in (conversation for listed in lines.values() for conversation in _conversations(listed, left_out)):
        content = tuple((message.role, message.text, message.system) for message in one.messages)
        if content in seen:
            left_out["conversations that repeat another, word for word"] += 1
        else:
            seen.add(content)
            distinct.append(one)
    counts = {why: count for why, count in left_out.items() if count}
    return ChatLog(name, tuple(distinct), counts, tuple(unread))


def _conversation(row: Mapping[str, Any], place: str, left_out: Counter[str], unread: dict[str, None]) -> Conversation:
    """That of a line; its id is the name of its session alone."""
    given = _messages(row, place, left_out)
    reward = _reward(row, left_out)
    answers = [index for index, each in enumerate(given) if each.role in ("assistant", _CALL)]
    if reward is not None and answers:
        given[answers[-1]] = replace(given[answers[-1]], reward=reward)
    elif reward is not None:
        left_out["rewards of conversations without an answer"] += 1
    textless = [each.reward for each in given if not each.text or each.role == _CALL]
    left_out["rewards of answers without text"] += sum(each is not None for each in textless)
    messages = [replace(each, role="tool", reward=None) if each.role == _CALL else each for each in given if each.text]
    left_out["messages without text"] += len(given) - len(messages)
    known = {*SAID, *COMPLETIONS, *SESSION, *PERSON, *WHEN, *REWARD, "prompt", "question", "request"}
    unread.update(dict.fromkeys(str(each) for each in row if each not in known))
    time = _time(row, place) or next((message.time for message in messages if message.time), "")
    person = _name(row, PERSON, place)
    name = _name(row, SESSION, place)
    if not name:  # by its content, so that it stays on its side when lines are added before it
        name = hashlib.sha256(
            "\x1f".join(f"{message.role}\x1e{message.text}" for message in messages).encode()
        ).hexdigest()[:12]
    # What stands before all else is a setting, which often changes from call to call: no message that is repeated or not.
    opening = list(itertools.takewhile(lambda each: each.role == "system", messages))
    system = "\n\n".join(each.text for each in opening)
    said = tuple(replace(message, system=system) for message in messages[len(opening) :])
    return Conversation(name, said, time, person, place)


def _conversations(lines: Sequence[Conversation], left_out: Counter[str]) -> Iterator[Conversation]:
    """Those of one session: one, and one for each other try."""
    first = lines[0]
    for number, each in enumerate(_threads(lines, left_out), start=1):
        one = replace(first, messages=tuple(each.messages), shared=each.shared)
        yield one if number == 1 else replace(one, id=f"{first.id}//{number}", of=first.id)


def _messages(row: Mapping[str, Any], place: str, left_out: Counter[str]) -> list[LoggedMessage]:
    field = next((each for each in SAID if each in row), "")
    if field:
        listed, where = row[field], f"{place}: {field}"
    elif isinstance(row.get("request"), Mapping) and isinstance(row.get("response"), Mapping):
        listed, where = _exchanged(row["request"], row["response"], place), f"{place}: request"
    else:
        asked = next((name for name in ("prompt", "question") if row.get(name)), "")
        answered = next((each for each in COMPLETIONS if isinstance(row.get(each), str)), "")
        if not asked or not answered:
            looks = recognised(row)
            fix = f"It looks like {looks}." if looks else f"There are {', '.join(map(repr, row)) or 'no fields'}."
            raise WrongFormat(
                f"{place}: there are no messages ({', '.join(SAID)}, or prompt and completion).",
                f"{fix} Rows with questions go to --tasks, not to --source." if "questions" in row else fix,
            )
        prompt = row[asked]
        before = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        listed = [*before, {"role": "assistant", "content": row[answered]}] if isinstance(before, list) else before
        where = f"{place}: {asked}"
    if not isinstance(listed, list) or not listed:
        raise WrongFormat(f"{where} is {listed!r:.60}.", "Write a list of messages, at least one.")
    found = [_message(each, f"{where}, message {number}", left_out) for number, each in enumerate(listed, start=1)]
    if not any(each.text for each in found):
        raise WrongFormat(f"{where} has no message with text.", "Leave the conversation out.")
    return found


def _exchanged(request: Mapping[str, Any], response: Mapping[str, Any], place: str) -> Any:
    choices = response.get("choices")
    message = (
        choices[0].get("message") if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else None
    )
    if not isinstance(request.get("messages"), list) or not isinstance(message, Mapping):
        raise WrongFormat(
            f"{place}: request has no messages, or response no choices with a message.",
            "Give the bodies of a chat completion as they were sent and received.",
        )
    return [*request["messages"], message]


def _message(given: Any, where: str, left_out: Counter[str]) -> LoggedMessage:
    """Its text is empty where it holds nothing to read."""
    if not isinstance(given, Mapping):
        raise WrongFormat(f"{where} is {given!r:.60}.", 'Write {"role": "user", "content": "..."}.')
    speaker = next((each for each in SPEAKER if each in given), "")
    if not speaker:
        raise WrongFormat(f"{where} has no role ({', '.join(SPEAKER)}).", f"There are {', '.join(map(repr, given))}.")
    said = given[speaker]
    if isinstance(said, Mapping):  # OpenAI's own export: {"author": {"role": "user"}}
        said = said.get("role")
    role = ROLES.get(said.strip().lower()) if isinstance(said, str) else None
    if role is None:
        near = nearest(str(said), ROLES)
        raise WrongFormat(
            f"{where}: the {speaker} {said!r:.40} is not known.",
            f"Did you mean {near!r}?" if near else f"There are {', '.join(ROLES)}.",
        )
    content = next((each for each in CONTENT if each in given), "")
    if not content and "tool_calls" not in given and "function_call" not in given:
        raise WrongFormat(f"{where} has no text ({', '.join(CONTENT)}).", f"There are {', '.join(map(repr, given))}.")
    value = given.get(content)
    if isinstance(value, list):
        parts = [each.get("text") if isinstance(each, Mapping) else each for each in value]
        left_out["parts of messages that are no text"] += sum(not isinstance(part, str) for part in parts)
        value = "\n".join(part for part in parts if isinstance(part, str))
    elif value is not None and not isinstance(value, str):
        raise WrongFormat(f"{where}: {content} is {value!r:.60}.", "Write a text, or a list of parts with text.")
    text = UNSAYABLE.sub(" ", value or "").strip()
    reward = _reward(given, left_out) if role in ("assistant", _CALL) else None
    return LoggedMessage(role, text, _time(given, where), reward)


def _reward(given: Mapping[str, Any], left_out: Counter[str]) -> float | None:
    for field in REWARD:
        if (value := given.get(field)) is None:
            continue
        if isinstance(value, Mapping):
            value = next((value[each] for each in REWARD if each in value), None)
        if isinstance(value, str):
            value = _WORDS.get(value.strip().lower(), value)
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = math.nan
        if math.isfinite(number):
            return number
        left_out[f"`{field}` that is no number, and no word for good or bad"] += 1
    return None


def _name(row: Mapping[str, Any], fields: Sequence[str], place: str) -> str:
    field = next((field for field in fields if row.get(field) not in (None, "")), "")
    if not field:
        return ""
    value = row[field]
    if not isinstance(value, (str, int)) or isinstance(value, bool) or not str(value).strip():
        raise WrongFormat(f"{place}: {field} is {value!r:.60}.", "Write a name or a number.")
    return " ".join(UNSAYABLE.sub(" ", str(value)).split())


def _time(row: Mapping[str, Any], place: str) -> str:
    """ISO 8601 in UTC to the second, or ""."""
    field = next((each for each in WHEN if row.get(each) not in (None, "")), "")
    if not field:
        return ""
    value = row[field]
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            parsed = datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, tz=UTC)
        else:
            text = re.sub(r"[Zz]$", "+00:00", value.strip().replace(" ", "T", 1))
            if not TIME.fullmatch(text):
                raise ValueError(text)
            parsed = datetime.fromisoformat(text)
        if parsed.tzinfo is not None:
            parsed = parsed.astimezone(UTC).replace(tzinfo=None)
        return parsed.isoformat(timespec="seconds")
    except (ValueError, TypeError, AttributeError, OverflowError, OSError):
        raise WrongFormat(
            f"{place}: {field} is {value!r:.60}.",
            "Write it in ISO 8601, such as 2026-01-03T10:00, or in seconds since 1970.",
        ) from None


@dataclass(slots=True)
class _Thread:
    """What is said in a session, line by line. shared: how many of its first messages are those of `parent`, after which another
    answer or question was tried."""

    messages: list[LoggedMessage]
    parent: _Thread | None = None
    shared: int = 0

    def alike(self, line: Sequence[LoggedMessage]) -> int:
        """How many of its first messages the line repeats."""
        pairs = zip(self.messages, line, strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: _said(pair[0]) == _said(pair[1]), pairs))

    def repeated(self, place: int, message: LoggedMessage) -> None:
        """What a later line says of a message: its reward, and when it was said."""
        if self.parent is not None and place < self.shared:
            self.parent.repeated(place, message)
            return
        own = self.messages[place]
        reward = own.reward if message.reward is None else message.reward
        self.messages[place] = replace(own, reward=reward, time=own.time or message.time)


def _said(message: LoggedMessage) -> tuple[str, str]:
    return message.role, message.text


def _threads(lines: Sequence[Conversation], left_out: Counter[str]) -> list[_Thread]:
    """What the lines of one session say. Clients send their history each time: what a later line repeats from the beginning is
    taken once. Where it goes on with another answer, or another question, than what is there, that is a thread of its own."""
    latest = _Thread(list(lines[0].messages))
    threads = [latest]
    for line in lines[1:]:
        recent = threads[-RECENT:]
        thread = max(reversed(recent), key=lambda one: one.alike(line.messages))
        alike = thread.alike(line.messages)
        if alike:
            latest = thread
            left_out["messages that a later line of the same session repeats"] += alike
            for place, message in enumerate(line.messages[:alike]):
                latest.repeated(place, message)
            if alike < min(len(latest.messages), len(line.messages)):
                latest = _Thread(latest.messages[:alike], latest, alike)
                threads.append(latest)
        latest.messages += [replace(one, time=one.time or line.time) for one in line.messages[alike:]]
    return threads


def rewarded(log: ChatLog) -> Iterator[tuple[Conversation, int, float]]:
    """(conversation, index of the answer, its reward), of all answers that have one."""
    for one in log.conversations:
        for index, each in enumerate(one.messages):
            if index >= one.shared and each.reward is not None:
                yield one, index, each.reward
