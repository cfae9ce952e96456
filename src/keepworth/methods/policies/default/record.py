"""The record of rewards: what the default policy learns, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from sys import intern
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.choose.ledger import Account, Trial, account
from keepworth.memory.choose.named import ROLES
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.slots import LoggedChoice, Use
from keepworth.memory.choose.wordings import item_of
from keepworth.memory.signals import describe_version, divide, find_channel, read_weight
from keepworth.methods.policies.default.advice import Advising
from keepworth.methods.policies.default.constants import DISCOUNT

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]

_RULES = 13
"""Version of how rewards are weighed: a state that was saved under another version is learned anew from the log."""

_NOTHING: Floats = np.zeros(0)


class RewardRecord(Advising):
    """The rewarded choices, and what they say about items, which go by id, and about actions."""

    keeps_accounts = finds_sets = True

    def learn(self, use: Use, pool: Pool) -> None:
        """Add a rewarded choice. A later reward of the same decision replaces the earlier one through the same channel. Those
        through several channels count together as at most one: the mean of what people said, or else of signals by their weights.
        """
        # Without a log it was made in this process.
        logged = use.logged_choice or LoggedChoice(use.ids(pool), Trial(use.decision))
        shown = [intern(name) for name in logged.shown]  # many rows name the same items
        roles = logged.roles if self.roles and use.taken and logged.roles is not None else ()
        trial, unit = logged.trial, logged.trial.unit or logged.trial.decision
        earned = min(max(use.reward, self.bounds[0]), self.bounds[1])
        source, claim = find_channel(logged.source) or use.by, read_weight(logged.source)
        reward, channel = self._scaled(earned), self._sources.setdefault(source, len(self._sources))
        rows = self._rows_about(trial.decision)
        others = [row for row in rows if self._source[row] != channel]
        parts = divide([*self._claims[others].tolist(), claim])
        if others:
            earned = self.in_rewards(float(np.average([*self._rewards[others], reward], weights=parts)))
        evidence = ([item_of(name) for name in shown], trial.odds, trial.expected, self._total, self.bounds, use.by)
        self.ledger.add(unit, trial.decision, earned, use.weight * sum(parts), *evidence, joint=trial.joint)
        person = self._persons.setdefault(trial.person, len(self._persons))
        speaker = use.by if claim == 1.0 else find_channel(logged.source)
        trust = 1.0 if claim == 1.0 else self._trust.believed(speaker)
        within = float(self._within_reach(np.array(reward)))
        if not logged.stale and not rows and len(self):
            near = self._near(use.query.vector, trial.person)
            chance = self._predictions(near, shown, use.taken, roles, person)
            usual = self._usual()
            judged = self._trust.judge(speaker, float(self._weigh().all @ chance), within, usual)
            if claim < 1.0:
                trust = judged
            elif speaker:
                expected = self._expected_by_others(near, use.taken or (shown[0] if shown else ""), speaker)
                self._trust.contradict(speaker, expected, within, usual)
                # What people ask for themselves may be predicted by what they said before, whatever others say.
                number = self._trust.number(speaker)
                if trial.person != speaker:
                    judged *= float(self._trust.beliefs[number])
            loglik = within * np.log(chance) + (1.0 - within) * np.log(1.0 - chance)
            self._likelihood = DISCOUNT * self._likelihood + parts[-1] * use.weight * judged * loglik
        self._total += 1
        for row in rows:
            if row not in others:
                self._retire(row)
        for row, counted in zip(others, parts, strict=False):
            self._reweigh(row, counted)
        if self._count == len(self._rewards):
            others = self._make_room(others)
        row, counted = self._count, parts[-1] * trust
        weight, credit = use.weight, use.weight if logged.credit is None else logged.credit
        self._weight[row], self._credit[row], self._rewards[row] = counted * weight, counted * credit, reward
        self._claims[row], self._parts[row] = claim, parts[-1]
        self._question[row], self._voice[row] = self._number_of(use.query.vector), self._trust.number(use.by)
        self._person[row], self._holder[row] = person, self._number_of_holder(use.by or logged.home)
        self._source[row], self._at[row], self._counts[row] = channel, self._total - 1, True
        self._roles[row] = np.isin(np.arange(len(ROLES)), list(roles))
        self._lost[row] = 0.0 if math.isnan(logged.instead) else logged.instead - within
        self._lead[row] = self._number_of_item(use.taken or (shown[0] if shown else ""))
        self._action[row] = self._actions.setdefault(use.taken, len(self._actions))
        self._append_shown(row, [self._number_of_item(id) for id in shown])
        self._count_in(row, 1.0)
        if trial.decision:
            self._places[trial.decision] = (*others, row)
        if use.taken:
            self._acted_for.add(person)
        self._slates = self._slates or len(shown) > 1
        self._steps = self._steps or credit > weight
        self._count = row + 1
        self._weights.clear()
        self._nearest = None
        if len(self) > self.newest:
            self._retire(self._next_to_go(), pushed_out=True)

    def has(self, decision: str, reward: float, source: str) -> bool:
        """Return whether the latest reward of a decision from this source is this one, and counts as much."""
        channel, this = self._sources.get(find_channel(source), -1), (self._scaled(reward), read_weight(source))
        rows = [row for row in self._rows_about(decision) if self._source[row] == channel]
        return any((self._rewards[row], self._claims[row]) == this for row in rows)

    def is_rewarded(self, decision: str) -> bool:
        """Return whether a reward of a decision is remembered, from whatever source."""
        return bool(self._rows_about(decision))

    def highest(self, source: str) -> float | None:
        """Return the highest reward that is remembered of a source; None if there is none."""
        of_source = self._counts[: self._count] & (
            self._source[: self._count] == self._sources.get(find_channel(source), -1)
        )
        rewards = self._rewards[: self._count][of_source]
        return self.in_rewards(float(rewards.max())) if len(rewards) else None

    # The ledger.

    @property
    def version(self) -> str:
        """Name the rules and settings by which rewards are weighed."""
        parts = (
            self.bandwidth,
            self.newest,
            self.bounds,
            len(self._likelihood),
            self.roles,
            _RULES,
            describe_version(),
        )
        return " ".join(map(str, parts))

    @property
    def units(self) -> int:
        """Return the number of rewarded episodes and single choices."""
        return round(self._number)

    @property
    def met(self) -> list[str]:
        """Return the ids of the items that were shown with a reward or were under test."""
        names, shown = list(self._numbered), self._shown[: self._ends[self._count]]
        return list(dict.fromkeys([*self.ledger.items, *(item_of(names[number]) for number in shown.tolist())]))

    def accounts(self, items: Iterable[str]) -> list[Account]:
        """Return the accounts of items, over all that they ever said, with the success rates that a plain counter would give
        them."""
        usual = self.in_rewards(self._sum / self._number) if self._number > 0.0 else math.nan
        numbers_of = [
            (id, [*([self._numbered[id]] if id in self._numbered else []), *self._reworded.get(id, ())]) for id in items
        ]
        listed, shown = np.zeros(len(self._place), dtype=bool), self._shown[: self._ends[self._count]]
        for _, numbers in numbers_of:
            listed[numbers] = True
        entries = listed.take(shown, mode="clip").nonzero()[0]  # few of them, where few items are asked about
        rows = self._ends[: self._count + 1].searchsorted(entries, "right") - 1
        weight = self._weight[rows]
        times, right = (
            np.bincount(shown[entries], column, len(self._numbered))
            for column in (weight, weight * self._rewards[rows])
        )
        result = []
        for id, numbers in numbers_of:
            seen = float(times[numbers].sum())
            success = self.in_rewards(float(right[numbers].sum()) / seen) if seen else math.nan
            measured = self.ledger.account(id, self.span)
            measured = measured or account(id, *(_NOTHING,) * 4, self.span)
            result.append(replace(measured, success=success, usual=usual, seen=seen))
        return result
