"""Training on tasks of one's own: rows or an environment, a reward, a model, perhaps a memory; the rest has defaults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from keepworth.episodes.errors import require_known
from keepworth.recipes.interactive import (
    EPISODE,
    Measured,
    Pair,
    Settings,
    System,
    idle_in_imitation,
    supervised,
)
from keepworth.recipes.rewards import AlsoRewarded, Scoring, place_of, scoring, try_rewards
from keepworth.recipes.settings import Amount, Count, Idle, require_effect
from keepworth.tasks.data_files import WrongFormat
from keepworth.tasks.own import MissingField, OwnTasks, messages_of
from keepworth.tasks.splits import SPLITS
from keepworth.tasks.verifiers import TASK_VERIFIERS, VERIFIERS

if TYPE_CHECKING:
    from keepworth.agents.agent import Agent
    from keepworth.agents.recall import Recall
    from keepworth.environments.environment import Environment
    from keepworth.episodes import Task
    from keepworth.episodes.model import ChatTemplate, Message, Tokens
    from keepworth.learning.watch.progress import Progress
    from keepworth.memory.overlay import Bank
    from keepworth.models.inprocess import InProcessModel


class Config(Settings):
    """What training on tasks of one's own can be told."""

    method: Literal["reinforce", "supervised"] = Field(
        default="reinforce",
        description="supervised: the rows' answers are imitated, up to max_tokens; nothing is sampled",
    )
    format: Literal["auto", "chat", "plain"] = Field(
        default="auto",
        description="chat: by the model's chat template; plain: a bare text; auto: chat where it has one",
    )
    system: str = Field(default="", description="what stands before every conversation")
    max_tokens: int = Field(default=128, ge=1, description="of one answer")
    stop: list[str] = Field(default=[], description="texts that end an answer")
    thinking: Literal["keep", "strip"] = Field(
        default="keep",
        description="strip: what stands in <think> is no part of the answer, nor of the conversation after it",
    )
    turns: Count = Field(default=1, description="with an environment: how often the model may act in an episode")
    verifier: str = Field(default="token_f1", description="judges answers where no reward is given")
    weights: list[float] = Field(default=[], description="of the rewards, in their order; 1 each if empty")
    recall: Count = Field(default=3, description="with a memory: how many items are shown with a question")
    answer_temperature: float = Field(
        default=0.0, ge=0, le=4, allow_inf_nan=False, description="where answers are measured; 0: greedy"
    )
    answer_top_p: float = Field(
        default=1.0, gt=0, le=1, description="with answer_temperature: of the likeliest tokens, this share"
    )
    answer_top_k: Amount = Field(
        default=0, description="with answer_temperature: so many of the likeliest tokens; 0: all"
    )
    questions: int | None = Field(
        default=100, ge=2, description="measure on so many, drawn by a fixed rule; None is all"
    )

    @property
    def holds(self) -> frozenset[str]:
        return frozenset({"states of turns"} if self.turns > 1 else ())

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if not self.answer_temperature:
            yield ("answer_top_p", "answer_top_k"), "where answers are greedy", "set answer_temperature"
        yield from idle_in_imitation(self)
        if self.format == "plain":
            yield ("thinking",), "with format = plain", "set format = chat"

    @model_validator(mode="after")
    def _stops_are_texts(self) -> Config:
        if any(not each for each in self.stop):
            raise ValueError("stop holds an empty text, at which everything would end: leave it out")
        return self


@dataclass(frozen=True, slots=True)
class Given:
    """What is handed over besides settings.

    reward: a function, several, or the name of a verifier; beside an environment they add to what that gives. environment, agent:
    made for each task, in the place of a question and of a `Chat`. recall: what a memory shows for a task; memory: its name."""

    tasks: OwnTasks
    reward: Any = None
    environment: Callable[[Task], Environment] | None = None
    agent: Callable[[Task, Bank | None], Agent] | None = None
    recall: Callable[[Config], Recall] | None = None
    memory: str = ""

    def record(self, config: Config) -> dict[str, Any]:
        """What a run is continued with, besides its settings: values that JSON can hold."""
        counts = {split: len(self.tasks.by_split[split]) for split in SPLITS}
        score = self.score(config)
        return {
            "tasks": {"name": self.tasks.name, "digest": self.tasks.digest, **counts},
            "reward": [each.name for each in score.rewards] if score else [],
            "reward_digest": score.digest if score else "",
            "environment": _named(self.environment),
            "agent": _named(self.agent),
            "memory": self.memory,
        }

    @property
    def remembers(self) -> bool:
        """Whether something is shown of a memory: the one that was given, or what rows say was written."""
        return self.recall is not None or any(task.sessions for task in self.tasks.all)

    def score(self, config: Config) -> Scoring | None:
        """The rewards; None where an environment alone rewards, or the tasks' verifiers judge."""
        if self.reward is None:
            return None
        found = scoring(self.reward, config.weights)
        logged = self.environment is None and any(task.answers for task in self.tasks.all)
        return replace(found, logged=True) if logged else found

    def judged(self, config: Config) -> Mapping[str, tuple[Task, ...]]:
        """The tasks by side, each with a verifier."""
        return {
            split: tuple(task if task.verifier else replace(task, verifier=config.verifier) for task in tasks)
            for split, tasks in self.tasks.by_split.items()
        }


def _named(given: object) -> str:
    return "" if given is None else str(getattr(given, "__qualname__", type(given).__qualname__))


def require_given(config: Config, given: Given) -> None:
    """Raises before anything is loaded: WrongFormat where a side has no task, UnusableReward, MissingField, ValueError."""
    for split in SPLITS:
        if not given.tasks.by_split[split]:
            raise WrongFormat(
                f"{given.tasks.name} has no task for {split}, of {len(given.tasks.all)} in all.",
                "Add rows, or a field `split`: train is trained on, dev measured meanwhile, test before and after. Rows that "
                "ask the same, or are of one group, are on one side.",
            )
    idle: list[Idle] = []
    if given.environment is None:
        idle.append((("turns",), "without an environment", "give one"))
    else:
        idle.append((("verifier",), "with an environment, which rewards", "leave the environment out"))
    if given.reward is not None:
        idle.append((("verifier",), "with a reward", "leave the reward out"))
    else:
        idle.append((("weights",), "without rewards of your own", "give them"))
    if given.agent is not None:
        keys = ("format", "system", "stop", "thinking")
        idle.append((keys, "with an agent of your own", "leave the agent out"))
    if not given.remembers:
        idle.append((("recall",), "without a memory", "give a memory, or rows with `writes`"))
    elif given.agent is not None:
        raise ValueError("an agent of your own is shown nothing of a memory: leave one of them out")
    require_effect(config, idle)
    if supervised(config):
        require_imitable(given)
    if (score := given.score(config)) is not None:
        try_rewards(score, given.tasks.all, played=given.environment is not None)
    elif given.environment is None:
        require_known("verifier", config.verifier, (*VERIFIERS, *TASK_VERIFIERS))
        for task in given.tasks.all:
            if not task.answers and task.verifier not in TASK_VERIFIERS:
                raise MissingField(
                    f"{place_of(task)} has no field 'answer', against which {task.verifier or config.verifier} judges.",
                    "Add it, or give a reward of your own.",
                )


def require_imitable(given: Given) -> None:
    """Raises ValueError, MissingField where there are no answers to imitate."""
    if given.environment is not None or given.agent is not None:
        raise ValueError("method = supervised imitates answers to questions: leave environment and agent out")
    for task in given.tasks.by_split["train"]:
        if not task.answers:
            raise MissingField(
                f"{place_of(task)} has no field 'answer' to imitate.", "Add it, or leave method = reinforce."
            )


def recall_of(config: Config, given: Given) -> Recall | None:
    """What is shown of a memory, where there is one."""
    if given.recall is not None:
        return given.recall(config)
    if not given.remembers:
        return None
    from keepworth.agents.recall import retrieved
    from keepworth.models.encoders import encoder

    return retrieved(config.recall, encoder("minilm"))


def system(config: Config, given: Given) -> System:
    from keepworth.agents.recall import another, evidence_only
    from keepworth.environments.question import Question
    from keepworth.rollouts.driver import Drawing, Limits, Play

    score, recall, tasks_of = given.score(config), recall_of(config, given), given.judged(config)

    def environment(task: Task) -> Environment:
        if given.environment is None:
            return Question(score)
        return given.environment(task) if score is None else AlsoRewarded(given.environment(task), score)

    def playing(shows: Recall | None) -> Play:
        return Play(environment, given.agent or (lambda task, memory: chat_of(config, task, shows)))

    def measured(split: str) -> Measured:
        tasks = list(tasks_of[split])[: config.questions]
        ways = {"": playing(recall)}
        if recall is not None and split == "test":
            ways["no_memory"] = playing(None)
            if len(tasks) > 1:
                ways["another_memory"] = playing(another(recall, tasks))
            if all(task.evidence for task in tasks):
                ways["oracle_evidence"] = playing(evidence_only())
        return Measured(tasks, ways)

    verifiers = {task.verifier for tasks in tasks_of.values() for task in tasks}
    names = [] if score is None else [each.name for each in score.rewards]
    if given.environment is None and (score is None or score.logged):
        names += sorted(verifiers - set(names))
    metrics = (
        {each: each for each in names} if len(names) == 1 else {EPISODE: "reward", **{each: each for each in names}}
    )
    length = config.turns * config.max_tokens
    return System(
        role="policy",
        title=f"a policy learns {given.tasks.name}",
        train=tasks_of["train"],
        play=playing(recall),
        dev=measured("dev"),
        test={f"{given.tasks.name}, test": measured("test")},
        metrics=metrics,
        optional=frozenset(names),
        limits=Limits(max_turns=config.turns, environment_seconds=config.environment_seconds),
        length_budget=length,
        row_budget=config.max_tokens if config.thinking == "strip" else length,
        unit=given.tasks.cluster.__getitem__,
        ready=lambda model, progress: require_chat(config, given, recall, model, progress),
        drawn=Drawing(config.answer_temperature, config.answer_top_k, config.answer_top_p),
        note=f"{given.tasks.note} {_drawn(config)}, {config.max_tokens} tokens an answer.".strip(),
        right=(lambda model, task: [right_answer(config, task, recall, model)]) if supervised(config) else None,
    )


def _drawn(config: Config) -> str:
    if not config.answer_temperature:
        return "Greedy"
    cuts = (
        f", top_k {config.answer_top_k}" * bool(config.answer_top_k),
        f", top_p {config.answer_top_p:g}" * (config.answer_top_p < 1),
    )
    return f"Drawn at temperature {config.answer_temperature:g}{''.join(cuts)}"


def chat_of(config: Config, task: Task, recall: Recall | None) -> Agent:
    from keepworth.agents.chat import Chat

    shown = () if recall is None else recall(task).shown
    return Chat(
        config.system,
        max_tokens=config.max_tokens,
        stop=config.stop,
        format=config.format,
        thinking=config.thinking,
        shown=shown,
    )


def asked(config: Config, task: Task, recall: Recall | None, chat: ChatTemplate) -> list[Message]:
    """The conversation that a question and answer begins with, as `Chat` opens it."""
    from keepworth.agents.chat import clean, headed, remembering
    from keepworth.episodes.text import as_text

    own = [clean(each) for each in messages_of(task)] or [{"role": "user", "content": as_text(task.input)}]
    return remembering(headed(own, config.system, chat), () if recall is None else recall(task).shown)


def right_answer(config: Config, task: Task, recall: Recall | None, model: InProcessModel) -> Pair:
    """The conversation, and the task's answer with the end of a turn; cut to max_tokens."""
    from keepworth.agents.chat import format_of

    chat = format_of(model, config.format, config.stop)
    return chat.opening(asked(config, task, recall, chat)), whole_answer(task, model, chat)[: config.max_tokens]


def whole_answer(task: Task, model: InProcessModel, chat: ChatTemplate) -> Tokens:
    """The task's answer with the end of a turn."""
    behind = chat.following([{"role": "user", "content": "?"}], None)[:1]
    end = behind if chat.stop_ids.issuperset(behind) else (min(chat.stop_ids),)
    return (*model.encode_continuation(task.answers[0].strip()), *end)


def require_chat(
    config: Config, given: Given, recall: Recall | None, model: InProcessModel, progress: Progress
) -> None:
    """What the model's template cannot do, and prompts that are too long, before anything is measured.

    Raises NoChatTemplate, TemplateMismatch, or WrongFormat naming the row."""
    if given.agent is not None:
        return
    from keepworth.agents.chat import PlainFormat, format_of
    from keepworth.models.chat_format import TokenizerChat

    chat = format_of(model, config.format, config.stop)
    if isinstance(chat, PlainFormat) and config.format == "auto":
        progress.note(f"{model.name} has no chat template: prompts are given as bare texts (format = plain).")
    if isinstance(chat, TokenizerChat) and config.turns > 1 and config.thinking == "keep" and chat.rewrites:
        progress.note(
            f"The chat template of {model.name} rewrites what was said before ({chat.rewrites}). With thinking = keep the "
            "conversation stays as it was drawn; where this model is served by its template, set thinking = strip."
        )
    if given.environment is not None:
        return
    if supervised(config):
        lengths = [len(whole_answer(task, model, chat)) for task in given.tasks.by_split["train"]]
        if cut := sum(each > config.max_tokens for each in lengths):
            progress.note(
                f"{cut} of {len(lengths)} right answers are longer than max_tokens = {config.max_tokens} and are imitated "
                f"without their end: set max_tokens = {max(lengths)} to keep all of them whole."
            )
    begun = time.monotonic()
    for task in sorted(given.tasks.all, key=lambda each: -len(each.input)):
        if time.monotonic() - begun > TRIED_FOR:
            return
        length = len(chat.opening(asked(config, task, recall, chat)))
        if length + config.max_tokens > model.context_limit:
            raise WrongFormat(
                f"{place_of(task)}: the prompt has {length} tokens, and {config.max_tokens} may follow: {model.name} reads "
                f"{model.context_limit}.",
                "Shorten it, set max_tokens lower, or take a model with a longer window.",
            )


TRIED_FOR = 10.0
"""Seconds for which prompts are measured before training, those that ask the most first."""


def remembered(path: Any) -> tuple[Callable[[Config], Recall], str]:
    """What a memory's file, or an open memory, shows for a task, and how a run calls it.

    It is what a search of the memory as it is now finds: no policy of it chooses, and nothing is logged in it."""
    from keepworth.agents.recall import Recalled
    from keepworth.episodes.episode import Shown
    from keepworth.memory.memory import Memory

    memory = path if isinstance(path, Memory) else Memory(path, read_only=True, log="off")
    snapshot = memory.snapshot()
    bank = memory.bank(at=snapshot)
    known: dict[tuple[int, str], Recalled] = {}

    def recalling(config: Config) -> Recall:
        def recall(task: Task) -> Recalled:
            if (config.recall, task.input) not in known:
                hits = bank.search(task.input, config.recall)
                shown = tuple(Shown(hit.item.id, hit.score, hit.item.text) for hit in hits)
                known[config.recall, task.input] = Recalled(shown, snapshot)
            return known[config.recall, task.input]

        return recall

    return recalling, f"{memory.path}@{snapshot}"
