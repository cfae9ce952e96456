"""SIGTERM ends what runs as Ctrl-C does: with what is kept of it, and without a word about tasks that were in the middle."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from contextlib import closing
from multiprocessing import active_children
from pathlib import Path

import pytest

from keepworth.base.interruption import interruptible
from keepworth.evaluation.stream import Job, StreamRow, run_matrix
from keepworth.memory.store.store import Store
from keepworth.training.collect.pipeline import EventLoop
from keepworth.worlds.driver import play
from tests.cli.conftest import CommandLine
from tests.rollouts.scripted_model import ScriptedModel
from tests.rollouts.test_driver import ASK, OTHER, asking

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["", "in the background"])
def shell(request: pytest.FixtureRequest) -> object:
    """How a shell starts a program: jobs in its background ignore SIGINT."""
    before = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, before)


def stopping(number: signal.Signals) -> ScriptedModel:
    def answer(prompt: str, member: int) -> str:
        if member == 1:
            os.kill(os.getpid(), number)
        return " 4\n"

    return ScriptedModel(answer)


@pytest.mark.parametrize("number", SIGNALS)
def test_sampling_is_left_without_a_trace(shell, number, caplog: pytest.LogCaptureFixture) -> None:
    """The signal arrives while one task of many computes for all of them."""
    if shell is signal.SIG_IGN and number == signal.SIGINT:
        pytest.skip("ignored, as it should be")
    model = stopping(number)
    with caplog.at_level(logging.DEBUG, "asyncio"), pytest.raises(KeyboardInterrupt), interruptible():
        play(model, [ASK, OTHER], asking(), n=4)
    gc.collect()  # what nobody has retrieved is said when it is thrown away
    assert [record.getMessage() for record in caplog.records if "never retrieved" in record.getMessage()] == []
    assert len(model.batches) == 1
    assert signal.getsignal(signal.SIGINT) is shell


def test_a_loop_of_its_own_is_left_alike(shell, caplog: pytest.LogCaptureFixture) -> None:
    loop = EventLoop()

    async def rollout() -> None:
        await loop.changed.wait()

    async def learn() -> None:
        loop.spawn(rollout())
        os.kill(os.getpid(), signal.SIGTERM)
        await loop.changed.wait()

    with caplog.at_level(logging.DEBUG, "asyncio"), pytest.raises(KeyboardInterrupt), interruptible(), closing(loop):
        loop.do(learn())
    gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_second_signal_stops_at_once() -> None:
    def answer(prompt: str, member: int) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("went on computing")

    with pytest.raises(KeyboardInterrupt), interruptible():
        play(ScriptedModel(answer), [ASK], asking())


@pytest.mark.parametrize("number", SIGNALS)
def test_every_command_ends_so(number, monkeypatch: pytest.MonkeyPatch, command: CommandLine) -> None:
    monkeypatch.setattr("keepworth.base.model_files.list_models", lambda: os.kill(os.getpid(), number))
    code, _, err = command("models", "list")
    assert (code, err) == (130, "")


def sleeps(job: Job) -> list[StreamRow]:
    Path(job[0]).touch()
    time.sleep(600)
    return []


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_server_ends_as_by_ctrl_c_when_its_terminal_is_closed(tmp_path: Path) -> None:
    import pty

    file = str(tmp_path / "agent.mem")
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        line = [sys.executable, "-m", "keepworth", "serve", "--memory", file, "--encoder", "hashing", "--port", "0"]
        os.execv(sys.executable, line)
    printed = b""
    while b"http://" not in printed:
        printed += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.WIFEXITED(status), status
    assert os.WEXITSTATUS(status) in (0, 130)


def test_processes_that_work_for_it_end_with_it(tmp_path: Path) -> None:
    marker = tmp_path / "begun"

    def stop() -> None:
        while not marker.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    jobs: list[Job] = [(str(marker), "random", seed) for seed in range(5)]
    with pytest.raises(KeyboardInterrupt), interruptible():
        run_matrix(jobs, sleeps, tmp_path / "rows.jsonl", workers=2)
    assert active_children() == []


@pytest.mark.parametrize("words", [[], ["--from", "jsonl"]])
def test_interrupted_import_imports_no_items_and_leaves_no_file(
    words, monkeypatch: pytest.MonkeyPatch, command: CommandLine
) -> None:
    if words:
        Path("lines.jsonl").write_text('{"text": "Ana is in Oslo."}\n', encoding="utf-8")
    else:
        command.done("memory", "add", "Ana is in Oslo.", "--file", "there.mem", "--encoder", "hashing")
        command.done("memory", "export", "lines.jsonl", "--file", "there.mem")
    monkeypatch.setattr(Store, "encode", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    code, _, err = command("memory", "import", "lines.jsonl", *words, "--file", "new.mem", "--encoder", "hashing")
    assert (code, err) == (130, "\nStopped. Nothing was imported.\n")
    assert not Path("new.mem").exists()
