"""The record types that all other packages share.

Imports no other package of keepworth. Start with `episode.py`."""

from keepworth.episodes.episode import Decision as Decision
from keepworth.episodes.episode import DecisionKind as DecisionKind
from keepworth.episodes.episode import Episode as Episode
from keepworth.episodes.episode import Group as Group
from keepworth.episodes.episode import Operation as Operation
from keepworth.episodes.episode import OperationKind as OperationKind
from keepworth.episodes.episode import ParseStatus as ParseStatus
from keepworth.episodes.episode import RewardScope as RewardScope
from keepworth.episodes.episode import RewardTerm as RewardTerm
from keepworth.episodes.episode import Segment as Segment
from keepworth.episodes.episode import Session as Session
from keepworth.episodes.episode import StopReason as StopReason
from keepworth.episodes.episode import Task as Task
from keepworth.episodes.episode import Turn as Turn
from keepworth.episodes.model import EncoderIdentity as EncoderIdentity
from keepworth.episodes.model import FinishReason as FinishReason
from keepworth.episodes.model import Model as Model
from keepworth.episodes.model import Sample as Sample
from keepworth.episodes.model import SamplingParams as SamplingParams
from keepworth.episodes.model import VersionSpan as VersionSpan
