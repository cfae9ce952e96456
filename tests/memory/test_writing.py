"""What a writer makes of messages; what it fails at is kept as it was said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from keepworth import Facts, Memory
from keepworth.base.chat import ChatModel
from keepworth.base.errors import KeepworthError
from keepworth.memory.errors import InvalidText, InvalidTime
from keepworth.memory.item import ALL
from keepworth.memory.store.checks import check
from keepworth.methods.writers.facts import comparison, extractor
from tests.memory.helpers import texts
from tests.serving.scripted import scripted

NOW = "2026-11-22T00:00:00"
SAID = [{"role": "user", "content": "I moved to Oslo. Lovely!"}, {"role": "assistant", "content": "Noted!"}]


def chat(text: str, end: str = "stop") -> tuple[int, dict[str, Any]]:
    return 200, {"choices": [{"message": {"content": text}, "finish_reason": end}]}


def fails_with(problem: Exception) -> Facts:
    def extract(messages: Sequence[Any]) -> list[str]:
        raise problem

    return Facts(extract)


def opened(writer: Any, **options: Any) -> Memory:
    return Memory(encoder="hashing", writer=writer, clock=lambda: NOW, policy=None, **options)


def test_default_writer_keeps_and_updates_facts_with_provenance() -> None:
    with opened("default") as memory:
        before = {"role": "user", "content": "Hi, I live in Bergen. What's on?", "said_at": "2026-04-01"}
        memory.add([before], infer=True, user_id="ana")
        memory.add("I live in Rome.", infer=True, user_id="bob")
        (item,) = memory.add([*SAID[1:], {**SAID[0], "said_at": "2026-05-01T08:00"}], infer=True, user_id="ana")
        assert [each.text for each in memory.get_all(user_id="ana")] == ["I moved to Oslo."]
        assert texts(memory) == ["I live in Rome.", "I moved to Oslo."]
        source = item.provenance
        assert (source.speaker, source.turn, source.date) == ("user", 1, "2026-05-01T08:00:00")
        (old,) = (each for each in memory.get_all(user_id="ana", all_states=True) if not each.open)
        assert (old.text, old.superseded_by, item.links[0].target) == ("I live in Bergen.", item.id, old.id)
        assert check(memory.store) == []
        with pytest.raises(InvalidTime):
            memory.add([{**SAID[0], "said_at": "soon"}], infer=True)


AT_TEN = "Your appointment is at 10."


@pytest.mark.parametrize(
    ("first", "user", "then", "both"),
    [
        ("I live in Rome.", "bob", "I moved to Oslo.", "I moved to Oslo."),
        ("My appointment is at 9.", "", [{"role": "assistant", "content": AT_TEN}], AT_TEN),
    ],
    ids=["nobody of somebody", "an assistant"],
)
def test_statement_does_not_replace_one_of_another_speaker(first: str, user: str, then: Any, both: str) -> None:
    with opened("rules") as memory:
        memory.add(first, infer=True, user_id=user or ALL)
        memory.add(then, infer=True)
        assert texts(memory) == [first, both]


@pytest.mark.parametrize("infer", [False, True])
def test_message_parts_are_read_and_textless_messages_refused(infer: bool) -> None:
    parts = [{"type": "text", "text": "I live in Paris."}, {"type": "image_url", "image_url": {"url": "a.png"}}]
    with opened("default") as memory:
        (item,) = memory.add([{"role": "user", "content": parts}], infer=infer)
        assert item.text == "I live in Paris."
        for message in ({"role": "user", "text": "I live in Rome."}, {"role": "user", "content": 3}):
            with pytest.raises(InvalidText, match="message 0 needs a text as its content"):
                memory.add([message], infer=infer)


def test_turn_is_kept_verbatim_if_the_writer_fails() -> None:
    with opened(fails_with(ConnectionError("the model is away"))) as memory:
        memory.add("Ana lives in Bergen.", user_id="ana")
        (raw,) = memory.add(SAID, infer=True, user_id="ana", metadata={"from": "chat"}, source="gateway")
        assert (raw.text, raw.metadata) == ("I moved to Oslo. Lovely!", {"from": "chat", "extraction": "failed"})
        assert (raw.provenance.source, raw.provenance.speaker, raw.scope.user) == ("gateway", "user", "ana")
        assert texts(memory) == ["Ana lives in Bergen.", raw.text]
        assert memory.get_all(where={"extraction": "failed"}) == [raw]
        assert check(memory.store) == []


def test_fix_for_a_failing_writer_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    problem = KeepworthError("There is no JSON object in 'hm'.", "Ask for one in the prompt, with an example.")
    opened(fails_with(problem)).add([{"role": "user", "content": "I moved to Oslo."}], infer=True)
    (said,) = (record.getMessage() for record in caplog.records)
    failed = "KeepworthError: There is no JSON object in 'hm'."
    assert said == f"What was said is kept as it is, because a writer failed, {failed}"


def test_model_extracts_facts_and_names_replaced_ones() -> None:
    answers = (chat('{"facts": ["The user moved to Oslo on 2026-11-21."]}'), chat('{"F0": [0, 7, 99]}'))
    with scripted(*answers) as server, opened("rules") as memory:
        model = ChatModel(server.url, "m")
        memory.add("I live in Bergen.", infer=True)
        memory.add("I like tea.", infer=True)
        memory.writer = Facts(extractor(model), comparison(model))
        (item,) = memory.add([{"role": "user", "content": "I moved to Oslo yesterday."}], infer=True)
        assert texts(memory) == ["I like tea.", "The user moved to Oslo on 2026-11-21."]
        assert (item.provenance.speaker, item.provenance.turn) == ("user", 0)
        assert "2026-11-22" in server.asked[0]["messages"][0]["content"]
        assert "I live in Bergen." in server.asked[1]["messages"][0]["content"]


ANSWERS: dict[str, tuple[int, Any]] = {
    "refusal": chat("I'm sorry, I can't help with that."),
    "no list": chat('{"facts": "none"}'),
    "no texts": chat('{"facts": [1, 2]}'),
    "said by nobody": chat('{"facts": ["Paris lies in France"]}'),
    "nothing": chat(""),
    "cut": chat('{"facts": ["Ana mov', "length"),
    "no choices": (200, "<html>busy</html>"),
    "refused": (400, {"error": {"message": "no"}}),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_failing_model_loses_no_turn(name: str) -> None:
    with scripted(*[ANSWERS[name]] * 3) as server, opened(Facts(extractor(ChatModel(server.url, "m")))) as memory:
        (item,) = memory.add(SAID, infer=True)
        assert (item.text, item.metadata) == (SAID[0]["content"], {"extraction": "failed"})


@pytest.mark.parametrize("answer", ["I cannot say.", '{"F0": [0', "", "[0]"])
def test_invalid_replacement_answer_loses_no_turn_or_fact(answer: str) -> None:
    replies = [chat('{"facts": ["The user moved to Oslo."]}'), *[chat(answer)] * 2]
    with scripted(*replies) as server, opened("rules") as memory:
        memory.add("I live in Bergen.", infer=True)
        model = ChatModel(server.url, "m")
        memory.writer = Facts(extractor(model), comparison(model))
        (item,) = memory.add(SAID, infer=True)
        assert (item.text, item.metadata) == (SAID[0]["content"], {"extraction": "failed"})
        assert texts(memory) == ["I live in Bergen.", item.text]


def test_default_writer_uses_a_configured_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(chat('{"facts": ["Ana moved to Oslo."]}'), chat("{}")) as server:
        for name, value in (("BASE_URL", server.url), ("API_KEY", "k"), ("MODEL", "m")):
            monkeypatch.setenv(f"OPENAI_{name}", value)
        with opened("default") as memory:
            memory.add(SAID, infer=True)
            note, fact = memory.get_all()
            assert (note.text, fact.text) == ("I moved to Oslo.", "Ana moved to Oslo.")
            assert [link.target for link in fact.links] == [note.id]
        assert server.asked[0]["model"] == "m"
        monkeypatch.delenv("OPENAI_MODEL")
        with opened("default") as memory:
            assert memory.add(SAID, infer=True)[0].text == "I moved to Oslo."
        with pytest.raises(Exception, match="OPENAI_MODEL is not set"):
            opened("model")
    with pytest.raises(Exception, match="rules"):
        opened("ruless")


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        # Each statement is a note of its own, so that a change of one leaves the others.
        ("I live in Rome. I have two cats.", ["I live in Rome.", "I have two cats."]),
        ("- I live in Rome\n- I have two cats", ["I live in Rome", "I have two cats"]),
        ("My sister is Ana. She lives in Bonn.", ["My sister is Ana. She lives in Bonn."]),
        # A number of a telephone begins like a line of a diff, and a table belongs to the line that leads it in.
        ("+49 170 1234567 is my number", ["+49 170 1234567 is my number"]),
        ("+ import os\n- import sys\n+ print(1)", []),
        (
            "My shifts:\n\n| day | time |\n| --- | --- |\n| Mon | 8-12 |",
            ["My shifts:\n| day | time |\n| --- | --- |\n| Mon | 8-12 |"],
        ),
        ("What does this table mean:\n| day | time |\n| --- | --- |\n| Mon | 8-12 |", []),
        # What is to be rewritten is not said of the speaker.
        ("I live in Bonn. Can you improve this text? My name is Karl.", ["I live in Bonn."]),
        ("Please proofread the following paragraph.\n\nI lead a team of five.\n\nI live in Bonn.", ["I live in Bonn."]),
        ("Kannst du diesen Text verbessern? Ich wohne in Hamburg.", []),
        ("Peux-tu corriger ce texte ? J'habite à Lyon.", []),
        ("¿Puedes traducir este párrafo? Vivo en Madrid.", []),
        ("I need to edit this report. I work at Siemens.", ["I need to edit this report.", "I work at Siemens."]),
        # Who is meant is said in the request.
        ("Plan a party for my son? He loves dinosaurs.", ["Plan a party for my son? He loves dinosaurs."]),
        ("Was schenke ich meiner Mutter? Sie liebt Krimis.", ["Was schenke ich meiner Mutter? Sie liebt Krimis."]),
        ("What should I buy? He likes tea.", ["He likes tea."]),
        # "Kim" asks in Turkish, and is a name elsewhere.
        ("My boss is Kim.", ["My boss is Kim."]),
        ("Meine Frau heißt Kim.", ["Meine Frau heißt Kim."]),
        ("Bu kitabı yazan kim.", []),
        # What a question is asked for.
        ("Since I'm diabetic, which desserts can I eat?", ["I'm diabetic."]),
        ("Da ich Diabetiker bin, welche Desserts kann ich essen?", ["Ich bin Diabetiker."]),
        ("Comme je suis diabétique, quels desserts puis-je manger ?", ["Je suis diabétique."]),
        ("Como soy diabético, ¿qué postres puedo comer?", ["Soy diabético."]),
        ("Me duele la espalda, ¿qué puedo hacer?", ["Me duele la espalda."]),
        ("Я веган, что мне приготовить?", ["Я веган."]),
        ("我对坚果过敏，我可以做什么菜？", ["我对坚果过敏"]),
        ("Since when do you know Python?", []),
        # Words of one language are words of talk in another.
        ("I have a son.", ["I have a son."]),
        ("I met Dan.", ["I met Dan."]),
        ("J'aime le vert.", ["J'aime le vert."]),
        ("Me gusta la idea.", []),
        ("Nenn mich Annie.", ["Nenn mich Annie."]),
        # What somebody did is no comment on the task.
        ("I went for a run.", ["I went for a run."]),
        ("I went with the second one.", []),
    ],
)
def test_each_statement_of_a_message_is_a_note(text: str, notes: list[str]) -> None:
    with Memory(":memory:") as memory:
        memory.add([{"role": "user", "content": text}], infer=True)
        assert sorted(item.text for item in memory.get_all()) == sorted(notes)
