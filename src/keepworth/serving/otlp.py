"""Receives OpenTelemetry's data over HTTP (OTLP, `/v1/traces` and `/v1/logs`): evaluations in it become rewards.

Everything else in a request is accepted and left alone. A request may be JSON or, with the package opentelemetry-proto, protobuf,
and packed with gzip. What an evaluation is, and what it rewards, says `keepworth.memory.evaluations`.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from functools import partial
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import fix_for, missing
from keepworth.memory.evaluations import EvaluationCounts, evaluations_in, join_spans, reward_by
from keepworth.serving.access import Access
from keepworth.serving.calls import NotServed, ReadyAnswer, RouteAnswers, ServedCall, json_object
from keepworth.serving.memory_routes import problem
from keepworth.serving.open_memories import OpenMemories

PATHS = {"/v1/traces": "Spans", "/v1/logs": "LogRecords"}
"""The routes, with what each counts in its answer."""
JSON, PROTOBUF = "application/json", "application/x-protobuf"
_WRONG = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What reading raises for values that are not of the kinds that OTLP has."""
_MOST_REASONS = 10
"""The most reasons that an answer says."""


def receiver_table(memories: OpenMemories, most: int) -> dict[tuple[str, str], RouteAnswers]:
    """Return the functions that answer, by method and path. They read the body themselves.

    Args:
        memories: The token of a request selects one of them.
        most: The most bytes of a body that was unpacked.
    """
    return {("POST", path): partial(_receive, memories, path, most) for path in PATHS}


def otlp_error(status: int, message: str, kind: str) -> dict[str, Any]:
    """Return an error in the form of OTLP: a status of gRPC, with a message.

    Args:
        status: The status of the response, from which that of gRPC follows.
        message: What is wrong and how to mend it.
        kind: Not used, as the type follows from the status.
    """
    codes = {401: 16, 403: 7, 404: 12, 413: 8, 429: 8, 503: 14}
    return {"code": codes.get(status, 13 if status >= 500 else 3), "message": message}


def _receive(memories: OpenMemories, path: str, most: int, call: ServedCall) -> ReadyAnswer:
    access: Access = call.access
    access.require("reward")
    kind = call.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in (JSON, PROTOBUF):
        raise NotServed(
            f"OTLP is sent as {JSON} or {PROTOBUF}, not as {kind or 'nothing said'}.",
            "Set the exporter's protocol to http/protobuf or http/json.",
            status=415,
            about="Content-Type",
            value=kind,
        )
    if kind == PROTOBUF and (absent := missing("telemetry", "opentelemetry.proto")):
        raise NotServed(
            f"OTLP as protobuf is read with the package opentelemetry-proto, which this server has not ({absent[0]}).",
            f"{fix_for('telemetry')} there, or set the exporter's protocol to http/json.",
            status=415,
            about="Content-Type",
            value=kind,
        )
    raw = _unpacked(call, most)
    try:
        request = json_object(raw) if kind == JSON else _from_protobuf(path, raw)
        evaluations = list(evaluations_in(request))
        memory = memories.of(access).memory
        if path == "/v1/traces":
            join_spans(memory, request)
        counts = reward_by(memory, evaluations, access.user_id)
    except NotServed:
        raise
    except KeepworthError as error:
        raise problem(error, {}, memories.paths()) from error
    except _WRONG as error:
        raise NotServed(
            f"The body is not as OTLP has it ({type(error).__name__}).", "Send what an exporter of OTLP makes."
        ) from error
    return _answer(path, kind, counts)


def _unpacked(call: ServedCall, most: int) -> bytes:
    """Return the body without its packing. Raises NotServed if it is larger than `most`, broken, or packed in another way."""
    packing = call.headers.get("content-encoding", "identity").strip().lower()
    if packing == "identity":
        return call.raw
    if packing != "gzip":
        raise NotServed(
            f"A body may be packed with gzip, not with {packing!r:.40}.",
            "Set the exporter's compression to gzip or none.",
            status=415,
            about="Content-Encoding",
            value=packing,
        )
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(call.raw)) as packed:
            raw = packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise NotServed(
            "The body cannot be unpacked with gzip.", "Send it whole, or without Content-Encoding.", about="body"
        ) from error
    if len(raw) > most:
        raise NotServed(f"A body may have up to {most} bytes once it is unpacked.", "Send less at once.", status=413)
    return raw


def _from_protobuf(path: str, raw: bytes) -> dict[str, Any]:
    """Read a request in protobuf as the same in JSON. Raises NotServed."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    try:
        request = _message(path, "Request").FromString(raw)
    except DecodeError as error:
        raise NotServed("The body is no request of OTLP in protobuf.", "Send what an exporter makes.") from error
    plain: dict[str, Any] = MessageToDict(request, use_integers_for_enums=True)
    return plain


def _message(path: str, what: str) -> Any:
    """Return the class of a request or of a response in protobuf."""
    if path == "/v1/traces":
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

        return getattr(trace_service_pb2, f"ExportTraceService{what}")
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2

    return getattr(logs_service_pb2, f"ExportLogsService{what}")


def _answer(path: str, kind: str, counts: EvaluationCounts) -> ReadyAnswer:
    """Answer in the form of the request: an empty object, or how many evaluations became no reward, and why."""
    answer: dict[str, Any] = {}
    if counts.refused:
        reasons = [f"{reason} ({number})" if number > 1 else reason for reason, number in counts.reasons.most_common()]
        more = f"; and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
        answer["partialSuccess"] = {
            f"rejected{PATHS[path]}": str(counts.refused),  # 64 bits are texts in the JSON of protobuf
            "errorMessage": f"evaluations that became no reward: {'; '.join(reasons[:_MOST_REASONS])}{more}",
        }
    if kind == JSON:
        return ReadyAnswer(json.dumps(answer).encode())
    from google.protobuf.json_format import ParseDict

    return ReadyAnswer(ParseDict(answer, _message(path, "Response")()).SerializeToString(), PROTOBUF)
