"""An adapter that trains beside the traffic: swapped in where it is better, taken back where it is worse. It needs aiohttp."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("aiohttp")

import torch

from keepworth import Client
from keepworth.models.inprocess import InProcessModel
from keepworth.serving import background as module
from keepworth.serving.background import REPLACED, SERVING, TAKEN_BACK, TRAINING, BackgroundSettings
from keepworth.serving.memory_server import MemoryServer
from tests.serving.test_model_upstream import tiny_model

SETTINGS = BackgroundSettings(episodes=32, fewest=12, steps=10, learning_rate=2e-2, rank=4, control=3, seconds=0.3)
Judge = Callable[[str], float]


def plain(text: str) -> float:
    """The share of what is said that is ASCII: about a half by chance."""
    return sum(each.isascii() for each in text) / max(1, len(text))


def odd(text: str) -> float:
    return 1.0 - plain(text)


def with_ascii_together(model: InProcessModel) -> InProcessModel:
    """As in models that were trained on texts: what is alike lies together, and what is learned of some holds for others."""
    weight = model.network.get_input_embeddings().weight
    direction = 0.12 * torch.randn(weight.shape[1], generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for place in range(1, weight.shape[0]):
            weight[place] += direction if plain(model.decode([place])) else -direction
    return model


class Traffic:
    """Callers, one after the other, who say what each answer was worth."""

    def __init__(self, file: Path, folder: Path, settings: BackgroundSettings = SETTINGS) -> None:
        model = with_ascii_together(tiny_model(folder))
        self.server = MemoryServer(file, encoder="hashing", seed=0, model=model, training=settings).start()
        headers = {"Authorization": f"Bearer {self.server.token}"}
        self.http = httpx.Client(base_url=self.server.url, headers=headers, trust_env=False, timeout=300)
        self.memory = Client(self.server.url, self.server.token)
        self.training: Any = self.server.training
        self.asked = 0
        self.episodes: list[str] = []

    def ask(self, judge: Judge, seed: int | None = None, *, rewarded: bool = True) -> tuple[str, float, str]:
        """(which model answered, its reward, the episode)."""
        self.asked += 1
        body: dict[str, Any] = {"model": "tiny", "max_tokens": 3, "seed": self.asked if seed is None else seed}
        body["messages"] = [{"role": "user", "content": f"Is this number {self.asked} of many?"}]
        answer = self.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        reward = judge(answer.json()["choices"][0]["message"]["content"])
        episode = answer.headers["x-keepworth-episode"]
        self.episodes.append(episode)
        if rewarded:
            self.memory.reward(episode, reward)
        return answer.headers["x-keepworth-model"], reward, episode

    def until(self, state: Callable[[], bool], judge: Judge, most: int = 2500) -> None:
        for _ in range(most):
            if state():
                return
            self.ask(judge)
        raise AssertionError(
            [(each.name, each.state, each.reason, each.probe, each.watch) for each in self.training.rounds]
        )

    def states(self) -> list[str]:
        return [each.state for each in self.training.rounds]

    def close(self) -> None:
        self.http.close()
        self.memory.close()
        self.server.close()


@pytest.fixture
def traffic(tmp_path: Path) -> Iterator[Traffic]:
    traffic = Traffic(tmp_path / "agent.mem", tmp_path)
    yield traffic
    traffic.close()


@pytest.mark.slow
def test_what_got_better_is_swapped_in_and_what_got_worse_is_taken_back(traffic: Traffic) -> None:
    """Under traffic, and end to end. First the rewards are as they should be. Then they are reversed for as long as it takes to
    train the next adapter, and true again once it answers."""
    traffic.until(lambda: SERVING in traffic.states(), plain)
    first = traffic.training.current
    assert first.probe["gain"] > 0.0
    answers = [traffic.ask(plain, rewarded=False) for _ in range(60)]
    by: dict[str, list[float]] = {}
    for model, reward, episode in answers:
        by.setdefault(model, []).append(reward)
        assert model in (first.name, "tiny")
        for _ in range(400):  # it is noted beside
            receipt = traffic.memory.receipt(episode)
            if "model" in receipt:
                break
            time.sleep(0.005)
        assert receipt["model"] == model
        assert traffic.memory.episode_record(episode).segments[0].prompt_id == model
    assert set(by) == {first.name, "tiny"}, "chance leaves some to what it took the place of"
    assert sum(by[first.name]) / len(by[first.name]) > sum(by["tiny"]) / len(by["tiny"])

    def taught_wrong(start: int) -> list[Any]:
        wrong = set(traffic.episodes[start:])
        return [each for each in traffic.training.rounds if set(each.episodes) <= wrong and each.since]

    taken_back: list[Any] = []
    for _ in range(8):  # what was trained next may take its place before it is known to be worse
        start = len(traffic.episodes)
        traffic.until(lambda start=start: bool(taught_wrong(start)), odd)
        worse = taught_wrong(start)
        traffic.until(lambda worse=worse: all(each.state != SERVING for each in worse), plain)
        taken_back = [each for each in worse if each.state == TAKEN_BACK]
        if taken_back:
            break
    (gone, *_) = taken_back
    assert gone.watch["gain"] < 0.0
    assert gone.name not in {traffic.ask(plain)[0] for _ in range(20)}
    assert f'keepworth_adapter_rounds_total{{state="{TAKEN_BACK}"}}' in traffic.http.get("/metrics").text


@pytest.mark.slow
@pytest.mark.parametrize("how", ["noise", "no number", "no file"])
def test_an_adapter_that_is_not_what_was_trained_answers_nobody(
    traffic: Traffic, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file, save_file

    saved = module.save_trained

    def corrupt(model: Any, named: Any, folder: Path) -> None:
        saved(model, named, folder)
        file = folder / "adapter_model.safetensors"
        if how == "no file":
            file.unlink()
            return
        tensors = load_file(file)
        for name, value in tensors.items():
            tensors[name] = value + torch.randn_like(value) if how == "noise" else value * float("nan")
        save_file(tensors, file)

    monkeypatch.setattr(module, "save_trained", corrupt)
    traffic.until(lambda: any(each.reason.startswith("not delivered") for each in traffic.training.rounds), plain)
    assert traffic.training.current is None
    assert {traffic.ask(plain)[0] for _ in range(5)} == {"tiny"}


@pytest.mark.slow
def test_a_probe_that_does_not_rise_swaps_nothing(traffic: Traffic) -> None:
    """Rewards that say nothing about what was said."""
    drawn = iter(torch.rand(5000, generator=torch.Generator().manual_seed(0)).tolist())
    traffic.until(lambda: len(traffic.states()) >= 3 and TRAINING not in traffic.states(), lambda text: next(drawn))
    rises = [each.probe["gain"] / each.probe["error"] for each in traffic.training.rounds if each.probe]
    assert rises, "they were probed"
    for each in traffic.training.rounds:
        assert (each.state in (SERVING, REPLACED, TAKEN_BACK)) == (each.probe["gain"] > 1.28 * each.probe["error"])


@pytest.mark.slow
def test_what_was_begun_goes_on_after_a_kill_and_nothing_is_used_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process had ended in the middle of a round: it stands on file as begun, and its adapter is half there."""
    begun, go_on = threading.Event(), threading.Event()

    def stops(self: Any, groups: Any) -> Any:
        begun.set()
        go_on.wait(60)
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(module.Learner, "update", stops)
        traffic = Traffic(tmp_path / "agent.mem", tmp_path / "one")
        traffic.until(begun.is_set, plain)
        go_on.set()
        traffic.close()
    rounds = json.loads((tmp_path / "agent.mem.adapters" / "rounds.json").read_bytes())
    assert [each["state"] for each in rounds] == [TRAINING]
    half = tmp_path / "agent.mem.adapters" / "round-1"
    half.mkdir()
    (half / "adapter_config.json").write_text("{")
    traffic = Traffic(tmp_path / "agent.mem", tmp_path / "two")
    traffic.until(lambda: traffic.states()[0] != TRAINING and SERVING in traffic.states(), plain)
    name = traffic.training.current.name
    done = traffic.training.rounds
    assert done[0].episodes == rounds[0]["episodes"]
    used = [id for each in done for id in each.episodes]
    assert len(set(used)) == len(used)
    assert not any(traffic.training._is_held_out(id) for id in used)
    traffic.close()
    quiet = BackgroundSettings(episodes=10_000)
    traffic = Traffic(tmp_path / "agent.mem", tmp_path / "three", quiet)
    assert name in {traffic.ask(plain, seed=7)[0] for _ in range(12)}, "it answers after a restart, too"
    traffic.close()


def test_other_tenants_are_not_answered_by_what_one_taught() -> None:
    training = module.BackgroundTraining.__new__(module.BackgroundTraining)
    training.settings = SETTINGS
    training.rounds = [module.TrainingRound(1, "", ["e1"], SERVING)]
    names = {training.chosen("", f"e{number}") for number in range(50)}
    assert names == {"", "round@1"}
    assert {training.chosen("acme", f"e{number}") for number in range(50)} == {""}
    assert training.chosen("", "") == "round@1", "a call without memory is no part of a comparison"


def test_rounds_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "rounds.json").write_text('[{"number": 1}]')
    with pytest.raises(Exception, match="no rounds that can be read"):
        module._read(tmp_path)


def test_only_a_model_of_the_process_can_be_trained(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="Only a model of this process"):
        MemoryServer(tmp_path / "a.mem", encoder=None, upstream="http://127.0.0.1:1/v1", training=SETTINGS)
