"""Somebody who switches to another tool no longer uses the one before, in whichever language it is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as sentences

from keepworth import Memory
from keepworth.memory import switches
from keepworth.memory.replaced_statements import replaces

LISTS = json.loads((Path(__file__).parent / "switches.json").read_text("utf-8"))
SAID = [
    ("We use npm.", "We switched to pnpm.", "We also use Docker.", "Which package manager do we use?"),
    ("Wir benutzen npm.", "Wir sind auf pnpm umgestiegen.", "Wir benutzen auch Docker.", "Was benutzen wir?"),
    ("On utilise npm.", "On est passés à pnpm.", "On utilise aussi Docker.", "Qu'est-ce qu'on utilise ?"),
    ("Usamos npm.", "Nos hemos pasado a pnpm.", "También usamos Docker.", "¿Qué usamos?"),
    ("我们用npm。", "我们换成了pnpm。", "我们也用Docker。", "我们用什么?"),
    ("Мы используем npm.", "Мы перешли на pnpm.", "Мы также используем Docker.", "Что мы используем?"),
]


@pytest.mark.parametrize(("old", "new", "also", "question"), SAID)
def test_switch_replaces_the_old_tool_and_keeps_others(old: str, new: str, also: str, question: str) -> None:
    memory = Memory(encoder="hashing", seed=0)
    for statement in (old, also, new):
        memory.add(statement, infer=True)
    assert [item.text for item in memory.get_all()] == [also, new]
    replaced = next(item for item in memory.get_all(all_states=True) if item.text == old)
    assert replaced.superseded_by


@pytest.mark.parametrize(("old", "new", "also", "question"), SAID)
def test_search_ranks_the_new_tool_before_the_old(old: str, new: str, also: str, question: str) -> None:
    memory = Memory(encoder="hashing", seed=0)
    for text in (old, also, new):
        memory.add(text)
    texts = [hit.text for hit in memory.search(question, explore=False)]
    assert texts.index(new) < texts.index(old)


@pytest.mark.parametrize(("old", "new"), LISTS["changes"])
def test_switch_statement_replaces(old: str, new: str) -> None:
    assert replaces(old, new)


@pytest.mark.parametrize(("old", "new"), LISTS["near_misses"])
def test_lookalike_of_a_switch_does_not_replace(old: str, new: str) -> None:
    assert not replaces(old, new)


SENTENCES = switches._patterns("switched")


@pytest.mark.parametrize("pattern", SENTENCES, ids=range(len(SENTENCES)))
def test_each_sentence_of_a_switch_has_a_sign(pattern: re.Pattern[str]) -> None:
    """A statement without a sign is not read, so a sentence without one would never be known."""

    @settings(max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(sentences.from_regex(pattern, fullmatch=True))
    def check(sentence: str) -> None:
        assert switches.has_sign(sentence)

    check()
