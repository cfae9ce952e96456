"""Passages of long notes within a budget of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from keepworth.memory.item import Item
from keepworth.memory.search.passages import GAP, LEAST, block, nearest_piece, tokens_of


@dataclass(frozen=True)
class Found:
    item: Item
    span: tuple[int, int] | None = None


def found(*texts: str) -> list[Found]:
    return [Found(Item(f"m{number}", text)) for number, text in enumerate(texts, start=1)]


DAYS = " ".join(f"On day {day} the team met in room {day % 7} and talked about the plan." for day in range(3000))
FACT = "The staging port is 8443 and Ana owns it."
LONG = f"{DAYS[:100_000]}. {FACT} {DAYS[100_000:]}"
CODE = "\n\n".join(f"def step_{number}(a, b):\n    return a + b * {number}" for number in range(400))

LONG_NOTES = {
    "204 kB": (LONG, "which port does staging use?", FACT),
    "Chinese": (
        "今天天气很好。我们去公园散步，看到了很多花。" * 90
        + "服务器的端口是八四四三。"
        + "明天会下雨，记得带伞。" * 20,
        "服务器用哪个端口？",
        "服务器的端口是八四四三。",
    ),
    "code": (
        f"{CODE}\n\ndef port_of_user(config):\n    return config['port']\n\n{CODE}",
        "which function returns the port of a user?",
        "port_of_user",
    ),
    "accents": (
        "Das Wetter war schön, und wir gingen spazieren. " * 40
        + "Die Schlüssel liegen beim Bäcker. "
        + "Es regnete. " * 400,
        "Wo ist der SCHLUSSEL?",
        "beim Bäcker",
    ),
    "a line without blanks": ("x" * 3000 + ",port8443," + "y" * 3000, "port8443", "port8443"),
}


@pytest.mark.parametrize("name", LONG_NOTES)
@pytest.mark.parametrize("tokens", [70, 200, 1500])
def test_a_long_note_is_shown_as_the_passage_that_has_the_words_of_the_question(name: str, tokens: int) -> None:
    text, query, fact = LONG_NOTES[name]
    shown = block(found(text), query, tokens)
    assert fact in shown.text
    assert tokens_of(shown.text) <= tokens
    assert (shown.whole, shown.cut, shown.missing) == ((), ("m1",), ())
    assert "\n" not in shown.text
    assert GAP in shown.text


def test_passage_nearest_in_meaning_is_shown_without_shared_words() -> None:
    start = LONG.index(FACT)
    hit = Found(Item("m1", LONG), (start, start + len(FACT)))
    assert FACT in block([hit], "quel numero?", 200).text


def test_short_notes_stay_whole_beside_a_long_one() -> None:
    shown = block(found("I live in Turin.", LONG, "My dog is Rex."), "which port does staging use?", 300)
    assert shown.whole == ("m1", "m3")
    assert shown.cut == ("m2",)
    assert list(shown.lines) == ["m1", "m2", "m3"]
    assert FACT in shown.lines["m2"]
    assert tokens_of(shown.text) <= 300


@pytest.mark.parametrize("tokens", [0, 4, 5, 30, 60, 100, 400, 1500])
def test_block_respects_its_budget_and_lists_missing_items(tokens: int) -> None:
    hits = found(
        *(f"{number} {LONG[number * 90 :][:5000]}" for number in range(12)), "A short one.", "Привет, мир! " * 60
    )
    head = "Notes:"
    shown = block(hits, "port", tokens, head=head)
    assert not shown.lines or tokens_of(f"{head}\n{shown.text}") <= tokens
    assert sorted((*shown.whole, *shown.cut, *shown.missing)) == sorted(hit.item.id for hit in hits)
    # Whichever of them are chosen, they fit together again.
    chosen = [hit for hit in hits if hit.item.id in shown.shown_ids][::2]
    assert not block(chosen, "port", tokens, head=head).missing


def test_best_hits_get_the_room_of_a_small_budget() -> None:
    hits = found(*(f"{number} {DAYS[: 9 * LEAST]}" for number in range(9)))
    shown = block(hits, "", 600)
    assert shown.shown_ids == tuple(hit.item.id for hit in hits[: len(shown.shown_ids)])
    assert shown.missing


def test_lines_already_in_the_prompt_cost_no_budget() -> None:
    whole = block(found("I live in Turin."), "", 30)
    again = block(found("I live in Turin.", "My dog is Rex."), "", 20, there=whole.lines)
    assert list(again.lines) == ["m2"]
    assert again.whole == ("m1", "m2")
    passage = block(found(LONG), "staging port", 200)
    again = block(found(LONG), "staging port", 200, there=passage.lines)
    assert not again.lines
    assert again.cut == ("m1",)


def test_equal_notes_share_a_line() -> None:
    shown = block(found("I live in Turin.", "I live in Turin."))
    assert shown.text == "- I live in Turin."
    assert shown.whole == ("m1", "m2")


def test_nearest_piece_is_chosen_by_words() -> None:
    place = nearest_piece(LONG, "the staging port")
    assert place is not None
    assert FACT in LONG[slice(*place)]
    assert nearest_piece(LONG, "?!") is None
