"""Episode to JSON and back: one form for run folders, exports and the viewer.

The form is the record itself: fields by their names, enumerations by their values, tuples as lists. Numbers survive
exactly (JSON writes the shortest decimal that reads back as the same double; infinities and NaN are kept as Python
writes them). Unknown fields are refused, so a file of a later version is never read with something silently lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from keepworth.episodes.decision import Decision, DecisionKind
from keepworth.episodes.episode import Episode, Exchange, MemoryEvent, Shown, StopReason
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import FinishReason, VersionSpan
from keepworth.episodes.operation import Operation, OperationKind, ParseStatus
from keepworth.episodes.reward import RewardScope, RewardTerm
from keepworth.episodes.segment import Segment

Json = dict[str, Any]


class BadRecord(KeepworthError):
    """A JSON object that is not an episode of this version."""


def episode_to_json(episode: Episode) -> Json:
    """A mapping of plain JSON values, fields in the order of the record."""
    encoded = _plain(episode)
    assert isinstance(encoded, dict)
    return encoded


def episode_from_json(record: Mapping[str, Any]) -> Episode:
    """The inverse of `episode_to_json`. Raises BadRecord, naming the field, on anything else."""
    identity = record.get("id", "?")
    try:
        return _episode(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRecord(
            f"Record {identity!r} is not an episode of this version: {type(error).__name__}: {error}.",
            "Read it with the version of keepworth that wrote it, or write it again.",
        ) from error


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


def _episode(record: Mapping[str, Any]) -> Episode:
    known = {each.name for each in fields(Episode)}
    unknown = sorted(set(record) - known)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}")
    given = dict(record)
    given["segments"] = tuple(_segment(each) for each in given["segments"])
    given["expected"] = tuple(given["expected"])
    given["rewards"] = tuple(
        RewardTerm(**{**each, "scope": RewardScope(each.get("scope", "episode"))}) for each in given["rewards"]
    )
    given["stop"] = StopReason(given["stop"])
    given["shown"] = tuple(Shown(**each) for each in given.get("shown", ()))
    given["decisions"] = tuple(_decision(each) for each in given.get("decisions", ()))
    given["operations"] = tuple(_event(each) for each in given.get("operations", ()))
    given["errors"] = tuple(given.get("errors", ()))
    given["exchanges"] = tuple(Exchange(**each) for each in given.get("exchanges", ()))
    given["seconds"] = dict(given.get("seconds", {}))
    return Episode(**given)


def _segment(record: Mapping[str, Any]) -> Segment:
    return Segment(
        **{
            **record,
            "context": tuple(record["context"]),
            "ids": tuple(record["ids"]),
            "logprobs": tuple(record["logprobs"]),
            "finish": FinishReason(record["finish"]),
            "spans": tuple(VersionSpan(**each) for each in record["spans"]),
        }
    )


def _decision(record: Mapping[str, Any]) -> Decision:
    return Decision(
        **{
            **record,
            "kind": DecisionKind(record["kind"]),
            "candidates": tuple((str(item), float(score)) for item, score in record["candidates"]),
            "chosen": tuple(record["chosen"]),
        }
    )


def _event(record: Mapping[str, Any]) -> MemoryEvent:
    operation = record["operation"]
    return MemoryEvent(
        operation=Operation(
            **{
                **operation,
                "kind": OperationKind(operation["kind"]),
                "targets": tuple(operation.get("targets", ())),
            }
        ),
        status=ParseStatus(record["status"]),
        outcome=record["outcome"],
    )
