"""Mem-alpha: its rewards by hand, its advantages by hand, and a run with its controls that goes on where it was killed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keepworth.methods.recipes import mem_alpha
from keepworth.methods.recipes._bank.bounded_bank import BoundedBank
from keepworth.methods.recipes._bank.parted import ChunkedWriting
from keepworth.methods.recipes._bank.reading import BankAnswer
from keepworth.methods.recipes._bank.writers import rule_lines
from keepworth.methods.recipes.mem_alpha import MEM_ALPHA, compression, fits, imitated, success, validity, writing_of
from keepworth.training.objective.advantage import advantages
from keepworth.training.rows import rows_of
from keepworth.worlds.fact_streams import FactStream
from tests.recipes.writer_runs import group_of
from tests.rollouts.scripted_model import ScriptedModel
from tests.rollouts.test_bounded_bank import stream_of

STATEMENTS = ("I bought a red hat yesterday.", "Oslo is in Norway.", "I am a nurse.", "It rains.")
STREAM: FactStream = stream_of(*STATEMENTS, answer="red hat yesterday")
CONFIG = mem_alpha.Config(length=4, budget=2, chunk=2)


def course(recent: int = 20, budget: int = 2) -> ChunkedWriting:
    config = mem_alpha.Config(length=4, budget=2, chunk=2, recent=recent)
    return writing_of(config, STATEMENTS, BoundedBank(budget))


def test_the_rewards_of_a_chunk_by_hand() -> None:
    now = course()
    first = now.act("E0 E1 E0 S9")  # an event, no event, a duplicate, a fact that is not there
    assert success(first) == 2 / 4
    assert validity(first) == 1 / 4
    second = now.act("none")
    assert (success(second), validity(second)) == (0.0, 0.0)
    # 6 + 4 words stayed, of 6 + 4 + 4 + 2 that were read
    terms = CONFIG.earned(now, BankAnswer("red", 0.5))
    of = {(term.name, term.segment): term.value * term.weight for term in terms}
    assert of["answer", None] == 0.0
    assert [of["qa", number] for number in (0, 1)] == [0.5, 0.5]
    assert of["compression", 0] == of["compression", 1] == pytest.approx(0.05 * (1 - 10 / 16))
    assert of["success", 0] == 0.5
    assert of["validity", 0] == pytest.approx(0.1 / 4)
    total = sum(value for (_, number), value in of.items() if number == 0)
    assert total == pytest.approx(0.5 + 0.5 + 0.05 * 0.375 + 0.025)


def test_compression() -> None:
    assert compression(0, 40) == 1.0
    assert compression(10, 40) == 0.75
    assert compression(40, 40) == 0.0


def test_validity_counts_executable_calls() -> None:
    now = course()
    now.act("E0 S1")
    assert validity(now.act("-E0 -E0 C0")) == 2 / 3
    assert fits("E", "We met last week.")
    assert not fits("S", "We met last week.")
    assert fits("S", "Oslo is in Norway.")
    assert not fits("E", "Oslo is in Norway.")
    assert fits("C", "I am a nurse.")
    assert not fits("C", "Oslo is in Norway.")


def test_a_response_is_compared_with_every_response_of_its_group() -> None:
    """A = (r - mean) / std over (rollout, chunk) of the task; with the released code's own std, of n."""
    lines = {0: "E0 S1", 1: "none"}

    model = ScriptedModel(lambda prompt, number: f" {lines[number]}\n")
    group = group_of(model, STREAM, lambda: course(0), CONFIG.earned, n=2)
    rewards = np.array([
        [sum(term.value * term.weight for term in episode.rewards if term.segment == number) for number in (0, 1)]
        for episode in group.episodes
    ])  # fmt: skip
    assert group.episodes[1].answer == ""
    # What writes nothing earns the compression alone; the writer of two facts what its answer, calls and choices earn.
    assert rewards[1].tolist() == pytest.approx([0.05, 0.05])
    batch: Any = rows_of([group], ["writer"], 3).batch
    found = advantages(batch, MEM_ALPHA)
    of_rows = {
        (int(batch.episode[row]), int(batch.steps.index[int(batch.step[row].max())])): float(found[row][mask > 0][0])
        for row, mask in enumerate(batch.mask)
    }
    expected = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    spread = {key: value / of_rows[0, 0] for key, value in of_rows.items()}  # whichever of both standard deviations
    for (episode, step), value in spread.items():
        assert value == pytest.approx(expected[episode, step] / expected[0, 0], rel=1e-4)
    assert {key[0] for key in of_rows} == {0, 1}


def test_answer_reward_is_the_metric_for_whole_episodes() -> None:
    model = ScriptedModel(lambda prompt, number: " E0\n")
    (episode,) = group_of(model, STREAM, course, CONFIG.earned, says="red hat").episodes
    assert episode.metric == pytest.approx(0.8)
    assert mem_alpha.Config(objective="tis").credited(episode).reward == pytest.approx(0.8)


def test_the_rule_fills_the_bank_and_then_replaces_the_least_specific() -> None:
    now = course()
    assert imitated(now, 1) == "E0 S1"
    now.act(imitated(now, 1))
    said = imitated(now, 1)
    now.act(said)
    stay = {each.text for each in now.shown}
    plain = BoundedBank(2)
    for line, fact in zip(rule_lines(STREAM), STATEMENTS, strict=True):
        plain.write(line, fact)
    assert stay == set(plain.texts)
    assert imitated(course(recent=0), 1) == "E0"
