"""An agent that is a program, trained with a memory: the same rewards teach the weights and what the memory shows."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from transformers import AutoTokenizer

from keepworth import Memory, train
from keepworth.base.errors import KeepworthError
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.errors import StorageFailed
from keepworth.memory.headline import MARK
from keepworth.records.episode import Episode
from keepworth.training.front_door import TrainedRun
from keepworth.training.programs import Endpoint
from keepworth.training.run_folder import RunFolder
from tests.learning.tiny_reader import ITEMS, asked, note, with_note, write_reader

PRICES = {item: str(place % 10) for place, item in enumerate(ITEMS[:12])}
WRONG = {item: str((place + 3) % 10) for place, item in enumerate(ITEMS[:12])}
ROWS = [{"prompt": asked(item), "answer": price, "wrong": WRONG[item]} for item, price in PRICES.items()]
SIZES: dict[str, Any] = {
    "train": "full",
    "learning_rate": 1e-3,
    "steps": 12,
    "tasks_per_step": 4,
    "group_size": 8,
    "max_tokens": 8,
    "patience": 0,
    "threads": 1,
    "precision": "fp32",
}
SMALL = {**SIZES, "steps": 2, "tasks_per_step": 2, "group_size": 3, "questions": 2}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_reader(tmp_path_factory.mktemp("reader"), steps=250)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of each price it has two notes, and finds the wrong one first."""
    file = tmp_path / "agent.mem"
    with Memory(file, encoder=None) as memory:
        for item in PRICES:
            memory.add(note(item, PRICES[item]))
            memory.add(note(item, WRONG[item]))
    return file


def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
    return ask(endpoint, row["prompt"])


def ask(endpoint: Endpoint, text: str, **headers: str) -> str:
    call = {"model": "any", "messages": [{"role": "user", "content": text}]}
    url = f"{endpoint.openai}/chat/completions"
    answer = httpx.post(url, json=call, headers=headers, trust_env=False, timeout=120).raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


def is_wrong(answer: str, row: dict[str, Any]) -> float:
    return float(answer == row["wrong"])


def episodes(run: TrainedRun, arm: str = "train") -> list[Episode]:
    return [stored.episode for stored in RunFolder.open(run.path).episodes(arm=arm)]


def measured(run: TrainedRun, arm: str) -> float:
    rows = RunFolder.open(run.path).evals()
    return next(row["mean"] for row in rows if row["arm"] == arm and row["split"] == "rows, test")


def first(run: TrainedRun, prices: dict[str, str]) -> float:
    """How often the note with one of the prices is found first, of the questions that were trained on."""
    assert run.memory is not None
    trained = {episode.question for episode in episodes(run)}
    with Memory(run.memory) as memory:
        asks = [item for item in prices if asked(item) in trained]
        hits = [memory.search(asked(item), top_k=1, explore=False)[0] for item in asks]
    return sum(hit.text == note(item, prices[item]) for hit, item in zip(hits, asks, strict=True)) / len(asks)


def test_weights_and_memory_learn_from_the_same_reward(tmp_path: Path, reader: str, file: Path) -> None:
    how = {**SIZES, "model": reader, "runs": tmp_path / "runs", "reward": "exact_match"}
    before = file.read_bytes()
    run = train(ROWS, agent=agent, memory=file, recall=1, name="with", **how)
    without = train(ROWS, agent=agent, name="without", **{**how, "steps": 2})
    rewards = [row["reward"] for row in RunFolder.open(run.path).metrics()]
    assert rewards[0] < 0.3
    assert sum(rewards[-3:]) / 3 > 0.6
    assert all(episode.reward == 0 for episode in episodes(without))
    assert measured(run, "no_memory") == 0
    # The note that helps is found first, in the run's copy; the memory that was given is as before.
    assert first(run, PRICES) >= 0.8
    assert file.read_bytes() == before
    # The record holds the prompt as the model saw it, with the note, and what chose it.
    tokenizer = AutoTokenizer.from_pretrained(reader)
    for episode in episodes(run):
        (call,), (decision,) = episode.segments, episode.decisions
        (id,) = decision.chosen
        text = tokenizer.decode(list(call.context))
        (shown,) = episode.shown
        assert (shown.item, text) == (id, f"user: {with_note(episode.question, shown.text)}<|end|>\nassistant: ")
        assert 0 < decision.propensity <= 1
        assert len(call.logprobs) == len(call.ids)
    assert {decision.propensity for episode in episodes(run) for decision in episode.decisions} != {1.0}
    assert all(row["memory/rewarded"] == 32 for row in RunFolder.open(run.path).metrics())


@pytest.mark.slow
def test_two_trainings_with_one_memory_do_not_mix(tmp_path: Path, reader: str, file: Path) -> None:
    runs: dict[str, TrainedRun] = {}

    def work(name: str, reward: Any) -> None:
        how = {**SIZES, "model": reader, "runs": tmp_path / "runs"}
        runs[name] = train(ROWS, agent=agent, memory=file, recall=1, reward=reward, name=name, **how)

    threads = [threading.Thread(target=work, args=one) for one in (("right", "exact_match"), ("wrong", is_wrong))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert first(runs["right"], PRICES) >= 0.7
    assert first(runs["wrong"], WRONG) >= 0.7


def test_a_memory_that_fails_does_not_stop_a_rollout(
    tmp_path: Path, reader: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(self: LiveEpisode, *given: Any, **options: Any) -> Any:
        raise StorageFailed("the disk is away")

    monkeypatch.setattr(LiveEpisode, "search", search)
    how = {**SMALL, "model": reader, "runs": tmp_path / "runs", "reward": "exact_match"}
    run = train(ROWS, agent=agent, memory=file, **how)
    assert len(episodes(run)) == 2 * 2 * 3
    for episode in episodes(run):
        assert len(episode.segments) == 1
        assert "went on without memory: StorageFailed: the disk is away" in " ".join(episode.errors)
    assert episodes(run, "failed") == []


@pytest.mark.parametrize(("mode", "stored"), [("read", False), ("on", True)])
def test_words_of_a_rollout_are_stored_at_the_end_of_its_step_with_memory_mode_on(
    tmp_path: Path, reader: str, file: Path, mode: str, stored: bool
) -> None:
    def says(row: dict[str, Any], endpoint: Endpoint) -> str:
        ask(endpoint, "I live in Oslo and my dog is called Rex.")
        return ask(endpoint, "Where do I live?")

    how = {**SMALL, "model": reader, "runs": tmp_path / "runs", "reward": lambda answer, row: len(answer) % 2}
    run = train(ROWS, agent=says, memory=file, memory_mode=mode, **how)
    assert run.memory is not None
    with Memory(run.memory) as memory:
        assert any("Oslo" in item.text for item in memory.get_all()) == stored
    shown = [
        [any("Oslo" in item.text for item in episode.shown) for episode in episodes(run)[at::6]] for at in range(6)
    ]
    assert all(of == [False, stored] for of in shown)


def test_calls_of_every_format_are_recalled_for(tmp_path: Path, reader: str, file: Path) -> None:
    def speaks(row: dict[str, Any], endpoint: Endpoint) -> str:
        message = {"role": "user", "content": row["prompt"]}
        for path, call in (
            ("responses", {"input": row["prompt"]}),
            ("messages", {"messages": [message], "max_tokens": 8}),
        ):
            sent = {"model": "any", **call}
            httpx.post(f"{endpoint.openai}/{path}", json=sent, trust_env=False, timeout=120).raise_for_status()
        return ask(endpoint, row["prompt"])

    how = {**SMALL, "model": reader, "runs": tmp_path / "runs", "reward": "exact_match"}
    run, tokenizer = train(ROWS, agent=speaks, memory=file, **how), AutoTokenizer.from_pretrained(reader)
    for episode in episodes(run):
        assert len(episode.decisions) == len(episode.segments) == 3
        assert all(MARK in tokenizer.decode(list(call.context)) for call in episode.segments)


def test_a_call_can_switch_the_memory_off(tmp_path: Path, reader: str, file: Path) -> None:
    def forgets(row: dict[str, Any], endpoint: Endpoint) -> str:
        return ask(endpoint, row["prompt"], **{"x-keepworth-memory": "off"})

    how = {**SMALL, "model": reader, "runs": tmp_path / "runs", "reward": "exact_match"}
    run = train(ROWS, agent=forgets, memory=file, **how)
    assert all(episode.decisions == () and episode.shown == () for episode in episodes(run))


def test_a_stopped_run_goes_on_with_its_memory_of_the_checkpoint(tmp_path: Path, reader: str, file: Path) -> None:
    how = {**SMALL, "model": reader, "runs": tmp_path / "runs", "reward": "exact_match", "steps": 4, "recall": 1}
    whole = train(ROWS, agent=agent, memory=file, name="whole", **how)

    def stop(step: int, numbers: Any) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(ROWS, agent=agent, memory=file, name="stopped", track=stop, **how)
    stopped = train(ROWS, agent=agent, memory=file, name="stopped", **how)
    assert [episode.segments for episode in episodes(stopped)] == [episode.segments for episode in episodes(whole)]
    chosen = [
        [decision.chosen for episode in episodes(run) for decision in episode.decisions] for run in (stopped, whole)
    ]
    assert chosen[0] == chosen[1]


def test_an_open_memory_is_used_as_it_was_opened(tmp_path: Path, reader: str) -> None:
    with Memory(tmp_path / "team.mem", encoder=None, user_id="ann", policy=None) as mine:
        mine.add(note("apple", "7"))
        how = {**SMALL, "model": reader, "runs": tmp_path / "runs", "reward": "exact_match"}
        run = train(
            [{**row, "prompt": asked("apple") + "!" * at} for at, row in enumerate(ROWS)],
            agent=agent,
            memory=mine,
            **how,
        )
    assert all(episode.decisions[0].policy == "static:lexical" for episode in episodes(run))
    assert all(len(episode.shown) == 1 for episode in episodes(run))


def test_workers_are_refused_with_a_memory_that_learns(tmp_path: Path, file: Path) -> None:
    with pytest.raises(KeepworthError, match="the memory learns in the process that trains"):
        train(
            ROWS, agent="python my_agent.py", memory=file, reward="exact_match", workers=2, model="none", runs=tmp_path
        )
    with pytest.raises(ValueError, match="memory_mode = 'on' has no effect without a memory"):
        train(ROWS, agent="python my_agent.py", reward="exact_match", memory_mode="on", model="none", runs=tmp_path)
