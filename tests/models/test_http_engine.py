"""The HTTP engine against the in-process model that the server holds: the same numbers on both sides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from keepworth.episodes import FinishReason, SamplingParams
from keepworth.episodes.errors import UnknownName
from keepworth.episodes.model import Model, VersionSpan
from keepworth.models.errors import (
    BadAnswer,
    ContextOverflow,
    EngineError,
    EngineRefused,
    EngineUnreachable,
    MissingCapability,
)
from keepworth.models.http_engine import HttpModel
from keepworth.models.http_wire import derived_seed
from tests.models.tiny import ByteTokenizer, tiny_model
from tests.serving.engines import connect
from tests.stand_in.server import ModelServer

PROMPTS = [tuple(b"where does ana live?"), tuple(b"hi"), tuple(b"where does ana live?"), tuple(b"a much longer prompt")]
BRANCHES = [[tuple(b"in oslo"), tuple(b"x"), ()], [tuple(b"yes")], [], [tuple(b"k"), tuple(b"in bergen, i think")]]
STOPS = frozenset(range(0, 257, 11))
STYLES = ("keepworth", "vllm", "completions")


def server(style: str, **options: object) -> ModelServer:
    if style == "completions":  # vLLM whose token route refuses
        return ModelServer(tiny_model(), style="vllm", without=["scale-out", "tokens-only"], **options)
    return ModelServer(tiny_model(), style=style, **options)


@pytest.fixture(scope="module", params=STYLES)
def engine(request: pytest.FixtureRequest) -> Iterator[HttpModel]:
    with server(request.param) as running, connect(running.url) as engine:
        yield engine


@pytest.fixture(scope="module")
def ours() -> Iterator[HttpModel]:
    with server("keepworth") as running, connect(running.url) as engine:
        yield engine


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_samples_are_those_of_the_in_process_model(ours: HttpModel, temperature: float) -> None:
    params = SamplingParams(max_tokens=9, n=3, temperature=temperature, seed=3, stop_ids=STOPS)
    there, here = ours.sample(PROMPTS, params), tiny_model().sample(PROMPTS, params)
    for theirs, own in zip((s for g in there for s in g), (s for g in here for s in g), strict=True):
        assert theirs.ids == own.ids
        assert theirs.logprobs == pytest.approx(own.logprobs, abs=1e-6)
        assert theirs.finish == own.finish
        assert theirs.spans == own.spans
    assert {s.finish for g in there for s in g} <= {FinishReason.STOP, FinishReason.LENGTH}


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_scores_are_those_of_the_in_process_model(ours: HttpModel, temperature: float) -> None:
    there = ours.score(PROMPTS, BRANCHES, temperature)
    here = tiny_model().score(PROMPTS, BRANCHES, temperature)
    assert [[len(b) for b in own] for own in there] == [[len(b) for b in own] for own in BRANCHES]
    for theirs, own in zip((b for g in there for b in g), (b for g in here for b in g), strict=True):
        assert theirs == pytest.approx(own, abs=1e-6)


def test_every_route_gives_the_log_probability_that_the_token_was_drawn_with(engine: HttpModel) -> None:
    """Also where each prompt is a request of its own and seeds are derived: ids, stops and scores hang together."""
    params = SamplingParams(max_tokens=9, n=3, seed=3, stop_ids=STOPS)
    groups = engine.sample(PROMPTS, params)
    assert [len(group) for group in groups] == [3] * 4
    scored = tiny_model().score(PROMPTS, [[s.ids for s in group] for group in groups])
    there = engine.score(PROMPTS, [[s.ids for s in group] for group in groups])
    for group, own, theirs in zip(groups, scored, there, strict=True):
        for sample, expected, found in zip(group, own, theirs, strict=True):
            assert sample.logprobs == pytest.approx(expected, abs=1e-4)
            assert found == pytest.approx(expected, abs=1e-4)
            assert (sample.ids[-1] in STOPS) == (sample.finish is FinishReason.STOP)
            assert not STOPS & set(sample.ids[:-1])
            assert sample.spans == (VersionSpan(0, 0, len(sample.ids)),)
    assert engine.sample(PROMPTS, params) == groups
    assert groups[0] != groups[2], "equal prompts in one batch draw independently"
    assert engine.sample(PROMPTS, SamplingParams(9, n=3, seed=4, stop_ids=STOPS)) != groups


def test_it_is_a_model(engine: HttpModel) -> None:
    model: Model = engine
    assert (model.name, model.version, model.context_limit) == ("tiny", 0, 512)
    assert model.decode(model.encode("ana")) == "ana"
    assert model.stop_ids_for("\n") == tiny_model().stop_ids_for("\n")
    assert model.capabilities().token_input
    assert model.capabilities().adapters
    assert engine.health() > 0
    assert "tiny" in repr(engine)


def test_seeds_of_prompts_and_samples_differ_and_fit_the_routes() -> None:
    seeds = {derived_seed(seed, index) for seed in range(50) for index in range(50)}
    assert len(seeds) == 2500
    assert all(0 <= seed < 2**31 - 2**16 for seed in seeds)


def test_bad_requests_are_refused_before_they_are_sent(engine: HttpModel) -> None:
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        engine.sample([(1,), ()], SamplingParams(max_tokens=1))
    with pytest.raises(ContextOverflow, match="Prompt 0 has 500 tokens and may grow by 20"):
        engine.sample([(1,) * 500], SamplingParams(max_tokens=20))
    with pytest.raises(ValueError, match="max_tokens"):
        engine.sample([(1,)], SamplingParams(max_tokens=0))
    with pytest.raises(ValueError, match="temperature must be positive"):
        engine.score([(1,)], [[(2,)]], temperature=0)
    assert engine.sample([], SamplingParams(max_tokens=1)) == []
    assert engine.score([(1,)], [[]]) == [[]]


def test_an_engine_that_cannot_score_at_a_temperature_says_so() -> None:
    with (
        server("vllm") as running,
        connect(running.url) as engine,
        pytest.raises(MissingCapability, match="temperature 1"),
    ):
        engine.score([(1,)], [[(2,)]], temperature=0.7)


def test_log_probabilities_from_before_the_temperature_are_noticed() -> None:
    """vLLM's default: tokens drawn at 0.7 come with what they had at 1."""
    from tests.stand_in import model as served_model

    class Raw(served_model.ServedModel):
        def sample_as(self, name, request_id, prompts, params, caller):
            groups = super().sample_as(name, request_id, prompts, params, caller)
            scores = self.score(prompts, [[s.ids for s in g] for g in groups])
            return [
                [type(s)(s.ids, p, s.finish, s.spans) for s, p in zip(g, own, strict=True)]
                for g, own in zip(groups, scores, strict=True)
            ]

    with ModelServer(Raw(tiny_model()), style="vllm") as running, connect(running.url) as engine:
        engine.sample([(1,)], SamplingParams(max_tokens=4))
        with pytest.raises(MissingCapability, match="processed_logprobs"):
            engine.sample([(1,)], SamplingParams(max_tokens=4, temperature=0.7))
    with server("vllm") as running, connect(running.url) as engine:
        engine.sample([(1,)], SamplingParams(max_tokens=4, temperature=0.7))


# -- start-up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capability", ["adapters", "weights", "pause", "abort"])
@pytest.mark.parametrize("style", ["vllm"])
def test_what_is_required_and_absent_is_an_error_at_start_up(style: str, capability: str) -> None:
    with server(style, control=False) as running:
        with pytest.raises(MissingCapability, match=capability) as caught:
            connect(running.url, require=[capability])
        assert caught.value.fix
        with connect(running.url) as engine, pytest.raises(MissingCapability, match="pause"):
            engine.pause()
    with server(style) as running:
        connect(running.url, require=[capability]).close()


def test_spans_need_the_route_that_reports_them() -> None:
    with server("completions") as running, pytest.raises(MissingCapability, match="version_spans"):
        connect(running.url, require=["version_spans"])
    with server("vllm") as running, pytest.raises(UnknownName, match="adapters"):
        connect(running.url, require=["adaptors"])


def test_a_server_that_is_no_engine_or_another_model_is_refused() -> None:
    with pytest.raises(EngineUnreachable, match=r"Nothing answers at http://127\.0\.0\.1:9 .*Start the server"):
        connect("http://127.0.0.1:9")
    with pytest.raises(ValueError, match="http://"):
        connect("127.0.0.1:8000")
    with server("vllm") as running:
        with pytest.raises(UnknownName, match="tiny"):
            connect(running.url, model="tinny")
        with pytest.raises(EngineRefused, match="404"):
            connect(running.url + "/v1")


def test_another_tokenizer_is_noticed() -> None:
    class Shifted(ByteTokenizer):
        def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
            return {"input_ids": [(each + 1) % 256 for each in text.encode()]}

    with server("vllm") as running, pytest.raises(EngineError, match="tokenizer"):
        HttpModel.connect(running.url, Shifted())


def test_a_key_is_asked_for_and_never_shown() -> None:
    with server("vllm", api_key="s3cret-key") as running:
        with pytest.raises(EngineRefused, match="api_key"):
            connect(running.url)
        with connect(running.url, api_key="s3cret-key") as engine:
            assert engine.sample([(1,)], SamplingParams(max_tokens=1))
            assert "s3cret" not in repr(engine) + repr(engine._client)


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        ({"logprobs": {"token_logprobs": [float("nan")]}}, "nan"),
        ({"logprobs": None}, "token_logprobs"),
        ({"token_ids": None}, "no token ids"),
        ({"token_ids": [1, 2]}, "drew 2 tokens and gave 1"),
        ({"finish_reason": "stop"}, "no stop id"),
        ({"finish_reason": "tool_calls"}, "tool_calls"),
        ({"prompt_token_ids": [0, 1]}, "prompt of 2 tokens"),
    ],
)
def test_answers_that_cannot_be_trained_on_are_refused(
    ours: HttpModel, monkeypatch: pytest.MonkeyPatch, spoilt: dict[str, object], message: str
) -> None:
    choice = {"index": 0, "token_ids": [5], "finish_reason": "length", "prompt_token_ids": [1]}
    choice |= {"logprobs": {"token_logprobs": [-1.5]}}
    answers = [{"choices": [choice]}, {"choices": [{**choice, **spoilt}]}]
    monkeypatch.setattr(ours, "_answer", lambda call, idempotent: answers.pop(0))
    (sample,) = ours.sample([(1,)], SamplingParams(max_tokens=1))[0]
    assert (sample.ids, sample.logprobs) == ((5,), (-1.5,))
    with pytest.raises(BadAnswer, match=message):
        ours.sample([(1,)], SamplingParams(max_tokens=1))
