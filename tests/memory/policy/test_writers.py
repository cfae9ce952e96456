from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth import policy
from keepworth.memory.policy import writers
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords


@given(st.text(max_size=200))
def test_parsers_are_total(reply: str) -> None:
    assert isinstance(writers.parse_experiences(reply), list)
    assert writers.parse_accept(reply) in (True, False)
    assert isinstance(writers.parse_note(reply), dict)


def test_replies_with_talk_and_fences_around_them_are_read() -> None:
    reply = 'Sure!\n```json\n[{"when": "rain", "advice": "take it", "action": "umbrella", "confidence": 3}]\n```\nDone.'
    (found,) = writers.parse_experiences(reply)
    assert (found["action"], found["confidence"]) == ("umbrella", 1.0)


@pytest.mark.parametrize("reply", ["", "no idea", "[1, 2]", '{"when": "x"}'])
def test_a_model_that_answers_garbage_writes_nothing(reply: str) -> None:
    experience = Experience(policy("reme"), HashedWords(64))
    experience.policy.writer = writers.DistilledByModel(lambda prompt: reply)
    use = experience.recall("it rains", actions=("umbrella", "hat"))
    experience.finish([(use, "umbrella")], 1.0)
    assert len(experience.pool) == 0


def test_a_model_that_answers_well_writes_what_it_said() -> None:
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        if "actionable" in prompt:
            return '{"accept": true}'
        return json.dumps([{"when": "rain outside", "advice": "Take the umbrella.", "action": "umbrella"}])

    experience = Experience(policy("reme"), HashedWords(64))
    experience.policy.writer = writers.DistilledByModel(ask)
    use = experience.recall("it rains", actions=("umbrella", "hat"))
    experience.finish([(use, "umbrella")], 1.0)
    (item,) = experience.pool.items
    assert (item.key, item.text) == ("rain outside", "Take the umbrella.")
    assert len(asked) == 2
    assert "did: umbrella" in asked[0]


def test_notes_fall_back_to_plain_text() -> None:
    experience = Experience(policy("amem"), HashedWords(64))
    experience.policy.writer = writers.NotesByModel(lambda prompt: "?")
    use = experience.recall("it rains", actions=("umbrella", "hat"))
    experience.finish([(use, "umbrella")], 1.0)
    assert experience.pool.items[0].key == "it rains"


def test_a_reply_that_nests_without_end_has_no_value():
    assert writers.parsed("[" * 3_000 + "]") is None
    assert writers.parsed("[" * 200_000 + "]" * 200_000) is None
    assert writers.parsed('Well: {"a": [1, 2]} and so on ]}') == {"a": [1, 2]}
