"""The prompts, parsers and grounding of Memory-R1's answerer and manager."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.base.errors import KeepworthError
from keepworth.methods.recipes._memory_r1 import memory_manager
from keepworth.methods.recipes._memory_r1.operation_tasks import warm_start_examples
from keepworth.records.episode import Operation, OperationKind, ParseStatus, Shown
from keepworth.records.operations import read_operation
from keepworth.worlds.answerer import MARKER, Style, fit, parse, render
from keepworth.worlds.data_sets.people import ATTRIBUTES, NAMES, names_of
from tests.models.tiny import tiny_model


def test_memories_stand_one_a_line_before_the_question_and_the_prompt_ends_where_the_answer_begins() -> None:
    prompt = render([Shown("1", 1.0, "I live\nin  Oslo."), Shown("2", 1.0, "Tea.")], "Where do I\nlive?")
    assert prompt.endswith("Memory:\n- I live in Oslo.\n- Tea.\nQuestion: Where do I live?\nAnswer:")
    assert render([], "Who?").endswith("Memory:\n(empty)\nQuestion: Who?\nAnswer:")
    assert render([], "Who?", Style.DISTIL).endswith("Useful:")


@pytest.mark.parametrize(("text", "style", "answer", "status"), [
    (" Oslo\nQuestion: more", Style.DIRECT, "Oslo", ParseStatus.OK),
    ("\n", Style.DIRECT, "", ParseStatus.INVALID),
    (f" I live in Oslo.\n{MARKER} Oslo\n", Style.DISTIL, "Oslo", ParseStatus.OK),
    (" I live in Oslo.", Style.DISTIL, "", ParseStatus.INVALID),
])  # fmt: skip
def test_parse(text: str, style: Style, answer: str, status: ParseStatus) -> None:
    assert parse(text, style) == (answer, status)


@given(st.text(), st.sampled_from(Style))
def test_any_text_parses_to_one_line(text: str, style: Style) -> None:
    answer, status = parse(text, style)
    assert len(answer.splitlines()) <= 1
    assert (answer == "") == (status is ParseStatus.INVALID)


def test_the_lowest_scores_are_left_out_and_the_order_shown_is_kept() -> None:
    model = tiny_model()  # a window of 512 bytes
    scores = [0.9, 0.1, 0.5, 0.7, 0.2, 0.8, 0.3, 0.6, 0.4]
    shown = [Shown(str(i), score, "word " * 12) for i, score in enumerate(scores)]
    prompt, kept = fit(model, shown, "Where?", max_tokens=8)
    assert len(prompt) + 8 <= model.context_limit
    assert 0 < len(kept) < 9
    best = sorted(shown, key=lambda item: -item.score)[: len(kept)]
    assert list(kept) == [item for item in shown if item in best]
    one_more = sorted(shown, key=lambda item: -item.score)[: len(kept) + 1]
    assert len(model.encode(render(one_more, "Where?"))) + 8 > model.context_limit


def test_of_equal_scores_the_oldest_is_left_out() -> None:
    shown = [Shown(str(i), 1.0, "word " * 12) for i in range(9)]
    _, kept = fit(tiny_model(), shown, "Where?", max_tokens=8)
    assert 0 < len(kept) < 9
    assert kept == tuple(shown[-len(kept) :])


def test_ten_times_the_memories_take_a_few_more_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    encoded: list[int] = []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda text: encoded.append(len(text)) or encode(text))
    fit(model, [Shown(str(i), i / 1000, "word") for i in range(1000)], "Where?", max_tokens=8)
    assert len(encoded) <= 12


def test_a_question_or_an_answer_too_long_for_the_window_is_named() -> None:
    model, shown = tiny_model(), [Shown("1", 1.0, "word")]
    with pytest.raises(KeepworthError, match="longer window"):
        fit(model, shown, "Where? " * 100, max_tokens=8)
    with pytest.raises(KeepworthError, match="max_tokens = 100000 is more than the window of 512"):
        fit(model, shown, "Where?", max_tokens=100_000)


def test_prompt_is_the_examples_and_then_the_case() -> None:
    prompt = memory_manager.render(["Mary lives in Rome.", "Max keeps a dog."], "Mary moved to Oslo.")
    assert prompt == memory_manager.PREFIX + (
        "Memory:\n[0] Mary lives in Rome.\n[1] Max keeps a dog.\nNew fact: Mary moved to Oslo.\nOperation:"
    )
    assert memory_manager.render([], "x y").endswith("Memory:\n(empty)\nNew fact: x y\nOperation:")
    assert memory_manager.render(["a\nNew fact: b"], "c\r\nd").count("\n") == memory_manager.PREFIX.count("\n") + 3, (
        "text cannot break the lines"
    )
    long = " ".join(["word"] * (memory_manager.MEMORY_WORDS + 1))
    assert "word ..." in memory_manager.render([long], "f")


def test_prompt_identity_follows_the_wording() -> None:
    assert (
        memory_manager.PROMPT_ID == "manager/v1-365f3b93"
    )  # a change of wording needs a new version and a new hash here


def test_prompt_examples_cover_each_operation_once() -> None:
    lines = [
        line.removeprefix("Operation: ")
        for line in memory_manager.PREFIX.splitlines()
        if line.startswith("Operation: ")
    ]
    kinds = [read_operation(line)[0] for line in lines]
    assert sorted(kind.value for kind in kinds) == ["ADD", "DELETE", "NOOP", "UPDATE"]
    words = set(memory_manager.PREFIX.replace(".", " ").split())
    assert not words & set(NAMES)
    assert not words & {value for attribute in ATTRIBUTES for value in attribute.values}


def test_shown_numbers_are_mapped_back() -> None:
    assert memory_manager.parse(" UPDATE 1\n", ["m7", "m3"]) == (
        Operation(OperationKind.UPDATE, ("m3",)),
        ParseStatus.OK,
    )
    assert memory_manager.parse("delete 0", ["m7"]) == (Operation(OperationKind.DELETE, ("m7",)), ParseStatus.REPAIRED)
    assert memory_manager.parse("UPDATE 2", ["m7", "m3"]) == (Operation(OperationKind.NOOP), ParseStatus.INVALID)
    assert memory_manager.parse("DELETE 0", []) == (Operation(OperationKind.NOOP), ParseStatus.INVALID)


@given(st.text(), st.lists(st.text(min_size=1), unique=True, max_size=6))
def test_any_text_is_an_operation_on_shown_items_only(text: str, shown: list[str]) -> None:
    asked, status = memory_manager.parse(text, shown)
    assert set(asked.targets) <= set(shown)
    if status is ParseStatus.INVALID:
        assert asked == Operation(OperationKind.NOOP)
    executed = memory_manager.ground(asked, "the fact", dict.fromkeys(shown, "some text"))
    assert set(executed.targets) <= set(shown)


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("Ana lives in Rome.", "Ana moved to Oslo.", OperationKind.SUPERSEDE),
    ("Ana has a cat.", "Ana has a black cat.", OperationKind.UPDATE),
    ("Ana has a black cat.", "Ana has a cat.", OperationKind.NOOP),
    ("Ana lives in Rome.", "ana lived in Rome", OperationKind.NOOP),
    ("I have 3 bikes", "I have 4 bikes", OperationKind.SUPERSEDE),
    ("I like tea", "I no longer like tea", OperationKind.SUPERSEDE),
    ("2023-05-20: I own a Fiat.", "2023-06-01: I own a Fiat.", OperationKind.NOOP),
    ("2023-05-20 user: My best time is 27:12.", "2023-06-01 user: My best time is 25:50.", OperationKind.SUPERSEDE),
    ("I don't eat fish", "I eat fish", OperationKind.SUPERSEDE),
    ("It costs 2.5 euros", "It costs 5.2 euros", OperationKind.SUPERSEDE),
])  # fmt: skip
def test_update_is_told_from_supersede(old: str, new: str, kind: OperationKind) -> None:
    executed = memory_manager.ground(Operation(OperationKind.UPDATE, ("m1",)), new, {"m1": old})
    assert executed.kind is kind
    assert executed.text == ("" if kind is OperationKind.NOOP else new)


def test_add_takes_the_fact_and_the_others_stay_as_asked() -> None:
    assert memory_manager.ground(Operation(OperationKind.ADD), "a fact", {}) == Operation(
        OperationKind.ADD, (), "a fact"
    )
    for asked in (Operation(OperationKind.NOOP), Operation(OperationKind.DELETE, ("m1",))):
        assert memory_manager.ground(asked, "a fact", {"m1": "x"}) == asked


def test_warm_start_teaches_right_lines_about_training_people_only() -> None:
    examples = warm_start_examples(200, seed=5)
    held_out = {name for split in ("dev", "test") for name in names_of(split)}
    for prompt, answer in examples:
        case = prompt.removeprefix(memory_manager.PREFIX)
        assert not held_out & set(case.replace("'s", "").replace(".", "").split())
        kind, target, status = read_operation(answer, shown=case.count("\n["))
        assert status is ParseStatus.OK
        assert answer == memory_manager.completion(answer.strip())
        assert kind is not OperationKind.UPDATE or target is not None
    assert len({answer for _, answer in examples}) > 6


def test_shuffling_is_seeded() -> None:
    items = list(range(6))
    assert sorted(memory_manager.shuffle(items, "a")) == items
    assert memory_manager.shuffle(items, "a") == memory_manager.shuffle(items, "a")
    assert len({memory_manager.shuffle(items, str(seed)) for seed in range(20)}) > 10
