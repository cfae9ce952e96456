"""Spans of OpenTelemetry (extra `tracing`); where its API is not installed, and where no SDK is set up, nothing at all.

A span is of one request, one recall, one call upstream or one write. None says what anybody wrote. The trace that a caller is in
(W3C `traceparent`) is gone on with, and is passed upstream.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

try:
    from opentelemetry import propagate, trace

    TRACER: Any = trace.get_tracer("keepworth")
except ImportError:  # the extra is not installed
    propagate = trace = TRACER = None

REQUEST, CALL, WORK = "SERVER", "CLIENT", "INTERNAL"
"""Kinds of spans."""


class ServedSpan:
    """One span, or none."""

    __slots__ = ("_span",)

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def note(self, attributes: Mapping[str, Any]) -> None:
        """What is not known, None or "", is left out."""
        if self._span is not None and self._span.is_recording():
            self._span.set_attributes({name: value for name, value in attributes.items() if value not in (None, "")})

    def rename(self, name: str) -> None:
        if self._span is not None:
            self._span.update_name(name)

    def fail(self, kind: str) -> None:
        """kind: an error's name or a status, never what it says."""
        if self._span is not None:
            self._span.set_attribute("error.type", kind)
            self._span.set_status(trace.Status(trace.StatusCode.ERROR))

    def end(self) -> None:
        """Once is enough; what is noted later goes nowhere."""
        if self._span is not None:
            self._span.end()
            self._span = None

    def headers(self) -> dict[str, str]:
        """What tells an upstream of the trace."""
        carrier: dict[str, str] = {}
        if self._span is not None:
            propagate.inject(carrier, context=trace.set_span_in_context(self._span))
        return carrier


def begun(name: str, kind: str, headers: Mapping[str, str] | None = None) -> ServedSpan:
    """A span inside the present one, or inside the one that headers tell of. Whoever begins it ends it."""
    if TRACER is None:
        return ServedSpan()
    outside = None if headers is None else propagate.extract(dict(headers))
    return ServedSpan(TRACER.start_span(name, context=outside, kind=trace.SpanKind[kind]))


@contextlib.contextmanager
def span(name: str, kind: str = WORK, headers: Mapping[str, str] | None = None) -> Iterator[ServedSpan]:
    """The present span, inside."""
    made = begun(name, kind, headers)
    if made._span is None:
        yield made
        return
    try:
        with trace.use_span(made._span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            yield made
    except BaseException as error:
        made.fail(type(error).__name__)  # not what it says: that may quote what somebody wrote
        raise
    finally:
        made.end()
