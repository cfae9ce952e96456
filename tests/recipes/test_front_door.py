"""The front door on a model of a few thousand weights: from rows, a reward or logs to a report, in all its forms."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import keepworth
from keepworth.agents.recall import retrieved
from keepworth.cli.main import main
from keepworth.environments.environment import Step
from keepworth.episodes import RewardTerm, StopReason, Task
from keepworth.episodes.episode import Observation, Session, Turn
from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.tables import tables_of
from keepworth.learning.run_folder import RunConflict, RunFolder
from keepworth.learning.watch.progress import Progress
from keepworth.memory.memory import Memory
from keepworth.models.chat_format import NoChatTemplate
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes import front_door, user_tasks
from keepworth.recipes.front_door import BadRecipe, find_recipe, named_object
from keepworth.recipes.logs import tasks_of
from keepworth.tasks.data_files import WrongFormat
from keepworth.tasks.own import own_tasks
from keepworth.tasks.splits import SPLITS
from tests.recipes import tiny_runs
from tests.recipes.tiny_runs import Notes
from tests.tasks.test_chat_logs import talk

# -- the front door on a model of a few thousand weights: from rows and a reward to a report, in all its forms -------


TINY = {**tiny_runs.TINY, "questions": 100, "max_tokens": 4}
ROWS = [{"prompt": f"Say {letter}.", "letter": letter, "answer": letter} for letter in "abcdefghijkl"]


def score(answer: str, row: dict[str, Any]) -> float:
    return float(row["letter"] in answer)


def trained(checkpoint: Path, tmp_path: Path, tasks: Any = ROWS, **more: Any) -> front_door.TrainedRun:
    settings = {"model": str(checkpoint), "runs": tmp_path, "progress": Progress(), **TINY, **more}
    return keepworth.train(tasks, **settings)


def test_rows_and_a_reward_become_a_run_with_a_report_and_weights(chat_checkpoint: Path, tmp_path: Path) -> None:
    run = trained(chat_checkpoint, tmp_path, reward=score, name="letters")
    (table,) = tables_of(RunFolder.open(run.path))
    assert [row.arm for row in table.rows][:2] == ["untrained", "trained"]
    assert {"score", "reward", "token_f1"} <= {row["metric"] for row in RunFolder.open(run.path).evals()}
    assert run.report.is_file()
    assert "score" in run.report.read_text()
    (stored, *_) = RunFolder.open(run.path).episodes(arm="train")
    opened = InProcessModel.load(chat_checkpoint).decode(stored.episode.segments[0].context)
    assert opened.startswith("[user]Say ")
    assert opened.endswith("[assistant]")
    assert trained(chat_checkpoint, tmp_path, reward=score, name="letters").path == run.path  # it is there, finished


def test_another_reward_or_other_rows_are_no_continuation(chat_checkpoint: Path, tmp_path: Path) -> None:
    trained(chat_checkpoint, tmp_path, reward=score, name="run")
    with pytest.raises(RunConflict, match="reward"):
        trained(chat_checkpoint, tmp_path, reward=lambda answer, row: float(row["letter"] not in answer), name="run")
    with pytest.raises(RunConflict, match="tasks"):
        trained(chat_checkpoint, tmp_path, ROWS[:-1], reward=score, name="run")


def test_what_memory_holds_is_shown_and_its_controls_are_measured(chat_checkpoint: Path, tmp_path: Path) -> None:
    memory = keepworth.Memory(tmp_path / "agent.mem", encoder="hashing")
    memory.add_many([f"The letter {row['letter']} comes when asked to say {row['letter']}." for row in ROWS])
    memory.close()
    run = trained(chat_checkpoint, tmp_path, reward=score, memory=tmp_path / "agent.mem", recall=2)
    (table,) = tables_of(RunFolder.open(run.path))
    assert {row.arm for row in table.rows} == {
        *("untrained", "no_memory_untrained", "another_memory_untrained"),
        *("trained", "no_memory", "another_memory"),
    }
    (stored, *_) = RunFolder.open(run.path).episodes(arm="train")
    assert len(stored.episode.shown) == 2
    text = InProcessModel.load(chat_checkpoint).decode(stored.episode.segments[0].context)
    assert text.startswith("[user]Memory:\n- The letter")


def test_what_rows_say_was_written_is_their_memory(chat_checkpoint: Path, tmp_path: Path) -> None:
    own = [{**row, "writes": [{"text": f"The word is {row['letter']}."}]} for row in ROWS[:6]]
    run = trained(chat_checkpoint, tmp_path, own, reward=score, steps=1, evaluate_every=1)
    (stored, *_) = RunFolder.open(run.path).episodes(arm="train")
    assert [each.text for each in stored.episode.shown] == [f"The word is {stored.episode.expected[0]}."]


def test_it_trains_where_an_event_loop_runs_as_in_a_notebook(chat_checkpoint: Path, tmp_path: Path) -> None:
    async def cell() -> front_door.TrainedRun:
        return trained(chat_checkpoint, tmp_path, reward=score, steps=1, evaluate_every=1)

    assert asyncio.run(cell()).report.is_file()

    async def wrong() -> front_door.TrainedRun:
        return trained(chat_checkpoint, tmp_path, reward=score, turns=3, name="wrong")

    with pytest.raises((KeepworthError, ValueError), match="turns = 3 has no effect"):
        asyncio.run(wrong())


INTERRUPTED = """
import os, signal, threading, time
from keepworth.recipes.front_door import in_thread

signal.signal(signal.SIGINT, signal.default_int_handler)
begun = threading.Event()

def work():
    begun.set()
    try:
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        print("the thread ended")
        raise

def interrupt():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    in_thread(work)
except KeyboardInterrupt:
    print("and the caller knows")
"""


def test_an_interruption_in_a_notebook_stops_the_thread_that_trains() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["the thread ended", "and the caller knows"]


class Guessing:
    """Twice right or wrong: an environment of one's own, with turns."""

    async def reset(self, task: Task, seed: int) -> Observation:
        self.left = 2
        return Observation(task.input)

    async def step(self, action: str) -> Step:
        self.left -= 1
        terms = (RewardTerm("guess", float("a" in action)),)
        return Step(Observation("Again."), terms, None if self.left else StopReason.COMPLETED)

    async def close(self) -> None: ...


def test_an_environment_of_ones_own_is_played_over_turns(chat_checkpoint: Path, tmp_path: Path) -> None:
    run = trained(chat_checkpoint, tmp_path, environment=lambda task: Guessing(), turns=3)
    stored = list(RunFolder.open(run.path).episodes(arm="train"))
    assert any(len(each.episode.segments) == 2 for each in stored if each.episode.stop is StopReason.COMPLETED) or all(
        each.episode.stop is StopReason.MAX_TOKENS for each in stored
    )


def recipe(tmp_path: Path, text: str) -> Any:
    (tmp_path / "mine.py").write_text(f"tasks = [{{'prompt': str(n), 'answer': 'a'}} for n in range(9)]\n{text}\n")
    return find_recipe(str(tmp_path / "mine.py"))


def test_a_recipes_file_sets_settings_by_their_own_names(tmp_path: Path) -> None:
    assert recipe(tmp_path, "steps = 3\nsettings = {'group_size': 2}").settings == {"steps": 3, "group_size": 2}


@pytest.mark.parametrize(("text", "says"), [
    ("setings = {'steps': 3}", "Did you mean 'settings'"),
    ("rewards = ['exact_match']", "Did you mean 'reward'"),
    ("steps = 3\nsettings = {'steps': 4}", "sets steps twice"),
])  # fmt: skip
def test_what_a_recipes_file_says_in_vain_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadRecipe, match=f"(?s){says}"):
        recipe(tmp_path, text)


def test_a_reward_that_is_not_found_is_named_with_what_there_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    (tmp_path / "rew_of_mine.py").write_text("def right(answer, row): return 1.0\n")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--tasks", "rows.jsonl", "--reward", "tokenf1"]) == 2
    assert "token_f1" in capsys.readouterr().err
    assert main(["train", "--tasks", "rows.jsonl", "--reward", "rew_of_mine:right"]) == 2
    assert "Did you mean rew_of_mine.py:right?" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", [[], ["arithmetic"]])
def test_an_environment_without_tasks_needs_some(recipe: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *recipe, "--environment", "worlds.py:make"]) == 2
    assert "--environment goes with tasks of your own." in capsys.readouterr().err


def test_a_reward_that_nothing_earns_is_said_before_the_first_step(chat_checkpoint: Path, tmp_path: Path) -> None:
    noting = Notes()
    trained(chat_checkpoint, tmp_path, reward=lambda answer, row: 0.0, name="never", progress=noting)
    trained(chat_checkpoint, tmp_path, reward=lambda answer, row: 1.0, name="always", progress=noting)
    assert sum("earns anything before training" in note for note in noting.notes) == 1


HELD_OUT = [{**row, "split": ("train", "dev", "test")[number % 3]} for number, row in enumerate(ROWS)]


def test_what_could_not_be_scored_is_left_out_of_what_is_measured(chat_checkpoint: Path, tmp_path: Path) -> None:
    def judge(answer: str, row: dict[str, Any]) -> float:
        if row["letter"] in "bc" and answer != row["letter"]:  # of dev and of test one of four
            raise ConnectionError("the judge is down")
        return 1.0

    noting = Notes()
    run = trained(chat_checkpoint, tmp_path, HELD_OUT, reward=judge, steps=1, evaluate_every=1, progress=noting)
    rows = [row for row in RunFolder.open(run.path).evals() if row["metric"] == "judge"]
    assert {(row["mean"], row["n"], row["left_out"]) for row in rows} == {(1.0, 3, 1)}
    assert "1 of 4 answers to dev questions could not be scored and are left out" in " ".join(noting.notes)
    assert "the judge is down" in " ".join(noting.notes)
    assert not any("earns anything" in note for note in noting.notes)
    (table,) = tables_of(RunFolder.open(run.path))
    assert "could not be scored are left out: untrained 1; trained 1." in table.note


def test_a_reward_with_nothing_to_say_has_its_mean_over_what_it_speaks_of(
    chat_checkpoint: Path, tmp_path: Path
) -> None:
    def early(completions: list[str], letter: list[str], **_: Any) -> list[float | None]:
        return [1.0 if each in "abcdef" else None for each in letter]

    def late(completions: list[str], letter: list[str], **_: Any) -> list[float | None]:
        return [0.5 if each not in "abcdef" else None for each in letter]

    run = RunFolder.open(
        trained(chat_checkpoint, tmp_path, HELD_OUT, reward=[early, late], steps=1, evaluate_every=1).path
    )
    rows = {row["metric"]: (row["mean"], row["n"]) for row in run.evals() if row["split"] == "dev"}
    assert (rows["early"], rows["late"], rows["reward"]) == ((1.0, 2), (0.5, 2), (0.75, 4))
    (step,) = run.metrics()
    assert {step.get("reward/early", 1.0), step.get("reward/late", 0.5)} == {1.0, 0.5}


def test_where_nothing_can_be_scored_that_is_said_by_name(chat_checkpoint: Path, tmp_path: Path) -> None:
    class Broken(Guessing):
        async def reset(self, task: Task, seed: int) -> Observation:
            raise ConnectionError("no world")

    with pytest.raises(KeepworthError, match=r"None of the 4 answers to dev questions could be scored: .*no world"):
        trained(chat_checkpoint, tmp_path, HELD_OUT, environment=Broken)


@pytest.mark.parametrize(("more", "says"), [
    ({"turns": 3}, "turns = 3 has no effect without an environment"),
    ({"environment": lambda task: Guessing(), "reward": score}, "an environment gives its own rewards"),
    ({"weights": [1.0, 2.0]}, "weights = .* has no effect without rewards of your own"),
    ({"recall": 5}, "recall = 5 has no effect without a memory"),
    ({"verifier": "exact_match", "reward": score}, "verifier = 'exact_match' has no effect with a reward"),
    ({"learning_rat": 1}, "learning_rate"),
    ({"stop": [""]}, "at least 1 character"),
    ({"track": "trakio"}, "FILE.py:NAME"),
    ({"tasks": 5}, "neither a file nor rows"),
    ({"tasks": ROWS[:2]}, "has no task for"),
    ({"tasks": [{"prompt": "a"}] * 1 + [{"prompt": letter} for letter in "bcdef"]}, "has no field 'answer'"),
    ({"name": "a/b"}, "cannot be the name of a run"),
    ({"reward": lambda answer, row: row["lettre"]}, "has no field 'lettre'.*Did you mean 'letter'"),
])  # fmt: skip
def test_what_cannot_work_is_said_before_there_is_a_run(
    chat_checkpoint: Path, tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    with pytest.raises((KeepworthError, ValueError), match=f"(?s){says}"):
        trained(chat_checkpoint, tmp_path, **{"tasks": ROWS, **more})
    assert not list(tmp_path.iterdir())


def test_a_prompt_that_is_too_long_and_a_model_without_a_template_are_named(
    chat_checkpoint: Path, checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(WrongFormat, match=r"row 13 of rows: the prompt has \d+ tokens"):
        trained(chat_checkpoint, tmp_path, [*ROWS, {**ROWS[0], "prompt": "a" * 3000}], reward=score)
    with pytest.raises(NoChatTemplate, match='set format = "plain"'):
        trained(checkpoint, tmp_path, reward=score, name="bare", format="chat")
    run = trained(checkpoint, tmp_path, reward=score, name="plain")  # auto: a bare text
    (stored, *_) = RunFolder.open(run.path).episodes(arm="train")
    assert InProcessModel.load(checkpoint).decode(stored.episode.segments[0].context).startswith("Say ")


def test_a_file_is_a_recipe(chat_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "words.py").write_text("RIGHT = 'a'\n")
    (tmp_path / "mine.py").write_text(
        '"""Says letters."""\n'
        "from words import RIGHT\n"
        f"tasks = {ROWS!r}\n"
        f"settings = {{**{TINY!r}, 'model': {str(chat_checkpoint)!r}}}\n"
        "def reward(answer, row):\n    return float(RIGHT in answer)\n"
    )
    runs = ["--runs", str(tmp_path / "runs")]
    assert main(["train", str(tmp_path / "mine.py"), *runs, "--steps", "1", "--set", "evaluate_every=1"]) == 0
    assert RunFolder.open(tmp_path / "runs" / "mine").config["steps"] == 1
    assert "reward on rows, test" in capsys.readouterr().out
    assert find_recipe(str(tmp_path / "mine.py")).about == "Says letters."
    sys.path.remove(str(tmp_path))


def test_the_command_line_takes_a_file_of_tasks_and_a_function(chat_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "my.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "mine.py").write_text("def score(answer, row):\n    return float(row['letter'] in answer)\n")
    options = [each for key, value in TINY.items() for each in ("--set", f"{key}={value}")]
    command = ["train", "--tasks", str(tmp_path / "my.jsonl"), "--reward", f"{tmp_path / 'mine.py'}:score"]
    assert main([*command, "--model", str(chat_checkpoint), "--runs", str(tmp_path / "runs"), *options]) == 0
    assert RunFolder.open(tmp_path / "runs" / "my").config["reward"] == ["score"]
    sys.path.remove(str(tmp_path))


@pytest.mark.parametrize(("text", "says"), [
    ("x = 1\n", "holds no recipe"),
    ("import nowhere_at_all\n", r"cannot be imported: ModuleNotFoundError.*\(line 1\)"),
    ("def (:\n", "cannot be imported: SyntaxError"),
])  # fmt: skip
def test_a_file_that_is_no_recipe_is_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(BadRecipe, match=says):
        find_recipe(str(tmp_path / "mine.py"))
    with pytest.raises(BadRecipe, match="Did you mean"):
        find_recipe(str(tmp_path / "mien.py"))
    sys.path.remove(str(tmp_path))


def test_a_name_that_a_file_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(answer, row): ...\n")
    with pytest.raises(ValueError, match="Did you mean 'score'"):
        named_object(f"{tmp_path / 'mine.py'}:scor", "--reward")
    with pytest.raises(BadRecipe, match=r"Write FILE.py:NAME"):
        named_object("mine.py", "--reward")
    sys.path.remove(str(tmp_path))


def test_other_packages_add_recipes_and_cannot_take_a_shipped_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import EntryPoint

    from keepworth.episodes.errors import UnknownName
    from keepworth.registry import GROUP

    made = "from keepworth.methods.recipes.strings import Config, system\nfrom keepworth.recipes.recipe import Recipe\n"
    made += "from keepworth.registry import Method\n"
    made += "METHOD = Method('recipe', '{name}', 'Theirs', 'Ours.', Recipe(Config, system))\n"
    for name in ("theirs", "strings"):
        (tmp_path / f"of_others_{name}.py").write_text(made.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(points: list[EntryPoint]) -> None:
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group="": points if group == GROUP else [])

    points = [EntryPoint(name, name, GROUP) for name in ("of_others_theirs", "nowhere_at_all")]
    install(points)
    assert find_recipe("theirs").about == "Ours."
    assert find_recipe("theirs")(steps=12)
    with pytest.raises(UnknownName) as missing:
        find_recipe("nowhere")
    assert "nowhere_at_all: ModuleNotFoundError" in missing.value.fix
    install([*points, EntryPoint("strings", "of_others_strings", GROUP)])
    with pytest.raises(KeepworthError, match="'strings' is declared twice"):
        find_recipe("strings")


def test_conversations_that_end_alike_are_told_apart() -> None:
    rows = [
        {"prompt": [{"role": "system", "content": f"n is {n}."}, {"role": "user", "content": "What is n?"}], "n": n}
        for n in range(40)
    ]
    tasks = own_tasks(rows)
    assert all(tasks.by_split[split] for split in ("train", "dev", "test"))
    named = own_tasks([{**row, "split": ("train", "dev", "test")[n % 3]} for n, row in enumerate(rows)])
    assert len(named.by_split["test"]) == 13


# -- logs through the front door: a file of conversations, and a memory whose episodes have rewards ------------------


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps(talk(n, n % 2, session=f"s{n}")) + "\n" for n in range(16)))
    return file


@pytest.mark.parametrize(("arguments", "message"), [
    (["memory_r1", "--source", "CHATS"], "a recipe (memory_r1) and --source"),
    (["--tasks", "CHATS", "--source", "CHATS"], "tasks and a source"),
    (["--source", "none.jsonl"], "none.jsonl is no file"),
])  # fmt: skip
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
