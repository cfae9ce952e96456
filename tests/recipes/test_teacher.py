"""A bigger writer behind a URL: it plays the bounded bank, and teaches the small one, over real HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from keepworth.environments.bounded_bank import BoundedBank
from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.tables import tables_of
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import SilentProgress
from keepworth.methods.recipes import bounded_bank, mem_alpha
from keepworth.methods.recipes._bank.rollouts import chatted, rated
from keepworth.methods.recipes._bank.writing import WriterStreams, teacher_digits
from keepworth.methods.recipes._reader import FoundReader
from keepworth.models.chat import ChatModel, from_environment
from keepworth.models.errors import ChatError
from keepworth.models.http_client import Retries
from keepworth.tasks.fact_streams import longmemeval_streams
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.models.test_chat import says
from tests.recipes.test_bounded_bank import TINY
from tests.rollouts.scripted_model import FunctionReader
from tests.serving.scripted import scripted

QUICK = Retries(attempts=3, first_wait=0.01)


def counted(text: str | None, reason: str = "stop", prompt: Any = 40, reply: Any = 2) -> dict[str, Any]:
    return {**says(text, reason), "usage": {"prompt_tokens": prompt, "completion_tokens": reply}}


# The model plays.


def test_what_it_says_is_carried_out_and_garbage_changes_nothing() -> None:
    stream = longmemeval_streams(16)[0]
    lines = ["ADD 7", "keep it!", "ADD", "UPDATE 0", "8", "NOOP", "DELETE 9", "", *["ADD 1"] * 8]
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return lines[len(asked) - 1]

    bank = BoundedBank(4)
    done = chatted(bank, stream, ask)
    assert [write.outcome for write in done][:8] == [
        *("kept", "invalid", "kept", "kept", "kept", "passed", "invalid", "invalid")
    ]
    assert (bank.invalid, bank.numbers) == (3, (2, 3, 4, 15))
    assert "at most 4 items" in asked[0]
    assert "Memory:\n(empty)" in asked[0]
    assert stream.facts[0].statement.split()[0] in asked[1].split("New fact:")[0]
    assert stream.task.input not in "\n".join(asked)


@pytest.mark.parametrize(
    ("text", "digit"),
    [("7", 7), (" 0\n", 0), ("I say 8 of 9", 8), ("**6**", 6), ("12", None), ("3.5", None), ("many", None), ("", None)],
)
def test_the_first_digit_that_stands_alone_counts(text: str, digit: int | None) -> None:
    assert rated("Ann has a cat.", lambda _: text) == digit


def test_a_teacher_without_an_endpoint_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ChatError, match="OPENAI_BASE_URL is not set"):
        from_environment("m", "it")
    config = bounded_bank.Config(model=str(write_tiny_checkpoint(tmp_path / "model")), warm_start_from="m", **TINY)
    with (
        RunFolder.create(tmp_path / "run", {"recipe": "bounded_bank", **config.model_dump(mode="json")}) as run,
        pytest.raises(ChatError, match="OPENAI_BASE_URL is not set"),
    ):
        bounded_bank.METHOD.make.train(config, run, SilentProgress())
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k3y")
    assert repr(from_environment("m", "it")) == "ChatModel('http://localhost:8000', 'm')"


def test_a_teacher_that_has_no_effect_is_refused(tmp_path: Path) -> None:
    for changes, key in (
        ({"warm_start": 0, "warm_start_from": "m"}, "warm_start_from"),
        ({"warm_start_at_once": 2}, "warm_start_at_once"),
    ):
        with pytest.raises((ValidationError, KeepworthError), match=key):
            bounded_bank.Config(**changes)
    config = mem_alpha.Config(warm_start_from="m")
    with (
        RunFolder.create(tmp_path / "run", {"recipe": "mem_alpha", **config.model_dump(mode="json")}) as run,
        pytest.raises(KeepworthError, match="writes by calls"),
    ):
        mem_alpha.METHOD.make.train(config, run, SilentProgress())


def test_the_small_writer_imitates_what_the_teacher_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Over HTTP: it says a digit of every fact but one, which is left out."""
    reader = FunctionReader("echo@1", lambda question, memories: " ".join(memories))
    monkeypatch.setattr(FoundReader, "loaded", lambda *_: reader)
    every = WriterStreams.statements
    monkeypatch.setattr(WriterStreams, "statements", lambda self: every(self)[:24])
    model = str(write_tiny_checkpoint(tmp_path / "model"))
    with scripted((200, counted("9")), (200, counted("what fact?")), (200, counted("9"))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        config = bounded_bank.Config(
            model=model, warm_start_from="big", **{**TINY, "steps": 1, "evaluate_every": 1, "warm_start_at_once": 1}
        )
        with RunFolder.create(tmp_path / "run", {"recipe": "bounded_bank", **config.model_dump(mode="json")}) as run:
            bounded_bank.METHOD.make.train(config, run, SilentProgress())
        asked = len(server.asked)
    (row,) = [row for row in run.evals() if row["arm"] == "teacher"]
    assert row["n"] == asked == 24
    assert row["mean"] == pytest.approx(1 - 1 / asked)
    (table,) = tables_of(run)
    assert "imitated big" in table.note


def test_a_teacher_that_never_says_a_digit_is_an_error() -> None:
    with scripted((200, counted("no"))) as server:
        silent = ChatModel(server.url, "m", retries=QUICK)
        with pytest.raises(ChatError, match="no digit for any of 3 facts"):
            teacher_digits(["a", "b", "c"], silent, 2)
