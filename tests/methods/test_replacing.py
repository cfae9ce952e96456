"""What takes the place of an older statement where no rule says so: what tells of a change of the same thing, and little else."""

from __future__ import annotations

import math

import pytest

from keepworth import Memory
from keepworth.memory.english import read_english
from keepworth.methods.writers._claims import parsed_claim
from keepworth.methods.writers._replacing import BOUND, gives_way, replaces, signs, told_as_change


def surely(old: str, new: str, cosine: float) -> bool:
    before, after = parsed_claim(old), parsed_claim(new)
    assert not gives_way(before, after)
    return replaces(before, after, cosine) >= BOUND


# The cosines are those of all-MiniLM-L6-v2.
@pytest.mark.parametrize(("old", "new", "cosine", "gone"), [
    ("I rent a flat over in Bergen.", "I packed up and left Bergen for Oslo.", 0.6, True),
    ("I have a membership at Fitbase.", "I cancelled Fitbase and signed up at Ironworks.", 0.6, True),
    ("I get hives from peanuts.", "I outgrew my allergy to peanuts.", 0.7, True),
    ("I rent a flat over in Bergen.", "I visited Bergen.", 0.6, False),
    ("I rent a flat over in Bergen.", "I'm thinking of moving to Oslo now.", 0.6, False),
    ("I rent a flat over in Bergen.", "My sister packed up and left Bergen for Oslo.", 0.6, False),
    ("I play tennis on Mondays.", "I also play chess on Wednesdays now.", 0.6, False),
    ("I have a cat.", "I'm really into music lately.", 0.2, False),
    ("I've been reading a lot.", "I've been reading a lot of poems.", 0.9, False),
])  # fmt: skip
def test_what_is_told_as_a_change_of_the_same_replaces_it(old: str, new: str, cosine: float, gone: bool) -> None:
    assert surely(old, new, cosine) is gone


def test_there_is_a_weight_for_every_sign() -> None:
    assert list(signs(parsed_claim("a"), parsed_claim("b"), 0.0)) == list(read_english()["weights"])
    assert not told_as_change(parsed_claim("I like tea."))
    assert replaces(parsed_claim("I like tea."), parsed_claim("I like green tea."), 1.0) == -math.inf


@pytest.mark.parametrize(("later", "left"), [("2026-05-01T10:05:00", 2), ("2026-05-03T10:00:00", 1)])
def test_within_one_talk_only_the_rules_replace(later: str, left: int) -> None:
    with Memory(encoder="minilm", policy=None, log="off", writer="rules") as memory:
        for text, at in (
            ("I rent a flat over in Bergen.", "2026-05-01T10:00:00"),
            ("I packed up and left Bergen for Oslo.", later),
        ):
            memory.add([{"role": "user", "content": text, "said_at": at}], infer=True, user_id="ana")
        assert len(memory.get_all(user_id="ana")) == left
