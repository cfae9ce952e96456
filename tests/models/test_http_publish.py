"""Publication is proven: what arrives changes the engine as it changed the witness, and what does not arrive is noticed."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from keepworth.episodes import FinishReason, SamplingParams
from keepworth.episodes.model import VersionSpan
from keepworth.models.adapter import unfreeze
from keepworth.models.errors import (
    BadAnswer,
    DeliveryFailed,
    EngineError,
    EngineRefused,
    MissingCapability,
    NothingDelivered,
)
from tests.models.tiny import tiny_model
from tests.serving.engines import connect, trained
from tests.stand_in.model import ServedModel
from tests.stand_in.server import ModelServer

PROMPTS = [tuple(b"where does ana live?"), tuple(b"hi")]
PARAMS = SamplingParams(max_tokens=8, n=2, seed=5)


def changed_weights(folder: Path, size: float = 0.02):
    model = tiny_model()
    named = unfreeze(model)
    for value in named.values():
        value.data.add_(size)
    model.network.save_pretrained(folder)  # a complete checkpoint: engines take no less
    model.network.requires_grad_(False)
    return model


@pytest.mark.parametrize("style", ["keepworth", "vllm"])
def test_a_published_adapter_is_what_the_engine_samples_from(tmp_path: Path, style) -> None:
    witness = trained(tmp_path / "a")
    with ModelServer(tiny_model(), style=style) as running, connect(running.url, require=["adapters"]) as engine:
        before = engine.sample(PROMPTS, PARAMS)
        assert engine.calibrate(tiny_model()) < 1e-4
        receipt = engine.publish(tmp_path / "a", 7, witness)
        assert (receipt.version, engine.version) == (7, 7)
        assert receipt.probe_gap < 1e-4
        assert receipt.seconds > 0
        after = engine.sample(PROMPTS, PARAMS)
        assert after != before
        for group, own in zip(after, witness.score(PROMPTS, [[s.ids for s in g] for g in after]), strict=True):
            for sample, expected in zip(group, own, strict=True):
                assert sample.logprobs == pytest.approx(expected, abs=1e-4)
                assert sample.spans == (VersionSpan(7, 0, len(sample.ids)),)
        if style == "keepworth":
            drawn = [[s.ids for s in group] for group in witness.sample(PROMPTS, PARAMS)]
            assert [[s.ids for s in group] for group in after] == drawn


def test_as_many_versions_stay_loaded_as_staleness_allows(tmp_path: Path) -> None:
    witnesses = [trained(tmp_path / str(v), seed=v) for v in range(1, 5)]
    with ModelServer(tiny_model(), max_adapters=3) as running, connect(running.url, max_staleness=1) as engine:
        for version, witness in enumerate(witnesses, 1):
            engine.publish(tmp_path / str(version), version, witness)
        while len(running.model.adapters()) > 2:  # the oldest leaves behind the publication's back
            time.sleep(0.01)
        assert sorted(running.model.adapters()) == ["tiny@3", "tiny@4"]
        assert sorted(running.model.network.peft_config) == ["adapter3", "adapter4"]
        with pytest.raises(EngineError, match="Versions only grow"):
            engine.publish(tmp_path / "4", 4, witnesses[-1])
    with ModelServer(tiny_model()) as running:
        with connect(running.url) as engine:
            engine.publish(tmp_path / "1", 1, witnesses[0])
        with connect(running.url) as again, pytest.raises(EngineError, match="already has an adapter 'tiny@1'"):
            again.publish(tmp_path / "1", 1, witnesses[0])


class Deaf(ServedModel):
    """Says that it loads and keeps computing with what it has."""

    def _selected(self, adapter):
        return super()._selected(None)

    def update_weights(self, folder: str) -> None:
        pass


@pytest.mark.parametrize(("size", "calibrated"), [(0.05, False), (0.05, True), (0.001, True)])
def test_a_publication_without_effect_stops_the_run(tmp_path: Path, size: float, calibrated: bool) -> None:
    """The last one moves the probe by less than the tolerance: only the comparison of movements tells it."""
    witness = trained(tmp_path / "a", size=size)
    with ModelServer(Deaf(tiny_model())) as running, connect(running.url, probe_tolerance=0.05) as engine:
        if calibrated:
            engine.calibrate(tiny_model())
        with pytest.raises(NothingDelivered, match="did not reach http://127") as caught:
            engine.publish(tmp_path / "a", 1, witness)
        assert "log" in caught.value.fix
        assert engine.version == 0
        assert running.model.adapters() == {}, "what was not proven is taken back"
        moved = abs(engine._probe(witness)[0] - engine._probe(tiny_model())[0])
        assert moved > 0
    if size < 0.01:
        gap = max(abs(a - b) for a, b in zip(engine._probe(witness), engine._probe(tiny_model()), strict=True))
        assert gap < 0.05, "this update is one that the tolerance alone would let pass"
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
        with pytest.raises(FileNotFoundError, match="no folder"):
            engine.publish(tmp_path / "nowhere", 1, witness)
        (tmp_path / "empty").mkdir()
        with pytest.raises(FileNotFoundError, match="nothing to publish"):
            engine.publish(tmp_path / "empty", 1, witness)
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "adapter_config.json").write_text('{"modules_to_save": ["lm_head"]}')
        with pytest.raises(EngineError, match="lm_head"):
            engine.publish(tmp_path / "b", 1, witness)
        changed = {**json.loads(settings.read_text()), "r": 8}
        settings.write_text(json.dumps(changed))
        with pytest.raises(EngineRefused, match="does not fit tiny"):
            engine.publish(tmp_path / "a", 1, witness)
        assert engine.sample(PROMPTS, PARAMS) == engine.sample(PROMPTS, PARAMS)
    refused = pytest.raises(MissingCapability, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING")
    with ModelServer(tiny_model(), control=False) as running, connect(running.url) as engine, refused:
        engine.publish(tmp_path / "a", 1, witness)


@pytest.mark.parametrize("style", ["keepworth", "vllm"])
def test_full_weights_are_published_and_labelled(tmp_path: Path, style) -> None:
    witness = changed_weights(tmp_path / "w")
    with ModelServer(tiny_model(), style=style) as running, connect(running.url, require=["weights"]) as engine:
        engine.calibrate(tiny_model())
        assert engine.publish(tmp_path / "w", 3, witness).probe_gap < 1e-4
        assert running.model.labels == ["default", "tiny@3"]
        (sample,) = engine.sample(PROMPTS[:1], SamplingParams(max_tokens=5))[0]
        assert sample.spans == (VersionSpan(3, 0, 5),)
        assert running.model.paused is None
        running.model.set_label("someone else's")
        with pytest.raises(BadAnswer, match="someone else's"):
            engine.sample(PROMPTS, PARAMS)
    refused = pytest.raises(NothingDelivered, match="did not reach")
    with ModelServer(Deaf(tiny_model()), style=style) as running, connect(running.url) as engine, refused:
        engine.publish(tmp_path / "w", 3, witness)


class Steps(ServedModel):
    """Stops in the middle of a request until it is let on, so that tests can act at a known token."""

    def __init__(self, stop_before: int) -> None:
        super().__init__(tiny_model())
        self.stop_before = stop_before
        self.reached, self.go = threading.Event(), threading.Event()

    def hidden_states(self, ids, positions, mask, cache):
        request = self._active
        if request is not None and request.samples and request.steps == self.stop_before:
            self.reached.set()
            assert self.go.wait(20)
        return super().hidden_states(ids, positions, mask, cache)


def in_background(function):
    box: list[object] = []
    thread = threading.Thread(target=lambda: box.append(function()), daemon=True)
    thread.start()
    return thread, box


def wait_until(reached, thread: threading.Thread) -> None:
    while not reached():
        assert thread.is_alive()
        time.sleep(0.01)


def test_a_running_request_keeps_the_version_that_it_started_with(tmp_path: Path) -> None:
    first, second = trained(tmp_path / "1", seed=1), trained(tmp_path / "2", seed=2)
    model = Steps(stop_before=3)
    model.go.set()
    with ModelServer(model) as running, connect(running.url, max_staleness=1, concurrency=4) as engine:
        engine.publish(tmp_path / "1", 1, first)
        model.reached.clear()
        model.go.clear()
        sampling, samples = in_background(lambda: engine.sample(PROMPTS, PARAMS))
        assert model.reached.wait(20)
        publishing, receipts = in_background(lambda: engine.publish(tmp_path / "2", 2, second))
        model.go.set()
        sampling.join(20)
        publishing.join(20)
        assert receipts
        assert engine.version == 2
        (groups,) = samples
        assert [[s.ids for s in g] for g in groups] == [[s.ids for s in g] for g in first.sample(PROMPTS, PARAMS)]
        assert {span.version for g in groups for s in g for span in s.spans} == {1}
        later = engine.sample(PROMPTS, PARAMS)
        assert [[s.ids for s in g] for g in later] == [[s.ids for s in g] for g in second.sample(PROMPTS, PARAMS)]
        assert {span.version for g in later for s in g for span in s.spans} == {2}


def test_a_frozen_request_goes_on_under_new_weights_and_says_from_which_token(tmp_path: Path) -> None:
    witness = changed_weights(tmp_path / "w", size=0.2)
    model = Steps(stop_before=3)
    model.go.set()
    with ModelServer(model) as running, connect(running.url, require=["pause", "weights"]) as engine:
        engine.calibrate(tiny_model())
        whole = engine.sample(PROMPTS[:1], SamplingParams(max_tokens=8, seed=5))[0][0]
        model.reached.clear()
        model.go.clear()
        sampling, samples = in_background(lambda: engine.sample(PROMPTS[:1], SamplingParams(max_tokens=8, seed=5)))
        assert model.reached.wait(20)
        publishing, receipts = in_background(lambda: engine.publish(tmp_path / "w", 1, witness))
        wait_until(lambda: model.paused == "keep", publishing)
        model.go.set()
        sampling.join(20)
        publishing.join(20)
        assert receipts
        ((crossed,),) = samples[0]
    assert whole.spans == (VersionSpan(0, 0, 8),)
    assert crossed.spans == (VersionSpan(0, 0, 3), VersionSpan(1, 3, 8))
    assert crossed.ids[:3] == whole.ids[:3]
    assert crossed.logprobs[:3] == pytest.approx(whole.logprobs[:3], abs=1e-6)
    assert crossed.logprobs[3:] != pytest.approx(whole.logprobs[3:], abs=1e-3)


def test_pausing_by_abort_ends_what_runs_and_resuming_lets_new_requests_through() -> None:
    model = Steps(stop_before=3)
    model.go.set()
    with ModelServer(model, style="vllm") as running, connect(running.url, require=["pause", "abort"]) as engine:
        model.reached.clear()
        model.go.clear()
        sampling, samples = in_background(lambda: engine.sample(PROMPTS[:1], PARAMS))
        assert model.reached.wait(20)
        assert len(engine.in_flight) == 1
        pausing, _ = in_background(lambda: engine.pause("abort"))
        wait_until(lambda: model.paused == "abort", pausing)
        model.go.set()
        sampling.join(20)
        pausing.join(20)
        assert [s.finish for s in samples[0][0]] == [FinishReason.ABORTED] * 2
        assert samples[0][0][0].spans == ()
        waiting, late = in_background(lambda: engine.sample(PROMPTS[:1], PARAMS))
        waiting.join(0.2)
        assert waiting.is_alive(), "a paused engine lets new requests wait"
        engine.resume()
        waiting.join(20)
        assert late[0][0][0].finish is FinishReason.LENGTH
        assert engine.in_flight == ()
        with pytest.raises(ValueError, match="pause mode"):
            engine.pause("stop")  # type: ignore[arg-type]
