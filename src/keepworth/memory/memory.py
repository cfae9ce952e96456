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
import math
import os
import secrets
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice
from numbers import Integral
from types import NoneType
from typing import TYPE_CHECKING, Any, overload
from weakref import WeakValueDictionary

from keepworth.episodes.episode import Episode, Operation, OperationKind
from keepworth.episodes.model import Encoder, EncoderIdentity
from keepworth.memory import by_name, writing
from keepworth.memory.errors import (
    InvalidFilter,
    InvalidPolicy,
    InvalidScope,
    InvalidText,
    ScopeFull,
    SharedReadOnly,
    UnknownEpisode,
    UnknownItem,
    check_keywords,
)
from keepworth.memory.item import (
    Clock,
    Item,
    ItemKind,
    Provenance,
    Reach,
    Scope,
    Status,
    Timestamp,
    checked_interval,
    checked_label,
    checked_source,
    checked_text,
    folded,
    identity,
    later,
    member,
    now,
    on_word_of,
    one_spelling,
    plain_metadata,
    text_problem,
    timestamp,
    whose,
    worded,
    worded_actions,
)
from keepworth.memory.operations import Assignment, Credit, Draft, OperationOutcome, checked_reward
from keepworth.memory.overlay import Bank, Overlay
from keepworth.memory.place import on_server
from keepworth.memory.policy import consolidating
from keepworth.memory.policy.signals import from_use
from keepworth.memory.scan import HELD_FOR, Scan
from keepworth.memory.search.index import Embedder
from keepworth.memory.search.search import (
    CURRENT,
    OPTIONS,
    POOL,
    Ask,
    Chosen,
    Fusion,
    Hit,
    HitFilter,
    Hits,
    HitSelector,
    Request,
    Worth,
    checked_number,
    checked_query,
    chosen_without_policy,
    requested,
    retrieve,
    several,
)
from keepworth.memory.search.where import Where, parsed
from keepworth.memory.store import log, notes, purge, undo
from keepworth.memory.store.log import DecisionLog, Logged
from keepworth.memory.store.rows import number_of
from keepworth.memory.store.store import Difference, Revision, Store
from keepworth.memory.store.views import ScopeView
from keepworth.memory.writing import Message, UnreadTurns, messages_of, there

if TYPE_CHECKING:
    from keepworth.memory.episode import LiveEpisode
    from keepworth.memory.policy.learning import Learning
    from keepworth.memory.policy.ledger import Balance
    from keepworth.memory.policy.off_policy import Estimate
    from keepworth.memory.policy.pool import Advice
    from keepworth.memory.policy.slots import Policy, Writer
    from keepworth.memory.store.transaction import Transaction

    PolicyLike = str | Policy | Callable[[], Policy] | Mapping[str, Callable[[], Policy]] | None

_LOG = logging.getLogger("keepworth.memory")
RECALLED = 4096
SCOPES = 4096
NOBODY = ("", "", "")
new_id = partial(secrets.token_hex, 8)


@check_keywords
class Memory:
    """Thread-safe; several processes may open one file at once.

    path: a file (made if missing) or ":memory:".
    encoder: something that encodes, or the name of one; None for a memory that is searched by words only.
    tenant, user_id, agent_id, session_id: bounds of this handle. Calls can narrow them, never widen or change them.
    durability: "process" survives a killed process, "power" a lost machine (one disk sync per group of writes).
    index: "exact": a search by meaning compares all items.
    log: "background" logs every search outside episodes, "off" none; `log_share` of them are kept, chosen at random.
    keep_candidates: how many logged decisions keep their full candidate list (None: all).
    writer: says what to keep of messages, for `add(..., infer=True)`: such as `Facts(extract)`, or a manager that was trained.
    "rules" finds facts and what they replace by rules, "model" asks the chat model OPENAI_MODEL; by default that model
    where OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL are all set, else the rules. None: nothing does.
    max_items: current items a scope may hold; a write beyond it is refused. scan: what looks for secrets in all that is written,
    and what becomes of an item with one (`keepworth.memory.scan.Scan`); None for nothing.
    policy: what chooses among what is found, and learns from rewards: a name, such as "default" or "memrl"; a policy; a function
    that makes one; or several such functions by name, of which the first chooses. None chooses and learns nothing. A policy
    that was promoted in the file comes before it.
    reward_range: rewards outside are refused; (0, 1) where it is not given. trusted: rewarders whose word is as good as the
    program's own. seed: of the policy's draws; None draws anew each time.
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
        durability: str = "process",
        read_only: bool = False,
        fusion: Fusion | None = None,
        index: str = "exact",
        log: str = "background",
        log_share: float = 1.0,
        keep_candidates: int | None = None,
        writer: Writer | str | None = "default",
        max_items: int | None = None,
        scan: Scan | None = None,
        policy: PolicyLike = "default",
        reward_range: tuple[float, float] | None = None,
        trusted: Collection[str] = (),
        seed: int | None = None,
        clock: Clock = now,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        if log not in ("background", "off"):
            raise InvalidFilter(f"log={log!r} does not exist: use 'background' or 'off'")
        if not isinstance(log_share, (int, float)) or not 0.0 <= log_share <= 1.0:
            raise InvalidFilter(f"log_share must lie in [0, 1], got {log_share!r:.40}")
        if max_items is not None and (not isinstance(max_items, int) or max_items < 1):
            raise InvalidFilter(f"max_items must be a whole number of at least 1, got {max_items!r:.40}")
        if keep_candidates is not None and (not isinstance(keep_candidates, int) or keep_candidates < 0):
            raise InvalidFilter(f"keep_candidates must be a whole number of at least 0, got {keep_candidates!r:.40}")
        if seed is not None and (not isinstance(seed, Integral) or seed < 0):
            raise InvalidFilter(f"seed must be a whole number of at least 0, got {seed!r:.40}")
        for name, function in (
            ("clock", clock),
            ("new_id", new_id),
            *((("writer", writer),) if not isinstance(writer, (str, NoneType)) else ()),
        ):
            if not callable(function):
                raise InvalidFilter(f"{name} must be a function, got {function!r:.40}")
        if not isinstance(fusion, (Fusion, NoneType)):
            raise InvalidFilter(f"fusion must be a Fusion(...), got {fusion!r:.40}")
        if not isinstance(encoder, (str, NoneType)) and not (
            hasattr(encoder, "identity") and hasattr(encoder, "encode")
        ):
            raise InvalidFilter(
                f"encoder must be a name, something with `identity` and `encode`, or None, got {encoder!r:.40}"
            )
        identity = getattr(encoder, "identity", None)
        if identity is not None and not isinstance(identity, EncoderIdentity):
            raise InvalidFilter(
                f"the encoder's identity must be an EncoderIdentity(model, dimension, normalised), got {identity!r:.40}: make "
                "one with keepworth.episodes.model.EncoderIdentity"
            )
        named = None if policy is None else _named(policy)
        if named is None and (reward_range is not None or trusted or seed is not None):
            raise InvalidFilter(
                "reward_range, trusted and seed are for a policy, and policy=None has none: leave them out"
            )
        self.scope = Scope(tenant, user_id, agent_id, session_id)
        self.fusion = fusion or Fusion()
        self._writer = by_name.writer(writer) if isinstance(writer, str) else writer
        # What only repeats what was shown is for writers that read what was shown: the rules see the memory itself.
        self._notes_recalled = self._writer is not None and not isinstance(writer, str)
        self._clock = clock
        self._new_id = new_id
        self._log_share = log_share if log == "background" else 0.0
        if named is not None:
            from keepworth.memory.policy.learning import check_settings

            # What cannot take effect is refused before there is a file.
            check_settings(named[0](named[1]), reward_range, trusted)
        # A file that is there says which encoder made its vectors. Another's mistake is found before there is a file.
        fresh = isinstance(path, (str, os.PathLike)) and not os.path.exists(path) and not on_server(path)
        if isinstance(encoder, str) and (fresh or encoder != "default"):
            encoder = by_name.encoder(encoder)
        self.store = Store(path, durability=durability, read_only=read_only, index=index, clock=clock)
        self.store.max_items = max_items
        self.store.scan = scan
        found = self._on_file() if isinstance(encoder, str) else encoder
        if found is not None:
            self.store.use(Embedder(found))
        if self.read_only and log != "off":
            _LOG.warning("%s is read-only: searches work but are not logged, so no reward can reach them", self.path)
        self._decisions = DecisionLog(self.store, keep=keep_candidates)
        self._recalled: OrderedDict[str, str] = OrderedDict()
        self._known_episodes: set[str] = set()
        self._shared = False
        self._shares: Mapping[str, bool] = {}
        self._shared_bounds: Mapping[str, str] = {}
        self._live: WeakValueDictionary[str, LiveEpisode] = WeakValueDictionary()
        self._scopes: dict[tuple[str, str, str], Scope] = {}
        self._draws = _uniform(self.store.store_id())
        self._whole = weakref.ref(self)
        self._unread = UnreadTurns()
        self.learning: Learning | None = None
        if named is not None:
            self.learning = self._learning(*named, reward_range or (0.0, 1.0), seed, trusted)
        if self._writer is not None and not self.read_only and notes.unread_turns(self.store):
            self._unread.wake(self)

    @property
    def path(self) -> str:
        return self.store.database.path

    @property
    def read_only(self) -> bool:
        return self.store.database.read_only

    def close(self) -> None:
        """Write what is waiting and let go of the file. What `within` gave leaves the file to the handle it came from."""
        if self._shared:
            return
        self._unread.close()
        if not self.read_only:
            self._decisions.close()
        self.store.close()

    def within(
        self,
        *,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        shared: Mapping[str, bool] | None = None,
    ) -> Memory:
        """A handle on the same open memory with narrower bounds: all its verbs, those that take an id too, see nothing beyond
        them. What the policy learned is shared. It is closed with this one.

        shared: what lies under these names of users is seen too, and True where it may be changed. Searches, lists and ids reach
        it; `user_id=` names one of them alone. What is written goes into the handle's own bounds unless such a name is given.
        A handle with bounds of a user alone takes it. Raises InvalidScope."""
        narrower = copy(self)
        narrower.scope = self._narrowed(user_id, agent_id, session_id)
        given = {name: value for name, value in (("agent", agent_id), ("session", session_id)) if value}
        narrower._shared_bounds = {**self._shared_bounds, **given} if shared is None else {}
        if one_spelling(user_id) in self._shares:
            narrower._shares = {}
        if shared is not None:
            if not narrower.scope.user:
                raise InvalidScope(
                    "shared= is for a handle of a user: give user_id, as one without sees every user there is"
                )
            narrower._shares = {Scope(user=name).user: bool(writes) for name, writes in shared.items() if name}
        narrower._known_episodes, narrower._scopes, narrower._recalled = set(), {}, OrderedDict()
        narrower._live = WeakValueDictionary()
        narrower._shared = True
        return narrower

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        scope = self._seen(user_id, agent_id, session_id)
        wanted = parsed(where)
        chosen = {member(ItemKind, kind) for kind in several(kinds, "kinds", "fact")}
        checked_number(limit, "k", 1)
        start = number_of(after) if after else 0
        if start is None:
            raise UnknownItem(f"after={after!r:.40} is no item's id: pass the last id of the page before")
        time = timestamp(self._clock())
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

    def search(
        self,
        /,
        query: str,
        *,
        top_k: int = 10,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        mode: str | None = None,
        threshold: float | None = None,
        selector: HitSelector | None = None,
        fits: HitFilter | None = None,
        actions: Sequence[str] = (),
        episode: str = "",
        step: int = 0,
        explore: bool = True,
        **options: Any,
    ) -> Hits:
        """At most `top_k` items, best first; `.decision` is what `reward` takes, `.text` what a prompt takes.

        mode: "lexical", "dense" or "hybrid"; by default hybrid where there is an encoder. threshold: hits with a lower score
        are left out; of a hybrid search that is the fused score (`Fusion`), of a dense one the cosine, of a lexical one BM25.
        selector: chooses in the policy's place, and says with what probability. fits: (hits, best first) -> those of them that
        there is room for, all together; only they are chosen from. actions: what can be done here, where that is known.
        explore: False shows what rewards say is best, and tries nothing else.
        options: explain, kinds, statuses, where, since, until, as_of, half_life, diversity, reranker and nobody, as
        `search.Request` says.
        The past (`as_of`) is shown as it was, without a policy.
        """
        ask = Ask(
            checked_query(query),
            "",
            worded_actions(actions) if actions != () else (),
            checked_number(step, "step", 0),
            explore=explore,
        )
        if episode:
            ask = self._asked_in(episode, ask)
        return self._answer(
            [ask],
            top_k=top_k,
            user_id=user_id,
            agent_id=agent_id,
            session_id=session_id,
            mode=mode,
            threshold=threshold,
            selector=selector,
            fits=fits,
            episode=episode,
            **options,
        )[0]

    def search_many(
        self,
        /,
        queries: Sequence[str],
        *,
        actions: Sequence[str] = (),
        step: int = 0,
        episode: str = "",
        **options: Any,
    ) -> list[Hits]:
        """`search` for several queries: encoded together, compared in one matrix product, logged in one transaction."""
        if isinstance(queries, (str, bytes)) or not isinstance(queries, Iterable):
            raise InvalidText(f"search_many takes several queries, got {type(queries).__name__}: use search for one")
        queries = list(queries)
        possible = worded_actions(actions) if actions != () else ()
        step = checked_number(step, "step", 0)
        asks = [Ask(checked_query(query, number), "", possible, step) for number, query in enumerate(queries)]
        if episode:
            asks = [self._asked_in(episode, ask) for ask in asks]
        return self._answer(asks, episode=episode, **options)

    def _answer(
        self,
        asks: Sequence[Ask],
        *,
        top_k: int = 10,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        mode: str | None = None,
        threshold: float | None = None,
        selector: HitSelector | None = None,
        fits: HitFilter | None = None,
        episode: str = "",
        **options: Any,
    ) -> list[Hits]:
        """What is shown for each, chosen and logged."""
        if episode:
            self._check_episode(episode)
        bounds = (user_id, agent_id, session_id)
        asks, chosen, scope = self._answered(
            asks, top_k, bounds, mode=mode, threshold=threshold, selector=selector, fits=fits, options=options
        )
        # What was asked is of whoever asked, also where it was found elsewhere.
        asking = self._narrowed("", agent_id, session_id) if self._shares else scope
        live = self._live.get(episode) if episode else None
        if live is not None and asking.contains(live.scope):
            asking = live.scope
        self._log(asks, chosen, asking, episode)
        if live is not None:
            live._waiting += [each.hits.decision for each in chosen if each.hits.decision]
        return [each.hits for each in chosen]

    def _answered(
        self,
        asks: Sequence[Ask],
        top_k: int,
        bounds: tuple[str, str, str] = NOBODY,
        *,
        mode: str | None = None,
        threshold: float | None = None,
        selector: HitSelector | None = None,
        fits: HitFilter | None = None,
        options: Mapping[str, Any] = {},
    ) -> tuple[Sequence[Ask], list[Chosen], Scope]:
        """What is asked, without secrets; what is shown for each, chosen and not logged; and where it was looked for."""
        checked_number(top_k, "k", 1)
        if threshold is not None and (not isinstance(threshold, (int, float)) or math.isnan(threshold)):
            raise InvalidFilter(f"threshold must be a number, got {threshold!r:.40}: give one, or leave it out")
        scope = self.scope if bounds == NOBODY and not self._shares else self._seen(*bounds)
        if selector is not None and not callable(selector):
            raise InvalidFilter(f"selector must be a function (query, candidates, k) -> Selected, got {selector!r:.60}")
        if fits is not None and not callable(fits):
            raise InvalidFilter(
                f"fits must be a function of the hits that gives those there is room for, got {fits!r:.60}"
            )
        if self.store.scan is not None:  # the log of what was asked keeps no secrets either
            asks = [
                replace(
                    each,
                    goal=self._unsaid(each.goal),
                    observation=self._unsaid(each.observation),
                    actions=tuple(self._unsaid(action) for action in each.actions),
                )
                for each in asks
            ]
        unaided = selector is not None or options.get("as_of") or any(ask.plain for ask in asks)
        learning = None if unaided else self.learning
        label = f"static:{mode or ('lexical' if self.store.embedder is None else 'hybrid')}"
        if learning is None:
            wide = top_k if selector is None else max(POOL, 5 * top_k)
            found = self._candidates(asks, scope, wide, 0, mode, threshold, options, fits)
            chosen = [chosen_without_policy(*each, top_k, selector, label) for each in found]
        else:
            chosen = self._chosen(learning, asks, scope, top_k, mode, threshold, options, fits)
        if self._notes_recalled:
            self._note_recalled(hit.item for each in chosen for hit in each.hits)
        return asks, chosen, scope

    def _chosen(
        self,
        learning: Learning,
        asks: Sequence[Ask],
        scope: Scope,
        top_k: int,
        mode: str | None,
        threshold: float | None,
        options: Mapping[str, Any],
        fits: HitFilter | None,
    ) -> list[Chosen]:
        """What the policy chooses, of what the search of this memory finds or of what it finds itself."""
        from keepworth.memory.policy.learning import NEARBY, OtherPolicy

        while True:
            try:
                if learning.searches:
                    found = self._candidates(asks, scope, top_k, NEARBY, mode, threshold, options, fits)
                    return [learning.among(ask, hits, top_k, by_words=mode == "lexical") for ask, hits in found]
                self._refuse_ranking(scope, mode, threshold, options, fits)
                time, nobody = timestamp(self._clock()), bool(options.get("nobody"))
                return [learning.retrieve(ask, top_k, partial(self._may_show, time, scope, nobody)) for ask in asks]
            except OtherPolicy:
                continue

    def _unsaid(self, text: str) -> str:
        """A text without what this memory was told not to remember."""
        return text if self.store.scan is None or not text else self.store.scan.redacted(text)

    def _may_show(self, time: str, scope: Scope, nobody: bool, item: Item) -> bool:
        """Whether a policy that finds items itself may show one: it is seen from here, and in force. The policy has learned
        from everybody."""
        seen = scope.contains(item.scope) and not (nobody and item.scope.user)
        return seen and item.in_force(time)

    def _candidates(
        self,
        asks: Sequence[Ask],
        scope: Scope,
        k: int,
        beyond: int,
        mode: str | None,
        threshold: float | None,
        options: Mapping[str, Any],
        fits: HitFilter | None,
    ) -> list[tuple[Ask, list[Hit]]]:
        """What the search of this memory finds, best first."""
        embedder = self.store.embedder
        if mode is None:
            mode = "hybrid" if embedder is not None else "lexical"
        if threshold is not None and options.get("reranker") is None:
            highest = self.fusion.highest if mode == "hybrid" else 1.0 if mode == "dense" else math.inf
            if threshold > highest:
                raise InvalidFilter(
                    f"threshold={threshold:g} leaves nothing, whatever is asked: the highest score of a {mode} search is "
                    f"{highest:.4g}; with mode='dense' the score is the cosine"
                )
        request, time = requested(k, mode, options, beyond=beyond), self._clock()
        with self.store.database.reading():
            searched = None
            view = ScopeView(self.store, scope, request.nobody)
            if request.as_of or request.statuses != CURRENT:
                searched = Overlay(self.store.base(scope), embedder).with_others(request, time)
            texts = [ask.text for ask in asks]
            found = retrieve(view, embedder, self.fusion, texts, request, time, searched=searched)
        if threshold is not None:
            found = [[hit for hit in hits if hit.score >= threshold] for hits in found]
        if fits is not None:
            found = [_fitting(fits, hits) for hits in found]
        return list(zip(asks, found, strict=True))

    def _refuse_ranking(
        self,
        scope: Scope,
        mode: str | None,
        threshold: float | None,
        options: Mapping[str, Any],
        fits: HitFilter | None,
    ) -> None:
        """Raise InvalidFilter, InvalidScope for what a policy that finds items itself does not do."""
        request, usual = requested(1, "hybrid", options), Request(1)
        heeded = ("nobody",)
        ranking = [name for name in OPTIONS if name not in heeded]
        given = {name: getattr(request, name) for name in ranking if getattr(request, name) != getattr(usual, name)}
        for name, value in {"mode": mode, "threshold": threshold, "fits": fits, **given}.items():
            if value is not None and value != {}:
                raise InvalidFilter(
                    f"policy {self.policy!r} finds and ranks items itself, so {name}= has no effect: leave it out, or open the "
                    "memory with policy='default' or None"
                )
        if scope != self._seen():
            raise InvalidScope(
                f"policy {self.policy!r} learns from everything in {self.scope}, and cannot search in {scope} alone: bind the "
                "memory, Memory(path, user_id=...)"
            )

    def quarantined(self, *, limit: int = 100, after: str = "") -> list[Item]:
        """Items that are held in quarantine, in order of writing: no search shows them until `release`."""
        start = number_of(after) if after else 0
        if start is None:
            raise UnknownItem(f"after={after!r:.40} is no item's id: pass the last id of the page before")
        checked_number(limit, "limit", 1)
        return list(islice(self.store.with_status(self.scope, Status.QUARANTINED, start), limit))

    def release(self, id: str) -> Item:
        """Let an item out of quarantine, for searches to find. Raises UnknownItem, InvalidText where it is not in it."""
        item = self.get(id)
        if item.status is not Status.QUARANTINED:
            raise InvalidText(
                f"{id} is not in quarantine: its status is {item.status.value}; nothing was done",
                "Look at those that are: `quarantined()` gives them.",
            )
        metadata = {name: value for name, value in item.metadata.items() if name != HELD_FOR}
        return self.update(id, status=Status.ACTIVE, metadata=metadata)

    def history(self, id: str) -> list[Revision]:
        """Everything that happened to an item, oldest first. Raises UnknownItem."""
        found = self.store.history(self._seen(), id)
        if not found:
            self.get(id)
        return found

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

        by: for whom, as the program knows it (from a login, never from the text); "" where it serves nobody but itself. explore:
        False where the policy may try nothing out and withhold nothing, as when memory is measured.
        Leaving the `with` block without a reward leaves it open: reward it later by its id. Raises InvalidText, InvalidPolicy."""
        scope = self._narrowed(user_id, agent_id, session_id)
        said = self._unsaid(worded(task, "task"))
        person = identity(by, "by") if by != "" else ""
        return self._begin(f"e{self._new_id()}", said, scope, person, explore=explore)

    def _begin(
        self, id: str, task: str, scope: Scope | None = None, person: str = "", *, explore: bool = True
    ) -> LiveEpisode:
        """The episode of this id, which begins. Raises ClosedEpisode where it has begun before."""
        from keepworth.memory.episode import LiveEpisode

        scope = scope or self.scope
        number = log.begin(self.store, scope, id, task, person)
        self._known_episodes.add(id)
        self._live[id] = live = LiveEpisode(self, id, scope, task, person, number=number, explore=explore)
        return live

    def reopen(self, id: str) -> LiveEpisode:
        """An episode that was begun, to go on with: from another process, or after one that was killed. What was searched and not
        acted on yet waits for `act`; what it was told of exploring is not known any more. Raises UnknownEpisode."""
        from keepworth.memory.episode import LiveEpisode

        begun = self._begun(id)  # asked even where it is at hand: it may have been erased
        live = self._live.get(id)
        if live is not None:
            return live
        live = LiveEpisode(self, id, begun.scope, begun.task, begun.person, number=begun.number)
        live._go_on()
        return self._live.setdefault(id, live)

    def reward(self, target: str, value: float, *, by: str | None = None, source: str = "user") -> OperationOutcome:
        """Credit an episode, or one decision, with a reward: at once or days later. Every item shown gets the value, together
        with the probability it had of being shown, and the policy learns from it. The reward of one decision stays its own: where
        the policy keeps cases, that of the episode does not teach this choice again.

        by: whose judgement it is; whom the episode is for if not given, "" for the program's own (a test, a verifier). source:
        what it came through. Where the policy keeps what an episode taught, its reward is final: the same again changes
        nothing, another one raises ClosedEpisode. Raises UnknownEpisode, InvalidReward."""
        value = checked_reward(value, self.learning.reward_range if self.learning is not None else None)
        checked_source(source, "source")
        self._decisions.flush()
        about = log.rewarded(self.store, self._changes(), target)
        person = about.person if by is None else identity(by, "by") if by != "" else ""
        if self.learning is not None and about.scope == self.learning.scope and self.learning.keeps():
            if from_use(person):
                return OperationOutcome(False, reason="rewards are final here, and a signal of use is none")
            return self.learning.finish(about, value, person, source)
        items = tuple((id, one.propensity) for one in about.shown for id in one.chosen)
        act = Credit(value, items, on_word_of(person) if person else source, about.decision)
        with self.store.database.reading() as connection:
            earlier = [] if about.decision else log.rewards_of(connection, about.episode)
        if from_use(person) and any(given == value or not from_use(whose(word)) for _, word, given in earlier):
            return OperationOutcome(False, reason="it has a reward already")
        guesses = tuple((seq, seq) for seq, word, _ in earlier if from_use(whose(word)))

        def work(transaction: Transaction) -> OperationOutcome:
            if guesses:  # what somebody says of an episode takes the place of what use seemed to say
                undo.roll_back(transaction, guesses, now=self._clock(), reason="a reward of its own", scope=about.scope)
                transaction.finish()
            return transaction.perform(act, Draft(scope=about.scope), now=self._clock(), episode=about.episode)

        outcome: OperationOutcome = self.store.change(about.scope, work)
        if self.learning is not None:
            self.learning.count_reward()
        return outcome

    def propose(self, advice: Advice) -> str | None:
        """An item from outside that advises something, through the policy's gate; its id, or None where the gate rejected it.
        `advice.source` says where it comes from: never memory's own experience. Raises InvalidAdvice, InvalidPolicy."""
        return self._learns("propose").propose(advice)

    def pending(self) -> list[str]:
        """Episodes in which something was done and that have no reward yet, oldest first."""
        return self._pending()

    def _pending(self, nobody: bool = False) -> list[str]:
        self._decisions.flush()
        with self.store.database.reading() as connection:
            return log.acted(connection, self.scope, nobody)

    @property
    def policy(self) -> str | None:
        """The name of the policy that chooses now; None where none does."""
        return None if self.learning is None else self.learning.name()

    def _known_policies(self) -> tuple[str, ...]:
        """Names that `promote` and `evaluate` take."""
        return by_name.policies()

    def evaluate(self, policy: str, *, method: str = "snips") -> Estimate:
        """What mean reward another policy would have had on the logged choices. method: "snips", by ordered
        slates, or "items", by single items of which the log says how likely they were to be shown. Raises CannotEvaluate where
        the log cannot say, such as one that was made without exploring."""
        self._decisions.flush()
        return self._learns("evaluate").evaluate(policy, method)

    def promote(self, policy: str) -> None:
        """Let `policy` choose from now on, with what it learns from the whole log; `demote` takes it back."""
        self._decisions.flush()
        self._learns("promote").promote(policy)

    def demote(self) -> str:
        """Back to the policy before the last promotion; its name."""
        return self._learns("demote").demote()

    def worth(self, id: str, query: str) -> Worth:
        """What showing an item adds where `query` is asked, as far as rewards say, and wherever it comes up (`.overall`, with its
        `.interval`). Raises UnknownItem, InvalidPolicy."""
        self._decisions.flush()
        return self._learns("worth").worth(self.get(id), checked_query(query))

    def ledger(
        self, *, items: Sequence[str] | None = None, source: str = "", everything: bool = False, exact: bool = False
    ) -> Balance:
        """What showing each item added, from the episodes in which chance decided whether it was shown, and what that has cost.

        items: by id; source: those from there; by default all current ones that were shown with a reward. everything: those that
        were not, and those that are gone, too. exact: with intervals that hold for any number of episodes, and are wider. Raises
        UnknownItem, InvalidPolicy."""
        learning = self._learns("ledger")
        self._decisions.flush()
        if items is not None:
            items = [self.get(id).id for id in several(items, "items", "m1")]
        if source:
            checked_source(source, "source")
            listed = self.store.items(self.scope, current=not everything)
            there = [each.id for each in listed if each.provenance.source == source]
            items = there if items is None else [id for id in items if id in set(there)]
        return learning.ledger(items, everything=everything, exact=exact)

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
        scope = self._narrowed(user_id, agent_id, session_id)
        checked_number(limit, "limit", 1)
        start = self._begun(after).number if after else -1
        with self.store.database.reading() as connection:
            return log.episodes_in(connection, scope, start, limit, nobody)

    def episode_record(self, id: str) -> Episode:
        """What the journal knows of an episode, as the record that training and viewing share. Raises UnknownEpisode."""
        self._decisions.flush()
        return log.assembled(self.store, self._changes(), id, self._seen())

    # Consolidation.

    def consolidate(
        self,
        rewrite: consolidating.Rewriter,
        *,
        groups: Sequence[Sequence[str]] | None = None,
        near: float = 0.75,
        most: int = 5,
        limit: int = 100,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
    ) -> consolidating.Consolidation:
        """Let a function say in one text what items that belong together say.

        Nothing is erased: `rollback(source=rewrite.source)` brings the originals of a rewrite back.

        Args:
            rewrite: Texts -> one text in their place, such as `consolidating.merged_by(model)`.
            groups: Lists of ids; by default items of one scope, kind and metadata that are near in meaning.
            near: The cosine from which items belong together.
            most: Items in a group.
            limit: Groups that `rewrite` is asked about.

        Raises:
            NoEncoder: Without an encoder and without groups.
            InvalidFilter, ReadOnly
        """
        scope = self._narrowed(user_id, agent_id, session_id)
        return consolidating.consolidate(self.store, scope, rewrite, groups, near, most, limit)

    # Undo.

    def snapshot(self) -> str:
        """A name for the present state, for `restore`, `diff` and `bank`."""
        return f"s{self.store.head()}"

    def rollback(
        self, target: str = "", *, source: str = "", since: str = "", rewarder: str = "", entry: int = 0
    ) -> undo.Rollback:
        """Undo everything an episode did (`target` its id), everything from a source, everything since a snapshot, everything
        that follows from the rewards of one person, with all that was learned from it, or one change (`entry`, the `seq` that
        `history` gives it).

        What would have happened without it is what remains; entries that no longer apply are listed in the result.
        `rollback(result.id)` undoes the rollback. Raises UnknownEpisode, UnknownSnapshot, Purged.
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
                    f"Known: {', '.join(names) or 'nobody by name'}.",
                )
            source = on_word_of(rewarder)
        return undo.rollback(self.store, self.scope, target=target, source=source, since=since, entry=entry)

    def restore(self, snapshot: str) -> undo.Rollback:
        """Make the memory of this scope what it was at a snapshot. Can itself be rolled back."""
        return self.rollback(since=snapshot)

    def diff(self, one: str, other: str = "") -> list[Difference]:
        """Items that differ between two snapshots (by default: between `one` and now)."""
        return self.store.diff(self.scope, one, other or self.snapshot())

    # Agents.

    def bank(
        self, scope: Scope | None = None, *, user_id: str = "", agent_id: str = "", session_id: str = "", at: str = ""
    ) -> Bank:
        """A bank over a snapshot (by default: now). What is written to it stays in it until `commit`."""
        narrowed = scope if scope is not None else self._narrowed(user_id, agent_id, session_id)
        if not self._changes().contains(narrowed):
            raise InvalidScope(f"{narrowed} is not inside {self.scope}")
        base = self.store.base(narrowed, at or self.snapshot())
        return Bank.on(base, self.store.embedder, scope=narrowed, clock=self._clock, fusion=self.fusion)

    def commit(self, bank: Bank, *, episode: str = "") -> list[OperationOutcome]:
        """Do on the memory, in one transaction, what was done on a bank of it. Operations are carried out again: where the
        memory moved on meanwhile, one may no longer apply, and its outcome says so. Raises InvalidScope."""
        if not self._changes().contains(bank.scope):
            raise InvalidScope(f"the bank's {bank.scope} is not inside {self.scope}: nothing was written")
        self._check_episode(episode)
        return bank.commit_to(self.store, episode)

    # Writing. Each is one journal entry or more, and can be rolled back, but for `forget(..., purge_history=True)`.

    @overload
    def add(self, content: str, **options: Any) -> Item: ...

    @overload
    def add(self, content: Sequence[Message], **options: Any) -> list[Item]: ...

    def add(self, content: str | Sequence[Message], *, infer: bool = False, **options: Any) -> Item | list[Item]:
        """Remember a text, or messages ({"role": ..., "content": ...}); returns the item, or one per text kept. One message
        may come without a list around it. A message may have "metadata" of its own, beside those of all.

        infer: let the writer of this memory say what to keep of it. It may add, update, supersede and delete: all is done in one
        transaction, and what is returned are the items that say now what it wanted said. Options are of the items that it makes
        (one that is only reworded keeps what it had), and are checked before it is called. What only repeats an item of the same
        person that a search has shown is not stored again. A writer that fails loses nothing: what people said is kept word for
        word, with {"extraction": "waiting"} in its metadata, and the writer is asked again, by itself or by `read_again`. Raises
        NoWriter, NothingToWrite for a writer that keeps choices, and
        InvalidAdvice for one that gives something else. Other options: see `add_many`.

        What an open item says already, in the same words and with nothing new beside them (time, metadata, trust, a longer life),
        is not stored again: that item is returned.
        """
        if isinstance(content, str) and not infer:
            return self.add_many([content], **options)[0]
        if infer:
            return [item for item, _ in writing.write(self, content, **options) if item.open]
        texts, sources, own = [], [], []
        for number, message in enumerate(messages_of(content)):
            own.append(message.get("metadata"))
            texts.append(checked_text(message.get("content"), f"message {number}"))
            speaker = checked_label(str(message.get("role", "")), f"role of message {number}")
            sources.append(Provenance("conversation", turn=number, speaker=speaker))
        if any(each is not None for each in own):
            options["metadata"] = [_joined(options.get("metadata"), each, n) for n, each in enumerate(own)]
        return self.add_many(texts, provenances=sources, **options)

    def read_again(self) -> int:
        """Ask the writer now about the messages that it failed at; how many were read. It is asked a few times by itself."""
        return writing.read_again(self, all=True)

    @property
    def unread(self) -> dict[str, int]:
        """Messages that the writer failed at: "waiting" in the file, and, since it was opened, "kept" as they were, "read"
        later and "failed" for good."""
        return {"waiting": len(notes.unread_turns(self.store)), **self._unread.counts}

    def add_many(
        self,
        texts: Sequence[str],
        *,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        kind: ItemKind | str = ItemKind.FACT,
        key: str = "",
        event_time: Timestamp = "",
        valid_from: Timestamp = "",
        valid_to: Timestamp = "",
        expires_at: Timestamp = "",
        ttl: float | None = None,
        trust: float = 1.0,
        status: Status | str = Status.ACTIVE,
        metadata: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
        source: str = "",
        provenances: Sequence[Provenance] | None = None,
        repeat: bool = False,
        episode: str = "",
    ) -> list[Item]:
        """Remember several texts in one transaction: all of them or, if one is bad, none.

        key: what searches match instead of the text; event_time: when it happened; ttl: seconds until it is hidden;
        metadata: of all, or a list of one for each
        text; repeat: store exact duplicates too (the same line said twice in a conversation).
        Raises InvalidText, InvalidTime, InvalidScope, UnknownEpisode, StorageFull.
        """
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise InvalidText(
                f"add_many takes several texts, got {type(texts).__name__}: give a list, or use add for one"
            )
        texts = list(texts)
        for number, text in enumerate(texts):
            checked_text(text, f"text number {number}" if len(texts) > 1 else "text")
        each_own = list(metadata) if isinstance(metadata, (list, tuple)) else None
        if each_own is not None and len(each_own) != len(texts):
            raise InvalidText(
                f"{len(each_own)} metadata came with {len(texts)} texts: give one for each, or a dictionary for all; "
                "nothing was stored"
            )
        draft = self._draft(
            user_id=user_id,
            agent_id=agent_id,
            session_id=session_id,
            kind=kind,
            key=key,
            event_time=event_time,
            valid_from=valid_from,
            valid_to=valid_to,
            expires_at=expires_at,
            ttl=ttl,
            trust=trust,
            status=status,
            metadata=metadata if isinstance(metadata, Mapping) else None,
            source=source,
            repeat=repeat,
            episode=episode,
        )
        sources = [draft.provenance] * len(texts) if provenances is None else list(provenances)
        for one in sources if provenances is not None else ():
            checked_source(one.source, "source of a provenance")
            for part in ("session", "speaker", "date"):
                checked_label(getattr(one, part), f"{part} of a provenance")
        if len(sources) != len(texts):
            raise InvalidText(
                f"{len(sources)} provenances came with {len(texts)} texts: give one for each; nothing was stored"
            )
        if not texts:
            return []
        acts = [
            (Operation(OperationKind.ADD, text=text), draft if provenances is None else replace(draft, provenance=one))
            for text, one in zip(texts, sources, strict=True)
        ]
        if each_own is not None:
            acts = [
                (act, one.with_metadata(plain_metadata(more))) for (act, one), more in zip(acts, each_own, strict=True)
            ]
        vectors = self.store.encode([key] if key else texts)
        done = self.store.perform_and_read(draft.scope, acts, episode=episode, vectors=vectors)
        return [there(item, outcome) for outcome, item in done]

    def _draft(
        self,
        *,
        user_id: str,
        agent_id: str,
        session_id: str,
        kind: ItemKind | str,
        key: str,
        event_time: Timestamp,
        valid_from: Timestamp,
        valid_to: Timestamp,
        expires_at: Timestamp,
        ttl: float | None,
        trust: float,
        status: Status | str,
        metadata: Mapping[str, Any] | None,
        source: str,
        repeat: bool,
        episode: str,
    ) -> Draft:
        """What `add_many` is told of the items, checked where it is not as usual."""
        if key != "":
            checked_text(key, "key")
        if source != "":
            checked_source(source, "source")
        if episode != "":
            self._check_episode(episode)
        if ttl is not None:
            expires_at = later(timestamp(self._clock()), ttl)
        times = (event_time, valid_from, valid_to, expires_at)
        event, start, end, expiry = ("" if each == "" else timestamp(each) for each in times)
        if start and end:
            checked_interval(start, end)
        bounds = (user_id, agent_id, session_id)
        return Draft(
            kind=kind if isinstance(kind, ItemKind) else member(ItemKind, kind),
            key=key,
            scope=self.scope if bounds == NOBODY else self._narrowed(*bounds),
            event_time=event,
            valid_from=start,
            valid_to=end,
            expires_at=expiry,
            provenance=Provenance(source) if source else Provenance(),
            trust=_trust(trust),
            status=status if isinstance(status, Status) else member(Status, status),
            metadata=plain_metadata(metadata) if metadata else {},
            deduplicate=not repeat,
        )

    def apply(
        self,
        operation: Operation,
        *,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        event_time: Timestamp = "",
        source: str = "",
        episode: str = "",
    ) -> OperationOutcome:
        """Carry out what an agent asked for. A bad operation changes nothing and the outcome says why."""
        self._check_episode(episode)
        scope = self._narrowed(user_id, agent_id, session_id)
        draft = Draft(
            scope=scope, event_time=timestamp(event_time), provenance=Provenance(checked_source(source, "source"))
        )
        text = operation.text if isinstance(operation, Operation) else ""
        vectors = self.store.encode([text]) if text_problem(text) is None and len(text) <= 100_000 else {}
        try:
            return self.store.perform(scope, [(operation, draft)], episode=episode, vectors=vectors)[0]
        except ScopeFull as full:
            return OperationOutcome(False, reason=str(full))

    def update(
        self,
        id: str,
        text: str | None = None,
        *,
        status: Status | str | None = None,
        trust: float | None = None,
        expires_at: Timestamp | None = None,
        metadata: Mapping[str, Any] | None = None,
        repeat: bool = False,
        episode: str = "",
    ) -> Item:
        """Reword an item (same id, same validity), or set fields that say nothing about the world. repeat: also where another
        item then says the same. Raises UnknownItem, InvalidText."""
        home = self._home(self._open_item(id))
        self._check_episode(episode)
        acts: list[tuple[Any, Draft]] = []
        draft = Draft(scope=home, deduplicate=not repeat)
        if text is not None:
            acts.append((Operation(OperationKind.UPDATE, (id,), checked_text(text)), draft))
        fields: dict[str, Any] = {}
        if status is not None:
            fields["status"] = member(Status, status).value
        if trust is not None:
            fields["trust"] = _trust(trust)
        if expires_at is not None:
            fields["expires_at"] = timestamp(expires_at)
        if metadata is not None:
            fields["metadata"] = plain_metadata(metadata)
        if fields:
            acts.append((Assignment(id, fields), draft))
        if not acts:
            raise InvalidText(
                f"update of {id} was given nothing to change: pass text, status, trust, expires_at or metadata"
            )
        outcomes = self.store.perform(home, acts, episode=episode, vectors=self.store.encode([text] if text else []))
        for outcome in outcomes:
            if not outcome.applied and outcome.reason != "unchanged":
                raise InvalidText(f"{id} was not updated ({outcome.reason}): give another text, or leave it as it is")
        return self.get(id)

    def supersede(
        self,
        id: str,
        text: str,
        *,
        event_time: Timestamp = "",
        key: str = "",
        expires_at: Timestamp = "",
        metadata: Mapping[str, Any] | None = None,
        source: str = "",
        episode: str = "",
    ) -> Item:
        """The fact changed: close the old item and store its successor, linked. Searches return the new one, `as_of` the old."""
        home = self._home(self._open_item(id))
        self._check_episode(episode)
        if key != "":
            checked_text(key, "key")
        draft = Draft(
            scope=home,
            key=key,
            event_time=timestamp(event_time),
            expires_at=timestamp(expires_at),
            metadata=plain_metadata(metadata),
            provenance=Provenance(checked_source(source, "source")),
        )
        operation = Operation(OperationKind.SUPERSEDE, (id,), checked_text(text))
        vectors = self.store.encode([key or text])
        outcome = self.store.perform(home, [(operation, draft)], episode=episode, vectors=vectors)[0]
        if not outcome.item:
            raise InvalidText(f"{id} was not superseded ({outcome.reason}): say what is true now")
        return self.get(outcome.item)

    def delete(self, id: str, *, episode: str = "") -> None:
        """Hide an item for good; its history stays and the deletion can be rolled back. Raises UnknownItem."""
        self._check_episode(episode)
        target = id if isinstance(id, str) else repr(id)
        there = self.store.fetch(self._seen(), [target])[target] if self._shares else None
        home = self.scope if there is None else self._home(there)
        outcome = self.store.perform(
            home, [(Operation(OperationKind.DELETE, (target,)), Draft(scope=home))], episode=episode
        )[0]
        if not outcome.applied:
            raise UnknownItem(
                f"no item {id!r:.80} to delete in this scope of {self.path}: take an id that a search or a list gave"
            )

    def delete_all(self, *, user_id: str = "", agent_id: str = "", session_id: str = "") -> int:
        """Delete every item of a scope; returns how many. At least one bound must be given, here or when opening."""
        scope = self._narrowed(user_id, agent_id, session_id)
        if scope == Scope(scope.tenant):
            raise InvalidScope(
                "delete_all needs a user_id, agent_id or session_id: say whose items go, as it never empties a whole memory"
            )
        ids = [item.id for item in self.store.items(scope) if not item.deleted]
        draft = Draft(scope=scope)
        self.store.perform(scope, [(Operation(OperationKind.DELETE, (id,)), draft) for id in ids])
        return len(ids)

    def forget(self, *ids: str, purge_history: bool = False) -> purge.Erased | None:
        """Delete items; with `purge_history`, erase them, rolled-back ones too, and the logged queries that quote them, for good.
        Raises UnknownItem before anything changed."""
        if not ids:
            raise InvalidFilter("forget was given nothing to forget: pass the ids of items")
        if purge_history:
            self._decisions.flush()
            return self._erased(purge.purge(self.store, self.scope, ids))
        known = {item.id: item for item in map(self.get, ids)}
        gone = [id for id, item in known.items() if item.deleted]
        if gone:
            raise UnknownItem(f"{gone[0]} is deleted already: leave it out; nothing was forgotten")
        acts = [(Operation(OperationKind.DELETE, (id,)), Draft(scope=self._home(item))) for id, item in known.items()]
        self.store.perform(self._changes(), acts)
        return None

    def erase(self, *, user_id: str = "", agent_id: str = "", session_id: str = "") -> purge.Erased:
        """Erase a person, an agent or a session for good: everything that was written inside that scope, whatever became of it,
        what was asked there, what its episodes were about, and its names. At least one bound must be given, here or when opening.

        Not reached: what others wrote about them in other scopes, backups, exports, and banks that are in use.
        Undo to before it raises Purged.
        """
        if isinstance(user_id, str) and one_spelling(user_id) in self._shares:
            raise InvalidScope(
                f"{user_id!r:.60} is shared with this handle, and erased from one of its own bounds alone"
            )
        scope = self._narrowed(user_id, agent_id, session_id)
        if scope == Scope(scope.tenant):
            raise InvalidScope(
                "erase needs a user_id, agent_id or session_id: say whose memory goes; for the whole, delete the file"
            )
        self._decisions.flush()
        return self._erased(purge.erase(self.store, self.scope, scope))

    def _erased(self, result: purge.Erased) -> purge.Erased:
        """What this handle remembers of it goes, too."""
        gone = set(result.ids)
        for text in [text for text, id in self._recalled.items() if id in gone]:
            del self._recalled[text]
        self._scopes.clear()
        return result

    # What the verbs share.

    def __len__(self) -> int:
        return self.store.sums(self.scope)[1]

    def get(self, id: str) -> Item:
        """An item in its latest state, closed and deleted ones too. Raises UnknownItem."""
        seen = self._seen()
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

    def _log(self, asks: Sequence[Ask], chosen: Sequence[Chosen], scope: Scope, episode: str) -> None:
        if self.store.database.read_only or (not episode and not self._log_share):
            return
        entries = []
        for ask, each in zip(asks, chosen, strict=True):
            if not episode and self._log_share < 1.0 and next(self._draws) >= self._log_share:
                continue
            hits = each.hits
            hits.decision = f"d{self._new_id()}"
            entries.append(Logged(self._clock(), scope, episode, each.decision(ask), each.details, each.vector))
        if episode:
            self._decisions.write(entries)
        else:
            for entry in entries:
                self._decisions.later(entry)

    def _log_withdrawals(self, done: Sequence[tuple[Operation, OperationOutcome]], scope: Scope) -> None:
        """What a keeper gave up. In no episode: no reward of a search is about it."""
        chosen = [(each, outcome.changed[0]) for each, outcome in done if outcome.applied and hasattr(each, "decision")]
        if not chosen:
            return
        head, at = self.store.head(), self._clock()
        decisions = [each.decision(f"d{self._new_id()}", gone, head) for each, gone in chosen]
        self._decisions.write([Logged(at, scope, "", decision, details) for decision, details in decisions])

    def _learns(self, verb: str) -> Learning:
        if self.learning is None:
            raise InvalidPolicy(
                f"{verb} is a verb of a policy, and this memory was opened with policy=None.", "Name one."
            )
        return self.learning

    def _learning(
        self,
        policies: Callable[[str], Policy],
        first: str,
        reward_range: tuple[float, float],
        seed: int | None,
        trusted: Collection[str],
    ) -> Learning:
        from keepworth.memory.policy.learning import Learning

        try:
            return Learning(
                self.store, self.scope, policies, first, reward_range=reward_range, seed=seed, trusted=trusted
            )
        except BaseException:
            self.close()
            raise

    def _narrowed(self, user_id: str, agent_id: str, session_id: str) -> Scope:
        user_id = one_spelling(user_id) if isinstance(user_id, str) else user_id
        given = (user_id, agent_id, session_id)
        # Only "" means everybody's: a user 0, or None, is a mistake, and must not become a look at the whole memory.
        if given == NOBODY:
            return self.scope
        # What is not text may not be hashable either; `Scope` says what is wrong with it.
        plain = all(isinstance(part, str) for part in given)
        known = self._scopes.get(given) if plain else None
        if known is None:
            parts = {
                name: value for name, value in zip(("user", "agent", "session"), given, strict=True) if value != ""
            }
            shared = parts.pop("user") if plain and user_id in self._shares else ""
            known = self.scope.narrowed(**parts)
            if shared:
                if not self._shares[shared]:
                    raise SharedReadOnly(
                        f"{shared!r:.60} is shared here for reading alone: leave user_id out, which writes to your own memory "
                        "and searches both"
                    )
                known = replace(known, user=shared)
            if len(self._scopes) >= SCOPES:
                self._scopes.clear()
            self._scopes[given] = known
        return known

    def _seen(self, user_id: str = "", agent_id: str = "", session_id: str = "") -> Scope:
        """What a search or an id reaches: what is shared, too, where no user is named; where one that is shared is, it alone."""
        if not self._shares:
            return self._narrowed(user_id, agent_id, session_id)
        given = {name: value for name, value in (("agent", agent_id), ("session", session_id)) if value != ""}
        bounds = {**self._shared_bounds, **given}
        if isinstance(user_id, str) and one_spelling(user_id) in self._shares:
            return Scope(self.scope.tenant, user_id).narrowed(**bounds)
        own = self._narrowed(user_id, agent_id, session_id)
        if user_id != "":
            return own
        beside = tuple(Scope(self.scope.tenant, name).narrowed(**bounds) for name in self._shares)
        return Reach(*own.parts(), beside)

    def _changes(self) -> Scope:
        """What may be changed by its id."""
        beside = tuple(Scope(self.scope.tenant, name) for name, writes in self._shares.items() if writes)
        return Reach(*self.scope.parts(), beside) if beside else self.scope

    def _home(self, item: Item) -> Scope:
        """Through which scope an item that is seen is changed. Raises SharedReadOnly."""
        if self.scope.contains(item.scope):
            return self.scope
        home = Scope(self.scope.tenant, item.scope.user)
        if not self._shares[home.user]:
            raise SharedReadOnly(
                f"{item.id} is of {home.user!r:.60}, which is shared here for reading alone: nothing was changed; "
                "what you write yourself may say otherwise"
            )
        return home

    def _check_episode(self, id: str, *, again: bool = False) -> None:
        """Raise UnknownEpisode for what is neither "" nor the id of an episode of this scope. again: look anew."""
        if id == "" or (isinstance(id, str) and id in self._known_episodes and not again):
            return
        self._begun(id)

    def _begun(self, id: str) -> log.Begun:
        """The episode of this id in this scope. Raises UnknownEpisode."""
        begun = log.begun_as(self.store, self._changes(), id)
        if begun is None:
            raise UnknownEpisode(
                f"no episode {id!r:.80} in this memory: take the `.id` of one that `memory.episode()` began; nothing was done"
            )
        if len(self._known_episodes) >= SCOPES:
            self._known_episodes.clear()
        self._known_episodes.add(id)
        return begun

    def _asked_in(self, id: str, ask: Ask) -> Ask:
        """As the episode of this id asks for it: for its task and its person. Raises UnknownEpisode."""
        from keepworth.memory.episode import LiveEpisode

        live = self._live.get(id) if isinstance(id, str) else None
        if live is None:
            begun = self._begun(id)
            live = LiveEpisode(self, id, begun.scope, begun.task, begun.person, number=begun.number)
        return live._asking(ask.goal, ask.actions, ask.step)

    def _open_item(self, id: str) -> Item:
        item = self.get(id)
        if not item.open:
            raise UnknownItem(
                f"{id} is closed ({'deleted' if item.deleted else 'superseded by ' + item.superseded_by}): "
                + ("write it anew, or roll the deletion back" if item.deleted else f"change {item.superseded_by}")
            )
        return item

    def _note_recalled(self, items: Iterable[Item]) -> None:
        """What the writer finds again in what is said next is not new."""
        self._recalled.update((folded(item.text), item.id) for item in items)
        while len(self._recalled) > RECALLED:
            self._recalled.popitem(last=False)

    def _on_file(self) -> Encoder:
        """The encoder that made the vectors on file, else the usual one."""
        try:
            return by_name.encoder("default", self.store.encoder_identity())
        except BaseException:
            self.store.close()
            raise


def _joined(all: object, own: object, number: int) -> Any:
    """Metadata of all messages, and of one. Raises InvalidText."""
    for each, what in ((all, "metadata"), (own, f"metadata of message {number}")):
        if each is not None and not isinstance(each, Mapping):
            raise InvalidText(f"{what} must be a dictionary, got {type(each).__name__}: give names and values")
    return {**(all or {}), **(own or {})}  # type: ignore[dict-item]


def _named(policy: Any) -> tuple[Callable[[str], Policy], str]:
    from keepworth.memory.policy.slots import policies_by_name

    return policies_by_name(policy, by_name.policy)


def _trust(trust: float) -> float:
    if not isinstance(trust, (int, float)) or not 0.0 <= trust <= 1.0:
        raise InvalidFilter(f"trust must lie in [0, 1], got {trust!r:.40}: give 1 for full trust")
    return float(trust)


def _fitting(fits: HitFilter, hits: list[Hit]) -> list[Hit]:
    there = {id(hit) for hit in hits}
    fitting = list(fits(hits))
    if not {id(hit) for hit in fitting} <= there:
        raise InvalidFilter("fits gave hits that were not found: it must give some of those it was given")
    return fitting


def _uniform(seed: str) -> Iterator[float]:
    import random

    draw = random.Random(seed + str(os.getpid()))
    while True:
        yield draw.random()
