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
    `InProcessModel.sample` draws. group: index of the group it is sampled for. spans: of the tokens drawn under weights that
    have been replaced since.
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

    def close_span(self, version: int) -> None:
        """What was drawn since the last span was drawn under `version`."""
        start = self.spans[-1].end if self.spans else 0
        if len(self.ids) > start:
            self.spans.append(VersionSpan(version, start, len(self.ids)))

    def sample(self, version: int) -> Sample:
        """What has been drawn so far; ABORTED where it has not ended."""
        start = self.spans[-1].end if self.spans else 0
        last = (VersionSpan(version, start, len(self.ids)),) if len(self.ids) > start else ()
        return Sample(tuple(self.ids), tuple(self.logprobs), self.finish or FinishReason.ABORTED, (*self.spans, *last))
