"""The record of rewards: what the default policy learns, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.choose.ledger import Account, Trial, account
from keepworth.memory.choose.pool import Pool, grown
from keepworth.memory.choose.slots import LoggedChoice, Use
from keepworth.memory.signals import describe_version, divide, find_channel, read_weight
from keepworth.methods.policies.default.advice import Advising
from keepworth.methods.policies.default.estimates import SURE

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]

RULES = 3
"""Version of how rewards are weighed: a state that was saved under another version is learned anew from the log."""
DISCOUNT = 0.995
"""Factor by which each new reward lowers the log-likelihood of earlier predictions."""

_NOTHING: Floats = np.zeros(0)


class RewardRecord(Advising):
    """The rewarded choices, and what they say about items, which go by id, and about actions."""

    keeps_accounts = True

    def learn(self, use: Use, pool: Pool) -> None:
        # Without a log it was made in this process.
        logged = use.logged_choice or LoggedChoice(use.ids(pool), Trial(use.decision))
        self.add(
            use.query.vector,
            use.reward,
            logged.shown,
            logged.trial,
            action=use.taken,
            weight=use.weight,
            credit=logged.credit,
            instead=logged.instead,
            by=use.by,
            source=logged.source,
            home=logged.home,
            roles=logged.roles,
            stale=logged.stale,
            trust=logged.trust,
        )

    def add(
        self,
        vector: Vectors,
        reward: float,
        shown: Sequence[str],
        trial: Trial,
        *,
        action: str = "",
        weight: float = 1.0,
        credit: float | None = None,
        instead: float = math.nan,
        by: str = "",
        source: str = "",
        home: str = "",
        roles: Sequence[int] | None = None,
        stale: bool = False,
        trust: float | None = None,
    ) -> None:
        """Add a rewarded choice. A later reward of the same decision replaces the earlier one through the same channel. Those
        through several channels count together as at most one: the mean of what people said, or else of signals by their weights.

        Args:
            vector: The question's vector, as it is on file.
            reward: The reward as given; beyond the bounds it counts as the bound.
            shown: Ids of the items that were shown, in order.
            trial: The decision, and what chance decided in it.
            action: What was done; "" if unknown.
            weight: How much the reward counts when estimates are weighted: 1 over the number of choices that share it.
            credit: How much the reward counts for the arms of this choice; `weight` if not given.
            instead: The reward that was expected of the search's own order, if another order was shown.
            by: Who gave the reward; "" for the program itself.
            source: Where the reward came from: `by`, or the channel of the program's own.
            home: The user in whose scope the choice was made, "" if in none.
            roles: Roles of the action, if items of the episode name actions.
            stale: Whether the reward is too old to change the weights of the estimates.
            trust: The entry of `trusts` for this choice, if it was computed before.
        """
        shown = [intern(id) for id in shown]  # many rows name the same items
        roles = roles if self.roles and action and roles is not None else ()
        decision, unit = trial.decision, trial.unit or trial.decision
        earned = min(max(reward, self.bounds[0]), self.bounds[1])
        reward, channel = self._scaled(earned), self._sources.setdefault(find_channel(source) or by, len(self._sources))
        rows = self._rows_about(decision)
        others = [row for row in rows if self._source[row] != channel]
        again, parts = bool(rows), divide([*self._claims[others].tolist(), read_weight(source)])
        if others:
            every = np.append(self._rewards[others], reward)
            earned = self.in_rewards(float(np.average(every, weights=parts)))
        counts = weight * sum(parts)
        self.ledger.add(unit, decision, earned, counts, shown, trial.odds, trial.expected, self._total, self.bounds, by)
        person = self._persons.setdefault(trial.person, len(self._persons))
        if trust is None:
            speaker = by if read_weight(source) == 1.0 else find_channel(source)
            trust = self._trust.believed(speaker)
            if not stale and not again and len(self):
                chance = self._predictions(vector, shown, action, roles, person)
                usual = min(max(self._sum / max(self._number, 1e-9), SURE), 1.0 - SURE)
                trust = self._trust.judge(speaker, float(self._weigh().all @ chance), reward, usual)
                loglik = reward * np.log(chance) + (1.0 - reward) * np.log(1.0 - chance)
                self._likelihood = DISCOUNT * self._likelihood + parts[-1] * weight * trust * loglik
        self.trusts.append(trust)
        credit = parts[-1] * trust * (weight if credit is None else credit)
        weight *= parts[-1] * trust
        self._total += 1
        for row in rows:
            if row not in others:
                self._retire(row)
        for row, counted in zip(others, parts, strict=False):
            self._reweigh(row, counted)
        if self._count == len(self._rewards):
            others = self._make_room(others)
        row = self._count
        self._question[row], self._rewards[row], self._weight[row] = self._number_of(vector), reward, weight
        self._credit[row], self._roles[row], self._voice[row] = credit, False, self._trust.number(by)
        self._person[row], self._holder[row] = person, self._number_of_holder(by or home)
        self._source[row], self._at[row], self._counts[row] = channel, self._total - 1, True
        self._claims[row], self._parts[row] = read_weight(source), parts[-1]
        self._roles[row, list(roles)] = True
        self._lost[row] = 0.0 if math.isnan(instead) else instead - reward
        first, *numbers = (self._number_of_item(id) for id in (action or (shown[0] if shown else ""), *shown))
        self._lead[row], self._action[row] = first, self._actions.setdefault(action, len(self._actions))
        begin, end = int(self._ends[row]), int(self._ends[row]) + len(numbers)
        if end > len(self._shown):
            self._shown = grown(self._shown, 2 * end)
        self._shown[begin:end], self._ends[row + 1] = numbers, end
        self._count_in(row, 1.0)
        if decision:
            self._places[decision] = (*others, row)
        if action:
            self._unfitted.add(action)
            self._acted_for.add(person)
        self._slates = self._slates or len(shown) > 1
        self._steps = self._steps or credit > weight
        self._count = row + 1
        self._sum_up(np.arange(begin, end))
        self._weights.clear()
        self._nearest = None
        if len(self) > self.newest:
            self._retire(self._next_to_go(), pushed_out=True)

    def has(self, decision: str, reward: float, source: str) -> bool:
        """Return whether the latest reward of a decision from this source is this one."""
        channel = self._sources.get(find_channel(source), -1)
        return any(
            self._source[row] == channel and self._rewards[row] == self._scaled(reward)
            for row in self._rows_about(decision)
        )

    def save(self) -> dict[str, Any]:
        """Return the log-likelihoods of the estimates and how far each rewarder is trusted, so that a replay need not compute
        them again."""
        return {"likelihood": self._likelihood.tolist(), "doubts": dict(self._trust.doubts)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `save` returned after the same rewards."""
        self._likelihood, self._trust.doubts = np.array(state["likelihood"]), dict(state["doubts"])
        self._weights.clear()
        self._nearest = None

    # The ledger.

    @property
    def version(self) -> str:
        """Name the rules and settings by which rewards are weighed."""
        parts = (self.bandwidth, self.newest, self.bounds, len(self._likelihood), self.roles, RULES, describe_version())
        return " ".join(map(str, parts))

    @property
    def units(self) -> int:
        """Return the number of rewarded episodes and single choices."""
        return round(self._number)

    @property
    def met(self) -> list[str]:
        """Return the ids of the items that were shown with a reward or were under test."""
        names, shown = list(self._numbered), self._shown[: self._ends[self._count]]
        return list(dict.fromkeys([*self.ledger.items, *(names[number] for number in shown.tolist())]))

    def accounts(self, items: Iterable[str]) -> list[Account]:
        """Return the accounts of items, with the success rates that a plain counter would give them."""
        usual = self.in_rewards(self._sum / self._number) if self._number > 0.0 else math.nan
        result = []
        for id in items:
            number = self._numbered.get(id, 0)
            seen, earned = self._sums[number, 6:].tolist() if number else (0.0, 0.0)
            success = self.in_rewards(earned / seen) if seen else math.nan
            measured = self.ledger.account(id, self.span, since=self._since)
            measured = measured or account(id, *(_NOTHING,) * 4, self.span)
            result.append(replace(measured, success=success, usual=usual, seen=seen))
        return result
