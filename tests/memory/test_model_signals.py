"""A chat model reads the user's next message where the rules do not tell, by option only, within a limit, in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.base.chat import ChatModel
from keepworth.base.model_errors import ChatError
from keepworth.memory.errors import InvalidFilter
from keepworth.memory.model_signals import MOST_WAITING, ModelSignals
from tests.serving.gate import SetClock
from tests.serving.scripted import Script, scripted

UNCLEAR = "two pages"
"""A next message that no rule reads."""


def says(text: str) -> dict[str, object]:
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


@pytest.fixture
def model() -> Iterator[Script]:
    with scripted((200, says("correction"))) as script:
        yield script


def opened(model: Script, path: str | Path = ":memory:", **options: object) -> Memory:
    memory = Memory(path, encoder=None, model_signals=ModelSignals(ChatModel(model.url, "judge"), calls=6), **options)  # type: ignore[arg-type]
    memory.add("A letter has one page.")
    return memory


def react(memory: Memory, reply: str, by: str = "ana") -> list[tuple[str, float]]:
    """The rewards of an episode after its user's next message, once the model has answered."""
    with memory.episode("write the letter", by=by) as episode:
        episode.search("letter", top_k=1)
        episode.act("Dear Sir ...")
    episode.signal(reply=reply)
    assert memory.model_signals is None or memory.model_signals.wait()
    return [(reward.name, reward.value) for reward in memory.episode_record(episode.id).rewards]


@pytest.mark.parametrize(
    ("answer", "rewards"),
    [
        ("correction", [("signal:model-correction:ana", 0.0)]),
        (" Thanks.", [("signal:model-thanks:ana", 1.0)]),
        ("repetition", [("signal:model-repetition:ana", 0.0)]),
        ("new subject", []),
        ("none", []),
        ("The user corrects the answer, so: correction", []),
        ("bad", []),
    ],
)
def test_answer_of_the_model_is_a_signal_of_its_own_source(
    model: Script, answer: str, rewards: list[tuple[str, float]]
) -> None:
    model.answers = [(200, says(answer), {})]
    with opened(model) as memory:
        assert react(memory, UNCLEAR) == rewards
        prompt = model.asked[0]["messages"][-1]["content"]
        assert "write the letter" in prompt
        assert "Dear Sir ..." in prompt
        assert UNCLEAR in prompt


def test_rewards_of_the_model_are_rolled_back_alone(model: Script) -> None:
    with opened(model) as memory:
        react(memory, UNCLEAR)
        react(memory, "No, that's wrong.")
        memory.rollback(source="signal:model-correction")
        counts = {source.source: source.rewards for source in memory.outcomes()}
        assert counts["signal:model-correction"] == 0
        assert counts["signal:correction"] == 1


def test_rules_come_first_and_spare_the_call(model: Script) -> None:
    with opened(model) as memory:
        assert react(memory, "Perfect, thank you!") == [("signal:thanks:ana", 1.0)]
        memory.episode("hello").signal(reply=UNCLEAR)  # nothing was shown
        assert model.asked == []


def test_calls_have_a_limit_each_day_that_survives_a_restart(model: Script, tmp_path: Path) -> None:
    clock = SetClock()
    with opened(model, tmp_path / "agent.mem", clock=clock) as memory:
        assert [bool(react(memory, UNCLEAR)) for _ in range(2)] == [True, True]
    with opened(model, tmp_path / "agent.mem", clock=clock) as memory:
        assert [bool(react(memory, UNCLEAR)) for _ in range(2)] == [True, False]
        clock.wait(86_400)
        assert react(memory, UNCLEAR)
    assert len(model.asked) == 4


def test_person_gets_half_of_the_calls_that_others_left(model: Script) -> None:
    with opened(model) as memory:
        assert [bool(react(memory, UNCLEAR)) for _ in range(4)] == [True, True, True, False]
        assert [bool(react(memory, UNCLEAR, by="bob")) for _ in range(3)] == [True, True, False]
        assert [bool(react(memory, UNCLEAR, by="eve")) for _ in range(2)] == [True, False]
    assert len(model.asked) == 6


def test_full_queue_drops_a_message_of_the_sender(model: Script) -> None:
    reader, read = ModelSignals(ChatModel(model.url, "judge"), calls=500), list[str]()
    ready = threading.Event()

    def hold(name: str) -> None:
        ready.wait(30)

    with Memory(encoder=None) as memory:
        reader.read_later(memory.store, "first", "", "", "ana", hold)
        while not model.asked:
            time.sleep(0.01)
        reader.read_later(memory.store, "mine", "", "", "bob", lambda name: read.append("bob"))
        for _ in range(MOST_WAITING + 5):
            reader.read_later(memory.store, "again", "", "", "ana", lambda name: read.append("ana"))
        ready.set()
        assert reader.wait()
    assert read.count("bob") == 1
    assert len(read) == MOST_WAITING


def test_no_model_is_asked_where_its_signals_are_switched_off(model: Script) -> None:
    with opened(model, signals=["thanks"]) as memory:
        assert react(memory, UNCLEAR) == []
    assert model.asked == []


def test_model_that_fails_gives_no_reward(model: Script) -> None:
    model.answers = [(400, {"error": {"message": "no such model"}}, {})]
    with opened(model) as memory:
        assert react(memory, UNCLEAR) == []


def test_secrets_do_not_reach_the_model(model: Script) -> None:
    from keepworth.memory.scan import Scan

    secret = "sk-proj-" + "a1B2" * 12
    with opened(model, scan=Scan()) as memory:
        react(memory, f"two pages with {secret}")
    assert model.asked
    assert secret not in str(model.asked)


def test_keys_in_the_environment_ask_no_model(monkeypatch: pytest.MonkeyPatch, model: Script) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("OPENAI_MODEL", "judge")
    with Memory(encoder=None) as memory:
        memory.add("A letter has one page.")
        assert react(memory, UNCLEAR) == []
    assert model.asked == []
    with Memory(encoder=None, model_signals=5) as memory:
        memory.add("A letter has one page.")
        assert react(memory, UNCLEAR) == [("signal:model-correction:ana", 0.0)]


def test_option_without_a_model_or_with_no_number_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_MODEL", raising=False)
    with pytest.raises(ChatError, match="OPENAI_MODEL is not set"):
        Memory(model_signals=5)
    with pytest.raises(InvalidFilter, match="no number"):
        Memory(model_signals=-1)
