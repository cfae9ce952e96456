"""AgeMem: its rewards by hand, one advantage for every step of all stages, its rules, and a run with its controls."""

from __future__ import annotations

import numpy as np
import pytest

from keepworth.methods.recipes import agemem
from keepworth.methods.recipes._bank.bounded_bank import BoundedBank
from keepworth.methods.recipes._bank.parted import PartedBank
from keepworth.methods.recipes._bank.reading import BankAnswer
from keepworth.methods.recipes._bank.staged import STORE, StagedWriting
from keepworth.training.objective.advantage import advantages
from keepworth.training.rows import rows_of
from tests.recipes.writer_runs import group_of
from tests.rollouts.scripted_model import ScriptedModel
from tests.rollouts.test_bounded_bank import stream_of

STATEMENTS = ("I paid $30 for the hat.", "It rains.", "My hat is new.", "We met.")
STREAM = stream_of(*STATEMENTS, answer="$30")
MESSAGES = ("Bob sings loud songs today.", "Eve sleeps.")
QUESTION = "How much was the hat?"
CONFIG = agemem.Config(length=4, budget=2, chunk=2, retrievals=2)


def course(window: int = 16, question: str = QUESTION) -> StagedWriting:
    bank = PartedBank(BoundedBank(2), (STORE,))
    return StagedWriting(STATEMENTS, MESSAGES, question, bank, chunk=2, recent=9, window=window, retrievals=2, words=2)


def played(*lines: str, window: int = 16) -> StagedWriting:
    now = course(window)
    for line in lines:
        now.act(line)
    assert now.prompt(9) is None
    return now


def test_the_key_tokens_are_words_of_the_question_that_a_fact_holds() -> None:
    assert agemem.key_tokens(QUESTION, STATEMENTS) == {"hat"}
    assert agemem.key_tokens("Where is Oslo?", STATEMENTS) == set()


def test_the_rewards_of_one_rollout_by_hand() -> None:
    now = played("L0 L1", "L1=1", "-M0", "-M1 R0")
    # The context is "I paid $30 for the hat.": 6 of 16 words; it was reduced; it holds "hat".
    assert agemem.context_reward(now) == pytest.approx(((1 - 6 / 16) + 1 + 1) / 3)
    # Of two entries the first is more specific than the median; one was updated; what was retrieved holds "hat".
    assert agemem.memory_reward(now) == pytest.approx((1 / 2 + 1 + 1) / 3)
    terms = agemem.earned(now, BankAnswer("$30", 0.7))
    of = {term.name: term.value * term.weight for term in terms}
    assert of["answer"] == 0.0
    assert of["overflow"] == 0.0
    total = (0.7 + (0.625 + 2) / 3 + 2.5 / 3) / 3
    assert sum(of.values()) == pytest.approx(total)


def test_context_overflow_costs_half_a_point() -> None:
    now = played("L0 L2", "none", "none", "R0", window=8)  # 5 + 2 words of messages, 6 of the fact
    assert now.used == 13
    assert agemem.context_reward(now) == 0.0  # what was retrieved does not fit: the key token is lost
    assert {term.name: term.value for term in agemem.earned(now, BankAnswer("x", 0.0))}["overflow"] == -0.5
    reduced = played("L0", "none", "M0", "R0", window=8)
    assert reduced.used == 10
    assert agemem.prevention(reduced) == 0.0, "it was reduced, and ran over all the same"


def test_missing_answer_costs_a_point_and_no_ops_are_no_maintenance() -> None:
    assert [agemem.task_reward(*said) for said in ((" ", 0.0), ("x", 0.0), ("x", 0.4))] == [-1.0, 0.0, 0.4]
    empty = played("-L0 L0=1", "none", "M9", "R0")
    assert agemem.memory_reward(empty) == 0.0
    assert agemem.prevention(empty) == 0.0


def test_every_step_of_all_stages_has_the_advantage_of_its_rollout() -> None:
    def says(prompt: str, number: int) -> str:
        """The first member stores a fact, filters and retrieves; the second does nothing. They share prompts until one stores."""
        if prompt.endswith("L:"):
            return " L0\n" if "New:\n0 I paid" in prompt and number == 0 else " none\n"
        if prompt.endswith("-M, shorten as M:"):
            return " -M0 -M1\n" if number == 0 else " none\n"
        return " R0\n" if "R0" in prompt else " none\n"

    group = group_of(ScriptedModel(says), STREAM, course, agemem.earned, n=2)
    rewards = np.array([episode.reward for episode in group.episodes])
    assert [len(episode.segments) for episode in group.episodes] == [4, 4]
    assert rewards[0] > rewards[1]
    rows = rows_of([group], ["writer"], 3)
    found = advantages(rows.batch, agemem.AGEMEM)
    by_episode: dict[int, set[float]] = {}
    for row, episode in enumerate(rows.batch.episode.tolist()):
        values = found[row][rows.batch.mask[row] > 0]
        by_episode.setdefault(int(episode), set()).update(round(float(value), 5) for value in values)
    # One value for all its tokens; of two rollouts (R - mean) / std is the same with both signs.
    (first,), (second,) = by_episode[0], by_episode[1]
    assert first == pytest.approx(-second)
    spread = rewards.std(ddof=0), rewards.std(ddof=1)
    assert any(first == pytest.approx((rewards[0] - rewards.mean()) / each, rel=1e-3) for each in spread)


def test_the_rules_play_their_stages() -> None:
    now = course()
    now.act(agemem.imitated(now, CONFIG))
    now.act(agemem.imitated(now, CONFIG))
    assert "I paid $30 for the hat." in [entry.text for entry in now.bank.entries(STORE)]
    assert agemem.fetched(now, 1) == "-M0 -M1"
    now.act("-M0")
    assert agemem.fetched(now, 1) in {"-M1 R0", "-M1 R1"}
    now.act(agemem.fetched(now, 1))
    assert [each.text for each in now.shown] == ["I paid $30 for the hat."] or "hat" in now.shown[0].text
    plain = course()
    while plain.prompt(9) is not None:
        plain.act(agemem.latest(plain, STREAM))
    assert plain.stored == (2, 3)
    assert len(plain.messages) == 2
    best = course()
    while best.prompt(9) is not None:
        best.act(agemem.knowing(best, STREAM))
    assert [each.text for each in best.shown] == [STATEMENTS[0]]
