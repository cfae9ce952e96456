"""Groups of episodes of several model calls, sampled from the tiny model: two continue each other, a third starts anew."""

from __future__ import annotations

from typing import Any

from keepworth.episodes import Group, RewardScope, RewardTerm, SamplingParams, Segment
from keepworth.models.inprocess import InProcessModel
from tests.episode_of import episode_of

ROLE = "speaker"
PROMPTS = (tuple(b"say:"), tuple(b"and again:"))
REWRITTEN = tuple(b"memory: x;")
WRITTEN = tuple(b"(ok)")
REWARDS = ((1.0, 0.0, 0.5, 0.0), (0.0, 0.0, 0.0, 1.0))


def segment(
    context: tuple[int, ...], sample: Any, state: str = "", role: str = ROLE, seconds: float | None = None
) -> Segment:
    drawn = (sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans)
    return Segment(role, "p", context, *drawn, "", state=state, seconds=seconds)


def sampled_groups(model: InProcessModel, size: int = 4, seed: int = 0) -> list[Group]:
    """Two groups: whole rollouts, and re-rolls. Every episode: say 2 tokens, be answered, say 2, start anew, say 2."""
    groups = []
    for number, prompt in enumerate(PROMPTS):
        first = model.sample([prompt], SamplingParams(2, n=size, seed=seed + number))[0]
        follow = [prompt + sample.ids + WRITTEN[: 1 + j % 3] for j, sample in enumerate(first)]
        second = [drawn[0] for drawn in model.sample(follow, SamplingParams(2, seed=seed + 10 + number))]
        anew = [REWRITTEN + sample.ids[:1] for sample in second]
        third = [drawn[0] for drawn in model.sample(anew, SamplingParams(2, seed=seed + 20 + number))]
        episodes = tuple(
            episode_of(
                f"{number}/{j}",
                [
                    segment(prompt, first[j], "start", seconds=1.0),
                    segment(follow[j], second[j], f"said {first[j].ids[0] % 2}", seconds=2.0 + j),
                    segment(anew[j], third[j]),
                ],
                [
                    RewardTerm("task", REWARDS[number][j]),
                    RewardTerm("turn", 0.1 * j, scope=RewardScope.SEGMENT, segment=1),
                    RewardTerm("episodic", 0.0),
                ],
                task=f"kind{number}/{number}",
                role=ROLE,
                parent="0/0" if number else "",
            )
            for j in range(size)
        )
        groups.append(Group(f"kind{number}/{number}", "", episodes))
    return groups
