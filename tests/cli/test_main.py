"""The command line as people meet it: exit codes, one line per mistake, never a stack trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from keepworth import __version__
from keepworth.base import extras
from keepworth.cli import doctor
from keepworth.cli.main import main
from keepworth.cli.train import program
from keepworth.registry import GROUP, Method
from keepworth.training.recipe import Recipe
from keepworth.training.run_folder import RunFolder
from keepworth.training.watch.progress import Progress
from tests.cli.conftest import CommandLine as Command
from tests.evaluation.sample_run import sample_run


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    seed: int = 0
    steps: int = 3


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that counts: for what the command line does around training, not for training."""

    def learn(config: Config, run: RunFolder, progress: Progress, origin: object = None) -> None:
        last = run.latest_checkpoint()
        done = last.step if last else 0
        progress.start(config.steps, "counting")
        for step in range(done + 1, config.steps + 1):
            run.append_metrics(step, {"reward": step / 10})
            progress.step(step, {"reward": step / 10})
            with run.checkpoint(step) as folder:
                (folder / "count").write_text(str(step))
            if os.environ.get("STOP_AT") == str(step):
                raise KeyboardInterrupt
            if os.environ.get("DIVERGE_AT") == str(step):
                raise FloatingPointError("the loss is not finite")
            if os.environ.get("BREAK_AT") == str(step):
                raise ZeroDivisionError("one step too far")
        rows = [{"arm": "trained", "metric": "f1", "mean": 0.5, "n": 1}]
        run.write_result({"tables": [{"title": "Counted", "rows": rows}]})

    module = ModuleType("counting_recipe")
    made = Recipe(Config, lambda config: SimpleNamespace(learn=learn))
    module.METHOD = Method("recipe", "counting", "Counting", "Counts.", made)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "counting_recipe", module)
    entry = EntryPoint("counting", "counting_recipe", GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group="": [entry] if group == GROUP else [])


def test_version(command: Command) -> None:
    assert command("--version") == (0, f"keepworth {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("trian", "memory_r1"), "Did you mean 'train'"),
        (("train",), "Nothing was said to train on"),
        (("train", "memry_r1"), "Did you mean 'memory_r1'"),
        (("train", "counting", "--stepz", "3"), "--steps"),
        (("train", "counting", "--set", "sed=1"), "Did you mean 'seed'"),
        (("train", "counting", "--role", "manager"), "--role has no effect"),
        (("train", "counting", "--config", "nowhere.toml"), "no configuration file nowhere.toml"),
        (("train", "counting", "--name", ".."), "'..' cannot be the name of a run"),
        (("train", "counting", "--name", ".", "--fresh"), "'.' cannot be the name of a run"),
        (("train", "counting", "--name", "a/b"), "'a/b' cannot be the name of a run"),
        (("demo", "--name", "/tmp"), "'/tmp' cannot be the name of a run"),
        (("report",), "There is no run in runs yet"),
        (("show", "nothing"), "There is no run 'nothing' in runs.\n  hint: keepworth demo makes one"),
        (("report", "nothing"), "There is no run 'nothing' in runs.\n  hint: keepworth demo makes one"),
        (("methods", "show", "grppo"), "Did you mean"),
        (("models", "fetch", "smollm2-135m-instuct"), "smollm2-135m-instruct"),
    ],
)
@pytest.mark.usefixtures("recipe")
def test_a_mistake_is_one_line_and_a_hint(command: Command, arguments: tuple[str, ...], says: str) -> None:
    err = command.refused(*arguments)
    assert err.startswith("error: ")
    assert says in err
    assert len(err.strip().splitlines()) <= 3


@pytest.mark.usefixtures("recipe")
def test_training_leaves_a_run_folder_and_prints_its_tables(command: Command, tmp_path: Path) -> None:
    train = ("train", "counting", "--seed", "7", "--name", "first", "--steps")
    code, out, err = command(*train, "2")
    assert (code, err) == (0, "")
    assert "step 2/2" in out
    assert "Counted" in out
    run = RunFolder.open(tmp_path / "runs" / "first")
    assert run.config == {"recipe": "counting", "seed": 7, "steps": 2}
    assert (run.path / "report.html").exists()
    assert "finished" in command.done(*train, "2")
    err = command.refused(*train, "3")
    assert "steps: 2 -> 3" in err
    assert "--fresh" in err
    command.done(*train, "3", "--fresh")


@pytest.mark.usefixtures("recipe")
def test_starting_over_deletes_no_files_of_something_else(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine" / "weights" / "model.bin"
    file.parent.mkdir(parents=True)
    file.write_text("precious")
    err = command.refused("train", "counting", "--runs", ".", "--name", "mine", "--fresh")
    assert "mine holds files, but no record of a run" in err
    assert file.read_text() == "precious"


@pytest.mark.usefixtures("recipe")
def test_an_interrupted_run_says_how_to_go_on_and_does(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOP_AT", "2")
    code, out, _ = command("train", "counting", "--fresh")
    assert code == 130
    assert "To continue: keepworth train counting\n" in out
    monkeypatch.delenv("STOP_AT")
    out = command.done("train", "counting")
    assert "from step 2" in out
    assert "step 3/3" in out
    assert "step 2/3" not in out


def test_suggested_program_name_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = tmp_path / ".venv" / "bin" / "keepworth"
    started.parent.mkdir(parents=True)
    started.write_text("#!/bin/sh\n")
    started.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(started)])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == ".venv/bin/keepworth"
    monkeypatch.setenv("PATH", str(started.parent))
    assert program() == "keepworth"


@pytest.mark.usefixtures("recipe")
def test_a_diverging_run_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIVERGE_AT", "1")
    code, _, err = command("train", "counting")
    assert code == 2
    assert "diverged (the loss is not finite)" in err
    assert "learning rate" in err


@pytest.mark.usefixtures("recipe")
def test_a_bug_is_a_traceback_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BREAK_AT", "1")
    monkeypatch.delenv("KEEPWORTH_DEBUG", raising=False)
    assert main(["train", "counting"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "error: something broke inside keepworth: ZeroDivisionError: one step too far" in said
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "train", "counting", "--fresh"])
    os.environ.pop("KEEPWORTH_DEBUG")


@pytest.mark.usefixtures("recipe")
def test_the_printed_configuration_is_toml(command: Command) -> None:
    assert command("train", "counting", "--set", "seed=4", "--print-config") == (0, "seed = 4\nsteps = 3\n", "")


def test_show_prints_tables_and_curves_of_the_run_or_of_the_latest(command: Command, tmp_path: Path) -> None:
    assert "There is no run in runs yet" in command.refused("show")
    sample_run(tmp_path / "runs" / "demo", steps=6)
    for words in (("show",), ("show", "demo")):
        out = command.done(*words)
        for text in (
            "Answerer: held-out questions",
            "trained, with memory",
            "0.620",
            "[0.54, 0.71]",
            "Seconds by phase",
            "▁",
        ):
            assert text in out


def test_show_pages_through_episodes(command: Command, tmp_path: Path) -> None:
    run = sample_run(tmp_path / "runs" / "demo", steps=6)
    show = ("show", "demo", "--episodes")
    out = command.done(*show, "--role", "answerer", "--step", "1")
    assert out.count("expected") == 4
    assert "My commute takes 45 minutes" in out
    assert "0.930" in out
    out = command.done(*show, "--worst", "--limit", "3")
    lowest = sorted(episode.episode.reward for episode in run.episodes())[:3]
    assert [float(line.split()[2]) for line in out.splitlines() if "reward" in line] == pytest.approx(lowest, abs=1e-3)
    assert "SUPERSEDE" in command.done(*show, "--role", "manager")
    assert "No episode" in command.refused(*show, "--step", "99")
    assert "reward" in command.done("show", "demo", "--worst", "--limit", "1"), "--worst says that episodes are meant"
    out = command.done(*show, "--limit", "2", "--export", "lines.jsonl")
    assert out.startswith("2 episodes are in")
    written = [json.loads(line)["reward"] for line in Path("lines.jsonl").read_text().splitlines()]
    assert written == [episode.episode.reward for episode in list(run.episodes())[:2]]


def test_doctor_examines_the_machine(command: Command) -> None:
    found = {row["subject"]: row for row in json.loads(command.done("doctor", "--json"))}
    assert found["python"]["verdict"] == "good"
    assert {"torch", "cores", "disk", "packages", "model", "extra"} <= set(found)


@pytest.mark.parametrize("command", ["show demo --episodes", "methods --kind objective", "--help"])
def test_a_closed_pipe_is_no_error(tmp_path: Path, command: str) -> None:
    if command.startswith("show"):
        sample_run(tmp_path / "runs" / "demo", steps=30)
    for reader in ("head -c 1 >/dev/null", "true"):
        shell = f"{sys.executable} -m keepworth {command} | {reader}; echo ${{PIPESTATUS[*]}}"
        ran = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True)
        assert (ran.stdout.split(), ran.stderr) == (["0", "0"], "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_in_another_process(tmp_path: Path, number: signal.Signals) -> None:
    script = """
import sys, time
from pydantic import BaseModel
from keepworth.cli.main import run
class Config(BaseModel):
    seed: int = 0
class Waiting:
    def learn(self, config, run, progress, origin=None):
        progress.start(9, "waiting")
        progress.step(1, {"reward": 0.5})
        time.sleep(60)
def system(config):
    return Waiting()
if __name__ == "__main__":
    sys.argv = ["keepworth", "train", __file__]
    run()
"""
    file = tmp_path / "waiting.py"
    file.write_text(script)
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, str(file)], cwd=tmp_path, **pipes)
    assert process.stdout is not None
    deadline = time.monotonic() + 200
    while "step 1/9" not in process.stdout.readline():
        assert time.monotonic() < deadline
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "To continue: keepworth train" in out
    assert err == ""


def test_doctor_lists_important_checks_first(command: Command) -> None:
    short = command("doctor")[1].splitlines()
    subjects = [line.split()[1] for line in short if line.split()[0] in "✓○✗"]
    assert subjects[:3] == ["python", "packages", "model"]
    assert [line for line in subjects if line.startswith("extra")] == ["extras"]
    assert "doctor --all" in short[-1]
    every = command("doctor", "--all")[1].splitlines()
    assert sum(line.split()[1] == "extra" for line in every) == len(extras.EXTRAS)


def test_an_extra_that_is_there_in_part_names_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "textworld_express" else object())
    found = {extra.message.split(":")[0]: extra for extra in doctor._extras()}
    assert found["envs"].verdict == "missing"
    assert found["envs"].message.endswith("(textworld_express is not there)")
    assert found["envs"].fix == 'pip install "keepworth[envs]"'
    assert found["trl"].verdict == "good"
