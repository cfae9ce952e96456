"""The record types that all other packages share.

Imports no other package of keepworth. Start with `episode.py`."""

from keepworth.records.episode import Decision as Decision
from keepworth.records.episode import DecisionKind as DecisionKind
from keepworth.records.episode import Episode as Episode
from keepworth.records.episode import Group as Group
from keepworth.records.episode import Operation as Operation
from keepworth.records.episode import OperationKind as OperationKind
from keepworth.records.episode import ParseStatus as ParseStatus
from keepworth.records.episode import RewardScope as RewardScope
from keepworth.records.episode import RewardTerm as RewardTerm
from keepworth.records.episode import Segment as Segment
from keepworth.records.episode import Session as Session
from keepworth.records.episode import StopReason as StopReason
from keepworth.records.episode import Task as Task
from keepworth.records.episode import Turn as Turn
from keepworth.records.model import EncoderIdentity as EncoderIdentity
from keepworth.records.model import FinishReason as FinishReason
from keepworth.records.model import Model as Model
from keepworth.records.model import Sample as Sample
from keepworth.records.model import SamplingParams as SamplingParams
from keepworth.records.model import VersionSpan as VersionSpan
