"""`Memory`, the class that users open: a memory in one file, which learns from rewards and can undo every change.

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
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakValueDictionary

from keepworth.memory import by_name
from keepworth.memory.automatic import asks
from keepworth.memory.changing import Changes
from keepworth.memory.choose.learning import CandidateSources, Learning, SearchAnswer
from keepworth.memory.choose.promotion import LOSS, Promotion
from keepworth.memory.choose.replacement import Evidence, Replacement, plain_search
from keepworth.memory.choose.review import Review, Settlement, review_items
from keepworth.memory.choose.rewards import check_range
from keepworth.memory.choose.wordings import texts_of
from keepworth.memory.episode import LiveEpisode, UnwrittenEpisode, write_episode
from keepworth.memory.errors import (
    DamagedWords,
    InvalidFilter,
    InvalidPolicy,
    InvalidScope,
    MemoryProblem,
    NotPicklable,
    UnknownEpisode,
    UnknownItem,
    check_keywords,
    files_left,
)
from keepworth.memory.event_loop import warn_in_event_loop
from keepworth.memory.item import (
    ALL,
    EVERYWHERE,
    Item,
    ItemKind,
    Scope,
    Status,
    checked_name,
    checked_source,
    new_id,
    now,
    one_spelling,
    reward_source,
    timestamp,
    worded,
    worded_actions,
)
from keepworth.memory.model_signals import load_model_signals
from keepworth.memory.operations import Act, Credit, Draft, OperationOutcome, checked_reward
from keepworth.memory.outcomes import OutcomeSource, list_sources
from keepworth.memory.overlay import Bank, Overlay
from keepworth.memory.place import on_server
from keepworth.memory.scopes import Scopes
from keepworth.memory.search.how_many import SetSize
from keepworth.memory.search.index import Embedder
from keepworth.memory.search.search import (
    CURRENT,
    Ask,
    Chosen,
    Hit,
    Hits,
    Ranked,
    Request,
    ScopedOptions,
    Search,
    Worth,
    asked,
    checked_kinds,
    checked_number,
    checked_query,
    checked_switch,
    requested,
    several,
)
from keepworth.memory.search.where import Where, parsed
from keepworth.memory.settings import MemorySettings, check_settings
from keepworth.memory.signals import find_signal, load_signals, read_weight
from keepworth.memory.store import episode_log, log, notes, purge, traces, undo
from keepworth.memory.store.decision_log import TEXTS, DecisionLog, Logged
from keepworth.memory.store.rows import number_of
from keepworth.memory.store.store import Difference, Revision, Store
from keepworth.memory.store.views import ScopeView
from keepworth.memory.telemetry import trace_operations
from keepworth.records.episode import Decision, DecisionKind, Episode
from keepworth.records.model import Encoder

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors
    from keepworth.memory.choose.ledger import Balance
    from keepworth.memory.choose.pool import Advice
    from keepworth.memory.choose.slots import Writer
    from keepworth.memory.settings import PolicyLike
    from keepworth.memory.store.transaction import Transaction

    Proven = Callable[[Vectors | None], Sequence[str]]

_LOG = logging.getLogger("keepworth.memory")
NEARBY = 5
"""Number of hits beyond `top_k` that a policy may show in place of better ranked ones."""


@trace_operations
@check_keywords
class Memory(Changes):
    """A memory in one file. It is thread-safe, and several processes may open the same file at once.

    Args:
        path: A file (made if missing), the address of a Postgres database, or ":memory:".
        encoder: An encoder or the name of one; None to search by words only.
        tenant, user_id, agent_id, session_id: The scope of this handle. Calls can narrow it, never widen or change it.
        writer: Decides what to store of messages, for `add(..., infer=True)`: a writer such as `Facts(extract)`, or a name.
            The default keeps what people state as notes ("statements"), and beside them facts by a chat model if
            OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL are all set. "model" keeps those facts alone, "rules" facts by
            rules. None: no writer.
        policy: Chooses among the hits and learns from rewards: a name, such as "default" or "memrl", a policy, or a function
            that makes one; None neither chooses nor learns. It learns from all rewards in the file, whichever policy chose.
        seed: Seed of the policy's random choices; None draws a new one each time.
        settings: See `MemorySettings`.
    """

    @files_left()
    def __init__(
        self,
        path: str | os.PathLike[str] = ":memory:",
        *,
        encoder: Encoder | str | None = "default",
        tenant: str = ALL,
        user_id: str = ALL,
        agent_id: str = ALL,
        session_id: str = ALL,
        read_only: bool = False,
        writer: Writer | str | None = "default",
        policy: PolicyLike = "default",
        seed: int | None = None,
        **settings: Unpack[MemorySettings],
    ) -> None:
        given_writer = writer is not None and not isinstance(writer, str)
        check_settings(Memory.__init__, settings, encoder=encoder, seed=seed, writer=writer if given_writer else now)
        clock, reward_range = settings.get("clock", now), settings.get("reward_range")
        named = None if policy is None else by_name.policy_maker(policy)
        if named is None and (reward_range is not None or seed is not None):
            raise InvalidFilter("reward_range and seed are for a policy, and policy=None has none: leave them out")
        if named is None and "replaces" in settings:
            raise InvalidFilter(
                "policy=None tries nothing, so that replaces has no effect: name the policy to try, or leave replaces out"
            )
        replaced = None
        if "replaces" in settings:
            replaced = by_name.policy_maker(
                plain_search if settings["replaces"] is None else settings["replaces"], "replaces"
            )
            if named is not None and named[1] == replaced[1]:
                raise InvalidFilter(
                    f"policy and replaces are both named {named[1]!r}, so that nothing is tried: name another policy, or leave "
                    "replaces out"
                )
        self.scopes = Scopes(EVERYWHERE.narrowed(tenant=tenant, user=user_id, agent=agent_id, session=session_id))
        self.signals = frozenset(settings.get("signals", load_signals()))
        self.model_signals = load_model_signals(settings.get("model_signals", 0))
        self.writer: Writer | None = by_name.writer(writer) if isinstance(writer, str) else writer
        self._clock, self._logs = clock, settings.get("log") != "off"
        self._stages = by_name.stages(settings.get("stages", ()))
        self._at_once = settings.get("log") == "at once"
        if named is not None:
            # Settings that cannot take effect are refused before a file is made.
            named[0]()
            if replaced is not None:
                replaced[0]()
            if reward_range is not None:
                check_range(reward_range)
        # An existing file says which encoder made its vectors. For a new one, a wrong name is refused before the file is made.
        fresh = isinstance(path, (str, os.PathLike)) and not os.path.exists(path) and not on_server(path)
        if isinstance(encoder, str) and (fresh or encoder != "default"):
            encoder = by_name.encoder(encoder)
        durability = settings.get("durability", "process")
        self.store = Store(path, durability=durability, read_only=read_only, clock=clock)
        self.store.scan, self.store.exact = settings.get("scan"), settings.get("exact", False)
        self.learning: Learning | Replacement | None = None
        try:
            if isinstance(encoder, str):  # opens the encoder that made the vectors on file, else the default one
                encoder = by_name.encoder("default", self.store.encoder_identity())
            if encoder is not None:
                self.store.use(Embedder(encoder))
            if named is not None:
                bounds = notes.reward_range(self.store, reward_range)
                learns = partial(Learning, self.store, self.scope, reward_range=bounds, seed=seed)
                self.learning = learning = learns(*named, by_name.policy)
                if replaced is not None:
                    loss, sum_up = settings.get("allowed_loss", LOSS), partial(log.sum_up, bounds=bounds)
                    trial = notes.begin_trial(self.store, named[1], replaced[1], loss, sum_up)
                    self.learning = Replacement(learning, learns(*replaced, by_name.policy), trial, seed)
        except BaseException:
            self.store.close()
            raise
        if self.read_only and self._logs:
            _LOG.warning("%s is read-only: searches work but are not logged, so no reward can reach them", self.path)
        self._decisions = DecisionLog(self.store)
        self._shared = False
        self._live: WeakValueDictionary[str, LiveEpisode] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"Memory({self.path!r})"

    def __copy__(self) -> Memory:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __reduce__(self) -> Any:
        elsewhere = (
            "Serve it, and give the other process a Client"
            if self.path == ":memory:"
            else (
                f"Give the other process the path {self.path!r}, and let it open a Memory there: several may, at once"
            )
        )
        raise NotPicklable(
            "An open memory cannot be pickled: its locks and its connection are of this process.", f"{elsewhere}."
        )

    @property
    def scope(self) -> Scope:
        """The scope of this handle, without what others share with it."""
        return self.scopes.own

    @property
    def path(self) -> str:
        return self.store.database.path

    @property
    def _span_attributes(self) -> dict[str, str]:
        """What the spans of this memory say of it: the name of its file, or the end of its address."""
        return {"gen_ai.memory.store.id": os.path.basename(self.path)}

    @property
    def read_only(self) -> bool:
        return self.store.database.read_only

    def close(self) -> None:
        """Write the waiting entries of the log and close the file. On a handle from `within` it does nothing."""
        if self._shared or self.store.database.forked:
            return
        if self.model_signals is not None:
            self.model_signals.leave(self.store)
        if not self.read_only:
            self._decisions.flush()
        self.store.close()

    def within(
        self,
        *,
        user_id: str = ALL,
        agent_id: str = ALL,
        session_id: str = ALL,
        shared: Mapping[str, bool] | None = None,
    ) -> Memory:
        """Return a handle on the same open memory with a narrower scope. No method sees anything outside it, even by id.

        The policy learns for the handle from the rewards given inside its scope, and inside what is shared with it. Closing
        this memory also closes the handle.

        Args:
            user_id, agent_id, session_id: The bounds of the handle; those of this memory cannot be changed.
            shared: Names of other users whose items the handle sees too, with True for those that it may also change. The
                handle must be bound to a user, and writes for that user unless a call names another by `user_id`.

        Raises:
            InvalidScope: The scope would widen, or `shared` is given without a user.
        """
        narrower = copy(self)
        narrower.scopes = self.scopes.inside(user_id, agent_id, session_id, shared)
        if self.learning is not None:
            narrower.learning = self.learning.within(narrower.scopes.seen())
        narrower._live = WeakValueDictionary()
        narrower._shared = True
        return narrower

    def _unlogged(self) -> Memory:
        """Return a handle on the same open memory that logs no search outside episodes, so that no reward can reach it. Closing
        this memory also closes the handle."""
        silent = copy(self)
        silent._logs, silent._shared = False, True
        return silent

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
        user_id: str = ALL,
        agent_id: str = ALL,
        session_id: str = ALL,
        kinds: Sequence[ItemKind | str] | None = None,
        limit: int = 100,
        after: str = "",
        all_states: bool = False,
        nobody: bool = False,
        where: Where = None,
        newest: bool = False,
    ) -> list[Item]:
        """Return items in the order in which they were written, at most `limit`.

        Args:
            user_id, agent_id, session_id: Whose items, inside the bounds of this handle.
            kinds: The kinds of items; None for all.
            limit: The most items.
            after: The id of the last item of the page before; "" for the first page.
            all_states: Include items that are superseded, deleted, expired or not active.
            nobody: Return only items that were written without a user.
            where: A filter on metadata, as in a search.
            newest: Return the newest first.
        """
        scope = self.scopes.seen(user_id, agent_id, session_id)
        wanted = parsed(where)
        chosen = frozenset(ItemKind) if kinds is None else checked_kinds(kinds)
        checked_number(limit, "limit", 1)
        start, time = _row_of(after), self._present()
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
                if item.kind in chosen
                and (all_states or item.visible(time))
                and not (nobody and item.scope.user)
                and (wanted is None or wanted(item))
            )
        return out[:limit]

    def get(self, id: str) -> Item:
        """Return an item in its latest state, even if it is superseded or deleted. Raises UnknownItem."""
        seen = self.scopes.seen()
        item = self.store.fetch(seen, [id])[id] if isinstance(id, str) else None
        if item is None:
            if isinstance(id, str) and purge.is_tombstone(self.store, seen, id):
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
        top_k: int | str = 10,
        actions: Sequence[str] = (),
        episode: str = "",
        step: int = 0,
        explore: bool = True,
        **options: Unpack[ScopedOptions],
    ) -> Hits:
        """Return at most `top_k` items, best first; pass `.decision` of the result to `reward`, and put `.text` into a prompt.

        Args:
            query: What is looked for.
            top_k: A number, or "auto": the memory shows the items that it believes to answer the query, up to five and within
                `tokens`, and none if it believes that nothing does. `.none` says how probable that is.
            actions: What the agent can do here, if that is known.
            episode, step: The episode that the search is part of, and the number of its step.
            explore: False makes the policy show what rewards say is best, and try nothing else.
            options: `mode`, which is "lexical", "dense" or "hybrid" (the default if there is an encoder), `tokens`, the budget of
                `.text`, and filters, ages and rerankers: see `search.ScopedOptions` and `search.Request`. With `as_of`, no policy
                chooses.
        """
        ask = Ask(
            checked_query(query),
            "",
            worded_actions(actions) if actions != () else (),
            checked_number(step, "step", 0),
            explore=checked_switch(explore, "explore"),
        )
        ask = self._asked_in(episode, ask) if episode else ask
        return self.answer(ask, episode=episode, top_k=top_k, **options)

    def answer(self, ask: Ask, episode: str = "", *, top_k: int | str = 10, **options: Unpack[ScopedOptions]) -> Hits:
        """Carry out a search: check its options, find hits, let the policy choose among them, log the choice and return it.

        Args:
            ask: What is asked: the task, the query and the actions.
            episode: The id of the episode that the search is part of.
            top_k: The most items, or "auto".
            **options: Those of `search`.
        """
        warn_in_event_loop()
        live = self._live.get(episode) if episode and isinstance(episode, str) else None
        unwritten = None if live is None else live._unwritten
        if episode and unwritten is None:
            self._check_episode(episode)
        given: dict[str, Any] = dict(options)
        seen = self.scopes.seen(*(given.pop(name, ALL) for name in ("user_id", "agent_id", "session_id")))
        present = several(given.pop("present", ()), "present", "m1")
        learning = None if given.get("as_of") or ask.plain else self.learning
        usual = "lexical" if self.store.embedder is None else "hybrid"
        request = requested(top_k, usual, given, 0 if learning is None else NEARBY)
        if request.auto:
            request = replace(request, idle=not asks(ask.text))
        if self._stages:
            request = replace(request, stages=self._stages)
        if self.store.scan is not None:  # the log of queries holds no secrets either
            ask = ask.without_secrets(self.store.scan.redacted)
        mode = given.get("mode")
        scope = self.scopes.asking(options.get("agent_id", ALL), options.get("session_id", ALL), seen=seen)
        if live is not None and scope.contains(live.scope):
            scope = live.scope
        core = () if request.as_of else self._core_in(seen, request)
        if learning is not None:
            always = frozenset((*present, *(item.id for item in core)))
            logged = (bool(episode) or self._logs) and not self.store.database.read_only
            chooser = learning if logged else learning.in_force  # what no reward can reach is no trial
            chosen = chooser.choose(
                ask, request.k, lambda of: self._sources(of, ask, seen, request, mode, always), scope.user
            )
            learning.save()
        else:
            hits, _, _, size = self._find(ask, seen, request)
            listed = tuple((hit.item.id, hit.score) for hit in hits)
            shown = Hits(hits if request.auto else hits[: request.k], policy=f"static:{request.mode}")
            shown.none = None if size is None else size.none
            texts = texts_of(hit.item for hit in hits)
            chosen = Chosen(shown, listed, partial(asked, ask, top_k, {TEXTS: texts} if texts else None))
        shown = chosen.hits
        shown.query, shown.tokens = ask.text, request.tokens
        shown.core = core
        if (episode or self._logs) and not self.store.database.read_only:
            shown.decision, at, packed, trace = new_id("d"), self._clock(), chosen.vector, traces.current()
            decision = Decision(
                id=shown.decision,
                kind=DecisionKind.SEARCH,
                query=ask.text[:10_000],
                candidates=chosen.candidates,
                chosen=tuple(hit.item.id for hit in shown),
                propensity=shown.propensity,
                policy=shown.policy,
                step=ask.step,
            )

            def entry() -> Logged:
                return Logged(at, scope, episode, decision, chosen.details(), packed() if packed else None, trace)

            if unwritten is not None:
                unwritten.searches.append(entry())
            elif episode or self._at_once:
                self._decisions.write([entry()])
            else:
                self._decisions.later(entry)
        if live is not None and shown.decision and shown.decision not in live._waiting:
            live._waiting.append(shown.decision)
        return shown

    def _core_in(self, seen: Scope, request: Request) -> tuple[Item, ...]:
        """Return the items that a search shows always and may show, in the order in which they were written."""
        if not (ids := self.store.core_ids()):
            return ()
        time = self._present()
        items = self.store.fetch(seen, sorted(ids, key=lambda id: int(id[1:])))
        return tuple(item for item in items.values() if item is not None and item.always and request.admits(item, time))

    def _find(
        self, ask: Ask, seen: Scope, request: Request, candidates: Ranked | None = None, proven: Proven | None = None
    ) -> tuple[list[Hit], Vectors | None, int, SetSize | None]:
        """Search as `_find_once` does. A damaged full-text index is made anew."""
        try:
            return self._find_once(ask, seen, request, candidates, proven)
        except DamagedWords as damage:
            self.store.database.make_words_anew(damage)
            return self._find_once(ask, seen, request, candidates, proven)

    def _find_once(
        self, ask: Ask, seen: Scope, request: Request, candidates: Ranked | None, proven: Proven | None
    ) -> tuple[list[Hit], Vectors | None, int, SetSize | None]:
        """Search this memory, or, where a policy has retrieved `candidates`, only apply the request's later stages to them.
        `proven` names the items that rewards speak for at a question, which are found in any case.

        Returns:
            The hits, best first; the vector of the query, if one was needed; the journal entry up to which was searched; and
            how many of the hits are worth showing, if the memory was asked to decide that.
        """
        embedder, searched = self.store.embedder, None
        with self.store.database.reading() as connection:
            time = self._present()
            if request.admits_not_current:
                searched = Overlay(self.store.base(seen), embedder).with_others(request, time)
            view = ScopeView(self.store, seen, request.nobody)
            search = Search(view, embedder, request, time, searched, proven)
            if candidates is not None:
                return search.staged(ask.text, candidates), None, 0, None
            hits = search.hits([ask.text])[0]
            size = search.sizes[0] if request.auto else None
            return hits, search.vectors[0], self.store.derived.corpus(connection).seq, size

    def _sources(
        self,
        learning: Learning,
        ask: Ask,
        seen: Scope,
        request: Request,
        mode: str | None,
        always: frozenset[str],
    ) -> CandidateSources:
        """Return where the policy gets candidates from: a search, or its retriever, unless a way of searching is asked for, or
        how many hits there are is decided by what a search says."""
        searched = mode is not None or request.statuses != CURRENT or request.auto
        deeper, time = replace(request, beyond=2 * request.k) if learning.retrieves else request, self._present()

        def search() -> SearchAnswer:
            with learning.before_reading():
                return SearchAnswer(
                    *self._find(ask, seen, deeper, proven=partial(learning.proven, ask)), by_words=mode == "lexical"
                )

        return CandidateSources(
            search,
            searched,
            lambda candidates: self._find(ask, seen, deeper, candidates)[0],
            deeper.staged,
            # The policy has learned from the items of all users, and may show those that this search sees.
            lambda item: seen.contains(item.scope) and deeper.admits(item, time),
            seen != self.scope or deeper.declared is not None or not deeper.usual,
            always,
        )

    def _unsaid(self, text: str) -> str:
        """Return `text` with everything removed that the scan looks for, such as secrets."""
        return text if self.store.scan is None or not text else self.store.scan.redacted(text)

    def quarantined(self, *, limit: int = 100, after: str = "") -> list[Item]:
        """Return items in quarantine in the order in which they were written. No search shows them until `release`."""
        checked_number(limit, "limit", 1)
        return list(self.store.items(self.scope, after=_row_of(after), limit=limit, status=Status.QUARANTINED))

    def history(self, id: str) -> list[Revision]:
        """Return everything that happened to an item, oldest first. Raises UnknownItem."""
        revisions = self.store.history(self.scopes.seen(), id)
        if not revisions:
            self.get(id)
        return revisions

    # Outcome.

    def episode(
        self,
        task: str = "",
        *,
        user_id: str = ALL,
        agent_id: str = ALL,
        session_id: str = ALL,
        by: str = "",
        explore: bool = True,
    ) -> LiveEpisode:
        """Begin an episode: one attempt at a task, whose searches, actions and writes are rewarded and undone together.

        After a `with` block without a reward it stays open: reward it later by its id. Raises InvalidText, InvalidScope.

        Args:
            task: What is attempted; it is part of every search of the episode.
            user_id, agent_id, session_id: Whose attempt it is, inside the bounds of this handle.
            by: The person whom it serves, taken from a login and never from the text; "" for the program itself.
            explore: False makes the policy try and withhold nothing, as when a memory is measured.
        """
        bounds = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id}
        live = self._unwritten_episode(task, by=by, explore=explore, **bounds)
        write_episode(live)
        return live

    def _unwritten_episode(
        self,
        task: str,
        *,
        user_id: str = ALL,
        agent_id: str = ALL,
        session_id: str = ALL,
        by: str = "",
        explore: bool = True,
    ) -> LiveEpisode:
        scope = self.scopes.narrowed(user_id, agent_id, session_id)
        about = self._unsaid(worded(task, "task"))
        person = checked_name(by, "by") if by != "" else ""
        id, exploring = new_id("e"), checked_switch(explore, "explore")
        unwritten = UnwrittenEpisode(self._clock())
        self._live[id] = live = LiveEpisode(self, id, scope, about, person, explore=exploring, unwritten=unwritten)
        if self.learning is not None and self.learning.by_number:
            write_episode(live)
        return live

    def reopen(self, id: str) -> LiveEpisode:
        """Continue an episode, for instance in another process. Searches that no `act` followed still wait for one. Raises
        UnknownEpisode."""
        begun = self._begun(id)  # looked up even if it is in `_live`: it may have been erased
        live = self._live.get(id)
        if live is not None and not self._at_once:
            return live
        if live is None:
            live = LiveEpisode(self, id, begun.scope, begun.task, begun.person, number=begun.number)
        live._go_on()
        return self._live.setdefault(id, live)

    def reward(self, target: str, value: float, *, by: str | None = None, source: str = "user") -> OperationOutcome:
        """Reward an episode, or one decision, at once or days later. Every item that was shown is credited with the value and
        with its probability of being shown, and the policy learns from it.

        The same reward again by the same person changes nothing, and the outcome says so; a different one replaces the first.
        With a policy that stores cases an episode's reward is final, and a decision that was rewarded alone is not learned from
        again when its episode is rewarded.

        Args:
            target: The id of an episode, or the `decision` of a search.
            value: The reward; its range is the caller's, the higher the better.
            by: Who judged; None for the person of the episode, "" for the program itself (a test, a verifier).
            source: The channel that the reward came through.

        Raises:
            UnknownEpisode: There is no such episode or decision.
            InvalidReward: `value` is not a number in the range of rewards.
            ClosedEpisode: The episode has its final reward.
        """
        value = checked_reward(value, self.learning.reward_range if self.learning is not None else None)
        checked_source(source, "source")
        self._decisions.flush()
        about = episode_log.rewarded(self.store, self.scopes.changeable, target)
        person = about.person if by is None else checked_name(by, "by") if by != "" else ""
        if self.learning is not None and self.learning.keeps and self.learning.scope.contains(about.scope):
            return self.learning.finish(about, value, person, source)
        credit = Credit(value, about.shown, reward_source(person, source), about.decision)
        # What is learned may lie behind the journal: what came after that is looked at where this reward is written.
        head = self.store.head() if self.learning is None else min(self.store.head(), max(0, self.learning.through))
        if self.learning is not None and self.learning.has(about, value, person, credit.source):
            return OperationOutcome(False, reason="it has this reward already")

        def acts(transaction: Transaction) -> list[tuple[Act, Draft]]:
            # What others gave since is on no other connection yet where their write is part of the same transaction.
            given = self.learning is not None and log.is_newest_reward(transaction, head, credit, about.episode)
            return [] if given else [(credit, Draft(scope=about.scope))]

        done = self.store.perform(about.scope, acts, episode=about.episode)
        if not done:
            return OperationOutcome(False, reason="it has this reward already")
        outcome, _ = done[0]
        if self.learning is not None:
            try:
                self.learning.count_reward(about.decision, value, person)
                self._take_silence(about, value, person, source)
            except MemoryProblem as problem:  # the reward is on file, and whoever is refused gives it again
                _LOG.warning("a reward was written to %s, and what follows from it was not: %s", self.path, problem)
        return outcome

    def _take_silence(self, about: episode_log.Rewarded, value: float, person: str, source: str) -> None:
        """After a complaint, take it for a weak praise that nothing was said about the searches before, if whoever complains only
        ever complains: from complaints alone nothing could be learned."""
        assert self.learning is not None
        (low, high), signal = self.learning.reward_range, find_signal("unchallenged")
        if value > low or read_weight(source) < 1.0 or signal.name not in self.signals:
            return
        for search in self.learning.unchallenged_before(about, person, reward_source(person, source)):
            with suppress(UnknownEpisode):  # it was erased meanwhile
                self.reward(search, low + signal.value * (high - low), by=person, source=signal.source)

    def pending(self, *, nobody: bool = False) -> list[str]:
        """Return the ids of episodes in which something was done and that have no reward yet, oldest first; with `nobody`, only
        those without a person."""
        self._decisions.flush()
        with self.store.database.reading() as connection:
            return episode_log.acted(connection, self.scope, nobody)

    def episodes(
        self,
        *,
        user_id: str = ALL,
        agent_id: str = ALL,
        session_id: str = ALL,
        limit: int = 100,
        after: str = "",
        nobody: bool = False,
    ) -> list[str]:
        """Return ids of episodes in the order in which they were begun, at most `limit`. Raises UnknownEpisode.

        Args:
            user_id, agent_id, session_id: Whose episodes, inside the bounds of this handle.
            limit: The most ids.
            after: The last id of the page before; "" for the first page.
            nobody: Return only episodes without a person.
        """
        scope = self.scopes.narrowed(user_id, agent_id, session_id)
        checked_number(limit, "limit", 1)
        start = self._begun(after).number if after else -1
        with self.store.database.reading() as connection:
            return episode_log.episodes_in(connection, scope, start, limit, nobody)

    def episode_record(self, id: str) -> Episode:
        """Return an episode from the journal, as the record that training and the viewer use. Raises UnknownEpisode."""
        self._decisions.flush()
        return episode_log.assembled(self.store, self.scopes.changeable, id, self.scopes.seen())

    # What the policy has learned.

    @property
    def policy(self) -> str | None:
        """The name of the policy that is in force; None if there is none."""
        return None if self.learning is None else self.learning.policy

    def promotion(self) -> list[Promotion]:
        """Say how far each policy that was tried in place of another has replaced it, with the evidence: the share of searches in
        which it chooses, and `.why`. The trial that began last comes first.

        What counts are the rewards inside the scope of this handle. Any handle on the file can ask, also one without a policy.
        """
        self._decisions.flush()
        bounds = notes.reward_range(self.store, None) if self.learning is None else self.learning.reward_range
        with self.store.database.reading() as connection:
            listed = notes.trials(connection)
        return [Evidence(self.store, self.scopes.seen(), trial, bounds).promotion() for trial in listed]

    def worth(self, id: str, query: str) -> Worth:
        """Estimate from rewards how much showing an item adds for `query`, and over all queries (`.overall`, with its
        `.interval`). Raises UnknownItem, InvalidPolicy."""
        self._decisions.flush()
        return self._learns("worth").worth(self.get(id), checked_query(query), self.scopes.seen())

    def ledger(self, *, items: Sequence[str] | None = None, source: str = "", everything: bool = False) -> Balance:
        """Estimate how much showing each item added, from episodes in which chance decided whether it was shown, and what those
        random choices cost. Raises UnknownItem, InvalidFilter, InvalidPolicy.

        Args:
            items: Ids of items; by default all current ones that were shown with a reward.
            source: Only items from this source.
            everything: Include items that were never shown with a reward, or that are no longer current.
        """
        learning = self._learns("ledger")
        self._decisions.flush()
        if items is not None:
            items = [self.get(id).id for id in several(items, "items", "m1")]
        if source:
            checked_source(source, "source")
            listed = self.store.items(self.scope, current=not everything)
            there = [item.id for item in listed if item.provenance.source == source]
            if not there:
                with self.store.database.reading() as connection:
                    log.sources_named(connection, self.scope, source)
            items = there if items is None else [id for id in items if id in set(there)]
        return learning.ledger(self.scopes.seen(), items, everything=everything)

    def review(self, *, user_id: str = ALL, agent_id: str = ALL, session_id: str = ALL, nobody: bool = False) -> Review:
        """Say of each current item of a scope whether showing it earned something, cost something, or was never needed, with the
        evidence. Raises InvalidPolicy if there is no policy.

        Args:
            user_id: Whose items; all that this handle sees if not given, as of `agent_id` and `session_id`.
            agent_id: Which agent's.
            session_id: Which session's.
            nobody: Only items that belong to no person.
        """
        self._decisions.flush()
        scope = self.scopes.narrowed(user_id, agent_id, session_id)
        items = [item for item in self.store.items(scope, current=True) if not (nobody and item.scope.user)]
        return review_items(items, self._learns("review").ledger(self.scopes.seen(), [item.id for item in items]))

    def settle(
        self, *, retire: Sequence[str] = (), keep: Sequence[str] = (), pin: Sequence[str] = (), undo: Sequence[str] = ()
    ) -> list[Item]:
        """Do with notes what a review led to: all of it or, if an id is bad, nothing. Each change is in the journal under the
        source "review", and can be undone. Raises UnknownItem, InvalidFilter, InvalidPolicy.

        Args:
            retire: Ids of notes that are deleted.
            keep: Ids of notes that stay as they are; a review asks again where rewards come to say something else of them.
            pin: Ids of notes that are always shown from now on, and never left out to learn what they are worth.
            undo: Ids of notes whose last such change is taken back.

        Returns:
            The items as they are now, in this order.
        """
        return Settlement(self, retire, keep, pin, undo).carry_out()

    def outcomes(
        self, *, user_id: str = ALL, agent_id: str = ALL, session_id: str = ALL, nobody: bool = False
    ) -> list[OutcomeSource]:
        """List where rewards came from: what people said, evaluators, signals, and others, with how many there were of each, and
        which signals are switched on. `rollback(source=...)` takes a source back.

        Args:
            user_id: Whose; all that this handle sees if not given, as of `agent_id` and `session_id`.
            agent_id: Which agent's.
            session_id: Which session's.
            nobody: Only those that are about no person.
        """
        scope = self.scopes.narrowed(user_id, agent_id, session_id)
        with self.store.database.reading() as connection:
            sums = log.sums_by_channel(connection, scope, nobody)
            return list_sources(sums, notes.tallies(connection, scope, nobody), self.signals)

    def propose(self, advice: Advice) -> str:
        """Store advice from outside as an item, and return its id. `advice.source` says where it comes from, and may not claim to
        be the memory's own experience. Raises InvalidAdvice, InvalidPolicy."""
        return self._learns("propose").propose(advice, self.scopes.narrowed())

    def _learns(self, verb: str) -> Learning | Replacement:
        if self.learning is None:
            raise InvalidPolicy(
                f"{verb} is a verb of a policy, and this memory was opened with policy=None.", "Name one."
            )
        self.store.database.check_open()  # before taking a lock: in a forked process it may be held by a thread of the parent
        return self.learning

    # Undo.

    def snapshot(self) -> str:
        """Return a name for the present state, for `rollback(since=)`, `diff` and `bank`."""
        return f"s{self.store.head()}"

    def rollback(
        self, target: str = "", *, source: str = "", since: str = "", rewarder: str = "", entry: int = 0
    ) -> undo.Rollback:
        """Undo something, with all that was learned from it, as if it had never happened. Give exactly one argument.

        The result lists later entries that no longer apply. `rollback(result.id)` undoes the rollback. Raises UnknownEpisode,
        InvalidFilter, UnknownSnapshot, Purged.

        Args:
            target: The id of an episode or a rollback: undo everything that was done in it.
            source: Undo everything that came from this source.
            since: A snapshot: undo everything that happened after it.
            rewarder: A person: undo everything that follows from that person's rewards.
            entry: Undo one change, by the `seq` that `history` gives it.
        """
        given = [bool(target), bool(source), bool(since), bool(rewarder), bool(entry)]
        if sum(given) != 1:
            raise InvalidFilter(
                "rollback undoes one thing: give an episode or a rollback (target), a source, a snapshot (since), a person "
                "(rewarder) or the number of a change (entry)."
            )
        checked_number(entry, "entry", 0)
        self._decisions.flush()
        sources: Sequence[str] = ()
        if rewarder or (source and isinstance(source, str)):
            with self.store.database.reading() as connection:
                if rewarder:
                    sources = log.sources_of_rewarder(connection, self.scope, one_spelling(rewarder))
                else:
                    sources = log.sources_named(connection, self.scope, source)
        elif source:
            raise UnknownEpisode(f"no source {source!r:.80} in this memory: give its name as text")
        numbers = [entry] if entry else []
        return undo.rollback(self.store, self.scope, target=target, sources=sources, since=since, numbers=numbers)

    def diff(self, one: str, other: str = "") -> list[Difference]:
        """Return the items that differ between two snapshots (by default between `one` and now)."""
        return self.store.diff(self.scope, one, other or self.snapshot())

    # Agents.

    def bank(
        self,
        scope: Scope | None = None,
        *,
        user_id: str = ALL,
        agent_id: str = ALL,
        session_id: str = ALL,
        at: str = "",
    ) -> Bank:
        """Return a bank on a snapshot. What is written to the bank stays in it until `commit`.

        Args:
            scope: The scope of the bank, in place of the three ids.
            user_id, agent_id, session_id: Whose items, inside the bounds of this handle.
            at: The name of a snapshot; "" for now.
        """
        narrowed = scope if scope is not None else self.scopes.narrowed(user_id, agent_id, session_id)
        if not self.scopes.changeable.contains(narrowed):
            raise InvalidScope(f"{narrowed} is not inside {self.scope}")
        base = self.store.base(narrowed, at or self.snapshot())
        return Bank(Overlay(base, self.store.embedder), narrowed, self._clock)

    def commit(self, bank: Bank, *, episode: str = "") -> list[OperationOutcome]:
        """Carry out on the memory, in one transaction, the operations that were done on a bank of it. If the memory changed
        meanwhile, an operation may no longer apply, and its outcome says so. Raises InvalidScope, InvalidFilter."""
        if not isinstance(bank, Bank):
            raise InvalidFilter(f"commit takes a bank, got {bank!r:.40}: give one that `memory.bank()` made")
        if not self.scopes.changeable.contains(bank.scope):
            raise InvalidScope(f"the bank's {bank.scope} is not inside {self.scope}: nothing was written")
        self._check_episode(episode)
        return bank.commit_to(self.store, episode)

    # Helpers of the methods above.

    def _check_episode(self, id: str) -> None:
        """Raise UnknownEpisode unless `id` is "" or the id of an episode in this scope."""
        if id != "":
            self._begun(id)

    def _begun(self, id: str) -> episode_log.Begun:
        """Return how the episode with this id was begun: scope, task, person and number. Raises UnknownEpisode."""
        begun = episode_log.begun_as(self.store, self.scopes.changeable, id)
        if begun is None:
            raise UnknownEpisode(
                f"no episode {id!r:.80} in this memory: take the `.id` of one that `memory.episode()` began; nothing was done"
            )
        return begun

    def _present(self) -> str:
        """Return the time by which items end: that of the clock, or of the newest entry of the journal if that is later. So what
        has ended does not come back where a clock is set back, as it is when a machine starts without the time."""
        return max(timestamp(self._clock()), self.store.newest_time())

    def _asked_in(self, id: str, ask: Ask) -> Ask:
        """Return `ask` with the task, the person and the number of an episode. Raises UnknownEpisode."""
        live = self._live.get(id) if isinstance(id, str) else None
        if live is None:
            live = self.reopen(id)
        return live._asking(ask.goal, ask.actions, ask.step)


def _row_of(after: str) -> int:
    """Return the row number of the item with which the page before ended, 0 for "". Raises UnknownItem."""
    row = number_of(after) if after else 0
    if row is None:
        raise UnknownItem(f"after={after!r:.40} is no item's id: pass the last id of the page before")
    return row
