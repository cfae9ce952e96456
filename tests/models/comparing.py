"""What a model scores and draws beside the plain computation: one text at a time, no cache, no shared prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.models.families import plain_scores
from keepworth.records.model import Tokens

Branches = Sequence[Sequence[Tokens]]


def plain_gaps(plain: Any, prompts: Sequence[Tokens], branches: Branches, scores: Sequence[Any]) -> torch.Tensor:
    """By how much the scores of all tokens differ from those of the plain network."""
    gaps = [torch.zeros(0)]
    for prompt, group, rows in zip(prompts, branches, scores, strict=True):
        for branch, values in zip(group, rows, strict=True):
            assert len(values) == len(branch)
            wanted = plain_scores(plain, prompt, branch).double() if branch else torch.zeros(0)
            gaps.append(torch.tensor(values, dtype=torch.float64) - wanted)
    return torch.cat(gaps).abs()


def require_scored(model: Any, prompts: Sequence[Tokens], groups: Any, gap: float, **how: Any) -> None:
    """All samples have the log-probabilities with which `model` scores them."""
    scored = model.score(prompts, [[sample.ids for sample in group] for group in groups], **how)
    for group, rows in zip(groups, scored, strict=True):
        for sample, row in zip(group, rows, strict=True):
            ours, theirs = (torch.tensor(each, dtype=torch.float64) for each in (sample.logprobs, row))
            torch.testing.assert_close(ours, theirs, rtol=0.0, atol=gap)
