"""Memory: what users open. One file, familiar verbs, and what those lack: it learns from reward, and has undo and the past.

m = Memory("agent.mem")
m.add("Ana is allergic to peanuts", user_id="ana")
with m.episode(user_id="ana", task="plan dinner") as episode:
    hits = episode.search("dietary limits", top_k=5)
    episode.reward(1.0)
m.rollback(episode.id)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakValueDictionary

from keepworth.episodes.episode import Decision, Episode
from keepworth.episodes.model import Encoder
from keepworth.memory import by_name
from keepworth.memory.changing import Changes
from keepworth.memory.errors import (
    InvalidFilter,
    InvalidPolicy,
    InvalidScope,
    UnknownEpisode,
    UnknownItem,
    check_keywords,
)
from keepworth.memory.item import (
    Item,
    ItemKind,
    Scope,
    Status,
    checked_source,
    identity,
    member,
    new_id,
    now,
    on_word_of,
    one_spelling,
    timestamp,
    worded,
    worded_actions,
)
from keepworth.memory.learned import Learned, check_retrieved
from keepworth.memory.operations import Credit, Draft, OperationOutcome, checked_reward
from keepworth.memory.overlay import Bank, Overlay
from keepworth.memory.place import on_server
from keepworth.memory.scopes import Scopes
from keepworth.memory.search.index import Embedder
from keepworth.memory.search.search import (
    Ask,
    Chosen,
    Hit,
    Hits,
    Ranked,
    Request,
    ScopedOptions,
    Search,
    checked_number,
    checked_query,
    checked_switch,
    chosen_without_policy,
    requested,
    several,
)
from keepworth.memory.search.where import Where, parsed
from keepworth.memory.settings import MemorySettings, check_settings
from keepworth.memory.store import episode_log, log, purge, undo
from keepworth.memory.store.decision_log import DecisionLog, Logged
from keepworth.memory.store.rows import number_of
from keepworth.memory.store.store import Difference, Revision, Store
from keepworth.memory.store.views import ScopeView

if TYPE_CHECKING:
    from keepworth.episodes.arrays import Vectors
    from keepworth.memory.episode import LiveEpisode
    from keepworth.memory.policy.learning import Learning
    from keepworth.memory.policy.slots import Policy, Writer

    PolicyLike = str | Policy | Callable[[], Policy] | None

_LOG = logging.getLogger("keepworth.memory")
NEARBY = 5
"""Hits beyond those that are asked for, which a policy sees: what moves down has something to make way for."""


@check_keywords
class Memory(Changes, Learned):
    """Thread-safe; several processes may open one file at once.

    path: a file (made if missing) or ":memory:".
    encoder: an encoder or the name of one; None to search by words only.
    tenant, user_id, agent_id, session_id: bounds of this handle. Calls can narrow them, never widen or change them.
    writer: decides what to store of messages, for `add(..., infer=True)`, such as `Facts(extract)`, or a trained manager.
    "rules" finds facts and what they replace by rules, "model" asks the chat model OPENAI_MODEL; by default that model
    if OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL are all set, else the rules. None: no writer.
    policy: chooses among the hits and learns from rewards: a name, such as "default" or "memrl", a policy, or a function that
    makes one; None neither chooses nor learns. It learns from all rewards in the file, whichever policy chose.
    seed: of the policy's random choices; None takes another one each time.
    settings: see `MemorySettings`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = ":memory:",
        *,
        encoder: Encoder | str | None = "default",
        tenant: str = "",
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        read_only: bool = False,
        writer: Writer | str | None = "default",
        policy: PolicyLike = "default",
        seed: int | None = None,
        **settings: Unpack[MemorySettings],
    ) -> None:
        given_writer = writer is not None and not isinstance(writer, str)
        check_settings(Memory.__init__, settings, encoder=encoder, seed=seed, writer=writer if given_writer else now)
        clock, reward_range = settings.get("clock", now), settings.get("reward_range")
        named = None if policy is None else by_name.policy_maker(policy, by_name.policy)
        if named is None and (reward_range is not None or seed is not None):
            raise InvalidFilter("reward_range and seed are for a policy, and policy=None has none: leave them out")
        self.scopes = Scopes(Scope(tenant, user_id, agent_id, session_id))
        self.writer: Writer | None = by_name.writer(writer) if isinstance(writer, str) else writer
        self._clock, self._logs = clock, settings.get("log") != "off"
        if named is not None:
            from keepworth.memory.policy.learning import Learning
            from keepworth.memory.policy.rewards import check_range

            # What cannot take effect is refused before there is a file.
            named[0]()
            if reward_range is not None:
                check_range(reward_range)
        # A file that is there says which encoder made its vectors. Another's mistake is found before there is a file.
        fresh = isinstance(path, (str, os.PathLike)) and not os.path.exists(path) and not on_server(path)
        if isinstance(encoder, str) and (fresh or encoder != "default"):
            encoder = by_name.encoder(encoder)
        durability = settings.get("durability", "process")
        self.store = Store(path, durability=durability, read_only=read_only, clock=clock)
        self.store.scan = settings.get("scan")
        self.learning = None
        try:
            if isinstance(encoder, str):  # the one that made the vectors on file, else the usual one
                encoder = by_name.encoder("default", self.store.encoder_identity())
            if encoder is not None:
                self.store.use(Embedder(encoder))
            if named is not None:
                bounds = reward_range or (0.0, 1.0)
                self.learning = Learning(self.store, self.scope, *named, reward_range=bounds, seed=seed)
        except BaseException:
            self.store.close()
            raise
        if self.read_only and self._logs:
            _LOG.warning("%s is read-only: searches work but are not logged, so no reward can reach them", self.path)
        self._decisions = DecisionLog(self.store)
        self._shared = False
        self._live: WeakValueDictionary[str, LiveEpisode] = WeakValueDictionary()

    @property
    def scope(self) -> Scope:
        """The bounds of this handle."""
        return self.scopes.own

    @property
    def path(self) -> str:
        return self.store.database.path

    @property
    def read_only(self) -> bool:
        return self.store.database.read_only

    def close(self) -> None:
        """Write what is waiting and close the file. A handle from `within` leaves the file open."""
        if self._shared or self.store.database.forked:
            return
        if not self.read_only:
            self._decisions.close()
        self.store.close()

    def within(
        self, *, user_id: str = "", agent_id: str = "", session_id: str = "", shared: Mapping[str, bool] | None = None
    ) -> Memory:
        """A handle on the same open memory with narrower bounds: none of its verbs sees anything outside them, also not by id.
        What the policy learned is shared. The handle is closed with this one.

        shared: names of other users whose items are seen too, each with True if they may also be changed; for a handle that is
        bound to a user. `user_id=` names one of them in a call; without it, items are written for the handle's own user.
        Raises InvalidScope."""
        narrower = copy(self)
        narrower.scopes = self.scopes.inside(user_id, agent_id, session_id, shared)
        narrower._live = WeakValueDictionary()
        narrower._shared = True
        return narrower

    def flush(self) -> None:
        """Write the waiting entries of the log."""
        self._decisions.flush()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.store.sums(self.scope)[1]

    # Reading.

    def get_all(
        self,
        *,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        kinds: Sequence[ItemKind | str] = (),
        limit: int = 100,
        after: str = "",
        all_states: bool = False,
        nobody: bool = False,
        where: Where = None,
        newest: bool = False,
    ) -> list[Item]:
        """Items in order of writing, `limit` at a time: pass the last id as `after` for the next page. nobody: only what
        was noted without a person. where: as of a search. newest: the newest first."""
        scope = self.scopes.seen(user_id, agent_id, session_id)
        wanted = parsed(where)
        chosen = {member(ItemKind, kind) for kind in several(kinds, "kinds", "fact")}
        checked_number(limit, "limit", 1)
        start, time = _row_of(after), timestamp(self._clock())
        out: list[Item] = []
        while len(out) < limit:
            page = list(
                self.store.items(
                    scope, after=start, limit=max(limit, 256), current=not all_states, where=wanted, newest=newest
                )
            )
            if not page:
                break
            start = int(page[-1].id[1:])
            out.extend(
                item
                for item in page
                if (not chosen or item.kind in chosen)
                and (all_states or item.visible(time))
                and not (nobody and item.scope.user)
                and (wanted is None or wanted(item))
            )
        return out[:limit]

    def get(self, id: str) -> Item:
        """An item in its latest state, closed and deleted ones too. Raises UnknownItem."""
        seen = self.scopes.seen()
        item = self.store.fetch(seen, [id])[id] if isinstance(id, str) else None
        if item is None:
            erased = isinstance(id, str) and purge.is_tombstone(self.store, seen, id)
            if erased:
                raise UnknownItem(
                    f"{id} was erased on purpose, for good, from all of {self.path}: write it anew if it is wanted"
                )
            raise UnknownItem(
                f"no item {id!r:.80} in this scope of {self.path}: take an id that a search or a list gave"
            )
        return item

    def search(
        self,
        /,
        query: str,
        *,
        top_k: int = 10,
        actions: Sequence[str] = (),
        episode: str = "",
        step: int = 0,
        explore: bool = True,
        **options: Unpack[ScopedOptions],
    ) -> Hits:
        """At most `top_k` items, best first; `.decision` is what `reward` takes, `.text` what a prompt takes.

        mode: "lexical", "dense" or "hybrid"; by default hybrid if there is an encoder. actions: what the agent can do here, if
        that is known. explore: False shows what rewards say is best, and tries nothing else. Other options, such as filters, ages
        and rerankers: see `search.ScopedOptions` and `search.Request`. With `as_of`, no policy chooses.
        """
        ask = Ask(
            checked_query(query),
            "",
            worded_actions(actions) if actions != () else (),
            checked_number(step, "step", 0),
            explore=checked_switch(explore, "explore"),
        )
        return self.answer(self._asked_in(episode, ask) if episode else ask, episode, top_k=top_k, **options)

    def answer(self, ask: Ask, episode: str = "", *, top_k: int = 10, **options: Unpack[ScopedOptions]) -> Hits:
        """What is shown: checked, found, chosen and logged."""
        if episode:
            self._check_episode(episode)
        given: dict[str, Any] = dict(options)
        seen = self.scopes.seen(*(given.pop(name, "") for name in ("user_id", "agent_id", "session_id")))
        learning = None if given.get("as_of") or ask.plain else self.learning
        usual = "lexical" if self.store.embedder is None else "hybrid"
        request = requested(top_k, usual, given, 0 if learning is None else NEARBY)
        if self.store.scan is not None:  # the log of what was asked keeps no secrets either
            ask = ask.without_secrets(self.store.scan.redacted)
        if learning is not None:
            chosen = self._chosen_by_policy(learning, ask, seen, request, given.get("mode"))
        else:
            chosen = chosen_without_policy(ask, self._find(ask, seen, request)[0], top_k, f"static:{request.mode}")
        scope = self.scopes.asking(options.get("agent_id", ""), options.get("session_id", ""), seen=seen)
        live = self._live.get(episode) if episode else None
        if live is not None and scope.contains(live.scope):
            scope = live.scope
        if not self.read_only and (episode or self._logs):
            chosen.hits.decision = new_id("d")
            entry = partial(_logged, self._clock(), scope, episode, chosen.decision(ask), chosen)
            if episode:
                self._decisions.write([entry()])
            else:
                self._decisions.later(entry)
        if live is not None and chosen.hits.decision:
            live._waiting.append(chosen.hits.decision)
        return chosen.hits

    def _find(
        self, ask: Ask, seen: Scope, request: Request, candidates: Ranked | None = None
    ) -> tuple[list[Hit], Vectors | None, int]:
        """What the search of this memory finds, best first; the vector of the query, where one was needed, and the entry of the
        journal up to which was searched. candidates: what its stages are to make hits of, where a policy retrieved them."""
        embedder, time, searched = self.store.embedder, self._clock(), None
        with self.store.database.reading() as connection:
            if request.of_others:
                searched = Overlay(self.store.base(seen), embedder).with_others(request, time)
            view = ScopeView(self.store, seen, request.nobody)
            search = Search(view, embedder, request, time, searched)
            if candidates is not None:
                return search.staged(ask.text, candidates), None, 0
            hits = search.hits([ask.text])[0]
            return hits, search.vectors[0], self.store.derived.corpus(connection).seq

    def _chosen_by_policy(
        self, learning: Learning, ask: Ask, seen: Scope, request: Request, mode: str | None
    ) -> Chosen:
        """What the policy chooses, of what the search of this memory finds or of what it finds itself."""
        if learning.searches:
            hits, vector, head = self._find(ask, seen, request)
            return learning.among(ask, hits, request.k, vector, head, by_words=mode == "lexical")
        check_retrieved(self.policy, request, mode)
        request, time = replace(request, beyond=2 * request.k), timestamp(self._clock())
        # A policy that retrieves has learned from everybody.
        return learning.retrieve(
            ask,
            request.k,
            lambda item: seen.contains(item.scope) and request.admits(item, time),
            lambda candidates: self._find(ask, seen, request, candidates)[0],
            narrowly=seen != self.scope or request.declared is not None or not request.usual,
            searched=mode is not None,
            staged=request.staged,
        )

    def _unsaid(self, text: str) -> str:
        """A text without what this memory was told not to remember."""
        return text if self.store.scan is None or not text else self.store.scan.redacted(text)

    def quarantined(self, *, limit: int = 100, after: str = "") -> list[Item]:
        """Items that are held in quarantine, in order of writing: no search shows them until `release`."""
        checked_number(limit, "limit", 1)
        return list(islice(self.store.with_status(self.scope, Status.QUARANTINED, _row_of(after)), limit))

    def history(self, id: str) -> list[Revision]:
        """Everything that happened to an item, oldest first. Raises UnknownItem."""
        revisions = self.store.history(self.scopes.seen(), id)
        if not revisions:
            self.get(id)
        return revisions

    # Outcome.

    def episode(
        self,
        task: str = "",
        *,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        by: str = "",
        explore: bool = True,
    ) -> LiveEpisode:
        """One attempt at a task: what is read, done and written inside is recorded together, rewarded together, undone together.

        by: the person whom it serves, from a login and never from the text; "" for the program itself. explore: False lets the
        policy try and withhold nothing, as when memory is measured.
        After a `with` block without a reward it stays open: reward it later by its id. Raises InvalidText, InvalidPolicy."""
        scope = self.scopes.narrowed(user_id, agent_id, session_id)
        about = self._unsaid(worded(task, "task"))
        person = identity(by, "by") if by != "" else ""
        return self._begin(new_id("e"), about, scope, person, explore=checked_switch(explore, "explore"))

    def _begin(
        self, id: str, task: str, scope: Scope | None = None, person: str = "", *, explore: bool = True
    ) -> LiveEpisode:
        """The episode of this id, which begins. Raises ClosedEpisode where it has begun before."""
        from keepworth.memory.episode import LiveEpisode

        scope = scope or self.scope
        number = episode_log.begin(self.store, scope, id, task, person)
        self._live[id] = live = LiveEpisode(self, id, scope, task, person, number=number, explore=explore)
        return live

    def reopen(self, id: str) -> LiveEpisode:
        """Continue an episode that was begun, from another process or after one was killed. Searches without an `act` still wait
        for one. What `explore` was is not stored. Raises UnknownEpisode."""
        from keepworth.memory.episode import LiveEpisode

        begun = self._begun(id)  # asked even where it is at hand: it may have been erased
        live = self._live.get(id)
        if live is not None:
            return live
        live = LiveEpisode(self, id, begun.scope, begun.task, begun.person, number=begun.number)
        live._go_on()
        return self._live.setdefault(id, live)

    def reward(self, target: str, value: float, *, by: str | None = None, source: str = "user") -> OperationOutcome:
        """Reward an episode, or one decision, at once or days later. Every item that was shown gets the value, together with
        the probability that it had of being shown, and the policy learns from it. A policy that stores cases does not learn again
        from a decision with its own reward when the episode is rewarded.

        by: who judged; if not given, the person of the episode; "" for the program (a test, a verifier). source: the channel that
        the reward came through. The same reward again by the same person changes nothing, and the outcome says so; another one
        counts instead of it. With a policy that stores cases an episode's reward is final: another one raises ClosedEpisode.
        Raises UnknownEpisode, InvalidReward."""
        value = checked_reward(value, self.learning.reward_range if self.learning is not None else None)
        checked_source(source, "source")
        self._decisions.flush()
        about = episode_log.rewarded(self.store, self.scopes.changeable, target)
        person = about.person if by is None else identity(by, "by") if by != "" else ""
        if self.learning is not None and about.scope == self.learning.scope and self.learning.keeps:
            return self.learning.finish(about, value, person, source)
        items = tuple((id, one.propensity) for one in about.shown for id in one.chosen)
        credit = Credit(value, items, on_word_of(person) if person else source, about.decision)
        if self.learning is not None and self.learning.has(about, value, person, credit.source):
            return OperationOutcome(False, reason="it has this reward already")
        outcome = self.store.perform(about.scope, [(credit, Draft(scope=about.scope))], episode=about.episode)[0]
        if self.learning is not None:
            self.learning.count_reward(about.decision, value, person)
        return outcome

    def pending(self) -> list[str]:
        """Episodes in which something was done and that have no reward yet, oldest first."""
        return self._pending()

    def _pending(self, nobody: bool = False) -> list[str]:
        self._decisions.flush()
        with self.store.database.reading() as connection:
            return episode_log.acted(connection, self.scope, nobody)

    def episodes(
        self,
        *,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        limit: int = 100,
        after: str = "",
        nobody: bool = False,
    ) -> list[str]:
        """Ids of episodes in the order in which they were begun, `limit` at a time: pass the last one as `after` for the next.
        nobody: only those without a person. Raises UnknownEpisode."""
        scope = self.scopes.narrowed(user_id, agent_id, session_id)
        checked_number(limit, "limit", 1)
        start = self._begun(after).number if after else -1
        with self.store.database.reading() as connection:
            return episode_log.episodes_in(connection, scope, start, limit, nobody)

    def episode_record(self, id: str) -> Episode:
        """What the journal knows of an episode, as the record that training and viewing share. Raises UnknownEpisode."""
        self._decisions.flush()
        return episode_log.assembled(self.store, self.scopes.changeable, id, self.scopes.seen())

    # Undo.

    def snapshot(self) -> str:
        """A name for the present state, for `rollback(since=)`, `diff` and `bank`."""
        return f"s{self.store.head()}"

    def rollback(
        self, target: str = "", *, source: str = "", since: str = "", rewarder: str = "", entry: int = 0
    ) -> undo.Rollback:
        """Undo everything an episode did (`target` its id), everything from a source, everything since a snapshot, everything
        that follows from the rewards of one person, with all that was learned from it, or one change (`entry`, the `seq` that
        `history` gives it).

        The memory is then as if it had never happened; the result lists later entries that no longer apply.
        `rollback(result.id)` undoes the rollback. Raises UnknownEpisode, InvalidFilter, UnknownSnapshot, Purged.
        """
        given = [bool(target), bool(source), bool(since), bool(rewarder), bool(entry)]
        if sum(given) != 1:
            raise InvalidFilter(
                "rollback undoes one thing: give one of target=<episode or rollback>, source=..., since=<snapshot>, "
                "rewarder=..., entry=<seq>"
            )
        checked_number(entry, "entry", 0)
        self._decisions.flush()
        if rewarder := one_spelling(rewarder):
            with self.store.database.reading() as connection:
                names = log.rewarders(connection, self.scope)
            if rewarder not in names:
                raise InvalidPolicy(
                    f"{rewarder!r:.60} rewarded nothing in this memory.",
                    f"Known: {', '.join(names)}." if names else "No reward here has a name with it.",
                )
            source = on_word_of(rewarder)
        elif source and isinstance(source, str):
            with self.store.database.reading() as connection:
                log.check_source(connection, self.scope, source)
        return undo.rollback(self.store, self.scope, target=target, source=source, since=since, entry=entry)

    def diff(self, one: str, other: str = "") -> list[Difference]:
        """Items that differ between two snapshots (by default: between `one` and now)."""
        return self.store.diff(self.scope, one, other or self.snapshot())

    # Agents.

    def bank(
        self, scope: Scope | None = None, *, user_id: str = "", agent_id: str = "", session_id: str = "", at: str = ""
    ) -> Bank:
        """A bank over a snapshot (by default: now). What is written to it stays in it until `commit`."""
        narrowed = scope if scope is not None else self.scopes.narrowed(user_id, agent_id, session_id)
        if not self.scopes.changeable.contains(narrowed):
            raise InvalidScope(f"{narrowed} is not inside {self.scope}")
        base = self.store.base(narrowed, at or self.snapshot())
        return Bank.on(base, self.store.embedder, scope=narrowed, clock=self._clock)

    def commit(self, bank: Bank, *, episode: str = "") -> list[OperationOutcome]:
        """Do on the memory, in one transaction, what was done on a bank of it. Operations are carried out again: where the
        memory moved on meanwhile, one may no longer apply, and its outcome says so. Raises InvalidScope."""
        if not self.scopes.changeable.contains(bank.scope):
            raise InvalidScope(f"the bank's {bank.scope} is not inside {self.scope}: nothing was written")
        self._check_episode(episode)
        return bank.commit_to(self.store, episode)

    # What the verbs share.

    def _check_episode(self, id: str) -> None:
        """Raise UnknownEpisode for what is neither "" nor the id of an episode of this scope."""
        if id != "":
            self._begun(id)

    def _begun(self, id: str) -> episode_log.Begun:
        """The episode of this id in this scope. Raises UnknownEpisode."""
        begun = episode_log.begun_as(self.store, self.scopes.changeable, id)
        if begun is None:
            raise UnknownEpisode(
                f"no episode {id!r:.80} in this memory: take the `.id` of one that `memory.episode()` began; nothing was done"
            )
        return begun

    def _asked_in(self, id: str, ask: Ask) -> Ask:
        """As the episode of this id asks for it: for its task and its person. Raises UnknownEpisode."""
        from keepworth.memory.episode import LiveEpisode

        live = self._live.get(id) if isinstance(id, str) else None
        if live is None:
            begun = self._begun(id)
            live = LiveEpisode(self, id, begun.scope, begun.task, begun.person, number=begun.number)
        return live._asking(ask.goal, ask.actions, ask.step)


def _logged(at: str, scope: Scope, episode: str, decision: Decision, chosen: Chosen) -> Logged:
    return Logged(at, scope, episode, decision, chosen.details(), chosen.vector() if chosen.vector else None)


def _row_of(after: str) -> int:
    """Where the page ends whose last id this is; 0 for none. Raises UnknownItem."""
    row = number_of(after) if after else 0
    if row is None:
        raise UnknownItem(f"after={after!r:.40} is no item's id: pass the last id of the page before")
    return row
