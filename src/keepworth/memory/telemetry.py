"""Spans of OpenTelemetry for what is done with a memory, by its GenAI conventions: `search_memory`, `create_memory` and so on.

They are off, cost next to nothing and import nothing, unless the program has a provider of spans: where it has set one itself, or
where `keepworth serve` finds an exporter in the environment (`export_spans`). A span says how many items, with which decision and
propensity; texts are in it only where OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says so.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from keepworth.base.extras import fix_for, missing
from keepworth.base.text import in_words
from keepworth.memory.evaluations import DECISION, EPISODE
from keepworth.memory.item import Item, Status
from keepworth.memory.store import traces
from keepworth.records.episode import Operation, OperationKind

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

Owner = TypeVar("Owner", bound=type)
OPERATIONS = {
    **dict.fromkeys(("search", "answer"), "search_memory"),
    **dict.fromkeys(("add", "add_many"), "create_memory"),
    **dict.fromkeys(("update", "supersede"), "update_memory"),
    **dict.fromkeys(("put", "apply"), "upsert_memory"),
    **dict.fromkeys(("delete", "delete_all", "forget", "erase"), "delete_memory"),
}
"""By the names of methods, the operations of the conventions."""
_KINDS = {
    OperationKind.ADD: "create_memory",
    OperationKind.UPDATE: "update_memory",
    OperationKind.SUPERSEDE: "update_memory",
    OperationKind.MERGE: "update_memory",
    OperationKind.DELETE: "delete_memory",
}
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
PROPENSITY = "keepworth.propensity"
_INSIDE: ContextVar[bool] = ContextVar("inside a span", default=False)
_tracer: tuple[Any, Any] = (None, None)
"""The provider of spans that was asked last, and its tracer for this package."""


def find_tracer() -> Tracer | None:
    """Return what makes spans; None if this program has no provider of spans. Nothing is imported."""
    global _tracer
    api = sys.modules.get("opentelemetry.trace")
    if api is None or not hasattr(api, "ProxyTracerProvider"):  # it is being imported
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider):
        return None
    if _tracer[0] is not provider:
        from keepworth import __version__

        _tracer = (provider, provider.get_tracer("keepworth", __version__))
    tracer: Tracer = _tracer[1]
    return tracer


def trace_operations(owner: Owner) -> Owner:
    """Decorate a class so that each of its methods in `OPERATIONS` is a span. Its `_span_attributes` are what all these spans
    say: a client names its server there."""
    for name, method in list(vars(owner).items()):
        if name in OPERATIONS:
            setattr(owner, name, _traced(name, method))
    return owner


def _traced(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, /, *arguments: Any, **options: Any) -> Any:
        tracer = find_tracer()
        if tracer is None or _INSIDE.get():  # what a method does by another one is one operation
            return method(self, *arguments, **options)
        with _span(tracer, _operation(name, arguments, options), self._span_attributes) as span:
            result = method(self, *arguments, **options)
            if span.is_recording():
                span.set_attributes(_described(result, arguments, options))
            return result

    return call


def _operation(name: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    if name == "add" and options.get("infer"):
        return "upsert_memory"
    if name == "apply" and arguments and isinstance(arguments[0], Operation):
        return _KINDS.get(arguments[0].kind, OPERATIONS[name])
    return OPERATIONS[name]


@contextmanager
def _span(tracer: Tracer, operation: str, attributes: Mapping[str, Any]) -> Iterator[Span]:
    """Open a span for an operation, within which searches and episodes are part of its trace."""
    from opentelemetry.trace import SpanKind, StatusCode, get_current_span

    around = get_current_span().get_span_context()
    kind = SpanKind.CLIENT if "server.address" in attributes else SpanKind.INTERNAL
    named = {"gen_ai.operation.name": operation, **attributes}
    quiet = {"record_exception": False, "set_status_on_exception": False}  # messages quote texts
    with tracer.start_as_current_span(operation, kind=kind, attributes=named, **quiet) as span:
        inner = span.get_span_context()
        spans = [context.span_id for context in (around, inner) if context.trace_id == inner.trace_id]
        trace = traces.TraceContext(f"{inner.trace_id:032x}", tuple(f"{id:016x}" for id in spans))
        reset = _INSIDE.set(True)
        try:
            with traces.within(trace if inner.is_valid else None):
                yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            _INSIDE.reset(reset)


def _described(result: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a span says of the result of an operation."""
    from keepworth.memory.operations import OperationOutcome
    from keepworth.memory.search.search import Hits

    attributes: dict[str, Any] = {}
    records: list[tuple[Item, float | None]] = []
    if episode := options.get("episode"):
        attributes[EPISODE] = str(episode)
    if isinstance(result, Hits):
        attributes |= {DECISION: result.decision} if result.decision else {}
        attributes |= {PROPENSITY: result.propensity, "gen_ai.memory.record.count": len(result)}
        records = [(hit.item, hit.score) for hit in result]
        if captures():
            attributes["gen_ai.memory.query.text"] = result.query
    elif isinstance(result, Item):
        attributes |= {"gen_ai.memory.record.id": result.id, "gen_ai.memory.record.count": 1}
        records = [(result, None)]
    elif isinstance(result, OperationOutcome):
        attributes |= {"gen_ai.memory.record.id": result.item} if result.item else {}
    elif isinstance(result, list):
        attributes["gen_ai.memory.record.count"] = len(result)
        records = [(item, None) for item in result if isinstance(item, Item)]
    elif isinstance(result, int):
        attributes["gen_ai.memory.record.count"] = result
    else:  # what was erased, or else deleted
        ids = getattr(result, "ids", [argument for argument in arguments if isinstance(argument, str)])
        attributes |= {"gen_ai.memory.record.count": len(ids)} if ids else {}
        attributes |= {"gen_ai.memory.record.id": ids[0]} if len(ids) == 1 else {}
    if records and captures():
        listed = [
            {"id": item.id, "content": item.text, **({} if score is None else {"score": score})}
            for item, score in records
            if item.status is not Status.QUARANTINED
        ]
        attributes["gen_ai.memory.records"] = json.dumps(listed, ensure_ascii=False)
    return attributes


def captures() -> bool:
    """Return whether texts may be in spans."""
    return os.environ.get(CAPTURE, "").strip().lower() in ("true", "span_only", "span_and_event")


@contextmanager
def take_over(headers: Mapping[str, str]) -> Iterator[None]:
    """Inside this context, what is done is part of the trace that a call's headers name, if they name one."""
    trace = traces.read_traceparent(headers.get("traceparent", ""))
    if trace is None or find_tracer() is None:
        with traces.within(trace):
            yield
        return
    from opentelemetry.context import attach, detach
    from opentelemetry.propagate import extract
    from opentelemetry.trace import get_current_span

    if (
        get_current_span().get_span_context().is_valid
    ):  # the server is instrumented, and has a span of its own for the call
        yield
        return
    reset = attach(extract(headers))
    try:
        with traces.within(trace):
            yield
    finally:
        detach(reset)


def headers_of_trace() -> dict[str, str]:
    """Return the headers with which a call says in which trace it is made; {} if there are no spans."""
    if find_tracer() is None:
        return {}
    from opentelemetry.propagate import inject

    headers: dict[str, str] = {}
    inject(headers)
    return headers


def export_spans() -> str:
    """Send spans where the environment says, as OpenTelemetry's variables have it, unless this program has a provider already.

    Returns:
        Where they go, or why they cannot be sent; "" where the environment names no exporter.
    """
    environment = os.environ
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    named = next((name for name in names if environment.get(name)), "")
    off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none"
    )
    if not named or off or find_tracer() is not None:
        return ""
    if absent := missing("telemetry"):
        verb = "is" if len(absent) == 1 else "are"
        return f"{named} is set, and no spans are sent: {in_words(absent)} {verb} not installed. {fix_for('telemetry')}"
    if "grpc" in (environment.get(f"OTEL_EXPORTER_OTLP_{part}PROTOCOL") for part in ("TRACES_", "")):
        return f"{named} is set, and no spans are sent: they go by http/protobuf, and OTEL_EXPORTER_OTLP_PROTOCOL says grpc."
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import set_tracer_provider

    has_name = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    provider = TracerProvider(resource=Resource.create({} if has_name else {"service.name": "keepworth"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    set_tracer_provider(provider)
    return f"Spans go to {environment[named]}."
