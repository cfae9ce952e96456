"""Which actions the default policy advises at a question, and which lines of a prompt say why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keepworth.base.text import as_line
from keepworth.memory.choose.named import NONE, ROLES
from keepworth.memory.choose.record import AdvicePieces, nearest_first
from keepworth.memory.choose.slots import MANY
from keepworth.memory.search.search import Worth
from keepworth.methods.policies.default.constants import SURE
from keepworth.methods.policies.default.judgement import CandidateJudge
from keepworth.methods.policies.default.models import CREDITS, DONE, NAMED, PERSONAL, _Judged
from keepworth.methods.policies.default.roles import RoleClaims

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Floats, Vectors

    Rows = npt.NDArray[np.int64]


VOTES = 4
"""Number of earlier successes of an action that advice cites, which bounds the lines of a prompt."""


@dataclass(frozen=True, slots=True)
class _ActionGains:
    """What is expected of actions at a question.

    Attributes:
        gains: The gain of each action.
        judged: What the models say about each: for the person, if that predicts better, else for everybody.
        person: Whom `judged` is about; None for everybody.
        roles: What rewards say about each role; None if items of the episode name no action.
        role: The role by which each action is judged.
        of_roles: What the role of each action adds to its gain.
    """

    gains: Floats
    judged: _Judged
    person: int | None
    roles: RoleClaims | None
    role: list[int]
    of_roles: Floats

    def goes_by_role(self, index: int) -> bool:
        """Return whether an action is expected to be right because a note of the episode names it, more than by its rewards."""
        return self.roles is not None and self.role[index] != NONE and 2.0 * self.of_roles[index] > self.gains[index]


class Advising(CandidateJudge):
    """Advises actions, from rewards of actions and from what items advise."""

    def advise(
        self,
        vector: Vectors,
        actions: Sequence[str],
        named: Mapping[str, Sequence[int]] | None = None,
        *,
        of_items: AdvicePieces = (),
        most: int = MANY,
        person: str = "",
    ) -> tuple[AdvicePieces, str]:
        """Choose the actions to advise at a question, from rewards of actions and from what items advise.

        Args:
            vector: The question's vector.
            actions: What can be done.
            named: The roles of each action that items of the episode name; None if they name none.
            of_items: What the shown items advise.
            most: The largest number of pieces of advice.
            person: Whom the question is for.

        Returns:
            The advice, as (action, 1 for it or -1 against it, similarity of the question that it comes from), and lines for a
                prompt that say what rewards say about these actions. Cited are the `VOTES` nearest successes of the best action,
                then the nearest failure of each action that rewards speak against, the worst first, but for the best one that was
                tried. The failure of an episode of several steps speaks against no single action. Advice of items fills what is
                left, the most similar first, but for actions that rewards speak against. If it is its role that speaks for the
                best action, cited are the note that names it and the nearest successes in this role, and no item that advises
                another action.
        """
        learned = self._expect_of_actions(vector, actions, named or {}, person)
        if learned is None:
            return nearest_first(of_items, most), ""
        gains = learned.gains
        best_first = np.argsort(-gains, kind="stable").tolist()
        # If each action was rewarded by itself, there is no warning of the best one that was tried, even if an untried one seems
        # better: else a few false failures of the right action would leave nothing to take.
        spared = next((index for index in best_first if actions[index] in self._actions), -1)
        in_role: AdvicePieces = ()
        pieces: list[tuple[str, float, float]] = []
        records = dict[str, str]()
        for index in (best_first[0], *reversed(best_first[1:])):
            against = index != best_first[0]
            if (-gains[index] if against else gains[index]) <= 0.0:
                continue
            if against and index == spared and not (named or self._steps):
                continue
            by_role = not against and learned.goes_by_role(index)
            role = learned.role[index] if by_role else None
            cosines = self._cited(vector, actions[index], learned.person, role=role, against=against)
            if against and not len(cosines):
                continue
            cited = [(actions[index], -1.0 if against else 1.0, cosine) for cosine in cosines]
            if by_role:
                in_role = ((actions[index], 1.0, 1.0), *cited)[:VOTES]
            else:
                pieces += cited
            records[actions[index]] = _say(actions[index], learned, index, against=against, by_role=by_role)
        # What items advise is left out where rewards speak against it: many records from outside would outweigh them for ever.
        failing = {actions[index] for index in best_first if gains[index] < 0.0}
        others = [piece for piece in of_items if piece[1] < 0.0 or piece[0] not in failing]
        if in_role:
            others = [piece for piece in others if piece[0] == in_role[0][0]]
        chosen = (*in_role, *nearest_first((*pieces[:most], *others), most))[:most]
        advised = dict.fromkeys(action for action, _, _ in chosen)
        return chosen, "\n".join(records[action] for action in advised if action in records)

    def _expect_of_actions(
        self, vector: Vectors, actions: Sequence[str], named: Mapping[str, Sequence[int]], by: str
    ) -> _ActionGains | None:
        """Return what is expected of actions at a question, or None if rewards say nothing of actions."""
        if len(self._actions) == 1 or not actions or not len(self):
            return None
        person = self._persons.get(by, -1)
        weights = self._weigh(CREDITS if named else 1 + PERSONAL).of_arms.copy()
        if person not in self._acted_for:  # of whom nothing is known, what holds for everybody is expected
            weights[DONE], weights[PERSONAL] = weights[DONE] + weights[PERSONAL], 0.0
        strength = weights.sum(axis=1)
        if strength[DONE:].sum() < SURE:
            return None
        near = with_blame = self._near(vector, by)
        if self._steps:
            with_blame = self._look_near(vector, by, blame=True)
        judged, whom, roles, role = self._judge_actions(near, actions), None, None, list[int]()
        of_role = np.zeros(len(actions))
        of_all = self._judge_actions(with_blame, actions).by_model() if self._steps else judged.by_model()
        gains = weights[DONE] @ of_all
        if strength[PERSONAL]:
            of_person, share = self._judge_actions(with_blame, actions, person), self._familiarity(person, near)
            gains += weights[PERSONAL] @ (share * of_person.by_model() + (1.0 - share) * of_all)
            if strength[PERSONAL] > strength[DONE]:
                judged, whom = of_person, person
        if named:
            roles = self._judge_roles(near)
            of_action = [named.get(action, (NONE,)) for action in actions]
            role = [max(several, key=lambda role: roles.adds[role]) for several in of_action]
            chances = roles.expect(of_action)
            of_role = chances - chances.mean()
            # A role is tried until it had as many rewards as there are roles. From then on much is said of roles only if they
            # predict better than all other estimates together.
            heard = strength[NAMED] > 0.5
            of_role[(np.abs(of_role) <= SURE) | ((roles.times[role] >= len(ROLES)) & (not heard))] = 0.0
            of_role *= strength[NAMED]
            gains += of_role
        total = strength[DONE:].sum()
        return _ActionGains(gains / total, judged, whom, roles, role, of_role / total)

    def _cited(
        self, vector: Vectors, action: str, person: int | None, *, role: int | None, against: bool
    ) -> list[float]:
        """Return the similarities of the questions, the most similar first, that are cited for an action, or against it: those
        where it was taken, or where an action in this role was."""
        if role is not None:
            rows = self._roles[: self._count, role].nonzero()[0]
        else:
            rows = self._rows_of(action, person)
        rows = rows[(self._credit[rows] > 0.0) & ((self._within_reach(self._rewards[rows]) < 0.5) == against)]
        if against:
            rows = rows[self._weight[rows] >= self._credit[rows]]
        cosines = self._questions[self._question[rows]] @ vector.astype(np.float32)
        if role is None:
            cosines = cosines[cosines > 0.0]
        nearest: list[float] = np.sort(cosines)[::-1][: 1 if against else VOTES].tolist()
        return nearest


def _say(action: str, learned: _ActionGains, index: int, *, against: bool, by_role: bool) -> str:
    """Return the line of a prompt that says what rewards say about an action."""
    judged, at, role = learned.judged, index, ""
    times, earned = judged.times[0], judged.earned[0]
    if by_role and learned.roles is not None:
        at, times, earned = learned.role[index], learned.roles.times, learned.roles.earned
        role = f"named by {ROLES[at]} of this episode; "
        role += "such an action was " if earned[at] else "none such was right yet"
    record = Worth(0.0, 0.0, float(times[at]), float(earned[at]), 1.0).sentence
    record = record or f"{'wrong' if against else 'right'} where something like this was asked"
    return f"- {as_line(action)}: {role}{record if not by_role or earned[at] else ''}"
