"""A model of the laboratory is made the same again, goes on where it was stopped, and is found by its name."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from benchmarks.laboratory import objectives, run, speed, training
from benchmarks.laboratory.run import carries, scripted
from benchmarks.laboratory.training import GRPO, PERMUTED, Arm, Course
from benchmarks.laboratory.training import train as train_arm
from keepworth.base import model_files
from keepworth.base.model_errors import UnknownModel, UnmadeModel
from keepworth.base.model_files import MADE, MadeModel, State, path_of, sha256_of, status_of
from keepworth.cli.main import main
from keepworth.evaluation.verdicts import VERDICTS
from keepworth.models.inprocess import InProcessModel
from keepworth.training import laboratory
from keepworth.training.laboratory import SIZES, Size, digest_of_lessons, make_model, make_tokenizer, written
from keepworth.worlds.laboratory import WORLDS
from tests.pages import ROOT, blocks
from tests.recipes.tiny_runs import Notes

SMALL = Size(width=32, inner=48, layers=2, heads=2, steps=20, rows=4)


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is empty, and the only model that is made has few weights and few lessons."""
    monkeypatch.setenv("KEEPWORTH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(SIZES, "lab-small", SMALL)
    made = MadeModel("lab-small", "for tests", digest_of_lessons(SMALL), 1)
    monkeypatch.setattr(model_files, "MADE", MappingProxyType({"lab-small": made}))
    monkeypatch.setattr(laboratory, "OFTEN", 1)


class Stops(Notes):
    """As if somebody pressed Ctrl-C after a step."""

    def step(self, step: int, metrics: Any) -> None:
        if step == 7:
            raise KeyboardInterrupt


def weights(folder: Path) -> str:
    return sha256_of(folder / "model.safetensors")


def test_the_same_model_is_made_again_and_after_an_interruption() -> None:
    first = weights(make_model("lab-small"))
    assert weights(make_model("lab-small", force=True)) == first
    stopped = Stops()
    with pytest.raises(KeyboardInterrupt):
        make_model("lab-small", force=True, progress=stopped)
    assert "It stopped after step 7. `keepworth models make lab-small` goes on there." in stopped.notes
    resumed = Notes()
    assert weights(make_model("lab-small", force=True, progress=resumed)) == first
    assert "It goes on after step 7." in resumed.notes


def test_a_model_that_was_not_made_is_refused_with_the_command_that_makes_it() -> None:
    with pytest.raises(UnmadeModel, match="keepworth models make lab-small"):
        path_of("lab-small")
    with pytest.raises(UnknownModel, match="keepworth models make lab-small"):
        model_files.fetch("lab-small")
    with pytest.raises(UnknownModel, match="There are lab-small"):
        make_model("smollm2-135m-instruct")
    assert status_of("lab-small").state is State.ABSENT


def test_a_made_model_is_found_by_its_name_and_damage_is_noticed() -> None:
    folder = make_model("lab-small")
    assert path_of("lab-small") == folder
    assert status_of("lab-small").state is State.READY
    (folder / "model.safetensors").write_bytes(b"")
    assert status_of("lab-small").state is State.CORRUPT


def test_a_model_of_other_lessons_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make_model("lab-small")
    other = MadeModel("lab-small", "for tests", "0" * 64, 1)
    monkeypatch.setattr(model_files, "MADE", MappingProxyType({"lab-small": other}))
    with pytest.raises(UnmadeModel, match="made by another version, to be made again"):
        path_of("lab-small")


def test_the_catalogue_pins_the_lessons_of_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert MADE.keys() == SIZES.keys()
    assert {name: digest_of_lessons(SIZES[name]) for name in SIZES} == {name: of.lessons for name, of in MADE.items()}


def test_lessons_are_written_as_the_chat_format_writes_conversations() -> None:
    tokenizer = make_tokenizer()
    turns = [("city boss ana", "find boss ana"), ("bo", "find city bo"), ("oslo", "oslo")]
    messages = []
    for text, action in turns:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": action}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == written(turns)
    ids = tokenizer(written(turns))["input_ids"]
    assert len(ids) == 27, "a word of a world is one token"
    assert tokenizer.decode(ids) == written(turns)


def test_a_conversation_is_read_as_it_was_taught() -> None:
    model = InProcessModel.load(make_model("lab-small"), precision="fp32")
    opening = model.chat.opening([{"role": "user", "content": "rev cut abcd"}])
    action = model.encode_continuation("abc cba")
    end = model.tokenizer.eos_token_id
    following = model.chat.following([{"role": "user", "content": "more"}], end)
    whole = written([("rev cut abcd", "abc cba"), ("more", "x")])
    assert (*opening, *action, end, *following) == tuple(model.tokenizer(whole)["input_ids"])[:-2]
    assert end in model.chat.stop_ids


def test_the_page_on_the_laboratory_trains_a_made_model_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_model("lab-small")
    monkeypatch.chdir(tmp_path)
    (code,) = [code for _, _, language, code in blocks(ROOT / "docs" / "laboratory.md") if language == "python"]
    namespace: dict[str, Any] = {}
    exec(code.replace('"steps": 40', '"steps": 1, "patience": 0, "questions": 4'), namespace)
    assert namespace["run"].report.is_file()
    assert "reward on rows, test" in capsys.readouterr().out


@pytest.mark.parametrize("arm", [GRPO, PERMUTED, Arm("ppo", "ppo"), Arm("tis", "tis")], ids=lambda arm: arm.name)
def test_an_arm_of_the_benchmark_trains_and_is_measured_on_the_same_tasks_before_and_after(arm: Arm) -> None:
    make_model("lab-small")
    course = Course(updates=2, tasks=2, answers=4, lag=1)
    measured = train_arm(WORLDS["rooms"], arm, 0, course, tasks=4)
    assert measured == {**train_arm(WORLDS["rooms"], arm, 0, course, tasks=4), **costs(measured)}
    assert measured["before"].keys() == measured["after"].keys() == {"train", "test"}
    assert len(measured["curve"]) == 2


def costs(measured: dict[str, Any]) -> dict[str, Any]:
    return {key: measured[key] for key in ("cpu_seconds", "seconds_an_update")}


def test_a_world_carries_verdicts_only_with_a_gain_that_permuted_rewards_lack() -> None:
    none, large = {"mean": -0.1, "low": -0.2, "high": 0.0}, {"mean": 0.3, "low": 0.2, "high": 0.4}
    small, unsure = {"mean": 0.1, "low": 0.05, "high": 0.15}, {"mean": 0.3, "low": -0.2, "high": 0.8}
    assert carries(large, none)
    assert not any((carries(small, none), carries(unsure, none), carries(large, small)))


@pytest.mark.parametrize("name", list(WORLDS))
def test_an_oracle_is_always_right_and_chance_and_a_simple_rule_are_not(name: str) -> None:
    reached = scripted(WORLDS[name], 200)
    assert reached["oracle"] == 1.0
    assert max(reached["chance"], reached["best simple rule"]) < 0.5


def test_the_command_says_where_the_model_is_and_the_digest_of_its_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "make", "lab-small"]) == 0
    folder = path_of("lab-small")
    assert f"the sha256 of its weights is {weights(folder)}" in capsys.readouterr().out
    assert main(["models", "make", "lab-small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "model": "lab-small",
        "path": str(folder),
        "sha256": weights(folder),
    }
    assert main(["models", "make", "lab-huge"]) == 2
    assert "There are lab-small." in capsys.readouterr().err


@pytest.mark.slow
def test_the_benchmarks_run_at_their_smallest_size_and_judge_by_the_one_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_model("lab-small")
    monkeypatch.setattr(training, "ROOT", tmp_path)  # where results are kept
    monkeypatch.setattr(training, "ANSWERS", 2)
    objectives_behind = ["--world", "notes", "--lag", "2"]
    for module, words in (
        (run, ["--only", "notes"]),
        (objectives, ["--world", "notes"]),
        (objectives, objectives_behind),
        (speed, []),
    ):
        monkeypatch.setattr("sys.argv", [module.__name__, "--smallest", "--out", str(tmp_path), *words])
        module.main()
    capsys.readouterr()
    worlds, compared, update = (
        json.loads((tmp_path / f"laboratory-{name}.json").read_text()) for name in ("worlds", "objectives", "update")
    )
    places = compared["places"]
    assert {record["digest"] for record in (worlds, *places.values(), update)} == {weights(path_of("lab-small"))}
    assert worlds["worlds"]["notes"]["oracle"] == 1.0
    assert not worlds["worlds"]["notes"]["carries_verdicts"], "a model that was hardly taught has no room"
    arms = {place: {row["arm"] for row in of["verdicts"]} for place, of in places.items()}
    assert arms == {
        "notes": {"permuted rewards", "reinforce"},
        "notes, 2 updates behind": {"permuted rewards", "dr_grpo"},
    }
    assert {row["verdict"] for of in places.values() for row in of["verdicts"]} <= VERDICTS.keys()
    assert update["seconds"]["update"]["median"] > 0


def test_a_world_or_an_arm_that_is_not_there_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, words, message in (
        (run, ["--only", "moon"], "There is no world 'moon'"),
        (run, ["--seeds", "2"], "needs 3 seeds"),
        (objectives, ["--only", "luck"], "There is no arm 'luck'"),
    ):
        monkeypatch.setattr("sys.argv", [module.__name__, *words])
        with pytest.raises(SystemExit, match=message):
            module.main()
