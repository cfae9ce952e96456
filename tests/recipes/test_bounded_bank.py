"""Writers of the bounded bank on a model of a few thousand weights: credit by hand, whole runs, and a run that was killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.methods.recipes import agemem, bounded_bank, fine_mem, mem_alpha, memory_r2
from keepworth.methods.recipes._bank import course as bank_course
from keepworth.methods.recipes._bank.reading import used_by
from keepworth.methods.recipes._bank.writers import WriterStreams, rule_digits
from keepworth.methods.recipes.fine_mem import with_lines, with_shares
from keepworth.records import Decision, DecisionKind, Episode, FinishReason, RewardTerm, Segment, StopReason
from keepworth.records.episode import MemoryEvent, Operation, OperationKind, ParseStatus, Shown
from keepworth.training.run_folder import RunFolder
from keepworth.training.trained import find_weights
from keepworth.training.watch.tables import tables_of
from tests.recipes.writer_runs import LOCAL, TINY, echoing, run_of

CALLS = {"chunk": 3, "recent": 1, "warm_start": 50, "warm_start_learning_rate": 2e-2, "temperature": 0.6}
RECIPES: dict[ModuleType, dict[str, Any]] = {
    bounded_bank: {}, memory_r2: {}, fine_mem: {}, mem_alpha: CALLS, agemem: {**CALLS, "distractors": 2},
}  # fmt: skip


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bank_course, "MOST_WORDS", 1)  # of each fact in a prompt: the tiny model's tokens are bytes
    with echoing(monkeypatch):
        yield


Runs = Callable[[ModuleType], RunFolder]


@pytest.fixture(scope="module")
def runs(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The run of each recipe, made once."""
    return cache(lambda recipe: run_of(recipe, checkpoint, tmp_path_factory.mktemp("run") / "run", **RECIPES[recipe]))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__.rsplit(".", 1)[-1])
def test_a_recipe_runs_whole_with_its_controls(runs: Runs, echo: None, recipe: ModuleType) -> None:
    run = runs(recipe)
    (table,) = tables_of(run)
    arms = ["untrained", "first_in_first_out", "most_specific", "warm_start", "trained", "all_evidence"]
    assert list(dict.fromkeys(row.arm for row in table.rows)) == arms
    kept = {row["arm"]: row["mean"] for row in run.evals() if row["metric"] == "evidence_kept"}
    assert kept["all_evidence"] == 1.0
    assert [row["step"] for row in run.evals() if row["split"] == "dev" and row["metric"] == "f1"] == [0, 2]
    assert {row["reader"] for row in run.evals()} == {"echo@1"}
    assert any(row.get("gradient_norm", 0) > 0 for row in run.metrics()), "nothing was trained"
    assert find_weights(run, "writer").is_dir()
    turns = {mem_alpha: {2}, agemem: {4}}
    assert {len(stored.episode.segments) for stored in run.episodes(arm="train")} <= turns.get(recipe, {1, 4, 6})


def test_re_rolls_and_shorter_streams_first(runs: Runs, echo: None) -> None:
    run = runs(memory_r2)
    found = {(stored.step, stored.episode.id): stored.episode for stored in run.episodes(arm="train")}
    for step, length in ((1, 4), (2, 6)):
        own = [episode for (at, _), episode in found.items() if at == step]
        whole = [episode for episode in own if not episode.parent]
        assert {len(episode.segments) for episode in whole} == {length}
        assert len(own) - len(whole) == 2 * length * 2  # of each of two groups' first member every write, twice
        for episode in own:
            if episode.parent:
                anchor = found[step, episode.parent]
                index = (int(episode.id.split("/")[1]) - TINY["group_size"]) // 2
                assert episode.segments[0].context == anchor.segments[index].context
                assert episode.memory_snapshot == anchor.segments[index].memory_before
    assert any(row["local_episodes"] > 0 for row in run.metrics() if "local_episodes" in row)


def test_rewards_of_writes_sum_to_the_answers_in_a_run(runs: Runs, echo: None) -> None:
    episodes = [stored.episode for stored in runs(fine_mem).episodes(arm="train")]
    for episode in episodes:
        (answer,) = parts(episode, "answer")
        assert sum(parts(episode, "attribution")) == pytest.approx(answer)
    assert any(len(set(parts(episode, "attribution"))) > 1 for episode in episodes)


def test_an_objective_of_whole_episodes_has_no_re_rolls_and_no_shares() -> None:
    assert memory_r2.Config(objective="tis").local is None
    episode = episode_of(["f1"], 0.5)
    assert fine_mem.Config(objective="tis").credited(episode) is episode
    assert parts(fine_mem.Config().credited(episode), "attribution")


def test_a_frozen_model_reads_and_permuted_rewards_are_said(checkpoint: Path, tmp_path: Path) -> None:
    """The real reader, untrained; what it says is not looked at here."""
    cold: dict[str, Any] = {"warm_start": 0, "warm_start_batch": 32, "warm_start_learning_rate": 1e-3}
    run = run_of(bounded_bank, checkpoint, tmp_path / "run", permuted=True, steps=1, **cold)
    (table,) = tables_of(run)
    assert "permuted" in table.note
    assert "warm_start" not in {row.arm for row in table.rows}
    scorers = {term.scorer for stored in run.episodes(arm="train") for term in stored.episode.rewards[:1]}
    assert scorers == {row["reader"] for row in run.evals()}


# Credit, by hand.


def episode_of(kept: Sequence[str], answer: float, writes: int = 4, said: str = "x", invalid: int = -1) -> Episode:
    """Facts f0, f1, ... of which those in `kept` are in the bank; every fact of the bank was written by its own segment."""
    segment = Segment("writer", "p", (1,), (2,), (-0.5,), 1.0, FinishReason.LENGTH, (), "5")
    decisions = tuple(
        Decision(f"d{n}", DecisionKind.WRITE, "", (), (f"f{n}",), 1.0, "", n) for n in range(writes) if n != invalid
    )
    events = tuple(
        MemoryEvent(Operation(OperationKind.ADD), ParseStatus.INVALID if n == invalid else ParseStatus.OK, "")
        for n in range(writes)
    )
    shown = tuple(Shown(item, 5.0, f"fact number {item}") for item in kept)
    terms = (RewardTerm("answer", answer), RewardTerm("evidence_kept", 1.0, 0.0, shaping=True))
    return Episode(
        "0/0", "t", "writer", "which", (segment,) * writes, said, (), terms, StopReason.COMPLETED, "", 0,
        shown=shown, decisions=decisions, operations=events,
    )  # fmt: skip


def parts(episode: Episode, name: str) -> list[float]:
    return [term.value for term in episode.rewards if term.name == name]


def test_used_write_gets_half_of_the_answer_reward() -> None:
    credited = with_shares(episode_of(["f1", "f3"], 0.8, said="f3"), 0.5, 1)
    assert parts(credited, "attribution") == pytest.approx([0.1, 0.1, 0.1, 0.1 + 0.4])
    assert credited.reward == pytest.approx(0.8)
    assert credited.metric == pytest.approx(0.8)
    assert used_by("f3 which", credited.shown, 1) == ("f3",)
    assert used_by("nothing shared", credited.shown, 1) == ("f1", "f3")
    split = with_shares(episode_of(["f1", "f3"], 0.8), 1.0, 2)
    assert parts(split, "attribution") == pytest.approx([0.0, 0.4, 0.0, 0.4])


def test_a_line_without_sense_costs_its_own_write_alone() -> None:
    credited = with_lines(with_shares(episode_of(["f1"], 1.0, invalid=2), 0.5, 2), 0.1)
    assert parts(credited, "format") == [1.0, 1.0, 0.0, 1.0]
    assert credited.reward == pytest.approx(1.3)
    assert credited.metric == 1.0


BANKS = st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)).map(sorted)))
SAID = st.sampled_from(["f0", "number f2", "", "?"])


@settings(max_examples=60)
@given(BANKS, st.floats(0, 1), st.floats(0.01, 1), st.integers(1, 3), SAID)
def test_shares_sum_to_the_reward(bank: Any, answer: float, attributed: float, used: int, said: str) -> None:
    """Whatever was kept, also nothing, and whatever was said."""
    writes, kept = bank
    credited = with_shares(episode_of([f"f{n}" for n in kept], answer, writes, said), attributed, used)
    assert sum(parts(credited, "attribution")) == pytest.approx(answer)
    assert credited.reward == pytest.approx(answer)
    assert len(parts(credited, "attribution")) == writes
    assert all(part >= (1 - attributed) * answer / writes - 1e-12 for part in parts(credited, "attribution"))


def test_streams_of_a_stage_have_its_length_and_no_fact_of_another_split() -> None:
    streams = WriterStreams(memory_r2.Config(**{**TINY, **LOCAL}))
    assert [len(streams.drawn(group).facts) for group in range(4)] == [4, 4, 6, 6]
    tested = {fact.statement for split in ("dev", "test") for each in streams.held_out(split) for fact in each.facts}
    assert not tested & set(streams.statements())


def test_the_rule_gives_each_digit_to_a_tenth_of_the_facts() -> None:
    digits = rule_digits([f"I have {'9' * number} of them" for number in range(20)])
    assert sorted(digits) == [digit for digit in range(10) for _ in range(2)]
    assert digits[0] == 0


def test_marks_of_evidence_are_no_reward() -> None:
    """Neither what is trained on nor what groups are filtered by."""
    episode = episode_of(["f1"], 0.5)
    unmarked = replace(episode, rewards=episode.rewards[:1])
    for credited, plain in ((episode, unmarked), (with_shares(episode, 0.5, 2), with_shares(unmarked, 0.5, 2))):
        assert (credited.reward, credited.metric) == (plain.reward, plain.metric)
