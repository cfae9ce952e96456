"""The codec loses nothing: any episode is the same after a round through JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth.base.errors import KeepworthError
from keepworth.records import Episode
from keepworth.records.episode import episode_from_json, episode_to_json

SIMPLE = {str: st.text(max_size=20), float: st.floats(allow_nan=False)}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may hold. No field of a record is left out."""
    if is_dataclass(kind):
        return st.builds(kind, **{name: any_of(hint) for name, hint in get_type_hints(kind).items()})
    parts = get_args(kind)
    if get_origin(kind) is tuple and parts[-1] is ...:
        return st.lists(any_of(parts[0]), max_size=5 if parts[0] is int else 2).map(tuple)
    if get_origin(kind) is tuple:
        return st.tuples(*map(any_of, parts))
    if get_origin(kind) is Mapping:
        return st.dictionaries(*map(any_of, parts), max_size=2)
    return st.one_of(*map(any_of, parts)) if parts else SIMPLE.get(kind, st.from_type(kind))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(any_of(Episode))
def test_episode_round_trips_through_json(episode: Episode) -> None:
    assert episode_from_json(json.loads(json.dumps(episode_to_json(episode)))) == episode


RECORD = {"id": "e1", "task": "t", "role": "answerer", "question": "q", "segments": [], "answer": "a"}
RECORD |= {"expected": ["a"], "rewards": [{"name": "f1", "value": 0.5}], "stop": "completed"}
RECORD |= {"memory_snapshot": "s", "policy_version": 3}


def test_fields_with_a_default_may_be_left_out() -> None:
    assert episode_from_json(RECORD).reward == 0.5


@pytest.mark.parametrize(
    ("change", "names"),
    [({"colour": 1}, "colour"), ({"stop": "bored"}, "bored"), ({"segments": None}, "e1")],
)
def test_malformed_episode_is_refused_with_its_field(change: dict[str, object], names: str) -> None:
    with pytest.raises(KeepworthError, match=names):
        episode_from_json({**RECORD, **change})
