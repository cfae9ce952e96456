"""Which actions the default policy advises at a question, and which lines of a prompt say why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keepworth.base.text import as_line
from keepworth.memory.choose.named import NONE, ROLES
from keepworth.memory.choose.record import AdvicePieces, nearest_first
from keepworth.memory.choose.slots import MANY
from keepworth.memory.search.search import Worth
from keepworth.methods.policies.default.models import _OF_RIDGES, DONE, MODELS, NAMED, PERSONAL, SHARES
from keepworth.methods.policies.default.trials import CandidateJudge

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]

ADVISED, SPOKEN = 0.01, 0.1
"""An action is advised if its gain is at least ADVISED and the estimates of actions have at least the weight SPOKEN together."""
TELLING, HEARD = 0.1, 0.15
"""The same for a role of an action: its least gain, and the least weight of the estimates of roles. There are few roles, so that
some gain a little by chance."""
VOTES = 4
"""Number of earlier successes of an action that advice cites."""


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
                prompt that say what rewards say about these actions. Cited are the `VOTES` nearest successes of the best action
                (or of actions in its role, if roles predict better), then the nearest failure of each action that rewards speak
                against, the worst first, but for the best one that was tried. The failure of an episode of several steps speaks
                against no single action. Advice of items fills what is left, the most similar first, but for actions that
                rewards speak against.
        """
        nothing = (nearest_first(of_items, most), "")
        if len(self._actions) == 1 or not actions or not len(self):
            return nothing
        weights = self._weigh(1 + NAMED if named else 1 + PERSONAL).of_arms.copy()
        number = self._persons.get(person, -1)
        if number not in self._acted_for:  # of whom nothing is known, what holds for everybody is expected
            weights[DONE], weights[PERSONAL] = weights[DONE] + weights[PERSONAL], 0.0
        spoken = float(weights[DONE:].sum())
        if spoken < SPOKEN:
            return nothing
        near = with_blame = self._near(vector)
        judged = blamed = self._judge(near, actions, actions=True)
        if self._steps:
            with_blame = self._look_near(vector, blame=True)
            blamed = self._judge(with_blame, actions, actions=True)
        if named or self._steps:
            gains = weights[DONE] @ blamed.gain.reshape(len(MODELS), len(actions))
        else:  # each action was rewarded by itself: the ridge regressions alone choose better
            gains = weights[DONE].reshape(-1, len(SHARES)).sum(axis=0) @ judged.overall[_OF_RIDGES, 0]
        whom = None
        if weights[PERSONAL].any():
            for_person = self._judge(with_blame, actions, actions=True, person=number)
            personal = self._familiarity(number, near)
            everybody = gains / max(float(weights[DONE].sum()), 1e-12)
            gains = gains + personal * (weights[PERSONAL] @ for_person.gain.reshape(len(MODELS), len(actions)))
            gains += (1.0 - personal) * float(weights[PERSONAL].sum()) * everybody
            if weights[PERSONAL].sum() > weights[DONE].sum():
                whom, judged = number, for_person
        roles, by_role, telling = None, np.zeros(len(ROLES)), list[int]()
        if named:
            roles = self._judge_roles(near, list(ROLES))
            by_role = weights[NAMED] @ roles.gain.reshape(len(MODELS), len(ROLES))
            by_role *= np.abs(by_role) > TELLING * weights[NAMED].sum()
            telling = [max(named.get(action, (NONE,)), key=lambda role: by_role[role]) for action in actions]
            gains += by_role[telling]
            by_role *= float(weights[NAMED].sum() > max(HEARD, weights[DONE:NAMED].sum()))
        gains /= spoken
        best_first = np.argsort(-gains, kind="stable").tolist()
        # If each action was rewarded by itself, there is no warning of the best one that was tried, even if an untried one seems
        # better: else a few false failures of the right action would leave nothing to take.
        spared = next((index for index in best_first if actions[index] in self._actions), -1)
        in_role: AdvicePieces = ()
        pieces: list[tuple[str, float, float]] = []
        records = dict[str, str]()
        for index in (best_first[0], *reversed(best_first[1:])):
            against = index != best_first[0]
            if (-gains[index] if against else gains[index]) < ADVISED:
                continue
            if against and index == spared and not (named or self._steps):
                continue
            in_role_of = roles if roles and not against and by_role[telling[index]] > 0.0 else None
            judged_by, at = (in_role_of, telling[index]) if in_role_of else (judged, index)
            if in_role_of:
                rows = self._roles[self._first : self._count, at].nonzero()[0] + self._first
            else:
                rows = self._rows_of(actions[index], whom)
            rows = rows[(self._credit[rows] > 0.0) & ((self._rewards[rows] < 0.5) == against)]
            if against:
                rows = rows[self._weight[rows] >= self._credit[rows]]
                if not len(rows):
                    continue
            cosines = self._questions[self._question[rows]] @ vector.astype(np.float32)
            if in_role_of is None:
                cosines = cosines[cosines > 0.0]
            nearest = np.sort(cosines)[::-1][: 1 if against else VOTES]
            cited = [(actions[index], -1.0 if against else 1.0, float(cosine)) for cosine in nearest]
            if in_role_of:
                in_role = tuple(cited)
            else:
                pieces += cited
            record = Worth(0.0, 0.0, float(judged_by.times[0, at]), float(judged_by.earned[0, at]), 1.0).sentence
            record = record or f"{'wrong' if against else 'right'} where something like this was asked"
            role = "" if in_role_of is None else f"named by {ROLES[at]} of this episode; such an action was "
            records[actions[index]] = f"- {as_line(actions[index])}: {role}{record}"
        # What items advise is left out where rewards speak against it: many records from outside would outweigh them for ever.
        failing = {actions[index] for index in best_first if gains[index] <= -ADVISED}
        others = [piece for piece in of_items if piece[1] < 0.0 or piece[0] not in failing]
        chosen = (*in_role, *nearest_first((*pieces[:most], *others), most))[:most]
        advised = dict.fromkeys(action for action, _, _ in chosen)
        return chosen, "\n".join(records[action] for action in advised if action in records)
