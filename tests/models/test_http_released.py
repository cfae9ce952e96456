"""The HTTP engine against servers that refuse as vLLM 0.32 and 0.33 do: routes that are there and answer no."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from keepworth.episodes import FinishReason, SamplingParams
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.trainer import Schedule, train
from keepworth.learning.watch.progress import SilentProgress
from keepworth.models.errors import EngineDied, EngineError, EngineRefused, MissingCapability
from keepworth.models.http_wire import Completions, TokensInOut
from keepworth.serving.calls import NotServed
from tests.models.test_http_publish import PARAMS, PROMPTS, Steps, changed_weights, in_background
from tests.models.tiny import tiny_model
from tests.serving.engines import connect, trained
from tests.stand_in.model import ServedModel
from tests.stand_in.server import ModelServer


def test_a_plain_vllm_is_connected_to_over_the_route_that_it_serves() -> None:
    """Without --enable-scale-out the token route is registered and answers 403."""
    with ModelServer(tiny_model(), style="vllm", control=False) as running, connect(running.url) as engine:
        assert isinstance(engine._wire, Completions)
        assert engine.sample(PROMPTS, PARAMS)
        with pytest.raises(MissingCapability, match="Scale-out endpoints are disabled"):
            engine.require("version_spans")
    with ModelServer(tiny_model(), style="vllm") as running, connect(running.url) as engine:
        assert isinstance(engine._wire, TokensInOut)


def test_adapter_routes_that_refuse_are_no_capability() -> None:
    with (
        ModelServer(tiny_model(), style="vllm", without=["lora"]) as running,
        pytest.raises(MissingCapability, match=r"LoRA is not enabled.*--enable-lora"),
    ):
        connect(running.url, require=["adapters"])


def test_adapters_that_the_engine_will_not_take_end_a_run_before_anything_is_sampled(tmp_path: Path) -> None:
    """What no probe can know: this engine takes adapters, only not this one."""
    from keepworth.learning.collect.pipeline import Pipeline
    from tests.learning.letters import Letters, settings
    from tests.learning.test_http_sampler import learner

    class Small(ServedModel):
        def __init__(self) -> None:
            super().__init__(tiny_model())
            self.lengths: list[int] = []

        def sample_as(self, name, request_id, prompts, params, caller):
            self.lengths.append(params.max_tokens)
            return super().sample_as(name, request_id, prompts, params, caller)

        def load_adapter(self, name: str, path: str) -> None:
            if Path(path).exists():
                raise NotServed("LoRA rank 4 is greater than max_lora_rank 1.", status=500)
            super().load_adapter(name, path)

    model = Small()
    with ModelServer(model, style="vllm") as running, connect(running.url, max_staleness=1) as engine:
        model.lengths.clear()
        with RunFolder.create(tmp_path / "run", {}, clock=lambda: 0.0) as run:
            mind = learner()
            asynchrony = settings(mode="overlap", max_staleness=1, caches="keep")
            pipeline = Pipeline(run, mind, Letters(), asynchrony, [engine])
            with pytest.raises(EngineRefused, match="max_lora_rank"):
                train(run, mind, pipeline, Schedule(2, 100, 1), SilentProgress(), "letters")
        assert model.lengths == [1]  # of the probe that is scored: vLLM draws a token for that


def test_a_rehearsal_leaves_the_engine_as_it_was(tmp_path: Path) -> None:
    untouched = trained(tmp_path / "a", size=0.0)
    with ModelServer(tiny_model(), style="vllm") as running, connect(running.url) as engine:
        engine.rehearse(tmp_path / "a", untouched)
        assert running.model.adapters() == {}
        assert engine.version == 0
        with pytest.raises(EngineError, match="After the rehearsal"):
            engine.rehearse(tmp_path / "a", tiny_model(seed=1))
        assert running.model.adapters() == {}


def test_full_weights_need_the_worker_call_and_not_the_transfer_routes(tmp_path: Path) -> None:
    """Weight transfer is registered in development mode whether it is configured or not, and answers 500."""
    witness = changed_weights(tmp_path / "w")
    with ModelServer(tiny_model(), style="vllm") as running, connect(running.url, require=["weights"]) as engine:
        with pytest.raises(EngineRefused, match="Weight transfer not configured"):
            engine._client.post("/init_weight_transfer_engine", {"init_info": {}})
        engine.rehearse(changed_folder(tmp_path / "same"), tiny_model())
        engine.publish(tmp_path / "w", 1, witness)
        assert running.model.labels[-1] == "tiny@1"
    with (
        ModelServer(tiny_model(), style="vllm", without=["dev-mode"]) as running,
        pytest.raises(MissingCapability, match="VLLM_SERVER_DEV_MODE"),
    ):
        connect(running.url, require=["weights"])


def changed_folder(folder: Path) -> Path:
    changed_weights(folder, size=0.0)
    return folder


def test_half_a_checkpoint_is_not_sent(tmp_path: Path) -> None:
    witness = changed_weights(tmp_path / "w")
    (tmp_path / "w" / "config.json").unlink()
    with ModelServer(tiny_model(), style="vllm") as running, connect(running.url) as engine:
        with pytest.raises(EngineError, match=r"no config\.json.*complete checkpoint"):
            engine.publish(tmp_path / "w", 1, witness)
        assert running.model.labels == ["default"]


@pytest.mark.parametrize("without", [[], ["scale-out", "tokens-only"], ["dev-mode"]])
def test_a_request_is_aborted_by_the_id_that_the_engine_gave_it(without: list[str]) -> None:
    """vLLM prefixes ids and looks for exactly those. Without development mode it also demands them (--tokens-only)."""
    model = Steps(stop_before=3)
    model.refuses_while_paused = True
    model.go.set()
    with ModelServer(model, style="vllm", without=without) as running, connect(running.url) as engine:
        for which in ("named", "all"):
            model.reached.clear()
            model.go.clear()
            sampling, samples = in_background(lambda: engine.sample(PROMPTS[:1], PARAMS))
            assert model.reached.wait(20)
            engine.abort(engine.in_flight if which == "named" else None)
            model.go.set()
            sampling.join(20)
            assert [each.finish for each in samples[0][0]] == [FinishReason.ABORTED] * 2, which
        engine.abort()  # nothing runs: nothing to say


def test_scores_and_samples_wait_out_a_pause_that_refuses_them() -> None:
    with ModelServer(tiny_model(), style="vllm") as running, connect(running.url, concurrency=4) as engine:
        engine.pause("abort")
        with pytest.raises(EngineRefused, match="Generation is paused") as refused:
            engine._client.post("/v1/completions", {"prompt": "hi"})
        assert refused.value.status == 503
        scoring, scores = in_background(lambda: engine.score([(1,)], [[(2,)]]))
        sampling, samples = in_background(lambda: engine.sample([(1,)], SamplingParams(max_tokens=1)))
        time.sleep(0.2)
        assert scoring.is_alive()
        assert sampling.is_alive()
        engine.resume()
        scoring.join(20)
        sampling.join(20)
        assert len(scores) == len(samples) == 1


def test_an_old_adapter_that_is_still_in_use_delays_nobody(tmp_path: Path) -> None:
    witnesses = [trained(tmp_path / str(version), seed=version) for version in (1, 2)]
    released = threading.Event()

    class Busy(ServedModel):
        def unload_adapter(self, name: str) -> None:
            assert released.wait(20)
            super().unload_adapter(name)

    with ModelServer(Busy(tiny_model()), style="vllm") as running, connect(running.url) as engine:
        engine.publish(tmp_path / "1", 1, witnesses[0])
        publishing, receipts = in_background(lambda: engine.publish(tmp_path / "2", 2, witnesses[1]))
        publishing.join(10)
        assert receipts
        assert sorted(running.model.adapters()) == ["tiny@1", "tiny@2"]
        released.set()
        engine.unload()
        assert running.model.adapters() == {}


def test_an_error_during_an_update_is_the_one_that_is_raised_and_the_engine_goes_on(tmp_path: Path) -> None:
    """vLLM hangs up after a 500, so that what is asked next meets a dead connection."""

    class Broken(ServedModel):
        def update_weights(self, folder: str) -> None:
            raise NotServed("reload_weights: out of memory", status=500, hang_up=True)

    witness = changed_weights(tmp_path / "w")
    with ModelServer(Broken(tiny_model()), style="vllm") as running, connect(running.url) as engine:
        with pytest.raises(EngineRefused, match="out of memory"):
            engine.publish(tmp_path / "w", 1, witness)
        assert running.model.paused is None
        assert engine.score([(1,)], [[(2,)]])


def test_an_engine_that_stays_paused_is_said(tmp_path: Path) -> None:
    class Stuck(ServedModel):
        def resume(self) -> None:
            pass

        def update_weights(self, folder: str) -> None:
            raise NotServed("no such shard", status=500)

    witness = changed_weights(tmp_path / "w")
    with ModelServer(Stuck(tiny_model()), style="vllm") as running, connect(running.url) as engine:
        with pytest.raises(EngineRefused, match=r"no such shard.*still paused after POST /resume"):
            engine.publish(tmp_path / "w", 1, witness)
        with pytest.raises(EngineError, match="still paused"):
            engine.resume()


class Counting(ServedModel):
    """How many requests that score are there at once."""

    def __init__(self) -> None:
        super().__init__(tiny_model())
        self.now = self.most = 0
        self.count = threading.Lock()

    def score_as(self, *arguments):
        with self.count:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.01)
        try:
            return super().score_as(*arguments)
        finally:
            with self.count:
                self.now -= 1


@pytest.mark.parametrize(
    ("without", "options", "at_once"), [(["dev-mode"], {}, 4), ([], {}, 1), (["dev-mode"], {"scoring": 2}, 2)]
)
def test_scoring_is_bounded_and_one_at_a_time_where_two_would_end_the_engine(
    without: list[str], options: dict[str, int], at_once: int
) -> None:
    """vLLM's processor build ends; in development mode it says what it runs on."""
    model = Counting()
    running = ModelServer(model, style="vllm", without=without)
    with running, connect(running.url, concurrency=4, **options) as engine:
        engine.score([(1,)] * 3, [[(2,), (3,), (4,)]] * 3)
    assert model.most <= at_once
    assert model.most == 1 or at_once > 1


def test_an_engine_that_ends_while_it_scores_is_said() -> None:
    with ModelServer(tiny_model(), style="vllm") as running:
        engine = connect(running.url)
    with pytest.raises(EngineDied, match=r"ended while it scored.*scoring=1"):
        engine.score([(1,)], [[(2,)]])
