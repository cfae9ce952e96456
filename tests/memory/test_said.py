"""What people say is kept, whatever the language, and what they ask, order, greet with or paste is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import keepworth
from keepworth import Memory
from keepworth.memory.automatic import asks
from keepworth.memory.item import Item
from keepworth.memory.pasted import blank_pasted
from keepworth.memory.search.chunks import spans
from keepworth.memory.speech import clean, statements
from keepworth.memory.store.checks import check
from keepworth.methods.writers.facts import Facts
from keepworth.methods.writers.statements import DERIVED, Statements
from tests.memory.helpers import texts

LISTS = sorted((Path(__file__).parent / "said").glob("*.json"))
"""Lists that were written by somebody who did not know the rules."""
TALK = json.loads((Path(__file__).parent / "talk.json").read_text("utf-8"))
"""Kinds of talk, output and notes that the rules were made with."""


def plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def found(text: str) -> str:
    return plain(" ".join(statement.text for statement in statements(text)))


def opened(writer: Any = "default", **options: Any) -> Memory:
    return Memory(encoder="hashing", writer=writer, policy=None, log="off", **options)


@pytest.fixture
def memory() -> Iterator[Memory]:
    with opened() as memory:
        yield memory


class Spoken:
    """A memory to which messages are told, each by another person, so that none contradicts another."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.people = memory, 0

    def kept(self, text: str, asked: str = "") -> list[str]:
        self.people += 1
        before = [{"role": "assistant", "content": asked}] if asked else []
        messages = [*before, {"role": "user", "content": text}]
        return [plain(item.text) for item in self.memory.add(messages, infer=True, user_id=f"p{self.people}")]


def text_of(entry: Any) -> str:
    return str(entry if isinstance(entry, str) else entry["text"])


def lost(spoken: Spoken, texts: list[Any]) -> list[str]:
    """Those texts of which a word that matters is not in what was kept: the words that ask to remember may be left out."""
    gone = []
    for text in map(text_of, texts):
        kept = " ".join(spoken.kept(text))
        if not kept or " ".join(plain(text).split()[-3:]) not in kept:
            gone.append(text)
    return gone


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_statements_and_requests_to_remember_are_kept_in_any_language(memory: Memory, path: Path) -> None:
    told, spoken = json.loads(path.read_text("utf-8")), Spoken(memory)
    for name in ("statements_en", "remember", "statements_other"):
        gone = lost(spoken, told[name])
        assert len(gone) <= 0.05 * len(told[name]), gone
    assert check(memory.store) == []


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_questions_commands_and_greetings_are_not_kept(memory: Memory, path: Path) -> None:
    told, spoken = json.loads(path.read_text("utf-8")), Spoken(memory)
    for name, share in (("nothing", 0.05), ("nothing_other", 0.1)):
        kept = [text for text in map(text_of, told[name]) if spoken.kept(text)]
        assert len(kept) <= share * len(told[name]), kept


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_pasted_blocks_are_skipped_and_words_around_them_kept(memory: Memory, path: Path) -> None:
    told, spoken = json.loads(path.read_text("utf-8")), Spoken(memory)
    lines, kept_lines, gone = 0, list[str](), list[str]()
    for block in told["pastes"]:
        kept, said = spoken.kept(block["text"]), plain(block["says"])
        if said and not any(said in text for text in kept):
            gone.append(block["says"])
        for line in block["text"].splitlines():
            words = plain(line)
            if words and words not in said and not (said and said in words):
                lines += 1
                kept_lines += [line] if any(words in text for text in kept) else []
    assert not gone
    assert len(kept_lines) <= 0.05 * lines, kept_lines


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_mixed_message_keeps_its_statements(memory: Memory, path: Path) -> None:
    told, spoken = json.loads(path.read_text("utf-8")), Spoken(memory)
    wrong = []
    for message in told["mixed"]:
        kept = spoken.kept(message["text"])
        all_there = all(any(plain(part) in text for text in kept) for part in message["keep"])
        if not all_there or any(plain(part) in text for part in message["drop"] for text in kept):
            wrong.append((message["text"], kept))
    assert len(wrong) <= 0.05 * len(told["mixed"]), wrong


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_a_short_answer_is_kept_with_its_question(memory: Memory, path: Path) -> None:
    told, spoken = json.loads(path.read_text("utf-8")), Spoken(memory)
    wrong = []
    for reply in told["replies"]:
        kept = spoken.kept(reply["text"], reply["asked"])
        if not any(plain(reply["asked"]) in text and plain(reply["text"]) in text for text in kept):
            wrong.append((reply, kept))
    assert not wrong


def test_remarks_about_the_task_are_not_kept_in_any_language() -> None:
    for name in ("nothing", "nothing_other"):
        kept = [text for text in TALK[name] if statements(text)]
        assert len(kept) <= 0.05 * len(TALK[name]), kept


@pytest.mark.parametrize(
    "said", ["I'm still sick.", "I am new here.", "I'm old.", "We really love it here.", "Mir geht es schlecht."]
)
def test_statement_of_how_the_speaker_is_is_kept(memory: Memory, said: str) -> None:
    assert Spoken(memory).kept(said) == [plain(said)]


TASK_AT_HAND = """
Please hurry.|Hurry up!|Please be quick.|Bitte beeil dich.|Dépêche-toi !|Date prisa por favor.|急いでください。
no, use curl instead of wget|nope, use tabs instead of spaces|nein, nimm curl statt wget|non, utilise curl au lieu de wget
no, usa curl en vez de wget|That broke my build.|This broke our tests again.|You broke my build.|Your fix broke the app.
Das hat meinen Build kaputt gemacht.|Ça a cassé mon build.|Eso rompió mi build.|Reserviere bitte einen Tisch für Freitag.
Reserviere einen Tisch für Freitag.|Buche bitte einen Flug nach Rom.|Storniere bitte den Flug.|Reserve a table for Friday please.
Reserve a room for Monday.|Cancel my flight please.|Postpone the meeting.|Réserve une table pour vendredi.
Réservez une table pour vendredi, s'il vous plaît.|Reserva una mesa para el viernes.|Prenota un tavolo per venerdì.
Reserve uma mesa para sexta.|Reserveer een tafel voor vrijdag.|Zarezerwuj stolik na piątek.|Забронируй столик на пятницу.
違います、それは間違っています。|それは間違っています。|それは違います。|その答えは正しくありません。|いや、違う。|まだ動きません。
"""
STATED_ALIKE = """
no, we use pnpm instead of npm|We use curl instead of wget.|No, always use curl instead of wget.
From now on, use curl instead of wget.|no, use of phones is banned at our school|The new linter broke my build.|I broke my leg.
That storm broke our window.|That broke my streak of ten days at the gym.|It broke my tests for good, so I moved to Go.
Reserve 12 is the name of our wine.|Reserve wines are my favourite.|Reserve Bank of India is my employer.
I reserve a table every Friday.
Wir reservieren immer freitags einen Tisch.|Reserven haben wir keine.|La reserva está a mi nombre.
Vergiss bitte meine Nussallergie nicht.
Ich bitte meine Gäste, die Schuhe auszuziehen.|Hurry is my cat's name.|私の時計は間違っています。
違いますが、私は東京に住んでいます。
ここの住所は間違っています、新しいのは渋谷です。|サーバーは9090番ポートで動いています。
"""


def test_hurry_corrections_complaints_and_bookings_are_not_kept_and_statements_like_them_are(memory: Memory) -> None:
    spoken = Spoken(memory)
    assert [text for text in re.split(r"[|\n]", TASK_AT_HAND.strip()) if spoken.kept(text)] == []
    assert [text for text in re.split(r"[|\n]", STATED_ALIKE.strip()) if not spoken.kept(text)] == []


def test_statements_in_words_of_the_task_and_preferences_are_kept() -> None:
    gone = [text for text, words in TALK["statements"].items() if plain(words) not in found(text)]
    assert len(gone) <= 0.02 * len(TALK["statements"]), gone


def test_a_comment_that_answers_a_question_is_kept_with_it_or_alone(memory: Memory) -> None:
    spoken = Spoken(memory)
    assert spoken.kept("The second one", "Which of the two flats did you take?") != []
    assert spoken.kept("Nope, I have never been to something like that", "Have you been to a ball?") != []
    assert spoken.kept("That's wrong, try again", "Shall I go on?") == []


def test_notes_without_a_verb_are_kept_and_lines_of_logs_are_not() -> None:
    gone = [text for text in TALK["notes"] if plain(text) not in found(text)]
    assert len(gone) <= 0.02 * len(TALK["notes"]), gone
    kept = [text for text in TALK["logs"] if statements(text)]
    assert len(kept) <= 0.12 * len(TALK["logs"]), kept
    both = "Wifi: bluewhale22\nGate code 4471"
    assert plain(both) in found(both)


def test_short_tool_outputs_are_skipped_and_words_beside_them_kept() -> None:
    lines, kept_lines = 0, list[str]()
    for block in TALK["tools"]:
        kept = [plain(one.text) for one in statements(block)]
        words = [plain(line) for line in block.splitlines() if plain(line)]
        lines += len(words)
        kept_lines += [line for line in words if any(line in text for text in kept)]
        for text in (f"My desk is B14.\n\n{block}", f"{block}\n\nOur boxes run Debian."):
            assert any(said in str(statements(text)) for said in ("My desk is B14", "Our boxes run Debian")), text
    assert len(kept_lines) <= 0.03 * lines, kept_lines


def test_command_words_may_be_names_in_other_languages() -> None:
    for language, forms in TALK["of_names"].items():
        said = [form.format(name) for name in TALK["names"] for form in forms]
        gone = [text for text in said if not statements(text)]
        assert len(gone) <= 0.2 * len(said), (language, gone)
    for language, orders in TALK["commands"].items():
        assert [text for text in orders if statements(text)] == [], language


@pytest.mark.parametrize("text", ["I go by Jen now.", "I am Ada now."])
def test_a_name_that_is_a_small_word_of_another_language_is_a_name(memory: Memory, text: str) -> None:
    assert Spoken(memory).kept(text)


def test_yes_is_an_answer_to_a_question_about_the_person_and_not_to_an_offer(memory: Memory) -> None:
    spoken = Spoken(memory)
    assert spoken.kept("Yes", "Do you have a dog?") == ["do you have a dog yes"]
    assert spoken.kept("Yes. He is called Rex.", "Do you have a dog?") == ["do you have a dog yes he is called rex"]
    assert spoken.kept("yes", "Shall I run the tests?") == []
    assert spoken.kept("yes please", "Do you want me to go on?") == []
    assert spoken.kept("yes") == []


SAID = "Hi! I moved to Porto yesterday. Can you find a dentist?"


def test_a_note_has_its_date_its_speaker_and_its_turn(memory: Memory) -> None:
    messages = [
        {"role": "assistant", "content": "I live in the cloud."},
        {"role": "user", "content": SAID, "said_at": "2025-05-02"},
    ]
    (item,) = memory.add(messages, infer=True, user_id="ana", source="chat")
    assert item.text == "I moved to Porto yesterday. (2025-05-01)"
    assert (item.event_time, item.provenance.date) == ("2025-05-02T00:00:00",) * 2
    assert (item.provenance.speaker, item.provenance.turn, item.provenance.source) == ("user", 1, "chat")
    assert [hit.id for hit in memory.search("Porto", as_of="2025-06-01", user_id="ana")] == [item.id]
    assert memory.search("Porto", as_of="2025-01-01", user_id="ana") == []


def test_each_message_has_its_own_date(memory: Memory) -> None:
    messages = [
        {"role": "user", "content": text, "said_at": at}
        for text, at in (("My cat is called Tom.", "2024-01-01"), ("My bike is blue.", "2025-01-01"))
    ]
    assert [item.event_time[:4] for item in memory.add(messages, infer=True)] == ["2024", "2025"]


def test_other_speakers_are_kept_by_option_with_their_names() -> None:
    talk = [
        {"role": "user", "content": "I booked the small room."},
        {"role": "assistant", "content": "Your table is booked for eight. Check the map first."},
        {"role": "Ana", "content": "I live in Rome."},
        {"role": "user", "name": "Bo", "content": "I live in Oslo."},
    ]
    with opened() as memory:
        memory.add(talk, infer=True)
        assert texts(memory) == ["I booked the small room.", "Ana: I live in Rome.", "Bo: I live in Oslo."]
    with opened(Statements(assistant=True)) as memory:
        memory.add(talk, infer=True)
        advice = "Your table is booked for eight. Check the map first."
        assert advice in texts(memory), "what an agent advises is no command, and its sentences stay together"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Anna lives in Rome.", "anna lives in rome"),
        ("Anna left the company, I report to Imran.", "i report to imran"),
        ("Anna wohnt jetzt in Rom.", "anna wohnt jetzt in rom"),
        ("Cari lives in Oslo.", "cari lives in oslo"),
        ("Luo is my manager.", "luo is my manager"),
        ("the db host moved to 10.0.0.9, why does this fail?", "the db host moved to 10 0 0 9"),
        ("Toon is my brother.", "toon is my brother"),
        ("Visa expires on 3 May.", "visa expires on 3 may"),
        ("VAT number DE8812", "vat number de8812"),
        ("Please draft a reply, I'm on leave until Monday.", "i m on leave until monday"),
        ("Translate this, my boss is Finnish.", "my boss is finnish"),
        ("Book a table; I'm vegan.", "i m vegan"),
        ("Write a mail to Tom; he is my landlord.", "he is my landlord"),
        ("Fix the test because we only support Linux.", "we only support linux"),
        ("Write it in Go since our team dropped Java.", "our team dropped java"),
        ("Less emoji in your answers, please.", "less emoji in your answers"),
        ("Fewer tables please.", "fewer tables"),
        ("Stop using semicolons in my JS.", "stop using semicolons in my js"),
        ("Stop suggesting cloud services.", "stop suggesting cloud services"),
        ("Stop calling me Bob.", "stop calling me bob"),
        ("Release every Friday", "release every friday"),
        ("Back up the database every night.", "back up the database every night"),
        ("Review pull requests once a week.", "review pull requests once a week"),
        ("Save this: my locker is 14.", "my locker is 14"),
        (
            "it says 'npm ERR! code E404' and we use a private registry",
            "npm err code e404 and we use a private registry",
        ),
    ],
)
def test_statements_beside_commands_and_names_like_commands_are_kept(memory: Memory, said: str, kept: str) -> None:
    assert kept in " ".join(Spoken(memory).kept(said))


@pytest.mark.parametrize(
    "said",
    [
        "git status",
        "ls -la",
        "pip install numpy",
        "docker ps",
        "npm run build",
        "again but with types",
        "one more",
        "not what I meant",
        "why tho",
        "still the same error",
        "Gut gemacht",
        "Grüß dich",
        "Wie spät ist es",
        "stop",
        "Stop it",
        "Stop the server.",
        "Help me, I'm stuck.",
        "Run it again, I think it fails.",
        "Anna minulle esimerkki",
        "Hi, hope you're well.",
        "Vat dit samen",
        "Leg dit uit",
        "Visa mig koden",
        "List every Friday in May.",
        "Release it on Friday.",
        "Show the sales monthly.",
    ],
)
def test_shell_commands_and_reactions_are_not_kept(memory: Memory, said: str) -> None:
    assert Spoken(memory).kept(said) == []


@pytest.mark.parametrize(
    "pasted",
    [
        "On branch main\nnothing to commit, working tree clean",
        "a1b2c3d Fix the login redirect\n0c9d8e7 Drop support for Node 14",
        "commit 4f2a91c8d0e7b6a5\nDate:   Tue Mar 4 10:22:31 2025 +0100\n\n    The cache is gone.",
        "npm ERR! code ERESOLVE",
        "Tests:       1 failed, 3 passed, 4 total",
        "1 failed, 22 passed in 3.41s",
        "main.c:14:5: error: use of undeclared identifier 'cnt'\n1 error generated.",
        "Successfully installed mypkg-0.3.1",
        "No resources found in default namespace.",
        "* Could not resolve host: api.internal\n* Closing connection 0",
        "    at Object.<anonymous> (/app/login.test.js:14:9)",
        "bash: foo: command not found",
        "● nginx.service - A web server\n     Active: active (running) since Tue 2025-03-04",
        "error: failed to push some refs to 'origin'\nhint: Updates were rejected because the tip is behind",
    ],
)
def test_tool_output_is_never_kept(memory: Memory, pasted: str) -> None:
    assert Spoken(memory).kept(pasted) == []
    assert Spoken(memory).kept(f"{pasted}\nwhat does this mean?") == []
    assert "my desk is b14" in Spoken(memory).kept(f"My desk is B14.\n\n{pasted}")


@pytest.mark.parametrize(
    "said",
    [
        "Collecting stamps is my hobby.",
        "Started at 9 and worked till 5",
        "at home I use Linux (Debian)",
        "4f2a91c is the last good commit",
        "Expected: 12 guests on Sunday",
        "Events: party on 5 May",
        "java: we use 21 everywhere",
        "webpack is gone from our repo, we use vite",
        "Tests: 4 per week must pass before the audit",
        "exit code 3 means that the licence expired",
        "Found 3 old coins in my garden",
        "anna: cannot eat nuts",
        "On branch policy: one branch per ticket",
        "Updating the kernel needs a reboot on our boxes",
    ],
)
def test_statement_that_begins_like_tool_output_is_kept(memory: Memory, said: str) -> None:
    assert Spoken(memory).kept(said) == [plain(said)]


@pytest.mark.parametrize(
    "said",
    [
        "Grüß dich",
        "np",
        "okidoki",
        "perfekt, danke dir",
        "Gut gemacht",
        "buenas",
        "ok",
        "thank you so much",
        "Done.",
        "Tack så mycket!",
        "Bom dia, tudo bem?",
        "Teşekkürler, şimdi oldu",
        "好了，谢谢！",
    ],
)
def test_courtesies_trigger_no_search(said: str) -> None:
    assert not asks(said)
    assert asks(f"{said}, where is the invoice of Anna?")


def test_speaker_corrects_only_own_statements(memory: Memory) -> None:
    for speaker, text in (("Ana", "I live in Rome."), ("Bo", "I live in Paris."), ("Ana", "I moved to Oslo.")):
        memory.add([{"role": "user", "name": speaker, "content": text}], infer=True)
    assert sorted(texts(memory)) == ["Ana: I moved to Oslo.", "Bo: I live in Paris."]


def test_message_is_split_into_notes_with_their_dependent_sentences(memory: Memory) -> None:
    memory.add("My sister Lea called. She works at a bank. The rent is due on the 3rd.", infer=True)
    assert texts(memory) == ["My sister Lea called. She works at a bank.", "The rent is due on the 3rd."]
    memory.add("Our allergies:\n- Max: nuts\n- Ida: milk", infer=True)
    assert "Our allergies:\n- Max: nuts\n- Ida: milk" in texts(memory)


def test_explicit_request_to_remember_is_always_kept(memory: Memory) -> None:
    memory.add("Remember this:\n\n```\nPORT=8080\nHOST=db1\n```\n\nThanks!", infer=True)
    (item,) = memory.get_all()
    assert "PORT=8080" in item.text
    assert "HOST=db1" in item.text
    for text, kept in {
        "Could you keep in mind that I'm left-handed?": "I'm left-handed.",
        "My shoe size is 43, remember that.": "My shoe size is 43.",
        "Merk dir, dass ich in Ulm wohne.": "Ich wohne in Ulm.",
        "Recuerda que soy alérgico al polen.": "Soy alérgico al polen.",
        "Do you remember my shoe size?": "",
    }.items():
        assert [item.text for item in memory.add(text, infer=True)] == [kept] * bool(kept)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("I live in Lyon.\x00", "I live in Lyon."),
        ("\x07I live in \x1b[32mTurin\x1b[0m.", "I live in Turin."),
        ("I live in Graz \ud83d.", "I live in Graz ."),
        ("I live in Bonn \ud83d\ude00.", "I live in Bonn \U0001f600."),
        ("\x1b]0;title\x07I live in Ghent.\r\n", "I live in Ghent."),
    ],
)
@pytest.mark.parametrize("writer", ["default", "rules"])
def test_control_characters_are_cleaned_without_losing_text(said: str, kept: str, writer: str) -> None:
    with opened(writer) as memory:
        assert [item.text for item in memory.add([{"role": "user", "content": said}], infer=True)] == [kept]


def failing(messages: Any) -> list[str]:
    raise ConnectionError("away")


def test_text_is_cleaned_and_kept_if_the_writer_fails() -> None:
    with opened(Facts(failing)) as memory:
        (item,) = memory.add("I live in Lyon.\x00", infer=True)
        assert (item.text, item.metadata) == ("I live in Lyon.", {"extraction": "failed"})


def test_a_long_message_is_read_to_its_end(memory: Memory) -> None:
    log = "2026-01-01T00:00:00Z INFO [http] GET /v1/orders 200 12ms\n" * 400
    memory.add(f"{log}\nI live in Turin.\n\n{log}\nMy desk is B14.", infer=True)
    assert texts(memory) == ["I live in Turin.", "My desk is B14."]
    prose = " ".join(f"The shelf number {n} holds the files of year {1000 + n}." for n in range(900))
    with opened() as other:
        items = other.add(prose, infer=True)
        assert 1 < len(items) <= 64
        assert all(f"year {1000 + n}." in " ".join(item.text for item in items) for n in (0, 450, 899))


def test_facts_are_made_beside_the_notes_and_link_to_them() -> None:
    def extract(messages: Any) -> list[str]:
        return ["Ana moved to Porto on 2025-05-01.", "The user moved to Porto."]

    with opened(Statements(facts=Facts(extract))) as memory:
        memory.add([{"role": "user", "content": SAID, "said_at": "2025-05-02"}], infer=True)
        note, fact = memory.get_all()
        assert note.text == "I moved to Porto yesterday. (2025-05-01)"
        assert fact.text == "Ana moved to Porto on 2025-05-01.", "a fact that says no more is left out"
        assert [(link.target, link.relation) for link in fact.links] == [(note.id, DERIVED)]
        assert check(memory.store) == []
    with opened(Statements(facts=Facts(failing))) as memory:
        memory.add("I moved to Porto.", infer=True)
        assert texts(memory) == ["I moved to Porto."]


def test_note_replaces_the_statement_it_contradicts(memory: Memory) -> None:
    memory.add("I live in Bergen.", infer=True)
    memory.add("I moved to Oslo.", infer=True)
    assert texts(memory) == ["I moved to Oslo."]


@pytest.mark.parametrize("writer", ["default", "rules"])
def test_statement_of_two_conversations_survives_one_rollback(writer: str) -> None:
    with opened(writer) as memory:
        for source in ("first", "second"):
            memory.add("My cat is called Tom.", infer=True, source=source)
        assert texts(memory) == ["My cat is called Tom."]
        memory.rollback(source="first")
        (item,) = memory.get_all()
        assert (item.text, item.provenance.source) == ("My cat is called Tom.", "second")
        assert [hit.text for hit in memory.search("cat", mode="dense")] == ["My cat is called Tom."]
        memory.rollback(source="second")
        assert texts(memory) == []
        assert check(memory.store) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n" * 9,
        "```",
        "```\n```",
        "?",
        "- ",
        "a:\n",
        ":\n- x",
        "Remember this:",
        "Remember",
        "no,",
        "```\nx",
        "👍",
        "\x1b[",
        "\u200b",
    ],
)
def test_statement_reader_accepts_any_text(text: str) -> None:
    assert all(statement.text.strip() for statement in statements(text))
    assert len(blank_pasted(text)) == len(text.splitlines())
    assert clean(clean(text)) == clean(text)


@pytest.mark.parametrize(
    "unit",
    ["- a\n", "Remember this:\n", "a:\n", "a, ", "no, ", "```\n", "\x1b[", "what is ", "x" * 9, "( ", ". ", "? ", "。"],
)
def test_reading_time_is_linear_in_length(unit: str) -> None:
    import time

    def seconds(count: int) -> float:
        begun = time.process_time()
        statements(unit * count)
        return time.process_time() - begun

    seconds(100)
    assert seconds(16_000) <= 1.0 + 40 * seconds(1_000)


@pytest.mark.parametrize(("earlier", "later"), [("4", "4-"), ("7a ", "x.")])
def test_long_number_texts_are_read_in_bounded_time(memory: Memory, earlier: str, later: str) -> None:
    import time

    begun = time.process_time()  # of this process alone, however busy the machine is
    for unit in (earlier, later):
        memory.add(f"I live in {unit * (20_000 // len(unit))}", infer=True, user_id="bo")
    assert time.process_time() - begun < 4.0


def test_item_belongs_to_the_speaker(memory: Memory) -> None:
    (item,) = memory.add("I live in Rome.", infer=True, user_id="bo")
    assert isinstance(item, Item)
    assert item.scope.user == "bo"


USERS = json.loads((Path(__file__).parent / "talk_of_users.json").read_text("utf-8"))


@pytest.mark.parametrize(("half", "most"), [("seen", 0.05), ("unseen", 0.4)])
def test_user_messages_yield_statements_and_no_task_remarks(half: str, most: float) -> None:
    kept = [text for text in USERS[half]["nothing"] if statements(text)]
    assert len(kept) <= most * len(USERS[half]["nothing"]), kept
    assert [text for text in USERS[half]["statements"] if not statements(text)] == []


REACTIONS = json.loads((Path(__file__).parent / "reactions.json").read_text("utf-8"))


@pytest.mark.parametrize(("half", "most"), [("seen", 0.01), ("unseen", 0.2)])
def test_reactions_to_an_answer_are_no_statements_and_facts_beside_them_are(half: str, most: float) -> None:
    reactions = [text for texts in REACTIONS[half]["reactions"].values() for text in texts]
    kept = [text for text in reactions if statements(text)]
    assert len(kept) <= most * len(reactions), kept
    rows = REACTIONS[half]["statements"]
    lost = [text for text, word in rows if word not in " ".join(stated.text for stated in statements(text))]
    assert len(lost) <= 0.05 * len(rows), lost


@pytest.mark.parametrize("writer", ["rules", "statements"])
def test_a_writer_by_rules_keeps_the_fact_beside_a_reaction_and_not_the_reaction(writer: str) -> None:
    with Memory(writer=writer, encoder=None) as memory:
        for reaction in (
            "I don't think that's right.",
            "Nein, du hast mich falsch verstanden",
            "Eso no es lo que te pedí",
        ):
            assert memory.add(reaction, infer=True) == []
        (item,) = memory.add("That fixed it! I live in Rome.", infer=True)
        assert item.text == "I live in Rome."


@pytest.mark.parametrize(
    ("request_to_keep", "note"),
    [
        ("Denk daran, dass ich keine Nüsse esse.", "Ich esse keine Nüsse."),
        ("Bitte merk dir, dass mein Bruder in Kiel wohnt.", "Mein Bruder wohnt in Kiel."),
        ("Denk daran, dass der Server 16 GB hat", "Der Server hat 16 GB."),
        # A verb that may have to be divided stays where it is, with the words that ask.
        ("Denk daran, dass ich um sechs aufstehe.", "Denk daran, dass ich um sechs aufstehe."),
    ],
)
def test_german_request_to_remember_becomes_a_sentence(memory: Memory, request_to_keep: str, note: str) -> None:
    assert [item.text for item in memory.add(request_to_keep, infer=True)] == [note]


@pytest.mark.parametrize(
    "output",
    [
        "Sur la branche main\nVotre branche est à jour avec 'origin/main'.\n\nrien à valider, la copie de travail est propre",
        "Auf Branch main\nIhr Branch ist auf demselben Stand wie 'origin/main'.\n\nnichts zu committen",
        "En la rama main\nTu rama está actualizada con 'origin/main'.\n\nnada para hacer commit",
        "На ветке main\nВаша ветка обновлена в соответствии с «origin/main».\n\nнечего коммитить",
        "位于分支 main\n您的分支与上游分支 'origin/main' 一致。\n\n无文件要提交，干净的工作区",
    ],
)
def test_git_output_is_recognised_in_other_languages(memory: Memory, output: str) -> None:
    assert memory.add(output, infer=True) == []
    assert memory.add("En la rama main usamos squash.", infer=True)


def test_sentence_about_a_numbered_thing_is_a_statement(memory: Memory) -> None:
    assert [item.text for item in memory.add("Test 3 passes.", infer=True)] == ["Test 3 passes."]
    assert memory.add("Plot 3 lines.", infer=True) == []


def test_long_text_is_encoded_once_for_storage_only() -> None:
    class Counter:
        """Encodes as "hashing" does, and counts the texts."""

        def __init__(self) -> None:
            self.of = keepworth.encoder("hashing")
            self.identity, self.texts = self.of.identity, 0

        def encode(self, texts: Any) -> Any:
            self.texts += len(texts)
            return self.of.encode(texts)

    counter = Counter()
    text = " ".join(f"The port of server {n} is {7 * n}, and Ana keeps its key in drawer {n % 77}." for n in range(600))
    with Memory(encoder=counter, policy=None, log="off") as memory:
        memory.add("I live in Oslo.", infer=True)
        memory.search("where do I live?")  # the encoder's background is measured
        before = counter.texts
        notes = memory.add(text, infer=True)
        assert len(notes) > 30
        assert counter.texts - before <= 4 + sum(1 + len(spans(note.text)) for note in notes)


@pytest.mark.parametrize(
    ("said", "before", "kept"),
    [
        ("once more: build the docs", "how do I build the docs?", []),
        ("I'll ask a second time: build the docs", "build the docs", []),
        ("die Doku bauen", "wie kann ich die Doku bauen?", []),
        ("My request was: build the docs. I live in Rome.", "build the docs", ["I live in Rome."]),
        ("use mkdocs to build the docs", "how do I build the docs?", ["use mkdocs to build the docs"]),
        ("The deploy branch is release.", "what is the deploy branch?", ["The deploy branch is release."]),
        ("Port 8080: build the docs", "build the docs", ["Port 8080: build the docs"]),
        ("I live in Rome.", "I live in Rome.", ["I live in Rome."]),
    ],
)
def test_request_that_is_only_repeated_is_no_statement(memory: Memory, said: str, before: str, kept: list[str]) -> None:
    items = memory.add([{"role": "user", "content": said, "before": before}], infer=True)
    assert [item.text for item in items] == kept


@pytest.mark.parametrize(
    "text", ["my dentist is dr. alvarez", "we meet at st. james park on friday", "mrs. okafor teaches our son"]
)
def test_titles_in_lower_case_end_no_sentence(memory: Memory, text: str) -> None:
    assert Spoken(memory).kept(text) == [plain(text)]
