"""Rewrites of items that belong together, each on trial against what it rewrites.

A rewrite by a model can lose the word that decides, and then a memory is worth less than before. So nothing is believed:

* A rewrite is a MERGE under a source of its own. What it rewrites, its originals, are closed and not erased, and rolling that
  source back brings them back exactly.
* In each episode chance decides, once and with a logged probability, which of both is searched: the rewrite, or its originals
  in its place. An episode counts where it makes a difference to what would be shown. Whether it does is told from a search
  over both, so it does not depend on the draw.
* The effect is the mean reward with the rewrite less that with its originals, by the rows and the interval of the ledger (see
  `ledger`): it may be looked at after every reward.

| the 95 % interval of the effect | what becomes of the rewrite |
| --- | --- |
| is below 0 | it is taken back, and its originals are not rewritten together again |
| is above 0 | it stays |
| is above -`margin` of the range of rewards | it stays: it is surely not worse by more, and shorter |
| says none of that | the trial goes on |

All of that is in the journal: a note when a trial begins and one when it is over. What is known of a trial is read from those
and from the log of searches, so other processes, kills and rollbacks come to the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.episodes.text import as_line
from keepworth.memory.errors import InvalidFilter, InvalidPolicy, InvalidText, NoEncoder
from keepworth.memory.item import Item, ItemKind, Provenance, Scope, Status, text_problem, timestamp
from keepworth.memory.operations import Draft, new_item
from keepworth.memory.overlay import Layer, Overlay
from keepworth.memory.search.search import Hit, several
from keepworth.memory.store import forking, log, undo
from keepworth.memory.store.connection import AnyConnection, scalar, select
from keepworth.memory.store.rows import PARAMETERS
from keepworth.memory.store.schema import OF_KIND

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from keepworth.memory.policy.learning import Learning
    from keepworth.memory.policy.ledger import Account, Ledger
    from keepworth.memory.store.log import Choice
    from keepworth.memory.store.store import ScopeView, Store
    from keepworth.memory.store.transaction import Transaction

    Vectors = npt.NDArray[np.float32]

Rewriter = Callable[[Sequence[str]], str | Sequence[str]]
"""Texts that belong together -> one text in their place; several are its lines."""
NAME = undo.REWRITE
"""Of the notes in the journal."""
SOURCE = f"{NAME}:"
ORIGINALS = 0.5
"""The share of episodes that are searched with the originals: at a half, trials take the fewest."""
MARGIN = 0.1
"""Of the range of rewards: a rewrite that surely is not worse by more stays, as it is shorter."""
NEAR = 0.75
"""The cosine from which items belong together."""
MOST, NEIGHBOURS = 5, 32
"""Items in a group, and among how many of the nearest they are looked for."""
AT_ONCE, LIMIT = 20, 100
"""Trials that run at the same time, and groups that a rewriter is asked about in one call."""
SECONDS, HANGS = 60.0, 2
"""For one answer; and how many that did not come before the rest is not asked."""
BATCH = 128

STATES = TESTED, STAYS, TAKEN_BACK, CHANGED = "on trial", "stays", "taken back", "changed since"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite and its trial. item: its id; text: "" where it is erased; originals: their ids; source: what
    `Memory.rollback(source=...)` takes to take it back by hand; saves: characters; state: "on trial", "stays", "taken back", or
    "changed since", where somebody changed or closed it; why: what ended the trial, "" while it runs; account: shown and withheld
    count episodes with the rewrite and with its originals, effect is the first less the second; None before there are any."""

    item: str
    text: str
    originals: tuple[str, ...]
    source: str
    saves: int
    state: str
    why: str
    account: Account | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %, of the effect, at any time; None before there is one."""
        known = self.account is not None and math.isfinite(self.account.high - self.account.low)
        return self.account.interval if known and self.account is not None else None


@dataclass(frozen=True, slots=True)
class Consolidation:
    """What one `Memory.consolidate` did. rewrites: those that are on trial now; refused: the ids of each group that stays as it
    is, and why."""

    rewrites: tuple[Rewrite, ...]
    refused: tuple[tuple[tuple[str, ...], str], ...]

    @property
    def reasons(self) -> dict[str, int]:
        """How often each reason came up."""
        return {why: sum(why == other for _, other in self.refused) for _, why in self.refused}


@dataclass(frozen=True, slots=True)
class TrialTerms:
    """How rewrites are tried. originals: the share of episodes that are searched with the originals; margin: what a rewrite may
    cost at most, of the range of rewards, to stay because it is shorter; bounds: the lowest and the highest reward, where they
    were declared. Raises InvalidFilter."""

    originals: float = ORIGINALS
    margin: float = MARGIN
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name, value, low in (("originals", self.originals, 0.05), ("margin", self.margin, 0.0)):
            if not isinstance(value, Real) or isinstance(value, bool) or not low <= float(value) <= 0.95:
                raise InvalidFilter(f"{name} must be a share from {low:g} to 0.95, got {value!r:.40}")


@dataclass(frozen=True, slots=True)
class TrialOfRewrite:
    """One on file. seq: of the MERGE; item: what stays in its place, `made` where the MERGE made it; closed: the originals that
    it closed."""

    seq: int
    item: str
    originals: tuple[str, ...]
    scope: Scope
    saves: int
    plan: TrialTerms

    @property
    def source(self) -> str:
        return f"{SOURCE}m{self.seq}"

    @property
    def made(self) -> bool:
        return self.item == f"m{self.seq}"

    @property
    def closed(self) -> tuple[str, ...]:
        return tuple(id for id in self.originals if id != self.item)


@dataclass(frozen=True, slots=True)
class Arm:
    """What chance decided in an episode. rewritten: whether the rewrite is searched, and not its originals. p: of that; 1.0 where
    chance had no part in it."""

    trial: TrialOfRewrite
    rewritten: bool
    p: float

    @property
    def hides(self) -> tuple[str, ...]:
        return self.trial.closed if self.rewritten else (self.trial.item,) * self.trial.made

    @property
    def shows(self) -> tuple[str, ...]:
        return (self.trial.item,) * self.trial.made if self.rewritten else self.trial.closed


class Rewrites:
    """Thread-safe. What the file says of the rewrites inside `scope`. seed: of draws in a memory without a file, None for ones
    that nobody can foretell."""

    def __init__(self, store: Store, scope: Scope, seed: int | None) -> None:
        self.store, self.scope = store, scope
        in_memory = store.database.in_memory
        self._salt = str(seed) if in_memory and seed is not None else store.store_id()
        self._lock = threading.RLock()
        self._forget()
        forking.register(self)

    def before_fork(self) -> None:
        """Nothing waits here."""

    def after_fork(self, *, child: bool) -> None:
        if child:
            self._lock = threading.RLock()
            self._forget()

    def _forget(self) -> None:
        self._head = -1
        self._trials: dict[str, TrialOfRewrite] = {}
        self._over: dict[str, dict[str, Any]] = {}
        self._gone = log.NOTHING
        self._ledger: Ledger | None = None
        self._rows, self._settled = 0, 0
        self._low, self._high, self._total = math.inf, -math.inf, 0.0
        self._rewards = 0
        self._checked, self._sound = -1, set[str]()
        self._layers: dict[tuple[Scope, int | None, tuple[str, ...]], tuple[Layer, ...]] = {}

    # What the file says.

    def _follow(self) -> None:
        with self.store.database.reading() as connection:
            head = scalar(connection, "SELECT max(seq) FROM events") or 0
            if head == self._head:
                return
            if self._head < 0 or log.turned_back(connection, self._head):
                self._forget()
                self._gone = log.cancelled(connection)
            since, self._head = max(self._head, 0), -1
            self._notes(connection, since)
            if self._trials:
                # What was searched before the first trial began says nothing of it.
                self._learn(connection, max(since, min(each.seq for each in self._trials.values())))
            self._head = head

    def _notes(self, connection: AnyConnection, since: int) -> None:
        query = (
            f"SELECT seq, scope, payload FROM events WHERE {OF_KIND} AND kind = '{PARAMETERS}' AND seq > ? AND payload IS NOT "
            "NULL AND json_extract(payload, '$.name') = ? ORDER BY seq"
        )
        for seq, home, payload in select(connection, query, (since, NAME)):
            scope, body = self.store.scope_named(connection, home), json.loads(payload)
            if not self.scope.contains(scope):
                continue
            if body.get("what") == "begun":
                bounds = body["bounds"]
                plan = TrialTerms(body["of"], body["margin"], None if bounds is None else tuple(bounds))
                begun = TrialOfRewrite(
                    body["merge"], body["item"], tuple(body["originals"]), scope, body["saves"], plan
                )
                self._trials[begun.source] = begun
            elif body.get("what") == "over" and seq not in self._gone:
                self._over[body["source"]] = body

    def _learn(self, connection: AnyConnection, since: int) -> None:
        from keepworth.memory.policy.ledger import Ledger

        self._ledger = self._ledger or Ledger()
        listed = log.news(connection, self.scope, self._gone, since)

        def scope_of(id: int) -> Scope:
            return self.store.scope_named(connection, id)

        for each, about in log.with_choices(connection, scope_of, listed, self._gone):
            for choice, reward, weight in log.credited(about()[2], each.value):
                self._add(choice, each.episode, reward, weight)

    def _add(self, choice: Choice, episode: str, reward: float, weight: float) -> None:
        arms = choice.details.get("rewrites", {})
        usual = self._total / self._rewards if self._rewards else 0.0
        assert self._ledger is not None
        self._ledger.add(
            episode or choice.decision.id,
            choice.decision.id,
            reward,
            weight,
            [source for source, (_, rewritten) in arms.items() if rewritten],
            {source: p for source, (p, _) in arms.items()},
            choice.details.get("expected", usual),
            self._rows,
            (self._low, self._high) if self._rewards else (-math.inf, math.inf),
        )
        self._rows += 1
        self._low, self._high = min(self._low, reward), max(self._high, reward)
        self._total, self._rewards = self._total + reward, self._rewards + 1

    def _account(self, source: str) -> Account | None:
        if self._ledger is None:
            return None
        low, high = self._trials[source].plan.bounds or (math.inf, -math.inf)
        return self._ledger.account(source, max(max(high, self._high) - min(low, self._low), 0.0))

    def _open(self) -> list[TrialOfRewrite]:
        """Those that are neither over nor rolled back."""
        return [each for each in self._trials.values() if each.source not in self._over and each.seq not in self._gone]

    def _running(self, items: Mapping[str, Item | None]) -> list[TrialOfRewrite]:
        """Those of `_open` of which nobody changed anything since."""
        return [each for each in self._open() if _as_it_was(each, items)]

    def listed(self, scope: Scope) -> list[Rewrite]:
        """All that there are inside `scope`, in order."""
        with self._lock:
            self._follow()
            trials = [each for each in self._trials.values() if scope.contains(each.scope)]
            items = self.store.fetch(self.scope, [id for each in trials for id in (each.item, *each.originals)])
            return [self._described(each, items) for each in trials]

    def _described(self, trial: TrialOfRewrite, items: Mapping[str, Item | None]) -> Rewrite:
        over, item = self._over.get(trial.source), items.get(trial.item)
        why = "" if over is None else over["why"]
        if trial.seq in self._gone:
            state, why = TAKEN_BACK, why or "by hand, or because an original was deleted"
        elif over is not None:
            state = STAYS
            why = why if over["stays"] else f"{why}: it was"
        else:
            state = TESTED if _as_it_was(trial, items) else CHANGED
        text = "" if item is None else item.text
        if item is None and trial.made:
            text = self._text_before(trial)
        account = self._account(trial.source)
        return Rewrite(trial.item, text, trial.originals, trial.source, trial.saves, state, why, account)

    def _text_before(self, trial: TrialOfRewrite) -> str:
        """Of what is rolled back; "" where it was erased."""
        past = self.store.history(self.scope, trial.item)
        return next((each.before.text for each in reversed(past) if each.before is not None), "")

    # Searching.

    def arms(self, scope: Scope, number: int, off: str | None) -> list[Arm]:
        """What the episode of this number is searched with: the arm of each trial inside `scope`. off: a source that is switched
        off in this episode; then nothing is tried, and what was made of that source gives way to its other originals."""
        with self._lock:
            self._follow()
            trials = [each for each in self._trials.values() if scope.contains(each.scope)]
            if not trials:
                return []
            if self._rows != self._settled:
                # Another process gave the reward, or was killed before it did what follows from it.
                self.settle()
            if off:
                live = [each for each in trials if each.seq not in self._gone]
                items = self._members(live)
                return [Arm(each, False, 1.0) for each in live if _as_it_was(each, items) and _from(off, each, items)]
            trials = [each for each in self._open() if scope.contains(each.scope)]
            if self._checked != self._head:
                self._sound = {each.source for each in self._running(self._members(self._open()))}
                self._checked = self._head
            return [self._drawn(each, number) for each in trials if each.source in self._sound]

    def _drawn(self, trial: TrialOfRewrite, number: int) -> Arm:
        """The same for every search of an episode, in every process: a hash that the file keeps to itself."""
        digest = hashlib.blake2b(f"{self._salt}/{trial.source}/{number}".encode(), digest_size=8).digest()
        p = 1.0 - trial.plan.originals
        return Arm(trial, int.from_bytes(digest, "little") / 2.0**64 < p, p)

    def _members(self, trials: Sequence[TrialOfRewrite]) -> dict[str, Item | None]:
        return self.store.fetch(self.scope, [id for each in trials for id in (each.item, *each.originals)])

    def both(self, scope: Scope, arms: Sequence[Arm]) -> Overlay:
        """The memory of `scope` with rewrites and originals side by side."""
        overlay = Overlay(self.store.base(scope), self.store.embedder)
        closed = [id for arm in arms for id in arm.trial.closed]
        with self._lock:
            key = scope, self.store.set_id, tuple(arm.trial.source for arm in arms)
            layers = self._layers.get(key)
            if layers is None:
                items = [item for item in self.store.fetch(scope, closed).values() if item is not None]
                for item in items:
                    overlay.put(_reopened(item))
                if items:
                    overlay.layers[-1].preset(self.store.vectors_for(items))
                self._layers = {key: overlay.layers}
            else:
                overlay.layers = layers
        return overlay

    def shown(self, hits: Sequence[Hit], arms: Sequence[Arm], k: int, most: int) -> tuple[list[Hit], list[Arm]]:
        """See `split`. Originals are as they are on file now."""
        there, different = split(hits, arms, k, most)
        closed = {id for arm in arms if not arm.rewritten for id in arm.trial.closed}
        fresh = self.store.fetch(self.scope, [hit.id for hit in there if hit.id in closed])
        now = {id: _reopened(item) for id, item in fresh.items() if item is not None}
        return [explained(replace(hit, item=now.get(hit.id, hit.item)), arms) for hit in there], different

    # Beginning a trial, and ending it.

    def groups(self, scope: Scope, near: float, most: int) -> Iterator[tuple[str, ...]]:
        """Ids of items that are near in meaning, and of one scope, kind and metadata; each in one group at most. What is on trial
        waits, and what was rewritten together and taken back does not meet again."""
        if self.store.embedder is None:
            raise NoEncoder(
                "what belongs together is found by meaning: open the memory with an encoder, or give groups="
            )
        taken = {id for each in self._tested() for id in (each.item, *each.originals)}
        apart = self._apart()
        time = timestamp(self.store.clock())
        for part, view in self._parts(scope):
            vectors = self.store.vectors_for(part)
            there = [item for item in part if item.id in vectors]
            if not there:
                continue
            import numpy as np

            lines = view(np.stack([vectors[item.id][0] for item in there]))
            known = self.store.fetch(scope, list({id for line in lines for id, _ in line}))
            for item, line in zip(there, lines, strict=True):
                if item.id in taken or not _may_be_rewritten(item, time):
                    continue
                group = [item]
                for id, cosine in line:
                    other = known[id]
                    if len(group) == most or cosine < near:
                        break
                    if other is None or id == item.id or id in taken or not _may_be_rewritten(other, time):
                        continue
                    if _alike(item, other) and not any(frozenset((id, each.id)) in apart for each in group):
                        group.append(other)
                if len(group) > 1:
                    taken.update(each.id for each in group)
                    yield tuple(sorted((each.id for each in group), key=lambda id: int(id[1:])))

    def _parts(self, scope: Scope) -> Iterator[tuple[list[Item], Callable[[Vectors], list[list[tuple[str, float]]]]]]:
        after = 0
        while part := list(self.store.items(scope, after=after, limit=BATCH, current=True)):
            after = int(part[-1].id[1:])
            for home in dict.fromkeys(item.scope for item in part):
                view = self.store.view(home)
                yield [item for item in part if item.scope == home], partial(_nearest, view)

    def _tested(self) -> list[TrialOfRewrite]:
        with self._lock:
            self._follow()
            return self._running(self._members(self._open()))

    def testing(self) -> int:
        """How many trials are under way."""
        return len(self._tested())

    def _apart(self) -> set[frozenset[str]]:
        """Pairs of originals of what was taken back."""
        back = [each for each in self._trials.values() if each.seq in self._gone]
        return {
            frozenset((one, other))
            for each in back
            for one in each.originals
            for other in each.originals
            if one != other
        }

    def refusal(self, scope: Scope, ids: Sequence[str]) -> str:
        """Why a group that somebody names cannot be rewritten, "" where it can. scope: what who names it may see."""
        known = self.store.fetch(scope, ids)
        tested = {id for each in self._tested() for id in (each.item, *each.originals)}
        first, time, apart = known[ids[0]], timestamp(self.store.clock()), self._apart()
        if len(set(ids)) < 2:
            return "a group has two items at least"
        for id in ids:
            item = known[id]
            if item is None or not item.current:
                return f"{id:.40} is no current item of this memory"
            if not _may_be_rewritten(item, time):
                return f"{id} cannot be rewritten: it has a key, an end, or is a case, a core item or a policy's own"
            if id in tested:
                return f"{id} is on trial already"
            if first is not None and not _alike(first, item):
                return f"{ids[0]} and {id} differ in scope, kind or metadata"
        if any(frozenset((one, other)) in apart for one in ids for other in ids if one != other):
            return "it was rewritten before, and taken back"
        return ""

    def begin(self, asked: Sequence[Item], text: str, plan: TrialTerms) -> str | Rewrite:
        """Put a rewrite of `asked`, as they were when the rewriter was asked, on trial: one transaction. Or why not."""
        vectors = self.store.encode([text])

        def work(transaction: Transaction) -> str | TrialOfRewrite:
            for each in asked:
                present = transaction.get(each.id)
                if (
                    present is None
                    or not present.current
                    or (present.text, present.revision) != (each.text, each.revision)
                ):
                    return f"{each.id} changed while the rewriter was at work"
            seq, now, first = transaction.seq, self.store.clock(), asked[0]
            act = Operation(OperationKind.MERGE, tuple(each.id for each in asked), text)
            draft = Draft(
                kind=first.kind, scope=first.scope, metadata=first.metadata, provenance=Provenance(f"{SOURCE}m{seq}")
            )
            proposed = new_item(text, draft, new_id=f"m{seq}", now=now)
            if not set(transaction.duplicates_of(proposed)) <= set(act.targets):
                return "another item says the same as the rewrite"
            outcome = transaction.perform(act, draft, now=now)
            if not outcome.applied:
                return outcome.reason
            saves = sum(len(each.text) for each in asked if each.id != outcome.item) - len(text) * (
                outcome.item == f"m{seq}"
            )
            begun = TrialOfRewrite(seq, outcome.item, act.targets, first.scope, saves, plan)
            body = {
                "name": NAME,
                "what": "begun",
                "merge": seq,
                "item": begun.item,
                "originals": begun.originals,
                "saves": saves,
                "of": plan.originals,
                "margin": plan.margin,
                "bounds": plan.bounds,
            }
            transaction.write_event(PARAMETERS, first.scope, json.dumps(body), now=now, source=begun.source)
            return begun

        done = self.store.change(self.scope, work, vectors)
        if isinstance(done, str):
            return done
        with self._lock:
            self._follow()
            return self._described(done, self._members([done]))

    def settle(self) -> list[Rewrite]:
        """End the trials of which enough is known."""
        with self._lock:
            self._follow()
            self._settled = self._rows
            ended = [(each, *end) for each in self._open() if (end := self._end(each)) is not None]
            done = [each for each, stays, why in ended if self._ended(each, stays, why)]
            if not done:
                return []
            self._follow()
            items = self._members(done)
            return [self._described(each, items) for each in done]

    def _end(self, trial: TrialOfRewrite) -> tuple[bool, str] | None:
        """(whether it stays, why), None where too little is known."""
        known = self._account(trial.source)
        if known is None or not math.isfinite(known.low):
            return None
        about = f"effect {known.effect:+.2f}, 95 % {known.low:+.2f} to {known.high:+.2f}, {known.rows} episodes"
        if known.high < 0.0:
            return False, f"it harms: {about}"
        if known.low > 0.0:
            return True, f"it helps: {about}"
        if known.low > -trial.plan.margin * known.span:
            return True, f"it is shorter, and not worse by {trial.plan.margin:g} of the range of rewards: {about}"
        return None

    def _ended(self, trial: TrialOfRewrite, stays: bool, why: str) -> bool:
        """Write it to the file, once whoever comes first."""

        def work(transaction: Transaction) -> bool:
            connection, now = transaction.connection, self.store.clock()
            if trial.seq in log.cancelled(connection) or self._has_ended(connection, trial):
                return False
            ended = why
            if not stays:
                reason = f"{trial.source} {why}"
                done = undo.roll_back(transaction, ((trial.seq, trial.seq),), now=now, reason=reason, scope=trial.scope)
                ended = f"{why}; rollback({done.id!r}) brings it back"
            body = {"name": NAME, "what": "over", "source": trial.source, "stays": stays, "why": ended}
            transaction.write_event(PARAMETERS, trial.scope, json.dumps(body), now=now)
            return True

        return bool(self.store.change(self.scope, work))

    def _has_ended(self, connection: AnyConnection, trial: TrialOfRewrite) -> bool:
        query = (
            f"SELECT seq FROM events WHERE {OF_KIND} AND kind = '{PARAMETERS}' AND seq > ? AND payload IS NOT NULL AND "
            "json_extract(payload, '$.name') = ? AND json_extract(payload, '$.what') = 'over' AND "
            "json_extract(payload, '$.source') = ?"
        )
        gone = log.cancelled(connection)
        return any(seq not in gone for (seq,) in select(connection, query, (trial.seq, NAME, trial.source)))


def split(hits: Sequence[Hit], arms: Sequence[Arm], k: int, most: int) -> tuple[list[Hit], list[Arm]]:
    """Of a search over both: at most `most` hits of what is searched, and the arms that make a difference to the first `k`. That
    depends on no draw of the same trial."""
    listed = [hit.id for hit in hits]
    there = set(listed)
    hidden = {id for arm in arms for id in arm.hides}
    different = []
    for arm in arms:
        made, closed = {arm.trial.item} if arm.trial.made else set(), set(arm.trial.closed)
        if there.isdisjoint(made | closed):
            continue
        others = hidden - set(arm.hides)
        sides = [[id for id in listed if id not in others and id not in side][:k] for side in (closed, made)]
        if not made.isdisjoint(sides[0]) or not closed.isdisjoint(sides[1]):
            different.append(arm)
    return [hit for hit in hits if hit.id not in hidden][:most], different


def logged(arms: Iterable[Arm]) -> dict[str, list[float]]:
    """What is logged with a search: the probability of the rewrite, and whether it was searched."""
    return {arm.trial.source: [arm.p, int(arm.rewritten)] for arm in arms if arm.p < 1.0}


def explained(hit: Hit, arms: Sequence[Arm]) -> Hit:
    """The hit, with what it is to a rewrite."""
    for arm in arms:
        if hit.why is not None and hit.id in (arm.trial.item, *arm.trial.closed):
            others = ", ".join(arm.trial.originals)
            role = f"rewrites {others}" if arm.rewritten else f"in the place of {arm.trial.item}, which rewrites it"
            p = arm.p if arm.rewritten else 1.0 - arm.p
            return replace(hit, why=replace(hit.why, rewrite=f"{role}; on trial, searched with probability {p:.2f}"))
    return hit


def _nearest(view: ScopeView, vectors: Vectors) -> list[list[tuple[str, float]]]:
    return view.by_meaning(vectors, NEIGHBOURS)


def _as_it_was(trial: TrialOfRewrite, items: Mapping[str, Item | None]) -> bool:
    item = items.get(trial.item)
    if item is None or not item.current or (trial.made and item.revision):
        return False
    originals = [items.get(id) for id in trial.closed]
    return all(each is not None and not each.deleted and each.superseded_by == trial.item for each in originals)


def _from(source: str, trial: TrialOfRewrite, items: Mapping[str, Item | None]) -> bool:
    """Whether some original is from `source`."""
    return any(item is not None and item.provenance.source == source for item in map(items.get, trial.originals))


def _reopened(item: Item) -> Item:
    return replace(item, ended_at="", superseded_by="")


def _may_be_rewritten(item: Item, time: str) -> bool:
    """A text that stands for itself: not a case, a core item, what ends, what is found by a key or what a policy reads."""
    plain = item.kind not in (ItemKind.CASE, ItemKind.CORE) and not item.key and "do" not in item.metadata
    return plain and item.visible(time) and not (item.valid_to or item.expires_at) and item.status is Status.ACTIVE


def _alike(one: Item, other: Item) -> bool:
    return (one.scope, one.kind, one.metadata) == (other.scope, other.kind, other.metadata)


# What a rewriter says.

_ORDERS = re.compile(
    r"\b(ignore|disregard|forget|override)\b[^.\n]{0,40}\b(previous|above|prior|earlier|preceding|all)\b"
    r"|\bsystem prompt\b|\byou are now\b|\bnew instructions?\b|\bdo not (tell|reveal|mention)\b"
    r"|^\s*(system|assistant|developer)\s*:|<\|?\s*/?\s*(system|assistant|im_start|im_end|tool_call)\b|\[/?INST\]",
    re.I | re.M,
)
"""Signs of a text that gives orders to who reads it. A list of signs and no proof; what it lets through is text, and escaped."""


def refused(proposed: object, originals: Sequence[str]) -> tuple[str, str]:
    """(the text, ""), or ("", why it cannot stand in the place of `originals`)."""
    if isinstance(proposed, (list, tuple)) and all(isinstance(each, str) for each in proposed):
        proposed = "\n".join(each for each in proposed if each.strip())
    if proposed is None or (isinstance(proposed, str) and not proposed.strip()):
        return "", "the rewriter gave nothing"
    if not isinstance(proposed, str):
        return "", f"the rewriter gave {type(proposed).__name__}, which is no text"
    text, size = proposed.strip(), sum(map(len, originals))
    if len(text) > size:
        return "", "the rewrite is longer than its originals together"
    problem = text_problem(text)
    if problem is not None:
        return "", f"the rewrite cannot be remembered: {re.sub(r'[0-9]+', 'N', problem)}"
    if _ORDERS.search(text) and not any(map(_ORDERS.search, originals)):
        return "", "the rewrite gives orders to who reads it, and its originals do not"
    return text, ""


class NoAnswer(Exception):
    """A rewriter did not answer in time."""


def answer_of(rewrite: Rewriter, texts: Sequence[str], seconds: float) -> object:
    """What `rewrite` makes of the texts. Raises NoAnswer, and whatever it raises. One that hangs is left behind on a thread that
    ends with the process: nothing it says later is used."""
    out: list[object] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            out.append(rewrite(list(texts)))
        except BaseException as error:  # handed to who waits
            errors.append(error)

    thread = threading.Thread(target=ask, name="keepworth-rewriter", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not out:
        raise NoAnswer
    return out[0]


def merged_by(complete: Callable[[str], str]) -> Rewriter:
    """A rewriter that asks a model. complete: a prompt -> what the model says, such as a chat endpoint or a model in process."""
    if not callable(complete):
        raise InvalidText(f"merged_by takes a function of a prompt, got {complete!r:.60}")

    def rewrite(texts: Sequence[str]) -> str:
        lines = "\n".join(f"- {as_line(text)}" for text in texts)
        return complete(PROMPT.format(lines=lines))

    return rewrite


PROMPT = """These notes belong together:
{lines}

Write one note that says all of it, and nothing else. Keep every name, number, date, condition and "not". \
It must be shorter than the notes together. Answer with the note alone."""


def consolidate(
    rewrites: Rewrites,
    learning: Learning | None,
    scope: Scope,
    rewrite: Rewriter,
    *,
    groups: Sequence[Sequence[str]] | None = None,
    near: float = NEAR,
    most: int = MOST,
    at_once: int = AT_ONCE,
    limit: int = LIMIT,
    seconds: float = SECONDS,
    originals: float = ORIGINALS,
    margin: float = MARGIN,
) -> Consolidation:
    """The verb `Memory.consolidate`. learning: of the memory, whose rewards and policy decide; None where it has none.

    groups: by id; by default items of one scope, kind and metadata, nearer than the cosine `near` to one of them, at most
    `most` in a group. at_once: trials that run at the same time; limit: groups that are asked for at most; seconds: for one
    answer. originals: the share of episodes that are searched with the originals; margin: what a shorter rewrite may cost to
    stay, of the range of rewards. Raises NoEncoder, InvalidFilter, InvalidPolicy, ReadOnly."""
    rewrites.store.database.check_writable()
    if not callable(rewrite):
        raise InvalidFilter(f"rewrite must be a function of several texts that gives one, got {rewrite!r:.60}")
    check(near, most, at_once, limit, seconds)
    plan = TrialTerms(originals, margin, None if learning is None else learning.reward_range)
    if learning is not None:
        learning.name()
        check_policy(learning.searches, learning.policy)
    rewrites.settle()
    listed = rewrites.groups(scope, near, most) if groups is None else groups_given(groups)
    return consolidated(rewrites, scope, rewrite, listed, plan, at_once=at_once, limit=limit, seconds=seconds)


def consolidated(
    rewrites: Rewrites,
    scope: Scope,
    rewrite: Rewriter,
    groups: Iterable[Sequence[str]],
    plan: TrialTerms,
    *,
    at_once: int,
    limit: int,
    seconds: float,
) -> Consolidation:
    """Ask for a rewrite of each group, and put it on trial. Whatever the rewriter does, nothing is lost."""
    begun: list[Rewrite] = []
    refusals: list[tuple[tuple[str, ...], str]] = []
    room, hangs = at_once - rewrites.testing(), 0
    for group in groups:
        if len(begun) >= room or len(begun) + len(refusals) >= limit:
            break
        ids = tuple(group)
        why = (
            "the rewriter did not answer before, and was not asked" if hangs >= HANGS else rewrites.refusal(scope, ids)
        )
        if not why:
            known = rewrites.store.fetch(scope, ids)
            items = [item for item in known.values() if item is not None]
            texts = [item.text for item in items]
            try:
                text, why = refused(answer_of(rewrite, texts, seconds), texts)
            except NoAnswer:
                hangs, text, why = hangs + 1, "", f"the rewriter did not answer within {seconds:g} s"
            except (Exception, SystemExit) as error:
                text, why = "", f"the rewriter raised {type(error).__name__}"
            if not why:
                done = rewrites.begin(items, text, plan)
                if isinstance(done, Rewrite):
                    begun.append(done)
                else:
                    why = done
        if why:
            refusals.append((ids, why))
    return Consolidation(tuple(begun), tuple(refusals))


def groups_given(groups: object) -> list[tuple[str, ...]]:
    """Raises InvalidFilter for what is no list of lists of ids."""
    listed = [tuple(several(group, "a group", "m1")) for group in several(groups, "groups", "m1")]
    if not all(group and all(isinstance(id, str) for id in group) for group in listed):
        raise InvalidFilter('groups are lists of ids, such as [["m1", "m2"]]')
    return listed


def check(near: object, most: object, at_once: object, limit: object, seconds: object) -> None:
    """Raises InvalidFilter."""
    if not isinstance(near, Real) or isinstance(near, bool) or not 0.0 < float(near) <= 1.0:
        raise InvalidFilter(f"near is a cosine in (0, 1], got {near!r:.40}")
    for name, number, least in (("most", most, 2), ("at_once", at_once, 1), ("limit", limit, 1)):
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise InvalidFilter(f"{name} must be a whole number of at least {least}, got {number!r:.40}")
    if not isinstance(seconds, Real) or isinstance(seconds, bool) or not 0.0 < float(seconds) < math.inf:
        raise InvalidFilter(f"seconds must be a positive number, got {seconds!r:.40}")


def check_policy(searches: bool, name: str) -> None:
    """Raises InvalidPolicy where trials would never end."""
    if not searches:
        raise InvalidPolicy(
            f"policy {name!r} finds items itself, and would never show originals in the place of a rewrite.",
            "Open the memory with policy='default' or None to consolidate it.",
        )
