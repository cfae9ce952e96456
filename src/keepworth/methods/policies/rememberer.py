"""REMEMBERER: a table of n-step action values, shown as good and bad actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keepworth.base.arrays import Vectors
from keepworth.base.text import as_line
from keepworth.memory.choose.exemplars import Capacity
from keepworth.memory.choose.pool import Advice, Pool
from keepworth.memory.choose.ready_slots import NOTHING, WithNotes, eligible
from keepworth.memory.choose.selection import NotesByValue
from keepworth.memory.choose.slots import (
    Candidates,
    Finished,
    Policy,
    Presented,
    Query,
    Use,
    Values,
    combined_advice,
    whole,
)
from keepworth.memory.item import Item, ItemKind
from keepworth.registry import Method

MOST_ACTIONS = 20
RECORDS = 500
"""The most records of each kind that are kept."""


@dataclass(frozen=True, slots=True)
class GoalAndObservation:
    """Ranks by share * cos(goal, goal) + (1 - share) * cos(observation, observation), top-k (arXiv 2306.07929, section 3.2).

    Stored keys are "goal | observation"; vectors of the parts are made once per text. Ties go to more visits. Items that are no
    records of this table (observations of this episode, records from outside) have one key, which is compared with goal and
    observation together. A task without an observation is compared by the goal alone, whatever `share` is: otherwise the missing
    part would lower every similarity, and a share of 0 would compare nothing.
    """

    k: int = 2
    share: float = 0.5

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)
        if not len(rows):
            return NOTHING
        share = self.share if query.observation else 1.0
        goal, observation = pool.encode(query.goal), pool.encode(query.observation)
        parts = [pool.items[row].metadata for row in rows]
        whole = pool.similarities(query.vector, rows)
        scores = np.array(
            [
                share * float(pool.encode(part["goal"]) @ goal)
                + (1.0 - share) * float(pool.encode(part["observation"]) @ observation)
                if "goal" in part
                else float(alike)
                for part, alike in zip(parts, whole, strict=True)
            ]
        )
        visits = np.array([part.get("visits", 0) for part in parts])
        order = np.lexsort((-visits, -np.round(scores, 9)))[: self.k]
        return Candidates(rows[order], scores[order])


@dataclass(slots=True)
class ExperienceTable:
    """Writes a record per (goal, observation) with a value for each action tried (arXiv 2306.07929).

    G_t = sum of the next n rewards + gamma^n * max_a Q(k_{t+n}, a); Q <- Q + (G - Q) / N. n = 0 sums to the episode's end, as the
    released scripts do. The step rewards are 0 except the last, which is the outcome, scaled to +1 or -1; with `steps`
    every choice has its own reward, scaled alike. A record has at most `MOST_ACTIONS` actions.
    """

    n: int = 0
    gamma: float = 1.0
    steps: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        uses, pool = finished.choices, finished.pool
        assert pool is not None
        given = [use.reward for use in uses] if self.steps else [finished.outcome]
        rewards = [0.0] * (len(uses) - len(given)) + [2.0 * reward - 1.0 for reward in given]
        drafts: dict[tuple[str, str], dict[str, Any]] = {}
        index = {
            (pool.items[row].metadata["goal"], pool.items[row].metadata["observation"]): int(row)
            for row in pool.active()
            if "goal" in pool.items[row].metadata
        }
        for number, use in enumerate(uses):
            reach = len(uses) if not self.n else min(len(uses), number + self.n)
            total = sum(self.gamma ** (step - number) * rewards[step] for step in range(number, reach))
            if reach < len(uses):
                ahead = uses[reach].query
                row = index.get((ahead.goal, ahead.observation))
                if row is not None:
                    total += self.gamma ** (reach - number) * max(pool.items[row].metadata["q"].values())
            key = (use.query.goal, use.query.observation)
            row = index.get(key)
            entry = drafts.get(key) or (None if row is None else dict(pool.items[row].metadata))
            record = entry or {"goal": key[0], "observation": key[1], "q": {}, "n": {}, "visits": 0}
            q, n = dict(record["q"]), dict(record["n"])
            n[use.taken] = n.get(use.taken, 0) + 1
            q[use.taken] = q.get(use.taken, 0.0) + (total - q.get(use.taken, 0.0)) / n[use.taken]
            if len(q) > MOST_ACTIONS:
                worst = min(q, key=lambda action: q[action])
                del q[worst], n[worst]
            fresh = {**record, "q": q, "n": n, "visits": record["visits"] + 1}
            if row is not None:
                fresh["do"], fresh["avoid"] = _advice_of(q)
                pool.revise(row, **fresh)
            else:
                drafts[key] = fresh
        return [_case_of(fresh) for fresh in drafts.values()]


class NoteValues:
    """Q of a note in a situation, where nobody says what was done: the action is then to show the note first.

    Q <- Q + (G - Q) / N, as in the table, with the reward scaled to +1 or -1 as G. A note is worth its Q in the most similar of
    the `k` nearest situations where it came first, and 0 if it came first in none of them. Situations take their places among the
    candidates: one that is less similar than the `k` best of these does not count.
    """

    learns = False
    """Of cases, whose values stand in the records of the table."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.records: dict[str, tuple[Vectors, dict[int, tuple[float, int]]]] = {}

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        least = min(np.sort(candidates.similarities)[-self.k :], default=0.0)
        near = [(float(where @ query.vector), notes) for where, notes in self.records.values()]
        nearest = sorted((pair for pair in near if pair[0] >= least), key=lambda pair: pair[0])[-self.k :]
        values: dict[int, float] = {}
        for _, notes in nearest:
            values.update((row, q) for row, (q, _) in notes.items())
        means = [values.get(row, 0.0) for row in candidates.rows.tolist()]
        return Values(np.array(means), np.zeros(len(means)))

    def learn(self, use: Use, pool: Pool) -> None:
        if use.taken or not use.slate or not pool.is_note(use.rows[0]):
            return
        _, notes = self.records.setdefault(use.query.text, (use.query.vector, {}))
        if len(self.records) > RECORDS:
            del self.records[next(iter(self.records))]
        q, n = notes.get(use.rows[0], (0.0, 0))
        notes[use.rows[0]] = q + (2.0 * use.reward - 1.0 - q) / (n + 1), n + 1


def _case_of(data: dict[str, Any]) -> Advice:
    text = f"{data['goal']} {data['observation']}".strip()
    do, avoid = _advice_of(data["q"])
    extra = {key: data[key] for key in ("goal", "observation", "q", "n", "visits")}
    return Advice(text, text, do, avoid, good=bool(do), kind=ItemKind.CASE, extra=extra)


def _advice_of(q: dict[str, float]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the action to do, the best one if its value is positive, and the actions to avoid."""
    best = max(q, key=lambda action: q[action])
    return (best,) if q[best] > 0 else (), tuple(action for action in q if q[action] <= 0)


def encouraged_and_discouraged(items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
    """Shows REMEMBERER's exemplars (arXiv 2306.07929): the best action is encouraged if its value is positive; actions at or
    below min(0, the record's mean) are discouraged. The released code discourages values of exactly 0, which fails with negative
    ones.

    Args:
        items: What is shown, in its order.
        query: What was asked, with the actions that are possible.
        similarities: The cosine of each item with the query.
    """
    blocks: list[str] = []
    pairs: list[tuple[str, float, float]] = []
    for item, near in zip(items, similarities, strict=True):
        if "q" not in item.metadata:
            # An observation of this episode, or a record from outside, has no values: its text is shown as it is.
            blocks.append(f"- {as_line(item.text)}")
            pairs += combined_advice([item], query, [near])
            continue
        values: dict[str, float] = item.metadata["q"]
        ranked = sorted(values, key=lambda action: -values[action])
        mean = sum(values.values()) / len(values)
        encouraged = [action for action in ranked[:1] if values[action] > 0.0]
        discouraged = [action for action in ranked[1:] if values[action] <= min(0.0, mean)]
        if not encouraged:
            discouraged = [action for action in ranked if values[action] <= 0.0]
        data = item.metadata
        blocks.append(
            f"Goal: {as_line(data['goal'])}\nObservation: {as_line(data['observation'])}\n"
            + "Encouraged: "
            + "; ".join(f"{as_line(action, ';')} -> {values[action]:.2f}" for action in encouraged)
            + "\nDiscouraged: "
            + "; ".join(f"{as_line(action, ';')} -> {values[action]:.2f}" for action in discouraged)
        )
        pairs += [(action, 1.0, near) for action in encouraged] + [(action, -1.0, near) for action in discouraged]
    return Presented("\n\n".join(blocks), tuple(pairs))


def rememberer(*, k: int = 2, share: float = 0.5, n: int = 0, gamma: float = 1.0, steps: bool = False) -> Policy:
    """Returns REMEMBERER: records ranked by the similarity of their goal and of their observation.

    Args:
        k: The most that is shown.
        share: The weight of the goal's similarity; the observation's has the rest.
        n: Steps before bootstrapping; 0 sums to the end of the episode.
        gamma: The discount of a step.
        steps: Whether single steps have rewards of their own.
    """
    retriever, selector = WithNotes(GoalAndObservation(k, share)), NotesByValue(k)
    presenter, writer = encouraged_and_discouraged, ExperienceTable(n, gamma, steps)
    return Policy("rememberer", whole, retriever, NoteValues(k), selector, presenter, writer, (Capacity(RECORDS),))


METHOD = Method(
    kind="policy",
    name="rememberer",
    title="REMEMBERER",
    paper="arXiv 2306.07929",
    about="Keeps a table of n-step action values, and shows good actions and bad ones",
    tags=("token", "experiential", "evolution", "retrieval"),
    claim="Success is 4 points above the best before on WebShop and 2 on WikiHow.",
    differs=(
        "Similarity is the cosine, where the paper writes a table for each environment, and actions at or "
        "below min(0, mean) are discouraged, where the code takes values of 0. Where nobody says what was done, the note that "
        "came first is the action."
    ),
    make=rememberer,
    on={"k": 4, "share": 0.5, "n": 2, "gamma": 0.95},
)
