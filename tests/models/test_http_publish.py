"""Publication is proven: what arrives changes the engine as it changed the witness, and what does not arrive is noticed."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from keepworth.base.model_errors import DeliveryFailed, EngineError, EngineRefused, MissingCapability, NothingDelivered
from keepworth.records import SamplingParams
from keepworth.serving.calls import NotServed
from tests.models.comparing import require_scored
from tests.models.test_http_engine import Steps, in_background
from tests.models.tiny import tiny_model
from tests.serving.engines import connect, trained
from tests.stand_in.model import ServedModel
from tests.stand_in.server import ModelServer

PROMPTS = [tuple(b"where does ana live?"), tuple(b"hi")]
PARAMS = SamplingParams(max_tokens=8, n=2, seed=5)


def versions_of(groups: Any) -> set[int]:
    return {span.version for group in groups for sample in group for span in sample.spans}


def test_engine_samples_from_the_published_adapter(tmp_path: Path) -> None:
    witness = trained(tmp_path / "a")
    with ModelServer(tiny_model()) as running, connect(running.url, adapters=True) as engine:
        before = engine.sample(PROMPTS, PARAMS)
        assert engine.calibrate(tiny_model()) < 1e-4
        receipt = engine.publish(tmp_path / "a", 7, witness)
        assert (receipt.version, engine.version) == (7, 7)
        assert receipt.probe_gap < 1e-4
        assert receipt.seconds > 0
        after = engine.sample(PROMPTS, PARAMS)
        assert after != before
        require_scored(witness, PROMPTS, after, 1e-4)
        assert versions_of(after) == {7}


def test_as_many_versions_stay_loaded_as_staleness_allows(tmp_path: Path) -> None:
    witnesses = [trained(tmp_path / str(v), seed=v) for v in range(1, 5)]
    with ModelServer(ServedModel(tiny_model(), 3)) as running, connect(running.url, max_staleness=1) as engine:
        for version, witness in enumerate(witnesses, 1):
            engine.publish(tmp_path / str(version), version, witness)
        while len(running.model.adapters) > 2:  # the oldest leaves behind the publication's back
            time.sleep(0.01)
        assert sorted(running.model.adapters) == ["tiny@3", "tiny@4"]
        with pytest.raises(EngineError, match="Versions only grow"):
            engine.publish(tmp_path / "4", 4, witnesses[-1])
        with connect(running.url) as again, pytest.raises(EngineError, match="already has an adapter 'tiny@4'"):
            again.publish(tmp_path / "4", 4, witnesses[-1])
        engine.unload()
        assert running.model.adapters == {}


class Deaf(ServedModel):
    """Says that it loads and keeps computing with what it has."""

    def _selected(self, adapter: Any) -> Any:
        return super()._selected(None)


@pytest.mark.parametrize(("size", "calibrated"), [(0.05, False), (0.05, True), (0.001, True)])
def test_a_publication_without_effect_stops_the_run(tmp_path: Path, size: float, calibrated: bool) -> None:
    """The last one moves the probe by less than the tolerance: only the comparison of movements tells it."""
    witness = trained(tmp_path / "a", size=size)
    with ModelServer(Deaf(tiny_model())) as running, connect(running.url, probe_tolerance=0.05) as engine:
        if calibrated:
            engine.calibrate(tiny_model())
        with pytest.raises(NothingDelivered, match=r"did not reach http://127.*log"):
            engine.publish(tmp_path / "a", 1, witness)
        assert engine.version == 0
        assert running.model.adapters == {}, "what was not proven is taken back"
        prompt, branch = engine.probe
    if size < 0.01:
        (here,), (there,) = (model.score([prompt], [[branch]])[0] for model in (witness, tiny_model()))
        assert max(abs(a - b) for a, b in zip(here, there, strict=True)) < 0.05, "the tolerance alone would let it pass"
        with ModelServer(tiny_model()) as running, connect(running.url) as engine:
            engine.calibrate(tiny_model())
            engine.publish(tmp_path / "a", 1, witness)


def test_other_weights_than_those_sent_are_noticed(tmp_path: Path) -> None:
    trained(tmp_path / "sent", seed=1)
    witness = trained(tmp_path / "meant", seed=2)
    with ModelServer(tiny_model()) as running, connect(running.url) as engine:
        with pytest.raises(DeliveryFailed, match="more than the tolerance"):
            engine.publish(tmp_path / "sent", 1, witness)
        with pytest.raises(DeliveryFailed, match="Before any publication"):
            engine.calibrate(witness)


def test_a_folder_that_engines_cannot_take_is_refused(tmp_path: Path) -> None:
    witness = trained(tmp_path / "a")
    settings = tmp_path / "a" / "adapter_config.json"
    with ModelServer(tiny_model()) as running, connect(running.url) as engine:
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "r": 8}))
        with pytest.raises(EngineRefused, match="does not fit tiny"):
            engine.publish(tmp_path / "a", 1, witness)
        assert engine.sample(PROMPTS, PARAMS) == engine.sample(PROMPTS, PARAMS)
    refused = pytest.raises(MissingCapability, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING")
    with ModelServer(tiny_model(), control=False) as running, connect(running.url) as engine, refused:
        engine.publish(tmp_path / "a", 1, witness)


def test_a_running_request_keeps_the_version_that_it_started_with(tmp_path: Path) -> None:
    first, second = trained(tmp_path / "1", seed=1), trained(tmp_path / "2", seed=2)
    model = Steps()
    with ModelServer(model) as running, connect(running.url, max_staleness=1, concurrency=4) as engine:
        engine.publish(tmp_path / "1", 1, first)
        sampling = model.halt(lambda: engine.sample(PROMPTS, PARAMS))
        publishing = in_background(lambda: engine.publish(tmp_path / "2", 2, second))
        model.go.set()
        samples = sampling.result(20)
        assert publishing.result(20).version == engine.version == 2
        require_scored(first, PROMPTS, samples, 1e-4)
        assert versions_of(samples) == {1}
        later = engine.sample(PROMPTS, PARAMS)
        require_scored(second, PROMPTS, later, 1e-4)
        assert versions_of(later) == {2}


def test_refused_adapters_end_a_run_before_sampling(tmp_path: Path) -> None:
    """What no probe can know: this engine takes adapters, only not this one."""
    from tests.learning.test_http_sampler import trained as train_over_http

    class Small(ServedModel):
        def __init__(self) -> None:
            super().__init__(tiny_model())
            self.lengths: list[int] = []

        def sample_as(self, name: str, prompts: Any, params: Any) -> Any:
            self.lengths.append(params.max_tokens)
            return super().sample_as(name, prompts, params)

        def load_adapter(self, name: str, path: str) -> None:
            if Path(path).exists():
                raise NotServed("LoRA rank 4 is greater than max_lora_rank 1.", status=500)
            super().load_adapter(name, path)

    model = Small()
    with ModelServer(model) as running, connect(running.url, max_staleness=1) as engine:
        model.lengths.clear()
        with pytest.raises(EngineRefused, match="max_lora_rank"):
            train_over_http(tmp_path / "run", [engine], 2)
        assert model.lengths == [1]  # of the probe that is scored: vLLM draws a token for that


def test_a_rehearsal_leaves_the_engine_as_it_was(tmp_path: Path) -> None:
    untouched = trained(tmp_path / "a", size=0.0)
    with ModelServer(tiny_model()) as running, connect(running.url) as engine:
        engine.rehearse(tmp_path / "a", untouched)
        assert running.model.adapters == {}
        assert engine.version == 0
        with pytest.raises(EngineError, match="After the rehearsal"):
            engine.rehearse(tmp_path / "a", tiny_model(seed=1))
        assert running.model.adapters == {}


def test_old_adapter_in_use_does_not_delay_publishing(tmp_path: Path) -> None:
    witnesses = [trained(tmp_path / str(version), seed=version) for version in (1, 2)]
    released = threading.Event()

    class Busy(ServedModel):
        def unload_adapter(self, name: str) -> None:
            assert released.wait(20)
            super().unload_adapter(name)

    with ModelServer(Busy(tiny_model())) as running, connect(running.url) as engine:
        engine.publish(tmp_path / "1", 1, witnesses[0])
        assert in_background(lambda: engine.publish(tmp_path / "2", 2, witnesses[1])).result(10)
        assert sorted(running.model.adapters) == ["tiny@1", "tiny@2"]
        released.set()
