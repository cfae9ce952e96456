"""Operation: one change an agent asks of its memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class OperationKind(str, Enum):
    """UPDATE rewords the same fact (new revision, same id); SUPERSEDE closes a fact that changed and links its successor."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    SUPERSEDE = "SUPERSEDE"
    DELETE = "DELETE"
    NOOP = "NOOP"
    MERGE = "MERGE"
    LINK = "LINK"


class ParseStatus(str, Enum):
    """How a model's text became an operation. INVALID changes nothing and is counted."""

    OK = "ok"
    REPAIRED = "repaired"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Operation:
    """kind; `targets`: ids of the items it acts on, as the bank knows them; `text`: the new wording, if any."""

    kind: OperationKind
    targets: tuple[str, ...] = ()
    text: str = ""
