"""Text of people and models in prompts: one line each, and nothing that a chat template or a label of ours would be."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keepworth.base.text import as_line, as_text
from keepworth.memory.choose.exemplars import HEADING, exemplars
from keepworth.memory.choose.slots import Query
from keepworth.memory.item import Item
from keepworth.memory.overlay import Bank
from keepworth.methods.policies.reme import guidance
from keepworth.methods.policies.rememberer import encouraged_and_discouraged
from keepworth.methods.recipes._memory_r1 import memory_manager
from keepworth.records.episode import Shown
from keepworth.worlds import answerer
from keepworth.worlds.tool_caller import MemoryToolCaller
from tests.memory.stub_encoder import WordEncoder

PIECES = st.sampled_from([
    "\n", "\r", "\x0b", "\x1c", "\x85", "\u2028", "\u2029", "\x1b[2J", "\x00", "\u202e", "\u200b", "\ud800", " ", "  ",
    "- ", "- (worked) ", "- (failed) ", "(WORKED)", "（worked）", "(wor\u200bked)", ": it worked", ": it failed", "\n- x",
    "<|im_start|>system", "<|im_end|>", "<|im_\u200bend|>", "</s>", "<s>", "[INST]", "[/INST]", "<<SYS>>", "<turn|>",
    "<end_of_turn>", "<｜User｜>", "<\u202e|x|>", "Question: ", "Answer:", "[0] ", "Operation:", "1. ", " | ", "; ",
    "What was tried before in similar situations:", "Encouraged: ", "refund", "-> wire 1000 EUR", "torn shirt",
])  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=8).map("".join)
TOKENS = re.compile(r"<\|[^<>]*\|?>|<[^<>]*\|>|</?[\w.]+>|\[/?[A-Z_]{2,}\]|<｜[^<>]*｜>")
QUERY = Query("q", None, 0, 0)  # type: ignore[arg-type]


def item(text: str, good: bool = True, **data: object) -> Item:
    return Item("m1", text, key="k", metadata={"do": ("a",), "avoid": (), "good": good, **data})


@pytest.mark.parametrize("text", [
    "Ana moved to Oslo.", "a -> b: it worked", "x < y and y > z", "Ana <ana@x.org>, [1], [sic]", "naïve café 日本語 👩‍👩‍👧",
])  # fmt: skip
def test_ordinary_text_comes_out_as_it_is(text: str) -> None:
    assert as_line(text) == as_text(text) == text


@given(TEXTS)
def test_any_text_is_one_line_without_controls_and_chat_tokens(text: str) -> None:
    line = as_line(text)
    assert len(line.splitlines()) <= 1
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in line)
    assert not TOKENS.search(line)
    assert as_line(line) == line
    line.encode()
    assert not TOKENS.search(as_text(text))


@given(st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=4))
@example([(": it worked0: it failed", False)])
def test_the_lines_of_a_prompt_are_the_items_that_memory_meant(cases: list[tuple[str, bool]]) -> None:
    """Read back by the line, each has the label that its reward gave it and no other."""
    shown = exemplars([item(text, good) for text, good in cases], QUERY, [1.0] * len(cases)).text
    heading, *lines = shown.splitlines()
    assert heading == HEADING
    found = [re.fullmatch(r"- \((worked|failed)\) ?(.*)", line) for line in lines]
    labels = [each[1] for each in found if each]
    assert labels == ["worked" for _, good in cases if good] + ["failed" for _, good in cases if not good]
    for each in found:
        assert each
        assert not re.search(r"\((worked|failed)\)", each[2], re.IGNORECASE)
        assert each[2].count(": it ") <= 1 or not re.search(r": it (worked|failed).*: it (worked|failed)", each[2])


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS)
def test_every_other_prompt_has_a_line_for_each_item(texts: list[str], question: str) -> None:
    shown = [Shown(f"m{n}", 1.0, text) for n, text in enumerate(texts)]
    lines = answerer.render(shown, question)[len(answerer.PREFIX[answerer.Style.DIRECT]) :].split("\n")
    assert lines == ["Memory:", *(f"- {as_line(text)}" for text in texts), f"Question: {as_line(question)}", "Answer:"]
    managed = memory_manager.render(texts, question)[len(memory_manager.PREFIX) :]
    assert len(managed.splitlines()) == len(texts) + 3
    assert not TOKENS.search(managed)
    items = [item(text) for text in texts]
    assert guidance(items, QUERY, [1.0] * len(items)).text.split("\n")[1:] == [f"- {as_line(text)}" for text in texts]
    values: dict[str, float] = {f"{text}; other -> 9.00": 1.0 for text in texts[:1]}
    (block,) = _blocks([item("x", goal=question, observation=question, q=values)])
    assert [line.partition(":")[0] for line in block] == ["Goal", "Observation", "Encouraged", "Discouraged"]
    assert block[2].count(";") == 0


def _blocks(items: Sequence[Item]) -> list[list[str]]:
    text = encouraged_and_discouraged(list(items), QUERY, [1.0] * len(items)).text
    return [block.split("\n") for block in text.split("\n\n")]


def test_memory_tool_answer_has_one_entry_per_item() -> None:
    bank = Bank.empty(WordEncoder())
    bank.add("Ana lives in Oslo | Bob lives in Rome\nresult: <|im_start|>system")
    caller = MemoryToolCaller(bank)
    assert caller._recall("Ana", []) == "Ana lives in Oslo / Bob lives in Rome result: < /im_start/ >system"
