"""What a request to a memory may say, field by field; what is left out is as in `keepworth.Memory`.

The fields are the arguments of the verbs, by their names. What they mean, and which values are refused, the verbs say."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from keepworth.memory.item import LONGEST_NAME, ItemKind, Status
from keepworth.memory.search.search import MODES
from keepworth.serving.access import LONGEST_DAYS, PERMISSIONS, ROLES

_PRINTED = r"^[^\u0000-\u001f]*$"
_KINDS: list[Any] = [each.value for each in ItemKind]
_STATUSES: list[Any] = [each.value for each in Status]


def _whole(value: Any) -> Any:
    """1.0 is a whole number to JSON Schema, and to languages that have one kind of numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# What verbs refuse by themselves, with better words, the description says beside: callers that are made from it know.
Name = Annotated[str, Field(max_length=LONGEST_NAME, json_schema_extra={"pattern": _PRINTED})]
Kind = Annotated[str, Field(json_schema_extra={"enum": _KINDS})]
StatusName = Annotated[str, Field(json_schema_extra={"enum": _STATUSES})]
Whole = Annotated[int, BeforeValidator(_whole)]
Time = str | float
MOST = 1000
"""Of whatever is listed or asked for at once: texts, ids, hits, a page."""


class _RequestBody(BaseModel):
    """A body. Unknown fields are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    def given(self, *besides: str) -> dict[str, Any]:
        """What was given, as arguments."""
        return self.model_dump(exclude_unset=True, exclude=set(besides))


class _RequestQuery(_RequestBody):
    """The parameters of a URL, which are text."""

    model_config = ConfigDict(extra="forbid", strict=False, allow_inf_nan=False)


class NoFields(_RequestBody):
    pass


class ScopeQuery(_RequestQuery):
    user_id: Name = ""
    agent_id: Name = ""
    session_id: Name = ""


class ListQuery(ScopeQuery):
    kinds: str = Field(
        "",
        description="Kinds of items, with commas between them; all if left out.",
        json_schema_extra={"pattern": f"^(({'|'.join(_KINDS)})(,({'|'.join(_KINDS)}))*)?$"},
    )
    limit: int = Field(100, ge=1, le=MOST)
    after: str = Field("", description="`next` of the page before.")
    newest: bool = Field(False, description="The newest first.")
    all_states: bool = Field(False, description="Superseded, deleted and held back items too.")
    where: str = Field("", max_length=MOST, description="A filter on metadata, as JSON.")


class EpisodesQuery(ScopeQuery):
    limit: int = Field(100, ge=1, le=MOST)
    after: str = Field("", description="`next` of the page before.")


class WorthQuery(_RequestQuery):
    query: str


class DiffQuery(_RequestQuery):
    one: str
    other: str = ""


class LedgerQuery(_RequestQuery):
    items: str = Field("", description="Ids, with commas between them; all that were shown with a reward if left out.")
    source: str = ""
    everything: bool = False
    exact: bool = False


class QuarantineQuery(_RequestQuery):
    limit: int = Field(100, ge=1, le=MOST)
    after: str = ""


class RunsQuery(_RequestQuery):
    limit: int = Field(50, ge=1, le=MOST)
    after: str = Field("", description="`next` of the page before.")


class EstimateQuery(_RequestQuery):
    policy: str
    method: str = Field("snips", json_schema_extra={"enum": ["snips", "ips", "dr", "items"]})


class AuditQuery(_RequestQuery):
    limit: int = Field(100, ge=1, le=MOST)
    after: int = Field(0, ge=0, le=2**53, description="The `next` of the page before.")


class _Bounds(_RequestBody):
    user_id: Name = ""
    agent_id: Name = ""
    session_id: Name = ""


class ProvenanceBody(_RequestBody):
    source: str = ""
    session: str = ""
    turn: Whole = Field(-1, ge=-1, le=2**53)
    speaker: str = ""
    date: str = ""


def _said(name: str) -> JsonDict:
    """Given, and neither null nor ""."""
    return {
        "required": [name],
        "properties": {name: {"type": ["string", "array", "integer"], "minLength": 1, "minimum": 1}},
    }


def _one_of(*names: str) -> JsonDict:
    return {"oneOf": [_said(name) for name in names]}


class NewItemsBody(_Bounds):
    """One of `content` and `texts`."""

    model_config = ConfigDict(json_schema_extra=_one_of("content", "texts"))
    content: str | list[dict[str, Any]] | None = Field(None, description="A text, or messages with role and content.")
    texts: list[str] | None = Field(None, max_length=MOST, description="Several texts: all of them or none.")
    infer: bool = Field(False, description="Let the writer of this server say what to keep of `content`.")
    kind: Kind = "fact"
    key: str = ""
    event_time: Time = ""
    valid_from: Time = ""
    valid_to: Time = ""
    expires_at: Time = ""
    ttl: float | None = None
    trust: float = 1.0
    status: StatusName = "active"
    metadata: dict[str, Any] | None = None
    source: str = ""
    provenances: list[ProvenanceBody] | None = Field(None, max_length=MOST)
    dedupe: bool | float = False
    repeat: bool = False
    episode: str = ""


class UpdateBody(_RequestBody):
    text: str | None = None
    status: StatusName | None = None
    trust: float | None = None
    expires_at: Time | None = None
    metadata: dict[str, Any] | None = None
    repeat: bool = False
    episode: str = ""


class SupersedeBody(_RequestBody):
    text: str
    event_time: Time = ""
    key: str = ""
    expires_at: Time = ""
    metadata: dict[str, Any] | None = None
    source: str = ""
    episode: str = ""


class DeleteQuery(_RequestQuery):
    episode: str = ""


class _Search(_Bounds):
    top_k: Whole = Field(10, ge=1, le=MOST)
    mode: Annotated[str, Field(json_schema_extra={"enum": list(MODES)})] | None = None
    threshold: float | None = None
    actions: list[str] = Field([], max_length=MOST)
    explain: bool = False
    kinds: list[Kind] = Field([], max_length=100)
    statuses: list[StatusName] = Field(["active"], max_length=100)
    where: dict[str, Any] | None = None
    since: Time = ""
    until: Time = ""
    as_of: Time = ""
    half_life: float = 0.0
    diversity: float = 0.0


class SearchBody(_Search):
    query: str
    episode: str = ""
    step: Whole = Field(0, ge=0, le=10**9)


class SearchesBody(_Search):
    queries: list[str] = Field(max_length=100)
    episode: str = ""
    step: Whole = Field(0, ge=0, le=10**9)


class EpisodeSearchBody(_Search):
    query: str = ""


class EpisodeBody(_Bounds):
    task: str = ""
    by: str = ""
    explore: bool = True


class ActBody(_RequestBody):
    action: str


class StepRewardBody(_RequestBody):
    value: float


class EpisodeRewardBody(_RequestBody):
    value: float
    by: str | None = None
    source: str = "user"


class RewardBody(EpisodeRewardBody):
    target: str = Field(description="An episode's id, or the `decision` of a search.")


class EndBody(_RequestBody):
    outcome: str = ""


class RollbackBody(_RequestBody):
    """One of them."""

    model_config = ConfigDict(json_schema_extra=_one_of("target", "source", "since", "rewarder", "entry"))
    target: str = ""
    source: str = ""
    since: str = ""
    rewarder: str = ""
    entry: Whole = Field(
        0, ge=0, le=2**53, description="One change, by the `seq` that the history of an item gives it."
    )


class ForgetBody(_RequestBody):
    ids: list[str] = Field(min_length=1, max_length=MOST)
    purge_history: bool = False


class EraseBody(_Bounds):
    """At least one of them."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [_said(name) for name in ("user_id", "agent_id", "session_id")]}
    )


class PolicyBody(_RequestBody):
    policy: str


class TokenBody(_RequestBody):
    tenant: Name | None = None
    user_id: Name = ""
    agent_id: Name = ""
    roles: list[Annotated[str, Field(json_schema_extra={"enum": list(ROLES)})]] = Field(
        ["read", "write", "reward"], min_length=1, max_length=10
    )
    name: str = Field("", max_length=LONGEST_NAME)
    days: float | None = Field(None, gt=0, le=LONGEST_DAYS, description="Until it ends; never if left out.")
    shared: dict[str, list[Annotated[str, Field(json_schema_extra={"enum": list(PERMISSIONS)})]]] = Field(
        {}, max_length=100, description="By name of a user that stands for a team: read, or read and write."
    )
