"""Training on a user's tasks: rows, a reward, a model, optionally an environment or a memory; the rest has defaults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import Field

from keepworth.base.errors import require_known
from keepworth.models.chat_format import TokenizerChat
from keepworth.training.hooks import Hooks
from keepworth.training.programs import AgentProgram, program_of
from keepworth.training.rewards import Scoring, place_of, scoring, try_rewards
from keepworth.training.settings import Count, Idle, Settings, is_supervised, refuse_workers, require_effect
from keepworth.training.system import EPISODE, Measured, Pair, System
from keepworth.training.tool_outcomes import SIGNALS
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.own import MissingField, OwnTasks, messages_of, tools_of
from keepworth.worlds.splits import SPLITS
from keepworth.worlds.verifiers import ABSTAINED, VERIFIERS

if TYPE_CHECKING:
    from keepworth.memory.overlay import Bank
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records import Task
    from keepworth.records.model import ChatTemplate, Tokens
    from keepworth.training.run_folder import RunFolder
    from keepworth.training.watch.progress import Progress
    from keepworth.worlds.agent import Agent
    from keepworth.worlds.environment import Environment
    from keepworth.worlds.recall import Recall


ROLE = "policy"
"""The role of the model's calls."""


class Config(Settings):
    """Settings of training on a user's tasks."""

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
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default=[], description="texts that end an answer")
    thinking: Literal["keep", "strip"] = Field(
        default="keep",
        description="strip: what stands in <think> is no part of the answer, nor of the conversation after it",
    )
    turns: Count = Field(default=1, description="with an environment: how often the model may act in an episode")
    calls: Count = Field(
        default=32, description="with a program as the agent: answers of the model in a rollout, at most"
    )
    agent_seconds: float = Field(
        default=60.0,
        gt=0,
        allow_inf_nan=False,
        description="with a program as the agent: how long it may take, without what it waits for the model",
    )
    roles: list[Annotated[str, Field(min_length=1)]] | dict[str, Annotated[str, Field(min_length=1)]] = Field(
        default=[],
        description="with a program as the agent: roles of calls that learn together, by their header X-Keepworth-Role, or each "
        "with words of its system prompt; policy, which other calls have, if empty",
    )
    verifier: str = Field(default="token_f1", description="judges answers where no reward is given")
    weights: list[Annotated[float, Field(allow_inf_nan=False)]] = Field(
        default=[], description="of the rewards, in their order; 1 each if empty"
    )
    recall: Count = Field(default=3, description="with a memory: how many items are shown with a question")
    memory_mode: Literal["read", "on"] = Field(
        default="read",
        description="with a memory and a program as the agent: on: what is said in a rollout is stored, when the step ends",
    )
    questions: int | None = Field(
        default=100, ge=2, description="measure on so many, drawn by a fixed rule; None is all"
    )

    @property
    def holds(self) -> frozenset[str]:
        return super().holds | frozenset({"states of turns"} if self.turns > 1 else ())

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if self.format == "plain":
            yield ("thinking",), "with format = plain", "set format = chat"


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of `train` besides settings. `recall` returns the items of the memory that are shown for a task; `memory` is
    its name, and `remembering` the memory itself."""

    tasks: OwnTasks
    reward: Any = None
    environment: Callable[[Task], Environment] | None = None
    agent: Callable[..., Any] | str | None = None
    recall: Callable[[Config], Recall] | None = None
    memory: str = ""
    remembering: Any = None

    def record(self, config: Config) -> dict[str, Any]:
        """Returns what a run must be continued with, besides its settings, as values for JSON."""
        counts = {split: len(self.tasks.by_split[split]) for split in SPLITS}
        score = self.score(config)
        return {
            "tasks": {"name": self.tasks.name, "digest": self.tasks.digest, **counts},
            "reward": [reward.name for reward in score.rewards] if score else [],
            "reward_digest": score.digest if score else "",
            "environment": _name(self.environment),
            "agent": _name(self.agent) if self.program is None else self.program.name,
            "memory": self.memory,
        }

    @property
    def program(self) -> AgentProgram | None:
        """The agent, where it is a program that calls a model at an address."""
        return program_of(self.agent)

    @property
    def remembers(self) -> bool:
        """Whether items of a memory are shown: the memory that was given, or the entries that rows say were written."""
        return self.recall is not None or any(task.sessions for task in self.tasks.all)

    def score(self, config: Config) -> Scoring | None:
        """Returns the rewards; None where only an environment rewards, or the tasks' verifiers judge."""
        if self.reward is None:
            return None
        logged = any(task.answers for task in self.tasks.all)
        return replace(scoring(self.reward, config.weights), logged=logged)

    def judged(self, config: Config) -> Mapping[str, tuple[Task, ...]]:
        """Returns the tasks by split, each with a verifier."""
        return {
            split: tuple(task if task.verifier else replace(task, verifier=config.verifier) for task in tasks)
            for split, tasks in self.tasks.by_split.items()
        }


def _name(given: object) -> str:
    return "" if given is None else str(getattr(given, "__qualname__", type(given).__qualname__))


def require_given(config: Config, given: Given) -> None:
    """Raises before anything is loaded: WrongFormat where a split has no task, UnusableReward, MissingField, ValueError."""
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
            raise ValueError(
                "an environment gives its own rewards: let its step or its outcome give yours, and leave reward out"
            )
    if given.reward is not None:
        idle.append((("verifier",), "with a reward", "leave the reward out"))
    else:
        idle.append((("weights",), "without rewards of your own", "give them"))
    if given.agent is not None:
        keys = ("format", "system", "stop", "thinking") if given.program is None else ("system", "stop", "thinking")
        idle.append((keys, "with an agent of your own", "leave the agent out"))
    if given.program is None:
        idle.append((("calls", "agent_seconds", "roles"), "without a program as the agent", "give one"))
    elif given.environment is not None:
        raise ValueError("a program acts in a world of its own: leave the environment out, or give an agent for it")
    if not given.remembers:
        idle.append((("recall",), "without a memory", "give a memory, or rows with `writes`"))
    elif given.agent is not None and given.program is None:
        raise ValueError("an agent of your own is shown nothing of a memory: leave one of them out")
    elif given.program is not None:
        if given.remembering is None:
            raise ValueError("a program is shown nothing of what rows say was written: give a memory")
        refuse_workers(config, "the memory learns in the process that trains")
    if given.program is None or given.remembering is None:
        idle.append((("memory_mode",), "without a memory and a program as the agent", "give both"))
    require_effect(config, idle)
    if is_supervised(config):
        if given.environment is not None or given.agent is not None:
            raise ValueError("method = supervised imitates answers to questions: leave environment and agent out")
        _require_answers(given.tasks.by_split["train"], " to imitate", "leave method = reinforce")
    if (score := given.score(config)) is not None:
        if given.program is None and any(reward.name == SIGNALS for reward in score.rewards):
            raise ValueError(f"reward = {SIGNALS} reads what the tools of a program told: give a program as the agent")
        tried = tuple(reward for reward in score.rewards if reward.form not in ("episode", "group"))
        if tried and given.program is None:  # the answer of a program may be of any type
            try_rewards(replace(score, rewards=tried), given.tasks.all, config.environment_seconds)
    elif given.environment is None:
        require_known("verifier", config.verifier, (*VERIFIERS, ABSTAINED))
        judged = [task for task in given.tasks.all if task.verifier != ABSTAINED]
        _require_answers(judged, f", against which {config.verifier} judges", "give a reward of your own")


def _require_answers(tasks: Iterable[Task], what_for: str, instead: str) -> None:
    for task in tasks:
        if not task.answers:
            raise MissingField(f"{place_of(task)} has no field 'answer'{what_for}.", f"Add it, or {instead}.")


def recall_of(config: Config, given: Given) -> Recall | None:
    """Returns the recall that selects the items shown, where there is a memory."""
    if given.recall is not None:
        return given.recall(config)
    if not given.remembers:
        return None
    from keepworth.encoders.local import encoder
    from keepworth.worlds.recall import recall_by_search

    return recall_by_search(config.recall, encoder("minilm"))


def system(config: Config, given: Given, run: RunFolder | None = None) -> System:
    """Returns the system that learns a user's tasks.

    Args:
        config: The settings.
        given: The other arguments of `train`.
        run: The folder of the run, in which the memory of a program learns; None where nothing is played.
    """
    from keepworth.worlds.chat import Chat
    from keepworth.worlds.driver import Limits, Play
    from keepworth.worlds.question import JudgedQuestion, Question
    from keepworth.worlds.recall import another, evidence_only

    score, recall, tasks_of = given.score(config), recall_of(config, given), given.judged(config)
    program, trained_memory = given.program, None
    if program is not None and given.remembering is not None and run is not None:
        from keepworth.training.rollout_memory import TrainedMemory

        writes = config.memory_mode == "on"
        trained_memory = TrainedMemory(given.remembering, run, top_k=config.recall, writes=writes)

    def world(task: Task, *, alone: bool) -> Environment:
        if given.environment is not None:
            return given.environment(task)
        return Question() if score is None else JudgedQuestion(replace(score, alone=alone))

    def run_program(task: Task, *, remembers: bool, explore: bool) -> Agent:
        from keepworth.training.interception import ProgramAgent, RolloutLimits

        assert program is not None
        limits = RolloutLimits(config.max_tokens, config.calls, config.agent_seconds)
        memory = trained_memory if remembers else None
        prompts = config.roles if isinstance(config.roles, dict) else {}
        return ProgramAgent(
            program, task, config.model, ROLE, config.format, limits, prompts=prompts, memory=memory, explore=explore
        )

    def playing(shows: Recall | None, *, explore: bool = False) -> Play:
        """How tasks are played: `explore` is for those that are trained on, not for those that are measured."""

        def chat(task: Task, memory: Bank | None) -> Agent:
            return Chat(
                config.system,
                max_tokens=config.max_tokens,
                stop=config.stop,
                format=config.format,
                thinking=config.thinking,
                shown=() if shows is None else shows(task).shown,
                schemas=tools_of(task),
            )

        def runs(task: Task, memory: Bank | None) -> Agent:
            return run_program(task, remembers=shows is not None, explore=explore)

        agent = runs if program is not None else cast("Callable[..., Agent] | None", given.agent) or chat
        return Play(partial(world, alone=not explore), agent)

    def measured(split: str) -> Measured:
        tasks = list(tasks_of[split])[: config.questions]
        ways = {"": playing(recall)}
        if recall is not None and split == "test":
            ways["no_memory"] = playing(None)
            if len(tasks) > 1 and program is None:
                ways["another_memory"] = playing(another(recall, tasks))
            if program is None and all(task.evidence for task in tasks):
                ways["oracle_evidence"] = playing(evidence_only())
        return Measured(tasks, ways)

    verifiers = {task.verifier for tasks in tasks_of.values() for task in tasks}
    names = [] if score is None else [reward.name for reward in score.rewards]
    if given.environment is None and (score is None or score.logged):
        names += sorted(verifiers - set(names))
    metrics = {**({} if len(names) == 1 else {EPISODE: "reward"}), **{name: name for name in names}}
    length = (config.turns if program is None else config.calls) * config.max_tokens
    return System(
        role=ROLE,
        title=f"a policy learns {given.tasks.name}",
        train=tasks_of["train"],
        play=playing(recall, explore=True),
        dev=measured("dev"),
        test={f"{given.tasks.name}, test": measured("test")},
        metrics=metrics,
        optional=frozenset(names),
        limits=Limits(max_turns=config.turns, environment_seconds=config.environment_seconds),
        length_budget=length,
        hooks=Hooks(
            roles=tuple(config.roles),
            later=() if score is None else score.later(),
            sources=() if trained_memory is None else (trained_memory,),
        ),
        close=(lambda: None) if trained_memory is None else trained_memory.close,
        row_budget=config.max_tokens if config.thinking == "strip" else length,
        unit=given.tasks.cluster.__getitem__,
        ready=lambda model, progress: require_chat(config, given, recall, model, progress),
        note=f"{given.tasks.note} Greedy, {config.max_tokens} tokens an answer.".strip(),
        right=(lambda model, task: [right_answer(config, task, recall, model)]) if is_supervised(config) else None,
    )


def opening(config: Config, task: Task, recall: Recall | None, chat: ChatTemplate) -> Tokens:
    """Returns the tokens that a question begins with, as `Chat` opens it.

    Args:
        config: The settings, which may hold a system message.
        task: The task, with its messages and tools.
        recall: What is shown with the question; None shows nothing.
        chat: The format of the conversation.
    """
    from keepworth.base.text import as_text
    from keepworth.worlds.chat import add_memories, add_system, clean, with_tools

    given = [clean(message) for message in messages_of(task)] or [{"role": "user", "content": as_text(task.input)}]
    messages, schemas = with_tools(given, tools_of(task), chat)
    shown = () if recall is None else recall(task).shown
    return chat.opening(add_memories(add_system(messages, config.system, chat), shown), schemas)


def right_answer(config: Config, task: Task, recall: Recall | None, model: InProcessModel) -> Pair:
    """Returns the conversation, and the task's answer with the end of a turn, cut to `max_tokens`.

    Args:
        config: The settings.
        task: The task, which has an answer.
        recall: What is shown with the question; None shows nothing.
        model: The model whose format and tokens are used.
    """
    from keepworth.worlds.chat import format_of

    chat = format_of(model, config.format, config.stop)
    return opening(config, task, recall, chat), whole_answer(task, model, chat)[: config.max_tokens]


def whole_answer(task: Task, model: InProcessModel, chat: ChatTemplate) -> Tokens:
    """Returns the tokens of the task's answer with the end of a turn. Calls of tools are written as the model's template does.

    Args:
        task: The task, which has an answer.
        model: The model whose tokens are used.
        chat: The format of the conversation.
    """
    behind = chat.following([{"role": "user", "content": "?"}], None)[:1]
    last = getattr(model.tokenizer, "eos_token_id", None)
    usual = last if last in chat.stop_ids else min(chat.stop_ids)
    end = behind if chat.stop_ids.issuperset(behind) else (usual,)
    answer = task.answers[0].strip()
    if task.row.get("calls") and isinstance(chat, TokenizerChat) and chat.takes_calls:
        message = {"role": "assistant", "content": task.row.get("said", ""), "tool_calls": task.row["calls"]}
        answer = chat.write_text(message).strip() or answer
    return (*model.encode_continuation(answer), *end)


def require_chat(
    config: Config, given: Given, recall: Recall | None, model: InProcessModel, progress: Progress
) -> None:
    """Checks what the model's template cannot do and prompts that are too long, before anything is measured. Raises
    NoChatTemplate, TemplateMismatch, or WrongFormat naming the row.

    Args:
        config: The settings.
        given: The tasks, and the environment or the agent where there is one.
        recall: What is shown with a question; None shows nothing.
        model: The model that is trained.
        progress: It is told where prompts are given as bare texts.
    """
    if given.tasks.remark:
        progress.note(given.tasks.remark)
    if given.agent is not None and given.program is None:
        return
    from keepworth.worlds.chat import PlainFormat, format_of

    chat = format_of(model, config.format, config.stop)
    if isinstance(chat, PlainFormat) and config.format == "auto":
        progress.note(f"{model.name} has no chat template: prompts are given as bare texts (format = plain).")
    if given.environment is not None or given.program is not None:
        return
    if is_supervised(config):
        lengths = [len(whole_answer(task, model, chat)) for task in given.tasks.by_split["train"]]
        if max(lengths) > config.max_tokens:
            progress.note(
                f"Right answers are longer than max_tokens = {config.max_tokens} and are imitated without their end: set "
                f"max_tokens = {max(lengths)} to keep all of them whole."
            )
    begun = time.monotonic()
    for task in sorted(given.tasks.all, key=lambda one_task: -len(one_task.input)):
        if time.monotonic() - begun > TRIED_FOR:
            return
        length = len(opening(config, task, recall, chat))
        if length + config.max_tokens > model.context_limit:
            raise WrongFormat(
                f"{place_of(task)}: the prompt has {length} tokens, and {config.max_tokens} may follow: {model.name} reads "
                f"{model.context_limit}.",
                "Shorten it, set max_tokens lower, or take a model with a longer window.",
            )


TRIED_FOR = 10.0
"""Seconds for which prompts are measured before training, the longest questions first."""


def recall_from(path: Any) -> tuple[Callable[[Config], Recall], str]:
    """Returns a recall from a memory's file, or an open memory, and the memory's name in a run's record. It searches a snapshot
    of the memory as it is now. No policy of the memory chooses, and nothing is logged in it."""
    from keepworth.memory.memory import Memory
    from keepworth.memory.search.passages import block
    from keepworth.records.episode import Shown
    from keepworth.worlds.recall import Recalled

    memory = path if isinstance(path, Memory) else Memory(path, read_only=True, log="off")
    snapshot = memory.snapshot()
    bank = memory.bank(at=snapshot)

    def recalling(config: Config) -> Recall:
        @cache
        def search(text: str) -> Recalled:
            hits = bank.search(text, config.recall)
            lines = block(hits, text).lines
            shown = (
                Shown(hit.item.id, hit.score, lines[hit.item.id].removeprefix("- "))
                for hit in hits
                if hit.item.id in lines
            )
            return Recalled(tuple(shown), snapshot)

        return lambda task: search(task.input)

    return recalling, f"{memory.path}@{snapshot}"
