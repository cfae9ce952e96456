"""The codec loses nothing: any episode is the same after a round through JSON text."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth.episodes import (
    Decision,
    DecisionKind,
    Episode,
    FinishReason,
    Operation,
    OperationKind,
    ParseStatus,
    RewardScope,
    RewardTerm,
    Segment,
    StopReason,
    VersionSpan,
)
from keepworth.episodes.episode import MemoryEvent, Shown, episode_from_json, episode_to_json
from keepworth.episodes.errors import KeepworthError

texts = st.text(max_size=20)
reals = st.floats(allow_nan=False)
ids = st.lists(st.integers(0, 50_000), max_size=5).map(tuple)


def tuples(of: st.SearchStrategy) -> st.SearchStrategy:  # type: ignore[type-arg]
    return st.lists(of, max_size=2).map(tuple)


operations = st.builds(Operation, st.sampled_from(OperationKind), tuples(texts), texts)
segments = st.builds(
    Segment,
    role=texts,
    prompt_id=texts,
    context=ids,
    ids=ids,
    logprobs=tuples(reals),
    temperature=reals,
    finish=st.sampled_from(FinishReason),
    spans=tuples(st.builds(VersionSpan, st.integers(), st.integers(), st.integers())),
    text=texts,
    memory_before=texts,
    memory_after=texts,
    state=texts,
)
episodes = st.builds(
    Episode,
    id=texts,
    task=texts,
    role=texts,
    question=texts,
    segments=tuples(segments),
    answer=texts,
    expected=tuples(texts),
    rewards=tuples(
        st.builds(RewardTerm, texts, reals, reals, st.sampled_from(RewardScope), texts, st.none() | st.integers())
    ),
    stop=st.sampled_from(StopReason),
    memory_snapshot=texts,
    policy_version=st.integers(),
    shown=tuples(st.builds(Shown, texts, reals, texts)),
    decisions=tuples(
        st.builds(
            Decision,
            texts,
            st.sampled_from(DecisionKind),
            texts,
            tuples(st.tuples(texts, reals)),
            tuples(texts),
            reals,
            texts,
            st.integers(),
        )
    ),
    operations=tuples(st.builds(MemoryEvent, operations, st.sampled_from(ParseStatus), texts)),
    errors=tuples(texts),
    seconds=st.dictionaries(texts, reals, max_size=2),
    source=texts,
    parent=texts,
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(episodes)
def test_a_round_through_text_changes_nothing(episode: Episode) -> None:
    assert episode_from_json(json.loads(json.dumps(episode_to_json(episode)))) == episode


def record() -> dict[str, object]:
    return {
        "id": "e1",
        "task": "t",
        "role": "answerer",
        "question": "q",
        "segments": [],
        "answer": "a",
        "expected": ["a"],
        "rewards": [{"name": "f1", "value": 0.5}],
        "stop": "completed",
        "memory_snapshot": "s",
        "policy_version": 3,
    }


def test_fields_with_a_default_may_be_left_out() -> None:
    assert episode_from_json(record()).reward == 0.5


@pytest.mark.parametrize(
    ("change", "names"),
    [({"colour": 1}, "colour"), ({"stop": "bored"}, "bored"), ({"segments": None}, "e1")],
)
def test_what_is_not_an_episode_is_refused_by_name(change: dict[str, object], names: str) -> None:
    with pytest.raises(KeepworthError, match=names):
        episode_from_json({**record(), **change})
