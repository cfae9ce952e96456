"""Every stage: filters hold whatever it does, and the explanation names it where it gave a hit another place."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from keepworth.memory.memory import Memory
from keepworth.registry import Method, methods
from tests.memory.stub_encoder import WordEncoder

EXAMPLE = Path(__file__).parents[2] / "examples" / "keepworth_example" / "keepworth_example" / "stage.py"


def example() -> Method:
    """The stage of the example package, which is not installed here."""
    spec = importlib.util.spec_from_file_location("example_stage", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.METHOD  # type: ignore[no-any-return]


STAGES = {method.name: method for method in (*methods("stage").values(), example())}
WORDS = ("ant", "bee", "cat", "dog")
DAYS = ("", "2000-01-01", "2999-01-01")
"""Days on which notes may be seen first, and topics, in all pairs."""


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
def test_stages_keep_filters_and_name_themselves_in_explanations(name: str, mode: str) -> None:
    plain, staged = (Memory(encoder=WordEncoder(64), stages=stages) for stages in ((), (STAGES[name].make(),)))
    for memory in (plain, staged):
        for number, word in enumerate(WORDS * 3):
            memory.add(f"{word} by the river {number}", metadata={"word": word, "not_before": DAYS[number // 4]})
    found, hits = (
        memory.search("ant river", top_k=5, mode=mode, explain=True, where={"word": {"$in": ["ant", "bee"]}})
        for memory in (plain, staged)
    )
    assert {hit.item.metadata["word"] for hit in hits} <= {"ant", "bee"}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    order = [hit.text for hit in found if hit.text in [other.text for other in hits]]
    moved = [hit for hit in hits if hit.why.stages]
    assert bool(moved) == (order != [hit.text for hit in hits if hit.text in order])


def test_example_stage_hides_items_before_their_date() -> None:
    with Memory(encoder=WordEncoder(64), stages=[example().make()]) as memory:
        for day in DAYS:
            memory.add(f"the news of {day or 'any day'}", metadata={"not_before": day} if day else {})
        assert {hit.text for hit in memory.search("the news")} == {"the news of any day", "the news of 2000-01-01"}
