"""Settings: what is asked for arrives typed, and what cannot take effect is refused by its nearest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from keepworth.cli.main import main
from keepworth.episodes.errors import UnknownName
from keepworth.recipes.configuration import BadSetting, as_toml, resolve
from keepworth.registry import methods


class Answerer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    steps: int = Field(45, ge=1)
    learning_rate: float = 1e-4
    roles: tuple[str, ...] = ("answerer",)


class Role(BaseModel):
    role: Literal["answerer", "manager"] = "answerer"


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    seed: int = 0
    data: str | None = None
    objective: str = "grpo"
    mixed: bool = False
    answerer: Answerer = Answerer()


def resolved(*assignments: str, **short: object) -> Any:
    return resolve(Config, assignments=assignments, short=short)


def test_assignments_arrive_typed() -> None:
    texts = ["seed=3", "answerer.learning_rate=3e-5", "mixed=true", 'answerer.roles=["a", "b"]', "data=none"]
    config = resolved(*texts, "objective=none")
    answerer = Answerer(learning_rate=3e-5, roles=("a", "b"))
    assert config == Config(seed=3, mixed=True, data=None, objective="none", answerer=answerer)


def test_later_ones_win_over_the_file_and_short_options_over_both(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("seed = 1\n[answerer]\nsteps = 7\nlearning_rate = 1e-3\n")
    config = resolve(Config, file=file, assignments=["answerer.steps=8"], short={"seed": 2, "data": None})
    assert (config.seed, config.answerer.steps, config.answerer.learning_rate) == (2, 8, 1e-3)  # type: ignore[attr-defined]


def test_a_short_option_without_a_key_is_refused_and_a_choice_gets_the_nearest_one() -> None:
    with pytest.raises(BadSetting, match="--role has no effect"):
        resolved(role="manager")
    with pytest.raises(BadSetting, match="Did you mean 'manager'"):
        resolve(Role, assignments=["role=manger"])


@pytest.mark.parametrize(("assignment", "meant"), [("sed=1", "seed"), ("answerr.step=1", "answerer")])
def test_an_unknown_key_gets_the_nearest_one(assignment: str, meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        resolved(assignment)
    assert caught.value.nearest == meant


@pytest.mark.parametrize(("assignment", "says"), [
    ("seed=many", "seed = 'many'"),
    ("answerer.steps=0", "answerer.steps"),
    ("seed", "key=value"),
    ("answerer.roles=[1", "not a TOML value"),
    ("seed.deep=1", "seed"),
    ("seed=1 seed.deep=1", "seed is a value"),
])  # fmt: skip
def test_a_bad_value_is_named_with_its_key(assignment: str, says: str) -> None:
    with pytest.raises(BadSetting, match=says):
        resolved(*([assignment] if "[" in assignment else assignment.split()))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text("seed = = 1")
    with pytest.raises(BadSetting, match=r"quick\.toml cannot be read as TOML"):
        resolve(Config, file=tmp_path / "quick.toml")
    with pytest.raises(BadSetting, match=r"Did you mean .*quick\.toml"):
        resolve(Config, file=tmp_path / "quik.toml")
    (tmp_path / "pyproject.toml").touch()
    with pytest.raises(BadSetting) as caught:
        resolve(Config, file=tmp_path / "nope.toml")
    assert "pyproject" not in str(caught.value), "they end alike and have nothing else in common"


def test_the_printed_configuration_reads_back_the_same(tmp_path: Path) -> None:
    config = resolved("seed=5", 'answerer.roles=["x"]', "answerer.learning_rate=2.5e-5")
    file = tmp_path / "c.toml"
    file.write_text(as_toml(config))
    assert resolve(Config, file=file) == config


@pytest.mark.parametrize(("words", "said"), [
    (["--set", "group_size=1"], "hint: Set group_size to at least 2."),
    (["--set", "objective=grop"], "hint: Did you mean 'grpo'?"),
    (["--all"], "--all goes with --help"),
])  # fmt: skip
def test_the_hint_is_the_fix(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "memory_r1", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_base_stands_where_nothing_is_said() -> None:
    config = resolve(Config, base={"seed": 4, "mixed": True}, assignments=["seed=5"])
    assert (config.seed, config.mixed) == (5, True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", methods("recipe"))
def test_help_shows_the_fifteen_settings_that_matter_or_all(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> list[str]:
        assert main(["train", name, *words, "--help"]) == 0
        lines = capsys.readouterr().out.partition(f"Settings of {name} (")[2].splitlines()[1:]
        return [line.split(" = ")[0].strip() for line in lines if " = " in line and line[2:3] != " "]

    few, every = shown(), shown("--all")
    assert len(few) == 15
    assert {"steps", "learning_rate", "objective"} <= set(few) <= set(every)
    assert every == list(methods("recipe")[name].make.Config.model_fields)
