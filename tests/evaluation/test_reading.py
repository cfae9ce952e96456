"""Readers behind a URL: answers that are none, servers that die, and what is kept of what was paid for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from keepworth.base.chat import ChatModel
from keepworth.base.model_errors import EngineError
from keepworth.cli.main import app
from keepworth.evaluation.reading import ChatReader, KeptAnswers, choose_option
from tests.cli.test_eval_run import lines, saved
from tests.models.test_chat import says
from tests.serving.scripted import scripted

CITIES = ["York", "Leeds", "New York", "2019"]


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("2", 1),
        (" 2.", 1),
        ("2. Leeds", 1),
        ("(3) New York", 2),
        ("Leeds", 1),
        ("It was leeds!", 1),
        ("In 2019, option 2", 1),
        ("Option 1, not option 2", 0),
        ("New York", 2),
        ("They moved to New York.", 2),
        ("The answer is 2.", 1),
        ("2019", 3),
        ("", None),
        ("I do not know.", None),
        ("7", None),
        ("Leeds or York", None),
        ("1 or 2", None),
        ("3.5 million of them", None),
    ],
)
def test_an_option_is_named_by_its_number_or_its_text(said: str, place: int | None) -> None:
    assert choose_option(said, CITIES) == place


def test_answers_that_name_no_option_are_counted() -> None:
    answers = iter(["Leeds", "I do not know."])
    asked = ChatReader(lambda text: next(answers), "m")
    assert asked.choices([("one", (), CITIES), ("two", (), CITIES)]) == [1, -1]
    assert asked.unnamed == 1


GONE = (404, {"error": "gone"})


def reader(url: str) -> ChatReader:
    chat = ChatModel(url, "m")
    return ChatReader(lambda text: chat.complete([{"role": "user", "content": text}]), "m")


def test_an_empty_or_cut_answer_is_an_answer() -> None:
    with scripted(
        (200, says("")), (200, says("half an ans", "length")), (200, says(None)), (200, says("Leeds"))
    ) as server:
        found = reader(server.url).answers([(str(number), ()) for number in range(4)])
    assert found == ["", "half an ans", "", "Leeds"]


def test_an_evaluation_goes_on_after_an_empty_answer(tmp_path: Path) -> None:
    path, out = saved(tmp_path / "mine.jsonl", lines(3)), tmp_path / "out"
    with scripted((200, says("")), (200, says("1"))) as server:
        words = ["eval", "run", path, "none", "search", "--reader", server.url, "--model", "m", "--out", out]
        called = CliRunner().invoke(app, [*map(str, words), "--encoder", "hashing:256"], catch_exceptions=False)
    assert called.exit_code == 0
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    # Without memory all three prompts are one, which is asked once.
    assert [row["answer"] for row in rows if row["system"] == "none"] == [""] * 3
    assert [row["scores"]["score"] for row in rows if row["system"] == "search"] == [0.0, 1.0, 0.0]


def test_answers_before_a_server_failure_are_kept(tmp_path: Path) -> None:
    queries = [(str(number), ("a",)) for number in range(8)]
    with scripted(*[(200, says(f"answer {n}")) for n in range(5)], GONE) as server:
        with pytest.raises(EngineError):
            KeptAnswers(reader(server.url), tmp_path).answers(queries)
        assert len(server.asked) == 6
    with scripted((200, says("later"))) as server:
        found = KeptAnswers(reader(server.url), tmp_path).answers(queries)
        assert len(server.asked) == 3
    assert found == [*(f"answer {n}" for n in range(5)), *["later"] * 3]
