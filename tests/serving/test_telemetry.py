"""Spans of OpenTelemetry for what is done with a memory, and traces that go on in it. `make test-peers` has its packages."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keepworth import Client, Memory
from keepworth.memory import telemetry
from keepworth.memory.errors import UnknownItem
from keepworth.memory.evaluations import Evaluation, reward_by
from keepworth.memory.store import log
from keepworth.serving.http_server import HttpServer
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import with_token
from tests.serving.gate import Gate, finished, until, user
from tests.serving.memory_process import TOKEN, MemoryProcess

SECRET = "the plover sings"
IDLE = """
import sys
import keepworth
with keepworth.Memory(":memory:", encoder=None) as memory:
    memory.add("the plover sings")
    with memory.episode("what sings") as episode:
        episode.search()
    memory.search("plover")
    keepworth.Client("http://127.0.0.1:1")
print(*(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_opentelemetry_is_not_imported_without_a_provider() -> None:
    ran = subprocess.run([sys.executable, "-c", IDLE], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == ""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[Any]]]:
    """A provider of spans, for this test alone; returns those that have ended since the last call, in order."""
    pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.util._once import Once

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    trace.set_tracer_provider(provider)

    def ended() -> list[Any]:
        listed = list(exporter.get_finished_spans())
        exporter.clear()
        return listed

    yield ended
    provider.shutdown()


Spans = Callable[[], list[Any]]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "agent.mem", encoder="hashing", seed=0) as opened:
        yield opened


def test_search_span_has_decision_and_propensity(memory: Memory, spans: Spans) -> None:
    memory.add(SECRET)
    spans()
    hits = memory.search("plover", top_k=3)
    (span,) = spans()
    assert (span.name, span.kind.name) == ("search_memory", "INTERNAL")
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "search_memory",
        "gen_ai.memory.store.id": "agent.mem",
        "gen_ai.memory.record.count": 1,
        "keepworth.decision": hits.decision,
        "keepworth.propensity": hits.propensity,
    }
    with memory.episode("what sings") as episode:
        episode.search()
    assert spans()[-1].attributes["keepworth.episode"] == episode.id


def test_each_way_of_writing_is_an_operation_of_the_conventions(memory: Memory, spans: Spans) -> None:
    def last() -> tuple[str, Any, Any]:
        (span,) = spans()
        assert span.name == span.attributes["gen_ai.operation.name"]
        return (span.name, *(span.attributes.get(f"gen_ai.memory.record.{what}") for what in ("id", "count")))

    id = memory.add(SECRET, user_id="ana").id
    assert last() == ("create_memory", id, 1)
    memory.add_many(["one", "two"], user_id="ana")
    assert last() == ("create_memory", None, 2)
    memory.add([{"role": "user", "content": "I live in Oslo."}], infer=True, user_id="ana")
    assert last() == ("upsert_memory", None, 1)
    memory.update(id, "the plover sang")
    assert last() == ("update_memory", id, 1)
    later = memory.supersede(id, "the plover sleeps").id
    assert last() == ("update_memory", later, 1)
    put = memory.put("eats no meat", name={"key": "diet"}, user_id="ana")
    assert put is not None
    assert last() == ("upsert_memory", put.id, 1)
    memory.delete(later)
    assert last() == ("delete_memory", later, 1)
    memory.forget(put.id, purge_history=True)
    assert last() == ("delete_memory", put.id, 1)
    assert memory.delete_all(user_id="ana") == 4  # with what was superseded
    assert last() == ("delete_memory", None, 4)
    memory.erase(user_id="ana")
    assert last()[0] == "delete_memory"


def test_spans_hold_texts_only_on_request(memory: Memory, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_it() -> str:
        memory.add(SECRET, user_id="ana")
        memory.search("plover", user_id="ana")
        with pytest.raises(UnknownItem):
            memory.update("plover", SECRET)
        listed = spans()
        assert (listed[-1].status.status_code.name, listed[-1].attributes["error.type"]) == ("ERROR", "UnknownItem")
        return "".join(span.to_json() for span in listed)

    assert "plover" not in all_of_it()
    monkeypatch.setenv(telemetry.CAPTURE, "true")
    texts = all_of_it()
    assert '"gen_ai.memory.query.text": "plover"' in texts
    memory.search("plover", user_id="ana")
    (record,) = json.loads(spans()[0].attributes["gen_ai.memory.records"])
    assert (record["content"], sorted(record)) == (SECRET, ["content", "id", "score"])


def test_search_within_a_span_joins_its_trace(memory: Memory, spans: Spans) -> None:
    from opentelemetry import trace

    memory.add(SECRET)
    with trace.get_tracer("agent").start_as_current_span("invoke_agent") as agent:
        with memory.episode("what sings") as episode:
            episode.search()
        decision = memory.search("plover").decision
    listed = spans()
    assert {span.parent.span_id for span in listed if span.name == "search_memory"} == {agent.context.span_id}
    place = (f"{agent.context.trace_id:032x}", f"{agent.context.span_id:016x}")
    assert reward_by(memory, [Evaluation("helpful", 1.0, places=(place,))]).rewarded == {"helpful": 1}
    with memory.store.database.reading() as connection:
        entries = list(log.counting(connection, "kind = 'REWARD'"))
    assert [(entry.episode, entry.body.get("decision", "")) for entry in entries] == [("", decision), (episode.id, "")]


def test_a_trace_goes_on_from_the_client_to_the_server(tmp_path: Path, spans: Spans) -> None:
    from opentelemetry import trace

    with MemoryServer(tmp_path / "served.mem", encoder="hashing") as server:
        client = Client(server.url, server.token)
        client.add(SECRET)
        spans()
        with trace.get_tracer("agent").start_as_current_span("invoke_agent") as agent:
            episode = client.episode("what sings")
            hits = episode.search()
        inner, outer, _ = spans()
        assert [span.attributes["gen_ai.operation.name"] for span in (inner, outer)] == ["search_memory"] * 2
        assert [span.kind.name for span in (inner, outer)] == ["INTERNAL", "CLIENT"]
        assert (inner.parent.span_id, outer.parent.span_id) == (outer.context.span_id, agent.context.span_id)
        assert {span.context.trace_id for span in (inner, outer)} == {agent.context.trace_id}
        assert outer.attributes["server.port"] == int(server.url.rpartition(":")[2])
        assert outer.attributes["keepworth.episode"] == episode.id
        assert [span.attributes["keepworth.decision"] for span in (inner, outer)] == [hits.decision] * 2
        with with_token(server, base="/v1/memory") as http:
            (summary,) = http.get("/episode_summaries").json()["episodes"]
        assert summary["trace"] == f"{agent.context.trace_id:032x}"
        client.close()


def test_a_trace_goes_on_in_the_gateway(gate: Gate, spans: Spans) -> None:
    gate.memory.add("Deploy with: make ship", user_id="ana")
    spans()
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    body = {"model": "scripted", "messages": [user("How do I deploy?")]}
    headers = {"X-Keepworth-User": "ana", "traceparent": f"00-{trace}-{parent}-01"}
    gate.http.post("/v1/chat/completions", json=body, headers=headers).raise_for_status()
    until(lambda: finished(gate.server))
    span = next(span for span in spans() if span.name == "search_memory")
    assert (span.context.trace_id, span.parent.span_id) == (int(trace, 16), int(parent, 16))


EXPORTER = """
import sys
from opentelemetry import trace
from opentelemetry._logs import LogRecord, set_logger_provider, get_logger
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from keepworth import Client

url, token = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}"}
spans, logs = TracerProvider(), LoggerProvider()
spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces", headers=headers, compression=Compression.Gzip)))
logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(f"{url}/v1/logs", headers=headers)))
trace.set_tracer_provider(spans)
memory, event = Client(url, token), "gen_ai.evaluation.result"
with trace.get_tracer("agent").start_as_current_span("invoke_agent") as span:
    episode = memory.episode("what sings")
    decision = episode.search().decision
    span.add_event(event, {"gen_ai.evaluation.name": "helpful", "gen_ai.evaluation.score.value": 0.75})
logs.get_logger("evaluator").emit(LogRecord(event_name=event, timestamp=5, attributes={
    "gen_ai.evaluation.name": "exact", "gen_ai.evaluation.score.label": "pass", "keepworth.decision": decision}))
spans.shutdown()
logs.shutdown()
print(episode.id)
"""


@pytest.fixture
def exporters() -> None:
    pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="opentelemetry-exporter-otlp-proto-http")


def test_exporter_of_another_process_rewards_searches_of_its_trace(tmp_path: Path, exporters: None) -> None:
    with MemoryProcess(tmp_path / "agent.mem") as process:
        client = Client(process.url, TOKEN)
        client.add(SECRET)
        command = [sys.executable, "-c", EXPORTER, process.url, TOKEN]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        given = {row.source: row.rewards for row in client.outcomes() if row.kind == "evaluation"}
        assert given == {"evaluation:exact": 1, "evaluation:helpful": 1}
        rewards = {reward.name: reward.value for reward in client.episode_record(ran.stdout.strip()).rewards}
        assert rewards == {"evaluation:helpful": 0.75, "evaluation:exact": 1.0}
        client.close()


def test_a_served_memory_sends_spans_to_the_exporter_of_its_environment(tmp_path: Path, exporters: None) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    received, arrived = list[Any](), threading.Event()

    async def receive(request: Request) -> Response:
        sent = ExportTraceServiceRequest.FromString(await request.body())
        received.extend(
            (resource.resource, span)
            for resource in sent.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        )
        arrived.set()
        return Response(b"", media_type="application/x-protobuf")

    app = Starlette(routes=[Route("/v1/traces", receive, methods=["POST"])])
    with HttpServer(lambda workers: app, name="receiver", patience=1) as receiver:
        process = MemoryProcess(tmp_path / "agent.mem")
        process.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "NO_PROXY": "127.0.0.1"}
        with process:
            client = Client(process.url, TOKEN)
            client.add(SECRET)
            decision = client.search("plover").decision
            client.close()
            code, errors = process.stop()
        assert code == 130, errors
        assert f"Spans go to {receiver.url}." in errors
        assert arrived.wait(30)
    assert [span.name for _, span in received] == ["create_memory", "search_memory"]
    attributes = {pair.key: pair.value for pair in received[-1][1].attributes}
    assert attributes["keepworth.decision"].string_value == decision
    assert {pair.key: pair.value.string_value for pair in received[0][0].attributes}["service.name"] == "keepworth"
    assert SECRET.encode() not in b"".join(span.SerializeToString() for _, span in received)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, ""),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, ""),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, 'not installed. pip install "keepworth[telemetry]"'),
    ],
)
def test_exporter_needs_the_environment_and_its_packages(
    environment: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("keepworth.base.extras._is_there", lambda module: False)
    answer = telemetry.export_spans()
    assert said in answer
    assert bool(said) == bool(answer)
