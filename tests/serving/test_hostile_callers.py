"""Callers that mean harm, or are broken: refused early, bounded, answered with a reason, and no trouble for anybody else."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import pickle
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from keepworth.episodes import extras
from keepworth.episodes.extras import MissingExtra
from keepworth.serving.application import ServerLimits
from keepworth.serving.calls import NotServed
from keepworth.serving.model_server import Connection, ModelServer
from tests.models.test_http_publish import Steps, wait_until
from tests.models.tiny import tiny_model
from tests.serving.engines import trained

KEY = "sesame-1905"
LIMITS = ServerLimits(body=2**16, bodies=3 * 2**16)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(tiny_model(), api_key=KEY, limits=LIMITS) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: ModelServer) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=server.url, trust_env=False, timeout=300, headers=headers) as client:
        yield client


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that a caller does is worth a line of the log."""
    caplog.set_level(logging.INFO)
    yield
    assert [each for each in caplog.records if not each.name.startswith("httpx")] == []


def connected(server: ModelServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 20)


def raw(server: ModelServer, *parts: bytes) -> bytes:
    """What comes back until the server hangs up."""
    answer = b""
    with connected(server) as connection, contextlib.suppress(ConnectionResetError, BrokenPipeError):
        for part in parts:
            connection.sendall(part)
        while more := connection.recv(65536):
            answer += more
    return answer


def head(path: str, *lines: str, key: bool = True, method: str = "POST") -> bytes:
    own = [f"Authorization: Bearer {KEY}"] if key else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *own, *lines, "", ""]).encode()


def refused(response: httpx.Response, status: int = 400) -> str:
    assert response.status_code == status, response.text
    return str(response.json()["error"]["message"])


# -- before a body is read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/completions", "/nowhere", "/pause"])
def test_who_has_no_key_is_refused_before_a_byte_of_the_body(server: ModelServer, quiet: None, path: str) -> None:
    """The length is announced, nothing follows: whoever reads first waits for ever."""
    with connected(server) as connection:
        connection.sendall(head(path, "Content-Type: application/json", "Content-Length: 1000", key=False))
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")


def test_a_body_that_is_too_long_is_refused_by_its_announced_length(server: ModelServer, quiet: None) -> None:
    with connected(server) as connection:
        connection.sendall(head("/tokenize", "Content-Type: application/json", "Content-Length: 999999999999"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")


def test_a_body_of_chunks_is_read_and_bounded_too(client: httpx.Client, quiet: None) -> None:
    def chunks(count: int) -> Iterator[bytes]:
        yield b'{"prompt": "'
        yield from [b"x" * 1000] * count
        yield b'"}'

    kind = {"Content-Type": "application/json"}
    assert client.post("/tokenize", content=chunks(3), headers=kind).json()["count"] == 3000
    assert "up to 65536 bytes" in refused(client.post("/tokenize", content=chunks(100), headers=kind), 413)
    assert client.post("/tokenize", content=chunks(1), headers=kind).json()["count"] == 1000


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (["Transfer-Encoding: chunked", "Content-Length: 30"], b"0\r\n\r\nGET /version HTTP/1.1\r\n\r\n"),
        (["Content-Length: 2", "Content-Length: 30"], b"{}GET /version HTTP/1.1\r\nHost: a\r\n\r\n"),
        (["Content-Length: \xb2"], b"{}"),
        (["Transfer-Encoding: chunked"], b"zz\r\n{}\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked, chunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    ],
)
def test_two_readings_of_where_a_body_ends_are_refused(
    server: ModelServer, quiet: None, lines: list[str], body: bytes
) -> None:
    """Otherwise a body is read as the next request, by a proxy and here differently."""
    answer = raw(server, head("/tokenize", "Content-Type: application/json", "Connection: close", *lines) + body)
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.split()[1] in (b"400", b"501")


def test_what_is_no_http_is_refused_and_leaves_no_trace(server: ModelServer, quiet: None) -> None:
    assert raw(server, b"\x16\x03\x01\x02\x00\xff\xfe\r\n\r\n").startswith(b"HTTP/1.1 400")
    raw(server, b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(20_000)) + b"\r\n")
    assert raw(server, head("/health", "Connection: close", method="GET")).startswith(b"HTTP/1.1 200")


def test_a_head_that_trickles_in_is_not_waited_for(server: ModelServer, quiet: None, monkeypatch) -> None:
    monkeypatch.setattr(Connection, "head_seconds", 0.3)
    assert raw(server, b"POST /v1/completions HTTP/1.1\r\nHost: 127").startswith(b"HTTP/1.1 408")
    assert raw(server) == b"", "who says nothing at all is not answered either"


def test_a_body_that_trickles_in_is_not_waited_for(server: ModelServer, quiet: None, monkeypatch) -> None:
    monkeypatch.setattr(Connection, "body_seconds", 0.3)
    asked = head("/tokenize", "Content-Type: application/json", "Content-Length: 100")
    assert raw(server, asked, b'{"pro').startswith(b"HTTP/1.1 408")


def test_the_rest_of_a_refused_body_is_not_waited_for(server: ModelServer, quiet: None, monkeypatch) -> None:
    monkeypatch.setattr(Connection, "rest_seconds", 0.3)
    asked = head("/tokenize", "Content-Type: application/json", "Content-Length: 100", key=False)
    assert raw(server, asked, b'{"pro').startswith(b"HTTP/1.1 401")


def test_connections_are_bounded(quiet: None, monkeypatch) -> None:
    monkeypatch.setattr(Connection, "most", 2)
    with ModelServer(tiny_model()) as server:
        there = server._server.server_state.connections
        with connected(server) as one, connected(server):
            wait_until(lambda: len(there) == 2, threading.current_thread())
            assert raw(server).startswith(b"HTTP/1.1 503")
            one.sendall(head("/health", method="GET"))
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
        wait_until(lambda: not there, threading.current_thread())
        assert raw(server, head("/health", "Connection: close", method="GET")).startswith(b"HTTP/1.1 200")


def test_the_bodies_that_are_answered_at_once_are_bounded_in_sum() -> None:
    model = Steps(stop_before=0)
    body = json.dumps({"prompt": "hi", "max_tokens": 2, "user": "x" * 40_000}).encode()
    with (
        ModelServer(model, limits=ServerLimits(body=2**16, bodies=2**16)) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client,
    ):
        kind = {"Content-Type": "application/json"}
        first = threading.Thread(target=lambda: client.post("/v1/completions", content=body, headers=kind))
        first.start()
        assert model.reached.wait(20)
        assert "at once" in refused(client.post("/v1/completions", content=body, headers=kind), 503)
        model.go.set()
        first.join(20)
        assert client.post("/v1/completions", content=body, headers=kind).status_code == 200


# -- pages of other sites ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
    ],
)
def test_no_page_of_another_site_is_obeyed(headers: dict[str, str], quiet: None) -> None:
    """A browser sends these by itself, without asking, as long as there is no body or it is a plain one."""
    with ModelServer(tiny_model()) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        for path in ("/pause", "/resume", "/abort_requests", "/v1/completions"):
            refused(client.post(path, headers=headers), 403)
        assert server.model.paused is None
        ours = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
        assert client.post("/resume", headers=ours).status_code == 200


# -- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"[" * 60_000, "nested at most 200 deep"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested at most 200 deep"),
        (b"[]", "must be a JSON object"),
        (b'{"prompt": "\xff"}', "UTF-8"),
        ('{"prompt": "a"}'.encode("utf-16"), "UTF-8"),
        (b'{"prompt": "\\ud800", "max_tokens": 2}', "surrogate pairs"),
        (b'{"prompt": "a", "temperature": NaN}', "temperature must be a number"),
        (b'{"prompt": "a", "temperature": Infinity}', "temperature must be a number"),
        (b'{"prompt": "a", "temperature": 1e-300}', "temperature must be a number: 0"),
        (b'{"prompt": "a", "temperature": 1e300}', "temperature must be a number: 0"),
        (b'{"prompt": "a", "top_p": NaN}', "top_p must be a number above 0 and at most 1"),
        (b'{"prompt": "a", "n": 100000}', "n must be at least 1 and at most 256"),
        (b'{"prompt": "a", "n": 256, "max_tokens": 511}', "more than 65536 tokens"),
        (b'{"prompt": ["a", "b"], "n": 256, "max_tokens": 0, "prompt_logprobs": "x"}', "prompt_logprobs must be"),
        (b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}", "out of range"),
        (b'{"prompt": "a", "seed": ' + b"9" * 30 + b"}", "seed must be a whole number"),
        (b'{"prompt": "a", "logprobs": "x"}', "logprobs must be a whole number"),
        (b'{"prompt": "a", "model": ["x"]}', "model must be a text"),
        (b'{"prompt": "a", "request_id": {"a": 1}}', "request_id must be a text"),
        (b'{"prompt": "a", "vllm_xargs": 5}', "vllm_xargs must be an object"),
        (
            b'{"prompt": "abc", "prompt_logprobs": 0, "vllm_xargs": {"prompt_logprobs_start": "x"}}',
            "prompt_logprobs_start",
        ),
        (b'{"prompt": "abc", "prompt_logprobs": 0, "vllm_xargs": {"prompt_logprobs_temperature": -5}}', "_temperature"),
        (b'{"prompt": "abc", "prompt_logprobs": 0, "vllm_xargs": {"prompt_logprobs_temperature": 0}}', "above 0"),
        (b'{"prompt": "a", "\\u0000": 1}', "is not supported"),
    ],
)
def test_a_body_that_makes_no_sense_is_named_with_its_field(
    client: httpx.Client, quiet: None, body: bytes, says: str
) -> None:
    answer = client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert says in refused(answer)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/v1/chat/completions", {"messages": "x"}, "messages must be a list"),
        ("/v1/chat/completions", {"messages": [None]}, "messages[0] must have role and content"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": {"a": 1}}]}, "messages[0]"),
        ("/tokenize", {"prompt": {}}, "prompt must be a text"),
        ("/detokenize", {"tokens": [10**12]}, "tokens: token ids must be"),
        ("/inference/v1/generate", {"token_ids": [1], "sampling_params": [1]}, "sampling_params must be an object"),
        ("/inference/v1/generate", {"token_ids": [[1], [2]]}, "token_ids must hold one prompt"),
        ("/collective_rpc", {"method": "reload_weights", "kwargs": [1]}, "kwargs must be an object"),
        ("/collective_rpc", {"method": "reload_weights"}, "weights_path must be a text"),
        ("/collective_rpc", {"method": "eval"}, "Known: check_health, reload_weights"),
        ("/abort_requests", {"request_ids": {"a": 1}}, "request_ids must be a list"),
        ("/update_weight_version", {"new_version": 5}, "new_version must be a text"),
    ],
)
def test_other_routes_name_the_field_too(
    client: httpx.Client, quiet: None, path: str, body: dict[str, Any], says: str
) -> None:
    assert says in refused(client.post(path, json=body))


def test_many_prompts_and_samples_are_bounded_together(client: httpx.Client, quiet: None) -> None:
    body = {"prompt": ["a"] * 100, "n": 256, "max_tokens": 1}
    assert "more than 4096 samples" in refused(client.post("/v1/completions", json=body))
    assert "up to 4096 prompts" in refused(client.post("/v1/completions", json={"prompt": ["a"] * 5000}))


def test_many_sequences_that_share_a_prompt_are_not_one_row(client: httpx.Client, quiet: None) -> None:
    """A row of a hundred thousand tokens would need a mask of its square."""
    sequences = [[7, *([index] * 400)] for index in range(25)]
    body = {"prompt": sequences, "max_tokens": 0, "prompt_logprobs": 1}
    choices = client.post("/v1/completions", json=body).json()["choices"]
    expected = tiny_model().score([(7,)], [[tuple(each[1:]) for each in sequences[20:21]]])[0][0]
    found = [
        entry[str(token)]["logprob"]
        for entry, token in zip(choices[20]["prompt_logprobs"], sequences[20], strict=False)
        if entry
    ]
    assert found == pytest.approx(expected, abs=1e-4)


# -- folders of weights -----------------------------------------------------------------------------------------------


class Boom:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was run",))


def spoil(folder: Path, how: str) -> None:
    weights, settings = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    if how == "pickle":
        weights.unlink()
        torch.save({"x": torch.zeros(1)}, folder / "adapter_model.bin")
        (folder / "adapter_model.bin").write_bytes(pickle.dumps(Boom()))
    elif how == "garbage":
        weights.write_bytes(b"\xff" * 100)
    elif how == "nan":
        tensors = load_file(weights)
        next(iter(tensors.values())).view(-1)[0] = float("nan")
        save_file(tensors, weights)
    elif how == "settings":
        settings.write_text("{" * 100_000)
    else:
        key, value = how.split("=")
        settings.write_text(json.dumps({**json.loads(settings.read_text()), key: json.loads(value)}))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("pickle", "pickles are never read"),
        ("garbage", "cannot be read as safetensors"),
        ("nan", "not a finite number"),
        ("settings", "is not a JSON object"),
        ('peft_type="IA3"', "only LORA is served"),
        ('megatron_config={"a": 1}', "names modules to import"),
        ('auto_mapping={"base_model_class": "x", "parent_library": "antigravity"}', "names modules to import"),
        ("r=1000000000", "r in"),
        ("r=8", "does not fit tiny"),
        ('target_modules=["nowhere"]', "does not fit tiny"),
        ("r=null", "r in"),
        ("lora_alpha={}", "adapter"),
    ],
)
def test_a_strange_adapter_is_refused_and_the_network_is_as_it_was(
    tmp_path: Path, quiet: None, how: str, says: str
) -> None:
    trained(tmp_path / "good")
    trained(tmp_path / "a")
    spoil(tmp_path / "a", how)
    body = {"prompt": "hi", "max_tokens": 6, "temperature": 0}
    with ModelServer(tiny_model()) as server, httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        before = client.post("/v1/completions", json=body).json()["choices"]
        for first in (True, False):  # beside nothing, and beside another adapter
            answer = client.post("/v1/load_lora_adapter", json={"lora_name": "a", "lora_path": str(tmp_path / "a")})
            assert says in refused(answer)
            assert client.post("/v1/completions", json=body).json()["choices"] == before
            assert hasattr(server.model.network, "peft_config") is not first
            if first:
                good = {"lora_name": "good", "lora_path": str(tmp_path / "good")}
                assert client.post("/v1/load_lora_adapter", json=good).status_code == 200
        assert list(server.model.adapters()) == ["good"]
        named = client.post("/v1/completions", json={**body, "model": "good"}).json()["choices"]
        assert named != before


@pytest.mark.parametrize("folder", ["x" * 5000, "a\0b", "../" * 2000])
def test_what_is_no_name_of_a_folder_is_no_folder(folder: str, quiet: None) -> None:
    with (
        ModelServer(tiny_model(), control=True) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client,
    ):
        answer = client.post("/v1/load_lora_adapter", json={"lora_name": "a", "lora_path": folder})
        assert "no PEFT adapter folder" in refused(answer, 404)
        with pytest.raises(NotServed, match="no safetensors"):
            server.model.update_weights(folder)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("model.norm.weight", torch.full((64,), float("nan")), "not a finite number"),
        ("model.norm.weight", torch.full((64,), float("inf")), "not a finite number"),
        ("model.norm.weight", torch.ones(64, dtype=torch.int64), "not a finite number"),
        ("model.norm.weight", torch.ones(65), "has shape"),
        ("zz.unknown", torch.ones(1), "no weights 'zz.unknown'"),
        ("", torch.ones(1), "cannot be read as safetensors"),
    ],
)
def test_weights_are_replaced_all_or_not_at_all(
    tmp_path: Path, quiet: None, name: str, value: torch.Tensor, says: str
) -> None:
    good = {"model.layers.0.input_layernorm.weight": torch.zeros(64)}
    save_file({**good, **({name: value} if name else {})}, tmp_path / "b.safetensors")
    if not name:
        (tmp_path / "a.safetensors").write_bytes(b"\xff" * 50)
    body = {"prompt": "hi", "max_tokens": 6, "temperature": 0}
    with ModelServer(tiny_model()) as server, httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        before = client.post("/v1/completions", json=body).json()["choices"]
        reload = {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path)}}
        assert says in refused(client.post("/collective_rpc", json=reload))
        assert client.post("/v1/completions", json=body).json()["choices"] == before


# -- callers that leave -----------------------------------------------------------------------------------------------


def test_callers_that_hang_up_leave_no_trace(
    server: ModelServer, quiet: None, capfd: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({"prompt": "hi", "max_tokens": 400, "n": 4, "ignore_eos": True}).encode()
    whole = head("/v1/completions", "Content-Type: application/json", f"Content-Length: {len(body)}") + body
    pieces = [whole[: len(whole) * part // 7] for part in range(1, 8)] + [
        head("/pause", "Content-Length: 9", key=False)
    ]
    for piece in pieces * 3:
        with connected(server) as connection:
            connection.sendall(piece)
            # Reset instead of a polite end.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    wait_until(lambda: not server.model._requests, threading.current_thread())
    assert capfd.readouterr().err == ""


def test_what_nobody_waits_for_is_not_computed() -> None:
    model = Steps(stop_before=3)
    with ModelServer(model) as server:
        body = json.dumps({"prompt": "hi", "max_tokens": 100, "ignore_eos": True}).encode()
        with connected(server) as connection:
            lines = ["Content-Type: application/json", f"Content-Length: {len(body)}"]
            connection.sendall(head("/v1/completions", *lines) + body)
            assert model.reached.wait(20)
            (request,) = model._requests
        wait_until(lambda: request.aborted, threading.current_thread())
        model.go.set()
        wait_until(lambda: not model._requests, threading.current_thread())
        assert request.steps <= 4


def test_closing_waits_for_what_computes_and_for_nothing_else() -> None:
    """A thread that computes while the interpreter ends takes the whole process down with an abort."""
    model = Steps(stop_before=3)
    server = ModelServer(model, api_key=KEY).start()
    answers: list[bytes] = []
    body = json.dumps({"prompt": "hi", "max_tokens": 100, "ignore_eos": True}).encode()
    asked = head(
        "/v1/completions", "Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close"
    )
    caller = threading.Thread(target=lambda: answers.append(raw(server, asked + body)))
    with connected(server) as half:
        half.sendall(head("/tokenize", "Content-Type: application/json", "Content-Length: 100"))
        caller.start()
        assert model.reached.wait(20)
        closing = threading.Thread(target=server.close)
        closing.start()
        wait_until(lambda: model._closed, closing)
        assert closing.is_alive()
        model.go.set()
        closing.join(20)
        caller.join(20)
        assert not closing.is_alive()
    assert not any(each.is_alive() for each in (server._thread, *server._workers._threads))
    assert answers[0].startswith(b"HTTP/1.1 200")
    assert b'"abort"' in answers[0]


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "uvicorn" else object())
    monkeypatch.delitem(sys.modules, "keepworth.serving.model_server")
    with pytest.raises(MissingExtra, match=r"keepworth\[serve\]"):
        importlib.import_module("keepworth.serving.model_server")
