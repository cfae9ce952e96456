"""Settings: what is asked for arrives typed, and what cannot take effect or does not fit is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keepworth.base.errors import UnknownName
from keepworth.cli.main import main
from keepworth.registry import methods
from keepworth.training.configuration import BadSetting, as_toml, resolve
from keepworth.training.front_door import find_recipe
from keepworth.training.settings import KEY


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


def test_base_settings_hold_unless_overridden() -> None:
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
    assert every == list(find_recipe(name).Config.model_fields)


ENGINE = {"sampling": "overlap", "engine": "http://gpu-host:8000"}
SUPERVISED = {"method": "supervised"}
FROZEN = {"objective": "ppo", "critic_frozen": True}
TURNS = {"critic_level": "turn"}
EVERY: list[tuple[dict[str, Any], str]] = [
    ({"steps": 4, "warmup_steps": 5}, "never rises to its value.*warmup_steps to 4 or lower"),
    ({"steps": 4, "warmup_steps": 4, "schedule": "cosine"}, "has no step to fall in.*warmup_steps to 3 or lower"),
    ({"train": "full", "lora_targets": "attention"}, "lora_targets = 'attention' has no effect with train = full"),
    ({"train_embeddings": True, "engine": "http://localhost:1", "sampling": "overlap"}, "cannot be sent to an engine"),
]
ROLES: list[tuple[dict[str, Any], str]] = [
    ({"objective": "memory_r2"}, "'memory_r2' needs re-rolls"),
    ({"objective": "kdrl"}, "needs lp_teacher.*Set teacher"),
    ({"objective": "rloo", "passes": 2}, "passes = 2 with objective 'rloo'"),
    ({"objective": "dapo", "sampling": "turns"}, "tokens as drawn by the policy that is trained"),
]
MANAGER = {"role": "manager"}
UNREAD = {**MANAGER, "maintained": False}
LOCOMO = {"source": "locomo", "data": "somewhere"}
# Of memory_r1: what is chosen, what has no effect beside it whatever its value, and what makes it so.
WITHOUT_EFFECT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"data": "somewhere"}, "source = longmemeval"),
    (LOCOMO, {"extractive": False, "distractors": 3}, "source = locomo"),
    ({}, {"encoder": "hashing"}, "recall = given"),
    ({"train": "full"}, {"rank": 8, "alpha": 8.0}, "train = full"),
    (SUPERVISED, {"group_size": 4, "reward": "exact_match", "entropy": 0.1}, "method = supervised"),
    ({}, {"reader": "run", "level": "near-miss", "maintained": False, "warm_start": 3}, "role = answerer"),
    ({}, {"warm_start_passes": 3, "warm_start_batch": 3, "warm_start_learning_rate": 0.1}, "role = answerer"),
    (MANAGER, {"source": "locomo", "data": "somewhere", "recall": "retrieved", "memories": 5}, "role = manager"),
    (MANAGER, {"dates": True, "curve": "test", "words": 30, "reward": "exact_match"}, "role = manager"),
    (MANAGER, {"extractive": False}, "role = manager"),
    (MANAGER, {"rank": 8}, "train = full"),
    ({**MANAGER, "warm_start": 0}, {"warm_start_batch": 3}, "warm_start = 0"),
    (UNREAD, {"reader": "run", "encoder": "hashing", "max_tokens": 8}, "maintained = false"),
    (UNREAD, {"style": "distil", "distractors": 3}, "maintained = false"),
]
REFUSED: list[tuple[str, list[tuple[dict[str, Any], str]]]] = [
    ("arithmetic", [
        *EVERY,
        ({"turns": 5}, "turns = 5 has no effect with answer = expression"),
        ({"train": "full", "rank": 4}, "rank = 4 has no effect with train = full"),
        ({"answer": "number", "stories": 4}, "stories = 4 has no effect with answer = number"),
        ({"answer": "calculator", "source": "gsm8k", "stories": 4}, "gsm8k has no stories apart"),
        ({"objective": "dappo"}, "Did you mean 'dapo'"),
    ]),
    ("bounded_bank", [
        *EVERY,
        ({"budget": 16}, "a bank of 16 keeps all of a stream of 16 facts"),
        ({"horizons": [{"steps": 2, "length": 3}]}, "a bank of 4 keeps all of a stream of 3 facts"),
        ({"horizons": [{"steps": 24, "length": 8}]}, "length 16 begin after step 24"),
        ({"warm_start": 0, "warm_start_batch": 4}, "has no effect with warm_start = 0"),
        ({"rerolls": 4}, "Extra inputs"),
        ({"objective": "memory_r2"}, "needs re-rolls.*the recipe memory_r2"),
    ]),
    ("fine_mem", [({"objective": "tis", "used": 3}, "used = 3 has no effect with objective = tis")]),
    ("mem_alpha", [
        ({"objective": "tis", "validity_weight": 0.2}, "validity_weight = 0.2 has no effect with objective = tis"),
        ({"objective": "memory_r2"}, "needs re-rolls"),
    ]),
    ("memory_r1", [
        *ROLES,
        *(({"role": "manager", **settings}, says) for settings, says in ROLES),
        ({**SUPERVISED, "objective": "dapo"}, "objective = 'dapo' has no effect with method = supervised"),
        ({**ENGINE, **SUPERVISED}, "no effect with method = supervised"),
        ({**ENGINE, "sampling": "turns", "role": "manager"}, "engine = .* has no effect with sampling = turns"),
        ({"slots": 8}, "slots = 8 has no effect with sampling = synchronous"),
        ({**SUPERVISED, "style": "distil"}, "method = supervised needs style = direct"),
        ({**SUPERVISED, **MANAGER}, "supervised arm is its warm start"),
        ({"stepz": 3}, "Extra inputs"),
        ({"learning_rate": float("nan")}, "a finite number"),
        *(
            ({**choice, key: value}, f"{key} = {value!r} has no effect with .*{reason}.*leave it at")
            for choice, without, reason in WITHOUT_EFFECT
            for key, value in without.items()
        ),
    ]),
    ("memory_r2", [
        ({"objective": "tis", "rerolls": 8}, "rerolls = 8 has no effect with objective = tis"),
        ({"objective": "fine_mem"}, "needs rewards of turns.*the recipe fine_mem"),
    ]),
    ("memory_r_plus", [
        ({"objective": "tis", "neighbours": 2}, "neighbours = 2 has no effect with objective = tis"),
        ({"objective": "fine_mem"}, "needs rewards of turns.*the recipe fine_mem"),
    ]),
    ("overwrite_reading", [
        ({"sektions": 5}, "Extra inputs"),
        ({"objective": "dappo"}, "Did you mean 'dapo'"),
    ]),
    ("strings", [
        ({"depth": 3}, "length = 4 leaves nothing to compose at depth 4"),
        ({"warm_start": 0, "warm_start_batch": 4}, "warm_start_batch = 4 has no effect with warm_start = 0"),
        ({"objective": "dappo"}, "Did you mean 'dapo'"),
        ({"objective": "rloo", "passes": 4}, "passes = 4 with objective 'rloo': it has no ratio"),
        ({"objective": "grpo", "sampling": "overlap"}, "'grpo' takes tokens as drawn by the policy that is trained"),
        ({"objective": "t_spmo", "train": "full"}, "needs adapter_decay"),
        ({"passes": 0}, "greater than or equal to 1"),
        ({"minibatches": 9}, "minibatches = 9 with tasks_per_step = 8: each has a group at least"),
        ({"objective": "rloo", "minibatches": 2}, "minibatches = 2 with objective 'rloo'"),
        ({"teacher": "other"}, "teacher = 'other' has no effect with the recipe's own objective, which has no teacher"),
        ({"objective": "grpo", "critic_rank": 4}, "critic_rank = 4 has no effect with objective = grpo"),
        ({"objective": "ppo", "train": "full", "critic_rank": 4}, "critic_rank = 4 has no effect with train = full"),
        ({"objective": "grpo", "critic_replay": 64}, "critic_replay = 64 has no effect with objective = grpo"),
        ({"objective": "ppo", "critic_replay": 63}, "critic_replay = 63 has no effect below the 64 episodes of one update"),
        (FROZEN, "critic_frozen = True has no effect with critic_warmup = 0"),
        (
            {**FROZEN, "critic_warmup": 1, "critic_replay": 64},
            "critic_replay = 64 has no effect with critic_frozen and critic_warmup = 1",
        ),
        ({"objective": "archer", **TURNS}, "critic_level = 'turn' has no effect with objective = archer"),
        (
            {"objective": {"preset": "ppo", "advantage": "Gae(0.9)"}, **TURNS},
            "critic_level = 'turn' has no effect with objective.advantage",
        ),
        ({"max_norm": 0.0}, "greater than 0"),
        *(
            ({**SUPERVISED, **settings}, "with method = supervised")
            for settings in ({"objective": "grpo"}, {"temperature": 0.5}, {"passes": 2}, {"entropy": 0.1})
        ),
        ({"max_staleness": 3}, "max_staleness = 3 has no effect with sampling = synchronous"),
        ({**ENGINE, "sampling": "synchronous"}, "engine = .* has no effect with sampling = synchronous, where this process"),
        ({"sampling": "overlap", "engine": "", "engine_model": "m"}, "engine_model = 'm' has no effect without engine"),
        ({"sampling": "overlap", "engine": "gpu-host:8000"}, "is not the URL of a server"),
        ({"sampling": "overlap", "engine": "http://key@gpu-host:8000"}, f"set {KEY}"),
        ({"sampling": "overlap", "engine": ["http://a:8000", "b:8000"]}, "'b:8000' is not the URL of a server"),
        ({"sampling": "overlap", "engine": []}, "a list of no engines"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("recipe", "settings", "says"), [
    pytest.param(recipe, settings, says, id=f"{recipe} {settings}") for recipe, cases in REFUSED for settings, says in cases
])  # fmt: skip
def test_a_setting_that_cannot_take_effect_is_refused(recipe: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises((ValidationError, UnknownName), match=says):
        find_recipe(recipe).Config(**settings)
