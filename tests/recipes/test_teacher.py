"""A bigger writer behind a URL: it plays the bounded bank, and teaches the small one, over real HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.writing import endpoint
from benchmarks.writing.setting import Reads
from keepworth.environments.bounded_bank import BoundedBank
from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.tables import tables_of
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import SilentProgress
from keepworth.methods.recipes import bounded_bank, mem_alpha
from keepworth.models.chat import ChatModel, from_environment
from keepworth.models.errors import BadAnswer, ChatError, EngineRefused
from keepworth.models.http_client import Retries
from keepworth.models.inprocess import InProcessModel
from keepworth.models.kept_replies import KeptReplies, Spent, side_by_side
from keepworth.recipes.reader import FoundReader
from keepworth.recipes.writing import WriterStreams, teacher_digits
from keepworth.rollouts.bounded_bank import chatted, rated
from keepworth.serving.model_server import ModelServer
from keepworth.tasks.fact_streams import longmemeval_streams
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.models.test_chat import says
from tests.models.tiny import tiny_network
from tests.recipes.test_bounded_bank import TINY
from tests.rollouts.scripted_model import FunctionReader
from tests.serving.scripted import scripted
from tests.serving.test_model_server import TalkingTokenizer

QUICK = Retries(attempts=3, first_wait=0.01)


def counted(text: str | None, reason: str = "stop", prompt: Any = 40, reply: Any = 2) -> dict[str, Any]:
    return {**says(text, reason), "usage": {"prompt_tokens": prompt, "completion_tokens": reply}}


@pytest.fixture(scope="module")
def own_server() -> Iterator[str]:
    """The project's own server, over a model of a few thousand weights: all that it says is garbage."""
    with ModelServer(InProcessModel(tiny_network(), TalkingTokenizer(), "tiny")) as server:
        yield server.url


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


def test_a_stream_is_played_against_the_own_server(own_server: str, tmp_path: Path) -> None:
    stream = longmemeval_streams(16)[0]
    replies = KeptReplies(
        ChatModel(own_server, "tiny", max_tokens=3, seed=1, retries=QUICK), tmp_path / "replies.jsonl"
    )
    prompts = [f"fact {number}" for number in range(4)]
    said = [replies(prompt) for prompt in prompts]
    assert replies.spent.answers == replies.spent.asked == 4
    assert replies.spent.uncounted == 0
    assert replies.spent.prompt_tokens == sum(len(f"<user>{prompt}<assistant>") for prompt in prompts)
    assert 0 < replies.spent.reply_tokens <= 12
    again = KeptReplies(ChatModel("http://127.0.0.1:9", "tiny", max_tokens=3, seed=1), tmp_path / "replies.jsonl")
    assert [again(prompt) for prompt in prompts] == said
    assert (again.spent.answers, again.spent.asked) == (4, 0)
    bank = BoundedBank(4)
    chatted(bank, stream, lambda prompt: replies(prompt[-60:]))
    assert bank.arrived == 16


# What is kept.


def test_an_answer_is_paid_for_once_whatever_kills_the_run(tmp_path: Path) -> None:
    path = tmp_path / "a" / "replies.jsonl"
    with scripted(
        (200, counted("7")), (200, counted(None)), (200, counted("ADD 3 and", "length")), (429, {})
    ) as server:
        chat = ChatModel(server.url, "m", retries=Retries(attempts=2, first_wait=0.01))
        replies = KeptReplies(chat, path)
        assert [replies(prompt) for prompt in ("a", "a", "b", "c")] == ["7", "7", "", "ADD 3 and"]
        assert replies.spent == Spent(answers=4, asked=3, prompt_tokens=160, reply_tokens=8, cut=2)
        with pytest.raises(EngineRefused, match="asked too often"):
            replies("d")
    with open(path, "ab") as file:
        file.write(b'{"key": "half of a li')
    with scripted((200, says("9"))) as server:
        chat = ChatModel(server.url, "m", retries=QUICK)
        replies = KeptReplies(chat, path)
        assert [replies(prompt) for prompt in ("a", "b", "c", "d")] == ["7", "", "ADD 3 and", "9"]
        assert (replies.spent.asked, replies.spent.uncounted) == (1, 1)
        KeptReplies(ChatModel(server.url, "another", retries=QUICK), tmp_path / "other.jsonl")("a")
        assert KeptReplies(ChatModel(server.url, "m", seed=1, retries=QUICK), path)("a") == "9"
        assert len(server.asked) == 3
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == ["7", "", "ADD 3 and", "9", "9"]


def test_a_busy_server_is_asked_again_and_nonsense_is_named(tmp_path: Path) -> None:
    busy = (429, {"error": {"message": "slow down"}}, {"Retry-After": "0"})
    with scripted(busy, (0, None), (200, counted("4"))) as server:
        assert KeptReplies(ChatModel(server.url, "m", retries=QUICK), tmp_path / "a.jsonl")("x") == "4"
        assert len(server.asked) == 3
    for nonsense in ([1], {"choices": []}, {"choices": [7]}, "no JSON"):
        with scripted((200, nonsense)) as server, pytest.raises(BadAnswer):
            KeptReplies(ChatModel(server.url, "m", retries=QUICK), tmp_path / "b.jsonl")("x")
    for usage in (None, 7, {"prompt_tokens": "many", "completion_tokens": True}):
        with scripted((200, {**says("4"), "usage": usage})) as server:
            replies = KeptReplies(ChatModel(server.url, "m", retries=QUICK), tmp_path / f"{usage}.jsonl"[:12].strip())
            assert replies("x") == "4"
            assert replies.spent.uncounted == 1


def test_the_first_error_ends_what_is_asked_side_by_side() -> None:
    begun = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 1:
            raise KeepworthError("no", "no")
        if number:
            time.sleep(0.01)  # ten seconds for all of them: the error is seen before
        return number * number

    assert side_by_side(lambda number: number * number, [3, 1, 2], 2) == [9, 1, 4]
    with pytest.raises(KeepworthError):
        side_by_side(work, list(range(1000)), 1)
    assert len(begun) < 1000


# The model teaches.


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
    assert row["n"] == row["spent"]["asked"] == asked == 24
    assert row["mean"] == pytest.approx(1 - 1 / asked)
    assert row["spent"]["prompt_tokens"] == 40 * asked
    assert len((run.path / "teacher.jsonl").read_text().splitlines()) == asked
    (table,) = tables_of(run)
    assert "imitated big" in table.note


def test_a_teacher_that_never_says_a_digit_is_an_error_and_its_answers_are_kept(
    own_server: str, tmp_path: Path
) -> None:
    chat = ChatModel(own_server, "tiny", max_tokens=2, seed=1, retries=QUICK)
    replies = KeptReplies(chat, tmp_path / "teacher.jsonl")
    said = [replies(text) for text in ("a", "b")]
    assert len(said) == 2
    with scripted((200, counted("no"))) as server:
        silent = KeptReplies(ChatModel(server.url, "m", retries=QUICK), tmp_path / "silent.jsonl")
        with pytest.raises(ChatError, match=r"no digit for any of 3 facts.*silent\.jsonl"):
            teacher_digits(["a", "b", "c"], silent, 2)
    assert len((tmp_path / "silent.jsonl").read_text().splitlines()) == 3


# The command.


def test_the_benchmark_measures_any_endpoint_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Reads, "on_file", classmethod(lambda cls: cls()))
    monkeypatch.setattr("benchmarks.writing.reads.want", lambda reads: None, raising=False)
    out = tmp_path / "record.json"
    line = ["endpoint", "--model", "org/big one", "--streams", "4", "--at-once", "1"]
    monkeypatch.setattr("sys.argv", [*line, "--runs", str(tmp_path), "--out", str(out)])
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(SystemExit):
        endpoint.main()
    assert "OPENAI_BASE_URL is not set" in capsys.readouterr().err
    monkeypatch.setattr("keepworth.models.chat.Retries", lambda: QUICK)
    replies = tmp_path / "replies" / "org-big-one.jsonl"
    with scripted(*[(200, counted("ADD 5"))] * 20, (400, {"error": {"message": "no more credit"}})) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with pytest.raises(SystemExit, match="no more credit"):
            endpoint.main()
    assert len(replies.read_text().splitlines()) == 20
    with scripted((200, counted("ADD 5")), (200, counted("I would keep it"))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        endpoint.main()
        assert len(server.asked) == 44
    record = json.loads(out.read_text())
    assert (record["streams"], record["lines"], record["read"], record["f1"]) == (4, 64, 0, None)
    assert record["invalid"] == pytest.approx(43 / 64)
    spent = {"answers": 64, "asked": 44, "prompt_tokens": 64 * 40, "reply_tokens": 128, "uncounted": 0, "cut": 0}
    assert record["spent"] == spent
    assert set(record["rules"]) == set(record["minus"]) == {"the latest", "most specific"}
    (kept,) = record["kept"]["endpoint org/big one"]
    assert sorted(map(len, kept.values())) == [0, 0, 4, 4]
    assert [12, 13, 14, 15] in kept.values()
    assert "org/big one" in capsys.readouterr().out
