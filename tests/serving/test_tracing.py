"""Spans, as OpenTelemetry's own SDK collects them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from keepworth.serving import tracing
from tests.serving.gate import Gate

OUTSIDE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "TRACER", provider.get_tracer("keepworth"))
    return exporter


def ended(gate: Gate, spans: InMemorySpanExporter) -> dict[str, Any]:
    """By name, once the server has ended: what is written beside is waited for."""
    gate.server.close()
    return {each.name: each for each in spans.get_finished_spans() if each.name != "POST /v1/memory/items"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_one_trace_and_goes_on_upstream(gate: Gate, spans: InMemorySpanExporter, stream: bool) -> None:
    gate.memory.add("I am allergic to peanuts.", user_id="ana")
    asked = {"model": "scripted", "input": "I am allergic to what, tell me.", "stream": stream}
    headers = {"X-Keepworth-User": "ana", "traceparent": OUTSIDE}
    answer = gate.http.post("/v1/responses", json=asked, headers=headers)
    found = ended(gate, spans)
    assert sorted(found) == ["POST /v1/responses", "chat scripted", "keepworth.recall", "keepworth.write"]
    request, call = found["POST /v1/responses"], found["chat scripted"]
    assert {f"{each.context.trace_id:032x}" for each in found.values()} == {OUTSIDE.split("-")[1]}
    assert f"{request.parent.span_id:016x}" == OUTSIDE.split("-")[2]
    for name in ("chat scripted", "keepworth.recall", "keepworth.write"):
        assert found[name].parent.span_id == request.context.span_id
    sent = gate.script.sent[-1].headers["traceparent"]
    assert sent.split("-")[1:3] == [f"{call.context.trace_id:032x}", f"{call.context.span_id:016x}"]
    episode = answer.headers["x-keepworth-episode"]
    assert dict(call.attributes) == {
        "server.address": gate.server.gateway.upstream.url,
        "keepworth.episode": episode,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.model": "scripted",
        "gen_ai.response.id": "resp_0",
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 2,
    }
    recall = dict(found["keepworth.recall"].attributes)
    assert (recall["keepworth.memory.recalled"], recall["keepworth.memory.injected"]) == (1, 1)
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/responses",
        "http.response.status_code": 200,
    }
    assert "peanuts" not in "".join(each.to_json() for each in found.values()), (
        "spans say what was done, not what was said"
    )


def test_what_fails_is_marked(gate: Gate, spans: InMemorySpanExporter) -> None:
    gate.script.fails = [429]
    gate.ask({"role": "user", "content": "I like green tea."})
    gate.http.get("/v1/memory/items/mone")
    found = ended(gate, spans)
    assert found["chat scripted"].attributes["error.type"] == "429"
    assert not found["chat scripted"].status.is_ok
    route = found["GET /v1/memory/items/{id}"]
    assert route.attributes["http.response.status_code"] == 404
    assert route.status.is_unset, "the caller's mistake is no error of the server"
    assert "mone" not in route.to_json()


def test_without_the_api_nothing_is_done(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "TRACER", None)
    monkeypatch.setattr(tracing, "trace", None)
    monkeypatch.setattr(tracing, "propagate", None)
    answer = gate.ask({"role": "user", "content": "I like green tea."})
    assert answer.status_code == 200
    headers = {"traceparent": OUTSIDE, "Authorization": f"Bearer {gate.server.token}"}
    httpx.get(f"{gate.server.url}/v1/models", headers=headers, trust_env=False)
    assert gate.script.sent[-1].headers["traceparent"] == OUTSIDE, "it passes as the caller sent it"
