"""LiveEpisode: one attempt at a task, while it happens. Made by `Memory.episode`."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from keepworth.episodes.episode import Decision, Operation
from keepworth.memory.errors import ClosedEpisode, InvalidFilter, InvalidScope, InvalidText, check_keywords
from keepworth.memory.item import Item, Scope, worded, worded_actions
from keepworth.memory.operations import OperationOutcome, checked_reward
from keepworth.memory.search.search import Ask, Hits, ScopedOptions
from keepworth.memory.store import decision_log, episode_log, log

if TYPE_CHECKING:
    from keepworth.episodes.episode import Episode
    from keepworth.memory.changing import ItemOptions
    from keepworth.memory.memory import Memory
    from keepworth.memory.policy.pool import Advice
    from keepworth.memory.store.transaction import Transaction


@check_keywords
class LiveEpisode:
    """Search, act, reward, in this order, as often as there are steps.

    id: for `Memory.reward` and `rollback`, also long afterwards. number: counted from 0 in its file; acts: how often something
    was done. Everything is on disk before the call returns."""

    def __init__(
        self, memory: Memory, id: str, scope: Scope, task: str, by: str = "", *, number: int = -1, explore: bool = True
    ) -> None:
        self.id = id
        self.scope = scope
        self.task = task
        self.by = by
        self._memory = memory
        self.number, self._explore = number, explore
        self._steps = 0
        self.acts = 0
        self._waiting: list[str] = []
        self._action: str | None = None

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """That of the memory; None where it takes all rewards."""
        return None if self._memory.learning is None else self._memory.learning.reward_range

    def search(
        self, /, query: str = "", *, actions: Sequence[str] = (), top_k: int = 10, **options: Unpack[ScopedOptions]
    ) -> Hits:
        """As `Memory.search`, in this episode's scope and as part of its task, recorded as its next decision.

        query: what is looked for, or seen; "" goes by the task alone. actions: what can be done here, where that is known.
        Raises InvalidText, ClosedEpisode."""
        self._open()
        seen = worded(query, "the query")
        if not (self.task.strip() or seen.strip()):
            raise InvalidText(f"episode {self.id!r} has no task and was given no query: say what is looked for")
        if "episode" in options or "step" in options:
            raise InvalidFilter(
                f"a search of episode {self.id!r} says itself which episode and step it is: leave that out"
            )
        ask = self._asking(seen, worded_actions(actions), self._steps)
        hits = self._memory.answer(ask, self.id, top_k=top_k, **{**self._narrower(), **options})
        self._steps += 1
        return hits

    def _asking(self, seen: str, actions: tuple[str, ...], step: int) -> Ask:
        """A query as this episode asks it: of its task, where it has one."""
        asked = (self.task, seen) if self.task.strip() else (seen, "")
        return Ask(*asked, actions, step, self.by, self.number, self._explore)

    def act(self, action: str) -> None:
        """What was done after the last searches. Raises InvalidText, ClosedEpisode."""
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
        """The reward of the last action alone; steps without one are credited with the final reward. It counts once there is that
        reward, and comes before it. Raises InvalidReward, ClosedEpisode."""
        if self._action is None or self._rewarded():
            raise ClosedEpisode(f"episode {self.id!r} has no open action to reward.", "Call `act` first.")
        self._note("step", reward=checked_reward(value, self.reward_range))

    def remember(self, text: str, **options: Unpack[ItemOptions]) -> Item:
        """As `Memory.add`, as part of this episode."""
        here: dict[str, Any] = {"source": "episode", **self._bounds(), **options}
        return self._memory.add_many([text], episode=self.id, **here)[0]

    add = remember

    def observe(self, advice: Advice) -> str:
        """As `Memory.propose`, of what was seen in this episode, which is memory's own experience. Raises InvalidAdvice,
        InvalidPolicy, ClosedEpisode, and InvalidScope in an episode of a narrower scope than the memory's."""
        self._open()
        if self.scope != self._memory.scope:
            raise InvalidScope(
                f"episode {self.id!r} is of {self.scope}, and its memory learns from everything in {self._memory.scope}: bind "
                "the memory, Memory(path, user_id=...)"
            )
        return self._memory._learns("observe").propose(advice, self.id, self.number, self.by)

    def apply(self, operation: Operation, **options: Any) -> OperationOutcome:
        """As `Memory.apply`, as part of this episode."""
        return self._memory.apply(operation, episode=self.id, **{"source": "episode", **self._bounds(), **options})

    def reward(self, value: float, *, by: str | None = None, source: str = "user") -> OperationOutcome:
        """Credit everything this episode showed. by: whose judgement it is, as for `Memory.reward`."""
        return self._memory.reward(self.id, value, by=by, source=source)

    def end(self, outcome: str = "") -> None:
        """Note that it is over. Rewards may still come."""
        episode_log.end(self._memory.store, self.scope, self.id, self._memory._unsaid(outcome))

    def record(self) -> Episode:
        """As `Memory.episode_record`."""
        return self._memory.episode_record(self.id)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What was searched and chosen, as it is on file."""
        return self.record().decisions

    def __enter__(self) -> LiveEpisode:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end("completed" if kind is None else f"stopped by {kind.__name__}")

    def _go_on(self) -> None:
        """From where the file says that it is."""
        self._memory._decisions.flush()
        with self._memory.store.database.reading() as connection:
            done = episode_log.done_in(connection, self.id)
        self._steps, self._waiting, self._action, self.acts = done

    def _over(self) -> bool:
        """Whether it has a reward that is final, whoever gave it."""
        learning = self._memory.learning
        return learning is not None and self._rewarded() and learning.keeps

    def _rewarded(self) -> bool:
        with self._memory.store.database.reading() as connection:
            return bool(log.rewards_of(connection, self.id))

    def _open(self) -> None:
        if self._over():
            raise ClosedEpisode(f"episode {self.id!r} has its reward.", "Open a new episode.")

    def _note(self, what: str, **body: Any) -> None:
        store = self._memory.store

        def work(transaction: Transaction) -> None:
            if not decision_log.is_erased(transaction.connection, self.id):  # meanwhile
                log.note(transaction, self.scope, store.clock(), what, self.id, **body)

        self._memory._check_episode(self.id)
        store.change(self.scope, work)

    def _narrower(self) -> dict[str, Any]:
        """The bounds that its memory has not itself: with those come the scopes that are shared with it."""
        bounds = self._memory.scope
        same = {"user_id": bounds.user, "agent_id": bounds.agent, "session_id": bounds.session}
        return {name: value for name, value in self._bounds().items() if value != same[name]}

    def _bounds(self) -> dict[str, Any]:
        return {"user_id": self.scope.user, "agent_id": self.scope.agent, "session_id": self.scope.session}
