"""Writing into a bounded bank: one segment a fact, the bank that follows from them, what reads it, and one write drawn again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.memory.facts import Fact
from keepworth.methods.recipes._bank.bounded_bank import BoundedBank
from keepworth.methods.recipes._bank.course import PROMPT, PROMPT_ID, DigitWriting, asked, line_of, task_of
from keepworth.methods.recipes._bank.reading import BankReading
from keepworth.methods.recipes._bank.rollout import state_of, write_stream
from keepworth.methods.recipes.fine_mem import writers
from keepworth.records import DecisionKind, Episode, Group, Task
from keepworth.records.episode import ParseStatus
from keepworth.worlds.driver import RolloutContext, together
from keepworth.worlds.fact_streams import FactStream
from tests.rollouts.scripted_model import FunctionReader, ScriptedModel


def stream_of(*statements: str, answer: str = "", evidence: int = 0) -> FactStream:
    facts = tuple(Fact(text, "s", "2024-01-01", number, 0) for number, text in enumerate(statements))
    task = Task("t/1", "test", "which?", (answer or statements[evidence],), "token_f1")
    return FactStream(task, facts, tuple(number == evidence for number in range(len(facts))), "t/1")


STREAM = stream_of("red", "blue", "green")
ECHO = FunctionReader("echo@1", lambda question, memories: " ".join(memories))


def two() -> DigitWriting:
    return DigitWriting([fact.statement for fact in STREAM.facts], BoundedBank(2))


def judged(texts: Sequence[str]) -> Callable[[str, int], str]:
    """A model that says these of the facts of `STREAM`."""
    said = {PROMPT.format(fact.statement): text for fact, text in zip(STREAM.facts, texts, strict=True)}
    return lambda prompt, number: said[prompt]


def written(answer: Callable[[str, int], str], reader: BankReading | None = None, n: int = 1, **how: Any) -> Group:
    model, reading = ScriptedModel(answer), reader or BankReading(ECHO)

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        return await write_stream(model, STREAM, two(), context, reading, max_tokens=1, prompt_id=PROMPT_ID, **how)

    (group,) = together(model, [task_of(STREAM)], rollout, n=n)
    assert len(model.batches) == 1, "the facts were not sampled at once"
    return group


def written_episode(texts: Sequence[str], reader: BankReading | None = None) -> Episode:
    return written(judged(texts), reader, temperature=0.0).episodes[0]


def test_one_episode_by_hand() -> None:
    episode = written_episode(["9", "x", "1"])
    assert [(event.status, event.outcome) for event in episode.operations] == [
        (ParseStatus.OK, "kept"), (ParseStatus.INVALID, "invalid"), (ParseStatus.OK, "kept"),
    ]  # fmt: skip
    assert [decision.kind for decision in episode.decisions] == [
        DecisionKind.WRITE, DecisionKind.NOOP, DecisionKind.WRITE,
    ]  # fmt: skip
    assert writers(episode) == {"f0": (0,), "f2": (2,)}
    assert [shown.item for shown in episode.shown] == ["f0", "f2"]
    assert episode.answer == "red green"
    assert episode.reward == pytest.approx(2 / 3)  # one word of two is right, and it is all that was asked for
    assert [(term.name, term.value, term.weight) for term in episode.rewards][1] == ("evidence_kept", 1.0, 0.0)
    assert episode.metric == episode.reward
    chain = [(segment.memory_before, segment.memory_after) for segment in episode.segments]
    assert [before for before, _ in chain[1:]] == [after for _, after in chain[:-1]]
    assert chain[0][0] == episode.memory_snapshot == state_of(())


def test_full_bank_drops_the_least_important_entry() -> None:
    episode = written_episode(["1", "5", "9"])
    assert [shown.text for shown in episode.shown] == ["blue", "green"]
    assert writers(episode) == {"f0": (0,), "f1": (1,), "f2": (2,)}
    assert (episode.reward, episode.rewards[1].value) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "line"),
    [("7", "ADD 7"), (" 7\n", "ADD 7"), ("7.", "ADD 7"), ("10", "10"), ("-3", "-3"), ("NOOP", "NOOP"), ("", "")],
)
def test_a_digit_says_how_much_it_matters(text: str, line: str) -> None:
    assert line_of(text) == line


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=6), min_size=3, max_size=3), st.sampled_from(["items", "tokens"]), st.integers(1, 3))
def test_any_text_is_legal(texts: list[str], unit: str, budget: int) -> None:
    bank = BoundedBank(budget, unit)  # type: ignore[arg-type]
    course = DigitWriting(["red", "blue", "green"], bank)
    turns = [course.act(text) for text in texts]
    assert sum(bank.size(text) for text in bank.texts) <= budget
    assert sum(turn.calls[0].outcome == "invalid" for turn in turns) == bank.invalid
    states = {state_of(turn.after, turn.arrived[1]) for turn in turns}
    assert len(states) == 3, "a fact that arrived is another state"


def test_a_fact_longer_than_the_window_is_cut_short() -> None:
    model = ScriptedModel(lambda prompt, number: "1", context_limit=60)
    prompt = asked(model, "long " * 100, 1)
    assert len(prompt) < 60
    assert model.decode(prompt).endswith("Worth keeping, 0 to 9:")


class Breaks:
    """A reader that cannot read a bank with a word in it, nor anything read together with that."""

    identity = "breaks@1"

    def answers(self, queries: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
        if any("blue" in memories for _, memories in queries):
            raise OSError("gone")
        return [" ".join(memories) for _, memories in queries]


def test_a_reader_that_fails_is_counted_and_is_an_empty_answer() -> None:
    reading = BankReading(Breaks())
    found = reading([(STREAM, ["red"]), (STREAM, ["blue"]), (STREAM, ["green"])])
    assert [(each.score, each.failed) for each in found] == [(1.0, ""), (0.0, "OSError: gone"), (0.0, "")]
    assert reading.failed == 1
    episode = written_episode(["1", "9", "9"], BankReading(Breaks()))
    assert episode.reward == 0.0
    assert episode.errors == ("the reader failed, which counts as an empty answer: OSError: gone",)


def test_permuted_rewards_are_those_of_other_banks_and_the_same_again() -> None:
    banks = [(STREAM, ["red"]), *((STREAM, ["blue", str(number)]) for number in range(5))]
    draws = [[each.score for each in BankReading(ECHO, permuted=seed)(banks)] for seed in range(20)]
    assert all(sorted(draw) == [0.0] * 5 + [1.0] for draw in draws)
    assert len({tuple(draw) for draw in draws}) > 3
    assert draws == [[each.score for each in BankReading(ECHO, permuted=seed)(banks)] for seed in range(20)]


def test_a_write_that_is_drawn_again_differs_in_that_write_alone() -> None:
    anchor = written_episode(["5", "1", "7"])
    assert [shown.text for shown in anchor.shown] == ["red", "green"]
    group = written(lambda prompt, number: "90"[number], n=2, again=(anchor, 1))
    high, low = group.episodes
    assert [shown.text for shown in high.shown] == ["blue", "green"]  # red, 5, is now the least of three
    assert [shown.text for shown in low.shown] == ["red", "green"]
    assert (high.reward, low.reward) == (0.0, pytest.approx(2 / 3))
    assert writers(high) == {"f1": (0,)}
    assert {len(episode.segments) for episode in group.episodes} == {1}
    assert {episode.memory_snapshot for episode in group.episodes} == {anchor.segments[1].memory_before}
    assert {episode.parent for episode in group.episodes} == {anchor.id}


def test_the_same_draw_again_is_the_same_episode() -> None:
    """Hindsight is exact: a re-roll that says what the anchor said ends in the anchor's bank, for every write."""
    anchor = written_episode(["5", "1", "7"])
    for index, segment in enumerate(anchor.segments):
        (found,) = written(lambda prompt, number, text=segment.text: text, again=(anchor, index)).episodes  # type: ignore[misc]
        assert (found.shown, found.rewards, found.answer) == (anchor.shown, anchor.rewards, anchor.answer)
        assert replace(found.segments[0], temperature=0.0) == segment
