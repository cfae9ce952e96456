"""One episode of a world with a memory that learns around it: recall, choose, act, and say what came of it.

    memory = Memory("experience.mem", policy="advantage")
    success = played(memory, task.world(), choose)

Each step is on file before the next, so a process that dies in between leaves an episode that is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keepworth.environments.scene import World
from keepworth.episodes.errors import KeepworthError
from keepworth.memory.memory import Memory
from keepworth.memory.search.ranking import Hits

Choose = Callable[[str, Sequence[str], Hits], str]
"""(what is seen, the actions, what memory shows) -> one of the actions."""


def played(memory: Memory, world: World, choose: Choose, *, longest: int = 200, by: str = "") -> float:
    """The episode's reward, 0 to 1; memory is told it in its own range, and of single steps where the world says anything.

    by: for whom it is played; the reward is the world's own, so the program vouches for it. Where only one action is possible
    it is taken unasked. After `longest` actions the episode ends with what it has.
    """
    scene = world.reset()

    low, high = (memory.learning.reward_range if memory.learning is not None else None) or (0.0, 1.0)

    def told(reward: float) -> float:
        return low + reward * (high - low)

    with memory.episode(scene.goal, by=by) as episode:
        for _ in range(longest):
            if scene.done:
                break
            if len(scene.actions) == 1:
                scene = world.act(scene.actions[0])
                continue
            action = choose(scene.text, scene.actions, episode.search(scene.observation, actions=scene.actions))
            if action not in scene.actions:
                raise KeepworthError(
                    f"the agent chose {action!r}, which is not possible here.", f"Choose one of {list(scene.actions)}."
                )
            episode.act(action)
            scene = world.act(action)
            if scene.signal is not None:
                episode.step_reward(told(scene.signal))
        episode.reward(told(scene.reward), by="")
    return scene.reward
