"""What happened, and what is needed to say it: the record types every other room shares.

Imports nothing else of ours. Start with `task.py`, then `segment.py`, then `episode.py`.
"""

from keepworth.episodes.decision import Decision, DecisionKind
from keepworth.episodes.encoder import Encoder, EncoderIdentity
from keepworth.episodes.episode import Episode, Group, StopReason
from keepworth.episodes.model import (
    Capabilities,
    FinishReason,
    Model,
    Receipt,
    Sample,
    SamplingParams,
    VersionSpan,
)
from keepworth.episodes.operation import Operation, OperationKind, ParseStatus
from keepworth.episodes.reward import RewardScope, RewardTerm
from keepworth.episodes.segment import Segment
from keepworth.episodes.task import Session, Task, Turn

__all__ = [
    "Capabilities",
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
