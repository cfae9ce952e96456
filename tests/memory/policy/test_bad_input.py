"""What a program hands to a memory that learns and should not have: a typed error, and nothing changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepworth import policy
from keepworth.base.errors import KeepworthError
from keepworth.memory.choose.case_writers import RawCases
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.pool import Advice
from keepworth.memory.choose.slots import Finished
from keepworth.memory.errors import ClosedEpisode, InvalidAdvice, InvalidText, UnknownEpisode
from keepworth.memory.memory import Memory
from keepworth.memory.operations import checked_reward
from tests.memory.policy.test_learning import ACTIONS, begun, opened, play, state


def test_reward_accepts_numpy_numbers_and_refuses_unknown_episodes(path: Path) -> None:
    memory, numbers = opened(path), (np.float32(0.5), np.bool_(True), np.int64(1), True)
    assert [checked_reward(number, (0.0, 1.0)) for number in numbers] == [0.5, 1.0, 1.0, 1.0]  # type: ignore[arg-type]
    for name in ("", None, ["e1"]):
        with pytest.raises(UnknownEpisode, match="episode"):
            memory.reward(name, 1.0)  # type: ignore[arg-type]


def test_reward_without_an_act_stores_no_case_and_closes_the_episode(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem")
    episode = memory.episode("a torn shirt arrived")
    episode.search(actions=ACTIONS)
    assert episode.reward(1.0).applied
    assert len(memory.learning.experience.pool) == 0
    for verb in (lambda: episode.act("refund"), lambda: episode.search(actions=ACTIONS)):
        with pytest.raises(ClosedEpisode, match="has its reward"):
            verb()


def test_task_must_be_text_and_loses_terminal_escapes(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", "exprag")
    for bad in (None, b"goal", 3, "\ud800", "w" * 200_001):
        with pytest.raises(InvalidText, match="task"):
            memory.episode(bad)  # type: ignore[arg-type]
    episode = memory.episode("")
    with pytest.raises(InvalidText, match="say what is looked for"):
        episode.search(" ", actions=ACTIONS)
    for actions in ("refund", None, (1, 2)):
        with pytest.raises(InvalidText, match="action"):
            episode.search("a torn shirt", actions=actions)  # type: ignore[arg-type]
    episode.search("a torn shirt", actions=ACTIONS)
    with pytest.raises(InvalidText, match="the action"):
        episode.act(3)  # type: ignore[arg-type]
    play(memory, "a \x1b[31mtorn\x1b[0m shirt", "refund", 1.0)
    assert [item.key for item in memory.learning.experience.pool.items] == ["a  [31mtorn [0m shirt"]


def test_failing_case_writer_leaves_memory_unchanged(tmp_path: Path) -> None:
    broken = ["The writer of policy 'mixture' failed: ConnectionError: the model is away", "which is no operation"]

    def writer(finished: Finished) -> Iterator[Advice]:
        yield from RawCases()(finished)
        if len(broken) == 2:
            raise ConnectionError("the model is away")
        if broken:
            yield "not a draft"  # type: ignore[misc]

    memory = opened(tmp_path / "j.mem", lambda: replace(policy("mixture"), writer=writer))
    episode = begun(memory, "a torn shirt arrived")
    before = state(memory)
    while broken:
        with pytest.raises(KeepworthError, match=broken[0]):
            episode.reward(1.0)
        assert state(memory) == before
        assert memory.pending() == [episode.id]
        broken.pop(0)
    assert episode.reward(1.0)
    (item,) = memory.learning.experience.pool.items
    assert item.text == "a torn shirt arrived -> refund: it worked"


OVERRIDES: list[dict[str, Any]] = [{"key": 5}, {"do": ("wire",)}, {"good": False}, {"born": "x"}, {"extra": {}}]
DRAFTS: list[tuple[Any, str]] = [
    (Advice("", "text", do=("a",)), "cannot be kept"),
    (Advice("key", "te\x00xt", do=("a",)), "cannot be kept"),
    (Advice("key", "text"), "cannot be kept"),
    *((Advice("key", "text", ("a",), source="web", trust=bad), "trust") for bad in (math.nan, 2.0, "high")),
    *((Advice("key", "text", ("a",), source=own), "memory learned itself") for own in ("own", "own:ana")),
    *((Advice("key", "text", ("a",), extra=extra), "extra") for extra in OVERRIDES),
    ("text", "no draft"),
]


@pytest.mark.parametrize(("draft", "message"), DRAFTS, ids=repr)
def test_invalid_or_reserved_advice_is_refused_and_not_stored(draft, message, path: Path) -> None:
    memory = opened(path)
    with pytest.raises(InvalidAdvice, match=message):
        memory.propose(draft)
    if message in ("cannot be kept", "extra"):
        assert memory.learning.experience.observe(draft) is None
    assert len(memory.learning.experience.pool) == 0


OPENED: list[dict[str, Any]] = [
    *({"seed": bad} for bad in ("x", -1, 1.5)),
    *({"reward_range": bad} for bad in (5, (0,), ("a", "b"), (0, 10**400), {0, 1})),
    *({"policy": bad} for bad in (lambda: 5, lambda: None, {"a": 5}, "efect")),
    *({name: 5} for name in ("clock", "encoder", "writer")),
    {"encoder": "hashing:0"},
    {"encoder": "nope"},
]


@pytest.mark.parametrize("options", OPENED, ids=" and ".join)
def test_invalid_options_are_refused_before_a_file_is_made(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(KeepworthError):
        Memory(tmp_path / "a.mem", **{"encoder": HashedWords(64), **options})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("policy", ["default", "mixture", "memrl", "kernel-mean", "linucb", "linear-thompson"])
def test_texts_without_a_word_are_learned_from(policy: str) -> None:
    with Memory(policy=policy, encoder=HashedWords(64), seed=0) as memory:
        for number in range(30):
            with memory.episode("...") as episode:
                shown = episode.search("...", actions=("a", "b"))
                episode.act("a" if number % 2 else "b")
                episode.reward(float(number % 2))
        assert len(shown) or policy == "default"
