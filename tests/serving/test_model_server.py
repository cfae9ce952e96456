"""The small server: what it refuses, what it says of itself, conversations, and how it ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from keepworth.episodes import SamplingParams
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.models.adapter import attach_lora
from keepworth.models.chat import ChatModel
from keepworth.models.errors import EngineDied, EngineError, EngineRefused, EngineTimeout, EngineUnreachable
from keepworth.models.http_client import Retries, Timeouts
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.model_server import ModelServer
from tests.models.tiny import ByteTokenizer, tiny_model, tiny_network
from tests.serving.engines import connect


class TalkingTokenizer(ByteTokenizer):
    chat_template = "{{ messages }}"

    def apply_chat_template(self, messages: list[dict[str, str]], add_generation_prompt: bool, tokenize: bool) -> str:
        assert add_generation_prompt
        assert not tokenize
        return "".join(f"<{each['role']}>{each['content']}" for each in messages) + "<assistant>"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    model = InProcessModel(tiny_network(), TalkingTokenizer(), "tiny")
    with ModelServer(model) as server, httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        yield client


def refused(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["code"] == status
    return str(error["message"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"prompt": "hi", "min_p": 0.9}, "min_p = 0.9 is not supported"),
        ({"prompt": "hi", "stop": ["\n"]}, "stop"),
        ({"prompt": "hi", "stream": True}, "stream"),
        ({"prompt": "hi", "best_of": 2}, "'best_of' is not supported"),
        ({"prompt": "hi", "temperature": "hot"}, "temperature must be a number"),
        ({"prompt": "hi", "n": 0}, "n must be at least 1"),
        ({"prompt": "hi", "max_tokens": -1}, "max_tokens must be a whole number"),
        ({"prompt": "hi", "max_tokens": 600}, "past the 512"),
        ({"prompt": ""}, "prompt 0 is empty"),
        ({"prompt": [[1], []]}, "prompt 1 is empty"),
        ({"prompt": [300]}, "from 0 to 256"),
        ({"prompt": [True]}, "prompt: token ids"),
        ({}, "prompt must be"),
        ({"prompt": [1, 2], "prompt_logprobs": 1, "vllm_xargs": {"prompt_logprobs_start": [3]}}, "inside it"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    client: httpx.Client, body: dict[str, Any], message: str
) -> None:
    assert message in refused(client.post("/v1/completions", json=body), 400)


def test_requests_that_are_none_are_refused(client: httpx.Client) -> None:
    assert "tinny" in refused(client.post("/v1/completions", json={"prompt": "hi", "model": "tinny"}), 404)
    assert "/nowhere" in refused(client.get("/nowhere"), 404)
    refused(client.get("/v1/completions"), 405)
    refused(client.post("/v1/completions", content=b"{", headers={"Content-Type": "application/json"}), 400)
    refused(client.post("/v1/completions", json=[1]), 400)
    refused(client.post("/resume", content=b"{}", headers={"Content-Type": "text/plain"}), 415)
    refused(client.get("/health", headers={"Host": "elsewhere.example"}), 403)
    refused(client.post("/unload_lora_adapter", json={"lora_name": "x"}), 404)
    refused(client.post("/v1/unload_lora_adapter", json={"lora_name": "tiny"}), 404)
    refused(client.post("/v1/load_lora_adapter", json={"lora_name": "a", "lora_path": "/nowhere"}), 404)
    reload = {"method": "reload_weights", "kwargs": {"weights_path": "/nowhere"}}
    refused(client.post("/collective_rpc", json=reload), 404)
    refused(client.post("/pause", params={"mode": "stop"}), 400)


def test_it_says_what_it_is(client: httpx.Client) -> None:
    assert client.get("/health").status_code == 200
    (card,) = client.get("/v1/models").json()["data"]
    assert (card["id"], card["owned_by"], card["max_model_len"]) == ("tiny", "keepworth", 512)
    assert client.get("/is_paused").json() == {"is_paused": False}
    assert client.get("/weight_info").json() == {"weight_version": "default"}
    assert client.post("/tokenize", json={"prompt": "hi"}).json()["tokens"] == [104, 105]
    assert client.post("/detokenize", json={"tokens": [104, 105]}).json() == {"prompt": "hi"}
    assert set(client.get("/version").json()) == {"version"}


def test_a_completion_in_text(client: httpx.Client) -> None:
    body = {"prompt": ["hi", "ho"], "max_tokens": 5, "seed": 3, "n": 2}
    answer = client.post("/v1/completions", json=body).json()
    prompts = [tuple(b"hi"), tuple(b"ho")]
    samples = tiny_model().sample(prompts, SamplingParams(5, n=2, seed=3, stop_ids=frozenset({256, 2})))
    assert [each["token_ids"] for each in answer["choices"]] == [list(s.ids) for group in samples for s in group]
    assert answer["usage"]["prompt_tokens"] == 4
    assert (
        client.post("/v1/completions", json={"prompt": "hi"}).json()
        != client.post("/v1/completions", json={"prompt": "hi"}).json()
    ), "without a seed each answer is drawn anew"


def test_a_conversation(client: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 6, "seed": 1}
    answer = client.post("/v1/chat/completions", json=body).json()
    prompt = tuple(b"<user>hello<assistant>")
    (sample,) = tiny_model().sample([prompt], SamplingParams(6, seed=1, stop_ids=frozenset({256, 2})))[0]
    ids = sample.ids[:-1] if sample.ids[-1] in (256, 2) else sample.ids
    assert answer["choices"][0]["message"]["content"] == ByteTokenizer().decode(list(ids))
    assert answer["choices"][0]["finish_reason"] == sample.finish.value
    assert answer["usage"]["prompt_tokens"] == len(prompt)
    assert "messages" in refused(client.post("/v1/chat/completions", json={"messages": []}), 400)
    assert "messages[0]" in refused(client.post("/v1/chat/completions", json={"messages": [{"role": "user"}]}), 400)


def test_a_model_without_a_chat_template_says_so() -> None:
    with ModelServer(tiny_model()) as server:
        chat = ChatModel(server.url, "tiny", retries=Retries(1))
        with pytest.raises(EngineRefused, match=r"tiny has no chat template.*instruction-tuned"):
            chat("hello")


def test_only_what_can_be_served_is() -> None:
    with pytest.raises(UnknownName, match="server style"):
        ModelServer(tiny_model(), style="vlm")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="feature"):
        ModelServer(tiny_model(), without=["scale-out"])
    adapted = tiny_model()
    attach_lora(adapted, rank=2)
    with pytest.raises(ValueError, match="already has an adapter"):
        ModelServer(adapted)
    with ModelServer(tiny_model()) as server, pytest.raises(KeepworthError, match="cannot be listened on"):
        ModelServer(tiny_model(), port=int(server.url.rsplit(":", 1)[1]))


def test_a_slow_engine_times_out_and_a_closed_one_is_gone() -> None:
    with ModelServer(tiny_model()) as server:
        engine = connect(server.url, timeouts=Timeouts(connect=2, answer=3))
        server.model.pause("wait")
        with pytest.raises(EngineTimeout, match="paused"):
            engine.sample([(1,)], SamplingParams(max_tokens=1))
    with pytest.raises((EngineUnreachable, EngineDied), match=server.url):
        engine.sample([(1,)], SamplingParams(max_tokens=1))


def test_a_server_that_dies_in_the_middle_of_a_request_is_named() -> None:
    """A process of its own, killed while it generates. The sample is not asked for again."""
    program = textwrap.dedent(
        """
        import sys, time
        from keepworth.serving.model_server import ModelServer
        from keepworth.serving.served_model import ServedModel
        from tests.models.tiny import tiny_model

        class Slow(ServedModel):
            def hidden_states(self, *arguments):
                if self._active and self._active.steps == 12:
                    sys.stdout.write("generating\\n"); sys.stdout.flush()
                    time.sleep(60)
                return super().hidden_states(*arguments)

        with ModelServer(Slow(tiny_model())) as server:
            sys.stdout.write(server.url + "\\n"); sys.stdout.flush()
            server.wait()
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        engine = connect(url, timeouts=Timeouts(connect=5, answer=60), retries=Retries(1))
        box: list[BaseException] = []

        def ask() -> None:
            try:
                engine.sample([(1,)], SamplingParams(max_tokens=15))
            except EngineError as error:
                box.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert process.stdout.readline().strip() == "generating"
        process.kill()
        thread.join(20)
    finally:
        process.kill()
        process.communicate()
    assert [type(error) for error in box] == [EngineDied]
    assert url in str(box[0])
    with pytest.raises(EngineUnreachable, match="Start the server"):
        engine.health()


def test_a_closed_server_answers_nobody_over_a_connection_kept_open() -> None:
    server = ModelServer(tiny_model()).start()
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as kept:
        assert kept.get("/health").status_code == 200
        server.close()
        with pytest.raises(httpx.TransportError):
            kept.get("/health")
