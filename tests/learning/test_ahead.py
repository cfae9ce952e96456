"""Agents played ahead of the learner: a stage's horizon is how many turns they have."""

from __future__ import annotations

import asyncio

from keepworth.agents.tool_caller import ToolCaller
from keepworth.environments.tool_use import ToolUse, tool
from keepworth.episodes import FinishReason, Sample, StopReason, Task
from keepworth.episodes.model import VersionSpan
from keepworth.learning.collect.ahead import PlayedAhead
from keepworth.learning.collect.attempt import Attempt, Tape
from keepworth.learning.collect.stages import Stage
from keepworth.models.continuous import Draft
from keepworth.rollouts.driver import Limits, Play
from tests.models.tiny import tiny_model


def shout(text: str) -> str:
    """The text in capitals."""
    return text.upper()


class Shouting:
    """Never comes to an answer."""

    async def sample(self, draft: Draft) -> Sample:
        ids = tuple(b" shout: a\n")
        return Sample(ids, (-1.0,) * len(ids), FinishReason.STOP, (VersionSpan(0, 0, len(ids)),))


def test_a_stages_horizon_is_the_turns_of_an_episode() -> None:
    how = Play(
        environment=lambda task: ToolUse([tool(shout)], turns=9), agent=lambda task, memory: ToolCaller(max_tokens=16)
    )
    played = PlayedAhead(tiny_model(), lambda ticket: task, how, lambda step: None, limits=Limits(max_turns=4))
    task = Task("t/1", "t", "Say a.", ("a",), "exact_match")
    for stage, turns in ((None, 4), (Stage(1), 4), (Stage(1, horizon=2), 2), (Stage(1, horizon=6), 6)):
        attempt = Attempt(Shouting(), Tape(), 0, 0, 0, 5.0, None, stage)
        episode = asyncio.run(played.rollout(task, attempt))
        assert len(episode.segments) == turns
        assert episode.stop is StopReason.MAX_TURNS
