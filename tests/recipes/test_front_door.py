"""The front door on a model of a few thousand weights: from rows, a reward or logs to a report, in all its forms."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import keepworth
from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.cli.main import main
from keepworth.memory.memory import Memory
from keepworth.models.chat_format import NoChatTemplate
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Episode, RewardTerm, StopReason, Task
from keepworth.records.episode import Observation, Session, Turn
from keepworth.registry import GROUP
from keepworth.training import front_door, user_tasks
from keepworth.training.front_door import BadRecipe, find_recipe, load_object
from keepworth.training.logs import tasks_of
from keepworth.training.run_folder import RunConflict, RunFolder
from keepworth.training.watch.progress import Progress
from keepworth.training.watch.tables import tables_of
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.environment import Step
from keepworth.worlds.own import own_tasks
from keepworth.worlds.recall import recall_by_search
from keepworth.worlds.splits import SPLITS
from tests.recipes import tiny_runs
from tests.recipes.tiny_runs import Notes
from tests.tasks.test_chat_logs import talk

TINY = {**tiny_runs.TINY, "questions": 100, "max_tokens": 4}
ROWS = [{"prompt": f"Say {letter}.", "letter": letter, "answer": letter} for letter in "abcdefghijkl"]


def score(answer: str, row: dict[str, Any]) -> float:
    return float(row["letter"] in answer)


Train = Callable[..., front_door.TrainedRun]


@pytest.fixture
def train(chat_checkpoint: Path, tmp_path: Path) -> Train:
    usual = {"model": str(chat_checkpoint), "runs": tmp_path, "progress": Progress(), **TINY}
    return lambda tasks=ROWS, **more: keepworth.train(tasks, **{**usual, **more})


def first_of(run: front_door.TrainedRun) -> Episode:
    """The first episode that was trained on."""
    return next(iter(RunFolder.open(run.path).episodes(arm="train"))).episode


def test_rows_and_a_reward_become_a_run_with_a_report_and_weights(train: Train, chat_checkpoint: Path) -> None:
    run = train(reward=score, name="letters")
    (table,) = tables_of(RunFolder.open(run.path))
    assert [row.arm for row in table.rows][:2] == ["untrained", "trained"]
    assert {"score", "reward", "token_f1"} <= {row["metric"] for row in RunFolder.open(run.path).evals()}
    assert run.report.is_file()
    assert "score" in run.report.read_text()
    opened = InProcessModel.load(chat_checkpoint).decode(first_of(run).segments[0].context)
    assert opened.startswith("[user]Say ")
    assert opened.endswith("[assistant]")
    assert train(reward=score, name="letters").path == run.path  # it is there, finished


def test_another_reward_or_other_rows_are_no_continuation(train: Train) -> None:
    train(reward=score, name="run")
    with pytest.raises(RunConflict, match="reward"):
        train(reward=lambda answer, row: float(row["letter"] not in answer), name="run")
    with pytest.raises(RunConflict, match="tasks"):
        train(ROWS[:-1], reward=score, name="run")


def test_memory_items_are_shown_beside_controls(train: Train, chat_checkpoint: Path, tmp_path: Path) -> None:
    memory = keepworth.Memory(tmp_path / "agent.mem", encoder="hashing")
    memory.add_many([f"The letter {row['letter']} comes when asked to say {row['letter']}." for row in ROWS])
    memory.close()
    run = train(reward=score, memory=tmp_path / "agent.mem", recall=2)
    (table,) = tables_of(RunFolder.open(run.path))
    controls = {"no_memory", "another_memory"}
    before = {f"{arm}_untrained" for arm in controls}
    assert {row.arm for row in table.rows} == {"untrained", "trained", *controls, *before}
    assert len(first_of(run).shown) == 2
    text = InProcessModel.load(chat_checkpoint).decode(first_of(run).segments[0].context)
    assert text.startswith("[user]Memory:\n- The letter")


def test_writes_of_rows_become_their_memory(train: Train) -> None:
    own = [{**row, "writes": [{"text": f"The word is {row['letter']}."}]} for row in ROWS[:6]]
    episode = first_of(train(own, reward=score, steps=1, evaluate_every=1))
    assert [each.text for each in episode.shown] == [f"The word is {episode.expected[0]}."]


def test_it_trains_where_an_event_loop_runs_as_in_a_notebook(train: Train) -> None:
    async def cell() -> front_door.TrainedRun:
        return train(reward=score, steps=1, evaluate_every=1)

    assert asyncio.run(cell()).report.is_file()

    async def wrong() -> front_door.TrainedRun:
        return train(reward=score, turns=3, name="wrong")

    with pytest.raises((KeepworthError, ValueError), match="turns = 3 has no effect"):
        asyncio.run(wrong())


INTERRUPTED = """
import os, signal, threading, time
from keepworth.training.front_door import in_thread

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


def test_an_environment_of_ones_own_is_played_over_turns(train: Train) -> None:
    run = train(environment=lambda task: Guessing(), turns=3)
    stored = list(RunFolder.open(run.path).episodes(arm="train"))
    assert any(len(each.episode.segments) == 2 for each in stored if each.episode.stop is StopReason.COMPLETED) or all(
        each.episode.stop is StopReason.MAX_TOKENS for each in stored
    )


TASKS = "tasks = [{'prompt': str(n), 'answer': 'a'} for n in range(9)]\n"


def test_a_recipes_file_sets_settings_by_their_own_names(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{TASKS}steps = 3\nsettings = {{'group_size': 2}}\n")
    assert find_recipe(str(tmp_path / "mine.py")).settings == {"steps": 3, "group_size": 2}


@pytest.mark.parametrize(("text", "says"), [
    (f"{TASKS}setings = {{'steps': 3}}\n", "Did you mean 'settings'"),
    (f"{TASKS}rewards = ['exact_match']\n", "Did you mean 'reward'"),
    (f"{TASKS}steps = 3\nsettings = {{'steps': 4}}\n", "sets steps twice"),
    ("x = 1\n", "holds no recipe"),
    ("import nowhere_at_all\n", r"cannot be imported: ModuleNotFoundError.*\(line 1\)"),
    ("def (:\n", "cannot be imported: SyntaxError"),
])  # fmt: skip
def test_a_file_that_is_no_recipe_or_says_something_in_vain_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(BadRecipe, match=f"(?s){says}"):
        find_recipe(str(tmp_path / "mine.py"))
    with pytest.raises(BadRecipe, match="Did you mean"):
        find_recipe(str(tmp_path / "mien.py"))
    sys.path.remove(str(tmp_path))


@pytest.mark.parametrize(("words", "message"), [
    (["--tasks", "rows.jsonl", "--reward", "tokenf1"], "token_f1"),
    (["--tasks", "rows.jsonl", "--reward", "rew_of_mine:right"], "Did you mean rew_of_mine.py:right?"),
    (["--environment", "worlds.py:make"], "--environment goes with tasks of your own."),
    (["arithmetic", "--environment", "worlds.py:make"], "--environment goes with tasks of your own."),
    (["memory_r1", "--source", "rows.jsonl"], "a recipe (memory_r1) and --source"),
    (["--tasks", "rows.jsonl", "--source", "rows.jsonl"], "tasks and a source"),
    (["--source", "none.jsonl"], "none.jsonl is no file"),
])  # fmt: skip
def test_missing_and_conflicting_options_are_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    (tmp_path / "rew_of_mine.py").write_text("def right(answer, row): return 1.0\n")
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_reward_that_is_always_zero_is_reported_before_training(train: Train) -> None:
    noting = Notes()
    train(reward=lambda answer, row: 0.0, name="never", progress=noting)
    train(reward=lambda answer, row: 1.0, name="always", progress=noting)
    assert sum("earns anything before training" in note for note in noting.notes) == 1


UNANSWERED = [{"prompt": letter} for letter in "abcdef"]
HELD_OUT = [{**row, "split": SPLITS[number % 3]} for number, row in enumerate(ROWS)]


def test_unscored_answers_are_left_out_of_measurements(train: Train) -> None:
    def judge(answer: str, row: dict[str, Any]) -> float:
        if row["letter"] in "bc" and answer != row["letter"]:  # of dev and of test one of four
            raise ConnectionError("the judge is down")
        return 1.0

    noting = Notes()
    run = train(HELD_OUT, reward=judge, steps=1, evaluate_every=1, progress=noting)
    rows = [row for row in RunFolder.open(run.path).evals() if row["metric"] == "judge"]
    assert {(row["mean"], row["n"], row["left_out"]) for row in rows} == {(1.0, 3, 1)}
    assert "1 of 4 answers to dev questions could not be scored and are left out" in " ".join(noting.notes)
    assert "the judge is down" in " ".join(noting.notes)
    assert not any("earns anything" in note for note in noting.notes)
    (table,) = tables_of(RunFolder.open(run.path))
    assert "could not be scored are left out: untrained 1; trained 1." in table.note


def test_silent_reward_is_averaged_over_scored_rows(train: Train) -> None:
    def early(completions: list[str], letter: list[str], **_: Any) -> list[float | None]:
        return [1.0 if each in "abcdef" else None for each in letter]

    def late(completions: list[str], letter: list[str], **_: Any) -> list[float | None]:
        return [0.5 if each not in "abcdef" else None for each in letter]

    run = RunFolder.open(train(HELD_OUT, reward=[early, late], steps=1, evaluate_every=1).path)
    rows = {row["metric"]: (row["mean"], row["n"]) for row in run.evals() if row["split"] == "dev"}
    assert (rows["early"], rows["late"], rows["reward"]) == ((1.0, 2), (0.5, 2), (0.75, 4))
    (step,) = run.metrics()
    assert {step.get("reward/early", 1.0), step.get("reward/late", 0.5)} == {1.0, 0.5}


def test_unscorable_run_is_refused_with_the_reason(train: Train) -> None:
    class Broken(Guessing):
        async def reset(self, task: Task, seed: int) -> Observation:
            raise ConnectionError("no world")

    with pytest.raises(KeepworthError, match=r"None of the 4 answers to dev questions could be scored: .*no world"):
        train(HELD_OUT, environment=Broken)


@pytest.mark.parametrize(("more", "says"), [
    ({"turns": 3}, "turns = 3 has no effect without an environment"),
    ({"environment": lambda task: Guessing(), "reward": score}, "an environment gives its own rewards"),
    ({"weights": [1.0, 2.0]}, "weights = .* has no effect without rewards of your own"),
    ({"recall": 5}, "recall = 5 has no effect without a memory"),
    ({"verifier": "exact_match", "reward": score}, "verifier = 'exact_match' has no effect with a reward"),
    ({"learning_rat": 1}, "learning_rate"),
    ({"stop": [""]}, "at least 1 character"),
    ({"track": "trakio"}, "FILE.py:NAME"),
    ({"track": "wandb"}, "needs the package wandb, which is not installed. pip install wandb"),
    ({"tasks": 5}, "neither a file nor rows"),
    ({"tasks": None}, "no tasks"),
    ({"tasks": None, "source": 3}, "source is 3"),
    ({"tasks": ROWS[:2]}, "has no task for"),
    ({"tasks": UNANSWERED}, "has no field 'answer'"),
    ({"tasks": UNANSWERED, "method": "supervised", "reward": len}, "has no field 'answer' to imitate"),
    ({"name": "a/b"}, "cannot be the name of a run"),
    ({"reward": lambda answer, row: row["lettre"]}, "has no field 'lettre'.*Did you mean 'letter'"),
])  # fmt: skip
def test_impossible_options_are_refused_before_a_run(
    train: Train, tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    """Before there is a run."""
    with pytest.raises((KeepworthError, ValueError), match=f"(?s){says}"):
        train(**more)
    assert not list(tmp_path.iterdir())


def test_a_prompt_that_is_too_long_and_a_model_without_a_template_are_named(train: Train, checkpoint: Path) -> None:
    with pytest.raises(WrongFormat, match=r"row 13 of rows: the prompt has \d+ tokens"):
        train([*ROWS, {**ROWS[0], "prompt": "a" * 3000}], reward=score)
    with pytest.raises(NoChatTemplate, match='set format = "plain"'):
        train(model=str(checkpoint), reward=score, name="bare", format="chat")
    run = train(model=str(checkpoint), reward=score, name="plain")  # auto: a bare text
    assert InProcessModel.load(checkpoint).decode(first_of(run).segments[0].context).startswith("Say ")


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


def test_a_name_that_a_file_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(answer, row): ...\n")
    with pytest.raises(ValueError, match="Did you mean 'score'"):
        load_object(f"{tmp_path / 'mine.py'}:scor", "--reward")
    with pytest.raises(BadRecipe, match=r"Write FILE.py:NAME"):
        load_object("mine.py", "--reward")
    sys.path.remove(str(tmp_path))


def test_other_packages_add_recipes_under_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = (
        "from keepworth.methods.recipes.strings import Config, system\nfrom keepworth.training.recipe import Recipe\n"
    )
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
    asked = {"role": "user", "content": "What is n?"}
    rows = [{"prompt": [{"role": "system", "content": f"n is {n}."}, asked], "n": n} for n in range(40)]
    assert all(own_tasks(rows).by_split[split] for split in SPLITS)
    named = own_tasks([{**row, "split": SPLITS[n % 3]} for n, row in enumerate(rows)])
    assert len(named.by_split["test"]) == 13


def test_memory_with_rewarded_episodes_is_a_source(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_memorys_episodes_are_trained_on_with_the_notes_that_were_shown(train: Train, tmp_path: Path) -> None:
    """Without them the model would learn to invent what it answered from."""
    path = tmp_path / "agent.mem"
    with Memory(path, encoder="hashing") as memory:
        notes = [memory.add(f"To reset router {n} press button {7 * n}.") for n in range(12)]
        for n in range(12):
            with memory.episode(f"How do I reset router {n}?") as episode:
                episode.search(top_k=1)
                episode.act(f"Press button {7 * n}.")
                episode.reward(float(n != 3))
        memory.delete(notes[5].id)
    noting = Notes()
    run = train(None, source=path, progress=noting, max_tokens=64)
    tasks = {task.row["answer"]: task.row for task in tasks_of(path).all}
    assert tasks["Press button 28."]["prompt"] == [
        {"role": "user", "content": "Memory:\n- To reset router 4 press button 28.\n\nHow do I reset router 4?"}
    ]
    assert (tasks["Press button 28."]["source"], tasks["Press button 35."]["source"]) == ("rebuilt", "question")
    says = "Prompts: 10 rebuilt from the question and the notes that were shown and are still there, 1 of the question alone"
    assert sum(says in note for note in noting.notes) == 1
    assert says in run.result["tables"][0]["note"]
    text = InProcessModel.load(Path(RunFolder.open(run.path).config["model"])).decode(first_of(run).segments[0].context)
    assert text.startswith("[user]Memory:\n- To reset router")


CALLS = (
    "{% for t in tools or [] %}[tool]{{ t.function.name }}{{ t.function.description }}{% endfor %}"
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}"
    "{% for c in m.tool_calls or [] %}CALL {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.mark.parametrize("template", ["", CALLS], ids=["written in words", "written by the template"])
def test_calls_of_tools_are_imitated_in_the_models_own_form(
    train: Train, chat_checkpoint: Path, tmp_path: Path, template: str
) -> None:
    folder = chat_checkpoint
    if template:
        folder = Path(shutil.copytree(chat_checkpoint, tmp_path / "calls"))
        (folder / "chat_template.jinja").write_text(template)
    rows = []
    for n in range(12):
        call = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": f'{{"n": {n}}}'}}
        messages = [
            {"role": "user", "content": f"Where is place {n}?"},
            {"role": "assistant", "content": None, "tool_calls": [call], "reward": n % 2},
        ]
        tools = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
        rows.append({"messages": messages, "tools": tools})
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = train(None, source=tmp_path / "chats.jsonl", model=str(folder), max_tokens=200)
    model = InProcessModel.load(folder)
    (segment,) = first_of(run).segments
    prompt, answer = model.decode(segment.context), model.decode(segment.ids[:-1])
    if template:
        assert prompt.startswith("[tool]look_up[user]Where is place ")
        assert answer.startswith('CALL look_up {"n": ')
    else:
        assert '"name": "look_up"' in prompt
        assert "To call a tool, write <tool_call>" in prompt
        assert answer.startswith('<tool_call>\n{"name": "look_up", "arguments": {"n": ')
    assert segment.ids[-1] in model.chat.stop_ids


def test_rewarded_answers_are_imitated(train: Train, chat_checkpoint: Path, tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    chats.write_text("".join(json.dumps(talk(n, n % 2, session=f"s{n}")) + "\n" for n in range(16)))
    run = train(None, source=chats, max_tokens=64)
    assert run.path.name == "chats"
    opened = RunFolder.open(run.path)
    (segment,) = first_of(run).segments
    model = InProcessModel.load(chat_checkpoint)
    assert model.decode(segment.context).endswith("[assistant]")
    assert "Where is place" in model.decode(segment.context)
    assert model.decode(segment.ids).startswith("There, ")
    assert segment.ids[-1] in model.chat.stop_ids
    assert opened.config["method"] == "supervised"
    steps = opened.metrics()
    assert len([step["loss"] for step in steps]) == TINY["steps"]
    assert not any(name.startswith("reward") for step in steps for name in step)  # nothing was drawn


def test_truncated_answers_are_counted_before_training(chat_checkpoint: Path) -> None:
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


def test_hits_of_one_session_are_shown_in_order_of_time() -> None:
    texts = [f"I met my friend {n} near a bag of {n + 13} green apples." for n in range(14)]
    session = Session("s", "", tuple(Turn("user", text, index) for index, text in enumerate(texts)))
    task = Task("t", "test", "I met my friend near a bag of apples", ("x",), "token_f1", sessions=(session,))
    shown = recall_by_search(14, None, mode="lexical")(task).shown
    assert [each.text for each in shown] == texts  # m10 comes after m9
