"""Signals: what counts as an outcome where nobody gives a reward, through the doors of a memory."""

from __future__ import annotations

import random

import pytest

from keepworth import Memory
from keepworth.base.errors import UnknownName
from keepworth.memory import signals
from keepworth.memory.errors import InvalidFilter, InvalidText

SLOW, FAST = "build the docs with: make html docs build", "for the documentation run: mkdocs build --strict"


def opened(**settings: object) -> Memory:
    return Memory(":memory:", encoder="hashing", seed=1, **settings)  # type: ignore[arg-type]


def sources(memory: Memory, episode: str) -> list[tuple[str, float]]:
    return [(term.scorer, term.value) for term in memory.episode_record(episode).rewards]


LAUNCHERS = (
    *(
        "uvx",
        "uv tool run",
        "uv run --python 3.12 --",
        "pipx run",
        "mise exec --",
        "asdf exec",
        "pyenv exec",
        "npm exec --",
    ),
    *("timeout 60", "timeout -k 5 60s", "time -p", "nice -n 10", "sudo -u bob", "stdbuf -oL"),
)
CHECKS_OF_A_PROJECT = (
    *("mise run test", "pixi run test", "hatch run test", "poe lint", "python manage.py test shop", "pants test ::"),
    *("./scripts/run_tests.sh --fast", "bash test.sh", "yarn vitest"),
)


@pytest.mark.parametrize(
    ("command", "succeeded", "failed"),
    [
        ("pytest -q", "check-passed", "check-failed"),
        ("cd app && uv run pytest tests | tail -3", "check-passed", "check-failed"),
        ("FORCE_COLOR=1 npm run test:unit -- --watch=false", "check-passed", "check-failed"),
        ("docker compose exec web python -m pytest", "check-passed", "check-failed"),
        ("./gradlew :app:assembleDebug", "check-passed", "check-failed"),
        ("make html", "check-passed", "check-failed"),
        ("python deploy.py --to staging", "tool-succeeded", "tool-failed"),
        ("make install", "tool-succeeded", "tool-failed"),
        *((f"{launcher} pytest -q", "check-passed", "check-failed") for launcher in LAUNCHERS),
        *((check, "check-passed", "check-failed") for check in CHECKS_OF_A_PROJECT),
        ("bash -lc 'cd app && npm test'", "check-passed", "check-failed"),
        ("timer start", "tool-succeeded", "tool-failed"),
        ("cat > notes.md <<'EOF'\npytest\nEOF", "", "tool-failed"),
        ('git commit -m "$(cat <<EOF\nMend it\n\npytest runs again\nEOF\n)"', "commit", "tool-failed"),
        ('echo "first build; pytest then"', "", "tool-failed"),
        ("git add -A && git commit -m 'Add pytest'", "commit", "tool-failed"),
        ("git checkout -- src/app.py", "revert", ""),
        ("git checkout main", "tool-succeeded", "tool-failed"),
        ("grep -r pytest .", "", ""),
        ("ls -la; cat Makefile", "", "tool-failed"),
        ("", "", "tool-failed"),
    ],
)
def test_tool_results_map_to_signals(command: str, succeeded: str, failed: str) -> None:
    assert signals.read_tool(command, failed=False) == succeeded
    assert signals.read_tool(command, failed=True) == failed


def test_piped_check_fails_by_its_output() -> None:
    printed = "collected 12 items\n=========== 2 failed, 10 passed in 0.31s ==========="
    assert signals.read_tool("pytest | tail -3", failed=False, output=printed) == "check-failed"
    assert signals.read_tool("pytest | tail -3", failed=False, output="12 passed, 0 failed") == "check-passed"


@pytest.mark.parametrize(
    ("message", "signal"),
    [
        ("thanks!", "thanks"),
        ("No problem, go on", "new-subject"),
        ("No, use the other file", "correction"),
        ("Great, another error", "correction"),
        ("thanks, but the tests still fail", "correction"),
        ("Thanks in advance! Can you rename the parser?", ""),
        ("wrong window, sorry", ""),
        ("fix the parser of dates", "repetition"),
        ("Das funktioniert immer noch nicht", "correction"),
        ("danke, passt", "thanks"),
        ("ça ne marche pas", "correction"),
        ("спасибо, работает", "thanks"),
        ("还是报错", "correction"),
        ("ありがとうございます、直りました", "thanks"),
        ("> that is wrong\nwhat does this sentence mean in the parser of dates?", ""),
        ("", ""),
    ],
)
def test_replies_map_to_signals(message: str, signal: str) -> None:
    assert signals.read_reply(message, "fix the parser of dates") == signal


THANKS_TO_OTHERS = (
    "Please thank Bob for me.",
    "Thanks to my boss we have a new office.",
    "My boss said thank you.",
    "Danke an meine Kollegin, die das Büro gestrichen hat.",
    "Dank meiner Chefin haben wir ein neues Büro.",
    "Merci à mon chef, nous avons un nouveau bureau.",
    "Gracias a mi jefe tenemos una oficina nueva.",
    "Obrigado à minha chefe temos um escritório.",
)
REFUSALS = (
    *("Thanks for nothing", "Danke für nichts", "Danke für gar nichts.", "Merci pour rien", "Gracias por nada"),
    *("Obrigado por nada", "Grazie di niente", "Спасибо за ничего", "👎", "😡", "👎🏽", "👎 again", "Nope", "nope."),
)
THANKS_AND_ON = (
    "Great, thanks. Another question: how do I print?",
    "Danke, super. Andere Frage: wie drucke ich?",
    "Super, merci. Autre question : comment imprimer ?",
    "Genial, gracias. Otra pregunta: ¿cómo imprimo?",
    "Please thank Bob for me. Perfect, that worked, thank you!",
    *(
        "👍",
        "Thanks to you it works now.",
        "Dank dir läuft es jetzt",
        "Grâce à toi ça marche",
        "Thank God it works now",
    ),
)


@pytest.mark.parametrize(
    ("replies", "rewards"),
    [(THANKS_TO_OTHERS, []), (REFUSALS, [("correction", 0.0)]), (THANKS_AND_ON, [("thanks", 1.0)])],
    ids=["thanks to others", "refusals", "thanks before another question"],
)
def test_a_reply_rewards_only_by_its_words_about_the_answer(
    replies: tuple[str, ...], rewards: list[tuple[str, float]]
) -> None:
    wrong = {}
    for reply in replies:
        memory = opened()
        memory.add(FAST)
        with memory.episode("how do I build the docs") as episode:
            episode.search(top_k=1)
            episode.signal(reply=reply)
        judged = [(source.removeprefix("signal:"), value) for source, value in sources(memory, episode.id)]
        if judged != rewards:
            wrong[reply] = judged
    assert wrong == {}


def test_signals_alone_rank_the_better_note_first() -> None:
    memory, draw, first = opened(), random.Random(3), []
    memory.add(SLOW)
    better = memory.add(FAST)
    for _ in range(100):
        with memory.episode("how do I build the docs") as episode:
            lead = episode.search(top_k=2)[0]
            episode.signal(command="mkdocs build", failed=draw.random() > (0.9 if lead.id == better.id else 0.3))
        first.append(lead.id == better.id)
    assert sum(first[-30:]) >= 27


def test_signal_rewards_earlier_searches_in_the_persons_name() -> None:
    memory = opened()
    note = memory.add(FAST, user_id="ann")
    episode = memory.episode("build the documentation", user_id="ann", by="ann")
    assert not episode.signal("check-passed").applied  # nothing was shown before it
    episode.search()
    assert episode.signal("check-passed").applied
    assert sources(memory, episode.id) == [("signal:check-passed:ann", 1.0)]
    assert memory.worth(note.id, "build the documentation").earned == pytest.approx(1.0, abs=1e-3)
    assert not episode.signal("check-passed").applied  # the same again says nothing new


def test_repeated_question_after_a_passed_check_is_no_repetition_signal() -> None:
    memory = opened()
    memory.add(FAST)
    for failed, names in ((False, ["check-passed"]), (True, ["check-failed", "repetition"])):
        episode = memory.episode("build the documentation")
        episode.search()
        episode.signal(command="mkdocs build", failed=failed)
        episode.signal(reply="build the documentation")
        assert [source for source, _ in sources(memory, episode.id)] == [f"signal:{name}" for name in names]


def test_a_correction_after_an_interrupt_counts_as_the_correction() -> None:
    """It weighs more, though both say the same value; a third signal, of a check, shows how much."""
    earned = []
    for stopped in (True, False):
        with Memory(":memory:", encoder=None) as memory:
            note = memory.add("Run the tests with: make test")
            with memory.episode("run the tests", by="ana") as episode:
                episode.search(top_k=1)
                episode.signal(command="make test", failed=False)
            if stopped:
                assert episode.signal("interrupt").applied
            assert episode.signal(reply="No, that is wrong").applied
            assert not episode.signal(reply="No, that is wrong").applied
            earned.append(memory.worth(note.id, "run the tests").earned)
    assert earned[0] == earned[1]


def test_a_storm_of_signals_counts_as_one() -> None:
    memory = opened()
    memory.add(FAST)
    episode = memory.episode("build the documentation")
    episode.search()
    for _ in range(300):
        episode.signal(failed=True)
        episode.signal(command="python deploy.py", failed=False)
    assert len(sources(memory, episode.id)) <= 16
    assert episode.record().reward in (0.0, 1.0)


def test_explicit_reward_outweighs_all_signals() -> None:
    memory = opened()
    note = memory.add(FAST)
    episode = memory.episode("build the documentation", by="ann")
    episode.search()
    episode.signal("check-failed")
    episode.signal(reply="no, that is wrong")
    episode.reward(1.0)
    episode.signal("revert")
    assert memory.worth(note.id, "build the documentation").earned == pytest.approx(1.0, abs=1e-3)
    assert episode.record().reward == 1.0


def test_signals_roll_back_by_source_or_person_and_rewards_stay() -> None:
    memory = opened()
    note = memory.add(FAST)
    episodes = [memory.episode("build the documentation", by=person) for person in ("ann", "bob")]
    for episode in episodes:
        episode.search()
        episode.signal("check-failed")
        episode.signal(reply="no, that is wrong")
    episodes[0].reward(1.0)
    memory.rollback(source="signal:correction")
    assert [len(sources(memory, episode.id)) for episode in episodes] == [3, 2]
    assert memory.worth(note.id, "build the documentation").seen == 2.0
    memory.rollback(rewarder="bob")
    assert memory.worth(note.id, "build the documentation").seen == 1.0
    with pytest.raises(InvalidFilter, match="signal:tanks"):
        memory.rollback(source="signal:tanks")


def test_signals_count_the_same_after_reopening(tmp_path: object) -> None:
    path = f"{tmp_path}/agent.mem"
    with Memory(path, encoder="hashing", seed=1) as memory:
        note = memory.add(FAST)
        for name in ("check-failed", "thanks", "check-passed"):
            with memory.episode("build the documentation") as episode:
                episode.search()
                episode.signal(name)
                episode.signal("correction")
        before = memory.worth(note.id, "build the documentation")
    with Memory(path, encoder="hashing", seed=1) as memory:
        assert memory.worth(note.id, "build the documentation") == before


def test_signals_can_be_switched_off_one_by_one() -> None:
    memory = opened(signals=["thanks"])
    memory.add(FAST)
    episode = memory.episode("build the documentation")
    episode.search()
    assert episode.signal("check-passed").reason == "the signal check-passed is switched off"
    assert episode.signal(reply="perfect, thanks").applied
    assert "says nothing" in opened().episode("x").signal("silent").reason


def test_unknown_signals_are_refused() -> None:
    with pytest.raises(UnknownName, match="tanks"):
        opened(signals=["tanks"])
    with pytest.raises(InvalidFilter, match="signals='thanks'"):
        opened(signals="thanks")
    episode = opened().episode("build")
    with pytest.raises(UnknownName, match="tanks"):
        episode.signal("tanks")
    with pytest.raises(InvalidFilter, match="exactly one"):
        episode.signal("thanks", reply="no")
    with pytest.raises(InvalidText, match="signal:a:b"):
        episode.reward(1.0, source="signal:a:b")


@pytest.mark.parametrize(
    ("answer", "reply", "rewarded"),
    [
        ("Run make docs.", "Nope", True),
        ("Run make docs. Do you need anything else?", "Nope", False),
        ("Run make docs. Do you need anything else?", "👎", True),
    ],
)
def test_a_no_to_a_question_of_the_answer_is_no_correction(answer: str, reply: str, rewarded: bool) -> None:
    memory = opened()
    memory.add(FAST)
    with memory.episode("how do I build the docs") as episode:
        episode.search(top_k=1)
        episode.act(answer)
        episode.signal(reply=reply)
    assert bool(sources(memory, episode.id)) == rewarded
