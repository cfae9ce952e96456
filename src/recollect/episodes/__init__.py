"""What happened, and what is needed to say it: the record types every other room shares.

Imports nothing else of ours. Start with `task.py`, then `segment.py`, then `episode.py`.
"""

from recollect.episodes.decision import Decision, DecisionKind
from recollect.episodes.encoder import Encoder, EncoderIdentity
from recollect.episodes.episode import Episode, Group, StopReason
from recollect.episodes.model import (
    Capabilities,
    FinishReason,
    Model,
    Receipt,
    Sample,
    SamplingParams,
    VersionSpan,
)
from recollect.episodes.operation import Operation, OperationKind, ParseStatus
from recollect.episodes.reward import RewardScope, RewardTerm
from recollect.episodes.segment import Segment
from recollect.episodes.task import Session, Task, Turn

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
