"""One protocol of writers: an extractor, the writer of a policy that learns, and a manager that a run has trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepworth import Advice, Facts, Memory, Writer, policy
from keepworth.agents.manager import Manager, ManagerState
from keepworth.episodes.episode import Operation, OperationKind
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.run.run_folder import RunFolder
from keepworth.learning.watch.progress import SilentProgress
from keepworth.memory.errors import InvalidAdvice, InvalidFilter, NothingToWrite, NoWriter
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.slots import Finished, Policy
from keepworth.memory.policy.writers import RawCases
from keepworth.memory.store.checks import check
from keepworth.models.chat import ChatModel, extractor
from keepworth.recipes import memory_r1
from keepworth.recipes.advantage import advantage
from keepworth.recipes.experience_methods import rememberer
from keepworth.recipes.memory_r1_manager import manager_of
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.serving.scripted import scripted

SAID = [{"role": "user", "content": "I moved to Oslo."}, {"role": "assistant", "content": "Nice!"}]


def texts(memory: Memory) -> list[str]:
    return [item.text for item in memory.get_all()]


def answering(line: str) -> Manager:
    return Manager(lambda states: [line] * len(states))


def opened(writer: Writer | None = None, **options: Any) -> Memory:
    return Memory(encoder=HashedWords(64), writer=writer, **options)


def test_an_extractor_is_a_writer_of_messages_and_of_episodes() -> None:
    answer = {"choices": [{"message": {"content": '{"facts": ["Ana moved to Oslo."]}'}, "finish_reason": "stop"}]}
    with scripted((200, answer), (200, answer)) as server:
        facts = Facts(extractor(ChatModel(server.url, "m")))
        memory = opened(facts)
        (item,) = memory.add(SAID, infer=True, user_id="ana", metadata={"from": "chat"})
        assert (item.text, item.scope.user, item.metadata, item.provenance.source) == (
            "Ana moved to Oslo.", "ana", {"from": "chat"}, "writer",
        )  # fmt: skip
        assert played(lambda: replace(policy("effect"), writer=facts)) == ["Ana moved to Oslo."]
        assert server.asked[1]["messages"][1]["content"] == "user: where does Ana live?\nassistant: ask"


def played(made: Any) -> list[str]:
    """What a memory holds after one rewarded episode."""
    memory = opened(policy={"made": made}, seed=1)
    with memory.episode("where does Ana live?") as episode:
        episode.search(actions=("ask", "guess"))
        episode.act("ask")
        episode.reward(1.0)
    assert check(memory.store) == []
    found = texts(memory)
    assert [hit.text for text in found for hit in memory.search(text, top_k=1)] == found
    memory.rollback(episode.id)
    assert texts(memory) == []
    return found


@pytest.mark.parametrize("made", [advantage, rememberer])
def test_the_writer_of_a_policy_keeps_choices_and_refuses_messages_by_name(made: Any) -> None:
    assert len(played(made)) == 1
    writer = made().writer
    with pytest.raises(NothingToWrite, match="keeps choices of episodes"):
        opened(writer).add(SAID, infer=True)


def test_a_manager_sees_what_it_wrote_before_and_does_more_than_add() -> None:
    lines = iter(["ADD", "UPDATE 0", "DELETE 0", "ADD", "nonsense"])
    shown: list[ManagerState] = []

    def choose(states: Any) -> list[str]:
        shown.extend(states)
        return [next(lines)]

    memory = opened(Manager(choose))
    memory.add("Kim lives in Delhi.", user_id="kim")
    said = ["Ana lives in Bergen.", "Ana moved to Oslo.", "Forget where Ana lives.", "Ana has a cat.", "Bye."]
    items = memory.add([{"content": text} for text in said], infer=True, user_id="ana", event_time="2026-01-31")
    assert [state.memories for state in shown] == [
        (), ("Ana lives in Bergen.",), ("Ana moved to Oslo.",), (), ("Ana has a cat.",),
    ]  # fmt: skip
    assert [item.text for item in items if item.open] == ["Ana has a cat."]
    assert texts(memory) == ["Kim lives in Delhi.", "Ana has a cat."]
    assert items[-1].event_time.startswith("2026-01-31")
    assert check(memory.store) == []


def test_a_manager_takes_the_facts_that_another_writer_finds() -> None:
    facts = Facts(lambda messages: [message["content"].replace("I ", "Ana ") for message in messages])
    memory = opened(Manager(lambda states: ["ADD"], facts))
    assert [item.text for item in memory.add(SAID[:1], infer=True)] == ["Ana moved to Oslo."]


def test_a_manager_writes_at_the_end_of_an_episode() -> None:
    def made(line: str) -> Policy:
        return replace(policy("effect"), writer=answering(line))

    assert played(lambda: made("ADD")) == ["where does Ana live?", "ask"]
    assert played(lambda: made("DELETE 7")) == []


def test_a_run_that_has_trained_a_manager_is_a_writer(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "model")
    config = memory_r1.Config(
        role="manager", model=str(checkpoint), precision="fp32", threads=1, steps=1, group_size=2, tasks_per_step=1,
        questions=2, warm_start=8, maintained=False, token_budget=2048,
    )  # fmt: skip
    with RunFolder.create(tmp_path / "run", {"recipe": "memory_r1", **config.model_dump(mode="json")}) as run:
        with pytest.raises(KeepworthError, match="holds no manager"):
            manager_of(run.path)
        memory_r1.train(config, run, SilentProgress())
    manager = manager_of(run.path)
    (line,) = manager.choose([ManagerState((), (), "Ana moved to Oslo.")])
    assert isinstance(line, str)
    memory = opened(manager)
    memory.add(SAID[:1], infer=True)
    assert texts(memory) == (["I moved to Oslo."] if line.strip() == "ADD" else [])


def test_what_cannot_be_written_is_refused_by_name() -> None:
    with pytest.raises(NoWriter, match=r"open the memory with writer=\.\.\., such as Facts"):
        opened().add("hello", infer=True)

    def advising(finished: Finished) -> Iterator[Advice]:
        yield Advice("key", "text", do=("ask",))

    with pytest.raises(InvalidAdvice, match=r"is no operation.*propose"):
        opened(advising).add("hello", infer=True)
    memory = opened(answering("DELETE 0"))
    memory.add("hello there")
    with pytest.raises(InvalidFilter, match="ttl has no effect where a writer updates or deletes"):
        memory.add("hello", infer=True, ttl=5.0)
    assert texts(memory) == ["hello there"]
    assert opened(lambda finished: [Operation(OperationKind.DELETE, ("m9",))]).add("hello", infer=True) == []
    assert RawCases()(Finished()) == []
