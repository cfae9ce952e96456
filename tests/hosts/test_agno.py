"""What the slot of Agno does beyond the contract of all slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from keepworth import Memory

pytest.importorskip("agno.learn", reason="agno is not installed: make test-hosts")

from keepworth.adapters.agno import KeepworthLearningStore, LearningStore
from tests.hosts.agno_talk import talk_class


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:", encoder="hashing") as opened:
        opened.add("Run the tests with: make test", user_id="ana")
        yield opened


@pytest.mark.parametrize("broken", [False, True])
def test_a_tool_that_ends_in_a_run_is_an_outcome(memory: Memory, broken: bool) -> None:
    def shell(command: str) -> str:
        """Run a command."""
        if broken:
            raise RuntimeError("2 failed")
        return "2 passed"

    talk = talk_class()(memory, user_id="ana", tools=[shell])
    talk.scripted.calls = [("shell", '{"command": "make test"}')]
    assert talk.say("run the tests", "Done.") == "Done."
    (episode,) = memory.episodes()
    rewards = [(reward.name, reward.value) for reward in memory.episode_record(episode).rewards]
    assert rewards == [("signal:check-failed:ana", 0.0) if broken else ("signal:check-passed:ana", 1.0)]


def test_user_statements_are_kept_without_the_hook(memory: Memory) -> None:
    talk = talk_class()(memory, user_id="ana")
    talk.agent.post_hooks = None
    talk.say("I live in Oslo.", "Noted.")
    assert [item.text for item in memory.get_all(user_id="ana")][1:] == ["I live in Oslo."]
    talk.say("Where do I live?", "In Oslo.")
    assert "- I live in Oslo." in talk.prompts[-1]
    assert len(memory.episodes()) == 2


def test_a_run_without_words_begins_no_turn(memory: Memory) -> None:
    store = KeepworthLearningStore(memory)
    assert isinstance(store, LearningStore)
    assert store.recall(message=None, user_id="ana", session_id="s", query=None) == ""
    assert memory.episodes() == []
