"""The HTTP engine against the in-process model that a stand-in for vLLM holds: the same numbers, and its refusals."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from keepworth.base import model_errors as errors
from keepworth.base.errors import UnknownName
from keepworth.base.http_client import JsonClient
from keepworth.models.http_engine import HttpModel
from keepworth.models.http_wire import derive_seed, samples_in
from keepworth.records import FinishReason, Sample, SamplingParams
from keepworth.records.model import Model, VersionSpan
from tests.models.comparing import require_scored
from tests.models.tiny import ByteTokenizer, tiny_model
from tests.serving.engines import connect
from tests.stand_in.model import ServedModel
from tests.stand_in.server import ModelServer

PROMPTS = [tuple(b"where does ana live?"), tuple(b"hi"), tuple(b"where does ana live?"), tuple(b"a much longer prompt")]
BRANCHES = [[tuple(b"in oslo"), tuple(b"x"), ()], [tuple(b"yes")], [], [tuple(b"k"), tuple(b"in bergen, i think")]]
STOPS = frozenset(range(0, 257, 11))


@pytest.fixture(scope="module")
def engine() -> Iterator[HttpModel]:
    with ModelServer(tiny_model()) as running, connect(running.url) as engine:
        yield engine


def test_scores_are_those_of_the_in_process_model(engine: HttpModel) -> None:
    there, here = engine.score(PROMPTS, BRANCHES), tiny_model().score(PROMPTS, BRANCHES)
    assert [[len(b) for b in row] for row in there] == [[len(b) for b in row] for row in BRANCHES]
    for theirs, expected in zip((b for g in there for b in g), (b for g in here for b in g), strict=True):
        assert theirs == pytest.approx(expected, abs=1e-5)
    with pytest.raises(errors.MissingCapability, match="temperature 1"):
        engine.score([(1,)], [[(2,)]], temperature=0.7)


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_samples_have_the_log_probabilities_that_they_were_drawn_with(engine: HttpModel, temperature: float) -> None:
    params = SamplingParams(max_tokens=9, n=3, temperature=temperature, seed=3, stop_ids=STOPS)
    groups = engine.sample(PROMPTS, params)
    assert [len(group) for group in groups] == [3] * 4
    require_scored(tiny_model(), PROMPTS, groups, 1e-4)
    for sample in (sample for group in groups for sample in group):
        assert (sample.ids[-1] in STOPS) == (sample.finish is FinishReason.STOP)
        assert not STOPS & set(sample.ids[:-1])
        assert sample.spans == (VersionSpan(0, 0, len(sample.ids)),)
    assert engine.sample(PROMPTS, params) == groups
    if temperature:
        assert groups[0] != groups[2], "equal prompts in one batch draw independently"
        assert engine.sample(PROMPTS, SamplingParams(9, n=3, seed=4, stop_ids=STOPS)) != groups
    else:
        greedy = tiny_model().sample(PROMPTS, params)
        assert [[s.ids for s in group] for group in groups] == [[s.ids for s in group] for group in greedy]


def test_it_is_a_model_that_refuses_bad_requests_before_they_are_sent(engine: HttpModel) -> None:
    model: Model = engine
    assert (model.name, model.version, model.context_limit) == ("tiny", 0, 512)
    assert model.decode(model.encode("ana")) == "ana"
    assert model.stop_ids_for("\n") == tiny_model().stop_ids_for("\n")
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        engine.sample([(1,), ()], SamplingParams(max_tokens=1))
    with pytest.raises(errors.ContextOverflow, match="Prompt 0 has 500 tokens and may grow by 20"):
        engine.sample([(1,) * 500], SamplingParams(max_tokens=20))
    with pytest.raises(ValueError, match="max_tokens"):
        engine.sample([(1,)], SamplingParams(max_tokens=0))
    assert engine.sample([], SamplingParams(max_tokens=1)) == []
    assert engine.score([(1,)], [[]]) == [[]]


def test_seeds_of_prompts_and_samples_differ_and_fit_the_route() -> None:
    seeds = {derive_seed(seed, index) for seed in range(50) for index in range(50)}
    assert len(seeds) == 2500
    assert all(0 <= seed < 2**31 - 2**16 for seed in seeds)


def test_log_probabilities_from_before_the_temperature_are_noticed(engine: HttpModel) -> None:
    """vLLM's default: tokens drawn at 0.7 come with what they had at 1."""

    class Raw(ServedModel):
        def sample_as(self, name: str, prompts: Any, params: Any) -> Any:
            groups = super().sample_as(name, prompts, params)
            scores = self.score(prompts, [[s.ids for s in g] for g in groups])
            pairs = (zip(group, row, strict=True) for group, row in zip(groups, scores, strict=True))
            return [[replace(sample, logprobs=logprobs) for sample, logprobs in own] for own in pairs]

    warm = SamplingParams(max_tokens=4, temperature=0.7)
    with ModelServer(Raw(tiny_model())) as running, connect(running.url) as raw:
        raw.sample([(1,)], SamplingParams(max_tokens=4))
        with pytest.raises(errors.MissingCapability, match="processed_logprobs"):
            raw.sample([(1,)], warm)
    engine.sample([(1,)], warm)


@pytest.mark.parametrize(
    ("without", "fix"), [("lora", r"LoRA is not enabled.*--enable-lora"), ("runtime-lora", "RUNTIME_LORA")]
)
def test_missing_engine_capability_is_refused_at_start(engine: HttpModel, without: str, fix: str) -> None:
    with (
        ModelServer(tiny_model(), without=without) as running,
        pytest.raises(errors.MissingCapability, match=f"adapters.*{fix}"),
    ):
        connect(running.url, adapters=True)
    engine.require_adapters()


def test_a_server_that_is_no_engine_or_another_model_is_refused(engine: HttpModel) -> None:
    for url, error, said in (
        (
            "http://127.0.0.1:9",
            errors.EngineUnreachable,
            r"Nothing answers at http://127\.0\.0\.1:9 .*Start the server",
        ),
        ("127.0.0.1:8000", ValueError, "http://"),
        (engine.url + "/v1", errors.EngineRefused, "404"),
    ):
        with pytest.raises(error, match=said):
            connect(url)
    with pytest.raises(UnknownName, match="tiny"):
        connect(engine.url, model="tinny")
    with (
        ModelServer(tiny_model(), without="scale-out") as running,
        pytest.raises(errors.MissingCapability, match=r"Scale-out endpoints are disabled.*--enable-scale-out"),
    ):
        connect(running.url)


def test_another_tokenizer_is_noticed(engine: HttpModel) -> None:
    class Shifted(ByteTokenizer):
        def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
            return {"input_ids": [(byte + 1) % 256 for byte in text.encode()]}

    with pytest.raises(errors.EngineError, match="tokenizer"):
        HttpModel.connect(engine.url, Shifted())


def test_a_key_is_asked_for_and_never_shown() -> None:
    with ModelServer(tiny_model(), api_key="s3cret-key") as running:
        with pytest.raises(errors.EngineRefused, match="api_key"):
            connect(running.url)
        with connect(running.url, api_key="s3cret-key") as engine:
            assert engine.sample([(1,)], SamplingParams(max_tokens=1))
            assert "s3cret" not in repr(engine) + repr(engine._client)


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        ({"logprobs": {"content": [{"logprob": float("nan")}]}}, "nan"),
        ({"logprobs": None}, "logprobs.content"),
        ({"token_ids": None}, "no token_ids"),
        ({"token_ids": [1, 2]}, "drew 2 tokens and gave 1"),
        ({"finish_reason": "stop"}, "no stop id"),
        ({"finish_reason": "tool_calls"}, "tool_calls"),
        ({"token_ids": [7], "prompt_token_ids": [0, 1]}, "prompt of 2 tokens"),
        ({"token_ids": []}, "drew 0 tokens"),
    ],
)
def test_answers_that_cannot_be_trained_on_are_refused(spoilt: dict[str, Any], message: str) -> None:
    choice = {"index": 0, "token_ids": [5], "finish_reason": "length", "logprobs": {"content": [{"logprob": -1.5}]}}
    params = SamplingParams(max_tokens=1, stop_ids=frozenset({9}))
    (sample,) = samples_in({"choices": [choice]}, (1,), params, 3)
    assert sample == Sample((5,), (-1.5,), FinishReason.LENGTH, (VersionSpan(3, 0, 1),))
    answer = {"choices": [{**choice, **spoilt}], "prompt_token_ids": spoilt.get("prompt_token_ids")}
    if spoilt.get("token_ids") == []:
        answer["choices"][0]["logprobs"] = {"content": []}
    with pytest.raises(errors.BadAnswer, match=message):
        samples_in(answer, (1,), params, 3)


class Steps(ServedModel):
    """Stops in the middle of a request until it is let on, so that tests can act at a known token."""

    def __init__(self, stop_before: int = 3) -> None:
        super().__init__(tiny_model())
        self.stop_before = stop_before
        self.reached, self.go = threading.Event(), threading.Event()
        self.go.set()

    def next_logits(self, *arguments: Any) -> Any:
        request = self._active
        if request is not None and request.samples and request.steps == self.stop_before:
            self.reached.set()
            assert self.go.wait(20)
        return super().next_logits(*arguments)

    def halt(self, work: Callable[[], Any]) -> Future[Any]:
        """Begin work, and come back once it stands in the middle."""
        self.reached.clear()
        self.go.clear()
        begun = in_background(work)
        assert self.reached.wait(20)
        return begun


def in_background(work: Callable[[], Any]) -> Future[Any]:
    return ThreadPoolExecutor(1).submit(work)


def test_a_slow_engine_times_out_and_a_closed_one_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(tiny_model()) as server:
        engine = connect(server.url)
        server.model.paused = True
        monkeypatch.setattr(engine, "_client", JsonClient(server.url, seconds=0.5))
        with pytest.raises(errors.EngineTimeout, match="paused"):
            engine.sample([(1,)], SamplingParams(max_tokens=1))
    with pytest.raises((errors.EngineUnreachable, errors.EngineDied), match=server.url):
        engine.sample([(1,)], SamplingParams(max_tokens=1))


def test_a_server_that_dies_in_the_middle_of_a_request_is_named(engine: HttpModel, monkeypatch: Any) -> None:
    """What was drawn for may have been drawn: a sample is not asked for again. A score is."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def serve() -> None:
            for _ in range(4):
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65536))

        threading.Thread(target=serve, daemon=True).start()
        monkeypatch.setattr(engine, "_client", JsonClient(url))
        with pytest.raises(errors.EngineDied, match=url):
            engine.sample([(1,)], SamplingParams(max_tokens=1))
        assert len(asked) == 1
        with pytest.raises(errors.EngineDied, match=url):
            engine.score([(1,)], [[(2,)]])
        assert len(asked) == 4
    with pytest.raises(errors.EngineUnreachable, match="Start the server"):
        engine.sample([(1,)], SamplingParams(max_tokens=1))
