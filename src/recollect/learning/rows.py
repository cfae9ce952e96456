"""From groups of episodes to the padded rows an objective reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from recollect.episodes.episode import Group
from recollect.episodes.model import FinishReason, Tokens
from recollect.learning.objective.batch import Batch


@dataclass(frozen=True, slots=True)
class Rows:
    """`batch` holds one row per segment; `contexts[b]` and `answers[b]` are the exact ids of row b."""

    batch: Batch
    contexts: tuple[Tokens, ...]
    answers: tuple[Tokens, ...]


def rows_of(groups: Sequence[Group], role: str, version: int) -> Rows:
    """Every segment of `role` becomes a row; T is the longest answer. version: the learner's, for `version_lag`.

    Raises ValueError where there is nothing to train on, or where sampling temperatures differ within a step.
    """
    found = [
        (number, index, segment, episode)
        for number, group in enumerate(groups)
        for index, episode in enumerate(group.episodes)
        for segment in episode.segments
        if segment.role == role
    ]
    if not found:
        raise ValueError(f"no episode of this step has a segment of role {role!r}")
    width = max(len(segment.ids) for _, _, segment, _ in found)
    mask = torch.zeros(len(found), width)
    behaviour, lag = torch.zeros(len(found), width), torch.zeros(len(found), width)
    ids = torch.zeros(len(found), width, dtype=torch.long)
    episode_of: dict[tuple[int, int], int] = {}
    for row, (number, index, segment, _) in enumerate(found):
        length = len(segment.ids)
        mask[row, :length] = 1
        behaviour[row, :length] = torch.tensor(segment.logprobs)
        ids[row, :length] = torch.tensor(segment.ids)
        for span in segment.spans:
            lag[row, span.start : span.end] = version - span.version
        episode_of.setdefault((number, index), len(episode_of))
    batch = Batch(
        mask=mask,
        lp_behaviour=behaviour,
        rewards=torch.tensor([episode.reward for *_, episode in found], dtype=torch.float64),
        group=torch.tensor([number for number, *_ in found]),
        episode=torch.tensor([episode_of[number, index] for number, index, *_ in found]),
        version_lag=lag,
        ids=ids,
        truncated=torch.tensor([segment.finish is FinishReason.LENGTH for _, _, segment, _ in found]),
    )
    return Rows(batch, tuple(s.context for _, _, s, _ in found), tuple(s.ids for _, _, s, _ in found))


def by_context(contexts: Sequence[Tokens], rows: Sequence[int]) -> dict[Tokens, list[int]]:
    """Rows that share their whole context become branches of one prompt."""
    shared: dict[Tokens, list[int]] = {}
    for row in rows:
        shared.setdefault(contexts[row], []).append(row)
    return shared
