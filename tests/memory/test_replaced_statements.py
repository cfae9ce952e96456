"""What tells of a change replaces what it changes, and nothing else; what was stored apart is found with the newer first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.memory.changes import measure, say
from keepworth import Memory
from keepworth.memory.item import Item
from keepworth.memory.replaced_statements import LONGEST, may_replace, replaced_by, replaces, score
from tests.slow import slow_but_for

LISTS = json.loads(Path(__file__).with_name("changes.json").read_text("utf-8"))
"""Statements with what changes them ("changes", with others that stay) and with what only looks like it ("near_misses"), by
somebody who did not know the rules; and such that were written beside the rules ("siblings", "other_near_misses")."""
PAIRS = json.loads(Path(__file__).with_name("change_pairs.json").read_text("utf-8"))
"""Pairs of an older and a newer statement. The weights are fitted to "fit" (`benchmarks/memory/change_weights.py`). "test" is by
others who did not know the signs, and hard to tell; "plain_test" is told more plainly. "development" and "beside" are told
plainly, too, by somebody who knew the signs; they served to find what kinds of changes are not seen, and are fitted to."""
CASES = json.loads(Path(__file__).with_name("change_cases.json").read_text("utf-8"))["blind"]
"""Memories of four to six statements with a newer one and those that it closes, by somebody who knew no rule. The weights are
fitted to them, too: what becomes of one half by weights that were fitted to the other is what
`benchmarks/memory/told_change_weights.py --held` prints."""
SUBJECTS = json.loads(Path(__file__).with_name("change_subjects.json").read_text("utf-8"))
"""Changes with another statement that is near in words, and near misses, of 72 subjects of life and work, written before the
rules on attributes, or before their author read them ("more"). Nobody looked at what becomes of single cases of the subjects that
are held out while the rules were made."""
REPLACED = {"development": 0.8, "held_out": 0.7, "more_development": 0.9}
"""The share of the changes that has to replace the older statement, and it alone."""
CLOSED = {"minilm": 0.45, "hashing": 0.4, None: 0.4}
"""The share of the changes among them that has to close what it changes, by encoder."""
CHANGES = {"changes": 0.85, "siblings": 0.9, "held_changes": 0.45}
"""With the share that has to be seen. Neither rules nor weights were ever tuned on what is held out."""
NEAR_MISSES = ("near_misses", "other_near_misses", "held_near_misses")

SUNDAY = "2026-11-29T09:00"
"""When the statements of days of the week are made, whose dates depend on it."""


@pytest.fixture(scope="module", params=["hashing", "minilm"])
def notes(request: pytest.FixtureRequest) -> Memory:
    return Memory(encoder=request.param, policy=None, log="off", writer="default")


@pytest.mark.parametrize("name", CHANGES)
def test_statement_of_a_change_replaces_one_note(notes: Memory, name: str) -> None:
    changed = 0
    for number, case in enumerate(LISTS[name]):
        before = say(notes, f"{name} {number}", 1, case["old"], *case["others"])
        gone = before - say(notes, f"{name} {number}", 20, case["new"])
        changed += len(gone) == 1 and case["old"].rstrip(".").casefold() in gone.pop().casefold()
        assert gone == set(), case
    assert changed >= CHANGES[name] * len(LISTS[name])


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_lookalike_of_a_change_does_not_replace(notes: Memory, name: str) -> None:
    replaced = []
    for number, case in enumerate(LISTS[name]):
        before = say(notes, f"{name} {number}", 1, case["old"])
        if not before <= say(notes, f"{name} {number}", 20, case["new"]):
            replaced.append(case)
    assert len(replaced) <= 1


@pytest.mark.parametrize("encoder", ["hashing", "minilm"])
@pytest.mark.parametrize("half", REPLACED)
def test_another_value_of_the_same_attribute_replaces(half: str, encoder: str) -> None:
    shares = measure(SUBJECTS[half], encoder)
    assert shares["replaced"]["mean"] >= REPLACED[half]
    assert shares["astray"]["count"] <= 2
    assert shares["mistaken"]["count"] <= 2


@pytest.mark.parametrize("encoder", slow_but_for(["hashing"], CLOSED))
def test_change_among_several_statements_closes_the_changed(encoder: str | None) -> None:
    right = astray = mistaken = 0
    with Memory(encoder=encoder, policy=None, log="off", writer="default") as memory:
        for number, case in enumerate(CASES):
            for text in case["older"]:
                memory.add(text, infer=True, user_id=str(number))
            before = {item.id: item.text for item in memory.get_all(user_id=str(number))}
            changed = {case["older"][place] for place in case["closes"]}
            closed = {id for id, text in before.items() if text in changed}
            memory.add(case["newer"], infer=True, user_id=str(number))
            gone = before.keys() - {item.id for item in memory.get_all(user_id=str(number))}
            right += bool(closed) and closed <= gone
            astray += bool(closed) and not gone <= closed
            mistaken += not closed and bool(gone)
    changes = sum(bool(case["closes"]) for case in CASES)
    assert right >= CLOSED[encoder] * changes
    assert astray <= 0.1 * changes
    assert mistaken <= 0.025 * (len(CASES) - changes)


@pytest.mark.parametrize(("old", "new", "gone"), [
    ("Sandra is my manager.", "Tom's manager Sandra left, he reports to Imran.", False),
    ("My gym costs 30 euros a month.", "My gym went up to 34.", True),
    ("My gym costs 30 euros a month.", "What if my gym went up to 34?", False),
    ("Ana: My gym costs 30 euros a month.", "Bob: My gym went up to 34.", False),
    ("I take the bus to work.", "Tomorrow I'll take a taxi to work.", False),
    ("The feature flag is off in prod.", "The feature flag was switched on in production.", True),
    ("The feature flag is off in prod.", "The feature flag was switched on in staging.", False),
])  # fmt: skip
def test_statements_judged_together_close_one_at_most(old: str, new: str, gone: bool) -> None:
    others = [Item("m1", "I work in Leeds."), Item("m2", "My sister is a nurse.")]
    near = {"m1": 0.1, "m2": 0.1, "m3": 0.6}
    for nearness in (None, near):
        assert replaced_by(new, [*others, Item("m3", old)], nearness) == (["m3"] if gone else [])


@pytest.mark.parametrize(
    ("half", "seen", "mistaken"),
    [("fit", 0.3, 0.025), ("test", 0.19, 0.05), ("plain_test", 0.5, 0.02), ("development", 0.5, 0.02)],
)
def test_held_out_pairs_are_decided_nearly_as_well(half: str, seen: float, mistaken: float) -> None:
    changed, near = ([replaces(old, new) for old, new in PAIRS[half][name]] for name in ("changes", "near_misses"))
    assert sum(changed) >= seen * len(changed)
    assert sum(near) <= mistaken * len(near)


def test_search_ranks_a_change_before_the_changed_statement() -> None:
    with Memory(encoder="hashing", policy=None, log="off") as memory:
        newer = 0
        for number, case in enumerate(LISTS["changes"]):
            user = f"change {number}"
            memory.add(case["old"], event_time="2026-01-01", user_id=user)
            memory.add_many(case["others"], event_time="2026-01-02", user_id=user)
            memory.add(case["new"], event_time="2026-03-01", user_id=user)
            found = [hit.text for hit in memory.search(case["old"], user_id=user, top_k=5)]
            newer += found.index(case["new"]) < found.index(case["old"])
            before = [hit.text for hit in memory.search(case["old"], user_id=user, as_of="2026-02-01")]
            assert case["old"] in before
            assert case["new"] not in before
        for number, case in enumerate(LISTS["near_misses"]):
            user = f"near miss {number}"
            memory.add(case["old"], event_time="2026-01-01", user_id=user)
            memory.add(case["new"], event_time="2026-03-01", user_id=user)
            assert memory.search(case["old"], user_id=user)[0].conflicts == (), case
        assert newer >= 0.9 * len(LISTS["changes"])


def test_earlier_statement_written_later_is_closed_by_the_change(notes: Memory) -> None:
    say(notes, "order", 20, "Sandra left, I report to Imran now.")
    assert say(notes, "order", 2, "Sandra is my boss.") == {"Sandra left, I report to Imran now."}
    (hit,) = notes.search("Who is my boss?", user_id="order", as_of="2026-01-10")
    assert hit.text == "Sandra is my boss."


@pytest.mark.parametrize(("old", "new", "gone"), [
    ("Ana: I live in Rome.", "Bob: I moved to Oslo.", False),
    ("Ana: I live in Rome.", "Ana: I moved to Oslo.", True),
    ("The deadline is on Friday (2026-11-27).", "The deadline moved to Monday (2026-11-30).", True),
    ("I live in Rome.", "I live in Rome.", False),
    ("I live in Rome. I have a dog, a cat and a garden with many old trees by the river.", "I moved to Oslo.", False),
    ("I live in Rome.", "Did I move to Oslo?", False),
    ("I drive a Fiat.", "If I sold my Fiat, I'd cycle.", False),
    ("I drive a Fiat.", "I won't sell my Fiat.", False),
    ("Gate 4 is 9.", "Gate 9 is 12.", False),
    ("My locker number 1 is 7.", "My locker number 7 is 49.", False),
    ("Line 1 is 7.", "Line 1 is 9.", True),
    ("I volunteer at the food bank.", "I no longer volunteer at the food bank.", True),
    ("The feature flag is off in production.", "We turned the feature flag on in staging.", False),
    ("My locker number is 7.", "My locker number is 49.", True),
    ("I drive a Fiat.", "She said: \"I sold my Fiat.\"", False),
])  # fmt: skip
def test_replaced_by_returns_the_replaced_item(old: str, new: str, gone: bool) -> None:
    assert replaced_by(new, [Item("m1", old)]) == (["m1"] if gone else [])


OTHERS = (
    ("Ana has bought the chairs, order 3", "Ana has bought the lamps, order 20"),
    ("Gate 4 is 9.", "Gate 9 is 12."),
    ("Room 3 holds 12.", "Room 12 holds 30."),
    ("Tor 4 ist 9.", "Tor 9 ist 12."),
    ("La porte 4 est 9.", "La porte 9 est 12."),
    ("La sala 3 tiene 12.", "La sala 12 tiene 30."),
    ("Step 1 takes 2 minutes.", "Step 2 takes 3 minutes."),
    ("Ticket 12 is done.", "Ticket 13 is done."),
    ("Invoice 12 is paid.", "Invoice 13 is not paid."),
    ("Server 1 is up.", "Server 2 is not up."),
    ("User 7 is an admin.", "User 8 is not an admin."),
    ("My wife drives a Skoda.", "I sold my Skoda."),
    ("Peter works at Siemens.", "I quit Siemens."),
    ("Peter works at Siemens.", "I left Siemens."),
    ("Tom is a vegetarian.", "I'm no longer a vegetarian."),
    ("My daughter is vegan.", "I'm no longer vegan."),
    ("Anna takes aspirin.", "I stopped taking aspirin."),
    ("Bo uses Jenkins.", "I no longer use Jenkins."),
    ("My dad has a Volvo.", "I sold my Volvo."),
    ("My wife has a cold.", "My cold is gone."),
    ("Meine Frau fährt einen Skoda.", "Ich habe meinen Skoda verkauft."),
    ("I drive a Skoda.", "My brother sold his Skoda."),
    ("I drive a Skoda.", "Anna sold her Skoda."),
    ("In March we sold 200 units.", "In April we sold 250 units."),
    ("My flight to Rome is at 7.", "My flight from Rome is at 19."),
    ("The flight to Rome costs 100.", "The flight from Rome costs 120."),
    ("The path to the lake is closed.", "The path from the lake is open."),
    ("I owe Alice 20 euros.", "Alice owes me 30 euros."),
    ("The old server has 16 GB.", "The new server has 64 GB."),
    ("My old phone is an iPhone.", "My new phone is a Pixel."),
    ("The old office is in Bonn.", "The new office is in Köln."),
    ("The old wing opens at 9.", "The new wing opens at 10."),
    ("Tom lives in Rome.", "Bob moved to Oslo."),
    ("Mia plays chess.", "Leo stopped playing chess."),
    ("Our son is in year 3.", "Our daughter is in year 5 now."),
    ("The train to Leeds takes two hours.", "I was born in Leeds."),
    ("The bus to Porto is full.", "I grew up in Porto."),
    ("Dr Shah speaks Hindi.", "My GP is Dr Shah."),
    ("Ines plays golf.", "My boss is Ines."),
    ("Der Port ist 8080.", "Die Datenbank läuft auf Port 5432."),
    ("The timeout is 30 seconds.", "The backup takes 90 seconds."),
    ("My Italian class is on Tuesdays.", "My Italian class has eight people."),
    ("I work from home on Mondays.", "My boss works from home on Fridays."),
    ("Kestrel is a bird.", "We renamed the product to Kestrel."),
    ("My dog weighs 30 kilos.", "I'm down to 78 kilos."),
    ("Dana's desk is by the window.", "My desk was moved to the corner."),
)
"""Pairs of statements about different things, persons, times or directions, however alike their words are."""


@pytest.mark.parametrize(("old", "new"), OTHERS)
def test_unrelated_statement_does_not_replace(old: str, new: str, notes: Memory) -> None:
    user = f"others-{OTHERS.index((old, new))}"
    say(notes, user, 1, old)
    assert old in say(notes, user, 2, new)


@pytest.mark.parametrize(("old", "new", "gone"), [
    ("The party starts at 8.", "Sorry, the party starts at 7.", True),
    ("The party starts at 8.", "Sorry, the concert starts at 7.", False),
    ("I like my steak rare.", "I like my steak well done now.", True),
    ("I like my steak rare.", "My wife likes her steak well done now.", False),
    ("I have coffee in the morning.", "These days it's tea.", True),
    ("I have coffee in the morning.", "Dad drinks tea these days.", False),
    ("We have a boat.", "The boat sank in the storm.", True),
    ("We have a boat.", "We painted the boat.", False),
    ("I'm waiting for my visa.", "My visa came through.", True),
    ("I'm waiting for my visa.", "My credit card came through.", False),
    ("We use Trello.", "Not Trello any more, Linear.", True),
    ("Our Wi-Fi password is swordfish.", "New Wi-Fi password: marlin7.", True),
    ("Ich rauche.", "Ich rauche nicht mehr.", True),
    ("Ich rauche.", "Mein Vater raucht nicht mehr.", False),
    ("Ich wohne in Bonn.", "Seit Mai wohne ich in Köln.", True),
    ("J'ai un chien.", "Mon chien est mort.", True),
    ("J'ai un chien.", "Mon chien est content.", False),
    ("Tomo café por la mañana.", "Ya no tomo café por la mañana, tomo té.", True),
])  # fmt: skip
def test_change_told_in_other_words_replaces(old: str, new: str, gone: bool, notes: Memory) -> None:
    user = f"other words {old} {new}"
    before = say(notes, user, 1, old, "My sister plays chess.")
    assert before - say(notes, user, 20, new) == ({old} if gone else set())


COMPOUND = (
    ("I'm allergic to penicillin and I live in Bonn.", "I moved to Cologne."),
    ("I live in Leeds and I work at Tesco.", "I no longer work at Tesco."),
    ("I live in Leeds and work at Tesco.", "I quit my job at Tesco."),
    ("My sister Lena lives in Graz and has twins.", "My sister Lena lives in Vienna now."),
    ("I have a dog called Rex, a cat called Tom and I am allergic to latex.", "I don't have a dog anymore."),
    ("I take metformin in the morning and ramipril in the evening.", "I stopped taking ramipril."),
    ("We use Postgres for orders and Redis for sessions.", "We no longer use Redis."),
    ("I'm learning Spanish and Danish.", "I'm not learning Danish any more."),
    ("I hate mushrooms and I love olives.", "I don't hate mushrooms anymore."),
    ("I work from home on Mondays and Fridays.", "I no longer work from home on Fridays."),
    ("I have my own car, a dog and a boat.", "I sold the boat."),
    ("Our API uses OAuth and the rate limit is 100 a minute.", "Our API no longer uses OAuth."),
    ("My kids Mia and Tom go to Lincoln School.", "Tom doesn't go to Lincoln School anymore."),
    ("I like Thai and Indian food.", "I don't like Thai food any more."),
    ("Our sprint starts on Monday and ends on Friday.", "Our sprint ends on Thursday now."),
    ("The meeting is on Monday at 10 and on Friday at 3.", "The Friday meeting is at 4 now."),
    ("I'm 35 and live in Graz.", "I turned 36 today."),
    ("Ich wohne in Köln und bin gegen Penicillin allergisch.", "Ich bin nach Bonn gezogen."),
    ("Ich arbeite bei Siemens und meine Tochter heißt Mia.", "Ich arbeite nicht mehr bei Siemens."),
    ("Ich lerne Spanisch und Dänisch.", "Ich lerne kein Dänisch mehr."),
    ("Ich hasse Pilze und liebe Oliven.", "Ich hasse Pilze nicht mehr."),
    ("Vivo en Sevilla y soy alérgica a las gambas.", "Me mudé a Madrid."),
    ("Tengo dos gatos y un perro que se llama Toby.", "Ya no tengo gatos."),
    ("J'habite à Lyon et mon fils s'appelle Léo.", "J'ai déménagé à Paris."),
)
"""Statements of several things, and one by which only one of them is over or another."""
NOT_SO = (
    ("Ich wohne in Bern.", "Ich bin fast nach Wien gezogen."),
    ("Ich wohne in Bern.", "Ich bin nie nach Wien gezogen."),
    ("Ich wohne in Bern.", "Als Kind bin ich nach Wien gezogen."),
    ("Ich wohne in Bern.", "Ich wäre gern nach Wien gezogen."),
    ("I live in Bern.", "When I was a child we moved to Vienna."),
    ("I live in Bern.", "I wish I had moved to Vienna."),
    ("Vivo en Lima.", "Casi me mudé a Quito."),
    ("J'habite à Lyon.", "J'ai failli déménager à Paris."),
    ("I work at Shell.", "I almost quit my job at Shell."),
    ("Our sprint starts on Monday.", "Our sprint ends on Thursday now."),
    ("Der Kurs beginnt um 9.", "Der Kurs endet jetzt um 12."),
    ("I play the piano.", "I don't play the piano on Sundays."),
    ("I drink coffee.", "I don't drink coffee at work."),
    ("I take metformin daily.", "I stopped taking metformin for two days last week and started again."),
)
"""Statements, and others by which nothing is over: what was nearly so, never so, long ago, for a while, or at some times."""


@pytest.mark.parametrize(("old", "new"), [*COMPOUND, *NOT_SO])
def test_statement_stays_open_where_it_says_more_or_is_still_so(old: str, new: str, notes: Memory) -> None:
    user = f"still so {old} {new}"
    before = say(notes, user, 1, old)
    assert before
    assert before <= say(notes, user, 20, new)


@pytest.mark.parametrize(("old", "new"), [
    ("I work at Tesco and I like it there.", "I quit my job at Tesco."),
    ("My boss is Anna and she is very strict.", "My boss is Peter now."),
    ("I play chess and tennis.", "I no longer play chess and tennis."),
    ("I'm vegetarian.", "I've started eating meat again."),
    ("I go to the gym on Tuesdays and Thursdays.", "I go to the gym on Mondays and Wednesdays now."),
    ("Our sprint starts on Monday.", "Our sprint starts on Tuesday now."),
    ("The shop is open.", "The shop closed."),
])  # fmt: skip
def test_statement_that_says_no_more_is_closed(old: str, new: str, notes: Memory) -> None:
    user = f"no more {old} {new}"
    assert say(notes, user, 1, old).isdisjoint(say(notes, user, 20, new))


def test_statement_of_a_project_replaces_those_of_the_same_project_alone() -> None:
    with Memory() as memory:
        for project, text in (
            ("web", "The tests run with make check."),
            ("shop", "The tests run with npm test now."),
            ("web", "The tests run with tox now."),
            ("web", "I live in Rome."),
            ("shop", "I moved to Oslo."),
            ("", "The build runs with make."),
            ("shop", "The build runs with bazel now."),
        ):
            memory.add(text, infer=True, metadata={"project": project} if project else None)
        assert [item.text for item in memory.get_all()] == [
            "The tests run with npm test now.",
            "The tests run with tox now.",
            "I moved to Oslo.",
            "The build runs with bazel now.",
        ]


@pytest.mark.parametrize(("said", "then"), [
    ("I'm allergic to nuts.", "It's my sister's wedding on Saturday."),
    ("I live in a small village.", "It's a beautiful day."),
    ("My flight is at 8.", "It's my first time abroad."),
    ("I leave in two days.", "It's my birthday soon."),
])  # fmt: skip
def test_sentence_about_something_else_is_not_put_into_the_one_before(said: str, then: str) -> None:
    with Memory(":memory:") as memory:
        memory.add([{"role": "user", "content": said}, {"role": "user", "content": then}], infer=True)
        texts = [item.text for item in memory.get_all()]
    assert said in [text.partition(" (")[0] for text in texts]
    assert not any(said.split()[1] in text and then.split()[-1] in text for text in texts)


WORDS = st.sampled_from(
    ["I", "my", "was", "now", "from", "to", "sold", "3", "3pm", "May", ",", ".", "?", "not", "rent"]
)


@given(
    st.one_of(
        st.text(max_size=600),
        st.lists(WORDS, max_size=60).map(" ".join),
    )
)
@example("We meet at ²")
@example(f"We meet at {'4' * 5000}")
@settings(max_examples=150, deadline=None)
def test_replacement_rules_accept_any_text(text: str) -> None:
    for other in ("I live in Rome.", "My rent is 900 euros.", text[::-1], text):
        assert 0.0 <= score(text, other) <= 1.0
        assert may_replace(text, other) in (True, False)
        assert score(other, text) == 0.0 or max(len(text), len(other)) <= LONGEST
    assert score(text, text) == 0.0


@pytest.mark.parametrize(
    ("messages", "notes"),
    [
        # Only what was said just before is corrected: a request or a question has no value that a note could lose.
        (
            ["My dentist appointment is on Monday.", "Book a table for Friday please.", "Sorry, I meant Saturday."],
            ["My dentist appointment is on Monday. (2026-11-30)", "I meant Saturday."],
        ),
        (
            ["My flight is on Friday.", "Which day is the cup final?", "No, it's Thursday now."],
            ["My flight is on Friday. (2026-12-04)", "No, it's Thursday now."],
        ),
        # The rest of the statement stays.
        (
            ["My flight is at 7am on Friday.", "Sorry, I meant Saturday."],
            ["My flight is at 7am on Saturday. (2026-12-05)"],
        ),
        (
            ["The meeting is on Wednesday at 10 in room 5.", "Actually, it's on Thursday."],
            ["The meeting is on Thursday at 10 in room 5."],
        ),
        (
            ["Our team meeting is on Wednesday at 10.", "No, it's Thursday now."],
            ["Our team meeting is on Thursday at 10."],
        ),
        (["The server runs on port 8080.", "No, the port is 9090."], ["The server runs on port 9090."]),
        (["The room has 30 seats.", "No, it's 40 seats."], ["The room has 40 seats."]),
        (["I drink black coffee.", "Sorry, I meant tea."], ["I drink black tea."]),
        (["The train leaves at 8:30 pm.", "Sorry, I meant 9:15 pm."], ["The train leaves at 9:15 pm."]),
        (["Mon vol est lundi.", "Non, c'est mardi."], ["Mon vol est mardi. (2026-12-01)"]),
        (["Mi vuelo es el lunes.", "No, es el martes."], ["Mi vuelo es el martes. (2026-12-01)"]),
        (["The rent is 900 euros.", "No, the rent is 950."], ["No, the rent is 950."]),
        (["Der Server läuft auf Port 8080.", "Nein, der Port ist 9090."], ["Der Server läuft auf Port 9090."]),
        (
            ["The server runs on port 8080.", "No, the budget is 9090."],
            ["The server runs on port 8080.", "No, the budget is 9090."],
        ),
        (["Das Meeting ist am Mittwoch.", "Nein, jetzt ist es am Donnerstag."], ["Das Meeting ist am Donnerstag."]),
        (["J'ai rendez-vous mardi à 10h.", "Non, mercredi."], ["J'ai rendez-vous mercredi à 10h. (2026-12-02)"]),
        (["Tengo dos hijos.", "No, tres."], ["Tengo tres hijos."]),
        (["Die Miete beträgt 900 Euro.", "Quatsch, 950."], ["Die Miete beträgt 950 Euro."]),
        (["Mein Chef heißt Herr Özdemir.", "Ach Quatsch, Herr Yilmaz."], ["Mein Chef heißt Herr Yilmaz."]),
        (["My boss is called Mr Brown.", "Oops, Mr Green."], ["My boss is called Mr Green."]),
        (["My boss is called Mr Brown.", "I mean Mr Green."], ["My boss is called Mr Green."]),
        (["The code is 4471.", "Wait, 4472."], ["The code is 4472."]),
        (["I live in Leeds.", "Sorry, York."], ["I live in York."]),
        (["I weigh 80 kg and I'm 180 cm tall.", "Sorry, 82 kg."], ["I weigh 82 kg and I'm 180 cm tall."]),
        # Of several values it is not known which one is meant, so that both are kept together.
        (
            ["I take the 8:15 train to Bonn and the 17:40 back.", "Sorry, 17:50."],
            ["I take the 8:15 train to Bonn and the 17:40 back (Sorry, 17:50)."],
        ),
        (
            ["I have a meeting on Monday and Tuesday.", "No, Wednesday."],
            ["I have a meeting on Monday and Tuesday (No, Wednesday)."],
        ),
        # No value of this kind, or thanks, or an answer to what was asked.
        (["I live in Leeds.", "No, Tuesday."], ["I live in Leeds."]),
        (["I live in Leeds.", "No, thanks."], ["I live in Leeds."]),
        (["Das Meeting ist am Mittwoch.", "Stimmt nicht, es ist am Donnerstag."], ["Das Meeting ist am Donnerstag."]),
    ],
)
def test_a_correction_without_its_subject_takes_the_place_of_the_value_said_before(
    messages: list[str], notes: list[str]
) -> None:
    with Memory(":memory:", clock=lambda: SUNDAY) as memory:
        memory.add([{"role": "user", "content": text} for text in messages], infer=True)
        assert sorted(item.text for item in memory.get_all()) == sorted(notes)


def test_a_correction_in_a_conversation_of_its_own_keeps_the_words_of_the_note_that_it_replaces() -> None:
    with Memory(":memory:", clock=lambda: SUNDAY) as memory:
        for text in ("My flight is at 7am on Friday.", "Sorry, I meant Saturday."):
            memory.add([{"role": "user", "content": text}], infer=True)
        assert [item.text for item in memory.get_all()] == ["My flight is at 7am on Saturday. (2026-12-05)"]


@pytest.mark.parametrize(
    ("conversation", "notes"),
    [
        # A value that answers a question corrects nothing, nor does one that only says what day it is.
        (
            [
                ("user", "My flight is on Monday."),
                ("assistant", "Which day suits you for the dentist?"),
                ("user", "Friday."),
            ],
            ["My flight is on Monday. (2026-11-30)"],
        ),
        (
            [("user", "My flight is on Friday."), ("assistant", "What day is it?"), ("user", "It's Monday.")],
            ["My flight is on Friday. (2026-12-04)"],
        ),
        ([("user", "My flight is on Friday."), ("user", "It's Monday.")], ["My flight is on Friday. (2026-12-04)"]),
        (
            [("user", "My boss is called Anna."), ("assistant", "Is she there today?"), ("user", "No, Peter.")],
            ["My boss is called Anna."],
        ),
        # A new state is told of what was said earlier, too.
        (
            [("user", "I drink coffee."), ("user", "Which film is on?"), ("user", "These days it's tea.")],
            ["I drink tea."],
        ),
    ],
)
def test_a_value_that_answers_or_tells_the_day_leaves_older_statements_as_they_are(
    conversation: list[tuple[str, str]], notes: list[str]
) -> None:
    with Memory(":memory:", clock=lambda: SUNDAY) as memory:
        memory.add([{"role": role, "content": text} for role, text in conversation], infer=True)
        texts = [item.text for item in memory.get_all()]
    assert [text for text in texts if any(word in text for word in ("flight", "drink", "called"))] == notes


@pytest.mark.parametrize("correction", ["Sorry, I meant Saturday.", "Sorry, it's on Saturday.", "Sorry, Saturday."])
def test_a_corrected_day_has_the_date_of_the_new_value(correction: str) -> None:
    days = ["2026-12-01T09:00", "2026-12-02T09:00", "2026-12-03T09:00"]
    with Memory(":memory:", clock=lambda: days[0]) as memory:
        for text in ("My dentist appointment is on Monday.", "My flight is at 7am on Friday.", correction):
            memory.add([{"role": "user", "content": text}], infer=True)
            days.pop(0) if len(days) > 1 else None
        texts = sorted(item.text for item in memory.get_all())
    assert texts == [
        "My dentist appointment is on Monday. (2026-12-07)",
        "My flight is at 7am on Saturday. (2026-12-05)",
    ]


def test_a_date_in_the_words_of_the_speaker_stays_where_a_value_is_corrected() -> None:
    with Memory(":memory:") as memory:
        for text in ("The API (2024-05-01 version) runs on port 8080.", "No, the port is 9090."):
            memory.add([{"role": "user", "content": text}], infer=True)
        assert [item.text for item in memory.get_all()] == ["The API (2024-05-01 version) runs on port 9090."]


def test_a_correction_without_a_statement_of_its_value_is_not_kept() -> None:
    with Memory(":memory:") as memory:
        memory.add([{"role": "user", "content": "I drink coffee."}], infer=True)
        memory.add([{"role": "user", "content": "Sorry, Saturday."}], infer=True)
        assert [item.text for item in memory.get_all()] == ["I drink coffee."]


def test_a_value_that_one_person_corrects_is_not_put_into_the_words_of_another() -> None:
    with Memory(":memory:", clock=lambda: SUNDAY) as memory:
        for name, text in (("Bob", "My flight is at 7am on Friday."), ("Ana", "Sorry, I meant Saturday.")):
            memory.add([{"role": "user", "name": name, "content": text}], infer=True)
        texts = [item.text for item in memory.get_all()]
    assert "Bob: My flight is at 7am on Friday. (2026-12-04)" in texts
    assert not any("Saturday" in text and "flight" in text for text in texts)


@pytest.mark.parametrize(
    ("messages", "notes"),
    [
        # A state that is so again replaces the state that had replaced it, and another preference.
        (["I drink coffee.", "I drink tea now.", "I drink coffee again."], ["I drink coffee again."]),
        (["Prefiero el té.", "Ahora prefiero el café.", "Ahora prefiero el mate."], ["Ahora prefiero el mate."]),
        (["Ahora prefiero el café.", "Prefiero otra vez el té."], ["Prefiero otra vez el té."]),
        (["Je préfère le thé.", "Je préfère de nouveau le café."], ["Je préfère de nouveau le café."]),
        (
            ["Ich trinke am liebsten Tee.", "Ich trinke wieder am liebsten Kaffee."],
            ["Ich trinke wieder am liebsten Kaffee."],
        ),
        (["J'utilise vim.", "J'utilise emacs maintenant."], ["J'utilise emacs maintenant."]),
        # Who is back at something leaves what had taken its place.
        (["I use vim.", "I switched to emacs.", "I'm back to vim."], ["I'm back to vim."]),
        (
            ["I use vim.", "I use emacs now.", "I have two cats.", "I went back to vim."],
            ["I have two cats.", "I went back to vim."],
        ),
        (["I live in Rome.", "I moved to Oslo.", "I'm back in Rome."], ["I'm back in Rome."]),
        (["Ich benutze vim.", "Ich benutze jetzt emacs.", "Ich bin wieder bei vim."], ["Ich bin wieder bei vim."]),
        (["J'utilise vim.", "J'utilise emacs maintenant.", "Je suis revenu à vim."], ["Je suis revenu à vim."]),
        (["Uso vim.", "Ahora uso emacs.", "He vuelto a vim."], ["He vuelto a vim."]),
        (["I use vim.", "I use emacs now.", "I'm back from Rome."], ["I use emacs now.", "I'm back from Rome."]),
        (["I use vim.", "I use emacs now.", "I'm back to work soon."], ["I use emacs now.", "I'm back to work soon."]),
        # A change that is taken back.
        (
            ["I live in Bergen.", "I moved to Oslo.", "No wait, that's wrong, I still live in Bergen."],
            ["No wait, that's wrong, I still live in Bergen."],
        ),
        (
            ["Ich wohne in Bergen.", "Ich bin nach Oslo gezogen.", "Nein, ich wohne noch in Bergen."],
            ["Nein, ich wohne noch in Bergen."],
        ),
        (["I use vim.", "I still use emacs."], ["I still use emacs.", "I use vim."]),
        # A preference of one thing over another is no other value of a plain preference.
        (
            ["Prefiero el té.", "Prefiero otra vez el tren al avión."],
            ["Prefiero el té.", "Prefiero otra vez el tren al avión."],
        ),
        (["I like tea.", "I like coffee too."], ["I like tea.", "I like coffee too."]),
        (["I read Emma.", "I read Dune again."], ["I read Dune again.", "I read Emma."]),
    ],
)
def test_a_return_replaces_the_state_that_it_leaves(messages: list[str], notes: list[str]) -> None:
    with Memory(":memory:") as memory:
        for text in messages:
            memory.add([{"role": "user", "content": text}], infer=True)
        assert sorted(item.text for item in memory.get_all()) == sorted(notes)


def test_a_sentence_beside_another_that_tells_of_an_end_closes_no_statement() -> None:
    song = 'One of my favorites is a track called "Savana."'
    later = "We all need that occasionally. This is one of my favorite spots to ponder and let things go."
    with Memory(":memory:") as memory:
        for text in (song, later):
            memory.add([{"role": "user", "content": text}], infer=True)
        assert [item.text for item in memory.get_all()] == [song, later]


@pytest.mark.parametrize(
    ("older", "newer", "kept"),
    [
        ("I earn 65k a year.", "Let's say I earn 100k a year. How much tax do I pay?", False),
        ("My server has 32 GB of RAM.", "Suppose my server has 64 GB of RAM.", False),
        ("I live in Rome.", "Hypothetically, I live in Oslo now and need a visa.", False),
        ("Ich wohne in Rom.", "Angenommen, ich wohne jetzt in Oslo.", False),
        ("Ich wohne in Rom.", "Stell dir vor, ich wohne jetzt in Oslo.", False),
        ("J'habite à Rome.", "Imaginons que j'habite maintenant à Oslo.", False),
        ("Vivo en Roma.", "Supongamos que ahora vivo en Oslo.", False),
        ("I live in Rome.", "In my novel I live in Oslo now.", True),
        ("I live in Rome.", "They asked whether I moved to Oslo.", True),
        ("I live in Rome.", "It's not true that I moved to Oslo.", True),
        ("Ich wohne in Rom.", "Es ist nicht wahr, dass ich jetzt in Oslo wohne.", True),
        ("Vivo en Roma.", "No es verdad que ahora vivo en Oslo.", True),
    ],
)
def test_a_supposed_asked_or_denied_change_replaces_no_statement(older: str, newer: str, kept: bool) -> None:
    with Memory(":memory:") as memory:
        for text in (older, newer):
            memory.add([{"role": "user", "content": text}], infer=True)
        assert [item.text for item in memory.get_all()] == [older, *[newer] * kept]


@pytest.mark.parametrize(
    ("older", "correction", "later", "notes"),
    [
        ("Dinner is at 7.", "Let's make it 8.", "2026-12-01T09:05", ["Dinner is at 8."]),
        ("Dinner is at 7.", "Make that 8.", "2026-12-01T09:05", ["Dinner is at 8."]),
        ("My gate number is 5.", "No, it's 7.", "2026-12-01T09:05", ["My gate number is 7."]),
        ("My train is at 9:10.", "Oops, 9:20.", "2026-12-01T09:05", ["My train is at 9:20."]),
        # Of a number it is not known what it is of, but for what was said just before.
        ("My rent is 900 euros.", "Let's say 8.", "2026-12-02T09:00", ["Let's say 8.", "My rent is 900 euros."]),
        ("I live in Rome.", "Make it 8.", "2026-12-01T09:05", ["I live in Rome."]),
    ],
)
def test_a_number_alone_corrects_the_statement_just_before(
    older: str, correction: str, later: str, notes: list[str]
) -> None:
    times = ["2026-12-01T09:00", later]
    with Memory(":memory:", clock=lambda: times[0]) as memory:
        memory.add([{"role": "user", "content": older}], infer=True)
        times.pop(0)
        memory.add([{"role": "user", "content": correction}], infer=True)
        assert sorted(item.text for item in memory.get_all()) == notes
