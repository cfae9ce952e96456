"""A sample in the making, as plain data: what it is drawn with, and what of it was drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan


@dataclass(slots=True, eq=False)
class PartialSample:
    """A sample in the making: all that is needed to go on with it here or in another process.

    stream: what its draws are seeded with beside `params.seed`; (prompt index, sample index) draws what
    `InProcessModel.sample` draws. group: index of the group it is sampled for. spans: under which weights its tokens were drawn.
    """

    prompt: Tokens
    params: SamplingParams
    stream: tuple[int, ...]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[VersionSpan] = field(default_factory=list)
    finish: FinishReason | None = None
    group: int = 0
    _draws: npt.NDArray[np.float64] | None = None

    def draws(self) -> npt.NDArray[np.float64]:
        """Numbers in [0, 1) at which its next tokens are drawn, one for each that it may still have."""
        if self._draws is None:
            generator = np.random.default_rng((self.params.seed, *self.stream))
            self._draws = generator.random(self.params.max_tokens)
        return self._draws[len(self.ids) :]

    def append(self, drawn: Sample) -> None:
        """Go on with what was drawn. It ends where `drawn` ended, which it has not where that was interrupted (ABORTED)."""
        start = len(self.ids)
        self.ids += drawn.ids
        self.logprobs += drawn.logprobs
        self.spans += [
            VersionSpan(span.version, start + span.start, start + span.end) for span in drawn.spans if span.end
        ]
        if drawn.finish is not FinishReason.ABORTED:
            self.finish = drawn.finish
        elif len(self.ids) >= self.params.max_tokens:
            self.finish = FinishReason.LENGTH

    def sample(self) -> Sample:
        """What has been drawn so far; ABORTED where it has not ended."""
        return Sample(tuple(self.ids), tuple(self.logprobs), self.finish or FinishReason.ABORTED, tuple(self.spans))
