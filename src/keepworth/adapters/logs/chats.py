"""Lists of messages: traces of verifiers, trajectories of ART, messages of LangChain and states of LangGraph."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from keepworth.adapters.logs.session import LogOutcome, LogReader, LogSession, parsed_object, plain_time, texts_in
from keepworth.base.json_values import as_list

_ROLES = {"human": "user", "ai": "assistant", "HumanMessageChunk": "user", "AIMessageChunk": "assistant"}
_TYPES = ("system", "human", "ai", "tool", "HumanMessageChunk", "AIMessageChunk", "ToolMessageChunk", "constructor")

_ERROR = re.compile(r"\s*(?:\w+\.)*\w*(?:Error|Exception)\b")
"""How an output may begin that is an error, where nothing says whether the tool failed."""


def read_messages(session: LogSession, messages: Iterable[Any], times: Iterable[str] = ()) -> None:
    """Read messages into turns.

    Args:
        session: Gets the turns.
        messages: Those of OpenAI's chat interface, of ART or of LangChain; in verifiers' nodes, too.
        times: Canonical texts, one for each message as far as they go.
    """
    clock = iter(times)
    for entry in messages:
        time = next(clock, "")
        if not isinstance(entry, dict):
            continue
        message = next(
            (entry[name] for name in ("message", "data", "kwargs") if isinstance(entry.get(name), dict)), entry
        )
        role = message.get("role", message.get("type", entry.get("type")))
        role, text = _ROLES.get(str(role), str(role)), texts_in(message.get("content"))
        if role == "user":
            if session.calls and session.format == "langchain":  # nobody answered the last calls
                session.interrupt()
            session.person = session.person or str(message.get("name") or "")
            id = message.get("id")
            session.ask(text, time, f"{id} {session.person} {text}" if isinstance(id, str) else "")
        elif role == "assistant":
            session.say(text)
            for call in message.get("tool_calls") or ():
                _read_call(session, call)
            if entry.get("finish_reason") == "length":
                session.interrupt()
        elif role == "tool":
            status = message.get("status")
            failed = status == "error" if status else None if _ERROR.match(text) else False
            session.finish(str(message.get("tool_call_id")), failed, text)


def _read_call(session: LogSession, call: object) -> None:
    if not isinstance(call, dict):
        return
    function = call.get("function") if isinstance(call.get("function"), dict) else call
    given = function.get("arguments", function.get("args")) if isinstance(function, dict) else None
    name = str(function.get("name")) if isinstance(function, dict) else ""
    whole = not isinstance(given, str) or bool(parsed_object(given)) or given.strip() in ("", "{}")
    session.call(str(call.get("id")) if whole else "", name, given)  # a call that was cut off was never carried out


# -- verifiers --------------------------------------------------------------------------------------------------------


def fits_verifiers(row: dict[str, Any]) -> bool:
    """Return whether a line is an episode, or an earlier version's row or description of a run."""
    earlier = row.keys() >= {"prompt", "completion", "reward"} or row.keys() >= {"env_id", "num_examples"}
    return earlier or (isinstance(row.get("traces"), list) and "env" in row and "task" in row)


class VerifiersReader(LogReader):
    """Reads episodes, of which each trace is a session."""

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read an episode with its traces, or a row of an earlier version."""
        for trace in row.get("traces") or ():
            if isinstance(trace, dict):
                self._read_trace(trace, file)
        if isinstance(row.get("completion"), list):
            session = self.sessions["row"] = LogSession("verifiers", "", file)
            timing = row.get("timing")
            session.started = plain_time(timing.get("start_time")) if isinstance(timing, dict) else ""
            prompt = row["prompt"] if isinstance(row["prompt"], list) else [{"role": "user", "content": row["prompt"]}]
            read_messages(session, [*prompt, *row["completion"]], [session.started] * len(prompt))
            if isinstance(row.get("reward"), int | float):
                session.outcomes.append(LogOutcome("reward", row["reward"]))
        return next(iter(self.sessions.values()), None)

    def _read_trace(self, trace: dict[str, Any], file: str) -> None:
        session = self.sessions[str(trace.get("id"))] = LogSession("verifiers", str(trace.get("id") or ""), file)
        nodes = [node for node in trace.get("nodes") or () if isinstance(node, dict)]
        timing = trace.get("timing")
        session.see(timing.get("start") if isinstance(timing, dict) else "")
        read_messages(session, nodes, [session.see(node.get("timestamp")) for node in nodes])
        if trace.get("is_timeout") or trace.get("errors"):
            session.interrupt()
        if trace.get("ok") is False:
            return
        rewards = trace.get("rewards") if isinstance(trace.get("rewards"), dict) else {}
        scores = {name: entry for name, entry in (rewards or {}).items() if isinstance(entry, dict)}
        session.outcomes += [LogOutcome(name, float(entry["score"])) for name, entry in scores.items()]
        if scores:
            total = sum(float(entry["score"]) * float(entry.get("weight", 1.0)) for entry in scores.values())
            session.outcomes.append(LogOutcome("reward", total))


# -- ART --------------------------------------------------------------------------------------------------------------


def fits_art(row: dict[str, Any]) -> bool:
    """Return whether a line is a group of trajectories."""
    group = row.get("trajectories")
    return isinstance(group, list) and all(
        isinstance(entry, dict) and "messages_and_choices" in entry for entry in group
    )


class ArtReader(LogReader):
    """Reads groups, of which each trajectory is a session."""

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a group."""
        for number, entry in enumerate(row.get("trajectories") or ()):
            session = self.sessions[str(number)] = LogSession("art", "", file)
            read_messages(session, entry.get("messages_and_choices") or ())
            if isinstance(entry.get("reward"), int | float):
                session.outcomes.append(LogOutcome("reward", entry["reward"]))
        return next(iter(self.sessions.values()), None)


# -- LangChain and LangGraph ------------------------------------------------------------------------------------------


def _messages(row: dict[str, Any]) -> list[Any]:
    values = row.get("values")
    return as_list(values.get("messages") if isinstance(values, dict) else row.get("messages"))


def fits_langchain(row: dict[str, Any]) -> bool:
    """Return whether an object holds messages of LangChain."""
    messages = _messages(row)
    return bool(messages) and all(isinstance(entry, dict) and entry.get("type") in _TYPES for entry in messages)


class LangChainReader(LogReader):
    """Reads lists of messages, and states of threads."""

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a thread. Scores may stand beside its messages, as `feedback` with a key and a score."""
        checkpoint = row.get("checkpoint")
        thread = row.get("thread_id") or (checkpoint.get("thread_id") if isinstance(checkpoint, dict) else "")
        config = row.get("config")
        if not thread and isinstance(config, dict) and isinstance(config.get("configurable"), dict):
            thread = config["configurable"].get("thread_id")
        session = self.sessions[file] = LogSession("langchain", str(thread or ""), file)
        session.ended = plain_time(row.get("created_at"))
        read_messages(session, _messages(row))
        feedback = row.get("feedback")
        for score in feedback if isinstance(feedback, list) else [feedback]:
            if isinstance(score, dict) and isinstance(score.get("score"), int | float):
                session.outcomes.append(LogOutcome(str(score.get("key") or "feedback"), float(score["score"])))
        return session
