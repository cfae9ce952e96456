"""`LiveEpisode`: one attempt at a task, while it happens. `Memory.episode` makes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from keepworth.memory.errors import ClosedEpisode, InvalidFilter, InvalidText, UnknownEpisode, check_keywords
from keepworth.memory.item import PARTS, Item, Scope, worded, worded_actions
from keepworth.memory.model_signals import LABELS
from keepworth.memory.operations import OperationOutcome, checked_reward
from keepworth.memory.search.search import Ask, Hits, ScopedOptions
from keepworth.memory.signals import LONGEST as SIGNS
from keepworth.memory.signals import find_signal, load_signals, read_reply, read_tool, tell_mended
from keepworth.memory.store import decision_log, episode_log, log, notes
from keepworth.records.episode import Decision, Operation

if TYPE_CHECKING:
    from keepworth.memory.changing import ItemOptions
    from keepworth.memory.choose.pool import Advice
    from keepworth.memory.memory import Memory
    from keepworth.memory.store.transaction import Transaction
    from keepworth.records.episode import Episode


MOST_SIGNALS = 16
"""The most signals that are kept about one search: a tool that fails and succeeds in turn for ever says no more than that."""


@dataclass(slots=True)
class UnwrittenEpisode:
    """An episode that is not on file yet: when it began, and the search in it."""

    began: str
    searches: list[decision_log.Logged] = field(default_factory=list)


@check_keywords
class LiveEpisode:
    """An attempt at a task: call `search`, then `act`, once for each step, and `reward` at the end.

    Every call is written to disk before it returns. `id` is what `Memory.reward` and `rollback` take, also long afterwards;
    `number` counts the episodes of the file from 0; `acts` counts the actions. `seed` makes the policy's random choices in it
    repeat; None leaves them to the memory's seed."""

    def __init__(
        self,
        memory: Memory,
        id: str,
        scope: Scope,
        task: str,
        by: str = "",
        *,
        number: int = -1,
        explore: bool = True,
        unwritten: UnwrittenEpisode | None = None,
    ) -> None:
        self.id = id
        self.scope = scope
        self.task = task
        self.by = by
        self._memory = memory
        self.number, self._explore, self._unwritten = number, explore, unwritten
        self.seed: int | None = None
        self._steps = 0
        self.acts = 0
        self._waiting: list[str] = []
        self._action: str | None = None

    def __repr__(self) -> str:
        """Return the id and what was asked, as notebooks print it."""
        return f"LiveEpisode({self.id!r}, task={self.task[:60]!r}, searches={self._steps})"

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """The lowest and the highest reward that the memory accepts; None if it has no policy and accepts any."""
        return None if self._memory.learning is None else self._memory.learning.reward_range

    def _write(self, since: int | None = None) -> bool:
        """Put an episode of `unwritten_episode` on file, with the search in it. Nothing happens if it is there.

        Args:
            since: The newest journal entry before the search. If something was erased after that, which the episode may quote,
                nothing is written.

        Returns:
            Whether it is on file.
        """
        if (unwritten := self._unwritten) is None:
            return True
        self.number = episode_log.begin(
            self._memory.store,
            self.scope,
            self.id,
            self.task,
            self.by,
            began=unwritten.began,
            explore=self._explore,
            searches=unwritten.searches,
            since=since,
        )
        if self.number >= 0:
            self._unwritten = None
        return self.number >= 0

    def search(
        self,
        /,
        query: str = "",
        *,
        actions: Sequence[str] = (),
        top_k: int | str = 10,
        **options: Unpack[ScopedOptions],
    ) -> Hits:
        """Search as `Memory.search` does, in the scope of this episode, and record the search as its next decision.

        Args:
            query: What is looked for, or observed; "" searches for the task alone.
            actions: What the agent can do here, if that is known.
            top_k: The most items.
            **options: Those of `Memory.search`, such as `mode` and `where`.

        Raises:
            InvalidText: There is neither a query nor a task.
            ClosedEpisode: The episode has its final reward.
        """
        self._open()
        seen = worded(query, "the query")
        if not (self.task.strip() or seen.strip()):
            raise InvalidText(f"episode {self.id!r} has no task and was given no query: say what is looked for")
        if "episode" in options or "step" in options:
            raise InvalidFilter(
                f"a search of episode {self.id!r} says itself which episode and step it is: leave that out"
            )
        if self._steps:  # what was tried in this episode is read from the file
            self._write()
        ask = self._asking(seen, worded_actions(actions) if actions != () else (), self._steps)
        # A search that repeated the memory's own user would not see what others share with it.
        mine, given = self.scope.parts(), self._memory.scopes.own.parts()
        narrower: dict[str, Any] = {
            f"{part}_id": name for part, name, same in zip(PARTS, mine, given, strict=True) if name != same
        }
        hits = self._memory.answer(ask, episode=self.id, top_k=top_k, **{**narrower, **options})
        self._steps += 1
        return hits

    def _asking(self, seen: str, actions: tuple[str, ...], step: int) -> Ask:
        """Return a query with what the episode adds to it: its task if it has one, its person, its number and `explore`."""
        asked = (self.task, seen) if self.task.strip() else (seen, "")
        begins = self._unwritten is not None
        return Ask(*asked, actions, step, self.by, self.number, self._explore, seed=self.seed, begins=begins)

    def act(self, action: str) -> None:
        """Record what the agent did after the last searches. Raises InvalidText, ClosedEpisode."""
        self._open()
        if not self._waiting:
            raise ClosedEpisode(f"episode {self.id!r} acted without searching.", "Call `search` before each `act`.")
        done = self._memory._unsaid(worded(action, "the action"))
        if not done.strip():
            raise InvalidText("the action is empty: say what was done")
        self._note("act", decisions=self._waiting, action=done)
        self._waiting, self._action = [], done
        self.acts += 1

    def step_reward(self, value: float) -> None:
        """Reward the last action alone, before the final reward is given; it counts once that reward is there. Steps without a
        reward of their own are credited with the final one. Raises InvalidReward, ClosedEpisode."""
        if self._action is None or self._rewarded():
            raise ClosedEpisode(f"episode {self.id!r} has no open action to reward.", "Call `act` first.")
        self._note("step", reward=checked_reward(value, self.reward_range))

    def remember(self, text: str, **options: Unpack[ItemOptions]) -> Item:
        """Remember a text as `Memory.add` does, as part of this episode."""
        self._write()
        here: dict[str, Any] = {"source": "episode", **self._bounds(), **options}
        return self._memory.add_many([text], episode=self.id, **here)[0]

    add = remember

    def observe(self, advice: Advice) -> str:
        """Store advice that was drawn from this episode, so that it counts as the memory's own experience; otherwise as
        `Memory.propose`. Raises InvalidAdvice, InvalidPolicy, ClosedEpisode."""
        self._open()
        self._write()
        return self._memory._learns("observe").propose(advice, self.scope, self.id, self.number, self.by)

    def apply(self, operation: Operation, **options: Any) -> OperationOutcome:
        """Carry out an operation as `Memory.apply` does, as part of this episode."""
        self._write()
        return self._memory.apply(operation, episode=self.id, **{"source": "episode", **self._bounds(), **options})

    def reward(self, value: float, *, by: str | None = None, source: str = "user") -> OperationOutcome:
        """Reward this episode: credit everything that it showed.

        Args:
            value: The reward; its range is the caller's.
            by: The person who judged, as for `Memory.reward`.
            source: The channel that the reward came through.
        """
        self._write()
        return self._memory.reward(self.id, value, by=by, source=source)

    def signal(
        self,
        name: str = "",
        *,
        reply: str = "",
        command: str = "",
        failed: bool | None = None,
        output: str = "",
        by: str | None = None,
    ) -> OperationOutcome:
        """Take what was seen for the outcome of what this episode showed before it: see `keepworth.memory.signals`.

        It becomes a reward of the newest search, or of all of them, under the source "signal:NAME", and counts nothing where
        somebody gave a reward. Searches that another person made are left alone. Where nothing is written, the result says why.

        Args:
            name: A signal of the table, such as "check-passed"; else one of the next two is given.
            reply: The user's next message, which may correct or confirm the answer.
            failed: Whether a tool failed.
            command: With `failed`: the command line that the tool ran, if it is a shell.
            output: With `failed`: what the tool printed.
            by: In whose name it is; None for the episode's person, or else the user in whose scope the episode is.

        Raises:
            UnknownName: There is no signal of this name.
            InvalidFilter: None of `name`, `reply` and `failed` is given, or several.
            UnknownEpisode: The episode was erased.
        """
        if bool(name) + bool(reply) + (failed is not None) != 1:
            raise InvalidFilter("a signal is one of a name, a reply, or a tool that failed or not: give exactly one")
        if reply:
            name = read_reply(worded(reply, "the reply"), self.task, self._action or "")
        elif failed is not None:
            name = read_tool(
                worded(command, "the command"), failed=failed, output=worded(output[-SIGNS:], "the output")
            )
        if reply and (not name or find_signal(name).weight <= 0.0) and self._ask_model(reply, by):
            return OperationOutcome(False, reason="the rules do not tell, so that a model is asked")
        if not name:
            return OperationOutcome(False, reason="it says nothing of the answer")
        self._write()
        self._memory._decisions.flush()
        with self._memory.store.database.reading() as connection:
            searches, seen = episode_log.signals_in(connection, self.id)
        signal = find_signal(tell_mended(name, [before for _, before in seen]))
        ends = [end for _, before in seen if (end := load_signals().get(before)) and end.family in ("check", "tool")]
        if reply and name == "repetition" and ends and ends[-1].value == 1.0:
            return OperationOutcome(False, reason="what was asked for ended well, and is asked for once more")
        if signal.name not in self._memory.signals:
            return OperationOutcome(False, reason=f"the signal {signal.name} is switched off")
        if signal.weight <= 0.0:
            return OperationOutcome(False, reason=f"the signal {signal.name} says nothing of what was shown")
        if not searches:
            return OperationOutcome(False, reason="nothing was shown before it")
        low, high = self.reward_range or (0.0, 1.0)
        value = low + signal.value * (high - low)
        counted = Counter(about for about, _ in seen)
        whose = by or self.by or self.scope.user
        outcomes = []
        for decision in searches[-1:] if signal.of == "search" else searches:
            if counted[decision] < MOST_SIGNALS:
                with suppress(
                    UnknownEpisode
                ):  # what another person of a team searched for, or what was erased meanwhile
                    outcomes.append(self._memory.reward(decision, value, by=whose, source=signal.source))
        if not outcomes:
            return OperationOutcome(False, reason="what was shown is another person's, or has enough signals already")
        return next((outcome for outcome in outcomes if outcome.applied), outcomes[-1])

    def _ask_model(self, reply: str, by: str | None) -> bool:
        """Ask the memory's model, if it has one, what the next message says, in the background. Returns whether it will be asked:
        not if nothing was shown before, or all signals of the model are switched off."""
        memory = self._memory
        if memory.model_signals is None or memory.signals.isdisjoint(LABELS.values()):
            return False
        self._write()
        memory._decisions.flush()
        with memory.store.database.reading() as connection:
            if not episode_log.signals_in(connection, self.id)[0]:
                return False
        message, answer = memory._unsaid(reply), memory._unsaid(self._action or "")
        person = by or self.by or self.scope.user or ""
        memory.model_signals.read_later(
            memory.store, message, self.task, answer, person, lambda name: memory.reopen(self.id).signal(name, by=by)
        )
        return True

    def end(self, outcome: str = "") -> None:
        """Record that the episode is over, and how it ended. It can still be rewarded."""
        self._write()
        episode_log.end(self._memory.store, self.scope, self.id, self._memory._unsaid(outcome))

    def record(self) -> Episode:
        """Return the record of this episode, as `Memory.episode_record` does."""
        self._write()
        return self._memory.episode_record(self.id)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The searches of this episode and what each showed, read from the file."""
        return self.record().decisions

    def __enter__(self) -> LiveEpisode:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end("completed" if kind is None else f"stopped by {kind.__name__}")

    def _go_on(self) -> None:
        """Continue from the state that the file holds: its steps, its actions, the searches that wait for an `act`, and whether
        the policy may explore."""
        self._memory._decisions.flush()
        with self._memory.store.database.reading() as connection:
            done = episode_log.done_in(connection, self.id)
            self._explore = self._explore and notes.explores(connection, self.id)
        self._steps, self._waiting, self._action, self.acts = done

    def _rewarded(self) -> bool:
        with self._memory.store.database.reading() as connection:
            return bool(log.rewards_of(connection, self.id))

    def _open(self) -> None:
        """Raise ClosedEpisode if the episode has its final reward: with a policy that stores cases, the first from anybody is."""
        learning = self._memory.learning
        if learning is not None and learning.keeps and self._rewarded():
            raise ClosedEpisode(f"episode {self.id!r} has its reward.", "Open a new episode.")

    def _note(self, what: str, **body: Any) -> None:
        self._write()
        store = self._memory.store

        def work(transaction: Transaction) -> bool:
            erased = decision_log.is_erased(transaction.connection, self.id)  # perhaps by another process, just now
            if not erased:
                log.note(transaction, self.scope, store.clock(), what, self.id, **body)
            return erased

        if store.change(self.scope, work):
            self._memory._check_episode(self.id)  # raises UnknownEpisode

    def _bounds(self) -> dict[str, Any]:
        scope = {"user_id": self.scope.user, "agent_id": self.scope.agent, "session_id": self.scope.session}
        return {name: value for name, value in scope.items() if value}


def unwritten_episode(memory: Memory, task: str, **options: Any) -> LiveEpisode:
    """Begin an episode that `write_episode` puts on file, with the first search in it, in one transaction.

    Args:
        memory: Where it is to be on file.
        task: What is attempted.
        **options: Those of `Memory.episode`.
    """
    return memory._unwritten_episode(task, **options)


def write_episode(live: LiveEpisode, since: int | None = None) -> bool:
    """Put an episode of `unwritten_episode` on file. Nothing happens if it is there.

    Args:
        live: The episode.
        since: The newest journal entry before its search. If something was erased after that, which the episode may quote,
            nothing is written.

    Returns:
        Whether it is on file.
    """
    return live._write(since)
