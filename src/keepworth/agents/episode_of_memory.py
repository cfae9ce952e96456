"""EpisodeOfMemory: one attempt at a task with a memory that learns. Made by `LearningMemory.episode`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from types import TracebackType

from keepworth.agents.learning_memory import LearningMemory, OpenEpisode
from keepworth.episodes.prompt_text import as_text
from keepworth.memory.errors import InvalidText
from keepworth.memory.policy.errors import ClosedDecision, InvalidReward, UnknownDecision
from keepworth.memory.policy.slots import Presented
from keepworth.memory.policy.wording import worded, worded_actions

Judge = Callable[[str, str], float]
"""(action, what came next) -> -1, 0 or 1: whether the next state speaks for the action (arXiv 2603.10165)."""


class EpisodeOfMemory:
    """Recall, act, reward, in this order, as often as the episode has steps."""

    def __init__(self, memory: LearningMemory, id: str) -> None:
        self._memory = memory
        self.id = id

    def __enter__(self) -> EpisodeOfMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    @property
    def _record(self) -> OpenEpisode:
        return self._memory.opened(self.id)

    def recall(self, observation: str = "", actions: Sequence[str] = ()) -> Presented:
        """What memory shows here: text for a prompt, advice for a policy. On file before it is returned.

        actions: what can be done here, where that is known. Raises InvalidText, ClosedDecision."""
        memory, record = self._memory, self._record
        seen, possible = worded(observation, "the observation"), worded_actions(actions)
        if not (record.goal.strip() or seen.strip()):
            raise InvalidText(
                f"episode {self.id!r} has no goal and was given no observation: there is nothing to go by"
            )
        if len(record.uses) != len(record.actions):
            raise ClosedDecision(
                f"episode {self.id!r} recalled twice without acting.", "Say with `act` what was done after each recall."
            )
        if record.outcome is not None:
            raise ClosedDecision(f"episode {self.id!r} has its reward.", "Open a new episode.")
        use = memory.experience.recall(record.goal, seen, possible, step=len(record.uses), by=record.by)
        memory.journal.decide(self.id, use, memory.experience.pool, memory.policy)
        record.uses.append(use)
        return memory.experience.present(use)

    def act(self, action: str) -> None:
        """What was done after the last recall. Raises InvalidText, ClosedDecision."""
        record = self._record
        if record.outcome is not None:
            raise ClosedDecision(f"episode {self.id!r} has its reward.", "Open a new episode.")
        if len(record.actions) != len(record.uses) - 1:
            raise ClosedDecision(f"episode {self.id!r} acted without recalling.", "Call `recall` before each `act`.")
        done = worded(action, "the action")
        self._memory.journal.note("act", self.id, action=done)
        record.actions.append(done)
        record.steps.append(math.nan)

    def step_reward(self, reward: float) -> None:
        """The reward of the last action alone; steps without one are credited with the final reward."""
        record = self._record
        if not record.actions or record.outcome is not None:
            raise UnknownDecision(f"episode {self.id!r} has no open action to reward.", "Call `act` first.")
        value = self._memory.checked(reward)
        self._memory.journal.note("step", self.id, reward=value)
        record.steps[-1] = value

    def next_state(self, text: str, judge: Judge) -> float:
        """Let what came next speak for the last action: the judge's vote of -1, 0 or 1, scaled to the reward range."""
        record = self._record
        if not record.actions:
            raise UnknownDecision(f"episode {self.id!r} has no action yet.", "Call `act` first.")
        vote = judge(record.actions[-1], text)
        memory = self._memory
        if not isinstance(vote, Real) or not math.isfinite(vote):
            raise InvalidReward(f"the judge of episode {self.id!r} said {vote!r:.60}.", "Let it say -1, 0 or 1.")
        value = memory.low + (max(-1.0, min(1.0, float(vote))) + 1.0) / 2.0 * (memory.high - memory.low)
        self.step_reward(value)
        return value

    def reward(self, reward: float, *, by: str | None = None) -> bool:
        """The final reward: what was shown is credited, what is worth keeping is written. by: whose judgement it is, as for
        `LearningMemory.reward`; it stands for the rewards of single steps too."""
        return self._memory.reward(self.id, reward, by=by)


def answered(
    memory: LearningMemory, task: str, agent: Callable[[str], str], grade: Callable[[str], float], *, by: str = ""
) -> str:
    """One whole turn around an agent that is a function of its prompt (a wrapper of any chat endpoint is one). by: who asks and
    grades."""
    with memory.episode(task, by=by) as episode:
        shown = episode.recall()
        answer = agent(f"{shown.text}\n\n{as_text(task)}".strip())
        episode.act(answer)
        episode.reward(grade(answer))
    return answer
