"""What a request to a memory may say, field by field; what is left out is as in `keepworth.Memory`.

The fields are the arguments of the verbs, by their names. What they mean, and which values are refused, the verbs say."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(max_length=512)]
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
    kinds: str = Field("", description="Kinds of items, with commas between them; all if left out.")
    limit: int = Field(100, ge=1, le=MOST)
    after: str = Field("", description="`next` of the page before.")
    all_states: bool = Field(False, description="Superseded, deleted and held back items too.")


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
    turn: int = -1
    speaker: str = ""
    date: str = ""


class NewItemsBody(_Bounds):
    """One of `content` and `texts`."""

    content: str | list[dict[str, Any]] | None = Field(None, description="A text, or messages with role and content.")
    texts: list[str] | None = Field(None, max_length=MOST, description="Several texts: all of them or none.")
    infer: bool = Field(False, description="Let the writer of this server say what to keep of `content`.")
    kind: str = "fact"
    key: str = ""
    event_time: Time = ""
    valid_from: Time = ""
    valid_to: Time = ""
    expires_at: Time = ""
    ttl: float | None = None
    trust: float = 1.0
    status: str = "active"
    metadata: dict[str, Any] | None = None
    source: str = ""
    provenances: list[ProvenanceBody] | None = Field(None, max_length=MOST)
    dedupe: bool | float = False
    repeat: bool = False
    episode: str = ""


class UpdateBody(_RequestBody):
    text: str | None = None
    status: str | None = None
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
    top_k: int = Field(10, ge=1, le=MOST)
    mode: str | None = None
    threshold: float | None = None
    actions: list[str] = Field([], max_length=MOST)
    explain: bool = False
    kinds: list[str] = Field([], max_length=100)
    statuses: list[str] = Field(["active"], max_length=100)
    where: dict[str, Any] | None = None
    since: Time = ""
    until: Time = ""
    as_of: Time = ""
    diversity: float = 0.0


class SearchBody(_Search):
    query: str
    episode: str = ""
    step: int = 0


class SearchesBody(_Search):
    queries: list[str] = Field(max_length=100)
    episode: str = ""
    step: int = 0


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

    target: str = ""
    source: str = ""
    since: str = ""
    rewarder: str = ""


class ForgetBody(_RequestBody):
    ids: list[str] = Field(min_length=1, max_length=MOST)
    purge_history: bool = False


class EraseBody(_Bounds):
    """At least one of them."""


class TokenBody(_RequestBody):
    tenant: Name | None = None
    user_id: Name = ""
    agent_id: Name = ""
    roles: list[str] = Field(["read", "write", "reward"], max_length=10)
    name: Name = ""
    days: float | None = Field(None, gt=0, description="Until it ends; never if left out.")
    shared: dict[str, list[str]] = Field(
        {}, max_length=100, description="By name of a user that stands for a team: read, or read and write."
    )
