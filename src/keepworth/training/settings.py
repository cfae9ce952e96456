"""The settings of every recipe that trains weights, and checks that refuse settings without effect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from keepworth.base.errors import KeepworthError
from keepworth.training.objective.inputs import (
    require_clip,
    require_episodes,
    require_inputs,
    require_off_policy,
)
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Gae, Plain, Token
from keepworth.training.objective.presets import preset, vary_objective

if TYPE_CHECKING:
    from keepworth.training.trainer import Schedule

Count = Annotated[int, Field(ge=1)]
Amount = Annotated[int, Field(ge=0)]
Pairs = Annotated[int, Field(ge=2)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Refill = Annotated[
    int, Field(ge=0, le=8, description="how often other tasks are sampled in place of groups without a signal")
]

Option = str | int | float | None
"""An option of an objective as it is configured: a part as text, or a number."""

LABEL = r"^$|^[A-Za-z0-9_./-]+=[A-Za-z0-9_.-]+$"
"""The pattern of a host's label, as `ray start --labels` takes it."""
KEY = "KEEPWORTH_ENGINE_KEY"
"""The environment variable that holds an engine's key: configurations are written to disk, and keys are not."""

GROUP_RELATIVE = vary_objective(preset("tis"), name="group_relative", ratio=Token("current"), surrogate=Plain())
"""The default objective: rewards relative to the group, averaged over tokens; one update a batch. On policy the ratio is 1.
A truncated weight corrects differences between the sampler's arithmetic and the learner's."""


class TrainingSettings(BaseModel):
    """Settings of the model, the objective, the groups of a step and how far the sampler runs ahead. A recipe has its own default
    for a setting that is None here."""

    model_config = ConfigDict(extra="forbid", validate_assignment=False)

    model: str = Field(default="smollm2-135m-instruct", description="a model's name, its folder, or a Hugging Face id")
    precision: Literal["auto", "bf16", "fp32"] = Field(default="auto", description="auto measures which is faster")
    threads: int = Field(default=0, ge=0, description="0: OMP_NUM_THREADS, or all cores")
    seed: int = Field(default=0, ge=0, lt=2**31, description="of every draw")
    steps: Count | None = Field(default=None, description="updates of the weights")

    tasks_per_step: Count = Field(default=8, description="tasks that an update learns from")
    group_size: Pairs = Field(default=8, description="attempts at each of them, which are compared with each other")
    temperature: float = Field(default=1.0, gt=0, le=4, allow_inf_nan=False, description="at which groups are sampled")
    train: Literal["lora", "full"] | None = Field(
        default=None, description="an adapter, or all weights but the embeddings"
    )
    rank: Count = 16
    alpha: Rate = 32.0
    lora_targets: str | list[str] = Field(
        default="all-linear",
        description="layers with an adapter: all-linear, attention, or ends of module names such as q_proj",
    )
    train_embeddings: bool = Field(default=False, description="embeddings and head are trained as well, whole")
    learning_rate: Rate | None = Field(default=None, description="of the optimiser, AdamW")
    entropy: Share | None = Field(default=None, description="weight of a bonus for being undecided")
    token_budget: int | None = Field(default=None, ge=256, description="memory of one backward pass, in tokens")
    checkpointing: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="whether a backward pass computes layers again to hold less: auto where an answer needs it, or saves time",
    )

    start: str = Field(
        default="",
        description="the folder of a finished run of this model, with whose weights this one begins; its own if empty",
    )
    objective: str | dict[str, Option] = Field(
        default="",
        description="a preset's name (keepworth methods --kind objective), the recipe's if empty; or a table of its options",
    )
    passes: int = Field(default=1, ge=1, le=64, description="how often an update goes over its episodes")
    minibatches: int = Field(
        default=1,
        ge=1,
        description="optimiser steps of a pass, each on its share of the groups; a clip acts from an update's second step on",
    )
    teacher: str = Field(
        default="",
        description="objective = kdrl: a model with the same tokenizer, or the run whose finished weights teach",
    )
    critic_learning_rate: Rate = Field(default=1e-3, description="objective = ppo: of the value model")
    critic_rank: Count = Field(default=8, description="objective = ppo: of the value model's adapter")
    critic_warmup: Amount = Field(default=0, description="objective = ppo: updates that train the value model alone")
    critic_level: Literal["token", "turn"] = Field(
        default="token", description="objective = ppo: what the value model gives a value to, each token or each turn"
    )
    critic_frozen: bool = Field(
        default=False,
        description="objective = ppo: after critic_warmup the value model gives advice and learns no more",
    )
    critic_replay: Amount = Field(
        default=0,
        description="objective = ppo: episodes of earlier updates, at most, on which the value model alone is taught again",
    )
    warmup_steps: Amount = Field(default=0, description="updates over which the learning rate rises")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant",
        description="of the learning rate after that; linear and cosine fall towards 0 over the steps",
    )
    max_norm: Rate = Field(default=1.0, description="a longer gradient is cut to this")
    weight_decay: Share = 0.0
    learners: Count = Field(
        default=1,
        description="processes that make an update together, each on its share of the micro-batches (see docs/cluster.md)",
    )

    refill: Refill = 0
    patience: Amount = Field(
        default=3,
        description="the run stops where none of its first so many steps could teach anything, as the answers of each group "
        "earned the same, and not all were right; 0: it goes on",
    )
    checkpoint_minutes: float = Field(
        default=5.0,
        ge=0,
        allow_inf_nan=False,
        description="a step ends with a checkpoint where the last one is so old, whatever checkpoint_every; 0: never",
    )

    sampling: Literal["synchronous", "turns", "overlap"] = Field(
        default="synchronous", description="the others sample ahead of the learner: see docs/asynchrony.md"
    )
    max_staleness: int = Field(default=1, ge=1, description="updates by which a token may be older than the learner")
    pipeline_depth: float = Field(default=2.0, ge=1, description="batches of groups started and not yet trained")
    slots: int = Field(
        default=32,
        ge=1,
        description="sequences decoded together when sampling ahead; at each, where there are several engines",
    )
    engine: str | list[str] = Field(
        default="",
        description="sampling = overlap: URL of an engine that samples instead of this process, or a list of several; "
        f"their key is read from {KEY}",
    )
    engine_model: str = Field(default="", description="the model's name at the engine, where that serves several")
    workers: int = Field(
        default=0,
        ge=0,
        description="processes that run environments, tools and rewards; 0: this one does (see docs/cluster.md)",
    )
    worker_label: str = Field(
        default="",
        pattern=LABEL,
        description="KEY=VALUE; workers run on hosts whose `ray start` had --labels=KEY=VALUE",
    )
    ray_address: str = Field(
        default="",
        description="HOST:PORT of a Ray that runs, for workers; empty starts one on this machine",
    )

    @property
    def engine_urls(self) -> tuple[str, ...]:
        """The engines' URLs; empty where this process samples."""
        return (self.engine,) if isinstance(self.engine, str) and self.engine else tuple(self.engine)

    @property
    def groups_per_update(self) -> int:
        return self.tasks_per_step

    @property
    def default_objective(self) -> Objective:
        """The objective that the recipe trains with where no other is chosen."""
        return GROUP_RELATIVE

    @property
    def holds(self) -> frozenset[str]:
        """What the recipe's episodes hold besides rewards of whole episodes: see `keepworth.training.objective.inputs`."""
        return frozenset()

    @field_validator("engine")
    @classmethod
    def _are_servers(cls, urls: str | list[str]) -> str | list[str]:
        if urls == []:
            raise ValueError("a list of no engines: leave it out, and this process samples")
        for url in ([urls] if urls else []) if isinstance(urls, str) else urls:
            parsed = urlsplit(url)
            if parsed.scheme not in ("http", "https") or not parsed.hostname:
                raise ValueError(
                    f"{url!r} is not the URL of a server: it starts with http:// or https:// and names a host"
                )
            if parsed.username or parsed.password or parsed.query:
                raise ValueError(
                    f"a configuration is written to disk: leave the key out of the URL, and set {KEY} to it"
                )
        return urls


Idle = tuple[tuple[str, ...], str, str]
"""(keys without effect, the choice that makes them so, what to choose for them to take effect)."""


def objective_of(settings: TrainingSettings) -> Objective:
    """Returns the chosen objective, or the recipe's, with the given options changed. Raises UnknownName, ObjectiveError."""
    given = settings.objective
    name, options = (given, {}) if isinstance(given, str) else (str(given.get("preset") or ""), given)
    chosen = preset(name) if name else settings.default_objective
    changes = {key: _option(key, value) for key, value in options.items() if key != "preset"}
    if settings.critic_level != "token" and isinstance(chosen.advantage, Gae) and "advantage" not in changes:
        changes["advantage"] = replace(chosen.advantage, level=settings.critic_level)
    return vary_objective(chosen, **changes) if changes else chosen


def sets_entropy(settings: TrainingSettings) -> bool:
    """Whether the objective's options set the entropy term, which overrides the setting `entropy`."""
    return isinstance(settings.objective, dict) and "entropy" in settings.objective


def _option(name: str, value: object) -> object:
    """Converts an option's text from the command line: `none` is None where the option may be unset."""
    field = Objective.model_fields.get(name)
    return None if value == "none" and field is not None and field.default is None else value


def idle_in_training(settings: TrainingSettings) -> Iterator[Idle]:
    """Yields the keys of `TrainingSettings` that have no effect, given the other settings."""
    objective = objective_of(settings)
    called = f"with objective = {objective.name}" if settings.objective else "with the recipe's own objective"
    if objective.teacher is None:
        yield ("teacher",), f"{called}, which has no teacher", "set objective = kdrl"
    if not objective.needs_critic:
        value = tuple(key for key in TrainingSettings.model_fields if key.startswith("critic_"))
        yield value, f"{called}, which has no value model", "set objective = ppo"
    else:
        yield from _idle_in_critic(settings, objective, called)
    if not objective.needs_differences:
        yield ("patience",), f"{called}, which learns from groups of equal rewards, too", "choose another objective"
    if sets_entropy(settings):
        yield ("entropy",), "with objective.entropy, which says the same", "leave that out"
    if settings.train == "full":
        yield ("rank", "alpha", "lora_targets"), "with train = full", "set train = lora"
    if settings.sampling == "synchronous":
        yield ("max_staleness", "pipeline_depth", "slots"), "with sampling = synchronous", "set sampling = overlap"
    if settings.sampling != "overlap":
        reason = f"with sampling = {settings.sampling}, where this process samples"
        yield ("engine", "engine_model"), reason, "set sampling = overlap"
    elif not settings.engine:
        yield ("engine_model",), "without engine", "set engine"
    if not settings.workers:
        yield ("worker_label", "ray_address"), "with workers = 0, where this process does everything", "set workers"
    elif not settings.ray_address:
        yield ("worker_label",), "without ray_address, on one host", "set ray_address"


def _idle_in_critic(settings: TrainingSettings, objective: Objective, called: str) -> Iterator[Idle]:
    """Yields the value model's keys that have no effect, where there is a value model."""
    if settings.train == "full":
        yield ("critic_rank",), "with train = full, where the value model is a head alone", "set train = lora"
    if not isinstance(objective.advantage, Gae):
        yield ("critic_level",), f"{called}, whose value model has a level of its own", "set objective = ppo"
    elif isinstance(settings.objective, dict) and "advantage" in settings.objective:
        yield ("critic_level",), "with objective.advantage, which says it as Gae(..., level=turn)", "leave that out"
    if settings.critic_warmup == 0:
        yield ("critic_frozen",), "with critic_warmup = 0: its value model would never learn", "set critic_warmup"
    if settings.critic_frozen and settings.critic_warmup == 1:
        yield (
            ("critic_replay",),
            "with critic_frozen and critic_warmup = 1: no earlier update is taught again",
            ("set critic_warmup to 2 or more"),
        )
    update = settings.tasks_per_step * settings.group_size
    if settings.critic_replay < update:
        reason = f"below the {update} episodes of one update (tasks_per_step * group_size)"
        yield ("critic_replay",), reason, f"set it to {update} or more"


def require_effect(settings: BaseModel, idle: Iterable[Idle], default_of: Callable[[str], Any] | None = None) -> None:
    """Raises ValueError that names every key which was set and has no effect.

    Args:
        settings: The settings, resolved.
        idle: The keys without effect, with the reason and the fix of each.
        default_of: It returns a key's default, if it is not the field's. A key at its default counts as not set, because a
            stored configuration holds every key.
    """
    fields = type(settings).model_fields
    default = default_of or (lambda key: fields[key].default)
    complaints = [
        f"{key} = {getattr(settings, key)!r} has no effect {reason}: leave it at {default(key)!r}, or {fix}"
        for keys, reason, fix in idle
        for key in keys
        if key in fields and getattr(settings, key) != default(key)
    ]
    if complaints:
        raise ValueError("; ".join(dict.fromkeys(complaints)))


SAMPLED = (
    *("objective", "temperature", "refill", "sampling", "entropy"),
    *("passes", "minibatches", "workers", "patience"),
)
"""Settings of reinforcement, which have no effect where right answers are imitated."""


def require_objective(objective: Objective, settings: TrainingSettings, provided: Collection[str] = ()) -> None:
    """Raises ObjectiveError, before anything is loaded or measured, where the recipe cannot provide what the objective needs.

    Args:
        objective: What is to be optimised.
        settings: The recipe's settings, resolved.
        provided: What the recipe's episodes hold besides rewards of whole episodes, in the words of `episode_inputs`.
    """
    if settings.minibatches > settings.tasks_per_step:
        raise ValueError(
            f"minibatches = {settings.minibatches} with tasks_per_step = {settings.tasks_per_step}: each has a group at least. "
            "Set minibatches lower, or tasks_per_step higher"
        )
    given = {
        "length_budget": True,
        "adapter_decay": settings.train == "lora" and not settings.train_embeddings,
        "lp_teacher": bool(settings.teacher),
        "soft_value": settings.sampling == "synchronous",
    }
    require_inputs(objective, given, "this recipe")
    require_episodes(objective, provided, "this recipe")
    stale = 0 if settings.sampling == "synchronous" else settings.max_staleness
    require_off_policy(objective, settings.passes, settings.minibatches, max_staleness=stale)
    require_clip(objective, settings.passes, settings.minibatches)


def require_rates(settings: TrainingSettings) -> None:
    """Raises ValueError for a learning rate that never reaches its value or has no step to fall in, and for trained embeddings
    that cannot be sent to an engine."""
    most = (settings.steps or 1) - (settings.schedule != "constant")
    if settings.warmup_steps > most:
        raise ValueError(
            f"warmup_steps = {settings.warmup_steps} with steps = {settings.steps} and schedule = {settings.schedule}: the "
            f"learning rate never rises to its value, or has no step to fall in. Set warmup_steps to {most} or lower"
        )
    if settings.train_embeddings and settings.engine and settings.train == "lora":
        raise ValueError(
            "train_embeddings = True with train = lora cannot be sent to an engine, which takes adapters only: set train = full "
            "or leave one of them out"
        )


class Settings(TrainingSettings):
    """The settings that every recipe of a `System` has."""

    steps: Count = 40
    learning_rate: Rate = 3e-4
    train: Literal["lora", "full"] = "lora"
    entropy: Share = 0.0
    token_budget: int = Field(default=2048, ge=256, description="memory of one backward pass, in tokens")
    environment_seconds: float = Field(
        default=30.0, gt=0, allow_inf_nan=False, description="how long an environment may take for one step"
    )
    evaluate_every: Count = 20
    checkpoint_every: Count = 20
    questions: int | None = Field(default=None, ge=2, description="measure on the first so many; None is all")

    @property
    def groups_per_update(self) -> int:
        """A supervised update has as many tasks, all different, as reinforcement samples episodes."""
        return self.tasks_per_step * (self.group_size if is_supervised(self) else 1)

    @property
    def holds(self) -> frozenset[str]:
        return frozenset({"durations of turns"})

    def idle(self) -> Iterator[Idle]:
        """Yields the settings without effect; a recipe adds its own."""
        yield from idle_in_training(self)
        if is_supervised(self):
            yield SAMPLED, "with method = supervised", "set method = reinforce"

    @model_validator(mode="after")
    def _can_be_trained(self) -> Settings:
        require_effect(self, self.idle())
        require_rates(self)
        if not is_supervised(self):
            require_objective(objective_of(self), self, self.holds)
        return self

    @property
    def schedule_of_steps(self) -> Schedule:
        from keepworth.training.trainer import Schedule

        return Schedule(
            self.steps, self.evaluate_every, self.checkpoint_every, 60 * self.checkpoint_minutes, self.patience
        )


class WarmStarted(Settings):
    """Settings of a recipe that may imitate before reinforcement."""

    warm_start: int = Field(default=0, ge=0, description="batches to imitate first")
    warm_start_batch: Count = 16
    warm_start_learning_rate: Rate = 1e-3

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if not self.warm_start:
            yield ("warm_start_batch", "warm_start_learning_rate"), "with warm_start = 0", "set warm_start"


def is_supervised(settings: TrainingSettings) -> bool:
    return getattr(settings, "method", "reinforce") == "supervised"


def refuse_workers(settings: TrainingSettings, why: str) -> None:
    """Raises KeepworthError where workers are set, in a recipe whose rollouts need something that no worker has."""
    if settings.workers:
        raise KeepworthError(
            f"workers = {settings.workers} cannot be: {why}.", "Leave workers out: rollouts then run in this process."
        )
