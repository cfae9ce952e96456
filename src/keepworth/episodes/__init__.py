"""The record types that all other packages share.

Imports no other package of keepworth. Start with `episode.py`."""

from keepworth.episodes.episode import (
    Decision,
    DecisionKind,
    Episode,
    Group,
    Operation,
    OperationKind,
    ParseStatus,
    RewardScope,
    RewardTerm,
    Segment,
    Session,
    StopReason,
    Task,
    Turn,
)
from keepworth.episodes.model import (
    Encoder,
    EncoderIdentity,
    FinishReason,
    Model,
    Receipt,
    Sample,
    SamplingParams,
    VersionSpan,
)

__all__ = [
    "Decision",
    "DecisionKind",
    "Encoder",
    "EncoderIdentity",
    "Episode",
    "FinishReason",
    "Group",
    "Model",
    "Operation",
    "OperationKind",
    "ParseStatus",
    "Receipt",
    "RewardScope",
    "RewardTerm",
    "Sample",
    "SamplingParams",
    "Segment",
    "Session",
    "StopReason",
    "Task",
    "Turn",
    "VersionSpan",
]
