"""A writer that keeps what matters under a budget, and learns from rewards what that is; no model is touched.

`Keeper` stands over a writer that finds facts. Each fact has an importance: a linear score of its text
(`importance.features`, with the vectors of the memory's own encoder) plus, while it explores, Gumbel noise. Where there are
more than `most`, the least important goes, a new one too: it is deleted, which can be undone, and the choice is logged with
the probability that it had.

The noise is an experiment: which facts were in memory when a reward came was decided by chance, in a way that is known, and
can be drawn again. So with X the sum of the features of what was in memory, and E X its mean over such draws,

    reward - usual = (X - E X) weights + noise

has no bias, whatever else changes with time: E X takes out what would have happened under any draw ("Quasi-Oracle Estimation
of Heterogeneous Treatment Effects", arXiv 1712.04912, eq. 4; the draws are Plackett-Luce, arXiv 1903.06059). The fit is ridge
regression, its penalty by cross-validation over blocks of time. It takes what facts are worth to add up.

Before new weights are used, the log says what they would have earned. The rewards are cut into blocks of time; the weights for
each block are fitted without it and without what is next to it. With s a fact's scores by these weights and by those in use,
and S their sums over what is in memory, the worth of a unit of each is

    b = (E SUM (S - E S) (S - E S)')^-1 SUM (S - E S) (reward - usual),

all less the means of their block and what is linear in E S, and the new weights earn b' (S_new - S_old) more per reward, with
the memory that each would have had. The error is that of the same sum over memories drawn again: a randomisation test (Fisher,
"The Design of Experiments", 1935). Each look is allowed its own share of the 5 %, 1 / (k (k + 1)) at the k-th, so looking often
promotes nothing by luck.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.episodes.episode import Decision, DecisionKind, Operation, OperationKind
from keepworth.memory.errors import InvalidAdvice, InvalidPolicy
from keepworth.memory.item import Item, folded, timestamp
from keepworth.memory.policy.importance import FEATURES, features
from keepworth.memory.policy.pool import Advice
from keepworth.memory.policy.slots import Finished, Writer, need, written
from keepworth.memory.store import log

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.memory.memory import Memory
    from keepworth.memory.store.store import Store

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]
    Whole = npt.NDArray[np.intp]

NAME, CHECK = "keeper", "keeper's check"
"""Of what a memory file holds of it: the weights in use, and the latest check."""
PINNED = "pinned"
"""The key of an item's metadata that, where true, lets it never go."""
FOLDS, NEIGHBOURS = 5, 0.25
"""Blocks of time, and how much of a block next to one is left out of its fit: what is in memory stays for a while."""
PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""In mean variances of a feature."""
DRAWS = 200
"""How often what was in memory is drawn again."""
NEWEST = 5_000
"""Rewards that are learned from, the newest."""
LEAST, LEAST_TURNS = 50, 3
"""Rewards, and facts given up by chance for each place, before there is an interval."""
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Withdrawal(Operation):
    """The DELETE of what matters least. key: its importance with noise; chance: that it goes, given the keys of the others;
    version: of the weights, 0 where there were none; temperature, fading, most: of the keeper."""

    key: float = 0.0
    chance: float = 1.0
    version: int = 0
    temperature: float = 0.0
    fading: float = math.inf
    most: int = 0

    def decision(self, id: str, gone: str, head: int) -> tuple[Decision, str]:
        """As it is logged, with its details. gone: the item as the memory knows it; head: the newest entry of the journal."""
        details = {
            "odds": {gone: 1.0 - self.chance},
            "key": self.key,
            "temperature": self.temperature,
            "most": self.most,
            "head": head,
        }
        if math.isfinite(self.fading):
            details["fading"] = self.fading
        chosen = Decision(
            id, DecisionKind.WRITE, "", ((gone, self.key),), (gone,), max(self.chance, 1e-300), f"keeper:{self.version}"
        )
        return chosen, json.dumps(details, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Weights:
    """values: of `importance.features`, in standard deviations of importance; version: their number, 0 where nothing was
    promoted: then the oldest goes, or, with noise, anyone; before: the version that they took the place of."""

    values: tuple[float, ...] = ()
    version: int = 0
    before: int = 0


@dataclass(frozen=True, slots=True)
class KeeperCheck:
    """What new weights would have earned beside those in use. value: reward more per rewarded episode, with an interval from
    low to high that leaves 5 % to all looks together; look: the number of this one; rewards, facts: that it rests on; needed:
    about how many more rewards would settle it, 0 where they are promoted and -1 where that cannot be said; reason: why not
    promoted, "" where they were."""

    promoted: bool
    value: float
    low: float
    high: float
    rewards: int
    facts: int
    look: int
    needed: int
    reason: str
    against: str

    def __str__(self) -> str:
        answer = "promoted" if self.promoted else f"not promoted, {self.reason}"
        if math.isfinite(self.low):
            answer += (
                f": {self.value:+.3f} reward an episode against {self.against} ({self.low:+.3f} to {self.high:+.3f})"
            )
        more = f"; about {self.needed:,} more rewards would settle it" if self.needed > 0 else ""
        return f"{answer}, from {self.rewards:,} rewards and {self.facts:,} facts{more}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Keeper:
    """At most `most` items of what `facts` finds, those that matter: `Memory(path, writer=Keeper(Facts(extract), most=200))`.

    temperature: of the noise, in standard deviations of importance; 0 is frozen, and then nothing new can be learned about
    what is given up. fading: days after which a fact is one standard deviation less important than a new one that says the
    like; by default none is. source: as which its items are stored; the budget is for each scope that is written in. seed: of
    the noise, which a text has for good: what was refused once is refused when it is said again.

    An item goes never while its metadata say {"pinned": True}; it takes its place in the budget."""

    facts: Writer
    most: int
    temperature: float = 0.5
    fading: float = math.inf
    source: str = "writer"
    seed: int = 0

    def __post_init__(self) -> None:
        need("a keeper", count={"most": self.most})
        if not callable(self.facts):
            raise InvalidAdvice(f"Keeper({self.facts!r:.40}) has nothing that finds facts.", "Give it Facts(extract).")
        if not (isinstance(self.temperature, (int, float)) and 0.0 <= self.temperature < math.inf):
            raise InvalidPolicy(f"the temperature of a keeper is {self.temperature!r:.40}.", "Give a number from 0 on.")
        if not (isinstance(self.fading, (int, float)) and self.fading > 0.0):
            raise InvalidPolicy(f"the fading of a keeper is {self.fading!r:.40}.", "Give days, more than 0.")

    def __call__(self, finished: Finished) -> Iterator[Advice | Operation]:
        if finished.memory is None or finished.bank is None:
            raise InvalidAdvice("a keeper writes for messages.", "Use it as Memory(path, writer=Keeper(...)).")
        if finished.source != self.source:
            raise InvalidAdvice(
                f"this keeper has a budget for source {self.source!r}, and would store under {finished.source!r:.60}.",
                "Leave source= out, or name it: Keeper(..., source=...).",
            )
        bank, store = finished.bank(), finished.memory.store
        weights = self._weights(finished.memory)
        own = {item.id: item for item in bank.items() if item.provenance.source == self.source}
        keys = dict(zip(own, self._scores(list(own.values()), weights, store), strict=True))
        done = len(bank.journal)
        for operation in written(self.facts, finished):
            yield operation
            for id in (id for entry in bank.journal[done:] for id in entry.outcome.changed):
                item = bank.find(id)
                if item is not None and item.current and item.provenance.source == self.source:
                    own[id], keys[id] = item, self._scores([item], weights, store)[0]
                else:
                    own.pop(id, None)
            while (gone := self._least(own, keys, weights.version)) is not None:
                yield gone
                del own[gone.targets[0]]
            done = len(bank.journal)

    def _least(self, own: dict[str, Item], scores: dict[str, float], version: int) -> Withdrawal | None:
        """What goes next; None where there is room, or all is pinned."""
        free = [item for item in own.values() if not item.metadata.get(PINNED)]
        if len(own) <= self.most or not free:
            return None
        keyed = [(scores[each.id] + self.temperature * luck(each.text, self.seed), int(each.id[1:])) for each in free]
        order = sorted(range(len(free)), key=keyed.__getitem__)
        gone, key, chance = free[order[0]].id, keyed[order[0]][0], 1.0
        if self.temperature and len(free) > 1:
            chance = 1.0 - above(keyed[order[1]][0], scores[gone], self.temperature)
        return Withdrawal(
            OperationKind.DELETE,
            (gone,),
            "",
            key,
            chance,
            version,
            float(self.temperature),
            float(self.fading),
            self.most,
        )

    def _scores(self, items: Sequence[Item], weights: Weights, store: Store) -> list[float]:
        said = _features(items, store) @ np.array(weights.values) if weights.values else np.zeros(len(items))
        return [float(score) for score in said + _days(items) / self.fading]

    # Learning.

    def weights(self, memory: Memory) -> dict[str, float]:
        """Of the hand-made features, by name, in standard deviations of importance; empty while nothing was promoted."""
        return dict(zip(FEATURES, self._weights(memory).values, strict=False))

    def check(self, memory: Memory) -> KeeperCheck | None:
        """The latest check; None where there was none."""
        on_file = memory.store.parameters(memory.scope, CHECK)
        return None if on_file is None else KeeperCheck(**_read(on_file[1]))

    def demote(self, memory: Memory) -> None:
        """Back to the weights before the last promotion. Raises InvalidPolicy where there are none."""
        now = self._weights(memory)
        if not now.version:
            raise InvalidPolicy("no weights were promoted in this memory.", "There is nothing to go back to.")
        _keep(memory, NAME, asdict(replace(_weights_at(memory, now.before), version=0)))

    def learned(self, memory: Memory) -> KeeperCheck:
        """Learn weights from what this memory measured, and use them from now on if they would surely have earned more."""
        now = self._weights(memory)
        before = self.check(memory)
        seen = evidence(memory, self.source)
        old = np.array(now.values) if now.values else None
        found, values = checked(seen, old, self.most, self.fading, 1 if before is None else before.look + 1)
        if found.promoted:
            rounded = tuple(float(f"{each:.6g}") for each in values)
            _keep(memory, NAME, asdict(Weights(rounded, before=now.version)))
        _keep(memory, CHECK, asdict(found))
        return found

    def _weights(self, memory: Memory) -> Weights:
        found = _weights_at(memory)
        width = len(FEATURES) + 1 + _dimension(memory.store)
        if found.values and len(found.values) != width:
            raise InvalidPolicy(
                f"{memory.path} holds weights of {len(found.values)} features, and this encoder makes {width}.",
                "Open it with the encoder that they were learned with, or take them back: keeper.demote(memory).",
            )
        return found


def _days(items: Sequence[Item]) -> Floats:
    """[n]: since 2020, when each was written."""
    return np.array(
        [(datetime.fromisoformat(timestamp(item.written_at)) - _BEGIN).total_seconds() / 86_400.0 for item in items]
    )


_BEGIN = datetime(2020, 1, 1)


def luck(text: str, seed: int) -> float:
    """A Gumbel draw that a text has for good."""
    digest = hashlib.blake2b(f"{seed}\0{folded(text)}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return -math.log(-math.log((int.from_bytes(digest, "big") + 0.5) / 2.0**64))


def above(bar: float, score: float, temperature: float) -> float:
    """The probability that score + temperature * Gumbel noise lies above `bar`."""
    return -math.expm1(-math.exp(min(700.0, (score - bar) / temperature)))


def _weights_at(memory: Memory, version: int | None = None) -> Weights:
    """Those in use, or those of a version."""
    if version == 0:
        return Weights()
    snapshot = None if version is None else f"s{version}"
    on_file = memory.store.parameters(memory.scope, NAME, snapshot)
    if on_file is None:
        return Weights()
    body = _read(on_file[1])
    values = tuple(map(float, body["values"]))
    return Weights(values, on_file[0] if values else 0, int(body["before"]))


def _keep(memory: Memory, name: str, body: dict[str, Any]) -> None:
    memory.store.put_parameters(memory.scope, name, json.dumps(body, separators=(",", ":")).encode())


def _read(body: bytes) -> dict[str, Any]:
    return dict(json.loads(body))


def _dimension(store: Store) -> int:
    return store.embedder.identity.dimension if store.embedder is not None else 0


def _features(items: Sequence[Item], store: Store) -> Floats:
    """[n, d]: `importance.features`, with the vectors that are on file."""
    hand = features([item.text for item in items])
    if store.embedder is None or not items:
        return np.concatenate([hand, np.zeros((len(items), _dimension(store)))], axis=1)
    vectors = store.vectors_for(items)
    return np.concatenate([hand, np.stack([vectors[item.id][0] for item in items]).astype(np.float64)], axis=1)


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A choice of what goes. entry: of the journal; scope: its number; scores: [n], of all facts, by the weights of then;
    temperature, most: of then."""

    entry: int
    scope: int
    scores: Floats
    temperature: float
    most: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a memory knows of n facts and of its rewards, both in order of the journal.

    features: [n, d]; text: [n], a number that those share which say the same; came: [n], the entry of the journal; left: [n], the
    entry with which it went, or infinity; ended: [n], the entry with which another fact took its place, whatever is kept, or
    infinity; scope: [n], a number; pinned: [n]; days: [n], when it came. rewarded: (entry, reward, the scopes that saw it)."""

    features: Floats
    text: Whole
    came: Floats
    left: Floats
    ended: Floats
    scope: Whole
    pinned: Bools
    days: Floats
    gave_up: tuple[GivenUp, ...]
    rewarded: tuple[tuple[int, float, frozenset[int]], ...]


def evidence(memory: Memory, source: str) -> Evidence:
    """Read from the log. Facts that never met a reward take part only as what might have been in memory."""
    store, scope = memory.store, memory.scope
    with store.database.reading() as connection:
        choices = log.withdrawals(connection, scope)
        # A later reward of the same thing takes the place of the earlier one.
        news = log.news(connection, scope, log.cancelled(connection))
        latest = {(each.episode, each.decision): each for each in news if math.isfinite(each.value)}
    ids = {choice.item for choice in choices}
    items = [
        item
        for item in store.items(scope)
        # What somebody else deleted was not this keeper's to decide, nor is known when.
        if item.provenance.source == source and (item.open or item.superseded_by or item.id in ids)
    ]
    place = {item.id: number for number, item in enumerate(items)}
    scopes = list(dict.fromkeys(item.scope for item in items))
    home = np.array([scopes.index(item.scope) for item in items], dtype=np.intp)
    listed, days, left = _features(items, store), _days(items), np.full(len(items), math.inf)
    gave_up: list[GivenUp] = []
    known: dict[int, Floats] = {}
    for each in choices:
        if each.item in place:
            if items[place[each.item]].deleted:  # else it was undone
                left[place[each.item]] = each.head
            if each.version not in known:
                values = np.array(_weights_at(memory, each.version).values)
                known[each.version] = listed @ values if len(values) == listed.shape[1] else np.zeros(len(items))
            scores = known[each.version] + days / each.fading
            gave_up.append(GivenUp(each.head, int(home[place[each.item]]), scores, each.temperature, each.most))
    texts: dict[str, int] = {}
    rewarded = [
        (each.seq, each.value, frozenset(n for n, inner in enumerate(scopes) if each.scope.contains(inner)))
        for each in sorted(latest.values(), key=lambda one: one.seq)
    ]
    ended = np.array([float(item.superseded_by[1:]) if item.superseded_by else math.inf for item in items])
    return Evidence(
        listed,
        np.array([texts.setdefault(folded(item.text), len(texts)) for item in items], dtype=np.intp),
        np.array([float(item.id[1:]) for item in items]),
        np.minimum(left, ended),
        ended,
        home,
        np.array([bool(item.metadata.get(PINNED)) for item in items], dtype=bool),
        days,
        tuple(gave_up),
        tuple(rewarded[-NEWEST:]),
    )


def drawn_again(seen: Evidence, values: Floats, draws: int, seed: int = 0) -> Iterator[Floats]:
    """For each reward, [1 + draws, c]: sums of `values` ([n, c]) over what was in memory, and over what might have been."""
    lucks = np.random.default_rng([41, seed]).gumbel(size=(draws, int(seen.text.max(initial=-1)) + 1))[:, seen.text]
    line, columns = np.arange(draws), values.shape[1]
    scopes = [int(each) for each in np.unique(seen.scope)]
    present = {scope: np.zeros((draws, len(seen.came)), dtype=bool) for scope in scopes}
    sums = {scope: np.zeros((draws, columns)) for scope in scopes}
    arrived = dict.fromkeys(scopes, -1.0)

    def advance(scope: int, entry: float) -> None:
        """Those that came, and those that something else took the place of, up to an entry."""
        mine = seen.scope == scope
        for fact in np.flatnonzero(mine & (seen.came > arrived[scope]) & (seen.came <= entry)):
            present[scope][:, fact] = True
            sums[scope] += values[fact]
        for fact in np.flatnonzero(mine & (seen.ended > arrived[scope]) & (seen.ended <= entry)):
            sums[scope] -= present[scope][:, fact, None] * values[fact]
            present[scope][:, fact] = False
        arrived[scope] = entry

    waiting = 0
    for entry, _, inside in seen.rewarded:
        while waiting < len(seen.gave_up) and seen.gave_up[waiting].entry < entry:
            choice = seen.gave_up[waiting]
            there, waiting = present[choice.scope], waiting + 1
            advance(choice.scope, choice.entry)
            while (over := there.sum(axis=1) > choice.most).any():
                some = np.flatnonzero((there & ~seen.pinned).any(axis=0))
                free = there[:, some] & ~seen.pinned[some]
                over &= free.any(axis=1)
                if not over.any():
                    break
                keys = np.where(free, choice.scores[some] + choice.temperature * lucks[:, some], np.inf)
                gone, rows = some[keys.argmin(axis=1)][over], line[over]
                there[rows, gone] = False
                sums[choice.scope][rows] -= values[gone]
        for scope in inside:
            advance(scope, entry)
        here = (seen.came < entry) & (seen.left > entry) & np.isin(seen.scope, list(inside))
        might = sum((sums[scope] for scope in inside), np.zeros((draws, columns)))
        yield np.concatenate([values[here].sum(axis=0)[None], might])


def fitted(x: Floats, y: Floats, blocks: Whole) -> Floats:
    """[d]: ridge regression of y ([t]) on x ([t, d]), both less what is usual, with the penalty that predicts blocks best."""
    errors = np.zeros(len(PENALTIES))
    for block in np.unique(blocks):
        here = blocks == block
        for number, weights in enumerate(_ridges(x[~here], y[~here])):
            errors[number] += float(((y[here] - x[here] @ weights) ** 2).sum())
    # Of equals the stronger penalty.
    return _ridges(x, y)[len(PENALTIES) - 1 - int(np.argmin(errors[::-1]))]


def _ridges(x: Floats, y: Floats) -> list[Floats]:
    """For each of `PENALTIES`."""
    size, axes = np.linalg.eigh(x.T @ x)
    product, size = axes.T @ (x.T @ y), size.clip(0.0)
    unit = float(size.mean()) or 1.0
    return [axes @ (product / (size + penalty * unit)) for penalty in PENALTIES]


def checked(
    seen: Evidence, old: Floats | None, most: int, fading: float = math.inf, look: int = 1, draws: int = DRAWS
) -> tuple[KeeperCheck, Floats]:
    """New weights, and what they would have earned beside `old` ([d], or None for first in, first out)."""
    against = "first in, first out" if old is None else "the weights in use"
    count, facts = len(seen.rewarded), len(seen.came)

    def refused(reason: str, needed: int = -1) -> tuple[KeeperCheck, Floats]:
        answer = KeeperCheck(False, 0.0, -math.inf, math.inf, count, facts, look, needed, reason, against)
        return answer, np.zeros(seen.features.shape[1])

    # Before the first was given up, everything was in memory.
    first = min((each.entry for each in seen.gave_up), default=math.inf)
    after = [place for place, each in enumerate(seen.rewarded) if each[0] > first]
    turns = sum(1.0 / each.most for each in seen.gave_up if each.temperature)
    if not any(each.temperature for each in seen.gave_up):
        return refused("chance had no part in what was given up: open the memory with a temperature above 0")
    if len(after) < LEAST:
        return refused(f"{len(after)} rewards came since something was given up", LEAST - len(after))
    if turns < LEAST_TURNS:
        return refused(f"{turns:.1f} times as many facts as there are places were given up, {LEAST_TURNS} are needed")
    rewards = np.array([seen.rewarded[place][1] for place in after])
    if not rewards.std():
        return refused("all rewards were the same")
    both = [(each[0], each[1:].mean(axis=0)) for each in drawn_again(seen, seen.features, draws)]
    x = np.stack([real - usual for real, usual in both])[after]
    mean = np.stack([usual for _, usual in both])[after]
    order = np.arange(len(after))
    blocks = order * FOLDS // len(order)
    x, mean, y = (_within(each, blocks) for each in (x, mean, rewards))
    scores = np.zeros((facts, FOLDS, 1 if old is None else 2))
    beside = NEIGHBOURS * len(order) / FOLDS
    for block in range(FOLDS):
        here = order[blocks == block]
        apart = (order < here[0] - beside) | (order > here[-1] + beside)
        weights = seen.features @ _learned(x[apart], mean[apart], y[apart], blocks[apart])
        scores[:, block, 0] = weights / _spread(weights)
        if (
            old is not None
        ):  # else what is only in the new weights would be taken to be worth as much as what both share
            scores[:, block, 1] = seen.features @ old
    moved = _moved(seen, scores, old, most, fading)[after][order, blocks].mean(axis=0)
    weights = _learned(x, mean, y, blocks)
    weights = weights / _spread(seen.features @ weights)
    again = drawn_again(seen, scores.reshape(facts, -1), draws)
    sums = np.stack([each.reshape(1 + draws, FOLDS, -1) for each in again])[after][order, :, blocks]
    expected = _within(sums[:, 1:].mean(axis=1), blocks)
    sums = _without(_within(sums - sums[:, 1:].mean(axis=1, keepdims=True), blocks), expected)
    y = _without(y, expected)
    inverse = np.linalg.pinv(np.einsum("trk,trl->kl", sums[:, 1:], sums[:, 1:]) / draws, hermitian=True)
    worth = inverse @ (sums[:, 0].T @ y)
    value = float(worth @ moved)
    error = float((np.einsum("trk,t->rk", sums[:, 1:], y - sums[:, 0] @ worth) @ inverse @ moved).std())
    z = NormalDist().inv_cdf(1.0 - ALPHA / (look * (look + 1)) / 2.0)
    # The quantile of Student's t, to the first order. Two blocks meet twice, each once in the fit of the other, and where nothing
    # helps they say the same both times: twice the variance.
    half = math.sqrt(2.0) * error * z * (1.0 + (z * z + 1.0) / (4.0 * turns))
    promoted = value - half > 0.0
    needed = 0 if promoted else -1 if value <= 0.0 else max(1, math.ceil(count * ((half / value) ** 2 - 1.0)))
    reason = "" if promoted else "no sign that they help" if value <= 0.0 else "not sure yet"
    return KeeperCheck(
        promoted, value, value - half, value + half, count, facts, look, needed, reason, against
    ), weights


def _learned(x: Floats, mean: Floats, y: Floats, blocks: Whole) -> Floats:
    """Weights, after what any draw would have led to is taken out of the rewards."""
    return fitted(x, y - mean @ fitted(mean, y, blocks), blocks)


def _without(values: Floats, expected: Floats) -> Floats:
    """Less what is linear in `expected` ([t, k]), in which chance had no part. values: [t, ...]."""
    flat = values.reshape(len(values), -1)
    left: Floats = (flat - expected @ (np.linalg.pinv(expected) @ flat)).reshape(values.shape)
    return left


def _within(values: Floats, blocks: Whole) -> Floats:
    """Less the mean of the block of time: what changes slowly is no merit of a fact."""
    out: Floats = values.copy()
    for block in range(FOLDS):
        out[blocks == block] -= out[blocks == block].mean(axis=0)
    return out


def _spread(scores: Floats) -> float:
    return float(scores.std()) or 1.0


def _moved(seen: Evidence, scores: Floats, old: Floats | None, most: int, fading: float) -> Floats:
    """[rewards, FOLDS, k]: sum of scores ([n, FOLDS, k]) of what frozen new weights (the first of k) would have in memory, less
    that of what those in use would."""
    fresh = seen.days / fading
    in_use = seen.came if old is None else seen.features @ old + fresh
    out = np.zeros((len(seen.rewarded), *scores.shape[1:]))
    for row, (entry, _, inside) in enumerate(seen.rewarded):
        for scope in inside:
            there = np.flatnonzero((seen.came < entry) & (seen.ended > entry) & (seen.scope == scope))
            before = there[stays(in_use[there], seen.pinned[there], most)]
            for fold in range(FOLDS):
                now = there[stays(scores[there, fold, 0] + fresh[there], seen.pinned[there], most)]
                out[row, fold] += scores[now, fold].sum(axis=0) - scores[before, fold].sum(axis=0)
    return out


def stays(scores: Floats, pinned: Bools, most: int) -> Whole:
    """Places of the facts, listed in order of coming, that a frozen keeper has in memory; of equals the latest."""
    order: Whole = np.lexsort((np.arange(len(scores)), scores, pinned))
    return order[::-1][:most]
