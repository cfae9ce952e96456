"""Traces: OTLP as JSON, spans of agent-lightning, exports of Langfuse and LangSmith. A trace is a turn; scores name traces."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from keepworth.adapters.logs.session import LogOutcome, LogReader, LogSession, parsed_object, plain_time, texts_in
from keepworth.base.json_values import parsed
from keepworth.memory.evaluations import Evaluation, attributes_of, evaluations_in, hex_id, named_in, spans_in

_OF_MODELS = (None, "chat", "text_completion", "generate_content")
"""Operations of spans that are calls of a model; those of agents hold the same messages again."""
_STOPPED = re.compile(r"Cancelled|Canceled|KeyboardInterrupt|Interrupted")
"""Names of exceptions with which a run ends that somebody stopped."""


@dataclass(slots=True)
class LogTrace:
    """A trace while its spans are read, in any order. `steps` are (time, tool, arguments, whether it failed, output), `asked` and
    `answers` have their times, as `calls` have, which are whole conversations with a model where the reader keeps them. `events`
    are evaluations among the scores, and `named` is whether more than a score is known of it."""

    id: str
    file: str
    session: str = ""
    person: str = ""
    started: str = ""
    ended: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    steps: list[tuple[str, str, object, bool, str]] = field(default_factory=list)
    scores: dict[str, float | str] = field(default_factory=dict)
    events: dict[str, Evaluation] = field(default_factory=dict)
    receipts: list[str] = field(default_factory=list)
    interrupted: bool = False
    named: bool = False
    calls: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)

    def see(self, *times: object) -> str:
        """Note the times of a span, and return the first as canonical text."""
        self.named = True
        listed = [plain_time(time) for time in times]
        for time in filter(None, listed):
            self.started, self.ended = min(self.started or time, time), max(self.ended, time)
        return listed[0] if listed else ""

    def ask(self, messages: object, time: str) -> None:
        """Note the last message of the user among the messages that a model was given."""
        texts = [text for role, text in _messages_in(messages) if role in ("user", "human") and text.strip()]
        self.asked += [(time, texts[-1])] if texts else []

    def answer(self, messages: object, time: str) -> None:
        """Note what a model answered."""
        self.answers += [
            (time, text) for role, text in _messages_in(messages) if role not in ("user", "human") and text
        ]


class TraceReader(LogReader):
    """Collects traces, and makes sessions of them when everything was read."""

    format = ""
    keeps_calls = False
    """Whether each call of a model is kept as it was sent and answered, for training."""

    def __init__(self) -> None:
        super().__init__()
        self.traces: dict[str, LogTrace] = {}

    def trace(self, id: object, file: str) -> LogTrace:
        """Return the trace with an id."""
        return self.traces.setdefault(str(id), LogTrace(str(id), file))

    def keep_call(self, trace: LogTrace, sent: object, answered: object, time: str) -> None:
        """Keep a call of a model, if this reader is to.

        Args:
            trace: That of the call.
            sent: The messages that the model was given, in any form of traces.
            answered: What it answered.
            time: When, as canonical text.
        """
        if self.keeps_calls and (answer := messages_in(answered, "assistant")):
            trace.calls.append((time, [*messages_in(sent, "user"), *answer]))

    def close(self) -> None:
        """Make a turn of each trace, in the session to which it belongs, and count scores of traces that are nowhere."""
        for trace in sorted(self.traces.values(), key=lambda trace: trace.started):
            if not (trace.named and trace.asked):
                self.of_nobody += len(trace.scores)
                continue
            name = trace.session or trace.id
            session = self.sessions.setdefault(name, LogSession(self.format, name, trace.file, "", trace.person))
            session.see(trace.started)
            session.see(trace.ended)
            session.ask(min(trace.asked)[1], min(trace.asked)[0] or trace.started, trace.id)
            if not session.turns:
                continue
            for number, (_, tool, arguments, failed, output) in enumerate(
                sorted(trace.steps, key=lambda step: step[0])
            ):
                session.call(str(number), tool, arguments)
                session.finish(str(number), failed, output)
            for _, text in sorted(trace.answers):
                session.say(text)
            turn = session.turns[-1]
            turn.interrupted = trace.interrupted
            turn.receipts = [(id, 0) for id in dict.fromkeys(trace.receipts)] + turn.receipts
            index = len(session.turns) - 1
            for name, value in trace.scores.items():
                event = trace.events.get(name)
                label, key = ("", "") if event is None else (event.label, event.key)
                session.outcomes.append(LogOutcome(name, value, index, label, key))


def _messages_in(messages: object) -> list[tuple[str, str]]:
    """Return (role, text) of messages in one of many forms: JSON in a text, a list, an object with messages, or a plain text."""
    if isinstance(messages, str):
        try:
            messages = json.loads(messages)
        except (ValueError, RecursionError):
            return [("user", str(messages)), ("assistant", str(messages))]
    if isinstance(messages, dict):
        inner = messages.get("messages", messages.get("generations"))
        if inner is not None:
            return _messages_in(inner)
        if "role" not in messages and "kwargs" not in messages and "type" not in messages:
            text = next((value for value in messages.values() if isinstance(value, str)), "")
            return [("user", text), ("assistant", text)]
        messages = [messages]
    listed = list[tuple[str, str]]()
    for entry in messages if isinstance(messages, list) else ():
        if isinstance(entry, list):
            listed += _messages_in(entry)
        elif isinstance(entry, dict):
            message = entry["kwargs"] if isinstance(entry.get("kwargs"), dict) else entry
            role = str(message.get("role") or message.get("type") or "")
            content = message.get("content", message.get("parts", message.get("text")))
            listed.append((role, texts_in(content)))
    return listed


def messages_in(value: object, role: str) -> list[dict[str, Any]]:
    """Return messages with their calls of tools, as logs of conversations have them (`keepworth.worlds.chat_logs`).

    Args:
        value: JSON in a text, lists, an object with messages, generations or choices, a message of OpenAI, LangChain or the GenAI
            conventions, or a plain text.
        role: That of a text which names none.
    """
    if isinstance(value, str):
        inner = parsed(value)
        if isinstance(inner, list | dict):
            return messages_in(inner, role)
        return [{"role": role, "content": value}] if value.strip() else []
    if isinstance(value, list):
        return [message for entry in value for message in messages_in(entry, role)]
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("messages"), list):
        return messages_in(value["messages"], role)
    for name in ("generations", "choices"):  # of several, the first was used
        if isinstance(value.get(name), list):
            first = value[name][0] if value[name] else []
            return messages_in(first[:1] if isinstance(first, list) else first, role)
    if isinstance(value.get("message"), dict):
        return messages_in(value["message"], role)
    if isinstance(value.get("parts"), list):
        return _of_parts(str(value.get("role") or role), value["parts"])
    if not {"role", "kwargs", "type", "data"}.isdisjoint(value):
        return [value]
    text = next((text for text in value.values() if isinstance(text, str) and text.strip()), "")
    return [{"role": role, "content": text}] if text else []


def _of_parts(role: str, parts: list[Any]) -> list[dict[str, Any]]:
    """Return a message of the GenAI conventions; each answer of a tool in it is a message."""
    held = [part for part in parts if isinstance(part, dict)]
    calls = [part for part in held if part.get("type") == "tool_call"]
    text = "\n".join(str(part.get("content") or "") for part in held if part.get("type", "text") == "text")
    messages = [
        {"role": "tool", "tool_call_id": part.get("id"), "content": _text(part.get("response", part.get("result")))}
        for part in held
        if part.get("type") == "tool_call_response"
    ]
    if text or calls:
        messages.append({"role": role, "content": text, **({"tool_calls": calls} if calls else {})})
    return messages


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


# -- OpenTelemetry ----------------------------------------------------------------------------------------------------


def fits_otlp(row: dict[str, Any]) -> bool:
    """Return whether a line is a request of OTLP with spans or logs."""
    return isinstance(row.get("resourceSpans", row.get("resourceLogs")), list)


class OtlpReader(TraceReader):
    """Reads requests of OTLP: spans of the GenAI conventions, and evaluation events in logs and in spans."""

    format = "otlp"

    def __init__(self) -> None:
        super().__init__()
        self._responses: dict[str, LogTrace] = {}
        self._evaluations: list[tuple[str, Evaluation]] = []

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a request."""
        for span in spans_in(row):
            self._read_span(span, file)
        self._evaluations += [(file, evaluation) for evaluation in evaluations_in(row)]
        return None

    def _read_span(self, span: Mapping[str, Any], file: str) -> None:
        trace, given = self.trace(hex_id(span.get("traceId")), file), attributes_of(span)
        time = trace.see(span.get("startTimeUnixNano"), span.get("endTimeUnixNano"))
        trace.session = trace.session or str(given.get("gen_ai.conversation.id", given.get("session.id", "")))
        trace.person = trace.person or str(given.get("user.id", given.get("enduser.id", "")))
        error = str(given.get("error.type") or "")
        failed = bool(error) or (span.get("status") or {}).get("code") == 2
        operation = given.get("gen_ai.operation.name")
        trace.receipts += named_in(given)
        if operation == "execute_tool":
            output = _text(given.get("gen_ai.tool.call.result")) or str(
                (span.get("status") or {}).get("message") or error
            )
            arguments = given.get("gen_ai.tool.call.arguments")
            trace.steps.append((time, str(given.get("gen_ai.tool.name")), arguments, failed, output))
        else:
            trace.ask(given.get("gen_ai.input.messages"), time)
            trace.answer(given.get("gen_ai.output.messages"), time)
            if operation in _OF_MODELS:
                orders = texts_in(parsed(str(given.get("gen_ai.system_instructions") or "")))
                sent = [{"role": "system", "content": orders}] if orders else []
                sent += messages_in(given.get("gen_ai.input.messages"), "user")
                self.keep_call(trace, sent, given.get("gen_ai.output.messages"), time)
            trace.interrupted = trace.interrupted or bool(_STOPPED.search(error))
        if "gen_ai.response.id" in given:
            self._responses[str(given["gen_ai.response.id"])] = trace

    def close(self) -> None:
        """Give the evaluations to their traces. One that failed itself is no outcome."""
        for file, evaluation in self._evaluations:
            score = evaluation.value if evaluation.value is not None else evaluation.label
            if evaluation.failed or score == "":
                continue
            there = [self.traces[id] for id, _ in evaluation.places if id in self.traces]
            trace = next(iter(there), None) or self._responses.get(evaluation.response)
            if trace is None:
                trace = self.trace(evaluation.places[0][0] if evaluation.places else "", file)
            trace.scores[evaluation.name], trace.events[evaluation.name] = score, evaluation
            trace.receipts += evaluation.targets
        super().close()


# -- agent-lightning --------------------------------------------------------------------------------------------------


def fits_lightning(row: dict[str, Any]) -> bool:
    """Return whether a line is a span or a rollout of agent-lightning."""
    return "rollout_id" in row and (row.keys() >= {"attempt_id", "span_id"} or row.keys() >= {"input", "status"})


class LightningReader(TraceReader):
    """Reads spans and rollouts. Of several attempts at a rollout the last one counts."""

    format = "agent-lightning"

    def __init__(self) -> None:
        super().__init__()
        self._attempts: dict[str, str] = {}

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a span or a rollout."""
        id, attempt = str(row.get("rollout_id")), str(row.get("attempt_id") or "")
        if attempt and self._attempts.setdefault(id, attempt) != attempt:
            self._attempts[id] = attempt
            self.traces.pop(id, None)
        trace = self.trace(id, file)
        if not attempt:
            trace.interrupted = trace.interrupted or row.get("status") == "cancelled"
            given = row.get("input")
            trace.asked += [("9", text) for _, text in _messages_in(given)[:1] if text]  # if no span has the question
            trace.named = True
            return None
        given, name = row.get("attributes") or {}, row.get("name")
        time = trace.see(row.get("start_time"), row.get("end_time"))
        failed = (row.get("status") or {}).get("status_code") == "ERROR"
        if name == "agentlightning.operation":
            output = _text(given.get("agentlightning.operation.output")) or str(
                (row.get("status") or {}).get("description") or ""
            )
            arguments = given.get("agentlightning.operation.input")
            trace.steps.append((time, str(given.get("agentlightning.operation.name")), arguments, failed, output))
        elif name == "agentlightning.exception":
            trace.interrupted = True
        trace.scores.update(_rewards_in(given))
        dialogue: dict[str, list[dict[str, Any]]] = {}
        for kind, add in (("prompt", trace.ask), ("completion", trace.answer)):
            dialogue[kind] = listed = [
                {
                    "role": given.get(f"gen_ai.{kind}.{number}.role"),
                    "content": given.get(f"gen_ai.{kind}.{number}.content"),
                }
                for number in range(1000)
                if f"gen_ai.{kind}.{number}.role" in given
            ]
            add(listed, time)
        self.keep_call(trace, dialogue["prompt"], dialogue["completion"], time)
        return None


def _rewards_in(given: Mapping[str, Any]) -> dict[str, float | str]:
    scores = dict[str, float | str]()
    for number in range(100):
        value = given.get(f"agentlightning.reward.{number}.value")
        if not isinstance(value, int | float):
            break
        scores[str(given.get(f"agentlightning.reward.{number}.name") or "reward")] = float(value)
    if isinstance(given.get("reward"), int | float):
        scores["reward"] = float(given["reward"])
    for name in ("agentops.task.output", "agentops.entity.output"):
        output = parsed_object(given.get(name))
        if output.get("type") == "reward" and isinstance(output.get("value"), int | float):
            scores["reward"] = float(output["value"])
    return scores


# -- Langfuse ---------------------------------------------------------------------------------------------------------


def fits_langfuse(row: dict[str, Any]) -> bool:
    """Return whether a line is of an exported table, or a file one trace that was downloaded."""
    if isinstance(row.get("observations"), list):
        return isinstance(row.get("scores"), list)
    return "project_id" in row and ("trace_id" in row or "session_id" in row)


class LangfuseReader(TraceReader):
    """Reads rows of traces, observations and scores."""

    format = "langfuse"

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a row, or all of a download."""
        if isinstance(row.get("observations"), list):
            whole = row.get("trace")
            for entry in [*([whole] if isinstance(whole, dict) else []), *row["observations"], *row["scores"]]:
                plain = {
                    re.sub(r"(?<=[a-z])[A-Z]", lambda sign: f"_{sign[0].lower()}", name): entry[name] for name in entry
                }
                self._read_row(plain, file)
        else:
            self._read_row(row, file)
        return None

    def _read_row(self, row: Mapping[str, Any], file: str) -> None:
        trace = self.trace(
            row.get("trace_id") or (row.get("id") if "trace_id" not in row else row.get("session_id")), file
        )
        if "data_type" in row:
            value = row.get("string_value") if row["data_type"] == "CATEGORICAL" else row.get("value")
            if row["data_type"] in ("NUMERIC", "BOOLEAN", "CATEGORICAL") and value is not None:
                trace.scores[str(row.get("name"))] = value if isinstance(value, str) else float(value)
            return
        time = trace.see(row.get("start_time", row.get("timestamp")), row.get("end_time"))
        trace.session = trace.session or str(row.get("session_id") or "")
        trace.person = trace.person or str(row.get("user_id") or "")
        failed, status = row.get("level") == "ERROR", str(row.get("status_message") or "")
        if row.get("type") == "TOOL":
            trace.steps.append(
                (time, str(row.get("name")), row.get("input"), failed, _text(row.get("output")) or status)
            )
        else:
            trace.ask(row.get("input"), time)
            trace.answer(row.get("output"), time)
            if row.get("type") == "GENERATION":
                self.keep_call(trace, row.get("input"), row.get("output"), time)
            trace.interrupted = trace.interrupted or bool(failed and _STOPPED.search(status))


# -- LangSmith --------------------------------------------------------------------------------------------------------


def fits_langsmith(row: dict[str, Any]) -> bool:
    """Return whether a line is a run, or feedback."""
    return row.keys() >= {"run_type", "trace_id", "dotted_order"} or row.keys() >= {"key", "score", "run_id"}


class LangSmithReader(TraceReader):
    """Reads runs and feedback. The sums of feedback that runs hold count only where there is no feedback."""

    format = "langsmith"

    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[str, dict[str, float | str]] = {}

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a run, or feedback."""
        trace = self.trace(row.get("trace_id") or row.get("run_id"), file)
        if "run_type" not in row:
            if isinstance(row.get("score"), int | float):
                trace.scores[str(row.get("key"))] = float(row["score"])
            return None
        time, error = trace.see(row.get("start_time"), row.get("end_time")), str(row.get("error") or "")
        extra = row.get("extra")
        metadata = extra.get("metadata") if isinstance(extra, dict) and isinstance(extra.get("metadata"), dict) else {}
        names = [metadata.get(name) for name in ("thread_id", "session_id", "conversation_id")] if metadata else []
        trace.session = trace.session or str(next(filter(None, names), ""))
        trace.person = trace.person or str((metadata or {}).get("user_id") or "")
        sums = row.get("feedback_stats")
        for name, entry in sums.items() if isinstance(sums, dict) else ():
            if isinstance(entry, dict) and isinstance(entry.get("avg"), int | float):
                self._sums.setdefault(trace.id, {})[name] = float(entry["avg"])
        if row["run_type"] == "tool":
            trace.steps.append(
                (time, str(row.get("name")), row.get("inputs"), bool(error), _text(row.get("outputs")) or error)
            )
        else:
            trace.ask(row.get("inputs"), time)
            trace.answer(row.get("outputs"), time)
            if row["run_type"] == "llm":
                self.keep_call(trace, row.get("inputs"), row.get("outputs"), time)
            trace.interrupted = trace.interrupted or bool(_STOPPED.match(error))
        return None

    def close(self) -> None:
        """Take the sums where there is no feedback."""
        for id, sums in self._sums.items():
            if not self.traces[id].scores:
                self.traces[id].scores.update(sums)
        super().close()
