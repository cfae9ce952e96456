"""Consensus: whether the people who share items agree that one of them helps.

A handle of one person learns from the rewards in its own scope alone, since what is learned at a question of somebody else tells
who asked it. Of an item that a team shares, one thing more is safe to use: whether most people were better off with it. Each
person has one vote about an item, by how the rewards depended on its place where the search might have put it first. The votes
count if a *quorum* of people stands on one side, at least three times as many as on the other. So a person who gives a thousand
rewards has one vote, and alone can neither make a consensus nor undo that of three; what one person asked, and how it ended,
moves nothing as long as fewer agree; and nothing that is told depends on a question.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.choose.replay import credited
from keepworth.memory.choose.wordings import Wordings
from keepworth.memory.item import Scope
from keepworth.memory.store import log
from keepworth.memory.store.connection import AnyConnection
from keepworth.memory.store.decision_log import TEXTS
from keepworth.records.episode import Decision

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

AGREED = 0.25
"""What a consensus adds to the relative score of an item, or takes off. Items whose score lies within this of the best one are
contenders: a consensus may put them first."""
DOUBT = 0.25
"""A person votes if the mean reward with an item differs from that without it by more than this many ranges of rewards, over the
root of their number."""
USUAL = 1.0
"""Number of imagined rewards without the item: what the person usually gets."""


class _Voter:
    """What the rewards of one person say: their sum and number, and by item, of the choices in which it was a contender, the sums
    of weight with it, reward with it, weight without it, reward without it. An item that stood first counts as with it, one that
    was not shown as without, the second as half of each, the third as a third."""

    def __init__(self) -> None:
        self.all: Floats = np.zeros(2)
        self.items: dict[str, Floats] = {}

    def vote(self, id: str, span: float) -> int:
        """Return 1 if rewards were higher with the item, -1 if lower, 0 if neither is clear."""
        there = self.items.get(id)
        if there is None or there[0] < 1e-9 or self.all[0] < 1e-9:
            return 0
        usual = self.all[1] / self.all[0]
        times, earned, without = there[0], there[1], there[2] + USUAL
        gain = earned / times - (there[3] + USUAL * usual) / without
        if abs(gain) <= DOUBT * span * math.sqrt(1.0 / times + 1.0 / without):
            return 0
        return 1 if gain > 0.0 else -1


class Consensus:
    """The votes of everybody who gave rewards inside a scope, kept equal to what the journal says. `newest` is the number of
    rewards that count at least, of which everybody has a share."""

    def __init__(self, scope: Scope, newest: int, wordings: Wordings) -> None:
        self.scope, self.newest, self._wordings = scope, newest, wordings
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._seq = -1
        self._voters: dict[str, _Voter] = {}
        self._shown: dict[str, set[str]] = {}  # by item: the users for whom it was a contender
        # What counts: by what was rewarded and the source of the reward, whose it is and what it adds to whose sums.
        self._counting: dict[tuple[str, str], list[tuple[Floats, Floats]]] = {}

    def follow(self, connection: AnyConnection) -> None:
        """Take in what the journal says since the last call."""
        with self._lock:
            head, taught, turned_back = log.news_since(connection, self._seq)
            if head == self._seq:
                return
            if self._seq < 0 or turned_back or len(self._counting) > 2 * self.newest:
                self._forget()
            news: list[log.News] = []
            if self._seq < 0 or taught:
                gone = log.cancelled(connection)
                newest = self.newest if self._seq < 0 else None
                news = log.news(connection, self.scope, gone, max(self._seq, 0), newest)
                for reward, about in log.with_choices(connection, news, gone):
                    self._count(reward, about)
            self._seq = head

    def _count(self, reward: log.News, about: log.About) -> None:
        key = reward.decision or reward.episode, reward.source
        for sums, part in self._counting.pop(key, ()):  # a later reward of the same source replaces the earlier one
            sums -= part
        user = reward.scope.user or reward.by
        voter, counted = self._voters.setdefault(user, _Voter()), self._counting.setdefault(key, [])
        for choice, value, weight in credited(about.choices, reward.value):
            counted.append((voter.all, weight * np.array([1.0, value])))
            contenders = _contenders(choice.decision)
            names = self._wordings.then([id for id, _ in contenders], choice.details.get(TEXTS) or {})
            for name, (_, place) in zip(names, contenders, strict=True):
                part = weight * np.array([place, place * value, 1.0 - place, (1.0 - place) * value])
                counted.append((voter.items.setdefault(name, np.zeros(4)), part))
                self._shown.setdefault(name, set()).add(user)
        for sums, part in counted:
            sums += part

    def of(self, id: str, without: Iterable[str], quorum: int, span: float) -> int:
        """Return 1 if people agree that they are better off with an item, -1 if worse, else 0.

        Args:
            id: The name of what the item says.
            without: Users whose rewards do not count: the one for whom this is, and those whose rewards it learns from directly.
            quorum: How many people there must be on one side, and at least three times as many as on the other; 0 for no
                consensus at all.
            span: The range of rewards.
        """
        with self._lock:
            voters = self._shown.get(id, set()).difference(without)
            votes = [self._voters[user].vote(id, span) for user in voters]
        better, worse = votes.count(1), votes.count(-1)
        excess = better - worse
        if not quorum or max(better, worse) < quorum or abs(excess) < (better + worse) / 2.0:
            return 0
        return 1 if excess > 0 else -1


def _contenders(decision: Decision) -> list[tuple[str, float]]:
    """Return (item, place) of the candidates that a consensus might have put first."""
    scores = [score for _, score in decision.candidates]
    if not scores:
        return []
    best, places = max(scores), {id: 1.0 / place for place, id in enumerate(decision.chosen, 1)}
    least = best - AGREED * (max(best, -min(scores)) or 1.0)
    return [(id, places.get(id, 0.0)) for id, score in decision.candidates if score >= least]
