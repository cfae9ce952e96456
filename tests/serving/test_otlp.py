"""Evaluations that come to a served memory by OpenTelemetry become rewards of what it showed."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from keepworth import Client
from keepworth.base import extras
from keepworth.memory.store import log, traces
from keepworth.serving.access import new_access
from keepworth.serving.memory_server import MemoryServer
from keepworth.serving.otlp import PROTOBUF
from tests.serving.callers import as_, with_token
from tests.serving.gate import EPISODE, Gate, finished, until, user

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
IDS = iter(range(10**6))
EVENT = "gen_ai.evaluation.result"


def trace_id() -> str:
    return f"{next(IDS) + 1:032x}"


def attributes(given: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = {float: "doubleValue", int: "intValue", str: "stringValue"}
    return [{"key": name, "value": {kinds[type(value)]: value}} for name, value in given.items()]


def evaluation(
    name: str = "helpful", value: Any = None, label: str = "", *, time: int = 1_800_000_000_000_000_000, **named: str
) -> dict[str, Any]:
    given = {"gen_ai.evaluation.name": name}
    given |= {} if value is None else {"gen_ai.evaluation.score.value": value}
    given |= {"gen_ai.evaluation.score.label": label} if label else {}
    given |= {f"keepworth.{what}": id for what, id in named.items()}
    return {"timeUnixNano": str(time), "attributes": attributes(given)}


def in_log(*events: dict[str, Any], trace: str = "", span: str = "") -> dict[str, Any]:
    records = [{"eventName": EVENT, "traceId": trace, "spanId": span, **event} for event in events]
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}


def in_span(*events: dict[str, Any], trace: str, span: str = SPAN, **more: Any) -> dict[str, Any]:
    listed = [{"name": EVENT, **event} for event in events]
    whole = {"traceId": trace, "spanId": span, "name": "chat", "events": listed, **more}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [whole]}]}]}


def send(server: MemoryServer, tenant: str, request: dict[str, Any], *roles: str, **access: Any) -> httpx.Response:
    with as_(server, tenant, *(roles or ("reward",)), base="", **access) as client:
        client.headers["Content-Type"] = "application/json"
        return client.post(f"/v1/{'logs' if 'resourceLogs' in request else 'traces'}", content=json.dumps(request))


def rewards(server: MemoryServer, tenant: str, episode: str) -> list[tuple[str, float]]:
    """The rewards in an episode that count, by their sources."""
    store = server.memories.of(new_access(tenant=tenant) if tenant else new_access()).memory.store
    with store.database.reading() as connection:
        entries = log.counting(connection, "episode = ? AND kind = 'REWARD'", (episode,))
        return [(entry.source, entry.body["value"]) for entry in entries]


@pytest.fixture
def episode(server: MemoryServer, tenant: str) -> Callable[..., tuple[str, str]]:
    """Begins an episode with a search, and returns the ids of both."""
    with as_(server, tenant) as client:
        client.post("/items", json={"content": "Deploy with: make ship", "user_id": "ana"}).raise_for_status()

    def begin(trace: str = "", span: str = SPAN, user_id: str = "ana") -> tuple[str, str]:
        with as_(server, tenant) as client:
            if trace:
                client.headers["traceparent"] = f"00-{trace}-{span}-01"
            id = client.post("/episodes", json={"task": "how to deploy", "user_id": user_id}).json()["id"]
            return id, client.post(f"/episodes/{id}/search", json={}).json()["decision"]

    return begin


Begin = Callable[..., tuple[str, str]]


def test_evaluation_of_a_trace_rewards_its_searches(server: MemoryServer, tenant: str, episode: Begin) -> None:
    trace = trace_id()
    id, _ = episode(trace)
    other, _ = episode(trace_id())
    answer = send(server, tenant, in_span(evaluation("helpful", 0.75), trace=trace))
    assert (answer.status_code, answer.json()) == (200, {})
    assert rewards(server, tenant, id) == [("evaluation:helpful", 0.75)]
    assert rewards(server, tenant, other) == []


@pytest.mark.parametrize("named", ["episode", "decision"])
def test_evaluation_may_name_an_episode_or_decision(
    server: MemoryServer, tenant: str, episode: Begin, named: str
) -> None:
    id, decision = episode()
    target = {named: id if named == "episode" else decision}
    assert send(server, tenant, in_log(evaluation("exact", 1, **target))).json() == {}
    assert rewards(server, tenant, id) == [("evaluation:exact", 1.0)]


def test_evaluated_span_rewards_searches_directly_inside_it(server: MemoryServer, tenant: str, episode: Begin) -> None:
    trace, spans = trace_id(), ("00000000000000aa", "00000000000000bb")
    first, second = (episode(trace, span)[0] for span in spans)
    send(server, tenant, in_log(evaluation("helpful", 1.0), trace=trace, span=spans[1]))
    assert [len(rewards(server, tenant, id)) for id in (first, second)] == [0, 1]
    send(server, tenant, in_log(evaluation("fast", 1.0), trace=trace, span="00000000000000cc"))
    assert [len(rewards(server, tenant, id)) for id in (first, second)] == [1, 2]


def test_a_search_outside_an_episode_is_part_of_its_trace(server: MemoryServer, tenant: str, episode: Begin) -> None:
    trace = trace_id()
    with as_(server, tenant) as client:
        found = client.post(
            "/search", json={"query": "deploy", "user_id": "ana"}, headers={"traceparent": f"00-{trace}-{SPAN}-01"}
        )
    assert found.json()["decision"]
    assert send(server, tenant, in_span(evaluation("helpful", 0.0), trace=trace)).json() == {}


def test_a_span_that_names_a_search_brings_it_into_its_trace(server: MemoryServer, tenant: str, episode: Begin) -> None:
    (id, decision), trace = episode(), trace_id()
    shown = attributes({"keepworth.decision": decision})
    assert send(server, tenant, in_span(trace=trace, attributes=shown)).json() == {}
    send(server, tenant, in_log(evaluation("helpful", 0.5), trace=trace))
    assert rewards(server, tenant, id) == [("evaluation:helpful", 0.5)]


def test_evaluator_span_names_its_target_by_a_link(server: MemoryServer, tenant: str, episode: Begin) -> None:
    trace = trace_id()
    id, _ = episode(trace)
    links = [{"traceId": trace, "spanId": SPAN}]
    send(server, tenant, in_span(evaluation("helpful", 1.0), trace=trace_id(), links=links))
    assert rewards(server, tenant, id) == [("evaluation:helpful", 1.0)]


@pytest.mark.parametrize(
    ("value", "label", "reward"),
    [
        (None, "pass", 1.0),
        (None, "Incorrect", 0.0),
        (0.7, "relevant", 0.7),
        (0.02, "pass", 1.0),  # such as a score of how poisonous an answer is
        (4.5, "pass", 1.0),
        ("0.5", "", 0.5),
    ],
)
def test_label_counts_without_a_score(
    server: MemoryServer, tenant: str, episode: Begin, value: Any, label: str, reward: float
) -> None:
    id, decision = episode()
    send(server, tenant, in_log(evaluation("quality", value, label, decision=decision)))
    assert rewards(server, tenant, id) == [("evaluation:quality", reward)]


def test_the_same_event_counts_once_and_of_several_the_latest(
    server: MemoryServer, tenant: str, episode: Begin
) -> None:
    id, decision = episode()
    early = in_log(evaluation("helpful", 0.0, decision=decision, time=1))
    late = in_log(evaluation("helpful", 1.0, decision=decision, time=2))
    for request in (early, late, early, late, early):
        assert send(server, tenant, request).json() == {}
    assert rewards(server, tenant, id) == [("evaluation:helpful", 0.0), ("evaluation:helpful", 1.0)]
    both = in_log(*(evaluation("fast", value, decision=decision, time=time) for value, time in ((0.5, 9), (0.25, 8))))
    both["resourceLogs"] *= 2
    send(server, tenant, both)
    assert rewards(server, tenant, id)[2:] == [("evaluation:fast", 0.5)]


def test_rejected_evaluations_are_counted_with_reasons(server: MemoryServer, tenant: str, episode: Begin) -> None:
    id, decision = episode()
    trace = trace_id()
    answer = send(
        server,
        tenant,
        in_log(
            evaluation("helpful", 1.0, decision="d" + "0" * 16),
            evaluation("helpful", 7.0, decision=decision),
            evaluation("tone", label="friendly", decision=decision),
            evaluation("helpful", 0.5, decision=decision),
            evaluation("failed", decision=decision) | {"attributes": attributes({"error.type": "timeout"})},
        ),
    ).json()["partialSuccess"]
    assert answer["rejectedLogRecords"] == "3"
    assert f"d{'0' * 16} is nothing in this memory" in answer["errorMessage"]
    assert "helpful has a score that is no reward from 0 to 1 (7)" in answer["errorMessage"]
    assert "tone has a score that is no reward from 0 to 1 ('friendly')" in answer["errorMessage"]
    answer = send(server, tenant, in_span(evaluation("helpful", 1.0), trace=trace)).json()["partialSuccess"]
    assert answer == {
        "rejectedSpans": "1",
        "errorMessage": f"evaluations that became no reward: trace {trace} is nothing in this memory",
    }
    assert rewards(server, tenant, id) == [("evaluation:helpful", 0.5)]


def test_token_of_a_person_evaluates_as_that_person(server: MemoryServer, tenant: str, episode: Begin) -> None:
    trace = trace_id()
    anas, bos = episode(trace)[0], episode(trace, user_id="bo")[0]
    send(server, tenant, in_span(evaluation("helpful", 1.0), trace=trace), user_id="ana")
    assert rewards(server, tenant, anas) == [("evaluation:helpful:ana", 1.0)]
    assert rewards(server, tenant, bos) == []
    refused = send(server, tenant, in_span(evaluation("helpful", 1.0, episode=bos), trace=trace), user_id="ana")
    assert refused.json()["partialSuccess"]["rejectedSpans"] == "1"


def test_evaluation_needs_the_reward_role(server: MemoryServer, tenant: str, episode: Begin) -> None:
    id, decision = episode()
    answer = send(server, tenant, in_log(evaluation("helpful", 1.0, decision=decision)), "read", "write")
    assert (answer.status_code, answer.json()["code"]) == (403, 7)
    assert rewards(server, tenant, id) == []


def test_rollback_of_an_evaluator_keeps_others(server: MemoryServer, tenant: str, episode: Begin) -> None:
    id, decision = episode()
    for name in ("ragas:faithful", "tone"):
        send(server, tenant, in_log(evaluation(name, 0.0, decision=decision)), user_id="ana")
    assert [name for name, _ in rewards(server, tenant, id)] == ["evaluation:ragas.faithful:ana", "evaluation:tone:ana"]
    with as_(server, tenant) as client:
        undone = client.post("/rollbacks", json={"source": "evaluation:ragas.faithful"})
        assert undone.json()["cancelled"] == 1
    assert [name for name, _ in rewards(server, tenant, id)] == ["evaluation:tone:ana"]
    send(server, tenant, in_log(evaluation("ragas:faithful", 0.0, decision=decision)), user_id="ana")
    assert len(rewards(server, tenant, id)) == 1  # what comes again does not bring it back


def test_a_persons_own_word_is_not_replaced_by_an_evaluator(server: MemoryServer, tenant: str, episode: Begin) -> None:
    id, decision = episode()
    with as_(server, tenant, user_id="ana") as client:
        client.post("/rewards", json={"target": decision, "value": 1.0}).raise_for_status()
    send(server, tenant, in_log(evaluation("helpful", 0.0, decision=decision)), user_id="ana")
    assert rewards(server, tenant, id) == [("own:ana", 1.0), ("evaluation:helpful:ana", 0.0)]


def test_an_erased_episode_is_in_no_trace(server: MemoryServer, tenant: str, episode: Begin) -> None:
    trace = trace_id()
    id, decision = episode(trace)
    store = server.memories.of(new_access(tenant=tenant)).memory.store
    send(server, tenant, in_span(evaluation("helpful", 1.0), trace=trace), user_id="ana")
    with as_(server, tenant) as client:
        client.post("/erase", json={"user_id": "ana"}).raise_for_status()
    with store.database.reading() as connection:
        assert traces.members(connection, trace) == []
        assert [traces.trace_of(connection, each) for each in (id, decision)] == ["", ""]
        facts = connection.execute("SELECT name FROM facts_of_file").fetchall()
    assert not [name for (name,) in facts if "ana" in name or trace in name]


@pytest.mark.parametrize(
    "header", ["", "nonsense", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-"]
)
def test_malformed_traceparent_is_ignored(header: str) -> None:
    assert traces.read_traceparent(header) is None
    assert traces.read_traceparent(f" {PARENT} ") == traces.TraceContext(TRACE, (SPAN,))
    assert traces.read_traceparent(f"01-{TRACE}-{SPAN}-01-more") == traces.TraceContext(TRACE, (SPAN,))


def test_a_body_may_be_packed_and_is_bounded(server: MemoryServer, tenant: str, episode: Begin) -> None:
    id, decision = episode()
    raw = json.dumps(in_log(evaluation("helpful", 1.0, decision=decision))).encode()
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with as_(server, tenant, "reward", base="") as client:

        def post(content: bytes, **more: str) -> tuple[int, str]:
            answer = client.post("/v1/logs", content=content, headers=headers | more)
            return answer.status_code, answer.json().get("message", "")

        assert post(gzip.compress(raw)) == (200, "")
        assert rewards(server, tenant, id) == [("evaluation:helpful", 1.0)]
        assert post(gzip.compress(b" " * (17 * 2**20)))[0] == 413
        for broken in (raw, gzip.compress(raw)[:-9], b""):
            assert post(broken)[0] == 400
        assert "gzip, not with 'br'" in post(raw, **{"Content-Encoding": "br"})[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "must be a JSON object"),
        (b'{"resourceLogs": 3}', "not as OTLP has it"),
        (b'{"resourceLogs": [{"scopeLogs": [{"logRecords": ["x"]}]}]}', "not as OTLP has it"),
        (
            b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [3], "events": ["x"]}]}]}]}',
            "not as OTLP has it",
        ),
    ],
)
def test_malformed_otlp_request_is_refused(server: MemoryServer, tenant: str, content: bytes, message: str) -> None:
    with as_(server, tenant, "reward", base="") as client:
        answer = client.post("/v1/logs", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert message in answer.json()["message"]


def test_invalid_target_ids_are_rejected(server: MemoryServer, tenant: str, episode: Begin) -> None:
    for odd in ("\0", "%", "e" * 100_000, "\ud800", "' OR 1"):
        events = [evaluation("odd", 1.0, time=time, **{what: odd}) for time, what in ((1, "decision"), (2, "episode"))]
        event = evaluation("odd", 1.0)
        event["attributes"] += attributes({"gen_ai.response.id": odd})
        answer = send(server, tenant, in_log(*events, event, trace=odd, span=odd))
        assert (answer.status_code, answer.json()["partialSuccess"]["rejectedLogRecords"]) == (200, "3")


def test_a_host_that_speaks_mcp_says_its_trace(tmp_path: Path) -> None:
    trace = trace_id()
    call = {"name": "search_memories", "arguments": {"query": "deploy"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    with MemoryServer(tmp_path / "a.mem", encoder="hashing", mcp=True) as server, with_token(server) as client:
        client.post("/v1/memory/items", json={"content": "Deploy with: make ship"}).raise_for_status()
        headers = {"Accept": "application/json, text/event-stream", "traceparent": f"00-{trace}-{SPAN}-01"}
        client.post("/mcp", json=message, headers=headers).raise_for_status()
        memory = server.memories.of(new_access()).memory
        memory.flush()
        with memory.store.database.reading() as connection:
            (decision,) = traces.members(connection, trace)
    assert decision.startswith("d")


def test_protobuf_without_its_package_names_the_package(
    server: MemoryServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "_is_there", lambda module: False)
    with as_(server, tenant, "reward", base="") as client:
        answer = client.post("/v1/logs", content=b"\n\0", headers={"Content-Type": PROTOBUF})
        assert answer.status_code == 415
        assert "opentelemetry-proto" in answer.json()["message"]
        assert 'pip install "keepworth[telemetry]"' in answer.json()["message"]
        assert client.post("/v1/logs", content=b"x", headers={"Content-Type": "text/plain"}).status_code == 415


def test_protobuf_is_read_and_answered(server: MemoryServer, tenant: str, episode: Begin) -> None:
    logs = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2", reason="opentelemetry-proto")
    spans = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    from google.protobuf.json_format import ParseDict

    trace = trace_id()
    id, decision = episode(trace)
    request = in_log(evaluation("helpful", 0.5, decision=decision), evaluation("helpful", 9.0, decision=decision))
    for record in request["resourceLogs"][0]["scopeLogs"][0]["logRecords"]:
        del record["traceId"], record["spanId"]
    with as_(server, tenant, "reward", base="") as client:
        client.headers["Content-Type"] = PROTOBUF
        answer = client.post(
            "/v1/logs", content=ParseDict(request, logs.ExportLogsServiceRequest()).SerializeToString()
        )
        assert answer.headers["content-type"] == PROTOBUF
        said = logs.ExportLogsServiceResponse.FromString(answer.content).partial_success
        assert (said.rejected_log_records, "(9)" in said.error_message) == (1, True)
        traced = spans.ExportTraceServiceRequest()
        span = (
            traced.resource_spans.add()
            .scope_spans.add()
            .spans.add(trace_id=bytes.fromhex(trace), span_id=bytes.fromhex(SPAN))
        )
        event = span.events.add(name=EVENT, time_unix_nano=5)
        ParseDict({"attributes": attributes({"gen_ai.evaluation.name": "tone"})}, event)
        event.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = 1.0
        assert client.post("/v1/traces", content=traced.SerializeToString()).content == b""
        assert client.post("/v1/traces", content=b"\xff\xff").status_code == 400
    assert rewards(server, tenant, id) == [("evaluation:helpful", 0.5), ("evaluation:tone", 1.0)]


def test_a_turn_through_the_gateway_is_part_of_its_callers_trace(gate: Gate) -> None:
    gate.memory.add("Deploy with: make ship", user_id="ana")
    body = {"model": "scripted", "messages": [user("How do I deploy?")]}
    headers = {"X-Keepworth-User": "ana", "traceparent": PARENT, "tracestate": "a=1"}
    answer = gate.http.post("/v1/chat/completions", json=body, headers=headers)
    until(lambda: finished(gate.server))
    assert gate.script.sent[-1].headers["traceparent"] == PARENT
    assert gate.script.sent[-1].headers["tracestate"] == "a=1"
    with with_token(gate.server) as client:
        assert client.post("/v1/traces", json=in_span(evaluation("helpful", 0.25), trace=TRACE)).json() == {}
    assert rewards(gate.server, "", answer.headers[EPISODE]) == [("evaluation:helpful", 0.25)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "field"), [("chat/completions", "messages"), ("responses", "input"), ("messages", "messages")]
)
def test_the_answer_of_a_turn_names_it_unless_its_id_was_there_before(
    gate: Gate, path: str, field: str, stream: bool
) -> None:
    gate.memory.add("Deploy with: make ship", user_id="ana")

    def ask(words: str) -> tuple[str, str]:
        body = {"model": "scripted", field: [user(words)], "stream": stream, "max_tokens": 9}
        answer = gate.http.post(f"/v1/{path}", json=body, headers={"X-Keepworth-User": "ana"})
        until(lambda: finished(gate.server))
        return answer.headers[EPISODE], re.findall(r'"id": ?"((?:c|resp_|msg_?)\w*)"', answer.text)[0]

    episode, id = ask("How do I deploy?")
    event = evaluation("helpful", 1.0, time=1)
    event["attributes"] += attributes({"gen_ai.response.id": id})
    with with_token(gate.server) as client:
        assert client.post("/v1/logs", json=in_log(event)).json() == {}
        assert rewards(gate.server, "", episode) == [("evaluation:helpful", 1.0)]
        other, again = ask("And how do I deploy on Friday?")
        event = evaluation("helpful", 0.0, time=2) | {"attributes": event["attributes"]}
        if again == id:
            assert f"answer {id} is nothing" in client.post("/v1/logs", json=in_log(event)).text
        assert [len(rewards(gate.server, "", each)) for each in (episode, other)] == [1, 0]


def test_evaluations_teach_which_note_comes_first(tmp_path: Path) -> None:
    with MemoryServer(tmp_path / "a.mem", encoder="hashing", seed=1) as server:
        memory = Client(server.url, server.token)
        good = memory.add("To deploy the service run make ship")
        memory.add("To deploy the service run make push")
        with with_token(server) as client:
            for turn in range(40):
                trace = trace_id()
                found = client.post(
                    "/v1/memory/search",
                    json={"query": "deploy the service", "top_k": 1},
                    headers={"traceparent": f"00-{trace}-{SPAN}-01"},
                ).json()
                value = float(found["hits"][0]["item"]["id"] == good.id)
                client.post("/v1/traces", json=in_span(evaluation("works", value, time=turn + 1), trace=trace))
        hits = [memory.search("deploy the service", top_k=1, explore=False)[0].id for _ in range(5)]
        memory.close()
    assert hits == [good.id] * 5
