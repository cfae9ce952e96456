"""The content hash and the journal's text of an act are what they were defined to be, whatever was asked for before."""

from __future__ import annotations

import hashlib
import json
import string

from hypothesis import given
from hypothesis import strategies as st

from keepworth.memory import item
from keepworth.memory.item import Item, ItemKind, Link, Provenance, Scope, Status, content_digest, duplicate_key
from keepworth.memory.operations import Draft
from keepworth.memory.store import rows
from keepworth.records.episode import Operation, OperationKind

short = st.text(string.ascii_letters + "é,\x00 ", max_size=4)
scopes = st.builds(Scope, tenant=st.sampled_from(["", "t"]), user=st.sampled_from(["", "u", "v"]))
provenances = st.builds(Provenance, source=short, turn=st.integers(-1, 2))
values = st.one_of(st.booleans(), st.integers(0, 1), st.floats(0, 1), st.text("aé\x7f\x1f", max_size=2))
metadata = st.dictionaries(st.sampled_from("ab"), values, max_size=2)
items = st.builds(
    Item,
    id=st.integers(1, 99).map("m{}".format),
    text=short,
    kind=st.sampled_from(ItemKind),
    key=short,
    scope=scopes,
    event_time=st.sampled_from(["", "2026-01-01T00:00:00.000000Z"]),
    ended_at=st.sampled_from(["", "2026-01-02T00:00:00.000000Z"]),
    superseded_by=st.sampled_from(["", "m7"]),
    links=st.lists(st.builds(Link, target=st.just("m3"), relation=short), max_size=2).map(tuple),
    provenance=provenances,
    trust=st.sampled_from([1.0, 1, 0.5, 0.0, -0.0]),
    status=st.sampled_from(Status),
    deleted=st.booleans(),
    revision=st.integers(0, 2),
    metadata=metadata,
)


def digest(one: Item) -> int:
    """As defined: the lengths of all parts, then the parts."""
    came = one.provenance
    parts = [one.id, one.text, one.kind.value, one.key, *one.scope.parts(), one.event_time, one.superseded_by]
    parts += [came.source, came.session, str(came.turn), came.speaker, came.date, repr(float(one.trust))]
    parts += [one.status.value, f"{int(one.deleted)}{int(one.open)}{one.revision}"]
    parts += [f"{link.target}\x00{link.relation}" for link in one.links]
    parts.append(json.dumps(one.metadata, sort_keys=True) if one.metadata else "")
    body = ",".join(str(len(part)) for part in parts) + "\x00" + "".join(parts)
    return int.from_bytes(hashlib.blake2b(body.encode(), digest_size=32).digest(), "little")


@given(st.lists(items, min_size=1, max_size=6))
def test_content_digest_is_independent_of_call_order(listed: list[Item]):
    assert [content_digest(one) for one in listed] == [digest(one) for one in listed]
    assert [content_digest(one) for one in reversed(listed)] == [digest(one) for one in reversed(listed)]


@given(st.lists(items, min_size=2, max_size=6))
def test_duplicate_key_is_independent_of_call_order(listed: list[Item]):
    once = []
    for one in listed:
        item.drop_memos()
        once.append(duplicate_key(one))
    assert [duplicate_key(one) for one in listed for _ in range(2)] == [key for key in once for _ in range(2)]


drafts = st.builds(
    Draft,
    kind=st.sampled_from(ItemKind),
    key=short,
    event_time=st.sampled_from(["", "2026-01-01T00:00:00.000000Z"]),
    provenance=provenances,
    trust=st.sampled_from([1.0, 0.5]),
    status=st.sampled_from(Status),
    metadata=metadata,
    deduplicate=st.booleans(),
)
acts = st.builds(
    Operation,
    st.sampled_from([OperationKind.ADD, OperationKind.UPDATE, OperationKind.LINK]),
    st.lists(st.sampled_from(["m1", "m2"]), max_size=2).map(tuple),
    st.text(max_size=20),
)


@given(st.lists(st.tuples(acts, drafts), min_size=1, max_size=5))
def test_act_round_trips_through_the_journal(listed):
    for act, draft in [*listed, *reversed(listed)]:
        kind, payload = rows.encoded(act, draft)
        assert rows.decoded(kind, payload, draft.scope) == (act, draft)


def test_drop_memos_clears_cached_texts():
    one = Item("m1", "a secret")
    duplicate_key(one), content_digest(one)
    item.drop_memos()
    assert "secret" not in repr([item._last_key, item._last_rest])
