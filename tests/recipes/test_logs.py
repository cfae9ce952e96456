"""Logs through the front door: a file of conversations, and a memory whose episodes have rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import keepworth
from keepworth.agents.recall import retrieved
from keepworth.cli.main import main
from keepworth.episodes.episode import Session, Task, Turn
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import Progress
from keepworth.memory.memory import Memory
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes import user_tasks
from keepworth.recipes.logs import tasks_of
from keepworth.tasks.own import own_tasks
from keepworth.tasks.splits import SPLITS
from tests.recipes.test_front_door import TINY
from tests.recipes.tiny_runs import Notes
from tests.tasks.test_chat_logs import talk


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps(talk(n, n % 2, session=f"s{n}")) + "\n" for n in range(16)))
    return file


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["memory_r1", "--source", "CHATS"], "a recipe (memory_r1) and --source"),
        (["--tasks", "CHATS", "--source", "CHATS"], "tasks and a source"),
        (["--source", "none.jsonl"], "none.jsonl is no file"),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: list[str], message: str, chats: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *(str(chats) if argument == "CHATS" else argument for argument in arguments)]) != 0
    assert message in " ".join(capsys.readouterr().err.split())


def test_python_refuses_the_same() -> None:
    with pytest.raises(KeepworthError, match="no tasks"):
        keepworth.train()
    with pytest.raises(KeepworthError, match="source is 3"):
        keepworth.train(source=3)


def test_a_memory_whose_episodes_have_rewards_is_a_source(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "agent.mem"
    with Memory(path, encoder=None) as memory:
        memory.add("A sum has a result.", session_id="talk")
        for n in range(9):
            with memory.episode(f"What is {n} and one?", session_id=f"sums {n // 2}") as episode:
                episode.search()
                episode.act(f"It is {n + 1}.")
                episode.reward(float(n % 2))
    tasks = tasks_of(path)
    assert tasks.name == "agent"
    assert sorted(task.answers for task in tasks.all) == [(f"It is {n + 1}.",) for n in (1, 3, 5, 7)]
    assert {len(task.row["prompt"]) for task in tasks.all} == {3}  # what was said before in the session
    assert "no reward can reach" not in caplog.text


def test_rewarded_answers_are_imitated(chat_checkpoint: Path, chats: Path, tmp_path: Path) -> None:
    tiny = {key: value for key, value in TINY.items() if key != "max_tokens"}
    shared = {"source": chats, "model": str(chat_checkpoint), "progress": Progress(), **tiny}
    run = keepworth.train(**shared, runs=tmp_path / "chat", max_tokens=64)
    assert run.path.name == "chats"
    opened = RunFolder.open(run.path)
    (stored, *_) = opened.episodes(arm="train")
    (segment,) = stored.episode.segments
    model = InProcessModel.load(chat_checkpoint)
    assert model.decode(segment.context).endswith("[assistant]")
    assert "Where is place" in model.decode(segment.context)
    assert model.decode(segment.ids).startswith("There, ")
    assert segment.ids[-1] in model.chat.stop_ids
    assert opened.config["method"] == "supervised"
    steps = opened.metrics()
    assert len([step["loss"] for step in steps]) == TINY["steps"]
    assert not any(name.startswith("reward") for step in steps for name in step)  # nothing was drawn


def test_answers_that_are_cut_are_counted_before_anything_is_trained(chat_checkpoint: Path) -> None:
    rows = [{"prompt": f"Say {n}.", "answer": "a" * (n + 1), "split": SPLITS[n % 3]} for n in range(12)]
    given = user_tasks.Given(own_tasks(rows))
    model = InProcessModel.load(chat_checkpoint)

    def notes(**settings: Any) -> list[str]:
        progress = Notes()
        user_tasks.require_chat(user_tasks.Config(**settings), given, None, model, progress)
        return progress.notes

    task = given.tasks.by_split["train"][-1]  # the longest
    longest = len(user_tasks.right_answer(user_tasks.Config(method="supervised"), task, None, model)[1])
    (note,) = notes(method="supervised", max_tokens=longest - 1)
    assert note.startswith(f"Right answers are longer than max_tokens = {longest - 1}")
    assert f"set max_tokens = {longest} " in note
    assert notes(method="supervised", max_tokens=longest) == notes(max_tokens=1) == []


def test_what_has_no_answer_cannot_be_imitated(chat_checkpoint: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"Say {n}."} for n in range(12)]
    with pytest.raises(KeepworthError, match=r"has no field 'answer' to imitate"):
        keepworth.train(rows, method="supervised", reward=len, model=str(chat_checkpoint), runs=tmp_path, **TINY)


def test_what_is_found_in_one_session_is_shown_in_the_order_in_which_it_was_said() -> None:
    texts = [f"I met my friend {n} near a bag of {n + 13} green apples." for n in range(14)]
    session = Session("s", "", tuple(Turn("user", text, index) for index, text in enumerate(texts)))
    task = Task("t", "test", "I met my friend near a bag of apples", ("x",), "token_f1", sessions=(session,))
    shown = retrieved(14, None, mode="lexical")(task).shown
    assert [each.text for each in shown] == texts  # m10 comes after m9
