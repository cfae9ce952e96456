"""An unfinished sample as plain data: its prompt and settings, and the tokens drawn so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from keepworth.records.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan


@dataclass(slots=True, eq=False)
class PartialSample:
    """An unfinished sample, with all that is needed to continue it here or in another process.

    Attributes:
        stream: Seeds the draws together with `params.seed`; (prompt index, sample index) draws what `InProcessModel.sample`
            draws.
        group: The index of the group that it is sampled for.
        spans: The versions of the weights that its tokens were drawn under.
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
        """Returns the random numbers in [0, 1) for the tokens that it may still draw."""
        if self._draws is None:
            generator = np.random.default_rng((self.params.seed, *self.stream))
            self._draws = generator.random(self.params.max_tokens)
        return self._draws[len(self.ids) :]

    def append(self, drawn: Sample) -> None:
        """Appends drawn tokens. The sample ends where `drawn` ended; `drawn` that was interrupted (ABORTED) does not end it."""
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
        """Returns the tokens drawn so far as a sample, ABORTED where it has not ended."""
        return Sample(tuple(self.ids), tuple(self.logprobs), self.finish or FinishReason.ABORTED, tuple(self.spans))
