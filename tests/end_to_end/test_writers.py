"""One protocol of writers: an extractor, the writer of a policy that learns, and a manager that a run has trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from keepworth import Advice, Facts, Memory, Writer, policy
from keepworth.base.chat import ChatModel
from keepworth.base.errors import KeepworthError
from keepworth.memory.choose.case_writers import RawCases
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.slots import Finished
from keepworth.memory.errors import InvalidAdvice, MemoryProblem, NothingToWrite, ReadOnly, UnknownOption
from keepworth.memory.store.checks import check
from keepworth.methods.recipes._memory_r1.memory_manager import Manager, ManagerState
from keepworth.methods.writers.facts import extractor
from keepworth.records.episode import Operation, OperationKind
from tests.serving.scripted import scripted

SAID = [{"role": "user", "content": "I moved to Oslo."}, {"role": "assistant", "content": "Nice!"}]


def texts(memory: Memory) -> list[str]:
    return [item.text for item in memory.get_all()]


def saying(*lines: str, shown: list[ManagerState] | None = None) -> Manager:
    """A manager that says one line after the other. shown: gets what it is shown."""
    rest = iter(lines)

    def choose(states: Any) -> list[str]:
        if shown is not None:
            shown.extend(states)
        return [next(rest)]

    return Manager(choose)


def sentences(messages: Any) -> list[str]:
    return [message["content"] for message in messages]


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
        assert played(lambda: replace(policy("default"), writer=facts)) == ["Ana moved to Oslo."]
        assert server.asked[1]["messages"][1]["content"] == "user: where does Ana live?\nassistant: ask"


def played(made: Any) -> list[str]:
    """What a memory holds after one rewarded episode."""
    memory = opened(policy=made, seed=1)
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


def test_the_default_policy_learns_as_much_with_a_writer_of_its_own() -> None:
    learned = []
    for writer in (None, Manager(lambda states: ["DELETE 7"] * len(states))):
        memory = opened(policy=partial(replace, policy("default"), writer=writer), seed=1)
        there = memory.add("Ana lives in Oslo.")
        for _ in range(20):
            with memory.episode("where does Ana live?") as episode:
                hits = episode.search(actions=("ask", "guess"))
                episode.act("ask")
                episode.reward(1.0 if there.id in [hit.id for hit in hits] else 0.0)
        learned.append(memory.worth(there.id, "where does Ana live?"))
    assert learned[0].effect is not None
    assert learned[0] == learned[1]


@pytest.mark.parametrize("made", ["mixture", "rememberer"])
def test_the_writer_of_a_policy_keeps_choices_and_refuses_messages_by_name(made: str) -> None:
    assert len(played(partial(policy, made))) == 1
    writer = policy(made).writer
    assert writer is not None
    with pytest.raises(NothingToWrite, match="keeps choices of episodes"):
        opened(writer).add(SAID, infer=True)


def test_manager_sees_earlier_writes_and_updates_or_deletes() -> None:
    shown: list[ManagerState] = []
    memory = opened(saying("ADD", "UPDATE 0", "DELETE 0", "ADD", "nonsense", shown=shown))
    memory.add("Kim lives in Delhi.", user_id="kim")
    said = ["Ana lives in Bergen.", "Ana moved to Oslo.", "Forget where Ana lives.", "Ana has a cat.", "Bye."]
    items = memory.add([{"content": text} for text in said], infer=True, user_id="ana", event_time="2026-01-31")
    assert [state.memories for state in shown] == [
        (), ("Ana lives in Bergen.",), ("Ana moved to Oslo.",), (), ("Ana has a cat.",),
    ]  # fmt: skip
    assert [item.text for item in items] == ["Ana has a cat."], "what was made and is gone again is not returned"
    assert texts(memory) == ["Kim lives in Delhi.", "Ana has a cat."]
    assert items[-1].event_time.startswith("2026-01-31")
    assert check(memory.store) == []


def test_a_manager_takes_the_facts_that_another_writer_finds() -> None:
    facts = Facts(lambda messages: [message["content"].replace("I ", "Ana ") for message in messages])
    memory = opened(Manager(lambda states: ["ADD"], facts))
    assert [item.text for item in memory.add(SAID[:1], infer=True)] == ["Ana moved to Oslo."]


def test_a_manager_writes_at_the_end_of_an_episode() -> None:
    for line, written in (("ADD", ["where does Ana live?", "ask"]), ("DELETE 7", [])):
        manager = Manager(lambda states, line=line: [line] * len(states))
        assert played(partial(replace, policy("default"), writer=manager)) == written


def test_unwritable_input_is_refused_by_name() -> None:
    with pytest.raises(MemoryProblem, match=r"open the memory with writer=\.\.\., such as Facts"):
        opened().add("hello", infer=True)

    def advising(finished: Finished) -> Iterator[Advice]:
        yield Advice("key", "text", do=("ask",))

    with pytest.raises(InvalidAdvice, match=r"is no operation.*propose"):
        opened(advising).add("hello", infer=True)
    assert opened(lambda finished: [Operation(OperationKind.DELETE, ("m9",))]).add("hello", infer=True) == []
    assert RawCases()(Finished()) == []


def test_repeated_facts_are_kept_once_per_person() -> None:
    memory = opened(Facts(sentences))
    first = memory.add("Likes tofu.", user_id="ana")
    assert memory.add("Likes  tofu.", infer=True, user_id="ana") == [first]
    (other,) = memory.add("Likes tofu.", infer=True, user_id="bob")
    assert other.scope.user == "bob"
    memory.delete(first.id)
    (again,) = memory.add("Likes tofu.", infer=True, user_id="ana")
    assert again.id not in (first.id, other.id)
    anew = [Operation(OperationKind.DELETE, (other.id,)), Operation(OperationKind.ADD, text="Likes tofu.")]
    memory.writer = lambda finished: anew
    (item,) = memory.add("...", infer=True, user_id="bob")
    assert item.id != other.id
    assert item.open


def test_options_apply_to_the_items_a_writer_makes() -> None:
    said = [{"content": "Ana lives in Bergen."}, {"content": "Bob has a cat."}]
    told: dict[str, Any] = {"metadata": {"x": 1}, "kind": "lesson", "trust": 0.5, "key": "who"}
    memory = opened(saying("NOOP", "ADD"))
    (item,) = memory.add(said, infer=True, expires_at="2099-01-01", **told)
    assert item.text == "Bob has a cat."
    assert {name: getattr(item, name) for name in told} == told
    assert item.expires_at.startswith("2099")
    memory = opened(saying("nonsense", "ADD", "UPDATE 0", "DELETE 0"))
    assert memory.add("hello there", infer=True, kind="fact", trust=1.0, status="active") == []
    memory.add(said[0]["content"], infer=True)
    (item,) = memory.add("Ana lives in Oslo.", infer=True, metadata={"x": 2}, ttl=60)
    assert (item.metadata, item.expires_at > item.written_at) == ({"x": 2}, True)
    assert memory.add("Forget it.", infer=True, ttl=60) == []
    assert texts(memory) == []
    assert check(memory.store) == []


def test_messages_without_words_are_left_out_and_cost_no_other_its_fact() -> None:
    said: list[dict[str, Any]] = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "user"}]
    said += [{"content": " "}, {"content": "Bob has a cat."}]
    for line in ("ADD", "UPDATE 0"):
        memory = opened(saying(line))
        memory.add("Bob has a dog.")
        assert memory.add(said, infer=True) == [memory.get_all()[-1]]
    nothing = {"choices": [{"message": {"content": '{"facts": []}'}, "finish_reason": "stop"}]}
    with scripted((200, nothing), (200, nothing)) as server:
        extract = extractor(ChatModel(server.url, "m"))
        memory = opened(Facts(extract))
        assert memory.add(said[:3], infer=True) == []
        assert memory.add(said, infer=True) == extract([said[0], said[3]]) == []
        assert [each["messages"][1]["content"] for each in server.asked] == ["user: Bob has a cat."] * 2
    good = Operation(OperationKind.ADD, text="Bob has a cat.")
    memory = opened(lambda finished: [Operation(OperationKind.ADD, text=""), good])
    assert [item.text for item in memory.add("hello", infer=True)] == ["Bob has a cat."]


WRONG: list[dict[str, Any]] = [
    {"episode": "e99"}, {"kind": "nope"}, {"usr_id": "a"}, {"ttl": -1}, {"event_time": "nope"}, {"trust": 2},
    {"status": "nope"}, {"metadata": {"x": object()}}, {"source": 3}, {"user_id": 3}, {"provenances": []},
    {"valid_from": "2026-01-02", "valid_to": "2026-01-01"},
]  # fmt: skip


@pytest.mark.parametrize("options", WRONG, ids=" and ".join)
def test_options_are_checked_before_a_model_is_asked(options: dict[str, Any]) -> None:
    asked: list[Any] = []
    memory = opened(Facts(lambda messages: asked.append(messages) or ["Ana has a cat."]))
    with pytest.raises((KeepworthError, TypeError)):
        memory.add("hello", infer=True, **options)
    assert asked == []


def test_a_memory_that_cannot_be_written_asks_no_model(tmp_path: Path) -> None:
    opened(path=tmp_path / "a.mem").close()
    memory = opened(lambda finished: pytest.fail("asked"), path=tmp_path / "a.mem", read_only=True)
    with pytest.raises(ReadOnly):
        memory.add("hello", infer=True)


@pytest.mark.parametrize("found", [[None], [3], [{"text": "x"}], [b"x"], None, "abc", {"text": "x"}, 3], ids=str)
def test_extractor_without_a_list_of_texts_is_refused(found: Any) -> None:
    memory = opened(Facts(lambda messages: found))
    with pytest.raises(InvalidAdvice, match="no list of texts"):
        memory.add("hello", infer=True)
    writer: Any = lambda finished: found  # noqa: E731
    with pytest.raises(InvalidAdvice):
        opened(writer).add("hello", infer=True)
    assert texts(memory) == []
    with pytest.raises(InvalidAdvice, match="nothing that finds facts"):
        Facts("facts")  # type: ignore[arg-type]


def test_an_option_that_no_memory_has_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    for name, match in (("writter", "did you mean writer="), ("top_k", "it takes path, encoder, ")):
        options: dict[str, Any] = {name: sentences}
        with pytest.raises(UnknownOption, match=match):
            Memory(tmp_path / "a.mem", **options)
    assert list(tmp_path.iterdir()) == []
