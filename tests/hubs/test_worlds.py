"""Environments of TextArena and OpenEnv played here, and worlds of ours played by verifiers and OpenEnv, as
docs/train_your_agent.md has it: `make test-hubs`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepworth import train
from keepworth.records.episode import Observation, RewardTerm, StopReason, Task
from keepworth.training.run_folder import RunFolder
from keepworth.worlds.bridges import UnplayableEnvironment, adapt
from keepworth.worlds.environment import Step
from keepworth.worlds.offered import offer
from keepworth.worlds.own import own_tasks
from keepworth.worlds.streams import open_stream
from tests.learning.intercepted import write_chat_model

HOW: dict[str, Any] = {"max_tokens": 5, "steps": 1, "tasks_per_step": 2, "group_size": 2, "questions": 2, "patience": 0}
HOW |= {"precision": "fp32", "threads": 1, "learning_rate": 1e-2}
ROWS = [{"prompt": "Play.", "seed": number} for number in range(12)]


class Digits:
    """Two turns, each rewarded by the digits in the answer."""

    async def reset(self, task: Task, seed: int) -> Observation:
        self.turn = 0
        return Observation(f"{task.input} World {task.row['seed']}.")

    async def step(self, action: str) -> Step:
        self.turn += 1
        rewards = (RewardTerm("digits", digits(action)),)
        return Step(Observation("Once more."), rewards, StopReason.COMPLETED if self.turn == 2 else None)

    async def close(self) -> None:
        pass


def digits(text: str) -> float:
    return sum(letter in "0123456789" for letter in text) / 10


def right_actions(stream_task: Any) -> list[str]:
    """The right actions of a task of a stream, found by playing it."""
    found = []

    async def play() -> None:
        world = stream_task.environment()
        await world.reset(stream_task.task, 0)
        for _ in range(20):
            (right, *_) = sorted(world.scene.right)
            found.append(right)
            if (await world.step(right)).stop is not None:
                return

    asyncio.run(play())
    return found


# TextArena here.


def test_a_game_of_textarena_is_played_to_its_end_and_repeats_by_its_seed() -> None:
    textarena = pytest.importorskip("textarena")
    task = own_tasks([{**row, "split": "train"} for row in ROWS], by_row=True).all[3]
    make = adapt(lambda: textarena.make("GuessTheNumber-v0-train"), task)

    async def play(guesses: list[int]) -> tuple[list[str], Step]:
        game = make(task)
        texts = [(await game.reset(task, 0)).text]
        for guess in guesses:
            step = await game.step(f"[{guess}]")
            if step.stop is not None:
                return texts, step
            texts.append(step.observation.text)
        raise AssertionError("it goes on")

    texts, ended = asyncio.run(play(list(range(1, 21))))
    assert texts[0].startswith("Play.\n\n")
    assert asyncio.run(play(list(range(1, 21))))[0] == texts
    number = len(texts)
    if number <= 10:  # the game has ten turns
        assert sum(term.value for term in ended.rewards) == 1.0
    _, at_once = asyncio.run(play([number]))
    assert sum(term.value for term in at_once.rewards) == 1.0


def test_a_game_for_two_is_refused_with_its_reason() -> None:
    textarena = pytest.importorskip("textarena")
    with pytest.raises(UnplayableEnvironment, match="cannot begin with one player: The number of players has to be 2"):
        adapt(lambda: textarena.make("TicTacToe-v0"), own_tasks(ROWS, by_row=True).all[0])


def test_a_game_of_textarena_is_trained_on(tmp_path: Path) -> None:
    textarena = pytest.importorskip("textarena")
    model = str(write_chat_model(tmp_path / "model"))
    game = lambda: textarena.make("GuessTheNumber-v0-train")  # noqa: E731
    run = train(ROWS, environment=game, model=model, runs=tmp_path / "runs", turns=3, **HOW)
    assert len(list(RunFolder.open(run.path).episodes(arm="train"))) == 4


# OpenEnv, from both sides.


@pytest.fixture
def address() -> Iterator[str]:
    """Our worlds, served to OpenEnv's clients."""
    pytest.importorskip("openenv")
    from keepworth.worlds.openenv_server import serve_to_openenv

    app = serve_to_openenv(offer(Digits, ROWS))
    server = OpenEnvServer(app)
    yield server.url
    server.close()


class OpenEnvServer:
    """Uvicorn in a thread, with the WebSockets that OpenEnv's clients use."""

    def __init__(self, app: Any) -> None:
        import socket
        import threading

        import uvicorn

        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            pass

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)


def test_our_world_is_played_by_the_client_of_openenv() -> None:
    pytest.importorskip("openenv")
    from openenv import GenericEnvClient  # type: ignore[import-not-found]

    from keepworth.worlds.openenv_server import serve_to_openenv

    world = offer("tool-graph")
    server = OpenEnvServer(serve_to_openenv(world))
    place = 3
    stream_task = open_stream("tool-graph").tasks[place]

    async def play(actions: list[str]) -> tuple[Any, list[Any]]:
        async with GenericEnvClient(base_url=server.url) as client:
            first = await client.reset(seed=place)
            return first, [await client.step({"text": action}) for action in actions]

    first, steps = asyncio.run(play(right_actions(stream_task)))
    server.close()
    assert first.observation["text"].startswith(stream_task.environment().scene.seen.text)
    assert [step.done for step in steps] == [False] * (len(steps) - 1) + [True]
    assert sum(step.reward or 0.0 for step in steps) == 1.0


def test_a_client_of_openenv_is_an_environment_to_train_on(tmp_path: Path, address: str) -> None:
    from openenv import GenericEnvClient

    model = str(write_chat_model(tmp_path / "model"))
    client = lambda: GenericEnvClient(base_url=address)  # noqa: E731
    run = train(ROWS, environment=client, model=model, runs=tmp_path / "runs", turns=4, **HOW)
    stored = [each.episode for each in RunFolder.open(run.path).episodes(arm="train")]
    assert len(stored) == 4
    for episode in stored:
        words = [call.text.removesuffix("<|end|>").strip() for call in episode.segments]
        assert len(words) == 2 or episode.stop is StopReason.MAX_TOKENS
        assert episode.reward == pytest.approx(sum(map(digits, words)))


def test_a_server_of_openenv_without_a_free_session_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openenv")
    from openenv import GenericEnvClient

    from keepworth.worlds import openenv
    from keepworth.worlds.openenv_server import serve_to_openenv

    monkeypatch.setattr(openenv, "LONGEST_WAIT", 0.2)
    server = OpenEnvServer(serve_to_openenv(offer(Digits, ROWS), sessions=1))
    task = own_tasks(ROWS, by_row=True).all[0]

    async def play() -> None:
        async with GenericEnvClient(base_url=server.url) as other:
            await other.reset(seed=0)
            await openenv.OpenEnvGame(GenericEnvClient(base_url=server.url)).reset(task, 0)

    with pytest.raises(ConnectionError, match=r"had no free session .* raise that number"):
        asyncio.run(play())
    server.close()


def test_an_openenv_server_is_trained_on_through_verifiers(tmp_path: Path, address: str) -> None:
    pytest.importorskip("verifiers.v1")
    resets = json.dumps([{"seed": number} for number in range(12)])
    model = str(write_chat_model(tmp_path / "model"))
    tasks = f"verifiers:openenv,base_url={address},resets={resets}"
    run = train(tasks, model=model, runs=tmp_path / "runs", agent_seconds=120, **HOW)
    stored = [each.episode for each in RunFolder.open(run.path).episodes(arm="train")]
    assert [len(episode.segments) for episode in stored] == [2] * 4


# Our worlds in verifiers.


def test_our_world_is_loaded_played_and_rewarded_by_verifiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verifiers.v1")
    (tmp_path / "our_digits.py").write_text(
        "from keepworth.training.offered_tasksets import world_of\n"
        "from keepworth.worlds.offered import offer\n"
        "from tests.hubs.test_worlds import ROWS, Digits\n"
        "Ours, OurEnv = world_of(offer(Digits, ROWS))\n__all__ = ['Ours', 'OurEnv']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model = str(write_chat_model(tmp_path / "model"))
    run = train("verifiers:our_digits", model=model, runs=tmp_path / "runs", agent_seconds=120, **HOW)
    stored = [each.episode for each in RunFolder.open(run.path).episodes(arm="train")]
    assert len(stored) == 4
    for episode in stored:
        words = [call.text.removesuffix("<|end|>").strip() for call in episode.segments]
        assert len(words) == 2
        assert episode.reward == pytest.approx(sum(map(digits, words)))
