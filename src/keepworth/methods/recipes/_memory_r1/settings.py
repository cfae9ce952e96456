"""Settings of a run of Memory-R1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from keepworth.training.settings import (
    SAMPLED,
    Count,
    Idle,
    Rate,
    TrainingSettings,
    idle_in_training,
    objective_of,
    require_effect,
    require_objective,
    require_rates,
)

if TYPE_CHECKING:
    from keepworth.training.trainer import Schedule

ROLE_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "answerer": {
        "steps": 45,
        "learning_rate": 3e-4,
        "train": "lora",
        "entropy": 0.0,
        "evaluate_every": 15,
        "token_budget": 2048,
    },
    "manager": {
        "steps": 24,
        "balance": True,
        "refill": 3,
        "learning_rate": 1e-5,
        "train": "full",
        "entropy": 0.02,
        "evaluate_every": 12,
        "token_budget": 1024,
    },
}


class Config(TrainingSettings):
    """All settings of a run. Missing ones take the role's default, and --print-config shows them resolved."""

    matters: ClassVar[tuple[str, ...]] = ("role", "recall", "memories", "reward", "level", "reader")

    role: Literal["answerer", "manager"] = "answerer"
    encoder: str = "minilm"

    source: Literal["longmemeval", "locomo"] = "longmemeval"
    data: str | None = None
    method: Literal["reinforce", "supervised"] = Field(
        default="reinforce", description="answerer: supervised imitates the answer key instead"
    )
    extractive: bool = True
    recall: Literal["given", "retrieved"] = "given"
    memories: int = Field(default=3, ge=1, description="how many memories are shown")
    distractors: int = Field(default=10, ge=0, description="sessions of other questions in the haystack")
    dates: bool = Field(default=False, description="write each memory's date before it")
    curve: Literal["dev", "test"] = Field(
        default="dev", description="questions read during training; choose nothing by a curve of test questions"
    )
    words: int = Field(default=60, ge=8, description="longest window of a turn that is one memory")

    steps: Count | None = None
    max_tokens: Count = 16
    reward: Literal["token_f1", "exact_match"] = "token_f1"
    style: Literal["direct", "distil"] = "direct"

    balance: bool = Field(default=False, description="as many tasks of each type, however many there are of it")

    level: Literal["plain", "near-miss"] = Field(default="plain", description="manager: generated cases to train on")
    warm_start: int = Field(default=480, ge=0, description="manager: right operations to imitate first")
    warm_start_passes: Count = 1
    warm_start_batch: Count = 16
    warm_start_learning_rate: Rate = 5e-5
    maintained: bool = Field(default=True, description="manager: also measure answers from banks it builds (minutes)")
    reader: str | None = Field(
        default=None, description="manager: run whose trained answerer reads the banks; None is the untrained model"
    )

    evaluate_every: Count | None = None
    checkpoint_every: Count = 15
    questions: int | None = Field(
        default=None, ge=1, description="measure on the first so many test questions; None is all"
    )

    @model_validator(mode="after")
    def _resolved(self) -> Config:
        for name in ROLE_DEFAULTS[self.role]:
            if getattr(self, name) is None or name not in self.model_fields_set:
                object.__setattr__(self, name, default_of(name, self))
        if self.role == "manager" and self.method == "supervised":
            raise ValueError("the manager's supervised arm is its warm start: set warm_start, and steps = 1")
        if self.method == "supervised" and self.style == "distil":
            raise ValueError("the answer key holds no evidence to imitate: method = supervised needs style = direct")
        require_effect(self, without_effect(self), lambda key: default_of(key, self))
        require_rates(self)
        if self.method == "reinforce":
            require_objective(objective_of(self), self)
        if self.role == "answerer" and self.questions == 1:
            raise ValueError(
                "questions = 1 leaves the wrong-memory arm without another question's memory to show: set at least 2"
            )
        return self

    @property
    def schedule_of_steps(self) -> Schedule:
        from keepworth.training.trainer import Schedule

        assert self.steps is not None
        assert self.evaluate_every is not None
        return Schedule(
            self.steps, self.evaluate_every, self.checkpoint_every, 60 * self.checkpoint_minutes, self.patience
        )

    @property
    def reads(self) -> bool:
        """Returns whether a manager's run is measured by a frozen reader's answers from banks."""
        return self.role == "manager" and self.maintained


ANSWERER_ONLY = (
    *("source", "data", "method", "recall", "memories", "dates", "words", "curve"),
    "extractive",  # banks are measured on extractive questions
    "reward",  # the manager's operations are right or wrong
)
MANAGER_ONLY = (
    *("level", "warm_start", "warm_start_passes", "warm_start_batch", "warm_start_learning_rate"),
    *("maintained", "reader"),
)


def without_effect(config: Config) -> Iterator[Idle]:
    """Yields the settings that have no effect, given the others."""
    yield from idle_in_training(config)
    if config.role == "answerer":
        yield MANAGER_ONLY, "with role = answerer", "set role = manager"
        if config.source == "locomo":
            fixed = ("extractive", "distractors")
            yield fixed, "with source = locomo, which is read as it is", "set source = longmemeval"
        else:
            fix = "set source = locomo, or train on rows of your own: keepworth train --tasks FILE.jsonl"
            yield ("data",), "with source = longmemeval, which ships with keepworth", fix
        if config.recall == "given":
            yield ("encoder",), "with recall = given, which searches nothing", "set recall = retrieved"
        if config.method == "supervised":
            yield (*SAMPLED, "group_size", "reward"), "with method = supervised", "set method = reinforce"
        return
    yield ANSWERER_ONLY, "with role = manager", "set role = answerer"
    if not config.warm_start:
        first = ("warm_start_passes", "warm_start_batch", "warm_start_learning_rate")
        yield first, "with warm_start = 0", "set warm_start"
    if not config.reads:
        reading = ("reader", "encoder", "max_tokens", "style", "distractors")
        reason = "with maintained = false, where nobody reads a bank"
        yield reading, reason, "set maintained = true"


def default_of(key: str, config: Config) -> Any:
    """Returns the value that `key` takes where it is not given."""
    return ROLE_DEFAULTS[config.role].get(key, Config.model_fields[key].default)
