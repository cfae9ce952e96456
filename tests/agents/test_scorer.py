from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keepworth.agents.simulated import ScoringAgent
from keepworth.memory.policy.slots import Presented


class CountingModel:
    """Log-probability of a branch token: larger the more often it occurs in the prompt; long words are unlikely."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(hash(word) % 100_003 for word in text.split())

    encode_continuation = encode

    def score(
        self,
        prompts: Sequence[tuple[int, ...]],
        branches: Sequence[Sequence[tuple[int, ...]]],
        temperature: float = 1.0,
    ) -> list[list[tuple[float, ...]]]:
        return [
            [
                tuple(-5.0 - 3.0 * (token == hash("alpha") % 100_003) + prompt.count(token) for token in branch)
                for branch in each
            ]
            for prompt, each in zip(prompts, branches, strict=True)
        ]


def test_calibration_takes_out_how_likely_an_action_is_as_text() -> None:
    shown = Presented("- (worked) thing -> alpha: it worked\n- (worked) other -> alpha it worked")
    actions, noise = ("alpha", "beta"), np.zeros(2)
    agent = ScoringAgent(CountingModel())  # type: ignore[arg-type]
    assert agent._raw("thing", actions, shown.text).argmax() == 1
    assert agent("thing", actions, (), shown, noise) == "alpha"
