"""A change replaces the statement that it is about, and leaves true statements that only share words with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.memory.relative_days import without_dates

PAIRS = json.loads(Path(__file__).with_name("kept_beside.json").read_text("utf-8"))
"""Pairs of a statement and a later message that leaves it true, found by somebody who tried the memory as a new user."""


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair["newer"][:40])
def test_statement_stays_beside_a_change_of_something_else(pair: dict[str, str]) -> None:
    with Memory(":memory:", encoder="hashing", clock=lambda: "2026-12-01T09:00") as memory:
        for text in (pair["older"], pair["newer"]):
            memory.add([{"role": "user", "content": text}], infer=True)
        assert pair["older"] in {without_dates(item.text) for item in memory.get_all()}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I have a dog called Rex.", "Rex died yesterday."),
        ("I have a piano.", "I sold my piano."),
        ("I booked a flight to Rome.", "I cancelled my flight to Rome."),
        ("I have a Netflix subscription.", "I cancelled my Netflix subscription."),
        ("My office is in room 204.", "My office is in room 101 now."),
        ("I have a meeting at 10.", "The meeting was moved to 2."),
        ("I work at Siemens.", "I work at Bosch now."),
        ("I live with Eva.", "Eva moved out."),
        ("I live in Bergen.", "I moved to Oslo."),
        ("I live in Bergen.", "I moved to a village in Spain."),
        ("Ich wohne in Bergen.", "Ich bin nach Oslo gezogen."),
        ("I don't eat meat.", "I eat meat again."),
        ("I'm allergic to peanuts.", "Turns out I'm not allergic to peanuts after all."),
        ("Ich bin allergisch gegen Nüsse.", "Ich bin doch nicht allergisch gegen Nüsse."),
        ("Je suis allergique aux noix.", "Finalement je ne suis pas allergique aux noix."),
        ("Soy alérgico a las nueces.", "Al final no soy alérgico a las nueces."),
    ],
)
def test_the_change_itself_replaces_the_statement(older: str, newer: str) -> None:
    with Memory(":memory:", encoder="hashing", clock=lambda: "2026-12-01T09:00") as memory:
        for text in (older, newer):
            memory.add([{"role": "user", "content": text}], infer=True)
        assert older not in {without_dates(item.text) for item in memory.get_all()}
